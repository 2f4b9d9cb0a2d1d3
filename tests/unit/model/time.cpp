// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/time.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <type_traits>

using namespace std::chrono_literals;
using railmq::duration;
using railmq::never;
using railmq::saturating_add;
using railmq::saturating_duration;
using railmq::time_point;

static_assert(std::is_same_v<duration, std::chrono::nanoseconds>);
static_assert(std::is_same_v<time_point::duration, duration>);
static_assert(!std::is_constructible_v<time_point, std::chrono::steady_clock::time_point>);
static_assert(!std::is_constructible_v<time_point, std::chrono::system_clock::time_point>);
static_assert(railmq::broker_clock::is_steady);

namespace {

template <class Clock>
concept tells_time = requires {
    Clock::now();
};

} // namespace

TEST_CASE("broker_clock: cannot be read") {
    STATIC_REQUIRE_FALSE(tells_time<railmq::broker_clock>);
    STATIC_REQUIRE(tells_time<std::chrono::steady_clock>);
}

TEST_CASE("never: after every other moment") {
    CHECK(never == time_point::max());
    CHECK(time_point{duration::max() - 1ns} < never);
}

TEST_CASE("saturating_add: adds") {
    STATIC_REQUIRE(saturating_add(time_point{5s}, 3s) == time_point{8s});
    STATIC_REQUIRE(saturating_add(time_point{5s}, -8s) == time_point{-3s});
    STATIC_REQUIRE(saturating_add(time_point{-5s}, 8s) == time_point{3s});
    STATIC_REQUIRE(saturating_add(time_point{5s}, 0s) == time_point{5s});
}

TEST_CASE("saturating_add: clamps at both ends") {
    CHECK(saturating_add(never, 1ns) == never);
    CHECK(saturating_add(never, duration::max()) == never);
    CHECK(saturating_add(time_point{1ns}, duration::max()) == never);
    CHECK(saturating_add(time_point{0ns}, duration::max()) == never);
    CHECK(saturating_add(time_point{-1ns}, duration::max()) == time_point{duration::max() - 1ns});
    CHECK(saturating_add(never, -1ns) == time_point{duration::max() - 1ns});
    CHECK(saturating_add(never, duration::min()) == time_point{-1ns});
    CHECK(saturating_add(time_point::min(), -1ns) == time_point::min());
    CHECK(saturating_add(time_point::min(), duration::min()) == time_point::min());
    CHECK(saturating_add(time_point{-1ns}, duration::min()) == time_point::min());
    CHECK(saturating_add(time_point{0ns}, duration::min()) == time_point::min());
    CHECK(saturating_add(time_point::min(), duration::max()) == time_point{-1ns});
}

TEST_CASE("saturating_duration: converts any unit") {
    CHECK(saturating_duration(7ns) == 7ns);
    CHECK(saturating_duration(-3min) == -180s);
    CHECK(saturating_duration(std::chrono::hours{24}) == 86'400s);
    CHECK(saturating_duration(std::chrono::duration<double>{0.25}) == 250ms);
    CHECK(saturating_duration(std::chrono::duration<int, std::pico>{2'000}) == 2ns);
    CHECK(saturating_duration(duration::max()) == duration::max());
    CHECK(saturating_duration(duration::min()) == duration::min());
}

TEST_CASE("saturating_duration: clamps what is too long") {
    CHECK(saturating_duration(std::chrono::hours::max()) == duration::max());
    CHECK(saturating_duration(std::chrono::hours::min()) == duration::min());
    CHECK(saturating_duration(std::chrono::seconds{9'223'372'037}) == duration::max());
    CHECK(saturating_duration(std::chrono::seconds{-9'223'372'037}) == duration::min());
    CHECK(saturating_duration(std::chrono::seconds{9'223'372'036}) < duration::max());
    CHECK(saturating_duration(std::chrono::duration<double>{1e300}) == duration::max());
    CHECK(
        saturating_duration(std::chrono::duration<float>{std::numeric_limits<float>::infinity()}) ==
        duration::max());
    CHECK(saturating_duration(std::chrono::duration<double>{-1e300}) == duration::min());
}

TEST_CASE("durations whose period is no whole number of nanoseconds are converted, not wrapped") {
    using thirds = std::chrono::duration<std::int64_t, std::ratio<1, 3>>;
    REQUIRE(railmq::saturating_duration(thirds{3}) == std::chrono::seconds{1});
    const auto many = railmq::saturating_duration(thirds{10'000'000'000});
    REQUIRE(many > std::chrono::seconds{3'333'333'332});
    REQUIRE(many < std::chrono::seconds{3'333'333'334});
}

TEST_CASE("a duration that is not a number is no time at all") {
    const std::chrono::duration<double> nan{std::numeric_limits<double>::quiet_NaN()};
    REQUIRE(railmq::saturating_duration(nan) == railmq::duration::zero());
}
