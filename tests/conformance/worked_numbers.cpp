// SPDX-License-Identifier: BSL-1.0
//
// Worked numbers about settling, failing and waiting, each to the exact moment of virtual time.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::death_reason;
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

const railmq::backoff at_once{railmq::constant_backoff{.delay = 0s}};

/// What there is to know of the dead letters of a queue.
template <class T>
[[nodiscard]] std::vector<death_reason> reasons(railmq::sim_broker& broker, const char* name) {
    std::vector<death_reason> all;
    for (const auto& p : broker.queue<T>(name).peek(1000)) {
        all.push_back(p.deaths.at(0).reason);
    }
    return all;
}

/// Fails a message until it is dead; when it was handed out.
[[nodiscard]] std::vector<time_point>
fail_until_dead(railmq::simulation& sim, railmq::sim_consumer<std::string>& consumer) {
    std::vector<time_point> all;
    while (auto d = consumer.receive(1h)) {
        all.push_back(sim.now());
        d->nack();
    }
    return all;
}

} // namespace

TEST_CASE("[D20] acknowledged before the work, and the worker dies: lost") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto a = q.consumer({.ack_mode = railmq::ack_mode::on_delivery});
    auto b = q.consumer();
    q.producer().send(1);
    int effects = 0;
    {
        auto d = a.try_receive();
        REQUIRE(d);
        CHECK_FALSE(b.try_receive());
        a.close(); // before any effect
    }
    sim.advance(1h);
    while (auto d = b.try_receive()) {
        ++effects;
        d->ack();
    }
    CHECK(effects == 0);
    CHECK(q.stats().acked == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D21] worked, and died before the acknowledgement: delivered twice, and says so") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto a = q.consumer();
    auto b = q.consumer();
    q.producer().send(42);
    std::vector<int> effects;
    auto first = a.try_receive();
    CHECK_FALSE(first->redelivered());
    effects.push_back(first->value());
    a.close();
    auto second = b.try_receive();
    REQUIRE(second);
    CHECK(second->redelivered());
    effects.push_back(second->value());
    CHECK(second->ack());
    CHECK(effects == std::vector<int>{42, 42});
    CHECK(q.stats().redelivered == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D34] a failed message goes to the back: M2, M3, M1") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>(
        "q", {.retry = {.backoff = at_once}, .requeue = railmq::requeue_position::back});
    auto consumer = q.consumer();
    for (const char* m : {"M1", "M2", "M3"}) {
        q.producer().send(m);
    }
    std::vector<std::string> effects;
    while (auto d = consumer.try_receive()) {
        if (d->value() == "M1" && !d->redelivered()) {
            d->nack();
            continue;
        }
        effects.push_back(d->value());
        d->ack();
    }
    CHECK(effects == std::vector<std::string>{"M2", "M3", "M1"});
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D35] strict order: M1 is retried until it is done, M2 and M3 wait") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>(
        "q",
        {.retry = {.backoff = railmq::constant_backoff{.delay = 1s}},
         .order = railmq::delivery_order::strict});
    auto a = q.consumer();
    auto b = q.consumer();
    for (const char* m : {"M1", "M2", "M3"}) {
        q.producer().send(m);
    }
    std::vector<std::pair<std::string, time_point>> effects;
    while (auto d = a.receive(1h)) {
        CHECK_FALSE(b.try_receive()); // one at a time
        if (d->value() == "M1" && d->delivery_count() < 4) {
            d->nack();
            CHECK_FALSE(b.try_receive());
            continue;
        }
        effects.emplace_back(d->value(), sim.now());
        d->ack();
        REQUIRE(imbalance(q) == "");
    }
    REQUIRE(effects.size() == 3);
    CHECK(effects[0] == std::pair{std::string{"M1"}, at(3s)});
    CHECK(effects[1] == std::pair{std::string{"M2"}, at(3s)});
    CHECK(effects[2] == std::pair{std::string{"M3"}, at(3s)});
}

TEST_CASE("[D36] a connection ends with five unacknowledged: five are back, redelivered") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto a = q.consumer();
    auto b = q.consumer();
    q.producer().send_batch(numbers(1, 8));
    auto held = a.receive_batch(5, 0s);
    REQUIRE(held.size() == 5);
    a.close();
    CHECK(q.stats().ready == 8);
    CHECK(imbalance(q) == "");
    for (int i = 1; i <= 8; ++i) {
        auto d = b.try_receive();
        CHECK(d->value() == i);
        CHECK(d->redelivered() == (i <= 5));
        CHECK(d->failure_count() == 0);
        d->ack();
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D37] 30 s of lease, 45 s of work: two work on it for 15 s") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s});
    auto a = q.consumer();
    auto b = q.consumer();
    q.producer().send(1);
    auto first = a.try_receive();
    const time_point done = sim.now() + 45s;
    auto second = b.receive(1h);
    REQUIRE(second);
    CHECK(sim.now() == at(30s));
    CHECK(done - sim.now() == 15s);
    sim.advance(done - sim.now());
    CHECK_FALSE(first->ack());
    CHECK(second->ack());
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D38] the same with an extension in time: one works on it") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s});
    const bool by_itself = GENERATE(false, true);
    auto a = q.consumer({.auto_extend = by_itself ? 60s : 0s});
    auto b = q.consumer();
    q.producer().send(1);
    auto d = a.try_receive();
    sim.advance(29s);
    if (!by_itself) {
        CHECK(d->extend(30s));
        CHECK(d->ack_deadline() == at(59s));
    }
    CHECK_FALSE(b.receive(16s));
    CHECK(sim.now() == at(45s));
    CHECK(d->ack());
    CHECK_FALSE(b.receive(1h));
    CHECK(q.stats().handed_out == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D39] [D40] [D41] waits of 1, 2, 4, 8 s: 15 s before the fourth retry") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>(
        "q",
        {.retry = {
             .max_attempts = 7,
             .backoff = railmq::exponential_backoff{
                 .initial = 1s, .multiplier = 2, .max = 1h, .jitter = railmq::jitter::none}}});
    auto consumer = q.consumer();
    q.producer().send("m");
    const auto runs = fail_until_dead(sim, consumer);
    REQUIRE(runs.size() == 7);
    CHECK(runs[1] - runs[0] == 1s);
    CHECK(runs[2] - runs[1] == 2s);
    CHECK(runs[3] - runs[2] == 4s);
    CHECK(runs[4] - runs[3] == 8s);
    CHECK(runs[4] == at(15s));
    for (std::size_t n = 1; n <= 6; ++n) {
        CHECK(runs[n] == at(1s * ((1 << n) - 1))); // 1, 3, 7, 15, 31, 63
    }
    CHECK(reasons<std::string>(broker, "q.dead") == std::vector{death_reason::max_attempts});
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D42] 500 failures at one moment: without jitter they all come back at one moment") {
    const bool has_jitter = GENERATE(false, true);
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>(
        "q",
        {.retry = {
             .backoff = railmq::exponential_backoff{
                 .initial = 10s,
                 .jitter = has_jitter ? railmq::jitter::full : railmq::jitter::none}}});
    auto consumer = q.consumer({.prefetch = 500});
    q.producer().send_batch(numbers(1, 500));
    auto held = consumer.receive_batch(500, 0s);
    REQUIRE(held.size() == 500);
    for (auto& d : held) {
        CHECK(d.nack());
    }
    std::vector<std::size_t> by_second(11);
    std::set<time_point> moments;
    while (auto d = consumer.receive(1h)) {
        moments.insert(sim.now());
        ++by_second.at(static_cast<std::size_t>(sim.now().time_since_epoch() / 1s));
        d->ack();
    }
    if (has_jitter) {
        CHECK(moments.size() > 490);
        CHECK(*moments.rbegin() <= at(10s));
        for (std::size_t second = 0; second < 10; ++second) {
            CHECK(by_second[second] > 20);
            CHECK(by_second[second] < 100);
        }
    } else {
        CHECK(moments == std::set{at(10s)});
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D44] to requeue always is a loop, unless it is limited") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    const std::uint32_t limit = GENERATE(0U, 5U);
    auto q = broker.queue<int>("q", {.retry = {.max_attempts = limit, .backoff = at_once}});
    auto consumer = q.consumer();
    q.producer().send(1);
    std::uint32_t runs = 0;
    while (runs < 1000) {
        auto d = consumer.try_receive();
        if (!d) {
            break;
        }
        ++runs;
        CHECK(d->delivery_count() == runs);
        d->nack();
    }
    CHECK(runs == (limit == 0 ? 1000 : 5));
    CHECK(q.stats().ready == (limit == 0 ? 1 : 0));
    CHECK(q.stats().dead_lettered == (limit == 0 ? 0 : 1));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D43] a permanent error is dead at once, a transient one is retried") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    q.producer().send(1);
    q.producer().send(2);
    CHECK(consumer.try_receive()->reject("no such customer"));
    CHECK(consumer.try_receive()->nack(1s));
    CHECK(sim.now() == at(0s));
    const auto dead = broker.queue<int>("q.dead").peek(2);
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].value == 1);
    CHECK(dead[0].deaths[0].reason == death_reason::rejected);
    CHECK(dead[0].deaths[0].detail == "no such customer");
    sim.advance(1s);
    CHECK(take_all(consumer) == numbers(2, 2));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D45] what makes a dead letter, and what does not") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    SECTION("rejected") {
        auto q = broker.queue<int>("q");
        auto consumer = q.consumer();
        q.producer().send(1);
        CHECK(consumer.try_receive()->reject());
        CHECK(reasons<int>(broker, "q.dead") == std::vector{death_reason::rejected});
        CHECK(imbalance(q) == "");
    }
    SECTION("too many") {
        auto q = broker.queue<int>(
            "q", {.max_length = 2, .overflow = railmq::overflow_policy::drop_oldest});
        q.producer().send_batch(numbers(1, 3));
        CHECK(reasons<int>(broker, "q.dead") == std::vector{death_reason::dropped_oldest});
        CHECK(broker.queue<int>("q.dead").peek()[0].value == 1);
        CHECK(q.stats().ready == 2);
        CHECK(imbalance(q) == "");
    }
    SECTION("tried too often") {
        auto q = broker.queue<int>("q", {.retry = {.max_attempts = 2, .backoff = at_once}});
        auto consumer = q.consumer();
        q.producer().send(1);
        CHECK(consumer.try_receive()->nack());
        CHECK(q.stats().dead_lettered == 0);
        CHECK(consumer.try_receive()->nack());
        CHECK(reasons<int>(broker, "q.dead") == std::vector{death_reason::max_attempts});
        CHECK(imbalance(q) == "");
    }
    SECTION("expired") {
        auto q = broker.queue<int>("q", {.time_to_live = 1s});
        q.producer().send(1);
        sim.advance(1s);
        CHECK(reasons<int>(broker, "q.dead") == std::vector{death_reason::expired});
        CHECK(imbalance(q) == "");
    }
    SECTION("returned, closed, purged: no dead letter") {
        auto q = broker.queue<int>("q");
        auto consumer = q.consumer();
        q.producer().send(1);
        for (int i = 0; i < 100; ++i) {
            CHECK(consumer.try_receive()->release());
        }
        CHECK(q.stats().ready == 1);
        q.purge();
        CHECK(broker.queue<int>("q.dead").stats().accepted == 0);
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[D46] maxReceiveCount 3: seen three times, then a dead letter") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s, .retry = {.max_attempts = 3}});
    auto consumer = q.consumer();
    q.producer().send(1);
    std::vector<time_point> seen;
    std::vector<railmq::sim_delivery<int>> never_settled;
    while (auto d = consumer.receive(1h)) {
        seen.push_back(sim.now());
        CHECK(d->delivery_count() == seen.size());
        never_settled.push_back(std::move(*d));
    }
    CHECK(seen == std::vector{at(0s), at(30s), at(60s)});
    CHECK(reasons<int>(broker, "q.dead") == std::vector{death_reason::max_attempts});
    CHECK(broker.queue<int>("q.dead").peek()[0].deaths[0].last_at == at(90s));
    CHECK(q.stats().deadlines_passed == 3);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D73] three attempts, 1 s doubled: waits of 1 s and 2 s") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>(
        "q",
        {.retry = {
             .max_attempts = 3,
             .backoff = railmq::exponential_backoff{
                 .initial = 1s, .multiplier = 2, .jitter = railmq::jitter::none}}});
    auto consumer = q.consumer();
    SECTION("sent for now") {
        q.producer().send("m");
        CHECK(fail_until_dead(sim, consumer) == std::vector{at(0s), at(1s), at(3s)});
    }
    SECTION("[D74] sent for in a minute") {
        q.producer().send("m", railmq::properties{.delay = 60s});
        CHECK(fail_until_dead(sim, consumer) == std::vector{at(60s), at(61s), at(63s)});
    }
    const auto dead = broker.queue<std::string>("q.dead").peek();
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].deaths[0].failure_count == 3);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D76] a worker dies and renews nothing: stalled, and processed again") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s});
    auto dead = q.consumer();
    auto alive = q.consumer();
    q.producer().send(1);
    const auto d = dead.try_receive();
    auto again = alive.receive(1h);
    REQUIRE(again);
    CHECK(sim.now() == at(30s));
    CHECK(again->failure_count() == 1);
    CHECK(q.stats().deadlines_passed == 1);
    CHECK(again->ack());
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D78] a long poll of 20 s") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    error_code ec;
    SECTION("a message after 7 s: returns after 7 s") {
        sim.async_wait(7s, [&](error_code) { q.producer().send(1); });
        CHECK(consumer.receive(20s, ec));
        CHECK_FALSE(ec);
        CHECK(sim.now() == at(7s));
    }
    SECTION("a batch, after 7 s: what is there") {
        sim.async_wait(7s, [&](error_code) { q.producer().send(1); });
        CHECK(consumer.receive_batch(10, 20s).size() == 1);
        CHECK(sim.now() == at(7s));
    }
    SECTION("none: returns empty after 20 s") {
        CHECK_FALSE(consumer.receive(20s, ec));
        CHECK(ec == errc::timed_out);
        CHECK(sim.now() == at(20s));
    }
    SECTION("one after 20 s and a little: it stays in the queue") {
        sim.async_wait(20s + 1ns, [&](error_code) { q.producer().send(1); });
        CHECK_FALSE(consumer.receive(20s, ec));
        CHECK(ec == errc::timed_out);
        sim.advance(1ns);
        CHECK(q.stats().ready == 1);
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D79] a short poll of an empty queue returns at once") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    q.producer().send(1, railmq::properties{.delay = 1s});
    CHECK_FALSE(consumer.try_receive());
    CHECK_FALSE(consumer.receive(0s));
    CHECK(consumer.receive_batch(10, 0s).empty());
    CHECK(sim.now() == at(0s));
}

TEST_CASE("[D91] a dead consumer: at once when it is known, after the lease when it is not") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s});
    auto dead = q.consumer();
    auto alive = q.consumer();
    q.producer().send(1);
    const auto d = dead.try_receive();
    sim.advance(10s);
    SECTION("disconnected") {
        dead.close();
        CHECK(alive.try_receive());
        CHECK(sim.now() == at(10s));
    }
    SECTION("silent") {
        CHECK(alive.receive(1h));
        CHECK(sim.now() == at(30s));
    }
    CHECK(imbalance(q) == "");
}
