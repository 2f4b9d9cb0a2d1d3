// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_image.hpp>

#include "support/catch.hpp"

#include <chrono>

using namespace std::chrono_literals;
using railmq::core::image_state;
using railmq::core::message_image;

TEST_CASE("a message of which more is to be said is not plain") {
    message_image m;
    m.id = m.position = 7;
    CHECK(m.is_plain());
    m.state = image_state::held;
    m.delivery_count = 1;
    m.enqueued = railmq::time_point{3s};
    m.first_handed_out = railmq::time_point{4s};
    CHECK(m.is_plain());

    SECTION("returned") { m.state = image_state::returned; }
    SECTION("delayed") { m.state = image_state::delayed; }
    SECTION("waiting") { m.state = image_state::waiting; }
    SECTION("dying") { m.state = image_state::dying; }
    SECTION("elsewhere in the order") { m.position = 8; }
    SECTION("failed before") { m.failures.add(railmq::failure_kind::nacked); }
    SECTION("with a time to live") { m.expires_at = railmq::time_point{9s}; }
    SECTION("has waited") { m.previous_wait = 1s; }
    CHECK_FALSE(m.is_plain());
}
