// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/stats.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::simulation;
using railmq::sim_broker;
using railmq::test::text_of;
using strings = std::vector<std::string>;

namespace {

/// `f` throws a `system_error` with that code, and a text that says `part`.
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

TEST_CASE("broker: options out of range") {
    simulation sim;
    check_throws([&] { sim_broker{sim, {.memory_limit = 0}}; }, errc::invalid_argument, "memory_limit");
    check_throws([] { railmq::broker{{.memory_limit = 0}}; }, errc::invalid_argument, "memory_limit");
    check_throws(
        [] { railmq::broker{{.park_after = -std::chrono::nanoseconds{1}}}; },
        errc::invalid_argument,
        "park_after");
}

TEST_CASE("broker: a queue is made once, with its dead-letter queue") {
    simulation sim;
    sim_broker broker{sim};
    auto orders = broker.queue<int>("orders", {.max_length = 5});
    CHECK(orders.name() == "orders");
    CHECK(orders.options().max_length == 5);
    CHECK(broker.names() == strings{"orders", "orders.dead"});
    CHECK(broker.queue<int>("orders") == orders); // whatever its options
    CHECK(broker.queue<int>("orders", {.max_length = 5}) == orders);
    CHECK(broker.find_queue<int>("orders") == orders);
    CHECK_FALSE(broker.find_queue<int>("bills"));
    CHECK(broker.stats().queues == 2);
    auto quiet = broker.queue<int>("quiet", {.dead_letter = railmq::discard});
    auto named = broker.queue<int>("named", {.dead_letter = "parking"});
    CHECK(broker.names() == strings{"named", "orders", "orders.dead", "parking", "quiet"});
}

TEST_CASE("broker: what a queue is not made with, and then nothing is made") {
    simulation sim;
    sim_broker broker{sim};
    auto there = broker.queue<int>("there", {.dead_letter = railmq::discard});
    const strings before = broker.names();
    for (const std::string_view bad : {"", ".", "..", "a/b", "../../etc/passwd", "a b", "\n"}) {
        check_throws([&] { (void)broker.queue<int>(bad); }, errc::invalid_name, "a name is");
    }
    check_throws(
        [&] { (void)broker.queue<int>(std::string(100'000, 'x')); }, errc::invalid_name, "100000");
    // Its dead-letter queue would have no valid name.
    check_throws(
        [&] { (void)broker.queue<int>(std::string(247, 'x')); }, errc::invalid_name, "dead-letter");
    check_throws(
        [&] { (void)broker.queue<int>("q", {.ack_timeout = 0s}); },
        errc::invalid_argument,
        "ack_timeout");
    check_throws(
        [&] { (void)broker.queue<int>("q", {.dead_letter = "a/b"}); },
        errc::invalid_name,
        "dead_letter");
    check_throws([&] { (void)broker.queue<std::string>("there"); }, errc::type_mismatch, "there");
    check_throws([&] { (void)broker.find_queue<std::string>("there"); }, errc::type_mismatch, "int");
    check_throws(
        [&] { (void)broker.queue<std::string>("q", {.dead_letter = "there"}); },
        errc::type_mismatch,
        "'there'");
    check_throws(
        [&] { (void)broker.queue<int>("there", {.max_length = 9}); },
        errc::options_mismatch,
        "max_length");
    CHECK(broker.names() == before);
    CHECK(there.options().max_length == railmq::unlimited);
}

TEST_CASE("broker: deleting a queue") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    producer.send(1);
    producer.send(2);
    auto d = consumer.try_receive();
    REQUIRE(d);

    error_code ec;
    broker.delete_queue("none", ec);
    CHECK(ec == errc::not_found);
    check_throws([&] { broker.delete_queue("none\n"); }, errc::not_found, "none\\x0a");
    const std::string before = text_of(queue);
    broker.delete_queue("q", ec);
    CHECK(ec == errc::would_block); // somebody holds one of its messages
    CHECK(text_of(queue) == before);
    CHECK(broker.find_queue<int>("q"));

    broker.delete_queue("q", ec, true);
    CHECK_FALSE(ec);
    CHECK_FALSE(broker.find_queue<int>("q"));
    CHECK(d->value() == 1);
    producer.send(3, ec);
    CHECK(ec);
    CHECK_FALSE(consumer.receive(ec));
    CHECK(ec == errc::not_found);
    CHECK_FALSE(queue.is_open());
    auto fresh = broker.queue<std::string>("q2"); // a new one of any type
    CHECK(fresh.is_open());
}

TEST_CASE("broker: closing ends everything, once") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    auto holder = queue.consumer();
    producer.send(1);
    producer.send(2);
    producer.send(3);
    auto d = holder.try_receive();
    REQUIRE(d);
    int ended = 0;
    auto paused = queue.consumer();
    paused.pause();
    paused.async_receive([&](error_code ec, railmq::sim_delivery<int> none) {
        CHECK(ec == errc::closed);
        CHECK_FALSE(none);
        ++ended;
    });
    CHECK(broker.is_open());
    CHECK(broker.close() == 3);
    CHECK(ended == 0); // never inside the call that ends it
    sim.run_ready();
    CHECK(ended == 1);
    CHECK(broker.close() == 0);
    CHECK(broker.close(railmq::drain_for{1s}) == 0);
    CHECK_FALSE(broker.is_open());

    error_code ec;
    producer.send(4, ec);
    CHECK(ec == errc::closed);
    CHECK_FALSE(consumer.try_receive(ec));
    CHECK(ec == errc::closed);
    check_throws([&] { (void)broker.queue<int>("q"); }, errc::closed);
    check_throws([&] { (void)queue.consumer(); }, errc::closed);
    CHECK_FALSE(queue.is_open());
    CHECK(d->value() == 1); // what was held can be read
    CHECK(d->ack());
}

TEST_CASE("broker: a moved-from one says so") {
    simulation sim;
    sim_broker first{sim};
    auto queue = first.queue<int>("q");
    sim_broker second{std::move(first)};
    CHECK(second.names() == strings{"q", "q.dead"});
    CHECK_FALSE(first.is_open()); // NOLINT: on purpose
    check_throws([&] { (void)first.names(); }, errc::closed, "moved from");
    check_throws([&] { (void)first.queue<int>("q"); }, errc::closed);
    check_throws([&] { (void)first.stats(); }, errc::closed);
    CHECK(first.close() == 0);
    CHECK(queue.is_open());
    second = sim_broker{sim}; // closes the one it was
    CHECK_FALSE(queue.is_open());
    CHECK(second.names().empty());
}

TEST_CASE("broker: handles may outlive it, in any order") {
    auto sim = std::make_unique<simulation>();
    auto broker = std::make_unique<sim_broker>(*sim);
    auto queue = broker->queue<std::string>("q");
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    producer.send(std::string(100, 'x'));
    auto d = consumer.try_receive();
    REQUIRE(d);
    broker.reset();
    CHECK(d->value().size() == 100);
    error_code ec;
    producer.send(std::string{"y"}, ec);
    CHECK(ec == errc::closed);
    queue = {};
    producer = {};
    consumer.close();
    CHECK(d->value().size() == 100);
    d.reset();
}

TEST_CASE("broker: two do not see each other") {
    simulation sim;
    sim_broker one{sim};
    sim_broker two{sim};
    auto a = one.queue<int>("q");
    auto b = two.queue<std::string>("q"); // the same name, another type
    a.producer().send(1);
    CHECK(b.stats().ready == 0);
    one.close();
    CHECK(b.is_open());
}

TEST_CASE("broker: the default dead-letter target") {
    simulation sim;
    sim_broker broker{sim};
    check_throws([&] { broker.default_dead_letter("no/such"); }, errc::invalid_name);
    auto queue = broker.queue<int>("q");
    broker.default_dead_letter("graves");
    queue.producer().send(1);
    queue.consumer().try_receive()->reject();
    auto graves = broker.find_queue<int>("graves");
    REQUIRE(graves);
    CHECK(graves->stats().ready == 1);
    broker.default_dead_letter(railmq::discard);
    queue.producer().send(2);
    queue.consumer().try_receive()->reject();
    CHECK(queue.stats().dropped == 1);
}

TEST_CASE("broker: an observer that throws hurts nobody, and is counted") {
    simulation sim;
    int seen = 0;
    sim_broker broker{
        sim, {.observer = [&](const railmq::notice&) {
            ++seen;
            throw std::runtime_error("observer");
        }}};
    auto queue = broker.queue<int>("q");
    queue.producer().send(1);
    CHECK(queue.consumer().try_receive()->ack());
    CHECK(seen > 2);
    CHECK(broker.stats().observer_failures == static_cast<std::uint64_t>(seen));
}

TEST_CASE("broker: memory is limited, told, and given back") {
    simulation sim;
    sim_broker broker{sim, {.memory_limit = 100'000}};
    CHECK(broker.stats().memory_limit == 100'000);
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    error_code ec;
    std::uint64_t sent = 0;
    while (producer.send(1, ec), !ec) {
        ++sent;
    }
    CHECK(ec == errc::memory_limit);
    CHECK(sent > 1'000);
    CHECK(broker.stats().memory_bytes <= 100'000);
    CHECK(queue.stats().accepted == sent);
    CHECK(queue.stats().refused == 1);
    auto consumer = queue.consumer({.prefetch = railmq::unlimited});
    while (auto d = consumer.try_receive()) {
        d->ack();
    }
    producer.send(2, ec); // there is room again
    CHECK_FALSE(ec);
}
