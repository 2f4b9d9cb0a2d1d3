// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace railmq::core {

/// What a binding may lead to.
enum class destination_kind : std::uint8_t { queue, log, exchange };

/// The end of a binding: a queue, a log or another exchange, by a number. Those of exchanges come
/// from the router, the others from whoever owns queues and logs; each kind counts for itself.
struct destination {
    destination_kind kind = destination_kind::queue;
    std::uint32_t id = 0;

    [[nodiscard]] static constexpr destination queue(std::uint32_t id) noexcept {
        return {destination_kind::queue, id};
    }
    [[nodiscard]] static constexpr destination log(std::uint32_t id) noexcept {
        return {destination_kind::log, id};
    }
    [[nodiscard]] static constexpr destination exchange(std::uint32_t id) noexcept {
        return {destination_kind::exchange, id};
    }

    /// Kind and number as one number, another one for each destination.
    [[nodiscard]] constexpr std::uint64_t as_number() const noexcept {
        return static_cast<std::uint64_t>(kind) << 32 | id;
    }

    friend constexpr bool operator==(destination, destination) noexcept = default;
};

} // namespace railmq::core
