// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/death.hpp>
#include <railmq/model/time.hpp>
#include <railmq/testing/detail/log_rules.hpp>
#include <railmq/testing/detail/message_story.hpp>
#include <railmq/testing/detail/order_rules.hpp>
#include <railmq/testing/detail/rising_numbers.hpp>
#include <railmq/testing/detail/story_book.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::testing::detail {

/// Goes through a history once, from its beginning to its end, and keeps a story of each message.
///
/// A settlement that was recorded before and after is taken to have happened before: nothing that
/// the broker did later can then be held against it.
class history_checker final : private story_book {
public:
    using story_book::story_book;

    [[nodiscard]] std::vector<violation> run() {
        for (std::size_t i = 0; i < size(); ++i) {
            if (!is_done(i) && check_known(i)) {
                step(i);
            }
        }
        for (message_story& s : stories()) {
            finish(current(s));
        }
        if (rules().has_dense_offsets) {
            logs_.finish();
        }
        return take_violations();
    }

private:
    void step(std::size_t i) {
        const event& e = at(i);
        switch (e.kind) {
        case event_kind::send_begun:
        case event_kind::send_confirmed:
        case event_kind::send_failed:
        case event_kind::send_unknown: on_send(sent_story(i), i); break;
        case event_kind::handed_out: on_hand_out(located(i), i); break;
        case event_kind::settle_begun: on_settle_begun(i); break;
        case event_kind::acked:
        case event_kind::nacked:
        case event_kind::rejected:
        case event_kind::released: on_settled(located(i), i, i); break;
        case event_kind::refused: on_refused(found(i), i); break;
        case event_kind::extended: on_extended(located(i), i); break;
        case event_kind::lease_expired: on_lease_expired(i); break;
        case event_kind::consumer_closed: on_consumer_closed(e); break;
        case event_kind::dead_lettered:
        case event_kind::dropped:
        case event_kind::redriven: on_departure(i); break;
        case event_kind::purged: on_purged(i); break;
        case event_kind::crashed:
        case event_kind::closed:
            end_life(e);
            end_ = i;
            break;
        case event_kind::reopened: end_ = no_event; break;
        case event_kind::read: on_read(located(i), i); break;
        case event_kind::sought: logs_.on_sought(i); break;
        case event_kind::peeked: on_peeked(located(i), i); break;
        case event_kind::remaining: on_remaining(located(i), i); break;
        }
    }
    /// Whether it is known which message the event is about, if it is about one.
    [[nodiscard]] bool check_known(std::size_t i) {
        const event& e = at(i);
        switch (e.kind) {
        case event_kind::consumer_closed:
        case event_kind::purged:
        case event_kind::crashed:
        case event_kind::closed:
        case event_kind::reopened:
        case event_kind::sought: return true;
        default: break;
        }
        if (message_of(i) == 0) {
            report(
                {violation_kind::invented, 0, e.queue, e.at, {i}, {}},
                what(i) + ", and it is not known what message that is: " +
                    (e.id ? "id " + std::to_string(*e.id) : std::string{"no id"}));
        }
        return message_of(i) != 0;
    }

    // --- Sends ---

    void on_send(message_story& s, std::size_t i) {
        const event& e = at(i);
        s.sent = i;
        if (!s.now.was_handed_out && !s.is_moved) {
            s.now.is_delayed = s.now.is_delayed || e.ready_at != time_point::min();
            s.now.ready_at = std::max(s.now.ready_at, e.ready_at);
            s.now.expires_at = std::min(s.now.expires_at, e.expires_at);
        }
        s.key = e.key ? e.key : s.key;
        if (e.kind == event_kind::send_begun) {
            s.begun = i;
            ++s.open_sends;
            return;
        }
        if (s.open_sends != 0) {
            --s.open_sends;
        } else {
            s.begun = no_event;
        }
        if (e.kind == event_kind::send_confirmed) {
            on_confirmed(s, i);
        } else if (e.kind == event_kind::send_unknown) {
            s.may_be_stored = true;
        } else if (s.has_failed() && s.handed_out != no_event) {
            report(
                violation_kind::failed_send_appeared,
                s,
                i,
                {s.handed_out},
                "the send failed, and it had been handed out");
        }
    }
    void on_confirmed(message_story& s, std::size_t i) {
        const event& e = at(i);
        const std::size_t begin = s.begun != no_event ? s.begun : i;
        if (end_ != no_event && begin >= end_) {
            check_still_open(s, i);
        }
        s.is_confirmed = true;
        s.level = e.level;
        if (s.now.queue == queue_of(i)) {
            const bool is_known = e.id == s.now.id;
            note_id(s, i);
            auto& ids = ids_[{queue_of(i), s.now.is_delayed}];
            if (e.id && !ids.add(*e.id, begin, i) && !is_known) {
                report(
                    violation_kind::id_not_rising,
                    s,
                    i,
                    {},
                    "its id " + std::to_string(*e.id) + " is not larger than those given before");
            }
            order_.join(s, i);
        }
        if (e.offset) {
            logs_.on_appended(s, i, begin);
        }
    }
    void note_id(message_story& s, std::size_t i) {
        if (!at(i).id || at(i).id == s.now.id) {
            return;
        }
        const std::uint64_t id = *at(i).id;
        if (s.now.id) {
            report(
                violation_kind::second_copy,
                s,
                i,
                {s.last_event()},
                "it has id " + std::to_string(id) + ", and had id " + std::to_string(*s.now.id));
            return;
        }
        s.now.id = id;
        const auto owner = owners_.emplace(name_of_message{s.now.queue, id}, s.message).first;
        if (owner->second != s.message) {
            report(
                violation_kind::id_reused,
                s,
                i,
                {},
                "its id " + std::to_string(id) + " is that of message " +
                    std::to_string(owner->second));
        }
    }

    // --- Hand-outs ---

    void on_hand_out(message_story& s, std::size_t i) {
        const event& e = at(i);
        set_done(i);
        note_id(s, i);
        tell_hand_outs(s, e.delivery_count);
        check_still_open(s, i);
        check_not_failed(s, i);
        check_not_gone(s, i);
        check_lease(s, i);
        check_time(s, i);
        check_limits(s, i);
        check_counts(s, i);
        order_.on_hand_out(s, i);
        s.now.was_handed_out = true;
        s.now.ready_at = time_point::min();
        s.key = e.key ? e.key : s.key;
        s.hand_out(e, i);
        held_[e.consumer].push_back(s.number);
    }
    /// All that are told later than that one, but came before it.
    void tell_hand_outs(message_story& s, std::uint32_t count) {
        for (std::size_t i = untold_hand_out(s, count); i != no_event;
             i = untold_hand_out(s, count)) {
            on_hand_out(s, i);
        }
    }
    void on_read(message_story& s, std::size_t i) {
        check_still_open(s, i);
        check_not_failed(s, i);
        s.is_record = true;
        s.handed_out = i;
        if (at(i).offset) {
            logs_.on_read(s, i);
        }
    }
    void check_still_open(message_story& s, std::size_t i) {
        if (end_ != no_event) {
            report(
                violation_kind::after_the_end, s, i, {end_}, what(i) + ", and no broker was open");
        }
    }
    void check_not_failed(message_story& s, std::size_t i) {
        if (s.has_failed()) {
            report(
                violation_kind::failed_send_appeared,
                s,
                i,
                {s.sent},
                what(i) + ", and its send had failed");
            s.may_be_stored = true;
        }
    }
    /// False: it was, and that was reported.
    bool check_not_gone(message_story& s, std::size_t i) {
        if (s.fate == whereabouts::waiting || s.fate == whereabouts::unsure) {
            return true;
        }
        const std::string_view how = s.fate == whereabouts::acked     ? "acked"
                                     : s.fate == whereabouts::dropped ? "dropped"
                                                                      : "purged";
        report(
            violation_kind::came_back,
            s,
            i,
            {s.changed},
            what(i) + ", and it had been " + std::string{how});
        s.fate = whereabouts::waiting;
        return false;
    }
    void check_lease(message_story& s, std::size_t i) {
        if (s.lease == lease_state::good && at(i).at >= s.deadline) {
            s.stall();
        }
        if (s.lease == lease_state::good) {
            report(
                violation_kind::two_leases,
                s,
                i,
                {s.handed_out},
                "handed out to consumer " + std::to_string(at(i).consumer) + ", and consumer " +
                    std::to_string(s.consumer) + " has it until " + text_of(s.deadline));
        }
    }
    void check_time(message_story& s, std::size_t i) {
        const event& e = at(i);
        const stay& here = s.now;
        if (e.at < here.ready_at) {
            report(
                violation_kind::too_early,
                s,
                i,
                {s.last_event()},
                "handed out " + text_of(here.ready_at - e.at) + " too early");
        }
        if (here.expires_at != never &&
            e.at >= saturating_add(here.expires_at, rules().tolerance)) {
            report(
                violation_kind::too_late,
                s,
                i,
                {s.sent},
                "handed out, and its time to live had ended at " + text_of(here.expires_at));
        }
    }
    void check_limits(message_story& s, std::size_t i) {
        const queue_rules& limits = rules_of(s);
        const stay& here = s.now;
        const auto is_reached = [](std::uint32_t limit, const count_range& n) {
            return limit != 0 && n.least >= limit;
        };
        std::string why;
        if (here.is_rejected) {
            why = "it had been rejected";
        } else if (is_reached(limits.max_attempts, here.failures)) {
            why = "it had failed " + text_of(here.failures) + " times";
        } else if (is_reached(limits.max_stalls, here.stalls)) {
            why = "its deadline had passed " + text_of(here.stalls) + " times";
        } else if (is_reached(limits.max_crashes, here.crashes)) {
            why = "the process had died with it " + text_of(here.crashes) + " times";
        } else {
            return;
        }
        report(
            violation_kind::died_late,
            s,
            i,
            {s.last_event()},
            what(i) + ", and had to be a dead letter: " + why);
    }
    void check_counts(message_story& s, std::size_t i) {
        const event& e = at(i);
        count_range& n = s.now.deliveries;
        if (e.redelivered) {
            const bool is_wrong = e.delivery_count != 0 ? *e.redelivered != (e.delivery_count > 1)
                                  : *e.redelivered      ? n.most == 0
                                                        : n.least != 0;
            if (is_wrong) {
                report(
                    violation_kind::wrong_redelivered,
                    s,
                    i,
                    {s.handed_out},
                    "it had been handed out " + text_of(n) + " times, and is said to be " +
                        (*e.redelivered ? "redelivered" : "new"));
            }
        }
        n.add();
        if (e.delivery_count != 0) {
            if (!n.contains(e.delivery_count)) {
                report(
                    violation_kind::wrong_delivery_count,
                    s,
                    i,
                    {s.handed_out},
                    "handed out " + text_of(n) + " times, and its delivery count is " +
                        std::to_string(e.delivery_count));
            }
            n = {e.delivery_count, e.delivery_count};
        }
        check_failure_count(s, i);
    }
    void check_failure_count(message_story& s, std::size_t i) {
        const auto told = at(i).failure_count;
        // A holder that was held up may have asked after the failures that followed.
        const bool may_be_more = rules().is_concurrent && told && *told > s.now.failures.most;
        if (told && !may_be_more && !s.now.failures.contains(*told)) {
            report(
                violation_kind::wrong_failure_count,
                s,
                i,
                {s.last_event()},
                "it failed " + text_of(s.now.failures) + " times, and its failure count is " +
                    std::to_string(*told));
        }
        if (told && !may_be_more) {
            s.now.failures = {*told, *told};
        }
    }

    // --- Ends of leases ---

    void on_settle_begun(std::size_t i) {
        const std::size_t outcome = outcome_of(i);
        if (outcome != no_event) {
            if (at(outcome).kind != event_kind::refused) {
                on_settled(located(i), outcome, i);
            }
            return;
        }
        message_story* const s = found(i);
        if (s != nullptr && s->lease != lease_state::none && s->is_holder(at(i))) {
            s->settle(whereabouts::unsure, i);
            s->now.failures.maybe_add();
        }
    }
    /// Event `i` says how it ended, what it changed was changed at event `when`.
    void on_settled(message_story& s, std::size_t i, std::size_t when) {
        const event& e = at(i);
        if (end_ != no_event) {
            check_still_open(s, i);
            return;
        }
        const bool is_final = e.kind == event_kind::acked || e.kind == event_kind::rejected;
        const bool was_holder = s.is_holder(e);
        if (!was_holder || s.lease == lease_state::none ||
            (s.lease == lease_state::lapsed && !is_final)) {
            const bool is_second = was_holder && s.was_settled;
            report(
                is_second ? violation_kind::settled_twice : violation_kind::stale_accepted,
                s,
                i,
                {is_second ? s.changed : s.handed_out},
                what(i) + " by consumer " + std::to_string(e.consumer) +
                    (is_second ? ", which had settled it already" : ", which did not hold it"));
            return;
        }
        s.settle(e.kind == event_kind::acked ? whereabouts::acked : whereabouts::waiting, when);
        if (e.kind == event_kind::nacked) {
            s.now.failures.add();
            s.now.ready_at = e.ready_at;
            s.change = last_change::failure;
        } else if (e.kind == event_kind::rejected) {
            s.now.is_rejected = true;
        }
    }
    void on_refused(message_story* s, std::size_t i) {
        const event& e = at(i);
        if (s != nullptr && s->lease == lease_state::good && s->is_holder(e) &&
            e.at < s->deadline) {
            report(
                violation_kind::refused_holder,
                *s,
                i,
                {s->handed_out},
                "consumer " + std::to_string(e.consumer) + " has it until " + text_of(s->deadline) +
                    ", and its settlement was refused");
            s->end_lease();
        }
    }
    void on_extended(message_story& s, std::size_t i) {
        const event& e = at(i);
        if (s.lease == lease_state::good && s.is_holder(e)) {
            s.deadline = e.deadline;
            return;
        }
        report(
            violation_kind::stale_accepted,
            s,
            i,
            {s.handed_out},
            what(i) + " by consumer " + std::to_string(e.consumer) + ", which did not hold it");
    }
    void on_lease_expired(std::size_t i) {
        message_story* const known = rules().is_concurrent ? found(i) : &located(i);
        if (known == nullptr || known->lease != lease_state::good) {
            return;
        }
        message_story& s = *known;
        if (at(i).at < s.deadline) {
            if (rules().is_concurrent && s.untold_stalls != 0) {
                --s.untold_stalls; // of a lease before
                return;
            }
            report(
                violation_kind::lease_cut_short,
                s,
                i,
                {s.handed_out},
                "the lease of consumer " + std::to_string(s.consumer) + " ended " +
                    text_of(s.deadline - at(i).at) + " too early");
        }
        s.stall();
        --s.untold_stalls;
        s.changed = i;
    }
    void on_consumer_closed(const event& e) {
        for (const std::uint32_t n : std::exchange(held_[e.consumer], {})) {
            message_story& s = current(n);
            if (s.consumer == e.consumer && s.lease != lease_state::none) {
                if (s.lease == lease_state::good && e.at >= s.deadline) {
                    s.stall();
                }
                s.end_lease();
                s.change = last_change::other;
            }
        }
    }

    // --- Messages that leave ---

    void on_departure(std::size_t i) override {
        set_done(i);
        message_story& s = located(i);
        const event& e = at(i);
        tell_hand_outs(s, count_range::top);
        check_not_failed(s, i);
        const bool was_here = check_not_gone(s, i);
        if (s.lease == lease_state::good && e.at >= s.deadline) {
            s.stall();
        }
        if (s.lease == lease_state::good) {
            report(
                violation_kind::died_in_hand,
                s,
                i,
                {s.handed_out},
                what(i) + ", and consumer " + std::to_string(s.consumer) + " has it until " +
                    text_of(s.deadline));
        } else if (was_here && e.kind != event_kind::redriven) {
            check_reason(s, i);
            check_failure_count(s, i);
        }
        if (e.kind == event_kind::dropped) {
            s.end_lease();
            s.set_fate(whereabouts::dropped, i);
        } else {
            move(s, e.target, i);
        }
    }
    void check_reason(message_story& s, std::size_t i) {
        const event& e = at(i);
        const queue_rules& limits = rules_of(s);
        const auto is_below = [](std::uint32_t limit, const count_range& n) {
            return limit != 0 && n.most < limit;
        };
        const bool is_known = s.fate != whereabouts::unsure && !s.may_have_moved;
        bool is_early = false;
        switch (e.reason) {
        case death_reason::rejected:
        case death_reason::permanent_error: is_early = is_known && !s.now.is_rejected; break;
        case death_reason::max_attempts:
            is_early = is_below(limits.max_attempts, s.now.failures);
            break;
        case death_reason::max_stalls: is_early = is_below(limits.max_stalls, s.now.stalls); break;
        case death_reason::max_crashes:
            is_early = is_below(limits.max_crashes, s.now.crashes);
            break;
        case death_reason::expired:
            is_early = saturating_add(e.at, rules().tolerance) < s.now.expires_at;
            break;
        default: break; // a history does not say whether there was room, or what could be decoded
        }
        if (is_early) {
            report(
                violation_kind::died_early,
                s,
                i,
                {s.last_event()},
                what(i) + ", and the reason is not there: " + std::string{to_string(e.reason)});
        }
    }
    void on_purged(std::size_t i) {
        std::vector<std::uint32_t> left;
        for (const std::uint32_t n : take_content(i)) {
            message_story& s = current(n);
            if (s.now.queue != queue_of(i)) {
                continue;
            }
            const bool is_held = s.lease == lease_state::good && at(i).at < s.deadline;
            const bool is_known =
                !rules().is_concurrent && s.lease != lease_state::good && s.open_sends == 0;
            if (is_held || !is_known) {
                left.push_back(n);
            }
            if (!is_held && (s.fate == whereabouts::waiting || s.fate == whereabouts::unsure)) {
                s.set_fate(is_known ? whereabouts::purged : whereabouts::unsure, i);
            }
        }
        give_content(i, std::move(left));
    }

    // --- The end ---

    void on_peeked(message_story& s, std::size_t i) {
        check_not_failed(s, i);
        check_not_gone(s, i);
        note_id(s, i);
        s.before.reset();
        s.may_have_moved = false;
        s.fate = whereabouts::waiting;
    }
    void on_remaining(message_story& s, std::size_t i) {
        on_peeked(s, i);
        check_limits(s, i);
        if (s.remains != no_event) {
            report(violation_kind::second_copy, s, i, {s.remains}, "it is there twice");
        }
        if (at(i).offset) {
            logs_.note(s, i);
        }
        s.remains = i;
    }
    void finish(message_story& s) {
        if (rules().is_complete && s.is_confirmed && s.fate == whereabouts::waiting &&
            s.lease != lease_state::good && s.remains == no_event) {
            report(
                violation_kind::lost,
                s,
                s.last_event(),
                {s.sent},
                "it was confirmed, and is neither settled nor there");
        }
    }

    [[nodiscard]] std::string what(std::size_t i) const {
        return std::string{to_string(at(i).kind)};
    }
    using story_book::text_of;
    [[nodiscard]] static std::string text_of(const count_range& n) {
        std::string text = std::to_string(n.least);
        return n.least == n.most ? text : text.append(" to ").append(std::to_string(n.most));
    }

    log_rules logs_{*this};
    order_rules order_{*this};
    std::map<std::uint64_t, std::vector<std::uint32_t>> held_{};     ///< Stories, by consumer.
    std::map<name_of_message, std::uint64_t> owners_{};              ///< Of ids.
    std::map<std::pair<std::uint32_t, bool>, rising_numbers> ids_{}; ///< Delayed ones apart.
    std::size_t end_ = no_event; ///< Of the broker, which has not been open since.
};

} // namespace railmq::testing::detail
