// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/name.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/time.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace railmq {

/// How a `basic_requester` asks.
struct requester_options {
    /// The queue that replies come to. Empty: one with a name that nobody else has, removed with
    /// the requester. In a broker with a directory a name of one's own leaves nothing behind when
    /// the process is killed. One queue serves one requester at a time.
    std::string reply_queue{};
    /// How long a request waits for its reply, unless the call says otherwise.
    duration timeout = std::chrono::seconds{30};
    /// Requests that may wait at once; more are refused with `queue_full`.
    std::size_t max_pending = unlimited;

    friend bool operator==(const requester_options&, const requester_options&) = default;
};

/// What became of a requester's requests:
/// `sent == pending + answered + timed_out + cancelled + failed`.
struct requester_stats {
    std::size_t pending = 0; ///< Wait for their reply now.
    std::uint64_t sent = 0;
    std::uint64_t answered = 0;
    std::uint64_t timed_out = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t failed = 0; ///< Could not be sent, or the requester was closed.
    /// Replies that nobody waited for; not one of the requests above.
    std::uint64_t late_replies = 0;

    friend bool operator==(const requester_stats&, const requester_stats&) = default;
};

/// `errc::invalid_argument` (of a name: `errc::invalid_name`) and what was expected, or no failure.
[[nodiscard]] inline failure validate(const requester_options& o) {
    if (!o.reply_queue.empty()) {
        if (failure f = validate_name(o.reply_queue)) {
            f.what = "reply_queue: " + f.what;
            return f;
        }
    }
    if (o.timeout <= duration::zero()) {
        return {errc::invalid_argument, "timeout is longer than zero"};
    }
    if (o.max_pending == 0) {
        return {errc::invalid_argument, "max_pending is at least 1, or unlimited"};
    }
    return {};
}

} // namespace railmq
