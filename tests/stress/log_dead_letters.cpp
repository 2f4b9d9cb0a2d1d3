// SPDX-License-Identifier: BSL-1.0
//
// Members whose records fail and are rejected, on threads of their own and on others, into a queue
// that is often full: each record is done or is a dead letter.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::test;

TEST_CASE("stress: what is given up anywhere is a dead letter, and nothing is passed without") {
    constexpr int records = 6'000;
    railmq::broker broker;
    const auto parking = broker.queue<int>(
        "parking",
        {.max_length = 8,
         .overflow = railmq::overflow_policy::reject,
         .dead_letter = railmq::discard});
    const auto log = broker.log<int>("log", {.partitions = 4});
    std::vector<std::atomic<bool>> done(records);
    std::atomic<int> count{0};
    std::atomic<int> dead{0};
    std::atomic<bool> is_over{false};
    const auto note = [&](int value) {
        if (!done[static_cast<std::size_t>(value)].exchange(true)) {
            ++count;
        }
    };
    std::mutex mutex;
    std::vector<railmq::log_delivery<int>> elsewhere;
    const auto settle = [&](railmq::log_delivery<int> d) {
        if (d.value() % 7 == 0) {
            d.reject("seven");
        } else if (d.value() % 11 == 0) {
            d.nack();
        } else {
            note(d.value());
            d.ack();
        }
    };
    std::vector<std::thread> threads;
    for (int m = 0; m < 2; ++m) {
        threads.emplace_back([&, m] {
            while (!is_over) {
                auto member = log.consumer(
                    {.group = "g",
                     .retry_backoff = railmq::constant_backoff{.delay = 1ms},
                     .max_attempts = 2,
                     .dead_letter = "parking"});
                for (int batch = 0; batch < 200 + 100 * m && !is_over; ++batch) {
                    for (auto& d : member.receive_batch(16, 5ms)) {
                        if (d.offset() % 3 == 0) {
                            const std::lock_guard guard{mutex};
                            elsewhere.push_back(std::move(d));
                        } else {
                            settle(std::move(d));
                        }
                    }
                }
            }
        });
    }
    threads.emplace_back([&] {
        while (!is_over) {
            std::vector<railmq::log_delivery<int>> some;
            {
                const std::lock_guard guard{mutex};
                some.swap(elsewhere);
            }
            for (auto& d : some) {
                settle(std::move(d));
            }
            std::this_thread::yield();
        }
        const std::lock_guard guard{mutex};
        elsewhere.clear();
    });
    threads.emplace_back([&] {
        auto consumer = parking.consumer();
        while (!is_over) {
            if (auto d = consumer.receive(1ms)) {
                ++dead;
                note(d->value());
                d->ack();
            }
        }
    });
    auto producer = log.producer();
    for (int n = 0; n < records; ++n) {
        producer.send(n);
    }
    const auto until = std::chrono::steady_clock::now() + long_time * 2;
    while (count < records && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
    }
    is_over = true;
    for (auto& t : threads) {
        t.join();
    }
    CHECK(count == records);
    CHECK(dead >= records / 7 + records / 11 - records / 77);
    const auto stats = log.stats("g");
    CHECK(stats.dead_lettered >= static_cast<std::uint64_t>(dead));
    CHECK(stats.members == 0);
}
