// SPDX-License-Identifier: BSL-1.0
//
// Receives that wait. Exact moments are checked in simulated time; that waiting threads wake up,
// and only those that should, on threads.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

/// In a simulation: does something after a while.
template <class F>
void later(simulated_world& world, railmq::duration wait, F f) {
    world.sim.async_wait(wait, [f = std::move(f)](const auto&) mutable { f(); });
}

} // namespace

// E01, E02: one waiter

TEST_CASE("a receive waits for all of its time, then is empty [E01]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    auto consumer = queue.consumer();
    world.advance(100ms);
    railmq::error_code ec;
    bool was_there_before = false;
    later(world, 500ms - 1ns, [&] { was_there_before = queue.stats().waiting_receivers == 1; });
    CHECK_FALSE(consumer.receive(500ms, ec));
    CHECK(ec == errc::timed_out);
    CHECK(world.now() == 600ms);
    CHECK(was_there_before);
    CHECK(queue.stats().waiting_receivers == 0);

    std::vector<delivery_in<int, simulated_world>> batch;
    CHECK(consumer.receive_batch(batch, 10, 500ms, ec) == 0);
    CHECK(ec == errc::timed_out);
    CHECK(world.now() == 1100ms);
}

TEST_CASE("a receive on a thread times out, and leaves nothing behind [E01]") {
    threaded_world world;
    const auto queue = open<int>(world, "q");
    auto consumer = queue.consumer();
    railmq::error_code ec;
    CHECK_FALSE(consumer.receive(5ms, ec));
    CHECK(ec == errc::timed_out);
    CHECK(queue.stats().waiting_receivers == 0);
    queue.producer().send(1);
    CHECK(take_all(consumer) == std::vector<int>{1});
}

TEST_CASE("a waiting receive returns at once with what comes [E02]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    auto consumer = queue.consumer();
    auto producer = queue.producer();
    later(world, 500ms, [&] { producer.send(7); });
    auto d = consumer.receive(1000ms);
    REQUIRE(d);
    CHECK(d->value() == 7);
    CHECK(world.now() == 500ms);
    CHECK(d->ack());

    later(world, 100ms, [&] { producer.send(8); });
    auto batch = consumer.receive_batch(10, 1000ms);
    REQUIRE(batch.size() == 1);
    CHECK(world.now() == 600ms);
}

TEST_CASE("a waiting thread gets what another thread sends [E02]") {
    threaded_world world;
    const auto queue = open<int>(world, "q");
    const auto answers = open<int>(world, "answers");
    // To and fro, so that each side waits again and again.
    std::thread other([&answers, consumer = queue.consumer()]() mutable {
        auto producer = answers.producer();
        while (auto d = consumer.receive()) {
            producer.send(d->value() + 1);
            d->ack();
        }
    });
    auto producer = queue.producer();
    auto consumer = answers.consumer();
    int wrong = 0;
    for (int n = 0; n < 500; ++n) {
        producer.send(n);
        auto d = consumer.receive(long_time);
        wrong += d && d->value() == n + 1 && d->ack() ? 0 : 1;
    }
    queue.close();
    other.join();
    CHECK(wrong == 0);
}

// E03, E04: several waiters

TEST_CASE("two waiters, one message: one gets it, one times out [E03]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    auto a = queue.consumer();
    auto b = queue.consumer();
    int by_a = 0;
    a.async_receive([&](railmq::error_code ec, delivery_in<int, simulated_world> d) {
        by_a = ec ? -1 : d.value();
        d.ack();
    });
    auto producer = queue.producer();
    later(world, 100ms, [&] { producer.send(1); });
    railmq::error_code ec;
    CHECK_FALSE(b.receive(500ms, ec));
    CHECK(ec == errc::timed_out);
    CHECK(by_a == 1);
    CHECK(world.now() == 500ms);
    CHECK(queue.stats().acked == 1);
}

TEST_CASE("waiting threads get each message once [E03][E04]") {
    struct numbers_of {
        int waiters;
        int messages;
    };
    const auto n = GENERATE(numbers_of{2, 1}, numbers_of{3, 2}, numbers_of{5, 4});
    for (int round = 0; round < 20; ++round) {
        threaded_world world;
        const auto queue = open<int>(world, "q");
        std::vector<std::vector<int>> got(static_cast<std::size_t>(n.waiters));
        std::vector<int> ended(static_cast<std::size_t>(n.waiters));
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < got.size(); ++i) {
            threads.emplace_back([&, i, consumer = queue.consumer()]() mutable {
                auto& mine = got[i];
                railmq::error_code ec;
                if (auto d = consumer.receive(long_time, ec)) {
                    mine.push_back(d->value());
                    d->ack();
                }
                ended[i] = ec == errc::closed ? 1 : 0;
            });
        }
        send_range(queue, 1, n.messages);
        queue.close(); // whoever got nothing ends without
        for (auto& t : threads) {
            t.join();
        }
        std::vector<int> all;
        for (const auto& mine : got) {
            all.insert(all.end(), mine.begin(), mine.end());
        }
        std::sort(all.begin(), all.end());
        REQUIRE(all == numbers(1, n.messages));
        REQUIRE(std::count(ended.begin(), ended.end(), 1) == n.waiters - n.messages);
    }
}

TEST_CASE("three waiters, two messages: exactly two are received [E04]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    std::vector<consumer_in<int, simulated_world>> consumers;
    std::vector<int> got;
    std::vector<railmq::error_code> ends;
    for (int i = 0; i < 2; ++i) {
        consumers.push_back(queue.consumer());
        consumers.back().async_receive(
            [&](railmq::error_code ec, delivery_in<int, simulated_world> d) {
                ends.push_back(ec);
                if (!ec) {
                    got.push_back(d.value());
                    d.ack();
                }
            });
    }
    auto third = queue.consumer();
    later(world, 10ms, [&] { send_range(queue, 1, 2); });
    CHECK_FALSE(third.receive(1s));
    CHECK(world.now() == 1s);
    CHECK(got == numbers(1, 2));
    CHECK(ends.size() == 2);
}

// E05, E06: what becomes of the queue meanwhile

TEST_CASE("what was removed before anyone asked wakes nobody [E05]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.dead_letter = railmq::discard});
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    railmq::error_code ec;
    SECTION("purged") {
        send_range(queue, 1, 3);
        CHECK(queue.purge() == 3);
    }
    SECTION("expired") {
        producer.send(1, {.time_to_live = 1ms});
        world.advance(1ms);
        CHECK(queue.stats().expired == 1);
    }
    SECTION("taken by somebody else") {
        producer.send(1);
        auto other = queue.consumer();
        CHECK(take_all(other) == std::vector<int>{1});
    }
    SECTION("purged while delayed") {
        producer.send(1, {.delay = 10ms});
        CHECK(queue.purge() == 1);
    }
    const auto start = world.now();
    std::vector<delivery_in<int, simulated_world>> batch;
    CHECK(consumer.receive_batch(batch, 10, 100ms, ec) == 0);
    CHECK(ec == errc::timed_out);
    CHECK(world.now() == start + 100ms);
    CHECK_FALSE(consumer.receive(100ms, ec));
    CHECK(ec == errc::timed_out);
    CHECK(world.now() == start + 200ms);
    later(world, 50ms, [&] { producer.send(42); });
    auto d = consumer.receive(100ms);
    REQUIRE(d);
    CHECK(d->value() == 42);
    CHECK(world.now() == start + 250ms);
}

TEST_CASE("after a purge a waiting thread gets the next message [E05]") {
    threaded_world world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 3);
    CHECK(queue.purge() == 3);
    std::thread sender([producer = queue.producer()]() mutable { producer.send(42); });
    auto consumer = queue.consumer();
    auto d = consumer.receive(long_time);
    sender.join();
    REQUIRE(d);
    CHECK(d->value() == 42);
}

TEST_CASE("deleting a queue wakes those that wait for it [E06]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    auto consumer = queue.consumer();
    railmq::error_code ec;
    SECTION("a blocked receive") {
        later(world, 100ms, [&] { world.broker.delete_queue("q"); });
        CHECK_FALSE(consumer.receive(1h, ec));
        CHECK(ec == errc::not_found);
        CHECK(world.now() == 100ms);
    }
    SECTION("one without a limit") {
        later(world, 100ms, [&] { world.broker.delete_queue("q"); });
        CHECK_FALSE(consumer.receive(ec));
        CHECK(ec == errc::not_found);
    }
    SECTION("asynchronous ones") {
        railmq::error_code one;
        railmq::error_code many;
        consumer.async_receive([&](railmq::error_code e, const auto&) { one = e; });
        consumer.async_receive_batch(10, [&](railmq::error_code e, const auto&) { many = e; });
        world.broker.delete_queue("q");
        CHECK_FALSE(one); // never inside the call
        world.run();
        CHECK(one == errc::not_found);
        CHECK(many == errc::not_found);
    }
    SECTION("those that come afterwards") {
        world.broker.delete_queue("q");
        CHECK_FALSE(consumer.receive(1h, ec));
        CHECK(ec == errc::not_found);
        CHECK_FALSE(consumer.try_receive(ec));
        CHECK(ec == errc::not_found);
        railmq::error_code one;
        railmq::error_code many;
        consumer.async_receive([&](railmq::error_code e, const auto&) { one = e; });
        consumer.async_receive_batch(10, [&](railmq::error_code e, const auto&) { many = e; });
        world.run();
        CHECK(one == errc::not_found);
        CHECK(many == errc::not_found);
    }
    SECTION("a consumer that is full") {
        consumer.prefetch(1);
        queue.producer().send(1);
        auto held = consumer.try_receive();
        REQUIRE(held);
        later(world, 100ms, [&] { world.broker.delete_queue("q", true); });
        CHECK_FALSE(consumer.receive(1s, ec));
        CHECK(ec == errc::not_found);
        CHECK(world.now() == 100ms);
    }
}

TEST_CASE("deleting a queue wakes the threads that wait for it [E06]") {
    threaded_world world;
    const auto queue = open<int>(world, "q");
    std::vector<railmq::error_code> ends(3);
    std::vector<std::thread> threads;
    for (auto& end : ends) {
        threads.emplace_back(
            [&end, consumer = queue.consumer()]() mutable { (void)consumer.receive(end); });
    }
    world.broker.delete_queue("q");
    for (auto& t : threads) {
        t.join();
    }
    for (const auto& end : ends) {
        CHECK(end == errc::not_found);
    }
}

// E07, E08: the order of waiters

TEMPLATE_TEST_CASE(
    "ten waiters are served in turn, in the order of their coming [E07]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    auto consumer = queue.consumer({.prefetch = railmq::unlimited});
    std::vector<std::vector<int>> got(10);
    std::function<void(std::size_t)> ask = [&](std::size_t i) {
        consumer.async_receive([&, i](railmq::error_code ec, delivery_in<int, TestType> d) {
            if (!ec) {
                got[i].push_back(d.value());
                d.ack();
                ask(i);
            }
        });
    };
    for (std::size_t i = 0; i < 10; ++i) {
        ask(i);
    }
    world.run();
    CHECK(queue.stats().waiting_receivers == 10);
    send_range(queue, 1, 100);
    world.run();
    for (std::size_t i = 0; i < 10; ++i) {
        std::vector<int> expected;
        for (int n = static_cast<int>(i) + 1; n <= 100; n += 10) {
            expected.push_back(n);
        }
        CHECK(got[i] == expected);
    }
    consumer.close();
    world.run();
}

// There is no cap on waiters; what is left of this is that the ones that go free their place.
TEMPLATE_TEST_CASE(
    "a cancelled waiter frees its place [E08]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    auto consumer = queue.consumer();
    std::vector<boost::asio::cancellation_signal> signals(3);
    std::vector<railmq::error_code> ends(3);
    std::vector<int> got;
    for (std::size_t i = 0; i < 3; ++i) {
        consumer.async_receive(boost::asio::bind_cancellation_slot(
            signals[i].slot(), [&, i](railmq::error_code ec, delivery_in<int, TestType> d) {
                ends[i] = ec;
                if (!ec) {
                    got.push_back(static_cast<int>(i));
                    d.ack();
                }
            }));
    }
    CHECK(queue.stats().waiting_receivers == 3);
    signals[0].emit(boost::asio::cancellation_type::total);
    CHECK(queue.stats().waiting_receivers == 2);
    world.run();
    CHECK(ends[0] == boost::asio::error::operation_aborted);
    queue.producer().send(1);
    world.run();
    CHECK(got == std::vector<int>{1});
    consumer.close();
    world.run();
    CHECK(ends[2] == errc::closed);
    CHECK(queue.stats().waiting_receivers == 0);
}

// E09 to E11: what is there, and what is not there yet

TEMPLATE_TEST_CASE(
    "a batch without waiting is what is there [E09]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    auto consumer = queue.consumer();
    railmq::error_code ec;
    std::vector<delivery_in<int, TestType>> batch;
    CHECK(consumer.receive_batch(batch, 10, 0s, ec) == 0);
    CHECK(ec == errc::would_block);
    send_range(queue, 1, 3);
    CHECK(consumer.receive_batch(batch, 10, 0s, ec) == 3);
    CHECK_FALSE(ec);
    for (std::size_t i = 0; i < batch.size(); ++i) {
        CHECK(batch[i].value() == static_cast<int>(i) + 1);
    }
    CHECK(railmq::ack_all(batch) == 3);
    // With a limit it does not wait for more than one either.
    send_range(queue, 4, 5);
    CHECK(consumer.receive_batch(batch, 10, long_time, ec) == 2);
    CHECK(railmq::ack_all(batch) == 2);
    CHECK(consumer.receive_batch(batch, 0, 0s, ec) == 0);
    CHECK(ec == errc::invalid_argument);
}

TEST_CASE("a batch takes at most as many as asked for, by their time [E10]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    auto producer = queue.producer();
    for (const int n : {3, 1, 5, 2, 4}) {
        producer.send(n, {.delay = std::chrono::milliseconds{n}});
    }
    world.advance(5ms);
    auto consumer = queue.consumer();
    const auto values = [](const auto& batch) {
        std::vector<int> all;
        for (const auto& d : batch) {
            all.push_back(d.value());
        }
        return all;
    };
    SECTION("fewer than there are") {
        const auto three = consumer.receive_batch(3, 0s);
        CHECK(values(three) == numbers(1, 3));
        const auto rest = consumer.receive_batch(3, 0s);
        CHECK(values(rest) == numbers(4, 5));
    }
    SECTION("more than there are") {
        const auto all = consumer.receive_batch(10, 0s);
        CHECK(values(all) == numbers(1, 5));
    }
}

TEST_CASE("a delayed message far away does not keep a normal one waiting [E11]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    auto producer = queue.producer();
    producer.send(100, {.delay = 24h});
    auto consumer = queue.consumer();
    later(world, 1s, [&] { producer.send(1); });
    auto d = consumer.receive(1h);
    REQUIRE(d);
    CHECK(d->value() == 1);
    CHECK(world.now() == 1s);
    CHECK(d->ack());
    auto far = consumer.receive();
    REQUIRE(far);
    CHECK(far->value() == 100);
    CHECK(world.now() == 24h);
}

TEST_CASE("a delayed message far away does not keep a waiting thread asleep [E11]") {
    threaded_world world;
    const auto queue = open<int>(world, "q");
    queue.producer().send(100, {.delay = 24h});
    auto consumer = queue.consumer();
    std::thread sender([producer = queue.producer()]() mutable { producer.send(1); });
    auto d = consumer.receive(long_time);
    sender.join();
    REQUIRE(d);
    CHECK(d->value() == 1);
    CHECK(queue.stats().delayed == 1);
}
