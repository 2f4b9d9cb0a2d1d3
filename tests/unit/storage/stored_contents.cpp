// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/stored_contents.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using railmq::storage::entry_writer;
using railmq::storage::stored_contents;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
}
std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
void store(entry_writer& w, std::uint64_t queue, std::uint64_t id, std::string_view payload) {
    railmq::core::message_image m;
    m.id = m.position = id;
    w.stored(queue, m, nullptr, nullptr);
    w.payload(bytes_of(payload));
}

} // namespace

TEST_CASE("what a record stores is found by queue and id, in any order") {
    std::vector<std::byte> record;
    entry_writer w{record, railmq::duration::zero()};
    store(w, 1, 5, "five");
    w.gone(1, 2, 2);
    w.stored_run(1, 6, 2, railmq::time_point{});
    w.payload(bytes_of("six"));
    w.payload(bytes_of("seven"));
    store(w, 2, 5, "another");

    stored_contents contents;
    REQUIRE(contents.read(record));
    CHECK(contents.all().size() == 4);
    for (int round = 0; round < 2; ++round) {
        CHECK(text_of(contents.find(1, 5)->payload) == "five");
        CHECK(text_of(contents.find(1, 6)->payload) == "six");
        CHECK(text_of(contents.find(1, 7)->payload) == "seven");
        CHECK(text_of(contents.find(2, 5)->payload) == "another");
    }
    CHECK(text_of(contents.find(1, 6)->payload) == "six");
    CHECK(contents.find(2, 6) == nullptr);
    CHECK(contents.find(1, 2) == nullptr);
    contents.clear();
    CHECK(contents.find(1, 5) == nullptr);
}

TEST_CASE("what comes before an entry that makes no sense is there, and the record is refused") {
    std::vector<std::byte> record;
    entry_writer w{record, railmq::duration::zero()};
    store(w, 1, 1, "one");
    record.push_back(std::byte{0xff});
    stored_contents contents;
    CHECK_FALSE(contents.read(record));
    CHECK(text_of(contents.find(1, 1)->payload) == "one");
    CHECK_FALSE(contents.read(std::span{record}.last(1))); // and nothing of it stays behind
    CHECK(contents.find(1, 1) == nullptr);
}
