// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/segment.hpp>

#include <cstddef>
#include <vector>

namespace railmq::detail {

/// Entries of others that belong to the record which queues write: what happens in logs and groups
/// with what happens in the queues. Called with the locks held of all that it speaks of.
struct joint_entries {
    joint_entries() = default;
    joint_entries(const joint_entries&) = delete;
    joint_entries& operator=(const joint_entries&) = delete;

    /// Appends them. Throws `std::bad_alloc`; then nothing is written.
    virtual void put(std::vector<std::byte>& record) = 0;
    /// The record is there.
    virtual void written(storage::record_location where) noexcept = 0;
    /// It could not be written. Where queues have a part in it, that is told by the first of them.
    virtual void not_written(errc) noexcept {}

protected:
    ~joint_entries() = default;
};

} // namespace railmq::detail
