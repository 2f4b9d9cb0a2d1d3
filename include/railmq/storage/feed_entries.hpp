// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>
#include <railmq/model/topic_options.hpp>
#include <railmq/storage/kept_message.hpp>
#include <railmq/storage/kept_options.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/segment.hpp>
#include <railmq/storage/stored_content.hpp>
#include <railmq/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::storage {

/// The entries of subscriptions, which are queues that are filled from logs: the kinds from 28 on.
/// Byte by byte in docs/design/11_topics.md. As all entries they say how a thing is, and a later
/// one replaces an earlier one.
enum class feed_entry_kind : std::uint8_t {
    feed = 28, ///< A queue is filled from a log.
    fed_to,    ///< So far it has come in a partition.
    fed,       ///< A message that it has from there, and where the record lies.
    fed_run,   ///< Such messages in a row that are new and plain, of records in a row.
};

/// What a subscription is, as a journal keeps it.
struct feed_definition {
    std::uint64_t queue = 0;
    std::uint64_t log = 0;
    std::size_t max_backlog = unlimited;
    bool has_code = false; ///< It has a filter that only its program knows.
    std::vector<header_condition> where{};

    friend bool operator==(const feed_definition&, const feed_definition&) = default;
};

/// A record of any log; no log: none.
struct log_record_name {
    log_place where{};
    std::uint64_t offset = 0;

    [[nodiscard]] bool is_none() const noexcept { return where.log == 0; }
    friend auto operator<=>(const log_record_name&, const log_record_name&) = default;
};

/// Messages in a row, as `fed_run` says it.
struct fed_messages {
    std::uint64_t first = 0; ///< Id.
    std::uint64_t count = 0;
    time_point enqueued{};
    log_record_name from{}; ///< The first one's.
    record_location where{};
    std::uint32_t bytes = 0; ///< Of all of them.

    /// What of the bytes is the i-th one's: nobody has looked how large each is.
    [[nodiscard]] std::uint32_t bytes_of(std::uint64_t i) const noexcept {
        const auto upto = [&](std::uint64_t n) { return std::uint64_t{bytes} * n / count; };
        return static_cast<std::uint32_t>(upto(i + 1) - upto(i));
    }
};
/// Never more, so that a few bytes cannot claim that there are millions.
inline constexpr std::uint64_t max_fed_run = 4096;

namespace wire {

inline void put(wire_writer& w, const feed_definition& d) {
    w.number(d.queue);
    w.number(d.log);
    put_size(w, d.max_backlog);
    w.byte(d.has_code ? 1 : 0);
    w.number(d.where.size());
    for (const header_condition& c : d.where) {
        w.text(c.name);
        w.number(c.values.size());
        for (const std::string& value : c.values) {
            w.text(value);
        }
    }
}
[[nodiscard]] inline feed_definition get_feed(wire_reader& r) {
    feed_definition d;
    d.queue = r.number();
    d.log = r.number();
    d.max_backlog = get_size(r);
    const std::uint8_t has_code = r.byte();
    d.has_code = has_code == 1;
    if (has_code > 1) {
        r.fail();
    }
    // So many that they could be there.
    for (std::uint64_t n = r.number_below(r.left() / 2 + 1); n != 0 && !r.has_failed(); --n) {
        header_condition c;
        c.name = std::string{r.text()};
        std::uint64_t values = r.number_below(r.left() + 1);
        for (; values != 0 && !r.has_failed(); --values) {
            c.values.emplace_back(r.text());
        }
        if (c.name.empty()) {
            r.fail();
        }
        d.where.push_back(std::move(c));
    }
    return d;
}

} // namespace wire

/// Writes entries of subscriptions behind each other.
///
/// Distinct objects: safe. Shared objects: unsafe.
class feed_entry_writer {
public:
    /// `wall` is what the wall clock is ahead of the broker's time.
    explicit feed_entry_writer(std::vector<std::byte>& out, duration wall) noexcept
        : w_{out, wall} {}

    void feed(const feed_definition& d) {
        kind(feed_entry_kind::feed);
        wire::put(w_, d);
    }
    void fed_to(std::uint64_t queue, std::uint32_t partition, std::uint64_t position) {
        kind(feed_entry_kind::fed_to);
        w_.number(queue);
        w_.number(partition);
        w_.number(position);
    }
    void
    fed(std::uint64_t queue,
        const core::message_image& m,
        const log_record_name& from,
        record_location where,
        std::uint32_t bytes) {
        kind(feed_entry_kind::fed);
        w_.number(queue);
        wire::put_state(w_, m);
        place(from, where, bytes);
    }
    void fed_run(std::uint64_t queue, const fed_messages& m) {
        kind(feed_entry_kind::fed_run);
        w_.number(queue);
        w_.number(m.first);
        w_.number(m.count);
        w_.moment(m.enqueued);
        place(m.from, m.where, m.bytes);
    }

private:
    void kind(feed_entry_kind k) { w_.byte(static_cast<std::uint8_t>(k)); }
    void place(const log_record_name& from, record_location where, std::uint32_t bytes) {
        w_.number(from.where.log);
        w_.number(from.where.partition);
        w_.number(from.offset);
        w_.number(where.segment);
        w_.number(where.offset);
        w_.number(bytes);
    }

    wire_writer w_;
};

/// For those who read other entries, or entries of some kinds only: derive from it, and hide what
/// is wanted.
struct feed_entry_visitor {
    void feed(const feed_definition&) const noexcept {}
    void fed_to(std::uint64_t, std::uint32_t, std::uint64_t) const noexcept {}
    void
    fed(std::uint64_t,
        const core::message_image&,
        const log_record_name&,
        record_location,
        std::uint32_t) const noexcept {}
    void fed_run(std::uint64_t, const fed_messages&) const noexcept {}
};

namespace detail {

[[nodiscard]] inline log_record_name
get_record_name(wire_reader& r, record_location& where, std::uint32_t& bytes) noexcept {
    log_record_name p;
    p.where = get_place(r);
    p.offset = r.number_below(max_log_offset);
    where.segment = r.small();
    where.offset = r.number_below((std::uint64_t{0xffff'ffff} * record_header::alignment) + 1);
    bytes = r.small();
    if (p.is_none() || where.segment == 0 || where.offset % record_header::alignment != 0) {
        r.fail(); // no record begins there
    }
    return p;
}

} // namespace detail

/// Reads one entry of a subscription, whose kind was read already, and calls what
/// `feed_entry_visitor` has, with what `feed_entry_writer` was given. Where it is none, `r` has
/// failed afterwards.
template <class Visit>
void read_feed_entry(std::uint8_t kind, wire_reader& r, Visit& visit) {
    switch (static_cast<feed_entry_kind>(kind)) {
    case feed_entry_kind::feed: {
        feed_definition d = wire::get_feed(r);
        if (!r.has_failed()) {
            visit.feed(std::move(d));
        }
        return;
    }
    case feed_entry_kind::fed_to: {
        const std::uint64_t queue = r.number();
        const auto partition = static_cast<std::uint32_t>(r.number_below(std::uint64_t{1} << 16));
        const std::uint64_t position = r.number_below(max_log_offset);
        if (!r.has_failed()) {
            visit.fed_to(queue, partition, position);
        }
        return;
    }
    case feed_entry_kind::fed: {
        const std::uint64_t queue = r.number();
        core::message_image m = wire::get_state(r);
        record_location where;
        std::uint32_t bytes = 0;
        const log_record_name from = detail::get_record_name(r, where, bytes);
        if (!r.has_failed()) {
            visit.fed(queue, std::move(m), from, where, bytes);
        }
        return;
    }
    case feed_entry_kind::fed_run: {
        const std::uint64_t queue = r.number();
        fed_messages m;
        m.first = r.number();
        m.count = r.number_below(max_fed_run + 1);
        m.enqueued = r.moment();
        m.from = detail::get_record_name(r, m.where, m.bytes);
        if (m.count == 0 || m.first > ~std::uint64_t{0} - m.count) {
            r.fail();
        }
        if (!r.has_failed()) {
            visit.fed_run(queue, m);
        }
        return;
    }
    }
    r.fail();
}

/// A record of a log as the content of a message that was made of it: with its key among the
/// properties, for which `room` is used. False: its properties are none.
[[nodiscard]] inline bool
content_of(const log_run_record& r, std::vector<std::byte>& room, stored_content& out) {
    out = {};
    out.payload = r.payload;
    if (!r.has_key) {
        out.has = r.props.empty() ? 0 : 1;
        out.beside = r.props;
        return true;
    }
    properties p;
    if (!r.props.empty() && !r.get(p)) {
        return false;
    }
    p.key = std::string{r.key};
    room.clear();
    wire_writer w{room, duration::zero()};
    wire::put(w, p);
    out.has = 1;
    out.beside = room;
    return true;
}

} // namespace railmq::storage
