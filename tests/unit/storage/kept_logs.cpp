// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/kept_state.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::duration;
using railmq::time_point;

namespace {

/// A record at a time, each at a place of its own.
struct fixture {
    kept_state state{};
    std::uint64_t place = 64;
    bool twice = false;

    template <class F>
    void say(F&& f) {
        std::vector<std::byte> record;
        log_entry_writer w{record, duration::zero()};
        f(w, record);
        for (int n = 0; n < (twice ? 2 : 1); ++n) {
            REQUIRE(state.add(record, {1, place}));
        }
        place += 8;
    }
    void define(std::uint64_t number, const char* name = "l") {
        say([&](auto& w, auto&) { w.log({number, name, "bytes", 2, {.partitions = 2}}); });
    }
    void append(
        log_place where,
        std::uint64_t first,
        std::uint64_t n,
        std::optional<run_producer> by = {},
        time_point at = {}) {
        say([&](auto& w, auto& record) {
            w.run(where, first, n, at, by);
            for (std::uint64_t i = 0; i < n; ++i) {
                wire_writer out{record};
                wire::put_run_record(out, {}, {}, nullptr, false);
                out.text("x");
            }
        });
    }
    kept_partition& at(log_place p) { return state.logs.at(p.log).partitions.at(p.partition); }
    std::map<std::uint64_t, std::uint64_t> offsets(log_place where) {
        std::map<std::uint64_t, std::uint64_t> all;
        const auto& of = state.logs.at(where.log).partitions;
        if (const auto it = of.find(where.partition); it != of.end()) {
            it->second.rows.for_each_from(0, [&](std::uint64_t first, const log_rows::row& r) {
                for (std::uint64_t n = 0; n < r.count; ++n) {
                    all[first + n] = r.at.location().offset;
                }
                return true;
            });
        }
        return all;
    }
};

} // namespace

TEST_CASE("kept_logs: what is said of a log that is not there is passed over") {
    fixture f;
    f.append({1, 0}, 0, 3);
    f.say([](auto& w, auto&) {
        w.group(1, {"g", {}, 1, railmq::never});
        w.group_offset({1, 0}, "g", 1, "", {});
        w.deleted(1);
    });
    CHECK(f.state.logs.empty());
    f.define(1);
    CHECK(f.state.last_log == 1);
    f.append({1, 2}, 0, 3); // no such partition
    CHECK(f.state.logs.at(1).partitions.empty());
    f.append({1, 1}, 0, 3);
    CHECK(f.state.logs.at(1).records() == 3);
    f.say([](auto& w, auto&) { w.deleted(1); });
    CHECK(f.state.logs.empty());
    CHECK(f.state.last_log == 1); // its number is not used again
}

TEST_CASE("kept_logs: ends only rise, also where nothing is left") {
    fixture f;
    f.define(1);
    f.append({1, 0}, 0, 10);
    f.say([](auto& w, auto&) { w.partition({1, 0}, {4, 10, 3}); });
    CHECK(f.at({1, 0}).extent == kept_extent{4, 10, 3});
    CHECK(f.offsets({1, 0}).size() == 6);
    f.append({1, 0}, 2, 4); // of before: below the start there is nothing any more
    CHECK(f.offsets({1, 0}).begin()->first == 4);
    f.say([](auto& w, auto&) { w.partition({1, 0}, {2, 8, 8}); });
    CHECK(f.at({1, 0}).extent == kept_extent{4, 10, 8});
    f.say([](auto& w, auto&) { w.partition({1, 0}, {10, 10, 8}); });
    CHECK(f.offsets({1, 0}).empty());
    CHECK(f.at({1, 0}).extent.end == 10);
    f.define(1); // said again
    CHECK(f.at({1, 0}).extent.end == 10);
}

TEST_CASE("kept_logs: a horizon goes with its record") {
    fixture f;
    f.define(1);
    f.append({1, 0}, 0, 10);
    f.say([](auto& w, auto&) {
        w.horizon({1, 0}, 2, time_point{5s});
        w.horizon({1, 0}, 7, time_point{6s});
        w.horizon({1, 0}, 12, time_point{6s}); // nothing is there
    });
    CHECK(f.at({1, 0}).horizons.size() == 2);
    f.say([](auto& w, auto&) { w.removed({1, 0}, 7, 1); });
    CHECK(f.at({1, 0}).horizons.size() == 1);
    f.say([](auto& w, auto&) { w.partition({1, 0}, {3, 10, 0}); });
    CHECK(f.at({1, 0}).horizons.empty());
}

TEST_CASE("kept_logs: of a producer the last five batches are known, however often they are said") {
    fixture f;
    f.twice = true;
    f.define(1);
    for (std::int32_t n = 0; n < 7; ++n) {
        f.append(
            {1, 0},
            static_cast<std::uint64_t>(n),
            1,
            run_producer{9, 1, n, n},
            time_point{std::chrono::seconds{n}});
    }
    const kept_producer& p = f.at({1, 0}).producers.at(9);
    CHECK(p.epoch == 1);
    CHECK(p.count == 5);
    CHECK(p.batches[0] == kept_producer::batch{2, 2, 2});
    CHECK(p.batches[4] == kept_producer::batch{6, 6, 6});
    CHECK(p.used == time_point{6s});
    f.append({1, 0}, 7, 2, run_producer{9, 2, 0, 1});
    CHECK(f.at({1, 0}).producers.at(9).epoch == 2);
    CHECK(f.at({1, 0}).producers.at(9).count == 1);
    kept_producer other;
    other.id = 9;
    other.add(5, {3, 3, 3}, time_point{1s});
    f.say([&](auto& w, auto&) { w.producer({1, 0}, other); });
    CHECK(f.at({1, 0}).producers.at(9) == other);
}

TEST_CASE("kept_logs: a group and what it has committed") {
    fixture f;
    f.twice = true;
    f.define(1);
    f.say([](auto& w, auto&) { w.group(1, {"g", {}, 1, railmq::never}); });
    f.say([](auto& w, auto&) {
        w.group_offset({1, 0}, "g", 4, "m", time_point{3s});
        w.group_offset({1, 1}, "g", 5, "", time_point{4s});
        w.group_offset({1, 0}, "other", 5, "", {});
    });
    f.say([](auto& w, auto&) {
        w.group(1, {"g", {}, 2, time_point{9s}});
        w.group_offset_gone({1, 1}, "g");
    });
    const auto& groups = f.state.logs.at(1).groups;
    REQUIRE(groups.size() == 1);
    CHECK(groups.at("g").definition.generation == 2);
    CHECK(groups.at("g").definition.emptied == time_point{9s});
    CHECK(groups.at("g").offsets.size() == 1);
    CHECK(groups.at("g").offsets.at(0) == kept_offset{4, "m", time_point{3s}});
    f.say([](auto& w, auto&) { w.group_deleted(1, "g"); });
    CHECK(f.state.logs.at(1).groups.empty());
    f.say([](auto& w, auto&) { w.group(1, {"g", {}, 1, railmq::never}); });
    CHECK(f.state.logs.at(1).groups.at("g").offsets.empty());
}

TEST_CASE("kept_logs: random records leave what they leave in a plain model, also said twice") {
    for (std::uint64_t run = 0; run < 40; ++run) {
        INFO("run " << run);
        railmq::random_engine random{railmq::test::seed(run)};
        const auto below = [&](std::uint64_t n) { return railmq::uniform_below(random, n); };
        fixture f;
        f.twice = run % 2 == 1;
        f.define(1);
        std::map<std::uint64_t, std::uint64_t> expected;
        std::uint64_t start = 0;
        std::uint64_t end = 0;
        for (int step = 0; step < 300; ++step) {
            const std::uint64_t here = f.place;
            switch (below(5)) {
            case 0:
            case 1: {
                const std::uint64_t n = 1 + below(5);
                f.append({1, 0}, end, n);
                for (std::uint64_t i = 0; i < n; ++i) {
                    expected[end++] = here;
                }
                break;
            }
            case 2: {
                const std::uint64_t first = below(end + 1);
                const std::uint64_t n = below(4);
                f.say([&](auto& w, auto&) { w.removed({1, 0}, first, n); });
                expected.erase(expected.lower_bound(first), expected.lower_bound(first + n));
                break;
            }
            case 3: {
                start += below(std::min<std::uint64_t>(end - start, 3) + 1);
                f.say([&](auto& w, auto&) { w.partition({1, 0}, {start, end, 0}); });
                expected.erase(expected.begin(), expected.lower_bound(start));
                break;
            }
            default: { // a step of the upkeep
                const std::uint64_t from = below(end + 1);
                const std::uint64_t to = below(2) == 0 ? max_log_offset : from + below(10);
                std::vector<std::pair<std::uint64_t, std::uint64_t>> there(
                    expected.lower_bound(from), expected.lower_bound(to));
                f.say([&](auto& w, auto&) {
                    w.rows({1, 0}, from, to, there.size());
                    for (const auto& [offset, at] : there) {
                        w.row(offset, 1, {1, at}, 10);
                    }
                });
                break;
            }
            }
            REQUIRE(f.offsets({1, 0}) == expected);
            REQUIRE(f.at({1, 0}).extent.end == end);
        }
    }
}
