// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/destination.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <set>

using railmq::core::destination;
using railmq::core::destination_kind;

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
