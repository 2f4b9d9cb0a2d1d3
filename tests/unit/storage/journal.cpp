// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"
#include "support/watched_disk.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace railmq::storage;
using railmq::errc;
using railmq::error_code;
namespace sys = boost::system::errc;

namespace {

constexpr journal_id id{0x1122334455667788U, 0x99aabbccddeeff00U};
constexpr journal_options small{
    .segment_bytes = 4096, .headroom_bytes = 1024, .max_record_bytes = 2000};

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
}

/// A journal on a disk, and what its openings have read.
struct world {
    explicit world(std::uint64_t seed = 1, simulated_disk_options options = {})
        : disk{seed, options} {}

    using journal_type = journal<simulated_directory>;

    error_code open(const journal_options& options = small) {
        error_code ec;
        read.clear();
        opened.reset();
        opened = journal_type::open(
            disk.directory(),
            options,
            id,
            [this](std::uint64_t, std::span<const std::byte> payload, record_location) {
                const auto* text = reinterpret_cast<const char*>(payload.data());
                read.emplace_back(text, payload.size());
            },
            report,
            ec);
        CHECK(opened.has_value() == !ec);
        return ec;
    }
    error_code append(std::string_view text, bool from_headroom = false) {
        error_code ec;
        (void)opened->append(bytes_of(text), ec, from_headroom);
        return ec;
    }
    error_code sync() {
        error_code ec;
        opened->sync(ec);
        return ec;
    }
    error_code close() {
        error_code ec;
        opened->close(ec);
        return ec;
    }
    /// All of `texts` appended and synced.
    void store(const std::vector<std::string>& texts) {
        for (const auto& t : texts) {
            REQUIRE_FALSE(append(t));
        }
        REQUIRE_FALSE(sync());
    }
    void crash() {
        disk.crash();
        opened.reset();
    }

    simulated_disk disk;
    std::optional<journal_type> opened{};
    std::vector<std::string> read{};
    recovery_report report{};
};

using texts = std::vector<std::string>;

/// Texts that tell apart, `n` of them.
texts numbered(int n, std::size_t size = 20) {
    texts all;
    for (int i = 0; i < n; ++i) {
        all.push_back("record " + std::to_string(i));
        all.back().resize(std::max(all.back().size(), size), '.');
    }
    return all;
}

bool is_prefix(const texts& part, const texts& whole) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

} // namespace

TEST_CASE(
    "journal: records of any size are read a part at a time, and what cannot be read is told") {
    // Around the 256 KiB that are read at once, and many small ones between.
    const journal_options large{
        .segment_bytes = 2 << 20, .headroom_bytes = 1024, .max_record_bytes = 1 << 20};
    texts all;
    for (const std::size_t size : {262144U, 1U, 262103U, 262104U, 262105U, 700000U, 8U}) {
        all.push_back(std::string(size, static_cast<char>('a' + all.size())));
        for (const std::string& t : numbered(50, all.size() * 10)) {
            all.push_back(t);
        }
    }
    world w;
    REQUIRE_FALSE(w.open(large));
    w.store(all);
    CHECK(w.opened->segment() > 1);
    w.crash();
    REQUIRE_FALSE(w.open(large));
    CHECK(w.read == all);
    CHECK(w.report.cut_bytes == 0);
    w.crash();

    // Any call to read fails: that is no damage, and the next time it is all there.
    std::uint64_t tried = 0;
    for (std::uint64_t n = 1;; n += 3, ++tried) {
        w.disk.fail(disk_operation::read, n, sys::io_error);
        const std::uint64_t struck = w.disk.faults_struck();
        const error_code ec = w.open(large);
        if (w.disk.faults_struck() == struck) {
            break;
        }
        CHECK(ec == errc::io_error);
    }
    CHECK(tried > 4);
    CHECK(w.read == all);
}

TEST_CASE("journal: a new one is empty, of epoch 1, and was not closed") {
    world w;
    REQUIRE_FALSE(w.open());
    CHECK(w.read.empty());
    CHECK(w.report.epoch == 1);
    CHECK(w.report.records == 0);
    CHECK_FALSE(w.report.was_closed);
    CHECK(w.report.cut_bytes == 0);
}

TEST_CASE("journal: what was synced is read again, in order, with its numbers rising") {
    world w;
    REQUIRE_FALSE(w.open());
    const texts all = numbered(10);
    error_code ec;
    std::uint64_t before = w.opened->last();
    for (const auto& t : all) {
        const std::uint64_t n = w.opened->append(bytes_of(t), ec);
        REQUIRE_FALSE(ec);
        CHECK(n == before + 1);
        before = n;
    }
    CHECK(w.opened->synced() < w.opened->last());
    REQUIRE_FALSE(w.sync());
    CHECK(w.opened->synced() == before);
    w.crash();
    REQUIRE_FALSE(w.open());
    CHECK(w.read == all);
    CHECK(w.report.records == 10);
    CHECK(w.report.epoch == 2);
    CHECK(w.opened->last() > before); // numbers never start over
}

TEST_CASE("journal: records of any length up to the limit, none is too short") {
    world w;
    REQUIRE_FALSE(w.open());
    texts all;
    for (std::size_t n = 0; n <= 40; ++n) {
        all.push_back(std::string(n, 'x'));
    }
    all.push_back(std::string(small.max_record_bytes, 'y'));
    w.store(all);
    CHECK(w.append(std::string(small.max_record_bytes + 1, 'z')) == errc::message_too_large);
    w.crash();
    REQUIRE_FALSE(w.open());
    CHECK(w.read == all);
}

TEST_CASE("journal: it goes on in new segments, and reads all of them") {
    world w;
    REQUIRE_FALSE(w.open());
    const texts all = numbered(200, 50);
    w.store(all);
    CHECK(w.opened->segment() > 3);
    w.crash();
    REQUIRE_FALSE(w.open());
    CHECK(w.read == all);
    CHECK(w.report.segments == w.opened->segment());
    error_code ec;
    for (const auto& name : w.disk.directory().names(ec)) {
        CHECK(segment_number(name));
        CHECK(w.disk.contents(name).size() <= 2 * small.segment_bytes);
    }
}

TEST_CASE("journal: a record that no segment could hold beside others gets one for itself") {
    world w;
    const journal_options large{
        .segment_bytes = 4096, .headroom_bytes = 1024, .max_record_bytes = 20'000};
    REQUIRE_FALSE(w.open(large));
    const texts all{"small", std::string(15'000, 'x'), "small too", std::string(20'000, 'y')};
    w.store(all);
    w.crash();
    REQUIRE_FALSE(w.open(large));
    CHECK(w.read == all);
}

TEST_CASE("journal: closed in good order, and opened again, also right after a seal") {
    for (int n = 0; n < 90; ++n) {
        world w;
        REQUIRE_FALSE(w.open());
        const texts all = numbered(n, 60);
        for (const auto& t : all) {
            REQUIRE_FALSE(w.append(t));
        }
        REQUIRE_FALSE(w.close());
        CHECK(w.append("more") == errc::journal_failed);
        w.crash();
        REQUIRE_FALSE(w.open());
        CHECK(w.read == all);
        CHECK(w.report.was_closed);
        CHECK(w.report.cut_bytes == 0);
        w.crash();
        REQUIRE_FALSE(w.open());
        CHECK_FALSE(w.report.was_closed);
        CHECK(w.report.epoch == 3);
    }
}

TEST_CASE("journal: what was not synced may be lost, from some point on and never in between") {
    bool lost = false;
    bool kept = false;
    for (std::uint64_t n = 0; n < 300; ++n) {
        world w{railmq::test::seed(n), {.torn_sectors = 0.2}};
        REQUIRE_FALSE(w.open());
        texts all = numbered(20, 100);
        w.store(all);
        for (int i = 0; i < 10; ++i) {
            all.push_back("unsynced " + std::string(200, static_cast<char>('a' + i)));
            REQUIRE_FALSE(w.append(all.back()));
        }
        error_code ec;
        w.opened->write(ec);
        REQUIRE_FALSE(ec);
        w.crash();
        REQUIRE_FALSE(w.open());
        CHECK(is_prefix(w.read, all));
        CHECK(w.read.size() >= 20);
        lost = lost || w.read.size() < all.size();
        kept = kept || w.read.size() > 20;
    }
    CHECK(lost);
    CHECK(kept);
}

// Valid records behind a hole: ext4 and XFS leave such a file after a power cut.
TEST_CASE("journal: records behind a hole are cut, and never come back") {
    world w;
    REQUIRE_FALSE(w.open());
    w.store({"one", "two"});
    const std::string name = segment_name(1);
    const std::size_t begin = w.disk.contents(name).size();
    const std::uint64_t hole = [&] {
        segment_header h;
        REQUIRE(decode(w.disk.contents(name), h) == header_state::good);
        segment_reader reader{w.disk.contents(name), h};
        while (reader.next()) {
        }
        return reader.offset();
    }();
    for (const auto* t : {"three", "four", "five"}) {
        REQUIRE_FALSE(w.append(t));
    }
    error_code ec;
    w.opened->write(ec);
    REQUIRE(w.disk.contents(name).size() == begin);
    // The third record is gone, the others are there.
    auto file = w.disk.directory().open(name, open_mode::read_write, ec);
    (void)write_at(file, hole, std::vector<std::byte>(record_size(5)), ec);
    REQUIRE_FALSE(ec);
    w.opened.reset();
    REQUIRE_FALSE(w.open());
    CHECK(w.read == texts{"one", "two"});
    CHECK(w.report.cut_bytes > 0);
    CHECK(w.report.file == name);
    CHECK(w.report.offset == hole);
    // Gone for good: behind the record that the opening wrote there is nothing.
    const auto rest = w.disk.contents(name).subspan(hole + record_size(0));
    CHECK(std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{}; }));
    // A record of the length that was lost brings the others into line again, if they are there.
    w.store({"THREE"});
    for (int i = 0; i < 3; ++i) {
        w.crash();
        REQUIRE_FALSE(w.open());
        CHECK(w.read == texts{"one", "two", "THREE"});
    }
}

TEST_CASE("journal: damage to what was synced is refused, with its place, and changes nothing") {
    world w;
    REQUIRE_FALSE(w.open());
    w.store(numbered(5));
    w.store({"and one more, which says that those were synced"});
    const std::string name = segment_name(1);
    segment_header h;
    REQUIRE(decode(w.disk.contents(name), h) == header_state::good);
    segment_reader reader{w.disk.contents(name), h};
    (void)reader.next(); // opened
    (void)reader.next();
    const auto second = reader.next();
    REQUIRE(second);
    w.crash();
    w.disk.corrupt(name, second->offset + record_header::size + 3, std::byte{0x10});
    const std::vector<std::byte> before{w.disk.contents(name).begin(), w.disk.contents(name).end()};
    for (int i = 0; i < 2; ++i) {
        CHECK(w.open() == errc::journal_corrupt);
        CHECK(w.report.file == name);
        CHECK(w.report.offset == second->offset);
        CHECK(w.report.record == second->header.number);
    }
    CHECK(std::equal(
        before.begin(), before.end(), w.disk.contents(name).begin(), w.disk.contents(name).end()));
}

TEST_CASE("journal: a segment that is missing, swapped or from elsewhere is refused") {
    const auto prepare = [](world& w) {
        REQUIRE_FALSE(w.open());
        w.store(numbered(150, 60));
        REQUIRE(w.opened->segment() >= 4);
        w.opened.reset();
    };
    error_code ec;
    SECTION("missing") {
        world w;
        prepare(w);
        w.disk.directory().remove(segment_name(2), ec);
        CHECK(w.open() == errc::journal_corrupt);
        CHECK(w.report.file == segment_name(2));
    }
    SECTION("swapped") {
        world w;
        prepare(w);
        auto dir = w.disk.directory();
        dir.rename(segment_name(2), "x", ec);
        dir.rename(segment_name(3), segment_name(2), ec);
        dir.rename("x", segment_name(3), ec);
        CHECK(w.open() == errc::journal_corrupt);
        CHECK(w.report.file == segment_name(2));
    }
    SECTION("longer than its seal") {
        world w;
        prepare(w);
        auto file = w.disk.directory().open(segment_name(1), open_mode::read_write, ec);
        (void)write_at(file, file.size(ec), bytes_of("more"), ec);
        CHECK(w.open() == errc::journal_corrupt);
        CHECK(w.report.file == segment_name(1));
    }
    SECTION("other files are nobody's business") {
        world w;
        prepare(w);
        for (const auto* name : {"LOCK", "notes.txt", "000000000000000A.journal", "1.journal"}) {
            (void)w.disk.directory().open(name, open_mode::create, ec);
        }
        REQUIRE_FALSE(w.open());
        CHECK(w.read.size() == 150);
        CHECK(w.disk.contains("notes.txt"));
    }
}

TEST_CASE("journal: options out of range, and files of a later format, are refused") {
    world w;
    CHECK(w.open({.segment_bytes = 4095}) == errc::invalid_argument);
    REQUIRE_FALSE(w.open());
    w.opened.reset();
    error_code ec;
    auto file = w.disk.directory().open(segment_name(1), open_mode::read_write, ec);
    std::vector<std::byte> header(segment_header::size);
    (void)read_at(file, 0, header, ec);
    format::store(header.data() + 8, segment_header::version + 1);
    format::store(header.data() + 60, crc32c{std::span{header}.first(60)}.value());
    (void)write_at(file, 0, header, ec);
    CHECK(w.open() == errc::invalid_argument);
}

TEST_CASE("journal: the first failed sync is the last: nothing is confirmed any more") {
    world w;
    REQUIRE_FALSE(w.open());
    w.store({"one"});
    const std::uint64_t synced = w.opened->synced();
    REQUIRE_FALSE(w.append("two"));
    w.disk.fail(disk_operation::sync, 1, sys::io_error);
    CHECK(w.sync() == errc::io_error);
    CHECK(w.opened->has_failed());
    CHECK(w.sync() == errc::journal_failed); // though the disk would say that all is well
    CHECK(w.append("three") == errc::journal_failed);
    error_code ec;
    w.opened->write(ec);
    CHECK(ec == errc::journal_failed);
    CHECK(w.opened->synced() == synced);
}

TEST_CASE("journal: what an opening reads after a failed sync is on the device by then") {
    world w;
    REQUIRE_FALSE(w.open());
    w.store({"one"});
    const std::string two(1'900, '2'); // so long that no other record shares all of its sectors
    REQUIRE_FALSE(w.append(two));
    w.disk.fail(disk_operation::sync, 1, sys::io_error);
    CHECK(w.sync() == errc::io_error);
    // The cache still has it, and takes it for clean.
    REQUIRE_FALSE(w.open());
    REQUIRE(w.read == texts{"one", two});
    for (std::uint64_t n = 0; n < 50; ++n) {
        world after = [&] {
            world copy{n};
            copy.disk = w.disk;
            copy.disk.reseed(n);
            return copy;
        }();
        after.crash();
        REQUIRE_FALSE(after.open());
        CHECK(after.read == texts{"one", two});
    }
}

TEST_CASE("journal: a full disk refuses records, not those that make room, and all stays") {
    world w;
    const journal_options options{
        .segment_bytes = 1U << 20U, .headroom_bytes = 1024, .max_record_bytes = 2000};
    w.disk.set_capacity(20'000);
    REQUIRE_FALSE(w.open(options));
    texts all;
    error_code ec;
    for (int i = 0; !ec; ++i) {
        REQUIRE(i < 1'000);
        const std::string text = "record " + std::to_string(i);
        ec = w.append(text);
        if (!ec) {
            all.push_back(text);
        }
    }
    CHECK(ec == errc::no_space);
    CHECK_FALSE(w.opened->has_failed());
    REQUIRE_FALSE(w.append("an ack", true));
    all.push_back("an ack");
    REQUIRE_FALSE(w.sync());
    CHECK(w.append("still full") == errc::no_space);
    w.crash();
    REQUIRE_FALSE(w.open(options)); // on the full disk
    CHECK(w.read == all);
    CHECK(w.append("still full") == errc::no_space);
    w.disk.set_capacity(40'000);
    REQUIRE_FALSE(w.append("there is space again"));
    all.push_back("there is space again");
    REQUIRE_FALSE(w.sync());
    w.crash();
    REQUIRE_FALSE(w.open(options));
    CHECK(w.read == all);
}

TEST_CASE("journal: it belongs to one, and its owner is named to others") {
    world w;
    REQUIRE_FALSE(w.open());
    recovery_report report;
    error_code ec;
    const auto second = world::journal_type::open(
        w.disk.directory(),
        small,
        id,
        [](auto, auto, auto) { FAIL("nothing is read"); },
        report,
        ec);
    CHECK_FALSE(second);
    CHECK(ec == errc::journal_locked);
    CHECK(report.owner == simulated_disk::process_id);
    w.store({"the first one goes on"});
    REQUIRE_FALSE(w.close());
    REQUIRE_FALSE(w.open()); // closing gives it free
    CHECK(w.read.size() == 1);
}

TEST_CASE("[T17] journal: a payload that looks like a record is none") {
    world w;
    REQUIRE_FALSE(w.open());
    w.store({"one"});
    // The next record as it would be written, as somebody who has read the file can make it.
    const std::string name = segment_name(1);
    segment_header h;
    REQUIRE(decode(w.disk.contents(name), h) == header_state::good);
    segment_reader reader{w.disk.contents(name), h};
    while (reader.next()) {
    }
    std::vector<std::byte> fake(record_header::size);
    record_header forged;
    forged.number = 3;
    forged.epoch = 1;
    forged.synced = 2;
    forged.payload_crc = crc32c{}.value();
    const std::uint64_t inside = reader.offset() + record_header::size;
    encode(forged, {id, 1, inside}, std::span{fake}.first<record_header::size>());
    const std::string text{reinterpret_cast<const char*>(fake.data()), fake.size()};
    w.store({text, "three"});
    w.crash();
    REQUIRE_FALSE(w.open());
    CHECK(w.read == texts{"one", text, "three"});
}

TEST_CASE("journal: where nobody syncs, the device is given whole parts, each once and in order") {
    simulated_disk disk{1};
    railmq::test::watch watch;
    recovery_report report;
    error_code ec;
    auto j = journal<railmq::test::watched_directory>::open(
        railmq::test::watched_directory{disk, watch},
        {},
        id,
        [](std::uint64_t, std::span<const std::byte>, record_location) {},
        report,
        ec);
    REQUIRE(j);
    const std::vector<std::byte> payload(1'000'000);
    constexpr std::uint64_t part = std::uint64_t{4} << 20;
    for (int i = 0; i < 19; ++i) {
        (void)j->append(payload, ec);
        REQUIRE_FALSE(ec);
        j->write(ec);
        REQUIRE_FALSE(ec);
    }
    CHECK(
        watch.started ==
        std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, part}, {part, part}});
    watch.started.clear();
    for (int i = 0; i < 6; ++i) {
        (void)j->append(payload, ec);
        j->sync(ec);
        REQUIRE_FALSE(ec);
    }
    CHECK(watch.started.empty());
}

namespace {

/// A journal whose first segment has been removed, and whose third is being written in its file.
struct reusing : world {
    explicit reusing(std::uint64_t seed = 1)
        : world{seed} {
        REQUIRE_FALSE(open());
        error_code ec;
        const texts all = numbered(200, 100);
        for (std::size_t i = 0; opened->segment() != 3; ++i) {
            if (opened->segment() == 2 && opened->is_read_from() == 1) {
                opened->read_from(2, ec);
                REQUIRE_FALSE(ec);
                opened->remove_segment(1, ec);
                REQUIRE_FALSE(ec);
                CHECK_FALSE(disk.contains(segment_name(1)));
                CHECK(disk.contains(reusable_segment<simulated_directory>::name()));
            }
            REQUIRE_FALSE(append(all.at(i)));
        }
        CHECK_FALSE(disk.contains(reusable_segment<simulated_directory>::name()));
        REQUIRE_FALSE(sync());
    }
    [[nodiscard]] segment_header header() const {
        segment_header h;
        REQUIRE(decode(disk.contents(segment_name(3)), h) == header_state::good);
        return h;
    }
    /// How many bytes of the last segment are not zeros, from its records' end on.
    [[nodiscard]] std::size_t old_bytes() const {
        const auto file = disk.contents(segment_name(3));
        segment_reader reader{file, header()};
        while (reader.next()) {
        }
        const auto behind = file.subspan(static_cast<std::size_t>(reader.offset()));
        return behind.size() -
               static_cast<std::size_t>(std::count(behind.begin(), behind.end(), std::byte{}));
    }
};

} // namespace

TEST_CASE("journal: a segment that is removed becomes the next, and what it was is never read") {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        reusing w{seed};
        CHECK(w.header().is_reused);
        CHECK(w.old_bytes() > 1'000); // or this would test nothing
        const texts more = numbered(static_cast<int>(seed % 20), 30);
        w.store(more);
        SECTION("the process ends") {
            w.opened.reset();
        }
        SECTION("the power fails") {
            w.crash();
        }
        REQUIRE_FALSE(w.open());
        CHECK(w.report.cut_bytes == 0);
        REQUIRE(w.read.size() >= more.size());
        CHECK(std::equal(more.rbegin(), more.rend(), w.read.rbegin()));
        w.store({"one more"});
        REQUIRE_FALSE(w.close());
        REQUIRE_FALSE(w.open());
        CHECK(w.read.back() == "one more");
        CHECK(w.report.was_closed);
        CHECK(w.report.cut_bytes == 0);
    }
}

TEST_CASE("journal: in a segment that was another before, what a crash has torn is cut and told") {
    std::uint64_t cuts = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        reusing w{seed};
        w.store({"synced"});
        for (const auto& text : numbered(8, 100)) {
            REQUIRE_FALSE(w.append(text));
            error_code ec;
            w.opened->write(ec);
            REQUIRE_FALSE(ec);
        }
        w.crash();
        REQUIRE_FALSE(w.open());
        const auto synced = std::find(w.read.begin(), w.read.end(), "synced");
        REQUIRE(synced != w.read.end());
        CHECK(is_prefix(texts(synced + 1, w.read.end()), numbered(8, 100)));
        if (w.report.cut_bytes != 0) {
            ++cuts;
            CHECK(w.old_bytes() == 0); // what was behind is gone with it
        }
        const std::size_t before = w.read.size();
        w.store({"and on"});
        w.opened.reset();
        REQUIRE_FALSE(w.open());
        CHECK(w.read.size() == before + 1);
        CHECK(w.read.back() == "and on");
    }
    CHECK(cuts > 50);
}

TEST_CASE(
    "[T19] journal: a file that is kept gives way to other needs, and goes with the journal") {
    const std::string kept{reusable_segment<simulated_directory>::name()};
    const journal_options large{.segment_bytes = std::uint64_t{1} << 22, .headroom_bytes = 1024};
    world w;
    REQUIRE_FALSE(w.open(large));
    error_code ec;
    const std::string text(100'000, '.');
    while (w.opened->segment() == 1) {
        REQUIRE_FALSE(w.append(text));
    }
    w.opened->read_from(2, ec);
    w.opened->remove_segment(1, ec);
    REQUIRE_FALSE(ec);
    REQUIRE(w.disk.contains(kept));
    SECTION("when it is closed") {
        REQUIRE_FALSE(w.close());
        CHECK_FALSE(w.disk.contains(kept));
    }
    SECTION("when it is opened after a crash") {
        w.opened.reset();
        REQUIRE_FALSE(w.open(large));
        CHECK_FALSE(w.disk.contains(kept));
    }
    SECTION("when nothing else is left on the disk") {
        w.disk.set_capacity(w.disk.used());
        while (w.disk.contains(kept)) {
            REQUIRE_FALSE(w.append(text));
        }
        CHECK(w.opened->segment() == 2);
    }
}
