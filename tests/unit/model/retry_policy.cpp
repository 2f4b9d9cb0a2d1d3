// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/retry_policy.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <vector>

using namespace std::chrono_literals;
using railmq::backoff_list;
using railmq::constant_backoff;
using railmq::death_reason;
using railmq::duration;
using railmq::exponential_backoff;
using railmq::failure_counts;
using railmq::failure_kind;
using railmq::jitter;
using railmq::retry_decision;
using railmq::retry_policy;

namespace {

static_assert(std::regular<retry_policy>);

/// A message that fails until it is dead or has failed `most` times, and what was decided each
/// time.
std::vector<retry_decision> fail_until_dead(
    const retry_policy& policy, const std::vector<failure_kind>& kinds, std::uint32_t most = 100) {
    railmq::random_engine random{1};
    std::vector<retry_decision> decisions;
    railmq::failed_attempt attempt;
    for (std::uint32_t i = 0; i < most; ++i) {
        attempt.kind = kinds[i % kinds.size()];
        attempt.counts.add(attempt.kind);
        decisions.push_back(decide(policy, attempt, random));
        if (decisions.back().is_dead()) {
            break;
        }
        attempt.previous_wait = decisions.back().wait;
        attempt.elapsed += decisions.back().wait;
    }
    return decisions;
}

std::vector<duration> waits_of(const std::vector<retry_decision>& decisions) {
    std::vector<duration> waits;
    for (const retry_decision& decision : decisions) {
        if (!decision.is_dead()) {
            waits.push_back(decision.wait);
        }
    }
    return waits;
}

retry_decision decide_once(const retry_policy& policy, const railmq::failed_attempt& attempt) {
    railmq::random_engine random{1};
    return decide(policy, attempt, random);
}

constexpr exponential_backoff exact{.initial = 1s, .multiplier = 2, .jitter = jitter::none};

} // namespace

TEST_CASE("retry_policy: designated initializers, defaults") {
    struct options {
        int other = 0;
        retry_policy retry{};
    };
    const options chosen{
        .retry = {
            .max_attempts = 4,
            .backoff = railmq::exponential_backoff{.initial = 1s, .multiplier = 2}}};
    CHECK(chosen.retry.max_attempts == 4);
    CHECK(chosen.retry.backoff == railmq::backoff{});

    const retry_policy preset;
    CHECK(preset.max_attempts == 16);
    CHECK(preset.max_stalls == 0);
    CHECK(preset.max_crashes == 3);
    CHECK(preset.backoff == railmq::backoff{exponential_backoff{}});
    CHECK(preset.max_elapsed == 0s);
    CHECK_FALSE(validate(preset));
}

TEST_CASE("decide: one attempt is one run, two are one retry [K01]", "[K01]") {
    const auto once = fail_until_dead({.max_attempts = 1}, {failure_kind::threw});
    REQUIRE(once.size() == 1);
    CHECK(once.back() == retry_decision{.wait = 0s, .death = death_reason::max_attempts});

    const auto twice = fail_until_dead({.max_attempts = 2}, {failure_kind::threw});
    CHECK(twice.size() == 2);
}

TEST_CASE("decide: three attempts are three runs [K02] [D72]", "[K02][D72]") {
    for (const failure_kind kind : {failure_kind::nacked, failure_kind::threw}) {
        const auto decisions = fail_until_dead({.max_attempts = 3}, {kind});
        REQUIRE(decisions.size() == 3);
        CHECK_FALSE(decisions[0].is_dead());
        CHECK_FALSE(decisions[1].is_dead());
        CHECK(decisions[2].death == death_reason::max_attempts);
    }
}

TEST_CASE("decide: three attempts from 1000 ms, waits of 1 s and 2 s [D73]", "[D73]") {
    const auto decisions =
        fail_until_dead({.max_attempts = 3, .backoff = exact}, {failure_kind::threw});
    CHECK(waits_of(decisions) == std::vector<duration>{1s, 2s});
    CHECK(decisions.back().is_dead());
}

TEST_CASE("decide: after a delay of 60 s runs at 60, 61 and 63 s [D74]", "[D74]") {
    const auto waits =
        waits_of(fail_until_dead({.max_attempts = 3, .backoff = exact}, {failure_kind::threw}));
    std::vector<duration> runs{60s};
    for (const duration wait : waits) {
        runs.push_back(runs.back() + wait);
    }
    CHECK(runs == std::vector<duration>{60s, 61s, 63s});
}

TEST_CASE("decide: a list of five and five attempts, deliveries to 3935 s [E4]", "[E4]") {
    const retry_policy policy{
        .max_attempts = 5, .backoff = backoff_list{5s, 30s, 300s, 3600s, 84'000s}};
    CHECK_FALSE(validate(policy));
    const auto decisions = fail_until_dead(policy, {failure_kind::nacked});
    CHECK(waits_of(decisions) == std::vector<duration>{5s, 30s, 300s, 3600s});
    CHECK(decisions.back().death == death_reason::max_attempts);
}

TEST_CASE("decide: four attempts, waits of 1, 2 and 4 s, then dead [E8]", "[E8]") {
    const auto decisions =
        fail_until_dead({.max_attempts = 4, .backoff = exact}, {failure_kind::nacked});
    CHECK(waits_of(decisions) == std::vector<duration>{1s, 2s, 4s});
    CHECK(decisions.size() == 4);
    CHECK(decisions.back().is_dead());
}

TEST_CASE("decide: a delivery limit of 3 is max_attempts 4, four runs [E9]", "[E9]") {
    CHECK(fail_until_dead({.max_attempts = 4}, {failure_kind::nacked}).size() == 4);
}

TEST_CASE("decide: 24 attempts are 24 runs [E10]", "[E10]") {
    // Five immediate retries within each of four rounds, told as one total.
    CHECK(fail_until_dead({.max_attempts = (1 + 5) * (1 + 3)}, {failure_kind::threw}).size() == 24);
}

TEST_CASE("decide: 20,000 retries with no wait are 20,001 runs [K11]", "[K11]") {
    const auto decisions = fail_until_dead(
        {.max_attempts = 20'001, .backoff = constant_backoff{.delay = 0s}},
        {failure_kind::threw},
        30'000);
    CHECK(decisions.size() == 20'001);
    CHECK(decisions.back().is_dead());
    CHECK(decisions.front().wait == 0s);
}

TEST_CASE("decide: 0 attempts are any number") {
    const retry_policy policy{.max_attempts = 0};
    CHECK_FALSE(fail_until_dead(policy, {failure_kind::nacked}, 5'000).back().is_dead());
    const auto most = std::numeric_limits<std::uint32_t>::max();
    const retry_decision late =
        decide_once(policy, {.kind = failure_kind::nacked, .counts = {.failures = most}});
    CHECK_FALSE(late.is_dead());
    CHECK(late.wait <= 5min);
}

TEST_CASE("decide: back at once after a passed deadline or a crash") {
    const retry_policy policy{.max_crashes = 0, .backoff = constant_backoff{.delay = 7s}};
    const auto wait_after = [&](failure_kind kind) {
        return waits_of(fail_until_dead(policy, {kind}, 2)).back();
    };
    CHECK(wait_after(failure_kind::nacked) == 7s);
    CHECK(wait_after(failure_kind::threw) == 7s);
    CHECK(wait_after(failure_kind::deadline_passed) == 0s);
    CHECK(wait_after(failure_kind::crashed) == 0s);
}

TEST_CASE("decide: every kind of failure counts as an attempt, and lengthens the backoff") {
    const retry_policy policy{.max_attempts = 4, .backoff = exact};
    const auto decisions = fail_until_dead(
        policy,
        {failure_kind::deadline_passed,
         failure_kind::crashed,
         failure_kind::nacked,
         failure_kind::deadline_passed});
    CHECK(waits_of(decisions) == std::vector<duration>{0s, 0s, 4s});
    CHECK(decisions.back().death == death_reason::max_attempts);
}

TEST_CASE("decide: max_crashes 3 is three deliveries") {
    const auto decisions = fail_until_dead({}, {failure_kind::crashed});
    CHECK(decisions.size() == 3);
    CHECK(decisions.back().death == death_reason::max_crashes);

    // Crashes alone: what failed otherwise does not come nearer to this limit.
    const auto mixed =
        fail_until_dead({.max_attempts = 0}, {failure_kind::nacked, failure_kind::crashed});
    CHECK(mixed.size() == 6);
    CHECK(mixed.back().death == death_reason::max_crashes);

    const auto unlimited = fail_until_dead({.max_crashes = 0}, {failure_kind::crashed});
    CHECK(unlimited.size() == 16);
    CHECK(unlimited.back().death == death_reason::max_attempts);
}

TEST_CASE("decide: max_stalls limits passed deadlines alone") {
    const auto by_default = fail_until_dead({}, {failure_kind::deadline_passed});
    CHECK(by_default.size() == 16);
    CHECK(by_default.back().death == death_reason::max_attempts);

    // The first stall is the last: what BullMQ writes as maxStalledCount 0.
    const auto first = fail_until_dead({.max_stalls = 1}, {failure_kind::deadline_passed});
    CHECK(first.size() == 1);
    CHECK(first.back().death == death_reason::max_stalls);

    const auto mixed =
        fail_until_dead({.max_stalls = 2}, {failure_kind::nacked, failure_kind::deadline_passed});
    CHECK(mixed.size() == 4);
    CHECK(mixed.back().death == death_reason::max_stalls);
}

TEST_CASE("decide: limits on stalls and crashes wait for their own kind of failure") {
    // A message from before the limits were lowered.
    const failure_counts counts{.failures = 9, .stalls = 4, .crashes = 5};
    const retry_policy policy{.max_stalls = 2, .max_crashes = 2};
    CHECK_FALSE(decide_once(policy, {.kind = failure_kind::nacked, .counts = counts}).is_dead());
    CHECK(
        decide_once(policy, {.kind = failure_kind::crashed, .counts = counts}).death ==
        death_reason::max_crashes);
    CHECK(
        decide_once(policy, {.kind = failure_kind::deadline_passed, .counts = counts}).death ==
        death_reason::max_stalls);
}

TEST_CASE("decide: where several limits are reached, max_attempts is named [BR06]", "[BR06]") {
    const auto decisions =
        fail_until_dead({.max_attempts = 3, .max_crashes = 3}, {failure_kind::crashed});
    CHECK(decisions.size() == 3);
    CHECK(decisions.back().death == death_reason::max_attempts);
}

TEST_CASE("decide: max_elapsed ends it at the next failure") {
    const retry_policy policy{.backoff = exact, .max_elapsed = 10s};
    const auto at = [&](duration elapsed, failure_kind kind) {
        return decide_once(policy, {.kind = kind, .counts = {.failures = 1}, .elapsed = elapsed});
    };
    CHECK_FALSE(at(10s - 1ns, failure_kind::nacked).is_dead());
    CHECK(at(10s, failure_kind::nacked).death == death_reason::max_elapsed);
    CHECK(at(11s, failure_kind::deadline_passed).death == death_reason::max_elapsed);
    CHECK(at(duration::max(), failure_kind::crashed).death == death_reason::max_elapsed);

    // The wait before it may pass the limit: 1 + 2 + 4 + 8 s.
    const auto decisions = fail_until_dead(policy, {failure_kind::threw});
    CHECK(waits_of(decisions) == std::vector<duration>{1s, 2s, 4s, 8s});
    CHECK(decisions.back().death == death_reason::max_elapsed);

    const retry_decision unlimited = decide_once(
        {}, {.kind = failure_kind::nacked, .counts = {.failures = 1}, .elapsed = duration::max()});
    CHECK_FALSE(unlimited.is_dead());
}

TEST_CASE("decide: decorrelated jitter is told the wait before") {
    const retry_policy policy{
        .backoff = exponential_backoff{.max = 10min, .jitter = jitter::decorrelated}};
    railmq::random_engine random{1};
    duration longest{};
    for (int i = 0; i < 100; ++i) {
        const auto decision = decide(
            policy,
            {.kind = failure_kind::nacked, .counts = {.failures = 2}, .previous_wait = 100s},
            random);
        longest = std::max(longest, decision.wait);
    }
    CHECK(longest > 250s);
    CHECK(longest <= 300s);
}

TEST_CASE("decide: a death draws nothing") {
    const railmq::random_engine untouched{1};
    railmq::random_engine random = untouched;
    CHECK(decide(retry_policy{.max_attempts = 1}, {.counts = {.failures = 1}}, random).is_dead());
    CHECK(random == untouched);
}

TEST_CASE("failure_counts: each kind raises its own counts, and none goes around") {
    failure_counts counts;
    counts.add(failure_kind::nacked);
    CHECK(counts == failure_counts{.failures = 1});
    counts.add(failure_kind::threw);
    CHECK(counts == failure_counts{.failures = 2});
    counts.add(failure_kind::deadline_passed);
    CHECK(counts == failure_counts{.failures = 3, .stalls = 1});
    counts.add(failure_kind::crashed);
    CHECK(counts == failure_counts{.failures = 4, .stalls = 1, .crashes = 1});

    const auto most = std::numeric_limits<std::uint32_t>::max();
    failure_counts full{.failures = most, .stalls = most, .crashes = most};
    full.add(failure_kind::deadline_passed);
    full.add(failure_kind::crashed);
    CHECK(full == failure_counts{.failures = most, .stalls = most, .crashes = most});
}

TEST_CASE("failure_kind: names") {
    CHECK(to_string(failure_kind::nacked) == "nacked");
    CHECK(to_string(failure_kind::threw) == "threw");
    CHECK(to_string(failure_kind::deadline_passed) == "deadline passed");
    CHECK(to_string(failure_kind::crashed) == "crashed");
    CHECK(to_string(static_cast<failure_kind>(99)) == "unknown failure kind");
}

TEST_CASE("validate: a list longer than max_attempts is refused [K09]", "[K09]") {
    retry_policy policy{.max_attempts = 3, .backoff = backoff_list{1s, 2s, 3s, 4s}};
    const railmq::failure bad = validate(policy);
    CHECK(bad.code == railmq::errc::invalid_argument);
    CHECK(bad.what == "backoff_list must not hold more waits than max_attempts, which is 3, got 4");

    policy.max_attempts = 4;
    CHECK_FALSE(validate(policy));
    policy.max_attempts = 5;
    CHECK_FALSE(validate(policy));
    policy.max_attempts = 0;
    CHECK_FALSE(validate(policy));
}

TEST_CASE("validate: the backoff and max_elapsed") {
    const railmq::failure negative = validate(retry_policy{.max_elapsed = -1min});
    CHECK(negative.code == railmq::errc::invalid_argument);
    CHECK(negative.what == "retry_policy.max_elapsed must not be negative, got -1min");

    const railmq::failure inner = validate(retry_policy{.backoff = backoff_list{}});
    CHECK(inner.what == validate(railmq::backoff{backoff_list{}}).what);
    CHECK(inner);

    CHECK_FALSE(validate(retry_policy{.max_attempts = 0, .max_crashes = 0, .max_elapsed = 24h}));
}

TEST_CASE("retry_policy: equal when every member is") {
    CHECK(retry_policy{} == retry_policy{});
    CHECK_FALSE(retry_policy{} == retry_policy{.max_attempts = 15});
    CHECK_FALSE(retry_policy{} == retry_policy{.max_stalls = 1});
    CHECK_FALSE(retry_policy{} == retry_policy{.max_crashes = 2});
    CHECK_FALSE(retry_policy{} == retry_policy{.backoff = constant_backoff{}});
    CHECK_FALSE(retry_policy{} == retry_policy{.max_elapsed = 1s});
}
