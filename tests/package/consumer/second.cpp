// SPDX-License-Identifier: BSL-1.0
//
// A second translation unit with the same headers: whatever is defined twice fails to link.
#include <railmq/railmq.hpp>

int send_elsewhere(railmq::broker& broker) {
    auto q = broker.queue<int>("q");
    q.producer().send(2);
    return 1;
}
