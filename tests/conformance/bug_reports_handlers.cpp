// SPDX-License-Identifier: BSL-1.0
//
// More of bug_reports.cpp: faults of push handlers, in a simulation.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using boost::asio::awaitable;
using boost::asio::use_awaitable;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::test::imbalance;
using railmq::test::numbers;
using railmq::test::take_all;

namespace {

using delivery = railmq::sim_delivery<int>;
using queue = railmq::sim_queue<int>;
using options = railmq::subscribe_options;

[[nodiscard]] time_point at(railmq::duration d) {
    return time_point{d};
}

// One instantiation for all plain handlers, and one for all coroutines.
[[nodiscard]] railmq::sim_subscription
plain(railmq::simulation& sim, const queue& q, std::function<void(delivery&)> f, options o = {}) {
    return q.subscribe(sim.get_executor(), std::move(f), std::move(o));
}
[[nodiscard]] railmq::sim_subscription coroutine(
    railmq::simulation& sim,
    const queue& q,
    std::function<awaitable<void>(delivery&)> f,
    options o = {}) {
    return q.subscribe(sim.get_executor(), std::move(f), std::move(o));
}

} // namespace

TEST_CASE("[BR05] a slow handler loses no lease of messages it has not seen") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.ack_timeout = 30s, .retry = {.max_attempts = 2}});
    std::vector<int> handled;
    for (int i = 1; i <= 10; ++i) {
        q.producer().send(i);
    }
    auto sub = coroutine(
        sim,
        q,
        [&](delivery& d) -> awaitable<void> {
            CHECK(d.delivery_count() == 1);
            CHECK(d.ack_deadline() == sim.now() + 30s);
            co_await sim.async_wait(10s, use_awaitable);
            handled.push_back(d.value());
        },
        {.consumer = {.prefetch = 10}});
    sim.run_until_idle();
    CHECK(handled == numbers(1, 10));
    CHECK(sim.now() == at(100s));
    CHECK(q.stats().acked == 10);
    CHECK(q.stats().handed_out == 10);
    CHECK(broker.queue<int>("q.dead").stats().accepted == 0);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BR24] a plain handler that would wait for itself is told so at once") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto in = broker.queue<int>("in", {.max_length = 16});
    auto producer = in.producer();
    std::vector<int> handled;
    std::vector<int> refused;

    SECTION("send") {
        auto sub = plain(sim, in, [&](delivery& d) {
            handled.push_back(d.value());
            for (int i = 1; d.value() == 0 && i <= 17; ++i) {
                error_code ec;
                producer.send(i, ec);
                if (ec) {
                    CHECK(ec == errc::would_deadlock);
                    refused.push_back(i);
                }
            }
        });
        producer.send(0);
        sim.run_until_idle();
        CHECK(handled == numbers(0, 16));
        CHECK(refused == numbers(17, 17));
    }
    SECTION("the other ways to send") {
        auto sub = plain(sim, in, [&](delivery& d) {
            handled.push_back(d.value());
            if (d.value() != 0) {
                return;
            }
            producer.send_batch(numbers(1, 16));
            error_code ec;
            producer.send_for(17, 1h, ec);
            CHECK(ec == errc::would_deadlock);
            producer.try_send(17, ec);
            CHECK(ec == errc::queue_full);
            CHECK(producer.send_batch(numbers(17, 20), ec) == 0);
            CHECK(ec == errc::would_deadlock);
            CHECK_THROWS_AS(producer.send(17), railmq::system_error);
        });
        producer.send(0);
        sim.run_until_idle();
        CHECK(handled == numbers(0, 16));
    }
    SECTION("receive and drain") {
        auto other = in.consumer();
        bool ran = false;
        auto sub = plain(sim, in, [&](delivery&) {
            error_code ec;
            CHECK_FALSE(other.receive(ec));
            CHECK(ec == errc::would_deadlock);
            CHECK_FALSE(other.receive(1h, ec));
            CHECK(ec == errc::would_deadlock);
            CHECK_FALSE(other.try_receive(ec));
            CHECK(ec == errc::would_block);
            CHECK_THROWS_AS(in.drain(railmq::drain_for(1h)), railmq::system_error);
            ran = true;
        });
        producer.send(0);
        sim.run_until_idle();
        CHECK(ran);
        CHECK(in.stats().acked == 1);
    }
    SECTION("the end of its own subscription") {
        std::optional<railmq::sim_subscription> sub;
        int runs = 0;
        sub = plain(sim, in, [&](delivery&) {
            ++runs;
            CHECK_FALSE(sub->close(railmq::drain_for(1h)));
        });
        producer.send(0);
        sim.run_until_idle();
        CHECK(runs == 1);
        CHECK(in.stats().ready == 1); // it was given up, so it went back
        CHECK(in.stats().in_flight == 0);
    }
    CHECK(sim.now() == at(0s));
    CHECK(imbalance(in) == "");
}

TEST_CASE("[BR24] two handlers that fill each other's queue come to an end") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto a = broker.queue<int>("a", {.max_length = 1});
    auto b = broker.queue<int>("b", {.max_length = 1});
    int handled = 0;
    int refused = 0;
    const auto sends_to = [&](railmq::sim_producer<int> other) {
        return [&handled, &refused, other](delivery& d) mutable {
            ++handled;
            for (int i = 0; d.value() > 0 && i < 2; ++i) {
                error_code ec;
                other.send(d.value() - 1, ec);
                if (ec) {
                    CHECK(ec == errc::would_deadlock);
                    ++refused;
                }
            }
        };
    };
    a.producer().send(10);
    b.producer().send(10);
    auto from_a = plain(sim, a, sends_to(b.producer()));
    auto from_b = plain(sim, b, sends_to(a.producer()));
    sim.run_until_idle();
    CHECK(handled >= 12);
    CHECK(refused > 0);
    for (const auto& q : {a, b}) {
        CHECK(q.stats().acked == q.stats().accepted);
        CHECK(imbalance(q) == "");
    }
    CHECK(a.stats().acked + b.stats().acked == static_cast<std::uint64_t>(handled));
}

TEST_CASE("[BR24] a coroutine that sends to its own full queue waits, and blocks nobody") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto in = broker.queue<int>("in", {.max_length = 1});
    auto producer = in.producer();
    std::vector<int> handled;
    auto sub = coroutine(
        sim,
        in,
        [&](delivery& d) -> awaitable<void> {
            handled.push_back(d.value());
            if (d.value() == 0) {
                for (int i = 1; i <= 6; ++i) {
                    co_await producer.async_send(i, use_awaitable);
                }
            } else {
                co_await sim.async_wait(1s, use_awaitable);
            }
        },
        {.concurrency = 2});
    producer.send(0);
    sim.run_until_idle();
    CHECK(handled == numbers(0, 6));
    CHECK(in.stats().acked == 7);
    CHECK(sim.now() >= at(3s));
    CHECK(sim.now() <= at(6s));
    CHECK(imbalance(in) == "");
}

TEST_CASE("[BX01] an exception of a handler is a failure of its message and of nothing else") {
    railmq::simulation sim{1};
    int noticed = 0;
    railmq::sim_broker broker{
        sim, {.observer = railmq::on<railmq::notices::failed>([&](const auto& n) {
                  CHECK(n.kind == railmq::failure_kind::threw);
                  ++noticed;
              })}};
    const railmq::queue_options once{
        .retry = {.max_attempts = 1, .backoff = railmq::constant_backoff{.delay = 1s}}};
    auto a = broker.queue<int>("a", once);
    auto b = broker.queue<int>("b", once);
    auto c = broker.queue<int>("c", once);
    int b_calls = 0;
    int c_calls = 0;
    int a_calls = 0;
    auto on_a = plain(sim, a, [&](delivery&) {
        ++a_calls;
        throw std::runtime_error{"no"};
    });
    auto on_b = plain(sim, b, [&](delivery&) { ++b_calls; });
    auto on_c = plain(sim, c, [&](delivery&) { ++c_calls; });
    for (int i = 0; i < 2; ++i) {
        for (const auto& q : {a, b, c}) {
            q.producer().send(i);
        }
        sim.run_until_idle();
    }
    CHECK(a_calls == 2);
    CHECK(b_calls == 2);
    CHECK(c_calls == 2);
    CHECK(noticed == 2);
    CHECK(a.stats().acked == 0);
    CHECK(a.stats().dead_lettered == 2);
    CHECK(b.stats().acked == 2);
    for (const auto& q : {a, b, c}) {
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[BX01] a throw counts as the first attempt, whatever is thrown") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>(
        "q", {.retry = {.max_attempts = 3, .backoff = railmq::constant_backoff{.delay = 1s}}});
    const int kind = GENERATE(0, 1, 2);
    std::vector<std::uint32_t> failures;
    const auto fail = [&](delivery& d) {
        failures.push_back(d.failure_count());
        if (failures.size() == 1) {
            if (kind == 1) {
                throw 5;
            }
            throw std::runtime_error{"no"};
        }
    };
    auto sub = kind == 2 ? coroutine(
                               sim,
                               q,
                               [&](delivery& d) -> awaitable<void> {
                                   co_await sim.async_wait(0s, use_awaitable);
                                   fail(d);
                               })
                         : plain(sim, q, fail);
    q.producer().send(1);
    sim.run_until_idle();
    CHECK(failures == std::vector<std::uint32_t>{0, 1});
    CHECK(sim.now() == at(1s));
    CHECK(q.stats().acked == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX01] an observer that throws is counted, and nothing else") {
    railmq::simulation sim{1};
    int calls = 0;
    railmq::sim_broker broker{sim, {.observer = [&](const railmq::notice&) {
                                  ++calls;
                                  throw std::runtime_error{"no"};
                              }}};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    q.producer().send(1);
    q.producer().send(2);
    CHECK(take_all(consumer) == numbers(1, 2));
    CHECK(calls >= 7);
    CHECK(broker.stats().observer_failures == static_cast<std::uint64_t>(calls));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX11] a graceful end lets the running handler send and settle first") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto out = broker.queue<int>("out");
    auto sub = coroutine(sim, q, [&](delivery&) -> awaitable<void> {
        for (int i = 1; i <= 3; ++i) {
            co_await sim.async_wait(1s, use_awaitable);
            out.producer().send(i);
        }
    });
    q.producer().send(7);
    q.producer().send(8);
    sim.advance(500ms);
    SECTION("in time") {
        CHECK(sub.close(railmq::drain_for(10s)));
        CHECK(sim.now() == at(3s));
        sim.run_until_idle();
        CHECK(out.stats().ready == 3);
        CHECK(q.stats().acked == 1);
        CHECK(q.stats().ready == 1);
        CHECK(q.stats().handed_out == 1);
        CHECK(broker.close() == 4);
    }
    SECTION("not in time: the message goes back, and its late end settles nothing") {
        CHECK_FALSE(sub.close(railmq::drain_for(1s)));
        CHECK(sim.now() == at(1500ms));
        CHECK(q.stats().ready == 2);
        sim.run_until_idle();
        CHECK(q.stats().acked == 0);
        CHECK(q.stats().ready == 2);
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX16] a queue is not idle while its last message is being handled") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    bool is_done = false;
    auto sub = coroutine(sim, q, [&](delivery&) -> awaitable<void> {
        co_await sim.async_wait(5s, use_awaitable);
        is_done = true;
    });
    q.producer().send(1);
    sim.run_ready();
    CHECK(q.stats().ready == 0);
    CHECK(q.stats().in_flight == 1);
    CHECK_FALSE(q.drain(railmq::drain_for(0s)));
    SECTION("drain") {
        CHECK_FALSE(q.drain(railmq::drain_for(4s)));
        CHECK_FALSE(is_done);
        CHECK(q.drain(railmq::drain_for(60s)));
    }
    SECTION("pause") {
        CHECK(q.pause(railmq::drain_for(60s)));
    }
    SECTION("close the subscription") {
        CHECK(sub.close(railmq::drain_for(60s)));
    }
    SECTION("close the broker") {
        CHECK(broker.close(railmq::drain_for(60s)) == 0);
    }
    CHECK(is_done);
    CHECK(sim.now() == at(5s));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX16] a queue with a message that waits for a retry is not idle either") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.retry = {.backoff = railmq::constant_backoff{.delay = 3s}}});
    auto sub = plain(sim, q, [&](delivery& d) {
        if (!d.redelivered()) {
            throw std::runtime_error{"once"};
        }
    });
    q.producer().send(1);
    CHECK_FALSE(q.drain(railmq::drain_for(2s)));
    CHECK(q.stats().delayed == 1);
    CHECK(q.drain(railmq::drain_for(60s)));
    CHECK(sim.now() == at(3s));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX18] a handler may call everything") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto other = broker.queue<int>("other");
    std::optional<railmq::sim_subscription> own;
    std::vector<railmq::sim_subscription> more;
    std::vector<int> handled;
    auto victim = plain(sim, other, [](delivery&) {});
    own = plain(sim, q, [&](delivery& d) {
        handled.push_back(d.value());
        switch (d.value()) {
        case 1:
            more.push_back(plain(sim, other, [](delivery&) {}));
            victim.close();
            break;
        case 2: {
            auto made = broker.queue<int>("made", {.max_length = 3});
            made.producer().send(1);
            auto c = made.consumer();
            CHECK(c.try_receive()->ack());
            CHECK(
                broker.names() == std::vector<std::string>{
                                      "made", "made.dead", "other", "other.dead", "q", "q.dead"});
            c.close();
            broker.delete_queue("made");
            CHECK_FALSE(broker.find_queue<int>("made"));
            break;
        }
        case 3:
            CHECK(q.stats().in_flight == 1);
            q.producer().send(6);
            other.producer().send(1);
            CHECK(q.peek(10).size() >= 2);
            break;
        case 4:
            other.pause();
            other.purge();
            other.resume();
            CHECK(d.extend(1h));
            CHECK(d.ack());
            break;
        case 6: own->cancel(); break;
        default: break;
        }
    });
    for (int i = 1; i <= 5; ++i) {
        q.producer().send(i);
    }
    sim.run_until_idle();
    CHECK(handled == numbers(1, 6));
    CHECK(q.stats().acked == 6);
    q.producer().send(7);
    sim.run_until_idle();
    CHECK(handled.size() == 6); // it had cancelled itself
    CHECK(other.stats().acked == 1);
    CHECK(imbalance(q) == "");

    // Closing itself while it runs: the message goes back.
    own = plain(sim, q, [&](delivery& d) {
        own->close();
        CHECK_FALSE(d.ack());
    });
    sim.run_until_idle();
    CHECK(q.stats().ready == 1);
    CHECK(q.stats().in_flight == 0);
    CHECK(imbalance(q) == "");
}

TEST_CASE("a broker that drains lets a running handler send what it has to [BX11]", "[BX11]") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto jobs = broker.queue<int>("jobs");
    auto results = broker.queue<int>("results");
    auto out = results.producer();
    std::vector<int> seen;
    auto reader = results.subscribe(sim.get_executor(), [&](const int& n) { seen.push_back(n); });
    auto worker = jobs.subscribe(sim.get_executor(), [&](const int& n) {
        for (int i = 0; i < 3; ++i) {
            out.send(n * 10 + i);
        }
    });
    jobs.producer().send(1);

    REQUIRE(broker.close(railmq::drain_for{std::chrono::seconds{60}}) == 0);

    REQUIRE(seen == std::vector<int>{10, 11, 12});
    railmq::error_code ec;
    out.send(1, ec);
    REQUIRE(ec == railmq::errc::closed);
}
