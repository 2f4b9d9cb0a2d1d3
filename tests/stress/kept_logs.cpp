// SPDX-License-Identifier: BSL-1.0
//
// Logs in a directory under load from all sides: producers, members of a group, removal, logs that
// are made, opened and deleted, while the upkeep goes its rounds. Opened again, all that was
// confirmed is there, once, and no commit has gone back.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::errc;

namespace {

constexpr std::uint32_t partitions = 3;
constexpr int records_each = 15'000;
const railmq::log_options plain{.partitions = partitions, .segment_records = 200};
const railmq::log_options state{
    .cleanup = railmq::log_cleanup::compact, .segment_records = 50, .min_dirty_ratio = 0.1};

} // namespace

TEST_CASE("producers, members, removal and upkeep of logs in a directory, all at once") {
    const railmq::test::scratch_directory scratch;
    const railmq::broker_options options{
        .directory = scratch.path + "/broker",
        .durability = durability::written,
        .journal = {.segment_bytes = 32 << 10, .headroom_bytes = 8 << 10}};
    std::array<std::uint64_t, partitions> end{};
    std::array<std::uint64_t, partitions> start{};
    std::array<std::uint64_t, partitions> committed{};
    {
        railmq::broker broker{options};
        const auto log = broker.log<std::string>("log", plain);
        const auto prices = broker.log<std::string>("prices", state);
        (void)broker.log<int>("asleep").producer().send(7);
        std::atomic<int> producing{2};
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (int p = 0; p < 2; ++p) {
            threads.emplace_back([&, p] {
                auto producer = log.producer({.producer_id = static_cast<std::uint64_t>(p)});
                auto of_prices = prices.producer({.durability = durability::accepted});
                for (int n = 0; n < records_each; ++n) {
                    producer.send(
                        "p" + std::to_string(p),
                        std::to_string(n),
                        railmq::append_options{
                            .partition = static_cast<std::uint32_t>(n) % partitions});
                    if (n % 3 == 0) {
                        of_prices.send("k" + std::to_string(n % 20), std::to_string(n));
                    }
                }
                --producing;
            });
        }
        for (int m = 0; m < 2; ++m) {
            threads.emplace_back([&] {
                while (producing != 0) {
                    auto member = log.consumer({.group = "g"});
                    for (int n = 0; n < 300 && producing != 0; ++n) {
                        for (auto& d : member.receive_batch(16, 5ms)) {
                            if (!d.ack()) {
                                ++wrong;
                            }
                        }
                    }
                    member.commit();
                }
            });
        }
        threads.emplace_back([&] {
            for (int n = 0; producing != 0; ++n) {
                const std::uint32_t p = static_cast<std::uint32_t>(n) % partitions;
                if (const auto done = log.groups().empty() ? 0U : log.committed("g", p)) {
                    log.delete_records(p, *done / 2);
                }
                (void)prices.compact();
                auto passing = broker.log<int>("passing." + std::to_string(n % 3));
                passing.producer().send(n);
                if (n % 2 == 0) {
                    broker.delete_log(passing.name());
                }
                broker.sync();
            }
        });
        for (auto& t : threads) {
            t.join();
        }
        CHECK(wrong == 0);
        for (std::uint32_t p = 0; p < partitions; ++p) {
            end[p] = log.end_offset(p);
            start[p] = log.start_offset(p);
            committed[p] = log.committed("g", p).value_or(0);
        }
        CHECK(end[0] + end[1] + end[2] == 2 * records_each);
    }
    railmq::broker broker{options};
    const auto log = broker.log<std::string>("log", plain);
    for (std::uint32_t p = 0; p < partitions; ++p) {
        CHECK(log.end_offset(p) == end[p]);
        CHECK(log.start_offset(p) == start[p]);
        CHECK(log.committed("g", p) == committed[p]);
        // Of each producer every number comes once, in order, from some one on.
        std::array<int, 2> last{-1, -1};
        auto reader = log.consumer({.partitions = {p}});
        std::uint64_t next = start[p];
        while (auto d = reader.try_receive()) {
            REQUIRE(d->offset() == next);
            ++next;
            int& before = last[static_cast<std::size_t>(d->key()->back() - '0')];
            const int n = std::stoi(d->value());
            REQUIRE((before == -1 || n == before + static_cast<int>(partitions)));
            before = n;
        }
        CHECK(next == end[p]);
    }
    const auto prices = broker.log<std::string>("prices", state);
    CHECK(prices.end_offset(0) == 2 * ((records_each + 2) / 3));
    CHECK(broker.log<int>("asleep").consumer().try_receive()->value() == 7);
}
