// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <boost/system/errc.hpp>
#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace railmq;
using namespace railmq::storage;
namespace os = boost::system::errc;
using op = disk_operation;

namespace {

using byte_vector = std::vector<std::byte>;
constexpr std::size_t sector = simulated_disk::sector_size;

byte_vector filled(std::size_t size, unsigned value) {
    return byte_vector(size, static_cast<std::byte>(value));
}

byte_vector copy(std::span<const std::byte> from) {
    return {from.begin(), from.end()};
}

simulated_file open(simulated_disk& disk, const char* name, open_mode mode) {
    error_code ec;
    auto f = disk.directory().open(name, mode, ec);
    REQUIRE_FALSE(ec);
    return f;
}

/// A new file whose name is on the device.
simulated_file durable(simulated_disk& disk, const char* name) {
    auto f = open(disk, name, open_mode::create);
    error_code ec;
    disk.directory().sync(ec);
    REQUIRE_FALSE(ec);
    return f;
}

void put(simulated_file& f, std::uint64_t offset, const byte_vector& what) {
    error_code ec;
    REQUIRE(write_at(f, offset, what, ec) == what.size());
    REQUIRE_FALSE(ec);
}

void sync(simulated_file& f) {
    error_code ec = errc::closed;
    f.sync_data(ec);
    REQUIRE_FALSE(ec);
}

byte_vector get(simulated_file& f, std::uint64_t offset, std::size_t size) {
    byte_vector in(size);
    error_code ec;
    in.resize(read_at(f, offset, in, ec));
    REQUIRE_FALSE(ec);
    return in;
}

std::uint64_t size_of(simulated_file& f) {
    error_code ec = errc::closed;
    const std::uint64_t n = f.size(ec);
    REQUIRE_FALSE(ec);
    return n;
}

/// Crashes `times` copies of a disk, each with another seed, and hands each one over.
template <class Look>
void crash_copies(const simulated_disk& disk, std::uint64_t times, Look look) {
    for (std::uint64_t n = 0; n != times; ++n) {
        simulated_disk after = disk;
        after.reseed(test::seed(n));
        after.crash();
        look(after);
    }
}

} // namespace

// --- the contract of files.hpp -------------------------------------------------------------------

TEST_CASE("simulated_disk: a file reads as it was written, up to its end") {
    simulated_disk disk{test::seed(1)};
    auto f = open(disk, "a", open_mode::create);
    CHECK(size_of(f) == 0);
    CHECK(get(f, 0, 10).empty());
    put(f, 0, filled(600, 1));
    put(f, 500, filled(200, 2));
    CHECK(size_of(f) == 700);
    CHECK(get(f, 0, 500) == filled(500, 1));
    CHECK(get(f, 500, 1'000) == filled(200, 2));
    CHECK(get(f, 700, 1).empty());
    CHECK(get(f, 10'000, 1).empty());
}

TEST_CASE("simulated_disk: between the end of a file and a write beyond it are zeros") {
    simulated_disk disk{test::seed(1)};
    auto f = open(disk, "a", open_mode::create);
    put(f, 0, filled(10, 1));
    put(f, 2'000, filled(10, 2));
    CHECK(size_of(f) == 2'010);
    CHECK(get(f, 10, 1'990) == filled(1'990, 0));
}

TEST_CASE("simulated_disk: what was cut off does not come back when the file grows") {
    simulated_disk disk{test::seed(1)};
    auto f = durable(disk, "a");
    put(f, 0, filled(3'000, 1));
    sync(f);
    error_code ec = errc::closed;
    f.resize(100, ec);
    CHECK_FALSE(ec);
    CHECK(size_of(f) == 100);
    f.resize(3'000, ec);
    CHECK_FALSE(ec);
    byte_vector expected = filled(3'000, 0);
    std::fill_n(expected.begin(), 100, std::byte{1});
    CHECK(get(f, 0, 3'000) == expected);
    sync(f);
    disk.crash();
    CHECK(copy(disk.contents("a")) == expected);
}

TEST_CASE("simulated_disk: allocate makes a file longer, never shorter") {
    simulated_disk disk{test::seed(1)};
    auto f = open(disk, "a", open_mode::create);
    put(f, 0, filled(10, 1));
    error_code ec = errc::closed;
    f.allocate(1'000, ec);
    CHECK_FALSE(ec);
    CHECK(size_of(f) == 1'000);
    CHECK(get(f, 10, 2'000) == filled(990, 0));
    f.allocate(5, ec);
    CHECK_FALSE(ec);
    CHECK(size_of(f) == 1'000);
    CHECK(get(f, 0, 10) == filled(10, 1));
}

TEST_CASE("simulated_disk: the mode says whether a file must exist, and what may be done") {
    simulated_disk disk{test::seed(1)};
    auto dir = disk.directory();
    error_code ec;
    (void)dir.open("a", open_mode::read, ec);
    CHECK(ec == os::no_such_file_or_directory);
    CHECK(ec.category() == boost::system::system_category());
    (void)dir.open("a", open_mode::read_write, ec);
    CHECK(ec == os::no_such_file_or_directory);
    auto f = dir.open("a", open_mode::create, ec);
    CHECK_FALSE(ec);
    (void)dir.open("a", open_mode::create, ec);
    CHECK(ec == os::file_exists);
    put(f, 0, filled(10, 1));

    auto second = dir.open("a", open_mode::read_write, ec);
    CHECK_FALSE(ec);
    put(second, 5, filled(10, 2));
    auto reader = dir.open("a", open_mode::read, ec);
    CHECK_FALSE(ec);
    CHECK(get(reader, 5, 20) == filled(10, 2));
    CHECK(reader.write_some_at(0, filled(1, 3), ec) == 0);
    CHECK(ec == os::bad_file_descriptor);
    reader.allocate(100, ec);
    CHECK(ec == os::bad_file_descriptor);
    reader.resize(0, ec);
    CHECK(ec == os::bad_file_descriptor);
    CHECK(size_of(f) == 15);
}

TEST_CASE("simulated_disk: rename replaces, remove removes, names are in order") {
    simulated_disk disk{test::seed(1)};
    auto dir = disk.directory();
    auto b = open(disk, "b", open_mode::create);
    auto a = open(disk, "a", open_mode::create);
    put(a, 0, filled(1, 1));
    put(b, 0, filled(1, 2));
    error_code ec = errc::closed;
    CHECK(dir.names(ec) == std::vector<std::string>{"a", "b"});
    CHECK_FALSE(ec);
    ec = errc::closed;
    dir.rename("a", "b", ec);
    CHECK_FALSE(ec);
    CHECK(dir.names(ec) == std::vector<std::string>{"b"});
    CHECK(copy(disk.contents("b")) == filled(1, 1));
    CHECK(get(b, 0, 1) == filled(1, 2)); // still open
    dir.rename("b", "b", ec);
    CHECK_FALSE(ec);
    dir.rename("a", "c", ec);
    CHECK(ec == os::no_such_file_or_directory);
    dir.remove("b", ec);
    CHECK_FALSE(ec);
    dir.remove("b", ec);
    CHECK(ec == os::no_such_file_or_directory);
    CHECK(dir.names(ec).empty());
    CHECK(get(a, 0, 1) == filled(1, 1));
}

TEST_CASE("simulated_disk: one lock at a time, until it is destroyed or the power fails") {
    simulated_disk disk{test::seed(1)};
    auto dir = disk.directory();
    std::int64_t owner = -1;
    error_code ec;
    {
        const auto lock = dir.lock(owner, ec);
        CHECK_FALSE(ec);
        const auto second = disk.directory().lock(owner, ec);
        CHECK(ec == errc::journal_locked);
        CHECK(owner == simulated_disk::process_id);
    }
    auto lock = dir.lock(owner, ec);
    CHECK_FALSE(ec);
    CHECK(owner == 0);
    disk.crash();
    const auto after = disk.directory().lock(owner, ec);
    CHECK_FALSE(ec);
    lock = {}; // a dead one gives nothing back
    (void)disk.directory().lock(owner, ec);
    CHECK(ec == errc::journal_locked);
}

TEST_CASE("simulated_disk: after a crash the handles are dead") {
    simulated_disk disk{test::seed(1)};
    auto dir = disk.directory();
    auto f = durable(disk, "a");
    put(f, 0, filled(10, 1));
    sync(f);
    disk.crash();
    const std::uint64_t calls = disk.calls(op::any);
    const auto is_dead = [](auto what) {
        error_code ec;
        what(ec);
        return ec == os::bad_file_descriptor;
    };
    byte_vector in(10);
    std::int64_t owner = 0;
    CHECK(is_dead([&](auto& ec) { f.read_some_at(0, in, ec); }));
    CHECK(is_dead([&](auto& ec) { f.write_some_at(0, in, ec); }));
    CHECK(is_dead([&](auto& ec) { f.sync_data(ec); }));
    CHECK(is_dead([&](auto& ec) { f.allocate(20, ec); }));
    CHECK(is_dead([&](auto& ec) { f.resize(0, ec); }));
    CHECK(is_dead([&](auto& ec) { (void)f.size(ec); }));
    CHECK(is_dead([&](auto& ec) { (void)dir.open("a", open_mode::read, ec); }));
    CHECK(is_dead([&](auto& ec) { dir.rename("a", "b", ec); }));
    CHECK(is_dead([&](auto& ec) { dir.remove("a", ec); }));
    CHECK(is_dead([&](auto& ec) { (void)dir.names(ec); }));
    CHECK(is_dead([&](auto& ec) { dir.sync(ec); }));
    CHECK(is_dead([&](auto& ec) { (void)dir.lock(owner, ec); }));
    CHECK(is_dead([&](auto& ec) { simulated_file{}.sync_data(ec); }));
    CHECK(disk.calls(op::any) == calls);
    CHECK(copy(disk.contents("a")) == filled(10, 1));
    auto again = open(disk, "a", open_mode::read_write);
    f = {};
    put(again, 0, filled(10, 2));
}

// --- power cuts ----------------------------------------------------------------------------------

TEST_CASE("simulated_disk: a crash keeps what was synced and any part of what was not") {
    constexpr std::size_t count = 8;
    simulated_disk disk{test::seed(2)};
    auto f = durable(disk, "a");
    put(f, 0, filled(count * sector - 100, 1));
    sync(f);
    put(f, count * sector - 100, filled(count * sector, 2)); // from within a synced sector
    const std::uint64_t end = 2 * count * sector - 100;

    int all = 0;
    int none = 0;
    int all_zeros = 0;
    int holes = 0;
    int zero_tails = 0;
    int between = 0;
    int wrong = 0;
    crash_copies(disk, 1'000, [&](simulated_disk& after) {
        const byte_vector now = copy(after.contents("a"));
        wrong += now == copy(after.device_contents("a")) ? 0 : 1;
        wrong += now.size() >= count * sector - 100 && now.size() <= end ? 0 : 1;
        wrong += std::equal(
                     now.begin(),
                     now.begin() + count * sector - 100,
                     filled(count * sector - 100, 1).begin())
                     ? 0
                     : 1;
        bool has_zeros = false;
        bool has_hole = false;
        for (std::size_t i = count * sector - 100; i < now.size(); ++i) {
            wrong += now[i] == std::byte{0} || now[i] == std::byte{2} ? 0 : 1;
            // One sector is lost or kept as a whole.
            wrong += i % sector == 0 || i == count * sector - 100 || now[i] == now[i - 1] ? 0 : 1;
            has_hole = has_hole || (has_zeros && now[i] == std::byte{2});
            has_zeros = has_zeros || now[i] == std::byte{0};
        }
        holes += has_hole ? 1 : 0;
        zero_tails += !now.empty() && now.back() == std::byte{0} ? 1 : 0;
        all += now.size() == end && !has_zeros ? 1 : 0;
        none += now.size() == count * sector - 100 ? 1 : 0;
        all_zeros += now.size() == end && std::count(now.begin(), now.end(), std::byte{2}) == 0;
        between += now.size() > count * sector - 100 && now.size() < end ? 1 : 0;
    });
    CHECK(wrong == 0);
    CHECK(all > 50);
    CHECK(none > 50);
    CHECK(all_zeros > 50);
    CHECK(holes > 50);
    CHECK(zero_tails > 50);
    CHECK(between > 50);
}

TEST_CASE("simulated_disk: an overwritten sector that is lost has its old content") {
    simulated_disk disk{test::seed(2)};
    auto f = durable(disk, "a");
    put(f, 0, filled(4 * sector, 1));
    sync(f);
    put(f, sector, filled(2 * sector, 2));
    std::map<std::pair<int, int>, int> seen;
    crash_copies(disk, 200, [&](simulated_disk& after) {
        const auto now = after.contents("a");
        REQUIRE(now.size() == 4 * sector);
        REQUIRE(now[0] == std::byte{1});
        REQUIRE(now[3 * sector] == std::byte{1});
        ++seen[{static_cast<int>(now[sector]), static_cast<int>(now[2 * sector])}];
    });
    CHECK(seen.size() == 4); // both, none, either
    CHECK(seen[{1, 1}] + seen[{1, 2}] + seen[{2, 1}] + seen[{2, 2}] == 200);
}

TEST_CASE("simulated_disk: a crash may undo a cut that was not synced") {
    simulated_disk disk{test::seed(2)};
    auto f = durable(disk, "a");
    put(f, 0, filled(2'000, 1));
    sync(f);
    error_code ec;
    f.resize(100, ec);
    REQUIRE_FALSE(ec);
    std::map<std::size_t, int> sizes;
    crash_copies(disk, 200, [&](simulated_disk& after) {
        REQUIRE(copy(after.contents("a")) == filled(after.contents("a").size(), 1));
        REQUIRE(after.used() == after.contents("a").size());
        ++sizes[after.contents("a").size()];
    });
    CHECK(sizes.begin()->first == 100);
    CHECK(sizes.rbegin()->first == 2'000);
    CHECK(sizes.size() > 2);
    sync(f);
    disk.crash();
    CHECK(disk.contents("a").size() == 100);
}

TEST_CASE("simulated_disk: a torn sector has new bytes in front and old ones behind") {
    simulated_disk disk{test::seed(3), {.torn_sectors = 0.5}};
    auto f = durable(disk, "a");
    put(f, 0, filled(sector, 1));
    sync(f);
    put(f, 0, filled(sector, 2));
    int torn = 0;
    int whole = 0;
    int lost = 0;
    crash_copies(disk, 500, [&](simulated_disk& after) {
        const auto now = after.contents("a");
        REQUIRE(now.size() == sector);
        REQUIRE(std::is_sorted(now.rbegin(), now.rend()));
        whole += now.back() == std::byte{2} ? 1 : 0;
        lost += now.front() == std::byte{1} ? 1 : 0;
        torn += now.front() != now.back() ? 1 : 0;
    });
    CHECK(torn > 50);
    CHECK(whole > 50);
    CHECK(lost > 50);
}

TEST_CASE("simulated_disk: sectors are torn only where that was asked for") {
    simulated_disk disk{test::seed(3)};
    auto f = durable(disk, "a");
    put(f, 0, filled(sector, 1));
    crash_copies(disk, 200, [&](simulated_disk& after) {
        const byte_vector now = copy(after.contents("a"));
        const bool is_whole = now == filled(now.size(), 0) || now == filled(now.size(), 1);
        REQUIRE(is_whole);
    });
}

TEST_CASE("simulated_disk: a new file may vanish, whatever was synced of it, until its name is") {
    simulated_disk disk{test::seed(4)};
    auto f = open(disk, "a", open_mode::create);
    put(f, 0, filled(10, 1));
    sync(f);
    int kept = 0;
    crash_copies(disk, 200, [&](simulated_disk& after) {
        kept += after.contains("a") ? 1 : 0;
        const bool is_whole = !after.contains("a") || copy(after.contents("a")) == filled(10, 1);
        REQUIRE(is_whole);
    });
    CHECK(kept > 20);
    CHECK(kept < 180);
    error_code ec = errc::closed;
    disk.directory().sync(ec);
    CHECK_FALSE(ec);
    crash_copies(disk, 200, [&](simulated_disk& after) {
        REQUIRE(copy(after.contents("a")) == filled(10, 1));
    });
}

TEST_CASE("simulated_disk: a rename may be lost as a whole until the directory is synced") {
    simulated_disk disk{test::seed(5)};
    auto old = durable(disk, "a");
    put(old, 0, filled(10, 1));
    sync(old);
    auto next = durable(disk, "a.next");
    put(next, 0, filled(20, 2));
    sync(next);
    error_code ec;
    disk.directory().rename("a.next", "a", ec);
    REQUIRE_FALSE(ec);
    int lost = 0;
    crash_copies(disk, 200, [&](simulated_disk& after) {
        const bool is_lost = after.contains("a.next");
        lost += is_lost ? 1 : 0;
        REQUIRE(copy(after.contents("a")) == (is_lost ? filled(10, 1) : filled(20, 2)));
    });
    CHECK(lost > 20);
    CHECK(lost < 180);
    disk.directory().sync(ec);
    REQUIRE_FALSE(ec);
    crash_copies(disk, 200, [&](simulated_disk& after) {
        REQUIRE_FALSE(after.contains("a.next"));
        REQUIRE(copy(after.contents("a")) == filled(20, 2));
    });
}

TEST_CASE("simulated_disk: a removed file may come back until the directory is synced") {
    simulated_disk disk{test::seed(6)};
    auto f = durable(disk, "a");
    put(f, 0, filled(10, 1));
    sync(f);
    error_code ec;
    disk.directory().remove("a", ec);
    f = {};
    int back = 0;
    crash_copies(disk, 200, [&](simulated_disk& after) {
        back += after.contains("a") ? 1 : 0;
        REQUIRE(after.used() == after.contents("a").size());
        REQUIRE((!after.contains("a") || copy(after.contents("a")) == filled(10, 1)));
    });
    CHECK(back > 20);
    CHECK(back < 180);
    disk.directory().sync(ec);
    disk.crash();
    CHECK_FALSE(disk.contains("a"));
}

TEST_CASE("simulated_disk: changes of names are mostly kept in order, sometimes in any") {
    simulated_disk disk{test::seed(7)};
    for (const char* const name : {"a", "b", "c", "d"}) {
        (void)open(disk, name, open_mode::create);
    }
    std::map<std::string, int> seen;
    crash_copies(disk, 1'000, [&](simulated_disk& after) {
        error_code ec;
        std::string all;
        for (const auto& name : after.directory().names(ec)) {
            all += name;
        }
        ++seen[all];
    });
    const int in_order = seen[""] + seen["a"] + seen["ab"] + seen["abc"] + seen["abcd"];
    CHECK(seen[""] > 250);
    CHECK(seen["ab"] > 50);
    CHECK(seen["abcd"] > 150);
    CHECK(in_order > 750);
    CHECK(in_order < 1'000);
    CHECK(seen.size() > 8);
}

TEST_CASE("simulated_disk: a change of a name does not strike another file of that name") {
    simulated_disk disk{test::seed(7)};
    auto old = durable(disk, "a");
    put(old, 0, filled(10, 1));
    sync(old);
    (void)open(disk, "b", open_mode::create);
    error_code ec;
    disk.directory().rename("b", "a", ec);
    disk.directory().remove("a", ec);
    int renamed = 0;
    crash_copies(disk, 1'000, [&](simulated_disk& after) {
        // Without the rename, the removal is not that of the old file.
        const bool is_old = copy(after.contents("a")) == filled(10, 1);
        REQUIRE((is_old || !after.contains("b")));
        renamed += after.contains("a") && !is_old ? 1 : 0;
    });
    CHECK(renamed > 50);
}

// --- faults --------------------------------------------------------------------------------------

TEST_CASE("simulated_disk: each kind of call fails when it is told to, and has done nothing") {
    simulated_disk disk{test::seed(8)};
    auto dir = disk.directory();
    auto f = durable(disk, "a");
    put(f, 0, filled(10, 1));
    byte_vector in = filled(10, 7);
    error_code ec;
    const std::map<op, std::function<void()>> all{
        {op::open, [&] { (void)dir.open("b", open_mode::create, ec); }},
        {op::read, [&] { f.read_some_at(0, in, ec); }},
        {op::write, [&] { f.write_some_at(0, filled(20, 2), ec); }},
        {op::sync, [&] { f.sync_data(ec); }},
        {op::allocate, [&] { f.allocate(100, ec); }},
        {op::resize, [&] { f.resize(5, ec); }},
        {op::rename, [&] { dir.rename("a", "c", ec); }},
        {op::remove, [&] { dir.remove("a", ec); }},
        {op::sync_directory, [&] { dir.sync(ec); }},
    };
    std::uint64_t struck = 0;
    for (const auto& [what, call] : all) {
        for (const bool by_name : {true, false}) {
            const std::uint64_t calls = disk.calls(what);
            disk.fail(by_name ? what : op::any, 1, os::permission_denied);
            call();
            CHECK(ec == os::permission_denied);
            CHECK(ec.category() == boost::system::system_category());
            CHECK(disk.calls(what) == calls + 1);
            CHECK(disk.faults_struck() == ++struck);
        }
        CHECK_FALSE(disk.contains("b"));
        CHECK(in == filled(10, 7));
        CHECK(copy(disk.contents("a")) == filled(10, 1));
    }
    CHECK(dir.names(ec) == std::vector<std::string>{"a"});
}

TEST_CASE("simulated_disk: only the nth call of the kind fails") {
    simulated_disk disk{test::seed(8)};
    auto f = open(disk, "a", open_mode::create);
    disk.fail(op::write, 3, os::io_error);
    std::string failed;
    for (int i = 0; i != 5; ++i) {
        error_code ec;
        f.write_some_at(0, filled(1, 1), ec);
        failed += ec ? 'x' : '.';
        (void)get(f, 0, 1); // does not count
    }
    CHECK(failed == "..x..");
    CHECK(disk.calls(op::write) == 5);
    CHECK(disk.calls(op::any) == 11);
    CHECK(disk.faults_struck() == 1);
}

TEST_CASE("simulated_disk: a lasting fault lasts until the disk is healed") {
    simulated_disk disk{test::seed(8)};
    auto f = open(disk, "a", open_mode::create);
    disk.fail_from(op::write, 2, os::io_error);
    CHECK_FALSE(disk.is_failing());
    std::string failed;
    for (int i = 0; i != 6; ++i) {
        if (i == 4) {
            CHECK(disk.is_failing());
            disk.heal();
            CHECK_FALSE(disk.is_failing());
        }
        error_code ec;
        f.write_some_at(0, filled(1, 1), ec);
        failed += ec ? 'x' : '.';
    }
    CHECK(failed == ".xxx..");
    CHECK(disk.faults_struck() == 3);
}

TEST_CASE("simulated_disk: healing cancels faults to come; crashing does not") {
    simulated_disk disk{test::seed(8)};
    (void)durable(disk, "a");
    disk.fail(op::open, 1, os::io_error);
    disk.crash();
    error_code ec;
    (void)disk.directory().open("a", open_mode::read, ec);
    CHECK(ec == os::io_error);
    disk.fail(op::open, 1, os::io_error);
    disk.heal();
    (void)disk.directory().open("a", open_mode::read, ec);
    CHECK_FALSE(ec);
    CHECK(disk.faults_struck() == 1);
}

TEST_CASE("simulated_disk: two faults that are due at once strike one after the other") {
    simulated_disk disk{test::seed(8)};
    auto f = open(disk, "a", open_mode::create);
    disk.fail(op::write, 1, os::io_error);
    disk.fail(op::any, 1, os::permission_denied);
    error_code ec;
    f.write_some_at(0, filled(1, 1), ec);
    CHECK(ec == os::io_error);
    f.write_some_at(0, filled(1, 1), ec);
    CHECK(ec == os::permission_denied);
    f.write_some_at(0, filled(1, 1), ec);
    CHECK_FALSE(ec);
}

TEST_CASE("simulated_disk: a short transfer does a part, at least one byte") {
    simulated_disk disk{test::seed(9)};
    auto f = open(disk, "a", open_mode::create);
    for (int i = 0; i != 100; ++i) {
        error_code ec;
        disk.plan({.kind = disk_fault::short_transfer});
        const std::size_t put = f.write_some_at(size_of(f), filled(100, 1), ec);
        REQUIRE_FALSE(ec);
        REQUIRE((put >= 1 && put < 100));
        byte_vector in = filled(100, 7);
        disk.plan({.what = op::read, .kind = disk_fault::short_transfer});
        f.resize(100, ec); // is no transfer
        const std::size_t got = f.read_some_at(0, in, ec);
        REQUIRE_FALSE(ec);
        REQUIRE((got >= 1 && got < 100));
        REQUIRE(in[got] == std::byte{7});
        f.resize(0, ec);
    }
    CHECK(disk.faults_struck() == 200);
    disk.plan({.kind = disk_fault::short_transfer, .lasts = true});
    put(f, 0, filled(1'000, 3));
    CHECK(get(f, 0, 2'000) == filled(1'000, 3));
}

TEST_CASE("simulated_disk: an interrupted call has done nothing and can be made again") {
    simulated_disk disk{test::seed(9)};
    auto f = durable(disk, "a");
    disk.plan({.what = op::write, .kind = disk_fault::interrupted});
    error_code ec;
    CHECK(f.write_some_at(0, filled(10, 1), ec) == 0);
    CHECK(ec == os::interrupted);
    CHECK(size_of(f) == 0);
    disk.plan({.what = op::write, .kind = disk_fault::interrupted});
    put(f, 0, filled(10, 1)); // `write_at` goes on
    disk.plan({.what = op::read, .kind = disk_fault::interrupted});
    CHECK(get(f, 0, 10) == filled(10, 1));

    for (const int how : {0, 1}) {
        if (how == 0) {
            disk.plan({.kind = disk_fault::interrupted});
        } else {
            disk.fail(op::sync, 1, os::interrupted);
        }
        f.sync_data(ec);
        CHECK(ec == os::interrupted);
        CHECK(disk.device_contents("a").empty());
    }
    sync(f);
    CHECK(copy(disk.device_contents("a")) == filled(10, 1));
}

TEST_CASE("simulated_disk: a lost write reports success and changes no byte") {
    simulated_disk disk{test::seed(9)};
    auto f = durable(disk, "a");
    put(f, 0, filled(sector, 1));
    disk.plan({.kind = disk_fault::lost_write});
    put(f, 100, filled(sector, 2));
    CHECK(disk.faults_struck() == 1);
    byte_vector expected = filled(sector, 1);
    expected.resize(sector + 100);
    CHECK(copy(disk.contents("a")) == expected);
    sync(f);
    disk.crash();
    CHECK(copy(disk.contents("a")) == expected);
}

TEST_CASE("simulated_disk: a misdirected write changes another sector than it should") {
    simulated_disk disk{test::seed(9)};
    std::map<std::size_t, int> places;
    for (int i = 0; i != 200; ++i) {
        error_code ec;
        auto f = open(disk, "a", open_mode::create);
        put(f, 0, filled(8 * sector, 1));
        disk.plan({.kind = disk_fault::misdirected_write});
        put(f, 3 * sector, filled(2 * sector, 2));
        const auto now = disk.contents("a");
        REQUIRE(now.size() == 8 * sector);
        REQUIRE(copy(now.subspan(3 * sector, 2 * sector)) == filled(2 * sector, 1));
        const auto at = std::find(now.begin(), now.end(), std::byte{2});
        REQUIRE(at != now.end());
        ++places[static_cast<std::size_t>(at - now.begin())];
        disk.directory().remove("a", ec);
    }
    CHECK(places.size() == 6); // 0, 1, 2, 5, 6, 7
    for (const auto& [place, times] : places) {
        CHECK(place % sector == 0);
    }
}

TEST_CASE("simulated_disk: a misdirected write in a file of one sector is lost") {
    simulated_disk disk{test::seed(9)};
    auto f = open(disk, "a", open_mode::create);
    put(f, 0, filled(100, 1));
    disk.plan({.kind = disk_fault::misdirected_write});
    put(f, 0, filled(100, 2));
    CHECK(copy(disk.contents("a")) == filled(100, 1));
}

TEST_CASE("simulated_disk: a stale read gives what the device has, or what was there before") {
    simulated_disk disk{test::seed(9)};
    auto f = open(disk, "a", open_mode::create);
    put(f, 0, filled(100, 1));
    sync(f);
    put(f, 0, filled(100, 2));
    put(f, 50, filled(100, 3));
    disk.plan({.kind = disk_fault::stale_read});
    byte_vector expected = filled(100, 1);
    expected.resize(150);
    CHECK(get(f, 0, 200) == expected); // the true size
    CHECK(get(f, 0, 50) == filled(50, 2));

    sync(f);
    disk.plan({.kind = disk_fault::stale_read});
    expected = filled(100, 2);
    expected.resize(150);
    CHECK(get(f, 0, 200) == expected);
    disk.plan({.kind = disk_fault::stale_read});
    CHECK(get(f, 0, 50) == filled(50, 2)); // what lies before the last write is as it was
    CHECK(get(f, 50, 200) == filled(100, 3));
    CHECK(disk.faults_struck() == 3);
}

TEST_CASE("simulated_disk: a sync that fails loses the data, and the next one hides it") {
    simulated_disk disk{test::seed(10)};
    auto f = durable(disk, "a");
    put(f, 0, filled(sector, 1));
    sync(f);
    put(f, 0, filled(3 * sector, 2));
    disk.fail(op::sync, 1, os::io_error);
    error_code ec;
    f.sync_data(ec);
    CHECK(ec == os::io_error);
    put(f, 2 * sector, filled(sector, 3));
    sync(f);
    byte_vector seen = filled(2 * sector, 2);
    seen.resize(3 * sector, std::byte{3});
    CHECK(get(f, 0, 3 * sector) == seen);
    disk.crash();
    byte_vector expected = filled(sector, 1);
    expected.resize(2 * sector);
    expected.resize(3 * sector, std::byte{3});
    CHECK(copy(disk.contents("a")) == expected);
}

TEST_CASE("simulated_disk: a sync of the directory that fails makes nothing durable") {
    simulated_disk disk{test::seed(10)};
    (void)open(disk, "a", open_mode::create);
    disk.fail(op::sync_directory, 1, os::io_error);
    error_code ec;
    disk.directory().sync(ec);
    CHECK(ec == os::io_error);
    int lost = 0;
    crash_copies(disk, 100, [&](simulated_disk& after) { lost += after.contains("a") ? 0 : 1; });
    CHECK(lost > 10);
    disk.directory().sync(ec);
    CHECK_FALSE(ec);
    disk.crash();
    CHECK(disk.contains("a"));
}

TEST_CASE("simulated_disk: failing the nth call visits every call of a run once") {
    std::vector<std::uint64_t> failed_at;
    for (std::uint64_t nth = 1;; ++nth) {
        simulated_disk disk{test::seed(11)};
        disk.fail(op::any, nth, os::io_error);
        auto dir = disk.directory();
        error_code ec;
        auto f = dir.open("a", open_mode::create, ec);
        if (!ec) {
            f.allocate(100, ec);
        }
        if (!ec) {
            write_at(f, 0, filled(10, 1), ec);
        }
        if (!ec) {
            f.sync_data(ec);
        }
        if (!ec) {
            dir.sync(ec);
        }
        if (disk.faults_struck() == 0) {
            CHECK_FALSE(ec);
            break;
        }
        CHECK(ec == os::io_error);
        failed_at.push_back(disk.calls(op::any));
    }
    CHECK(failed_at == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
}

// --- space ---------------------------------------------------------------------------------------

TEST_CASE("simulated_disk: a write on a full disk does the part that fits, then fails") {
    simulated_disk disk{test::seed(12), {.capacity = 1'000}};
    auto a = open(disk, "a", open_mode::create);
    auto b = open(disk, "b", open_mode::create);
    put(a, 0, filled(300, 1));
    error_code ec;
    CHECK(b.write_some_at(0, filled(800, 2), ec) == 700);
    CHECK_FALSE(ec);
    CHECK(disk.used() == 1'000);
    CHECK(b.write_some_at(700, filled(1, 2), ec) == 0);
    CHECK(ec == os::no_space_on_device);
    CHECK(ec.category() == boost::system::system_category());
    CHECK(size_of(b) == 700);
    CHECK(write_at(a, 200, filled(200, 3), ec) == 100);
    CHECK(ec == os::no_space_on_device);
    put(b, 0, filled(700, 4)); // what it has is its own
}

TEST_CASE("simulated_disk: space comes back when files go, are cut, or the disk grows") {
    simulated_disk disk{test::seed(12), {.capacity = 1'000}};
    auto a = open(disk, "a", open_mode::create);
    auto b = open(disk, "b", open_mode::create);
    put(a, 0, filled(1'000, 1));
    error_code ec;
    write_at(b, 0, filled(10, 1), ec);
    CHECK(ec == os::no_space_on_device);
    a.resize(990, ec);
    put(b, 0, filled(10, 1));
    disk.set_capacity(1'010);
    put(b, 10, filled(10, 1));
    disk.directory().remove("a", ec);
    write_at(b, 20, filled(10, 1), ec);
    CHECK(ec == os::no_space_on_device); // it is still open
    a = {};
    CHECK(disk.used() == 20);
    put(b, 20, filled(980, 1));
    auto c = open(disk, "c", open_mode::create);
    disk.directory().rename("c", "b", ec);
    b = {};
    put(c, 0, filled(1'000, 1));
    disk.set_capacity(500);
    write_at(c, 1'000, filled(1, 1), ec);
    CHECK(ec == os::no_space_on_device);
    put(c, 0, filled(1'000, 2));
}

TEST_CASE("simulated_disk: allocated space is the file's own; a longer size is not") {
    simulated_disk disk{test::seed(12), {.capacity = 1'000}};
    auto a = durable(disk, "a");
    auto b = durable(disk, "b");
    error_code ec;
    b.resize(900, ec);
    CHECK_FALSE(ec);
    a.allocate(800, ec);
    CHECK_FALSE(ec);
    CHECK(disk.used() == 800);
    CHECK(write_at(b, 0, filled(900, 1), ec) == 200);
    CHECK(ec == os::no_space_on_device);
    put(a, 100, filled(700, 2));
    a.allocate(801, ec);
    CHECK(ec == os::no_space_on_device);
    CHECK(size_of(a) == 800);

    sync(a);
    sync(b);
    disk.crash();
    CHECK(disk.used() == 1'000);
    auto again = open(disk, "a", open_mode::read_write);
    put(again, 0, filled(800, 3));
}

TEST_CASE("simulated_disk: after a crash files have the space of what is left of them") {
    simulated_disk disk{test::seed(12), {.capacity = 5'000}};
    auto f = durable(disk, "a");
    put(f, 0, filled(5'000, 1));
    crash_copies(disk, 100, [&](simulated_disk& after) {
        REQUIRE(after.used() == after.contents("a").size());
        error_code ec;
        after.directory().remove("a", ec); // nobody has it open any more
        REQUIRE(after.used() == 0);
    });
}

TEST_CASE("simulated_disk: a file has a largest size") {
    simulated_disk disk{test::seed(12)};
    auto f = open(disk, "a", open_mode::create);
    error_code ec;
    f.resize(simulated_disk::max_file_size + 1, ec);
    CHECK(ec == os::file_too_large);
    f.allocate(simulated_disk::max_file_size + 1, ec);
    CHECK(ec == os::file_too_large);
    f.write_some_at(simulated_disk::max_file_size, filled(1, 1), ec);
    CHECK(ec == os::file_too_large);
    f.write_some_at(~std::uint64_t{0}, filled(2, 1), ec);
    CHECK(ec == os::file_too_large);
    CHECK(size_of(f) == 0);
}

// --- damage, and chance --------------------------------------------------------------------------

TEST_CASE("simulated_disk: corrupted bits are so in the cache and on the device") {
    simulated_disk disk{test::seed(13)};
    auto f = durable(disk, "a");
    put(f, 0, filled(10, 1));
    sync(f);
    disk.corrupt("a", 4, std::byte{0x81});
    byte_vector expected = filled(10, 1);
    expected[4] = std::byte{0x80};
    CHECK(get(f, 0, 10) == expected);
    disk.crash();
    CHECK(copy(disk.contents("a")) == expected);
    CHECK(disk.contents("none").empty());
}

namespace {

/// A few hundred calls, and crashes, as the seed wills.
simulated_disk exercised(std::uint64_t seed) {
    random_engine random{test::seed(14)};
    simulated_disk disk{seed, {.capacity = 50'000, .torn_sectors = 0.2}};
    const auto below = [&](std::uint64_t bound) { return uniform_below(random, bound); };
    const auto name = [&] { return std::string{"abcdef"[below(6)]}; };
    for (int i = 0; i != 600; ++i) {
        auto dir = disk.directory();
        error_code ec;
        const std::string a = name();
        auto f = dir.open(a, open_mode::read_write, ec);
        if (ec) {
            f = dir.open(a, open_mode::create, ec);
        }
        const std::uint64_t offset = below(6'000);
        const byte_vector out = filled(1 + below(3'000), static_cast<unsigned>(1 + below(255)));
        switch (below(12)) {
        case 0: f.sync_data(ec); break;
        case 1: f.allocate(offset, ec); break;
        case 2: f.resize(offset, ec); break;
        case 3: dir.rename(a, name(), ec); break;
        case 4: dir.remove(a, ec); break;
        case 5: dir.sync(ec); break;
        case 6:
            disk.plan(
                {.nth = 1 + below(4), .kind = static_cast<disk_fault>(below(6)), .lasts = false});
            break;
        case 7:
            if (below(8) == 0) {
                disk.crash();
            }
            break;
        default: write_at(f, offset, out, ec);
        }
    }
    return disk;
}

std::map<std::string, std::pair<byte_vector, byte_vector>> all_of(simulated_disk& disk) {
    std::map<std::string, std::pair<byte_vector, byte_vector>> all;
    error_code ec;
    for (const auto& name : disk.directory().names(ec)) {
        all[name] = {copy(disk.contents(name)), copy(disk.device_contents(name))};
    }
    return all;
}

} // namespace

TEST_CASE("simulated_disk: equal seeds give equal disks, other seeds others") {
    simulated_disk first = exercised(test::seed(15));
    simulated_disk second = exercised(test::seed(15));
    CHECK(first.calls(op::any) > 600);
    CHECK(first.faults_struck() > 5);
    CHECK(first.calls(op::any) == second.calls(op::any));
    CHECK(first.used() == second.used());
    const bool is_equal = all_of(first) == all_of(second);
    CHECK(is_equal);
    first.crash();
    second.crash();
    const bool stays_equal = all_of(first) == all_of(second);
    CHECK(stays_equal);
    int others = 0;
    for (std::uint64_t n = 16; n != 21; ++n) {
        simulated_disk other = exercised(test::seed(n));
        other.crash();
        others += all_of(first) != all_of(other) ? 1 : 0;
    }
    CHECK(others >= 3);
}

TEST_CASE("simulated_disk: without faults and crashes it is a map from names to bytes") {
    const bool holds = rc::check([] {
        simulated_disk disk{1};
        std::map<std::string, byte_vector> model;
        auto dir = disk.directory();
        const auto steps = *rc::gen::inRange(1, 60);
        const auto any_name = rc::gen::element<std::string>("a", "b", "c");
        for (int i = 0; i != steps; ++i) {
            const std::string name = *any_name;
            const auto offset = *rc::gen::inRange<std::uint64_t>(0, 2'500);
            const auto size = *rc::gen::inRange<std::size_t>(0, 1'500);
            const auto value = *rc::gen::inRange<unsigned>(1, 256);
            const int what = *rc::gen::inRange(0, 10);
            const bool exists = model.count(name) == 1;
            error_code ec = errc::closed;
            if (what == 0) {
                dir.remove(name, ec);
                RC_ASSERT(!ec == exists);
                model.erase(name);
            } else if (what == 1) {
                const std::string to = *any_name;
                dir.rename(name, to, ec);
                RC_ASSERT(!ec == exists);
                if (exists && to != name) {
                    model[to] = std::move(model[name]);
                    model.erase(name);
                }
            } else if (what == 2) {
                (void)dir.open(name, open_mode::create, ec);
                RC_ASSERT(!ec != exists);
                model.try_emplace(name);
            } else {
                auto f = dir.open(name, open_mode::read_write, ec);
                RC_ASSERT(!ec == exists);
                if (!exists) {
                    continue;
                }
                byte_vector& expected = model[name];
                ec = errc::closed;
                if (what == 3) {
                    f.resize(offset, ec);
                    expected.resize(offset);
                } else if (what == 4) {
                    f.allocate(offset, ec);
                    expected.resize(std::max<std::size_t>(expected.size(), offset));
                } else if (what == 5) {
                    f.sync_data(ec);
                } else if (what == 6) {
                    dir.sync(ec);
                } else {
                    const byte_vector out = filled(size, value);
                    RC_ASSERT(write_at(f, offset, out, ec) == size);
                    if (size != 0) {
                        expected.resize(std::max<std::size_t>(expected.size(), offset + size));
                        std::copy(
                            out.begin(),
                            out.end(),
                            expected.begin() + static_cast<std::ptrdiff_t>(offset));
                    }
                }
                RC_ASSERT(!ec);
                RC_ASSERT(f.size(ec) == expected.size());
                byte_vector in(expected.size() + 10);
                in.resize(read_at(f, 0, in, ec));
                RC_ASSERT(!ec);
                RC_ASSERT(in == expected);
            }
            std::vector<std::string> names;
            for (const auto& [file, content] : model) {
                names.push_back(file);
                RC_ASSERT(copy(disk.contents(file)) == content);
            }
            RC_ASSERT(dir.names(ec) == names);
        }
        // Synced, it is the same after a crash.
        error_code ec;
        for (const auto& [name, content] : model) {
            auto f = dir.open(name, open_mode::read, ec);
            f.sync_data(ec);
        }
        dir.sync(ec);
        disk.crash();
        RC_ASSERT(disk.directory().names(ec).size() == model.size());
        for (const auto& [name, content] : model) {
            RC_ASSERT(copy(disk.contents(name)) == content);
        }
    });
    CHECK(holds);
}
