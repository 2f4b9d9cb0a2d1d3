// SPDX-License-Identifier: BSL-1.0
//
// Producer and consumers as coroutines on one io_context: no thread waits. A receive that is given
// up takes no message with it, and closing the queue ends the loops once it is empty.

#include <railmq/railmq.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/core.h>

#include <chrono>
#include <variant>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace asio::experimental::awaitable_operators;

namespace {

constexpr int orders = 1000;
constexpr auto as_result = asio::as_tuple(asio::use_awaitable);

struct result {
    int given_up = 0;
    int received = 0;
    long sum = 0;
};

asio::awaitable<void> produce(railmq::queue<int> queue) {
    // Late, so that the consumers wait first.
    asio::steady_timer timer{co_await asio::this_coro::executor, 50ms};
    co_await timer.async_wait(asio::use_awaitable);
    auto producer = queue.producer();
    for (int i = 1; i <= orders; ++i) {
        co_await producer.async_send(i, asio::use_awaitable); // waits while the queue is full
    }
    queue.close(); // takes nothing more; what is there can still be received
}

asio::awaitable<void> consume(railmq::queue<int> queue, int name, result& r) {
    auto consumer = queue.consumer();
    asio::steady_timer timer{co_await asio::this_coro::executor};
    for (;;) {
        timer.expires_after(10ms);
        // Whichever comes second is cancelled. A cancelled receive has no message: that is still
        // in its place.
        auto first = co_await (consumer.async_receive(as_result) || timer.async_wait(as_result));
        if (first.index() == 1) {
            ++r.given_up;
            continue;
        }
        auto& [ec, d] = std::get<0>(first);
        if (ec == railmq::errc::closed) {
            fmt::print("consumer {} ends: {}\n", name, ec.message());
            co_return;
        }
        ++r.received;
        r.sum += *d;
        d.ack();
    }
}

} // namespace

int main() {
    asio::io_context io;
    railmq::broker broker{{.executor = io.get_executor()}};
    auto queue = broker.queue<int>("orders", {.max_length = 10});
    result r;
    asio::co_spawn(io, produce(queue), asio::detached);
    asio::co_spawn(io, consume(queue, 1, r), asio::detached);
    asio::co_spawn(io, consume(queue, 2, r), asio::detached);
    io.run();

    fmt::print(
        "{} receives were given up; {} of {} orders received, their sum is {}\n",
        r.given_up,
        r.received,
        orders,
        r.sum);
    const bool ok = r.given_up > 0 && r.received == orders && r.sum == orders * (orders + 1L) / 2;
    return ok ? 0 : 1;
}
