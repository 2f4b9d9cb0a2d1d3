// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/system_executor.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace railmq::detail {

[[nodiscard]] inline boost::asio::any_io_executor default_async_executor() {
    return boost::asio::system_executor{};
}

/// The one timer that lets a broker's deadlines pass while only asynchronous operations wait: it
/// is set to the broker's next deadline, and set again whenever that moves nearer.
template <class Runtime>
class wake_up_timer : public std::enable_shared_from_this<wake_up_timer<Runtime>> {
public:
    wake_up_timer(std::weak_ptr<broker_core<Runtime>> broker, boost::asio::any_io_executor executor)
        : broker_{std::move(broker)}
        , timer_{std::move(executor)} {}

    /// Sets the timer by the broker's next deadline, or lets it rest while nobody waits. Whoever
    /// changes one of these calls it afterwards, and it looks at both under its own lock, so the
    /// last call leaves the timer right. Any thread.
    void set() {
        const auto broker = broker_.lock();
        if (broker == nullptr) {
            return;
        }
        const std::lock_guard guard{mutex_};
        const time_point due = broker->has_async_users() ? broker->due() : never;
        if (stopped_ || due == armed_for_) {
            return;
        }
        armed_for_ = due;
        if (due == never) {
            timer_.cancel();
            return;
        }
        timer_.expires_at(std::chrono::steady_clock::time_point{due.time_since_epoch()});
        timer_.async_wait([weak = this->weak_from_this()](const error_code& ec) {
            if (const auto self = weak.lock(); self != nullptr && !ec) {
                self->fire();
            }
        });
    }
    void stop() {
        const std::lock_guard guard{mutex_};
        stopped_ = true;
        timer_.cancel();
    }

private:
    void fire() {
        {
            const std::lock_guard guard{mutex_};
            armed_for_ = never;
        }
        if (const auto broker = broker_.lock()) {
            broker->catch_up();
            set();
        }
    }

    std::weak_ptr<broker_core<Runtime>> broker_;
    std::mutex mutex_{};
    boost::asio::steady_timer timer_;
    time_point armed_for_ = never;
    bool stopped_ = false;
};

} // namespace railmq::detail
