// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/railmq.hpp>

#include <algorithm>
#include <chrono>

namespace log_pipeline {

using steady = std::chrono::steady_clock;

/// What could be sent to a queue that is only there to wait on.
struct tick {};

/// Waits through the broker, on a queue that nobody sends to. Closing it ends every wait.
class timer {
public:
    explicit timer(const railmq::queue<tick>& silent)
        : consumer_{silent.consumer()} {}

    /// False: the queue was closed.
    bool wait(steady::duration time) {
        railmq::error_code ec;
        (void)consumer_.receive(time, ec);
        return ec == railmq::errc::timed_out;
    }

private:
    railmq::consumer<tick> consumer_;
};

/// Slows something down, up to a certain moment.
class pace {
public:
    pace(timer t, steady::time_point until)
        : timer_{std::move(t)}
        , until_{until} {}

    /// Waits for as long as `count` things take at that rate, less what they took.
    void spend(std::size_t count, double per_second) {
        const auto now = steady::now();
        if (now >= until_) {
            return;
        }
        const std::chrono::duration<double> time{static_cast<double>(count) / per_second};
        next_ = std::max(next_, now - std::chrono::milliseconds{20}) +
                std::chrono::duration_cast<steady::duration>(time);
        if (next_ - now > std::chrono::milliseconds{2}) {
            timer_.wait(next_ - now);
        }
    }

private:
    timer timer_;
    steady::time_point until_;
    steady::time_point next_{};
};

} // namespace log_pipeline
