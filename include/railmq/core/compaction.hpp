// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/key_arena.hpp>
#include <railmq/core/log_segment.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/time.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// What a pass of compaction is at.
enum class compaction_phase : std::uint8_t {
    idle,    ///< Between two passes.
    collect, ///< Noting the last offset of each key among the records not compacted yet.
    sweep,   ///< Removing what these supersede, from the log's start on.
    merge,   ///< Bringing what is left of several segments together, and freeing theirs.
};

/// Keeps the last record of each key of one partition, in steps of bounded length.
///
/// Rules, from Kafka (LogCleaner). A pass covers the records from the *checkpoint*, where the last
/// one ended, to the segment that is written, or to the first one that has a record younger than
/// `min_compaction_lag`; or as far as the keys fit into `compaction_keys`. Of all records before
/// that, those go whose key has a later one there. Order and offsets stay. A tombstone stays until
/// `tombstone_retention` after the first pass that found it; by then nothing older of its key is
/// left. What a reader sees between two steps is what it may see after the pass, or before it.
///
/// Readers. A removed record is marked, and read no more; whoever has a pin on its segment keeps
/// it. Payloads of a segment are ended, or moved into another segment, only while nobody has a pin
/// on it; so they need not be copyable, and what somebody reads is never moved. A segment that is
/// pinned is left as it is, and a later pass merges it. Between two steps every record is in
/// exactly one segment, so a move can be interrupted anywhere.
///
/// Thread safety: with the partition's lock held, like the partition, which must outlive it.
template <class Sync>
class compaction {
public:
    /// What one step did.
    struct step_result {
        std::uint64_t examined = 0; ///< Records looked at: at most the step's budget.
        std::uint64_t removed = 0;  ///< Of these, superseded or expired.
        std::uint64_t moved = 0;    ///< Moved into another segment.
        bool finished = false;      ///< A pass has ended, or there is nothing to do.
        /// `memory_limit`: not even one key fits. The pass is given up.
        errc failed{};
        std::vector<log_pin<Sync>> gone{}; ///< Segments taken out; end it without the lock.
    };

    /// What steps have done to records, for those who keep it elsewhere as well.
    struct account {
        struct run {
            std::uint64_t first = 0;
            std::uint64_t count = 0;
        };
        struct horizon {
            std::uint64_t offset = 0;
            time_point when{};
        };
        std::vector<run> removed{};
        std::vector<horizon> horizons{}; ///< When tombstones may go, that were found.

        [[nodiscard]] bool is_empty() const noexcept { return removed.empty() && horizons.empty(); }
    };

    explicit compaction(partition<Sync>& p) noexcept
        : partition_{p}
        , budget_{p.budget_}
        , keys_{p.budget_} {}
    compaction(const compaction&) = delete;
    compaction& operator=(const compaction&) = delete;
    ~compaction() { forget_keys(); }

    /// Looks at up to `budget` records, at least 1, and at no more segments than there are. Begins
    /// a pass when none is under way, whether or not one is due. Throws `std::bad_alloc`; whatever
    /// was done is done, the pass goes on with the next step.
    [[nodiscard]] step_result step(std::uint64_t budget, time_point now) {
        step_result r;
        left_ = std::max<std::uint64_t>(budget, 1);
        const std::uint64_t all = left_;
        if (phase_ == compaction_phase::idle && !begin(now)) {
            r.finished = true;
            return r;
        }
        if (phase_ == compaction_phase::collect) {
            collect(r);
        }
        if (phase_ == compaction_phase::sweep) {
            sweep(r, now);
        }
        if (phase_ == compaction_phase::merge) {
            merge(r);
        }
        r.examined = all - left_;
        return r;
    }

    /// Whether a pass is worth its while: at least `min_dirty_ratio` of what can be compacted was
    /// not yet, or a tombstone may go. Cost: the segments.
    [[nodiscard]] bool due(time_point now) const noexcept {
        if (partition_.options_.cleanup == log_cleanup::remove) {
            return false;
        }
        if (phase_ != compaction_phase::idle || next_horizon_ <= now) {
            return true;
        }
        const std::uint64_t limit = first_uncleanable(now);
        std::uint64_t dirty = 0;
        std::uint64_t total = 0;
        for (const auto* s : partition_.segments_) {
            if (s->end() <= limit) {
                total += s->live_bytes();
                dirty += s->end() > checkpoint_ ? s->live_bytes() : 0;
            }
        }
        return dirty != 0 && static_cast<double>(dirty) >=
                                 partition_.options_.min_dirty_ratio * static_cast<double>(total);
    }

    /// From now on keeps an account of what is done, until somebody clears it.
    void keep_account() noexcept { keeps_account_ = true; }
    [[nodiscard]] account& done() noexcept { return done_; }

    [[nodiscard]] compaction_phase phase() const noexcept { return phase_; }
    /// Everything before it was covered by a pass that has ended.
    [[nodiscard]] std::uint64_t checkpoint() const noexcept { return checkpoint_; }
    /// For a partition that was compacted in another life. Only between two passes. One outside
    /// of the log is corrected to its start when a pass begins.
    void set_checkpoint(std::uint64_t offset) noexcept {
        RAILMQ_ASSERT(phase_ == compaction_phase::idle);
        checkpoint_ = offset;
    }
    /// When a tombstone may go that an earlier life has found; one that is not there is passed
    /// over.
    void restore_horizon(std::uint64_t offset, time_point when) noexcept {
        const std::size_t k = partition_.segment_of(offset);
        if (k == partition_.segments_.size()) {
            return;
        }
        segment_type& s = *partition_.segments_[k];
        const std::uint64_t i = s.index_of(offset);
        if (i < s.written() && s.offset_of(*s.at(i)) == offset) {
            record& x = *s.at(i);
            if (x.is(record::tombstone_flag) && !x.is(record::removed_flag)) {
                s.set_horizon(x, when);
                next_horizon_ = std::min(next_horizon_, when);
            }
        }
    }
    /// Where the phase is at: an offset that rises to `covered()`.
    [[nodiscard]] std::uint64_t position() const noexcept { return at_; }
    /// The first offset that the pass under way leaves alone.
    [[nodiscard]] std::uint64_t covered() const noexcept { return covered_; }
    /// Keys that are held at the moment.
    [[nodiscard]] std::size_t keys() const noexcept { return last_.size(); }

private:
    using segment_type = log_segment<Sync>;
    using record = log_record<Sync>;

    /// The base of the segment that is written, or of the first that is too young.
    [[nodiscard]] std::uint64_t first_uncleanable(time_point now) const noexcept {
        const auto& segments = partition_.segments_;
        const duration lag = partition_.options_.min_compaction_lag;
        for (std::size_t k = 0; k + 1 < segments.size(); ++k) {
            segment_type& s = *segments[k];
            if (lag > duration::zero() && s.end() > checkpoint_ &&
                saturating_add(s.counts_from(), lag) > now) {
                return k == 0 ? s.base() : std::max(s.base(), segments[k - 1]->end());
            }
        }
        return segments.size() > 1
                   ? std::max(segments.back()->base(), segments[segments.size() - 2]->end())
                   : segments.back()->base();
    }

    [[nodiscard]] bool begin(time_point now) noexcept {
        if (partition_.options_.cleanup == log_cleanup::remove ||
            partition_.segments_.size() == 1) {
            next_horizon_ = never;
            return false;
        }
        if (checkpoint_ < partition_.start_offset() || checkpoint_ > partition_.end_offset()) {
            checkpoint_ = partition_.start_offset();
        }
        covered_ = std::max(checkpoint_, first_uncleanable(now));
        at_ = checkpoint_;
        phase_ = compaction_phase::collect;
        return true;
    }
    void enter(compaction_phase p, std::uint64_t at) noexcept {
        phase_ = p;
        at_ = at;
    }
    void end_pass() noexcept {
        forget_keys();
        target_.reset();
        enter(compaction_phase::idle, covered_);
    }
    void forget_keys() noexcept {
        last_ = {};
        keys_.clear();
        budget_.release(std::exchange(table_charge_, 0));
    }

    /// Calls `each(segment, index)` for the records from `at_` on below `covered_`, one for each
    /// of what is left of the budget, until it says false. True: it came to `covered_`. No segment
    /// may be taken out meanwhile; between two steps they may.
    template <class Each>
    bool walk(Each&& each) {
        while (at_ < covered_) {
            const std::size_t k = partition_.segment_of(at_);
            if (k == partition_.segments_.size()) {
                break;
            }
            segment_type& s = *partition_.segments_[k];
            std::uint64_t i = s.index_of(at_);
            for (; i < s.written() && s.offset_of(*s.at(i)) < covered_; ++i) {
                if (left_ == 0) {
                    return false;
                }
                at_ = s.offset_of(*s.at(i));
                if (!each(s, i)) {
                    return false;
                }
                --left_;
                ++at_;
            }
            if (i < s.written()) {
                break;
            }
            at_ = std::max(at_, s.end());
            if (k + 1 == partition_.segments_.size()) {
                break;
            }
        }
        at_ = covered_;
        return true;
    }

    void collect(step_result& r) {
        const bool complete = walk([&](segment_type& s, std::uint64_t i) {
            const record& x = *s.at(i);
            return x.is(record::removed_flag) || x.key == nullptr ||
                   note(s.key_of(x), s.offset_of(x));
        });
        if (!complete && left_ != 0) { // the next key does not fit: it is left for the next pass
            if (last_.empty()) {
                r.failed = errc::memory_limit;
                r.finished = true;
                covered_ = checkpoint_;
                end_pass();
                return;
            }
            covered_ = at_;
        }
        if (complete || left_ != 0) {
            next_horizon_ = never;
            enter(compaction_phase::sweep, partition_.start_offset());
        }
    }
    /// Notes where a key was seen last. False: there is no room for it.
    [[nodiscard]] bool note(std::string_view key, std::uint64_t offset) {
        if (const auto found = last_.find(key); found != last_.end()) {
            found->second = offset;
            return true;
        }
        if (last_.size() == partition_.options_.compaction_keys || !make_room() ||
            !keys_.reserve(key_arena<Sync>::bytes_of(key))) {
            return false;
        }
        last_.emplace(key_arena<Sync>::at(keys_.store(key)), offset);
        return true;
    }
    /// The table grows by doubling, and is counted when it does.
    [[nodiscard]] bool make_room() {
        if (last_.size() < room_for(table_charge_)) {
            return true;
        }
        const std::size_t wanted = std::max<std::size_t>(16, 2 * last_.size());
        const std::size_t charge = wanted * entry_bytes - table_charge_;
        if (!budget_.try_charge(charge)) {
            return false;
        }
        table_charge_ += charge;
        last_.reserve(wanted);
        return true;
    }
    [[nodiscard]] static constexpr std::size_t room_for(std::size_t charge) noexcept {
        return charge / entry_bytes;
    }

    void sweep(step_result& r, time_point now) {
        const bool complete = walk([&](segment_type& s, std::uint64_t i) {
            record& x = *s.at(i);
            if (x.is(record::removed_flag)) {
                s.sweep(x);
            } else if (const auto why = leaves(s, x, now)) {
                note_removed(s.offset_of(x));
                partition_.take(*why, {1, s.remove(i)});
                ++r.removed;
            }
            return true;
        });
        if (complete) {
            enter(compaction_phase::merge, partition_.start_offset());
        }
    }
    void note_removed(std::uint64_t offset) {
        if (!keeps_account_) {
            return;
        }
        auto& all = done_.removed;
        if (!all.empty() && all.back().first + all.back().count == offset) {
            ++all.back().count;
        } else {
            all.push_back({offset, 1});
        }
    }
    [[nodiscard]] std::optional<log_removal> leaves(segment_type& s, record& x, time_point now) {
        if (x.key == nullptr) {
            return std::nullopt;
        }
        const std::uint64_t offset = s.offset_of(x);
        if (const auto last = last_.find(s.key_of(x));
            last != last_.end() && offset < last->second) {
            return log_removal::superseded;
        }
        if (x.is(record::tombstone_flag)) {
            // The time counts from the pass that found it, not from its own time stamp: a reader
            // must have that long to see it, however late compaction comes.
            if (s.horizon(x) == never) {
                const time_point when =
                    saturating_add(now, partition_.options_.tombstone_retention);
                if (keeps_account_) {
                    done_.horizons.push_back({offset, when});
                }
                s.set_horizon(x, when);
            } else if (s.horizon(x) <= now) {
                return log_removal::expired;
            }
            next_horizon_ = std::min(next_horizon_, s.horizon(x));
        }
        return std::nullopt;
    }

    void merge(step_result& r) {
        for (;;) {
            const std::size_t k = partition_.segment_of(at_);
            if (k + 1 >= partition_.segments_.size() || partition_.segments_[k]->end() > covered_) {
                checkpoint_ = covered_;
                r.finished = true;
                end_pass();
                return;
            }
            if (left_ == 0) {
                drop_empty_target(); // a step leaves none behind
                return;
            }
            segment_type& s = *partition_.segments_[k];
            partition_.make_place(r.gone);
            if (s.live() == 0) {
                --left_;
                at_ = s.end();
                r.gone.push_back(partition_.unlink(k));
            } else if (!fits(k, s)) {
                choose_target(k, s);
            } else if (s.is_pinned() || !move(s, r)) {
                become_target(s);
            } else if (s.live() == 0) {
                at_ = s.end();
                r.gone.push_back(partition_.unlink(k));
            }
        }
    }
    /// Whether what is left of `s` can go to the end of the target, its predecessor.
    [[nodiscard]] bool fits(std::size_t k, const segment_type& s) const noexcept {
        const segment_type* const t = target_.get();
        const log_options& o = partition_.options_;
        return t != nullptr && k != 0 && partition_.segments_[k - 1] == t && t->linked &&
               t->live_bytes() + s.live_bytes() <= o.segment_bytes &&
               t->live() + s.live() <= o.segment_records &&
               s.end() - 1 - t->base() <= segment_type::max_relative;
    }
    /// A segment that has lost half of its records is moved to a new one, which gets what comes
    /// behind it too; another one gets that itself.
    void choose_target(std::size_t k, segment_type& s) {
        const log_options& o = partition_.options_;
        const bool is_sparse = (s.written() - s.live()) * 2 >= s.written();
        if (is_sparse && !s.is_pinned() && s.live_bytes() <= o.segment_bytes &&
            s.live() <= o.segment_records) {
            partition_.make_place(partition_.segments_);
            segment_type* const made = partition_.make_segment(s.base());
            partition_.insert(k, made);
            target_ = log_pin<Sync>::of(made);
        } else {
            become_target(s);
        }
    }
    void become_target(segment_type& s) noexcept {
        drop_empty_target();
        target_ = log_pin<Sync>::of(&s);
        at_ = s.end();
    }
    /// A new one that nothing could be moved into.
    void drop_empty_target() noexcept {
        segment_type* const t = target_.get();
        if (t != nullptr && t->linked && t->written() == 0) {
            const auto& all = partition_.segments_;
            const auto found = std::find(all.begin(), all.end(), t);
            const log_pin<Sync> unused =
                partition_.unlink(static_cast<std::size_t>(found - all.begin()));
        }
    }
    /// Moves records from the front of `s` to the target while the budget lasts. False: it cannot
    /// go on, for want of memory or since a payload's move throws.
    [[nodiscard]] bool move(segment_type& s, step_result& r) noexcept {
        segment_type& to = *target_.get();
        for (std::uint64_t i = s.index_of(at_); i < s.written() && left_ != 0; ++i) {
            record& x = *s.at(i);
            if (!x.is(record::removed_flag)) {
                try {
                    // Beyond the limit if need be, by a block: it is how memory comes free.
                    const std::size_t key =
                        x.key == nullptr ? 0 : key_arena<Sync>::bytes_of(s.key_of(x));
                    if (!to.reserve(1, key, true)) {
                        return false;
                    }
                    to.take_from(s, i);
                } catch (...) {
                    return false;
                }
                ++r.moved;
            } else {
                s.sweep(x);
            }
            --left_;
            at_ = s.offset_of(x) + 1;
        }
        return true;
    }

    /// What a key takes in the table, about: an entry and its share of what is free.
    static constexpr std::size_t entry_bytes = 2 * (sizeof(std::string_view) + 8);

    partition<Sync>& partition_;
    memory_budget<Sync>& budget_;
    compaction_phase phase_ = compaction_phase::idle;
    std::uint64_t checkpoint_ = 0;
    std::uint64_t covered_ = 0;
    std::uint64_t at_ = 0;
    std::uint64_t left_ = 0;
    time_point next_horizon_ = never; ///< When the first tombstone may go, as of the last sweep.
    key_arena<Sync> keys_;
    boost::unordered_flat_map<std::string_view, std::uint64_t> last_{};
    std::size_t table_charge_ = 0;
    log_pin<Sync> target_{};
    bool keeps_account_ = false;
    account done_{};
};

} // namespace railmq::core
