// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>
#include <railmq/core/group_coordinator.hpp>
#include <railmq/core/group_decisions.hpp>
#include <railmq/core/group_offsets.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/due_source.hpp>
#include <railmq/detail/group_journal.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/group_options.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace railmq::detail {

/// A group has one topic, its log.
inline constexpr core::topic_id the_topic{0};

/// A member as its group knows it. With the group's lock held, but for the atomics.
template <class Runtime>
struct log_member {
    core::member_id id = core::nobody;
    /// That of the last `assign` that was put into the box, so that it is never behind.
    core::generation_type generation = 0;
    core::group_decision_list news{}; ///< What the member has to carry out.
    typename Runtime::template atomic<bool> has_news{false};
    /// Why it is none any more; nothing while it is.
    typename Runtime::template atomic<errc> lost{errc{}};
    /// When it last received, on the broker's time line: it says so without the group's lock, and
    /// the group looks before it takes the member for dead.
    typename Runtime::template atomic<std::int64_t> heard{
        time_point::min().time_since_epoch().count()};
    log_waiter<Runtime>* waiting = nullptr; ///< While it waits in a call: it is alive then.
};

/// A group of one log: who is a member, who has which partition, and how far it has come, under
/// one lock. What a member has in work is under a lock of the member's, so that acknowledgements
/// of different members do not meet.
///
/// Nobody sends heartbeats while it waits: who waits in a receive is alive, as the group knows by
/// itself. A group whose members all wait has no deadline.
///
/// Lock order: a reader's lock, this lock, then the deadline list's, or a parking spot's.
template <class Runtime>
class log_group final : public due_source, public std::enable_shared_from_this<log_group<Runtime>> {
public:
    using broker_type = broker_core<Runtime>;
    using member_type = log_member<Runtime>;

    /// `number` is one that the broker has given; `log` and `name` are names. `kept_as`: the number
    /// of its log in the broker's journal, if there is one.
    log_group(
        std::shared_ptr<broker_type> broker,
        std::uint64_t number,
        std::uint64_t kept_as,
        std::string log,
        std::string name,
        group_options o,
        std::uint32_t partitions,
        core::generation_type generation = 0)
        : broker_{std::move(broker)}
        , number_{number}
        , log_{std::move(log)}
        , coordinator_{std::move(o), generation} {
        core::group_decision_list nothing;
        coordinator_.set_partitions(the_topic, partitions, broker_->clock().now(), nothing);
        if (kept_as != 0) {
            kept_.emplace(broker_->journal(), kept_as, std::move(name));
        }
    }
    ~log_group() { broker_->forget_due(*this); }

    [[nodiscard]] const group_options& options() const noexcept { return coordinator_.options(); }

    // Members

    /// Errors: `invalid_argument`, `invalid_name` of the options; `not_found` of a group that was
    /// deleted meanwhile.
    [[nodiscard]] errc join(member_type& m, const member_options& o) {
        return locked([&](time_point now, core::group_decision_list& out) {
            if (is_deleted_) {
                return errc::not_found;
            }
            const auto r = coordinator_.join(o, std::span{&the_topic, 1}, now, out);
            if (r.error == errc{}) {
                members_.push_back(&m);
                m.id = r.member;
                m.generation = 0;
                m.lost.store(errc{}, std::memory_order_release);
            }
            return r.error;
        });
    }
    /// The member goes; what it committed stays.
    void leave(member_type& m) {
        locked([&](time_point now, core::group_decision_list& out) {
            if (std::erase(members_, &m) != 0) {
                (void)coordinator_.leave(m.id, now, out);
            }
            return 0;
        });
    }
    /// The member is alive; `asks` for messages as well. Takes out what it has to carry out.
    [[nodiscard]] core::group_decision_list look(member_type& m, bool asks) {
        return locked([&](time_point now, core::group_decision_list& out) {
            if (asks) {
                (void)coordinator_.poll(m.id, m.generation, now, out);
            } else {
                (void)coordinator_.heartbeat(m.id, m.generation, now, out);
            }
            deliver(out, now);
            if (asks) {
                m.has_news.store(false, std::memory_order_relaxed);
                return std::exchange(m.news, {});
            }
            return core::group_decision_list{};
        });
    }
    void confirm_revoked(member_type& m) {
        locked([&](time_point now, core::group_decision_list& out) {
            // `fenced`: it was asked for more meanwhile, and will confirm that.
            return coordinator_.confirm_revoked(m.id, m.generation, now, out);
        });
    }

    /// The member begins to wait, and is woken by news. False: there are some.
    [[nodiscard]] bool park(member_type& m, log_waiter<Runtime>& w) {
        return locked([&](time_point now, core::group_decision_list& out) {
            (void)coordinator_.poll(m.id, m.generation, now, out);
            deliver(out, now);
            if (!m.news.empty()) {
                return false;
            }
            m.waiting = &w;
            ++waiting_;
            return true;
        });
    }
    void unpark(member_type& m) {
        locked([&](time_point, core::group_decision_list&) {
            if (m.waiting != nullptr) {
                m.waiting = nullptr;
                --waiting_;
            }
            return 0;
        });
    }
    void wake_all() {
        locked([&](time_point now, core::group_decision_list&) {
            for (member_type* m : members_) {
                wake(*m, now);
            }
            return 0;
        });
    }

    // Offsets

    /// Commits in the name of a member, whose reader's lock may be held; each has a result of its
    /// own. Errors: `unknown_member`, `fenced`, `rebalance_in_progress`. `unwritten` is for
    /// `broker_logs::tell_unwritten`, with no lock held, and `woken` ends without one.
    errc commit(
        member_type& m,
        std::span<const core::offset_commit> what,
        std::span<errc> results,
        core::rewinding back,
        errc& unwritten,
        woken_list<Runtime>& woken) {
        std::lock_guard guard{mutex_};
        return with_lock(unwritten, woken, [&](time_point now, core::group_decision_list& out) {
            note_changed(what);
            return offsets_.commit(coordinator_, m.id, m.generation, what, results, back, now, out);
        });
    }

    // A commit as one with something else, with the lock held all the while

    [[nodiscard]] auto& mutex() noexcept { return mutex_; }
    struct joint_commit {
        std::vector<core::offset_commit> what{};
        std::vector<core::rewinding> back{}; ///< Of each.
        std::vector<std::optional<core::committed_offset>> before{};
        errc unwritten{}; ///< For `tell_unwritten`, with no lock held.
    };
    /// Does it, if all of it can be done: errors as of `commit`, and what
    /// `core::group_offsets::judge` says of any part. Throws `std::bad_alloc`; nothing has changed
    /// then.
    [[nodiscard]] errc begin_commit(member_type& m, joint_commit& c, woken_list<Runtime>& woken) {
        // What is due comes first, and what could not be written before.
        with_lock(c.unwritten, woken, [](time_point, core::group_decision_list&) { return 0; });
        const time_point now = broker_->clock().now();
        core::group_decision_list out;
        const errc admitted = coordinator_.admit_commit(m.id, m.generation, now, out);
        deliver(out, now);
        tell_due();
        if (admitted != errc{}) {
            return admitted;
        }
        for (std::size_t i = 0; i < c.what.size(); ++i) {
            const errc e = offsets_.judge(coordinator_, m.id, c.what[i], c.back[i]);
            if (e != errc{}) {
                return e;
            }
        }
        for (const core::offset_commit& one : c.what) {
            const auto* known = offsets_.find(one.partition);
            c.before.push_back(known == nullptr ? std::nullopt : std::optional{*known});
        }
        note_changed(c.what);
        std::vector<errc> results(c.what.size());
        try {
            (void)offsets_.commit(
                coordinator_,
                m.id,
                m.generation,
                c.what,
                results,
                core::rewinding::allowed,
                now,
                out);
        } catch (...) {
            undo_commit(c);
            throw;
        }
        return errc{};
    }
    void undo_commit(joint_commit& c) noexcept {
        for (std::size_t i = 0; i < c.before.size(); ++i) {
            offsets_.put_back(c.what[i].partition, c.before[i]);
        }
    }
    /// Appends it to a record of the journal. Throws `std::bad_alloc`.
    void put_commit(const joint_commit& c, std::vector<std::byte>& record) const {
        if (kept_) {
            for (const core::offset_commit& one : c.what) {
                kept_->put_committed(offsets_, the_topic, one.partition.partition, record);
            }
        }
    }
    /// That is written. Else it is tried again with the next change.
    void commit_was_written(const joint_commit& c) noexcept {
        if (kept_) {
            for (const core::offset_commit& one : c.what) {
                kept_->was_said(one.partition.partition);
            }
        }
    }
    /// Commits where a member begins, unless something is committed: so what is appended from now
    /// on will not be left out, whoever comes after it.
    void begin_at(member_type& m, std::uint32_t partition, std::uint64_t offset) {
        locked([&](time_point now, core::group_decision_list& out) {
            const core::offset_commit one{{the_topic, partition}, offset, {}};
            if (offsets_.find(one.partition) == nullptr) {
                note_changed(std::span{&one, 1});
                errc ignored{};
                (void)offsets_.commit(
                    coordinator_,
                    m.id,
                    m.generation,
                    std::span{&one, 1},
                    std::span{&ignored, 1},
                    core::rewinding::refused,
                    now,
                    out);
            }
            return 0;
        });
    }
    [[nodiscard]] std::optional<std::uint64_t> committed(std::uint32_t partition) {
        return locked([&](time_point, core::group_decision_list&) {
            const auto* c = offsets_.find({the_topic, partition});
            return c == nullptr ? std::nullopt : std::optional{c->offset};
        });
    }
    [[nodiscard]] std::optional<std::uint64_t>
    lag(std::uint32_t partition, const core::log_extent& extent) {
        return locked([&](time_point, core::group_decision_list&) {
            return core::lag(offsets_.find({the_topic, partition}), extent);
        });
    }
    /// `in_use` while the group has members.
    [[nodiscard]] errc reset(std::uint32_t partition, std::uint64_t offset) {
        return locked([&](time_point now, core::group_decision_list&) {
            const core::offset_commit one{{the_topic, partition}, offset, {}};
            note_changed(std::span{&one, 1});
            return offsets_.reset(coordinator_, one.partition, offset, now);
        });
    }
    /// The same; from then on nobody can join it, and its log can forget it.
    [[nodiscard]] errc end() {
        return locked([&](time_point, core::group_decision_list&) {
            if (coordinator_.empty() && kept_ && !is_deleted_) {
                errc failed{};
                if (kept_->say_deleted(failed) == 0) {
                    return failed;
                }
            }
            const errc e = offsets_.clear(coordinator_);
            is_deleted_ = is_deleted_ || e == errc{};
            return e;
        });
    }

    // What members have given up

    void count_dead_lettered() noexcept { dead_lettered_.fetch_add(1); }
    void count_dropped() noexcept { dropped_.fetch_add(1); }
    void count_refused() noexcept { refused_.fetch_add(1); }
    [[nodiscard]] std::uint64_t dead_lettered() const noexcept { return dead_lettered_.load(); }
    [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(); }
    [[nodiscard]] std::uint64_t refused() const noexcept { return refused_.load(); }

    // Opening and upkeep

    /// What another life has committed. Nobody else knows the group yet. Moments are the wall
    /// clock's, which is ahead by `wall`.
    void restore(const storage::kept_group& from, duration wall) {
        const auto in_broker_time = [wall](time_point t) {
            return t == never ? never : saturating_add(t, -wall);
        };
        const time_point emptied = from.definition.emptied;
        coordinator_.restore_emptied(
            emptied == never ? broker_->clock().now() : in_broker_time(emptied));
        for (const auto& [partition, o] : from.offsets) {
            offsets_.restore({the_topic, partition}, {o.offset, o.metadata, in_broker_time(o.at)});
        }
    }
    /// Writes again all that is known. False: it could not be.
    [[nodiscard]] bool list_again(std::vector<std::byte>& record) {
        std::lock_guard guard{mutex_};
        record.clear();
        kept_->put(coordinator_, offsets_, record);
        storage::record_location at;
        error_code ec;
        return record.empty() || broker_->journal()->append(record, at, ec) != 0;
    }

    void set_partitions(std::uint32_t n) {
        locked([&](time_point now, core::group_decision_list& out) {
            coordinator_.set_partitions(the_topic, n, now, out);
            return 0;
        });
    }
    [[nodiscard]] std::size_t size() {
        return locked([&](time_point, core::group_decision_list&) { return coordinator_.size(); });
    }
    [[nodiscard]] std::uint64_t generation() {
        return locked(
            [&](time_point, core::group_decision_list&) { return coordinator_.generation(); });
    }

    // Deadlines

    [[nodiscard]] std::shared_ptr<due_source> keep() noexcept override {
        return this->weak_from_this().lock();
    }
    [[nodiscard]] std::uint64_t number() const noexcept override { return number_; }
    void run_due(time_point) override {
        {
            std::lock_guard guard{mutex_};
            told_ = never;
        }
        locked([](time_point, core::group_decision_list&) { return 0; });
    }
    [[nodiscard]] time_point next_due(time_point) override {
        std::lock_guard guard{mutex_};
        return next_deadline();
    }
    void refresh_due(time_point) override {
        std::lock_guard guard{mutex_};
        broker_->forget_due(*this);
        told_ = never;
        tell_due();
    }

private:
    /// Runs `f(now, decisions)` under the lock, after what is due, delivers what was decided, and
    /// writes what has changed.
    template <class F>
    auto locked(F&& f) {
        errc unwritten{};
        const struct telling {
            log_group& group;
            const errc& why;
            ~telling() {
                if (why != errc{}) {
                    group.broker_->tell_unwritten(group.log_, why);
                }
            }
        } tell{*this, unwritten}; // without the lock
        woken_list<Runtime> woken;
        std::lock_guard guard{mutex_};
        return with_lock(unwritten, woken, std::forward<F>(f));
    }
    /// The same with the lock held. `unwritten`: why something could not be, if nobody knows yet;
    /// `woken` ends without the lock.
    template <class F>
    auto with_lock(errc& unwritten, woken_list<Runtime>& woken, F&& f) {
        core::group_decision_list out;
        woken_ = &woken;
        const time_point now = broker_->clock().now();
        if (coordinator_.next_deadline() <= now) {
            for (const member_type* m : members_) {
                const time_point heard{duration{m->heard.load(std::memory_order_relaxed)}};
                coordinator_.keep_alive(m->id, m->waiting != nullptr ? now : heard);
            }
        }
        coordinator_.run_due(now, out);
        core::partition_list expired;
        offsets_.expire(coordinator_, now, expired);
        if (kept_) {
            for (const core::topic_partition& p : expired) {
                kept_->has_changed(p.partition);
            }
        }
        auto result = f(now, out);
        deliver(out, now);
        tell_due();
        if (kept_ && !broker_->is_journal_closed()) {
            errc failed{};
            kept_->say(coordinator_, offsets_, the_topic, failed);
            // It is tried again with every call, and told once.
            const bool is_known = std::exchange(is_unwritten_, failed != errc{});
            unwritten = is_known || failed == errc{} ? unwritten : failed;
        }
        return result;
    }

    void note_changed(std::span<const core::offset_commit> what) {
        if (kept_) {
            for (const core::offset_commit& one : what) {
                kept_->has_changed(one.partition.partition);
            }
        }
    }
    [[nodiscard]] member_type* find(core::member_id id) const noexcept {
        const auto it = std::find_if(
            members_.begin(), members_.end(), [id](const auto* m) { return m->id == id; });
        return it == members_.end() ? nullptr : *it;
    }
    void wake(member_type& m, time_point now) noexcept {
        if (m.waiting != nullptr) {
            coordinator_.keep_alive(m.id, now); // until it says something itself
            woken_->wake(*m.waiting);
            m.waiting = nullptr;
            --waiting_;
        }
    }
    /// Puts what was decided into the members' boxes.
    void deliver(core::group_decision_list& out, time_point now) {
        for (core::group_decision& d : out) {
            std::visit(
                [&](const auto& what) {
                    using type = std::decay_t<decltype(what)>;
                    if constexpr (!std::is_same_v<type, core::group_decisions::rebalanced>) {
                        member_type* const m = find(what.member);
                        if (m == nullptr) {
                            return; // away
                        }
                        if constexpr (std::is_same_v<type, core::group_decisions::assign>) {
                            m->generation = what.generation;
                        }
                        m->news.push_back(what);
                        m->has_news.store(true, std::memory_order_release);
                        wake(*m, now);
                        if constexpr (std::is_same_v<type, core::group_decisions::removed>) {
                            const bool is_fenced = what.reason == core::removal_reason::fenced;
                            m->lost.store(
                                is_fenced ? errc::fenced : errc::unknown_member,
                                std::memory_order_release);
                            std::erase(members_, m);
                        }
                    }
                },
                d);
        }
        out.clear();
    }

    [[nodiscard]] time_point next_deadline() const noexcept {
        const bool all_wait = waiting_ != 0 && waiting_ == coordinator_.size() &&
                              coordinator_.state() == core::group_state::stable;
        return all_wait ? never : coordinator_.next_deadline();
    }
    void tell_due() noexcept {
        const time_point next = next_deadline();
        if (next < told_) {
            told_ = next;
            broker_->lower_due(*this, next);
        }
    }

    std::shared_ptr<broker_type> broker_;
    const std::uint64_t number_;
    const std::string log_; ///< Its name.
    typename Runtime::mutex mutex_{};
    core::group_coordinator coordinator_;
    core::group_offsets offsets_{};
    std::vector<member_type*> members_{};
    std::size_t waiting_ = 0;
    typename Runtime::template atomic<std::uint64_t> dead_lettered_{0};
    typename Runtime::template atomic<std::uint64_t> dropped_{0};
    typename Runtime::template atomic<std::uint64_t> refused_{0};
    woken_list<Runtime>* woken_ = nullptr; ///< Of the call that has the lock.
    bool is_deleted_ = false;
    std::optional<group_journal> kept_{};
    bool is_unwritten_ = false; ///< Something of it, and that was told.
    time_point told_ = never;   ///< What the broker knows to be the next deadline.
};

template <class Runtime>
errc log_core<Runtime>::add_partitions(std::uint32_t n) {
    {
        std::lock_guard guard{mutex_};
        if (n > (1U << 16) - partitions()) {
            return errc::invalid_argument;
        }
        if (const errc e = grow(n); e != errc{}) {
            return e;
        }
    }
    for (const auto& g : groups()) {
        g->set_partitions(partitions());
    }
    lines().front()->wake_followers(); // they take the new ones as well
    return errc{};
}

template <class Runtime>
void log_core<Runtime>::close(errc why) {
    closed_.store(static_cast<int>(why), std::memory_order_release);
    for (line_type* l : lines()) {
        l->wake_all();
    }
    for (const auto& g : groups()) {
        g->wake_all();
    }
    close_subscriptions(why);
}

} // namespace railmq::detail
