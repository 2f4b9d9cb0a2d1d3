// SPDX-License-Identifier: BSL-1.0
//
// The journal against everything that a disk can do to it: power cuts at every call, every call
// failing, every bit flipped, every truncation, writes that were lost or went elsewhere.
#include <railmq/model/random.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace railmq::storage;
using railmq::errc;
using railmq::error_code;
namespace sys = boost::system::errc;

namespace {

using journal_type = journal<simulated_directory>;
using payloads = std::vector<std::vector<std::byte>>;

constexpr journal_id id{0x5151515151515151U, 0x1515151515151515U};
constexpr journal_options small{
    .segment_bytes = 4096, .headroom_bytes = 512, .max_record_bytes = 1000};

/// What somebody who uses the journal knows: what was appended, in order, and how much of it the
/// journal has confirmed.
struct history {
    payloads appended{};
    std::size_t confirmed = 0;
};

struct opening {
    std::optional<journal_type> journal{};
    payloads read{};
    recovery_report report{};
    error_code ec{};
};

opening open(simulated_disk& disk, const journal_options& options = small) {
    opening o;
    o.journal = journal_type::open(
        disk.directory(),
        options,
        id,
        [&](std::uint64_t, std::span<const std::byte> p, record_location) {
            o.read.emplace_back(p.begin(), p.end());
        },
        o.report,
        o.ec);
    return o;
}

/// Payloads of any length that are all different.
std::vector<std::byte> payload(railmq::random_engine& random, std::uint64_t number) {
    std::vector<std::byte> p(8 + railmq::uniform_below(random, 300));
    for (auto& b : p) {
        b = static_cast<std::byte>(random());
    }
    std::memcpy(p.data(), &number, sizeof number);
    return p;
}

/// Appends, writes, syncs and reopens by chance until `steps` are done or something fails. False:
/// something failed.
bool work(
    simulated_disk& disk,
    history& h,
    railmq::random_engine& random,
    int steps,
    std::uint64_t first) {
    opening o = open(disk);
    if (o.ec) {
        return false;
    }
    // What an opening reads is on the device by then.
    if (o.read.size() < h.confirmed || o.read.size() > h.appended.size()) {
        throw std::logic_error{"an opening without a crash lost or invented records"};
    }
    h.appended.resize(o.read.size());
    h.confirmed = o.read.size();
    for (int i = 0; i < steps; ++i) {
        error_code ec;
        switch (railmq::uniform_below(random, 10)) {
        case 0: o.journal->write(ec); break;
        case 1:
        case 2:
            o.journal->sync(ec);
            if (!ec) {
                h.confirmed = h.appended.size();
            }
            break;
        default: {
            auto p = payload(random, first + static_cast<std::uint64_t>(i));
            // From here on it may be there, whatever the call says.
            h.appended.push_back(p);
            (void)o.journal->append(p, ec);
            if (ec && !o.journal->has_failed()) {
                h.appended.pop_back();
            }
            break;
        }
        }
        if (ec) {
            return false;
        }
    }
    return true;
}

/// The promise: a prefix, with all that was confirmed.
void check(const opening& o, const history& h) {
    REQUIRE_FALSE(o.ec);
    REQUIRE(o.read.size() >= h.confirmed);
    REQUIRE(o.read.size() <= h.appended.size());
    REQUIRE(std::equal(o.read.begin(), o.read.end(), h.appended.begin()));
}

/// The power goes, in several ways; then work goes on, and the power goes again.
void cut_power(const simulated_disk& disk, const history& h, std::uint64_t seed, int ways) {
    for (int way = 0; way < ways; ++way) {
        simulated_disk copy = disk;
        copy.heal();
        history after = h;
        railmq::random_engine random{railmq::test::seed(seed + static_cast<std::uint64_t>(way))};
        copy.reseed(random());
        for (int again = 0; again < 3; ++again) {
            copy.crash();
            check(open(copy), after);
            copy.crash(); // what the opening said is true from then on
            {
                const opening o = open(copy);
                check(o, after);
                after.appended = o.read;
                after.confirmed = o.read.size();
            }
            REQUIRE(work(copy, after, random, 12, 1'000U * (static_cast<unsigned>(again) + 1)));
        }
    }
}

} // namespace

TEST_CASE("F2: the power is cut at every call that the journal makes, in many ways") {
    for (std::uint64_t w = 0; w < 4; ++w) {
        for (std::uint64_t n = 1;; ++n) {
            simulated_disk disk{railmq::test::seed(w), {.torn_sectors = 0.1}};
            history h;
            railmq::random_engine random{railmq::test::seed(w)};
            disk.fail_from(disk_operation::any, n, sys::io_error);
            const bool is_whole = work(disk, h, random, 60, 0);
            cut_power(disk, h, 100 * n + w, 3);
            if (is_whole) {
                CHECK(n > 30);
                break;
            }
        }
    }
}

// RAILMQ_POWER_CUTS=1000000 in the environment makes it that many, of other seeds each.
TEST_CASE("F2: the power is cut after random work, many times") {
    const char* const asked = std::getenv("RAILMQ_POWER_CUTS");
    const std::uint64_t cuts = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 1'600;
    for (std::uint64_t seed = 0; seed < cuts / 4; ++seed) {
        simulated_disk disk{railmq::test::seed(seed), {.torn_sectors = 0.2}};
        railmq::random_engine random{railmq::test::seed(seed)};
        history h;
        for (int life = 0; life < 4; ++life) {
            const int steps = 1 + static_cast<int>(railmq::uniform_below(random, 80));
            REQUIRE(work(disk, h, random, steps, 1'000U * static_cast<unsigned>(life)));
            disk.crash();
            const opening o = open(disk);
            check(o, h);
            h.appended = o.read;
            h.confirmed = o.read.size();
        } // closed before the next life
    }
}

TEST_CASE("F5, F6, F8: every call fails once, in every way, and no false confirm follows") {
    const auto error = GENERATE(
        sys::io_error,
        sys::no_space_on_device,
        sys::permission_denied,
        sys::too_many_files_open,
        sys::read_only_file_system);
    for (std::uint64_t n = 1;; ++n) {
        simulated_disk disk{railmq::test::seed(n)};
        history h;
        railmq::random_engine random{railmq::test::seed(7)};
        disk.fail(disk_operation::any, n, error);
        const bool is_whole = work(disk, h, random, 60, 0);
        // Not after a power cut only: also when the process just opens it again.
        simulated_disk same = disk;
        same.heal();
        check(open(same), h);
        cut_power(disk, h, 100 * n, 2);
        if (is_whole && disk.faults_struck() == 0) {
            CHECK(n > 30);
            break;
        }
    }
}

TEST_CASE("F6: interrupted calls and short transfers change nothing") {
    const auto kind = GENERATE(disk_fault::interrupted, disk_fault::short_transfer);
    simulated_disk plain{railmq::test::seed(3)};
    history expected;
    railmq::random_engine random{railmq::test::seed(3)};
    REQUIRE(work(plain, expected, random, 60, 0));
    for (std::uint64_t n = 1;; ++n) {
        simulated_disk disk{railmq::test::seed(3)};
        history h;
        railmq::random_engine again{railmq::test::seed(3)};
        const auto what = kind == disk_fault::short_transfer
                              ? disk_operation::any
                              : (n % 2 == 0 ? disk_operation::write : disk_operation::read);
        disk.plan({.what = what, .nth = 1 + n / 2, .kind = kind});
        REQUIRE(work(disk, h, again, 60, 0));
        CHECK(h.appended == expected.appended);
        CHECK(h.confirmed == expected.confirmed);
        check(open(disk), h);
        if (disk.faults_struck() == 0) {
            break;
        }
    }
}

TEST_CASE("F7: a disk is filled and gets space again, many times") {
    simulated_disk disk{railmq::test::seed(1)};
    railmq::random_engine random{railmq::test::seed(1)};
    history h;
    std::uint64_t capacity = 0;
    for (int round = 0; round < 200; ++round) {
        capacity = disk.used() + 3'000 + railmq::uniform_below(random, 4'000);
        disk.set_capacity(capacity);
        opening o = open(disk);
        check(o, h);
        h.appended = o.read;
        h.confirmed = o.read.size();
        error_code ec;
        for (std::uint64_t n = 0; !ec; ++n) {
            REQUIRE(n < 1'000);
            auto p = payload(random, 1'000 * static_cast<std::uint64_t>(round) + n);
            (void)o.journal->append(p, ec);
            if (!ec) {
                h.appended.push_back(std::move(p));
            }
        }
        REQUIRE(ec == errc::no_space);
        REQUIRE_FALSE(o.journal->has_failed());
        ec = {};
        o.journal->sync(ec);
        REQUIRE_FALSE(ec);
        h.confirmed = h.appended.size();
        if (round % 3 == 0) {
            disk.crash();
        }
    }
}

namespace {

/// A journal of several segments that was closed in good order.
simulated_disk closed_journal(history& h, std::uint64_t seed, int steps) {
    simulated_disk disk{railmq::test::seed(seed)};
    railmq::random_engine random{railmq::test::seed(seed)};
    REQUIRE(work(disk, h, random, steps, 0));
    opening o = open(disk);
    check(o, h);
    error_code ec;
    o.journal->close(ec);
    REQUIRE_FALSE(ec);
    h.appended = o.read;
    h.confirmed = h.appended.size();
    return disk;
}

std::vector<std::string> files_of(simulated_disk& disk) {
    error_code ec;
    return disk.directory().names(ec);
}

} // namespace

TEST_CASE("F9: whichever bit flips, it is found, and no record is read wrongly") {
    history h;
    const simulated_disk disk = closed_journal(h, 1, 80);
    simulated_disk damaged = disk;
    const auto files = files_of(damaged);
    CHECK(files.size() >= 3);
    std::uint64_t refused = 0;
    for (const auto& name : files) {
        const std::uint64_t size = disk.contents(name).size();
        for (std::uint64_t bit = 0; bit < 8 * size; bit += bit < 8 * 5'000 ? 1 : 997) {
            const auto mask = static_cast<std::byte>(1U << (bit % 8));
            simulated_disk flipped = disk;
            flipped.corrupt(name, bit / 8, mask);
            const opening o = open(flipped);
            if (o.ec) {
                ++refused;
                REQUIRE((o.ec == errc::journal_corrupt || o.ec == errc::invalid_argument));
                continue;
            }
            // Nothing but what follows the last record that was known to be synced.
            REQUIRE(o.report.cut_bytes != 0);
            REQUIRE(o.read == h.appended);
        }
    }
    CHECK(refused > 10'000);
}

TEST_CASE("F11: whichever part of a file is missing, it is refused, or a prefix is read") {
    history h;
    const simulated_disk disk = closed_journal(h, 2, 80);
    simulated_disk copy = disk;
    const auto files = files_of(copy);
    REQUIRE(files.size() >= 3);
    for (const auto& name : files) {
        const std::uint64_t size = std::min<std::uint64_t>(disk.contents(name).size(), 5'000);
        for (std::uint64_t n = 0; n < size; ++n) {
            simulated_disk cut = disk;
            error_code ec;
            auto file = cut.directory().open(name, open_mode::read_write, ec);
            file.resize(n, ec);
            REQUIRE_FALSE(ec);
            const opening o = open(cut);
            if (name != files.back()) {
                REQUIRE(o.ec == errc::journal_corrupt);
            } else if (!o.ec) {
                REQUIRE(o.read.size() <= h.appended.size());
                REQUIRE(std::equal(o.read.begin(), o.read.end(), h.appended.begin()));
            } else {
                REQUIRE(o.ec == errc::journal_corrupt);
            }
        }
    }
}

TEST_CASE("F10: writes that were lost or went elsewhere are found once more was synced") {
    const auto kind = GENERATE(disk_fault::lost_write, disk_fault::misdirected_write);
    std::uint64_t found = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        simulated_disk disk{railmq::test::seed(seed)};
        railmq::random_engine random{railmq::test::seed(seed)};
        history h;
        disk.plan(
            {.what = disk_operation::write,
             .nth = 1 + railmq::uniform_below(random, 20),
             .kind = kind});
        opening o = open(disk);
        if (!o.ec) {
            for (std::uint64_t n = 0; n < 60; ++n) {
                auto p = payload(random, n);
                error_code ec;
                (void)o.journal->append(p, ec);
                REQUIRE_FALSE(ec);
                h.appended.push_back(std::move(p));
                if (n % 3 == 2) {
                    o.journal->sync(ec);
                    REQUIRE_FALSE(ec);
                }
            }
        }
        const bool has_struck = disk.faults_struck() != 0;
        disk.crash();
        const opening again = open(disk);
        if (again.ec) {
            REQUIRE(has_struck);
            REQUIRE(again.ec == errc::journal_corrupt);
            ++found;
        } else {
            // The last writes of all: nothing that came later says that they were there.
            REQUIRE(again.read.size() <= h.appended.size());
            REQUIRE(std::equal(again.read.begin(), again.read.end(), h.appended.begin()));
            REQUIRE(
                (!has_struck || again.read.size() + 6 >= h.appended.size() || h.appended.empty()));
        }
    }
    CHECK(found > 200);
}
