// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace railmq {

/// The longest name of a queue, topic or log, in bytes (Kafka's limit for topics).
inline constexpr std::size_t max_name_length = 249;

namespace detail {

/// Names come from outside and end up in messages: everything but plain printable ASCII is
/// replaced and the text is cut, so that a name cannot forge a line of a log.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t limit = 64) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (const char c : text) {
        if (out.size() >= limit) {
            out += "...";
            break;
        }
        const auto u = static_cast<unsigned char>(c);
        if (u >= 0x20 && u < 0x7f && c != '\\') {
            out += c;
        } else {
            out += "\\x";
            out += digits[u >> 4];
            out += digits[u & 15];
        }
    }
    return out;
}

} // namespace detail

/// Whether `name` may name a queue: 1 to 249 of `[A-Za-z0-9._-]`, and not `.` or `..` (Kafka's
/// rule for topics, which leaves no way to spell a path). Names never become file names here.
[[nodiscard]] constexpr bool is_valid_name(std::string_view name) noexcept {
    if (name.empty() || name.size() > max_name_length || name == "." || name == "..") {
        return false;
    }
    for (const char c : name) {
        const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (!ok) {
            return false;
        }
    }
    return true;
}

/// `errc::invalid_name` with a sentence, or no failure.
[[nodiscard]] inline failure validate_name(std::string_view name) {
    if (is_valid_name(name)) {
        return {};
    }
    return {
        errc::invalid_name,
        "a name is 1 to 249 of [A-Za-z0-9._-] and not '.' or '..'; got '" +
            detail::printable(name) + "' (" + std::to_string(name.size()) + " bytes)"};
}

} // namespace railmq
