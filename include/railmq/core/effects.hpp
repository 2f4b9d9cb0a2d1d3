// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/slot_ring.hpp>
#include <railmq/core/waiters.hpp>
#include <railmq/model/notice.hpp>

#include <boost/container/small_vector.hpp>

#include <stop_token>
#include <utility>
#include <vector>

namespace railmq::core {

/// What the machine wants done once its lock is released: it decides, and calls nobody itself.
template <class Sync>
struct effects {
    /// Notices are only made when somebody listens.
    explicit effects(bool somebody_listens) noexcept
        : listening{somebody_listens} {}

    template <class Notice>
    void note(Notice&& n) {
        if (listening) {
            notices.emplace_back(std::forward<Notice>(n));
        }
    }

    bool listening;
    /// Messages wait for their move to a dead-letter queue.
    bool has_dying = false;
    std::vector<notice> notices{};
    boost::container::small_vector<waiter*, 8> completed{};
    /// Payloads to end: their slots are in state `settling`, and nobody else touches them.
    boost::container::small_vector<place<Sync>, 8> endings{};
    std::vector<std::stop_source> stops{};
};

} // namespace railmq::core
