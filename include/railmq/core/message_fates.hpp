// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/deadline_index.hpp>
#include <railmq/core/deduplication_window.hpp>
#include <railmq/core/effects.hpp>
#include <railmq/core/key_lines.hpp>
#include <railmq/core/lease_holder.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/core/message_store.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/stats.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace railmq::core {

/// What becomes of a queue's messages: how one is stored, handed out, given back, retried, parked
/// behind its key, expired, dropped or sent to die. The base of `queue_machine`, which decides
/// when.
///
/// Thread safety: with the queue's lock held.
template <class Sync>
class message_fates {
public:
    using store_type = message_store<Sync>;
    using ring_type = slot_ring<Sync>;
    using holder_type = lease_holder<Sync>;
    using place_type = place<Sync>;
    using lease_type = lease<Sync>;
    using effects_type = effects<Sync>;

    /// A message that waits for its move to a dead-letter queue.
    struct dying_message {
        place_type where{};
        std::uint64_t id = 0;
        death_reason reason{};
    };

    message_fates(
        std::string name,
        const payload_ops& ops,
        queue_options options,
        memory_budget<Sync>& budget,
        std::uint64_t seed)
        : store_{ops, budget, options.priorities, options.max_overtakes}
        , ring_{store_.ring()}
        , name_{std::move(name)}
        , options_{std::move(options)}
        , random_{seed}
        , lease_lane_{timers_.open_lane()} {
        if (options_.deduplication_window > duration::zero()) {
            window_.emplace(options_.deduplication_window, budget);
        }
    }
    message_fates(const message_fates&) = delete;
    message_fates& operator=(const message_fates&) = delete;

    [[nodiscard]] store_type& store() noexcept { return store_; }
    [[nodiscard]] ring_type& ring() noexcept { return ring_; }
    [[nodiscard]] const queue_options& options() const noexcept { return options_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    [[nodiscard]] std::uint64_t ready_count() const noexcept {
        return ring_.in_line() + store_.returned_count() + parked_;
    }

    /// The next message that can be moved to a dead-letter queue now.
    [[nodiscard]] std::optional<dying_message> next_dying() {
        while (!dying_.empty()) {
            const std::uint64_t id = dying_.front();
            dying_.pop_front();
            const place_type p = store_.locate(id);
            if (p && is_dying(p) && (p.at->load().pins() == 0 || store_.ops().copy != nullptr)) {
                return dying_message{p, id, p.at->details()->dying_of};
            }
        }
        return std::nullopt;
    }

    /// The dead-letter queue refused: the message stays, and is tried again after a while.
    void postpone_death(const dying_message& m, time_point now) {
        message_details& d = *m.where.at->details();
        // Counted apart from the message's own failures, so that waiting costs it no attempt.
        const std::uint32_t n = ++d.refusals;
        const duration wait = std::max<duration>(
            options_.retry.backoff.wait(n, d.previous_wait, random_),
            std::chrono::milliseconds{10});
        d.timer = timers_.arm(saturating_add(now, wait), {m.id, timer_kind::wait});
    }

    /// Whether a journal hears of all hand-outs, or only of those of messages that may have ended
    /// a process: those before the position, and those that never stood in line.
    void list_hand_outs(bool all) noexcept { lists_hand_outs_ = all; }
    void suspect_before(std::uint64_t position) noexcept { suspects_end_ = position; }

protected:
    ~message_fates() = default;

    enum class timer_kind : std::uint8_t { lease, wait, lifetime, window };
    struct timer_item {
        std::uint64_t id;
        timer_kind kind;
    };

    // Notices

    void fill(notices::event& e, time_point now, std::uint64_t id) const noexcept {
        e.queue = name_;
        e.at = now;
        e.id = id;
    }
    template <class Notice>
    void note(effects_type& fx, place_type p, time_point now) const {
        if (fx.listening) {
            Notice n{};
            fill(n, now, store_.public_id(p));
            fx.note(std::move(n));
        }
    }
    /// Lists a change of the message for the journal, if there is one.
    void list(effects_type& fx, place_type p, message_change::kind what) const {
        if (fx.keeping) {
            const bool is_new = what == message_change::kind::stored;
            fx.changes.push_back(
                {store_.id_of(p),
                 store_.public_id(p),
                 what,
                 is_new ? fx.encoded : std::span<const std::byte>{}});
        }
    }
    /// The same of messages with ids in a row, which have no details.
    static void
    list_row(effects_type& fx, std::uint64_t first, std::uint64_t n, message_change::kind what) {
        if (!fx.changes.empty()) {
            message_change& last = fx.changes.back();
            if (last.what == what && last.id == last.public_id && last.id + last.count == first) {
                last.count += n;
                return;
            }
        }
        fx.changes.push_back({first, first, what, {}, n});
    }
    bool report_stale(place_type p, time_point now, effects_type& fx) {
        ++totals_.stale_settlements;
        note<notices::stale>(fx, p, now);
        return false;
    }

    // Leases

    [[nodiscard]] static bool is_current(const lease_type& l, slot_word w) noexcept {
        return w.state() == slot_state::leased && w.same_lease(l.word);
    }
    /// When a lease began of which only the end is known, as it is of first hand-outs.
    [[nodiscard]] time_point start_of_lease_until(time_point deadline) const noexcept {
        return time_point{deadline.time_since_epoch() - options_.ack_timeout};
    }
    /// The details of a message that has been handed out; from now on they tell when it first was.
    message_details& remember_hand_out(place_type p) {
        message_details& d = store_.make_details(p);
        if (d.first_handed_out == never && d.lease_deadline != never) {
            d.first_handed_out = start_of_lease_until(d.lease_deadline);
        }
        return d;
    }

    /// From now on the lease's deadline is in the index, and settling it goes through the lock.
    void arm_lease(place_type p, time_point deadline, deadline_lane lane) {
        const slot_word w = p.at->load();
        message_details& d = w.tag() != 0 ? remember_hand_out(p) : store_.make_details(p);
        if (w.state() == slot_state::leased && !w.is_slow() && d.lease_deadline != never) {
            d.lease_start = start_of_lease_until(d.lease_deadline);
        }
        timers_.cancel(std::exchange(d.timer, deadline_handle{}));
        d.lease_deadline = deadline;
        if (deadline != never) {
            d.timer = timers_.arm_in_lane(lane, deadline, {store_.id_of(p), timer_kind::lease});
        }
        p.at->store(p.at->load().with_flags(slot_word::slow_bit));
    }

    void hand_out(place_type p, holder_type& h, time_point now, effects_type& fx, lease_type& out) {
        const slot_word w = p.at->load();
        const time_point deadline =
            h.acks_on_delivery ? never : saturating_add(now, options_.ack_timeout);
        // An observer hears of the settlement. One that did not come in its turn, the list of
        // leases does not know.
        const bool in_turn =
            !store_.has_levels() && !p.in->aside && store_.id_of(p) + 1 == ring_.next();
        if (w.tag() != 0 || w.is_slow() || fx.listening || !in_turn) {
            arm_lease(p, deadline, lease_lane_);
        } else {
            if (w.has_details()) {
                p.at->details()->lease_deadline = deadline;
            }
            new_line_lease_ = std::min(new_line_lease_, deadline);
        }
        if (message_details* d = store_.details_of(p)) {
            d->lease_start = now;
            if (d->first_handed_out == never) {
                d->first_handed_out = now;
            }
        }
        const slot_word leased = p.at->load().leased_to(h.number);
        p.at->store(leased);
        h.count_taken(1);
        totals_.redelivered += w.tag() != 0 ? 1 : 0;
        out = {&h, p.in, p.at, leased};
        // At most once: for who acknowledges by taking, it is over with that.
        if (h.acks_on_delivery) {
            list(fx, p, message_change::kind::gone);
        } else if (lists_hand_outs_ || p.in->aside || store_.id_of(p) < suspects_end_) {
            list(fx, p, message_change::kind::changed);
        }
        if (fx.listening) {
            notices::delivered n{};
            fill(n, now, store_.public_id(p));
            n.delivery_count = leased.tag();
            fx.note(std::move(n));
        }
    }

    /// Takes a lease away from its holder, whose handle may go on reading the payload. The message
    /// is then in state `settling`. False: it was settled at this very moment, or cannot be
    /// revoked because too many old handles are left.
    [[nodiscard]] bool revoke(place_type p, holder_type& h, slot_word seen, effects_type& fx) {
        {
            std::lock_guard guard{h.lock};
            const slot_word w = p.at->load();
            if (w.state() != slot_state::leased || !w.same_lease(seen) ||
                w.pins() == slot_word::max_pins) {
                return false;
            }
            p.at->store(w.with(slot_state::settling).with_pins(w.pins() + 1));
            h.count_settled(1);
            ++h.slow_settlements;
            ++h.stale_handles;
        }
        end_lease(p, fx);
        return true;
    }

    void end_lease(place_type p, effects_type& fx) {
        if (message_details* d = store_.details_of(p)) {
            timers_.cancel(std::exchange(d->timer, deadline_handle{}));
            end_stop(*d, fx);
        }
    }
    static void end_stop(message_details& d, effects_type& fx) {
        if (d.stop.stop_possible()) {
            fx.stops.push_back(std::exchange(d.stop, std::stop_source{std::nostopstate}));
        }
    }

    // What becomes of messages

    void fail(
        place_type p,
        failure_kind kind,
        std::string detail,
        std::optional<duration> wait,
        time_point now,
        effects_type& fx) {
        message_details& d = remember_hand_out(p);
        d.failures.add(kind);
        ++totals_.failed;
        totals_.deadlines_passed += kind == failure_kind::deadline_passed ? 1 : 0;
        if (fx.listening) {
            notices::failed n{};
            fill(n, now, store_.public_id(p));
            n.kind = kind;
            n.failure_count = d.failures.failures;
            n.detail = detail;
            fx.note(std::move(n));
        }
        const retry_decision decision = decide(
            options_.retry,
            failed_attempt{kind, d.failures, now - d.first_handed_out, d.previous_wait},
            random_);
        if (decision.is_dead()) {
            die(p, *decision.death, std::move(detail), fx);
            return;
        }
        const duration pause = wait ? std::max(*wait, duration::zero()) : decision.wait;
        d.previous_wait = pause;
        if (pause == duration::zero()) {
            note_retried(fx, p, now, now);
            give_back(p, options_.requeue, now, fx);
            return;
        }
        if (has_expired(p, now)) {
            die(p, death_reason::expired, {}, fx);
            return;
        }
        const time_point due = saturating_add(now, pause);
        note_retried(fx, p, now, due);
        p = store_.put_aside(p);
        wait_until(p, due, wait_kind::backoff);
        list(fx, p, message_change::kind::changed);
    }

    void note_retried(effects_type& fx, place_type p, time_point now, time_point due) {
        if (fx.listening) {
            notices::retried n{};
            fill(n, now, store_.public_id(p));
            n.ready_at = due;
            fx.note(std::move(n));
        }
    }

    void wait_until(place_type p, time_point due, wait_kind what) {
        message_details& d = store_.make_details(p);
        d.timer = timers_.arm(due, {store_.id_of(p), timer_kind::wait});
        d.waits_for = what;
        store_.set_state(p, slot_state::waiting);
        ++delayed_;
    }

    /// A message was picked whose payload cannot be read now: it waits, which costs it no attempt.
    void put_off(place_type p, time_point now, effects_type& fx) {
        note<notices::unreadable>(fx, p, now);
        p = store_.put_aside(p);
        wait_until(p, saturating_add(now, std::chrono::seconds{1}), wait_kind::backoff);
        list(fx, p, message_change::kind::changed);
    }

    [[nodiscard]] bool has_expired(place_type p, time_point now) const noexcept {
        const message_details* d = store_.details_of(p);
        return d != nullptr && d->expires_at <= now;
    }

    /// Ready again, or dead if its time is over. A queue that drops its oldest may drop one now.
    void give_back(place_type p, requeue_position where, time_point now, effects_type& fx) {
        if (has_expired(p, now)) {
            die(p, death_reason::expired, {}, fx);
            return;
        }
        if (options_.order == delivery_order::strict) {
            where = requeue_position::original; // it holds up the line: nobody goes before it
        }
        message_details& d = remember_hand_out(p);
        d.waits_for = wait_kind::none;
        d.returned_to = where;
        ready_bytes_ += bytes_of(p);
        store_.put_back(p, where);
        list(fx, p, message_change::kind::changed);
        if (options_.overflow == overflow_policy::drop_oldest) {
            drop_surplus(fx);
        }
    }

    /// Lists the message for its move to the dead-letter queue. Until then it stays here.
    void die(place_type p, death_reason why, std::string detail, effects_type& fx) {
        message_details& d = store_.make_details(p);
        cancel_timers(d);
        pass_on_key(d);
        d.waits_for = wait_kind::dead_letter;
        d.dying_of = why;
        d.dying_detail = std::move(detail);
        dying_.push_back(store_.id_of(p));
        store_.set_state(p, slot_state::waiting);
        ++delayed_;
        fx.has_dying = true;
        list(fx, p, message_change::kind::changed);
    }
    [[nodiscard]] bool is_dying(place_type p) const noexcept {
        const message_details* d = store_.details_of(p);
        return p.at->load().state() == slot_state::waiting && d != nullptr &&
               d->waits_for == wait_kind::dead_letter;
    }

    /// The message has left for good.
    void leave(place_type p, bool payload_left, effects_type& fx) {
        list(fx, p, message_change::kind::gone);
        if (message_details* d = store_.details_of(p)) {
            cancel_timers(*d);
            end_stop(*d, fx);
            pass_on_key(*d);
        }
        if (p.at->load().pins() != 0) {
            store_.set_state(p, slot_state::done); // `drop_stale` ends it
            return;
        }
        store_.drop_details(p);
        if (payload_left) {
            end_payload_or_free(p, fx);
        } else {
            store_.free_place(p);
        }
    }
    void end_payload_or_free(place_type p, effects_type& fx) {
        if (store_.ops().destroy == nullptr) {
            store_.free_place(p);
            return;
        }
        store_.set_state(p, slot_state::settling);
        fx.endings.push_back({p, p.in->aside}); // user code: runs once the lock is released
    }

    void cancel_timers(message_details& d) noexcept {
        timers_.cancel(std::exchange(d.timer, deadline_handle{}));
        if (d.expires_at != never) {
            timers_.cancel(std::exchange(d.lifetime, deadline_handle{}));
            d.expires_at = never;
            --lifetimes_;
        }
    }

    void pass_on_key(message_details& d) {
        key_line* line = std::exchange(d.line, nullptr);
        if (line == nullptr) {
            return;
        }
        if (line == &strict_line_) {
            strict_busy_ = false;
            return;
        }
        while (const auto next = keys_.pass_on(*line)) {
            const place_type p = store_.locate(*next);
            message_details* waiting = p ? store_.details_of(p) : nullptr;
            if (waiting != nullptr && p.at->load().state() == slot_state::waiting &&
                waiting->waits_for == wait_kind::key) {
                waiting->waits_for = wait_kind::none;
                waiting->line = line;
                --parked_;
                store_.put_back(p, requeue_position::original);
                return;
            }
        }
    }

    /// Takes a message that nobody holds out of wherever it waits; it is then `settling`.
    void take_out(place_type p) {
        const slot_word w = p.at->load();
        if (w.state() == slot_state::waiting) {
            if (store_.details_of(p)->waits_for == wait_kind::key) {
                --parked_;
                ready_bytes_ -= bytes_of(p);
            } else {
                --delayed_;
            }
            store_.set_state(p, slot_state::settling);
            return;
        }
        ready_bytes_ -= bytes_of(p);
        store_.withdraw(p);
    }
    [[nodiscard]] bool is_ready(place_type p, slot_word w) const noexcept {
        return w.state() == slot_state::returned ||
               (w.state() == slot_state::ready && store_.is_in_line(p));
    }

    void end_wait(place_type p, message_details& d, time_point now, effects_type& fx) {
        switch (d.waits_for) {
        case wait_kind::delay: {
            const place_type in_line = store_.put_in_line(p);
            if (!in_line) { // no memory at all: it waits a little longer
                d.timer = timers_.arm(
                    saturating_add(now, std::chrono::milliseconds{100}),
                    {store_.id_of(p), timer_kind::wait});
                return;
            }
            --delayed_;
            ++relocated_;
            d.waits_for = wait_kind::none;
            ready_bytes_ += bytes_of(in_line);
            if (d.lifetime) { // its id has changed
                timers_.cancel(d.lifetime);
                d.lifetime =
                    timers_.arm(d.expires_at, {store_.id_of(in_line), timer_kind::lifetime});
            }
            list(fx, in_line, message_change::kind::changed);
            if (store_.has_levels()) {
                store_.leave_line();
            }
            break;
        }
        case wait_kind::backoff:
            --delayed_;
            give_back(p, options_.requeue, now, fx);
            break;
        case wait_kind::dead_letter:
            dying_.push_back(store_.id_of(p));
            fx.has_dying = true;
            break;
        case wait_kind::none:
        case wait_kind::key: break;
        }
    }

    // Storing

    [[nodiscard]] std::uint64_t bytes_of(place_type p) const noexcept {
        return options_.max_bytes == unlimited ? 0 : store_.ops().bytes(store_.payload(p));
    }
    [[nodiscard]] bool has_room(std::uint64_t messages, std::uint64_t bytes) const noexcept {
        return (options_.max_length == unlimited ||
                ready_count() + messages <= options_.max_length) &&
               (options_.max_bytes == unlimited || ready_bytes_ + bytes <= options_.max_bytes);
    }
    bool drop_oldest(effects_type& fx) {
        const place_type p = store_.has_levels() ? pick_least() : pick();
        if (!p) {
            return false;
        }
        die(p, death_reason::dropped_oldest, {}, fx);
        return true;
    }

    [[nodiscard]] errc store_message(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        std::unique_ptr<message_details>& details,
        time_point now,
        bool must,
        effects_type& fx,
        std::uint64_t& id) {
        if (aborted_) {
            return refuse(errc::closed, now, fx);
        }
        const std::size_t size = options_.max_bytes == unlimited ? 0 : store_.ops().bytes(payload);
        if (size > options_.max_bytes) {
            return refuse(errc::message_too_large, now, fx);
        }
        std::optional<duration> lifetime = options_.time_to_live;
        duration delay{0};
        if (props != nullptr) {
            delay = props->delay;
            if (props->time_to_live) {
                lifetime =
                    lifetime ? std::min(*lifetime, *props->time_to_live) : *props->time_to_live;
            }
        }
        if (details == nullptr && (props != nullptr || lifetime)) {
            details = std::make_unique<message_details>();
        }
        if (delay > duration::zero()) {
            return store_delayed(payload, props, std::move(details), delay, lifetime, now, fx, id);
        }
        // With priorities it has to be seen beside the others before one of them is dropped.
        const bool drops_later =
            store_.has_levels() && options_.overflow == overflow_policy::drop_oldest;
        while (!drops_later && !has_room(1, size)) {
            if (options_.overflow != overflow_policy::drop_oldest || !drop_oldest(fx)) {
                return refuse(errc::queue_full, now, fx);
            }
        }
        std::uint64_t sequence = 0;
        slot<Sync>* at = nullptr;
        if (!ring_.claim(must, sequence, at)) {
            return refuse(errc::memory_limit, now, fx);
        }
        const place_type p = ring_.locate(sequence);
        try {
            if (lifetime) {
                details->expires_at = saturating_add(now, *lifetime);
                details->lifetime =
                    timers_.arm(details->expires_at, {sequence, timer_kind::lifetime});
            }
            store_.ops().relocate(store_.payload(p), payload);
        } catch (...) {
            if (lifetime) {
                timers_.cancel(details->lifetime);
            }
            ring_.publish_hole(at);
            throw;
        }
        slot_word w{slot_state::ready};
        at->set_enqueued(now);
        if (details != nullptr) {
            if (props != nullptr) {
                details->props = std::move(props);
            }
            w = w.with_flags(slot_word::details_bit);
            if (lifetime) {
                w = w.with_flags(slot_word::slow_bit);
                ++lifetimes_;
                ring_.set_next_gate(true);
            }
            details->enqueued = now;
            at->set_details(details.release());
        }
        ready_bytes_ += size;
        at->store(w);
        id = sequence;
        list(fx, p, message_change::kind::stored);
        note<notices::sent>(fx, p, now);
        if (store_.has_levels()) {
            store_.leave_line();
        }
        if (drops_later) {
            drop_surplus(fx);
        }
        return errc{};
    }
    void drop_surplus(effects_type& fx) {
        while (!has_room(0, 0) && drop_oldest(fx)) {
        }
    }

    [[nodiscard]] errc store_delayed(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        std::unique_ptr<message_details> details,
        duration delay,
        std::optional<duration> lifetime,
        time_point now,
        effects_type& fx,
        std::uint64_t& id) {
        const place_type p = store_.new_aside();
        if (!p) {
            return refuse(errc::memory_limit, now, fx);
        }
        try {
            id = store_.id_of(p);
            details->timer = timers_.arm(saturating_add(now, delay), {id, timer_kind::wait});
            if (lifetime) {
                details->expires_at = saturating_add(now, *lifetime);
                details->lifetime = timers_.arm(details->expires_at, {id, timer_kind::lifetime});
            }
            store_.ops().relocate(store_.payload(p), payload);
        } catch (...) {
            timers_.cancel(details->timer);
            timers_.cancel(details->lifetime);
            store_.free_place(p);
            throw;
        }
        details->props = std::move(props);
        details->waits_for = wait_kind::delay;
        details->has_id = true;
        details->id = id;
        lifetimes_ += lifetime ? 1 : 0;
        details->enqueued = now;
        p.at->set_details(details.release());
        slot_word w = slot_word{slot_state::waiting}.with_flags(slot_word::details_bit);
        p.at->store(lifetime ? w.with_flags(slot_word::slow_bit) : w);
        ++delayed_;
        ++delayed_accepted_;
        list(fx, p, message_change::kind::stored);
        note<notices::sent>(fx, p, now);
        return errc{};
    }

    errc refuse(errc why, time_point now, effects_type& fx) {
        // A full queue that callers wait for has refused nothing yet.
        if (why != errc::queue_full || options_.overflow != overflow_policy::wait) {
            ++totals_.refused;
            note_refused(why, now, fx);
        }
        return why;
    }
    void note_refused(errc why, time_point now, effects_type& fx) const {
        if (fx.listening) {
            notices::refused n{};
            fill(n, now, 0);
            n.code = why;
            fx.note(std::move(n));
        }
    }

    // Handing out

    [[nodiscard]] bool is_blocked_by_order() const noexcept {
        return options_.order == delivery_order::strict && strict_busy_;
    }

    /// The next message to hand out, removed from where it waited; or none.
    [[nodiscard]] place_type pick() {
        if (store_.has_levels()) {
            store_.leave_line();
            const place_type p = store_.take_returned();
            ready_bytes_ -= p ? bytes_of(p) : 0;
            return p;
        }
        for (;;) {
            // Asked again behind every position: one that was put to the back may come here.
            if (const place_type p = store_.take_returned()) {
                if (!has_line(p) && !enter_key_line(p)) {
                    continue;
                }
                ready_bytes_ -= bytes_of(p);
                return p;
            }
            ring_.set_next_gate(true);
            const std::uint64_t n = ring_.next();
            if (n == ring_.tail()) {
                return {};
            }
            const place_type p = ring_.locate(n);
            const slot_state state = p.at->load().state();
            if (state == slot_state::empty || is_blocked_by_order()) {
                return {};
            }
            if (state != slot_state::ready) {
                ring_.pass_next();
                ring_.forget_hole();
                continue;
            }
            if (options_.order != delivery_order::fifo && !enter_key_line(p)) {
                ring_.pass_next();
                continue;
            }
            ring_.pass_next();
            ready_bytes_ -= bytes_of(p);
            return p;
        }
    }

    /// With priorities: the one that may wait least long, removed from where it waited; or none.
    [[nodiscard]] place_type pick_least() {
        store_.leave_line();
        const place_type p = store_.take_least();
        ready_bytes_ -= p ? bytes_of(p) : 0;
        return p;
    }

    /// Whether a message that was returned kept the line of its key; one that outlived its process
    /// has lost it.
    [[nodiscard]] bool has_line(place_type p) const noexcept {
        if (options_.order == delivery_order::fifo) {
            return true; // there are no lines
        }
        const message_details* d = store_.details_of(p);
        return d != nullptr && d->line != nullptr;
    }
    /// Whether the message may go now; else it is parked behind the one of its key that has gone.
    [[nodiscard]] bool enter_key_line(place_type p) {
        key_line* line = nullptr;
        if (options_.order == delivery_order::strict) {
            strict_busy_ = true;
            line = &strict_line_;
        } else {
            message_details* d = store_.details_of(p);
            if (d == nullptr || d->props == nullptr || !d->props->key) {
                return true; // no key, no order to keep
            }
            line = keys_.enter(*d->props->key, store_.id_of(p));
            if (line == nullptr) {
                d->waits_for = wait_kind::key;
                // Slow: when its turn comes it owns the line, and it is not in line any more.
                p.at->store(p.at->load().with(slot_state::waiting).with_flags(slot_word::slow_bit));
                ++parked_;
                return false;
            }
        }
        store_.make_details(p).line = line;
        p.at->store(p.at->load().with_flags(slot_word::slow_bit));
        return true;
    }

    store_type store_;
    ring_type& ring_;
    std::string name_;
    queue_options options_;
    random_engine random_;
    deadline_index<timer_item> timers_{};
    deadline_lane lease_lane_;

    std::optional<deduplication_window<Sync>> window_{};
    deadline_handle window_timer_{}; ///< The end of the oldest id in it.
    key_lines keys_{};
    key_line strict_line_{};
    bool strict_busy_ = false;

    std::deque<std::uint64_t> dying_{};
    std::uint64_t delayed_ = 0; ///< In state `waiting`, but for those that wait for their key.
    std::uint64_t parked_ = 0;  ///< Waiting for their key: ready, but for the order.
    /// The earliest deadline of leases that are not in the index, since somebody last asked.
    time_point new_line_lease_ = never;
    std::uint64_t lifetimes_ = 0; ///< Messages with a time to live.
    std::uint64_t ready_bytes_ = 0;
    std::uint64_t relocated_ = 0;
    std::uint64_t delayed_accepted_ = 0;

    queue_stats totals_{};
    std::uint64_t suspects_end_ = 0;
    bool lists_hand_outs_ = true;
    bool closed_ = false;
    bool aborted_ = false;
};

} // namespace railmq::core
