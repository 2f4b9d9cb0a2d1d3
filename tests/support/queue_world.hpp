// SPDX-License-Identifier: BSL-1.0
//
// A queue of numbers in a simulation, for tests of what becomes of its messages.
#pragma once

#include <railmq/railmq.hpp>

#include "support/catch.hpp"

#include <optional>
#include <vector>

namespace railmq::test {

/// What fails comes again at once.
inline const retry_policy at_once{.backoff = constant_backoff{.delay = duration::zero()}};

/// A broker, and its queue `q`, whose dead letters are kept in `q.dead`.
struct queue_world {
    explicit queue_world(queue_options o = {})
        : q{b.queue<int>("q", o)} {}

    /// Receives and acknowledges everything that is there now.
    [[nodiscard]] std::vector<int> read_now() {
        std::vector<int> all;
        while (auto d = c.try_receive()) {
            all.push_back(**d);
            d->ack();
        }
        return all;
    }
    /// What is in the dead-letter queue, in that order; all of it for this reason, if one is given.
    [[nodiscard]] std::vector<int> dead(std::optional<death_reason> reason = {}) {
        std::vector<int> all;
        for (const auto& m : b.queue<int>("q.dead").peek(10'000)) {
            CHECK((!reason || m.deaths.front().reason == *reason));
            all.push_back(m.value);
        }
        return all;
    }

    simulation sim{1};
    sim_broker b{sim};
    sim_queue<int> q;
    sim_producer<int> p = q.producer();
    sim_consumer<int> c = q.consumer();
};

} // namespace railmq::test
