// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/lease_holder.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/properties.hpp>

#include <boost/intrusive/list.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace railmq::core {

using waiter_hook = boost::intrusive::list_base_hook<>;

/// Somebody who waits in a queue. The skin owns it and says how it is woken; the core links it,
/// fills it in, and hands it back to be completed once the queue's lock is released.
struct waiter : waiter_hook {
    error_code result{};
    /// Wakes whoever waits. Called once, with no lock held; `self` may be gone afterwards.
    void (*complete)(waiter* self) noexcept = nullptr;
    /// The journal's record that says what came of it; 0 when it could not be written.
    std::uint64_t record = 0;
};

/// A receive that waits for messages.
template <class Sync>
struct receive_waiter : waiter {
    lease_holder<Sync>* holder = nullptr;
    std::uint32_t max = 1;
    lease<Sync> one{};                        ///< Filled when `max` is 1.
    std::vector<lease<Sync>>* many = nullptr; ///< Filled otherwise; has room for `max`.
};

/// A send that waits for room. Without a payload it is told when there is room, and nothing is
/// placed: those behind it have to wait until the queue is served again, so that it can come first.
struct send_waiter : waiter {
    void* payload = nullptr; ///< Moved from when the message is placed.
    std::uint64_t bytes = 0; ///< Of a message that is not placed, for queues that count them.
    std::unique_ptr<railmq::properties> props{};
    std::span<const std::byte> encoded{}; ///< The payload's bytes, where there is a journal.
    std::uint64_t id = 0;
    bool is_duplicate = false; ///< It was accepted, and not stored.
};

/// Somebody who waits until nothing is left to do.
struct idle_waiter : waiter {
    /// Held messages count alone, for a pause; else ready and delayed ones do as well.
    bool only_held = false;
    const void* of = nullptr; ///< Of this consumer alone; null: of the whole queue.
};

/// Waiters in the order in which they are served.
template <class Waiter>
using waiter_list = boost::intrusive::list<Waiter, boost::intrusive::base_hook<waiter_hook>>;

/// Adds a receive behind all of the same or a higher priority.
template <class Sync>
void insert_by_priority(waiter_list<receive_waiter<Sync>>& list, receive_waiter<Sync>& w) noexcept {
    auto at = list.end();
    while (at != list.begin()) {
        auto before = at;
        --before;
        if (before->holder->priority >= w.holder->priority) {
            break;
        }
        at = before;
    }
    list.insert(at, w);
}

} // namespace railmq::core
