// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace railmq::storage::detail {

/// A set of numbers, as ranges, each from its first number up to another that is not in it.
///
/// Cost: logarithmic, and what is joined or divided.
///
/// Distinct objects: safe. Shared objects: unsafe.
class number_ranges {
public:
    void add(std::uint64_t from, std::uint64_t to) {
        if (from >= to) {
            return;
        }
        auto it = ranges_.upper_bound(from);
        if (it != ranges_.begin() && std::prev(it)->second >= from) {
            --it;
            from = it->first;
        }
        while (it != ranges_.end() && it->first <= to) {
            to = std::max(to, it->second);
            it = ranges_.erase(it);
        }
        ranges_.emplace(from, to);
    }
    void remove(std::uint64_t from, std::uint64_t to) {
        if (from >= to) {
            return;
        }
        auto it = ranges_.upper_bound(from);
        if (it != ranges_.begin()) {
            --it;
        }
        while (it != ranges_.end() && it->first < to) {
            const auto [begin, end] = *it;
            if (end <= from) {
                ++it;
                continue;
            }
            it = ranges_.erase(it);
            if (begin < from) {
                ranges_.emplace(begin, from);
            }
            if (end > to) {
                it = ranges_.emplace(to, end).first;
            }
        }
    }
    [[nodiscard]] const std::map<std::uint64_t, std::uint64_t>& all() const noexcept {
        return ranges_;
    }

private:
    std::map<std::uint64_t, std::uint64_t> ranges_{};
};

} // namespace railmq::storage::detail
