// SPDX-License-Identifier: BSL-1.0
//
// Histories that are good, and histories that are broken by hand: each of these is found to be
// broken, in the way that it is broken and in no other.
#include <railmq/testing/history_check.hpp>

#include "support/catch.hpp"
#include "unit/testing/events.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace railmq::test::events;
using railmq::death_reason;
using railmq::delivery_order;
using railmq::testing::check;
using railmq::testing::history_rules;
using railmq::testing::queue_rules;
using railmq::testing::violation;
using railmq::testing::violation_kind;

namespace {

constexpr auto accepted = confirm_level::accepted;
constexpr auto written = confirm_level::written;

history_rules queues(queue_rules q) {
    history_rules r;
    r.queues["q"] = q;
    return r;
}
history_rules in_order(delivery_order order) {
    return queues({.order = order});
}
history_rules attempts(std::uint32_t limit) {
    return queues({.max_attempts = limit});
}
history_rules never_undone(queue_rules q = {}) {
    history_rules r = queues(q);
    r.crash_may_undo = false;
    return r;
}
history_rules with_threads(queue_rules q = {}) {
    history_rules r = queues(q);
    r.is_concurrent = true;
    return r;
}
history_rules forgetful(std::uint32_t hand_outs) {
    history_rules r;
    r.forgotten_hand_outs = hand_outs;
    return r;
}
history_rules compacted() {
    history_rules r;
    r.has_dense_offsets = false;
    return r;
}
history_rules incomplete() {
    history_rules r;
    r.is_complete = false;
    return r;
}
history_rules with_unseen(std::uint32_t hand_outs, queue_rules q = {}) {
    history_rules r = queues(q);
    r.unseen_hand_outs = hand_outs;
    return r;
}

struct good_history {
    const char* name;
    std::vector<event> events;
    history_rules rules{};
};

struct broken_history {
    const char* name;
    violation_kind fault;
    std::vector<event> events;
    history_rules rules{};
};

// A history is read like a text, several events to a line.
// clang-format off

const std::vector<good_history>& good_histories() {
    static const std::vector<good_history> all{
        {"nothing happened", {}},
        {"sent, handed out, acked", {
            sent(1), out(1, 1, 1, 1s), ack(1, 1, 2s)}},
        {"handed out before the send returned", {
            send_begun(1), out(1, 1, 1, 1s), ack(1, 1, 2s), sent(1, 3s)}},
        {"never received", {
            sent(1), sent(2), out(1, 1, 1, 1s), ack(1, 1, 1s), left(2)}},
        {"held at the end", {
            sent(1), out(1, 1, 1, 1s)}},
        {"nacked, waited, tried again", {
            sent(1), out(1, 1, 1, 1s), nack(1, 1, 2s, 5s), out(1, 2, 2, 5s), ack(1, 2, 6s)}},
        {"released and handed out at once", {
            sent(1), out(1, 1, 1, 1s), release(1, 1, 1s),
            with_failures(0, out(1, 1, 2, 1s)), ack(1, 1, 1s)}},
        {"deadline passed, told", {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s),
            with_failures(1, out(1, 2, 2, 30s)), refused(1, 1, 31s), ack(1, 2, 31s)}},
        {"deadline passed, not told", {
            sent(1), out(1, 1, 1, 0s), with_failures(1, out(1, 2, 2, 30s)), refused(1, 1, 31s),
            ack(1, 2, 31s)}},
        {"a late ack, and nobody else had it", {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s), ack(1, 1, 40s)}},
        {"extended", {
            sent(1), out(1, 1, 1, 0s), until(60s, by(1, event_kind::extended, 1, 10s)),
            expired(1, 60s), out(1, 1, 2, 60s), with_count(1, refused(1, 1, 60s)),
            ack(1, 1, 61s)}},
        {"its consumer closed", {
            sent(1), out(1, 1, 1, 0s), consumer_closed(1, 1s), refused(1, 1, 1s),
            with_failures(0, out(1, 2, 2, 1s)), ack(1, 2, 2s)}},
        {"delayed", {
            ready(10s, sent(1)), sent(2), out(2, 1, 1, 0s), ack(2, 1, 0s),
            out(1, 1, 1, 10s), ack(1, 1, 10s)},
            in_order(delivery_order::fifo)},
        {"a delayed message has an id of another series", {
            sent(7), with_id(2, ready(10s, sent(2))), sent(8), left(2), left(7), left(8)}},
        {"dead after its last attempt", {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), out(1, 1, 2, 1s), nack(1, 1, 2s),
            with_failures(2, dead(1, death_reason::max_attempts, 2s)), in("q.dead", left(1))},
            attempts(2)},
        {"dead after its last stall", {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s), out(1, 1, 2, 30s),
            dead(1, death_reason::max_stalls, 60s), in("q.dead", left(1))},
            queues({.max_attempts = 9, .max_stalls = 2})},
        {"rejected, and worked on as a dead letter", {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            in("q.dead", with_id(9, out(1, 5, 1, 2s))), in("q.dead", ack(1, 5, 3s))},
            attempts(2)},
        {"redriven, and dead again", {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            in("q.dead", to("q", plain(event_kind::redriven, 1, 2s))),
            with_id(2, out(1, 1, 1, 3s)), reject(1, 1, 3s), dead(1, death_reason::rejected, 3s),
            in("q.dead", left(1))}},
        {"expired in time", {
            living(10s, sent(1)), dropped(1, death_reason::expired, 10s)}},
        {"held when its time to live ended", {
            living(10s, sent(1)), out(1, 1, 1, 9s), ack(1, 1, 20s)}},
        {"dropped to make room", {
            sent(1), sent(2), dropped(1, death_reason::dropped_oldest, 1s), left(2)}},
        {"purged, and what was held stayed", {
            sent(1), sent(2), out(1, 1, 1, 0s), purged(1s), nack(1, 1, 2s), out(1, 1, 2, 3s),
            ack(1, 1, 3s)}},
        {"a send that failed", {
            send_begun(1), send_failed(1)}},
        {"failed, then tried again", {
            send_begun(1), send_failed(1), send_begun(1), sent(1), left(1)}},
        {"unknown, and not there", {send_begun(1), send_unknown(1)}},
        {"unknown, and there", {
            send_begun(1), send_unknown(1), with_id(1, out(1, 1, 1, 0s)), ack(1, 1, 1s)}},
        {"cut off in a send, and not there", {
            send_begun(1), crashed(1s), reopened(2s)}},
        {"cut off in a send, and there", {
            send_begun(1), crashed(1s), reopened(2s), left(1)}},
        {"in memory, and the process died", {
            safe(accepted, sent(1)), crashed(1s), reopened(2s)}},
        {"written, and the power went", {
            safe(written, sent(1)), crashed(1s, crash_kind::power), reopened(2s)}},
        {"written, and the process died", {
            safe(written, sent(1)), crashed(1s), reopened(2s), left(1)}},
        {"held when the process died", {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s),
            with_failures(1, out(1, 2, 2, 2s)), ack(1, 2, 3s)}},
        {"killed three times by one message", {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s), out(1, 2, 2, 2s), crashed(3s),
            reopened(4s), out(1, 3, 3, 4s), crashed(5s), reopened(6s),
            dead(1, death_reason::max_crashes, 6s), in("q.dead", left(1))},
            queues({.max_crashes = 3})},
        {"killed too often, and moved before anybody looked", {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s), in("q.dead", left(1))},
            queues({.max_crashes = 1})},
        {"an ack that a crash undid", {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), crashed(1s), reopened(2s),
            out(1, 2, 2, 2s), ack(1, 2, 3s)}},
        {"an ack that a crash did not undo", {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), crashed(1s), reopened(2s)}},
        {"a crash within an ack", {
            sent(1), sent(2), out(1, 1, 1, 0s), out(2, 1, 1, 0s), settle_begun(1, 1, 1s),
            settle_begun(2, 1, 1s), crashed(1s), reopened(2s), out(2, 2, 2, 2s), ack(2, 2, 2s)},
            never_undone()},
        {"a death that a crash undid", {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            crashed(1s), reopened(2s), out(1, 2, 2, 2s), ack(1, 2, 3s)}},
        {"a death of a passed deadline, of which a crash undid both", {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s), dead(1, death_reason::max_stalls, 30s),
            crashed(31s), reopened(32s), out(1, 2, 2, 32s), ack(1, 2, 33s)},
            queues({.max_stalls = 1})},
        {"a drop after a passed deadline, of which a crash undid both", {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s), dropped(1, death_reason::max_stalls, 30s),
            crashed(31s), reopened(32s), out(1, 2, 2, 32s), ack(1, 2, 33s)},
            queues({.max_stalls = 1})},
        {"a death that a crash did not undo", {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            crashed(1s), reopened(2s), in("q.dead", left(1))}},
        {"a hand-out that nobody could write down", {
            sent(1), crashed(1s), reopened(2s), out(1, 2, 2, 2s), ack(1, 2, 3s)},
            with_unseen(1, {.max_crashes = 3})},
        {"a hand-out that the broker forgot", {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s), out(1, 2, 1, 2s),
            ack(1, 2, 3s)},
            forgetful(1)},
        {"closed, and opened again", {
            sent(1), sent(2), out(1, 1, 1, 0s), ack(1, 1, 0s), out(2, 1, 1, 0s), closed(1s),
            refused(2, 1, 1s), reopened(2s), with_failures(0, out(2, 2, 2, 2s)), ack(2, 2, 3s),
            sent(3, 3s), left(3)}},
        {"one queue, first in, first out", {
            sent(1), sent(2), sent(3), out(1, 1, 1, 0s), out(2, 2, 1, 0s), nack(1, 1, 0s, 9s),
            out(3, 1, 1, 0s), ack(3, 1, 0s), ack(2, 2, 0s), out(1, 2, 2, 9s), ack(1, 2, 9s)},
            in_order(delivery_order::fifo)},
        {"keys, each in order", {
            of_key("a", sent(1)), of_key("b", sent(2)), of_key("a", sent(3)), sent(4),
            out(1, 1, 1, 0s), out(2, 2, 1, 0s), out(4, 3, 1, 0s), nack(1, 1, 0s, 5s),
            ack(2, 2, 1s), out(1, 1, 2, 5s), ack(1, 1, 5s), out(3, 1, 1, 5s), ack(3, 1, 5s),
            ack(4, 3, 5s)},
            in_order(delivery_order::by_key)},
        {"a key whose first message died", {
            of_key("a", sent(1)), of_key("a", sent(2)), out(1, 1, 1, 0s), reject(1, 1, 1s),
            dead(1, death_reason::rejected, 1s), out(2, 1, 1, 1s), ack(2, 1, 1s),
            in("q.dead", left(1))},
            in_order(delivery_order::by_key)},
        {"one at a time", {
            sent(1), sent(2), out(1, 1, 1, 0s), release(1, 1, 1s), out(1, 2, 2, 1s),
            ack(1, 2, 2s), out(2, 1, 1, 2s), ack(2, 1, 2s)},
            in_order(delivery_order::strict)},
        {"one at a time, and a crash", {
            sent(1), sent(2), out(1, 1, 1, 0s), ack(1, 1, 0s), out(2, 1, 1, 0s), crashed(1s),
            reopened(2s), out(2, 1, 2, 2s), ack(2, 1, 2s)},
            in_order(delivery_order::strict)},
        {"threads: the next holder writes first", {
            sent(1), out(1, 1, 1, 0s), settle_begun(1, 1, 1s), out(1, 2, 2, 1s), nack(1, 1, 1s),
            settle_begun(1, 2, 2s), ack(1, 2, 2s)},
            with_threads()},
        {"threads: ids in another order than confirms", {
            send_begun(1), send_begun(2), sent(2), sent(1), left(1), left(2)},
            with_threads()},
        {"threads: a dead letter is received before its death is told", {
            sent(1), out(1, 1, 1, 0s), settle_begun(1, 1, 1s),
            in("q.dead", with_id(1, out(1, 9, 1, 1s))), dead(1, death_reason::rejected, 1s),
            reject(1, 1, 1s), in("q.dead", ack(1, 9, 2s))},
            with_threads()},
        {"threads: the next of a key comes before a death is told", {
            of_key("a", sent(1)), of_key("a", sent(2)), out(1, 1, 1, 0s), settle_begun(1, 1, 1s),
            out(2, 2, 1, 1s), dead(1, death_reason::max_attempts, 1s), nack(1, 1, 1s),
            ack(2, 2, 2s), in("q.dead", left(1))},
            with_threads({.max_attempts = 1, .order = delivery_order::by_key})},
        {"threads: the first to get it writes last", {
            sent(1), with_id(1, out(1, 2, 2, 31s)), with_id(1, out(1, 1, 1, 0s)),
            with_id(1, expired(0, 30s)), settle_begun(1, 2, 32s), ack(1, 2, 32s),
            refused(1, 1, 33s)},
            with_threads()},
        {"threads: failures that were asked for late", {
            sent(1), with_failures(1, with_id(1, out(1, 1, 1, 0s))), out(1, 2, 2, 30s),
            settle_begun(1, 2, 31s), ack(1, 2, 31s)},
            with_threads()},
        {"threads: it died before its holder could write", {
            sent(1), dead(1, death_reason::max_stalls, 30s), with_id(1, out(1, 1, 1, 0s)),
            with_id(1, expired(0, 30s)), refused(1, 1, 31s), in("q.dead", left(1))},
            with_threads({.max_stalls = 1})},
        {"threads: a purge that may have been before a send", {
            sent(1), purged(0s), out(1, 1, 1, 0s), ack(1, 1, 0s)},
            with_threads()},
        {"copies in two queues", {
            in("a", sent(1)), in("b", sent(1)), in("a", out(1, 1, 1, 0s)),
            in("b", out(1, 2, 1, 0s)), in("a", ack(1, 1, 0s)), in("b", ack(1, 2, 0s))}},
        {"looked at", {
            sent(1), plain(event_kind::peeked, 1, 0s), out(1, 1, 1, 1s), ack(1, 1, 1s)}},
        {"messages known by their ids alone", {
            with_id(5, sent(1)), with_id(5, out(1, 1, 1, 0s)), with_id(5, expired(0, 30s)),
            with_id(5, dead(0, death_reason::max_stalls, 30s)), in("q.dead", left(1))},
            queues({.max_stalls = 1})},
        {"a log", {
            appended(1, 0), appended(2, 1), got(1, 0), appended(3, 2), got(2, 1), got(3, 2),
            sought(1), got(2, 1), got(1, 0, 2), left(1), left(2), left(3)}},
        {"a log with a gap where an append was cut off", {
            appended(1, 0), send_begun(2), crashed(1s), reopened(2s), appended(3, 2), left(1),
            left(3)}},
        {"a compacted log", {
            appended(1, 0), appended(2, 1), appended(3, 2),
            dropped(2, death_reason::dropped_oldest, 1s), got(1, 0), got(3, 2), left(1), left(3)},
            compacted()},
    };
    return all;
}

const std::vector<broken_history>& broken_histories() {
    using kind = violation_kind;
    static const std::vector<broken_history> all{
        {"confirmed and gone", kind::lost, {
            sent(1), sent(2), left(2)}},
        {"confirmed as synced and gone with the power", kind::lost, {
            sent(1), crashed(1s, crash_kind::power), reopened(2s)}},
        {"confirmed as written and gone with the process", kind::lost, {
            safe(written, sent(1)), crashed(1s), reopened(2s)}},
        {"gone at a clean close", kind::lost, {
            safe(accepted, sent(1)), closed(1s), reopened(2s)}},
        {"gone after a nack", kind::lost, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s)}},
        {"gone while a consumer closed", kind::lost, {
            sent(1), out(1, 1, 1, 0s), consumer_closed(1, 1s)}},
        {"gone on the way to the dead letters", kind::lost, {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s)}},
        {"rejected, and nowhere", kind::lost, {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s)}},
        {"held when the process died, and gone", kind::lost, {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s)}},
        {"never sent, handed out", kind::invented, {
            sent(1), out(7, 1, 1, 0s), ack(7, 1, 0s), left(1)}},
        {"never sent, there at the end", kind::invented, {
            sent(1), left(1), left(7)}},
        {"an id that nobody knows", kind::invented, {
            sent(1), with_id(9, dropped(0, death_reason::dropped_oldest, 0s)), left(1)}},
        {"acked, and seen again", kind::came_back, {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), plain(event_kind::peeked, 1, 2s)},
            incomplete()},
        {"sent to another queue", kind::invented, {
            in("p", sent(1)), out(1, 1, 1, 0s), ack(1, 1, 0s), in("p", left(1))}},
        {"a dead letter that did not die", kind::invented, {
            sent(1), in("q.dead", out(1, 1, 1, 0s)), in("q.dead", ack(1, 1, 0s)), left(1)}},
        {"failed, and handed out", kind::failed_send_appeared, {
            send_begun(1), send_failed(1), out(1, 1, 1, 0s), ack(1, 1, 0s)}},
        {"handed out, and then it failed", kind::failed_send_appeared, {
            send_begun(1), out(1, 1, 1, 0s), ack(1, 1, 0s), send_failed(1)}},
        {"failed, and there at the end", kind::failed_send_appeared, {
            send_begun(1), send_failed(1), left(1)}},
        {"unknown, and stored twice", kind::second_copy, {
            send_unknown(1), with_id(1, out(1, 1, 1, 0s)), ack(1, 1, 0s), crashed(1s),
            reopened(2s), with_id(2, out(1, 1, 2, 2s)), ack(1, 1, 2s)}},
        {"tried again, and stored twice", kind::second_copy, {
            send_unknown(1), sent(1), with_id(1, left(1)), with_id(1, left(1))}},
        {"confirmed twice, as two messages", kind::second_copy, {
            sent(1), with_id(2, sent(1)), left(1)}},
        {"dead-lettered, and handed out where it was", kind::in_two_queues, {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            out(1, 1, 2, 2s), ack(1, 1, 2s), in("q.dead", left(1))}},
        {"dead-lettered, and there in both queues at the end", kind::in_two_queues, {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            left(1), in("q.dead", left(1))}},
        {"dead-lettered twice", kind::in_two_queues, {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            to("q.other", dead(1, death_reason::dropped_oldest, 1s)), in("q.dead", left(1))}},
        {"a death half undone by a crash", kind::in_two_queues, {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            crashed(1s), reopened(2s), out(1, 2, 2, 2s), ack(1, 2, 3s),
            in("q.dead", left(1))}},
        {"dead-lettered into a queue that has it", kind::second_copy, {
            sent(1), in("q.dead", sent(1)), out(1, 1, 1, 0s), reject(1, 1, 1s),
            dead(1, death_reason::rejected, 1s), in("q.dead", left(1))},
            incomplete()},
        {"acked, and handed out again", kind::came_back, {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), out(1, 2, 2, 2s), ack(1, 2, 2s)}},
        {"acked, and there at the end", kind::came_back, {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), left(1)}},
        {"acked before the last crash but one, and back", kind::came_back, {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), crashed(1s), reopened(2s),
            out(1, 2, 2, 2s), ack(1, 2, 2s), crashed(3s), reopened(4s), out(1, 3, 3, 4s),
            ack(1, 3, 4s), out(1, 4, 4, 5s), ack(1, 4, 5s)}},
        {"an ack that no crash may undo", kind::came_back, {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), crashed(1s), reopened(2s),
            out(1, 2, 2, 2s), ack(1, 2, 2s)},
            never_undone()},
        {"acked, and back when all was closed in order", kind::came_back, {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), closed(1s), reopened(2s),
            out(1, 2, 2, 2s), ack(1, 2, 2s)}},
        {"dropped, and handed out", kind::came_back, {
            sent(1), dropped(1, death_reason::dropped_oldest, 0s), out(1, 1, 1, 1s),
            ack(1, 1, 1s)}},
        {"purged, and handed out", kind::came_back, {
            sent(1), purged(0s), out(1, 1, 1, 1s), ack(1, 1, 1s)}},
        {"acked, and dead-lettered", kind::came_back, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), out(1, 1, 2, 1s), ack(1, 1, 1s),
            dead(1, death_reason::max_attempts, 2s), in("q.dead", left(1))},
            attempts(2)},
        {"two consumers at a time", kind::two_leases, {
            sent(1), out(1, 1, 1, 0s), out(1, 2, 2, 29s), ack(1, 2, 29s)}},
        {"two consumers a nanosecond before the deadline", kind::two_leases, {
            sent(1), out(1, 1, 1, 0s), out(1, 2, 2, 30s - 1ns), ack(1, 2, 30s)}},
        {"the same consumer twice", kind::two_leases, {
            sent(1), out(1, 1, 1, 0s), out(1, 1, 2, 1s), ack(1, 1, 1s)}},
        {"two consumers, and the first had extended", kind::two_leases, {
            sent(1), out(1, 1, 1, 0s), until(60s, by(1, event_kind::extended, 1, 10s)),
            out(1, 2, 2, 30s), ack(1, 2, 31s)}},
        {"two consumers, threads", kind::two_leases, {
            sent(1), out(1, 1, 1, 0s), out(1, 2, 2, 1s), settle_begun(1, 2, 1s), ack(1, 2, 1s)},
            with_threads()},
        {"the count jumped, and nobody wrote late", kind::wrong_delivery_count, {
            sent(1), with_id(1, out(1, 2, 2, 31s)), ack(1, 2, 32s)},
            with_threads()},
        {"handed out again, and the count stayed", kind::wrong_delivery_count, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), out(1, 1, 1, 1s), ack(1, 1, 2s)}},
        {"the count jumped", kind::wrong_delivery_count, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), out(1, 1, 3, 1s), ack(1, 1, 2s)}},
        {"the count fell", kind::wrong_delivery_count, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), out(1, 1, 2, 1s), nack(1, 1, 2s),
            with_flag(false, out(1, 1, 1, 2s)), ack(1, 1, 3s)}},
        {"the count was lost in a crash", kind::wrong_delivery_count, {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s), out(1, 1, 1, 2s),
            ack(1, 1, 3s)}},
        {"two lost counts where one may be", kind::wrong_delivery_count, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), out(1, 1, 2, 1s), nack(1, 1, 1s),
            out(1, 1, 3, 1s), crashed(1s), reopened(2s), out(1, 1, 2, 2s), ack(1, 1, 3s)},
            forgetful(1)},
        {"a nack that did not count", kind::wrong_failure_count, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), with_failures(0, out(1, 1, 2, 1s)),
            ack(1, 1, 2s)}},
        {"fewer failures than were seen, threads", kind::wrong_failure_count, {
            sent(1), out(1, 1, 1, 0s), settle_begun(1, 1, 1s), nack(1, 1, 1s),
            with_failures(0, out(1, 1, 2, 1s)), settle_begun(1, 1, 2s), ack(1, 1, 2s)},
            with_threads()},
        {"a release that counted", kind::wrong_failure_count, {
            sent(1), out(1, 1, 1, 0s), release(1, 1, 1s), with_failures(1, out(1, 1, 2, 1s)),
            ack(1, 1, 2s)}},
        {"a closed consumer that counted", kind::wrong_failure_count, {
            sent(1), out(1, 1, 1, 0s), consumer_closed(1, 1s),
            with_failures(1, out(1, 2, 2, 1s)), ack(1, 2, 2s)}},
        {"new, and it was not", kind::wrong_redelivered, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), with_flag(false, out(1, 1, 2, 1s)),
            ack(1, 1, 2s)}},
        {"new, and it was not, without counts", kind::wrong_redelivered, {
            sent(1), with_count(0, out(1, 1, 1, 0s)), nack(1, 1, 1s),
            with_count(0, with_flag(false, out(1, 1, 2, 1s))), ack(1, 1, 2s)}},
        {"redelivered, and it was new", kind::wrong_redelivered, {
            sent(1), with_flag(true, out(1, 1, 1, 0s)), ack(1, 1, 2s)}},
        {"before its delay was over", kind::too_early, {
            ready(10s, sent(1)), out(1, 1, 1, 10s - 1ns), ack(1, 1, 10s)}},
        {"before its backoff was over", kind::too_early, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s, 5s), out(1, 1, 2, 4s), ack(1, 1, 5s)}},
        {"a delay that a crash cut short", kind::too_early, {
            ready(10s, sent(1)), crashed(1s), reopened(2s), out(1, 1, 1, 2s), ack(1, 1, 3s)}},
        {"after its time to live", kind::too_late, {
            living(10s, sent(1)), out(1, 1, 1, 10s), ack(1, 1, 10s)}},
        {"given back after its time to live, and handed out", kind::too_late, {
            living(10s, sent(1)), out(1, 1, 1, 9s), release(1, 1, 20s), out(1, 1, 2, 20s),
            ack(1, 1, 20s)}},
        {"a lease that expired early", kind::lease_cut_short, {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s - 1ns), out(1, 1, 2, 30s),
            ack(1, 1, 31s)}},
        {"an extended lease that expired early", kind::lease_cut_short, {
            sent(1), out(1, 1, 1, 0s), until(60s, by(1, event_kind::extended, 1, 10s)),
            expired(1, 30s), out(1, 1, 2, 60s), ack(1, 1, 61s)}},
        {"stale, and it was not", kind::refused_holder, {
            sent(1), out(1, 1, 1, 0s), refused(1, 1, 1s), out(1, 1, 2, 30s), ack(1, 1, 31s)}},
        {"an ack from before the deadline counted, after another had it", kind::stale_accepted, {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s), out(1, 2, 2, 30s), ack(1, 1, 31s),
            ack(1, 2, 32s)}},
        {"an ack of the hand-out before counted", kind::stale_accepted, {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s), out(1, 1, 2, 30s),
            with_count(1, ack(1, 1, 31s)), with_count(2, ack(1, 1, 32s))}},
        {"a nack after the deadline counted", kind::stale_accepted, {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s), nack(1, 1, 31s), out(1, 1, 2, 32s),
            ack(1, 1, 33s)}},
        {"an ack of a closed consumer counted", kind::stale_accepted, {
            sent(1), out(1, 1, 1, 0s), consumer_closed(1, 1s), ack(1, 1, 1s), left(1)}},
        {"an ack from before the crash counted", kind::stale_accepted, {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s), ack(1, 1, 2s), left(1)}},
        {"an extension after the deadline counted", kind::stale_accepted, {
            sent(1), out(1, 1, 1, 0s), expired(1, 30s),
            until(90s, by(1, event_kind::extended, 1, 31s)), out(1, 2, 2, 32s), ack(1, 2, 33s)}},
        {"nacked and acked", kind::settled_twice, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), ack(1, 1, 1s), left(1)}},
        {"acked twice", kind::settled_twice, {
            sent(1), out(1, 1, 1, 0s), ack(1, 1, 1s), ack(1, 1, 1s)}},
        {"dead-lettered out of somebody's hands", kind::died_in_hand, {
            living(5s, sent(1)), out(1, 1, 1, 0s), dead(1, death_reason::expired, 5s),
            in("q.dead", left(1))}},
        {"dropped out of somebody's hands", kind::died_in_hand, {
            sent(1), out(1, 1, 1, 0s), dropped(1, death_reason::dropped_oldest, 5s)}},
        {"dead one attempt too early", kind::died_early, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), dead(1, death_reason::max_attempts, 1s),
            in("q.dead", left(1))},
            attempts(2)},
        {"dead one crash too early", kind::died_early, {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s),
            dead(1, death_reason::max_crashes, 2s), in("q.dead", left(1))},
            queues({.max_crashes = 2})},
        {"dead of stalls, and it was nacked", kind::died_early, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), dead(1, death_reason::max_stalls, 1s),
            in("q.dead", left(1))},
            queues({.max_stalls = 1})},
        {"dead of a rejection that nobody made", kind::died_early, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), dead(1, death_reason::rejected, 1s),
            in("q.dead", left(1))}},
        {"expired before its time", kind::died_early, {
            living(10s, sent(1)), dropped(1, death_reason::expired, 10s - 1ns)}},
        {"expired, and it was to live for ever", kind::died_early, {
            sent(1), dropped(1, death_reason::expired, 10s)}},
        {"one attempt too many", kind::died_late, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), out(1, 1, 2, 1s), nack(1, 1, 2s),
            out(1, 1, 3, 2s), ack(1, 1, 2s)},
            attempts(2)},
        {"one stall too many", kind::died_late, {
            sent(1), out(1, 1, 1, 0s), out(1, 1, 2, 30s), ack(1, 1, 30s)},
            queues({.max_stalls = 1})},
        {"one crash too many", kind::died_late, {
            sent(1), out(1, 1, 1, 0s), crashed(1s), reopened(2s), out(1, 1, 2, 2s),
            ack(1, 1, 2s)},
            queues({.max_crashes = 1})},
        {"out of attempts, and there at the end", kind::died_late, {
            sent(1), out(1, 1, 1, 0s), nack(1, 1, 1s), left(1)},
            attempts(1)},
        {"rejected, and handed out again", kind::died_late, {
            sent(1), out(1, 1, 1, 0s), reject(1, 1, 1s), out(1, 1, 2, 2s), ack(1, 1, 2s)}},
        {"the second before the first", kind::out_of_order, {
            sent(1), sent(2), out(2, 1, 1, 0s), out(1, 1, 1, 0s), ack(2, 1, 0s), ack(1, 1, 0s)},
            in_order(delivery_order::fifo)},
        {"the second before the first, without ids", kind::out_of_order, {
            with_id({}, sent(1)), with_id({}, sent(2)), out(2, 1, 1, 0s), out(1, 1, 1, 0s),
            ack(2, 1, 0s), ack(1, 1, 0s)},
            in_order(delivery_order::fifo)},
        {"the second before the first, to one of several threads", kind::out_of_order, {
            sent(1), sent(2), sent(3), out(2, 1, 1, 0s), out(3, 2, 1, 0s), out(1, 1, 1, 0s),
            ack(2, 1, 0s), ack(1, 1, 0s), ack(3, 2, 0s)},
            with_threads({.order = delivery_order::fifo})},
        {"another order after a crash", kind::out_of_order, {
            sent(1), sent(2), crashed(1s), reopened(2s), out(2, 1, 1, 2s), ack(2, 1, 2s),
            out(1, 1, 1, 2s), ack(1, 1, 2s)},
            in_order(delivery_order::fifo)},
        {"two of one key at a time", kind::out_of_order, {
            of_key("a", sent(1)), of_key("a", sent(2)), out(1, 1, 1, 0s), out(2, 2, 1, 0s),
            ack(1, 1, 0s), ack(2, 2, 0s)},
            in_order(delivery_order::by_key)},
        {"the next of a key while the first waits for its retry", kind::out_of_order, {
            of_key("a", sent(1)), of_key("a", sent(2)), out(1, 1, 1, 0s), nack(1, 1, 0s, 5s),
            out(2, 2, 1, 0s), ack(2, 2, 0s), out(1, 1, 2, 5s), ack(1, 1, 5s)},
            in_order(delivery_order::by_key)},
        {"the next of a key first, threads", kind::out_of_order, {
            of_key("a", sent(1)), of_key("a", sent(2)), out(2, 2, 1, 0s), settle_begun(2, 2, 0s),
            ack(2, 2, 0s), out(1, 1, 1, 0s), ack(1, 1, 0s)},
            with_threads({.order = delivery_order::by_key})},
        {"two at a time in a strict queue", kind::out_of_order, {
            sent(1), sent(2), out(1, 1, 1, 0s), out(2, 1, 1, 0s), ack(1, 1, 0s), ack(2, 1, 0s)},
            in_order(delivery_order::strict)},
        {"a retry that was overtaken in a strict queue", kind::out_of_order, {
            sent(1), sent(2), out(1, 1, 1, 0s), release(1, 1, 0s), out(2, 1, 1, 0s),
            ack(2, 1, 0s), out(1, 1, 2, 0s), ack(1, 1, 0s)},
            in_order(delivery_order::strict)},
        {"one id for two messages", kind::id_reused, {
            sent(1), with_id(1, ready(1s, sent(2))), left(1), left(2)}},
        {"an id that was used before the crash", kind::id_reused, {
            with_id(5, sent(1)), with_id(6, sent(2)), crashed(1s), reopened(2s),
            with_id(5, ready(9s, sent(3))), left(1), left(2), left(3)}},
        {"a smaller id after the crash", kind::id_not_rising, {
            with_id(5, sent(1)), with_id(6, sent(2)), crashed(1s), reopened(2s),
            with_id(1, sent(3)), left(1), left(2), left(3)}},
        {"a smaller id for a send that began later, threads", kind::id_not_rising, {
            send_begun(1), send_begun(2), with_id(5, sent(1)), send_begun(3),
            with_id(4, sent(3)), with_id(3, sent(2)), left(1), left(2), left(3)},
            with_threads()},
        {"one offset for two records", kind::offset_reused, {
            appended(1, 0), appended(2, 0), left(1), left(2)}},
        {"another record at that offset when it is read", kind::offset_reused, {
            appended(1, 0), appended(2, 1), got(1, 0), got(1, 1), left(1), left(2)}},
        {"appended to the front", kind::offset_not_rising, {
            appended(1, 1), appended(2, 0), left(1), left(2)}},
        {"read twice", kind::offset_not_rising, {
            appended(1, 0), got(1, 0), got(1, 0), left(1)}},
        {"a gap", kind::offset_skipped, {
            appended(1, 0), appended(2, 2), left(1), left(2)}},
        {"a record that a reader did not get", kind::offset_skipped, {
            appended(1, 0), appended(2, 1), appended(3, 2), got(1, 0), got(3, 2), left(1),
            left(2), left(3)}},
        {"a record that is gone from its log", kind::lost, {
            appended(1, 0), appended(2, 1), got(1, 0), got(2, 1), left(1)}},
        {"read, and nobody appended it", kind::invented, {
            appended(1, 0), got(1, 0), got(2, 1), left(1)}},
        {"handed out after the broker was closed", kind::after_the_end, {
            sent(1), closed(1s), out(1, 1, 1, 2s), left(1)}},
        {"acked after the broker was closed", kind::after_the_end, {
            sent(1), out(1, 1, 1, 0s), closed(1s), ack(1, 1, 2s), left(1)}},
        {"confirmed after the broker was closed", kind::after_the_end, {
            closed(1s), sent(1, 2s), left(1)}},
        {"handed out by a process that is dead", kind::after_the_end, {
            sent(1), crashed(1s), out(1, 1, 1, 2s)}},
    };
    return all;
}

// clang-format on

std::vector<violation_kind> kinds_of(const std::vector<violation>& all) {
    std::vector<violation_kind> kinds;
    for (const violation& v : all) {
        kinds.push_back(v.kind);
    }
    return kinds;
}

} // namespace

TEST_CASE("history check: good histories are good") {
    for (const good_history& h : good_histories()) {
        const auto found = check(h.events, h.rules);
        INFO(h.name << "\n" << to_string(found));
        CHECK(found.empty());
    }
}

TEST_CASE("history check: each broken history is broken in its own way, and in no other") {
    for (const broken_history& h : broken_histories()) {
        const auto found = check(h.events, h.rules);
        INFO(h.name << ": expected " << to_string(h.fault) << "\n" << to_string(found));
        CHECK(kinds_of(found) == std::vector{h.fault});
    }
}

TEST_CASE("history check: every kind of violation has a history that is broken so") {
    std::set<violation_kind> covered;
    for (const broken_history& h : broken_histories()) {
        covered.insert(h.fault);
    }
    for (int n = 0; n <= static_cast<int>(violation_kind::after_the_end); ++n) {
        const auto kind = static_cast<violation_kind>(n);
        INFO(to_string(kind));
        CHECK(covered.count(kind) == 1);
    }
    CHECK(broken_histories().size() >= 30);
}

TEST_CASE("history check: a violation says what, where, when, and from which events") {
    const auto found = check({sent(7), out(7, 1, 1, 0s), out(7, 2, 2, 5s), ack(7, 2, 5s)});
    REQUIRE(found.size() == 1);
    CHECK(found[0].message == 7);
    CHECK(found[0].queue == "q");
    CHECK(found[0].at == at(5s));
    CHECK(found[0].events == std::vector<std::size_t>{2, 1});
    CHECK(
        to_string(found) ==
        "two leases: message 7 in 'q' at 5000000000 ns: handed out to consumer 2, and consumer 1 "
        "has it until 30000000000 ns (events 2, 1)\n");
}

TEST_CASE("history check: what is ignored is not reported") {
    history_rules rules;
    rules.ignored = {violation_kind::lost};
    CHECK(check({sent(1), left(2)}, rules).size() == 1);
    rules.ignored.push_back(violation_kind::invented);
    CHECK(check({sent(1), left(2)}, rules).empty());
}

TEST_CASE("history check: an incomplete history loses nothing") {
    CHECK(check({sent(1)}).size() == 1);
    CHECK(check({sent(1)}, {.is_complete = false}).empty());
}

TEST_CASE("history check: what is recorded late is not late") {
    const std::vector<event> events{living(10s, sent(1)), out(1, 1, 1, 10s + 2ms), ack(1, 1, 11s)};
    CHECK(check(events).size() == 1);
    CHECK(check(events, {.tolerance = 5ms}).empty());
}
