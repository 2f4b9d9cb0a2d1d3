// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>

namespace railmq::core {

/// The bytes that all message blocks of a broker may take together. Counted by block, so the
/// price per message is nothing.
///
/// Thread safety: safe, when `Sync` is.
template <class Sync>
class memory_budget {
public:
    explicit memory_budget(std::size_t limit) noexcept
        : limit_{limit} {}

    /// Takes `bytes`, or nothing and `false` when that would pass the limit.
    [[nodiscard]] bool try_charge(std::size_t bytes) noexcept {
        std::size_t used = used_.load(std::memory_order_relaxed);
        do {
            if (bytes > limit_ || used > limit_ - bytes) {
                return false;
            }
        } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
        return true;
    }

    /// Takes `bytes` whatever the limit says: for moves that must not fail, such as a dead
    /// letter's.
    void charge(std::size_t bytes) noexcept { used_.fetch_add(bytes, std::memory_order_relaxed); }

    void release(std::size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }

    [[nodiscard]] std::size_t used() const noexcept {
        return used_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::size_t limit() const noexcept { return limit_; }

private:
    std::size_t limit_;
    typename Sync::template atomic<std::size_t> used_{0};
};

} // namespace railmq::core
