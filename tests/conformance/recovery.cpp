// SPDX-License-Identifier: BSL-1.0
//
// What a broker makes of a directory whose files are not as it left them: garbage behind the end, a
// damaged tail, files of others, and ends of the process at any moment.
#include <railmq/broker.hpp>
#include <railmq/storage/segment.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/damage.hpp"
#include "support/worlds.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::errc;
using railmq::storage::simulated_disk;
using namespace railmq::test;

namespace {

/// A broker on a disk, in a simulation, which can be ended in any way and opened again.
struct world {
    explicit world(railmq::broker_options o = {})
        : options{std::move(o)} {
        open();
    }
    void open() { broker.emplace(sim, disk.directory(), options); }
    void kill() {
        disk.end_process();
        broker.reset();
    }
    [[nodiscard]] std::vector<int> values() {
        std::vector<int> all;
        for (const auto& m : broker->queue<int>("q").peek(100'000)) {
            all.push_back(m.value);
        }
        return all;
    }
    /// The file that is written.
    [[nodiscard]] std::string last_file() {
        std::string last;
        for (const auto& [name, bytes] : all_files(disk)) {
            if (railmq::storage::segment_number(name)) {
                last = name;
            }
        }
        return last;
    }
    /// Behind the last record: files are made longer ahead of time, with zeros, and the small
    /// numbers that are sent here end with three.
    [[nodiscard]] std::uint64_t end_of(const std::string& file) {
        const auto bytes = all_files(disk).at(file);
        std::uint64_t end = bytes.size();
        while (end != 0 && bytes[end - 1] == std::byte{0}) {
            --end;
        }
        return (end + 3 + 7) / 8 * 8;
    }

    railmq::broker_options options;
    railmq::simulation sim{1};
    simulated_disk disk{1};
    std::optional<railmq::sim_broker> broker{};
};

} // namespace

TEST_CASE("[T02] garbage behind the last record is cut, and nothing else") {
    const std::size_t bytes = GENERATE(1U, 7U, 8U, 39U, 40U, 200U, 1024U);
    world w;
    send_range(w.broker->queue<int>("q"), 1, 20);
    w.kill();
    const std::string file = w.last_file();
    overwrite(w.disk, file, w.end_of(file), bytes);
    w.open();
    CHECK(w.values() == numbers(1, 20));
    CHECK(w.broker->recovery().cut_bytes > 0);
    send_range(w.broker->queue<int>("q"), 21, 25); // it goes on where the good part ends
    w.kill();
    w.open();
    CHECK(w.values() == numbers(1, 25));
}

TEST_CASE("[T01] a queue that is limited in bytes knows how many it has found") {
    world w;
    const railmq::queue_options limited{
        .max_bytes = 4 * sizeof(int), .overflow = railmq::overflow_policy::reject};
    send_range(w.broker->queue<int>("small", limited), 1, 3);
    w.kill();
    w.open();
    auto queue = w.broker->queue<int>("small", limited);
    CHECK(queue.consumer().try_receive()->take() == 1);
    auto producer = queue.producer();
    producer.send(4);
    producer.send(5);
    railmq::error_code ec;
    producer.send(6, ec);
    CHECK(ec == errc::queue_full);
}

TEST_CASE("[M03][M05] what was accepted is known to have been, however the process ended") {
    const bool in_good_order = GENERATE(true, false);
    world w{{.journal = {.segment_bytes = 8192}}};
    const railmq::queue_options once{.deduplication_window = std::chrono::minutes{5}};
    const auto end = [&] {
        if (in_good_order) {
            w.broker->close();
            w.broker.reset();
        } else {
            w.broker->sync(); // a purge may be one write late
            w.kill();
        }
        w.open();
    };
    const auto send = [&](int n) {
        auto queue = w.broker->queue<int>("once", once);
        return queue.producer().send(n, {.deduplication_id = std::to_string(n)});
    };
    std::map<int, std::uint64_t> ids;
    for (int n = 0; n < 5; ++n) {
        ids[n] = send(n).id;
    }
    CHECK(w.broker->queue<int>("once", once).purge() == 5);
    w.sim.advance(std::chrono::minutes{1});
    for (int life = 0; life < 3; ++life) {
        end();
        if (life == 1) { // nobody asks for the queue, and all that was written is written anew
            send_range(w.broker->queue<int>("q"), 1, 2'000);
            (void)w.broker->queue<int>("q").purge();
            continue;
        }
        for (int n = 0; n < 5; ++n) {
            CAPTURE(life, n);
            CHECK(send(n).duplicate_of() == ids[n]);
        }
        CHECK(w.broker->queue<int>("once", once).stats().ready == 0);
        send_range(w.broker->queue<int>("q"), 1, 2'000); // and while it is open as well
        (void)w.broker->queue<int>("q").purge();
    }
    w.sim.advance(std::chrono::minutes{4} - 1ns);
    end();
    CHECK(send(0).duplicate_of() == ids[0]);
    w.sim.advance(1ns); // while nobody has the queue it grows older as well
    end();
    CHECK_FALSE(send(0).duplicate_of());
    CHECK(w.broker->queue<int>("once", once).stats().deduplication_ids == 1);
}

TEST_CASE("[T03] of a tail that was never synced, what is before the damage is kept") {
    for (int k = 0; k < 10; ++k) {
        CAPTURE(k);
        world w;
        const auto queue = w.broker->queue<int>("q");
        w.broker->sync();
        const std::string file = w.last_file();
        auto producer = queue.producer({.durability = durability::written});
        std::uint64_t damaged_from = 0;
        for (int n = 0; n < 10; ++n) {
            if (n == k) {
                damaged_from = w.end_of(file) + 20; // within the record of that one
            }
            producer.send(n);
        }
        const std::uint64_t end = w.end_of(file);
        w.kill();
        overwrite(w.disk, file, damaged_from, static_cast<std::size_t>(end - damaged_from));
        w.open();
        CHECK(w.values() == (k == 0 ? std::vector<int>{} : numbers(0, k - 1)));
        CHECK(w.broker->recovery().cut_bytes > 0);
    }
}

TEST_CASE("[T04][T12] there is no index that could be wrong: what was written last tells it all") {
    // Rounds of upkeep say again what is there; the process ends within them, and after them.
    world w{{.journal = {.segment_bytes = 8192}}};
    std::multiset<int> expected;
    int next = 0;
    for (int life = 0; life < 40; ++life) {
        auto queue = w.broker->queue<int>("q");
        auto producer = queue.producer();
        for (int n = 0; n < 5 + life % 7 * 3; ++n) {
            producer.send(next);
            expected.insert(next++);
        }
        auto consumer = queue.consumer({.prefetch = 1});
        for (int n = 0; n < life % 11; ++n) {
            if (auto d = consumer.try_receive()) {
                expected.erase(d->value());
                d->ack();
            }
        }
        w.broker->sync();
        w.kill();
        w.open();
        const auto values = w.values();
        CHECK(std::multiset<int>(values.begin(), values.end()) == expected);
    }
}

TEST_CASE("[T05] files that are no part of the journal are left alone") {
    world w;
    send_range(w.broker->queue<int>("q"), 1, 3);
    w.kill();
    const std::vector<std::string> strangers{
        "notes.txt", "00000001.index", "q", ".hidden", "00000000000000000001.deleted"};
    for (const std::string& name : strangers) {
        railmq::error_code ec;
        auto file = w.disk.directory().open(name, railmq::storage::open_mode::create, ec);
        REQUIRE_FALSE(ec);
        file.resize(100, ec);
        file.sync_data(ec);
        w.disk.directory().sync(ec);
    }
    w.open();
    CHECK(w.values() == numbers(1, 3));
    w.broker.reset();
    for (const std::string& name : strangers) {
        CHECK(all_files(w.disk).at(name).size() == 100);
    }
}

TEST_CASE("[T13] a good end leaves little to read, and another no more than since the last round") {
    world w{{.journal = {.segment_bytes = 64 << 10}}};
    const auto work = [&](int messages) {
        auto queue = w.broker->queue<int>("q");
        auto producer = queue.producer({.durability = durability::written});
        auto consumer = queue.consumer();
        for (int n = 0; n < messages; ++n) {
            producer.send(n);
            consumer.try_receive()->ack();
        }
        producer.send(-1);
    };
    work(20'000);
    const auto all = w.broker->recovery().records;
    CHECK(all == 0); // it was new
    w.kill();
    w.open();
    CHECK_FALSE(w.broker->recovery().was_closed);
    CHECK(w.broker->recovery().records < 20'000); // of at least 40,000 that were written
    CHECK(w.values().back() == -1);
    work(20'000);
    w.broker.reset();
    w.open();
    CHECK(w.broker->recovery().was_closed);
    CHECK(w.broker->recovery().records < 10);
    CHECK(w.values().size() == 2);
}

TEST_CASE("[T15] times to live go on though the first message is gone") {
    world w;
    const railmq::queue_options options{.dead_letter = railmq::discard, .time_to_live = 10s};
    {
        auto queue = w.broker->queue<int>("q", options);
        send_range(queue, 1, 1);
        w.sim.advance(1s);
        send_range(queue, 2, 2);
        w.sim.advance(1s);
        send_range(queue, 3, 3);
        queue.consumer().try_receive()->ack();
        w.broker->sync();
    }
    w.kill();
    w.open();
    auto queue = w.broker->queue<int>("q", options);
    CHECK(queue.stats().ready == 2);
    w.sim.advance(8999ms); // 10.999 s after the first
    CHECK(queue.stats().ready == 2);
    w.sim.advance(1ms);
    CHECK(queue.stats().ready == 1);
    w.sim.advance(1s);
    CHECK(queue.stats().ready == 0);
    CHECK(queue.stats().expired == 2);
}

TEST_CASE("[T18] sent, gone and sent again between two syncs is there once") {
    world w;
    auto queue = w.broker->queue<int>("q");
    auto producer = queue.producer({.durability = durability::accepted});
    auto consumer = queue.consumer();
    for (int n = 0; n < 3; ++n) {
        producer.send(n, {.message_id = "the same"});
        if (n != 2) {
            consumer.try_receive()->ack();
        }
    }
    w.broker->sync();
    w.disk.crash();
    w.broker.reset();
    w.open();
    CHECK(w.values() == numbers(2, 2));
    const auto stats = w.broker->queue<int>("q").stats();
    CHECK(stats.ready == 1);
}

TEST_CASE("[BR22] an id whose message could not be written is not known, before and after") {
    world w;
    const railmq::queue_options once{.deduplication_window = std::chrono::minutes{2}};
    const auto send = [&](railmq::error_code& ec) {
        return w.broker->queue<int>("once", once).producer().send(7, {.deduplication_id = "7"}, ec);
    };
    (void)w.broker->queue<int>("once", once);
    railmq::error_code ec;
    w.disk.set_capacity(w.disk.used()); // what is reserved takes a little
    const auto other = w.broker->queue<int>("q");
    while (!ec) {
        other.producer().send(1, ec);
    }
    CHECK(ec == errc::no_space);
    (void)send(ec);
    REQUIRE(ec == errc::no_space);
    CHECK(w.broker->queue<int>("once", once).stats().deduplication_ids == 0);
    w.disk.set_capacity(std::uint64_t{1} << 30);
    const auto first = send(ec);
    REQUIRE_FALSE(ec);
    CHECK_FALSE(first.duplicate_of());
    w.kill();
    w.open();
    w.sim.advance(10s);
    CHECK(send(ec).duplicate_of() == first.id);
}

TEST_CASE("[T16] priorities are there again, in their order") {
    const bool in_good_order = GENERATE(true, false);
    world w;
    const railmq::queue_options levels{.priorities = 4};
    for (int n = 0; n < 12; ++n) {
        w.broker->queue<int>("p", levels)
            .producer()
            .send(n, {.priority = static_cast<std::uint32_t>(n) % 4});
    }
    {
        auto held = w.broker->queue<int>("p").consumer().try_receive(); // in work when it ends
        REQUIRE(held);
        CHECK(**held == 3);
        if (in_good_order) {
            held->release();
            w.broker->close();
            w.broker.reset();
        } else {
            w.kill();
        }
    }
    w.open();
    auto consumer = w.broker->queue<int>("p", levels).consumer();
    for (const int expected : {3, 7, 11, 2, 6, 10, 1, 5, 9, 0, 4, 8}) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(**d == expected);
        d->ack();
    }
}
