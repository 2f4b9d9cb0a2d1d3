// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/queue_options.hpp>
#include <railmq/testing/detail/story_book.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace railmq::testing::detail {

/// The order of hand-outs. A message has a place in it unless it was delayed or moved.
class order_rules {
public:
    explicit order_rules(story_book& book)
        : book_{book} {}

    /// By event `i`, a send, or a hand-out before the send was known to be over, it has a place:
    /// by its id, else by when it was sent, which is not known where several threads send.
    void join(message_story& s, std::size_t i) {
        stay& here = s.now;
        const bool has_order = here.id.has_value() || !book_.rules().is_concurrent;
        if (here.has_place || here.is_delayed || s.is_moved || !has_order) {
            return;
        }
        here.has_place = true;
        here.place = here.id ? *here.id : s.begun != no_event ? s.begun : i;
        line* const l = line_of(s);
        if (l != nullptr && s.fate == whereabouts::waiting) {
            l->waiting.emplace(here.place, s.number);
        }
    }
    /// Event `i` hands the message out.
    void on_hand_out(message_story& s, std::size_t i) {
        const auto order = book_.rules_of(s).order;
        if (!order) {
            return;
        }
        if (s.sent != no_event) {
            join(s, i);
        }
        if (*order == delivery_order::fifo) {
            check_first(s, i);
        } else if (line* const l = line_of(s)) {
            check_alone(s, *l, i);
            check_turn(s, *l, i);
        }
    }

private:
    /// The messages that go one after another: those of a key, or all of a queue.
    struct line {
        std::set<std::pair<std::uint64_t, std::uint32_t>> waiting{}; ///< By place; their stories.
        std::optional<std::uint32_t> last{};                         ///< Handed out last.
    };

    [[nodiscard]] line* line_of(const message_story& s) {
        const auto order = book_.rules_of(s).order;
        if (order == delivery_order::by_key && s.key) {
            return &lines_[{s.now.queue, *s.key}];
        }
        return order == delivery_order::strict ? &lines_[{s.now.queue, {}}] : nullptr;
    }
    void check_first(message_story& s, std::size_t i) {
        const event& e = book_.at(i);
        if (!s.now.has_place || s.now.was_handed_out || e.delivery_count > 1) {
            return;
        }
        auto& last = firsts_[{s.now.queue, book_.rules().is_concurrent ? e.consumer : 0}];
        if (last.first > s.now.place) {
            book_.report(
                violation_kind::out_of_order,
                s,
                i,
                {last.second},
                "handed out for the first time, after one that was sent later");
        } else {
            last = {s.now.place, i};
        }
    }
    void check_alone(message_story& s, line& l, std::size_t i) {
        if (l.last && *l.last != s.number) {
            const message_story& other = book_.current(*l.last);
            if (other.now.queue == s.now.queue && other.lease == lease_state::good &&
                book_.at(i).at < other.deadline) {
                book_.report(
                    violation_kind::out_of_order,
                    s,
                    i,
                    {other.handed_out},
                    "handed out while message " + std::to_string(other.message) +
                        " is in work, and they go one after another");
            }
        }
        l.last = s.number;
    }
    void check_turn(message_story& s, line& l, std::size_t i) {
        if (!s.now.has_place) {
            return;
        }
        while (!l.waiting.empty()) {
            const auto [place, number] = *l.waiting.begin();
            if (number == s.number || place > s.now.place) {
                break;
            }
            const message_story& first = book_.current(number);
            if (is_before(s, first, place) && !book_.departs_early(first)) {
                if (!(first.lease == lease_state::good && book_.at(i).at < first.deadline)) {
                    book_.report(
                        violation_kind::out_of_order,
                        s,
                        i,
                        {first.sent},
                        "handed out before message " + std::to_string(first.message) +
                            ", which comes first");
                } // else that was said already
                break;
            }
            l.waiting.erase(l.waiting.begin());
        }
        l.waiting.emplace(s.now.place, s.number);
    }
    /// Whether it is certain that `first` is still where it was in the line of `s`.
    [[nodiscard]] static bool
    is_before(const message_story& s, const message_story& first, std::uint64_t place) noexcept {
        return first.now.queue == s.now.queue && first.now.has_place && first.now.place == place &&
               first.fate == whereabouts::waiting && first.is_confirmed;
    }

    story_book& book_;
    std::map<std::pair<std::uint32_t, std::string>, line> lines_{};
    /// The place, and the event, of the last first hand-out: of a queue, or in it to a consumer.
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::pair<std::uint64_t, std::size_t>>
        firsts_{};
};

} // namespace railmq::testing::detail
