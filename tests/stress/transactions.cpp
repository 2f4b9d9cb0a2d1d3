// SPDX-License-Identifier: BSL-1.0
//
// Transactions over queues, logs, groups and subscriptions, all at once: whatever goes in comes out
// once, however often somebody gives up or leaves. Under ThreadSanitizer also the order in which
// locks are taken.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"
#include "support/worlds.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::test;
using railmq::errc;
using railmq::error_code;

namespace {

constexpr int records = 3'000;
constexpr std::uint32_t partitions = 3;

/// What may end a transaction here: somebody else has what it took.
[[nodiscard]] bool is_expected(error_code ec) {
    return ec == errc::stale_delivery || ec == errc::fenced || ec == errc::unknown_member ||
           ec == errc::sequence_out_of_order;
}

struct state {
    explicit state(railmq::broker& b)
        : broker{b} {}
    railmq::broker& broker;
    std::atomic<bool> is_over{false};
    std::atomic<int> wrong{0};
    std::atomic<int> dropped{0};
};

/// The log `in` to the log `out` and the queue `audit`.
void transform(state& s, std::uint64_t seed) {
    railmq::random_engine random{seed};
    const auto one_in = [&](std::uint64_t n) { return railmq::uniform_below(random, n) == 0; };
    auto in = s.broker.log<int>("in", {.partitions = partitions});
    auto out = s.broker.log<int>("out", {.partitions = partitions}).producer();
    auto audit = s.broker.queue<int>("audit").producer();
    const bool commits_offsets = seed % 2 == 0;
    std::optional<railmq::log_consumer<int>> c;
    std::vector<railmq::log_delivery<int>> batch;
    while (!s.is_over) {
        if (!c) {
            c.emplace(in.consumer(
                {.group = "g",
                 .retry_backoff = railmq::constant_backoff{.delay = 0s},
                 .auto_commit = !commits_offsets}));
        }
        c->receive_batch(batch, 8, 1ms);
        auto tx = s.broker.begin();
        for (auto& d : batch) {
            tx.send(out, std::to_string(d.value()), d.value());
            tx.send(audit, d.value());
            tx.ack(d);
        }
        if (commits_offsets) {
            tx.commit_offsets(*c);
        }
        const bool leaves = one_in(40);
        if (leaves && one_in(2)) {
            c.reset(); // what it holds is not its own any more
        }
        error_code ec;
        if (one_in(10)) {
            tx.abort();
            ++s.dropped;
        } else {
            tx.commit(ec);
        }
        if (ec) {
            s.wrong += is_expected(ec) ? 0 : 1;
            tx.abort();
        }
        if (leaves) {
            c.reset();
        }
    }
}

/// A queue, or a subscription, to wherever `send` says.
template <class Send>
void pass_on(state& s, const railmq::queue<int>& from, std::uint64_t seed, Send&& send) {
    railmq::random_engine random{seed};
    auto c = from.consumer();
    std::vector<railmq::delivery<int>> batch;
    while (!s.is_over) {
        c.receive_batch(batch, 1 + railmq::uniform_below(random, 8), 1ms);
        auto tx = s.broker.begin();
        for (auto& d : batch) {
            send(tx, d.value());
            tx.ack(d);
        }
        if (railmq::uniform_below(random, 10) == 0) {
            continue; // dropped
        }
        error_code ec;
        tx.commit(ec);
        s.wrong += ec ? 1 : 0;
    }
}

/// Runs until the log `done` has as many records as went in. Returns how often each is there.
[[nodiscard]] std::map<int, int> run(state& s, std::vector<std::thread>& threads) {
    auto in = s.broker.log<int>("in", {.partitions = partitions});
    auto done = s.broker.log<int>("done", {.partitions = 2});
    for (std::uint64_t n = 1; n <= 3; ++n) {
        threads.emplace_back([&s, n] { transform(s, n); });
    }
    threads.emplace_back([in] {
        auto p = in.producer({.producer_id = 1});
        for (int n = 0; n < records; ++n) {
            p.send(std::to_string(n), n);
        }
    });
    std::map<int, int> times;
    auto reader = done.consumer();
    for (int n = 0; n < records; ++n) {
        auto d = reader.receive(long_time);
        if (!d) {
            break;
        }
        ++times[d->value()];
    }
    s.is_over = true;
    for (auto& t : threads) {
        t.join();
    }
    while (auto d = reader.try_receive()) { // more than there should be
        ++times[d->value()];
    }
    return times;
}

void check(state& s, const std::map<int, int>& times) {
    CHECK(s.wrong == 0);
    CHECK(s.dropped > 0);
    CHECK(times.size() == std::size_t{records});
    for (const auto& [value, n] : times) {
        if (n != 1) {
            CHECK(n == 1);
            INFO(value);
        }
    }
    auto out = s.broker.find_log<int>("out");
    std::uint64_t stored = 0;
    for (std::uint32_t p = 0; p < partitions; ++p) {
        stored += out->end_offset(p);
    }
    CHECK(stored == std::uint64_t{records});
}

} // namespace

TEST_CASE("a log to a queue to a topic to a log, in transactions: all of it, once") {
    railmq::broker broker;
    state s{broker};
    auto topic = broker.topic<int>("t");
    auto subscription = topic.subscribe("s");
    auto other = topic.subscribe("other");
    auto done = broker.log<int>("done", {.partitions = 2});
    std::vector<std::thread> threads;
    for (std::uint64_t n = 0; n < 2; ++n) {
        threads.emplace_back([&, n] {
            auto to_topic = topic.producer();
            pass_on(s, broker.queue<int>("audit"), 10 + n, [&](auto& tx, int value) {
                tx.send(to_topic, value);
            });
        });
        threads.emplace_back([&, n] {
            auto p = done.producer();
            auto to_queue = broker.queue<int>("seen").producer();
            auto back = topic.producer();
            pass_on(s, subscription, 20 + n, [&](auto& tx, int value) {
                if (value < 0) {
                    return;
                }
                tx.send(p, value);
                tx.send(to_queue, value);
                if (value % 16 == 0) {
                    tx.send(back, -1); // to the topic that this one is from
                }
            });
        });
    }
    threads.emplace_back([&] { // the same topic's other subscription, without transactions
        auto c = other.consumer();
        auto seen = broker.queue<int>("seen").consumer();
        while (!s.is_over) {
            if (auto d = c.receive(1ms)) {
                d->ack();
            }
            while (auto d = seen.try_receive()) {
                d->ack();
            }
        }
    });
    const auto times = run(s, threads);
    check(s, times);
}

TEST_CASE("the same in a directory") {
    scratch_directory where;
    std::map<int, int> times;
    {
        railmq::broker broker{
            {.directory = where.path, .durability = railmq::durability::accepted}};
        state s{broker};
        auto done = broker.log<int>("done", {.partitions = 2});
        std::vector<std::thread> threads;
        for (std::uint64_t n = 0; n < 2; ++n) {
            threads.emplace_back([&, n] {
                auto p = done.producer({.producer_id = n});
                pass_on(s, broker.queue<int>("audit"), 10 + n, [&](auto& tx, int value) {
                    tx.send(p, value);
                });
            });
        }
        times = run(s, threads);
        check(s, times);
    }
    railmq::broker again{{.directory = where.path}};
    std::map<int, int> kept;
    auto reader = again.log<int>("done", {.partitions = 2}).consumer();
    while (auto d = reader.try_receive()) {
        ++kept[d->value()];
    }
    CHECK(kept == times);
    auto in = again.log<int>("in", {.partitions = partitions});
    for (std::uint32_t p = 0; p < partitions; ++p) {
        CHECK(in.committed("g", p) == in.end_offset(p));
    }
}
