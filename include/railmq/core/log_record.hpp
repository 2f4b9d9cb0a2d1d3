// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/core/slot.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace railmq::core {

/// A record on its way into a log.
struct log_input {
    std::optional<std::string_view> key{};
    /// Unset: the time of the append.
    std::optional<time_point> timestamp{};
    /// The object that is moved into the log and ended here. Null: a tombstone.
    void* payload = nullptr;
    std::unique_ptr<railmq::properties> props{};
};

/// The fixed part of a record in memory; the payload follows it. Written before it is published
/// and constant from then on, but for two of the flags.
template <class Sync>
struct log_record {
    static constexpr std::uint32_t tombstone_flag = 1; ///< No payload: its key was deleted.
    static constexpr std::uint32_t removed_flag = 2;   ///< No longer part of the log.
    static constexpr std::uint32_t absent_flag = 4;    ///< Its payload was ended or moved.

    std::uint32_t relative = 0; ///< The offset, counted from its segment's base.
    /// The second and the third are set with the partition's lock held, while others read.
    typename Sync::template atomic<std::uint32_t> flags{0};
    time_point timestamp{};
    const std::byte* key = nullptr; ///< In the segment's arena; null: no key.
    railmq::properties* props = nullptr;

    [[nodiscard]] bool is(std::uint32_t flag) const noexcept {
        return (flags.load(std::memory_order_relaxed) & flag) != 0;
    }
};

/// How the records of one payload type lie in a block.
struct log_layout {
    /// About 16 KiB a block, but no more than `max_records` need.
    log_layout(const payload_ops& ops, std::size_t max_records) noexcept
        : payload{static_cast<std::uint32_t>(align_up(32, ops.align))}
        // A tombstone keeps a time where its payload would be.
        , stride{static_cast<std::uint32_t>(align_up(
              payload + std::max<std::size_t>(ops.size, sizeof(time_point)),
              std::max<std::size_t>(ops.align, 8)))}
        , capacity{std::clamp<std::uint32_t>(
              std::bit_floor(16384U / stride),
              8,
              static_cast<std::uint32_t>(
                  std::bit_ceil(std::clamp<std::size_t>(max_records, 8, 256))))}
        , shift{static_cast<std::uint32_t>(std::countr_zero(capacity))} {
        RAILMQ_ASSERT(ops.align <= 64);
    }

    std::uint32_t payload;  ///< Where in a record the payload starts.
    std::uint32_t stride;   ///< Bytes from one record to the next.
    std::uint32_t capacity; ///< Records in a block: a power of two.
    std::uint32_t shift;
};

/// Records in a row; they follow the header.
template <class Sync>
struct alignas(64) log_block {
    typename Sync::template atomic<log_block*> next{nullptr};
    /// The latest time in this block and all before it in its segment. Only with the lock held.
    time_point newest = time_point::min();

    [[nodiscard]] log_record<Sync>* at(std::uint64_t i, const log_layout& layout) noexcept {
        auto* bytes = reinterpret_cast<std::byte*>(this) + sizeof(log_block);
        return reinterpret_cast<log_record<Sync>*>(bytes + i * layout.stride);
    }
};

} // namespace railmq::core
