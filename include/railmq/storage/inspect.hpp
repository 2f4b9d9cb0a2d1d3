// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/journal_scan.hpp>
#include <railmq/storage/kept_state.hpp>
#include <railmq/storage/stored_contents.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace railmq::storage {

/// Reads what messages were stored with, through a scanner.
///
/// Cost: messages that lie in one record, asked for in their order, are looked up in constant time.
template <directory Directory>
class content_reader {
public:
    /// `from` must outlive it, and not be used to read records by anybody else.
    explicit content_reader(journal_scanner<Directory>& from) noexcept
        : from_{from} {}

    /// The content of a message, valid until the next call; none, when its record is damaged or
    /// gone.
    [[nodiscard]] std::optional<stored_content> find(
        std::uint64_t queue,
        std::uint64_t id,
        const log_record_name& record_of_log,
        record_location where) {
        if (!(where == loaded_from_)) {
            loaded_.clear();
            loaded_from_ = {};
            const auto record = from_.read(where);
            // What comes before an entry that makes no sense was visited, and counts.
            if (!record || (!loaded_.read(record->payload) && loaded_.all().empty() &&
                            loaded_.runs().empty())) {
                return std::nullopt;
            }
            loaded_from_ = where;
        }
        const stored_content* content = loaded_.find(queue, id, record_of_log);
        return content == nullptr ? std::nullopt : std::optional{*content};
    }

private:
    journal_scanner<Directory>& from_;
    record_location loaded_from_{};
    stored_contents loaded_{}; ///< What the record there has, in the scanner's memory.
};

/// How many messages of a queue are how far, as its journal has them.
struct kept_counts {
    std::uint64_t ready = 0;
    std::uint64_t delayed = 0; ///< Until they are due for the first time, or again.
    std::uint64_t held = 0;    ///< By consumers that no longer exist: ready, once it is opened.
    std::uint64_t dying = 0;   ///< On their way to a dead-letter queue.
    time_point oldest = never; ///< When the oldest of them was sent, by the wall clock.

    [[nodiscard]] std::uint64_t all() const noexcept { return ready + delayed + held + dying; }
};
[[nodiscard]] inline kept_counts count_messages(kept_queue& q) {
    kept_counts c;
    q.messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
        using core::image_state;
        const core::message_image image = m.image(id);
        switch (image.state) {
        case image_state::in_line:
        case image_state::returned: ++c.ready; break;
        case image_state::delayed:
        case image_state::waiting: ++c.delayed; break;
        case image_state::held:
        case image_state::crashed: ++c.held; break;
        case image_state::dying: ++c.dying; break;
        }
        c.oldest = std::min(c.oldest, image.enqueued);
        return true;
    });
    return c;
}
/// How many records of its log a subscription has not taken yet, whatever it wants of them; of
/// those that are too far back for it, nothing.
[[nodiscard]] inline std::uint64_t count_untaken(const kept_state& state, const kept_queue& q) {
    std::uint64_t n = 0;
    const auto log = q.feed ? state.logs.find(q.feed->definition.log) : state.logs.end();
    if (log == state.logs.end()) {
        return n;
    }
    for (const auto& [partition, position] : q.feed->positions) {
        const auto p = log->second.partitions.find(partition);
        if (p == log->second.partitions.end()) {
            continue;
        }
        const std::uint64_t end = p->second.extent.end;
        const std::uint64_t most = q.feed->definition.max_backlog;
        const std::uint64_t from = std::max(position, end - std::min(end, most));
        p->second.rows.for_each_from(from, [&](std::uint64_t first, const log_rows::row& r) {
            n += first + r.count - std::max(first, from);
            return true;
        });
    }
    return n;
}
/// The queue of that name, or null.
[[nodiscard]] inline kept_queue* find_queue(kept_state& state, std::string_view name) noexcept {
    for (auto& [number, q] : state.queues) {
        if (q.definition.name == name) {
            return &q;
        }
    }
    return nullptr;
}

/// The log of that name, or null.
[[nodiscard]] inline kept_log* find_log(kept_state& state, std::string_view name) noexcept {
    for (auto& [number, log] : state.logs) {
        if (log.definition.name == name) {
            return &log;
        }
    }
    return nullptr;
}

/// What the journal in a directory says, read without changing anything: as it is after a broker
/// closed it, or crashed. While the view exists, no broker can open the directory.
///
/// Thread safety: one call at a time.
template <readable_directory Directory>
class journal_view {
public:
    /// Reads what a broker would, and refuses what it would refuse.
    ///
    /// Errors: `journal_locked` while a broker has the directory, and `report` says which process;
    /// `journal_corrupt`, and `report` says where; `not_found` where there is no journal;
    /// `io_error`; `invalid_argument` for files of an unknown format.
    [[nodiscard]] static std::unique_ptr<journal_view>
    open(Directory where, recovery_report& report, error_code& ec) {
        report = {};
        std::unique_ptr<journal_view> made{new journal_view{std::move(where)}};
        made->lock_ = made->directory_.lock_to_read(report.owner, ec);
        if (ec) {
            ec = ec == errc::journal_locked ? ec : make_error_code(errc::io_error);
            return nullptr;
        }
        made->read(report, ec);
        return ec ? nullptr : std::move(made);
    }
    journal_view(const journal_view&) = delete;
    journal_view& operator=(const journal_view&) = delete;

    /// All moments are the wall clock's.
    [[nodiscard]] kept_state& state() noexcept { return state_; }

    /// Adds to `image` what a message was stored with, and returns its payload, which is there
    /// until the next call. Errors: `journal_corrupt`, when it cannot be read.
    [[nodiscard]] std::span<const std::byte>
    load(const kept_queue& q, const kept_message& m, core::message_image& image, error_code& ec) {
        const auto content = contents_.find(
            q.definition.number, image.id, q.record_of(image.id), m.where.location());
        const bool is_good = content && read_beside(*content, duration::zero(), image);
        ec = is_good ? error_code{} : make_error_code(errc::journal_corrupt);
        return is_good ? content->payload : std::span<const std::byte>{};
    }

private:
    explicit journal_view(Directory where)
        : directory_{std::move(where)} {}

    struct reader : scan_visitor {
        kept_state& state;
        recovery_report& report;
        bool has_failed = false;
        reader(scan_visitor, kept_state& s, recovery_report& r) noexcept
            : state{s}
            , report{r} {}

        void record(std::uint64_t segment, const record_view& r) {
            if (r.header.kind == record_kind::data && !has_failed) {
                ++report.records;
                if (!state.add(r.payload, {segment, r.offset})) {
                    fail(segment, r.offset, r.header.number);
                }
            }
        }
        void damage(const journal_damage& d) {
            if (!has_failed) {
                fail(d.segment, d.begin, d.first_record);
            }
        }
        void fail(std::uint64_t segment, std::uint64_t offset, std::uint64_t number) {
            has_failed = true;
            report.file = segment_name(segment);
            report.offset = offset;
            report.record = number;
        }
    };

    void read(recovery_report& report, error_code& ec) {
        scanner_.open(ec);
        if (!ec && scanner_.is_empty()) {
            ec = errc::not_found;
        }
        if (ec) {
            return;
        }
        journal_scan_report found;
        reader to{{}, state_, report};
        scanner_.scan(scanner_.read_from(), to, found, ec);
        if (!ec && to.has_failed) {
            ec = errc::journal_corrupt;
        }
        state_.remove_orphans();
        report.segments = found.segments;
        report.was_closed = found.was_closed;
        if (found.cut_bytes != 0 && !ec) {
            report.file = segment_name(found.cut_segment);
            report.offset = found.cut_offset;
            report.cut_bytes = found.cut_bytes;
        }
    }

    Directory directory_;
    typename Directory::lock_type lock_{};
    journal_scanner<Directory> scanner_{directory_};
    content_reader<Directory> contents_{scanner_};
    kept_state state_{};
};

} // namespace railmq::storage
