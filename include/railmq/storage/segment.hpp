// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/record.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

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

/// Reads a segment's records one after the other from its bytes, as long as each is intact and
/// follows from the one before: the next number, and an epoch that is not lower.
///
/// Cost: what it looks at is read once and copied nowhere. Never reads outside of the bytes.
class segment_reader {
public:
    /// `file` is the whole file, whose header said `header`.
    segment_reader(std::span<const std::byte> file, const segment_header& header) noexcept
        : file_{file}
        , header_{header}
        , next_number_{header.first_record}
        , epoch_{header.epoch} {}

    /// The next record; none where there is no such record, at `offset()`. A seal is the last.
    [[nodiscard]] std::optional<record_view> next() noexcept {
        if (is_sealed_) {
            return std::nullopt;
        }
        const auto found = intact_at(offset_);
        if (!found || found->header.number != next_number_ || found->header.epoch < epoch_ ||
            found->header.synced >= next_number_) {
            return std::nullopt;
        }
        if (found->header.kind == record_kind::sealed) {
            const auto seal = decode_seal(found->payload);
            if (!seal || *seal != this->seal()) {
                return std::nullopt;
            }
            is_sealed_ = true;
        }
        chain_.add(file_.subspan(offset_, 4));
        ++records_;
        ++next_number_;
        epoch_ = found->header.epoch;
        synced_ = std::max(synced_, found->header.synced);
        is_closed_ = found->header.kind == record_kind::closed;
        offset_ += record_size(found->header.length);
        return found;
    }

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

    /// The highest number of which any intact record of the file says that it was on the device,
    /// those behind `offset()` included: they may have reached the disk although what lies before
    /// them did not.
    [[nodiscard]] std::uint64_t highest_synced() const noexcept {
        std::uint64_t highest = synced_;
        for (std::uint64_t at = offset_; at + record_header::size <= file_.size();
             at += record_header::alignment) {
            // Cheap to see for nearly everything that is no record.
            const auto kind = format::load<std::uint32_t>(file_.data() + at + 12);
            if (kind == 0 || kind > static_cast<std::uint32_t>(record_kind::marked)) {
                continue;
            }
            if (const auto h = decode_record(file_.subspan(at), place(at))) {
                highest = std::max(highest, h->synced);
            }
        }
        return highest;
    }
    /// Whether there is nothing but zeros from `offset()` on, as in space that was only reserved.
    [[nodiscard]] bool is_empty_behind() const noexcept {
        const auto rest = file_.subspan(std::min<std::size_t>(offset_, file_.size()));
        return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{}; });
    }

private:
    [[nodiscard]] record_place place(std::uint64_t offset) const noexcept {
        return {header_.journal, header_.number, offset};
    }
    [[nodiscard]] std::optional<record_view> intact_at(std::uint64_t offset) const noexcept {
        if (offset > file_.size()) {
            return std::nullopt;
        }
        const auto rest = file_.subspan(offset);
        const auto h = decode_record(rest, place(offset));
        if (!h || padded(h->length) > rest.size() - record_header::size) {
            return std::nullopt;
        }
        const auto stored = rest.subspan(record_header::size, padded(h->length));
        if (crc32c{stored}.value() != h->payload_crc) {
            return std::nullopt;
        }
        return record_view{*h, offset, stored.first(h->length)};
    }

    std::span<const std::byte> file_;
    segment_header header_;
    std::uint64_t offset_ = segment_header::size;
    std::uint64_t next_number_;
    std::uint64_t epoch_;
    std::uint64_t synced_ = 0;
    std::uint64_t records_ = 0;
    crc32c chain_{};
    bool is_sealed_ = false;
    bool is_closed_ = false;
};

} // namespace railmq::storage
