// SPDX-License-Identifier: BSL-1.0
//
// Deadlines of what consumers hold. The exact moments are checked in simulated time; that they
// pass on the real clock too, and that races about them have one winner, on threads.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

constexpr railmq::time_point at(railmq::duration since_start) {
    return railmq::time_point{since_start};
}

} // namespace

// D01 to D03: what a delivery says

TEST_CASE("a message is visible again at its deadline, not before [D01]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 1ms});
    queue.producer().send(1);
    world.advance(100ms);
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto first = a.try_receive();
    REQUIRE(first);
    CHECK(first->ack_deadline() == at(101ms));
    CHECK_FALSE(b.try_receive());
    world.advance(1ms - 1ns);
    CHECK_FALSE(b.try_receive());
    CHECK(first->ack_deadline() == at(101ms));
    world.advance(1ns);
    CHECK_FALSE(first->ack_deadline()); // lost
    auto second = b.try_receive();
    REQUIRE(second);
    CHECK(second->redelivered());
    CHECK(second->ack_deadline() == at(102ms));
}

TEST_CASE("a deadline passes on the real clock while another consumer waits [D01]") {
    threaded_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 1ms});
    queue.producer().send(1);
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto first = a.try_receive();
    REQUIRE(first);
    auto second = b.receive(long_time);
    REQUIRE(second);
    CHECK(second->value() == 1);
    CHECK(second->redelivered());
    CHECK(second->failure_count() >= 1);
    CHECK_FALSE(first->ack());
}

TEMPLATE_TEST_CASE(
    "every delivery of a message is settled by itself [D02]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 20ms, .retry = at_once()});
    queue.producer().send(1);
    std::vector<consumer_in<int, TestType>> consumers;
    std::vector<delivery_in<int, TestType>> deliveries;
    for (std::size_t i = 0; i < 4; ++i) {
        consumers.push_back(queue.consumer());
        auto d = consumers.back().receive(long_time);
        REQUIRE(d);
        CHECK(d->delivery_count() > i);
        deliveries.push_back(std::move(*d));
    }
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(deliveries[i].id() == deliveries[3].id());
        CHECK_FALSE(deliveries[i].ack());
    }
    CHECK(queue.stats().acked == 0);
    CHECK(deliveries[3].ack()); // in time, or late with nobody in between
    CHECK(queue.stats().acked == 1);
}

TEST_CASE("the first delivery's time stays, the count grows [D03]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms, .retry = at_once()});
    SECTION("without properties") {
        queue.producer().send(1);
    }
    SECTION("with properties") {
        queue.producer().send(1, {.message_id = "m"});
    }
    world.advance(100ms);
    auto consumer = queue.consumer();
    for (std::uint32_t n = 1; n <= 4; ++n) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->first_delivered_at() == at(100ms));
        CHECK(d->enqueued_at() == at(0ms));
        CHECK(d->delivery_count() == n);
        CHECK(d->failure_count() == n - 1);
        if (n == 2) {
            CHECK(d->nack());
        } else {
            world.advance(10ms);
        }
    }
}

TEST_CASE("an extended lease does not change when it was first delivered [D03]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms, .retry = at_once()});
    SECTION("without properties") {
        queue.producer().send(1);
    }
    SECTION("with properties") {
        queue.producer().send(1, {.message_id = "m"});
    }
    world.advance(100ms);
    auto consumer = queue.consumer();
    auto d = consumer.try_receive();
    REQUIRE(d);
    CHECK(d->extend(50ms));
    CHECK(d->first_delivered_at() == at(100ms));
    world.advance(20ms);
    CHECK(d->extend(50ms));
    CHECK(d->first_delivered_at() == at(100ms));
    CHECK(d->nack());
    d = consumer.try_receive();
    REQUIRE(d);
    CHECK(d->first_delivered_at() == at(100ms));
}

// D04 to D07: moving deadlines, and missing them

TEST_CASE("extend counts from now, not from the old deadline [D04]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 30ms});
    queue.producer().send(1);
    world.advance(80ms);
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto d = a.try_receive();
    REQUIRE(d);
    world.advance(20ms);
    CHECK(d->ack_deadline() == at(110ms));
    CHECK(d->extend(50ms));
    CHECK(d->ack_deadline() == at(150ms));
    CHECK_FALSE(d->extend(-1ms));
    CHECK(d->ack_deadline() == at(150ms));
    world.advance(50ms - 1ns);
    CHECK_FALSE(b.try_receive());
    world.advance(1ns);
    CHECK(b.try_receive());
    CHECK_FALSE(d->extend(50ms)); // too late
}

TEST_CASE("a shortened lease ends before older ones [D05]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 100ms});
    send_range(queue, 1, 2);
    world.advance(100ms);
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto held = a.receive_batch(2, 0s);
    REQUIRE(held.size() == 2);
    CHECK(held[1].extend(10ms));
    world.advance(10ms - 1ns);
    CHECK_FALSE(b.try_receive());
    world.advance(1ns);
    auto two = b.try_receive();
    REQUIRE(two);
    CHECK(two->value() == 2);
    CHECK(two->ack());
    world.advance(90ms - 1ns);
    CHECK_FALSE(b.try_receive());
    world.advance(1ns);
    auto one = b.try_receive();
    REQUIRE(one);
    CHECK(one->value() == 1);
}

TEST_CASE("a message in progress is not redelivered, others are served meanwhile [D06]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 100ms});
    send_range(queue, 1, 2);
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto one = a.try_receive();
    REQUIRE(one);
    std::vector<int> by_b;
    for (int step = 0; step < 15; ++step) {
        world.advance(20ms);
        CHECK(one->extend(100ms));
        const auto more = take_all(b);
        by_b.insert(by_b.end(), more.begin(), more.end());
    }
    CHECK(by_b == std::vector<int>{2});
    CHECK(one->ack());
    CHECK(queue.stats().redelivered == 0);
    CHECK(queue.stats().deadlines_passed == 0);
}

TEST_CASE("a late ack is good until somebody else has the message [D07]") {
    simulated_world world;
    const auto queue = open<std::string>(world, "q", {.ack_timeout = 10ms, .retry = at_once()});
    queue.producer().send("text");
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto held = a.try_receive();
    REQUIRE(held);
    world.advance(1h);
    CHECK(queue.stats().ready == 1);
    SECTION("ack") {
        CHECK(held->ack());
        CHECK_FALSE(held->ack());
        CHECK_FALSE(b.try_receive());
        CHECK(queue.stats().acked == 1);
    }
    SECTION("reject") {
        CHECK(held->reject("no"));
        CHECK_FALSE(b.try_receive());
        CHECK(queue.stats().dead_lettered == 1);
    }
    SECTION("a late nack says nothing new") {
        CHECK_FALSE(held->nack());
        CHECK(b.try_receive());
    }
    SECTION("after another hand-out") {
        auto other = b.try_receive();
        REQUIRE(other);
        CHECK_FALSE(held->ack());
        CHECK(other->value() == "text");
        CHECK(other->ack());
        CHECK(queue.stats().acked == 1);
        CHECK(queue.stats().stale_settlements == 1);
    }
    SECTION("after another hand-out that failed") {
        auto other = b.try_receive();
        REQUIRE(other);
        CHECK(other->nack());
        CHECK_FALSE(held->ack());
        CHECK(queue.stats().ready == 1);
    }
    CHECK(queue.stats().ready + queue.stats().acked + queue.stats().dead_lettered == 1);
}

TEST_CASE("acks that race with deadlines: each message leaves once [D07]") {
    threaded_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 1ms, .retry = at_once()});
    constexpr int count = 2000;
    std::vector<std::vector<int>> acked(4);
    std::vector<std::thread> threads;
    for (auto& mine : acked) {
        threads.emplace_back([&mine, consumer = queue.consumer({.prefetch = 500})]() mutable {
            std::vector<railmq::delivery<int>> batch;
            // Long batches, so that many deadlines pass while they are being acknowledged.
            while (consumer.receive_batch(batch, 400, long_time) != 0) {
                for (auto& d : batch) {
                    const int n = d.value();
                    if (d.ack()) {
                        mine.push_back(n);
                    }
                }
            }
        });
    }
    send_range(queue, 1, count);
    queue.close();
    for (auto& t : threads) {
        t.join();
    }
    std::vector<int> all;
    for (const auto& mine : acked) {
        all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    CHECK(all == numbers(1, count));
    CHECK(queue.stats().acked == count);
}

// D08 to D10: limits and timers

TEST_CASE("with two attempts the second passed deadline is the last [D08]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms, .retry = {.max_attempts = 2}});
    queue.producer().send(1);
    auto consumer = queue.consumer();
    {
        auto first = consumer.try_receive();
        REQUIRE(first);
        world.advance(10ms);
        auto second = consumer.try_receive();
        REQUIRE(second);
        CHECK(second->delivery_count() == 2);
        world.advance(10ms);
        CHECK_FALSE(consumer.try_receive());
        CHECK_FALSE(second->ack()); // it has left
    }
    CHECK(queue.stats().dead_lettered == 1);
    CHECK(queue.stats().handed_out == 2);
    CHECK_FALSE(world.sim.advance_to_next()); // no timer is left
    auto dead = open<int>(world, "q.dead").consumer();
    auto letter = dead.try_receive();
    REQUIRE(letter);
    REQUIRE(letter->deaths().size() == 1);
    CHECK(letter->deaths()[0].reason == railmq::death_reason::max_attempts);
    CHECK(letter->deaths()[0].delivery_count == 2);
    CHECK(letter->deaths()[0].failure_count == 2);
}

TEMPLATE_TEST_CASE(
    "never acked, five attempts: five deliveries and no sixth [D09]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms, .retry = {.max_attempts = 5}});
    auto dead = open<int>(world, "q.dead").consumer();
    queue.producer().send(1);
    auto consumer = queue.consumer();
    std::vector<delivery_in<int, TestType>> held;
    for (std::uint32_t n = 1; n <= 5; ++n) {
        auto d = consumer.receive(long_time);
        REQUIRE(d);
        CHECK(d->delivery_count() == n);
        held.push_back(std::move(*d));
    }
    auto letter = dead.receive(long_time);
    REQUIRE(letter);
    CHECK(letter->value() == 1);
    CHECK_FALSE(consumer.try_receive());
    CHECK(queue.stats().handed_out == 5);
    CHECK(queue.stats().dead_lettered == 1);
}

TEST_CASE("settling removes the lease's timer [D10]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms, .retry = at_once()});
    queue.producer().send(1);
    auto consumer = queue.consumer();
    SECTION("ack") {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->ack());
    }
    SECTION("ack of an extended lease") {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->extend(1h));
        CHECK(d->ack());
    }
    SECTION("release") {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->release());
    }
    SECTION("ack of a second delivery") {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->nack());
        d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->ack());
    }
    SECTION("a consumer that closes") {
        auto d = consumer.try_receive();
        REQUIRE(d);
        consumer.close();
    }
    CHECK_FALSE(world.sim.advance_to_next());
    CHECK(world.now() == 0ms);
}

// D11 to D14: taking over from others

TEST_CASE("another worker takes over after the deadline, and the count grows [D11]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms});
    queue.producer().send(1);
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto held = a.try_receive();
    REQUIRE(held);
    CHECK(a.in_flight() == 1);
    CHECK_FALSE(b.try_receive());
    world.advance(10ms);
    for (int i = 0; i < 2; ++i) { // looking raises nothing
        const auto seen = queue.peek(1);
        REQUIRE(seen.size() == 1);
        CHECK(seen[0].delivery_count == 1);
    }
    auto claimed = b.try_receive();
    REQUIRE(claimed);
    CHECK(claimed->delivery_count() == 2);
    CHECK(a.in_flight() == 0);
    CHECK(b.in_flight() == 1);
    CHECK(queue.peek(1).empty());
}

TEST_CASE("a worker may take over from itself [D12]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms});
    queue.producer().send(1);
    auto consumer = queue.consumer();
    auto old_one = consumer.try_receive();
    REQUIRE(old_one);
    world.advance(10ms);
    auto new_one = consumer.try_receive();
    REQUIRE(new_one);
    CHECK(consumer.in_flight() == 1);
    CHECK(queue.stats().in_flight == 1);
    CHECK_FALSE(old_one->ack());
    CHECK(consumer.in_flight() == 1);
    CHECK(new_one->ack());
    CHECK(consumer.in_flight() == 0);
}

TEST_CASE("what was removed after its deadline cannot be taken over [D13]") {
    simulated_world world;
    const auto queue = open<std::string>(world, "q", {.ack_timeout = 10ms});
    queue.producer().send("gone");
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto held = a.try_receive();
    REQUIRE(held);
    CHECK(queue.purge() == 0); // held
    world.advance(10ms);
    CHECK(queue.purge() == 1);
    CHECK_FALSE(b.try_receive());
    CHECK_FALSE(held->ack());
    CHECK(held->value() == "gone"); // still readable here
    held.reset();
    CHECK(queue.stats().ready + queue.stats().in_flight + queue.stats().delayed == 0);
    CHECK(queue.stats().purged == 1);
    CHECK(queue.stats().acked == 0);
}

TEST_CASE("taking over in steps of two shows each entry once [D14]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 10ms});
    send_range(queue, 1, 5);
    auto dead_worker = queue.consumer();
    auto lost = dead_worker.receive_batch(5, 0s);
    REQUIRE(lost.size() == 5);
    world.advance(10ms);
    auto worker = queue.consumer();
    std::vector<delivery_in<int, simulated_world>> held;
    std::vector<int> all;
    for (const std::size_t expected : {2U, 2U, 1U, 0U}) {
        auto step = worker.receive_batch(2, 0s);
        CHECK(step.size() == expected);
        for (auto& d : step) {
            all.push_back(d.value());
            held.push_back(std::move(d));
        }
    }
    CHECK(all == numbers(1, 5));
}

// D15 to D18: stalled workers

TEST_CASE("stalled messages fail, or are forgiven as often as was said [D15]") {
    simulated_world world;
    const std::uint32_t max_stalls = GENERATE(1U, 2U);
    const auto queue = open<int>(
        world, "q", {.ack_timeout = 1s, .retry = {.max_attempts = 10, .max_stalls = max_stalls}});
    const auto dead = open<int>(world, "q.dead");
    send_range(queue, 1, 4);
    auto worker = queue.consumer();
    const auto stall_all = [&] {
        for (std::uint32_t n = 1; n <= max_stalls; ++n) {
            auto batch = worker.receive_batch(10, 0s);
            CHECK(batch.size() == 4);
            for (const auto& d : batch) {
                CHECK(d.delivery_count() == n);
            }
            world.advance(1s);
        }
        CHECK_FALSE(worker.try_receive());
    };
    stall_all();
    CHECK(queue.stats().dead_lettered == 4);
    CHECK(queue.stats().deadlines_passed == 4 * max_stalls);

    const auto check_letters = [&](std::uint64_t count) {
        const auto letters = dead.peek(10);
        REQUIRE(letters.size() == 4);
        for (const auto& letter : letters) {
            REQUIRE(letter.deaths.size() == 1);
            CHECK(letter.deaths[0].reason == railmq::death_reason::max_stalls);
            CHECK(letter.deaths[0].failure_count == max_stalls);
            CHECK(letter.deaths[0].count == count);
        }
    };
    check_letters(1);
    // Tried again by hand: the failures start anew, the history goes on.
    CHECK(dead.redrive(queue) == 4);
    stall_all();
    check_letters(2);
}

TEST_CASE("a handler whose lease is renewed is never stalled [D16]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 100ms});
    int runs = 0;
    const std::function<boost::asio::awaitable<void>(const int&)> slow =
        [&](const int&) -> boost::asio::awaitable<void> {
        ++runs;
        co_await world.sim.async_wait(1s, boost::asio::use_awaitable);
    };
    railmq::subscribe_options options;
    options.consumer.auto_extend = 1h;
    SECTION("renewed") {
        auto subscription = queue.subscribe(world.executor(), slow, options);
        auto other = queue.consumer();
        queue.producer().send(1);
        for (int step = 0; step < 20; ++step) {
            world.advance(50ms);
            CHECK_FALSE(other.try_receive());
        }
        CHECK(runs == 1);
        CHECK(queue.stats().acked == 1);
        CHECK(queue.stats().deadlines_passed == 0);
    }
    SECTION("not renewed, to compare") {
        options.consumer.auto_extend = 0s;
        auto subscription = queue.subscribe(world.executor(), slow, options);
        queue.producer().send(1);
        world.advance(101ms);
        CHECK(queue.stats().deadlines_passed == 1);
    }
    SECTION("renewed for no longer than was said") {
        options.consumer.auto_extend = 250ms;
        auto subscription = queue.subscribe(world.executor(), slow, options);
        queue.producer().send(1);
        world.advance(250ms - 1ns);
        CHECK(queue.stats().deadlines_passed == 0);
        world.advance(1ns);
        CHECK(queue.stats().deadlines_passed == 1);
    }
    SECTION("after an extension by hand as well") {
        auto consumer = queue.consumer({.auto_extend = 1h});
        queue.producer().send(1);
        world.advance(10h); // so that the hand-out is far from the beginning of time
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->extend(50ms));
        world.advance(1h - 1ns);
        CHECK(queue.stats().deadlines_passed == 0);
        world.advance(1ns);
        CHECK(queue.stats().deadlines_passed == 1);
    }
    SECTION("after its stop token was asked for as well") {
        auto consumer = queue.consumer({.auto_extend = 1h});
        queue.producer().send(1);
        world.advance(10h);
        auto d = consumer.try_receive();
        REQUIRE(d);
        const auto token = d->stop_token();
        CHECK(d->first_delivered_at() == at(10h));
        world.advance(1h - 1ns);
        CHECK_FALSE(token.stop_requested());
        world.advance(1ns);
        CHECK(token.stop_requested());
    }
}

TEST_CASE("a renewed lease outlasts many timeouts on the real clock [D16]") {
    threaded_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 1ms});
    queue.producer().send(1);
    auto worker = queue.consumer({.auto_extend = 1h});
    auto other = queue.consumer();
    auto held = worker.try_receive();
    REQUIRE(held);
    CHECK_FALSE(other.receive(50ms));
    CHECK(held->ack());
    CHECK(queue.stats().deadlines_passed == 0);
}

TEST_CASE("a lease is renewed while its consumer closes gracefully [D17]") {
    simulated_world world;
    const auto queue = open<int>(world, "q", {.ack_timeout = 100ms});
    const std::function<boost::asio::awaitable<void>(const int&)> slow =
        [&](const int&) -> boost::asio::awaitable<void> {
        co_await world.sim.async_wait(1s, boost::asio::use_awaitable);
    };
    railmq::subscribe_options options;
    options.consumer.auto_extend = 1h;
    auto subscription = queue.subscribe(world.executor(), slow, options);
    queue.producer().send(1);
    world.run();
    CHECK(subscription.running() == 1);
    CHECK(subscription.close(railmq::drain_for(1min)));
    CHECK(world.now() == 1s);
    CHECK(queue.stats().acked == 1);
    CHECK(queue.stats().deadlines_passed == 0);
}

TEST_CASE("a lost lease is noticed, asks to stop and refuses the late end [D18]") {
    std::vector<railmq::notices::failed> failures;
    railmq::broker_options broker_options;
    broker_options.observer =
        railmq::on<railmq::notices::failed>([&](const auto& n) { failures.push_back(n); });
    simulated_world world{std::move(broker_options)};
    const auto queue = open<int>(world, "q", {.ack_timeout = 100ms});
    queue.producer().send(1);
    auto a = queue.consumer({.auto_extend = 1s});
    auto b = queue.consumer();
    auto held = a.try_receive();
    REQUIRE(held);
    const auto token = held->stop_token();
    world.advance(1s - 1ns);
    CHECK_FALSE(token.stop_requested());
    CHECK(failures.empty());
    world.advance(1ns);
    CHECK(token.stop_requested());
    REQUIRE(failures.size() == 1);
    CHECK(failures[0].kind == railmq::failure_kind::deadline_passed);
    auto other = b.try_receive();
    REQUIRE(other);
    CHECK_FALSE(held->ack());
    CHECK(other->ack());
}

TEMPLATE_TEST_CASE(
    "stats tell ready, held and delayed messages apart [D19]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    auto producer = queue.producer();
    send_range(queue, 1, 6);
    for (int n = 0; n < 3; ++n) {
        producer.send(100 + n, {.delay = 24h});
    }
    auto consumer = queue.consumer();
    auto held = consumer.receive_batch(4, 0s);
    REQUIRE(held.size() == 4);
    const auto stats = queue.stats();
    CHECK(stats.ready == 2);
    CHECK(stats.in_flight == 4);
    CHECK(stats.delayed == 3);
    CHECK(stats.accepted == 9);
    CHECK(consumer.in_flight() == 4);
}
