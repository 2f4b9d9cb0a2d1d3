// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/wake_up_timer.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/handle_options.hpp>

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

namespace railmq::detail {

/// What every asynchronous operation of ours does: it lives in memory from the handler's
/// allocator, keeps its executor busy, answers cancellation, and completes on the handler's
/// executor, never inside the initiating call, after its own memory is free.
///
/// `Owner` is what it waits at, and knows the broker; without one it can only fail. `Derived` has
/// `bool withdraw()`, which takes it out of where it waits and says whether it was still there (a
/// derived class that never calls `connect` needs none); and `take_result()`, for the handler.
template <class Derived, class Owner, class Runtime, class Handler>
class async_op {
public:
    using executor_type = boost::asio::associated_executor_t<Handler, boost::asio::any_io_executor>;
    using allocator_type = typename std::allocator_traits<
        boost::asio::associated_allocator_t<Handler>>::template rebind_alloc<Derived>;

    async_op(Handler handler, std::shared_ptr<Owner> owner)
        : handler_{std::move(handler)}
        , owner_{std::move(owner)}
        , executor_{boost::asio::get_associated_executor(
              handler_, owner_ ? owner_->broker().async_executor() : default_async_executor())}
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
        const auto keep = owner_;
        if (self().withdraw()) {
            result_ = boost::asio::error::operation_aborted;
            complete();
        }
    }

    /// Posts the completion. Called once, by whoever took the operation out of where it waited.
    void complete() noexcept {
        leave_timer();
        auto executor = executor_;
        // Until the post has returned: else its context may run the completion, have nothing left
        // to do, and be destroyed by who ran it, while the post still wakes a thread of it.
        [[maybe_unused]] const auto work = work_;
        boost::asio::post(executor, boost::asio::bind_executor(executor, completion{&self()}));
    }

protected:
    /// Lets deadlines pass while this operation waits.
    void use_timer() {
        uses_timer_ = true;
        owner_->broker().template use_async_timer<wake_up_timer<Runtime>>();
    }
    void leave_timer() noexcept {
        if (std::exchange(uses_timer_, false)) {
            owner_->broker().leave_async_timer();
        }
    }
    void set_result(error_code ec) noexcept { result_ = ec; }

    /// Completes when that record of the journal has come as far as it has to. Waiting for a device
    /// blocks a thread: one of the system's, never one of the handler's.
    void confirm_and_complete(std::uint64_t record, durability wanted) {
        const auto confirm = [this, record, wanted] {
            auto& broker = owner_->broker();
            error_code ec;
            if (broker.confirm(record, wanted, ec)) {
                broker.template use_async_timer<wake_up_timer<Runtime>>();
            }
            if (ec) {
                set_result(ec);
            }
            complete();
        };
        if (Runtime::concurrent && wanted.level() == durability_level::synced) {
            boost::asio::post(boost::asio::system_executor{}, confirm);
        } else {
            confirm();
        }
    }

    /// Ends it, and what it holds, without a word to its handler.
    static void destroy(Derived* op) {
        Handler handler{std::move(op->handler_)};
        destroy_with(op, handler);
    }

    Handler handler_;
    std::shared_ptr<Owner> owner_;
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

} // namespace railmq::detail
