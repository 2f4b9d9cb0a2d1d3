// SPDX-License-Identifier: BSL-1.0
//
// The command line that every benchmark understands.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace bench {

struct arguments {
    bool quick = false;            ///< Short runs: to see that everything works, not to quote.
    bool gate = false;             ///< The exit status tells whether every floor was met.
    unsigned rounds = 0;           ///< 0: what the benchmark finds right.
    std::string filter;            ///< Only tables and rows whose "id: title: row" contains this.
    std::string json;              ///< Where to write the results as JSON; empty: nowhere.
    std::string directory;         ///< Where to put files; empty: what the benchmark finds right.
    std::uint64_t megabytes = 256; ///< How much to read or open again.
};

namespace detail {

[[noreturn]] inline void leave_with_usage(std::string_view program, int status) {
    std::fprintf(
        status == 0 ? stdout : stderr,
        "usage: %.*s [--quick] [--rounds N] [--filter SUBSTRING] [--gate] [--json FILE]\n"
        "       [--directory DIR] [--megabytes N]\n"
        "\n"
        "  --quick             short runs, to see that everything works\n"
        "  --rounds N          rounds to take the median of (default 9, with --quick 3)\n"
        "  --filter SUBSTRING  only what contains it in \"id: title: row\", and what that row\n"
        "                      is compared with\n"
        "  --gate              exit with 1 if a floor is missed, with 3 if the machine was\n"
        "                      too busy to tell, with 4 if nothing was measured\n"
        "  --json FILE         also write the results there\n"
        "  --directory DIR     where benchmarks that write files put them: on the disk that is\n"
        "                      to be measured (default: the temporary directory)\n"
        "  --megabytes N       how much such a benchmark reads or opens again (default\n"
        "                      256)\n",
        static_cast<int>(program.size()),
        program.data());
    std::exit(status);
}

} // namespace detail

/// Reads the command line; leaves with status 2 if it makes no sense.
[[nodiscard]] inline arguments parse_arguments(int argc, char** argv) {
    arguments result;
    const std::string_view program = argc > 0 ? argv[0] : "benchmark";
    int at = 1;
    const auto value_of = [&](std::string_view name) -> std::string_view {
        if (++at >= argc) {
            std::fprintf(stderr, "%s needs a value\n", std::string{name}.c_str());
            detail::leave_with_usage(program, 2);
        }
        return argv[at];
    };
    const auto number_of = [&](std::string_view name, auto& number) {
        const auto text = value_of(name);
        const auto end = text.data() + text.size();
        const auto [stopped, error] = std::from_chars(text.data(), end, number);
        if (error != std::errc{} || stopped != end || number == 0) {
            std::fprintf(stderr, "%s needs a number above 0\n", std::string{name}.c_str());
            detail::leave_with_usage(program, 2);
        }
    };
    for (; at < argc; ++at) {
        const std::string_view word = argv[at];
        if (word == "--quick") {
            result.quick = true;
        } else if (word == "--gate") {
            result.gate = true;
        } else if (word == "--filter") {
            result.filter = value_of(word);
        } else if (word == "--json") {
            result.json = value_of(word);
        } else if (word == "--rounds") {
            number_of(word, result.rounds);
        } else if (word == "--directory") {
            result.directory = value_of(word);
        } else if (word == "--megabytes") {
            number_of(word, result.megabytes);
        } else if (word == "--help" || word == "-h") {
            detail::leave_with_usage(program, 0);
        } else {
            std::fprintf(stderr, "unknown argument %s\n", argv[at]);
            detail::leave_with_usage(program, 2);
        }
    }
    return result;
}

} // namespace bench
