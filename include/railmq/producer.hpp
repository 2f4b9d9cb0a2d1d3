// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/bytes.hpp>
#include <railmq/detail/async_ops.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/receipt.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace railmq {

/// Sends messages to one queue.
///
/// Every form takes a value, and optionally properties; the plain ones throw `system_error`, the
/// others report through an `error_code&`, and then an error leaves the receipt empty. An lvalue
/// is copied, an rvalue moved; a refused rvalue may have been moved from.
///
/// Errors of every form: `closed` (the queue, the broker, or this handle is), `queue_full` (by
/// `overflow_policy::reject`, or of `try_send`), `message_too_large`, `memory_limit`,
/// `invalid_argument` (a negative delay or time to live). What the value's copy or move throws is
/// passed on. After any error nothing is stored.
///
/// Thread safety: safe; one producer may be shared by any number of threads. Messages that one
/// thread sends are stored in that order.
template <class T, class Runtime>
class basic_producer {
    using queue_type = detail::queue_core<Runtime>;
    using ring_type = core::slot_ring<Runtime>;

public:
    using value_type = T;

    /// Refers to no queue; every send reports `closed`.
    basic_producer() noexcept = default;

    /// Sends, waiting while the queue is full if its policy is to wait. Returns when the message
    /// is in the queue.
    ///
    /// Further errors: `would_deadlock`, when it would have to wait inside a handler of this
    /// broker, or in a simulation that can never make room.
    template <std::convertible_to<T> U = T>
    receipt send(U&& value) {
        return must([&](error_code& ec) { return send(std::forward<U>(value), ec); });
    }
    template <std::convertible_to<T> U = T>
    receipt send(U&& value, error_code& ec) {
        return send_one(std::forward<U>(value), nullptr, never, ec);
    }
    template <std::convertible_to<T> U = T>
    receipt send(U&& value, properties p) {
        return must(
            [&](error_code& ec) { return send(std::forward<U>(value), std::move(p), ec); });
    }
    template <std::convertible_to<T> U = T>
    receipt send(U&& value, properties p, error_code& ec) {
        return send_one(std::forward<U>(value), own(std::move(p), ec), never, ec);
    }

    /// The same, waiting at most `timeout`; `timed_out` after that.
    template <std::convertible_to<T> U = T, class Rep, class Period>
    receipt send_for(U&& value, std::chrono::duration<Rep, Period> timeout, error_code& ec) {
        return send_for(std::forward<U>(value), properties{}, timeout, ec);
    }
    template <std::convertible_to<T> U = T, class Rep, class Period>
    receipt send_for(
        U&& value,
        properties p,
        std::chrono::duration<Rep, Period> timeout,
        error_code& ec);

    /// Sends without ever waiting: `queue_full` when there is no room.
    template <std::convertible_to<T> U = T>
    [[nodiscard]] std::optional<receipt> try_send(U&& value) {
        error_code ec;
        const receipt r = send_one(std::forward<U>(value), nullptr, time_point::min(), ec);
        return ec ? std::nullopt : std::optional{r};
    }
    template <std::convertible_to<T> U = T>
    receipt try_send(U&& value, error_code& ec) {
        return send_one(std::forward<U>(value), nullptr, time_point::min(), ec);
    }
    template <std::convertible_to<T> U = T>
    receipt try_send(U&& value, properties p, error_code& ec) {
        return send_one(std::forward<U>(value), own(std::move(p), ec), time_point::min(), ec);
    }

    /// Sends every element of a range, in order, waiting for room as `send` does. Elements are
    /// copied from an lvalue range and moved from an rvalue range. Returns how many were sent:
    /// all of them, unless `ec` is set, and then the first that many.
    ///
    /// Cost: one claim for as many as fit, instead of one each.
    template <std::ranges::input_range Range>
        requires std::convertible_to<std::ranges::range_reference_t<Range>, T>
    std::size_t send_batch(Range&& range, error_code& ec);
    template <std::ranges::input_range Range>
        requires std::convertible_to<std::ranges::range_reference_t<Range>, T>
    std::size_t send_batch(Range&& range) {
        return must([&](error_code& ec) { return send_batch(std::forward<Range>(range), ec); });
    }

    /// Sends asynchronously, waiting for room.
    ///
    /// Completion signature: `void(error_code, receipt)`.
    /// Completes when the message is in the queue, or with one of the errors above; never inside
    /// this call. Runs on the handler's associated executor, or on the broker's.
    /// Cancellation: terminal, partial and total: `operation_aborted`, and the message was not
    /// stored.
    template <class CompletionToken>
    auto async_send(T value, CompletionToken&& token) {
        return async_send(std::move(value), properties{}, std::forward<CompletionToken>(token));
    }
    template <class CompletionToken>
    auto async_send(T value, properties p, CompletionToken&& token);

    /// Sends a copy of the bytes that `content` shows, as the other forms do. The copy lies in a
    /// block that this producer fills; nothing is allocated for one message.
    receipt send(std::string_view content)
        requires std::same_as<T, bytes>
    {
        return must([&](error_code& ec) { return send(content, ec); });
    }
    receipt send(std::string_view content, error_code& ec)
        requires std::same_as<T, bytes>
    {
        bytes b = copy(content, ec);
        return ec ? receipt{} : send(std::move(b), ec);
    }
    receipt send(std::string_view content, properties p, error_code& ec)
        requires std::same_as<T, bytes>
    {
        bytes b = copy(content, ec);
        return ec ? receipt{} : send(std::move(b), std::move(p), ec);
    }
    receipt try_send(std::string_view content, error_code& ec)
        requires std::same_as<T, bytes>
    {
        bytes b = copy(content, ec);
        return ec ? receipt{} : try_send(std::move(b), ec);
    }
    /// A copy of `content` in this producer's block, to be sent by any form. Errors: `closed`,
    /// `memory_limit`, `message_too_large`.
    [[nodiscard]] bytes copy(std::string_view content, error_code& ec)
        requires std::same_as<T, bytes>;

    /// Whether it refers to a queue that takes messages.
    [[nodiscard]] bool is_open() const {
        return queue_ != nullptr &&
               queue_->locked([](auto& m, time_point, auto&) { return !m.is_closed(); });
    }

private:
    template <class, class>
    friend class basic_queue;

    basic_producer(std::shared_ptr<queue_type> q, producer_options o)
        : queue_{std::move(q)}
        , max_bytes_{o.max_message_bytes}
        , fast_limit_{limit_of(*queue_)}
        , shared_{std::make_shared<shared_part>()} {}

    /// What copies of a producer share with each other.
    struct shared_part {
        typename ring_type::producer_cache cache{};
        // Of a producer of bytes alone.
        typename Runtime::short_lock arena_lock{};
        detail::byte_arena<core::memory_budget<Runtime>> arena{};
    };

    [[nodiscard]] static std::uint64_t limit_of(queue_type& q) noexcept {
        const std::size_t n = q.asked_for().max_length;
        return n == unlimited ? ring_type::no_limit : n;
    }

    template <class F>
    static auto must(F&& f) {
        error_code ec;
        auto result = f(ec);
        if (ec) {
            throw system_error(ec, "send");
        }
        return result;
    }

    /// A null pointer for properties that say nothing.
    [[nodiscard]] static std::unique_ptr<properties> own(properties p, error_code& ec) {
        if (p.delay < duration::zero() ||
            (p.time_to_live && *p.time_to_live < duration::zero())) {
            ec = errc::invalid_argument;
            return nullptr;
        }
        ec = {};
        return p == properties{} ? nullptr : std::make_unique<properties>(std::move(p));
    }

    template <class U>
    receipt
    send_one(U&& value, std::unique_ptr<properties> props, time_point limit, error_code& ec);

    /// Stores one message on the fast path. False: it has to go through the lock.
    template <class U>
    [[nodiscard]] RAILMQ_ALWAYS_INLINE bool
    send_fast(U&& value, std::unique_ptr<properties>& props, receipt& out);

    [[nodiscard]] receipt send_slow(
        void* payload,
        std::unique_ptr<properties>& props,
        time_point limit,
        error_code& ec);

    std::shared_ptr<queue_type> queue_{};
    std::size_t max_bytes_ = 0;
    std::uint64_t fast_limit_ = 0;
    std::shared_ptr<shared_part> shared_{};
};

namespace detail {

/// Room for one value that is built now and may be moved away by somebody else.
template <class T>
class movable_value {
public:
    template <class U>
    explicit movable_value(U&& value) {
        ::new (static_cast<void*>(space_)) T(std::forward<U>(value));
    }
    movable_value(const movable_value&) = delete;
    movable_value& operator=(const movable_value&) = delete;
    ~movable_value() {
        if (holds_) {
            std::destroy_at(std::launder(reinterpret_cast<T*>(space_)));
        }
    }
    [[nodiscard]] void* get() noexcept { return space_; }
    [[nodiscard]] T& ref() noexcept { return *std::launder(reinterpret_cast<T*>(space_)); }
    void was_moved() noexcept { holds_ = false; }

private:
    alignas(T) std::byte space_[sizeof(T)];
    bool holds_ = true;
};

} // namespace detail

template <class T, class Runtime>
template <class U>
bool basic_producer<T, Runtime>::send_fast(
    U&& value,
    std::unique_ptr<properties>& props,
    receipt& out) {
    auto& ring = queue_->ring();
    auto& owner = queue_->broker();
    const time_point now = owner.clock().coarse_now();
    if (owner.is_due_at(now)) {
        return false;
    }
    if (props != nullptr && (props->delay != duration::zero() || props->time_to_live)) {
        return false;
    }
    std::unique_ptr<core::message_details> details;
    if (props != nullptr) {
        details = std::make_unique<core::message_details>();
    }
    std::uint64_t sequence = 0;
    std::uint32_t count = 0;
    if (ring.try_claim(1, fast_limit_, shared_->cache, sequence, count) != ring_type::claim_status::ok) {
        return false;
    }
    auto* at = ring.claimed(sequence);
    if constexpr (std::is_nothrow_constructible_v<T, U&&>) {
        ::new (ring.payload(at)) T(std::forward<U>(value));
    } else {
        try {
            ::new (ring.payload(at)) T(std::forward<U>(value));
        } catch (...) {
            ring.publish_hole(at);
            throw;
        }
    }
    at->enqueued = now.time_since_epoch().count();
    core::slot_word w{core::slot_state::ready};
    if (details != nullptr) {
        details->props = std::move(props);
        at->extra = details.release();
        w = w.with_flags(core::slot_word::details_bit);
    }
    at->store(w);
    out.id = sequence;
    return true;
}

template <class T, class Runtime>
template <class U>
receipt basic_producer<T, Runtime>::send_one(
    U&& value,
    std::unique_ptr<properties> props,
    time_point limit,
    error_code& ec) {
    if (queue_ == nullptr) {
        ec = errc::closed;
        return {};
    }
    if (ec == errc::invalid_argument && props == nullptr) {
        return {}; // the properties were refused
    }
    ec = {};
    receipt out;
    if constexpr (std::is_nothrow_constructible_v<T, U&&>) {
        if constexpr (std::same_as<std::remove_cvref_t<U>, T>) {
            if (payload_size<T>::of(value) > max_bytes_) {
                ec = errc::message_too_large;
                return {};
            }
            if (send_fast(std::forward<U>(value), props, out)) {
                return out;
            }
        }
    }
    // A copy or a conversion that may throw happens before a place is claimed.
    detail::movable_value<T> held(std::forward<U>(value));
    if (payload_size<T>::of(held.ref()) > max_bytes_) {
        ec = errc::message_too_large;
        return {};
    }
    if (!std::is_nothrow_constructible_v<T, U&&> || !std::same_as<std::remove_cvref_t<U>, T>) {
        if (send_fast(std::move(held.ref()), props, out)) {
            return out;
        }
    }
    out = send_slow(held.get(), props, limit, ec);
    if (!ec) {
        held.was_moved();
    }
    return out;
}

template <class T, class Runtime>
receipt basic_producer<T, Runtime>::send_slow(
    void* payload,
    std::unique_ptr<properties>& props,
    time_point limit,
    error_code& ec) {
    auto& owner = queue_->broker();
    struct waiting : core::send_waiter {
        detail::sleeper<Runtime> thread{};
    };
    waiting w;
    w.complete = [](core::waiter* self) noexcept {
        static_cast<waiting*>(static_cast<core::send_waiter*>(self))->thread.spot.finish();
    };
    const bool may_wait = limit != time_point::min();
    const std::uint32_t yields =
        Runtime::concurrent && may_wait ? owner.options().yields_before_parking : 0;
    for (std::uint32_t round = 0;; ++round) {
        std::uint64_t id = 0;
        bool parked = false;
        const errc e = queue_->locked_and_current([&](auto& m, time_point now, auto& fx) {
            const errc result = m.send(payload, props, now, fx, id);
            if (result == errc::queue_full && may_wait && round >= yields &&
                m.options().overflow == overflow_policy::wait &&
                detail::handler_of != &owner) {
                w.payload = payload;
                w.props = std::move(props);
                m.wait_to_send(w);
                parked = true;
            }
            return result;
        });
        if (e == errc{}) {
            return {id};
        }
        const bool waits = e == errc::queue_full && may_wait &&
                           queue_->asked_for().overflow == overflow_policy::wait;
        if (!waits) {
            ec = e;
            return {};
        }
        if (detail::handler_of == &owner) {
            ec = errc::would_deadlock;
            return {};
        }
        if (!parked) {
            Runtime::yield();
            if (limit != never && owner.clock().now() >= limit) {
                ec = errc::timed_out;
                return {};
            }
            continue;
        }
        if (!owner.block(w.thread, limit)) {
            const bool was_served = queue_->locked([&](auto& m, time_point, auto&) {
                if (!w.is_linked()) {
                    return true;
                }
                m.forget(w);
                return false;
            });
            if (!was_served) {
                props = std::move(w.props);
                ec = limit == never || (!Runtime::concurrent && owner.clock().now() < limit)
                         ? errc::would_deadlock
                         : errc::timed_out;
                return {};
            }
            owner.block(w.thread, never); // it is being completed this moment
        }
        ec = w.result;
        return ec ? receipt{} : receipt{w.id};
    }
}

template <class T, class Runtime>
bytes basic_producer<T, Runtime>::copy(std::string_view content, error_code& ec)
    requires std::same_as<T, bytes>
{
    ec = {};
    if (queue_ == nullptr || content.size() > max_bytes_) {
        ec = queue_ == nullptr ? errc::closed : errc::message_too_large;
        return {};
    }
    std::lock_guard guard{shared_->arena_lock};
    return shared_->arena.copy(
        std::as_bytes(std::span{content.data(), content.size()}),
        queue_->broker().shared_budget(),
        ec);
}

template <class T, class Runtime>
template <std::convertible_to<T> U, class Rep, class Period>
receipt basic_producer<T, Runtime>::send_for(
    U&& value,
    properties p,
    std::chrono::duration<Rep, Period> timeout,
    error_code& ec) {
    if (queue_ == nullptr) {
        ec = errc::closed;
        return {};
    }
    const time_point limit =
        saturating_add(queue_->broker().clock().now(), saturating_duration(timeout));
    return send_one(std::forward<U>(value), own(std::move(p), ec), limit, ec);
}

template <class T, class Runtime>
template <std::ranges::input_range Range>
    requires std::convertible_to<std::ranges::range_reference_t<Range>, T>
std::size_t basic_producer<T, Runtime>::send_batch(Range&& range, error_code& ec) {
    ec = {};
    if (queue_ == nullptr) {
        ec = errc::closed;
        return 0;
    }
    constexpr bool moves = !std::is_lvalue_reference_v<Range> && !std::ranges::borrowed_range<Range>;
    const auto forward_element = [](auto&& element) -> decltype(auto) {
        if constexpr (moves) {
            return std::move(element);
        } else {
            return std::forward<decltype(element)>(element);
        }
    };
    auto it = std::ranges::begin(range);
    const auto end = std::ranges::end(range);
    std::size_t sent = 0;
    using element_type = decltype(forward_element(*it));
    if constexpr (
        std::ranges::sized_range<Range> && std::is_nothrow_constructible_v<T, element_type> &&
        std::same_as<std::remove_cvref_t<element_type>, T> && std::is_trivially_copyable_v<T>) {
        auto& ring = queue_->ring();
        auto& owner = queue_->broker();
        std::size_t left = sizeof(T) <= max_bytes_ ? std::ranges::size(range) : 0;
        while (left != 0) {
            const time_point now = owner.clock().coarse_now();
            std::uint64_t first = 0;
            std::uint32_t count = 0;
            const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(left, 1U << 16));
            if (owner.is_due_at(now) ||
                ring.try_claim(want, fast_limit_, shared_->cache, first, count) !=
                    ring_type::claim_status::ok) {
                send_one(forward_element(*it), nullptr, never, ec); // it waits, if need be
                if (ec) {
                    return sent;
                }
                ++it;
                ++sent;
                --left;
                continue;
            }
            for (std::uint32_t i = 0; i < count; ++i, ++it) {
                auto* at = ring.claimed(first + i);
                ::new (ring.payload(at)) T(forward_element(*it));
                at->enqueued = now.time_since_epoch().count();
                at->store(core::slot_word{core::slot_state::ready});
            }
            sent += count;
            left -= count;
        }
    }
    for (; it != end; ++it, ++sent) {
        send_one(forward_element(*it), nullptr, never, ec);
        if (ec) {
            break;
        }
    }
    return sent;
}

template <class T, class Runtime>
template <class CompletionToken>
auto basic_producer<T, Runtime>::async_send(T value, properties p, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(error_code, receipt)>(
        [](auto handler, std::shared_ptr<queue_type> q, std::size_t max_bytes, T message,
           properties props) {
            error_code ec;
            std::unique_ptr<properties> owned = own(std::move(props), ec);
            if (q == nullptr) {
                ec = errc::closed;
            } else if (payload_size<T>::of(message) > max_bytes) {
                ec = errc::message_too_large;
            }
            detail::async_send_op<T, Runtime, decltype(handler)>::start(
                std::move(handler), std::move(q), std::move(message), std::move(owned), ec);
        },
        token,
        queue_,
        max_bytes_,
        std::move(value),
        std::move(p));
}

} // namespace railmq
