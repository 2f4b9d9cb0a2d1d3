// SPDX-License-Identifier: BSL-1.0
#include <railmq/runtime/simulated.hpp>

#include "support/catch.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using railmq::duration;
using railmq::error_code;
using railmq::never;
using railmq::simulation;
using railmq::time_point;

namespace {

/// A source with a list of moments.
struct fake_source : simulation::source {
    explicit fake_source(std::vector<duration> at, std::vector<int>* log = nullptr, int n = 0)
        : log_{log}, number_{n} {
        for (const duration d : at) {
            due.push_back(time_point{d});
        }
    }
    [[nodiscard]] time_point next_due() override { return due.empty() ? never : due.front(); }
    void run_due(time_point now) override {
        while (!due.empty() && due.front() <= now) {
            ran_at.push_back(now);
            due.erase(due.begin());
            if (log_ != nullptr) log_->push_back(number_);
        }
    }
    std::vector<time_point> due{};
    std::vector<time_point> ran_at{};

private:
    std::vector<int>* log_;
    int number_;
};

} // namespace

TEST_CASE("simulation: time stands still until it is moved") {
    simulation sim;
    CHECK(sim.now() == time_point{});
    sim.advance(1s);
    CHECK(sim.now() == time_point{1s});
    sim.advance(0s);
    CHECK(sim.now() == time_point{1s});
    CHECK_THROWS_AS(sim.advance(-1ns), railmq::system_error);
    CHECK(sim.now() == time_point{1s});
    bool fired = false;
    sim.async_wait(24h * 3'650, [&](error_code) { fired = true; });
    sim.advance(std::chrono::hours::max()); // clamped, and not wrapped
    CHECK(fired);
    CHECK(sim.now() >= time_point{1s} + 24h * 3'650);
    CHECK(sim.now() < never);
}

TEST_CASE("simulation: the same seed, the same chance") {
    simulation a{5};
    simulation b{5};
    simulation c{6};
    CHECK(a.seed() == 5);
    const auto first = a.random()();
    CHECK(first == b.random()());
    CHECK(first != c.random()());
}

TEST_CASE("simulation: timers fire at their own moments, in order of time, then creation") {
    simulation sim;
    std::vector<int> order;
    std::vector<duration> at;
    const auto wait = [&](duration d, int n) {
        sim.async_wait(d, [&, n](error_code ec) {
            CHECK_FALSE(ec);
            order.push_back(n);
            at.push_back(sim.now().time_since_epoch());
        });
    };
    wait(3s, 3);
    wait(1s, 1);
    wait(2s, 2);
    wait(1s, 11);
    wait(-5s, 0); // already over
    CHECK(order.empty());
    sim.advance(2s);
    CHECK(order == std::vector<int>{0, 1, 11, 2});
    CHECK(at == std::vector<duration>{0s, 1s, 1s, 2s});
    sim.advance(1s);
    CHECK(order.back() == 3);
    wait(duration::max(), 99);
    sim.advance(1h);
    CHECK(order.back() == 3);
}

TEST_CASE("simulation: steps to the next event, and knows when there is none") {
    simulation sim;
    CHECK_FALSE(sim.advance_to_next());
    int fired = 0;
    sim.async_wait(5s, [&](error_code) { ++fired; });
    sim.async_wait(7s, [&](error_code) { ++fired; });
    CHECK(sim.advance_to_next());
    CHECK(sim.now() == time_point{5s});
    CHECK(fired == 1);
    CHECK(sim.run_until_idle() == 2s);
    CHECK(fired == 2);
    CHECK_FALSE(sim.advance_to_next());
}

TEST_CASE("simulation: what is posted runs in order, and counts") {
    simulation sim;
    std::vector<int> order;
    asio::post(sim.get_executor(), [&] {
        order.push_back(1);
        asio::post(sim.get_executor(), [&] { order.push_back(3); });
    });
    asio::dispatch(sim.get_executor(), [&] { order.push_back(2); }); // never inline
    CHECK(order.empty());
    CHECK(sim.run_ready() == 3);
    CHECK(order == std::vector<int>{1, 2, 3});
    CHECK(sim.run_ready() == 0);
    CHECK(sim.get_executor() == sim.get_executor());
    simulation other;
    CHECK(sim.get_executor() != other.get_executor());
}

TEST_CASE("simulation: work of a moment runs at that moment") {
    simulation sim;
    std::vector<duration> at;
    sim.async_wait(1s, [&](error_code) {
        asio::post(sim.get_executor(), [&] { at.push_back(sim.now().time_since_epoch()); });
        sim.async_wait(1s, [&](error_code) { at.push_back(sim.now().time_since_epoch()); });
    });
    sim.advance(10s);
    CHECK(at == std::vector<duration>{1s, 2s});
}

TEST_CASE("simulation: a cancelled wait ends at once") {
    simulation sim;
    asio::cancellation_signal signal;
    std::vector<error_code> told;
    const auto wait = [&] {
        sim.async_wait(5s, asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
                           told.push_back(ec);
                       }));
    };
    wait();
    signal.emit(asio::cancellation_type::terminal);
    CHECK(told.empty());
    sim.run_ready();
    CHECK(told == std::vector<error_code>{asio::error::operation_aborted});
    CHECK(sim.now() == time_point{});
    signal.emit(asio::cancellation_type::terminal); // nothing left to cancel
    wait();
    sim.advance(5s);
    CHECK(told.size() == 2);
    CHECK_FALSE(told.back());
    signal.emit(asio::cancellation_type::total);
    CHECK_FALSE(sim.advance_to_next());
}

TEST_CASE("simulation: coroutines, and what they throw") {
    simulation sim;
    int steps = 0;
    sim.spawn([](simulation& s, int& n) -> asio::awaitable<void> {
        ++n;
        co_await s.async_wait(1s, asio::use_awaitable);
        ++n;
    }(sim, steps));
    sim.run_ready();
    CHECK(steps == 1);
    sim.advance(1s);
    CHECK(steps == 2);
    sim.spawn([]() -> asio::awaitable<void> {
        throw std::runtime_error("out of here");
        co_return;
    }());
    CHECK_THROWS_AS(sim.run_ready(), std::runtime_error);
    CHECK(sim.run_ready() == 0); // and goes on
}

TEST_CASE("simulation: sources are run at their moments, in the order in which they were added") {
    simulation sim;
    std::vector<int> order;
    fake_source first{{2s, 4s}, &order, 1};
    fake_source second{{1s, 2s}, &order, 2};
    sim.add(first);
    sim.add(second);
    sim.async_wait(2s, [&](error_code) { order.push_back(3); });
    sim.advance(3s);
    CHECK(order == std::vector<int>{2, 1, 2, 3}); // timers of a moment come last
    CHECK(first.ran_at == std::vector<time_point>{time_point{2s}});
    sim.remove(first);
    CHECK_FALSE(sim.advance_to_next());
    CHECK(first.ran_at.size() == 1);
    sim.remove(second);
}

TEST_CASE("simulation: a source that is late is run before time moves") {
    simulation sim;
    sim.advance(5s);
    fake_source late{{1s}};
    sim.add(late);
    sim.run_ready();
    CHECK(late.ran_at == std::vector<time_point>{time_point{5s}}); // never into the past
    sim.remove(late);
}

TEST_CASE("simulation: a call that waits runs it, as far as it must") {
    simulation sim;
    bool done = false;
    sim.async_wait(3s, [&](error_code) { done = true; });
    const auto is_done = [&] { return done; };
    CHECK_FALSE(sim.run_while_waiting(is_done, time_point{2s}));
    CHECK(sim.now() == time_point{2s}); // its time has passed
    CHECK(sim.run_while_waiting(is_done, time_point{1h}));
    CHECK(sim.now() == time_point{3s});
    done = false;
    CHECK_FALSE(sim.run_while_waiting(is_done, never)); // nothing could bring it about
    CHECK(sim.now() == time_point{3s});
    CHECK(sim.run_while_waiting([] { return true; }, never));
    CHECK_FALSE(sim.run_while_waiting(is_done, time_point{1s})); // a limit that is over
    CHECK(sim.now() == time_point{3s});
}

TEST_CASE("simulation: ends with whatever is outstanding, and lets go of it") {
    auto kept = std::make_shared<int>(0);
    {
        simulation sim;
        sim.async_wait(1h, [kept](error_code) {});
        asio::post(sim.get_executor(), [kept] {});
        sim.spawn([](simulation& s, std::shared_ptr<int> p) -> asio::awaitable<void> {
            co_await s.async_wait(1h, asio::use_awaitable);
            ++*p;
        }(sim, kept));
        sim.run_ready();
        CHECK(kept.use_count() == 3);
        asio::post(sim.get_executor(), [kept] {});
    }
    CHECK(kept.use_count() == 1);
    CHECK(*kept == 0);
}

TEST_CASE("simulated: the runtime's parts") {
    simulation sim;
    sim.advance(7s);
    const railmq::simulated::clock clock{sim};
    CHECK(clock.now() == time_point{7s});
    CHECK(clock.coarse_now() == clock.now());
    CHECK(clock.resolution() == 0ns);
    CHECK(&clock.sim() == &sim);
    railmq::simulated::parking_spot spot;
    CHECK_FALSE(spot.finished());
    spot.poke();
    CHECK_FALSE(spot.finished());
    spot.finish();
    CHECK(spot.finished());
    CHECK_FALSE(railmq::simulated::concurrent);
}
