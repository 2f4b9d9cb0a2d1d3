// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace railmq {

namespace detail {

/// The character at the start of a text, and its bytes; 0 bytes where there is no valid UTF-8.
struct utf8_character {
    std::uint32_t code = 0;
    std::size_t bytes = 0;
};
[[nodiscard]] constexpr utf8_character first_character(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
    };
    const std::uint32_t first = at(0);
    const std::size_t bytes = first < 0x80             ? 1
                              : (first & 0xe0) == 0xc0 ? 2
                              : (first & 0xf0) == 0xe0 ? 3
                              : (first & 0xf8) == 0xf0 ? 4
                                                       : 0;
    if (bytes == 0 || bytes > text.size()) {
        return {};
    }
    std::uint32_t code = bytes == 1 ? first : first & (0x7fU >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((at(i) & 0xc0) != 0x80) {
            return {};
        }
        code = (code << 6) | (at(i) & 0x3f);
    }
    constexpr std::uint32_t shortest[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < shortest[bytes] || code > 0x10ffff || is_surrogate ? utf8_character{}
                                                                     : utf8_character{code, bytes};
}

/// Whether a terminal or a reader of a log may take it for more than a character: it controls, ends
/// a line, or changes the direction of what is around it.
[[nodiscard]] constexpr bool is_control(std::uint32_t code) noexcept {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

} // namespace detail

/// A text from outside as it may be shown on a terminal or in a log: valid UTF-8 in one line that
/// cannot forge another, move the cursor or turn the direction of writing. Control characters (C0,
/// C1, DEL), line separators, controls of direction, bytes that are no UTF-8, and the backslash
/// become `\xNN`, byte by byte. What would be longer than `limit` bytes is cut, between two
/// characters, and ends in `...`.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t limit = 256) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    while (!text.empty()) {
        const detail::utf8_character c = detail::first_character(text);
        const std::size_t bytes = c.bytes == 0 ? 1 : c.bytes;
        const bool is_shown = c.bytes != 0 && !detail::is_control(c.code) && c.code != '\\';
        if (limit - out.size() < (is_shown ? bytes : 4 * bytes)) {
            return out += "...";
        }
        for (const char byte : text.substr(0, bytes)) {
            const auto u = static_cast<unsigned char>(byte);
            if (is_shown) {
                out += byte;
            } else {
                out += "\\x";
                out += digits[u >> 4];
                out += digits[u & 15];
            }
        }
        text.remove_prefix(bytes);
    }
    return out;
}

} // namespace railmq
