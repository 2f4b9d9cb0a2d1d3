// SPDX-License-Identifier: BSL-1.0
//
// The two runtimes behind one face, for tests that hold in both:
// TEMPLATE_TEST_CASE("...", "", threaded_world, simulated_world) { TestType world; ... }
#pragma once

#include <railmq/railmq.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::test {

/// A broker in a simulation.
struct simulated_world {
    using runtime_type = railmq::simulated;

    explicit simulated_world(broker_options o = {})
        : broker{sim, std::move(o)} {}

    /// Where handlers run.
    [[nodiscard]] auto executor() { return sim.get_executor(); }
    /// Runs what is ready now; no time passes.
    void run() { sim.run_ready(); }
    template <class Rep, class Period>
    void advance(std::chrono::duration<Rep, Period> d) {
        sim.advance(d);
    }
    [[nodiscard]] duration now() const { return sim.now().time_since_epoch(); }

    simulation sim{1};
    sim_broker broker;
};

/// A broker on the real clock. Handlers run on the thread that calls `run`.
struct threaded_world {
    using runtime_type = railmq::threaded;

    explicit threaded_world(broker_options o = {})
        : broker{on_context(std::move(o))} {}

    [[nodiscard]] auto executor() { return context.get_executor(); }
    void run() {
        context.restart();
        context.poll();
    }

    boost::asio::io_context context{};
    railmq::broker broker;

private:
    [[nodiscard]] broker_options on_context(broker_options o) {
        if (!o.executor) {
            o.executor = context.get_executor();
        }
        return o;
    }
};

template <class T, class World>
using delivery_in = basic_delivery<T, typename World::runtime_type>;
template <class T, class World>
using consumer_in = basic_consumer<T, typename World::runtime_type>;
template <class World>
using subscription_in = basic_subscription<typename World::runtime_type>;

/// `world.broker.queue<T>(...)`, without the word `template` in every test.
template <class T, class World>
[[nodiscard]] auto open(World& world, std::string_view name) {
    return world.broker.template queue<T>(name);
}
template <class T, class World>
[[nodiscard]] auto open(World& world, std::string_view name, const queue_options& o) {
    return world.broker.template queue<T>(name, o);
}

/// Sends first, first + 1, ... up to and including last.
template <class Queue>
void send_range(const Queue& queue, int first, int last) {
    auto producer = queue.producer();
    for (int n = first; n <= last; ++n) {
        producer.send(n);
    }
}

/// Everything that the consumer can get now, acknowledged one by one.
template <class Consumer>
[[nodiscard]] std::vector<typename Consumer::value_type> take_all(Consumer& consumer) {
    std::vector<typename Consumer::value_type> all;
    while (auto d = consumer.try_receive()) {
        all.push_back(d->value());
        d->ack();
    }
    return all;
}

/// first, first + 1, ..., last.
[[nodiscard]] inline std::vector<int> numbers(int first, int last) {
    std::vector<int> all;
    for (int n = first; n <= last; ++n) {
        all.push_back(n);
    }
    return all;
}

/// Failed messages come back at once, for ever.
[[nodiscard]] inline retry_policy at_once() {
    return {.max_attempts = 0, .backoff = constant_backoff{.delay = duration{0}}};
}

/// Generous: longer than anything on a busy machine takes, short enough to end a broken test.
inline constexpr std::chrono::seconds long_time{60};

} // namespace railmq::test
