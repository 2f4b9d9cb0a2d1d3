// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/wire.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

using railmq::storage::wire_reader;
using railmq::storage::wire_writer;

TEST_CASE("wire: a size that was guessed is as if it had been known") {
    // Around the ends of what one, two and three bytes can say.
    const std::initializer_list<std::size_t> sizes{
        0, 1, 127, 128, 129, 16'383, 16'384, 16'385, 2'097'151, 2'097'152};
    for (const std::size_t size : sizes) {
        for (const std::size_t likely : sizes) {
            const std::vector<std::byte> content(size, std::byte{0xa5});
            std::vector<std::byte> guessed{std::byte{1}};
            wire_writer w{guessed};
            const auto begin = w.begin_sized(likely);
            w.raw(content);
            w.end_sized(begin);
            w.byte(2);

            std::vector<std::byte> known{std::byte{1}};
            wire_writer k{known};
            k.number(size);
            k.raw(content);
            k.byte(2);
            REQUIRE(guessed == known);

            wire_reader r{guessed};
            REQUIRE(r.byte() == 1);
            REQUIRE(r.raw(r.number()).size() == size);
            REQUIRE(r.byte() == 2);
            REQUIRE(r.is_at_end());
            REQUIRE_FALSE(r.has_failed());
        }
    }
}
