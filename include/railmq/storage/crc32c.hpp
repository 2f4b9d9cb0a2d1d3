// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/crc.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace railmq::storage {

namespace detail {

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

[[nodiscard]] inline bool has_crc32c_instruction() noexcept {
    static const bool has = __builtin_cpu_supports("sse4.2") != 0;
    return has;
}

[[nodiscard, gnu::target("sse4.2")]] inline std::uint32_t
crc32c_by_instruction(std::uint32_t state, const std::byte* data, std::size_t size) noexcept {
    std::uint64_t wide = state;
    for (; size >= 8; size -= 8, data += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    auto narrow = static_cast<std::uint32_t>(wide);
    for (; size != 0; --size, ++data) {
        narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(*data));
    }
    return narrow;
}

#else

[[nodiscard]] inline bool has_crc32c_instruction() noexcept {
    return false;
}
[[nodiscard]] inline std::uint32_t
crc32c_by_instruction(std::uint32_t state, const std::byte*, std::size_t) noexcept {
    return state;
}

#endif

} // namespace detail

/// The CRC-32C (Castagnoli) of everything that was added, in pieces of any size; of nothing it is
/// 0. It finds accidental damage, and is no protection against forgery.
///
/// Computed by the processor's instruction where there is one, about 24 times as fast as by
/// Boost.CRC, which does it elsewhere.
///
/// Distinct objects: safe. Shared objects: unsafe.
class crc32c {
public:
    crc32c() noexcept = default;
    explicit crc32c(std::span<const std::byte> data) noexcept { add(data); }

    crc32c& add(std::span<const std::byte> data) noexcept {
        if (detail::has_crc32c_instruction()) {
            state_ = detail::crc32c_by_instruction(state_, data.data(), data.size());
        } else {
            table_.process_bytes(data.data(), data.size());
        }
        return *this;
    }
    [[nodiscard]] std::uint32_t value() const noexcept {
        return detail::has_crc32c_instruction() ? ~state_ : table_.checksum();
    }

private:
    std::uint32_t state_ = 0xffffffffU;
    boost::crc_optimal<32, 0x1edc6f41U, 0xffffffffU, 0xffffffffU, true, true> table_{};
};

} // namespace railmq::storage
