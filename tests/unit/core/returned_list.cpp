// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/returned_list.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

using railmq::requeue_position;
using railmq::core::returned_list;

namespace {

constexpr std::uint64_t end_of_line = std::numeric_limits<std::uint64_t>::max();

struct fixture {
    [[nodiscard]] auto is_there() const {
        return [this](std::uint64_t id) { return meant.count(id) != 0; };
    }
    void add(std::uint64_t id, requeue_position where, std::uint64_t end = 0) {
        list.add(id, where, end);
        meant.insert(id);
    }
    void withdraw(std::uint64_t id) {
        meant.erase(id);
        list.withdraw(id, is_there());
    }
    [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t line = end_of_line) {
        const auto id = list.take(line, is_there());
        if (id) {
            meant.erase(*id);
        }
        return id;
    }
    [[nodiscard]] std::vector<std::uint64_t> take_all() {
        std::vector<std::uint64_t> all;
        while (const auto id = take()) {
            all.push_back(*id);
        }
        return all;
    }
    [[nodiscard]] std::vector<std::uint64_t> shown() const {
        std::vector<std::uint64_t> all;
        list.for_each(
            [&](std::uint64_t id) {
                if (meant.count(id) != 0) {
                    all.push_back(id);
                }
                return true;
            },
            [](std::uint64_t) { return true; });
        return all;
    }

    returned_list list{};
    std::set<std::uint64_t> meant{};
};

using ids = std::vector<std::uint64_t>;

} // namespace

TEST_CASE(
    "returned_list: the front, latest first, then by id, and the back behind what there was") {
    fixture f;
    f.add(7, requeue_position::original);
    f.add(1, requeue_position::back, 8);
    f.add(3, requeue_position::original);
    f.add(5, requeue_position::front);
    f.add(2, requeue_position::back, 8);
    f.add(9, requeue_position::original); // came after those that were put to the back
    f.add(6, requeue_position::front);
    CHECK(f.list.first_position() == 0);
    CHECK(f.shown() == ids{6, 5, 3, 7, 1, 2, 9});
    CHECK(f.take_all() == ids{6, 5, 3, 7, 1, 2, 9});
    CHECK(f.list.empty());
}

TEST_CASE("returned_list: the back waits for the line") {
    fixture f;
    f.add(1, requeue_position::back, 10);
    CHECK(f.list.first_position() == 10);
    CHECK_FALSE(f.take(9));
    f.add(4, requeue_position::original);
    CHECK(f.take(9) == 4U);
    CHECK_FALSE(f.take(9));
    CHECK(f.take(10) == 1U);
}

TEST_CASE("returned_list: what was withdrawn is passed over") {
    fixture f;
    for (const auto where :
         {requeue_position::original, requeue_position::front, requeue_position::back}) {
        const auto base = 10 * static_cast<std::uint64_t>(where);
        f.add(base, where, 100);
        f.add(base + 1, where, 100);
        f.withdraw(base);
    }
    CHECK(f.take_all() == ids{11, 1, 21});
    CHECK_FALSE(f.take());
    CHECK(f.list.empty());
}

TEST_CASE("returned_list: what was withdrawn does not pile up") {
    fixture f;
    f.add(1, requeue_position::front);
    f.add(2, requeue_position::back, 5);
    for (std::uint64_t id = 10; id != 1000; ++id) {
        f.add(id, id % 2 == 0 ? requeue_position::front : requeue_position::back, 5);
        f.withdraw(id);
    }
    std::size_t kept = 0;
    f.list.for_each_old([&](std::uint64_t) { ++kept; });
    CHECK(kept < 100);
    CHECK(f.take_all() == ids{1, 2});
}

TEST_CASE(
    "returned_list: a look ends where it is told to, and asks for what comes before the back") {
    fixture f;
    f.add(1, requeue_position::front);
    f.add(2, requeue_position::original);
    f.add(3, requeue_position::back, 6);
    f.add(4, requeue_position::back, 9);
    ids seen;
    const auto see = [&](std::uint64_t most) {
        seen.clear();
        f.list.for_each(
            [&](std::uint64_t id) {
                seen.push_back(id);
                return seen.size() != most;
            },
            [&](std::uint64_t position) {
                seen.push_back(100 + position);
                return seen.size() < most;
            });
        return seen;
    };
    CHECK(see(1) == ids{1});
    CHECK(see(2) == ids{1, 2});
    CHECK(see(100) == ids{1, 2, 106, 3, 109, 4});
    CHECK(see(5) == ids{1, 2, 106, 3, 109});
}

TEST_CASE("returned_list: of those in order only the first may be the oldest") {
    fixture f;
    for (const std::uint64_t id : {8U, 6U, 7U}) {
        f.add(id, requeue_position::original);
    }
    f.add(3, requeue_position::front);
    f.add(2, requeue_position::back, 9);
    ids old;
    f.list.for_each_old([&](std::uint64_t id) { old.push_back(id); });
    CHECK(old == ids{3, 6, 2});
}

TEST_CASE("returned_list: when nothing is meant any more") {
    fixture f;
    f.add(1, requeue_position::front);
    f.add(2, requeue_position::back, 5);
    f.meant.clear();
    f.list.forget_gone();
    CHECK(f.list.empty());
}
