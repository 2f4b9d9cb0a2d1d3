// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/delivery.hpp>
#include <railmq/detail/elements.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/receipt.hpp>
#include <railmq/producer.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq {

/// Sends to any queues of a broker, and acknowledgements of deliveries from any of them, that
/// happen together or not at all: `auto tx = broker.begin()`.
///
/// Nothing of it is to be seen before `commit` has returned without an error, and then all of it is
/// there at once, also after a crash: it is one record of the journal. Until then the transaction
/// owns what it was given: a message, or a delivery, which stays held.
///
/// A transaction that ends uncommitted, or with `abort`, forgets its sends and gives its deliveries
/// back as failed, as a delivery does that is dropped.
///
/// Thread safety: one thread at a time.
template <class Runtime>
class basic_transaction {
    using queue_type = detail::queue_core<Runtime>;
    using broker_type = detail::broker_core<Runtime>;
    using lease_type = core::lease<Runtime>;

public:
    /// Belongs to no broker: sends and commits report `closed`.
    basic_transaction() noexcept = default;
    basic_transaction(basic_transaction&& other) noexcept
        : broker_{std::move(other.broker_)}
        , sends_{std::exchange(other.sends_, {})}
        , acks_{std::exchange(other.acks_, {})} {}
    basic_transaction& operator=(basic_transaction&& other) noexcept {
        if (this != &other) {
            abort();
            broker_ = std::move(other.broker_);
            sends_ = std::exchange(other.sends_, {});
            acks_ = std::exchange(other.acks_, {});
        }
        return *this;
    }
    basic_transaction(const basic_transaction&) = delete;
    basic_transaction& operator=(const basic_transaction&) = delete;
    ~basic_transaction() { abort(); }

    /// Keeps a message to be sent by `commit`. Its place among the receipts is the number of sends
    /// before it.
    ///
    /// Errors, thrown as `system_error`: `closed`; `message_too_large`; `invalid_argument` for a
    /// negative delay or time to live, or a producer of another broker. What the value's copy and
    /// its codec throw is passed on. After any of them the transaction is as it was.
    template <class T, std::convertible_to<T> U = T>
    requires std::is_nothrow_move_constructible_v<T>
    void send(basic_producer<T, Runtime>& to, U&& value, properties p = {}) {
        error_code ec;
        auto props = basic_producer<T, Runtime>::own(std::move(p), ec);
        auto held = std::make_unique<message<T>>(std::forward<U>(value));
        if (!ec && (broker_ == nullptr || to.queue_ == nullptr)) {
            ec = errc::closed;
        } else if (!ec && &to.queue_->broker() != broker_.get()) {
            ec = errc::invalid_argument;
        } else if (!ec && payload_size<T>::of(held->value.ref()) > to.max_bytes_) {
            ec = errc::message_too_large;
        }
        if (ec) {
            throw system_error(ec, "a send in a transaction");
        }
        pending s;
        s.queue = to.queue_;
        s.wanted = to.durability_;
        s.encoded = to.encode(held->value.ref());
        s.bytes = payload_size<T>::of(held->value.ref());
        s.is_delayed = props != nullptr && props->delay > duration::zero();
        s.props = std::move(props);
        s.held = std::move(held);
        sends_.push_back(std::move(s));
    }

    /// Takes a delivery over, to be acknowledged by `commit`. Throws `stale_delivery` for one that
    /// is settled already, and `invalid_argument` for one of another broker or of a consumer that
    /// acknowledges on delivery; then it stays with the caller.
    template <class T>
    void ack(basic_delivery<T, Runtime>& d) {
        using access = detail::delivery_access<T, Runtime>;
        if (!d) {
            throw system_error(
                make_error_code(errc::stale_delivery), "an ack in a transaction: it is settled");
        }
        const lease_type& l = access::lease(d);
        const auto* state = static_cast<const detail::consumer_state<Runtime>*>(l.holder);
        if (broker_ == nullptr || state->owner != broker_.get() || l.holder->acks_on_delivery) {
            throw system_error(
                make_error_code(errc::invalid_argument),
                "an ack in a transaction: the delivery is not one that this broker waits for");
        }
        acks_.push_back(l);
        access::let_go(d);
    }
    template <class T>
    void ack(basic_delivery<T, Runtime>&& d) {
        ack(d);
    }

    /// Does all of it, and returns the receipts of the sends when everything is as safe as the most
    /// careful of its producers wants it. Afterwards the transaction is empty and can be used
    /// again.
    ///
    /// Errors, after which nothing has happened and the transaction is as it was: `queue_full`, as
    /// it never waits for room; `closed`; `memory_limit`, `message_too_large`, `no_space`,
    /// `journal_failed` of a journal that failed before; `stale_delivery` when a lease was lost and
    /// its message is somebody else's, so that it can never be committed.
    /// `journal_failed` may also mean that the end is not known, as after a send, and
    /// `memory_limit` that the system had no memory left in the middle of it, where nothing has
    /// happened but the deliveries have failed: then the transaction is empty.
    std::vector<receipt> commit(error_code& ec);
    std::vector<receipt> commit() {
        error_code ec;
        auto receipts = commit(ec);
        if (ec) {
            throw system_error(ec, "commit");
        }
        return receipts;
    }

    /// Forgets its sends and gives its deliveries back as failed.
    void abort() noexcept;

    [[nodiscard]] bool is_empty() const noexcept { return sends_.empty() && acks_.empty(); }

private:
    friend broker_type;
    template <class>
    friend class basic_broker;

    explicit basic_transaction(std::shared_ptr<broker_type> b) noexcept
        : broker_{std::move(b)} {}

    struct message_base {
        message_base() = default;
        message_base(const message_base&) = delete;
        message_base& operator=(const message_base&) = delete;
        virtual ~message_base() = default;
        [[nodiscard]] virtual void* get() noexcept = 0;
        virtual void was_moved() noexcept = 0;
    };
    template <class T>
    struct message final : message_base {
        template <class U>
        explicit message(U&& v)
            : value{std::forward<U>(v)} {}
        [[nodiscard]] void* get() noexcept override { return value.get(); }
        void was_moved() noexcept override { value.was_moved(); }
        detail::movable_value<T> value;
    };
    struct pending {
        std::shared_ptr<queue_type> queue{};
        std::unique_ptr<message_base> held{};
        std::unique_ptr<properties> props{};
        std::vector<std::byte> encoded{};
        std::uint64_t bytes = 0;
        bool is_delayed = false;
        railmq::durability wanted{};
    };
    /// What it does in one queue.
    struct share {
        std::shared_ptr<queue_type> queue;
        core::effects<Runtime> fx;
        std::uint64_t messages = 0;
        std::uint64_t bytes = 0;
        std::uint64_t encoded = 0;
    };

    [[nodiscard]] static const std::shared_ptr<queue_type>& queue_of(const lease_type& l) noexcept {
        return static_cast<detail::consumer_state<Runtime>*>(l.holder)->queue;
    }
    [[nodiscard]] std::vector<share> shares() const;
    [[nodiscard]] static share& share_of(std::vector<share>& all, const queue_type* q) noexcept {
        return *std::find_if(
            all.begin(), all.end(), [&](const share& s) { return s.queue.get() == q; });
    }
    /// With its queue's lock held. Nothing has happened after an error.
    [[nodiscard]] static errc
    store(pending& p, share& s, time_point now, std::vector<receipt>& receipts) noexcept {
        try {
            std::uint64_t id = 0;
            s.fx.encoded = p.encoded;
            const errc e = s.queue->machine().store_now(p.held->get(), p.props, now, s.fx, id);
            if (e == errc{}) {
                p.held->was_moved();
                receipts.push_back({id});
            }
            return e;
        } catch (...) {
            return errc::memory_limit;
        }
    }
    /// With all locks held: whether all of it can be done.
    [[nodiscard]] errc check(std::vector<share>& all) const;
    [[nodiscard]] railmq::durability strongest() const;

    std::shared_ptr<broker_type> broker_{};
    std::vector<pending> sends_{};
    std::vector<lease_type> acks_{};
};

template <class Runtime>
auto basic_transaction<Runtime>::shares() const -> std::vector<share> {
    std::vector<std::shared_ptr<queue_type>> queues;
    for (const pending& s : sends_) {
        queues.push_back(s.queue);
    }
    for (const lease_type& l : acks_) {
        queues.push_back(queue_of(l));
    }
    // Locked in one order, so that two transactions cannot wait for each other.
    std::sort(queues.begin(), queues.end(), [](const auto& a, const auto& b) {
        return a->number() < b->number();
    });
    queues.erase(std::unique(queues.begin(), queues.end()), queues.end());
    std::vector<share> all;
    all.reserve(queues.size());
    for (auto& q : queues) {
        all.push_back({q, q->make_effects()});
    }
    for (const pending& s : sends_) {
        share& in = share_of(all, s.queue.get());
        in.messages += s.is_delayed ? 0 : 1;
        in.bytes += s.is_delayed ? 0 : s.bytes;
        in.encoded += s.encoded.size();
    }
    return all;
}

template <class Runtime>
errc basic_transaction<Runtime>::check(std::vector<share>& all) const {
    std::uint64_t encoded = 0;
    for (share& s : all) {
        const auto in_queue = [&](const pending& p) { return p.queue == s.queue; };
        if (std::any_of(sends_.begin(), sends_.end(), in_queue)) {
            auto& m = s.queue->machine();
            m.hold_sends();
            errc e = m.can_store(s.messages, s.bytes, m.is_waited_for());
            if (e == errc{}) {
                e = m.reserve(s.messages);
            }
            if (e != errc{}) {
                return e;
            }
        }
        encoded += s.encoded;
    }
    for (const lease_type& l : acks_) {
        if (!queue_of(l)->machine().can_ack(l)) {
            return errc::stale_delivery;
        }
    }
    const std::uint64_t overhead = 1024 * (sends_.size() + acks_.size());
    return sends_.empty() ? errc{} : all.front().queue->check_room(encoded + overhead);
}

template <class Runtime>
railmq::durability basic_transaction<Runtime>::strongest() const {
    railmq::durability wanted =
        sends_.empty() ? broker_->options().durability : railmq::durability::accepted;
    for (const pending& s : sends_) {
        const bool is_stronger =
            s.wanted.level() > wanted.level() ||
            (s.wanted.level() == wanted.level() && s.wanted.interval() < wanted.interval());
        wanted = is_stronger ? s.wanted : wanted;
    }
    return wanted;
}

template <class Runtime>
std::vector<receipt> basic_transaction<Runtime>::commit(error_code& ec) {
    ec = {};
    std::vector<receipt> receipts;
    if (broker_ == nullptr) {
        ec = errc::closed;
        return receipts;
    }
    if (is_empty()) {
        return receipts;
    }
    broker_->catch_up();
    const railmq::durability wanted = strongest();
    receipts.reserve(sends_.size());
    std::vector<share> all = shares();
    std::vector<typename queue_type::part> parts;
    std::vector<typename queue_type::state_type*> gone; // consumers whose last handle this was
    gone.reserve(acks_.size());
    for (share& s : all) {
        parts.push_back({s.queue.get(), &s.fx});
    }
    std::uint64_t record = 0;
    all.front().fx.wanted_at = &record;
    {
        std::vector<std::unique_lock<typename Runtime::mutex>> locks;
        locks.reserve(all.size());
        for (share& s : all) {
            locks.emplace_back(s.queue->mutex());
        }
        if (const errc e = check(all); e != errc{}) {
            ec = e;
            return {};
        }
        const time_point now = broker_->clock().now();
        for (pending& p : sends_) {
            ec = store(p, share_of(all, p.queue.get()), now, receipts);
            if (ec) {
                break;
            }
        }
        if (ec) { // the system has no memory: as if nothing had been stored
            for (std::size_t i = 0; i < receipts.size(); ++i) {
                share& s = share_of(all, sends_[i].queue.get());
                s.queue->machine().take_back(receipts[i].id, s.fx);
            }
        }
        for (const lease_type& l : acks_) {
            if (ec) {
                break;
            }
            auto* state = static_cast<typename queue_type::state_type*>(l.holder);
            share& s = share_of(all, state->queue.get());
            (void)s.queue->machine().settle(l, {}, now, s.fx);
            if (state->is_closed && s.queue->machine().remove_if_unreferenced(*state)) {
                gone.push_back(state);
            }
        }
        for (share& s : all) {
            s.queue->machine().serve(now, s.fx);
            const typename queue_type::lower_due_later lower{*s.queue, now};
        }
        queue_type::write_together(parts);
    }
    for (share& s : all) {
        s.queue->finish(s.fx);
    }
    for (auto* state : gone) {
        delete state;
    }
    if (ec) {
        // What was taken back has been moved from, so there is nothing to try again.
        abort();
        return {};
    }
    acks_.clear();
    if (all.front().queue->is_kept()) {
        if (broker_->confirm(record, wanted, ec)) {
            broker_->template use_async_timer<detail::wake_up_timer<Runtime>>();
        }
    }
    sends_.clear();
    return ec ? std::vector<receipt>{} : receipts;
}

template <class Runtime>
void basic_transaction<Runtime>::abort() noexcept {
    sends_.clear();
    for (const lease_type& l : std::exchange(acks_, {})) {
        const auto keep = queue_of(l);
        if (!keep->settle(l, {core::settlement::kind::nack, {}, {}})) {
            keep->drop_stale(l);
        }
    }
}

} // namespace railmq
