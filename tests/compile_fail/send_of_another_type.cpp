// expect: constraints not satisfied
// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include <string>

void put(railmq::broker& broker) {
    auto producer = broker.queue<std::string>("q").producer();
#ifdef RAILMQ_CONTROL
    producer.send("text");
#else
    producer.send(railmq::broker_options{});
#endif
}
