// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace railmq {

/// The ways to blur a wait; see `jitter`, which is what users write.
enum class jitter_kind : std::uint8_t { none, full, equal, proportional, reduced, decorrelated };

/// How chance blurs a wait, so that messages which failed together do not all come back together.
/// With d for the wait that the formula gives:
///
/// | jitter            | the wait is uniform between             | known from                     |
/// |-------------------|-----------------------------------------|--------------------------------|
/// | `none`            | d and d                                 |                                |
/// | `full`            | 0 and d                                 | AWS blog (below)               |
/// | `equal`           | d/2 and d                               | AWS blog                       |
/// | `proportional(r)` | d(1-r) and d(1+r), never above `max`    | Watermill Retry, Kafka clients |
/// | `reduced(r)`      | d(1-r) and d                            | BullMQ `jitter`                |
/// | `decorrelated`    | `initial` and 3 x the wait before it    | AWS blog                       |
///
/// (AWS Architecture Blog, "Exponential backoff and jitter", 2015.)
///
/// r is a proportion from 0 to 1; `validate` refuses another. `decorrelated` follows the waits
/// that were, in place of the formula: the first one lies between `initial` and 3 x `initial`, and
/// none is above `max`.
class jitter {
public:
    /// Same as `none`.
    constexpr jitter() noexcept = default;

    static const jitter none;
    static const jitter full;
    static const jitter equal;
    static const jitter decorrelated;

    [[nodiscard]] static constexpr jitter proportional(double ratio) noexcept {
        return jitter{jitter_kind::proportional, ratio};
    }
    [[nodiscard]] static constexpr jitter reduced(double ratio) noexcept {
        return jitter{jitter_kind::reduced, ratio};
    }

    [[nodiscard]] constexpr jitter_kind kind() const noexcept { return kind_; }

    /// The r of `proportional` and `reduced`; 0 for the others.
    [[nodiscard]] constexpr double ratio() const noexcept { return ratio_; }

    /// Equal as written: `reduced(0.5)` does what `equal` does, and still is not equal to it.
    friend constexpr bool operator==(const jitter&, const jitter&) = default;

private:
    explicit constexpr jitter(jitter_kind kind, double ratio = 0) noexcept
        : kind_{kind}
        , ratio_{ratio} {}

    jitter_kind kind_ = jitter_kind::none;
    double ratio_ = 0;
};

inline constexpr jitter jitter::none{jitter_kind::none};
inline constexpr jitter jitter::full{jitter_kind::full};
inline constexpr jitter jitter::equal{jitter_kind::equal};
inline constexpr jitter jitter::decorrelated{jitter_kind::decorrelated};

/// The same wait before every retry.
struct constant_backoff {
    duration delay = std::chrono::seconds{1}; ///< 0: retried at once. Default 1 s.
    railmq::jitter jitter = railmq::jitter::none;

    friend constexpr bool operator==(const constant_backoff&, const constant_backoff&) = default;
};

/// Waits that grow by the same amount: the wait before retry n is min(initial x n, max), the rule
/// of RabbitMQ's quorum queues (4.3, delayed retry).
struct linear_backoff {
    duration initial = std::chrono::seconds{1}; ///< Above 0. Default 1 s.
    duration max = std::chrono::minutes{5};     ///< Not below `initial`. Default 5 min.
    railmq::jitter jitter = railmq::jitter::none;

    friend constexpr bool operator==(const linear_backoff&, const linear_backoff&) = default;
};

/// Waits that grow by the same factor: the wait before retry n is
/// min(initial x multiplier^(n-1), max), as in BullMQ, Pulsar and the Kafka clients. From n =
/// 65,536 on a wait that has still not reached `max` stays what it is.
struct exponential_backoff {
    duration initial = std::chrono::seconds{1}; ///< Above 0. Default 1 s.
    double multiplier = 2;                      ///< Finite, at least 1. Default 2.
    duration max = std::chrono::minutes{5};     ///< Not below `initial`. Default 5 min.
    railmq::jitter jitter = railmq::jitter::full;

    friend constexpr bool
    operator==(const exponential_backoff&, const exponential_backoff&) = default;
};

/// Waits spelled out, the last one repeating (JetStream's BackOff): `backoff_list{1s, 10s, 1min}`,
/// or with jitter `backoff_list{{1s, 10s, 1min}, jitter::full}`. A wait of 0 retries at once.
/// `validate` refuses an empty list.
class backoff_list {
public:
    backoff_list(std::initializer_list<duration> waits, railmq::jitter blur = railmq::jitter::none)
        : waits_(waits)
        , jitter_{blur} {}

    explicit backoff_list(
        std::vector<duration> waits, railmq::jitter blur = railmq::jitter::none) noexcept
        : waits_(std::move(waits))
        , jitter_{blur} {}

    [[nodiscard]] const std::vector<duration>& waits() const noexcept { return waits_; }
    [[nodiscard]] railmq::jitter jitter() const noexcept { return jitter_; }

    friend bool operator==(const backoff_list&, const backoff_list&) = default;

private:
    std::vector<duration> waits_;
    railmq::jitter jitter_;
};

namespace detail {

/// The nearest duration that is not negative, whatever the number.
[[nodiscard]] inline duration rounded(double nanoseconds) noexcept {
    if (!(nanoseconds > 0)) { // also when it is no number
        return duration::zero();
    }
    // 2^63 is the first double that does not fit; the largest count itself has no double.
    if (nanoseconds >= 0x1p63) {
        return duration::max();
    }
    // Not by adding 0.5: a compiler may fuse that with a multiplication before it, another may not,
    // and then the two differ.
    return duration{std::llround(nanoseconds)};
}

[[nodiscard]] inline duration scaled(duration d, double factor) noexcept {
    return rounded(static_cast<double>(d.count()) * factor);
}

[[nodiscard]] inline duration base_wait(const constant_backoff& policy, std::uint32_t) noexcept {
    return std::max(policy.delay, duration::zero());
}

[[nodiscard]] inline duration base_wait(const linear_backoff& policy, std::uint32_t n) noexcept {
    if (policy.initial <= duration::zero() || policy.max <= duration::zero()) {
        return duration::zero();
    }
    return policy.initial > policy.max / n ? policy.max : policy.initial * n;
}

[[nodiscard]] inline duration
base_wait(const exponential_backoff& policy, std::uint32_t n) noexcept {
    if (policy.initial <= duration::zero() || policy.max <= duration::zero()) {
        return duration::zero();
    }
    if (n == 1 || policy.multiplier == 1.0) {
        return std::min(policy.initial, policy.max);
    }
    // Plain products: they grow with n without a step back, and are the same on every machine,
    // neither of which `std::pow` promises. The count bounds the work where the multiplier is
    // next to 1.
    constexpr std::uint32_t last_growing = 65'536;
    const auto cap = static_cast<double>(policy.max.count());
    auto wait = static_cast<double>(policy.initial.count());
    for (std::uint32_t k = 1; k < std::min(n, last_growing) && wait < cap; ++k) {
        wait *= policy.multiplier;
    }
    if (!(wait < cap)) { // also when it is no number
        return policy.max;
    }
    return std::min(rounded(wait), policy.max);
}

[[nodiscard]] inline duration base_wait(const backoff_list& policy, std::uint32_t n) noexcept {
    const std::vector<duration>& waits = policy.waits();
    if (waits.empty()) {
        return duration::zero();
    }
    return std::max(waits[std::min<std::size_t>(n, waits.size()) - 1], duration::zero());
}

template <class Policy>
[[nodiscard]] constexpr duration longest_wait(const Policy& policy) noexcept {
    if constexpr (requires { policy.max; }) {
        return std::max(policy.max, duration::zero());
    } else {
        return duration::max();
    }
}

} // namespace detail

/// How long a failed message waits before it is handed out again: one of `exponential_backoff`
/// (the default), `constant_backoff`, `linear_backoff` and `backoff_list`, each of which converts.
///
/// A value without behaviour of its own: no clock, no engine inside. All of its members are safe
/// to call at any time with any parameters, valid or not: a wait is never negative, never
/// overflows and is never above `max`.
class backoff {
public:
    using policy_type =
        std::variant<exponential_backoff, constant_backoff, linear_backoff, backoff_list>;

    /// Same as `exponential_backoff{}`: 1 s, 2 s, 4 s, ... up to 5 min, with full jitter.
    backoff() = default;

    backoff(exponential_backoff policy) noexcept
        : policy_{policy} {}
    backoff(constant_backoff policy) noexcept
        : policy_{policy} {}
    backoff(linear_backoff policy) noexcept
        : policy_{policy} {}
    backoff(backoff_list policy) noexcept
        : policy_{std::move(policy)} {}

    /// The formula's wait before retry `n`, without jitter. `n` counts from 1, and 0 means 1.
    [[nodiscard]] duration base_wait(std::uint32_t n) const noexcept {
        return std::visit(
            [n](const auto& policy) { return detail::base_wait(policy, std::max(n, 1U)); },
            policy_);
    }

    /// The wait before retry `n` = number of failures so far (1 at the first failure; 0 means 1).
    /// `previous_wait` is what this function returned for the retry before, 0 if there was none;
    /// only `jitter::decorrelated` looks at it. Draws from `random` at most once, and not at all
    /// where there is nothing to choose.
    ///
    /// `max` bounds the interval that is drawn from, rather than the draw: with `proportional`
    /// jitter a message at the limit waits between max(1-r) and max, and messages do not pile up
    /// at `max` itself.
    template <random_source Random>
    [[nodiscard]] duration wait(std::uint32_t n, duration previous_wait, Random& random) const {
        const railmq::jitter blur = jitter();
        const duration base = base_wait(n);
        const duration longest =
            std::visit([](const auto& policy) { return detail::longest_wait(policy); }, policy_);
        duration lo = base;
        duration hi = base;
        switch (blur.kind()) {
        case jitter_kind::none: break;
        case jitter_kind::full: lo = duration::zero(); break;
        case jitter_kind::equal: lo = base / 2; break;
        case jitter_kind::proportional:
            lo = detail::scaled(base, 1.0 - blur.ratio());
            hi = std::min(detail::scaled(base, 1.0 + blur.ratio()), longest);
            break;
        case jitter_kind::reduced: lo = detail::scaled(base, 1.0 - blur.ratio()); break;
        case jitter_kind::decorrelated:
            lo = base_wait(1);
            hi = std::min(detail::scaled(std::max(previous_wait, lo), 3.0), longest);
            break;
        }
        return uniform_duration(random, std::min(lo, hi), hi);
    }

    [[nodiscard]] railmq::jitter jitter() const noexcept {
        return std::visit(
            [](const auto& policy) -> railmq::jitter {
                if constexpr (requires { policy.jitter(); }) {
                    return policy.jitter();
                } else {
                    return policy.jitter;
                }
            },
            policy_);
    }

    /// Whether `wait` looks at `previous_wait`, so that a queue which need not remember it does
    /// not.
    [[nodiscard]] bool needs_previous_wait() const noexcept {
        return jitter().kind() == jitter_kind::decorrelated;
    }

    /// The one that it holds.
    [[nodiscard]] const policy_type& policy() const noexcept { return policy_; }

    friend bool operator==(const backoff&, const backoff&) = default;

private:
    policy_type policy_;
};

namespace detail {

/// A duration in the largest unit that shows it exactly: "0s", "1500ms", "-2min".
[[nodiscard]] inline std::string to_text(duration d) {
    using rep = duration::rep;
    constexpr std::pair<rep, std::string_view> units[] = {
        {3'600'000'000'000, "h"},
        {60'000'000'000, "min"},
        {1'000'000'000, "s"},
        {1'000'000, "ms"},
        {1'000, "us"},
        {1, "ns"},
    };
    if (d == duration::zero()) {
        return "0s";
    }
    for (const auto& [length, name] : units) {
        if (d.count() % length == 0) {
            return std::to_string(d.count() / length).append(name);
        }
    }
    return {};
}

/// The shortest digits that give this number again; not those of the locale.
[[nodiscard]] inline std::string to_text(double number) {
    char digits[32];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
    return {std::begin(digits), end};
}

template <class Value>
[[nodiscard]] failure out_of_range(std::string_view rule, Value got) {
    return {errc::invalid_argument, std::string{rule}.append(", got ").append(to_text(got))};
}

[[nodiscard]] inline failure validate_jitter(railmq::jitter blur, bool has_max) {
    switch (blur.kind()) {
    case jitter_kind::none:
    case jitter_kind::full:
    case jitter_kind::equal: break;
    case jitter_kind::proportional:
    case jitter_kind::reduced:
        if (!(blur.ratio() >= 0 && blur.ratio() <= 1)) {
            return out_of_range("jitter must be a proportion from 0 to 1", blur.ratio());
        }
        break;
    case jitter_kind::decorrelated:
        if (!has_max) {
            return {
                errc::invalid_argument,
                "jitter::decorrelated lets each wait grow from the one before, so it needs the "
                "limit of an exponential_backoff or a linear_backoff, got a policy without `max`"};
        }
        break;
    }
    return {};
}

[[nodiscard]] inline failure validate_range(std::string_view type, duration initial, duration max) {
    std::string rule{type};
    if (initial <= duration::zero()) {
        rule.append(".initial must be above 0 (constant_backoff{.delay = 0s} retries at once)");
        return out_of_range(rule, initial);
    }
    if (max < initial) {
        rule.append(".max must not be below initial, which is ").append(to_text(initial));
        return out_of_range(rule, max);
    }
    return {};
}

[[nodiscard]] inline failure validate(const constant_backoff& policy) {
    if (policy.delay < duration::zero()) {
        return out_of_range("constant_backoff.delay must not be negative", policy.delay);
    }
    return validate_jitter(policy.jitter, false);
}

[[nodiscard]] inline failure validate(const linear_backoff& policy) {
    if (failure bad = validate_range("linear_backoff", policy.initial, policy.max)) {
        return bad;
    }
    return validate_jitter(policy.jitter, true);
}

[[nodiscard]] inline failure validate(const exponential_backoff& policy) {
    if (failure bad = validate_range("exponential_backoff", policy.initial, policy.max)) {
        return bad;
    }
    if (!(policy.multiplier >= 1) || !std::isfinite(policy.multiplier)) {
        return out_of_range(
            "exponential_backoff.multiplier must be a finite number of at least 1",
            policy.multiplier);
    }
    return validate_jitter(policy.jitter, true);
}

[[nodiscard]] inline failure validate(const backoff_list& policy) {
    if (policy.waits().empty()) {
        return {errc::invalid_argument, "backoff_list must hold at least one wait, got none"};
    }
    for (const duration wait : policy.waits()) {
        if (wait < duration::zero()) {
            return out_of_range("backoff_list must not hold a negative wait", wait);
        }
    }
    return validate_jitter(policy.jitter(), false);
}

} // namespace detail

/// What is wrong with a backoff, as `errc::invalid_argument` and a sentence that names the member,
/// the rule and what was given; nothing (false) when it is fine. Refused are: a negative wait; an
/// `initial` of 0 where waits grow from it; a `max` below `initial`; a `multiplier` below 1 or not
/// finite; a jitter outside 0 to 1; an empty list; `jitter::decorrelated` where there is no `max`.
[[nodiscard]] inline failure validate(const backoff& policy) {
    return std::visit([](const auto& held) { return detail::validate(held); }, policy.policy());
}

} // namespace railmq
