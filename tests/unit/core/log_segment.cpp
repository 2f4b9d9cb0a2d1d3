// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/log_segment.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

using namespace std::chrono_literals;
using railmq::time_point;
using railmq::core::log_input;
using railmq::core::log_layout;
using railmq::core::payload_ops_of;
using plain = railmq::core::single_threaded;
using budget_type = railmq::core::memory_budget<plain>;
using segment_type = railmq::core::log_segment<plain>;
using pin_type = railmq::core::log_pin<plain>;
using record = railmq::core::log_record<plain>;

namespace {

/// A segment of strings.
struct fixture {
    explicit fixture(std::uint64_t base = 0, std::size_t limit = ~std::size_t{0})
        : budget{limit}
        , segment{pin_type::adopt(
              segment_type::make(payload_ops_of<std::string>::value, layout, budget, base))} {}

    segment_type& operator*() const { return *segment.get(); }
    segment_type* operator->() const { return segment.get(); }

    void
    write(std::uint64_t offset, std::optional<std::string_view> key, const char* value, int t = 0) {
        const auto bytes = key ? railmq::core::key_arena<plain>::bytes_of(*key) : 0;
        REQUIRE(segment.get()->reserve(1, bytes));
        log_input in;
        in.key = key;
        alignas(std::string) std::array<std::byte, sizeof(std::string)> raw;
        if (value != nullptr) {
            in.payload = ::new (static_cast<void*>(raw.data())) std::string{value};
        }
        segment.get()->write(offset, in, time_point{std::chrono::seconds{t}});
    }
    void
    add(std::uint64_t offset, std::optional<std::string_view> key, const char* value, int t = 0) {
        write(offset, key, value, t);
        segment.get()->publish(time_point::max());
    }
    [[nodiscard]] std::string value(std::uint64_t i) const {
        return *static_cast<std::string*>(segment.get()->payload_of(*segment.get()->at(i)));
    }

    log_layout layout{payload_ops_of<std::string>::value, railmq::unlimited};
    budget_type budget;
    pin_type segment;
};

constexpr const char* long_text = "a text that is too long for the inside of a string object";

} // namespace

TEST_CASE("log_segment: what is written is seen once it is published") {
    fixture f{40};
    CHECK(f->end() == 40);
    f.write(40, "key", long_text, 5);
    f.write(41, std::nullopt, "b", 7);
    CHECK(f->published() == 0);
    CHECK(f->live() == 0);
    f->publish(time_point::max());
    REQUIRE(f->published() == 2);
    CHECK(f->end() == 42);
    CHECK(f->live() == 2);
    CHECK(f->key_of(*f->at(0)) == "key");
    CHECK(segment_type::has_key(*f->at(0)));
    CHECK_FALSE(segment_type::has_key(*f->at(1)));
    CHECK(f.value(0) == long_text);
    CHECK(f.value(1) == "b");
    const std::size_t overhead = railmq::log_record_overhead;
    CHECK(f->live_bytes() == 2 * overhead + 3 + std::string_view{long_text}.size() + 1);
    CHECK(f->newest() == segment_type::dated{41, time_point{7s}});
    CHECK(f->first_timestamp() == time_point{5s});
}

TEST_CASE("log_segment: an empty key is a key, an empty value is no tombstone") {
    fixture f;
    f.add(0, "", "");
    f.add(1, "k", nullptr);
    CHECK(segment_type::has_key(*f->at(0)));
    CHECK_FALSE(f->at(0)->is(record::tombstone_flag));
    CHECK(f->at(1)->is(record::tombstone_flag));
    CHECK(f->horizon(*f->at(1)) == railmq::never);
    f->set_horizon(*f->at(1), time_point{9s});
    CHECK(f->horizon(*f->at(1)) == time_point{9s});
}

TEST_CASE("log_segment: what was withdrawn was never there") {
    fixture f;
    f.add(0, "k", long_text);
    f.write(1, "x", long_text);
    f.write(2, "y", nullptr);
    f->withdraw();
    CHECK(f->written() == 1);
    CHECK(f->end() == 1);
    f.add(1, "z", "instead");
    CHECK(f.value(1) == "instead");
    CHECK(f->key_of(*f->at(1)) == "z");
    CHECK_FALSE(f->at(1)->is(record::absent_flag));
}

TEST_CASE("log_segment: a move that throws writes nothing") {
    struct brittle {
        brittle() = default;
        brittle(brittle&&) { throw std::runtime_error{"no"}; }
    };
    budget_type budget{~std::size_t{0}};
    const log_layout layout{payload_ops_of<brittle>::value, railmq::unlimited};
    const auto s =
        pin_type::adopt(segment_type::make(payload_ops_of<brittle>::value, layout, budget, 0));
    REQUIRE(s.get()->reserve(1, 0));
    brittle b;
    log_input in;
    in.payload = &b;
    in.props = std::make_unique<railmq::properties>();
    CHECK_THROWS_AS(s.get()->write(0, in, time_point{}), std::runtime_error);
    CHECK(s.get()->written() == 0);
    CHECK(in.props != nullptr);
    CHECK(in.payload == &b);
}

TEST_CASE("log_segment: the next record, dense or with holes [P02] [P03] [P04]") {
    fixture f{40};
    for (std::uint64_t o = 50; o < 100; ++o) {
        f.add(o, std::nullopt, "v");
    }
    for (std::uint64_t o = 103; o < 2'000; o += 7) {
        f.add(o, std::nullopt, "v");
    }
    CHECK(f->index_of(41) == 0); // base 40, first record 50
    for (std::uint64_t o = 40; o < 2'000; ++o) {
        const std::uint64_t i = f->index_of(o);
        if (o >= f->end()) {
            CHECK(i == f->written());
            continue;
        }
        REQUIRE(i < f->written());
        CHECK(f->offset_of(*f->at(i)) >= o);
        CHECK((i == 0 || f->offset_of(*f->at(i - 1)) < o));
    }
    fixture dense{7};
    for (std::uint64_t o = 7; o < 1'000; ++o) {
        dense.add(o, std::nullopt, "v");
    }
    CHECK(dense->index_of(0) == 0);
    CHECK(dense->index_of(500) == 493);
    CHECK(dense->index_of(5'000) == dense->written());
}

TEST_CASE("log_segment: the first record not before a time, the latest time [Q01] [Q02] [Q03]") {
    fixture f{40};
    for (int o = 40; o < 50; ++o) {
        f.add(static_cast<std::uint64_t>(o), std::nullopt, "v", 10 * o);
    }
    const auto at = [&](int t) {
        const auto found = f->first_since(time_point{std::chrono::seconds{t}});
        return found ? static_cast<int>(found->offset) : -1;
    };
    CHECK(at(420) == 42);
    CHECK(at(421) == 43);
    CHECK(at(430) == 43);
    CHECK(at(431) == 44);
    CHECK(at(491) == -1);
    CHECK(at(401) == 41);
    CHECK(at(399) == 40);

    fixture unordered;
    for (const int t : {0, 1, 2, 3, 4, 6, 5, 6}) {
        unordered.add(unordered->end(), std::nullopt, "v", t);
    }
    CHECK(unordered->newest() == segment_type::dated{5, time_point{6s}});
    unordered->remove(5);
    CHECK(unordered->newest() == segment_type::dated{7, time_point{6s}});
    unordered->remove(7);
    CHECK(unordered->newest() == segment_type::dated{6, time_point{5s}});
    unordered.add(8, std::nullopt, "v", 9);
    CHECK(unordered->newest()->offset == 8);
    CHECK_FALSE(fixture {} -> newest().has_value());
}

TEST_CASE("log_segment: times are found over many blocks, and behind what was removed") {
    fixture f;
    for (int o = 0; o < 2'000; ++o) {
        f.add(static_cast<std::uint64_t>(o), std::nullopt, "v", o % 100 == 0 ? o + 50 : o);
    }
    for (int t = 0; t < 2'100; t += 17) {
        std::optional<std::uint64_t> expected;
        for (int o = 0; o < 2'000 && !expected; ++o) {
            if ((o % 100 == 0 ? o + 50 : o) >= t) {
                expected = static_cast<std::uint64_t>(o);
            }
        }
        const auto found = f->first_since(time_point{std::chrono::seconds{t}});
        CHECK(found.has_value() == expected.has_value());
        if (found) {
            CHECK(found->offset == *expected);
        }
    }
    f->remove(1'900);
    CHECK(f->first_since(time_point{1'950s})->offset == 1'950);
}

TEST_CASE("log_segment: a payload ends when it is removed, or with the last reader") {
    auto counted = std::make_shared<int>(1);
    using payload = std::shared_ptr<int>;
    budget_type budget{~std::size_t{0}};
    const log_layout layout{payload_ops_of<payload>::value, railmq::unlimited};
    auto s = pin_type::adopt(segment_type::make(payload_ops_of<payload>::value, layout, budget, 0));
    for (std::uint64_t o = 0; o < 4; ++o) {
        REQUIRE(s.get()->reserve(1, 0));
        alignas(payload) std::array<std::byte, sizeof(payload)> raw;
        log_input in;
        in.payload = ::new (static_cast<void*>(raw.data())) payload{counted};
        in.props = std::make_unique<railmq::properties>();
        s.get()->write(o, in, time_point{});
    }
    s.get()->publish(time_point{});
    CHECK(counted.use_count() == 5);
    s.get()->remove(0);
    CHECK(counted.use_count() == 4); // nobody reads: at once
    CHECK(s.get()->live() == 3);
    auto reader = s.share();
    s.get()->remove(1);
    CHECK(counted.use_count() == 4);
    s.get()->sweep(*s.get()->at(1));
    CHECK(counted.use_count() == 4);
    reader.reset();
    s.get()->sweep(*s.get()->at(1));
    CHECK(counted.use_count() == 3);
    reader = s.share();
    s.reset();
    CHECK(counted.use_count() == 3);
    CHECK(budget.used() != 0);
    reader.reset();
    CHECK(counted.use_count() == 1);
    CHECK(budget.used() == 0);
}

TEST_CASE("log_segment: moves records to another segment, payload, key, time and all") {
    fixture from{10};
    from.add(10, "gone", "x", 1);
    from.add(11, "k", long_text, 8);
    from.add(12, "dead", nullptr, 3);
    from->set_horizon(*from->at(2), time_point{99s});
    from->remove(0);
    fixture to{5};
    REQUIRE(to->reserve(2, 32));
    const std::size_t bytes = from->live_bytes();
    to->take_from(*from, 1);
    CHECK(from->live() == 1);
    CHECK(to->published() == 1);
    to->take_from(*from, 2);
    CHECK(from->live() == 0);
    CHECK(from->live_bytes() == 0);
    CHECK(to->live_bytes() == bytes);
    CHECK(to->offset_of(*to->at(0)) == 11);
    CHECK(to->key_of(*to->at(0)) == "k");
    CHECK(to.value(0) == long_text);
    CHECK(to->at(1)->is(record::tombstone_flag));
    CHECK(to->horizon(*to->at(1)) == time_point{99s});
    CHECK(to->newest() == segment_type::dated{11, time_point{8s}});
    CHECK(to->end() == 13);
    from.segment.reset();
    CHECK(to.value(0) == long_text);
}

TEST_CASE("log_segment: memory is counted by block, and no record is lost at the limit") {
    const log_layout layout{payload_ops_of<std::string>::value, railmq::unlimited};
    const std::size_t block = layout.capacity * layout.stride + 64;
    fixture f{0, sizeof(segment_type) + block + 100};
    for (std::uint64_t o = 0; o < layout.capacity; ++o) {
        f.add(o, std::nullopt, "v");
        CHECK(f.budget.used() == f->memory_bytes());
    }
    CHECK_FALSE(f->reserve(1, 0));
    CHECK_FALSE(f->reserve(0, 1'000));
    CHECK(f->written() == layout.capacity);
    CHECK(f->reserve(1, 0, true));
    CHECK(f.budget.used() == f->memory_bytes());
    f.add(layout.capacity, std::nullopt, "last");
    CHECK(f.value(layout.capacity) == "last");
    f.segment.reset();
    CHECK(f.budget.used() == 0);
}

TEST_CASE("log_segment: retention counts from the time of the append, for what came early [BR20]") {
    fixture f;
    f.write(0, std::nullopt, "v", 10);
    f.write(1, std::nullopt, "v", 1'000'000);
    f->publish(time_point{20s});
    CHECK(f->newest()->timestamp == time_point{1'000'000s});
    CHECK(f->counts_from() == time_point{20s});
    fixture old;
    old.write(0, std::nullopt, "v", 10);
    old->publish(time_point{20s});
    CHECK(old->counts_from() == time_point{10s});
}
