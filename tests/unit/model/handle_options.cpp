// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/handle_options.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <limits>
#include <string>

using namespace std::chrono_literals;
using railmq::consumer_options;
using railmq::errc;
using railmq::producer_options;
using railmq::redrive_options;
using railmq::subscribe_options;

namespace {

/// Refused as an argument, with a sentence that has `part` in it.
void check_refused(const railmq::failure& f, const std::string& part) {
    CHECK(f.code == errc::invalid_argument);
    INFO(f.what);
    CHECK(f.what.find(part) != std::string::npos);
}

} // namespace

TEST_CASE("handle options: the defaults are in order") {
    CHECK_FALSE(validate(consumer_options{}));
    CHECK_FALSE(validate(producer_options{}));
    CHECK_FALSE(validate(subscribe_options{}));
    CHECK_FALSE(validate(redrive_options{}));
    CHECK(consumer_options{}.prefetch == 100);
    CHECK(consumer_options{}.ack_mode == railmq::ack_mode::manual);
    CHECK(producer_options{}.max_message_bytes == 1'048'576);
    CHECK(subscribe_options{}.concurrency == 1);
}

TEST_CASE("consumer_options: what is refused") {
    check_refused(validate(consumer_options{.prefetch = 0}), "prefetch is at least 1");
    check_refused(validate(consumer_options{.auto_extend = -1ns}), "auto_extend is not negative");
    check_refused(
        validate(consumer_options{.ack_mode = railmq::ack_mode::on_delivery, .auto_extend = 1s}),
        "on_delivery");
    CHECK_FALSE(validate(consumer_options{.prefetch = railmq::unlimited, .priority = -5}));
    CHECK_FALSE(validate(consumer_options{.ack_mode = railmq::ack_mode::on_delivery}));
    CHECK_FALSE(validate(consumer_options{.auto_extend = railmq::duration::max()}));
}

TEST_CASE("producer_options: what is refused") {
    check_refused(validate(producer_options{.max_message_bytes = 0}), "max_message_bytes");
    CHECK_FALSE(validate(producer_options{.max_message_bytes = railmq::unlimited}));
}

TEST_CASE("durability: the safer of two") {
    using railmq::durability;
    using railmq::stronger;
    CHECK(stronger(durability::accepted, durability::written) == durability::written);
    CHECK(stronger(durability::synced, durability::interval(1s)) == durability::synced);
    CHECK(stronger(durability::interval(2s), durability::interval(1s)) == durability::interval(1s));
    CHECK(stronger(durability::interval(1s), durability::interval(2s)) == durability::interval(1s));
}

TEST_CASE("subscribe_options: what is refused, the consumer's options included") {
    check_refused(validate(subscribe_options{.concurrency = 0}), "concurrency is at least 1");
    check_refused(validate(subscribe_options{.consumer = {.prefetch = 0}}), "prefetch");
}

TEST_CASE("redrive_options: a rate is a sensible number") {
    for (const double bad :
         {-1.0,
          1e10,
          std::numeric_limits<double>::infinity(),
          std::numeric_limits<double>::quiet_NaN()}) {
        check_refused(validate(redrive_options{.rate = bad}), "redrive rate");
    }
    CHECK_FALSE(validate(redrive_options{.rate = 0.001}));
    CHECK_FALSE(validate(redrive_options{.rate = 1e9}));
}

TEST_CASE("drain_for: any duration, clamped and not wrapped") {
    CHECK(railmq::drain_for{5s}.time == 5s);
    CHECK(railmq::drain_for{1.5s}.time == 1500ms);
    CHECK(railmq::drain_for{std::chrono::hours::max()}.time == railmq::duration::max());
}
