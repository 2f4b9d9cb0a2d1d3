// SPDX-License-Identifier: BSL-1.0
//
// A record of any content: reading its entries stays within it, takes no more memory than is due
// to its length, and what is understood is written and understood again as the same.
#include <railmq/storage/entries.hpp>
#include <railmq/storage/kept_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

using namespace railmq::storage;
using railmq::duration;
using railmq::core::message_image;

namespace {

std::size_t allocated = 0; ///< All of it, freed or not.

void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

/// Writes what it is told, so that it can be read once more.
struct writing_visitor {
    entry_writer& w;
    log_entry_writer& l;
    feed_entry_writer& f;
    void clock(railmq::time_point now) { w.clock(now); }
    void queue(const queue_definition& d) { w.queue(d); }
    void deleted(std::uint64_t q) { w.deleted(q); }
    void exchange(const exchange_definition& d) { w.exchange(d); }
    void exchange_gone(std::uint64_t x) { w.exchange_gone(x); }
    void bound(const binding_definition& b) { w.bound(b); }
    void unbound(const binding_definition& b) { w.unbound(b); }
    void stored(std::uint64_t q, const message_image& m, const stored_content& c) {
        w.stored(q, m, c);
    }
    void changed(std::uint64_t q, const message_image& m) { w.changed(q, m); }
    void held(
        std::uint64_t q,
        std::uint64_t first,
        std::uint64_t n,
        std::uint32_t times,
        railmq::time_point at) {
        w.held(q, first, n, times, at);
    }
    void gone(std::uint64_t q, std::uint64_t first, std::uint64_t n) { w.gone(q, first, n); }
    // A range's length is not told: it is left out, and its messages are as if they had changed.
    void
    remembered(std::uint64_t q, std::string_view key, std::uint64_t id, railmq::time_point at) {
        w.remembered(q, key, id, at);
    }
    void range(std::uint64_t, std::uint64_t, std::uint64_t) {}
    void listed(std::uint64_t q, const message_image& m, record_location, std::uint32_t) {
        w.changed(q, m);
    }

    void log(const log_definition& d) { l.log(d); }
    void log_deleted(std::uint64_t n) { l.deleted(n); }
    void run(const log_run& r) {
        l.run(r.where, r.first, r.count, r.appended, r.producer);
        std::uint64_t n = 0;
        for_each_record(r, duration::zero(), [&](std::uint64_t offset, const log_run_record& one) {
            require(offset == r.first + n++);
            require(!one.all.empty());
            require(one.has_key || !one.is_tombstone);
            railmq::properties p;
            (void)(one.props.empty() || one.get(p));
            l.records(one.all);
        });
        require(n == r.count);
        require(r.bytes >= r.records.size());
    }
    void partition(log_place p, const kept_extent& e) { l.partition(p, e); }
    void removed(log_place p, std::uint64_t first, std::uint64_t n) { l.removed(p, first, n); }
    void horizon(log_place p, std::uint64_t offset, railmq::time_point when) {
        l.horizon(p, offset, when);
    }
    // As a range: each row is one of its own.
    void rows(log_place, std::uint64_t, std::uint64_t) {}
    void
    row(log_place p,
        std::uint64_t first,
        std::uint64_t n,
        record_location at,
        std::uint32_t bytes) {
        l.rows(p, first, first + n, 1);
        l.row(first, n, at, bytes);
    }
    void producer(log_place where, const kept_producer& p) { l.producer(where, p); }
    void group(std::uint64_t n, const group_definition& g) { l.group(n, g); }
    void group_deleted(std::uint64_t n, std::string_view name) { l.group_deleted(n, name); }
    void group_offset(
        log_place p,
        std::string_view name,
        std::uint64_t offset,
        std::string_view metadata,
        railmq::time_point at) {
        l.group_offset(p, name, offset, metadata, at);
    }
    void group_offset_gone(log_place p, std::string_view name) { l.group_offset_gone(p, name); }

    void feed(const feed_definition& d) { f.feed(d); }
    void fed_to(std::uint64_t q, std::uint32_t partition, std::uint64_t position) {
        f.fed_to(q, partition, position);
    }
    void
    fed(std::uint64_t q,
        const message_image& m,
        const log_record_name& from,
        record_location at,
        std::uint32_t bytes) {
        f.fed(q, m, from, at, bytes);
    }
    void fed_run(std::uint64_t q, const fed_messages& m) {
        require(m.count != 0 && m.count <= max_fed_run);
        std::uint64_t bytes = 0;
        for (std::uint64_t i = 0; i != m.count; ++i) {
            bytes += m.bytes_of(i);
        }
        require(bytes == m.bytes);
        f.fed_run(q, m);
    }
};

struct content_visitor : entry_visitor {
    duration wall;
    explicit content_visitor(duration w)
        : wall{w} {}
    void stored(std::uint64_t, const message_image&, const stored_content& c) const {
        message_image m;
        if (read_beside(c, wall, m)) {
            require((m.props != nullptr) == ((c.has & 1) != 0));
            require((m.deaths != nullptr) == ((c.has & 2) != 0));
        }
    }
};

[[nodiscard]] bool
write_again(std::span<const std::byte> record, duration wall, std::vector<std::byte>& out) {
    entry_writer w{out, wall};
    log_entry_writer l{out, wall};
    feed_entry_writer f{out, wall};
    return read_entries(record, wall, writing_visitor{w, l, f});
}

} // namespace

void* operator new(std::size_t size) {
    allocated += size;
    if (void* const p = std::malloc(size)) {
        return p;
    }
    throw std::bad_alloc{};
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return std::malloc(size);
}
void* operator new[](std::size_t size) {
    return operator new(size);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto record = std::as_bytes(std::span{data, size});
    const duration walls[] = {duration::zero(), std::chrono::hours{500'000}};
    for (const duration wall : walls) {
        allocated = 0;
        (void)read_entries(record, wall, content_visitor{wall});
        require(allocated <= 64 * size + 4096);

        std::vector<std::byte> once;
        std::vector<std::byte> twice;
        if (write_again(record, wall, once)) {
            require(write_again(once, wall, twice));
            require(once == twice);
        }
    }

    allocated = 0;
    kept_state state;
    const bool is_good = state.add(record, {1, segment_header::size});
    struct fed_counter : entry_visitor {
        std::uint64_t& n;
        fed_counter(entry_visitor, std::uint64_t& count)
            : n{count} {}
        void fed_run(std::uint64_t, const fed_messages& m) const { n += m.count; }
    };
    std::uint64_t fed = 0; // such messages take a few bytes together
    (void)read_entries(record, duration::zero(), fed_counter{{}, fed});
    require(allocated <= 512 * (size + fed) + 16'384);
    // The same once more does no harm.
    const bool is_good_again = state.add(record, {1, segment_header::size});
    require(is_good == is_good_again);
    for (auto& [number, queue] : state.queues) {
        require(queue.definition.number == number);
        std::size_t n = 0;
        bool is_first = true;
        std::uint64_t before = 0;
        queue.messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
            require(is_first || id > before);
            require(!m.where.is_empty());
            require(m.image(id).id == id);
            is_first = false;
            before = id;
            ++n;
            return true;
        });
        require(n == queue.messages.size());
        for (const auto& [id, from] : queue.records) {
            require(queue.messages.find(id) != nullptr);
            require(!from.is_none());
        }
        require(queue.definition.number <= state.last_queue);
    }
    for (auto& [number, log] : state.logs) {
        require(log.definition.number == number);
        require(number <= state.last_log);
        for (const auto& [which, p] : log.partitions) {
            require(which < log.definition.partitions);
            require(p.extent.start <= p.extent.end);
            std::uint64_t records = 0;
            std::uint64_t end = 0;
            p.rows.for_each_from(0, [&](std::uint64_t first, const log_rows::row& r) {
                require(first >= end);
                require(r.count != 0);
                end = first + r.count;
                records += r.count;
                return true;
            });
            require(end <= p.extent.end);
            require(records == p.rows.records());
            for (const auto& [offset, when] : p.horizons) {
                require(offset < p.extent.end);
            }
            for (const auto& [id, producer] : p.producers) {
                require(producer.count <= kept_producer::max_batches);
            }
        }
        for (const auto& [name, g] : log.groups) {
            require(g.definition.name == name);
        }
    }
    return 0;
}
