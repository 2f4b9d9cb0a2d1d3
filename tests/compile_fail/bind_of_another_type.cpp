// expect: no matching
// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include <string>

void bind(railmq::broker& broker) {
    auto exchange = broker.exchange<std::string>("x", railmq::exchange_type::fanout);
#ifdef RAILMQ_CONTROL
    exchange.bind(broker.queue<std::string>("q"));
#else
    exchange.bind(broker.queue<int>("q"));
#endif
}
