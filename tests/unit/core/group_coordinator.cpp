// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/group_coordinator.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::assignor;
using railmq::duration;
using railmq::errc;
using railmq::group_options;
using railmq::member_options;
using railmq::never;
using railmq::time_point;
using railmq::core::generation_type;
using railmq::core::group_coordinator;
using railmq::core::group_decision_list;
using railmq::core::group_state;
using railmq::core::member_id;
using railmq::core::nobody;
using railmq::core::partition_list;
using railmq::core::removal_reason;
using railmq::core::topic_id;
namespace decisions = railmq::core::group_decisions;

namespace {

constexpr topic_id orders{1};
constexpr topic_id drinks{2};

/// A group, its clock, and what it decided last.
struct group {
    explicit group(group_options o = {}, std::uint32_t partitions = 3)
        : coordinator{std::move(o)} {
        coordinator.set_partitions(orders, partitions, now, out);
    }

    member_id join(member_options o = {}, std::vector<topic_id> topics = {orders}) {
        out.clear();
        const auto joined = coordinator.join(o, topics, now, out);
        REQUIRE(joined.error == errc{});
        return joined.member;
    }
    errc heartbeat(member_id m) { return heartbeat(m, generation(m)); }
    errc heartbeat(member_id m, generation_type g) {
        out.clear();
        return coordinator.heartbeat(m, g, now, out);
    }
    errc poll(member_id m) {
        out.clear();
        return coordinator.poll(m, generation(m), now, out);
    }
    errc confirm(member_id m) { return confirm(m, generation(m)); }
    errc confirm(member_id m, generation_type g) {
        out.clear();
        return coordinator.confirm_revoked(m, g, now, out);
    }
    errc commit(member_id m) { return commit(m, generation(m)); }
    errc commit(member_id m, generation_type g) {
        out.clear();
        return coordinator.admit_commit(m, g, now, out);
    }
    errc leave(member_id m) {
        out.clear();
        return coordinator.leave(m, now, out);
    }
    void pass(duration d) {
        now += d;
        out.clear();
        coordinator.run_due(now, out);
    }

    [[nodiscard]] generation_type generation(member_id m) const {
        const auto* const found = coordinator.find(m);
        return found == nullptr ? coordinator.generation() : found->generation;
    }
    [[nodiscard]] partition_list owned(member_id m) const {
        const auto* const found = coordinator.find(m);
        return found == nullptr ? partition_list{} : found->owned;
    }

    group_coordinator coordinator;
    time_point now{};
    group_decision_list out{};
};

partition_list of(topic_id topic, std::vector<std::uint32_t> numbers) {
    partition_list list;
    for (const std::uint32_t n : numbers) {
        list.push_back({topic, n});
    }
    return list;
}

group_options with(assignor a) {
    return {.assignor = a};
}

assignor any_stopping() {
    return GENERATE(assignor::range, assignor::round_robin, assignor::sticky);
}

} // namespace

static_assert(std::is_copy_constructible_v<group_coordinator>);

TEST_CASE("group_coordinator: an empty group") {
    group g;
    CHECK(g.coordinator.empty());
    CHECK(g.coordinator.state() == group_state::empty);
    CHECK(g.coordinator.generation() == 0);
    CHECK(g.coordinator.next_deadline() == never);
    CHECK(g.out.empty());
    g.pass(1h);
    CHECK(g.out.empty());
    CHECK(g.heartbeat(member_id{1}, 0) == errc::unknown_member);
    CHECK(g.leave(member_id{1}) == errc::unknown_member);
}

TEST_CASE("group_coordinator: whoever is alone owns everything") {
    const assignor how = GENERATE(
        assignor::range, assignor::round_robin, assignor::sticky, assignor::cooperative_sticky);
    group g{with(how)};
    const member_id a = g.join();
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{1, 1}, decisions::assign{a, 1, of(orders, {0, 1, 2})}});
    CHECK(g.coordinator.state() == group_state::stable);
    CHECK(g.coordinator.owner_of({orders, 1}) == a);
    CHECK(g.heartbeat(a) == errc{});
    CHECK(g.poll(a) == errc{});
    CHECK(g.out.empty());
}

TEST_CASE("group_coordinator: [U06] the generation rises by one per rebalance") {
    group g{with(any_stopping())};
    const member_id a = g.join();
    CHECK(g.coordinator.generation() == 1);
    g.join();
    CHECK(g.coordinator.generation() == 1); // not ended yet
    CHECK(g.confirm(a) == errc{});
    CHECK(g.coordinator.generation() == 2);
}

TEST_CASE("group_coordinator: cooperative takes away, and gives out when that is confirmed") {
    group g;
    const member_id a = g.join();
    const member_id b = g.join();
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{2, 2},
                     decisions::assign{a, 2, {}},
                     decisions::revoke{a, 2, of(orders, {2})},
                     decisions::assign{b, 2, {}}});
    CHECK(g.coordinator.state() == group_state::revoking);
    CHECK(g.coordinator.owner_of({orders, 2}) == a); // until it lets go
    CHECK(g.heartbeat(a) == errc::rebalance_in_progress);
    CHECK(g.heartbeat(b) == errc{});
    CHECK(g.commit(a) == errc{}); // of what it is to let go of
    CHECK(g.confirm(a) == errc{});
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{3, 2},
                     decisions::assign{a, 3, {}},
                     decisions::assign{b, 3, of(orders, {2})}});
    CHECK(g.coordinator.state() == group_state::stable);
    CHECK(g.coordinator.owner_of({orders, 2}) == b);
    CHECK(g.owned(a) == of(orders, {0, 1}));
    CHECK(g.confirm(a) == errc{}); // once more does no harm
    CHECK(g.out.empty());
}

TEST_CASE("group_coordinator: the others stop everybody, and give everything out anew") {
    group g{with(assignor::range)};
    const member_id a = g.join();
    const member_id b = g.join();
    CHECK(g.out == group_decision_list{decisions::revoke{a, 1, of(orders, {0, 1, 2})}});
    CHECK(g.coordinator.state() == group_state::revoking);
    CHECK(g.heartbeat(a) == errc::rebalance_in_progress);
    CHECK(g.heartbeat(b, 0) == errc::rebalance_in_progress);
    CHECK(g.coordinator.owner_of({orders, 0}) == a);
    CHECK(g.confirm(a) == errc{});
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{2, 2},
                     decisions::assign{a, 2, of(orders, {0, 1})},
                     decisions::assign{b, 2, of(orders, {2})}});
}

TEST_CASE("group_coordinator: sticky remembers across the stop what everybody had") {
    group g{with(assignor::sticky)};
    const member_id a = g.join();
    const member_id b = g.join();
    CHECK(g.confirm(a) == errc{});
    const member_id c = g.join();
    CHECK(g.confirm(a) == errc{});
    CHECK(g.confirm(b) == errc{});
    CHECK(g.owned(a) == of(orders, {0}));
    CHECK(g.owned(b) == of(orders, {2})); // range would have moved it
    CHECK(g.owned(c) == of(orders, {1}));
}

TEST_CASE("group_coordinator: [U04] whoever leaves in order leaves everything to the rest") {
    group g;
    const member_id a = g.join();
    const member_id b = g.join();
    CHECK(g.confirm(a) == errc{});
    CHECK(g.leave(a) == errc{});
    CHECK(
        g.out == group_decision_list{
                     decisions::removed{a, removal_reason::left, of(orders, {0, 1})},
                     decisions::rebalanced{4, 1},
                     decisions::assign{b, 4, of(orders, {0, 1})}});
    CHECK(g.owned(b) == of(orders, {0, 1, 2}));
    CHECK(g.leave(a) == errc::unknown_member);
    CHECK(g.leave(b) == errc{});
    CHECK(g.out.back() == railmq::core::group_decision{decisions::rebalanced{5, 0}});
    CHECK(g.coordinator.emptied_at() == g.now);
    CHECK(g.coordinator.owner_of({orders, 0}) == nobody);
}

TEST_CASE("group_coordinator: [U07] [B9.6] silent members are removed, the rest gets theirs") {
    group g;
    const member_id a = g.join({.session_timeout = 10s});
    const member_id b = g.join({.session_timeout = 10s});
    CHECK(g.confirm(a) == errc{});
    g.pass(5s);
    CHECK(g.heartbeat(a) == errc{});
    g.pass(5s - 1ns);
    CHECK(g.out.empty());
    g.pass(1ns);
    REQUIRE(g.out.size() == 3);
    CHECK(
        g.out[0] == railmq::core::group_decision{
                        decisions::removed{b, removal_reason::session_timeout, of(orders, {2})}});
    CHECK(g.owned(a) == of(orders, {0, 1, 2}));
    CHECK(g.heartbeat(b, 3) == errc::unknown_member);
    CHECK(g.commit(b, 3) == errc::unknown_member);
}

TEST_CASE("group_coordinator: [U07] a member that dies in the middle of a rebalance") {
    const bool cooperative = GENERATE(false, true);
    group g{with(cooperative ? assignor::cooperative_sticky : assignor::range)};
    const member_id a = g.join({.session_timeout = 10s});
    g.pass(5s);
    const member_id b = g.join({.session_timeout = 10s});
    CHECK(g.coordinator.state() == group_state::revoking);
    g.pass(5s);
    CHECK(g.coordinator.find(a) == nullptr);
    CHECK(g.owned(b) == of(orders, {0, 1, 2}));
    CHECK(g.coordinator.state() == group_state::stable);
}

TEST_CASE("group_coordinator: [B9.6] heartbeats do not save a member that never polls") {
    group g;
    const member_id a = g.join({.session_timeout = 10s, .max_poll_interval = 30s});
    for (int i = 0; i < 5; ++i) {
        g.pass(5s);
        CHECK(g.heartbeat(a) == errc{});
    }
    CHECK(g.poll(a) == errc{});
    for (int i = 0; i < 5; ++i) {
        g.pass(5s);
        CHECK(g.heartbeat(a) == errc{});
    }
    g.pass(5s);
    REQUIRE_FALSE(g.out.empty());
    CHECK(std::get<decisions::removed>(g.out[0]).reason == removal_reason::poll_timeout);
    CHECK(g.heartbeat(a) == errc::unknown_member);
}

TEST_CASE("group_coordinator: who is known to wait is kept alive before what is due is done") {
    group g;
    const member_id waits = g.join({.session_timeout = 10s, .max_poll_interval = 10s});
    const member_id silent = g.join({.session_timeout = 10s, .max_poll_interval = 10s});
    g.now += 10s;
    g.out.clear();
    g.coordinator.keep_alive(waits, g.now);
    g.coordinator.keep_alive(waits, g.now - 5s); // changes nothing
    g.coordinator.keep_alive(nobody, g.now);
    CHECK(g.out.empty());
    CHECK(g.coordinator.size() == 2); // it does nothing that is due
    g.coordinator.run_due(g.now, g.out);
    CHECK(g.coordinator.find(silent) == nullptr);
    CHECK(g.coordinator.find(waits) != nullptr);
    g.pass(9s);
    CHECK(g.coordinator.find(waits) != nullptr);
    g.pass(1s);
    CHECK(g.coordinator.empty());
}

TEST_CASE("group_coordinator: [U08] a commit is a sign of life") {
    group g;
    const member_id a = g.join({.session_timeout = 1000ms});
    g.pass(500ms);
    CHECK(g.commit(a) == errc{});
    g.pass(600ms);
    CHECK(g.heartbeat(a) == errc{});
    g.pass(500ms);
    CHECK(g.commit(a, 7) == errc::fenced); // and one that is refused is not
    g.pass(500ms);
    CHECK(g.heartbeat(a) == errc::unknown_member);
}

TEST_CASE("group_coordinator: nobody has to call run_due for a silent member to be gone") {
    group g;
    const member_id a = g.join({.session_timeout = 10s});
    g.now += 10s;
    CHECK(g.heartbeat(a, 1) == errc::unknown_member);
    REQUIRE(g.out.size() == 2);
    CHECK(std::get<decisions::removed>(g.out[0]).member == a);
}

TEST_CASE("group_coordinator: [U09] subscribing to the same again does not rebalance") {
    group g;
    const member_id a = g.join({}, {orders, drinks});
    const auto subscriptions = g.coordinator.subscriptions();
    g.out.clear();
    const std::vector<topic_id> same{drinks, orders, drinks};
    CHECK(g.coordinator.subscribe(a, 1, same, g.now, g.out) == errc{});
    CHECK(g.out.empty());
    CHECK(g.coordinator.subscriptions() == subscriptions);
    const std::vector<topic_id> other{drinks};
    CHECK(g.coordinator.subscribe(a, 0, other, g.now, g.out) == errc::fenced);
    CHECK(g.coordinator.is_subscribed(orders));
    CHECK(g.coordinator.subscribe(a, 1, other, g.now, g.out) == errc{});
    CHECK_FALSE(g.coordinator.is_subscribed(orders));
    CHECK(g.coordinator.subscriptions() != subscriptions);
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{2, 1},
                     decisions::assign{a, 2, {}},
                     decisions::revoke{a, 2, of(orders, {0, 1, 2})}});
    CHECK(g.confirm(a) == errc{});
    CHECK(g.out.empty()); // there is nobody to give them to
    CHECK(g.coordinator.owner_of({orders, 0}) == nobody);
    CHECK(g.coordinator.state() == group_state::stable);
}

TEST_CASE("group_coordinator: [U10] another generation is fenced, older or newer") {
    group g;
    const member_id a = g.join();
    for (const generation_type wrong : {0U, 2U}) {
        CHECK(g.heartbeat(a, wrong) == errc::fenced);
        CHECK(g.confirm(a, wrong) == errc::fenced);
        CHECK(g.commit(a, wrong) == errc::fenced);
        CHECK(g.coordinator.poll(a, wrong, g.now, g.out) == errc::fenced);
    }
    CHECK(g.out.empty());
}

TEST_CASE("group_coordinator: a confirmation of an earlier round does not count for a later one") {
    group g{{}, 4};
    const member_id a = g.join();
    g.join();
    g.join(); // asks for another one before the first was let go
    CHECK(g.coordinator.find(a)->revoking == of(orders, {2, 3}));
    CHECK(g.confirm(a, 2) == errc::fenced);
    CHECK(g.coordinator.find(a)->revoking == of(orders, {2, 3}));
    CHECK(g.confirm(a, 3) == errc{});
    CHECK(g.coordinator.state() == group_state::stable);
}

TEST_CASE("group_coordinator: a slow member does not hold up what has nothing to do with it") {
    group g{{}, 4};
    const member_id a = g.join();
    const member_id b = g.join();
    CHECK(g.confirm(a) == errc{}); // two each
    const member_id c = g.join();
    CHECK(g.coordinator.state() == group_state::revoking);
    CHECK(g.leave(b) == errc{}); // while somebody has still to confirm
    CHECK(g.owned(c).size() >= 1);
    CHECK(g.confirm(a) == errc{});
    CHECK(g.owned(a).size() == 2);
    CHECK(g.owned(c).size() == 2);
}

TEST_CASE("group_coordinator: who does not confirm in time is removed") {
    const bool cooperative = GENERATE(false, true);
    group g{
        {.assignor = cooperative ? assignor::cooperative_sticky : assignor::round_robin,
         .rebalance_timeout = 20s}};
    const member_id a = g.join();
    const member_id b = g.join();
    g.pass(10s);
    if (cooperative) {
        g.join(); // a second request does not give it more time
    }
    CHECK(g.poll(a) == errc::rebalance_in_progress);
    g.pass(10s - 1ns);
    CHECK(g.out.empty());
    CHECK(g.coordinator.next_deadline() <= g.now + 1ns);
    g.pass(1ns);
    REQUIRE_FALSE(g.out.empty());
    const auto removed = std::get<decisions::removed>(g.out[0]);
    CHECK(removed.member == a);
    CHECK(removed.reason == removal_reason::rebalance_timeout);
    CHECK(removed.partitions == of(orders, {0, 1, 2}));
    CHECK(g.owned(b).size() >= 2);
    CHECK(g.coordinator.state() == group_state::stable);
    CHECK(g.confirm(a, 2) == errc::unknown_member);
}

TEST_CASE(
    "group_coordinator: [U11] the first rebalance waits, longer if somebody joins meanwhile") {
    group g{{.initial_rebalance_delay = 3s, .rebalance_timeout = 60s}};
    const member_id a = g.join();
    CHECK(g.out.empty());
    CHECK(g.coordinator.state() == group_state::waiting);
    CHECK(g.coordinator.next_deadline() == g.now + 3s);
    CHECK(g.heartbeat(a) == errc::rebalance_in_progress);
    CHECK(g.commit(a) == errc::rebalance_in_progress);
    g.pass(3s - 1ns);
    const member_id b = g.join();
    g.pass(2ns);
    CHECK(g.out.empty());
    CHECK(g.coordinator.generation() == 0);
    g.pass(3s - 2ns); // to the nanosecond before the second wait ends
    CHECK(g.out.empty());
    g.pass(1ns);
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{1, 2},
                     decisions::assign{a, 1, of(orders, {0, 2})},
                     decisions::assign{b, 1, of(orders, {1})}});
}

TEST_CASE("group_coordinator: [U11] but never beyond the rebalance timeout") {
    group g{{.initial_rebalance_delay = 3s, .rebalance_timeout = 7s}};
    for (int second = 0; second < 7; ++second) {
        g.join();
        CHECK(g.coordinator.generation() == 0);
        g.pass(1s);
    }
    CHECK(g.coordinator.generation() == 1);
    CHECK(g.coordinator.size() == 7);
}

TEST_CASE("group_coordinator: whoever leaves before the first rebalance leaves nothing behind") {
    group g{{.initial_rebalance_delay = 3s}};
    const member_id a = g.join();
    CHECK(g.leave(a) == errc{});
    CHECK(g.coordinator.state() == group_state::empty);
    g.pass(10s);
    CHECK(g.out.empty());
    CHECK(g.coordinator.generation() == 0);
}

TEST_CASE("group_coordinator: [D63] idle members take over when an active one fails") {
    group g{{}, 4};
    std::vector<member_id> members;
    for (int i = 0; i < 6; ++i) {
        members.push_back(g.join());
        for (const member_id m : members) {
            if (!g.coordinator.find(m)->revoking.empty()) {
                CHECK(g.confirm(m) == errc{});
            }
        }
    }
    const auto active = [&] {
        int n = 0;
        for (const member_id m : members) {
            n += g.owned(m).empty() ? 0 : 1;
        }
        return n;
    };
    CHECK(active() == 4);
    CHECK(g.leave(g.coordinator.owner_of({orders, 2})) == errc{});
    CHECK(active() == 4);
    CHECK(g.coordinator.owner_of({orders, 2}) != nobody);
}

TEST_CASE("group_coordinator: [U15] [B9.3] a static member returns to what it had") {
    group g{with(GENERATE(assignor::range, assignor::cooperative_sticky))};
    const member_options kitchen{.session_timeout = 30s, .instance_id = "kitchen"};
    const member_id a = g.join(kitchen);
    const member_id b = g.join({.session_timeout = 1h});
    CHECK(g.confirm(a) == errc{});
    const auto before = g.coordinator.generation();
    const partition_list had = g.owned(a);
    REQUIRE(had == of(orders, {0, 1}));

    SECTION("without a word") {
        g.pass(29s);
        const member_id again = g.join(kitchen);
        CHECK(
            g.out == group_decision_list{
                         decisions::removed{a, removal_reason::fenced, had},
                         decisions::assign{again, before, had}});
        CHECK(again != a);
        CHECK(g.heartbeat(a, before) == errc::fenced);
        CHECK(g.commit(a, before) == errc::fenced);
        CHECK(g.confirm(a, before) == errc::fenced);
        CHECK(g.leave(a) == errc::fenced);
        CHECK(g.commit(again) == errc{});
        CHECK(g.coordinator.owner_of({orders, 0}) == again);
        g.pass(29s);
        CHECK(g.heartbeat(again) == errc{}); // its session is its own
    }
    SECTION("after it has left in order") {
        CHECK(g.leave(a) == errc{});
        CHECK(g.out.empty());
        CHECK(g.coordinator.owner_of({orders, 0}) == a);
        CHECK(g.commit(a, before) == errc::unknown_member);
        CHECK(g.leave(a) == errc::unknown_member);
        g.pass(29s);
        const member_id again = g.join(kitchen);
        CHECK(g.out == group_decision_list{decisions::assign{again, before, had}});
    }
    SECTION("not after its session") {
        CHECK(g.leave(a) == errc{});
        g.pass(30s);
        REQUIRE_FALSE(g.out.empty());
        CHECK(std::get<decisions::removed>(g.out[0]).member == a);
        if (g.coordinator.state() == group_state::revoking) {
            CHECK(g.confirm(b) == errc{});
        }
        CHECK(g.owned(b) == of(orders, {0, 1, 2}));
        g.join(kitchen);
        CHECK(g.coordinator.generation() > before);
    }
    SECTION("to another subscription") {
        const member_id again = g.join(kitchen, {drinks});
        CHECK(g.coordinator.state() == group_state::revoking);
        CHECK(g.confirm(again) == errc{});
        if (g.coordinator.state() == group_state::revoking) {
            CHECK(g.confirm(b) == errc{});
        }
        CHECK(g.owned(b) == of(orders, {0, 1, 2}));
        CHECK(g.owned(again).empty());
    }
    SECTION("unless it is removed") {
        g.out.clear();
        CHECK(g.coordinator.remove_instance("bar", g.now, g.out) == errc::not_found);
        CHECK(g.coordinator.remove_instance("kitchen", g.now, g.out) == errc{});
        CHECK(std::get<decisions::removed>(g.out[0]).reason == removal_reason::removed);
        CHECK(g.heartbeat(a, before) == errc::unknown_member);
    }
}

TEST_CASE("group_coordinator: [U15] a static member returns in the middle of a rebalance") {
    const bool cooperative = GENERATE(false, true);
    group g{with(cooperative ? assignor::cooperative_sticky : assignor::sticky)};
    const member_options kitchen{.instance_id = "kitchen"};
    const member_id a = g.join(kitchen);
    const member_id b = g.join();
    REQUIRE(g.coordinator.state() == group_state::revoking);
    const member_id again = g.join(kitchen); // nobody has to confirm for the one that is fenced
    CHECK(g.coordinator.state() == group_state::stable);
    CHECK(g.owned(again) == of(orders, {0, 1}));
    CHECK(g.owned(b) == of(orders, {2}));
    CHECK(g.confirm(a) == errc::fenced);
}

TEST_CASE("group_coordinator: nothing is waited for from a static member that is away") {
    const bool cooperative = GENERATE(false, true);
    group g{with(cooperative ? assignor::cooperative_sticky : assignor::sticky)};
    const member_id a = g.join({.instance_id = "kitchen"});
    CHECK(g.leave(a) == errc{});
    const member_id b = g.join();
    CHECK(g.coordinator.state() == group_state::stable);
    CHECK(g.owned(b) == of(orders, {2}));
    CHECK(g.owned(a) == of(orders, {0, 1})); // kept for its return
    const member_id again = g.join({.instance_id = "kitchen"});
    CHECK(
        g.out == group_decision_list{
                     decisions::assign{again, g.coordinator.generation(), of(orders, {0, 1})}});
}

TEST_CASE("group_coordinator: what a static member that leaves had to confirm is free") {
    const bool cooperative = GENERATE(false, true);
    group g{with(cooperative ? assignor::cooperative_sticky : assignor::sticky)};
    const member_id a = g.join({.instance_id = "kitchen"});
    const member_id b = g.join();
    REQUIRE(g.coordinator.state() == group_state::revoking);
    CHECK(g.leave(a) == errc{});
    CHECK(g.coordinator.state() == group_state::stable);
    CHECK(g.owned(b) == of(orders, {2}));
}

TEST_CASE("group_coordinator: more partitions are given out, fewer are taken away") {
    group g{with(assignor::cooperative_sticky), 2};
    const member_id a = g.join({}, {orders, drinks});
    g.out.clear();
    g.coordinator.set_partitions(topic_id{9}, 5, g.now, g.out); // of no interest here
    g.coordinator.set_partitions(orders, 2, g.now, g.out);
    CHECK(g.out.empty());
    g.coordinator.set_partitions(orders, 4, g.now, g.out);
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{2, 1}, decisions::assign{a, 2, of(orders, {2, 3})}});
    g.coordinator.set_partitions(drinks, 1, g.now, g.out);
    CHECK(g.coordinator.owner_of({drinks, 0}) == a);
    g.out.clear();
    g.coordinator.set_partitions(orders, 0, g.now, g.out); // deleted
    CHECK(
        g.out == group_decision_list{
                     decisions::rebalanced{4, 1},
                     decisions::assign{a, 4, {}},
                     decisions::revoke{a, 4, of(orders, {0, 1, 2, 3})}});
    CHECK(g.confirm(a) == errc{});
    CHECK(g.owned(a) == of(drinks, {0}));
}

TEST_CASE("group_coordinator: [V01] [V02] [V03] [B9.4] who may commit, and when") {
    group g{with(any_stopping())};
    CHECK(g.commit(nobody, 0) == errc{});             // without members everybody may
    CHECK(g.commit(member_id{1}, 1) == errc::fenced); // a group that never was
    const member_id a = g.join();
    CHECK(g.commit(nobody, 0) == errc::unknown_member);
    CHECK(g.commit(member_id{77}, 1) == errc::unknown_member);
    CHECK(g.commit(a, 0) == errc::fenced);
    CHECK(g.commit(a, 2) == errc::fenced);
    CHECK(g.commit(a, 1) == errc{});
    const member_id b = g.join();
    CHECK(g.commit(a, 1) == errc{}); // its last chance
    const member_id c = g.join();
    CHECK(g.confirm(a, 1) == errc{});
    CHECK(g.commit(a, 1) == errc::fenced);
    CHECK(g.commit(a, 2) == errc{});
    CHECK(g.confirm(b, 2) == errc{}); // of no consequence: nothing was asked of it
    CHECK(g.leave(c) == errc{});
    CHECK(g.confirm(a, 2) == errc{});
    CHECK(g.commit(a, 2) == errc::rebalance_in_progress);
    CHECK(g.confirm(b, 2) == errc{});
    CHECK(g.commit(a, 3) == errc{});
    CHECK(g.leave(a) == errc{});
    CHECK(g.leave(b) == errc{});
    CHECK(g.commit(a, 3) == errc::unknown_member);
    CHECK(g.commit(nobody, 0) == errc{});
}

TEST_CASE("group_coordinator: options that are wrong take nobody in") {
    group g;
    const auto bad = g.coordinator.join({.session_timeout = 0s}, {}, g.now, g.out);
    CHECK(bad.error == errc::invalid_argument);
    CHECK(bad.member == nobody);
    CHECK(g.coordinator.join({.instance_id = "/"}, {}, g.now, g.out).error == errc::invalid_name);
    CHECK(g.coordinator.empty());
    CHECK(g.out.empty());
}

TEST_CASE("group_coordinator: a group goes on from the generation of its former life") {
    group_coordinator again{{}, 41};
    group_decision_list out;
    again.set_partitions(orders, 1, time_point{}, out);
    const std::vector<topic_id> topics{orders};
    const auto joined = again.join({}, topics, time_point{}, out);
    CHECK(again.generation() == 42);
    CHECK(again.admit_commit(joined.member, 41, time_point{}, out) == errc::fenced);
}
