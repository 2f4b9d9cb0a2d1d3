// SPDX-License-Identifier: BSL-1.0
//
// What came out of a table, as text for people and as JSON for programs.
#pragma once

#include "machine.hpp"
#include "table.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// Two cores are far apart when a cache line needs longer than this for a round trip.
inline constexpr double far_round_trip = 250.0;

struct row_result {
    std::string name;
    std::vector<std::vector<double>> samples; ///< By column, one for each round that counts.
    std::string failure;                      ///< Why there are none.

    [[nodiscard]] double median(std::size_t column = 0) const {
        return column < samples.size() ? median_of(samples[column]) : 0.0;
    }
};

struct verdict {
    std::string row;
    expectation expected;
    double value = 0; ///< 0: one of the two rows is missing.
    double floor = 0;
    double goal = 0;

    [[nodiscard]] bool known() const { return value > 0; }
    [[nodiscard]] bool floor_met() const {
        return floor == 0 || (known() && expected.reaches(value, floor));
    }
    [[nodiscard]] bool goal_met() const {
        return goal == 0 || (known() && expected.reaches(value, goal));
    }
};

struct table_result {
    std::string id;
    std::string title;
    std::vector<std::string> columns;
    std::vector<std::string> references;
    std::string comparison;
    std::vector<row_result> rows = {};
    std::vector<verdict> verdicts = {};
    std::vector<double> round_trips = {}; ///< One probe before each round.
    std::vector<double> foreign_shares =
        {};                                 ///< Of every round, discarded ones too; empty: unknown.
    std::vector<std::size_t> left_out = {}; ///< Indices of discarded rounds.
    std::size_t counted = 0;                ///< Rounds that the medians are made of.
    bool quiet = true;                      ///< Every counted round was quiet.

    [[nodiscard]] bool near() const {
        return !round_trips.empty() && median_of(round_trips) <= far_round_trip;
    }

    [[nodiscard]] const row_result* row(std::string_view name) const {
        for (const auto& candidate : rows) {
            if (candidate.name == name && candidate.failure.empty()) {
                return &candidate;
            }
        }
        return nullptr;
    }

    /// How many times as fast as the reference the row is; 0 if that is not known.
    [[nodiscard]] double
    times_as_fast(const row_result& own, std::string_view reference, std::size_t column = 0) const {
        const auto* other = row(reference);
        if (other == nullptr || !own.failure.empty() || own.median(column) <= 0) {
            return 0;
        }
        return other->median(column) / own.median(column);
    }
};

[[nodiscard]] inline verdict
judge(const table_result& result, const row_result& own, const expectation& expected) {
    verdict answer{own.name, expected};
    const auto* reference = result.row(expected.reference);
    if (reference == nullptr || reference->median(expected.column) >= expected.only_above) {
        answer.floor = expected.floor_at(result.near());
        answer.goal = expected.goal_at(result.near());
    }
    const auto ratio = result.times_as_fast(own, expected.reference, expected.column);
    switch (expected.how) {
    case expectation::kind::times_as_fast: answer.value = ratio; break;
    case expectation::kind::cost_relative: answer.value = ratio > 0 ? 1 / ratio : 0; break;
    case expectation::kind::absolute:
        answer.value = own.failure.empty() ? own.median(expected.column) : 0;
        break;
    }
    return answer;
}

namespace detail {

[[nodiscard]] inline std::string number(double value) {
    char text[64];
    const int digits = value >= 100 || value == 0 ? 0 : value >= 10 ? 1 : 2;
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

/// A bound as its author wrote it: 0.7, 12, 0.33.
[[nodiscard]] inline std::string bound(double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.3g", value);
    return text;
}

/// "(a)" for the first reference; nothing for a row that is none.
[[nodiscard]] inline std::string mark_of(const table_result& result, std::string_view row) {
    const auto at = std::find(result.references.begin(), result.references.end(), row);
    if (at == result.references.end()) {
        return {};
    }
    return {'(', static_cast<char>('a' + (at - result.references.begin())), ')'};
}

[[nodiscard]] inline std::string low_mid_high(std::vector<double> values, double unit) {
    if (values.empty()) {
        return "unknown";
    }
    std::sort(values.begin(), values.end());
    return number(values.front() * unit) + " / " + number(median_of(values) * unit) + " / " +
           number(values.back() * unit);
}

/// "2 0 [31] 4": the share of each round, discarded ones in brackets.
[[nodiscard]] inline std::string shares_of(const table_result& result) {
    if (result.foreign_shares.empty()) {
        return "unknown";
    }
    std::string text;
    for (std::size_t n = 0; n < result.foreign_shares.size(); ++n) {
        char share[32];
        std::snprintf(share, sizeof share, "%.0f", result.foreign_shares[n] * 100);
        const auto& out = result.left_out;
        const bool kept = std::find(out.begin(), out.end(), n) == out.end();
        text += text.empty() ? "" : " ";
        text += kept ? share : std::string{"["} + share + "]";
    }
    return text;
}

[[nodiscard]] inline std::string sentence(const table_result& result, const verdict& answer) {
    const bool most = answer.expected.how != expectation::kind::times_as_fast;
    const char* sign = most ? "<=" : ">=";
    const char* times = answer.expected.how == expectation::kind::absolute ? "" : "x";
    std::string text = answer.known() ? number(answer.value) + times : std::string{"not known"};
    switch (answer.expected.how) {
    case expectation::kind::times_as_fast: text += " " + result.comparison + " "; break;
    case expectation::kind::cost_relative: text += " the cost of "; break;
    case expectation::kind::absolute: text += " in all"; break;
    }
    text += answer.expected.reference;
    if (result.columns.size() > 1) {
        text += ", " + result.columns[answer.expected.column];
    }
    if (answer.floor != 0) {
        text += std::string{"; floor "} + sign + " " + bound(answer.floor) + times +
                (!answer.known()      ? " open"
                 : answer.floor_met() ? " met"
                                      : " MISSED");
    }
    if (answer.goal != 0) {
        text += std::string{"; goal "} + sign + " " + bound(answer.goal) + times +
                (!answer.known()     ? " open"
                 : answer.goal_met() ? " met"
                                     : " not met");
    }
    return text;
}

} // namespace detail

inline void print(const table_result& result) {
    std::printf("\n%s: %s\n", result.id.c_str(), result.title.c_str());
    std::printf(
        "    median of %zu round%s, %zu discarded\n",
        result.counted,
        result.counted == 1 ? "" : "s",
        result.left_out.size());
    std::printf("    foreign CPU by round, %%: %s\n", detail::shares_of(result).c_str());
    if (!result.round_trips.empty()) {
        std::printf(
            "    core round trip, lowest / median / highest: %s ns (%s)\n",
            detail::low_mid_high(result.round_trips, 1).c_str(),
            result.near() ? "near" : "far");
    }
    std::printf("%s\n", result.quiet ? "" : "    NOT QUIET: others used the processors\n");

    std::size_t width = 20;
    for (const auto& row : result.rows) {
        width = std::max(width, row.name.size() + detail::mark_of(result, row.name).size() + 1);
    }
    std::printf("    %-*s", static_cast<int>(width), "");
    for (const auto& column : result.columns) {
        std::printf(" %11s", column.c_str());
    }
    if (result.columns.size() == 1) {
        std::printf(" %9s %9s", "lowest", "highest");
    }
    for (const auto& reference : result.references) {
        if (result.row(reference) != nullptr) {
            std::printf("   x %s", detail::mark_of(result, reference).c_str());
        }
    }
    std::printf("\n");
    for (const auto& row : result.rows) {
        const auto mark = detail::mark_of(result, row.name);
        const auto label = mark.empty() ? row.name : row.name + " " + mark;
        std::printf("    %-*s", static_cast<int>(width), label.c_str());
        if (!row.failure.empty()) {
            std::printf(" failed: %s\n", row.failure.c_str());
            continue;
        }
        for (std::size_t column = 0; column < result.columns.size(); ++column) {
            std::printf(" %11s", detail::number(row.median(column)).c_str());
        }
        if (result.columns.size() == 1) {
            const auto [low, high] =
                std::minmax_element(row.samples[0].begin(), row.samples[0].end());
            std::printf(" %9s %9s", detail::number(*low).c_str(), detail::number(*high).c_str());
        }
        for (const auto& reference : result.references) {
            if (result.row(reference) != nullptr) {
                std::printf(" %7s", detail::number(result.times_as_fast(row, reference)).c_str());
            }
        }
        std::printf("\n");
    }
    for (const auto& answer : result.verdicts) {
        if (&answer == &result.verdicts.front()) {
            std::printf("\n");
        }
        std::printf("    %s: %s\n", answer.row.c_str(), detail::sentence(result, answer).c_str());
    }
    std::fflush(stdout);
}

namespace detail {

[[nodiscard]] inline std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            result += '\\';
        }
        result += c;
    }
    return result + '"';
}

[[nodiscard]] inline std::string plain(double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

template <class Range, class Write>
[[nodiscard]] std::string list_of(const Range& range, Write write) {
    std::string result = "[";
    for (const auto& element : range) {
        if (result.size() > 1) {
            result += ", ";
        }
        result += write(element);
    }
    return result + "]";
}

[[nodiscard]] inline std::string json_of(const row_result& row) {
    std::string text = "{\"name\": " + detail::quoted(row.name);
    if (!row.failure.empty()) {
        return text + ", \"failure\": " + detail::quoted(row.failure) + "}";
    }
    const auto median = [](const auto& samples) { return plain(median_of(samples)); };
    const auto samples = [](const auto& column) { return list_of(column, plain); };
    return text + ", \"median\": " + list_of(row.samples, median) +
           ", \"samples\": " + list_of(row.samples, samples) + "}";
}

[[nodiscard]] inline std::string json_of(const table_result& result, const verdict& answer) {
    constexpr const char* kinds[] = {"times_as_fast", "cost_relative", "absolute"};
    const auto& expected = answer.expected;
    std::string text = "{\"row\": " + detail::quoted(answer.row) +
                       ", \"kind\": " + detail::quoted(kinds[static_cast<int>(expected.how)]) +
                       ", \"reference\": " + detail::quoted(expected.reference) +
                       ", \"column\": " + detail::quoted(result.columns[expected.column]);
    if (answer.known()) {
        text += ", \"value\": " + plain(answer.value);
    }
    const auto add = [&](const std::string& name, double limit, bool met) {
        if (limit != 0) {
            text += ", \"" + name + "\": " + plain(limit);
            if (answer.known()) {
                text += ", \"" + name + "_met\": " + (met ? "true" : "false");
            }
        }
    };
    add("floor", answer.floor, answer.floor_met());
    add("goal", answer.goal, answer.goal_met());
    return text + "}";
}

} // namespace detail

[[nodiscard]] inline std::string json_of(const table_result& result) {
    using detail::list_of;
    using detail::plain;
    return "{\"id\": " + detail::quoted(result.id) +
           ", \"title\": " + detail::quoted(result.title) +
           ",\n  \"columns\": " + list_of(result.columns, detail::quoted) +
           ", \"counted\": " + std::to_string(result.counted) + ", \"discarded\": " +
           list_of(result.left_out, [](std::size_t n) { return std::to_string(n); }) +
           ", \"quiet\": " + (result.quiet ? "true" : "false") +
           ",\n  \"foreign_shares\": " + list_of(result.foreign_shares, plain) +
           ",\n  \"core_round_trip_ns\": " + list_of(result.round_trips, plain) +
           ",\n  \"rows\": " +
           list_of(result.rows, [](const auto& row) { return "\n    " + detail::json_of(row); }) +
           ",\n  \"expectations\": " +
           list_of(
               result.verdicts,
               [&](const auto& v) { return "\n    " + detail::json_of(result, v); }) +
           "}";
}

} // namespace bench
