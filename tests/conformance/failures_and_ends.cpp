// SPDX-License-Identifier: BSL-1.0
//
// What becomes of messages whose handlers fail again and again, of what these have sent, and of
// consumers that come and go.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/queue_world.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using railmq::errc;
using railmq::error_code;
using railmq::test::at_once;
using railmq::test::error_of;

struct world : railmq::test::queue_world {
    using queue_world::queue_world;

    /// What is in a queue, in the order in which it would be handed out.
    [[nodiscard]] std::vector<int> in(const char* name) {
        std::vector<int> all;
        for (const auto& m : b.queue<int>(name).peek(10'000)) {
            all.push_back(m.value);
        }
        return all;
    }
};

} // namespace

TEST_CASE("[F11] dead letters lie in the order in which they were given up") {
    world w{{.retry = at_once}};
    w.p.send_batch(std::vector{1, 2, 3});
    auto c = w.q.consumer();
    auto all = c.receive_batch(3, 0s);
    REQUIRE(all.size() == 3);
    all[0].nack(0s);
    all[1].nack(0s);
    all[2].reject();
    auto again = c.receive_batch(3, 0s);
    REQUIRE(again.size() == 2);
    for (auto& d : again) {
        d.reject();
    }
    CHECK(w.dead() == std::vector{3, 1, 2});
}

TEST_CASE("[F13] whoever fails and leaves takes nothing with him") {
    world w{{.retry = {.max_attempts = 0, .backoff = railmq::constant_backoff{.delay = 0s}}}};
    std::vector<int> sent;
    for (int i = 0; i != 50; ++i) {
        w.p.send(i);
        sent.push_back(i);
    }
    for (int who = 0; who != 3; ++who) {
        auto c = w.q.consumer();
        for (int i = 0; i != 100; ++i) {
            auto d = c.try_receive();
            REQUIRE(d);
            d->nack(0s);
        }
    }
    auto last = w.q.consumer();
    auto all = last.receive_batch(1000, 0s);
    std::vector<int> got;
    for (auto& d : all) {
        got.push_back(*d);
        d.ack();
    }
    CHECK(got == sent);
    CHECK(w.q.stats().acked == 50);
}

TEST_CASE("[K08][K14] the first run is at once, and each later one after its own wait") {
    world w{{.retry = {.max_attempts = 4, .backoff = railmq::backoff_list{{1s, 2s, 3s}}}}};
    std::vector<railmq::duration> runs;
    w.sim.advance(1h);
    const auto start = w.sim.now();
    auto s = w.q.subscribe(w.sim.get_executor(), [&](const int&) {
        runs.push_back(w.sim.now() - start);
        throw std::runtime_error("never works");
    });
    w.p.send(1);
    w.sim.advance(1h);
    CHECK(runs == std::vector<railmq::duration>{0s, 1s, 3s, 6s});
    CHECK(w.dead() == std::vector{1});
}

TEST_CASE("[K16] what comes back without a failure has none, and does not wait") {
    world w{{.retry = {.max_attempts = 2, .backoff = railmq::constant_backoff{.delay = 1min}}}};
    w.p.send(1);
    auto c = w.q.consumer();
    for (int i = 0; i != 20; ++i) {
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->failure_count() == 0);
        CHECK(d->release());
    }
    c.try_receive()->nack();
    CHECK_FALSE(c.try_receive()); // a failure waits
    w.sim.advance(1min);
    auto d = c.try_receive();
    REQUIRE(d);
    CHECK(d->failure_count() == 1);
    d->nack();
    CHECK(w.dead() == std::vector{1});
}

TEST_CASE("[L07] dead letters of a limit lie in the order of the queue") {
    world w{{.retry = {.max_attempts = 2, .backoff = railmq::constant_backoff{.delay = 0s}}}};
    w.p.send_batch(std::vector{1, 2});
    auto c = w.q.consumer();
    for (int run = 0; run != 2; ++run) {
        auto all = c.receive_batch(2, 0s);
        REQUIRE(all.size() == 2);
        all.clear(); // dropped: each has failed
    }
    CHECK(w.dead() == std::vector{1, 2});
}

TEST_CASE("[L22] a subscription that gives up concerns nobody else") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto t = b.topic<int>("t");
    const railmq::subscription_options twice{
        .queue = {.retry = {.max_attempts = 2, .backoff = railmq::constant_backoff{.delay = 0s}}}};
    auto one = t.subscribe("one", twice);
    auto two = t.subscribe("two", twice);
    auto three = t.subscribe("three", twice);
    t.producer().send(7);
    auto c = one.consumer();
    for (int i = 0; i != 2; ++i) {
        auto d = c.try_receive();
        REQUIRE(d);
        d->nack();
    }
    CHECK_FALSE(c.try_receive());
    CHECK(one.stats().dead_lettered == 1);
    for (auto* q : {&two, &three}) {
        auto other = q->consumer();
        auto d = other.try_receive();
        REQUIRE(d);
        CHECK(**d == 7);
        CHECK(d->failure_count() == 0);
        d->ack();
        CHECK(q->stats().dead_lettered == 0);
    }
}

TEST_CASE("[L25] no limit on attempts is none") {
    world w{{.retry = {.max_attempts = 0, .backoff = railmq::constant_backoff{.delay = 0s}}}};
    w.p.send(1);
    auto c = w.q.consumer();
    for (int i = 0; i != 1000; ++i) {
        auto d = c.try_receive();
        REQUIRE(d);
        d->nack();
    }
    CHECK(w.q.stats().dead_lettered == 0);
    CHECK(w.q.stats().ready == 1);
}

TEST_CASE("[Y05] consumers that read a batch and close miss nothing") {
    world w{{.retry = at_once}};
    for (int i = 0; i != 5000; ++i) {
        w.p.send(i);
    }
    std::set<int> seen;
    std::size_t settled = 0;
    for (int round = 0; round != 5; ++round) {
        auto c = w.q.consumer({.prefetch = 2000});
        auto all = c.receive_batch(1500, 0s);
        for (std::size_t i = 0; i != all.size(); ++i) {
            if (round == 4 || i % 3 != 0) { // a third of them goes back when it closes
                seen.insert(*all[i]);
                settled += all[i].ack() ? 1 : 0;
            }
        }
        c.close();
    }
    auto last = w.q.consumer();
    while (auto d = last.try_receive()) {
        seen.insert(**d);
        settled += d->ack() ? 1 : 0;
    }
    CHECK(seen.size() == 5000);
    CHECK(settled == 5000);
}

TEST_CASE("[Y08] a queue with work under way is not deleted unless it is forced") {
    world w;
    w.p.send(1);
    w.p.send(2);
    auto c = w.q.consumer();
    auto d = c.try_receive();
    REQUIRE(d);
    CHECK(error_of([&] { w.b.delete_queue("q"); }) == errc::would_block);
    CHECK(w.q.is_open());
    CHECK(w.in("q") == std::vector{2});
    w.b.delete_queue("q", true);
    CHECK(**d == 1); // can still be read
    CHECK_FALSE(w.b.find_queue<int>("q"));
    CHECK(error_of([&] { w.p.send(3); }) == errc::closed);
}

TEST_CASE("[Z01][Z02] what a handler sent that fails is never seen") {
    world w{{.retry = {.max_attempts = 3, .backoff = railmq::backoff_list{{0s, 10s}}}}};
    auto out = w.b.queue<int>("out");
    auto to = out.producer();
    int runs = 0;
    bool works = false;
    auto s = w.q.subscribe(w.sim.get_executor(), [&](const int& m, railmq::sim_transaction& tx) {
        ++runs;
        tx.send(to, 10 * m);
        tx.send(to, 10 * m + 1);
        if (!works) {
            throw std::runtime_error("after it has sent");
        }
    });
    w.p.send(1);
    w.sim.advance(1h);
    CHECK(runs == 3); // one retried at once, one later
    CHECK(out.stats().accepted == 0);
    CHECK(w.dead() == std::vector{1}); // once
    works = true;
    w.p.send(2);
    w.sim.run_ready();
    CHECK(w.in("out") == std::vector{20, 21});
}

TEST_CASE("[Z04] no message is in two batches") {
    world w;
    std::vector<int> sent;
    for (int i = 0; i != 15'000; ++i) {
        sent.push_back(i);
    }
    w.p.send_batch(sent);
    auto one = w.q.consumer({.prefetch = 100});
    auto two = w.q.consumer({.prefetch = 100});
    std::vector<int> seen;
    for (bool more = true; more;) {
        more = false;
        for (auto* c : {&one, &two}) {
            auto batch = c->receive_batch(100, 50ms);
            CHECK(batch.size() <= 100);
            more = more || !batch.empty();
            for (const auto& d : batch) {
                seen.push_back(*d);
            }
            railmq::ack_all(batch);
        }
    }
    std::sort(seen.begin(), seen.end());
    CHECK(seen == sent);
}

TEST_CASE("[Z05] a batch of one whose work fails is dead-lettered like any other") {
    world w{{.retry = {.max_attempts = 1}}};
    auto c = w.q.consumer();
    w.p.send(1);
    const auto limit = static_cast<std::size_t>(GENERATE(1, 2));
    auto batch = c.receive_batch(limit, 500ms);
    REQUIRE(batch.size() == 1);
    batch.front().nack();
    CHECK(w.dead() == std::vector{1});
}

TEST_CASE("[Z10] whoever waited stands in no line any more") {
    world w;
    auto c = w.q.consumer();
    for (int i = 0; i != 100; ++i) {
        error_code ec;
        CHECK_FALSE(c.receive(10ms, ec)); // timed out
        CHECK(ec == errc::timed_out);
    }
    CHECK(w.q.stats().waiting_receivers == 0);
    int got = 0;
    c.async_receive([&](error_code ec, railmq::sim_delivery<int> d) {
        CHECK_FALSE(ec);
        got += *d;
        d.ack();
    });
    CHECK(w.q.stats().waiting_receivers == 1);
    w.p.send(5);
    w.sim.run_ready();
    CHECK(got == 5);
    CHECK(w.q.stats().waiting_receivers == 0);
}
