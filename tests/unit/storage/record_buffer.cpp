// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/record_buffer.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

using railmq::storage::record_buffer;

namespace {

void add(record_buffer& to, std::size_t size, std::byte value) {
    const auto room = to.extend(size);
    REQUIRE(room.size() == size);
    std::fill(room.begin(), room.end(), value);
}

} // namespace

TEST_CASE("record_buffer: what was added stays, however it grows") {
    record_buffer b;
    CHECK(b.bytes().empty());
    for (std::size_t i = 0; i < 100; ++i) {
        add(b, i, static_cast<std::byte>(i));
    }
    CHECK(b.size() == 4950);
    std::size_t at = 0;
    for (std::size_t i = 0; i < 100; ++i) {
        const auto part = b.bytes().subspan(at, i);
        CHECK(
            std::count(part.begin(), part.end(), static_cast<std::byte>(i)) ==
            static_cast<std::ptrdiff_t>(i));
        at += i;
    }
}

TEST_CASE("record_buffer: cleared it keeps its room, moved from it is empty and usable") {
    record_buffer a;
    add(a, 100, std::byte{1});
    const auto* const room = a.bytes().data();
    a.clear();
    CHECK(a.size() == 0);
    add(a, 100, std::byte{2});
    CHECK(a.bytes().data() == room);

    record_buffer b{std::move(a)};
    CHECK(b.bytes().data() == room);
    CHECK(a.size() == 0); // NOLINT(bugprone-use-after-move): that is what is tested
    add(a, 8, std::byte{3});
    CHECK(a.bytes()[7] == std::byte{3});
    a = std::move(b);
    CHECK(a.size() == 100);
    CHECK(b.size() == 0); // NOLINT(bugprone-use-after-move)
    add(b, 1, std::byte{4});
    CHECK(b.bytes()[0] == std::byte{4});
}
