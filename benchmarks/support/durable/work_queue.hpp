// SPDX-License-Identifier: BSL-1.0
//
// Work queues that keep what is in them: RailMQ, and what a program would write by hand in its
// place.
#pragma once

#include <railmq/railmq.hpp>

#include "../payload.hpp"
#include "files.hpp"
#include "log.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

/// - `enqueue(payload, count)`: returns when so many messages are as safe as they have to be.
/// - `lease(count)`: takes so many, looks at each, and notes that they are taken.
/// - `acknowledge()`: ends all that are taken.
template <class Queue>
concept work_queue = requires(Queue& queue, std::span<const std::byte> payload) {
    queue.enqueue(payload, std::size_t{1});
    queue.lease(std::size_t{1});
    queue.acknowledge();
};

namespace peer {

inline const std::string queue_by_hand = "file + deque by hand";
inline const std::string railmq_kept = "RailMQ";
inline const std::string railmq_acks_synced = "RailMQ, acks synced too";
inline const std::string railmq_accepted = "RailMQ, accepted";

} // namespace peer

/// The least that does the same: messages in memory and in frames of a file, leases and
/// acknowledgements as frames that name the first one and how many. Leases are written at once,
/// acknowledgements with the next messages, as RailMQ does.
class queue_by_hand {
public:
    queue_by_hand(const std::string& directory, safety safe)
        : file_{directory}
        , safe_{safe} {}

    void enqueue(std::span<const std::byte> payload, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            raw_file::encode(group_, payload);
            messages_.emplace_back(payload.begin(), payload.end());
        }
        write();
        if (safe_ == safety::power) {
            file_.sync();
        }
    }
    void lease(std::size_t count) {
        for (; leased_ < count; ++leased_) {
            keep(messages_[leased_].front());
        }
        note(leased_);
        write();
    }
    void acknowledge() {
        note(leased_);
        messages_.erase(
            messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(leased_));
        first_ += leased_;
        leased_ = 0;
    }

private:
    void note(std::uint64_t count) {
        const std::array range{first_, count};
        raw_file::encode(group_, std::as_bytes(std::span{range}));
    }
    void write() {
        file_.write(group_);
        group_.clear();
    }

    raw_file file_;
    safety safe_;
    std::vector<std::byte> group_;
    std::deque<std::vector<std::byte>> messages_;
    std::size_t leased_ = 0;
    std::uint64_t first_ = 0;
};

/// A broker with a directory.
class kept_queue {
public:
    explicit kept_queue(
        const std::string& directory,
        railmq::durability level = {},
        bool syncs_acks = false,
        std::uint64_t segment_bytes = railmq::storage::journal_options{}.segment_bytes)
        : broker_{railmq::broker_options{
              .directory = directory + "/broker",
              .durability = level,
              .journal = {.segment_bytes = segment_bytes}}}
        , queue_{broker_.queue<railmq::bytes>("bench", {})}
        , producer_{queue_.producer()}
        , consumer_{queue_.consumer({.prefetch = 1'000})}
        , syncs_acks_{syncs_acks} {}

    void enqueue(std::span<const std::byte> payload, std::size_t count) {
        const std::string_view text{reinterpret_cast<const char*>(payload.data()), payload.size()};
        if (count == 1) {
            producer_.send(text);
            return;
        }
        texts_.assign(count, text);
        producer_.send_batch(texts_);
    }
    void lease(std::size_t count) {
        taken_.clear();
        if (count == 1) {
            if (auto one = consumer_.try_receive()) {
                taken_.push_back(std::move(*one));
            }
        } else {
            consumer_.receive_batch(taken_, count, std::chrono::seconds{10});
        }
        require(taken_.size() == count, "not everything could be taken");
        for (const auto& one : taken_) {
            keep(*one.value().data());
        }
    }
    /// As if they had never been taken, for the next time.
    void give_back() {
        for (auto& one : taken_) {
            one.release();
        }
        taken_.clear();
    }
    void acknowledge() {
        if (taken_.size() == 1) {
            taken_.front().ack();
        } else {
            railmq::ack_all(taken_);
        }
        if (syncs_acks_) {
            broker_.sync();
        }
    }

    [[nodiscard]] railmq::broker& broker() { return broker_; }

private:
    railmq::broker broker_;
    railmq::queue<railmq::bytes> queue_;
    railmq::producer<railmq::bytes> producer_;
    railmq::consumer<railmq::bytes> consumer_;
    bool syncs_acks_;
    std::vector<std::string_view> texts_;
    std::vector<railmq::delivery<railmq::bytes>> taken_;
};

} // namespace bench
