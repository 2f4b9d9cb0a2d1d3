// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/priority_levels.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

using railmq::requeue_position;
using railmq::core::priority_levels;

namespace {

using ids = std::vector<std::uint64_t>;

struct fixture {
    explicit fixture(std::uint32_t count, std::uint32_t max_overtakes = 0)
        : levels{count, max_overtakes} {}

    [[nodiscard]] auto is_there() const {
        return [this](std::uint64_t id) { return meant.count(id) != 0; };
    }
    void
    add(std::uint32_t level,
        std::uint64_t id,
        requeue_position where = requeue_position::original) {
        levels.add(level, id, where, next);
        next = std::max(next, id + 1);
        meant.insert(id);
    }
    void withdraw(std::uint32_t level, std::uint64_t id) {
        meant.erase(id);
        levels.withdraw(level, id, is_there());
    }
    [[nodiscard]] ids take_all(bool least = false) {
        ids all;
        for (;;) {
            const auto id = least ? levels.take_least(is_there()) : levels.take(is_there());
            if (!id) {
                return all;
            }
            meant.erase(*id);
            all.push_back(*id);
        }
    }

    priority_levels levels;
    std::uint64_t next = 0;
    std::set<std::uint64_t> meant{};
};

} // namespace

TEST_CASE("priority_levels: the highest first, the order of ids among equals") {
    fixture f{4};
    for (std::uint64_t id = 0; id != 9; ++id) {
        f.add(1 + static_cast<std::uint32_t>(id) % 3, id);
    }
    ids shown;
    f.levels.for_each([&](std::uint64_t id) {
        shown.push_back(id);
        return shown.size() != 5;
    });
    CHECK(shown == ids{2, 5, 8, 1, 4});
    CHECK(f.take_all() == ids{2, 5, 8, 1, 4, 7, 0, 3, 6});
    CHECK(f.take_all().empty());
}

TEST_CASE("priority_levels: the least of all are the first of the lowest") {
    fixture f{4};
    for (std::uint64_t id = 0; id != 6; ++id) {
        f.add(1 + static_cast<std::uint32_t>(id) % 3, id);
    }
    CHECK(f.take_all(true) == ids{0, 3, 1, 4, 2, 5});
}

TEST_CASE("priority_levels: above the highest is the highest") {
    const priority_levels two{2, 0};
    CHECK(two.level_of(0) == 0U);
    CHECK(two.level_of(1) == 1U);
    CHECK(two.level_of(2) == 1U);
    CHECK(two.level_of(~std::uint32_t{0}) == 1U);
}

TEST_CASE("priority_levels: each border of the bits") {
    fixture f{railmq::max_priorities};
    const std::vector<std::uint32_t> levels{0, 1, 63, 64, 127, 128, 191, 192, 254, 255};
    ids up;
    for (const std::uint32_t level : levels) {
        f.add(level, level);
        up.push_back(level);
    }
    const ids down{up.rbegin(), up.rend()};
    SECTION("from above") {
        CHECK(f.take_all() == down);
    }
    SECTION("from below") {
        CHECK(f.take_all(true) == up);
    }
}

TEST_CASE("priority_levels: front and back are those of the level") {
    fixture f{3};
    f.add(1, 0);
    f.add(2, 1);
    f.add(1, 2);
    f.add(1, 3, requeue_position::front);
    f.add(1, 4, requeue_position::back);
    f.add(1, 5);
    CHECK(f.take_all() == ids{1, 3, 0, 2, 4, 5});
}

TEST_CASE("priority_levels: what was withdrawn is in nobody's way") {
    fixture f{3};
    f.add(2, 0);
    f.add(2, 1, requeue_position::front);
    f.add(0, 2);
    f.add(1, 3, requeue_position::front);
    f.withdraw(2, 0);
    f.withdraw(2, 1);
    f.withdraw(1, 3);
    CHECK(f.take_all(GENERATE(true, false)) == ids{2});
}

TEST_CASE("priority_levels: after so many that overtook it the oldest goes") {
    SECTION("two to one") {
        fixture f{2, 2};
        for (std::uint64_t id = 0; id != 8; ++id) {
            f.add(id < 3 ? 0 : 1, id);
        }
        CHECK(f.take_all() == ids{3, 4, 0, 5, 6, 1, 7, 2});
    }
    SECTION("of all levels") {
        fixture f{3, 1};
        f.add(0, 1);
        f.add(1, 0);
        f.add(2, 2);
        f.add(2, 3);
        f.add(2, 4);
        CHECK(f.take_all() == ids{2, 0, 3, 1, 4});
    }
    SECTION("nobody waits longer: it was no turn") {
        fixture f{2, 1};
        f.add(1, 0);
        f.add(1, 1);
        f.add(1, 2);
        f.add(0, 3);
        CHECK(f.take_all() == ids{0, 1, 2, 3});
    }
    SECTION("without others nothing is counted") {
        fixture f{2, 2};
        f.add(1, 0);
        f.add(1, 1);
        f.add(1, 2);
        CHECK(f.take_all() == ids{0, 1, 2});
        f.add(0, 3);
        f.add(1, 4);
        f.add(1, 5);
        f.add(1, 6);
        CHECK(f.take_all() == ids{4, 5, 3, 6});
    }
}

TEST_CASE("priority_levels: those of which one may be the oldest") {
    fixture f{3};
    f.add(2, 4);
    f.add(2, 5);
    f.add(0, 1);
    f.add(0, 2);
    ids old;
    f.levels.for_each_old([&](std::uint64_t id) { old.push_back(id); });
    CHECK(old == ids{1, 4});
}
