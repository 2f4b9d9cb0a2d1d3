// expect: copy_constructible
// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include <memory>

void look(railmq::broker& broker) {
#ifdef RAILMQ_CONTROL
    auto queue = broker.queue<int>("q");
#else
    auto queue = broker.queue<std::unique_ptr<int>>("q");
#endif
    (void)queue.peek(1);
}
