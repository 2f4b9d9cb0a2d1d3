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

    // Payloads that can leave memory, since they are in a journal as well

    void charge_payload(std::size_t bytes) noexcept {
        payloads_.fetch_add(bytes, std::memory_order_relaxed);
    }
    void release_payload(std::size_t bytes) noexcept {
        payloads_.fetch_sub(bytes, std::memory_order_relaxed);
    }
    [[nodiscard]] std::size_t payloads() const noexcept {
        return payloads_.load(std::memory_order_relaxed);
    }
    /// Whether payloads should leave: the last quarter is kept for blocks, which cannot.
    [[nodiscard]] bool is_tight() const noexcept {
        return used() + payloads() > limit_ - limit_ / 4;
    }
    [[nodiscard]] std::size_t limit() const noexcept { return limit_; }

private:
    std::size_t limit_;
    typename Sync::template atomic<std::size_t> used_{0};
    typename Sync::template atomic<std::size_t> payloads_{0};
};

} // namespace railmq::core
