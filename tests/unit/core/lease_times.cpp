// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/lease_times.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>

using namespace std::chrono_literals;
using railmq::never;
using railmq::time_point;
using times_type = railmq::core::lease_times<railmq::core::single_threaded>;

namespace {

/// Positions 0 to 9 until 1 s, 10 to 19 until 2 s, and so on up to 5 s.
struct in_tens : times_type {
    in_tens() {
        for (std::uint64_t n = 0; n < 5; ++n) {
            add(10 * n, time_point{1s * (n + 1)});
        }
    }
};

} // namespace

TEST_CASE("lease_times: nothing is covered before the first entry, and what is later never") {
    times_type times;
    CHECK_FALSE(times.covers(time_point{}));
    CHECK(times.at(0) == never);
    times.add(0, time_point{5s});
    CHECK(times.covers(time_point{5s}));
    CHECK(times.covers(time_point{4s}));
    CHECK_FALSE(times.covers(time_point{5s + 1ns}));
}

TEST_CASE("lease_times: an entry holds from its position up to the next one's") {
    const in_tens times;
    CHECK(times.at(0) == time_point{1s});
    CHECK(times.at(9) == time_point{1s});
    CHECK(times.at(10) == time_point{2s});
    CHECK(times.at(49) == time_point{5s});
    CHECK(times.at(1'000) == time_point{5s});
}

TEST_CASE("lease_times: as long as nothing is handed out, one entry is enough") {
    times_type times;
    for (auto end = time_point{1s}; end < time_point{100s}; end += 1s) {
        times.add(7, end);
    }
    CHECK(times.size() == 1);
    CHECK(times.at(7) == time_point{99s});
}

TEST_CASE("lease_times: what lies before the oldest lease is forgotten") {
    in_tens times;
    times.forget_before(9);
    CHECK(times.size() == 5);
    times.forget_before(10);
    CHECK(times.size() == 4);
    CHECK(times.at(10) == time_point{2s});
    CHECK(times.at(3) == time_point{2s}); // later, never sooner
    times.forget_before(1'000);
    CHECK(times.size() == 1);
    CHECK(times.at(1'000) == time_point{5s});
}

TEST_CASE("lease_times: entries without a lease are forgotten in between as well") {
    in_tens times;
    // Leases at 5 and at 32, and nothing else.
    times.thin_out([](std::uint64_t n) -> std::uint64_t { return n <= 5 ? 5 : n <= 32 ? 32 : 50; });
    CHECK(times.size() == 3); // theirs, and the last, which is for what comes
    CHECK(times.at(5) == time_point{1s});
    CHECK(times.at(32) == time_point{4s});
    CHECK(times.at(50) == time_point{5s});
    CHECK(times.covers(time_point{5s}));
}
