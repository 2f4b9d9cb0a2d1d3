// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/storage/exchange_entries.hpp>
#include <railmq/storage/feed_entries.hpp>
#include <railmq/storage/kept_message.hpp>
#include <railmq/storage/kept_options.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/segment.hpp>
#include <railmq/storage/stored_content.hpp>
#include <railmq/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace railmq::storage {

/// What a record of a broker's journal consists of: entries, one behind the other. A record is
/// there or not, so its entries happen together or not at all. Byte by byte in
/// docs/design/05_journal.md.
///
/// Entries say how a thing is, not what was done to it: reading one twice does no harm, and a later
/// one replaces an earlier one. Those of logs are in log_entries.hpp, those of subscriptions in
/// feed_entries.hpp.
enum class entry_kind : std::uint8_t {
    clock = 1,  ///< That moment has come.
    queue,      ///< A queue is there, or is as it says.
    deleted,    ///< It is gone, with all that was in it.
    stored,     ///< A message, whole.
    changed,    ///< A message's state.
    held,       ///< Messages in a row that were handed out, and nothing else is to be said of them.
    gone,       ///< Messages in a row have left.
    range,      ///< Of all messages between two ids, these are there, with what they are.
    stored_run, ///< Messages in a row that are new and plain, sent at one moment.

    exchange = 10, ///< An exchange is there, or is as it says.
    exchange_gone, ///< It is gone, with the bindings from and to it.
    bound,         ///< A binding is there, or is as it says.
    unbound,       ///< It is gone.
    remembered,    ///< A queue has accepted a message with that deduplication id.
};

/// Places of records are kept in eight bytes (`kept_at`): the highest one.
inline constexpr std::uint64_t max_record_offset =
    std::uint64_t{0xffff'ffff} * record_header::alignment;

/// Writes entries behind each other.
///
/// Distinct objects: safe. Shared objects: unsafe.
class entry_writer {
public:
    /// `wall` is what the wall clock is ahead of the broker's time.
    explicit entry_writer(std::vector<std::byte>& out, duration wall) noexcept
        : w_{out, wall} {}

    void clock(time_point now) {
        kind(entry_kind::clock);
        w_.moment(now);
    }
    void queue(const queue_definition& d) {
        kind(entry_kind::queue);
        wire::put(w_, d);
    }
    void deleted(std::uint64_t queue) { begin(entry_kind::deleted, queue); }
    void exchange(const exchange_definition& d) {
        kind(entry_kind::exchange);
        wire::put(w_, d);
    }
    void exchange_gone(std::uint64_t exchange) { begin(entry_kind::exchange_gone, exchange); }
    void bound(const binding_definition& b) {
        kind(entry_kind::bound);
        wire::put(w_, b);
    }
    void unbound(const binding_definition& b) {
        kind(entry_kind::unbound);
        wire::put(w_, b);
    }

    /// Up to its payload, of which `size` bytes must follow.
    void stored(
        std::uint64_t queue,
        const core::message_image& m,
        const properties* p,
        const death_history* deaths) {
        begin(entry_kind::stored, queue);
        wire::put_state(w_, m);
        w_.byte(static_cast<std::uint8_t>((p != nullptr ? 1 : 0) | (deaths != nullptr ? 2 : 0)));
        if (p == nullptr && deaths == nullptr) {
            return;
        }
        const std::size_t begin = w_.begin_length();
        if (p != nullptr) {
            wire::put(w_, *p);
        }
        if (deaths != nullptr) {
            wire::put(w_, *deaths);
        }
        w_.end_length(begin);
    }
    void payload(std::span<const std::byte> bytes) {
        w_.number(bytes.size());
        w_.raw(bytes);
    }
    /// Many of them, each behind its size.
    void payloads(std::span<const std::byte> bytes) { w_.raw(bytes); }
    /// The same with content that was stored before, as it is.
    void stored(std::uint64_t queue, const core::message_image& m, const stored_content& content) {
        begin(entry_kind::stored, queue);
        wire::put_state(w_, m);
        w_.byte(content.has);
        if (content.has != 0) {
            const std::size_t begin = w_.begin_length();
            w_.raw(content.beside);
            w_.end_length(begin);
        }
        payload(content.payload);
    }
    /// Messages with ids in a row, plain and in line; as many payloads must follow.
    void
    stored_run(std::uint64_t queue, std::uint64_t first, std::uint64_t count, time_point enqueued) {
        begin(entry_kind::stored_run, queue);
        w_.number(first);
        w_.number(count);
        w_.moment(enqueued);
    }
    void changed(std::uint64_t queue, const core::message_image& m) {
        begin(entry_kind::changed, queue);
        wire::put_state(w_, m);
    }
    void held(
        std::uint64_t queue,
        std::uint64_t first,
        std::uint64_t count,
        std::uint32_t delivery_count,
        time_point at) {
        begin(entry_kind::held, queue);
        w_.number(first);
        w_.number(count);
        w_.number(delivery_count);
        w_.moment(at);
    }
    void gone(std::uint64_t queue, std::uint64_t first, std::uint64_t count) {
        begin(entry_kind::gone, queue);
        w_.number(first);
        w_.number(count);
    }
    /// `id` and `at` are those of the message that was accepted.
    void remembered(std::uint64_t queue, std::string_view key, std::uint64_t id, time_point at) {
        begin(entry_kind::remembered, queue);
        w_.text(key);
        w_.number(id);
        w_.moment(at);
    }
    /// Of the ids from `from` on and before `to`, `count` are there: as many `listed` must follow.
    void range(std::uint64_t queue, std::uint64_t from, std::uint64_t to, std::uint64_t count) {
        begin(entry_kind::range, queue);
        w_.number(from);
        w_.number(to);
        w_.number(count);
    }
    void listed(const core::message_image& m, record_location where, std::uint32_t bytes) {
        wire::put_state(w_, m);
        w_.number(where.segment);
        w_.number(where.offset);
        w_.number(bytes);
    }

private:
    void kind(entry_kind k) { w_.byte(static_cast<std::uint8_t>(k)); }
    void begin(entry_kind k, std::uint64_t queue) {
        kind(k);
        w_.number(queue);
    }

    wire_writer w_;
};

/// For those who read entries of some kinds only: derive from it, and hide what is wanted.
struct entry_visitor : log_entry_visitor, feed_entry_visitor {
    void clock(time_point) const noexcept {}
    void queue(const queue_definition&) const noexcept {}
    void deleted(std::uint64_t) const noexcept {}
    void exchange(const exchange_definition&) const noexcept {}
    void exchange_gone(std::uint64_t) const noexcept {}
    void bound(const binding_definition&) const noexcept {}
    void unbound(const binding_definition&) const noexcept {}
    void stored(std::uint64_t, const core::message_image&, const stored_content&) const noexcept {}
    void changed(std::uint64_t, const core::message_image&) const noexcept {}
    void
    held(std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t, time_point) const noexcept {}
    void gone(std::uint64_t, std::uint64_t, std::uint64_t) const noexcept {}
    void range(std::uint64_t, std::uint64_t, std::uint64_t) const noexcept {}
    void remembered(std::uint64_t, std::string_view, std::uint64_t, time_point) const noexcept {}
    void listed(
        std::uint64_t, const core::message_image&, record_location, std::uint32_t) const noexcept {}
};

/// Reads the entries of a record and calls `visit.clock(...)`, `visit.queue(...)` and so on, with
/// what `entry_writer` was given; `stored(queue, image, content)` with a `stored_content`, for each
/// message of a `stored_run` as well, unless there is a `stored_plain(queue, first, count,
/// enqueued, bytes)` for those of a run that take so many bytes each. `wall` is what the wall clock
/// is ahead of the time line that moments are wanted in. False: these are no entries; those before
/// were visited.
template <class Visit>
[[nodiscard]] bool read_entries(std::span<const std::byte> record, duration wall, Visit&& visit) {
    wire_reader r{record, wall};
    while (!r.is_at_end()) {
        const std::size_t before = r.left();
        const std::uint8_t k = r.byte();
        switch (static_cast<entry_kind>(k)) {
        case entry_kind::clock: {
            const time_point now = r.moment();
            if (!r.has_failed()) {
                visit.clock(now);
            }
            break;
        }
        case entry_kind::queue: {
            queue_definition d = wire::get_definition(r);
            if (!r.has_failed()) {
                visit.queue(std::move(d));
            }
            break;
        }
        case entry_kind::deleted: {
            const std::uint64_t queue = r.number();
            if (!r.has_failed()) {
                visit.deleted(queue);
            }
            break;
        }
        case entry_kind::exchange: {
            exchange_definition d = wire::get_exchange(r);
            if (!r.has_failed()) {
                visit.exchange(std::move(d));
            }
            break;
        }
        case entry_kind::exchange_gone: {
            const std::uint64_t exchange = r.number();
            if (!r.has_failed()) {
                visit.exchange_gone(exchange);
            }
            break;
        }
        case entry_kind::bound:
        case entry_kind::unbound: {
            binding_definition b = wire::get_binding(r);
            if (r.has_failed()) {
                break;
            }
            if (static_cast<entry_kind>(k) == entry_kind::bound) {
                visit.bound(std::move(b));
            } else {
                visit.unbound(std::move(b));
            }
            break;
        }
        case entry_kind::stored: {
            const std::uint64_t queue = r.number();
            core::message_image m = wire::get_state(r);
            stored_content content;
            content.has = r.byte();
            if (content.has > 3) {
                r.fail();
            }
            if (content.has != 0) {
                content.beside = r.block();
            }
            content.payload = r.raw(r.number());
            content.bytes = static_cast<std::uint32_t>(before - r.left());
            if (!r.has_failed()) {
                visit.stored(queue, std::move(m), content);
            }
            break;
        }
        case entry_kind::stored_run: {
            const std::uint64_t queue = r.number();
            const std::uint64_t first = r.number();
            std::uint64_t count = r.number();
            const time_point enqueued = r.moment();
            // There may be millions: whoever can takes those together that are of one size.
            constexpr bool takes_rows = requires {
                visit.stored_plain(queue, first, count, enqueued, std::uint32_t{});
            };
            std::uint64_t id = first;
            std::uint64_t row = 0;
            std::uint32_t size = 0;
            const auto end_row = [&] {
                if constexpr (takes_rows) {
                    if (row != 0) {
                        visit.stored_plain(queue, id - row, row, enqueued, size);
                        row = 0;
                    }
                }
            };
            for (; count != 0; ++id, --count) {
                const std::size_t left = r.left();
                stored_content content;
                content.payload = r.raw(r.number());
                content.bytes = static_cast<std::uint32_t>(left - r.left());
                if (r.has_failed()) {
                    break;
                }
                if constexpr (takes_rows) {
                    if (content.bytes != size) {
                        end_row();
                        size = content.bytes;
                    }
                    ++row;
                } else {
                    core::message_image m;
                    m.id = m.position = id;
                    m.enqueued = enqueued;
                    visit.stored(queue, std::move(m), content);
                }
            }
            end_row();
            break;
        }
        case entry_kind::changed: {
            const std::uint64_t queue = r.number();
            core::message_image m = wire::get_state(r);
            if (!r.has_failed()) {
                visit.changed(queue, std::move(m));
            }
            break;
        }
        case entry_kind::held: {
            const std::uint64_t queue = r.number();
            const std::uint64_t first = r.number();
            const std::uint64_t count = r.number();
            const std::uint32_t times = r.small();
            const time_point at = r.moment();
            if (!r.has_failed()) {
                visit.held(queue, first, count, times, at);
            }
            break;
        }
        case entry_kind::gone: {
            const std::uint64_t queue = r.number();
            const std::uint64_t first = r.number();
            const std::uint64_t count = r.number();
            if (!r.has_failed()) {
                visit.gone(queue, first, count);
            }
            break;
        }
        case entry_kind::remembered: {
            const std::uint64_t queue = r.number();
            const std::string_view key = r.text();
            const std::uint64_t id = r.number();
            const time_point at = r.moment();
            if (!r.has_failed()) {
                visit.remembered(queue, key, id, at);
            }
            break;
        }
        case entry_kind::range: {
            const std::uint64_t queue = r.number();
            const std::uint64_t from = r.number();
            const std::uint64_t to = r.number();
            std::uint64_t count = r.number();
            if (r.has_failed()) {
                break;
            }
            visit.range(queue, from, to);
            for (; count != 0 && !r.has_failed(); --count) {
                core::message_image m = wire::get_state(r);
                record_location where;
                where.segment = r.small();
                where.offset = r.number_below(max_record_offset + 1);
                if (where.segment == 0 || where.offset % record_header::alignment != 0) {
                    r.fail(); // no record begins there
                }
                const std::uint32_t bytes = r.small();
                if (!r.has_failed()) {
                    visit.listed(queue, std::move(m), where, bytes);
                }
            }
            break;
        }
        default:
            if (k >= static_cast<std::uint8_t>(feed_entry_kind::feed)) {
                read_feed_entry(k, r, visit);
            } else {
                read_log_entry(k, r, record, visit);
            }
            break;
        }
        if (r.has_failed()) {
            return false;
        }
    }
    return true;
}

} // namespace railmq::storage
