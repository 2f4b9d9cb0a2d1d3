// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/deduplication_window.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using railmq::never;
using railmq::time_point;
using plain = railmq::core::single_threaded;
using window_type = railmq::core::deduplication_window<plain>;

namespace {

struct fixture {
    explicit fixture(std::size_t limit = std::numeric_limits<std::size_t>::max())
        : budget{limit} {}

    [[nodiscard]] bool add(const std::string& key, std::uint64_t id, time_point at) {
        return window.add(key, id, at, false);
    }
    [[nodiscard]] std::vector<std::string> known() const {
        std::vector<std::string> all;
        window.for_each([&](const auto& e) { all.push_back(e.key); });
        return all;
    }

    railmq::core::memory_budget<plain> budget;
    window_type window{10s, budget};
};

constexpr time_point at(int seconds) {
    return time_point{std::chrono::seconds{seconds}};
}

} // namespace

TEST_CASE("deduplication_window: an id is known until it is as old as the window is long") {
    fixture f;
    CHECK(f.window.next_end() == never);
    REQUIRE(f.add("a", 7, at(1)));
    REQUIRE(f.add("b", 8, at(2)));
    REQUIRE(f.window.find("a") != nullptr);
    CHECK(f.window.find("a")->id == 7);
    CHECK(f.window.find("c") == nullptr);
    CHECK(f.window.size() == 2);
    CHECK(f.window.next_end() == at(11));
    f.window.forget_old(at(11) - 1ns);
    CHECK(f.window.size() == 2);
    f.window.forget_old(at(11));
    CHECK(f.window.find("a") == nullptr);
    CHECK(f.known() == std::vector<std::string>{"b"});
    CHECK(f.window.next_end() == at(12));
    f.window.forget_old(at(100));
    CHECK(f.window.size() == 0);
    CHECK(f.budget.used() == 0);
}

TEST_CASE("deduplication_window: what is taken back is not known, wherever it stands") {
    fixture f;
    REQUIRE(f.add("a", 1, at(1)));
    REQUIRE(f.add("b", 2, at(2)));
    REQUIRE(f.add("c", 3, at(3)));
    SECTION("the last") {
        f.window.take_back_last();
        CHECK(f.known() == std::vector<std::string>{"a", "b"});
    }
    SECTION("by its message") {
        f.window.take_back(2);
        f.window.take_back(9);
        CHECK(f.known() == std::vector<std::string>{"a", "c"});
        REQUIRE(f.add("b", 4, at(4))); // it may come again
        CHECK(f.window.find("b")->id == 4);
        f.window.forget_old(at(13));
        CHECK(f.known() == std::vector<std::string>{"b"});
    }
    f.window.forget_old(at(100));
    CHECK(f.budget.used() == 0);
}

TEST_CASE("deduplication_window: the memory limit holds, unless it must not") {
    fixture f{1'000};
    std::uint64_t n = 0;
    while (f.add(std::string(50, static_cast<char>('a' + n)), n, at(1))) {
        ++n;
    }
    CHECK(n > 2);
    CHECK(n < 20);
    CHECK(f.window.size() == n);
    CHECK(f.window.find(std::string(50, static_cast<char>('a' + n))) == nullptr);
    CHECK(f.window.add("must", 99, at(1), true));
    CHECK(f.window.find("must") != nullptr);
    CHECK(f.budget.used() > 1'000 - 200);
    f.window.forget_old(at(11));
    CHECK(f.budget.used() == 0);
}

TEST_CASE("deduplication_window: many ids, each found, and what they took comes back at the end") {
    railmq::core::memory_budget<plain> budget{std::numeric_limits<std::size_t>::max()};
    {
        window_type window{1s, budget};
        for (std::uint64_t n = 0; n != 10'000; ++n) {
            REQUIRE(window.add(std::to_string(n), n, time_point{n * 1ms}, false));
            window.forget_old(time_point{n * 1ms});
            CHECK(window.size() == std::min<std::uint64_t>(n + 1, 1'000));
        }
        CHECK(window.find("8999") == nullptr);
        CHECK(window.find("9000")->id == 9'000);
        CHECK(budget.used() != 0);
    }
    CHECK(budget.used() == 0);
}
