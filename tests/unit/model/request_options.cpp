// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/request_options.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <string>

namespace {

using railmq::errc;
using railmq::requester_options;
using railmq::validate;
using namespace std::chrono_literals;

} // namespace

TEST_CASE("how a requester asks unless it is told otherwise") {
    const requester_options o;
    CHECK(o.reply_queue.empty());
    CHECK(o.timeout == 30s);
    CHECK(o.max_pending == railmq::unlimited);
    CHECK(!validate(o));
}

TEST_CASE("options of a requester out of range, and what was expected") {
    CHECK(!validate(requester_options{.reply_queue = "answers", .timeout = 1ns, .max_pending = 1}));
    CHECK(validate(requester_options{.timeout = 0s}).code == errc::invalid_argument);
    CHECK(validate(requester_options{.timeout = -1s}).code == errc::invalid_argument);
    CHECK(validate(requester_options{.max_pending = 0}).code == errc::invalid_argument);
    const auto f = validate(requester_options{.reply_queue = std::string(300, 'x')});
    CHECK(f.code == errc::invalid_name);
    CHECK(f.what.starts_with("reply_queue: "));
}

TEST_CASE("a requester's counters compare") {
    railmq::requester_stats a{.sent = 1, .answered = 1};
    CHECK(a == railmq::requester_stats{.sent = 1, .answered = 1});
    a.late_replies = 1;
    CHECK_FALSE(a == railmq::requester_stats{.sent = 1, .answered = 1});
}
