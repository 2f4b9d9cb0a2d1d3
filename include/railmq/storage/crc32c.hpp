// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace railmq::storage {

namespace detail {

/// `tables[k][b]`: what the byte `b` contributes when `k` more bytes follow it.
using crc32c_tables = std::array<std::array<std::uint32_t, 256>, 8>;

[[nodiscard]] constexpr crc32c_tables make_crc32c_tables() noexcept {
    constexpr std::uint32_t polynomial = 0x82f63b78U; // bits reflected
    crc32c_tables tables{};
    for (std::uint32_t b = 0; b < 256; ++b) {
        std::uint32_t state = b;
        for (int bit = 0; bit < 8; ++bit) {
            state = (state >> 1) ^ (state % 2 != 0 ? polynomial : 0);
        }
        tables[0][b] = state;
    }
    for (std::size_t k = 1; k < tables.size(); ++k) {
        for (std::size_t b = 0; b < 256; ++b) {
            const std::uint32_t before = tables[k - 1][b];
            tables[k][b] = (before >> 8) ^ tables[0][before & 0xff];
        }
    }
    return tables;
}

/// For every processor: eight bytes at a time, by tables.
[[nodiscard]] inline std::uint32_t
crc32c_by_table(std::uint32_t state, const std::byte* data, std::size_t size) noexcept {
    static constexpr crc32c_tables tables = make_crc32c_tables();
    for (; size >= 8; size -= 8, data += 8) {
        std::uint32_t next = 0;
        for (std::size_t i = 0; i < 8; ++i) {
            const std::uint32_t before = i < 4 ? state >> (8 * i) : 0;
            next ^= tables[7 - i][(before ^ std::to_integer<std::uint32_t>(data[i])) & 0xff];
        }
        state = next;
    }
    for (; size != 0; --size, ++data) {
        state = (state >> 8) ^ tables[0][(state ^ std::to_integer<std::uint32_t>(*data)) & 0xff];
    }
    return state;
}

/// A number, as its bytes from the lowest to the highest.
template <std::unsigned_integral N>
[[nodiscard]] std::uint32_t crc32c_by_table(std::uint32_t state, N number) noexcept {
    std::array<std::byte, sizeof(N)> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(number >> (8 * i));
    }
    return crc32c_by_table(state, bytes.data(), bytes.size());
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

/// So many bytes are summed in each of three chains, side by side.
inline constexpr std::size_t crc32c_lane = 256;

/// `tables[k][b]`: what the byte `b << 8 * k` of a state becomes when a lane of zeros follows.
using crc32c_shift_tables = std::array<std::array<std::uint32_t, 256>, 4>;

[[nodiscard]] constexpr crc32c_shift_tables make_crc32c_shift_tables() noexcept {
    const std::array<std::uint32_t, 256> zero = make_crc32c_tables()[0];
    // What becomes of each bit of a state; twice the same is what twice as many zeros do.
    std::array<std::uint32_t, 32> bits{};
    const auto apply = [](const std::array<std::uint32_t, 32>& to, std::uint32_t state) {
        std::uint32_t out = 0;
        for (std::size_t i = 0; state != 0; state >>= 1, ++i) {
            out ^= state % 2 != 0 ? to[i] : 0;
        }
        return out;
    };
    for (std::size_t i = 0; i < bits.size(); ++i) {
        const std::uint32_t state = std::uint32_t{1} << i;
        bits[i] = (state >> 8) ^ zero[state & 0xff];
    }
    for (std::size_t bytes = 1; bytes != crc32c_lane; bytes *= 2) {
        std::array<std::uint32_t, 32> twice{};
        for (std::size_t i = 0; i < bits.size(); ++i) {
            twice[i] = apply(bits, bits[i]);
        }
        bits = twice;
    }
    crc32c_shift_tables tables{};
    for (std::size_t k = 0; k < tables.size(); ++k) {
        for (std::uint32_t b = 0; b < 256; ++b) {
            tables[k][b] = apply(bits, b << (8 * k));
        }
    }
    return tables;
}
[[nodiscard]] inline std::uint64_t crc32c_shift(std::uint64_t state) noexcept {
    static constexpr crc32c_shift_tables tables = make_crc32c_shift_tables();
    return tables[0][state & 0xff] ^ tables[1][(state >> 8) & 0xff] ^
           tables[2][(state >> 16) & 0xff] ^ tables[3][(state >> 24) & 0xff];
}

/// Costs a load and a test: the C library's startup code has asked the processor.
[[nodiscard]] inline bool has_crc32c_instruction() noexcept {
    return __builtin_cpu_supports("sse4.2") != 0;
}

[[nodiscard, gnu::target("sse4.2")]] inline std::uint32_t
crc32c_by_instruction(std::uint32_t state, const std::byte* data, std::size_t size) noexcept {
    const auto word_at = [](const std::byte* from) noexcept {
        std::uint64_t word = 0;
        std::memcpy(&word, from, sizeof word);
        return word;
    };
    std::uint64_t wide = state;
    // The instruction takes three cycles, and one can begin in each.
    for (; size >= 3 * crc32c_lane; size -= 3 * crc32c_lane, data += 3 * crc32c_lane) {
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (std::size_t i = 0; i != crc32c_lane; i += 8) {
            wide = __builtin_ia32_crc32di(wide, word_at(data + i));
            second = __builtin_ia32_crc32di(second, word_at(data + crc32c_lane + i));
            third = __builtin_ia32_crc32di(third, word_at(data + 2 * crc32c_lane + i));
        }
        wide = crc32c_shift(crc32c_shift(wide) ^ second) ^ third;
    }
    for (; size >= 8; size -= 8, data += 8) {
        wide = __builtin_ia32_crc32di(wide, word_at(data));
    }
    state = static_cast<std::uint32_t>(wide);
    for (; size != 0; --size, ++data) {
        state = __builtin_ia32_crc32qi(state, static_cast<unsigned char>(*data));
    }
    return state;
}

template <class... N>
[[nodiscard, gnu::target("sse4.2")]] inline std::uint32_t
crc32c_by_instruction(std::uint32_t state, N... numbers) noexcept {
    std::uint64_t wide = state;
    ((wide = sizeof(N) == 8
                 ? __builtin_ia32_crc32di(wide, numbers)
                 : __builtin_ia32_crc32si(
                       static_cast<std::uint32_t>(wide), static_cast<std::uint32_t>(numbers))),
     ...);
    return static_cast<std::uint32_t>(wide);
}

#else

[[nodiscard]] inline bool has_crc32c_instruction() noexcept {
    return false;
}
[[nodiscard]] inline std::uint32_t
crc32c_by_instruction(std::uint32_t state, const std::byte* data, std::size_t size) noexcept {
    return crc32c_by_table(state, data, size);
}
template <class... N>
[[nodiscard]] std::uint32_t crc32c_by_instruction(std::uint32_t state, N... numbers) noexcept {
    ((state = crc32c_by_table(state, numbers)), ...);
    return state;
}

#endif

} // namespace detail

/// The CRC-32C (Castagnoli) of everything that was added, in pieces of any size; of nothing it is
/// 0. It finds accidental damage, and is no protection against forgery.
///
/// Computed by the processor's instruction where there is one, and else by tables.
///
/// Distinct objects: safe. Shared objects: unsafe.
class crc32c {
public:
    crc32c() noexcept = default;
    explicit crc32c(std::span<const std::byte> data) noexcept { add(data); }

    crc32c& add(std::span<const std::byte> data) noexcept {
        state_ = detail::has_crc32c_instruction()
                     ? detail::crc32c_by_instruction(state_, data.data(), data.size())
                     : detail::crc32c_by_table(state_, data.data(), data.size());
        return *this;
    }
    /// Adds numbers of 4 and 8 bytes, as their bytes from the lowest to the highest: for a few that
    /// are at hand, several times as fast as by way of memory.
    template <std::unsigned_integral... N>
    crc32c& add_numbers(N... numbers) noexcept {
        static_assert(((sizeof(N) == 4 || sizeof(N) == 8) && ...));
        if (detail::has_crc32c_instruction()) {
            state_ = detail::crc32c_by_instruction(state_, numbers...);
        } else {
            ((state_ = detail::crc32c_by_table(state_, numbers)), ...);
        }
        return *this;
    }
    [[nodiscard]] std::uint32_t value() const noexcept { return ~state_; }

private:
    std::uint32_t state_ = 0xffffffffU;
};

} // namespace railmq::storage
