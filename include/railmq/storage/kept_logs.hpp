// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>
#include <railmq/storage/kept_at.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/log_rows.hpp>
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace railmq::storage {

/// How far a group has come in a partition.
struct kept_offset {
    std::uint64_t offset = 0;
    std::string metadata{};
    time_point at{};

    friend bool operator==(const kept_offset&, const kept_offset&) = default;
};

/// A group as its journal keeps it.
struct kept_group {
    group_definition definition{};
    std::map<std::uint32_t, kept_offset> offsets{}; ///< By partition.
};

/// A partition of a log that nobody has opened: where its records are, and what else is known.
struct kept_partition {
    kept_extent extent{};
    log_rows rows{};
    std::map<std::uint64_t, time_point> horizons{};     ///< Of tombstones, by offset.
    std::map<std::uint64_t, kept_producer> producers{}; ///< By id.
};

/// A log as its journal keeps it.
struct kept_log {
    log_definition definition{};
    std::map<std::uint32_t, kept_partition> partitions{}; ///< Those of which anything is known.
    std::map<std::string, kept_group, std::less<>> groups{};

    [[nodiscard]] std::uint64_t records() const noexcept {
        std::uint64_t n = 0;
        for (const auto& [number, p] : partitions) {
            n += p.rows.records();
        }
        return n;
    }
    [[nodiscard]] std::uint64_t bytes() const noexcept {
        std::uint64_t n = 0;
        for (const auto& [number, p] : partitions) {
            n += p.rows.bytes();
        }
        return n;
    }
};

/// What a journal says of logs, after its records were read one after the other: the base of
/// `kept_state`. All moments are the wall clock's.
///
/// Distinct objects: safe. Shared objects: unsafe.
class kept_logs {
public:
    /// By the logs' numbers.
    std::map<std::uint64_t, kept_log> logs{};
    std::uint64_t last_log = 0; ///< The highest number that a log has had.

    // For `read_entries`

    void log(log_definition d) {
        last_log = std::max(last_log, d.number);
        kept_log& l = logs[d.number];
        d.partitions = std::max(d.partitions, l.definition.partitions);
        l.definition = std::move(d);
    }
    void log_deleted(std::uint64_t number) { logs.erase(number); }
    void run(const log_run& r) {
        kept_partition* const p = find(r.where);
        if (p == nullptr) {
            return;
        }
        latest_run_ = std::max(latest_run_, r.appended);
        const std::uint64_t end = r.first + r.count;
        // One that was stored again, when some of it had left, is there in parts.
        if (end > p->extent.start) {
            const std::uint64_t below = p->extent.start > r.first ? p->extent.start - r.first : 0;
            p->rows.put(
                r.first + below, r.count - below, kept_at{where_, r.bytes}, [](auto&&...) {});
        }
        p->extent.end = std::max(p->extent.end, end);
        if (r.producer) {
            kept_producer& known = p->producers[r.producer->id];
            known.id = r.producer->id;
            known.add(
                r.producer->epoch, {r.producer->first, r.producer->last, r.first}, r.appended);
        }
    }
    void partition(log_place where, const kept_extent& e) {
        if (kept_partition* const p = find(where)) {
            p->extent.start = std::max(p->extent.start, e.start);
            p->extent.end = std::max(p->extent.end, e.end);
            p->extent.checkpoint = e.checkpoint;
            p->rows.remove(0, p->extent.start, [](auto&&...) {});
            p->horizons.erase(p->horizons.begin(), p->horizons.lower_bound(p->extent.start));
        }
    }
    void removed(log_place where, std::uint64_t first, std::uint64_t count) {
        if (kept_partition* const p = find(where)) {
            p->rows.remove(first, count, [](auto&&...) {});
            p->horizons.erase(
                p->horizons.lower_bound(first), p->horizons.lower_bound(first + count));
        }
    }
    void horizon(log_place where, std::uint64_t offset, time_point when) {
        kept_partition* const p = find(where);
        if (p != nullptr && p->rows.contains(offset)) {
            p->horizons[offset] = when;
        }
    }
    void rows(log_place where, std::uint64_t from, std::uint64_t to) {
        if (kept_partition* const p = find(where)) {
            to = std::min(to, max_log_offset);
            p->rows.remove(from, to > from ? to - from : 0, [](auto&&...) {});
        }
    }
    void
    row(log_place where,
        std::uint64_t first,
        std::uint64_t count,
        record_location at,
        std::uint32_t bytes) {
        if (kept_partition* const p = find(where)) {
            p->rows.put(first, count, kept_at{at, bytes}, [](auto&&...) {});
            p->extent.end = std::max(p->extent.end, first + count);
        }
    }
    void producer(log_place where, const kept_producer& state) {
        if (kept_partition* const p = find(where)) {
            p->producers[state.id] = state;
        }
    }
    void group(std::uint64_t number, group_definition g) {
        if (kept_log* const l = find_log(number)) {
            std::string name = g.name;
            l->groups[std::move(name)].definition = std::move(g);
        }
    }
    void group_deleted(std::uint64_t number, std::string_view name) {
        if (kept_log* const l = find_log(number)) {
            if (const auto it = l->groups.find(name); it != l->groups.end()) {
                l->groups.erase(it);
            }
        }
    }
    void group_offset(
        log_place where,
        std::string_view name,
        std::uint64_t offset,
        std::string_view metadata,
        time_point at) {
        if (kept_group* const g = find_group(where.log, name)) {
            g->offsets[where.partition] = {offset, std::string{metadata}, at};
        }
    }
    void group_offset_gone(log_place where, std::string_view name) {
        if (kept_group* const g = find_group(where.log, name)) {
            g->offsets.erase(where.partition);
        }
    }

protected:
    kept_logs() = default;
    kept_logs(kept_logs&&) = default;
    kept_logs& operator=(kept_logs&&) = default;
    ~kept_logs() = default;

    /// Entries that come lie there.
    void now_at(record_location where) noexcept { where_ = where; }
    /// Offsets before that one have been given.
    void reach(log_place where, std::uint64_t end) {
        if (kept_partition* const p = find(where)) {
            p->extent.end = std::max(p->extent.end, end);
        }
    }
    /// The latest moment at which a run is known to have been appended.
    [[nodiscard]] time_point latest_run() const noexcept { return latest_run_; }

private:
    [[nodiscard]] kept_log* find_log(std::uint64_t number) {
        const auto it = logs.find(number);
        return it == logs.end() ? nullptr : &it->second;
    }
    [[nodiscard]] kept_partition* find(log_place where) {
        kept_log* const l = find_log(where.log);
        return l == nullptr || where.partition >= l->definition.partitions
                   ? nullptr
                   : &l->partitions[where.partition];
    }
    [[nodiscard]] kept_group* find_group(std::uint64_t log, std::string_view name) {
        kept_log* const l = find_log(log);
        if (l == nullptr) {
            return nullptr;
        }
        const auto it = l->groups.find(name);
        return it == l->groups.end() ? nullptr : &it->second;
    }

    record_location where_{};
    time_point latest_run_ = time_point::min();
};

} // namespace railmq::storage
