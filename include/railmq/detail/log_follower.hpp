// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/queue_options.hpp>

#include <cstdint>
#include <memory>

namespace railmq::detail {

template <class Runtime>
class queue_core;

/// A queue that is filled from a partition, as the partition sees it.
template <class Runtime>
struct log_follower {
    std::weak_ptr<queue_core<Runtime>> queue{}; ///< None: nobody has opened it yet.
    std::uint64_t max_backlog = unlimited;      ///< What is further back nobody keeps for it.
    /// What it takes next. Only it writes.
    typename Runtime::template atomic<std::uint64_t> position{0};
    /// The same as far as it is known for good: nobody removes what lies behind.
    typename Runtime::template atomic<std::uint64_t> safe{0};
    bool listens = false; ///< With the partition's lock held.

    void begin_at(std::uint64_t where) noexcept {
        position.store(where, std::memory_order_release);
        safe.store(where, std::memory_order_release);
    }
};

} // namespace railmq::detail
