// SPDX-License-Identifier: BSL-1.0
//
// Producers, and members of a group that come and go: every record is worked on, and no commit
// passes one that was not.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::test;

namespace {

constexpr std::uint32_t partitions = 4;
constexpr int records_each = 20'000;

/// What was acknowledged, by partition and offset.
struct ledger {
    ledger() {
        for (auto& p : done) {
            p = std::vector<std::atomic<bool>>(2 * records_each);
        }
    }
    std::vector<std::vector<std::atomic<bool>>> done{partitions};
    std::atomic<int> count{0};

    void note(std::uint32_t partition, std::uint64_t offset) {
        if (!done[partition][static_cast<std::size_t>(offset)].exchange(true)) {
            ++count;
        }
    }
};

} // namespace

TEST_CASE("two producers, three members that join and leave: nothing is skipped") {
    railmq::broker broker;
    const auto log =
        broker.log<std::string>("log", {.partitions = partitions, .segment_records = 500});
    ledger work;
    std::atomic<bool> is_over{false};
    std::atomic<int> skipped{0};
    std::atomic<int> rebalances{0};

    std::vector<std::thread> threads;
    for (int p = 0; p < 2; ++p) {
        threads.emplace_back([&log, p] {
            auto producer = log.producer({.producer_id = static_cast<std::uint64_t>(p)});
            for (int n = 0; n < records_each; ++n) {
                producer.send(std::to_string(n % 97), std::to_string(n));
            }
        });
    }
    for (int m = 0; m < 3; ++m) {
        threads.emplace_back([&, m] {
            while (!is_over) {
                auto member = log.consumer(
                    {.group = "g",
                     .retry_backoff = railmq::constant_backoff{.delay = 0s},
                     .on_assigned = [&](const railmq::partition_numbers&) { ++rebalances; }});
                for (int batch = 0; batch < 50 + 20 * m && !is_over; ++batch) {
                    auto some = member.receive_batch(32, 10ms);
                    for (std::size_t i = some.size(); i-- > 0;) { // backwards: out of order
                        if ((some[i].offset() + static_cast<std::uint64_t>(batch)) % 41 == 0) {
                            some[i].nack();
                            continue;
                        }
                        // Noted first: it may be committed as soon as it is acknowledged.
                        work.note(some[i].partition(), some[i].offset());
                        some[i].ack();
                    }
                }
            }
        });
    }
    threads.emplace_back([&] {
        while (!is_over) {
            for (std::uint32_t p = 0; p < partitions; ++p) {
                const auto committed = log.groups().empty() ? std::nullopt : log.committed("g", p);
                for (std::uint64_t o = 0; committed && o < *committed; ++o) {
                    skipped += work.done[p][static_cast<std::size_t>(o)] ? 0 : 1;
                }
            }
            std::this_thread::yield();
        }
    });
    const auto until = std::chrono::steady_clock::now() + long_time * 2;
    while (work.count < 2 * records_each && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
    }
    is_over = true;
    for (auto& t : threads) {
        t.join();
    }
    CHECK(work.count == 2 * records_each);
    CHECK(skipped == 0);
    CHECK(rebalances > 3);
    std::uint64_t committed = 0;
    for (std::uint32_t p = 0; p < partitions; ++p) {
        committed += log.committed("g", p).value_or(0);
    }
    CHECK(committed == 2 * records_each); // each has closed in order
    CHECK(log.members("g") == 0);
    CHECK(log.stats().records == 2 * records_each);
}

TEST_CASE("stress: a group that is deleted while somebody joins has him, or another does") {
    railmq::broker broker;
    auto log = broker.log<int>("l", {.partitions = 1});
    std::atomic<bool> is_over{false};
    std::atomic<int> deleted{0};
    const auto remove = [&] {
        while (!is_over) {
            try {
                log.delete_group("g");
                ++deleted;
            } catch (const railmq::system_error&) { // it has a member, or there is none
            }
        }
    };
    std::thread one{remove};
    std::thread two{remove};
    int astray = 0;
    for (int i = 0; i < 3'000; ++i) {
        const auto member = log.consumer({.group = "g"});
        try {
            astray += log.members("g") == 1 ? 0 : 1;
        } catch (const railmq::system_error&) {
            ++astray; // he is in a group that nobody can find
        }
    }
    is_over = true;
    one.join();
    two.join();
    CHECK(astray == 0);
    CHECK(deleted > 0);
}
