// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/consumer_board.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <string>
#include <vector>

using plain = railmq::core::single_threaded;
using board_type = railmq::core::consumer_board<plain>;
using holder_type = board_type::holder_type;

TEST_CASE("consumer_board: numbers are given in order, and again once nobody refers to them") {
    board_type board;
    holder_type a;
    holder_type b;
    holder_type c;
    board.add(a, "q");
    board.add(b, "q");
    CHECK(a.number == 1);
    CHECK(b.number == 2);
    CHECK(&board.numbered(2) == &b);
    CHECK(board.open_count() == 2);
    a.count_taken(1);
    board.stop(a);
    CHECK(board.open_count() == 1);
    CHECK_FALSE(board.remove_if_unreferenced(a));
    a.count_settled(1);
    a.stale_handles = 1;
    CHECK_FALSE(board.remove_if_unreferenced(a));
    a.stale_handles = 0;
    CHECK(board.remove_if_unreferenced(a));
    CHECK_FALSE(board.remove_if_unreferenced(a)); // once
    board.add(c, "q");
    CHECK(c.number == 1);
    std::vector<const holder_type*> all;
    board.for_each([&](const holder_type& h) { all.push_back(&h); });
    CHECK(all == std::vector<const holder_type*>{&c, &b});
}

TEST_CASE("consumer_board: sums survive those who have gone") {
    board_type board;
    holder_type a;
    holder_type b;
    b.acks_on_delivery = true;
    board.add(a, "q");
    board.add(b, "q");
    a.count_taken(5);
    a.count_settled(3);
    a.slow_settlements = 1;
    b.count_taken(2);
    CHECK(board.held_count() == 2); // what counts as acknowledged is not held
    CHECK(board.taken_count() == 7);
    CHECK(board.unacked_count() == 1);
    a.count_settled(2);
    board.stop(a);
    REQUIRE(board.remove_if_unreferenced(a));
    CHECK(board.held_count() == 0);
    CHECK(board.taken_count() == 7);
    CHECK(board.unacked_count() == 1);
}

TEST_CASE("consumer_board: only an open one that is not paused and has room may take") {
    board_type board;
    holder_type h;
    h.prefetch.store(1);
    board.add(h, "q");
    CHECK(board.choose_mode() == nullptr);
    CHECK(board.may_take(h));
    h.is_paused.store(true);
    CHECK_FALSE(board.may_take(h));
    h.is_paused.store(false);
    h.count_taken(1);
    CHECK_FALSE(board.may_take(h));
    h.count_settled(1);
    CHECK(board.may_take(h));
    board.stop(h);
    CHECK_FALSE(board.may_take(h));
}

TEST_CASE("consumer_board: priorities matter only where they differ") {
    board_type board;
    holder_type a;
    holder_type b;
    holder_type c;
    a.priority = b.priority = 4;
    c.priority = 5;
    board.add(a, "q");
    board.add(b, "q");
    CHECK(board.choose_mode() == nullptr);
    CHECK_FALSE(board.chooses());
    board.add(c, "q");
    CHECK(board.choose_mode() == nullptr);
    CHECK(board.chooses());
    board.stop(c);
    CHECK(board.choose_mode() == nullptr);
    CHECK_FALSE(board.chooses());
}

TEST_CASE("consumer_board: all must agree on single-active, as long as they are open") {
    board_type board;
    holder_type a;
    holder_type b;
    b.single_active = true;
    board.add(a, "orders");
    try {
        board.add(b, "orders");
        FAIL("it was accepted");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == railmq::errc::options_mismatch);
        CHECK(std::string{e.what()}.find("'orders'") != std::string::npos);
    }
    CHECK(b.number == 0);
    CHECK(board.open_count() == 1);
    board.stop(a);
    board.add(b, "orders");
    CHECK(board.choose_mode() == &b);
}

TEST_CASE("consumer_board: one active consumer, the oldest of the highest priority") {
    board_type board;
    holder_type first;
    holder_type second;
    holder_type urgent;
    first.single_active = second.single_active = urgent.single_active = true;
    urgent.priority = 1;
    board.add(first, "q");
    CHECK(board.choose_mode() == &first);
    board.add(second, "q");
    CHECK(board.choose_mode() == nullptr); // it stays
    CHECK(board.may_take(first));
    CHECK_FALSE(board.may_take(second));
    CHECK(board.chooses());

    // A higher priority takes over once the active one has settled everything.
    first.count_taken(1);
    board.add(urgent, "q");
    CHECK(board.choose_mode() == nullptr);
    CHECK(board.is_draining(first));
    CHECK(first.wants_settlements);
    CHECK_FALSE(board.may_take(first));
    CHECK_FALSE(board.may_take(urgent));
    first.count_settled(1);
    CHECK(board.choose_active() == &urgent);
    CHECK(board.may_take(urgent));
    CHECK_FALSE(board.may_take(first));

    board.stop(urgent);
    CHECK(board.choose_mode() == &first); // the oldest of those that are left
    board.stop(first);
    CHECK(board.choose_mode() == &second);
    board.stop(second);
    CHECK(board.choose_mode() == nullptr);
}
