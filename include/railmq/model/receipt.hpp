// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace railmq {

/// What a send reports once the broker has the message safe.
struct receipt {
    /// Identifies the message within its queue for as long as the queue lives; never used twice.
    /// Ids of one queue rise in the order in which sends were accepted; delayed messages have a
    /// numbering of their own.
    std::uint64_t id = 0;

    friend bool operator==(const receipt&, const receipt&) = default;
};

} // namespace railmq
