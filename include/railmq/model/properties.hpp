// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace railmq {

/// What travels beside a message. Everything is optional; a message sent without properties
/// carries none and costs nothing for them.
struct properties {
    /// The event's own id: the same on every redelivery and in a dead-letter queue, so that it can
    /// serve as the key of an idempotent consumer. Empty: none.
    std::string message_id{};
    /// Decides order (`delivery_order::by_key`) and, in a log, the partition. An empty key is a
    /// key; `nullopt` is no key.
    std::optional<std::string> key{};
    /// Decides where an exchange sends the message; kept when it is dead-lettered.
    std::string routing_key{};
    /// How urgent the message is, in a queue with `queue_options::priorities`: larger goes first,
    /// and what is above the highest level counts as that. Others only carry it.
    std::uint32_t priority = 0;
    /// How long the message may wait before it expires. It does not expire while it is held, and
    /// a message that was dead-lettered does not expire again.
    std::optional<duration> time_to_live{};
    /// How long the message stays invisible after it was sent: a minimum, never cut short.
    duration delay{0};
    /// When what it tells of happened, by the wall clock; the broker only carries it.
    std::optional<std::chrono::sys_time<duration>> event_time{};
    /// Of two messages with the same one the second is not stored, in a queue with a
    /// `queue_options::deduplication_window` and as long as that says. Empty: none.
    std::string deduplication_id{};
    /// Links a reply to its request.
    std::string correlation_id{};
    /// The queue that answers go to.
    std::string reply_to{};
    /// Anything else, in the order given.
    std::vector<std::pair<std::string, std::string>> headers{};

    friend bool operator==(const properties&, const properties&) = default;
};

} // namespace railmq
