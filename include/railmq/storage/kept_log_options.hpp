// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/group_options.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/name.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/kept_message.hpp>
#include <railmq/storage/kept_options.hpp>
#include <railmq/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace railmq::storage {

/// How long records stay that everybody has who wants them.
struct log_interest {
    bool decides = false;       ///< Until then, and as the next two say; else retention alone.
    bool keeps_history = false; ///< For whoever comes later, as much as retention keeps.
    bool keeps_last = false;    ///< The last one is not removed.

    friend bool operator==(const log_interest&, const log_interest&) = default;
};

/// What a log is, as a journal keeps it. One whose interest decides is a topic.
struct log_definition {
    std::uint64_t number = 0; ///< Its own in this journal among logs, never used again.
    std::string name{};
    std::string format{};         ///< Of its payloads, as their codec names it.
    std::uint32_t partitions = 1; ///< That it has now.
    log_options options{};        ///< What it was made with.
    log_interest interest{};

    friend bool operator==(const log_definition&, const log_definition&) = default;
};

/// How a group of a log is, apart from what it has committed.
struct group_definition {
    std::string name{};
    group_options options{};
    std::uint64_t generation = 0; ///< How many rebalances it has had.
    /// Since when it has no members; `never`: it has some.
    time_point emptied = never;

    friend bool operator==(const group_definition&, const group_definition&) = default;
};

namespace wire {

inline void put(wire_writer& w, const log_options& o) {
    w.number(o.partitions);
    put_optional(w, o.retention.max_age);
    put_size(w, o.retention.max_bytes);
    put_size(w, o.retention.max_records);
    w.number(static_cast<std::uint64_t>(o.cleanup));
    w.number(static_cast<std::uint64_t>(o.timestamps));
    put_size(w, o.segment_bytes);
    put_size(w, o.segment_records);
    w.span_of_time(o.segment_age);
    w.span_of_time(o.tombstone_retention);
    w.span_of_time(o.min_compaction_lag);
    put_size(w, o.compaction_keys);
    w.real(o.min_dirty_ratio);
    w.span_of_time(o.producer_expiry);
}
[[nodiscard]] inline log_options get_log_options(wire_reader& r) {
    log_options o;
    o.partitions = r.small();
    o.retention.max_age = get_optional(r);
    o.retention.max_bytes = get_size(r);
    o.retention.max_records = get_size(r);
    o.cleanup = get_enum(r, log_cleanup::compact_and_remove);
    o.timestamps = get_enum(r, log_timestamps::append);
    o.segment_bytes = get_size(r);
    o.segment_records = get_size(r);
    o.segment_age = r.span_of_time();
    o.tombstone_retention = r.span_of_time();
    o.min_compaction_lag = r.span_of_time();
    o.compaction_keys = get_size(r);
    o.min_dirty_ratio = r.real();
    o.producer_expiry = r.span_of_time();
    if (!r.has_failed() && validate(o)) {
        r.fail(); // nobody could have made such a log
    }
    return o;
}

inline void put(wire_writer& w, const log_definition& d) {
    w.number(d.number);
    w.text(d.name);
    w.text(d.format);
    w.number(d.partitions);
    put(w, d.options);
    w.byte(static_cast<std::uint8_t>(
        (d.interest.decides ? 1 : 0) | (d.interest.keeps_history ? 2 : 0) |
        (d.interest.keeps_last ? 4 : 0)));
}
[[nodiscard]] inline log_definition get_log_definition(wire_reader& r) {
    constexpr std::uint64_t most_partitions = std::uint64_t{1} << 16;
    log_definition d;
    d.number = r.number();
    d.name = std::string{r.text()};
    d.format = std::string{r.text()};
    d.partitions = static_cast<std::uint32_t>(r.number_below(most_partitions + 1));
    d.options = get_log_options(r);
    const std::uint8_t interest = r.byte();
    d.interest = {(interest & 1) != 0, (interest & 2) != 0, (interest & 4) != 0};
    if (interest > 7 || (interest != 0 && !d.interest.decides)) {
        r.fail();
    }
    if (!r.has_failed() && (d.partitions < d.options.partitions || validate_name(d.name))) {
        r.fail();
    }
    return d;
}

inline void put(wire_writer& w, const group_definition& g) {
    w.text(g.name);
    w.number(static_cast<std::uint64_t>(g.options.assignor));
    w.span_of_time(g.options.initial_rebalance_delay);
    w.span_of_time(g.options.rebalance_timeout);
    w.span_of_time(g.options.offset_retention);
    w.number(g.options.max_metadata_bytes);
    w.number(g.generation);
    w.moment(g.emptied);
}
[[nodiscard]] inline group_definition get_group_definition(wire_reader& r) {
    group_definition g;
    g.name = std::string{r.text()};
    g.options.assignor = get_enum(r, assignor::cooperative_sticky);
    g.options.initial_rebalance_delay = r.span_of_time();
    g.options.rebalance_timeout = r.span_of_time();
    g.options.offset_retention = r.span_of_time();
    g.options.max_metadata_bytes = static_cast<std::size_t>(r.number());
    g.generation = r.number();
    g.emptied = r.moment();
    if (!r.has_failed() && (validate(g.options) || validate_name(g.name))) {
        r.fail();
    }
    return g;
}

} // namespace wire
} // namespace railmq::storage
