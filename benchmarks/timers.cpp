// SPDX-License-Identifier: BSL-1.0
//
// What a deadline costs: railmq::deadline_index against the containers one would take otherwise.
//
//     timers [--quick] [--large] [--no-asio]
//
// One process, one thread. The contestants of a row take turns, round by round and in rotating
// order, so that a busy machine hurts all of them alike; a cell is the median of the rounds. Read
// the ratios rather than the nanoseconds.
//
// All contestants keep the same promise, deadlines in order and equal ones in the order they were
// armed, and all but `priority_queue` can cancel. There, as usual, a cancelled entry is marked and
// skipped when it comes to the top: cheap, but what is cancelled at random takes memory until then,
// without bound, so that row is no alternative, only a lower bound.

#include <railmq/core/deadline_index.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<boost/asio/steady_timer.hpp>)
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#define TIMERS_HAVE_ASIO 1
#else
#define TIMERS_HAVE_ASIO 0
#endif

namespace {

using railmq::duration;
using railmq::time_point;

struct entry { // what a queue keeps for a deadline
    std::uint64_t message;
    std::uint32_t kind;
    std::uint32_t attempt;
};

// A fixed sequence: every contestant gets the same input in every round.
class sequence {
public:
    explicit sequence(std::uint64_t seed)
        : state_{seed} {}

    std::uint64_t operator()() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

private:
    std::uint64_t state_;
};

constexpr std::int64_t start = 1'700'000'000'000'000'000; // no multiple of anything
constexpr std::int64_t tick = 1'000'000;                  // 1 ms
constexpr std::uint64_t ticks = 60'000;
constexpr std::int64_t timeout = 30'000'000'000; // 30 s

constexpr time_point at(std::int64_t ns) {
    return time_point{duration{ns}};
}

time_point random_deadline(sequence& next) {
    return at(start + static_cast<std::int64_t>(next() % ticks) * tick);
}

class stopwatch {
public:
    [[nodiscard]] double ns() const {
        return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - from_)
            .count();
    }

private:
    std::chrono::steady_clock::time_point from_{std::chrono::steady_clock::now()};
};

std::uint64_t sink = 0;

// --- the contestants -----------------------------------------------------------------------------

struct index_general {
    static constexpr const char* name = "deadline_index";
    railmq::deadline_index<entry> index;

    using handle = railmq::deadline_handle;
    handle arm(time_point t, entry e) { return index.arm(t, e); }
    void cancel(handle h) { index.cancel(h); }
    time_point next() { return index.next(); }

    template <class F>
    void expire(time_point now, F&& f) {
        while (const auto e = index.pop_due(now)) {
            f(*e);
        }
    }
};

struct index_lane : index_general {
    static constexpr const char* name = "deadline_index, lane";
    railmq::deadline_lane lane{index.open_lane()};

    handle arm(time_point t, entry e) { return index.arm_in_lane(lane, t, e); }
};

struct multimap {
    static constexpr const char* name = "std::multimap";
    std::multimap<time_point, entry> map;

    using handle = std::multimap<time_point, entry>::iterator;
    handle arm(time_point t, entry e) { return map.emplace(t, e); }
    void cancel(handle h) { map.erase(h); }
    time_point next() { return map.empty() ? railmq::never : map.begin()->first; }

    template <class F>
    void expire(time_point now, F&& f) {
        while (!map.empty() && map.begin()->first <= now) {
            const entry e = map.begin()->second;
            map.erase(map.begin());
            f(e);
        }
    }
};

struct priority_queue {
    static constexpr const char* name = "std::priority_queue";
    struct item {
        time_point deadline;
        std::uint64_t order;
        entry what;

        bool operator>(const item& o) const {
            return deadline > o.deadline || (deadline == o.deadline && order > o.order);
        }
    };
    std::priority_queue<item, std::vector<item>, std::greater<>> queue;
    std::vector<bool> cancelled; // by order; a real one would have to recycle
    std::uint64_t orders{0};

    using handle = std::uint64_t;

    handle arm(time_point t, entry e) {
        queue.push({t, orders, e});
        if (cancelled.size() == orders) {
            cancelled.resize(cancelled.empty() ? 4096 : 2 * cancelled.size());
        }
        return orders++;
    }

    void cancel(handle h) {
        cancelled[h] = true;
        while (!queue.empty() && cancelled[queue.top().order]) {
            queue.pop();
        }
    }

    time_point next() { return queue.empty() ? railmq::never : queue.top().deadline; }

    template <class F>
    void expire(time_point now, F&& f) {
        while (!queue.empty() && queue.top().deadline <= now) {
            const entry e = queue.top().what;
            queue.pop();
            f(e);
        }
    }
};

#if TIMERS_HAVE_ASIO
// A timer object per entry, a handler that runs for each cancel: the path a timer per message
// takes.
struct asio_timer {
    static constexpr const char* name = "asio::steady_timer";
    boost::asio::io_context context{1};
    std::vector<std::unique_ptr<boost::asio::steady_timer>> timers;
    std::vector<std::size_t> spare;
    std::int64_t began{std::chrono::steady_clock::now().time_since_epoch().count()};

    using handle = std::size_t;

    handle arm(time_point t, entry e) {
        std::size_t i = timers.size();
        if (spare.empty()) {
            timers.push_back(std::make_unique<boost::asio::steady_timer>(context));
        } else {
            i = spare.back();
            spare.pop_back();
        }
        const std::chrono::nanoseconds ns{began + (t.time_since_epoch().count() - start)};
        timers[i]->expires_at(std::chrono::steady_clock::time_point{ns + std::chrono::hours{1}});
        timers[i]->async_wait([e](const boost::system::error_code&) { sink += e.message; });
        return i;
    }

    void cancel(handle h) {
        timers[h]->cancel();
        spare.push_back(h);
        context.poll();
    }

    time_point next() { return railmq::never; }
};
#endif

// --- the workloads -------------------------------------------------------------------------------

/// `outstanding` deadlines at a constant timeout are armed; then the oldest is cancelled and a new
/// one armed, and the earliest deadline asked for, `pairs` times. Time moves on by a microsecond.
template <class Contestant>
double constant_timeout(std::size_t outstanding, std::size_t pairs) {
    Contestant c;
    std::vector<typename Contestant::handle> handles(outstanding);
    std::int64_t now = start;
    for (std::size_t i = 0; i != outstanding; ++i) {
        now += 1'000;
        handles[i] = c.arm(at(now + timeout), {i, 0, 1});
    }
    std::size_t oldest = 0;
    const stopwatch watch;
    for (std::size_t i = 0; i != pairs; ++i) {
        now += 1'000;
        c.cancel(handles[oldest]);
        handles[oldest] = c.arm(at(now + timeout), {i, 0, 1});
        oldest = oldest + 1 == outstanding ? 0 : oldest + 1;
        sink += static_cast<std::uint64_t>(c.next().time_since_epoch().count());
    }
    return watch.ns() / static_cast<double>(pairs);
}

/// As above, but deadlines are random and so is what is cancelled.
template <class Contestant>
double random_cancel(std::size_t outstanding, std::size_t pairs) {
    Contestant c;
    sequence random{42};
    std::vector<typename Contestant::handle> handles(outstanding);
    for (std::size_t i = 0; i != outstanding; ++i) {
        handles[i] = c.arm(random_deadline(random), {i, 0, 1});
    }
    const stopwatch watch;
    for (std::size_t i = 0; i != pairs; ++i) {
        auto& h = handles[static_cast<std::size_t>(random() % outstanding)];
        c.cancel(h);
        h = c.arm(random_deadline(random), {i, 0, 1});
        sink += static_cast<std::uint64_t>(c.next().time_since_epoch().count());
    }
    return watch.ns() / static_cast<double>(pairs);
}

/// All armed at random ticks, then time moves tick by tick and all fire.
template <class Contestant>
double arm_and_expire(std::size_t count, std::size_t) {
    Contestant c;
    sequence random{7};
    std::uint64_t fired = 0;
    std::uint64_t digest = 0;
    const stopwatch watch;
    for (std::size_t i = 0; i != count; ++i) {
        c.arm(random_deadline(random), {i, 0, 1});
    }
    for (std::uint64_t t = 0; t != ticks; ++t) {
        c.expire(at(start + static_cast<std::int64_t>(t) * tick), [&](const entry& e) {
            ++fired;
            digest = digest * 31 + e.message;
        });
        sink += static_cast<std::uint64_t>(c.next().time_since_epoch().count());
    }
    const double ns = watch.ns() / static_cast<double>(count);
    // All must have fired, and everybody in the same order.
    static std::map<std::size_t, std::uint64_t> digests;
    if (fired != count || digests.emplace(count, digest).first->second != digest) {
        std::printf("%s: wrong order or number\n", Contestant::name);
        std::exit(1);
    }
    return ns;
}

// --- the table -----------------------------------------------------------------------------------

struct contestant {
    const char* name;
    std::function<double(std::size_t, std::size_t)> run;
};

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

void row(
    const char* title,
    std::size_t rounds,
    std::size_t size,
    std::size_t pairs,
    const std::vector<contestant>& all) {
    std::vector<std::vector<double>> times(all.size());
    for (std::size_t r = 0; r != rounds; ++r) {
        for (std::size_t i = 0; i != all.size(); ++i) {
            const std::size_t who = (i + r) % all.size();
            times[who].push_back(all[who].run(size, pairs));
        }
    }
    double map_ns = 0;
    double queue_ns = 0;
    for (std::size_t i = 0; i != all.size(); ++i) {
        map_ns = all[i].name == multimap::name ? median(times[i]) : map_ns;
        queue_ns = all[i].name == priority_queue::name ? median(times[i]) : queue_ns;
    }
    std::printf("%s (%zu rounds)\n", title, rounds);
    for (std::size_t i = 0; i != all.size(); ++i) {
        const double ns = median(times[i]);
        const auto [low, high] = std::minmax_element(times[i].begin(), times[i].end());
        std::printf("  %-22s %9.1f ns  [%8.1f .. %8.1f]", all[i].name, ns, *low, *high);
        if (map_ns > 0) {
            std::printf("  multimap/this %6.2f", map_ns / ns);
        }
        if (queue_ns > 0) {
            std::printf("  priority_queue/this %6.2f", queue_ns / ns);
        }
        std::printf("\n");
    }
    std::fflush(stdout);
}

template <class Contestant>
contestant in_constant() {
    return {Contestant::name, constant_timeout<Contestant>};
}
template <class Contestant>
contestant in_random() {
    return {Contestant::name, random_cancel<Contestant>};
}
template <class Contestant>
contestant in_expire() {
    return {Contestant::name, arm_and_expire<Contestant>};
}

} // namespace

int main(int argc, char** argv) {
    bool quick = false;
    bool large = false;
    bool with_asio = TIMERS_HAVE_ASIO != 0;
    for (int i = 1; i != argc; ++i) {
        if (std::strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else if (std::strcmp(argv[i], "--large") == 0) {
            large = true;
        } else if (std::strcmp(argv[i], "--no-asio") == 0) {
            with_asio = false;
        } else {
            std::printf("usage: timers [--quick] [--large] [--no-asio]\n");
            return 2;
        }
    }
    const std::size_t million = quick ? 100'000 : 1'000'000;
    const std::size_t rounds = quick ? 3 : 7;
    const std::string suffix = std::to_string(million) + " outstanding";

    std::vector<contestant> constant{
        in_constant<index_lane>(),
        in_constant<index_general>(),
        in_constant<multimap>(),
        in_constant<priority_queue>()};
    std::vector<contestant> random{
        in_random<index_general>(), in_random<multimap>(), in_random<priority_queue>()};
    const std::vector<contestant> expire{
        in_expire<index_general>(), in_expire<multimap>(), in_expire<priority_queue>()};
#if TIMERS_HAVE_ASIO
    if (with_asio) {
        constant.push_back(in_constant<asio_timer>());
        random.push_back(in_random<asio_timer>());
    }
#endif
    std::printf("ns per operation: median [least .. most]; a ratio above 1 is in favour of the "
                "row\n");
    row(("constant timeout, arm + cancel, " + suffix).c_str(),
        rounds,
        million,
        2 * million,
        constant);
    row(("random deadline, arm + cancel, " + suffix).c_str(), rounds, million, million, random);
    row(("random deadline, arm + expire, " + std::to_string(million)).c_str(),
        rounds,
        million,
        0,
        expire);
    if (large) {
        row("random deadline, arm + expire, 10000000", quick ? 1 : 3, 10'000'000, 0, expire);
    }
    return sink == 42 ? 3 : 0; // the work can not be optimised away
}
