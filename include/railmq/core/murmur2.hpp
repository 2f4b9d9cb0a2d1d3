// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace railmq::core {

/// Austin Appleby's MurmurHash2 with the seed of Kafka's Java clients, bit for bit
/// (`org.apache.kafka.common.utils.Utils.murmur2`; there the result is signed). Not
/// `std::hash`: a key must meet its partition in every program and after every upgrade.
[[nodiscard]] constexpr std::uint32_t murmur2(std::string_view key) noexcept {
    constexpr std::uint32_t m = 0x5bd1e995;
    const auto byte = [&](std::size_t i) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(key[i]));
    };
    std::uint32_t h = 0x9747b28c ^ static_cast<std::uint32_t>(key.size());
    std::size_t i = 0;
    for (; i + 4 <= key.size(); i += 4) {
        std::uint32_t k = byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h *= m;
        h ^= k;
    }
    switch (key.size() - i) {
    case 3: h ^= byte(i + 2) << 16; [[fallthrough]];
    case 2: h ^= byte(i + 1) << 8; [[fallthrough]];
    case 1:
        h ^= byte(i);
        h *= m;
        break;
    default: break;
    }
    h ^= h >> 13;
    h *= m;
    h ^= h >> 15;
    return h;
}

/// The partition of a hash among `partitions`, which is not 0: the sign bit is dropped, as in
/// Kafka's `toPositive`.
[[nodiscard]] constexpr std::uint32_t
partition_of_hash(std::uint32_t hash, std::uint32_t partitions) noexcept {
    RAILMQ_ASSERT(partitions != 0);
    return (hash & 0x7fffffff) % partitions;
}

/// The partition of a key among `partitions`, where a Kafka client would put it too. When
/// partitions are added, new records of a key may go elsewhere; old ones stay where they are.
[[nodiscard]] constexpr std::uint32_t
partition_of(std::string_view key, std::uint32_t partitions) noexcept {
    return partition_of_hash(murmur2(key), partitions);
}

} // namespace railmq::core
