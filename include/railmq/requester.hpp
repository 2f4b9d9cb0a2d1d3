// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/delivery.hpp>
#include <railmq/detail/message_type.hpp>
#include <railmq/detail/reply_desk.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/request_options.hpp>
#include <railmq/queue.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace railmq {

/// Asks whoever works on a queue, and waits for the answer (AMQP, `reply_to` and
/// `correlation_id`). Made by `queue.requester<Reply>(options)`.
///
/// A request is a message like any other, with the retries and dead letters of its queue; its
/// `reply_to` names the queue of the replies, and its `correlation_id` says which request it is.
/// Who handles it answers with `railmq::reply(delivery, value)`, or with any producer of that
/// queue.
///
/// Each request ends once: with its reply, with `timed_out`, `operation_aborted` or `closed`, or
/// with the error of its sending. A reply that nobody waits for any more is acknowledged, counted
/// (`requester_stats::late_replies`) and told to the observer (`notices::late_reply`). A request
/// that has timed out may be worked on all the same, and twice where it is delivered twice: then
/// the first reply is the answer. A `time_to_live` in its properties ends it in its queue.
///
/// Errors are thrown as `system_error` or set, as elsewhere: `timed_out`; `closed`; `queue_full`,
/// when `max_pending` wait; `invalid_argument`, when the properties have a `reply_to` or a
/// `correlation_id`; `would_deadlock` in a handler of this broker; those of a send; and
/// `not_found` when the queue of the replies was deleted.
///
/// Thread safety: safe but for moves and `close`. Cost: a send, a receive and an entry in a table.
template <class Request, class Reply, class Runtime>
class basic_requester {
    using desk_type = detail::reply_desk<Reply, Runtime>;

public:
    using request_type = Request;
    using reply_type = Reply;

    /// Asks nobody; every request reports `closed`.
    basic_requester() noexcept = default;
    basic_requester(basic_requester&&) noexcept = default;
    basic_requester& operator=(basic_requester&& other) noexcept {
        if (this != &other) {
            close();
            requests_ = std::move(other.requests_);
            desk_ = std::move(other.desk_);
        }
        return *this;
    }
    basic_requester(const basic_requester&) = delete;
    basic_requester& operator=(const basic_requester&) = delete;
    /// `close()`.
    ~basic_requester() { close(); }

    /// Sends a request and waits for its reply, for room in the queue as well; at most
    /// `requester_options::timeout`.
    [[nodiscard]] Reply request(Request value) { return request(std::move(value), properties{}); }
    [[nodiscard]] Reply request(Request value, properties p) {
        return request(std::move(value), std::move(p), timeout());
    }
    /// The same for at most that long.
    template <class Rep, class Period>
    [[nodiscard]] Reply
    request(Request value, properties p, std::chrono::duration<Rep, Period> timeout) {
        error_code ec;
        auto reply = request(std::move(value), std::move(p), timeout, ec);
        if (ec) {
            throw system_error(ec, "request");
        }
        return std::move(*reply);
    }
    [[nodiscard]] std::optional<Reply> request(Request value, error_code& ec) {
        return request(std::move(value), properties{}, timeout(), ec);
    }
    template <class Rep, class Period>
    [[nodiscard]] std::optional<Reply> request(
        Request value, properties p, std::chrono::duration<Rep, Period> timeout, error_code& ec);

    /// Asks asynchronously.
    ///
    /// Completion signature: `void(error_code, std::optional<Reply>)`, with a reply or an error.
    /// Completes once, never inside this call, on the handler's associated executor or the
    /// broker's. Cancellation: terminal, partial and total: `operation_aborted`; the request may be
    /// worked on all the same, and its reply is late.
    template <class CompletionToken>
    auto async_request(Request value, CompletionToken&& token) {
        return async_request(
            std::move(value), properties{}, timeout(), std::forward<CompletionToken>(token));
    }
    template <class Rep, class Period, class CompletionToken>
    auto async_request(
        Request value,
        properties p,
        std::chrono::duration<Rep, Period> timeout,
        CompletionToken&& token) {
        return boost::asio::async_initiate<CompletionToken, void(error_code, std::optional<Reply>)>(
            [](auto handler,
               std::shared_ptr<basic_producer<Request, Runtime>> requests,
               std::shared_ptr<desk_type> desk,
               Request v,
               properties props,
               duration limit) {
                boost::asio::any_io_executor executor = boost::asio::get_associated_executor(
                    handler,
                    desk != nullptr ? desk->broker()->async_executor()
                                    : detail::default_async_executor());
                start(
                    typename desk_type::handler_type{std::move(handler)},
                    std::move(executor),
                    std::move(requests),
                    std::move(desk),
                    std::move(v),
                    std::move(props),
                    limit);
            },
            token,
            requests_,
            desk_,
            std::move(value),
            std::move(p),
            saturating_duration(timeout));
    }

    [[nodiscard]] requester_stats stats() const {
        return desk_ != nullptr ? desk_->stats() : requester_stats{};
    }
    /// The queue that replies come to.
    [[nodiscard]] std::string reply_queue() const {
        return desk_ != nullptr ? desk_->name() : std::string{};
    }

    /// Ends all requests with `closed`; replies that come from now on find nobody, or no queue.
    void close() noexcept {
        if (auto desk = std::exchange(desk_, nullptr)) {
            desk->close();
        }
    }
    [[nodiscard]] bool is_open() const noexcept { return desk_ != nullptr; }

private:
    template <class, class>
    friend class basic_queue;

    basic_requester(const basic_queue<Request, Runtime>& to, requester_options o)
        : requests_{std::make_shared<basic_producer<Request, Runtime>>(to.producer())} {
        if (const failure f = validate(o)) {
            throw system_error(f.code, f.what);
        }
        const auto& owner =
            detail::queue_access<Request, Runtime>::core(to)->broker().shared_from_this();
        const bool is_owned = o.reply_queue.empty();
        std::string name = is_owned ? owner->unique_name("reply") : o.reply_queue;
        failure f;
        // What nobody takes has nowhere to go: it is counted as late.
        const queue_options plain{.dead_letter = discard};
        auto core =
            owner->open(name, detail::message_type_of<Reply>(), is_owned ? &plain : nullptr, f);
        if (f) {
            throw system_error(f.code, f.what);
        }
        const auto replies = detail::queue_access<Reply, Runtime>::make(std::move(core));
        desk_ = std::make_shared<desk_type>(
            owner, replies.consumer(), std::move(o), std::move(name), is_owned);
        try {
            desk_->open();
        } catch (...) {
            close();
            throw;
        }
    }

    [[nodiscard]] duration timeout() const noexcept {
        return desk_ != nullptr ? desk_->options().timeout : duration::zero();
    }
    /// Addresses a request.
    static void label(properties& p, desk_type& desk, std::string id) {
        p.reply_to = desk.name();
        p.correlation_id = std::move(id);
    }
    [[nodiscard]] static errc check(const properties& p, const desk_type* desk) noexcept {
        return desk == nullptr                                    ? errc::closed
               : !p.reply_to.empty() || !p.correlation_id.empty() ? errc::invalid_argument
                                                                  : errc{};
    }
    static void start(
        typename desk_type::handler_type handler,
        boost::asio::any_io_executor executor,
        std::shared_ptr<basic_producer<Request, Runtime>> requests,
        std::shared_ptr<desk_type> desk,
        Request value,
        properties p,
        duration limit);

    std::shared_ptr<basic_producer<Request, Runtime>> requests_{};
    std::shared_ptr<desk_type> desk_{};
};

template <class Request, class Reply, class Runtime>
template <class Rep, class Period>
std::optional<Reply> basic_requester<Request, Reply, Runtime>::request(
    Request value, properties p, std::chrono::duration<Rep, Period> timeout, error_code& ec) {
    const auto desk = desk_;
    if (const errc bad = check(p, desk.get()); bad != errc{}) {
        ec = bad;
        return std::nullopt;
    }
    auto& owner = *desk->broker();
    if (detail::handler_of == &owner) {
        ec = errc::would_deadlock;
        return std::nullopt;
    }
    const time_point until = saturating_add(owner.clock().now(), saturating_duration(timeout));
    typename desk_type::asking_thread waiting;
    std::uint64_t number = 0;
    std::string id = desk->add(waiting, number, ec);
    if (ec) {
        return std::nullopt;
    }
    bool is_told = false;
    try {
        label(p, *desk, std::move(id));
        requests_->send_for(std::move(value), std::move(p), timeout, ec);
        if (!ec) {
            is_told = owner.block(waiting.thread, until);
            ec = is_told ? error_code{} : make_error_code(errc::timed_out);
        }
        if (!is_told && !desk->withdraw(number, ec)) {
            is_told = owner.block(waiting.thread, never); // it is being told this moment
        }
    } catch (...) { // of others in a simulation, or the request's own move
        if (!is_told && !desk->withdraw(number, errc::closed)) {
            (void)owner.block(waiting.thread, never);
        }
        throw;
    }
    if (is_told) {
        ec = waiting.result;
    }
    return std::move(waiting.reply);
}

template <class Request, class Reply, class Runtime>
void basic_requester<Request, Reply, Runtime>::start(
    typename desk_type::handler_type handler,
    boost::asio::any_io_executor executor,
    std::shared_ptr<basic_producer<Request, Runtime>> requests,
    std::shared_ptr<desk_type> desk,
    Request value,
    properties p,
    duration limit) {
    error_code ec = check(p, desk.get());
    std::uint64_t number = 0;
    std::string id;
    if (!ec) {
        const time_point until = saturating_add(desk->broker()->clock().now(), limit);
        id = desk->add(handler, executor, until, number, ec);
    }
    if (ec) {
        boost::asio::post(
            executor, boost::asio::bind_executor(executor, [h = std::move(handler), ec]() mutable {
                std::move(h)(ec, std::nullopt);
            }));
        return;
    }
    desk->connect(number);
    label(p, *desk, std::move(id));
    requests->async_send(
        std::move(value),
        std::move(p),
        boost::asio::bind_executor(executor, [desk, number](error_code failed, receipt) {
            if (failed) {
                desk->finish(number, failed);
            }
        }));
}

/// Answers a request: sends `value` to the queue that its `reply_to` names, with its
/// `correlation_id`. The delivery stays to be settled, best after this.
///
/// Never waits. Errors: `stale_delivery` for a delivery that is settled; `invalid_argument` for a
/// message that nobody waits for; `not_found` when the requester is gone; `type_mismatch`; those of
/// a send. Thread safety: as the delivery. The reply survives what `durability::accepted` does; for
/// more, send it with a producer.
template <class Reply, class T, class Runtime>
void reply(const basic_delivery<T, Runtime>& to, Reply value, error_code& ec) {
    using access = detail::queue_access<Reply, Runtime>;
    ec = {};
    if (!to) {
        ec = errc::stale_delivery;
        return;
    }
    const properties& asked = to.properties();
    if (asked.reply_to.empty()) {
        ec = errc::invalid_argument;
        return;
    }
    auto& owner = *static_cast<const detail::consumer_state<Runtime>*>(
                       detail::delivery_access<T, Runtime>::lease(to).holder)
                       ->owner;
    auto core = owner.find(asked.reply_to);
    if (core == nullptr && owner.is_unopened(asked.reply_to)) {
        failure f;
        core = owner.open(asked.reply_to, detail::message_type_of<Reply>(), nullptr, f);
        if (f) {
            ec = f.code;
            return;
        }
    }
    if (core == nullptr) {
        ec = errc::not_found;
        return;
    }
    if (!(core->type() == detail::message_type_of<Reply>())) {
        ec = errc::type_mismatch;
        return;
    }
    properties p;
    p.correlation_id = asked.correlation_id;
    access::make(std::move(core))
        .producer({.durability = durability::accepted})
        .try_send(std::move(value), std::move(p), ec);
}
/// The same; throws `system_error`.
template <class Reply, class T, class Runtime>
void reply(const basic_delivery<T, Runtime>& to, Reply value) {
    error_code ec;
    reply(to, std::move(value), ec);
    if (ec) {
        throw system_error(ec, "reply");
    }
}

} // namespace railmq
