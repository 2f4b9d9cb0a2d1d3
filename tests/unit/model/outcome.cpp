// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/outcome.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;
using railmq::outcome;

TEST_CASE("outcome: says one thing") {
    CHECK(outcome::ack().what() == outcome::kind::acked);
    CHECK(outcome{}.what() == outcome::kind::acked);
    CHECK(outcome::nack().what() == outcome::kind::failed);
    CHECK(outcome::release().what() == outcome::kind::released);
    CHECK(outcome::reject().what() == outcome::kind::rejected);
}

TEST_CASE("outcome: a wait is the failure's alone, a reason the rejection's") {
    CHECK_FALSE(outcome::ack().wait());
    CHECK_FALSE(outcome::nack().wait()); // the queue's policy decides
    CHECK(outcome::nack(5s).wait() == 5s);
    CHECK(outcome::nack(0s).wait() == 0s);
    CHECK(outcome::reject("no such order").reason() == "no such order");
    CHECK(outcome::reject().reason().empty());
    CHECK_FALSE(outcome::reject("x").wait());
}

TEST_CASE("permanent_error: an exception with a reason") {
    try {
        throw railmq::permanent_error{std::string{"unreadable"}};
    } catch (const std::runtime_error& e) {
        CHECK(std::string{e.what()} == "unreadable");
    }
}
