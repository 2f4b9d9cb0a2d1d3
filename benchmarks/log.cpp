// SPDX-License-Identifier: BSL-1.0
//
// What a record of a log costs in memory: one partition against what one would take otherwise, a
// vector or a deque under a mutex.
//
//     log [--quick]
//
// One process, one thread, so nothing is contended: what is compared is the work itself. A cell is
// the median of the rounds, in nanoseconds a record, after one round that does not count. The
// process keeps the memory that it frees, so that nobody pays for fresh pages, which cost more than
// all the rest. Read the ratios rather than the nanoseconds.
//
// The partition keeps more of a record than the others (offset, time, place for a key), rolls
// segments and can be trimmed at the front; the vector can not, and pays for growing once. Readers
// of the partition take no lock; those of the others take it for each batch and copy, since a
// vector may move what it holds.

#include <railmq/core/compaction.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/runtime/threaded.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

using railmq::errc;
using railmq::time_point;
using railmq::core::log_entry;
using railmq::core::log_input;
using railmq::core::read_status;

struct value { // a cache line
    std::array<std::uint64_t, 8> words{};
};

std::uint64_t records = 1'000'000;
std::uint64_t sink = 0;

template <class F>
double nanoseconds_each(std::uint64_t n, F&& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / static_cast<double>(n);
}

struct figures {
    double append = 0;
    double read = 0;
};

template <class Container>
figures of_container(std::size_t batch) {
    std::mutex mutex;
    Container all;
    figures f;
    f.append = nanoseconds_each(records, [&] {
        for (std::uint64_t i = 0; i < records; i += batch) {
            const std::lock_guard guard{mutex};
            for (std::size_t k = 0; k < batch; ++k) {
                all.push_back(value{{i + k}});
            }
        }
    });
    f.read = nanoseconds_each(records, [&] {
        std::vector<value> copies;
        for (std::uint64_t i = 0; i < records; i += batch) {
            copies.clear();
            {
                const std::lock_guard guard{mutex};
                const auto from = all.begin() + static_cast<std::ptrdiff_t>(i);
                copies.insert(copies.end(), from, from + static_cast<std::ptrdiff_t>(batch));
            }
            for (const value& v : copies) sink += v.words[0];
        }
    });
    return f;
}

figures of_partition(std::size_t batch, bool keyed) {
    railmq::core::memory_budget<railmq::threaded> budget{railmq::unlimited};
    railmq::core::partition<railmq::threaded> log{
        railmq::core::payload_ops_of<value>::value, budget, {}};
    std::mutex mutex;
    figures f;
    std::vector<value> values(batch);
    std::vector<log_input> in(batch);
    f.append = nanoseconds_each(records, [&] {
        for (std::uint64_t i = 0; i < records; i += batch) {
            for (std::size_t k = 0; k < batch; ++k) {
                values[k].words[0] = i + k;
                in[k].payload = &values[k];
                if (keyed) in[k].key = "customer-1234";
            }
            const std::lock_guard guard{mutex};
            if (log.append(in, time_point{}).failed != errc{}) std::abort();
        }
    });
    f.read = nanoseconds_each(records, [&] {
        railmq::core::log_cursor<railmq::threaded> c;
        const auto each = [](const log_entry& e) {
            sink += static_cast<const value*>(e.payload)->words[0];
        };
        (void)log.seek(c, 0);
        for (;;) {
            const auto status = c.read(batch, railmq::unlimited, each);
            if (status == read_status::at_end) break;
            if (status == read_status::elsewhere) {
                const std::lock_guard guard{mutex};
                (void)log.enter(c);
            }
        }
    });
    return f;
}

/// Passes over a log of which each record but the last of its key is superseded.
double of_compaction(std::uint64_t keys) {
    railmq::core::memory_budget<railmq::threaded> budget{railmq::unlimited};
    railmq::core::partition<railmq::threaded> log{
        railmq::core::payload_ops_of<value>::value,
        budget,
        {.cleanup = railmq::log_cleanup::compact, .segment_bytes = 1U << 20}};
    for (std::uint64_t i = 0; i < records; ++i) {
        value v{{i}};
        const std::string key = "customer-" + std::to_string(i * 7'919 % keys);
        log_input in;
        in.key = key;
        in.payload = &v;
        if (log.append(std::move(in), time_point{}).failed != errc{}) std::abort();
    }
    log.roll();
    railmq::core::compaction<railmq::threaded> cleaner{log};
    return nanoseconds_each(records, [&] {
        while (!cleaner.step(1'000, time_point{}).finished) {
        }
    });
}

void row(const char* name, std::size_t rounds, const std::function<figures()>& run) {
    std::vector<double> append;
    std::vector<double> read;
    (void)run();
    for (std::size_t i = 0; i < rounds; ++i) {
        const figures f = run();
        append.push_back(f.append);
        read.push_back(f.read);
    }
    std::sort(append.begin(), append.end());
    std::sort(read.begin(), read.end());
    std::printf("%-32s %10.1f %10.1f\n", name, append[rounds / 2], read[rounds / 2]);
}

} // namespace

int main(int argc, char** argv) {
    std::size_t rounds = 7;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--quick") == 0) {
            records = 100'000;
            rounds = 3;
        } else {
            std::fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
            return 2;
        }
    }
#if defined(__GLIBC__)
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
#endif
    for (const std::size_t batch : {std::size_t{1}, std::size_t{32}}) {
        records -= records % batch;
        std::printf(
            "\n64-byte records, batches of %zu; ns a record%5sappend       read\n", batch, "");
        row("partition", rounds, [=] { return of_partition(batch, false); });
        row("partition, key of 13 bytes", rounds, [=] { return of_partition(batch, true); });
        row("mutex and vector", rounds, [=] { return of_container<std::vector<value>>(batch); });
        row("mutex and deque", rounds, [=] { return of_container<std::deque<value>>(batch); });
    }
    std::printf("\ncompaction, a whole pass; ns a record\n");
    for (const std::uint64_t keys : {1'000U, 100'000U}) {
        std::vector<double> took;
        for (std::size_t i = 0; i < rounds; ++i) took.push_back(of_compaction(keys));
        std::sort(took.begin(), took.end());
        std::printf("%-32s %10.1f\n", (std::to_string(keys) + " keys").c_str(), took[rounds / 2]);
    }
    return sink == 42 ? 1 : 0;
}
