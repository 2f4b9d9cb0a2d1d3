// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>
#include <railmq/core/assignors.hpp>
#include <railmq/core/group_decisions.hpp>
#include <railmq/core/group_members.hpp>
#include <railmq/core/partition_owners.hpp>
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
        , generation_{last_generation} {}

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
            if (member_record* const m = members_.find_instance(options.instance_id)) {
                return {errc{}, take_over(*m, options, sorted(topics), now, out)};
            }
        }
        const bool was_empty = members_.empty();
        const member_record& m = members_.add(options, sorted(topics), now);
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
        member_record& m = *members_.find(id);
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
        member_record& m = *members_.find(id);
        m.last_seen = now;
        return is_unsettled(m) ? errc::rebalance_in_progress : errc{};
    }

    /// As `heartbeat`, from a member that asks for messages.
    errc poll(member_id id, generation_type generation, time_point now, group_decision_list& out) {
        const errc e = heartbeat(id, generation, now, out);
        if (e == errc{} || e == errc::rebalance_in_progress) {
            members_.find(id)->last_poll = now;
        }
        return e;
    }

    /// The member has let go of everything it was asked for in that generation. It does no harm to
    /// confirm when there was nothing.
    errc confirm_revoked(
        member_id id, generation_type generation, time_point now, group_decision_list& out) {
        run_due(now, out);
        if (const errc e = check(id, generation); e != errc{}) {
            return e;
        }
        member_record& m = *members_.find(id);
        m.last_seen = now;
        release(m);
        go_on(now, out);
        return errc{};
    }

    /// The member goes, in order: what it owned is free. A static one stays a member, and keeps
    /// what it owned for its return, until its session times out.
    errc leave(member_id id, time_point now, group_decision_list& out) {
        run_due(now, out);
        member_record* const m = members_.find(id);
        if (m == nullptr || m->is_away) {
            return members_.is_fenced(id) ? errc::fenced : errc::unknown_member;
        }
        if (!m->is_static()) {
            remove(*m, removal_reason::left, out);
            changed(now, out);
            return errc{};
        }
        m->is_away = true;
        m->last_seen = now;
        watch(m->deadline().first);
        release(*m);
        go_on(now, out);
        return errc{};
    }

    /// Removes a static member for good, whether it is there or away; `not_found` if there is none
    /// of that name. O(members).
    errc remove_instance(std::string_view name, time_point now, group_decision_list& out) {
        run_due(now, out);
        member_record* const m = members_.find_instance(name);
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
            return members_.empty() ? errc{} : errc::unknown_member;
        }
        if (members_.empty() && generation_ == 0) {
            return errc::fenced;
        }
        if (const errc e = check(id, generation); e != errc{}) {
            return e;
        }
        member_record& m = *members_.find(id);
        if (m.generation == 0 || (is_stopped_ && m.revoking.empty())) {
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
        if (owners_.set_partitions(topic, count) && members_.subscribe_to(topic)) {
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
        for (const auto& [id, m] : members_) {
            if (const auto [deadline, reason] = m.deadline(); deadline <= now) {
                late.emplace_back(id, reason);
            }
        }
        for (const auto& [id, reason] : late) {
            remove(*members_.find(id), reason, out);
        }
        if (!late.empty()) {
            changed(now, out);
        }
        end_waiting(now, out);
        earliest_ = wait_until_;
        for (const auto& [id, m] : members_) {
            watch(m.deadline().first);
        }
    }

    // --- what it is ------------------------------------------------------------------------------

    [[nodiscard]] const group_options& options() const noexcept { return options_; }
    [[nodiscard]] generation_type generation() const noexcept { return generation_; }
    [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
    [[nodiscard]] bool empty() const noexcept { return members_.empty(); }
    /// O(members).
    [[nodiscard]] group_state state() const noexcept {
        return members_.empty()                            ? group_state::empty
               : wait_until_ != never                      ? group_state::waiting
               : is_stopped_ || members_.have_to_confirm() ? group_state::revoking
                                                           : group_state::stable;
    }
    /// Who may work on a partition, or has not confirmed yet that it let go of it.
    [[nodiscard]] member_id owner_of(topic_partition p) const noexcept {
        return owners_.owner_of(p);
    }
    /// Null if there is none of that id.
    [[nodiscard]] const member_record* find(member_id id) const noexcept {
        return members_.find(id);
    }
    /// Whether a member subscribes to that topic, one that is away included.
    [[nodiscard]] bool is_subscribed(topic_id topic) const noexcept {
        return members_.subscribe_to(topic);
    }
    /// Another number whenever `is_subscribed` may give another answer.
    [[nodiscard]] std::uint64_t subscriptions() const noexcept { return subscriptions_; }
    /// When the last member went; the earliest moment if there never was one.
    [[nodiscard]] time_point emptied_at() const noexcept { return emptied_at_; }

private:
    [[nodiscard]] static std::vector<topic_id> sorted(std::span<const topic_id> topics) {
        std::vector<topic_id> list(topics.begin(), topics.end());
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
        return list;
    }

    void watch(time_point deadline) noexcept { earliest_ = std::min(earliest_, deadline); }

    [[nodiscard]] errc check(member_id id, generation_type generation) const noexcept {
        const member_record* const m = members_.find(id);
        if (m == nullptr || m->is_away) {
            return m == nullptr && members_.is_fenced(id) ? errc::fenced : errc::unknown_member;
        }
        return m->generation != generation ? errc::fenced : errc{};
    }

    [[nodiscard]] bool is_unsettled(const member_record& m) const noexcept {
        return is_stopped_ || m.generation == 0 || !m.revoking.empty();
    }

    /// What the member was asked for is free.
    void release(member_record& m) noexcept {
        owners_.give(m.revoking, nobody);
        m.revoking.clear();
        m.confirm_by = never;
    }

    void remove(member_record& m, removal_reason reason, group_decision_list& out) {
        partition_list lost = merged(m.owned, m.revoking);
        owners_.give(lost, nobody);
        out.emplace_back(group_decisions::removed{m.id, reason, std::move(lost)});
        members_.erase(m.id);
        ++subscriptions_;
    }

    member_id take_over(
        member_record& old,
        const member_options& options,
        std::vector<topic_id> topics,
        time_point now,
        group_decision_list& out) {
        if (!old.is_away) {
            out.emplace_back(group_decisions::removed{
                old.id, removal_reason::fenced, merged(old.owned, old.revoking)});
        }
        release(old);
        member_record& m = members_.replace(old.id);
        m.options = options;
        m.is_away = false;
        m.last_seen = now;
        m.last_poll = now;
        watch(m.deadline().first);
        const member_id id = m.id;
        owners_.give(m.owned, id);
        if (m.generation != 0) {
            out.emplace_back(group_decisions::assign{id, m.generation, m.owned});
        }
        if (topics != m.topics) {
            m.topics = std::move(topics);
            ++subscriptions_;
            changed(now, out);
        } else {
            go_on(now, out);
        }
        return id;
    }

    /// Something is different, and who owns what has to be decided anew.
    void changed(time_point now, group_decision_list& out) {
        if (members_.empty()) {
            become_empty(now, out);
        } else if (wait_until_ != never) {
            return; // the end of the wait will look
        } else if (options_.assignor == assignor::cooperative_sticky) {
            run_round(now, out);
        } else if (!is_stopped_) {
            stop_all(now, out);
        } else {
            go_on(now, out);
        }
    }

    /// Somebody has let go: ends the rebalance if that was the last one.
    void go_on(time_point now, group_decision_list& out) {
        if (members_.have_to_confirm()) {
            return;
        }
        if (is_stopped_) {
            give_out_all(out);
        } else if (members_.have_promises()) {
            run_round(now, out);
        }
    }

    void become_empty(time_point now, group_decision_list& out) {
        is_stopped_ = false;
        emptied_at_ = now;
        if (std::exchange(wait_until_, never) != never) {
            return; // nobody ever owned anything
        }
        ++generation_;
        out.emplace_back(group_decisions::rebalanced{generation_, 0});
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

    void stop_all(time_point now, group_decision_list& out) {
        is_stopped_ = true;
        for (auto& [id, m] : members_) {
            m.previous = m.owned;
            m.revoking.swap(m.owned);
            if (m.is_away) {
                release(m);
            } else {
                ask_for_revocation(m, now, out);
            }
        }
        go_on(now, out);
    }

    void give_out_all(group_decision_list& out) {
        const auto subscribers = members_.subscribers(true);
        assignment target = assign(options_.assignor, subscribers, owners_.sizes());
        is_stopped_ = false;
        ++generation_;
        out.emplace_back(group_decisions::rebalanced{generation_, members_.size()});
        std::size_t place = 0;
        for (auto& [id, m] : members_) {
            m.previous.clear();
            m.owned = std::move(target[place++]);
            m.generation = generation_;
            owners_.give(m.owned, id);
            tell(m, m.owned, out);
        }
    }

    /// One round of a cooperative rebalance.
    void run_round(time_point now, group_decision_list& out) {
        const assignment target = assign_sticky(members_.subscribers(false), owners_.sizes());
        std::size_t place = 0;
        for (auto& [id, m] : members_) {
            if (m.is_away) { // it works on nothing, so there is nothing to wait for
                m.revoking = without(m.owned, target[place]);
                m.owned = without(m.owned, m.revoking);
                release(m);
            }
            ++place;
        }
        const auto is_free = [&](topic_partition p, std::size_t) {
            return owners_.owner_of(p) == nobody;
        };
        cooperative_round round = first_round(members_.subscribers(false), target, is_free);
        ++generation_;
        out.emplace_back(group_decisions::rebalanced{generation_, members_.size()});
        place = 0;
        for (auto& [id, m] : members_) {
            partition_list added = without(round.now[place], m.owned);
            m.owned = std::move(round.now[place]);
            m.promised = std::move(round.later[place]);
            m.revoking = merged(m.revoking, round.revoked[place]);
            m.generation = generation_;
            owners_.give(added, id);
            tell(m, std::move(added), out);
            ask_for_revocation(m, now, out);
            ++place;
        }
    }

    /// Who is away is told when it comes back.
    static void tell(const member_record& m, partition_list added, group_decision_list& out) {
        if (!m.is_away) {
            out.emplace_back(group_decisions::assign{m.id, m.generation, std::move(added)});
        }
    }

    /// A second request does not give more time for the first.
    void ask_for_revocation(member_record& m, time_point now, group_decision_list& out) {
        if (m.revoking.empty()) {
            return;
        }
        m.confirm_by = std::min(m.confirm_by, saturating_add(now, options_.rebalance_timeout));
        watch(m.confirm_by);
        out.emplace_back(group_decisions::revoke{m.id, m.generation, m.revoking});
    }

    group_options options_;
    group_members members_{};
    partition_owners owners_{};
    generation_type generation_;
    std::uint64_t subscriptions_ = 0;
    time_point earliest_ = never;
    time_point emptied_at_ = time_point::min();
    time_point wait_until_ = never; ///< Before the first rebalance.
    duration wait_left_{0};         ///< By how much more it may be put off.
    bool has_newcomer_ = false;     ///< Somebody came since it was last put off.
    bool is_stopped_ = false;       ///< A rebalance that stops everybody is under way.
};

} // namespace railmq::core
