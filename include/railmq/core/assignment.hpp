// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace railmq::core {

/// A topic of a group. Ids are given by the broker, in the order in which topics are created; where
/// Kafka goes through topics in the order of their names, we go in the order of their ids.
enum class topic_id : std::uint32_t {};

/// A member of a group: a new one for each time it joins, never used twice. 0 is nobody.
enum class member_id : std::uint64_t {};

inline constexpr member_id nobody{0};

/// Counts the rebalances of a group. 0: there has not been one.
using generation_type = std::uint64_t;

/// One partition of one topic.
struct topic_partition {
    topic_id topic{};
    std::uint32_t partition = 0;

    friend constexpr auto operator<=>(const topic_partition&, const topic_partition&) = default;
};

/// Sorted, and each partition at most once.
using partition_list = std::vector<topic_partition>;

/// How many partitions a topic has.
struct topic_size {
    topic_id topic{};
    std::uint32_t partitions = 0;

    friend constexpr bool operator==(const topic_size&, const topic_size&) = default;
};

/// What an assignor has to know about a member.
struct subscriber {
    member_id id{};
    /// Empty for a dynamic member. Static ones come first, by this name, so that the order of
    /// members outlives their restarts (Kafka, AbstractPartitionAssignor.MemberInfo).
    std::string_view instance_id{};
    std::span<const topic_id> topics{}; ///< Sorted.
    /// What it owned, or claims to have owned, in `generation`. Sorted.
    std::span<const topic_partition> owned{};
    generation_type generation = 0;
    /// What an earlier round meant it to have, and it has not got yet. Sorted.
    std::span<const topic_partition> promised{};
};

/// What each member gets, in the order in which the members were given.
using assignment = std::vector<partition_list>;

/// The places of the members in the order in which they are served: static ones by name, then the
/// others by id. O(n log n).
[[nodiscard]] inline std::vector<std::size_t> serving_order(std::span<const subscriber> members) {
    std::vector<std::size_t> order(members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const subscriber& x = members[a];
        const subscriber& y = members[b];
        if (x.instance_id.empty() != y.instance_id.empty()) {
            return y.instance_id.empty();
        }
        return x.instance_id != y.instance_id ? x.instance_id < y.instance_id : x.id < y.id;
    });
    return order;
}

/// Whether the member asks for that topic. O(log topics).
[[nodiscard]] inline bool subscribes(const subscriber& s, topic_id topic) noexcept {
    return std::binary_search(s.topics.begin(), s.topics.end(), topic);
}

/// Whether a sorted list has that partition. O(log n).
[[nodiscard]] inline bool contains(std::span<const topic_partition> list, topic_partition p) {
    return std::binary_search(list.begin(), list.end(), p);
}

} // namespace railmq::core
