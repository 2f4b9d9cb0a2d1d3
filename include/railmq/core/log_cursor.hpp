// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_segment.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace railmq::core {

/// A record as a reader sees it; good for as long as a pin of its segment.
struct log_entry {
    std::uint64_t offset = 0;
    time_point timestamp{};
    bool has_key = false;
    bool is_tombstone = false;
    std::string_view key{};
    const railmq::properties* props = nullptr; ///< Null: none.
    const void* payload = nullptr;             ///< Null: a tombstone.
};

/// Where a log begins and ends, for readers without a lock. Both only grow.
template <class Sync>
struct log_ends {
    alignas(64) typename Sync::template atomic<std::uint64_t> start{0};
    alignas(64) typename Sync::template atomic<std::uint64_t> end{0};
};

enum class read_status : std::uint8_t {
    ok,
    at_end,       ///< Everything there is was read.
    elsewhere,    ///< The next record is in another segment: `partition::enter`, then again.
    out_of_range, ///< The position was removed: `log_ends::start` is where the log begins now.
};

/// A reader's place in one partition: a position, and the segment that it reads there.
///
/// Thread safety: one thread at a time. `read` takes no lock, whatever the partition's writer,
/// retention and compaction do meanwhile. Must not outlive the partition.
template <class Sync>
class log_cursor {
public:
    /// Hands up to `max_records` records in order to `each(const log_entry&)`, as many as count
    /// `max_bytes` together, but one in any case; from one segment only, and those that are
    /// published now. Cost: two atomic loads, then no more than looking at the records.
    template <class Each>
    [[nodiscard]] read_status read(std::size_t max_records, std::size_t max_bytes, Each&& each) {
        using record = log_record<Sync>;
        if (ends_ == nullptr) {
            return read_status::elsewhere;
        }
        // The end first: what lies before it and not in this segment now, is elsewhere.
        const std::uint64_t end = ends_->end.load(std::memory_order_acquire);
        if (position_ < ends_->start.load(std::memory_order_acquire)) {
            return read_status::out_of_range;
        }
        if (position_ >= end) {
            return read_status::at_end;
        }
        log_segment<Sync>* const s = segment_.get();
        if (s == nullptr) {
            return read_status::elsewhere;
        }
        const std::uint64_t published = s->published();
        if (block_ == nullptr) {
            return read_status::elsewhere; // it was empty when the cursor came
        }
        const log_layout& layout = s->layout();
        std::size_t records = 0;
        std::size_t bytes = 0;
        while (index_ < published) {
            if (in_block_ == layout.capacity) {
                block_ = block_->next.load(std::memory_order_acquire);
                in_block_ = 0;
            }
            record& r = *block_->at(in_block_, layout);
            if (r.is(record::removed_flag)) {
                ++index_;
                ++in_block_;
                continue;
            }
            if (max_bytes != unlimited) {
                bytes += s->bytes_of(r);
                if (records != 0 && bytes > max_bytes) {
                    break;
                }
            }
            log_entry e;
            e.offset = s->offset_of(r);
            e.timestamp = r.timestamp;
            e.has_key = r.key != nullptr;
            e.is_tombstone = r.is(record::tombstone_flag);
            e.key = s->key_of(r);
            e.props = r.props;
            e.payload = e.is_tombstone ? nullptr : s->payload_of(r);
            // Before the call, which may throw.
            position_ = e.offset + 1;
            ++index_;
            ++in_block_;
            ++records;
            each(std::as_const(e));
            if (records >= max_records) {
                break;
            }
        }
        return records != 0 ? read_status::ok : read_status::elsewhere;
    }

    /// The offset that is read next, or a later one if there is no record at it.
    [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
    /// Keeps alive what was read last, without the cursor.
    [[nodiscard]] log_pin<Sync> pin() const noexcept { return segment_.share(); }
    /// Lets go of the segment, so that an idle reader holds up nothing: the next read says
    /// `elsewhere`.
    void unpin() noexcept { segment_.reset(); }

    // For the partition, with its lock held

    /// Puts the cursor at the record number `index` of a segment.
    void place(
        const log_ends<Sync>& ends,
        log_segment<Sync>* s,
        std::uint64_t index,
        std::uint64_t position) noexcept {
        ends_ = &ends;
        segment_ = log_pin<Sync>::of(s);
        index_ = index;
        position_ = position;
        const std::uint64_t capacity = s->layout().capacity;
        // At a segment's end its next block may not be there yet: one past the last record.
        const std::uint64_t from = index == s->written() && index != 0 ? index - 1 : index;
        block_ = s->written() == 0 ? nullptr : s->block_of(from);
        in_block_ = from % capacity + (index - from);
    }

private:
    const log_ends<Sync>* ends_ = nullptr;
    log_pin<Sync> segment_{};
    log_block<Sync>* block_ = nullptr;
    std::uint64_t in_block_ = 0;
    std::uint64_t index_ = 0;
    std::uint64_t position_ = 0;
};

} // namespace railmq::core
