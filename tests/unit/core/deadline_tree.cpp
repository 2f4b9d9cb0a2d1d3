// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/deadline_tree.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace {

/// What the owner of a tree answers: which references are alive.
struct owner {
    [[nodiscard]] bool operator()(std::uint64_t ref) const {
        return alive == nullptr || (*alive)[ref];
    }
    void will_need(std::uint64_t) const {}
    const std::vector<bool>* alive = nullptr;
};

} // namespace

using railmq::detail::deadline_mark;
using railmq::detail::deadline_tree;

TEST_CASE("a deadline tree gives marks in order of key, then of insertion") {
    deadline_tree tree;
    const owner all_live;
    REQUIRE(tree.empty());
    std::multiset<std::uint64_t> keys;
    std::uint64_t random = 1;
    for (std::uint64_t i = 0; i < 3'000; ++i) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        const std::uint64_t key = (random >> 33U) % 50 << (i % 5 * 9);
        keys.insert(key);
        REQUIRE(tree.insert({key, i}, all_live));
    }
    std::uint64_t last_key = 0;
    std::uint64_t last_ref = 0;
    for (const std::uint64_t key : keys) {
        const deadline_mark first = tree.front();
        REQUIRE(first.key == key);
        if (key == last_key && key != *keys.begin()) {
            REQUIRE(first.ref > last_ref);
        }
        last_key = first.key;
        last_ref = first.ref;
        tree.pop_front(all_live);
    }
    REQUIRE(tree.empty());
}

TEST_CASE("what has died is not seen at the front of a deadline tree") {
    deadline_tree tree;
    std::vector<bool> alive(100, true);
    const owner live{&alive};
    for (std::uint64_t i = 0; i < 100; ++i) {
        REQUIRE(tree.insert({i * 1'000, i}, live));
    }
    for (std::uint64_t i = 0; i < 99; ++i) {
        alive[i] = false;
        tree.died(i * 1'000, live);
        REQUIRE(tree.front().ref == i + 1);
    }
    alive[99] = false;
    tree.died(99'000, live);
    REQUIRE(tree.empty());
}
