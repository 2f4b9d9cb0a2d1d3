// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/compaction.hpp>
#include <railmq/core/log_cursor.hpp>
#include <railmq/core/log_segment.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/detail/line_journal.hpp>
#include <railmq/detail/log_follower.hpp>
#include <railmq/detail/log_waiter.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/kept_log_options.hpp>

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

using storage::log_interest;

/// What of a change in a partition is kept.
struct line_record {
    /// What has to be written, or synced, for the change to be; 0: nothing has.
    std::uint64_t number = 0;
    bool has_removed = false; ///< Records have left, and that was written.
    errc unwritten{};         ///< Why something that has left could not be written yet.
};

/// One partition of a log: its lock, what is stored, and who waits for more.
///
/// Lock order: a queue's lock, a reader's, a group's, this lock, then a parking spot's, or the
/// journal's. Queues that are filled from here are served without it.
template <class Runtime>
class log_line {
public:
    using partition_type = core::partition<Runtime>;
    using cursor_type = core::log_cursor<Runtime>;
    using gone_type = std::vector<core::log_pin<Runtime>>;

    using follower_type = log_follower<Runtime>;

    using journal_type = line_journal<Runtime>;

    /// Its first record gets `first_offset`. `kept`: null where nothing is kept.
    log_line(
        const core::payload_ops& ops,
        core::memory_budget<Runtime>& budget,
        const log_options& o,
        std::unique_ptr<journal_type> kept = nullptr,
        std::uint64_t first_offset = 0,
        log_interest interest = {})
        : records_{ops, budget, o, first_offset}
        , compaction_{records_}
        , kept_{std::move(kept)}
        , interest_{interest} {
        if (kept_ != nullptr) {
            compaction_.keep_account();
        }
    }
    log_line(const log_line&) = delete;
    log_line& operator=(const log_line&) = delete;

    /// Queues that are to be served; when it ends, without any lock, they are.
    struct serve_later {
        struct listener {
            follower_type* from = nullptr;
            std::weak_ptr<queue_core<Runtime>> queue{};
        };
        std::vector<listener> all{};

        serve_later() = default;
        serve_later(const serve_later&) = delete;
        serve_later& operator=(const serve_later&) = delete;
        ~serve_later() {
            for (const listener& l : all) {
                if (const auto q = l.queue.lock()) {
                    q->serve_waiting();
                }
            }
        }
        /// With the lock held: they have to listen again.
        void swap(serve_later& from) noexcept {
            all.swap(from.all);
            for (const listener& l : all) {
                l.from->listens = false;
            }
        }
    };

    /// What follows from an append when the lock is free again.
    struct append_effects {
        gone_type gone{};
        serve_later later{};
        woken_list<Runtime> woken{};
        line_record kept{};
    };

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
        append_effects fx;
        std::lock_guard guard{mutex_};
        const time_point now = clock.now();
        if (passes(terms)) {
            return pass(records, now, fx, kept);
        }
        before_append(records.size(), now, fx);
        core::append_result r;
        if (kept_ == nullptr) {
            r = records_.append(records, now, terms);
        } else {
            r = records_.append(records, now, terms, [&](std::uint64_t first) {
                errc failed{};
                fx.kept.number =
                    kept_->append(first, records.size(), encoded, now, terms.producer, failed);
                return failed;
            });
            if (r.failed == errc{} && fx.kept.number == 0) {
                // Stored before: whoever is told so may rely on it as well.
                fx.kept.number = kept_->journal().port().last();
            }
        }
        if (r.failed == errc{} && !r.duplicate) {
            after_append(records.size(), now, fx);
        }
        kept = fx.kept;
        return r;
    }

    // An append as one with something else, with the lock held all the while

    [[nodiscard]] auto& mutex() const noexcept { return mutex_; }
    /// What was asked for, and what follows from it; it ends without the lock.
    struct joint_append {
        core::append_terms terms{};
        time_point now{};
        typename partition_type::planned_append plan{};
        std::size_t entry_bytes = 0; ///< In the record of the journal.
        append_effects fx{};
    };
    /// Asks whether it can be done, and makes room for it. Throws `std::bad_alloc`. What it says
    /// is `plan.result`; nothing has changed.
    void begin_append(std::span<core::log_input> records, time_point now, joint_append& a) {
        a.now = now;
        if (kept_ != nullptr && kept_->is_deleted()) {
            a.plan.result = {errc::not_found};
            return;
        }
        if (passes(a.terms)) {
            a.plan.result.first_offset = records_.end_offset();
            return;
        }
        before_append(records.size(), now, a.fx);
        a.plan = records_.plan(records, now, a.terms);
        if (a.plan && kept_ != nullptr) {
            kept_->prepare_append();
        }
    }
    /// Moves the payloads in, which does not throw. Nothing is to be seen of them.
    void fill_append(std::span<core::log_input> records, joint_append& a) noexcept {
        if (a.plan) {
            records_.fill(a.plan, records, a.now);
        } else if (a.plan.result.failed == errc{} && !a.plan.result.duplicate) {
            line_record nobody_waits;
            a.plan.result = pass(records, a.now, a.fx, nobody_waits);
        }
    }
    /// Appends its entry to a record of the journal. Throws `std::bad_alloc`.
    void put_append(
        std::size_t count,
        std::span<const std::byte> encoded,
        joint_append& a,
        std::vector<std::byte>& record) const {
        if (a.plan && kept_ != nullptr) {
            const std::size_t before = record.size();
            kept_->put_append(
                a.plan.result.first_offset, count, encoded, a.now, a.terms.producer, record);
            a.entry_bytes = record.size() - before;
        }
    }
    /// Shows it. `at`: where that record is; null when it could not be written, and then it is
    /// there until the process ends.
    void
    end_append(std::size_t count, const storage::record_location* at, joint_append& a) noexcept {
        if (!a.plan) {
            return;
        }
        if (at != nullptr && kept_ != nullptr) {
            kept_->was_appended(
                a.plan.result.first_offset,
                count,
                {*at, static_cast<std::uint32_t>(a.entry_bytes)});
        }
        records_.publish(a.plan, a.now);
        after_append(count, a.now, a.fx);
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
        woken_list<Runtime> woken;
        std::lock_guard guard{mutex_};
        waiting_.wake_all(woken);
    }

    // Queues that are filled from here

    /// From its position on. `offset_out_of_range` where that is not. Throws `std::bad_alloc`.
    [[nodiscard]] errc follow(follower_type& f, cursor_type& c, std::uint64_t position) {
        std::lock_guard guard{mutex_};
        followers_.reserve(followers_.size() + 1);
        const errc e = records_.seek(c, position);
        if (e == errc{}) {
            f.begin_at(position);
            followers_.push_back(&f);
        }
        return e;
    }
    /// Keeps what is from its position on for a queue that nobody has opened yet. Throws
    /// `std::bad_alloc`.
    void keep_for(follower_type& f) {
        std::lock_guard guard{mutex_};
        followers_.push_back(&f);
    }
    /// The log is closed, and what its queues have not taken is for their next life.
    void keep_all() noexcept {
        gone_type gone;
        std::lock_guard guard{mutex_};
        if (kept_ == nullptr) {
            return;
        }
        if (interest_.decides) {
            release_read(time_point::min(), gone);
        }
        keeps_all_ = true;
        line_record nobody_waits;
        say(nobody_waits);
    }
    /// Where records lie that became messages, each of which wants its place from now on.
    void pin(std::span<const std::uint64_t> offsets, std::span<storage::kept_at> out) {
        std::lock_guard guard{mutex_};
        kept_->pin(offsets, out);
    }
    [[nodiscard]] std::size_t follower_count() const {
        std::lock_guard guard{mutex_};
        return followers_.size();
    }
    void unfollow(follower_type& f) noexcept {
        gone_type gone;
        std::lock_guard guard{mutex_};
        std::erase(followers_, &f);
        std::erase_if(listeners_.all, [&](const auto& l) { return l.from == &f; });
        f.listens = false;
        if (has_no_use()) {
            release_read(time_point::min(), gone);
        }
    }
    /// Has the follower's queue served by the next append. False: there is something already.
    [[nodiscard]] bool listen(follower_type& f) {
        std::lock_guard guard{mutex_};
        if (records_.end_offset() > f.position.load(std::memory_order_relaxed)) {
            return false;
        }
        if (!f.listens) {
            listeners_.all.push_back({&f, f.queue});
            f.listens = true;
        }
        return true;
    }
    /// Takes a follower's cursor on to the next segment, and removes what nobody needs any more.
    [[nodiscard]] errc enter(cursor_type& c, time_point now) {
        gone_type gone;
        std::lock_guard guard{mutex_};
        const errc e = records_.enter(c);
        if (interest_.decides && ++entered_ >= looks_every()) {
            entered_ = 0;
            release_read(now, gone);
            line_record nobody_waits;
            say(nobody_waits);
        }
        return e;
    }
    /// Has all of them served: there may be more somewhere else.
    void wake_followers() {
        serve_later later;
        std::lock_guard guard{mutex_};
        for (follower_type* f : followers_) {
            later.all.push_back({f, f->queue});
        }
    }
    [[nodiscard]] std::vector<std::shared_ptr<queue_core<Runtime>>> followers() const {
        std::lock_guard guard{mutex_};
        std::vector<std::shared_ptr<queue_core<Runtime>>> all;
        for (follower_type* f : followers_) {
            if (auto q = f->queue.lock()) {
                all.push_back(std::move(q));
            }
        }
        return all;
    }

    /// Removes what retention does not ask for any more.
    core::log_amount apply_retention(time_point now, line_record& kept) {
        return removing(kept, [&](partition_type& p, auto&, gone_type& gone) {
            if (interest_.decides) {
                release_read(now, gone);
                return core::log_amount{};
            }
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
    // With the lock held: what comes before an append, and what follows.

    /// Whether nobody will ever read it, so that it only gets its offsets.
    [[nodiscard]] bool passes(const core::append_terms& terms) const noexcept {
        return has_no_use() && records_.records() == 0 && !terms.producer && !terms.expected_offset;
    }
    core::append_result pass(
        std::span<core::log_input> records,
        time_point now,
        append_effects& fx,
        line_record& kept) noexcept {
        const auto r = records_.pass(records);
        if (kept_ != nullptr) {
            kept_->was_passed(records_.end_offset());
            keep_up(records.size(), now, fx.gone, kept);
            kept.number = kept_->journal().port().last(); // there is nothing to wait for
        }
        return r;
    }
    void before_append(std::size_t count, time_point now, append_effects& fx) noexcept {
        if (interest_.decides) { // before there is something again that nobody has read
            keep_up(count, now, fx.gone, fx.kept);
        }
    }
    void after_append(std::size_t count, time_point now, append_effects& fx) noexcept {
        waiting_.wake_all(fx.woken);
        fx.later.swap(listeners_);
        if (!interest_.decides) {
            keep_up(count, now, fx.gone, fx.kept);
        }
    }

    /// With the lock held. What memory is missing for is done another time.
    void
    keep_up(std::size_t appended, time_point now, gone_type& gone, line_record& kept) noexcept {
        appended_ += appended;
        if (appended_ < looks_every() && now < next_upkeep_) {
            return;
        }
        const std::uint64_t budget = 4 * std::max<std::uint64_t>(appended_, 64);
        appended_ = 0;
        next_upkeep_ = saturating_add(now, std::chrono::seconds{1});
        if (interest_.decides) {
            release_read(now, gone);
            if (kept_ == nullptr) {
                return;
            }
        }
        try {
            if (!interest_.decides) {
                gone = records_.apply_retention(now).gone;
            }
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

    /// A look at the positions of all followers, each of which may miss the cache, is spread over
    /// many times as many records.
    [[nodiscard]] std::size_t looks_every() const noexcept {
        return std::max<std::size_t>(64, 8 * followers_.size());
    }
    /// Whether nobody will ever read what is appended now. With the lock held.
    [[nodiscard]] bool has_no_use() const noexcept {
        return interest_.decides && followers_.empty() && !interest_.keeps_history &&
               !interest_.keeps_last;
    }
    /// With the lock held. Cost: a look at each follower.
    void release_read(time_point now, gone_type& gone) noexcept {
        if (keeps_all_) {
            return;
        }
        const std::uint64_t end = records_.end_offset();
        std::uint64_t read = interest_.keeps_last && end != 0 ? end - 1 : end;
        for (const follower_type* f : followers_) {
            const std::uint64_t position = f->safe.load(std::memory_order_acquire);
            read = std::min(read, std::max(position, end - std::min(end, f->max_backlog)));
        }
        try {
            const std::uint64_t worth_it = has_no_use() ? 1 : 256;
            gone = records_.release_read(read, interest_.keeps_history, worth_it, now).gone;
        } catch (const std::bad_alloc&) {
        }
    }

    mutable typename Runtime::mutex mutex_{};
    partition_type records_;
    core::compaction<Runtime> compaction_;
    std::unique_ptr<journal_type> kept_;
    log_wait_list<Runtime> waiting_{};
    const log_interest interest_;
    std::vector<follower_type*> followers_{};
    serve_later listeners_{};
    bool keeps_all_ = false;
    std::uint64_t appended_ = 0; ///< Since the last upkeep.
    std::size_t entered_ = 0;    ///< Since the last look at what was read.
    time_point next_upkeep_ = time_point::min();
};

} // namespace railmq::detail
