// expect: a handler takes `const T&` or `delivery<T>&`
// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

void listen(railmq::sim_broker& broker, railmq::simulation& sim) {
    auto queue = broker.queue<int>("numbers");
#ifdef RAILMQ_CONTROL
    auto s = queue.subscribe(sim.get_executor(), [](const int&) {});
#else
    auto s = queue.subscribe(sim.get_executor(), [](const std::string&) {});
#endif
    s.close();
}
