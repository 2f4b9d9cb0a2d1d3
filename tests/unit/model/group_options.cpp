// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/group_options.hpp>

#include "support/catch.hpp"

#include <set>
#include <string>
#include <string_view>

using namespace std::chrono_literals;
using railmq::assignor;
using railmq::difference;
using railmq::errc;
using railmq::group_options;
using railmq::member_options;
using railmq::validate;

TEST_CASE("group_options: defaults are valid and those of Kafka where it has them") {
    const group_options group;
    const member_options member;
    CHECK_FALSE(validate(group));
    CHECK_FALSE(validate(member));
    CHECK(group.assignor == assignor::cooperative_sticky);
    CHECK(group.initial_rebalance_delay == 0s);
    CHECK(group.offset_retention == 168h);
    CHECK(group.max_metadata_bytes == 4096);
    CHECK(member.session_timeout == 45s);
    CHECK(member.max_poll_interval == 5min);
}

TEST_CASE("group_options: every value out of range is named") {
    const auto named = [](const auto& options, std::string_view name, errc code) {
        const railmq::failure f = validate(options);
        CHECK(f.code == code);
        return f.what.find(name) != std::string::npos;
    };
    const auto wrong = [&](const auto& options, std::string_view name) {
        return named(options, name, errc::invalid_argument);
    };
    CHECK(wrong(group_options{.assignor = static_cast<assignor>(9)}, "assignor"));
    CHECK(wrong(group_options{.initial_rebalance_delay = -1ns}, "initial_rebalance_delay"));
    CHECK(wrong(group_options{.rebalance_timeout = 0s}, "rebalance_timeout"));
    CHECK(wrong(group_options{.initial_rebalance_delay = 2min}, "initial_rebalance_delay"));
    CHECK(wrong(group_options{.offset_retention = 0s}, "offset_retention"));
    CHECK(wrong(member_options{.session_timeout = 0s}, "session_timeout"));
    CHECK(wrong(member_options{.max_poll_interval = -1s}, "max_poll_interval"));
    CHECK(named(member_options{.instance_id = "a b"}, "instance_id", errc::invalid_name));
    CHECK_FALSE(validate(member_options{.instance_id = "kitchen-1"}));
    CHECK_FALSE(validate(group_options{.max_metadata_bytes = 0}));
}

TEST_CASE("group_options: the difference of two is named") {
    CHECK(difference(group_options{}, group_options{}).empty());
    CHECK(difference(group_options{.assignor = assignor::range}, {}) == "assignor");
    CHECK(
        difference(group_options{.initial_rebalance_delay = 1s}, {}) == "initial_rebalance_delay");
    CHECK(difference(group_options{.rebalance_timeout = 1s}, {}) == "rebalance_timeout");
    CHECK(difference(group_options{.offset_retention = 1s}, {}) == "offset_retention");
    CHECK(difference(group_options{.max_metadata_bytes = 1}, {}) == "max_metadata_bytes");
}

TEST_CASE("group_options: assignors have names of their own") {
    std::set<std::string_view> names;
    for (const assignor a :
         {assignor::range, assignor::round_robin, assignor::sticky, assignor::cooperative_sticky}) {
        names.insert(to_string(a));
    }
    CHECK(names.size() == 4);
    CHECK_FALSE(names.contains("unknown"));
    CHECK(to_string(static_cast<assignor>(9)) == "unknown");
}
