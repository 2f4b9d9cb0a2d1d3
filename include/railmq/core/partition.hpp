// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/log_cursor.hpp>
#include <railmq/core/log_segment.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/core/producer_states.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace railmq::core {

/// Why a record left a log.
enum class log_removal : std::uint8_t {
    by_age,     ///< Retention: its segment was older than `max_age`.
    by_bytes,   ///< Retention: the log was larger than `max_bytes` without its segment.
    by_records, ///< Retention: the log had `max_records` without its segment.
    by_request, ///< `delete_records`.
    by_readers, ///< `release_read`: whoever wanted it has it.
    superseded, ///< Compaction: a later record has its key.
    expired,    ///< Compaction: a tombstone that was kept for as long as was asked.
};
inline constexpr std::size_t log_removal_count = 7;

/// Records and what they count.
struct log_amount {
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
    friend bool operator==(const log_amount&, const log_amount&) = default;
};

/// Conditions of an append.
struct append_terms {
    /// Refused with `sequence_out_of_order` unless the first record would get this offset.
    std::optional<std::uint64_t> expected_offset{};
    /// Numbers the records of an idempotent producer; `producer_batch::records` is not looked at.
    std::optional<producer_batch> producer{};
};

/// What became of an append.
struct append_result {
    errc failed{};          ///< Nothing was stored then.
    bool duplicate = false; ///< Stored before: nothing was stored now.
    std::uint64_t first_offset = 0;
};

template <class Sync>
class compaction;

/// One line of a log: records with dense offsets from 0 that can be read again and again, in
/// segments, of which the last one is written.
///
/// Rules, from Kafka (UnifiedLog, LogSegment) unless said otherwise. Offsets are never used twice.
/// Reading at an offset that is not there any more, in the middle, gives the next that is; below
/// the start or above the end it is `errc::offset_out_of_range`. Only whole segments go by
/// retention, from the oldest on, and never the one that is written: where all its records are too
/// old, an empty one is begun first.
///
/// Times are the caller's, `now` and records' alike, on one time line.
///
/// Thread safety: everything with the partition's lock held, but `ends()` and the cursors, which
/// need none. Memory of segments that are gone is freed by whoever ends the last pin; functions
/// that take segments out hand them to the caller in `gone`, to be ended without the lock.
template <class Sync>
class partition {
public:
    using segment_type = log_segment<Sync>;
    using pin_type = log_pin<Sync>;
    using cursor_type = log_cursor<Sync>;
    using dated = typename segment_type::dated;

    /// What a removal did.
    struct removal {
        errc failed{};
        std::size_t segments = 0;
        log_amount amount{};
        std::vector<pin_type> gone{}; ///< End it without the lock.
    };

    /// An empty partition whose first record gets `first_offset`. `o` is valid. Throws
    /// `std::bad_alloc`.
    partition(
        const payload_ops& ops,
        memory_budget<Sync>& budget,
        const log_options& o,
        std::uint64_t first_offset = 0)
        : ops_{ops}
        , budget_{budget}
        , options_{o}
        , layout_{ops, std::min(o.segment_records, o.segment_bytes / log_record_overhead)}
        , producers_{o.producer_expiry} {
        ends_.start.store(first_offset, std::memory_order_relaxed);
        ends_.end.store(first_offset, std::memory_order_relaxed);
        segments_.reserve(8);
        insert(0, make_segment(first_offset));
    }
    partition(const partition&) = delete;
    partition& operator=(const partition&) = delete;
    ~partition() {
        for (segment_type* s : segments_) {
            s->release();
        }
    }

    // Appending

    /// Appends records as one: they are seen together, in one segment, or nothing is stored.
    /// Payloads are moved from where they lie, and ended there, only when they are stored.
    ///
    /// Fails with `sequence_out_of_order` (a producer's numbers, or `expected_offset`), `fenced`,
    /// `invalid_argument` (no key: of a tombstone, or in a log that is compacted) and
    /// `memory_limit`. Throws what a payload's move throws, and `std::bad_alloc`; nothing was
    /// stored then, but payloads that were moved before the one that threw are lost.
    append_result
    append(std::span<log_input> records, time_point now, const append_terms& terms = {}) {
        return append(records, now, terms, [](std::uint64_t) { return errc{}; });
    }
    /// The same for records that are kept elsewhere as well: `keep(first_offset)` does that when
    /// nothing else can fail any more, and before anybody sees them. What it fails with, this fails
    /// with, and nothing was stored.
    template <class Keep>
    append_result
    append(std::span<log_input> records, time_point now, const append_terms& terms, Keep&& keep) {
        planned_append p = plan(records, now, terms);
        if (!p) {
            return p.result;
        }
        try {
            fill(p, records, now);
            if (const errc e = keep(p.result.first_offset); e != errc{}) {
                withdraw(p);
                return {e};
            }
        } catch (...) {
            withdraw(p);
            throw;
        }
        publish(p, now);
        return p.result;
    }

    // The same in steps, for what has to happen as one with something else: `plan` says whether it
    // can be done, `fill` moves the payloads in, and `publish` shows them, or `withdraw` ends them.
    // No other append may come between; a plan that is dropped has changed nothing.

    /// An append that nothing stands in the way of. False: there is nothing to do, as `result`
    /// says.
    struct planned_append {
        append_result result{};
        segment_type* to = nullptr;
        pin_type next{}; ///< The segment it begins, if it does.
        std::optional<producer_batch> batch{};

        [[nodiscard]] explicit operator bool() const noexcept { return to != nullptr; }
    };
    /// Fails as `append`; throws `std::bad_alloc`. Looks at payloads, and leaves them where they
    /// are.
    [[nodiscard]] planned_append
    plan(std::span<const log_input> records, time_point now, const append_terms& terms) {
        const std::uint64_t first = end_offset();
        const measures m = measure(records, now);
        planned_append p;
        if (!m.have_keys) {
            p.result = {errc::invalid_argument};
            return p;
        }
        p.batch = terms.producer;
        if (p.batch) {
            p.batch->records =
                static_cast<std::uint32_t>(std::min<std::size_t>(records.size(), 0xffffffff));
            const auto v = producers_.check(*p.batch, now);
            if (v.failed != errc{} || v.duplicate) {
                p.result = {v.failed, v.duplicate, v.offset};
                return p;
            }
        }
        // After the look for duplicates: what is sent again has the old expectation.
        if (terms.expected_offset && *terms.expected_offset != first) {
            p.result = {errc::sequence_out_of_order};
            return p;
        }
        p.result = {errc{}, false, first};
        if (records.empty()) {
            return p;
        }
        if (p.batch) {
            producers_.reserve(*p.batch);
        }
        if (must_roll(records.size(), m)) {
            make_place(segments_);
            p.next = pin_type::adopt(make_segment(first));
        }
        segment_type& to = p.next ? *p.next.get() : active();
        if (!to.reserve(records.size(), m.key_bytes)) {
            p.result = {errc::memory_limit};
            return p;
        }
        p.to = &to;
        return p;
    }
    /// Throws what a payload's move throws; then it is to be withdrawn.
    void fill(planned_append& p, std::span<log_input> records, time_point now) {
        std::uint64_t offset = p.result.first_offset;
        for (log_input& in : records) {
            p.to->write(offset++, in, time_of(in, now));
        }
    }
    void withdraw(planned_append& p) noexcept { p.to->withdraw(); }
    void publish(planned_append& p, time_point now) noexcept {
        segment_type& to = *p.to;
        const std::size_t before = to.live_bytes();
        const std::uint64_t records = to.written() - to.published();
        to.publish(now);
        pin_type unused{};
        if (p.next) {
            if (active().written() == 0) {
                unused = unlink(segments_.size() - 1);
            }
            p.next.get()->retain();
            insert(segments_.size(), p.next.get());
        }
        records_ += records;
        bytes_ += to.live_bytes() - before;
        appended_.records += records;
        appended_.bytes += to.live_bytes() - before;
        ends_.end.store(p.result.first_offset + records, std::memory_order_release);
        if (p.batch) {
            producers_.record(*p.batch, p.result.first_offset, now);
        }
    }
    append_result append(log_input record, time_point now, const append_terms& terms = {}) {
        return append(std::span{&record, 1}, now, terms);
    }

    /// Appends records that nobody will read to a partition without any: they get offsets, and that
    /// is all. Payloads stay with the caller.
    append_result pass(std::span<const log_input> records) noexcept {
        const std::uint64_t first = end_offset();
        appended_.records += records.size();
        removed_[static_cast<std::size_t>(log_removal::by_readers)].records += records.size();
        (void)skip_to(first + records.size());
        return {errc{}, false, first};
    }

    /// Puts back records of an earlier life, which had offsets from `first` on and were appended at
    /// `appended_at`. Offsets that are left out stay without a record. Fails as `append`, and with
    /// `offset_out_of_range` below the end.
    append_result
    restore(std::span<log_input> records, std::uint64_t first, time_point appended_at) {
        const std::uint64_t before = end_offset();
        if (first < before) {
            return {errc::offset_out_of_range};
        }
        ends_.end.store(first, std::memory_order_release);
        append_result r{errc::memory_limit};
        try {
            r = append(records, appended_at);
        } catch (...) {
            ends_.end.store(before, std::memory_order_release);
            throw;
        }
        if (r.failed != errc{}) {
            ends_.end.store(before, std::memory_order_release);
        } else if (first != before) {
            dense_from_ = first;
        }
        return r;
    }

    /// Leaves the offsets up to `offset` unused: the next record gets that one.
    /// `offset_out_of_range` when the log is longer already.
    [[nodiscard]] errc skip_to(std::uint64_t offset) noexcept {
        if (offset < end_offset()) {
            return errc::offset_out_of_range;
        }
        if (offset != end_offset()) {
            dense_from_ = offset;
        }
        if (records_ == 0) {
            ends_.start.store(offset, std::memory_order_release);
        }
        ends_.end.store(offset, std::memory_order_release);
        return errc{};
    }

    /// Closes the segment that is written and begins an empty one, unless it is empty itself.
    /// False: it was. Throws `std::bad_alloc`.
    bool roll() {
        if (active().written() == 0) {
            return false;
        }
        make_place(segments_);
        insert(segments_.size(), make_segment(end_offset()));
        return true;
    }

    // Reading

    [[nodiscard]] const log_ends<Sync>& ends() const noexcept { return ends_; }
    [[nodiscard]] std::uint64_t start_offset() const noexcept {
        return ends_.start.load(std::memory_order_acquire);
    }
    [[nodiscard]] std::uint64_t end_offset() const noexcept {
        return ends_.end.load(std::memory_order_acquire);
    }

    /// Puts a cursor where `offset` is read next; the end is a place too.
    [[nodiscard]] errc seek(cursor_type& c, std::uint64_t offset) const noexcept {
        if (offset < start_offset() || offset > end_offset()) {
            return errc::offset_out_of_range;
        }
        for (std::size_t k = segment_of(offset); k < segments_.size(); ++k) {
            segment_type& s = *segments_[k];
            const std::uint64_t i = s.next_live(s.index_of(offset));
            if (i != s.written()) {
                c.place(ends_, &s, i, offset);
                return errc{};
            }
        }
        // Nothing left from there on: what comes is next.
        c.place(ends_, segments_.back(), segments_.back()->written(), end_offset());
        return errc{};
    }
    /// Takes a cursor on to the segment where its position is; after `read_status::elsewhere`.
    [[nodiscard]] errc enter(cursor_type& c) const noexcept { return seek(c, c.position()); }

    /// The first record whose time is not before `t`; none when all are older. Cost: the
    /// segments, then logarithmic in one of them.
    [[nodiscard]] std::optional<dated> offset_for_time(time_point t) const noexcept {
        for (segment_type* s : segments_) {
            if (const auto newest = s->newest(); newest && newest->timestamp >= t) {
                return s->first_since(t);
            }
        }
        return std::nullopt;
    }
    /// The first of the records that have the latest time.
    [[nodiscard]] std::optional<dated> newest() const noexcept {
        std::optional<dated> best;
        for (segment_type* s : segments_) {
            const auto d = s->newest();
            if (d && (!best || d->timestamp > best->timestamp)) {
                best = d;
            }
        }
        return best;
    }

    // Removal

    /// Removes every record below `up_to`; what was removed before may be named again.
    /// `offset_out_of_range` above the end. Cost: the segments, and the records of one of them.
    [[nodiscard]] removal delete_records(std::uint64_t up_to) {
        removal r;
        if (up_to > end_offset()) {
            r.failed = errc::offset_out_of_range;
            return r;
        }
        if (up_to <= start_offset()) {
            return r;
        }
        prepare(r);
        if (up_to >= active().end()) {
            roll(); // so that its memory goes as well
        }
        raise_start(up_to);
        drop_below_start(r);
        segment_type& s = *segments_.front();
        const std::uint64_t end = s.index_of(up_to);
        for (std::uint64_t i = s.next_live(0); i < end; i = s.next_live(i + 1)) {
            const log_amount one{1, s.remove(i)};
            take(log_removal::by_request, one);
            add(r.amount, one);
        }
        return r;
    }

    /// Removes segments that `log_options::retention` does not ask for any more, from the oldest
    /// on, up to the first that must stay. A second call at the same time removes nothing.
    /// Throws `std::bad_alloc`, and then may have removed something.
    [[nodiscard]] removal apply_retention(time_point now) {
        removal r;
        prepare(r);
        drop_below_start(r);
        if (options_.cleanup == log_cleanup::compact) {
            return r;
        }
        while (const auto why = may_go(*segments_.front(), now)) {
            if (segments_.size() == 1) {
                roll();
            }
            segment_type& s = *segments_.front();
            raise_start(std::max(s.end(), segments_[1]->base()));
            drop_first(r, *why);
        }
        return r;
    }

    /// Removes segments whose records are all below `read_through`, from the oldest on; with
    /// `keeps_history`, up to the first that retention keeps. The one that is written goes when it
    /// has been read and has `worth_it` records, so that few are made. Throws `std::bad_alloc`, and
    /// then may have removed something.
    [[nodiscard]] removal release_read(
        std::uint64_t read_through, bool keeps_history, std::uint64_t worth_it, time_point now) {
        removal r;
        prepare(r);
        drop_below_start(r);
        for (;;) {
            segment_type& s = *segments_.front();
            const bool is_active = segments_.size() == 1;
            const std::uint64_t end =
                is_active ? end_offset() : std::max(s.end(), segments_[1]->base());
            if (end > read_through || (is_active && s.written() < worth_it) ||
                (keeps_history && !may_go(s, now))) {
                return r;
            }
            if (is_active) {
                roll();
            }
            raise_start(end);
            drop_first(r, log_removal::by_readers);
        }
    }

    // What there is

    /// From there on no offset was left out; what was removed is another matter.
    [[nodiscard]] std::uint64_t dense_from() const noexcept { return dense_from_; }
    [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
    /// What these count: payload, key, headers and `log_record_overhead` each.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t segments() const noexcept { return segments_.size(); }
    [[nodiscard]] const segment_type& segment(std::size_t i) const noexcept {
        return *segments_[i];
    }
    /// What all segments take of the memory budget, but for those that only readers still have.
    [[nodiscard]] std::size_t memory_bytes() const noexcept {
        std::size_t n = 0;
        for (const segment_type* s : segments_) {
            n += s->memory_bytes();
        }
        return n;
    }
    /// All that was ever appended: what is there, and what was removed for any reason.
    [[nodiscard]] log_amount appended() const noexcept { return appended_; }
    [[nodiscard]] log_amount removed(log_removal why) const noexcept {
        return removed_[static_cast<std::size_t>(why)];
    }
    [[nodiscard]] producer_states& producers() noexcept { return producers_; }
    [[nodiscard]] const log_options& options() const noexcept { return options_; }

private:
    friend class compaction<Sync>;

    [[nodiscard]] segment_type& active() const noexcept { return *segments_.back(); }
    [[nodiscard]] segment_type* make_segment(std::uint64_t base) const {
        return segment_type::make(ops_, layout_, budget_, base);
    }
    /// Room for one more; by doubling, so that many cost little.
    template <class T>
    static void make_place(std::vector<T>& v) {
        if (v.size() == v.capacity()) {
            v.reserve(std::max<std::size_t>(4, 2 * v.size()));
        }
    }
    /// Takes over the reference. There is room in the list.
    void insert(std::size_t k, segment_type* s) noexcept {
        s->linked = true;
        segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(k), s);
    }
    /// Takes it out of the list, which gives up its reference.
    [[nodiscard]] pin_type unlink(std::size_t k) noexcept {
        segment_type* const s = segments_[k];
        s->linked = false;
        segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(k));
        return pin_type::adopt(s);
    }
    /// The first segment that may have a record from `offset` on.
    [[nodiscard]] std::size_t segment_of(std::uint64_t offset) const noexcept {
        return static_cast<std::size_t>(
            std::partition_point(
                segments_.begin(),
                segments_.end(),
                [offset](const segment_type* s) { return s->end() <= offset; }) -
            segments_.begin());
    }

    [[nodiscard]] time_point time_of(const log_input& in, time_point now) const noexcept {
        return options_.timestamps == log_timestamps::append ? now : in.timestamp.value_or(now);
    }
    /// What is to be known of records before they are stored.
    struct measures {
        bool have_keys = true;
        std::size_t bytes = 0;
        std::size_t key_bytes = 0; ///< In the arena.
        time_point newest = time_point::min();
    };
    [[nodiscard]] measures
    measure(std::span<const log_input> records, time_point now) const noexcept {
        const bool all_need_keys = options_.cleanup != log_cleanup::remove;
        measures m;
        for (const log_input& in : records) {
            const bool is_tombstone = in.payload == nullptr;
            const std::size_t key = in.key ? in.key->size() : 0;
            if (in.key) {
                m.key_bytes += key_arena<Sync>::bytes_of(*in.key);
            }
            m.have_keys = m.have_keys && key <= key_arena<Sync>::max_key_bytes &&
                          (in.key || (!all_need_keys && !is_tombstone));
            m.bytes += segment_type::bytes_of(
                key, is_tombstone ? 0 : ops_.bytes(in.payload), in.props.get());
            m.newest = std::max(m.newest, time_of(in, now));
        }
        return m;
    }
    /// Kafka's `LogSegment.shouldRoll`. The age is what lies between the records' times.
    [[nodiscard]] bool must_roll(std::size_t records, const measures& m) const noexcept {
        const segment_type& s = active();
        if (s.written() == 0) {
            // An empty one is as good as a new one, unless the offsets were skipped.
            return end_offset() + records - 1 - s.base() > segment_type::max_relative;
        }
        return s.written_bytes() + m.bytes > options_.segment_bytes ||
               s.written() + records > options_.segment_records ||
               m.newest > saturating_add(s.first_timestamp(), options_.segment_age) ||
               end_offset() + records - 1 - s.base() > segment_type::max_relative;
    }

    /// Why retention lets the oldest segment go, if it does.
    [[nodiscard]] std::optional<log_removal>
    may_go(segment_type& s, time_point now) const noexcept {
        const log_retention& keep = options_.retention;
        const bool is_active = segments_.size() == 1;
        if (s.written() == 0) {
            return std::nullopt; // only the active one is
        }
        // Strictly older: exactly as old as the limit, it stays.
        if (keep.max_age && saturating_add(s.counts_from(), *keep.max_age) < now) {
            return log_removal::by_age;
        }
        // Only while what is left is not below the limit.
        if (!is_active && bytes_ >= keep.max_bytes && bytes_ - keep.max_bytes >= s.live_bytes()) {
            return log_removal::by_bytes;
        }
        if (!is_active && records_ >= keep.max_records && records_ - keep.max_records >= s.live()) {
            return log_removal::by_records;
        }
        return std::nullopt;
    }

    void prepare(removal& r) { r.gone.reserve(segments_.size()); }
    void raise_start(std::uint64_t offset) noexcept {
        if (offset > start_offset()) {
            ends_.start.store(offset, std::memory_order_release);
        }
    }
    void drop_below_start(removal& r) noexcept {
        while (segments_.size() > 1 && segments_.front()->end() <= start_offset()) {
            drop_first(r, log_removal::by_request);
        }
    }
    void drop_first(removal& r, log_removal why) noexcept {
        const segment_type& s = *segments_.front();
        const log_amount amount{s.live(), s.live_bytes()};
        take(why, amount);
        add(r.amount, amount);
        ++r.segments;
        r.gone.push_back(unlink(0)); // there is room
    }
    /// Writes down that records have left.
    void take(log_removal why, log_amount amount) noexcept {
        records_ -= amount.records;
        bytes_ -= amount.bytes;
        add(removed_[static_cast<std::size_t>(why)], amount);
    }
    static void add(log_amount& sum, log_amount amount) noexcept {
        sum.records += amount.records;
        sum.bytes += amount.bytes;
    }

    const payload_ops& ops_;
    memory_budget<Sync>& budget_;
    const log_options options_;
    const log_layout layout_;
    log_ends<Sync> ends_{};
    /// By their ends, which rise; the last one is written, and may be empty.
    std::vector<segment_type*> segments_{};
    std::uint64_t records_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint64_t dense_from_ = 0;
    log_amount appended_{};
    std::array<log_amount, log_removal_count> removed_{};
    producer_states producers_;
};

} // namespace railmq::core
