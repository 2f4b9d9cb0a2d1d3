// SPDX-License-Identifier: BSL-1.0
#include <railmq/runtime/threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using railmq::never;
using railmq::threaded;
using railmq::time_point;

TEST_CASE("threaded: the clock is the steady one, and the coarse one is never ahead of it") {
    const threaded::clock clock;
    CHECK(clock.resolution() >= 0ns);
    CHECK(clock.resolution() <= 20ms);
    time_point before = clock.now();
    for (int i = 0; i < 1'000; ++i) {
        const time_point coarse = clock.coarse_now();
        const time_point now = clock.now();
        REQUIRE(now >= before);
        REQUIRE(coarse <= now);
        before = now;
    }
    const auto steady = std::chrono::steady_clock::now().time_since_epoch();
    CHECK(clock.now().time_since_epoch() >= steady); // the same one
    CHECK(clock.now().time_since_epoch() - steady < 1min);
}

TEST_CASE("threaded: the short lock excludes") {
    threaded::short_lock lock;
    lock.lock();
    CHECK_FALSE(lock.try_lock());
    lock.unlock();
    CHECK(lock.try_lock());
    lock.unlock();
    std::uint64_t sum = 0; // no atomic: the lock alone protects it
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k) {
        threads.emplace_back([&] {
            for (int i = 0; i < 5'000; ++i) {
                const std::lock_guard guard{lock};
                ++sum;
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    CHECK(sum == 20'000);
}

TEST_CASE("threaded: a parked thread is woken by a finish, a poke or the time") {
    const threaded::clock clock;
    SECTION("the time") {
        threaded::parking_spot spot;
        const time_point until = clock.now() + 5ms;
        CHECK_FALSE(spot.wait(until));
        CHECK(clock.now() >= until); // never early
        CHECK_FALSE(spot.wait(time_point::min())); // long over
    }
    SECTION("a poke, once") {
        threaded::parking_spot spot;
        spot.poke();
        CHECK_FALSE(spot.wait(never));
        CHECK_FALSE(spot.finished());
        CHECK_FALSE(spot.wait(clock.now() + 1ms));
    }
    SECTION("a finish, for good") {
        threaded::parking_spot spot;
        spot.finish();
        CHECK(spot.wait(never));
        CHECK(spot.wait(time_point::min()));
        CHECK(spot.finished());
    }
    SECTION("from another thread") {
        threaded::parking_spot spot;
        std::thread other{[&] {
            spot.poke();
            spot.finish();
        }};
        while (!spot.wait(never)) {
        }
        other.join();
        CHECK(spot.finished());
    }
}

TEST_CASE("threaded: seeds differ") {
    CHECK(threaded::entropy() != threaded::entropy());
    CHECK(threaded::concurrent);
}
