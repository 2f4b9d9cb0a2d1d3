// SPDX-License-Identifier: BSL-1.0
//
// What does a queue cost that is there again after a crash? Messages of 100 bytes are enqueued,
// leased and acknowledged by a broker with a directory, synced and not, in batches and one by one;
// and a journal is opened again. Beside it run the least that a program would do by hand, tables
// of embedded stores, and servers on loopback. What a sync costs changes by the hour: only ratios
// count.
#include "support/durable/introduce.hpp"
#include "support/durable/kept_journals.hpp"
#include "support/durable/server_queues.hpp"
#include "support/durable/store_queues.hpp"
#include "support/durable/work_queue.hpp"
#include "support/harness.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace bench;
using railmq::durability;

/// Hands them all through in batches, after one batch to warm up.
template <work_queue Queue, class... Options>
auto in_cycles_of(std::size_t batch, const std::string& place, Options... options) {
    return [=](std::uint64_t messages) {
        const fresh_directory where{place};
        const auto payload = hundred_bytes();
        Queue queue{where.path(), options...};
        const auto cycle = [&] {
            queue.enqueue(payload, batch);
            queue.lease(batch);
            queue.acknowledge();
        };
        cycle();
        const auto begin = steady::now();
        for (std::uint64_t done = 0; done < messages; done += batch) {
            cycle();
        }
        return nanoseconds_between(begin, steady::now()) / static_cast<double>(messages);
    };
}

/// With more messages, for those that are so fast that a run would not fill a segment.
template <class Run>
auto times_as_many(std::uint64_t factor, Run run) {
    return [=](std::uint64_t messages) { return run(messages * factor); };
}

void add_synced_peers(table& rows, std::size_t batch, const std::string& place) {
    constexpr auto safe = safety::power;
    rows.add(peer::queue_by_hand, in_cycles_of<queue_by_hand>(batch, place, safe));
#if RAILMQ_HAVE_SQLITE
    rows.add(peer::sqlite_full, in_cycles_of<sqlite_queue>(batch, place, safe));
#endif
#if RAILMQ_HAVE_LMDB
    rows.add(peer::lmdb, in_cycles_of<lmdb_queue>(batch, place, safe));
#endif
#if RAILMQ_HAVE_ROCKSDB
    rows.add(peer::rocksdb, in_cycles_of<rocksdb_queue>(batch, place, safe));
#endif
#if RAILMQ_HAVE_REDIS
    if (!path_of("redis-server").empty()) {
        rows.add(peer::redis_always, in_cycles_of<redis_queue>(batch, place, safe));
    }
#endif
}

void add_unsynced_peers(
    table& rows, std::size_t batch, std::uint64_t longer, const std::string& place) {
    constexpr auto safe = safety::process;
    rows.add(
        peer::queue_by_hand,
        times_as_many(longer, in_cycles_of<queue_by_hand>(batch, place, safe)));
#if RAILMQ_HAVE_SQLITE
    rows.add(peer::sqlite_normal, in_cycles_of<sqlite_queue>(batch, place, safe));
#endif
#if RAILMQ_HAVE_LMDB
    rows.add(peer::lmdb, times_as_many(longer, in_cycles_of<lmdb_queue>(batch, place, safe)));
#endif
#if RAILMQ_HAVE_ROCKSDB
    rows.add(peer::rocksdb, in_cycles_of<rocksdb_queue>(batch, place, safe));
#endif
#if RAILMQ_HAVE_REDIS
    if (!path_of("redis-server").empty()) {
        rows.add(peer::redis_everysec, in_cycles_of<redis_queue>(batch, place, safe));
    }
#endif
#if RAILMQ_HAVE_NATS
    // One by one, its client's habit of gathering for a millisecond would be measured.
    if (batch > 1 && !path_of("nats-server").empty()) {
        rows.add(peer::nats_queue, in_cycles_of<nats_queue>(batch, place, safe));
    }
#endif
}

void add_railmq(
    table& rows,
    std::size_t batch,
    std::uint64_t longer,
    const std::string& place,
    const std::vector<expectation>& expected) {
    rows.add(
        peer::railmq_kept,
        times_as_many(longer, in_cycles_of<kept_queue>(batch, place, durability::written)),
        expected);
    rows.add(
        peer::railmq_accepted,
        times_as_many(longer, in_cycles_of<kept_queue>(batch, place, durability::accepted)));
}

table synced_batches(std::uint64_t messages, const std::string& place) {
    table rows{
        .id = "P8",
        .title = "enqueue, lease, acknowledge in batches of 100, synced",
        .references = {peer::queue_by_hand, peer::sqlite_full},
        .messages = messages,
    };
    add_synced_peers(rows, 100, place);
    rows.add(
        peer::railmq_kept,
        in_cycles_of<kept_queue>(100, place, durability::synced),
        {compared_with(peer::queue_by_hand),
         times_as_fast(peer::sqlite_full, 2.5, 4),
         compared_with(peer::lmdb),
         compared_with(peer::rocksdb),
         times_as_fast(peer::redis_always, 1.5, 2.5)});
    rows.add(
        peer::railmq_acks_synced,
        in_cycles_of<kept_queue>(100, place, durability::synced, true),
        {compared_with(peer::sqlite_full), compared_with(peer::redis_always)});
    return rows;
}

table unsynced_batches(std::uint64_t messages, const std::string& place) {
    table rows{
        .id = "P8b",
        .title = "enqueue, lease, acknowledge in batches of 100, not synced",
        .references = {peer::queue_by_hand, peer::lmdb},
        .messages = messages,
    };
    add_unsynced_peers(rows, 100, 10, place);
    add_railmq(
        rows,
        100,
        10,
        place,
        {compared_with(peer::queue_by_hand),
         times_as_fast(peer::sqlite_normal, 25, 50),
         times_as_fast(peer::lmdb, 3, 4),
         compared_with(peer::rocksdb),
         times_as_fast(peer::redis_everysec, 35, 70),
         times_as_fast(peer::nats_queue, 50, 100)});
    return rows;
}

table synced_one_by_one(std::uint64_t messages, const std::string& place) {
    table rows{
        .id = "P8c.synced",
        .title = "enqueue, lease, acknowledge one by one, synced",
        .references = {peer::queue_by_hand, peer::sqlite_full},
        .messages = messages,
    };
    add_synced_peers(rows, 1, place);
    rows.add(
        peer::railmq_kept,
        in_cycles_of<kept_queue>(1, place, durability::synced),
        {compared_with(peer::queue_by_hand),
         times_as_fast(peer::sqlite_full, 2, 3),
         compared_with(peer::redis_always)});
    rows.add(
        peer::railmq_acks_synced,
        in_cycles_of<kept_queue>(1, place, durability::synced, true),
        {compared_with(peer::sqlite_full)});
    return rows;
}

table unsynced_one_by_one(std::uint64_t messages, const std::string& place) {
    table rows{
        .id = "P8c.unsynced",
        .title = "enqueue, lease, acknowledge one by one, not synced",
        .references = {peer::queue_by_hand, peer::sqlite_normal},
        .messages = messages,
    };
    add_unsynced_peers(rows, 1, 10, place);
    add_railmq(
        rows,
        1,
        10,
        place,
        {compared_with(peer::queue_by_hand),
         times_as_fast(peer::sqlite_normal, 20, 40),
         compared_with(peer::lmdb),
         times_as_fast(peer::redis_everysec, 20, 40)});
    return rows;
}

namespace peer {

const std::string reading = "reading its files once";
const std::string reading_and_summing = "reading them once, with a checksum";
const std::string after_closing = "opening, closed";
const std::string after_crash = "opening, crashed";
const std::string after_crash_singles = "opening, crashed, sent one by one";
const std::string after_crash_unsynced = "opening, crashed, never synced";

} // namespace peer

table opening(std::uint64_t bytes, const std::string& place) {
    table rows{
        .id = "P13",
        .title = "opening a journal of " + std::to_string(bytes >> 20) + " MiB, 100 messages left",
        .columns = {"ms"},
        .references = {peer::reading},
        .messages = bytes,
    };
    // Made when they are first wanted.
    const auto made = [&](std::size_t group, kept_journal::end how) {
        return [=, slot = std::make_shared<std::unique_ptr<kept_journal>>()]() -> kept_journal& {
            if (*slot == nullptr) {
                *slot = std::make_unique<kept_journal>(place, bytes, group, how);
            }
            return **slot;
        };
    };
    const auto crashed = made(100, kept_journal::end::synced);
    for (const bool with_checksum : {false, true}) {
        rows.add(with_checksum ? peer::reading_and_summing : peer::reading, [=](std::uint64_t) {
            const std::string path = crashed().path();
            const auto begin = steady::now();
            read_files(path, with_checksum);
            return nanoseconds_between(begin, steady::now()) * 1e-6;
        });
    }
    const auto add = [&](const std::string& name, auto journal, expectation expected) {
        rows.add(name, [=](std::uint64_t) { return journal().open(); }, {std::move(expected)});
    };
    add(peer::after_closing,
        made(100, kept_journal::end::closed),
        costs_at_most(peer::reading, 0.3, 0.1));
    add(peer::after_crash, crashed, costs_at_most(peer::reading, 2, 1.3));
    add(peer::after_crash_singles,
        made(1, kept_journal::end::synced),
        costs_at_most(peer::reading, 0, 0));
    add(peer::after_crash_unsynced,
        made(100, kept_journal::end::unsynced),
        costs_at_most(peer::reading, 0, 0));
    return rows;
}

} // namespace

int main(int argc, char** argv) {
    const auto given = parse_arguments(argc, argv);
    const std::string place = durable_place(given.directory);
    introduce(place);
    std::printf("left out: NATS one by one (its client gathers for 1 ms what it sends)\n");
    std::printf("left out: RabbitMQ (its server needs 6 to 25 s to start, in each round)\n");
    harness all{"durable_queue", given};
    const std::uint64_t scale = given.quick ? 1 : 4;
    all.add(synced_batches(5'000 * scale, place));
    all.add(unsynced_batches(25'000 * scale, place));
    all.add(synced_one_by_one(100 * scale, place));
    all.add(unsynced_one_by_one(1'000 * scale, place));
    all.add(opening((given.quick ? 32 : given.megabytes) << 20, place));
    return all.run();
}
