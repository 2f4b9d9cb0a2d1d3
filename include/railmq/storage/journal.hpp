// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/files.hpp>
#include <railmq/storage/read_ahead.hpp>
#include <railmq/storage/record_buffer.hpp>
#include <railmq/storage/reusable_segment.hpp>
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq::storage {

struct journal_options {
    /// A segment is sealed, and the next one begun, before it grows beyond this; at least 4096.
    std::uint64_t segment_bytes = std::uint64_t{64} << 20;
    /// Space that is always reserved ahead, for records that make other space free.
    std::uint64_t headroom_bytes = std::uint64_t{1} << 20;
    /// The longest payload. One that does not fit into an empty segment gets one of its own.
    std::uint32_t max_record_bytes = std::uint32_t{16} << 20;
};

/// What opening a journal found.
struct recovery_report {
    std::uint64_t segments = 0; ///< That were read.
    std::uint64_t older = 0;    ///< Segments of which nothing had to be read.
    std::uint64_t records = 0;  ///< The user's.
    std::uint64_t epoch = 0;    ///< That has begun with this opening; 1 for a new journal.
    bool was_closed = false;    ///< The last user closed it; else it was cut off, in whatever way.
    /// What followed the last intact record and had never been confirmed as synced.
    std::uint64_t cut_bytes = 0;
    /// Where there is damage, if opening failed with `journal_corrupt`, or the cut was made.
    std::string file{};
    std::uint64_t offset = 0;
    std::uint64_t record = 0; ///< The number of the first record that is lost.
    /// The process that has the journal, if opening failed with `journal_locked` and it is known.
    std::int64_t owner = 0;
};

/// Numbered records in segment files, written one behind the other. What it confirms as synced is
/// there after any crash, and what is there after a crash is a prefix of what was appended: no
/// holes, no other order, nothing that was not written. How, and what the files look like, is in
/// docs/design/05_journal.md.
///
/// A record that was appended is first in memory, then written (it survives the end of the
/// process), then synced (it survives the loss of power). The first failure of a write or a sync
/// is final: nothing is known of the file any more, so every later append, write and sync gives
/// `journal_failed`, until the journal is opened anew. In a process that was forked from its
/// owner's, a journal touches no file: `journal_locked`.
///
/// Thread safety: one call at a time.
template <directory Directory>
class journal {
public:
    using file_type = typename Directory::file_type;

    /// Opens the journal in `where`, or makes one there, of the id `fresh`. Calls
    /// `visit(number, payload, location)` for every record in order before it returns, from the
    /// segment on that `read_from` named last. If it returns false, that is damage: its checksum is
    /// right, but nobody could have written it. If it has `ended(was_closed)`, that is called where
    /// a user of the journal has ended, with whether he closed it; the last one included.
    ///
    /// Errors: `journal_locked` while another journal has the directory, in this process or
    /// another; `journal_corrupt` for damage to what had been synced, and `report` says where;
    /// nothing is changed then. `io_error` and `no_space` for what the files report;
    /// `invalid_argument` for options out of range, and for files of an unknown format.
    template <class Visit>
    [[nodiscard]] static std::optional<journal> open(
        Directory where,
        const journal_options& options,
        journal_id fresh,
        Visit&& visit,
        recovery_report& report,
        error_code& ec);

    journal(journal&&) noexcept = default;
    journal& operator=(journal&&) noexcept = default;
    journal(const journal&) = delete;
    journal& operator=(const journal&) = delete;
    /// What was not written is lost; call `close`.
    ~journal() = default;

    /// Appends a record in memory, and returns its number. With `from_headroom` it may use the
    /// space that is kept for such records.
    ///
    /// Errors, after which nothing has changed and 0 is returned: `no_space`; `message_too_large`;
    /// `journal_failed`. Begins a new segment where the last is full, which writes and syncs.
    std::uint64_t
    append(std::span<const std::byte> payload, error_code& ec, bool from_headroom = false) {
        if (payload.size() > options_.max_record_bytes) {
            ec = errc::message_too_large;
            return 0;
        }
        const std::uint64_t size = record_size(payload.size());
        bool in_headroom = false;
        if (!make_room(size, options_.headroom_bytes, ec)) {
            if (!from_headroom || ec != errc::no_space || !make_room(size, own_bytes(), ec)) {
                return 0;
            }
            in_headroom = true;
        }
        appended_ = {{header_.number, end_}, in_headroom};
        return put(record_kind::data, payload);
    }
    /// Of the last record that was appended: where it is, and whether it is in the headroom.
    struct appended {
        record_location where{};
        bool in_headroom = false;
    };
    [[nodiscard]] const appended& last_appended() const noexcept { return appended_; }

    /// Whether a record with such a payload could be appended now, with the space for it reserved.
    /// Errors as `append`.
    [[nodiscard]] bool has_room(std::size_t payload, error_code& ec) {
        if (payload > options_.max_record_bytes) {
            ec = errc::message_too_large;
            return false;
        }
        return make_room(record_size(payload), options_.headroom_bytes, ec);
    }

    /// From now on, opening begins to read with that segment: what came before it is said again
    /// from there on, and all of that is on the device. Syncs.
    void read_from(std::uint64_t segment, error_code& ec) {
        if (!make_room(record_size(sizeof(segment)), 0, ec)) {
            return;
        }
        put_mark(record_kind::marked, segment);
        sync(ec);
        if (!ec) {
            read_from_ = segment;
        }
    }
    /// The segment with which reading begins.
    [[nodiscard]] std::uint64_t is_read_from() const noexcept { return read_from_; }

    /// Seals the segment and begins the next one, whatever room is left. Without `has_failed`, an
    /// error has changed nothing.
    void roll(error_code& ec) {
        if (may_go_on(ec)) {
            begin_segment(ec);
        }
    }

    using read_ahead = segment_read_ahead<Directory>;
    /// One record, checked; it must have been written. Its payload is there as long as `ahead` is
    /// not used for another.
    ///
    /// Errors: `journal_corrupt`, when no such record is there any more; `io_error`.
    /// Thread safety: beside any other call.
    [[nodiscard]] record_view read(record_location where, read_ahead& ahead, error_code& ec) {
        const record_place place{id_, where.segment, where.offset};
        const auto record = read_record(directory_, place, options_.max_record_bytes, ahead, ec);
        if (ec && ec != errc::journal_corrupt) {
            ec = cause(ec);
        }
        return record;
    }

    /// The segments there are, and how many bytes each has.
    [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> segments(error_code& ec) {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
        for (const std::string& name : directory_.names(ec)) {
            const auto number = segment_number(name);
            if (!number || ec) {
                continue;
            }
            file_type file = directory_.open(name, open_mode::read, ec);
            const std::uint64_t size = ec ? 0 : file.size(ec);
            all.emplace_back(*number, size);
        }
        if (ec) {
            ec = cause(ec);
        }
        return all;
    }

    /// Deletes a segment from which nothing has to be read, or keeps its file for the next one; one
    /// such file is kept until the journal is closed or space is short. Until the directory's next
    /// sync, which comes with the next segment, a crash may bring it back.
    void remove_segment(std::uint64_t number, error_code& ec) {
        if (number >= is_read_from()) {
            ec = errc::invalid_argument;
            return;
        }
        if (may_go_on(ec) && is_ours(ec)) {
            const std::string name = segment_name(number);
            const std::uint64_t size = options_.segment_bytes;
            if (!reusable_.keep(directory_, name, size / 2, 2 * size)) {
                directory_.remove(name, ec);
            }
            if (ec) {
                ec = cause(ec);
            }
        }
    }

    /// Hands everything that was appended to the operating system.
    void write(error_code& ec) { flush(false, ec); }
    /// Writes, and returns when everything is on the device.
    void sync(error_code& ec) { flush(true, ec); }

    // The same in three steps, for threads that share a write: with the caller's lock held, without
    // it, and with it again. Meanwhile others may append, as long as no segment has to be begun.

    /// Records that were appended and are not written yet.
    struct batch {
        record_buffer bytes{};
        std::uint64_t offset = 0;
        std::uint64_t last = 0; ///< The number of the last of them, or of the last one before.
        bool is_to_sync = false;
    };
    [[nodiscard]] batch begin_flush(bool and_sync, error_code& ec) {
        batch b;
        if (may_go_on(ec) && is_ours(ec)) {
            b.offset = end_ - buffer_.size();
            if (header_.is_reused && buffer_.size() != 0) { // or an old record would seem to follow
                std::ranges::fill(buffer_.extend(record_header::size), std::byte{});
            }
            b.bytes = std::exchange(buffer_, std::move(spare_));
            b.last = last_;
            b.is_to_sync = and_sync && synced_ != last_;
        }
        return b;
    }
    void carry_out(const batch& b, error_code& ec) noexcept {
        try {
            (void)write_at(file_, b.offset, b.bytes.bytes(), ec);
            if (!ec && b.is_to_sync) {
                file_.sync_data(ec);
            } else if (!ec) {
                start_sync(b.offset, b.offset + b.bytes.size());
            }
        } catch (...) { // a file that needs memory: what it has done is not known
            ec = errc::io_error;
        }
    }
    void end_flush(batch b, error_code& ec) {
        if (ec) {
            fail(ec);
            return;
        }
        written_ = b.last;
        synced_ = b.is_to_sync ? b.last : synced_;
        b.bytes.clear();
        if (buffer_.size() == 0) { // the room that the processor's cache still has is used next
            std::swap(buffer_, b.bytes);
        }
        spare_ = std::move(b.bytes);
    }
    /// Whether appending a payload of that size begins a segment, which writes and syncs.
    [[nodiscard]] bool needs_segment(std::size_t payload) const noexcept {
        return is_full_for(record_size(payload));
    }
    /// Syncs, and leaves word that all is in good order. Nothing can be appended afterwards.
    void close(error_code& ec) {
        sync(ec);
        if (!ec && make_room(record_size(sizeof(std::uint64_t)), 0, ec)) {
            put_mark(record_kind::closed, read_from_);
            sync(ec);
        }
        reusable_.drop(directory_);
        has_failed_ = true;
        file_ = {};
        lock_ = {};
    }

    /// Numbers of the last records that were appended, written and synced.
    [[nodiscard]] std::uint64_t last() const noexcept { return last_; }
    [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
    [[nodiscard]] std::uint64_t synced() const noexcept { return synced_; }
    [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
    [[nodiscard]] std::uint64_t segment() const noexcept { return header_.number; }

private:
    struct recovery;

    journal(Directory where, const journal_options& options)
        : directory_{std::move(where)}
        , options_{options} {}

    [[nodiscard]] static error_code cause(const error_code& ec) noexcept {
        return ec == boost::system::errc::no_space_on_device ? make_error_code(errc::no_space)
                                                             : make_error_code(errc::io_error);
    }
    [[nodiscard]] bool may_go_on(error_code& ec) const noexcept {
        ec = has_failed_ ? make_error_code(errc::journal_failed) : error_code{};
        return !has_failed_;
    }
    /// Asked before files are touched.
    [[nodiscard]] bool is_ours(error_code& ec) const noexcept {
        ec = lock_.is_ours() ? error_code{} : make_error_code(errc::journal_locked);
        return !ec;
    }
    void fail(error_code& ec) noexcept {
        has_failed_ = true;
        ec = errc::io_error; // also for want of space: how much was written is not known
    }

    std::uint64_t put(record_kind kind, std::span<const std::byte> payload) {
        const std::uint64_t size = record_size(payload.size());
        buffer_.reserve(size + record_header::size); // for what `begin_flush` adds
        const std::span record = buffer_.extend(size);
        // What fills it up, before the rest is written over it.
        format::store(record.data() + record.size() - 8, std::uint64_t{0});
        std::copy(payload.begin(), payload.end(), record.begin() + record_header::size);
        record_header h;
        h.kind = kind;
        h.length = static_cast<std::uint32_t>(payload.size());
        h.payload_crc = format::payload_crc(payload);
        h.number = ++last_;
        h.epoch = epoch_;
        h.synced = synced_;
        encode(
            h,
            {header_.journal, header_.number, end_},
            record.template first<record_header::size>());
        chain_.add_numbers(format::load<std::uint32_t>(record.data()));
        ++records_;
        end_ += record.size();
        return last_;
    }

    /// Where nobody syncs, a segment's seal would have all of it to wait for: the device begins
    /// with each part when two more were written, so that what stays small does not pay for it.
    void start_sync(std::uint64_t begin, std::uint64_t end) noexcept {
        constexpr std::uint64_t part = std::uint64_t{4} << 20;
        begin = begin / part;
        end = end / part;
        if (begin != end && end > 2) {
            begin = std::max<std::uint64_t>(begin, 2) - 2;
            file_.start_sync(begin * part, (end - 2 - begin) * part);
        }
    }

    void put_mark(record_kind kind, std::uint64_t segment) {
        std::array<std::byte, sizeof(segment)> payload{};
        format::store(payload.data(), segment);
        put(kind, payload);
    }

    void flush(bool and_sync, error_code& ec) {
        batch b = begin_flush(and_sync, ec);
        if (!ec) {
            carry_out(b, ec);
            end_flush(std::move(b), ec);
        }
    }

    /// What the headroom always leaves for the journal's own records, so that it can be opened,
    /// closed and shortened on a disk that is full.
    [[nodiscard]] std::uint64_t own_bytes() const noexcept {
        return std::min(std::uint64_t{1024}, options_.headroom_bytes / 4);
    }

    /// A segment always has room for its seal.
    [[nodiscard]] static std::uint64_t with_seal(std::uint64_t bytes) noexcept {
        return bytes + record_size(segment_seal::size);
    }
    [[nodiscard]] bool is_full_for(std::uint64_t bytes) const noexcept {
        return end_ + with_seal(bytes) > options_.segment_bytes && records_ > 1;
    }
    /// Whether a record of `bytes` can be put and `kept` more be left: space is reserved for it,
    /// and a segment begun for it if need be.
    [[nodiscard]] bool make_room(std::uint64_t bytes, std::uint64_t kept, error_code& ec) {
        if (!may_go_on(ec)) {
            return false;
        }
        if (is_full_for(bytes)) {
            begin_segment(ec);
            if (has_failed_) {
                return false;
            }
        }
        if (!ec || kept < options_.headroom_bytes) {
            reserve(end_ + with_seal(bytes) + kept, ec);
        }
        return !ec;
    }
    void allocate(file_type& file, std::uint64_t size, error_code& ec) {
        do {
            file.allocate(size, ec);
            if (ec == boost::system::errc::no_space_on_device && reusable_.bytes() != 0) {
                reusable_.drop(directory_);
                ec = boost::system::errc::make_error_code(boost::system::errc::interrupted);
            }
        } while (ec == boost::system::errc::interrupted);
    }
    void reserve(std::uint64_t size, error_code& ec) {
        ec = {};
        if (size <= reserved_ || !is_ours(ec)) {
            return;
        }
        // In steps, since each changes the file's metadata, which the next sync pays for; in larger
        // ones where the file is large already, so that a small journal stays small.
        const std::uint64_t step =
            std::min(options_.segment_bytes, std::max(std::uint64_t{1} << 20, reserved_ / 2));
        const std::uint64_t most = options_.segment_bytes + options_.headroom_bytes;
        const std::uint64_t more = std::max(size, std::min(reserved_ + step, most));
        allocate(file_, more, ec);
        if (ec == boost::system::errc::no_space_on_device && more != size) {
            allocate(file_, size, ec);
        } else if (!ec) {
            size = more;
        }
        if (ec) {
            ec = cause(ec);
        } else {
            reserved_ = size;
        }
    }

    /// Seals the segment and begins the next one. Without `has_failed`, an error has changed
    /// nothing.
    void begin_segment(error_code& ec) {
        if (!is_ours(ec)) {
            return;
        }
        // The seal takes a number as well.
        segment_header next{
            header_.journal,
            header_.number + 1,
            epoch_,
            last_ + 2,
            read_before(header_.number + 1)};
        // All of it is made under another name, so that a crash or a full disk leaves the journal
        // as it is, and a segment that has its name is complete.
        std::uint64_t headroom = options_.headroom_bytes;
        auto made = create(next, headroom, ec);
        if (ec == boost::system::errc::no_space_on_device) {
            // What is reserved here is of no use any more once the next one is there.
            error_code undone;
            const std::uint64_t kept = reserved_;
            const std::uint64_t free = kept - std::min(kept, with_seal(end_));
            constexpr std::uint64_t blocks = 8192; // that the file system may need for itself
            headroom = std::min(headroom, free > 2 * blocks ? free - blocks : free / 2);
            directory_.remove(unfinished_name(), undone);
            file_.resize(with_seal(end_), undone);
            made = create(next, headroom, ec);
            if (ec) {
                directory_.remove(unfinished_name(), undone);
                allocate(file_, kept, undone);
            }
            reserved_ = ec && !undone ? kept : with_seal(end_);
        }
        if (ec) {
            ec = cause(ec);
            return;
        }
        const std::string name = segment_name(next.number); // while nothing has changed yet
        put(record_kind::sealed, encode(segment_seal{records_, chain_.value()}));
        try {
            sync(ec);
            if (!ec) {
                file_.resize(end_, ec);
            }
            if (!ec) {
                publish(name, ec);
            }
        } catch (...) { // nothing can follow a seal
            ec = errc::io_error;
        }
        if (ec) {
            fail(ec);
            return;
        }
        enter(std::move(made), next);
    }
    /// Begins a segment where none is being written.
    void start(segment_header next, error_code& ec) {
        auto made = create(next, options_.headroom_bytes, ec);
        if (!ec) {
            publish(segment_name(next.number), ec);
        }
        if (ec) {
            ec = cause(ec);
            return;
        }
        enter(std::move(made), next);
    }
    [[nodiscard]] std::uint32_t read_before(std::uint64_t segment) const noexcept {
        return static_cast<std::uint32_t>(segment - read_from_);
    }
    [[nodiscard]] static std::string unfinished_name() { return "next.tmp"; }

    using reusable_type = reusable_segment<Directory>;
    /// A new segment with nothing in it, synced, under the unfinished name; and how long its file
    /// is. Whether that was another one before, `header` says then.
    [[nodiscard]] typename reusable_type::taken
    create(segment_header& header, std::uint64_t headroom, error_code& ec) {
        const std::uint64_t size = segment_header::size + headroom;
        auto old = reusable_.take(directory_, unfinished_name(), size);
        header.is_reused = old.has_value();
        auto made = old ? std::move(*old) : typename reusable_type::taken{{}, size};
        ec = {};
        if (!old) {
            made.file = directory_.open(unfinished_name(), open_mode::create, ec);
            if (ec == boost::system::errc::file_exists) { // an attempt before this one failed
                directory_.remove(unfinished_name(), ec);
                if (!ec) {
                    made.file = directory_.open(unfinished_name(), open_mode::create, ec);
                }
            }
            if (!ec) {
                allocate(made.file, size, ec);
            }
        }
        if (!ec) {
            // With the zeros that the end has where an old record could seem to follow.
            std::array<std::byte, segment_header::size + record_header::size> bytes{};
            std::ranges::copy(encode(header), bytes.begin());
            (void)write_at(made.file, 0, bytes, ec);
        }
        if (!ec) {
            made.file.sync_data(ec);
        }
        return made;
    }
    void publish(const std::string& name, error_code& ec) {
        directory_.rename(unfinished_name(), name, ec);
        if (!ec) {
            directory_.sync(ec);
        }
    }
    void enter(typename reusable_type::taken made, const segment_header& header) noexcept {
        file_ = std::move(made.file);
        header_ = header;
        end_ = segment_header::size;
        reserved_ = made.bytes;
        records_ = 0;
        chain_ = crc32c{};
    }

    Directory directory_;
    typename Directory::lock_type lock_{};
    journal_options options_;
    journal_id id_{};         ///< Never changes, so that it can be read beside any other call.
    segment_header header_{}; ///< Of the segment that is being written.
    file_type file_{};
    std::uint64_t epoch_ = 0;
    std::uint64_t end_ = 0;      ///< Of the segment's records, those in the buffer included.
    std::uint64_t reserved_ = 0; ///< How long the file is, the reserved space included.
    std::uint64_t records_ = 0;  ///< In the segment.
    crc32c chain_{};
    record_buffer buffer_{}; ///< Records that are not written yet: the file's next bytes.
    record_buffer spare_{};  ///< Keeps its room.
    reusable_segment<Directory> reusable_{};
    appended appended_{};
    std::uint64_t read_from_ = 1;
    std::uint64_t last_ = 0;
    std::uint64_t written_ = 0;
    std::uint64_t synced_ = 0;
    bool has_failed_ = false;
};

} // namespace railmq::storage

#include <railmq/storage/journal_recovery.hpp>
