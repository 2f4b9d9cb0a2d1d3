// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <algorithm>

namespace railmq::detail {

/// How a call waits before it parks its thread: by giving up the time slice again and again, for a
/// bounded time. Each is a system call, about a microsecond in which the other side does a batch
/// of work without having its cache lines looked at.
template <class Runtime>
class patience {
    using clock_type = typename Runtime::clock;

public:
    /// Lasts for `length`, and not beyond `limit`. In a simulation nobody else runs: none.
    patience(const clock_type& clock, duration length, time_point limit) noexcept
        : clock_{clock} {
        if constexpr (Runtime::concurrent) {
            if (length > duration::zero()) {
                end_ = std::min(limit, saturating_add(clock.now(), length));
            }
        }
    }

    [[nodiscard]] bool is_over() const noexcept { return end_ == time_point::min(); }

    /// Waits once. False: the time is over, and every later call is false.
    bool wait() noexcept {
        if (is_over()) {
            return false;
        }
        Runtime::yield();
        ++turns_;
        if (end_ != never && clock_.now() >= end_) {
            end_ = time_point::min();
        }
        return true;
    }
    /// Now and then, when it pays to look beyond the fast path as well.
    [[nodiscard]] bool is_turn_to_look() const noexcept { return is_over() || turns_ % 16 == 0; }

private:
    const clock_type& clock_;
    time_point end_ = time_point::min();
    unsigned turns_ = 0;
};

} // namespace railmq::detail
