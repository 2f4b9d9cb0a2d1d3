// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/group_members.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::member_options;
using railmq::never;
using railmq::time_point;
using railmq::core::group_members;
using railmq::core::member_id;
using railmq::core::member_record;
using railmq::core::partition_list;
using railmq::core::removal_reason;
using railmq::core::topic_id;

namespace {
constexpr time_point start{};
}

TEST_CASE("group_members: ids are given in order and never twice") {
    group_members members;
    CHECK(members.empty());
    const member_id a = members.add({}, {}, start).id;
    const member_id b = members.add({}, {}, start).id;
    CHECK(a == member_id{1});
    CHECK(b == member_id{2});
    members.erase(b);
    CHECK(members.find(b) == nullptr);
    CHECK(members.add({}, {}, start).id == member_id{3});
    CHECK(members.size() == 2);
    CHECK(std::as_const(members).find(a)->id == a);
}

TEST_CASE("group_members: [U15] a static member that is replaced keeps what it has, not its id") {
    group_members members;
    member_record& m = members.add({.instance_id = "kitchen"}, {topic_id{1}}, start);
    m.owned = {{topic_id{1}, 0}};
    const member_id old = m.id;
    CHECK(members.find_instance("kitchen") == &m);
    CHECK(members.find_instance("bar") == nullptr);
    CHECK_FALSE(members.is_fenced(old));
    member_record& fresh = members.replace(old);
    CHECK(fresh.id == member_id{2});
    CHECK(fresh.owned == partition_list{{topic_id{1}, 0}});
    CHECK(members.find(old) == nullptr);
    CHECK(members.find(fresh.id) == &fresh);
    CHECK(members.is_fenced(old));
    CHECK_FALSE(members.is_fenced(fresh.id));
    members.erase(fresh.id);
    CHECK_FALSE(members.is_fenced(old)); // there is no newer owner any more
}

TEST_CASE("group_members: fenced incarnations are remembered up to a limit") {
    group_members members;
    const member_id first = members.add({.instance_id = "a"}, {}, start).id;
    const member_id second = members.replace(first).id;
    member_id last = second;
    for (std::size_t i = 1; i < group_members::max_former; ++i) {
        last = members.replace(last).id;
    }
    CHECK(members.is_fenced(first));
    last = members.replace(last).id;
    CHECK_FALSE(members.is_fenced(first));
    CHECK(members.is_fenced(second));
    CHECK(members.find(last)->former.size() == group_members::max_former);
}

TEST_CASE("group_members: the nearest deadline of a member, and its reason") {
    member_record m;
    m.last_seen = start + 10s;
    m.last_poll = start;
    CHECK(m.deadline() == std::pair{start + 55s, removal_reason::session_timeout});
    m.last_seen = start + 290s;
    CHECK(m.deadline() == std::pair{start + 300s, removal_reason::poll_timeout});
    m.confirm_by = start + 299s;
    CHECK(m.deadline() == std::pair{start + 299s, removal_reason::rebalance_timeout});
    m.is_away = true; // then only the session counts
    CHECK(m.deadline() == std::pair{start + 335s, removal_reason::session_timeout});
    m.last_seen = never - 1s; // without overflow
    CHECK(m.deadline().first == never);
}

TEST_CASE("group_members: who subscribes, confirms and waits") {
    group_members members;
    CHECK_FALSE(members.subscribe_to(topic_id{1}));
    member_record& m = members.add({}, {topic_id{1}, topic_id{3}}, start);
    CHECK(members.subscribe_to(topic_id{3}));
    CHECK_FALSE(members.subscribe_to(topic_id{2}));
    CHECK_FALSE(members.have_to_confirm());
    CHECK_FALSE(members.have_promises());
    m.owned = {{topic_id{1}, 0}};
    m.revoking = {{topic_id{1}, 1}};
    m.promised = {{topic_id{1}, 2}};
    m.previous = {{topic_id{1}, 3}};
    CHECK(members.have_to_confirm());
    CHECK(members.have_promises());
    CHECK(m.owns({topic_id{1}, 0}));
    CHECK(m.owns({topic_id{1}, 1}));
    CHECK_FALSE(m.owns({topic_id{1}, 2}));
    CHECK(members.subscribers(false)[0].owned.data() == m.owned.data());
    CHECK(members.subscribers(true)[0].owned.data() == m.previous.data());
}

TEST_CASE("group_members: lists are joined and subtracted in order") {
    const partition_list a{{topic_id{1}, 0}, {topic_id{2}, 0}};
    const partition_list b{{topic_id{1}, 1}};
    const partition_list both{{topic_id{1}, 0}, {topic_id{1}, 1}, {topic_id{2}, 0}};
    CHECK(railmq::core::merged(a, b) == both);
    CHECK(railmq::core::without(both, b) == a);
    CHECK(railmq::core::without(a, both).empty());
}
