// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/header_match.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/detail/elements.hpp>
#include <railmq/detail/exchange_lanes.hpp>
#include <railmq/detail/exchange_send.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/notice.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/receipt.hpp>
#include <railmq/model/stats.hpp>
#include <railmq/model/time.hpp>
#include <railmq/producer.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq {

/// Publishes to an exchange: each message goes to every queue and log that is bound to it by a
/// binding that matches, once. `properties::routing_key` and `properties::headers` are what
/// bindings are compared with, and travel with the message.
///
/// A send returns when all of them have the message. It enters them together or not at all; only
/// those stay without it that refuse it, and the receipt names them: a queue that is full where its
/// policy is `reject`, one that is closed, one for which it is too large. If all refuse, that is an
/// error. A full queue whose policy is `wait` makes the send wait, before any queue has the
/// message; so it also keeps it from the others. In a broker with a directory all of it is one
/// record: after a crash all of the queues have the message or none.
///
/// A message for which nobody is bound is gone: counted, told to the observer as
/// `notices::unroutable`, and `routed` is 0. With `producer_options::mandatory` it is an error.
///
/// `T` is copied for all places but the last. A type that cannot be copied can be sent to one.
///
/// Errors of every form; the plain ones throw `system_error`. After an error nothing is stored,
/// and a value that was given as an rvalue of `T` is given back, where `T` can be assigned, and no
/// log has had it:
///  - `unroutable`, with `mandatory` alone;
///  - `closed`; `not_found` when the exchange was deleted;
///  - `invalid_argument`: a negative delay or time to live, a routing key of more than 255 bytes, a
///    `T` that cannot be copied and has more than one place to go to;
///  - `message_too_large`: above `max_message_bytes`, or for every queue; `memory_limit`;
///  - `queue_full`: in every queue, or `try_send` would have to wait;
///  - `would_deadlock`: it would have to wait inside a handler of this broker, or in a simulation
///    that can never make room;
///  - of the journal, as those of `basic_producer`.
/// What the value's copy throws is passed on, and nothing is stored.
///
/// Thread safety: safe; copies are the same producer. Messages that one thread sends with one
/// producer are in that order in each queue, and those that it sends before a binding is made do
/// not pass it. A send that has begun when a binding is removed may still pass it.
///
/// Cost: with the routing key of the last message, a comparison and, for each queue, what its own
/// producer takes; else routing as well. Nothing is allocated for a message without properties. One
/// with properties has a copy of them in each place, which costs several times as much: see
/// `send_to`.
template <class T, class Runtime>
class basic_exchange_producer {
    using lanes_type = detail::exchange_lanes<T, Runtime>;

public:
    using value_type = T;

    /// Refers to no exchange; every send reports `closed`.
    basic_exchange_producer() noexcept = default;

    /// Publishes, waiting while a queue is full if its policy is to wait.
    template <std::convertible_to<T> U = T>
    exchange_receipt send(U&& value) {
        return must([&](error_code& ec) { return send(std::forward<U>(value), ec); });
    }
    template <std::convertible_to<T> U = T>
    exchange_receipt send(U&& value, error_code& ec) {
        ec = {};
        return send_one(std::forward<U>(value), nullptr, never, ec);
    }
    template <std::convertible_to<T> U = T>
    exchange_receipt send(U&& value, properties p) {
        return must([&](error_code& ec) { return send(std::forward<U>(value), std::move(p), ec); });
    }
    template <std::convertible_to<T> U = T>
    exchange_receipt send(U&& value, properties p, error_code& ec) {
        return send_one(std::forward<U>(value), own(std::move(p), ec), never, ec);
    }

    /// Publishes with a routing key that does not travel with the message, which has no properties
    /// then: so it costs no more than without a key.
    template <std::convertible_to<T> U = T>
    exchange_receipt send_to(std::string_view routing_key, U&& value, error_code& ec) {
        ec = {};
        return send_one(std::forward<U>(value), nullptr, never, ec, routing_key);
    }
    template <std::convertible_to<T> U = T>
    exchange_receipt send_to(std::string_view routing_key, U&& value) {
        return must(
            [&](error_code& ec) { return send_to(routing_key, std::forward<U>(value), ec); });
    }

    /// The same as `send`, waiting at most `timeout`; `timed_out` after that.
    template <std::convertible_to<T> U = T, class Rep, class Period>
    exchange_receipt
    send_for(U&& value, properties p, std::chrono::duration<Rep, Period> timeout, error_code& ec) {
        auto props = own(std::move(p), ec);
        const time_point limit =
            lanes_ == nullptr
                ? never
                : saturating_add(lanes_->broker().clock().now(), saturating_duration(timeout));
        return send_one(std::forward<U>(value), std::move(props), limit, ec);
    }

    /// Publishes without ever waiting: `queue_full` when it would have to.
    template <std::convertible_to<T> U = T>
    exchange_receipt try_send(U&& value, error_code& ec) {
        ec = {};
        return send_one(std::forward<U>(value), nullptr, time_point::min(), ec);
    }
    template <std::convertible_to<T> U = T>
    exchange_receipt try_send(U&& value, properties p, error_code& ec) {
        return send_one(std::forward<U>(value), own(std::move(p), ec), time_point::min(), ec);
    }
    template <std::convertible_to<T> U = T>
    [[nodiscard]] std::optional<exchange_receipt> try_send(U&& value, properties p = {}) {
        error_code ec;
        auto r = try_send(std::forward<U>(value), std::move(p), ec);
        return ec ? std::nullopt : std::optional{std::move(r)};
    }

    /// Publishes every element of a range, in order, each with these properties. Elements are
    /// copied from an lvalue range and moved from an rvalue range. Returns how many were published:
    /// all of them, unless `ec` is set, and then the first that many. In a broker with a directory
    /// it waits for the disk once.
    template <std::ranges::input_range Range>
    requires detail::elements_for<Range, T> std::size_t
    send_batch(Range&& range, const properties& p, error_code& ec);
    template <std::ranges::input_range Range>
    requires detail::elements_for<Range, T> std::size_t
    send_batch(Range&& range, const properties& p = {}) {
        return must([&](error_code& ec) { return send_batch(std::forward<Range>(range), p, ec); });
    }

    /// Whether it refers to an exchange that takes messages.
    [[nodiscard]] bool is_open() const noexcept {
        return lanes_ != nullptr && lanes_->exchange->closed() == errc{} &&
               !lanes_->exchange->is_draining();
    }

private:
    template <class, class>
    friend class basic_exchange;

    basic_exchange_producer(
        std::shared_ptr<detail::exchange_core<Runtime>> of, const producer_options& o)
        : lanes_{std::make_shared<lanes_type>(std::move(of), o)} {}

    template <class F>
    auto must(F&& f) {
        error_code ec;
        auto result = f(ec);
        if (ec) {
            throw system_error(
                ec,
                lanes_ == nullptr ? std::string{"publish"}
                                  : "publish to exchange '" + lanes_->exchange->name() + "'");
        }
        return result;
    }
    [[nodiscard]] static std::unique_ptr<properties> own(properties p, error_code& ec) {
        return basic_producer<T, Runtime>::own(std::move(p), ec);
    }

    template <class U>
    exchange_receipt send_one(
        U&& value,
        std::unique_ptr<properties> props,
        time_point limit,
        error_code& ec,
        std::string_view key = {}) {
        std::uint64_t record = 0;
        exchange_receipt out =
            send_unconfirmed(std::forward<U>(value), std::move(props), key, limit, record, ec);
        if (!ec && out.routed != 0) {
            confirm(record, ec);
        }
        return ec ? exchange_receipt{} : std::move(out);
    }
    void confirm(std::uint64_t record, error_code& ec) {
        auto& owner = lanes_->broker();
        const auto wanted = lanes_->options.durability.value_or(owner.options().durability);
        if (owner.journal() != nullptr && owner.confirm(record, wanted, ec)) {
            owner.template use_async_timer<detail::wake_up_timer<Runtime>>();
        }
    }

    /// The same, without waiting until it is safe: `record` says that. `key` is for a message
    /// without properties.
    template <class U>
    exchange_receipt send_unconfirmed(
        U&& value,
        std::unique_ptr<properties> props,
        std::string_view key,
        time_point limit,
        std::uint64_t& record,
        error_code& ec);
    template <class U>
    error_code send_along(
        U&& value,
        std::unique_ptr<properties>& props,
        std::string_view key,
        time_point limit,
        std::uint64_t& record,
        typename lanes_type::route& way,
        exchange_receipt& out);
    /// Nobody was bound to it.
    error_code lose(std::string_view key);

    std::shared_ptr<lanes_type> lanes_{};
};

template <class T, class Runtime>
template <class U>
exchange_receipt basic_exchange_producer<T, Runtime>::send_unconfirmed(
    U&& value,
    std::unique_ptr<properties> props,
    std::string_view key,
    time_point limit,
    std::uint64_t& record,
    error_code& ec) {
    exchange_receipt out;
    if (ec) {
        return out; // the properties were refused
    }
    errc why = lanes_ == nullptr ? errc::closed : lanes_->exchange->closed();
    if (why == errc{} && lanes_->exchange->is_draining() &&
        detail::handler_of != &lanes_->broker()) {
        why = errc::closed;
    }
    if (why != errc{}) {
        ec = why;
        return out;
    }
    lanes_type& lanes = *lanes_;
    struct turn {
        lanes_type& lanes;
        std::unique_ptr<typename lanes_type::route> way;
        exchange_stats counted{};
        turn(lanes_type& l, std::string_view key, core::header_span headers)
            : lanes{l}
            , way{l.begin(key, headers)} {}
        turn(const turn&) = delete;
        turn& operator=(const turn&) = delete;
        ~turn() {
            lanes.end(std::move(way), [&](exchange_stats& all) {
                all.published += counted.published;
                all.routed += counted.routed;
                all.rejected += counted.rejected;
                all.unroutable += counted.unroutable;
                all.returned += counted.returned;
                all.by_alternate += counted.by_alternate;
            });
        }
    };
    if (props != nullptr) {
        key = props->routing_key;
    }
    bool is_lost = false;
    {
        turn t{
            lanes, key, props != nullptr ? core::header_span{props->headers} : core::header_span{}};
        ec = t.way->result;
        if (!ec) {
            ec = send_along(std::forward<U>(value), props, key, limit, record, *t.way, out);
        }
        is_lost = ec == errc::unroutable;
        const bool is_returned = is_lost && lanes.options.mandatory;
        t.counted.published = !ec || (is_lost && !is_returned) ? 1 : 0;
        t.counted.routed = out.routed;
        t.counted.rejected = out.rejected_by.size();
        t.counted.unroutable = is_lost ? 1 : 0;
        t.counted.returned = is_returned ? 1 : 0;
        t.counted.by_alternate = t.way->by_alternate && out.routed != 0 ? 1 : 0;
    }
    if (is_lost) {
        ec = lose(key);
    }
    return ec ? exchange_receipt{} : out;
}

template <class T, class Runtime>
template <class U>
error_code basic_exchange_producer<T, Runtime>::send_along(
    U&& value,
    std::unique_ptr<properties>& props,
    std::string_view key,
    time_point limit,
    std::uint64_t& record,
    typename lanes_type::route& way,
    exchange_receipt& out) {
    detail::movable_value<T> held(std::forward<U>(value));
    error_code ec;
    if (payload_size<T>::of(held.ref()) > lanes_->options.max_message_bytes) {
        ec = errc::message_too_large;
    } else {
        detail::exchange_send<T, Runtime> sending{*lanes_, way, held, props, key, limit, record};
        ec = sending.run(out);
    }
    if constexpr (std::same_as<U, T> && std::is_move_assignable_v<T>) {
        if (ec) {
            value = std::move(held.ref());
        }
    }
    return ec;
}

template <class T, class Runtime>
error_code basic_exchange_producer<T, Runtime>::lose(std::string_view key) {
    auto& owner = lanes_->broker();
    const bool is_returned = lanes_->options.mandatory;
    if (owner.is_listening()) {
        notices::unroutable n{};
        n.queue = lanes_->exchange->name();
        n.at = owner.clock().now();
        n.routing_key = std::string{key};
        n.returned = is_returned;
        std::vector<notice> one;
        one.emplace_back(std::move(n));
        owner.notify(one);
    }
    return is_returned ? make_error_code(errc::unroutable) : error_code{};
}

template <class T, class Runtime>
template <std::ranges::input_range Range>
requires detail::elements_for<Range, T> std::size_t basic_exchange_producer<T, Runtime>::send_batch(
    Range&& range, const properties& p, error_code& ec) {
    std::size_t sent = 0;
    std::uint64_t record = 0;
    ec = {};
    bool is_kept = false;
    for (auto&& element : range) {
        auto props = own(p, ec);
        std::uint64_t last = 0;
        exchange_receipt r;
        if constexpr (detail::gives_up_elements<Range>) {
            r = send_unconfirmed(std::move(element), std::move(props), {}, never, last, ec);
        } else {
            r = send_unconfirmed(
                std::forward<decltype(element)>(element), std::move(props), {}, never, last, ec);
        }
        if (ec) {
            break;
        }
        if (r.routed != 0) {
            record = last;
            is_kept = true;
        }
        ++sent;
    }
    if (is_kept) {
        error_code failed;
        confirm(record, failed);
        ec = failed ? failed : ec;
    }
    return sent;
}

} // namespace railmq
