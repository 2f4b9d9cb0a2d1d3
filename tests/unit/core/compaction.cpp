// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/compaction.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"
#include "support/log_fixture.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::log_cleanup;
using railmq::log_options;
using railmq::time_point;
using railmq::core::compaction_phase;
using railmq::core::log_entry;
using railmq::core::log_removal;
using railmq::core::producer_batch;
using railmq::core::read_status;
using railmq::test::log_fixture;
using railmq::test::seconds_in;
using offsets = std::vector<std::uint64_t>;
using sync_type = log_fixture::sync;
using compaction_type = railmq::core::compaction<sync_type>;

namespace {

/// A compacted log, and what compacts it.
struct fixture : log_fixture {
    explicit fixture(log_options o = {}, std::size_t limit = railmq::unlimited)
        : log_fixture{with_cleanup(std::move(o)), 0, limit}
        , cleaner{log} {}

    static log_options with_cleanup(log_options o) {
        if (o.cleanup == log_cleanup::remove) o.cleanup = log_cleanup::compact;
        return o;
    }
    void put(const std::string& key, std::optional<std::string> value) {
        REQUIRE(append(key, std::move(value)).failed == errc{});
    }
    /// A whole pass, step by step. Returns what it removed.
    std::uint64_t pass(std::uint64_t at_most = 3) {
        std::uint64_t removed = 0;
        for (int i = 0; i < 100'000; ++i) {
            const auto r = cleaner.step(at_most, now);
            REQUIRE(r.failed == errc{});
            REQUIRE(r.examined <= at_most);
            removed += r.removed;
            if (r.finished) {
                CHECK(cleaner.phase() == compaction_phase::idle);
                CHECK(balanced());
                return removed;
            }
        }
        FAIL("it does not end");
        return removed;
    }
    std::string text() {
        std::string all;
        for (const auto& r : read(log.start_offset())) {
            all += std::to_string(r.offset) + r.key + (r.value ? "=" + *r.value : "!") + " ";
        }
        return all;
    }

    compaction_type cleaner;
};

} // namespace

TEST_CASE("compaction: 20 records of 10 keys become 10, offsets as before [S01]") {
    fixture f;
    for (int i = 0; i < 20; ++i) {
        f.put("k" + std::to_string(i % 10), "v" + std::to_string(i));
    }
    f.log.roll();
    CHECK(f.pass() == 10);
    CHECK(f.offsets() == offsets{10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
    CHECK(f.log.records() == 10);
    CHECK(f.log.start_offset() == 0); // the log still begins there
    CHECK(f.read(0).front().offset == 10);
    CHECK(f.read(15).front().value == "v15");
    CHECK(f.log.removed(log_removal::superseded).records == 10);
    CHECK(f.pass() == 0);
}

TEST_CASE("compaction: a reader sees all before it, the last after it, and what comes [S02]") {
    fixture f;
    f.put("c", "0");
    f.put("c", "1");
    f.put("c", "2");
    CHECK(f.text() == "0c=0 1c=1 2c=2 ");
    f.log.roll();
    f.pass();
    CHECK(f.text() == "2c=2 ");
    f.put("c", "3");
    CHECK(f.text() == "2c=2 3c=3 ");
}

TEST_CASE("compaction: of an empty log, of one that has only the active segment [S03] [S07]") {
    fixture f;
    CHECK(f.pass() == 0);
    for (int i = 0; i < 5; ++i) {
        f.put("k", std::to_string(i));
    }
    f.now += 1'000h;
    CHECK(f.pass() == 0);
    CHECK(f.offsets().size() == 5);
    CHECK(f.cleaner.checkpoint() == 0);
    CHECK_FALSE(f.cleaner.due(f.now));
    f.log.roll();
    f.put("k", "5");
    f.put("k", "6");
    CHECK(f.cleaner.due(f.now));
    CHECK(f.pass() == 4);
    CHECK(f.offsets() == offsets{4, 5, 6}); // the active ones supersede nothing yet
    CHECK(f.cleaner.checkpoint() == 5);
}

TEST_CASE("compaction: what is left out reads on: 36, 37 and 38 all start at 38 [E11]") {
    fixture f;
    for (int i = 0; i < 40; ++i) {
        f.put(i == 36 || i == 37 || i == 38 ? "same" : "k" + std::to_string(i), "v");
    }
    f.log.roll();
    CHECK(f.pass() == 2);
    for (const std::uint64_t o : {36U, 37U, 38U}) {
        CHECK(f.read(o).front().offset == 38);
    }
}

TEST_CASE("compaction: a tombstone ends its key, also in one batch [S04] [S05]") {
    fixture f{{.tombstone_retention = 1h}};
    f.put("key1", "a");
    f.put("key1", std::nullopt);
    f.put("key4", "a");
    f.put("key4", std::nullopt);
    f.put("key4", "last");
    f.append_run({{"batch", "a"}, {"batch", std::nullopt}});
    f.log.roll();
    f.pass();
    CHECK(f.text() == "1key1! 4key4=last 6batch! ");
    f.now += 1h;
    CHECK(f.cleaner.due(f.now));
    CHECK(f.pass() == 2);
    CHECK(f.text() == "4key4=last ");
    CHECK(f.log.removed(log_removal::expired).records == 2);
    CHECK_FALSE(f.cleaner.due(f.now));
}

TEST_CASE("compaction: records younger than the lag stay, and all behind them [S08]") {
    fixture f{{.segment_records = 2, .min_compaction_lag = 1h}};
    f.put("k", "0");
    f.put("k", "1");
    f.now += 30min;
    f.put("k", "2");
    f.put("k", "3");
    f.put("k", "4"); // active
    CHECK_FALSE(f.cleaner.due(f.now));
    CHECK(f.pass() == 0);
    f.now += 30min; // the first segment is an hour old
    CHECK(f.cleaner.due(f.now));
    CHECK(f.pass() == 1);
    CHECK(f.offsets() == offsets{1, 2, 3, 4});
    f.now += 30min;
    CHECK(f.pass() == 2);
    CHECK(f.offsets() == offsets{3, 4});
}

TEST_CASE("compaction: with room for one key it still makes progress [S09]") {
    fixture f{{.compaction_keys = 1}};
    for (int i = 0; i < 5; ++i) {
        f.put(std::to_string(i % 2), std::to_string(i));
    }
    f.log.roll();
    f.cleaner.set_checkpoint(2);
    f.pass();
    CHECK(f.offsets() == offsets{1, 2, 3, 4});
    f.pass();
    CHECK(f.offsets() == offsets{2, 3, 4});
    f.pass();
    CHECK(f.offsets() == offsets{3, 4});
    for (int i = 0; i < 5; ++i) {
        f.pass();
        CHECK(f.offsets() == offsets{3, 4});
    }
}

TEST_CASE("compaction: a tombstone's time counts from the pass that found it [S10]") {
    fixture f{{.tombstone_retention = 24h}};
    f.put("k", "v");
    f.append("k", std::nullopt, seconds_in(-1'000'000)); // long ago, by its own stamp
    f.log.roll();
    f.now += 1'000h;
    f.pass();
    CHECK(f.text() == "1k! ");
    f.now += 24h - 1ns;
    CHECK(f.pass() == 0);
    CHECK(f.text() == "1k! ");
    f.now += 1ns;
    CHECK(f.pass() == 1);
    CHECK(f.log.records() == 0);
    CHECK(f.read(0).empty());
    CHECK(f.failed == errc{});
    f.put("k", "again");
    CHECK(f.text() == "2k=again ");
}

TEST_CASE("compaction: a tombstone that another replaced keeps the key deleted [S10] [BR19]") {
    fixture f{{.segment_records = 1, .tombstone_retention = 1h}};
    f.put("k", "v");
    f.put("x", "1"); // k's record stands in a segment of its own
    f.put("k", std::nullopt);
    f.put("x", "2");
    f.put("y", "active");
    f.pass();
    f.now += 30min;
    f.put("k", std::nullopt); // its own time begins later
    f.log.roll();
    f.pass();
    f.now += 30min;
    f.pass();
    CHECK(f.text() == "3x=2 4y=active 5k! ");
    f.now += 30min;
    f.pass();
    CHECK(f.text() == "3x=2 4y=active ");
}

TEST_CASE("compaction: the even keys deleted, the odd ones there [S11]") {
    fixture f{{.segment_bytes = 500, .tombstone_retention = 0s}};
    for (int i = 0; i < 100; ++i) {
        f.put(std::to_string(i), "v");
    }
    for (int i = 0; i < 100; i += 2) {
        f.put(std::to_string(i), std::nullopt);
    }
    f.log.roll();
    f.pass(7);
    f.pass(7);
    const auto left = f.read(0);
    CHECK(left.size() == 50);
    for (const auto& r : left) {
        CHECK(std::stoi(r.key) % 2 == 1);
        CHECK(r.value == "v");
    }
}

TEST_CASE("compaction: times are found over the holes it leaves [Q06]") {
    fixture f;
    for (int i = 0; i < 10; ++i) {
        f.append(i >= 4 && i <= 7 ? "gone" : "k" + std::to_string(i), "v", seconds_in(i));
    }
    f.append("gone", "v", seconds_in(10));
    f.log.roll();
    f.pass();
    CHECK(f.offsets() == offsets{0, 1, 2, 3, 8, 9, 10});
    CHECK(f.log.offset_for_time(seconds_in(2))->offset == 2);
    for (int t = 4; t <= 8; ++t) {
        CHECK(f.log.offset_for_time(seconds_in(t))->offset == 8);
    }
    CHECK_FALSE(f.log.offset_for_time(seconds_in(11)).has_value());
    CHECK(f.log.newest()->offset == 10);
}

TEST_CASE("compaction: a record or a key that is larger than a segment is kept [S12]") {
    fixture f{{.segment_bytes = 1'000}};
    const std::string large(1U << 20, 'x');
    f.put("k", "old");
    f.put("k", large);
    f.put(large, "v");
    f.put("last", "v");
    f.log.roll();
    CHECK(f.pass() == 1);
    f.pass();
    const auto all = f.read(0);
    REQUIRE(all.size() == 3);
    CHECK(all[0].value == large);
    CHECK(all[1].key == large);
    CHECK(f.budget.used() == f.log.memory_bytes());
}

TEST_CASE("compaction: a checkpoint outside of the log is the log's start [S14]") {
    for (const std::uint64_t checkpoint : {2ULL, 100ULL}) {
        fixture f{{.segment_records = 4}};
        for (int i = 0; i < 9; ++i) {
            f.put("k", std::to_string(i));
        }
        { const auto gone = f.log.delete_records(4); }
        f.cleaner.set_checkpoint(checkpoint);
        CHECK(f.pass() == 3);
        CHECK(f.offsets() == offsets{7, 8});
        CHECK(f.cleaner.checkpoint() == 8);
    }
}

TEST_CASE("compaction: gaps at the ends of segments stop nothing [S15]") {
    fixture f{{.segment_records = 9}};
    for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 9; ++i) {
            f.put("k" + std::to_string(i), "v" + std::to_string(round));
        }
        REQUIRE(f.log.skip_to(f.log.end_offset() + 2) == errc{}); // 9 and 10 are missing
    }
    f.put("active", "v");
    CHECK(f.log.segments() == 5);
    CHECK(f.pass() == 27);
    CHECK(f.offsets() == offsets{33, 34, 35, 36, 37, 38, 39, 40, 41, 44});
    CHECK(f.cleaner.checkpoint() == 44);
}

TEST_CASE("compaction: what a producer sent is still known afterwards [S16]") {
    fixture f;
    const auto send = [&](std::int32_t n) {
        return f.append("k", "v", {}, {.producer = producer_batch{1, 0, n}});
    };
    for (std::int32_t i = 0; i < 5; ++i) {
        REQUIRE(send(i).failed == errc{});
    }
    f.log.roll();
    CHECK(f.pass() == 4);
    CHECK(send(2).duplicate);
    CHECK(send(2).first_offset == 2); // removed since, and a duplicate for all that
    CHECK(send(7).failed == errc::sequence_out_of_order);
    CHECK(send(5).first_offset == 5);
}

TEST_CASE("compaction: sparse segments become one, up to the size of one [S17]") {
    fixture f{{.segment_bytes = 1'000, .segment_records = 10}};
    for (int i = 0; i < 200; ++i) { // every tenth lasts
        f.put(i % 10 == 0 ? "k" + std::to_string(i) : "same", "v");
    }
    f.log.roll();
    REQUIRE(f.log.segments() == 21);
    const std::size_t before = f.budget.used();
    f.pass();
    CHECK(f.log.records() == 21);
    CHECK(f.log.segments() == 4); // 10 of 10 segments, 9 of 9, the last one's 2; the active one
    CHECK(f.log.segment(0).live() == 10);
    CHECK(f.log.segment(1).live() == 9);
    CHECK(f.log.segment(2).live() == 2);
    CHECK(f.budget.used() < before / 4);
    CHECK(f.budget.used() == f.log.memory_bytes());
    for (std::size_t k = 0; k < f.log.segments(); ++k) {
        CHECK(f.log.segment(k).live_bytes() <= 1'000);
    }
    CHECK(f.read(11).front().offset == 20);
}

TEST_CASE("compaction: segments too far apart are not merged [S17]") {
    fixture f{{.segment_records = 2}};
    f.put("a", "1");
    f.put("b", "1");
    f.put("b", "2");
    REQUIRE(f.log.skip_to((std::uint64_t{1} << 31) + 5) == errc{});
    f.put("c", "1");
    f.put("c", "2");
    f.log.roll();
    f.pass();
    CHECK(f.log.segments() == 3);
    CHECK(f.text() == "0a=1 2b=2 2147483654c=2 ");
}

TEST_CASE("compaction: a full segment is left as it is, and takes in what is left of the next") {
    fixture f{{.segment_records = 8}};
    for (int i = 0; i < 8; ++i) {
        f.put("k" + std::to_string(i), "v");
    }
    for (int i = 0; i < 9; ++i) {
        f.put("k0", std::to_string(i)); // of the first segment one goes, of the second seven
    }
    CHECK(f.log.segments() == 3);
    f.pass();
    CHECK(f.log.segments() == 2);
    CHECK(f.log.segment(0).live() == 8);
    CHECK(f.offsets() == offsets{1, 2, 3, 4, 5, 6, 7, 15, 16});
}

TEST_CASE("compaction: every state between two steps reads well, removal in between [S18]") {
    for (std::uint64_t stop = 0; stop < 120; ++stop) {
        fixture f{{.segment_records = 5}};
        for (int i = 0; i < 40; ++i) {
            f.put("k" + std::to_string(i % 7), std::to_string(i));
        }
        f.log.roll();
        for (std::uint64_t i = 0; i < stop; ++i) {
            const auto r = f.cleaner.step(1, f.now);
            for (std::size_t k = 0; k + 1 < f.log.segments(); ++k) {
                REQUIRE(f.log.segment(k).written() != 0); // it would hold up retention
            }
            const auto all = f.read(f.log.start_offset());
            REQUIRE(all.size() == f.log.records());
            REQUIRE(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) {
                return a.offset < b.offset;
            }));
            for (const auto& x : all) {
                REQUIRE(x.value == std::to_string(x.offset));
                REQUIRE(f.read(x.offset).front().offset == x.offset);
            }
        }
        { const auto gone = f.log.delete_records(35); }
        f.pass(1);
        CHECK(f.offsets() == offsets{35, 36, 37, 38, 39});
        { const auto gone = f.log.delete_records(40); }
        CHECK(f.pass(1) == 0);
        CHECK(f.log.records() == 0);
        CHECK(f.budget.used() == f.log.memory_bytes());
    }
}

TEST_CASE("compaction: a reader keeps what it has, and its segment is merged later") {
    fixture f{{.segment_records = 4}};
    const std::string text(100, 'x');
    for (int i = 0; i < 12; ++i) {
        f.put("k", text + std::to_string(i));
    }
    f.log.roll();
    railmq::core::log_cursor<sync_type> c;
    REQUIRE(f.log.seek(c, 5) == errc{});
    std::vector<log_entry> got;
    const auto keep = [&](const log_entry& e) { got.push_back(e); };
    REQUIRE(c.read(2, railmq::unlimited, keep) == read_status::ok);
    REQUIRE(got.size() == 2);
    CHECK(f.pass() == 11);
    CHECK(f.offsets() == offsets{11});
    for (const log_entry& e : got) {
        CHECK(*static_cast<const std::string*>(e.payload) == text + std::to_string(e.offset));
        CHECK(e.key == "k");
    }
    // It reads on: what was removed it does not see, what is left it does.
    REQUIRE(c.read(9, railmq::unlimited, keep) == read_status::elsewhere);
    REQUIRE(f.log.enter(c) == errc{});
    REQUIRE(c.read(9, railmq::unlimited, keep) == read_status::ok);
    CHECK(got.back().offset == 11);
    c.unpin();
    f.pass();
    CHECK(f.budget.used() == f.log.memory_bytes());
    CHECK(f.log.segments() == 2);
}

TEST_CASE("compaction: a segment that is pinned in the middle of its move stays half moved") {
    fixture f{{.segment_records = 8}};
    for (int i = 0; i < 24; ++i) {
        f.put("k" + std::to_string(i % 12), std::to_string(i)); // 12 to 23 are left
    }
    f.log.roll();
    while (f.cleaner.phase() != compaction_phase::merge || f.log.segment(1).live() != 2) {
        REQUIRE_FALSE(f.cleaner.step(1, f.now).finished);
    }
    railmq::core::log_cursor<sync_type> c;
    REQUIRE(f.log.seek(c, 14) == errc{});
    const auto before = f.offsets();
    f.pass();
    CHECK(f.offsets() == before);
    std::vector<std::string> values;
    REQUIRE(c.read(9, railmq::unlimited, [&](const log_entry& e) {
        values.push_back(*static_cast<const std::string*>(e.payload));
    }) == read_status::ok);
    CHECK(values.front() == "14");
    c.unpin();
    f.pass();
    CHECK(f.offsets() == before);
    CHECK(f.budget.used() == f.log.memory_bytes());
}

TEST_CASE("compaction: a payload that cannot be copied, and one whose move throws") {
    struct brittle {
        int value;
        bool* breaks;
        brittle(int v, bool& b)
            : value{v}
            , breaks{&b} {}
        brittle(brittle&& other)
            : value{other.value}
            , breaks{other.breaks} {
            if (*breaks) throw std::runtime_error{"no"};
        }
    };
    bool breaks = false;
    railmq::core::memory_budget<sync_type> budget{railmq::unlimited};
    railmq::core::partition<sync_type> log{
        railmq::core::payload_ops_of<brittle>::value,
        budget,
        {.cleanup = log_cleanup::compact, .segment_records = 4}};
    for (int i = 0; i < 16; ++i) {
        alignas(brittle) std::array<std::byte, sizeof(brittle)> raw;
        railmq::core::log_input in;
        const std::string key = std::to_string(i % 5);
        in.key = key;
        in.payload = ::new (static_cast<void*>(raw.data())) brittle{i, breaks};
        REQUIRE(log.append(std::move(in), time_point{}).failed == errc{});
    }
    log.roll();
    const auto values = [&] {
        std::vector<int> all;
        railmq::core::log_cursor<sync_type> c;
        auto failed = log.seek(c, 0);
        for (;;) {
            const auto s = c.read(99, railmq::unlimited, [&](const log_entry& e) {
                all.push_back(static_cast<const brittle*>(e.payload)->value);
            });
            if (s == read_status::at_end || failed != errc{}) return all;
            if (s == read_status::elsewhere) failed = log.enter(c);
        }
    };
    compaction_type cleaner{log};
    const std::vector<int> left{11, 12, 13, 14, 15};
    breaks = true;
    while (!cleaner.step(4, time_point{}).finished) {
    }
    CHECK(values() == left);
    breaks = false;
    while (!cleaner.step(4, time_point{}).finished) {
    }
    CHECK(values() == left);
    CHECK(budget.used() == log.memory_bytes());
}

TEST_CASE("compaction: with little memory a pass covers fewer keys, with none it says so") {
    fixture f{{.segment_records = 50}, 60'000};
    for (int i = 0; i < 150; ++i) {
        f.put("a rather long key, number " + std::to_string(i % 100), "v");
    }
    f.log.roll();
    // All but a little is taken: the keys do not fit at once.
    const std::size_t taken = 60'000 - f.budget.used() - 4'000;
    f.budget.charge(taken);
    f.pass(1'000);
    CHECK(f.cleaner.checkpoint() > 0);
    CHECK(f.cleaner.checkpoint() < 100);
    for (int i = 0; i < 20; ++i) {
        f.pass(1'000);
    }
    CHECK(f.log.records() == 100);
    f.budget.release(taken);
    CHECK(f.budget.used() == f.log.memory_bytes());

    f.put("a rather long key, number 0", "v");
    f.log.roll();
    f.budget.charge(60'000);
    const auto r = f.cleaner.step(1'000, f.now);
    CHECK(r.failed == errc::memory_limit);
    CHECK(r.finished);
    CHECK(f.log.records() == 101);
    f.budget.release(60'000);
    CHECK(f.pass() == 1);
}

TEST_CASE("compaction: is due when half is dirty") {
    fixture f{{.segment_records = 4, .min_dirty_ratio = 0.5}};
    for (int i = 0; i < 16; ++i) {
        f.put("k" + std::to_string(i), "v");
    }
    f.log.roll();
    CHECK(f.cleaner.due(f.now));
    f.pass();
    CHECK_FALSE(f.cleaner.due(f.now));
    for (int i = 0; i < 4; ++i) {
        f.put("k0", "v"); // 4 of 20
    }
    f.log.roll();
    CHECK_FALSE(f.cleaner.due(f.now));
    for (int i = 0; i < 16; ++i) {
        f.put("k1", "v");
    }
    f.log.roll();
    CHECK(f.cleaner.due(f.now));
    log_fixture removing;
    compaction_type idle{removing.log};
    CHECK_FALSE(idle.due(removing.now));
    CHECK(idle.step(1, removing.now).finished);
}

TEST_CASE("compaction: with retention too, both leave their reasons [R09]") {
    fixture f{
        {.retention = {.max_records = 6},
         .cleanup = log_cleanup::compact_and_remove,
         .segment_records = 4}};
    for (int i = 0; i < 20; ++i) {
        f.put("k" + std::to_string(i % 3), "v");
        { const auto gone = f.log.apply_retention(f.now); }
        const auto r = f.cleaner.step(2, f.now);
        REQUIRE(f.balanced());
        REQUIRE(f.read(f.log.start_offset()).size() == f.log.records());
    }
    f.pass();
    CHECK(f.log.removed(log_removal::superseded).records > 0);
    CHECK(f.log.removed(log_removal::by_records).records > 0);
}
