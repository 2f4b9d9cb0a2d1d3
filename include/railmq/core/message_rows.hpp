// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/joint_changes.hpp>
#include <railmq/core/message_supply.hpp>
#include <railmq/core/payload_source.hpp>
#include <railmq/model/errc.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

namespace railmq::core {

/// Messages that come, go out and are acknowledged many at a time. As long as nothing else is to be
/// said of any of them they are treated in loops of their own: one claim, one change in the list,
/// one lock. What is special ends such a row, and is treated alone. The base of `queue_machine`.
///
/// Thread safety: with the queue's lock held.
template <class Sync>
class message_rows : public joint_changes<Sync> {
    using base = joint_changes<Sync>;

public:
    using place_type = place<Sync>;
    using holder_type = lease_holder<Sync>;
    using lease_type = lease<Sync>;
    using effects_type = effects<Sync>;

    using base::base;

    /// Where payloads are read from that are not in memory; it outlives the machine.
    void read_payloads_from(payload_source<Sync>& source) noexcept { source_ = &source; }

    /// Whether the queue's options let messages be stored in a row.
    [[nodiscard]] bool has_rows() const noexcept {
        return options_.max_bytes == unlimited && !options_.time_to_live &&
               options_.overflow != overflow_policy::drop_oldest && !store_.has_levels();
    }

    /// Where messages come from when there are none in line; it outlives the machine.
    void draw_from(message_supply<Sync>& supply) noexcept { supply_ = &supply; }
    [[nodiscard]] message_supply<Sync>* supply() const noexcept { return supply_; }
    /// Takes what an eager supply has; whoever waits is to be served afterwards.
    void draw_eagerly(time_point now, effects_type& fx) {
        if (supply_ != nullptr && supply_->is_eager()) {
            do {
                while (supply_->refill(now, fx)) {
                }
            } while (!supply_->listen());
        }
    }
    /// Takes from the supply, before a look, until `n` messages are ready or it gives no more.
    void draw_up_to(std::uint64_t n, time_point now, effects_type& fx) {
        while (supply_ != nullptr && ready_count() < n && supply_->refill(now, fx)) {
        }
    }
    /// What is ready here or with the supply.
    [[nodiscard]] std::uint64_t backlog() const {
        return ready_count() + (supply_ != nullptr ? supply_->backlog() : 0);
    }

    /// Takes a message over that the supply has had since `since`, beyond the memory limit, since
    /// it exists. One whose time to live is over expires at once. Errors: `closed`.
    [[nodiscard]] errc adopt_supplied(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        time_point since,
        time_point now,
        effects_type& fx) {
        std::unique_ptr<message_details> details;
        std::uint64_t id = 0;
        const errc e = this->store_message(payload, props, details, since, true, fx, id);
        if (e == errc{} && options_.time_to_live &&
            saturating_add(since, *options_.time_to_live) < now) {
            this->expire(ring_.locate(id), now, fx);
        }
        return e;
    }
    /// Messages have left the supply that nobody gets any more.
    void count_skipped(std::uint64_t count, time_point now, effects_type& fx) {
        this->delayed_accepted_ += count;
        this->totals_.dropped += count;
        notices::skipped n{};
        this->fill(n, now, 0);
        n.count = count;
        fx.note(std::move(n));
    }

    /// Stores messages of one producer: `make(i, at)` makes the i-th payload in the raw memory at
    /// `at`, and may return when it was sent, which else is `now`; `encoded` has their bytes.
    /// Returns how many it stored, up to the first that cannot be; `failed` then says why, and is
    /// nothing where that one has to be sent alone. What `make` throws is passed on; those before
    /// are stored. Whoever waits is to be served afterwards.
    template <class Make>
    [[nodiscard]] std::size_t store_row(
        const encoded_row& encoded, Make&& make, time_point now, effects_type& fx, errc& failed) {
        const std::size_t n = encoded.ends.size();
        if (fx.listening || !has_rows() || closed_) {
            return 0;
        }
        std::size_t done = 0;
        while (done != n) {
            const std::uint64_t ready = ready_count();
            if (options_.max_length != unlimited && ready >= options_.max_length) {
                failed = errc::queue_full; // it may wait; only then is it refused
                break;
            }
            fx.changes.reserve(fx.changes.size() + 1); // once they are stored nothing may fail
            std::uint64_t first = 0;
            const std::uint64_t claimed = ring_.claim_row(
                std::min<std::uint64_t>(
                    n - done, options_.max_length == unlimited ? n : options_.max_length - ready),
                first);
            if (claimed == 0) {
                failed = supply_ != nullptr ? errc::memory_limit
                                            : this->refuse(errc::memory_limit, now, fx);
                break;
            }
            storing row{*this, fx, encoded, done, ring_.locate(first), claimed, first};
            for (; row.made != claimed; ++row.made) {
                slot<Sync>* const at = row.slot_number(row.made);
                if constexpr (std::same_as<std::invoke_result_t<Make&, std::size_t, void*>, void>) {
                    make(done + row.made, ring_.payload(at));
                    at->set_enqueued(now);
                } else {
                    at->set_enqueued(make(done + row.made, ring_.payload(at)));
                }
                at->store(slot_word{slot_state::ready});
            }
            done += claimed;
        }
        return done;
    }

    /// Acknowledges leases of one consumer, up to the first of which more is to be said. Returns
    /// how many; `queue_machine::on_settled` is to be called afterwards.
    [[nodiscard]] std::size_t
    ack_row(std::span<const lease_type> leases, effects_type& fx) noexcept {
        std::size_t n = 0;
        if (fx.listening) {
            return n;
        }
        holder_type& h = *leases.front().holder;
        const slot_state left =
            store_.ops().destroy == nullptr ? slot_state::done : slot_state::settling;
        {
            std::lock_guard guard{h.lock};
            for (; n != leases.size(); ++n) {
                const lease_type& l = leases[n];
                const slot_word w = l.at->load();
                if (w != l.word || w.has_details() || w.is_slow() || w.pins() != 0 || l.in->aside) {
                    break;
                }
                l.at->store(w.with(slot_state::settling));
            }
            h.count_settled(n);
        }
        for (const lease_type& l : leases.first(n)) {
            if (fx.keeping) {
                list_row(fx, store_.id_of({l.in, l.at}), 1, message_change::kind::gone);
            }
            if (left == slot_state::done) {
                l.at->store(slot_word{left});
            } else {
                end_in_row(fx, {l.in, l.at});
            }
        }
        return n;
    }

protected:
    using base::closed_;
    using base::cover_leases;
    using base::hand_out;
    using base::list_row;
    using base::lists_hand_outs_;
    using base::new_line_lease_;
    using base::options_;
    using base::pick;
    using base::put_off;
    using base::ready_count;
    using base::ring_;
    using base::store_;
    using base::suspects_end_;

    ~message_rows() = default;

    /// Leases that are handed out to that consumer now are covered.
    void cover(const holder_type& h, time_point now) {
        const duration slack = h.lease_span - options_.ack_timeout; // the coarse clock's
        cover_leases(saturating_add(now, options_.ack_timeout), std::max(slack, duration{0}), now);
    }

    /// Hands out the next message that there is.
    [[nodiscard]] bool
    hand_out_next(holder_type& h, time_point now, effects_type& fx, lease_type& out) {
        cover(h, now);
        for (;;) {
            place_type p = pick();
            if (!p && supply_ != nullptr) {
                while (!p && supply_->refill(now, fx)) {
                    p = pick();
                }
                if (!p) {
                    p = pick(); // passes the places that are empty because a copy has thrown
                }
            }
            if (!p) {
                return false;
            }
            if (source_ == nullptr || source_->bring_back(p)) {
                hand_out(p, h, now, fx, out);
                return true;
            }
            put_off(p, now, fx);
        }
    }

    /// Hands out up to `max` messages as long as they stand in line and are plain, and calls
    /// `add(first lease, count)` for those in each chunk, which must not throw. Returns how many.
    template <class Add>
    [[nodiscard]] std::uint64_t
    hand_out_row(holder_type& h, std::uint64_t max, time_point now, effects_type& fx, Add&& add) {
        if (fx.listening || h.acks_on_delivery || options_.order != delivery_order::fifo ||
            options_.max_bytes != unlimited || store_.returned_count() != 0 ||
            (source_ != nullptr && !source_->has_all())) {
            return 0;
        }
        cover(h, now);
        ring_.set_next_gate(true);
        constexpr slot_word plain{slot_state::ready};
        const slot_word leased = plain.leased_to(h.number);
        const std::uint64_t first = ring_.next();
        const std::uint64_t end = std::min(ring_.tail(), saturating_sum(first, max));
        std::uint64_t n = first;
        for (bool goes_on = true; goes_on && n != end;) {
            const place_type p = ring_.locate(n);
            const std::uint64_t most = std::min(end - n, ring_.run_from(n));
            const std::uint64_t count = ring_.count_with(p, most, plain);
            goes_on = count == most;
            if (count == 0) {
                break;
            }
            auto* at = p.at;
            for (std::uint64_t i = 0; i != count; ++i, at = slot_after(at, 1, p.in->stride)) {
                at->store(leased);
            }
            ring_.pass_next(count);
            n += count;
            add(lease_type{&h, p.in, p.at, leased}, static_cast<std::uint32_t>(count));
        }
        if (n == first) {
            return 0;
        }
        h.count_taken(n - first);
        new_line_lease_ = std::min(new_line_lease_, saturating_add(now, options_.ack_timeout));
        if (fx.keeping && (lists_hand_outs_ || first < suspects_end_)) {
            list_row(fx, first, n - first, message_change::kind::changed);
        }
        return n - first;
    }

private:
    [[nodiscard]] static std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) noexcept {
        return a + std::min(b, ~a);
    }

    /// A row that is being stored: when it is over, and be it by an exception, those that were made
    /// are listed, and the others' places stay empty.
    struct storing {
        message_rows& self;
        effects_type& fx;
        const encoded_row& encoded;
        std::size_t from;
        place_type first;
        std::uint64_t claimed;
        std::uint64_t id;
        std::uint64_t made = 0;

        [[nodiscard]] slot<Sync>* slot_number(std::uint64_t i) const noexcept {
            return slot_after(first.at, static_cast<std::ptrdiff_t>(i), first.in->stride);
        }
        ~storing() {
            if (fx.keeping && made != 0) {
                fx.changes.push_back(
                    {id, id, message_change::kind::stored, {}, made, &encoded, from});
            }
            for (; made != claimed; ++made) {
                self.ring_.publish_hole(slot_number(made));
            }
        }
    };

    static void end_in_row(effects_type& fx, place_type p) noexcept {
        if (!fx.endings.empty()) {
            ending<Sync>& last = fx.endings.back();
            if (last.first.in == p.in && !last.is_aside &&
                slot_after(last.first.at, last.count, p.in->stride) == p.at) {
                ++last.count;
                return;
            }
        }
        fx.endings.push_back({p, false});
    }

    payload_source<Sync>* source_ = nullptr;
    message_supply<Sync>* supply_ = nullptr;
};

} // namespace railmq::core
