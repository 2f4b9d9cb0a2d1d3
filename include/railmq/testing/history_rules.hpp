// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/queue_options.hpp>
#include <railmq/model/time.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace railmq::testing {

/// What is wrong with a history. Each is a promise of the broker that was not kept.
enum class violation_kind : std::uint8_t {
    lost,                 ///< Confirmed, never settled, and not there at the end.
    invented,             ///< It is in a queue to which nobody sent or moved it.
    failed_send_appeared, ///< The send had definitely failed.
    second_copy,          ///< One send, and two messages of it in the queue.
    in_two_queues,        ///< It was moved, and is where it was as well.
    came_back,            ///< It was acked, dropped or purged, for good.
    two_leases,           ///< Handed out while somebody's lease of it was good.
    wrong_delivery_count, ///< Not one more than the last time.
    wrong_failure_count,  ///< Not the number of its failures.
    wrong_redelivered,    ///< The flag says something else than the hand-outs before.
    too_early,            ///< Handed out before its delay or its wait was over.
    too_late,             ///< Handed out after its time to live.
    lease_cut_short,      ///< The lease ended before its deadline.
    refused_holder,       ///< A settlement was stale although the lease was good.
    stale_accepted,       ///< A settlement counted although the lease was not good any more.
    settled_twice,        ///< One lease was settled, and settled again.
    died_in_hand,         ///< Dead-lettered, dropped or moved while somebody held it.
    died_early,           ///< Dead-lettered or dropped for a reason that is not there.
    died_late,            ///< Handed out, or still there, when it had to be a dead letter.
    out_of_order,         ///< Handed out before one that comes first.
    id_reused,            ///< Two messages of one queue have the same id.
    id_not_rising,        ///< Sent later, and a smaller id.
    offset_reused,        ///< Two records of one partition have the same offset.
    offset_not_rising,    ///< Appended or read later, and no larger offset.
    offset_skipped,       ///< No record has that offset, or a reader did not get it.
    after_the_end,        ///< Happened after the broker was closed or had crashed.
};

[[nodiscard]] constexpr std::string_view to_string(violation_kind kind) noexcept {
    switch (kind) {
    case violation_kind::lost: return "lost";
    case violation_kind::invented: return "invented";
    case violation_kind::failed_send_appeared: return "failed send appeared";
    case violation_kind::second_copy: return "second copy";
    case violation_kind::in_two_queues: return "in two queues";
    case violation_kind::came_back: return "came back";
    case violation_kind::two_leases: return "two leases";
    case violation_kind::wrong_delivery_count: return "wrong delivery count";
    case violation_kind::wrong_failure_count: return "wrong failure count";
    case violation_kind::wrong_redelivered: return "wrong redelivered";
    case violation_kind::too_early: return "too early";
    case violation_kind::too_late: return "too late";
    case violation_kind::lease_cut_short: return "lease cut short";
    case violation_kind::refused_holder: return "refused holder";
    case violation_kind::stale_accepted: return "stale accepted";
    case violation_kind::settled_twice: return "settled twice";
    case violation_kind::died_in_hand: return "died in hand";
    case violation_kind::died_early: return "died early";
    case violation_kind::died_late: return "died late";
    case violation_kind::out_of_order: return "out of order";
    case violation_kind::id_reused: return "id reused";
    case violation_kind::id_not_rising: return "id not rising";
    case violation_kind::offset_reused: return "offset reused";
    case violation_kind::offset_not_rising: return "offset not rising";
    case violation_kind::offset_skipped: return "offset skipped";
    case violation_kind::after_the_end: return "after the end";
    }
    return "unknown violation";
}

/// One broken promise.
struct violation {
    violation_kind kind = violation_kind::lost;
    std::uint64_t message = 0;
    std::string queue{};
    time_point at{};
    /// The events that contradict each other, by their position in the history, the last one first.
    std::vector<std::size_t> events{};
    /// For a person to read: all of the above, and what was expected.
    std::string text{};
};

/// What one queue promises. Limits of 0 are not judged; they are otherwise those of `retry_policy`.
struct queue_rules {
    std::uint32_t max_attempts = 0;
    std::uint32_t max_stalls = 0;
    std::uint32_t max_crashes = 0;
    /// Delayed messages have no place in the order, and messages that were moved here no known one.
    /// By id where ids are recorded, by the order of the sends where they are not. Left unset for a
    /// queue with priorities, whose order is another.
    std::optional<delivery_order> order{};
};

/// What is promised, and what a test does not see.
struct history_rules {
    queue_rules all_queues{};
    std::map<std::string, queue_rules> queues{}; ///< Those for which other rules hold.
    /// The history ends with `remaining` for everything that was left: what is not settled, and not
    /// among them, is lost.
    bool is_complete = true;
    /// Several threads recorded. What one of them was told may then be recorded before the event
    /// that made it so, and hand-outs to different consumers in another order than they were made.
    /// They are put in order by their ids and delivery counts, which must be recorded then.
    bool is_concurrent = false;
    /// A crash may undo the last settlement, drop or move of a message: it is handed out again. It
    /// never does so after the broker has been opened again.
    bool crash_may_undo = true;
    /// How many hand-outs of one message a crash may hide from the test: the consumer died before
    /// it could write that it had got the message.
    std::uint32_t unseen_hand_outs = 0;
    /// How many hand-outs and failures of one message a crash may hide from the broker.
    std::uint32_t forgotten_hand_outs = 0;
    /// How much later than it happened something may be recorded; 0 for virtual time.
    duration tolerance{};
    /// Logs have every offset between the first and the last, and readers skip none of them. Not
    /// where a log is compacted.
    bool has_dense_offsets = true;
    std::vector<violation_kind> ignored{};
};

} // namespace railmq::testing
