// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/log_record.hpp>
#include <railmq/core/single_threaded.hpp>
#include <railmq/model/queue_options.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

using railmq::core::log_layout;
using railmq::core::payload_ops_of;
using plain = railmq::core::single_threaded;
using record = railmq::core::log_record<plain>;

// The payload follows at 32.
static_assert(sizeof(record) == 32);

TEST_CASE("log_layout: a block of about 16 KiB, never fewer than 8 records or more than 256") {
    CHECK(log_layout(payload_ops_of<int>::value, railmq::unlimited).stride == 40);
    CHECK(log_layout(payload_ops_of<int>::value, railmq::unlimited).capacity == 256);
    CHECK(log_layout(payload_ops_of<int>::value, 20).capacity == 32);
    CHECK(log_layout(payload_ops_of<int>::value, 1).capacity == 8);
    using large = std::array<char, 100'000>;
    CHECK(log_layout(payload_ops_of<large>::value, railmq::unlimited).capacity == 8);
    struct alignas(64) wide {
        char c;
    };
    CHECK(log_layout(payload_ops_of<wide>::value, railmq::unlimited).payload == 64);
    CHECK(log_layout(payload_ops_of<wide>::value, railmq::unlimited).stride == 128);
}

TEST_CASE("log_record: flags are independent of each other") {
    record r;
    CHECK_FALSE(r.is(record::tombstone_flag | record::removed_flag | record::absent_flag));
    r.flags.fetch_or(record::removed_flag);
    CHECK(r.is(record::removed_flag));
    CHECK_FALSE(r.is(record::absent_flag));
    CHECK(r.is(record::removed_flag | record::absent_flag)); // any of them
}

TEST_CASE("log_block: records lie behind the header, each aligned, none over the other") {
    struct alignas(32) wide {
        std::array<char, 40> c;
    };
    using block = railmq::core::log_block<plain>;
    const log_layout layout{payload_ops_of<wide>::value, railmq::unlimited};
    const std::size_t bytes = sizeof(block) + layout.stride * layout.capacity;
    const auto raw = std::make_unique<std::byte[]>(bytes + 64);
    void* p = raw.get();
    std::size_t room = bytes + 64;
    auto* b = ::new (std::align(64, bytes, p, room)) block{};
    const auto address = [](const void* q) { return reinterpret_cast<std::uintptr_t>(q); };
    for (std::uint64_t i = 0; i < layout.capacity; ++i) {
        CHECK((address(b->at(i, layout)) + layout.payload) % 32 == 0);
        CHECK(address(b->at(i, layout)) == address(b) + sizeof(block) + i * layout.stride);
    }
    CHECK(layout.stride >= layout.payload + sizeof(wide));
}
