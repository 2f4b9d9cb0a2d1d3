// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/deadline_index.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::deadline_handle;
using railmq::deadline_index;
using railmq::deadline_lane;
using railmq::duration;
using railmq::never;
using railmq::saturating_add;
using railmq::time_point;

namespace {

using timer_index = deadline_index<int>;

constexpr time_point start{}; // an arbitrary moment

constexpr time_point at(std::int64_t ns) {
    return time_point{duration{ns}};
}

/// The items that are due, one after the other.
template <class Item>
std::vector<Item> take_due(deadline_index<Item>& timers, time_point now) {
    std::vector<Item> taken;
    while (const auto item = timers.pop_due(now)) {
        taken.push_back(*item);
    }
    return taken;
}

std::vector<int> numbers(int from, int to) {
    std::vector<int> all(static_cast<std::size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

/// What the index must do, done slowly: a multimap keeps equal keys in the order of insertion.
class reference {
public:
    using iterator = std::multimap<time_point, int>::iterator;

    iterator arm(time_point deadline, int item) { return map_.emplace(deadline, item); }
    void cancel(iterator entry) { map_.erase(entry); }
    [[nodiscard]] time_point next() const { return map_.empty() ? never : map_.begin()->first; }
    [[nodiscard]] std::size_t size() const { return map_.size(); }

    std::vector<int> take_due(time_point now) {
        std::vector<int> taken;
        while (!map_.empty() && map_.begin()->first <= now) {
            taken.push_back(map_.begin()->second);
            map_.erase(map_.begin());
        }
        return taken;
    }

private:
    std::multimap<time_point, int> map_;
};

static_assert(sizeof(deadline_handle) == 8);
static_assert(std::is_trivially_copyable_v<deadline_handle>);
static_assert(std::is_nothrow_default_constructible_v<timer_index>);
static_assert(std::is_nothrow_move_constructible_v<timer_index>);
static_assert(std::is_nothrow_move_assignable_v<timer_index>);
static_assert(!std::is_copy_constructible_v<timer_index>);
static_assert(noexcept(std::declval<timer_index&>().cancel({})));
static_assert(noexcept(std::declval<const timer_index&>().next()));
static_assert(noexcept(std::declval<timer_index&>().pop_due(start)));

} // namespace

TEST_CASE("deadline_index: an empty one") {
    timer_index timers;
    CHECK(timers.empty());
    CHECK(timers.size() == 0);
    CHECK(timers.next() == never);
    CHECK_FALSE(timers.pop_due(never));
    CHECK(timers.expire(never, [](int, time_point) { FAIL(); }) == 0);
    CHECK_FALSE(timers.cancel({}));
    CHECK_FALSE(timers.armed({}));
    timers.clear();
    CHECK(timers.next() == never);
}

TEST_CASE("deadline_index: fires at the deadline, not before") {
    timer_index timers;
    const bool in_lane = GENERATE(false, true);
    const auto lane = in_lane ? timers.open_lane() : deadline_lane{};
    const auto h = timers.arm_in_lane(lane, start + 10ms, 7);
    CHECK(h);
    CHECK(timers.armed(h));
    CHECK(timers.deadline(h) == start + 10ms);
    CHECK(timers.size() == 1);
    CHECK(timers.next() == start + 10ms);
    CHECK_FALSE(timers.pop_due(start + 10ms - 1ns));
    CHECK(timers.pop_due(start + 10ms) == 7);
    CHECK(timers.empty());
    CHECK(timers.next() == never);
    CHECK_FALSE(timers.armed(h));
    CHECK(timers.deadline(h) == std::nullopt);
}

TEST_CASE("deadline_index: equal deadlines fire in order of creation, over all lanes") {
    timer_index timers;
    const std::array lanes{timers.open_lane(), deadline_lane{}, timers.open_lane()};
    for (int i = 0; i < 300; ++i) {
        timers.arm_in_lane(lanes[static_cast<std::size_t>(i * 7 % 3)], start + 5s, i);
    }
    CHECK(take_due(timers, start + 5s) == numbers(0, 300));
}

TEST_CASE("deadline_index: a tie between lanes goes on after the first has lost its head") {
    timer_index timers;
    const auto a = timers.open_lane();
    const auto b = timers.open_lane();
    timers.arm_in_lane(a, start + 1s, 0);
    timers.arm_in_lane(b, start + 1s, 1);
    timers.arm_in_lane(a, start + 1s, 2);
    timers.arm(start + 1s, 3);
    timers.arm_in_lane(b, start + 1s, 4);
    CHECK(take_due(timers, start + 1s) == numbers(0, 5));
}

TEST_CASE("deadline_index: earlier deadlines come first, wherever they are") {
    timer_index timers;
    const auto slow = timers.open_lane();
    const auto quick = timers.open_lane();
    for (int i = 0; i < 100; ++i) {
        timers.arm_in_lane(slow, start + 1s + i * 10ms, 3 * i + 2);
        timers.arm_in_lane(quick, start + 1s + i * 10ms - 6ms, 3 * i);
        timers.arm(start + 1s + i * 10ms - 3ms, 3 * i + 1);
    }
    CHECK(timers.next() == start + 994ms);
    CHECK(take_due(timers, start + 10s) == numbers(0, 300));
}

TEST_CASE("deadline_index: next() is exact after every cancellation") {
    timer_index timers;
    const auto lane = timers.open_lane();
    std::vector<deadline_handle> handles;
    for (int i = 0; i < 200; ++i) {
        handles.push_back(
            i % 2 == 0 ? timers.arm(start + i * 1ms, i)
                       : timers.arm_in_lane(lane, start + i * 1ms, i));
    }
    SECTION("of the first") {
        for (int i = 0; i < 200; ++i) {
            CHECK(timers.next() == start + i * 1ms);
            CHECK(timers.cancel(handles[static_cast<std::size_t>(i)]));
        }
    }
    SECTION("of the last") {
        for (int i = 199; i > 0; --i) {
            CHECK(timers.cancel(handles[static_cast<std::size_t>(i)]));
            CHECK(timers.next() == start);
        }
        CHECK(timers.cancel(handles[0]));
    }
    SECTION("of all behind the first, then of the first") {
        for (std::size_t i = 1; i < 199; ++i) {
            CHECK(timers.cancel(handles[i]));
        }
        CHECK(timers.next() == start);
        CHECK(timers.cancel(handles[0]));
        CHECK(timers.next() == start + 199ms);
        CHECK(timers.cancel(handles[199]));
    }
    CHECK(timers.next() == never);
    CHECK(timers.empty());
}

TEST_CASE("deadline_index: a handle is good for one entry only") {
    timer_index timers;
    const bool in_lane = GENERATE(false, true);
    const auto lane = in_lane ? timers.open_lane() : deadline_lane{};
    const auto cancelled = timers.arm_in_lane(lane, start + 1s, 1);
    CHECK(timers.cancel(cancelled));
    CHECK_FALSE(timers.cancel(cancelled));
    const auto fired = timers.arm_in_lane(lane, start + 1s, 2);
    CHECK(timers.pop_due(start + 1s) == 2);
    CHECK_FALSE(timers.cancel(fired));
    CHECK_FALSE(timers.rearm(fired, start + 2s));

    // Their memory is used again and again.
    std::vector<deadline_handle> live;
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 100; ++i) {
            live.push_back(timers.arm_in_lane(lane, start + 1s, i));
            CHECK_FALSE(live.back() == cancelled);
            CHECK_FALSE(live.back() == fired);
        }
        CHECK_FALSE(timers.cancel(cancelled));
        CHECK_FALSE(timers.cancel(fired));
        CHECK_FALSE(timers.armed(cancelled));
        CHECK(timers.size() == 100);
        if (round % 2 == 0) {
            for (const auto h : live) {
                CHECK(timers.cancel(h));
            }
        } else {
            CHECK(take_due(timers, start + 1s).size() == 100);
        }
        for (const auto h : live) {
            CHECK_FALSE(timers.cancel(h));
        }
        live.clear();
    }
    CHECK(timers.empty());
}

TEST_CASE("deadline_index: handles of a crowd stay void when its memory went and came again") {
    timer_index timers;
    const bool in_lane = GENERATE(false, true);
    const auto lane = in_lane ? timers.open_lane() : deadline_lane{};
    std::vector<deadline_handle> first;
    std::vector<deadline_handle> second;
    for (int i = 0; i < 3'000; ++i) {
        first.push_back(timers.arm_in_lane(lane, start + 1s, i));
    }
    SECTION("fired") {
        CHECK(take_due(timers, start + 1s) == numbers(0, 3'000));
    }
    SECTION("cancelled") {
        for (const auto h : first) {
            CHECK(timers.cancel(h));
        }
    }
    SECTION("cleared") {
        timers.clear();
        CHECK(timers.empty());
        CHECK(timers.next() == never);
    }
    for (int i = 0; i < 3'000; ++i) {
        second.push_back(timers.arm_in_lane(lane, start + 2s, i));
    }
    CHECK(std::none_of(first.begin(), first.end(), [&](auto h) { return timers.cancel(h); }));
    CHECK(timers.size() == 3'000);
    CHECK(std::all_of(second.begin(), second.end(), [&](auto h) { return timers.armed(h); }));
    CHECK(take_due(timers, start + 2s) == numbers(0, 3'000));
}

TEST_CASE(
    "deadline_index: a timer added with a deadline <= now fires at the next advance [Z07]",
    "[Z07]") {
    timer_index timers;
    const time_point now = start + 1h;
    CHECK(take_due(timers, now).empty());
    timers.arm(now, 1);
    timers.arm(now - 1ns, 0);
    timers.arm(now + 1ns, 2);
    CHECK(timers.next() == now - 1ns);
    CHECK(take_due(timers, now) == numbers(0, 2));
    CHECK(take_due(timers, now + 1ns) == numbers(2, 3));
}

TEST_CASE("deadline_index: five negative deadlines all fire [Z07]", "[Z07]") {
    timer_index timers;
    const bool in_lane = GENERATE(false, true);
    const auto lane = in_lane ? timers.open_lane() : deadline_lane{};
    for (int i = 0; i < 5; ++i) {
        timers.arm_in_lane(lane, at(-1 - i), i);
    }
    CHECK(timers.next() == at(-5));
    CHECK(take_due(timers, at(0)) == std::vector{4, 3, 2, 1, 0});

    timers.arm(time_point::min(), 5);
    timers.arm(at(-1), 6);
    CHECK(timers.next() == time_point::min());
    CHECK(take_due(timers, time_point::min()) == std::vector{5});
    CHECK(take_due(timers, at(-1)) == std::vector{6});
}

TEST_CASE("deadline_index: 585 tasks in random order fire exactly once each [Z07]", "[Z07]") {
    // 585 = 1 + 8 + 64 + 512: every combination of a few digits, near and far.
    std::vector<std::int64_t> deadlines;
    for (const std::int64_t step : {1, 1'000, 1'000'000}) {
        for (std::int64_t n = 0; n < 195; ++n) {
            deadlines.push_back(n * step);
        }
    }
    REQUIRE(deadlines.size() == 585);
    std::mt19937_64 random{railmq::test::seed(1)};
    std::shuffle(deadlines.begin(), deadlines.end(), random);

    timer_index timers;
    reference expected;
    for (std::size_t i = 0; i < deadlines.size(); ++i) {
        timers.arm(at(deadlines[i]), static_cast<int>(i));
        expected.arm(at(deadlines[i]), static_cast<int>(i));
    }
    std::vector<int> fired(deadlines.size(), 0);
    for (std::int64_t now = 0; !timers.empty(); now += 977) {
        CHECK(timers.next() == expected.next());
        const auto taken = take_due(timers, at(now));
        CHECK(taken == expected.take_due(at(now)));
        for (const int i : taken) {
            CHECK(deadlines[static_cast<std::size_t>(i)] <= now);
            ++fired[static_cast<std::size_t>(i)];
        }
    }
    CHECK(std::count(fired.begin(), fired.end(), 1) == 585);
}

TEST_CASE(
    "deadline_index: more than a turn of any wheel at once fires everything due [Z08]", "[Z08]") {
    timer_index timers;
    reference expected;
    std::mt19937_64 random{railmq::test::seed(2)};
    // Deadlines of every magnitude, so that whatever the wheels are, most have turned many times.
    for (int i = 0; i < 3'000; ++i) {
        const auto delay = static_cast<std::int64_t>(random() >> (2 + i % 60));
        timers.arm(at(delay), i);
        expected.arm(at(delay), i);
    }
    SECTION("in one go") {
        const auto all = take_due(timers, time_point::max() - 1ns);
        CHECK(all.size() == 3'000);
        CHECK(all == expected.take_due(time_point::max() - 1ns));
    }
    SECTION("in jumps that grow a thousandfold") {
        for (std::int64_t now = 1; now < std::int64_t{1} << 53; now *= 1'000) {
            CHECK(take_due(timers, at(now)) == expected.take_due(at(now)));
            CHECK(timers.next() == expected.next());
        }
    }
    SECTION("over what was added after a look at a far deadline") {
        for (int i = 3'000; i < 4'000; ++i) {
            REQUIRE(timers.next() == expected.next());
            const auto delay = static_cast<std::int64_t>(random() >> (1 + i % 60));
            timers.arm(at(delay), i);
            expected.arm(at(delay), i);
            const auto now = saturating_add(timers.next(), duration{i % 3 - 1});
            REQUIRE(take_due(timers, now) == expected.take_due(now));
        }
    }
}

TEST_CASE("deadline_index: updating a deadline removes the old one [Z08]", "[Z08]") {
    timer_index timers;
    const bool in_lane = GENERATE(false, true);
    const auto lane = in_lane ? timers.open_lane() : deadline_lane{};
    auto h = timers.arm_in_lane(lane, start + 1s, 1);
    timers.arm(start + 20s, 2);
    SECTION("to later") {
        const auto moved = timers.rearm(h, start + 10s, lane);
        CHECK(moved);
        CHECK(timers.next() == start + 10s);
        CHECK(timers.size() == 2);
        CHECK_FALSE(timers.armed(h));
        CHECK(take_due(timers, start + 10s - 1ns).empty());
        CHECK(timers.deadline(moved) == start + 10s);
        CHECK(take_due(timers, start + 1h) == numbers(1, 3));
    }
    SECTION("to earlier") {
        const auto moved = timers.rearm(h, start + 1ms, lane);
        CHECK(timers.next() == start + 1ms);
        CHECK(timers.size() == 2);
        CHECK(timers.cancel(moved));
        CHECK(timers.next() == start + 20s);
    }
    SECTION("to the same: it counts as created now") {
        timers.arm(start + 1s, 3);
        timers.rearm(h, start + 1s, lane);
        CHECK(take_due(timers, start + 1s) == std::vector{3, 1});
    }
    SECTION("a thousand times, by hand") {
        for (int i = 0; i < 1'000; ++i) {
            const auto later = timers.arm_in_lane(lane, start + 1s + i * 1ms, 1);
            CHECK(timers.cancel(h));
            h = later;
            CHECK(timers.next() == start + 1s + i * 1ms);
            CHECK(timers.size() == 2);
        }
        CHECK(take_due(timers, start + 1h) == numbers(1, 3));
    }
}

TEST_CASE("deadline_index: no long delay fires early [BX13]", "[BX13]") {
    constexpr duration years_100 = 24h * 36'525;
    const std::vector<duration> delays{
        std::chrono::milliseconds{2'147'483'647},
        std::chrono::milliseconds{2'147'483'648},
        std::chrono::milliseconds{4'294'967'301},
        years_100,
        duration::max()};
    const time_point now =
        GENERATE(at(0), at(-5'000'000'000), at(1'700'000'000'000'000'001), time_point::min());

    SECTION("one alone") {
        for (const duration delay : delays) {
            timer_index timers;
            timers.arm(now, 0);
            const time_point deadline = saturating_add(now, delay);
            timers.arm(deadline, 1);
            CHECK(take_due(timers, now) == std::vector{0});
            CHECK(timers.next() == deadline);
            // What a delay cut down to 32 bits, or counted in a wheel of any width, would be.
            for (int bits = 0; bits < 63; ++bits) {
                const auto moment = saturating_add(now, duration{std::int64_t{1} << bits});
                if (moment < deadline) {
                    REQUIRE_FALSE(timers.pop_due(moment));
                }
            }
            CHECK_FALSE(timers.pop_due(deadline - 1ns));
            CHECK(timers.pop_due(deadline) == 1);
        }
    }
    SECTION("all together, and a short one in between") {
        timer_index timers;
        for (std::size_t i = 0; i < delays.size(); ++i) {
            timers.arm(saturating_add(now, delays[i]), static_cast<int>(i));
        }
        int fired = 0;
        for (const duration delay : delays) {
            const time_point deadline = saturating_add(now, delay);
            if (fired != 0 &&
                saturating_add(now, delays[static_cast<std::size_t>(fired - 1)]) == deadline) {
                continue; // both are the end of time
            }
            timers.arm(deadline - 1ns, 100);
            CHECK(timers.next() == deadline - 1ns);
            CHECK(take_due(timers, deadline - 1ns) == std::vector{100});
            const auto taken = take_due(timers, deadline);
            REQUIRE_FALSE(taken.empty());
            CHECK(taken.front() == fired);
            fired += static_cast<int>(taken.size());
        }
        CHECK(fired == static_cast<int>(delays.size()));
    }
}

TEST_CASE("deadline_index: an entry for never is armed, and fires only at the end of time") {
    timer_index timers;
    const auto lane = timers.open_lane();
    const auto a = timers.arm(never, 0);
    const auto b = timers.arm_in_lane(lane, never, 1);
    CHECK(timers.next() == never);
    CHECK(timers.size() == 2);
    CHECK(timers.armed(a));
    CHECK(timers.armed(b));
    CHECK_FALSE(timers.pop_due(never - 1ns));
    SECTION("fires") {
        CHECK(take_due(timers, never) == numbers(0, 2));
    }
    SECTION("in the other order") {
        timers.cancel(a);
        timers.arm(never, 2);
        CHECK(take_due(timers, never) == numbers(1, 3));
    }
    SECTION("cancelled") {
        CHECK(timers.cancel(a));
        CHECK(timers.cancel(b));
        CHECK_FALSE(timers.pop_due(never));
    }
    CHECK(timers.empty());
}

TEST_CASE("deadline_index: the clock may go back") {
    timer_index timers;
    timers.arm(start + 10s, 1);
    CHECK_FALSE(timers.pop_due(start + 9s));
    timers.arm(start + 5s, 0);
    CHECK_FALSE(timers.pop_due(start + 1s));
    CHECK(timers.next() == start + 5s);
    CHECK(take_due(timers, start + 10s) == numbers(0, 2));
}

TEST_CASE("deadline_index: expire passes items and deadlines, in order") {
    timer_index timers;
    timers.arm(start + 2s, 2);
    timers.arm(start + 1s, 1);
    timers.arm(start + 3s, 3);
    std::vector<std::pair<int, time_point>> seen;
    const auto see = [&](int item, time_point deadline) { seen.emplace_back(item, deadline); };
    CHECK(timers.expire(start + 2s, see) == 2);
    CHECK(seen == std::vector<std::pair<int, time_point>>{{1, start + 1s}, {2, start + 2s}});
    CHECK(timers.size() == 1);
}

TEST_CASE("deadline_index: expire calls a function that arms and cancels") {
    timer_index timers;
    const auto lane = timers.open_lane();
    std::vector<int> seen;

    SECTION("what it arms and is due fires in the same call, in its place") {
        timers.arm(start + 1s, 1);
        timers.arm(start + 3s, 4);
        const auto fired = timers.expire(start + 3s, [&](int item, time_point) {
            seen.push_back(item);
            if (item == 1) {
                timers.arm(start + 3s, 5);               // after 4, which is older
                timers.arm_in_lane(lane, start + 2s, 3); // before 4
                timers.arm(start, 2);                    // before everything
                timers.arm(start + 3s + 1ns, 6);         // not due
                timers.arm_in_lane(lane, start + 4s, 7); // not due
            }
        });
        CHECK(seen == numbers(1, 6));
        CHECK(fired == 5);
        CHECK(take_due(timers, start + 4s) == numbers(6, 8));
    }
    SECTION("what it cancels does not fire") {
        std::vector<deadline_handle> handles;
        for (int i = 0; i < 100; ++i) {
            handles.push_back(
                i % 3 == 0 ? timers.arm_in_lane(lane, start + 1s, i) : timers.arm(start + 1s, i));
        }
        timers.expire(start + 1s, [&](int item, time_point) {
            seen.push_back(item);
            CHECK_FALSE(timers.cancel(handles[static_cast<std::size_t>(item)]));
            if (item % 2 == 0) {
                CHECK(timers.cancel(handles[static_cast<std::size_t>(item + 1)]));
            }
        });
        CHECK(seen.size() == 50);
        CHECK(std::all_of(seen.begin(), seen.end(), [](int i) { return i % 2 == 0; }));
    }
    SECTION("each arms the next one, a thousand times") {
        timers.arm_in_lane(lane, start, 0);
        timers.expire(start + 999ns, [&](int item, time_point deadline) {
            seen.push_back(item);
            timers.arm_in_lane(lane, deadline + 1ns, item + 1);
        });
        CHECK(seen == numbers(0, 1'000));
        CHECK(timers.next() == start + 1us);
    }
    SECTION("and clears") {
        for (int i = 0; i < 100; ++i) {
            timers.arm(start + i * 1ms, i);
        }
        CHECK(timers.expire(start + 1s, [&](int item, time_point) {
            if (item == 9) {
                timers.clear();
            }
        }) == 10);
        CHECK(timers.empty());
    }
    SECTION("and expires") {
        for (int i = 0; i < 10; ++i) {
            timers.arm(start + i * 1ms, i);
        }
        CHECK(timers.expire(start + 4ms, [&](int item, time_point) {
            seen.push_back(item);
            if (item == 2) {
                timers.expire(start + 7ms, [&](int inner, time_point) { seen.push_back(inner); });
            }
        }) == 3);
        CHECK(seen == numbers(0, 8));
        CHECK(timers.size() == 2);
    }
    SECTION("and throws: its entry is gone, the others stay") {
        for (int i = 0; i < 10; ++i) {
            timers.arm(start, i);
        }
        const auto fail_at_4 = [](int item, time_point) {
            if (item == 4) {
                throw std::runtime_error{"4"};
            }
        };
        CHECK_THROWS_AS(timers.expire(start, fail_at_4), std::runtime_error);
        CHECK(take_due(timers, start) == numbers(5, 10));
    }
}

TEST_CASE("deadline_index: a lane whose deadlines decrease is slower, not wrong") {
    timer_index timers;
    reference expected;
    const auto lane = timers.open_lane();
    std::mt19937_64 random{railmq::test::seed(3)};
    for (int i = 0; i < 2'000; ++i) {
        const auto deadline = at(static_cast<std::int64_t>(random() % 500));
        timers.arm_in_lane(lane, deadline, i);
        expected.arm(deadline, i);
        REQUIRE(timers.next() == expected.next());
        if (i % 5 == 0) {
            const auto now = at(static_cast<std::int64_t>(random() % 300));
            REQUIRE(take_due(timers, now) == expected.take_due(now));
        }
    }
    CHECK(take_due(timers, at(500)) == expected.take_due(at(500)));
}

TEST_CASE("deadline_index: an empty lane forgets what it promised") {
    timer_index timers;
    const auto lane = timers.open_lane();
    timers.cancel(timers.arm_in_lane(lane, start + 1h, 0));
    timers.arm_in_lane(lane, start + 1s, 1);
    timers.arm_in_lane(lane, start + 2s, 2);
    CHECK(take_due(timers, start + 2s) == numbers(1, 3));
}

TEST_CASE("deadline_index: lanes are closed with entries in them, and opened again") {
    timer_index timers;
    const auto a = timers.open_lane();
    const auto b = timers.open_lane();
    CHECK_FALSE(a == b);
    CHECK_FALSE(a == deadline_lane{});
    const auto kept = timers.arm_in_lane(a, start + 10s, 3);
    timers.close_lane(a);
    const auto again = timers.open_lane();
    CHECK(again == a);
    timers.arm_in_lane(again, start + 1s, 0); // before what is still in it
    timers.arm_in_lane(again, start + 2s, 1);
    timers.arm_in_lane(b, start + 3s, 2);
    CHECK(timers.armed(kept));
    CHECK(take_due(timers, start + 10s) == numbers(0, 4));
    timers.close_lane(b);
    timers.close_lane(again);
    CHECK(timers.open_lane() == a);
    CHECK(timers.open_lane() == b);
    CHECK(timers.empty());
}

TEST_CASE("deadline_index: a lane is opened while others are at work") {
    timer_index timers;
    const auto first = timers.open_lane();
    std::vector<deadline_handle> handles;
    for (int i = 0; i < 100; ++i) {
        handles.push_back(timers.arm_in_lane(first, start + i * 1ms, i));
    }
    for (int i = 0; i < 99; ++i) {
        CHECK(timers.cancel(handles[static_cast<std::size_t>(i)]));
        const auto another = timers.open_lane();
        REQUIRE(timers.next() == start + (i + 1) * 1ms);
        timers.arm_in_lane(another, start + 1h, 1'000 + i);
    }
    CHECK(timers.pop_due(start + 1s) == 99);
    CHECK(take_due(timers, start + 1h) == numbers(1'000, 1'099));
}

TEST_CASE("deadline_index: many lanes") {
    timer_index timers;
    reference expected;
    std::mt19937_64 random{railmq::test::seed(4)};
    std::vector<deadline_lane> lanes;
    std::vector<std::pair<deadline_handle, reference::iterator>> armed;
    for (int i = 0; i < 5'000; ++i) {
        if (i % 40 == 0) {
            lanes.push_back(timers.open_lane());
        }
        const auto which = static_cast<std::size_t>(random() % lanes.size());
        const auto deadline = at(i / 4 * 10 + static_cast<std::int64_t>(which) * 50);
        armed.emplace_back(
            timers.arm_in_lane(lanes[which], deadline, i), expected.arm(deadline, i));
        REQUIRE(timers.next() == expected.next());
        if (i % 3 == 0) { // the newest ones, which cannot have fired
            REQUIRE(timers.cancel(armed.back().first));
            expected.cancel(armed.back().second);
            armed.pop_back();
            REQUIRE(timers.next() == expected.next());
        }
        if (i % 100 == 99) {
            const auto now = at(i / 4 * 10);
            REQUIRE(take_due(timers, now) == expected.take_due(now));
            REQUIRE(timers.size() == expected.size());
        }
    }
    CHECK(take_due(timers, never) == expected.take_due(never));
}

TEST_CASE("deadline_index: one deadline a hundred thousand times, and one beside it") {
    timer_index timers;
    for (int i = 0; i < 50'000; ++i) {
        timers.arm(start + 1s, i);
    }
    timers.arm(start + 1s + 1ns, 100'000);
    timers.arm(start + 1s - 1ns, -1);
    for (int i = 50'000; i < 100'000; ++i) {
        timers.arm(start + 1s, i);
    }
    CHECK(timers.next() == start + 1s - 1ns);
    CHECK(take_due(timers, start + 2s) == numbers(-1, 100'001));
}

TEST_CASE("deadline_index: the first of equals is cancelled until few are left") {
    timer_index timers;
    std::vector<deadline_handle> handles;
    for (int i = 0; i < 20'000; ++i) {
        handles.push_back(timers.arm(start + 1s, i));
    }
    for (std::size_t i = 0; i < 20'000; ++i) {
        if (i % 1'000 != 0) {
            REQUIRE(timers.cancel(handles[i]));
        }
    }
    CHECK(timers.size() == 20);
    const auto left = take_due(timers, start + 1s);
    REQUIRE(left.size() == 20);
    for (std::size_t i = 0; i < 20; ++i) {
        CHECK(left[i] == static_cast<int>(1'000 * i));
    }
}

TEST_CASE("deadline_index: crowds of every width, against a multimap") {
    std::mt19937_64 random{railmq::test::seed(5)};
    const int width = GENERATE(0, 3, 6, 12, 20, 36, 63);
    timer_index timers;
    reference expected;
    std::map<int, std::pair<deadline_handle, reference::iterator>> armed;
    const auto fire = [&](time_point now) {
        const auto fired = take_due(timers, now);
        REQUIRE(fired == expected.take_due(now));
        for (const int item : fired) {
            armed.erase(item);
        }
    };
    for (int i = 0; i < 30'000; ++i) {
        const auto deadline = at(static_cast<std::int64_t>(random() >> (63 - width)) - 1'000);
        armed[i] = {timers.arm(deadline, i), expected.arm(deadline, i)};
        const auto chance = random() % 100;
        if (chance < 40) {
            const auto victim = armed.lower_bound(static_cast<int>(random() % 30'000));
            if (victim != armed.end()) {
                REQUIRE(timers.cancel(victim->second.first));
                expected.cancel(victim->second.second);
                armed.erase(victim);
            }
        } else if (chance == 40) { // the first few
            for (int n = 0; n < 20 && timers.size() > 1'000; ++n) {
                fire(timers.next());
            }
        }
        REQUIRE(timers.next() == expected.next());
        REQUIRE(timers.size() == expected.size());
    }
    fire(never);
    CHECK(timers.empty());
}

TEST_CASE("deadline_index: items larger and smaller than a word") {
    struct wide {
        std::uint64_t a;
        std::uint64_t b;
        std::uint64_t c;
    };
    deadline_index<wide> timers;
    deadline_index<char> letters;
    const auto lane = timers.open_lane();
    for (std::uint64_t i = 0; i < 1'000; ++i) {
        timers.arm_in_lane(i % 2 == 0 ? lane : deadline_lane{}, start, {i, i * 3, ~i});
        letters.arm(start, static_cast<char>('a' + i % 26));
    }
    for (std::uint64_t i = 0; i < 1'000; ++i) {
        const auto item = timers.pop_due(start);
        REQUIRE(item);
        REQUIRE(item->a == i);
        REQUIRE(item->b == i * 3);
        REQUIRE(item->c == ~i);
        REQUIRE(letters.pop_due(start) == static_cast<char>('a' + i % 26));
    }
}

TEST_CASE("deadline_index: moves and swaps with everything in it") {
    timer_index timers;
    const auto lane = timers.open_lane();
    const auto other_lane = timers.open_lane();
    timers.arm_in_lane(lane, start + 1s, 0);
    timers.arm_in_lane(lane, start + 5s, 4);
    timers.arm_in_lane(other_lane, start + 3s, 2);
    const auto a = timers.arm(start + 2s, 1);
    const auto b = timers.arm(start + 4s, 3);

    timer_index other{std::move(timers)};
    CHECK(other.next() == start + 1s);
    CHECK(other.armed(a));
    CHECK(other.cancel(b));
    CHECK(other.size() == 4);
    other.arm(start + 4s, 3);

    timer_index third;
    third.arm(start, 9);
    third = std::move(other);
    CHECK(third.next() == start + 1s);
    CHECK(third.size() == 5);

    timer_index fourth;
    fourth.arm(start, 5);
    third.swap(fourth);
    CHECK(take_due(third, start + 2s) == std::vector{5});
    CHECK(take_due(fourth, start + 5s) == numbers(0, 5));
    CHECK(fourth.next() == never);
    fourth.arm_in_lane(lane, start, 6);
    CHECK(take_due(fourth, start) == std::vector{6});
}
