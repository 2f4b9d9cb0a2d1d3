// SPDX-License-Identifier: BSL-1.0
//
// What does it cost to keep a record? Appended in groups that are synced, by callers who each wait
// for their own, in groups that only have to survive the process, and read again. Records of 100
// bytes. RailMQ's journal beside what one would write by hand with the same checksum, embedded
// stores, and servers on loopback. What a sync costs changes by the hour: only ratios count, and
// the loop by hand runs beside everything.
#include "support/durable/files.hpp"
#include "support/durable/introduce.hpp"
#include "support/durable/log.hpp"
#include "support/durable/servers.hpp"
#include "support/durable/stores.hpp"
#include "support/harness.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace bench;

/// Appends them all in groups, after one group to warm up.
template <record_log Log>
auto in_groups_of(std::size_t group, safety safe, const std::string& place) {
    return [=](std::uint64_t messages) {
        const fresh_directory where{place};
        const auto payload = hundred_bytes();
        Log log{where.path(), safe};
        const auto append_group = [&] {
            for (std::size_t i = 0; i < group; ++i) {
                log.append(payload);
            }
            log.commit();
        };
        append_group();
        const auto begin = steady::now();
        for (std::uint64_t done = 0; done < messages; done += group) {
            append_group();
        }
        return nanoseconds_between(begin, steady::now()) / static_cast<double>(messages);
    };
}

/// Threads that each wait for their record before they append the next one. Also tells how many
/// records shared a sync.
template <class Log>
auto by_callers(std::size_t callers, const std::string& place) {
    return [=](std::uint64_t messages) {
        const fresh_directory where{place};
        Log log{where.path()};
        const std::uint64_t each = messages / callers;
        std::atomic<std::size_t> ready = 0;
        std::atomic<bool> may_begin = false;
        std::atomic<bool> has_failed = false;
        std::vector<std::thread> running;
        for (std::size_t caller = 0; caller < callers; ++caller) {
            running.emplace_back([&] {
                const auto payload = hundred_bytes();
                ++ready;
                may_begin.wait(false);
                try {
                    for (std::uint64_t i = 0; i < each; ++i) {
                        log.append_and_wait(payload);
                    }
                } catch (const std::exception&) {
                    has_failed = true;
                }
            });
        }
        while (ready != callers) {
            std::this_thread::yield();
        }
        const std::uint64_t syncs = log.syncs();
        const auto begin = steady::now();
        may_begin = true;
        may_begin.notify_all();
        for (auto& caller : running) {
            caller.join();
        }
        const double elapsed = nanoseconds_between(begin, steady::now());
        require(!has_failed, "a caller failed");
        const auto records = static_cast<double>(each * callers);
        return std::vector{elapsed / records, records / static_cast<double>(log.syncs() - syncs)};
    };
}

/// Reads all that a log has kept; it is written at the first run.
template <record_log Log, record_reader Reader>
auto read_again(const std::string& place) {
    struct kept {
        explicit kept(const std::string& in, std::uint64_t messages)
            : where{in} {
            const auto payload = hundred_bytes();
            Log log{where.path(), safety::process};
            for (std::uint64_t done = 1; done <= messages; ++done) {
                log.append(payload);
                if (done % 1000 == 0 || done == messages) {
                    log.commit();
                }
            }
        }
        fresh_directory where;
        std::unique_ptr<Reader> reader{};
    };
    return [place, slot = std::make_shared<std::unique_ptr<kept>>()](std::uint64_t messages) {
        auto& data = *slot;
        if (data == nullptr) {
            data = std::make_unique<kept>(place, messages);
            data->reader = std::make_unique<Reader>(data->where.path());
            require(data->reader->read_all() == messages, "not everything is there");
        }
        const auto begin = steady::now();
        const std::uint64_t read = data->reader->read_all();
        const double elapsed = nanoseconds_between(begin, steady::now());
        require(read == messages, "not everything is there");
        return elapsed / static_cast<double>(read);
    };
}

table synced_groups(
    std::size_t group,
    std::uint64_t messages,
    const std::string& place,
    const std::vector<expectation>& expected) {
    table rows{
        .id = "P7." + std::to_string(group),
        .title = "appended and synced in groups of " + std::to_string(group),
        .columns = {"ns/record"},
        .references = {peer::raw},
        .messages = messages,
    };
    constexpr auto safe = safety::power;
    rows.add(peer::raw, in_groups_of<raw_log>(group, safe, place));
#if RAILMQ_HAVE_SQLITE
    rows.add(peer::sqlite_full, in_groups_of<sqlite_log<true>>(group, safe, place));
    rows.add(peer::sqlite_normal, in_groups_of<sqlite_log<false>>(group, safe, place));
#endif
#if RAILMQ_HAVE_LMDB
    rows.add(peer::lmdb, in_groups_of<lmdb_log>(group, safe, place));
#endif
#if RAILMQ_HAVE_ROCKSDB
    rows.add(peer::rocksdb, in_groups_of<rocksdb_log>(group, safe, place));
#endif
    rows.add(peer::journal, in_groups_of<journal_log>(group, safe, place), expected);
    if (group >= batch_journal_log::most) {
        rows.add(
            peer::journal_batches, in_groups_of<batch_journal_log>(group, safe, place), expected);
    }
    return rows;
}

table waiting_callers(
    std::size_t callers, std::uint64_t messages, const std::string& place, expectation expected) {
    table rows{
        .id = "P7b." + std::to_string(callers),
        .title = std::to_string(callers) + " callers, each waits until its record is synced",
        .columns = {"ns/record", "per sync"},
        .references = {peer::leader},
        .messages = messages,
    };
    rows.add(peer::leader, by_callers<leader_log>(callers, place));
    rows.add(peer::journal, by_callers<shared_journal_log>(callers, place), {std::move(expected)});
    return rows;
}

table written_groups(std::uint64_t messages, const std::string& place) {
    constexpr std::size_t group = 1000;
    table rows{
        .id = "P7c",
        .title = "appended in groups of 1000, not synced",
        .columns = {"ns/record"},
        .references = {peer::raw, peer::lmdb},
        .messages = messages,
    };
    constexpr auto safe = safety::process;
    rows.add(peer::raw, in_groups_of<raw_log>(group, safe, place));
#if RAILMQ_HAVE_LMDB
    rows.add(peer::lmdb, in_groups_of<lmdb_log>(group, safe, place));
#endif
#if RAILMQ_HAVE_ROCKSDB
    rows.add(peer::rocksdb, in_groups_of<rocksdb_log>(group, safe, place));
#endif
#if RAILMQ_HAVE_REDIS
    if (!path_of("redis-server").empty()) {
        rows.add(peer::redis, in_groups_of<redis_log>(100, safe, place));
    }
#endif
#if RAILMQ_HAVE_NATS
    if (!path_of("nats-server").empty()) {
        // In one group: the client itself limits how many are outstanding.
        rows.add(peer::nats, in_groups_of<nats_log>(messages, safe, place));
    }
#endif
    const std::vector expected{
        compared_with(peer::raw),
        times_as_fast(peer::lmdb, 2, 3),
        times_as_fast(peer::rocksdb, 15, 30),
        times_as_fast(peer::redis, 80, 150),
        times_as_fast(peer::nats, 100, 200)};
    rows.add(peer::journal, in_groups_of<journal_log>(group, safe, place), expected);
    rows.add(peer::journal_batches, in_groups_of<batch_journal_log>(group, safe, place), expected);
    return rows;
}

table replay(std::uint64_t bytes, const std::string& place) {
    table rows{
        .id = "P9",
        .title = "read again from the page cache, checksums verified",
        .columns = {"ns/record"},
        .references = {peer::raw, peer::lmdb},
        .messages = bytes / 108,
    };
    rows.add(peer::raw, read_again<raw_log, raw_reader>(place));
#if RAILMQ_HAVE_LMDB
    rows.add(peer::lmdb, read_again<lmdb_log, lmdb_reader>(place));
#endif
#if RAILMQ_HAVE_SQLITE
    rows.add(peer::sqlite, read_again<sqlite_log<false>, sqlite_reader>(place));
#endif
#if RAILMQ_HAVE_ROCKSDB
    rows.add(peer::rocksdb, read_again<rocksdb_log, rocksdb_reader>(place));
#endif
    const std::vector expected{
        times_as_fast(peer::raw, 0.85, 1),
        times_as_fast(peer::lmdb, 1.4, 1.8),
        times_as_fast(peer::sqlite, 5, 6.5),
        times_as_fast(peer::rocksdb, 10, 13)};
    rows.add(peer::journal, read_again<journal_log, journal_reader>(place), expected);
    rows.add(
        peer::journal_batches,
        read_again<batch_journal_log, batch_journal_reader>(place),
        expected);
    return rows;
}

void add_all(harness& all, const arguments& given, const std::string& place) {
    const std::uint64_t scale = given.quick ? 1 : 4;
    const auto by_hand = times_as_fast(peer::raw, 0.7, 0.9);
    all.add(synced_groups(1, 100 * scale, place, {by_hand}));
    all.add(synced_groups(100, 5'000 * scale, place, {by_hand}));
    all.add(synced_groups(
        1'000,
        25'000 * scale,
        place,
        {by_hand,
         times_as_fast(peer::sqlite_full, 2, 2.5),
         times_as_fast(peer::rocksdb, 2, 2.5),
         times_as_fast(peer::lmdb, 1, 1.3)}));
    all.add(synced_groups(10'000, 50'000 * scale, place, {by_hand}));
    all.add(waiting_callers(16, 2'000 * scale, place, times_as_fast(peer::leader, 1.2, 1.8)));
    all.add(waiting_callers(64, 3'200 * scale, place, times_as_fast(peer::leader, 1.5, 2.2)));
    all.add(written_groups(25'000 * scale, place));
    all.add(replay((given.quick ? 32 : given.megabytes) << 20, place));
}

} // namespace

int main(int argc, char** argv) {
    const auto given = bench::parse_arguments(argc, argv);
    const std::string place = bench::durable_place(given.directory);
    bench::introduce(place);
    bench::harness all{"durable", given};
    add_all(all, given, place);
    return all.run();
}
