// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#if !defined(F_OFD_SETLK) || !defined(O_PATH)
#error "railmq/storage/posix_files.hpp needs Linux: open-file-description locks and O_PATH."
#endif

namespace railmq::storage::detail {

[[nodiscard]] inline error_code posix_error(int number) noexcept {
    return {number, boost::system::system_category()};
}

/// What a system call that returned `result` says, -1 being its failure.
template <class Int>
[[nodiscard]] error_code posix_result(Int result) noexcept {
    return result == -1 ? posix_error(errno) : error_code{};
}

/// Owns a file descriptor, or none.
class posix_descriptor {
public:
    posix_descriptor() = default;
    explicit posix_descriptor(int number) noexcept
        : number_{number} {}
    posix_descriptor(posix_descriptor&& other) noexcept
        : number_{std::exchange(other.number_, -1)} {}
    posix_descriptor& operator=(posix_descriptor&& other) noexcept {
        posix_descriptor taken{std::move(other)};
        std::swap(number_, taken.number_);
        return *this;
    }
    // An error of close() is ignored: the descriptor is gone all the same, a second call might
    // close somebody else's, and it is a sync that reports what was not written.
    ~posix_descriptor() {
        if (number_ != -1) {
            ::close(number_);
        }
    }

    /// -1 when there is none; the system calls refuse that with EBADF.
    [[nodiscard]] int get() const noexcept { return number_; }
    [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }
    [[nodiscard]] explicit operator bool() const noexcept { return number_ != -1; }

private:
    int number_ = -1;
};

/// Text that ends in a NUL for a system call, without allocation.
template <std::size_t Size>
class posix_text {
public:
    [[nodiscard]] error_code assign(std::string_view text) noexcept {
        if (text.empty() || text.find('\0') != text.npos || text.size() >= Size) {
            return posix_error(text.size() < Size ? EINVAL : ENAMETOOLONG);
        }
        *std::copy(text.begin(), text.end(), text_.begin()) = '\0';
        return {};
    }
    /// The same, of a name that has to stay in its directory.
    [[nodiscard]] error_code assign_component(std::string_view text) noexcept {
        const bool leads_away = text == "." || text == ".." || text.find('/') != text.npos;
        return leads_away ? posix_error(EINVAL) : assign(text);
    }
    [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }

private:
    std::array<char, Size> text_{};
};

using posix_name = posix_text<NAME_MAX + 1>;

/// Opens a directory that is in another, to be read. "." gives the same one, with a position of
/// its own.
[[nodiscard]] inline posix_descriptor
posix_open_directory(const posix_descriptor& in, const char* name) noexcept {
    constexpr int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    return posix_descriptor{::openat(in.get(), name, flags)};
}

[[nodiscard]] inline error_code posix_stat(const posix_descriptor& of, struct stat& info) noexcept {
    return posix_result(::fstat(of.get(), &info));
}

} // namespace railmq::storage::detail
