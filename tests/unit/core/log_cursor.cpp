// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/log_cursor.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

using railmq::time_point;
using railmq::unlimited;
using railmq::core::log_entry;
using railmq::core::log_input;
using railmq::core::log_layout;
using railmq::core::payload_ops_of;
using railmq::core::read_status;
using plain = railmq::core::single_threaded;
using segment_type = railmq::core::log_segment<plain>;
using pin_type = railmq::core::log_pin<plain>;

namespace {

/// One segment and the ends of a log that has no other.
struct fixture {
    void add(int value, std::optional<std::string_view> key = {}) {
        segment_type& s = *segment.get();
        REQUIRE(s.reserve(1, 64));
        log_input in;
        in.payload = &value;
        in.key = key;
        if (value == 7) {
            in.props = std::make_unique<railmq::properties>();
            in.props->message_id = "seven";
        }
        s.write(s.end(), in, time_point{});
        s.publish(time_point{});
        ends.end.store(s.end());
    }
    std::vector<int> read(std::size_t records = unlimited, std::size_t bytes = unlimited) {
        std::vector<int> values;
        status = cursor.read(records, bytes, [&](const log_entry& e) {
            values.push_back(*static_cast<const int*>(e.payload));
            last = e;
        });
        return values;
    }

    log_layout layout{payload_ops_of<int>::value, 8};
    railmq::core::memory_budget<plain> budget{unlimited};
    pin_type segment =
        pin_type::adopt(segment_type::make(payload_ops_of<int>::value, layout, budget, 0));
    railmq::core::log_ends<plain> ends{};
    railmq::core::log_cursor<plain> cursor{};
    read_status status{};
    log_entry last{};
};

} // namespace

TEST_CASE("log_cursor: reads what is published, over blocks, and then what comes") {
    fixture f;
    CHECK(f.read().empty());
    CHECK(f.status == read_status::elsewhere); // it is nowhere yet
    for (int i = 0; i < 20; ++i) {
        f.add(i);
    }
    f.cursor.place(f.ends, f.segment.get(), 0, 0);
    CHECK(f.read(3) == std::vector{0, 1, 2});
    CHECK(f.cursor.position() == 3);
    CHECK(f.read(5) == std::vector{3, 4, 5, 6, 7});
    CHECK(f.last.props->message_id == "seven");
    CHECK(f.read().size() == 12);
    CHECK(f.status == read_status::ok);
    CHECK(f.read().empty());
    CHECK(f.status == read_status::at_end);
    for (int i = 20; i < 40; ++i) {
        f.add(i);
        CHECK(f.read() == std::vector{i});
    }
}

TEST_CASE("log_cursor: begins anywhere, also at an end where the next block is missing") {
    for (std::uint64_t from = 0; from <= 24; ++from) {
        fixture f;
        for (int i = 0; i < 24; ++i) { // three full blocks
            f.add(i);
        }
        f.cursor.place(f.ends, f.segment.get(), from, from);
        f.add(24);
        const auto values = f.read();
        REQUIRE(values.size() == 25 - from);
        CHECK(values.front() == static_cast<int>(from));
    }
}

TEST_CASE("log_cursor: one that came to an empty segment asks for its place again") {
    fixture f;
    f.cursor.place(f.ends, f.segment.get(), 0, 0);
    CHECK(f.read().empty());
    CHECK(f.status == read_status::at_end);
    f.add(1);
    CHECK(f.read().empty());
    CHECK(f.status == read_status::elsewhere);
    f.cursor.place(f.ends, f.segment.get(), 0, 0);
    CHECK(f.read() == std::vector{1});
}

TEST_CASE("log_cursor: a limit of bytes lets one record through in any case [P03]") {
    fixture f;
    for (int i = 0; i < 10; ++i) {
        f.add(i, "key");
    }
    constexpr std::size_t one = railmq::log_record_overhead + sizeof(int) + 3;
    f.cursor.place(f.ends, f.segment.get(), 0, 0);
    CHECK(f.read(unlimited, 1) == std::vector{0});
    CHECK(f.read(unlimited, 2 * one - 1) == std::vector{1});
    CHECK(f.read(unlimited, 2 * one) == std::vector{2, 3});
    CHECK(f.read(1, 100'000) == std::vector{4});
    CHECK(f.read(0, 0) == std::vector{5});
    CHECK(f.last.key == "key");
    CHECK(f.last.has_key);
}

TEST_CASE("log_cursor: skips what was removed, and says when its place is gone") {
    fixture f;
    for (int i = 0; i < 30; ++i) {
        f.add(i);
    }
    f.cursor.place(f.ends, f.segment.get(), 0, 0);
    for (std::uint64_t i = 0; i < 30; i += 2) {
        f.segment.get()->remove(i);
    }
    CHECK(f.read(2) == std::vector{1, 3});
    f.ends.start.store(10);
    CHECK(f.read().empty());
    CHECK(f.status == read_status::out_of_range);
    CHECK(f.cursor.position() == 4);
    f.ends.start.store(4);
    CHECK(f.read().size() == 13);
    f.ends.end.store(50); // more records, elsewhere
    CHECK(f.read().empty());
    CHECK(f.status == read_status::elsewhere);
}

TEST_CASE("log_cursor: a pin outlives the cursor's place") {
    fixture f;
    f.add(42);
    f.cursor.place(f.ends, f.segment.get(), 0, 0);
    CHECK(f.read() == std::vector{42});
    const pin_type kept = f.cursor.pin();
    CHECK(f.segment.get()->is_pinned());
    f.cursor.unpin();
    f.segment.reset();
    CHECK(*static_cast<const int*>(f.last.payload) == 42);
    f.ends.end.store(5);
    CHECK(f.read().empty());
    CHECK(f.status == read_status::elsewhere);
}

TEST_CASE("log_cursor: a reader that throws does not get the same record again") {
    fixture f;
    for (int i = 0; i < 3; ++i) {
        f.add(i);
    }
    f.cursor.place(f.ends, f.segment.get(), 0, 0);
    CHECK_THROWS_AS(
        f.cursor.read(9, unlimited, [](const log_entry&) { throw std::runtime_error{"no"}; }),
        std::runtime_error);
    CHECK(f.cursor.position() == 1);
    CHECK(f.read() == std::vector{1, 2});
}
