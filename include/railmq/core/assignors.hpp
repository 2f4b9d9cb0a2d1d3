// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>
#include <railmq/core/sticky_assignor.hpp>
#include <railmq/model/group_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <vector>

namespace railmq::core {

/// Topic by topic: p partitions and m members, in the order of serving, make p / m neighbours for
/// each and one more for the first p % m (Kafka, RangeAssignor).
///
/// `topics` is sorted. O(members x log members + topics x members + partitions).
/// Throws `std::bad_alloc`.
[[nodiscard]] inline assignment
assign_range(std::span<const subscriber> members, std::span<const topic_size> topics) {
    assignment result(members.size());
    const std::vector<std::size_t> order = serving_order(members);
    std::vector<std::size_t> takers;
    for (const topic_size& t : topics) {
        takers.clear();
        for (const std::size_t m : order) {
            if (subscribes(members[m], t.topic)) {
                takers.push_back(m);
            }
        }
        std::uint32_t next = 0;
        for (std::size_t i = 0; i < takers.size(); ++i) {
            const std::size_t share =
                t.partitions / takers.size() + (i < t.partitions % takers.size() ? 1 : 0);
            for (std::size_t n = 0; n < share; ++n) {
                result[takers[i]].push_back({t.topic, next++});
            }
        }
    }
    return result;
}

/// Partition by partition to the next member, in the order of serving and round again, that
/// subscribes to its topic (Kafka, RoundRobinAssignor).
///
/// `topics` is sorted. O(members x log members + partitions), times members if subscriptions
/// differ. Throws `std::bad_alloc`.
[[nodiscard]] inline assignment
assign_round_robin(std::span<const subscriber> members, std::span<const topic_size> topics) {
    assignment result(members.size());
    const std::vector<std::size_t> order = serving_order(members);
    std::size_t next = 0;
    for (const topic_size& t : topics) {
        if (std::none_of(members.begin(), members.end(), [&](const subscriber& s) {
                return subscribes(s, t.topic);
            })) {
            continue;
        }
        for (std::uint32_t p = 0; p < t.partitions; ++p) {
            while (!subscribes(members[order[next]], t.topic)) {
                next = (next + 1) % order.size();
            }
            result[order[next]].push_back({t.topic, p});
            next = (next + 1) % order.size();
        }
    }
    return result;
}

/// Divides the partitions by that rule; see `assign_range`, `assign_round_robin` and
/// `assign_sticky`. Of `cooperative_sticky` this is where it ends up: see `first_round`.
[[nodiscard]] inline assignment
assign(assignor how, std::span<const subscriber> members, std::span<const topic_size> topics) {
    switch (how) {
    case assignor::range: return assign_range(members, topics);
    case assignor::round_robin: return assign_round_robin(members, topics);
    case assignor::sticky:
    case assignor::cooperative_sticky: break;
    }
    return assign_sticky(members, topics);
}

/// What a cooperative rebalance does at once, and what it has to leave for later.
struct cooperative_round {
    assignment now;     ///< What each member has from now on.
    assignment revoked; ///< What each has to let go of; nobody has it meanwhile.
    assignment later;   ///< What each gets when its former owner has confirmed that it let go.
};

/// Splits a target so that no partition goes from hand to hand: what somebody else owns is only
/// taken away, and given out in a later round (Kafka, CooperativeStickyAssignor). `is_free(p, m)`
/// says whether member `m`, by its place, may have `p` at once if it did not own it.
/// O(partitions x log partitions). Throws `std::bad_alloc`.
template <class IsFree>
[[nodiscard]] cooperative_round
first_round(std::span<const subscriber> members, const assignment& target, IsFree&& is_free) {
    cooperative_round round{
        assignment(members.size()), assignment(members.size()), assignment(members.size())};
    for (std::size_t m = 0; m < members.size(); ++m) {
        for (const topic_partition p : target[m]) {
            const bool has_it = contains(members[m].owned, p) || is_free(p, m);
            (has_it ? round.now : round.later)[m].push_back(p);
        }
        for (const topic_partition p : members[m].owned) {
            if (!contains(target[m], p)) {
                round.revoked[m].push_back(p);
            }
        }
    }
    return round;
}

/// The first round of a cooperative rebalance, judged by what the members claim alone: a partition
/// that any of them owned stays with it or is revoked. A stale claim is no ownership: whoever makes
/// it is asked for nothing.
[[nodiscard]] inline cooperative_round
assign_cooperative_sticky(std::span<const subscriber> members, std::span<const topic_size> topics) {
    std::map<topic_partition, generation_type> newest;
    for (const subscriber& s : members) {
        for (const topic_partition p : s.owned) {
            generation_type& g = newest[p];
            g = std::max(g, s.generation);
        }
    }
    std::vector<partition_list> owned(members.size());
    std::vector<subscriber> settled(members.begin(), members.end());
    for (std::size_t m = 0; m < members.size(); ++m) {
        std::copy_if(
            members[m].owned.begin(),
            members[m].owned.end(),
            std::back_inserter(owned[m]),
            [&](topic_partition p) { return newest.at(p) == members[m].generation; });
        settled[m].owned = owned[m];
    }
    const auto is_free = [&](topic_partition p, std::size_t) { return !newest.contains(p); };
    return first_round(settled, assign_sticky(members, topics), is_free);
}

} // namespace railmq::core
