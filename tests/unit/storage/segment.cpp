// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/segment.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

using namespace railmq::storage;

namespace {

/// A segment's bytes, made record by record.
struct builder {
    builder() {
        const auto bytes = encode(header);
        file.assign(bytes.begin(), bytes.end());
    }
    /// Whatever `h` says, with a payload of `size` bytes and checksums that fit.
    void add(record_header h, std::vector<std::byte> payload = std::vector<std::byte>(5)) {
        const std::size_t at = file.size();
        h.length = static_cast<std::uint32_t>(payload.size());
        payload.resize(padded(payload.size()));
        h.payload_crc = crc32c{payload}.value();
        file.resize(at + record_header::size);
        encode(
            h,
            {header.journal, header.number, at},
            std::span{file}.subspan(at).first<record_header::size>());
        file.insert(file.end(), payload.begin(), payload.end());
        chain.add(std::span{file}.subspan(at, 4));
    }
    void add(std::uint64_t number, std::uint64_t epoch = 5, std::uint64_t synced = 0) {
        record_header h;
        h.number = number;
        h.epoch = epoch;
        h.synced = synced;
        add(h);
    }
    void seal(std::uint64_t number, segment_seal s) {
        record_header h;
        h.kind = record_kind::sealed;
        h.number = number;
        h.epoch = 5;
        const auto bytes = encode(s);
        add(h, {bytes.begin(), bytes.end()});
    }
    [[nodiscard]] segment_reader read_all() const {
        segment_reader reader{file, header};
        while (reader.next()) {
        }
        return reader;
    }

    segment_header header{{1, 2}, 3, 5, 10};
    std::vector<std::byte> file{};
    crc32c chain{};
};

} // namespace

TEST_CASE("[O03] segment: its name is its number, and no other name is one") {
    CHECK(segment_name(1) == "0000000000000001.journal");
    CHECK(segment_name(0xabcdef0123456789U) == "abcdef0123456789.journal");
    CHECK(segment_number(segment_name(77)) == 77);
    for (const auto* name :
         {"",
          "1.journal",
          "0000000000000000.journal",
          "000000000000000A.journal",
          "0000000000000001.journal ",
          "0000000000000001",
          "000000000000000g.journal"}) {
        CHECK_FALSE(segment_number(name));
    }
}

TEST_CASE("segment: a record follows if its number, its epoch and what it says fit") {
    builder b;
    b.add(10);
    b.add(11, 5, 10);
    SECTION("it does") {
        b.add(12, 6, 11);
        CHECK(b.read_all().next_number() == 13);
        CHECK(b.read_all().epoch() == 6);
        CHECK(b.read_all().offset() == b.file.size());
    }
    SECTION("a number is missing") {
        b.add(13);
        CHECK(b.read_all().next_number() == 12);
    }
    SECTION("an epoch that is over") {
        b.add(12, 4);
        CHECK(b.read_all().next_number() == 12);
    }
    SECTION("it says that it was synced before it was made") {
        b.add(12, 5, 12);
        CHECK(b.read_all().next_number() == 12);
    }
    SECTION("longer than the file") {
        b.add(12);
        b.file.pop_back();
        CHECK(b.read_all().next_number() == 12);
    }
}

TEST_CASE("segment: a seal holds for exactly what comes before it, and is the last") {
    builder b;
    b.add(10);
    b.add(11);
    const segment_seal right{2, b.chain.value()};
    SECTION("it does") {
        b.seal(12, right);
        b.add(13);
        CHECK(b.read_all().is_sealed());
        CHECK(b.read_all().next_number() == 13);
        CHECK_FALSE(b.read_all().look_behind().is_empty);
    }
    SECTION("another count") {
        b.seal(12, {3, right.chain});
        CHECK_FALSE(b.read_all().is_sealed());
    }
    SECTION("other records") {
        b.seal(12, {2, right.chain ^ 1U});
        CHECK_FALSE(b.read_all().is_sealed());
    }
}

TEST_CASE("segment: what was synced is known from records behind damage as well") {
    builder b;
    b.add(10);
    const std::size_t damage = b.file.size();
    b.add(11);
    b.add(12, 5, 11);
    CHECK(b.read_all().look_behind().highest_synced == 11);
    b.file[damage + record_header::size] ^= std::byte{1};
    CHECK(b.read_all().next_number() == 11);
    CHECK(b.read_all().look_behind().highest_synced == 11);
    CHECK_FALSE(b.read_all().look_behind().is_empty);
    std::fill(b.file.begin() + static_cast<std::ptrdiff_t>(damage), b.file.end(), std::byte{0});
    CHECK(b.read_all().look_behind().highest_synced == 0);
    CHECK(b.read_all().look_behind().is_empty);
}
