// SPDX-License-Identifier: BSL-1.0
//
// Readers without a lock beside a writer that appends, rolls, removes and compacts. Each record
// says what it must be, so a reader that saw one half written, ended or moved would notice; a
// thread sanitizer sees what it does not. A reader that follows may miss records that were removed
// before it came, and nothing else: what it sees rises, and at the end it has seen the newest of
// each key. The number of steps is fixed.
#include <railmq/core/compaction.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/runtime/threaded.hpp>

#include "support/catch.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using railmq::errc;
using railmq::log_cleanup;
using railmq::time_point;
using railmq::unlimited;
using railmq::core::log_entry;
using railmq::core::log_input;
using railmq::core::read_status;
using partition_type = railmq::core::partition<railmq::threaded>;
using cursor_type = railmq::core::log_cursor<railmq::threaded>;
using pin_type = railmq::core::log_pin<railmq::threaded>;

namespace {

constexpr std::uint64_t total = 60'000;

/// A few that come all the time, and many that come seldom, so that segments become sparse.
std::string key_of(std::uint64_t offset) {
    return offset % 16 == 0 ? "rare key " + std::to_string(offset % 4'096)
                            : "key " + std::to_string(offset % 50);
}
std::string text_of(std::uint64_t offset) {
    return "the value of the record with the number " + std::to_string(offset);
}

/// A log, its lock, and what readers found wrong: assertions belong to the main thread.
struct shared_log {
    explicit shared_log(const railmq::log_options& o)
        : log{railmq::core::payload_ops_of<std::string>::value, budget, o} {}

    railmq::core::memory_budget<railmq::threaded> budget{unlimited};
    std::mutex mutex{};
    partition_type log;
    std::atomic<int> wrong{0};
};

void append(shared_log& s, std::uint64_t offset) {
    const std::string key = key_of(offset);
    alignas(std::string) std::array<std::byte, sizeof(std::string)> raw;
    log_input in;
    in.key = key;
    in.payload = ::new (static_cast<void*>(raw.data())) std::string{text_of(offset)};
    const std::lock_guard guard{s.mutex};
    if (s.log.append(std::move(in), time_point{}).failed != errc{}) {
        s.wrong.fetch_add(1);
    }
}

bool is_right(const log_entry& e) {
    return e.has_key && e.key == key_of(e.offset) && e.payload != nullptr &&
           *static_cast<const std::string*>(e.payload) == text_of(e.offset);
}

/// Reads to the last record. Returns the last offset of each key that it saw.
std::map<std::string, std::uint64_t>
read_all(shared_log& s, std::size_t batch, bool dense, bool keeps) {
    std::map<std::string, std::uint64_t> last;
    std::vector<std::pair<pin_type, std::vector<log_entry>>> kept;
    cursor_type c;
    {
        const std::lock_guard guard{s.mutex};
        (void)s.log.seek(c, s.log.start_offset());
    }
    std::uint64_t next = c.position();
    std::uint64_t turn = 0;
    while (next < total) {
        std::vector<log_entry> entries;
        const auto status =
            c.read(batch, unlimited, [&](const log_entry& e) { entries.push_back(e); });
        if (status == read_status::elsewhere) {
            const std::lock_guard guard{s.mutex};
            if (s.log.enter(c) == errc{}) {
                continue;
            }
        }
        if (status == read_status::out_of_range || status == read_status::elsewhere) {
            const std::lock_guard guard{s.mutex};
            next = s.log.start_offset();
            (void)s.log.seek(c, next);
            continue;
        }
        if (status == read_status::at_end) {
            std::this_thread::yield();
            if (++turn % 8 == 0) {
                c.unpin();
            }
            continue;
        }
        for (const log_entry& e : entries) {
            if (e.offset < next || (dense && e.offset != next) || !is_right(e)) {
                s.wrong.fetch_add(1);
            }
            next = e.offset + 1;
            last[std::string{e.key}] = e.offset;
        }
        if (keeps && ++turn % 3 == 0) { // and looks at it much later
            kept.emplace_back(c.pin(), std::move(entries));
            if (kept.size() > 4) {
                for (const log_entry& e : kept.front().second) {
                    s.wrong.fetch_add(is_right(e) ? 0 : 1);
                }
                kept.erase(kept.begin());
            }
        }
    }
    return last;
}

} // namespace

TEST_CASE("log_reading: a follower sees every record of a log that rolls") {
    shared_log s{{.segment_records = 100}};
    std::thread reader{[&] { (void)read_all(s, 7, true, true); }};
    for (std::uint64_t i = 0; i < total; ++i) {
        append(s, i);
    }
    reader.join();
    CHECK(s.wrong.load() == 0);
}

TEST_CASE("log_reading: removal beside readers frees nothing that is read") {
    shared_log s{{.retention = {.max_records = 2'000}, .segment_records = 50}};
    std::thread reader{[&] { (void)read_all(s, 5, false, true); }};
    for (std::uint64_t i = 0; i < total; ++i) {
        append(s, i);
        if (i % 40 == 0) {
            partition_type::removal gone;
            const std::lock_guard guard{s.mutex};
            gone = i % 80 == 0 ? s.log.apply_retention(time_point{})
                               : s.log.delete_records(s.log.end_offset() - s.log.records() / 2);
        }
    }
    reader.join();
    CHECK(s.wrong.load() == 0);
    CHECK(s.log.records() < 3'000);
    CHECK(s.budget.used() == s.log.memory_bytes());
}

TEST_CASE("log_reading: compaction beside readers moves nothing that is read [B8.5]") {
    shared_log s{{.cleanup = log_cleanup::compact, .segment_records = 64}};
    railmq::core::compaction<railmq::threaded> cleaner{s.log};
    std::map<std::string, std::uint64_t> last;
    std::thread reader{[&] { last = read_all(s, 5, false, true); }};
    std::uint64_t moved = 0;
    const auto step = [&](std::uint64_t budget) {
        railmq::core::compaction<railmq::threaded>::step_result r;
        const std::lock_guard guard{s.mutex};
        r = cleaner.step(budget, time_point{});
        moved += r.moved;
        return r.finished;
    };
    for (std::uint64_t i = 0; i < total; ++i) {
        append(s, i);
        if (i % 8 == 0) {
            (void)step(24);
        }
    }
    reader.join();
    CHECK(s.wrong.load() == 0);
    CHECK(moved > 1'000);
    std::map<std::string, std::uint64_t> newest;
    for (std::uint64_t i = 0; i < total; ++i) {
        newest[key_of(i)] = i;
    }
    CHECK(last == newest);
    while (!step(1'000)) { // what is under way
    }
    while (!step(1'000)) {
    }
    CHECK(s.log.records() < newest.size() + 2 * 64);
    CHECK(s.budget.used() == s.log.memory_bytes());
}
