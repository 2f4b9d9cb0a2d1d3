// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/partition.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"
#include "support/log_fixture.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::log_cleanup;
using railmq::log_options;
using railmq::time_point;
using railmq::core::log_amount;
using railmq::core::log_removal;
using railmq::core::producer_batch;
using railmq::test::log_fixture;
using railmq::test::seconds_in;
using offsets = std::vector<std::uint64_t>;

// --- append, read, offsets -----------------------------------------------------------------------

TEST_CASE("partition: offsets are dense from 0, the end is a place, outside is an error [P01]") {
    log_fixture f{{.segment_records = 4}};
    CHECK(f.read(0).empty());
    CHECK(f.failed == errc{});
    for (std::uint64_t i = 0; i < 10; ++i) {
        const auto r = f.append(std::nullopt, std::to_string(i));
        CHECK(r.failed == errc{});
        CHECK(r.first_offset == i);
    }
    CHECK(f.log.end_offset() == 10);
    CHECK(f.offsets() == offsets{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(f.read(10).empty());
    CHECK(f.failed == errc{});
    CHECK(f.read(11).empty());
    CHECK(f.failed == errc::offset_out_of_range);
    CHECK(f.log.delete_records(3).failed == errc{});
    CHECK(f.read(2).empty());
    CHECK(f.failed == errc::offset_out_of_range);
    CHECK(f.read(3).size() == 7);
    CHECK(f.balanced());
}

TEST_CASE(
    "partition: any offset, gaps too, gives the next record, whatever the limit [P02] [P03]") {
    log_fixture f{{.segment_records = 20}};
    f.fill(50);
    offsets ids;
    for (std::uint64_t o = 0; o < 50; ++o) {
        ids.push_back(o);
    }
    for (std::uint64_t o = 56; o < 200; o += 7) {
        REQUIRE(f.log.skip_to(o) == errc{});
        f.fill(1);
        ids.push_back(o);
    }
    for (std::uint64_t from = 0; from < f.log.end_offset(); ++from) {
        const auto expected = *std::lower_bound(ids.begin(), ids.end(), from);
        for (const std::size_t bytes : {1U, 100U, 100'000U}) {
            const auto got = f.read(from, railmq::unlimited, bytes);
            REQUIRE_FALSE(got.empty());
            CHECK(got.front().offset == expected);
            CHECK((bytes > 100 || got.size() == 1));
        }
    }
    CHECK(f.log.skip_to(10) == errc::offset_out_of_range);
}

TEST_CASE("partition: base 40, first record 50 [P04]") {
    log_fixture f{{}, 40};
    CHECK(f.log.start_offset() == 40);
    f.fill(1);
    REQUIRE(f.log.skip_to(50) == errc{});
    f.fill(2);
    CHECK(f.read(41).front().offset == 50);
    CHECK(f.read(39).empty());
    CHECK(f.failed == errc::offset_out_of_range);
}

TEST_CASE("partition: an offset too far from the base opens a segment [P05] [BX05]") {
    constexpr std::uint64_t limit = std::uint64_t{1} << 31;
    log_fixture f;
    f.fill(1);
    for (const std::uint64_t o : {limit - 2, limit - 1, limit, 3 * limit}) {
        REQUIRE(f.log.skip_to(o) == errc{});
        f.fill(1);
        CHECK(f.log.end_offset() == o + 1);
    }
    CHECK(f.log.segments() == 3);
    CHECK(f.log.segment(1).base() == limit);
    for (const std::uint64_t o : {limit - 2, limit - 1, limit, 3 * limit}) {
        CHECK(f.read(o).front().offset == o);
    }
    CHECK(f.read(limit + 1).front().offset == 3 * limit);

    log_fixture empty; // an empty segment is replaced, none is left behind it
    REQUIRE(empty.log.skip_to(5 * limit) == errc{});
    empty.fill(1);
    CHECK(empty.log.segments() == 1);
    CHECK(empty.log.start_offset() == 5 * limit);
    CHECK(empty.offsets() == offsets{5 * limit});
}

TEST_CASE("partition: an expected offset that is not the end is refused [P06] [B8.10]") {
    log_fixture f;
    CHECK(f.append(std::nullopt, "a", {}, {.expected_offset = 0}).failed == errc{});
    CHECK(
        f.append(std::nullopt, "b", {}, {.expected_offset = 0}).failed ==
        errc::sequence_out_of_order);
    CHECK(
        f.append(std::nullopt, "b", {}, {.expected_offset = 2}).failed ==
        errc::sequence_out_of_order);
    CHECK(f.log.end_offset() == 1);
    CHECK(f.append(std::nullopt, "b", {}, {.expected_offset = 1}).first_offset == 1);
    CHECK(f.balanced());
}

TEST_CASE("partition: skipped and removed offsets count [P10] [P11]") {
    log_fixture f;
    REQUIRE(f.log.skip_to(22) == errc{});
    CHECK(f.log.start_offset() == 22);
    CHECK(f.log.end_offset() == 22);
    f.fill(1);
    CHECK(f.read(22).front().offset == 22);

    log_fixture all;
    all.fill(10);
    CHECK(all.log.delete_records(10).amount.records == 10);
    CHECK(all.log.start_offset() == 10);
    CHECK(all.log.end_offset() == 10);
    CHECK(all.log.records() == 0);
    CHECK(all.log.bytes() == 0);
    CHECK(all.read(10).empty());
    all.fill(1);
    CHECK(all.offsets() == offsets{10});
}

TEST_CASE("partition: a read starts at any of 1000 offsets [P12]") {
    log_fixture f{{.segment_bytes = 1'000}};
    f.fill(1'000);
    for (std::uint64_t o = 0; o < 1'000; ++o) {
        CHECK(f.read(o, 1).front().offset == o);
    }
}

TEST_CASE("partition: a run is stored as one, in one segment, or not at all") {
    log_fixture f{{.segment_bytes = 1'000}};
    f.fill(5);
    std::vector<log_fixture::one_input> run(20, {std::nullopt, std::string(68, 'r')});
    const auto r = f.append_run(run);
    CHECK(r.first_offset == 5);
    CHECK(f.log.segments() == 2); // too large for any, and so alone in one
    CHECK(f.log.segment(1).written() == 20);
    f.fill(1);
    CHECK(f.log.segments() == 3);
    CHECK(f.append_run({}).failed == errc{});
    CHECK(f.log.end_offset() == 26);
    run.push_back({std::nullopt, std::nullopt}); // a tombstone without a key
    CHECK(f.append_run(run).failed == errc::invalid_argument);
    CHECK(f.log.end_offset() == 26);
    CHECK(f.balanced());
}

TEST_CASE("partition: a move that throws in a run stores nothing of it") {
    struct brittle {
        bool breaks;
        explicit brittle(bool b)
            : breaks{b} {}
        brittle(brittle&& other)
            : breaks{other.breaks} {
            if (breaks) throw std::runtime_error{"no"};
        }
    };
    railmq::core::memory_budget<railmq::core::single_threaded> budget{railmq::unlimited};
    railmq::core::partition<railmq::core::single_threaded> log{
        railmq::core::payload_ops_of<brittle>::value, budget, {.segment_records = 8}};
    brittle good{false};
    brittle bad{true};
    std::vector<railmq::core::log_input> run(2);
    run[0].payload = &good;
    run[1].payload = &bad;
    CHECK_THROWS_AS(log.append(run, time_point{}), std::runtime_error);
    CHECK(log.end_offset() == 0);
    CHECK(log.records() == 0);
    brittle other{false};
    railmq::core::log_input in;
    in.payload = &other;
    CHECK(log.append(std::move(in), time_point{}).first_offset == 0);
}

TEST_CASE("partition: an append in steps is seen with its last, and can be left at any") {
    log_fixture f{{.segment_records = 4}};
    f.fill(3);
    const railmq::core::append_terms terms{
        .expected_offset = 3, .producer = railmq::core::producer_batch{.producer = 1}};
    std::string values[2] = {"a", "b"};
    const auto inputs = [&] {
        std::vector<railmq::core::log_input> in(2);
        in[0].payload = &values[0];
        in[1].payload = &values[1];
        return in;
    };
    {
        auto in = inputs();
        auto p = f.log.plan(in, f.now, terms); // in a segment of their own
        REQUIRE(p);
        CHECK(p.result.first_offset == 3);
        CHECK(values[0] == "a");
    } // dropped
    CHECK(f.log.segments() == 1);
    CHECK(f.budget.used() == f.log.memory_bytes());
    {
        auto in = inputs();
        auto p = f.log.plan(in, f.now, terms);
        f.log.fill(p, in, f.now);
        CHECK(in[0].payload == nullptr);
        CHECK(f.log.end_offset() == 3);
        CHECK(f.read(0).size() == 3);
        f.log.withdraw(p);
    }
    CHECK(f.log.records() == 3);
    new (&values[0]) std::string{"a"}; // they were ended in the log
    new (&values[1]) std::string{"b"};
    auto in = inputs();
    auto p = f.log.plan(in, f.now, terms);
    f.log.fill(p, in, f.now);
    f.log.publish(p, f.now);
    new (&values[0]) std::string{};
    new (&values[1]) std::string{};
    CHECK(f.log.end_offset() == 5);
    CHECK(f.log.segments() == 2);
    CHECK(f.read(3).size() == 2);
    CHECK(f.balanced());
    // The producer's numbers count from the last step on.
    auto again = inputs();
    const auto twice = f.log.plan(again, f.now, terms);
    CHECK_FALSE(twice);
    CHECK(twice.result.duplicate);
    CHECK(twice.result.first_offset == 3);
    const auto other = f.log.plan(again, f.now, {.expected_offset = 4});
    CHECK_FALSE(other);
    CHECK(other.result.failed == errc::sequence_out_of_order);
    for (auto& one : again) {
        one.payload = nullptr;
    }
}

TEST_CASE("partition: no memory, nothing changed, and room comes back") {
    log_fixture f{{.segment_bytes = 1'000}, 0, 64'000};
    int stored = 0;
    while (f.append("key", std::string(60, 'v')).failed == errc{}) {
        ++stored;
    }
    CHECK(f.append("key", std::string(60, 'v')).failed == errc::memory_limit);
    CHECK(stored > 100);
    CHECK(f.log.end_offset() == static_cast<std::uint64_t>(stored));
    CHECK(f.read(0).size() == static_cast<std::size_t>(stored));
    CHECK(f.budget.used() == f.log.memory_bytes());
    CHECK(f.budget.used() <= 64'000);
    { const auto gone = f.log.delete_records(f.log.end_offset() / 2); }
    CHECK(f.append("key", "v").failed == errc{});
    CHECK(f.balanced());
}

TEST_CASE("partition: times are the producer's or the append's") {
    log_fixture f;
    f.now = seconds_in(100);
    f.append(std::nullopt, "a", seconds_in(7));
    f.append(std::nullopt, "b");
    CHECK(f.read(0)[0].timestamp == seconds_in(7));
    CHECK(f.read(0)[1].timestamp == seconds_in(100));
    log_fixture g{{.timestamps = railmq::log_timestamps::append}};
    g.now = seconds_in(100);
    g.append(std::nullopt, "a", seconds_in(7));
    CHECK(g.read(0)[0].timestamp == seconds_in(100));
}

TEST_CASE("partition: what a producer sends twice is stored once [W02] [W04] [S16]") {
    log_fixture f{{.segment_records = 2, .producer_expiry = 1h}};
    const auto send = [&](std::int32_t sequence, std::optional<std::uint64_t> expected = {}) {
        return f.append_run(
            {{std::nullopt, "a"}, {std::nullopt, "b"}},
            {.expected_offset = expected, .producer = producer_batch{9, 0, sequence}});
    };
    f.fill(1);
    REQUIRE(send(0, 1).first_offset == 1);
    REQUIRE(send(2).first_offset == 3);
    const auto again = send(0, 1); // as the producer sent it, expectation and all
    CHECK(again.failed == errc{});
    CHECK(again.duplicate);
    CHECK(again.first_offset == 1);
    CHECK(f.log.end_offset() == 5);
    CHECK(send(7).failed == errc::sequence_out_of_order);
    // All its records go, and it is still known.
    { const auto gone = f.log.delete_records(5); }
    CHECK(send(2).duplicate);
    CHECK(send(2).first_offset == 3);
    f.now += 1h;
    CHECK(send(7).first_offset == 5);
    CHECK(f.balanced());
}

// --- times ---------------------------------------------------------------------------------------

TEST_CASE("partition: the first record not before a time [Q01] [Q05]") {
    log_fixture f{{.segment_records = 3}, 40};
    for (int o = 40; o < 50; ++o) {
        f.append(std::nullopt, "v", seconds_in(10 * o));
    }
    const auto at = [&](int t) {
        const auto d = f.log.offset_for_time(seconds_in(t));
        return d ? static_cast<int>(d->offset) : -1;
    };
    CHECK(at(420) == 42);
    CHECK(at(421) == 43);
    CHECK(at(430) == 43);
    CHECK(at(431) == 44);
    CHECK(at(491) == -1);
    CHECK(at(401) == 41);
    CHECK(at(399) == 40);

    log_fixture g{{.segment_records = 64}};
    g.fill(250);
    g.now += 1s;
    const time_point t = g.now;
    g.now += 1s;
    g.fill(250);
    CHECK(g.log.offset_for_time(t)->offset == 250);
}

TEST_CASE(
    "partition: the latest time, the earliest of equals, none of an empty log [Q02] [Q03] [Q04]") {
    log_fixture f{{.segment_records = 3}};
    CHECK_FALSE(f.log.newest().has_value());
    for (const int t : {0, 1, 2, 3, 4, 6, 5, 6}) {
        f.append(std::nullopt, "v", seconds_in(t));
    }
    CHECK(f.log.newest()->offset == 5);
    CHECK(f.log.newest()->timestamp == seconds_in(6));
    { const auto gone = f.log.delete_records(6); }
    CHECK(f.log.newest()->offset == 7);
    { const auto gone = f.log.delete_records(8); }
    CHECK_FALSE(f.log.newest().has_value());
    CHECK_FALSE(f.log.offset_for_time(seconds_in(0)).has_value());
}

TEST_CASE("partition: times below the start are not found [Q07]") {
    log_fixture f{{.segment_records = 100}};
    for (int i = 0; i < 1'000; ++i) {
        f.append(std::nullopt, "v", seconds_in(i));
    }
    CHECK(f.log.offset_for_time(seconds_in(500))->offset == 500);
    { const auto gone = f.log.delete_records(650); }
    CHECK(f.log.offset_for_time(seconds_in(500))->offset == 650);
    CHECK(f.log.offset_for_time(seconds_in(651))->offset == 651);
}

// --- segments, retention -------------------------------------------------------------------------

TEST_CASE("partition: a segment for 10 records, the 11th opens the second [R01]") {
    log_fixture bytes{{.segment_bytes = 1'000}};
    bytes.fill(10);
    CHECK(bytes.log.segments() == 1);
    bytes.fill(1);
    CHECK(bytes.log.segments() == 2);
    log_fixture records{{.segment_records = 10}};
    records.fill(10);
    CHECK(records.log.segments() == 1);
    records.fill(1);
    CHECK(records.log.segments() == 2);
    CHECK(records.log.segment(1).base() == 10);
}

TEST_CASE("partition: a segment rolls by the records' times, and never leaves an empty one [R02]") {
    log_fixture f{{.segment_age = 1h}};
    f.now += 10h;
    CHECK(f.append_run({}).failed == errc{});
    CHECK(f.log.segments() == 1);
    f.fill(1); // into the empty one, however late
    CHECK(f.log.segments() == 1);
    f.now += 1h; // exactly as old: not yet
    f.fill(1);
    CHECK(f.log.segments() == 1);
    f.now += 1ns;
    f.fill(1);
    CHECK(f.log.segments() == 2);
    f.append(std::nullopt, "old", seconds_in(0)); // no reason
    CHECK(f.log.segments() == 2);
    f.append(std::nullopt, "early", f.now + 1h + 1ns);
    CHECK(f.log.segments() == 3);
    f.now += 100h;
    CHECK(f.append_run({}).failed == errc{});
    CHECK(f.log.segments() == 3);
    CHECK(f.log.roll());
    CHECK_FALSE(f.log.roll());
}

TEST_CASE("partition: retention by bytes and records never goes below the limit [R03] [E29]") {
    log_fixture f{{.retention = {.max_bytes = 1'000}, .segment_records = 5}};
    f.fill(15);
    auto r = f.log.apply_retention(f.now);
    CHECK(r.segments == 1);
    CHECK(f.log.segments() == 2);
    CHECK(f.log.start_offset() == 5);
    CHECK(f.log.removed(log_removal::by_bytes) == log_amount{5, 500});

    log_fixture under{{.retention = {.max_bytes = 1'500}, .segment_records = 5}};
    under.fill(15);
    CHECK(under.log.apply_retention(f.now).segments == 0);
    CHECK(under.log.segments() == 3);

    log_fixture records{{.retention = {.max_records = 10}, .segment_records = 5}};
    records.fill(15);
    CHECK(records.log.apply_retention(f.now).amount == log_amount{5, 500});
    CHECK(records.log.removed(log_removal::by_records).records == 5);

    // Segments of 100, 100, 100 and 50, limit 200: one goes.
    log_fixture e29{{.retention = {.max_bytes = 200}, .segment_bytes = 100}};
    e29.fill(3);
    e29.fill(1, 50);
    CHECK(e29.log.apply_retention(f.now).segments == 1);
    CHECK(e29.log.bytes() == 250);

    log_fixture tiny{{.retention = {.max_bytes = 1}, .segment_bytes = 100}};
    tiny.fill(3);
    CHECK(tiny.log.apply_retention(f.now).segments == 2);
    CHECK(tiny.log.records() == 1); // never the segment that is written
}

TEST_CASE("partition: everything too old leaves one empty segment, numbers go on [R04] [D85]") {
    for (const int n : {0, 1, 25}) {
        log_fixture f{{.retention = {.max_age = 24h}, .segment_records = 5}};
        f.fill(n);
        f.now += 48h;
        const auto r = f.log.apply_retention(f.now);
        CHECK(r.amount.records == static_cast<std::uint64_t>(n));
        CHECK(f.log.segments() == 1);
        CHECK(f.log.start_offset() == static_cast<std::uint64_t>(n));
        CHECK(f.log.end_offset() == static_cast<std::uint64_t>(n));
        CHECK(f.log.removed(log_removal::by_age).records == static_cast<std::uint64_t>(n));
        CHECK(f.append(std::nullopt, "v").first_offset == static_cast<std::uint64_t>(n));
        CHECK(f.log.apply_retention(f.now).segments == 0);
        CHECK(f.balanced());
    }
}

TEST_CASE(
    "partition: exactly as old as the limit, it stays; a second run does nothing [R05] [E30]") {
    log_fixture f{{.retention = {.max_age = 1h}, .segment_records = 2}};
    f.fill(2);
    f.now += 30min;
    f.fill(4);
    f.now += 30min;
    CHECK(f.log.apply_retention(f.now).segments == 0);
    f.now += 1ns;
    CHECK(f.log.apply_retention(f.now).segments == 1);
    CHECK(f.log.apply_retention(f.now).segments == 0);
    CHECK(f.log.start_offset() == 2);
    CHECK(f.balanced());
}

TEST_CASE("partition: a newer record holds its segment and later ones [R06]") {
    log_fixture f{{.retention = {.max_age = 1h}, .segment_records = 2}};
    f.now += 10h;
    f.append(std::nullopt, "old", f.now - 5h);
    f.append(std::nullopt, "new", f.now);
    f.append(std::nullopt, "old", f.now - 5h);
    f.append(std::nullopt, "old", f.now - 5h);
    f.append(std::nullopt, "new", f.now);
    CHECK(f.log.apply_retention(f.now).segments == 0);
    CHECK(f.log.delete_records(2).segments == 1); // the start passes it
    CHECK(f.log.apply_retention(f.now).segments == 1);
    CHECK(f.log.start_offset() == 4);
    CHECK(f.balanced());
}

TEST_CASE("partition: a record from the future holds nothing [BR20]") {
    log_fixture f{{.retention = {.max_age = 1h}, .segment_records = 10}};
    f.fill(9);
    f.append(std::nullopt, "future", f.now + 87'600h);
    f.fill(10);
    f.fill(1);
    f.now += 2h;
    CHECK(f.log.apply_retention(f.now).segments == 3);
    CHECK(f.log.apply_retention(f.now).segments == 0);
    CHECK(f.balanced());
}

TEST_CASE("partition: compacted logs have no retention, unless both are asked for [R08] [R09]") {
    const railmq::log_retention keep{.max_age = 1h, .max_records = 3};
    log_fixture compact{{.cleanup = log_cleanup::compact, .segment_records = 5}};
    log_fixture both{
        {.retention = keep, .cleanup = log_cleanup::compact_and_remove, .segment_records = 5}};
    for (log_fixture* f : {&compact, &both}) {
        for (int i = 0; i < 20; ++i) {
            REQUIRE(f->append(std::to_string(i), "v").failed == errc{});
        }
        f->now += 2h;
    }
    CHECK(compact.log.apply_retention(compact.now).segments == 0);
    CHECK(both.log.apply_retention(both.now).segments == 4);
    CHECK(compact.log.delete_records(5).segments == 1);
    CHECK(compact.log.start_offset() == 5);
    CHECK(compact.log.segments() == 3);
}

TEST_CASE("partition: records are removed up to an offset [R10]") {
    log_fixture f{{.segment_records = 4}};
    f.fill(10);
    auto r = f.log.delete_records(6);
    CHECK(r.segments == 1);
    CHECK(r.amount == log_amount{6, 600});
    CHECK(f.log.start_offset() == 6);
    CHECK(f.log.records() == 4);
    CHECK(f.log.delete_records(3).amount.records == 0); // the start never falls
    CHECK(f.log.start_offset() == 6);
    CHECK(f.log.delete_records(11).failed == errc::offset_out_of_range);
    CHECK(f.log.records() == 4);
    CHECK(f.log.delete_records(8).amount.records == 2);
    CHECK(f.offsets() == offsets{8, 9});
    CHECK(f.log.removed(log_removal::by_request) == log_amount{8, 800});
    CHECK(f.balanced());
    r = f.log.delete_records(10);
    CHECK(f.log.segments() == 1);
    r.gone.clear();
    CHECK(f.log.memory_bytes() == sizeof(railmq::core::log_segment<log_fixture::sync>));
}

TEST_CASE(
    "partition: a reader behind a hole goes on behind it, one before the start is told [BX07]") {
    log_fixture f{{.segment_records = 2}};
    f.fill(2);
    railmq::core::log_cursor<log_fixture::sync> c;
    REQUIRE(f.log.seek(c, 0) == errc{});
    const auto none = [](const railmq::core::log_entry&) {};
    REQUIRE(c.read(railmq::unlimited, railmq::unlimited, none) == railmq::core::read_status::ok);
    f.fill(4);
    { const auto gone = f.log.delete_records(4); }
    CHECK(
        c.read(railmq::unlimited, railmq::unlimited, none) ==
        railmq::core::read_status::out_of_range);
    CHECK(c.position() == 2);
    CHECK(f.log.enter(c) == errc::offset_out_of_range);
    CHECK(f.log.seek(c, f.log.start_offset()) == errc{});
    CHECK(c.read(1, railmq::unlimited, none) == railmq::core::read_status::ok);
    CHECK(c.position() == 5);
}

TEST_CASE("partition: what a reader pins stays, whatever is removed") {
    log_fixture f{{.retention = {.max_age = 1h}, .segment_records = 2}};
    const std::string text(100, 'x');
    f.append("key", text);
    f.append(std::nullopt, "b");
    f.append(std::nullopt, "c");
    railmq::core::log_cursor<log_fixture::sync> c;
    REQUIRE(f.log.seek(c, 0) == errc{});
    railmq::core::log_entry got;
    REQUIRE(c.read(1, railmq::unlimited, [&](const railmq::core::log_entry& e) {
        got = e;
    }) == railmq::core::read_status::ok);
    { const auto gone = f.log.delete_records(1); }
    CHECK(*static_cast<const std::string*>(got.payload) == text);
    f.now += 2h;
    { const auto gone = f.log.apply_retention(f.now); }
    CHECK(f.log.records() == 0);
    CHECK(*static_cast<const std::string*>(got.payload) == text);
    CHECK(got.key == "key");
    CHECK(f.budget.used() > f.log.memory_bytes());
    c.unpin();
    CHECK(f.budget.used() == f.log.memory_bytes());
}

TEST_CASE("partition: a record without a key is refused where the log is compacted [S06]") {
    log_fixture f{{.cleanup = log_cleanup::compact}};
    CHECK(f.append(std::nullopt, "v").failed == errc::invalid_argument);
    CHECK(f.append("", "v").failed == errc{}); // an empty key is a key
    CHECK(f.append("k", std::nullopt).failed == errc{});
    CHECK(f.log.end_offset() == 2);
}
