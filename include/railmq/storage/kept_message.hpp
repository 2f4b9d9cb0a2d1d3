// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/storage/wire.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace railmq::storage::wire {

// A message's state: a number of flags, the id, the number of hand-outs, when it was sent; then
// what the flags say is there.

inline constexpr std::uint64_t has_position = 1U << 5;
inline constexpr std::uint64_t has_failures = 1U << 6;
inline constexpr std::uint64_t has_first_hand_out = 1U << 7;
inline constexpr std::uint64_t has_expiry = 1U << 8;
inline constexpr std::uint64_t has_due = 1U << 9;
inline constexpr std::uint64_t has_previous_wait = 1U << 10;
inline constexpr std::uint64_t has_death = 1U << 11;
inline constexpr std::uint64_t all_state_flags = (1U << 12) - 1;

inline void put_state(wire_writer& w, const core::message_image& m) {
    std::uint64_t flags =
        static_cast<std::uint64_t>(m.state) | (static_cast<std::uint64_t>(m.returned_to) << 3);
    const auto flag = [&](bool is_there, std::uint64_t bit) { flags |= is_there ? bit : 0; };
    flag(m.position != m.id, has_position);
    flag(m.failures != failure_counts{}, has_failures);
    flag(m.first_handed_out != never, has_first_hand_out);
    flag(m.expires_at != never, has_expiry);
    flag(m.due != never, has_due);
    flag(m.previous_wait != duration::zero(), has_previous_wait);
    flag(m.state == core::image_state::dying, has_death);
    w.number(flags);
    w.number(m.id);
    w.number(m.delivery_count);
    w.moment(m.enqueued);
    if ((flags & has_position) != 0) {
        w.number(m.position);
    }
    if ((flags & has_failures) != 0) {
        w.number(m.failures.failures);
        w.number(m.failures.stalls);
        w.number(m.failures.crashes);
    }
    if ((flags & has_first_hand_out) != 0) {
        w.moment(m.first_handed_out);
    }
    if ((flags & has_expiry) != 0) {
        w.moment(m.expires_at);
    }
    if ((flags & has_due) != 0) {
        w.moment(m.due);
    }
    if ((flags & has_previous_wait) != 0) {
        w.span_of_time(m.previous_wait);
    }
    if ((flags & has_death) != 0) {
        w.byte(static_cast<std::uint8_t>(m.dying_of));
        w.text(m.dying_detail);
    }
}

[[nodiscard]] inline death_reason get_reason(wire_reader& r) {
    const std::uint8_t value = r.byte();
    if (value == 0 || value > static_cast<std::uint8_t>(death_reason::undecodable)) {
        r.fail();
        return death_reason::rejected;
    }
    return static_cast<death_reason>(value);
}

/// Without what never changes.
[[nodiscard]] inline core::message_image get_state(wire_reader& r) {
    core::message_image m;
    const std::uint64_t flags = r.number_below(all_state_flags + 1);
    m.id = r.number();
    m.position = m.id;
    m.delivery_count = r.small();
    m.enqueued = r.moment();
    const std::uint64_t state = flags & 7;
    const std::uint64_t place = (flags >> 3) & 3;
    if (state > static_cast<std::uint64_t>(core::image_state::crashed) ||
        place > static_cast<std::uint64_t>(requeue_position::back)) {
        r.fail();
        return m;
    }
    m.state = static_cast<core::image_state>(state);
    m.returned_to = static_cast<requeue_position>(place);
    if ((flags & has_position) != 0) {
        m.position = r.number();
    }
    if ((flags & has_failures) != 0) {
        m.failures.failures = r.small();
        m.failures.stalls = r.small();
        m.failures.crashes = r.small();
    }
    if ((flags & has_first_hand_out) != 0) {
        m.first_handed_out = r.moment();
    }
    if ((flags & has_expiry) != 0) {
        m.expires_at = r.moment();
    }
    if ((flags & has_due) != 0) {
        m.due = r.moment();
    }
    if ((flags & has_previous_wait) != 0) {
        m.previous_wait = r.span_of_time();
    }
    if ((flags & has_death) != 0) {
        m.dying_of = get_reason(r);
        m.dying_detail = std::string{r.text()};
    }
    return m;
}

// Properties and the history of deaths: each only where there is one.

inline void put_optional(wire_writer& w, const std::optional<duration>& d) {
    w.byte(d ? 1 : 0);
    if (d) {
        w.span_of_time(*d);
    }
}
[[nodiscard]] inline std::optional<duration> get_optional(wire_reader& r) {
    return r.byte() != 0 ? std::optional{r.span_of_time()} : std::nullopt;
}

inline void put(wire_writer& w, const properties& p) {
    w.text(p.message_id);
    w.byte(p.key ? 1 : 0);
    w.text(p.key ? std::string_view{*p.key} : std::string_view{});
    w.text(p.routing_key);
    w.number(p.priority);
    put_optional(w, p.time_to_live);
    w.span_of_time(p.delay);
    put_optional(w, p.event_time ? std::optional{p.event_time->time_since_epoch()} : std::nullopt);
    w.text(p.deduplication_id);
    w.text(p.correlation_id);
    w.text(p.reply_to);
    w.number(p.headers.size());
    for (const auto& [name, value] : p.headers) {
        w.text(name);
        w.text(value);
    }
}
[[nodiscard]] inline properties get_properties(wire_reader& r) {
    properties p;
    p.message_id = std::string{r.text()};
    const bool has_key = r.byte() != 0;
    const std::string_view key = r.text();
    if (has_key) {
        p.key = std::string{key};
    }
    p.routing_key = std::string{r.text()};
    p.priority = r.small();
    p.time_to_live = get_optional(r);
    p.delay = r.span_of_time();
    if (const auto t = get_optional(r)) {
        p.event_time = std::chrono::sys_time<duration>{*t};
    }
    p.deduplication_id = std::string{r.text()};
    p.correlation_id = std::string{r.text()};
    p.reply_to = std::string{r.text()};
    for (std::uint64_t n = r.number_below(r.left() / 2 + 1); n != 0 && !r.has_failed(); --n) {
        std::string name{r.text()};
        p.headers.emplace_back(std::move(name), std::string{r.text()});
    }
    return p;
}

inline void put(wire_writer& w, const death_history& h) {
    w.byte(h.is_cut() ? 1 : 0);
    w.byte(h.first() ? 1 : 0);
    if (h.first()) {
        w.text(h.first()->queue);
        w.byte(static_cast<std::uint8_t>(h.first()->reason));
        w.moment(h.first()->at);
    }
    w.number(h.entries().size());
    for (const death& d : h.entries()) {
        w.text(d.queue);
        w.byte(static_cast<std::uint8_t>(d.reason));
        w.number(d.count);
        w.moment(d.first_at);
        w.moment(d.last_at);
        w.text(d.detail);
        w.text(d.routing_key);
        w.number(d.delivery_count);
        w.number(d.failure_count);
        w.number(d.message_id);
        put_optional(w, d.time_to_live);
    }
}
[[nodiscard]] inline death_history get_deaths(wire_reader& r) {
    const bool is_cut = r.byte() != 0;
    std::optional<first_death> first;
    if (r.byte() != 0) {
        first.emplace();
        first->queue = std::string{r.text()};
        first->reason = get_reason(r);
        first->at = r.moment();
    }
    std::vector<death> entries;
    std::uint64_t n = r.number_below(death_history::max_entries + 1);
    for (; n != 0 && !r.has_failed(); --n) {
        death d;
        d.queue = std::string{r.text()};
        d.reason = get_reason(r);
        d.count = r.number();
        d.first_at = r.moment();
        d.last_at = r.moment();
        d.detail = std::string{r.text()};
        d.routing_key = std::string{r.text()};
        d.delivery_count = r.small();
        d.failure_count = r.small();
        d.message_id = r.number();
        d.time_to_live = get_optional(r);
        entries.push_back(std::move(d));
    }
    return death_history{std::move(entries), std::move(first), is_cut};
}

} // namespace railmq::storage::wire
