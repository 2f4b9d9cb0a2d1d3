// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/assignment.hpp>
#include <railmq/core/group_coordinator.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/group_options.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// A position in a partition: of a record, or of the next one to come.
using log_offset = std::uint64_t;

/// How far a group has come in a partition.
struct committed_offset {
    log_offset offset = 0; ///< The next record to read.
    std::string metadata{};
    time_point at{}; ///< When it was committed.
};

/// One partition of a commit.
struct offset_commit {
    topic_partition partition{};
    log_offset offset = 0; ///< The next record to read.
    std::string_view metadata{};
};

/// Whether a commit may go back behind what was committed before.
enum class rewinding : unsigned char { refused, allowed };

/// What a partition's log holds.
struct log_extent {
    log_offset first = 0; ///< Of the oldest record; `end` if there is none.
    log_offset end = 0;   ///< Of the next record to be written.
    /// From here on every offset has a record; before it some may not. 0: there are no holes.
    log_offset dense_from = 0;
};

/// How many records a group has still to read. Nothing if it is not known: nothing is committed,
/// or there are holes ahead, where the offsets would count too many (Redis, XINFO GROUPS). O(1).
[[nodiscard]] inline std::optional<std::uint64_t>
lag(const committed_offset* committed, const log_extent& log) noexcept {
    if (committed == nullptr) {
        return std::nullopt;
    }
    const log_offset position = std::max(committed->offset, log.first);
    if (position >= log.end) {
        return 0;
    }
    if (position < log.dense_from) {
        return std::nullopt;
    }
    return log.end - position;
}

/// Where a member begins to read a partition that it was assigned: at the committed offset if the
/// log still has it, else as `reset` says; `offset_out_of_range` if that is `none`. A committed
/// offset behind the end does not exist either. (Kafka, auto.offset.reset.) O(1).
[[nodiscard]] inline std::pair<errc, log_offset> starting_position(
    const committed_offset* committed, offset_reset reset, const log_extent& log) noexcept {
    if (committed != nullptr && committed->offset >= log.first && committed->offset <= log.end) {
        return {errc{}, committed->offset};
    }
    switch (reset) {
    case offset_reset::earliest: return {errc{}, log.first};
    case offset_reset::latest: return {errc{}, log.end};
    case offset_reset::none: break;
    }
    return {errc::offset_out_of_range, 0};
}

/// The committed offsets of a group.
///
/// Only the owner of a partition commits it, in the generation that is; anything else is refused
/// and changes nothing, so a member that has lost a partition cannot move what its successor has
/// committed. And no commit goes back unless it says so (elsewhere a broker takes any offset).
///
/// An offset expires when it is `group_options::offset_retention` old and nobody subscribes to its
/// topic. As long as somebody does it never expires, however long nothing is committed; when the
/// last member goes, the time counts from then (Kafka, OffsetMetadataManager and KAFKA-4682).
///
/// Copyable. Costs that are not named are O(log partitions). Not safe to use from two threads at
/// once.
class group_offsets {
public:
    /// Commits in the name of a member, or of `nobody` while the group has no members. An error of
    /// `group_coordinator::admit_commit` refuses it as a whole; else each partition has a result
    /// of its own, see `judge`. It is the caller who makes sure that the offsets exist.
    /// Precondition: `results` is as long as `what`.
    /// A partition has the strong guarantee: throws `std::bad_alloc`, those before it are done.
    errc commit(
        group_coordinator& group,
        member_id member,
        generation_type generation,
        std::span<const offset_commit> what,
        std::span<errc> results,
        rewinding back,
        time_point now,
        group_decision_list& out) {
        RAILMQ_ASSERT(results.size() == what.size());
        if (const errc e = group.admit_commit(member, generation, now, out); e != errc{}) {
            std::fill(results.begin(), results.end(), e);
            return e;
        }
        for (std::size_t i = 0; i < what.size(); ++i) {
            results[i] = judge(group, member, what[i], back);
            if (results[i] == errc{}) {
                store(group, what[i].partition, what[i].offset, what[i].metadata, now);
            }
        }
        return errc{};
    }

    /// What would become of one partition of a commit that is admitted:
    ///  - `fenced`: the member does not own it;
    ///  - `message_too_large`: its metadata is longer than `group_options::max_metadata_bytes`;
    ///  - `invalid_argument`: it would go back, and that is refused.
    /// A transaction asks this of each before it commits all.
    [[nodiscard]] errc judge(
        const group_coordinator& group,
        member_id member,
        const offset_commit& what,
        rewinding back) const noexcept {
        if (member != nobody) {
            const member_record* const m = group.find(member);
            if (m == nullptr || !m->owns(what.partition)) {
                return errc::fenced;
            }
        }
        if (what.metadata.size() > group.options().max_metadata_bytes) {
            return errc::message_too_large;
        }
        const committed_offset* const before = find(what.partition);
        if (back == rewinding::refused && before != nullptr && what.offset < before->offset) {
            return errc::invalid_argument;
        }
        return errc{};
    }

    /// Sets the offset of a partition to anything, forward or back; `in_use` as long as the group
    /// has members. Strong guarantee: throws `std::bad_alloc`.
    errc
    reset(const group_coordinator& group, topic_partition p, log_offset offset, time_point now) {
        if (!group.empty()) {
            return errc::in_use;
        }
        store(group, p, offset, {}, now);
        return errc{};
    }

    /// Takes back what was committed since `before` was what there is.
    void put_back(topic_partition p, std::optional<committed_offset>& before) noexcept {
        const auto at = offsets_.find(p);
        if (at != offsets_.end() && before) {
            std::swap(at->second, *before);
        } else if (at != offsets_.end()) {
            offsets_.erase(at);
        }
    }

    /// What a journal has kept. Strong guarantee: throws `std::bad_alloc`.
    void restore(topic_partition p, committed_offset o) {
        offsets_.insert_or_assign(p, std::move(o));
        is_looked_through_ = false;
    }

    /// Null if nothing is committed. Valid until the next call that changes anything.
    [[nodiscard]] const committed_offset* find(topic_partition p) const noexcept {
        const auto at = offsets_.find(p);
        return at == offsets_.end() ? nullptr : &at->second;
    }

    [[nodiscard]] std::size_t size() const noexcept { return offsets_.size(); }
    /// Calls `f(topic_partition, const committed_offset&)` for each, in order. O(partitions).
    template <class F>
    void for_each(F&& f) const {
        for (const auto& [p, o] : offsets_) {
            f(p, o);
        }
    }

    /// Forgets one; `in_use` while somebody subscribes to its topic, `not_found` if there is none.
    errc erase(const group_coordinator& group, topic_partition p) noexcept {
        if (group.is_subscribed(p.topic)) {
            return errc::in_use;
        }
        return offsets_.erase(p) == 0 ? errc::not_found : errc{};
    }

    /// Forgets those of a topic that is deleted, subscribed to or not; returns how many.
    /// O(log partitions + how many).
    std::size_t erase_topic(topic_id topic) noexcept {
        const auto first = offsets_.lower_bound({topic, 0});
        auto last = first;
        std::size_t n = 0;
        while (last != offsets_.end() && last->first.topic == topic) {
            ++last;
            ++n;
        }
        offsets_.erase(first, last);
        return n;
    }

    /// Forgets all, as the group is deleted; `in_use` as long as it has members.
    errc clear(const group_coordinator& group) noexcept {
        if (!group.empty()) {
            return errc::in_use;
        }
        offsets_.clear();
        due_ = never;
        return errc{};
    }

    /// When `expire` has to be called at the latest; `never` if nothing can expire. It may then
    /// find nothing due, as offsets that are committed again are not moved at once.
    /// O(1), but O(partitions) after subscriptions have changed.
    [[nodiscard]] time_point next_deadline(const group_coordinator& group) noexcept {
        if (!is_looked_through_ || subscriptions_ != group.subscriptions()) {
            look_through(group);
        }
        return due_;
    }

    /// Forgets what has expired and adds it to `gone`, in order. O(1) if nothing is due, else
    /// O(partitions). Throws `std::bad_alloc`; then what is not in `gone` is still there.
    void expire(const group_coordinator& group, time_point now, partition_list& gone) {
        if (now < next_deadline(group)) {
            return;
        }
        for (auto at = offsets_.begin(); at != offsets_.end();) {
            if (expires_at(group, at->first, at->second) <= now) {
                gone.push_back(at->first);
                at = offsets_.erase(at);
            } else {
                ++at;
            }
        }
        look_through(group);
    }

private:
    [[nodiscard]] static time_point
    expires_at(const group_coordinator& group, topic_partition p, const committed_offset& o) {
        if (group.is_subscribed(p.topic)) {
            return never;
        }
        const time_point since = group.empty() ? std::max(o.at, group.emptied_at()) : o.at;
        return saturating_add(since, group.options().offset_retention);
    }

    void look_through(const group_coordinator& group) noexcept {
        due_ = never;
        for (const auto& [p, o] : offsets_) {
            due_ = std::min(due_, expires_at(group, p, o));
        }
        subscriptions_ = group.subscriptions();
        is_looked_through_ = true;
    }

    void store(
        const group_coordinator& group,
        topic_partition p,
        log_offset offset,
        std::string_view metadata,
        time_point now) {
        std::string text{metadata};
        committed_offset& o = offsets_[p];
        o.offset = offset;
        o.metadata.swap(text);
        o.at = now;
        due_ = std::min(due_, expires_at(group, p, o));
    }

    std::map<topic_partition, committed_offset> offsets_{};
    time_point due_ = never; ///< Of what is there, with the subscriptions there were.
    std::uint64_t subscriptions_ = 0;
    bool is_looked_through_ = false;
};

} // namespace railmq::core
