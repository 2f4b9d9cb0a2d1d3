// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace log_pipeline {

/// The message that travels through the queue.
struct log_line {
    std::uint64_t number = 0; ///< Counted from 1 over all inputs; the key of every effect.
    std::string text{};
    bool is_cut = false; ///< It was longer than a line may be; this is its beginning.
};

/// What the index takes from a line. The views live as long as the line.
struct entry {
    std::string minute{}; ///< "2025-06-24 14:36", or "06-24 14:36" where the log tells no year.
    std::string_view level{};
    std::string_view program{};
    std::string_view text{};
};

/// Why there is no entry.
struct unreadable {
    std::string_view reason{};
};

namespace detail {

[[nodiscard]] constexpr bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}
[[nodiscard]] constexpr bool is_letter(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
[[nodiscard]] constexpr char upper(char c) noexcept {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
[[nodiscard]] inline bool has_letter(std::string_view text) noexcept {
    return std::any_of(text.begin(), text.end(), is_letter);
}

struct timestamp {
    int year = -1;
    int month = 0;
    int day = 0;
    int hour = 0;
    int minute = 0;
    std::size_t size = 0;

    [[nodiscard]] bool is_possible() const noexcept {
        return month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour <= 23 && minute <= 59;
    }
    /// Up to the minute.
    [[nodiscard]] std::string text() const {
        std::string out;
        const auto put = [&out](int n, char after) {
            out += static_cast<char>('0' + n / 10 % 10);
            out += static_cast<char>('0' + n % 10);
            out += after;
        };
        if (year >= 0) {
            const int full = year >= 100 ? year : year < 70 ? 2000 + year : 1900 + year;
            out = std::to_string(full) + '-';
        }
        put(month, '-');
        put(day, ' ');
        put(hour, ':');
        put(minute, ' ');
        out.pop_back();
        return out;
    }
};

/// How logs write their time. Y M D h m are digits, d is a day of one or two digits, b a month's
/// name, _ any number of spaces or a T; everything else stands for itself.
inline constexpr std::array<std::string_view, 6> time_shapes = {
    "YYYY-MM-DD_hh:mm", // ISO 8601, dpkg, ZooKeeper
    "YYYY/MM/DD_hh:mm", // nginx
    "YY/MM/DD_hh:mm",   // Spark
    "DD/b/YYYY:hh:mm",  // access logs
    "b_d_hh:mm:",       // syslog
    "YYMMDD_hhmm",      // HDFS
};

[[nodiscard]] inline std::optional<timestamp>
match_time(std::string_view text, std::string_view shape) noexcept {
    constexpr std::string_view months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    timestamp t;
    std::size_t at = 0;
    const auto take_digit = [&](int& field) {
        if (at >= text.size() || !is_digit(text[at])) {
            return false;
        }
        field = std::max(field, 0) * 10 + (text[at++] - '0');
        return true;
    };
    for (const char c : shape) {
        bool ok = false;
        switch (c) {
        case 'Y': ok = take_digit(t.year); break;
        case 'M': ok = take_digit(t.month); break;
        case 'D': ok = take_digit(t.day); break;
        case 'h': ok = take_digit(t.hour); break;
        case 'm': ok = take_digit(t.minute); break;
        case 'd':
            ok = take_digit(t.day);
            take_digit(t.day);
            break;
        case 'b': {
            const std::size_t found = months.find(text.substr(std::min(at, text.size()), 3));
            ok = at + 3 <= text.size() && found != std::string_view::npos && found % 3 == 0;
            t.month = static_cast<int>(found / 3) + 1;
            at += 3;
            break;
        }
        case '_':
            while (at < text.size() && (text[at] == ' ' || text[at] == 'T')) {
                ++at;
                ok = true;
            }
            break;
        default: ok = at < text.size() && text[at++] == c;
        }
        if (!ok) {
            return std::nullopt;
        }
    }
    t.size = at;
    return t;
}

/// Takes one word, up to a space, off the front.
[[nodiscard]] inline std::string_view take_word(std::string_view& text) noexcept {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    const std::string_view word = text.substr(0, text.find_first_of(" \t"));
    text.remove_prefix(word.size());
    return word;
}

[[nodiscard]] inline std::string_view level_of(std::string_view word) noexcept {
    constexpr std::array<std::array<std::string_view, 2>, 13> levels = {{
        {"TRACE", "TRACE"},
        {"DEBUG", "DEBUG"},
        {"INFO", "INFO"},
        {"NOTICE", "NOTICE"},
        {"WARN", "WARN"},
        {"WARNING", "WARN"},
        {"ERROR", "ERROR"},
        {"ERR", "ERROR"},
        {"CRIT", "CRITICAL"},
        {"CRITICAL", "CRITICAL"},
        {"FATAL", "FATAL"},
        {"ALERT", "ALERT"},
        {"EMERG", "EMERG"},
    }};
    const bool in_brackets = word.starts_with('[') || word.starts_with('<');
    word.remove_prefix(in_brackets ? 1 : 0);
    word = word.substr(0, word.find_last_not_of("]>:,") + 1);
    for (const auto& [spelling, level] : levels) {
        // Lower case counts only in brackets: "error" is an everyday word.
        const bool same = std::equal(
            word.begin(), word.end(), spelling.begin(), spelling.end(), [&](char a, char b) {
                return a == b || (in_brackets && upper(a) == b);
            });
        if (same) {
            return level;
        }
    }
    return {};
}

/// The name in `sshd[814]:`, `dfs.FSNamesystem:` or `[main:QuorumPeerConfig@101]`.
[[nodiscard]] inline std::string_view program_in(std::string_view word) noexcept {
    word.remove_prefix(std::min(word.find_first_not_of("[(\""), word.size()));
    if (const auto at = word.rfind('@'); at != std::string_view::npos) {
        word = word.substr(0, at);
        word = word.substr(word.rfind(':') + 1);
    }
    return word.substr(0, std::min(word.find_first_of("[]:"), std::size_t{48}));
}

/// Level and program, from the words around the timestamp.
inline void describe(entry& e, std::string_view before, std::string_view after) noexcept {
    if (has_letter(before)) {
        e.program = program_in(take_word(before));
    }
    std::string_view first;
    for (int i = 0; i < 5 && !after.empty(); ++i) {
        const std::string_view word = take_word(after);
        if (e.level.empty()) {
            e.level = level_of(word);
            if (!e.level.empty()) {
                continue;
            }
        }
        if (!e.program.empty() || !has_letter(word)) {
            continue;
        }
        if (first.empty()) {
            first = word;
        } else {
            const bool first_is_host = word.ends_with(':') && !first.ends_with(':');
            e.program = program_in(first_is_host ? word : first);
        }
    }
    if (e.program.empty()) {
        e.program = program_in(first);
    }
}

} // namespace detail

/// Looks for a timestamp near the front, a level, and the program or component that wrote it.
[[nodiscard]] inline std::variant<entry, unreadable> parse(const log_line& line) {
    constexpr std::size_t front = 64;
    const std::string_view text = line.text;
    if (line.is_cut) {
        return unreadable{"too long"};
    }
    const auto is_control = [](char c) {
        const auto u = static_cast<unsigned char>(c);
        return (u < 0x20 && c != '\t' && c != '\x1b') || u == 0x7f; // colours are common in logs
    };
    if (std::any_of(text.begin(), text.end(), is_control)) {
        return unreadable{"binary data"};
    }
    bool seen = false;
    for (std::size_t at = 0; at < std::min(text.size(), front); ++at) {
        const bool may_begin =
            at == 0 || !(detail::is_digit(text[at - 1]) || detail::is_letter(text[at - 1]));
        for (std::size_t i = 0; may_begin && i < detail::time_shapes.size(); ++i) {
            const auto time = detail::match_time(text.substr(at), detail::time_shapes[i]);
            if (time && time->is_possible()) {
                entry e{.minute = time->text(), .level = {}, .program = {}, .text = text};
                const std::size_t end = std::min(text.find(' ', at + time->size), text.size());
                detail::describe(e, text.substr(0, at), text.substr(end));
                return e;
            }
            seen = seen || time;
        }
    }
    return unreadable{seen ? "impossible timestamp" : "no timestamp"};
}

} // namespace log_pipeline
