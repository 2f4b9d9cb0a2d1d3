// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/ack_tracker.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <vector>

using railmq::core::ack_tracker;

TEST_CASE("ack_tracker: nothing is handed out, nothing is waited for") {
    const ack_tracker acks{100, 7};
    CHECK(acks.position() == 100);
    CHECK(acks.committable() == 100);
    CHECK(acks.unacked() == 0);
    CHECK(acks.epoch() == 7);
    CHECK_FALSE(acks.is_unacked(100));
}

TEST_CASE("ack_tracker: what can be committed is the lowest that is unacknowledged") {
    ack_tracker acks{10};
    for (std::uint64_t o = 10; o < 15; ++o) {
        acks.hand_out(o);
    }
    CHECK(acks.committable() == 10);
    CHECK(acks.ack(1, 12));
    CHECK(acks.ack(1, 11));
    CHECK(acks.committable() == 10); // work on 10 goes on elsewhere
    CHECK(acks.ack(1, 10));
    CHECK(acks.committable() == 13);
    CHECK(acks.unacked() == 2);
    CHECK(acks.ack(1, 14));
    CHECK(acks.committable() == 13);
    CHECK(acks.ack(1, 13));
    CHECK(acks.committable() == 15);
    CHECK(acks.position() == 15);
}

TEST_CASE("ack_tracker: a record is acknowledged once, and only if it was handed out") {
    ack_tracker acks{10};
    acks.hand_out(10);
    acks.hand_out(11);
    CHECK_FALSE(acks.ack(1, 9));
    CHECK_FALSE(acks.ack(1, 12));
    CHECK(acks.ack(1, 11));
    CHECK_FALSE(acks.ack(1, 11));
    CHECK(acks.ack(1, 10));
    CHECK_FALSE(acks.ack(1, 10));
    CHECK(acks.committable() == 12);
    CHECK(acks.unacked() == 0);
}

TEST_CASE("ack_tracker: gaps are no records, and cost nothing however wide they are") {
    ack_tracker acks{0};
    acks.hand_out(5);
    acks.hand_out(6);
    acks.hand_out(1'000'000'000'000);
    acks.hand_out(1'000'000'000'007);
    CHECK(acks.committable() == 5);
    CHECK_FALSE(acks.ack(1, 7));
    CHECK_FALSE(acks.is_unacked(999'999'999'999));
    CHECK(acks.is_unacked(1'000'000'000'000));
    CHECK(acks.ack(1, 5));
    CHECK(acks.ack(1, 6));
    CHECK(acks.committable() == 1'000'000'000'000); // and not 7: nothing can be read there
    CHECK(acks.ack(1, 1'000'000'000'007));
    CHECK(acks.committable() == 1'000'000'000'000);
    CHECK(acks.ack(1, 1'000'000'000'000));
    CHECK(acks.committable() == 1'000'000'000'008);
    CHECK(acks.ring_bytes() == 32);
}

TEST_CASE("ack_tracker: what is skipped can be committed once everything before it is done") {
    ack_tracker acks{0};
    acks.hand_out(0);
    acks.skip_to(50); // a marker, or records of others
    CHECK(acks.position() == 50);
    CHECK(acks.committable() == 0);
    acks.skip_to(20);
    CHECK(acks.position() == 50);
    CHECK(acks.ack(1, 0));
    CHECK(acks.committable() == 50);
    acks.hand_out(50);
    acks.skip_to(60);
    acks.hand_out(60);
    CHECK_FALSE(acks.is_unacked(51));
    CHECK(acks.is_unacked(60));
    CHECK(acks.ack(1, 50));
    CHECK(acks.committable() == 60);
}

TEST_CASE("ack_tracker: [BR18] an acknowledgement from before a reset does not count") {
    ack_tracker acks{100, 3};
    acks.hand_out(100);
    acks.hand_out(101);
    const auto before = acks.epoch();
    acks.reset(100); // revoked, and assigned again
    CHECK(acks.position() == 100);
    CHECK(acks.committable() == 100);
    CHECK(acks.unacked() == 0);
    CHECK_FALSE(acks.ack(before, 100));
    acks.hand_out(100);
    CHECK_FALSE(acks.ack(before, 100));
    CHECK(acks.committable() == 100);
    CHECK(acks.ack(acks.epoch(), 100));
    CHECK(acks.committable() == 101);
}

TEST_CASE("ack_tracker: in order it needs no more memory than it began with") {
    ack_tracker acks;
    for (std::uint64_t o = 0; o < 100'000; ++o) {
        acks.hand_out(o);
        if (o >= 255) {
            REQUIRE(acks.ack(1, o - 255));
            REQUIRE(acks.committable() == o - 254);
        }
    }
    CHECK(acks.ring_bytes() == 32);
    CHECK(acks.unacked() == 255);
}

TEST_CASE("ack_tracker: one that stays long costs a bit for each record after it") {
    ack_tracker acks;
    for (std::uint64_t o = 0; o < 100'000; ++o) {
        acks.hand_out(o);
        if (o != 0) {
            acks.ack(1, o);
        }
    }
    CHECK(acks.committable() == 0);
    CHECK(acks.unacked() == 1);
    CHECK(acks.ring_bytes() == 131'072 / 8);
    CHECK(acks.ack(1, 0));
    CHECK(acks.committable() == 100'000);
}

TEST_CASE("ack_tracker: the same as a set, whatever is done") {
    std::mt19937_64 random{railmq::test::seed(72)};
    for (int n = 0; n < 100; ++n) {
        ack_tracker acks;
        std::set<std::uint64_t> unacked;
        std::vector<std::uint64_t> handed;
        std::uint64_t position = 0;
        const auto gaps = random() % 3;
        const auto eager = random() % 5 + 1; // how far acknowledgements lag behind
        for (int step = 0; step < 2'000; ++step) {
            switch (random() % (6 + eager)) {
            case 0:
                if (random() % 50 == 0) {
                    position = random() % 1'000;
                    acks.reset(position);
                    unacked.clear();
                    handed.clear();
                }
                break;
            case 1:
                if (gaps != 0) {
                    position += random() % 5;
                    acks.skip_to(position);
                }
                break;
            case 2:
            case 3:
            case 4:
                position += gaps == 2 ? random() % 3 : 0;
                acks.hand_out(position);
                unacked.insert(position);
                handed.push_back(position++);
                break;
            default:
                if (!handed.empty()) {
                    const bool first = random() % 2 == 0 && !unacked.empty();
                    const auto offset = first ? *unacked.begin()
                                              : handed[random() % handed.size()] +
                                                    (random() % 4 == 0 ? random() % 3 : 0);
                    REQUIRE(acks.is_unacked(offset) == unacked.contains(offset));
                    REQUIRE(acks.ack(acks.epoch(), offset) == (unacked.erase(offset) == 1));
                }
            }
            REQUIRE(acks.unacked() == unacked.size());
            REQUIRE(acks.position() == position);
            REQUIRE(acks.committable() == (unacked.empty() ? position : *unacked.begin()));
        }
    }
}
