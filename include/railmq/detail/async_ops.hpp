// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/delivery.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/wake_up_timer.hpp>
#include <railmq/model/codec.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/receipt.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/append.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/system_executor.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq::detail {

/// What every asynchronous operation of ours does: it lives in memory from the handler's
/// allocator, keeps its executor busy, answers cancellation, and completes on the handler's
/// executor, never inside the initiating call, after its own memory is free.
///
/// `Derived` has `bool unlink()`, called with the queue's lock held, which takes the operation out
/// of the queue and says whether it was still there; and `deliver(handler, ec)`, which calls it.
template <class Derived, class Runtime, class Handler>
class async_op {
public:
    using queue_type = queue_core<Runtime>;
    using executor_type = boost::asio::associated_executor_t<Handler, boost::asio::any_io_executor>;
    using allocator_type = typename std::allocator_traits<
        boost::asio::associated_allocator_t<Handler>>::template rebind_alloc<Derived>;

    async_op(Handler handler, std::shared_ptr<queue_type> q)
        : handler_{std::move(handler)}
        , queue_{std::move(q)}
        , executor_{boost::asio::get_associated_executor(
              handler_, queue_ ? queue_->broker().async_executor() : default_async_executor())}
        , work_{boost::asio::prefer(executor_, boost::asio::execution::outstanding_work.tracked)} {}
    async_op(const async_op&) = delete;
    async_op& operator=(const async_op&) = delete;

    template <class... Args>
    static Derived* make(Handler handler, Args&&... args) {
        allocator_type allocator{boost::asio::get_associated_allocator(handler)};
        Derived* raw = std::allocator_traits<allocator_type>::allocate(allocator, 1);
        try {
            return ::new (static_cast<void*>(raw))
                Derived(std::move(handler), std::forward<Args>(args)...);
        } catch (...) {
            std::allocator_traits<allocator_type>::deallocate(allocator, raw, 1);
            throw;
        }
    }

    /// Connects cancellation. The slot is emptied on the handler's executor, where the one who
    /// cancels must be as well, so the operation is alive whenever this is called.
    void connect() {
        auto slot = boost::asio::get_associated_cancellation_slot(handler_);
        if (slot.is_connected()) {
            slot.assign([this](boost::asio::cancellation_type type) {
                if (type != boost::asio::cancellation_type::none) {
                    self().cancel();
                }
            });
        }
    }

    void cancel() {
        const auto keep = queue_;
        const bool was_waiting =
            keep->locked([this](auto& m, time_point, auto&) { return self().unlink(m); });
        if (was_waiting) {
            result_ = boost::asio::error::operation_aborted;
            complete();
        }
    }

    /// Posts the completion. Called once, by whoever took the operation out of the queue.
    void complete() noexcept {
        if (std::exchange(uses_timer_, false)) {
            queue_->broker().leave_async_timer();
        }
        auto executor = executor_;
        boost::asio::post(executor, boost::asio::bind_executor(executor, completion{&self()}));
    }

protected:
    /// Lets deadlines pass while this operation waits.
    void use_timer() {
        uses_timer_ = true;
        queue_->broker().template use_async_timer<wake_up_timer<Runtime>>();
    }
    void set_result(error_code ec) noexcept { result_ = ec; }

    Handler handler_;
    std::shared_ptr<queue_type> queue_;
    executor_type executor_;

private:
    /// Owns the operation on its way to the executor. Destroyed uncalled, as when a context ends
    /// with work in it, it lets go of everything, and what was received goes back.
    class completion {
    public:
        explicit completion(Derived* op) noexcept
            : op_{op} {}
        completion(completion&& other) noexcept
            : op_{std::exchange(other.op_, nullptr)} {}
        completion& operator=(completion&&) = delete;
        ~completion() {
            if (op_ != nullptr) {
                destroy(op_);
            }
        }
        void operator()() { run(std::exchange(op_, nullptr)); }

    private:
        Derived* op_;
    };

    [[nodiscard]] Derived& self() noexcept { return static_cast<Derived&>(*this); }

    static void run(Derived* op) {
        auto slot = boost::asio::get_associated_cancellation_slot(op->handler_);
        if (slot.is_connected()) {
            slot.clear();
        }
        [[maybe_unused]] auto work = op->work_;
        auto result = op->take_result();
        const error_code ec = op->result_;
        Handler handler{std::move(op->handler_)};
        destroy_with(op, handler); // the memory is free before the handler runs
        std::move(handler)(ec, std::move(result));
    }
    static void destroy(Derived* op) {
        Handler handler{std::move(op->handler_)};
        destroy_with(op, handler);
    }
    static void destroy_with(Derived* op, Handler& handler) {
        allocator_type allocator{boost::asio::get_associated_allocator(handler)};
        std::destroy_at(op);
        std::allocator_traits<allocator_type>::deallocate(allocator, op, 1);
    }

    using work_type = std::decay_t<decltype(boost::asio::prefer(
        std::declval<executor_type&>(), boost::asio::execution::outstanding_work.tracked))>;
    error_code result_{};
    bool uses_timer_ = false;
    work_type work_;
};

/// A receive of one message.
template <class T, class Runtime, class Handler>
class async_receive_op : public async_op<async_receive_op<T, Runtime, Handler>, Runtime, Handler>,
                         public core::receive_waiter<Runtime> {
    using base = async_op<async_receive_op, Runtime, Handler>;
    using state_type = consumer_state<Runtime>;

public:
    async_receive_op(Handler handler, state_type* state)
        : base{std::move(handler), state != nullptr ? state->queue : nullptr}
        , state_{state} {
        this->core::waiter::complete = [](core::waiter* w) noexcept {
            auto* op =
                static_cast<async_receive_op*>(static_cast<core::receive_waiter<Runtime>*>(w));
            op->set_result(w->result);
            op->base::complete();
        };
        this->holder = state;
    }
    ~async_receive_op() {
        if (this->one) { // nobody has seen it: back to its place, and no failure
            delivery_access<T, Runtime>::make(this->one).release();
        }
    }

    static void start(Handler handler, state_type* state) {
        auto* op = base::make(std::move(handler), state);
        if (state == nullptr) {
            op->set_result(errc::closed);
            op->base::complete();
            return;
        }
        op->connect();
        const auto keep = op->queue_;
        op->use_timer();
        enum class step : std::uint8_t { done, waits, again };
        std::uint64_t record = 0;
        for (;;) {
            const step s = keep->locked_and_current([&](auto& m, time_point now, auto& fx) {
                fx.wanted_at = &record;
                if (m.take(*state, now, fx, op->one)) {
                    return step::done;
                }
                if (m.is_drained() || !state->is_open.load(std::memory_order_relaxed)) {
                    op->set_result(m.close_reason());
                    return step::done;
                }
                return m.wait_to_receive(*op) ? step::waits : step::again;
            });
            if (s == step::waits) {
                keep->broker().flush_idle();
                return;
            }
            if (s == step::done) {
                if (record != 0) {
                    keep->broker().make_written(record);
                }
                op->base::complete();
                return;
            }
            Runtime::yield();
        }
    }

    template <class Machine>
    [[nodiscard]] bool unlink(Machine& m) noexcept {
        if (!this->is_linked()) {
            return false;
        }
        m.forget(static_cast<core::receive_waiter<Runtime>&>(*this));
        return true;
    }
    [[nodiscard]] basic_delivery<T, Runtime> take_result() noexcept {
        return delivery_access<T, Runtime>::make(std::exchange(this->one, {}));
    }

private:
    state_type* state_;
};

/// A receive of as many messages as are there, at most `max`, once there is one.
template <class T, class Runtime, class Handler>
class async_receive_batch_op
    : public async_op<async_receive_batch_op<T, Runtime, Handler>, Runtime, Handler>,
      public core::receive_waiter<Runtime> {
    using base = async_op<async_receive_batch_op, Runtime, Handler>;
    using state_type = consumer_state<Runtime>;
    using delivery_type = basic_delivery<T, Runtime>;

public:
    async_receive_batch_op(Handler handler, state_type* state, std::uint32_t max_messages)
        : base{std::move(handler), state != nullptr ? state->queue : nullptr} {
        this->core::waiter::complete = [](core::waiter* w) noexcept {
            auto* op = static_cast<async_receive_batch_op*>(
                static_cast<core::receive_waiter<Runtime>*>(w));
            op->set_result(w->result);
            op->base::complete();
        };
        this->holder = state;
        this->max = max_messages;
        this->many = &leases_;
        leases_.reserve(max_messages);
    }
    ~async_receive_batch_op() {
        for (const auto& l : leases_) {
            delivery_access<T, Runtime>::make(l).release();
        }
    }

    static void start(Handler handler, state_type* state, std::size_t max) {
        const auto bounded = static_cast<std::uint32_t>(std::min<std::size_t>(max, 1U << 16));
        auto* op = base::make(std::move(handler), state, bounded);
        if (state == nullptr || max == 0) {
            op->set_result(state == nullptr ? errc::closed : errc::invalid_argument);
            op->base::complete();
            return;
        }
        op->connect();
        const auto keep = op->queue_;
        op->use_timer();
        enum class step : std::uint8_t { done, waits, again };
        std::uint64_t record = 0;
        for (;;) {
            const step s = keep->locked_and_current([&](auto& m, time_point now, auto& fx) {
                fx.wanted_at = &record;
                m.take_some(*state, bounded, now, fx, [&](const auto& first, std::uint32_t n) {
                    core::for_each_in_row(
                        first, n, [&](const auto& l) { op->leases_.push_back(l); });
                });
                if (!op->leases_.empty()) {
                    return step::done;
                }
                if (m.is_drained() || !state->is_open.load(std::memory_order_relaxed)) {
                    op->set_result(m.close_reason());
                    return step::done;
                }
                return m.wait_to_receive(*op) ? step::waits : step::again;
            });
            if (s == step::waits) {
                keep->broker().flush_idle();
                return;
            }
            if (s == step::done) {
                if (record != 0) {
                    keep->broker().make_written(record);
                }
                op->base::complete();
                return;
            }
            Runtime::yield();
        }
    }

    template <class Machine>
    [[nodiscard]] bool unlink(Machine& m) noexcept {
        if (!this->is_linked()) {
            return false;
        }
        m.forget(static_cast<core::receive_waiter<Runtime>&>(*this));
        return true;
    }
    [[nodiscard]] std::vector<delivery_type> take_result() {
        std::vector<delivery_type> all;
        all.reserve(leases_.size());
        for (const auto& l : std::exchange(leases_, {})) {
            all.push_back(delivery_access<T, Runtime>::make(l));
        }
        return all;
    }

private:
    std::vector<core::lease<Runtime>> leases_{};
};

/// A send that waits for room.
template <class T, class Runtime, class Handler>
class async_send_op : public async_op<async_send_op<T, Runtime, Handler>, Runtime, Handler>,
                      public core::send_waiter {
    using base = async_op<async_send_op, Runtime, Handler>;

public:
    async_send_op(
        Handler handler,
        std::shared_ptr<queue_core<Runtime>> q,
        T message,
        std::unique_ptr<railmq::properties> owned,
        railmq::durability wanted)
        : base{std::move(handler), std::move(q)}
        , wanted_{wanted} {
        ::new (static_cast<void*>(space_)) T(std::move(message));
        this->core::waiter::complete = [](core::waiter* w) noexcept {
            auto* op = static_cast<async_send_op*>(static_cast<core::send_waiter*>(w));
            op->holds_ = bool{w->result};
            op->set_result(w->result);
            op->confirm_and_complete();
        };
        this->payload = space_;
        this->props = std::move(owned);
    }
    ~async_send_op() {
        if (holds_) {
            std::destroy_at(std::launder(reinterpret_cast<T*>(space_)));
        }
    }

    static void start(
        Handler handler,
        std::shared_ptr<queue_core<Runtime>> q,
        T message,
        std::unique_ptr<railmq::properties> owned,
        railmq::durability wanted,
        error_code failed) {
        auto* op = base::make(
            std::move(handler), std::move(q), std::move(message), std::move(owned), wanted);
        if (!failed) {
            failed = op->encode();
        }
        if (failed) {
            op->set_result(failed);
            op->base::complete();
            return;
        }
        op->connect();
        const auto keep = op->queue_;
        op->use_timer();
        const bool done = keep->locked_and_current([&](auto& m, time_point now, auto& fx) {
            if (const errc why = m.is_closed() ? errc{} : keep->check_room(op->bytes_.size());
                why != errc{}) {
                m.count_refused(why, now, fx);
                op->set_result(why);
                return true;
            }
            fx.encoded = op->bytes_;
            fx.wanted_at = &op->core::waiter::record;
            const errc e = m.send(op->payload, op->props, now, fx, op->id);
            if (e == errc::queue_full && m.options().overflow == overflow_policy::wait) {
                m.wait_to_send(*op, now, fx);
                return false;
            }
            op->holds_ = e != errc{};
            if (e != errc{}) {
                op->set_result(e);
            }
            return true;
        });
        if (done) {
            op->confirm_and_complete();
        }
    }

    template <class Machine>
    [[nodiscard]] bool unlink(Machine& m) noexcept {
        if (!this->is_linked()) {
            return false;
        }
        m.forget(static_cast<core::send_waiter&>(*this));
        return true;
    }
    [[nodiscard]] receipt take_result() const noexcept { return {this->id}; }

private:
    /// The bytes that the message is kept as. Its codec's exceptions end here, since there is
    /// nobody to throw to.
    [[nodiscard]] error_code encode() noexcept {
        if constexpr (encodable<T>) {
            if (this->queue_->is_kept()) {
                try {
                    codec<T>::encode(*std::launder(reinterpret_cast<T*>(space_)), bytes_);
                } catch (...) {
                    return errc::invalid_argument;
                }
                this->encoded = bytes_;
            }
        }
        return {};
    }
    /// Completes when the message is as safe as it has to be. Waiting for a device blocks a thread:
    /// one of the system's, never one of the handler's.
    void confirm_and_complete() {
        if (holds_ || !this->queue_->is_kept()) {
            base::complete();
            return;
        }
        const auto confirm = [this] {
            auto& owner = this->queue_->broker();
            error_code ec;
            if (owner.confirm(this->core::waiter::record, wanted_, ec)) {
                owner.template use_async_timer<wake_up_timer<Runtime>>();
            }
            if (ec) {
                this->set_result(ec);
            }
            base::complete();
        };
        if (Runtime::concurrent && wanted_.level() == durability_level::synced) {
            boost::asio::post(boost::asio::system_executor{}, confirm);
        } else {
            confirm();
        }
    }

    alignas(T) std::byte space_[sizeof(T)];
    bool holds_ = true;
    railmq::durability wanted_{};
    std::vector<std::byte> bytes_{};
};

} // namespace railmq::detail
