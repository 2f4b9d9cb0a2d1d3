// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/producer_states.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>
#include <limits>

using namespace std::chrono_literals;
using railmq::duration;
using railmq::errc;
using railmq::time_point;
using railmq::core::producer_batch;
using railmq::core::producer_states;
using railmq::core::sequence_after;

namespace {

constexpr std::int32_t last_sequence = std::numeric_limits<std::int32_t>::max();

/// A partition that stores whatever is let through.
struct fixture {
    producer_states states{24h};
    time_point now{};
    std::uint64_t end = 100;

    producer_states::verdict send(const producer_batch& b) {
        const auto v = states.check(b, now);
        if (v.failed == errc{} && !v.duplicate) {
            states.reserve(b);
            states.record(b, end, now);
            end += b.records;
        }
        return v;
    }
    bool stores(const producer_batch& b) {
        const std::uint64_t before = end;
        const auto v = send(b);
        return v.failed == errc{} && !v.duplicate && end == before + b.records;
    }
    errc refuses(const producer_batch& b) {
        const std::uint64_t before = end;
        const auto v = send(b);
        CHECK(end == before);
        return v.failed;
    }
};

} // namespace

TEST_CASE("producer_states: sequences follow each other, epochs fence [W01]") {
    fixture f;
    CHECK(f.stores({1, 0, 0}));
    CHECK(f.stores({1, 0, 1}));
    CHECK(f.refuses({1, 0, 5}) == errc::sequence_out_of_order);
    CHECK(f.refuses({1, 1, 2}) == errc::sequence_out_of_order); // a new epoch starts at 0
    CHECK(f.stores({1, 1, 0}));
    CHECK(f.refuses({1, 0, 2}) == errc::fenced);
    CHECK(f.refuses({1, 0, 0}) == errc::fenced); // not even a duplicate of the old epoch
    CHECK(f.stores({1, 1, 1}));
    CHECK(f.stores({2, 0, 0})); // another producer, numbers of its own
    CHECK(f.states.size() == 2);
}

TEST_CASE("producer_states: a batch among the last five is a duplicate with its offset [W02]") {
    fixture f;
    for (std::int32_t i = 0; i < 7; ++i) {
        REQUIRE(f.stores({1, 0, i * 3, 3}));
    }
    for (std::int32_t i = 0; i < 7; ++i) {
        const auto v = f.send({1, 0, i * 3, 3});
        if (i < 2) {
            CHECK(v.failed == errc::sequence_out_of_order); // older than the last five
        } else {
            CHECK(v.failed == errc{});
            CHECK(v.duplicate);
            CHECK(v.offset == 100 + static_cast<std::uint64_t>(i) * 3);
        }
    }
    CHECK(f.refuses({1, 0, 18, 2}) == errc::sequence_out_of_order); // a part of a batch
    CHECK(f.refuses({1, 0, 19, 2}) == errc::sequence_out_of_order);
    CHECK(f.refuses({1, 0, 18, 4}) == errc::sequence_out_of_order); // more than a batch
    CHECK(f.end == 121);
    CHECK(f.stores({1, 0, 21, 1}));
}

TEST_CASE("producer_states: after 2147483647 comes 0 [W03]") {
    CHECK(sequence_after(last_sequence, 1) == 0);
    CHECK(sequence_after(last_sequence - 1, 3) == 1);
    CHECK(sequence_after(0, 0) == 0);

    fixture f;
    REQUIRE(f.stores({1, 0, last_sequence}));
    CHECK(f.refuses({1, 0, 1}) == errc::sequence_out_of_order);
    CHECK(f.stores({1, 0, 0}));

    fixture across;
    REQUIRE(across.stores({1, 0, last_sequence - 1, 4})); // up to 1
    CHECK(across.refuses({1, 0, 0}) == errc::sequence_out_of_order);
    const auto again = across.send({1, 0, last_sequence - 1, 4});
    CHECK(again.duplicate);
    CHECK(again.offset == 100);
    CHECK(across.stores({1, 0, 2}));
}

TEST_CASE("producer_states: batch 10 to 12, again, a gap, an old epoch [E12]") {
    fixture f;
    REQUIRE(f.stores({1, 3, 9})); // the first of an unknown producer: any sequence
    REQUIRE(f.stores({1, 3, 10, 3}));
    const auto again = f.send({1, 3, 10, 3});
    CHECK(again.duplicate);
    CHECK(again.offset == 101);
    CHECK(f.refuses({1, 3, 15}) == errc::sequence_out_of_order);
    CHECK(f.refuses({1, 2, 13}) == errc::fenced);
    CHECK(f.stores({1, 3, 13}));
}

TEST_CASE("producer_states: a producer expires when it was silent for so long [W04]") {
    fixture f;
    REQUIRE(f.stores({1, 5, 0}));
    f.now += 12h;
    REQUIRE(f.stores({2, 0, 0}));
    f.now += 12h - 1ns;
    CHECK(f.refuses({1, 5, 7}) == errc::sequence_out_of_order); // a refusal is no use
    CHECK(f.states.expire(f.now) == 0);
    f.now += 1ns;
    CHECK(f.states.expire(f.now) == 1);
    CHECK(f.states.size() == 1);
    CHECK(f.refuses({2, 0, 7}) == errc::sequence_out_of_order);
    CHECK(f.stores({1, 2, 7})); // forgotten: any epoch, any sequence
    CHECK(f.states.size() == 2);

    producer_states lasting{duration::max()};
    lasting.reserve({1, 0, 0});
    lasting.record({1, 0, 0}, 0, time_point::min());
    CHECK(lasting.expire(time_point::max()) == 0);
}

TEST_CASE("producer_states: a use starts the time anew, in whatever order") {
    fixture f;
    for (std::uint64_t id = 0; id < 10; ++id) {
        REQUIRE(f.stores({id, 0, 0}));
        f.now += 1h;
    }
    REQUIRE(f.stores({0, 0, 1}));
    f.now = time_point{} + 29h;
    CHECK(f.states.expire(f.now) == 5); // 1 to 5, and not 0
    CHECK(f.refuses({0, 0, 7}) == errc::sequence_out_of_order);
    CHECK(f.stores({0, 0, 2}));
}

TEST_CASE("producer_states: numbers that cannot be are refused") {
    fixture f;
    CHECK(f.refuses({1, 0, -1}) == errc::invalid_argument);
    CHECK(f.refuses({1, 0, 0, 0}) == errc::invalid_argument);
    CHECK(f.refuses({1, 0, 0, 0xffffffff}) == errc::invalid_argument);
    CHECK(f.states.size() == 0);
}

TEST_CASE("producer_states: room that was made and not used does no harm") {
    fixture f;
    f.states.reserve({1, 0, 0});
    f.states.reserve({1, 0, 0});
    CHECK(f.states.size() == 0);
    CHECK(f.stores({1, 0, 0}));
    CHECK(f.stores({2, 0, 0}));
}
