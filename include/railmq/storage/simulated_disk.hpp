// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/random.hpp>
#include <railmq/storage/files.hpp>
#include <railmq/storage/simulated_cache.hpp>
#include <railmq/storage/simulated_faults.hpp>
#include <railmq/storage/simulated_volume.hpp>

#include <boost/system/errc.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace railmq::storage {

class simulated_directory;

struct simulated_disk_options {
    /// Bytes that all files together may have. A file has those below the highest one that was
    /// ever written or allocated: a hole costs as much as data.
    std::uint64_t capacity = std::numeric_limits<std::uint64_t>::max();
    /// How likely it is, from 0 to 1, that of a sector which a crash keeps only the first bytes
    /// are new.
    double torn_sectors = 0;
};

/// A disk in memory with one directory and a cache in front of the device, for tests of what
/// must survive a power cut and of what must not be believed. Equal seeds and equal calls give
/// equal disks.
///
/// It promises what ext4 and POSIX promise, and no more:
/// - Written data is on the device after the file's `sync_data`. In a crash any of the sectors
///   (512 bytes) that were written since are lost, the file is as long as before, as after, or
///   something between, and reads as zeros where nothing arrived.
/// - A name is created, changed or removed for good after the directory's `sync`, whatever was
///   synced of the file. In a crash the changes after some point are lost; sometimes it is any of
///   them.
/// - A `sync_data` that fails with an error says so once: what it should have written counts as
///   written, is there to be read, and is gone after a crash, though later calls succeed. A `sync`
///   of the directory that fails changes nothing; the next one is a new chance.
/// - A removed file's space is free once nobody has the file open. If a crash brings the file
///   back, the files may have more than the capacity; then nothing can be written but where there
///   is space already.
///
/// A file has at most `max_file_size` bytes, beyond is EFBIG. Names are looked up as they are.
///
/// Handles refer to the disk, which must stay where it is until they are gone. A copy is a disk of
/// its own, to which no handle refers, in the same state: crash copies, each after a `reseed`, to
/// see many ends of one run.
///
/// Thread safety: the disk and its handles are for one thread.
class simulated_disk {
public:
    static constexpr std::size_t sector_size = detail::sector_size;
    static constexpr std::uint64_t max_file_size = detail::simulated_volume::max_file_size;
    /// Whom `lock` names as the owner.
    static constexpr std::int64_t process_id = 4242;

    explicit simulated_disk(std::uint64_t seed, simulated_disk_options options = {}) noexcept
        : volume_{seed, options.capacity, options.torn_sectors} {}

    [[nodiscard]] simulated_directory directory() noexcept;

    /// Goes on with the chance of another seed.
    void reseed(std::uint64_t seed) noexcept { volume_.random = random_engine{seed}; }

    void set_capacity(std::uint64_t bytes) noexcept { volume_.capacity = bytes; }

    /// The bytes that all files have now.
    [[nodiscard]] std::uint64_t used() const noexcept { return volume_.used(); }

    /// A power cut. All handles are dead: their operations give `bad_file_descriptor`. The lock is
    /// free. Faults that are planned stay so.
    void crash() { volume_.crash(); }

    /// The end of the process, in whatever way: all handles are dead and the lock is free, as after
    /// a power cut, and what was written and not synced is still there.
    void end_process() { volume_.end_process(); }

    /// Lets a call to come go wrong.
    void plan(const planned_fault& fault) { volume_.faults.add(fault); }
    /// The nth such call from now, 1 being the next, gives `error`.
    void fail(disk_operation what, std::uint64_t nth, boost::system::errc::errc_t error) {
        plan({.what = what, .nth = nth, .error = error});
    }
    /// The nth such call from now and all after it give `error`, until `heal`.
    void fail_from(disk_operation what, std::uint64_t nth, boost::system::errc::errc_t error) {
        plan({.what = what, .nth = nth, .error = error, .lasts = true});
    }
    /// Cancels all faults, those that last and those to come. What they did stays.
    void heal() noexcept { volume_.faults.clear(); }

    /// How many calls there were so far, those that failed too. Calls of dead handles are none.
    [[nodiscard]] std::uint64_t calls(disk_operation what) const noexcept {
        return volume_.faults.calls(what);
    }
    /// How many calls went wrong as planned.
    [[nodiscard]] std::uint64_t faults_struck() const noexcept { return volume_.faults.struck(); }
    /// Whether a fault that lasts has struck and was not healed.
    [[nodiscard]] bool is_failing() const noexcept { return volume_.faults.is_failing(); }

    /// Whether a file has this name now.
    [[nodiscard]] bool contains(std::string_view name) const noexcept {
        return volume_.find(name) != nullptr;
    }
    /// A file as it is read; empty if there is none. Valid until the disk changes.
    [[nodiscard]] std::span<const std::byte> contents(std::string_view name) const noexcept {
        const auto* const n = volume_.find(name);
        return n != nullptr ? n->data.cached() : std::span<const std::byte>{};
    }
    /// The same file as the device has it.
    [[nodiscard]] std::span<const std::byte> device_contents(std::string_view name) const noexcept {
        const auto* const n = volume_.find(name);
        return n != nullptr ? n->data.on_device() : std::span<const std::byte>{};
    }

    /// Flips the bits of `mask` in a byte of a file, in the cache and on the device.
    void corrupt(std::string_view name, std::uint64_t offset, std::byte mask) noexcept {
        RAILMQ_ASSERT(offset < contents(name).size());
        volume_.find(name)->data.corrupt(offset, mask);
    }

private:
    detail::simulated_volume volume_;
};

/// A file of a simulated disk that is open. Thread safety: that of its disk.
class simulated_file {
public:
    simulated_file() noexcept = default;

    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> in, error_code& ec) {
        auto* const n = usable(false, ec);
        return n != nullptr ? volume_->read(*n, offset, in, ec) : 0;
    }
    std::size_t
    write_some_at(std::uint64_t offset, std::span<const std::byte> out, error_code& ec) {
        auto* const n = usable(true, ec);
        return n != nullptr ? volume_->write(*n, offset, out, ec) : 0;
    }
    void sync_data(error_code& ec) {
        if (auto* const n = usable(false, ec)) {
            volume_->sync(*n, ec);
        }
    }
    /// Nothing: a crash keeps any part of what was not synced as it is.
    void start_sync(std::uint64_t, std::uint64_t) noexcept {}
    void allocate(std::uint64_t size, error_code& ec) {
        if (auto* const n = usable(true, ec)) {
            volume_->allocate(*n, size, ec);
        }
    }
    void resize(std::uint64_t size, error_code& ec) {
        if (auto* const n = usable(true, ec)) {
            volume_->resize(*n, size, ec);
        }
    }
    [[nodiscard]] std::uint64_t size(error_code& ec) const {
        const auto* const n = usable(false, ec);
        return n != nullptr ? n->data.size() : 0;
    }
    [[nodiscard]] std::uint64_t data_from(std::uint64_t offset, error_code& ec) const {
        (void)usable(false, ec);
        return offset;
    }

private:
    friend simulated_directory;

    simulated_file(detail::simulated_volume* volume, const detail::file_closer& how) noexcept
        : volume_{volume, how} {}

    /// The file, or null and an error: it is closed, dead, or not open for writing.
    [[nodiscard]] detail::simulated_volume::node* usable(bool to_write, error_code& ec) const {
        const detail::file_closer& how = volume_.get_deleter();
        if (volume_ == nullptr || volume_->crashes() != how.crashes ||
            (to_write && !how.may_write)) {
            ec = detail::simulated_volume::error(boost::system::errc::bad_file_descriptor);
            return nullptr;
        }
        ec = {};
        return &volume_->at(how.file);
    }

    std::unique_ptr<detail::simulated_volume, detail::file_closer> volume_{};
};

/// The lock of a simulated disk's directory; destroyed, it is free.
class simulated_lock {
public:
    /// Holds nothing.
    simulated_lock() noexcept = default;

    /// Whether it holds the lock; there is only one process.
    [[nodiscard]] bool is_ours() const noexcept {
        return volume_ != nullptr && volume_->crashes() == volume_.get_deleter().crashes;
    }

private:
    friend simulated_directory;

    explicit simulated_lock(detail::simulated_volume& volume) noexcept
        : volume_{&volume, detail::lock_releaser{volume.crashes()}} {
        volume.is_locked = true;
    }

    std::unique_ptr<detail::simulated_volume, detail::lock_releaser> volume_{};
};

/// The directory of a simulated disk. Thread safety: that of its disk.
class simulated_directory {
public:
    using file_type = simulated_file;
    using lock_type = simulated_lock;

    [[nodiscard]] simulated_file open(std::string_view name, open_mode mode, error_code& ec) {
        if (!is_alive(ec)) {
            return {};
        }
        const std::uint64_t file = volume_->open(name, mode, ec);
        if (ec) {
            return {};
        }
        return {volume_, {crashes_, file, mode != open_mode::read}};
    }
    void rename(std::string_view from, std::string_view to, error_code& ec) {
        if (is_alive(ec)) {
            volume_->rename(from, to, ec);
        }
    }
    void remove(std::string_view name, error_code& ec) {
        if (is_alive(ec)) {
            volume_->remove(name, ec);
        }
    }
    [[nodiscard]] std::vector<std::string> names(error_code& ec) const {
        std::vector<std::string> all;
        if (is_alive(ec)) {
            for (const auto& [name, file] : volume_->names()) {
                all.push_back(name);
            }
        }
        return all;
    }
    void sync(error_code& ec) {
        if (is_alive(ec)) {
            volume_->sync_directory(ec);
        }
    }
    [[nodiscard]] simulated_lock lock(std::int64_t& owner, error_code& ec) {
        owner = 0;
        if (!is_alive(ec)) {
            return {};
        }
        if (volume_->is_locked) {
            owner = simulated_disk::process_id;
            ec = errc::journal_locked;
            return {};
        }
        return simulated_lock{*volume_};
    }
    /// Here it keeps other readers out as well.
    [[nodiscard]] simulated_lock lock_to_read(std::int64_t& owner, error_code& ec) {
        return lock(owner, ec);
    }

private:
    friend simulated_disk;

    explicit simulated_directory(detail::simulated_volume& volume) noexcept
        : volume_{&volume}
        , crashes_{volume.crashes()} {}

    [[nodiscard]] bool is_alive(error_code& ec) const noexcept {
        ec = {};
        if (volume_->crashes() != crashes_) {
            ec = detail::simulated_volume::error(boost::system::errc::bad_file_descriptor);
        }
        return !ec;
    }

    detail::simulated_volume* volume_;
    std::uint64_t crashes_;
};

inline simulated_directory simulated_disk::directory() noexcept {
    return simulated_directory{volume_};
}

static_assert(file<simulated_file>);
static_assert(readable_directory<simulated_directory>);

} // namespace railmq::storage
