// SPDX-License-Identifier: BSL-1.0
//
// Lifecycle: graceful stops, pauses, and how running work hears that it is in vain.
#include <railmq/broker.hpp>

#include "support/catch.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::drain_for;

namespace {

const railmq::retry_policy at_once{.backoff = railmq::constant_backoff{.delay = 0s}};

std::vector<int> from_to(int first, int last) {
    std::vector<int> all;
    for (int i = first; i <= last; ++i) {
        all.push_back(i);
    }
    return all;
}

/// Receives and acknowledges everything that is there now.
template <class Consumer>
std::vector<int> read_now(Consumer& c) {
    std::vector<int> all;
    while (auto d = c.try_receive()) {
        all.push_back(**d);
        d->ack();
    }
    return all;
}

} // namespace

TEST_CASE("[Y06] a graceful stop waits for work in hand, then gives up and returns it") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q", {.ack_timeout = 1h});
    q.producer().send_batch(from_to(1, 2));
    auto c = q.consumer({.prefetch = 1});
    auto held = c.try_receive();
    REQUIRE(held);
    const railmq::time_point start = sim.now();
    SECTION("the work ends in time") {
        sim.async_wait(3s, [&](railmq::error_code) { held->ack(); });
        CHECK(c.close(drain_for(10s)));
        CHECK(sim.now() - start == 3s);
        CHECK_FALSE(c.is_open());
        auto next = q.consumer();
        CHECK(read_now(next) == from_to(2, 2));
    }
    SECTION("it does not") {
        CHECK_FALSE(c.close(drain_for(10s)));
        CHECK(sim.now() - start == 10s);
        auto next = q.consumer();
        auto again = next.try_receive();
        REQUIRE(again);
        CHECK(**again == 1);
        CHECK(again->redelivered());
        CHECK(again->failure_count() == 0);
        CHECK_FALSE(held->ack());
    }
    SECTION("nothing new comes while it waits") {
        sim.async_wait(1s, [&](railmq::error_code) {
            held->ack();
            CHECK_FALSE(c.try_receive());
        });
        CHECK(c.close(drain_for(10s)));
        CHECK(q.stats().ready == 1);
    }
    SECTION("the broker: everything is read in time") {
        auto p = q.producer();
        sim.async_wait(3s, [&](railmq::error_code) {
            railmq::error_code ec;
            p.send(3, ec);
            CHECK(ec == railmq::errc::closed);
            held->ack();
            c.try_receive()->ack();
        });
        CHECK(b.close(drain_for(10s)) == 0);
        CHECK(sim.now() - start == 3s);
        CHECK_FALSE(b.is_open());
    }
    SECTION("the broker: it is not") {
        CHECK(b.close(drain_for(10s)) == 2);
        CHECK(sim.now() - start == 10s);
        CHECK_FALSE(b.is_open());
    }
}

TEST_CASE("[Y06] a subscription that is closed gracefully") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q", {.ack_timeout = 1h});
    int ended = 0;
    auto s = q.subscribe(
        sim.get_executor(),
        [&](railmq::sim_delivery<int>&) -> boost::asio::awaitable<void> {
            co_await sim.async_wait(4s, boost::asio::use_awaitable);
            ++ended;
        },
        {.concurrency = 2});
    q.producer().send_batch(from_to(1, 5));
    sim.advance(1s);
    REQUIRE(s.running() == 2);
    const railmq::time_point start = sim.now();
    SECTION("waits for the handlers that run") {
        CHECK(s.close(drain_for(10s)));
        CHECK(sim.now() - start == 3s);
        sim.run_until_idle();
        CHECK(ended == 2);
        auto next = q.consumer();
        CHECK(read_now(next) == from_to(3, 5));
    }
    SECTION("gives up") {
        CHECK_FALSE(s.close(drain_for(2s)));
        CHECK(sim.now() - start == 2s);
        auto next = q.consumer();
        CHECK(read_now(next) == from_to(1, 5));
        sim.run_until_idle();
        CHECK(ended == 2); // not interrupted, but their acknowledgements came too late
        CHECK(q.stats().acked == 5);
        CHECK(q.stats().failed == 0);
    }
}

TEST_CASE("[Y06] a graceful stop with real threads") {
    railmq::broker b;
    auto q = b.queue<int>("q");
    q.producer().send_batch(from_to(1, 2));
    auto c = q.consumer({.prefetch = 1});
    auto held = c.receive();
    REQUIRE(held);
    std::atomic<bool> was_open{false};
    std::thread worker{[&, d = std::move(*held)]() mutable {
        while (q.stats().consumers != 0) { // until the closing has begun
            std::this_thread::yield();
        }
        was_open = b.is_open();
        d.ack();
    }};
    CHECK(c.close(drain_for(1h)));
    worker.join();
    CHECK(was_open);
    CHECK(b.close() == 1);
}

TEST_CASE("[Y07] a pause keeps new messages, and is complete when no handler runs any more") {
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", {.ack_timeout = 1h});
        auto p = q.producer();
        std::vector<int> begun;
        int ended = 0;
        auto s = q.subscribe(
            sim.get_executor(),
            [&](railmq::sim_delivery<int>& d) -> boost::asio::awaitable<void> {
                begun.push_back(*d);
                co_await sim.async_wait(5s, boost::asio::use_awaitable);
                ++ended;
            },
            {.concurrency = 2});
        p.send_batch(from_to(1, 2));
        sim.advance(1s);
        REQUIRE(begun.size() == 2);
        const railmq::time_point start = sim.now();
        SECTION("in time") {
            CHECK(q.pause(drain_for(1min)));
            CHECK(sim.now() - start == 4s);
            CHECK(ended == 2);
        }
        SECTION("not in time, but later") {
            CHECK_FALSE(q.pause(drain_for(1s)));
            CHECK(sim.now() - start == 1s);
            CHECK(ended == 0);
            CHECK(q.is_paused());
            CHECK(q.pause(drain_for(1min)));
            CHECK(sim.now() - start == 4s);
        }
        p.send_batch(from_to(3, 4));
        auto c = q.consumer();
        sim.advance(1h);
        CHECK_FALSE(c.try_receive());
        CHECK(begun.size() == 2);
        CHECK(q.stats().ready == 2);
        q.resume();
        sim.advance(5s);
        CHECK(begun == from_to(1, 4));
        CHECK(ended == 4);
    }
    SECTION("not within a handler, which would wait for itself") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q");
        railmq::error_code ec;
        auto s = q.subscribe(sim.get_executor(), [&](const int&) {
            try {
                (void)q.pause(drain_for(1s));
            } catch (const railmq::system_error& e) {
                ec = e.code();
            }
        });
        q.producer().send(1);
        sim.run_ready();
        CHECK(ec == railmq::errc::would_deadlock);
    }
    SECTION("threaded") {
        railmq::broker b;
        auto q = b.queue<int>("q");
        auto p = q.producer();
        p.send(1);
        auto c = q.consumer();
        auto d = c.receive();
        REQUIRE(d);
        std::atomic<bool> acked{false};
        std::thread worker{[&, held = std::move(*d)]() mutable {
            while (!q.is_paused()) {
                std::this_thread::yield();
            }
            acked = true;
            held.ack();
        }};
        CHECK(q.pause(drain_for(1h)));
        CHECK(acked);
        worker.join();
        p.send(2);
        CHECK_FALSE(c.try_receive());
        q.resume();
        auto next = c.receive();
        REQUIRE(next);
        CHECK(**next == 2);
    }
}

TEST_CASE("[Y09] a delivery's stop token asks to stop once its work is in vain") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q", {.retry = at_once});
    auto p = q.producer();
    auto c = q.consumer();
    p.send(1);
    auto d = c.try_receive();
    REQUIRE(d);
    const std::stop_token token = d->stop_token();
    CHECK(token.stop_possible());
    CHECK_FALSE(token.stop_requested());
    bool called = false;
    const std::stop_callback callback{token, [&] { called = true; }};
    SECTION("acknowledged") { d->ack(); }
    SECTION("failed") { d->nack(); }
    SECTION("released") { d->release(); }
    SECTION("rejected") { d->reject(); }
    SECTION("taken") { CHECK(d->take() == 1); }
    SECTION("destroyed") { d.reset(); }
    SECTION("its deadline passes") {
        sim.advance(30s - 1ns);
        CHECK_FALSE(token.stop_requested());
        sim.advance(1ns);
        CHECK(d->stop_token().stop_requested()); // one asked for later is no better
    }
    SECTION("its consumer closes") { c.close(); }
    SECTION("its queue is deleted") { b.delete_queue("q", true); }
    SECTION("the broker closes") {
        b.close();
        CHECK(d->stop_token().stop_requested());
    }
    CHECK(token.stop_requested());
    CHECK(called);
}

TEST_CASE("[Y09] what does not make the work vain does not ask to stop") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q");
    q.producer().send(1);
    auto c = q.consumer();
    auto d = c.try_receive();
    REQUIRE(d);
    const std::stop_token token = d->stop_token();
    SECTION("an extended lease") {
        CHECK(d->extend(5min));
        sim.advance(4min);
    }
    SECTION("a cancelled consumer") { c.cancel(); }
    SECTION("a paused queue") { q.pause(); }
    SECTION("a closed queue, whose messages are still read") { q.close(); }
    SECTION("a broker that waits for running work") {
        sim.async_wait(1s, [&](railmq::error_code) {
            CHECK_FALSE(token.stop_requested());
            CHECK_FALSE(d->stop_token().stop_requested());
        });
        CHECK(b.close(drain_for(5s)) == 1);
        CHECK(token.stop_requested());
        return;
    }
    CHECK_FALSE(token.stop_requested());
    CHECK_FALSE(d->stop_token().stop_requested());
    CHECK(d->ack());
    CHECK(token.stop_requested());
}

TEST_CASE("[Y09] a stop token leaves the lease as it is") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    sim.advance(1h);
    auto q = b.queue<int>("q", {.ack_timeout = 30s});
    q.producer().send(1);
    auto c = q.consumer({.auto_extend = 5min});
    auto d = c.try_receive();
    REQUIRE(d);
    const std::stop_token token = d->stop_token();
    CHECK(d->ack_deadline() == sim.now() + 30s);
    sim.advance(5min - 1ns);
    CHECK_FALSE(token.stop_requested());
    CHECK(q.stats().in_flight == 1);
    sim.advance(1ns);
    CHECK(token.stop_requested());
    CHECK(q.stats().in_flight == 0);
}

TEST_CASE("[Y09] stop tokens with real threads") {
    railmq::broker b;
    auto q = b.queue<int>("q");
    q.producer().send(1);
    auto c = q.consumer();
    auto d = c.receive();
    REQUIRE(d);
    std::atomic<bool> has_token{false};
    std::thread worker{[&] {
        const std::stop_token token = d->stop_token();
        has_token = true;
        while (!token.stop_requested()) {
            std::this_thread::yield();
        }
    }};
    while (!has_token) {
        std::this_thread::yield();
    }
    b.close();
    worker.join();
    CHECK(**d == 1);
}
