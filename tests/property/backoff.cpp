// SPDX-License-Identifier: BSL-1.0
//
// A wait is never negative, never above max and never overflows, for any parameters at all; the
// formula without jitter never falls as failures grow.
#include <railmq/model/backoff.hpp>

#include "support/catch.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>
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

/// Any count of nanoseconds: as often of every magnitude, and the ends themselves.
rc::Gen<duration> any_duration() {
    const auto magnitude = rc::gen::apply(
        [](std::uint64_t bits, int shift) {
            return duration{static_cast<std::int64_t>(bits) >> shift};
        },
        rc::gen::resize(100, rc::gen::arbitrary<std::uint64_t>()),
        rc::gen::inRange(0, 64));
    return rc::gen::oneOf(
        magnitude, rc::gen::element<duration>(duration::min(), duration::max(), -1ns, 0ns, 1ns));
}

rc::Gen<duration> positive_duration() {
    return rc::gen::map(any_duration(), [](duration d) {
        return d == duration::min() ? duration::max() : std::max(d < 0ns ? -d : d, duration{1});
    });
}

/// Any double by its bits, so that the odd ones are among them.
rc::Gen<double> any_double() {
    return rc::gen::oneOf(
        rc::gen::map(
            rc::gen::resize(100, rc::gen::arbitrary<std::uint64_t>()),
            [](std::uint64_t bits) { return std::bit_cast<double>(bits); }),
        rc::gen::element(
            0.0,
            -0.0,
            0.5,
            1.0,
            2.0,
            std::numeric_limits<double>::infinity(),
            -std::numeric_limits<double>::infinity(),
            std::numeric_limits<double>::quiet_NaN(),
            std::numeric_limits<double>::max(),
            std::numeric_limits<double>::denorm_min()));
}

/// 1 + 2^-k and beyond: from next to nothing to far too much.
rc::Gen<double> valid_multiplier() {
    return rc::gen::oneOf(
        rc::gen::map(
            rc::gen::inRange(0, 53),
            [](int k) { return 1.0 + 1.0 / static_cast<double>(std::uint64_t{1} << k); }),
        rc::gen::map(rc::gen::inRange(1'000, 10'000), [](int m) { return m / 1'000.0; }),
        rc::gen::element(1.0, 2.0, 10.0, 1e10, 1e300, std::numeric_limits<double>::max()));
}

rc::Gen<jitter> any_jitter() {
    return rc::gen::oneOf(
        rc::gen::element(jitter::none, jitter::full, jitter::equal, jitter::decorrelated),
        rc::gen::map(any_double(), [](double r) { return jitter::proportional(r); }),
        rc::gen::map(any_double(), [](double r) { return jitter::reduced(r); }));
}

rc::Gen<jitter> valid_jitter() {
    const auto ratio = rc::gen::map(rc::gen::inRange(0, 101), [](int r) { return r / 100.0; });
    return rc::gen::oneOf(
        rc::gen::element(jitter::none, jitter::full, jitter::equal, jitter::decorrelated),
        rc::gen::map(ratio, [](double r) { return jitter::proportional(r); }),
        rc::gen::map(ratio, [](double r) { return jitter::reduced(r); }));
}

/// Retry numbers of every magnitude.
rc::Gen<std::uint32_t> any_retry() {
    return rc::gen::oneOf(
        rc::gen::inRange<std::uint32_t>(0, 100),
        rc::gen::map(rc::gen::inRange(0, 32), [](int shift) { return ~std::uint32_t{0} >> shift; }),
        rc::gen::inRange<std::uint32_t>(65'500, 65'600));
}

rc::Gen<backoff> any_backoff() {
    return rc::gen::oneOf(
        rc::gen::apply(
            [](duration delay, jitter blur) {
                return backoff{constant_backoff{.delay = delay, .jitter = blur}};
            },
            any_duration(),
            any_jitter()),
        rc::gen::apply(
            [](duration initial, duration max, jitter blur) {
                return backoff{linear_backoff{.initial = initial, .max = max, .jitter = blur}};
            },
            any_duration(),
            any_duration(),
            any_jitter()),
        rc::gen::apply(
            [](duration initial, double multiplier, duration max, jitter blur) {
                return backoff{exponential_backoff{
                    .initial = initial, .multiplier = multiplier, .max = max, .jitter = blur}};
            },
            any_duration(),
            any_double(),
            any_duration(),
            any_jitter()),
        rc::gen::apply(
            [](std::vector<duration> waits, jitter blur) {
                return backoff{backoff_list{std::move(waits), blur}};
            },
            rc::gen::container<std::vector<duration>>(any_duration()),
            any_jitter()));
}

/// The growing ones, which have a limit, with parameters that `validate` accepts.
rc::Gen<backoff> valid_growing() {
    return rc::gen::oneOf(
        rc::gen::apply(
            [](duration a, duration b, jitter blur) {
                return backoff{linear_backoff{
                    .initial = std::min(a, b), .max = std::max(a, b), .jitter = blur}};
            },
            positive_duration(),
            positive_duration(),
            valid_jitter()),
        rc::gen::apply(
            [](duration a, double multiplier, duration b, jitter blur) {
                return backoff{exponential_backoff{
                    .initial = std::min(a, b),
                    .multiplier = multiplier,
                    .max = std::max(a, b),
                    .jitter = blur}};
            },
            positive_duration(),
            valid_multiplier(),
            positive_duration(),
            valid_jitter()));
}

duration max_of(const backoff& policy) {
    if (const auto* line = std::get_if<linear_backoff>(&policy.policy())) {
        return line->max;
    }
    if (const auto* curve = std::get_if<exponential_backoff>(&policy.policy())) {
        return curve->max;
    }
    return duration::max();
}

} // namespace

TEST_CASE("backoff: never negative, never above max, whatever the parameters") {
    const bool holds = rc::check([] {
        const backoff policy = *any_backoff();
        const std::uint32_t n = *any_retry();
        const duration previous = *any_duration();
        railmq::random_engine random{*rc::gen::arbitrary<std::uint64_t>()};
        const duration limit = std::max(max_of(policy), duration::zero());
        RC_ASSERT(policy.base_wait(n) >= 0ns);
        RC_ASSERT(policy.base_wait(n) <= limit);
        const duration wait = policy.wait(n, previous, random);
        RC_ASSERT(wait >= 0ns);
        RC_ASSERT(wait <= limit);
        static_cast<void>(validate(policy));
    });
    CHECK(holds);
}

TEST_CASE("backoff: the base wait grows or stays, from initial up to max") {
    const bool holds = rc::check([] {
        const backoff policy = *valid_growing();
        RC_ASSERT(!validate(policy));
        const std::uint32_t n = std::max(1U, *any_retry());
        const std::uint32_t later = std::max(n, *any_retry());
        RC_ASSERT(policy.base_wait(n) <= policy.base_wait(later));
        if (n != std::numeric_limits<std::uint32_t>::max()) {
            RC_ASSERT(policy.base_wait(n) <= policy.base_wait(n + 1));
        }
        RC_ASSERT(policy.base_wait(1) <= policy.base_wait(n));
        RC_ASSERT(policy.base_wait(n) <= max_of(policy));
    });
    CHECK(holds);
}

TEST_CASE("backoff: jitter stays within its interval around the base wait") {
    const bool holds = rc::check([] {
        const backoff policy = *valid_growing();
        const std::uint32_t n = *any_retry();
        railmq::random_engine random{*rc::gen::arbitrary<std::uint64_t>()};
        const duration previous = *positive_duration();
        const duration base = policy.base_wait(n);
        const duration wait = policy.wait(n, previous, random);
        const duration before = std::max(previous, policy.base_wait(1));
        switch (policy.jitter().kind()) {
        case railmq::jitter_kind::none: RC_ASSERT(wait == base); break;
        case railmq::jitter_kind::full:
        case railmq::jitter_kind::reduced: RC_ASSERT(wait <= base); break;
        case railmq::jitter_kind::equal:
            RC_ASSERT(wait <= base);
            RC_ASSERT(wait >= base / 2);
            break;
        case railmq::jitter_kind::proportional:
            // Up to twice the base, and a little for the rounding of very long ones.
            RC_ASSERT(wait / 2 - base <= base / 1'000'000);
            break;
        case railmq::jitter_kind::decorrelated:
            RC_ASSERT(wait >= policy.base_wait(1));
            RC_ASSERT(wait / 3 - before <= before / 1'000'000);
            break;
        }
    });
    CHECK(holds);
}

TEST_CASE("backoff: one seed, one sequence of waits") {
    const bool holds = rc::check([] {
        const backoff policy = *any_backoff();
        const auto seed = *rc::gen::arbitrary<std::uint64_t>();
        railmq::random_engine first{seed};
        railmq::random_engine second{seed};
        duration previous{};
        for (std::uint32_t n = 1; n <= 20; ++n) {
            const duration wait = policy.wait(n, previous, first);
            RC_ASSERT(wait == policy.wait(n, previous, second));
            previous = wait;
        }
        RC_ASSERT(first == second);
    });
    CHECK(holds);
}

TEST_CASE("uniform_duration: within its ends, for any two") {
    const bool holds = rc::check([] {
        const duration lo = *any_duration();
        const duration hi = *any_duration();
        railmq::random_engine random{*rc::gen::arbitrary<std::uint64_t>()};
        const duration drawn = railmq::uniform_duration(random, lo, hi);
        RC_ASSERT(drawn >= lo);
        RC_ASSERT(drawn <= std::max(lo, hi));
    });
    CHECK(holds);
}
