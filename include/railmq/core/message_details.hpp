// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/deadline_index.hpp>
#include <railmq/model/death.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/retry_policy.hpp>
#include <railmq/model/time.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace railmq::core {

struct key_line;

/// What a message in state `slot_state::waiting` waits for.
enum class wait_kind : std::uint8_t { none, delay, backoff, key, dead_letter };

/// Everything that most messages do not have: made when a message has properties, is handed out
/// again, has a time to live, or is otherwise out of the ordinary.
struct message_details {
    time_point enqueued{};
    time_point lease_deadline = never;
    time_point first_handed_out = never;
    time_point expires_at = never;
    time_point lease_start{};
    deadline_handle timer{};    ///< The lease's deadline, or the end of a wait.
    deadline_handle lifetime{}; ///< The time to live's end.
    std::uint64_t id = 0;       ///< Its number, when that is not its position in line.
    bool has_id = false;
    wait_kind waits_for = wait_kind::none;
    std::uint32_t refusals = 0; ///< By the dead-letter queue.
    failure_counts failures{};
    duration previous_wait{0};
    key_line* line = nullptr; ///< Of its key, when the queue keeps order and it is first there.
    /// Where it was put when it was given back last.
    requeue_position returned_to = requeue_position::original;
    std::unique_ptr<railmq::properties> props{};
    std::unique_ptr<death_history> deaths{};
    /// Set while it waits for its move to a dead-letter queue.
    death_reason dying_of = death_reason::rejected;
    std::string dying_detail{};
    /// Without a state until a handler asks for its token.
    std::stop_source stop{std::nostopstate};
};

} // namespace railmq::core
