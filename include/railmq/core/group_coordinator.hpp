// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>
#include <railmq/core/group_decisions.hpp>
#include <railmq/core/group_members.hpp>
#include <railmq/core/group_rebalance.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/group_options.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// What a group is doing.
enum class group_state : unsigned char {
    empty,    ///< It has no members.
    waiting,  ///< For more members, before its first rebalance.
    revoking, ///< Some partitions have to be let go of before the rebalance can be ended.
    stable,   ///< Everything that anybody subscribes to has its owner.
};

/// The members of a group, and which of them owns which partition.
///
/// Whatever changes who should own what (a member comes, goes or is removed, a subscription or the
/// number of partitions changes) starts a rebalance. No partition ever has two owners: it goes to
/// a new one only after the old one has confirmed that it let go, has left, or was removed or
/// fenced; from then on nothing the old one says counts.
///
///  - With `cooperative_sticky` a rebalance is one round: the generation rises, members keep what
///    they keep, get what is free, and are asked for what has to move. Once all of that is
///    confirmed, a second round gives it out. What changes in between starts a round of its own at
///    once, so that a slow member does not hold up what has nothing to do with it.
///  - With the others a rebalance stops everybody: all are asked for everything, and when it is
///    confirmed the generation rises and everything is given out.
///
/// Calls return `errc{}` when they did what was asked for. On an error nothing has changed, apart
/// from what was due anyway; `heartbeat` and `poll` say what they change. Errors of a call that
/// comes from a member:
///  - `unknown_member`: it is none, or not any more;
///  - `fenced`: a newer incarnation has taken over, or the generation is not that of the member's
///    last `assign` decision;
///  - `rebalance_in_progress`: see `heartbeat` and `admit_commit`.
///
/// Every call takes the time and first does what is due by then, so `out` may get decisions from
/// each. `now` does not go back.
///
/// Copyable: as `std::bad_alloc` leaves it in an unspecified state, who wants to go on after that
/// works on a copy. Costs that are not named are O(log members). Not safe to use from two threads
/// at once.
class group_coordinator {
public:
    struct join_result {
        errc error{};
        member_id member = nobody;
    };

    /// A group without members. `last_generation` is what a former life of it came to.
    /// Precondition: the options are valid.
    explicit group_coordinator(group_options options = {}, generation_type last_generation = 0)
        : options_{std::move(options)}
        , rebalance_{options_.assignor, options_.rebalance_timeout, last_generation} {}

    // --- members ---------------------------------------------------------------------------------

    /// Takes in a member that subscribes to these topics, known or not. With an `instance_id` that
    /// a member has already, this is the new incarnation of it: the old one is fenced, and the new
    /// one has what it owned, without a rebalance unless its subscription differs.
    /// Errors: what `validate` says of the options. A rebalance costs what its assignor does.
    join_result join(
        const member_options& options,
        std::span<const topic_id> topics,
        time_point now,
        group_decision_list& out) {
        run_due(now, out);
        if (const failure f = validate(options)) {
            return {static_cast<errc>(f.code.value()), nobody};
        }
        if (!options.instance_id.empty()) {
            if (member_record* const m = members().find_instance(options.instance_id)) {
                return {errc{}, take_over(*m, options, sorted(topics), now, out)};
            }
        }
        const bool was_empty = members().empty();
        const member_record& m = members().add(options, sorted(topics), now);
        const member_id id = m.id;
        ++subscriptions_;
        watch(m.deadline().first);
        if (was_empty && options_.initial_rebalance_delay > duration::zero()) {
            wait_until_ = saturating_add(now, options_.initial_rebalance_delay);
            wait_left_ = options_.rebalance_timeout - options_.initial_rebalance_delay;
            has_newcomer_ = false;
            watch(wait_until_);
        } else {
            has_newcomer_ = true;
            changed(now, out);
        }
        return {errc{}, id};
    }

    /// Sets what the member subscribes to. The same again is a heartbeat and rebalances nothing.
    errc subscribe(
        member_id id,
        generation_type generation,
        std::span<const topic_id> topics,
        time_point now,
        group_decision_list& out) {
        run_due(now, out);
        if (const errc e = check(id, generation); e != errc{}) {
            return e;
        }
        member_record& m = *members().find(id);
        m.last_seen = now;
        if (auto wanted = sorted(topics); wanted != m.topics) {
            m.topics = std::move(wanted);
            ++subscriptions_;
            changed(now, out);
        }
        return errc{};
    }

    /// A sign of life. `rebalance_in_progress` counts as one too: the member has to confirm a
    /// revocation, or waits for the end of a rebalance.
    errc
    heartbeat(member_id id, generation_type generation, time_point now, group_decision_list& out) {
        run_due(now, out);
        if (const errc e = check(id, generation); e != errc{}) {
            return e;
        }
        member_record& m = *members().find(id);
        m.last_seen = now;
        return is_unsettled(m) ? errc::rebalance_in_progress : errc{};
    }

    /// As `heartbeat`, from a member that asks for messages.
    errc poll(member_id id, generation_type generation, time_point now, group_decision_list& out) {
        const errc e = heartbeat(id, generation, now, out);
        if (e == errc{} || e == errc::rebalance_in_progress) {
            members().find(id)->last_poll = now;
        }
        return e;
    }

    /// The member was alive and asked for messages at that moment, as is known without its saying
    /// so: it waits in a call, say. Unlike all else it does nothing that is due, so that it can be
    /// said before; and nothing for who is no member, or was seen later.
    void keep_alive(member_id id, time_point now) noexcept {
        if (member_record* const m = members().find(id); m != nullptr && !m->is_away) {
            m->last_seen = std::max(m->last_seen, now);
            m->last_poll = std::max(m->last_poll, now);
        }
    }

    /// The member has let go of everything it was asked for in that generation. It does no harm to
    /// confirm when there was nothing.
    errc confirm_revoked(
        member_id id, generation_type generation, time_point now, group_decision_list& out) {
        run_due(now, out);
        if (const errc e = check(id, generation); e != errc{}) {
            return e;
        }
        member_record& m = *members().find(id);
        m.last_seen = now;
        rebalance_.release(m);
        go_on(now, out);
        return errc{};
    }

    /// The member goes, in order: what it owned is free. A static one stays a member, and keeps
    /// what it owned for its return, until its session times out.
    errc leave(member_id id, time_point now, group_decision_list& out) {
        run_due(now, out);
        member_record* const m = members().find(id);
        if (m == nullptr || m->is_away) {
            return members().is_fenced(id) ? errc::fenced : errc::unknown_member;
        }
        if (!m->is_static()) {
            remove(*m, removal_reason::left, out);
            changed(now, out);
            return errc{};
        }
        m->is_away = true;
        m->last_seen = now;
        watch(m->deadline().first);
        rebalance_.release(*m);
        go_on(now, out);
        return errc{};
    }

    /// Removes a static member for good, whether it is there or away; `not_found` if there is none
    /// of that name. O(members).
    errc remove_instance(std::string_view name, time_point now, group_decision_list& out) {
        run_due(now, out);
        member_record* const m = members().find_instance(name);
        if (m == nullptr) {
            return errc::not_found;
        }
        remove(*m, removal_reason::removed, out);
        changed(now, out);
        return errc{};
    }

    // --- commits ---------------------------------------------------------------------------------

    /// Whether offsets may be committed in the name of that member; a sign of life if so. In the
    /// name of `nobody`: only as long as the group has no members, else `unknown_member`.
    /// `rebalance_in_progress` while the member owns nothing because everybody is stopped: what it
    /// let go of it had to commit before. A group that never had members knows no generation:
    /// `fenced`. (Kafka, ClassicGroup.validateOffsetCommit.)
    errc admit_commit(
        member_id id, generation_type generation, time_point now, group_decision_list& out) {
        run_due(now, out);
        if (id == nobody) {
            return members().empty() ? errc{} : errc::unknown_member;
        }
        if (members().empty() && rebalance_.generation() == 0) {
            return errc::fenced;
        }
        if (const errc e = check(id, generation); e != errc{}) {
            return e;
        }
        member_record& m = *members().find(id);
        if (m.generation == 0 || (rebalance_.is_stopped() && m.revoking.empty())) {
            return errc::rebalance_in_progress;
        }
        m.last_seen = now;
        return errc{};
    }

    // --- partitions and time ---------------------------------------------------------------------

    /// Sets how many partitions a topic has; 0 when it is deleted. Rebalances if somebody
    /// subscribes to it.
    void
    set_partitions(topic_id topic, std::uint32_t count, time_point now, group_decision_list& out) {
        run_due(now, out);
        if (rebalance_.owners().set_partitions(topic, count) && members().subscribe_to(topic)) {
            changed(now, out);
        }
    }

    /// When `run_due` has to be called at the latest; `never` if there is nothing to come. Signs
    /// of life do not move it, so that they cost nothing: it may then find nothing due. O(1).
    [[nodiscard]] time_point next_deadline() const noexcept { return earliest_; }

    /// Removes who has been silent for too long, and ends the wait for more members. O(1) if
    /// nothing is due, else O(members) and a rebalance.
    void run_due(time_point now, group_decision_list& out) {
        if (now < earliest_) {
            return;
        }
        std::vector<std::pair<member_id, removal_reason>> late;
        for (const auto& [id, m] : members()) {
            if (const auto [deadline, reason] = m.deadline(); deadline <= now) {
                late.emplace_back(id, reason);
            }
        }
        for (const auto& [id, reason] : late) {
            remove(*members().find(id), reason, out);
        }
        if (!late.empty()) {
            changed(now, out);
        }
        end_waiting(now, out);
        earliest_ = wait_until_;
        for (const auto& [id, m] : members()) {
            watch(m.deadline().first);
        }
    }

    // --- what it is ------------------------------------------------------------------------------

    [[nodiscard]] const group_options& options() const noexcept { return options_; }
    [[nodiscard]] generation_type generation() const noexcept { return rebalance_.generation(); }
    [[nodiscard]] std::size_t size() const noexcept { return members().size(); }
    [[nodiscard]] bool empty() const noexcept { return members().empty(); }
    /// O(members).
    [[nodiscard]] group_state state() const noexcept {
        return members().empty()                                        ? group_state::empty
               : wait_until_ != never                                   ? group_state::waiting
               : rebalance_.is_stopped() || members().have_to_confirm() ? group_state::revoking
                                                                        : group_state::stable;
    }
    /// Who may work on a partition, or has not confirmed yet that it let go of it.
    [[nodiscard]] member_id owner_of(topic_partition p) const noexcept {
        return rebalance_.owners().owner_of(p);
    }
    /// Null if there is none of that id.
    [[nodiscard]] const member_record* find(member_id id) const noexcept {
        return members().find(id);
    }
    /// Whether a member subscribes to that topic, one that is away included.
    [[nodiscard]] bool is_subscribed(topic_id topic) const noexcept {
        return members().subscribe_to(topic);
    }
    /// Another number whenever `is_subscribed` may give another answer.
    [[nodiscard]] std::uint64_t subscriptions() const noexcept { return subscriptions_; }
    /// When the last member went; the earliest moment if there never was one.
    [[nodiscard]] time_point emptied_at() const noexcept { return emptied_at_; }
    /// For a group of which a former life had members until then.
    void restore_emptied(time_point when) noexcept { emptied_at_ = when; }

    [[nodiscard]] const group_members& members() const noexcept { return rebalance_.members(); }

private:
    [[nodiscard]] group_members& members() noexcept { return rebalance_.members(); }

    [[nodiscard]] static std::vector<topic_id> sorted(std::span<const topic_id> topics) {
        std::vector<topic_id> list(topics.begin(), topics.end());
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
        return list;
    }

    void watch(time_point deadline) noexcept { earliest_ = std::min(earliest_, deadline); }

    [[nodiscard]] errc check(member_id id, generation_type generation) const noexcept {
        const member_record* const m = members().find(id);
        if (m == nullptr || m->is_away) {
            return m == nullptr && members().is_fenced(id) ? errc::fenced : errc::unknown_member;
        }
        return m->generation != generation ? errc::fenced : errc{};
    }

    [[nodiscard]] bool is_unsettled(const member_record& m) const noexcept {
        return rebalance_.is_stopped() || m.generation == 0 || !m.revoking.empty();
    }

    void remove(member_record& m, removal_reason reason, group_decision_list& out) {
        rebalance_.remove(m, reason, out);
        ++subscriptions_;
    }

    member_id take_over(
        member_record& old,
        const member_options& options,
        std::vector<topic_id> topics,
        time_point now,
        group_decision_list& out) {
        member_record& m = rebalance_.replace(old, out);
        const member_id id = m.id;
        m.options = options;
        m.last_seen = now;
        m.last_poll = now;
        watch(m.deadline().first);
        if (topics != m.topics) {
            m.topics = std::move(topics);
            ++subscriptions_;
            changed(now, out);
        } else {
            go_on(now, out);
        }
        return id;
    }

    void changed(time_point now, group_decision_list& out) {
        if (members().empty()) {
            emptied_at_ = now;
            if (std::exchange(wait_until_, never) != never) {
                return; // nobody ever owned anything
            }
        }
        if (wait_until_ == never) { // else the end of the wait will look
            rebalance_.start(now, out);
            watch_confirmations(now);
        }
    }

    void go_on(time_point now, group_decision_list& out) {
        rebalance_.go_on(now, out);
        watch_confirmations(now);
    }

    /// Who was asked just now has the longest time, and for the others somebody watches already.
    void watch_confirmations(time_point now) noexcept {
        if (members().have_to_confirm()) {
            watch(saturating_add(now, options_.rebalance_timeout));
        }
    }

    /// The end of the wait comes later if somebody came during it (Kafka, InitialDelayedJoin).
    void end_waiting(time_point now, group_decision_list& out) {
        while (wait_until_ <= now && wait_until_ != never) {
            if (!has_newcomer_ || wait_left_ <= duration::zero()) {
                wait_until_ = never;
                changed(now, out);
                return;
            }
            const duration more = std::min(options_.initial_rebalance_delay, wait_left_);
            wait_left_ -= more;
            wait_until_ = saturating_add(wait_until_, more);
            has_newcomer_ = false;
        }
    }

    group_options options_;
    group_rebalance rebalance_;
    std::uint64_t subscriptions_ = 0;
    time_point earliest_ = never;
    time_point emptied_at_ = time_point::min();
    time_point wait_until_ = never; ///< Before the first rebalance.
    duration wait_left_{0};         ///< By how much more it may be put off.
    bool has_newcomer_ = false;     ///< Somebody came since it was last put off.
};

} // namespace railmq::core
