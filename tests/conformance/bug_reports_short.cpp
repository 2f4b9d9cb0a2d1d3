// SPDX-License-Identifier: BSL-1.0
//
// Faults that other message systems had in public and that take a few lines to tell, as far as
// they concern one queue in memory. Where the report is about the subscribers of a topic, several
// queues or a redelivery stand for them here. Those about handlers and threads are in
// bug_reports_handlers.cpp and bug_reports_threads.cpp.
#include <railmq/railmq.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::test::imbalance;
using railmq::test::numbers;
using railmq::test::take_all;

namespace {

[[nodiscard]] time_point at(railmq::duration d) {
    return time_point{d};
}

const railmq::retry_policy at_once{.backoff = railmq::constant_backoff{.delay = 0s}};

using receive_handler = std::function<void(error_code, railmq::sim_delivery<int>)>;

} // namespace

TEST_CASE("[BX02] nobody can change a message for those who get it later") {
    STATIC_REQUIRE(std::is_same_v<
                   decltype(std::declval<railmq::delivery<std::string>&>().value()),
                   const std::string&>);
    STATIC_REQUIRE(std::is_same_v<
                   decltype(*std::declval<railmq::delivery<std::string>&>()),
                   const std::string&>);
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};

    SECTION("a copy that was changed is not what is delivered again") {
        auto q = broker.queue<std::string>("q", {.retry = at_once});
        auto consumer = q.consumer();
        q.producer().send("x");
        auto d = consumer.try_receive();
        std::string mine = d->value();
        mine = "y";
        d->nack();
        CHECK(take_all(consumer) == std::vector<std::string>{"x"});
    }
    SECTION("what one holder takes out, a former holder still reads") {
        auto q = broker.queue<std::string>("q", {.ack_timeout = 30s});
        auto a = q.consumer();
        auto b = q.consumer();
        q.producer().send("a text that is too long to be stored in the string itself");
        const auto first = a.try_receive();
        sim.advance(30s);
        std::string taken = b.try_receive()->take();
        CHECK(taken == first->value());
        taken.assign("changed");
        CHECK(first->value() == "a text that is too long to be stored in the string itself");
        CHECK(imbalance(q) == "");
    }
    SECTION("a dead letter is apart from what its last holder still reads") {
        auto q = broker.queue<std::string>("q", {.ack_timeout = 30s, .retry = {.max_attempts = 1}});
        auto consumer = q.consumer();
        q.producer().send("a text that is too long to be stored in the string itself");
        const auto first = consumer.try_receive();
        sim.advance(30s);
        auto dead = broker.queue<std::string>("q.dead").consumer();
        auto letter = dead.try_receive();
        REQUIRE(letter);
        CHECK(&letter->value() != &first->value());
        CHECK(letter->take() == first->value());
        CHECK(first->value().size() > 40);
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[BX03] each queue gets the full message, and a move-only one passes through") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    SECTION("an lvalue is copied, and stays what it was") {
        const std::string text(100, 'x');
        for (const char* name : {"a", "b", "c"}) {
            broker.queue<std::string>(name).producer().send(text);
        }
        CHECK(text == std::string(100, 'x'));
        for (const char* name : {"a", "b", "c"}) {
            auto consumer = broker.queue<std::string>(name).consumer();
            CHECK(take_all(consumer) == std::vector{text});
        }
    }
    SECTION("an rvalue is moved, and a type that only moves is as good as any") {
        auto q = broker.queue<std::unique_ptr<std::string>>(
            "q", {.ack_timeout = 30s, .retry = {.max_attempts = 3, .backoff = at_once.backoff}});
        auto consumer = q.consumer();
        q.producer().send(std::make_unique<std::string>("full"));
        CHECK(consumer.try_receive()->nack());
        sim.advance(1s);
        CHECK(consumer.try_receive()->nack(5s));
        sim.advance(5s);
        CHECK(*consumer.try_receive()->value() == "full");
        CHECK(q.stats().dead_lettered == 1); // destroyed unsettled: the third failure
        auto dead = broker.queue<std::unique_ptr<std::string>>("q.dead").consumer();
        CHECK(*dead.try_receive()->take() == "full");
        CHECK(imbalance(q) == "");
    }
    SECTION("whoever holds on to a lost lease keeps a move-only message where it is") {
        auto q = broker.queue<std::unique_ptr<int>>("q", {.ack_timeout = 30s});
        auto a = q.consumer();
        auto b = q.consumer();
        q.producer().send(std::make_unique<int>(7));
        auto first = a.try_receive();
        sim.advance(30s);
        auto second = b.try_receive();
        CHECK_THROWS_AS(second->take(), railmq::system_error);
        CHECK(*first->value() == 7);
        first.reset();
        CHECK(*second->take() == 7);
        CHECK(imbalance(q) == "");
    }
}

TEST_CASE("[BX04] an empty message is a message, and an empty key is a key") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>("q", {.retry = at_once});
    auto raw = broker.queue<railmq::bytes>("raw");
    auto consumer = q.consumer();
    auto producer = q.producer();
    producer.send("");
    producer.send("", railmq::properties{.key = ""});
    producer.send("", railmq::properties{.delay = 1s});
    raw.producer().send(std::string_view{});

    auto plain = consumer.try_receive();
    REQUIRE(plain);
    CHECK(plain->value().empty());
    CHECK_FALSE(plain->key());
    auto keyed = consumer.try_receive();
    REQUIRE(keyed);
    CHECK(keyed->value().empty());
    REQUIRE(keyed->key());
    CHECK(keyed->key()->empty());
    CHECK_FALSE(consumer.try_receive());
    sim.advance(1s);
    CHECK(consumer.try_receive()->value().empty());
    auto bytes = raw.consumer();
    CHECK(bytes.try_receive()->value().size() == 0);

    CHECK(plain->reject());
    CHECK(keyed->reject());
    auto dead = broker.queue<std::string>("q.dead").consumer();
    auto first = dead.try_receive();
    auto second = dead.try_receive();
    REQUIRE(second);
    CHECK(first->value().empty());
    CHECK_FALSE(first->key());
    CHECK(second->value().empty());
    REQUIRE(second->key());
    CHECK(second->key()->empty());
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX04] an empty key is one key among others for the order by key") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.order = railmq::delivery_order::by_key});
    auto consumer = q.consumer();
    auto producer = q.producer();
    producer.send(1, railmq::properties{.key = ""});
    producer.send(2, railmq::properties{.key = ""});
    producer.send(3);
    producer.send(4);
    auto one = consumer.try_receive();
    CHECK(one->value() == 1);
    auto three = consumer.try_receive();
    CHECK(three->value() == 3);
    auto four = consumer.try_receive();
    CHECK(four->value() == 4);
    CHECK_FALSE(consumer.try_receive());
    CHECK(imbalance(q) == "");
    CHECK(one->ack());
    CHECK(consumer.try_receive()->value() == 2);
}

// Positions in files come with the journal.
TEST_CASE("[BX05] numbers above 32 bits are not cut") {
    constexpr std::size_t beyond = (std::size_t{1} << 32) + 3;
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    STATIC_REQUIRE(sizeof(railmq::receipt::id) == 8);
    auto q = broker.queue<int>(
        "q",
        {.max_length = beyond,
         .max_bytes = beyond,
         .overflow = railmq::overflow_policy::reject,
         .ack_timeout = std::chrono::milliseconds{beyond}});
    auto consumer = q.consumer({.prefetch = beyond});
    CHECK(q.producer().send_batch(numbers(1, 10)) == 10);
    q.producer().send(11, railmq::properties{.delay = std::chrono::milliseconds{beyond}});
    q.producer().send(12, railmq::properties{.time_to_live = std::chrono::milliseconds{beyond}});
    auto held = consumer.receive_batch(beyond, 0s);
    CHECK(held.size() == 11);
    held.back().release();
    held.pop_back();
    sim.advance(std::chrono::milliseconds{beyond} - 1ns);
    CHECK(q.stats().delayed == 1);
    CHECK(q.stats().ready == 1);
    CHECK(q.stats().in_flight == 10);
    CHECK(imbalance(q) == "");
    sim.advance(1ns);
    CHECK(q.stats().delayed == 0);
    CHECK(q.stats().in_flight == 0);
    CHECK(q.stats().ready == 11);
    CHECK(q.stats().dead_lettered == 1);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX12] a deadline and an acknowledgement at one instant: the message is done once") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<std::string>("q", {.ack_timeout = 30s});
    auto a = q.consumer();
    auto b = q.consumer();
    q.producer().send("payload");
    std::optional<railmq::sim_delivery<std::string>> other;
    SECTION("just before") {
        auto d = a.try_receive();
        sim.advance(30s - 1ns);
        CHECK(d->ack());
        sim.advance(1h);
    }
    SECTION("at the instant, and nobody waits") {
        auto d = a.try_receive();
        bool won = false;
        sim.async_wait(30s, [&](error_code) { won = d->ack(); });
        sim.advance(30s);
        sim.advance(1h);
        CHECK(won);
        CHECK(q.stats().deadlines_passed == 1);
    }
    SECTION("at the instant, and somebody waits: he has it, with its payload") {
        auto d = a.try_receive();
        b.async_receive([&](error_code ec, railmq::sim_delivery<std::string> got) {
            REQUIRE_FALSE(ec);
            other = std::move(got);
        });
        bool won = true;
        sim.async_wait(30s, [&](error_code) { won = d->ack(); });
        sim.advance(30s);
        CHECK_FALSE(won);
        REQUIRE(other);
        CHECK(other->value() == "payload");
        CHECK(other->ack());
    }
    CHECK(q.stats().acked == 1);
    CHECK(q.stats().ready + q.stats().delayed + q.stats().in_flight == 0);
    CHECK_FALSE(a.try_receive());
    CHECK_FALSE(b.try_receive());
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX13] a long delay is long") {
    constexpr auto year = std::chrono::hours{24 * 365};
    const auto delay = GENERATE(
        railmq::duration{std::chrono::milliseconds{(1LL << 31) - 1}},
        railmq::duration{std::chrono::milliseconds{1LL << 31}},
        railmq::duration{std::chrono::milliseconds{(1LL << 32) + 5}},
        railmq::duration{100 * std::chrono::hours{24 * 365}});
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    SECTION("of a message") {
        q.producer().send(1, railmq::properties{.delay = delay});
    }
    SECTION("of a retry") {
        q.producer().send(1);
        CHECK(consumer.try_receive()->nack(delay));
    }
    CHECK_FALSE(consumer.try_receive());
    sim.advance(delay - 1ns);
    CHECK_FALSE(consumer.try_receive());
    CHECK(imbalance(q) == "");
    sim.advance(1ns);
    CHECK(take_all(consumer) == numbers(1, 1));

    // What no clock can count to never comes, instead of at once.
    auto late = broker.queue<int>("late", {.ack_timeout = railmq::duration::max()});
    auto reader = late.consumer();
    late.producer().send(1, railmq::properties{.delay = railmq::duration::max()});
    late.producer().send(2, railmq::properties{.time_to_live = railmq::duration::max()});
    late.producer().send(3);
    auto held = reader.try_receive();
    CHECK(held->value() == 2);
    CHECK(reader.try_receive()->nack(std::chrono::hours::max()));
    CHECK(held->extend(std::chrono::years::max()));
    sim.advance(100 * year);
    CHECK_FALSE(reader.try_receive());
    CHECK(late.stats().delayed == 2);
    CHECK(late.stats().in_flight == 1);
    CHECK(held->ack());
    CHECK(imbalance(late) == "");
}

TEST_CASE("[BX13] a wait longer than any clock waits, and no longer than for the message") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    q.producer().send(1, railmq::properties{.delay = 5s});
    CHECK(consumer.receive(std::chrono::hours::max())->ack());
    CHECK(sim.now() == at(5s));
    q.producer().send(2, railmq::properties{.delay = 5s});
    CHECK(consumer.receive(std::chrono::duration<double>{1e300})->ack());
    CHECK(sim.now() == at(10s));
}

// There are no priorities yet: equal messages are all there are.
TEST_CASE("[BX14] messages of equal rank keep the order in which they were sent") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.retry = {.max_attempts = 0, .backoff = at_once.backoff}});
    auto consumer = q.consumer();
    q.producer().send_batch(numbers(1, 8));
    auto held = consumer.receive_batch(5, 0s);
    for (const std::size_t i : {3U, 0U, 4U, 1U}) {
        CHECK(held[i].nack());
        CHECK(imbalance(q) == "");
    }
    CHECK(held[2].ack());
    CHECK(take_all(consumer) == std::vector<int>{1, 2, 4, 5, 6, 7, 8});

    q.producer().send_batch(numbers(11, 400));
    for (int round = 0; round < 200; ++round) {
        auto some = consumer.receive_batch(1 + sim.random()() % 50, 0s);
        while (!some.empty()) {
            const auto i = static_cast<std::ptrdiff_t>(sim.random()() % some.size());
            some[static_cast<std::size_t>(i)].nack();
            some.erase(some.begin() + i);
        }
        if (round % 10 == 9) {
            std::vector<int> first;
            for (int i = 0; i < 15; ++i) {
                auto d = consumer.try_receive();
                first.push_back(d->value());
                d->ack();
            }
            REQUIRE(first == numbers(11 + round / 10 * 15, 25 + round / 10 * 15));
        }
    }
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX16] a queue is not drained while somebody holds a message") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    q.producer().send(1);
    auto d = consumer.try_receive();
    CHECK(q.stats().ready == 0);
    CHECK(q.stats().in_flight == 1);
    CHECK_FALSE(q.drain(railmq::drain_for(1s)));
    CHECK(sim.now() == at(1s));
    sim.async_wait(4s, [&](error_code) { d->ack(); });
    CHECK(q.drain(railmq::drain_for(60s)));
    CHECK(sim.now() == at(5s));
    q.producer().send(2, railmq::properties{.delay = 1h});
    CHECK_FALSE(q.drain(railmq::drain_for(1s)));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX17] what was set aside comes back, in order, however the pass ends") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.retry = at_once});
    auto consumer = q.consumer();
    q.producer().send_batch(numbers(1, 3));
    SECTION("released one by one") {
        auto held = consumer.receive_batch(3, 0s);
        for (auto& d : held) {
            CHECK(d.release());
        }
    }
    SECTION("dropped by an early return") {
        const auto look = [&] {
            auto a = consumer.try_receive();
            auto b = consumer.try_receive();
            if (b->value() == 2) {
                return;
            }
            FAIL("unreachable");
        };
        look();
    }
    SECTION("dropped by an exception") {
        const auto look = [&] {
            auto held = consumer.receive_batch(3, 0s);
            throw std::runtime_error{"no"};
        };
        CHECK_THROWS_AS(look(), std::runtime_error);
    }
    SECTION("overwritten by the next batch") {
        std::vector<railmq::sim_delivery<int>> held;
        for (int i = 0; i < 5; ++i) {
            consumer.receive_batch(held, 2, 0s);
            CHECK(imbalance(q) == "");
        }
    }
    SECTION("passed over by a choice of what to move") {
        auto to = broker.queue<int>("to");
        CHECK(q.redrive(to, {}, [](const int& n) { return n > 3; }) == 0);
        CHECK(to.stats().accepted == 0);
    }
    SECTION("shown only") {
        CHECK(q.peek(3).size() == 3);
    }
    CHECK(q.stats().ready == 3);
    CHECK(imbalance(q) == "");
    CHECK(take_all(consumer) == numbers(1, 3));
}

TEST_CASE("[BX19] what is taken and never finished comes back") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>(
        "q", {.ack_timeout = 30s, .retry = {.backoff = railmq::constant_backoff{.delay = 5s}}});
    auto other = q.consumer();
    auto consumer = q.consumer();
    q.producer().send(1);
    auto d = consumer.try_receive();
    SECTION("held for ever") {
        sim.advance(30s - 1ns);
        CHECK_FALSE(other.try_receive());
        sim.advance(1ns);
    }
    SECTION("dropped: a failure, so after the backoff") {
        d.reset();
        sim.advance(5s - 1ns);
        CHECK_FALSE(other.try_receive());
        sim.advance(1ns);
    }
    SECTION("its consumer is gone: at once") {
        consumer.close();
    }
    SECTION("its consumer was cancelled: it is still held, until the lease ends") {
        consumer.cancel();
        sim.advance(30s - 1ns);
        CHECK_FALSE(other.try_receive());
        sim.advance(1ns);
    }
    auto again = other.try_receive();
    REQUIRE(again);
    CHECK(again->delivery_count() == 2);
    CHECK(again->redelivered());
    CHECK(again->ack());
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX21] unacknowledged messages are bounded") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer({.prefetch = 1000});
    q.producer().send_batch(numbers(1, 2500));
    std::vector<railmq::sim_delivery<int>> held;
    const auto take = [&] {
        while (auto d = consumer.try_receive()) {
            held.push_back(std::move(*d));
        }
    };
    take();
    CHECK(held.size() == 1000);
    CHECK(consumer.in_flight() == 1000);
    CHECK(q.stats().in_flight == 1000);
    CHECK(q.stats().ready == 1500);
    error_code ec;
    CHECK_FALSE(consumer.receive(1s, ec));
    CHECK(ec == errc::timed_out);
    for (std::size_t i = 0; i < 500; ++i) {
        CHECK(held[i].ack());
    }
    take();
    CHECK(held.size() == 1500);
    CHECK(consumer.in_flight() == 1000);
    CHECK(imbalance(q) == "");
    consumer.close();
    CHECK(q.stats().in_flight == 0);
    CHECK(q.stats().consumers == 0);
    CHECK(q.stats().ready == 2000);
    held.clear();
    auto next = q.consumer();
    CHECK(take_all(next) == numbers(501, 2500));
    CHECK(imbalance(q) == "");
    CHECK(q.stats().settled_through == 2500);
}

TEST_CASE("[BX21] the memory of a queue does not grow with what has left it") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.retry = at_once});
    auto consumer = q.consumer();
    q.producer().send(0);
    auto stuck = consumer.try_receive();
    std::uint64_t most = 0;
    for (int round = 0; round < 200; ++round) {
        q.producer().send_batch(numbers(1, 100));
        auto some = consumer.receive_batch(99, 0s);
        for (std::size_t i = 0; i < some.size(); i += 2) {
            some[i].nack();
        }
        railmq::ack_all(some);
        (void)take_all(consumer);
        if (round == 50) {
            most = q.stats().memory_bytes;
        }
        stuck->extend(30s);
        sim.advance(1s);
    }
    CHECK(q.stats().in_flight == 1);
    CHECK(q.stats().memory_bytes <= 2 * most);
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX22] not to wait means not to wait") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q");
    auto consumer = q.consumer();
    error_code ec;
    CHECK_FALSE(consumer.try_receive(ec));
    CHECK(ec == errc::would_block);
    CHECK_FALSE(consumer.receive(0s, ec));
    CHECK(consumer.receive_batch(10, 0s).empty());
    CHECK_FALSE(consumer.receive(-4s, ec));
    CHECK(sim.now() == at(0s));
    q.close();
    CHECK_FALSE(consumer.receive(4s, ec));
    CHECK(ec == errc::closed);
    CHECK(sim.now() == at(0s));
    auto full = broker.queue<int>("full", {.max_length = 1});
    full.producer().send(1);
    CHECK_FALSE(full.producer().try_send(2));
    CHECK(sim.now() == at(0s));
}

TEST_CASE("[BX23] a send right after a cancelled wait") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.max_length = 16});
    auto consumer = q.consumer();
    boost::asio::cancellation_signal signal;
    std::optional<error_code> result;
    std::optional<int> got;
    const receive_handler handler = [&](error_code ec, railmq::sim_delivery<int> d) {
        result = ec;
        if (!ec) {
            got = d.value();
            d.release();
        }
    };
    const auto cancel = [&] { signal.emit(boost::asio::cancellation_type::terminal); };
    consumer.async_receive(boost::asio::bind_cancellation_slot(signal.slot(), handler));
    CHECK(q.stats().waiting_receivers == 1);
    SECTION("cancel, then send: it is in the queue") {
        cancel();
        CHECK(q.producer().try_send(7));
        CHECK_FALSE(result);
        sim.run_ready();
        CHECK(result == boost::asio::error::operation_aborted);
    }
    SECTION("send, then cancel: the message is there, or with the one who waited") {
        CHECK(q.producer().try_send(7));
        cancel();
        sim.run_ready();
        CHECK((got == 7 || result == boost::asio::error::operation_aborted));
    }
    SECTION("cancel, send and receive in one go") {
        cancel();
        CHECK(q.producer().try_send(7));
        CHECK(consumer.try_receive()->release());
        sim.run_ready();
    }
    CHECK(q.stats().waiting_receivers == 0);
    CHECK(q.stats().ready == 1);
    CHECK(take_all(consumer) == numbers(7, 7));
    CHECK(imbalance(q) == "");
}

TEST_CASE("[BX23] a receive right after a cancelled send") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<int>("q", {.max_length = 1});
    auto producer = q.producer();
    auto consumer = q.consumer();
    producer.send(1);
    boost::asio::cancellation_signal signal;
    std::optional<error_code> result;
    producer.async_send(
        2,
        boost::asio::bind_cancellation_slot(
            signal.slot(),
            std::function<void(error_code, railmq::receipt)>{
                [&](error_code ec, railmq::receipt) { result = ec; }}));
    CHECK(q.stats().waiting_senders == 1);
    signal.emit(boost::asio::cancellation_type::total);
    CHECK(q.stats().waiting_senders == 0);
    CHECK(take_all(consumer) == numbers(1, 1));
    CHECK(producer.try_send(3));
    sim.run_ready();
    CHECK(result == boost::asio::error::operation_aborted);
    CHECK(take_all(consumer) == numbers(3, 3));
    CHECK(imbalance(q) == "");
}
