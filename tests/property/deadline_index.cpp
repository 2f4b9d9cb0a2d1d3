// SPDX-License-Identifier: BSL-1.0
//
// The index against an ordered set of (deadline, creation): the same entries in the same order,
// the same earliest deadline and the same size after every step, whatever the steps are, and also
// if memory runs out at any moment. And it does not keep more memory than it has entries.
#include <railmq/core/deadline_index.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <rapidcheck.h>
#include <rapidcheck/state.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using railmq::deadline_handle;
using railmq::deadline_index;
using railmq::deadline_lane;
using railmq::duration;
using railmq::never;
using railmq::saturating_add;
using railmq::time_point;

// --- memory that is counted and runs out ---------------------------------------------------------

namespace {

std::size_t bytes_in_use = 0;
std::size_t allocations = 0;

// Within a `shortage`, the allocation after so many others fails, and then every so many.
std::size_t fail_after = 0;
std::size_t fail_every = 0;
bool short_of_memory = false;

struct shortage {
    shortage() { short_of_memory = true; }
    shortage(const shortage&) = delete;
    shortage& operator=(const shortage&) = delete;
    ~shortage() { short_of_memory = false; }
};

bool fails() {
    ++allocations;
    if (!short_of_memory || fail_after == 0 || --fail_after != 0) {
        return false;
    }
    fail_after = fail_every;
    return true;
}

// In front of every piece is how large it is, and where it began.
struct piece {
    std::size_t bytes;
    void* begin;
};

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (fails()) {
        return nullptr;
    }
    alignment = std::max(alignment, alignof(std::max_align_t));
    void* const begin = std::malloc(bytes + alignment + sizeof(piece));
    if (begin == nullptr) {
        return nullptr;
    }
    std::size_t room = bytes + alignment;
    void* p = static_cast<std::byte*>(begin) + sizeof(piece);
    p = std::align(alignment, bytes, p, room);
    ::new (static_cast<void*>(static_cast<std::byte*>(p) - sizeof(piece))) piece{bytes, begin};
    bytes_in_use += bytes;
    return p;
}

void release(void* p) noexcept {
    if (p != nullptr) {
        const piece it =
            *static_cast<piece*>(static_cast<void*>(static_cast<std::byte*>(p) - sizeof(piece)));
        bytes_in_use -= it.bytes;
        std::free(it.begin);
    }
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    if (void* const p = allocate(bytes, alignment)) {
        return p;
    }
    throw std::bad_alloc{};
}

} // namespace

// Not inlined: GCC would see a `free` of what came from a `new`, and warn.
[[gnu::noinline]] void* operator new(std::size_t n) {
    return allocate_or_throw(n, 1);
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
    return allocate_or_throw(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return allocate(n, 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
    release(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
    release(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
    release(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    release(p);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept {
    release(p);
}

namespace {

// --- the model and the system --------------------------------------------------------------------

using id_type = std::uint64_t; // in the order of creation

constexpr std::size_t lane_count = 3; // the first one is the general part

/// Entries in the order in which they have to fire, and all that were ever created.
struct model {
    time_point now{};
    std::set<std::pair<time_point, id_type>> order;
    std::map<id_type, time_point> armed;
    id_type created = 0;

    id_type arm(time_point deadline) {
        order.emplace(deadline, created);
        armed.emplace(created, deadline);
        return created++;
    }

    bool cancel(id_type id) {
        const auto found = armed.find(id);
        if (found == armed.end()) {
            return false;
        }
        order.erase({found->second, id});
        armed.erase(found);
        return true;
    }

    std::optional<id_type> pop_due(time_point at) {
        if (order.empty() || order.begin()->first > at) {
            return std::nullopt;
        }
        const id_type id = order.begin()->second;
        cancel(id);
        return id;
    }

    [[nodiscard]] time_point next() const { return order.empty() ? never : order.begin()->first; }

    /// Some entry that was ever created; mostly one of the newest, and often a dead one.
    [[nodiscard]] id_type pick(std::uint64_t choice) const {
        if (created == 0) {
            return 0;
        }
        const id_type among = choice % 3 == 0 ? created : std::min<id_type>(created, 16);
        return created - 1 - choice / 3 % among;
    }

    /// The armed entry with the n-th deadline, to hit the front.
    [[nodiscard]] std::optional<id_type> early(std::size_t n) const {
        if (order.size() <= n) {
            return std::nullopt;
        }
        return std::next(order.begin(), static_cast<std::ptrdiff_t>(n))->second;
    }
};

struct sut {
    deadline_index<id_type> index;
    std::vector<deadline_lane> lanes{deadline_lane{}, index.open_lane(), index.open_lane()};
    std::vector<deadline_handle> handles; // by id

    id_type arm(std::size_t lane, time_point deadline) {
        const auto h = index.arm_in_lane(lanes[lane], deadline, handles.size());
        handles.push_back(h);
        return handles.size() - 1;
    }

    bool cancel(id_type id) { return id < handles.size() && index.cancel(handles[id]); }
};

using command = rc::state::Command<model, sut>;

/// After every step.
void check(const model& expected, const sut& actual) {
    RC_ASSERT(actual.index.next() == expected.next());
    RC_ASSERT(actual.index.size() == expected.armed.size());
    RC_ASSERT(actual.index.empty() == expected.armed.empty());
}

/// Everything, by handle.
void check_all(const model& expected, const sut& actual) {
    check(expected, actual);
    for (id_type id = 0; id < actual.handles.size(); ++id) {
        const auto found = expected.armed.find(id);
        const auto deadline = actual.index.deadline(actual.handles[id]);
        RC_ASSERT(actual.index.armed(actual.handles[id]) == (found != expected.armed.end()));
        RC_ASSERT(deadline.has_value() == (found != expected.armed.end()));
        if (deadline) { // an assertion would read both sides of an `||`
            RC_ASSERT(*deadline == found->second);
        }
    }
}

/// Distances of every magnitude, a few of them often so that deadlines coincide; into the past
/// now and then.
rc::Gen<duration> any_delay() {
    return rc::gen::oneOf(
        rc::gen::map(rc::gen::inRange<std::int64_t>(-3, 10), [](auto n) { return duration{n}; }),
        rc::gen::map(
            rc::gen::inRange<std::int64_t>(0, 8), [](auto n) { return duration{n * 1'000'000}; }),
        rc::gen::map(
            rc::gen::pair(
                rc::gen::resize(100, rc::gen::arbitrary<std::uint64_t>()), rc::gen::inRange(1, 64)),
            [](const auto& p) { return duration{static_cast<std::int64_t>(p.first >> p.second)}; }),
        rc::gen::element(duration::min(), duration::max(), duration{0}));
}

/// A step without randomness of its own, so that it can be shown and shrunk.
struct step : command {
    void checkPreconditions(const model&) const override {}

    void apply(model& m) const override { act(m, nullptr); }

    void run(const model& before, sut& actual) const override {
        model m = before;
        act(m, &actual);
        check(m, actual);
    }

    /// Does it to the model and, unless null, to the system as well.
    virtual void act(model& m, sut* actual) const = 0;
};

struct arm_one : step {
    std::size_t lane = *rc::gen::inRange<std::size_t>(0, lane_count);
    duration delay = *any_delay();

    void act(model& m, sut* actual) const override {
        const time_point deadline = saturating_add(m.now, delay);
        const id_type id = m.arm(deadline);
        if (actual != nullptr) {
            RC_ASSERT(actual->arm(lane, deadline) == id);
        }
    }

    void show(std::ostream& os) const override {
        os << "arm in lane " << lane << ", now + " << delay.count();
    }
};

/// What lanes are made for.
struct arm_constant : step {
    std::size_t lane = *rc::gen::inRange<std::size_t>(0, lane_count);
    int count = *rc::gen::inRange(1, 100);

    void act(model& m, sut* actual) const override {
        for (int i = 0; i < count; ++i) {
            const auto ms = static_cast<std::int64_t>(lane + 1) * 1'000'000;
            const time_point deadline = saturating_add(m.now, duration{ms + i / 3});
            m.arm(deadline);
            if (actual != nullptr) {
                actual->arm(lane, deadline);
                check(m, *actual);
            }
        }
    }

    void show(std::ostream& os) const override {
        os << "arm " << count << " times the timeout of lane " << lane;
    }
};

/// Enough of them that structures are split and refined.
struct arm_crowd : step {
    std::uint64_t seed = *rc::gen::arbitrary<std::uint64_t>();
    int count = *rc::gen::element(70, 70, 500, 5'000);
    int width = *rc::gen::inRange(0, 62); // in bits

    void act(model& m, sut* actual) const override {
        std::mt19937_64 random{seed};
        for (int i = 0; i < count; ++i) {
            const auto delay = static_cast<std::int64_t>(random() >> (63 - width));
            const time_point deadline = saturating_add(m.now, duration{delay});
            m.arm(deadline);
            if (actual != nullptr) {
                actual->arm(0, deadline);
                check(m, *actual);
            }
        }
    }

    void show(std::ostream& os) const override {
        os << "arm " << count << " within 2^" << width << " ns, seed " << seed;
    }
};

struct cancel_one : step {
    std::uint64_t choice = *rc::gen::arbitrary<std::uint64_t>();

    void act(model& m, sut* actual) const override {
        const id_type id = m.pick(choice);
        const bool was_armed = m.cancel(id);
        if (actual != nullptr) {
            RC_ASSERT(actual->cancel(id) == was_armed);
        }
    }

    void show(std::ostream& os) const override { os << "cancel, choice " << choice; }
};

struct cancel_early : step {
    std::size_t n = *rc::gen::inRange<std::size_t>(0, 4);
    int count = *rc::gen::element(1, 1, 20, 300);

    void act(model& m, sut* actual) const override {
        for (int i = 0; i < count; ++i) {
            if (const auto id = m.early(n)) {
                m.cancel(*id);
                if (actual != nullptr) {
                    RC_ASSERT(actual->cancel(*id));
                    check(m, *actual);
                }
            }
        }
    }

    void show(std::ostream& os) const override {
        os << "cancel " << count << " times the entry behind " << n << " others";
    }
};

/// A share of all, so that most of a structure is dead.
struct cancel_many : step {
    std::uint64_t seed = *rc::gen::arbitrary<std::uint64_t>();
    unsigned percent = *rc::gen::element(20U, 60U, 95U);

    void act(model& m, sut* actual) const override {
        std::mt19937_64 random{seed};
        const std::map<id_type, time_point> before = m.armed;
        for (const auto& [id, deadline] : before) {
            if (random() % 100 < percent) {
                m.cancel(id);
                if (actual != nullptr) {
                    RC_ASSERT(actual->cancel(id));
                    check(m, *actual);
                }
            }
        }
    }

    void show(std::ostream& os) const override {
        os << "cancel " << percent << " % of all, seed " << seed;
    }
};

struct rearm : step {
    std::uint64_t choice = *rc::gen::arbitrary<std::uint64_t>();
    std::size_t lane = *rc::gen::inRange<std::size_t>(0, lane_count);
    duration delay = *any_delay();

    void act(model& m, sut* actual) const override {
        // The item stays what it is, so that it would fire under its old id: give it a new one.
        const id_type id = m.pick(choice);
        const time_point deadline = saturating_add(m.now, delay);
        const bool was_armed = m.cancel(id);
        if (actual != nullptr && !was_armed && id < actual->handles.size()) {
            RC_ASSERT(!actual->index.rearm(actual->handles[id], deadline));
        }
        if (was_armed) {
            m.order.emplace(deadline, m.created);
            m.armed.emplace(m.created, deadline);
            ++m.created;
            if (actual != nullptr) {
                const auto old = actual->handles[id];
                const auto moved = actual->index.rearm(old, deadline, actual->lanes[lane]);
                RC_ASSERT(static_cast<bool>(moved));
                RC_ASSERT(!actual->index.armed(old));
                RC_ASSERT(actual->index.deadline(moved) == deadline);
                // Once more with the new item. Nothing else came in between, so the order is kept.
                RC_ASSERT(actual->index.cancel(moved));
                RC_ASSERT(actual->arm(lane, deadline) == m.created - 1);
            }
        }
    }

    void show(std::ostream& os) const override {
        os << "rearm in lane " << lane << ", now + " << delay.count() << ", choice " << choice;
    }
};

/// Moves time, mostly forward, and takes what is due one by one.
struct advance : step {
    duration by = *any_delay();
    bool to_next = *rc::gen::arbitrary<bool>();
    int at_most = *rc::gen::element(1, 3, 100, 1'000'000);

    void act(model& m, sut* actual) const override {
        m.now = saturating_add(to_next ? std::min(m.next(), never - duration{1}) : m.now, by);
        for (int i = 0; i < at_most; ++i) {
            const auto due = m.pop_due(m.now);
            if (actual != nullptr) {
                RC_ASSERT(actual->index.pop_due(m.now) == due);
                check(m, *actual);
            }
            if (!due) {
                break;
            }
        }
    }

    void show(std::ostream& os) const override {
        os << "advance " << (to_next ? "to the next deadline and " : "") << by.count()
           << " ns, take at most " << at_most;
    }
};

/// `expire` with a function that arms and cancels.
struct expire : step {
    struct reaction {
        bool arms;
        std::size_t lane;
        duration delay; // from the deadline that fired; often not after `now`
        std::uint64_t choice;
    };

    duration by = *any_delay();
    std::map<int, reaction> reactions = *reactions_by_turn();

    static rc::Gen<std::map<int, reaction>> reactions_by_turn() {
        return rc::gen::container<std::map<int, reaction>>(
            rc::gen::inRange(0, 30),
            rc::gen::apply(
                [](bool arms, std::size_t lane, duration delay, std::uint64_t choice) {
                    return reaction{arms, lane, delay, choice};
                },
                rc::gen::arbitrary<bool>(),
                rc::gen::inRange<std::size_t>(0, lane_count),
                any_delay(),
                rc::gen::arbitrary<std::uint64_t>()));
    }

    void act(model& m, sut* actual) const override {
        m.now = saturating_add(std::min(m.next(), never - duration{1}), by);
        if (actual == nullptr) {
            int turn = 0;
            while (!m.order.empty() && m.order.begin()->first <= m.now) {
                const time_point deadline = m.order.begin()->first;
                m.pop_due(m.now);
                react(m, nullptr, turn++, deadline);
            }
            return;
        }
        int turn = 0;
        const auto fired = actual->index.expire(m.now, [&](id_type id, time_point deadline) {
            RC_ASSERT(!m.order.empty());
            RC_ASSERT(*m.order.begin() == std::pair(deadline, id));
            RC_ASSERT(m.pop_due(m.now) == id);
            RC_ASSERT(!actual->cancel(id));
            react(m, actual, turn++, deadline);
            check(m, *actual);
        });
        RC_ASSERT(fired == static_cast<std::size_t>(turn));
        RC_ASSERT(m.next() > m.now || m.order.empty());
    }

    void react(model& m, sut* actual, int turn, time_point fired) const {
        const auto found = reactions.find(turn);
        if (found == reactions.end()) {
            return;
        }
        const reaction& what = found->second;
        if (what.arms) {
            const time_point deadline = saturating_add(fired, what.delay);
            m.arm(deadline);
            if (actual != nullptr) {
                actual->arm(what.lane, deadline);
            }
            return;
        }
        const auto early = m.early(static_cast<std::size_t>(what.choice % 3));
        const id_type id = early ? *early : m.pick(what.choice);
        const bool was_armed = m.cancel(id);
        if (actual != nullptr) {
            RC_ASSERT(actual->cancel(id) == was_armed);
        }
    }

    void show(std::ostream& os) const override {
        os << "expire at the next deadline and " << by.count() << " ns, with reactions";
        for (const auto& [turn, what] : reactions) {
            os << " [" << turn << ": "
               << (what.arms ? "arm +" + std::to_string(what.delay.count()) + " in lane " +
                                   std::to_string(what.lane)
                             : "cancel " + std::to_string(what.choice))
               << "]";
        }
    }
};

struct clear : step {
    void act(model& m, sut* actual) const override {
        m.order.clear();
        m.armed.clear();
        if (actual != nullptr) {
            actual->index.clear();
            check_all(m, *actual);
        }
    }

    void show(std::ostream& os) const override { os << "clear"; }
};

/// The lane's entries stay; whoever opens it next gets it as it is.
struct reopen : step {
    std::size_t lane = *rc::gen::inRange<std::size_t>(1, lane_count);

    void act(model&, sut* actual) const override {
        if (actual != nullptr) {
            actual->index.close_lane(actual->lanes[lane]);
            actual->lanes[lane] = actual->index.open_lane();
        }
    }

    void show(std::ostream& os) const override { os << "close and open lane " << lane; }
};

struct check_handles : step {
    void act(model& m, sut* actual) const override {
        if (actual != nullptr) {
            check_all(m, *actual);
        }
    }

    void show(std::ostream& os) const override { os << "check all handles"; }
};

} // namespace

TEST_CASE("deadline_index: does what an ordered set does") {
    const bool holds = rc::check([] {
        // Anywhere on the time line; the ends are the interesting ones.
        const auto begin = *rc::gen::element<std::int64_t>(
            0,
            -5,
            1'700'000'000'123'456'789,
            std::numeric_limits<std::int64_t>::min(),
            std::numeric_limits<std::int64_t>::max() - 2'000'000);
        model initial;
        initial.now = time_point{duration{begin}};
        sut actual;
        rc::state::check(
            initial,
            actual,
            rc::state::gen::execOneOfWithArgs<
                arm_one,
                arm_one,
                arm_constant,
                arm_constant,
                arm_crowd,
                cancel_one,
                cancel_early,
                cancel_many,
                rearm,
                advance,
                advance,
                expire,
                expire,
                reopen,
                clear,
                check_handles>());
    });
    CHECK(holds);
}

TEST_CASE("deadline_index: an arm that fails for want of memory changes nothing") {
    std::size_t failures = 0;
    std::size_t successes = 0;
    std::size_t runs = 0;
    const bool holds = rc::check([&] {
        ++runs;
        const auto seed = *rc::gen::arbitrary<std::uint64_t>();
        const auto width = *rc::gen::inRange(0, 40);
        std::mt19937_64 random{seed};
        model m;
        sut actual;
        actual.handles.reserve(20'000);

        const auto arm = [&](std::size_t lane, time_point deadline) {
            try {
                const shortage now_and_then;
                actual.arm(lane, deadline);
            } catch (const std::bad_alloc&) {
                ++failures;
                return;
            }
            ++successes;
            m.arm(deadline);
        };
        const auto pop = [&](time_point now) {
            const auto due = m.pop_due(now);
            std::optional<id_type> taken;
            {
                const shortage here_too; // to take something out must not need memory
                taken = actual.index.pop_due(now);
            }
            RC_ASSERT(taken == due);
            check(m, actual);
            return due.has_value();
        };
        const auto cancel = [&](id_type id) {
            bool cancelled = false;
            {
                const shortage here_too;
                cancelled = actual.cancel(id);
            }
            RC_ASSERT(cancelled == m.cancel(id));
            check(m, actual);
        };

        while (m.created < 10'000) {
            fail_after = random() % 30 + 1;
            fail_every = std::array<std::size_t, 4>{1, 2, 3, 10}[random() % 4];
            const bool everywhere = random() % 4 == 0;
            const auto burst = random() % 300;
            for (std::uint64_t n = 0; n < burst; ++n) {
                const auto lane = static_cast<std::size_t>(everywhere ? random() % lane_count : 0);
                const auto delay = static_cast<std::int64_t>(random() >> (63 - width));
                arm(lane, saturating_add(m.now, duration{delay}));
                check(m, actual);
            }
            for (std::uint64_t n = random() % 100; n != 0; --n) {
                cancel(m.pick(random()));
            }
            if (random() % 8 == 0) {
                m.now = std::max(m.now, std::min(m.next(), never - duration{1}));
                for (int n = 0; n < 100 && pop(m.now); ++n) {
                }
            }
            fail_after = 1; // nothing at all
            fail_every = 1;
            arm(0, m.now);
            check(m, actual);
        }
        check_all(m, actual);
        while (pop(never)) {
        }
    });
    CHECK(holds);
    // 10,000 in the 100 runs that there are without sanitizers.
    CHECK(failures > 100 * runs);
    CHECK(successes > 10'000);
}

TEST_CASE("deadline_index: an arm that fails gives back what it took") {
    deadline_index<std::uint64_t> timers;
    std::size_t failures = 0;
    for (std::uint64_t i = 0; i < 4; ++i) {
        timers.arm(time_point{duration{1}}, i); // the fifth has to make room
    }
    for (std::uint64_t i = 0; i < 1'000; ++i) {
        fail_after = 1;
        fail_every = 1;
        try {
            const shortage of_everything;
            timers.arm(time_point{duration{1}}, i);
        } catch (const std::bad_alloc&) {
            ++failures;
        }
    }
    CHECK(failures == 1'000);
    CHECK(timers.size() == 4);
    const std::size_t before = allocations;
    timers.arm(time_point{duration{1}}, 4);
    const std::size_t after = allocations;
    CHECK(after - before == 1);
}

TEST_CASE("deadline_index: memory stays in proportion to what is armed") {
    const std::size_t before = bytes_in_use;
    {
        deadline_index<std::uint64_t> timers;
        const auto lane = timers.open_lane();
        time_point now{};
        const auto keep = timers.arm(saturating_add(now, std::chrono::hours{1}), 0);
        const auto keep_too = timers.arm_in_lane(lane, now + std::chrono::seconds{30}, 1);

        // One long entry, and ten million that come and go.
        const auto churn = [&](bool in_lane, std::int64_t spread) {
            std::size_t peak = 0;
            for (std::uint64_t i = 0; i < 5'000'000; ++i) {
                now += duration{1};
                const auto wait = duration{static_cast<std::int64_t>(i) % spread};
                const time_point deadline = now + std::chrono::seconds{30} + wait;
                const auto h =
                    in_lane ? timers.arm_in_lane(lane, deadline, i) : timers.arm(deadline, i);
                if (!timers.cancel(h)) {
                    return std::numeric_limits<std::size_t>::max();
                }
                peak = std::max(peak, bytes_in_use - before);
            }
            return peak;
        };
        CHECK(churn(true, 1) < 20'000);
        CHECK(churn(false, 1) < 40'000);
        CHECK(churn(false, 1'000'003) < 40'000);

        // A crowd goes, and most of its memory with it.
        std::mt19937_64 random{railmq::test::seed(7)};
        std::vector<deadline_handle> handles(400'000);
        const std::size_t around = bytes_in_use;
        for (std::size_t i = 0; i < handles.size(); ++i) {
            const duration wait{static_cast<std::int64_t>(random() % 60'000'000'000)};
            handles[i] = i % 2 == 0 ? timers.arm(now + wait, i)
                                    : timers.arm_in_lane(lane, now + std::chrono::seconds{60}, i);
        }
        const std::size_t full = bytes_in_use - around;
        CHECK(full < handles.size() * 120);
        std::shuffle(handles.begin(), handles.end(), random);
        for (std::size_t i = 0; i + 400 < handles.size(); ++i) {
            CHECK(timers.cancel(handles[i]));
        }
        CHECK(timers.size() == 402);
        CHECK(bytes_in_use - around < 402 * 5'000);
        for (std::size_t i = handles.size() - 400; i < handles.size(); ++i) {
            CHECK(timers.cancel(handles[i]));
        }
        // What is left is a table with 32 bytes for every 32 or 64 entries there ever were at once.
        CHECK(bytes_in_use - around < handles.size() * 3 / 2);
        CHECK(timers.cancel(keep));
        CHECK(timers.cancel(keep_too));
        CHECK(timers.next() == never);
    }
}

TEST_CASE("deadline_index: after a while the same work needs no memory") {
    deadline_index<std::uint64_t> timers;
    const auto lane = timers.open_lane();
    std::mt19937_64 random{railmq::test::seed(8)};
    std::vector<deadline_handle> handles(1'000);
    time_point now{};
    const auto work = [&](int steps) {
        for (int i = 0; i < steps; ++i) {
            now += duration{1'000};
            auto& h = handles[static_cast<std::size_t>(i) % handles.size()];
            timers.cancel(h);
            h = timers.arm_in_lane(lane, now + std::chrono::milliseconds{2}, 1);
            while (timers.pop_due(now)) {
            }
        }
    };
    work(10'000);
    const std::size_t before = allocations;
    work(100'000);
    CHECK(allocations == before);
}
