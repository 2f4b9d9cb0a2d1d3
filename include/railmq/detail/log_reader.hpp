// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/group_decisions.hpp>
#include <railmq/core/log_cursor.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_group.hpp>
#include <railmq/detail/log_lane.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/detail/patience.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace railmq::detail {

template <class Runtime>
class log_settlement;

/// What a consumer of a log and its deliveries share. It has a lane for each partition that it
/// reads: a cursor, and what of it is in work.
///
/// Threads: receives, seeks and the rest are the consumer's thread's, which alone changes the list
/// of lanes; deliveries are settled by any thread, under the reader's lock. Without a group, and
/// while nothing has failed, a receive takes no lock.
///
/// Lock order: this lock, then the group's, a partition's, or a parking spot's.
template <class Runtime>
class log_reader : public std::enable_shared_from_this<log_reader<Runtime>> {
public:
    using log_type = log_core<Runtime>;
    using group_type = log_group<Runtime>;
    using lease_type = log_lease<Runtime>;
    using lane = log_lane<Runtime>;

    log_reader(
        std::shared_ptr<log_type> log, std::shared_ptr<group_type> group, log_consumer_options o)
        : log_{std::move(log)}
        , group_{std::move(group)}
        , options_{std::move(o)}
        , random_{log_->broker().seed_for(log_->broker().take_number())}
        , beat_{std::min(options_.session_timeout, options_.max_poll_interval) / 4} {}
    log_reader(const log_reader&) = delete;
    log_reader& operator=(const log_reader&) = delete;
    ~log_reader() { close(); }

    /// Takes up its partitions, or joins its group. Errors: `invalid_argument` for a partition that
    /// there is not, `offset_out_of_range` where `start` is an offset that there is not.
    [[nodiscard]] errc open() {
        if (group_ != nullptr) {
            return group_->join(member_, member_part(options_));
        }
        partition_numbers wanted = options_.partitions;
        if (wanted.empty()) {
            for (std::uint32_t p = 0; p < log_->partitions(); ++p) {
                wanted.push_back(p);
            }
        }
        std::sort(wanted.begin(), wanted.end());
        wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
        for (const std::uint32_t p : wanted) {
            if (log_->line(p) == nullptr) {
                return errc::invalid_argument;
            }
            const auto [failed, offset] = beginning(*log_->line(p));
            if (failed != errc{} && options_.start.kind() != log_start::kind_type::none) {
                return failed;
            }
            add_lane(p, failed, offset);
        }
        return errc{};
    }

    [[nodiscard]] log_type& log() const noexcept { return *log_; }
    [[nodiscard]] bool has_group() const noexcept { return group_ != nullptr; }
    [[nodiscard]] const log_consumer_options& options() const noexcept { return options_; }
    [[nodiscard]] bool is_open() const noexcept {
        return !is_closed_ && ended_ == errc{} && log_->closed() == errc{};
    }
    /// Offsets that retention took away before they were read.
    [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_; }

    // Receiving

    /// Hands up to `max` records to `sink(lease_type&&)`, waiting until `limit` for the first.
    /// False: none, and `ec` says why. Throws what a rebalance callback throws.
    template <class Sink>
    bool receive(std::size_t max, time_point limit, Sink&& sink, error_code& ec) {
        ec = {};
        auto& owner = log_->broker();
        const bool may_wait = limit != time_point::min();
        const bool in_handler = handler_of == &owner;
        std::optional<patience<Runtime>> patient;
        for (;;) {
            owner.catch_up();
            if (is_calling_back_) {
                ec = errc::would_deadlock;
                return false;
            }
            attend();
            if (const errc why = why_not(); why != errc{}) {
                ec = why;
                return false;
            }
            time_point again_at = never;
            errc failed{};
            std::uint64_t seen = 0;
            if (take(max, sink, again_at, failed, seen)) {
                return true;
            }
            if (failed != errc{}) {
                ec = failed;
                return false;
            }
            if (group_ != nullptr) {
                owner.flush_idle(); // commits that nobody waits for
            }
            if (!may_wait || in_handler) {
                ec = may_wait ? errc::would_deadlock : errc::would_block;
                return false;
            }
            if (owner.clock().now() >= limit) {
                ec = errc::timed_out;
                return false;
            }
            if (!patient) {
                patient.emplace(owner.clock(), owner.options().park_after, limit);
            }
            if (patient->wait()) {
                continue;
            }
            const time_point until = std::min(limit, again_at);
            if (!park(until, seen) && until == never) {
                ec = errc::would_deadlock; // a simulation in which nothing can come
                return false;
            }
        }
    }

    /// A sign of life without a receive. Errors: as of a receive.
    [[nodiscard]] errc heartbeat() {
        if (const errc why = why_not(); why != errc{} || group_ == nullptr) {
            return why;
        }
        (void)group_->look(member_, false);
        return errc{};
    }

    // Places

    [[nodiscard]] partition_numbers assignment() const {
        partition_numbers all;
        for (const auto& l : lanes_) {
            all.push_back(l->partition);
        }
        return all;
    }
    /// Nothing for a partition that it does not read.
    [[nodiscard]] std::optional<std::uint64_t> position(std::uint32_t partition) const noexcept {
        const lane* l = find(partition);
        if (l == nullptr) {
            return std::nullopt;
        }
        return l->is_placed ? l->cursor.position() : l->goes_to;
    }
    /// What is in work of the partition is forgotten: its deliveries are stale from then on.
    [[nodiscard]] errc seek(std::uint32_t partition, std::uint64_t offset) {
        lane* const l = find(partition);
        if (l == nullptr) {
            return errc::invalid_argument;
        }
        if (const errc e = l->line->seek(l->cursor, offset); e != errc{}) {
            return e;
        }
        std::lock_guard guard{mutex_};
        l->is_placed = true;
        l->failed_with = errc{};
        l->is_rewound = true;
        l->tracker.reset(offset);
        forget_failures(*l);
        return errc{};
    }
    [[nodiscard]] errc set_paused(std::uint32_t partition, bool on) noexcept {
        lane* const l = find(partition);
        if (l == nullptr) {
            return errc::invalid_argument;
        }
        l->is_paused = on;
        return errc{};
    }

    // Commits

    /// Commits all that is acknowledged. The first error of any partition.
    [[nodiscard]] errc commit() {
        if (group_ == nullptr) {
            return errc::invalid_argument;
        }
        if (const errc why = why_not(); why != errc{}) {
            return why;
        }
        if (const errc why = member_.lost.load(std::memory_order_acquire); why != errc{}) {
            return why;
        }
        const errc failed = commit_acked();
        error_code ec;
        log_->confirm_all(ec);
        return failed != errc{} ? failed : static_cast<errc>(ec.value());
    }

    /// Commits what is acknowledged, leaves the group, and gives up what is in work.
    void close() noexcept {
        if (std::exchange(is_closed_, true)) {
            return;
        }
        try {
            if (group_ != nullptr) {
                if (options_.auto_commit && log_->closed() == errc{}) {
                    (void)commit_acked();
                }
                group_->leave(member_);
            }
        } catch (...) { // no memory: the session times out instead
            log_->broker().count_swallowed();
        }
        std::lock_guard guard{mutex_};
        for (const auto& l : lanes_) {
            forget_failures(*l);
        }
        lanes_.clear();
    }

    // Settling, by any thread

    /// False: it is not this reader's any more, or was acknowledged before.
    bool ack(const lease_type& d) noexcept {
        if (group_ == nullptr && failures_.load(std::memory_order_acquire) == 0) {
            return true;
        }
        if (member_.lost.load(std::memory_order_acquire) != errc{}) {
            return false; // it comes again, to another
        }
        std::lock_guard guard{mutex_};
        lane* const l = find(d.partition, d.epoch);
        if (l == nullptr) {
            return group_ == nullptr;
        }
        if (group_ != nullptr && !l->tracker.ack(d.epoch, d.entry.offset)) {
            return false;
        }
        forget_failure(*l, d.entry.offset);
        if (group_ != nullptr) {
            is_acked_.store(true, std::memory_order_release);
            changes_.fetch_add(1);
            wake_if_waiting();
        }
        return true;
    }
    /// It comes again, after the backoff, or after `wait`; its partition waits for it. False: it is
    /// not this reader's any more, or was acknowledged. Throws `std::bad_alloc`.
    bool give_back(const lease_type& d, std::optional<duration> wait, bool has_failed) {
        const time_point now = log_->broker().clock().now();
        std::lock_guard guard{mutex_};
        lane* const l = find(d.partition, d.epoch);
        if (l == nullptr || (group_ != nullptr && !l->tracker.is_unacked(d.entry.offset))) {
            return false;
        }
        auto at = std::lower_bound(
            l->failures.begin(),
            l->failures.end(),
            d.entry.offset,
            [](const failed_record& f, std::uint64_t offset) { return f.offset < offset; });
        if (at == l->failures.end() || at->offset != d.entry.offset) {
            at = l->failures.insert(at, failed_record{d.entry.offset});
            failures_.fetch_add(1);
        } else if (at->is_waiting) {
            return false;
        }
        if (has_failed) {
            ++at->count;
        }
        at->wait = wait         ? *wait
                   : has_failed ? options_.retry_backoff.wait(at->count, at->wait, random_)
                                : duration::zero();
        at->due = saturating_add(now, at->wait);
        at->is_waiting = true;
        waiting_failures_.fetch_add(1);
        changes_.fetch_add(1);
        wake_if_waiting();
        return true;
    }

    // Settling and committing as one with something else: see log_settlement.hpp

    /// How far a partition is acknowledged, at some moment.
    struct position_mark {
        std::uint32_t partition = 0;
        std::uint64_t epoch = 0;
        std::uint64_t offset = 0;
    };
    /// Of those in which there is something to commit. By the consumer's thread.
    [[nodiscard]] std::vector<position_mark> marks() {
        std::vector<position_mark> all;
        std::lock_guard guard{mutex_};
        for (const auto& l : lanes_) {
            if (l->failed_with == errc{} && l->tracker.committable() != l->committed) {
                all.push_back({l->partition, l->tracker.epoch(), l->tracker.committable()});
            }
        }
        return all;
    }
    [[nodiscard]] auto& mutex() noexcept { return mutex_; }
    [[nodiscard]] const std::shared_ptr<group_type>& group() const noexcept { return group_; }
    /// As the end of a delivery: it comes again.
    void drop(const position_mark& a) noexcept {
        try {
            lease_type l;
            l.partition = a.partition;
            l.epoch = a.epoch;
            l.entry.offset = a.offset;
            (void)give_back(l, std::nullopt, true);
        } catch (...) { // no memory: it comes again when its partition is assigned anew
            log_->broker().count_swallowed();
        }
    }

private:
    friend class log_settlement<Runtime>;

    [[nodiscard]] lane* find(std::uint32_t partition) const noexcept {
        const auto it = std::lower_bound(
            lanes_.begin(), lanes_.end(), partition, [](const auto& l, std::uint32_t p) {
                return l->partition < p;
            });
        return it == lanes_.end() || (*it)->partition != partition ? nullptr : it->get();
    }
    [[nodiscard]] lane* find(std::uint32_t partition, std::uint64_t epoch) const noexcept {
        lane* const l = find(partition);
        return l == nullptr || l->tracker.epoch() != epoch ? nullptr : l;
    }
    [[nodiscard]] errc why_not() const noexcept {
        return is_closed_ ? errc::closed : ended_ != errc{} ? ended_ : log_->closed();
    }
    /// With the lock held.
    void wake_if_waiting() noexcept {
        if (waiter_ != nullptr) {
            waiter_->thread.spot.finish();
        }
    }
    void forget_failure(lane& l, std::uint64_t offset) noexcept {
        std::erase_if(l.failures, [&](const failed_record& f) {
            const bool is_it = f.offset == offset;
            if (is_it) {
                failures_.fetch_sub(1);
                waiting_failures_.fetch_sub(f.is_waiting ? 1 : 0);
            }
            return is_it;
        });
    }
    void forget_failures(lane& l) noexcept {
        for (const failed_record& f : l.failures) {
            failures_.fetch_sub(1);
            waiting_failures_.fetch_sub(f.is_waiting ? 1 : 0);
        }
        l.failures.clear();
    }

    /// Where to begin a partition of which nothing is committed.
    [[nodiscard]] std::pair<errc, std::uint64_t> beginning(log_line<Runtime>& line) const {
        const log_start& s = options_.start;
        return line.locked([&](auto& p, auto&, auto&) -> std::pair<errc, std::uint64_t> {
            switch (s.kind()) {
            case log_start::kind_type::earliest: return {errc{}, p.start_offset()};
            case log_start::kind_type::latest: return {errc{}, p.end_offset()};
            case log_start::kind_type::none: break;
            case log_start::kind_type::offset:
                if (s.offset() >= p.start_offset() && s.offset() <= p.end_offset()) {
                    return {errc{}, s.offset()};
                }
                break;
            case log_start::kind_type::time:
                if (const auto found = p.offset_for_time(s.time())) {
                    return {errc{}, found->offset};
                }
                return {errc{}, p.end_offset()};
            }
            return {errc::offset_out_of_range, p.start_offset()};
        });
    }
    void add_lane(std::uint32_t partition, errc failed, std::uint64_t offset) {
        auto made = std::make_unique<lane>();
        made->partition = partition;
        made->line = log_->line(partition);
        made->goes_to = offset;
        made->failed_with = failed;
        made->committed = offset;
        // So that no epoch of an earlier assignment comes again.
        made->tracker = core::ack_tracker{offset, ++assignments_ << 32};
        std::lock_guard guard{mutex_};
        const auto at = std::lower_bound(
            lanes_.begin(), lanes_.end(), partition, [](const auto& l, std::uint32_t p) {
                return l->partition < p;
            });
        lanes_.insert(at, std::move(made));
    }
    void remove_lane(std::uint32_t partition) noexcept {
        std::unique_ptr<lane> gone; // its pin is ended without the lock
        std::lock_guard guard{mutex_};
        const auto it = std::find_if(lanes_.begin(), lanes_.end(), [partition](const auto& l) {
            return l->partition == partition;
        });
        if (it != lanes_.end()) {
            forget_failures(**it);
            gone = std::move(*it);
            lanes_.erase(it);
        }
    }

    template <class Sink>
    bool
    take(std::size_t max, Sink& sink, time_point& again_at, errc& failed, std::uint64_t& seen) {
        std::unique_lock lock{mutex_, std::defer_lock};
        // Acknowledgements come from other threads, and have to find what they acknowledge.
        if (group_ != nullptr || waiting_failures_.load(std::memory_order_acquire) != 0) {
            lock.lock();
        }
        seen = changes_.load();
        std::size_t n = 0;
        const std::size_t count = lanes_.size();
        const std::size_t first = count == 0 ? 0 : turn_++ % count;
        for (std::size_t k = 0; k < count && n < max; ++k) {
            lane& l = *lanes_[(first + k) % count];
            if (!l.is_paused) {
                n += take_from(l, max - n, lock.owns_lock(), sink, again_at, failed);
            }
        }
        return n != 0;
    }
    template <class Sink>
    std::size_t take_from(
        lane& l, std::size_t max, bool is_locked, Sink& sink, time_point& again_at, errc& failed) {
        std::size_t n = 0;
        l.is_held = false;
        if (is_locked && !l.failures.empty()) {
            n = give_again(l, max, sink, again_at);
            if (l.is_held || n == max) {
                return n;
            }
        }
        if (!l.is_placed && !place(l, failed)) {
            return n;
        }
        for (;;) {
            const auto status = l.cursor.read(max - n, unlimited, [&](const core::log_entry& e) {
                if (group_ != nullptr) {
                    try {
                        l.tracker.hand_out(e.offset);
                    } catch (...) { // no memory: it is still to be read
                        l.is_placed = false;
                        l.goes_to = e.offset;
                        throw;
                    }
                }
                sink(lease_type{e, l.cursor.pin(), l.partition, 0, l.tracker.epoch()});
                ++n;
            });
            if (status == core::read_status::ok || status == core::read_status::at_end) {
                return n;
            }
            if (status == core::read_status::out_of_range || l.line->enter(l.cursor) != errc{}) {
                l.is_placed = false;
                l.goes_to = l.cursor.position();
                if (!place(l, failed)) {
                    return n;
                }
            }
        }
    }
    /// Puts the cursor where the lane goes on. Where that is gone, it goes on as `start` says, and
    /// with the oldest there is for a start that was a place of its own.
    bool place(lane& l, errc& failed) {
        if (l.failed_with != errc{}) {
            failed = l.failed_with;
            return false;
        }
        while (l.line->seek(l.cursor, l.goes_to) != errc{}) {
            if (options_.start.kind() == log_start::kind_type::none) {
                failed = l.failed_with = errc::offset_out_of_range;
                return false;
            }
            const std::uint64_t to = options_.start.kind() == log_start::kind_type::latest
                                         ? l.line->end_offset()
                                         : l.line->start_offset();
            skipped_ += to > l.goes_to ? to - l.goes_to : 0;
            l.goes_to = to;
            if (group_ != nullptr) {
                l.tracker.skip_to(to);
            }
        }
        l.is_placed = true;
        return true;
    }
    /// What has failed and is due, from the lowest offset on. With the lock held.
    template <class Sink>
    std::size_t give_again(lane& l, std::size_t max, Sink& sink, time_point& again_at) {
        const time_point now = log_->broker().clock().now();
        std::size_t n = 0;
        for (auto f = l.failures.begin(); f != l.failures.end() && n < max;) {
            if (!f->is_waiting) {
                ++f;
                continue;
            }
            if (f->due > now) {
                again_at = std::min(again_at, f->due);
                l.is_held = true;
                return n;
            }
            core::log_cursor<Runtime> there;
            bool is_found = false;
            if (l.line->seek(there, f->offset) == errc{}) {
                (void)there.read(1, unlimited, [&](const core::log_entry& e) {
                    if (e.offset == f->offset) {
                        is_found = true;
                        sink(lease_type{e, there.pin(), l.partition, f->count, l.tracker.epoch()});
                    }
                });
            }
            waiting_failures_.fetch_sub(1);
            if (is_found) {
                f->is_waiting = false;
                ++f;
                ++n;
            } else { // removed meanwhile: there is nothing to do any more
                failures_.fetch_sub(1);
                (void)l.tracker.ack(l.tracker.epoch(), f->offset);
                f = l.failures.erase(f);
            }
        }
        return n;
    }

    /// Waits for records, news of the group, or a change by another thread since `seen`. False:
    /// nothing of that by `until`.
    bool park(time_point until, std::uint64_t seen) {
        log_waiter<Runtime> w;
        struct registration {
            log_reader& reader;
            log_waiter<Runtime>& w;
            registration(log_reader& r, log_waiter<Runtime>& waiter) noexcept
                : reader{r}
                , w{waiter} {}
            registration(const registration&) = delete;
            registration& operator=(const registration&) = delete;
            ~registration() {
                {
                    std::lock_guard guard{reader.mutex_};
                    reader.waiter_ = nullptr;
                }
                for (const auto& l : reader.lanes_) {
                    l->line->leave(w);
                }
                if (reader.group_ != nullptr) {
                    reader.group_->unpark(reader.member_);
                }
            }
        };
        registration here{*this, w};
        {
            std::lock_guard guard{mutex_};
            if (changes_.load() != seen) {
                return true;
            }
            waiter_ = &w;
        }
        for (const auto& l : lanes_) {
            if (!l->is_paused && !l->is_held && !l->line->wait_behind(l->cursor.position(), w)) {
                return true;
            }
        }
        if (group_ != nullptr && !group_->park(member_, w)) {
            return true;
        }
        if (log_->closed() != errc{}) {
            return true; // it may have been closed before this one waited
        }
        return log_->broker().block(w.thread, until);
    }

    // The group

    /// Does what the group wants, if it wants something, and says that this member is alive.
    void attend() {
        if (group_ == nullptr || why_not() != errc{}) {
            return;
        }
        if (options_.auto_commit && is_acked_.load(std::memory_order_relaxed) &&
            is_acked_.exchange(false)) {
            (void)commit_acked(); // what could not be, comes with the next
        }
        const auto& clock = log_->broker().clock();
        const time_point now = clock.coarse_now();
        // Rather late than early, as the coarse clock is behind.
        member_.heard.store(
            saturating_add(now, clock.resolution()).time_since_epoch().count(),
            std::memory_order_relaxed);
        if (!member_.has_news.load(std::memory_order_acquire) && now < next_beat_) {
            return;
        }
        next_beat_ = saturating_add(now, beat_);
        std::exception_ptr first;
        do {
            const auto news = group_->look(member_, true);
            // What was wanted of a member that is none any more does not matter.
            const auto removed = std::find_if(news.rbegin(), news.rend(), [](const auto& d) {
                return std::holds_alternative<core::group_decisions::removed>(d);
            });
            const auto from = removed == news.rend() ? news.begin() : removed.base() - 1;
            for (auto at = from; at != news.end(); ++at) {
                const core::group_decision& d = *at;
                if (is_closed_) {
                    break; // by a callback
                }
                try {
                    std::visit([this](const auto& what) { this->carry_out(what); }, d);
                } catch (...) {
                    first = first ? first : std::current_exception();
                }
            }
        } while (member_.has_news.load(std::memory_order_acquire) && why_not() == errc{});
        if (first) {
            std::rethrow_exception(first);
        }
    }
    void carry_out(const core::group_decisions::rebalanced&) {}
    void carry_out(const core::group_decisions::assign& d) {
        partition_numbers got;
        for (const auto& p : d.partitions) {
            if (find(p.partition) != nullptr) {
                continue;
            }
            auto& line = *log_->line(p.partition);
            const auto committed = group_->committed(p.partition);
            if (committed && *committed <= line.end_offset()) {
                add_lane(p.partition, errc{}, *committed); // `place` sees whether it is gone
            } else {
                const auto [failed, offset] = beginning(line);
                add_lane(p.partition, failed, offset);
                if (failed == errc{}) {
                    group_->begin_at(member_, p.partition, offset);
                }
            }
            got.push_back(p.partition);
        }
        call_back(options_.on_assigned, got);
    }
    void carry_out(const core::group_decisions::revoke& d) {
        partition_numbers going;
        for (const auto& p : d.partitions) {
            if (find(p.partition) != nullptr) {
                going.push_back(p.partition);
            }
        }
        // Whatever the callback throws, the others get their partitions.
        const struct let_go {
            log_reader& reader;
            const partition_numbers& going;
            ~let_go() {
                try {
                    if (reader.options_.auto_commit) {
                        (void)reader.commit_acked();
                    }
                } catch (...) { // no memory: it comes again
                    reader.log_->broker().count_swallowed();
                }
                for (const std::uint32_t p : going) {
                    reader.remove_lane(p);
                }
                try {
                    reader.group_->confirm_revoked(reader.member_);
                } catch (...) { // no memory: the rebalance times out instead
                    reader.log_->broker().count_swallowed();
                }
            }
        } finally{*this, going};
        call_back(options_.on_revoked, going);
    }
    void carry_out(const core::group_decisions::removed& d) {
        const partition_numbers lost = assignment();
        for (const std::uint32_t p : lost) {
            remove_lane(p);
        }
        if (d.reason == core::removal_reason::fenced) {
            ended_ = errc::fenced;
        } else if (d.reason == core::removal_reason::removed) {
            ended_ = errc::unknown_member;
        } else if (!is_closed_) {
            ended_ = group_->join(member_, member_part(options_));
        }
        call_back(options_.on_lost ? options_.on_lost : options_.on_revoked, lost);
    }
    void call_back(const rebalance_callback& f, const partition_numbers& which) {
        if (!f || which.empty()) {
            return;
        }
        const struct in_callback {
            bool& flag;
            explicit in_callback(bool& b) noexcept
                : flag{b} {
                flag = true;
            }
            in_callback(const in_callback&) = delete;
            in_callback& operator=(const in_callback&) = delete;
            ~in_callback() { flag = false; }
        } scope{is_calling_back_};
        f(which);
    }

    /// Commits all that is acknowledged. The first error of any partition.
    errc commit_acked() {
        errc unwritten{};
        errc first{};
        {
            std::lock_guard guard{mutex_};
            first = commit(core::rewinding::refused, unwritten);
            const errc back = commit(core::rewinding::allowed, unwritten);
            first = first != errc{} ? first : back;
        }
        if (unwritten != errc{}) {
            log_->broker().tell_unwritten(log_->name(), unwritten);
        }
        return first;
    }
    /// With the lock held, so that no transaction commits in between what this takes back.
    errc commit(core::rewinding back, errc& unwritten) {
        std::vector<core::offset_commit> what;
        for (const auto& l : lanes_) {
            const bool is_back = back == core::rewinding::allowed;
            if (l->is_rewound == is_back && l->failed_with == errc{} &&
                l->tracker.committable() != l->committed) {
                what.push_back({{the_topic, l->partition}, l->tracker.committable(), {}});
            }
        }
        if (what.empty()) {
            return errc{};
        }
        std::vector<errc> results(what.size());
        (void)group_->commit(member_, what, results, back, unwritten);
        errc first{};
        for (std::size_t i = 0; i < what.size(); ++i) {
            lane* const l = find(what[i].partition.partition);
            if (results[i] != errc{}) {
                first = first != errc{} ? first : results[i];
            } else if (l != nullptr) {
                l->committed = what[i].offset;
                l->is_rewound = false;
            }
        }
        return first;
    }

    std::shared_ptr<log_type> log_;
    std::shared_ptr<group_type> group_;
    const log_consumer_options options_;

    // The consumer's thread's.
    log_member<Runtime> member_{};
    errc ended_{};
    bool is_closed_ = false;
    bool is_calling_back_ = false;
    std::uint64_t skipped_ = 0;
    std::uint64_t assignments_ = 0;
    std::size_t turn_ = 0;
    time_point next_beat_ = time_point::min();

    typename Runtime::mutex mutex_{};
    random_engine random_;
    std::vector<std::unique_ptr<lane>> lanes_{}; ///< By partition.
    log_waiter<Runtime>* waiter_ = nullptr;
    /// Changes under the lock; what a receive has seen before it waits.
    typename Runtime::template atomic<std::uint64_t> changes_{0};
    typename Runtime::template atomic<std::uint64_t> failures_{0};
    typename Runtime::template atomic<std::uint64_t> waiting_failures_{0};
    typename Runtime::template atomic<bool> is_acked_{false};
    const duration beat_;
};

} // namespace railmq::detail
