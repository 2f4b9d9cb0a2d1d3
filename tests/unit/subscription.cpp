// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/stats.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using railmq::errc;
using railmq::error_code;
using railmq::outcome;
using railmq::simulation;
using railmq::sim_broker;
using railmq::test::text_of;
using delivery = railmq::sim_delivery<int>;

namespace {

struct world {
    simulation sim{};
    sim_broker broker{sim};
    railmq::sim_queue<int> queue{broker.queue<int>(
        "q", {.retry = {.backoff = railmq::constant_backoff{.delay = 1s}}})};
    railmq::sim_producer<int> producer{queue.producer()};

    template <class Handler>
    auto subscribe(Handler handler, railmq::subscribe_options o = {}) {
        return queue.subscribe(sim.get_executor(), std::move(handler), o);
    }
};

} // namespace

TEST_CASE("subscription: an empty one does nothing") {
    railmq::sim_subscription none;
    none.cancel();
    none.pause();
    none.resume();
    none.concurrency(3);
    CHECK(none.concurrency() == 0);
    CHECK(none.running() == 0);
    CHECK(none.close(railmq::drain_for{1s}));
    none.close();
}

TEST_CASE("subscription: concurrency is at least 1, also later") {
    world w;
    auto s = w.subscribe([](const int&) {}, {.concurrency = 2});
    try {
        s.concurrency(0);
        FAIL("it was accepted");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == errc::invalid_argument);
        CHECK(std::string_view{e.what()}.find("concurrency") != std::string_view::npos);
    }
    CHECK(s.concurrency() == 2);
    w.producer.send(1);
    w.sim.run_ready();
    CHECK(w.queue.stats().acked == 1);
}

TEST_CASE("subscription: the handler's result settles") {
    world w;
    std::vector<int> seen;
    auto s = w.subscribe([&](const int& n) {
        seen.push_back(n);
        switch (n) {
        case 1: return outcome::ack();
        case 2: return outcome::nack(5s);
        case 3: return outcome::reject("no");
        default: return seen.size() < 5 ? outcome::release() : outcome::ack();
        }
    });
    for (int n = 1; n <= 4; ++n) {
        w.producer.send(n);
    }
    w.sim.run_ready();
    CHECK(seen == std::vector<int>{1, 2, 3, 4, 4});
    const auto stats = w.queue.stats();
    CHECK(stats.acked == 2);
    CHECK(stats.delayed == 1);
    CHECK(stats.dead_lettered == 1);
    CHECK(stats.released == 1);
    w.sim.advance(5s);
    CHECK(seen.back() == 2);
}

TEST_CASE("subscription: what a handler throws fails its message, and nothing leaves") {
    world w;
    auto s = w.subscribe([](const int& n) {
        if (n == 1) throw std::runtime_error("try again");
        if (n == 2) throw railmq::permanent_error("never");
        if (n == 3) throw 42;
    });
    for (int n = 1; n <= 4; ++n) {
        w.producer.send(n);
    }
    CHECK_NOTHROW(w.sim.run_ready());
    CHECK(w.queue.stats().acked == 1);
    CHECK(w.queue.stats().failed == 2);
    CHECK(w.queue.stats().delayed == 2);
    auto dead = w.broker.find_queue<int>("q.dead")->peek();
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].value == 2);
    CHECK(dead[0].deaths[0].detail == "never");
    CHECK(dead[0].deaths[0].reason == railmq::death_reason::permanent_error);
}

TEST_CASE("subscription: a handler may settle by itself") {
    world w;
    auto s = w.subscribe([](delivery& d) {
        if (d.value() == 1) {
            d.reject("by hand");
        } else {
            d.ack();
            throw std::runtime_error("too late to matter");
        }
    });
    w.producer.send(1);
    w.producer.send(2);
    w.sim.run_ready();
    CHECK(w.queue.stats().dead_lettered == 1);
    CHECK(w.queue.stats().acked == 1);
    CHECK(w.queue.stats().failed == 0);
}

TEST_CASE("subscription: coroutines, as many at once as said") {
    world w;
    int most = 0;
    int now = 0;
    auto s = w.subscribe(
        [&](const int& n) -> asio::awaitable<void> {
            most = std::max(most, ++now);
            co_await w.sim.async_wait(1s, asio::use_awaitable);
            --now;
            if (n == 3) throw std::runtime_error("inside");
        },
        {.concurrency = 2});
    for (int n = 1; n <= 5; ++n) {
        w.producer.send(n);
    }
    w.sim.run_ready();
    CHECK(s.running() == 2);
    CHECK(w.queue.stats().in_flight == 2);
    s.concurrency(3);
    w.sim.run_ready();
    CHECK(s.running() == 3);
    s.concurrency(1);
    w.sim.advance(3s);
    CHECK(most == 3);
    w.sim.run_until_idle();
    CHECK(w.queue.stats().acked == 4);
    CHECK(w.queue.stats().failed >= 1);
    s.close();
}

TEST_CASE("subscription: a coroutine's outcome") {
    world w;
    auto s = w.subscribe([&](const int&) -> asio::awaitable<outcome> {
        co_await w.sim.async_wait(1s, asio::use_awaitable);
        co_return outcome::reject("after a second");
    });
    w.producer.send(1);
    w.sim.advance(1s);
    CHECK(w.queue.stats().dead_lettered == 1);
}

TEST_CASE("subscription: paused, it starts nothing new") {
    world w;
    int seen = 0;
    auto s = w.subscribe([&](const int&) { ++seen; });
    s.pause();
    w.producer.send(1);
    w.sim.run_ready();
    CHECK(seen == 0);
    s.resume();
    w.sim.run_ready();
    CHECK(seen == 1);
}

TEST_CASE("subscription: closing gives back what its handlers hold") {
    world w;
    const auto slow = [&](const int&) -> asio::awaitable<void> {
        co_await w.sim.async_wait(10s, asio::use_awaitable);
    };
    auto s = w.subscribe(slow);
    w.producer.send(1);
    w.sim.run_ready();
    CHECK(w.queue.stats().in_flight == 1);
    SECTION("at once") {
        s.close();
        CHECK(w.queue.stats().ready == 1);
        w.sim.advance(10s); // the handler ends in vain
        CHECK(w.queue.stats().acked == 0);
        CHECK(w.queue.stats().failed == 0);
    }
    SECTION("by the end of the handle") {
        { const auto gone = std::move(s); }
        CHECK(w.queue.stats().ready == 1);
    }
    SECTION("by assignment") {
        s = {};
        CHECK(w.queue.stats().ready == 1);
    }
    SECTION("after waiting long enough") {
        CHECK(s.close(railmq::drain_for{20s}));
        CHECK(w.queue.stats().acked == 1);
    }
    SECTION("after waiting in vain") {
        CHECK_FALSE(s.close(railmq::drain_for{2s}));
        CHECK(w.queue.stats().ready == 1);
    }
    SECTION("cancelled, the handler may end") {
        s.cancel();
        w.producer.send(2);
        w.sim.advance(10s);
        CHECK(w.queue.stats().acked == 1);
        CHECK(w.queue.stats().ready == 1);
    }
}

TEST_CASE("subscription: a plain handler that would wait for its broker is told so") {
    world w;
    std::vector<error_code> told;
    auto full = w.broker.queue<int>("full", {.max_length = 1});
    full.producer().send(1);
    auto s = w.subscribe([&](const int&) {
        error_code ec;
        full.producer().send(2, ec);
        told.push_back(ec);
        auto consumer = w.broker.queue<int>("empty").consumer();
        CHECK_FALSE(consumer.receive(1s, ec));
        told.push_back(ec);
    });
    w.producer.send(1);
    w.sim.run_ready();
    CHECK(told == std::vector<error_code>{errc::would_deadlock, errc::would_deadlock});
    CHECK(w.queue.stats().acked == 1);
}

TEST_CASE("subscription: a handler may close its own subscription") {
    world w;
    railmq::sim_subscription s;
    int seen = 0;
    s = w.subscribe([&](const int&) {
        ++seen;
        s.close();
    });
    w.producer.send(1);
    w.producer.send(2);
    w.sim.run_ready();
    CHECK(seen == 1);
    CHECK(w.queue.stats().ready == 2); // the first went back, too
    CHECK(w.queue.stats().consumers == 0);
}

TEST_CASE("subscription: lets go of its handler when it is over") {
    world w;
    auto kept = std::make_shared<int>(1);
    auto s = w.subscribe([kept](const int&) {});
    w.producer.send(1);
    w.sim.run_ready();
    CHECK(kept.use_count() > 1);
    s.close();
    w.sim.run_ready();
    CHECK(kept.use_count() == 1);
}
