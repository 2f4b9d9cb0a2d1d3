// SPDX-License-Identifier: BSL-1.0
#include <railmq/transaction.hpp>

#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;

namespace {

struct world {
    [[nodiscard]] std::vector<int> values_in(const std::string& name) {
        std::vector<int> all;
        for (const auto& m : broker->queue<int>(name).peek(1000)) {
            all.push_back(m.value);
        }
        return all;
    }
    void kill_and_open() {
        disk.end_process();
        broker.reset();
        broker.emplace(sim, disk.directory());
    }
    template <class F>
    [[nodiscard]] static error_code code_of(F&& f) {
        try {
            f();
        } catch (const railmq::system_error& e) {
            return e.code();
        }
        return {};
    }

    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    std::optional<railmq::sim_broker> broker{std::in_place, sim, disk.directory()};
};

} // namespace

TEST_CASE("sends and acks of several queues happen together, when the transaction is committed") {
    world w;
    auto in = w.broker->queue<int>("in");
    auto left = w.broker->queue<int>("left").producer();
    auto right = w.broker->queue<int>("right").producer();
    in.producer().send(1);
    in.producer().send(2);
    auto c = in.consumer();
    auto tx = w.broker->begin();
    CHECK(tx.is_empty());
    tx.ack(c.try_receive().value());
    tx.send(left, 10);
    tx.send(right, 20, {.key = "k"});
    tx.send(left, 11);
    CHECK(w.values_in("left").empty());
    CHECK(c.in_flight() == 1);
    const auto receipts = tx.commit();
    REQUIRE(receipts.size() == 3);
    CHECK(receipts[2].id == receipts[0].id + 1);
    CHECK(tx.is_empty());
    CHECK(w.values_in("left") == std::vector{10, 11});
    CHECK(w.values_in("right") == std::vector{20});
    CHECK(w.broker->queue<int>("right").peek()[0].properties.key == "k");
    CHECK(w.values_in("in") == std::vector{2});
    CHECK(c.in_flight() == 0);
    w.kill_and_open();
    CHECK(w.values_in("left") == std::vector{10, 11});
    CHECK(w.values_in("right") == std::vector{20});
    CHECK(w.values_in("in") == std::vector{2});
}

TEST_CASE("a transaction that is dropped leaves nothing behind, and its deliveries have failed") {
    world w;
    auto in = w.broker->queue<int>("in", {.retry = {.backoff = railmq::constant_backoff{0s}}});
    auto out = w.broker->queue<int>("out").producer();
    in.producer().send(1);
    auto c = in.consumer();
    {
        auto tx = w.broker->begin();
        tx.send(out, 5);
        tx.ack(c.try_receive().value());
        auto moved = std::move(tx);
    }
    CHECK(w.values_in("out").empty());
    auto again = c.try_receive();
    REQUIRE(again);
    CHECK(again->failure_count() == 1);
}

TEST_CASE("when one part of it is impossible, nothing happens and it can be tried again") {
    world w;
    auto in = w.broker->queue<int>("in");
    auto out = w.broker->queue<int>("out").producer();
    auto full = w.broker->queue<int>("full", {.max_length = 1});
    auto to_full = full.producer();
    to_full.send(0);
    in.producer().send(1);
    auto c = in.consumer();
    auto tx = w.broker->begin();
    tx.send(out, 5);
    tx.send(to_full, 6);
    tx.ack(c.try_receive().value());
    error_code ec;
    CHECK(tx.commit(ec).empty());
    CHECK(ec == errc::queue_full);
    CHECK(w.values_in("out").empty());
    CHECK(c.in_flight() == 1);
    CHECK(w.world::code_of([&] { (void)tx.commit(); }) == errc::queue_full);
    CHECK(full.purge() == 1);
    CHECK(tx.commit(ec).size() == 2);
    CHECK_FALSE(ec);
    CHECK(w.values_in("out") == std::vector{5});
    CHECK(w.values_in("full") == std::vector{6});
    CHECK(c.in_flight() == 0);
}

TEST_CASE("a lease that was lost takes the whole transaction with it") {
    world w;
    auto in = w.broker->queue<int>("in", {.ack_timeout = 10s});
    auto out = w.broker->queue<int>("out").producer();
    in.producer().send(1);
    auto c = in.consumer();
    auto other = in.consumer();
    auto tx = w.broker->begin();
    tx.ack(c.try_receive().value());
    tx.send(out, 5);
    w.sim.advance(10s);
    error_code ec;
    SECTION("nobody else has got the message: its word still counts") {
        CHECK(tx.commit(ec).size() == 1);
        CHECK_FALSE(ec);
        CHECK(w.values_in("in").empty());
    }
    SECTION("it is somebody else's") {
        auto held = other.try_receive();
        REQUIRE(held);
        (void)tx.commit(ec);
        CHECK(ec == errc::stale_delivery);
        CHECK(w.values_in("out").empty());
        CHECK(held->ack());
        tx.abort();
        CHECK(tx.is_empty());
    }
}

TEST_CASE("what a transaction does not take stays with the caller") {
    world w;
    auto q = w.broker->queue<int>("q");
    auto p = q.producer({.max_message_bytes = 2});
    auto tx = w.broker->begin();
    CHECK(w.world::code_of([&] { tx.send(p, 1); }) == errc::message_too_large);
    auto good = q.producer();
    CHECK(w.world::code_of([&] { tx.send(good, 1, {.delay = -1s}); }) == errc::invalid_argument);
    railmq::sim_broker elsewhere{w.sim};
    auto foreign = elsewhere.queue<int>("q").producer();
    CHECK(w.world::code_of([&] { tx.send(foreign, 1); }) == errc::invalid_argument);
    foreign.send(1);
    auto c = elsewhere.queue<int>("q").consumer();
    auto d = c.try_receive();
    CHECK(w.world::code_of([&] { tx.ack(*d); }) == errc::invalid_argument);
    CHECK(d->ack());
    CHECK(w.world::code_of([&] { tx.ack(*d); }) == errc::stale_delivery);
    CHECK(tx.is_empty());
    railmq::sim_transaction none;
    CHECK(w.world::code_of([&] { none.send(good, 1); }) == errc::closed);
    CHECK(w.world::code_of([&] { (void)none.commit(); }) == errc::closed);
    w.broker->close();
    auto late = w.broker->begin();
    CHECK(w.world::code_of([&] {
              late.send(good, 1);
              (void)late.commit();
          }) == errc::closed);
}

TEST_CASE("a commit wakes those who wait, and counts delays and lives from its own moment") {
    world w;
    auto q = w.broker->queue<int>("q");
    auto p = q.producer();
    auto tx = w.broker->begin();
    tx.send(p, 1, {.delay = 5s});
    tx.send(p, 2, {.time_to_live = 7s});
    tx.send(p, 3);
    w.sim.advance(1min);
    CHECK(tx.commit().size() == 3);
    CHECK(w.values_in("q") == std::vector{2, 3});
    w.sim.advance(5s);
    CHECK(w.values_in("q") == std::vector{2, 3, 1});
    w.sim.advance(2s);
    CHECK(w.values_in("q") == std::vector{3, 1});
}

TEST_CASE("a handler's sends happen with its ack, and only then") {
    world w;
    auto in = w.broker->queue<int>(
        "in", {.retry = {.max_attempts = 2, .backoff = railmq::constant_backoff{0s}}});
    auto out = w.broker->queue<int>("out").producer();
    int fails = 1;
    const auto work = [&](const int& value, railmq::sim_transaction& tx) {
        tx.send(out, value * 10);
        if (value == 2 && fails-- > 0) {
            throw std::runtime_error{"not yet"};
        }
        tx.send(out, value * 10 + 1);
    };
    for (int i = 1; i <= 3; ++i) {
        in.producer().send(i);
    }
    SECTION("a plain handler") {
        auto s = in.subscribe(w.sim.get_executor(), work);
        w.sim.run_until_idle();
    }
    SECTION("one that takes the delivery and says what is to become of it") {
        auto s = in.subscribe(
            w.sim.get_executor(), [&](auto& d, railmq::sim_transaction& tx) -> railmq::outcome {
                work(d.value(), tx);
                return railmq::outcome::ack();
            });
        w.sim.run_until_idle();
    }
    SECTION("a coroutine") {
        auto s = in.subscribe(
            w.sim.get_executor(),
            [&](const int& value, railmq::sim_transaction& tx) -> boost::asio::awaitable<void> {
                work(value, tx);
                co_return;
            });
        w.sim.run_until_idle();
    }
    CHECK(w.values_in("out") == std::vector{10, 11, 20, 21, 30, 31});
    CHECK(in.stats().ready == 0);
    w.broker->sync();
    w.kill_and_open();
    CHECK(w.values_in("out") == std::vector{10, 11, 20, 21, 30, 31});
}

TEST_CASE("whenever the process ends, all of a transaction is there or nothing") {
    for (std::uint64_t n = 1; n < 40; ++n) {
        world w;
        auto in = w.broker->queue<int>("in");
        in.producer().send(1);
        auto a = w.broker->queue<int>("a").producer();
        auto b = w.broker->queue<int>("b").producer();
        auto c = in.consumer();
        auto tx = w.broker->begin();
        tx.ack(c.try_receive().value());
        tx.send(a, 5);
        tx.send(b, 6);
        w.disk.fail_from(
            railmq::storage::disk_operation::any, n, boost::system::errc::io_error);
        error_code ec;
        (void)tx.commit(ec);
        const bool was_hit = w.disk.faults_struck() != 0;
        CHECK(bool{ec} == was_hit);
        w.disk.heal();
        w.disk.crash();
        w.broker.reset();
        w.broker.emplace(w.sim, w.disk.directory());
        const auto left = w.values_in("in").size();
        CHECK(w.values_in("a").size() == 1 - left);
        CHECK(w.values_in("b").size() == 1 - left);
        if (!ec) {
            CHECK(left == 0);
        }
        if (!was_hit) {
            break;
        }
    }
}
