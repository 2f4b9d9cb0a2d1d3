// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_details.hpp>

#include "support/catch.hpp"

using railmq::core::message_details;
using railmq::core::wait_kind;

TEST_CASE("message_details: fresh ones say nothing") {
    const message_details d;
    CHECK(d.lease_deadline == railmq::never);
    CHECK(d.first_handed_out == railmq::never);
    CHECK(d.expires_at == railmq::never);
    CHECK_FALSE(d.timer);
    CHECK_FALSE(d.lifetime);
    CHECK_FALSE(d.has_id);
    CHECK(d.waits_for == wait_kind::none);
    CHECK(d.failures == railmq::failure_counts{});
    CHECK(d.refusals == 0);
    CHECK(d.line == nullptr);
    CHECK(d.props == nullptr);
    CHECK(d.deaths == nullptr);
    CHECK_FALSE(d.stop.stop_possible()); // nothing is allocated before somebody asks
}
