// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/stats.hpp>

#include <string>

namespace railmq::test {

/// Every number of a queue's statistics: equal texts mean that nothing has changed.
[[nodiscard]] inline std::string text_of(const queue_stats& s) {
    std::string text;
    const auto add = [&text](const char* name, auto n) {
        text += std::string{name} + ' ' + std::to_string(n) + ", ";
    };
    add("ready", s.ready);
    add("delayed", s.delayed);
    add("in_flight", s.in_flight);
    add("consumers", s.consumers);
    add("waiting_receivers", s.waiting_receivers);
    add("waiting_senders", s.waiting_senders);
    add("memory_bytes", s.memory_bytes);
    add("oldest", s.oldest_ready_since.time_since_epoch().count());
    add("oldest_held", s.oldest_since.time_since_epoch().count());
    add("accepted", s.accepted);
    add("acked", s.acked);
    add("dead_lettered", s.dead_lettered);
    add("redriven", s.redriven);
    add("expired", s.expired);
    add("dropped", s.dropped);
    add("purged", s.purged);
    add("handed_out", s.handed_out);
    add("redelivered", s.redelivered);
    add("failed", s.failed);
    add("deadlines_passed", s.deadlines_passed);
    add("released", s.released);
    add("refused", s.refused);
    add("duplicates", s.duplicates);
    add("deduplication_ids", s.deduplication_ids);
    add("stale_settlements", s.stale_settlements);
    add("settled_through", s.settled_through);
    return text;
}

/// The same of a queue.
template <class Queue>
requires requires(const Queue& q) {
    q.stats();
}
[[nodiscard]] std::string text_of(const Queue& q) {
    return text_of(q.stats());
}

} // namespace railmq::test
