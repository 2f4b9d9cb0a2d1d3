// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/numbered.hpp>

#include "support/catch.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

using railmq::core::numbered;
using railmq::core::reserve_one_more;
using railmq::core::shrink_if_sparse;

TEST_CASE("numbered: numbers are given out again, what they name is new") {
    numbered<std::string> names;
    CHECK(names.size() == 0);
    CHECK(names.next() == 0);
    CHECK(names.next() == 0); // only looked at
    CHECK(names.size() == 0);
    CHECK(names.take() == 0);
    names[0] = "zero";
    CHECK(names.next() == 1);
    CHECK(names.take() == 1);
    names[1] = "one";
    CHECK(names.size() == 2);

    names.give(0);
    CHECK(names.size() == 1);
    CHECK(names[1] == "one");
    CHECK(names.next() == 0);
    CHECK(names.take() == 0);
    CHECK(names[0].empty());
    CHECK(names.numbers() == 2);
}

TEST_CASE("numbered: any number may be given back in any order") {
    numbered<int> items;
    for (std::uint32_t i = 0; i != 1'000; ++i) {
        REQUIRE(items.next() == i);
        REQUIRE(items.take() == i);
    }
    for (std::uint32_t i = 0; i != 1'000; ++i) {
        items.give((i * 7) % 1'000);
    }
    CHECK(items.size() == 0);
    CHECK(items.numbers() == 0); // all memory is given back
    std::set<std::uint32_t> again;
    for (std::uint32_t i = 0; i != 1'000; ++i) {
        static_cast<void>(items.next());
        again.insert(items.take());
    }
    CHECK(again.size() == 1'000);
    CHECK(items.numbers() == 1'000);
}

TEST_CASE("reserve_one_more: grows by more than one") {
    std::vector<int> v;
    std::size_t growths = 0;
    for (int i = 0; i != 1'000; ++i) {
        const std::size_t before = v.capacity();
        reserve_one_more(v);
        growths += v.capacity() == before ? 0U : 1U;
        REQUIRE(v.capacity() > v.size());
        v.push_back(i);
    }
    CHECK(growths <= 10);
}

TEST_CASE("shrink_if_sparse: a map that was large, and rarely") {
    boost::unordered_flat_map<int, int> map;
    for (int i = 0; i != 100'000; ++i) {
        map.emplace(i, i);
    }
    std::size_t shrunk = 0;
    for (int i = 0; i != 99'990; ++i) {
        map.erase(i);
        const std::size_t before = map.bucket_count();
        shrink_if_sparse(map);
        shrunk += map.bucket_count() == before ? 0U : 1U;
        REQUIRE(map.size() == 99'999U - static_cast<std::size_t>(i));
    }
    CHECK(shrunk < 20);
    CHECK(map.bucket_count() < 500);
    for (int i = 99'990; i != 100'000; ++i) {
        CHECK(map.at(i) == i);
    }
}
