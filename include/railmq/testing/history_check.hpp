// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/testing/detail/history_checker.hpp>
#include <railmq/testing/history.hpp>
#include <railmq/testing/history_rules.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace railmq::testing {

/// The promises that were not kept, in the order in which the history shows it; none if all is
/// well.
///
/// A history is judged in favour of the broker: what it does not say, or what a crash made
/// unknowable, is no violation. One fault is reported once, and what follows is judged as if it had
/// been right, so that the first violation is the one to look at.
///
/// Cost: O(n log n) for n events, and memory for all of them once more.
/// Thread safety: safe.
[[nodiscard]] inline std::vector<violation>
check(const std::vector<event>& events, const history_rules& rules = {}) {
    std::vector<violation> all = detail::history_checker{events, rules}.run();
    std::erase_if(all, [&](const violation& v) {
        return std::find(rules.ignored.begin(), rules.ignored.end(), v.kind) != rules.ignored.end();
    });
    return all;
}
[[nodiscard]] inline std::vector<violation>
check(const history& h, const history_rules& rules = {}) {
    return check(h.events(), rules);
}

/// One line for each: what a failing test prints.
[[nodiscard]] inline std::string to_string(const std::vector<violation>& all) {
    std::string text;
    for (const violation& v : all) {
        text.append(to_string(v.kind)).append(": ").append(v.text).append("\n");
    }
    return text;
}

} // namespace railmq::testing
