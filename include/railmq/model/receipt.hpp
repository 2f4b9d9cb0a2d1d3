// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace railmq {

/// What a send reports once the broker has the message safe.
struct receipt {
    /// Identifies the message within its queue for as long as the queue lives; never used twice.
    /// Ids of one queue rise in the order in which sends were accepted; delayed messages have a
    /// numbering of their own.
    std::uint64_t id = 0;

    friend bool operator==(const receipt&, const receipt&) = default;
};

/// A queue or log that did not take a message which others took.
struct rejection {
    std::string name{};
    error_code code{};

    friend bool operator==(const rejection&, const rejection&) = default;
};

/// What a send to an exchange reports.
struct exchange_receipt {
    /// How many queues and logs have the message. 0: nobody was bound to it, and it is gone.
    std::uint32_t routed = 0;
    /// Those that were bound to it and refused it; empty when all took it.
    std::vector<rejection> rejected_by{};

    friend bool operator==(const exchange_receipt&, const exchange_receipt&) = default;
};

} // namespace railmq
