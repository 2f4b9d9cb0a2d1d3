// SPDX-License-Identifier: BSL-1.0
//
// Times to live and delays: when a message stops being there, and when it begins to be.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/queue_world.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using railmq::errc;
using railmq::error_code;
using railmq::test::at_once;
using railmq::test::error_of;

/// Its dead letters have all expired.
struct world : railmq::test::queue_world {
    using queue_world::queue_world;
    [[nodiscard]] std::vector<int> expired() { return dead(railmq::death_reason::expired); }
};

} // namespace

TEST_CASE("[H01] what has not expired is read, in order") {
    world w{{.time_to_live = 200ms}};
    w.p.send(1);
    w.sim.advance(150ms);
    w.p.send(2);
    w.sim.advance(100ms);
    w.p.send(3);
    CHECK(w.read_now() == std::vector{2, 3});
    CHECK_FALSE(w.c.try_receive());
    CHECK(w.expired() == std::vector{1});
}

TEST_CASE("[H02] a time to live of nothing: who waits gets it, and nobody else ever") {
    world w{{.retry = at_once, .time_to_live = 0s}};
    SECTION("nobody waits: gone at once") {
        w.p.send(1);
        CHECK_FALSE(w.c.try_receive());
        CHECK(w.expired() == std::vector{1});
    }
    SECTION("somebody waits") {
        std::optional<railmq::sim_delivery<int>> got;
        w.c.async_receive([&](error_code, railmq::sim_delivery<int> d) { got = std::move(d); });
        w.p.send(1);
        w.sim.run_ready();
        REQUIRE(got);
        CHECK(**got == 1);
        SECTION("and returns it: gone") {
            got->release();
            CHECK_FALSE(w.c.try_receive());
            CHECK(w.expired() == std::vector{1});
        }
        SECTION("and acknowledges it") {
            got->ack();
            CHECK(w.expired().empty());
        }
    }
}

TEST_CASE("[H03] a time to live is not negative") {
    world w;
    error_code ec;
    w.p.send(1, {.time_to_live = -10ms}, ec);
    CHECK(ec == errc::invalid_argument);
    CHECK(w.q.stats().accepted == 0);
    CHECK(error_of([&] {
              (void)w.b.queue<int>("r", {.time_to_live = -1ns});
          }) == errc::invalid_argument);
    CHECK_FALSE(w.b.find_queue<int>("r"));
}

TEST_CASE("[H04] a time to live beyond all times is for ever, and wraps nowhere") {
    // RabbitMQ refuses more than ten years in milliseconds, since its numbers end there.
    world w;
    w.sim.advance(std::chrono::hours{24 * 365});
    w.p.send(1, {.time_to_live = railmq::duration::max()});
    w.p.send(2, {.time_to_live = std::chrono::hours{24 * 365 * 100}});
    w.sim.advance(std::chrono::hours{24 * 365 * 50});
    CHECK(w.read_now() == std::vector{1, 2});
}

TEST_CASE("[H05] a return does not begin the time to live again") {
    world w{{.retry = at_once, .time_to_live = 400ms}};
    w.p.send(1);
    w.sim.advance(200ms);
    w.p.send(2);
    auto d = w.c.try_receive();
    REQUIRE(d);
    CHECK(**d == 1);
    CHECK((GENERATE(true, false) ? d->release() : d->nack(0s)));
    w.sim.advance(300ms);
    CHECK(w.read_now() == std::vector{2});
    CHECK(w.expired() == std::vector{1});
}

TEST_CASE("[H06] what expired behind a living head is never handed out") {
    world w;
    w.p.send(1, {.time_to_live = 500ms});
    w.p.send(2, {.time_to_live = 100ms});
    w.sim.advance(200ms);
    CHECK(w.read_now() == std::vector{1});
    CHECK(w.expired() == std::vector{2});
}

TEST_CASE("[H07] a head that does not expire hides nobody's end") {
    world w;
    w.p.send(1);
    w.p.send(2, {.time_to_live = 100ms});
    w.sim.advance(100ms);
    // At its exact time, and not when somebody comes to it.
    CHECK(w.q.stats().ready == 1);
    CHECK(w.expired() == std::vector{2});
    w.sim.advance(100ms);
    CHECK(w.read_now() == std::vector{1});
}

TEST_CASE("[H09] of two times to live the shorter one holds") {
    world w{{.time_to_live = 300ms}};
    w.p.send(1, {.time_to_live = 100ms});
    w.p.send(2, {.time_to_live = 900ms});
    w.sim.advance(99ms);
    CHECK(w.q.stats().ready == 2);
    w.sim.advance(1ms);
    CHECK(w.expired() == std::vector{1});
    w.sim.advance(199ms);
    CHECK(w.q.stats().ready == 1);
    w.sim.advance(1ms);
    CHECK(w.expired() == std::vector{1, 2});
}

TEST_CASE("[H10] what is held does not expire; what comes back does") {
    world w{{.ack_timeout = 10s, .retry = at_once, .time_to_live = 100ms}};
    w.p.send(1);
    w.p.send(2);
    auto d = w.c.try_receive();
    auto e = w.c.try_receive();
    REQUIRE((d && e));
    w.sim.advance(5s);
    CHECK(w.expired().empty());
    CHECK(d->ack());
    CHECK(e->release());
    CHECK_FALSE(w.c.try_receive());
    CHECK(w.expired() == std::vector{2});
}

TEST_CASE("[BX10] what expires behind a blocked consumer is counted and kept, each of it") {
    world w{{.ack_timeout = 400s}};
    w.p.send(1);
    auto blocked = w.c.try_receive();
    REQUIRE(blocked);
    for (int i = 2; i <= 5; ++i) {
        w.p.send(i, {.time_to_live = 300s});
    }
    SECTION("nobody else comes") {
        w.sim.advance(301s);
        CHECK(w.expired() == std::vector{2, 3, 4, 5});
        CHECK(w.q.stats().dead_lettered == 4);
        CHECK(w.q.stats().in_flight == 1);
    }
    SECTION("another consumer would have got them") {
        auto second = w.q.consumer();
        for (int i = 2; i <= 5; ++i) {
            auto d = second.try_receive();
            REQUIRE(d);
            CHECK(**d == i);
            d->ack();
        }
        w.sim.advance(301s);
        CHECK(w.expired().empty());
    }
    CHECK(blocked->ack());
}

TEST_CASE("[I01] a delayed message is not there before its time, and is there at it") {
    world w;
    w.p.send(1, {.delay = 100ms});
    w.sim.advance(99ms);
    CHECK_FALSE(w.c.try_receive());
    CHECK(w.q.stats().delayed == 1);
    w.sim.advance(1ms);
    CHECK(w.q.stats().ready == 1);
    CHECK(w.read_now() == std::vector{1});
}

TEST_CASE("[I02] delays are over in the order of their ends") {
    world w;
    std::vector<int> sent;
    for (int delay = 2300; delay >= 650; delay -= 150) {
        w.p.send(delay, {.delay = std::chrono::milliseconds{delay}});
        sent.insert(sent.begin(), delay);
    }
    REQUIRE(sent.size() == 12);
    std::vector<int> read;
    while (auto d = w.c.receive(3s)) {
        CHECK(w.sim.now().time_since_epoch() == std::chrono::milliseconds{**d});
        read.push_back(**d);
        d->ack();
    }
    CHECK(read == sent);
}

TEST_CASE("[I03] delays that end together end in the order of sending") {
    world w;
    std::vector<int> sent;
    for (int i = 0; i != 43; ++i) {
        w.p.send(i, {.delay = 500ms});
        sent.push_back(i);
    }
    w.sim.advance(500ms);
    CHECK(w.read_now() == sent);
}

TEST_CASE("[I04] a delay far away does not hold back one that is near") {
    world w;
    std::vector<std::pair<int, railmq::duration>> got;
    auto s = w.q.subscribe(w.sim.get_executor(), [&](const int& m) {
        got.emplace_back(m, w.sim.now().time_since_epoch());
    });
    w.p.send(1, {.delay = 1h});
    w.sim.advance(1s);
    w.p.send(2, {.delay = 100ms});
    w.sim.advance(2h);
    CHECK(got == std::vector<std::pair<int, railmq::duration>>{{2, 1100ms}, {1, 1h}});
}

TEST_CASE("[I05] no delay is none") {
    world w;
    w.p.send(1, {.delay = 0s});
    CHECK(w.q.stats().ready == 1);
    CHECK(w.q.stats().delayed == 0);
    CHECK(w.read_now() == std::vector{1});
    error_code ec;
    w.p.send(2, {.delay = -1ns}, ec); // and a negative one is a mistake
    CHECK(ec == errc::invalid_argument);
    CHECK(w.q.stats().accepted == 1);
}

TEST_CASE("[I06] in a queue that is paused delays end, and nothing is handed out") {
    world w;
    w.q.pause();
    w.p.send(1, {.delay = 1s});
    w.sim.advance(2s);
    CHECK(w.q.stats().ready == 1);
    CHECK(w.q.stats().delayed == 0);
    CHECK_FALSE(w.c.try_receive());
    w.q.resume();
    CHECK(w.read_now() == std::vector{1});
}

TEST_CASE("[I08] a wait before the next attempt that is over already is none") {
    world w;
    w.p.send(1);
    auto d = w.c.try_receive();
    REQUIRE(d);
    CHECK(d->nack(-5s));
    CHECK(w.q.stats().ready == 1);
    auto again = w.c.try_receive();
    REQUIRE(again);
    CHECK(again->failure_count() == 1);
    again->ack();
}

TEST_CASE("[I09] a wait that is said overrides the backoff") {
    world w{{.retry = {.backoff = railmq::constant_backoff{.delay = 1s}}}};
    w.p.send(1);
    w.c.try_receive()->nack(5s);
    w.sim.advance(4999ms);
    CHECK_FALSE(w.c.try_receive());
    w.sim.advance(1ms);
    auto d = w.c.try_receive();
    REQUIRE(d);
    d->nack(); // and the next one is the policy's again
    w.sim.advance(999ms);
    CHECK_FALSE(w.c.try_receive());
    w.sim.advance(1ms);
    CHECK(w.read_now() == std::vector{1});
}

TEST_CASE("[I10] a purge takes what is delayed as well, and its time comes for nothing") {
    world w;
    w.p.send(1, {.delay = 1s});
    w.p.send(2);
    CHECK(w.q.purge() == 2);
    CHECK(w.q.stats().delayed == 0);
    CHECK(w.sim.run_until_idle() == 0s); // no timer is left
    CHECK_FALSE(w.c.try_receive());
    CHECK(w.q.stats().purged == 2);
}

TEST_CASE("[BR10] what has little time to live, or to wait, does not stand behind what has much") {
    world w;
    w.p.send(1, {.time_to_live = 60s});
    w.p.send(2, {.time_to_live = 1s});
    w.p.send(3, {.delay = 60s});
    w.p.send(4, {.delay = 1s});
    CHECK(w.q.stats().ready == 2);
    CHECK(w.q.stats().delayed == 2);
    w.sim.advance(1s - 1ns);
    CHECK(w.expired().empty());
    CHECK(w.q.stats().delayed == 2);
    w.sim.advance(1ns);
    CHECK(w.expired() == std::vector{2});
    CHECK(w.q.stats().ready == 2); // the first, and the one that was due
    CHECK(w.q.stats().delayed == 1);
    CHECK(w.q.stats().dead_lettered == 1);
    w.sim.advance(1s);
    CHECK(w.read_now() == std::vector{1, 4});
    w.sim.advance(58s);
    CHECK(w.read_now() == std::vector{3});
    CHECK(w.expired() == std::vector{2});
}
