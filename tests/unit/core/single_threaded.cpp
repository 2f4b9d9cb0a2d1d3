// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <type_traits>

using railmq::core::null_lock;
using railmq::core::plain_atomic;
using railmq::core::single_threaded;

// The same calls on both must give the same results.
TEMPLATE_TEST_CASE(
    "plain_atomic: behaves as std::atomic does in one thread",
    "",
    plain_atomic<std::uint64_t>,
    std::atomic<std::uint64_t>) {
    TestType a{5};
    CHECK(a.load() == 5);
    CHECK(a.load(std::memory_order_relaxed) == 5);
    a.store(6, std::memory_order_release);
    CHECK(a.exchange(7) == 6);
    CHECK(a.fetch_add(3) == 7);
    CHECK(a.fetch_sub(1) == 10);
    CHECK(a.fetch_or(0x10) == 9);
    CHECK(a.fetch_and(0x11) == 0x19);
    CHECK(a.load() == 0x11);
    std::uint64_t expected = 1;
    CHECK_FALSE(a.compare_exchange_strong(expected, 2));
    CHECK(expected == 0x11);
    CHECK(a.compare_exchange_strong(expected, 2));
    CHECK(a.load() == 2);
    expected = 3;
    CHECK_FALSE(a.compare_exchange_weak(expected, 9));
    CHECK(expected == 2);
    a.fetch_sub(3);
    CHECK(a.load() == ~std::uint64_t{0}); // wraps
}

TEST_CASE("plain_atomic: costs what a variable costs") {
    CHECK(sizeof(plain_atomic<std::uint64_t>) == sizeof(std::uint64_t));
    CHECK(plain_atomic<bool>{}.load() == false);
    CHECK(plain_atomic<int*>{}.load() == nullptr);
    CHECK_FALSE(std::is_copy_constructible_v<plain_atomic<int>>);
}

TEST_CASE("single_threaded: its lock is never contended for") {
    null_lock lock;
    const std::lock_guard outer{lock};
    CHECK(lock.try_lock());
    CHECK_FALSE(single_threaded::concurrent);
    CHECK(std::is_same_v<single_threaded::short_lock, null_lock>);
}
