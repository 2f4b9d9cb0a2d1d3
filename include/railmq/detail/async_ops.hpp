// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/delivery.hpp>
#include <railmq/detail/async_op.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/model/codec.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/receipt.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace railmq::detail {

/// An asynchronous operation that waits in a queue. `Derived` has `bool unlink(machine)`, called
/// with the queue's lock held, which takes it out and says whether it was still there.
template <class Derived, class Runtime, class Handler>
class async_queue_op : public async_op<Derived, queue_core<Runtime>, Runtime, Handler> {
public:
    using async_op<Derived, queue_core<Runtime>, Runtime, Handler>::async_op;

    [[nodiscard]] bool withdraw() {
        return this->owner_->locked(
            [this](auto& m, time_point, auto&) { return static_cast<Derived&>(*this).unlink(m); });
    }
};

/// A receive of one message.
template <class T, class Runtime, class Handler>
class async_receive_op
    : public async_queue_op<async_receive_op<T, Runtime, Handler>, Runtime, Handler>,
      public core::receive_waiter<Runtime> {
    using base = async_queue_op<async_receive_op, Runtime, Handler>;
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
        const auto keep = op->owner_;
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
    : public async_queue_op<async_receive_batch_op<T, Runtime, Handler>, Runtime, Handler>,
      public core::receive_waiter<Runtime> {
    using base = async_queue_op<async_receive_batch_op, Runtime, Handler>;
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
        const auto keep = op->owner_;
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
class async_send_op : public async_queue_op<async_send_op<T, Runtime, Handler>, Runtime, Handler>,
                      public core::send_waiter {
    using base = async_queue_op<async_send_op, Runtime, Handler>;

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
        const auto keep = op->owner_;
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
            op->is_duplicate = fx.was_duplicate;
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
    [[nodiscard]] receipt take_result() const noexcept { return {this->id, this->is_duplicate}; }

private:
    /// The bytes that the message is kept as. Its codec's exceptions end here, since there is
    /// nobody to throw to.
    [[nodiscard]] error_code encode() noexcept {
        if constexpr (encodable<T>) {
            if (this->owner_->is_kept()) {
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
    /// Completes when the message is as safe as it has to be.
    void confirm_and_complete() {
        if (holds_ || !this->owner_->is_kept()) {
            base::complete();
        } else {
            base::confirm_and_complete(this->core::waiter::record, wanted_);
        }
    }

    alignas(T) std::byte space_[sizeof(T)];
    bool holds_ = true;
    railmq::durability wanted_{};
    std::vector<std::byte> bytes_{};
};

} // namespace railmq::detail
