// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/death.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What users' own tests need; nothing in the library includes it.
namespace railmq::testing {

/// What a test did, or saw. A call of the broker is best recorded twice, before and after, as soon
/// as several threads take part, notices are recorded, or the process may die in between: the truth
/// then lies somewhere between the two, and the checker lets it.
///
/// The order is stored by name, never by number, so kinds may be added anywhere.
enum class event_kind : std::uint8_t {
    send_begun,     ///< About to send. Without an outcome, the same as `send_unknown`.
    send_confirmed, ///< The broker has it safe, as safe as `event::level` says.
    send_failed,    ///< Definitely not stored.
    send_unknown,   ///< May be stored or not, once at most.
    handed_out,     ///< A consumer got it, leased until `event::deadline`.
    settle_begun,   ///< About to settle. Without an outcome it may or may not have happened.
    acked,          ///< `ack` returned true; likewise the next three.
    nacked,         ///< Comes back at `event::ready_at`, or dies.
    rejected,
    released,
    refused,         ///< A settlement of whatever kind returned false: it was stale.
    extended,        ///< The lease now ends at `event::deadline`.
    lease_expired,   ///< The broker said so. Where this is not recorded, the deadline is enough.
    consumer_closed, ///< About to close: everything that it holds goes back.
    dead_lettered,   ///< Moved to `event::target`, for `event::reason`.
    dropped,         ///< Gone without a dead letter, for `event::reason`.
    redriven,        ///< Moved to `event::target`, by request.
    purged,          ///< Everything in the queue that nobody held is gone.
    crashed,         ///< The process ended, or the power did: `event::crash`.
    closed,          ///< The broker was closed: what was held goes back, not as a failure.
    reopened,        ///< After a crash or a close: the broker works again.
    read,            ///< A reader of a log got the record at `event::offset`.
    sought,          ///< A reader of a log goes on at `event::offset`.
    peeked,          ///< It is in the queue, in nobody's hands.
    remaining,       ///< At the end, this was still in the queue or log.
};

[[nodiscard]] constexpr std::string_view to_string(event_kind kind) noexcept {
    switch (kind) {
    case event_kind::send_begun: return "send begun";
    case event_kind::send_confirmed: return "send confirmed";
    case event_kind::send_failed: return "send failed";
    case event_kind::send_unknown: return "send unknown";
    case event_kind::handed_out: return "handed out";
    case event_kind::settle_begun: return "settle begun";
    case event_kind::acked: return "acked";
    case event_kind::nacked: return "nacked";
    case event_kind::rejected: return "rejected";
    case event_kind::released: return "released";
    case event_kind::refused: return "refused";
    case event_kind::extended: return "extended";
    case event_kind::lease_expired: return "lease expired";
    case event_kind::consumer_closed: return "consumer closed";
    case event_kind::dead_lettered: return "dead-lettered";
    case event_kind::dropped: return "dropped";
    case event_kind::redriven: return "redriven";
    case event_kind::purged: return "purged";
    case event_kind::crashed: return "crashed";
    case event_kind::closed: return "closed";
    case event_kind::reopened: return "reopened";
    case event_kind::read: return "read";
    case event_kind::sought: return "sought";
    case event_kind::peeked: return "peeked";
    case event_kind::remaining: return "remaining";
    }
    return "unknown kind of event";
}

/// What a confirmed send survives.
enum class confirm_level : std::uint8_t {
    accepted, ///< Nothing: it is in the broker's memory.
    written,  ///< The end of the process.
    synced,   ///< The loss of power.
};

[[nodiscard]] constexpr std::string_view to_string(confirm_level level) noexcept {
    switch (level) {
    case confirm_level::accepted: return "accepted";
    case confirm_level::written: return "written";
    case confirm_level::synced: return "synced";
    }
    return "unknown level";
}

enum class crash_kind : std::uint8_t {
    process, ///< It was killed, or it aborted; the operating system went on.
    power,   ///< The operating system ended too.
};

[[nodiscard]] constexpr std::string_view to_string(crash_kind kind) noexcept {
    switch (kind) {
    case crash_kind::process: return "process";
    case crash_kind::power: return "power";
    }
    return "unknown kind of crash";
}

/// One line of a history. Every member has a default that means "not recorded", and what is not
/// recorded is not judged.
struct event {
    event_kind kind = event_kind::send_begun;
    std::string queue{}; ///< Its name, or a log's. Empty where the whole broker is meant.
    /// A number that the test gives each message and puts into its payload, never 0, the same on
    /// every redelivery and as a dead letter. A copy in another queue of a fan-out is sent there,
    /// as an event of its own. 0: not known; the message that has `id` in that queue is meant.
    std::uint64_t message = 0;
    std::uint64_t consumer = 0; ///< Who holds it. Of one number for all its life, in all queues.
    time_point at{};            ///< On one time line for the whole history.
    /// The broker's own number for it in that queue. The first one is 0.
    std::optional<std::uint64_t> id{};
    std::optional<std::string> key{};
    std::uint32_t delivery_count = 0;             ///< Of a settlement, its delivery's, as `id` is.
    std::optional<std::uint32_t> failure_count{}; ///< Of a hand-out or a death.
    std::optional<bool> redelivered{};
    time_point deadline = never;
    /// Of a send: the end of its delay. Of a nack: the end of the shortest wait that is promised.
    time_point ready_at = time_point::min();
    time_point expires_at = never; ///< Of a send: the end of its time to live.
    std::string target{};
    death_reason reason = death_reason::rejected;
    confirm_level level = confirm_level::synced;
    crash_kind crash = crash_kind::process;
    std::uint32_t partition = 0;
    std::optional<std::uint64_t> offset{}; ///< In that partition of a log.

    friend bool operator==(const event&, const event&) = default;
};

/// What happened in a test, in the order in which it was recorded, to be judged by `check`
/// (history_check.hpp).
///
/// Recording locks a mutex and copies an event, so the threads of a stress test share one history.
/// The order between two threads is that of the lock: each records what it is about to do before
/// it does it, and what was done to it afterwards. A test of many processes lets each write its
/// events away, line by line (history_json.hpp), and its parent append them to one history.
///
/// Thread safety: safe.
class history {
public:
    history() = default;
    explicit history(std::vector<event> events)
        : events_(std::move(events)) {}
    history(const history&) = delete;
    history& operator=(const history&) = delete;

    /// Adds an event behind all others.
    void record(event e) {
        const std::lock_guard guard{mutex_};
        events_.push_back(std::move(e));
    }
    /// `history.record(event_kind::acked, {.queue = "orders", .message = 7, .consumer = 1});`
    void record(event_kind kind, event e) {
        e.kind = kind;
        record(std::move(e));
    }
    /// Adds events behind all others, in their order, with nothing in between.
    void append(const std::vector<event>& more) {
        const std::lock_guard guard{mutex_};
        events_.insert(events_.end(), more.begin(), more.end());
    }

    /// A copy of all of them.
    [[nodiscard]] std::vector<event> events() const {
        const std::lock_guard guard{mutex_};
        return events_;
    }
    [[nodiscard]] std::size_t size() const {
        const std::lock_guard guard{mutex_};
        return events_.size();
    }

private:
    mutable std::mutex mutex_{};
    std::vector<event> events_{};
};

/// The hand-out of a delivery, of whatever runtime: all that it says of itself. The queue, the
/// message, the consumer and the time are for the caller to add.
template <class Delivery>
[[nodiscard]] event handed_out(const Delivery& d) {
    event e;
    e.kind = event_kind::handed_out;
    e.id = d.id();
    e.key = d.key();
    e.delivery_count = d.delivery_count();
    e.failure_count = d.failure_count();
    e.redelivered = d.redelivered();
    e.deadline = d.ack_deadline().value_or(time_point::min()); // the lease may be lost already
    return e;
}

} // namespace railmq::testing
