// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// A hash of 64 bits that is the same on every platform and will stay as it is: placement depends
/// on it. FNV-1a (Fowler, Noll, Vo), and then the finalizer of MurmurHash3 (Appleby), since the
/// high bits of FNV hardly depend on the last bytes. Not meant against an adversary.
[[nodiscard]] constexpr std::uint64_t stable_mix(std::uint64_t h) noexcept {
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdU;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53U;
    return h ^ (h >> 33);
}
[[nodiscard]] constexpr std::uint64_t stable_hash(std::string_view text) noexcept {
    std::uint64_t h = 0xcbf29ce484222325U;
    for (const char c : text) {
        h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    return stable_mix(h);
}

/// Places keys on members by consistent hashing (Karger and others, 1997; RabbitMQ, consistent hash
/// exchange): each member owns points on a circle of 2^64 places, and a key belongs to whoever owns
/// the first point at or after its hash.
///
/// Where a key goes depends on the members' identities and weights alone, not on the order in which
/// they came. A member that comes takes keys only from where they were to itself; one that goes
/// leaves its keys to the others, and no other key moves. With 100 points for each unit of weight a
/// member's share is within some 10 % (one standard deviation) of what its weight says.
///
/// Distinct objects: safe. Shared objects: any number of `find` at once, nothing beside the others.
class hash_ring {
public:
    /// No member.
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

    static constexpr std::uint64_t points_per_weight = 100;

    /// Whether there are no members.
    [[nodiscard]] bool empty() const noexcept { return points_.empty(); }

    /// Number of points: 16 bytes each.
    [[nodiscard]] std::size_t points() const noexcept { return points_.size(); }

    /// Adds a member, or changes its weight. `member` is what `find` returns; `identity` decides
    /// the points, and so is to be the same whenever the member is.
    /// Precondition: `member != none`, `weight != 0`, no two members have one identity.
    /// Cost: O(n + w log w) in all points and those of the member. Throws `std::bad_alloc`; then
    /// nothing has changed.
    void set(std::uint32_t member, std::uint64_t identity, std::uint32_t weight) {
        RAILMQ_ASSERT(member != none && weight != 0);
        const std::uint64_t count = weight * points_per_weight;
        std::vector<point> added;
        added.reserve(count);
        for (std::uint64_t i = 0; i != count; ++i) {
            added.push_back({stable_mix(stable_mix(identity) + i * 0x9e3779b97f4a7c15U), member});
        }
        std::sort(added.begin(), added.end(), before);
        std::vector<point> merged;
        merged.reserve(points_.size() + added.size());
        auto next = added.cbegin();
        for (const point& p : points_) {
            if (p.member != member) {
                for (; next != added.cend() && before(*next, p); ++next) {
                    merged.push_back(*next);
                }
                merged.push_back(p);
            }
        }
        merged.insert(merged.end(), next, added.cend());
        points_ = std::move(merged);
    }

    /// Removes a member, if it is there. Cost: O(points). Gives memory back when three quarters
    /// are unused, if there is some for the copy.
    void erase(std::uint32_t member) noexcept {
        std::erase_if(points_, [member](const point& p) { return p.member == member; });
        if (points_.size() * 4 <= points_.capacity()) {
            try {
                points_.shrink_to_fit();
            } catch (...) { // another time
            }
        }
    }

    /// Whose the key with that hash is; `none` if there is nobody. Cost: O(log points).
    [[nodiscard]] std::uint32_t find(std::uint64_t hash) const noexcept {
        if (points_.empty()) {
            return none;
        }
        const auto at = std::lower_bound(
            points_.begin(), points_.end(), hash, [](const point& p, std::uint64_t h) {
                return p.place < h;
            });
        return at == points_.end() ? points_.front().member : at->member;
    }

private:
    struct point {
        std::uint64_t place;
        std::uint32_t member;
    };

    [[nodiscard]] static bool before(const point& a, const point& b) noexcept {
        return a.place < b.place;
    }

    std::vector<point> points_{};
};

} // namespace railmq::core
