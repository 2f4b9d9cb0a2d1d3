// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/files.hpp>
#include <railmq/storage/posix_descriptor.hpp>
#include <railmq/storage/process_mark.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

namespace railmq::storage {

/// A regular file, by its descriptor: `storage::file`. Each operation makes one system call and
/// reports its error as it is, an interruption (EINTR) too. Offsets and sizes beyond what the
/// system can express are refused with EOVERFLOW (`value_too_large`). Without a file, that is when
/// default-constructed or moved from, every operation fails with EBADF (`bad_file_descriptor`).
///
/// Distinct objects: safe. Shared objects: `read_some_at` is safe beside everything but `resize`
/// and moves.
class posix_file {
public:
    posix_file() = default;

    [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(descriptor_); }

    [[nodiscard]] std::size_t
    read_some_at(std::uint64_t offset, std::span<std::byte> in, error_code& ec) const noexcept {
        ec = check(offset);
        return ec ? 0 : count(::pread(number(), in.data(), in.size(), to_off_t(offset)), ec);
    }
    [[nodiscard]] std::size_t
    write_some_at(std::uint64_t offset, std::span<const std::byte> out, error_code& ec) noexcept {
        ec = check(offset);
        return ec ? 0 : count(::pwrite(number(), out.data(), out.size(), to_off_t(offset)), ec);
    }
    void sync_data(error_code& ec) noexcept { ec = detail::posix_result(::fdatasync(number())); }
    /// Where the system has no such call this does nothing. What the device reports, the next sync
    /// does.
    void start_sync(std::uint64_t offset, std::uint64_t size) noexcept {
#if defined(SYNC_FILE_RANGE_WRITE)
        if (!check(offset) && !check(size)) {
            static_cast<void>(::sync_file_range(
                number(), to_off_t(offset), to_off_t(size), SYNC_FILE_RANGE_WRITE));
        }
#else
        static_cast<void>(offset);
        static_cast<void>(size);
#endif
    }
    /// After an error the file may be longer than it was, and have some of the space.
    void allocate(std::uint64_t size, error_code& ec) noexcept {
        ec = check(size);
        if (size == 0) { // which posix_fallocate refuses
            static_cast<void>(this->size(ec));
        } else if (!ec) { // it returns its error and leaves errno alone
            ec = detail::posix_error(::posix_fallocate(number(), 0, to_off_t(size)));
        }
    }
    void resize(std::uint64_t size, error_code& ec) noexcept {
        ec = check(size);
        if (!ec) {
            ec = detail::posix_result(::ftruncate(number(), to_off_t(size)));
        }
    }
    [[nodiscard]] std::uint64_t size(error_code& ec) const noexcept {
        struct stat info = {};
        ec = detail::posix_stat(descriptor_, info);
        return ec ? 0 : static_cast<std::uint64_t>(info.st_size);
    }
    /// Where file systems tell no space that was only reserved from data, `offset` itself.
    [[nodiscard]] std::uint64_t data_from(std::uint64_t offset, error_code& ec) const noexcept {
        ec = check(offset);
#if defined(SEEK_DATA)
        if (!ec) {
            const off_t found = ::lseek(number(), to_off_t(offset), SEEK_DATA);
            if (found >= 0) {
                return static_cast<std::uint64_t>(found);
            }
            if (errno == ENXIO) { // nothing but zeros, or the end
                return std::max(offset, size(ec));
            }
            ec = errno == EINVAL ? error_code{} : detail::posix_result(found);
        }
#endif
        return offset;
    }

private:
    friend class posix_directory;

    [[nodiscard]] static error_code check(std::uint64_t offset) noexcept {
        return std::in_range<off_t>(offset) ? error_code{} : detail::posix_error(EOVERFLOW);
    }
    [[nodiscard]] static off_t to_off_t(std::uint64_t offset) noexcept {
        return static_cast<off_t>(offset);
    }
    [[nodiscard]] static std::size_t count(::ssize_t result, error_code& ec) noexcept {
        ec = detail::posix_result(result);
        return ec ? 0 : static_cast<std::size_t>(result);
    }
    [[nodiscard]] int number() const noexcept {
        return descriptor_.get();
    }

    detail::posix_descriptor descriptor_{};
};

static_assert(file<posix_file>);

/// A directory taken for this process, until this is destroyed. After a `fork` it stays taken for
/// as long as either process has it: the child must not use what it guards, which `is_ours` tells.
///
/// Distinct objects: safe. Shared objects: `is_ours` is safe beside itself.
class posix_lock {
public:
    posix_lock() = default;

    /// Whether this holds a lock, and this process is the one that took it.
    [[nodiscard]] bool is_ours() const noexcept {
        return file_.is_open() && taker_.is_this_process();
    }

private:
    friend class posix_directory;

    explicit posix_lock(posix_file file) noexcept
        : file_{std::move(file)}
        , taker_{process_mark::here()} {}

    // Closing it is the whole release: to unlock it in a forked child would take it away from the
    // parent as well.
    posix_file file_{};
    process_mark taker_{};
};

/// How a directory is opened.
struct posix_directory_options {
    /// Accept a directory that belongs to another user, or that the group or others may write to:
    /// any of them can then replace what is in it.
    bool allow_insecure = false;
};

/// A directory on a local file system, by its descriptor: `storage::directory`. Without one, that
/// is when default-constructed or moved from, every operation fails with EBADF.
///
/// A name that is empty, `.`, `..`, or has a `/` or a NUL in it is refused with EINVAL
/// (`invalid_argument`), one that is too long with ENAMETOOLONG, both before any system call.
/// Files are made with mode 0600 whatever the umask. No descriptor outlives an `exec`.
///
/// Distinct objects: safe. Shared objects: everything but moves is safe.
class posix_directory {
public:
    using file_type = posix_file;
    using lock_type = posix_lock;

    /// The file that `lock` makes and never removes; `names` lists it like any other.
    static constexpr std::string_view lock_name = "LOCK";

    posix_directory() = default;

    /// Opens the directory at `path`. Makes its last component, with mode 0700 whatever the umask,
    /// if it is not there, and returns when its entry in the parent is on the device; on an error
    /// after that it is removed again.
    ///
    /// Errors: EPERM (`operation_not_permitted`) when it belongs to another user than the effective
    /// one, or is writable for the group or others, and the options do not allow it; ENOTDIR when
    /// it is a link or no directory; EINVAL when `path` is empty or has a NUL in it; and the
    /// operating system's.
    [[nodiscard]] static posix_directory open_or_create(
        const std::string& path, const posix_directory_options& options, error_code& ec) noexcept {
        return open_at(path, options, true, ec);
    }
    /// The same for one that must be there: nothing is made.
    [[nodiscard]] static posix_directory open_existing(
        const std::string& path, const posix_directory_options& options, error_code& ec) noexcept {
        return open_at(path, options, false, ec);
    }

    /// Errors besides those of the class: ENOENT and EEXIST as the mode demands; ELOOP
    /// (`too_many_symbolic_link_levels`) when `name` is a symbolic link; EINVAL when it is no
    /// regular file, or one with other names besides, EISDIR or ENXIO where the system itself
    /// refuses a directory or a socket. Never waits for the other end of a fifo.
    [[nodiscard]] posix_file open(std::string_view name, open_mode mode, error_code& ec) noexcept {
        // A single component that is no link cannot lead out of the directory, so that openat2
        // with RESOLVE_BENEATH, which older kernels and sandboxes lack, would add nothing.
        constexpr int always = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
        const int access = mode == open_mode::read         ? O_RDONLY
                           : mode == open_mode::read_write ? O_RDWR
                                                           : O_RDWR | O_CREAT | O_EXCL;
        detail::posix_name text;
        posix_file result;
        ec = text.assign_component(name);
        if (!ec) {
            result.descriptor_ = detail::posix_descriptor{
                ::openat(descriptor_.get(), text.c_str(), always | access, 0600)};
            ec = detail::posix_result(result.number());
        }
        struct stat info = {};
        if (!ec) {
            ec = detail::posix_stat(result.descriptor_, info);
        }
        if (!ec && (!S_ISREG(info.st_mode) || info.st_nlink != 1)) {
            ec = detail::posix_error(EINVAL);
        }
        if (!ec && mode == open_mode::create) {
            ec = detail::posix_result(::fchmod(result.number(), 0600));
        }
        return ec ? posix_file{} : std::move(result);
    }

    void rename(std::string_view from, std::string_view to, error_code& ec) noexcept {
        detail::posix_name old_text;
        detail::posix_name new_text;
        ec = old_text.assign_component(from);
        if (!ec) {
            ec = new_text.assign_component(to);
        }
        if (!ec) {
            ec = detail::posix_result(::renameat(
                descriptor_.get(), old_text.c_str(), descriptor_.get(), new_text.c_str()));
        }
    }

    void remove(std::string_view name, error_code& ec) noexcept {
        detail::posix_name text;
        ec = text.assign_component(name);
        if (!ec) {
            ec = detail::posix_result(::unlinkat(descriptor_.get(), text.c_str(), 0));
        }
    }

    /// Everything but `.` and `..`, whatever its kind. Errors: the operating system's, and ENOMEM
    /// (`not_enough_memory`); nothing is returned then.
    [[nodiscard]] std::vector<std::string> names(error_code& ec) const noexcept {
        // Opened anew: a duplicate would share its position with every other duplicate.
        auto again = detail::posix_open_directory(descriptor_, ".");
        const std::unique_ptr<DIR, closer> stream{again ? ::fdopendir(again.get()) : nullptr};
        if (!stream) {
            ec = detail::posix_error(errno);
            return {};
        }
        static_cast<void>(again.release()); // it is the stream's now
        std::vector<std::string> result;
        try {
            for (errno = 0; const auto* entry = ::readdir(stream.get()); errno = 0) {
                const std::string_view name{entry->d_name};
                if (name != "." && name != "..") {
                    result.emplace_back(name);
                }
            }
            ec = errno == 0 ? error_code{} : detail::posix_error(errno);
        } catch (const std::bad_alloc&) {
            ec = detail::posix_error(ENOMEM);
        }
        if (ec) {
            result.clear();
        }
        std::sort(result.begin(), result.end());
        return result;
    }

    void sync(error_code& ec) noexcept { ec = detail::posix_result(::fsync(descriptor_.get())); }

    /// Takes the directory against every other lock on it, of this process too. The file `LOCK`
    /// tells the others who has it; what it says is for people and is trusted nowhere.
    ///
    /// `owner` is what the file says when `ec` is `errc::journal_locked`, if that is a decimal
    /// number, and 0 in every other case. Other errors: those of `open`, and the system's.
    [[nodiscard]] posix_lock lock(std::int64_t& owner, error_code& ec) noexcept {
        owner = 0;
        posix_file text = open(lock_name, open_mode::read_write, ec);
        if (ec == boost::system::errc::no_such_file_or_directory) {
            text = open(lock_name, open_mode::create, ec);
            if (ec == boost::system::errc::file_exists) { // another was faster
                text = open(lock_name, open_mode::read_write, ec);
            }
        }
        if (ec) {
            return {};
        }
        // Not a lock of the process (F_SETLK): that one excludes nobody in the process itself, and
        // ends when any descriptor of the file is closed.
        struct flock all = {};
        all.l_type = F_WRLCK;
        all.l_whence = SEEK_SET;
        if (::fcntl(text.number(), F_OFD_SETLK, &all) == -1) {
            const bool is_taken = errno == EAGAIN || errno == EACCES;
            ec = is_taken ? make_error_code(errc::journal_locked) : detail::posix_error(errno);
            owner = is_taken ? owner_in(text) : 0;
            return {};
        }
        // An error in writing is no reason to refuse: a full disk is opened to be emptied.
        std::array<char, number_size> digits{};
        const auto end =
            std::to_chars(digits.data(), digits.data() + digits.size(), ::getpid()).ptr;
        error_code ignored;
        text.resize(0, ignored);
        static_cast<void>(write_at(text, 0, std::as_bytes(std::span{digits.data(), end}), ignored));
        return posix_lock{std::move(text)};
    }

    /// Shared with other readers. Where there is no file `LOCK`, nobody has ever opened the
    /// directory to write, and there is nothing to take: the lock returned then holds nothing.
    [[nodiscard]] posix_lock lock_to_read(std::int64_t& owner, error_code& ec) noexcept {
        owner = 0;
        posix_file text = open(lock_name, open_mode::read, ec);
        if (ec) {
            ec = ec == boost::system::errc::no_such_file_or_directory ? error_code{} : ec;
            return {};
        }
        struct flock all = {};
        all.l_type = F_RDLCK;
        all.l_whence = SEEK_SET;
        if (::fcntl(text.number(), F_OFD_SETLK, &all) == -1) {
            const bool is_taken = errno == EAGAIN || errno == EACCES;
            ec = is_taken ? make_error_code(errc::journal_locked) : detail::posix_error(errno);
            owner = is_taken ? owner_in(text) : 0;
            return {};
        }
        return posix_lock{std::move(text)};
    }

private:
    struct closer {
        void operator()(DIR* stream) const noexcept { ::closedir(stream); }
    };

    static constexpr std::size_t number_size = 20; // digits of the largest number of 64 bits

    [[nodiscard]] static posix_directory open_at(
        const std::string& path,
        const posix_directory_options& options,
        bool may_create,
        error_code& ec) noexcept {
        std::string_view whole = path;
        while (whole.size() > 1 && whole.back() == '/') {
            whole.remove_suffix(1); // or a link would be followed in spite of O_NOFOLLOW
        }
        const auto slash = whole.rfind('/');
        detail::posix_name name;
        detail::posix_text<PATH_MAX> above;
        ec = name.assign(whole == "/" ? "." : whole.substr(slash + 1));
        if (!ec) {
            ec = above.assign(slash == whole.npos ? "." : whole.substr(0, slash + 1));
        }
        if (ec) {
            return {};
        }
        // Everything is done relative to one parent. O_PATH: it need not be readable.
        const detail::posix_descriptor parent{
            ::open(above.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
        if (!parent) {
            ec = detail::posix_error(errno);
            return {};
        }
        posix_directory result;
        bool is_new = false;
        ec = result.open_in(parent, name);
        if (may_create && ec == boost::system::errc::no_such_file_or_directory) {
            is_new = ::mkdirat(parent.get(), name.c_str(), 0700) == 0;
            ec = is_new || errno == EEXIST ? result.open_in(parent, name)
                                           : detail::posix_error(errno);
        }
        if (!ec && !options.allow_insecure) {
            ec = result.check_owner();
        }
        if (!ec && is_new) {
            ec = detail::posix_result(::fchmod(result.descriptor_.get(), 0700));
        }
        if (!ec && may_create) {
            // One that was there may be left from a process that died before this very sync. But
            // whether its parent can be read and synced is not ours to demand.
            const error_code synced = sync_parent(parent);
            ec = is_new ? synced : error_code{};
        }
        if (ec && is_new) { // so that the next attempt makes and syncs it anew
            ::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR);
        }
        return ec ? posix_directory{} : std::move(result);
    }

    [[nodiscard]] static error_code sync_parent(const detail::posix_descriptor& parent) noexcept {
        const auto readable = detail::posix_open_directory(parent, ".");
        return detail::posix_result(readable ? ::fsync(readable.get()) : -1);
    }
    [[nodiscard]] static std::int64_t owner_in(posix_file& text) noexcept {
        std::array<char, number_size> digits{};
        error_code ec;
        const std::size_t size = read_at(text, 0, std::as_writable_bytes(std::span{digits}), ec);
        const char* const end = digits.data() + size;
        std::uint64_t number = 0; // unsigned: a sign is no digit
        const auto parsed = std::from_chars(digits.data(), end, number);
        const bool is_number = !ec && parsed.ec == std::errc{} && parsed.ptr == end;
        return is_number && std::in_range<std::int64_t>(number) ? static_cast<std::int64_t>(number)
                                                                : 0;
    }

    [[nodiscard]] error_code
    open_in(const detail::posix_descriptor& parent, const detail::posix_name& name) noexcept {
        descriptor_ = detail::posix_open_directory(parent, name.c_str());
        return detail::posix_result(descriptor_.get());
    }
    [[nodiscard]] error_code check_owner() const noexcept {
        struct stat info = {};
        const error_code ec = detail::posix_stat(descriptor_, info);
        const bool is_safe =
            info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
        return ec || is_safe ? ec : detail::posix_error(EPERM);
    }

    detail::posix_descriptor descriptor_{};
};

static_assert(readable_directory<posix_directory>);

} // namespace railmq::storage
