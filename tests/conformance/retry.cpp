// SPDX-License-Identifier: BSL-1.0
//
// Retries: how often, how soon, and what ends them.
#include <railmq/broker.hpp>

#include "support/catch.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/thread_pool.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::death_reason;
using railmq::duration;
using railmq::jitter;

namespace {

const railmq::constant_backoff at_once{.delay = 0s};
const railmq::constant_backoff in_a_minute{.delay = 1min};

/// A broker in a simulation that counts its notices.
struct world {
    explicit world(std::uint64_t seed = 1)
        : sim{seed}
        , b{sim, {.observer = [this](const railmq::notice& n) { notices.push_back(n); }}} {}

    template <class Notice>
    [[nodiscard]] std::vector<Notice> all() const {
        std::vector<Notice> found;
        for (const railmq::notice& n : notices) {
            if (const auto* one = std::get_if<Notice>(&n)) {
                found.push_back(*one);
            }
        }
        return found;
    }

    std::vector<railmq::notice> notices{};
    railmq::simulation sim;
    railmq::sim_broker b;
};

/// How long a message that fails `times` times waits each time, by virtual time.
std::vector<duration> waits_of(railmq::retry_policy policy, int times, std::uint64_t seed = 1) {
    railmq::simulation sim{seed};
    railmq::sim_broker b{sim};
    sim.advance(1h);
    auto q = b.queue<int>("q", {.retry = std::move(policy)});
    q.producer().send(1);
    auto c = q.consumer();
    std::vector<duration> waits;
    auto d = c.receive();
    for (int i = 0; i < times; ++i) {
        REQUIRE(d);
        const railmq::time_point failed_at = sim.now();
        CHECK(d->nack());
        d = c.receive(1h);
        REQUIRE(d);
        CHECK(d->failure_count() == static_cast<std::uint32_t>(i + 1));
        waits.push_back(sim.now() - failed_at);
    }
    d->ack();
    return waits;
}

/// The moments at which a handler that always throws runs, and the dead letter's last death.
struct runs_result {
    std::vector<duration> at{};
    std::optional<railmq::death> died{};
};
runs_result runs_of(world& w, railmq::retry_policy policy, std::function<void(int)> handler) {
    auto q = w.b.queue<int>("q", {.retry = std::move(policy)});
    q.producer().send(1);
    runs_result result;
    const railmq::time_point start = w.sim.now();
    auto s = q.subscribe(w.sim.get_executor(), [&](const int&) {
        result.at.push_back(w.sim.now() - start);
        handler(static_cast<int>(result.at.size()));
    });
    w.sim.run_until_idle();
    auto dead = w.b.queue<int>("q.dead").peek();
    if (!dead.empty()) {
        REQUIRE(dead[0].deaths.size() == 1);
        result.died = dead[0].deaths[0];
    }
    CHECK(q.stats().delayed == 0);
    CHECK(q.stats().in_flight == 0);
    return result;
}
void always_fails(int run) { throw std::runtime_error("failure " + std::to_string(run)); }

void wait_until(const std::function<bool()>& condition) {
    while (!condition()) {
        std::this_thread::yield();
    }
}

} // namespace

TEST_CASE("[K01] one retry: two runs, and the last error is kept") {
    world w;
    const auto r = runs_of(w, {.max_attempts = 2, .backoff = at_once}, always_fails);
    CHECK(r.at.size() == 2);
    REQUIRE(r.died);
    CHECK(r.died->reason == death_reason::max_attempts);
    CHECK(r.died->detail == "failure 2");
    CHECK(r.died->delivery_count == 2);
    CHECK(r.died->failure_count == 2);
}

TEST_CASE("[K02] attempts are runs in all, and their end is told once") {
    world w;
    const auto attempts = [&](std::uint32_t n) {
        const auto r = runs_of(w, {.max_attempts = n, .backoff = at_once}, always_fails);
        CHECK(r.at.size() == n);
        REQUIRE(r.died);
        CHECK(r.died->failure_count == n);
        CHECK(w.all<railmq::notices::failed>().size() == n);
        CHECK(w.all<railmq::notices::retried>().size() == n - 1);
        const auto dead = w.all<railmq::notices::dead_lettered>();
        REQUIRE(dead.size() == 1);
        CHECK(dead[0].reason == death_reason::max_attempts);
        CHECK(dead[0].delivery_count == n);
    };
    SECTION("three") { attempts(3); }
    SECTION("one") { attempts(1); }
}

TEST_CASE("[K03] exponential waits up to their maximum") {
    CHECK(
        waits_of(
            {.backoff =
                 railmq::exponential_backoff{
                     .initial = 100ms, .multiplier = 2, .max = 400ms, .jitter = jitter::none}},
            4) == std::vector<duration>{100ms, 200ms, 400ms, 400ms});
}

TEST_CASE("[K04] proportional jitter stays in its band, and below the maximum") {
    bool varies = false;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const auto waits = waits_of(
            {.backoff =
                 railmq::exponential_backoff{
                     .initial = 100ms,
                     .multiplier = 2,
                     .max = 2s,
                     .jitter = jitter::proportional(0.2)}},
            9,
            seed);
        duration exact = 100ms;
        for (std::size_t n = 0; n < waits.size(); ++n, exact *= 2) {
            if (n <= 4) {
                CHECK(waits[n] >= exact * 8 / 10);
                CHECK(waits[n] <= exact * 12 / 10);
                varies = varies || waits[n] != exact;
            } else {
                CHECK(waits[n] >= 1600ms);
                CHECK(waits[n] <= 2s); // our choice: the cap comes after the jitter
            }
        }
    }
    CHECK(varies);
}

TEST_CASE("[K05] doubling waits after a handler's errors") {
    world w;
    const auto r = runs_of(
        w,
        {.max_attempts = 7,
         .backoff =
             railmq::exponential_backoff{
                 .initial = 1s, .multiplier = 2, .max = 10s, .jitter = jitter::none}},
        always_fails);
    // The waits 1, 2, 4, 8, 10, 10.
    CHECK(r.at == std::vector<duration>{0s, 1s, 3s, 7s, 15s, 25s, 35s});
}

TEST_CASE("[K06] the wait before retry k, and the three kinds of jitter") {
    const auto policy = [](railmq::jitter j) {
        return railmq::retry_policy{
            .max_attempts = 3,
            .backoff = railmq::exponential_backoff{
                .initial = 200ms, .multiplier = 2, .jitter = j}};
    };
    SECTION("none") {
        CHECK(waits_of(policy(jitter::none), 2) == std::vector<duration>{200ms, 400ms});
    }
    SECTION("within its bounds, and using them") {
        const auto check = [&](railmq::jitter j, duration lowest) {
            duration least = duration::max();
            duration most{};
            for (std::uint64_t seed = 1; seed <= 40; ++seed) {
                const auto waits = waits_of(policy(j), 2, seed);
                CHECK(waits[0] >= lowest);
                CHECK(waits[0] <= 200ms);
                CHECK(waits[1] >= 2 * lowest);
                CHECK(waits[1] <= 400ms);
                least = std::min(least, waits[0]);
                most = std::max(most, waits[0]);
            }
            CHECK(least < lowest + (200ms - lowest) / 4);
            CHECK(most > 200ms - (200ms - lowest) / 4);
        };
        check(jitter::full, 0ms);
        check(jitter::reduced(1), 0ms);
        check(jitter::equal, 100ms);
        check(jitter::reduced(0.5), 100ms);
    }
    SECTION("a ratio outside 0 to 1 is refused") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        for (const double ratio : {-0.1, 1.1}) {
            for (const auto j : {jitter::reduced(ratio), jitter::proportional(ratio)}) {
                try {
                    (void)b.queue<int>("q", {.retry = policy(j)});
                    FAIL("not refused");
                } catch (const railmq::system_error& e) {
                    CHECK(e.code() == railmq::errc::invalid_argument);
                }
            }
        }
        CHECK(b.names().empty());
    }
}

TEST_CASE("[K09] a list of waits fits into the attempts, and its last wait repeats") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    const railmq::backoff_list list{1s, 5s, 30s};
    try {
        (void)b.queue<int>("q", {.retry = {.max_attempts = 2, .backoff = list}});
        FAIL("not refused");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == railmq::errc::invalid_argument);
    }
    CHECK_FALSE(b.find_queue<int>("q"));
    CHECK_NOTHROW(b.queue<int>("equal", {.retry = {.max_attempts = 3, .backoff = list}}));
    CHECK(
        waits_of({.max_attempts = 6, .backoff = list}, 5) ==
        std::vector<duration>{1s, 5s, 30s, 30s, 30s});
}

TEST_CASE("[K10] a long backoff does not delay a short one") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q", {.retry = {.backoff = railmq::backoff_list{1s, 1min}}});
    auto c = q.consumer();
    q.producer().send(1);
    c.receive()->nack();
    c.receive()->nack(); // 1 waits a minute now
    const railmq::time_point start = sim.now();
    q.producer().send(2);
    sim.advance(500ms);
    c.receive()->nack();
    auto d = c.receive();
    REQUIRE(d);
    CHECK(**d == 2);
    CHECK(sim.now() - start == 1500ms);
    d->ack();
    d = c.receive();
    REQUIRE(d);
    CHECK(**d == 1);
    CHECK(sim.now() - start == 1min);
}

TEST_CASE("[K10] also when the waiting is asynchronous") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<int>("q");
    auto c = q.consumer();
    q.producer().send_batch(std::vector<int>{1, 2});
    c.try_receive()->nack(1min);
    c.try_receive()->nack(1s);
    std::vector<std::pair<int, duration>> got;
    const railmq::time_point start = sim.now();
    for (int i = 0; i < 2; ++i) {
        c.async_receive([&](railmq::error_code ec, railmq::sim_delivery<int> d) {
            REQUIRE_FALSE(ec);
            got.emplace_back(*d, sim.now() - start);
            d.ack();
        });
    }
    sim.run_until_idle();
    CHECK(got == std::vector<std::pair<int, duration>>{{2, 1s}, {1, 1min}});
}

TEST_CASE("[K11] twenty thousand retries at once") {
    constexpr std::uint32_t retries = 20'000;
    const railmq::queue_options o{.retry = {.max_attempts = retries + 1, .backoff = at_once}};
    SECTION("simulated") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", o);
        std::uint32_t runs = 0;
        auto s = q.subscribe(sim.get_executor(), [&](const int&) {
            ++runs;
            throw std::runtime_error("no");
        });
        q.producer().send(1);
        CHECK(sim.run_until_idle() == 0s);
        CHECK(runs == retries + 1);
        const auto dead = b.queue<int>("q.dead").peek();
        REQUIRE(dead.size() == 1);
        CHECK(dead[0].deaths.at(0).failure_count == retries + 1);
        CHECK(dead[0].deaths.at(0).detail == "no");
    }
    SECTION("threaded") {
        boost::asio::thread_pool pool{1};
        railmq::broker b{{.executor = pool.get_executor()}};
        auto q = b.queue<int>("q", o);
        std::atomic<std::uint32_t> runs{0};
        auto s = q.subscribe(pool.get_executor(), [&](const int&) {
            ++runs;
            throw std::runtime_error("no");
        });
        q.producer().send(1);
        auto dead = b.queue<int>("q.dead").consumer();
        auto d = dead.receive();
        REQUIRE(d);
        CHECK(runs == retries + 1);
        CHECK(d->deaths().at(0).failure_count == retries + 1);
        d->ack();
        s.close();
        b.close();
        pool.join();
    }
}

TEST_CASE("[K12] a permanent error is not retried") {
    world w;
    SECTION("at the first run") {
        const auto r = runs_of(w, {.max_attempts = 5, .backoff = at_once}, [](int) {
            throw railmq::permanent_error("no such drink");
        });
        CHECK(r.at.size() == 1);
        REQUIRE(r.died);
        CHECK(r.died->reason == death_reason::permanent_error);
        CHECK(r.died->detail == "no such drink");
    }
    SECTION("at the second, after one that is retried") {
        const auto r = runs_of(w, {.max_attempts = 5, .backoff = at_once}, [](int run) {
            if (run == 1) {
                throw std::runtime_error("busy");
            }
            throw railmq::permanent_error("no such drink");
        });
        CHECK(r.at.size() == 2);
        REQUIRE(r.died);
        CHECK(r.died->reason == death_reason::permanent_error);
        CHECK(r.died->detail == "no such drink");
    }
    SECTION("what is no std::exception is retried too") {
        const auto r = runs_of(w, {.max_attempts = 3, .backoff = at_once}, [](int) { throw 1; });
        CHECK(r.at.size() == 3);
        REQUIRE(r.died);
        CHECK(r.died->reason == death_reason::max_attempts);
    }
}

TEST_CASE("[K13] cancelling ends a wait at once and gives nothing out") {
    SECTION("simulated: an asynchronous receive") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", {.retry = {.backoff = in_a_minute}});
        auto c = q.consumer();
        q.producer().send(1);
        c.try_receive()->nack();
        boost::asio::cancellation_signal signal;
        std::optional<railmq::error_code> result;
        c.async_receive(boost::asio::bind_cancellation_slot(
            signal.slot(), [&](railmq::error_code ec, railmq::sim_delivery<int> d) {
                result = ec;
                CHECK_FALSE(d);
            }));
        sim.advance(10s);
        CHECK_FALSE(result);
        const railmq::time_point then = sim.now();
        signal.emit(boost::asio::cancellation_type::total);
        sim.run_ready();
        REQUIRE(result);
        CHECK(*result == boost::asio::error::operation_aborted);
        CHECK(sim.now() == then);
        CHECK(q.stats().delayed == 1);
        sim.advance(50s);
        CHECK(**c.try_receive() == 1);
    }
    SECTION("simulated: a blocking receive whose consumer is cancelled") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", {.retry = {.backoff = in_a_minute}});
        auto c = q.consumer();
        q.producer().send(1);
        c.try_receive()->nack();
        const railmq::time_point start = sim.now();
        sim.async_wait(2s, [&](railmq::error_code) { c.cancel(); });
        railmq::error_code ec;
        CHECK_FALSE(c.receive(1h, ec));
        CHECK(ec == railmq::errc::closed);
        CHECK(sim.now() - start == 2s);
        CHECK(b.queue<int>("q.dead").stats().accepted == 0);
    }
    SECTION("simulated: a send that waits for room") {
        railmq::simulation sim{1};
        railmq::sim_broker b{sim};
        auto q = b.queue<int>("q", {.max_length = 1});
        auto p = q.producer();
        p.send(1);
        boost::asio::cancellation_signal signal;
        std::optional<railmq::error_code> result;
        p.async_send(2, boost::asio::bind_cancellation_slot(
                            signal.slot(), [&](railmq::error_code ec, railmq::receipt) {
                                result = ec;
                            }));
        sim.run_ready();
        CHECK_FALSE(result);
        signal.emit(boost::asio::cancellation_type::terminal);
        sim.run_ready();
        REQUIRE(result);
        CHECK(*result == boost::asio::error::operation_aborted);
        const railmq::time_point start = sim.now();
        sim.async_wait(3s, [&](railmq::error_code) { q.close(); });
        railmq::error_code ec;
        p.send_for(3, 1min, ec);
        CHECK(ec == railmq::errc::closed);
        CHECK(sim.now() - start == 3s);
        auto c = q.consumer();
        CHECK(**c.try_receive() == 1);
        CHECK_FALSE(c.try_receive());
        CHECK(q.stats().accepted == 1);
    }
    SECTION("threaded: receive and send end when the broker closes") {
        railmq::broker b;
        auto q = b.queue<int>("q", {.max_length = 1, .retry = {.backoff = in_a_minute}});
        auto full = b.queue<int>("full", {.max_length = 1});
        auto p = full.producer();
        p.send(1);
        q.producer().send(1);
        auto c = q.consumer();
        c.receive()->nack();
        railmq::error_code received;
        railmq::error_code sent;
        bool got = true;
        std::thread receiver{[&] { got = c.receive(1h, received).has_value(); }};
        std::thread sender{[&] { p.send_for(2, 1h, sent); }};
        wait_until([&] {
            return q.stats().waiting_receivers == 1 && full.stats().waiting_senders == 1;
        });
        b.close();
        receiver.join();
        sender.join();
        CHECK_FALSE(got);
        CHECK(received == railmq::errc::closed);
        CHECK(sent == railmq::errc::closed);
        CHECK(full.stats().accepted == 1);
    }
}

TEST_CASE("[K17] a message in backoff does not hold up closing") {
    world w;
    auto q = w.b.queue<int>("q", {.retry = {.backoff = in_a_minute}});
    int runs = 0;
    auto s = q.subscribe(w.sim.get_executor(), [&](const int&) {
        ++runs;
        throw std::runtime_error("busy");
    });
    q.producer().send(1);
    w.sim.advance(1s);
    REQUIRE(runs == 1);
    REQUIRE(q.stats().delayed == 1);
    const railmq::time_point start = w.sim.now();
    SECTION("of the broker") {
        CHECK(w.b.close() == 1);
        CHECK(w.sim.now() == start);
    }
    SECTION("of the broker, with time for running work") {
        CHECK(w.b.close(railmq::drain_for(5s)) == 1);
        CHECK(w.sim.now() - start <= 5s);
    }
    SECTION("of the subscription") {
        s.close();
        CHECK(w.sim.now() == start);
    }
    SECTION("of the subscription, with time for running handlers: none runs") {
        CHECK(s.close(railmq::drain_for(10min)));
        CHECK(w.sim.now() == start);
    }
    SECTION("of the queue's name") {
        w.b.delete_queue("q");
        CHECK(w.sim.now() == start);
    }
    w.sim.advance(10min);
    CHECK(runs == 1);
    CHECK(w.all<railmq::notices::dead_lettered>().empty());
}

TEST_CASE("retry: max_elapsed counts from the hand-out, however the lease was extended") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    sim.advance(2h);
    auto q = b.queue<int>(
        "q", {.ack_timeout = 30s, .retry = {.backoff = at_once, .max_elapsed = 1h}});
    q.producer().send(1);
    auto c = q.consumer();
    auto d = c.try_receive();
    REQUIRE(d);
    const railmq::time_point start = sim.now();
    SECTION("shorter") { CHECK(d->extend(10s)); }
    SECTION("longer") { CHECK(d->extend(1min)); }
    SECTION("a stop token was asked for") { (void)d->stop_token(); }
    CHECK(d->first_delivered_at() == start);
    sim.advance(1min);
    auto again = c.try_receive();
    REQUIRE(again);
    CHECK(again->first_delivered_at() == start);
    CHECK(again->failure_count() == 1);
}
