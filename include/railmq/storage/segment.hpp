// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/record.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace railmq::storage {

/// The name of a segment's file: its number in sixteen hexadecimal digits, and `.journal`.
[[nodiscard]] inline std::string segment_name(std::uint64_t number) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string name(16, '0');
    for (std::size_t i = 0; i < 16; ++i) {
        name[15 - i] = digits[(number >> (4 * i)) & 0xf];
    }
    return name + ".journal";
}

/// The number in a segment's file name; none for a name that is not exactly one.
[[nodiscard]] inline std::optional<std::uint64_t> segment_number(std::string_view name) {
    std::uint64_t number = 0;
    for (const char c : name.substr(0, 16)) {
        const bool is_digit = c >= '0' && c <= '9';
        if (!is_digit && !(c >= 'a' && c <= 'f')) {
            return std::nullopt;
        }
        number = number * 16 + static_cast<std::uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
    }
    if (number == 0 || name != segment_name(number)) {
        return std::nullopt;
    }
    return number;
}

/// An intact record in a segment, with the payload where it was read.
struct record_view {
    record_header header{};
    std::uint64_t offset = 0;
    std::span<const std::byte> payload{};
};

/// A segment's bytes, as a `basic_segment_reader` asks for them: `size()` is how many there are,
/// and `at(offset, n)` gives those `n` until it is called again, or fewer where there are not as
/// many. `data_from(offset)` is the first place from there on that may have anything but zeros.
template <class Source>
concept segment_source = requires(Source& source, std::uint64_t offset, std::size_t n) {
    { std::as_const(source).size() } -> std::convertible_to<std::uint64_t>;
    { source.at(offset, n) } -> std::convertible_to<std::span<const std::byte>>;
    { source.data_from(offset) } -> std::convertible_to<std::uint64_t>;
};

/// A whole segment in memory.
class segment_in_memory {
public:
    template <std::convertible_to<std::span<const std::byte>> Bytes>
    segment_in_memory(const Bytes& file) noexcept // NOLINT: it is nothing else
        : file_{file} {}
    [[nodiscard]] std::uint64_t size() const noexcept { return file_.size(); }
    [[nodiscard]] std::span<const std::byte> at(std::uint64_t offset, std::size_t n) noexcept {
        const auto begin = std::min<std::size_t>(file_.size(), offset);
        return file_.subspan(begin, std::min(n, file_.size() - begin));
    }
    [[nodiscard]] std::uint64_t data_from(std::uint64_t offset) const noexcept { return offset; }

private:
    std::span<const std::byte> file_;
};

/// Whether there is nothing but zeros.
[[nodiscard]] inline bool is_empty_space(std::span<const std::byte> bytes) noexcept {
    return bytes.empty() || (bytes[0] == std::byte{} &&
                             std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

/// Reads a segment's records one after the other from its bytes, as long as each is intact and
/// follows from the one before: the next number, and an epoch that is not lower.
///
/// Cost: what it looks at is read once and copied nowhere. Never reads outside of the bytes.
template <segment_source Source>
class basic_segment_reader {
public:
    /// `file` is the whole file, whose header said `header`.
    basic_segment_reader(Source file, const segment_header& header) noexcept
        : file_{std::move(file)}
        , header_{header}
        , next_number_{header.first_record}
        , epoch_{header.epoch} {}

    /// The next record, until this is called again; none where there is no such record, at
    /// `offset()`. A seal is the last.
    [[nodiscard]] std::optional<record_view> next() {
        if (is_sealed_) {
            return std::nullopt;
        }
        const auto whole = intact_at(offset_);
        if (whole.empty()) {
            return std::nullopt;
        }
        const record_header& h = found_;
        if (h.number != next_number_ || h.epoch < epoch_ || h.synced >= next_number_) {
            return std::nullopt;
        }
        const auto payload = whole.subspan(record_header::size, h.length);
        if (h.kind == record_kind::sealed) {
            const auto seal = decode_seal(payload);
            if (!seal || *seal != this->seal()) {
                return std::nullopt;
            }
            is_sealed_ = true;
        }
        chain_.add(whole.first(4));
        ++records_;
        ++next_number_;
        epoch_ = h.epoch;
        synced_ = std::max(synced_, h.synced);
        is_closed_ = h.kind == record_kind::closed;
        const record_view found{h, offset_, payload};
        offset_ += whole.size();
        return found;
    }

    [[nodiscard]] Source& source() noexcept { return file_; }
    /// Where the next record would begin.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    /// The number that it would have.
    [[nodiscard]] std::uint64_t next_number() const noexcept { return next_number_; }
    [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
    [[nodiscard]] bool is_sealed() const noexcept { return is_sealed_; }
    /// Whether the last record says that the journal was closed in good order.
    [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }
    /// What a seal behind the records so far would say.
    [[nodiscard]] segment_seal seal() const noexcept { return {records_, chain_.value()}; }
    [[nodiscard]] const crc32c& chain() const noexcept { return chain_; }

    /// What there is from `offset()` on.
    struct rest {
        /// Nothing but zeros, as in space that was only reserved; or, in a file that was another
        /// segment before, no header where the next one would be, and no record of this segment.
        bool is_empty = true;
        /// The highest number of which any intact record of the file says that it was on the
        /// device, those behind `offset()` included: they may have reached the disk although what
        /// lies before them did not.
        std::uint64_t highest_synced = 0;
    };
    [[nodiscard]] rest look_behind() {
        const bool is_reused = header_.is_reused;
        rest found{!is_reused || is_end_marked(), synced_};
        constexpr std::uint64_t alignment = record_header::alignment;
        // A header may begin in one part and end in the next.
        constexpr std::uint64_t overlap = record_header::size - alignment;
        for (std::uint64_t at = offset_;;) {
            const std::uint64_t data = file_.data_from(at) / alignment * alignment;
            at = std::max(at, data - std::min(data, overlap));
            if (at >= file_.size()) {
                break;
            }
            const auto part = some_from(at);
            if (part.empty()) { // it cannot be read
                found.is_empty = false;
                break;
            }
            const bool is_last = at + part.size() == file_.size();
            const std::uint64_t next = at + part.size() - (is_last ? 0 : overlap);
            const std::uint64_t here = std::exchange(at, next);
            if (is_empty_space(part)) {
                continue;
            }
            found.is_empty = found.is_empty && is_reused;
            for (std::size_t i = 0; i + record_header::size <= part.size();
                 i += record_header::alignment) {
                // Cheap to see for nearly everything that is no record.
                const auto kind = format::load<std::uint32_t>(part.data() + i + 12);
                if (kind == 0 || kind > static_cast<std::uint32_t>(record_kind::marked)) {
                    continue;
                }
                if (const auto h = decode_record(part.subspan(i), place(here + i))) {
                    found.highest_synced = std::max(found.highest_synced, h->synced);
                    found.is_empty = false;
                }
            }
        }
        return found;
    }

private:
    [[nodiscard]] record_place place(std::uint64_t offset) const noexcept {
        return {header_.journal, header_.number, offset};
    }
    [[nodiscard]] bool is_end_marked() {
        const std::uint64_t size = std::min<std::uint64_t>(
            record_header::size, file_.size() - std::min<std::uint64_t>(offset_, file_.size()));
        const auto mark = file_.at(offset_, static_cast<std::size_t>(size));
        return mark.size() == size && is_empty_space(mark);
    }
    [[nodiscard]] std::span<const std::byte> some_from(std::uint64_t offset) {
        constexpr std::uint64_t most = std::uint64_t{64} << 10;
        return file_.at(offset, static_cast<std::size_t>(std::min(most, file_.size() - offset)));
    }
    /// All bytes of the record at that offset, whose header is then in `found_`; none if there is
    /// no intact one.
    [[nodiscard]] std::span<const std::byte> intact_at(std::uint64_t offset) {
        const auto h = decode_record(file_.at(offset, record_header::size), place(offset));
        if (!h || record_size(h->length) > file_.size() - offset) {
            return {};
        }
        const auto size = static_cast<std::size_t>(record_size(h->length));
        const auto whole = file_.at(offset, size);
        if (whole.size() != size ||
            crc32c{whole.subspan(record_header::size)}.value() != h->payload_crc) {
            return {};
        }
        found_ = *h;
        return whole;
    }

    Source file_;
    segment_header header_;
    record_header found_{};
    std::uint64_t offset_ = segment_header::size;
    std::uint64_t next_number_;
    std::uint64_t epoch_;
    std::uint64_t synced_ = 0;
    std::uint64_t records_ = 0;
    crc32c chain_{};
    bool is_sealed_ = false;
    bool is_closed_ = false;
};

using segment_reader = basic_segment_reader<segment_in_memory>;

} // namespace railmq::storage
