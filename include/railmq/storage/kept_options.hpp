// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/queue_options.hpp>
#include <railmq/storage/wire.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace railmq::storage {

/// What a queue is, as a journal keeps it.
struct queue_definition {
    std::uint64_t number = 0; ///< Its own in this journal, never used again.
    std::string name{};
    std::string format{}; ///< Of its messages, as their codec names it.
    queue_options options{};
    /// Numbers of messages go on from here: those in the order of sending, and those delayed.
    std::uint64_t next_position = 0;
    std::uint64_t next_delayed = 0;

    friend bool operator==(const queue_definition&, const queue_definition&) = default;
};

namespace wire {

inline void put_size(wire_writer& w, std::size_t value) {
    w.number(value == unlimited ? 0 : value); // no limit is 0
}
[[nodiscard]] inline std::size_t get_size(wire_reader& r) {
    const std::uint64_t value = r.number();
    return value == 0 ? unlimited : static_cast<std::size_t>(value);
}
/// An enumeration whose last value is `last`.
template <class Enum>
[[nodiscard]] Enum get_enum(wire_reader& r, Enum last) {
    return static_cast<Enum>(r.number_below(static_cast<std::uint64_t>(last) + 1));
}

inline void put(wire_writer& w, const jitter& j) {
    w.number(static_cast<std::uint64_t>(j.kind()));
    w.real(j.ratio());
}
[[nodiscard]] inline jitter get_jitter(wire_reader& r) {
    const auto kind = get_enum(r, jitter_kind::decorrelated);
    const double ratio = r.real();
    switch (kind) {
    case jitter_kind::none: return jitter::none;
    case jitter_kind::full: return jitter::full;
    case jitter_kind::equal: return jitter::equal;
    case jitter_kind::proportional: return jitter::proportional(ratio);
    case jitter_kind::reduced: return jitter::reduced(ratio);
    case jitter_kind::decorrelated: return jitter::decorrelated;
    }
    return jitter::none;
}

inline void put(wire_writer& w, const backoff& b) {
    struct writer {
        wire_writer& w;
        void operator()(const exponential_backoff& p) const {
            w.number(0);
            w.span_of_time(p.initial);
            w.real(p.multiplier);
            w.span_of_time(p.max);
            put(w, p.jitter);
        }
        void operator()(const constant_backoff& p) const {
            w.number(1);
            w.span_of_time(p.delay);
            put(w, p.jitter);
        }
        void operator()(const linear_backoff& p) const {
            w.number(2);
            w.span_of_time(p.initial);
            w.span_of_time(p.max);
            put(w, p.jitter);
        }
        void operator()(const backoff_list& p) const {
            w.number(3);
            w.number(p.waits().size());
            for (const duration d : p.waits()) {
                w.span_of_time(d);
            }
            put(w, p.jitter());
        }
    };
    std::visit(writer{w}, b.policy());
}
[[nodiscard]] inline backoff get_backoff(wire_reader& r) {
    switch (r.number_below(4)) {
    case 0: {
        exponential_backoff p;
        p.initial = r.span_of_time();
        p.multiplier = r.real();
        p.max = r.span_of_time();
        p.jitter = get_jitter(r);
        return p;
    }
    case 1: {
        constant_backoff p;
        p.delay = r.span_of_time();
        p.jitter = get_jitter(r);
        return p;
    }
    case 2: {
        linear_backoff p;
        p.initial = r.span_of_time();
        p.max = r.span_of_time();
        p.jitter = get_jitter(r);
        return p;
    }
    default: break;
    }
    // So many that they could be there.
    std::vector<duration> waits(r.number_below(r.left() / sizeof(std::uint64_t) + 1));
    for (duration& d : waits) {
        d = r.span_of_time();
    }
    const jitter j = get_jitter(r);
    return backoff_list{std::move(waits), j};
}

inline void put(wire_writer& w, const queue_options& o) {
    put_size(w, o.max_length);
    put_size(w, o.max_bytes);
    w.number(static_cast<std::uint64_t>(o.overflow));
    w.span_of_time(o.ack_timeout);
    w.number(o.retry.max_attempts);
    w.number(o.retry.max_stalls);
    w.number(o.retry.max_crashes);
    put(w, o.retry.backoff);
    w.span_of_time(o.retry.max_elapsed);
    w.byte(o.dead_letter.is_discard() ? 1 : 0);
    w.text(o.dead_letter.name());
    w.number(static_cast<std::uint64_t>(o.requeue));
    w.number(static_cast<std::uint64_t>(o.order));
    w.number(o.priorities);
    w.number(o.max_overtakes);
    w.byte(o.time_to_live ? 1 : 0);
    w.span_of_time(o.time_to_live.value_or(duration::zero()));
    w.span_of_time(o.deduplication_window);
}
[[nodiscard]] inline queue_options get_options(wire_reader& r) {
    queue_options o;
    o.max_length = get_size(r);
    o.max_bytes = get_size(r);
    o.overflow = get_enum(r, overflow_policy::drop_oldest);
    o.ack_timeout = r.span_of_time();
    o.retry.max_attempts = r.small();
    o.retry.max_stalls = r.small();
    o.retry.max_crashes = r.small();
    o.retry.backoff = get_backoff(r);
    o.retry.max_elapsed = r.span_of_time();
    const bool discards = r.byte() != 0;
    const std::string_view target = r.text();
    if (discards) {
        o.dead_letter = dead_letter_target::discard();
    } else if (!target.empty()) {
        o.dead_letter = target;
    }
    o.requeue = get_enum(r, requeue_position::back);
    o.order = get_enum(r, delivery_order::strict);
    o.priorities = r.small();
    o.max_overtakes = r.small();
    const bool lives = r.byte() != 0;
    const duration life = r.span_of_time();
    if (lives) {
        o.time_to_live = life;
    }
    o.deduplication_window = r.span_of_time();
    if (validate(o)) {
        r.fail(); // nobody could have made such a queue
    }
    return o;
}

inline void put(wire_writer& w, const queue_definition& d) {
    w.number(d.number);
    w.text(d.name);
    w.text(d.format);
    w.number(d.next_position);
    w.number(d.next_delayed);
    put(w, d.options);
}
[[nodiscard]] inline queue_definition get_definition(wire_reader& r) {
    queue_definition d;
    d.number = r.number();
    d.name = std::string{r.text()};
    d.format = std::string{r.text()};
    d.next_position = r.number();
    d.next_delayed = r.number();
    d.options = get_options(r);
    if (validate_name(d.name)) {
        r.fail();
    }
    return d;
}

} // namespace wire
} // namespace railmq::storage
