// SPDX-License-Identifier: BSL-1.0
//
// Damage to a directory with logs: the broker refuses it, and a salvage saves every record that is
// intact, with groups and producers, and says which are not.
#include <railmq/broker.hpp>
#include <railmq/storage/salvage.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/damage.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::storage;
using railmq::append_options;
using railmq::errc;
using railmq::error_code;

namespace {

/// A log's name, a partition, an offset.
using place = std::tuple<std::string, std::uint32_t, std::uint64_t>;

[[nodiscard]] railmq::broker_options small() {
    railmq::broker_options o;
    o.journal = {.segment_bytes = 4096, .headroom_bytes = 1024, .max_record_bytes = 4000};
    return o;
}
const railmq::log_options plain{.partitions = 2};
const railmq::log_options state{
    .cleanup = railmq::log_cleanup::compact, .segment_records = 4, .min_dirty_ratio = 0.1};

[[nodiscard]] std::string value_of(const place& p) {
    return std::get<0>(p) + std::to_string(std::get<1>(p)) + ":" + std::to_string(std::get<2>(p)) +
           std::string(40, '.');
}
template <class Log>
[[nodiscard]] std::map<place, std::string> contents(const Log& log) {
    std::map<place, std::string> all;
    auto reader = log.consumer();
    while (auto d = reader.try_receive()) {
        all[{log.name(), d->partition(), d->offset()}] = d->value();
    }
    return all;
}

struct world {
    /// `removes`: some records leave, by deletion and by compaction.
    explicit world(int count, bool removes) {
        railmq::simulation sim{1};
        railmq::sim_broker broker{sim, disk.directory(), small()};
        auto a = broker.log<std::string>("a", plain);
        auto b = broker.log<std::string>("b", state);
        auto q = broker.queue<std::string>("q");
        auto p = a.producer({.producer_id = 3, .epoch = 2});
        for (int i = 0; i < count; ++i) {
            const auto part = static_cast<std::uint32_t>(i % 2);
            p.send(
                value_of({"a", part, a.end_offset(part)}),
                {.headers = {{"n", std::to_string(i)}}},
                append_options{.partition = part});
            b.producer().send(
                "k" + std::to_string(removes ? i % 5 : i), value_of({"b", 0, b.end_offset(0)}));
            q.producer().send("between");
        }
        auto member = a.consumer({.group = "g"});
        for (auto& d : member.receive_batch(6, 0s)) {
            d.ack();
        }
        member.commit();
        committed = a.committed("g", 0);
        if (removes) {
            b.compact();
            a.delete_records(0, 3);
        }
        broker.sync();
        for (const auto* log : {&a, &b}) {
            const auto all = contents(*log);
            alive.insert(all.begin(), all.end());
        }
        disk.end_process();
    }
    [[nodiscard]] error_code salvage() {
        error_code ec;
        saved.emplace(2);
        railmq::storage::salvage(
            disk.directory(),
            saved->directory(),
            {.journal = small().journal, .fresh = {5, 6}},
            report,
            ec);
        disk.end_process();
        saved->end_process();
        return ec;
    }
    struct found_type {
        std::map<place, std::string> records{};
        std::optional<std::uint64_t> committed{};
        bool knows_producer = false;
    };
    [[nodiscard]] found_type found() {
        found_type f;
        railmq::simulation sim{1};
        railmq::sim_broker broker{sim, saved->directory(), small()};
        for (const char* name : {"a", "b"}) {
            if (auto log = broker.find_log<std::string>(name)) {
                const auto all = contents(*log);
                f.records.insert(all.begin(), all.end());
                for (const std::string& g : log->groups()) {
                    f.committed = log->committed(g, 0);
                }
            }
        }
        if (auto log = broker.find_log<std::string>("a")) {
            error_code ec;
            auto old = log->producer({.producer_id = 3, .epoch = 1});
            (void)old.send("x", append_options{.partition = 0}, ec);
            f.knows_producer = ec == errc::fenced;
        }
        return f;
    }
    [[nodiscard]] std::set<place> lost() const {
        std::set<place> all;
        for (const lost_records& l : report.lost_of_logs) {
            for (std::uint64_t n = 0; n < l.count; ++n) {
                all.emplace(l.name, l.partition, l.first + n);
            }
        }
        return all;
    }

    simulated_disk disk{1};
    std::optional<simulated_disk> saved{};
    salvage_report report{};
    std::map<place, std::string> alive{};
    std::optional<std::uint64_t> committed{};
};

/// The records of the journal, and what runs they have.
struct journal_record {
    std::uint64_t segment;
    std::uint64_t offset;
    std::uint64_t end;
    std::uint64_t number;
    bool defines;
    std::set<place> stored;
};
[[nodiscard]] std::vector<journal_record> records_of(simulated_disk& disk) {
    auto directory = disk.directory();
    journal_scanner scanner{directory};
    error_code ec;
    scanner.open(ec);
    struct collector : scan_visitor, entry_visitor {
        std::vector<journal_record> all{};
        std::map<std::uint64_t, std::string> names{};
        std::uint64_t known_synced = 0;
        void record(std::uint64_t segment, const record_view& r) {
            all.push_back(
                {segment,
                 r.offset,
                 r.offset + record_size(r.header.length),
                 r.header.number,
                 false,
                 {}});
            known_synced = std::max(known_synced, r.header.synced);
            if (r.header.kind == record_kind::data) {
                REQUIRE(read_entries(r.payload, railmq::duration::zero(), *this));
            }
        }
        void log(const log_definition& d) {
            names[d.number] = d.name;
            all.back().defines = true;
        }
        void queue(const queue_definition&) { all.back().defines = true; }
        void run(const log_run& r) {
            for (std::uint64_t n = 0; n < r.count; ++n) {
                all.back().stored.emplace(names.at(r.where.log), r.where.partition, r.first + n);
            }
        }
    } visit;
    journal_scan_report report;
    scanner.scan(0, visit, report, ec);
    REQUIRE_FALSE(ec);
    // Damage to what comes later looks like what a crash has left.
    std::erase_if(visit.all, [&](const auto& r) { return r.number > visit.known_synced; });
    return visit.all;
}

} // namespace

TEST_CASE("salvage_logs: of an intact journal it is a copy") {
    const bool removes = GENERATE(false, true);
    world w{60, removes};
    const auto files = railmq::test::all_files(w.disk);
    REQUIRE_FALSE(w.salvage());
    CHECK(railmq::test::all_files(w.disk) == files);
    CHECK(w.report.lost_of_logs.empty());
    CHECK(w.report.records == w.alive.size());
    REQUIRE(w.report.logs.size() == 2);
    CHECK(w.report.logs[0].name == "a");
    CHECK(w.report.logs[0].partitions == 2);
    CHECK_FALSE(w.report.logs[0].is_nameless);
    const auto f = w.found();
    CHECK(f.records == w.alive);
    CHECK(f.committed.has_value());
    CHECK(f.committed == w.committed);
    CHECK(f.knows_producer);
}

TEST_CASE("salvage_logs: one flipped bit in each record costs what is in it, and is told so") {
    const world clean{14, false};
    simulated_disk copy = clean.disk;
    const auto records = records_of(copy);
    std::size_t cost = 0;
    for (const journal_record& r : records) {
        const std::uint64_t at = r.offset + record_header::size;
        if (at >= r.end) {
            continue;
        }
        world w = clean;
        CAPTURE(r.segment, r.offset);
        w.disk.corrupt(segment_name(r.segment), at, std::byte{0x10});
        {
            railmq::simulation sim{1};
            CHECK_THROWS_AS(
                (railmq::sim_broker{sim, w.disk.directory(), small()}), railmq::system_error);
            w.disk.end_process();
        }
        REQUIRE_FALSE(w.salvage());
        if (r.defines) {
            continue; // its name may be lost: the next case
        }
        auto expected = w.alive;
        for (const place& p : r.stored) {
            expected.erase(p);
        }
        cost += r.stored.size();
        const auto f = w.found();
        CHECK(f.records == expected);
        // Of the last one of a partition nothing that comes later tells.
        std::set<place> told;
        for (const place& p : r.stored) {
            const auto next = clean.alive.upper_bound(p);
            if (next != clean.alive.end() && std::get<0>(next->first) == std::get<0>(p) &&
                std::get<1>(next->first) == std::get<1>(p)) {
                told.insert(p);
            }
        }
        CHECK(w.lost() == told);
        CHECK(f.knows_producer);
    }
    CHECK(cost == clean.alive.size());
}

TEST_CASE("salvage_logs: whatever has left, all that is intact is saved, and the rest is told") {
    const world clean{150, true};
    simulated_disk copy = clean.disk;
    const auto records = records_of(copy);
    std::uint64_t last = 0;
    for (const journal_record& r : records) {
        last = std::max(last, r.segment);
    }
    for (std::uint64_t segment = 1; segment <= last; ++segment) {
        world w = clean;
        const std::string name = segment_name(segment);
        CAPTURE(name);
        std::set<place> harmed;
        bool is_there = false;
        for (const journal_record& r : records) {
            if (r.segment == segment && r.offset >= 1000 && r.offset < 2000) {
                harmed.insert(r.stored.begin(), r.stored.end());
                is_there = true;
                w.disk.corrupt(name, r.offset + 9, std::byte{0x10});
            }
        }
        if (!is_there) {
            continue;
        }
        REQUIRE_FALSE(w.salvage());
        const auto f = w.found();
        const auto lost = w.lost();
        for (const auto& [p, value] : clean.alive) {
            CAPTURE(std::get<0>(p), std::get<1>(p), std::get<2>(p));
            if (f.records.contains(p)) {
                CHECK(f.records.at(p) == value);
            } else {
                CHECK(harmed.contains(p)); // nothing else suffers
                const auto next = clean.alive.upper_bound(p);
                const bool is_last = next == clean.alive.end() ||
                                     std::get<1>(next->first) != std::get<1>(p) ||
                                     std::get<0>(next->first) != std::get<0>(p);
                CHECK((is_last || lost.contains(p)));
            }
        }
    }
}

TEST_CASE("salvage_logs: a log whose name is lost is one of bytes") {
    world w{5, false};
    simulated_disk copy = w.disk;
    for (const journal_record& r : records_of(copy)) {
        if (r.defines) {
            w.disk.corrupt(segment_name(r.segment), r.offset + 9, std::byte{0x10});
        }
    }
    REQUIRE_FALSE(w.salvage());
    REQUIRE(w.report.logs.size() == 2);
    CHECK(w.report.logs[0].is_nameless);
    CHECK(w.report.logs[0].name == "salvaged.log.1");
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim, w.saved->directory(), small()};
    auto log = broker.find_log<railmq::bytes>("salvaged.log.1");
    REQUIRE(log);
    CHECK(log->partitions() == 2);
    CHECK(
        log->consumer({.partitions = {0}}).try_receive()->value().view() == value_of({"a", 0, 0}));
}
