// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/ready_bitmap.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

using railmq::ready_bitmap;

namespace {

constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();

/// What is in it, by `for_each`.
std::vector<std::uint64_t> all_of(const ready_bitmap& ready) {
    std::vector<std::uint64_t> all;
    ready.for_each([&](std::uint64_t seq) { all.push_back(seq); });
    return all;
}

/// What is in it, by `first` and `next_after`.
std::vector<std::uint64_t> walk(const ready_bitmap& ready) {
    std::vector<std::uint64_t> all;
    if (!ready.empty()) {
        for (std::optional at{ready.first()}; at; at = ready.next_after(*at)) {
            all.push_back(*at);
        }
    }
    return all;
}

static_assert(std::is_nothrow_default_constructible_v<ready_bitmap>);
static_assert(std::is_nothrow_move_constructible_v<ready_bitmap>);
static_assert(std::is_nothrow_move_assignable_v<ready_bitmap>);
static_assert(noexcept(std::declval<ready_bitmap&>().erase(0)));
static_assert(noexcept(std::declval<const ready_bitmap&>().first()));

} // namespace

TEST_CASE("ready_bitmap: an empty one") {
    ready_bitmap ready;
    CHECK(ready.empty());
    CHECK(ready.size() == 0);
    CHECK_FALSE(ready.contains(0));
    CHECK_FALSE(ready.erase(0));
    CHECK_FALSE(ready.next_after(0));
    CHECK_FALSE(ready.next_after(last));
    CHECK(all_of(ready).empty());
    ready.clear();
    CHECK(ready.empty());
}

TEST_CASE("ready_bitmap: in once, out once") {
    ready_bitmap ready;
    const std::uint64_t seq = GENERATE(
        std::uint64_t{0},
        std::uint64_t{63},
        std::uint64_t{64},
        std::uint64_t{4095},
        std::uint64_t{4096},
        std::uint64_t{1} << 32,
        last);
    CHECK(ready.insert(seq));
    CHECK_FALSE(ready.insert(seq));
    CHECK(ready.size() == 1);
    CHECK(ready.contains(seq));
    CHECK_FALSE(ready.contains(seq ^ 1));
    CHECK_FALSE(ready.contains(seq ^ 64));
    CHECK_FALSE(ready.contains(seq ^ 4096));
    CHECK(ready.first() == seq);
    CHECK_FALSE(ready.erase(seq ^ 1));
    CHECK_FALSE(ready.erase(seq ^ 64));
    CHECK_FALSE(ready.erase(seq ^ 4096));
    CHECK(ready.erase(seq));
    CHECK_FALSE(ready.erase(seq));
    CHECK(ready.empty());
    CHECK_FALSE(ready.contains(seq));
}

TEST_CASE("ready_bitmap: ascending, whatever the order of insertion") {
    const std::vector<std::uint64_t> sorted{
        0, 1, 62, 63, 64, 127, 128, 4032, 4095, 4096, 4097, 8191, 8192, 1'000'000, last - 1, last};
    ready_bitmap ready;
    SECTION("ascending") {
        for (const auto seq : sorted) {
            ready.insert(seq);
        }
    }
    SECTION("descending") {
        for (std::size_t i = sorted.size(); i-- > 0;) {
            ready.insert(sorted[i]);
        }
    }
    SECTION("mixed") {
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            ready.insert(sorted[i * 7 % sorted.size()]);
        }
    }
    CHECK(ready.size() == sorted.size());
    CHECK(all_of(ready) == sorted);
    CHECK(walk(ready) == sorted);
    for (const auto seq : sorted) {
        REQUIRE(ready.first() == seq);
        REQUIRE(ready.erase(seq));
    }
    CHECK(ready.empty());
}

TEST_CASE("ready_bitmap: next_after of numbers that are not in it") {
    ready_bitmap ready;
    ready.insert(100);
    ready.insert(5'000);
    ready.insert(50'000);
    CHECK(ready.next_after(0) == 100);
    CHECK(ready.next_after(99) == 100);
    CHECK(ready.next_after(100) == 5'000);
    CHECK(ready.next_after(4'095) == 5'000);
    CHECK(ready.next_after(4'999) == 5'000);
    CHECK(ready.next_after(5'000) == 50'000);
    CHECK(ready.next_after(20'000) == 50'000);
    CHECK_FALSE(ready.next_after(50'000));
    CHECK_FALSE(ready.next_after(last - 1));
    CHECK_FALSE(ready.next_after(last));
    ready.insert(last);
    CHECK(ready.next_after(50'000) == last);
    CHECK(ready.next_after(last - 1) == last);
    CHECK_FALSE(ready.next_after(last));
}

TEST_CASE("ready_bitmap: a million neighbours come back and go out again in order") {
    ready_bitmap ready;
    const std::uint64_t from = 123'456'789;
    const std::uint64_t count = 1'000'000;
    for (std::uint64_t seq = from; seq < from + count; seq += 2) {
        ready.insert(seq);
    }
    for (std::uint64_t seq = from + count - 1; seq > from; seq -= 2) {
        ready.insert(seq);
    }
    CHECK(ready.size() == count);
    bool in_order = true;
    for (std::uint64_t seq = from; seq < from + count; ++seq) {
        in_order = in_order && ready.first() == seq && ready.erase(seq);
    }
    CHECK(in_order);
    CHECK(ready.empty());
}

TEST_CASE("ready_bitmap: cleared and used again") {
    ready_bitmap ready;
    for (std::uint64_t seq = 0; seq < 20'000; seq += 3) {
        ready.insert(seq);
    }
    ready.clear();
    CHECK(ready.empty());
    CHECK(all_of(ready).empty());
    CHECK_FALSE(ready.contains(3));
    CHECK_FALSE(ready.contains(19'998)); // in the block that was used last
    CHECK(ready.insert(19'998));
    CHECK(ready.insert(3));
    CHECK(all_of(ready) == std::vector<std::uint64_t>{3, 19'998});
}

TEST_CASE("ready_bitmap: a block that was emptied and is used again starts without bits") {
    ready_bitmap ready;
    ready.insert(1);
    ready.insert(4'000);
    ready.erase(1);
    ready.erase(4'000);
    ready.insert(10 * 4'096 + 2);
    CHECK(all_of(ready) == std::vector<std::uint64_t>{10 * 4'096 + 2});
    CHECK_FALSE(ready.contains(1));
    CHECK_FALSE(ready.contains(10 * 4'096 + 1));
}

TEST_CASE("ready_bitmap: moves and swaps") {
    ready_bitmap ready;
    ready.insert(7);
    ready.insert(70'000);
    ready_bitmap other{std::move(ready)};
    CHECK(all_of(other) == std::vector<std::uint64_t>{7, 70'000});
    CHECK(other.insert(70'001));
    CHECK(other.erase(70'000));
    ready_bitmap third;
    third.insert(1);
    third = std::move(other);
    CHECK(all_of(third) == std::vector<std::uint64_t>{7, 70'001});
    // Both used the same block last, each its own.
    third.insert(8);
    ready_bitmap fourth;
    fourth.insert(2);
    fourth.swap(third);
    CHECK(third.insert(8));
    CHECK(fourth.insert(2));
    CHECK(all_of(third) == std::vector<std::uint64_t>{2, 8});
    CHECK(all_of(fourth) == std::vector<std::uint64_t>{2, 7, 8, 70'001});
}

TEST_CASE("ready_bitmap: random, near and far, against a set") {
    std::mt19937_64 random{railmq::test::seed(6)};
    const int width = GENERATE(4, 10, 13, 20, 64);
    ready_bitmap ready;
    std::set<std::uint64_t> expected;
    for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t seq = random() >> (64 - width);
        if (random() % 2 == 0) {
            REQUIRE(ready.insert(seq) == expected.insert(seq).second);
        } else if (random() % 2 == 0) {
            REQUIRE(ready.erase(seq) == (expected.erase(seq) == 1));
        } else if (!expected.empty()) {
            REQUIRE(ready.first() == *expected.begin());
            REQUIRE(ready.erase(ready.first()));
            expected.erase(expected.begin());
        }
        REQUIRE(ready.size() == expected.size());
        const auto next = expected.upper_bound(seq);
        REQUIRE(
            ready.next_after(seq) ==
            (next == expected.end() ? std::nullopt : std::optional{*next}));
        REQUIRE(ready.contains(seq) == expected.contains(seq));
    }
    const std::vector<std::uint64_t> sorted{expected.begin(), expected.end()};
    CHECK(all_of(ready) == sorted);
    CHECK(walk(ready) == sorted);
}
