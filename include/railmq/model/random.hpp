// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace railmq {

/// What the broker draws chance from: called without arguments, it returns an unsigned integer,
/// uniform between the constants `min()` and `max()`. The standard engines and `random_engine`
/// are such sources. (The standard's own name for this is in `<random>`, which costs a quarter of
/// a second to compile wherever it is included.)
template <class Source>
concept random_source = requires(Source& source) {
    { source() } -> std::unsigned_integral;
    { Source::min() } -> std::same_as<std::invoke_result_t<Source&>>;
    { Source::max() } -> std::same_as<std::invoke_result_t<Source&>>;
    requires std::bool_constant<(Source::min() < Source::max())>::value;
};

/// A small seeded random engine: eight bytes of state, 64 random bits per call, the same sequence
/// for one seed on every compiler and machine.
///
/// The algorithm is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): the state grows by 0x9e3779b97f4a7c15 and is then mixed. Every seed
/// is a good one, and the sequence repeats after 2^64 calls. It is not meant for secrets.
///
/// Distinct objects: safe. Shared objects: unsafe.
class random_engine {
public:
    using result_type = std::uint64_t;

    /// Starts the sequence of `seed`.
    explicit constexpr random_engine(std::uint64_t seed = 0) noexcept
        : state_{seed} {}

    [[nodiscard]] static constexpr result_type min() noexcept { return 0; }
    [[nodiscard]] static constexpr result_type max() noexcept {
        return std::numeric_limits<result_type>::max();
    }

    /// The next 64 random bits.
    constexpr result_type operator()() noexcept {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t mixed = state_;
        mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
        mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
        return mixed ^ (mixed >> 31U);
    }

    /// Equal engines go on with equal sequences.
    friend constexpr bool operator==(const random_engine&, const random_engine&) = default;

private:
    std::uint64_t state_;
};

namespace detail {

/// 64 random bits from a source of any width, the first call giving the highest ones. A source
/// whose range is no power of two is asked again for a value beyond the largest one that fits.
template <random_source Random>
[[nodiscard]] constexpr std::uint64_t random_bits(Random& random) {
    constexpr std::uint64_t top = std::uint64_t{Random::max()} - std::uint64_t{Random::min()};
    if constexpr (top == std::numeric_limits<std::uint64_t>::max()) {
        return random();
    } else {
        constexpr auto width = static_cast<unsigned>(std::bit_width(top + 1)) - 1U;
        std::uint64_t bits = 0;
        for (unsigned have = 0; have < 64U; have += width) {
            std::uint64_t part = 0;
            do {
                part = std::uint64_t{random()} - std::uint64_t{Random::min()};
            } while ((part >> width) != 0);
            bits = (bits << width) | part;
        }
        return bits;
    }
}

/// The high half of the 128-bit product, in 64-bit steps because no standard type is wider.
[[nodiscard]] constexpr std::uint64_t high_product(std::uint64_t a, std::uint64_t b) noexcept {
    constexpr std::uint64_t low_half = 0xffffffffU;
    const std::uint64_t low = (a & low_half) * (b & low_half);
    const std::uint64_t mid = (a >> 32U) * (b & low_half) + (low >> 32U);
    const std::uint64_t cross = (a & low_half) * (b >> 32U) + (mid & low_half);
    return (a >> 32U) * (b >> 32U) + (mid >> 32U) + (cross >> 32U);
}

} // namespace detail

/// A number from 0 up to, not including, 1: one of the 2^53 multiples of 2^-53, each equally
/// likely. Draws 64 bits; the result depends on those bits alone, on every compiler.
template <random_source Random>
[[nodiscard]] constexpr double uniform_unit(Random& random) {
    return static_cast<double>(detail::random_bits(random) >> 11U) * 0x1p-53;
}

/// A number from 0 up to, not including, `bound`; 0 when `bound` is 0. Draws 64 bits, always once,
/// so that what is drawn afterwards does not depend on chance; the price is that a value may be
/// more likely than another by up to `bound` parts in 2^64.
template <random_source Random>
[[nodiscard]] constexpr std::uint64_t uniform_below(Random& random, std::uint64_t bound) {
    return detail::high_product(detail::random_bits(random), bound);
}

/// A duration from `lo` to `hi`, both included, in steps of a nanosecond. Draws 64 bits, or nothing
/// when there is nothing to choose: then (`hi <= lo`) the result is `lo`. Any two durations will
/// do, the shortest and the longest too.
template <random_source Random>
[[nodiscard]] constexpr duration uniform_duration(Random& random, duration lo, duration hi) {
    if (hi <= lo) {
        return lo;
    }
    // Unsigned, because the distance between two int64 values may not fit into an int64.
    const auto first = static_cast<std::uint64_t>(lo.count());
    const std::uint64_t distance = static_cast<std::uint64_t>(hi.count()) - first;
    const std::uint64_t offset = distance == std::numeric_limits<std::uint64_t>::max()
                                     ? detail::random_bits(random)
                                     : uniform_below(random, distance + 1);
    return duration{static_cast<std::int64_t>(first + offset)};
}

} // namespace railmq
