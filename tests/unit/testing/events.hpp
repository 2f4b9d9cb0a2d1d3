// SPDX-License-Identifier: BSL-1.0
//
// Short names for the events that the tests of the history checker are written in. Unless said
// otherwise everything happens in the queue "q", a message's id is its number, and a lease lasts 30
// seconds.
#pragma once

#include <railmq/testing/history.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace railmq::test::events {

using namespace std::chrono_literals;
using railmq::testing::confirm_level;
using railmq::testing::crash_kind;
using railmq::testing::event;
using railmq::testing::event_kind;

[[nodiscard]] inline time_point at(duration since_start) {
    return time_point{since_start};
}
[[nodiscard]] inline event plain(event_kind kind, std::uint64_t message, duration when) {
    event e;
    e.kind = kind;
    e.queue = "q";
    e.message = message;
    e.at = at(when);
    return e;
}

// Sends.

[[nodiscard]] inline event sent(std::uint64_t message, duration when = 0s) {
    event e = plain(event_kind::send_confirmed, message, when);
    e.id = message;
    return e;
}
[[nodiscard]] inline event send_begun(std::uint64_t message, duration when = 0s) {
    return plain(event_kind::send_begun, message, when);
}
[[nodiscard]] inline event send_failed(std::uint64_t message, duration when = 0s) {
    return plain(event_kind::send_failed, message, when);
}
[[nodiscard]] inline event send_unknown(std::uint64_t message, duration when = 0s) {
    return plain(event_kind::send_unknown, message, when);
}

// What becomes of messages.

[[nodiscard]] inline event
out(std::uint64_t message, std::uint64_t consumer, std::uint32_t count, duration when) {
    event e = plain(event_kind::handed_out, message, when);
    e.consumer = consumer;
    e.delivery_count = count;
    e.redelivered = count > 1;
    e.deadline = at(when + 30s);
    return e;
}
[[nodiscard]] inline event
by(std::uint64_t consumer, event_kind kind, std::uint64_t message, duration when) {
    event e = plain(kind, message, when);
    e.consumer = consumer;
    return e;
}
[[nodiscard]] inline event ack(std::uint64_t message, std::uint64_t consumer, duration when) {
    return by(consumer, event_kind::acked, message, when);
}
[[nodiscard]] inline event
nack(std::uint64_t message, std::uint64_t consumer, duration when, duration ready = 0s) {
    event e = by(consumer, event_kind::nacked, message, when);
    e.ready_at = at(ready);
    return e;
}
[[nodiscard]] inline event reject(std::uint64_t message, std::uint64_t consumer, duration when) {
    return by(consumer, event_kind::rejected, message, when);
}
[[nodiscard]] inline event release(std::uint64_t message, std::uint64_t consumer, duration when) {
    return by(consumer, event_kind::released, message, when);
}
[[nodiscard]] inline event refused(std::uint64_t message, std::uint64_t consumer, duration when) {
    return by(consumer, event_kind::refused, message, when);
}
[[nodiscard]] inline event
settle_begun(std::uint64_t message, std::uint64_t consumer, duration when) {
    return by(consumer, event_kind::settle_begun, message, when);
}
[[nodiscard]] inline event expired(std::uint64_t message, duration when) {
    return plain(event_kind::lease_expired, message, when);
}
[[nodiscard]] inline event consumer_closed(std::uint64_t consumer, duration when) {
    return by(consumer, event_kind::consumer_closed, 0, when);
}
[[nodiscard]] inline event dead(std::uint64_t message, death_reason why, duration when) {
    event e = plain(event_kind::dead_lettered, message, when);
    e.reason = why;
    e.target = "q.dead";
    return e;
}
[[nodiscard]] inline event dropped(std::uint64_t message, death_reason why, duration when) {
    event e = plain(event_kind::dropped, message, when);
    e.reason = why;
    return e;
}
[[nodiscard]] inline event left(std::uint64_t message) {
    return plain(event_kind::remaining, message, 1h);
}

// What happens to brokers.

[[nodiscard]] inline event crashed(duration when, crash_kind how = crash_kind::process) {
    event e;
    e.kind = event_kind::crashed;
    e.at = at(when);
    e.crash = how;
    return e;
}
[[nodiscard]] inline event closed(duration when) {
    event e;
    e.kind = event_kind::closed;
    e.at = at(when);
    return e;
}
[[nodiscard]] inline event reopened(duration when) {
    event e;
    e.kind = event_kind::reopened;
    e.at = at(when);
    return e;
}
[[nodiscard]] inline event purged(duration when) {
    return plain(event_kind::purged, 0, when);
}

// Logs.

[[nodiscard]] inline event appended(std::uint64_t message, std::uint64_t offset) {
    event e = plain(event_kind::send_confirmed, message, 0s);
    e.offset = offset;
    return e;
}
[[nodiscard]] inline event
got(std::uint64_t message, std::uint64_t offset, std::uint64_t reader = 1) {
    event e = by(reader, event_kind::read, message, 0s);
    e.offset = offset;
    return e;
}
[[nodiscard]] inline event sought(std::uint64_t offset, std::uint64_t reader = 1) {
    event e = by(reader, event_kind::sought, 0, 0s);
    e.offset = offset;
    return e;
}

// The same with something changed.

[[nodiscard]] inline event in(std::string queue, event e) {
    e.queue = std::move(queue);
    return e;
}
[[nodiscard]] inline event of_key(std::string key, event e) {
    e.key = std::move(key);
    return e;
}
[[nodiscard]] inline event with_id(std::optional<std::uint64_t> id, event e) {
    e.id = id;
    return e;
}
[[nodiscard]] inline event with_count(std::uint32_t count, event e) {
    e.delivery_count = count;
    return e;
}
[[nodiscard]] inline event with_failures(std::uint32_t count, event e) {
    e.failure_count = count;
    return e;
}
[[nodiscard]] inline event with_flag(bool redelivered, event e) {
    e.redelivered = redelivered;
    return e;
}
[[nodiscard]] inline event until(duration deadline, event e) {
    e.deadline = at(deadline);
    return e;
}
[[nodiscard]] inline event ready(duration when, event e) {
    e.ready_at = at(when);
    return e;
}
[[nodiscard]] inline event living(duration until, event e) {
    e.expires_at = at(until);
    return e;
}
[[nodiscard]] inline event safe(confirm_level level, event e) {
    e.level = level;
    return e;
}
[[nodiscard]] inline event to(std::string target, event e) {
    e.target = std::move(target);
    return e;
}

} // namespace railmq::test::events
