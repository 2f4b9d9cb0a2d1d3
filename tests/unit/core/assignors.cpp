// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/assignors.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

using railmq::assignor;
using railmq::core::assign;
using railmq::core::assign_cooperative_sticky;
using railmq::core::assign_range;
using railmq::core::assign_round_robin;
using railmq::core::assignment;
using railmq::core::generation_type;
using railmq::core::member_id;
using railmq::core::partition_list;
using railmq::core::subscriber;
using railmq::core::topic_id;
using railmq::core::topic_size;

namespace {

constexpr topic_id t0{0};
constexpr topic_id t1{1};
constexpr topic_id t2{2};

/// Members of a group, with what they refer to.
struct members {
    void add(std::vector<topic_id> topics, partition_list owned = {}, generation_type g = 0) {
        topics_.push_back(std::move(topics));
        owned_.push_back(std::move(owned));
        all.push_back(
            {.id = member_id{all.size() + 1},
             .topics = topics_.back(),
             .owned = owned_.back(),
             .generation = g});
    }

    std::vector<subscriber> all{};

private:
    std::deque<std::vector<topic_id>> topics_{};
    std::deque<partition_list> owned_{};
};

} // namespace

TEST_CASE("assignors: [U01] [E27] range, two members and two topics of three partitions") {
    members m;
    m.add({t0, t1});
    m.add({t0, t1});
    const std::vector<topic_size> topics{{t0, 3}, {t1, 3}};
    CHECK(
        assign_range(m.all, topics) ==
        assignment{{{t0, 0}, {t0, 1}, {t1, 0}, {t1, 1}}, {{t0, 2}, {t1, 2}}});
}

TEST_CASE("assignors: [E27] round robin, two members and two topics of three partitions") {
    members m;
    m.add({t0, t1});
    m.add({t0, t1});
    const std::vector<topic_size> topics{{t0, 3}, {t1, 3}};
    CHECK(
        assign_round_robin(m.all, topics) ==
        assignment{{{t0, 0}, {t0, 2}, {t1, 1}}, {{t0, 1}, {t1, 0}, {t1, 2}}});
}

TEST_CASE("assignors: [U02] round robin with mixed subscriptions") {
    members m;
    m.add({t1});
    m.add({t1, t2});
    m.add({t1});
    const std::vector<topic_size> topics{{t1, 3}, {t2, 2}};
    CHECK(
        assign_round_robin(m.all, topics) ==
        assignment{{{t1, 0}}, {{t1, 1}, {t2, 0}, {t2, 1}}, {{t1, 2}}});
}

TEST_CASE("assignors: range with mixed subscriptions goes by topic") {
    members m;
    m.add({t1});
    m.add({t1, t2});
    m.add({t1});
    const std::vector<topic_size> topics{{t1, 3}, {t2, 2}};
    CHECK(
        assign_range(m.all, topics) ==
        assignment{{{t1, 0}}, {{t1, 1}, {t2, 0}, {t2, 1}}, {{t1, 2}}});
}

TEST_CASE("assignors: [U03] [D63] members without a partition, topics without members") {
    const assignor how = GENERATE(
        assignor::range, assignor::round_robin, assignor::sticky, assignor::cooperative_sticky);
    CAPTURE(std::string{railmq::to_string(how)});
    members m;
    m.add({t0});
    m.add({t0});
    CHECK(assign(how, m.all, std::vector<topic_size>{{t0, 1}}) == assignment{{{t0, 0}}, {}});
    CHECK(assign(how, m.all, {}) == assignment{{}, {}}); // a topic that nobody knows
    CHECK(assign(how, m.all, std::vector<topic_size>{{t0, 0}, {t1, 5}}) == assignment{{}, {}});
    CHECK(assign(how, {}, std::vector<topic_size>{{t0, 4}}).empty());
    for (int i = 0; i < 4; ++i) {
        m.add({t0});
    }
    int active = 0;
    for (const partition_list& list : assign(how, m.all, std::vector<topic_size>{{t0, 4}})) {
        CHECK(list.size() <= 1);
        active += list.empty() ? 0 : 1;
    }
    CHECK(active == 4);
}

TEST_CASE("assignors: [D62] three members and three partitions, one each") {
    const assignor how = GENERATE(
        assignor::range, assignor::round_robin, assignor::sticky, assignor::cooperative_sticky);
    members m;
    for (int i = 0; i < 3; ++i) {
        m.add({t0});
    }
    CHECK(
        assign(how, m.all, std::vector<topic_size>{{t0, 3}}) ==
        assignment{{{t0, 0}}, {{t0, 1}}, {{t0, 2}}});
}

TEST_CASE("assignors: cooperative takes away first and gives out later") {
    const std::vector<topic_size> topics{{t0, 3}};
    members m;
    m.add({t0}, {{t0, 0}, {t0, 1}, {t0, 2}}, 1);
    m.add({t0});
    const auto round = assign_cooperative_sticky(m.all, topics);
    CHECK(round.now == assignment{{{t0, 0}, {t0, 1}}, {}});
    CHECK(round.revoked == assignment{{{t0, 2}}, {}});
    CHECK(round.later == assignment{{}, {{t0, 2}}});

    members after; // its owner has let go
    after.add({t0}, {{t0, 0}, {t0, 1}}, 2);
    after.add({t0}, {}, 2);
    const auto second = assign_cooperative_sticky(after.all, topics);
    CHECK(second.now == assignment{{{t0, 0}, {t0, 1}}, {{t0, 2}}});
    CHECK(second.revoked == assignment{{}, {}});
    CHECK(second.later == assignment{{}, {}});
}

TEST_CASE("assignors: cooperative gives out at once what nobody has") {
    members m;
    m.add({t0}, {{t0, 0}}, 1);
    m.add({t0}, {{t0, 1}}, 1);
    const auto round = assign_cooperative_sticky(m.all, std::vector<topic_size>{{t0, 4}});
    CHECK(round.now == assignment{{{t0, 0}, {t0, 2}}, {{t0, 1}, {t0, 3}}});
    CHECK(round.revoked == assignment{{}, {}});
}

TEST_CASE("assignors: [U05] cooperative asks nothing of a stale claim, and both of a double one") {
    const std::vector<topic_size> topics{{t0, 2}};
    members stale;
    stale.add({t0}, {{t0, 0}, {t0, 1}}, 1);
    stale.add({t0}, {{t0, 1}}, 2);
    const auto round = assign_cooperative_sticky(stale.all, topics);
    CHECK(round.now == assignment{{{t0, 0}}, {{t0, 1}}});
    CHECK(round.revoked == assignment{{}, {}});

    members twice;
    twice.add({t0}, {{t0, 0}, {t0, 1}}, 2);
    twice.add({t0}, {{t0, 1}}, 2);
    const auto settled = assign_cooperative_sticky(twice.all, topics);
    CHECK(settled.now[0] == partition_list{{t0, 0}});
    CHECK(settled.revoked[0] == partition_list{{t0, 1}});
}

TEST_CASE("assignors: [I9] cooperative never takes away more than range would") {
    std::mt19937_64 random{railmq::test::seed(73)};
    std::size_t by_sticky = 0;
    std::size_t by_range = 0;
    assignment had(1);
    for (int n = 0; n < 500; ++n) {
        const std::vector<topic_size> topics{{t0, static_cast<std::uint32_t>(random() % 30)}};
        if (random() % 2 == 0 && had.size() > 1) {
            had.erase(had.begin() + static_cast<std::ptrdiff_t>(random() % had.size()));
        } else {
            had.emplace_back();
        }
        members m;
        for (const partition_list& list : had) {
            m.add({t0}, list, 1);
        }
        const auto lost = [&](const assignment& to) {
            std::size_t count = 0;
            for (std::size_t i = 0; i < had.size(); ++i) {
                for (const auto& p : had[i]) {
                    count += p.partition < topics[0].partitions && !contains(to[i], p) ? 1 : 0;
                }
            }
            return count;
        };
        const assignment sticky = assign(assignor::cooperative_sticky, m.all, topics);
        const std::size_t s = lost(sticky);
        const std::size_t r = lost(assign_range(m.all, topics));
        REQUIRE(s <= r);
        by_sticky += s;
        by_range += r;
        had = sticky;
    }
    CHECK(by_sticky * 2 < by_range);
}
