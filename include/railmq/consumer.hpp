// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/delivery.hpp>
#include <railmq/detail/async_ops.hpp>
#include <railmq/detail/blocking.hpp>
#include <railmq/detail/patience.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/handle_options.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace railmq {

namespace detail {
template <class T, class Runtime, class Executor, class Handler>
class subscription_state;
}

/// Takes messages from one queue, in competition with the queue's other consumers: each message
/// goes to one of them.
///
/// It holds at most `prefetch` unsettled deliveries; while it holds that many, receives wait as if
/// the queue were empty. It reads nothing ahead: a message is leased when it is handed to the
/// application, so none waits behind slow work, and none expires unseen.
///
/// Thread safety: one consumer belongs to one thread or strand at a time; its deliveries may be
/// settled anywhere. Distinct consumers are independent.
template <class T, class Runtime>
class basic_consumer {
    using queue_type = detail::queue_core<Runtime>;
    using state_type = detail::consumer_state<Runtime>;
    using ring_type = core::slot_ring<Runtime>;

public:
    using value_type = T;
    using delivery_type = basic_delivery<T, Runtime>;

    /// Refers to no queue; every receive reports `closed`.
    basic_consumer() noexcept = default;
    basic_consumer(basic_consumer&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)} {}
    basic_consumer& operator=(basic_consumer&& other) noexcept {
        if (this != &other) {
            close();
            state_ = std::exchange(other.state_, nullptr);
        }
        return *this;
    }
    basic_consumer(const basic_consumer&) = delete;
    basic_consumer& operator=(const basic_consumer&) = delete;
    /// `close()`.
    ~basic_consumer() { close(); }

    /// Waits for a message. Empty when the queue is closed and has nothing left.
    ///
    /// The `error_code` form says why it is empty: `closed`; `not_found` when the queue was
    /// deleted; `would_deadlock` inside a handler of this broker, and in a simulation in which
    /// nothing can ever come.
    [[nodiscard]] std::optional<delivery_type> receive() {
        error_code ec;
        return receive_by(never, ec);
    }
    [[nodiscard]] std::optional<delivery_type> receive(error_code& ec) {
        return receive_by(never, ec);
    }
    /// The same for at most `timeout` (long poll); then empty, `timed_out`.
    template <class Rep, class Period>
    [[nodiscard]] std::optional<delivery_type> receive(std::chrono::duration<Rep, Period> timeout) {
        error_code ec;
        return receive(timeout, ec);
    }
    template <class Rep, class Period>
    [[nodiscard]] std::optional<delivery_type>
    receive(std::chrono::duration<Rep, Period> timeout, error_code& ec) {
        return receive_by(limit_for(timeout), ec);
    }
    /// A message that is there now, or empty; never waits.
    [[nodiscard]] std::optional<delivery_type> try_receive() {
        error_code ec;
        return receive_by(time_point::min(), ec);
    }
    /// Says why it is empty: `would_block`, or as `receive`.
    [[nodiscard]] std::optional<delivery_type> try_receive(error_code& ec) {
        return receive_by(time_point::min(), ec);
    }

    /// As many messages as are there now, at most `max`, into `out`, whose old content is settled
    /// as its destruction says. Waits up to `timeout` for the first. Returns how many.
    /// Errors: as `receive`, and `invalid_argument` for a `max` of 0.
    template <class Allocator, class Rep, class Period>
    std::size_t receive_batch(
        std::vector<delivery_type, Allocator>& out,
        std::size_t max,
        std::chrono::duration<Rep, Period> timeout,
        error_code& ec);
    template <class Allocator, class Rep, class Period>
    std::size_t receive_batch(
        std::vector<delivery_type, Allocator>& out,
        std::size_t max,
        std::chrono::duration<Rep, Period> timeout) {
        error_code ec;
        return receive_batch(out, max, timeout, ec);
    }
    template <class Rep, class Period>
    [[nodiscard]] std::vector<delivery_type>
    receive_batch(std::size_t max, std::chrono::duration<Rep, Period> timeout) {
        std::vector<delivery_type> out;
        receive_batch(out, max, timeout);
        return out;
    }

    /// Receives one message asynchronously.
    ///
    /// Completion signature: `void(error_code, delivery)`.
    /// Completes with a message, or with `closed` or `not_found` and an empty delivery; never
    /// inside this call. Runs on the handler's associated executor, or on the broker's.
    /// Cancellation: terminal, partial and total: `operation_aborted`. When a message and a
    /// cancellation meet, the handler gets the message, or it is still in its place.
    /// Several may be outstanding; they are served in the order of their start.
    /// This consumer may be closed meanwhile, which completes them with `closed`.
    template <class CompletionToken>
    auto async_receive(CompletionToken&& token) {
        return boost::asio::async_initiate<CompletionToken, void(error_code, delivery_type)>(
            [](auto handler, state_type* state) {
                detail::async_receive_op<T, Runtime, decltype(handler)>::start(
                    std::move(handler), state);
            },
            token,
            state_);
    }
    /// The same for as many as are there once there is one, at most `max`.
    /// Completion signature: `void(error_code, std::vector<delivery>)`.
    template <class CompletionToken>
    auto async_receive_batch(std::size_t max, CompletionToken&& token) {
        return boost::asio::
            async_initiate<CompletionToken, void(error_code, std::vector<delivery_type>)>(
                [](auto handler, state_type* state, std::size_t n) {
                    detail::async_receive_batch_op<T, Runtime, decltype(handler)>::start(
                        std::move(handler), state, n);
                },
                token,
                state_,
                max);
    }

    /// Acknowledges all deliveries of a range, or none: `invalid_argument` when one of them is
    /// empty, settled, or another consumer's. Empties the range and returns how many it settled.
    std::size_t ack_all(std::vector<delivery_type>& deliveries, error_code& ec);

    /// Changes how many unsettled deliveries it may hold; at least 1. Holding more than the new
    /// limit is no error: it gets nothing new until it holds fewer (RabbitMQ, prefetch).
    void prefetch(std::size_t n);
    [[nodiscard]] std::size_t prefetch() const noexcept {
        return state_ == nullptr ? 0 : state_->prefetch.load(std::memory_order_relaxed);
    }
    /// Deliveries that it holds unsettled now.
    [[nodiscard]] std::size_t in_flight() const noexcept {
        return state_ == nullptr ? 0 : static_cast<std::size_t>(state_->held());
    }

    /// Gets no new messages until `resume`; waiting receives go on waiting.
    void pause() { set_paused(true); }
    void resume() { set_paused(false); }

    /// Gets no new messages any more; waiting receives end with `closed`. What it holds stays with
    /// it, to be settled (AMQP, basic.cancel).
    void cancel() {
        if (state_ != nullptr) {
            auto keep = state_->queue;
            keep->locked_and_current(
                [&](auto& m, time_point now, auto& fx) { m.cancel(*state_, now, fx); });
        }
    }
    /// `cancel`, and gives everything it holds back to its original place, redelivered and not as
    /// a failure. Deliveries that still exist become stale. Closing again does nothing.
    void close() noexcept {
        if (state_ != nullptr) {
            auto* s = std::exchange(state_, nullptr);
            s->queue->close_consumer(s);
        }
    }
    /// Cancels, waits up to the time given until everything it holds is settled, then closes.
    /// Returns whether all was settled in time. Deliveries are settled by other threads, or by a
    /// simulation that runs meanwhile.
    bool close(drain_for limit);

    /// Whether it may still get messages: false once it is cancelled or closed, or once its queue
    /// is closed and has nothing left.
    [[nodiscard]] bool is_open() const {
        return state_ != nullptr && state_->is_open.load(std::memory_order_relaxed) &&
               !state_->queue->locked([](auto& m, time_point, auto&) { return m.is_drained(); });
    }

private:
    template <class, class>
    friend class basic_queue;
    template <class, class, class, class>
    friend class detail::subscription_state;
    template <class, class>
    friend class detail::reply_desk;

    using access = detail::delivery_access<T, Runtime>;

    explicit basic_consumer(state_type* s) noexcept
        : state_{s} {}

    template <class Rep, class Period>
    [[nodiscard]] time_point limit_for(std::chrono::duration<Rep, Period> timeout) const {
        if (state_ == nullptr || timeout <= timeout.zero()) {
            return time_point::min();
        }
        return saturating_add(state_->queue->broker().clock().now(), saturating_duration(timeout));
    }

    /// Where received messages go: one, or many. Nothing throws once there is room.
    struct into_one {
        std::optional<delivery_type>& out;
        void add(const core::lease<Runtime>& l, std::uint32_t = 1) noexcept {
            out.emplace(access::make(l));
        }
    };
    template <class Allocator>
    struct into_vector {
        std::vector<delivery_type, Allocator>& out;
        /// That message and those in the slots behind it.
        void add(const core::lease<Runtime>& first, std::uint32_t n = 1) {
            // Not one by one: the vector would write its end, and wait for it, each time.
            const detail::delivered_run<T, Runtime> run{first};
            out.insert(out.end(), run, run + n);
        }
    };

    /// Takes up to `max` messages on the fast path. 0: none, or they have to go through the lock.
    template <class Sink>
    RAILMQ_ALWAYS_INLINE std::size_t take_fast(std::size_t max, Sink&& sink, bool& is_empty);
    [[nodiscard]] RAILMQ_ALWAYS_INLINE std::optional<delivery_type>
    receive_by(time_point limit, error_code& ec) {
        std::optional<delivery_type> out;
        bool is_empty = false;
        ec = {};
        if (state_ == nullptr || take_fast(1, into_one{out}, is_empty) == 0) {
            receive_one_slow(out, is_empty, limit, ec);
        }
        return out;
    }
    RAILMQ_NOINLINE void receive_one_slow(
        std::optional<delivery_type>& out, bool is_empty, time_point limit, error_code& ec);
    template <class Sink>
    RAILMQ_NOINLINE bool
    receive_slow(std::size_t max, bool is_empty, time_point limit, Sink&& sink, error_code& ec);
    void set_paused(bool on);
    /// Cancels, and waits until everything it holds is settled. False: not within `limit`.
    bool drain(drain_for limit);

    state_type* state_ = nullptr;
};

template <class T, class Runtime>
template <class Sink>
std::size_t basic_consumer<T, Runtime>::take_fast(std::size_t max, Sink&& sink, bool& is_empty) {
    state_type& s = *state_;
    const time_point now = s.owner->clock().coarse_now();
    const std::uint64_t room = s.room();
    if (s.owner->is_due_at(now) || s.needs_lock.load(std::memory_order_acquire) || room == 0) {
        return 0;
    }
    // Before the claim: what is claimed is leased at once.
    const time_point lease_end = saturating_add(now, s.lease_span);
    if (!s.times->covers(lease_end)) {
        s.queue->cover_leases(lease_end);
    }
    auto& ring = *s.ring;
    typename ring_type::taken_run run;
    constexpr std::size_t stride = core::slot_stride(sizeof(T), alignof(T));
    const auto want =
        static_cast<std::uint32_t>(std::min({std::uint64_t{max}, room, std::uint64_t{1} << 16}));
    const auto status = ring.try_take(want, s.cache, run, stride);
    if (status != ring_type::take_status::ok) {
        is_empty = status == ring_type::take_status::empty && !s.queue->is_fed();
        return 0;
    }
    const time_point deadline = s.acks_on_delivery ? never : lease_end;
    const core::slot_word leased = run.word.leased_to(s.number);
    const auto hand_out = [&](core::slot<Runtime>* at) {
        if (run.word.has_details()) {
            at->details()->lease_deadline = deadline;
        }
        at->store(leased);
    };
    auto* at = run.at;
    auto* const end = core::slot_after(at, run.count, stride);
    if (s.cache.is_far) {
        const std::ptrdiff_t ahead = ring_type::distance_ahead(run.count);
        const std::ptrdiff_t filled = ring.filled_ahead(s.cache, run.first, run.count);
        for (auto* const to = core::slot_after(at, filled, stride); at != to;
             at = core::slot_after(at, 1, stride)) {
            ring_type::prefetch_to_write(core::slot_after(at, ahead, stride), stride);
            hand_out(at);
        }
    }
    for (; at != end; at = core::slot_after(at, 1, stride)) {
        hand_out(at);
    }
    sink.add({&s, s.cache.in, run.at, leased}, run.count);
    s.count_taken(run.count);
    s.queue->note_deadline(deadline);
    return run.count;
}

template <class T, class Runtime>
void basic_consumer<T, Runtime>::receive_one_slow(
    std::optional<delivery_type>& out, bool is_empty, time_point limit, error_code& ec) {
    if (state_ == nullptr) {
        ec = errc::closed;
    } else if (is_empty && limit == time_point::min()) {
        ec = errc::would_block; // a queue that is closed has no fast path
    } else {
        receive_slow(1, is_empty, limit, into_one{out}, ec);
    }
}

/// Receives through the lock, waiting until `limit`: first giving up time slices, then parked.
/// `is_empty`: the fast path has just found nothing, and nothing but that was in its way.
template <class T, class Runtime>
template <class Sink>
bool basic_consumer<T, Runtime>::receive_slow(
    std::size_t max, bool is_empty, time_point limit, Sink&& sink, error_code& ec) {
    state_type& s = *state_;
    queue_type& q = *s.queue;
    auto& owner = q.broker();
    const bool may_wait = limit != time_point::min();
    const bool in_handler = detail::handler_of == &owner;
    const auto bounded = static_cast<std::uint32_t>(std::min<std::size_t>(max, 1U << 16));

    struct waiting : core::receive_waiter<Runtime> {
        detail::sleeper<Runtime> thread{};
        std::vector<core::lease<Runtime>> leases{};
    };
    waiting w;
    w.holder = &s;
    w.max = bounded;
    w.complete = [](core::waiter* self) noexcept {
        static_cast<waiting*>(static_cast<core::receive_waiter<Runtime>*>(self))
            ->thread.spot.finish();
    };
    if (bounded > 1) {
        w.leases.reserve(bounded);
        w.many = &w.leases;
    }
    enum class step : std::uint8_t { got, ended, waits, again };
    std::uint64_t record = 0;
    const auto attempt = [&](bool and_wait) {
        return q.locked_and_current([&](auto& m, time_point now, auto& fx) {
            fx.wanted_at = &record;
            const auto add = [&](const core::lease<Runtime>& l, std::uint32_t n) {
                sink.add(l, n);
            };
            if (m.take_some(s, bounded, now, fx, add) != 0) {
                return step::got;
            }
            if (m.is_drained() || !s.is_open.load(std::memory_order_relaxed)) {
                ec = m.close_reason();
                return step::ended;
            }
            if (!may_wait) {
                ec = errc::would_block;
                return step::ended;
            }
            if (in_handler) {
                ec = errc::would_deadlock;
                return step::ended;
            }
            return and_wait && m.wait_to_receive(w) ? step::waits : step::again;
        });
    };
    detail::patience<Runtime> patience{
        owner.clock(),
        may_wait && !in_handler ? owner.options().park_after : duration::zero(),
        limit};
    // On the fast path there is nothing: the lock would know no more.
    step outcome = is_empty && !patience.is_over() ? step::again : attempt(false);
    while (outcome == step::again && patience.wait()) {
        if (take_fast(bounded, sink, is_empty) != 0) {
            return true;
        }
        if (!is_empty || patience.is_turn_to_look()) {
            outcome = attempt(false);
        }
    }
    while (outcome == step::again) {
        outcome = attempt(true);
        if (outcome == step::again) {
            Runtime::yield();
        }
    }
    if (outcome == step::got && record != 0) {
        owner.make_written(record); // who shows a message first says so
    }
    if (outcome != step::waits) {
        return outcome == step::got;
    }
    owner.flush_idle();
    const auto give_back = [&] {
        if (w.one) {
            w.leases.push_back(w.one);
        }
        for (const auto& l : w.leases) {
            q.settle(l, {core::settlement::kind::release, {}, {}});
        }
    };
    if (!detail::block_until_served(q, w, w.thread, limit, give_back)) {
        ec = limit == never ? errc::would_deadlock : errc::timed_out;
        return false;
    }
    ec = w.result;
    if (w.one) {
        sink.add(w.one);
    }
    for (const auto& l : w.leases) {
        sink.add(l);
    }
    return !ec;
}

template <class T, class Runtime>
template <class Allocator, class Rep, class Period>
std::size_t basic_consumer<T, Runtime>::receive_batch(
    std::vector<delivery_type, Allocator>& out,
    std::size_t max,
    std::chrono::duration<Rep, Period> timeout,
    error_code& ec) {
    out.clear();
    ec = {};
    if (state_ == nullptr || max == 0) {
        ec = state_ == nullptr ? errc::closed : errc::invalid_argument;
        return 0;
    }
    // Room first, since what is claimed cannot be given back.
    out.reserve(std::min<std::size_t>(max, 1U << 16));
    into_vector<Allocator> sink{out};
    bool is_empty = false;
    // A batch may span the end of a chunk.
    while (out.size() < max) {
        if (out.size() == out.capacity()) {
            out.reserve(std::min(max, 2 * out.size()));
        }
        if (take_fast(std::min(max, out.capacity()) - out.size(), sink, is_empty) == 0) {
            break;
        }
    }
    if (out.empty()) {
        receive_slow(max, is_empty, limit_for(timeout), sink, ec);
    }
    return out.size();
}

template <class T, class Runtime>
std::size_t
basic_consumer<T, Runtime>::ack_all(std::vector<delivery_type>& deliveries, error_code& ec) {
    ec = {};
    for (const auto& d : deliveries) {
        if (!d || access::lease(d).holder != state_) {
            ec = errc::invalid_argument;
            return 0;
        }
    }
    return railmq::ack_all(deliveries);
}

template <class T, class Runtime>
void basic_consumer<T, Runtime>::prefetch(std::size_t n) {
    if (n == 0) {
        throw system_error(
            make_error_code(errc::invalid_argument), "prefetch is at least 1, or unlimited");
    }
    if (state_ == nullptr) {
        throw system_error(make_error_code(errc::closed), "the consumer is closed");
    }
    state_->queue->locked_and_current([&](auto& m, time_point now, auto& fx) {
        state_->prefetch.store(n, std::memory_order_relaxed);
        m.serve(now, fx);
    });
}

template <class T, class Runtime>
void basic_consumer<T, Runtime>::set_paused(bool on) {
    if (state_ != nullptr) {
        state_->queue->locked_and_current(
            [&](auto& m, time_point now, auto& fx) { m.set_paused(*state_, on, now, fx); });
    }
}

template <class T, class Runtime>
bool basic_consumer<T, Runtime>::close(drain_for limit) {
    const bool all = drain(limit);
    close();
    return all;
}

template <class T, class Runtime>
bool basic_consumer<T, Runtime>::drain(drain_for limit) {
    if (state_ == nullptr) {
        return true;
    }
    cancel();
    return detail::wait_for_idle(*state_->queue, true, limit.time, state_);
}

} // namespace railmq
