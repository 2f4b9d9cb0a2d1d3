// SPDX-License-Identifier: BSL-1.0
//
// An order that is placed is of interest to three services. Each has a queue of its own, bound to
// the shop's events, so each gets a copy; and each runs twice, and divides its copies among the
// two. So a bill is written once, however many instances there are.
#include <railmq/railmq.hpp>

#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

struct order {
    int number = 0;
    int cents = 0;
};

/// A service of two instances, and what they have done.
struct service {
    service(railmq::broker& broker, const std::string& name)
        : queue{broker.queue<order>(name)} {}

    /// One more instance, which handles what comes.
    void start(boost::asio::thread_pool& pool) {
        instances.push_back(queue.subscribe(pool.get_executor(), [this](const order& o) {
            ++handled;
            cents += o.cents;
        }));
    }

    railmq::queue<order> queue;
    std::atomic<int> handled{0};
    std::atomic<int> cents{0};
    std::vector<railmq::subscription> instances{};
};

} // namespace

int main() {
    using namespace std::chrono_literals;
    constexpr int orders = 1000;
    boost::asio::thread_pool pool{2};
    railmq::broker broker{{.executor = pool.get_executor()}};
    auto events = broker.exchange<order>("shop", railmq::exchange_type::topic);

    service billing{broker, "billing"};
    service shipping{broker, "shipping"};
    service analytics{broker, "analytics"};
    events.bind(billing.queue, "order.placed");
    events.bind(shipping.queue, "order.placed");
    events.bind(analytics.queue, "order.#"); // looks at everything
    for (service* s : {&billing, &shipping, &analytics}) {
        s->start(pool);
        s->start(pool);
    }

    auto shop = events.producer({.mandatory = true}); // an order that nobody sees is an error
    for (int n = 1; n <= orders; ++n) {
        const auto receipt = shop.send({n, 350}, {.routing_key = "order.placed"});
        if (receipt.routed != 3) {
            return EXIT_FAILURE;
        }
        if (n % 10 == 0) {
            shop.send({n, 350}, {.routing_key = "order.cancelled"});
        }
    }

    bool all_as_said = true;
    for (auto [s, expected] :
         {std::pair{&billing, orders},
          std::pair{&shipping, orders},
          std::pair{&analytics, orders + orders / 10}}) {
        const bool is_done = s->queue.drain(railmq::drain_for{60s});
        std::cout << s->queue.name() << ": " << s->handled << " handled, of " << expected << '\n';
        all_as_said = all_as_said && is_done && s->handled == expected;
        s->instances.clear();
    }
    std::cout << "billed: " << billing.cents << " cents\n";
    all_as_said = all_as_said && billing.cents == orders * 350;
    broker.close();
    pool.join();
    return all_as_said ? EXIT_SUCCESS : EXIT_FAILURE;
}
