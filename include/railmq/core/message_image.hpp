// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/death.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/retry_policy.hpp>
#include <railmq/model/time.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace railmq::core {

/// How far a message has come, as it is kept.
enum class image_state : std::uint8_t {
    in_line,  ///< Never handed out.
    held,     ///< With a consumer.
    returned, ///< Ready again.
    delayed,  ///< Until `due`, when it will stand in line.
    waiting,  ///< Until `due`, when it will be ready again.
    dying,    ///< On its way to a dead-letter queue.
    crashed,  ///< It was held by a process that has died, and nobody has judged that yet.
};

/// All that is to be known of a message but its payload: what outlives a process.
struct message_image {
    std::uint64_t id = 0;
    std::uint64_t position = 0; ///< In the order of sending; of a delayed message, its id.
    image_state state = image_state::in_line;
    requeue_position returned_to = requeue_position::original;
    std::uint32_t delivery_count = 0;
    failure_counts failures{};
    time_point enqueued{};
    time_point first_handed_out = never;
    time_point expires_at = never;
    time_point due = never;
    duration previous_wait{0};
    death_reason dying_of = death_reason::rejected;
    std::string dying_detail{};
    // Never changed while it is in its queue, and so kept with its payload.
    std::unique_ptr<railmq::properties> props{};
    std::unique_ptr<death_history> deaths{};

    /// Whether id, hand-outs and the time of sending say it all.
    [[nodiscard]] bool is_plain() const noexcept {
        return (state == image_state::in_line || state == image_state::held) && id == position &&
               failures == failure_counts{} && expires_at == never && previous_wait == duration{0};
    }
};

} // namespace railmq::core
