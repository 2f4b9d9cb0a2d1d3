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

protected:
    using base::arm_lease;
    using base::die;
    using base::end_wait;
    using base::fail;
    using base::fill;
    using base::is_dying;
    using base::is_ready;
    using base::lease_deadline;
    using base::options_;
    using base::revoke;
    using base::ring_;
    using base::store_;
    using base::take_out;
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
                const time_point deadline = line_deadline(p.at, w);
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
    /// The deadline of a lease that its holder may be settling this moment without the lock; then
    /// its details go, and there is none.
    [[nodiscard]] time_point line_deadline(const slot<Sync>* at, slot_word seen) noexcept {
        if (!seen.has_details()) {
            return time_point{duration{at->deadline}};
        }
        std::lock_guard guard{board_.numbered(seen.owner()).lock};
        const slot_word w = at->load();
        return w == seen ? lease_deadline(at, w) : never;
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
                this->template note<notices::expired>(fx, p, now);
                die(p, death_reason::expired, {}, fx);
            }
            break; // a held message expires when it comes back
        }
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
};

} // namespace railmq::core
