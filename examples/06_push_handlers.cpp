// SPDX-License-Identifier: BSL-1.0
//
// Push: the queue calls a handler on a thread pool. What the handler does settles the message:
// returning acknowledges, an exception retries, permanent_error sets aside; or it returns an
// outcome that says it in so many words.

#include <railmq/railmq.hpp>

#include <boost/asio/thread_pool.hpp>
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;

namespace {

constexpr std::size_t cooks = 3;
const railmq::queue_options retry_soon = {
    .retry = {.max_attempts = 5, .backoff = railmq::constant_backoff{.delay = 10ms}}};

} // namespace

int main() {
    boost::asio::thread_pool pool{4};
    railmq::broker broker;

    // void: returning is the ack
    auto kitchen = broker.queue<std::string>("kitchen", retry_soon);
    std::latch all_cooks_busy{cooks};
    std::atomic<int> cooked{0};
    std::atomic<int> toasts{0};
    auto cooking = kitchen.subscribe(
        pool.get_executor(),
        [&](const std::string& dish) {
            if (dish == "unicorn") {
                throw railmq::permanent_error("there are no unicorns"); // never again
            }
            if (dish == "toast" && ++toasts < 3) {
                throw std::runtime_error("burnt"); // again, after the backoff
            }
            if (dish == "soup") {
                all_cooks_busy.arrive_and_wait(); // passes only when three cook at once
            }
            ++cooked;
        },
        {.concurrency = cooks});

    // outcome: says what becomes of the message; here with the delivery itself at hand
    auto bar = broker.queue<std::string>("bar", retry_soon);
    std::atomic<int> served{0};
    auto serving = bar.subscribe(
        pool.get_executor(), [&](railmq::delivery<std::string>& order) -> railmq::outcome {
            if (*order == "absinthe") {
                return railmq::outcome::reject("not on the card");
            }
            if (*order == "tea" && order.delivery_count() == 1) {
                return railmq::outcome::nack(20ms); // the water is not hot yet
            }
            ++served;
            return railmq::outcome::ack();
        });

    for (const char* dish : {"soup", "soup", "soup", "toast", "unicorn"}) {
        kitchen.producer().send(dish);
    }
    for (const char* drink : {"tea", "absinthe", "water"}) {
        bar.producer().send(drink);
    }
    const bool done = kitchen.drain(railmq::drain_for{30s}) && bar.drain(railmq::drain_for{30s});
    cooking.close();
    serving.close();
    pool.join();

    fmt::print(
        "cooked {}, the toast at attempt {}; served {}\n",
        cooked.load(),
        toasts.load(),
        served.load());
    bool ok = done && cooked == 4 && toasts == 3 && served == 2;
    for (const char* name : {"kitchen.dead", "bar.dead"}) {
        for (const auto& dead : broker.queue<std::string>(name).peek(10)) {
            const railmq::death& why = dead.deaths.front();
            fmt::print("{}: {} ({}: {})\n", name, dead.value, to_string(why.reason), why.detail);
            ok = ok && (dead.value == "unicorn" || dead.value == "absinthe");
        }
    }
    return ok ? 0 : 1;
}
