// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/log_rows.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

using namespace railmq::storage;

namespace {

[[nodiscard]] kept_at at(std::uint64_t segment, std::uint32_t bytes) {
    return {{segment, 64}, bytes};
}
using row_list = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
[[nodiscard]] row_list list(const log_rows& r, std::uint64_t from = 0) {
    row_list all;
    r.for_each_from(from, [&](std::uint64_t first, const log_rows::row& one) {
        all.emplace_back(first, one.count);
        return true;
    });
    return all;
}
const auto ignore = [](auto&&...) {};

} // namespace

TEST_CASE("log_rows: a row loses its ends and its middle, and its bytes are divided") {
    log_rows r;
    r.put(10, 10, at(1, 100), ignore);
    int rows = 0;
    std::uint32_t bytes = 0;
    const auto count = [&](const kept_at& taken, int more) {
        CHECK(taken.segment() == 1);
        rows += more;
        bytes += taken.bytes();
    };
    r.remove(0, 11, count); // the front
    CHECK(list(r) == row_list{{11, 9}});
    CHECK(rows == 0);
    CHECK(bytes == 10);
    r.remove(19, 100, count); // the end
    CHECK(list(r) == row_list{{11, 8}});
    CHECK(rows == 0);
    CHECK(bytes == 20);
    r.remove(14, 2, count); // the middle
    CHECK(list(r) == row_list{{11, 3}, {16, 3}});
    CHECK(rows == 1);
    CHECK(r.records() == 6);
    CHECK(r.bytes() == 100 - bytes);
    r.remove(0, 1000, count);
    CHECK(rows == -1);
    CHECK(bytes == 100);
    CHECK(r.is_empty());
    CHECK(r.bytes() == 0);
}

TEST_CASE("log_rows: what begins before an offset is found from it on") {
    log_rows r;
    r.put(0, 5, at(1, 5), ignore);
    r.put(8, 2, at(1, 2), ignore);
    CHECK(list(r, 4) == row_list{{0, 5}, {8, 2}});
    CHECK(list(r, 5) == row_list{{8, 2}});
    CHECK(list(r, 10).empty());
    CHECK(r.contains(4));
    CHECK_FALSE(r.contains(5));
    CHECK(r.contains(9));
    CHECK_FALSE(r.contains(10));
}

TEST_CASE("log_rows: random puts and removals are what they are one offset at a time") {
    for (std::uint64_t run = 0; run < 50; ++run) {
        INFO("run " << run);
        railmq::random_engine random{railmq::test::seed(run)};
        log_rows r;
        std::map<std::uint64_t, std::uint64_t> expected; // offset to segment
        std::map<std::uint64_t, std::int64_t> rows;      // by segment
        std::map<std::uint64_t, std::int64_t> bytes;
        const auto taken = [&](const kept_at& what, int more) {
            rows[what.segment()] += more;
            bytes[what.segment()] -= what.bytes();
        };
        for (std::uint64_t step = 1; step < 300; ++step) {
            const std::uint64_t first = railmq::uniform_below(random, 100);
            const std::uint64_t count = railmq::uniform_below(random, 20);
            if (railmq::uniform_below(random, 2) == 0) {
                r.reserve(1);
                r.put(first, count, at(step, 1000), taken);
                if (count != 0) {
                    rows[step] += 1;
                    bytes[step] += 1000;
                }
                for (std::uint64_t n = 0; n < count; ++n) {
                    expected[first + n] = step;
                }
            } else {
                r.reserve(1);
                r.remove(first, count, taken);
                for (std::uint64_t n = 0; n < count; ++n) {
                    expected.erase(first + n);
                }
            }
            std::map<std::uint64_t, std::uint64_t> found;
            std::map<std::uint64_t, std::int64_t> found_rows;
            std::map<std::uint64_t, std::int64_t> found_bytes;
            r.for_each_from(0, [&](std::uint64_t from, const log_rows::row& one) {
                for (std::uint64_t n = 0; n < one.count; ++n) {
                    REQUIRE(found.emplace(from + n, one.at.segment()).second);
                }
                ++found_rows[one.at.segment()];
                found_bytes[one.at.segment()] += one.at.bytes();
                return true;
            });
            REQUIRE(found == expected);
            REQUIRE(r.records() == expected.size());
            for (const auto& [segment, n] : rows) {
                REQUIRE(found_rows[segment] == n);
                REQUIRE(found_bytes[segment] == bytes[segment]);
            }
        }
    }
}
