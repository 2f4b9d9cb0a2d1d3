// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using namespace std::chrono_literals;
using railmq::duration;

namespace {

/// Answers with the same bits for ever: the ends of an interval, on request.
struct stuck_source {
    using result_type = std::uint64_t;
    result_type bits = 0;
    int calls = 0;

    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
    result_type operator()() {
        ++calls;
        return bits;
    }
};

constexpr auto all_ones = std::numeric_limits<std::uint64_t>::max();

/// Counts in the narrow range from 5 to 9, whose four lowest values carry two bits.
struct narrow_source {
    using result_type = std::uint8_t;
    result_type next = 5;

    static constexpr result_type min() { return 5; }
    static constexpr result_type max() { return 9; }
    result_type operator()() {
        const result_type value = next;
        next = value == max() ? min() : static_cast<result_type>(value + 1);
        return value;
    }
};

struct no_source {
    int operator()() { return 0; }
};

static_assert(railmq::random_source<railmq::random_engine>);
static_assert(railmq::random_source<std::mt19937>);
static_assert(railmq::random_source<std::minstd_rand>);
static_assert(!railmq::random_source<no_source>);
static_assert(std::uniform_random_bit_generator<railmq::random_engine>);
static_assert(sizeof(railmq::random_engine) == 8);

} // namespace

TEST_CASE("random_engine: the published sequences of SplitMix64") {
    railmq::random_engine from_0;
    CHECK(from_0() == 0xe220a8397b1dcdafU);
    CHECK(from_0() == 0x6e789e6aa1b965f4U);
    CHECK(from_0() == 0x06c45d188009454fU);
    CHECK(from_0() == 0xf88bb8a8724c81ecU);

    railmq::random_engine from_1234567{1'234'567};
    CHECK(from_1234567() == 6'457'827'717'110'365'317U);
    CHECK(from_1234567() == 3'203'168'211'198'807'973U);
    CHECK(from_1234567() == 9'817'491'932'198'370'423U);
    CHECK(from_1234567() == 4'593'380'528'125'082'431U);
}

TEST_CASE("random_engine: a copy goes on alike, another seed does not") {
    railmq::random_engine engine{42};
    static_cast<void>(engine());
    railmq::random_engine copy = engine;
    CHECK(copy == engine);
    CHECK(copy() == engine());
    static_cast<void>(copy());
    CHECK_FALSE(copy == engine);
    CHECK_FALSE(railmq::random_engine{1} == railmq::random_engine{2});
    CHECK(railmq::random_engine{1}() != railmq::random_engine{2}());
}

TEST_CASE("random_engine: works with the standard algorithms") {
    std::vector<int> numbers(100);
    std::iota(numbers.begin(), numbers.end(), 0);
    const std::vector<int> sorted = numbers;
    railmq::random_engine engine{7};
    std::shuffle(numbers.begin(), numbers.end(), engine);
    CHECK(numbers != sorted);
    CHECK(std::is_permutation(numbers.begin(), numbers.end(), sorted.begin()));
}

TEST_CASE("random sources of every width: the first call gives the highest bits") {
    std::mt19937 narrow;
    const std::uint64_t first = narrow();
    const std::uint64_t second = narrow();
    std::mt19937 again;
    CHECK(railmq::detail::random_bits(again) == ((first << 32U) | second));

    std::mt19937_64 wide;
    const std::uint64_t whole = wide();
    std::mt19937_64 wide_again;
    CHECK(railmq::detail::random_bits(wide_again) == whole);

    // 5, 6, 7, 8 are the two-bit parts 00, 01, 10, 11; 9 is passed over.
    narrow_source counting;
    CHECK(railmq::detail::random_bits(counting) == 0x1b1b1b1b1b1b1b1bU);
}

TEST_CASE("uniform_unit: from 0 up to, never including, 1") {
    stuck_source lowest{.bits = 0};
    CHECK(railmq::uniform_unit(lowest) == 0.0);
    stuck_source highest{.bits = all_ones};
    CHECK(railmq::uniform_unit(highest) == 1.0 - 0x1p-53);
    CHECK(railmq::uniform_unit(highest) < 1.0);
    stuck_source middle{.bits = std::uint64_t{1} << 63U};
    CHECK(railmq::uniform_unit(middle) == 0.5);
}

TEST_CASE("uniform_unit: spread evenly, the same for one seed everywhere") {
    railmq::random_engine pinned{1};
    CHECK(railmq::uniform_unit(pinned) == 0x1.22145bd91204bp-1);

    railmq::random_engine engine{3};
    std::array<int, 10> tenths{};
    for (int i = 0; i < 10'000; ++i) {
        ++tenths.at(static_cast<std::size_t>(railmq::uniform_unit(engine) * 10));
    }
    // A tenth of 10,000 draws has a standard deviation of 30.
    CHECK(*std::min_element(tenths.begin(), tenths.end()) > 850);
    CHECK(*std::max_element(tenths.begin(), tenths.end()) < 1150);
}

TEST_CASE("uniform_below: every value below the bound, and nothing else") {
    railmq::random_engine engine{5};
    std::array<int, 6> faces{};
    for (int i = 0; i < 6'000; ++i) {
        ++faces.at(railmq::uniform_below(engine, 6));
    }
    CHECK(*std::min_element(faces.begin(), faces.end()) > 850);
    CHECK(*std::max_element(faces.begin(), faces.end()) < 1150);

    stuck_source highest{.bits = all_ones};
    CHECK(railmq::uniform_below(highest, 0) == 0);
    CHECK(railmq::uniform_below(highest, 1) == 0);
    CHECK(railmq::uniform_below(highest, all_ones) == all_ones - 1);
    CHECK(highest.calls == 3);
}

TEST_CASE("high_product: the upper half of a 128-bit product") {
    using railmq::detail::high_product;
    STATIC_REQUIRE(high_product(all_ones, all_ones) == all_ones - 1);
    STATIC_REQUIRE(high_product(all_ones, 2) == 1);
    STATIC_REQUIRE(high_product(std::uint64_t{1} << 32U, std::uint64_t{1} << 32U) == 1);
    STATIC_REQUIRE(high_product(0xffffffffU, 0xffffffffU) == 0);
    STATIC_REQUIRE(high_product(0x123456789abcdef0U, 0xfedcba9876543210U) == 0x121fa00ad77d7422U);
}

TEST_CASE("uniform_duration: both ends are included") {
    stuck_source lowest{.bits = 0};
    stuck_source highest{.bits = all_ones};
    CHECK(railmq::uniform_duration(lowest, 1s, 2s) == 1s);
    CHECK(railmq::uniform_duration(highest, 1s, 2s) == 2s);
    CHECK(railmq::uniform_duration(lowest, -2s, -1s) == -2s);
    CHECK(railmq::uniform_duration(highest, -2s, -1s) == -1s);

    railmq::random_engine engine{11};
    std::set<duration> seen;
    for (int i = 0; i < 200; ++i) {
        seen.insert(railmq::uniform_duration(engine, 7ns, 10ns));
    }
    CHECK(seen == std::set<duration>{7ns, 8ns, 9ns, 10ns});
}

TEST_CASE("uniform_duration: nothing to choose, nothing drawn") {
    stuck_source source{.bits = all_ones};
    CHECK(railmq::uniform_duration(source, 3s, 3s) == 3s);
    CHECK(railmq::uniform_duration(source, 3s, 2s) == 3s);
    CHECK(source.calls == 0);
    static_cast<void>(railmq::uniform_duration(source, 3s, 4s));
    CHECK(source.calls == 1);
}

TEST_CASE("uniform_duration: the widest intervals do not overflow") {
    stuck_source lowest{.bits = 0};
    stuck_source highest{.bits = all_ones};
    CHECK(railmq::uniform_duration(lowest, duration::min(), duration::max()) == duration::min());
    CHECK(railmq::uniform_duration(highest, duration::min(), duration::max()) == duration::max());
    CHECK(railmq::uniform_duration(highest, 0s, duration::max()) == duration::max());
    CHECK(railmq::uniform_duration(highest, -1ns, duration::max()) == duration::max());
    CHECK(railmq::uniform_duration(lowest, duration::min(), 0s) == duration::min());
}

TEST_CASE("uniform_duration: one seed, one sequence, on every compiler") {
    railmq::random_engine engine{2024};
    CHECK(railmq::uniform_duration(engine, 0s, 1s) == 622'765'537ns);
    CHECK(railmq::uniform_duration(engine, 0s, 1s) == 97'231'908ns);
    std::mt19937 standard;
    CHECK(railmq::uniform_duration(standard, 0s, 1s) == 814'723'692ns);
    std::minstd_rand odd;
    CHECK(railmq::uniform_duration(odd, 0s, 1s) == 885'629'056ns);
}
