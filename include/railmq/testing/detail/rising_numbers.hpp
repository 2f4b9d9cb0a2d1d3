// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace railmq::testing::detail {

/// Numbers that were given out in some order. Of two calls that overlapped, either may have been
/// the first; where one had ended before the other began, its number is smaller.
class rising_numbers {
public:
    /// Adds a number that was given to a call that lasted from event `begin` to event `end`, the
    /// latest so far. False: it is not larger than all those whose call had ended by `begin`.
    bool add(std::uint64_t number, std::size_t begin, std::size_t end) {
        const auto after =
            std::lower_bound(largest_.begin(), largest_.end(), begin, [](const entry& e, auto at) {
                return e.end < at;
            });
        const bool rises = after == largest_.begin() || std::prev(after)->number < number;
        const std::uint64_t before = largest_.empty() ? number : largest_.back().number;
        largest_.push_back({end, std::max(before, number)});
        return rises;
    }

private:
    struct entry {
        std::size_t end = 0;
        std::uint64_t number = 0; ///< The largest up to there.
    };

    std::vector<entry> largest_{};
};

} // namespace railmq::testing::detail
