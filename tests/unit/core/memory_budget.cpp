// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/single_threaded.hpp>
#include <railmq/runtime/threaded.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <limits>
#include <thread>
#include <vector>

TEMPLATE_TEST_CASE(
    "memory_budget: takes up to the limit, and not beyond it unless it must",
    "",
    railmq::core::single_threaded,
    railmq::threaded) {
    railmq::core::memory_budget<TestType> budget{100};
    CHECK(budget.limit() == 100);
    CHECK(budget.used() == 0);
    CHECK(budget.try_charge(60));
    CHECK_FALSE(budget.try_charge(41));
    CHECK(budget.used() == 60);
    CHECK(budget.try_charge(40));
    CHECK_FALSE(budget.try_charge(1));
    CHECK(budget.try_charge(0));
    budget.charge(50);
    CHECK(budget.used() == 150);
    CHECK_FALSE(budget.try_charge(0)); // above the limit nothing is free
    budget.release(60);
    CHECK(budget.used() == 90);
    CHECK(budget.try_charge(10));
}

TEST_CASE("memory_budget: sums near the largest number do not wrap") {
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    railmq::core::memory_budget<railmq::core::single_threaded> budget{most};
    CHECK(budget.try_charge(most - 1));
    CHECK_FALSE(budget.try_charge(2));
    CHECK(budget.try_charge(1));
    railmq::core::memory_budget<railmq::core::single_threaded> small{10};
    CHECK_FALSE(small.try_charge(most));
    CHECK(small.used() == 0);
}

TEST_CASE("memory_budget: threads never pass the limit together") {
    railmq::core::memory_budget<railmq::threaded> budget{1'000};
    std::vector<std::thread> threads;
    std::vector<std::size_t> got(4);
    for (std::size_t k = 0; k < got.size(); ++k) {
        threads.emplace_back([&, k] {
            for (int i = 0; i < 2'000; ++i) {
                got[k] += budget.try_charge(3) ? 1 : 0;
                if (i % 7 == 0 && got[k] != 0) {
                    budget.release(3);
                    --got[k];
                }
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    std::size_t sum = 0;
    for (const std::size_t n : got) {
        sum += 3 * n;
    }
    CHECK(budget.used() == sum);
    CHECK(budget.used() <= budget.limit());
}

TEST_CASE("memory_budget: payloads leave before blocks are refused") {
    railmq::core::memory_budget<railmq::core::single_threaded> budget{1'000};
    budget.charge_payload(500);
    CHECK(budget.payloads() == 500);
    CHECK(budget.used() == 0);
    CHECK(budget.try_charge(250));
    CHECK_FALSE(budget.is_tight());
    budget.charge_payload(1);
    CHECK(budget.is_tight());
    CHECK(budget.try_charge(750)); // which cannot leave, so only they are refused
    CHECK_FALSE(budget.try_charge(1));
    budget.release(1'000);
    budget.release_payload(501);
    CHECK_FALSE(budget.is_tight());
    CHECK(budget.payloads() == 0);
}
