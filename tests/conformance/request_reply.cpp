// SPDX-License-Identifier: BSL-1.0
//
// Requests and replies: AMQP's reply_to and correlation_id, and the faults of their clients.
#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::test::error_of;
using railmq::test::simulated_world;
using railmq::test::threaded_world;

/// What became of an asynchronous request.
struct result {
    int calls = 0;
    error_code ec{};
    std::optional<std::string> reply{};

    [[nodiscard]] auto handler() {
        return [this](error_code e, std::optional<std::string> r) {
            ++calls;
            ec = e;
            reply = std::move(r);
        };
    }
};

/// Every request is somewhere.
void check_balance(const railmq::requester_stats& s) {
    CHECK(s.sent == s.pending + s.answered + s.timed_out + s.cancelled + s.failed);
}

/// Answers `n` requests of a queue, as their texts in brackets.
template <class Consumer>
void answer(Consumer& from, int n = 1) {
    for (int i = 0; i != n; ++i) {
        auto d = from.try_receive();
        REQUIRE(d);
        railmq::reply(*d, "[" + std::to_string(**d) + "]");
        d->ack();
    }
}

} // namespace

TEMPLATE_TEST_CASE(
    "[BX20] a request is answered, by whoever takes it",
    "[request][BX20]",
    threaded_world,
    simulated_world) {
    TestType world;
    auto queue = railmq::test::open<int>(world, "double");
    auto ask = queue.template requester<std::string>();
    CHECK(ask.is_open());
    CHECK(ask.reply_queue().starts_with("reply-"));
    auto worker = queue.consumer();

    result first;
    result second;
    ask.async_request(1, first.handler());
    ask.async_request(2, second.handler());
    CHECK(ask.stats().pending == 2);

    auto d1 = worker.try_receive();
    auto d2 = worker.try_receive();
    REQUIRE((d1 && d2));
    CHECK(d1->properties().reply_to == ask.reply_queue());
    CHECK(d1->properties().correlation_id != d2->properties().correlation_id);
    railmq::reply(*d2, std::string{"two"}); // in any order
    railmq::reply(*d1, std::string{"one"});
    CHECK(first.calls == 0); // never inside somebody's call
    world.run();
    CHECK(first.calls == 1);
    CHECK(!first.ec);
    CHECK(first.reply == "one");
    CHECK(second.reply == "two");

    SECTION("a second reply to the same request is late") {
        railmq::reply(*d1, std::string{"one more"});
        world.run();
        CHECK(first.calls == 1);
        CHECK(ask.stats().late_replies == 1);
    }
    SECTION("nothing is left") {
        d1->ack();
        d2->ack();
        const auto s = ask.stats();
        CHECK(s == railmq::requester_stats{.pending = 0, .sent = 2, .answered = 2});
        const auto replies = world.broker.template find_queue<std::string>(ask.reply_queue());
        REQUIRE(replies);
        CHECK(replies->stats().ready == 0);
        CHECK(replies->stats().in_flight == 0);
    }
    check_balance(ask.stats());
}

TEST_CASE(
    "[BX20] a reply that is sent within the send of its request finds it", "[request][BX20]") {
    // The responder is synchronous: it answers from the observer, before `send` has returned.
    railmq::simulation sim{1};
    std::optional<railmq::sim_consumer<int>> worker;
    bool busy = false;
    railmq::sim_broker broker{
        sim, {.observer = railmq::on<railmq::notices::sent>([&](const auto& n) {
                  if (n.queue == "q" && worker && !std::exchange(busy, true)) {
                      answer(*worker);
                      busy = false;
                  }
              })}};
    auto queue = broker.queue<int>("q");
    worker = queue.consumer();
    auto ask = queue.requester<std::string>();
    CHECK(ask.request(7) == "[7]");
    CHECK(ask.request(8) == "[8]");
    CHECK(sim.now().time_since_epoch() == 0s);
    CHECK(ask.stats() == railmq::requester_stats{.sent = 2, .answered = 2});
}

TEST_CASE("[BX20] a reply after the timeout is ignored and counted", "[request][BX20]") {
    railmq::simulation sim{1};
    std::vector<std::string> late;
    railmq::sim_broker broker{
        sim, {.observer = railmq::on<railmq::notices::late_reply>([&](const auto& n) {
                  late.push_back(n.correlation_id);
              })}};
    auto queue = broker.queue<int>("q");
    auto worker = queue.consumer();
    auto ask = queue.requester<std::string>({.timeout = 1s});

    result r;
    ask.async_request(1, r.handler());
    sim.advance(999ms);
    CHECK(r.calls == 0);
    sim.advance(1ms);
    CHECK(r.calls == 1);
    CHECK(r.ec == errc::timed_out);
    CHECK(!r.reply);
    CHECK(ask.stats().pending == 0);

    sim.advance(1s);
    auto d = worker.try_receive();
    REQUIRE(d);
    const std::string id = d->properties().correlation_id;
    railmq::reply(*d, std::string{"too late"});
    sim.run_ready();
    CHECK(r.calls == 1);
    CHECK(ask.stats() == railmq::requester_stats{.sent = 1, .timed_out = 1, .late_replies = 1});
    CHECK(late == std::vector{id});
    CHECK(broker.find_queue<std::string>(ask.reply_queue())->stats().ready == 0);
}

TEST_CASE("[BX20] nothing is left of a thousand timeouts", "[request][BX20]") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto ask = queue.requester<std::string>({.timeout = 1s});
    std::vector<result> all(1000);
    for (std::size_t i = 0; i != all.size(); ++i) {
        ask.async_request(static_cast<int>(i), all[i].handler());
        sim.advance(1ms);
    }
    CHECK(ask.stats().pending == 999); // the first one has just timed out
    sim.advance(1s);
    CHECK(ask.stats() == railmq::requester_stats{.sent = 1000, .timed_out = 1000});
    for (const result& r : all) {
        CHECK((r.calls == 1 && r.ec == errc::timed_out));
    }
    // And of a thousand that block.
    for (int i = 0; i != 1000; ++i) {
        error_code ec;
        CHECK(!ask.request(i, {}, 1ms, ec));
        REQUIRE(ec == errc::timed_out);
    }
    CHECK(ask.stats() == railmq::requester_stats{.sent = 2000, .timed_out = 2000});
}

TEST_CASE("a request that blocks lets the others run until its reply is there", "[request]") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto ask = queue.requester<std::string>();
    auto service = queue.subscribe(
        sim.get_executor(), [&](railmq::sim_delivery<int>& d) -> boost::asio::awaitable<void> {
            co_await sim.async_wait(3s, boost::asio::use_awaitable);
            railmq::reply(d, std::to_string(2 * *d));
        });
    CHECK(ask.request(21) == "42");
    CHECK(sim.now().time_since_epoch() == 3s);

    SECTION("but not for longer than it likes") {
        CHECK(error_of([&] { (void)ask.request(1, {}, 1s); }) == errc::timed_out);
        CHECK(sim.now().time_since_epoch() == 4s);
        sim.advance(10s);
        CHECK(ask.stats().late_replies == 1);
        CHECK(ask.stats().pending == 0);
    }
    SECTION("a coroutine asks as well") {
        std::optional<std::string> reply;
        const auto asks = [&]() -> boost::asio::awaitable<void> {
            reply = co_await ask.async_request(4, boost::asio::use_awaitable);
        };
        sim.spawn(asks());
        sim.advance(2s);
        CHECK(!reply);
        sim.advance(1s);
        CHECK(reply == "8");
    }
}

TEST_CASE("requests and replies of threads", "[request]") {
    railmq::broker broker;
    auto queue = broker.queue<int>("q");
    auto ask = queue.requester<std::string>();
    std::jthread service{[worker = queue.consumer()](std::stop_token stop) mutable {
        while (!stop.stop_requested()) {
            if (auto d = worker.receive(10ms)) {
                railmq::reply(*d, std::to_string(-**d));
                d->ack();
            }
        }
    }};
    std::vector<std::jthread> clients;
    std::vector<int> wrong(4, 0);
    for (int c = 0; c != 4; ++c) {
        clients.emplace_back([&, c] {
            for (int i = 0; i != 200; ++i) {
                const int n = c * 1000 + i;
                if (ask.request(n) != std::to_string(-n)) {
                    ++wrong[static_cast<std::size_t>(c)];
                }
            }
        });
    }
    clients.clear();
    CHECK(wrong == std::vector(4, 0));
    CHECK(ask.stats() == railmq::requester_stats{.sent = 800, .answered = 800});
}

TEMPLATE_TEST_CASE("a request can be cancelled", "[request]", threaded_world, simulated_world) {
    TestType world;
    auto queue = railmq::test::open<int>(world, "q");
    auto ask = queue.template requester<std::string>();
    auto worker = queue.consumer();
    boost::asio::cancellation_signal stop;
    result r;
    ask.async_request(1, boost::asio::bind_cancellation_slot(stop.slot(), r.handler()));
    world.run();
    stop.emit(boost::asio::cancellation_type::total);
    world.run();
    CHECK(r.calls == 1);
    CHECK(r.ec == boost::asio::error::operation_aborted);
    stop.emit(boost::asio::cancellation_type::total); // in vain
    answer(worker);
    world.run();
    CHECK(r.calls == 1);
    CHECK(ask.stats() == railmq::requester_stats{.sent = 1, .cancelled = 1, .late_replies = 1});
}

TEMPLATE_TEST_CASE(
    "the end of a requester ends its requests, and its queue",
    "[request]",
    threaded_world,
    simulated_world) {
    TestType world;
    auto queue = railmq::test::open<int>(world, "q");
    auto worker = queue.consumer();
    auto ask = queue.template requester<std::string>();
    const std::string replies = ask.reply_queue();
    result r;
    ask.async_request(1, r.handler());

    SECTION("closed by itself") {
        ask.close();
        CHECK(!ask.is_open());
        CHECK(!world.broker.template find_queue<std::string>(replies));
        world.run();
        CHECK(r.calls == 1);
        CHECK(r.ec == errc::closed);
        auto d = worker.try_receive();
        REQUIRE(d);
        error_code ec;
        railmq::reply(*d, std::string{"nobody there"}, ec);
        CHECK(ec == errc::not_found);
        CHECK(*d); // to be settled as before
        CHECK(error_of([&] { (void)ask.request(2); }) == errc::closed);
        result none;
        ask.async_request(3, boost::asio::bind_executor(world.executor(), none.handler()));
        CHECK(none.calls == 0);
        world.run();
        CHECK(none.ec == errc::closed);
    }
    SECTION("moved, it is the same") {
        auto moved = std::move(ask);
        answer(worker);
        world.run();
        CHECK(r.reply == "[1]");
        moved = decltype(moved){};
        CHECK(!world.broker.template find_queue<std::string>(replies));
    }
    SECTION("closed with its broker") {
        world.broker.close();
        world.run();
        CHECK(r.calls == 1);
        CHECK(r.ec == errc::closed);
        CHECK(error_of([&] { (void)ask.request(2); }) == errc::closed);
    }
    SECTION("its queue deleted by somebody else") {
        world.broker.delete_queue(replies, true);
        world.run();
        CHECK(r.calls == 1);
        CHECK(r.ec == errc::not_found);
        CHECK(error_of([&] { (void)ask.request(2); }) == errc::not_found);
        check_balance(ask.stats());
    }
}

TEST_CASE("what is wrong with a request or a reply is said, and changes nothing", "[request]") {
    simulated_world world;
    auto queue = world.broker.queue<int>(
        "q", {.max_length = 1, .overflow = railmq::overflow_policy::reject});
    CHECK(error_of([&] {
              (void)queue.requester<std::string>({.timeout = 0s});
          }) == errc::invalid_argument);
    CHECK(error_of([&] {
              (void)queue.requester<std::string>({.max_pending = 0});
          }) == errc::invalid_argument);
    CHECK(error_of([&] {
              (void)queue.requester<std::string>({.reply_queue = "a b\n"});
          }) == errc::invalid_name);
    CHECK(world.broker.names() == std::vector<std::string>{"q", "q.dead"});
    auto numbers = world.broker.queue<double>("numbers");
    CHECK(error_of([&] {
              (void)queue.requester<std::string>({.reply_queue = "numbers"});
          }) == errc::type_mismatch);

    auto ask = queue.requester<std::string>({.max_pending = 2});
    CHECK(error_of([&] {
              (void)ask.request(1, {.correlation_id = "mine"});
          }) == errc::invalid_argument);
    CHECK(error_of([&] { (void)ask.request(1, {.reply_to = "mine"}); }) == errc::invalid_argument);
    result bad;
    ask.async_request(1, {.reply_to = "mine"}, 1s, bad.handler());
    world.run();
    CHECK(bad.ec == errc::invalid_argument);
    CHECK(ask.stats() == railmq::requester_stats{});
    CHECK(queue.stats().ready == 0);

    result fills;
    result full;
    ask.async_request(1, fills.handler());
    ask.async_request(2, full.handler()); // the queue has room for one
    world.run();
    CHECK(fills.calls == 0);
    CHECK(full.ec == errc::queue_full);
    CHECK(error_of([&] { (void)ask.request(3); }) == errc::queue_full);
    CHECK(ask.stats() == railmq::requester_stats{.pending = 1, .sent = 3, .failed = 2});

    auto worker = queue.consumer();
    auto d = worker.try_receive();
    REQUIRE(d);
    result second;
    ask.async_request(4, second.handler());
    result third;
    ask.async_request(5, third.handler()); // two wait already
    world.run();
    CHECK(third.ec == errc::queue_full);
    CHECK(ask.stats().sent == 4);

    error_code ec;
    railmq::reply(*d, 3.5, ec);
    CHECK(ec == errc::type_mismatch);
    CHECK(fills.calls == 0);
    railmq::reply(*d, std::string{"yes"}, ec);
    CHECK(!ec);
    world.run();
    CHECK(fills.reply == "yes");
    d->ack();
    railmq::reply(*d, std::string{"again"}, ec);
    CHECK(ec == errc::stale_delivery);

    queue.purge();
    queue.producer().send(9); // no request
    auto plain = worker.try_receive();
    REQUIRE(plain);
    CHECK(
        error_of([&] { railmq::reply(*plain, std::string{"to whom"}); }) == errc::invalid_argument);
    check_balance(ask.stats());
}

TEST_CASE("a handler does not wait for a reply, it would wait for itself", "[request]") {
    simulated_world world;
    auto queue = world.broker.queue<int>("q");
    auto ask = queue.requester<std::string>();
    error_code ec;
    auto s = queue.subscribe(world.executor(), [&](const int&) { (void)ask.request(2, ec); });
    queue.producer().send(1);
    world.run();
    CHECK(ec == errc::would_deadlock);
    CHECK(ask.stats().sent == 0);
}

TEST_CASE("a request that is handed out twice is answered once", "[request]") {
    simulated_world world;
    auto queue = world.broker.queue<int>(
        "q", {.ack_timeout = 1s, .retry = {.backoff = railmq::constant_backoff{0s}}});
    auto ask = queue.requester<std::string>();
    auto worker = queue.consumer();
    result r;
    ask.async_request(1, r.handler());
    auto lost = worker.try_receive();
    REQUIRE(lost);
    world.advance(1s); // its lease ends: it is worked on again
    answer(worker);
    railmq::reply(*lost, std::string{"the first one, late"});
    world.run();
    CHECK(r.calls == 1);
    CHECK(r.reply == "[1]");
    CHECK(ask.stats().late_replies == 1);
}

TEST_CASE("a request may end in its queue when nobody waits any more", "[request]") {
    simulated_world world;
    auto queue = world.broker.queue<int>("q", {.dead_letter = railmq::discard});
    auto ask = queue.requester<std::string>({.timeout = 1s});
    result r;
    ask.async_request(1, {.time_to_live = 1s}, 1s, r.handler());
    world.advance(1s);
    CHECK(r.ec == errc::timed_out);
    CHECK(queue.stats().ready == 0);
}

TEST_CASE("replies to requests of another life are late", "[request]") {
    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    {
        railmq::sim_broker broker{sim, disk.directory()};
        auto queue = broker.queue<int>("q");
        auto ask = queue.requester<std::string>({.reply_queue = "answers"});
        result r;
        ask.async_request(1, r.handler());
        sim.run_ready();
        broker.close();
        sim.run_ready();
        CHECK(r.ec == errc::closed);
    }
    railmq::sim_broker broker{sim, disk.directory()};
    auto queue = broker.queue<int>("q");
    auto ask = queue.requester<std::string>({.reply_queue = "answers"});
    auto worker = queue.consumer();
    result r;
    ask.async_request(2, r.handler());
    sim.run_ready();
    answer(worker, 2); // the first of them was asked by the life before
    sim.run_ready();
    CHECK(r.reply == "[2]");
    CHECK(ask.stats() == railmq::requester_stats{.sent = 1, .answered = 1, .late_replies = 1});
}

TEST_CASE("names that nobody else has", "[request]") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    const std::string a = broker.unique_name("reply");
    const std::string b = broker.unique_name("reply");
    CHECK(a != b);
    CHECK(a.size() == std::string_view{"reply-0123456789abcdef"}.size());
    CHECK(broker.queue<int>(a).name() == a);
    // The same for the same seed.
    railmq::simulation same{1};
    railmq::sim_broker again{same};
    CHECK(again.unique_name("reply") == a);
}
