// SPDX-License-Identifier: BSL-1.0
//
// Several consumers of one queue: who gets what, and how much.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

// C01

TEST_CASE("5000 messages, 50 consumers on threads: each message to one of them [C01]") {
    railmq::broker broker;
    const auto queue = broker.queue<int>("q");
    std::vector<std::vector<int>> got(50);
    std::vector<std::thread> threads;
    for (auto& mine : got) {
        threads.emplace_back([&mine, consumer = queue.consumer({.prefetch = 7})]() mutable {
            while (auto d = consumer.receive()) {
                mine.push_back(d->value());
                d->ack();
            }
        });
    }
    send_range(queue, 1, 5000);
    queue.close(); // the consumers end when nothing is left
    for (auto& t : threads) {
        t.join();
    }
    std::vector<int> all;
    for (const auto& mine : got) {
        CHECK(std::is_sorted(mine.begin(), mine.end()));
        all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    CHECK(all == numbers(1, 5000));
    CHECK(queue.stats().redelivered == 0);
    CHECK(queue.stats().acked == 5000);
}

TEST_CASE("5000 messages, 50 consumers that wait: each message to one of them [C01]") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    const auto queue = broker.queue<int>("q");
    std::vector<std::size_t> counts(50);
    std::vector<int> all;
    std::vector<railmq::sim_subscription> subscriptions;
    for (auto& count : counts) {
        subscriptions.push_back(queue.subscribe(sim.get_executor(), [&](const int& n) {
            ++count;
            all.push_back(n);
        }));
    }
    send_range(queue, 1, 5000);
    sim.run_ready();
    std::sort(all.begin(), all.end());
    CHECK(all == numbers(1, 5000));
    for (const auto count : counts) {
        CHECK(count == 100); // equal consumers get equal shares
    }
}

// C02 to C06: prefetch

TEMPLATE_TEST_CASE(
    "with prefetch 1 a consumer holds one message [C02]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 100);
    auto consumer = queue.consumer({.prefetch = 1});
    railmq::error_code ec;
    for (int n = 1; n <= 3; ++n) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->value() == n);
        CHECK_FALSE(consumer.try_receive(ec));
        CHECK(ec == errc::would_block);
        CHECK(consumer.receive_batch(10, 0s).empty());
        CHECK(consumer.in_flight() == 1);
        CHECK(queue.stats().in_flight == 1);
        CHECK(d->ack());
        CHECK(consumer.in_flight() == 0);
    }
}

TEMPLATE_TEST_CASE(
    "an ack lets a waiting receive of a full consumer go on [C02]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 100);
    auto consumer = queue.consumer({.prefetch = 1});
    std::vector<delivery_in<int, TestType>> held;
    for (int i = 0; i < 3; ++i) {
        consumer.async_receive([&](railmq::error_code ec, delivery_in<int, TestType> d) {
            if (!ec) {
                held.push_back(std::move(d));
            }
        });
    }
    for (std::size_t n = 1; n <= 3; ++n) {
        world.run();
        REQUIRE(held.size() == n);
        CHECK(held.back().value() == static_cast<int>(n));
        CHECK(held.back().ack());
    }
    world.run();
    CHECK(held.size() == 3);
}

TEMPLATE_TEST_CASE(
    "with prefetch 33 exactly 33 are delivered, and 33 more after their acks [C03]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 100);
    auto consumer = queue.consumer({.prefetch = 33});
    int next = 1;
    for (const std::size_t expected : {33U, 33U, 33U, 1U}) {
        auto batch = consumer.receive_batch(100, 0s);
        REQUIRE(batch.size() == expected);
        for (const auto& d : batch) {
            CHECK(d.value() == next++);
        }
        CHECK_FALSE(consumer.try_receive());
        CHECK(consumer.receive_batch(100, 0s).empty());
        CHECK(consumer.in_flight() == expected);
        CHECK(railmq::ack_all(batch) == expected);
    }
}

TEMPLATE_TEST_CASE(
    "raising prefetch lets one more come without any ack [C04]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 10);
    auto consumer = queue.consumer({.prefetch = 1});
    SECTION("asked for afterwards") {
        auto one = consumer.try_receive();
        REQUIRE(one);
        CHECK_FALSE(consumer.try_receive());
        consumer.prefetch(2);
        CHECK(consumer.prefetch() == 2);
        auto two = consumer.try_receive();
        REQUIRE(two);
        CHECK(two->value() == 2);
        CHECK_FALSE(consumer.try_receive());
    }
    SECTION("waited for") {
        std::vector<delivery_in<int, TestType>> held;
        for (int i = 0; i < 3; ++i) {
            consumer.async_receive([&](railmq::error_code ec, delivery_in<int, TestType> d) {
                if (!ec) {
                    held.push_back(std::move(d));
                }
            });
        }
        world.run();
        CHECK(held.size() == 1);
        consumer.prefetch(2);
        world.run();
        CHECK(held.size() == 2);
        consumer.close();
        world.run();
    }
    SECTION("zero would hold nothing for ever, and is refused") {
        try {
            consumer.prefetch(0);
            FAIL("prefetch 0 was taken");
        } catch (const railmq::system_error& e) {
            CHECK(e.code() == errc::invalid_argument);
        }
        CHECK(consumer.prefetch() == 1);
        try {
            (void)queue.consumer({.prefetch = 0});
            FAIL("prefetch 0 was taken");
        } catch (const railmq::system_error& e) {
            CHECK(e.code() == errc::invalid_argument);
        }
    }
}

TEMPLATE_TEST_CASE(
    "after lowering prefetch nothing comes until there is room [C05]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 10);
    auto consumer = queue.consumer({.prefetch = 2});
    auto batch = consumer.receive_batch(10, 0s);
    REQUIRE(batch.size() == 2);
    consumer.prefetch(1);
    CHECK_FALSE(consumer.try_receive());
    CHECK(batch[0].ack());
    CHECK_FALSE(consumer.try_receive());
    CHECK(batch[1].ack());
    for (int n = 3; n <= 10; ++n) {
        auto next = consumer.receive_batch(10, 0s);
        REQUIRE(next.size() == 1);
        CHECK(next[0].value() == n);
        CHECK(next[0].ack());
    }
}

TEMPLATE_TEST_CASE(
    "unlimited prefetch delivers all that is there [C06]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 300);
    auto consumer = queue.consumer({.prefetch = 1});
    auto one = consumer.try_receive();
    REQUIRE(one);
    CHECK_FALSE(consumer.try_receive());
    consumer.prefetch(railmq::unlimited);
    std::vector<delivery_in<int, TestType>> held;
    while (auto d = consumer.try_receive()) {
        held.push_back(std::move(*d));
    }
    CHECK(held.size() == 299);
    CHECK(consumer.in_flight() == 300);
}

// C07, C08: nobody starves

// One handle that reads several queues comes with topics; here a loop serves one consumer for each
// queue in turn, as a program with three queues would.
TEMPLATE_TEST_CASE(
    "three queues served in turn: none starves [C07]", "", threaded_world, simulated_world) {
    TestType world;
    std::vector<consumer_in<int, TestType>> consumers;
    std::vector<int> counts(3);
    for (const char* name : {"a", "b", "c"}) {
        const auto queue = open<int>(world, name);
        send_range(queue, 1, 100);
        consumers.push_back(queue.consumer({.prefetch = 1}));
    }
    for (std::size_t cycle = 0; cycle < 99; ++cycle) {
        auto d = consumers[cycle % 3].try_receive();
        REQUIRE(d);
        CHECK(d->value() == ++counts[cycle % 3]);
        CHECK(d->ack());
    }
    CHECK(counts == std::vector<int>{33, 33, 33});
}

TEMPLATE_TEST_CASE(
    "two waiting consumers share what comes [C08]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    auto a = queue.consumer({.prefetch = 1});
    auto b = queue.consumer({.prefetch = 1});
    std::vector<int> counts(2);
    const auto ask = [&](auto& consumer, int& count) {
        consumer.async_receive([&](railmq::error_code ec, delivery_in<int, TestType> d) {
            if (!ec) {
                d.ack();
                ++count;
            }
        });
    };
    for (int n = 0; n < 10; ++n) {
        ask(a, counts[0]);
        ask(b, counts[1]);
        send_range(queue, 2 * n, 2 * n + 1);
        world.run();
    }
    CHECK(counts == std::vector<int>{10, 10});
}

// C09, C10: consumers that leave

TEMPLATE_TEST_CASE(
    "what a cancelled consumer holds stays its own [C09]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 3);
    auto old_one = queue.consumer({.prefetch = 1});
    auto held = old_one.try_receive();
    REQUIRE(held);
    old_one.cancel();
    auto new_one = queue.consumer({.prefetch = 1});
    auto next = new_one.try_receive();
    REQUIRE(next);
    CHECK(next->value() == 2);
    CHECK(held->value() == 1);
    CHECK(held->ack());
    CHECK(next->ack());
    CHECK(take_all(new_one) == std::vector<int>{3});
    CHECK(queue.stats().redelivered == 0);
}

TEMPLATE_TEST_CASE(
    "what a leaving consumer held goes to the next one with room [C10]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<std::string>(world, "q");
    queue.producer().send("one");
    queue.producer().send("two");
    auto c1 = queue.consumer({.prefetch = 1});
    auto c2 = queue.consumer({.prefetch = 1});
    auto one = c1.try_receive();
    auto two = c2.try_receive();
    REQUIRE(one);
    REQUIRE(two);
    bool c2_got_more = false;
    c2.async_receive([&](railmq::error_code ec, const auto&) { c2_got_more = c2_got_more || !ec; });
    c1.close();
    world.run();
    CHECK_FALSE(c2_got_more); // it is full
    CHECK(queue.stats().ready == 1);
    auto c3 = queue.consumer({.prefetch = 1});
    auto again = c3.try_receive();
    REQUIRE(again);
    CHECK(again->value() == "one");
    CHECK(again->redelivered());
    CHECK(again->failure_count() == 0);
    CHECK_FALSE(one->ack()); // stale
    CHECK(again->ack());
    CHECK(two->ack());
    c2.close();
    world.run();
    CHECK_FALSE(c2_got_more);
}

// C11, C12: priorities of consumers

TEMPLATE_TEST_CASE(
    "the consumer of the highest priority is served while it has room [C11]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    std::vector<std::vector<int>> got(3);
    std::vector<subscription_in<TestType>> subscriptions;
    for (const std::size_t i : {2U, 0U, 1U}) { // not in the order of priority
        subscriptions.push_back(queue.subscribe(
            world.executor(),
            [&mine = got[i]](const int& n) { mine.push_back(n); },
            {.concurrency = 10, .consumer = {.priority = 1 - static_cast<std::int32_t>(i)}}));
    }
    std::swap(subscriptions[0], subscriptions[1]);
    std::swap(subscriptions[1], subscriptions[2]); // now they are
    for (std::size_t i = 0; i < 3; ++i) {
        const int first = static_cast<int>(i) * 10 + 1;
        send_range(queue, first, first + 9);
        world.run();
        CHECK(got[i] == numbers(first, first + 9));
        for (std::size_t later = i + 1; later < 3; ++later) {
            CHECK(got[later].empty());
        }
        subscriptions[i].cancel();
        world.run();
    }
    CHECK(queue.stats().acked == 30);
}

TEST_CASE("a consumer's priority is a number and nothing else [C12]") {
    using priority_type = decltype(railmq::consumer_options::priority);
    STATIC_REQUIRE(std::is_integral_v<priority_type>);
    STATIC_REQUIRE_FALSE(std::is_assignable_v<priority_type&, const char*>);
    STATIC_REQUIRE_FALSE(std::is_assignable_v<priority_type&, std::nullptr_t>);
    STATIC_REQUIRE_FALSE(std::is_assignable_v<priority_type&, std::vector<int>>);
}

// C13 to C15: single active consumer

TEMPLATE_TEST_CASE(
    "a single active consumer gets everything, then the next does [C13]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    std::vector<int> by_a;
    std::vector<int> by_b;
    railmq::subscribe_options options;
    options.consumer.single_active = true;
    auto a = queue.subscribe(
        world.executor(), [&got = by_a](const int& n) { got.push_back(n); }, options);
    auto b = queue.subscribe(
        world.executor(), [&got = by_b](const int& n) { got.push_back(n); }, options);
    send_range(queue, 1, 10);
    world.run();
    CHECK(by_a == numbers(1, 10));
    CHECK(by_b.empty());
    a.cancel();
    send_range(queue, 11, 20);
    world.run();
    CHECK(by_a == numbers(1, 10));
    CHECK(by_b == numbers(11, 20));
}

TEMPLATE_TEST_CASE(
    "a closing active consumer hands its messages over in order [C13]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    auto a = queue.consumer({.single_active = true});
    auto b = queue.consumer({.single_active = true});
    send_range(queue, 1, 6);
    auto held = a.receive_batch(3, 0s);
    REQUIRE(held.size() == 3);
    CHECK_FALSE(b.try_receive());
    CHECK(held[1].ack());
    a.close();
    CHECK(take_all(b) == std::vector<int>{1, 3, 4, 5, 6});
    // All consumers of a queue have to agree.
    try {
        (void)queue.consumer();
        FAIL("a consumer that is not single_active was let in");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == errc::options_mismatch);
    }
}

TEMPLATE_TEST_CASE(
    "a more important single active consumer waits for the last ack [C14]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 4);
    auto p2 = queue.consumer({.priority = 2, .single_active = true});
    auto held = p2.try_receive();
    REQUIRE(held);
    auto p3 = queue.consumer({.priority = 3, .single_active = true});
    SECTION("polling") {
        CHECK_FALSE(p2.try_receive()); // it gets no more
        CHECK_FALSE(p3.try_receive()); // nor does the new one, yet
        CHECK(queue.stats().ready == 3);
        CHECK(held->ack());
        CHECK_FALSE(p2.try_receive());
        CHECK(take_all(p3) == numbers(2, 4));
    }
    SECTION("waiting") {
        int by_p2 = 0;
        int by_p3 = 0;
        p2.async_receive([&](railmq::error_code ec, delivery_in<int, TestType> d) {
            by_p2 = ec ? 0 : d.value();
        });
        p3.async_receive([&](railmq::error_code ec, delivery_in<int, TestType> d) {
            by_p3 = ec ? 0 : d.value();
            d.ack();
        });
        world.run();
        CHECK(by_p2 == 0);
        CHECK(by_p3 == 0);
        CHECK(held->ack());
        world.run();
        CHECK(by_p2 == 0);
        CHECK(by_p3 == 2);
        p2.close();
        world.run();
        CHECK(by_p2 == 0);
    }
    SECTION("one of the same priority takes nothing over") {
        CHECK(held->ack());
        auto also_p3 = queue.consumer({.priority = 3, .single_active = true});
        CHECK_FALSE(also_p3.try_receive());
        CHECK(take_all(p3) == numbers(2, 4));
    }
}

TEMPLATE_TEST_CASE(
    "a cancelled active consumer may settle while the next is active [C15]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 3);
    auto a = queue.consumer({.single_active = true});
    auto b = queue.consumer({.single_active = true});
    auto held = a.try_receive();
    REQUIRE(held);
    a.cancel();
    auto next = b.try_receive();
    REQUIRE(next);
    CHECK(next->value() == 2);
    CHECK(held->value() == 1);
    CHECK(held->ack());
    CHECK(a.in_flight() == 0);
    CHECK(next->ack());
    CHECK(take_all(b) == std::vector<int>{3});
    CHECK(queue.stats().consumers == 1);
    CHECK(queue.stats().redelivered == 0);
}
