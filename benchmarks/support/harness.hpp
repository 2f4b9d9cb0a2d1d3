// SPDX-License-Identifier: BSL-1.0
//
// Measures tables of contestants. All contestants of a table run in this process, one after the
// other in each round, so that whatever happens to the machine happens to all of them; what
// counts is the median over the rounds, and ratios of medians. Before each round a cache line is
// sent to another core and back, because two-thread figures move with that distance. A round in
// which others used more than a tenth of the processors is discarded and repeated.
#pragma once

#include "arguments.hpp"
#include "machine.hpp"
#include "result.hpp"
#include "table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

class harness {
public:
    harness(std::string name, arguments given)
        : name_{std::move(name)}
        , given_{std::move(given)} {
        (void)allowed_processors();
    }

    [[nodiscard]] bool quick() const { return given_.quick; }

    void add(table entry) { tables_.push_back(std::move(entry)); }

    /// Measures and prints everything; returns the exit status.
    int run() {
        // From now on this is a program with threads: until the first one starts, the C library
        // may leave the atomic instructions out of its locks.
        std::thread{[] {}}.join();
        std::printf(
            "%s: %zu processor(s), %s\n",
            name_.c_str(),
            allowed_processors().size(),
            given_.quick ? "quick run, figures are rough" : "full run");
        std::vector<table_result> results;
        for (auto& entry : tables_) {
            select_rows(entry);
            if (!entry.contestants.empty()) {
                results.push_back(measure(entry));
                print(results.back());
            }
        }
        if (results.empty()) {
            std::printf("nothing matches %s\n", given_.filter.c_str());
            return given_.gate ? 4 : 0;
        }
        const bool written = given_.json.empty() || write_json(results);
        const int status = conclude(results);
        return written ? status : 2;
    }

private:
    static constexpr double tolerated_foreign_share = 0.10;

    /// What one round over all contestants of a table brought.
    struct round {
        double foreign_share = 0;
        std::vector<std::vector<double>> figures; // by contestant
    };

    void select_rows(table& entry) const {
        if (given_.filter.empty()) {
            return;
        }
        std::vector<std::string> wanted;
        for (const auto& row : entry.contestants) {
            const auto full = entry.id + ": " + entry.title + ": " + row.name;
            if (full.find(given_.filter) != std::string::npos) {
                wanted.push_back(row.name);
                for (const auto& expected : row.expected) {
                    wanted.push_back(expected.reference);
                }
                wanted.insert(wanted.end(), entry.references.begin(), entry.references.end());
            }
        }
        std::erase_if(entry.contestants, [&](const contestant& row) {
            return std::find(wanted.begin(), wanted.end(), row.name) == wanted.end();
        });
    }

    [[nodiscard]] table_result measure(const table& entry) const {
        table_result result{
            .id = entry.id,
            .title = entry.title,
            .columns = entry.columns,
            .references = entry.references,
            .comparison = entry.comparison,
            .rows = std::vector<row_result>(entry.contestants.size()),
        };
        for (std::size_t n = 0; n < entry.contestants.size(); ++n) {
            result.rows[n].name = entry.contestants[n].name;
        }
        const auto counts = calibrate(entry, result);
        const auto rounds = run_rounds(entry, counts, result);
        choose_rounds(rounds, wanted_rounds(entry), entry, result);
        for (std::size_t n = 0; n < entry.contestants.size(); ++n) {
            for (const auto& expected : entry.contestants[n].expected) {
                result.verdicts.push_back(judge(result, result.rows[n], expected));
            }
        }
        return result;
    }

    [[nodiscard]] std::size_t wanted_rounds(const table& entry) const {
        if (given_.rounds != 0) {
            return given_.rounds;
        }
        return entry.timeless ? (given_.quick ? 1U : 3U) : (given_.quick ? 3U : 9U);
    }

    /// A first run of each, to warm up and to find how many messages fill the time wanted.
    [[nodiscard]] std::vector<std::uint64_t>
    calibrate(const table& entry, table_result& result) const {
        std::vector<std::uint64_t> counts;
        for (std::size_t n = 0; n < entry.contestants.size(); ++n) {
            counts.push_back(entry.messages);
            if (entry.messages != 0) {
                continue;
            }
            const auto first = attempt(entry, n, 20'000, result);
            const double wanted = given_.quick ? 15e6 : 60e6;
            const double each = first.empty() ? 100.0 : std::max(first.front(), 1.0);
            counts.back() = static_cast<std::uint64_t>(std::clamp(wanted / each, 10'000.0, 5e6));
        }
        return counts;
    }

    [[nodiscard]] std::vector<round> run_rounds(
        const table& entry, const std::vector<std::uint64_t>& counts, table_result& result) const {
        const auto wanted = wanted_rounds(entry);
        const auto at_most = entry.timeless || given_.quick ? wanted : 2 * wanted;
        std::vector<round> rounds;
        for (std::size_t quiet = 0; quiet < wanted && rounds.size() < at_most;) {
            if (!entry.timeless) {
                if (const auto trip = core_round_trip()) {
                    result.round_trips.push_back(*trip);
                }
            }
            const auto contestants = entry.contestants.size();
            round current;
            current.figures.resize(contestants);
            const foreign_share_meter meter;
            for (std::size_t n = 0; n < contestants; ++n) {
                const auto at = (n + rounds.size()) % contestants; // everybody begins once
                current.figures[at] = attempt(entry, at, counts[at], result);
            }
            if (const auto share = meter.share()) {
                current.foreign_share = *share;
                result.foreign_shares.push_back(*share);
            }
            quiet += current.foreign_share <= tolerated_foreign_share ? 1U : 0U;
            rounds.push_back(std::move(current));
        }
        return rounds;
    }

    /// The quiet rounds count. Where fewer than half of those wanted were quiet, the least
    /// disturbed ones have to do, and the result says so.
    static void choose_rounds(
        const std::vector<round>& rounds,
        std::size_t wanted,
        const table& entry,
        table_result& result) {
        std::vector<std::size_t> order(rounds.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return std::pair{rounds[a].foreign_share, a} < std::pair{rounds[b].foreign_share, b};
        });
        const auto quiet = static_cast<std::size_t>(
            std::count_if(rounds.begin(), rounds.end(), [](const round& candidate) {
                return candidate.foreign_share <= tolerated_foreign_share;
            }));
        const auto enough = (wanted + 1) / 2;
        result.quiet = quiet >= enough || entry.timeless;
        result.counted = entry.timeless ? rounds.size() : std::max(quiet, enough);
        result.counted = std::min(result.counted, rounds.size());
        const auto rest = order.begin() + static_cast<std::ptrdiff_t>(result.counted);
        result.left_out.assign(rest, order.end());
        order.erase(rest, order.end());
        for (std::size_t n = 0; n < result.rows.size(); ++n) {
            if (!result.rows[n].failure.empty()) {
                continue;
            }
            result.rows[n].samples.resize(result.columns.size());
            for (const auto at : order) {
                for (std::size_t column = 0; column < result.columns.size(); ++column) {
                    result.rows[n].samples[column].push_back(rounds[at].figures[n].at(column));
                }
            }
        }
    }

    /// One run of one contestant; nothing once it has failed.
    [[nodiscard]] std::vector<double> attempt(
        const table& entry, std::size_t index, std::uint64_t messages, table_result& result) const {
        auto& row = result.rows[index];
        if (!row.failure.empty()) {
            return {};
        }
        show_progress(entry.id + ": " + row.name);
        std::vector<double> figures;
        try {
            figures = entry.contestants[index].run(messages);
        } catch (const std::exception& problem) {
            row.failure = problem.what();
        }
        show_progress({});
        return figures;
    }

    static void show_progress(const std::string& text) {
        if (isatty(STDERR_FILENO) != 0) {
            std::fprintf(stderr, "\r\033[K%s", text.c_str());
            std::fflush(stderr);
        }
    }

    [[nodiscard]] bool write_json(const std::vector<table_result>& results) const {
        std::FILE* file = std::fopen(given_.json.c_str(), "w");
        if (file == nullptr) {
            std::perror(given_.json.c_str());
            return false;
        }
        const auto text =
            "{\"benchmark\": " + detail::quoted(name_) +
            ", \"quick\": " + (given_.quick ? "true" : "false") +
            ", \"processors\": " + std::to_string(allowed_processors().size()) +
            ",\n \"tables\": " +
            detail::list_of(results, [](const auto& r) { return "\n " + json_of(r); }) + "}\n";
        const bool complete = std::fwrite(text.data(), 1, text.size(), file) == text.size();
        const bool closed = std::fclose(file) == 0;
        if (!complete || !closed) {
            std::perror(given_.json.c_str());
        }
        return complete && closed;
    }

    [[nodiscard]] int conclude(const std::vector<table_result>& results) const {
        std::vector<double> trips;
        std::size_t floors = 0;
        std::size_t floors_met = 0;
        std::size_t goals = 0;
        std::size_t goals_met = 0;
        std::size_t unknown = 0;
        std::size_t failed = 0;
        bool quiet = true;
        for (const auto& result : results) {
            trips.insert(trips.end(), result.round_trips.begin(), result.round_trips.end());
            quiet = quiet && result.quiet;
            for (const auto& row : result.rows) {
                failed += row.failure.empty() ? 0U : 1U;
            }
            for (const auto& answer : result.verdicts) {
                if (!answer.known()) {
                    unknown += answer.floor != 0 || answer.goal != 0 ? 1U : 0U;
                    continue;
                }
                floors += answer.floor != 0 ? 1U : 0U;
                floors_met += answer.floor != 0 && answer.floor_met() ? 1U : 0U;
                goals += answer.goal != 0 ? 1U : 0U;
                goals_met += answer.goal != 0 && answer.goal_met() ? 1U : 0U;
            }
        }
        std::printf("\n");
        if (!trips.empty()) {
            std::printf(
                "core round trip, lowest / median / highest: %s ns\n",
                detail::low_mid_high(trips, 1).c_str());
        }
        std::printf(
            "floors met: %zu of %zu; goals met: %zu of %zu; comparisons without a peer: %zu; "
            "failed rows: %zu\n",
            floors_met,
            floors,
            goals_met,
            goals,
            unknown,
            failed);
        if (!quiet) {
            std::printf("some tables are NOT QUIET: others used the processors\n");
        }
        if (!given_.gate) {
            return 0;
        }
        if (failed != 0) {
            return 1;
        }
        return !quiet ? 3 : floors_met == floors ? 0 : 1;
    }

    std::string name_;
    arguments given_;
    std::vector<table> tables_;
};

} // namespace bench
