// SPDX-License-Identifier: BSL-1.0
//
// Settling messages: each exactly once, by its holder, and never by accident.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

// One type for all of a kind: each new one is compiled anew, all the way down.
using plain_handler = std::function<void(const int&)>;
using coroutine_handler = std::function<boost::asio::awaitable<void>(const int&)>;

} // namespace

TEMPLATE_TEST_CASE(
    "ack twice: the second call settles nothing [B01]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<std::string>(world, "q");
    queue.producer().send("a");
    queue.producer().send("b");
    auto consumer = queue.consumer();
    auto a = consumer.try_receive();
    REQUIRE(a);
    CHECK(a->value() == "a");
    CHECK(a->ack());
    CHECK_FALSE(a->ack());
    CHECK_FALSE(bool{*a}); // it says that it is settled
    CHECK(queue.stats().acked == 1);
    CHECK(queue.stats().in_flight == 0);
    CHECK(queue.stats().ready == 1);
    CHECK(take_all(consumer) == std::vector<std::string>{"b"});
}

TEMPLATE_TEST_CASE(
    "ack after nack and nack after ack undo nothing [B02]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.retry = at_once()});
    queue.producer().send(1);
    auto consumer = queue.consumer();

    auto first = consumer.try_receive();
    REQUIRE(first);
    CHECK(first->nack());
    CHECK_FALSE(first->ack());
    CHECK(queue.stats().acked == 0);
    CHECK(queue.stats().ready == 1);

    auto second = consumer.try_receive();
    REQUIRE(second);
    CHECK(second->delivery_count() == 2);
    CHECK(second->failure_count() == 1);
    CHECK(second->ack());
    CHECK_FALSE(second->nack());
    CHECK_FALSE(second->nack(0s));
    CHECK_FALSE(second->reject());
    CHECK_FALSE(second->release());
    CHECK_FALSE(consumer.try_receive());
    CHECK(queue.stats().acked == 1);
    CHECK(queue.stats().failed == 1);
}

TEMPLATE_TEST_CASE(
    "what is acked is not redelivered by a later nack [B03]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.retry = at_once()});
    send_range(queue, 1, 10);
    auto consumer = queue.consumer();
    {
        auto all = consumer.receive_batch(10, 0s);
        REQUIRE(all.size() == 10);
        for (auto& d : all) {
            CHECK(d.ack());
        }
        for (auto& d : all) {
            CHECK_FALSE(d.nack());
            CHECK_FALSE(d.nack(0s));
        }
    } // nor by the end of the handles
    if constexpr (std::is_same_v<TestType, simulated_world>) {
        world.advance(24h);
    }
    CHECK_FALSE(consumer.try_receive());
    CHECK(queue.stats().acked == 10);
    CHECK(queue.stats().failed == 0);
    CHECK(queue.stats().redelivered == 0);
}

TEMPLATE_TEST_CASE(
    "a handle that holds nothing settles nothing [B04]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<std::string>(world, "q");
    queue.producer().send("kept");
    auto consumer = queue.consumer();

    // Handles cannot be forged; these are all that can refer to no message.
    delivery_in<std::string, TestType> never_held;
    auto held = consumer.try_receive();
    REQUIRE(held);
    auto moved_to = std::move(*held);
    delivery_in<std::string, TestType>* nothings[]{&never_held, &*held};
    for (auto* nothing : nothings) {
        CHECK_FALSE(bool{*nothing});
        CHECK_FALSE(nothing->ack());
        CHECK_FALSE(nothing->nack());
        CHECK_FALSE(nothing->reject("x"));
        CHECK_FALSE(nothing->release());
        CHECK_FALSE(nothing->extend(1h));
        try {
            (void)nothing->value();
            FAIL("value() of nothing must throw");
        } catch (const railmq::system_error& e) {
            CHECK(e.code() == errc::stale_delivery);
        }
        CHECK(queue.stats().in_flight == 1);
        CHECK(queue.stats().acked == 0);
    }
    CHECK(moved_to.value() == "kept");
    CHECK(moved_to.release());
    CHECK(take_all(consumer) == std::vector<std::string>{"kept"});
}

TEST_CASE("a handle whose message went to another consumer is stale [B04]") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    const auto queue = broker.queue<std::string>("q", {.ack_timeout = 1s, .retry = at_once()});
    queue.producer().send("kept");
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto old_one = a.try_receive();
    sim.advance(1s);
    auto new_one = b.try_receive();
    REQUIRE(old_one);
    REQUIRE(new_one);
    CHECK_FALSE(old_one->ack());
    CHECK_FALSE(old_one->nack());
    CHECK_FALSE(old_one->extend(1h));
    CHECK(old_one->value() == "kept"); // but it can be read
    CHECK(queue.stats().in_flight == 1);
    CHECK(queue.stats().stale_settlements >= 1);
    old_one.reset();
    CHECK(new_one->value() == "kept");
    CHECK(new_one->ack());
    CHECK(queue.stats().acked == 1);
}

TEMPLATE_TEST_CASE(
    "ack_all counts what this call settled [B05]", "", threaded_world, simulated_world) {
    TestType world;
    const auto check = [&]<class T>(const std::string& name, T one, T two) {
        const auto queue = open<T>(world, name);
        queue.producer().send(one);
        queue.producer().send(two);
        auto consumer = queue.consumer();
        auto both = consumer.receive_batch(2, 0s);
        REQUIRE(both.size() == 2);
        CHECK(both[0].ack());
        CHECK_FALSE(both[0].ack()); // 0 of one
        CHECK(railmq::ack_all(both) == 1);
        CHECK(both.empty());
        CHECK(railmq::ack_all(both) == 0);
        CHECK(queue.stats().acked == 2);
        CHECK(queue.stats().in_flight == 0);
    };
    SECTION("a message that is plain data") {
        check.template operator()<int>("plain", 1, 2);
    }
    SECTION("a message with a destructor") {
        check.template operator()<std::string>("string", "one", "two");
    }
}

TEMPLATE_TEST_CASE(
    "consumer.ack_all with one empty delivery settles none [B06]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 2);
    auto consumer = queue.consumer();
    railmq::error_code ec;

    auto batch = consumer.receive_batch(1, 0s);
    batch.emplace_back(); // holds nothing
    CHECK(consumer.ack_all(batch, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    REQUIRE(batch.size() == 2);
    CHECK(bool{batch[0]});
    CHECK(queue.stats().in_flight == 1);
    CHECK(queue.stats().acked == 0);

    // One that was settled before is just as wrong here, wherever it stands.
    batch.pop_back();
    auto settled = consumer.try_receive();
    REQUIRE(settled);
    CHECK(settled->ack());
    batch.insert(batch.begin(), std::move(*settled));
    CHECK(consumer.ack_all(batch, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    CHECK(queue.stats().in_flight == 1);

    batch.erase(batch.begin());
    CHECK(consumer.ack_all(batch, ec) == 1);
    CHECK_FALSE(ec);
    CHECK(batch.empty());
    CHECK(queue.stats().in_flight == 0);
    CHECK(queue.stats().acked == 2);
}

TEMPLATE_TEST_CASE(
    "a batch with a bad end leaves its good part held [B07]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 5, 19);
    auto consumer = queue.consumer();
    auto batch = consumer.receive_batch(15, 0s);
    REQUIRE(batch.size() == 15);
    // 16 to 19 are settled by themselves, so a batch that names them again is wrong as a whole.
    for (std::size_t n = 11; n < batch.size(); ++n) {
        CHECK(batch[n].ack());
    }
    railmq::error_code ec;
    CHECK(consumer.ack_all(batch, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    CHECK(consumer.in_flight() == 11);
    batch.resize(11);
    CHECK(consumer.ack_all(batch, ec) == 11);
    CHECK(consumer.in_flight() == 0);
}

TEMPLATE_TEST_CASE(
    "ack_all of another consumer's delivery is refused [B08]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 2);
    auto a = queue.consumer();
    auto b = queue.consumer();
    auto batch = a.receive_batch(1, 0s);
    auto others = b.receive_batch(1, 0s);
    REQUIRE(batch.size() == 1);
    REQUIRE(others.size() == 1);
    const auto deadline = others[0].ack_deadline();
    REQUIRE(deadline);

    batch.push_back(std::move(others[0]));
    railmq::error_code ec;
    CHECK(a.ack_all(batch, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    CHECK(a.in_flight() == 1);
    CHECK(b.in_flight() == 1);
    REQUIRE(batch.size() == 2);
    CHECK(batch[1].ack_deadline() == deadline); // untouched
    CHECK(batch[1].ack());
    CHECK(b.in_flight() == 0);
}

TEMPLATE_TEST_CASE(
    "nack_all settles all, nack the one [B09]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.retry = at_once()});
    send_range(queue, 1, 3);
    auto consumer = queue.consumer();
    SECTION("one") {
        auto batch = consumer.receive_batch(3, 0s);
        REQUIRE(batch.size() == 3);
        CHECK(batch[2].nack());
        CHECK(consumer.in_flight() == 2);
        CHECK(queue.stats().failed == 1);
        CHECK(bool{batch[0]});
        CHECK(bool{batch[1]});
        auto again = consumer.try_receive();
        REQUIRE(again);
        CHECK(again->value() == 3);
    }
    SECTION("all") {
        auto batch = consumer.receive_batch(3, 0s);
        REQUIRE(batch.size() == 3);
        CHECK(railmq::nack_all(batch) == 3);
        CHECK(batch.empty());
        CHECK(consumer.in_flight() == 0);
        CHECK(queue.stats().failed == 3);
        CHECK(take_all(consumer) == numbers(1, 3));
    }
    SECTION("all but those that were settled before") {
        auto batch = consumer.receive_batch(3, 0s);
        REQUIRE(batch.size() == 3);
        CHECK(batch[1].ack());
        CHECK(railmq::nack_all(batch) == 2);
        CHECK(take_all(consumer) == std::vector<int>{1, 3});
    }
}

TEMPLATE_TEST_CASE(
    "settled_through waits for the first gap and then jumps [B10]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 4);
    auto consumer = queue.consumer();
    auto batch = consumer.receive_batch(4, 0s);
    REQUIRE(batch.size() == 4);
    CHECK(queue.stats().settled_through == 0);
    CHECK(batch[1].ack());
    CHECK(batch[2].ack());
    CHECK(queue.stats().settled_through == 0);
    CHECK(batch[0].ack());
    CHECK(queue.stats().settled_through == 3);
    CHECK(batch[3].ack());
    CHECK(queue.stats().settled_through == 4);
}

TEMPLATE_TEST_CASE(
    "a rejected message never comes again, and a notice says why [B11]",
    "",
    threaded_world,
    simulated_world) {
    std::vector<railmq::notices::dead_lettered> seen;
    railmq::broker_options options;
    options.observer = railmq::on<railmq::notices::dead_lettered>([&](const auto& n) {
        CHECK(n.queue == "work");
        seen.push_back(n);
    });
    TestType world{std::move(options)};
    const auto queue = open<int>(world, "work", {.retry = at_once()});
    const std::uint64_t id = queue.producer().send(1).id;
    queue.producer().send(2);
    auto consumer = queue.consumer();

    auto first = consumer.try_receive();
    REQUIRE(first);
    CHECK(first->nack());
    auto second = consumer.try_receive();
    REQUIRE(second);
    CHECK(second->value() == 1);
    CHECK(second->delivery_count() == 2);
    CHECK(second->id() == id);
    CHECK(seen.empty());
    CHECK(second->reject("no such customer"));

    REQUIRE(seen.size() == 1);
    CHECK(seen[0].id == id);
    CHECK(seen[0].delivery_count == 2);
    CHECK(seen[0].detail == "no such customer");
    CHECK(seen[0].reason == railmq::death_reason::rejected);
    CHECK(seen[0].target == "work.dead");

    CHECK(take_all(consumer) == std::vector<int>{2});
    CHECK(queue.stats().dead_lettered == 1);
    auto dead = open<int>(world, "work.dead").consumer();
    auto letter = dead.try_receive();
    REQUIRE(letter);
    CHECK(letter->value() == 1);
    REQUIRE(letter->deaths().size() == 1);
    CHECK(letter->deaths()[0].detail == "no such customer");
    CHECK(letter->deaths()[0].delivery_count == 2);
}

TEMPLATE_TEST_CASE(
    "a handler that throws loses nothing and stops nothing [B12]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.retry = at_once()});
    std::vector<int> done;
    bool has_thrown = false;

    const auto check = [&](const auto& handler) {
        auto subscription = queue.subscribe(world.executor(), handler);
        send_range(queue, 1, 3);
        world.run();
        CHECK(has_thrown);
        CHECK(queue.stats().failed == 1);
        CHECK(queue.stats().acked == 3);
        CHECK(queue.stats().ready + queue.stats().delayed + queue.stats().in_flight == 0);
        std::sort(done.begin(), done.end());
        CHECK(done == numbers(1, 3));
    };
    SECTION("an exception") {
        check(plain_handler{[&](const int& n) {
            if (n == 1 && !std::exchange(has_thrown, true)) {
                throw std::runtime_error("broken");
            }
            done.push_back(n);
        }});
    }
    SECTION("something that is no exception class") {
        check(plain_handler{[&](const int& n) {
            if (n == 2 && !std::exchange(has_thrown, true)) {
                throw 42; // NOLINT
            }
            done.push_back(n);
        }});
    }
    SECTION("a send that throws") {
        const auto full = open<int>(
            world, "full", {.max_length = 1, .overflow = railmq::overflow_policy::reject});
        full.producer().send(0);
        check(plain_handler{[&](const int& n) {
            if (n == 1 && !std::exchange(has_thrown, true)) {
                full.producer().send(n); // throws queue_full
            }
            done.push_back(n);
        }});
        CHECK(full.stats().ready == 1);
    }
    SECTION("a coroutine, before and after it was suspended") {
        const int bad = GENERATE(1, 2);
        check(coroutine_handler{[&, bad](const int& n) -> boost::asio::awaitable<void> {
            const int number = n;
            if (bad == 1 && number == 1 && !std::exchange(has_thrown, true)) {
                throw std::runtime_error("broken at once");
            }
            co_await boost::asio::post(
                co_await boost::asio::this_coro::executor, boost::asio::use_awaitable);
            if (bad == 2 && number == 2 && !std::exchange(has_thrown, true)) {
                throw std::runtime_error("broken later");
            }
            done.push_back(number);
        }});
    }
}

TEMPLATE_TEST_CASE(
    "a cancelled consumer settles what it holds [B13]", "", threaded_world, simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.retry = at_once()});
    send_range(queue, 1, 3);
    auto consumer = queue.consumer();
    auto batch = consumer.receive_batch(2, 0s);
    REQUIRE(batch.size() == 2);
    consumer.cancel();
    railmq::error_code ec;
    CHECK_FALSE(consumer.try_receive(ec));
    CHECK(ec == errc::closed);
    CHECK(consumer.in_flight() == 2);
    CHECK(batch[0].ack());
    CHECK(batch[1].reject("discarded"));
    CHECK(consumer.in_flight() == 0);
    CHECK(queue.stats().acked == 1);
    CHECK(queue.stats().dead_lettered == 1);
    consumer.close();
    auto other = queue.consumer();
    CHECK(take_all(other) == std::vector<int>{3});
}

TEMPLATE_TEST_CASE(
    "returning what was never delivered changes nothing [B14]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q", {.retry = at_once()});
    send_range(queue, 1, 2);
    std::vector<delivery_in<int, TestType>> nothing(99);
    CHECK(railmq::nack_all(nothing) == 0);
    delivery_in<int, TestType> empty;
    CHECK_FALSE(empty.nack());
    CHECK_FALSE(empty.nack(1s));
    CHECK_FALSE(empty.release());
    CHECK(queue.stats().ready == 2);
    CHECK(queue.stats().failed == 0);
    CHECK(queue.stats().released == 0);
    auto consumer = queue.consumer();
    CHECK(take_all(consumer) == numbers(1, 2));
}

TEMPLATE_TEST_CASE(
    "when a consumer goes, unacked messages come back and acked ones do not [B15]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto queue = open<int>(world, "q");
    send_range(queue, 1, 2);
    SECTION("manual") {
        {
            auto consumer = queue.consumer();
            auto one = consumer.try_receive();
            auto two = consumer.try_receive();
            REQUIRE(one);
            REQUIRE(two);
            CHECK(one->ack());
            consumer.close();
            CHECK_FALSE(two->ack());
        }
        auto next = queue.consumer();
        auto two = next.try_receive();
        REQUIRE(two);
        CHECK(two->value() == 2);
        CHECK(two->redelivered());
        CHECK(two->failure_count() == 0);
        CHECK(two->ack());
        CHECK_FALSE(next.try_receive());
        CHECK(queue.stats().acked == 2);
    }
    SECTION("on delivery") {
        {
            auto consumer = queue.consumer({.ack_mode = railmq::ack_mode::on_delivery});
            auto one = consumer.try_receive();
            auto two = consumer.try_receive();
            REQUIRE(one);
            REQUIRE(two);
            CHECK(queue.stats().acked == 2);
            CHECK(queue.stats().in_flight == 0);
            CHECK_FALSE(two->nack()); // too late: it is gone
            consumer.close();
        }
        auto next = queue.consumer();
        CHECK_FALSE(next.try_receive());
        CHECK(queue.stats().acked == 2);
        CHECK(queue.stats().released == 0);
    }
}
