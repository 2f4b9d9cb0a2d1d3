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

namespace {

template <class T>
struct world {
    explicit world(railmq::queue_options o = at_once())
        : queue{broker.template queue<T>("q", o)} {}

    /// Failures come back at once.
    static railmq::queue_options at_once() {
        railmq::queue_options o;
        o.retry.backoff = railmq::constant_backoff{.delay = 0s};
        return o;
    }
    railmq::sim_delivery<T> take_one() {
        auto d = consumer.try_receive();
        REQUIRE(d);
        return std::move(*d);
    }

    simulation sim{};
    sim_broker broker{sim};
    railmq::sim_queue<T> queue;
    railmq::sim_producer<T> producer{queue.producer()};
    railmq::sim_consumer<T> consumer{queue.consumer()};
};

template <class F>
void check_stale(F&& f) {
    try {
        f();
        FAIL("nothing was thrown");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == errc::stale_delivery);
    }
}

/// Refuses to be moved when told to; counts what is alive.
struct touchy {
    explicit touchy(int v) : value{v} { ++alive; }
    touchy(const touchy& other) : value{other.value} { ++alive; }
    touchy(touchy&& other) : value{other.value} {
        if (refuses) throw std::runtime_error("moved");
        ++alive;
    }
    touchy& operator=(const touchy&) = delete;
    touchy& operator=(touchy&&) = delete;
    ~touchy() { --alive; }
    int value;
    static inline int alive = 0;
    static inline bool refuses = false;
};

} // namespace

TEST_CASE("delivery: one that holds nothing settles nothing and shows nothing") {
    railmq::sim_delivery<int> none;
    CHECK_FALSE(none);
    CHECK_FALSE(none.ack());
    CHECK_FALSE(none.nack());
    CHECK_FALSE(none.nack(1s));
    CHECK_FALSE(none.reject("x"));
    CHECK_FALSE(none.release());
    CHECK_FALSE(none.extend(1s));
    check_stale([&] { (void)none.value(); });
    check_stale([&] { (void)*none; });
    check_stale([&] { (void)none.take(); });
    check_stale([&] { (void)none.id(); });
    check_stale([&] { (void)none.key(); });
    check_stale([&] { (void)none.delivery_count(); });
    check_stale([&] { (void)none.failure_count(); });
    check_stale([&] { (void)none.enqueued_at(); });
    check_stale([&] { (void)none.first_delivered_at(); });
    check_stale([&] { (void)none.ack_deadline(); });
    check_stale([&] { (void)none.deaths(); });
    check_stale([&] { (void)none.stop_token(); });
}

TEST_CASE("delivery: settled once, by whichever way came first") {
    world<int> w;
    for (int way = 0; way < 5; ++way) {
        w.producer.send(way);
        auto d = w.take_one();
        const std::string text = text_of(w.queue);
        if (way == 0) CHECK(d.ack());
        if (way == 1) CHECK(d.nack());
        if (way == 2) CHECK(d.reject());
        if (way == 3) CHECK(d.release());
        if (way == 4) CHECK(d.take() == 4);
        const std::string after = text_of(w.queue);
        CHECK(after != text);
        CHECK_FALSE(d);
        CHECK_FALSE(d.ack());
        CHECK_FALSE(d.nack());
        CHECK_FALSE(d.reject());
        CHECK_FALSE(d.release());
        CHECK_FALSE(d.extend(1s));
        check_stale([&] { (void)d.value(); });
        check_stale([&] { (void)d.take(); });
        CHECK(text_of(w.queue) == after);
        w.queue.purge();
    }
}

TEST_CASE("delivery: says everything about its message") {
    world<std::string> w;
    w.sim.advance(1s);
    const auto r = w.producer.send(
        std::string{"hello"}, {.message_id = "m1", .key = "k", .headers = {{"a", "b"}}});
    w.sim.advance(1s);
    auto d = w.take_one();
    CHECK(d.value() == "hello");
    CHECK(*d == "hello");
    CHECK(d->size() == 5);
    CHECK(d.properties().message_id == "m1");
    CHECK(d.properties().headers.size() == 1);
    CHECK(d.key() == "k");
    CHECK(d.id() == r.id);
    CHECK(d.delivery_count() == 1);
    CHECK_FALSE(d.redelivered());
    CHECK(d.failure_count() == 0);
    CHECK(d.enqueued_at() == railmq::time_point{1s});
    CHECK(d.first_delivered_at() == railmq::time_point{2s});
    CHECK(d.ack_deadline() == railmq::time_point{32s});
    CHECK(d.deaths().empty());
    w.sim.advance(1s);
    d.nack();
    d = w.take_one();
    CHECK(d.delivery_count() == 2);
    CHECK(d.redelivered());
    CHECK(d.failure_count() == 1);
    CHECK(d.first_delivered_at() == railmq::time_point{2s});
    CHECK(d.enqueued_at() == railmq::time_point{1s});
    d.ack();

    w.producer.send(std::string{"plain"});
    d = w.take_one();
    CHECK(d.properties() == railmq::properties{});
    CHECK_FALSE(d.key());
}

TEST_CASE("delivery: destroyed, assigned over or moved: settled once, as a failure") {
    world<int> w;
    w.producer.send(1);
    { const auto dropped = w.take_one(); }
    CHECK(w.queue.stats().failed == 1);
    CHECK(w.queue.stats().ready == 1);
    auto a = w.take_one();
    auto b = std::move(a);
    CHECK_FALSE(a); // NOLINT: on purpose
    CHECK_FALSE(a.ack());
    CHECK(b.value() == 1);
    w.producer.send(2);
    b = w.take_one(); // the first one comes back
    CHECK(b.value() == 2);
    CHECK(w.queue.stats().failed == 2);
    auto& same = b;
    b = std::move(same);
    CHECK(b.value() == 2);
    CHECK(b.ack());
}

TEST_CASE("delivery: after its deadline it shows, and settles only what is still its own") {
    world<std::string> w;
    w.producer.send(std::string(50, 'x'));
    auto old = w.take_one();
    w.sim.advance(30s);
    CHECK(old); // it still holds what it may show
    CHECK(old.value().size() == 50);
    CHECK(old.ack_deadline() == std::nullopt);
    CHECK_FALSE(old.extend(1s));
    auto fresh = w.take_one();
    CHECK_FALSE(old.ack());
    CHECK(old.value().size() == 50);
    CHECK(fresh.ack());
    CHECK(old.value().size() == 50); // the message has left
    check_stale([&] { (void)old.take(); });
    CHECK(old.stop_token().stop_requested());
    CHECK(w.queue.stats().acked == 1);
    old = {};
    CHECK(w.queue.stats().failed == 1); // the deadline alone
}

TEST_CASE("delivery: extend, with good times and bad") {
    world<int> w;
    w.producer.send(1);
    auto d = w.take_one();
    CHECK(d.extend(60s));
    CHECK(d.ack_deadline() == railmq::time_point{60s});
    const std::string before = text_of(w.queue);
    CHECK_FALSE(d.extend(-1ns));
    CHECK(d.ack_deadline() == railmq::time_point{60s});
    CHECK(text_of(w.queue) == before);
    CHECK(d.extend(railmq::duration::max()));
    w.sim.advance(24h * 3'650);
    CHECK(d.ack_deadline());
    CHECK(d.extend(0s));
    w.sim.run_ready();
    CHECK(d.ack_deadline() == std::nullopt);
    CHECK(w.queue.stats().ready == 1);
}

TEST_CASE("delivery: take moves out what can only be moved") {
    world<std::unique_ptr<int>> w;
    w.producer.send(std::make_unique<int>(7));
    w.producer.send(std::make_unique<int>(8), {.key = "k"});
    auto d = w.take_one();
    const std::unique_ptr<int> mine = d.take();
    CHECK(*mine == 7);
    CHECK(w.queue.stats().acked == 1);
    CHECK(*w.take_one().take() == 8);
}

TEST_CASE("delivery: take leaves an older reader its copy") {
    world<std::string> w;
    w.producer.send(std::string(50, 'x'));
    auto old = w.take_one();
    w.sim.advance(30s);
    auto fresh = w.take_one();
    CHECK(fresh.take() == std::string(50, 'x'));
    CHECK(old.value() == std::string(50, 'x'));
}

TEST_CASE("delivery: what cannot be copied is not taken from under an older reader") {
    world<std::unique_ptr<int>> w;
    w.producer.send(std::make_unique<int>(7));
    auto old = w.take_one();
    w.sim.advance(30s);
    auto fresh = w.take_one();
    try {
        (void)fresh.take();
        FAIL("it was taken");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == errc::would_block);
        CHECK(std::string_view{e.what()}.find("earlier delivery") != std::string_view::npos);
    }
    CHECK(*old.value() == 7);
    CHECK(fresh.ack_deadline() == w.sim.now() + 30s); // held as before
    old = {};
    CHECK(*fresh.take() == 7);
}

TEST_CASE("delivery: a take whose move throws has taken nothing") {
    {
        world<touchy> w;
        w.producer.send(touchy{1});
        auto d = w.take_one();
        touchy::refuses = true;
        CHECK_THROWS_AS(d.take(), std::runtime_error);
        touchy::refuses = false;
        CHECK(d.value().value == 1);
        CHECK(w.queue.stats().in_flight == 1);
        w.sim.advance(30s); // and its lease still ends
        CHECK(w.queue.stats().ready == 1);
        auto again = w.take_one();
        touchy::refuses = true;
        CHECK(again.take().value == 1); // copied, since the old handle is still there
        touchy::refuses = false;
        CHECK(w.queue.stats().acked == 1);
    }
    CHECK(touchy::alive == 0);
}

TEST_CASE("delivery: acknowledged on delivery, there is nothing left to settle") {
    world<std::string> w;
    auto consumer = w.queue.consumer({.ack_mode = railmq::ack_mode::on_delivery});
    w.producer.send(std::string(50, 'x'));
    w.producer.send(std::string(50, 'y'));
    auto d = consumer.try_receive();
    REQUIRE(d);
    CHECK(w.queue.stats().acked == 1);
    CHECK(w.queue.stats().in_flight == 0);
    CHECK_FALSE(d->ack());
    CHECK_FALSE(d->nack());
    CHECK_FALSE(d->reject());
    CHECK_FALSE(d->release());
    CHECK_FALSE(d->extend(1s));
    CHECK(d->value() == std::string(50, 'x'));
    w.sim.advance(1h);
    CHECK(w.queue.stats().deadlines_passed == 0);
    consumer.close(); // it is not given back
    CHECK(w.queue.stats().ready == 1);
    CHECK(d->value() == std::string(50, 'x'));
    d.reset();
    CHECK(w.queue.stats().acked == 1);
    CHECK(w.queue.stats().settled_through == 1);
}

TEST_CASE("delivery: taken on delivery") {
    world<std::unique_ptr<int>> w;
    auto consumer = w.queue.consumer({.ack_mode = railmq::ack_mode::on_delivery});
    w.producer.send(std::make_unique<int>(3));
    CHECK(*consumer.try_receive()->take() == 3);
    CHECK(w.queue.stats().acked == 1);
}

TEST_CASE("delivery: ack_all and nack_all of a mixed lot") {
    world<int> w;
    for (int n = 1; n <= 6; ++n) {
        w.producer.send(n, n % 2 == 0 ? railmq::properties{.key = "k"} : railmq::properties{});
    }
    auto other = w.queue.consumer();
    auto all = w.consumer.receive_batch(3, 0s);
    for (auto& d : other.receive_batch(3, 0s)) {
        all.push_back(std::move(d));
    }
    all[1].ack();
    all.emplace_back();
    CHECK(railmq::ack_all(all) == 5);
    CHECK(all.empty());
    CHECK(w.queue.stats().acked == 6);
    CHECK(railmq::ack_all(all) == 0);
    w.producer.send(7);
    all = w.consumer.receive_batch(3, 0s);
    CHECK(railmq::nack_all(all) == 1);
    CHECK(w.queue.stats().ready == 1);
}

TEST_CASE("delivery: keeps its queue alive") {
    std::optional<railmq::delivery<std::string>> d;
    {
        railmq::broker broker;
        auto queue = broker.queue<std::string>("q");
        queue.producer().send(std::string(100, 'x'));
        auto consumer = queue.consumer();
        d = consumer.try_receive();
    }
    REQUIRE(d);
    CHECK(d->value().size() == 100);
}
