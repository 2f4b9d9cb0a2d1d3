// SPDX-License-Identifier: BSL-1.0
//
// Dead letters: why messages die, where they go, and what they take along.
#include <railmq/broker.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::death_reason;
using railmq::overflow_policy;

namespace {

const railmq::retry_policy at_once{.backoff = railmq::constant_backoff{.delay = 0s}};

/// A broker in a simulation that remembers its notices.
struct world {
    world() = default;

    template <class Notice>
    [[nodiscard]] std::vector<Notice> all() const {
        std::vector<Notice> found;
        for (const railmq::notice& n : notices) {
            if (const auto* one = std::get_if<Notice>(&n)) {
                found.push_back(*one);
            }
        }
        return found;
    }

    std::vector<railmq::notice> notices{};
    railmq::simulation sim{1};
    railmq::sim_broker b{
        sim, {.observer = [this](const railmq::notice& n) { notices.push_back(n); }}};
};

std::vector<int> from_to(int first, int last) {
    std::vector<int> all;
    for (int i = first; i <= last; ++i) {
        all.push_back(i);
    }
    return all;
}

/// The values of what is ready in a queue, which stays there.
std::vector<int> values_in(railmq::sim_broker& b, const std::string& name) {
    std::vector<int> all;
    for (const auto& m : b.queue<int>(name).peek(10'000)) {
        all.push_back(m.value);
    }
    return all;
}

/// The newest death of the only message in a queue.
railmq::death last_death(railmq::sim_broker& b, const std::string& name) {
    const auto all = b.queue<int>(name).peek(2);
    REQUIRE(all.size() == 1);
    REQUIRE_FALSE(all[0].deaths.empty());
    return all[0].deaths[0];
}

using sim_consumer = railmq::sim_consumer<int>;

} // namespace

TEST_CASE("[L01] rejected for good: a dead letter; given back: none") {
    world w;
    auto q = w.b.queue<int>("q", {.retry = at_once});
    auto c = q.consumer();
    q.producer().send(1);
    SECTION("reject") {
        CHECK(c.try_receive()->reject("no such drink"));
        CHECK(values_in(w.b, "q.dead") == std::vector<int>{1});
        CHECK(values_in(w.b, "q").empty());
        const railmq::death d = last_death(w.b, "q.dead");
        CHECK(d.queue == "q");
        CHECK(d.reason == death_reason::rejected);
        CHECK(d.detail == "no such drink");
        CHECK(d.count == 1);
        CHECK(q.stats().dead_lettered == 1);
        CHECK(q.stats().acked == 0);
    }
    SECTION("nack and release") {
        CHECK(c.try_receive()->nack());
        CHECK(c.try_receive()->release());
        CHECK(values_in(w.b, "q.dead").empty());
        CHECK(values_in(w.b, "q") == std::vector<int>{1});
        CHECK(w.all<railmq::notices::dead_lettered>().empty());
    }
}

TEST_CASE("[L02] a hundred rejected in order arrive in that order") {
    world w;
    auto q = w.b.queue<int>("q");
    q.producer().send_batch(from_to(1, 100));
    auto c = q.consumer();
    SECTION("one after another") {
        while (auto d = c.try_receive()) {
            d->reject();
        }
    }
    SECTION("all held first") {
        for (auto& d : c.receive_batch(100, 0s)) {
            d.reject();
        }
    }
    CHECK(values_in(w.b, "q.dead") == from_to(1, 100));
}

TEST_CASE("[L03] an expired message is a dead letter without a time to live") {
    world w;
    auto q = w.b.queue<int>("q");
    std::optional<railmq::duration> own = 5s; // what the message itself said
    SECTION("its own time to live") {
        q.producer().send(1, {.message_id = "m", .time_to_live = 5s});
    }
    SECTION("behind one that lives longer") {
        q.producer().send(0);
        q.producer().send(1, {.message_id = "m", .time_to_live = 5s});
    }
    SECTION("the queue's") {
        auto short_lived = w.b.queue<int>("short", {.dead_letter = "q.dead", .time_to_live = 5s});
        short_lived.producer().send(1, {.message_id = "m"});
        own = std::nullopt;
    }
    w.sim.advance(5s - 1ns);
    CHECK(values_in(w.b, "q.dead").empty());
    w.sim.advance(1ns);
    const railmq::death d = last_death(w.b, "q.dead");
    CHECK(d.reason == death_reason::expired);
    CHECK(d.time_to_live == own);
    CHECK(d.last_at == w.sim.now());
    CHECK(d.delivery_count == 0);
    w.sim.advance(1h);
    const auto kept = w.b.queue<int>("q.dead").peek(2);
    REQUIRE(kept.size() == 1);
    CHECK(kept[0].value == 1);
    CHECK_FALSE(kept[0].properties.time_to_live);
    CHECK(kept[0].properties.message_id == "m");
    CHECK(w.all<railmq::notices::expired>().size() == 1);
}

TEST_CASE("[L04] a full queue that drops its oldest: the dropped ones are dead letters") {
    world w;
    auto q = w.b.queue<int>("q", {.max_length = 1, .overflow = overflow_policy::drop_oldest});
    q.producer().send(1);
    q.producer().send(2);
    q.producer().send(3);
    CHECK(values_in(w.b, "q") == std::vector<int>{3});
    CHECK(values_in(w.b, "q.dead") == std::vector<int>{1, 2});
    for (const auto& m : w.b.queue<int>("q.dead").peek(2)) {
        CHECK(m.deaths.at(0).reason == death_reason::dropped_oldest);
    }
}

TEST_CASE("[L06] two attempts: the second delivery says so, then a dead letter") {
    world w;
    auto q = w.b.queue<int>("q", {.retry = {.max_attempts = 2, .backoff = at_once.backoff}});
    q.producer().send(1);
    auto c = q.consumer();
    auto d = c.try_receive();
    REQUIRE(d);
    CHECK_FALSE(d->redelivered());
    CHECK(d->failure_count() == 0);
    d->nack();
    d = c.try_receive();
    REQUIRE(d);
    CHECK(d->redelivered());
    CHECK(d->delivery_count() == 2);
    CHECK(d->failure_count() == 1);
    CHECK(values_in(w.b, "q.dead").empty());
    d->nack();
    CHECK_FALSE(c.try_receive());
    CHECK(last_death(w.b, "q.dead").reason == death_reason::max_attempts);
}

TEST_CASE("[L08] a missing dead-letter queue is created, and nothing is lost") {
    world w;
    auto q = w.b.queue<int>("q");
    auto c = q.consumer();
    std::string target = "q.dead";
    SECTION("the default one was deleted") { w.b.delete_queue("q.dead"); }
    SECTION("the broker's default does not exist") {
        target = "parking";
        w.b.default_dead_letter(target);
    }
    SECTION("the queue's own was deleted") {
        target = "own";
        q.dead_letter(target);
        w.b.delete_queue(target);
    }
    REQUIRE_FALSE(w.b.find_queue<int>(target));
    q.producer().send(1);
    c.try_receive()->reject();
    REQUIRE(w.b.find_queue<int>(target));
    CHECK(values_in(w.b, target) == std::vector<int>{1});
    q.producer().send(2);
    c.try_receive()->reject();
    CHECK(values_in(w.b, target) == std::vector<int>{1, 2});
    CHECK(w.all<railmq::notices::dropped>().empty());
    // Dead letters stay, whatever goes wrong with them.
    auto dead = w.b.queue<int>(target).consumer();
    for (int i = 0; i < 20; ++i) {
        dead.receive()->nack();
    }
    w.sim.advance(1h);
    CHECK(values_in(w.b, target) == std::vector<int>{1, 2});
}

TEST_CASE("[L08] a dead-letter queue of another type: kept, and moved once it can be") {
    world w;
    auto q = w.b.queue<int>("q");
    auto c = q.consumer();
    (void)w.b.queue<std::string>("texts");
    w.b.default_dead_letter("texts");
    q.producer().send(1);
    c.try_receive()->reject();
    CHECK(q.stats().delayed == 1);
    const auto refused = w.all<railmq::notices::dead_letter_refused>();
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].code == railmq::errc::type_mismatch);
    w.b.default_dead_letter("numbers");
    w.sim.advance(1min);
    CHECK(values_in(w.b, "numbers") == std::vector<int>{1});
    CHECK(q.stats().delayed == 0);
}

TEST_CASE("[L09] the routing key is kept") {
    world w;
    auto q = w.b.queue<int>("q");
    q.producer().send(1, {.routing_key = "kern.critical"});
    q.consumer().try_receive()->reject();
    const auto dead = w.b.queue<int>("q.dead").peek();
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].properties.routing_key == "kern.critical");
    CHECK(dead[0].deaths.at(0).routing_key == "kern.critical");
}

TEST_CASE("[L10] a cycle that nobody rejects into ends with a recorded drop") {
    world w;
    SECTION("a queue that is its own, by time to live") {
        auto q = w.b.queue<int>("q", {.dead_letter = "q"});
        q.producer().send(1, {.time_to_live = 1ms});
        q.producer().send(2, {.time_to_live = 1ms});
        w.sim.advance(1ms);
        CHECK(values_in(w.b, "q").empty());
        CHECK(q.stats().delayed == 0);
        CHECK(q.stats().dropped == 2);
        CHECK(w.all<railmq::notices::dropped>().size() == 2);
    }
    SECTION("a queue that is its own, by length") {
        auto q = w.b.queue<int>(
            "q",
            {.max_length = 1, .overflow = overflow_policy::drop_oldest, .dead_letter = "q"});
        q.producer().send(1);
        q.producer().send(2);
        CHECK(values_in(w.b, "q") == std::vector<int>{2});
        CHECK(q.stats().dropped == 1);
        CHECK(w.all<railmq::notices::dropped>().size() == 1);
    }
    SECTION("two queues") {
        auto a = w.b.queue<int>("a", {.time_to_live = 1s});
        auto b = w.b.queue<int>("bb", {.dead_letter = "a", .time_to_live = 1s});
        a.dead_letter("bb");
        a.producer().send(1);
        w.sim.advance(1s);
        CHECK(values_in(w.b, "a").empty());
        CHECK(values_in(w.b, "bb") == std::vector<int>{1});
        w.sim.advance(1s);
        CHECK(values_in(w.b, "a").empty());
        CHECK(values_in(w.b, "bb").empty());
        CHECK(w.sim.run_until_idle() == 0s);
        CHECK(a.stats().dead_lettered == 1);
        CHECK(b.stats().dropped == 1);
        const auto dropped = w.all<railmq::notices::dropped>();
        REQUIRE(dropped.size() == 1);
        CHECK(dropped[0].reason == death_reason::expired);
    }
    SECTION("failures that use up their attempts are no rejection") {
        auto q = w.b.queue<int>(
            "q",
            {.retry = {.max_attempts = 1, .backoff = at_once.backoff}, .dead_letter = "q"});
        q.producer().send(1);
        q.consumer().try_receive()->nack();
        CHECK(values_in(w.b, "q").empty());
        CHECK(q.stats().dropped == 1);
    }
    for (const auto& n : w.all<railmq::notices::dropped>()) {
        CHECK(n.cycle);
    }
}

TEST_CASE("[L11] a cycle with a rejection in it goes on and counts its rounds") {
    world w;
    SECTION("one queue") {
        auto q = w.b.queue<int>("q", {.dead_letter = "q"});
        q.producer().send(1);
        auto c = q.consumer();
        for (std::uint64_t round = 1; round <= 100; ++round) {
            auto d = c.try_receive();
            REQUIRE(d);
            CHECK(d->deaths().size() == (round == 1 ? 0 : 1));
            CHECK(d->delivery_count() == 1); // each round is a new life
            d->reject();
            CHECK(last_death(w.b, "q").count == round);
        }
    }
    SECTION("two queues: rejected in one, expired in the other") {
        auto a = w.b.queue<int>("a");
        auto b = w.b.queue<int>("bb", {.dead_letter = "a", .time_to_live = 10s});
        a.dead_letter("bb");
        a.producer().send(1);
        auto c = a.consumer();
        for (std::uint64_t round = 1; round <= 5; ++round) {
            auto d = c.receive();
            REQUIRE(d);
            d->reject();
            const auto there = b.peek();
            REQUIRE(there.size() == 1);
            CHECK(there[0].deaths.at(0).count == round);
            CHECK(there[0].deaths.size() == (round == 1 ? 1 : 2));
        }
    }
    CHECK(w.all<railmq::notices::dropped>().empty());
}

TEST_CASE("[L13] the history has one record for each queue and reason, the newest first") {
    world w;
    auto a = w.b.queue<int>("a", {.retry = at_once});
    auto b = w.b.queue<int>("bb", {.dead_letter = "a", .time_to_live = 10s});
    a.dead_letter("bb");
    const auto sent = a.producer().send(1, {.routing_key = "k"});
    auto c = a.consumer();
    w.sim.advance(3s);
    const railmq::time_point first_at = w.sim.now();
    c.try_receive()->reject("first");
    w.sim.advance(10s);
    const railmq::time_point expired_at = w.sim.now();

    auto d = c.try_receive();
    REQUIRE(d);
    {
        const auto& h = d->deaths();
        REQUIRE(h.size() == 2);
        CHECK(h[0].queue == "bb");
        CHECK(h[0].reason == death_reason::expired);
        CHECK(h[0].count == 1);
        CHECK(h[0].first_at == expired_at);
        CHECK(h[1].queue == "a");
        CHECK(h[1].reason == death_reason::rejected);
        CHECK(h[1].count == 1);
        CHECK(h[1].first_at == first_at);
        CHECK(h[1].last_at == first_at);
        CHECK(h[1].detail == "first");
        CHECK(h[1].routing_key == "k");
        CHECK(h[1].message_id == sent.id);
        CHECK(d->first_death() == railmq::first_death{"a", death_reason::rejected, first_at});
    }
    d->nack(); // so that the counts differ
    d = c.try_receive();
    REQUIRE(d);
    w.sim.advance(4s);
    d->reject("second");
    const auto there = b.peek();
    REQUIRE(there.size() == 1);
    const auto& h = there[0].deaths;
    REQUIRE(h.size() == 2);
    CHECK(h[0].queue == "a");
    CHECK(h[0].reason == death_reason::rejected);
    CHECK(h[0].count == 2);
    CHECK(h[0].first_at == first_at);
    CHECK(h[0].last_at == w.sim.now());
    CHECK(h[0].detail == "second");
    CHECK(h[0].delivery_count == 2);
    CHECK(h[0].failure_count == 1);
    CHECK(h[1].queue == "bb");
    CHECK(h[1].count == 1);
    CHECK(h[1].last_at == expired_at);
    CHECK(there[0].first_death == railmq::first_death{"a", death_reason::rejected, first_at});
}

TEST_CASE("[L16] the queue's own target wins over the broker's, which applies at once") {
    world w;
    SECTION("the broker's is set first") {
        w.b.default_dead_letter("policy");
        auto q = w.b.queue<int>("q", {.dead_letter = "own"});
        q.producer().send(1);
        q.consumer().try_receive()->reject();
        CHECK(values_in(w.b, "own") == std::vector<int>{1});
    }
    SECTION("the broker's is set last") {
        auto q = w.b.queue<int>("q", {.dead_letter = "own"});
        w.b.default_dead_letter("policy");
        q.producer().send(1);
        q.consumer().try_receive()->reject();
        CHECK(values_in(w.b, "own") == std::vector<int>{1});
    }
    SECTION("to discard can be the queue's own choice") {
        auto q = w.b.queue<int>("q", {.dead_letter = railmq::discard});
        w.b.default_dead_letter("policy");
        q.producer().send(1);
        q.consumer().try_receive()->reject();
        CHECK(q.stats().dropped == 1);
        CHECK_FALSE(w.b.find_queue<int>("policy"));
    }
    SECTION("live, for messages that are held") {
        auto q = w.b.queue<int>("q");
        q.producer().send_batch(from_to(1, 4));
        auto c = q.consumer();
        auto held = c.receive_batch(4, 0s);
        REQUIRE(held.size() == 4);
        held[0].reject();
        w.b.default_dead_letter("policy");
        held[1].reject();
        w.b.default_dead_letter("other");
        held[2].reject();
        q.dead_letter("own");
        held[3].reject();
        CHECK(values_in(w.b, "q.dead") == std::vector<int>{1});
        CHECK(values_in(w.b, "policy") == std::vector<int>{2});
        CHECK(values_in(w.b, "other") == std::vector<int>{3});
        CHECK(values_in(w.b, "own") == std::vector<int>{4});
    }
}

TEST_CASE("[L17] three consumers that never acknowledge: every message dies once") {
    world w;
    auto q = w.b.queue<int>("q", {.ack_timeout = 30s, .retry = {.max_attempts = 2}});
    q.producer().send_batch(from_to(1, 10));
    std::vector<sim_consumer> consumers;
    for (int i = 0; i < 3; ++i) {
        consumers.push_back(q.consumer({.prefetch = 4}));
    }
    std::vector<railmq::sim_delivery<int>> kept; // so that no destructor fails them before
    for (int round = 0; round < 10; ++round) {
        for (auto& c : consumers) {
            while (auto d = c.try_receive()) {
                kept.push_back(std::move(*d));
            }
        }
        w.sim.advance(30s);
    }
    CHECK(kept.size() == 20);
    const auto dead = values_in(w.b, "q.dead");
    CHECK(dead.size() == 10);
    CHECK(std::set<int>(dead.begin(), dead.end()).size() == 10);
    const auto s = q.stats();
    CHECK(s.ready + s.delayed + s.in_flight == 0);
    CHECK(s.handed_out == 20);
    CHECK(s.dead_lettered == 10);
    kept.clear();
    CHECK(values_in(w.b, "q.dead").size() == 10);
}

TEST_CASE("[L18] a dead letter keeps its properties and says where it comes from") {
    world w;
    auto q = w.b.queue<int>("q");
    q.producer().send(0);
    const railmq::properties sent{
        .message_id = "order-7",
        .key = "customer-1",
        .routing_key = "orders.new",
        .event_time = std::chrono::sys_days{std::chrono::year{2024} / 1 / 1},
        .correlation_id = "request-9",
        .reply_to = "answers",
        .headers = {{"event-time", "2024-01-01T00:00:00Z"}, {"event-time", "twice"}, {"x", ""}}};
    const auto receipt = q.producer().send(1, sent);
    auto c = q.consumer();
    c.try_receive()->ack();
    c.try_receive()->reject();
    const auto dead = w.b.queue<int>("q.dead").peek();
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].value == 1);
    CHECK(dead[0].properties == sent);
    REQUIRE(dead[0].deaths.size() == 1);
    CHECK(dead[0].deaths[0].queue == "q");
    CHECK(dead[0].deaths[0].message_id == receipt.id);
}

TEST_CASE("[L19] one receive only: unsettled at its deadline, it is a dead letter") {
    world w;
    auto q = w.b.queue<int>("q", {.ack_timeout = 1000ms, .retry = {.max_attempts = 1}});
    std::string target = "q.dead";
    const auto receipt = q.producer().send(1, {.message_id = "m"});
    auto c = q.consumer();
    std::optional<railmq::sim_delivery<int>> d;
    SECTION("the target is as created") { d = c.try_receive(); }
    SECTION("the target is set before the receive") {
        target = "later";
        q.dead_letter(target);
        d = c.try_receive();
    }
    SECTION("the target is set while the message is held") {
        target = "later";
        d = c.try_receive();
        q.dead_letter(target);
    }
    REQUIRE(d);
    w.sim.advance(999ms);
    CHECK(values_in(w.b, target).empty());
    w.sim.advance(1ms);
    CHECK_FALSE(c.try_receive());
    const auto dead = w.b.queue<int>(target).peek(2);
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].properties.message_id == "m");
    CHECK(dead[0].deaths.at(0).message_id == receipt.id);
    CHECK(dead[0].deaths.at(0).reason == death_reason::max_attempts);
    CHECK_FALSE(d->ack());
    CHECK(values_in(w.b, target).size() == 1);
}

TEST_CASE("[L20] poison: the reason goes along, and a full dead-letter queue loses nothing") {
    world w;
    const bool waits = GENERATE(false, true);
    auto dead = w.b.queue<int>(
        "parking",
        {.max_length = 1,
         .overflow = waits ? overflow_policy::wait : overflow_policy::reject});
    auto q = w.b.queue<int>(
        "q",
        {.retry = {.max_attempts = 2, .backoff = railmq::constant_backoff{.delay = 1s}},
         .dead_letter = "parking"});
    int runs = 0;
    auto s = q.subscribe(w.sim.get_executor(), [&](const int&) {
        ++runs;
        throw railmq::permanent_error("poison");
    });
    q.producer().send(1);
    w.sim.run_ready();
    CHECK(runs == 1);
    const railmq::death d = last_death(w.b, "parking");
    CHECK(d.queue == "q");
    CHECK(d.reason == death_reason::permanent_error);
    CHECK(d.detail == "poison");
    CHECK(d.delivery_count == 1);

    q.producer().send(2); // the dead-letter queue is full now
    w.sim.run_ready();
    CHECK(runs == 2);
    CHECK(values_in(w.b, "parking") == std::vector<int>{1});
    CHECK(q.stats().delayed == 1);
    CHECK(w.all<railmq::notices::dead_letter_refused>().size() == 1);
    w.sim.advance(1min);
    CHECK(q.stats().delayed == 1); // tried again and again, and never lost
    CHECK(w.all<railmq::notices::dead_letter_refused>().size() > 10);
    CHECK(w.all<railmq::notices::dropped>().empty());
    CHECK(runs == 2); // dead is dead: no handler sees it meanwhile

    dead.consumer().try_receive()->ack();
    w.sim.advance(1s);
    CHECK(values_in(w.b, "parking") == std::vector<int>{2});
    const railmq::death late = last_death(w.b, "parking");
    CHECK(late.reason == death_reason::permanent_error);
    CHECK(late.detail == "poison");
    CHECK(late.delivery_count == 1);
    CHECK(late.failure_count == 0);
    CHECK(q.stats().delayed == 0);
    CHECK(q.stats().dead_lettered == 2);
}

TEST_CASE("[L20] refused dead letters survive a purge of their queue") {
    world w;
    auto dead = w.b.queue<int>("parking", {.max_length = 1, .overflow = overflow_policy::reject});
    dead.producer().send(0);
    auto q = w.b.queue<int>("q", {.dead_letter = "parking"});
    q.producer().send(1);
    q.producer().send(2);
    q.consumer().try_receive()->reject();
    CHECK(q.purge() == 1);
    CHECK(q.stats().delayed == 1);
    dead.consumer().try_receive()->ack();
    w.sim.advance(10min);
    CHECK(values_in(w.b, "parking") == std::vector<int>{1});
}

TEST_CASE("[L21] a consumer that stops in order costs no attempt, one that stalls does") {
    world w;
    auto q = w.b.queue<int>("q", {.ack_timeout = 30s, .retry = {.max_attempts = 2}});
    q.producer().send(1);
    for (int i = 0; i < 5; ++i) {
        auto c = q.consumer();
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->failure_count() == 0);
        CHECK(d->delivery_count() == static_cast<std::uint32_t>(i + 1));
        c.close();
    }
    CHECK(q.stats().failed == 0);
    auto c = q.consumer();
    auto stalled = c.try_receive();
    REQUIRE(stalled);
    w.sim.advance(30s);
    auto again = c.try_receive();
    REQUIRE(again);
    CHECK(again->failure_count() == 1);
    w.sim.advance(30s);
    CHECK_FALSE(c.try_receive());
    const railmq::death d = last_death(w.b, "q.dead");
    CHECK(d.reason == death_reason::max_attempts);
    CHECK(d.failure_count == 2);
    CHECK(d.delivery_count == 7);
}
