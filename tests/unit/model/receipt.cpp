// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/receipt.hpp>

#include "support/catch.hpp"

TEST_CASE("receipt: is an id") {
    CHECK(railmq::receipt{}.id == 0);
    CHECK(railmq::receipt{3} == railmq::receipt{3});
    CHECK(railmq::receipt{3} != railmq::receipt{4});
    CHECK_FALSE(railmq::receipt{3}.duplicate_of());
    CHECK(railmq::receipt{3, true}.duplicate_of() == 3U);
    CHECK(railmq::receipt{3, true} != railmq::receipt{3});
}

TEST_CASE("transaction_receipt: of a queue an id, of a log a place") {
    const railmq::transaction_receipt none{};
    CHECK(none.id == 0);
    CHECK_FALSE(none.duplicate_of);
    CHECK(none == railmq::transaction_receipt{});
    CHECK(none != railmq::transaction_receipt{.partition = 1});
    CHECK(none != railmq::transaction_receipt{.duplicate_of = 0});
}
