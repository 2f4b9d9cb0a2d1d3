// SPDX-License-Identifier: BSL-1.0
//
// More of bug_reports.cpp: faults that need real threads. Nothing here depends on how long
// anything takes: a test that finds a fault fails, or never ends.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::test::imbalance;
using railmq::test::numbers;
using railmq::test::take_all;

namespace {

template <class Condition>
void wait_until_true(Condition&& is_true) {
    while (!is_true()) {
        std::this_thread::yield();
    }
}

} // namespace

TEST_CASE("[BR01] the order of each producer survives threads") {
    constexpr int count = 2000;
    const std::size_t readers = GENERATE(std::size_t{1}, std::size_t{4});
    railmq::broker broker;
    auto q = broker.queue<int>("q", {.max_length = 100});
    std::vector<std::vector<int>> seen(readers);
    {
        std::vector<std::jthread> threads;
        for (std::size_t r = 0; r < readers; ++r) {
            // Made here: on a queue that is closed and empty, none can be made any more.
            threads.emplace_back([&, r, consumer = q.consumer()]() mutable {
                while (auto d = consumer.receive()) {
                    seen[r].push_back(d->value());
                    d->ack();
                }
            });
        }
        std::vector<std::jthread> producers;
        for (const int sign : {1, -1}) {
            producers.emplace_back([&, sign] {
                auto producer = q.producer();
                for (int i = 1; i <= count; ++i) {
                    producer.send(sign * i);
                }
            });
        }
        producers.clear();
        q.close();
    }
    std::array<std::vector<int>, 2> all;
    for (const auto& part : seen) {
        std::array<int, 2> last{};
        bool in_order = true;
        for (const int n : part) {
            const std::size_t who = n > 0 ? 0 : 1;
            const int value = n > 0 ? n : -n;
            in_order = in_order && value > last[who];
            last[who] = value;
            all[who].push_back(value);
        }
        CHECK(in_order);
    }
    for (auto& part : all) {
        std::sort(part.begin(), part.end());
        CHECK(part == numbers(1, count));
    }
    CHECK(q.stats().acked == 2 * count);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR03] a graceful close waits for the consumer that is at work") {
    railmq::broker broker;
    auto q = broker.queue<int>("q", {.max_length = 10});
    for (int i = 1; i <= 10; ++i) {
        REQUIRE(q.producer().try_send(i));
    }
    std::vector<int> seen;
    error_code last;
    auto consumer = q.consumer();
    for (int i = 1; i <= 3; ++i) {
        REQUIRE(consumer.try_receive()->ack());
    }
    std::jthread reader{[&] {
        while (auto d = consumer.receive(last)) {
            seen.push_back(d->value());
            d->ack();
        }
    }};
    CHECK(broker.close(railmq::drain_for(1h)) == 0);
    reader.join();
    CHECK(seen == numbers(4, 10));
    CHECK(last == errc::closed);
    error_code ec;
    q.producer().send(11, ec);
    CHECK(ec == errc::closed);
}

TEST_CASE("[BR03] two threads that close at once keep what was accepted meanwhile") {
    const railmq::test::scratch_directory place;
    const auto open = [&] {
        return railmq::broker{
            {.directory = place.path,
             .durability = railmq::durability::accepted,
             .journal = {.segment_bytes = 64 << 10, .headroom_bytes = 4 << 10}}};
    };
    std::uint64_t accepted = 0;
    for (int round = 0; round < 60; ++round) {
        railmq::broker b = open();
        for (int i = 0; i < 20; ++i) { // so that closing takes a while
            (void)b.queue<int>("before." + std::to_string(i), {.dead_letter = railmq::discard});
        }
        auto q = b.queue<int>("q");
        std::atomic<bool> is_sending{false};
        error_code last;
        std::thread sender{[&] {
            auto p = q.producer();
            for (p.send(1, last); !last; p.send(1, last)) {
                ++accepted;
                is_sending = true;
            }
        }};
        std::thread opener{[&] { // holds up those who close, between their steps
            try {
                for (;;) {
                    (void)b.queue<int>("q");
                }
            } catch (const railmq::system_error&) {
            }
        }};
        std::atomic<int> closing{0};
        const auto close = [&] {
            ++closing;
            wait_until_true([&] { return closing == 2 && is_sending; });
            b.close();
        };
        std::thread other{close};
        close();
        other.join();
        opener.join();
        sender.join();
        CHECK(last == errc::closed);
    }
    railmq::broker b = open();
    CHECK(b.queue<int>("q").stats().ready == accepted);
}

TEST_CASE("[BR13] a thread that waits is woken for the earliest delayed message") {
    railmq::broker broker;
    auto q = broker.queue<int>("q");
    std::optional<int> got;
    std::jthread reader{[&] {
        auto consumer = q.consumer();
        if (auto d = consumer.receive()) {
            got = d->value();
            d->ack();
        }
    }};
    wait_until_true([&] { return q.stats().waiting_receivers == 1; });
    q.producer().send(1, railmq::properties{.delay = 24h});
    q.producer().send(2, railmq::properties{.delay = 5ms});
    reader.join();
    CHECK(got == 2);
    CHECK(q.stats().delayed == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR23] a close reaches a receive that is about to wait") {
    for (int round = 0; round < 200; ++round) {
        railmq::broker broker{{.park_after = round % 2 == 0 ? 0us : 200us}};
        auto q = broker.queue<int>("q");
        std::atomic<bool> is_running{false};
        error_code ec;
        bool got = true;
        std::jthread reader{[&] {
            auto consumer = q.consumer();
            is_running = true;
            got = consumer.receive(ec).has_value();
        }};
        wait_until_true([&] { return is_running.load(); });
        q.close();
        reader.join();
        REQUIRE_FALSE(got);
        REQUIRE(ec == errc::closed);
    }
}

TEST_CASE("[BR23] timed receives lose nothing and get nothing twice") {
    constexpr int producers = 4;
    constexpr int count = 5000;
    railmq::broker broker;
    auto q = broker.queue<int>("q");
    std::vector<std::atomic<int>> seen(producers * count);
    std::atomic<int> total{0};
    {
        std::vector<std::jthread> threads;
        for (int c = 0; c < 4; ++c) {
            threads.emplace_back([&] {
                auto consumer = q.consumer({.prefetch = 4});
                while (total.load() < producers * count) {
                    error_code ec;
                    if (auto d = consumer.receive(10ms, ec)) {
                        ++seen[static_cast<std::size_t>(d->value())];
                        ++total;
                        d->ack();
                    } else if (ec != errc::timed_out) {
                        return;
                    }
                }
            });
        }
        for (int p = 0; p < producers; ++p) {
            threads.emplace_back([&, p] {
                auto producer = q.producer();
                for (int i = 0; i < count; ++i) {
                    producer.send(p * count + i);
                }
            });
        }
    }
    CHECK(total == producers * count);
    CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n == 1; }));
    CHECK(q.stats().acked == producers * count);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR23] two threads that wait and two sends: one each") {
    for (int round = 0; round < 50; ++round) {
        railmq::broker broker{{.park_after = round % 2 == 0 ? 0us : 200us}};
        auto q = broker.queue<int>("q");
        std::array<int, 2> got{};
        {
            std::vector<std::jthread> threads;
            for (auto& mine : got) {
                threads.emplace_back([&] {
                    auto consumer = q.consumer({.prefetch = 1});
                    if (auto d = consumer.receive()) {
                        mine = d->value();
                        d->ack();
                    }
                });
            }
            if (round % 4 < 2) {
                wait_until_true([&] { return q.stats().waiting_receivers == 2; });
            }
            auto producer = q.producer();
            producer.send(1);
            producer.send(2);
        }
        REQUIRE(got[0] + got[1] == 3);
        REQUIRE(imbalance(q) == "");
    }
}

TEST_CASE("[BR25] closing wakes every thread that waits, whenever it began to") {
    for (int round = 0; round < 200; ++round) {
        auto broker = std::make_unique<railmq::broker>(
            railmq::broker_options{.park_after = round % 4 < 2 ? 0us : 200us});
        auto q1 = broker->queue<int>("q1");
        auto q2 = broker->queue<int>("q2", {.max_length = 1});
        q2.producer().send(42);
        std::array<error_code, 4> results;
        std::array<bool, 2> got{true, true};
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < 2; ++i) {
            threads.emplace_back([&, i, c = q1.consumer()]() mutable {
                got[i] = c.receive(results[i]).has_value();
            });
            threads.emplace_back(
                [&, i, p = q2.producer()]() mutable { p.send(1, results[2 + i]); });
        }
        if (round % 2 == 0) {
            wait_until_true([&] {
                return q1.stats().waiting_receivers == 2 && q2.stats().waiting_senders == 2;
            });
        }
        const bool by_queue = round % 3 != 0;
        std::jthread closer{[&] {
            if (by_queue) {
                q1.close();
                q2.close();
            } else {
                broker->close();
            }
        }};
        for (auto& t : threads) {
            t.join();
        }
        closer.join();
        REQUIRE_FALSE(got[0]);
        REQUIRE_FALSE(got[1]);
        for (const auto& ec : results) {
            REQUIRE(ec == errc::closed);
        }
        error_code ec;
        if (by_queue) {
            auto last = q2.consumer();
            auto d = last.receive(ec);
            REQUIRE(d);
            REQUIRE(d->value() == 42);
            REQUIRE(d->ack());
            REQUIRE_FALSE(last.receive(ec));
            REQUIRE(ec == errc::closed);
            REQUIRE(imbalance(q2) == "");
        }
        broker.reset();
        REQUIRE_FALSE(q1.is_open());
        q1.producer().send(1, ec);
        REQUIRE(ec == errc::closed);
    }
}

TEST_CASE("[BR25] a broker destroyed under threads that wait ends their calls") {
    for (int round = 0; round < 50; ++round) {
        auto broker = std::make_unique<railmq::broker>();
        auto q = broker->queue<std::string>("q", {.max_length = 1});
        std::array<error_code, 3> results;
        std::array<bool, 3> got{}; // assertions are the main thread's alone
        std::vector<std::jthread> threads;
        q.producer().send("full");
        threads.emplace_back([&, p = q.producer()]() mutable { p.send("x", results[0]); });
        auto other = broker->queue<std::string>("other");
        threads.emplace_back(
            [&, c = other.consumer()]() mutable { got[1] = c.receive(results[1]).has_value(); });
        threads.emplace_back([&, c = other.consumer()]() mutable {
            got[2] = c.receive(1h, results[2]).has_value();
        });
        broker.reset();
        threads.clear();
        REQUIRE(got == std::array<bool, 3>{});
        for (const auto& ec : results) {
            REQUIRE(ec == errc::closed);
        }
    }
}

TEST_CASE("[BX12] an acknowledgement and a deadline that meet: one of them wins") {
    constexpr int count = 300;
    railmq::broker broker;
    auto q = broker.queue<std::string>("q", {.ack_timeout = 1ms, .retry = {.max_attempts = 0}});
    for (int i = 0; i < count; ++i) {
        q.producer().send("message number " + std::to_string(i));
    }
    std::vector<std::atomic<int>> settled(count);
    std::atomic<int> total{0};
    std::atomic<bool> is_whole{true};
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 3; ++t) {
            threads.emplace_back([&] {
                auto consumer = q.consumer();
                for (int n = 0; total.load() < count; ++n) {
                    auto d = consumer.receive(1ms);
                    if (!d) {
                        continue;
                    }
                    const std::string text = d->value();
                    const auto number = std::stoul(text.substr(text.rfind(' ') + 1));
                    is_whole = is_whole && text == "message number " + std::to_string(number);
                    if (n % 3 == 0) { // until just about the deadline
                        const auto end = d->ack_deadline();
                        wait_until_true(
                            [&] { return !end || railmq::threaded::clock{}.now() >= *end; });
                    }
                    const bool won = d->ack();
                    is_whole = is_whole && (won || d->value() == text);
                    if (won) {
                        ++settled[number];
                        ++total;
                    }
                }
            });
        }
    }
    CHECK(is_whole);
    CHECK(std::all_of(settled.begin(), settled.end(), [](const auto& n) { return n == 1; }));
    CHECK(q.stats().acked == count);
    CHECK(q.stats().ready + q.stats().in_flight + q.stats().delayed == 0);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR15] consumers and a move that want the same messages: each goes one way") {
    constexpr int count = 3000;
    railmq::broker broker;
    auto from = broker.queue<std::unique_ptr<int>>("from");
    auto to = broker.queue<std::unique_ptr<int>>("to");
    for (int i = 0; i < count; ++i) {
        from.producer().send(std::make_unique<int>(i));
    }
    std::vector<int> taken;
    std::atomic<bool> is_moving{true};
    {
        std::jthread reader{[&] {
            auto consumer = from.consumer();
            while (is_moving || from.stats().ready != 0) {
                if (auto d = consumer.try_receive()) {
                    taken.push_back(*d->value());
                    d->ack();
                }
            }
        }};
        const auto moved = from.redrive(to);
        is_moving = false;
        CHECK(moved == to.stats().ready);
    }
    auto consumer = to.consumer();
    while (auto d = consumer.try_receive()) {
        taken.push_back(*d->value());
        d->ack();
    }
    std::sort(taken.begin(), taken.end());
    CHECK(taken == numbers(0, count - 1));
    CHECK(imbalance(from) == "");
    CHECK(imbalance(to) == "");
}
