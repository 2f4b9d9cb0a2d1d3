// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace log_pipeline {

/// One character of UTF-8; `bytes` is 0 where the text does not begin with a valid one.
struct character {
    char32_t point = 0;
    std::size_t bytes = 0;
};

[[nodiscard]] inline character first_character(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (text.empty()) {
        return {};
    }
    if (at(0) < 0x80) {
        return {at(0), 1};
    }
    const std::size_t bytes = at(0) >= 0xf0 ? 4 : at(0) >= 0xe0 ? 3 : at(0) >= 0xc0 ? 2 : 0;
    if (bytes == 0 || at(0) > 0xf4 || text.size() < bytes) {
        return {};
    }
    char32_t point = at(0) & (0xffU >> (bytes + 1));
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((at(i) & 0xc0) != 0x80) {
            return {};
        }
        point = (point << 6) | (at(i) & 0x3fU);
    }
    constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < least[bytes] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
        return {};
    }
    return {point, bytes};
}

/// Whether a terminal shows it and does nothing else: no control, no change of direction.
[[nodiscard]] constexpr bool is_harmless(char32_t c) noexcept {
    const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    const bool layout = c == 0x061c || (c >= 0x200b && c <= 0x200f) ||
                        (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
    const bool no_character = (c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef);
    return !control && !layout && !no_character;
}

/// What came from outside, safe to print: whatever could steer a terminal or forge a line of
/// output is spelled `\xNN`, and the text is cut at `limit` columns.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t limit) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    std::size_t columns = 0;
    while (!text.empty()) {
        const character c = first_character(text);
        const bool shown = c.bytes != 0 && is_harmless(c.point) && c.point != '\\';
        const std::size_t width = shown ? 1 : 4;
        if (columns + width > limit) {
            out += "...";
            break;
        }
        if (shown) {
            out += text.substr(0, c.bytes);
        } else {
            const auto byte = static_cast<unsigned char>(text.front());
            out += "\\x";
            out += digits[byte >> 4];
            out += digits[byte & 15];
        }
        columns += width;
        text.remove_prefix(shown ? c.bytes : 1);
    }
    return out;
}

/// 1234567 as 1,234,567.
[[nodiscard]] inline std::string grouped(std::uint64_t n) {
    std::string out = std::to_string(n);
    for (std::size_t at = out.size(); at > 3;) {
        at -= 3;
        out.insert(at, 1, ',');
    }
    return out;
}

/// "1 line", "2 lines".
[[nodiscard]] inline std::string lines_of(std::uint64_t n) {
    return grouped(n) + (n == 1 ? " line" : " lines");
}

} // namespace log_pipeline
