// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/notice.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/journal.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace railmq {

/// Whether a journal hears of messages that are handed out.
enum class hand_out_journaling : unsigned char {
    /// Before anybody sees the message: one that ends the process is counted every time.
    always,
    /// Only of what was there when a process ended otherwise than by closing its broker: faster,
    /// and the first such end is not counted.
    after_crash,
};

/// What a broker is made with.
struct broker_options {
    /// Where the broker keeps everything, so that it is there again when another one is made with
    /// it; made if it is missing. Empty: in memory alone.
    std::string directory{};
    /// How far sends have to have come before they return, unless their producer says otherwise.
    railmq::durability durability{};
    hand_out_journaling journal_hand_outs = hand_out_journaling::always;
    /// Sizes of the journal in the directory.
    storage::journal_options journal{};
    /// Bytes that all message blocks may take together, counted by block.
    std::size_t memory_limit = std::size_t{1} << 30;
    /// Where asynchronous operations complete whose handler names no executor, and where the
    /// broker's one timer runs; without one, both are on the system's threads. It must outlive the
    /// broker, or at least its `close`.
    boost::asio::any_io_executor executor{};
    /// Gets every notice. With an observer every call goes through its queue's lock.
    railmq::observer observer{};
    /// Of all random choices (jitter); 0 takes one from the system, or from the simulation.
    std::uint64_t seed = 0;
    /// How long a blocking call gives up its time slice again and again before it parks its thread.
    /// Longer is faster to wake and busier while idle; zero parks at once.
    duration park_after = std::chrono::microseconds{200};
};

[[nodiscard]] inline failure validate(const broker_options& o) {
    if (o.memory_limit == 0) {
        return {errc::invalid_argument, "memory_limit is at least 1 byte"};
    }
    if (o.journal.segment_bytes < 4096 || o.journal.segment_bytes > std::uint64_t{16} << 30) {
        return {errc::invalid_argument, "journal.segment_bytes is from 4096 to 16 GiB"};
    }
    if (o.durability.interval() < duration::zero()) {
        return {errc::invalid_argument, "durability::interval is not negative"};
    }
    if (o.park_after < duration::zero()) {
        return {errc::invalid_argument, "park_after is not negative"};
    }
    return {};
}

} // namespace railmq
