// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/posix_files.hpp>
#include <railmq/storage/shared_journal.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace railmq::storage;
using railmq::errc;
using railmq::error_code;

namespace {

/// A clock of our own: a sync takes a second, and to look at it a microsecond.
std::atomic<std::uint64_t> looks{0};
std::atomic<std::uint64_t> seconds{0};

std::chrono::steady_clock::time_point own_time() {
    return std::chrono::steady_clock::time_point{
        std::chrono::seconds{seconds} + std::chrono::microseconds{++looks}};
}

/// What a disk under observation counts, and when its sync fails.
struct counters {
    std::atomic<std::uint64_t> writes{0};
    std::atomic<std::uint64_t> syncs{0};
    std::atomic<std::uint64_t> fail_sync_from{~std::uint64_t{0}};
};

/// Real files, counted.
class counted_file {
public:
    counted_file() = default;
    counted_file(posix_file f, counters* c)
        : file_{std::move(f)}
        , counters_{c} {}
    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> in, error_code& ec) {
        return file_.read_some_at(offset, in, ec);
    }
    std::size_t
    write_some_at(std::uint64_t offset, std::span<const std::byte> out, error_code& ec) {
        ++counters_->writes;
        return file_.write_some_at(offset, out, ec);
    }
    void sync_data(error_code& ec) {
        ++seconds;
        if (++counters_->syncs >= counters_->fail_sync_from) {
            ec = make_error_code(boost::system::errc::io_error);
        } else {
            file_.sync_data(ec);
        }
    }
    void allocate(std::uint64_t size, error_code& ec) { file_.allocate(size, ec); }
    void resize(std::uint64_t size, error_code& ec) { file_.resize(size, ec); }
    std::uint64_t size(error_code& ec) { return file_.size(ec); }
    void start_sync(std::uint64_t offset, std::uint64_t size) { file_.start_sync(offset, size); }
    std::uint64_t data_from(std::uint64_t offset, error_code& ec) {
        return file_.data_from(offset, ec);
    }

private:
    posix_file file_{};
    counters* counters_ = nullptr;
};

struct counted_directory {
    using file_type = counted_file;
    using lock_type = posix_lock;

    counted_file open(std::string_view name, open_mode mode, error_code& ec) {
        return {where.open(name, mode, ec), count};
    }
    void rename(std::string_view from, std::string_view to, error_code& ec) {
        where.rename(from, to, ec);
    }
    void remove(std::string_view name, error_code& ec) { where.remove(name, ec); }
    std::vector<std::string> names(error_code& ec) { return where.names(ec); }
    void sync(error_code& ec) { where.sync(ec); }
    posix_lock lock(std::int64_t& owner, error_code& ec) { return where.lock(owner, ec); }

    posix_directory where;
    counters* count;
};

struct world {
    void open(std::uint64_t segment_bytes = 1U << 20U) {
        shared.reset();
        read.clear();
        error_code ec;
        auto where = posix_directory::open_or_create(scratch.path + "/journal", {}, ec);
        REQUIRE_FALSE(ec);
        auto j = journal<counted_directory>::open(
            {std::move(where), &count},
            {.segment_bytes = segment_bytes, .headroom_bytes = 4096},
            {7, 8},
            [this](std::uint64_t, std::span<const std::byte> p, record_location) {
                std::uint64_t value = 0;
                std::memcpy(&value, p.data(), sizeof value);
                read.push_back(value);
            },
            report,
            ec);
        REQUIRE_FALSE(ec);
        shared = std::make_unique<shared_journal<counted_directory>>(std::move(*j), &own_time);
    }
    std::uint64_t append(std::uint64_t value, error_code& ec) {
        return shared->append(std::as_bytes(std::span{&value, 1}), ec);
    }

    railmq::test::scratch_directory scratch{};
    counters count{};
    std::unique_ptr<shared_journal<counted_directory>> shared{};
    std::vector<std::uint64_t> read{};
    recovery_report report{};
};

} // namespace

TEST_CASE("shared_journal: each level is waited for, and no further") {
    world w;
    w.open();
    const std::uint64_t writes = w.count.writes;
    const std::uint64_t syncs = w.count.syncs;
    error_code ec;
    const std::uint64_t n = w.append(1, ec);
    w.shared->wait(n, reached::appended, ec);
    CHECK(w.count.writes == writes);
    w.shared->wait(n, reached::written, ec);
    CHECK(w.count.writes == writes + 1);
    CHECK(w.count.syncs == syncs);
    w.shared->wait(n, reached::synced, ec);
    CHECK(w.count.writes == writes + 1);
    CHECK(w.count.syncs == syncs + 1);
    w.shared->wait(n, reached::synced, ec);       // it is there already
    w.shared->wait(n + 100, reached::synced, ec); // beyond the last one there is nothing
    CHECK(w.count.syncs == syncs + 1);
    CHECK_FALSE(ec);
}

TEST_CASE("shared_journal: many threads, every record once, confirmed ones in their order") {
    constexpr std::uint64_t threads = 8;
    constexpr std::uint64_t each = 150;
    world w;
    w.open(16'384); // segments are begun in between
    std::atomic<bool> has_failed{false};
    std::vector<std::thread> running;
    for (std::uint64_t t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < each; ++i) {
                error_code ec;
                const std::uint64_t n = w.append(t * 1'000 + i, ec);
                has_failed = has_failed || ec.failed();
                w.shared->wait(n, i % 3 == 0 ? reached::written : reached::synced, ec);
                has_failed = has_failed || ec.failed();
            }
        });
    }
    for (auto& t : running) {
        t.join();
    }
    CHECK_FALSE(has_failed);
    error_code ec;
    w.shared->close(ec);
    CHECK_FALSE(ec);
    w.open();
    CHECK(w.report.was_closed);
    REQUIRE(w.read.size() == threads * each);
    for (std::uint64_t t = 0; t < threads; ++t) {
        std::vector<std::uint64_t> own;
        std::copy_if(w.read.begin(), w.read.end(), std::back_inserter(own), [&](std::uint64_t v) {
            return v / 1'000 == t;
        });
        REQUIRE(own.size() == each);
        CHECK(std::is_sorted(own.begin(), own.end()));
    }
}

TEST_CASE("shared_journal: those that wait together share a sync") {
    constexpr std::uint64_t threads = 16;
    world w;
    w.open();
    std::uint64_t syncs = w.count.syncs;
    error_code ec;
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t t = 0; t < threads; ++t) {
        numbers.push_back(w.append(t, ec));
    }
    std::vector<std::thread> waiting;
    for (const std::uint64_t n : numbers) {
        waiting.emplace_back([&w, n] {
            error_code ignored;
            w.shared->wait(n, reached::synced, ignored);
        });
    }
    for (auto& t : waiting) {
        t.join();
    }
    CHECK(w.count.syncs == syncs + 1);
}

TEST_CASE("shared_journal: after a sync that failed nobody is told that all is well") {
    constexpr std::uint64_t threads = 8;
    world w;
    w.open();
    w.count.fail_sync_from = w.count.syncs + 5;
    std::atomic<std::uint64_t> confirmed{0};
    std::atomic<std::uint64_t> failed{0};
    std::vector<std::thread> running;
    for (std::uint64_t t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
            for (std::uint64_t i = 0;; ++i) {
                error_code ec;
                const std::uint64_t n = w.append(t * 1'000 + i, ec);
                if (!ec) {
                    w.shared->wait(n, reached::synced, ec);
                }
                if (ec) {
                    failed += ec == errc::io_error || ec == errc::journal_failed ? 1 : 0;
                    return;
                }
                ++confirmed;
            }
        });
    }
    for (auto& t : running) {
        t.join();
    }
    CHECK(failed == threads);
    CHECK(confirmed <= 5 * threads);
    error_code ec;
    (void)w.append(1, ec);
    CHECK(ec == errc::journal_failed);
    w.count.fail_sync_from = ~std::uint64_t{0};
    w.open();
    CHECK(w.read.size() >= confirmed);
}

TEST_CASE("shared_journal: those whom a sync has served share the next one") {
    constexpr std::uint64_t threads = 8;
    constexpr std::uint64_t each = 100;
    world w;
    w.open();
    const std::uint64_t syncs = w.count.syncs;
    std::atomic<std::uint64_t> ready{0};
    std::atomic<bool> has_failed{false};
    std::vector<std::thread> running;
    for (std::uint64_t t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
            ++ready;
            while (ready != threads) {
                std::this_thread::yield();
            }
            for (std::uint64_t i = 0; i < each; ++i) {
                error_code ec;
                w.shared->wait(w.append(t, ec), reached::synced, ec);
                has_failed = has_failed || ec.failed();
            }
        });
    }
    for (auto& t : running) {
        t.join();
    }
    CHECK_FALSE(has_failed);
    // Without waiting for each other they would take turns: two syncs for everybody's record.
    CHECK(w.count.syncs - syncs >= each);
    CHECK(w.count.syncs - syncs <= each + each / 2);

    // Now nobody comes back but one: he waits for the others once, and not again.
    error_code ec;
    w.shared->wait(w.append(1, ec), reached::synced, ec);
    const std::uint64_t before = looks;
    for (std::uint64_t i = 0; i < 10; ++i) {
        w.shared->wait(w.append(1, ec), reached::synced, ec);
    }
    CHECK_FALSE(ec);
    CHECK(looks == before + 20); // at the beginning and at the end of each flush
}

TEST_CASE("shared_journal: closed while threads use it, it has all that was confirmed") {
    constexpr std::uint64_t threads = 8;
    world w;
    w.open(16'384);
    std::atomic<std::uint64_t> confirmed{0};
    std::atomic<std::uint64_t> refused{0};
    std::vector<std::thread> running;
    for (std::uint64_t t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
            for (std::uint64_t i = 0;; ++i) {
                error_code ec;
                const std::uint64_t n = w.append(t * 1'000'000 + i, ec);
                if (!ec) {
                    w.shared->wait(n, t % 2 == 0 ? reached::synced : reached::written, ec);
                }
                if (ec) {
                    refused += ec == errc::journal_failed ? 1 : 0;
                    return;
                }
                ++confirmed;
            }
        });
    }
    while (confirmed < 500) {
        std::this_thread::yield();
    }
    error_code ec;
    w.shared->close(ec);
    CHECK_FALSE(ec);
    for (auto& t : running) {
        t.join();
    }
    CHECK(refused == threads);
    w.open();
    CHECK(w.report.was_closed);
    CHECK(w.read.size() >= confirmed);
}
