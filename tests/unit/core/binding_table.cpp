// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/binding_table.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

using railmq::core::binding_table;
using railmq::core::destination;
using railmq::core::no_number;

namespace {

std::vector<std::uint32_t> queues(const binding_table& table, std::uint32_t bundle) {
    std::vector<std::uint32_t> out;
    for (const binding_table::member& m : table.members(bundle)) {
        CHECK(table.slot_of(m.where) == m.slot);
        CHECK(table.where(m.slot) == m.where);
        out.push_back(m.where.id);
    }
    std::sort(out.begin(), out.end());
    return out;
}

using list = std::vector<std::uint32_t>;

} // namespace

TEST_CASE("[N18] binding_table: twice is once, and what is not there cannot be removed") {
    binding_table table;
    const std::uint32_t bundle = table.open_bundle();
    CHECK(table.add(bundle, destination::queue(5)));
    CHECK_FALSE(table.add(bundle, destination::queue(5)));
    CHECK(table.add(bundle, destination::log(5))); // another destination
    CHECK(table.size() == 2);
    const std::uint32_t slot = table.slot_of(destination::queue(5));
    CHECK(table.remove(bundle, slot));
    CHECK_FALSE(table.remove(bundle, slot));
    CHECK(table.size() == 1);
    CHECK(table.slot_of(destination::queue(5)) == no_number);
    CHECK(table.slot_of(destination::log(5)) != no_number);
}

TEST_CASE("binding_table: a slot lives as long as a binding leads to it, or it is pinned") {
    binding_table table;
    const std::uint32_t a = table.open_bundle();
    const std::uint32_t b = table.open_bundle();
    table.add(a, destination::queue(1));
    table.add(b, destination::queue(1));
    const std::uint32_t queue = table.slot_of(destination::queue(1));
    CHECK(table.remove(a, queue));
    CHECK(table.slot_of(destination::queue(1)) == queue);
    CHECK(table.bundle_of(queue) == b);
    CHECK(table.remove(b, queue));
    CHECK(table.slot_of(destination::queue(1)) == no_number);
    CHECK(table.bundle_of(queue) == no_number);

    const std::uint32_t exchange = table.pin(destination::exchange(1));
    CHECK(table.slot_of(destination::exchange(1)) == exchange);
    table.add(a, destination::exchange(1));
    CHECK(table.remove(a, exchange));
    CHECK(table.slot_of(destination::exchange(1)) == exchange);
    table.add(a, destination::exchange(1));
    table.unpin(exchange);
    CHECK(table.slot_of(destination::exchange(1)) == exchange); // still bound
    CHECK(table.remove(a, exchange));
    CHECK(table.slot_of(destination::exchange(1)) == no_number);
}

TEST_CASE("binding_table: a destination finds its bindings without a search") {
    binding_table table;
    list bundles;
    for (std::uint32_t i = 0; i != 100; ++i) {
        bundles.push_back(table.open_bundle());
        table.add(bundles.back(), destination::queue(1));
        table.add(bundles.back(), destination::queue(2));
    }
    const std::uint32_t slot = table.slot_of(destination::queue(1));
    std::uint32_t removed = 0;
    for (std::uint32_t b = table.bundle_of(slot); b != no_number; b = table.bundle_of(slot)) {
        REQUIRE(table.remove(b, slot));
        ++removed;
    }
    CHECK(removed == 100);
    CHECK(table.size() == 100);
    for (const std::uint32_t b : bundles) {
        CHECK(queues(table, b) == list{2});
    }
}

TEST_CASE("binding_table: does what a set of pairs does, and numbers are used again") {
    std::mt19937_64 random{railmq::test::seed(1)};
    binding_table table;
    list bundles;
    for (int i = 0; i != 8; ++i) {
        bundles.push_back(table.open_bundle());
    }
    std::set<std::pair<std::uint32_t, std::uint32_t>> model; // bundle, queue
    for (int i = 0; i != 20'000; ++i) {
        const std::uint32_t bundle = bundles[random() % bundles.size()];
        const auto queue = static_cast<std::uint32_t>(random() % 20) * 1'000'003;
        if (random() % 2 == 0) {
            REQUIRE(
                table.add(bundle, destination::queue(queue)) ==
                model.emplace(bundle, queue).second);
        } else {
            const std::uint32_t slot = table.slot_of(destination::queue(queue));
            const bool removed = slot != no_number && table.remove(bundle, slot);
            REQUIRE(removed == (model.erase({bundle, queue}) == 1));
        }
        REQUIRE(table.size() == model.size());
        list expected;
        for (const auto& [b, q] : model) {
            if (b == bundle) {
                expected.push_back(q);
            }
        }
        REQUIRE(queues(table, bundle) == expected);
    }
    CHECK(table.slots() <= 20);
}
