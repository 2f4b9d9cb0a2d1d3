// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/consumer_board.hpp>
#include <railmq/core/effects.hpp>
#include <railmq/core/lease_holder.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/core/message_rows.hpp>
#include <railmq/core/payload_source.hpp>
#include <railmq/core/waiters.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/stats.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace railmq::core {

/// One queue, as a machine without clock, thread or randomness of its own: every call gets `now`,
/// and what has to happen outside comes back as `effects`.
///
/// The common life of a message runs in `slot_ring` and `lease_holder` without this class. What is
/// out of the ordinary comes here: returns, failures, deadlines, delays, limits, order by key,
/// priorities of consumers, waiting, closing. While something is out of the ordinary the ring's
/// gates are set, so that the machine alone moves its positions.
///
/// Thread safety: call with the queue's lock held. Random numbers come from an engine seeded at
/// construction, so equal seeds and calls give equal decisions.
template <class Sync>
class queue_machine : public message_rows<Sync> {
    using base = message_rows<Sync>;

public:
    using holder_type = lease_holder<Sync>;
    using place_type = place<Sync>;
    using lease_type = lease<Sync>;
    using effects_type = effects<Sync>;
    using dying_message = typename base::dying_message;

    using base::add_places;
    using base::backlog;
    using base::cover_leases;
    using base::next_dying;
    using base::postpone_death;
    using base::ready_count;
    using base::trim;

    queue_machine(
        std::string name,
        const payload_ops& ops,
        queue_options options,
        memory_budget<Sync>& budget,
        std::uint64_t seed,
        bool always_locked = false,
        bool is_kept = false)
        : base{std::move(name), ops, std::move(options), budget, seed}
        , is_kept_{is_kept} {
        const bool counts_bytes = options_.max_bytes != unlimited;
        always_locked = always_locked || is_kept || options_.priorities > 1;
        sends_need_lock_ = always_locked || counts_bytes || base::window_.has_value() ||
                           options_.time_to_live.has_value() ||
                           options_.overflow == overflow_policy::drop_oldest;
        receives_need_lock_ =
            always_locked || counts_bytes || options_.order != delivery_order::fifo;
        update_gates();
    }
    queue_machine(const queue_machine&) = delete;
    queue_machine& operator=(const queue_machine&) = delete;

    [[nodiscard]] bool is_closed() const noexcept { return closed_; }
    [[nodiscard]] bool is_paused() const noexcept { return paused_; }
    [[nodiscard]] bool is_waited_for() const noexcept { return !senders_.empty(); }
    [[nodiscard]] bool has_consumers() const noexcept { return board_.open_count() != 0; }
    [[nodiscard]] errc close_reason() const noexcept { return close_reason_; }
    /// Closed, and nothing is left that may be handed out.
    [[nodiscard]] bool is_drained() const noexcept {
        return closed_ && (aborted_ || (!is_draining_ && ready_count() == 0 && delayed_ == 0 &&
                                        backlog() == 0));
    }

    // Sending

    /// Stores the message at `payload`, which is moved from on success. Errors: `closed`,
    /// `queue_full`, `message_too_large`, `memory_limit`. What the payload's move throws is passed
    /// on, and nothing is stored. A handler may still send while the queue is being drained.
    [[nodiscard]] errc send(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        time_point now,
        effects_type& fx,
        std::uint64_t& id,
        bool from_handler = false) {
        if (!senders_.empty() && !closed_) {
            return errc::queue_full; // whoever waited before is served before
        }
        if (closed_ && !(from_handler && !aborted_)) {
            return refuse(errc::closed, now, fx);
        }
        const errc e = this->store_once(payload, props, now, false, fx, id);
        const bool was_duplicate = fx.was_duplicate;
        serve(now, fx); // others may be stored
        fx.was_duplicate = was_duplicate;
        return e;
    }

    /// Takes over a message of another queue, a dead letter or a redriven one, and the `details`
    /// with its history; on an error both stay with the caller. Not delayed, without a time to
    /// live of its own, and beyond the memory limit, since it exists.
    [[nodiscard]] errc adopt(
        void* payload,
        std::unique_ptr<message_details>& details,
        time_point now,
        effects_type& fx) {
        std::uint64_t id = 0;
        std::unique_ptr<railmq::properties> none;
        const errc e = store_message(payload, none, details, now, true, fx, id);
        serve(now, fx);
        return e;
    }

    /// A send failed before it came here, or gave up waiting: it counts as refused all the same.
    void count_refused(errc why, time_point now, effects_type& fx) {
        ++totals_.refused;
        this->note_refused(why, now, fx);
    }

    /// Queues a send that waits for room. It is completed at once if a consumer has made room
    /// since.
    void wait_to_send(send_waiter& w, time_point now, effects_type& fx) {
        senders_.push_back(w);
        update_gates(); // from here on every take goes through the lock and sees the waiter
        serve(now, fx);
    }
    /// Takes a waiting send back; it will not be completed.
    void forget(send_waiter& w) noexcept {
        senders_.erase(senders_.iterator_to(w));
        update_gates();
    }

    // Consumers

    /// Registers a consumer. Throws `system_error` with `options_mismatch` when it disagrees with
    /// the others on single-active.
    void open(holder_type& h, time_point now, effects_type& fx) {
        board_.add(h, name_);
        h.is_kept = h.wants_settlements = is_kept_;
        notices::consumer_opened n{};
        fill(n, now, 0);
        n.consumer = h.number;
        if (fx.listening) {
            n.name = h.name;
        }
        fx.note(std::move(n));
        note_activated(board_.choose_mode(), now, fx);
        serve(now, fx);
    }

    /// Hands one message to `h`, if there is one that it may have.
    [[nodiscard]] bool take(holder_type& h, time_point now, effects_type& fx, lease_type& out) {
        const auto add = [&](const lease_type& l, std::uint32_t) { out = l; };
        return take_some(h, 1, now, fx, add) != 0;
    }
    /// Hands up to `max` messages to `h`: calls `add(first lease, count)` for those whose slots are
    /// in a row. It must not throw. Returns how many.
    template <class Add>
    std::uint64_t
    take_some(holder_type& h, std::uint64_t max, time_point now, effects_type& fx, Add&& add) {
        const std::uint64_t n = take_next(h, max, now, fx, add);
        if (n != 0 && (!senders_.empty() || closed_)) {
            serve(now, fx); // there is room now, or this was the last one
        } else {
            update_gates(); // looking for it has closed one
        }
        return n;
    }

    /// Queues a receive. False: a message is being published this moment, or the last one of a
    /// closed queue has just been taken; ask again.
    [[nodiscard]] bool wait_to_receive(receive_waiter<Sync>& w) noexcept {
        w.holder->waiting.store(
            w.holder->waiting.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        w.holder->update_needs_lock();
        insert_by_priority(receivers_, w);
        update_gates();
        // From here on every send goes through the lock and sees the waiter. One that claimed its
        // place before may still be writing, and will not look.
        if (is_drained() || (may_take(*w.holder) && (is_published_late() || !listens()))) {
            forget(w);
            return false;
        }
        board_.want_settlements(*w.holder); // it may be waiting for room of its own
        trim(1024);                         // there is time: nothing is there
        return true;
    }
    void forget(receive_waiter<Sync>& w) noexcept {
        remove(w);
        update_gates();
    }

    /// Stops new deliveries to `h`; what it holds may still be settled.
    void cancel(holder_type& h, time_point now, effects_type& fx) {
        if (h.is_open.load(std::memory_order_relaxed)) {
            stop(h, now, fx);
            serve(now, fx);
        }
    }

    void set_paused(holder_type& h, bool on, time_point now, effects_type& fx) {
        h.is_paused.store(on, std::memory_order_relaxed);
        h.update_needs_lock();
        serve(now, fx);
    }

    /// `cancel`, and gives back everything that `h` holds, each to its original place.
    void close(holder_type& h, time_point now, effects_type& fx) {
        if (h.is_open.load(std::memory_order_relaxed)) {
            stop(h, now, fx); // the others are served once everything is back in its place
        }
        std::uint64_t returned = 0;
        if (h.held() != 0 && !h.acks_on_delivery) {
            store_.for_each_place([&](place_type p) {
                const slot_word w = p.at->load();
                if (w.state() == slot_state::leased && w.owner() == h.number &&
                    revoke(p, h, w, fx)) {
                    ++returned;
                    ++totals_.released;
                    this->template note<notices::released>(fx, p, now);
                    give_back(p, requeue_position::original, now, fx);
                }
            });
        }
        board_.want_settlements(h); // until the last handle is gone
        notices::consumer_closed n{};
        fill(n, now, 0);
        n.consumer = h.number;
        n.returned = returned;
        fx.note(std::move(n));
        serve(now, fx);
    }

    /// After a settlement on the fast path, where `wants_settlements` was set.
    void on_settled(holder_type& h, time_point now, effects_type& fx) {
        replace_drained(h, now, fx);
        serve(now, fx);
        std::lock_guard guard{h.lock};
        h.wants_settlements = is_kept_ || h.waiting.load(std::memory_order_relaxed) != 0 ||
                              !idlers_.empty() || board_.is_draining(h) ||
                              !h.is_open.load(std::memory_order_relaxed) || closed_;
    }

    // Settling

    /// Settles a lease. False: it was stale and nothing has changed.
    bool settle(const lease_type& l, settlement s, time_point now, effects_type& fx) {
        const place_type p{l.in, l.at};
        {
            std::lock_guard guard{l.holder->lock};
            const slot_word w = l.at->load();
            if (is_current(l, w)) {
                l.at->store(w.with(slot_state::settling));
                l.holder->count_settled(1);
                if (s.what != settlement::kind::ack) {
                    ++l.holder->slow_settlements;
                }
            } else if (is_late_but_first(l, w, s.what)) {
                // Nobody else has got the message: its old holder's word still counts.
                take_out(p);
                l.at->store(p.at->load().with_pins(w.pins() - 1));
                --l.holder->stale_handles;
                if (s.what == settlement::kind::ack) {
                    --l.holder->slow_settlements;
                }
            } else {
                return report_stale(p, now, fx);
            }
        }
        end_lease(p, fx);
        switch (s.what) {
        case settlement::kind::ack:
            this->template note<notices::acked>(fx, p, now);
            leave(p, true, fx);
            break;
        case settlement::kind::nack:
            fail(p, failure_kind::nacked, std::move(s.detail), s.wait, now, fx);
            break;
        case settlement::kind::threw:
            fail(p, failure_kind::threw, std::move(s.detail), s.wait, now, fx);
            break;
        case settlement::kind::reject:
            die(p, death_reason::rejected, std::move(s.detail), fx);
            break;
        case settlement::kind::permanent:
            die(p, death_reason::permanent_error, std::move(s.detail), fx);
            break;
        case settlement::kind::release:
            ++totals_.released;
            this->template note<notices::released>(fx, p, now);
            give_back(p, requeue_position::original, now, fx);
            break;
        }
        on_settled(*l.holder, now, fx);
        return true;
    }

    /// One fast acknowledgement that has not been counted yet.
    void count_settled(holder_type& h, time_point now, effects_type& fx) {
        {
            std::lock_guard guard{h.lock};
            h.count_settled(1);
        }
        on_settled(h, now, fx);
    }

    /// Reserves a held message for its holder, who is about to move the payload out. False: stale.
    [[nodiscard]] bool begin_take(const lease_type& l, time_point now, effects_type& fx) {
        std::lock_guard guard{l.holder->lock};
        const slot_word w = l.at->load();
        if (!is_current(l, w)) {
            return report_stale({l.in, l.at}, now, fx);
        }
        l.at->store(w.with(slot_state::settling));
        return true;
    }
    /// It was not moved after all, and is held as before, with a full lease.
    void cancel_take(const lease_type& l, time_point now) {
        std::lock_guard guard{l.holder->lock};
        store_.set_state({l.in, l.at}, slot_state::leased);
        arm_lease({l.in, l.at}, saturating_add(now, options_.ack_timeout), deadline_lane{});
    }
    /// It was moved: that acknowledges it.
    void finish_take(const lease_type& l, time_point now, effects_type& fx) {
        const place_type p{l.in, l.at};
        {
            std::lock_guard guard{l.holder->lock};
            l.holder->count_settled(1);
        }
        end_lease(p, fx);
        this->template note<notices::acked>(fx, p, now);
        leave(p, true, fx);
        on_settled(*l.holder, now, fx);
    }

    /// Moves a lease's deadline. False: it was stale and nothing has changed.
    bool extend(const lease_type& l, time_point deadline, time_point now, effects_type& fx) {
        std::lock_guard guard{l.holder->lock};
        const place_type p{l.in, l.at};
        if (!is_current(l, l.at->load())) {
            return report_stale(p, now, fx);
        }
        arm_lease(p, deadline, deadline_lane{});
        return true;
    }

    /// The lease's deadline, or none when it is stale.
    [[nodiscard]] std::optional<time_point> deadline_of(const lease_type& l) {
        std::lock_guard guard{l.holder->lock};
        const slot_word w = l.at->load();
        return is_current(l, w) ? std::optional{lease_deadline({l.in, l.at}, w)} : std::nullopt;
    }

    /// A token that asks to stop when the lease is lost or settled, or the queue has ended.
    [[nodiscard]] std::stop_token stop_token(const lease_type& l) {
        std::lock_guard guard{l.holder->lock};
        const slot_word w = l.at->load();
        if (!is_current(l, w) || aborted_) {
            std::stop_source gone;
            gone.request_stop();
            return gone.get_token();
        }
        const place_type p{l.in, l.at};
        arm_lease(p, lease_deadline(p, w), deadline_lane{});
        message_details& d = *store_.details_of(p);
        if (!d.stop.stop_possible()) {
            d.stop = std::stop_source{};
        }
        return d.stop.get_token();
    }

    /// A handle whose lease was taken away is gone; nobody reads the payload through it any more.
    void drop_stale(const lease_type& l, effects_type& fx) {
        {
            std::lock_guard guard{l.holder->lock};
            --l.holder->stale_handles;
        }
        const place_type p{l.in, l.at};
        const slot_word w = l.at->load();
        const slot_word unpinned = w.with_pins(w.pins() - 1);
        l.at->store(unpinned);
        if (unpinned.pins() != 0) {
            return;
        }
        if (w.state() == slot_state::done) {
            store_.drop_details(p);
            end_payload_or_free(p, fx);
        } else if (is_dying(p)) {
            dying_.push_back(store_.id_of(p)); // a type that cannot be copied waited for this
            fx.has_dying = true;
        }
    }

    // Time

    /// Brings the queue up to `now`: everything due happens, in order of deadline, then creation;
    /// of one moment, deadlines of first hand-outs come before everything else. True: it has ended
    /// after `most` of them, and there may be more.
    bool run_due(time_point now, effects_type& fx, std::uint64_t most = ~std::uint64_t{0}) {
        for (; most != 0; --most) {
            const time_point lease_due = next_line_lease(now);
            if (std::min(lease_due, timers_.next()) > now) {
                break;
            }
            if (lease_due <= timers_.next()) {
                pass_line_lease(lease_due, now, fx);
            } else if (const auto item = timers_.pop_due(now)) {
                fire(*item, now, fx);
            }
        }
        serve(now, fx);
        return most == 0;
    }

    /// The exact moment at which `run_due` next has something to do, or `never`.
    [[nodiscard]] time_point next_due(time_point now) noexcept {
        const time_point due = std::min(next_line_lease(now), timers_.next());
        return was_published_late()
                   ? std::min(due, saturating_add(now, std::chrono::milliseconds{1}))
                   : due;
    }

    /// The earliest of what has come to be due by the calls since this was last asked. It may have
    /// been settled meanwhile: then it is too early, and `next_due` tells.
    [[nodiscard]] time_point take_new_due(time_point now) noexcept {
        const time_point due = std::min(std::exchange(new_line_lease_, never), timers_.next());
        return was_published_late()
                   ? std::min(due, saturating_add(now, std::chrono::milliseconds{1}))
                   : due;
    }

    /// Removes a closed consumer once no handle refers to it. True: the caller may destroy it.
    [[nodiscard]] bool remove_if_unreferenced(holder_type& h) noexcept {
        return board_.remove_if_unreferenced(h);
    }

    /// Until this is taken back nobody is served: what the queue is filled from is locked.
    void hold_serving(bool on) noexcept { holds_serving_ = on; }
    /// Gives whoever waits what there is.
    void serve(time_point now, effects_type& fx) {
        if (holds_serving_) {
            return;
        }
        for (bool more = true; more;) {
            more = false;
            bool wants = false;
            while (!senders_.empty() && place_waiting(senders_.front(), now, fx)) {
                more = true;
            }
            for (auto it = receivers_.begin(); it != receivers_.end();) {
                auto& w = *it++;
                if (!may_take(*w.holder)) {
                    continue;
                }
                if (!fill_waiter(w, now, fx)) {
                    wants = true;
                    break; // nothing is ready, so nobody behind gets anything either
                }
                more = true;
            }
            more = more || (wants && !listens());
        }
        if (closed_ && is_drained()) {
            complete_receives(close_reason_, fx, [](const auto&) { return true; });
        }
        for (auto it = idlers_.begin(); it != idlers_.end();) {
            auto& w = *it++;
            if (w.of != nullptr ? holds_nothing(w.of) : is_idle(w.only_held, now)) {
                idlers_.erase(idlers_.iterator_to(w));
                fx.completed.push_back(&w);
            }
        }
        update_gates();
    }

    // Administration

    void pause() noexcept {
        paused_ = true;
        update_gates();
    }
    void resume(time_point now, effects_type& fx) {
        paused_ = false;
        serve(now, fx);
    }

    /// Takes no more sends but those of handlers, and receives go on even when nothing is left: the
    /// whole broker is being drained, and more may come.
    void drain_queue(time_point now, effects_type& fx) {
        is_draining_ = true;
        close_queue(errc::closed, false, now, fx);
    }

    /// Takes no more sends. Receives go on until nothing is left, or end at once with `abort`.
    /// Returns how many messages the queue has, held ones included.
    std::uint64_t close_queue(errc why, bool abort, time_point now, effects_type& fx);

    /// Before the journal is closed in good order: lists the hand-outs that it has not heard of, so
    /// that those messages come again as what they are.
    void list_held(effects_type& fx);

    void wait_for_idle(idle_waiter& w) noexcept {
        idlers_.push_back(w);
        board_.for_each([](holder_type& h) { consumer_board<Sync>::want_settlements(h); });
    }
    void forget(idle_waiter& w) noexcept { idlers_.erase(idlers_.iterator_to(w)); }
    [[nodiscard]] bool holds_nothing(const void* holder) const noexcept {
        bool holds = false;
        board_.for_each(
            [&](const holder_type& h) { holds = holds || (&h == holder && h.held() != 0); });
        return !holds;
    }
    [[nodiscard]] bool is_idle(bool only_held, time_point now) noexcept {
        // A message that a consumer is taking this moment, not counted yet, is seen in line.
        return board_.held_count() == 0 && (only_held || (backlog() == 0 && delayed_ == 0)) &&
               next_line_lease(now) == never;
    }

    /// Removes every message that nobody holds, without dead-lettering (RabbitMQ, purge). Those on
    /// their way to a dead-letter queue stay.
    std::uint64_t purge(time_point now, effects_type& fx);

    /// Calls `f(place)` for ready messages in the order in which they would be handed out, until
    /// it returns false. `f` must not call the queue.
    template <class F>
    void browse(F&& f) {
        ring_.set_next_gate(true);
        store_.browse(std::forward<F>(f));
        update_gates();
    }

    /// The same, and what it showed stays where it is until `serve`: no consumer takes any of it.
    template <class F>
    void browse_and_hold(F&& f) {
        ring_.set_next_gate(true);
        store_.browse(std::forward<F>(f));
    }

    // Moves to other queues: the caller holds both locks

    enum class fate : std::uint8_t { dead_lettered, discarded, cycle };

    /// A dying message has gone: its payload was relocated, or is still there with `payload_left`.
    void finish_death(
        const dying_message& m, fate what, bool payload_left, time_point now, effects_type& fx) {
        if (what == fate::dead_lettered) {
            ++totals_.dead_lettered;
        } else if (m.reason == death_reason::expired && what != fate::cycle) {
            ++totals_.expired;
        } else {
            ++totals_.dropped;
        }
        --delayed_;
        store_.set_state(m.where, slot_state::settling);
        leave(m.where, payload_left, fx);
        serve(now, fx);
    }

    /// Takes a ready message out, for a move elsewhere.
    void begin_extract(place_type p) {
        ring_.set_next_gate(true);
        take_out(p);
    }
    void finish_extract(place_type p, time_point now, effects_type& fx) {
        ++totals_.redriven;
        leave(p, false, fx);
        serve(now, fx);
    }

    void set_dead_letter(dead_letter_target target) { options_.dead_letter = std::move(target); }

    // Looking

    [[nodiscard]] std::uint64_t held_count() const noexcept { return board_.held_count(); }

    [[nodiscard]] queue_stats stats();

private:
    // What the base has, named once.
    // clang-format off
    using base::aborted_, base::arm_lease, base::board_, base::closed_, base::delayed_,
          base::delayed_accepted_, base::die, base::dying_, base::end_lease,
          base::end_payload_or_free, base::end_stop, base::fail, base::fill, base::fire,
          base::give_back, base::is_blocked_by_order, base::is_current,
          base::is_dying, base::is_late_but_first, base::is_ready, base::lease_deadline,
          base::leave, base::lifetimes_, base::name_, base::new_line_lease_,
          base::next_line_lease, base::note_activated, base::options_, base::parked_,
          base::pass_line_lease, base::refuse, base::relocated_,
          base::replace_drained, base::report_stale, base::revoke, base::ring_, base::store_,
          base::store_message, base::take_out, base::timers_, base::totals_;
    // clang-format on

    /// True: whoever waits behind it may be next.
    [[nodiscard]] bool place_waiting(send_waiter& w, time_point now, effects_type& fx) {
        const errc e = this->place_waited(w, now, fx);
        if (e == errc::queue_full) {
            return false;
        }
        w.result = e == errc{} ? error_code{} : error_code{e};
        senders_.erase(senders_.iterator_to(w));
        fx.completed.push_back(&w);
        return w.payload != nullptr;
    }

    // Handing out

    [[nodiscard]] bool may_take(const holder_type& h) const noexcept {
        return !paused_ && !aborted_ && board_.may_take(h);
    }
    /// Whether somebody waits for a message that is in line: its producer, who does not use the
    /// lock, was still writing it when the waiters were served.
    [[nodiscard]] bool is_published_late() const noexcept {
        return ring_.next() < ring_.tail() && !is_blocked_by_order();
    }
    [[nodiscard]] bool was_published_late() const noexcept {
        return is_published_late() &&
               std::any_of(receivers_.begin(), receivers_.end(), [this](const auto& w) {
                   return may_take(*w.holder);
               });
    }
    /// False: the supply has something now.
    [[nodiscard]] bool listens() { return base::supply() == nullptr || base::supply()->listen(); }
    void stop(holder_type& h, time_point now, effects_type& fx) {
        board_.stop(h);
        complete_receives(errc::closed, fx, [&](const auto& w) { return w.holder == &h; });
        note_activated(board_.choose_mode(), now, fx);
    }

    template <class Add>
    [[nodiscard]] std::uint64_t
    take_next(holder_type& h, std::uint64_t max, time_point now, effects_type& fx, Add&& add) {
        std::uint64_t n = 0;
        while (n != max && may_take(h)) {
            const std::uint64_t most = std::min(max - n, h.room());
            std::uint64_t row = this->hand_out_row(h, most, now, fx, add);
            if (row == 0) {
                lease_type l;
                if (!this->hand_out_next(h, now, fx, l)) {
                    break;
                }
                add(l, 1);
                row = 1;
            }
            n += row;
        }
        return n;
    }

    [[nodiscard]] bool fill_waiter(receive_waiter<Sync>& w, time_point now, effects_type& fx) {
        const std::uint64_t max = w.many == nullptr ? 1 : w.max;
        const auto add = [&](const lease_type& first, std::uint32_t count) {
            if (w.many == nullptr) {
                w.one = first;
            } else {
                for_each_in_row(first, count, [&](const auto& l) { w.many->push_back(l); });
            }
        };
        if (take_next(*w.holder, max, now, fx, add) == 0) {
            return false;
        }
        remove(w);
        fx.completed.push_back(&w);
        return true;
    }

    void remove(receive_waiter<Sync>& w) noexcept {
        receivers_.erase(receivers_.iterator_to(w));
        w.holder->waiting.store(
            w.holder->waiting.load(std::memory_order_relaxed) - 1, std::memory_order_release);
        w.holder->update_needs_lock();
    }
    template <class Which>
    void complete_receives(errc why, effects_type& fx, Which&& which) {
        for (auto it = receivers_.begin(); it != receivers_.end();) {
            auto& w = *it++;
            if (which(w)) {
                remove(w);
                w.result = why;
                fx.completed.push_back(&w);
            }
        }
    }

    /// The gates are open exactly while the fast path decides as this machine would.
    void update_gates() noexcept {
        const bool limited = options_.max_length != unlimited;
        ring_.set_tail_gate(
            closed_ || sends_need_lock_ || !receivers_.empty() || !senders_.empty() ||
            (limited && store_.returned_count() + parked_ != 0));
        ring_.set_next_gate(
            paused_ || aborted_ || receives_need_lock_ || board_.chooses() || lifetimes_ != 0 ||
            store_.returned_count() != 0 || !senders_.empty() ||
            closed_); // who takes the last one tells those who wait, and who finds none hears why
    }

    waiter_list<receive_waiter<Sync>> receivers_{};
    waiter_list<send_waiter> senders_{};
    waiter_list<idle_waiter> idlers_{};

    const bool is_kept_; ///< A journal hears of every change.
    bool sends_need_lock_ = false;
    bool receives_need_lock_ = false;
    bool paused_ = false;
    bool is_draining_ = false;
    bool holds_serving_ = false;
    errc close_reason_ = errc::closed;
};

} // namespace railmq::core

#include <railmq/core/queue_administration.hpp>
