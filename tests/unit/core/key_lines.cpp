// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/key_lines.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <optional>
#include <string>

using railmq::core::key_line;
using railmq::core::key_lines;

TEST_CASE("key_lines: the first of a key goes, the others wait behind it in order") {
    key_lines lines;
    key_line* a = lines.enter("a", 1);
    REQUIRE(a != nullptr);
    CHECK(a->key == "a");
    CHECK(a->owner == 1);
    CHECK(lines.enter("a", 2) == nullptr);
    CHECK(lines.enter("a", 3) == nullptr);
    CHECK(lines.size() == 1);

    CHECK(lines.pass_on(*a) == 2U);
    CHECK(a->owner == 2);
    CHECK(lines.enter("a", 4) == nullptr); // behind 3, though 2 has just got its turn
    CHECK(lines.pass_on(*a) == 3U);
    CHECK(lines.pass_on(*a) == 4U);
    CHECK(lines.pass_on(*a) == std::nullopt);
    CHECK(lines.size() == 0);
}

TEST_CASE("key_lines: keys are independent, and the empty one is a key") {
    key_lines lines;
    key_line* none = lines.enter("", 1);
    key_line* other = lines.enter("other", 2);
    REQUIRE(none != nullptr);
    REQUIRE(other != nullptr);
    CHECK(none != other);
    CHECK(lines.enter("", 3) == nullptr);
    CHECK(lines.pass_on(*other) == std::nullopt);
    CHECK(lines.size() == 1);
    CHECK(lines.pass_on(*none) == 3U);
}

TEST_CASE("key_lines: a key that became free starts anew") {
    key_lines lines;
    key_line* first = lines.enter("k", 1);
    REQUIRE(first != nullptr);
    CHECK(lines.pass_on(*first) == std::nullopt);
    key_line* again = lines.enter("k", 7);
    REQUIRE(again != nullptr);
    CHECK(again->owner == 7);
    CHECK(again->parked.empty());
}

TEST_CASE("key_lines: a line stays where it is while others come") {
    key_lines lines;
    key_line* kept = lines.enter("kept", 0);
    for (int i = 1; i < 1'000; ++i) {
        REQUIRE(lines.enter(std::to_string(i), static_cast<std::uint64_t>(i)) != nullptr);
    }
    CHECK(lines.size() == 1'000);
    CHECK(kept->key == "kept");
    CHECK(lines.enter("kept", 5'000) == nullptr);
    CHECK(kept->parked.size() == 1);
}
