// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/delivery.hpp>
#include <railmq/detail/elements.hpp>
#include <railmq/detail/joint_logs.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log_consumer.hpp>
#include <railmq/log_delivery.hpp>
#include <railmq/log_producer.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/receipt.hpp>
#include <railmq/producer.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq {

/// Sends to any queues, logs and topics of a broker, acknowledgements of deliveries from any of
/// them, and commits of groups, that happen together or not at all: `auto tx = broker.begin()`.
///
/// Nothing of it is stored before `commit`, so no reader has to know of transactions; and then all
/// of it is there, also after a crash: it is one record of the journal. Until then the transaction
/// owns what it was given: a message, or a delivery, which stays held. (Readers of several queues
/// or partitions take no common lock: one may see a part a moment before another sees the rest.)
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
        , acks_{std::exchange(other.acks_, {})}
        , logs_{std::exchange(other.logs_, {})}
        , places_{std::exchange(other.places_, 0)} {}
    basic_transaction& operator=(basic_transaction&& other) noexcept {
        if (this != &other) {
            abort();
            broker_ = std::move(other.broker_);
            sends_ = std::exchange(other.sends_, {});
            acks_ = std::exchange(other.acks_, {});
            logs_ = std::exchange(other.logs_, {});
            places_ = std::exchange(other.places_, 0);
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
        auto held = std::make_unique<detail::held_value_of<T>>(std::forward<U>(value));
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
        auto encoded = to.encode(held->value.ref());
        s.encoded.assign(encoded.begin(), encoded.end());
        to.spare_buffer() = std::move(encoded); // the thread's, which needs it again
        s.bytes = payload_size<T>::of(held->value.ref());
        s.is_delayed = props != nullptr && props->delay > duration::zero();
        s.props = std::move(props);
        s.held = std::move(held);
        s.place = places_;
        sends_.push_back(std::move(s));
        ++places_;
    }

    /// Keeps a record to be appended to a log, or sent to a topic, by `commit`. Its partition is
    /// chosen now. What goes to one partition is appended as one, in the order of these calls: no
    /// record of others is in between. Numbers of an idempotent producer are given by `commit`;
    /// with `append_options::sequence`, that of the first record, the others follow. Records that
    /// were stored before are `duplicate_of` these, and the rest of the transaction happens.
    ///
    /// Errors, thrown as `system_error`: those that a send would report at once; `invalid_argument`
    /// also for a producer of another broker, and where a transaction has records of another
    /// idempotent producer, or of one that is none, for the same partition;
    /// `sequence_out_of_order` for numbers or expected offsets that cannot come one behind the
    /// other. What the codec throws is passed on. After any of them the transaction is as it was.
    template <class T>
    void send(
        basic_log_producer<T, Runtime>& to,
        std::string_view key,
        std::type_identity_t<T> value,
        append_options o = {}) {
        keep(to, key, &value, nullptr, o);
    }
    template <class T>
    void send(
        basic_log_producer<T, Runtime>& to,
        std::string_view key,
        std::type_identity_t<T> value,
        properties p,
        append_options o = {}) {
        keep(to, key, &value, &p, o);
    }
    template <class T>
    void
    send(basic_log_producer<T, Runtime>& to, std::type_identity_t<T> value, append_options o = {}) {
        keep(to, {}, &value, nullptr, o);
    }
    template <class T>
    void send(
        basic_log_producer<T, Runtime>& to,
        std::type_identity_t<T> value,
        properties p,
        append_options o = {}) {
        keep(to, {}, &value, &p, o);
    }
    template <class T>
    void send_tombstone(
        basic_log_producer<T, Runtime>& to, std::string_view key, append_options o = {}) {
        keep<T>(to, key, nullptr, nullptr, o);
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

    /// The same of a record that a member of a group was handed out: its partition is committed,
    /// by `commit`, up to the lowest record that is not acknowledged. The delivery can be read on,
    /// and settles nothing any more. Throws also `invalid_argument` for one of a consumer without a
    /// group, where there is nothing to commit.
    template <class T>
    void ack(basic_log_delivery<T, Runtime>& d) {
        if (d.reader_ == nullptr || d.is_settled_) {
            throw system_error(
                make_error_code(errc::stale_delivery), "an ack in a transaction: it is settled");
        }
        if (broker_ == nullptr || &d.reader_->log().broker() != broker_.get() ||
            !d.reader_->has_group()) {
            throw system_error(
                make_error_code(errc::invalid_argument),
                "an ack in a transaction: the record is not one of a group of this broker");
        }
        const auto& l = d.lease_;
        logs_.ack(d.reader_, {l.partition, l.epoch, l.entry.offset});
        d.is_settled_ = true;
    }
    template <class T>
    void ack(basic_log_delivery<T, Runtime>&& d) {
        ack(d);
    }
    /// Notes how far everything is acknowledged that this consumer was handed out, to be committed
    /// in its group by `commit`. These acknowledgements stay what they are when the transaction is
    /// dropped; the committed positions do not move then. By the consumer's thread. Throws
    /// `closed`; `invalid_argument` for a consumer of another broker, without a group, or with
    /// `auto_commit`, which would commit without the transaction.
    template <class T>
    void commit_offsets(basic_log_consumer<T, Runtime>& of) {
        const auto& reader = of.reader_;
        if (broker_ == nullptr || reader == nullptr || !reader->is_open()) {
            throw system_error(make_error_code(errc::closed), "a commit in a transaction");
        }
        if (&reader->log().broker() != broker_.get() || !reader->has_group() ||
            reader->options().auto_commit) {
            throw system_error(
                make_error_code(errc::invalid_argument),
                "a commit in a transaction: the consumer is no member of a group of this broker, "
                "or commits by itself");
        }
        logs_.commit_to(reader, reader->marks());
    }

    /// Does all of it, and returns the receipts of the sends, in their order, when everything is as
    /// safe as the most careful of its producers wants it. Afterwards the transaction is empty and
    /// can be used again.
    ///
    /// Errors, after which nothing has happened and the transaction is as it was:
    ///  - `queue_full`, as it never waits for room; `memory_limit`, `no_space`;
    ///  - `closed`; `not_found` when a log was deleted; `message_too_large`; `journal_failed` of a
    ///    journal that failed before;
    ///  - `sequence_out_of_order`: a log has another end than a record expects, or numbers of an
    ///    idempotent producer do not follow; or a record is to be acknowledged while one before it
    ///    in its partition is still in work, and would come again without it;
    ///  - those after which it can never be done: `stale_delivery`, when a lease was lost and its
    ///    message is somebody else's, or a partition was lost or sought in; `fenced`, when a
    ///    partition is another member's, or a member or producer of the same identity has come;
    ///    `unknown_member`, when a member was removed or taken for dead.
    ///
    /// `journal_failed` may also mean that the end is not known, as after a send, and
    /// `memory_limit` that the system had no memory left in the middle of it, where nothing has
    /// happened but the deliveries have failed: then the transaction is empty.
    std::vector<transaction_receipt> commit(error_code& ec);
    std::vector<transaction_receipt> commit() {
        error_code ec;
        auto receipts = commit(ec);
        if (ec) {
            throw system_error(ec, "commit");
        }
        return receipts;
    }

    /// Forgets its sends and gives its deliveries back as failed.
    void abort() noexcept;

    [[nodiscard]] bool is_empty() const noexcept {
        return sends_.empty() && acks_.empty() && logs_.is_empty();
    }

private:
    friend broker_type;
    template <class>
    friend class basic_broker;

    explicit basic_transaction(std::shared_ptr<broker_type> b) noexcept
        : broker_{std::move(b)} {}

    struct pending {
        std::shared_ptr<queue_type> queue{};
        std::unique_ptr<detail::held_value> held{};
        std::unique_ptr<properties> props{};
        std::vector<std::byte> encoded{};
        std::uint64_t bytes = 0;
        bool is_delayed = false;
        railmq::durability wanted{};
        std::size_t place = 0; ///< Among the receipts.
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
    store(pending& p, share& s, time_point now, transaction_receipt& out) noexcept {
        try {
            s.fx.encoded = p.encoded;
            const errc e = s.queue->machine().store_now(p.held->get(), p.props, now, s.fx, out.id);
            if (e == errc{}) {
                p.held->was_moved();
                if (s.fx.was_duplicate) {
                    out.duplicate_of = out.id;
                }
            }
            return e;
        } catch (...) {
            return errc::memory_limit;
        }
    }
    template <class T>
    void keep(
        basic_log_producer<T, Runtime>& to,
        std::optional<std::string_view> key,
        T* value,
        properties* p,
        const append_options& o);
    /// With the queues' locks held: whether all of it can be done there.
    [[nodiscard]] errc check(std::vector<share>& all) const;
    /// With all locks held: does what happens in the queues, as `receipts` say. An error is one of
    /// memory, and nothing has happened.
    [[nodiscard]] errc apply(
        std::vector<share>& all,
        time_point now,
        std::vector<transaction_receipt>& receipts,
        std::vector<typename queue_type::state_type*>& gone) noexcept;
    void serve(share& s, time_point now) noexcept;
    [[nodiscard]] railmq::durability strongest() const;

    std::shared_ptr<broker_type> broker_{};
    std::vector<pending> sends_{};
    std::vector<lease_type> acks_{};
    detail::joint_logs<Runtime> logs_{};
    std::size_t places_ = 0; ///< Of sends.
};

template <class Runtime>
template <class T>
void basic_transaction<Runtime>::keep(
    basic_log_producer<T, Runtime>& to,
    std::optional<std::string_view> key,
    T* value,
    properties* p,
    const append_options& o) {
    static_assert(std::is_nothrow_move_constructible_v<T>);
    typename detail::log_run<Runtime>::record r;
    error_code ec;
    std::uint32_t where = 0;
    if (broker_ == nullptr || to.log_ == nullptr) {
        ec = errc::closed;
    } else if (&to.log_->broker() != broker_.get()) {
        ec = errc::invalid_argument;
    } else {
        where = to.address(r.input, key, value, p, o, ec);
    }
    if (!ec && !r.input.key &&
        (value == nullptr || to.log_->options().cleanup != log_cleanup::remove)) {
        ec = errc::invalid_argument; // as the append would say
    }
    if (!ec) {
        if (r.input.key) {
            r.key = std::make_unique<std::string>(*r.input.key);
            r.input.key = *r.key;
        }
        to.encode(r.input, value, r.encoded);
        if (value != nullptr) {
            r.value = std::make_unique<detail::held_value_of<T>>(std::move(*value));
            r.input.payload = r.value->get();
        }
        r.place = places_;
        detail::log_author<Runtime> by;
        if (to.options_.producer_id) {
            by = {to.shared_, *to.options_.producer_id, to.options_.epoch};
        }
        ec = logs_.send(to.log_, where, std::move(by), r, o, to.durability_);
    }
    if (ec) {
        throw system_error(ec, "a send to a log in a transaction");
    }
    ++places_;
}

template <class Runtime>
auto basic_transaction<Runtime>::shares() const -> std::vector<share> {
    std::vector<std::shared_ptr<queue_type>> queues;
    queues.reserve(sends_.size() + acks_.size());
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
    return sends_.empty() && !logs_.has_sends()
               ? errc{}
               : broker_->check_room(encoded + overhead + logs_.bytes());
}

template <class Runtime>
railmq::durability basic_transaction<Runtime>::strongest() const {
    if (sends_.empty() && !logs_.has_sends()) {
        return broker_->options().durability;
    }
    railmq::durability wanted = sends_.empty() ? logs_.wanted() : sends_.front().wanted;
    wanted = logs_.has_sends() ? stronger(wanted, logs_.wanted()) : wanted;
    for (const pending& s : sends_) {
        wanted = stronger(wanted, s.wanted);
    }
    return wanted;
}

template <class Runtime>
errc basic_transaction<Runtime>::apply(
    std::vector<share>& all,
    time_point now,
    std::vector<transaction_receipt>& receipts,
    std::vector<typename queue_type::state_type*>& gone) noexcept {
    for (auto p = sends_.begin(); p != sends_.end(); ++p) {
        const errc e = store(*p, share_of(all, p->queue.get()), now, receipts[p->place]);
        if (e != errc{}) { // the system has no memory: as if nothing had been stored
            for (auto done = sends_.begin(); done != p; ++done) {
                share& s = share_of(all, done->queue.get());
                if (!receipts[done->place].duplicate_of) {
                    s.queue->machine().take_back(receipts[done->place].id, s.fx);
                }
            }
            return e;
        }
    }
    for (const lease_type& l : acks_) {
        auto* state = static_cast<typename queue_type::state_type*>(l.holder);
        share& s = share_of(all, state->queue.get());
        try {
            (void)s.queue->machine().settle(l, {}, now, s.fx);
        } catch (...) { // no memory to tell of it; the rest happens all the same
            broker_->count_swallowed();
        }
        if (state->is_closed && s.queue->machine().remove_if_unreferenced(*state)) {
            gone.push_back(state); // there is room
        }
    }
    return errc{};
}

template <class Runtime>
void basic_transaction<Runtime>::serve(share& s, time_point now) noexcept {
    const typename queue_type::lower_due_later lower{*s.queue, now};
    try {
        s.queue->machine().serve(now, s.fx);
    } catch (...) { // no memory; whoever comes next serves them
        broker_->count_swallowed();
    }
}

template <class Runtime>
std::vector<transaction_receipt> basic_transaction<Runtime>::commit(error_code& ec) {
    ec = {};
    if (broker_ == nullptr) {
        ec = errc::closed;
        return {};
    }
    if (is_empty()) {
        return {};
    }
    broker_->catch_up();
    const railmq::durability wanted = strongest();
    std::vector<transaction_receipt> receipts(places_);
    std::vector<share> all = shares();
    std::vector<typename queue_type::part> parts;
    std::vector<typename queue_type::state_type*> gone; // consumers whose last handle this was
    gone.reserve(acks_.size());
    parts.reserve(all.size());
    for (share& s : all) {
        parts.push_back({s.queue.get(), &s.fx});
    }
    std::uint64_t record = 0;
    if (!all.empty()) {
        all.front().fx.wanted_at = &record;
    }
    typename detail::joint_logs<Runtime>::entries entries{logs_};
    {
        // Ends last, when no lock is held.
        const struct finishing {
            detail::joint_logs<Runtime>& logs;
            const std::vector<share>& all;
            const typename detail::joint_logs<Runtime>::entries& written;
            ~finishing() { logs.finish(all.empty() ? written.unwritten() : errc{}); }
        } finally{logs_, all, entries};
        const auto producers = logs_.lock_producers();
        std::vector<std::unique_lock<typename Runtime::mutex>> locks;
        locks.reserve(all.size());
        for (share& s : all) {
            locks.emplace_back(s.queue->mutex());
        }
        auto log_locks = logs_.lock_logs();
        const time_point now = broker_->clock().now();
        errc failed = check(all);
        failed = failed == errc{} ? logs_.begin(now) : failed;
        if (failed != errc{}) {
            ec = failed;
            return {};
        }
        // What a queue draws from a log is behind locks that are held here.
        const auto draws_late = [&](const share& s) {
            return !log_locks.empty() && s.queue->is_fed();
        };
        for (share& s : all) {
            s.queue->machine().hold_serving(draws_late(s));
        }
        ec = apply(all, now, receipts, gone);
        if (ec) {
            logs_.undo();
        } else {
            logs_.fill();
        }
        for (share& s : all) {
            serve(s, now);
        }
        if (logs_.is_empty() || ec) {
            queue_type::write_together(parts);
        } else {
            std::vector<std::byte> room;
            record = queue_type::write_together(
                *broker_, parts, all.empty() ? room : all.front().queue->record(), &entries);
            logs_.end(entries);
            logs_.report(receipts);
        }
        for (share& s : all) {
            s.queue->machine().hold_serving(false);
        }
    }
    for (share& s : all) {
        s.queue->finish(s.fx);
        if (!logs_.is_empty() && s.queue->is_fed()) {
            s.queue->serve_waiting();
        }
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
    logs_.clear();
    if (broker_->journal() != nullptr) {
        if (broker_->confirm(record, wanted, ec)) {
            broker_->template use_async_timer<detail::wake_up_timer<Runtime>>();
        }
    }
    sends_.clear();
    places_ = 0;
    return ec ? std::vector<transaction_receipt>{} : receipts;
}

template <class Runtime>
void basic_transaction<Runtime>::abort() noexcept {
    sends_.clear();
    places_ = 0;
    for (const lease_type& l : std::exchange(acks_, {})) {
        const auto keep = queue_of(l);
        if (!keep->settle(l, {core::settlement::kind::nack, {}, {}})) {
            keep->drop_stale(l);
        }
    }
    logs_.abort();
}

} // namespace railmq
