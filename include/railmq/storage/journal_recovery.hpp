// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/files.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/read_ahead.hpp>
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::storage {

/// One opening of a journal.
template <directory Directory>
struct journal<Directory>::recovery {
    journal& self;
    recovery_report& report;
    error_code& ec;
    /// Where some of the last segment's records are.
    struct milestone {
        std::uint64_t number;
        std::uint64_t offset;
    };
    static constexpr std::uint64_t milestone_distance = std::uint64_t{1} << 20;
    std::vector<milestone> milestones{};

    using window = segment_window<Directory>;
    using reader_type = basic_segment_reader<window>;

    void damaged(std::uint64_t number, std::uint64_t offset, std::uint64_t record) {
        report.file = segment_name(number);
        report.offset = offset;
        report.record = record;
        ec = errc::journal_corrupt;
    }

    /// Opens a segment and reads its header, which must follow from the one before. None after an
    /// error.
    [[nodiscard]] std::optional<reader_type>
    begin(std::uint64_t number, open_mode mode, bool is_first, segment_header& header) {
        file_type file = self.directory_.open(segment_name(number), mode, ec);
        if (ec) {
            ec = cause(ec);
            return std::nullopt;
        }
        window bytes{std::move(file), ec};
        if (ec) {
            ec = cause(ec);
            return std::nullopt;
        }
        const auto head = bytes.at(0, segment_header::size);
        if (!is_read(bytes) || !accept(number, is_first, head, header)) {
            return std::nullopt;
        }
        return reader_type{std::move(bytes), header};
    }
    /// Whether everything that was asked for could be read.
    [[nodiscard]] bool is_read(const window& bytes) {
        if (bytes.error()) {
            ec = cause(bytes.error());
        }
        return !ec;
    }

    /// Where reading has to begin, by the last mark in the last segment, or else by its header.
    [[nodiscard]] std::uint64_t first_to_read(std::uint64_t number) {
        segment_header header;
        auto reader = begin(number, open_mode::read, true, header);
        if (!reader) {
            return 0;
        }
        std::uint64_t from = number - std::min<std::uint64_t>(header.read_before, number);
        if (from == number) {
            return from; // no mark can say more
        }
        while (const auto record = reader->next()) {
            const record_kind kind = record->header.kind;
            if ((kind == record_kind::closed || kind == record_kind::marked) &&
                record->payload.size() == sizeof(std::uint64_t)) {
                from = format::load<std::uint64_t>(record->payload.data());
            }
        }
        if (!is_read(reader->source())) {
            return 0;
        }
        if (from == 0 || from > number || number >> 32 != 0) {
            damaged(number, 0, header.first_record);
        }
        return from;
    }

    template <class Visit>
    [[nodiscard]] static bool
    is_accepted(std::uint64_t segment, const record_view& record, Visit& visit) {
        const record_location where{segment, record.offset};
        if constexpr (std::is_void_v<decltype(visit(0U, record.payload, where))>) {
            visit(record.header.number, record.payload, where);
            return true;
        } else {
            return visit(record.header.number, record.payload, where);
        }
    }

    /// Reads one segment. What follows its last intact record is damage, but in the last segment,
    /// where it may never have been confirmed.
    template <class Visit>
    void read(std::uint64_t number, bool is_first, bool is_last, Visit& visit) {
        segment_header header;
        auto opened =
            begin(number, is_last ? open_mode::read_write : open_mode::read, is_first, header);
        if (!opened) {
            return;
        }
        reader_type& reader = *opened;
        self.header_ = header;
        self.last_ = header.first_record - 1;
        bool was_closed = false;
        milestones.clear();
        while (const auto record = reader.next()) {
            self.last_ = record->header.number;
            if (is_last && (milestones.empty() ||
                            record->offset - milestones.back().offset >= milestone_distance)) {
                milestones.push_back({record->header.number, record->offset});
            }
            if constexpr (requires { visit.ended(was_closed); }) {
                if (record->header.kind == record_kind::opened) {
                    visit.ended(was_closed);
                }
            }
            was_closed = reader.is_closed();
            if (record->header.kind == record_kind::data) {
                ++report.records;
                if (!is_accepted(number, *record, visit)) {
                    damaged(number, record->offset, record->header.number);
                    return;
                }
            }
        }
        if (!is_read(reader.source())) {
            return;
        }
        ++report.segments;
        report.was_closed = reader.is_closed();
        self.epoch_ = std::max(self.epoch_, reader.epoch());
        if ((self.epoch_ | self.last_) >> 63 != 0) {
            damaged(number, 0, self.last_); // nobody counts as far, and they must not wrap around
            return;
        }
        const auto behind = reader.look_behind();
        const bool is_clean = behind.is_empty;
        const bool may_be_cut = is_last && !reader.is_sealed();
        const std::uint64_t synced = may_be_cut ? behind.highest_synced : self.last_;
        if (!is_read(reader.source())) {
            return;
        }
        if (may_be_cut ? synced > self.last_ : !is_clean || !reader.is_sealed()) {
            damaged(number, reader.offset(), reader.next_number());
            return;
        }
        if (!is_clean) {
            report.file = segment_name(number);
            report.offset = reader.offset();
            report.record = reader.next_number();
            report.cut_bytes = reader.source().size() - reader.offset();
        }
        if (may_be_cut) {
            go_on_in(reader, synced, is_clean);
        } else if (is_last) {
            // Whoever sealed it may have ended before that was on the device, and the next segment
            // must not be there without it.
            make_sure(reader, behind.highest_synced);
            ec = ec ? cause(ec) : ec;
        }
    }

    /// Records that are not known to be on the device are written again, and synced: after a sync
    /// that failed the cache has records that are not there, and takes them for clean.
    void make_sure(reader_type& reader, std::uint64_t synced) {
        window& bytes = reader.source();
        std::uint64_t at = unsynced_from(bytes, synced);
        while (at < reader.offset() && !ec) {
            constexpr std::uint64_t most = std::uint64_t{256} << 10;
            const auto n = static_cast<std::size_t>(std::min(most, reader.offset() - at));
            const auto part = bytes.at(at, n);
            if (part.size() != n) {
                ec = bytes.error() ? bytes.error() : make_error_code(errc::io_error);
                return;
            }
            (void)write_at(bytes.file(), at, part, ec);
            at += n;
        }
        if (!ec) {
            bytes.file().sync_data(ec);
        }
    }
    /// Where the first record begins that is not known to be on the device: looked for from header
    /// to header, since all of them were found intact.
    [[nodiscard]] std::uint64_t unsynced_from(window& bytes, std::uint64_t synced) {
        const auto behind = std::upper_bound(
            milestones.begin(),
            milestones.end(),
            synced + 1,
            [](std::uint64_t n, const milestone& m) { return n < m.number; });
        if (behind == milestones.begin()) {
            return segment_header::size;
        }
        milestone at = *std::prev(behind);
        for (; at.number <= synced; ++at.number) {
            const auto h = decode_record(
                bytes.at(at.offset, record_header::size),
                {self.header_.journal, self.header_.number, at.offset});
            if (!h) {
                break; // the end of the records, or it cannot be read, which the window tells
            }
            at.offset += record_size(h->length);
        }
        return at.offset;
    }

    [[nodiscard]] bool accept(
        std::uint64_t number,
        bool is_first,
        std::span<const std::byte> bytes,
        segment_header& header) {
        const header_state state = decode(bytes, header);
        if (state == header_state::unsupported) {
            ec = errc::invalid_argument;
            return false;
        }
        const bool follows = is_first ? header.first_record != 0
                                      : header.journal == self.header_.journal &&
                                            header.first_record == self.last_ + 1 &&
                                            header.epoch >= self.epoch_;
        if (state != header_state::good || header.number != number || !follows) {
            damaged(number, 0, self.last_ + 1);
            return false;
        }
        return true;
    }

    /// The last segment is written on. What follows its records must never be read as a record
    /// again, and its records must be on the device before anybody is told of them.
    void go_on_in(reader_type& reader, std::uint64_t synced, bool is_clean) {
        window& bytes = reader.source();
        const std::uint64_t end = reader.offset();
        if (!is_clean) {
            // Zeros rather than a shorter file: on a full disk its space is all there is.
            const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes.size() - end));
            (void)write_at(bytes.file(), end, zeros, ec);
        }
        if (!ec) {
            make_sure(reader, synced);
        }
        if (ec) {
            ec = cause(ec);
            return;
        }
        self.reserved_ = bytes.size();
        self.file_ = std::move(bytes.file());
        self.end_ = end;
        self.records_ = reader.seal().records;
        self.chain_ = reader.chain();
    }
};

template <directory Directory>
template <class Visit>
std::optional<journal<Directory>> journal<Directory>::open(
    Directory where,
    const journal_options& options,
    journal_id fresh,
    Visit&& visit,
    recovery_report& report,
    error_code& ec) {
    report = {};
    if (options.segment_bytes < 4096) {
        ec = errc::invalid_argument;
        return std::nullopt;
    }
    std::optional<journal> opened{journal{std::move(where), options}};
    journal& self = *opened;
    self.lock_ = self.directory_.lock(report.owner, ec);
    if (ec) {
        ec = ec == errc::journal_locked ? ec : cause(ec);
        return std::nullopt;
    }
    std::vector<std::uint64_t> numbers;
    for (const std::string& name : self.directory_.names(ec)) {
        if (const auto number = segment_number(name)) {
            numbers.push_back(*number);
        }
    }
    if (ec) {
        ec = cause(ec);
        return std::nullopt;
    }
    recovery reading{self, report, ec};
    if (!numbers.empty()) {
        const std::uint64_t from = reading.first_to_read(numbers.back());
        if (ec) {
            return std::nullopt;
        }
        self.read_from_ = from;
        const auto first = std::lower_bound(numbers.begin(), numbers.end(), from);
        report.older = static_cast<std::uint64_t>(first - numbers.begin());
        numbers.erase(numbers.begin(), first);
    }
    for (std::size_t i = 0; i < numbers.size() && !ec; ++i) {
        if (numbers[i] != self.read_from_ + i) {
            reading.damaged(self.read_from_ + i, 0, self.last_ + 1);
        } else {
            reading.read(numbers[i], i == 0, i + 1 == numbers.size(), visit);
        }
    }
    if (ec) {
        return std::nullopt;
    }
    if constexpr (requires { visit.ended(report.was_closed); }) {
        visit.ended(report.was_closed);
    }
    if (!numbers.empty()) {
        // Whoever gave the last segment its name may have ended before that was on the device.
        self.directory_.sync(ec);
        if (ec) {
            ec = cause(ec);
            return std::nullopt;
        }
    }
    ++self.epoch_;
    if (numbers.empty()) {
        self.header_ = {fresh, 0, 0, 0, 0, false};
    }
    self.id_ = self.header_.journal;
    if (self.end_ == 0) { // none, or the last one is sealed
        const std::uint64_t next = self.header_.number + 1;
        self.start(
            {self.header_.journal, next, self.epoch_, self.last_ + 1, self.read_before(next)}, ec);
    }
    self.written_ = self.synced_ = self.last_;
    // A record of the new epoch, so that none of an older one can follow what was read.
    if (ec || !self.make_room(record_size(0), 0, ec)) {
        return std::nullopt;
    }
    self.put(record_kind::opened, {});
    self.sync(ec);
    if (ec) {
        return std::nullopt;
    }
    error_code ignored; // it may not be there
    self.directory_.remove(reusable_segment<Directory>::name(), ignored);
    report.epoch = self.epoch_;
    return opened;
}

} // namespace railmq::storage
