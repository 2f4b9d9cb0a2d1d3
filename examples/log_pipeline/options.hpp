// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

namespace log_pipeline {

struct options {
    std::vector<std::string> inputs{};
    std::size_t workers = 4;
    std::size_t queue_length = 400;
    std::optional<std::chrono::duration<double>> seconds{};
    bool is_fast = false;
    bool is_help = false;
    std::optional<std::string> svg{};
    std::string directory{}; ///< Empty: in memory.
};

inline constexpr std::string_view help = R"(usage: 01_log_pipeline [OPTION]... [FILE]...

Streams log files through a bounded queue to workers that parse and index their lines, while
things go wrong: a burst that is faster than the workers, workers that start late, one that dies
and one that hangs while they hold messages, a store that refuses now and then, and lines that
are no log. In the end every line that was sent is either indexed, once, or a dead letter with a
reason.

FILE is a log; '-' is standard input, which is also read when nothing is named and something is
piped in. By default it reads what apt and dpkg wrote, or another log of this machine.

  --workers N   threads that index, 1 to 64 (4)
  --queue N     messages that may wait, 1 to 1000000 (400); the reader waits while it is full
  --seconds N   stop reading after so many seconds; bounds an endless input
  --fast        no pace: by default the first 5 seconds are slowed down, so that one can watch
  --svg FILE    where to draw the backlog (backlog.svg; in the folder for temporary files where
                this one cannot be written)
  --directory DIR
                keep everything in DIR, which is made if it is missing. A run that was ended in
                whatever way, kill -9 and the loss of power included, goes on when it is started
                again with the same inputs, and every line counts once
  --help        this text

A line of more than 4096 bytes is cut there and becomes a dead letter. Ctrl-C stops the reading;
what was sent is still worked off, and the books are made. A second Ctrl-C ends at once.

exit code: 0  the books balance
           1  they do not, or a failure of the program itself
           2  the input or the arguments are unusable: missing, unreadable, a directory, empty, or
              nothing in it could be indexed
)";

/// The options, or what is wrong with them.
[[nodiscard]] inline std::variant<options, std::string> parse_options(int argc, char** argv) {
    options o;
    bool only_files = false;
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string_view name = arguments[i];
        if (only_files || name == "-" || !name.starts_with('-')) {
            o.inputs.emplace_back(name);
            continue;
        }
        if (name == "--") {
            only_files = true;
            continue;
        }
        if (name == "--help" || name == "-h") {
            o.is_help = true;
            return o;
        }
        if (name == "--fast") {
            o.is_fast = true;
            continue;
        }
        std::string_view value;
        bool has_value = false;
        if (const auto equals = name.find('='); equals != std::string_view::npos) {
            value = name.substr(equals + 1);
            name = name.substr(0, equals);
            has_value = true;
        }
        const auto is = [&](std::string_view option) { return name == option; };
        if (!is("--workers") && !is("--queue") && !is("--seconds") && !is("--svg") &&
            !is("--directory")) {
            return fmt::format("unknown option '{}'", printable(name, 60));
        }
        if (!has_value) {
            if (i + 1 == arguments.size()) {
                return fmt::format("{} needs a value", name);
            }
            value = arguments[++i];
        }
        const auto number = [&](auto& to, auto least, auto most) {
            std::remove_reference_t<decltype(to)> n{};
            const auto [end, failure] =
                std::from_chars(value.data(), value.data() + value.size(), n);
            const bool ok = failure == std::errc{} && end == value.data() + value.size() &&
                            n >= least && n <= most; // which is false for what is not a number
            if (ok) {
                to = n;
            }
            return ok;
        };
        if (is("--svg")) {
            if (value.empty()) {
                return std::string{"--svg needs the name of a file"};
            }
            o.svg = value;
        } else if (is("--directory")) {
            if (value.empty()) {
                return std::string{"--directory needs the name of a directory"};
            }
            o.directory = value;
        } else if (is("--workers")) {
            if (!number(o.workers, 1U, 64U)) {
                return fmt::format("--workers is 1 to 64, not '{}'", printable(value, 40));
            }
        } else if (is("--queue")) {
            if (!number(o.queue_length, 1U, 1'000'000U)) {
                return fmt::format("--queue is 1 to 1000000, not '{}'", printable(value, 40));
            }
        } else {
            double n = 0;
            if (!number(n, 0.01, 1e7)) {
                return fmt::format("--seconds is 0.01 to 1e7, not '{}'", printable(value, 40));
            }
            o.seconds = std::chrono::duration<double>{n};
        }
    }
    return o;
}

} // namespace log_pipeline
