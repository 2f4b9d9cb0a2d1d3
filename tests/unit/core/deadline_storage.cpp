// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/deadline_storage.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <set>
#include <vector>

using railmq::detail::deadline_slots;

TEST_CASE("a slot's reference finds it, until it is given back, and never again") {
    deadline_slots<int> slots;
    const std::uint64_t first = slots.take();
    slots[first].item = 7;
    REQUIRE(slots.find(first) != nullptr);
    REQUIRE(slots.find(first)->item == 7);
    slots.give(first);
    REQUIRE(slots.find(first) == nullptr);
    std::set<std::uint64_t> seen{first};
    for (int i = 0; i < 1'000; ++i) {
        const std::uint64_t again = slots.take();
        REQUIRE(seen.insert(again).second);
        REQUIRE(slots.find(first) == nullptr);
        slots.give(again);
    }
}

TEST_CASE("slots do not move while others come and go") {
    deadline_slots<int> slots;
    std::vector<std::uint64_t> refs;
    for (int i = 0; i < 5'000; ++i) {
        refs.push_back(slots.take());
        slots[refs.back()].item = i;
    }
    const auto* const kept = slots.find(refs[123]);
    for (std::size_t i = 0; i < refs.size(); ++i) {
        if (i != 123) {
            slots.give(refs[i]);
        }
    }
    REQUIRE(slots.find(refs[123]) == kept);
    REQUIRE(kept->item == 123);
    slots.give(refs[123]);
}
