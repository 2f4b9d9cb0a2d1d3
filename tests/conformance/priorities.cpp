// SPDX-License-Identifier: BSL-1.0
//
// Priorities: what is urgent goes first, and everything else that a queue promises holds as well.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/queue_world.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using railmq::errc;
using railmq::error_code;
using railmq::overflow_policy;
using railmq::requeue_position;
using railmq::test::at_once;
using railmq::test::error_of;
using numbers = std::vector<int>;

/// A number's tens say how urgent it is.
struct world : railmq::test::queue_world {
    using queue_world::queue_world;

    void send(const numbers& all) {
        for (const int n : all) {
            p.send(n, {.priority = static_cast<std::uint32_t>(n / 10)});
        }
    }
    [[nodiscard]] numbers shown() {
        numbers all;
        for (const auto& m : q.peek(1'000)) {
            all.push_back(m.value);
        }
        return all;
    }
};

} // namespace

TEST_CASE("[G01] the most urgent first, and in order among equals") {
    world w{{.priorities = 4}};
    w.send({10, 20, 30, 11, 21, 31, 12, 22, 32});
    CHECK(w.shown() == numbers{30, 31, 32, 20, 21, 22, 10, 11, 12});
    CHECK(w.read_now() == numbers{30, 31, 32, 20, 21, 22, 10, 11, 12});
}

TEST_CASE("[G01] who waits gets what comes, and what comes later goes before what is there") {
    world w{{.priorities = 4}};
    std::optional<railmq::sim_delivery<int>> got;
    w.c.async_receive([&](error_code, railmq::sim_delivery<int> d) { got = std::move(d); });
    w.send({10, 30});
    w.sim.run_ready();
    REQUIRE(got);
    CHECK(**got == 10); // nothing more urgent was there then
    got->ack();
    w.send({20});
    CHECK(**w.c.try_receive() == 30);
}

TEST_CASE("[G01] a batch is handed out in the order of urgency") {
    world w{{.priorities = 2}};
    w.send({0, 10, 1, 11});
    numbers got;
    auto batch = w.c.receive_batch(3, 0s);
    for (auto& d : batch) {
        got.push_back(*d);
    }
    CHECK(got == numbers{10, 11, 0});
    CHECK(railmq::ack_all(batch) == 3);
    CHECK(w.p.send_batch(std::vector{2, 3, 4}) == 3); // without properties: the lowest
    w.send({12});
    CHECK(w.read_now() == numbers{12, 1, 2, 3, 4});
}

TEST_CASE("[G02] above the highest is the highest, and none is the lowest") {
    world w{{.priorities = 6}};
    w.p.send(1);
    w.p.send(2, {.priority = 0});
    w.p.send(3, {.priority = 5});
    w.p.send(4, {.priority = 10});
    w.p.send(5);
    w.p.send(6, {.priority = ~std::uint32_t{0}});
    CHECK(w.read_now() == numbers{3, 4, 6, 1, 2, 5});
}

TEST_CASE("[G02] without levels a priority is only carried") {
    world w{{.priorities = GENERATE(0U, 1U)}};
    w.send({10, 30});
    auto d = w.c.try_receive();
    REQUIRE(d);
    CHECK(**d == 10);
    CHECK(d->properties().priority == 1);
}

TEST_CASE("[G03] what comes back has its place in its level again") {
    world w{{.retry = at_once, .priorities = 4}};
    w.send({10, 20, 30, 31});
    auto held = w.c.receive_batch(4, 0s);
    REQUIRE(held.size() == 4);
    SECTION("all failed") {
        for (auto& d : held) {
            d.nack(0s);
        }
        CHECK(w.read_now() == numbers{30, 31, 20, 10});
    }
    SECTION("in the opposite order, one after a wait") {
        held[3].release();
        held[2].release();
        held[1].nack(1s);
        held[0].release();
        CHECK(w.shown() == numbers{30, 20, 10});
        w.send({32});
        w.sim.advance(1s);
        CHECK(w.read_now() == numbers{30, 31, 32, 20, 10});
    }
    SECTION("by the end of their leases") {
        w.sim.advance(30s);
        CHECK(w.shown() == numbers{30, 31, 20, 10});
    }
    SECTION("by the end of their consumer") {
        w.c.close();
        w.c = w.q.consumer();
        CHECK(w.read_now() == numbers{30, 31, 20, 10});
    }
}

TEST_CASE("[G03] a lease is as long as any, whenever it begins") {
    world w{{.ack_timeout = 30s, .priorities = 2}};
    w.send({0});
    w.c.try_receive()->ack();
    w.sim.advance(20s);
    w.send({1}); // one that has no properties either
    auto held = w.c.try_receive();
    REQUIRE(held);
    CHECK(held->ack_deadline() == w.sim.now() + 30s);
    w.sim.advance(29s);
    CHECK(w.q.stats().ready == 0);
    w.sim.advance(1s);
    CHECK(w.q.stats().ready == 1);
}

TEST_CASE("[G03] front and back are those of its level") {
    world w{{
        .retry = at_once,
        .requeue = GENERATE(requeue_position::front, requeue_position::back),
        .priorities = 3,
    }};
    w.send({20, 10, 11, 12, 0});
    numbers order;
    for (int i = 0; i < 3; ++i) {
        auto d = w.c.try_receive();
        REQUIRE(d);
        order.push_back(**d);
        if (**d == 20) {
            d->ack();
        } else {
            d->nack(0s);
        }
    }
    w.send({13, 1});
    if (w.q.options().requeue == requeue_position::front) {
        CHECK(order == numbers{20, 10, 10});
        CHECK(w.read_now() == numbers{10, 11, 12, 13, 0, 1});
    } else {
        CHECK(order == numbers{20, 10, 11});
        CHECK(w.read_now() == numbers{12, 10, 11, 13, 0, 1});
    }
}

TEST_CASE("[G04] what is dropped is the least urgent, and of equals the oldest") {
    // RabbitMQ drops the head, which is the most urgent.
    world w{{.max_length = 4, .overflow = overflow_policy::drop_oldest, .priorities = 4}};
    w.send({10, 20, 30, 11, 21, 31});
    CHECK(w.dead() == numbers{10, 11});
    w.send({12}); // less urgent than all there are: it goes itself
    CHECK(w.dead(railmq::death_reason::dropped_oldest) == numbers{10, 11, 12});
    w.send({22, 32});
    CHECK(w.dead() == numbers{10, 11, 12, 20, 21});
    CHECK(w.q.stats().ready == 4);
    CHECK(w.read_now() == numbers{30, 31, 32, 22});
}

TEST_CASE("[G04] what comes back makes the least urgent go") {
    world w{{
        .max_length = 2,
        .overflow = overflow_policy::drop_oldest,
        .retry = at_once,
        .priorities = 4,
    }};
    w.send({20, 30});
    auto held = w.c.receive_batch(2, 0s);
    REQUIRE(held.size() == 2);
    w.send({10, 31});
    held[0].nack(0s);
    CHECK(w.dead() == numbers{10});
    held[1].nack(0s);
    CHECK(w.dead() == numbers{10, 20});
    CHECK(w.read_now() == numbers{30, 31});
}

TEST_CASE("[G04] a limit in bytes, and one message that takes the place of several") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<std::string>(
        "q", {.max_bytes = 100, .overflow = overflow_policy::drop_oldest, .priorities = 2});
    auto p = q.producer();
    for (int i = 0; i < 3; ++i) {
        p.send(std::string(30, 'a'));
    }
    p.send(std::string(60, 'b'), {.priority = 1});
    CHECK(q.stats().ready == 2);
    p.send(std::string(100, 'c')); // there is no room for it beside what is more urgent
    auto c = q.consumer();
    CHECK(c.try_receive()->value() == std::string(60, 'b'));
    CHECK(b.queue<std::string>("q.dead").stats().ready == 4);
    CHECK(error_of([&] { p.send(std::string(101, 'd')); }) == errc::message_too_large);
}

TEST_CASE("[G05] a full queue that rejects keeps what it has, however urgent the rest is") {
    world w{{.max_length = 4, .overflow = overflow_policy::reject, .priorities = 4}};
    w.send({10, 20, 30, 11});
    CHECK(error_of([&] { w.send({39}); }) == errc::queue_full);
    CHECK(w.q.stats().refused == 1);
    CHECK(w.read_now() == numbers{30, 20, 10, 11});
}

TEST_CASE("[G05] senders wait in their order, not in that of urgency") {
    world w{{.max_length = 1, .priorities = 2}};
    w.send({0});
    w.p.async_send(1, {}, [](error_code, railmq::receipt) {});
    w.p.async_send(10, {.priority = 1}, [](error_code, railmq::receipt) {});
    w.sim.run_ready();
    CHECK(w.read_now() == numbers{0, 1, 10});
}

TEST_CASE("[G06] a number of levels that makes no sense is refused") {
    world w;
    const auto refused = [&](const railmq::queue_options& o) {
        return error_of([&] { (void)w.b.queue<int>("r", o); }) == errc::invalid_argument;
    };
    CHECK(refused({.priorities = 3'000}));
    CHECK(refused({.priorities = railmq::max_priorities + 1}));
    CHECK(refused({.priorities = static_cast<std::uint32_t>(-10)}));
    CHECK(refused({.max_overtakes = 1}));
    CHECK(refused({.order = railmq::delivery_order::by_key, .priorities = 2}));
    CHECK(refused({.order = railmq::delivery_order::strict, .priorities = 2}));
    CHECK_FALSE(w.b.find_queue<int>("r"));
    CHECK(w.b.queue<int>("r", {.priorities = railmq::max_priorities}));
    CHECK(
        error_of([&] { (void)w.b.queue<int>("r", {.priorities = 2}); }) == errc::options_mismatch);
}

TEST_CASE("[G07] what expires does so at its time, in every level and behind whatever is there") {
    world w{{.priorities = 4}};
    w.send({30});
    for (std::uint32_t level = 0; level != 4; ++level) {
        w.p.send(
            static_cast<int>(level) * 10 + 5,
            {.priority = level, .time_to_live = 10ms * (level + 1)});
    }
    for (std::uint64_t left = 5; left != 1; --left) {
        CHECK(w.q.stats().ready == left);
        w.sim.advance(10ms);
    }
    CHECK(w.dead(railmq::death_reason::expired) == numbers{5, 15, 25, 35});
    CHECK(w.read_now() == numbers{30});
}

TEST_CASE("[G07] what was delayed comes to its level at its time") {
    world w{{.priorities = 4}};
    w.p.send(31, {.priority = 3, .delay = 10ms});
    w.p.send(11, {.priority = 1, .delay = 5ms});
    w.send({10, 30});
    CHECK(w.shown() == numbers{30, 10});
    w.sim.advance(5ms);
    CHECK(w.shown() == numbers{30, 10, 11});
    w.send({32});
    w.sim.advance(5ms);
    CHECK(w.read_now() == numbers{30, 32, 31, 10, 11}); // in order of when they could be received
}

TEST_CASE("[G08] the oldest is the oldest of all levels, and of those that are held") {
    world w{{.priorities = 4}};
    const auto start = w.sim.now();
    w.send({10});
    w.sim.advance(1s);
    w.send({30, 31});
    CHECK(w.q.stats().oldest_ready_since == start);
    auto urgent = w.c.receive_batch(2, 0s);
    w.sim.advance(1s);
    auto last = w.c.try_receive();
    REQUIRE(last);
    w.send({20});
    CHECK(w.q.stats().oldest_ready_since == start + 2s);
    CHECK(w.q.stats().oldest_since == start);
    last->ack();
    CHECK(w.q.stats().oldest_since == start + 1s);
    CHECK(railmq::ack_all(urgent) == 2);
    CHECK(w.q.stats().oldest_since == start + 2s);
    CHECK(w.read_now() == numbers{20});
    CHECK(w.q.stats().oldest_since == railmq::never);
}

TEST_CASE("[G09] thousands, in each level in order") {
    const std::uint32_t levels = GENERATE(3U, railmq::max_priorities);
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q", {.priorities = levels});
    auto p = q.producer();
    auto c = q.consumer();
    const int n = 6'000;
    const auto level_of = [&](int i) { return static_cast<std::uint32_t>(i * 7919) % levels; };
    for (int i = 0; i < n; ++i) {
        p.send(i, {.priority = level_of(i)});
    }
    numbers expected;
    for (int i = 0; i < n; ++i) {
        expected.push_back(i);
    }
    std::sort(expected.begin(), expected.end(), [&](int x, int y) {
        return std::pair{level_of(y), x} < std::pair{level_of(x), y};
    });
    numbers got;
    while (auto d = c.try_receive()) {
        got.push_back(**d);
        d->ack();
    }
    CHECK(got == expected);
}

TEST_CASE("[G10] two urgent ones to one that waits, where nothing may starve") {
    world w{{.priorities = 2, .max_overtakes = 2}};
    w.send({0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
    CHECK(w.read_now() == numbers{10, 11, 0, 12, 13, 1, 14, 15, 2, 16, 17, 3, 18, 19, 4});
}

TEST_CASE("[G] purge removes all levels, and a pause holds them all up") {
    world w{{.priorities = 4}};
    w.send({10, 30, 20});
    w.q.pause();
    CHECK_FALSE(w.c.try_receive());
    CHECK(w.q.purge() == 3);
    w.send({0, 10});
    w.q.resume();
    CHECK(w.read_now() == numbers{10, 0});
    CHECK(w.q.stats().purged == 3);
}

TEST_CASE("[G] dead letters keep their priority, and have it again when they are redriven") {
    world w{{.priorities = 4}};
    w.send({10, 30, 20});
    for (auto d = w.c.try_receive(); d; d = w.c.try_receive()) {
        d->reject();
    }
    CHECK(w.dead() == numbers{30, 20, 10}); // that queue has no levels: as they came
    w.send({31});
    auto dead = w.b.queue<int>("q.dead");
    CHECK(dead.peek(1).front().properties.priority == 3);
    CHECK(dead.redrive(w.q) == 3);
    CHECK(w.read_now() == numbers{31, 30, 20, 10});
}

TEST_CASE("[G] dead letters go into levels where their queue has some") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto dead = b.queue<int>("dead", {.priorities = 4});
    auto q = b.queue<int>("q", {.dead_letter = "dead"});
    auto p = q.producer();
    auto c = q.consumer();
    p.send(1);
    p.send(2, {.priority = 2});
    for (auto d = c.try_receive(); d; d = c.try_receive()) {
        d->reject();
    }
    CHECK(dead.peek(2).front().value == 2);
    auto plain = b.queue<int>("plain");
    CHECK(dead.redrive(plain) == 2); // out of levels, in their order
    CHECK(plain.peek(2).front().value == 2);
}

TEST_CASE("[G] a transaction's messages go to their levels, and those of an aborted one nowhere") {
    world w{{.priorities = 4}};
    w.send({20});
    {
        auto tx = w.b.begin();
        tx.send(w.p, 30, {.priority = 3});
        tx.send(w.p, 10, {.priority = 1});
        CHECK(w.shown() == numbers{20});
        (void)tx.commit();
    }
    {
        auto tx = w.b.begin();
        tx.send(w.p, 31, {.priority = 3});
    }
    CHECK(w.read_now() == numbers{30, 20, 10});
}

TEST_CASE("[G] an exchange's messages go to the levels of each of its queues") {
    world w{{.priorities = 4}};
    auto plain = w.b.queue<int>("plain");
    auto x = w.b.exchange<int>("x", railmq::exchange_type::fanout);
    x.bind(w.q);
    x.bind(plain);
    auto p = x.producer();
    CHECK(p.send(10, {.priority = 1}).routed == 2);
    CHECK(p.send(30, {.priority = 3}).routed == 2);
    CHECK(w.read_now() == numbers{30, 10});
    CHECK(plain.peek(2).front().value == 10);
}

TEST_CASE("[G] handlers and coroutines get the most urgent first") {
    world w{{.priorities = 4}};
    w.send({10, 30, 20, 31});
    numbers got;
    SECTION("a handler") {
        auto s = w.q.subscribe(w.sim.get_executor(), [&](const int& n) { got.push_back(n); });
        w.sim.run_until_idle();
        s.close();
    }
    SECTION("a coroutine") {
        boost::asio::co_spawn(
            w.sim.get_executor(),
            [&]() -> boost::asio::awaitable<void> {
                for (int i = 0; i < 4; ++i) {
                    auto d = co_await w.c.async_receive(boost::asio::use_awaitable);
                    got.push_back(*d);
                    d.ack();
                }
            },
            boost::asio::detached);
        w.sim.run_until_idle();
    }
    CHECK(got == numbers{30, 31, 20, 10});
}

TEST_CASE("[G] what is urgent does not wait for room that the rest has taken up for long") {
    // The rest stays, the urgent pass by: what they have left behind is used again.
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<std::array<char, 64>>("q", {.priorities = 2});
    auto p = q.producer();
    auto c = q.consumer();
    std::uint64_t most = 0;
    for (int i = 0; i < 50'000; ++i) {
        p.send({}, {.priority = i % 100 == 0 ? 0U : 1U});
        if (i % 100 != 0) {
            c.try_receive()->ack();
        }
        most = std::max(most, q.stats().memory_bytes);
    }
    CHECK(q.stats().ready == 500);
    CHECK(most < 1'000'000);
}

TEST_CASE("[G] any number of threads: nothing lost, and each level in its order") {
    railmq::broker b;
    auto q = b.queue<int>("q", {.priorities = 4});
    constexpr int each = 2'000;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&q, t] {
            auto p = q.producer();
            for (int i = 0; i < each; ++i) {
                p.send(t * each + i, {.priority = static_cast<std::uint32_t>(i) % 4});
            }
        });
    }
    std::array<numbers, 2> got;
    for (auto& mine : got) {
        threads.emplace_back([&q, &mine] {
            auto c = q.consumer();
            while (auto d = c.receive(1s)) {
                mine.push_back(**d);
                d->ack();
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    numbers all;
    bool in_order = true;
    for (const auto& mine : got) {
        std::array<int, 8> last{-1, -1, -1, -1, -1, -1, -1, -1}; // by sender and level
        for (const int n : mine) {
            int& before = last[static_cast<std::size_t>(n / each * 4 + n % each % 4)];
            in_order = in_order && before < n;
            before = n;
        }
        all.insert(all.end(), mine.begin(), mine.end());
    }
    CHECK(in_order);
    std::sort(all.begin(), all.end());
    CHECK(all.size() == 2 * each);
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    CHECK(q.stats().ready == 0);
}
