// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/files.hpp>
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace railmq::storage {

/// What was read of a segment beyond what was asked for.
template <directory Directory>
struct segment_read_ahead {
    std::uint64_t segment = 0;
    typename Directory::file_type file{};
    std::uint64_t begin = 0;
    std::vector<std::byte> bytes{};

    /// Those bytes of the file, and more for the next time; nothing if it has not as many.
    [[nodiscard]] std::span<const std::byte>
    at(std::uint64_t offset, std::size_t size, error_code& ec) {
        if (!has(offset, size)) {
            constexpr std::size_t step = std::size_t{256} << 10;
            begin = offset;
            bytes.resize(std::max(size, step));
            bytes.resize(read_at(file, offset, bytes, ec));
        }
        return has(offset, size) ? std::span<const std::byte>{bytes}.subspan(
                                       static_cast<std::size_t>(offset - begin), size)
                                 : std::span<const std::byte>{};
    }

private:
    [[nodiscard]] bool has(std::uint64_t offset, std::size_t size) const noexcept {
        return offset >= begin && offset - begin <= bytes.size() &&
               size <= bytes.size() - static_cast<std::size_t>(offset - begin);
    }
};

/// A segment's file as a `basic_segment_reader` reads it, a part at a time: what is read of a large
/// one stays in the processor's cache until it is looked at.
template <directory Directory>
class segment_window {
public:
    using file_type = typename Directory::file_type;

    segment_window(file_type file, error_code& ec)
        : size_{file.size(ec)} {
        ahead_.file = std::move(file);
    }

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    /// After an error there is nothing, and `error()` says why.
    [[nodiscard]] std::span<const std::byte> at(std::uint64_t offset, std::size_t n) {
        if (failed_ || offset > size_) {
            return {};
        }
        const auto there = static_cast<std::size_t>(std::min<std::uint64_t>(n, size_ - offset));
        return ahead_.at(offset, there, failed_);
    }
    /// The first place from there on that may have anything but zeros.
    [[nodiscard]] std::uint64_t data_from(std::uint64_t offset) {
        if (failed_ || offset >= size_) {
            return offset;
        }
        const std::uint64_t found = ahead_.file.data_from(offset, failed_);
        return failed_ ? offset : std::min(found, size_);
    }
    [[nodiscard]] error_code error() const noexcept { return failed_; }
    [[nodiscard]] file_type& file() noexcept { return ahead_.file; }

private:
    segment_read_ahead<Directory> ahead_{};
    std::uint64_t size_;
    error_code failed_{};
};

/// One record, checked, whose payload is at most that long. It is there as long as `ahead` is not
/// used for another.
///
/// Errors: `journal_corrupt`, when no such record is there; what the files report.
template <directory Directory>
[[nodiscard]] record_view read_record(
    Directory& directory,
    record_place where,
    std::uint32_t longest,
    segment_read_ahead<Directory>& ahead,
    error_code& ec) {
    bool is_known = ahead.segment == where.segment && !ahead.bytes.empty();
    ec = {};
    if (ahead.segment != where.segment) {
        ahead.segment = 0;
        ahead.bytes.clear();
        ahead.file = directory.open(segment_name(where.segment), open_mode::read, ec);
        if (ec == boost::system::errc::no_such_file_or_directory) {
            ec = errc::journal_corrupt;
        }
        if (ec) {
            return {};
        }
        ahead.segment = where.segment;
    }
    for (;; is_known = false) {
        const auto head = ahead.at(where.offset, record_header::size, ec);
        const auto h = ec ? std::nullopt : decode_record(head, where);
        if (h && h->length <= longest) {
            const std::size_t size = record_header::size + padded(h->length);
            const auto whole = ahead.at(where.offset, size, ec);
            if (!ec && whole.size() == size &&
                crc32c{whole.subspan(record_header::size)}.value() == h->payload_crc) {
                return {*h, where.offset, whole.subspan(record_header::size, h->length)};
            }
        }
        if (ec) {
            return {};
        }
        if (!is_known) {
            ec = errc::journal_corrupt;
            return {};
        }
        ahead.bytes.clear(); // they were read before the record was written
    }
}

} // namespace railmq::storage
