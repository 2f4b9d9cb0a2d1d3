// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/key_arena.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

using plain = railmq::core::single_threaded;
using arena_type = railmq::core::key_arena<plain>;
using budget_type = railmq::core::memory_budget<plain>;

TEST_CASE("key_arena: gives back what it was given, whatever its length") {
    budget_type budget{std::numeric_limits<std::size_t>::max()};
    {
        arena_type arena{budget};
        std::vector<const std::byte*> stored;
        std::vector<std::string> keys;
        for (std::size_t n = 0; n < 1'000; ++n) {
            keys.emplace_back(n % 7 == 0 ? n * 13 : n % 9, static_cast<char>('a' + n % 26));
            REQUIRE(arena.reserve(arena_type::bytes_of(keys.back())));
            stored.push_back(arena.store(keys.back()));
        }
        for (std::size_t n = 0; n < keys.size(); ++n) {
            CHECK(arena_type::at(stored[n]) == keys[n]);
        }
        REQUIRE(arena.reserve(8));
        CHECK(arena_type::at(arena.store(std::string_view{"\0\n", 2})).size() == 2);
        CHECK(arena.memory_bytes() == budget.used());
        CHECK(budget.used() > 0);
        arena.clear();
        CHECK(budget.used() == 0);
        REQUIRE(arena.reserve(8));
        CHECK(arena_type::at(arena.store("")).empty());
    }
    CHECK(budget.used() == 0);
}

TEST_CASE("key_arena: one reservation for many keys, and none that fit") {
    budget_type budget{std::numeric_limits<std::size_t>::max()};
    arena_type arena{budget};
    REQUIRE(arena.reserve(100'000));
    const std::size_t used = budget.used();
    for (int i = 0; i < 100; ++i) {
        const std::string key(996, 'k');
        REQUIRE(arena.reserve(arena_type::bytes_of(key)));
        (void)arena.store(key);
    }
    CHECK(budget.used() == used);
}

TEST_CASE("key_arena: stops at the budget, unless it must not") {
    budget_type budget{1'000};
    arena_type arena{budget};
    REQUIRE(arena.reserve(100));
    const std::size_t used = budget.used();
    CHECK_FALSE(arena.reserve(900));
    CHECK(budget.used() == used);
    CHECK(arena_type::at(arena.store("still there")) == "still there");
    CHECK(arena.reserve(900, true));
    CHECK(budget.used() > budget.limit());
}
