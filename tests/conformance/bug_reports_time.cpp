// SPDX-License-Identifier: BSL-1.0
//
// More of bug_reports.cpp: waiting and time.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::test::imbalance;

namespace {

[[nodiscard]] time_point at(railmq::duration d) {
    return time_point{d};
}

boost::asio::awaitable<void>
send_two_delayed(railmq::sim_producer<std::string> p, railmq::simulation& sim) {
    p.send("A", {.delay = 5s});
    co_await sim.async_wait(500ms, boost::asio::use_awaitable);
    p.send("B", {.delay = 1500ms});
}

} // namespace

TEST_CASE("[BR13] whoever waits gets a delayed message at its time") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>("q");
    auto consumer = q.consumer();

    SECTION("it waits in one call") {
        sim.spawn(send_two_delayed(q.producer(), sim));
        auto d = consumer.receive(60s);
        REQUIRE(d);
        CHECK(d->value() == "B");
        CHECK(sim.now() == at(2s));
        d = consumer.receive(60s);
        REQUIRE(d);
        CHECK(d->value() == "A");
        CHECK(sim.now() == at(5s));
    }
    SECTION("it waits asynchronously while time passes second by second") {
        std::vector<std::pair<std::string, time_point>> got;
        const auto note = [&](error_code ec, railmq::sim_delivery<std::string> d) {
            REQUIRE_FALSE(ec);
            got.emplace_back(d.value(), sim.now());
            d.ack();
        };
        consumer.async_receive(note);
        consumer.async_receive(note);
        sim.spawn(send_two_delayed(q.producer(), sim));
        for (std::size_t second = 1; second <= 10; ++second) {
            sim.advance(1s);
            CHECK(got.size() == (second < 2 ? 0U : second < 5 ? 1U : 2U));
        }
        REQUIRE(got.size() == 2);
        CHECK(got[0] == std::pair{std::string{"B"}, at(2s)});
        CHECK(got[1] == std::pair{std::string{"A"}, at(5s)});
    }
    SECTION("nobody asks: it is there at its time") {
        sim.spawn(send_two_delayed(q.producer(), sim));
        sim.advance(2s - 1ns);
        CHECK(q.stats().ready == 0);
        sim.advance(1ns);
        CHECK(q.stats().ready == 1);
        sim.advance(3s);
        CHECK(q.stats().ready == 2);
    }
    CHECK(imbalance(q) == "");
}

// A simulation has no wall clock at all, and the threaded runtime never looks at it. What a
// restart makes of a wall clock that was moved comes with the journal.
TEST_CASE("[BR14] time is the steady clock's") {
    STATIC_REQUIRE(railmq::broker_clock::is_steady);
    const railmq::threaded::clock clock;
    const auto before = std::chrono::steady_clock::now().time_since_epoch();
    const auto now = clock.now().time_since_epoch();
    const auto coarse = clock.coarse_now().time_since_epoch();
    const auto after = std::chrono::steady_clock::now().time_since_epoch();
    CHECK(before <= now);
    CHECK(now <= after);
    CHECK(coarse <= after);
    CHECK(coarse + clock.resolution() + 1s >= before);

    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>(
        "q", {.ack_timeout = 30s, .retry = {.backoff = railmq::constant_backoff{.delay = 5s}}});
    auto consumer = q.consumer();
    error_code ec;
    CHECK_FALSE(consumer.receive(1s, ec));
    CHECK(ec == errc::timed_out);
    CHECK(sim.now() == at(1s));
    q.producer().send(1);
    q.producer().send(2);
    auto leased = consumer.receive();
    consumer.receive()->nack();
    auto retried = consumer.receive(1h);
    CHECK(sim.now() == at(6s));
    CHECK(retried->value() == 2);
    retried->ack();
    CHECK(consumer.receive(1h)->value() == 1);
    CHECK(sim.now() == at(31s));
}
