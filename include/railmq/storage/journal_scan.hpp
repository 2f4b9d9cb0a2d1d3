// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/files.hpp>
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::storage {

/// What is wrong with a stretch of a journal.
enum class damage_kind : std::uint8_t {
    missing, ///< A segment's file is not there.
    header,  ///< A segment's first bytes, or they belong to another file.
    record,  ///< No record begins where one should.
    payload, ///< Of a record whose header is intact.
    cut,     ///< The file ends too early.
    surplus, ///< There is something behind a segment's last record.
    unknown, ///< A record that is intact, and no entries of a broker.
};

[[nodiscard]] constexpr std::string_view to_string(damage_kind kind) noexcept {
    switch (kind) {
    case damage_kind::missing: return "the file is missing";
    case damage_kind::header: return "the file's header is damaged";
    case damage_kind::record: return "damaged";
    case damage_kind::payload: return "a record's payload is damaged";
    case damage_kind::cut: return "the file ends too early";
    case damage_kind::surplus: return "there is something behind the last record";
    case damage_kind::unknown: return "a record that no broker has written";
    }
    return "unknown damage";
}

/// A damaged stretch: bytes `begin` to `end`, the latter not included, of a segment's file.
struct journal_damage {
    damage_kind kind = damage_kind::record;
    std::uint64_t segment = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    /// The numbers of the records that are lost; where both are 0, none is. Only the first one is
    /// 0: those up to the last. Only the last one is 0: from the first one on, nobody knows how
    /// many.
    std::uint64_t first_record = 0;
    std::uint64_t last_record = 0;

    [[nodiscard]] bool loses_records() const noexcept { return (first_record | last_record) != 0; }
    friend bool operator==(const journal_damage&, const journal_damage&) noexcept = default;
};

/// What was found when a journal was gone through.
struct journal_scan_report {
    std::uint64_t segments = 0;
    std::uint64_t bytes = 0;
    std::uint64_t records = 0;     ///< Intact ones, the journal's own included.
    std::uint64_t last_record = 0; ///< The highest number of an intact one.
    bool was_closed = false;       ///< The last record says that the last user closed it.
    /// What follows the last intact record and was never confirmed as synced: as a crash leaves it,
    /// and no damage.
    std::uint64_t cut_segment = 0;
    std::uint64_t cut_offset = 0;
    std::uint64_t cut_bytes = 0;
    std::uint64_t unreadable_bytes = 0; ///< That the device would not give; taken for damaged.
    std::vector<journal_damage> damage{};
};

/// For those who look at some of what a scan finds: derive from it, and hide what is wanted.
struct scan_visitor {
    /// An intact record, which is there until this returns.
    void record(std::uint64_t /*segment*/, const record_view&) const noexcept {}
    /// Damage, between what comes before and after it.
    void damage(const journal_damage&) const noexcept {}
    /// Bytes gone through so far, and in all.
    void progress(std::uint64_t /*done*/, std::uint64_t /*all*/) const noexcept {}
};

namespace detail {

/// CRC-32C backwards: what the state was before bytes that are known led to this one.
class crc32c_reverse {
public:
    crc32c_reverse() noexcept {
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) {
                value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0);
            }
            table_[i] = value;
            by_top_[value >> 24] = i; // each top byte comes once
        }
    }
    [[nodiscard]] std::uint32_t
    before(std::uint32_t state, std::span<const std::byte> bytes) const noexcept {
        for (std::size_t n = bytes.size(); n != 0; --n) {
            const std::uint32_t index = by_top_[state >> 24];
            const auto byte = static_cast<std::uint32_t>(bytes[n - 1]);
            state = ((state ^ table_[index]) << 8) | (index ^ byte);
        }
        return state;
    }

private:
    std::array<std::uint32_t, 256> table_{};
    std::array<std::uint32_t, 256> by_top_{};
};

/// An id with which the record header at the start of `bytes` has the checksum that it has: where
/// the journal's own is lost, as good as that.
[[nodiscard]] inline journal_id fitting_id(
    const crc32c_reverse& reverse,
    std::span<const std::byte> bytes,
    std::uint64_t segment,
    std::uint64_t offset) noexcept {
    std::array<std::byte, 16 + record_header::size - 4> covered{}; // behind the id
    format::store(covered.data(), segment);
    format::store(covered.data() + 8, offset);
    std::copy_n(bytes.begin() + 4, record_header::size - 4, covered.begin() + 16);
    const std::uint32_t state = reverse.before(~format::load<std::uint32_t>(bytes.data()), covered);
    // Its last four bytes alone can lead to any state.
    constexpr std::array<std::byte, 12> zeros{};
    const std::uint32_t first = ~crc32c{zeros}.value();
    const std::uint32_t last = reverse.before(state, std::span{zeros}.first(4)) ^ first;
    return {0, std::uint64_t{last} << 32};
}

/// The id of a segment's journal, or one that fits, when its header says nothing; of two records
/// one behind the other, or of the only one and its payload.
[[nodiscard]] inline std::optional<journal_id>
find_id(std::span<const std::byte> file, std::uint64_t segment) noexcept {
    const crc32c_reverse reverse;
    for (std::uint64_t at = segment_header::size; at + record_header::size <= file.size();
         at += record_header::alignment) {
        const auto rest = file.subspan(static_cast<std::size_t>(at));
        const auto kind = format::load<std::uint32_t>(rest.data() + 12);
        if (kind == 0 || kind > static_cast<std::uint32_t>(record_kind::marked)) {
            continue;
        }
        const journal_id id = fitting_id(reverse, rest, segment, at);
        const auto h = decode_record(rest, {id, segment, at});
        const std::uint64_t size = h ? record_size(h->length) : 0;
        if (!h || size > rest.size()) {
            continue;
        }
        const auto payload =
            rest.subspan(record_header::size, static_cast<std::size_t>(size) - record_header::size);
        const auto next =
            decode_record(rest.subspan(static_cast<std::size_t>(size)), {id, segment, at + size});
        if (next ? next->number == h->number + 1
                 : !payload.empty() && crc32c{payload}.value() == h->payload_crc) {
            return id;
        }
    }
    return std::nullopt;
}

} // namespace detail

/// Reads a journal that may be damaged, and that nobody has open, without changing anything. What
/// is intact is found behind damage as well: a record's checksum covers its place, so it cannot be
/// mistaken for one that is not there.
///
/// Thread safety: one call at a time.
template <directory Directory>
class journal_scanner {
public:
    using file_type = typename Directory::file_type;

    /// `where` must outlive it.
    explicit journal_scanner(Directory& where) noexcept
        : directory_{where} {}

    /// Looks which segments there are and what they say of each other. Errors: `io_error`;
    /// `invalid_argument` for files of an unknown format.
    void open(error_code& ec) {
        segments_.clear();
        std::vector<std::string> names = directory_.names(ec);
        for (const std::string& name : names) {
            const auto number = segment_number(name);
            if (ec || !number) {
                continue;
            }
            about one;
            one.number = *number;
            file_type file = directory_.open(name, open_mode::read, ec);
            one.size = ec ? 0 : file.size(ec);
            if (ec) {
                break;
            }
            std::array<std::byte, segment_header::size> head{};
            const std::size_t got = read_at(file, 0, head, ec);
            const header_state state = decode(std::span{head}.first(got), one.header);
            if (state == header_state::unsupported) {
                ec = errc::invalid_argument;
                return;
            }
            ec = {}; // what cannot be read is damaged
            one.has_header = state == header_state::good && one.header.number == one.number;
            segments_.push_back(one);
        }
        if (ec) {
            ec = errc::io_error;
            return;
        }
        choose_journal(ec);
        if (!ec) {
            find_beginning(ec);
        }
    }

    [[nodiscard]] bool is_empty() const noexcept { return segments_.empty(); }
    [[nodiscard]] bool has_segment(std::uint64_t number) const noexcept {
        return std::any_of(
            segments_.begin(), segments_.end(), [&](const about& s) { return s.number == number; });
    }
    /// The segment with which opening begins to read, as far as that is to be known; those before
    /// it may have been deleted.
    [[nodiscard]] std::uint64_t read_from() const noexcept { return read_from_; }

    /// Goes through all segments from that number on. Damage is no error.
    template <class Visit>
    void scan(std::uint64_t from, Visit&& visit, journal_scan_report& report, error_code& ec) {
        report = {};
        ec = {};
        next_ = 0;
        epoch_ = 0;
        std::uint64_t all = 0;
        for (const about& s : segments_) {
            all += s.number >= from ? s.size : 0;
        }
        std::uint64_t expected = std::max(from, read_from_);
        std::uint64_t previous = 0;
        std::vector<std::byte> bytes;
        for (std::size_t i = 0; i < segments_.size(); ++i) {
            const about& s = segments_[i];
            if (s.number < from) {
                continue;
            }
            if (s.number > expected && expected != 0) {
                miss(expected, s, visit, report);
            } else if (s.number != previous + 1) {
                next_ = 0; // those between were deleted in good order
            }
            previous = s.number;
            bytes = contents(s, report, ec);
            if (ec) {
                return;
            }
            const bool is_last = i + 1 == segments_.size();
            scan_segment(s, bytes, is_last ? nullptr : &segments_[i + 1], visit, report);
            // Before the beginning, segments may be missing; from there on, none.
            expected = std::max(s.number + 1, read_from_);
            ++report.segments;
            report.bytes += s.size;
            visit.progress(report.bytes, all);
        }
    }

    /// One record, if it is there and intact; valid until the next call.
    [[nodiscard]] std::optional<record_view> read(record_location where) {
        if (window_segment_ != where.segment) {
            error_code ec;
            window_segment_ = 0;
            window_.clear();
            window_file_ = directory_.open(segment_name(where.segment), open_mode::read, ec);
            if (ec) {
                return std::nullopt;
            }
            window_segment_ = where.segment;
        }
        const record_place place{journal_, where.segment, where.offset};
        const auto h = decode_record(bytes_at(where.offset, record_header::size), place);
        if (!h) {
            return std::nullopt;
        }
        const std::size_t size = static_cast<std::size_t>(record_size(h->length));
        const auto whole = bytes_at(where.offset, size);
        if (whole.size() != size ||
            crc32c{whole.subspan(record_header::size)}.value() != h->payload_crc) {
            return std::nullopt;
        }
        return record_view{*h, where.offset, whole.subspan(record_header::size, h->length)};
    }

private:
    struct about {
        std::uint64_t number = 0;
        std::uint64_t size = 0;
        segment_header header{};
        bool has_header = false;
    };
    struct found_record {
        std::uint64_t offset = 0;
        record_header header{};
        bool is_intact = false;
    };

    /// The one that most segments belong to.
    void choose_journal(error_code& ec) {
        std::size_t most = 0;
        for (const about& s : segments_) {
            const auto n = static_cast<std::size_t>(
                std::count_if(segments_.begin(), segments_.end(), [&](const about& other) {
                    return s.has_header && other.has_header &&
                           other.header.journal == s.header.journal;
                }));
            if (n > most) {
                most = n;
                journal_ = s.header.journal;
            }
        }
        for (about& s : segments_) {
            if (most == 0 && !ec) {
                // No header is intact. What the records say is enough to read them.
                journal_scan_report ignored;
                const std::vector<std::byte> bytes = contents(s, ignored, ec);
                if (const auto id = detail::find_id(bytes, s.number); id && !ec) {
                    journal_ = *id;
                    most = 1;
                }
            }
            s.has_header = s.has_header && s.header.journal == journal_;
        }
    }

    /// By what headers say, and the last segment's marks.
    void find_beginning(error_code& ec) {
        read_from_ = 0;
        for (const about& s : segments_) {
            if (s.has_header && s.header.read_before < s.number) {
                read_from_ = std::max(read_from_, s.number - s.header.read_before);
            }
        }
        if (segments_.empty()) {
            return;
        }
        struct marks : scan_visitor {
            std::uint64_t from = 0;
            void record(std::uint64_t segment, const record_view& r) noexcept {
                const record_kind kind = r.header.kind;
                if ((kind == record_kind::closed || kind == record_kind::marked) &&
                    r.payload.size() == sizeof(std::uint64_t)) {
                    const auto value = format::load<std::uint64_t>(r.payload.data());
                    from = value <= segment ? std::max(from, value) : from;
                }
            }
        } found;
        journal_scan_report ignored;
        scan(segments_.back().number, found, ignored, ec);
        read_from_ = std::max(read_from_, found.from);
    }

    /// Segments that are not there, before `s`.
    template <class Visit>
    void miss(std::uint64_t first, const about& s, Visit& visit, journal_scan_report& report) {
        journal_damage d;
        d.kind = damage_kind::missing;
        d.first_record = first == 1 ? 1 : next_;
        d.last_record = s.has_header ? s.header.first_record - 1 : 0;
        for (d.segment = first; d.segment != s.number; ++d.segment) {
            note(d, visit, report);
        }
        next_ = s.has_header ? s.header.first_record : 0;
    }
    template <class Visit>
    static void note(const journal_damage& d, Visit& visit, journal_scan_report& report) {
        report.damage.push_back(d);
        visit.damage(d);
    }

    [[nodiscard]] std::vector<std::byte>
    contents(const about& s, journal_scan_report& report, error_code& ec) {
        std::vector<std::byte> all;
        file_type file = directory_.open(segment_name(s.number), open_mode::read, ec);
        if (ec || s.size > std::numeric_limits<std::size_t>::max() / 2) {
            ec = errc::io_error;
            return all;
        }
        all.resize(static_cast<std::size_t>(s.size));
        for (std::size_t at = 0; at < all.size();) {
            at += read_at(file, at, std::span{all}.subspan(at), ec);
            if (!ec) {
                all.resize(at);
                break;
            }
            // What the device does not give is left as zeros, block by block.
            constexpr std::size_t block = 4096;
            const std::size_t next = std::min(all.size(), (at / block + 1) * block);
            std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(at), next - at, std::byte{});
            report.unreadable_bytes += next - at;
            at = next;
        }
        ec = {};
        return all;
    }

    template <class Visit>
    void scan_segment(
        const about& s,
        std::span<const std::byte> bytes,
        const about* next_segment,
        Visit& visit,
        journal_scan_report& report) {
        segment_header header = s.header;
        const auto emit = [&](const record_view& r) {
            ++report.records;
            report.last_record = r.header.number;
            report.was_closed = r.header.kind == record_kind::closed;
            visit.record(s.number, r);
        };
        if (!s.has_header) {
            header = {journal_, s.number, epoch_, next_, 0};
            note(
                {damage_kind::header,
                 s.number,
                 0,
                 std::min<std::uint64_t>(bytes.size(), segment_header::size),
                 0,
                 0},
                visit,
                report);
        }
        std::uint64_t begin = std::min<std::uint64_t>(bytes.size(), segment_header::size);
        std::uint64_t synced = 0;
        // As opening reads it, and that is all where nothing is damaged.
        const bool follows = next_ == 0 || next_ == header.first_record;
        if (s.has_header && follows && header.epoch >= epoch_) {
            segment_reader reader{bytes, header};
            while (const auto r = reader.next()) {
                emit(*r);
            }
            next_ = reader.next_number();
            epoch_ = std::max(epoch_, reader.epoch());
            begin = std::min<std::uint64_t>(bytes.size(), reader.offset());
            if (reader.is_sealed()) {
                if (!reader.look_behind().is_empty) {
                    note(
                        {damage_kind::surplus, s.number, begin, bytes.size(), 0, 0}, visit, report);
                }
                return;
            }
            if (next_segment == nullptr) {
                const auto behind = reader.look_behind();
                synced = behind.highest_synced;
                if (synced < next_) {
                    if (!behind.is_empty) {
                        report.cut_segment = s.number;
                        report.cut_offset = begin;
                        report.cut_bytes = bytes.size() - begin;
                    }
                    return;
                }
            }
        }
        go_on(s, bytes, next_segment, begin, synced, emit, visit, report);
    }

    /// Looks for what is intact behind damage.
    template <class Emit, class Visit>
    void go_on(
        const about& s,
        std::span<const std::byte> bytes,
        const about* next_segment,
        std::uint64_t begin,
        std::uint64_t synced,
        Emit& emit,
        Visit& visit,
        journal_scan_report& report) {
        const std::vector<found_record> all = search(s, bytes, begin);
        for (const found_record& r : all) {
            synced = std::max(synced, r.header.synced);
        }
        // In the last segment, only what was synced is known to have been there.
        const auto was_there = [&](std::uint64_t number) {
            return next_segment != nullptr || number == 0 || number <= synced;
        };
        const auto cut = [&] {
            report.cut_segment = s.number;
            report.cut_offset = begin;
            report.cut_bytes = bytes.size() - begin;
        };
        bool is_sealed = false;
        for (const found_record& r : all) {
            const std::uint64_t number = r.header.number;
            const std::uint64_t size = record_size(r.header.length);
            if (r.offset != begin || (next_ != 0 && number != next_)) {
                if (!was_there(next_)) {
                    cut();
                    return;
                }
                journal_damage d{damage_kind::record, s.number, begin, r.offset, 0, 0};
                if (number != next_) {
                    d.first_record = next_;
                    d.last_record = number - 1;
                }
                note(d, visit, report);
            }
            const std::uint64_t end = std::min<std::uint64_t>(bytes.size(), r.offset + size);
            if (r.is_intact) {
                emit(record_view{
                    r.header,
                    r.offset,
                    bytes.subspan(
                        static_cast<std::size_t>(r.offset) + record_header::size,
                        r.header.length)});
            } else if (!was_there(number)) {
                begin = r.offset;
                cut();
                return;
            } else {
                note(
                    {damage_kind::payload, s.number, r.offset, end, number, number}, visit, report);
            }
            begin = end;
            next_ = number + 1;
            epoch_ = r.header.epoch;
            is_sealed = r.header.kind == record_kind::sealed;
        }
        end_segment(s, bytes, next_segment, begin, synced, is_sealed, visit, report);
    }

    template <class Visit>
    void end_segment(
        const about& s,
        std::span<const std::byte> bytes,
        const about* next_segment,
        std::uint64_t begin,
        std::uint64_t synced,
        bool is_sealed,
        Visit& visit,
        journal_scan_report& report) {
        const auto rest = bytes.subspan(static_cast<std::size_t>(begin));
        // In a file that was another segment before, what that has left follows.
        const bool is_reused = s.has_header && s.header.is_reused;
        const std::size_t mark = std::min<std::size_t>(rest.size(), record_header::size);
        const bool is_empty = is_empty_space(is_reused ? rest.first(mark) : rest);
        if (is_sealed) {
            if (!is_empty) {
                note({damage_kind::surplus, s.number, begin, bytes.size(), 0, 0}, visit, report);
            }
            return;
        }
        journal_damage d{damage_kind::record, s.number, begin, bytes.size(), 0, 0};
        d.kind = rest.empty() ? damage_kind::cut : d.kind;
        if (next_segment == nullptr) {
            if (next_ != 0 && synced < next_) {
                if (!is_empty) {
                    report.cut_segment = s.number;
                    report.cut_offset = begin;
                    report.cut_bytes = rest.size();
                }
                return;
            }
            d.first_record = next_;
            d.last_record = synced;
            if (next_ == 0 && synced == 0 && is_empty) {
                return; // a header, and nothing was ever written behind it
            }
        } else {
            // Its seal at the least.
            const bool is_known = next_segment->has_header && next_segment->number == s.number + 1;
            d.first_record = next_;
            d.last_record = is_known ? next_segment->header.first_record - 1 : 0;
            next_ = is_known ? next_segment->header.first_record : 0;
        }
        note(d, visit, report);
    }

    /// Everything with an intact header, from `begin` on, that can follow what was read so far.
    [[nodiscard]] std::vector<found_record>
    search(const about& s, std::span<const std::byte> bytes, std::uint64_t begin) const {
        std::vector<found_record> all;
        std::uint64_t next = next_;
        std::uint64_t epoch = epoch_;
        for (std::uint64_t at = begin; at + record_header::size <= bytes.size();) {
            const auto rest = bytes.subspan(static_cast<std::size_t>(at));
            // Cheap to see for nearly everything that is no record.
            const auto kind = format::load<std::uint32_t>(rest.data() + 12);
            const bool may_be =
                kind != 0 && kind <= static_cast<std::uint32_t>(record_kind::marked);
            const auto h = may_be ? decode_record(rest, {journal_, s.number, at}) : std::nullopt;
            if (!h || h->number < next || h->epoch < epoch) {
                at += record_header::alignment;
                continue;
            }
            const std::uint64_t size = record_size(h->length);
            const bool is_intact = size <= rest.size() &&
                                   crc32c{rest.subspan(
                                              record_header::size,
                                              static_cast<std::size_t>(size) - record_header::size)}
                                           .value() == h->payload_crc;
            all.push_back({at, *h, is_intact});
            next = h->number + 1;
            epoch = h->epoch;
            at += size;
            if (h->kind == record_kind::sealed) {
                break;
            }
        }
        return all;
    }

    [[nodiscard]] std::span<const std::byte> bytes_at(std::uint64_t offset, std::size_t size) {
        const auto is_there = [&] {
            return offset >= window_begin_ && offset + size <= window_begin_ + window_.size();
        };
        if (!is_there()) {
            constexpr std::size_t step = std::size_t{128} << 10;
            error_code ec;
            const std::uint64_t end = window_file_.size(ec);
            if (ec || offset > end || size > end - offset) {
                return {};
            }
            window_begin_ = offset;
            window_.resize(std::max(size, step));
            window_.resize(read_at(window_file_, offset, window_, ec));
        }
        return is_there() ? std::span<const std::byte>{window_}.subspan(
                                static_cast<std::size_t>(offset - window_begin_), size)
                          : std::span<const std::byte>{};
    }

    Directory& directory_;
    std::vector<about> segments_{};
    journal_id journal_{};
    std::uint64_t read_from_ = 0;
    // While scanning
    std::uint64_t next_ = 0; ///< The number that the next record should have; 0: not known.
    std::uint64_t epoch_ = 0;
    // What was read last
    std::uint64_t window_segment_ = 0;
    file_type window_file_{};
    std::uint64_t window_begin_ = 0;
    std::vector<std::byte> window_{};
};

/// "bytes 64 to 128 of 0000000000000001.journal: damaged, records 3 to 4 are lost".
[[nodiscard]] inline std::string to_string(const journal_damage& d) {
    std::string out;
    if (d.kind != damage_kind::missing) {
        out = (d.begin == d.end ? "byte " : "bytes ") + std::to_string(d.begin);
        out += d.begin == d.end ? "" : " to " + std::to_string(d.end);
        out += " of ";
    }
    out += segment_name(d.segment) + ": " + std::string{to_string(d.kind)};
    if (!d.loses_records()) {
        return out + ", no record is lost";
    }
    if (d.first_record == 0) {
        return out + ", records up to " + std::to_string(d.last_record) + " are lost";
    }
    out += d.first_record == d.last_record ? ", record " : ", records ";
    out += std::to_string(d.first_record);
    if (d.first_record == d.last_record) {
        return out + " is lost";
    }
    return out + (d.last_record == 0 ? " and later ones" : " to " + std::to_string(d.last_record)) +
           " are lost";
}

} // namespace railmq::storage
