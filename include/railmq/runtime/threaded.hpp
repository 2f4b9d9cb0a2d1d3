// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>

#include <time.h>

namespace railmq {

namespace detail {

/// A lock for a few instructions: tries, then gives up the processor at once, since whoever holds
/// it was interrupted while holding it.
class yielding_lock {
public:
    void lock() noexcept {
        while (locked_.exchange(true, std::memory_order_acquire)) {
            std::this_thread::yield();
        }
    }
    void unlock() noexcept { locked_.store(false, std::memory_order_release); }
    [[nodiscard]] bool try_lock() noexcept {
        return !locked_.exchange(true, std::memory_order_acquire);
    }

private:
    std::atomic<bool> locked_{false};
};

[[nodiscard]] inline time_point read_clock(clockid_t id) noexcept {
    timespec t{};
    ::clock_gettime(id, &t);
    return time_point{std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec}};
}

} // namespace detail

/// The production runtime: the steady clock, real locks and atomics, any number of threads.
struct threaded {
    template <class T>
    using atomic = std::atomic<T>;
    using short_lock = detail::yielding_lock;
    using mutex = std::mutex;
    static constexpr bool concurrent = true;

    /// The steady clock, immune to changes of the wall clock.
    class clock {
    public:
        [[nodiscard]] time_point now() const noexcept {
            return detail::read_clock(CLOCK_MONOTONIC);
        }
        /// Not after `now()`, at most `resolution()` before it, and several times cheaper.
        [[nodiscard]] time_point coarse_now() const noexcept {
#ifdef CLOCK_MONOTONIC_COARSE
            return detail::read_clock(CLOCK_MONOTONIC_COARSE);
#else
            return now();
#endif
        }
        [[nodiscard]] duration resolution() const noexcept {
            return resolution_;
        }
        /// What the wall shows: for what is read by another process, or after another boot.
        [[nodiscard]] time_point wall_now() const noexcept {
            return detail::read_clock(CLOCK_REALTIME);
        }

    private:
        [[nodiscard]] static duration read_resolution() noexcept {
#ifdef CLOCK_MONOTONIC_COARSE
            timespec t{};
            if (::clock_getres(CLOCK_MONOTONIC_COARSE, &t) == 0) {
                return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
            }
            return std::chrono::milliseconds{10};
#else
            return duration::zero();
#endif
        }
        duration resolution_ = read_resolution();
    };

    /// Where one thread sleeps until another wakes it.
    class parking_spot {
    public:
        /// Ends the wait for good.
        void finish() {
            const std::lock_guard guard{mutex_};
            finished_ = true;
            woken_.notify_one();
        }
        /// Interrupts one wait, so that the sleeper looks at the clock again.
        void poke() {
            const std::lock_guard guard{mutex_};
            poked_ = true;
            woken_.notify_one();
        }
        /// Sleeps until finished, poked or `until`. True: finished.
        bool wait(time_point until) {
            std::unique_lock lock{mutex_};
            const auto awake = [this] { return finished_ || poked_; };
            if (until == never) {
                woken_.wait(lock, awake);
            } else {
                woken_.wait_until(
                    lock, std::chrono::steady_clock::time_point{until.time_since_epoch()}, awake);
            }
            poked_ = false;
            return finished_;
        }
        [[nodiscard]] bool finished() {
            const std::lock_guard guard{mutex_};
            return finished_;
        }

    private:
        std::mutex mutex_{};
        std::condition_variable woken_{};
        bool finished_ = false;
        bool poked_ = false;
    };

    static void yield() noexcept {
        std::this_thread::yield();
    }
    /// Tells threads apart: an address that no two threads that run have in common.
    [[nodiscard]] static const void* this_thread() noexcept {
        static thread_local const char mark = 0;
        return &mark;
    }

    /// A seed for brokers that were given none.
    [[nodiscard]] static std::uint64_t entropy() {
        std::random_device device;
        return (std::uint64_t{device()} << 32) | device();
    }
};

} // namespace railmq
