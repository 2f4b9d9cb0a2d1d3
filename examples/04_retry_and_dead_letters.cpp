// SPDX-License-Identifier: BSL-1.0
//
// A message that fails is tried again after growing waits, then set aside with the history of its
// death. Once the cause is repaired, redrive sends it through again. Virtual time: nobody sleeps.

#include <railmq/railmq.hpp>

#include <fmt/core.h>

#include <chrono>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct order {
    std::string drink;
    int cups;
};

} // namespace

int main() {
    railmq::simulation sim;
    railmq::sim_broker broker{sim};
    auto orders = broker.queue<order>(
        "orders",
        {.retry = {
             .max_attempts = 4, // runs in all
             .backoff = railmq::exponential_backoff{
                 .initial = 1s, .multiplier = 2, .jitter = railmq::jitter::none}}});
    auto dead = broker.queue<order>("orders.dead"); // made together with "orders"
    auto producer = orders.producer();
    auto consumer = orders.consumer();
    const auto now = [&] {
        return std::chrono::duration_cast<std::chrono::seconds>(sim.now().time_since_epoch());
    };

    // The grinder is broken: espresso fails, whenever it is tried. Nobody can make -1 cups.
    bool grinder_works = false;
    std::vector<std::chrono::seconds> tried;
    std::vector<std::string> made;
    const auto make_all = [&] {
        while (auto d = consumer.receive(10s)) { // ten seconds of virtual time
            fmt::print("{:>3} s  {} x {}", now().count(), (*d)->cups, (*d)->drink);
            if ((*d)->cups < 0) {
                d->reject("cups must not be negative");
                fmt::print(": rejected\n");
            } else if ((*d)->drink == "espresso" && !grinder_works) {
                tried.push_back(now());
                fmt::print(": failed, attempt {}\n", d->delivery_count());
                d->nack();
            } else {
                made.push_back((*d)->drink);
                d->ack();
                fmt::print(": made\n");
            }
        }
    };
    producer.send(order{"espresso", 2});
    producer.send(order{"tea", -1});
    producer.send(order{"tea", 1});
    make_all();

    fmt::print("\nIn {}:\n", dead.name());
    const auto graves = dead.peek(10);
    for (const auto& g : graves) {
        const railmq::death& d = g.deaths.front();
        fmt::print(
            "  {} x {}: {}{}{}; attempts: {}\n",
            g.value.cups,
            g.value.drink,
            to_string(d.reason),
            d.detail.empty() ? "" : ", ",
            d.detail,
            d.delivery_count);
    }

    // The grinder is repaired: those orders go through again, one a second; the others stay.
    grinder_works = true;
    const auto moved =
        dead.redrive(orders, {.rate = 1}, [](const order& o) { return o.drink == "espresso"; });
    fmt::print("\n{} message redriven\n", moved);
    make_all();

    const bool ok = tried == std::vector<std::chrono::seconds>{0s, 1s, 3s, 7s} &&
                    graves.size() == 2 && moved == 1 && dead.stats().ready == 1 &&
                    made == std::vector<std::string>{"tea", "espresso"};
    fmt::print("\n{}\n", ok ? "as expected" : "NOT as expected");
    return ok ? 0 : 1;
}
