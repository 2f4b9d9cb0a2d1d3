// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/timekeepers.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace railmq::detail {

/// A reader that waits for records, for its group, or for a change by another thread: a thread that
/// is parked, or an asynchronous receive.
template <class Runtime>
struct log_waiter {
    enum class state_type : std::uint8_t {
        looks, ///< It has itself listed, and is not waiting yet.
        waits, ///< Whoever wakes it has it look again.
        woken,
    };
    sleeper<Runtime> thread{};
    /// Has it look again, on its executor; null: it is a thread.
    void (*look)(log_waiter&) noexcept = nullptr;
    typename Runtime::template atomic<state_type> state{state_type::woken};
    log_waiter* next_woken = nullptr;
};

/// Who was woken under a lock. Threads are woken at once; what looks again on an executor is sent
/// there when the list ends, which is to be when the lock is free: it may be anybody's code.
template <class Runtime>
class woken_list {
public:
    using waiter_type = log_waiter<Runtime>;

    woken_list() = default;
    woken_list(const woken_list&) = delete;
    woken_list& operator=(const woken_list&) = delete;
    ~woken_list() { send(); }
    /// The same before the end.
    void send() noexcept {
        while (first_ != nullptr) {
            waiter_type& w = *std::exchange(first_, first_->next_woken);
            w.look(w);
        }
    }

    /// With a lock held that keeps it there. A thread that sees itself woken takes that lock before
    /// it goes; an asynchronous receive does not go before it has looked.
    void wake(waiter_type& w) noexcept {
        using state = typename waiter_type::state_type;
        if (w.look == nullptr) {
            w.thread.spot.finish();
        } else if (w.state.exchange(state::woken) == state::waits) {
            w.next_woken = first_;
            first_ = &w;
        }
    }

private:
    waiter_type* first_ = nullptr;
};

/// Readers that wait for the same thing.
///
/// Thread safety: with the lock held of whatever they wait for.
template <class Runtime>
class log_wait_list {
public:
    /// Throws `std::bad_alloc`.
    void add(log_waiter<Runtime>& w) { all_.push_back(&w); }
    /// Does nothing when it was woken.
    void remove(log_waiter<Runtime>& w) noexcept { std::erase(all_, &w); }
    void wake_all(woken_list<Runtime>& woken) noexcept {
        for (log_waiter<Runtime>* w : all_) {
            woken.wake(*w);
        }
        all_.clear();
    }

private:
    std::vector<log_waiter<Runtime>*> all_{};
};

} // namespace railmq::detail
