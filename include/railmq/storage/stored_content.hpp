// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/storage/kept_message.hpp>
#include <railmq/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace railmq::storage {

/// A message's content, as `stored` gives it.
struct stored_content {
    std::uint8_t has = 0; ///< 1: properties; 2: a history of deaths.
    std::span<const std::byte> beside{};
    std::span<const std::byte> payload{};
    std::uint32_t bytes = 0; ///< That the whole entry takes.
};
/// Puts properties and deaths into the image. False: they are none.
[[nodiscard]] inline bool
read_beside(const stored_content& content, duration wall, core::message_image& m) {
    wire_reader r{content.beside, wall};
    if ((content.has & 1) != 0) {
        m.props = std::make_unique<properties>(wire::get_properties(r));
    }
    if ((content.has & 2) != 0) {
        m.deaths = std::make_unique<death_history>(wire::get_deaths(r));
    }
    return !r.has_failed() && r.is_at_end();
}

} // namespace railmq::storage
