// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/crc32c.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <boost/crc.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

using railmq::storage::crc32c;

namespace {

std::uint32_t of(std::string_view text) {
    return crc32c{std::as_bytes(std::span{text.data(), text.size()})}.value();
}

} // namespace

// The check value of the CRC catalogue, and the vectors of RFC 3720 (iSCSI), appendix B.4.
TEST_CASE("crc32c: the published values") {
    CHECK(of("") == 0);
    CHECK(of("123456789") == 0xe3069283U);
    std::array<std::byte, 32> block{};
    CHECK(crc32c{block}.value() == 0x8a9136aaU);
    block.fill(std::byte{0xff});
    CHECK(crc32c{block}.value() == 0x62a8ab43U);
    for (std::size_t i = 0; i < block.size(); ++i) {
        block[i] = static_cast<std::byte>(i);
    }
    CHECK(crc32c{block}.value() == 0x46dd794eU);
}

TEST_CASE("crc32c: whatever the pieces and the alignment, as Boost.CRC has it") {
    railmq::random_engine random{railmq::test::seed(1)};
    for (int round = 0; round < 500; ++round) {
        // Long ones are summed in several chains.
        std::vector<std::byte> data(railmq::uniform_below(random, round % 2 == 0 ? 200 : 5'000));
        for (auto& b : data) {
            b = static_cast<std::byte>(random());
        }
        const std::size_t from = railmq::uniform_below(random, data.size() + 1);
        const auto rest = std::span{data}.subspan(from);
        boost::crc_optimal<32, 0x1edc6f41U, 0xffffffffU, 0xffffffffU, true, true> expected;
        expected.process_bytes(rest.data(), rest.size());
        CHECK(crc32c{rest}.value() == expected.checksum());
        const std::size_t cut = railmq::uniform_below(random, rest.size() + 1);
        CHECK(crc32c{rest.first(cut)}.add(rest.subspan(cut)).value() == expected.checksum());
    }
}

TEST_CASE("crc32c: by tables it is what it is by the processor's instruction") {
    railmq::random_engine random{railmq::test::seed(2)};
    for (int round = 0; round < 500; ++round) {
        std::vector<std::byte> data(railmq::uniform_below(random, round % 2 == 0 ? 100 : 5'000));
        for (auto& b : data) {
            b = static_cast<std::byte>(random());
        }
        const std::uint32_t by_table =
            ~railmq::storage::detail::crc32c_by_table(~std::uint32_t{0}, data.data(), data.size());
        CHECK(crc32c{data}.value() == by_table);
    }
}

TEST_CASE("crc32c: a number counts as its bytes, the lowest first") {
    constexpr std::uint64_t wide = 0x0807060504030201U;
    constexpr std::uint32_t narrow = 0x0c0b0a09U;
    std::array<std::byte, 12> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i + 1);
    }
    CHECK(crc32c{}.add_numbers(wide, narrow).value() == crc32c{bytes}.value());
    CHECK(crc32c{}.add_numbers(wide).add_numbers(narrow).value() == crc32c{bytes}.value());
    CHECK(crc32c{}.add_numbers().value() == 0);
    const std::uint32_t first = railmq::storage::detail::crc32c_by_table(~std::uint32_t{0}, wide);
    CHECK(~railmq::storage::detail::crc32c_by_table(first, narrow) == crc32c{bytes}.value());
}
