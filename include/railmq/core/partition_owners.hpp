// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace railmq::core {

/// How many partitions the topics of a group have, and who has which of them.
///
/// A partition that no longer exists keeps its owner until it is given to nobody.
///
/// Copyable. Not safe to use from two threads at once.
class partition_owners {
public:
    /// False if the topic had as many already. O(topics + partitions).
    /// Strong guarantee: throws `std::bad_alloc`.
    bool set_partitions(topic_id topic, std::uint32_t count) {
        auto at = find(topic);
        if (at == sizes_.size() || sizes_[at].topic != topic) {
            if (count == 0) {
                return false;
            }
            std::vector<member_id> free(count, nobody);
            sizes_.reserve(sizes_.size() + 1);
            owners_.insert(owners_.begin() + static_cast<std::ptrdiff_t>(at), std::move(free));
            sizes_.insert(sizes_.begin() + static_cast<std::ptrdiff_t>(at), {topic, count});
            return true;
        }
        if (sizes_[at].partitions == count) {
            return false;
        }
        owners_[at].resize(std::max<std::size_t>(owners_[at].size(), count), nobody);
        sizes_[at].partitions = count;
        return true;
    }

    /// Sorted. A deleted topic has 0 partitions.
    [[nodiscard]] std::span<const topic_size> sizes() const noexcept { return sizes_; }

    /// O(log topics).
    [[nodiscard]] member_id owner_of(topic_partition p) const noexcept {
        const auto at = find(p.topic);
        return at != sizes_.size() && sizes_[at].topic == p.topic &&
                       p.partition < owners_[at].size()
                   ? owners_[at][p.partition]
                   : nobody;
    }

    /// Makes `owner` the owner of these. Precondition: they exist, or existed.
    /// O(partitions x log topics).
    void give(const partition_list& partitions, member_id owner) noexcept {
        for (const topic_partition p : partitions) {
            owners_[find(p.topic)][p.partition] = owner;
        }
    }

private:
    /// Where the topic is, or would be.
    [[nodiscard]] std::size_t find(topic_id topic) const noexcept {
        const auto at = std::lower_bound(
            sizes_.begin(), sizes_.end(), topic, [](const topic_size& s, topic_id t) {
                return s.topic < t;
            });
        return static_cast<std::size_t>(at - sizes_.begin());
    }

    std::vector<topic_size> sizes_{};
    std::vector<std::vector<member_id>> owners_{};
};

} // namespace railmq::core
