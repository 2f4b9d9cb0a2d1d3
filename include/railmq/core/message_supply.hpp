// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/effects.hpp>
#include <railmq/model/time.hpp>

#include <cstdint>

namespace railmq::core {

/// Where a queue gets messages that it does not store itself until somebody wants them: a log that
/// others read as well. The queue's machine draws from it when there is none in line.
///
/// Thread safety: called with the queue's lock held.
template <class Sync>
class message_supply {
public:
    message_supply() = default;
    message_supply(const message_supply&) = delete;
    message_supply& operator=(const message_supply&) = delete;
    virtual ~message_supply() = default;

    /// Stores the next messages in the queue, a handful at a time. False: there are none now, or
    /// the queue has as many in line as it may. It contains what users' code throws.
    [[nodiscard]] virtual bool refill(time_point now, effects<Sync>& fx) = 0;

    /// Whether everything is to be in the queue at once, as messages with deadlines have to.
    [[nodiscard]] virtual bool is_eager() const noexcept = 0;

    /// Whether it gives no more for the moment, since what it gave has to be written first.
    [[nodiscard]] virtual bool is_held_up() const noexcept { return false; }

    /// From now on the queue is served when there is more. False: there is already.
    [[nodiscard]] virtual bool listen() = 0;

    /// How many messages it has that are not in the queue yet.
    [[nodiscard]] virtual std::uint64_t backlog() const = 0;
    /// When the oldest of these was sent, or `never`.
    [[nodiscard]] virtual time_point oldest() const = 0;

    /// Passes over all that it has. Returns how many these were.
    virtual std::uint64_t skip_all() = 0;
    /// It gives no more, and holds nothing for the queue any longer.
    virtual void end() noexcept = 0;
};

} // namespace railmq::core
