// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/consumer_board.hpp>
#include <railmq/core/message_fates.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace railmq::core {

/// What a settlement says of its message.
struct settlement {
    enum class kind : std::uint8_t { ack, nack, threw, reject, permanent, release };
    kind what = kind::ack;
    std::optional<duration> wait{}; ///< Of a failure: instead of the policy's backoff.
    std::string detail{};
};

/// The passing of time in a queue: which lease or timer is next, and what happens when it is due.
/// The base of `queue_machine`.
///
/// Thread safety: with the queue's lock held.
template <class Sync>
class message_leases : public message_fates<Sync> {
    using base = message_fates<Sync>;

public:
    using holder_type = lease_holder<Sync>;
    using place_type = place<Sync>;
    using lease_type = lease<Sync>;
    using effects_type = effects<Sync>;

    using base::base;

    /// One more chunk of places for the fast path, unless there are some. False: not within the
    /// memory limit.
    [[nodiscard]] bool add_places() {
        trim(16); // a little at a time: somebody sends
        return ring_.has_places() || ring_.add_chunk(false);
    }

    /// Gives memory that a burst has left back to the system, at most that many chunks of it.
    void trim(std::size_t chunks) noexcept {
        if (ring_.has_surplus()) {
            ring_.trim(
                [this](auto&& visit) {
                    board_.for_each([&](const holder_type& h) {
                        visit(h.cache.hazard.load(std::memory_order_seq_cst));
                    });
                },
                chunks);
        }
    }

    /// Everything that is handed out in its turn from now on is leased until `deadline`, or up to
    /// `slack` longer.
    void cover_leases(time_point deadline, duration slack, time_point now) {
        auto& times = store_.times();
        if (times.covers(deadline)) {
            return;
        }
        times.add(ring_.next(), saturating_add(deadline, slack));
        if (times.size() > times_limit_) {
            (void)next_line_lease(now);
            times.thin_out([this](std::uint64_t from) { return first_line_lease(from); });
            times_limit_ = std::max<std::size_t>(1024, 4 * times.size());
        }
    }

    /// Ends payloads that `effects::endings` names; without the lock.
    void end_payloads(const ending<Sync>& e) noexcept {
        const payload_ops& ops = store_.ops();
        const std::size_t stride = e.first.in->stride;
        auto* at = e.first.at;
        for (std::uint32_t left = e.count; left != 0; --left) {
            auto* const behind = slot_after(at, 1, stride);
            if (ops.destroy != nullptr) {
                ops.destroy(ring_.payload(at));
            }
            if (!e.is_aside) {
                at->store(slot_word{slot_state::done});
            }
            at = behind;
        }
    }
    /// Then, with the lock: frees the place of one that was moved aside.
    void free_ended(const ending<Sync>& e) noexcept {
        if (e.is_aside) {
            store_.free_place(e.first);
        }
    }

    /// When a message was handed out for the first time.
    [[nodiscard]] time_point first_handed_out(place_type p) const noexcept {
        const message_details* d = store_.details_of(p);
        if (d == nullptr) {
            return this->start_of_lease_until(store_.times().at(store_.id_of(p)));
        }
        return d->first_handed_out != never ? d->first_handed_out
                                            : this->start_of_lease_until(d->lease_deadline);
    }

protected:
    using base::arm_lease;
    using base::die;
    using base::end_wait;
    using base::fail;
    using base::fill;
    using base::is_dying;
    using base::is_ready;
    using base::options_;
    using base::revoke;
    using base::ring_;
    using base::store_;
    using base::take_out;
    using base::timers_;
    using base::window_;
    using base::window_timer_;
    using typename base::timer_item;
    using typename base::timer_kind;

    ~message_leases() = default;

    /// Whether the lease was lost to its deadline, and the message waits to be handed out again.
    [[nodiscard]] bool
    is_late_but_first(const lease_type& l, slot_word w, settlement::kind what) const noexcept {
        const bool is_final = what == settlement::kind::ack || what == settlement::kind::reject ||
                              what == settlement::kind::permanent;
        return is_final && !l.holder->is_closed && w.tag() == l.word.tag() &&
               w.owner() == l.word.owner() &&
               (w.state() == slot_state::returned ||
                (w.state() == slot_state::waiting && !is_dying({l.in, l.at})));
    }
    /// When a lease ends, by the word of its slot.
    [[nodiscard]] time_point lease_deadline(place_type p, slot_word w) const noexcept {
        if (w.has_details()) {
            return p.at->details()->lease_deadline;
        }
        return board_.numbered(w.owner()).acks_on_delivery ? never
                                                           : store_.times().at(store_.id_of(p));
    }
    /// The earliest deadline of a first hand-out. These are not in the index: they were made in
    /// line and with one timeout, so the ring itself has them in order.
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
                const time_point deadline = line_deadline(p, w);
                if (deadline != never) {
                    store_.times().forget_before(lease_cursor_);
                    return deadline;
                }
            } else if (w.state() == slot_state::ready || w.state() == slot_state::empty) {
                // Claimed by a consumer that has not marked it yet: look again soon.
                return saturating_add(now, std::chrono::milliseconds{1});
            }
            ++lease_cursor_;
        }
        store_.times().forget_before(lease_cursor_);
        return never;
    }
    /// The first position at or behind `n` that is in its first lease, or may be about to be.
    [[nodiscard]] std::uint64_t first_line_lease(std::uint64_t n) const noexcept {
        const std::uint64_t end = ring_.next();
        for (; n < end; ++n) {
            const place_type p = ring_.locate(n);
            if (!p) {
                n = std::max(n + 1, ring_.skip_reclaimed(n)) - 1;
                continue;
            }
            const slot_word w = p.at->load();
            const bool is_over =
                w.is_slow() ||
                (w.state() != slot_state::leased && w.state() != slot_state::ready &&
                 w.state() != slot_state::empty && w.state() != slot_state::settling);
            if (!is_over) {
                break;
            }
        }
        return n;
    }
    /// The deadline of a lease that its holder may be settling this moment without the lock; then
    /// its details go, and there is none.
    [[nodiscard]] time_point line_deadline(place_type p, slot_word seen) noexcept {
        if (!seen.has_details()) {
            return lease_deadline(p, seen);
        }
        std::lock_guard guard{board_.numbered(seen.owner()).lock};
        return p.at->load() == seen ? lease_deadline(p, seen) : never;
    }
    void pass_line_lease(time_point deadline, time_point now, effects_type& fx) {
        const place_type p = ring_.locate(lease_cursor_);
        const slot_word w = p.at->load();
        if (w.state() != slot_state::leased || w.is_slow()) {
            return; // settled meanwhile
        }
        const time_point start = time_point{deadline.time_since_epoch() - options_.ack_timeout};
        lease_passed(p, w, start, deadline, now, fx);
    }

    void lease_passed(
        place_type p,
        slot_word w,
        time_point start,
        time_point deadline,
        time_point now,
        effects_type& fx) {
        holder_type& h = board_.numbered(w.owner());
        const time_point limit = saturating_add(start, h.auto_extend);
        if (h.auto_extend > duration::zero() && deadline < limit) {
            std::lock_guard guard{h.lock};
            const slot_word again = p.at->load();
            if (again.state() == slot_state::leased && again.same_lease(w)) {
                const time_point renewed =
                    std::min(limit, saturating_add(deadline, options_.ack_timeout));
                this->remember_hand_out(p).lease_start = start;
                arm_lease(p, renewed, deadline_lane{});
            }
            return;
        }
        if (revoke(p, h, w, fx)) {
            fail(p, failure_kind::deadline_passed, {}, std::nullopt, now, fx);
            replace_drained(h, now, fx);
        } else if (
            p.at->load().state() == slot_state::leased &&
            p.at->load().pins() == slot_word::max_pins) {
            std::lock_guard guard{h.lock};
            arm_lease(p, saturating_add(now, options_.ack_timeout), deadline_lane{});
        }
    }

    // Timers

    void fire(timer_item item, time_point now, effects_type& fx) {
        if (item.kind == timer_kind::window) {
            window_timer_ = {};
            window_->forget_old(now);
            watch_window();
            return;
        }
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
                expire(p, now, fx);
            }
            break; // a held message expires when it comes back
        case timer_kind::window: break;
        }
    }

    /// Ids are forgotten at their time.
    void watch_window() {
        if (!window_timer_ && window_->next_end() != never) {
            window_timer_ = timers_.arm(window_->next_end(), {0, timer_kind::window});
        }
    }

    /// A message that nobody holds.
    void expire(place_type p, time_point now, effects_type& fx) {
        ring_.set_next_gate(true);
        take_out(p);
        this->template note<notices::expired>(fx, p, now);
        die(p, death_reason::expired, {}, fx);
    }

    void note_activated(const holder_type* h, time_point now, effects_type& fx) const {
        if (h != nullptr) {
            notices::consumer_activated n{};
            fill(n, now, 0);
            n.consumer = h->number;
            fx.note(std::move(n));
        }
    }
    void replace_drained(holder_type& h, time_point now, effects_type& fx) {
        if (board_.is_draining(h) && h.held() == 0) {
            note_activated(board_.choose_active(), now, fx);
        }
    }

    consumer_board<Sync> board_{};

private:
    std::uint64_t lease_cursor_ = 0; ///< No position before it is in its first lease.
    std::size_t times_limit_ = 1024; ///< With more entries, those are looked for that are no use.
};

} // namespace railmq::core
