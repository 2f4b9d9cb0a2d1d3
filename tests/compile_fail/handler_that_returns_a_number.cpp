// expect: a handler returns void, railmq::outcome or an awaitable of these
// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

void listen(railmq::sim_broker& broker, railmq::simulation& sim) {
    auto queue = broker.queue<int>("numbers");
#ifdef RAILMQ_CONTROL
    auto s = queue.subscribe(
        sim.get_executor(), [](const int&) { return railmq::outcome::ack(); });
#else
    auto s = queue.subscribe(sim.get_executor(), [](const int&) { return 1; });
#endif
    s.close();
}
