// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/group_decisions.hpp>
#include <railmq/core/log_cursor.hpp>
#include <railmq/detail/due_source.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_group.hpp>
#include <railmq/detail/log_lane.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/detail/log_receive.hpp>
#include <railmq/detail/log_waiter.hpp>
#include <railmq/detail/patience.hpp>
#include <railmq/model/death.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace railmq::detail {

template <class Runtime>
class log_settlement;
struct dead_record; ///< In detail/log_dead_letters.hpp.

/// What a consumer of a log and its deliveries share. It has a lane for each partition that it
/// reads: a cursor, and what of it is in work.
///
/// Threads: receives, seeks and the rest are the consumer's thread's, which alone changes the list
/// of lanes; deliveries are settled by any thread, under the reader's lock. Without a group, and
/// while nothing has failed, a receive takes no lock. Asynchronous receives look on their executor,
/// which then counts as the consumer's thread.
///
/// Lock order: this lock, then the group's, a partition's, the deadline list's, or a parking
/// spot's.
template <class Runtime>
class log_reader final : public due_source,
                         public std::enable_shared_from_this<log_reader<Runtime>> {
public:
    using log_type = log_core<Runtime>;
    using group_type = log_group<Runtime>;
    using lease_type = log_lease<Runtime>;
    using lane = log_lane<Runtime>;
    using receive_type = log_receive<Runtime>;

    log_reader(
        std::shared_ptr<log_type> log, std::shared_ptr<group_type> group, log_consumer_options o)
        : log_{std::move(log)}
        , group_{std::move(group)}
        , options_{std::move(o)}
        , number_{log_->broker().take_number()}
        , random_{log_->broker().seed_for(number_)}
        , beat_{std::min(options_.session_timeout, options_.max_poll_interval) / 4} {}
    log_reader(const log_reader&) = delete;
    log_reader& operator=(const log_reader&) = delete;
    ~log_reader() {
        close();
        log_->broker().forget_due(*this);
    }

    /// Takes up its partitions, or joins its group. Errors: `invalid_argument` for a partition that
    /// there is not, `offset_out_of_range` where `start` is an offset that there is not.
    [[nodiscard]] errc open() {
        if (group_ != nullptr) {
            if (const errc e = check_dead_letters(); e != errc{}) {
                return e;
            }
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
    [[nodiscard]] auto& broker() const noexcept { return log_->broker(); }
    [[nodiscard]] bool has_group() const noexcept { return group_ != nullptr; }
    [[nodiscard]] const log_consumer_options& options() const noexcept { return options_; }
    [[nodiscard]] bool is_open() const noexcept {
        return !is_closed_ && ended_ == errc{} && log_->closed() == errc{};
    }
    /// Offsets that retention took away before they were read, or could be given again.
    [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_; }

    // Receiving

    /// Hands up to `max` records to `sink(lease_type&&)`, waiting until `limit` for the first.
    /// False: none, and `ec` says why. Throws what a rebalance callback throws.
    template <class Sink>
    bool receive(std::size_t max, time_point limit, Sink&& sink, error_code& ec) {
        ec = {};
        auto& owner = log_->broker();
        const bool may_wait = limit != time_point::min();
        // In a simulation somebody else may receive while a receive waits.
        const bool in_handler = handler_of == &owner || depth_ != 0;
        const busy while_receiving{*this};
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
            move_dead_letters();
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

    /// Begins an asynchronous receive; it is finished with what there is, or waits behind those
    /// that were begun before. In detail/log_reading.hpp, as the next two.
    void start(receive_type& r) noexcept;
    /// What a waiting receive was woken for: looks again. On its executor.
    void step(receive_type& r) noexcept;
    /// Takes it out. False: it was finished before, or will be this moment.
    [[nodiscard]] bool withdraw(receive_type& r) noexcept;

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
        const busy while_seeking{*this};
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
        touch(*l);
        forget_failures(*l);
        return errc{};
    }
    [[nodiscard]] errc set_paused(std::uint32_t partition, bool on) noexcept {
        const busy while_changing{*this};
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
        const busy while_closing{*this}; // what waits asynchronously sees it afterwards
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
        woken_list<Runtime> woken;
        std::lock_guard guard{mutex_};
        wake_if_waiting(woken);
        for (const auto& l : lanes_) {
            forget_failures(*l);
        }
        touched_.clear();
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
        woken_list<Runtime> woken;
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
            touch(*l);
            is_acked_.store(true, std::memory_order_release);
            changes_.fetch_add(1);
            wake_if_waiting(woken);
        }
        return true;
    }
    /// It comes again, after the backoff, or after `wait`; its partition waits for it. False: it is
    /// not this reader's any more, or was acknowledged. Throws `std::bad_alloc`.
    bool give_back(const lease_type& d, std::optional<duration> wait, bool has_failed) {
        const time_point now = log_->broker().clock().now();
        woken_list<Runtime> woken;
        std::unique_lock guard{mutex_};
        lane* const l = find(d.partition, d.epoch);
        failed_record* const at = l == nullptr ? nullptr : note_failure(*l, d.entry.offset);
        if (at == nullptr) {
            return false;
        }
        if (has_failed) {
            ++at->count;
        }
        if (has_failed && options_.max_attempts != 0 && at->count >= options_.max_attempts) {
            set_dead(*at, death_reason::max_attempts, {});
            guard.unlock();
            move_dead_letter({d.partition, d.epoch, d.entry.offset});
            return true;
        }
        at->wait = wait         ? *wait
                   : has_failed ? options_.retry_backoff.wait(at->count, at->wait, random_)
                                : duration::zero();
        at->due = saturating_add(now, at->wait);
        at->is_waiting = true;
        waiting_failures_.fetch_add(1);
        changes_.fetch_add(1);
        wake_if_waiting(woken);
        return true;
    }

    // Deadlines: of what waits asynchronously

    [[nodiscard]] std::shared_ptr<due_source> keep() noexcept override {
        return this->weak_from_this().lock();
    }
    [[nodiscard]] std::uint64_t number() const noexcept override { return number_; }
    void run_due(time_point now) override {
        woken_list<Runtime> woken;
        std::lock_guard guard{mutex_};
        told_ = never;
        if (due_ <= now) {
            due_ = never;
            wake_if_waiting(woken);
        }
        tell_due();
    }
    [[nodiscard]] time_point next_due(time_point) override {
        std::lock_guard guard{mutex_};
        return due_;
    }
    void refresh_due(time_point) override {
        std::lock_guard guard{mutex_};
        log_->broker().forget_due(*this);
        told_ = never;
        tell_due();
    }

    /// It becomes a dead letter at once. False as above. Throws `std::bad_alloc`.
    bool reject(const lease_type& d, std::string detail) {
        if (member_.lost.load(std::memory_order_acquire) != errc{}) {
            return false; // it comes again, to another
        }
        {
            std::lock_guard guard{mutex_};
            lane* const l = find(d.partition, d.epoch);
            failed_record* const at = l == nullptr ? nullptr : note_failure(*l, d.entry.offset);
            if (at == nullptr) {
                return false;
            }
            set_dead(*at, death_reason::rejected, std::move(detail));
        }
        move_dead_letter({d.partition, d.epoch, d.entry.offset});
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
    void wake_if_waiting(woken_list<Runtime>& woken) noexcept {
        if (waiter_ != nullptr) {
            woken.wake(*waiter_);
        }
    }
    /// That record has failed, or is about to be given up. Null: it was settled. With the lock
    /// held.
    [[nodiscard]] failed_record* note_failure(lane& l, std::uint64_t offset) {
        if (group_ != nullptr && !l.tracker.is_unacked(offset)) {
            return nullptr;
        }
        auto at = std::lower_bound(
            l.failures.begin(),
            l.failures.end(),
            offset,
            [](const failed_record& f, std::uint64_t o) { return f.offset < o; });
        if (at == l.failures.end() || at->offset != offset) {
            at = l.failures.insert(at, failed_record{offset});
            failures_.fetch_add(1);
        } else if (at->is_waiting) {
            return nullptr;
        }
        return &*at;
    }

    // Dead letters, in detail/log_dead_letters.hpp

    /// Which one, in which assignment of its partition.
    struct dead_place {
        std::uint32_t partition;
        std::uint64_t epoch;
        std::uint64_t offset;
    };
    /// Whether they have a place, where that is asked for: else `type_mismatch`, `invalid_argument`
    /// or what making a queue reports.
    [[nodiscard]] errc check_dead_letters();
    /// With the lock held.
    void set_dead(failed_record& f, death_reason reason, std::string detail) noexcept;
    [[nodiscard]] errc bury(const dead_record& r);
    /// Counts and tells what became of it.
    void tell_dead(const dead_record& r, const std::string& target, errc e, bool drops);
    /// With no lock held: moves one that is due, or puts it off.
    void move_dead_letter(dead_place which) noexcept;
    /// The same for all that are due, on the consumer's thread.
    void move_dead_letters() noexcept;

    /// Something of it may be to be committed. With the lock held.
    void touch(lane& l) noexcept {
        if (!std::exchange(l.is_touched, true)) {
            touched_.push_back(&l); // there is room
        }
    }
    void tell_due() noexcept {
        if (due_ < told_) {
            told_ = due_;
            log_->broker().lower_due(*this, due_);
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
            dead_.fetch_sub(f.is_dead ? 1 : 0);
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
        touched_.reserve(lanes_.size() + 1);
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
            std::erase(touched_, it->get());
            gone = std::move(*it);
            lanes_.erase(it);
        }
    }

    // In detail/log_reading.hpp

    template <class Sink>
    bool take(std::size_t max, Sink& sink, time_point& again_at, errc& failed, std::uint64_t& seen);
    template <class Sink>
    std::size_t take_from(
        lane& l, std::size_t max, bool is_locked, Sink& sink, time_point& again_at, errc& failed);
    /// Puts the cursor where the lane goes on. Where that is gone, it goes on as `start` says, and
    /// with the oldest there is for a start that was a place of its own.
    bool place(lane& l, errc& failed);
    /// What has failed and is due, from the lowest offset on. With the lock held.
    template <class Sink>
    std::size_t give_again(lane& l, std::size_t max, Sink& sink, time_point& again_at);

    /// Waits for records, news of the group, or a change by another thread since `seen`. False:
    /// nothing of that by `until`.
    bool park(time_point until, std::uint64_t seen);
    /// Has `w` woken by any of that. False: there is some already.
    [[nodiscard]] bool enter_lists(log_waiter<Runtime>& w, std::uint64_t seen);
    void leave_lists(log_waiter<Runtime>& w) noexcept;

    /// Held by whoever uses the reader: what waits asynchronously leaves its lists, and looks again
    /// when the last one is gone.
    class busy {
    public:
        explicit busy(log_reader& r) noexcept
            : reader_{r} {
            if (reader_.depth_++ == 0 && !reader_.receives_.empty()) {
                reader_.interrupt();
            }
        }
        busy(const busy&) = delete;
        busy& operator=(const busy&) = delete;
        ~busy() {
            if (--reader_.depth_ == 0 && !reader_.receives_.empty()) {
                reader_.go_on();
            }
        }

    private:
        log_reader& reader_;
    };
    void interrupt() noexcept;
    void go_on() noexcept;
    /// One look. True: it is listed, and there was nothing; else it is to be finished.
    bool look(receive_type& r);
    void finish(receive_type& r) noexcept;

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

    // In detail/log_commits.hpp

    /// Commits all that is acknowledged. The first error of any partition.
    errc commit_acked();
    /// With the lock held, so that no transaction commits in between what this takes back.
    errc commit(core::rewinding back, errc& unwritten, woken_list<Runtime>& woken);

    std::shared_ptr<log_type> log_;
    std::shared_ptr<group_type> group_;
    const log_consumer_options options_;
    const std::uint64_t number_;

    // The consumer's thread's.
    log_member<Runtime> member_{};
    errc ended_{};
    bool is_closed_ = false;
    bool is_calling_back_ = false;
    std::uint64_t skipped_ = 0;
    std::uint64_t assignments_ = 0;
    std::size_t turn_ = 0;          ///< The lane that had records last.
    std::size_t taken_in_turn_ = 0; ///< So many in a row.
    unsigned depth_ = 0;            ///< How many calls use it, each inside of another.
    time_point next_beat_ = time_point::min();
    std::deque<receive_type*> receives_{};       ///< The first one waits for a record.
    bool is_listed_ = false;                     ///< A waiter of it, where it is woken.
    std::vector<log_line<Runtime>*> waits_at_{}; ///< Partitions where it is listed.

    typename Runtime::mutex mutex_{};
    random_engine random_;
    std::vector<std::unique_ptr<lane>> lanes_{}; ///< By partition.
    std::vector<lane*> touched_{};               ///< Those that a commit has to look at.
    log_waiter<Runtime>* waiter_ = nullptr;
    time_point due_ = never;  ///< When what waits asynchronously has to look again.
    time_point told_ = never; ///< What the broker knows of that.
    /// Changes under the lock; what a receive has seen before it waits.
    typename Runtime::template atomic<std::uint64_t> changes_{0};
    typename Runtime::template atomic<std::uint64_t> failures_{0};
    typename Runtime::template atomic<std::uint64_t> waiting_failures_{0};
    typename Runtime::template atomic<std::uint64_t> dead_{0};
    typename Runtime::template atomic<bool> is_acked_{false};
    const duration beat_;
};

} // namespace railmq::detail

#include <railmq/detail/log_commits.hpp>
#include <railmq/detail/log_dead_letters.hpp>
#include <railmq/detail/log_reading.hpp>
