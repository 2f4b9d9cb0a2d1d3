// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace log_pipeline {

/// A file descriptor and its end.
class file {
public:
    file() noexcept = default;
    explicit file(int fd) noexcept
        : fd_{fd} {}
    file(file&& other) noexcept
        : fd_{std::exchange(other.fd_, -1)} {}
    file& operator=(file&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    ~file() {
        if (fd_ > STDERR_FILENO) {
            ::close(fd_);
        }
    }
    [[nodiscard]] int get() const noexcept { return fd_; }

private:
    int fd_ = -1;
};

/// Ctrl-C (SIGINT), SIGTERM, or the end of the time allowed. Either signal asks once; the second
/// time it does what it always does, which is to end the program.
class stop_request {
public:
    using clock = std::chrono::steady_clock;

    explicit stop_request(std::optional<std::chrono::duration<double>> limit) {
        if (limit) {
            deadline_ = clock::now() + std::chrono::duration_cast<clock::duration>(*limit);
        }
        int ends[2] = {-1, -1};
        if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
            wake_ = file{ends[0]};
            waker_ = file{ends[1]};
        }
        wake_fd = waker_.get();
        struct sigaction action {};
        action.sa_handler = &on_signal;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        ::sigaction(SIGINT, &action, nullptr);
        ::sigaction(SIGTERM, &action, nullptr);
    }
    stop_request(const stop_request&) = delete;
    stop_request& operator=(const stop_request&) = delete;
    ~stop_request() { wake_fd = -1; }

    [[nodiscard]] bool by_signal() const noexcept { return signalled; }
    [[nodiscard]] bool by_time() const { return deadline_ && clock::now() >= *deadline_; }
    [[nodiscard]] bool is_asked() const { return by_signal() || by_time(); }

    /// Waits until `fd` can be read. False: asked to stop meanwhile.
    [[nodiscard]] bool wait_readable(int fd) const {
        while (!is_asked()) {
            std::array<pollfd, 2> what = {{{fd, POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
            if (::poll(what.data(), what.size(), milliseconds_left()) > 0 && what[0].revents != 0) {
                return !is_asked();
            }
        }
        return false;
    }

private:
    static void on_signal(int) noexcept {
        signalled = true;
        const int saved = errno;
        [[maybe_unused]] const auto ignored = ::write(wake_fd, "", 1);
        errno = saved;
    }
    [[nodiscard]] int milliseconds_left() const {
        if (!deadline_) {
            return -1;
        }
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - clock::now());
        return static_cast<int>(std::clamp<long long>(left.count(), 0, 3'600'000));
    }

    static inline std::atomic<bool> signalled{false};
    static inline std::atomic<int> wake_fd{-1};
    static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

    std::optional<clock::time_point> deadline_{};
    file wake_{};
    file waker_{};
};

/// Cuts what a file holds into lines, of which none takes more than `limit` bytes of memory.
class line_reader {
public:
    enum class status { line, end, stopped, failed };

    /// Opening a pipe that nobody writes to does not wait: reading it does, and can be stopped.
    line_reader(const std::string& path, std::size_t limit, const stop_request& stop)
        : from_{path == "-" ? STDIN_FILENO : ::open(path.c_str(), open_flags)}
        , error_{from_.get() < 0 ? errno : 0}
        , limit_{limit}
        , stop_{stop} {}

    /// The next line without its end, LF or CR LF. `is_cut`: it is longer than the limit, and this
    /// is its beginning. A line that is not complete when the reading is stopped is not a line,
    /// unless it is too long already.
    [[nodiscard]] status next(std::string& line, bool& is_cut) {
        line.clear();
        is_cut = false;
        for (bool any = false;;) {
            if (at_ == end_) {
                const status s = fill();
                if (s == status::stopped && is_cut) {
                    return status::line;
                }
                if (s == status::end && any) {
                    return finish(line);
                }
                if (s != status::line) {
                    return s;
                }
            }
            any = true;
            const char* from = buffer_.data() + at_;
            const void* found = std::memchr(from, '\n', end_ - at_);
            const std::size_t size =
                found != nullptr ? static_cast<std::size_t>(static_cast<const char*>(found) - from)
                                 : end_ - at_;
            const std::size_t room = limit_ - line.size();
            line.append(from, std::min(size, room));
            is_cut = is_cut || size > room;
            at_ += size;
            if (found != nullptr) {
                ++at_;
                return finish(line);
            }
        }
    }
    /// Of `status::failed`.
    [[nodiscard]] int error() const noexcept { return error_; }

private:
    [[nodiscard]] static status finish(std::string& line) {
        if (line.ends_with('\r')) {
            line.pop_back();
        }
        return status::line;
    }
    /// `line` for: there is more.
    [[nodiscard]] status fill() {
        while (error_ == 0) {
            if (!stop_.wait_readable(from_.get())) {
                return status::stopped;
            }
            const auto n = ::read(from_.get(), buffer_.data(), buffer_.size());
            if (n > 0) {
                at_ = 0;
                end_ = static_cast<std::size_t>(n);
                return status::line;
            }
            if (n == 0) {
                return status::end;
            }
            if (errno != EINTR && errno != EAGAIN) {
                error_ = errno;
            }
        }
        return status::failed;
    }

    static constexpr int open_flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

    file from_;
    int error_;
    std::size_t limit_;
    const stop_request& stop_;
    std::vector<char> buffer_ = std::vector<char>(std::size_t{64} << 10);
    std::size_t at_ = 0;
    std::size_t end_ = 0;
};

/// What is wrong with a file that is to be read; empty when nothing is.
[[nodiscard]] inline std::string what_is_wrong_with(const std::string& path) {
    struct stat info {};
    const bool is_stdin = path == "-";
    if ((is_stdin ? ::fstat(STDIN_FILENO, &info) : ::stat(path.c_str(), &info)) != 0) {
        return std::strerror(errno);
    }
    if (S_ISDIR(info.st_mode)) {
        return "it is a directory";
    }
    return is_stdin || ::access(path.c_str(), R_OK) == 0 ? "" : std::strerror(errno);
}

/// Whether standard input is a pipe, a socket or a file, and something comes from it, or nothing
/// is known yet after `patience`.
enum class stdin_state { is_silent, is_empty, has_data };
[[nodiscard]] inline stdin_state look_at_stdin(std::chrono::milliseconds patience) {
    struct stat info {};
    if (::fstat(STDIN_FILENO, &info) != 0) {
        return stdin_state::is_empty;
    }
    if (S_ISREG(info.st_mode)) {
        return info.st_size > 0 ? stdin_state::has_data : stdin_state::is_empty;
    }
    if (!S_ISFIFO(info.st_mode) && !S_ISSOCK(info.st_mode)) {
        return stdin_state::is_empty;
    }
    pollfd what{STDIN_FILENO, POLLIN, 0};
    if (::poll(&what, 1, static_cast<int>(patience.count())) <= 0) {
        return stdin_state::is_silent;
    }
    return (what.revents & POLLIN) != 0 ? stdin_state::has_data : stdin_state::is_empty;
}

/// Logs that this machine has: those of its package manager, else the first that is known and
/// readable, else the largest. apt's history has lines without a time, and very long ones.
[[nodiscard]] inline std::vector<std::string> find_logs() {
    namespace fs = std::filesystem;
    const auto is_usable = [](const std::string& path) {
        return what_is_wrong_with(path).empty() && std::ifstream{path}.peek() != EOF;
    };
    std::vector<std::string> found;
    for (const char* log : {"/var/log/apt/history.log", "/var/log/dpkg.log"}) {
        if (is_usable(log)) {
            found.emplace_back(log);
        }
    }
    for (const char* log : {"/var/log/syslog", "/var/log/messages", "/var/log/alternatives.log"}) {
        if (found.empty() && is_usable(log)) {
            found.emplace_back(log);
        }
    }
    if (!found.empty()) {
        return found;
    }
    std::uintmax_t largest = 0;
    std::error_code ec;
    constexpr auto lenient = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at{"/var/log", lenient, ec}, end; at != end && !ec;
         at.increment(ec)) {
        std::error_code ignored;
        const bool is_log = at->is_regular_file(ignored) && at->path().extension() == ".log";
        const std::uintmax_t size = is_log ? at->file_size(ignored) : 0;
        if (!ignored && size > largest && is_usable(at->path())) {
            found = {at->path()};
            largest = size;
        }
    }
    return found;
}

} // namespace log_pipeline
