// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>

#include <cstddef>
#include <string_view>
#include <variant>
#include <vector>

namespace railmq::core {

/// Why a member is no longer one.
enum class removal_reason : unsigned char {
    left,              ///< It said so.
    removed,           ///< Somebody else said so.
    session_timeout,   ///< Nothing was heard from it for too long.
    poll_timeout,      ///< It did not ask for messages for too long.
    rebalance_timeout, ///< It did not confirm a revocation in time.
    fenced,            ///< A new incarnation of the same static member has taken over.
};

[[nodiscard]] constexpr std::string_view to_string(removal_reason r) noexcept {
    switch (r) {
    case removal_reason::left: return "left";
    case removal_reason::removed: return "removed";
    case removal_reason::session_timeout: return "session timeout";
    case removal_reason::poll_timeout: return "poll timeout";
    case removal_reason::rebalance_timeout: return "rebalance timeout";
    case removal_reason::fenced: return "fenced";
    }
    return "unknown";
}

/// What a group has decided. Decisions are carried out in the order in which they were made; the
/// coordinator itself calls nobody.
namespace group_decisions {

/// The group is in a new generation. What follows says what it means to each member.
struct rebalanced {
    generation_type generation = 0;
    std::size_t members = 0;
    friend bool operator==(const rebalanced&, const rebalanced&) = default;
};

/// The member is in that generation, and owns these in addition to what it has. Every member gets
/// one for every generation, if only for the number; a static one that is away gets it when it is
/// back.
struct assign {
    member_id member{};
    generation_type generation = 0;
    partition_list partitions{};
    friend bool operator==(const assign&, const assign&) = default;
};

/// The member has to let go of these: to hand out nothing more of them, to end or to give up what
/// it has in work, to commit what is done, and then to call `confirm_revoked` with this generation.
/// It names all that the member has not confirmed yet, also what an earlier one did.
struct revoke {
    member_id member{};
    generation_type generation = 0;
    partition_list partitions{};
    friend bool operator==(const revoke&, const revoke&) = default;
};

/// The member is none any more; these partitions are lost to it, there is nothing to confirm, and
/// it can commit nothing.
struct removed {
    member_id member{};
    removal_reason reason{};
    partition_list partitions{};
    friend bool operator==(const removed&, const removed&) = default;
};

} // namespace group_decisions

using group_decision = std::variant<
    group_decisions::rebalanced,
    group_decisions::assign,
    group_decisions::revoke,
    group_decisions::removed>;

/// Decisions are added at the end.
using group_decision_list = std::vector<group_decision>;

} // namespace railmq::core
