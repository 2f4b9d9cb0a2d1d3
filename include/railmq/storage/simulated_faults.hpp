// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/system/errc.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace railmq::storage {

/// The calls that a simulated disk counts, and that can be made to fail.
enum class disk_operation : std::uint8_t {
    open,
    read,
    write,
    sync, ///< Of a file.
    allocate,
    resize,
    rename,
    remove,
    sync_directory,
    any, ///< Each of the others.
};

/// What can go wrong with a call.
enum class disk_fault : std::uint8_t {
    error,             ///< It gives an error and has done nothing; for a failed sync see the disk.
    interrupted,       ///< The same with EINTR, a sync too has done nothing.
    short_transfer,    ///< A read or write transfers a part, at least one byte.
    lost_write,        ///< A write reports success; the size may grow, but no byte changes.
    misdirected_write, ///< A write reports success and changes other sectors of the file, if any.
    stale_read,        ///< A read gives what the device has, or what was there a write ago.
};

/// Which call is to go wrong, and how. Only calls to which a fault of this kind can happen count:
/// "the second of any, a lost write" is the second write.
struct planned_fault {
    disk_operation what = disk_operation::any;
    std::uint64_t nth = 1; ///< Counted from now; 1 is the next.
    disk_fault kind = disk_fault::error;
    boost::system::errc::errc_t error = boost::system::errc::io_error; ///< For `disk_fault::error`.
    bool lasts = false; ///< Every call from the nth on, until the disk is healed.
};

/// The calls so far, and the faults to come. Of two faults that are due at one call the one that
/// was planned first strikes; the other waits for the next call.
///
/// Distinct objects: safe. Shared objects: unsafe.
class fault_plan {
public:
    void add(const planned_fault& fault) { planned_.push_back(fault); }

    /// Forgets all faults that have not struck, and ends those that last.
    void clear() noexcept {
        planned_.clear();
        is_failing_ = false;
    }

    /// Counts a call, and says what goes wrong with it.
    [[nodiscard]] std::optional<planned_fault> next_call(disk_operation what) {
        ++calls_[static_cast<std::size_t>(what)];
        auto due = planned_.end();
        for (auto it = planned_.begin(); it != planned_.end(); ++it) {
            if (!can_strike(*it, what)) {
                continue;
            }
            if (it->nth > 1) {
                --it->nth;
            } else if (due == planned_.end()) {
                due = it;
            }
        }
        if (due == planned_.end()) {
            return std::nullopt;
        }
        ++struck_;
        const planned_fault fault = *due;
        if (fault.lasts) {
            is_failing_ = true;
        } else {
            planned_.erase(due);
        }
        return fault;
    }

    [[nodiscard]] std::uint64_t calls(disk_operation what) const noexcept {
        return what == disk_operation::any
                   ? std::accumulate(calls_.begin(), calls_.end(), std::uint64_t{0})
                   : calls_[static_cast<std::size_t>(what)];
    }
    [[nodiscard]] std::uint64_t struck() const noexcept { return struck_; }
    /// Whether a fault that lasts has struck and was not cleared.
    [[nodiscard]] bool is_failing() const noexcept { return is_failing_; }

private:
    [[nodiscard]] static bool can_strike(const planned_fault& fault, disk_operation what) noexcept {
        if (fault.what != disk_operation::any && fault.what != what) {
            return false;
        }
        switch (fault.kind) {
        case disk_fault::error:
        case disk_fault::interrupted: break;
        case disk_fault::short_transfer:
            return what == disk_operation::read || what == disk_operation::write;
        case disk_fault::lost_write:
        case disk_fault::misdirected_write: return what == disk_operation::write;
        case disk_fault::stale_read: return what == disk_operation::read;
        }
        return true;
    }

    std::vector<planned_fault> planned_{};
    std::array<std::uint64_t, static_cast<std::size_t>(disk_operation::any)> calls_{};
    std::uint64_t struck_ = 0;
    bool is_failing_ = false;
};

} // namespace railmq::storage
