// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/log_handle_options.hpp>

#include "support/catch.hpp"

#include <chrono>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::log_consumer_options;
using railmq::log_start;

TEST_CASE("where a reader begins is a value", "[log_handle_options]") {
    STATIC_REQUIRE(log_start{} == log_start::earliest);
    STATIC_REQUIRE(log_start::latest.kind() == log_start::kind_type::latest);
    STATIC_REQUIRE(log_start::at_offset(7).offset() == 7);
    STATIC_REQUIRE_FALSE(log_start::at_offset(7) == log_start::at_offset(8));
    const auto t = railmq::time_point{5s};
    CHECK(log_start::at_time(t).time() == t);
    CHECK(log_start::at_time(t).kind() == log_start::kind_type::time);
}

TEST_CASE("options of a log's handles are checked", "[log_handle_options]") {
    CHECK_FALSE(railmq::validate(railmq::log_producer_options{}));
    CHECK(railmq::validate(railmq::log_producer_options{.max_message_bytes = 0}));
    CHECK(railmq::validate(railmq::log_producer_options{.epoch = 1}));
    CHECK_FALSE(railmq::validate(railmq::log_producer_options{.producer_id = 0, .epoch = 1}));
    using consumer_options = railmq::log_consumer_options;
    CHECK(railmq::validate(consumer_options{.max_attempts = 1}));
    CHECK(railmq::validate(consumer_options{.dead_letter = "parking"}));
    CHECK(railmq::validate(consumer_options{.dead_letter = railmq::discard}));
    CHECK(
        railmq::validate(consumer_options{.group = "g", .dead_letter = "no name"}).code ==
        railmq::errc::invalid_name);
    CHECK_FALSE(railmq::validate(
        consumer_options{.group = "g", .max_attempts = 1, .dead_letter = "parking"}));

    const auto code = [](const log_consumer_options& o) { return railmq::validate(o).code; };
    CHECK_FALSE(code({}));
    CHECK_FALSE(code({.partitions = {0, 1}}));
    CHECK_FALSE(code({.group = "billing"}));
    CHECK(code({.group = "a b"}) == errc::invalid_name);
    CHECK(code({.group = "g", .partitions = {0}}) == errc::invalid_argument);
    CHECK(code({.group = "g", .session_timeout = 0s}) == errc::invalid_argument);
    CHECK(code({.group = "g", .rebalance_timeout = 0s}) == errc::invalid_argument);
    CHECK(code({.group = "g", .instance_id = "a b"}) == errc::invalid_name);
    CHECK(code({.instance_id = "a"}) == errc::invalid_argument);
    CHECK(code({.on_revoked = [](const auto&) {}}) == errc::invalid_argument);
    CHECK(
        code({.retry_backoff = railmq::constant_backoff{.delay = -1s}}) == errc::invalid_argument);
}

TEST_CASE("a consumer's options have a group's part and a member's", "[log_handle_options]") {
    log_consumer_options o;
    CHECK(railmq::group_part(o) == railmq::group_options{});
    CHECK(railmq::member_part(o) == railmq::member_options{});
    o.assignor = railmq::assignor::range;
    o.offset_retention = 1h;
    o.session_timeout = 3s;
    CHECK(railmq::group_part(o).assignor == railmq::assignor::range);
    CHECK(railmq::group_part(o).offset_retention == 1h);
    CHECK(railmq::member_part(o).session_timeout == 3s);
}
