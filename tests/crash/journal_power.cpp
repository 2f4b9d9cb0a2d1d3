// SPDX-License-Identifier: BSL-1.0
//
// F3, F29: the power goes under a real file system. The shutdown ioctl of ext4 drops all that the
// kernel has not made durable; then the file system is mounted again and replays its own journal.
// Needs root and a loop device; where there is none the test says so and is passed over.
#include <railmq/model/random.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/posix_files.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"
#include "support/seed.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace railmq::storage;
using railmq::error_code;

namespace {

using journal_type = journal<posix_directory>;

constexpr journal_options small{
    .segment_bytes = 65'536, .headroom_bytes = 8'192, .max_record_bytes = 2'000};

/// An image file with an ext4 file system in it, mounted.
class volume {
public:
    volume() {
        if (::geteuid() != 0) {
            why = "only root can mount a file system";
            return;
        }
        std::filesystem::create_directory(mounted());
        std::ofstream{image()};
        std::filesystem::resize_file(image(), 24U << 20U);
        if (!run("mkfs.ext4 -q -F " + image()) || !mount()) {
            why = "mkfs.ext4 or a loop device is missing";
        }
    }
    volume(const volume&) = delete;
    volume& operator=(const volume&) = delete;
    ~volume() { (void)run("umount " + mounted()); }

    [[nodiscard]] std::string mounted() const { return folder_.path + "/mounted"; }

    /// Drops what is not on the device. False: this kernel or file system cannot.
    [[nodiscard]] bool cut_power() const {
        const int fd = ::open(mounted().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        std::uint32_t without_flushing = 2;
        const bool done = ::ioctl(fd, _IOR('X', 125, std::uint32_t), &without_flushing) == 0;
        ::close(fd);
        return done;
    }
    [[nodiscard]] bool mount() const { return run("mount -o loop " + image() + " " + mounted()); }
    [[nodiscard]] bool unmount() const { return run("umount " + mounted()); }

    std::string why{}; ///< Why there is none.

private:
    [[nodiscard]] static bool run(const std::string& command) {
        return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
    }
    [[nodiscard]] std::string image() const { return folder_.path + "/image"; }

    railmq::test::scratch_directory folder_{};
};

std::vector<std::byte> payload(std::uint64_t n) {
    railmq::random_engine random{railmq::test::seed(n)};
    std::vector<std::byte> p(railmq::uniform_below(random, 1'500));
    for (auto& b : p) {
        b = static_cast<std::byte>(random());
    }
    return p;
}

struct opening {
    std::optional<journal_type> journal{};
    std::vector<std::vector<std::byte>> read{};
    recovery_report report{};
    error_code ec{};
};

opening open(const std::string& path) {
    opening o;
    auto where = posix_directory::open_or_create(path, {}, o.ec);
    if (!o.ec) {
        o.journal = journal_type::open(
            std::move(where),
            small,
            {3, 4},
            [&](std::uint64_t, std::span<const std::byte> p, record_location) {
                o.read.emplace_back(p.begin(), p.end());
            },
            o.report,
            o.ec);
    }
    return o;
}

/// Lets the kernel write a part of the newest segment out of order, as it may at any time.
void disturb(const std::string& path, std::uint64_t segment, railmq::random_engine& random) {
    const std::string name = path + "/" + segment_name(segment);
    const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    const auto from = static_cast<off64_t>(railmq::uniform_below(random, small.segment_bytes));
    ::sync_file_range(fd, from, 8'192, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    ::close(fd);
}

} // namespace

// RAILMQ_REAL_POWER_CUTS=5000 in the environment makes it that many.
TEST_CASE("F3: the power is cut under ext4, and what was confirmed is there") {
    const volume disk;
    if (!disk.why.empty()) {
        WARN("skipped: " << disk.why);
        return;
    }
    const char* const asked = std::getenv("RAILMQ_REAL_POWER_CUTS");
    const std::uint64_t cuts = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 200;
    railmq::random_engine random{railmq::test::seed(1)};
    const std::string path = disk.mounted() + "/journal";
    std::uint64_t lost = 0;
    std::uint64_t torn = 0;
    std::uint64_t confirmed = 0;
    std::uint64_t appended = 0;
    for (std::uint64_t cut = 0; cut < cuts; ++cut) {
        if (cut % 25 == 0) { // reading it takes longer each time
            std::filesystem::remove_all(path);
            confirmed = appended = 0;
        }
        {
            opening o = open(path);
            REQUIRE_FALSE(o.ec);
            REQUIRE(o.read.size() >= confirmed);
            REQUIRE(o.read.size() <= appended);
            for (std::size_t i = 0; i < o.read.size(); ++i) {
                REQUIRE(o.read[i] == payload(i));
            }
            lost += appended - o.read.size();
            torn += o.report.cut_bytes != 0 ? 1 : 0;
            confirmed = appended = o.read.size();
            const std::uint64_t steps = 1 + railmq::uniform_below(random, 60);
            for (std::uint64_t i = 0; i < steps; ++i) {
                error_code ec;
                const std::uint64_t choice = railmq::uniform_below(random, 20);
                if (choice == 0) {
                    o.journal->sync(ec);
                    confirmed = ec ? confirmed : appended;
                } else if (choice < 6) {
                    o.journal->write(ec);
                    disturb(path, o.journal->segment(), random);
                } else {
                    (void)o.journal->append(payload(appended), ec);
                    ++appended;
                }
                REQUIRE_FALSE(ec);
            }
            if (!disk.cut_power()) {
                WARN("skipped: this file system has no shutdown ioctl");
                return;
            }
        }
        REQUIRE(disk.unmount());
        REQUIRE(disk.mount());
    }
    // Else the cuts were none.
    CHECK(lost > 0);
    WARN(cuts << " power cuts, " << lost << " unconfirmed records lost, " << torn << " torn tails");
}
