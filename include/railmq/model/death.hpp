// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// Why a message left its queue without an ack. The numbers are stored in journals: a new reason
/// gets a new number, and none ever changes its own.
enum class death_reason : std::uint8_t {
    rejected = 1,        ///< The consumer called `reject`.
    permanent_error = 2, ///< The handler threw `permanent_error`.
    max_attempts = 3,    ///< Failed as often as `retry_policy::max_attempts` allows.
    max_stalls = 4,      ///< Its deadline passed as often as `retry_policy::max_stalls` allows.
    max_crashes = 5,     ///< The process died with it as often as `max_crashes` allows.
    max_elapsed = 6,     ///< Failed when `retry_policy::max_elapsed` had passed.
    expired = 7,         ///< Its time to live ended.
    dropped_oldest = 8,  ///< It made room: the queue was full, and drops the oldest.
    refused = 9,         ///< It came to a queue that was full, and records what it refuses.
    undecodable = 10,    ///< Its bytes could not be decoded.
};

[[nodiscard]] constexpr std::string_view to_string(death_reason reason) noexcept {
    switch (reason) {
    case death_reason::rejected: return "rejected";
    case death_reason::permanent_error: return "permanent error";
    case death_reason::max_attempts: return "max attempts";
    case death_reason::max_stalls: return "max stalls";
    case death_reason::max_crashes: return "max crashes";
    case death_reason::max_elapsed: return "max elapsed";
    case death_reason::expired: return "expired";
    case death_reason::dropped_oldest: return "dropped oldest";
    case death_reason::refused: return "refused";
    case death_reason::undecodable: return "undecodable";
    }
    return "unknown death reason";
}

/// Whether the application itself said that the message must go: `rejected` or `permanent_error`.
/// Every other reason is one that the broker finds alone, and could find again for ever.
[[nodiscard]] constexpr bool is_explicit(death_reason reason) noexcept {
    return reason == death_reason::rejected || reason == death_reason::permanent_error;
}

/// One line of a message's death history: what happened to it in one queue for one reason, however
/// often it happened.
struct death {
    std::string queue{};
    death_reason reason = death_reason::rejected;
    std::uint64_t count = 1; ///< How often, since the history began.
    time_point first_at{};
    time_point last_at{};
    std::string detail{};      ///< Of the last time: the reason given, or what the exception said.
    std::string routing_key{}; ///< Of the first time.
    std::uint32_t delivery_count = 0; ///< Of the last time: how often it had been handed out.
    std::uint32_t failure_count = 0;  ///< Of the last time: how many of these had failed.
    std::uint64_t message_id = 0;     ///< Of the last time: the broker's id of it in `queue`.
    /// Of the first time: how long the message itself said that it may live. A dead letter has no
    /// such limit any more (RabbitMQ, dead letter exchanges: the original expiration).
    std::optional<duration> time_to_live{};

    friend bool operator==(const death&, const death&) = default;
};

/// A message's very first death: what dead letters are most often sorted by.
struct first_death {
    std::string queue{};
    death_reason reason = death_reason::rejected;
    time_point at{};

    friend bool operator==(const first_death&, const first_death&) = default;
};

/// The deaths of a message, newest first, one entry for each (queue, reason): what AMQP's `x-death`
/// and `x-first-death-*` headers say (RabbitMQ, dead letter exchanges). A message may go around for
/// ever without its history growing.
///
/// Distinct objects: safe. Shared objects: unsafe.
class death_history {
public:
    /// How many entries are kept; the oldest one makes room.
    static constexpr std::size_t max_entries = 32;
    /// How many bytes of `death::detail` are kept; it is cut between two UTF-8 characters.
    static constexpr std::size_t max_detail_bytes = 512;

    death_history() = default;

    /// A history as it was stored: what `entries()`, `first()` and `is_cut()` returned.
    death_history(std::vector<death> newest_first, std::optional<first_death> first, bool cut)
        : entries_(std::move(newest_first))
        , first_(std::move(first))
        , cut_{cut} {
        cut_surplus();
    }

    /// Records a death that happened at `last_at`. The first one of its queue and reason gets an
    /// entry with a count of 1 and `first_at` = `last_at`. Another one raises the count, moves the
    /// entry to the front and takes over `last_at`, `detail`, the counts and the id, while
    /// `first_at`, `routing_key` and `time_to_live` stay. The argument's `count` and `first_at` are
    /// not looked at.
    void record(death entry) {
        entry.count = 1;
        entry.first_at = entry.last_at;
        cut_detail(entry.detail);
        if (!first_) {
            first_ = first_death{entry.queue, entry.reason, entry.last_at};
        }
        const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const death& d) {
            return d.reason == entry.reason && d.queue == entry.queue;
        });
        if (known == entries_.end()) {
            entries_.insert(entries_.begin(), std::move(entry));
            cut_surplus();
            return;
        }
        entry.count = known->count + 1;
        entry.first_at = known->first_at;
        entry.routing_key = std::move(known->routing_key);
        entry.time_to_live = known->time_to_live;
        *known = std::move(entry);
        std::rotate(entries_.begin(), known, std::next(known));
    }

    /// Whether a message with this history, its present death recorded, must not be moved to
    /// `target`, because it would go around for ever: it died in `target` before, and nobody has
    /// rejected it since (nor was that death a rejection). A rejection anywhere in the loop makes
    /// the loop legal, because an application takes part in it (RabbitMQ, dead letter exchanges,
    /// automatic cycle detection).
    ///
    /// Where the history is cut, a queue that may have been among the lost entries counts as one
    /// that was: a way of more than `max_entries` deaths without a rejection ends.
    [[nodiscard]] bool is_cycle(std::string_view target) const noexcept {
        for (const death& entry : entries_) {
            if (is_explicit(entry.reason)) {
                return false;
            }
            if (entry.queue == target) {
                return true;
            }
        }
        return cut_;
    }

    /// Newest first.
    [[nodiscard]] const std::vector<death>& entries() const noexcept { return entries_; }

    /// The first death of all, which never changes; empty while there was none.
    [[nodiscard]] const std::optional<first_death>& first() const noexcept { return first_; }

    /// Whether older entries were dropped because there were more than `max_entries`.
    [[nodiscard]] bool is_cut() const noexcept { return cut_; }

    [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

    friend bool operator==(const death_history&, const death_history&) = default;

private:
    static void cut_detail(std::string& text) {
        if (text.size() <= max_detail_bytes) {
            return;
        }
        // A UTF-8 character has at most three bytes after its first; text that has more of them in
        // a row is no UTF-8, and is cut at the limit.
        std::size_t end = max_detail_bytes;
        for (int step = 0; step < 3 && is_continuation(text[end]); ++step) {
            --end;
        }
        text.resize(is_continuation(text[end]) ? max_detail_bytes : end);
    }

    [[nodiscard]] static bool is_continuation(char c) noexcept {
        return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
    }

    void cut_surplus() {
        if (entries_.size() > max_entries) {
            entries_.erase(
                std::next(entries_.begin(), static_cast<std::ptrdiff_t>(max_entries)),
                entries_.end());
            cut_ = true;
        }
    }

    std::vector<death> entries_;
    std::optional<first_death> first_;
    bool cut_ = false;
};

} // namespace railmq
