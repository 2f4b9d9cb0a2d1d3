// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/destination.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

using railmq::core::destination;
using railmq::core::destination_kind;
using railmq::core::numbered;
using railmq::core::reserve_one_more;

TEST_CASE("destination: kinds count for themselves") {
    CHECK(destination::queue(7).kind == destination_kind::queue);
    CHECK(destination::log(7).kind == destination_kind::log);
    CHECK(destination::exchange(7).kind == destination_kind::exchange);
    CHECK(destination::queue(7).id == 7);
    CHECK(destination::queue(7) == destination::queue(7));
    CHECK_FALSE(destination::queue(7) == destination::queue(8));
    CHECK_FALSE(destination::queue(7) == destination::log(7));

    std::set<std::uint64_t> numbers;
    for (const std::uint32_t id : {0U, 1U, 0xffffffffU}) {
        numbers.insert(destination::queue(id).as_number());
        numbers.insert(destination::log(id).as_number());
        numbers.insert(destination::exchange(id).as_number());
    }
    CHECK(numbers.size() == 9);
}

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
