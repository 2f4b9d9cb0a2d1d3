// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include <cstdio>

int send_elsewhere(railmq::broker& broker);

int main() {
    railmq::broker broker;
    auto q = broker.queue<int>("q");
    q.producer().send(1);
    const int sent = 1 + send_elsewhere(broker);
    std::printf("sent %d messages\n", sent);
    return sent == 2 ? 0 : 1;
}
