// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/reusable_segment.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using namespace railmq::storage;
using railmq::error_code;

namespace {

void make(simulated_directory& d, std::string_view name, std::uint64_t size) {
    error_code ec;
    auto file = d.open(name, open_mode::create, ec);
    file.allocate(size, ec);
    REQUIRE_FALSE(ec);
    d.sync(ec);
    REQUIRE_FALSE(ec);
}

} // namespace

TEST_CASE("reusable_segment: keeps one of a fitting size, and gives it away once") {
    simulated_disk disk{1};
    auto d = disk.directory();
    for (const std::string_view name : {"small", "large", "first", "second"}) {
        make(d, name, name == "small" ? 99 : name == "large" ? 201 : 150);
    }
    reusable_segment<simulated_directory> kept;
    CHECK_FALSE(kept.take(d, "next", 1));
    CHECK_FALSE(kept.keep(d, "small", 100, 200));
    CHECK_FALSE(kept.keep(d, "large", 100, 200));
    CHECK_FALSE(kept.keep(d, "not there", 100, 200));
    CHECK(kept.bytes() == 0);
    REQUIRE(kept.keep(d, "first", 100, 200));
    CHECK(kept.bytes() == 150);
    CHECK_FALSE(kept.keep(d, "second", 100, 200)); // it has one
    CHECK(disk.contains("second"));
    CHECK_FALSE(disk.contains("first"));
    CHECK(disk.contains(kept.name()));
    CHECK_FALSE(kept.take(d, "next", 151));
    auto taken = kept.take(d, "next", 150);
    REQUIRE(taken);
    CHECK(taken->bytes == 150);
    error_code ec;
    CHECK(taken->file.size(ec) == 150);
    CHECK(disk.contains("next"));
    CHECK_FALSE(disk.contains(kept.name()));
    CHECK_FALSE(kept.take(d, "another", 1));
    REQUIRE(kept.keep(d, "second", 100, 200));
    kept.drop(d);
    CHECK(kept.bytes() == 0);
    CHECK_FALSE(disk.contains(kept.name()));
}

TEST_CASE("reusable_segment: after a crash the old name leads to nothing that is new") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        simulated_disk disk{seed};
        auto d = disk.directory();
        make(d, "old", 512);
        reusable_segment<simulated_directory> kept;
        REQUIRE(kept.keep(d, "old", 1, 512));
        auto taken = kept.take(d, "next", 1);
        REQUIRE(taken);
        error_code ec;
        const std::vector<std::byte> contents(512, std::byte{7});
        (void)write_at(taken->file, 0, contents, ec);
        taken->file.sync_data(ec);
        REQUIRE_FALSE(ec);
        disk.crash();
        CHECK_FALSE(disk.contains("old"));
    }
}

TEST_CASE("reusable_segment: where the disk fails there is none, and nothing is kept for ever") {
    simulated_disk disk{1};
    auto d = disk.directory();
    make(d, "old", 512);
    reusable_segment<simulated_directory> kept;
    REQUIRE(kept.keep(d, "old", 1, 512));
    disk.fail(disk_operation::sync_directory, 1, boost::system::errc::io_error);
    CHECK_FALSE(kept.take(d, "next", 1));
    CHECK(kept.bytes() == 0);
    CHECK_FALSE(disk.contains("next"));
}
