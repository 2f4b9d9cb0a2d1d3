// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>
#include <railmq/testing/history.hpp>
#include <railmq/testing/history_rules.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace railmq::testing::detail {

inline constexpr std::size_t no_event = std::numeric_limits<std::size_t>::max();

/// A count that is not always known: a crash may have hidden some of it.
struct count_range {
    static constexpr std::uint32_t top = std::numeric_limits<std::uint32_t>::max();

    std::uint32_t least = 0;
    std::uint32_t most = 0;

    void add() noexcept {
        least += least != top ? 1 : 0;
        maybe_add();
    }
    void maybe_add(std::uint64_t n = 1) noexcept {
        most = static_cast<std::uint32_t>(std::min<std::uint64_t>(most + n, top));
    }
    void maybe_take(std::uint64_t n = 1) noexcept {
        least = static_cast<std::uint32_t>(least - std::min<std::uint64_t>(least, n));
    }
    [[nodiscard]] bool contains(std::uint32_t n) const noexcept { return least <= n && n <= most; }
};

/// The ends of the broker's lives: crashes, and times when it was closed.
class endings {
public:
    void add(const event& e) {
        const bool is_crash = e.kind == event_kind::crashed;
        lives_.push_back(
            {e.at,
             crashes() + (is_crash ? 1U : 0U),
             lives_.back().power_losses + (is_crash && e.crash == crash_kind::power ? 1U : 0U)});
    }
    /// How many there have been: the number of the life that goes on now.
    [[nodiscard]] std::size_t count() const noexcept { return lives_.size() - 1; }
    [[nodiscard]] bool is_crash(std::size_t life) const noexcept {
        return lives_[life].crashes != lives_[life + 1].crashes;
    }
    [[nodiscard]] time_point end_of(std::size_t life) const noexcept {
        return lives_[life + 1].began;
    }
    [[nodiscard]] std::uint64_t crashes_since(std::size_t life) const noexcept {
        return crashes() - lives_[life].crashes;
    }
    [[nodiscard]] std::uint64_t power_losses_since(std::size_t life) const noexcept {
        return lives_.back().power_losses - lives_[life].power_losses;
    }

private:
    struct one_life {
        time_point began{}; ///< When the one before it ended.
        std::uint64_t crashes = 0;
        std::uint64_t power_losses = 0;
    };
    [[nodiscard]] std::uint64_t crashes() const noexcept { return lives_.back().crashes; }

    std::vector<one_life> lives_{one_life{}};
};

enum class lease_state : std::uint8_t {
    none,
    good,
    lapsed, ///< Its deadline passed, and nobody else has got the message: an ack still counts.
};

enum class whereabouts : std::uint8_t {
    waiting, ///< In the queue, in somebody's hands or not.
    unsure,  ///< Perhaps there, perhaps not any more.
    acked,
    dropped,
    purged,
};

enum class last_change : std::uint8_t { none, failure, stall, other };

/// A message's time in one queue. It is a new one when it comes to a queue again.
struct stay {
    std::uint32_t queue = 0;
    std::optional<std::uint64_t> id{};
    std::uint64_t place = 0; ///< In the order of the queue.
    bool has_place = false;
    bool is_delayed = false;
    bool was_handed_out = false;
    bool is_rejected = false;
    count_range deliveries{};
    count_range failures{};
    count_range stalls{};
    count_range crashes{};
    time_point ready_at = time_point::min();
    time_point expires_at = never;
};

/// All that is known of one message, from its send on, as far as the history has been read.
struct message_story {
    std::uint32_t number = 0; ///< Of the story.
    std::uint64_t message = 0;
    stay now{};
    /// Where it was before it was moved, as long as a crash may undo that.
    std::optional<stay> before{};
    bool is_move_undone = false; ///< It may be `before` again.
    bool is_moved = false;       ///< Has ever been.
    bool is_stray = false;       ///< It should not be there, and that was reported.
    std::optional<std::string> key{};

    // Its sends: one, or several tries of one.
    std::size_t begun = no_event;
    std::size_t sent = no_event; ///< The last event about it.
    std::uint32_t open_sends = 0;
    bool is_confirmed = false;
    bool may_be_stored = false;
    confirm_level level = confirm_level::synced;
    bool is_record = false; ///< Of a log.

    lease_state lease = lease_state::none;
    std::uint64_t consumer = 0;
    time_point deadline = never;
    std::uint32_t delivery = 0;
    std::size_t handed_out = no_event;
    bool was_settled = false;        ///< The last lease: by its holder.
    std::uint32_t untold_stalls = 0; ///< Known by the deadline alone.

    whereabouts fate = whereabouts::waiting;
    last_change change = last_change::none; ///< What the present life of the broker did last.
    bool is_of_stall = false;               ///< What came before that was a passed deadline.
    std::size_t changed = no_event;
    bool may_have_moved = false; ///< Unseen, while the broker was opened again.
    std::size_t remains = no_event;
    std::size_t life = 0; ///< Of the broker, up to which this is told.

    [[nodiscard]] bool has_failed() const noexcept {
        return !is_confirmed && !may_be_stored && open_sends == 0;
    }
    /// Whether that settlement is of the hand-out that was the last one.
    [[nodiscard]] bool is_holder(const event& e) const noexcept {
        return handed_out != no_event && consumer == e.consumer &&
               (e.delivery_count == 0 || delivery == 0 || e.delivery_count == delivery) &&
               (!e.id || !now.id || e.id == now.id);
    }
    /// The last event that is known of it.
    [[nodiscard]] std::size_t last_event() const noexcept {
        const auto known = [](std::size_t i) { return i == no_event ? 0 : i; };
        return std::max({known(sent), known(handed_out), known(changed)});
    }

    void hand_out(const event& e, std::size_t i) {
        fate = whereabouts::waiting;
        lease = lease_state::good;
        consumer = e.consumer;
        deadline = e.deadline;
        delivery = e.delivery_count;
        handed_out = i;
        was_settled = false;
        may_have_moved = false;
        before.reset();
        change = last_change::none;
    }
    void end_lease() noexcept {
        lease = lease_state::none;
        was_settled = false;
    }
    void settle(whereabouts f, std::size_t event) noexcept {
        lease = lease_state::none;
        was_settled = true;
        set_fate(f, event);
    }
    /// The lease is at its end, by its deadline. That is a failure.
    void stall() noexcept {
        ++untold_stalls;
        now.failures.add();
        now.stalls.add();
        lease = lease_state::lapsed;
        change = last_change::stall;
    }
    void set_fate(whereabouts f, std::size_t event) noexcept {
        fate = f;
        is_of_stall = change == last_change::stall;
        change = last_change::other;
        changed = event;
    }
    /// It is in `queue` now, where nothing has happened to it yet.
    void move_to(std::uint32_t queue, std::size_t event) {
        before = std::exchange(now, stay{});
        is_move_undone = false;
        is_moved = true;
        now.queue = queue;
        end_lease();
        set_fate(whereabouts::waiting, event);
    }

    /// Goes through the ends of the broker's lives since it was last looked at.
    void catch_up(const endings& ends, const history_rules& rules) {
        if (life == ends.count()) {
            return;
        }
        const std::uint64_t times = ends.crashes_since(life);
        const bool may_be_stalled = lease == lease_state::good && deadline <= ends.end_of(life);
        if (may_be_stalled) {
            now.stalls.maybe_add();
        }
        if (ends.is_crash(life)) {
            lose_the_last_moment(rules, may_be_stalled);
        } else {
            now.failures.maybe_add(may_be_stalled ? 1 : 0);
            before.reset();
        }
        if (times != 0) {
            now.deliveries.maybe_add(times * rules.unseen_hand_outs);
            now.failures.maybe_add(times * rules.unseen_hand_outs);
            now.crashes.maybe_add(times * rules.unseen_hand_outs);
            now.deliveries.maybe_take(times * rules.forgotten_hand_outs);
            now.failures.maybe_take(times * rules.forgotten_hand_outs);
            now.stalls.maybe_take(times * rules.forgotten_hand_outs);
            now.crashes.maybe_take(times * rules.forgotten_hand_outs);
            may_have_moved = may_have_moved || rules.unseen_hand_outs != 0;
        }
        // What was confirmed less than the worst of them may be gone.
        if ((level == confirm_level::accepted && times != 0) ||
            (level == confirm_level::written && ends.power_losses_since(life) != 0)) {
            is_confirmed = false;
            may_be_stored = true;
        }
        end_lease();
        change = last_change::none;
        life = ends.count();
    }

private:
    void lose_the_last_moment(const history_rules& rules, bool may_be_stalled) {
        if (lease == lease_state::good) {
            now.failures.add();
            now.crashes.maybe_add();
            now.crashes.least += may_be_stalled ? 0 : 1;
            may_have_moved = true;
        } else if (fate == whereabouts::unsure && change != last_change::none) {
            now.crashes.maybe_add(); // it died in the act of settling
            now.ready_at = time_point::min();
            may_have_moved = true;
        } else if (rules.crash_may_undo && change != last_change::none) {
            undo_last_change();
            return;
        }
        before.reset();
    }
    /// It was held by a process that died, as far as the broker remembers.
    void undo_last_change() noexcept {
        is_move_undone = before.has_value();
        stay& s = is_move_undone ? *before : now;
        if (change == last_change::other) {
            s.failures.maybe_add();
        }
        const bool is_death = is_move_undone || fate == whereabouts::dropped;
        if (change == last_change::stall || (is_death && is_of_stall)) {
            s.stalls.maybe_take(); // which may be what it died of
        }
        s.crashes.maybe_add();
        s.is_rejected = false;
        s.ready_at = time_point::min();
        may_have_moved = true;
        if (fate == whereabouts::acked || fate == whereabouts::dropped) {
            fate = whereabouts::unsure;
        }
    }
};

} // namespace railmq::testing::detail
