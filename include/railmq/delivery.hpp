// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/death.hpp>
#include <railmq/model/properties.hpp>

#include <boost/container/static_vector.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq {

namespace detail {

/// The library's own way into a delivery.
template <class T, class Runtime>
struct delivery_access {
    using delivery_type = basic_delivery<T, Runtime>;

    [[nodiscard]] static delivery_type make(const core::lease<Runtime>& l) noexcept {
        return make(l.holder, l.in, l.at, l.word);
    }
    [[nodiscard]] static delivery_type make(
        core::lease_holder<Runtime>* holder,
        core::chunk<Runtime>* in,
        core::slot<Runtime>* at,
        core::slot_word word) noexcept {
        return delivery_type(holder, in, at, word);
    }
    [[nodiscard]] static const core::lease<Runtime>& lease(const delivery_type& d) noexcept {
        return d.lease_;
    }
    /// Its lease is somebody else's business now.
    static void let_go(delivery_type& d) noexcept { d.lease_ = {}; }
    /// Acknowledges deliveries from `first` on for as long as they are alike, nothing about them is
    /// special, and their payload needs no ending. Returns the first one that is left.
    static delivery_type* settle_plain(delivery_type* first, delivery_type* last) noexcept {
        constexpr std::uint64_t special =
            core::slot_word::slow_bit | core::slot_word::details_bit | core::slot_word::stale_bit;
        const core::slot_word word = first->lease_.word;
        if (!*first || (word.bits() & special) != 0 || first->lease_.holder->acks_on_delivery) {
            return first;
        }
        auto& holder = *first->lease_.holder;
        const std::lock_guard guard{holder.lock};
        if (holder.wants_settlements) {
            return first;
        }
        auto* d = first;
        for (; d != last; ++d) {
            const auto& l = d->lease_;
            if (l.word != word || l.holder != &holder ||
                l.at->word.load(std::memory_order_relaxed) != word.bits()) {
                break;
            }
            l.at->store(core::slot_word{core::slot_state::done});
            d->lease_.word = {};
        }
        holder.count_settled(static_cast<std::uint64_t>(d - first));
        return d;
    }
    /// Acknowledges deliveries of one consumer of a kept queue together, which takes one record.
    /// Returns how many it looked at: none, where they are not such.
    static std::size_t
    ack_kept(delivery_type* first, delivery_type* last, std::size_t& settled) noexcept {
        const auto* const holder = first->lease_.holder;
        if (!*first || !holder->is_kept || holder->acks_on_delivery) {
            return 0;
        }
        boost::container::static_vector<core::lease<Runtime>, 128> leases; // nothing can fail
        for (auto* d = first; d != last && *d && d->lease_.holder == holder; ++d) {
            if (leases.size() == leases.capacity()) {
                break;
            }
            leases.push_back(d->lease_);
        }
        first->queue().ack_together(
            std::span<const core::lease<Runtime>>{leases.data(), leases.size()},
            [&](std::size_t i) {
                first[i].lease_ = {};
                ++settled;
            });
        for (auto* d = first; d != first + leases.size(); ++d) {
            if (*d) { // too late
                d->lease_.word = d->lease_.word.with_flags(core::slot_word::stale_bit);
            }
        }
        return leases.size();
    }
    static bool settle(delivery_type& d, core::settlement s) noexcept {
        return d.settle_slow(std::move(s));
    }
};

/// Messages that lie in slots in a row, as deliveries from which a vector constructs its elements.
/// Each is to be asked for once, since it is the only handle of its message.
template <class T, class Runtime>
class delivered_run {
    static constexpr std::size_t stride = core::slot_stride(sizeof(T), alignof(T));

public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = basic_delivery<T, Runtime>;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = value_type;

    explicit delivered_run(const core::lease<Runtime>& first) noexcept
        : holder_{first.holder}
        , in_{first.in}
        , at_{first.at}
        , word_{first.word} {}

    [[nodiscard]] value_type operator*() const noexcept {
        // Field by field: as a whole it would go through memory.
        return delivery_access<T, Runtime>::make(holder_, in_, at_, word_);
    }
    delivered_run& operator+=(difference_type n) noexcept {
        at_ = core::slot_after(at_, n, stride);
        return *this;
    }
    delivered_run& operator++() noexcept { return *this += 1; }
    delivered_run& operator--() noexcept { return *this += -1; }
    [[nodiscard]] friend delivered_run operator+(delivered_run r, difference_type n) noexcept {
        return r += n;
    }
    [[nodiscard]] friend difference_type
    operator-(const delivered_run& a, const delivered_run& b) noexcept {
        const auto bytes =
            reinterpret_cast<const std::byte*>(a.at_) - reinterpret_cast<const std::byte*>(b.at_);
        return bytes / static_cast<difference_type>(stride);
    }
    [[nodiscard]] friend bool operator==(const delivered_run& a, const delivered_run& b) noexcept {
        return a.at_ == b.at_;
    }

private:
    core::lease_holder<Runtime>* holder_;
    core::chunk<Runtime>* in_;
    core::slot<Runtime>* at_;
    core::slot_word word_;
};

} // namespace detail

/// A message in the hands of a consumer, to be settled exactly once: `ack`, `nack`, `reject`,
/// `release` or `take`. Destroyed unsettled it is a `nack`.
///
/// A settlement returns whether *this call* settled the message. It returns false when the
/// delivery was settled before, or when its deadline passed and the message has been handed out
/// again or has left: then it changes nothing. A late `ack` or `reject` is still good as long as
/// nobody else has been handed the message.
///
/// The value can be read in place until this delivery settles it, even when its deadline has
/// passed meanwhile. After that `value` throws `system_error` with `errc::stale_delivery`.
///
/// Thread safety: one delivery belongs to one thread at a time; different deliveries of one
/// consumer may be settled by different threads. A delivery keeps the queue alive.
template <class T, class Runtime>
class basic_delivery {
    using lease_type = core::lease<Runtime>;
    using state_type = detail::consumer_state<Runtime>;

public:
    using value_type = T;

    /// Holds nothing.
    basic_delivery() noexcept = default;
    basic_delivery(basic_delivery&& other) noexcept
        : lease_{other.lease_} {
        other.lease_.word = {};
    }
    basic_delivery& operator=(basic_delivery&& other) noexcept {
        if (this != &other) {
            reset();
            lease_ = other.lease_;
            other.lease_.word = {};
        }
        return *this;
    }
    basic_delivery(const basic_delivery&) = delete;
    basic_delivery& operator=(const basic_delivery&) = delete;
    ~basic_delivery() {
        if (lease_) [[unlikely]] {
            reset();
        }
    }
    /// Whether it still holds a message, settled by nobody through this delivery.
    [[nodiscard]] explicit operator bool() const noexcept { return bool{lease_}; }

    /// The message. Throws `errc::stale_delivery` once this delivery is settled.
    [[nodiscard]] const T& value() const {
        require();
        return *payload();
    }
    [[nodiscard]] const T& operator*() const { return value(); }
    [[nodiscard]] const T* operator->() const { return &value(); }

    /// The properties it was sent with; empty ones if there were none.
    [[nodiscard]] const railmq::properties& properties() const {
        static const railmq::properties none{};
        const core::message_details* d = details();
        return d != nullptr && d->props != nullptr ? *d->props : none;
    }
    /// Its key, if it has one.
    [[nodiscard]] const std::optional<std::string>& key() const { return properties().key; }
    /// The number that `receipt::id` told the producer.
    [[nodiscard]] std::uint64_t id() const {
        require();
        return core::message_store<Runtime>::public_id({lease_.in, lease_.at});
    }
    /// How often the message has been handed out, this time included.
    [[nodiscard]] std::uint32_t delivery_count() const {
        require();
        return lease_.word.tag();
    }
    /// How often it has failed; releases and closed consumers are no failures.
    [[nodiscard]] std::uint32_t failure_count() const;
    /// False guarantees that nobody has ever been handed this message before.
    [[nodiscard]] bool redelivered() const { return delivery_count() > 1; }
    /// When it was sent, on the broker's clock, to its coarse resolution.
    [[nodiscard]] time_point enqueued_at() const {
        require();
        using store = core::message_store<Runtime>;
        const core::place<Runtime> p{lease_.in, lease_.at};
        if (const auto sent = store::enqueued_at(p)) {
            return *sent;
        }
        return queue().locked(
            [&](auto&, time_point, auto&) { return store::enqueued_at(p).value(); });
    }
    /// When it was first handed out.
    [[nodiscard]] time_point first_delivered_at() const;
    /// When the lease ends; none once it is lost.
    [[nodiscard]] std::optional<time_point> ack_deadline() const;
    /// How it died before, newest first; empty for a message that never did.
    [[nodiscard]] const std::vector<death>& deaths() const {
        static const std::vector<death> none{};
        const core::message_details* d = details();
        return d != nullptr && d->deaths != nullptr ? d->deaths->entries() : none;
    }

    /// How it died the very first time, which never changes; none if it never did.
    [[nodiscard]] std::optional<railmq::first_death> first_death() const {
        const core::message_details* d = details();
        return d != nullptr && d->deaths != nullptr ? d->deaths->first() : std::nullopt;
    }

    /// Done: the message leaves the queue.
    RAILMQ_ALWAYS_INLINE bool ack() noexcept;
    /// Failed: handed out again by the queue's retry policy, or dead-lettered.
    bool nack() noexcept { return settle_slow({core::settlement::kind::nack, {}, {}}); }
    /// Failed: handed out again after `wait`; the attempt counts.
    template <class Rep, class Period>
    bool nack(std::chrono::duration<Rep, Period> wait) noexcept {
        return settle_slow({core::settlement::kind::nack, saturating_duration(wait), {}});
    }
    /// Will never work: dead-lettered at once, with the reason.
    bool reject(std::string reason = {}) noexcept {
        return settle_slow({core::settlement::kind::reject, {}, std::move(reason)});
    }
    /// Not a failure: back to its place at once, for anyone.
    bool release() noexcept { return settle_slow({core::settlement::kind::release, {}, {}}); }

    /// Gives the lease `time` from now on: shorter or longer than what was left. False when it is
    /// lost, or `time` is negative; then nothing has changed.
    template <class Rep, class Period>
    bool extend(std::chrono::duration<Rep, Period> time);

    /// Moves the value out and acknowledges. Throws `errc::stale_delivery` when the lease is lost.
    /// While an earlier holder, whose deadline passed, still has its delivery, the value is copied
    /// instead; a type that cannot be copied then throws `errc::would_block`.
    [[nodiscard]] T take();

    /// Asks to stop once this delivery is settled or lost, or when the queue is deleted or the
    /// broker closed. While these only wait for running work, it does not.
    [[nodiscard]] std::stop_token stop_token() const;

private:
    friend struct detail::delivery_access<T, Runtime>;

    basic_delivery(
        core::lease_holder<Runtime>* holder,
        core::chunk<Runtime>* in,
        core::slot<Runtime>* at,
        core::slot_word word) noexcept
        : lease_{holder, in, at, word} {}

    static constexpr std::size_t offset = core::payload_offset(alignof(T));

    void require() const {
        if (!lease_) {
            throw system_error(
                make_error_code(errc::stale_delivery), "the delivery is settled or was moved from");
        }
    }
    [[nodiscard]] T* payload() const noexcept {
        return std::launder(reinterpret_cast<T*>(reinterpret_cast<std::byte*>(lease_.at) + offset));
    }
    [[nodiscard]] const core::message_details* details() const {
        require();
        return core::message_store<Runtime>::details_of({lease_.in, lease_.at});
    }
    [[nodiscard]] detail::queue_core<Runtime>& queue() const noexcept {
        return *static_cast<state_type*>(lease_.holder)->queue;
    }
    RAILMQ_ALWAYS_INLINE bool begin_fast_ack() noexcept;
    void finish_fast_ack() noexcept;
    RAILMQ_NOINLINE bool settle_slow(core::settlement s) noexcept;
    RAILMQ_COLD void reset() noexcept;

    [[nodiscard]] bool is_stale() const noexcept {
        return (lease_.word.bits() & core::slot_word::stale_bit) != 0;
    }

    lease_type lease_{};
};

template <class T, class Runtime>
bool basic_delivery<T, Runtime>::ack() noexcept {
    if (!lease_ || lease_.holder->acks_on_delivery) {
        return false; // with ack-on-delivery it was acknowledged before
    }
    if (!begin_fast_ack()) {
        return settle_slow({});
    }
    if (std::is_trivially_destructible_v<T> && !lease_.word.has_details()) {
        lease_.at->store(core::slot_word{core::slot_state::done});
        lease_.holder->count_settled(1);
        lease_.holder->lock.unlock();
        lease_.word = {};
        return true;
    }
    lease_.at->store(lease_.word.with(core::slot_state::settling));
    lease_.holder->lock.unlock();
    finish_fast_ack();
    return true;
}

/// Whether the lease is held and can be settled without the queue's lock; then the holder's lock
/// is locked.
template <class T, class Runtime>
bool basic_delivery<T, Runtime>::begin_fast_ack() noexcept {
    if (lease_.word.is_slow()) {
        return false;
    }
    auto& holder = *lease_.holder;
    holder.lock.lock();
    if (holder.wants_settlements ||
        lease_.at->word.load(std::memory_order_relaxed) != lease_.word.bits()) {
        holder.lock.unlock();
        return false;
    }
    return true;
}

/// Ends the message, whose slot says `settling`: user code runs, so no lock is held.
template <class T, class Runtime>
void basic_delivery<T, Runtime>::finish_fast_ack() noexcept {
    if (lease_.word.has_details()) {
        // Whoever looks at the slot under the queue's lock still sees that it had details.
        auto* const gone = lease_.at->details();
        lease_.at->set_details(nullptr);
        delete gone;
    }
    std::destroy_at(payload());
    auto& holder = *lease_.holder;
    holder.lock.lock();
    lease_.at->store(core::slot_word{core::slot_state::done});
    if (!holder.wants_settlements) {
        holder.count_settled(1);
        holder.lock.unlock();
    } else { // asked for meanwhile
        holder.lock.unlock();
        queue().count_settled(lease_);
    }
    lease_ = {};
}

template <class T, class Runtime>
bool basic_delivery<T, Runtime>::settle_slow(core::settlement s) noexcept {
    if (!lease_ || lease_.holder->acks_on_delivery) {
        return false;
    }
    if (!queue().settle(lease_, std::move(s))) {
        lease_.word = lease_.word.with_flags(
            core::slot_word::stale_bit); // the value stays readable until this delivery goes
        return false;
    }
    lease_ = {};
    return true;
}

template <class T, class Runtime>
void basic_delivery<T, Runtime>::reset() noexcept {
    if (!lease_) {
        return;
    }
    if (lease_.holder->acks_on_delivery) {
        (void)queue().settle(lease_, {});
    } else if (is_stale() || !settle_slow({core::settlement::kind::nack, {}, {}})) {
        queue().drop_stale(lease_);
    }
    lease_ = {};
}

template <class T, class Runtime>
std::uint32_t basic_delivery<T, Runtime>::failure_count() const {
    if (details() == nullptr) {
        return 0;
    }
    // Under the lock, since the message may be failing this moment: its deadline may have passed.
    return queue().locked([&](auto&, time_point, auto&) { return details()->failures.failures; });
}

template <class T, class Runtime>
time_point basic_delivery<T, Runtime>::first_delivered_at() const {
    require();
    return queue().locked([&](auto& m, time_point, auto&) {
        return m.first_handed_out({lease_.in, lease_.at});
    });
}

template <class T, class Runtime>
std::optional<time_point> basic_delivery<T, Runtime>::ack_deadline() const {
    require();
    return queue().locked_and_current(
        [&](auto& m, time_point, auto&) { return m.deadline_of(lease_); });
}

template <class T, class Runtime>
template <class Rep, class Period>
bool basic_delivery<T, Runtime>::extend(std::chrono::duration<Rep, Period> time) {
    const duration d = saturating_duration(time);
    if (!lease_ || d < duration::zero() || lease_.holder->acks_on_delivery) {
        return false;
    }
    auto& q = queue();
    return q.locked_and_current([&](auto& m, time_point now, auto& fx) {
        const bool extended = m.extend(lease_, saturating_add(now, d), now, fx);
        if (extended) {
            lease_.word = lease_.at->load();
        }
        return extended;
    });
}

template <class T, class Runtime>
T basic_delivery<T, Runtime>::take() {
    require();
    // The value is moved straight into the result; only when that is done is the message settled,
    // and if the move throws it is held as before.
    struct ending {
        basic_delivery& d;
        bool is_fast;
        int exceptions = std::uncaught_exceptions();
        ending(basic_delivery& self, bool fast) noexcept
            : d{self}
            , is_fast{fast} {}
        ending(const ending&) = delete;
        ending& operator=(const ending&) = delete;
        ~ending() {
            if (std::uncaught_exceptions() != exceptions) {
                d.queue().locked(
                    [&](auto& m, time_point now, auto&) { m.cancel_take(d.lease_, now); });
            } else if (is_fast) {
                d.finish_fast_ack();
            } else {
                d.queue().finish_take(std::exchange(d.lease_, lease_type{}));
            }
        }
    };
    if (!lease_.holder->acks_on_delivery && lease_.word.pins() == 0 && begin_fast_ack()) {
        // While the slot says `settling` nobody else touches the value.
        lease_.at->store(lease_.word.with(core::slot_state::settling));
        lease_.holder->lock.unlock();
        const ending after{*this, true};
        return T(std::move(*payload()));
    }
    auto& q = queue();
    const bool pinned = q.locked_and_current([&](auto& m, time_point now, auto& fx) {
        if (!m.begin_take(lease_, now, fx)) {
            throw system_error(
                make_error_code(errc::stale_delivery), "the delivery's deadline has passed");
        }
        return lease_.at->load().pins() != 0;
    });
    if constexpr (!std::is_copy_constructible_v<T>) {
        if (pinned) {
            q.locked([&](auto& m, time_point now, auto&) { m.cancel_take(lease_, now); });
            throw system_error(
                make_error_code(errc::would_block),
                "an earlier delivery of this message is still alive and may be reading it");
        }
    }
    const ending after{*this, false};
    if constexpr (std::is_copy_constructible_v<T>) {
        if (pinned) {
            return T(std::as_const(*payload()));
        }
    }
    return T(std::move(*payload()));
}

template <class T, class Runtime>
std::stop_token basic_delivery<T, Runtime>::stop_token() const {
    require();
    return queue().locked_and_current(
        [&](auto& m, time_point, auto&) { return m.stop_token(lease_); });
}

/// Acknowledges every delivery of a range and empties it. Returns how many this call settled:
/// those that were settled before, or lost, do not count.
///
/// Cost: one short lock for a run of deliveries of one consumer, instead of one each.
template <class T, class Runtime, class Allocator>
std::size_t ack_all(std::vector<basic_delivery<T, Runtime>, Allocator>& deliveries) noexcept {
    using access = detail::delivery_access<T, Runtime>;
    std::size_t settled = 0;
    auto* d = deliveries.data();
    auto* const end = d + deliveries.size();
    while (d != end) {
        if constexpr (std::is_trivially_destructible_v<T>) {
            auto* const left = access::settle_plain(d, end);
            settled += static_cast<std::size_t>(left - d);
            if (left != d) {
                d = left;
                continue;
            }
        }
        if (const std::size_t n = access::ack_kept(d, end, settled); n != 0) {
            d += n;
            continue;
        }
        settled += d->ack() ? 1 : 0;
        ++d;
    }
    deliveries.clear();
    return settled;
}

/// Reports every delivery of a range as failed and empties it. Returns how many it settled.
template <class T, class Runtime, class Allocator>
std::size_t nack_all(std::vector<basic_delivery<T, Runtime>, Allocator>& deliveries) noexcept {
    std::size_t settled = 0;
    for (auto& d : deliveries) {
        settled += d.nack() ? 1 : 0;
    }
    deliveries.clear();
    return settled;
}

} // namespace railmq
