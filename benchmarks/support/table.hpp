// SPDX-License-Identifier: BSL-1.0
//
// A question and those who answer it: contestants that are measured side by side, and what is
// expected of some of them relative to others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {

/// What a row should reach. The floor is what no change may fall below, the goal what we want;
/// 0 means that there is none.
struct expectation {
    enum class kind {
        times_as_fast, ///< reference / own, at least
        cost_relative, ///< own / reference, at most
        absolute,      ///< own, at most
    };

    kind how = kind::times_as_fast;
    std::string reference; ///< Name of another row of the table; not for `absolute`.
    double floor = 0;
    double goal = 0;
    double near_floor = 0; ///< Instead of `floor` where two cores are near each other; 0: the same.
    double near_goal = 0;
    std::size_t column = 0;
    double only_above = 0; ///< Floor and goal count only if the reference is above this.

    [[nodiscard]] expectation if_reference_above(double figure) const {
        auto result = *this;
        result.only_above = figure;
        return result;
    }

    [[nodiscard]] expectation when_near(double floor_there, double goal_there) const {
        auto result = *this;
        result.near_floor = floor_there;
        result.near_goal = goal_there;
        return result;
    }

    [[nodiscard]] expectation in_column(std::size_t index) const {
        auto result = *this;
        result.column = index;
        return result;
    }

    [[nodiscard]] double floor_at(bool near) const {
        return near && near_floor != 0 ? near_floor : floor;
    }
    [[nodiscard]] double goal_at(bool near) const {
        return near && near_goal != 0 ? near_goal : goal;
    }
    [[nodiscard]] bool reaches(double value, double bound) const {
        return how == kind::times_as_fast ? value >= bound : value <= bound;
    }
};

[[nodiscard]] inline expectation times_as_fast(std::string reference, double floor, double goal) {
    return {expectation::kind::times_as_fast, std::move(reference), floor, goal};
}

/// Only says how many times as fast, with a goal or without.
[[nodiscard]] inline expectation compared_with(std::string reference, double goal = 0) {
    return times_as_fast(std::move(reference), 0, goal);
}

[[nodiscard]] inline expectation costs_at_most(std::string reference, double floor, double goal) {
    return {expectation::kind::cost_relative, std::move(reference), floor, goal};
}

[[nodiscard]] inline expectation at_most(double floor, double goal) {
    return {expectation::kind::absolute, {}, floor, goal};
}

/// Runs once with about that many messages and returns one figure for each column.
using workload = std::function<std::vector<double>(std::uint64_t messages)>;

struct contestant {
    std::string name;
    workload run;
    std::vector<expectation> expected;
};

struct table {
    std::string id;
    std::string title;
    std::vector<std::string> columns = {"ns/message"};

    /// Rows that the others are shown as multiples of.
    std::vector<std::string> references = {};

    /// How many messages a run takes; 0: as many as fill the time that a run should last.
    std::uint64_t messages = 0;

    /// What "2x" means here.
    std::string comparison = "as fast as";

    /// The figures do not depend on time: few rounds do, whatever else the machine does.
    bool timeless = false;

    std::vector<contestant> contestants = {};

    /// `run` takes the number of messages and returns a double or a vector of them.
    template <class Run>
    void add(std::string name, Run run, std::vector<expectation> expected = {}) {
        workload wrapped;
        if constexpr (std::is_same_v<std::invoke_result_t<Run&, std::uint64_t>, double>) {
            wrapped = [run = std::move(run)](std::uint64_t n) { return std::vector{run(n)}; };
        } else {
            wrapped = std::move(run);
        }
        contestants.push_back({std::move(name), std::move(wrapped), std::move(expected)});
    }
};

} // namespace bench
