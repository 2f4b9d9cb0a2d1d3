// SPDX-License-Identifier: BSL-1.0
//
// What the machine does to the figures: where threads run, how far apart two cores are, who
// else uses the processors, how much memory the process occupies. Linux only; elsewhere the
// questions are answered with "unknown".
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace bench {

using steady = std::chrono::steady_clock;

[[nodiscard]] inline double nanoseconds_between(steady::time_point from, steady::time_point to) {
    return std::chrono::duration<double, std::nano>(to - from).count();
}

[[nodiscard]] inline double median_of(std::vector<double> values) {
    if (values.empty()) {
        return 0.0;
    }
    std::sort(values.begin(), values.end());
    const auto middle = values.size() / 2;
    return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// The processors this process may use, asked once, before anything is pinned.
[[nodiscard]] inline const std::vector<std::size_t>& allowed_processors() {
    static const std::vector<std::size_t> result = [] {
        std::vector<std::size_t> found;
        cpu_set_t set;
        CPU_ZERO(&set);
        if (sched_getaffinity(0, sizeof set, &set) == 0) {
            for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
                if (CPU_ISSET(cpu, &set)) {
                    found.push_back(cpu);
                }
            }
        }
        return found;
    }();
    return result;
}

/// While it lives, the calling thread stays on the n-th allowed processor.
class pinned {
public:
    explicit pinned(std::size_t index) {
        const auto& processors = allowed_processors();
        CPU_ZERO(&before_);
        if (processors.empty() ||
            pthread_getaffinity_np(pthread_self(), sizeof before_, &before_) != 0) {
            return;
        }
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(processors[index % processors.size()], &only);
        active_ = pthread_setaffinity_np(pthread_self(), sizeof only, &only) == 0;
    }

    ~pinned() {
        if (active_) {
            pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
        }
    }

    pinned(const pinned&) = delete;
    pinned& operator=(const pinned&) = delete;

private:
    cpu_set_t before_;
    bool active_ = false;
};

/// How long a cache line takes from one core to another and back, in nanoseconds: the median of
/// five short runs. Nothing where there is only one processor.
[[nodiscard]] inline std::optional<double> core_round_trip() {
    if (allowed_processors().size() < 2) {
        return std::nullopt;
    }
    constexpr std::uint32_t trips = 2000;
    constexpr std::size_t runs = 5;
    struct alignas(128) {
        std::atomic<std::uint32_t> ball{0};
    } line;

    std::thread other{[&line] {
        const pinned here{1};
        for (std::uint32_t expected = 1; expected < 2 * trips * runs; expected += 2) {
            while (line.ball.load(std::memory_order_acquire) != expected) {
            }
            line.ball.store(expected + 1, std::memory_order_release);
        }
    }};

    std::vector<double> measured;
    {
        const pinned here{0};
        std::uint32_t next = 1;
        for (std::size_t run = 0; run < runs; ++run) {
            const auto begin = steady::now();
            for (std::uint32_t trip = 0; trip < trips; ++trip, next += 2) {
                line.ball.store(next, std::memory_order_release);
                while (line.ball.load(std::memory_order_acquire) != next + 1) {
                }
            }
            measured.push_back(nanoseconds_between(begin, steady::now()) / trips);
        }
    }
    other.join();
    return median_of(measured);
}

/// Which share of all processors went to others (steal time included) since it was built.
class foreign_share_meter {
public:
    foreign_share_meter() { reset(); }

    void reset() {
        busy_ = machine_busy_seconds();
        own_ = own_seconds();
        begin_ = steady::now();
    }

    /// Between 0 and 1; nothing where the system does not tell. The system counts in steps of
    /// 10 ms, so over 100 ms this is right to a few hundredths.
    [[nodiscard]] std::optional<double> share() const {
        const auto busy = machine_busy_seconds();
        const auto elapsed = nanoseconds_between(begin_, steady::now()) * 1e-9;
        if (!busy || !busy_ || elapsed <= 0) {
            return std::nullopt;
        }
        const auto processors = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
        const auto foreign = (*busy - *busy_) - (own_seconds() - own_);
        return std::clamp(foreign / (elapsed * processors), 0.0, 1.0);
    }

private:
    static std::optional<double> machine_busy_seconds() {
        std::FILE* file = std::fopen("/proc/stat", "r");
        if (file == nullptr) {
            return std::nullopt;
        }
        // user nice system idle iowait irq softirq steal
        std::array<unsigned long long, 8> ticks{};
        const int read = std::fscanf(
            file,
            "cpu %llu %llu %llu %llu %llu %llu %llu %llu",
            &ticks[0],
            &ticks[1],
            &ticks[2],
            &ticks[3],
            &ticks[4],
            &ticks[5],
            &ticks[6],
            &ticks[7]);
        std::fclose(file);
        if (read != 8) {
            return std::nullopt;
        }
        const auto busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
        return static_cast<double>(busy) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }

    /// This process and the children it has waited for.
    static double own_seconds() {
        timespec self{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &self);
        rusage children{};
        getrusage(RUSAGE_CHILDREN, &children);
        const auto seconds = [](auto whole, auto part, double unit) {
            return static_cast<double>(whole) + static_cast<double>(part) * unit;
        };
        return seconds(self.tv_sec, self.tv_nsec, 1e-9) +
               seconds(children.ru_utime.tv_sec, children.ru_utime.tv_usec, 1e-6) +
               seconds(children.ru_stime.tv_sec, children.ru_stime.tv_usec, 1e-6);
    }

    std::optional<double> busy_;
    double own_ = 0;
    steady::time_point begin_{};
};

/// Resident memory of this process in bytes; 0 where the system does not tell.
[[nodiscard]] inline std::size_t resident_bytes() {
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr) {
        return 0;
    }
    unsigned long long size = 0;
    unsigned long long resident = 0;
    const int read = std::fscanf(file, "%llu %llu", &size, &resident);
    std::fclose(file);
    return read == 2 ? resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

} // namespace bench
