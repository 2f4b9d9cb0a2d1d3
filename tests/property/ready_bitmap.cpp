// SPDX-License-Identifier: BSL-1.0
//
// The bitmap against a std::set: the same numbers, the same first one and the same size after
// every step; and an insertion that fails for want of memory changes nothing.
#include <railmq/core/ready_bitmap.hpp>

#include "support/catch.hpp"

#include <rapidcheck.h>
#include <rapidcheck/state.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <optional>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

using railmq::ready_bitmap;

// --- memory that runs out ------------------------------------------------------------------------

namespace {

bool out_of_memory = false;
std::size_t allocations = 0;

} // namespace

// Not inlined: GCC would see a `free` of what came from a `new`, and warn.
[[gnu::noinline]] void* operator new(std::size_t n) {
    ++allocations;
    if (!out_of_memory) {
        if (void* const p = std::malloc(n == 0 ? 1 : n)) {
            return p;
        }
    }
    throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return std::malloc(n == 0 ? 1 : n); // whatever uses it is not what is tested
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}

namespace {

using model = std::set<std::uint64_t>;
using sut = ready_bitmap;
using command = rc::state::Command<model, sut>;

/// Near each other, at the edges of words and blocks, and anywhere.
rc::Gen<std::uint64_t> any_seq() {
    constexpr auto last = std::numeric_limits<std::uint64_t>::max();
    return rc::gen::oneOf(
        rc::gen::inRange<std::uint64_t>(0, 200),
        rc::gen::map(
            rc::gen::pair(
                rc::gen::inRange<std::uint64_t>(0, 5), rc::gen::inRange<std::uint64_t>(0, 4)),
            [](const auto& p) { return p.first * 4'096 + 4'094 + p.second; }),
        rc::gen::map(
            rc::gen::pair(
                rc::gen::resize(100, rc::gen::arbitrary<std::uint64_t>()), rc::gen::inRange(0, 64)),
            [](const auto& p) { return p.first >> p.second; }),
        rc::gen::element<std::uint64_t>(0, last, last - 1, last - 4'096));
}

void check(const model& expected, const sut& actual) {
    RC_ASSERT(actual.size() == expected.size());
    RC_ASSERT(actual.empty() == expected.empty());
    if (!expected.empty()) {
        RC_ASSERT(actual.first() == *expected.begin());
    }
}

std::optional<std::uint64_t> next_of(const model& m, std::uint64_t seq) {
    const auto next = m.upper_bound(seq);
    return next == m.end() ? std::nullopt : std::optional{*next};
}

struct step : command {
    void apply(model& m) const override { act(m, nullptr); }

    void run(const model& before, sut& actual) const override {
        model m = before;
        act(m, &actual);
        check(m, actual);
    }

    virtual void act(model& m, sut* actual) const = 0;
};

struct insert : step {
    std::uint64_t seq = *any_seq();

    void act(model& m, sut* actual) const override {
        const bool is_new = m.insert(seq).second;
        if (actual != nullptr) {
            RC_ASSERT(actual->insert(seq) == is_new);
        }
    }

    void show(std::ostream& os) const override { os << "insert " << seq; }
};

struct insert_without_memory : step {
    std::uint64_t seq = *any_seq();

    void act(model&, sut*) const override {}

    void apply(model& m) const override {
        // Whether it succeeds depends on whether there is a block: not the model's business, so
        // that it is taken out again.
        m.erase(seq);
    }

    void run(const model& before, sut& actual) const override {
        model m = before;
        out_of_memory = true;
        bool failed = false;
        bool is_new = false;
        try {
            is_new = actual.insert(seq);
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        out_of_memory = false;
        RC_ASSERT(!failed || before.count(seq) == 0);
        RC_ASSERT(failed || is_new == (before.count(seq) == 0));
        if (!failed) {
            m.insert(seq);
        }
        check(m, actual);
        RC_ASSERT(actual.contains(seq) == (m.count(seq) == 1));
        out_of_memory = true;
        const bool was_in = actual.erase(seq);
        out_of_memory = false;
        RC_ASSERT(was_in == (m.erase(seq) == 1));
        check(m, actual);
    }

    void show(std::ostream& os) const override { os << "insert without memory, erase " << seq; }
};

struct insert_run : step {
    std::uint64_t from = *rc::gen::inRange<std::uint64_t>(0, 20'000);
    std::uint64_t count = *rc::gen::element<std::uint64_t>(10, 200, 9'000);
    std::uint64_t stride = *rc::gen::element<std::uint64_t>(1, 1, 63, 64, 4'096);

    void act(model& m, sut* actual) const override {
        for (std::uint64_t i = 0; i < count; ++i) {
            const bool is_new = m.insert(from + i * stride).second;
            if (actual != nullptr) {
                RC_ASSERT(actual->insert(from + i * stride) == is_new);
            }
        }
    }

    void show(std::ostream& os) const override {
        os << "insert " << count << " from " << from << ", one in " << stride;
    }
};

struct erase : step {
    std::uint64_t seq = *any_seq();

    void act(model& m, sut* actual) const override {
        const bool was_in = m.erase(seq) == 1;
        if (actual != nullptr) {
            RC_ASSERT(actual->erase(seq) == was_in);
        }
    }

    void show(std::ostream& os) const override { os << "erase " << seq; }
};

/// How the queue uses it.
struct take_first : step {
    int count = *rc::gen::element(1, 3, 100, 5'000);

    void act(model& m, sut* actual) const override {
        for (int i = 0; i < count && !m.empty(); ++i) {
            const std::uint64_t first = *m.begin();
            m.erase(first);
            if (actual != nullptr) {
                const std::size_t before = allocations;
                const std::uint64_t found = actual->first();
                const bool was_in = actual->erase(found);
                const std::size_t after = allocations;
                RC_ASSERT(found == first);
                RC_ASSERT(was_in);
                RC_ASSERT(after == before);
            }
        }
    }

    void show(std::ostream& os) const override { os << "take the first " << count; }
};

struct look : step {
    std::uint64_t seq = *any_seq();

    void act(model& m, sut* actual) const override {
        if (actual != nullptr) {
            RC_ASSERT(actual->contains(seq) == (m.count(seq) == 1));
            RC_ASSERT(actual->next_after(seq) == next_of(m, seq));
        }
    }

    void show(std::ostream& os) const override { os << "look at " << seq; }
};

struct compare : step {
    void act(model& m, sut* actual) const override {
        if (actual == nullptr) {
            return;
        }
        std::vector<std::uint64_t> all;
        actual->for_each([&](std::uint64_t seq) { all.push_back(seq); });
        RC_ASSERT(all == std::vector<std::uint64_t>(m.begin(), m.end()));
        for (const std::uint64_t seq : m) {
            RC_ASSERT(actual->contains(seq));
            RC_ASSERT(actual->next_after(seq) == next_of(m, seq));
        }
    }

    void show(std::ostream& os) const override { os << "compare all"; }
};

struct clear : step {
    void act(model& m, sut* actual) const override {
        m.clear();
        if (actual != nullptr) {
            actual->clear();
        }
    }

    void show(std::ostream& os) const override { os << "clear"; }
};

/// To another object and back.
struct move_away : step {
    void act(model&, sut* actual) const override {
        if (actual != nullptr) {
            ready_bitmap other{std::move(*actual)};
            RC_ASSERT(actual->empty());
            *actual = std::move(other);
        }
    }

    void show(std::ostream& os) const override { os << "move"; }
};

} // namespace

TEST_CASE("ready_bitmap: does what a set does") {
    const bool holds = rc::check([] {
        sut actual;
        rc::state::check(
            model{},
            actual,
            rc::state::gen::execOneOfWithArgs<
                insert,
                insert,
                insert_without_memory,
                insert_run,
                erase,
                erase,
                take_first,
                take_first,
                look,
                look,
                compare,
                clear,
                move_away>());
    });
    CHECK(holds);
}

TEST_CASE("ready_bitmap: from one number to none and back needs no memory") {
    ready_bitmap ready;
    ready.insert(5);
    ready.erase(5);
    const std::size_t before = allocations;
    std::uint64_t wrong = 0;
    for (std::uint64_t seq = 0; seq < 10'000'000; seq += 997) {
        wrong += ready.insert(seq) && ready.erase(seq) ? 0U : 1U;
    }
    CHECK(wrong == 0);
    CHECK(allocations == before);
}
