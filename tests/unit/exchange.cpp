// SPDX-License-Identifier: BSL-1.0
#include <railmq/broker.hpp>
#include <railmq/exchange.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::exchange_type;
using railmq::overflow_policy;
using railmq::rejection;
using namespace railmq::test;

namespace {

template <class T = int, class World>
[[nodiscard]] auto make(
    World& world,
    std::string_view name,
    exchange_type type = exchange_type::fanout,
    const railmq::exchange_options& o = {}) {
    return world.broker.template exchange<T>(name, type, o);
}
template <class Queue>
[[nodiscard]] auto values_in(const Queue& q) {
    std::vector<typename Queue::value_type> all;
    for (auto& m : q.peek(1000)) {
        all.push_back(std::move(m.value));
    }
    return all;
}
/// Whether every message that was accepted is in exactly one place.
template <class Queue>
[[nodiscard]] bool is_balanced(const Queue& q) {
    const auto s = q.stats();
    return s.accepted == s.ready + s.delayed + s.in_flight + s.acked + s.dead_lettered +
                             s.redriven + s.expired + s.dropped + s.purged;
}
/// Its copies throw when they are told to.
struct fragile {
    explicit fragile(int n)
        : number{n} {}
    fragile(const fragile& other)
        : number{other.number} {
        if (copies_left-- == 0) {
            throw std::runtime_error{"no more copies"};
        }
    }
    fragile(fragile&& other) noexcept
        : number{std::exchange(other.number, -1)} {}
    fragile& operator=(fragile&& other) noexcept {
        number = std::exchange(other.number, -1);
        return *this;
    }
    int number;
    inline static int copies_left = 1000;
};

/// Its moves throw when they are told to.
struct jumpy {
    explicit jumpy(int n)
        : number{n} {}
    jumpy(const jumpy& other)
        : number{other.number} {}
    jumpy(jumpy&& other) noexcept(false)
        : number{other.number} {
        if (moves_left-- == 0) {
            throw std::runtime_error{"no more moves"};
        }
    }
    int number;
    inline static int moves_left = 1000;
};

} // namespace

TEMPLATE_TEST_CASE(
    "a message goes into each queue that is bound, once", "", threaded_world, simulated_world) {
    TestType w;
    auto x = make(w, "x", exchange_type::topic);
    CHECK(x.name() == "x");
    CHECK(x.type() == exchange_type::topic);
    auto a = open<int>(w, "a");
    auto b = open<int>(w, "b");
    auto c = open<int>(w, "c");
    x.bind(a, "order.*");
    x.bind(a, "#");
    x.bind(b, "order.#");
    x.bind(c, "other");
    auto p = x.producer();
    CHECK(p.is_open());
    const auto r = p.send(1, {.routing_key = "order.placed"});
    CHECK(r.routed == 2);
    CHECK(r.rejected_by.empty());
    CHECK(values_in(a) == std::vector{1});
    CHECK(values_in(b) == std::vector{1});
    CHECK(values_in(c).empty());
    CHECK(a.peek().at(0).properties.routing_key == "order.placed");
    CHECK(b.peek().at(0).properties.routing_key == "order.placed");
    CHECK(p.send_batch(std::vector{2, 3}, {.routing_key = "other"}) == 2);
    CHECK(values_in(a) == std::vector{1, 2, 3});
    CHECK(values_in(c) == std::vector{2, 3});
    const auto s = x.stats();
    CHECK(s.published == 3);
    CHECK(s.routed == 6);
    CHECK(s.unroutable == 0);
}

TEST_CASE("nobody gets it: counted and told, or an error that gives the value back") {
    std::vector<std::string> told;
    simulated_world w{{.observer = railmq::on<railmq::notices::unroutable>([&](const auto& n) {
                           told.push_back(
                               std::string{n.queue} + "/" + n.routing_key +
                               (n.returned ? " returned" : ""));
                       })}};
    auto x = make<std::string>(w, "x", exchange_type::direct);
    auto p = x.producer();
    CHECK(p.send("a", {.routing_key = "k"}).routed == 0);
    auto must = x.producer({.mandatory = true});
    std::string value = "long enough to be on the heap, so that a move would be seen";
    const std::string before = value;
    error_code ec;
    CHECK(must.send(std::move(value), {.routing_key = "k"}, ec).routed == 0);
    CHECK(ec == errc::unroutable);
    CHECK(value == before);
    CHECK(error_of([&] { must.send("b"); }) == errc::unroutable);
    CHECK(told == std::vector<std::string>{"x/k", "x/k returned", "x/ returned"});
    const auto s = x.stats();
    CHECK(s.published == 1);
    CHECK(s.unroutable == 3);
    CHECK(s.returned == 2);
    // Counts stay when a producer is gone.
    must = {};
    CHECK(x.stats() == s);
}

TEST_CASE("a key that only routes does not travel with the message") {
    simulated_world w;
    auto x = make(w, "x", exchange_type::topic);
    auto a = open<int>(w, "a");
    auto b = open<int>(w, "b");
    x.bind(a, "one.#");
    x.bind(b, "*.two");
    auto p = x.producer({.mandatory = true});
    CHECK(p.send_to("one.two", 1).routed == 2);
    CHECK(p.send_to("one", 2).routed == 1);
    CHECK(p.send_to("x.two", 3).routed == 1);
    error_code ec;
    (void)p.send_to("nobody", 4, ec);
    CHECK(ec == errc::unroutable);
    CHECK(error_of([&] { p.send_to("nobody", 4); }) == errc::unroutable);
    (void)p.send_to(std::string(256, 'k'), 5, ec);
    CHECK(ec == errc::invalid_argument);
    CHECK(values_in(a) == std::vector{1, 2});
    CHECK(values_in(b) == std::vector{1, 3});
    CHECK(a.peek().at(0).properties == railmq::properties{});
    // Routed again after waiting: by the same key.
    auto full = open<int>(w, "full", {.max_length = 1});
    x.bind(full, "one.three");
    full.producer().send(0);
    w.sim.spawn(
        [](auto& sim, auto& exchange, auto& queue, auto& to) -> boost::asio::awaitable<void> {
            co_await sim.async_wait(1s, boost::asio::use_awaitable);
            exchange.unbind(queue, "one.three");
            exchange.bind(to, "one.three");
            queue.purge();
        }(w.sim, x, full, b));
    CHECK(p.send_to("one.three", 6).routed == 2);
    CHECK(values_in(b) == std::vector{1, 3, 6});
}

TEST_CASE("what every type of exchange looks at") {
    simulated_world w;
    auto q = open<int>(w, "q");
    SECTION("headers") {
        auto x = make(w, "x", exchange_type::headers);
        x.bind(
            q, {.match = railmq::header_match::any, .headers = {{"a", "1"}, {"b", std::nullopt}}});
        auto p = x.producer();
        CHECK(p.send(1, {.headers = {{"a", "1"}}}).routed == 1);
        CHECK(p.send(2, {.headers = {{"a", "2"}}}).routed == 0);
        CHECK(p.send(3, {.headers = {{"b", "x"}}}).routed == 1);
        CHECK(p.send(4).routed == 0);
        CHECK(p.send(5, {.headers = {{"a", "1"}}}).routed == 1); // what was remembered is not used
        CHECK(error_of([&] { x.bind(q, {.weight = 2}); }) == errc::invalid_argument);
    }
    SECTION("consistent_hash") {
        auto x = make(w, "x", exchange_type::consistent_hash);
        auto other = open<int>(w, "other");
        auto p = x.producer();
        CHECK(p.send(0, {.routing_key = "k"}).routed == 0);
        x.bind(q);
        x.bind(other, "", {.weight = 3});
        for (int i = 0; i < 400; ++i) {
            CHECK(p.send(i, {.routing_key = std::to_string(i)}).routed == 1);
        }
        CHECK(q.stats().ready + other.stats().ready == 400);
        CHECK(q.stats().ready > 40);
        CHECK(other.stats().ready > q.stats().ready);
    }
    SECTION("a routing key is at most 255 bytes long") {
        auto x = make(w, "x", exchange_type::direct);
        x.bind(q, std::string(255, 'k'));
        auto p = x.producer();
        CHECK(p.send(1, {.routing_key = std::string(255, 'k')}).routed == 1);
        error_code ec;
        (void)p.send(1, {.routing_key = std::string(256, 'k')}, ec);
        CHECK(ec == errc::invalid_argument);
        CHECK(error_of([&] { x.bind(q, std::string(256, 'k')); }) == errc::invalid_argument);
        CHECK(x.stats().published == 1);
    }
}

TEMPLATE_TEST_CASE("a log that is bound gets it as well", "", threaded_world, simulated_world) {
    TestType w;
    auto x = make<std::string>(w, "x");
    auto q = open<std::string>(w, "q");
    auto l = w.broker.template log<std::string>("l");
    x.bind(l);
    auto p = x.producer();
    CHECK(p.send("a", {.key = "k"}).routed == 1);
    x.bind(q);
    CHECK(p.send("b").routed == 2);
    // A log has no delays.
    const auto r = p.send("c", {.delay = 1s});
    CHECK(r.routed == 1);
    CHECK(r.rejected_by == std::vector{rejection{"l", errc::invalid_argument}});
    auto reader = l.consumer();
    auto first = reader.try_receive();
    REQUIRE(first);
    CHECK(first->value() == "a");
    CHECK(first->key() == "k");
    auto second = reader.try_receive();
    REQUIRE(second);
    CHECK(second->value() == "b");
    CHECK_FALSE(reader.try_receive());
    CHECK(values_in(q) == std::vector<std::string>{"b"});
    w.broker.delete_log("l");
    CHECK(p.send("d").routed == 1);
    CHECK_FALSE(x.unbind(l));
    w.broker.delete_queue("q");
    CHECK(p.send("e").routed == 0);
}

TEMPLATE_TEST_CASE(
    "a full queue that refuses keeps nobody else from the message",
    "",
    threaded_world,
    simulated_world) {
    TestType w;
    auto x = make<std::string>(w, "x");
    auto small =
        open<std::string>(w, "small", {.max_length = 1, .overflow = overflow_policy::reject});
    auto tiny = open<std::string>(w, "tiny", {.max_bytes = 4, .overflow = overflow_policy::reject});
    auto newest = open<std::string>(
        w,
        "newest",
        {.max_length = 1,
         .overflow = overflow_policy::drop_oldest,
         .dead_letter = railmq::discard});
    auto large = open<std::string>(w, "large");
    for (const auto* q : {&small, &tiny, &newest, &large}) {
        x.bind(*q);
    }
    auto p = x.producer();
    CHECK(p.send("one").routed == 4);
    auto r = p.send("two");
    CHECK(r.routed == 2);
    CHECK(
        r.rejected_by ==
        std::vector{rejection{"small", errc::queue_full}, rejection{"tiny", errc::queue_full}});
    r = p.send("longer");
    CHECK(r.routed == 2);
    CHECK(r.rejected_by.at(1) == rejection{"tiny", errc::message_too_large});
    (void)large.close();
    r = p.send("4th");
    CHECK(r.routed == 1);
    CHECK(r.rejected_by.at(2) == rejection{"large", errc::closed});
    CHECK(values_in(small) == std::vector<std::string>{"one"});
    CHECK(values_in(tiny) == std::vector<std::string>{"one"});
    CHECK(values_in(newest) == std::vector<std::string>{"4th"});
    CHECK(values_in(large) == std::vector<std::string>{"one", "two", "longer"});
    CHECK(small.stats().refused == 3);
    CHECK(tiny.stats().refused == 3);
    CHECK(large.stats().refused == 1);
    const auto s = x.stats();
    CHECK(s.published == 4);
    CHECK(s.routed == 9);
    CHECK(s.rejected == 7);

    // When all refuse, it is an error, and the value is given back.
    x.unbind(newest);
    std::string value = "nobody takes this one, which is long enough to be seen";
    const std::string before = value;
    error_code ec;
    (void)p.send(std::move(value), ec);
    CHECK(ec == errc::queue_full);
    CHECK(value == before);
    x.unbind(small);
    x.unbind(tiny);
    (void)p.send(std::move(value), ec);
    CHECK(ec == errc::closed);
    CHECK(value == before);
}

TEST_CASE("a full queue whose policy is to wait makes all of it wait") {
    simulated_world w;
    auto x = make(w, "x");
    auto small = open<int>(w, "small", {.max_length = 1});
    auto other = open<int>(w, "other", {.max_length = 1});
    auto large = open<int>(w, "large");
    x.bind(small);
    x.bind(large);
    auto p = x.producer();
    CHECK(p.send(1).routed == 2);
    error_code ec;
    CHECK_FALSE(p.try_send(2));
    (void)p.try_send(2, ec);
    CHECK(ec == errc::queue_full);
    (void)p.send_for(3, {}, 5s, ec);
    CHECK(ec == errc::timed_out);
    CHECK(w.now() == 5s);
    (void)p.send(4, ec);
    CHECK(ec == errc::would_deadlock); // the simulation has nothing that could make room
    CHECK(values_in(large) == std::vector{1});
    CHECK(small.stats().refused == 4);
    CHECK(small.stats().waiting_senders == 0);
    CHECK(x.stats().published == 1);
    CHECK(x.stats().rejected == 0);

    SECTION("until there is room") {
        auto c = small.consumer();
        w.sim.spawn([](auto& sim, auto& consumer) -> boost::asio::awaitable<void> {
            co_await sim.async_wait(3s, boost::asio::use_awaitable);
            consumer.try_receive()->ack();
        }(w.sim, c));
        CHECK(p.send(5).routed == 2);
        CHECK(w.now() == 8s);
        CHECK(values_in(large) == std::vector{1, 5});
        CHECK(values_in(small) == std::vector{5});
    }
    SECTION("and nobody who waits behind it is forgotten, if it does not come after all") {
        x.bind(other);
        other.producer().send(0);
        auto c = small.consumer();
        bool sent = false;
        w.sim.spawn(
            [](auto& sim, auto& consumer, auto producer, bool& done)
                -> boost::asio::awaitable<void> {
                co_await sim.async_wait(1s, boost::asio::use_awaitable);
                producer.async_send(6, [&](error_code failed, railmq::receipt) { done = !failed; });
                co_await sim.async_wait(1s, boost::asio::use_awaitable);
                consumer.try_receive()->ack();
            }(w.sim, c, small.producer(), sent));
        (void)p.send_for(5, {}, 10s, ec);
        CHECK(ec == errc::timed_out);
        CHECK(sent);
        CHECK(values_in(small) == std::vector{6});
        CHECK(values_in(large) == std::vector{1});
    }
    SECTION("or until the queue is bound no more") {
        w.sim.spawn([](auto& sim, auto& exchange, auto& queue) -> boost::asio::awaitable<void> {
            co_await sim.async_wait(1s, boost::asio::use_awaitable);
            exchange.unbind(queue);
            queue.purge();
        }(w.sim, x, small));
        CHECK(p.send(5).routed == 1);
        CHECK(values_in(large) == std::vector{1, 5});
        CHECK(small.stats().ready == 0);
    }
    SECTION("or until it is deleted, with the whole exchange left for nobody") {
        x.unbind(large);
        w.sim.spawn([](auto& sim, auto& broker) -> boost::asio::awaitable<void> {
            co_await sim.async_wait(1s, boost::asio::use_awaitable);
            broker.delete_queue("small");
        }(w.sim, w.broker));
        auto must = x.producer({.mandatory = true});
        (void)must.send(5, ec);
        CHECK(ec == errc::unroutable);
    }
    SECTION("but not in a handler") {
        std::optional<error_code> failed;
        auto work = open<int>(w, "work");
        auto s = work.subscribe(w.executor(), [&](const int& n) {
            error_code why;
            (void)p.send(n, why);
            failed = why;
        });
        work.producer().send(9);
        w.sim.run_until_idle();
        REQUIRE(failed);
        CHECK(*failed == errc::would_deadlock);
    }
}

TEST_CASE("a real thread waits until there is room") {
    threaded_world w;
    auto x = make(w, "x");
    auto small = open<int>(w, "small", {.max_length = 2});
    auto large = open<int>(w, "large");
    x.bind(small);
    x.bind(large);
    std::thread sender{[&] {
        auto p = x.producer();
        for (int i = 0; i < 2000; ++i) {
            p.send(i);
        }
    }};
    std::thread plain{[&] {
        auto p = small.producer();
        for (int i = 10'000; i < 12'000; ++i) {
            p.send(i);
        }
    }};
    std::vector<int> of_exchange;
    auto c = small.consumer();
    for (int n = 0; n < 4000; ++n) {
        auto d = c.receive(long_time);
        REQUIRE(d);
        if (d->value() < 10'000) {
            of_exchange.push_back(d->value());
        }
        d->ack();
    }
    sender.join();
    plain.join();
    CHECK(of_exchange == numbers(0, 1999));
    CHECK(large.stats().ready == 2000);
    CHECK(x.stats().routed == 4000);
}

TEST_CASE("when a copy throws, nobody has the message") {
    simulated_world w;
    auto x = make<fragile>(w, "x");
    std::vector<railmq::sim_queue<fragile>> queues;
    for (const char* name : {"a", "b", "c"}) {
        queues.push_back(open<fragile>(w, name));
        x.bind(queues.back());
    }
    auto p = x.producer();
    for (int k : {0, 1}) {
        fragile::copies_left = k;
        CHECK_THROWS_AS(p.send(fragile{7}), std::runtime_error);
        for (auto& q : queues) {
            CHECK(q.stats().ready == 0);
            CHECK(q.stats().accepted == 0);
        }
    }
    fragile::copies_left = 2; // the third place gets the value itself
    CHECK(p.send(fragile{8}).routed == 3);
    for (auto& q : queues) {
        auto c = q.consumer();
        CHECK(c.try_receive()->value().number == 8);
    }
    CHECK(x.stats().published == 1);
    fragile::copies_left = 1000;
}

TEST_CASE("when a move throws, nobody has the message either") {
    std::string told;
    simulated_world w{{.observer = [&](const railmq::notice& n) {
        if (!std::holds_alternative<railmq::notices::consumer_opened>(n)) {
            told += railmq::event_of(n).queue;
        }
    }}};
    auto x = make<jumpy>(w, "x");
    std::vector<railmq::sim_queue<jumpy>> queues;
    for (const char* name : {"a", "b", "c"}) {
        queues.push_back(open<jumpy>(w, name));
        x.bind(queues.back());
    }
    auto p = x.producer();
    const jumpy value{5};
    int failed = 0;
    for (const bool is_delayed : {false, true}) {
        for (int moves = 0; moves < 20; ++moves) {
            jumpy::moves_left = moves;
            try {
                (void)p.send(value, {.delay = is_delayed ? 1s : 0s});
                jumpy::moves_left = 1000;
                break;
            } catch (const std::runtime_error&) {
                ++failed;
                jumpy::moves_left = 1000;
                CHECK(told == (is_delayed ? "abc" : ""));
                for (auto& q : queues) {
                    CHECK(q.stats().ready + q.stats().delayed == (is_delayed ? 1 : 0));
                    CHECK(is_balanced(q));
                }
            }
        }
    }
    CHECK(failed >= 6);
    CHECK(told == "abcabc");
    for (auto& q : queues) {
        CHECK(q.stats().ready == 1);
        CHECK(q.stats().delayed == 1);
    }
}

TEST_CASE("where there is no memory for all, nobody has the message") {
    threaded_world w{{.memory_limit = 200'000}};
    auto x = make<std::array<char, 1000>>(w, "x");
    std::vector<railmq::queue<std::array<char, 1000>>> queues;
    for (const char* name : {"a", "b", "c"}) {
        queues.push_back(open<std::array<char, 1000>>(w, name, {.dead_letter = railmq::discard}));
        x.bind(queues.back());
    }
    auto p = x.producer();
    std::uint64_t sent = 0;
    error_code ec;
    for (; !ec; ++sent) {
        (void)p.send(std::array<char, 1000>{}, ec);
    }
    --sent;
    CHECK(ec == errc::memory_limit);
    CHECK(sent > 20);
    for (auto& q : queues) {
        CHECK(q.stats().ready == sent);
        CHECK(is_balanced(q));
    }
    CHECK(queues[1].purge() == sent);
    CHECK(queues[2].purge() == sent);
    CHECK(x.stats().routed == 3 * sent);
}

TEST_CASE("a type that cannot be copied goes to one place") {
    simulated_world w;
    using only = std::unique_ptr<int>;
    auto x = make<only>(w, "x", exchange_type::direct);
    auto a = open<only>(w, "a");
    auto b = open<only>(w, "b");
    x.bind(a, "a");
    x.bind(a, "both");
    x.bind(b, "both");
    auto p = x.producer();
    CHECK(p.send(std::make_unique<int>(1), {.routing_key = "a"}).routed == 1);
    only value = std::make_unique<int>(2);
    error_code ec;
    (void)p.send(std::move(value), {.routing_key = "both"}, ec);
    CHECK(ec == errc::invalid_argument);
    REQUIRE(value);
    CHECK(*value == 2);
    auto c = a.consumer();
    CHECK(***c.try_receive() == 1);
    CHECK(b.stats().ready == 0);
}

TEST_CASE("delays and times to live hold in each queue") {
    simulated_world w;
    auto x = make(w, "x");
    auto a = open<int>(w, "a");
    auto b = open<int>(w, "b");
    x.bind(a);
    x.bind(b);
    auto p = x.producer();
    CHECK(p.send(1, {.delay = 10s}).routed == 2);
    CHECK(p.send(2, {.time_to_live = 5s}).routed == 2);
    CHECK(a.stats().delayed == 1);
    CHECK(values_in(a) == std::vector{2});
    w.advance(5s);
    CHECK(values_in(a).empty());
    w.advance(5s);
    CHECK(values_in(a) == std::vector{1});
    CHECK(values_in(b) == std::vector{1});
    error_code ec;
    (void)p.send(3, {.delay = -1s}, ec);
    CHECK(ec == errc::invalid_argument);
    auto limited = x.producer({.max_message_bytes = 3});
    (void)limited.send(3, ec);
    CHECK(ec == errc::message_too_large);
    CHECK(x.stats().published == 2);
}

TEST_CASE("names, types and options of exchanges are checked") {
    simulated_world w;
    auto x = make(w, "x", exchange_type::direct, {.alternate = "spare"});
    CHECK(make(w, "x", exchange_type::direct, {.alternate = "spare"}) == x);
    CHECK(error_of([&] { (void)make(w, "x", exchange_type::fanout); }) == errc::options_mismatch);
    CHECK(error_of([&] { (void)make(w, "x", exchange_type::direct); }) == errc::options_mismatch);
    CHECK(error_of([&] { (void)make<long>(w, "x"); }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)make(w, "a b"); }) == errc::invalid_name);
    CHECK(error_of([&] {
              (void)make(w, "y", static_cast<exchange_type>(99));
          }) == errc::invalid_argument);
    CHECK(error_of([&] { (void)make<long>(w, "spare"); }) == errc::type_mismatch);
    auto typed = make<long>(w, "typed");
    CHECK(error_of([&] {
              (void)make(w, "z", exchange_type::direct, {.alternate = "typed"});
          }) == errc::type_mismatch);
    // Queues, logs and exchanges share their names.
    auto q = open<int>(w, "q");
    auto l = w.broker.log<int>("l");
    CHECK(error_of([&] { (void)make(w, "q"); }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)make(w, "l"); }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)open<int>(w, "x"); }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)w.broker.log<int>("x"); }) == errc::type_mismatch);
    CHECK(error_of([&] {
              (void)open<int>(w, "d", {.dead_letter = std::string{"x"}});
          }) == errc::type_mismatch);
    CHECK(w.broker.exchange_names() == std::vector<std::string>{"typed", "x"});
    CHECK(w.broker.find_exchange<int>("x") == x);
    CHECK_FALSE(w.broker.find_exchange<int>("nothing"));
    CHECK(error_of([&] { (void)w.broker.find_exchange<long>("x"); }) == errc::type_mismatch);
    try {
        (void)make(w, "x", exchange_type::fanout);
    } catch (const railmq::system_error& e) {
        CHECK(std::string_view{e.what()}.find("another type") != std::string_view::npos);
    }
}

TEST_CASE("what was deleted or closed says so") {
    simulated_world w;
    auto x = make(w, "x");
    auto y = make(w, "y");
    auto q = open<int>(w, "q");
    x.bind(q);
    x.bind(y);
    auto p = x.producer();
    error_code ec;
    w.broker.delete_exchange("x", ec, true);
    CHECK(ec == errc::in_use);
    w.broker.delete_exchange("y", true); // only something bound to it counts
    CHECK_FALSE(y.is_open());
    CHECK(error_of([&] { x.bind(y); }) == errc::not_found);
    CHECK_FALSE(x.unbind(y));
    w.broker.delete_exchange("x");
    CHECK_FALSE(p.is_open());
    (void)p.send(1, ec);
    CHECK(ec == errc::not_found);
    CHECK(error_of([&] { x.bind(q); }) == errc::not_found);
    CHECK(error_of([&] { (void)x.stats(); }) == errc::not_found);
    w.broker.delete_exchange("x", ec);
    CHECK(ec == errc::not_found);
    CHECK(error_of([&] { w.broker.delete_exchange("x"); }) == errc::not_found);
    // A new one of the same name has nothing of the old one.
    auto again = make(w, "x");
    CHECK(again.producer().send(1).routed == 0);
    (void)p.send(1, ec);
    CHECK(ec == errc::not_found);

    railmq::sim_exchange<int> none;
    CHECK_FALSE(none);
    CHECK(error_of([&] { none.bind(q); }) == errc::closed);
    CHECK(error_of([&] { again.bind(railmq::sim_queue<int>{}); }) == errc::closed);
    railmq::sim_exchange_producer<int> nowhere;
    (void)nowhere.send(1, ec);
    CHECK(ec == errc::closed);
    auto later = again.producer();
    w.broker.close();
    (void)later.send(1, ec);
    CHECK(ec == errc::closed);
    CHECK(error_of([&] { (void)again.producer(); }) == errc::closed);
    CHECK(error_of([&] { (void)make(w, "new"); }) == errc::closed);
}

TEST_CASE("handlers and observers may bind, publish and delete") {
    simulated_world* world = nullptr;
    int depth = 0;
    simulated_world w{{.observer = [&](const railmq::notice& n) {
        if (world == nullptr || depth > 0) {
            return;
        }
        ++depth;
        if (std::holds_alternative<railmq::notices::sent>(n)) {
            auto x = make(*world, "x");
            auto fresh = open<int>(*world, "fresh");
            x.bind(fresh);
            x.producer().send(100);
            x.unbind(fresh);
            world->broker.delete_queue("fresh");
        }
        --depth;
    }}};
    world = &w;
    auto x = make(w, "x");
    auto q = open<int>(w, "q");
    x.bind(q);
    int handled = 0;
    auto s = q.subscribe(w.executor(), [&](const int& n) {
        ++handled;
        if (n == 1) {
            auto more = open<int>(w, "more");
            x.bind(more);
            x.producer().send(2);
            x.unbind(q);
            x.producer().send(3);
            w.broker.delete_exchange("x");
        }
    });
    CHECK(x.producer().send(1).routed == 1);
    w.sim.run_until_idle();
    world = nullptr;
    CHECK(handled >= 3); // 1, 2, and what the observer has published
    CHECK(open<int>(w, "more").stats().ready >= 2);
    CHECK_FALSE(x.is_open());
}

TEST_CASE("while a broker is drained its handlers publish, and nobody else") {
    simulated_world w;
    auto x = make(w, "x");
    auto work = open<int>(w, "work");
    auto a = open<int>(w, "a");
    auto b = open<int>(w, "b");
    x.bind(a);
    x.bind(b);
    auto p = x.producer();
    std::uint32_t routed = 0;
    auto s = work.subscribe(w.executor(), [&](const int& n) {
        error_code ec;
        routed += p.send(n, ec).routed;
    });
    work.producer().send(1);
    w.sim.spawn([](auto& sim, auto& producer) -> boost::asio::awaitable<void> {
        co_await sim.async_wait(duration_cast<railmq::duration>(1ms), boost::asio::use_awaitable);
        error_code ec;
        (void)producer.send(2, ec);
        CHECK(ec == errc::closed);
    }(w.sim, p));
    auto keeps_it_open = a.consumer(); // so that there is something to wait for
    w.broker.close(railmq::drain_for{1s});
    CHECK(routed == 2);
    CHECK_FALSE(p.is_open());
}

TEST_CASE("one send to several queues is one record: a crash leaves all of it or nothing") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        railmq::simulation sim{1};
        railmq::storage::simulated_disk disk{seed};
        std::optional<railmq::sim_broker> broker{std::in_place, sim, disk.directory()};
        const auto count = [&](const char* name) {
            return broker->queue<std::string>(name).stats().ready;
        };
        auto x = broker->exchange<std::string>("x", exchange_type::fanout);
        for (const char* name : {"a", "b", "c"}) {
            x.bind(broker->queue<std::string>(name));
        }
        auto p = x.producer({.durability = railmq::durability::accepted});
        CHECK(p.send("safe", {.routing_key = "k"}).routed == 3);
        broker->sync();
        for (int i = 0; i < 20; ++i) {
            p.send(std::string(100, 'x'));
        }
        disk.crash();
        broker.reset();
        broker.emplace(sim, disk.directory());
        CHECK(count("a") >= 1);
        CHECK(count("a") == count("b"));
        CHECK(count("b") == count("c"));
        CHECK(broker->queue<std::string>("b").peek().at(0).properties.routing_key == "k");
    }
}

TEST_CASE("in a broker with a directory a send waits until it is as safe as its producer wants") {
    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    std::optional<railmq::sim_broker> broker{std::in_place, sim, disk.directory()};
    auto x = broker->exchange<int>("x", exchange_type::fanout);
    x.bind(broker->queue<int>("a"));
    x.bind(broker->queue<int>("b"));
    auto p = x.producer();
    const auto syncs = [&] { return disk.calls(railmq::storage::disk_operation::sync); };
    const auto before = syncs();
    p.send(1);
    const auto one = syncs();
    CHECK(one > before);
    CHECK(p.send_batch(numbers(2, 50)) == 49);
    CHECK(syncs() <= one + 2);
    disk.crash();
    broker.reset();
    broker.emplace(sim, disk.directory());
    CHECK(broker->queue<int>("a").stats().ready == 50);
    CHECK(broker->queue<int>("b").stats().ready == 50);
    // What cannot be kept cannot be published.
    struct no_codec {
        std::string s;
    };
    CHECK(error_of([&] {
              (void)broker->exchange<no_codec>("y", exchange_type::fanout);
          }) == errc::invalid_argument);
}

TEST_CASE("all copies of a message fit into one record of the journal, or none is stored") {
    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    railmq::sim_broker broker{sim, disk.directory(), {.journal = {.max_record_bytes = 16'384}}};
    auto x = broker.exchange<std::string>("x", exchange_type::fanout);
    std::vector<railmq::sim_queue<std::string>> queues;
    for (const char* name : {"a", "b", "c"}) {
        queues.push_back(broker.queue<std::string>(name));
        x.bind(queues.back());
    }
    auto p = x.producer();
    error_code ec;
    CHECK(p.send(std::string(4'000, 's'), ec).routed == 3);
    CHECK_FALSE(ec);
    (void)p.send(std::string(6'000, 'l'), ec);
    CHECK(ec == errc::message_too_large);
    for (const auto& q : queues) {
        CHECK(q.stats().ready == 1);
        CHECK(is_balanced(q));
    }
    x.unbind(queues[2]);
    CHECK(p.send(std::string(6'000, 'l'), ec).routed == 2);
}
