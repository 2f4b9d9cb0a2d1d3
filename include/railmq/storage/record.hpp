// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/crc32c.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace railmq::storage {

/// What the journal's files consist of, byte by byte: see docs/design/05_journal.md. Numbers are
/// little-endian.
namespace format {

// On a little-endian machine a number is copied whole: not every compiler sees that the loops do
// the same.
template <std::unsigned_integral N>
void store(std::byte* to, N value) noexcept {
    if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(to, &value, sizeof value);
    } else {
        for (std::size_t i = 0; i < sizeof(N); ++i) {
            to[i] = static_cast<std::byte>(value >> (8 * i));
        }
    }
}
template <std::unsigned_integral N>
[[nodiscard]] N load(const std::byte* from) noexcept {
    N value = 0;
    if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(&value, from, sizeof value);
    } else {
        for (std::size_t i = 0; i < sizeof(N); ++i) {
            value = static_cast<N>(value | static_cast<N>(static_cast<N>(from[i]) << (8 * i)));
        }
    }
    return value;
}

} // namespace format

/// Which journal a segment belongs to: drawn when the journal is created.
struct journal_id {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const journal_id&, const journal_id&) noexcept = default;
};

/// The first bytes of a segment file.
struct segment_header {
    static constexpr std::size_t size = 64;
    static constexpr std::uint32_t version = 1;
    static constexpr std::uint64_t magic = 0x314c4a514d4c4152U; // "RALMQJL1"

    journal_id journal{};
    std::uint64_t number = 0;       ///< The segment's, from 1 on; also in the file's name.
    std::uint64_t epoch = 0;        ///< In which it was created.
    std::uint64_t first_record = 0; ///< The number of its first record.
    /// How many segments before this one the records begin that have to be read; what came before
    /// them, those say again.
    std::uint32_t read_before = 0;
    /// The file was another segment before, whose bytes lie behind the records; the last record is
    /// followed by as many zeros as a record's header has bytes.
    bool is_reused = false;

    friend bool operator==(const segment_header&, const segment_header&) noexcept = default;
};

/// What became of reading a header.
enum class header_state : std::uint8_t {
    good,
    damaged,
    unsupported, ///< Intact, and of a format that this library does not know.
};

[[nodiscard]] inline std::array<std::byte, segment_header::size>
encode(const segment_header& h) noexcept {
    std::array<std::byte, segment_header::size> out{};
    format::store(out.data(), segment_header::magic);
    format::store(out.data() + 8, segment_header::version);
    // Features without which it cannot be read.
    format::store(out.data() + 12, std::uint32_t{h.is_reused ? 1U : 0U});
    format::store(out.data() + 16, h.journal.high);
    format::store(out.data() + 24, h.journal.low);
    format::store(out.data() + 32, h.number);
    format::store(out.data() + 40, h.epoch);
    format::store(out.data() + 48, h.first_record);
    format::store(out.data() + 56, h.read_before);
    format::store(out.data() + 60, crc32c{std::span{out}.first(60)}.value());
    return out;
}

[[nodiscard]] inline header_state
decode(std::span<const std::byte> in, segment_header& out) noexcept {
    if (in.size() < segment_header::size ||
        format::load<std::uint64_t>(in.data()) != segment_header::magic ||
        format::load<std::uint32_t>(in.data() + 60) != crc32c{in.first(60)}.value()) {
        return header_state::damaged;
    }
    const auto features = format::load<std::uint32_t>(in.data() + 12);
    if (format::load<std::uint32_t>(in.data() + 8) != segment_header::version || features > 1) {
        return header_state::unsupported;
    }
    out.is_reused = features == 1;
    out.journal.high = format::load<std::uint64_t>(in.data() + 16);
    out.journal.low = format::load<std::uint64_t>(in.data() + 24);
    out.number = format::load<std::uint64_t>(in.data() + 32);
    out.epoch = format::load<std::uint64_t>(in.data() + 40);
    out.first_record = format::load<std::uint64_t>(in.data() + 48);
    out.read_before = format::load<std::uint32_t>(in.data() + 56);
    return header_state::good;
}

/// What a record is to the journal; what its payload means, only its user knows.
enum class record_kind : std::uint16_t {
    data = 1, ///< The user's.
    opened,   ///< The journal was opened: a new epoch begins.
    closed,   ///< It was closed in good order: everything before is on the device. Also a `marked`.
    sealed,   ///< The last of its segment: `segment_seal`.
    marked,   ///< Reading may begin with the segment whose number is the payload.
};

/// Where a record lies in its journal.
struct record_location {
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;

    friend bool operator==(const record_location&, const record_location&) noexcept = default;
};

/// Where a record lies, of all journals. Its checksum covers that, so a block that was written
/// elsewhere, or a long time ago for another file, is no record here. It covers the journal's id as
/// well, which nobody knows who sends messages: a payload that looks like a record is none.
struct record_place {
    journal_id journal{};
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;
};

/// What comes before a record's payload.
struct record_header {
    static constexpr std::size_t size = 40;
    static constexpr std::size_t alignment = 8; ///< Of where records begin.

    record_kind kind = record_kind::data;
    std::uint32_t length = 0; ///< Of the payload, without the zeros that fill it up to 8 bytes.
    std::uint32_t payload_crc = 0; ///< Of the payload with those zeros.
    std::uint64_t number = 0;      ///< One more than that of the record before.
    std::uint64_t epoch = 0;
    std::uint64_t synced = 0; ///< Records up to this one were on the device when it was written.

    friend bool operator==(const record_header&, const record_header&) noexcept = default;
};

[[nodiscard]] constexpr std::uint64_t padded(std::uint64_t length) noexcept {
    return (length + record_header::alignment - 1) / record_header::alignment *
           record_header::alignment;
}
/// The bytes of a whole record in the file.
[[nodiscard]] constexpr std::uint64_t record_size(std::uint64_t length) noexcept {
    return record_header::size + padded(length);
}

namespace format {

[[nodiscard]] inline std::uint32_t
header_crc(std::span<const std::byte> header, record_place where) noexcept {
    const std::byte* const covered = header.data() + 4;
    return crc32c{}
        .add_numbers(
            where.journal.high,
            where.journal.low,
            where.segment,
            where.offset,
            load<std::uint64_t>(covered),
            load<std::uint64_t>(covered + 8),
            load<std::uint64_t>(covered + 16),
            load<std::uint64_t>(covered + 24),
            load<std::uint32_t>(covered + 32))
        .value();
}

/// What a payload has behind its last whole 8 bytes, and the zeros that fill it up.
[[nodiscard]] inline std::uint64_t last_word(std::span<const std::byte> payload) noexcept {
    const std::size_t rest = payload.size() % 8;
    if (payload.size() >= 8) {
        return rest != 0 ? load<std::uint64_t>(&payload.back() - 7) >> (64 - 8 * rest) : 0;
    }
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < rest; ++i) {
        word |= std::to_integer<std::uint64_t>(payload[i]) << (8 * i);
    }
    return word;
}

/// Of a payload and the zeros that fill it up.
[[nodiscard]] inline std::uint32_t payload_crc(std::span<const std::byte> payload) noexcept {
    const std::size_t rest = payload.size() % 8;
    crc32c crc{payload.first(payload.size() - rest)};
    if (rest != 0) {
        crc.add_numbers(last_word(payload));
    }
    return crc.value();
}

} // namespace format

inline void encode(
    const record_header& h,
    record_place where,
    std::span<std::byte, record_header::size> out) noexcept {
    // In the pieces in which the checksum reads them: a load that spans several fresh stores waits
    // until they have left the processor's store buffer.
    const auto pair = [](std::uint64_t low, std::uint64_t high) { return low | high << 32; };
    format::store(out.data() + 4, pair(h.length, h.payload_crc));
    format::store(out.data() + 12, pair(static_cast<std::uint16_t>(h.kind), h.number));
    format::store(out.data() + 20, pair(h.number >> 32, h.epoch));
    format::store(out.data() + 28, pair(h.epoch >> 32, h.synced));
    format::store(out.data() + 36, static_cast<std::uint32_t>(h.synced >> 32));
    format::store(out.data(), format::header_crc(out, where));
}

/// The header at the start of `in`, if there is an intact one that belongs there. The payload is
/// not looked at.
[[nodiscard]] inline std::optional<record_header>
decode_record(std::span<const std::byte> in, record_place where) noexcept {
    if (in.size() < record_header::size ||
        format::load<std::uint32_t>(in.data()) != format::header_crc(in, where)) {
        return std::nullopt;
    }
    record_header h;
    h.length = format::load<std::uint32_t>(in.data() + 4);
    h.payload_crc = format::load<std::uint32_t>(in.data() + 8);
    const auto kind = format::load<std::uint16_t>(in.data() + 12);
    const auto reserved = format::load<std::uint16_t>(in.data() + 14);
    h.number = format::load<std::uint64_t>(in.data() + 16);
    h.epoch = format::load<std::uint64_t>(in.data() + 24);
    h.synced = format::load<std::uint64_t>(in.data() + 32);
    // Zeros are no record, whatever their checksum.
    if (kind < static_cast<std::uint16_t>(record_kind::data) ||
        kind > static_cast<std::uint16_t>(record_kind::marked) || reserved != 0 || h.number == 0) {
        return std::nullopt;
    }
    h.kind = static_cast<record_kind>(kind);
    return h;
}

/// The payload of a `sealed` record: what its segment holds. With it, a record that is missing
/// from the middle is found as well as one that is damaged.
struct segment_seal {
    static constexpr std::size_t size = 16;

    std::uint64_t records = 0; ///< Before the seal.
    std::uint32_t chain = 0;   ///< CRC-32C of their header checksums, one after the other.

    friend bool operator==(const segment_seal&, const segment_seal&) noexcept = default;
};

[[nodiscard]] inline std::array<std::byte, segment_seal::size>
encode(const segment_seal& s) noexcept {
    std::array<std::byte, segment_seal::size> out{};
    format::store(out.data(), s.records);
    format::store(out.data() + 8, s.chain);
    return out;
}
[[nodiscard]] inline std::optional<segment_seal>
decode_seal(std::span<const std::byte> in) noexcept {
    if (in.size() != segment_seal::size) {
        return std::nullopt;
    }
    return segment_seal{
        format::load<std::uint64_t>(in.data()), format::load<std::uint32_t>(in.data() + 8)};
}

} // namespace railmq::storage
