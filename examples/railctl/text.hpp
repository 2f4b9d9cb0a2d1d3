// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/model/printable.hpp>
#include <railmq/railmq.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <string_view>

namespace railctl {

/// "2026-01-31T12:00:00Z"; moments here are the wall clock's.
inline std::string moment(railmq::time_point t) {
    if (t == railmq::never) {
        return "never";
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(t.time_since_epoch());
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(std::time_t{seconds.count()}));
}

/// "1h02m", "12s", "350ms".
inline std::string length(railmq::duration d) {
    using namespace std::chrono;
    const std::int64_t s = duration_cast<seconds>(d).count();
    if (s < 0) {
        return "in the future";
    }
    return s >= 86400  ? fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24)
           : s >= 3600 ? fmt::format("{}h{:02}m", s / 3600, s / 60 % 60)
           : s >= 60   ? fmt::format("{}m{:02}s", s / 60, s % 60)
           : s >= 1    ? fmt::format("{}s", s)
                       : fmt::format("{}ms", duration_cast<milliseconds>(d).count());
}

inline std::string_view name_of(railmq::core::image_state s) {
    using railmq::core::image_state;
    switch (s) {
    case image_state::in_line: return "ready";
    case image_state::held:
    case image_state::crashed: return "held";
    case image_state::returned: return "returned";
    case image_state::delayed: return "delayed";
    case image_state::waiting: return "waiting";
    case image_state::dying: return "dying";
    }
    return "unknown";
}

/// The number of a message. Delayed ones are counted apart, from 2^62 on.
inline std::string id_of(std::uint64_t id) {
    return std::to_string(id);
}

/// What a queue has been told, where it differs from what it would do by itself.
inline std::string differences(const railmq::queue_options& o) {
    const railmq::queue_options usual;
    std::string out;
    const auto add = [&](bool differs, std::string text) {
        if (differs) {
            out += (out.empty() ? "" : " ") + std::move(text);
        }
    };
    add(o.max_length != usual.max_length, fmt::format("max_length={}", o.max_length));
    add(o.max_bytes != usual.max_bytes, fmt::format("max_bytes={}", o.max_bytes));
    constexpr std::string_view overflow[] = {"wait", "reject", "drop_oldest"};
    add(o.overflow != usual.overflow,
        fmt::format("overflow={}", overflow[static_cast<std::size_t>(o.overflow)]));
    add(o.ack_timeout != usual.ack_timeout, fmt::format("ack_timeout={}", length(o.ack_timeout)));
    const auto& r = o.retry;
    add(r.max_attempts != usual.retry.max_attempts, fmt::format("max_attempts={}", r.max_attempts));
    add(r.max_stalls != usual.retry.max_stalls, fmt::format("max_stalls={}", r.max_stalls));
    add(r.max_crashes != usual.retry.max_crashes, fmt::format("max_crashes={}", r.max_crashes));
    add(!(r.backoff == usual.retry.backoff), "backoff=own");
    add(r.max_elapsed != usual.retry.max_elapsed,
        fmt::format("max_elapsed={}", length(r.max_elapsed)));
    add(o.dead_letter.is_discard(), "dead_letter=discard");
    add(!o.dead_letter.is_unset() && !o.dead_letter.is_discard(),
        "dead_letter=" + railmq::printable(o.dead_letter.name()));
    constexpr std::string_view places[] = {"original", "front", "back"};
    add(o.requeue != usual.requeue,
        fmt::format("requeue={}", places[static_cast<std::size_t>(o.requeue)]));
    constexpr std::string_view orders[] = {"fifo", "by_key", "strict"};
    add(o.order != usual.order, fmt::format("order={}", orders[static_cast<std::size_t>(o.order)]));
    add(o.priorities != usual.priorities, fmt::format("priorities={}", o.priorities));
    add(o.max_overtakes != usual.max_overtakes, fmt::format("max_overtakes={}", o.max_overtakes));
    add(o.time_to_live != usual.time_to_live,
        "time_to_live=" + (o.time_to_live ? length(*o.time_to_live) : std::string{"none"}));
    add(o.deduplication_window != usual.deduplication_window,
        "deduplication_window=" + length(o.deduplication_window));
    return out;
}

/// One line of all that has been set, escaped.
inline std::string describe(const railmq::properties& p) {
    std::string out;
    const auto add = [&](std::string_view name, std::string_view value) {
        out += fmt::format(
            "{}{}=\"{}\"",
            out.empty() ? "" : " ",
            railmq::printable(name),
            railmq::printable(value));
    };
    const auto add_text = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) {
            add(name, value);
        }
    };
    add_text("message_id", p.message_id);
    if (p.key) {
        add("key", *p.key);
    }
    add_text("routing_key", p.routing_key);
    if (p.priority != 0) {
        add("priority", std::to_string(p.priority));
    }
    add_text("deduplication_id", p.deduplication_id);
    add_text("correlation_id", p.correlation_id);
    add_text("reply_to", p.reply_to);
    if (p.time_to_live) {
        add("time_to_live", length(*p.time_to_live));
    }
    if (p.event_time) {
        add("event_time", moment(railmq::time_point{p.event_time->time_since_epoch()}));
    }
    for (const auto& [name, value] : p.headers) {
        add("header." + name, value);
    }
    return out;
}

} // namespace railctl
