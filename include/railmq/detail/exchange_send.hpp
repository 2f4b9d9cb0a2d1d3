// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/effects.hpp>
#include <railmq/core/header_match.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/core/slot.hpp>
#include <railmq/core/waiters.hpp>
#include <railmq/detail/blocking.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/elements.hpp>
#include <railmq/detail/exchange_lanes.hpp>
#include <railmq/detail/patience.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/log_producer.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/receipt.hpp>
#include <railmq/producer.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq::detail {

/// One message on its way into the queues and logs that an exchange has found for it.
///
/// Where there is one queue, its own producer does it. Where there are several, the message enters
/// all of them or none, but for those that refuse it: places are claimed in those queues that have
/// a fast lane free; the locks of the others are taken together, and each is asked; then all are
/// filled. A queue that is full and whose policy is to wait makes all of it wait, with nothing
/// locked and nothing claimed.
///
/// Thread safety: belongs to one send.
template <class T, class Runtime>
class exchange_send {
    using lanes_type = exchange_lanes<T, Runtime>;
    using route_type = typename lanes_type::route;
    using endpoint = typename lanes_type::endpoint;
    using place = typename lanes_type::place;
    using queue_type = queue_core<Runtime>;
    using producer_type = basic_producer<T, Runtime>;

public:
    exchange_send(
        lanes_type& lanes,
        route_type& way,
        movable_value<T>& value,
        std::unique_ptr<properties>& props,
        std::string_view key,
        time_point limit,
        std::uint64_t& record)
        : lanes_{lanes}
        , owner_{lanes.broker()}
        , way_{way}
        , value_{value}
        , props_{props}
        , key_{key}
        , limit_{limit}
        , record_{record}
        , in_handler_{handler_of == &owner_} {}
    exchange_send(const exchange_send&) = delete;
    exchange_send& operator=(const exchange_send&) = delete;
    ~exchange_send() {
        if (has_encoded_) {
            producer_type::spare_buffer() = std::move(encoded_); // for its room
        }
    }

    /// Errors: `unroutable`, when those that it was for are gone meanwhile; as the queue's, where
    /// nobody else took it; `invalid_argument` when it cannot be copied, and would have to be.
    /// After an error value and properties are as they were. What a copy throws is passed on.
    [[nodiscard]] error_code run(exchange_receipt& out) {
        for (;;) {
            out = {};
            gone_ = full_ = nullptr;
            const error_code ec =
                way_.logs.empty() && way_.queues.size() == 1 ? send_to_one(out) : send_to_all(out);
            if (gone_ != nullptr) {
                forget_gone(); // who deletes it is about to do the same
                look_again();
            } else if (full_ != nullptr) {
                if (const errc why = wait_for_room(*full_->queue.queue_); why != errc{}) {
                    full_->queue.queue_->count_refused(why);
                    return why;
                }
                look_again();
            } else {
                return ec;
            }
            if (way_.result) {
                return way_.result;
            }
        }
    }

private:
    static constexpr bool is_copyable = std::is_copy_constructible_v<T>;
    /// Copies are made in the places themselves, since nothing can fail.
    static constexpr bool copies_in_place = std::is_nothrow_copy_constructible_v<T>;

    void forget_gone() {
        if (gone_->queue.queue_ != nullptr) {
            owner_.forget_bindings(*gone_->queue.queue_);
        } else {
            owner_.forget_bindings(*gone_->log.log_);
        }
    }
    void look_again() {
        lanes_.renew(
            way_,
            key_,
            props_ != nullptr ? core::header_span{props_->headers} : core::header_span{});
    }

    // One queue

    [[nodiscard]] error_code send_to_one(exchange_receipt& out) {
        endpoint& to = *way_.queues.front();
        error_code ec;
        (void)to.queue.send_held(value_, props_, limit_, record_, ec);
        if (ec == errc::closed || ec == errc::not_found) {
            to.queue.queue_->locked([&](auto& m, time_point, auto&) { note_if_gone(to, m); });
        }
        if (!ec) {
            out.routed = 1;
        } else if (ec == errc::queue_full || ec == errc::closed) {
            out.rejected_by.push_back({*to.name, ec});
        }
        return ec;
    }
    template <class Machine>
    void note_if_gone(endpoint& to, Machine& m) noexcept {
        if (m.is_closed() && m.close_reason() == errc::not_found) {
            gone_ = &to;
        }
    }

    // Several

    /// A queue whose lock is taken.
    struct share {
        share(place& p, queue_type& q)
            : in{&p}
            , queue{&q}
            , fx{q.make_effects()} {}
        place* in;
        queue_type* queue;
        core::effects<Runtime> fx;
    };
    using shares = boost::container::small_vector<share, 4>;

    /// Places that are claimed are given up, unless they were filled.
    struct claims {
        std::vector<place>& all;
        claims(std::vector<place>& places) noexcept
            : all{places} {}
        claims(const claims&) = delete;
        claims& operator=(const claims&) = delete;
        ~claims() {
            for (place& p : all) {
                if (p.at != nullptr) {
                    p.to->queue.ring_->publish_hole(std::exchange(p.at, nullptr));
                }
            }
        }
    };

    [[nodiscard]] error_code send_to_all(exchange_receipt& out) {
        const std::size_t count = way_.queues.size() + way_.logs.size();
        if (!is_copyable && count > 1) {
            return errc::invalid_argument;
        }
        if (owner_.is_due()) {
            owner_.catch_up();
        }
        make_copies(count - 1);
        next_ = 0;
        way_.places.clear();
        for (endpoint* to : way_.queues) {
            way_.places.emplace_back().to = to;
        }
        const claims claimed{way_.places};
        const time_point now = claim_places();
        shares locked;
        for (place& p : way_.places) {
            if (p.at == nullptr) {
                locked.emplace_back(p, *p.to->queue.queue_);
            }
        }
        left_ = way_.places.size() - locked.size() + way_.logs.size();
        errc failed{};
        if (!locked.empty()) {
            failed = send_locked(locked);
            if (locked_threw_) {
                std::rethrow_exception(std::exchange(locked_threw_, nullptr));
            }
        }
        if (failed != errc{} || full_ != nullptr || gone_ != nullptr) {
            return failed;
        }
        endpoint* deleted = nullptr;
        for (place& p : way_.places) {
            if (p.at != nullptr) {
                publish(p, now);
            }
            note_outcome(p.is_stored, *p.to, p.why, out);
        }
        for (endpoint* to : way_.logs) {
            const errc why = append(*to);
            if (why == errc::not_found) { // it was deleted a moment ago, and not refused anything
                deleted = to;
            } else {
                note_outcome(why == errc{}, *to, why, out);
            }
        }
        if (out.routed != 0) {
            return {};
        }
        gone_ = out.rejected_by.empty() ? deleted : nullptr;
        return out.rejected_by.empty() ? error_code{} : out.rejected_by.front().code;
    }
    static void note_outcome(bool is_stored, endpoint& to, errc why, exchange_receipt& out) {
        if (is_stored) {
            ++out.routed;
        } else {
            out.rejected_by.push_back({*to.name, why});
        }
    }

    /// Whatever can throw, before anything happens.
    void make_copies(std::size_t n) {
        if constexpr (is_copyable && !copies_in_place) {
            way_.copies.reserve(n);
            while (way_.copies.size() < n) {
                way_.copies.push_back(std::as_const(value_.ref()));
            }
        }
        if (!has_encoded_ && is_kept()) {
            encoded_ = way_.queues.front()->queue.encode(value_.ref());
            has_encoded_ = true;
        }
    }
    [[nodiscard]] bool is_kept() const noexcept { return owner_.journal() != nullptr; }

    [[nodiscard]] time_point claim_places() {
        const time_point now = owner_.clock().coarse_now();
        if constexpr (std::is_nothrow_move_constructible_v<T>) {
            if (has_waited_ || is_kept() ||
                (props_ != nullptr &&
                 (props_->delay != duration::zero() || props_->time_to_live.has_value()))) {
                return now;
            }
            if (props_ != nullptr) {
                for (place& p : way_.places) {
                    p.details = std::make_unique<core::message_details>();
                    p.details->props = std::make_unique<properties>(*props_);
                }
            }
            // First where it may fail, so that no place is claimed for nothing.
            if (claim_places(now, true)) {
                claim_places(now, false);
            }
        }
        return now;
    }
    /// In queues with a limit, or in those without. False: one is full.
    bool claim_places(time_point now, bool is_limited) {
        for (place& p : way_.places) {
            producer_type& to = p.to->queue;
            if ((to.fast_limit_ != core::slot_ring<Runtime>::no_limit) != is_limited) {
                continue;
            }
            std::uint32_t count = 0;
            switch (to.claim(1, now, p.id, count)) {
            case producer_type::fast_result::sent: p.at = to.ring_->claimed(p.id); break;
            case producer_type::fast_result::full: return false;
            case producer_type::fast_result::needs_lock: break;
            }
        }
        return true;
    }

    /// Makes the next of the values that are needed. The last is the one that was sent.
    void construct(void* at) {
        const std::size_t i = next_++;
        --left_;
        if (left_ == 0) {
            ::new (at) T(std::move(value_.ref()));
        } else if constexpr (copies_in_place) {
            ::new (at) T(std::as_const(value_.ref()));
        } else if constexpr (is_copyable) {
            ::new (at) T(std::move(way_.copies[i]));
        }
    }
    struct made_value {
        alignas(T) std::byte raw[sizeof(T)];
        bool is_there = false;
        made_value() noexcept {}
        made_value(const made_value&) = delete;
        made_value& operator=(const made_value&) = delete;
        ~made_value() {
            if (is_there) {
                std::destroy_at(std::launder(reinterpret_cast<T*>(raw)));
            }
        }
    };

    void publish(place& p, time_point now) noexcept {
        construct(producer_type::payload_of(p.at));
        core::slot_word w{core::slot_state::ready};
        if (p.details == nullptr) {
            p.at->set_enqueued(now);
        } else {
            p.details->enqueued = now;
            p.at->set_details(p.details.release());
            w = w.with_flags(core::slot_word::details_bit);
        }
        std::exchange(p.at, nullptr)->store(w);
        p.is_stored = true;
    }

    [[nodiscard]] errc append(endpoint& to) {
        if (const errc why = to.log.log_->closed(); why != errc{}) {
            --left_;
            return why;
        }
        made_value v;
        construct(v.raw);
        v.is_there = true;
        std::optional<properties> p;
        if (props_ != nullptr) {
            p = *props_;
        }
        error_code ec;
        (void)to.log.put({}, std::launder(reinterpret_cast<T*>(v.raw)), p ? &*p : nullptr, {}, ec);
        return static_cast<errc>(ec.value());
    }

    /// Stores in those queues that need their lock. After an error, or with `full_` or `gone_` set,
    /// nothing has happened.
    [[nodiscard]] errc send_locked(shares& all) {
        boost::container::small_vector<typename queue_type::part, 4> parts;
        for (share& s : all) {
            parts.push_back({s.queue, &s.fx});
        }
        all.front().fx.wanted_at = &record_;
        errc failed{};
        {
            boost::container::small_vector<std::unique_lock<typename Runtime::mutex>, 4> locks;
            for (share& s : all) {
                locks.emplace_back(s.queue->mutex());
            }
            const time_point now = owner_.clock().now();
            failed = look(all);
            if (failed == errc{} && full_ == nullptr && gone_ == nullptr) {
                failed = store(all, now);
            }
            for (share& s : all) {
                s.queue->machine().serve(now, s.fx);
                const typename queue_type::lower_due_later lower{*s.queue, now};
                if (s.queue == owed_.queue.get()) {
                    owed_.queue.reset(); // whoever waits behind us has been served
                }
            }
            queue_type::write_together(parts);
        }
        for (share& s : all) {
            s.queue->finish(s.fx);
        }
        return failed;
    }

    /// Asks each queue whether it takes the message.
    [[nodiscard]] errc look(shares& all) {
        const bool is_delayed = props_ != nullptr && props_->delay > duration::zero();
        const std::uint64_t bytes = payload_size<T>::of(value_.ref());
        std::size_t taking = 0;
        for (share& s : all) {
            auto& m = s.queue->machine();
            note_if_gone(*s.in->to, m);
            if (gone_ != nullptr) {
                return errc{};
            }
            m.hold_sends();
            const bool is_our_turn = s.queue == owed_.queue.get();
            s.in->why = m.is_too_large(bytes)
                            ? errc::message_too_large
                            : m.can_store(
                                  is_delayed ? 0 : 1,
                                  is_delayed ? 0 : bytes,
                                  m.is_waited_for() && !is_our_turn && !is_delayed,
                                  in_handler_);
            const auto& x = *lanes_.exchange;
            if (s.in->why == errc::closed && (x.closed() != errc{} || x.is_draining())) {
                return errc::closed; // the whole broker is: not in some of them
            }
            if (s.in->why == errc::queue_full && m.options().overflow == overflow_policy::wait) {
                full_ = s.in->to;
                return errc{};
            }
            if (s.in->why == errc{}) {
                ++taking;
                if (!is_delayed && m.reserve(1) != errc{}) {
                    return errc::memory_limit;
                }
            }
        }
        left_ += taking;
        return taking == 0 ? errc{}
                           : all.front().queue->check_room(taking * (encoded_.size() + 1024));
    }

    [[nodiscard]] errc store(shares& all, time_point now) {
        try {
            for (share& s : all) {
                auto& m = s.queue->machine();
                if (s.in->why != errc{}) {
                    m.count_refused(s.in->why, now, s.fx);
                    continue;
                }
                made_value v;
                construct(v.raw);
                v.is_there = true;
                auto props = props_ != nullptr ? std::make_unique<properties>(*props_) : nullptr;
                s.fx.encoded = encoded_;
                const errc e = m.store_now(v.raw, props, now, s.fx, s.in->id);
                if (e != errc{}) {
                    take_back(all);
                    return e;
                }
                v.is_there = false;
                s.in->is_stored = true;
                s.in->is_duplicate = s.fx.was_duplicate;
            }
        } catch (...) {
            locked_threw_ = std::current_exception();
            take_back(all);
        }
        return errc{};
    }
    /// Nobody has seen them.
    static void take_back(shares& all) {
        for (share& s : all) {
            if (std::exchange(s.in->is_stored, false) && !s.in->is_duplicate) {
                s.queue->machine().take_back(s.in->id, s.fx);
            }
        }
    }

    // Waiting

    /// A queue in which we have been told that there is room, while others wait behind: if we do
    /// not take it, they must hear of it.
    struct debt {
        std::shared_ptr<queue_type> queue{};
        debt() noexcept = default;
        debt(const debt&) = delete;
        debt& operator=(const debt&) = delete;
        ~debt() { pay(); }
        void pay() noexcept {
            if (const auto q = std::exchange(queue, nullptr)) {
                try {
                    q->locked([](auto& m, time_point now, auto& fx) { m.serve(now, fx); });
                } catch (...) {
                    q->broker().count_swallowed();
                }
            }
        }
    };

    /// Waits until there may be room in `q`. Errors: `queue_full` when it is not to wait,
    /// `would_deadlock`, `timed_out`.
    [[nodiscard]] errc wait_for_room(queue_type& q) {
        if (limit_ == time_point::min()) {
            return errc::queue_full;
        }
        if (in_handler_) {
            return errc::would_deadlock;
        }
        owed_.pay();
        has_waited_ = true;
        if (!patience_) {
            patience_.emplace(owner_.clock(), owner_.options().park_after, limit_);
        }
        if (!patience_->is_over()) {
            while (patience_->wait() && !patience_->is_turn_to_look()) {
            }
            return errc{};
        }
        struct waiting : core::send_waiter {
            sleeper<Runtime> thread{};
        };
        waiting w;
        w.bytes = payload_size<T>::of(value_.ref());
        w.complete = [](core::waiter* self) noexcept {
            static_cast<waiting*>(static_cast<core::send_waiter*>(self))->thread.spot.finish();
        };
        const bool waits = q.locked_and_current([&](auto& m, time_point now, auto& fx) {
            if (m.can_store(1, w.bytes, m.is_waited_for(), false) != errc::queue_full) {
                return false;
            }
            m.wait_to_send(w, now, fx);
            return true;
        });
        if (waits && !block_until_served(q, w, w.thread, limit_, [] {})) {
            return limit_ == never ? errc::would_deadlock : errc::timed_out;
        }
        if (waits && !w.result) {
            owed_.queue = q.shared_from_this();
        }
        return errc{};
    }

    lanes_type& lanes_;
    broker_core<Runtime>& owner_;
    route_type& way_;
    movable_value<T>& value_;
    std::unique_ptr<properties>& props_;
    const std::string_view key_;
    const time_point limit_;
    std::uint64_t& record_;
    const bool in_handler_;

    endpoint* full_ = nullptr; ///< It has no room, and its policy is to wait.
    endpoint* gone_ = nullptr; ///< It was deleted a moment ago.
    debt owed_{};
    std::optional<patience<Runtime>> patience_{};
    bool has_waited_ = false;
    bool has_encoded_ = false;
    std::vector<std::byte> encoded_{};
    std::size_t next_ = 0; ///< Of the copies.
    std::size_t left_ = 0; ///< Values that are still to be made.
    std::exception_ptr locked_threw_{};
};

} // namespace railmq::detail
