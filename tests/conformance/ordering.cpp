// SPDX-License-Identifier: BSL-1.0
//
// Order: what is handed out when, and where returned messages go.
#include <railmq/broker.hpp>

#include "support/catch.hpp"

#include <boost/asio/bind_executor.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

const railmq::retry_policy at_once{.backoff = railmq::constant_backoff{.delay = 0s}};
const railmq::retry_policy in_a_minute{.backoff = railmq::constant_backoff{.delay = 1min}};

std::vector<int> from_to(int first, int last) {
    std::vector<int> all;
    for (int i = first; i <= last; ++i) {
        all.push_back(i);
    }
    return all;
}

/// Receives and acknowledges everything that is there now.
template <class Consumer>
std::vector<int> read_now(Consumer& c) {
    std::vector<int> all;
    while (auto d = c.try_receive()) {
        all.push_back(**d);
        d->ack();
    }
    return all;
}

/// A queue with the messages 1 to `count`.
railmq::sim_queue<int> filled(railmq::sim_broker& b, int count, railmq::queue_options o = {}) {
    auto q = b.queue<int>("q", o);
    q.producer().send_batch(from_to(1, count));
    return q;
}

railmq::properties with_key(std::string key) { return {.key = std::move(key)}; }

// Messages of 16 kinds: the kind in the thousands, the number within it below.
constexpr int kinds = 16;
constexpr int per_kind(int kind) { return kind < 8 ? 63 : 62; }

void check_kinds(const std::vector<int>& received) {
    REQUIRE(received.size() == 1000);
    std::vector<int> next(kinds, 0);
    for (const int m : received) {
        const auto kind = static_cast<std::size_t>(m / 1000);
        REQUIRE(kind < next.size());
        CHECK(m % 1000 == next[kind]++);
    }
}

} // namespace

TEST_CASE("[F01] each kind of message arrives in the order of its sending") {
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q");
        auto p = q.producer();
        std::vector<int> sent(kinds, 0);
        for (int left = 1000; left != 0;) {
            const int kind = static_cast<int>(sim.random()() % kinds);
            int& n = sent[static_cast<std::size_t>(kind)];
            if (n < per_kind(kind)) {
                p.send(kind * 1000 + n++);
                --left;
            }
        }
        auto c = q.consumer();
        check_kinds(read_now(c));
    }
    SECTION("threaded, a thread for each kind") {
        railmq::broker b;
        auto q = b.queue<int>("q");
        auto p = q.producer();
        std::vector<std::thread> senders;
        for (int kind = 0; kind < kinds; ++kind) {
            senders.emplace_back([&p, kind] {
                for (int n = 0; n < per_kind(kind); ++n) {
                    p.send(kind * 1000 + n);
                }
            });
        }
        auto c = q.consumer();
        std::vector<int> received;
        while (received.size() < 1000) {
            auto d = c.receive();
            REQUIRE(d);
            received.push_back(**d);
            d->ack();
        }
        for (auto& t : senders) {
            t.join();
        }
        check_kinds(received);
        CHECK_FALSE(c.try_receive());
    }
}

TEST_CASE("[F02] strict order hands out one message at a time") {
    const railmq::queue_options strict{
        .retry = in_a_minute, .order = railmq::delivery_order::strict};
    SECTION("simulated: the next one comes at once after the ack") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = filled(b, 2, strict);
        auto c = q.consumer();
        auto other = q.consumer();
        auto first = c.try_receive();
        REQUIRE(first);
        CHECK(**first == 1);
        CHECK_FALSE(c.try_receive());
        CHECK_FALSE(other.try_receive());
        int got = 0;
        other.async_receive([&](railmq::error_code ec, railmq::sim_delivery<int> d) {
            REQUIRE_FALSE(ec);
            got = *d;
            d.ack();
        });
        sim.advance(10s);
        CHECK(got == 0);
        CHECK(first->ack());
        sim.run_ready();
        CHECK(got == 2);
    }
    SECTION("simulated: a failed message holds the queue until it is settled") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = filled(b, 3, strict);
        auto c = q.consumer();
        c.try_receive()->nack();
        sim.advance(59s);
        CHECK_FALSE(c.try_receive());
        sim.advance(1s);
        CHECK(read_now(c) == from_to(1, 3));
    }
    SECTION("simulated: release, a passed deadline, a closed consumer and a dead letter") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = filled(b, 3, strict);
        auto c = q.consumer();
        c.try_receive()->release();
        auto late = c.try_receive();
        CHECK(**late == 1);
        sim.advance(30s);
        auto lost = q.consumer();
        auto held = lost.try_receive();
        REQUIRE(held);
        CHECK(**held == 1);
        CHECK_FALSE(c.try_receive());
        lost.close();
        auto again = c.try_receive();
        REQUIRE(again);
        CHECK(**again == 1);
        again->reject();
        CHECK(read_now(c) == from_to(2, 3));
    }
    SECTION("threaded") {
        railmq::broker b;
        auto q = b.queue<int>("q", strict);
        q.producer().send_batch(from_to(1, 2));
        auto c = q.consumer();
        auto first = c.receive();
        REQUIRE(first);
        std::atomic<bool> acked{false};
        bool was_acked = false;
        int got = 0;
        std::thread waiting{[&] {
            auto other = q.consumer();
            if (auto d = other.receive()) {
                was_acked = acked;
                got = **d;
                d->ack();
            }
        }};
        while (q.stats().waiting_receivers == 0) {
            std::this_thread::yield();
        }
        acked = true;
        first->ack();
        waiting.join();
        CHECK(got == 2);
        CHECK(was_acked);
    }
}

TEST_CASE("[F03] a returned message goes back to its original place") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = filled(b, 3, {.retry = at_once, .requeue = railmq::requeue_position::original});
    auto c = q.consumer();
    SECTION("failed") { c.try_receive()->nack(); }
    SECTION("released") { c.try_receive()->release(); }
    SECTION("failed, with a wait of its own") { c.try_receive()->nack(0s); }
    CHECK(read_now(c) == from_to(1, 3));
}

TEST_CASE("[F03] the original place also when others have been read meanwhile") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = filled(b, 4, {.retry = in_a_minute});
    auto c = q.consumer();
    c.try_receive()->nack();
    CHECK(**c.try_receive() == 2); // destroyed: that fails it as well
    sim.advance(1min);
    CHECK(read_now(c) == from_to(1, 4));
}

TEST_CASE("[F04] several returned at once come again in their order") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = filled(b, 3, {.retry = at_once});
    auto c = q.consumer();
    auto held = c.receive_batch(3, 0s);
    REQUIRE(held.size() == 3);
    CHECK_FALSE(c.try_receive());
    CHECK(railmq::nack_all(held) == 3);
    auto again = c.receive_batch(3, 0s);
    REQUIRE(again.size() == 3);
    for (int i = 0; i < 3; ++i) {
        CHECK(*again[static_cast<std::size_t>(i)] == i + 1);
        CHECK(again[static_cast<std::size_t>(i)].redelivered());
    }
}

TEST_CASE("[F05] returned in the order 3, 1, 2") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    const auto order = [&](railmq::requeue_position where) {
        auto q = filled(b, 4, {.retry = at_once, .requeue = where});
        auto c = q.consumer();
        auto held = c.receive_batch(3, 0s);
        REQUIRE(held.size() == 3);
        held[2].nack();
        held[0].nack();
        held[1].nack();
        return read_now(c);
    };
    SECTION("our default is the original place") {
        CHECK(order(railmq::queue_options{}.requeue) == std::vector<int>{1, 2, 3, 4});
    }
    SECTION("back: behind what is in the queue, in the order of the returns") {
        CHECK(order(railmq::requeue_position::back) == std::vector<int>{4, 3, 1, 2});
    }
    SECTION("front: the latest first") {
        CHECK(order(railmq::requeue_position::front) == std::vector<int>{2, 1, 3, 4});
    }
}

TEST_CASE("[F06] what a dead consumer held comes back in its order") {
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = filled(b, 150);
        std::vector<railmq::sim_delivery<int>> held;
        {
            auto dies = q.consumer();
            dies.receive_batch(held, 1000, 0s);
            REQUIRE(held.size() == 100); // its prefetch
            REQUIRE(q.stats().in_flight == 100);
        }
        CHECK(q.stats().in_flight == 0);
        CHECK(q.stats().delayed == 0);
        auto c = q.consumer();
        CHECK(read_now(c) == from_to(1, 150));
        CHECK(q.stats().failed == 0);
        CHECK_FALSE(held[0].ack()); // the old handles have no say any more
    }
    SECTION("threaded") {
        railmq::broker b;
        auto q = b.queue<int>("q");
        q.producer().send_batch(from_to(1, 150));
        std::thread dying{[&] {
            std::vector<railmq::delivery<int>> held; // outlives the consumer
            auto dies = q.consumer();
            while (held.size() < 100) {
                held.push_back(*dies.receive());
            }
        }};
        dying.join();
        auto c = q.consumer();
        CHECK(read_now(c) == from_to(1, 150));
    }
}

TEST_CASE("[F07] closing a consumer loses nothing and doubles nothing") {
    const auto left_after = [](auto& b, bool ack) {
        auto q = b.template queue<int>("q");
        q.producer().send_batch(from_to(1, 200));
        auto first = q.consumer();
        std::vector<typename decltype(first)::delivery_type> held;
        while (held.size() < 20) {
            auto d = first.try_receive();
            REQUIRE(d);
            held.push_back(std::move(*d));
        }
        if (ack) {
            for (auto& d : held) {
                CHECK(d.ack());
            }
        }
        first.close();
        auto c = q.consumer();
        return read_now(c);
    };
    SECTION("simulated, not acknowledged") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        CHECK(left_after(b, false) == from_to(1, 200));
    }
    SECTION("simulated, acknowledged") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        CHECK(left_after(b, true) == from_to(21, 200));
    }
    SECTION("threaded, not acknowledged") {
        railmq::broker b;
        CHECK(left_after(b, false) == from_to(1, 200));
    }
    SECTION("threaded, acknowledged") {
        railmq::broker b;
        CHECK(left_after(b, true) == from_to(21, 200));
    }
}

TEST_CASE("[F07] cancelled first, the consumer's acks still count") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = filled(b, 200);
    auto first = q.consumer();
    auto held = first.receive_batch(20, 0s);
    REQUIRE(held.size() == 20);
    first.cancel();
    CHECK(railmq::ack_all(held) == 20);
    first.close();
    auto c = q.consumer();
    CHECK(read_now(c) == from_to(21, 200));
}

TEST_CASE("[F08] by key: the next message of a key waits until the one before is settled") {
    const railmq::queue_options by_key{
        .retry = in_a_minute, .order = railmq::delivery_order::by_key};
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", by_key);
        auto p = q.producer();
        p.send(1, with_key("g"));
        p.send(2, with_key("g"));
        p.send(3, with_key("h"));
        p.send(4); // no key, no order
        auto c = q.consumer();
        auto other = q.consumer();
        auto first = c.try_receive();
        REQUIRE(first);
        CHECK(**first == 1);
        auto of_h = other.try_receive();
        REQUIRE(of_h);
        CHECK(**of_h == 3); // another key is not held up
        auto keyless = c.try_receive();
        REQUIRE(keyless);
        CHECK(**keyless == 4);
        CHECK_FALSE(c.try_receive());
        CHECK_FALSE(other.try_receive());
        CHECK(first->ack());
        auto second = other.try_receive();
        REQUIRE(second);
        CHECK(**second == 2);
    }
    SECTION("simulated: a failed message keeps its key") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", by_key);
        auto p = q.producer();
        p.send(1, with_key("g"));
        p.send(2, with_key("g"));
        auto c = q.consumer();
        c.try_receive()->nack();
        CHECK_FALSE(c.try_receive());
        sim.advance(59s);
        CHECK_FALSE(c.try_receive());
        sim.advance(1s);
        auto again = c.try_receive();
        REQUIRE(again);
        CHECK(**again == 1);
        again->reject();
        CHECK(read_now(c) == std::vector<int>{2});
    }
    SECTION("threaded: never two of one key at a time, and each key in order") {
        constexpr int groups = 4;
        constexpr int each = 200;
        railmq::broker b;
        auto q = b.queue<int>("q", by_key);
        auto p = q.producer();
        for (int n = 0; n < each; ++n) {
            for (int g = 0; g < groups; ++g) {
                p.send(g * 1000 + n, with_key(std::to_string(g)));
            }
        }
        q.close();
        std::vector<std::atomic<int>> running(groups);
        std::vector<int> next(groups, 0);
        std::atomic<int> wrong{0};
        std::atomic<int> done{0};
        const auto work = [&] {
            auto c = q.consumer({.prefetch = 2});
            while (done < groups * each) {
                auto d = c.try_receive();
                if (!d) {
                    std::this_thread::yield();
                    continue;
                }
                const auto g = static_cast<std::size_t>(**d / 1000);
                wrong += running[g].fetch_add(1) != 0 ? 1 : 0;
                wrong += next[g]++ != **d % 1000 ? 1 : 0;
                running[g].fetch_sub(1);
                ++done;
                d->ack();
            }
        };
        // Opened here, so that a thread that starts late does not find the queue drained.
        auto keeps_open = q.consumer();
        std::vector<std::thread> workers;
        std::atomic<int> refused{0};
        for (int i = 0; i < 3; ++i) {
            workers.emplace_back([&] {
                try {
                    work();
                } catch (const railmq::system_error&) {
                    ++refused; // the others were done before it came
                }
            });
        }
        for (auto& t : workers) {
            t.join();
        }
        CHECK(wrong == 0);
        CHECK(done == groups * each);
        CHECK(refused < 3);
    }
}

TEST_CASE("[F09] by key: after a passed deadline the same message comes first") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q", {.ack_timeout = 1s, .order = railmq::delivery_order::by_key});
    auto p = q.producer();
    p.send(1, with_key("g"));
    p.send(2, with_key("g"));
    auto c = q.consumer();
    auto other = q.consumer();
    auto first = c.try_receive();
    REQUIRE(first);
    CHECK(**first == 1);
    sim.advance(999ms);
    CHECK_FALSE(other.try_receive());
    sim.advance(1ms);
    auto again = other.try_receive();
    REQUIRE(again);
    CHECK(**again == 1);
    CHECK(again->delivery_count() == 2);
    CHECK_FALSE(c.try_receive());
    CHECK_FALSE(first->ack()); // it is the other's now
    CHECK_FALSE(c.try_receive());
    CHECK(again->ack());
    CHECK(read_now(c) == std::vector<int>{2});
}

TEST_CASE("[F12] after two failures all of a hundred messages are still read") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = filled(b, 100);
    auto c = q.consumer();
    for (int i = 0; i < 2; ++i) {
        auto d = c.receive();
        REQUIRE(d);
        CHECK(d->nack());
    }
    std::set<std::uint64_t> ids;
    std::set<int> values;
    std::size_t count = 0;
    while (auto d = c.receive(10min)) {
        ids.insert(d->id());
        values.insert(**d);
        ++count;
        CHECK(d->redelivered() == (**d <= 2));
        d->ack();
    }
    CHECK(count == 100);
    CHECK(ids.size() == 100);
    CHECK(values.size() == 100);
}
