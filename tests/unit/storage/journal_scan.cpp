// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/journal.hpp>
#include <railmq/storage/journal_scan.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/damage.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

using namespace railmq::storage;
using railmq::error_code;

namespace {

constexpr journal_options small{
    .segment_bytes = 4096, .headroom_bytes = 1024, .max_record_bytes = 2000};

struct place {
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t number = 0;
    record_kind kind{};
    friend bool operator==(const place&, const place&) = default;
};

struct world {
    /// A journal of several segments, closed or killed.
    explicit world(int records = 60, bool is_closed = true) {
        error_code ec;
        recovery_report report;
        auto j = journal<simulated_directory>::open(
            disk.directory(),
            small,
            {7, 9},
            [](std::uint64_t, std::span<const std::byte>, record_location) {},
            report,
            ec);
        for (int i = 0; i < records; ++i) {
            std::vector<std::byte> payload(static_cast<std::size_t>(100 + i));
            payload[0] = static_cast<std::byte>(i);
            (void)j->append(payload, ec);
            j->sync(ec);
        }
        if (is_closed) {
            j->close(ec);
        }
        REQUIRE_FALSE(ec);
        disk.end_process();
        scan();
        REQUIRE(report_.damage.empty());
        all = found;
        segments = report_.segments;
        REQUIRE((records < 60 || segments >= 3));
    }
    void scan(std::uint64_t from = 0) {
        auto directory = disk.directory();
        journal_scanner scanner{directory};
        error_code ec;
        scanner.open(ec);
        REQUIRE_FALSE(ec);
        found.clear();
        struct collector : scan_visitor {
            std::vector<place>& out;
            std::vector<journal_damage> damages{};
            collector(scan_visitor, std::vector<place>& o)
                : out{o} {}
            void record(std::uint64_t segment, const record_view& r) {
                out.push_back(
                    {segment,
                     r.offset,
                     record_size(r.header.length),
                     r.header.number,
                     r.header.kind});
            }
            void damage(const journal_damage& d) { damages.push_back(d); }
        } visit{{}, found};
        scanner.scan(from, visit, report_, ec);
        REQUIRE_FALSE(ec);
        CHECK(visit.damages == report_.damage);
        CHECK(report_.records == found.size());
        for (const place& p : found) {
            const auto again = scanner.read({p.segment, p.offset});
            REQUIRE(again);
            CHECK(again->header.number == p.number);
        }
    }
    /// Opening says whether there is damage; it must agree.
    [[nodiscard]] bool opens() const {
        simulated_disk copy = disk;
        recovery_report report;
        error_code ec;
        (void)journal<simulated_directory>::open(
            copy.directory(),
            small,
            {7, 9},
            [](std::uint64_t, std::span<const std::byte>, record_location) {},
            report,
            ec);
        return !ec;
    }
    [[nodiscard]] std::vector<place> without(std::uint64_t first, std::uint64_t last) const {
        std::vector<place> rest;
        for (const place& p : all) {
            if (p.number < first || p.number > last) {
                rest.push_back(p);
            }
        }
        return rest;
    }
    [[nodiscard]] const journal_damage& only() const {
        REQUIRE(report_.damage.size() == 1);
        return report_.damage[0];
    }

    simulated_disk disk{1};
    std::vector<place> all{};
    std::vector<place> found{};
    std::uint64_t segments = 0;
    journal_scan_report report_{};
};

} // namespace

TEST_CASE("journal_scan: what is intact is found, and nothing is damaged or changed") {
    const bool is_closed = GENERATE(true, false);
    world w{60, is_closed};
    const auto before = railmq::test::all_files(w.disk);
    w.scan();
    CHECK(w.report_.damage.empty());
    CHECK(w.report_.was_closed == is_closed);
    CHECK(w.report_.cut_bytes == 0);
    CHECK(w.all.front().number == 1);
    CHECK(w.all.back().number == w.report_.last_record);
    CHECK(w.all.size() == w.report_.last_record);
    CHECK(railmq::test::all_files(w.disk) == before);
}

TEST_CASE("journal_scan: a flipped bit costs its own record and no other") {
    const world clean;
    for (std::size_t i = 0; i + 1 < clean.all.size(); ++i) { // of the last nobody knows
        const place p = clean.all[i];
        for (const bool in_header : {true, false}) {
            if (!in_header && p.size == record_header::size) {
                continue;
            }
            CAPTURE(p.segment, p.number, in_header);
            world w;
            const std::uint64_t at = p.offset + (in_header ? 17 : record_header::size);
            w.disk.corrupt(segment_name(p.segment), at, std::byte{4});
            w.scan();
            CHECK(w.found == clean.without(p.number, p.number));
            const journal_damage expected{
                in_header ? damage_kind::record : damage_kind::payload,
                p.segment,
                p.offset,
                p.offset + p.size,
                p.number,
                p.number};
            if (in_header && p.kind == record_kind::sealed) {
                CHECK(w.only().first_record == p.number);
                CHECK(w.only().last_record == p.number);
            } else {
                CHECK(w.only() == expected);
            }
            CHECK_FALSE(w.opens());
        }
    }
}

TEST_CASE("journal_scan: overwritten stretches are told by their bytes and numbers") {
    const world clean;
    for (std::size_t i = 3; i + 5 < clean.all.size(); i += 7) {
        const place a = clean.all[i];
        const place b = clean.all[i + 2];
        if (a.segment != b.segment || b.kind == record_kind::sealed) {
            continue;
        }
        world w;
        railmq::test::overwrite(
            w.disk,
            segment_name(a.segment),
            a.offset,
            static_cast<std::size_t>(b.offset + b.size - a.offset));
        w.scan();
        CHECK(w.found == clean.without(a.number, b.number));
        CHECK(
            w.only() ==
            journal_damage{
                damage_kind::record, a.segment, a.offset, b.offset + b.size, a.number, b.number});
    }
}

TEST_CASE("journal_scan: a header that is damaged costs no record") {
    const world clean;
    for (std::uint64_t s = 1; s <= clean.segments; ++s) {
        world w;
        w.disk.corrupt(segment_name(s), GENERATE(0U, 9U, 20U, 35U, 50U, 62U), std::byte{1});
        w.scan();
        CHECK(w.found == clean.all);
        CHECK(w.only() == journal_damage{damage_kind::header, s, 0, segment_header::size, 0, 0});
        CHECK_FALSE(w.opens());
    }
}

TEST_CASE("journal_scan: records are found where no header is left at all") {
    const int records = GENERATE(0, 1, 5, 60);
    const bool is_closed = GENERATE(true, false);
    const world clean{records, is_closed};
    world w{records, is_closed};
    for (std::uint64_t s = 1; s <= clean.segments; ++s) {
        railmq::test::overwrite(w.disk, segment_name(s), 0, segment_header::size);
    }
    w.scan();
    if (clean.all.size() > 1) { // one that has nothing beside it proves nothing
        CHECK(w.report_.damage.size() == clean.segments);
        CHECK(w.found == clean.all);
    }
}

TEST_CASE("journal_scan: a segment that is missing is told by the numbers in it") {
    const world clean;
    for (std::uint64_t s = 1; s < clean.segments; ++s) {
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        for (const place& p : clean.all) {
            if (p.segment == s) {
                first = first == 0 ? p.number : first;
                last = p.number;
            }
        }
        world w;
        railmq::test::remove(w.disk, segment_name(s));
        w.scan();
        CHECK(w.found == clean.without(first, last));
        CHECK(w.only() == journal_damage{damage_kind::missing, s, 0, 0, first, last});
        CHECK_FALSE(w.opens());
    }
}

TEST_CASE("journal_scan: a file that ends too early") {
    const world clean;
    for (std::size_t i = 1; i < clean.all.size(); i += 3) {
        const place p = clean.all[i];
        if (p.segment == clean.segments) {
            break;
        }
        std::uint64_t last = p.number;
        for (const place& q : clean.all) {
            last = q.segment == p.segment ? q.number : last;
        }
        for (const std::uint64_t into : {0U, 20U, 41U}) {
            world w;
            railmq::test::truncate(w.disk, segment_name(p.segment), p.offset + into);
            w.scan();
            CHECK(w.found == clean.without(p.number, last));
            std::uint64_t lost = 0; // by one or two damages, one behind the other
            for (const journal_damage& d : w.report_.damage) {
                CHECK(d.first_record == p.number + lost);
                lost = d.last_record - p.number + 1;
            }
            CHECK(lost == last - p.number + 1);
            CHECK_FALSE(w.opens());
        }
    }
}

TEST_CASE("journal_scan: what a crash left over is no damage, exactly when opening says so") {
    const world clean{30, false};
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        world w{30, false};
        {
            error_code ec;
            recovery_report report;
            auto j = journal<simulated_directory>::open(
                w.disk.directory(),
                small,
                {7, 9},
                [](std::uint64_t, std::span<const std::byte>, record_location) {},
                report,
                ec);
            w.disk.reseed(seed);
            for (int i = 0; i < 10; ++i) {
                const std::vector<std::byte> payload(300, std::byte{1});
                (void)j->append(payload, ec);
                if (i % 4 == 0) {
                    j->write(ec);
                }
            }
            j->write(ec);
            w.disk.crash();
        }
        w.scan();
        CHECK(w.report_.damage.empty());
        CHECK(w.opens());
        // Now with damage, of which opening must know the same.
        const auto& last = w.found[seed % w.found.size()];
        w.disk.corrupt(segment_name(last.segment), last.offset + 20, std::byte{1});
        w.scan();
        CHECK(w.opens() == w.report_.damage.empty());
    }
}

TEST_CASE("journal_scan: a block that the device does not give is damage like any other") {
    world w;
    auto directory = w.disk.directory();
    journal_scanner scanner{directory};
    error_code ec;
    scanner.open(ec);
    REQUIRE_FALSE(ec);
    journal_scan_report report;
    w.disk.fail(disk_operation::read, 1, boost::system::errc::io_error);
    scanner.scan(0, scan_visitor{}, report, ec);
    CHECK_FALSE(ec);
    CHECK(report.unreadable_bytes >= 4096 - 200);
    CHECK(report.damage.size() == 1);
    CHECK(report.records > 0);
}

TEST_CASE("journal_scan: damage in words") {
    journal_damage d{damage_kind::payload, 2, 64, 128, 3, 3};
    CHECK(
        to_string(d) == "bytes 64 to 128 of 0000000000000002.journal: "
                        "a record's payload is damaged, record 3 is lost");
    d = {damage_kind::missing, 1, 0, 0, 3, 9};
    CHECK(to_string(d) == "0000000000000001.journal: the file is missing, records 3 to 9 are lost");
    d = {damage_kind::cut, 1, 70, 70, 4, 0};
    CHECK(
        to_string(d) == "byte 70 of 0000000000000001.journal: "
                        "the file ends too early, records 4 and later ones are lost");
    d = {damage_kind::missing, 1, 0, 0, 0, 9};
    CHECK(
        to_string(d) == "0000000000000001.journal: the file is missing, records up to 9 are lost");
    d = {damage_kind::header, 1, 0, 64, 0, 0};
    CHECK(
        to_string(d) == "bytes 0 to 64 of 0000000000000001.journal: "
                        "the file's header is damaged, no record is lost");
}
