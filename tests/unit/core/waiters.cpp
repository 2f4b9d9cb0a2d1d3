// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/single_threaded.hpp>
#include <railmq/core/waiters.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

using plain = railmq::core::single_threaded;
using holder_type = railmq::core::lease_holder<plain>;
using receiver = railmq::core::receive_waiter<plain>;
using receiver_list = railmq::core::waiter_list<receiver>;

TEST_CASE("waiters: a higher priority first, and equal ones in the order of coming") {
    std::array<holder_type, 3> holders;
    holders[0].priority = 0;
    holders[1].priority = 5;
    holders[2].priority = -5;
    const std::size_t came[] = {0, 2, 1, 0, 1, 2, 0};
    std::array<receiver, 7> all;
    receiver_list list;
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].holder = &holders[came[i]];
        railmq::core::insert_by_priority(list, all[i]);
    }
    std::vector<std::size_t> order;
    for (const receiver& r : list) {
        order.push_back(static_cast<std::size_t>(&r - all.data()));
    }
    CHECK(order == std::vector<std::size_t>{2, 4, 0, 3, 6, 1, 5});
    list.clear();
}

TEST_CASE("waiters: one knows whether it is linked, and leaves from anywhere") {
    holder_type h;
    receiver a;
    receiver b;
    a.holder = b.holder = &h;
    receiver_list list;
    CHECK_FALSE(a.is_linked());
    railmq::core::insert_by_priority(list, a);
    railmq::core::insert_by_priority(list, b);
    CHECK(a.is_linked());
    list.erase(list.iterator_to(a));
    CHECK_FALSE(a.is_linked());
    CHECK(&list.front() == &b);
    list.clear();
}

TEST_CASE("waiters: fresh ones want one message, and have nothing") {
    receiver r;
    CHECK(r.max == 1);
    CHECK_FALSE(r.one);
    CHECK(r.many == nullptr);
    CHECK_FALSE(r.result);
    railmq::core::send_waiter s;
    CHECK(s.payload == nullptr);
    CHECK(s.props == nullptr);
    railmq::core::idle_waiter i;
    CHECK_FALSE(i.only_held);
    CHECK(i.of == nullptr);
}
