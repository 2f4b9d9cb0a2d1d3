// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/backoff.hpp>
#include <railmq/model/death.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/time.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace railmq {

/// How a hand-out failed. A released message, a closed consumer and a message that was prefetched
/// but never shown to the application are no failures.
enum class failure_kind : std::uint8_t {
    nacked,          ///< The consumer called `nack`, or dropped the delivery unsettled.
    threw,           ///< The handler threw something other than `permanent_error`.
    deadline_passed, ///< The ack deadline passed: the consumer stalled.
    crashed,         ///< The process died while the message was held.
};

[[nodiscard]] constexpr std::string_view to_string(failure_kind kind) noexcept {
    switch (kind) {
    case failure_kind::nacked: return "nacked";
    case failure_kind::threw: return "threw";
    case failure_kind::deadline_passed: return "deadline passed";
    case failure_kind::crashed: return "crashed";
    }
    return "unknown failure kind";
}

/// A message's failures in its present queue.
struct failure_counts {
    std::uint32_t failures = 0; ///< Of every kind.
    std::uint32_t stalls = 0;   ///< Those where the deadline passed.
    std::uint32_t crashes = 0;  ///< Those where the process died.

    /// Counts one more failure. A count that can go no further stays where it is.
    constexpr void add(failure_kind kind) noexcept {
        raise(failures);
        if (kind == failure_kind::deadline_passed) {
            raise(stalls);
        } else if (kind == failure_kind::crashed) {
            raise(crashes);
        }
    }

    friend constexpr bool operator==(const failure_counts&, const failure_counts&) = default;

private:
    static constexpr void raise(std::uint32_t& count) noexcept {
        if (count != std::numeric_limits<std::uint32_t>::max()) {
            ++count;
        }
    }
};

/// How often, how soon and how long a failed message is tried again before it becomes a dead
/// letter. Every limit N works alike: the Nth such failure is the last, and 0 means no such limit.
/// So `max_attempts = 4` is four runs in all, the first included (SQS maxReceiveCount, BullMQ
/// attempts; RabbitMQ's delivery-limit and Pulsar's maxRedeliverCount count one less).
struct retry_policy {
    /// Runs in all, whatever kind of failure ended them. Default 16; 0: unlimited.
    std::uint32_t max_attempts = 16;
    /// Passed ack deadlines. Default 0: no limit but `max_attempts`. (BullMQ's maxStalledCount
    /// tells how many are forgiven, which is one less.)
    std::uint32_t max_stalls = 0;
    /// Deaths of the process while it held the message. Default 3; 0: no limit but `max_attempts`.
    std::uint32_t max_crashes = 3;
    /// The waits after `nack` and after a throwing handler. Default: exponential from 1 s to 5 min
    /// with full jitter. After a passed deadline or a crash a message comes back at once.
    railmq::backoff backoff{};
    /// Time since the first hand-out, judged at each failure: one that happens this late or later
    /// is the last. Default 0: unlimited. (Watermill MaxElapsedTime, Spring retry topics' timeout.)
    duration max_elapsed{};

    friend bool operator==(const retry_policy&, const retry_policy&) = default;
};

/// What is wrong with a policy, as `errc::invalid_argument` and a sentence; nothing (false) when it
/// is fine. Refused are: whatever `validate(const backoff&)` refuses; a negative `max_elapsed`; and
/// a `backoff_list` with more waits than `max_attempts`, because its end could never be reached
/// (JetStream refuses it as well).
[[nodiscard]] inline failure validate(const retry_policy& policy) {
    if (failure bad = validate(policy.backoff)) {
        return bad;
    }
    if (policy.max_elapsed < duration::zero()) {
        return detail::out_of_range(
            "retry_policy.max_elapsed must not be negative", policy.max_elapsed);
    }
    const auto* list = std::get_if<backoff_list>(&policy.backoff.policy());
    if (list != nullptr && policy.max_attempts != 0 && list->waits().size() > policy.max_attempts) {
        std::string what{"backoff_list must not hold more waits than max_attempts, which is "};
        what.append(std::to_string(policy.max_attempts)).append(", got ");
        what.append(std::to_string(list->waits().size()));
        return {errc::invalid_argument, std::move(what)};
    }
    return {};
}

/// One failure, as `decide` judges it.
struct failed_attempt {
    failure_kind kind = failure_kind::nacked;
    failure_counts counts{}; ///< This failure included.
    duration elapsed{};      ///< Since the message was first handed out.
    /// The wait that was decided at the failure before; 0 at the first. Needed only where
    /// `backoff::needs_previous_wait()`.
    duration previous_wait{};
};

/// What becomes of a failed message: a dead letter if there is a `death`, else one more try.
struct retry_decision {
    duration wait{}; ///< Until it may be handed out again; 0: at once.
    std::optional<death_reason> death{};

    [[nodiscard]] constexpr bool is_dead() const noexcept { return death.has_value(); }

    friend constexpr bool operator==(const retry_decision&, const retry_decision&) = default;
};

namespace detail {

[[nodiscard]] inline std::optional<death_reason>
limit_reached(const retry_policy& policy, const failed_attempt& attempt) noexcept {
    const auto reached = [](std::uint32_t count, std::uint32_t limit) {
        return limit != 0 && count >= limit;
    };
    const failure_counts& counts = attempt.counts;
    if (reached(counts.failures, policy.max_attempts)) {
        return death_reason::max_attempts;
    }
    if (attempt.kind == failure_kind::deadline_passed &&
        reached(counts.stalls, policy.max_stalls)) {
        return death_reason::max_stalls;
    }
    if (attempt.kind == failure_kind::crashed && reached(counts.crashes, policy.max_crashes)) {
        return death_reason::max_crashes;
    }
    if (policy.max_elapsed > duration::zero() && attempt.elapsed >= policy.max_elapsed) {
        return death_reason::max_elapsed;
    }
    return std::nullopt;
}

} // namespace detail

/// Judges a failure. Where several limits are reached at once, the death names the first of
/// `max_attempts`, `max_stalls`, `max_crashes`, `max_elapsed`. The limits on stalls and on crashes
/// are looked at only when that is what just happened. The wait before the next try is the
/// backoff's, with n = all failures so far, after `nack` and a throwing handler; 0 after a passed
/// deadline and a crash. A caller that was told another wait (`nack(after)`) puts its own in place.
/// Draws from `random` at most once, and only for a wait.
template <random_source Random>
[[nodiscard]] retry_decision
decide(const retry_policy& policy, const failed_attempt& attempt, Random& random) {
    if (const auto reason = detail::limit_reached(policy, attempt)) {
        return {.wait = {}, .death = reason};
    }
    switch (attempt.kind) {
    case failure_kind::nacked:
    case failure_kind::threw:
        return {
            .wait = policy.backoff.wait(attempt.counts.failures, attempt.previous_wait, random),
            .death = {}};
    case failure_kind::deadline_passed:
    case failure_kind::crashed: break;
    }
    return {};
}

} // namespace railmq
