// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/compaction.hpp>
#include <railmq/core/log_cursor.hpp>
#include <railmq/core/log_segment.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/detail/line_journal.hpp>
#include <railmq/detail/timekeepers.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace railmq::detail {

/// A reader that waits for records, or for its group.
template <class Runtime>
struct log_waiter {
    sleeper<Runtime> thread{};
};

/// Readers that wait for the same thing.
///
/// Thread safety: with the lock held of whatever they wait for.
template <class Runtime>
class log_wait_list {
public:
    /// Throws `std::bad_alloc`.
    void add(log_waiter<Runtime>& w) { all_.push_back(&w); }
    /// Does nothing when it was woken.
    void remove(log_waiter<Runtime>& w) noexcept { std::erase(all_, &w); }
    /// Wakes them with the lock held: a waiter that sees itself woken takes the lock before it
    /// goes, so it is still there.
    void wake_all() noexcept {
        for (log_waiter<Runtime>* w : all_) {
            w->thread.spot.finish();
        }
        all_.clear();
    }

private:
    std::vector<log_waiter<Runtime>*> all_{};
};

/// What of a change in a partition is kept.
struct line_record {
    /// What has to be written, or synced, for the change to be; 0: nothing has.
    std::uint64_t number = 0;
    bool has_removed = false; ///< Records have left, and that was written.
    errc unwritten{};         ///< Why something that has left could not be written yet.
};

/// One partition of a log: its lock, what is stored, and who waits for more.
///
/// Lock order: this lock, then a parking spot's, or the journal's.
template <class Runtime>
class log_line {
public:
    using partition_type = core::partition<Runtime>;
    using cursor_type = core::log_cursor<Runtime>;
    using gone_type = std::vector<core::log_pin<Runtime>>;

    using journal_type = line_journal<Runtime>;

    /// Its first record gets `first_offset`. `kept`: null where nothing is kept.
    log_line(
        const core::payload_ops& ops,
        core::memory_budget<Runtime>& budget,
        const log_options& o,
        std::unique_ptr<journal_type> kept = nullptr,
        std::uint64_t first_offset = 0)
        : records_{ops, budget, o, first_offset}
        , compaction_{records_}
        , kept_{std::move(kept)} {
        if (kept_ != nullptr) {
            compaction_.keep_account();
        }
    }
    log_line(const log_line&) = delete;
    log_line& operator=(const log_line&) = delete;

    /// Appends, wakes who waits, and now and then does a bounded part of what retention and
    /// compaction want. `clock` is asked under the lock, so that times rise with offsets.
    /// `encoded`: the records as entries of a run, where they are kept. `kept` is nothing then.
    template <class Clock>
    core::append_result append(
        std::span<core::log_input> records,
        const Clock& clock,
        const core::append_terms& terms,
        std::span<const std::byte> encoded,
        line_record& kept) {
        gone_type gone; // ended without the lock
        std::lock_guard guard{mutex_};
        const time_point now = clock.now();
        core::append_result r;
        if (kept_ == nullptr) {
            r = records_.append(records, now, terms);
        } else {
            r = records_.append(records, now, terms, [&](std::uint64_t first) {
                errc failed{};
                kept.number =
                    kept_->append(first, records.size(), encoded, now, terms.producer, failed);
                return failed;
            });
            if (r.failed == errc{} && kept.number == 0) {
                // Stored before: whoever is told so may rely on it as well.
                kept.number = kept_->journal().port().last();
            }
        }
        if (r.failed == errc{} && !r.duplicate) {
            waiting_.wake_all();
            keep_up(records.size(), now, gone, kept);
        }
        return r;
    }

    /// Runs `f(partition, compaction, gone)` under the lock; what `gone` gets is ended without it.
    template <class F>
    auto locked(F&& f) {
        gone_type gone;
        std::lock_guard guard{mutex_};
        return f(records_, compaction_, gone);
    }
    /// The same for what removes records, which is then written.
    template <class F>
    auto removing(line_record& kept, F&& f) {
        gone_type gone;
        std::lock_guard guard{mutex_};
        const struct saying {
            log_line& line;
            line_record& kept;
            ~saying() { line.say(kept); }
        } finally{*this, kept};
        return f(records_, compaction_, gone);
    }
    /// Runs `f(partition, compaction, journal)` under the lock, where there is a journal.
    template <class F>
    auto with_journal(F&& f) {
        std::lock_guard guard{mutex_};
        return f(records_, compaction_, *kept_);
    }

    /// For readers, free of the lock.
    [[nodiscard]] std::uint64_t start_offset() const noexcept { return records_.start_offset(); }
    [[nodiscard]] std::uint64_t end_offset() const noexcept { return records_.end_offset(); }

    [[nodiscard]] errc seek(cursor_type& c, std::uint64_t offset) {
        std::lock_guard guard{mutex_};
        return records_.seek(c, offset);
    }
    [[nodiscard]] errc enter(cursor_type& c) {
        std::lock_guard guard{mutex_};
        return records_.enter(c);
    }

    /// Has `w` woken by the next append. False: there is something behind `position` already.
    [[nodiscard]] bool wait_behind(std::uint64_t position, log_waiter<Runtime>& w) {
        std::lock_guard guard{mutex_};
        if (records_.end_offset() > position) {
            return false;
        }
        waiting_.add(w);
        return true;
    }
    void leave(log_waiter<Runtime>& w) noexcept {
        std::lock_guard guard{mutex_};
        waiting_.remove(w);
    }
    void wake_all() noexcept {
        std::lock_guard guard{mutex_};
        waiting_.wake_all();
    }

    /// Removes what retention does not ask for any more.
    core::log_amount apply_retention(time_point now, line_record& kept) {
        return removing(kept, [&](partition_type& p, auto&, gone_type& gone) {
            auto r = p.apply_retention(now);
            gone = std::move(r.gone);
            return r.amount;
        });
    }

    /// A whole pass of compaction, in steps, so that others get the lock in between. Returns how
    /// many records it removed.
    std::uint64_t compact(time_point now, line_record& kept, errc& failed) {
        std::uint64_t removed = 0;
        for (bool finished = false; !finished && failed == errc{};) {
            removing(kept, [&](auto&, auto& c, gone_type& gone) {
                auto r = c.step(4096, now);
                removed += r.removed;
                finished = r.finished;
                failed = r.failed;
                gone = std::move(r.gone);
                return 0;
            });
        }
        return removed;
    }

private:
    /// With the lock held. What memory is missing for is done another time.
    void
    keep_up(std::size_t appended, time_point now, gone_type& gone, line_record& kept) noexcept {
        appended_ += appended;
        if (appended_ < 64 && now < next_upkeep_) {
            return;
        }
        const std::uint64_t budget = 4 * std::max<std::uint64_t>(appended_, 64);
        appended_ = 0;
        next_upkeep_ = saturating_add(now, std::chrono::seconds{1});
        try {
            gone = records_.apply_retention(now).gone;
            if (compaction_.phase() != core::compaction_phase::idle || compaction_.due(now)) {
                auto step = compaction_.step(budget, now);
                gone.insert(
                    gone.end(),
                    std::make_move_iterator(step.gone.begin()),
                    std::make_move_iterator(step.gone.end()));
            }
        } catch (const std::bad_alloc&) {
        }
        line_record more; // nobody waits for that
        say(more);
        kept.has_removed = more.has_removed;
        kept.unwritten = more.unwritten;
    }
    /// Writes what has left. With the lock held.
    void say(line_record& kept) noexcept {
        if (kept_ == nullptr) {
            return;
        }
        try {
            const std::uint64_t number = kept_->say(records_, compaction_, kept.unwritten);
            kept.number = std::max(kept.number, number);
            kept.has_removed = kept.has_removed || number != 0;
        } catch (const std::bad_alloc&) {
            kept.unwritten = errc::memory_limit;
        }
    }

    typename Runtime::mutex mutex_{};
    partition_type records_;
    core::compaction<Runtime> compaction_;
    std::unique_ptr<journal_type> kept_;
    log_wait_list<Runtime> waiting_{};
    std::uint64_t appended_ = 0; ///< Since the last upkeep.
    time_point next_upkeep_ = time_point::min();
};

} // namespace railmq::detail
