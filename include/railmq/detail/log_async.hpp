// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/async_op.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_lane.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/detail/log_receive.hpp>
#include <railmq/detail/log_waiter.hpp>
#include <railmq/log_delivery.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/time.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

/// The asynchronous operations of a log's handles.
namespace railmq::detail {

/// A receive of one record, or, with `Many`, of as many as are there, at most `max`, once there is
/// one. It looks on its handler's executor, which is then the consumer's thread.
template <class T, class Runtime, bool Many, class Handler>
class async_log_receive_op : public async_op<
                                 async_log_receive_op<T, Runtime, Many, Handler>,
                                 log_reader<Runtime>,
                                 Runtime,
                                 Handler>,
                             public log_receive<Runtime> {
    using reader_type = log_reader<Runtime>;
    using base = async_op<async_log_receive_op, reader_type, Runtime, Handler>;
    using delivery_type = basic_log_delivery<T, Runtime>;
    using result_type = std::conditional_t<Many, std::vector<delivery_type>, delivery_type>;

public:
    async_log_receive_op(Handler handler, std::shared_ptr<reader_type> reader, std::size_t most)
        : base{std::move(handler), std::move(reader)} {
        this->max = most;
        this->got.reserve(most);
        this->log_waiter<Runtime>::look = [](log_waiter<Runtime>& w) noexcept {
            of(static_cast<log_receive<Runtime>&>(w)).post_step();
        };
        this->log_receive<Runtime>::done = [](log_receive<Runtime>& r) noexcept {
            auto& op = of(r);
            op.set_result(r.result);
            op.base::complete();
        };
    }
    ~async_log_receive_op() {
        for (const auto& l : this->got) { // nobody has seen it: it comes again, and has not failed
            try {
                (void)this->owner_->give_back(l, duration::zero(), false);
            } catch (...) { // no memory: it comes again when its partition is assigned anew
                this->owner_->broker().count_swallowed();
            }
        }
    }

    static void start(Handler handler, std::shared_ptr<reader_type> r, std::size_t max) {
        auto* op = base::make(
            std::move(handler), std::move(r), std::min<std::size_t>(max, std::size_t{1} << 16));
        if (op->owner_ == nullptr || max == 0) {
            op->set_result(op->owner_ == nullptr ? errc::closed : errc::invalid_argument);
            op->base::complete();
            return;
        }
        const auto keep = op->owner_;
        op->connect();
        op->use_timer();
        keep->start(*op);
    }

    [[nodiscard]] bool withdraw() { return this->owner_->withdraw(*this); }
    [[nodiscard]] result_type take_result() {
        result_type all{};
        if constexpr (Many) {
            all.reserve(this->got.size());
            for (auto& l : this->got) {
                all.push_back(log_delivery_access<T, Runtime>::make(this->owner_, std::move(l)));
            }
        } else if (!this->got.empty()) {
            all = log_delivery_access<T, Runtime>::make(this->owner_, std::move(this->got.front()));
        }
        this->got.clear();
        return all;
    }

private:
    /// Owns the operation on its way to another look. Destroyed uncalled, it ends it.
    class another_look {
    public:
        explicit another_look(async_log_receive_op* op) noexcept
            : op_{op} {}
        another_look(another_look&& other) noexcept
            : op_{std::exchange(other.op_, nullptr)} {}
        another_look& operator=(another_look&&) = delete;
        ~another_look() {
            if (op_ != nullptr) {
                const auto keep = op_->owner_;
                op_->needs_step = true; // this was the step
                (void)op_->withdraw();
                op_->leave_timer();
                base::destroy(op_);
            }
        }
        void operator()() {
            const auto keep = op_->owner_;
            keep->step(*std::exchange(op_, nullptr));
        }

    private:
        async_log_receive_op* op_;
    };

    [[nodiscard]] static async_log_receive_op& of(log_receive<Runtime>& r) noexcept {
        return static_cast<async_log_receive_op&>(r);
    }
    void post_step() noexcept {
        auto executor = this->executor_;
        boost::asio::post(executor, boost::asio::bind_executor(executor, another_look{this}));
    }
};

/// A send, which waits for nothing but its durability.
template <class Runtime, class Handler>
class async_log_send_op
    : public async_op<async_log_send_op<Runtime, Handler>, log_core<Runtime>, Runtime, Handler> {
    using log_type = log_core<Runtime>;
    using base = async_op<async_log_send_op, log_type, Runtime, Handler>;

public:
    using base::base;

    /// `send(record, ec)` appends, and says which record of the journal has to be safe; 0: none.
    /// What it throws is the codec's or the partitioner's, and ends here: there is nobody to throw
    /// to.
    template <class Send>
    static void
    start(Handler handler, std::shared_ptr<log_type> log, railmq::durability wanted, Send&& send) {
        auto* op = base::make(std::move(handler), std::move(log));
        std::uint64_t record = 0;
        error_code ec;
        try {
            op->receipt_ = send(record, ec);
        } catch (const std::bad_alloc&) {
            ec = errc::memory_limit;
        } catch (...) {
            ec = errc::invalid_argument;
        }
        op->set_result(ec);
        if (ec || record == 0) {
            op->base::complete();
        } else {
            op->base::confirm_and_complete(record, wanted);
        }
    }
    [[nodiscard]] log_receipt take_result() const noexcept { return receipt_; }

private:
    log_receipt receipt_{};
};

} // namespace railmq::detail
