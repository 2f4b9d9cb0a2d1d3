// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/properties.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <optional>
#include <utility>

using namespace std::chrono_literals;
using railmq::properties;

TEST_CASE("properties: none of them by default") {
    const properties none;
    CHECK(none == properties{});
    CHECK(none.message_id.empty());
    CHECK_FALSE(none.key);
    CHECK(none.priority == 0);
    CHECK_FALSE(none.time_to_live);
    CHECK(none.delay == 0ns);
    CHECK(none.headers.empty());
}

TEST_CASE("properties: differ by any member") {
    const properties none;
    CHECK(properties{.message_id = "a"} != none);
    CHECK(properties{.key = ""} != none); // an empty key is a key
    CHECK(properties{.routing_key = "a"} != none);
    CHECK(properties{.priority = 1} != none);
    CHECK(properties{.time_to_live = 0s} != none);
    CHECK(properties{.delay = 1ns} != none);
    CHECK(properties{.deduplication_id = "a"} != none);
    CHECK(properties{.correlation_id = "a"} != none);
    CHECK(properties{.reply_to = "a"} != none);
    CHECK(properties{.headers = {{"a", "b"}}} != none);
    CHECK(
        properties{.headers = {{"a", "b"}, {"c", "d"}}} !=
        properties{.headers = {{"c", "d"}, {"a", "b"}}}); // in the order given
}
