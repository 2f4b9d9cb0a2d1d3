// SPDX-License-Identifier: BSL-1.0
//
// Two members of a group share the partitions of a log. One dies in the middle of its work, without
// a word. When its session is over the other takes its partitions, and goes on where the dead one
// had committed: nothing is lost, and what was in work is done again.
#include <railmq/railmq.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <set>
#include <string>

using namespace std::chrono_literals;

namespace {

using member = railmq::sim_log_consumer<int>;

/// Receives until there is nothing, at most `most`, and acknowledges. Returns how many.
int work(member& m, std::set<int>& done, int most) {
    int n = 0;
    while (n != most) {
        auto record = m.try_receive();
        if (!record) {
            break;
        }
        done.insert(record->value());
        record->ack();
        ++n;
    }
    return n;
}

} // namespace

int main() {
    railmq::simulation sim{7};
    railmq::sim_broker broker{sim};
    auto orders = broker.log<int>("orders", {.partitions = 4});
    auto producer = orders.producer();
    for (int n = 0; n < 100; ++n) {
        producer.send("table-" + std::to_string(n % 16), n);
    }

    std::set<int> done;
    const railmq::log_consumer_options options{.group = "kitchen", .session_timeout = 30s};
    auto ann = orders.consumer(options);
    auto bob = std::make_unique<member>(orders.consumer(options));
    for (int round = 0; round < 4; ++round) { // they find each other
        (void)work(ann, done, 1);
        (void)work(*bob, done, 1);
    }
    const std::size_t of_bob = bob->assignment().size();

    // Bob has a record in work when his thread hangs: he is there, and does nothing any more.
    const auto in_work = bob->try_receive();
    int by_ann = work(ann, done, 1000);
    std::cout << "Bob holds " << of_bob << " partitions; Ann has done " << by_ann
              << " records and has nothing to do\n";

    sim.advance(20s);
    by_ann += work(ann, done, 1000); // Ann is heard of, Bob is not
    sim.advance(20s);
    for (int round = 0; round < 3; ++round) {
        by_ann += work(ann, done, 1000);
    }
    std::cout << "after Bob's session: Ann has " << ann.assignment().size()
              << " partitions, and all of " << done.size() << " records are done\n";
    return of_bob == 2 && in_work && ann.assignment().size() == 4 && done.size() == 100 ? 0 : 1;
}
