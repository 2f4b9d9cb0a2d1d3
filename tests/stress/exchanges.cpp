// SPDX-License-Identifier: BSL-1.0
//
// Threads that publish, bind, unbind, delete and close, all at once.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::exchange_type;
using namespace railmq::test;

namespace {

struct stamped {
    int thread = 0;
    int number = 0;
};

/// Everything of that queue, until each publisher's last has come: in each publisher's order, and
/// none missing.
void check_all(const railmq::queue<stamped>& q, int publishers, int each, std::atomic<int>& wrong) {
    std::vector<int> next(static_cast<std::size_t>(publishers), 0);
    auto c = q.consumer();
    for (int n = 0; n < publishers * each; ++n) {
        auto d = c.receive(long_time);
        if (!d) {
            ++wrong;
            return;
        }
        int& expected = next[static_cast<std::size_t>(d->value().thread)];
        wrong += d->value().number == expected++ ? 0 : 1;
        d->ack();
    }
}

} // namespace

TEST_CASE("whoever stays bound gets everything once and in order, whatever others do") {
    constexpr int each = 15'000;
    constexpr int publishers = 2;
    railmq::broker broker;
    auto x = broker.exchange<stamped>("x", exchange_type::topic, {.alternate = "spare"});
    const std::vector<railmq::queue<stamped>> steady{
        broker.queue<stamped>("unlimited"),
        broker.queue<stamped>("limited", {.max_length = 64}),
        broker.queue<stamped>("bytes", {.max_bytes = 64 * sizeof(stamped)})};
    for (const auto& q : steady) {
        x.bind(q, "*.all");
    }
    std::atomic<int> wrong{0};
    std::atomic<bool> is_over{false};
    std::atomic<std::uint64_t> rounds{0};
    std::vector<std::thread> threads;
    for (const auto& q : steady) {
        threads.emplace_back([&] { check_all(q, publishers, each, wrong); });
    }
    std::vector<std::thread> senders;
    auto shared = x.producer(); // by both, beside one of their own
    for (int t = 0; t < publishers; ++t) {
        senders.emplace_back([&, t] {
            auto own = x.producer();
            for (int n = 0; n < each; ++n) {
                auto& p = t == 0 ? shared : own;
                const auto r = p.send({t, n}, {.routing_key = n % 3 == 0 ? "a.all" : "b.all"});
                wrong += r.routed >= 3 ? 0 : 1;
                (void)shared.send({9, n}, {.routing_key = "nobody"});
            }
        });
    }
    // Comes and goes, and sees what it must while it is there.
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
            const std::string mine = "churn" + std::to_string(t);
            auto p = x.producer();
            while (!is_over) {
                auto q = broker.queue<stamped>(mine);
                auto inner = broker.exchange<stamped>(mine + ".x", exchange_type::direct);
                x.bind(inner, mine + ".#");
                inner.bind(q, mine + ".key");
                const auto r = p.send({9, 1}, {.routing_key = mine + ".key"});
                wrong += r.routed == 1 && q.stats().ready == 1 ? 0 : 1;
                inner.unbind(q, mine + ".key");
                wrong += p.send({9, 2}, {.routing_key = mine + ".key"}).routed == 0 ? 0 : 1;
                x.bind(q, "*.all"); // from now on it gets whatever the others send
                if (rounds++ % 2 == 0) {
                    x.unbind(q, "*.all");
                }
                broker.delete_queue(mine, true);
                wrong += p.send({9, 3}, {.routing_key = mine}).routed == 0 ? 0 : 1;
                broker.delete_exchange(mine + ".x");
                (void)x.stats();
            }
        });
    }
    for (auto& t : senders) {
        t.join();
    }
    is_over = true;
    for (auto& t : threads) {
        t.join();
    }
    CHECK(wrong == 0);
    CHECK(rounds > 0);
    const auto s = x.stats();
    CHECK(s.published >= 2 * publishers * each);
    CHECK(s.routed >= 3U * publishers * each);
    for (const auto& q : steady) {
        CHECK(q.stats().ready == 0);
    }
}

TEST_CASE("a broker that closes ends all publishing") {
    for (int round = 0; round < 30; ++round) {
        railmq::broker broker;
        auto x = broker.exchange<std::string>("x", exchange_type::fanout);
        for (const char* name : {"a", "b", "c"}) {
            x.bind(broker.queue<std::string>(name, {.max_length = 100}));
        }
        std::atomic<int> ended{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 3; ++t) {
            threads.emplace_back([&, p = x.producer()]() mutable {
                error_code ec;
                while (!ec) { // ends waiting for room, or in the middle of a send
                    (void)p.send("value", ec);
                }
                ended += ec == errc::closed ? 1 : 0;
            });
        }
        threads.emplace_back([&] {
            try {
                for (;;) {
                    auto q = broker.queue<std::string>("d");
                    x.bind(q);
                    broker.delete_queue("d", true);
                }
            } catch (const railmq::system_error& e) {
                ended += e.code() == errc::closed || e.code() == errc::not_found ? 1 : 0;
            }
        });
        std::this_thread::yield();
        broker.close();
        for (auto& t : threads) {
            t.join();
        }
        CHECK(ended == 4);
    }
}

TEST_CASE("a transaction that finds its queue full is as it was") {
    railmq::broker broker;
    auto q = broker.queue<int>("q", {.max_length = 8});
    constexpr int each = 5'000;
    std::thread plain{[&] {
        auto p = q.producer();
        for (int n = 0; n < each; ++n) { // never waits, so its fast lane stays open
            while (!p.try_send(-1)) {
                std::this_thread::yield();
            }
        }
    }};
    std::thread joint{[&] {
        auto p = q.producer();
        auto tx = broker.begin();
        for (int n = 0; n < each; ++n) {
            for (int i = 0; i < 4; ++i) {
                tx.send(p, 4 * n + i);
            }
            error_code ec;
            do {
                (void)tx.commit(ec);
            } while (ec == errc::queue_full && !tx.is_empty());
        }
    }};
    auto c = q.consumer();
    int next = 0;
    bool in_order = true;
    for (int n = 0; n < 5 * each; ++n) {
        auto d = c.receive(10s);
        if (!d) {
            break;
        }
        if (d->value() != -1) {
            in_order = in_order && d->value() == next++;
        }
        d->ack();
    }
    plain.join();
    joint.join();
    CHECK(in_order);
    CHECK(next == 4 * each);
}
