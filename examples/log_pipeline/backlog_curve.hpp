// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace log_pipeline {

/// How many messages waited at each moment of a run: the highest number of each interval. The
/// intervals double when there would be too many of them, so that a run may last for ever.
///
/// Thread safety: none.
class backlog_curve {
public:
    void add(double seconds, std::uint64_t waiting) {
        auto at = static_cast<std::size_t>(seconds / interval_);
        while (at >= most) {
            for (std::size_t i = 0; i < highest_.size(); i += 2) {
                const std::uint64_t second = i + 1 < highest_.size() ? highest_[i + 1] : 0;
                highest_[i / 2] = std::max(highest_[i], second);
            }
            highest_.resize((highest_.size() + 1) / 2);
            interval_ *= 2;
            at = static_cast<std::size_t>(seconds / interval_);
        }
        if (at >= highest_.size()) {
            // Moments that were not looked at are like the last one before them.
            highest_.resize(at + 1, highest_.empty() ? 0 : last_);
            highest_[at] = waiting;
        } else {
            highest_[at] = std::max(highest_[at], waiting);
        }
        last_ = waiting;
        duration_ = std::max(duration_, seconds);
    }
    /// Something that happened, for both pictures.
    void mark(double seconds, std::string what) { marks_.push_back({seconds, std::move(what)}); }

    [[nodiscard]] std::uint64_t peak() const noexcept {
        return highest_.empty() ? 0 : *std::max_element(highest_.begin(), highest_.end());
    }

    /// Bars for a terminal, `width` columns in all.
    [[nodiscard]] std::string draw(std::size_t width, bool unicode) const;
    /// The same as a document of its own.
    [[nodiscard]] std::string svg(std::string_view title, std::uint64_t limit) const;

private:
    struct event {
        double seconds;
        std::string what;
    };
    static constexpr std::size_t most = 4096;

    /// The highest of the part from `from` to `to`, both from 0 to 1.
    [[nodiscard]] std::uint64_t highest_between(double from, double to) const {
        const double all = duration_ / interval_;
        const auto index = [&](double part) {
            return std::min(static_cast<std::size_t>(part * all), highest_.size() - 1);
        };
        const auto first = highest_.begin() + static_cast<std::ptrdiff_t>(index(from));
        const auto last = highest_.begin() + static_cast<std::ptrdiff_t>(index(to));
        return *std::max_element(first, std::max(first + 1, last));
    }
    /// 1, 2 or 5 times a power of ten, about a fifth of `range`.
    [[nodiscard]] static double tick_of(double range) {
        const double raw = std::max(range, 1e-3) / 5;
        const double power = std::pow(10, std::floor(std::log10(raw)));
        for (const double factor : {1.0, 2.0, 5.0}) {
            if (factor * power >= raw) {
                return factor * power;
            }
        }
        return 10 * power;
    }

    double interval_ = 0.01;
    double duration_ = 0;
    std::uint64_t last_ = 0;
    std::vector<std::uint64_t> highest_{};
    std::vector<event> marks_{};
};

inline std::string backlog_curve::draw(std::size_t width, bool unicode) const {
    constexpr std::size_t rows = 8;
    constexpr std::size_t label = 8;
    constexpr std::string_view blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    if (highest_.empty() || width < 3 * label) {
        return {};
    }
    const std::size_t columns = width - label - 1;
    const double top = static_cast<double>(std::max<std::uint64_t>(peak(), 1));
    std::vector<double> filled(columns);
    for (std::size_t c = 0; c < columns; ++c) {
        const double from = static_cast<double>(c) / static_cast<double>(columns);
        const double to = static_cast<double>(c + 1) / static_cast<double>(columns);
        filled[c] = static_cast<double>(highest_between(from, to)) / top * rows;
    }
    std::string out = fmt::format("{:>{}}\n", "messages", label);
    for (std::size_t row = rows; row-- > 0;) {
        const bool is_labelled = row == rows - 1 || (row == rows / 2 - 1 && peak() > 1);
        const double value = top * static_cast<double>(row + 1) / rows;
        out += fmt::format(
            "{:>{}}{}",
            is_labelled ? grouped(static_cast<std::uint64_t>(value)) : "",
            label,
            unicode ? "│" : "|");
        for (const double f : filled) {
            const double eighths = std::clamp((f - static_cast<double>(row)) * 8, 0.0, 8.0);
            // Whatever waits shows, be it ever so little.
            const auto n = static_cast<std::size_t>(row == 0 ? std::ceil(eighths) : eighths + 0.5);
            out += unicode ? blocks[n] : n == 0 ? " " : n < 5 ? "." : "#";
        }
        out += '\n';
    }
    out += fmt::format("{:>{}}{}", "0", label, unicode ? "└" : "+");
    for (std::size_t c = 0; c < columns; ++c) {
        out += unicode ? "─" : "-";
    }
    const std::string middle = fmt::format("{:.2f}", duration_ / 2);
    const std::string end = fmt::format("{:.2f} s", duration_);
    out += fmt::format("\n{:{}} {:<{}}", "", label, "0", columns / 2);
    out += fmt::format("{}{:>{}}\n", middle, end, columns - columns / 2 - middle.size());
    std::string letters(columns, ' ');
    std::string legend;
    char letter = 'a';
    for (const event& e : marks_) {
        const double part = duration_ > 0 ? e.seconds / duration_ : 0;
        auto at =
            std::min(static_cast<std::size_t>(part * static_cast<double>(columns)), columns - 1);
        while (at + 1 < columns && letters[at] != ' ') {
            ++at;
        }
        letters[at] = letter;
        legend += fmt::format("{:{}} {}  {:.2f} s  {}\n", "", label, letter, e.seconds, e.what);
        letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1);
    }
    if (!marks_.empty()) {
        out += fmt::format("{:{}} {}\n{}", "", label, letters, legend);
    }
    return out;
}

inline std::string backlog_curve::svg(std::string_view title, std::uint64_t limit) const {
    constexpr double width = 860;
    constexpr double height = 340;
    constexpr double left = 70;
    constexpr double right = width - 25;
    constexpr double top = 50;
    constexpr double bottom = height - 60;
    const auto escaped = [](std::string_view text) {
        std::string out;
        for (const char c : text) {
            switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out += c;
            }
        }
        return out;
    };
    const double seconds = std::max(duration_, 0.01);
    const double most_waiting =
        static_cast<double>(std::max<std::uint64_t>({peak(), limit, 1})) * 1.1;
    const auto x = [&](double s) { return left + (right - left) * std::min(s / seconds, 1.0); };
    const auto y = [&](double n) { return bottom - (bottom - top) * n / most_waiting; };

    std::string out = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
        width,
        height,
        left,
        escaped(title));
    const double step_y = std::max(1.0, tick_of(most_waiting));
    for (double n = 0; n <= most_waiting; n += step_y) {
        out += fmt::format(
            "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#e0e0e0\"/>\n"
            "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
            left,
            right,
            y(n),
            left - 8,
            y(n) + 4,
            n);
    }
    const double step_x = tick_of(seconds);
    for (int i = 0; step_x * i <= seconds * 1.0001; ++i) {
        out += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#333333\"/>\n"
            "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
            x(step_x * i),
            bottom,
            bottom + 5,
            bottom + 19,
            step_x * i);
    }
    out += fmt::format("<path fill=\"#4a90d9\" fill-opacity=\"0.35\" stroke=\"#1f5fa8\" d=\"");
    out += fmt::format("M{:.1f} {:.1f}", x(0), y(0));
    for (std::size_t i = 0; i < highest_.size(); ++i) {
        const auto n = static_cast<double>(highest_[i]);
        out += fmt::format(" L{:.1f} {:.1f}", x(interval_ * static_cast<double>(i)), y(n));
    }
    out += fmt::format(" L{:.1f} {:.1f} Z\"/>\n", x(seconds), y(0));
    if (limit != 0) {
        out += fmt::format(
            "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#c0392b\" "
            "stroke-dasharray=\"6 4\"/>\n"
            "<text x=\"{1}\" y=\"{3:.1f}\" text-anchor=\"end\" fill=\"#c0392b\">limit of the "
            "queue: {4} messages</text>\n",
            left,
            right,
            y(static_cast<double>(limit)),
            y(static_cast<double>(limit)) - 5,
            limit);
    }
    double row = top + 36;
    for (const event& e : marks_) {
        const bool is_late = x(e.seconds) > (left + right) / 2;
        out += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2}\" stroke=\"#777777\" "
            "stroke-dasharray=\"2 3\"/>\n"
            "<text x=\"{3:.1f}\" y=\"{1:.1f}\" text-anchor=\"{4}\" font-size=\"11\" "
            "fill=\"#444444\">{5}</text>\n",
            x(e.seconds),
            row,
            bottom,
            x(e.seconds) + (is_late ? -4 : 4),
            is_late ? "end" : "start",
            escaped(e.what));
        row = row + 15 < bottom ? row + 15 : top + 36;
    }
    out += fmt::format(
        "<path d=\"M{0} {1} V{2} H{3}\" fill=\"none\" stroke=\"#333333\"/>\n"
        "<text x=\"{4}\" y=\"{5}\" text-anchor=\"middle\">time since the start (seconds)</text>\n"
        "<text transform=\"translate(18 {6}) rotate(-90)\" text-anchor=\"middle\">backlog "
        "(messages waiting)</text>\n</svg>\n",
        left,
        top,
        bottom,
        right,
        (left + right) / 2,
        height - 16,
        (top + bottom) / 2);
    return out;
}

} // namespace log_pipeline
