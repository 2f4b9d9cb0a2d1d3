// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/entries.hpp>
#include <railmq/storage/log_entries.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::duration;
using railmq::time_point;

namespace {

constexpr duration wall = 1000s;

/// What was read, as text.
struct listing : entry_visitor {
    std::vector<std::string>& out;
    explicit listing(std::vector<std::string>& o)
        : out{o} {}
    static std::string text(std::uint64_t n) { return std::to_string(n); }
    static std::string text(time_point t) { return std::to_string(t.time_since_epoch() / 1s); }
    static std::string place(log_place p) { return text(p.log) + "/" + text(p.partition); }

    void log(const log_definition& d) { out.push_back("log " + text(d.number) + " " + d.name); }
    void log_deleted(std::uint64_t n) { out.push_back("deleted " + text(n)); }
    void run(const log_run& r) {
        std::string line = "run " + place(r.where) + " " + text(r.first) + "+" + text(r.count) +
                           " at " + text(r.appended);
        if (r.producer) {
            line += " by " + text(r.producer->id) + "." + text(r.producer->epoch) + " " +
                    text(static_cast<std::uint64_t>(r.producer->first)) + ".." +
                    text(static_cast<std::uint64_t>(r.producer->last));
        }
        for_each_record(r, wall, [&](std::uint64_t offset, const log_run_record& one) {
            line += " | " + text(offset);
            line += one.has_key ? " " + std::string{one.key} : " -";
            line += one.timestamp ? " " + text(*one.timestamp) : "";
            if (!one.props.empty()) {
                railmq::properties p;
                REQUIRE(one.get(p));
                line += " " + p.correlation_id;
            }
            line += one.is_tombstone ? " gone"
                                     : " =" + std::string{
                                                  reinterpret_cast<const char*>(one.payload.data()),
                                                  one.payload.size()};
        });
        out.push_back(line);
    }
    void partition(log_place p, const kept_extent& e) {
        out.push_back(
            "partition " + place(p) + " " + text(e.start) + ".." + text(e.end) + " " +
            text(e.checkpoint));
    }
    void removed(log_place p, std::uint64_t first, std::uint64_t n) {
        out.push_back("removed " + place(p) + " " + text(first) + "+" + text(n));
    }
    void horizon(log_place p, std::uint64_t offset, time_point when) {
        out.push_back("horizon " + place(p) + " " + text(offset) + " " + text(when));
    }
    void rows(log_place p, std::uint64_t from, std::uint64_t to) {
        out.push_back("rows " + place(p) + " " + text(from) + ".." + text(to));
    }
    void
    row(log_place p,
        std::uint64_t first,
        std::uint64_t n,
        record_location at,
        std::uint32_t bytes) {
        out.push_back(
            "row " + place(p) + " " + text(first) + "+" + text(n) + " " + text(at.segment) + ":" +
            text(at.offset) + " " + text(bytes));
    }
    void producer(log_place where, const kept_producer& p) {
        std::string line = "producer " + place(where) + " " + text(p.id) + "." + text(p.epoch) +
                           " " + text(p.used);
        for (std::uint32_t i = 0; i < p.count; ++i) {
            line += " " + text(static_cast<std::uint64_t>(p.batches[i].first)) + ".." +
                    text(static_cast<std::uint64_t>(p.batches[i].last)) + "@" +
                    text(p.batches[i].offset);
        }
        out.push_back(line);
    }
    void group(std::uint64_t log, const group_definition& g) {
        out.push_back("group " + text(log) + " " + g.name + " " + text(g.generation));
    }
    void group_deleted(std::uint64_t log, std::string_view name) {
        out.push_back("no group " + text(log) + " " + std::string{name});
    }
    void group_offset(
        log_place p,
        std::string_view name,
        std::uint64_t offset,
        std::string_view metadata,
        time_point at) {
        out.push_back(
            "offset " + place(p) + " " + std::string{name} + " " + text(offset) + " " +
            std::string{metadata} + " " + text(at));
    }
    void group_offset_gone(log_place p, std::string_view name) {
        out.push_back("no offset " + place(p) + " " + std::string{name});
    }
};

void put_payload(std::vector<std::byte>& out, std::string_view text) {
    wire_writer{out}.text(text);
}
[[nodiscard]] std::vector<std::byte> all_kinds() {
    std::vector<std::byte> records;
    wire_writer w{records, wall};
    wire::put_run_record(w, std::nullopt, std::nullopt, nullptr, false);
    put_payload(records, "plain");
    const railmq::properties p{.correlation_id = "c"};
    wire::put_run_record(w, "k", time_point{7s}, &p, false);
    put_payload(records, "");
    wire::put_run_record(w, "k", std::nullopt, nullptr, true);

    std::vector<std::byte> out;
    log_entry_writer e{out, wall};
    e.log({3, "l", "bytes", 2, {}});
    e.run({3, 1}, 40, 3, time_point{5s}, run_producer{9, 2, 2147483647, 1});
    e.records(records);
    e.partition({3, 1}, {1, 9, 5});
    e.removed({3, 1}, 2, 300);
    e.horizon({3, 1}, 4, time_point{6s});
    e.rows({3, 1}, 0, max_log_offset, 2);
    e.row(0, 2, {1, 64}, 30);
    e.row(5, 1, {2, 128}, 31);
    kept_producer known;
    known.id = 9;
    known.used = time_point{8s};
    known.add(1, {0, 4, 17}, time_point{8s});
    known.add(1, {5, 5, 22}, time_point{8s});
    e.producer({3, 0}, known);
    e.group(3, {"g", {}, 12, railmq::never});
    e.group_offset({3, 1}, "g", 6, "meta", time_point{9s});
    e.group_offset_gone({3, 0}, "g");
    e.group_deleted(3, "g");
    e.deleted(3);
    return out;
}

} // namespace

TEST_CASE("log_entries: what is written is read, of every kind, among other entries") {
    std::vector<std::byte> record;
    entry_writer{record, wall}.gone(1, 2, 3);
    const auto logs = all_kinds();
    record.insert(record.end(), logs.begin(), logs.end());
    entry_writer{record, wall}.gone(1, 2, 3);
    std::vector<std::string> seen;
    REQUIRE(read_entries(record, wall, listing{seen}));
    const std::vector<std::string> expected{
        "log 3 l",
        "run 3/1 40+3 at 5 by 9.2 2147483647..1 | 40 - =plain | 41 k 7 c = | 42 k gone",
        "partition 3/1 1..9 5",
        "removed 3/1 2+300",
        "horizon 3/1 4 6",
        "rows 3/1 0.." + std::to_string(max_log_offset),
        "row 3/1 0+2 1:64 30",
        "row 3/1 5+1 2:128 31",
        "producer 3/0 9.1 8 0..4@17 5..5@22",
        "group 3 g 12",
        "offset 3/1 g 6 meta 9",
        "no offset 3/0 g",
        "no group 3 g",
        "deleted 3"};
    CHECK(seen == expected);
}

TEST_CASE("log_entries: a part of an entry is none, and is not read beyond") {
    const auto record = all_kinds();
    std::vector<std::string> whole;
    REQUIRE(read_entries(record, wall, listing{whole}));
    std::size_t good = 0;
    for (std::size_t n = 0; n < record.size(); ++n) {
        const std::vector<std::byte> part(
            record.begin(), record.begin() + static_cast<std::ptrdiff_t>(n));
        std::vector<std::string> seen;
        good += read_entries(part, wall, listing{seen}) ? 1 : 0;
        REQUIRE(seen.size() <= whole.size());
        REQUIRE(std::equal(seen.begin(), seen.end(), whole.begin()));
    }
    CHECK(good == 12); // between the entries, and before the first
}

TEST_CASE("log_entries: numbers that make no sense are no entries") {
    const auto is_read = [](auto&& write) {
        std::vector<std::byte> out;
        log_entry_writer w{out, duration::zero()};
        write(w, out);
        return read_entries(out, duration::zero(), entry_visitor{});
    };
    CHECK(is_read([](auto& w, auto&) { w.partition({1, 0}, {1, 2, 2}); }));
    CHECK_FALSE(is_read([](auto& w, auto&) { w.partition({1, 0}, {3, 2, 0}); }));
    CHECK_FALSE(is_read([](auto& w, auto&) { w.partition({1, 0}, {0, 2, 3}); }));
    CHECK_FALSE(is_read([](auto& w, auto&) { w.partition({1, 1U << 16}, {0, 2, 0}); }));
    CHECK_FALSE(is_read([](auto& w, auto&) { w.removed({1, 0}, max_log_offset, 1); }));
    CHECK_FALSE(is_read([](auto& w, auto&) { w.run({1, 0}, 0, 0, {}); }));
    CHECK_FALSE(is_read([](auto& w, auto&) { w.run({1, 0}, 0, 1, {}); }));
    CHECK_FALSE(is_read([](auto& w, auto&) {
        w.rows({1, 0}, 0, 1, 1);
        w.row(0, 1, {0, 64}, 1);
    }));
    CHECK_FALSE(is_read([](auto& w, auto&) {
        w.rows({1, 0}, 0, 1, 1);
        w.row(0, 1, {1, 65}, 1);
    }));
    CHECK_FALSE(is_read([](auto& w, auto&) { w.producer({1, 0}, {}); }));
    // A tombstone without a key.
    CHECK_FALSE(is_read([](auto& w, auto& out) {
        w.run({1, 0}, 0, 1, {});
        out.push_back(std::byte{wire::run_is_tombstone});
    }));
    CHECK_FALSE(is_read([](auto&, auto& out) { out.push_back(std::byte{28}); }));
}

TEST_CASE("log_entries: version 1 is written as it always was") {
    constexpr std::string_view known =
        "1003016c056279746573020100000000008080800800000029f90f26020000004f91944e000000"
        "00000000000000c0843d000000000000e03f00004f91944e00000012030128030002abfee90000"
        "00010902ffffffff07010005706c61696e0d016b0096e075ea0000001400000000000000000000"
        "000000000000000000016300000003016b13030101090514030102ac021503010400cc453aea00"
        "00001603010080808080808080804002000201401e05010280011f170300090100607bb1ea0000"
        "000200041105051618030167030000000000000000005847f80d000000000029f90f2602008020"
        "0cffffffffffffff7f1a0301016706046d657461002a16edea0000001b03000167190301671103";
    std::string hex;
    for (const std::byte b : all_kinds()) {
        constexpr std::string_view digits = "0123456789abcdef";
        hex += digits[static_cast<unsigned>(b) >> 4U];
        hex += digits[static_cast<unsigned>(b) & 15U];
    }
    CHECK(hex == known);
}
