// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/stats.hpp>

#include "support/catch.hpp"

TEST_CASE("queue_stats: nothing has happened yet") {
    const railmq::queue_stats s;
    CHECK(s.ready == 0);
    CHECK(s.accepted == 0);
    CHECK(s.stale_settlements == 0);
    CHECK(s.oldest_ready_since == railmq::never);
    CHECK(s.oldest_since == railmq::never);
}
