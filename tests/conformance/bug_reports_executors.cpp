// SPDX-License-Identifier: BSL-1.0
//
// More of bug_reports.cpp: push handlers on the threads of real executors.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::test::imbalance;
using railmq::test::numbers;

namespace {

using delivery = railmq::delivery<int>;

[[nodiscard]] railmq::subscription plain(
    boost::asio::any_io_executor executor,
    const railmq::queue<int>& q,
    std::function<void(delivery&)> f,
    railmq::subscribe_options o = {}) {
    return q.subscribe(std::move(executor), std::move(f), std::move(o));
}

} // namespace

TEST_CASE("[BR24] a handler on the only thread cannot lock itself out") {
    boost::asio::io_context context{1};
    railmq::broker broker{{.executor = context.get_executor()}};
    auto in = broker.queue<int>("in", {.max_length = 16});
    auto producer = in.producer();
    std::vector<int> handled;
    std::vector<int> refused;
    auto sub = plain(context.get_executor(), in, [&](delivery& d) {
        handled.push_back(d.value());
        for (int i = 1; d.value() == 0 && i <= 17; ++i) {
            error_code ec;
            producer.send(i, ec);
            if (ec) {
                CHECK(ec == errc::would_deadlock);
                refused.push_back(i);
            }
        }
        if (handled.size() == 17) {
            context.stop();
        }
    });
    producer.send(0);
    context.run();
    CHECK(handled == numbers(0, 16));
    CHECK(refused == numbers(17, 17));
    sub.close();
    CHECK(imbalance(in) == "");
}

TEST_CASE("[BX18] handlers of two queues use each other's queue and make new ones") {
    constexpr int count = 300;
    boost::asio::thread_pool pool{2};
    railmq::broker broker{{.executor = pool.get_executor()}};
    auto a = broker.queue<int>("a");
    auto b = broker.queue<int>("b");
    std::atomic<int> handled{0};
    const auto work_on =
        [&](const railmq::queue<int>& mine, const railmq::queue<int>& other, std::string prefix) {
            return [&, mine, other, prefix](delivery& d) {
                auto extra = plain(pool.get_executor(), other, [](delivery& e) { e.release(); });
                (void)mine.stats();
                (void)other.stats();
                (void)other.peek(3);
                extra.close();
                const std::string name = prefix + std::to_string(d.value() % 5);
                auto made = broker.queue<int>(name);
                made.producer().send(d.value());
                (void)broker.names();
                (void)broker.find_queue<int>(name);
                if (d.value() > 0) {
                    other.producer().send(d.value() - 1);
                }
                ++handled;
            };
        };
    {
        auto on_a = plain(pool.get_executor(), a, work_on(a, b, "x"));
        auto on_b = plain(pool.get_executor(), b, work_on(b, a, "y"));
        std::jthread one{[&] { a.producer().send(count); }};
        std::jthread two{[&] { b.producer().send(count); }};
        while (handled.load() < 2 * (count + 1)) {
            std::this_thread::yield();
        }
        CHECK(on_a.close(railmq::drain_for(1h)));
        CHECK(on_b.close(railmq::drain_for(1h)));
    }
    broker.close();
    pool.join();
    CHECK(handled == 2 * (count + 1));
    for (const auto& q : {a, b}) {
        CHECK(q.stats().acked == count + 1);
        CHECK(q.stats().failed == 0);
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[BR25] a pool whose handlers run while everything is closed") {
    for (int round = 0; round < 50; ++round) {
        boost::asio::thread_pool pool{2};
        std::atomic<int> handled{0};
        {
            railmq::broker broker{{.executor = pool.get_executor()}};
            auto q = broker.queue<int>("q");
            auto sub =
                plain(pool.get_executor(), q, [&](delivery&) { ++handled; }, {.concurrency = 2});
            auto producer = q.producer();
            for (int i = 0; i < 20; ++i) {
                producer.send(i);
            }
            if (round % 2 == 0) {
                CHECK(q.drain(railmq::drain_for(1h)));
                CHECK(handled == 20);
            }
            if (round % 3 == 0) {
                broker.close();
            }
        }
        pool.join();
        CHECK(handled <= 20);
    }
}
