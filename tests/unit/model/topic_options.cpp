// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/topic_options.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::header_condition;
using railmq::matches;
using railmq::properties;
using railmq::subscription_options;
using railmq::topic_options;

TEST_CASE("options of topics and subscriptions: defaults are valid, nonsense is named") {
    CHECK_FALSE(validate(topic_options{}));
    CHECK_FALSE(validate(topic_options{.history = railmq::log_retention{}}));
    const auto bad_history =
        validate(topic_options{.history = railmq::log_retention{.max_age = -1s}});
    CHECK(bad_history.code == errc::invalid_argument);
    CHECK(bad_history.what.starts_with("history: "));

    CHECK_FALSE(validate(subscription_options{}));
    CHECK(validate(subscription_options{.max_backlog = 0}).what.starts_with("max_backlog"));
    CHECK(validate(subscription_options{.start = railmq::log_start::none}));
    CHECK(validate(subscription_options{.where = {{}}}));
    CHECK(validate(subscription_options{.queue = {.max_length = 1}}));
    CHECK(validate(subscription_options{.queue = {.max_bytes = 1}}));
    CHECK(validate(subscription_options{.queue = {.overflow = railmq::overflow_policy::reject}}));
    CHECK(
        validate(subscription_options{.queue = {.deduplication_window = std::chrono::minutes{1}}}));
    CHECK(validate(subscription_options{.queue = {.ack_timeout = 0s}}));
}

TEST_CASE("the first difference of two subscriptions has a name; their start has none") {
    const subscription_options have{};
    CHECK(difference(have, {.start = railmq::log_start::earliest}).empty());
    CHECK(difference(have, {.max_backlog = 5}) == "max_backlog");
    CHECK(difference(have, {.where = {{"h", {}}}}) == "where");
    CHECK(difference(have, {.queue = {.ack_timeout = 5s}}) == "ack_timeout");
}

TEST_CASE("every name, and one of its values") {
    const std::vector<header_condition> none{};
    const std::vector<header_condition> country{{"country", {"de", "at"}}};
    const std::vector<header_condition> both{{"country", {"de", "at"}}, {"paid", {}}};
    const properties german{.headers = {{"country", "de"}}};
    const properties paid{.headers = {{"country", "fr"}, {"paid", ""}, {"country", "at"}}};
    CHECK(matches(none, nullptr));
    CHECK(matches(none, &german));
    CHECK_FALSE(matches(country, nullptr));
    CHECK(matches(country, &german));
    CHECK_FALSE(matches(both, &german));
    CHECK(matches(both, &paid)); // a name may come twice
}
