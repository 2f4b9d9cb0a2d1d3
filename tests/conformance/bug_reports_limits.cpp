// SPDX-License-Identifier: BSL-1.0
//
// More of bug_reports.cpp: moves between queues, limits of length and memory.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::test::imbalance;
using railmq::test::numbers;
using railmq::test::take_all;

namespace {

/// A message whose move fails when it is told to.
struct fragile {
    static inline bool is_broken = false;

    explicit fragile(int n)
        : number{n} {}
    fragile(const fragile& other)
        : number{other.number} {
        check();
    }
    fragile(fragile&& other) noexcept(false)
        : number{other.number} {
        check();
    }
    fragile& operator=(const fragile&) = default;
    fragile& operator=(fragile&&) = default;
    ~fragile() = default;

    int number;

private:
    static void check() {
        if (is_broken) {
            throw std::runtime_error{"broken"};
        }
    }
};

struct broken_moves {
    broken_moves() { fragile::is_broken = true; }
    broken_moves(const broken_moves&) = delete;
    broken_moves& operator=(const broken_moves&) = delete;
    ~broken_moves() { fragile::is_broken = false; }
};

} // namespace

TEST_CASE("[BR12] a move to a full dead-letter queue neither loses nor doubles the message") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto parking = broker.queue<std::string>(
        "parking",
        {.max_length = 1,
         .overflow = railmq::overflow_policy::reject,
         .dead_letter = railmq::discard});
    auto q = broker.queue<std::string>(
        "q",
        {.retry = {.max_attempts = 1, .backoff = railmq::constant_backoff{.delay = 5s}},
         .dead_letter = "parking"});
    auto consumer = q.consumer();
    parking.producer().send("first");
    q.producer().send("m");
    REQUIRE(consumer.try_receive()->nack());
    const auto copies = [&] {
        std::uint64_t in_parking = 0;
        for (const auto& p : parking.peek(10)) {
            in_parking += p.value == "m" ? 1 : 0;
        }
        return q.stats().ready + q.stats().delayed + in_parking;
    };
    for (int i = 0; i < 60; ++i) {
        REQUIRE(copies() == 1);
        REQUIRE(imbalance(q) == "");
        REQUIRE(imbalance(parking) == "");
        CHECK_FALSE(consumer.try_receive());
        sim.advance(500ms);
    }
    CHECK(q.stats().dead_lettered == 0);
    CHECK(q.stats().delayed == 1);
    auto reader = parking.consumer();
    REQUIRE(reader.try_receive()->ack());
    for (int i = 0; i < 12; ++i) {
        REQUIRE(copies() == 1);
        sim.advance(500ms);
    }
    CHECK(q.stats().dead_lettered == 1);
    CHECK(q.stats().delayed == 0);
    const auto d = reader.try_receive();
    REQUIRE(d);
    CHECK(d->value() == "m");
    REQUIRE(d->deaths().size() == 1);
    CHECK(d->deaths()[0].reason == railmq::death_reason::max_attempts);
    CHECK(d->deaths()[0].delivery_count == 1);
    CHECK(imbalance(q) == "");
    CHECK(imbalance(parking) == "");
}

// The part of the report that is about files comes with the journal.
TEST_CASE("[BR12] a move that fails half way leaves the message where it was") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<fragile>(
        "q", {.retry = {.max_attempts = 1, .backoff = railmq::constant_backoff{.delay = 5s}}});
    auto dead = broker.queue<fragile>("q.dead");
    auto consumer = q.consumer();
    q.producer().send(fragile{7});
    auto d = consumer.try_receive();
    REQUIRE(d);
    {
        const broken_moves now;
        CHECK(d->nack());
        for (int i = 0; i < 10; ++i) {
            CHECK(q.stats().delayed == 1);
            CHECK(dead.stats().ready == 0);
            CHECK_FALSE(consumer.try_receive());
            CHECK(imbalance(q) == "");
            CHECK(imbalance(dead) == "");
            sim.advance(2s);
        }
    }
    sim.advance(5s);
    CHECK(q.stats().delayed == 0);
    CHECK(q.stats().dead_lettered == 1);
    auto reader = dead.consumer();
    const auto e = reader.try_receive();
    REQUIRE(e);
    CHECK(e->value().number == 7);
    CHECK_FALSE(reader.try_receive());
    CHECK(imbalance(q) == "");
    CHECK(imbalance(dead) == "");
}

TEST_CASE("[BR15] moving into a full queue stops and loses nothing") {
    const auto overflow = GENERATE(railmq::overflow_policy::reject, railmq::overflow_policy::wait);
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q1 = broker.queue<int>("q1");
    auto q2 = broker.queue<int>("q2", {.max_length = 100, .overflow = overflow});
    for (int i = 1; i <= 1000; ++i) {
        q1.producer().send(i);
    }
    error_code ec;
    const auto all = [](const int&) { return true; };
    CHECK(q1.redrive(q2, {}, all, ec) == 100);
    CHECK(ec == errc::queue_full);
    CHECK(q2.stats().ready == 100);
    CHECK(q1.stats().ready == 900);
    CHECK(q1.stats().redriven == 100);
    CHECK(imbalance(q1) == "");
    CHECK(imbalance(q2) == "");
    auto c1 = q1.consumer();
    auto c2 = q2.consumer();
    CHECK(take_all(c2) == numbers(1, 100));
    CHECK(q1.redrive(q2, {}, all, ec) == 100);
    CHECK(take_all(c1) == numbers(201, 1000));
    CHECK(take_all(c2) == numbers(101, 200));
    CHECK(imbalance(q1) == "");
    CHECK(imbalance(q2) == "");
}

TEST_CASE("[BR15] what was moved to somebody who waits has a lease like any other") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto from = broker.queue<int>("from");
    auto to = broker.queue<int>("to", {.ack_timeout = 30s});
    from.producer().send(1);
    auto consumer = to.consumer();
    auto other = to.consumer();
    std::optional<railmq::sim_delivery<int>> held;
    consumer.async_receive([&](error_code ec, railmq::sim_delivery<int> d) {
        REQUIRE_FALSE(ec);
        held = std::move(d);
    });
    sim.run_ready();
    CHECK(from.redrive(to) == 1);
    sim.run_ready();
    REQUIRE(held);
    sim.advance(30s);
    const auto again = other.try_receive();
    REQUIRE(again);
    CHECK(again->delivery_count() == 2);
}

TEST_CASE("[BR15] a batch never overshoots the limit, and says how much it stored") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.max_length = 5, .overflow = railmq::overflow_policy::reject});
    auto producer = q.producer();
    error_code ec;
    CHECK(producer.send_batch(numbers(1, 3), ec) == 3);
    CHECK_FALSE(ec);
    CHECK(producer.send_batch(numbers(4, 9), ec) == 2);
    CHECK(ec == errc::queue_full);
    CHECK(q.stats().ready == 5);
    CHECK(producer.send_batch(numbers(10, 15), ec) == 0);
    CHECK(ec == errc::queue_full);
    CHECK(q.stats().ready == 5);
    CHECK_THROWS_AS(producer.send_batch(numbers(10, 15)), railmq::system_error);
    CHECK(q.stats().accepted == 5);
    CHECK(q.stats().refused == 3);
    auto consumer = q.consumer();
    CHECK(take_all(consumer) == numbers(1, 5));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR15] held messages do not count, and returning them drops nothing") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>(
        "q",
        {.max_length = 5,
         .overflow = railmq::overflow_policy::reject,
         .retry = {.backoff = railmq::constant_backoff{.delay = 0s}}});
    auto consumer = q.consumer();
    auto producer = q.producer();
    producer.send_batch(numbers(1, 5));
    auto held = consumer.receive_batch(5, 0s);
    REQUIRE(held.size() == 5);
    CHECK(producer.send_batch(numbers(6, 10)) == 5);
    CHECK_FALSE(producer.try_send(11));
    SECTION("as failures") {
        for (auto& d : held) {
            CHECK(d.nack());
        }
    }
    SECTION("unseen") {
        for (auto& d : held) {
            CHECK(d.release());
        }
    }
    SECTION("by a consumer that closes") {
        consumer.close();
        consumer = q.consumer();
    }
    SECTION("by their deadline") {
        sim.advance(30s);
    }
    CHECK(q.stats().ready == 10);
    CHECK_FALSE(producer.try_send(11));
    CHECK(imbalance(q) == "");
    CHECK(take_all(consumer) == numbers(1, 10));
    CHECK(producer.try_send(11));
    held.clear();
    CHECK(q.stats().dead_lettered + q.stats().dropped == 0);
    CHECK(imbalance(q) == "");
}

// The part of the report that is about files and their loss comes with the journal.
TEST_CASE("[BR21] a send that fails has changed nothing, and the next ones work") {
    using block = std::array<char, 1000>;
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim, {.memory_limit = 100'000}};
    auto q = broker.queue<block>("q");
    auto producer = q.producer();
    auto consumer = q.consumer();
    const auto numbered = [](int n) {
        block b{};
        b[0] = static_cast<char>(n);
        return b;
    };
    error_code ec;
    int sent = 0;
    while (producer.send(numbered(sent), ec), !ec) {
        ++sent;
        REQUIRE(sent < 100);
    }
    CHECK(ec == errc::memory_limit);
    CHECK(sent > 50);
    CHECK(broker.stats().memory_bytes <= 100'000);
    const auto before = q.stats();
    for (int i = 0; i < 10; ++i) {
        producer.send(numbered(99), ec);
        CHECK(ec == errc::memory_limit);
        producer.try_send(numbered(99), ec);
        CHECK(ec == errc::memory_limit);
        CHECK_THROWS_AS(producer.send(numbered(99)), railmq::system_error);
    }
    CHECK(q.stats().accepted == before.accepted);
    CHECK(q.stats().ready == before.ready);
    CHECK(q.stats().refused >= before.refused + 30);
    CHECK(imbalance(q) == "");
    for (int i = 0; i < sent; ++i) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->value()[0] == static_cast<char>(i));
        d->ack();
    }
    CHECK_FALSE(consumer.try_receive());
    CHECK(producer.try_send(numbered(1)));
    CHECK(consumer.try_receive()->value()[0] == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR21] a message whose move throws is not stored, and nothing else is hurt") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    const bool slow = GENERATE(false, true); // a length of bytes makes every send go by the lock
    auto q = broker.queue<fragile>(
        "q", slow ? railmq::queue_options{.max_bytes = 1000} : railmq::queue_options{});
    auto producer = q.producer();
    auto consumer = q.consumer();
    producer.send(fragile{1});
    for (int i = 0; i < 3; ++i) {
        fragile bad{99};
        const broken_moves now;
        CHECK_THROWS_AS(producer.send(std::move(bad)), std::runtime_error);
        CHECK_THROWS_AS(producer.send(bad), std::runtime_error);
        CHECK_THROWS_AS(
            producer.send(std::move(bad), railmq::properties{.delay = 1s}), std::runtime_error);
        CHECK_THROWS_AS(
            producer.send(std::move(bad), railmq::properties{.time_to_live = 1s}),
            std::runtime_error);
    }
    CHECK(q.stats().accepted == 1);
    CHECK(q.stats().ready == 1);
    CHECK(q.stats().delayed == 0);
    CHECK(imbalance(q) == "");
    producer.send(fragile{2});
    sim.advance(2s);
    std::vector<int> seen;
    while (auto d = consumer.try_receive()) {
        seen.push_back(d->value().number);
        d->ack();
    }
    CHECK(seen == numbers(1, 2));
    CHECK(q.stats().accepted == 2);
    CHECK(q.stats().acked == 2);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR21] an error code that was used before says nothing about this send") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto producer = q.producer();
    error_code ec;
    producer.send(1, railmq::properties{.delay = -1s}, ec);
    REQUIRE(ec == errc::invalid_argument);
    producer.send(2, ec);
    CHECK_FALSE(ec);
    ec = errc::invalid_argument;
    producer.try_send(3, ec);
    CHECK_FALSE(ec);
    auto consumer = q.consumer();
    CHECK(take_all(consumer) == numbers(2, 3));
}
