// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>
#include <railmq/testing/detail/message_story.hpp>
#include <railmq/testing/history.hpp>
#include <railmq/testing/history_rules.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace railmq::testing::detail {

/// A history, the stories of its messages as far as it has been read, and what is wrong with it.
class story_book {
public:
    using name_of_message = std::pair<std::uint32_t, std::uint64_t>; ///< A queue, and a number.

    /// Both must outlive it.
    story_book(const std::vector<event>& events, const history_rules& rules)
        : events_{events}
        , rules_{rules} {
        read_names();
        pair_settlements();
        if (rules.is_concurrent) {
            collect_late_events();
        }
    }
    story_book(const story_book&) = delete;
    story_book& operator=(const story_book&) = delete;
    virtual ~story_book() = default;

    [[nodiscard]] const history_rules& rules() const noexcept { return rules_; }
    [[nodiscard]] const queue_rules& rules_of(const message_story& s) const noexcept {
        return queue_rules_[s.now.queue];
    }
    [[nodiscard]] std::size_t size() const noexcept { return events_.size(); }
    [[nodiscard]] const event& at(std::size_t i) const noexcept { return events_[i]; }
    [[nodiscard]] std::uint64_t message_of(std::size_t i) const noexcept { return message_[i]; }
    [[nodiscard]] std::uint32_t queue_of(std::size_t i) const noexcept { return queue_[i]; }
    [[nodiscard]] const std::string& name_of(std::uint32_t queue) const noexcept {
        return names_[queue];
    }

    [[nodiscard]] std::deque<message_story>& stories() noexcept { return stories_; }
    /// A story, up to the present life of the broker.
    message_story& current(message_story& s) {
        s.catch_up(lives_, rules_);
        return s;
    }
    message_story& current(std::uint32_t number) { return current(stories_[number]); }

    /// With several threads, what comes after a move may stand before it. Carries out the next one
    /// that takes this message out of its queue, if there is any.
    [[nodiscard]] bool departs_early(const message_story& s) {
        return s.lease != lease_state::good && happens_early(departures_, {s.now.queue, s.message});
    }

    void report(
        violation_kind kind,
        const message_story& s,
        std::size_t i,
        std::initializer_list<std::size_t> others,
        const std::string& what) {
        violation v{kind, s.message, names_[s.now.queue], events_[i].at, {i}, {}};
        for (const std::size_t other : others) {
            if (other != no_event && other != i) {
                v.events.push_back(other);
            }
        }
        report(std::move(v), what);
    }
    void report(violation v, const std::string& what) {
        v.text.append("message ").append(std::to_string(v.message)).append(" in '");
        v.text.append(v.queue).append("' at ").append(text_of(v.at)).append(": ").append(what);
        for (std::size_t n = 0; n < v.events.size(); ++n) {
            v.text.append(n == 0 ? " (events " : ", ").append(std::to_string(v.events[n]));
        }
        v.text.append(v.events.empty() ? "" : ")");
        violations_.push_back(std::move(v));
    }
    [[nodiscard]] static std::string text_of(duration d) {
        std::string text = std::to_string(d.count());
        return text.append(" ns");
    }
    [[nodiscard]] static std::string text_of(time_point t) {
        return t == never ? "its end" : text_of(t.time_since_epoch());
    }

protected:
    /// Judges event `i`, by which a message leaves a queue, and carries it out.
    virtual void on_departure(std::size_t i) = 0;

    /// The broker's life ends.
    void end_life(const event& e) { lives_.add(e); }
    /// Whether a settlement was judged when it was begun, or a move earlier than it was told.
    [[nodiscard]] bool is_done(std::size_t i) const noexcept { return is_done_[i]; }
    void set_done(std::size_t i) { is_done_[i] = true; }
    /// How the settlement that is begun with event `i` ended: an event, or `no_event`.
    [[nodiscard]] std::size_t outcome_of(std::size_t i) const noexcept { return outcome_[i]; }

    /// The story of the message whose send event `i` is about.
    [[nodiscard]] message_story& sent_story(std::size_t i) {
        const name_of_message name{queue_[i], message_[i]};
        for (const auto* where : {&here_, &left_}) { // it may have left before the send returned
            if (const auto known = where->find(name); known != where->end()) {
                return current(known->second);
            }
        }
        return add_story(name);
    }
    /// The story of the message that event `i` is about, if it is in its queue.
    [[nodiscard]] message_story* found(std::size_t i) {
        const auto known = here_.find({queue_[i], message_[i]});
        return known != here_.end() ? &current(known->second) : nullptr;
    }
    /// The story of the message that event `i` says is in its queue. If it cannot be there, that
    /// is reported, and a story begins of which nothing more will be said.
    [[nodiscard]] message_story& located(std::size_t i) {
        const name_of_message name{queue_[i], message_[i]};
        const auto known = here_.find(name);
        if (known != here_.end()) {
            return current(known->second);
        }
        if (happens_early(arrivals_, name)) {
            return current(here_.at(name));
        }
        if (message_story* s = after_a_crash(name, i)) {
            return *s;
        }
        const auto elsewhere = left_.find(name);
        message_story& s = add_story(name);
        s.is_stray = true;
        s.may_be_stored = true;
        s.now.deliveries = s.now.failures = {0, count_range::top};
        const std::string what{to_string(events_[i].kind)};
        if (elsewhere != left_.end()) {
            const message_story& moved = stories_[elsewhere->second];
            report(
                violation_kind::in_two_queues,
                s,
                i,
                {moved.changed},
                what + ", and it was moved to '" + names_[moved.now.queue] + "'");
        } else {
            report(violation_kind::invented, s, i, {}, what + ", and nobody sent it there");
        }
        return s;
    }
    void move(message_story& s, const std::string& target, std::size_t i) {
        move(s, number_of(target), i);
    }
    /// Everything that is in the queue of event `i`, and has been in it before; forgets it.
    [[nodiscard]] std::vector<std::uint32_t> take_content(std::size_t i) {
        return std::exchange(in_queue_[queue_[i]], {});
    }
    void give_content(std::size_t i, std::vector<std::uint32_t> stories) {
        in_queue_[queue_[i]] = std::move(stories);
    }
    /// With several threads, a hand-out may be recorded after what followed from it. The next one
    /// of the message that is told later, but must have come before the one numbered `count`; or
    /// `no_event`.
    [[nodiscard]] std::size_t untold_hand_out(const message_story& s, std::uint32_t count) const {
        const auto known = hand_outs_.find({s.now.queue, s.message});
        if (known != hand_outs_.end()) {
            for (const std::size_t i : known->second) {
                const std::uint32_t n = events_[i].delivery_count;
                if (!is_done_[i] && events_[i].id == s.now.id && n < count &&
                    n == s.now.deliveries.most + 1) {
                    return i;
                }
            }
        }
        return no_event;
    }
    [[nodiscard]] std::vector<violation> take_violations() { return std::move(violations_); }

private:
    using moves = std::map<name_of_message, std::deque<std::size_t>>;

    void read_names() {
        const std::size_t n = events_.size();
        message_.resize(n);
        queue_.resize(n);
        std::map<name_of_message, std::uint64_t> by_id;
        for (std::size_t i = 0; i < n; ++i) {
            const event& e = events_[i];
            queue_[i] = number_of(e.queue);
            message_[i] = e.message;
            if (e.id && e.message != 0) {
                by_id.emplace(name_of_message{queue_[i], *e.id}, e.message);
            }
        }
        for (std::size_t i = 0; i < n; ++i) {
            const event& e = events_[i];
            if (e.message == 0 && e.id) {
                const auto known = by_id.find({queue_[i], *e.id});
                message_[i] = known != by_id.end() ? known->second : 0;
            }
        }
    }
    void pair_settlements() {
        is_done_.assign(size(), false);
        outcome_.assign(size(), no_event);
        std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>, std::size_t> begun;
        for (std::size_t i = 0; i < size(); ++i) {
            const event& e = events_[i];
            const std::tuple holder{queue_[i], message_[i], e.consumer};
            if (e.kind == event_kind::settle_begun) {
                begun[holder] = i;
            } else if (e.kind == event_kind::crashed) {
                begun.clear();
            } else if (is_settlement(e.kind) || e.kind == event_kind::refused) {
                const auto b = begun.find(holder);
                if (b != begun.end()) {
                    outcome_[b->second] = i;
                    // A refusal is judged when it was told, all else when it was begun.
                    is_done_[i] = e.kind != event_kind::refused;
                    begun.erase(b);
                }
            }
        }
    }
    /// What may be recorded later than what followed from it.
    void collect_late_events() {
        for (std::size_t i = 0; i < size(); ++i) {
            const event& e = events_[i];
            const bool is_move =
                e.kind == event_kind::dead_lettered || e.kind == event_kind::redriven;
            if (is_move || e.kind == event_kind::dropped) {
                departures_[{queue_[i], message_[i]}].push_back(i);
            }
            if (e.kind == event_kind::handed_out && e.delivery_count != 0 && e.id) {
                hand_outs_[{queue_[i], message_[i]}].push_back(i);
            }
            if (is_move) {
                arrivals_[{number_of(e.target), message_[i]}].push_back(i);
            }
        }
    }
    [[nodiscard]] static bool is_settlement(event_kind k) noexcept {
        return k == event_kind::acked || k == event_kind::nacked || k == event_kind::rejected ||
               k == event_kind::released;
    }
    std::uint32_t number_of(const std::string& queue) {
        const auto next = static_cast<std::uint32_t>(names_.size());
        const auto [known, is_new] = numbers_.emplace(queue, next);
        if (is_new) {
            names_.push_back(queue);
            const auto own = rules_.queues.find(queue);
            queue_rules_.push_back(own != rules_.queues.end() ? own->second : rules_.all_queues);
        }
        return known->second;
    }

    message_story& add_story(name_of_message name) {
        const auto n = static_cast<std::uint32_t>(stories_.size());
        message_story& s = stories_.emplace_back();
        s.number = n;
        s.message = name.second;
        s.now.queue = name.first;
        s.life = lives_.count();
        here_[name] = n;
        by_message_[name.second].push_back(n);
        in_queue_[name.first].push_back(n);
        return s;
    }
    /// Where a message is that a crash took back to the queue before, or that was moved unseen.
    [[nodiscard]] message_story* after_a_crash(name_of_message name, std::size_t i) {
        for (const std::uint32_t n : by_message_[name.second]) {
            message_story& s = current(n);
            if (s.before && s.is_move_undone && s.before->queue == name.first) {
                here_.erase({s.now.queue, s.message});
                left_[{s.now.queue, s.message}] = n;
                left_.erase(name);
                here_[name] = n;
                s.now = *std::exchange(s.before, std::nullopt);
                s.fate = whereabouts::waiting;
                return &s;
            }
        }
        for (const std::uint32_t n : by_message_[name.second]) {
            message_story& s = current(n);
            if (s.may_have_moved) {
                move(s, name.first, i);
                s.before.reset();
                s.change = last_change::none;
                s.now.deliveries.maybe_add(rules_.unseen_hand_outs);
                s.now.failures.maybe_add(rules_.unseen_hand_outs);
                return &s;
            }
        }
        return nullptr;
    }
    void move(message_story& s, std::uint32_t target, std::size_t i) {
        here_.erase({s.now.queue, s.message});
        left_[{s.now.queue, s.message}] = s.number;
        left_.erase({target, s.message});
        const auto [there, is_free] = here_.emplace(name_of_message{target, s.message}, s.number);
        s.move_to(target, i);
        in_queue_[target].push_back(s.number);
        if (!is_free) {
            const message_story& other = stories_[there->second];
            if (!other.is_stray) {
                report(
                    violation_kind::second_copy,
                    s,
                    i,
                    {other.last_event()},
                    "moved to where it is already");
            }
            there->second = s.number;
        }
    }
    [[nodiscard]] bool happens_early(moves& coming, name_of_message name) {
        const auto found = coming.find(name);
        if (found == coming.end()) {
            return false;
        }
        auto& list = found->second;
        while (!list.empty() && is_done_[list.front()]) {
            list.pop_front();
        }
        if (list.empty()) {
            return false;
        }
        on_departure(list.front());
        return true;
    }

    const std::vector<event>& events_;
    const history_rules& rules_;
    std::vector<violation> violations_{};
    endings lives_{};

    // Of each event.
    std::vector<bool> is_done_{};
    std::vector<std::size_t> outcome_{};
    std::vector<std::uint64_t> message_{};
    std::vector<std::uint32_t> queue_{};

    // Of each queue.
    std::map<std::string, std::uint32_t> numbers_{};
    std::vector<std::string> names_{};
    std::vector<queue_rules> queue_rules_{};
    std::map<std::uint32_t, std::vector<std::uint32_t>> in_queue_{};

    std::deque<message_story> stories_{};
    std::map<name_of_message, std::uint32_t> here_{};
    std::map<name_of_message, std::uint32_t> left_{}; ///< Where messages were that were moved.
    std::map<std::uint64_t, std::vector<std::uint32_t>> by_message_{};
    moves arrivals_{};
    moves departures_{};
    moves hand_outs_{};
};

} // namespace railmq::testing::detail
