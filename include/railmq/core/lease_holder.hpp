// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/slot_ring.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/time.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace railmq::core {

/// A consumer as the core sees it: who holds leases, and how many.
///
/// Settling a message takes `lock` for a few instructions instead of a compare-exchange on the
/// slot: under it, an acknowledgement and an expiry cannot both win, and the counters beside it
/// need no atomic arithmetic. It is the innermost lock; nothing is called while it is held.
template <class Sync>
struct alignas(128) lease_holder {
    template <class T>
    using atomic = typename Sync::template atomic<T>;

    // Touched by whoever takes messages for this consumer.
    typename slot_ring<Sync>::consumer_cache cache{};
    /// Leases taken so far. Written by the consumer's own thread; while it has waiters, only under
    /// the queue's lock.
    atomic<std::uint64_t> taken{0};
    atomic<std::uint64_t> prefetch{100};
    /// Receives that wait in the queue; while there are any, new ones queue up behind them.
    atomic<std::uint32_t> waiting{0};
    /// Any of: it has waiters, is not open, is paused. Then its receives go through the lock.
    atomic<bool> needs_lock{false};
    atomic<bool> is_open{true};
    atomic<bool> is_paused{false};
    /// How long a lease of the fast path lasts from the coarse clock's time: the queue's ack
    /// timeout and the clock's resolution, by which it may be late, so that none ends early.
    duration lease_span{0};
    std::uint32_t number = 0;
    bool acks_on_delivery = false;
    bool is_kept = false; ///< A journal hears of what it settles: many together are one record.

    // Touched by whoever settles.
    alignas(64) typename Sync::short_lock lock{};
    /// Leases that ended, in whatever way. Written under `lock`.
    atomic<std::uint64_t> settled{0};
    /// Handles whose lease was taken away and that still exist.
    std::uint32_t stale_handles = 0;
    /// Somebody wants to know of each settlement: it waits for room, or for the end of work.
    bool wants_settlements = false;

    // Under the queue's lock.
    std::int32_t priority = 0;
    bool is_closed = false; ///< It gave back what it held: its deliveries are stale.
    std::uint64_t joined = 0;
    bool single_active = false;
    duration auto_extend{0};
    std::string name{};
    std::uint64_t slow_settlements = 0; ///< Of the settled ones, those that were not acks.

    /// After `waiting`, `is_open` or `is_paused` has changed, with the queue's lock held.
    void update_needs_lock() noexcept {
        needs_lock.store(
            waiting.load(std::memory_order_relaxed) != 0 ||
                !is_open.load(std::memory_order_relaxed) ||
                is_paused.load(std::memory_order_relaxed),
            std::memory_order_release);
    }
    [[nodiscard]] std::uint64_t held() const noexcept {
        return taken.load(std::memory_order_relaxed) - settled.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t room() const noexcept {
        const std::uint64_t limit = prefetch.load(std::memory_order_relaxed);
        const std::uint64_t now = held();
        return now < limit ? limit - now : 0;
    }
    void count_taken(std::uint64_t n) noexcept {
        taken.store(taken.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    /// Under `lock`.
    void count_settled(std::uint64_t n) noexcept {
        settled.store(settled.load(std::memory_order_relaxed) + n, std::memory_order_release);
    }
    /// Under `lock`: whether no handle of this consumer is left anywhere.
    [[nodiscard]] bool is_unreferenced() const noexcept {
        return held() == 0 && stale_handles == 0;
    }
};

/// A message that was handed out: whose, where, and which hand-out.
template <class Sync>
struct lease {
    lease_holder<Sync>* holder = nullptr;
    chunk<Sync>* in = nullptr;
    slot<Sync>* at = nullptr;
    slot_word word{}; ///< As the slot said when it was handed out; 0 for no lease.

    [[nodiscard]] explicit operator bool() const noexcept { return word != slot_word{}; }
};

/// Calls `f(lease)` for that one and those in the `count - 1` slots behind it.
template <class Sync, class F>
void for_each_in_row(lease<Sync> l, std::uint32_t count, F&& f) {
    for (; count != 0; --count, l.at = slot_after(l.at, 1, l.in->stride)) {
        f(l);
    }
}

} // namespace railmq::core
