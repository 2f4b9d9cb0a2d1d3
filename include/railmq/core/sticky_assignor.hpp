// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace railmq::core {

/// The work of one call of `assign_sticky`.
///
/// Three steps. Every member keeps what it owned; whatever is left goes to the members with the
/// least; and as long as a partition can travel from a member to another one that has at least two
/// fewer, directly or by a chain in which each hands one on to the next, it does. Without such a
/// chain no assignment is better balanced (Harvey, Ladner, Lovasz and Tamir, "Semi-matchings for
/// bipartite graphs and load balancing", 2003), also when members subscribe to different topics.
/// With equal subscriptions every chain has one link, so the fewest partitions move that can.
class sticky_round {
public:
    sticky_round(std::span<const subscriber> members, std::span<const topic_size> topics)
        : members_{members}
        , topics_{topics}
        , order_{serving_order(members)}
        , load_(members.size())
        , added_(members.size())
        , served_(members.size())
        , reached_(members.size())
        , link_(members.size())
        , held_(members.size())
        , takers_(topics.size())
        , expanded_(topics.size())
        , first_(topics.size() + 1) {
        std::size_t count = 0;
        for (std::size_t t = 0; t < topics.size(); ++t) {
            first_[t] = count;
            count += topics[t].partitions;
        }
        first_[topics.size()] = count;
        owner_.assign(count, none);
        origin_.assign(count, none);
        for (std::size_t place = 0; place < order_.size(); ++place) {
            served_[place] = &members_[order_[place]];
            for (const topic_id topic : served_[place]->topics) {
                if (const std::size_t t = find(topic); t != none) {
                    takers_[t].push_back(place);
                    held_[place].push_back({t, {}});
                }
            }
        }
    }

    assignment run() {
        settle_claims();
        keep(&subscriber::promised, false);
        give_out_the_rest();
        balance();
        assignment result(members_.size());
        for (std::size_t place = 0; place < order_.size(); ++place) {
            partition_list& list = result[order_[place]];
            list.reserve(load_[place]);
            for (const held_topic& h : held_[place]) {
                for (const std::uint32_t p : h.partitions) {
                    list.push_back({topics_[h.topic].topic, p});
                }
            }
            std::sort(list.begin(), list.end());
        }
        return result;
    }

private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    /// What a member has of one topic to which it subscribes. Members and topics are counted
    /// through here: a place is a member's number in the order of serving.
    struct held_topic {
        std::size_t topic;
        std::vector<std::uint32_t> partitions;
    };

    /// How a search came to a member: with a partition of that topic, from that one.
    struct link {
        std::size_t from;
        std::size_t topic;
        std::size_t length;
    };

    [[nodiscard]] std::size_t find(topic_id topic) const noexcept {
        const auto at = std::lower_bound(
            topics_.begin(), topics_.end(), topic, [](const topic_size& s, topic_id t) {
                return s.topic < t;
            });
        return at != topics_.end() && at->topic == topic
                   ? static_cast<std::size_t>(at - topics_.begin())
                   : none;
    }

    [[nodiscard]] held_topic& held(std::size_t place, std::size_t topic) noexcept {
        auto& list = held_[place];
        return *std::lower_bound(
            list.begin(), list.end(), topic, [](const held_topic& h, std::size_t t) {
                return h.topic < t;
            });
    }

    void put(std::size_t place, std::size_t topic, std::uint32_t p) {
        held(place, topic).partitions.push_back(p);
        owner_[first_[topic] + p] = place;
        ++load_[place];
        added_[place] += origin_[first_[topic] + p] != place ? 1 : 0;
    }

    /// The place of a partition among all, if it exists and the member may have it.
    [[nodiscard]] std::size_t index_of(std::size_t place, topic_partition p) const noexcept {
        const std::size_t t = find(p.topic);
        return t != none && p.partition < topics_[t].partitions &&
                       subscribes(*served_[place], p.topic)
                   ? first_[t] + p.partition
                   : none;
    }

    /// Of several who claim a partition the one with the highest generation is right; if two of
    /// them have it, nobody is (Kafka, AbstractStickyAssignor).
    void settle_claims() {
        std::vector<generation_type> best(origin_.size());
        std::vector<bool> is_disputed(origin_.size());
        for (std::size_t place = 0; place < order_.size(); ++place) {
            for (const topic_partition p : served_[place]->owned) {
                const std::size_t i = index_of(place, p);
                if (i == none) {
                    continue;
                }
                const generation_type g = served_[place]->generation;
                if (origin_[i] == none || g > best[i]) {
                    origin_[i] = place;
                    best[i] = g;
                    is_disputed[i] = false;
                } else if (g == best[i]) {
                    is_disputed[i] = true;
                }
            }
        }
        for (std::size_t i = 0; i < origin_.size(); ++i) {
            if (is_disputed[i]) {
                origin_[i] = none;
            }
        }
        keep(&subscriber::owned, true);
    }

    void keep(std::span<const topic_partition> subscriber::*list, bool only_own) {
        for (std::size_t place = 0; place < order_.size(); ++place) {
            for (const topic_partition p : served_[place]->*list) {
                const std::size_t i = index_of(place, p);
                if (i != none && owner_[i] == none && (!only_own || origin_[i] == place)) {
                    put(place, find(p.topic), p.partition);
                }
            }
        }
    }

    /// To those with the least, at first what the fewest may have.
    void give_out_the_rest() {
        std::vector<std::size_t> by_takers(topics_.size());
        std::iota(by_takers.begin(), by_takers.end(), std::size_t{0});
        std::sort(by_takers.begin(), by_takers.end(), [&](std::size_t a, std::size_t b) {
            return std::pair{takers_[a].size(), a} < std::pair{takers_[b].size(), b};
        });
        using entry = std::pair<std::size_t, std::size_t>; // load, place
        for (const std::size_t t : by_takers) {
            std::vector<entry> entries;
            entries.reserve(takers_[t].size());
            for (const std::size_t place : takers_[t]) {
                entries.emplace_back(load_[place], place);
            }
            std::priority_queue<entry, std::vector<entry>, std::greater<>> least{
                std::greater<>{}, std::move(entries)};
            for (std::uint32_t p = 0; p < topics_[t].partitions && !least.empty(); ++p) {
                if (owner_[first_[t] + p] != none) {
                    continue;
                }
                const std::size_t place = least.top().second;
                least.pop();
                put(place, t, p);
                least.emplace(load_[place], place);
            }
        }
    }

    /// Always from whoever has the most, or one that gave too much would have to be given to; of
    /// equals first from one that can give what it did not own before. Each move lowers the sum of
    /// the squares of what members have, so this ends.
    void balance() {
        using entry = std::tuple<std::size_t, bool, std::size_t>;
        const std::size_t count = order_.size();
        const auto entry_of = [&](std::size_t place) {
            return entry{load_[place], added_[place] != 0, count - place}; // the first places first
        };
        for (bool moved = true; moved;) {
            moved = false;
            std::priority_queue<entry> most;
            for (std::size_t place = 0; place < count; ++place) {
                most.push(entry_of(place));
            }
            const std::size_t heaviest = count == 0 ? 0 : load_[count - std::get<2>(most.top())];
            with_load_.assign(heaviest + 1, 0);
            for (const std::size_t load : load_) {
                ++with_load_[load];
            }
            least_ = 0;
            while (!most.empty()) {
                const auto [load, is_fresh, rank] = most.top();
                most.pop();
                const std::size_t from = count - rank;
                if (load != load_[from]) {
                    continue; // it has got another entry since
                }
                if (const std::size_t to = lighter(from); to != none) {
                    shift(from, to);
                    most.push(entry_of(from));
                    most.push(entry_of(to));
                    moved = true;
                }
            }
        }
    }

    /// The end of a shortest chain from a member to one that has at least two fewer, the lightest
    /// of those; none if there is no such chain. Breadth first, each topic and member once.
    [[nodiscard]] std::size_t lighter(std::size_t start) {
        while (with_load_[least_] == 0) {
            ++least_; // nobody who gives has less afterwards than somebody who gets
        }
        if (load_[start] < least_ + 2) {
            return none;
        }
        ++search_;
        found_ = none;
        frontier_.assign(1, start);
        reached_[start] = search_;
        link_[start] = {none, none, 0};
        std::size_t seen = 1;
        for (std::size_t i = 0; i < frontier_.size(); ++i) {
            const std::size_t from = frontier_[i];
            if (found_ != none && link_[from].length >= link_[found_].length) {
                break;
            }
            // First over topics of which the member has something that it did not own before.
            for (const bool fresh : {true, false}) {
                if (fresh && added_[from] == 0) {
                    continue;
                }
                for (const held_topic& h : held_[from]) {
                    if (seen == order_.size()) {
                        break;
                    }
                    if (expanded_[h.topic] == search_ || h.partitions.empty() ||
                        (fresh && !has_fresh(from, h))) {
                        continue;
                    }
                    expanded_[h.topic] = search_;
                    seen += expand(start, from, h.topic);
                }
            }
        }
        return found_;
    }

    [[nodiscard]] bool has_fresh(std::size_t place, const held_topic& h) const noexcept {
        return std::any_of(h.partitions.begin(), h.partitions.end(), [&](std::uint32_t p) {
            return origin_[first_[h.topic] + p] != place;
        });
    }

    std::size_t expand(std::size_t start, std::size_t from, std::size_t topic) {
        std::size_t seen = 0;
        for (const std::size_t to : takers_[topic]) {
            if (reached_[to] == search_) {
                continue;
            }
            reached_[to] = search_;
            link_[to] = {from, topic, link_[from].length + 1};
            frontier_.push_back(to);
            ++seen;
            if (load_[to] + 2 <= load_[start] &&
                (found_ == none ||
                 (link_[to].length == link_[found_].length && load_[to] < load_[found_]))) {
                found_ = to;
            }
        }
        return seen;
    }

    /// Moves one partition along each link of the chain that ends at `to`.
    void shift(std::size_t start, std::size_t to) {
        --with_load_[load_[start]];
        ++with_load_[load_[start] - 1];
        --with_load_[load_[to]];
        ++with_load_[load_[to] + 1];
        while (to != start) {
            const link l = link_[to];
            auto& list = held(l.from, l.topic).partitions;
            const auto rank = [&](std::uint32_t p) {
                const std::size_t origin = origin_[first_[l.topic] + p];
                return origin == to ? 0 : origin != l.from ? 1 : 2;
            };
            // Home if it came from there, else one that is new here; of equals the last.
            const auto at =
                std::min_element(list.begin(), list.end(), [&](std::uint32_t a, std::uint32_t b) {
                    return rank(a) != rank(b) ? rank(a) < rank(b) : a > b;
                });
            const std::uint32_t p = *at;
            *at = list.back();
            list.pop_back();
            --load_[l.from];
            added_[l.from] -= origin_[first_[l.topic] + p] != l.from ? 1 : 0;
            put(to, l.topic, p);
            to = l.from;
        }
    }

    std::span<const subscriber> members_;
    std::span<const topic_size> topics_;
    std::vector<std::size_t> order_;
    std::vector<std::size_t> load_;
    std::vector<std::size_t> added_; ///< Of the load, what it did not own before.
    std::vector<const subscriber*> served_;
    std::vector<std::size_t> reached_; ///< By which search.
    std::vector<link> link_;
    std::vector<std::vector<held_topic>> held_;
    std::vector<std::vector<std::size_t>> takers_;
    std::vector<std::size_t> expanded_; ///< By which search.
    std::vector<std::size_t> first_;    ///< Of each topic, among all partitions.
    std::vector<std::size_t> owner_{};
    std::vector<std::size_t> origin_{}; ///< Who owned it before.
    std::vector<std::size_t> frontier_{};
    std::vector<std::size_t> with_load_{}; ///< How many members have that many.
    std::size_t least_ = 0;                ///< Nobody has fewer.
    std::size_t search_ = 0;
    std::size_t found_ = none;
};

/// Balanced, and moving as little as that allows (Kafka, StickyAssignor): with equal subscriptions
/// no two members differ by more than one partition and the fewest possible move; otherwise no
/// other assignment is better balanced. Claims to one and the same partition are settled by
/// `subscriber::generation`: the highest is right. Of topics that are not in `topics` nobody gets
/// anything.
///
/// `topics` is sorted. Deterministic. O(partitions x log members) and, for each partition that has
/// to move, at most one visit to every pair of member and topic, mostly one to every member.
/// Throws `std::bad_alloc`.
[[nodiscard]] inline assignment
assign_sticky(std::span<const subscriber> members, std::span<const topic_size> topics) {
    return sticky_round{members, topics}.run();
}

} // namespace railmq::core
