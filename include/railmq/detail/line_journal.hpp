// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/compaction.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/core/producer_states.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/kept_logs.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/log_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::detail {

/// Where a round of the upkeep is in a log.
struct log_listing {
    enum class part_type : unsigned char { definition, groups, partitions, done };

    part_type part = part_type::definition;
    std::uint32_t partition = 0;
    bool is_within = false; ///< The partition: what it is was written.
    std::uint64_t from = 0;
    std::string group{}; ///< The last one that was written.

    [[nodiscard]] bool is_done() const noexcept { return part == part_type::done; }
};

/// A partition's part of the broker's journal: writes what is appended and what has left, and knows
/// where the records are stored.
///
/// Whatever could not be written stays to be said, and is tried again with the next change: until
/// then it is as if it had not happened, as far as the journal knows.
///
/// Thread safety: with the partition's lock held.
template <class Runtime>
class line_journal {
public:
    using partition_type = core::partition<Runtime>;
    using compaction_type = core::compaction<Runtime>;

    line_journal(std::shared_ptr<storage::broker_journal> to, storage::log_place where) noexcept
        : journal_{std::move(to)}
        , where_{where} {}

    [[nodiscard]] storage::broker_journal& journal() const noexcept { return *journal_; }

    /// Records are appended, `encoded` one behind the other, from `first` on at `now`. Returns
    /// the number of the record of the journal, or 0 and `failed`: `not_found` when the log was
    /// deleted, or an error of the journal. Throws `std::bad_alloc`; then nothing has changed.
    std::uint64_t append(
        std::uint64_t first,
        std::size_t count,
        std::span<const std::byte> encoded,
        time_point now,
        const std::optional<core::producer_batch>& producer,
        errc& failed) {
        if (is_deleted_) {
            failed = errc::not_found;
            return 0;
        }
        record_.clear();
        put_append(first, count, encoded, now, producer, record_);
        error_code ec;
        if (!journal_->port().has_room(record_.size(), ec)) {
            failed = static_cast<errc>(ec.value());
            return 0;
        }
        prepare_append();
        storage::record_location at;
        const std::uint64_t number = journal_->append(record_, at, ec);
        if (number == 0) {
            failed = static_cast<errc>(ec.value());
            return 0;
        }
        was_appended(first, count, {at, static_cast<std::uint32_t>(record_.size())});
        return number;
    }

    // The same as a part of another's record

    /// Throws `std::bad_alloc`.
    void put_append(
        std::uint64_t first,
        std::size_t count,
        std::span<const std::byte> encoded,
        time_point now,
        const std::optional<core::producer_batch>& producer,
        std::vector<std::byte>& record) const {
        std::optional<storage::run_producer> by;
        if (producer) {
            by = storage::run_producer{
                producer->producer,
                producer->epoch,
                producer->first_sequence,
                core::sequence_after(
                    producer->first_sequence, static_cast<std::uint32_t>(count) - 1)};
        }
        storage::log_entry_writer w{record, journal_->wall()};
        w.run(where_, first, count, now, by);
        w.records(encoded);
    }
    /// Throws `std::bad_alloc`; after it `was_appended` cannot fail.
    void prepare_append() {
        rows_.reserve(1);
        usage_.reserve(4);
        journal_->reserve_usage();
    }
    /// That is written there.
    void was_appended(std::uint64_t first, std::size_t count, const storage::kept_at& at) noexcept {
        rows_.put(first, count, at, [](auto&&...) {});
        storage::count_usage(usage_, at, 1);
        journal_->change_usage(usage_);
        usage_.clear();
    }

    /// Numbers were given up to there, and nothing was stored, since nobody will read it.
    void was_passed(std::uint64_t end) noexcept { passed_ = end; }

    /// Where records lie that a queue has made messages of, for as long as these are there: each
    /// place is wanted by one more from now on. Empty for one that has left. Throws
    /// `std::bad_alloc`; then none is.
    void pin(std::span<const std::uint64_t> offsets, std::span<storage::kept_at> out) {
        usage_.clear();
        usage_.reserve(offsets.size());
        for (std::size_t i = 0; i != offsets.size(); ++i) {
            out[i] = {};
            rows_.for_each_from(offsets[i], [&](std::uint64_t first, const auto& row) {
                if (first <= offsets[i]) {
                    const auto each = static_cast<std::uint32_t>(row.at.bytes() / row.count);
                    out[i] = {row.at.location(), each};
                    storage::count_usage(usage_, out[i], 1);
                }
                return false;
            });
        }
        journal_->change_usage(usage_);
        usage_.clear();
    }

    /// Writes what has changed otherwise since it was last asked. Returns the number of the record;
    /// 0: there was nothing to say, or `failed` says why it could not be.
    std::uint64_t say(const partition_type& p, compaction_type& c, errc& failed) {
        auto& done = c.done();
        const bool has_moved = p.start_offset() != said_.start ||
                               c.checkpoint() != said_.checkpoint || passed_ > said_.end;
        if (is_deleted_ || (!has_moved && done.is_empty())) {
            return 0;
        }
        record_.clear();
        storage::log_entry_writer w{record_, journal_->wall()};
        for (const auto& r : done.removed) {
            w.removed(where_, r.first, r.count);
        }
        for (const auto& h : done.horizons) {
            w.horizon(where_, h.offset, h.when);
        }
        const storage::kept_extent now = extent_of(p, c);
        if (has_moved) {
            w.partition(where_, now);
        }
        rows_.reserve(done.removed.size() + 1);
        std::map<std::uint64_t, time_point> found;
        for (const auto& h : done.horizons) {
            found.emplace(h.offset, h.when);
        }
        journal_->reserve_usage();
        storage::record_location at;
        error_code ec;
        const std::uint64_t number = journal_->append(record_, at, ec);
        if (number == 0) {
            failed = static_cast<errc>(ec.value());
            return 0;
        }
        horizons_.merge(found);
        for (const auto& r : done.removed) {
            take(r.first, r.count);
        }
        if (now.start != said_.start) {
            take(0, now.start);
        }
        done.removed.clear();
        done.horizons.clear();
        said_ = now;
        return number;
    }

    /// The log was deleted: what becomes of its records is nobody's concern any more.
    void forget() noexcept {
        take(0, storage::max_log_offset);
        horizons_.clear();
        is_deleted_ = true;
    }
    [[nodiscard]] bool is_deleted() const noexcept { return is_deleted_; }

    // Opening

    /// What was read of another life. Moments of horizons are the wall clock's.
    void restore(storage::kept_partition& from) noexcept {
        rows_ = std::move(from.rows);
        horizons_ = std::move(from.horizons);
        for (auto& [offset, when] : horizons_) {
            when = when == never ? never : saturating_add(when, -journal_->wall());
        }
        said_ = from.extent;
    }
    [[nodiscard]] const auto& horizons() const noexcept { return horizons_; }
    [[nodiscard]] const storage::log_rows& rows() const noexcept { return rows_; }
    /// What the journal knows of the ends.
    [[nodiscard]] const storage::kept_extent& said() const noexcept { return said_; }
    /// The entry that says that a record is gone, as part of another's record; `was_removed` when
    /// that is written.
    void put_removed(std::uint64_t offset, std::vector<std::byte>& record) const {
        storage::log_entry_writer{record, journal_->wall()}.removed(where_, offset, 1);
    }
    /// Throws `std::bad_alloc`.
    void prepare_removal() {
        rows_.reserve(1);
        journal_->reserve_usage();
    }
    void was_removed(std::uint64_t offset) noexcept { take(offset, 1); }

    // Upkeep: what the journal says is said again, so that what said it before can go

    /// What the partition is, and what it remembers of producers.
    void put_state(
        const partition_type& p,
        const compaction_type& c,
        const core::producer_states& producers,
        std::vector<std::byte>& record) const {
        storage::log_entry_writer w{record, journal_->wall()};
        storage::kept_extent e = extent_of(p, c);
        e.start = said_.start; // what could not be said yet is said with the next change
        w.partition(where_, e);
        producers.for_each([&](const core::producer_image& one) {
            w.producer(where_, one);
            return true;
        });
    }
    /// At most `max` rows, from that offset on. Returns where to go on; the end of all offsets,
    /// when there are no more.
    std::uint64_t
    put_rows(std::uint64_t from, std::size_t max, std::vector<std::byte>& record) const {
        return put_rows(where_, rows_, horizons_, from, max, journal_->wall(), record);
    }
    static std::uint64_t put_rows(
        storage::log_place where,
        const storage::log_rows& rows,
        const std::map<std::uint64_t, time_point>& horizons,
        std::uint64_t from,
        std::size_t max,
        duration wall,
        std::vector<std::byte>& record) {
        std::vector<std::pair<std::uint64_t, storage::log_rows::row>> listed;
        std::uint64_t to = storage::max_log_offset;
        rows.for_each_from(from, [&](std::uint64_t first, const storage::log_rows::row& r) {
            if (listed.size() == max) {
                to = first;
                return false;
            }
            listed.emplace_back(first, r);
            return true;
        });
        storage::log_entry_writer w{record, wall};
        w.rows(where, from, to, listed.size());
        for (const auto& [first, r] : listed) {
            w.row(first, r.count, r.at.location(), r.at.bytes());
        }
        for (auto it = horizons.lower_bound(from); it != horizons.end() && it->first < to; ++it) {
            w.horizon(where, it->first, it->second);
        }
        return to;
    }
    /// Stores anew what is there of a run that is stored at `from`. False: nothing is, or `ec` says
    /// why it could not be.
    bool store_again(
        const storage::log_run& run,
        storage::record_location from,
        std::vector<std::byte>& record,
        error_code& ec) {
        return !is_deleted_ && store_again(rows_, *journal_, run, from, record, ec);
    }
    static bool store_again(
        storage::log_rows& rows,
        storage::broker_journal& journal,
        const storage::log_run& run,
        storage::record_location from,
        std::vector<std::byte>& record,
        error_code& ec) {
        struct part {
            std::uint64_t first;
            std::uint64_t count;
            std::uint32_t bytes;
        };
        std::vector<part> parts;
        rows.for_each_from(run.first, [&](std::uint64_t first, const storage::log_rows::row& r) {
            if (first >= run.first + run.count) {
                return false;
            }
            if (r.at.location() == from && first >= run.first &&
                first + r.count <= run.first + run.count) {
                parts.push_back({first, r.count, 0});
            }
            return true;
        });
        if (parts.empty()) {
            return false;
        }
        record.clear();
        storage::log_entry_writer w{record, duration::zero()}; // all moments are the wall clock's
        auto p = parts.begin();
        std::size_t begin = 0;
        storage::for_each_record(
            run, duration::zero(), [&](std::uint64_t offset, const storage::log_run_record& one) {
                if (p == parts.end() || offset < p->first) {
                    return;
                }
                if (offset == p->first) {
                    begin = record.size();
                    w.run(run.where, p->first, p->count, run.appended);
                }
                w.records(one.all);
                if (offset == p->first + (p->count - 1)) {
                    p->bytes = static_cast<std::uint32_t>(record.size() - begin);
                    ++p;
                }
            });
        rows.reserve(parts.size());
        journal.reserve_usage();
        std::vector<storage::usage_change> usage;
        usage.reserve(2 * parts.size());
        storage::record_location at;
        if (journal.append(record, at, ec) == 0) {
            return false;
        }
        for (const part& one : parts) {
            const storage::kept_at now{at, one.bytes};
            rows.put(one.first, one.count, now, [&](const storage::kept_at& taken, int more) {
                storage::count_taken(usage, taken, more);
            });
            usage.push_back({now.segment(), std::int64_t{now.bytes()}, 1});
        }
        journal.change_usage(usage);
        return true;
    }

private:
    [[nodiscard]] static storage::kept_extent
    extent_of(const partition_type& p, const compaction_type& c) noexcept {
        return {p.start_offset(), p.end_offset(), std::min(c.checkpoint(), p.end_offset())};
    }
    void take(std::uint64_t first, std::uint64_t count) noexcept {
        rows_.remove(first, count, [&](const storage::kept_at& taken, int more) {
            const storage::usage_change one{
                taken.segment(), -std::int64_t{taken.bytes()}, std::int64_t{more}};
            journal_->change_usage(std::span{&one, 1});
        });
        horizons_.erase(horizons_.lower_bound(first), horizons_.lower_bound(first + count));
    }

    std::shared_ptr<storage::broker_journal> journal_;
    storage::log_place where_;
    storage::log_rows rows_{};
    std::map<std::uint64_t, time_point> horizons_{}; ///< Of tombstones.
    storage::kept_extent said_{};                    ///< As the journal knows it.
    std::uint64_t passed_ = 0;
    bool is_deleted_ = false;
    std::vector<std::byte> record_{}; ///< Kept for its room.
    std::vector<storage::usage_change> usage_{};
};

} // namespace railmq::detail
