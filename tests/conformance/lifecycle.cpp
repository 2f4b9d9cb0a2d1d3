// SPDX-License-Identifier: BSL-1.0
//
// Lifecycle: closing and cancelling. Stopping while work runs is in lifecycle_work.cpp.
#include <railmq/broker.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"

#include <boost/asio/thread_pool.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::drain_for;
using railmq::test::error_of;

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

/// What is closed says so, whatever it is asked.
template <class Broker, class Queue, class Producer, class Consumer>
void check_broker_closed(Broker& b, Queue& q, Producer& p, Consumer& c) {
    CHECK_FALSE(b.is_open());
    CHECK(b.close() == 0);
    CHECK(error_of([&] { (void)b.template queue<int>("q"); }) == railmq::errc::closed);
    CHECK(error_of([&] { (void)q.consumer(); }) == railmq::errc::closed);
    railmq::error_code ec;
    p.send(1, ec);
    CHECK(ec == railmq::errc::closed);
    CHECK_FALSE(c.try_receive(ec));
    CHECK(ec == railmq::errc::closed);
    CHECK_FALSE(c.receive(ec));
    CHECK(ec == railmq::errc::closed);
}

} // namespace

TEST_CASE("[Y01] a closed queue takes nothing more, and its reader gets what is there") {
    const auto run = [](auto& b) {
        auto q = b.template queue<int>("q");
        auto p = q.producer();
        auto c = q.consumer();
        p.send_batch(from_to(1, 300));
        CHECK(q.close() == 300);
        CHECK_FALSE(q.is_open());
        CHECK_FALSE(p.is_open());
        railmq::error_code ec;
        p.send(301, ec);
        CHECK(ec == railmq::errc::closed);
        p.try_send(301, ec);
        CHECK(ec == railmq::errc::closed);
        CHECK(p.send_batch(from_to(301, 310), ec) == 0);
        CHECK(ec == railmq::errc::closed);

        std::vector<int> all;
        while (auto d = c.receive(ec)) {
            all.push_back(**d);
            d->ack();
        }
        CHECK(all == from_to(1, 300));
        CHECK(ec == railmq::errc::closed);
        CHECK(error_of([&] { (void)q.consumer(); }) == railmq::errc::closed);
        CHECK(q.close() == 0);
    };
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        run(b);
    }
    SECTION("threaded") {
        railmq::broker b;
        run(b);
    }
}

TEST_CASE("[Y01] a closed broker closes every handle; what is held can still be read") {
    const auto run = [](auto& b) {
        auto q = b.template queue<int>("q");
        auto p = q.producer();
        auto c = q.consumer();
        p.send_batch(from_to(1, 300));
        auto held = c.try_receive();
        REQUIRE(held);
        CHECK(b.close() == 300);
        check_broker_closed(b, q, p, c);
        CHECK(**held == 1);
        CHECK(held->ack());
    };
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        run(b);
    }
    SECTION("threaded") {
        railmq::broker b;
        run(b);
    }
}

TEST_CASE("[Y02] closing the broker while others subscribe, send and receive") {
    for (int round = 0; round < 15; ++round) {
        boost::asio::thread_pool pool{1};
        std::atomic<int> ready{0};
        std::atomic<int> wrong{0};
        {
            railmq::broker b{{.executor = pool.get_executor()}};
            auto q = b.queue<int>("q");
            const auto expect_closed = [&](const railmq::system_error& e) {
                wrong += e.code() == railmq::errc::closed ? 0 : 1;
            };
            std::vector<std::thread> others;
            others.emplace_back([&] {
                auto p = q.producer();
                ++ready;
                railmq::error_code ec;
                while (!ec) {
                    p.send(1, ec);
                }
                wrong += ec == railmq::errc::closed ? 0 : 1;
            });
            others.emplace_back([&] {
                ++ready;
                try {
                    for (;;) {
                        auto s = q.subscribe(pool.get_executor(), [](const int&) {});
                        std::this_thread::yield();
                    }
                } catch (const railmq::system_error& e) {
                    expect_closed(e);
                }
            });
            others.emplace_back([&] {
                auto c = q.consumer();
                ++ready;
                railmq::error_code ec;
                while (auto d = c.receive(ec)) {
                    d->ack();
                }
                wrong += ec == railmq::errc::closed ? 0 : 1;
            });
            others.emplace_back([&] {
                ++ready;
                try {
                    for (;;) {
                        (void)b.queue<int>("q");
                    }
                } catch (const railmq::system_error& e) {
                    expect_closed(e);
                }
            });
            while (ready < 4) {
                std::this_thread::yield();
            }
            for (int i = 0; i < round * 20; ++i) {
                std::this_thread::yield();
            }
            std::thread second{[&] { b.close(); }};
            b.close();
            second.join();
            CHECK(b.close() == 0);
            for (auto& t : others) {
                t.join();
            }
        }
        pool.join();
        CHECK(wrong == 0);
    }
}

TEST_CASE("[Y02] closing subscriptions while their handlers run on other threads") {
    constexpr int count = 20'000;
    boost::asio::thread_pool pool{2};
    railmq::broker b{{.executor = pool.get_executor()}};
    auto q = b.queue<int>("q", {.retry = at_once});
    auto p = q.producer();
    std::vector<std::atomic<int>> seen(count);
    std::atomic<bool> sent{false};
    std::thread sender{[&] {
        for (int i = 0; i < count; ++i) {
            p.send(i);
        }
        sent = true;
    }};
    const auto handler = [&](const int& i) { ++seen[static_cast<std::size_t>(i)]; };
    int rounds = 0;
    while (!sent || rounds < 200) {
        auto s = q.subscribe(pool.get_executor(), handler, {.concurrency = 3});
        std::this_thread::yield();
        if (rounds++ % 2 == 0) {
            s.close();
        }
    }
    sender.join();
    auto last = q.subscribe(pool.get_executor(), handler, {.concurrency = 3});
    CHECK(q.drain(drain_for(1h)));
    last.close();
    b.close();
    pool.join();
    CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n >= 1; }));
}

TEST_CASE("[Y03] what twenty producers sent is there after they have gone") {
    railmq::broker b;
    auto q = b.queue<int>("q");
    std::vector<std::thread> senders;
    for (int t = 0; t < 20; ++t) {
        senders.emplace_back([&q, t] {
            auto p = q.producer();
            for (int n = 0; n < 500; ++n) {
                p.send(t * 500 + n);
            }
        });
    }
    for (auto& t : senders) {
        t.join();
    }
    q.close();
    auto c = q.consumer();
    std::vector<int> all;
    while (auto d = c.receive()) {
        all.push_back(**d);
        d->ack();
    }
    std::sort(all.begin(), all.end());
    CHECK(all == from_to(0, 9'999));
}

TEST_CASE("[Y04] a cancelled consumer ends, and what it failed reaches the next one") {
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", {.retry = at_once});
        q.producer().send_batch(from_to(1, 20));
        auto c = q.consumer();
        auto held = c.receive_batch(20, 0s);
        REQUIRE(held.size() == 20);
        c.cancel();
        CHECK(railmq::nack_all(held) == 20);
        railmq::error_code ec;
        CHECK_FALSE(c.receive(ec));
        CHECK(ec == railmq::errc::closed);
        auto next = q.consumer();
        CHECK(read_now(next) == from_to(1, 20));
    }
    SECTION("simulated: a subscription") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", {.retry = {.backoff = railmq::constant_backoff{.delay = 1s}}});
        auto p = q.producer();
        int runs = 0;
        auto s = q.subscribe(sim.get_executor(), [&](const int&) {
            ++runs;
            return railmq::outcome::nack();
        });
        p.send_batch(from_to(1, 20));
        sim.run_ready();
        REQUIRE(runs == 20);
        SECTION("cancelled") { s.cancel(); }
        SECTION("closed") { s.close(); }
        auto next = q.consumer();
        sim.advance(1h);
        CHECK(read_now(next) == from_to(1, 20));
        CHECK(runs == 20);
    }
    SECTION("simulated: a message on its way to the handler goes to somebody else instead") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q");
        int runs = 0;
        auto s = q.subscribe(sim.get_executor(), [&](const int&) { ++runs; });
        q.producer().send(1); // taken for the handler, which has not run yet
        SECTION("cancelled") { s.cancel(); }
        SECTION("closed") { s.close(); }
        SECTION("closed, with time for running handlers") { CHECK(s.close(drain_for(1min))); }
        sim.run_ready();
        auto next = q.consumer();
        CHECK(read_now(next) == from_to(1, 1));
        CHECK(runs == 0);
        CHECK(q.stats().failed == 0);
    }
    SECTION("threaded: a receive that waits ends") {
        railmq::broker b;
        auto q = b.queue<int>("q", {.retry = at_once});
        q.producer().send_batch(from_to(1, 20));
        std::atomic<bool> ended{false};
        std::thread reader{[&] {
            auto c = q.consumer();
            auto held = c.receive_batch(20, 1h);
            (void)railmq::nack_all(held);
            c.cancel();
            railmq::error_code ec;
            ended = !c.receive(ec) && ec == railmq::errc::closed;
        }};
        reader.join();
        CHECK(ended);
        auto next = q.consumer();
        CHECK(read_now(next) == from_to(1, 20));
    }
}
