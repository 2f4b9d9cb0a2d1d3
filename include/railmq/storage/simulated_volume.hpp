// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/random.hpp>
#include <railmq/storage/files.hpp>
#include <railmq/storage/simulated_cache.hpp>
#include <railmq/storage/simulated_faults.hpp>

#include <boost/system/errc.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>

namespace railmq::storage::detail {

/// What a simulated disk is inside: the operations of files and of the directory, where faults
/// strike and space ends. Files are numbered, from 1 on, and a number is not used again.
///
/// Distinct objects: safe. Shared objects: unsafe.
class simulated_volume {
public:
    /// A file; also one without a name that is open, or that a crash may bring back.
    struct node {
        cached_file data{};
        std::uint64_t handles = 0;
        bool is_named = true;
    };

    static constexpr std::uint64_t max_file_size = std::uint64_t{1} << 30U;

    fault_plan faults{};
    random_engine random;
    std::uint64_t capacity;
    double torn_sectors;
    bool is_locked = false;

    simulated_volume(std::uint64_t seed, std::uint64_t bytes, double torn) noexcept
        : random{seed}
        , capacity{bytes}
        , torn_sectors{torn} {}

    /// How many crashes there were: a handle from before one is dead.
    [[nodiscard]] std::uint64_t crashes() const noexcept { return crashes_; }
    [[nodiscard]] const cached_names::map& names() const noexcept { return names_.cached(); }
    [[nodiscard]] node& at(std::uint64_t file) noexcept { return nodes_.find(file)->second; }

    [[nodiscard]] const node* find(std::string_view name) const noexcept {
        const auto it = names().find(name);
        return it != names().end() ? &nodes_.find(it->second)->second : nullptr;
    }
    [[nodiscard]] node* find(std::string_view name) noexcept {
        const auto it = names().find(name);
        return it != names().end() ? &at(it->second) : nullptr;
    }

    [[nodiscard]] std::uint64_t used() const noexcept {
        std::uint64_t sum = 0;
        for (const auto& [file, n] : nodes_) {
            sum += n.is_named || n.handles != 0 ? n.data.space() : 0;
        }
        return sum;
    }

    void crash() {
        ++crashes_;
        is_locked = false;
        names_.crash(random);
        std::erase_if(nodes_, [&](const auto& entry) { return !names_.may_name(entry.first); });
        for (auto& [file, n] : nodes_) {
            n.data.crash(random, torn_sectors);
            n.handles = 0;
            n.is_named = true;
        }
    }

    /// The process ends: its handles are gone, and nothing else is.
    void end_process() {
        ++crashes_;
        is_locked = false;
        std::erase_if(nodes_, [&](const auto& entry) {
            return !entry.second.is_named && !names_.may_name(entry.first);
        });
        for (auto& [file, n] : nodes_) {
            n.handles = 0;
        }
    }

    [[nodiscard]] static error_code error(boost::system::errc::errc_t e) noexcept {
        return {static_cast<int>(e), boost::system::system_category()};
    }

    std::size_t read(node& n, std::uint64_t offset, std::span<std::byte> in, error_code& ec) {
        const auto fault = begin(disk_operation::read, ec);
        if (ec) {
            return 0;
        }
        if (fault == disk_fault::stale_read) {
            return n.data.read_stale(offset, in);
        }
        return n.data.read(
            offset, fault == disk_fault::short_transfer ? in.first(part_of(in.size())) : in);
    }

    std::size_t
    write(node& n, std::uint64_t offset, std::span<const std::byte> out, error_code& ec) {
        const auto fault = begin(disk_operation::write, ec);
        if (ec || out.empty()) {
            return 0;
        }
        if (offset >= max_file_size || out.size() > max_file_size - offset) {
            ec = error(boost::system::errc::file_too_large);
            return 0;
        }
        if (fault == disk_fault::short_transfer) {
            out = out.first(part_of(out.size()));
        }
        const std::uint64_t reach = reach_of(n);
        if (offset >= reach) {
            ec = error(boost::system::errc::no_space_on_device);
            return 0;
        }
        out = out.first(std::min<std::size_t>(out.size(), reach - offset));
        n.data.grow(offset + out.size());
        n.data.reserve(offset + out.size());
        if (fault == disk_fault::misdirected_write) {
            write_elsewhere(n, offset, out);
        } else if (fault != disk_fault::lost_write) {
            n.data.write(offset, out);
        }
        return out.size();
    }

    void sync(node& n, error_code& ec) {
        const auto fault = begin(disk_operation::sync, ec);
        if (!ec) {
            n.data.sync();
        } else if (fault != disk_fault::interrupted) {
            n.data.fail_to_sync();
        }
    }

    void allocate(node& n, std::uint64_t size, error_code& ec) {
        begin(disk_operation::allocate, ec);
        if (ec) {
            return;
        }
        if (size > max_file_size) {
            ec = error(boost::system::errc::file_too_large);
        } else if (size > reach_of(n)) {
            ec = error(boost::system::errc::no_space_on_device);
        } else {
            n.data.grow(size);
            n.data.reserve(size);
        }
    }

    void resize(node& n, std::uint64_t size, error_code& ec) {
        begin(disk_operation::resize, ec);
        if (ec) {
            return;
        }
        if (size > max_file_size) {
            ec = error(boost::system::errc::file_too_large);
        } else if (size < n.data.size()) {
            n.data.cut(size);
        } else {
            n.data.grow(size);
        }
    }

    /// Returns the file's number, 0 with an error.
    std::uint64_t open(std::string_view name, open_mode mode, error_code& ec) {
        begin(disk_operation::open, ec);
        if (ec) {
            return 0;
        }
        node* n = find(name);
        if (mode == open_mode::create && n == nullptr) {
            n = &nodes_[++last_file_];
            names_.create(name, last_file_);
        } else if (mode == open_mode::create || n == nullptr) {
            ec = error(
                n == nullptr ? boost::system::errc::no_such_file_or_directory
                             : boost::system::errc::file_exists);
            return 0;
        }
        ++n->handles;
        return names().find(name)->second;
    }

    void rename(std::string_view from, std::string_view to, error_code& ec) {
        begin(disk_operation::rename, ec);
        if (ec) {
            return;
        }
        if (find(from) == nullptr) {
            ec = error(boost::system::errc::no_such_file_or_directory);
        } else if (from != to) {
            if (node* const replaced = find(to)) {
                replaced->is_named = false;
            }
            names_.rename(from, to);
        }
    }

    void remove(std::string_view name, error_code& ec) {
        begin(disk_operation::remove, ec);
        if (ec) {
            return;
        }
        if (node* const n = find(name)) {
            n->is_named = false;
            names_.remove(name);
        } else {
            ec = error(boost::system::errc::no_such_file_or_directory);
        }
    }

    void sync_directory(error_code& ec) {
        begin(disk_operation::sync_directory, ec);
        if (!ec) {
            names_.sync();
            std::erase_if(nodes_, [&](const auto& entry) {
                return entry.second.handles == 0 && !names_.may_name(entry.first);
            });
        }
    }

    void close(std::uint64_t file) noexcept {
        node& n = at(file);
        if (--n.handles == 0 && !names_.may_name(file)) {
            nodes_.erase(file);
        }
    }

private:
    /// Counts the call. Sets `ec`, and returns what else goes wrong with it.
    std::optional<disk_fault> begin(disk_operation what, error_code& ec) {
        ec = {};
        const auto fault = faults.next_call(what);
        if (!fault) {
            return std::nullopt;
        }
        if (fault->kind == disk_fault::interrupted ||
            (fault->kind == disk_fault::error &&
             fault->error == boost::system::errc::interrupted)) {
            ec = error(boost::system::errc::interrupted);
            return disk_fault::interrupted;
        }
        if (fault->kind == disk_fault::error) {
            ec = error(fault->error);
        }
        return fault->kind;
    }

    /// Up to where a file's space could reach.
    [[nodiscard]] std::uint64_t reach_of(const node& n) const noexcept {
        const std::uint64_t in_use = used();
        return n.data.space() + (capacity > in_use ? capacity - in_use : 0);
    }

    [[nodiscard]] std::size_t part_of(std::size_t size) noexcept {
        return size < 2 ? size : 1 + static_cast<std::size_t>(uniform_below(random, size - 1));
    }

    /// To the same place in a sector that was not meant, as far as that goes.
    void write_elsewhere(node& n, std::uint64_t offset, std::span<const std::byte> out) {
        const std::uint64_t sectors = (n.data.size() + sector_size - 1) / sector_size;
        const std::uint64_t first = offset / sector_size;
        const std::uint64_t meant = (offset + out.size() - 1) / sector_size - first + 1;
        if (meant == sectors) {
            return;
        }
        std::uint64_t sector = uniform_below(random, sectors - meant);
        sector += sector >= first ? meant : 0;
        const std::uint64_t place = sector * sector_size + offset % sector_size;
        const std::uint64_t end = place < offset ? offset : n.data.size();
        if (place < end) {
            n.data.write(place, out.first(std::min<std::size_t>(out.size(), end - place)));
        }
    }

    cached_names names_{};
    std::map<std::uint64_t, node> nodes_{};
    std::uint64_t last_file_ = 0;
    std::uint64_t crashes_ = 0;
};

/// Closes a file, unless a crash has done so.
struct file_closer {
    std::uint64_t crashes = 0;
    std::uint64_t file = 0;
    bool may_write = false;

    void operator()(simulated_volume* volume) const noexcept {
        if (volume->crashes() == crashes) {
            volume->close(file);
        }
    }
};

/// Gives the lock back, unless a crash has done so.
struct lock_releaser {
    std::uint64_t crashes = 0;

    void operator()(simulated_volume* volume) const noexcept {
        if (volume->crashes() == crashes) {
            volume->is_locked = false;
        }
    }
};

} // namespace railmq::storage::detail
