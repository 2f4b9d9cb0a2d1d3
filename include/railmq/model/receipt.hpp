// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace railmq {

/// What a send reports once the broker has the message safe.
struct receipt {
    /// Identifies the message within its queue for as long as the queue lives; never used twice.
    /// Ids of one queue rise in the order in which sends were accepted; delayed messages have a
    /// numbering of their own.
    std::uint64_t id = 0;
    /// A message with the same deduplication id was accepted before: `id` is that one's, and
    /// nothing was stored now. It may have left the queue long ago.
    bool is_duplicate = false;

    /// The id of the first message, if this one was a duplicate.
    [[nodiscard]] std::optional<std::uint64_t> duplicate_of() const noexcept {
        return is_duplicate ? std::optional{id} : std::nullopt;
    }

    friend bool operator==(const receipt&, const receipt&) = default;
};

/// What became of a send in a transaction.
struct transaction_receipt {
    /// Of a send to a queue: as `receipt::id`.
    std::uint64_t id = 0;
    /// Of a send to a log: where the record is.
    std::uint32_t partition = 0;
    std::uint64_t offset = 0;
    /// It was stored before: in a log by the same idempotent producer, at this offset, which
    /// `offset` is as well; in a queue with the same deduplication id, as the message of this id,
    /// which `id` is as well. Nothing was stored now.
    std::optional<std::uint64_t> duplicate_of{};

    friend bool operator==(const transaction_receipt&, const transaction_receipt&) = default;
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
