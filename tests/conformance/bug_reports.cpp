// SPDX-License-Identifier: BSL-1.0
//
// Faults that other message systems had in public, as far as they concern one queue in memory and
// can be told without threads and handlers; the other files of that name have the rest. Where the
// report is about a topic, its queue equivalent stands here: several consumers of one queue.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::test::imbalance;
using railmq::test::numbers;
using railmq::test::take_all;

namespace {

[[nodiscard]] time_point at(railmq::duration d) {
    return time_point{d};
}

} // namespace

TEST_CASE("[BR01] what one producer sends arrives in that order") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto producer = q.producer();

    SECTION("one consumer") {
        auto consumer = q.consumer();
        for (int i = 1; i <= 1000; ++i) {
            producer.send(i);
        }
        CHECK(take_all(consumer) == numbers(1, 1000));
    }
    SECTION("one consumer that acknowledges late, the last one first") {
        auto consumer = q.consumer({.prefetch = 1000});
        std::vector<railmq::sim_delivery<int>> held;
        std::vector<int> seen;
        for (int i = 1; i <= 1000; ++i) {
            producer.send(i);
        }
        while (auto d = consumer.try_receive()) {
            seen.push_back(d->value());
            held.push_back(std::move(*d));
        }
        while (!held.empty()) {
            REQUIRE(held.back().ack());
            held.pop_back();
        }
        CHECK(seen == numbers(1, 1000));
    }
    SECTION("four consumers share one queue, each of them sees its part in order") {
        std::vector<railmq::sim_consumer<int>> consumers;
        std::array<std::vector<int>, 4> seen;
        for (int i = 0; i < 4; ++i) {
            consumers.push_back(q.consumer({.prefetch = 3}));
        }
        std::vector<int> all;
        for (int i = 1; i <= 1000; ++i) {
            producer.send(i);
            const auto who = static_cast<std::size_t>(sim.random()() % 4);
            if (auto d = consumers[who].try_receive()) {
                seen[who].push_back(d->value());
                all.push_back(d->value());
                d->ack();
            }
        }
        CHECK(all == numbers(1, 1000));
        for (const auto& part : seen) {
            CHECK(part.size() > 100);
            CHECK(std::is_sorted(part.begin(), part.end()));
        }
    }
    SECTION("two producers: each one's own order is kept") {
        auto other = q.producer();
        auto consumer = q.consumer();
        for (int i = 1; i <= 500; ++i) {
            producer.send(i);
            other.send(-i);
        }
        std::vector<int> first;
        std::vector<int> second;
        for (const int n : take_all(consumer)) {
            (n > 0 ? first : second).push_back(n > 0 ? n : -n);
        }
        CHECK(first == numbers(1, 500));
        CHECK(second == numbers(1, 500));
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR02] a consumer that never acknowledges holds nobody else up") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>("q");
    auto a = q.consumer({.prefetch = 1});
    auto b = q.consumer({.prefetch = 1});
    q.producer().send("m1");
    q.producer().send("m2");
    q.producer().send("m3");
    const auto held = a.try_receive();
    REQUIRE(held);
    CHECK(held->value() == "m1");
    CHECK(take_all(b) == std::vector<std::string>{"m2", "m3"});
    CHECK(sim.now() == time_point{});
    CHECK(a.in_flight() == 1);
    CHECK_FALSE(a.try_receive());
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR03] closing throws nothing away in silence") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.max_length = 10});
    auto producer = q.producer();
    auto consumer = q.consumer();
    for (int i = 1; i <= 10; ++i) {
        REQUIRE(producer.try_send(i));
    }
    CHECK_FALSE(producer.try_send(11));
    for (int i = 1; i <= 3; ++i) {
        REQUIRE(consumer.try_receive()->ack());
    }
    error_code ec;

    SECTION("the queue closes: what is there can be received, then it is over") {
        CHECK(q.close() == 7);
        producer.send(12, ec);
        CHECK(ec == errc::closed);
        CHECK(take_all(consumer) == numbers(4, 10));
        CHECK_FALSE(consumer.receive(ec));
        CHECK(ec == errc::closed);
        CHECK(imbalance(q) == "");
    }
    SECTION("the broker closes at once and says how many were left") {
        CHECK(broker.close() == 7);
        producer.send(12, ec);
        CHECK(ec == errc::closed);
        CHECK_FALSE(producer.try_send(12));
        CHECK_FALSE(consumer.receive(1s, ec));
        CHECK(ec == errc::closed);
        CHECK_FALSE(consumer.try_receive(ec));
        CHECK(ec == errc::closed);
        CHECK(broker.close() == 0);
    }
    SECTION("held messages count as left") {
        const auto held = consumer.try_receive();
        REQUIRE(held);
        CHECK(broker.close() == 7);
        CHECK(held->value() == 4);
    }
    SECTION("nobody drains within the time: then they are left too") {
        CHECK(broker.close(railmq::drain_for(5s)) == 7);
        CHECK(sim.now() == at(5s));
    }
}

TEST_CASE("[BR04] a message that always fails waits, and fails a limited number of times") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>(
        "q", {.retry = {.max_attempts = 5, .backoff = railmq::constant_backoff{.delay = 100ms}}});
    auto consumer = q.consumer();
    q.producer().send("m1");
    q.producer().send("m2");
    std::vector<time_point> failures;
    std::vector<time_point> successes;
    for (int ms = 0; ms <= 2000; ++ms) {
        int hand_outs = 0;
        while (auto d = consumer.try_receive()) {
            REQUIRE(++hand_outs <= 2);
            if (d->value() == "m1") {
                CHECK(d->delivery_count() == failures.size() + 1);
                failures.push_back(sim.now());
                d->nack();
            } else {
                successes.push_back(sim.now());
                d->ack();
            }
        }
        REQUIRE(imbalance(q) == "");
        sim.advance(1ms);
    }
    CHECK(failures == std::vector{at(0ms), at(100ms), at(200ms), at(300ms), at(400ms)});
    CHECK(successes == std::vector{at(0ms)});
    CHECK(q.stats().dead_lettered == 1);
    const auto dead = broker.queue<std::string>("q.dead").peek();
    REQUIRE(dead.size() == 1);
    REQUIRE(dead[0].deaths.size() == 1);
    CHECK(dead[0].deaths[0].reason == railmq::death_reason::max_attempts);
    CHECK(dead[0].deaths[0].delivery_count == 5);
    CHECK(dead[0].deaths[0].last_at == at(400ms));
}

TEST_CASE("[BR04] where a failed message goes back to") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    const auto open = [&](railmq::requeue_position where) {
        auto q = broker.queue<std::string>(
            "q", {.retry = {.backoff = railmq::constant_backoff{.delay = 0s}}, .requeue = where});
        for (const char* text : {"a", "b", "c"}) {
            q.producer().send(text);
        }
        return q;
    };
    using texts = std::vector<std::string>;

    SECTION("to its original place, as it was sent") {
        auto q = open(railmq::requeue_position::original);
        auto consumer = q.consumer();
        SECTION("alone") {
            consumer.try_receive()->nack();
            CHECK(take_all(consumer) == texts{"a", "b", "c"});
        }
        SECTION("two, the later one first") {
            auto a = consumer.try_receive();
            auto b = consumer.try_receive();
            CHECK(b->nack());
            CHECK(a->nack());
            CHECK(take_all(consumer) == texts{"a", "b", "c"});
        }
        SECTION("two, the earlier one first") {
            auto a = consumer.try_receive();
            auto b = consumer.try_receive();
            CHECK(a->nack(0s));
            CHECK(b->nack(0s));
            CHECK(take_all(consumer) == texts{"a", "b", "c"});
        }
        CHECK(imbalance(q) == "");
    }
    SECTION("to the front, the latest first") {
        auto q = open(railmq::requeue_position::front);
        auto consumer = q.consumer();
        auto a = consumer.try_receive();
        auto b = consumer.try_receive();
        CHECK(a->nack());
        CHECK(b->nack());
        CHECK(take_all(consumer) == texts{"b", "a", "c"});
        CHECK(imbalance(q) == "");
    }
    SECTION("to the back, behind what is there at that moment") {
        auto q = open(railmq::requeue_position::back);
        auto consumer = q.consumer();
        auto a = consumer.try_receive();
        CHECK(a->nack());
        q.producer().send("d");
        CHECK(take_all(consumer) == texts{"b", "c", "a", "d"});
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[BR05] a lease begins when the application gets the message, not before") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s, .retry = {.max_attempts = 2}});
    auto consumer = q.consumer({.prefetch = 10});
    for (int i = 1; i <= 10; ++i) {
        q.producer().send(i);
    }
    std::vector<int> handled;
    while (auto d = consumer.try_receive()) {
        CHECK(d->delivery_count() == 1);
        CHECK(d->ack_deadline() == sim.now() + 30s);
        sim.advance(10s);
        handled.push_back(d->value());
        CHECK(d->ack());
        REQUIRE(imbalance(q) == "");
    }
    CHECK(handled == numbers(1, 10));
    CHECK(sim.now() == at(100s));
    CHECK(q.stats().failed == 0);
    CHECK(broker.queue<int>("q.dead").stats().accepted == 0);
}

TEST_CASE("[BR07] a lost lease settles nothing once somebody else has the message") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>("q", {.ack_timeout = 30s});
    auto a = q.consumer();
    auto b = q.consumer();
    q.producer().send("m");
    auto first = a.try_receive();
    REQUIRE(first);
    sim.advance(30s);
    auto second = b.try_receive();
    REQUIRE(second);
    CHECK(second->delivery_count() == 2);
    sim.advance(10s);
    SECTION("ack") {
        CHECK_FALSE(first->ack());
    }
    SECTION("nack") {
        CHECK_FALSE(first->nack());
    }
    SECTION("nack with a wait") {
        CHECK_FALSE(first->nack(1s));
    }
    SECTION("reject") {
        CHECK_FALSE(first->reject("late"));
    }
    SECTION("release") {
        CHECK_FALSE(first->release());
    }
    SECTION("extend") {
        CHECK_FALSE(first->extend(1h));
    }
    SECTION("all of them, one after the other") {
        CHECK_FALSE(first->extend(1h));
        CHECK_FALSE(first->ack());
        CHECK_FALSE(first->nack());
        CHECK_FALSE(first->ack());
    }
    SECTION("take") {
        CHECK_THROWS_AS(first->take(), railmq::system_error);
    }
    CHECK(first->value() == "m");
    CHECK_FALSE(first->ack_deadline());
    CHECK(second->ack_deadline() == at(60s));
    CHECK(q.stats().in_flight == 1);
    CHECK(q.stats().stale_settlements >= 1);
    CHECK(imbalance(q) == "");
    sim.advance(5s);
    CHECK(second->ack());
    first.reset();
    CHECK(q.stats().acked == 1);
    CHECK(q.stats().ready + q.stats().in_flight + q.stats().delayed == 0);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR07] a late settlement counts as long as nobody else got the message") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>("q", {.ack_timeout = 30s});
    auto a = q.consumer();
    auto b = q.consumer();
    q.producer().send("m");
    auto late = a.try_receive();
    sim.advance(40s);
    CHECK(q.stats().ready == 1);
    SECTION("ack") {
        CHECK(late->ack());
        CHECK(q.stats().acked == 1);
        CHECK(q.stats().handed_out == 1);
        CHECK_FALSE(late->ack());
        CHECK_FALSE(b.try_receive());
    }
    SECTION("reject") {
        CHECK(late->reject("late"));
        CHECK(q.stats().dead_lettered == 1);
        CHECK_FALSE(b.try_receive());
    }
    SECTION("nack: it has failed already") {
        CHECK_FALSE(late->nack());
        CHECK(q.stats().failed == 1);
        CHECK(take_all(b) == std::vector<std::string>{"m"});
    }
    SECTION("never, once it is dead") {
        auto strict = broker.queue<int>("s", {.ack_timeout = 30s, .retry = {.max_attempts = 1}});
        auto c = strict.consumer();
        strict.producer().send(1);
        auto d = c.try_receive();
        sim.advance(30s);
        CHECK(strict.stats().dead_lettered == 1);
        CHECK_FALSE(d->ack());
        CHECK(imbalance(strict) == "");
        CHECK(broker.queue<int>("s.dead").stats().ready == 1);
        late->ack();
    }
    CHECK(imbalance(q) == "");
    CHECK(q.stats().ready + q.stats().in_flight == 0);
}

TEST_CASE("[BR08] expired, purged and dropped messages give the consumer its room back") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    const auto hold_ten = [](auto& consumer) {
        std::vector<railmq::sim_delivery<int>> held;
        while (auto d = consumer.try_receive()) {
            held.push_back(std::move(*d));
        }
        REQUIRE(held.size() == 10);
        return held;
    };
    const auto fill = [](const auto& q) {
        for (int i = 1; i <= 10; ++i) {
            q.producer().send(i);
        }
    };

    SECTION("time to live: it ends with the lease, since held messages do not expire") {
        auto q = broker.queue<int>("q", {.ack_timeout = 300s, .time_to_live = 60s});
        auto consumer = q.consumer({.prefetch = 10});
        fill(q);
        auto held = hold_ten(consumer);
        sim.advance(299s);
        q.producer().send(11);
        CHECK(consumer.in_flight() == 10);
        CHECK_FALSE(consumer.try_receive());
        CHECK(imbalance(q) == "");
        sim.advance(1s);
        CHECK(consumer.in_flight() == 0);
        CHECK(q.stats().in_flight == 0);
        CHECK(q.stats().dead_lettered == 10);
        CHECK(imbalance(q) == "");
        for (auto& d : held) {
            CHECK_FALSE(d.ack());
        }
        CHECK(take_all(consumer) == numbers(11, 11));
        for (const auto& p : broker.queue<int>("q.dead").peek(100)) {
            CHECK(p.deaths[0].reason == railmq::death_reason::expired);
        }
        held.clear();
        CHECK(consumer.in_flight() == 0);
        CHECK(imbalance(q) == "");
    }
    SECTION("purge leaves what is held, and what is held can be settled") {
        auto q = broker.queue<int>("q", {.ack_timeout = 300s});
        auto consumer = q.consumer({.prefetch = 10});
        fill(q);
        auto held = hold_ten(consumer);
        q.producer().send(11);
        q.producer().send(12, {.delay = 5s});
        CHECK(q.purge() == 2);
        CHECK(consumer.in_flight() == 10);
        CHECK(imbalance(q) == "");
        q.producer().send(13);
        CHECK_FALSE(consumer.try_receive());
        for (auto& d : held) {
            CHECK(d.ack());
        }
        CHECK(consumer.in_flight() == 0);
        CHECK(take_all(consumer) == numbers(13, 13));
        CHECK(imbalance(q) == "");
    }
    SECTION("length limit: only waiting messages are dropped") {
        auto q = broker.queue<int>(
            "q", {.max_length = 10, .overflow = railmq::overflow_policy::drop_oldest});
        auto consumer = q.consumer({.prefetch = 10});
        fill(q);
        auto held = hold_ten(consumer);
        for (int i = 11; i <= 21; ++i) {
            q.producer().send(i);
        }
        CHECK(consumer.in_flight() == 10);
        CHECK(q.stats().dead_lettered == 1);
        CHECK(imbalance(q) == "");
        for (auto& d : held) {
            CHECK(d.ack());
        }
        CHECK(consumer.in_flight() == 0);
        CHECK(take_all(consumer) == numbers(12, 21));
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[BR09] a lease can be renewed however short it is") {
    const auto lease = GENERATE(
        railmq::duration{1ms}, railmq::duration{3s}, railmq::duration{5s}, railmq::duration{30s});
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = lease});
    auto worker = q.consumer({.auto_extend = 11 * lease});
    auto other = q.consumer();
    q.producer().send(1);
    auto d = worker.try_receive();
    REQUIRE(d);
    CHECK(d->ack_deadline() == time_point{} + lease);
    SECTION("it works for ten leases") {
        for (int i = 0; i < 10; ++i) {
            sim.advance(lease);
            CHECK_FALSE(other.try_receive());
        }
        CHECK(d->ack());
        CHECK(q.stats().handed_out == 1);
        CHECK(q.stats().failed == 0);
    }
    SECTION("it hangs for longer than renewal was asked for") {
        sim.advance(11 * lease - 1ns);
        CHECK_FALSE(other.try_receive());
        sim.advance(1ns);
        CHECK(take_all(other) == numbers(1, 1));
        CHECK_FALSE(d->ack());
    }
    SECTION("by hand, in the last moment") {
        auto by_hand = q.consumer();
        q.producer().send(2);
        auto e = by_hand.try_receive();
        for (int i = 0; i < 10; ++i) {
            sim.advance(lease - 1ns);
            REQUIRE(e->extend(lease));
            CHECK_FALSE(other.try_receive());
        }
        CHECK(e->ack());
        d->ack();
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR09] a message is hidden until exactly the end of its lease") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s});
    auto a = q.consumer();
    auto b = q.consumer();
    q.producer().send(1);
    const auto d = a.try_receive();
    sim.advance(29'999ms);
    CHECK_FALSE(b.try_receive());
    sim.advance(1ms - 1ns);
    CHECK_FALSE(b.try_receive());
    sim.advance(1ns);
    CHECK(b.try_receive());

    auto own = broker.queue<int>("own", {.ack_timeout = 5s});
    auto c = own.consumer();
    own.producer().send(1);
    CHECK(c.try_receive()->ack_deadline() == at(35s));
}
