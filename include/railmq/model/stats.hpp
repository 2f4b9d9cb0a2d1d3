// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <cstdint>

namespace railmq {

/// A queue at one moment, and its totals since it was created. Exact in a simulation and whenever
/// no other thread is at work on the queue; a moment's blur of what is in motion otherwise.
///
/// At every moment:
/// `accepted = ready + delayed + in_flight + acked + dead_lettered + redriven + expired + dropped +
/// purged`.
struct queue_stats {
    // Now.
    std::uint64_t ready = 0;     ///< Waiting to be handed out.
    std::uint64_t delayed = 0;   ///< Waiting for a time: delay, backoff, or a dead-letter move.
    std::uint64_t in_flight = 0; ///< Held by consumers.
    std::uint64_t consumers = 0;
    std::uint64_t waiting_receivers = 0;
    std::uint64_t waiting_senders = 0;
    std::uint64_t memory_bytes = 0; ///< Memory of the queue's message blocks.
    /// Messages of a durable queue whose payload has left memory until they are handed out.
    std::uint64_t on_disk = 0;
    /// When the oldest ready message was sent, or `never`; subtract from now for the oldest age.
    time_point oldest_ready_since = never;
    /// The same of those that are ready or held.
    time_point oldest_since = never;

    std::uint64_t deduplication_ids = 0; ///< Remembered now.

    // Totals. Each accepted message ends in exactly one of the six from `acked` on.
    std::uint64_t accepted = 0;
    std::uint64_t acked = 0;
    std::uint64_t dead_lettered = 0; ///< Moved to a dead-letter queue.
    std::uint64_t redriven = 0;      ///< Moved elsewhere by `redrive`.
    std::uint64_t expired = 0;       ///< Expired and not kept, since dead letters are discarded.
    std::uint64_t dropped = 0;       ///< Dead or dropped, and discarded; each with a notice.
    std::uint64_t purged = 0;

    std::uint64_t handed_out = 0; ///< Deliveries, repeated ones included.
    std::uint64_t redelivered = 0;
    std::uint64_t failed = 0;            ///< Failures of any kind.
    std::uint64_t deadlines_passed = 0;  ///< Of these, passed ack deadlines.
    std::uint64_t released = 0;          ///< Given back without a failure.
    std::uint64_t refused = 0;           ///< Sends refused: full, too large, memory.
    std::uint64_t duplicates = 0;        ///< Sends accepted and not stored; not among `accepted`.
    std::uint64_t stale_settlements = 0; ///< Settlements that came too late and changed nothing.

    /// The number of leading messages, in order of sending, that have all left the queue.
    std::uint64_t settled_through = 0;
};

/// What was published to an exchange itself since it was opened, and what became of it. What comes
/// from another exchange counts there.
struct exchange_stats {
    std::uint64_t published = 0;    ///< Messages, those that nobody got included.
    std::uint64_t routed = 0;       ///< Copies that queues and logs took.
    std::uint64_t rejected = 0;     ///< Copies that queues and logs refused; see `rejection`.
    std::uint64_t unroutable = 0;   ///< Messages that nobody was bound to, each with a notice.
    std::uint64_t returned = 0;     ///< Of these, mandatory ones: their sends have failed.
    std::uint64_t by_alternate = 0; ///< Messages that an alternate exchange was asked for.

    friend bool operator==(const exchange_stats&, const exchange_stats&) = default;
};

} // namespace railmq
