// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>

namespace railmq::core {

/// `std::atomic`'s interface over a plain variable, for runtimes with one thread: the same code
/// then compiles to ordinary loads and stores.
template <class T>
class plain_atomic {
public:
    constexpr plain_atomic() noexcept = default;
    constexpr plain_atomic(T value) noexcept
        : value_{value} {} // NOLINT: as std::atomic
    plain_atomic(const plain_atomic&) = delete;
    plain_atomic& operator=(const plain_atomic&) = delete;

    [[nodiscard]] T load(std::memory_order = std::memory_order_seq_cst) const noexcept {
        return value_;
    }
    void store(T value, std::memory_order = std::memory_order_seq_cst) noexcept { value_ = value; }
    T exchange(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
        const T old = value_;
        value_ = value;
        return old;
    }
    bool compare_exchange_weak(
        T& expected,
        T desired,
        std::memory_order = std::memory_order_seq_cst,
        std::memory_order = std::memory_order_seq_cst) noexcept {
        if (value_ == expected) {
            value_ = desired;
            return true;
        }
        expected = value_;
        return false;
    }
    bool compare_exchange_strong(
        T& expected,
        T desired,
        std::memory_order = std::memory_order_seq_cst,
        std::memory_order = std::memory_order_seq_cst) noexcept {
        return compare_exchange_weak(expected, desired);
    }
    T fetch_add(T n, std::memory_order = std::memory_order_seq_cst) noexcept {
        const T old = value_;
        value_ = static_cast<T>(value_ + n);
        return old;
    }
    T fetch_sub(T n, std::memory_order = std::memory_order_seq_cst) noexcept {
        const T old = value_;
        value_ = static_cast<T>(value_ - n);
        return old;
    }
    T fetch_or(T n, std::memory_order = std::memory_order_seq_cst) noexcept {
        const T old = value_;
        value_ = static_cast<T>(value_ | n);
        return old;
    }
    T fetch_and(T n, std::memory_order = std::memory_order_seq_cst) noexcept {
        const T old = value_;
        value_ = static_cast<T>(value_ & n);
        return old;
    }

private:
    T value_{};
};

/// A lock that one thread alone never contends for.
struct null_lock {
    void lock() noexcept {}
    void unlock() noexcept {}
    [[nodiscard]] bool try_lock() noexcept { return true; }
};

/// How the core's shared structures synchronize where there is one thread: not at all.
struct single_threaded {
    template <class T>
    using atomic = plain_atomic<T>;
    using short_lock = null_lock;
    static constexpr bool concurrent = false;
    /// Tells threads apart; there is only one.
    [[nodiscard]] static constexpr const void* this_thread() noexcept { return nullptr; }
};

} // namespace railmq::core
