// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/stats.hpp"
#include "support/worlds.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::simulation;
using railmq::sim_broker;
using railmq::test::simulated_world;
using railmq::test::text_of;
using railmq::test::threaded_world;

namespace {

template <class F>
void check_throws(F&& f, errc code, std::string_view part = {}) {
    try {
        f();
        FAIL("nothing was thrown");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == code);
        INFO(e.what());
        CHECK(std::string_view{e.what()}.find(part) != std::string_view::npos);
    }
}

} // namespace

TEST_CASE("queue: a handle that refers to none says so, whatever it is asked") {
    const railmq::sim_queue<int> none;
    simulation sim;
    sim_broker broker{sim};
    auto some = broker.queue<int>("q");
    CHECK_FALSE(none);
    CHECK_FALSE(none.is_open());
    CHECK(none == railmq::sim_queue<int>{});
    CHECK(none != some);
    check_throws([&] { (void)none.name(); }, errc::closed, "no queue");
    check_throws([&] { (void)none.options(); }, errc::closed);
    check_throws([&] { (void)none.producer(); }, errc::closed);
    check_throws([&] { (void)none.consumer(); }, errc::closed);
    check_throws([&] { (void)none.peek(); }, errc::closed);
    check_throws([&] { none.purge(); }, errc::closed);
    check_throws([&] { none.pause(); }, errc::closed);
    check_throws([&] { none.resume(); }, errc::closed);
    check_throws([&] { (void)none.is_paused(); }, errc::closed);
    check_throws([&] { none.drain(railmq::drain_for{0s}); }, errc::closed);
    check_throws([&] { (void)none.stats(); }, errc::closed);
    check_throws([&] { none.close(); }, errc::closed);
    check_throws([&] { none.dead_letter("x"); }, errc::closed);
    check_throws([&] { none.redrive(some); }, errc::closed);
    check_throws([&] { some.redrive(none); }, errc::closed);
    check_throws(
        [&] { (void)none.subscribe(sim.get_executor(), [](const int&) {}); }, errc::closed);
    auto moved = broker.queue<int>("moved");
    const auto to = std::move(moved);
    CHECK_FALSE(moved); // NOLINT: on purpose
    CHECK(to.is_open());
}

TEST_CASE("queue: bad options of its handles are refused, and change nothing") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    queue.producer().send(1);
    const std::string before = text_of(queue);
    check_throws([&] { (void)queue.producer({.max_message_bytes = 0}); }, errc::invalid_argument, "max_message_bytes");
    check_throws([&] { (void)queue.consumer({.prefetch = 0}); }, errc::invalid_argument, "prefetch");
    check_throws(
        [&] { (void)queue.consumer({.auto_extend = -1ns}); }, errc::invalid_argument, "auto_extend");
    const auto handler = [](const int&) {};
    check_throws(
        [&] { (void)queue.subscribe(sim.get_executor(), handler, {.concurrency = 0}); },
        errc::invalid_argument,
        "concurrency");
    check_throws(
        [&] {
            (void)queue.subscribe(sim.get_executor(), handler, {.consumer = {.prefetch = 0}});
        },
        errc::invalid_argument,
        "prefetch");
    sim.run_until_idle();
    CHECK(text_of(queue) == before);
}

TEST_CASE("queue: consumers that disagree on single_active") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("orders");
    auto one = queue.consumer({.single_active = true});
    const std::string before = text_of(queue);
    check_throws([&] { (void)queue.consumer(); }, errc::options_mismatch, "'orders'");
    CHECK(text_of(queue) == before);
    one.close();
    CHECK(queue.consumer().is_open());
}

TEST_CASE("queue: a bad redrive moves nothing") {
    simulation sim;
    sim_broker broker{sim};
    sim_broker other{sim};
    auto from = broker.queue<int>("from");
    auto to = broker.queue<int>("to");
    auto elsewhere = other.queue<int>("to");
    from.producer().send(1);
    const std::string before = text_of(from);
    const auto all = [](const int&) { return true; };
    error_code ec;
    CHECK(from.redrive(from, {}, all, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    CHECK(from.redrive(elsewhere, {}, all, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    for (const double rate : {-1.0, 1e12, std::numeric_limits<double>::quiet_NaN()}) {
        ec = {};
        CHECK(from.redrive(to, {.rate = rate}, all, ec) == 0);
        CHECK(ec == errc::invalid_argument);
    }
    check_throws([&] { from.redrive(from); }, errc::invalid_argument, "redrive");
    CHECK(text_of(from) == before);
    CHECK(to.stats().accepted == 0);
    CHECK(elsewhere.stats().accepted == 0);
    to.close();
    CHECK(from.redrive(to, {}, all, ec) == 0);
    CHECK(ec == errc::closed);
    CHECK(from.stats().ready == 1);
}

TEST_CASE("queue: redrive moves what matches, in order, at its rate") {
    simulation sim;
    sim_broker broker{sim};
    auto from = broker.queue<int>("from");
    auto to = broker.queue<int>("to");
    auto producer = from.producer();
    for (int n = 1; n <= 10; ++n) {
        producer.send(n, {.message_id = std::to_string(n)});
    }
    error_code ec;
    const auto start = sim.now();
    CHECK(from.redrive(to, {.rate = 2}, [](const int& n) { return n % 2 == 0; }, ec) == 5);
    CHECK_FALSE(ec);
    CHECK(sim.now() - start == 2s);
    const auto moved = to.peek(10);
    REQUIRE(moved.size() == 5);
    CHECK(moved[0].value == 2);
    CHECK(moved[4].value == 10);
    CHECK(moved[0].properties.message_id == "2");
    CHECK(from.stats().redriven == 5);
    CHECK(from.stats().ready == 5);
}

TEST_CASE("queue: a bad dead-letter target changes nothing") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto texts = broker.queue<std::string>("texts");
    check_throws([&] { queue.dead_letter("a/b"); }, errc::invalid_name);
    check_throws([&] { queue.dead_letter("texts"); }, errc::type_mismatch, "'texts'");
    queue.producer().send(1);
    queue.consumer().try_receive()->reject();
    CHECK(broker.find_queue<int>("q.dead")->stats().ready == 1);
}

TEST_CASE("queue: peek copies what is ready, and takes nothing") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<std::string>("q");
    auto producer = queue.producer();
    const auto id = producer.send(std::string{"a"}, {.key = "k"}).id;
    sim.advance(1s);
    producer.send(std::string{"b"});
    producer.send(std::string{"later"}, {.delay = 1s});
    CHECK(queue.peek(0).empty());
    const auto one = queue.peek();
    REQUIRE(one.size() == 1);
    CHECK(one[0].value == "a");
    CHECK(one[0].id == id);
    CHECK(one[0].properties.key == "k");
    CHECK(one[0].delivery_count == 0);
    CHECK(queue.peek(100).size() == 2);
    CHECK(queue.peek(100)[1].enqueued_at - one[0].enqueued_at == 1s);
    CHECK(queue.stats().ready == 2);
    CHECK(queue.stats().handed_out == 0);
}

TEST_CASE("queue: closed, it takes nothing more and is emptied") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    producer.send(1);
    producer.send(2);
    auto held = consumer.try_receive();
    CHECK(queue.close() == 2);
    CHECK_FALSE(queue.is_open());
    error_code ec;
    producer.send(3, ec);
    CHECK(ec == errc::closed);
    auto late = queue.consumer(); // there is something to be had still
    CHECK(late.receive(ec)->ack());
    CHECK_FALSE(late.receive(ec));
    CHECK(ec == errc::closed);
    check_throws([&] { (void)queue.consumer(); }, errc::closed, "'q'");
    CHECK(held->ack());
    CHECK(queue.close() == 0);
    CHECK(queue.purge() == 0);
}

TEST_CASE("queue: waits for its end of work, and not for ever") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto consumer = queue.consumer();
    CHECK(queue.drain(railmq::drain_for{0s}));
    queue.producer().send(1);
    const auto start = sim.now();
    CHECK_FALSE(queue.drain(railmq::drain_for{5s}));
    CHECK(sim.now() - start == 5s);
    auto d = consumer.try_receive();
    CHECK_FALSE(queue.pause(railmq::drain_for{1s}));
    CHECK(queue.is_paused());
    d->ack();
    CHECK(queue.pause(railmq::drain_for{1s}));
    queue.resume();
    CHECK_FALSE(queue.is_paused());
    CHECK(queue.drain(railmq::drain_for{-1s}));
}

TEMPLATE_TEST_CASE("queue: what a burst took is given back", "", threaded_world, simulated_world) {
    TestType world;
    auto queue = world.broker.template queue<int>("q");
    auto producer = queue.producer();
    auto consumer = queue.consumer({.prefetch = railmq::unlimited});
    producer.send(0);
    consumer.try_receive()->ack();
    const std::uint64_t at_rest = queue.stats().memory_bytes;
    producer.send_batch(std::vector<int>(200'000));
    REQUIRE(queue.stats().memory_bytes > 100 * at_rest);
    for (int left = 200'000; left != 0;) {
        auto some = consumer.receive_batch(1'000, std::chrono::seconds{1});
        left -= static_cast<int>(railmq::ack_all(some));
    }
    SECTION("by those who go on sending") {
        for (int i = 0; i < 50'000; ++i) {
            producer.send(i);
            consumer.try_receive()->ack();
        }
    }
    SECTION("when a consumer waits") {
        CHECK_FALSE(consumer.receive(std::chrono::milliseconds{1}));
    }
    CHECK(queue.stats().memory_bytes < 20 * at_rest);
    producer.send(1);
    CHECK(consumer.try_receive()->value() == 1);
}
