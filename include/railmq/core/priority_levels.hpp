// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/returned_list.hpp>
#include <railmq/model/queue_options.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace railmq::core {

/// The messages of a queue with priorities that are ready: a list for each level, and a bit for
/// each list that is not empty, so that the most and the least urgent are found in a few
/// instructions however many there are. A level is made when it is first needed.
///
/// Not safe to use from two threads at once.
class priority_levels {
public:
    /// `levels` is 2 to `max_priorities`. `max_overtakes` as in `queue_options`; 0 is no limit.
    priority_levels(std::uint32_t levels, std::uint32_t max_overtakes)
        : lists_(levels)
        , max_overtakes_{max_overtakes} {}

    /// The level of that priority: what is above the highest is the highest.
    [[nodiscard]] std::uint32_t level_of(std::uint32_t priority) const noexcept {
        return std::min(priority, static_cast<std::uint32_t>(lists_.size() - 1));
    }

    /// As `returned_list::add`, in that level. Strong guarantee: throws `std::bad_alloc`.
    void add(std::uint32_t level, std::uint64_t id, requeue_position where, std::uint64_t end) {
        if (lists_[level] == nullptr) {
            lists_[level] = std::make_unique<returned_list>();
        }
        lists_[level]->add(id, where, end);
        occupied_[level / 64] |= bit_of(level);
    }
    /// As `returned_list::withdraw`.
    template <class IsThere>
    void withdraw(std::uint32_t level, std::uint64_t id, IsThere&& is_there) noexcept {
        lists_[level]->withdraw(id, is_there);
        note_if_empty(level);
    }

    /// Removes the first of the highest level, or the one whose turn it is since too many have
    /// overtaken it; or none. `is_there(id)` tells of each whether it is still meant. O(1) but for
    /// such turns, which look at each level.
    template <class IsThere>
    [[nodiscard]] std::optional<std::uint64_t> take(IsThere&& is_there) noexcept {
        for (;;) {
            const std::uint32_t highest = highest_level();
            if (highest == none) {
                overtakes_ = 0;
                return std::nullopt;
            }
            const bool is_turn = max_overtakes_ != 0 && overtakes_ >= max_overtakes_;
            if (const auto id = take_from(is_turn ? oldest_level() : highest, is_there)) {
                overtakes_ = is_turn || lowest_level() >= highest ? 0 : overtakes_ + 1;
                return id;
            }
        }
    }
    /// Removes the first of the lowest level; or none.
    template <class IsThere>
    [[nodiscard]] std::optional<std::uint64_t> take_least(IsThere&& is_there) noexcept {
        for (;;) {
            const std::uint32_t lowest = lowest_level();
            if (lowest == none) {
                return std::nullopt;
            }
            if (const auto id = take_from(lowest, is_there)) {
                return id;
            }
        }
    }

    /// Calls `f(id)` in the order of levels and in each of their lists, until it returns false.
    /// Some may not be meant any more.
    template <class F>
    void for_each(F&& f) const {
        bool more = true;
        for (auto list = lists_.rbegin(); more && list != lists_.rend(); ++list) {
            if (*list != nullptr) {
                (*list)->for_each(
                    [&](std::uint64_t id) {
                        more = f(id);
                        return more;
                    },
                    [](std::uint64_t) { return true; });
            }
        }
    }
    /// Calls `f(id)` for those of which one may be the oldest.
    template <class F>
    void for_each_old(F&& f) const {
        for (const auto& list : lists_) {
            if (list != nullptr) {
                list->for_each_old(f);
            }
        }
    }

private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    [[nodiscard]] static std::uint64_t bit_of(std::uint32_t level) noexcept {
        return std::uint64_t{1} << (level % 64);
    }
    void note_if_empty(std::uint32_t level) noexcept {
        if (lists_[level]->empty()) {
            occupied_[level / 64] &= ~bit_of(level);
        }
    }
    template <class IsThere>
    [[nodiscard]] std::optional<std::uint64_t>
    take_from(std::uint32_t level, IsThere&& is_there) noexcept {
        const auto id = lists_[level]->take(std::numeric_limits<std::uint64_t>::max(), is_there);
        note_if_empty(level);
        return id;
    }

    [[nodiscard]] std::uint32_t highest_level() const noexcept {
        for (std::uint32_t i = words; i-- != 0;) {
            if (occupied_[i] != 0) {
                return i * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(occupied_[i]));
            }
        }
        return none;
    }
    [[nodiscard]] std::uint32_t lowest_level() const noexcept {
        for (std::uint32_t i = 0; i != words; ++i) {
            if (occupied_[i] != 0) {
                return i * 64 + static_cast<std::uint32_t>(std::countr_zero(occupied_[i]));
            }
        }
        return none;
    }
    /// The one whose first has waited longest; of equals, the highest. One level is not empty.
    [[nodiscard]] std::uint32_t oldest_level() const noexcept {
        std::uint32_t oldest = none;
        std::uint64_t position = 0;
        for (auto level = static_cast<std::uint32_t>(lists_.size()); level-- != 0;) {
            if (lists_[level] == nullptr || lists_[level]->empty()) {
                continue;
            }
            const std::uint64_t first = lists_[level]->first_position();
            if (oldest == none || first < position) {
                oldest = level;
                position = first;
            }
        }
        return oldest;
    }

    static constexpr std::uint32_t words = (max_priorities + 63) / 64;

    std::vector<std::unique_ptr<returned_list>> lists_;
    std::array<std::uint64_t, words> occupied_{};
    std::uint32_t max_overtakes_;
    std::uint32_t overtakes_ = 0; ///< In a row.
};

} // namespace railmq::core
