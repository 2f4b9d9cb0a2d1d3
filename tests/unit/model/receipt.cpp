// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/receipt.hpp>

#include "support/catch.hpp"

TEST_CASE("receipt: is an id") {
    CHECK(railmq::receipt{}.id == 0);
    CHECK(railmq::receipt{3} == railmq::receipt{3});
    CHECK(railmq::receipt{3} != railmq::receipt{4});
}
