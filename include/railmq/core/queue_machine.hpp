// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/deadline_index.hpp>
#include <railmq/core/effects.hpp>
#include <railmq/core/key_lines.hpp>
#include <railmq/core/lease_holder.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/core/message_store.hpp>
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

/// What a settlement says of its message.
struct settlement {
    enum class kind : std::uint8_t { ack, nack, threw, reject, permanent, release };
    kind what = kind::ack;
    std::optional<duration> wait{}; ///< Of a failure: instead of the policy's backoff.
    std::string detail{};
};

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
class queue_machine {
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

    queue_machine(
        std::string name,
        const payload_ops& ops,
        queue_options options,
        memory_budget<Sync>& budget,
        std::uint64_t seed,
        bool always_locked = false)
        : store_{ops, budget}
        , ring_{store_.ring()}
        , name_{std::move(name)}
        , options_{std::move(options)}
        , random_{seed}
        , lease_lane_{timers_.open_lane()} {
        const bool counts_bytes = options_.max_bytes != unlimited;
        sends_need_lock_ = always_locked || counts_bytes || options_.time_to_live.has_value() ||
                           options_.overflow == overflow_policy::drop_oldest;
        receives_need_lock_ = always_locked || counts_bytes || options_.order != delivery_order::fifo;
        update_gates();
    }
    queue_machine(const queue_machine&) = delete;
    queue_machine& operator=(const queue_machine&) = delete;

    [[nodiscard]] store_type& store() noexcept { return store_; }
    [[nodiscard]] ring_type& ring() noexcept { return ring_; }
    [[nodiscard]] const queue_options& options() const noexcept { return options_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] bool is_closed() const noexcept { return closed_; }
    [[nodiscard]] bool is_paused() const noexcept { return paused_; }
    [[nodiscard]] bool has_consumers() const noexcept { return open_holders_ != 0; }
    [[nodiscard]] errc close_reason() const noexcept { return close_reason_; }
    /// Closed, and nothing is left that could be handed out.
    [[nodiscard]] bool is_drained() const noexcept {
        return closed_ && ready_count() == 0 && delayed_ == 0;
    }

    // Sending

    /// Stores the message at `payload`, which is moved from on success. Errors: `closed`,
    /// `queue_full`, `message_too_large`, `memory_limit`. What the payload's move throws is passed
    /// on, and nothing is stored.
    [[nodiscard]] errc send(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        time_point now,
        effects_type& fx,
        std::uint64_t& id) {
        if (!senders_.empty() && !closed_) {
            return errc::queue_full; // whoever waited before is served before
        }
        std::unique_ptr<message_details> details;
        const errc e = store_message(payload, props, details, now, false, fx, id);
        serve(now, fx);
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

    /// Queues a send that waits for room.
    void wait_to_send(send_waiter& w) noexcept {
        senders_.push_back(w);
        update_gates();
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
        for (const holder_type* other : holders_) {
            if (other != nullptr && other->is_open.load(std::memory_order_relaxed) &&
                other->single_active != h.single_active) {
                throw system_error(
                    make_error_code(errc::options_mismatch),
                    "all consumers of queue '" + name_ + "' must agree on single_active");
            }
        }
        if (free_numbers_.empty()) {
            if (holders_.size() >= slot_word::max_owner) {
                throw system_error(
                    make_error_code(errc::invalid_argument), "too many consumers of one queue");
            }
            free_numbers_.reserve(holders_.size() + 1); // so that giving it back cannot fail
            holders_.push_back(nullptr);
            free_numbers_.push_back(static_cast<std::uint32_t>(holders_.size()));
        }
        h.number = free_numbers_.back();
        free_numbers_.pop_back();
        holders_[h.number - 1] = &h;
        h.joined = ++joined_;
        ++open_holders_;
        notices::consumer_opened n{};
        fill(n, now, 0);
        n.consumer = h.number;
        if (fx.listening) {
            n.name = h.name;
        }
        fx.note(std::move(n));
        choose_mode(now, fx);
        serve(now, fx);
    }

    /// Hands one message to `h`, if there is one that it may have.
    [[nodiscard]] bool take(holder_type& h, time_point now, effects_type& fx, lease_type& out) {
        if (!may_take(h)) {
            return false;
        }
        const place_type p = pick();
        if (!p) {
            return false;
        }
        hand_out(p, h, now, fx, out);
        return true;
    }

    /// Queues a receive. False: a message is being published this moment; ask again.
    [[nodiscard]] bool wait_to_receive(receive_waiter<Sync>& w) noexcept {
        w.holder->waiting.store(
            w.holder->waiting.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        insert_by_priority(receivers_, w);
        ring_.set_tail_gate(true);
        // From here on every send goes through the lock and sees the waiter. One that claimed its
        // place before may still be writing, and will not look.
        if (may_take(*w.holder) && ring_.next() < ring_.tail() && !is_blocked_by_order()) {
            forget(w);
            return false;
        }
        want_settlements(*w.holder); // it may be waiting for room of its own
        return true;
    }
    void forget(receive_waiter<Sync>& w) noexcept {
        remove(w);
        update_gates();
    }

    /// Stops new deliveries to `h`; what it holds may still be settled.
    void cancel(holder_type& h, time_point now, effects_type& fx) {
        if (!h.is_open.load(std::memory_order_relaxed)) {
            return;
        }
        h.is_open.store(false, std::memory_order_relaxed);
        --open_holders_;
        complete_receives(errc::closed, fx, [&](const auto& w) { return w.holder == &h; });
        choose_mode(now, fx);
        serve(now, fx);
    }

    /// `cancel`, and gives back everything that `h` holds, each to its original place.
    void close(holder_type& h, time_point now, effects_type& fx) {
        cancel(h, now, fx);
        std::uint64_t returned = 0;
        if (h.held() != 0 && !h.acks_on_delivery) {
            store_.for_each_place([&](place_type p) {
                const slot_word w = p.at->load();
                if (w.state() == slot_state::leased && w.owner() == h.number &&
                    revoke(p, h, w, fx)) {
                    ++returned;
                    ++totals_.released;
                    note<notices::released>(fx, p, now);
                    give_back(p, requeue_position::original, now, fx);
                }
            });
        }
        want_settlements(h); // until the last handle is gone
        notices::consumer_closed n{};
        fill(n, now, 0);
        n.consumer = h.number;
        n.returned = returned;
        fx.note(std::move(n));
        serve(now, fx);
    }

    /// Removes a closed consumer once no handle refers to it. True: the caller may destroy it.
    [[nodiscard]] bool remove_if_unreferenced(holder_type& h) noexcept {
        {
            std::lock_guard guard{h.lock};
            if (!h.is_unreferenced()) {
                return false;
            }
        }
        if (holders_[h.number - 1] != &h) {
            return false;
        }
        past_taken_ += h.taken.load(std::memory_order_relaxed);
        past_unacked_ += h.slow_settlements;
        holders_[h.number - 1] = nullptr;
        free_numbers_.push_back(h.number);
        return true;
    }

    /// After a settlement on the fast path, where `wants_settlements` was set.
    void on_settled(holder_type& h, time_point now, effects_type& fx) {
        if (draining_ == &h && h.held() == 0) {
            choose_active(now, fx);
        }
        serve(now, fx);
        std::lock_guard guard{h.lock};
        h.wants_settlements = h.waiting.load(std::memory_order_relaxed) != 0 ||
                              !idlers_.empty() || draining_ == &h ||
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
            note<notices::acked>(fx, p, now);
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
            note<notices::released>(fx, p, now);
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
        note<notices::acked>(fx, p, now);
        leave(p, true, fx);
        on_settled(*l.holder, now, fx);
    }

    [[nodiscard]] time_point first_handed_out(place_type p) const noexcept {
        const message_details* d = store_.details_of(p);
        if (d != nullptr && d->first_handed_out != never) {
            return d->first_handed_out;
        }
        const time_point deadline =
            d != nullptr ? d->lease_deadline : time_point{duration{p.at->deadline}};
        return time_point{deadline.time_since_epoch() - options_.ack_timeout};
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
        return is_current(l, w) ? std::optional{lease_deadline(l.at, w)} : std::nullopt;
    }

    /// A token that asks to stop when the lease is lost or settled, or the queue is closed.
    [[nodiscard]] std::stop_token stop_token(const lease_type& l) {
        std::lock_guard guard{l.holder->lock};
        if (!is_current(l, l.at->load()) || closed_) {
            std::stop_source gone;
            gone.request_stop();
            return gone.get_token();
        }
        const place_type p{l.in, l.at};
        message_details& d = store_.make_details(p);
        arm_lease(p, d.lease_deadline, deadline_lane{});
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
    /// of one moment, deadlines of first hand-outs come before everything else.
    void run_due(time_point now, effects_type& fx) {
        for (;;) {
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
    }

    /// The exact moment at which `run_due` next has something to do, or `never`.
    [[nodiscard]] time_point next_due(time_point now) noexcept {
        return std::min(next_line_lease(now), timers_.next());
    }

    /// Gives whoever waits what there is.
    void serve(time_point now, effects_type& fx) {
        for (bool more = true; more;) {
            more = false;
            while (!senders_.empty() && place_waiting(senders_.front(), now, fx)) {
                more = true;
            }
            for (auto it = receivers_.begin(); it != receivers_.end();) {
                auto& w = *it++;
                if (!may_take(*w.holder)) {
                    continue;
                }
                if (!fill_waiter(w, now, fx)) {
                    break; // nothing is ready, so nobody behind gets anything either
                }
                more = true;
            }
        }
        if (closed_ && is_drained()) {
            complete_receives(close_reason_, fx, [](const auto&) { return true; });
        }
        for (auto it = idlers_.begin(); it != idlers_.end();) {
            auto& w = *it++;
            if (w.of != nullptr ? holds_nothing(w.of) : is_idle(w.only_held)) {
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

    /// Takes no more sends. Receives go on until nothing is left, or end at once with `abort`.
    /// Returns how many messages the queue has, held ones included.
    std::uint64_t close_queue(errc why, bool abort, time_point now, effects_type& fx) {
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
                if (message_details* d = store_.details_of(p)) {
                    end_stop(*d, fx);
                }
            });
        }
        serve(now, fx);
        return ready_count() + delayed_ + held_count();
    }

    void wait_for_idle(idle_waiter& w) noexcept {
        idlers_.push_back(w);
        for (holder_type* h : holders_) {
            if (h != nullptr) {
                want_settlements(*h);
            }
        }
    }
    void forget(idle_waiter& w) noexcept { idlers_.erase(idlers_.iterator_to(w)); }
    [[nodiscard]] bool holds_nothing(const void* holder) const noexcept {
        for (const holder_type* h : holders_) {
            if (h == holder) {
                return h->held() == 0;
            }
        }
        return true;
    }
    [[nodiscard]] bool is_idle(bool only_held) const noexcept {
        return held_count() == 0 && (only_held || (ready_count() == 0 && delayed_ == 0));
    }

    /// Removes every message that nobody holds, without dead-lettering (RabbitMQ, purge). Those on
    /// their way to a dead-letter queue stay.
    std::uint64_t purge(time_point now, effects_type& fx) {
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
        totals_.purged += count;
        notices::purged n{};
        fill(n, now, 0);
        n.count = count;
        fx.note(std::move(n));
        serve(now, fx);
        return count;
    }

    /// Calls `f(place)` for ready messages in the order in which they would be handed out, until
    /// it returns false. `f` must not call the queue.
    template <class F>
    void browse(F&& f) {
        ring_.set_next_gate(true);
        store_.browse(std::forward<F>(f));
        update_gates();
    }

    // Moves to other queues: the caller holds both locks

    /// The next message that can be moved to a dead-letter queue now.
    [[nodiscard]] std::optional<dying_message> next_dying() {
        while (!dying_.empty()) {
            const std::uint64_t id = dying_.front();
            dying_.pop_front();
            const place_type p = store_.locate(id);
            if (p && is_dying(p) && (p.at->load().pins() == 0 || store_.ops().copy != nullptr)) {
                return dying_message{p, id, p.at->extra->dying_of};
            }
        }
        return std::nullopt;
    }

    enum class fate : std::uint8_t { dead_lettered, discarded };

    /// A dying message has gone: its payload was relocated, or is still there with `payload_left`.
    void finish_death(
        const dying_message& m,
        fate what,
        bool payload_left,
        time_point now,
        effects_type& fx) {
        if (what == fate::dead_lettered) {
            ++totals_.dead_lettered;
        } else if (m.reason == death_reason::expired) {
            ++totals_.expired;
        } else {
            ++totals_.dropped;
        }
        --delayed_;
        store_.set_state(m.where, slot_state::settling);
        leave(m.where, payload_left, fx);
        serve(now, fx);
    }

    /// The dead-letter queue refused: the message stays, and is tried again after a while.
    void postpone_death(const dying_message& m, time_point now) {
        message_details& d = *m.where.at->extra;
        // Counted apart from the message's own failures, so that waiting costs it no attempt.
        const std::uint32_t n = ++d.refusals;
        const duration wait = std::max<duration>(
            options_.retry.backoff.wait(n, d.previous_wait, random_),
            std::chrono::milliseconds{10});
        d.timer = timers_.arm(saturating_add(now, wait), {m.id, timer_kind::wait});
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

    [[nodiscard]] std::uint64_t ready_count() const noexcept {
        return ring_.in_line() + store_.returned_count() + parked_;
    }
    [[nodiscard]] std::uint64_t held_count() const noexcept {
        std::uint64_t held = 0;
        for (const holder_type* h : holders_) {
            if (h != nullptr && !h->acks_on_delivery) {
                held += h->held();
            }
        }
        return held;
    }

    [[nodiscard]] queue_stats stats() {
        queue_stats s = totals_;
        std::uint64_t taken = past_taken_;
        std::uint64_t unacked = past_unacked_;
        for (const holder_type* h : holders_) {
            if (h != nullptr) {
                taken += h->taken.load(std::memory_order_relaxed);
                unacked += h->slow_settlements;
            }
        }
        s.ready = ready_count();
        s.delayed = delayed_;
        s.in_flight = held_count();
        s.consumers = open_holders_;
        s.waiting_receivers = receivers_.size();
        s.waiting_senders = senders_.size();
        s.memory_bytes = store_.memory_bytes();
        s.accepted = ring_.tail() - ring_.unused() - relocated_ + delayed_accepted_;
        s.handed_out = taken;
        s.acked = taken - unacked - s.in_flight;
        std::uint64_t looked_at = 0;
        browse([&](place_type p) {
            s.oldest_ready_since =
                std::min(s.oldest_ready_since, time_point{duration{p.at->enqueued}});
            // Those in line are in order of time; returned ones need not be.
            return ++looked_at <= store_.returned_count();
        });
        s.settled_through = store_.settled_through();
        return s;
    }

    /// Ends a payload that `effects::endings` named; without the lock.
    void end_payload(place_type p) noexcept {
        if (store_.ops().destroy != nullptr) {
            store_.ops().destroy(store_.payload(p));
        }
        if (!p.in->aside) {
            p.at->store(slot_word{slot_state::done});
        }
    }
    /// Then, with the lock: frees its place.
    void free_ended(place_type p) noexcept {
        if (p.in->aside) {
            store_.free_place(p);
        }
    }

    /// Gives memory of recycled chunks back to the system.
    void trim() noexcept {
        ring_.trim([this](auto&& visit) {
            for (const holder_type* h : holders_) {
                if (h != nullptr) {
                    visit(h->cache.hazard.load(std::memory_order_seq_cst));
                }
            }
        });
    }

private:
    enum class timer_kind : std::uint8_t { lease, wait, lifetime };
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
    bool report_stale(place_type p, time_point now, effects_type& fx) {
        ++totals_.stale_settlements;
        note<notices::stale>(fx, p, now);
        return false;
    }

    // Leases

    [[nodiscard]] static bool is_current(const lease_type& l, slot_word w) noexcept {
        return w.state() == slot_state::leased && w.same_lease(l.word);
    }
    /// Whether the lease was lost to its deadline, and the message waits to be handed out again.
    [[nodiscard]] bool is_late_but_first(
        const lease_type& l,
        slot_word w,
        settlement::kind what) const noexcept {
        const bool is_final = what == settlement::kind::ack || what == settlement::kind::reject ||
                              what == settlement::kind::permanent;
        return is_final && w.tag() == l.word.tag() && w.owner() == l.word.owner() &&
               (w.state() == slot_state::returned ||
                (w.state() == slot_state::waiting && !is_dying({l.in, l.at})));
    }
    [[nodiscard]] static time_point lease_deadline(const slot<Sync>* at, slot_word w) noexcept {
        return w.has_details() ? at->extra->lease_deadline : time_point{duration{at->deadline}};
    }

    /// From now on the lease's deadline is in the index, and settling it goes through the lock.
    void arm_lease(place_type p, time_point deadline, deadline_lane lane) {
        message_details& d = store_.make_details(p);
        timers_.cancel(std::exchange(d.timer, deadline_handle{}));
        d.lease_deadline = deadline;
        if (deadline != never) {
            d.timer = timers_.arm_in_lane(lane, deadline, {store_.id_of(p), timer_kind::lease});
        }
        p.at->store(p.at->load().with_flags(slot_word::slow_bit));
    }

    void hand_out(
        place_type p,
        holder_type& h,
        time_point now,
        effects_type& fx,
        lease_type& out) {
        const slot_word w = p.at->load();
        const time_point deadline =
            h.acks_on_delivery ? never : saturating_add(now, options_.ack_timeout);
        if (w.tag() != 0 || w.is_slow()) {
            arm_lease(p, deadline, lease_lane_);
        } else if (w.has_details()) {
            p.at->extra->lease_deadline = deadline;
        } else {
            p.at->deadline = deadline.time_since_epoch().count();
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

    /// The earliest deadline of a first hand-out. These are not in the index: they were made in
    /// line and with one timeout, so the ring itself lists them in order.
    [[nodiscard]] time_point next_line_lease(time_point now) noexcept {
        const std::uint64_t end = ring_.next();
        while (lease_cursor_ < end) {
            const place_type p = ring_.locate(lease_cursor_);
            if (!p) {
                lease_cursor_ = std::max(lease_cursor_ + 1, ring_.skip_reclaimed(lease_cursor_));
                continue;
            }
            const slot_word w = p.at->load();
            if (w.state() == slot_state::leased && !w.is_slow()) {
                const time_point deadline = lease_deadline(p.at, w);
                if (deadline != never) {
                    return deadline;
                }
            } else if (w.state() == slot_state::ready || w.state() == slot_state::empty) {
                // Claimed by a consumer that has not marked it yet: look again soon.
                return saturating_add(now, std::chrono::milliseconds{1});
            }
            ++lease_cursor_;
        }
        return never;
    }
    void pass_line_lease(time_point deadline, time_point now, effects_type& fx) {
        const place_type p = ring_.locate(lease_cursor_);
        const slot_word w = p.at->load();
        if (w.state() != slot_state::leased || w.is_slow()) {
            return; // settled meanwhile
        }
        const time_point start =
            time_point{deadline.time_since_epoch() - options_.ack_timeout};
        lease_passed(p, w, start, deadline, now, fx);
    }

    void lease_passed(
        place_type p,
        slot_word w,
        time_point start,
        time_point deadline,
        time_point now,
        effects_type& fx) {
        holder_type& h = *holders_[w.owner() - 1];
        const time_point limit = saturating_add(start, h.auto_extend);
        if (h.auto_extend > duration::zero() && deadline < limit) {
            std::lock_guard guard{h.lock};
            const slot_word again = p.at->load();
            if (again.state() == slot_state::leased && again.same_lease(w)) {
                const time_point renewed =
                    std::min(limit, saturating_add(deadline, options_.ack_timeout));
                message_details& d = store_.make_details(p);
                d.lease_start = start;
                if (d.first_handed_out == never) {
                    d.first_handed_out = start;
                }
                arm_lease(p, renewed, deadline_lane{});
            }
            return;
        }
        if (revoke(p, h, w, fx)) {
            message_details& d = store_.make_details(p);
            if (d.first_handed_out == never) {
                d.first_handed_out = start;
            }
            fail(p, failure_kind::deadline_passed, {}, std::nullopt, now, fx);
            if (draining_ == &h && h.held() == 0) {
                choose_active(now, fx);
            }
        } else if (p.at->load().state() == slot_state::leased && p.at->load().pins() == slot_word::max_pins) {
            std::lock_guard guard{h.lock};
            arm_lease(p, saturating_add(now, options_.ack_timeout), deadline_lane{});
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
        message_details& d = store_.make_details(p);
        d.failures.add(kind);
        ++totals_.failed;
        totals_.deadlines_passed += kind == failure_kind::deadline_passed ? 1 : 0;
        if (d.first_handed_out == never) {
            // Handed out on the fast path: the deadline tells when.
            d.first_handed_out = time_point{d.lease_deadline.time_since_epoch() - options_.ack_timeout};
        }
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
        if (message_details* d = store_.details_of(p)) {
            d->waits_for = wait_kind::none;
        }
        ready_bytes_ += bytes_of(p);
        store_.put_back(p, where);
        if (options_.overflow == overflow_policy::drop_oldest) {
            while (!has_room(0, 0) && drop_oldest(fx)) {
            }
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
    }
    [[nodiscard]] bool is_dying(place_type p) const noexcept {
        const message_details* d = store_.details_of(p);
        return p.at->load().state() == slot_state::waiting && d != nullptr &&
               d->waits_for == wait_kind::dead_letter;
    }

    /// The message has left for good.
    void leave(place_type p, bool payload_left, effects_type& fx) {
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
        fx.endings.push_back(p); // user code: runs once the lock is released
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

    // Timers

    void fire(timer_item item, time_point now, effects_type& fx) {
        const place_type p = store_.locate(item.id);
        message_details* d = p ? store_.details_of(p) : nullptr;
        if (d == nullptr) {
            return;
        }
        const slot_word w = p.at->load();
        switch (item.kind) {
        case timer_kind::lease:
            d->timer = {};
            if (w.state() == slot_state::leased) {
                lease_passed(p, w, d->lease_start, d->lease_deadline, now, fx);
            }
            break;
        case timer_kind::wait:
            d->timer = {};
            end_wait(p, *d, now, fx);
            break;
        case timer_kind::lifetime:
            d->lifetime = {};
            if (is_ready(p, w) || (w.state() == slot_state::waiting && !is_dying(p))) {
                ring_.set_next_gate(true);
                take_out(p);
                note<notices::expired>(fx, p, now);
                die(p, death_reason::expired, {}, fx);
            }
            break; // a held message expires when it comes back
        }
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
                d.lifetime = timers_.arm(
                    d.expires_at, {store_.id_of(in_line), timer_kind::lifetime});
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
        const place_type p = pick();
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
        if (closed_ && (!must || aborted_)) {
            return refuse(errc::closed, now, fx);
        }
        const std::size_t size =
            options_.max_bytes == unlimited ? 0 : store_.ops().bytes(payload);
        if (size > options_.max_bytes) {
            return refuse(errc::message_too_large, now, fx);
        }
        std::optional<duration> lifetime = options_.time_to_live;
        duration delay{0};
        if (props != nullptr) {
            delay = props->delay;
            if (props->time_to_live) {
                lifetime = lifetime ? std::min(*lifetime, *props->time_to_live)
                                    : *props->time_to_live;
            }
        }
        if (details == nullptr && (props != nullptr || lifetime)) {
            details = std::make_unique<message_details>();
        }
        if (delay > duration::zero()) {
            return store_delayed(payload, props, std::move(details), delay, lifetime, now, fx, id);
        }
        while (!has_room(1, size)) {
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
        at->enqueued = now.time_since_epoch().count();
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
            at->extra = details.release();
        }
        ready_bytes_ += size;
        at->store(w);
        id = sequence;
        note<notices::sent>(fx, p, now);
        return errc{};
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
        p.at->enqueued = now.time_since_epoch().count();
        p.at->extra = details.release();
        slot_word w = slot_word{slot_state::waiting}.with_flags(slot_word::details_bit);
        p.at->store(lifetime ? w.with_flags(slot_word::slow_bit) : w);
        ++delayed_;
        ++delayed_accepted_;
        note<notices::sent>(fx, p, now);
        return errc{};
    }

    errc refuse(errc why, time_point now, effects_type& fx) {
        // A full queue that callers wait for has refused nothing yet.
        if (why != errc::queue_full || options_.overflow != overflow_policy::wait) {
            ++totals_.refused;
            if (fx.listening) {
                notices::refused n{};
                fill(n, now, 0);
                n.code = why;
                fx.note(std::move(n));
            }
        }
        return why;
    }

    [[nodiscard]] bool place_waiting(send_waiter& w, time_point now, effects_type& fx) {
        errc e{};
        try {
            std::unique_ptr<message_details> details;
            e = store_message(w.payload, w.props, details, now, false, fx, w.id);
        } catch (...) {
            e = errc::invalid_argument; // moving the payload failed; its owner still has it
        }
        if (e == errc::queue_full) {
            return false;
        }
        if (e != errc{}) {
            w.result = e;
        }
        senders_.erase(senders_.iterator_to(w));
        fx.completed.push_back(&w);
        return true;
    }

    // Handing out

    [[nodiscard]] bool may_take(const holder_type& h) const noexcept {
        return !paused_ && h.is_open.load(std::memory_order_relaxed) &&
               !h.is_paused.load(std::memory_order_relaxed) && h.room() != 0 &&
               (!has_active_ || (active_ == &h && draining_ != &h));
    }
    [[nodiscard]] bool is_blocked_by_order() const noexcept {
        return options_.order == delivery_order::strict && strict_busy_;
    }

    /// The next message to hand out, removed from where it waited; or none.
    [[nodiscard]] place_type pick() {
        if (const place_type p = store_.take_returned()) {
            ready_bytes_ -= bytes_of(p);
            return p;
        }
        ring_.set_next_gate(true);
        for (std::uint64_t n = ring_.next(); n < ring_.tail(); n = ring_.next()) {
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
        return {};
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
                store_.set_state(p, slot_state::waiting);
                ++parked_;
                return false;
            }
        }
        store_.make_details(p).line = line;
        p.at->store(p.at->load().with_flags(slot_word::slow_bit));
        return true;
    }

    [[nodiscard]] bool fill_waiter(receive_waiter<Sync>& w, time_point now, effects_type& fx) {
        if (w.many == nullptr) {
            if (!take(*w.holder, now, fx, w.one)) {
                return false;
            }
        } else {
            lease_type l;
            while (w.many->size() < w.max && take(*w.holder, now, fx, l)) {
                w.many->push_back(l);
            }
            if (w.many->empty()) {
                return false;
            }
        }
        remove(w);
        fx.completed.push_back(&w);
        return true;
    }

    void remove(receive_waiter<Sync>& w) noexcept {
        receivers_.erase(receivers_.iterator_to(w));
        w.holder->waiting.store(
            w.holder->waiting.load(std::memory_order_relaxed) - 1, std::memory_order_release);
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

    static void want_settlements(holder_type& h) noexcept {
        std::lock_guard guard{h.lock};
        h.wants_settlements = true;
    }

    /// Consumers have come or gone: priorities and single-active may matter now, or no more.
    void choose_mode(time_point now, effects_type& fx) {
        has_active_ = false;
        has_priorities_ = false;
        const holder_type* first = nullptr;
        for (const holder_type* h : holders_) {
            if (h == nullptr || !h->is_open.load(std::memory_order_relaxed)) {
                continue;
            }
            has_active_ = has_active_ || h->single_active;
            has_priorities_ = has_priorities_ || (first != nullptr && first->priority != h->priority);
            first = h;
        }
        choose_active(now, fx);
        update_gates();
    }

    /// Highest priority, then longest registered. An active consumer is replaced by one of a
    /// higher priority only when it has settled everything (RabbitMQ, single active consumer).
    void choose_active(time_point now, effects_type& fx) {
        draining_ = nullptr;
        if (!has_active_) {
            active_ = nullptr;
            return;
        }
        holder_type* best = nullptr;
        for (holder_type* h : holders_) {
            if (h != nullptr && h->is_open.load(std::memory_order_relaxed) &&
                (best == nullptr || h->priority > best->priority ||
                 (h->priority == best->priority && h->joined < best->joined))) {
                best = h;
            }
        }
        const bool active_is_open =
            active_ != nullptr && active_->is_open.load(std::memory_order_relaxed);
        if (active_is_open && best->priority <= active_->priority) {
            return;
        }
        if (active_is_open && active_->held() != 0) {
            draining_ = active_;
            want_settlements(*active_);
            return;
        }
        if (active_ != best) {
            active_ = best;
            notices::consumer_activated n{};
            fill(n, now, 0);
            n.consumer = best->number;
            fx.note(std::move(n));
        }
    }

    /// The gates are open exactly while the fast path decides as this machine would.
    void update_gates() noexcept {
        const bool limited = options_.max_length != unlimited;
        ring_.set_tail_gate(
            closed_ || sends_need_lock_ || !receivers_.empty() || !senders_.empty() ||
            (limited && store_.returned_count() + parked_ != 0));
        ring_.set_next_gate(
            paused_ || receives_need_lock_ || has_priorities_ || has_active_ || lifetimes_ != 0 ||
            store_.returned_count() != 0 || !senders_.empty());
    }

    store_type store_;
    ring_type& ring_;
    std::string name_;
    queue_options options_;
    random_engine random_;
    deadline_index<timer_item> timers_{};
    deadline_lane lease_lane_;
    std::uint64_t lease_cursor_ = 0;

    std::vector<holder_type*> holders_{};
    std::vector<std::uint32_t> free_numbers_{};
    std::uint64_t joined_ = 0;
    std::uint64_t open_holders_ = 0;
    holder_type* active_ = nullptr;
    holder_type* draining_ = nullptr;
    bool has_active_ = false;
    bool has_priorities_ = false;

    waiter_list<receive_waiter<Sync>> receivers_{};
    waiter_list<send_waiter> senders_{};
    waiter_list<idle_waiter> idlers_{};

    key_lines keys_{};
    key_line strict_line_{};
    bool strict_busy_ = false;

    std::deque<std::uint64_t> dying_{};
    std::uint64_t delayed_ = 0;   ///< In state `waiting`, but for those that wait for their key.
    std::uint64_t parked_ = 0;    ///< Waiting for their key: ready, but for the order.
    std::uint64_t lifetimes_ = 0; ///< Messages with a time to live.
    std::uint64_t ready_bytes_ = 0;

    queue_stats totals_{};
    std::uint64_t past_taken_ = 0;
    std::uint64_t past_unacked_ = 0;
    std::uint64_t relocated_ = 0;
    std::uint64_t delayed_accepted_ = 0;

    bool sends_need_lock_ = false;
    bool receives_need_lock_ = false;
    bool closed_ = false;
    bool aborted_ = false;
    bool paused_ = false;
    errc close_reason_ = errc::closed;
};

} // namespace railmq::core
