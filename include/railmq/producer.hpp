// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/bytes.hpp>
#include <railmq/detail/async_ops.hpp>
#include <railmq/detail/blocking.hpp>
#include <railmq/detail/elements.hpp>
#include <railmq/detail/patience.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/receipt.hpp>

#include <boost/container/small_vector.hpp>

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
#include <vector>

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
    RAILMQ_ALWAYS_INLINE receipt send(U&& value) {
        receipt out;
        if (send_plain(std::forward<U>(value), out)) {
            return out;
        }
        return must(
            [&](error_code& ec) { return send_one(std::forward<U>(value), nullptr, never, ec); });
    }
    template <std::convertible_to<T> U = T>
    RAILMQ_ALWAYS_INLINE receipt send(U&& value, error_code& ec) {
        ec = {};
        receipt out;
        if (send_plain(std::forward<U>(value), out)) {
            return out;
        }
        return send_one(std::forward<U>(value), nullptr, never, ec);
    }
    template <std::convertible_to<T> U = T>
    receipt send(U&& value, properties p) {
        return must([&](error_code& ec) { return send(std::forward<U>(value), std::move(p), ec); });
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
    receipt
    send_for(U&& value, properties p, std::chrono::duration<Rep, Period> timeout, error_code& ec);

    /// Sends without ever waiting: `queue_full` when there is no room.
    template <std::convertible_to<T> U = T>
    [[nodiscard]] std::optional<receipt> try_send(U&& value) {
        error_code ec;
        const receipt r = send_one(std::forward<U>(value), nullptr, time_point::min(), ec);
        return ec ? std::nullopt : std::optional{r};
    }
    template <std::convertible_to<T> U = T>
    receipt try_send(U&& value, error_code& ec) {
        ec = {};
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
    requires detail::elements_for<Range, T> std::size_t send_batch(Range&& range, error_code& ec);
    template <std::ranges::input_range Range>
    requires detail::elements_for<Range, T> std::size_t send_batch(Range&& range) {
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
    receipt send(std::string_view content) requires std::same_as<T, bytes> {
        return must([&](error_code& ec) { return send(content, ec); });
    }
    receipt send(std::string_view content, error_code& ec) requires std::same_as<T, bytes> {
        bytes b = copy(content, ec);
        return ec ? receipt{} : send(std::move(b), ec);
    }
    receipt
    send(std::string_view content, properties p, error_code& ec) requires std::same_as<T, bytes> {
        bytes b = copy(content, ec);
        return ec ? receipt{} : send(std::move(b), std::move(p), ec);
    }
    receipt try_send(std::string_view content, error_code& ec) requires std::same_as<T, bytes> {
        bytes b = copy(content, ec);
        return ec ? receipt{} : try_send(std::move(b), ec);
    }
    template <std::ranges::input_range Range>
    requires std::same_as<T, bytes> &&
        std::convertible_to<std::ranges::range_reference_t<Range>, std::string_view>
            std::size_t send_batch(Range&& range, error_code& ec);
    template <std::ranges::input_range Range>
    requires std::same_as<T, bytes> &&
        std::convertible_to<std::ranges::range_reference_t<Range>, std::string_view>
            std::size_t send_batch(Range&& range) {
        return must([&](error_code& ec) { return send_batch(std::forward<Range>(range), ec); });
    }
    /// A copy of `content` in this producer's block, to be sent by any form. Errors: `closed`,
    /// `memory_limit`, `message_too_large`.
    [[nodiscard]] bytes
    copy(std::string_view content, error_code& ec) requires std::same_as<T, bytes>;

    /// Whether it refers to a queue that takes messages.
    [[nodiscard]] bool is_open() const {
        return queue_ != nullptr &&
               queue_->locked([](auto& m, time_point, auto&) { return !m.is_closed(); });
    }

private:
    template <class, class>
    friend class basic_queue;
    template <class>
    friend class basic_transaction;
    template <class, class>
    friend class basic_exchange_producer;
    template <class, class>
    friend class detail::exchange_lanes;
    template <class, class>
    friend class detail::exchange_send;

    basic_producer(std::shared_ptr<queue_type> q, producer_options o)
        : queue_{std::move(q)}
        , owner_{&queue_->broker()}
        , ring_{&queue_->ring()}
        , max_bytes_{o.max_message_bytes}
        , fast_limit_{limit_of(*queue_)}
        , durability_{o.durability.value_or(queue_->broker().options().durability)}
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
        if (p.delay < duration::zero() || (p.time_to_live && *p.time_to_live < duration::zero())) {
            ec = errc::invalid_argument;
            return nullptr;
        }
        ec = {};
        return p == properties{} ? nullptr : std::make_unique<properties>(std::move(p));
    }

    template <class U>
    RAILMQ_NOINLINE receipt
    send_one(U&& value, std::unique_ptr<properties> props, time_point limit, error_code& ec);
    /// The same, without waiting until it is safe: `record` says that.
    template <class U>
    receipt send_unconfirmed(
        U&& value,
        std::unique_ptr<properties> props,
        time_point limit,
        std::uint64_t& record,
        error_code& ec);
    /// The same with a value that exists. After an error value and properties are as they were.
    receipt send_held(
        detail::movable_value<T>& held,
        std::unique_ptr<properties>& props,
        time_point limit,
        std::uint64_t& record,
        error_code& ec);
    /// Sends as many as there is room for, in records of many messages; moves `it` behind them.
    template <class Iterator, class End, class Forward>
    std::size_t
    send_rows(Iterator& it, const End& end, Forward&& forward_element, std::uint64_t& record);
    /// Waits until everything up to that record is as safe as this producer wants it.
    void confirm(std::uint64_t record, error_code& ec) {
        if (owner_->confirm(record, durability_, ec)) {
            owner_->template use_async_timer<detail::wake_up_timer<Runtime>>();
        }
    }

    /// Whether a value can be built in its place at once: nothing can throw in between.
    template <class U>
    static constexpr bool builds_in_place =
        std::is_nothrow_constructible_v<T, U&&>&& std::same_as<std::remove_cvref_t<U>, T>;

    /// Sends without properties on the fast path. False: nothing has happened.
    template <class U>
    [[nodiscard]] RAILMQ_ALWAYS_INLINE bool send_plain(U&& value, receipt& out) {
        if constexpr (builds_in_place<U>) {
            return queue_ != nullptr && payload_size<T>::of(value) <= max_bytes_ &&
                   send_fast(std::forward<U>(value), nullptr, out) == fast_result::sent;
        } else {
            return false;
        }
    }

    static constexpr std::size_t stride = core::slot_stride(sizeof(T), alignof(T));

    enum class fast_result : std::uint8_t { sent, full, needs_lock };

    /// Claims up to `want` places in a row on the fast path.
    [[nodiscard]] RAILMQ_ALWAYS_INLINE fast_result
    claim(std::uint32_t want, time_point now, std::uint64_t& first, std::uint32_t& count) {
        using status = typename ring_type::claim_status;
        if (owner_->is_due_at(now)) {
            return fast_result::needs_lock;
        }
        for (;;) {
            switch (ring_->try_claim(want, fast_limit_, shared_->cache, first, count)) {
            case status::ok: return fast_result::sent;
            case status::full: return fast_result::full;
            case status::gated: return fast_result::needs_lock;
            case status::no_chunk:
                if (!queue_->add_places()) {
                    return fast_result::needs_lock;
                }
            }
        }
    }
    /// Stores one message on the fast path, and takes over the details. Unless `sent`, nothing has
    /// happened.
    template <class U>
    [[nodiscard]] RAILMQ_ALWAYS_INLINE fast_result
    send_fast(U&& value, core::message_details* details, receipt& out);

    /// Stores the next `n` elements in slots in a row. For another thread, elements that exist are
    /// stored from the last to the first: its consumer then finds all of them at once, instead of
    /// following from slot to slot. What a range computes is asked for in its order.
    template <class Iterator, class Forward>
    static void publish_run(
        Iterator& it,
        std::uint32_t n,
        core::slot<Runtime>* first,
        const std::byte* upcoming,
        time_point now,
        Forward& forward_element) noexcept {
        const auto publish = [now](core::slot<Runtime>* at, auto&& element) {
            ::new (payload_of(at)) T(std::forward<decltype(element)>(element));
            at->set_enqueued(now);
            at->store(core::slot_word{core::slot_state::ready});
        };
        if constexpr (
            std::random_access_iterator<Iterator> &&
            std::is_reference_v<std::iter_reference_t<Iterator>>) {
            if (upcoming != nullptr) {
                auto* at = core::slot_after(first, n, stride);
                for (auto from = it + n; from != it; upcoming += stride) {
                    ring_type::prefetch_to_write(upcoming, stride);
                    at = core::slot_after(at, -1, stride);
                    publish(at, forward_element(*--from));
                }
                it += n;
                return;
            }
        }
        for (auto* at = first; n != 0; --n, ++it, at = core::slot_after(at, 1, stride)) {
            publish(at, forward_element(*it));
        }
    }

    [[nodiscard]] RAILMQ_NOINLINE receipt send_slow(
        detail::movable_value<T>& held,
        std::unique_ptr<properties>& props,
        std::span<const std::byte> encoded,
        bool is_full,
        time_point limit,
        std::uint64_t& record,
        error_code& ec);
    /// The bytes that a value is kept as, in a buffer whose room is kept; none where nothing is
    /// kept.
    [[nodiscard]] std::vector<std::byte> encode(const T& value) const {
        std::vector<std::byte> out;
        if (queue_->is_kept()) {
            out = std::exchange(spare_buffer(), {});
            out.clear();
            if constexpr (encodable<T>) {
                codec<T>::encode(value, out);
            }
        }
        return out;
    }
    [[nodiscard]] static std::vector<std::byte>& spare_buffer() noexcept {
        static thread_local std::vector<std::byte> spare;
        return spare;
    }

    [[nodiscard]] static void* payload_of(core::slot<Runtime>* at) noexcept {
        return reinterpret_cast<std::byte*>(at) + core::payload_offset(alignof(T));
    }

    std::shared_ptr<queue_type> queue_{};
    // What the fast path needs, without a way through the queue.
    detail::broker_core<Runtime>* owner_ = nullptr;
    ring_type* ring_ = nullptr;
    std::size_t max_bytes_ = 0;
    std::uint64_t fast_limit_ = 0;
    railmq::durability durability_{};
    std::shared_ptr<shared_part> shared_{};
};

template <class T, class Runtime>
template <class U>
auto basic_producer<T, Runtime>::send_fast(U&& value, core::message_details* details, receipt& out)
    -> fast_result {
    const time_point now = owner_->clock().coarse_now();
    std::uint64_t sequence = 0;
    std::uint32_t count = 0;
    if (const auto claimed = claim(1, now, sequence, count); claimed != fast_result::sent) {
        return claimed;
    }
    auto* at = ring_->claimed(sequence);
    if (const auto* upcoming = ring_->upcoming(sequence, stride)) {
        ring_type::prefetch_to_write(upcoming, stride);
    }
    if constexpr (std::is_nothrow_constructible_v<T, U&&>) {
        ::new (payload_of(at)) T(std::forward<U>(value));
    } else {
        try {
            ::new (payload_of(at)) T(std::forward<U>(value));
        } catch (...) {
            ring_->publish_hole(at);
            throw;
        }
    }
    core::slot_word w{core::slot_state::ready};
    if (details == nullptr) {
        at->set_enqueued(now);
    } else {
        details->enqueued = now;
        at->set_details(details);
        w = w.with_flags(core::slot_word::details_bit);
    }
    at->store(w);
    out.id = sequence;
    return fast_result::sent;
}

template <class T, class Runtime>
template <class U>
receipt basic_producer<T, Runtime>::send_one(
    U&& value, std::unique_ptr<properties> props, time_point limit, error_code& ec) {
    std::uint64_t record = 0;
    const receipt out =
        send_unconfirmed(std::forward<U>(value), std::move(props), limit, record, ec);
    if (!ec && queue_->is_kept()) {
        confirm(record, ec);
    }
    return ec ? receipt{} : out;
}

template <class T, class Runtime>
template <class U>
receipt basic_producer<T, Runtime>::send_unconfirmed(
    U&& value,
    std::unique_ptr<properties> props,
    time_point limit,
    std::uint64_t& record,
    error_code& ec) {
    if (ec) {
        return {}; // the properties were refused
    }
    if (queue_ == nullptr) {
        ec = errc::closed;
        return {};
    }
    // A copy or a conversion that may throw happens before a place is claimed.
    detail::movable_value<T> held(std::forward<U>(value));
    return send_held(held, props, limit, record, ec);
}

template <class T, class Runtime>
receipt basic_producer<T, Runtime>::send_held(
    detail::movable_value<T>& held,
    std::unique_ptr<properties>& props,
    time_point limit,
    std::uint64_t& record,
    error_code& ec) {
    if (payload_size<T>::of(held.ref()) > max_bytes_) {
        queue_->count_refused(errc::message_too_large);
        ec = errc::message_too_large;
        return {};
    }
    if (queue_->is_kept()) {
        std::vector<std::byte> encoded = encode(held.ref());
        const receipt out = send_slow(held, props, encoded, false, limit, record, ec);
        spare_buffer() = std::move(encoded);
        return out;
    }
    const bool is_timed =
        props != nullptr && (props->delay != duration::zero() || props->time_to_live);
    auto tried = fast_result::needs_lock;
    if (!is_timed) {
        receipt out;
        if (props == nullptr) {
            tried = send_fast(std::move(held.ref()), nullptr, out);
        } else {
            auto details = std::make_unique<core::message_details>();
            details->props = std::move(props);
            tried = send_fast(std::move(held.ref()), details.get(), out);
            if (tried == fast_result::sent) {
                (void)details.release();
                return out;
            }
            props = std::move(details->props);
        }
        if (tried == fast_result::sent) {
            return out;
        }
    }
    return send_slow(held, props, {}, tried == fast_result::full, limit, record, ec);
}

/// Sends through the lock, waiting until `limit` where the queue's policy is to wait: first by
/// giving up time slices, then parked in the queue, where senders are served in order.
template <class T, class Runtime>
receipt basic_producer<T, Runtime>::send_slow(
    detail::movable_value<T>& held,
    std::unique_ptr<properties>& props,
    std::span<const std::byte> encoded,
    bool is_full,
    time_point limit,
    std::uint64_t& record,
    error_code& ec) {
    auto& owner = queue_->broker();
    const bool may_wait =
        limit != time_point::min() && queue_->asked_for().overflow == overflow_policy::wait;
    struct waiting : core::send_waiter {
        detail::sleeper<Runtime> thread{};
    };
    waiting w;
    w.complete = [](core::waiter* self) noexcept {
        static_cast<waiting*>(static_cast<core::send_waiter*>(self))->thread.spot.finish();
    };
    receipt out;
    const bool in_handler = detail::handler_of == &owner;
    w.encoded = encoded;
    const auto attempt = [&](bool and_wait) {
        return queue_->locked_and_current([&](auto& m, time_point now, auto& fx) {
            if (const errc why = m.is_closed() ? errc{} : queue_->check_room(encoded.size());
                why != errc{}) {
                m.count_refused(why, now, fx);
                return why;
            }
            fx.encoded = encoded;
            fx.wanted_at = &record;
            const errc e = m.send(held.get(), props, now, fx, out.id, in_handler);
            out.is_duplicate = fx.was_duplicate;
            if (e == errc::queue_full && and_wait) {
                w.payload = held.get();
                w.props = std::move(props);
                m.wait_to_send(w, now, fx);
            }
            return e;
        });
    };
    detail::patience<Runtime> patience{
        owner.clock(),
        may_wait && !in_handler ? owner.options().park_after : duration::zero(),
        limit};
    // What is full on the fast path is full: the lock would know no more.
    errc e = is_full && !patience.is_over()
                 ? errc::queue_full
                 : attempt(may_wait && !in_handler && patience.is_over());
    // Not for each single place: to ask for it takes the consumer's cache line away each time.
    const std::uint64_t worthwhile = std::min<std::uint64_t>(fast_limit_ / 16, 256);
    while (e == errc::queue_full && patience.wait()) {
        if (is_full && !patience.is_turn_to_look() && ring_->in_line() + worthwhile > fast_limit_) {
            continue;
        }
        if (props == nullptr) {
            const auto tried = send_fast(std::move(held.ref()), nullptr, out);
            if (tried == fast_result::sent) {
                return out;
            }
            is_full = tried == fast_result::full;
        }
        if (!is_full || patience.is_turn_to_look()) {
            e = attempt(patience.is_over());
        }
    }
    if (e == errc{}) {
        held.was_moved();
        return out;
    }
    if (w.payload == nullptr) { // never parked; the link itself is the machine's to look at
        errc why = e;
        if (e == errc::queue_full && may_wait) {
            why = in_handler ? errc::would_deadlock : errc::timed_out;
        }
        if (e == errc::queue_full && queue_->asked_for().overflow == overflow_policy::wait) {
            queue_->count_refused(why); // the machine left it open whether it would wait
        }
        ec = why;
        return {};
    }
    const auto keep_books = [&] {
        if (w.result == errc{}) {
            held.was_moved(); // it was sent, whatever somebody else has thrown
        }
    };
    if (!detail::block_until_served(*queue_, w, w.thread, limit, keep_books)) {
        props = std::move(w.props);
        const errc why = limit == never ? errc::would_deadlock : errc::timed_out;
        queue_->count_refused(why);
        ec = why;
        return {};
    }
    ec = w.result;
    if (ec) {
        props = std::move(w.props);
        return {};
    }
    record = w.record;
    held.was_moved();
    return {w.id, w.is_duplicate};
}

template <class T, class Runtime>
bytes basic_producer<T, Runtime>::copy(
    std::string_view content, error_code& ec) requires std::same_as<T, bytes> {
    ec = {};
    if (queue_ == nullptr) {
        ec = errc::closed;
        return {};
    }
    if (content.size() > max_bytes_) {
        queue_->count_refused(errc::message_too_large);
        ec = errc::message_too_large;
        return {};
    }
    bytes made;
    {
        std::lock_guard guard{shared_->arena_lock};
        made = shared_->arena.copy(
            std::as_bytes(std::span{content.data(), content.size()}),
            queue_->broker().shared_budget(),
            ec);
    }
    if (ec) {
        queue_->count_refused(errc::memory_limit);
    }
    return made;
}

template <class T, class Runtime>
template <std::convertible_to<T> U, class Rep, class Period>
receipt basic_producer<T, Runtime>::send_for(
    U&& value, properties p, std::chrono::duration<Rep, Period> timeout, error_code& ec) {
    if (queue_ == nullptr) {
        ec = errc::closed;
        return {};
    }
    const time_point limit =
        saturating_add(queue_->broker().clock().now(), saturating_duration(timeout));
    return send_one(std::forward<U>(value), own(std::move(p), ec), limit, ec);
}

template <class T, class Runtime>
template <class CompletionToken>
auto basic_producer<T, Runtime>::async_send(T value, properties p, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(error_code, receipt)>(
        [](auto handler,
           std::shared_ptr<queue_type> q,
           std::size_t max_bytes,
           railmq::durability wanted,
           T message,
           properties props) {
            error_code ec;
            std::unique_ptr<properties> owned = own(std::move(props), ec);
            if (q == nullptr) {
                ec = errc::closed;
            } else if (payload_size<T>::of(message) > max_bytes) {
                q->count_refused(errc::message_too_large);
                ec = errc::message_too_large;
            }
            detail::async_send_op<T, Runtime, decltype(handler)>::start(
                std::move(handler), std::move(q), std::move(message), std::move(owned), wanted, ec);
        },
        token,
        queue_,
        max_bytes_,
        durability_,
        std::move(value),
        std::move(p));
}

} // namespace railmq

#include <railmq/detail/producer_batches.hpp>
