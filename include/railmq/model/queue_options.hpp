// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/name.hpp>
#include <railmq/model/retry_policy.hpp>
#include <railmq/model/time.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace railmq {

/// No limit, wherever a number of messages or bytes is expected.
inline constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// The most levels that `queue_options::priorities` may ask for.
inline constexpr std::uint32_t max_priorities = 256;

/// What a send does when a length or byte limit is reached.
enum class overflow_policy : unsigned char {
    wait,   ///< Waits for room; `try_send` reports `queue_full`.
    reject, ///< Fails with `queue_full`; nothing is stored.
    /// Makes room at the head; what is dropped is dead-lettered. With priorities it drops from the
    /// lowest one that there is, the oldest first, and be it what was sent just now.
    drop_oldest,
};

/// Where a message goes that failed or whose deadline passed. A released one, and what a closing
/// consumer held, always goes back to its original place. With priorities this is the place among
/// those of its own: it never leaves its level.
enum class requeue_position : unsigned char {
    original, ///< Its place in the order of sending (RabbitMQ classic queues).
    front,    ///< Before everything else, the latest first.
    back,     ///< Behind everything that is in the queue at that moment.
};

/// What order the queue promises.
enum class delivery_order : unsigned char {
    fifo,   ///< Handed out in order; several may be in work at once, and a retry does not block.
    by_key, ///< One at a time per `properties::key`; a failed message holds its key until settled.
    /// One at a time altogether; a failed message holds the queue until settled, and so goes back
    /// to its original place whatever `queue_options::requeue` says.
    strict,
};

/// Where dead messages go. Unset: the broker's default, else the queue `<name>.dead`.
class dead_letter_target {
public:
    dead_letter_target() = default;
    /// A queue of the same broker and message type; created when it is missing.
    template <class Name>
    requires std::convertible_to<Name, std::string_view>
    dead_letter_target(const Name& queue) // NOLINT: a name converts, as `.dead_letter = "parking"`
        : name_{std::string_view{queue}} {}

    /// Dead messages are dropped: counted and noticed, but not kept.
    [[nodiscard]] static dead_letter_target discard() {
        dead_letter_target t;
        t.discard_ = true;
        return t;
    }

    [[nodiscard]] bool is_unset() const noexcept { return !discard_ && name_.empty(); }
    [[nodiscard]] bool is_discard() const noexcept { return discard_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    friend bool operator==(const dead_letter_target&, const dead_letter_target&) = default;

private:
    std::string name_{};
    bool discard_ = false;
};

/// Drops dead messages instead of keeping them; must be said, is never the default.
inline const dead_letter_target discard = dead_letter_target::discard();

/// How a queue behaves. Every member has a default, so designated initializers name only what
/// differs.
struct queue_options {
    /// Messages that may be ready at once. Held and delayed ones do not count, and returning a
    /// message never fails, so the number of ready ones can pass the limit by what consumers hold
    /// (RabbitMQ, max-length).
    std::size_t max_length = unlimited;
    /// Payload bytes that may be ready at once; the first of the two limits that is hit decides.
    std::size_t max_bytes = unlimited;
    overflow_policy overflow = overflow_policy::wait;
    /// How long a consumer may hold a message before it goes to another: counted from the
    /// hand-out, or from the last `extend`. Never early; late by at most the runtime's tick.
    duration ack_timeout = std::chrono::seconds{30};
    retry_policy retry{};
    dead_letter_target dead_letter{};
    requeue_position requeue = requeue_position::original;
    delivery_order order = delivery_order::fifo;
    /// How many levels `properties::priority` has, at most `max_priorities`: with 4, from 0 to 3. A
    /// message goes before all of lower ones that are ready, and in the order of sending among its
    /// own. 0 or 1: no priorities. Needs `order = fifo`, as the other orders are by the time of
    /// sending. Cost: sends and receives take the queue's lock; constant time for each message.
    std::uint32_t priorities = 0;
    /// So that nothing starves: after that many in a row that have gone before less urgent ones,
    /// the one that has waited longest goes. 0: no limit, strictly by priority.
    std::uint32_t max_overtakes = 0;
    /// How long a message may wait in the queue; with a message's own time to live the shorter
    /// counts. An expired message is dead-lettered at its time, wherever it is in the queue.
    std::optional<duration> time_to_live{};
    /// How long a `properties::deduplication_id` is remembered, counted from the first send that
    /// was accepted. Until then a message with the same id is accepted, and not stored: its receipt
    /// says so. What becomes of the first one changes nothing, nor does a purge or a restart. 0:
    /// off. What the ids take counts against the broker's memory limit. (SQS, five minutes;
    /// JetStream, two.)
    duration deduplication_window{0};

    friend bool operator==(const queue_options&, const queue_options&) = default;
};

/// `errc::invalid_argument` and what was expected, or no failure.
[[nodiscard]] inline failure validate(const queue_options& o) {
    const auto bad = [](std::string what) {
        return failure{errc::invalid_argument, std::move(what)};
    };
    if (o.max_length == 0) {
        return bad("max_length is at least 1; leave it unlimited or set a length");
    }
    if (o.max_bytes == 0) {
        return bad("max_bytes is at least 1; leave it unlimited or set a size");
    }
    if (o.overflow == overflow_policy::drop_oldest && o.max_length == unlimited &&
        o.max_bytes == unlimited) {
        return bad("overflow = drop_oldest needs max_length or max_bytes");
    }
    if (o.ack_timeout <= duration::zero()) {
        return bad(
            "ack_timeout is longer than zero; got " + std::to_string(o.ack_timeout.count()) +
            " ns");
    }
    if (o.time_to_live && *o.time_to_live < duration::zero()) {
        return bad(
            "time_to_live is not negative; got " + std::to_string(o.time_to_live->count()) + " ns");
    }
    if (o.deduplication_window < duration::zero()) {
        return bad(
            "deduplication_window is not negative; got " +
            std::to_string(o.deduplication_window.count()) + " ns");
    }
    if (o.priorities > max_priorities) {
        return bad(
            "priorities is a number of levels, at most " + std::to_string(max_priorities) +
            "; got " + std::to_string(o.priorities));
    }
    if (o.priorities > 1 && o.order != delivery_order::fifo) {
        return bad("priorities needs order = fifo; by_key and strict keep the order of sending");
    }
    if (o.max_overtakes != 0 && o.priorities <= 1) {
        return bad("max_overtakes needs priorities");
    }
    if (!o.dead_letter.is_unset() && !o.dead_letter.is_discard()) {
        if (failure f = validate_name(o.dead_letter.name())) {
            f.what = "dead_letter: " + f.what;
            return f;
        }
    }
    return validate(o.retry);
}

/// The first option in which `have` and `want` differ, for the text of `options_mismatch`; empty
/// when they are equal.
[[nodiscard]] inline std::string_view
difference(const queue_options& have, const queue_options& want) noexcept {
    if (have.max_length != want.max_length) return "max_length";
    if (have.max_bytes != want.max_bytes) return "max_bytes";
    if (have.overflow != want.overflow) return "overflow";
    if (have.ack_timeout != want.ack_timeout) return "ack_timeout";
    if (!(have.retry == want.retry)) return "retry";
    if (!(have.dead_letter == want.dead_letter)) return "dead_letter";
    if (have.requeue != want.requeue) return "requeue";
    if (have.order != want.order) return "order";
    if (have.priorities != want.priorities) return "priorities";
    if (have.max_overtakes != want.max_overtakes) return "max_overtakes";
    if (have.time_to_live != want.time_to_live) return "time_to_live";
    if (have.deduplication_window != want.deduplication_window) return "deduplication_window";
    return {};
}

} // namespace railmq
