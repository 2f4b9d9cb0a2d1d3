// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/key_arena.hpp>
#include <railmq/core/log_record.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// A stretch of a log: records with rising offsets, dense unless some were left out or moved in by
/// compaction. Payloads lie in blocks, in place, and never move while anybody has a pin.
///
/// Threads. One writer at a time fills it, with the partition's lock held; so is everything here
/// called that is not said to be free of it. Whoever holds a reference may read the first
/// `published()` records without the lock, and release the reference without it. A reference is
/// *taken* with the lock held, or copied from another: so while the lock is held and
/// `is_pinned()` is false, nobody reads, and payloads may be ended or moved.
///
/// Memory is counted at the budget by block, keys included; properties are not counted.
template <class Sync>
class log_segment {
public:
    using record = log_record<Sync>;
    using block = log_block<Sync>;
    template <class T>
    using atomic = typename Sync::template atomic<T>;

    /// The largest distance of an offset from the base; a later one needs another segment.
    static constexpr std::uint64_t max_relative = 0x7fffffff;

    /// A record and its time.
    struct dated {
        std::uint64_t offset = 0;
        time_point timestamp{};
        friend bool operator==(const dated&, const dated&) = default;
    };

    /// An empty segment with one reference, the caller's. Counted at the budget whatever its limit
    /// says, being small. Throws `std::bad_alloc`.
    [[nodiscard]] static log_segment* make(
        const payload_ops& ops,
        const log_layout& layout,
        memory_budget<Sync>& budget,
        std::uint64_t base) {
        auto* made = new log_segment{ops, layout, budget, base};
        budget.charge(sizeof(log_segment));
        return made;
    }
    log_segment(const log_segment&) = delete;
    log_segment& operator=(const log_segment&) = delete;

    // Free of the lock, for whoever has a reference

    void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    /// Gives a reference back; the last one ends the segment and its payloads.
    void release() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }
    [[nodiscard]] std::uint64_t base() const noexcept { return base_; }
    /// The number of records that can be read. What it is later is more.
    [[nodiscard]] std::uint64_t published() const noexcept {
        return published_.load(std::memory_order_acquire);
    }
    [[nodiscard]] const log_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] std::uint64_t offset_of(const record& r) const noexcept {
        return base_ + r.relative;
    }
    [[nodiscard]] static bool has_key(const record& r) noexcept { return r.key != nullptr; }
    [[nodiscard]] static std::string_view key_of(const record& r) noexcept {
        return r.key == nullptr ? std::string_view{} : key_arena<Sync>::at(r.key);
    }
    [[nodiscard]] void* payload_of(record& r) const noexcept {
        return reinterpret_cast<std::byte*>(&r) + layout_.payload;
    }
    /// What the record counts for limits: payload, key, headers and `log_record_overhead`.
    [[nodiscard]] std::size_t bytes_of(record& r) const noexcept {
        const bool bare = r.is(record::tombstone_flag | record::absent_flag);
        return bytes_of(
            r.key == nullptr ? 0 : key_of(r).size(), bare ? 0 : ops_.bytes(payload_of(r)), r.props);
    }
    [[nodiscard]] static std::size_t
    bytes_of(std::size_t key, std::size_t payload, const railmq::properties* props) noexcept {
        std::size_t n = log_record_overhead + key + payload;
        if (props != nullptr) {
            n += props->message_id.size() + props->routing_key.size() +
                 props->correlation_id.size() + props->reply_to.size();
            for (const auto& [name, value] : props->headers) {
                n += name.size() + value.size();
            }
        }
        return n;
    }

    // With the lock held: what there is

    /// One past the last record's offset; the base of an empty one.
    [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
    /// Records that are part of the log.
    [[nodiscard]] std::uint64_t live() const noexcept { return live_; }
    [[nodiscard]] std::size_t live_bytes() const noexcept { return live_bytes_; }
    /// Of all that was written, whether or not it has been removed.
    [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
    [[nodiscard]] std::size_t written_bytes() const noexcept { return written_bytes_; }
    /// The time of the first record ever written; there must be one.
    [[nodiscard]] time_point first_timestamp() const noexcept { return at(0)->timestamp; }
    [[nodiscard]] bool is_pinned() const noexcept {
        return references_.load(std::memory_order_acquire) != 1;
    }
    [[nodiscard]] std::size_t memory_bytes() const noexcept {
        return sizeof(log_segment) + blocks_.size() * block_bytes() + keys_.memory_bytes();
    }

    [[nodiscard]] record* at(std::uint64_t i) const noexcept {
        return block_of(i)->at(i & (layout_.capacity - 1), layout_);
    }
    [[nodiscard]] block* block_of(std::uint64_t i) const noexcept {
        return blocks_[static_cast<std::size_t>(i >> layout_.shift)];
    }
    /// The first record whose offset is not below `offset`; `written()` when there is none.
    /// Cost: none where offsets are dense, else logarithmic.
    [[nodiscard]] std::uint64_t index_of(std::uint64_t offset) const noexcept {
        if (offset <= base_) {
            return 0;
        }
        if (offset >= end_) {
            return written_;
        }
        if (end_ - base_ == written_) {
            return offset - base_;
        }
        std::uint64_t first = 0;
        std::uint64_t count = written_;
        while (count != 0) {
            const std::uint64_t half = count / 2;
            if (offset_of(*at(first + half)) < offset) {
                first += half + 1;
                count -= half + 1;
            } else {
                count = half;
            }
        }
        return first;
    }
    /// The first record from `i` on that is part of the log; `written()` when there is none.
    [[nodiscard]] std::uint64_t next_live(std::uint64_t i) const noexcept {
        while (i < written_ && at(i)->is(record::removed_flag)) {
            ++i;
        }
        return i;
    }
    /// The latest time and the first offset that has it. Cost: none, unless just that record was
    /// removed since.
    [[nodiscard]] std::optional<dated> newest() noexcept {
        if (live_ == 0) {
            return std::nullopt;
        }
        if (newest_is_stale_) {
            newest_ = {};
            bool any = false;
            for (std::uint64_t i = next_live(0); i < written_; i = next_live(i + 1)) {
                const record& r = *at(i);
                if (!any || r.timestamp > newest_.timestamp) {
                    newest_ = {offset_of(r), r.timestamp};
                    any = true;
                }
            }
            newest_is_stale_ = false;
        }
        return newest_;
    }
    /// From when on retention counts: the latest time, where one that was in the future when it
    /// was appended counts as the time of the append, so that it cannot stay for ever. That is
    /// remembered once for all records: if others were removed, it may be that of a later append.
    [[nodiscard]] time_point counts_from() noexcept {
        const auto n = newest();
        return n ? std::min(n->timestamp, counts_from_) : counts_from_;
    }
    /// The first record that is not older than `t`. Cost: logarithmic, then at most a block, unless
    /// records were removed.
    [[nodiscard]] std::optional<dated> first_since(time_point t) const noexcept {
        const auto found = std::partition_point(
            blocks_.begin(), blocks_.end(), [t](const block* b) { return b->newest < t; });
        auto i = static_cast<std::uint64_t>(found - blocks_.begin()) << layout_.shift;
        for (i = next_live(i); i < written_; i = next_live(i + 1)) {
            if (const record& r = *at(i); r.timestamp >= t) {
                return dated{offset_of(r), r.timestamp};
            }
        }
        return std::nullopt;
    }

    // With the lock held: writing

    /// Makes room for so many records, and for their keys' bytes in the arena. False: no memory,
    /// or the budget's limit would be passed and `force` does not say otherwise. Throws
    /// `std::bad_alloc`. In either case no record has changed.
    [[nodiscard]] bool reserve(std::uint64_t records, std::size_t key_bytes, bool force = false) {
        const auto wanted =
            static_cast<std::size_t>((written_ + records + layout_.capacity - 1) >> layout_.shift);
        if (!keys_.reserve(key_bytes, force)) {
            return false;
        }
        if (wanted > blocks_.capacity()) {
            blocks_.reserve(std::max(wanted, 2 * blocks_.capacity()));
        }
        while (blocks_.size() < wanted) {
            if (!add_block(force)) {
                return false;
            }
        }
        return true;
    }
    /// Writes a record that there is room for; it is not visible yet. When the payload's move
    /// throws, nothing was written.
    void write(std::uint64_t offset, log_input& in, time_point timestamp) {
        record* const r = prepare(offset, timestamp);
        if (in.payload != nullptr) {
            ops_.relocate(payload_of(*r), in.payload);
            in.payload = nullptr;
        } else {
            ::new (payload_of(*r)) time_point{never};
            r->flags.store(record::tombstone_flag, std::memory_order_relaxed);
        }
        r->key = in.key ? keys_.store(*in.key) : nullptr;
        r->props = in.props.release();
        has_props_ = has_props_ || r->props != nullptr;
        ++written_;
    }
    /// Ends what was written since the last `publish`.
    void withdraw() noexcept {
        while (written_ != published_.load(std::memory_order_relaxed)) {
            end_payload(*at(--written_));
        }
    }
    /// Makes visible what was written. No record counts as younger than `at_most` for retention.
    void publish(time_point at_most) noexcept {
        for (auto i = published_.load(std::memory_order_relaxed); i < written_; ++i) {
            record& r = *at(i);
            const std::size_t bytes = bytes_of(r);
            written_bytes_ += bytes;
            live_bytes_ += bytes;
            if (live_ == 0 || (!newest_is_stale_ && r.timestamp > newest_.timestamp)) {
                newest_ = {offset_of(r), r.timestamp};
                newest_is_stale_ = false;
            }
            ++live_;
            counts_from_ = std::max(counts_from_, std::min(r.timestamp, at_most));
            block* const b = block_of(i);
            b->newest = std::max(b->newest, r.timestamp);
            end_ = offset_of(r) + 1;
        }
        published_.store(written_, std::memory_order_release);
    }

    // With the lock held: removal

    /// Takes a record out of the log; readers that have it keep it. Its payload is ended unless
    /// there are readers. Returns what it counted. It must be part of the log.
    std::size_t remove(std::uint64_t i) noexcept {
        record& r = *at(i);
        RAILMQ_ASSERT(!r.is(record::removed_flag));
        const std::size_t bytes = bytes_of(r);
        forget(r, bytes);
        if (!is_pinned()) {
            end_payload(r);
        }
        return bytes;
    }
    /// Ends the payload of a record that was removed while there were readers, if there are none
    /// now.
    void sweep(record& r) noexcept {
        if (!r.is(record::absent_flag) && !is_pinned()) {
            end_payload(r);
        }
    }
    /// Moves a record of a segment that nobody reads to the end of this one, where there is room
    /// for it, and publishes it. When the payload's move throws, nothing has changed.
    void take_from(log_segment& from, std::uint64_t i) {
        RAILMQ_ASSERT(!from.is_pinned());
        record& old = *from.at(i);
        const std::size_t bytes = from.bytes_of(old);
        record* const r = prepare(from.offset_of(old), old.timestamp);
        if (old.is(record::tombstone_flag)) {
            ::new (payload_of(*r)) time_point{from.horizon(old)};
            r->flags.store(record::tombstone_flag, std::memory_order_relaxed);
        } else {
            ops_.relocate(payload_of(*r), from.payload_of(old));
        }
        r->key = old.key == nullptr ? nullptr : keys_.store(key_of(old));
        r->props = std::exchange(old.props, nullptr);
        has_props_ = has_props_ || r->props != nullptr;
        ++written_;
        publish(from.counts_from_);
        from.forget(old, bytes);
        old.flags.fetch_or(record::absent_flag, std::memory_order_relaxed);
    }
    /// When a tombstone may go: `never` until compaction has found it.
    [[nodiscard]] time_point horizon(record& tombstone) const noexcept {
        return *std::launder(static_cast<time_point*>(payload_of(tombstone)));
    }
    void set_horizon(record& tombstone, time_point t) noexcept {
        *std::launder(static_cast<time_point*>(payload_of(tombstone))) = t;
    }

    /// Whether it is in a partition's list; for the partition.
    bool linked = false;

private:
    log_segment(
        const payload_ops& ops,
        const log_layout& layout,
        memory_budget<Sync>& budget,
        std::uint64_t base) noexcept
        : ops_{ops}
        , layout_{layout}
        , budget_{budget}
        , base_{base}
        , end_{base}
        , keys_{budget} {}
    ~log_segment() {
        if (ops_.destroy != nullptr || has_props_) { // else there is nothing to end
            for (std::uint64_t i = 0; i < written_; ++i) {
                end_payload(*at(i));
            }
        }
        for (block* b : blocks_) {
            std::destroy_at(b);
            ::operator delete (static_cast<void*>(b), std::align_val_t{alignof(block)});
        }
        budget_.release(sizeof(log_segment) + blocks_.size() * block_bytes());
    }

    [[nodiscard]] record* prepare(std::uint64_t offset, time_point timestamp) noexcept {
        RAILMQ_ASSERT(offset - base_ <= max_relative);
        record* const r = ::new (static_cast<void*>(at(written_))) record{};
        r->relative = static_cast<std::uint32_t>(offset - base_);
        r->timestamp = timestamp;
        return r;
    }
    void forget(record& r, std::size_t bytes) noexcept {
        --live_;
        live_bytes_ -= bytes;
        newest_is_stale_ = newest_is_stale_ || offset_of(r) == newest_.offset;
        r.flags.fetch_or(record::removed_flag, std::memory_order_relaxed);
    }
    void end_payload(record& r) noexcept {
        if (r.is(record::absent_flag)) {
            return;
        }
        if (!r.is(record::tombstone_flag) && ops_.destroy != nullptr) {
            ops_.destroy(payload_of(r));
        }
        delete std::exchange(r.props, nullptr);
        r.flags.fetch_or(record::absent_flag, std::memory_order_relaxed);
    }

    [[nodiscard]] std::size_t block_bytes() const noexcept {
        return sizeof(block) + std::size_t{layout_.stride} * layout_.capacity;
    }
    [[nodiscard]] bool add_block(bool force) noexcept {
        if (force) {
            budget_.charge(block_bytes());
        } else if (!budget_.try_charge(block_bytes())) {
            return false;
        }
        void* const raw =
            ::operator new (block_bytes(), std::align_val_t{alignof(block)}, std::nothrow);
        if (raw == nullptr) {
            budget_.release(block_bytes());
            return false;
        }
        block* const made = ::new (raw) block{};
        if (!blocks_.empty()) {
            made->newest = blocks_.back()->newest;
            // Released: a reader finds the next block by what its own says.
            blocks_.back()->next.store(made, std::memory_order_release);
        }
        blocks_.push_back(made); // there is room
        return true;
    }

    const payload_ops& ops_;
    const log_layout layout_;
    memory_budget<Sync>& budget_;
    const std::uint64_t base_;
    alignas(64) atomic<std::uint64_t> references_{1};
    alignas(64) atomic<std::uint64_t> published_{0};
    std::uint64_t written_ = 0;
    std::uint64_t end_;
    std::uint64_t live_ = 0;
    std::size_t live_bytes_ = 0;
    std::size_t written_bytes_ = 0;
    time_point counts_from_ = time_point::min();
    dated newest_{};
    bool newest_is_stale_ = false;
    bool has_props_ = false;
    std::vector<block*> blocks_{};
    key_arena<Sync> keys_;
};

/// Keeps a segment and what was read from it. Moving it costs nothing; `share` makes another.
///
/// Thread safety: distinct objects are safe, even of one segment. Made with the partition's lock
/// held; shared and ended without it. Must not outlive the memory budget.
template <class Sync>
class log_pin {
public:
    log_pin() noexcept = default;
    /// Takes over a reference that the caller has.
    [[nodiscard]] static log_pin adopt(log_segment<Sync>* s) noexcept { return log_pin{s}; }
    /// Takes a reference of its own.
    [[nodiscard]] static log_pin of(log_segment<Sync>* s) noexcept {
        s->retain();
        return log_pin{s};
    }
    log_pin(log_pin&& other) noexcept
        : segment_{std::exchange(other.segment_, nullptr)} {}
    log_pin& operator=(log_pin&& other) noexcept {
        log_pin gone{std::move(other)};
        std::swap(segment_, gone.segment_);
        return *this;
    }
    ~log_pin() {
        if (segment_ != nullptr) {
            segment_->release();
        }
    }

    [[nodiscard]] log_pin share() const noexcept {
        return segment_ == nullptr ? log_pin{} : of(segment_);
    }
    [[nodiscard]] log_segment<Sync>* get() const noexcept { return segment_; }
    [[nodiscard]] explicit operator bool() const noexcept { return segment_ != nullptr; }
    void reset() noexcept { log_pin gone{std::move(*this)}; }

private:
    explicit log_pin(log_segment<Sync>* s) noexcept
        : segment_{s} {}

    log_segment<Sync>* segment_ = nullptr;
};

} // namespace railmq::core
