// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/id_map.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

using railmq::random_engine;
using railmq::storage::id_map;

namespace {

/// A value that counts those that there are.
struct counted {
    std::uint64_t n = 0;

    counted() noexcept { ++alive; }
    explicit counted(std::uint64_t value) noexcept
        : n{value} {
        ++alive;
    }
    counted(const counted& other) noexcept
        : n{other.n} {
        ++alive;
    }
    counted& operator=(const counted&) noexcept = default;
    ~counted() { --alive; }
    friend bool operator==(const counted& a, const counted& b) noexcept { return a.n == b.n; }

    static inline std::int64_t alive = 0;
};

using map_type = id_map<counted>;
using model_type = std::map<std::uint64_t, std::uint64_t>;
using list_type = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
constexpr std::uint64_t far = std::uint64_t{1} << 62;
constexpr std::uint64_t last = ~std::uint64_t{0};

list_type contents(const map_type& m, std::uint64_t from) {
    list_type all;
    m.for_each_from(from, [&](std::uint64_t id, const counted& v) {
        all.emplace_back(id, v.n);
        return true;
    });
    return all;
}
list_type contents(const model_type& m, std::uint64_t from) {
    return {m.lower_bound(from), m.end()};
}

} // namespace

TEST_CASE("id_map: puts, finds, replaces and takes") {
    map_type m;
    CHECK(m.size() == 0);
    CHECK(m.find(0) == nullptr);
    CHECK(m.take(0).n == 0);
    m.put(5, counted{50});
    m.put(6, counted{60});
    m.put(5, counted{51});
    REQUIRE(m.find(5) != nullptr);
    CHECK(m.find(5)->n == 51);
    CHECK(m.size() == 2);
    CHECK(m.take(5).n == 51);
    CHECK(m.take(5).n == 0);
    CHECK(m.size() == 1);
    map_type other = std::move(m);
    CHECK(other.find(6)->n == 60);
    CHECK(m.size() == 0); // NOLINT: what was moved from is empty
    CHECK(m.find(6) == nullptr);
    other.clear();
    CHECK(other.size() == 0);
    CHECK(other.find(6) == nullptr);
    other.put(1, counted{10});
    CHECK(other.find(1)->n == 10);
}

TEST_CASE("id_map: the last id of all has a place, and rows that would go beyond it end there") {
    map_type m;
    m.put(far, counted{1});
    m.put(last, counted{2});
    m.put(3, counted{3});
    m.put(far - 1, counted{4});
    CHECK(contents(m, 0) == list_type{{3, 3}, {far - 1, 4}, {far, 1}, {last, 2}});
    CHECK(contents(m, far) == list_type{{far, 1}, {last, 2}});
    CHECK(m.take(far).n == 1);
    CHECK(m.find(far) == nullptr);
    std::uint64_t seen = 0;
    m.update(far - 5, last, [&](std::uint64_t, counted& v) {
        ++v.n;
        ++seen;
    });
    CHECK(seen == 2);
    m.take_row(4, last, [&](std::uint64_t, std::uint64_t n, const counted&) { seen += n; });
    CHECK(seen == 4);
    CHECK(contents(m, 0) == list_type{{3, 3}});
}

TEST_CASE("id_map: equal values in a row are kept once, and come out together") {
    const std::int64_t before = counted::alive;
    map_type m;
    for (std::uint64_t i = 0; i < 1'000; ++i) {
        m.put_row(i * 100, 100, counted{i});
    }
    CHECK(m.size() == 100'000);
    CHECK(counted::alive - before < 8'000);
    std::uint64_t rows = 0;
    std::uint64_t next = 250;
    m.take_row(250, 500, [&](std::uint64_t first, std::uint64_t n, const counted& v) {
        CHECK(first == next);
        CHECK(v.n == first / 100);
        CHECK(v.n == (first + n - 1) / 100);
        next = first + n;
        ++rows;
    });
    CHECK(next == 750);
    CHECK(rows < 20);
    CHECK(m.size() == 99'500);
}

TEST_CASE("id_map: few values take little room, however far apart they are") {
    const std::int64_t before = counted::alive;
    SECTION("every thousandth") {
        map_type m;
        for (std::uint64_t i = 0; i < 1'000; ++i) {
            m.put(i * 1'000, counted{i + 1});
        }
        CHECK(counted::alive - before < 1'000 * 8);
        CHECK(m.size() == 1'000);
    }
    SECTION("one that stays behind while many come and go") {
        map_type m;
        m.put(0, counted{1});
        for (std::uint64_t id = 1; id < 100'000; ++id) {
            m.put(id, counted{id});
            CHECK(m.take(id).n == id);
        }
        CHECK(counted::alive - before < 100);
        CHECK(m.find(0)->n == 1);
    }
    SECTION("rows that are cut to pieces and joined again") {
        map_type m;
        for (int round = 0; round < 100; ++round) {
            for (std::uint64_t id = 0; id < 64; ++id) {
                m.put(id, counted{id});
            }
            m.put_row(0, 64, counted{7});
        }
        CHECK(counted::alive - before < 70);
    }
}

TEST_CASE("id_map: f may end the visit, and begins where it is told") {
    map_type m;
    for (const std::uint64_t id : {1U, 2U, 3U, 64U, 65U}) {
        m.put(id, counted{id});
    }
    std::vector<std::uint64_t> seen;
    m.for_each_from(2, [&](std::uint64_t id, const counted&) {
        seen.push_back(id);
        return id < 64;
    });
    CHECK(seen == std::vector<std::uint64_t>{2, 3, 64});
}

TEST_CASE("id_map: long random sequences leave what they leave in a std::map") {
    for (std::uint64_t run = 0; run < 60; ++run) {
        random_engine random{railmq::test::seed(run)};
        INFO("run " << run);
        map_type m;
        model_type model;
        std::uint64_t next = random() % 3 == 0 ? 0 : random() % 5'000;
        std::uint64_t next_far = far;
        std::uint64_t value = 0;
        const auto put = [&](std::uint64_t id, std::uint64_t v) {
            m.put(id, counted{v});
            model[id] = v;
        };
        const auto take = [&](std::uint64_t id) {
            const auto it = model.find(id);
            const std::uint64_t expected = it == model.end() ? 0 : it->second;
            REQUIRE(m.take(id).n == expected);
            model.erase(id);
        };
        const auto any = [&] {
            if (model.empty() || random() % 8 == 0) {
                return random() % (next + 2'000);
            }
            const auto it = model.lower_bound(random() % (next + 1));
            return it == model.end() ? model.begin()->first : it->first;
        };
        for (int step = 0; step < 3'000; ++step) {
            value += random() % 3 == 0 ? 1 : 0; // neighbours are often equal
            value = std::max<std::uint64_t>(value, 1);
            const std::uint64_t n = random() % 200;
            switch (random() % 12) {
            case 0: next += random() % 3'000; [[fallthrough]]; // a gap
            case 1: put(next++, value); break;
            case 2:
            case 3: { // many in a row, at the end or over what is there
                const std::uint64_t first = random() % 4 != 0 ? next : any();
                m.put_row(first, n, counted{value});
                for (std::uint64_t i = 0; i != n; ++i) {
                    model[first + i] = value;
                }
                next = first < far ? std::max(next, first + n) : next;
                break;
            }
            case 4:
            case 5: { // and many leave: the first ones, or from anywhere, with some that are none
                const std::uint64_t first =
                    random() % 2 != 0 && !model.empty() ? model.begin()->first : any();
                list_type taken;
                m.take_row(
                    first, n, [&](std::uint64_t begin, std::uint64_t count, const counted& v) {
                        for (std::uint64_t i = 0; i != count; ++i) {
                            taken.emplace_back(begin + i, v.n);
                        }
                    });
                const auto from = model.lower_bound(first);
                const auto to = model.lower_bound(first + n);
                REQUIRE(taken == list_type(from, to));
                model.erase(from, to);
                break;
            }
            case 6: { // many change, each row of equals at once
                const std::uint64_t first = any();
                m.update(first, n, [&](std::uint64_t at, counted& v) {
                    REQUIRE(model.at(at) == v.n);
                    v.n += 1'000'000;
                });
                for (auto it = model.lower_bound(first); it != model.lower_bound(first + n); ++it) {
                    it->second += 1'000'000;
                }
                break;
            }
            case 7: put(next_far++, value); break;
            case 8: put(any(), value); break;
            case 9: put(random() % (next + 1'500), value); break; // behind, within and ahead
            case 10: {
                const std::uint64_t id = any();
                const auto it = model.find(id);
                const counted* const found = m.find(id);
                REQUIRE((found != nullptr) == (it != model.end()));
                REQUIRE((found == nullptr || found->n == it->second));
                break;
            }
            default: take(any()); break;
            }
            REQUIRE(m.size() == model.size());
            if (step % 97 == 0) {
                const std::uint64_t from = random() % 2 == 0 ? 0 : any();
                REQUIRE(contents(m, from) == contents(model, from));
            }
        }
        REQUIRE(contents(m, 0) == contents(model, 0));
    }
    CHECK(counted::alive == 0);
}
