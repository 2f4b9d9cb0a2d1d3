// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/record.hpp>
#include <railmq/storage/segment.hpp>

#include <cstdint>

namespace railmq::storage {

/// Where a message, or a row of a log's records, is stored: in twelve bytes, since there is one for
/// each that is kept.
class kept_at {
public:
    kept_at() noexcept = default;
    kept_at(record_location where, std::uint32_t bytes) noexcept
        : segment_{static_cast<std::uint32_t>(where.segment)}
        , offset_{static_cast<std::uint32_t>(where.offset / record_header::alignment)}
        , bytes_{bytes} {}

    [[nodiscard]] bool is_empty() const noexcept { return segment_ == 0; }
    [[nodiscard]] record_location location() const noexcept {
        return {segment_, std::uint64_t{offset_} * record_header::alignment};
    }
    [[nodiscard]] std::uint64_t segment() const noexcept { return segment_; }
    [[nodiscard]] std::uint32_t bytes() const noexcept { return bytes_; }

    friend bool operator==(const kept_at&, const kept_at&) noexcept = default;

private:
    std::uint32_t segment_ = 0;
    std::uint32_t offset_ = 0;
    std::uint32_t bytes_ = 0;
};

} // namespace railmq::storage
