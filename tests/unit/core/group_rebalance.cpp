// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/group_rebalance.hpp>

#include "support/catch.hpp"

#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::assignor;
using railmq::never;
using railmq::time_point;
using railmq::core::group_decision_list;
using railmq::core::group_rebalance;
using railmq::core::member_id;
using railmq::core::member_record;
using railmq::core::nobody;
using railmq::core::partition_list;
using railmq::core::removal_reason;
using railmq::core::topic_id;
namespace decisions = railmq::core::group_decisions;

namespace {

constexpr topic_id rail{1};
constexpr time_point noon{};

/// Two members of a topic of three partitions, the first of which has them all.
struct two_members {
    explicit two_members(assignor how)
        : rebalance{how, 20s, 0} {
        rebalance.owners().set_partitions(rail, 3);
        a = add();
        rebalance.start(noon, out);
        b = add();
        out.clear();
    }
    member_id add(std::string name = {}) {
        return rebalance.members().add({.instance_id = std::move(name)}, {rail}, noon).id;
    }
    member_record& of(member_id id) { return *rebalance.members().find(id); }

    group_rebalance rebalance;
    group_decision_list out{};
    member_id a{};
    member_id b{};
};

const partition_list last{{rail, 2}};
const partition_list first_two{{rail, 0}, {rail, 1}};
const partition_list all{{rail, 0}, {rail, 1}, {rail, 2}};

} // namespace

TEST_CASE("group_rebalance: cooperative, in two rounds") {
    two_members g{assignor::cooperative_sticky};
    g.rebalance.start(noon, g.out);
    CHECK_FALSE(g.rebalance.is_stopped());
    CHECK(g.rebalance.generation() == 2);
    CHECK(g.of(g.a).owned == first_two);
    CHECK(g.of(g.a).revoking == last);
    CHECK(g.of(g.a).confirm_by == noon + 20s);
    CHECK(g.of(g.b).promised == last);
    CHECK(g.rebalance.owners().owner_of({rail, 2}) == g.a);
    g.out.clear();
    g.rebalance.go_on(noon, g.out);
    CHECK(g.out.empty()); // nobody has let go
    g.rebalance.release(g.of(g.a));
    CHECK(g.of(g.a).confirm_by == never);
    CHECK(g.rebalance.owners().owner_of({rail, 2}) == nobody);
    g.rebalance.go_on(noon, g.out);
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{3, 2},
                     decisions::assign{g.a, 3, {}},
                     decisions::assign{g.b, 3, last}});
    CHECK(g.of(g.b).promised.empty());
}

TEST_CASE("group_rebalance: the others stop everybody first") {
    two_members g{assignor::sticky};
    g.rebalance.start(noon, g.out);
    CHECK(g.rebalance.is_stopped());
    CHECK(g.rebalance.generation() == 1);
    CHECK(g.out == group_decision_list{decisions::revoke{g.a, 1, all}});
    g.out.clear();
    g.rebalance.start(noon + 1s, g.out); // something else has changed
    CHECK(g.out.empty());
    g.rebalance.release(g.of(g.a));
    g.rebalance.go_on(noon + 1s, g.out);
    CHECK_FALSE(g.rebalance.is_stopped());
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{2, 2},
                     decisions::assign{g.a, 2, first_two},
                     decisions::assign{g.b, 2, last}});
}

TEST_CASE("group_rebalance: what a later round asks for is asked for with what is still open") {
    two_members g{assignor::cooperative_sticky};
    g.rebalance.start(noon, g.out);
    g.of(g.a).topics.clear(); // it wants nothing any more
    g.out.clear();
    g.rebalance.start(noon + 5s, g.out);
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{3, 2},
                     decisions::assign{g.a, 3, {}},
                     decisions::revoke{g.a, 3, all},
                     decisions::assign{g.b, 3, {}}});
    CHECK(g.of(g.a).confirm_by == noon + 20s); // no more time for the first
    CHECK(g.of(g.b).promised == all);
}

TEST_CASE("group_rebalance: what an earlier round has promised is kept to") {
    // The third member would take the last partition as well if the plan were made anew.
    group_rebalance rebalance{assignor::cooperative_sticky, 20s, 0};
    group_decision_list out;
    rebalance.owners().set_partitions(rail, 2);
    auto& members = rebalance.members();
    const member_id a = members.add({}, {rail}, noon).id;
    rebalance.start(noon, out);
    const member_id b = members.add({}, {rail}, noon).id;
    rebalance.start(noon, out);
    REQUIRE(members.find(b)->promised == partition_list{{rail, 1}});
    const member_id c = members.add({.instance_id = "before all others"}, {rail}, noon).id;
    rebalance.start(noon, out);
    CHECK(members.find(b)->promised == partition_list{{rail, 1}});
    CHECK(members.find(c)->promised.empty());
    rebalance.release(*members.find(a));
    rebalance.go_on(noon, out);
    CHECK(members.find(b)->owned == partition_list{{rail, 1}});
}

TEST_CASE("group_rebalance: removed, replaced and away") {
    two_members g{assignor::cooperative_sticky};
    g.rebalance.start(noon, g.out);
    g.out.clear();
    g.rebalance.remove(g.of(g.a), removal_reason::removed, g.out);
    CHECK(g.out == group_decision_list{decisions::removed{g.a, removal_reason::removed, all}});
    CHECK(g.rebalance.owners().owner_of({rail, 0}) == nobody);
    const member_id c = g.add("kitchen");
    g.rebalance.start(noon, g.out);
    const partition_list had = g.of(c).owned;
    REQUIRE_FALSE(had.empty());
    g.out.clear();
    const member_id d = g.rebalance.replace(g.of(c), g.out).id;
    CHECK(
        g.out == group_decision_list{
                     decisions::removed{c, removal_reason::fenced, had},
                     decisions::assign{d, g.rebalance.generation(), had}});
    CHECK(g.rebalance.owners().owner_of(had[0]) == d);
    g.of(d).is_away = true;
    g.of(d).topics.clear();
    g.out.clear();
    g.rebalance.start(noon, g.out);
    CHECK(g.of(g.b).owned == all); // nobody was asked
    g.rebalance.members().erase(g.b);
    g.rebalance.members().erase(d);
    g.out.clear();
    g.rebalance.start(noon, g.out);
    CHECK(g.out == group_decision_list{decisions::rebalanced{g.rebalance.generation(), 0}});
}
