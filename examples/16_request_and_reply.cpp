// SPDX-License-Identifier: BSL-1.0
//
// Prices are asked for through a queue, and two services compete for the requests. One of them is
// slow: who asks waits half a second and no longer, and the reply that comes later is counted, and
// goes to nobody. All in virtual time.
#include <railmq/railmq.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

int main() {
    using namespace std::chrono_literals;
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto requests = broker.queue<std::string>("prices");
    auto ask = requests.requester<int>({.timeout = 500ms});

    const auto service = [&](std::chrono::milliseconds takes) {
        return requests.subscribe(
            sim.get_executor(),
            [&sim, takes](railmq::sim_delivery<std::string>& d) -> boost::asio::awaitable<void> {
                co_await sim.async_wait(takes, boost::asio::use_awaitable);
                railmq::reply(d, static_cast<int>(d->size()) * 100); // acknowledged on return
            });
    };
    const auto quick = service(20ms);
    const auto slow = service(2s);

    int answered = 0;
    int given_up = 0;
    const auto client = [&]() -> boost::asio::awaitable<void> {
        for (const char* product : {"tea", "coffee", "chocolate"}) {
            railmq::error_code ec;
            const auto price = co_await ask.async_request(
                product, boost::asio::redirect_error(boost::asio::use_awaitable, ec));
            if (price) {
                ++answered;
                std::cout << product << ": " << *price << " cents\n";
            } else {
                ++given_up;
                std::cout << product << ": " << ec.message() << '\n';
            }
        }
    };
    sim.spawn(client());
    sim.advance(5s);

    const auto stats = ask.stats();
    std::cout << stats.sent << " asked, " << stats.late_replies << " replied too late\n";
    return answered + given_up == 3 && stats.pending == 0 &&
                   stats.late_replies == static_cast<unsigned>(given_up)
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}
