// SPDX-License-Identifier: BSL-1.0
//
// Worked numbers about flow: what comes in, what goes out, and what waits in between. Rates are
// exact: one step is a millisecond of virtual time.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::test::imbalance;
using railmq::test::numbers;
using railmq::test::take_all;

namespace {

/// A shop whose one worker finishes 500 orders a second, one every second millisecond.
class shop {
public:
    explicit shop(railmq::queue_options o = {})
        : q{broker.queue<int>("orders", o)} {}

    /// Lets one millisecond pass: `arrivals` orders come, then the worker may finish one.
    void step(int arrivals, bool may_work = true) {
        sim.advance(1ms);
        ++ms_;
        for (int i = 0; i < arrivals; ++i) {
            error_code ec; // of a full queue
            producer.try_send(arrived++, ec);
        }
        if (may_work && ms_ % 2 == 0) {
            if (auto d = worker.try_receive()) {
                last_wait = sim.now() - d->enqueued_at();
                last = d->value();
                d->ack();
                ++handled;
            }
        }
    }
    /// How many of a steady stream come in millisecond `ms` (1, 2, ...): the first of each second,
    /// then evenly.
    [[nodiscard]] static int arrivals(int ms, int per_second) {
        const auto before = [&](int n) { return (n * per_second + 999) / 1000; };
        return before(ms) - before(ms - 1);
    }
    void run(int milliseconds, int per_second) {
        for (int ms = 1; ms <= milliseconds; ++ms) {
            step(arrivals(ms, per_second));
        }
    }
    /// Steps until nothing waits; how long that took.
    [[nodiscard]] railmq::duration until_empty(int per_second) {
        const auto start = sim.now();
        for (int ms = 1; backlog() != 0; ++ms) {
            step(arrivals(ms, per_second));
        }
        return sim.now() - start;
    }
    [[nodiscard]] std::uint64_t backlog() const { return q.stats().ready; }

    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    railmq::sim_queue<int> q;
    railmq::sim_producer<int> producer = q.producer();
    railmq::sim_consumer<int> worker = q.consumer();
    int arrived = 0;
    int handled = 0;
    int last = -1;
    railmq::duration last_wait{};

private:
    int ms_ = 0;
};

void spike(shop& s) {
    s.run(5000, 2000);
    REQUIRE(s.arrived == 10'000);
    REQUIRE(s.handled == 2500);
}

} // namespace

TEST_CASE("[D1] 300 a second into 500 a second: nothing piles up") {
    shop s;
    for (int ms = 1; ms <= 3000; ++ms) {
        s.step(shop::arrivals(ms, 300));
        REQUIRE(s.backlog() <= 1);
        if (ms % 10 == 0) {
            REQUIRE(s.backlog() == 0);
        }
    }
    CHECK(s.arrived == 900);
    CHECK(s.handled == 900);
    CHECK(s.last_wait <= 1ms);
    CHECK(imbalance(s.q) == "");
}

TEST_CASE("[D2] a spike without room to wait: 1500 a second are turned away") {
    shop s{{.max_length = 1, .overflow = railmq::overflow_policy::reject}};
    spike(s);
    CHECK(s.q.stats().refused == 7500);
    CHECK(s.q.stats().accepted == 2500);
    CHECK(imbalance(s.q) == "");
}

TEST_CASE("[D3] [D4] a spike into a queue: 7500 wait, the newest for 15 s, none is lost") {
    shop s;
    spike(s);
    CHECK(s.sim.now() == railmq::time_point{5s});
    CHECK(s.backlog() == 7500);
    CHECK(s.q.stats().accepted == 10'000);
    CHECK(s.q.stats().acked == 2500);
    CHECK(imbalance(s.q) == "");
    CHECK(s.until_empty(0) == 15s);
    CHECK(s.last == 9999);
    CHECK(s.last_wait == 15s);
    CHECK(s.handled == 10'000);
    CHECK(s.q.stats().refused + s.q.stats().dead_lettered + s.q.stats().dropped == 0);
    CHECK(imbalance(s.q) == "");
}

TEST_CASE("[D5] after the spike 100 a second: empty after 18.75 s") {
    shop s;
    spike(s);
    CHECK(s.until_empty(100) == 18'750ms);
    CHECK(s.arrived == 10'000 + 1875);
    CHECK(s.handled == s.arrived);
    CHECK(imbalance(s.q) == "");
}

TEST_CASE("[D6] after the spike 300 a second: empty after 37.5 s") {
    shop s;
    spike(s);
    CHECK(s.until_empty(300) == 37'500ms);
    CHECK(s.arrived == 10'000 + 11'250);
    CHECK(s.handled == s.arrived);
    CHECK(imbalance(s.q) == "");
}

TEST_CASE("[D7] more than can be handled, for good: a bounded queue drops, refuses or blocks") {
    SECTION("without a bound it grows and grows") {
        shop s;
        s.run(2000, 700);
        CHECK(s.backlog() == 400);
        s.run(2000, 700);
        CHECK(s.backlog() == 800);
    }
    SECTION("drop the oldest") {
        shop s{{.max_length = 100, .overflow = railmq::overflow_policy::drop_oldest}};
        for (int ms = 1; ms <= 2000; ++ms) {
            s.step(shop::arrivals(ms, 1000));
            REQUIRE(s.backlog() <= 100);
        }
        CHECK(s.q.stats().accepted == 2000);
        CHECK(s.handled == 1000);
        CHECK(s.q.stats().dead_lettered == 1000 - s.backlog());
        CHECK(s.broker.queue<int>("orders.dead").stats().ready == 1000 - s.backlog());
        CHECK(s.last_wait <= 200ms);
        CHECK(imbalance(s.q) == "");
    }
    SECTION("refuse") {
        shop s{{.max_length = 100, .overflow = railmq::overflow_policy::reject}};
        for (int ms = 1; ms <= 2000; ++ms) {
            s.step(shop::arrivals(ms, 1000));
            REQUIRE(s.backlog() <= 100);
        }
        CHECK(s.handled == 1000);
        CHECK(s.q.stats().refused == 1000 - s.backlog());
        CHECK(imbalance(s.q) == "");
    }
    SECTION("block: who sends is slowed down to what is handled") {
        shop s{{.max_length = 100}};
        int sent = 0;
        std::function<void(error_code, railmq::receipt)> next;
        next = [&](error_code ec, railmq::receipt) {
            if (ec) {
                CHECK(ec == errc::closed);
                return;
            }
            s.producer.async_send(sent++, next);
        };
        next({}, {});
        for (int ms = 1; ms <= 2000; ++ms) {
            s.step(0);
            s.sim.run_ready();
            REQUIRE(s.backlog() <= 100);
        }
        CHECK(s.handled == 1000);
        CHECK(s.q.stats().accepted == 1100);
        CHECK(s.q.stats().waiting_senders == 1);
        CHECK(s.q.stats().refused == 0);
        CHECK(imbalance(s.q) == "");
        s.broker.close();
        s.sim.run_ready();
    }
}

TEST_CASE("[D8] 500 a second in, 300 a second out: 200 more every second") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto producer = q.producer();
    auto worker = q.consumer();
    for (int second = 1; second <= 5; ++second) {
        for (int ms = 1; ms <= 1000; ++ms) {
            sim.advance(1ms);
            for (int i = shop::arrivals(ms, 500); i > 0; --i) {
                producer.send(ms);
            }
            for (int i = shop::arrivals(ms, 300); i > 0; --i) {
                worker.try_receive()->ack();
            }
        }
        CHECK(q.stats().ready == static_cast<std::uint64_t>(200 * second));
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[D9] [D10] workers share a queue: disjoint parts, and all of it whatever their number") {
    const std::size_t workers = GENERATE(std::size_t{3}, std::size_t{4});
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    q.producer().send_batch(numbers(1, 600));
    std::vector<railmq::sim_consumer<int>> consumers;
    std::vector<std::set<int>> parts(workers);
    for (std::size_t i = 0; i < workers; ++i) {
        consumers.push_back(q.consumer());
    }
    std::size_t total = 0;
    for (bool more = true; more;) {
        more = false;
        for (std::size_t i = 0; i < workers; ++i) { // equally fast
            if (auto d = consumers[i].try_receive()) {
                parts[i].insert(d->value());
                d->ack();
                ++total;
                more = true;
            }
        }
    }
    std::set<int> all;
    for (const auto& part : parts) {
        CHECK(part.size() == 600 / workers);
        all.insert(part.begin(), part.end());
    }
    CHECK(total == 600);
    CHECK(all.size() == 600);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D9] the same when they wait for their messages") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    std::vector<railmq::sim_consumer<int>> consumers;
    std::vector<std::size_t> counts(4);
    std::set<int> all;
    using handler = std::function<void(error_code, railmq::sim_delivery<int>)>;
    std::vector<handler> handlers(4);
    for (std::size_t i = 0; i < 4; ++i) {
        consumers.push_back(q.consumer());
    }
    for (std::size_t i = 0; i < 4; ++i) {
        handlers[i] = [&, i](error_code ec, railmq::sim_delivery<int> d) {
            if (ec) {
                return;
            }
            CHECK(all.insert(d.value()).second);
            d.ack();
            ++counts[i];
            consumers[i].async_receive(handlers[i]);
        };
        consumers[i].async_receive(handlers[i]);
    }
    q.producer().send_batch(numbers(1, 600));
    sim.run_ready();
    CHECK(counts == std::vector<std::size_t>{150, 150, 150, 150});
    CHECK(all.size() == 600);
    CHECK(imbalance(q) == "");
    broker.close();
    sim.run_ready();
}

// The other half, three subscriptions of a topic, comes with topics.
TEST_CASE("[D13] one message and three consumers of one queue: one delivery") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto a = q.consumer();
    auto b = q.consumer();
    auto c = q.consumer();
    q.producer().send(1);
    std::vector<int> got;
    for (auto* consumer : {&a, &b, &c}) {
        for (const int n : take_all(*consumer)) {
            got.push_back(n);
        }
    }
    CHECK(got == numbers(1, 1));
    CHECK(q.stats().handed_out == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[D54] prefetch 10: ten are out, and one more for each acknowledgement") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer({.prefetch = 10});
    q.producer().send_batch(numbers(1, 25));
    std::vector<railmq::sim_delivery<int>> held;
    const auto take = [&] {
        std::size_t n = 0;
        while (auto d = consumer.try_receive()) {
            held.push_back(std::move(*d));
            ++n;
        }
        return n;
    };
    CHECK(take() == 10);
    CHECK(take() == 0);
    for (std::size_t i = 0; i < 15; ++i) {
        CHECK(held[i].ack());
        CHECK(take() == 1);
        CHECK(consumer.in_flight() == 10);
        CHECK(imbalance(q) == "");
    }
    CHECK(held[15].ack());
    CHECK(take() == 0);
    CHECK(held.back().value() == 25);
}

TEST_CASE("[D55] no prefetch limit: the first consumer has everything, the second nothing") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto first = q.consumer({.prefetch = railmq::unlimited});
    auto second = q.consumer({.prefetch = railmq::unlimited});
    q.producer().send_batch(numbers(1, 5000));
    std::vector<railmq::sim_delivery<int>> held;
    while (auto d = first.try_receive()) {
        held.push_back(std::move(*d));
    }
    CHECK(held.size() == 5000);
    CHECK(first.in_flight() == 5000);
    CHECK_FALSE(second.try_receive());
    CHECK(imbalance(q) == "");
    first.close();
    CHECK(take_all(second) == numbers(1, 5000));
    held.clear();
    CHECK(imbalance(q) == "");
}
