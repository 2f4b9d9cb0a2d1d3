// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/kept_at.hpp>

#include "support/catch.hpp"

using namespace railmq::storage;

TEST_CASE("kept_at: keeps the highest place that there is, in twelve bytes") {
    CHECK(sizeof(kept_at) == 12);
    CHECK(kept_at{}.is_empty());
    const record_location highest{
        0xffff'ffff, std::uint64_t{0xffff'ffff} * record_header::alignment};
    const kept_at at{highest, 0xffff'ffff};
    CHECK_FALSE(at.is_empty());
    CHECK(at.location() == highest);
    CHECK(at.segment() == 0xffff'ffff);
    CHECK(at.bytes() == 0xffff'ffff);
}
