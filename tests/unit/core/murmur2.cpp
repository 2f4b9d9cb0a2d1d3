// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/murmur2.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using railmq::core::murmur2;
using railmq::core::partition_of;
using railmq::core::partition_of_hash;

static_assert(static_cast<std::int32_t>(murmur2("21")) == -973932308);
static_assert(partition_of("order-42", 12) == 0);

TEST_CASE("murmur2: Kafka's vectors [W05]") {
    const std::vector<std::pair<std::string_view, std::int32_t>> vectors{
        {"21", -973932308},
        {"foobar", -790332482},
        {"abc", 479470107},
        {"a-little-bit-long-string", -985981536},
        {"a-little-bit-longer-string", -1486304829},
        {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
    };
    for (const auto& [key, hash] : vectors) {
        CAPTURE(key);
        CHECK(static_cast<std::int32_t>(murmur2(key)) == hash);
    }
    CHECK(murmur2("order-42") == 501153024);
    CHECK(murmur2("order-90") == 1916469349);
    CHECK(murmur2("customer-1") == 1939597761);
    CHECK(murmur2("k") == 2727470560);
}

TEST_CASE("murmur2: every byte counts, also those that are not ASCII, and every length") {
    CHECK(murmur2("") == murmur2(std::string_view{}));
    std::string key;
    std::vector<std::uint32_t> seen;
    for (int i = 0; i < 40; ++i) {
        key.push_back(static_cast<char>(0xff - i));
        for (const std::uint32_t other : seen) {
            CHECK(murmur2(key) != other);
        }
        seen.push_back(murmur2(key));
        for (char& c : key) {
            const char old = std::exchange(c, '\0');
            CHECK(murmur2(key) != seen.back());
            c = old;
        }
    }
}

TEST_CASE("murmur2: partitions of keys and of hashes [W05] [D30] [D31] [D32]") {
    CHECK(partition_of("order-42", 12) == 0);
    CHECK(partition_of("order-90", 12) == 1);
    CHECK(partition_of("customer-1", 12) == 9);
    CHECK(partition_of_hash(10, 4) == 2);
    CHECK(partition_of_hash(10, 6) == 4);
    CHECK(partition_of_hash(0xffffffff, 10) == 0x7fffffff % 10);
    for (int i = 0; i < 100; ++i) {
        const std::string key = "key-" + std::to_string(i);
        CHECK(partition_of(key, 7) < 7);
        CHECK(partition_of(key, 7) == partition_of(std::string{key}, 7));
        CHECK(partition_of(key, 1) == 0);
    }
}

TEST_CASE("murmur2: one key with most of the records fills its partition [D33]") {
    std::vector<int> records(4);
    for (int i = 0; i < 1'000; ++i) {
        ++records[partition_of(i % 5 != 0 ? "customer-1" : "customer-" + std::to_string(i), 4)];
    }
    CHECK(records[partition_of("customer-1", 4)] >= 800);
}
