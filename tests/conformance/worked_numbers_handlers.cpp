// SPDX-License-Identifier: BSL-1.0
//
// Worked numbers about handlers that run side by side.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using boost::asio::awaitable;
using boost::asio::use_awaitable;
using railmq::death_reason;
using railmq::time_point;
using railmq::test::imbalance;
using railmq::test::numbers;

namespace {

using delivery = railmq::sim_delivery<int>;
using work = std::function<awaitable<void>(delivery&)>;

[[nodiscard]] time_point at(railmq::duration d) {
    return time_point{d};
}

// One instantiation for all of them.
[[nodiscard]] railmq::sim_subscription subscribe(
    railmq::simulation& sim, const railmq::sim_queue<int>& q, work f, std::size_t concurrency = 1) {
    return q.subscribe(sim.get_executor(), std::move(f), {.concurrency = concurrency});
}

struct finish {
    int message;
    time_point when;
    friend bool operator==(const finish&, const finish&) = default;
};

} // namespace

TEST_CASE("[D27] [D28] M1 takes 300 ms and M2 50 ms: which is done first") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto keyed = broker.queue<int>("keyed", {.order = railmq::delivery_order::by_key});
    std::vector<finish> finished;
    const work f = [&](delivery& d) -> awaitable<void> {
        co_await sim.async_wait(d.value() == 1 ? 300ms : 50ms, use_awaitable);
        finished.push_back({d.value(), sim.now()});
    };
    const std::vector<finish> apart{{2, at(50ms)}, {1, at(300ms)}};
    const std::vector<finish> in_turn{{1, at(300ms)}, {2, at(350ms)}};
    SECTION("[D27] two workers: M2, then M1") {
        auto a = subscribe(sim, q, f);
        auto b = subscribe(sim, q, f);
        q.producer().send_batch(numbers(1, 2));
        sim.run_until_idle();
        CHECK(finished == apart);
    }
    SECTION("[D27] one subscription that does two at a time") {
        auto a = subscribe(sim, q, f, 2);
        q.producer().send_batch(numbers(1, 2));
        sim.run_until_idle();
        CHECK(finished == apart);
    }
    SECTION("[D28] one worker: M1, then M2") {
        auto a = subscribe(sim, q, f);
        q.producer().send_batch(numbers(1, 2));
        sim.run_until_idle();
        CHECK(finished == in_turn);
    }
    SECTION("[D28] two workers, one key: M1, then M2") {
        auto a = subscribe(sim, keyed, f);
        auto b = subscribe(sim, keyed, f);
        for (int i = 1; i <= 2; ++i) {
            keyed.producer().send(i, railmq::properties{.key = "order-42"});
        }
        sim.run_until_idle();
        CHECK(finished == in_turn);
    }
    SECTION("[D27] two workers, two keys: M2, then M1") {
        auto a = subscribe(sim, keyed, f);
        auto b = subscribe(sim, keyed, f);
        keyed.producer().send(1, railmq::properties{.key = "order-42"});
        keyed.producer().send(2, railmq::properties{.key = "order-77"});
        sim.run_until_idle();
        CHECK(finished == apart);
    }
    CHECK(imbalance(q) == "");
    CHECK(imbalance(keyed) == "");
}

TEST_CASE("[D72] [D43] three attempts and a handler that always throws: three runs, then failed") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>(
        "q", {.retry = {.max_attempts = 3, .backoff = railmq::constant_backoff{.delay = 1s}}});
    std::vector<time_point> runs;
    const bool is_permanent = GENERATE(false, true);
    auto sub = subscribe(sim, q, [&](delivery&) -> awaitable<void> {
        runs.push_back(sim.now());
        co_await sim.async_wait(0s, use_awaitable);
        if (is_permanent) {
            throw railmq::permanent_error{"no such customer"};
        }
        throw std::runtime_error{"no connection"};
    });
    q.producer().send(1);
    sim.run_until_idle();
    const auto dead = broker.queue<int>("q.dead").peek();
    REQUIRE(dead.size() == 1);
    const auto& death = dead[0].deaths.at(0);
    if (is_permanent) {
        CHECK(runs == std::vector{at(0s)});
        CHECK(death.reason == death_reason::permanent_error);
        CHECK(death.detail == "no such customer");
    } else {
        CHECK(runs == std::vector{at(0s), at(1s), at(2s)});
        CHECK(death.reason == death_reason::max_attempts);
        CHECK(death.detail == "no connection");
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D75] concurrency 5 and three workers: fifteen at a time, never more") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    std::size_t running = 0;
    std::size_t most = 0;
    const work f = [&](delivery&) -> awaitable<void> {
        most = std::max(most, ++running);
        co_await sim.async_wait(1s, use_awaitable);
        --running;
    };
    std::vector<railmq::sim_subscription> workers;
    for (std::size_t w = 1; w <= 3; ++w) {
        workers.push_back(subscribe(sim, q, f, 5));
        q.producer().send_batch(numbers(1, 60));
        const auto start = sim.now();
        sim.run_until_idle();
        CHECK(most == 5 * w);
        CHECK(sim.now() - start == 1s * (60 / (5 * w)));
    }
    CHECK(q.stats().acked == 180);
    CHECK(imbalance(q) == "");
}
