// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace railctl {

/// Something is wrong with what the user wrote.
struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct options {
    std::string command{};
    std::vector<std::string> arguments{}; ///< That are no options: directories, queues.
    std::vector<std::uint64_t> ids{};
    std::uint64_t limit = UINT64_MAX;
    bool payloads = false;
    bool full = false;
    bool all = false;
    bool progress = false;

    [[nodiscard]] const std::string& argument(std::size_t n) const { return arguments.at(n); }
};

inline std::uint64_t number_in(std::string_view option, std::string_view text) {
    std::uint64_t value = 0;
    const auto end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc{} || parsed.ptr != end) {
        throw usage_error{std::string{option} + " takes numbers"};
    }
    return value;
}

/// Throws `usage_error`.
inline options parse(const std::vector<std::string>& words) {
    struct command {
        std::string_view name;
        std::size_t least;
        std::size_t most;
        std::string_view options;
    };
    constexpr command commands[] = {
        {"list", 1, 1, ""},
        {"verify", 1, 1, "--progress"},
        {"dump", 2, 2, "--payloads --full --limit"},
        {"dead", 1, 2, "--limit"},
        {"redrive", 3, 3, "--id --all"},
        {"salvage", 2, 2, "--progress"},
    };
    options o;
    if (words.empty()) {
        throw usage_error{"no command"};
    }
    o.command = words[0];
    const auto* const c =
        std::find_if(std::begin(commands), std::end(commands), [&](const command& one) {
            return one.name == o.command;
        });
    if (c == std::end(commands)) {
        throw usage_error{"no such command: " + o.command};
    }
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (!word.starts_with("--")) {
            o.arguments.push_back(word);
            continue;
        }
        if ((" " + std::string{c->options} + " ").find(" " + word + " ") == std::string::npos) {
            throw usage_error{o.command + " has no option " + word};
        }
        o.payloads = o.payloads || word == "--payloads" || word == "--full";
        o.full = o.full || word == "--full";
        o.all = o.all || word == "--all";
        o.progress = o.progress || word == "--progress";
        const auto is_value = [&] {
            return i + 1 < words.size() && !words[i + 1].starts_with("--");
        };
        if (word == "--limit") {
            o.limit = number_in(word, is_value() ? words[++i] : "");
        } else if (word == "--id") {
            do {
                o.ids.push_back(number_in(word, is_value() ? words[++i] : ""));
            } while (is_value() &&
                     words[i + 1].find_first_not_of("0123456789") == std::string::npos);
        }
    }
    if (o.arguments.size() < c->least || o.arguments.size() > c->most) {
        throw usage_error{"wrong number of arguments for " + o.command};
    }
    if (o.command == "redrive" && o.all == !o.ids.empty()) {
        throw usage_error{"redrive needs either --all or --id"};
    }
    std::sort(o.ids.begin(), o.ids.end());
    return o;
}

} // namespace railctl
