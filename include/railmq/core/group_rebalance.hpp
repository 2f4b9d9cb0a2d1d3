// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>
#include <railmq/core/assignors.hpp>
#include <railmq/core/group_decisions.hpp>
#include <railmq/core/group_members.hpp>
#include <railmq/core/partition_owners.hpp>
#include <railmq/model/group_options.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace railmq::core {

/// How the partitions of a group get from hand to hand: the part of `group_coordinator` that makes
/// sure that none of them ever has two owners. Who is a member, and when, is decided there.
///
/// Copyable; `std::bad_alloc` leaves it in an unspecified state. Not safe to use from two threads
/// at once.
class group_rebalance {
public:
    /// `timeout`: how long a member may take to confirm a revocation.
    group_rebalance(assignor how, duration timeout, generation_type last_generation) noexcept
        : how_{how}
        , timeout_{timeout}
        , generation_{last_generation} {}

    [[nodiscard]] group_members& members() noexcept { return members_; }
    [[nodiscard]] const group_members& members() const noexcept { return members_; }
    [[nodiscard]] partition_owners& owners() noexcept { return owners_; }
    [[nodiscard]] const partition_owners& owners() const noexcept { return owners_; }
    [[nodiscard]] generation_type generation() const noexcept { return generation_; }

    /// Everybody is asked for everything, and nothing is given out until all have confirmed.
    [[nodiscard]] bool is_stopped() const noexcept { return is_stopped_; }

    /// What the member was asked for is free. O(partitions).
    void release(member_record& m) noexcept {
        owners_.give(m.revoking, nobody);
        m.revoking.clear();
        m.confirm_by = never;
    }

    /// The member is none any more, and what it had is free. O(partitions).
    void remove(member_record& m, removal_reason reason, group_decision_list& out) {
        partition_list lost = merged(m.owned, m.revoking);
        owners_.give(lost, nobody);
        out.emplace_back(group_decisions::removed{m.id, reason, std::move(lost)});
        members_.erase(m.id);
    }

    /// A new incarnation of a static member gets what the old one owned, and what that had still
    /// to let go of is free: it is fenced. O(partitions).
    member_record& replace(member_record& old, group_decision_list& out) {
        if (!old.is_away) {
            out.emplace_back(group_decisions::removed{
                old.id, removal_reason::fenced, merged(old.owned, old.revoking)});
        }
        release(old);
        member_record& m = members_.replace(old.id);
        m.is_away = false;
        owners_.give(m.owned, m.id);
        if (m.generation != 0) {
            tell(m, m.owned, out);
        }
        return m;
    }

    /// Something is different, and who owns what has to be decided anew. If a rebalance that stops
    /// everybody is under way, it will see to it. Without members there is nothing to decide, and
    /// a new generation all the same. Costs what the assignor does.
    void start(time_point now, group_decision_list& out) {
        if (members_.empty()) {
            is_stopped_ = false;
            ++generation_;
            out.emplace_back(group_decisions::rebalanced{generation_, 0});
        } else if (how_ == assignor::cooperative_sticky) {
            run_round(now, out);
        } else if (!is_stopped_) {
            stop_all(now, out);
        } else {
            go_on(now, out);
        }
    }

    /// Somebody has let go: ends the rebalance if that was the last one. O(members), and then
    /// what the assignor costs.
    void go_on(time_point now, group_decision_list& out) {
        if (members_.have_to_confirm()) {
            return;
        }
        if (is_stopped_) {
            give_out_all(out);
        } else if (members_.have_promises()) {
            run_round(now, out);
        }
    }

private:
    void stop_all(time_point now, group_decision_list& out) {
        is_stopped_ = true;
        for (auto& [id, m] : members_) {
            m.previous = m.owned;
            m.revoking.swap(m.owned);
            if (m.is_away) {
                release(m);
            } else {
                ask_for_revocation(m, now, out);
            }
        }
        go_on(now, out);
    }

    void give_out_all(group_decision_list& out) {
        const auto subscribers = members_.subscribers(true);
        assignment target = assign(how_, subscribers, owners_.sizes());
        is_stopped_ = false;
        ++generation_;
        out.emplace_back(group_decisions::rebalanced{generation_, members_.size()});
        std::size_t place = 0;
        for (auto& [id, m] : members_) {
            m.previous.clear();
            m.owned = std::move(target[place++]);
            m.generation = generation_;
            owners_.give(m.owned, id);
            tell(m, m.owned, out);
        }
    }

    /// One round of a cooperative rebalance.
    void run_round(time_point now, group_decision_list& out) {
        const assignment target = assign_sticky(members_.subscribers(false), owners_.sizes());
        std::size_t place = 0;
        for (auto& [id, m] : members_) {
            if (m.is_away) { // it works on nothing, so there is nothing to wait for
                m.revoking = without(m.owned, target[place]);
                m.owned = without(m.owned, m.revoking);
                release(m);
            }
            ++place;
        }
        const auto is_free = [&](topic_partition p, std::size_t) {
            return owners_.owner_of(p) == nobody;
        };
        cooperative_round round = first_round(members_.subscribers(false), target, is_free);
        ++generation_;
        out.emplace_back(group_decisions::rebalanced{generation_, members_.size()});
        place = 0;
        for (auto& [id, m] : members_) {
            partition_list added = without(round.now[place], m.owned);
            m.owned = std::move(round.now[place]);
            m.promised = std::move(round.later[place]);
            m.revoking = merged(m.revoking, round.revoked[place]);
            m.generation = generation_;
            owners_.give(added, id);
            tell(m, std::move(added), out);
            ask_for_revocation(m, now, out);
            ++place;
        }
    }

    /// Who is away is told when it comes back.
    static void tell(const member_record& m, partition_list added, group_decision_list& out) {
        if (!m.is_away) {
            out.emplace_back(group_decisions::assign{m.id, m.generation, std::move(added)});
        }
    }

    /// A second request does not give more time for the first.
    void ask_for_revocation(member_record& m, time_point now, group_decision_list& out) {
        if (m.revoking.empty()) {
            return;
        }
        m.confirm_by = std::min(m.confirm_by, saturating_add(now, timeout_));
        out.emplace_back(group_decisions::revoke{m.id, m.generation, m.revoking});
    }

    assignor how_;
    duration timeout_;
    group_members members_{};
    partition_owners owners_{};
    generation_type generation_;
    bool is_stopped_ = false;
};

} // namespace railmq::core
