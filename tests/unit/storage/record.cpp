// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/record.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

using namespace railmq::storage;

namespace {

constexpr journal_id id{0x0123456789abcdefU, 0xfedcba9876543210U};

record_header a_header() {
    record_header h;
    h.kind = record_kind::opened;
    h.length = 0x11223344U;
    h.payload_crc = 0x55667788U;
    h.number = 0x99;
    h.epoch = 7;
    h.synced = 0x98;
    return h;
}

} // namespace

TEST_CASE("record: numbers are little-endian") {
    std::array<std::byte, 8> bytes{};
    format::store(bytes.data(), std::uint32_t{0x01020304U});
    CHECK(bytes[0] == std::byte{4});
    CHECK(bytes[3] == std::byte{1});
    CHECK(format::load<std::uint32_t>(bytes.data()) == 0x01020304U);
    format::store(bytes.data(), ~std::uint64_t{0});
    CHECK(format::load<std::uint64_t>(bytes.data()) == ~std::uint64_t{0});
}

TEST_CASE("record: a segment's header is what was stored, and every bit of it counts") {
    const segment_header h{id, 3, 5, 1'000};
    auto bytes = encode(h);
    segment_header read;
    REQUIRE(decode(bytes, read) == header_state::good);
    CHECK(read == h);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        auto flipped = bytes;
        flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        CHECK(decode(flipped, read) == header_state::damaged);
    }
    for (std::size_t n = 0; n < bytes.size(); ++n) {
        CHECK(decode(std::span{bytes}.first(n), read) == header_state::damaged);
    }
}

TEST_CASE("record: a segment of another version, or with unknown features, is not read") {
    for (const std::size_t field : {std::size_t{8}, std::size_t{12}}) {
        auto bytes = encode(segment_header{id, 1, 1, 1});
        format::store(bytes.data() + field, std::uint32_t{2});
        format::store(bytes.data() + 60, crc32c{std::span{bytes}.first(60)}.value());
        segment_header read;
        CHECK(decode(bytes, read) == header_state::unsupported);
    }
}

TEST_CASE("record: a header is what was stored, in its place and nowhere else") {
    const record_place here{id, 4, 128};
    std::array<std::byte, record_header::size> bytes{};
    encode(a_header(), here, bytes);
    REQUIRE(decode_record(bytes, here));
    CHECK(*decode_record(bytes, here) == a_header());
    CHECK_FALSE(decode_record(bytes, {id, 4, 136}));
    CHECK_FALSE(decode_record(bytes, {id, 5, 128}));
    CHECK_FALSE(decode_record(bytes, {journal_id{id.high, id.low + 1}, 4, 128}));
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        auto flipped = bytes;
        flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        CHECK_FALSE(decode_record(flipped, here));
    }
    CHECK_FALSE(decode_record(std::span{bytes}.first(bytes.size() - 1), here));
}

TEST_CASE("record: zeros are none, not even with the right checksum") {
    std::array<std::byte, record_header::size> bytes{};
    const record_place here{id, 1, 64};
    CHECK_FALSE(decode_record(bytes, here));
    format::store(bytes.data(), format::header_crc(bytes, here));
    CHECK_FALSE(decode_record(bytes, here));
}

TEST_CASE("record: records begin at multiples of eight") {
    CHECK(record_size(0) == 40);
    CHECK(record_size(1) == 48);
    CHECK(record_size(8) == 48);
    CHECK(record_size(9) == 56);
    CHECK(record_size(0xffffffffU) == 40 + 0x100000000U);
}

TEST_CASE("record: a seal is what was stored, and has one length") {
    const segment_seal s{12'345, 0xdeadbeefU};
    const auto bytes = encode(s);
    REQUIRE(decode_seal(bytes));
    CHECK(*decode_seal(bytes) == s);
    CHECK_FALSE(decode_seal(std::span{bytes}.first(15)));
    CHECK_FALSE(decode_seal(std::vector<std::byte>(17)));
}

TEST_CASE("record: a payload's checksum is that of its bytes and of zeros up to a multiple of 8") {
    for (std::size_t size = 0; size <= 40; ++size) {
        std::vector<std::byte> payload(size);
        for (std::size_t i = 0; i < size; ++i) {
            payload[i] = static_cast<std::byte>(0xf0 + i);
        }
        std::vector<std::byte> filled = payload;
        filled.resize(padded(size));
        CHECK(format::payload_crc(payload) == crc32c{filled}.value());
    }
}

// What stands in files that exist.
TEST_CASE("record: a header's bytes") {
    std::array<std::byte, record_header::size> bytes{};
    encode(a_header(), {id, 4, 128}, bytes);
    constexpr std::array<unsigned char, 36> expected{
        0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55, 2, 0, 0,    0, 0x99, 0, 0, 0, 0, 0,
        0,    0,    7,    0,    0,    0,    0,    0,    0, 0, 0x98, 0, 0,    0, 0, 0, 0, 0};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(bytes[4 + i] == static_cast<std::byte>(expected[i]));
    }
    std::array<std::byte, 68> covered{};
    format::store(covered.data(), id.high);
    format::store(covered.data() + 8, id.low);
    format::store(covered.data() + 16, std::uint64_t{4});
    format::store(covered.data() + 24, std::uint64_t{128});
    std::copy(bytes.begin() + 4, bytes.end(), covered.begin() + 32);
    CHECK(format::load<std::uint32_t>(bytes.data()) == crc32c{covered}.value());
}
