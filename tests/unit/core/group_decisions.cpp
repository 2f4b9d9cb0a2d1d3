// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/group_decisions.hpp>

#include "support/catch.hpp"

#include <set>
#include <string_view>
#include <variant>

using railmq::core::group_decision;
using railmq::core::member_id;
using railmq::core::removal_reason;
using railmq::core::topic_id;
namespace group_decisions = railmq::core::group_decisions;

TEST_CASE("group_decisions: reasons have names of their own") {
    std::set<std::string_view> names;
    for (const removal_reason r :
         {removal_reason::left,
          removal_reason::removed,
          removal_reason::session_timeout,
          removal_reason::poll_timeout,
          removal_reason::rebalance_timeout,
          removal_reason::fenced}) {
        names.insert(to_string(r));
    }
    CHECK(names.size() == 6);
    CHECK_FALSE(names.contains("unknown"));
    CHECK(to_string(static_cast<removal_reason>(99)) == "unknown");
}

TEST_CASE("group_decisions: two are equal when kind and contents are") {
    const group_decision a = group_decisions::assign{member_id{1}, 2, {{topic_id{3}, 4}}};
    CHECK(a == group_decision{group_decisions::assign{member_id{1}, 2, {{topic_id{3}, 4}}}});
    CHECK(a != group_decision{group_decisions::assign{member_id{1}, 2, {}}});
    CHECK(a != group_decision{group_decisions::revoke{member_id{1}, 2, {{topic_id{3}, 4}}}});
    CHECK(std::holds_alternative<group_decisions::rebalanced>(group_decision{}));
}
