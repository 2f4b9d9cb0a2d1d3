// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

namespace railmq {

/// Every duration inside the broker: signed 64-bit nanoseconds, about 292 years either way.
using duration = std::chrono::nanoseconds;

/// The broker's time line. It has no `now()` on purpose: time is always an argument, handed in by
/// a runtime (the steady clock, or a simulation's virtual clock), so nothing below the skin can
/// read a clock by accident.
struct broker_clock {
    using duration = railmq::duration;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<broker_clock, duration>;
    static constexpr bool is_steady = true;
};

/// A moment on the broker's time line: steady, unrelated to the wall clock.
using time_point = broker_clock::time_point;

/// The moment that never comes; an absent deadline.
inline constexpr time_point never = time_point::max();

/// `at + d` without overflow: clamps to `never` and to the earliest moment.
[[nodiscard]] constexpr time_point saturating_add(time_point at, duration d) noexcept {
    const std::int64_t a = at.time_since_epoch().count();
    const std::int64_t b = d.count();
    if (b > 0 && a > std::numeric_limits<std::int64_t>::max() - b) {
        return time_point::max();
    }
    if (b < 0 && a < std::numeric_limits<std::int64_t>::min() - b) {
        return time_point::min();
    }
    return time_point{duration{a + b}};
}

/// Converts any chrono duration to `railmq::duration`, clamping instead of overflowing
/// (`std::chrono::hours::max()` becomes `duration::max()`), so that an absurdly long delay can
/// never turn into a short or a negative one.
template <class Rep, class Period>
[[nodiscard]] constexpr duration
saturating_duration(std::chrono::duration<Rep, Period> d) noexcept {
    using wide = std::chrono::duration<long double, std::nano>;
    const auto n = wide{d}.count();
    if (!(n == n)) {
        return duration::zero(); // not a number
    }
    if (n >= static_cast<long double>(std::numeric_limits<std::int64_t>::max())) {
        return duration::max();
    }
    if (n <= static_cast<long double>(std::numeric_limits<std::int64_t>::min())) {
        return duration::min();
    }
    if constexpr (std::ratio_divide<Period, std::nano>::den == 1) {
        return std::chrono::duration_cast<duration>(d); // whole nanoseconds: exact
    } else {
        return duration{static_cast<std::int64_t>(n)};
    }
}

} // namespace railmq
