// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>
#include <railmq/core/group_decisions.hpp>
#include <railmq/model/group_options.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// What a group knows of one of its members.
struct member_record {
    member_id id{};
    member_options options{};
    std::vector<topic_id> topics{}; ///< Sorted.
    partition_list owned{};         ///< It may work on these.
    partition_list revoking{};      ///< It was asked to let go of these and has not confirmed it.
    partition_list promised{};      ///< Meant for it, once their former owners have let go.
    partition_list previous{};      ///< What it had before everybody was stopped.
    generation_type generation = 0; ///< 0: it has not been assigned anything yet.
    time_point last_seen{};
    time_point last_poll{};
    time_point confirm_by = never;   ///< When it is removed if it does not confirm.
    bool is_away = false;            ///< A static one that has left, and may come back.
    std::vector<member_id> former{}; ///< Its earlier incarnations, oldest first.

    [[nodiscard]] bool is_static() const noexcept { return !options.instance_id.empty(); }

    [[nodiscard]] bool owns(topic_partition p) const {
        return contains(owned, p) || contains(revoking, p);
    }

    /// When it is removed unless something is heard from it, and why. Of equals the first reason
    /// in the order of `removal_reason`.
    [[nodiscard]] std::pair<time_point, removal_reason> deadline() const noexcept {
        std::pair first{
            saturating_add(last_seen, options.session_timeout), removal_reason::session_timeout};
        if (!is_away) { // who is away has nothing to do
            const std::pair poll{
                saturating_add(last_poll, options.max_poll_interval), removal_reason::poll_timeout};
            const std::pair confirm{confirm_by, removal_reason::rebalance_timeout};
            first = std::min({first, poll, confirm});
        }
        return first;
    }
};

/// The members of a group: their ids, static members' names, and who was fenced.
///
/// Ids are given in order and never twice. References stay valid until the member is erased or
/// replaced. Copyable. Not safe to use from two threads at once.
class group_members {
public:
    using map_type = std::map<member_id, member_record>;

    /// Of a static member this many earlier incarnations are told that they are fenced; older ones
    /// are unknown.
    static constexpr std::size_t max_former = 64;

    [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
    [[nodiscard]] bool empty() const noexcept { return members_.empty(); }

    /// In the order of ids, which is the order of joining.
    [[nodiscard]] auto begin() noexcept { return members_.begin(); }
    [[nodiscard]] auto end() noexcept { return members_.end(); }
    [[nodiscard]] auto begin() const noexcept { return members_.begin(); }
    [[nodiscard]] auto end() const noexcept { return members_.end(); }

    /// Takes in somebody new. Precondition: no member has its `instance_id`. O(log members).
    member_record& add(member_options options, std::vector<topic_id> topics, time_point now) {
        member_record& m = members_[member_id{last_id_ + 1}];
        ++last_id_;
        m.id = member_id{last_id_};
        m.options = std::move(options);
        m.topics = std::move(topics);
        m.last_seen = now;
        m.last_poll = now;
        return m;
    }

    /// The member of that id, null if there is none. O(log members).
    [[nodiscard]] member_record* find(member_id id) noexcept {
        const auto at = members_.find(id);
        return at == members_.end() ? nullptr : &at->second;
    }
    [[nodiscard]] const member_record* find(member_id id) const noexcept {
        const auto at = members_.find(id);
        return at == members_.end() ? nullptr : &at->second;
    }

    /// The static member of that name, null if there is none. O(members).
    [[nodiscard]] member_record* find_instance(std::string_view name) noexcept {
        const auto at = std::find_if(members_.begin(), members_.end(), [&](const auto& entry) {
            return entry.second.is_static() && entry.second.options.instance_id == name;
        });
        return at == members_.end() ? nullptr : &at->second;
    }

    /// Whether the id was that of a member that a newer incarnation has replaced. O(members).
    [[nodiscard]] bool is_fenced(member_id id) const noexcept {
        return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
            const auto& former = entry.second.former;
            return std::binary_search(former.begin(), former.end(), id);
        });
    }

    /// Gives a member a new id: what has the old one is fenced from now on. O(log members).
    member_record& replace(member_id old) {
        auto node = members_.extract(old);
        member_record& m = node.mapped();
        if (m.former.size() == max_former) {
            m.former.erase(m.former.begin());
        }
        m.former.push_back(old);
        m.id = member_id{++last_id_};
        node.key() = m.id;
        return members_.insert(std::move(node)).position->second;
    }

    void erase(member_id id) noexcept { members_.erase(id); }

    /// Whether anybody subscribes to that topic. O(members x log topics).
    [[nodiscard]] bool subscribe_to(topic_id topic) const noexcept {
        return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
            const auto& topics = entry.second.topics;
            return std::binary_search(topics.begin(), topics.end(), topic);
        });
    }

    /// Whether somebody has to confirm a revocation. O(members).
    [[nodiscard]] bool have_to_confirm() const noexcept {
        return std::any_of(members_.begin(), members_.end(), [](const auto& entry) {
            return !entry.second.revoking.empty();
        });
    }

    /// Whether somebody waits for what it was promised. O(members).
    [[nodiscard]] bool have_promises() const noexcept {
        return std::any_of(members_.begin(), members_.end(), [](const auto& entry) {
            return !entry.second.promised.empty();
        });
    }

    /// What an assignor is told of them, in the order of ids. The spans refer to the members.
    [[nodiscard]] std::vector<subscriber> subscribers(bool before_the_stop) const {
        std::vector<subscriber> all;
        all.reserve(members_.size());
        for (const auto& [id, m] : members_) {
            all.push_back(
                {.id = id,
                 .instance_id = m.options.instance_id,
                 .topics = m.topics,
                 .owned = before_the_stop ? m.previous : m.owned,
                 .generation = m.generation,
                 .promised = m.promised});
        }
        return all;
    }

private:
    map_type members_{};
    std::uint64_t last_id_ = 0;
};

/// Two sorted lists as one.
[[nodiscard]] inline partition_list merged(const partition_list& a, const partition_list& b) {
    partition_list all;
    all.reserve(a.size() + b.size());
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
    return all;
}

/// What is in the first list and not in the second one.
[[nodiscard]] inline partition_list without(const partition_list& a, const partition_list& b) {
    partition_list rest;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
    return rest;
}

} // namespace railmq::core
