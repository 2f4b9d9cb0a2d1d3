// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/lease_holder.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

using plain = railmq::core::single_threaded;
using holder_type = railmq::core::lease_holder<plain>;

TEST_CASE("lease_holder: room is what the prefetch leaves") {
    holder_type h;
    CHECK(h.prefetch.load() == 100);
    CHECK(h.room() == 100);
    h.prefetch.store(3);
    h.count_taken(2);
    CHECK(h.held() == 2);
    CHECK(h.room() == 1);
    h.count_taken(1);
    CHECK(h.room() == 0);
    h.count_settled(1);
    CHECK(h.held() == 2);
    CHECK(h.room() == 1);
    h.prefetch.store(1); // lowered below what it holds: no room, and no wrap
    CHECK(h.room() == 0);
    h.count_settled(2);
    CHECK(h.held() == 0);
    CHECK(h.room() == 1);
}

TEST_CASE("lease_holder: refers to something while a handle of any kind is left") {
    holder_type h;
    CHECK(h.is_unreferenced());
    h.count_taken(1);
    CHECK_FALSE(h.is_unreferenced());
    h.count_settled(1);
    h.stale_handles = 1;
    CHECK_FALSE(h.is_unreferenced());
    h.stale_handles = 0;
    CHECK(h.is_unreferenced());
}

TEST_CASE("lease_holder: its receives need the lock while anything is out of the ordinary") {
    holder_type h;
    CHECK_FALSE(h.needs_lock.load());
    h.waiting.store(1);
    h.update_needs_lock();
    CHECK(h.needs_lock.load());
    h.waiting.store(0);
    h.update_needs_lock();
    CHECK_FALSE(h.needs_lock.load());
    h.is_paused.store(true);
    h.update_needs_lock();
    CHECK(h.needs_lock.load());
    h.is_paused.store(false);
    h.is_open.store(false);
    h.update_needs_lock();
    CHECK(h.needs_lock.load());
}

TEST_CASE("lease: an empty one is none") {
    CHECK_FALSE(railmq::core::lease<plain>{});
}
