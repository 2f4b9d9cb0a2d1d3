// SPDX-License-Identifier: BSL-1.0
//
// Prices go to everybody: a ledger that must have each of them, and goes away for a while; screens
// that come and go and want what is new; and one that is too slow, and holds up nobody.
#include <railmq/railmq.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

struct price {
    std::string what;
    int cents = 0;
};

int take_all(const railmq::queue<price>& from) {
    auto consumer = from.consumer();
    int n = 0;
    while (auto d = consumer.try_receive()) {
        d->ack();
        ++n;
    }
    return n;
}

} // namespace

int main() {
    railmq::broker broker;
    const auto prices = broker.topic<price>("prices", {.retain_last = true});
    const auto ledger = prices.subscribe("ledger");
    const auto slow = prices.subscribe("slow", {.max_backlog = 100});

    auto producer = prices.producer();
    auto screen = prices.subscribe(); // lives as long as this handle
    for (int n = 1; n <= 500; ++n) {
        producer.send({"espresso", 200 + n});
    }
    const int on_screen = take_all(screen);
    screen = {}; // switched off
    for (int n = 1; n <= 500; ++n) {
        producer.send({"espresso", 700 + n});
    }

    // One that is switched on now begins with the last price, not with an empty screen.
    const auto late = prices.subscribe();
    auto consumer = late.consumer();
    const auto first = consumer.try_receive();
    const int last_price = first->value().cents;

    const int in_ledger = take_all(ledger); // everything, though it was not there
    const int by_slow = take_all(slow);
    const auto skipped = slow.stats().dropped;

    std::cout << "screen " << on_screen << ", ledger " << in_ledger << ", late screen begins at "
              << last_price << ", slow one took " << by_slow << " and missed " << skipped << '\n';
    return on_screen == 500 && in_ledger == 1000 && last_price == 1200 && by_slow == 100 &&
                   skipped == 900
               ? 0
               : 1;
}
