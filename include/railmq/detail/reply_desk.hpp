// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/consumer.hpp>
#include <railmq/detail/due_source.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/wake_up_timer.hpp>
#include <railmq/model/request_options.hpp>

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::detail {

/// Where the replies to a requester's requests come in, and who waits for each.
///
/// Nobody runs it: whoever sends a reply hands it over, in the thread of that send, as with any
/// receive that waits. A request is on the list before it is sent, so the quickest reply finds it.
///
/// Thread safety: any call by any thread. Its lock is never held while a queue's is wanted.
template <class Reply, class Runtime>
class reply_desk final : public due_source,
                         public std::enable_shared_from_this<reply_desk<Reply, Runtime>>,
                         private core::receive_waiter<Runtime> {
    using broker_type = broker_core<Runtime>;
    using waiter_type = core::receive_waiter<Runtime>;

public:
    using handler_type =
        boost::asio::any_completion_handler<void(error_code, std::optional<Reply>)>;

    /// A thread that waits for its reply.
    struct asking_thread {
        sleeper<Runtime> thread{};
        error_code result{};
        std::optional<Reply> reply{};
    };

    /// `replies` is for this desk alone; it is deleted at the end if `is_owned`.
    reply_desk(
        std::shared_ptr<broker_type> broker,
        basic_consumer<Reply, Runtime> replies,
        requester_options o,
        std::string name,
        bool is_owned)
        : broker_{std::move(broker)}
        , consumer_{std::move(replies)}
        , options_{std::move(o)}
        , name_{std::move(name)}
        , is_owned_{is_owned}
        , number_{broker_->take_number()}
        , prefix_{broker_->unique_name({}).substr(1) + '.'} {
        this->holder = consumer_.state_;
        this->core::waiter::complete = [](core::waiter* w) noexcept {
            static_cast<reply_desk*>(static_cast<waiter_type*>(w))->has_come();
        };
    }
    ~reply_desk() { broker_->forget_due(*this); }

    /// Waits for the first reply. Not in the constructor, since it keeps itself alive meanwhile.
    /// Throws `std::bad_alloc`.
    void open() {
        try {
            listen();
        } catch (...) {
            self_.reset(); // it does not wait, so nobody would let it go
            throw;
        }
    }

    [[nodiscard]] const std::shared_ptr<broker_type>& broker() const noexcept { return broker_; }
    [[nodiscard]] const requester_options& options() const noexcept { return options_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] requester_stats stats() const {
        const std::lock_guard guard{mutex_};
        requester_stats s = counts_;
        s.pending = asking_.size();
        return s;
    }

    /// Puts a request on the list: its correlation id, or nothing and the reason. `thread` stays
    /// where it is until `finish`, or a `withdraw` that returns true.
    [[nodiscard]] std::string add(asking_thread& thread, std::uint64_t& number, error_code& ec) {
        asker a;
        a.thread = &thread;
        return add(std::move(a), number, ec);
    }
    /// The same for a handler, which is called on its executor. On an error it is given back.
    [[nodiscard]] std::string
    add(handler_type& handler,
        boost::asio::any_io_executor executor,
        time_point deadline,
        std::uint64_t& number,
        error_code& ec) {
        asker a;
        a.deadline = deadline;
        a.executor = std::move(executor);
        a.work = boost::asio::prefer(a.executor, boost::asio::execution::outstanding_work.tracked);
        a.handler.swap(handler); // Boost 1.81 cannot assign it
        broker_->template use_async_timer<wake_up_timer<Runtime>>();
        std::string id;
        try {
            id = add(std::move(a), number, ec);
        } catch (...) {
            broker_->leave_async_timer();
            throw;
        }
        if (ec) {
            broker_->leave_async_timer();
            a.handler.swap(handler);
        }
        return id;
    }
    /// Connects the cancellation of a handler that was added, before its request is sent.
    void connect(std::uint64_t number) {
        const std::lock_guard guard{mutex_};
        const auto it = asking_.find(number);
        if (it == asking_.end()) {
            return;
        }
        auto slot = boost::asio::get_associated_cancellation_slot(it->second.handler);
        if (slot.is_connected()) {
            slot.assign([desk = this->weak_from_this(), number](boost::asio::cancellation_type t) {
                const auto self = desk.lock();
                if (self != nullptr && t != boost::asio::cancellation_type::none) {
                    self->finish(number, boost::asio::error::operation_aborted);
                }
            });
        }
    }

    /// Whoever waits for that reply waits no more, and is told so. Not there any more: nothing.
    void finish(std::uint64_t number, error_code ec) {
        if (auto a = take(number, count_of(ec))) {
            complete(*a, ec, std::nullopt);
        }
    }
    /// The same without telling anybody. False: it is being told this moment.
    [[nodiscard]] bool withdraw(std::uint64_t number, error_code ec) {
        return take(number, count_of(ec)).has_value();
    }

    /// No more replies: all who wait are told `closed`.
    void close() noexcept {
        {
            const std::lock_guard guard{mutex_};
            if (std::exchange(closed_, true)) {
                return;
            }
        }
        fail_all(errc::closed);
        try {
            consumer_.cancel(); // ends the waiting receive, which keeps this alive
        } catch (...) {
            broker_->count_swallowed(); // then it ends with its queue
        }
        if (is_owned_) {
            error_code ec; // a broker that is closed has none
            broker_->delete_queue(name_, true, ec);
        }
    }

    // Deadlines

    [[nodiscard]] std::shared_ptr<due_source> keep() noexcept override {
        return this->weak_from_this().lock();
    }
    [[nodiscard]] std::uint64_t number() const noexcept override { return number_; }
    void run_due(time_point now) override {
        std::vector<asker> late;
        {
            const std::lock_guard guard{mutex_};
            told_ = never;
            while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
                late.push_back(
                    *take_locked(deadlines_.begin()->second, &requester_stats::timed_out));
            }
            tell_due();
        }
        for (asker& a : late) {
            complete(a, errc::timed_out, std::nullopt);
        }
    }
    [[nodiscard]] time_point next_due(time_point) override {
        const std::lock_guard guard{mutex_};
        return deadlines_.empty() ? never : deadlines_.begin()->first;
    }
    void refresh_due(time_point) override {
        const std::lock_guard guard{mutex_};
        broker_->forget_due(*this);
        told_ = never;
        tell_due();
    }

private:
    using counter = std::uint64_t requester_stats::*;

    /// Who waits for one reply: a thread, or a handler with a deadline.
    struct asker {
        asking_thread* thread = nullptr;
        time_point deadline = never;
        handler_type handler{};
        boost::asio::any_io_executor executor{};
        boost::asio::any_io_executor work{}; ///< Keeps the handler's executor busy.
    };

    /// Calls a handler on its executor. Until then the operation can be cancelled, in vain.
    struct completion {
        handler_type handler;
        error_code result;
        std::optional<Reply> reply;

        void operator()() {
            auto slot = boost::asio::get_associated_cancellation_slot(handler);
            if (slot.is_connected()) {
                slot.clear();
            }
            std::move(handler)(result, std::move(reply));
        }
    };

    [[nodiscard]] static counter count_of(error_code ec) noexcept {
        return ec == errc::timed_out                         ? &requester_stats::timed_out
               : ec == boost::asio::error::operation_aborted ? &requester_stats::cancelled
                                                             : &requester_stats::failed;
    }

    [[nodiscard]] std::string add(asker&& a, std::uint64_t& number, error_code& ec) {
        ec = {};
        std::string id;
        const std::lock_guard guard{mutex_};
        if (closed_ || ended_ != errc{}) {
            ec = closed_ ? errc::closed : ended_;
            return id;
        }
        if (asking_.size() >= options_.max_pending) {
            ec = errc::queue_full;
            return id;
        }
        number = counts_.sent + 1;
        id = prefix_ + std::to_string(number);
        const time_point deadline = a.deadline;
        if (deadline != never) {
            deadlines_.insert({deadline, number});
        }
        try {
            asking_.emplace(number, std::move(a));
        } catch (...) {
            deadlines_.erase({deadline, number});
            throw;
        }
        ++counts_.sent;
        tell_due();
        return id;
    }
    [[nodiscard]] std::optional<asker> take(std::uint64_t number, counter why) {
        const std::lock_guard guard{mutex_};
        return take_locked(number, why);
    }
    [[nodiscard]] std::optional<asker> take_locked(std::uint64_t number, counter why) {
        const auto it = asking_.find(number);
        if (it == asking_.end()) {
            return std::nullopt;
        }
        std::optional<asker> a{std::move(it->second)};
        asking_.erase(it);
        deadlines_.erase({a->deadline, number});
        ++(counts_.*why);
        return a;
    }
    void complete(asker& a, error_code ec, std::optional<Reply>&& reply) noexcept {
        if (a.thread != nullptr) {
            a.thread->result = ec;
            a.thread->reply = std::move(reply);
            a.thread->thread.spot.finish();
            return;
        }
        broker_->leave_async_timer();
        auto executor = a.executor;
        boost::asio::post(
            executor,
            boost::asio::bind_executor(
                executor, completion{std::move(a.handler), ec, std::move(reply)}));
    }
    void fail_all(errc why) noexcept {
        boost::unordered_flat_map<std::uint64_t, asker> all;
        {
            const std::lock_guard guard{mutex_};
            if (ended_ == errc{}) {
                ended_ = why;
            }
            all.swap(asking_);
            deadlines_.clear();
            counts_.failed += all.size();
        }
        for (auto& [number, a] : all) {
            complete(a, why, std::nullopt);
        }
    }

    /// Receives until there is nothing, and waits for more. By one thread at a time: whoever has
    /// taken the waiting receive out of the queue.
    void listen() {
        auto* const state = consumer_.state_;
        const auto queue = state->queue;
        enum class step : std::uint8_t { got, waits, ended, again };
        for (;;) {
            errc why{};
            std::uint64_t hand_out = 0;
            self_ = this->shared_from_this();
            const step s = queue->locked_and_current([&](auto& m, time_point now, auto& fx) {
                fx.wanted_at = &hand_out;
                if (m.take(*state, now, fx, this->one)) {
                    return step::got;
                }
                if (m.is_drained() || !state->is_open.load(std::memory_order_relaxed)) {
                    why = m.close_reason();
                    return step::ended;
                }
                return m.wait_to_receive(static_cast<waiter_type&>(*this)) ? step::waits
                                                                           : step::again;
            });
            if (s == step::waits) {
                return; // from here on it belongs to whoever serves it
            }
            if (s == step::got) {
                if (hand_out != 0) {
                    broker_->make_written(hand_out);
                }
                hand_over();
            } else if (s == step::ended) {
                fail_all(why);
                self_.reset();
                return;
            } else {
                Runtime::yield();
            }
        }
    }
    /// The waiting receive was served, or its queue has ended.
    void has_come() noexcept {
        const auto keep = std::move(self_);
        if (this->result) {
            fail_all(static_cast<errc>(this->result.value()));
            return;
        }
        try {
            hand_over();
            listen();
        } catch (...) {
            self_.reset();                // as in `open`
            fail_all(errc::memory_limit); // nothing else throws there
        }
    }
    /// Gives the reply that was received to who waits for it.
    void hand_over() {
        using access = delivery_access<Reply, Runtime>;
        auto d = access::make(std::exchange(this->one, {}));
        const std::string& id = d.properties().correlation_id;
        auto a = take(number_in(id), &requester_stats::answered);
        if (!a) {
            {
                const std::lock_guard guard{mutex_};
                ++counts_.late_replies;
            }
            if (broker_->is_listening()) {
                notices::late_reply n{};
                n.queue = name_;
                n.at = broker_->clock().now();
                n.id = d.id();
                n.correlation_id = id;
                broker_->notify({std::move(n)});
            }
            d.ack();
            return;
        }
        std::optional<Reply> reply;
        error_code ec;
        try {
            reply.emplace(d.take());
        } catch (...) { // of the reply's own move
            ec = errc::invalid_argument;
        }
        complete(*a, ec, std::move(reply));
    }
    /// The request's number in a correlation id of ours, or 0.
    [[nodiscard]] std::uint64_t number_in(std::string_view id) const noexcept {
        std::uint64_t number = 0;
        if (id.starts_with(prefix_)) {
            id.remove_prefix(prefix_.size());
            const auto [end, ec] = std::from_chars(id.data(), id.data() + id.size(), number);
            if (ec != std::errc{} || end != id.data() + id.size()) {
                return 0;
            }
        }
        return number;
    }

    void tell_due() noexcept {
        const time_point next = deadlines_.empty() ? never : deadlines_.begin()->first;
        if (next < told_) {
            told_ = next;
            broker_->lower_due(*this, next);
        }
    }

    const std::shared_ptr<broker_type> broker_;
    basic_consumer<Reply, Runtime> consumer_;
    const requester_options options_;
    const std::string name_; ///< Of the queue of replies.
    const bool is_owned_;
    const std::uint64_t number_;
    const std::string prefix_; ///< Of correlation ids; no other life of the process has the same.
    std::shared_ptr<reply_desk> self_{}; ///< While its receive waits in the queue.
    mutable typename Runtime::mutex mutex_{};
    boost::unordered_flat_map<std::uint64_t, asker> asking_{};
    std::set<std::pair<time_point, std::uint64_t>> deadlines_{};
    time_point told_ = never; ///< The deadline that the broker knows of.
    requester_stats counts_{};
    bool closed_ = false;
    errc ended_{};
};

} // namespace railmq::detail
