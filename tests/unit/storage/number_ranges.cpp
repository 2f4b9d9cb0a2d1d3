// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/number_ranges.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <cstdint>
#include <map>
#include <set>

using railmq::storage::detail::number_ranges;

TEST_CASE("number_ranges: what touches is joined, and nothing in between is lost") {
    number_ranges r;
    r.add(1, 3);
    r.add(5, 7);
    CHECK(r.all() == std::map<std::uint64_t, std::uint64_t>{{1, 3}, {5, 7}});
    r.add(3, 5);
    CHECK(r.all() == std::map<std::uint64_t, std::uint64_t>{{1, 7}});
    r.remove(2, 4);
    CHECK(r.all() == std::map<std::uint64_t, std::uint64_t>{{1, 2}, {4, 7}});
    r.add(9, 9); // none
    CHECK(r.all().size() == 2);
}

TEST_CASE("number_ranges: random additions and removals are those of a set") {
    for (std::uint64_t run = 0; run < 50; ++run) {
        railmq::random_engine random{railmq::test::seed(run)};
        number_ranges r;
        std::set<std::uint64_t> expected;
        for (int step = 0; step < 200; ++step) {
            const std::uint64_t from = railmq::uniform_below(random, 60);
            const std::uint64_t to = from + railmq::uniform_below(random, 8);
            const bool adds = railmq::uniform_below(random, 2) == 0;
            adds ? r.add(from, to) : r.remove(from, to);
            for (std::uint64_t n = from; n < to; ++n) {
                adds ? (void)expected.insert(n) : (void)expected.erase(n);
            }
            std::set<std::uint64_t> found;
            std::uint64_t last = 0;
            for (const auto& [begin, end] : r.all()) {
                REQUIRE(begin < end);
                REQUIRE((found.empty() || begin > last)); // else it was one range
                last = end;
                for (std::uint64_t n = begin; n < end; ++n) {
                    found.insert(n);
                }
            }
            REQUIRE(found == expected);
        }
    }
}
