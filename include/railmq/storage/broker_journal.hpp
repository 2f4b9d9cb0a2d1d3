// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/journal_port.hpp>
#include <railmq/storage/kept_state.hpp>
#include <railmq/storage/stored_contents.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace railmq::storage {

/// How much more, or less, of what a segment holds is wanted.
struct usage_change {
    std::uint64_t segment = 0;
    std::int64_t bytes = 0;
    std::int64_t messages = 0; ///< And rows of logs' records.
};
/// Adds one message, or takes one away, in the changes of the segments.
inline void
count_usage(std::vector<usage_change>& changes, const kept_at& where, std::int64_t count) {
    if (changes.empty() || changes.back().segment != where.segment()) {
        changes.push_back({where.segment(), 0, 0});
    }
    changes.back().bytes += count * std::int64_t{where.bytes()};
    changes.back().messages += count;
}

/// The same of a part of a row of a log's records, by which there are `rows` more of them.
inline void
count_taken(std::vector<usage_change>& changes, const kept_at& part, std::int64_t rows) {
    changes.push_back({part.segment(), -std::int64_t{part.bytes()}, rows});
}

/// The journal of one broker: where its records go, what the wall clock says, and how much of what
/// each segment holds is still wanted.
///
/// Thread safety: any call by any thread.
class broker_journal {
public:
    struct usage {
        std::int64_t bytes = 0;
        std::int64_t messages = 0;
    };

    /// `wall`: what the wall clock is ahead of the broker's time.
    broker_journal(std::unique_ptr<journal_port> port, duration wall)
        : port_{std::move(port)}
        , wall_{wall} {}

    [[nodiscard]] duration wall() const noexcept { return wall_; }
    [[nodiscard]] journal_port& port() noexcept { return *port_; }

    // Writing

    /// Appends a record in memory, if need be in the space that is kept for records that make other
    /// space free. Returns its number; 0 with an error.
    std::uint64_t
    append(std::span<const std::byte> record, record_location& where, error_code& ec) {
        bool is_tight = false;
        const std::uint64_t number = port_->append(record, where, is_tight, ec);
        if (number != 0) {
            appended_.fetch_add(record_size(record.size()), std::memory_order_relaxed);
        }
        is_tight_.store(is_tight || ec == errc::no_space, std::memory_order_relaxed);
        return number;
    }
    /// Whether the last record found no space but what is kept for such as it.
    [[nodiscard]] bool is_tight() const noexcept {
        return is_tight_.load(std::memory_order_relaxed);
    }
    /// Bytes of all records so far.
    [[nodiscard]] std::uint64_t appended() const noexcept {
        return appended_.load(std::memory_order_relaxed);
    }

    /// Writes and syncs everything, and leaves the files alone from then on.
    void close(error_code& ec) {
        const std::lock_guard guard{reading_};
        loaded_.clear();
        loaded_from_ = {};
        port_->close(ec);
    }

    // Reading

    /// What a message was stored with: its payload into `payload`, the rest into the image. One of
    /// a subscription may be a record of its log, which lies there.
    ///
    /// Errors: `journal_corrupt`, when it is not there; `io_error`.
    void load(
        std::uint64_t queue,
        std::uint64_t id,
        const log_record_name& record_of_log,
        record_location where,
        core::message_image& image,
        std::vector<std::byte>& payload,
        error_code& ec) {
        const std::lock_guard guard{reading_};
        ec = {};
        if (!(where == loaded_from_)) {
            loaded_.clear();
            loaded_from_ = {};
            // It may have been stored again a moment ago.
            port_->wait(port_->last(), reached::written, ec);
            if (ec && ec != errc::journal_failed) {
                return;
            }
            const record_view record = port_->read(where, ec);
            if (ec) {
                return;
            }
            if (!loaded_.read(record.payload)) {
                ec = errc::journal_corrupt;
                return;
            }
            loaded_from_ = where;
        }
        const stored_content* content = loaded_.find(queue, id, record_of_log);
        if (content == nullptr) {
            ec = errc::journal_corrupt;
            return;
        }
        payload.assign(content->payload.begin(), content->payload.end());
        if (!read_beside(*content, wall_, image)) {
            ec = errc::journal_corrupt;
        }
    }

    /// Copies a record's payload out; where the next one begins, or nothing behind the last of a
    /// segment. Errors as `load`.
    record_location next_record(
        record_location where, std::vector<std::byte>& payload, bool& is_data, error_code& ec) {
        const std::lock_guard guard{reading_};
        loaded_.clear();
        loaded_from_ = {};
        const record_view record = port_->read(where, ec);
        if (ec) {
            return {};
        }
        is_data = record.header.kind == record_kind::data;
        payload.assign(record.payload.begin(), record.payload.end());
        return record.header.kind == record_kind::sealed
                   ? record_location{}
                   : record_location{
                         where.segment, where.offset + record_size(record.header.length)};
    }

    // Space

    void change_usage(std::span<const usage_change> changes) {
        const std::lock_guard guard{usage_mutex_};
        for (const usage_change& c : changes) {
            usage& u = usage_of(c.segment);
            u.bytes += c.bytes;
            u.messages += c.messages;
        }
    }
    /// Makes sure that the next `change_usage` does not throw. Throws `std::bad_alloc`.
    void reserve_usage() {
        if (!has_spare_.load(std::memory_order_relaxed)) {
            const std::lock_guard guard{usage_mutex_};
            while (spare_.size() < 2) {
                std::map<std::uint64_t, usage> one;
                one.emplace(0, usage{});
                spare_.push_back(one.extract(one.begin()));
            }
            has_spare_.store(true, std::memory_order_relaxed);
        }
    }
    /// Bytes of all segments that nobody wants any more, nearly.
    struct waste {
        std::uint64_t in_older = 0;
        std::uint64_t in_current = 0;
    };
    [[nodiscard]] waste wasted(error_code& ec) {
        waste all;
        const std::uint64_t current = port_->segment();
        for (const auto& [number, size] : port_->segments(ec)) {
            const auto live =
                static_cast<std::uint64_t>(std::max<std::int64_t>(used(number).bytes, 0));
            (number == current ? all.in_current : all.in_older) += size - std::min(size, live);
        }
        return all;
    }
    /// Nothing in it is wanted, and it is gone.
    void forget_usage(std::uint64_t segment) {
        const std::lock_guard guard{usage_mutex_};
        usage_.erase(segment);
    }
    [[nodiscard]] usage used(std::uint64_t segment) {
        const std::lock_guard guard{usage_mutex_};
        const auto it = usage_.find(segment);
        return it == usage_.end() ? usage{} : it->second;
    }

private:
    [[nodiscard]] usage& usage_of(std::uint64_t segment) {
        if (const auto it = usage_.find(segment); it != usage_.end()) {
            return it->second;
        }
        if (spare_.empty()) {
            return usage_[segment];
        }
        auto node = std::move(spare_.back());
        spare_.pop_back();
        has_spare_.store(false, std::memory_order_relaxed);
        node.key() = segment;
        node.mapped() = usage{};
        return usage_.insert(std::move(node)).position->second;
    }

    std::unique_ptr<journal_port> port_;
    duration wall_;
    std::atomic<std::uint64_t> appended_{0};
    std::atomic<bool> is_tight_{false};

    std::mutex reading_{};
    record_location loaded_from_{};
    stored_contents loaded_{}; ///< What the record there has, in the port's memory.

    std::mutex usage_mutex_{};
    std::map<std::uint64_t, usage> usage_{};
    std::vector<std::map<std::uint64_t, usage>::node_type> spare_{};
    std::atomic<bool> has_spare_{false};
};

/// Opens the journal in a directory, or makes one, for a broker whose time is `now` while the wall
/// clock shows `wall_now`; `found` is what it says. A wall clock that was set back since counts as
/// one that stood still: no time has passed.
///
/// Errors: as `journal::open`.
template <directory Directory>
[[nodiscard]] std::unique_ptr<broker_journal> open_broker_journal(
    Directory where,
    const journal_options& options,
    journal_id fresh,
    time_point now,
    time_point wall_now,
    kept_state& found,
    recovery_report& report,
    error_code& ec) {
    struct reading {
        kept_state& found;
        bool operator()(std::uint64_t, std::span<const std::byte> record, record_location at) {
            return found.add(record, at);
        }
        void ended(bool was_closed) { found.ended(was_closed); }
    };
    auto opened =
        journal<Directory>::open(std::move(where), options, fresh, reading{found}, report, ec);
    if (ec) {
        return nullptr;
    }
    found.remove_orphans();
    const time_point wall = std::max(wall_now, found.latest);
    auto made = std::make_unique<broker_journal>(
        std::make_unique<directory_journal<Directory>>(std::move(*opened)), wall - now);
    std::vector<usage_change> used;
    for (auto& [number, queue] : found.queues) {
        queue.messages.for_each_from(0, [&](std::uint64_t, const kept_message& m) {
            count_usage(used, m.where, 1);
            return true;
        });
    }
    for (const auto& [number, log] : found.logs) {
        for (const auto& [which, p] : log.partitions) {
            p.rows.for_each_from(0, [&](std::uint64_t, const log_rows::row& r) {
                count_usage(used, r.at, 1);
                return true;
            });
        }
    }
    made->change_usage(used);
    std::vector<std::byte> record;
    entry_writer{record, made->wall()}.clock(now);
    record_location at;
    (void)made->append(record, at, ec);
    if (ec == errc::no_space) {
        ec = {}; // it can do without
    }
    return ec ? nullptr : std::move(made);
}

} // namespace railmq::storage
