// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/sticky_assignor.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

using railmq::core::assign_sticky;
using railmq::core::assignment;
using railmq::core::generation_type;
using railmq::core::member_id;
using railmq::core::partition_list;
using railmq::core::subscriber;
using railmq::core::subscribes;
using railmq::core::topic_id;
using railmq::core::topic_partition;
using railmq::core::topic_size;

namespace {

constexpr topic_id t0{0};
constexpr topic_id t1{1};
constexpr topic_id t2{2};
constexpr topic_id t3{3};

/// Members of a group, with what they refer to.
struct sticky_members {
    void
    add(std::vector<topic_id> topics,
        partition_list owned = {},
        generation_type g = 0,
        partition_list promised = {}) {
        topics_.push_back(std::move(topics));
        owned_.push_back(std::move(owned));
        promised_.push_back(std::move(promised));
        all.push_back(
            {.id = member_id{all.size() + 1},
             .topics = topics_.back(),
             .owned = owned_.back(),
             .generation = g,
             .promised = promised_.back()});
    }

    std::vector<subscriber> all{};

private:
    std::deque<std::vector<topic_id>> topics_{};
    std::deque<partition_list> owned_{};
    std::deque<partition_list> promised_{};
};

std::size_t moved_away(const std::vector<subscriber>& members, const assignment& to) {
    std::size_t n = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
        for (const topic_partition p : members[m].owned) {
            n += contains(to[m], p) ? 0 : 1;
        }
    }
    return n;
}

/// Everybody has only what it subscribes to, and whatever somebody subscribes to is had once.
void check_complete(
    const std::vector<subscriber>& members,
    const std::vector<topic_size>& topics,
    const assignment& a) {
    REQUIRE(a.size() == members.size());
    std::set<topic_partition> seen;
    for (std::size_t m = 0; m < a.size(); ++m) {
        REQUIRE(std::is_sorted(a[m].begin(), a[m].end()));
        for (const topic_partition p : a[m]) {
            REQUIRE(subscribes(members[m], p.topic));
            REQUIRE(seen.insert(p).second);
        }
    }
    std::size_t expected = 0;
    for (const topic_size& t : topics) {
        if (std::any_of(members.begin(), members.end(), [&](const subscriber& s) {
                return subscribes(s, t.topic);
            })) {
            expected += t.partitions;
        }
    }
    REQUIRE(seen.size() == expected);
}

std::pair<std::size_t, std::size_t> extremes(const assignment& a) {
    std::size_t least = std::numeric_limits<std::size_t>::max();
    std::size_t most = 0;
    for (const partition_list& list : a) {
        least = std::min(least, list.size());
        most = std::max(most, list.size());
    }
    return {least, most};
}

/// The least sum of squares of what members have, found by trying everything.
std::size_t best_squares(
    const std::vector<subscriber>& members,
    const std::vector<topic_partition>& partitions,
    std::size_t at,
    std::vector<std::size_t>& load) {
    if (at == partitions.size()) {
        std::size_t sum = 0;
        for (const std::size_t n : load) {
            sum += n * n;
        }
        return sum;
    }
    std::size_t best = std::numeric_limits<std::size_t>::max();
    bool has_taker = false;
    for (std::size_t m = 0; m < members.size(); ++m) {
        if (subscribes(members[m], partitions[at].topic)) {
            has_taker = true;
            ++load[m];
            best = std::min(best, best_squares(members, partitions, at + 1, load));
            --load[m];
        }
    }
    return has_taker ? best : best_squares(members, partitions, at + 1, load);
}

std::size_t squares(const assignment& a) {
    std::size_t sum = 0;
    for (const partition_list& list : a) {
        sum += list.size() * list.size();
    }
    return sum;
}

} // namespace

TEST_CASE("sticky: [U04] one partition moves to whoever joins, and all come back") {
    const std::vector<topic_size> topics{{t0, 3}};
    sticky_members alone;
    alone.add({t0});
    const auto first = assign_sticky(alone.all, topics);
    CHECK(first == assignment{{{t0, 0}, {t0, 1}, {t0, 2}}});

    sticky_members both;
    both.add({t0}, first[0], 1);
    both.add({t0});
    const auto second = assign_sticky(both.all, topics);
    CHECK(second == assignment{{{t0, 0}, {t0, 1}}, {{t0, 2}}});

    sticky_members left;
    left.add({t0}, second[1], 2);
    CHECK(assign_sticky(left.all, topics) == assignment{{{t0, 0}, {t0, 1}, {t0, 2}}});
}

TEST_CASE("sticky: the first worked example of StickyAssignor") {
    const std::vector<topic_size> topics{{t0, 2}, {t1, 2}, {t2, 2}, {t3, 2}};
    const std::vector<topic_id> all{t0, t1, t2, t3};
    sticky_members three;
    for (int i = 0; i < 3; ++i) {
        three.add(all);
    }
    const auto first = assign_sticky(three.all, topics);
    CHECK(
        first ==
        assignment{{{t0, 0}, {t1, 1}, {t3, 0}}, {{t0, 1}, {t2, 0}, {t3, 1}}, {{t1, 0}, {t2, 1}}});
    sticky_members two; // the second one has gone
    two.add(all, first[0], 1);
    two.add(all, first[2], 1);
    CHECK(
        assign_sticky(two.all, topics) ==
        assignment{{{t0, 0}, {t1, 1}, {t2, 0}, {t3, 0}}, {{t0, 1}, {t1, 0}, {t2, 1}, {t3, 1}}});
}

TEST_CASE("sticky: the second worked example of StickyAssignor, with mixed subscriptions") {
    const std::vector<topic_size> topics{{t0, 1}, {t1, 2}, {t2, 3}};
    sticky_members three;
    three.add({t0});
    three.add({t0, t1});
    three.add({t0, t1, t2});
    const auto first = assign_sticky(three.all, topics);
    CHECK(first == assignment{{{t0, 0}}, {{t1, 0}, {t1, 1}}, {{t2, 0}, {t2, 1}, {t2, 2}}});
    sticky_members two;
    two.add({t0, t1}, first[1], 1);
    two.add({t0, t1, t2}, first[2], 1);
    CHECK(
        assign_sticky(two.all, topics) ==
        assignment{{{t0, 0}, {t1, 0}, {t1, 1}}, {{t2, 0}, {t2, 1}, {t2, 2}}});
}

TEST_CASE("sticky: [U05] of two claims the one of the higher generation is right") {
    const std::vector<topic_size> topics{{t0, 4}};
    sticky_members m;
    m.add({t0}, {{t0, 0}, {t0, 1}, {t0, 2}}, 1);
    m.add({t0}, {{t0, 1}, {t0, 2}}, 2);
    CHECK(assign_sticky(m.all, topics) == assignment{{{t0, 0}, {t0, 3}}, {{t0, 1}, {t0, 2}}});

    sticky_members other_way; // whoever is asked first
    other_way.add({t0}, {{t0, 1}, {t0, 2}}, 2);
    other_way.add({t0}, {{t0, 0}, {t0, 1}, {t0, 2}}, 1);
    CHECK(
        assign_sticky(other_way.all, topics) == assignment{{{t0, 1}, {t0, 2}}, {{t0, 0}, {t0, 3}}});

    sticky_members twice; // then neither, and it goes to whoever has least
    twice.add({t0}, {{t0, 0}, {t0, 1}}, 3);
    twice.add({t0}, {{t0, 0}, {t0, 2}}, 3);
    twice.add({t0});
    CHECK(
        assign_sticky(twice.all, std::vector<topic_size>{{t0, 3}}) ==
        assignment{{{t0, 1}}, {{t0, 2}}, {{t0, 0}}});
}

TEST_CASE("sticky: claims to what does not exist or is not subscribed to count for nothing") {
    sticky_members m;
    m.add({t0}, {{t0, 0}, {t0, 7}, {t1, 0}, {t3, 0}}, 1);
    m.add({t0, t1});
    const std::vector<topic_size> topics{{t0, 2}, {t1, 1}};
    CHECK(assign_sticky(m.all, topics) == assignment{{{t0, 0}, {t0, 1}}, {{t1, 0}}});
}

TEST_CASE("sticky: what was promised is kept to, but moves before what is owned") {
    const std::vector<topic_size> topics{{t0, 3}};
    sticky_members m;
    m.add({t0}, {{t0, 0}, {t0, 1}}, 2);
    m.add({t0});
    m.add({t0}, {}, 2, {{t0, 2}}); // not the second, though it comes first
    const auto three = assign_sticky(m.all, topics);
    CHECK(three == assignment{{{t0, 0}}, {{t0, 1}}, {{t0, 2}}});

    sticky_members n;
    n.add({t0}, {{t0, 3}}, 2, {{t0, 0}, {t0, 1}, {t0, 2}});
    n.add({t0});
    const auto two = assign_sticky(n.all, std::vector<topic_size>{{t0, 4}});
    CHECK(two == assignment{{{t0, 0}, {t0, 3}}, {{t0, 1}, {t0, 2}}});

    sticky_members equal; // two have as much, and one of them has not got it yet
    equal.add({t0}, {{t0, 0}, {t0, 1}}, 2);
    equal.add({t0}, {}, 2, {{t0, 2}, {t0, 3}});
    equal.add({t0});
    CHECK(
        assign_sticky(equal.all, std::vector<topic_size>{{t0, 4}}) ==
        assignment{{{t0, 0}, {t0, 1}}, {{t0, 2}}, {{t0, 3}}});
}

TEST_CASE("sticky: a chain of members balances what no single move can") {
    // The first has two of t0 and can only pass to the second, which then has to pass on of t1.
    sticky_members m;
    m.add({t0}, {{t0, 0}, {t0, 1}, {t0, 2}}, 1);
    m.add({t0, t1}, {{t1, 0}, {t1, 1}}, 1);
    m.add({t1}, {{t1, 2}}, 1);
    const std::vector<topic_size> topics{{t0, 3}, {t1, 3}};
    const auto a = assign_sticky(m.all, topics);
    CHECK(a == assignment{{{t0, 0}, {t0, 1}}, {{t0, 2}, {t1, 0}}, {{t1, 1}, {t1, 2}}});
}

TEST_CASE("sticky: balanced and with the fewest moves, for whatever equal members had") {
    std::mt19937_64 random{railmq::test::seed(70)};
    for (int n = 0; n < 500; ++n) {
        const std::size_t count = random() % 12 + 1;
        std::vector<topic_size> topics;
        std::vector<topic_id> names;
        std::size_t partitions = 0;
        for (std::uint32_t t = 0; t < random() % 6 + 1; ++t) {
            topics.push_back({topic_id{t}, static_cast<std::uint32_t>(random() % 9)});
            names.push_back(topic_id{t});
            partitions += topics.back().partitions;
        }
        std::vector<partition_list> owned(count);
        for (const topic_size& t : topics) {
            for (std::uint32_t p = 0; p < t.partitions; ++p) {
                if (random() % 4 != 0) {
                    // Mostly lopsided: the first ones have far more.
                    owned[random() % (random() % count + 1)].push_back({t.topic, p});
                }
            }
        }
        sticky_members m;
        for (const partition_list& list : owned) {
            m.add(names, list, 1);
        }
        const auto a = assign_sticky(m.all, topics);
        check_complete(m.all, topics, a);
        const auto [least, most] = extremes(a);
        REQUIRE(most - least <= 1);
        REQUIRE(assign_sticky(m.all, topics) == a);

        // Whatever is above its share has to go; those with more than the lower share may keep the
        // extra one as long as there are extras.
        const std::size_t share = partitions / count;
        std::size_t extras = partitions % count;
        std::size_t must_move = 0;
        for (const partition_list& list : owned) {
            const bool takes_extra = list.size() > share && extras != 0;
            extras -= takes_extra ? 1 : 0;
            const std::size_t may_keep = share + (takes_extra ? 1 : 0);
            must_move += list.size() > may_keep ? list.size() - may_keep : 0;
        }
        REQUIRE(moved_away(m.all, a) == must_move);

        sticky_members again; // and what is balanced does not move
        for (std::size_t i = 0; i < count; ++i) {
            again.add(names, a[i], 2);
        }
        REQUIRE(assign_sticky(again.all, topics) == a);
    }
}

TEST_CASE("sticky: as balanced as can be with mixed subscriptions") {
    std::mt19937_64 random{railmq::test::seed(71)};
    for (int n = 0; n < 300; ++n) {
        const std::size_t count = random() % 4 + 1;
        std::vector<topic_size> topics;
        std::vector<topic_partition> partitions;
        for (std::uint32_t t = 0; t < random() % 4 + 1; ++t) {
            topics.push_back({topic_id{t}, static_cast<std::uint32_t>(random() % 3)});
            for (std::uint32_t p = 0; p < topics.back().partitions; ++p) {
                partitions.push_back({topic_id{t}, p});
            }
        }
        std::vector<std::vector<topic_id>> names(count);
        std::vector<partition_list> owned(count);
        for (std::size_t i = 0; i < count; ++i) {
            for (const topic_size& t : topics) {
                if (random() % 2 == 0) {
                    names[i].push_back(t.topic);
                }
            }
        }
        for (const topic_partition p : partitions) {
            owned[random() % count].push_back(p); // also what it does not subscribe to
        }
        sticky_members m;
        for (std::size_t i = 0; i < count; ++i) {
            m.add(names[i], owned[i], 1);
        }
        const auto a = assign_sticky(m.all, topics);
        check_complete(m.all, topics, a);
        std::vector<std::size_t> load(count);
        REQUIRE(squares(a) == best_squares(m.all, partitions, 0, load));
        sticky_members again;
        for (std::size_t i = 0; i < count; ++i) {
            again.add(names[i], a[i], 2);
        }
        REQUIRE(assign_sticky(again.all, topics) == a);
    }
}
