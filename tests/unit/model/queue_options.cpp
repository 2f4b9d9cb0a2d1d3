// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/queue_options.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::dead_letter_target;
using railmq::errc;
using railmq::exponential_backoff;
using railmq::jitter;
using railmq::queue_options;

namespace {

queue_options with_backoff(railmq::backoff b) {
    queue_options o;
    o.retry.backoff = std::move(b);
    return o;
}

} // namespace

TEST_CASE("queue_options: the defaults are in order") {
    const queue_options o;
    CHECK_FALSE(validate(o));
    CHECK(o.max_length == railmq::unlimited);
    CHECK(o.ack_timeout == 30s);
    CHECK(o.overflow == railmq::overflow_policy::wait);
    CHECK(o.dead_letter.is_unset());
    CHECK(o == queue_options{});
}

TEST_CASE("queue_options: out of range or contradictory, each with a sentence of its own") {
    const double not_a_number = std::numeric_limits<double>::quiet_NaN();
    const std::vector<std::pair<queue_options, std::string>> bad{
        {{.max_length = 0}, "max_length"},
        {{.max_bytes = 0}, "max_bytes"},
        {{.overflow = railmq::overflow_policy::drop_oldest}, "drop_oldest"},
        {{.ack_timeout = 0s}, "ack_timeout"},
        {{.ack_timeout = -1s}, "-1000000000 ns"},
        {{.priorities = 257}, "256; got 257"},
        {{.order = railmq::delivery_order::by_key, .priorities = 2}, "order = fifo"},
        {{.order = railmq::delivery_order::strict, .priorities = 2}, "order = fifo"},
        {{.max_overtakes = 1}, "max_overtakes"},
        {{.priorities = 1, .max_overtakes = 1}, "max_overtakes"},
        {{.time_to_live = -1ns}, "time_to_live"},
        {{.deduplication_window = -1ns}, "deduplication_window is not negative; got -1 ns"},
        {{.retry = {.max_elapsed = -1s}}, "max_elapsed"},
        {with_backoff(exponential_backoff{.multiplier = 0.5}), "multiplier"},
        {with_backoff(exponential_backoff{.multiplier = not_a_number}), "multiplier"},
        {with_backoff(exponential_backoff{.initial = 10s, .max = 1s}), "max"},
        {with_backoff(exponential_backoff{.initial = 0s}), "initial"},
        {with_backoff(exponential_backoff{.initial = -1s}), "initial"},
        {with_backoff(exponential_backoff{.jitter = jitter::proportional(1.5)}), "jitter"},
        {with_backoff(exponential_backoff{.jitter = jitter::reduced(-0.1)}), "jitter"},
        {with_backoff(exponential_backoff{.jitter = jitter::reduced(not_a_number)}), "jitter"},
        {with_backoff(railmq::constant_backoff{.delay = -1ns}), "delay"},
    };
    for (const auto& [options, part] : bad) {
        const railmq::failure f = validate(options);
        INFO(part << ": " << f.what);
        CHECK(f.code == errc::invalid_argument);
        CHECK(f.what.find(part) != std::string::npos);
    }
}

TEST_CASE("queue_options: a dead-letter queue has a valid name") {
    const railmq::failure f = validate(queue_options{.dead_letter = "no/such"});
    CHECK(f.code == errc::invalid_name);
    CHECK(f.what.find("dead_letter: ") == 0);
    CHECK_FALSE(validate(queue_options{.dead_letter = "parking"}));
    CHECK_FALSE(validate(queue_options{.dead_letter = railmq::discard}));
}

TEST_CASE("queue_options: the extremes that make sense are accepted") {
    CHECK_FALSE(validate(queue_options{
        .max_length = 1, .max_bytes = 1, .overflow = railmq::overflow_policy::drop_oldest}));
    CHECK_FALSE(validate(queue_options{.ack_timeout = 1ns}));
    CHECK_FALSE(validate(queue_options{.ack_timeout = railmq::duration::max()}));
    CHECK_FALSE(validate(queue_options{.time_to_live = 0s}));
    CHECK_FALSE(validate(queue_options{.deduplication_window = railmq::duration::max()}));
    CHECK_FALSE(validate(queue_options{.priorities = 256, .max_overtakes = 1}));
    CHECK_FALSE(validate(
        queue_options{.order = railmq::delivery_order::by_key, .priorities = 1})); // there are none
    CHECK_FALSE(validate(with_backoff(exponential_backoff{.multiplier = 1})));
    CHECK_FALSE(validate(with_backoff(exponential_backoff{.jitter = jitter::proportional(1)})));
}

TEST_CASE("queue_options: the difference is named") {
    const queue_options one;
    CHECK(difference(one, one).empty());
    const std::vector<std::pair<queue_options, std::string_view>> others{
        {{.max_length = 1}, "max_length"},
        {{.max_bytes = 1}, "max_bytes"},
        {{.overflow = railmq::overflow_policy::reject}, "overflow"},
        {{.ack_timeout = 1s}, "ack_timeout"},
        {{.retry = {.max_attempts = 1}}, "retry"},
        {{.dead_letter = "x"}, "dead_letter"},
        {{.requeue = railmq::requeue_position::back}, "requeue"},
        {{.order = railmq::delivery_order::strict}, "order"},
        {{.priorities = 2}, "priorities"},
        {{.max_overtakes = 2}, "max_overtakes"},
        {{.time_to_live = 1s}, "time_to_live"},
        {{.deduplication_window = 1s}, "deduplication_window"},
    };
    for (const auto& [other, name] : others) {
        CHECK(difference(one, other) == name);
        CHECK(one != other);
    }
}

TEST_CASE("dead_letter_target: unset, a name, or nowhere") {
    CHECK(dead_letter_target{}.is_unset());
    CHECK_FALSE(railmq::discard.is_unset());
    CHECK(railmq::discard.is_discard());
    const dead_letter_target named = "parking";
    CHECK(named.name() == "parking");
    CHECK_FALSE(named.is_unset());
    CHECK_FALSE(named.is_discard());
    CHECK(named == dead_letter_target{std::string{"parking"}});
    CHECK(named != railmq::discard);
}
