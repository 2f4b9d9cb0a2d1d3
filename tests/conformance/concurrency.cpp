// SPDX-License-Identifier: BSL-1.0
//
// How many handlers of a push subscription run at once.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <semaphore>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

// One type for all of a kind: each new one is compiled anew, all the way down.
using plain_handler = std::function<void(const int&)>;
using coroutine_handler = std::function<boost::asio::awaitable<void>(const int&)>;

} // namespace

TEST_CASE("never more handlers than said, and changes take effect without a restart [C16]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    std::size_t now = 0;
    std::size_t most = 0;
    std::vector<int> started;
    const coroutine_handler handler = [&](const int& n) -> boost::asio::awaitable<void> {
        most = std::max(most, ++now);
        started.push_back(n);
        co_await world.sim.async_wait(10ms, boost::asio::use_awaitable);
        --now;
    };
    auto subscription = queue.subscribe(world.executor(), handler, {.concurrency = 4});
    CHECK(subscription.concurrency() == 4);
    send_range(queue, 1, 40);
    world.run();
    CHECK(subscription.running() == 4);
    world.advance(25ms);
    CHECK(most == 4);
    CHECK(started == numbers(1, 12));

    subscription.concurrency(1);
    CHECK(subscription.running() == 4); // these are not interrupted
    world.advance(5ms);                 // they end
    most = 0;
    world.advance(100ms);
    CHECK(most == 1);
    CHECK(subscription.running() == 1);
    CHECK(started == numbers(1, 12 + 11));

    subscription.concurrency(3);
    world.run();
    CHECK(subscription.running() == 3);
    world.sim.run_until_idle();
    CHECK(most == 3);
    CHECK(started == numbers(1, 40));
    CHECK(queue.stats().acked == 40);
    CHECK(queue.stats().redelivered == 0);
}

TEST_CASE("never more handlers on threads than said [C16]") {
    boost::asio::thread_pool pool{6};
    railmq::broker broker;
    const auto queue = broker.queue<int>("q");
    std::atomic<int> running{0};
    std::atomic<int> most{0};
    std::counting_semaphore<1000> entered{0};
    std::counting_semaphore<1000> may_end{0};
    const auto wait_for = [&](int count) {
        bool all = true;
        for (int i = 0; all && i < count; ++i) {
            all = entered.try_acquire_for(long_time);
        }
        return all;
    };
    const plain_handler handler = [&](const int&) {
        const int n = ++running;
        for (int seen = most; seen < n && !most.compare_exchange_weak(seen, n);) {
        }
        entered.release();
        may_end.acquire();
        --running;
    };
    auto subscription = queue.subscribe(pool.get_executor(), handler, {.concurrency = 4});
    send_range(queue, 1, 20);
    CHECK(wait_for(4));
    CHECK(most == 4);
    CHECK_FALSE(entered.try_acquire());

    subscription.concurrency(1);
    CHECK(running == 4);
    // The first to start after this is alone: the four that ran have ended by then.
    may_end.release(4);
    CHECK(wait_for(1));
    CHECK(running == 1);
    most = 0;
    may_end.release(5);
    CHECK(wait_for(5));
    CHECK(most == 1);

    subscription.concurrency(3);
    CHECK(wait_for(2));
    CHECK(running == 3);
    may_end.release(100);
    CHECK(queue.drain(railmq::drain_for(long_time)));
    CHECK(most <= 3);
    CHECK(queue.stats().acked == 20);
    subscription.close();
    broker.close();
    pool.join();
}

TEMPLATE_TEST_CASE("concurrency 0 is refused [C17]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    const plain_handler nothing = [](const int&) {};
    const auto is_refused = [](auto f) {
        try {
            f();
            return false;
        } catch (const railmq::system_error& e) {
            return e.code() == errc::invalid_argument;
        }
    };
    CHECK(
        is_refused([&] { (void)queue.subscribe(world.executor(), nothing, {.concurrency = 0}); }));
    CHECK(queue.stats().consumers == 0);
    auto subscription = queue.subscribe(world.executor(), nothing);
    CHECK(is_refused([&] { subscription.concurrency(0); }));
    CHECK(subscription.concurrency() == 1);
}

TEST_CASE("handlers overlap: each of four waits for the other three [C18]") {
    boost::asio::thread_pool pool{4};
    railmq::broker broker;
    const auto queue = broker.queue<int>("q");
    std::barrier<> all_are_here{4};
    const plain_handler handler = [&](const int&) { all_are_here.arrive_and_wait(); };
    auto subscription = queue.subscribe(pool.get_executor(), handler, {.concurrency = 4});
    send_range(queue, 1, 400); // a multiple of four
    CHECK(queue.drain(railmq::drain_for(long_time)));
    CHECK(queue.stats().acked == 400);
    subscription.close();
    broker.close();
    pool.join();
}

TEST_CASE("a slow handler does not keep the others from going on [C18]") {
    simulated_world world;
    const auto queue = open<int>(world, "q");
    std::vector<int> done;
    const coroutine_handler handler = [&](const int& n) -> boost::asio::awaitable<void> {
        const int number = n;
        co_await world.sim.async_wait(number == 1 ? 1s : 10ms, boost::asio::use_awaitable);
        done.push_back(number);
    };
    auto subscription = queue.subscribe(world.executor(), handler, {.concurrency = 2});
    send_range(queue, 1, 10);
    world.advance(500ms);
    CHECK(done == numbers(2, 10));
    world.advance(500ms);
    CHECK(done.back() == 1);
    CHECK(queue.stats().acked == 10);
}
