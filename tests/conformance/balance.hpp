// SPDX-License-Identifier: BSL-1.0
//
// What every queue test may ask after each step.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace railmq::test {

/// Empty while every accepted message of the queue is in exactly one place; else all the numbers.
template <class Queue>
[[nodiscard]] std::string imbalance(const Queue& q) {
    const auto s = q.stats();
    const std::pair<const char*, std::uint64_t> parts[] = {
        {"ready", s.ready},
        {"delayed", s.delayed},
        {"in_flight", s.in_flight},
        {"acked", s.acked},
        {"dead_lettered", s.dead_lettered},
        {"redriven", s.redriven},
        {"expired", s.expired},
        {"dropped", s.dropped},
        {"purged", s.purged},
    };
    std::uint64_t sum = 0;
    std::string text = "accepted " + std::to_string(s.accepted);
    for (const auto& [name, n] : parts) {
        sum += n;
        text += std::string{", "} + name + " " + std::to_string(n);
    }
    return sum == s.accepted ? std::string{} : text;
}

/// Takes and acknowledges everything that is ready; the values in the order of delivery.
template <class Consumer>
[[nodiscard]] auto take_all(Consumer& c) {
    std::vector<typename Consumer::value_type> all;
    while (auto d = c.try_receive()) {
        all.push_back(d->value());
        d->ack();
    }
    return all;
}

/// 'from', from + 1, ... 'to'.
[[nodiscard]] inline std::vector<int> numbers(int from, int to) {
    std::vector<int> all;
    for (int i = from; i <= to; ++i) {
        all.push_back(i);
    }
    return all;
}

} // namespace railmq::test
