// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <boost/intrusive/list.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace railmq::detail {

/// A thread that is parked in some call of a broker.
template <class Runtime>
struct sleeper : boost::intrusive::list_base_hook<> {
    typename Runtime::parking_spot spot{};
};

/// Who keeps a broker's time while nobody calls it: threads that are parked in one of its calls, of
/// which the first wakes for its deadlines, and one timer for asynchronous operations. The base of
/// `broker_core`, which knows the time and what is due.
///
/// Thread safety: any call by any thread.
template <class Runtime, class Broker>
class timekeepers {
public:
    /// Blocks the calling thread until `s` is finished, or until `limit`; meanwhile keeps the
    /// broker's time if nobody else does. A simulation runs instead. True: finished.
    bool block(sleeper<Runtime>& s, time_point limit) {
        if constexpr (Runtime::concurrent) {
            return park(s, limit);
        } else {
            return self().clock().sim().run_while_waiting([&] { return s.spot.finished(); }, limit);
        }
    }

    /// Makes sure that deadlines pass while nobody calls: with a timer on the broker's executor, or
    /// on the system's. Not on that of an operation, which need not live as long as the broker. A
    /// simulation needs none.
    template <class Timer>
    void use_async_timer() {
        if constexpr (Runtime::concurrent) {
            std::unique_lock lock{sleepers_mutex_};
            const bool is_first = async_users_.fetch_add(1) == 0;
            if (timer_stopped_) {
                return;
            }
            if (set_timer_) {
                if (is_first) {
                    const auto set = set_timer_;
                    lock.unlock();
                    set();
                }
                return;
            }
            auto timer = std::make_shared<Timer>(self().weak_from_this(), self().async_executor());
            set_timer_ = [timer] { timer->set(); };
            stop_timer_ = [timer] { timer->stop(); };
            lock.unlock();
            timer->set();
        }
    }
    /// One asynchronous operation has ended. Without any, the timer rests, so that it does not keep
    /// its execution context busy.
    void leave_async_timer() {
        if constexpr (Runtime::concurrent) {
            std::function<void()> set;
            {
                std::lock_guard guard{sleepers_mutex_};
                if (async_users_.fetch_sub(1) == 1) {
                    set = set_timer_;
                }
            }
            if (set) {
                set();
            }
        }
    }
    /// Whether any asynchronous operation waits, and the timer is needed.
    [[nodiscard]] bool has_async_users() const noexcept { return async_users_.load() != 0; }
    void stop_async_timer() {
        std::function<void()> stop;
        {
            std::lock_guard guard{sleepers_mutex_};
            timer_stopped_ = true;
            stop = std::exchange(stop_timer_, nullptr);
            set_timer_ = nullptr;
        }
        if (stop) {
            stop();
        }
    }

    /// Whoever sleeps until the next deadline looks again when that is.
    void wake_timekeeper() {
        std::lock_guard guard{sleepers_mutex_};
        if (!sleepers_.empty()) {
            sleepers_.front().spot.poke();
        }
        if (set_timer_ && has_async_users()) {
            set_timer_();
        }
    }

protected:
    timekeepers() = default;
    ~timekeepers() = default;

private:
    [[nodiscard]] Broker& self() noexcept { return static_cast<Broker&>(*this); }

    bool park(sleeper<Runtime>& s, time_point until) requires Runtime::concurrent {
        std::unique_lock lock{sleepers_mutex_};
        sleepers_.push_back(s);
        for (;;) {
            // The first sleeper wakes for the broker's deadlines, the others for their own only.
            const bool keeps_time = &sleepers_.front() == &s;
            lock.unlock();
            const bool finished = s.spot.wait(keeps_time ? std::min(until, self().due()) : until);
            if (!finished) {
                self().catch_up();
            }
            const bool over = finished || s.spot.finished() || self().clock().now() >= until;
            lock.lock();
            if (over) {
                sleepers_.erase(sleepers_.iterator_to(s));
                if (!sleepers_.empty()) {
                    sleepers_.front().spot.poke();
                }
                lock.unlock();
                return s.spot.finished();
            }
        }
    }

    typename Runtime::mutex sleepers_mutex_{};
    boost::intrusive::list<sleeper<Runtime>> sleepers_{};
    std::function<void()> set_timer_{};
    std::function<void()> stop_timer_{};
    typename Runtime::template atomic<std::uint64_t> async_users_{0};
    bool timer_stopped_ = false;
};

} // namespace railmq::detail
