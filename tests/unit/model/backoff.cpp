// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/backoff.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::backoff;
using railmq::backoff_list;
using railmq::constant_backoff;
using railmq::duration;
using railmq::exponential_backoff;
using railmq::jitter;
using railmq::linear_backoff;

namespace {

using waits = std::vector<duration>;

constexpr auto most_failures = std::numeric_limits<std::uint32_t>::max();

static_assert(std::regular<backoff>);
static_assert(std::regular<jitter>);
static_assert(std::regular<exponential_backoff>);

/// The waits before retries 1 to `count` without jitter.
waits base_waits(const backoff& policy, std::uint32_t count) {
    waits result;
    for (std::uint32_t n = 1; n <= count; ++n) {
        result.push_back(policy.base_wait(n));
    }
    return result;
}

/// The waits of one message that fails `count` times in a row, jitter included.
waits drawn_waits(const backoff& policy, std::uint32_t count, std::uint64_t seed = 1) {
    railmq::random_engine random{seed};
    waits result;
    duration previous{};
    for (std::uint32_t n = 1; n <= count; ++n) {
        previous = policy.wait(n, previous, random);
        result.push_back(previous);
    }
    return result;
}

/// The waits of `count` messages that all fail for the `n`-th time at one instant.
waits waits_together(const backoff& policy, std::uint32_t n, int count) {
    railmq::random_engine random{1};
    waits result;
    for (int i = 0; i < count; ++i) {
        result.push_back(policy.wait(n, 0s, random));
    }
    return result;
}

duration sum(const waits& parts) {
    return std::accumulate(parts.begin(), parts.end(), duration{});
}

duration shortest(const waits& parts) {
    return *std::min_element(parts.begin(), parts.end());
}

duration longest(const waits& parts) {
    return *std::max_element(parts.begin(), parts.end());
}

/// How many of the draws fall into each tenth of the interval.
std::array<int, 10> tenths(const waits& draws, duration lo, duration hi) {
    std::array<int, 10> counts{};
    for (const duration draw : draws) {
        REQUIRE(draw >= lo);
        REQUIRE(draw <= hi);
        const auto part = (draw - lo) * 10 / (hi - lo + 1ns);
        ++counts.at(static_cast<std::size_t>(part));
    }
    return counts;
}

/// Checks that draws of retry `n` fill lo..hi evenly: 2,000 draws, 200 expected in each tenth.
void check_spread(const backoff& policy, std::uint32_t n, duration lo, duration hi) {
    const waits draws = waits_together(policy, n, 2'000);
    for (const int count : tenths(draws, lo, hi)) {
        CHECK(count > 140);
        CHECK(count < 260);
    }
}

/// What a refused policy is told.
std::string refusal(const backoff& policy) {
    const railmq::failure bad = validate(policy);
    REQUIRE(bad);
    CHECK(bad.code == railmq::errc::invalid_argument);
    return bad.what;
}

bool accepted(const backoff& policy) {
    const railmq::failure bad = validate(policy);
    INFO(bad.what);
    return !bad && bad.what.empty();
}

} // namespace

TEST_CASE("exponential: 100, 200, 400, 400 [K03]", "[K03]") {
    const backoff policy = exponential_backoff{
        .initial = 100ms, .multiplier = 2, .max = 400ms, .jitter = jitter::none};
    CHECK(base_waits(policy, 4) == waits{100ms, 200ms, 400ms, 400ms});
    CHECK(drawn_waits(policy, 4) == waits{100ms, 200ms, 400ms, 400ms});
}

TEST_CASE("exponential with proportional jitter: never above max [K04]", "[K04]") {
    const backoff policy = exponential_backoff{
        .initial = 100ms, .multiplier = 2, .max = 2s, .jitter = jitter::proportional(0.2)};
    check_spread(policy, 1, 80ms, 120ms);
    check_spread(policy, 2, 160ms, 240ms);
    check_spread(policy, 3, 320ms, 480ms);
    check_spread(policy, 4, 640ms, 960ms);
    check_spread(policy, 5, 1280ms, 1920ms);
    // Our choice: cut at max, and spread below it rather than piled up on it.
    check_spread(policy, 6, 1600ms, 2s);
    check_spread(policy, 1'000'000, 1600ms, 2s);
}

TEST_CASE("exponential: 1, 2, 4, 8, 10, 10 s up to a limit of 10 s [K05]", "[K05]") {
    const backoff policy = exponential_backoff{.initial = 1s, .max = 10s, .jitter = jitter::none};
    CHECK(base_waits(policy, 6) == waits{1s, 2s, 4s, 8s, 10s, 10s});
}

TEST_CASE("exponential: retry k waits base x 2^(k-1), reduced by jitter [K06]", "[K06]") {
    auto policy = exponential_backoff{.initial = 200ms, .jitter = jitter::none};
    CHECK(base_waits(policy, 2) == waits{200ms, 400ms});
    policy.jitter = jitter::reduced(1);
    check_spread(policy, 1, 0ms, 200ms);
    check_spread(policy, 2, 0ms, 400ms);
    policy.jitter = jitter::reduced(0.5);
    check_spread(policy, 1, 100ms, 200ms);
    check_spread(policy, 2, 200ms, 400ms);

    policy.jitter = jitter::reduced(-0.1);
    CHECK(refusal(policy) == "jitter must be a proportion from 0 to 1, got -0.1");
    policy.jitter = jitter::reduced(1.5);
    CHECK(refusal(policy) == "jitter must be a proportion from 0 to 1, got 1.5");
}

TEST_CASE("linear: returns at 100 ... 15600 are ready at 1100 ... 20600 [K07]", "[K07]") {
    const backoff policy = linear_backoff{.initial = 1000ms, .max = 5000ms};
    const waits failed_at{100ms, 1200ms, 3300ms, 6400ms, 10'500ms, 15'600ms};
    const waits ready_at{1100ms, 3200ms, 6300ms, 10'400ms, 15'500ms, 20'600ms};
    const waits drawn = drawn_waits(policy, 6);
    for (std::size_t i = 0; i < failed_at.size(); ++i) {
        CHECK(failed_at[i] + drawn[i] == ready_at[i]);
    }
}

TEST_CASE("list: the last wait repeats [K09]", "[K09]") {
    const backoff policy = backoff_list{100ms, 1s, 5min};
    CHECK(base_waits(policy, 5) == waits{100ms, 1s, 5min, 5min, 5min});
    CHECK(policy.base_wait(most_failures) == 5min);
    CHECK(drawn_waits(policy, 4) == waits{100ms, 1s, 5min, 5min});
}

TEST_CASE("exponential: 1, 2, 4, 8 s by default [D39]", "[D39]") {
    CHECK(base_waits(backoff{}, 4) == waits{1s, 2s, 4s, 8s});
    CHECK(
        base_waits(exponential_backoff{.initial = 1s, .multiplier = 2}, 4) ==
        waits{1s, 2s, 4s, 8s});
}

TEST_CASE("exponential: 15 s in all before retry 4 has run [D40]", "[D40]") {
    CHECK(sum(base_waits(backoff{}, 4)) == 15s);
}

TEST_CASE("exponential: n retries take base x (2^n - 1) [D41]", "[D41]") {
    const waits totals{1s, 3s, 7s, 15s, 31s, 63s};
    for (std::uint32_t n = 1; n <= totals.size(); ++n) {
        CHECK(sum(base_waits(backoff{}, n)) == totals[n - 1]);
    }
}

TEST_CASE("500 failures at one instant: spread by jitter, together without [D42]", "[D42]") {
    auto policy = exponential_backoff{.initial = 10s, .jitter = jitter::none};
    const waits together = waits_together(policy, 1, 500);
    CHECK(std::set<duration>(together.begin(), together.end()) == std::set<duration>{10s});

    policy.jitter = jitter::full;
    const waits apart = waits_together(policy, 1, 500);
    CHECK(std::set<duration>(apart.begin(), apart.end()).size() == 500);
    // 50 are expected in each second, with a standard deviation of 6.7.
    for (const int count : tenths(apart, 0s, 10s)) {
        CHECK(count > 25);
        CHECK(count < 80);
    }
}

TEST_CASE("exponential: three attempts from 1000 ms wait 1 s and 2 s [D73]", "[D73]") {
    const backoff policy = exponential_backoff{.initial = 1000ms, .jitter = jitter::none};
    CHECK(drawn_waits(policy, 2) == waits{1s, 2s});
}

TEST_CASE("list: deliveries at 0, 5, 35, 335, 3935 s, the end at 87,935 s [E4]", "[E4]") {
    const backoff policy = backoff_list{5s, 30s, 300s, 3600s, 84'000s};
    const waits drawn = drawn_waits(policy, 5);
    waits at{0s};
    std::partial_sum(drawn.begin(), drawn.end(), std::back_inserter(at));
    CHECK(at == waits{0s, 5s, 35s, 335s, 3935s, 87'935s});
}

TEST_CASE("exponential: 1 to 60 s, doubling [E5]", "[E5]") {
    const backoff policy = exponential_backoff{.max = 60s, .jitter = jitter::none};
    CHECK(base_waits(policy, 8) == waits{1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s});
}

TEST_CASE("linear: 1000 to 30,000 ms [E6]", "[E6]") {
    const backoff policy = linear_backoff{.initial = 1000ms, .max = 30'000ms};
    CHECK(base_waits(policy, 4) == waits{1000ms, 2000ms, 3000ms, 4000ms});
    CHECK(policy.base_wait(29) == 29'000ms);
    CHECK(policy.base_wait(30) == 30'000ms);
    CHECK(policy.base_wait(31) == 30'000ms);
}

TEST_CASE("exponential: the 7th wait from 3000 ms is 192,000 ms [E7]", "[E7]") {
    auto policy = exponential_backoff{.initial = 3000ms, .jitter = jitter::none};
    CHECK(backoff{policy}.base_wait(7) == 192'000ms);
    policy.jitter = jitter::reduced(0.5);
    check_spread(policy, 7, 96'000ms, 192'000ms);
    policy.jitter = jitter::equal;
    check_spread(policy, 7, 96'000ms, 192'000ms);
}

TEST_CASE("exponential: four attempts from 1000 ms wait 1000, 2000, 4000 ms [E8]", "[E8]") {
    const backoff policy = exponential_backoff{.initial = 1000ms, .jitter = jitter::none};
    CHECK(drawn_waits(policy, 3) == waits{1000ms, 2000ms, 4000ms});
}

TEST_CASE("constant: the same wait for ever, none at all if asked") {
    CHECK(base_waits(constant_backoff{}, 3) == waits{1s, 1s, 1s});
    CHECK(backoff{constant_backoff{.delay = 3min}}.base_wait(most_failures) == 3min);
    CHECK(drawn_waits(constant_backoff{.delay = 0s}, 3) == waits{0s, 0s, 0s});
    check_spread(
        constant_backoff{.delay = 1s, .jitter = jitter::proportional(0.2)}, 9, 800ms, 1200ms);
}

TEST_CASE("jitter: full and equal, for each kind of backoff") {
    check_spread(constant_backoff{.delay = 8s, .jitter = jitter::full}, 3, 0s, 8s);
    check_spread(linear_backoff{.initial = 2s, .jitter = jitter::full}, 3, 0s, 6s);
    check_spread(exponential_backoff{.initial = 2s, .jitter = jitter::full}, 3, 0s, 8s);
    check_spread(backoff_list{{1s, 2s}, jitter::full}, 3, 0s, 2s);
    check_spread(constant_backoff{.delay = 8s, .jitter = jitter::equal}, 3, 4s, 8s);
    check_spread(linear_backoff{.initial = 2s, .jitter = jitter::equal}, 3, 3s, 6s);
    check_spread(exponential_backoff{.initial = 2s, .jitter = jitter::equal}, 3, 4s, 8s);
    check_spread(backoff_list{waits{1s, 2s}, jitter::equal}, 3, 1s, 2s);
}

TEST_CASE("jitter: full jitter draws below max, where the formula is far above it") {
    check_spread(exponential_backoff{.max = 1min, .jitter = jitter::full}, 60, 0s, 1min);
}

TEST_CASE("jitter: decorrelated draws between initial and three times the wait before") {
    const backoff policy =
        exponential_backoff{.initial = 1s, .max = 20s, .jitter = jitter::decorrelated};
    CHECK(policy.needs_previous_wait());
    check_spread(policy, 1, 1s, 3s);

    railmq::random_engine random{1};
    waits draws;
    for (int i = 0; i < 2'000; ++i) {
        draws.push_back(policy.wait(2, 5s, random));
    }
    for (const int count : tenths(draws, 1s, 15s)) {
        CHECK(count > 140);
    }

    const waits chain = drawn_waits(policy, 1'000);
    CHECK(shortest(chain) >= 1s);
    CHECK(longest(chain) <= 20s);
    CHECK(longest(chain) > 15s);
    for (std::size_t i = 1; i < chain.size(); ++i) {
        CHECK(chain[i] <= 3 * chain[i - 1]);
    }
    CHECK_FALSE(backoff{}.needs_previous_wait());
}

TEST_CASE("jitter: one seed, one sequence, on every compiler") {
    CHECK(drawn_waits(backoff{}, 3, 42) == waits{741'564'879ns, 319'820'785ns, 1'114'404'521ns});
    const backoff proportional = exponential_backoff{
        .initial = 100ms, .multiplier = 1.5, .jitter = jitter::proportional(0.3)};
    CHECK(drawn_waits(proportional, 3, 42) == waits{114'493'893ns, 119'391'935ns, 195'111'152ns});
}

TEST_CASE("jitter: no draw where there is nothing to choose") {
    const railmq::random_engine untouched{9};
    railmq::random_engine random = untouched;
    static_cast<void>(backoff{constant_backoff{}}.wait(1, 0s, random));
    static_cast<void>(backoff{linear_backoff{}}.wait(7, 0s, random));
    CHECK(random == untouched);
    static_cast<void>(backoff{}.wait(1, 0s, random));
    railmq::random_engine once = untouched;
    static_cast<void>(once());
    CHECK(random == once);
}

TEST_CASE("jitter: a value") {
    CHECK(jitter{} == jitter::none);
    CHECK_FALSE(jitter::full == jitter::equal);
    CHECK_FALSE(jitter::proportional(0.2) == jitter::proportional(0.3));
    CHECK_FALSE(jitter::proportional(0.2) == jitter::reduced(0.2));
    CHECK(jitter::proportional(0.2).ratio() == 0.2);
    CHECK(jitter::reduced(0.5).kind() == railmq::jitter_kind::reduced);
}

TEST_CASE("exponential: multipliers that are no whole numbers") {
    const auto policy = exponential_backoff{.initial = 1s, .multiplier = 1.15, .max = 1h};
    CHECK(base_waits(policy, 4) == waits{1s, 1150ms, 1'322'500us, 1'520'875us});
    for (const double multiplier : {1.001, 1.3, 1.5, 2.7, 10.0}) {
        const backoff other =
            exponential_backoff{.initial = 1ms, .multiplier = multiplier, .max = 24h};
        for (std::uint32_t n = 1; n <= 60; ++n) {
            const double exact = 1e6 * std::pow(multiplier, n - 1);
            const double expected = std::min(exact, 24 * 3600e9);
            const auto got = static_cast<double>(other.base_wait(n).count());
            CHECK(std::abs(got - expected) <= 0.5 + expected * 1e-13);
        }
    }
    CHECK(backoff{exponential_backoff{.multiplier = 1}}.base_wait(most_failures) == 1s);
}

TEST_CASE("waits: no overflow at the ends of every range") {
    const auto endless = exponential_backoff{
        .initial = duration::max(), .multiplier = 1e300, .max = duration::max()};
    for (const std::uint32_t n : {1U, 2U, 3U, 64U, most_failures}) {
        CHECK(backoff{endless}.base_wait(n) == duration::max());
    }
    const backoff steep = exponential_backoff{
        .initial = 1ns,
        .multiplier = std::numeric_limits<double>::max(),
        .max = duration::max(),
        .jitter = jitter::proportional(1)};
    CHECK(base_waits(steep, 3) == waits{1ns, duration::max(), duration::max()});
    railmq::random_engine random{1};
    for (int i = 0; i < 100; ++i) {
        CHECK(steep.wait(most_failures, duration::max(), random) >= 0ns);
    }

    const backoff line = linear_backoff{.initial = 1s, .max = duration::max()};
    CHECK(line.base_wait(most_failures) == most_failures * duration{1s});
    const backoff long_line = linear_backoff{.initial = 24h * 365, .max = duration::max()};
    CHECK(long_line.base_wait(292) == 292 * duration{24h * 365});
    CHECK(long_line.base_wait(293) == duration::max());
    CHECK(long_line.base_wait(most_failures) == duration::max());

    const backoff grown = exponential_backoff{
        .initial = duration::max() / 2, .max = duration::max(), .jitter = jitter::decorrelated};
    CHECK(longest(drawn_waits(grown, 100)) <= duration::max());
    CHECK(shortest(drawn_waits(grown, 100)) >= duration::max() / 2);
}

TEST_CASE("waits: max to the nanosecond, where doubles have no nanoseconds") {
    constexpr auto power = duration{std::int64_t{1} << 61U};
    const backoff policy = exponential_backoff{.initial = power, .max = 2 * power + 100ns};
    CHECK(policy.base_wait(3) == 2 * power + 100ns);
    const backoff constant =
        exponential_backoff{.initial = 2 * power + 99ns, .multiplier = 1, .max = 2 * power + 100ns};
    CHECK(base_waits(constant, 2) == waits{2 * power + 99ns, 2 * power + 99ns});
}

TEST_CASE("waits: max holds where it is below initial, which validate refuses") {
    CHECK(base_waits(exponential_backoff{.initial = 10s, .max = 1s}, 2) == waits{1s, 1s});
    CHECK(base_waits(linear_backoff{.initial = 10s, .max = 1s}, 2) == waits{1s, 1s});
}

TEST_CASE("waits: a multiplier next to 1 stops growing at 65,536") {
    const backoff policy = exponential_backoff{.multiplier = 1.000001, .max = 1h};
    CHECK(policy.base_wait(65'535) < policy.base_wait(65'536));
    CHECK(policy.base_wait(65'536) == policy.base_wait(65'537));
    CHECK(policy.base_wait(65'536) == policy.base_wait(most_failures));
}

TEST_CASE("waits: retry 0 is taken for retry 1") {
    CHECK(backoff{}.base_wait(0) == 1s);
    CHECK(backoff{linear_backoff{}}.base_wait(0) == 1s);
    CHECK(backoff{backoff_list{3s, 4s}}.base_wait(0) == 3s);
}

TEST_CASE("waits: never negative, even where validate refuses the policy") {
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    const auto infinity = std::numeric_limits<double>::infinity();
    const std::vector<backoff> refused{
        constant_backoff{.delay = -1s},
        constant_backoff{.delay = -1s, .jitter = jitter::full},
        constant_backoff{.delay = 1s, .jitter = jitter::proportional(2)},
        constant_backoff{.delay = 1s, .jitter = jitter::proportional(-3)},
        constant_backoff{.delay = 1s, .jitter = jitter::reduced(nan)},
        constant_backoff{.delay = 1s, .jitter = jitter::proportional(infinity)},
        constant_backoff{.delay = 1s, .jitter = jitter::decorrelated},
        linear_backoff{.initial = -1s},
        linear_backoff{.initial = 0s},
        linear_backoff{.initial = duration::min(), .max = duration::min()},
        linear_backoff{.initial = 1s, .max = -1s},
        exponential_backoff{.initial = -1s},
        exponential_backoff{.initial = 1s, .max = -1s},
        exponential_backoff{.initial = duration::min(), .max = duration::min()},
        exponential_backoff{.multiplier = nan},
        exponential_backoff{.multiplier = infinity},
        exponential_backoff{.multiplier = -infinity},
        exponential_backoff{.multiplier = -2},
        exponential_backoff{.multiplier = 0.5},
        backoff_list{},
        backoff_list{-1s},
        backoff_list{{-1s}, jitter::decorrelated},
    };
    for (const backoff& policy : refused) {
        CHECK(validate(policy));
        for (const std::uint32_t n : {0U, 1U, 2U, 3U, 1'000'000U, most_failures}) {
            CHECK(policy.base_wait(n) >= 0s);
            railmq::random_engine random{n};
            CHECK(policy.wait(n, 0s, random) >= 0s);
            CHECK(policy.wait(n, duration::max(), random) >= 0s);
            CHECK(policy.wait(n, duration::min(), random) >= 0s);
        }
    }
}

TEST_CASE("backoff: a value that holds any of the four") {
    CHECK(backoff{} == backoff{exponential_backoff{}});
    CHECK(backoff{}.jitter() == jitter::full);
    const auto preset = exponential_backoff{};
    CHECK(preset.initial == 1s);
    CHECK(preset.multiplier == 2.0);
    CHECK(preset.max == 5min);

    CHECK_FALSE(backoff{constant_backoff{}} == backoff{linear_backoff{}});
    CHECK_FALSE(backoff{constant_backoff{}} == backoff{constant_backoff{.delay = 2s}});
    CHECK_FALSE(backoff{backoff_list{1s}} == backoff{backoff_list{1s, 2s}});
    backoff copy = backoff_list{{1s, 2s}, jitter::equal};
    CHECK(copy == backoff{backoff_list{{1s, 2s}, jitter::equal}});
    CHECK(copy.jitter() == jitter::equal);
    CHECK(std::holds_alternative<backoff_list>(copy.policy()));
    copy = linear_backoff{.jitter = jitter::full};
    CHECK(copy.jitter() == jitter::full);
    CHECK(std::holds_alternative<linear_backoff>(copy.policy()));
}

TEST_CASE("validate: what works") {
    CHECK(accepted(backoff{}));
    CHECK(accepted(constant_backoff{}));
    CHECK(accepted(constant_backoff{.delay = 0s}));
    CHECK(accepted(linear_backoff{}));
    CHECK(accepted(linear_backoff{.initial = 1s, .max = 1s, .jitter = jitter::decorrelated}));
    CHECK(accepted(exponential_backoff{.multiplier = 1, .jitter = jitter::decorrelated}));
    CHECK(accepted(exponential_backoff{.jitter = jitter::proportional(0)}));
    CHECK(accepted(exponential_backoff{.jitter = jitter::proportional(1)}));
    CHECK(accepted(backoff_list{0s}));
    CHECK(accepted(backoff_list{{3s, 1s}, jitter::reduced(1)}));
}

TEST_CASE("validate: says what was expected and what was given") {
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    const auto infinity = std::numeric_limits<double>::infinity();

    CHECK(
        refusal(constant_backoff{.delay = -1500ms}) ==
        "constant_backoff.delay must not be negative, got -1500ms");
    CHECK(
        refusal(linear_backoff{.initial = 0s}) ==
        "linear_backoff.initial must be above 0 (constant_backoff{.delay = 0s} retries at once), "
        "got 0s");
    CHECK(
        refusal(linear_backoff{.initial = 10min}) ==
        "linear_backoff.max must not be below initial, which is 10min, got 5min");
    CHECK(
        refusal(exponential_backoff{.initial = -1ns}) ==
        "exponential_backoff.initial must be above 0 (constant_backoff{.delay = 0s} retries at "
        "once), got -1ns");
    CHECK(
        refusal(exponential_backoff{.initial = 2h, .max = 90min}) ==
        "exponential_backoff.max must not be below initial, which is 2h, got 90min");
    CHECK(
        refusal(exponential_backoff{.multiplier = 0.99}) ==
        "exponential_backoff.multiplier must be a finite number of at least 1, got 0.99");
    CHECK(
        refusal(exponential_backoff{.multiplier = nan}) ==
        "exponential_backoff.multiplier must be a finite number of at least 1, got nan");
    CHECK(
        refusal(exponential_backoff{.multiplier = infinity}) ==
        "exponential_backoff.multiplier must be a finite number of at least 1, got inf");
    CHECK(refusal(backoff_list{}) == "backoff_list must hold at least one wait, got none");
    CHECK(
        refusal(backoff_list{1s, -7us, 2s}) ==
        "backoff_list must not hold a negative wait, got -7us");

    const std::string proportion = "jitter must be a proportion from 0 to 1, got ";
    CHECK(refusal(constant_backoff{.jitter = jitter::proportional(nan)}) == proportion + "nan");
    CHECK(refusal(linear_backoff{.jitter = jitter::proportional(-0.5)}) == proportion + "-0.5");
    CHECK(
        refusal(exponential_backoff{.jitter = jitter::proportional(1.01)}) == proportion + "1.01");
    CHECK(refusal(backoff_list{{1s}, jitter::reduced(infinity)}) == proportion + "inf");

    for (const backoff& policy :
         {backoff{constant_backoff{.jitter = jitter::decorrelated}},
          backoff{backoff_list{{1s}, jitter::decorrelated}}}) {
        CHECK(
            refusal(policy) ==
            "jitter::decorrelated lets each wait grow from the one before, so it needs the limit "
            "of an exponential_backoff or a linear_backoff, got a policy without `max`");
    }
}
