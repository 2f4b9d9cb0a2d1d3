// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/exchange_entries.hpp>
#include <railmq/storage/feed_entries.hpp>
#include <railmq/storage/id_map.hpp>
#include <railmq/storage/kept_at.hpp>
#include <railmq/storage/kept_logs.hpp>
#include <railmq/storage/segment.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::storage {

/// A message of a queue that nobody has opened: where it is stored, and how it is.
struct kept_message {
    kept_at where{};
    std::uint32_t delivery_count = 0;
    bool is_held = false;
    time_point enqueued{};
    time_point first_handed_out = never;
    std::shared_ptr<const core::message_image> more{}; ///< All of it, where that is not all.

    friend bool operator==(const kept_message&, const kept_message&) noexcept = default;

    void become(core::message_image m) {
        if (m.is_plain()) {
            delivery_count = m.delivery_count;
            is_held = m.state == core::image_state::held;
            enqueued = m.enqueued;
            first_handed_out = m.first_handed_out;
            more.reset();
        } else {
            more = std::make_shared<const core::message_image>(std::move(m));
        }
    }
    void become_held(std::uint64_t id, std::uint32_t count, time_point at) {
        if (more == nullptr) {
            delivery_count = count;
            is_held = true;
            first_handed_out = at;
            return;
        }
        core::message_image m = image(id);
        m.state = core::image_state::held;
        m.delivery_count = count;
        m.first_handed_out = at;
        m.due = never;
        become(std::move(m));
    }
    [[nodiscard]] core::message_image image(std::uint64_t id) const {
        core::message_image m;
        if (more != nullptr) {
            m.id = more->id;
            m.position = more->position;
            m.state = more->state;
            m.returned_to = more->returned_to;
            m.delivery_count = more->delivery_count;
            m.failures = more->failures;
            m.enqueued = more->enqueued;
            m.first_handed_out = more->first_handed_out;
            m.expires_at = more->expires_at;
            m.due = more->due;
            m.previous_wait = more->previous_wait;
            m.dying_of = more->dying_of;
            m.dying_detail = more->dying_detail;
            return m;
        }
        m.id = m.position = id;
        m.delivery_count = delivery_count;
        m.state = is_held ? core::image_state::held : core::image_state::in_line;
        m.enqueued = enqueued;
        m.first_handed_out = first_handed_out;
        return m;
    }
};

/// Turns the wall clock's moments into the broker's.
inline void to_broker_time(core::message_image& m, duration wall) noexcept {
    for (time_point* t : {&m.enqueued, &m.first_handed_out, &m.expires_at, &m.due}) {
        *t = *t == never ? never : saturating_add(*t, -wall);
    }
}

/// That a queue is filled from a log, and how far it has come.
struct kept_feed {
    feed_definition definition{};
    std::map<std::uint32_t, std::uint64_t> positions{}; ///< By partition.
};

/// A queue as its journal keeps it.
struct kept_queue {
    /// The message that had a deduplication id first, and when that was accepted.
    struct first_message {
        std::uint64_t id = 0;
        time_point at{};
    };

    queue_definition definition{};
    id_map<kept_message> messages{};
    std::optional<kept_feed> feed{}; ///< Of a subscription.
    /// Messages whose content is a record of a log, which lies where the message is said to.
    boost::unordered_flat_map<std::uint64_t, log_record_name> records{};
    /// Deduplication ids, by their texts.
    std::map<std::string, first_message, std::less<>> remembered{};

    /// Which record of a log a message is; none: it is stored as any other.
    [[nodiscard]] log_record_name record_of(std::uint64_t id) const noexcept {
        const auto it = records.find(id);
        return it == records.end() ? log_record_name{} : it->second;
    }

    /// Of the deduplication ids those that are still remembered at `now`, the oldest first.
    [[nodiscard]] std::vector<std::pair<std::string_view, first_message>>
    remembered_at(time_point now) const {
        std::vector<std::pair<std::string_view, first_message>> all;
        for (const auto& [key, first] : remembered) {
            if (saturating_add(first.at, definition.options.deduplication_window) > now) {
                all.emplace_back(key, first);
            }
        }
        std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) {
            return std::pair{x.second.at, x.second.id} < std::pair{y.second.at, y.second.id};
        });
        return all;
    }
};

/// What a journal says, after its records were read one after the other. All moments are the wall
/// clock's.
///
/// Distinct objects: safe. Shared objects: unsafe.
class kept_state : public kept_logs {
public:
    static constexpr std::uint64_t delayed_ids = std::uint64_t{1} << 62;

    /// By the queues' numbers.
    std::map<std::uint64_t, kept_queue> queues{};
    kept_exchanges exchanges{};
    std::uint64_t last_queue = 0; ///< The highest number that a queue has had.
    /// The latest moment that anything is known to have happened.
    time_point latest = time_point::min();

    /// Takes in one more record. False: it is none that this library has written.
    [[nodiscard]] bool add(std::span<const std::byte> record, record_location where) {
        where_ = where;
        this->now_at(where);
        const bool is_good = read_entries(record, duration::zero(), *this);
        latest = std::max(latest, this->latest_run());
        return is_good;
    }

    // For `read_entries`

    void clock(time_point now) { latest = std::max(latest, now); }
    void queue(queue_definition d) {
        last_queue = std::max(last_queue, d.number);
        kept_queue& q = queues[d.number];
        d.next_position = std::max(d.next_position, q.definition.next_position);
        d.next_delayed = std::max(d.next_delayed, q.definition.next_delayed);
        q.definition = std::move(d);
    }
    void deleted(std::uint64_t number) {
        queues.erase(number);
        exchanges.forget({core::destination_kind::queue, number});
    }
    /// A subscription lives no longer than its log.
    void log_deleted(std::uint64_t number) {
        kept_logs::log_deleted(number);
        remove_feeds([&](const kept_queue& q) { return q.feed->definition.log == number; });
    }
    /// All was read: what is filled from a log that is not there has gone with it, and one that was
    /// just being made, so that nothing says where it begins, is not there yet.
    void remove_orphans() {
        remove_feeds([&](const kept_queue& q) {
            return !logs.contains(q.feed->definition.log) ||
                   (q.feed->positions.empty() && q.messages.size() == 0);
        });
    }
    void feed(feed_definition d) {
        if (kept_queue* q = find(d.queue)) {
            if (!q->feed) {
                q->feed.emplace();
            }
            q->feed->definition = std::move(d);
        }
    }
    void fed_to(std::uint64_t number, std::uint32_t partition, std::uint64_t position) {
        kept_queue* q = find(number);
        if (q != nullptr && q->feed) {
            std::uint64_t& known = q->feed->positions[partition];
            known = std::max(known, position);
            this->reach({q->feed->definition.log, partition}, known);
        }
    }
    void
    fed(std::uint64_t number,
        core::message_image m,
        const log_record_name& from,
        record_location where,
        std::uint32_t bytes) {
        if (kept_queue* q = find(number)) {
            latest = std::max(latest, m.enqueued);
            const std::uint64_t id = m.id;
            put(number, std::move(m), kept_at{where, bytes});
            q->records[id] = from;
        }
    }
    void fed_run(std::uint64_t number, const fed_messages& run) {
        kept_queue* q = find(number);
        if (q == nullptr) {
            return;
        }
        latest = std::max(latest, run.enqueued);
        for (std::uint64_t i = 0; i != run.count; ++i) {
            core::message_image m;
            m.id = m.position = run.first + i;
            m.enqueued = run.enqueued;
            put(number, std::move(m), kept_at{run.where, run.bytes_of(i)});
            q->records[run.first + i] = {run.from.where, run.from.offset + i};
        }
    }
    void exchange(exchange_definition d) { exchanges.define(std::move(d)); }
    void exchange_gone(std::uint64_t number) { exchanges.remove(number); }
    void bound(binding_definition b) { exchanges.bind(std::move(b)); }
    void unbound(const binding_definition& b) { exchanges.unbind(b); }
    void stored(std::uint64_t number, core::message_image m, const stored_content& content) {
        latest = std::max(latest, m.enqueued);
        put(number, std::move(m), kept_at{where_, content.bytes});
    }
    void stored_plain(
        std::uint64_t number,
        std::uint64_t first,
        std::uint64_t n,
        time_point enqueued,
        std::uint32_t bytes) {
        latest = std::max(latest, enqueued);
        if (kept_queue* q = find(number)) {
            count(*q, first);
            count(*q, first + (n - 1));
            kept_message made;
            made.where = kept_at{where_, bytes};
            made.enqueued = enqueued;
            q->messages.put_row(first, n, made);
            forget_records(*q, first, n);
        }
    }
    void changed(std::uint64_t number, core::message_image m) {
        if (kept_queue* q = find(number)) {
            const std::uint64_t id = m.id;
            if (const kept_message* known = q->messages.find(id)) {
                count(*q, m);
                kept_message now = *known;
                now.become(std::move(m));
                q->messages.put(id, std::move(now));
            }
        }
    }
    void held(
        std::uint64_t number,
        std::uint64_t first,
        std::uint64_t n,
        std::uint32_t delivery_count,
        time_point at) {
        latest = std::max(latest, at);
        if (kept_queue* q = find(number)) {
            q->messages.update(first, n, [&](std::uint64_t id, kept_message& m) {
                m.become_held(id, delivery_count, at);
            });
        }
    }
    void gone(std::uint64_t number, std::uint64_t first, std::uint64_t n) {
        if (kept_queue* q = find(number); q != nullptr && n != 0) {
            count(*q, first + (n - 1)); // it may have come and gone at once
            remove(*q, first, n);
        }
    }
    void remembered(std::uint64_t number, std::string_view key, std::uint64_t id, time_point at) {
        latest = std::max(latest, at);
        if (kept_queue* q = find(number)) {
            q->remembered.insert_or_assign(std::string{key}, kept_queue::first_message{id, at});
        }
    }
    void range(std::uint64_t number, std::uint64_t from, std::uint64_t to) {
        if (kept_queue* q = find(number)) {
            remove(*q, from, to - from);
        }
    }
    /// A queue may stay unopened for several lives of its broker, so that what ended the first one
    /// must not be forgotten, and what ends a later one does not count.
    void ended(bool was_closed) {
        for (auto& [number, queue] : queues) {
            auto& messages = queue.messages;
            std::vector<std::uint64_t> held;
            messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
                if (m.more == nullptr ? m.is_held : m.more->state == core::image_state::held) {
                    held.push_back(id);
                }
                return true;
            });
            for (const std::uint64_t id : held) {
                kept_message m = *messages.find(id);
                core::message_image image = m.image(id);
                image.state = was_closed ? core::image_state::returned : core::image_state::crashed;
                image.returned_to = requeue_position::original;
                m.become(std::move(image));
                messages.put(id, std::move(m));
            }
        }
    }
    void listed(
        std::uint64_t number, core::message_image m, record_location where, std::uint32_t bytes) {
        put(number, std::move(m), kept_at{where, bytes});
    }

private:
    [[nodiscard]] kept_queue* find(std::uint64_t number) {
        const auto it = queues.find(number);
        return it == queues.end() ? nullptr : &it->second;
    }
    void put(std::uint64_t number, core::message_image m, kept_at where) {
        if (kept_queue* q = find(number)) {
            count(*q, m);
            const std::uint64_t id = m.id;
            kept_message made;
            made.where = where;
            made.become(std::move(m));
            q->messages.put(id, std::move(made));
            forget_records(*q, id, 1);
        }
    }
    static void forget_records(kept_queue& q, std::uint64_t first, std::uint64_t n) noexcept {
        for (std::uint64_t i = 0; i != n && !q.records.empty(); ++i) {
            q.records.erase(first + i);
        }
    }
    template <class Which>
    void remove_feeds(Which&& which) {
        for (auto it = queues.begin(); it != queues.end();) {
            const std::uint64_t number = it->first;
            const bool goes = it->second.feed && which(it->second);
            ++it;
            if (goes) {
                deleted(number);
            }
        }
    }
    /// Numbers never start over.
    static void count(kept_queue& q, const core::message_image& m) noexcept {
        count(q, m.id);
        count(q, m.position);
    }
    static void count(kept_queue& q, std::uint64_t id) noexcept {
        queue_definition& d = q.definition;
        if (id < delayed_ids) {
            d.next_position = std::max(d.next_position, id + 1);
        } else {
            d.next_delayed = std::max(d.next_delayed, id - delayed_ids + 1);
        }
    }
    /// Messages have left.
    static void remove(kept_queue& q, std::uint64_t first, std::uint64_t n) {
        q.messages.take_row(
            first, n, [&](std::uint64_t id, std::uint64_t count, const kept_message&) noexcept {
                forget_records(q, id, count);
            });
    }

    record_location where_{};
};

} // namespace railmq::storage
