// expect: take
// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

int look(railmq::broker& broker) {
#ifdef RAILMQ_CONTROL
    auto consumer = broker.queue<int>("q").consumer();
#else
    auto consumer = broker.log<int>("q").consumer(); // others read the record too
#endif
    return consumer.receive()->take();
}
