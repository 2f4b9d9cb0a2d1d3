// SPDX-License-Identifier: BSL-1.0
//
// F1: a process that uses a journal on real files is killed, again and again.
#include <railmq/model/random.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/posix_files.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"
#include "support/seed.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace railmq::storage;
using railmq::error_code;

namespace {

using journal_type = journal<posix_directory>;

constexpr journal_options small{
    .segment_bytes = 16'384, .headroom_bytes = 4'096, .max_record_bytes = 1'000};

/// What the child has reached; its parent reads it after its death.
struct progress {
    std::atomic<std::uint64_t> steps{0};
    std::atomic<std::uint64_t> appended{0};
    std::atomic<std::uint64_t> written{0};
};

class shared_progress {
public:
    shared_progress()
        : memory_{::mmap(
              nullptr,
              sizeof(progress),
              PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS,
              -1,
              0)} {
        REQUIRE(memory_ != MAP_FAILED);
        ::new (memory_) progress;
    }
    shared_progress(const shared_progress&) = delete;
    shared_progress& operator=(const shared_progress&) = delete;
    ~shared_progress() { ::munmap(memory_, sizeof(progress)); }
    progress* operator->() const noexcept { return static_cast<progress*>(memory_); }

private:
    void* memory_;
};

/// The nth payload: whoever reads it can tell whether it is that one.
std::vector<std::byte> payload(std::uint64_t n) {
    railmq::random_engine random{railmq::test::seed(n)};
    std::vector<std::byte> p(railmq::uniform_below(random, 400));
    for (auto& b : p) {
        b = static_cast<std::byte>(random());
    }
    return p;
}

std::optional<journal_type> open(
    const std::string& path,
    std::vector<std::vector<std::byte>>& read,
    recovery_report& report,
    error_code& ec) {
    auto where = posix_directory::open_or_create(path + "/journal", {}, ec);
    if (ec) {
        return std::nullopt;
    }
    return journal_type::open(
        std::move(where),
        small,
        {1, 2},
        [&](std::uint64_t, std::span<const std::byte> p, record_location) {
            read.emplace_back(p.begin(), p.end());
        },
        report,
        ec);
}

/// The child: works until it is killed.
[[noreturn]] void work(const std::string& path, progress& p, std::uint64_t seed) {
    std::vector<std::vector<std::byte>> read;
    recovery_report report;
    error_code ec;
    auto j = open(path, read, report, ec);
    if (ec) {
        ::_exit(1);
    }
    railmq::random_engine random{seed};
    std::uint64_t n = read.size();
    p.appended = n;
    p.written = n;
    for (;;) {
        ++p.steps;
        const std::uint64_t choice = railmq::uniform_below(random, 20);
        if (choice == 0) {
            j->sync(ec);
        } else if (choice < 5) {
            j->write(ec);
        } else {
            p.appended = n + 1;
            (void)j->append(payload(n), ec);
            ++n;
        }
        if (ec) {
            ::_exit(2);
        }
        if (choice < 5) {
            p.written = n;
        }
    }
}

} // namespace

// RAILMQ_KILLS=100000 in the environment makes it that many.
TEST_CASE("F1: a process is killed at any moment, and nothing is lost that it had written") {
    const char* const asked = std::getenv("RAILMQ_KILLS");
    const std::uint64_t kills = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 2'000;
    railmq::random_engine random{railmq::test::seed(1)};
    std::uint64_t cut = 0;
    for (std::uint64_t done = 0; done < kills;) {
        // Not for ever in one journal: reading it takes longer each time.
        const railmq::test::scratch_directory scratch;
        for (int life = 0; life < 25 && done < kills; ++life, ++done) {
            const shared_progress p;
            const std::uint64_t seed = random();
            const std::uint64_t steps = railmq::uniform_below(random, 120);
            const ::pid_t child = ::fork();
            REQUIRE(child != -1);
            if (child == 0) {
                work(scratch.path, *p.operator->(), seed);
            }
            int status = 0;
            ::pid_t ended = 0;
            while (p->steps.load() < steps && ended == 0) {
                ::sched_yield();
                ended = ::waitpid(child, &status, WNOHANG);
            }
            if (ended == 0) {
                ::kill(child, SIGKILL);
                ::waitpid(child, &status, 0);
            }
            REQUIRE(WIFSIGNALED(status));
            std::vector<std::vector<std::byte>> read;
            recovery_report report;
            error_code ec;
            const auto j = open(scratch.path, read, report, ec);
            REQUIRE_FALSE(ec);
            REQUIRE(read.size() >= p->written.load());
            REQUIRE((p->appended.load() == 0 || read.size() <= p->appended.load()));
            for (std::size_t i = 0; i < read.size(); ++i) {
                REQUIRE(read[i] == payload(i));
            }
            cut += report.cut_bytes != 0 ? 1 : 0;
        }
    }
    // A kill may end a write between two pages: 4 in 2,000 when this was written.
    WARN(kills << " kills, " << cut << " torn writes");
}
