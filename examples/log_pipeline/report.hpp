// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/railmq.hpp>

#include "backlog_curve.hpp"
#include "console.hpp"
#include "log_index.hpp"
#include "options.hpp"
#include "packed.hpp"
#include "text.hpp"
#include "worker.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace log_pipeline {

/// What the reader counted, and the queue in the end.
struct tally {
    std::uint64_t read = 0;
    std::uint64_t blank = 0;
    std::uint64_t sent = 0;
    steady::duration waited{}; ///< In `send`.
    bool was_interrupted = false;
    bool has_failed = false;
    railmq::queue_stats queue{};
    std::uint64_t left = 0; ///< In all queues together.
};

/// The dead letters: how many for each reason, and the first few of each.
class graveyard {
public:
    struct grave {
        std::uint64_t count = 0;
        std::vector<std::string> examples{};
    };

    void add(std::string_view reason, const log_line& line) {
        auto found = graves_.find(reason);
        if (found == graves_.end()) {
            found = graves_.emplace(reason, grave{}).first;
        }
        grave& g = found->second;
        ++g.count;
        ++count_;
        if (g.examples.size() < 3) {
            g.examples.push_back(
                fmt::format("line {}: {}", grouped(line.number), printable(line.text, 48)));
        }
    }
    void save(packer& p) const {
        p.number(graves_.size());
        for (const auto& [reason, g] : graves_) {
            p.text(reason).number(g.count).number(g.examples.size());
            for (const std::string& example : g.examples) {
                p.text(example);
            }
        }
    }
    void load(unpacker& u) {
        for (std::uint64_t n = u.number(); n != 0 && !u.has_failed(); --n) {
            grave& g = graves_[std::string{u.text()}];
            g.count = u.number();
            count_ += g.count;
            for (std::uint64_t e = u.number(); e != 0 && !u.has_failed(); --e) {
                g.examples.emplace_back(u.text());
            }
        }
    }
    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    [[nodiscard]] const auto& all() const noexcept { return graves_; }

private:
    std::uint64_t count_ = 0;
    std::map<std::string, grave, std::less<>> graves_{};
};

[[nodiscard]] inline std::string names_of(const std::vector<std::string>& inputs) {
    std::string out = inputs.front() == "-" ? "standard input" : printable(inputs.front(), 60);
    if (inputs.size() > 1) {
        out += fmt::format(" and {} more", inputs.size() - 1);
    }
    return out;
}

inline void print_index(job& j) {
    const log_index& index = j.index;
    const auto amount = [](const bounded_counts& c) {
        return grouped(c.distinct()) + (c.is_full() ? " or more" : "");
    };
    const auto list = [](const bounded_counts& c, std::size_t n) {
        std::string out;
        for (const auto& [key, count] : c.top(n)) {
            out +=
                fmt::format("{}{} {}", out.empty() ? "" : ", ", printable(key, 40), grouped(count));
        }
        return out;
    };
    auto& out = j.told.out;
    out.print("\nThe index");
    out.print(fmt::format("  {:<12}{}", "lines", grouped(index.lines())));
    if (index.lines() == 0) {
        return;
    }
    const auto busiest = index.minutes().top(1).front();
    out.print(fmt::format(
        "  {:<12}{}, the busiest {} with {}",
        "minutes",
        amount(index.minutes()),
        busiest.first,
        lines_of(busiest.second)));
    out.print(
        fmt::format("  {:<12}{}: {}", "levels", amount(index.levels()), list(index.levels(), 10)));
    out.print(fmt::format(
        "  {:<12}{}: {}", "programs", amount(index.programs()), list(index.programs(), 5)));
    out.print(fmt::format(
        "  {:<12}{}, {} of them different; the ten most frequent:",
        "words",
        grouped(index.words_seen()),
        amount(index.words())));
    const auto words = index.words().top(10);
    for (const auto& [word, count] : words) {
        const auto width = std::max<std::size_t>(30 * count / words.front().second, 1);
        out.print(fmt::format(
            "{:>24}  {:>9}  {}", printable(word, 22), grouped(count), std::string(width, '=')));
    }
}

inline void print_dead_letters(console& out, const graveyard& graves) {
    out.print("\nThe dead letters");
    for (const auto& [reason, g] : graves.all()) {
        out.print(fmt::format("  {:>9}  {}", grouped(g.count), printable(reason, 60)));
        for (const std::string& example : g.examples) {
            out.print(fmt::format("{:13}{}", "", example));
        }
    }
    if (graves.count() == 0) {
        out.print("  none");
    }
}

/// Writes the picture; an explicit name that cannot be written is complained about. Where it went,
/// or empty.
[[nodiscard]] inline std::string
write_picture(const std::optional<std::string>& wanted, std::string_view content) {
    const auto write = [&](const std::string& path, const char* mode) {
        std::FILE* f = std::fopen(path.c_str(), mode);
        if (f == nullptr) {
            return false;
        }
        const bool all = std::fwrite(content.data(), 1, content.size(), f) == content.size();
        return (std::fclose(f) == 0) && all;
    };
    const std::string path = wanted.value_or("backlog.svg");
    if (write(path, "w")) {
        return path;
    }
    if (wanted) {
        fmt::print(
            stderr,
            "01_log_pipeline: cannot write {}: {}\n",
            printable(path, 200),
            std::strerror(errno));
    }
    std::error_code ec;
    const auto folder = std::filesystem::temp_directory_path(ec);
    const std::string other = (folder / fmt::format("backlog-{}.svg", ::getpid())).string();
    // "x": a file that somebody else has put there is left alone.
    return !ec && write(other, "wx") ? other : std::string{};
}

inline void print_curve(job& j, const options& o) {
    auto& out = j.told.out;
    out.print("\nThe backlog: messages that waited, over the seconds of the run");
    out.print(j.told.curve().draw(72, console::is_unicode()));
    const std::string title = fmt::format("Backlog while indexing {}", names_of(o.inputs));
    const std::string path = write_picture(o.svg, j.told.curve().svg(title, o.queue_length));
    out.print(
        path.empty() ? "no picture could be written"
                     : fmt::format("drawn in {}", printable(path, 200)));
}

/// The exit code.
[[nodiscard]] inline int print_books(job& j, const tally& t, const graveyard& graves) {
    auto& out = j.told.out;
    const auto& q = t.queue;
    const auto row = [&](std::string_view what, std::uint64_t n, std::string_view note = {}) {
        out.print(fmt::format(
            "  {:<26}{:>12}{}{}", what, grouped(n), n == 0 ? "" : "  ", n == 0 ? "" : note));
    };
    out.print("\nThe books");
    row("lines read", t.read);
    row("  blank, not sent", t.blank);
    row("sent",
        t.sent,
        fmt::format(
            "the reader waited {:.2f} s for room",
            std::chrono::duration<double>{t.waited}.count()));
    row("  indexed", j.index.lines());
    row("  dead letters", graves.count());
    row(j.durable != nullptr ? "  left in the queues" : "  left in the queue", t.left);
    row("handed out", q.handed_out, fmt::format("{} of them again", grouped(q.redelivered)));
    row("  refused by the store", q.failed - q.deadlines_passed, "each retried after a backoff");
    row("  held by lost workers",
        j.held.lost(),
        j.held.missing() == 0 ? "all of them settled in the end"
                              : fmt::format("{} of them missing", grouped(j.held.missing())));
    if (j.durable == nullptr) {
        row("  indexed already", j.index.repeats(), "came again, counted once");
    }
    row("  settled too late", j.late.load(), "changed nothing");

    // A queue counts since it was opened: with a directory earlier runs have done some of it.
    const bool queue_agrees =
        j.durable != nullptr ||
        (t.sent == q.accepted && q.acked == j.index.lines() && q.dead_lettered == graves.count());
    const bool balanced = t.read == t.blank + t.sent && queue_agrees &&
                          t.sent == j.index.lines() + graves.count() && t.left == 0 &&
                          j.held.missing() == 0;
    out.print(fmt::format(
        "{}: {} sent = {} indexed + {} dead letters",
        balanced ? "BALANCED" : "NOT BALANCED",
        grouped(t.sent),
        grouped(j.index.lines()),
        grouped(graves.count())));

    if (!balanced || !out.is_good()) {
        return 1;
    }
    if (t.has_failed) {
        return 2;
    }
    const bool came_to_nothing = j.index.lines() == 0;
    if (came_to_nothing && !(t.was_interrupted && t.sent == 0)) {
        fmt::print(
            stderr,
            "01_log_pipeline: {}\n",
            t.sent == 0 ? "there is nothing in the input"
                        : "no line of the input could be indexed: it is no log");
        return 2;
    }
    return 0;
}

} // namespace log_pipeline
