// SPDX-License-Identifier: BSL-1.0
//
// How long does a message take when the queue is empty? There and back over two queues, and one
// way at a steady pace that leaves the consumer waiting in between. RailMQ acknowledges every
// message before it goes on.
#include "support/hand_off.hpp"
#include "support/harness.hpp"
#include "support/machine.hpp"
#include "support/payload.hpp"
#include "support/peers.hpp"
#include "support/subject.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace bench;

constexpr std::size_t warm_up = 200;
constexpr double microsecond = 1e3;

/// A peer that needs longer than this many microseconds was asleep. One that still spins when the
/// next message comes is no measure for waking up.
constexpr double parked = 3;

double percentile(std::vector<double>& values, double share) {
    const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<std::size_t>(at)];
}

/// {p50, p99} in microseconds.
std::vector<double> summary(std::vector<double> nanoseconds) {
    return {
        percentile(nanoseconds, 0.50) / microsecond, percentile(nanoseconds, 0.99) / microsecond};
}

template <class Contestant>
std::vector<double> ping_pong(std::uint64_t trips) {
    Contestant there{outstanding};
    Contestant back{outstanding};
    const auto total = trips + warm_up;

    std::thread other{[&] {
        const pinned here{1};
        typename Contestant::consumer requests{there};
        typename Contestant::producer replies{back};
        for (std::uint64_t n = 0; n < total; ++n) {
            record request;
            requests.receive([&](const record& value) { request = value; });
            replies.send(request);
        }
    }};

    std::vector<double> measured;
    measured.reserve(trips);
    {
        const pinned here{0};
        typename Contestant::producer requests{there};
        typename Contestant::consumer replies{back};
        auto before = steady::now();
        for (std::uint64_t n = 0; n < total; ++n) {
            requests.send(record{n});
            replies.receive([&](const record& value) {
                if (value.sequence() != n) {
                    throw std::runtime_error{"a wrong reply"};
                }
            });
            const auto now = steady::now();
            if (n >= warm_up) {
                measured.push_back(nanoseconds_between(before, now));
            }
            before = now;
        }
    }
    other.join();
    return summary(std::move(measured));
}

/// One message every `interval`; the time from just before send until the consumer sees it.
template <class Contestant>
std::vector<double> one_way(std::chrono::nanoseconds interval, std::uint64_t messages) {
    Contestant queue{outstanding};
    const auto total = messages + warm_up;
    const auto ticks = [] { return steady::now().time_since_epoch().count(); };

    std::vector<double> measured;
    measured.reserve(messages);
    std::atomic<bool> ready{false};
    std::thread receiver{[&] {
        const pinned here{1};
        typename Contestant::consumer consumer{queue};
        ready.store(true);
        for (std::uint64_t n = 0; n < total; ++n) {
            consumer.receive([&](const record& value) {
                const auto now = ticks();
                if (n >= warm_up) {
                    measured.push_back(
                        static_cast<double>(now) - static_cast<double>(value.sequence()));
                }
            });
        }
    }};
    {
        const pinned here{0};
        typename Contestant::producer producer{queue};
        while (!ready.load()) {
            std::this_thread::yield();
        }
        auto due = steady::now();
        for (std::uint64_t n = 0; n < total; ++n) {
            due += interval;
            while (steady::now() < due) {
            }
            const auto now = static_cast<std::uint64_t>(ticks());
            producer.send(record{now});
        }
    }
    receiver.join();
    return summary(std::move(measured));
}

using expectations = std::vector<expectation>;

/// The rows of a table; `measure` is called with a type tag and the number of messages.
template <class Measure>
void add_rows(table& rows, Measure measure, const expectations& expected) {
    const auto add = [&]<class Contestant>(
                         std::type_identity<Contestant> tag,
                         const std::string& name,
                         const expectations& wanted = {}) {
        rows.add(
            name, [=](std::uint64_t messages) { return measure(tag, messages); }, wanted);
    };
    add(std::type_identity<mutex_deque<record_payload>>{}, peer::mutex_deque);
#if RAILMQ_HAVE_MOODYCAMEL
    add(std::type_identity<moodycamel_blocking_queue<record_payload>>{}, peer::moodycamel_blocking);
#endif
#if RAILMQ_HAVE_TBB
    add(std::type_identity<tbb_queue<record_payload>>{}, peer::tbb);
#endif
    add(std::type_identity<railmq_queue<record_payload>>{}, peer::railmq, expected);
}

table round_trips(bool quick) {
    table rows{
        .id = "P6",
        .title = "there and back between two threads",
        .columns = {"p50 us", "p99 us"},
        .references = {peer::mutex_deque, peer::moodycamel_blocking},
        .messages = quick ? 1500U : 5000U,
    };
    add_rows(
        rows,
        []<class Contestant>(std::type_identity<Contestant>, std::uint64_t messages) {
            return ping_pong<Contestant>(messages);
        },
        {times_as_fast(peer::mutex_deque, 5, 10),
         times_as_fast(peer::mutex_deque, 5, 10).in_column(1),
         costs_at_most(peer::moodycamel_blocking, 3, 1.5)});
    return rows;
}

table paced(bool quick, std::chrono::microseconds interval, std::uint64_t messages) {
    const auto every = std::to_string(interval.count());
    table rows{
        .id = "P6." + every + "us",
        .title = "one way, one message every " + every + " us",
        .columns = {"p50 us", "p99 us"},
        .references = {peer::mutex_deque, peer::moodycamel_blocking},
        .messages = quick ? messages / 4 : messages,
    };
    add_rows(
        rows,
        [interval]<class Contestant>(std::type_identity<Contestant>, std::uint64_t count) {
            return one_way<Contestant>(interval, count);
        },
        {times_as_fast(peer::mutex_deque, 3, 8).if_reference_above(parked),
         times_as_fast(peer::moodycamel_blocking, 3, 8).if_reference_above(parked),
         times_as_fast(peer::tbb, 3, 8).if_reference_above(parked)});
    return rows;
}

} // namespace

int main(int argc, char** argv) {
    bench::harness all{"latency", bench::parse_arguments(argc, argv)};
    all.add(round_trips(all.quick()));
    all.add(paced(all.quick(), std::chrono::microseconds{10}, 6000));
    all.add(paced(all.quick(), std::chrono::microseconds{100}, 1200));
    return all.run();
}
