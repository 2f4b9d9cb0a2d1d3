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

/// A value that knows whether it is one, and counts those that are there.
struct counted {
    std::uint64_t n = 0;

    counted() noexcept { ++alive; }
    explicit counted(std::uint64_t value) noexcept
        : n{value} {
        ++alive;
    }
    counted(counted&& other) noexcept
        : n{std::exchange(other.n, 0)} {
        ++alive;
    }
    counted& operator=(counted&& other) noexcept {
        n = std::exchange(other.n, 0);
        return *this;
    }
    ~counted() { --alive; }
    [[nodiscard]] bool is_empty() const noexcept { return n == 0; }

    static inline std::int64_t alive = 0;
};

using map_type = id_map<counted>;
using model_type = std::map<std::uint64_t, std::uint64_t>;
constexpr std::uint64_t far = std::uint64_t{1} << 62;

std::vector<std::pair<std::uint64_t, std::uint64_t>> contents(map_type& m, std::uint64_t from) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    m.for_each_from(from, [&](std::uint64_t id, const counted& v) {
        all.emplace_back(id, v.n);
        return true;
    });
    return all;
}
void require_same(map_type& m, const model_type& model, std::uint64_t from) {
    REQUIRE(m.size() == model.size());
    const auto all = contents(m, from);
    const auto begin = model.lower_bound(from);
    REQUIRE(all.size() == static_cast<std::size_t>(std::distance(begin, model.end())));
    REQUIRE(std::equal(all.begin(), all.end(), begin, [](const auto& a, const auto& b) {
        return a.first == b.first && a.second == b.second;
    }));
}

} // namespace

TEST_CASE("id_map: puts, finds, replaces and takes") {
    map_type m;
    CHECK(m.size() == 0);
    CHECK(m.find(0) == nullptr);
    CHECK(m.take(0).is_empty());
    m.put(5, counted{50});
    m.put(6, counted{60});
    m.put(5, counted{51});
    REQUIRE(m.find(5) != nullptr);
    CHECK(m.find(5)->n == 51);
    CHECK(m.size() == 2);
    CHECK(m.take(5).n == 51);
    CHECK(m.take(5).is_empty());
    CHECK(m.size() == 1);
    m.clear();
    CHECK(m.size() == 0);
    CHECK(m.find(6) == nullptr);
    m.put(1, counted{10});
    CHECK(m.find(1)->n == 10);
}

TEST_CASE("id_map: far ids stand beside the row, the last id of all included") {
    map_type m;
    m.put(far, counted{1});
    m.put(~std::uint64_t{0}, counted{2});
    m.put(3, counted{3});
    m.put(far - 1, counted{4});
    CHECK(contents(m, 0) == decltype(contents(m, 0)){{3, 3}, {far - 1, 4}, {far, 1}, {~0ULL, 2}});
    CHECK(contents(m, far) == decltype(contents(m, 0)){{far, 1}, {~0ULL, 2}});
    CHECK(m.take(far).n == 1);
    CHECK(m.find(far) == nullptr);
    CHECK(m.size() == 3);
}

TEST_CASE("id_map: a row that reaches over one that stayed behind does not hide it") {
    map_type m;
    m.put(0, counted{1});
    m.put(1500, counted{2}); // too far on: 0 stays behind
    m.put(4000, counted{3}); // 1500 too
    CHECK(m.take(4000).n == 3);
    CHECK(m.take(0).n == 1);
    m.put(1000, counted{4}); // the row begins before the one that stayed behind
    m.put(1800, counted{5});
    REQUIRE(m.find(1500) != nullptr);
    CHECK(m.find(1500)->n == 2);
    m.put(1500, counted{6});
    CHECK(m.size() == 3);
    CHECK(contents(m, 0) == decltype(contents(m, 0)){{1000, 4}, {1500, 6}, {1800, 5}});
    CHECK(m.take(1500).n == 6);
    CHECK(m.find(1500) == nullptr);
}

TEST_CASE("id_map: what is taken and put again in pieces comes back to the row") {
    // As a list of all messages does: some hundreds are taken, then put again as they are listed.
    map_type m;
    for (std::uint64_t id = 0; id < 10'000; ++id) {
        m.put(id, counted{id + 1});
    }
    for (std::uint64_t from = 0; from < 10'000; from += 512) {
        const std::uint64_t to = std::min<std::uint64_t>(from + 512, 10'000);
        for (std::uint64_t id = from; id < to; ++id) {
            CHECK(m.take(id).n == id + 1);
        }
        for (std::uint64_t id = from; id < to; ++id) {
            m.put(id, counted{id + 1});
        }
    }
    CHECK(m.size() == 10'000);
    CHECK(counted::alive < 12'000);
    std::uint64_t next = 0;
    m.for_each_from(0, [&](std::uint64_t id, const counted& v) {
        CHECK(id == next++);
        CHECK(v.n == id + 1);
        return true;
    });
    CHECK(next == 10'000);
}

TEST_CASE("id_map: few values take little room, however far apart they are") {
    const std::int64_t before = counted::alive;
    SECTION("two with a gap, many times over") {
        std::vector<map_type> all(100);
        for (auto& m : all) {
            m.put(1, counted{1});
            m.put(1000, counted{2});
        }
        CHECK(counted::alive - before < 100 * 100);
    }
    SECTION("every thousandth") {
        map_type m;
        for (std::uint64_t i = 0; i < 1000; ++i) {
            m.put(i * 1000, counted{i + 1});
        }
        CHECK(counted::alive - before < 1000 * 8);
        CHECK(m.size() == 1000);
    }
    SECTION("one that stays behind while a million come and go") {
        map_type m;
        m.put(0, counted{1});
        for (std::uint64_t id = 1; id < 100'000; ++id) {
            m.put(id, counted{id});
            CHECK(m.take(id).n == id);
        }
        CHECK(counted::alive - before < 1000);
        CHECK(m.find(0)->n == 1);
    }
}

TEST_CASE("id_map: f may end the visit, and begins where it is told") {
    map_type m;
    for (const std::uint64_t id : {1U, 2U, 3U, 10U, 11U}) {
        m.put(id, counted{id});
    }
    std::vector<std::uint64_t> seen;
    m.for_each_from(2, [&](std::uint64_t id, const counted&) {
        seen.push_back(id);
        return id < 10;
    });
    CHECK(seen == std::vector<std::uint64_t>{2, 3, 10});
}

TEST_CASE("id_map: long random sequences leave what they leave in a std::map") {
    for (std::uint64_t run = 0; run < 60; ++run) {
        random_engine random{railmq::test::seed(run)};
        INFO("run " << run);
        map_type m;
        model_type model;
        std::uint64_t next = random() % 3 == 0 ? 0 : random() % 5000;
        std::uint64_t next_far = far;
        std::uint64_t value = 0;
        const std::uint64_t drain = 1 + random() % 4; // how fast they leave
        const auto put = [&](std::uint64_t id) {
            m.put(id, counted{++value});
            model[id] = value;
        };
        const auto take = [&](std::uint64_t id) {
            const auto it = model.find(id);
            const std::uint64_t expected = it == model.end() ? 0 : it->second;
            REQUIRE(m.take(id).n == expected);
            model.erase(id);
        };
        const auto any = [&] {
            if (model.empty() || random() % 8 == 0) {
                return random() % (next + 2000);
            }
            auto it = model.lower_bound(random() % (next + 1));
            return it == model.end() ? model.begin()->first : it->first;
        };
        for (int step = 0; step < 3000; ++step) {
            switch (random() % 19) {
            case 0: next += random() % 3000; [[fallthrough]]; // a gap
            case 1:
            case 2:
            case 3:
            case 4: put(next++); break;
            case 16: { // many in a row, at the end or over what is there
                const std::uint64_t first = random() % 4 != 0 ? next : any();
                const std::uint64_t n = random() % 50;
                const std::uint64_t before = value;
                m.put_row(first, n, [&](std::uint64_t i) { return counted{before + 1 + i}; });
                for (std::uint64_t i = 0; i != n; ++i) {
                    model[first + i] = ++value;
                }
                next = first < far ? std::max(next, first + n) : next;
                break;
            }
            case 17:
            case 18: { // and many leave: the first ones, or from anywhere, with some that are none
                const std::uint64_t first =
                    random() % 4 != 0 && !model.empty() ? model.begin()->first : any();
                const std::uint64_t n = random() % 50;
                std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
                m.take_row(first, n, [&](std::uint64_t id, const counted& v) {
                    taken.emplace_back(id, v.n);
                });
                const auto from = model.lower_bound(first);
                const auto to = model.lower_bound(first + n);
                REQUIRE(taken.size() == static_cast<std::size_t>(std::distance(from, to)));
                REQUIRE(std::equal(from, to, taken.begin(), [](const auto& x, const auto& y) {
                    return x.first == y.first && x.second == y.second;
                }));
                model.erase(from, to);
                break;
            }
            case 5: put(next_far++); break;
            case 6: put(any()); break;                    // a row with holes filled, or replaced
            case 7: put(random() % (next + 1500)); break; // behind, within and ahead
            case 8:                                       // the first ones leave
                for (std::uint64_t i = 0; i < drain && !model.empty(); ++i) {
                    take(model.begin()->first);
                }
                break;
            case 9: { // a piece is taken and put again
                const std::uint64_t from = any();
                std::vector<std::uint64_t> ids;
                for (auto it = model.lower_bound(from); it != model.end() && ids.size() < 40;
                     ++it) {
                    ids.push_back(it->first);
                }
                for (const std::uint64_t id : ids) {
                    take(id);
                }
                for (const std::uint64_t id : ids) {
                    put(id);
                }
                break;
            }
            case 10:
                if (random() % 20 == 0) { // the last ones leave, and some ids come once more
                    const std::uint64_t keep = random() % 4;
                    auto it = model.lower_bound(far);
                    while (it != model.begin() && model.size() > keep) {
                        take(std::prev(it)->first);
                        it = model.lower_bound(far);
                    }
                    next = random() % (next + 1);
                }
                break;
            case 11: {
                const std::uint64_t id = any();
                const auto it = model.find(id);
                counted* const found = m.find(id);
                REQUIRE((found != nullptr) == (it != model.end()));
                REQUIRE((found == nullptr || found->n == it->second));
                break;
            }
            default: take(any()); break;
            }
            if (step % 97 == 0) {
                require_same(m, model, random() % 2 == 0 ? 0 : any());
            }
        }
        require_same(m, model, 0);
    }
    CHECK(counted::alive == 0);
}
