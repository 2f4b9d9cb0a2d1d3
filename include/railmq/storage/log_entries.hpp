// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/producer_states.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/kept_log_options.hpp>
#include <railmq/storage/kept_message.hpp>
#include <railmq/storage/record.hpp>
#include <railmq/storage/segment.hpp>
#include <railmq/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::storage {

/// The entries of logs in a record of a broker's journal: the kinds from 16 on. Byte by byte in
/// docs/design/10_kept_logs.md. As all entries they say how a thing is, and a later one replaces an
/// earlier one.
enum class log_entry_kind : std::uint8_t {
    log = 16,          ///< A log is there, or is as it says.
    deleted,           ///< It is gone, with its records and groups.
    run,               ///< Records in a row.
    partition,         ///< Where a partition begins and ends, and how far it was compacted.
    removed,           ///< Records that are gone.
    horizons,          ///< When tombstones may go.
    rows,              ///< Of all records between two offsets, these are there, in these places.
    producer,          ///< What is remembered of an idempotent producer.
    group,             ///< A group is there, or is as it says.
    group_deleted,     ///< It is gone, with what it has committed.
    group_offset,      ///< What it has committed of a partition.
    group_offset_gone, ///< It has committed nothing of a partition any more.
};

/// Offsets and numbers of offsets are below this.
inline constexpr std::uint64_t max_log_offset = std::uint64_t{1} << 62;

/// A partition of a log, by the log's number.
struct log_place {
    std::uint64_t log = 0;
    std::uint32_t partition = 0;

    friend auto operator<=>(const log_place&, const log_place&) = default;
};

/// Where a partition begins and ends.
struct kept_extent {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t checkpoint = 0; ///< Of compaction.

    friend bool operator==(const kept_extent&, const kept_extent&) = default;
};

/// What is remembered of a producer in one partition.
using kept_producer = core::producer_image;

/// Numbers of an idempotent producer, in a run.
struct run_producer {
    std::uint64_t id = 0;
    std::uint32_t epoch = 0;
    std::int32_t first = 0;
    std::int32_t last = 0;

    friend bool operator==(const run_producer&, const run_producer&) = default;
};

/// A run as it lies in a record.
struct log_run {
    log_place where{};
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    time_point appended{}; ///< When it was first appended.
    std::optional<run_producer> producer{};
    std::span<const std::byte> records{};
    std::uint32_t bytes = 0; ///< Of the entry.
};

/// A record of a run; texts and bytes are where the run's are.
struct log_run_record {
    bool has_key = false;
    bool is_tombstone = false;
    std::string_view key{};
    std::optional<time_point> timestamp{}; ///< None: that of the append.
    std::span<const std::byte> props{};    ///< Empty: none.
    std::span<const std::byte> payload{};
    std::span<const std::byte> all{}; ///< Everything.

    /// Reads the properties, of which there must be some. False: they are none.
    [[nodiscard]] bool get(properties& p) const {
        wire_reader r{props};
        p = wire::get_properties(r);
        return !r.has_failed() && r.is_at_end();
    }
};

namespace wire {

inline constexpr std::uint8_t run_has_key = 1;
inline constexpr std::uint8_t run_is_tombstone = 2;
inline constexpr std::uint8_t run_has_time = 4;
inline constexpr std::uint8_t run_has_properties = 8;

/// A record of a run up to its payload, of which a size and so many bytes must follow unless it is
/// a tombstone.
inline void put_run_record(
    wire_writer& w,
    std::optional<std::string_view> key,
    std::optional<time_point> timestamp,
    const properties* p,
    bool is_tombstone) {
    w.byte(static_cast<std::uint8_t>(
        (key ? run_has_key : 0) | (is_tombstone ? run_is_tombstone : 0) |
        (timestamp ? run_has_time : 0) | (p != nullptr ? run_has_properties : 0)));
    if (key) {
        w.text(*key);
    }
    if (timestamp) {
        w.moment(*timestamp);
    }
    if (p != nullptr) {
        const std::size_t begin = w.begin_length();
        put(w, *p);
        w.end_length(begin);
    }
}
[[nodiscard]] inline log_run_record
get_run_record(wire_reader& r, std::span<const std::byte> from) {
    log_run_record out;
    const std::size_t begin = from.size() - r.left();
    const std::uint8_t flags = r.byte();
    if (flags >= 16 || ((flags & run_is_tombstone) != 0 && (flags & run_has_key) == 0)) {
        r.fail();
        return out;
    }
    out.is_tombstone = (flags & run_is_tombstone) != 0;
    if ((flags & run_has_key) != 0) {
        out.has_key = true;
        out.key = r.text();
    }
    if ((flags & run_has_time) != 0) {
        out.timestamp = r.moment();
    }
    if ((flags & run_has_properties) != 0) {
        out.props = r.block();
        if (out.props.empty()) {
            r.fail();
        }
    }
    if (!out.is_tombstone) {
        out.payload = r.raw(r.number());
    }
    if (!r.has_failed()) {
        out.all = from.subspan(begin, from.size() - r.left() - begin);
    }
    return out;
}

} // namespace wire

/// Calls `f(offset, record)` for each record of a run that was read. `wall` is what the wall clock
/// is ahead of the time line that moments are wanted in.
template <class F>
void for_each_record(const log_run& run, duration wall, F&& f) {
    wire_reader r{run.records, wall};
    for (std::uint64_t i = 0; i != run.count; ++i) {
        const log_run_record one = wire::get_run_record(r, run.records);
        if (r.has_failed()) {
            return; // it was read before, so this cannot be
        }
        f(run.first + i, one);
    }
}

/// Writes entries of logs behind each other.
///
/// Distinct objects: safe. Shared objects: unsafe.
class log_entry_writer {
public:
    /// `wall` is what the wall clock is ahead of the broker's time.
    explicit log_entry_writer(std::vector<std::byte>& out, duration wall) noexcept
        : w_{out, wall} {}

    void log(const log_definition& d) {
        kind(log_entry_kind::log);
        wire::put(w_, d);
    }
    void deleted(std::uint64_t log) {
        kind(log_entry_kind::deleted);
        w_.number(log);
    }
    /// As many records must follow.
    void
    run(log_place where,
        std::uint64_t first,
        std::uint64_t count,
        time_point appended,
        const std::optional<run_producer>& producer = {}) {
        begin(log_entry_kind::run, where);
        w_.number(first);
        w_.number(count);
        w_.moment(appended);
        w_.byte(producer ? 1 : 0);
        if (producer) {
            w_.number(producer->id);
            w_.number(producer->epoch);
            w_.number(static_cast<std::uint64_t>(producer->first));
            w_.number(static_cast<std::uint64_t>(producer->last));
        }
    }
    /// Of a run, as they were encoded or read.
    void records(std::span<const std::byte> bytes) { w_.raw(bytes); }
    void partition(log_place where, const kept_extent& e) {
        begin(log_entry_kind::partition, where);
        w_.number(e.start);
        w_.number(e.end);
        w_.number(e.checkpoint);
    }
    void removed(log_place where, std::uint64_t first, std::uint64_t count) {
        begin(log_entry_kind::removed, where);
        w_.number(first);
        w_.number(count);
    }
    void horizon(log_place where, std::uint64_t offset, time_point when) {
        begin(log_entry_kind::horizons, where);
        w_.number(offset);
        w_.moment(when);
    }
    /// As many `row` must follow.
    void rows(log_place where, std::uint64_t from, std::uint64_t to, std::uint64_t count) {
        begin(log_entry_kind::rows, where);
        w_.number(from);
        w_.number(to);
        w_.number(count);
    }
    void row(std::uint64_t first, std::uint64_t count, record_location at, std::uint32_t bytes) {
        w_.number(first);
        w_.number(count);
        w_.number(at.segment);
        w_.number(at.offset);
        w_.number(bytes);
    }
    void producer(log_place where, const kept_producer& p) {
        begin(log_entry_kind::producer, where);
        w_.number(p.id);
        w_.number(p.epoch);
        w_.moment(p.used);
        w_.number(p.count);
        for (std::uint32_t i = 0; i < p.count; ++i) {
            w_.number(static_cast<std::uint64_t>(p.batches[i].first));
            w_.number(static_cast<std::uint64_t>(p.batches[i].last));
            w_.number(p.batches[i].offset);
        }
    }
    void group(std::uint64_t log, const group_definition& g) {
        kind(log_entry_kind::group);
        w_.number(log);
        wire::put(w_, g);
    }
    void group_deleted(std::uint64_t log, std::string_view name) {
        kind(log_entry_kind::group_deleted);
        w_.number(log);
        w_.text(name);
    }
    void group_offset(
        log_place where,
        std::string_view name,
        std::uint64_t offset,
        std::string_view metadata,
        time_point at) {
        begin(log_entry_kind::group_offset, where);
        w_.text(name);
        w_.number(offset);
        w_.text(metadata);
        w_.moment(at);
    }
    void group_offset_gone(log_place where, std::string_view name) {
        begin(log_entry_kind::group_offset_gone, where);
        w_.text(name);
    }

private:
    void kind(log_entry_kind k) { w_.byte(static_cast<std::uint8_t>(k)); }
    void begin(log_entry_kind k, log_place where) {
        kind(k);
        w_.number(where.log);
        w_.number(where.partition);
    }

    wire_writer w_;
};

/// For those who read other entries, or entries of some kinds only: derive from it, and hide what
/// is wanted.
struct log_entry_visitor {
    void log(const log_definition&) const noexcept {}
    void log_deleted(std::uint64_t) const noexcept {}
    void run(const log_run&) const noexcept {}
    void partition(log_place, const kept_extent&) const noexcept {}
    void removed(log_place, std::uint64_t, std::uint64_t) const noexcept {}
    void horizon(log_place, std::uint64_t, time_point) const noexcept {}
    void rows(log_place, std::uint64_t, std::uint64_t) const noexcept {}
    void
    row(log_place, std::uint64_t, std::uint64_t, record_location, std::uint32_t) const noexcept {}
    void producer(log_place, const kept_producer&) const noexcept {}
    void group(std::uint64_t, const group_definition&) const noexcept {}
    void group_deleted(std::uint64_t, std::string_view) const noexcept {}
    void group_offset(
        log_place, std::string_view, std::uint64_t, std::string_view, time_point) const noexcept {}
    void group_offset_gone(log_place, std::string_view) const noexcept {}
};

namespace detail {

[[nodiscard]] inline std::int32_t get_sequence(wire_reader& r) noexcept {
    return static_cast<std::int32_t>(r.number_below(std::uint64_t{1} << 31));
}
[[nodiscard]] inline log_place get_place(wire_reader& r) noexcept {
    log_place p;
    p.log = r.number();
    p.partition = static_cast<std::uint32_t>(r.number_below(std::uint64_t{1} << 16));
    return p;
}
[[nodiscard]] inline log_run get_run(wire_reader& r, std::span<const std::byte> from) {
    log_run run;
    const std::size_t begin = r.left() + 1; // the kind was read before
    run.where = get_place(r);
    run.first = r.number_below(max_log_offset);
    run.count = r.number_below(max_log_offset);
    run.appended = r.moment();
    const std::uint8_t has_producer = r.byte();
    if (run.count == 0 || has_producer > 1) {
        r.fail();
    }
    if (has_producer == 1) {
        run_producer p;
        p.id = r.number();
        p.epoch = r.small();
        p.first = get_sequence(r);
        p.last = get_sequence(r);
        run.producer = p;
    }
    const std::size_t records = r.left();
    for (std::uint64_t n = run.count; n != 0 && !r.has_failed(); --n) {
        (void)wire::get_run_record(r, from);
    }
    if (!r.has_failed()) {
        run.records = from.subspan(from.size() - records, records - r.left());
        run.bytes = static_cast<std::uint32_t>(begin - r.left());
    }
    return run;
}
template <class Visit>
void get_rows(wire_reader& r, Visit& visit) {
    const log_place where = get_place(r);
    const std::uint64_t from = r.number();
    const std::uint64_t to = r.number();
    std::uint64_t n = r.number();
    if (r.has_failed()) {
        return;
    }
    visit.rows(where, from, to);
    for (; n != 0 && !r.has_failed(); --n) {
        const std::uint64_t first = r.number_below(max_log_offset);
        const std::uint64_t count = r.number_below(max_log_offset);
        record_location at;
        at.segment = r.small();
        at.offset = r.number_below((std::uint64_t{0xffff'ffff} * record_header::alignment) + 1);
        const std::uint32_t bytes = r.small();
        if (count == 0 || at.segment == 0 || at.offset % record_header::alignment != 0) {
            r.fail(); // no record begins there
        }
        if (!r.has_failed()) {
            visit.row(where, first, count, at, bytes);
        }
    }
}
[[nodiscard]] inline kept_producer get_producer(wire_reader& r) {
    kept_producer p;
    p.id = r.number();
    p.epoch = r.small();
    p.used = r.moment();
    p.count = static_cast<std::uint32_t>(r.number_below(kept_producer::max_batches + 1));
    if (p.count == 0) {
        r.fail();
    }
    for (std::uint32_t i = 0; i < p.count; ++i) {
        p.batches[i].first = get_sequence(r);
        p.batches[i].last = get_sequence(r);
        p.batches[i].offset = r.number_below(max_log_offset);
    }
    return p;
}

} // namespace detail

/// Reads one entry of a log, whose kind was read already, and calls what `log_entry_visitor` has,
/// with what `log_entry_writer` was given. `from` is all that `r` reads. Where it is none, `r` has
/// failed afterwards.
template <class Visit>
void read_log_entry(
    std::uint8_t kind, wire_reader& r, std::span<const std::byte> from, Visit& visit) {
    const auto if_good = [&](auto&& f) {
        if (!r.has_failed()) {
            f();
        }
    };
    switch (static_cast<log_entry_kind>(kind)) {
    case log_entry_kind::log: {
        log_definition d = wire::get_log_definition(r);
        if_good([&] { visit.log(std::move(d)); });
        return;
    }
    case log_entry_kind::deleted: {
        const std::uint64_t log = r.number();
        if_good([&] { visit.log_deleted(log); });
        return;
    }
    case log_entry_kind::run: {
        const log_run run = detail::get_run(r, from);
        if_good([&] { visit.run(run); });
        return;
    }
    case log_entry_kind::partition: {
        const log_place where = detail::get_place(r);
        kept_extent e;
        e.start = r.number_below(max_log_offset);
        e.end = r.number_below(max_log_offset);
        e.checkpoint = r.number_below(max_log_offset);
        if (e.start > e.end || e.checkpoint > e.end) {
            r.fail();
        }
        if_good([&] { visit.partition(where, e); });
        return;
    }
    case log_entry_kind::removed: {
        const log_place where = detail::get_place(r);
        const std::uint64_t first = r.number_below(max_log_offset);
        const std::uint64_t count = r.number_below(max_log_offset);
        if_good([&] { visit.removed(where, first, count); });
        return;
    }
    case log_entry_kind::horizons: {
        const log_place where = detail::get_place(r);
        const std::uint64_t offset = r.number_below(max_log_offset);
        const time_point when = r.moment();
        if_good([&] { visit.horizon(where, offset, when); });
        return;
    }
    case log_entry_kind::rows: detail::get_rows(r, visit); return;
    case log_entry_kind::producer: {
        const log_place where = detail::get_place(r);
        const kept_producer p = detail::get_producer(r);
        if_good([&] { visit.producer(where, p); });
        return;
    }
    case log_entry_kind::group: {
        const std::uint64_t log = r.number();
        group_definition g = wire::get_group_definition(r);
        if_good([&] { visit.group(log, std::move(g)); });
        return;
    }
    case log_entry_kind::group_deleted: {
        const std::uint64_t log = r.number();
        const std::string_view name = r.text();
        if_good([&] { visit.group_deleted(log, name); });
        return;
    }
    case log_entry_kind::group_offset: {
        const log_place where = detail::get_place(r);
        const std::string_view name = r.text();
        const std::uint64_t offset = r.number_below(max_log_offset);
        const std::string_view metadata = r.text();
        const time_point at = r.moment();
        if_good([&] { visit.group_offset(where, name, offset, metadata, at); });
        return;
    }
    case log_entry_kind::group_offset_gone: {
        const log_place where = detail::get_place(r);
        const std::string_view name = r.text();
        if_good([&] { visit.group_offset_gone(where, name); });
        return;
    }
    }
    r.fail();
}

} // namespace railmq::storage
