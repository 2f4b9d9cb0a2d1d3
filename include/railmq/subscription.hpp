// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/consumer.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/outcome.hpp>
#include <railmq/transaction.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace railmq {

namespace detail {

template <class T>
inline constexpr bool is_awaitable = false;
template <class T, class Executor>
inline constexpr bool is_awaitable<boost::asio::awaitable<T, Executor>> = true;

/// What a subscription is to those who hold it, whatever its message type.
template <class Runtime>
class subscription_base {
public:
    subscription_base() = default;
    subscription_base(const subscription_base&) = delete;
    subscription_base& operator=(const subscription_base&) = delete;
    virtual ~subscription_base() = default;
    virtual void cancel() = 0;
    virtual void close() noexcept = 0;
    virtual bool close(drain_for limit) = 0;
    virtual void set_paused(bool on) = 0;
    virtual void set_concurrency(std::size_t n) = 0;
    [[nodiscard]] virtual std::size_t concurrency() = 0;
    [[nodiscard]] virtual std::size_t running() = 0;
};

/// Settles by what a handler did; a handler that settled by itself is left alone.
template <class T, class Runtime>
void settle_by(basic_delivery<T, Runtime>& d, const outcome& o) noexcept {
    using access = delivery_access<T, Runtime>;
    using kind = core::settlement::kind;
    if (!d) {
        return;
    }
    switch (o.what()) {
    case outcome::kind::acked: (void)d.ack(); break;
    case outcome::kind::failed: (void)access::settle(d, {kind::nack, o.wait(), {}}); break;
    case outcome::kind::rejected: (void)d.reject(o.reason()); break;
    case outcome::kind::released: (void)d.release(); break;
    }
}

template <class T, class Runtime>
void settle_by(basic_delivery<T, Runtime>& d, std::exception_ptr failure) noexcept {
    using access = delivery_access<T, Runtime>;
    using kind = core::settlement::kind;
    if (!d) {
        return;
    }
    const auto text = [](const char* what) {
        const std::string_view whole{what};
        return std::string{whole.substr(0, death_history::max_detail_bytes)};
    };
    try {
        std::rethrow_exception(failure);
    } catch (const permanent_error& e) {
        (void)access::settle(d, {kind::permanent, {}, text(e.what())});
    } catch (const std::exception& e) {
        (void)access::settle(d, {kind::threw, {}, text(e.what())});
    } catch (...) {
        (void)access::settle(d, {kind::threw, {}, "an exception that is no std::exception"});
    }
}

/// A handler called for one delivery after another, in as many chains as run at once.
template <class T, class Runtime, class Executor, class Handler>
class subscription_state final
    : public subscription_base<Runtime>,
      public std::enable_shared_from_this<subscription_state<T, Runtime, Executor, Handler>> {
    using delivery_type = basic_delivery<T, Runtime>;
    using consumer_type = basic_consumer<T, Runtime>;
    using transaction_type = basic_transaction<Runtime>;
    static constexpr bool takes_transaction =
        std::is_invocable_v<Handler&, delivery_type&, transaction_type&> ||
        std::is_invocable_v<Handler&, const T&, transaction_type&>;
    static constexpr bool takes_delivery =
        std::is_invocable_v<Handler&, delivery_type&> ||
        std::is_invocable_v<Handler&, delivery_type&, transaction_type&>;
    static_assert(
        takes_delivery || takes_transaction || std::is_invocable_v<Handler&, const T&>,
        "a handler takes `const T&` or `delivery<T>&`, and after it `transaction&` if it likes");

    /// What one call of the handler works on.
    struct work {
        delivery_type delivery;
        transaction_type sends{};
    };

public:
    subscription_state(
        basic_consumer<T, Runtime> consumer,
        std::shared_ptr<queue_core<Runtime>> queue,
        Executor executor,
        Handler handler,
        std::size_t concurrency)
        : consumer_{std::make_shared<consumer_type>(std::move(consumer))}
        , queue_{std::move(queue)}
        , executor_{std::move(executor)}
        , handler_{std::move(handler)}
        , wanted_{concurrency} {}

    void start_chains() {
        std::size_t missing = 0;
        {
            std::lock_guard guard{mutex_};
            missing = closed_ || chains_ >= wanted_ ? 0 : wanted_ - chains_;
            chains_ += missing;
        }
        for (; missing != 0; --missing) {
            receive_next();
        }
    }

    void cancel() override {
        std::shared_ptr<consumer_type> c;
        {
            std::lock_guard guard{mutex_};
            closed_ = true;
            c = consumer_;
        }
        c->cancel();
    }
    void close() noexcept override {
        const auto c = take_consumer();
        c->cancel();
    }
    bool close(drain_for limit) override {
        const auto c = take_consumer();
        return c->drain(limit);
    }
    void set_paused(bool on) override { on ? consumer_->pause() : consumer_->resume(); }
    void set_concurrency(std::size_t n) override {
        if (n == 0) {
            throw system_error(
                make_error_code(errc::invalid_argument), "concurrency is at least 1; got 0");
        }
        {
            std::lock_guard guard{mutex_};
            wanted_ = n;
        }
        start_chains();
    }
    [[nodiscard]] std::size_t concurrency() override {
        std::lock_guard guard{mutex_};
        return wanted_;
    }
    [[nodiscard]] std::size_t running() override {
        std::lock_guard guard{mutex_};
        return running_;
    }

private:
    /// The last one who lets go of the consumer closes it: a chain on another thread may be
    /// starting a receive this moment.
    [[nodiscard]] std::shared_ptr<consumer_type> take_consumer() noexcept {
        std::lock_guard guard{mutex_};
        closed_ = true;
        return std::move(consumer_);
    }

    /// None when this chain is one too many; then it is over.
    [[nodiscard]] std::shared_ptr<consumer_type> next_consumer() {
        std::lock_guard guard{mutex_};
        if (closed_ || chains_ > wanted_) {
            --chains_;
            return nullptr;
        }
        return consumer_;
    }

    void receive_next() {
        const auto c = next_consumer();
        if (c == nullptr) {
            return;
        }
        c->async_receive(boost::asio::bind_executor(
            executor_, [self = this->shared_from_this()](error_code ec, delivery_type d) {
                self->on_message(ec, std::move(d));
            }));
    }

    void on_message(error_code ec, delivery_type d) {
        if (ec) {
            std::lock_guard guard{mutex_};
            --chains_;
            return;
        }
        {
            // Messages on their way when it closed, or concurrency was lowered, go back unseen.
            std::unique_lock lock{mutex_};
            if (closed_ || running_ >= wanted_) {
                --chains_;
                lock.unlock();
                (void)d.release();
                return;
            }
            ++running_;
        }
        run(std::move(d));
    }

    void finish_one() {
        {
            std::lock_guard guard{mutex_};
            --running_;
        }
        receive_next();
    }

    [[nodiscard]] decltype(auto) call(work& w) {
        if constexpr (takes_transaction) {
            w.sends = queue_->broker().template begin<transaction_type>();
            if constexpr (takes_delivery) {
                return handler_(w.delivery, w.sends);
            } else {
                return handler_(w.delivery.value(), w.sends);
            }
        } else if constexpr (takes_delivery) {
            return handler_(w.delivery);
        } else {
            return handler_(w.delivery.value());
        }
    }
    /// An acknowledgement takes the handler's sends with it; any other end drops them.
    static void settle(work& w, const outcome& o) noexcept {
        if constexpr (takes_transaction) {
            if (w.delivery && o.what() == outcome::kind::acked) {
                try {
                    w.sends.ack(w.delivery);
                    w.sends.commit();
                } catch (...) {
                    w.sends.abort(); // it has failed, as if the handler had thrown
                }
                return;
            }
        }
        settle_by(w.delivery, o);
    }
    static void settle(work& w, std::exception_ptr failure) noexcept {
        settle_by(w.delivery, std::move(failure));
    }

    void run(delivery_type received) {
        work w{std::move(received)};
        using result_type = decltype(call(w));
        if constexpr (is_awaitable<result_type>) {
            // The delivery lives as long as the coroutine that works on it.
            auto held = std::make_shared<work>(std::move(w));
            using value_type = typename result_type::value_type;
            std::optional<result_type> coroutine;
            try {
                const handler_scope scope{&queue_->broker()};
                coroutine.emplace(call(*held));
            } catch (...) {
                settle(*held, std::current_exception());
                finish_one();
                return;
            }
            if constexpr (std::is_void_v<value_type>) {
                boost::asio::co_spawn(
                    executor_,
                    std::move(*coroutine),
                    [self = this->shared_from_this(), held](std::exception_ptr failure) {
                        failure ? settle(*held, failure) : settle(*held, outcome::ack());
                        self->finish_one();
                    });
            } else {
                boost::asio::co_spawn(
                    executor_,
                    std::move(*coroutine),
                    [self = this->shared_from_this(),
                     held](std::exception_ptr failure, outcome result) {
                        failure ? settle(*held, failure) : settle(*held, result);
                        self->finish_one();
                    });
            }
        } else {
            try {
                const handler_scope scope{&queue_->broker()};
                if constexpr (std::is_void_v<result_type>) {
                    call(w);
                    settle(w, outcome::ack());
                } else {
                    static_assert(
                        std::is_same_v<result_type, outcome>,
                        "a handler returns void, railmq::outcome or an awaitable of these");
                    settle(w, call(w));
                }
            } catch (...) {
                settle(w, std::current_exception());
            }
            finish_one();
        }
    }

    std::shared_ptr<consumer_type> consumer_; ///< Until it is closed.
    std::shared_ptr<queue_core<Runtime>> queue_;
    Executor executor_;
    Handler handler_;
    typename Runtime::mutex mutex_{};
    std::size_t wanted_;
    std::size_t chains_ = 0;
    std::size_t running_ = 0;
    bool closed_ = false;
};

} // namespace detail

/// Messages pushed to a handler: `queue.subscribe(executor, handler, {.concurrency = 4})`.
///
/// The handler takes `const T&` or `delivery<T>&`, and after it `transaction&` if it likes: what it
/// sends through that happens together with the acknowledgement of its message, or not at all. It
/// runs on the executor, at most `concurrency` at a time. What it does settles the message:
/// returning (or completing an `awaitable`) acknowledges it, or what the returned `outcome` says;
/// throwing `permanent_error` dead-letters it; any other exception is a failure, retried by the
/// queue's policy. No exception leaves the subscription. While a plain handler runs, calls that
/// would wait for this broker from within it fail with `would_deadlock` instead.
///
/// A subscription owns a consumer; it ends with `close` or with the handle, and the messages of
/// handlers that still run go back to the queue.
///
/// Thread safety: distinct objects are safe, one shared object is not, but for `running`.
template <class Runtime>
class basic_subscription {
public:
    /// Runs nothing.
    basic_subscription() noexcept = default;
    explicit basic_subscription(std::shared_ptr<detail::subscription_base<Runtime>> s) noexcept
        : state_{std::move(s)} {}
    basic_subscription(basic_subscription&&) noexcept = default;
    basic_subscription& operator=(basic_subscription&& other) noexcept {
        if (this != &other) {
            close();
            state_ = std::move(other.state_);
        }
        return *this;
    }
    basic_subscription(const basic_subscription&) = delete;
    basic_subscription& operator=(const basic_subscription&) = delete;
    ~basic_subscription() { close(); }

    /// No more messages; handlers that run may end and settle.
    void cancel() {
        if (state_) state_->cancel();
    }
    /// No more messages, and those that handlers hold go back to the queue at once.
    void close() noexcept {
        if (auto s = std::exchange(state_, nullptr)) s->close();
    }
    /// No more messages; waits for running handlers, at most that long. False: some had to be
    /// given up, and their messages went back.
    bool close(drain_for limit) {
        auto s = std::exchange(state_, nullptr);
        return !s || s->close(limit);
    }
    /// No new messages until `resume`; running handlers go on.
    void pause() {
        if (state_) state_->set_paused(true);
    }
    void resume() {
        if (state_) state_->set_paused(false);
    }
    /// Changes how many handlers may run at once, at least 1; what runs now is not interrupted.
    void concurrency(std::size_t n) {
        if (state_) state_->set_concurrency(n);
    }
    [[nodiscard]] std::size_t concurrency() const { return state_ ? state_->concurrency() : 0; }
    /// Handlers that run this moment.
    [[nodiscard]] std::size_t running() const { return state_ ? state_->running() : 0; }

private:
    std::shared_ptr<detail::subscription_base<Runtime>> state_{};
};

namespace detail {

template <class T, class Runtime, class Executor, class Handler>
basic_subscription<Runtime> start_subscription(
    basic_consumer<T, Runtime> consumer,
    std::shared_ptr<queue_core<Runtime>> queue,
    Executor executor,
    Handler handler,
    std::size_t concurrency) {
    auto state = std::make_shared<subscription_state<T, Runtime, Executor, Handler>>(
        std::move(consumer),
        std::move(queue),
        std::move(executor),
        std::move(handler),
        concurrency);
    state->start_chains();
    return basic_subscription<Runtime>{std::move(state)};
}

} // namespace detail
} // namespace railmq
