// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

namespace log_pipeline {

/// Standard output, shared by threads: lines that stay, and on a terminal below them one line that
/// is drawn again and again.
///
/// Thread safety: safe.
class console {
public:
    [[nodiscard]] static bool is_terminal() noexcept { return ::isatty(STDOUT_FILENO) == 1; }
    /// Whether block characters can be expected to show.
    [[nodiscard]] static bool is_unicode() {
        for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
            if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
                const std::string_view text = value;
                return text.find("UTF-8") != std::string_view::npos ||
                       text.find("utf8") != std::string_view::npos;
            }
        }
        return false;
    }

    void print(std::string_view line) {
        const std::lock_guard guard{mutex_};
        write(fmt::format("{}{}\n", is_drawn_ ? "\r\x1b[K" : "", line));
        is_drawn_ = false;
    }
    /// The line that is drawn again on a terminal, and a line like any other elsewhere. Plain
    /// ASCII.
    void progress(std::string_view line) {
        if (!is_terminal()) {
            print(line);
            return;
        }
        const std::lock_guard guard{mutex_};
        winsize size{};
        const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
        write(fmt::format("\r\x1b[K{}", line.substr(0, known ? size.ws_col - 1U : 79U)));
        is_drawn_ = true;
    }
    /// Whether everything could be written.
    [[nodiscard]] bool is_good() {
        const std::lock_guard guard{mutex_};
        return is_good_;
    }

private:
    void write(std::string_view text) {
        const bool all = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
        is_good_ = std::fflush(stdout) == 0 && all && is_good_;
    }

    std::mutex mutex_{};
    bool is_drawn_ = false;
    bool is_good_ = true;
};

} // namespace log_pipeline
