// SPDX-License-Identifier: BSL-1.0
//
// Topics: every subscription gets every message, and each is a queue of its own.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

template <class T = int, class World>
[[nodiscard]] auto open_topic(World& world, const railmq::topic_options& o = {}) {
    return world.broker.template topic<T>("topic", o);
}

/// Sends first, first + 1, ..., last.
template <class Topic>
void publish(const Topic& topic, int first, int last) {
    auto producer = topic.producer();
    for (int n = first; n <= last; ++n) {
        producer.send(n);
    }
}

template <class Queue>
[[nodiscard]] std::vector<typename Queue::value_type> read_all(const Queue& queue) {
    auto consumer = queue.consumer();
    return take_all(consumer);
}

/// What must hold of a queue at any moment.
void check_sum(const railmq::queue_stats& s) {
    CHECK(
        s.accepted == s.ready + s.delayed + s.in_flight + s.acked + s.dead_lettered + s.redriven +
                          s.expired + s.dropped + s.purged);
}

/// Copies throw when they are told to.
struct stubborn {
    explicit stubborn(int n)
        : value{n} {}
    stubborn(const stubborn& other)
        : value{other.value} {
        if (throws) {
            throw std::runtime_error{"no copy"};
        }
    }
    stubborn(stubborn&&) noexcept = default;
    stubborn& operator=(const stubborn&) = default;
    stubborn& operator=(stubborn&&) noexcept = default;
    ~stubborn() = default;
    int value;
    static inline bool throws = false;
};

} // namespace

// Everybody gets everything

TEMPLATE_TEST_CASE(
    "messages arrive as they were sent, before or after subscribing [A01]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic<std::string>(world, {.history = railmq::log_retention{}});
    const auto before = topic.subscribe("before");
    auto producer = topic.producer();
    for (int n = 0; n < 100; ++n) {
        producer.send(
            std::to_string(n),
            railmq::properties{
                .message_id = "id-" + std::to_string(n), .headers = {{"n", std::to_string(n)}}});
    }
    const auto after = topic.subscribe("after", {.start = railmq::log_start::earliest});
    for (const auto& queue : {before, after}) {
        auto consumer = queue.consumer();
        for (int n = 0; n < 100; ++n) {
            auto d = consumer.try_receive();
            REQUIRE(d);
            CHECK(d->value() == std::to_string(n));
            CHECK(d->properties().message_id == "id-" + std::to_string(n));
            CHECK(
                d->properties().headers ==
                std::vector<std::pair<std::string, std::string>>{{"n", std::to_string(n)}});
            CHECK(d->ack());
        }
        CHECK_FALSE(consumer.try_receive());
    }
    world.broker.close();
    CHECK(error_of([&] { (void)before.consumer(); }) == errc::closed);
}

TEMPLATE_TEST_CASE("topics do not mix [A02]", "", threaded_world, simulated_world) {
    TestType world;
    const auto one = world.broker.template topic<int>("one");
    const auto two = world.broker.template topic<int>("two");
    const auto of_one = one.subscribe("s");
    const auto of_two = two.subscribe("s");
    publish(one, 1, 1);
    publish(two, 2, 2);
    CHECK(read_all(of_one) == numbers(1, 1));
    CHECK(read_all(of_two) == numbers(2, 2));
}

TEST_CASE("twenty topics at once each give their own [A03]") {
    railmq::broker broker;
    std::vector<std::thread> threads;
    std::vector<std::vector<int>> got(20);
    for (int t = 0; t < 20; ++t) {
        threads.emplace_back([&, t] {
            const auto topic = broker.topic<int>("topic-" + std::to_string(t));
            const auto queue = topic.subscribe("s");
            publish(topic, 1000 * t, 1000 * t + 99);
            got[static_cast<std::size_t>(t)] = read_all(queue);
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    for (int t = 0; t < 20; ++t) {
        CHECK(got[static_cast<std::size_t>(t)] == numbers(1000 * t, 1000 * t + 99));
    }
}

TEMPLATE_TEST_CASE(
    "three live subscriptions get a copy each, with acks of its own [A04] [D12] [D16] [D81]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto a = topic.subscribe();
    const auto b = topic.subscribe();
    const auto c = topic.subscribe();
    publish(topic, 7, 7);
    auto of_a = a.consumer();
    auto of_b = b.consumer();
    auto da = of_a.try_receive();
    auto db = of_b.try_receive();
    REQUIRE(da);
    REQUIRE(db);
    CHECK(&da->value() != &db->value());
    CHECK(da->ack());
    CHECK(db->reject("no"));
    CHECK(a.stats().acked == 1);
    CHECK(b.stats().dead_lettered == 1);
    CHECK(c.stats().ready == 1);
    CHECK(read_all(c) == numbers(7, 7));
    // Dead letters of all that come and go are in one place.
    const auto dead = world.broker.template find_queue<int>("topic.dead");
    REQUIRE(dead);
    CHECK(dead->stats().ready == 1);
}

TEMPLATE_TEST_CASE(
    "a live subscription gets what is sent while it is there [A05] [D18]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    auto live = topic.subscribe();
    publish(topic, 1, 1);
    CHECK(read_all(live) == numbers(1, 1));
    live = {};
    publish(topic, 2, 2);
    live = topic.subscribe();
    publish(topic, 3, 3);
    CHECK(read_all(live) == numbers(3, 3));
}

TEMPLATE_TEST_CASE(
    "who never acknowledges holds up nobody else [A06] [BR02]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto one = topic.subscribe("one");
    const auto stuck = topic.subscribe("stuck");
    const auto three = topic.subscribe("three");
    auto consumer = stuck.consumer({.prefetch = 1});
    publish(topic, 1, 1);
    auto held = consumer.try_receive();
    REQUIRE(held);
    publish(topic, 2, 1000);
    CHECK(read_all(one) == numbers(1, 1000));
    CHECK(read_all(three) == numbers(1, 1000));
    CHECK_FALSE(consumer.try_receive());
    CHECK(stuck.stats().ready == 999);
    CHECK(held->ack());
    auto next = consumer.try_receive();
    REQUIRE(next);
    CHECK(next->value() == 2);
}

TEST_CASE("publishers and subscribers race, and nobody misses anything [A08]") {
    railmq::broker broker;
    const auto topic = broker.topic<int>("topic", {.history = railmq::log_retention{}});
    constexpr int publishers = 4;
    constexpr int each = 125;
    constexpr int subscribers = 40;
    std::vector<std::thread> threads;
    std::vector<std::multiset<int>> got(subscribers);
    for (int p = 0; p < publishers; ++p) {
        threads.emplace_back([&, p] { publish(topic, p * each, p * each + each - 1); });
    }
    for (int s = 0; s < subscribers; ++s) {
        threads.emplace_back([&, s] {
            const auto queue =
                topic.subscribe("s" + std::to_string(s), {.start = railmq::log_start::earliest});
            auto consumer = queue.consumer();
            auto& mine = got[static_cast<std::size_t>(s)];
            while (mine.size() != publishers * each) {
                auto d = consumer.receive(long_time);
                if (!d) {
                    break;
                }
                mine.insert(d->value());
                d->ack();
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    const auto all = numbers(0, publishers * each - 1);
    for (const auto& mine : got) {
        CHECK(mine == std::multiset<int>(all.begin(), all.end()));
    }
}

TEMPLATE_TEST_CASE(
    "a new subscription gets the history, an old one what is new [A09]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world, {.history = railmq::log_retention{}});
    publish(topic, 1, 2);
    const auto first = topic.subscribe("first", {.start = railmq::log_start::earliest});
    CHECK(read_all(first) == numbers(1, 2));
    publish(topic, 3, 3);
    CHECK(read_all(first) == numbers(3, 3));
    CHECK(
        read_all(topic.subscribe("second", {.start = railmq::log_start::earliest})) ==
        numbers(1, 3));
    CHECK(
        read_all(topic.subscribe("third", {.start = railmq::log_start::at_offset(1)})) ==
        numbers(2, 3));
    CHECK(topic.stats().messages == 3);
}

TEMPLATE_TEST_CASE(
    "nothing is left of subscriptions that have ended [A10]", "", threaded_world, simulated_world) {
    TestType world;
    for (int n = 0; n < 100; ++n) {
        const auto topic = world.broker.template topic<int>("topic-" + std::to_string(n));
        {
            const auto live = topic.subscribe();
            auto consumer = live.consumer();
            publish(topic, 1, 3);
            CHECK(take_all(consumer) == numbers(1, 3));
            CHECK(topic.stats().subscriptions == 1);
        }
        (void)topic.subscribe("named");
        topic.unsubscribe("named");
        CHECK(topic.stats().subscriptions == 0);
        CHECK(topic.subscriptions().empty());
        CHECK(topic.stats().messages == 0);
    }
    // Those with a name have left the queue for their dead letters, which is theirs to keep.
    for (const auto& name : world.broker.names()) {
        CHECK(name.ends_with(".dead"));
    }
}

TEMPLATE_TEST_CASE(
    "what nobody has subscribed to is not stored [A11]", "", threaded_world, simulated_world) {
    TestType world;
    for (int n = 0; n < 100; ++n) {
        const auto topic = world.broker.template topic<int>("topic-" + std::to_string(n));
        const auto memory = topic.stats().memory_bytes;
        publish(topic, 1, 10);
        const auto stats = topic.stats();
        CHECK(stats.sent == 10);
        CHECK(stats.messages == 0);
        CHECK(stats.memory_bytes == memory);
        CHECK(topic.producer().send(11).offset == 10);
    }
}

TEMPLATE_TEST_CASE("two brokers do not see each other [A12]", "", threaded_world, simulated_world) {
    TestType one;
    TestType two;
    const auto here = open_topic(one);
    const auto there = open_topic(two);
    const auto of_one = here.subscribe("s");
    const auto of_two = there.subscribe("s");
    publish(here, 1, 1);
    CHECK(read_all(of_two).empty());
    CHECK(read_all(of_one) == numbers(1, 1));
}

TEST_CASE("without time to live it is for those who wait [A13]") {
    simulated_world world;
    const auto topic = open_topic(world);
    const auto waits = topic.subscribe("waits", {.queue = {.time_to_live = 0s}});
    const auto absent = topic.subscribe("absent", {.queue = {.time_to_live = 0s}});
    std::vector<int> got;
    auto subscription =
        waits.subscribe(world.executor(), [&](const int& value) { got.push_back(value); });
    world.run();
    publish(topic, 1, 1);
    world.run();
    world.advance(1ms);
    CHECK(got == numbers(1, 1));
    CHECK(read_all(absent).empty());
    CHECK(absent.stats().dead_lettered == 1);
    check_sum(absent.stats());
}

TEMPLATE_TEST_CASE(
    "what no filter wants is kept for nobody [A14]", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto never = [](const int&) { return false; };
    const auto one = topic.subscribe("one", {}, never);
    const auto two = topic.subscribe("two", {}, never);
    publish(topic, 1, 1000);
    for (const auto& queue : {one, two}) {
        CHECK(queue.stats().ready == 0);
        CHECK(queue.stats().accepted == 0);
        CHECK(read_all(queue).empty());
    }
    for (int n = 0; n < 64; ++n) {
        publish(topic, n, n);
        CHECK(read_all(one).empty());
        CHECK(read_all(two).empty());
    }
    CHECK(topic.stats().messages <= 64);
}

TEMPLATE_TEST_CASE(
    "a copy's headers are its own [A15] [BX02]", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic<std::string>(world);
    const auto a = topic.subscribe("a", {.queue = {.retry = at_once()}});
    const auto b = topic.subscribe("b");
    topic.producer().send("x", railmq::properties{.headers = {{"h", "x"}}});
    auto of_a = a.consumer();
    auto of_b = b.consumer();
    {
        auto d = of_a.try_receive();
        REQUIRE(d);
        auto copy = d->properties();
        copy.headers.front().second = "y";
        static_assert(std::is_same_v<decltype(d->value()), const std::string&>);
    } // dropped: it comes again
    for (auto* consumer : {&of_a, &of_b}) {
        auto d = consumer->try_receive();
        REQUIRE(d);
        CHECK(d->value() == "x");
        CHECK(d->properties().headers.front().second == "x");
    }
}

TEMPLATE_TEST_CASE(
    "a value that is moved in reaches everybody whole [BX03]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic<std::string>(world);
    const std::string text(1000, 'x');
    const auto a = topic.subscribe("a");
    const auto b = topic.subscribe("b");
    const auto c = topic.subscribe("c");
    topic.producer().send(std::string{text}, railmq::append_options{});
    for (const auto& queue : {a, b, c}) {
        CHECK(read_all(queue) == std::vector<std::string>{text});
    }
}

// Numbers of the seed

TEMPLATE_TEST_CASE(
    "deliveries are messages times subscriptions [D11]", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    for (int k = 1; k <= 4; ++k) {
        (void)topic.subscribe("s" + std::to_string(k));
    }
    publish(topic, 1, 600);
    std::uint64_t deliveries = 0;
    for (int k = 1; k <= 4; ++k) {
        deliveries += read_all(topic.subscribe("s" + std::to_string(k))).size();
    }
    CHECK(deliveries == 600 * 4);
}

TEMPLATE_TEST_CASE(
    "consumers share, subscriptions repeat [D13] [D14] [D15] [D58]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto shared = topic.subscribe("service");
    auto first = shared.consumer();
    auto second = shared.consumer();
    auto third = shared.consumer();
    const auto own_a = topic.subscribe("own-a");
    const auto own_b = topic.subscribe("own-b");
    const auto own_c = topic.subscribe("own-c");
    publish(topic, 1, 1);
    CHECK(take_all(first).size() + take_all(second).size() + take_all(third).size() == 1);
    CHECK(read_all(own_a).size() + read_all(own_b).size() + read_all(own_c).size() == 3);
}

// Each is a queue

TEMPLATE_TEST_CASE(
    "a subscription retries and dead-letters for itself alone",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto careful = topic.subscribe(
        "careful",
        {.queue = {
             .retry = {.max_attempts = 2, .backoff = railmq::constant_backoff{.delay = 0s}}}});
    const auto easy = topic.subscribe("easy");
    publish(topic, 1, 1);
    auto consumer = careful.consumer();
    for (int n = 0; n < 2; ++n) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->delivery_count() == static_cast<std::uint32_t>(n) + 1);
        CHECK(d->nack());
    }
    CHECK_FALSE(consumer.try_receive());
    CHECK(careful.stats().dead_lettered == 1);
    CHECK(easy.stats().ready == 1);
    const auto dead = world.broker.template find_queue<int>("topic.careful.dead");
    REQUIRE(dead);
    CHECK(dead->redrive(careful) == 1); // to that one alone
    CHECK(read_all(careful) == numbers(1, 1));
    CHECK(read_all(easy) == numbers(1, 1));
}

TEMPLATE_TEST_CASE(
    "keys keep their order among competing consumers", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s", {.queue = {.order = railmq::delivery_order::by_key}});
    auto producer = topic.producer();
    producer.send("a", 1);
    producer.send("a", 2);
    producer.send("b", 3);
    auto one = queue.consumer();
    auto two = queue.consumer();
    auto d1 = one.try_receive();
    auto d3 = two.try_receive();
    REQUIRE(d1);
    REQUIRE(d3);
    CHECK(d1->value() == 1);
    CHECK(d3->value() == 3);
    CHECK(d1->key() == "a");
    CHECK_FALSE(two.try_receive()); // its key is in work
    CHECK(d1->ack());
    auto d2 = two.try_receive();
    REQUIRE(d2);
    CHECK(d2->value() == 2);
}

TEMPLATE_TEST_CASE(
    "a key that is blocked for long does not bring everything into memory [X04]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s", {.queue = {.order = railmq::delivery_order::by_key}});
    auto producer = topic.producer();
    for (int n = 0; n < 10'000; ++n) {
        producer.send("a", n);
    }
    auto consumer = queue.consumer();
    auto held = consumer.try_receive();
    REQUIRE(held);
    CHECK_FALSE(consumer.try_receive());
    CHECK(queue.stats().ready == 9'999);
    CHECK(topic.stats().messages >= 8'000); // the rest has not been taken
    CHECK(held->ack());
    for (int n = 1; n < 10'000; ++n) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        REQUIRE(d->value() == n);
        d->ack();
    }
    CHECK_FALSE(consumer.try_receive());
}

TEST_CASE("a message expires at its time, whether anybody reads or not") {
    simulated_world world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s", {.queue = {.time_to_live = 10s}});
    publish(topic, 1, 3);
    world.advance(9s);
    CHECK(queue.stats().ready == 3);
    publish(topic, 4, 4);
    world.advance(1s);
    const auto dead = world.broker.find_queue<int>("topic.s.dead");
    REQUIRE(dead);
    CHECK(dead->stats().ready == 3);
    check_sum(queue.stats());
    CHECK(read_all(queue) == numbers(4, 4));
}

TEMPLATE_TEST_CASE(
    "a blocking receive and a handler get what is published", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto pushed = topic.subscribe("pushed");
    std::vector<int> got;
    auto subscription =
        pushed.subscribe(world.executor(), [&](const int& value) { got.push_back(value); });
    world.run();
    for (int n = 1; n <= 300; ++n) {
        publish(topic, n, n);
        world.run();
    }
    CHECK(got == numbers(1, 300));
    subscription.cancel();
    const auto pulled = topic.subscribe("pulled");
    auto consumer = pulled.consumer();
    CHECK_FALSE(consumer.receive(1ms));
    publish(topic, 1, 1);
    auto d = consumer.receive(1ms);
    REQUIRE(d);
    CHECK(d->value() == 1);
}

TEST_CASE("a thread that waits is woken by a message") {
    railmq::broker broker;
    const auto topic = broker.topic<int>("topic");
    const auto queue = topic.subscribe("s");
    std::vector<int> got;
    std::thread waits{[&] {
        auto consumer = queue.consumer();
        while (got.size() != 100) {
            auto d = consumer.receive(long_time);
            if (!d) {
                return;
            }
            got.push_back(d->value());
            d->ack();
        }
    }};
    publish(topic, 1, 100);
    waits.join();
    CHECK(got == numbers(1, 100));
    CHECK(queue.stats().acked == 100);
}

// Who wants what

TEMPLATE_TEST_CASE(
    "headers: every name, and one of its values", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto both = topic.subscribe("both", {.where = {{"country", {"de", "at"}}, {"paid", {}}}});
    const auto all = topic.subscribe("all");
    auto producer = topic.producer();
    using headers = std::vector<std::pair<std::string, std::string>>;
    const auto send = [&](int value, headers h) {
        producer.send(value, railmq::properties{.headers = std::move(h)});
    };
    send(1, {{"country", "de"}, {"paid", "yes"}});
    send(2, {{"country", "de"}});
    send(3, {{"country", "fr"}, {"paid", "yes"}});
    send(4, {{"paid", ""}, {"country", "at"}, {"more", "x"}});
    send(5, {{"Country", "de"}, {"paid", "yes"}});
    producer.send(6);
    CHECK(both.stats().ready == 2);
    CHECK(read_all(both) == std::vector<int>{1, 4});
    CHECK(read_all(all) == numbers(1, 6));
}

TEMPLATE_TEST_CASE(
    "a filter of value and properties; one that throws lets everything through",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto even = topic.subscribe("even", {}, [](const int& n) { return n % 2 == 0; });
    const auto keyed = topic.subscribe("keyed", {}, [](const int&, const railmq::properties& p) {
        return p.correlation_id == "c";
    });
    const auto broken = topic.subscribe(
        "broken", {}, [](const int&) -> bool { throw std::runtime_error{"filter"}; });
    auto producer = topic.producer();
    for (int n = 1; n <= 4; ++n) {
        producer.send(n, railmq::properties{.correlation_id = n == 3 ? "c" : ""});
    }
    CHECK(read_all(even) == std::vector<int>{2, 4});
    CHECK(read_all(keyed) == std::vector<int>{3});
    CHECK(read_all(broken) == numbers(1, 4));
    CHECK(world.broker.stats().observer_failures >= 4); // it is counted
}

// Memory

TEMPLATE_TEST_CASE(
    "what everybody has taken is gone, whatever one of them still holds",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic<std::string>(world);
    const auto a = topic.subscribe("a");
    const auto b = topic.subscribe("b");
    auto producer = topic.producer();
    const std::string text(1000, 'x');
    auto of_a = a.consumer();
    auto of_b = b.consumer();
    std::uint64_t most = 0;
    for (int n = 0; n < 20'000; ++n) {
        producer.send(text, railmq::append_options{});
        if (n % 500 == 499) {
            CHECK(take_all(of_a).size() == 500);
            CHECK(take_all(of_b).size() == 500);
            most = std::max(most, topic.stats().messages);
        }
    }
    CHECK(most < 2'000);
}

TEMPLATE_TEST_CASE(
    "a message stays until everybody has it, and without anybody not at all [R14]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    publish(topic, 1, 100);
    CHECK(topic.stats().messages == 0);
    const auto a = topic.subscribe("a");
    const auto b = topic.subscribe("b");
    const auto c = topic.subscribe("c");
    publish(topic, 1, 600);
    CHECK(read_all(a) == numbers(1, 600));
    CHECK(read_all(b) == numbers(1, 600));
    publish(topic, 601, 700);
    CHECK(topic.stats().messages == 700);
    CHECK(read_all(a) == numbers(601, 700));
    CHECK(read_all(b) == numbers(601, 700));
    CHECK(read_all(c) == numbers(1, 700));
    for (int n = 701; n <= 800; ++n) { // what is gone is seen now and then, by a send
        publish(topic, n, n);
        CHECK(read_all(a).size() + read_all(b).size() + read_all(c).size() == 3);
    }
    CHECK(topic.stats().messages < 200);
    CHECK(topic.stats().sent == 900);
}

TEMPLATE_TEST_CASE(
    "a subscription that nobody reads holds its backlog and no more",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto slow = topic.subscribe("slow", {.max_backlog = 1000});
    const auto fast = topic.subscribe("fast");
    auto consumer = fast.consumer();
    std::uint64_t most = 0;
    for (int n = 0; n < 100'000; n += 1000) {
        publish(topic, n, n + 999);
        CHECK(take_all(consumer) == numbers(n, n + 999));
        most = std::max(most, topic.stats().messages);
    }
    CHECK(most < 10'000); // some segments
    CHECK(slow.stats().ready == 1000);
    CHECK(slow.stats().dropped == 0); // nobody has looked yet
    CHECK(read_all(slow) == numbers(99'000, 99'999));
    CHECK(slow.stats().dropped == 99'000);
    CHECK(slow.stats().accepted == 100'000);
    check_sum(slow.stats());
}

TEST_CASE("what is skipped is told") {
    railmq::simulation sim{1};
    std::vector<std::uint64_t> skipped;
    railmq::sim_broker broker{
        sim, {.observer = railmq::on<railmq::notices::skipped>([&](const auto& n) {
                  CHECK(n.queue == "topic.s");
                  skipped.push_back(n.count);
              })}};
    const auto topic = broker.topic<int>("topic");
    const auto queue = topic.subscribe("s", {.max_backlog = 3});
    publish(topic, 1, 10);
    CHECK(read_all(queue) == numbers(8, 10));
    CHECK(skipped == std::vector<std::uint64_t>{7});
    check_sum(queue.stats());
}

TEMPLATE_TEST_CASE(
    "history is kept as long as retention says, and for those who have not read it",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world, {.history = railmq::log_retention{.max_records = 5000}});
    const auto queue = topic.subscribe("s");
    publish(topic, 0, 29'999);
    CHECK(topic.stats().messages == 30'000); // somebody wants them
    CHECK(read_all(queue) == numbers(0, 29'999));
    publish(topic, 30'000, 30'999);
    CHECK(topic.stats().messages >= 5000);
    CHECK(topic.stats().messages < 15'000);
    const auto late = read_all(topic.subscribe("late", {.start = railmq::log_start::earliest}));
    CHECK(late.size() >= 5000);
    CHECK(late == numbers(31'000 - static_cast<int>(late.size()), 30'999));
}

TEMPLATE_TEST_CASE(
    "the last message can be retained for who comes later", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world, {.retain_last = true});
    CHECK(read_all(topic.subscribe("first")).empty());
    publish(topic, 1, 5000);
    CHECK(read_all(topic.subscribe("first")) == numbers(1, 5000));
    publish(topic, 5001, 5100);
    CHECK(read_all(topic.subscribe("second")) == numbers(5100, 5100));
    CHECK(topic.stats().messages < 5100);
}

TEST_CASE("a subscription can begin at a time") {
    simulated_world world;
    const auto topic = open_topic(world, {.history = railmq::log_retention{}});
    for (int n = 1; n <= 5; ++n) {
        publish(topic, n, n);
        world.advance(1s);
    }
    CHECK(
        read_all(topic.subscribe(
            "s", {.start = railmq::log_start::at_time(railmq::time_point{2s})})) == numbers(3, 5));
}

TEMPLATE_TEST_CASE(
    "a copy that throws is tried again, and nothing is lost", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic<stubborn>(world);
    const auto queue = topic.subscribe("s");
    auto producer = topic.producer();
    for (int n = 1; n <= 3; ++n) {
        producer.send(stubborn{n});
    }
    auto consumer = queue.consumer();
    stubborn::throws = true;
    CHECK_FALSE(consumer.try_receive());
    CHECK_FALSE(consumer.receive(1ms));
    producer.send(stubborn{4});
    CHECK(queue.stats().ready == 4);
    stubborn::throws = false;
    for (int n = 1; n <= 4; ++n) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->value().value == n);
        d->ack();
    }
    check_sum(queue.stats());
}

// Names, options, the end

TEMPLATE_TEST_CASE("what does not fit is refused", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    auto& broker = world.broker;
    CHECK(broker.topic_names() == std::vector<std::string>{"topic"});
    CHECK(broker.log_names().empty());
    CHECK(error_of([&] {
              (void)broker.template topic<std::string>("topic");
          }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)broker.template log<int>("topic"); }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)broker.template queue<int>("topic"); }) == errc::type_mismatch);
    CHECK(error_of([&] {
              (void)broker.template topic<int>("topic", {.retain_last = true});
          }) == errc::options_mismatch);
    CHECK(error_of([&] {
              (void)broker.template topic<int>("topic", {.history = railmq::log_retention{}});
          }) == errc::options_mismatch);
    CHECK(error_of([&] { (void)broker.template topic<int>("a/b"); }) == errc::invalid_name);
    CHECK_FALSE(broker.template find_log<int>("topic"));
    CHECK(broker.template find_topic<int>("topic"));
    CHECK_FALSE(broker.template find_topic<int>("other"));

    const auto s = topic.subscribe("s", {.max_backlog = 10});
    CHECK(s.name() == "topic.s");
    CHECK(topic.subscribe("s", {.max_backlog = 10}) == s);
    CHECK(error_of([&] { (void)topic.subscribe("s"); }) == errc::options_mismatch);
    CHECK(error_of([&] {
              (void)topic.subscribe("s", {.max_backlog = 10, .where = {{"h", {}}}});
          }) == errc::options_mismatch);
    CHECK(error_of([&] { (void)topic.subscribe(""); }) == errc::invalid_name);
    CHECK(error_of([&] { (void)topic.subscribe("../x"); }) == errc::invalid_name);
    CHECK(error_of([&] { (void)topic.subscribe(std::string(250, 'x')); }) == errc::invalid_name);
    (void)open<int>(world, "topic.q");
    CHECK(error_of([&] { (void)topic.subscribe("q"); }) == errc::already_exists);
    for (const railmq::subscription_options& bad : std::vector<railmq::subscription_options>{
             {.max_backlog = 0},
             {.start = railmq::log_start::none},
             {.where = {{"", {}}}},
             {.queue = {.max_length = 5}},
             {.queue = {.ack_timeout = 0s}}}) {
        CHECK(error_of([&] { (void)topic.subscribe("bad", bad); }) == errc::invalid_argument);
        CHECK(error_of([&] { (void)topic.subscribe(bad); }) == errc::invalid_argument);
    }
    CHECK(error_of([&] {
              (void)topic.subscribe("far", {.start = railmq::log_start::at_offset(99)});
          }) == errc::offset_out_of_range);
    CHECK_FALSE(broker.template find_queue<int>("topic.far")); // nothing is left of it
    CHECK(topic.subscriptions() == std::vector<std::string>{"s"});
    CHECK(error_of([&] { topic.unsubscribe("none"); }) == errc::not_found);
}

TEMPLATE_TEST_CASE("ending a subscription ends its queue", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    auto queue = topic.subscribe("s");
    publish(topic, 1, 10);
    auto consumer = queue.consumer();
    auto d = consumer.try_receive();
    REQUIRE(d);
    railmq::error_code ec;
    topic.unsubscribe("s", ec);
    CHECK(ec == errc::would_block); // somebody holds a message
    CHECK(queue.stats().ready == 9);
    topic.unsubscribe("s", true);
    CHECK(d->value() == 1);
    CHECK(d->ack());
    railmq::error_code why;
    (void)consumer.try_receive(why);
    CHECK(why == errc::not_found);
    check_sum(queue.stats());
    // By the broker it is the same, and a new one begins anew.
    queue = topic.subscribe("s");
    publish(topic, 11, 12);
    world.broker.delete_queue("topic.s");
    CHECK(topic.subscriptions().empty());
    queue = topic.subscribe("s");
    publish(topic, 13, 13);
    CHECK(read_all(queue) == numbers(13, 13));
}

TEMPLATE_TEST_CASE("deleting a topic ends its subscriptions", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto named = topic.subscribe("s");
    const auto live = topic.subscribe();
    auto producer = topic.producer();
    producer.send(1);
    auto of_named = named.consumer();
    auto of_live = live.consumer();
    world.broker.delete_topic("topic");
    railmq::error_code ec;
    producer.send(2, ec);
    CHECK(ec == errc::not_found);
    for (auto* c : {&of_named, &of_live}) {
        (void)c->try_receive(ec);
        CHECK(ec == errc::not_found);
    }
    CHECK_FALSE(world.broker.template find_queue<int>("topic.s"));
    CHECK(error_of([&] { world.broker.delete_topic("topic"); }) == errc::not_found);
    CHECK(error_of([&] { (void)topic.subscribe("s"); }) == errc::not_found);
    CHECK(read_all(open_topic(world).subscribe("s")).empty());
}

TEMPLATE_TEST_CASE("closing the broker ends it all", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto named = topic.subscribe("s");
    const auto live = topic.subscribe();
    publish(topic, 1, 10);
    auto of_live = live.consumer();
    CHECK(world.broker.close() == 10); // of the one that was to stay
    railmq::error_code ec;
    (void)of_live.try_receive(ec);
    CHECK(ec == errc::closed);
    CHECK_FALSE(topic.is_open());
    CHECK(error_of([&] { (void)topic.subscribe("t"); }) == errc::closed);
}

TEMPLATE_TEST_CASE(
    "closing with a drain lets consumers take what was published",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s");
    publish(topic, 1, 500);
    std::vector<int> got;
    auto consumer = queue.consumer();
    queue.close();
    got = take_all(consumer);
    CHECK(got == numbers(1, 500));
    railmq::error_code ec;
    (void)consumer.try_receive(ec);
    CHECK(ec == errc::closed);
}

TEMPLATE_TEST_CASE("a look shows what would come next", "", threaded_world, simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s");
    publish(topic, 1, 200);
    const auto seen = queue.peek(150);
    REQUIRE(seen.size() == 150);
    CHECK(seen.front().value == 1);
    CHECK(seen.back().value == 150);
    CHECK(queue.stats().ready == 200);
    CHECK(read_all(queue) == numbers(1, 200));
    CHECK(queue.peek().empty());
}

TEMPLATE_TEST_CASE(
    "purge forgets what is waiting, and not what is in work [R13]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s");
    const auto other = topic.subscribe("t");
    publish(topic, 1, 500);
    auto consumer = queue.consumer();
    auto d = consumer.try_receive();
    REQUIRE(d);
    CHECK(queue.purge() == 499);
    check_sum(queue.stats());
    CHECK_FALSE(consumer.try_receive());
    publish(topic, 501, 501);
    CHECK(take_all(consumer) == numbers(501, 501));
    CHECK(other.stats().ready == 501);
}

// Logs

TEMPLATE_TEST_CASE("a log can be shared record by record", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>("log", {.partitions = 3});
    auto producer = log.producer();
    const auto queue = log.subscribe("workers", {.start = railmq::log_start::earliest});
    std::multiset<int> sent;
    for (int n = 0; n < 300; ++n) {
        producer.send(std::to_string(n % 10), n);
        sent.insert(n);
    }
    (void)producer.send_tombstone("gone");
    CHECK(queue.stats().ready == 301); // what it is, nobody has looked at yet
    auto one = queue.consumer({.prefetch = 10});
    auto two = queue.consumer({.prefetch = 10});
    std::multiset<int> got;
    std::map<std::string, int> last;
    for (bool more = true; more;) {
        more = false;
        for (auto* c : {&one, &two}) {
            if (auto d = c->try_receive()) {
                more = true;
                got.insert(d->value());
                const std::string key{d->key().value_or("")};
                CHECK(key == std::to_string(d->value() % 10));
                CHECK(last[key] <= d->value()); // in order of its partition
                last[key] = d->value();
                d->ack();
            }
        }
    }
    CHECK(got == sent);
    CHECK(queue.stats().ready == 0);
    // Partitions that come later are read as well, and the log keeps what was read.
    log.add_partitions(2);
    for (int n = 0; n < 50; ++n) {
        producer.send(std::to_string(n), n);
    }
    auto rest = take_all(one).size() + take_all(two).size();
    CHECK(rest == 50);
    CHECK(log.stats().records == 351);
    CHECK(log.subscriptions() == std::vector<std::string>{"workers"});
}

TEMPLATE_TEST_CASE(
    "a waiting consumer hears of partitions that are added", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>("log");
    const auto queue = log.subscribe("s");
    std::vector<int> got;
    auto subscription =
        queue.subscribe(world.executor(), [&](const int& value) { got.push_back(value); });
    world.run();
    log.add_partitions(1);
    world.run();
    log.producer().send(1, railmq::append_options{.partition = 1});
    world.run();
    CHECK(got == numbers(1, 1));
}

TEMPLATE_TEST_CASE(
    "what retention removes before it was read is skipped and counted",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>(
        "log", {.retention = {.max_records = 100}, .segment_records = 50});
    const auto queue = log.subscribe("s");
    auto producer = log.producer();
    for (int n = 0; n < 1000; ++n) {
        producer.send(n);
    }
    (void)log.apply_retention();
    const auto got = read_all(queue);
    CHECK(got.size() >= 100);
    CHECK(got.size() < 200);
    CHECK(got.back() == 999);
    CHECK(queue.stats().dropped == 1000 - got.size());
    check_sum(queue.stats());
}

TEMPLATE_TEST_CASE(
    "of a key one record at a time is in work, whoever has it [X01]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>("log", {.partitions = 4});
    auto producer = log.producer();
    const auto queue = log.subscribe("s", {.queue = {.order = railmq::delivery_order::by_key}});
    for (int n = 0; n < 1000; ++n) {
        producer.send("key-" + std::to_string(n % 37), n);
    }
    using consumer_type = consumer_in<int, TestType>;
    using delivery_type = delivery_in<int, TestType>;
    std::vector<consumer_type> consumers;
    std::vector<std::vector<delivery_type>> held(3);
    for (int c = 0; c < 3; ++c) {
        consumers.push_back(queue.consumer({.prefetch = 5}));
    }
    std::set<std::string> in_work;
    std::map<std::string, int> last;
    std::size_t received = 0;
    for (bool more = true; more;) {
        more = false;
        for (std::size_t c = 0; c < 3; ++c) {
            for (std::size_t n = 0; n <= c; ++n) { // the last one is the greediest
                auto d = consumers[c].try_receive();
                if (!d) {
                    break;
                }
                const std::string key{d->key().value()};
                CHECK(in_work.insert(key).second);
                CHECK(last.emplace(key, -1).first->second < d->value());
                last[key] = d->value();
                ++received;
                held[c].push_back(std::move(*d));
                more = true;
            }
            if (!held[c].empty() && (received % 3 == c || held[c].size() == 5 || !more)) {
                in_work.erase(std::string{held[c].front().key().value()});
                CHECK(held[c].front().ack());
                held[c].erase(held[c].begin());
                more = true;
            }
        }
    }
    CHECK(received == 1000);
    CHECK(in_work.empty());
}

TEMPLATE_TEST_CASE(
    "who joins gets nothing of keys that are in work, and all of it when their holder goes [X02]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s", {.queue = {.order = railmq::delivery_order::by_key}});
    auto producer = topic.producer();
    const auto send_ten = [&](int first) {
        for (int n = 0; n < 10; ++n) {
            producer.send("key-" + std::to_string(n), first + n);
        }
    };
    send_ten(0);
    auto first = queue.consumer({.prefetch = 10});
    std::vector<delivery_in<int, TestType>> held;
    for (int n = 0; n < 10; ++n) {
        auto d = first.try_receive();
        REQUIRE(d);
        held.push_back(std::move(*d));
    }
    send_ten(10);
    auto second = queue.consumer();
    CHECK_FALSE(second.try_receive());
    first.close();
    CHECK(take_all(second) == numbers(0, 19));
}

TEMPLATE_TEST_CASE(
    "one that is stuck on its key holds up no other key [X03]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto topic = open_topic(world);
    const auto queue = topic.subscribe("s", {.queue = {.order = railmq::delivery_order::by_key}});
    auto producer = topic.producer();
    for (int n = 0; n < 1000; ++n) {
        producer.send("key-" + std::to_string(n % 10), n);
    }
    auto stuck = queue.consumer({.prefetch = 1});
    const auto held = stuck.try_receive();
    REQUIRE(held);
    CHECK(held->value() == 0);
    std::size_t others = 0;
    std::vector<consumer_in<int, TestType>> consumers;
    for (int c = 0; c < 9; ++c) {
        consumers.push_back(queue.consumer());
    }
    for (bool more = true; more;) {
        more = false;
        for (auto& c : consumers) {
            if (auto d = c.try_receive()) {
                CHECK(d->value() % 10 != 0);
                CHECK(d->ack());
                ++others;
                more = true;
            }
        }
    }
    CHECK(others == 900);
}

TEST_CASE("a subscription may have priorities, and others of its topic none [G01]") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto t = b.topic<int>("t");
    auto urgent = t.subscribe("urgent", {.queue = {.priorities = 4}});
    auto plain = t.subscribe("plain");
    auto p = t.producer();
    for (const int n : {10, 30, 20, 31}) {
        p.send(n, {.priority = static_cast<std::uint32_t>(n / 10)});
    }
    const auto read = [](auto& q) {
        auto c = q.consumer();
        std::vector<int> all;
        while (auto d = c.try_receive()) {
            all.push_back(**d);
            d->ack();
        }
        return all;
    };
    CHECK(read(urgent) == std::vector<int>{30, 31, 20, 10});
    CHECK(read(plain) == std::vector<int>{10, 30, 20, 31});
}
