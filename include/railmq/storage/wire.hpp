// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>
#include <railmq/storage/record.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace railmq::storage {

/// Appends values to bytes, in the forms that journal entries consist of: numbers in seven bits a
/// byte, the lowest first (LEB128); lengths of time as 8 bytes; moments by the wall clock, since
/// the broker's own time line ends with the process; texts with their length before them.
///
/// Distinct objects: safe. Shared objects: unsafe.
class wire_writer {
public:
    /// `wall` is what the wall clock is ahead of the broker's time.
    explicit wire_writer(std::vector<std::byte>& out, duration wall = duration::zero()) noexcept
        : out_{out}
        , wall_{wall} {}

    void byte(std::uint8_t value) { out_.push_back(static_cast<std::byte>(value)); }
    void number(std::uint64_t value) {
        while (value >= 0x80) {
            byte(static_cast<std::uint8_t>(value | 0x80));
            value >>= 7;
        }
        byte(static_cast<std::uint8_t>(value));
    }
    void fixed(std::uint64_t value) {
        const std::size_t begin = out_.size();
        out_.resize(begin + sizeof(value));
        format::store(out_.data() + begin, value);
    }
    /// Room for a length that is known later: `end_length` with what this returns fills it in.
    [[nodiscard]] std::size_t begin_length() {
        out_.resize(out_.size() + sizeof(std::uint32_t));
        return out_.size();
    }
    void end_length(std::size_t begin) noexcept {
        format::store(
            out_.data() + begin - sizeof(std::uint32_t),
            static_cast<std::uint32_t>(out_.size() - begin));
    }
    /// Room for the size of what is appended next, which is `likely` so many bytes: `end_sized`
    /// with what this returns fills it in, and only has to move it if its size takes more or less
    /// room.
    struct sized {
        std::size_t at;
        std::size_t width;
    };
    [[nodiscard]] sized begin_sized(std::uint64_t likely) {
        const sized s{out_.size(), width_of(likely)};
        out_.resize(out_.size() + s.width);
        return s;
    }
    void end_sized(sized s) {
        std::uint64_t size = out_.size() - s.at - s.width;
        const std::size_t width = width_of(size);
        const auto begin = out_.begin() + static_cast<std::ptrdiff_t>(s.at);
        if (width > s.width) {
            out_.insert(begin, width - s.width, std::byte{});
        } else if (width < s.width) {
            out_.erase(begin, begin + static_cast<std::ptrdiff_t>(s.width - width));
        }
        for (std::size_t i = s.at; i != s.at + width; ++i, size >>= 7) {
            const bool is_last = i + 1 == s.at + width;
            out_[i] = static_cast<std::byte>(is_last ? size : size | 0x80);
        }
    }
    void span_of_time(duration d) { fixed(static_cast<std::uint64_t>(d.count())); }
    void moment(time_point t) {
        span_of_time((t == never ? never : saturating_add(t, wall_)).time_since_epoch());
    }
    void real(double value) { fixed(std::bit_cast<std::uint64_t>(value)); }
    void raw(std::span<const std::byte> bytes) {
        out_.insert(out_.end(), bytes.begin(), bytes.end());
    }
    void text(std::string_view value) {
        number(value.size());
        raw(std::as_bytes(std::span{value.data(), value.size()}));
    }
    [[nodiscard]] std::vector<std::byte>& out() noexcept { return out_; }

private:
    [[nodiscard]] static std::size_t width_of(std::uint64_t value) noexcept {
        return value < 0x80 ? 1 : (static_cast<std::size_t>(std::bit_width(value)) + 6) / 7;
    }

    std::vector<std::byte>& out_;
    duration wall_;
};

/// Reads what a `wire_writer` has written. Bytes that are no such thing make it fail, once and for
/// all: it then gives zeros and empty texts.
///
/// Never reads outside of the bytes, and makes nothing longer than they are.
///
/// Distinct objects: safe. Shared objects: unsafe.
class wire_reader {
public:
    explicit wire_reader(std::span<const std::byte> in, duration wall = duration::zero()) noexcept
        : in_{in}
        , wall_{wall} {}

    [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
    [[nodiscard]] bool is_at_end() const noexcept { return in_.empty(); }
    /// How many bytes are left.
    [[nodiscard]] std::size_t left() const noexcept { return in_.size(); }
    /// What was read makes no sense.
    void fail() noexcept {
        has_failed_ = true;
        in_ = {};
    }

    [[nodiscard]] std::uint8_t byte() noexcept {
        const auto got = raw(1);
        return got.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(got[0]);
    }
    [[nodiscard]] std::uint64_t number() noexcept {
        if (!in_.empty() && in_.front() < std::byte{0x80}) { // most are that short
            const auto small = std::to_integer<std::uint64_t>(in_.front());
            in_ = in_.subspan(1);
            return small;
        }
        return long_number();
    }
    /// A number below `limit`; a higher one is none.
    [[nodiscard]] std::uint64_t number_below(std::uint64_t limit) noexcept {
        const std::uint64_t value = number();
        if (value >= limit) {
            fail();
            return 0;
        }
        return value;
    }
    [[nodiscard]] std::uint32_t small() noexcept {
        return static_cast<std::uint32_t>(number_below(std::uint64_t{1} << 32));
    }
    [[nodiscard]] std::uint64_t fixed() noexcept {
        const auto got = raw(sizeof(std::uint64_t));
        return got.empty() ? 0 : format::load<std::uint64_t>(got.data());
    }
    [[nodiscard]] duration span_of_time() noexcept {
        return duration{static_cast<std::int64_t>(fixed())};
    }
    [[nodiscard]] time_point moment() noexcept {
        const time_point t{span_of_time()};
        return t == never ? never : saturating_add(t, -wall_);
    }
    [[nodiscard]] double real() noexcept { return std::bit_cast<double>(fixed()); }
    /// The next `n` bytes; empty when there are not that many.
    [[nodiscard]] std::span<const std::byte> raw(std::uint64_t n) noexcept {
        if (n > in_.size()) {
            fail();
            return {};
        }
        const auto got = in_.first(static_cast<std::size_t>(n));
        in_ = in_.subspan(static_cast<std::size_t>(n));
        return got;
    }
    /// What lies between `begin_length` and `end_length`.
    [[nodiscard]] std::span<const std::byte> block() noexcept {
        const auto length = raw(sizeof(std::uint32_t));
        return length.empty() ? length : raw(format::load<std::uint32_t>(length.data()));
    }
    [[nodiscard]] std::string_view text() noexcept {
        const auto got = raw(number());
        return {reinterpret_cast<const char*>(got.data()), got.size()};
    }

private:
    [[nodiscard]] std::uint64_t long_number() noexcept {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const std::uint64_t b = byte();
            if (shift == 63 && b > 1) {
                break;
            }
            value |= (b & 0x7f) << shift;
            if ((b & 0x80) == 0) {
                return has_failed_ ? 0 : value;
            }
        }
        fail();
        return 0;
    }

    std::span<const std::byte> in_;
    duration wall_;
    bool has_failed_ = false;
};

} // namespace railmq::storage
