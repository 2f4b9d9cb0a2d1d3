// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>

#include <boost/system/errc.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::storage {

/// How a file is opened.
enum class open_mode : std::uint8_t {
    read,       ///< It must exist.
    read_write, ///< It must exist.
    create,     ///< It must not exist; for reading and writing.
};

/// A file that is open: the few operations that the journal is built from. Each may do less than
/// it was asked to, or fail, as the operating system's own may, `interrupted` included; `read_at`
/// and `write_at` below do the whole of a transfer.
///
/// - `read_some_at(offset, in, ec)`: reads up to `in.size()` bytes; 0 only at the end of the file.
/// - `write_some_at(offset, out, ec)`: writes some of `out`. What lies between the end of the file
///   and `offset` then reads as zeros.
/// - `sync_data(ec)`: returns when contents and size are on the device. After an error nothing is
///   known of what was written before, and another call that succeeds says nothing about it.
/// - `start_sync(offset, size)`: those bytes may be brought to the device from now on, so that the
///   sync that is to come has less to wait for. Promises nothing, and returns without waiting.
/// - `allocate(size, ec)`: makes the file at least `size` bytes long, with zeros, and gives it the
///   space: later writes below `size` do not fail for want of it. (File systems that never write
///   in place, such as btrfs and ZFS, do not keep that.) After an error it may be longer.
/// - `resize(size, ec)`: cuts it, or makes it longer without giving it space.
/// - `size(ec)`: its size in bytes.
/// - `data_from(offset, ec)`: the first place from `offset` on that may have anything but zeros,
///   its size where there is none: what lies before needs no reading. `offset` itself is an answer
///   that is always right.
///
/// Every operation sets `ec`, to success as well. Errors are the operating system's: compare them
/// with `boost::system::errc`. Destroying a file closes it, without a sync.
///
/// Thread safety: distinct objects safe; of one object `read_some_at` is safe beside everything
/// but `resize` and moves.
template <class File>
concept file = std::movable<File> && std::default_initializable<File> && requires(
    File& f,
    std::span<std::byte> in,
    std::span<const std::byte> out,
    std::uint64_t offset,
    error_code& ec) {
    { f.read_some_at(offset, in, ec) } -> std::same_as<std::size_t>;
    { f.write_some_at(offset, out, ec) } -> std::same_as<std::size_t>;
    { f.sync_data(ec) } -> std::same_as<void>;
    { f.start_sync(offset, offset) } -> std::same_as<void>;
    { f.allocate(offset, ec) } -> std::same_as<void>;
    { f.resize(offset, ec) } -> std::same_as<void>;
    { f.size(ec) } -> std::same_as<std::uint64_t>;
    { f.data_from(offset, ec) } -> std::same_as<std::uint64_t>;
};

/// A directory that is open, and the files in it. Names are single components that the library
/// makes itself; no name of a queue ever becomes one.
///
/// - `open(name, mode, ec)`: opens a regular file; nothing else, and never through a link. After
///   an error in mode `create` there may be an empty file of that name.
/// - `rename(from, to, ec)`: replaces `to`, if it is there.
/// - `remove(name, ec)`: removes a file. Who has it open can go on using it.
/// - `names(ec)`: all that is in it, whatever it is, in the order of the bytes of the names.
/// - `sync(ec)`: returns when all that was created, renamed and removed is on the device.
/// - `lock(owner, ec)`: takes the directory until the lock is destroyed. `errc::journal_locked`
///   when somebody has it; `owner` is then his process id where that is known, and else 0. The
///   lock's `is_ours()` is false in a process that was forked from the one that took it.
template <class Directory>
concept directory = file<typename Directory::file_type> &&
    std::movable<typename Directory::lock_type> && std::movable<Directory> && requires(
        Directory& d,
        typename Directory::lock_type& lock,
        std::string_view name,
        open_mode mode,
        std::int64_t& owner,
        error_code& ec) {
    { d.open(name, mode, ec) } -> std::same_as<typename Directory::file_type>;
    { d.rename(name, name, ec) } -> std::same_as<void>;
    { d.remove(name, ec) } -> std::same_as<void>;
    { d.names(ec) } -> std::same_as<std::vector<std::string>>;
    { d.sync(ec) } -> std::same_as<void>;
    { d.lock(owner, ec) } -> std::same_as<typename Directory::lock_type>;
    { std::as_const(lock).is_ours() } -> std::same_as<bool>;
};

/// A directory that can be looked at while nobody may write to it.
///
/// - `lock_to_read(owner, ec)`: keeps everybody from `lock` until the lock is destroyed, and
///   changes nothing. `errc::journal_locked`, with `owner` as above, when somebody has the
///   directory. Whoever is kept out meanwhile may be told the last owner.
template <class Directory>
concept readable_directory = directory<Directory> &&
    requires(Directory& d, std::int64_t& owner, error_code& ec) {
    { d.lock_to_read(owner, ec) } -> std::same_as<typename Directory::lock_type>;
};

/// Reads until `in` is full, the file ends, or an error that is no interruption. Returns how many
/// bytes were read; fewer than `in.size()` without an error: the file ended.
template <file File>
std::size_t read_at(File& f, std::uint64_t offset, std::span<std::byte> in, error_code& ec) {
    std::size_t done = 0;
    ec = {};
    while (done != in.size()) {
        const std::size_t n = f.read_some_at(offset + done, in.subspan(done), ec);
        if (ec == boost::system::errc::interrupted) {
            continue;
        }
        if (ec || n == 0) {
            break;
        }
        done += n;
    }
    return done;
}

/// Writes all of `out`, or stops at an error that is no interruption. Returns how many bytes were
/// written for certain; after an error more of them may have been.
template <file File>
std::size_t
write_at(File& f, std::uint64_t offset, std::span<const std::byte> out, error_code& ec) {
    std::size_t done = 0;
    ec = {};
    while (done != out.size()) {
        const std::size_t n = f.write_some_at(offset + done, out.subspan(done), ec);
        if (ec == boost::system::errc::interrupted) {
            continue;
        }
        if (!ec && n == 0) {
            ec = make_error_code(boost::system::errc::io_error); // no progress and no reason
        }
        if (ec) {
            break;
        }
        done += n;
    }
    return done;
}

} // namespace railmq::storage
