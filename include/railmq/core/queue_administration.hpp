// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/queue_machine.hpp>

#include <algorithm>
#include <cstdint>

// What is asked of a whole queue: to close, to be emptied, to say what it holds.

namespace railmq::core {

template <class Sync>
std::uint64_t
queue_machine<Sync>::close_queue(errc why, bool abort, time_point now, effects_type& fx) {
    if (!closed_) {
        notices::queue_closed n{};
        fill(n, now, 0);
        n.undelivered = backlog() + delayed_ + held_count();
        fx.note(std::move(n));
    }
    closed_ = true;
    close_reason_ = why;
    update_gates();
    while (!senders_.empty()) {
        auto& w = senders_.front();
        senders_.pop_front();
        w.result = why;
        fx.completed.push_back(&w);
    }
    if (abort) {
        aborted_ = true;
        complete_receives(why, fx, [](const auto&) { return true; });
        while (!idlers_.empty()) {
            auto& w = idlers_.front();
            idlers_.pop_front();
            w.result = why;
            fx.completed.push_back(&w);
        }
        store_.for_each_place([&](place_type p) {
            // Only slow ones have a stop token, and only theirs nobody ends without the lock.
            message_details* d = p.at->load().is_slow() ? store_.details_of(p) : nullptr;
            if (d != nullptr) {
                end_stop(*d, fx);
            }
        });
    }
    const std::uint64_t left = backlog() + delayed_ + board_.held_count();
    if (abort && base::supply() != nullptr) {
        base::supply()->end();
    }
    serve(now, fx);
    return left;
}

template <class Sync>
void queue_machine<Sync>::list_held(effects_type& fx) {
    if (!fx.keeping || base::lists_hand_outs_) {
        return;
    }
    store_.for_each_place([&](place_type p) {
        if (p.at->load().state() == slot_state::leased) {
            base::list(fx, p, message_change::kind::changed);
        }
    });
}

template <class Sync>
std::uint64_t queue_machine<Sync>::purge(time_point now, effects_type& fx) {
    ring_.set_next_gate(true);
    std::uint64_t count = 0;
    store_.for_each_place([&](place_type p) {
        const slot_word w = p.at->load();
        if (is_ready(p, w) || (w.state() == slot_state::waiting && !is_dying(p))) {
            take_out(p);
            leave(p, true, fx);
            ++count;
        }
    });
    if (base::supply() != nullptr) {
        const std::uint64_t passed = base::supply()->skip_all();
        delayed_accepted_ += passed; // and gone in the same moment
        count += passed;
    }
    totals_.purged += count;
    notices::purged n{};
    fill(n, now, 0);
    n.count = count;
    fx.note(std::move(n));
    serve(now, fx);
    return count;
}

template <class Sync>
queue_stats queue_machine<Sync>::stats() {
    queue_stats s = totals_;
    s.ready = backlog();
    s.delayed = delayed_;
    s.in_flight = board_.held_count();
    s.consumers = board_.open_count();
    s.waiting_receivers = receivers_.size();
    s.waiting_senders = senders_.size();
    s.deduplication_ids = base::window_ ? base::window_->size() : 0;
    s.memory_bytes = store_.memory_bytes();
    s.accepted = ring_.tail() - ring_.first() - ring_.unused() - relocated_ + delayed_accepted_ +
                 (s.ready - ready_count());
    s.handed_out = board_.taken_count();
    s.acked = s.handed_out - board_.unacked_count() - s.in_flight;
    if (store_.has_levels()) {
        s.oldest_ready_since = store_.oldest_returned();
    } else {
        std::uint64_t looked_at = 0;
        browse([&](place_type p) {
            s.oldest_ready_since =
                std::min(s.oldest_ready_since, store_.enqueued_at(p).value_or(never));
            // Those in line are in order of time; returned ones need not be.
            return ++looked_at <= store_.returned_count();
        });
    }
    if (base::supply() != nullptr) {
        s.oldest_ready_since = std::min(s.oldest_ready_since, base::supply()->oldest());
    }
    s.settled_through = store_.settled_through();
    s.oldest_since = s.oldest_ready_since;
    const place_type first = store_.locate(s.settled_through);
    if (first && first.at->load().state() != slot_state::empty) { // else it is being sent
        s.oldest_since = std::min(s.oldest_since, store_.enqueued_at(first).value_or(never));
    }
    return s;
}

} // namespace railmq::core
