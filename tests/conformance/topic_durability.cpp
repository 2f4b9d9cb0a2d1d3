// SPDX-License-Identifier: BSL-1.0
//
// What of a topic outlives its process: messages, subscriptions and what these have done with them.
#include <railmq/broker.hpp>
#include <railmq/storage/inspect.hpp>
#include <railmq/storage/salvage.hpp>
#include <railmq/storage/simulated_disk.hpp>
#include <railmq/topic.hpp>

#include "support/catch.hpp"
#include "support/kept_world.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::errc;
using railmq::log_start;
using railmq::properties;
using railmq::storage::simulated_disk;

namespace {

struct world : railmq::test::kept_world {
    using kept_world::kept_world;
    template <class Notice>
    [[nodiscard]] std::size_t count() const {
        return static_cast<std::size_t>(
            std::count_if(notices.begin(), notices.end(), [](const railmq::notice& n) {
                return std::holds_alternative<Notice>(n);
            }));
    }
    [[nodiscard]] auto topic(const railmq::topic_options& o = {}) {
        return broker->topic<int>("t", o);
    }
};

template <class Topic>
void publish(const Topic& topic, int first, int last) {
    auto producer = topic.producer();
    for (int n = first; n <= last; ++n) {
        producer.send(n);
    }
}
[[nodiscard]] std::vector<int> numbers(int first, int last) {
    std::vector<int> all;
    for (int n = first; n <= last; ++n) {
        all.push_back(n);
    }
    return all;
}
/// Everything that is ready, acknowledged.
template <class Queue>
[[nodiscard]] std::vector<int> take_all(const Queue& q) {
    auto c = q.consumer();
    std::vector<int> all;
    while (auto d = c.try_receive()) {
        all.push_back(d->value());
        d->ack();
    }
    return all;
}
template <class F>
[[nodiscard]] errc thrown_by(F&& f) {
    try {
        f();
    } catch (const railmq::system_error& e) {
        return static_cast<errc>(e.code().value());
    }
    return errc{};
}
[[nodiscard]] railmq::queue_options at_once() {
    return {.retry = {.backoff = railmq::constant_backoff{.delay = 0s}}};
}
/// Small segments, so that the upkeep has something to do.
[[nodiscard]] railmq::broker_options in_a_hurry() {
    return {
        .durability = durability::accepted,
        .journal = {.segment_bytes = 16 << 10, .headroom_bytes = 4 << 10}};
}

} // namespace

TEST_CASE("[T01][A01] what a topic confirmed comes to its subscriptions after any end") {
    const int how = GENERATE(0, 1, 2);
    world w;
    {
        const auto topic = w.broker->topic<std::string>("t");
        (void)topic.subscribe("offline");
        const auto half = topic.subscribe("half");
        auto p = topic.producer();
        for (int n = 0; n != 100; ++n) {
            p.send(
                std::to_string(n),
                properties{.message_id = "id-" + std::to_string(n), .headers = {{"h", "v"}}});
        }
        auto c = half.consumer();
        for (int n = 0; n != 50; ++n) {
            c.try_receive()->ack();
        }
        w.broker->sync();
    }
    w.sim.advance(1min);
    w.end(how);
    CHECK(w.broker->topic_names() == std::vector<std::string>{"t"});
    CHECK(w.broker->log_names().empty());
    const auto topic = w.broker->topic<std::string>("t");
    CHECK(topic.subscriptions() == std::vector<std::string>{"half", "offline"});
    CHECK(topic.stats().subscriptions == 2);
    const auto check = [&](const char* name, int from) {
        const auto q = topic.subscribe(name);
        CHECK(q.stats().ready == static_cast<std::size_t>(100 - from));
        auto c = q.consumer();
        for (int n = from; n != 100; ++n) {
            auto d = c.try_receive();
            REQUIRE(d);
            CHECK(d->value() == std::to_string(n));
            CHECK(d->properties().message_id == "id-" + std::to_string(n));
            CHECK(d->properties().headers == properties{.headers = {{"h", "v"}}}.headers);
            d->ack();
        }
        CHECK_FALSE(c.try_receive());
    };
    check("offline", 0);
    check("half", 50);
    CHECK(topic.stats().subscriptions == 2);
    // And it goes on.
    CHECK(topic.producer().send("more").offset == 100);
    w.end(how);
    auto c = w.broker->topic<std::string>("t").subscribe("half").consumer();
    CHECK(c.try_receive()->value() == "more");
    CHECK_FALSE(c.try_receive());
}

TEST_CASE("[T01] what was handed out and not acknowledged comes again, with its failures") {
    const int how = GENERATE(0, 1, 2);
    world w;
    {
        const auto q = w.topic().subscribe("s", {.queue = at_once()});
        publish(w.topic(), 0, 24);
        auto c = q.consumer();
        auto first = c.try_receive();
        first->nack();
        auto held = c.receive_batch(25, 0s);
        CHECK(held.size() == 25);
        held[7].ack();
        w.broker->sync();
        w.end(how);
    }
    const auto q = w.topic().subscribe("s", {.queue = at_once()});
    auto c = q.consumer();
    std::vector<int> got;
    while (auto d = c.try_receive()) {
        got.push_back(d->value());
        CHECK(d->delivery_count() == (d->value() == 0 ? 3U : 2U));
        d->ack();
    }
    CHECK(got.size() == 24);
    CHECK(w.count<railmq::notices::unwritten>() == 0);
}

TEST_CASE("[V13] a subscription that was deleted starts by its options again") {
    const int how = GENERATE(0, 1, 2);
    world w;
    const railmq::topic_options o{.history = railmq::log_retention{}};
    publish(w.topic(o), 0, 9);
    (void)w.topic(o).subscribe("s", {.start = log_start::earliest});
    w.end(how);
    w.topic(o).unsubscribe("s"); // nobody has opened it
    CHECK(w.topic(o).subscriptions().empty());
    w.end(how);
    CHECK(w.topic(o).subscriptions().empty());
    CHECK_FALSE(w.broker->find_queue<int>("t.s"));
    const auto q = w.topic(o).subscribe("s");
    publish(w.topic(o), 10, 11);
    CHECK(take_all(q) == numbers(10, 11));
    w.topic(o).unsubscribe("s"); // and now it is open
    w.end(how);
    CHECK(w.topic(o).subscriptions().empty());
    CHECK(take_all(w.topic(o).subscribe("s", {.start = log_start::earliest})) == numbers(0, 11));
}

TEST_CASE("[A09] history is there for subscriptions that come after the restart") {
    const int how = GENERATE(0, 1, 2);
    world w;
    const railmq::topic_options o{.history = railmq::log_retention{}, .retain_last = true};
    publish(w.topic(o), 0, 299);
    w.end(how);
    CHECK(take_all(w.topic(o).subscribe("all", {.start = log_start::earliest})) == numbers(0, 299));
    CHECK(take_all(w.topic(o).subscribe("last")) == numbers(299, 299));
    CHECK(thrown_by([&] { (void)w.topic({.retain_last = true}); }) == errc::options_mismatch);
    w.end(how);
    CHECK(thrown_by([&] { (void)w.topic({.retain_last = true}); }) == errc::options_mismatch);
    CHECK(w.broker->find_topic<int>("t"));
}

TEST_CASE("[R14] what all have taken leaves, and what one has not stays, whoever is open") {
    const int how = GENERATE(0, 1, 2);
    world w;
    (void)w.topic().subscribe("slow");
    (void)w.topic().subscribe("fast");
    std::vector<int> got;
    for (int run = 0; run != 4; ++run) {
        const auto topic = w.topic();
        publish(topic, 1000 * run, 1000 * run + 999);
        const auto more = take_all(topic.subscribe("fast"));
        got.insert(got.end(), more.begin(), more.end());
        CHECK(topic.stats().messages == static_cast<std::uint64_t>(1000 * (run + 1)));
        w.broker->sync();
        w.end(how);
    }
    CHECK(got == numbers(0, 3999));
    CHECK(take_all(w.topic().subscribe("slow")) == numbers(0, 3999));
    publish(w.topic(), 4000, 4999);
    CHECK(take_all(w.topic().subscribe("slow")) == numbers(4000, 4999));
    CHECK(take_all(w.topic().subscribe("fast")) == numbers(4000, 4999));
    w.sim.advance(2s);
    publish(w.topic(), 5000, 5299);
    CHECK(w.topic().stats().messages < 1000);
    w.broker->sync();
    w.end(how);
    CHECK(w.topic().stats().messages < 1000);
    CHECK(take_all(w.topic().subscribe("slow")) == numbers(5000, 5299));
}

TEST_CASE("nobody is subscribed: numbers go on, and nothing is kept") {
    const int how = GENERATE(0, 1, 2);
    world w{in_a_hurry()};
    publish(w.topic(), 0, 999);
    CHECK(w.topic().stats().messages == 0);
    const auto q = w.topic().subscribe("s");
    CHECK(w.topic().producer().send(1000).offset == 1000);
    w.broker->sync();
    w.end(how);
    CHECK(w.topic().producer().send(1001).offset == 1001);
    CHECK(take_all(w.topic().subscribe("s")) == numbers(1000, 1001));
    w.topic().unsubscribe("s");
    publish(w.topic(), 0, 99);
    w.close_and_open();
    CHECK(w.topic().producer().send(0).offset == 1102);
    CHECK(w.disk.used() < 100'000);
}

TEST_CASE("failures, dead letters and histories of death are a subscription's own") {
    const int how = GENERATE(0, 1, 2);
    world w;
    railmq::queue_options options = at_once();
    options.retry.max_attempts = 2;
    {
        const auto topic = w.topic();
        const auto q = topic.subscribe("s", {.queue = options});
        (void)topic.subscribe("other");
        auto p = topic.producer();
        p.send(2);
        p.send(3);
        auto c = q.consumer();
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->value() == 2);
        d->reject("no good");
        d = c.try_receive();
        CHECK(d->value() == 3);
        d->nack();
        w.broker->sync();
    }
    w.sim.advance(5s);
    w.end(how);
    const auto q = w.topic().subscribe("s", {.queue = options});
    auto dead = w.broker->queue<int>("t.s.dead").consumer();
    auto d = dead.try_receive();
    REQUIRE(d);
    CHECK(d->value() == 2);
    CHECK(d->deaths().front().detail == "no good");
    CHECK(d->deaths().front().queue == "t.s");
    d->ack();
    auto c = q.consumer();
    d = c.try_receive();
    REQUIRE(d);
    CHECK(d->value() == 3);
    d->nack(); // its second attempt
    CHECK_FALSE(c.try_receive());
    CHECK(dead.try_receive()->value() == 3);
    auto other = w.topic().subscribe("other").consumer();
    CHECK(other.try_receive()->value() == 2);
    CHECK(other.try_receive()->value() == 3);
}

TEST_CASE("[H14] a message expires at its time, whether its subscription is open or not") {
    const int how = GENERATE(0, 1, 2);
    world w;
    const railmq::subscription_options o{.queue = {.time_to_live = 10s}};
    (void)w.topic().subscribe("s", o);
    publish(w.topic(), 0, 9999); // more than one record says
    w.broker->sync();
    w.sim.advance(5s);
    w.end(how);
    publish(w.topic(), 10000, 10009);
    w.sim.advance(6s);
    const auto q = w.topic().subscribe("s", o);
    CHECK(take_all(q) == numbers(10000, 10009));
    CHECK(w.broker->queue<int>("t.s.dead").stats().ready == 10000);
    w.broker->sync();
    w.end(how);
    CHECK(take_all(w.topic().subscribe("s", o)).empty());
    CHECK(w.broker->queue<int>("t.s.dead").stats().ready == 10000);
}

TEST_CASE("filters by headers are kept, those that are code have to be given again") {
    const int how = GENERATE(0, 1, 2);
    world w;
    const railmq::subscription_options eu{.where = {{"region", {"eu", "uk"}}, {"any", {}}}};
    const auto is_even = [](const int& n) { return n % 2 == 0; };
    const auto send = [&](int n, const char* region) {
        w.topic().producer().send(n, properties{.headers = {{"region", region}, {"any", "x"}}});
    };
    (void)w.topic().subscribe("eu", eu);
    (void)w.topic().subscribe("even", {}, is_even);
    send(1, "eu");
    send(2, "us");
    w.end(how);
    send(3, "uk");
    send(4, "us");
    CHECK(thrown_by([&] { (void)w.topic().subscribe("eu"); }) == errc::options_mismatch);
    CHECK(
        thrown_by([&] { (void)w.topic().subscribe("eu", eu, is_even); }) == errc::options_mismatch);
    CHECK(thrown_by([&] {
              (void)w.topic().subscribe("eu", {.max_backlog = 7, .where = eu.where});
          }) == errc::options_mismatch);
    CHECK(thrown_by([&] {
              (void)w.topic().subscribe("eu", {.where = eu.where, .queue = at_once()});
          }) == errc::options_mismatch);
    CHECK(take_all(w.topic().subscribe("eu", eu)) == std::vector<int>{1, 3});
    CHECK(thrown_by([&] { (void)w.topic().subscribe("even"); }) == errc::options_mismatch);
    CHECK(thrown_by([&] { (void)w.broker->queue<int>("t.even"); }) == errc::options_mismatch);
    CHECK(take_all(w.topic().subscribe("even", {}, is_even)) == std::vector<int>{2, 4});
    CHECK(thrown_by([&] { (void)w.topic().subscribe("eu"); }) == errc::options_mismatch);
}

TEST_CASE("a subscription that is opened by its queue's name alone is filled as ever") {
    const int how = GENERATE(0, 1, 2);
    world w;
    (void)w.topic().subscribe("s");
    publish(w.topic(), 0, 9);
    w.end(how);
    const auto q = w.broker->queue<int>("t.s");
    CHECK(take_all(q) == numbers(0, 9));
    publish(w.topic(), 10, 19);
    CHECK(take_all(q) == numbers(10, 19));
    CHECK(w.topic().subscriptions() == std::vector<std::string>{"s"});
    CHECK(w.topic().stats().subscriptions == 1);
    CHECK(take_all(w.topic().subscribe("s")).empty());
    CHECK(thrown_by([&] {
              (void)w.topic().subscribe("s", {.max_backlog = 3});
          }) == errc::options_mismatch);
    w.broker->delete_queue("t.s");
    CHECK(w.topic().subscriptions().empty());
    w.end(how);
    CHECK(w.topic().subscriptions().empty());
}

TEST_CASE("[A05] a subscription for the time being ends with its process") {
    const int how = GENERATE(0, 1, 2);
    world w;
    {
        railmq::queue_options options = at_once();
        options.retry.max_attempts = 1;
        const auto live = w.topic().subscribe({.queue = options});
        (void)w.topic().subscribe("s");
        publish(w.topic(), 0, 9);
        auto c = live.consumer();
        c.try_receive()->reject("bad"); // to a queue that is kept
        auto tx = w.broker->begin();
        auto d = c.try_receive();
        REQUIRE(d);
        tx.ack(*d);
        auto to = w.broker->queue<int>("q").producer();
        tx.send(to, 77);
        tx.commit();
        CHECK(live.stats().acked == 1);
        CHECK(w.topic().stats().subscriptions == 2);
        CHECK(w.broker->queue<int>("t.dead").stats().ready == 1);
        w.broker->sync();
    }
    w.end(how);
    CHECK(w.topic().stats().subscriptions == 1);
    CHECK(take_all(w.topic().subscribe("s")) == numbers(0, 9));
    CHECK(take_all(w.broker->queue<int>("q")) == numbers(77, 77));
    CHECK(take_all(w.broker->queue<int>("t.dead")) == numbers(0, 0));
}

TEST_CASE("what is too far back is skipped, counted and told, open or not") {
    const int how = GENERATE(0, 1, 2);
    world w;
    const railmq::subscription_options o{.max_backlog = 100};
    (void)w.topic().subscribe("s", o);
    publish(w.topic(), 0, 499);
    w.end(how);
    publish(w.topic(), 500, 999);
    w.notices.clear();
    const auto q = w.topic().subscribe("s", o);
    CHECK(take_all(q) == numbers(900, 999));
    CHECK(w.count<railmq::notices::skipped>() == 1);
    CHECK(q.stats().dropped == 900);
    w.broker->sync();
    w.end(how);
    CHECK(take_all(w.topic().subscribe("s", o)).empty());
}

TEST_CASE("deleting a topic takes its subscriptions along, for good") {
    const int how = GENERATE(0, 1, 2);
    const bool is_open = GENERATE(true, false);
    world w;
    (void)w.topic().subscribe("a");
    (void)w.topic().subscribe("b");
    publish(w.topic(), 0, 9);
    CHECK(take_all(w.topic().subscribe("a")).size() == 10);
    (void)w.topic().subscribe("b").consumer().try_receive();
    w.broker->sync();
    if (!is_open) {
        w.end(how);
    }
    w.broker->delete_topic("t");
    CHECK(w.broker->topic_names().empty());
    CHECK_FALSE(w.broker->find_queue<int>("t.a"));
    w.end(how);
    CHECK(w.broker->topic_names().empty());
    CHECK_FALSE(w.broker->find_queue<int>("t.a"));
    CHECK_FALSE(w.broker->find_topic<int>("t"));
    const auto q = w.topic().subscribe("a", {.start = log_start::earliest});
    CHECK(take_all(q).empty());
    CHECK(w.topic().producer().send(1).offset == 0);
}

TEST_CASE("names are shared, before anything is opened as well") {
    world w;
    (void)w.topic().subscribe("s");
    (void)w.broker->log<int>("l").subscribe("s");
    w.close_and_open();
    CHECK(w.broker->topic_names() == std::vector<std::string>{"t"});
    CHECK(w.broker->log_names() == std::vector<std::string>{"l"});
    CHECK(thrown_by([&] { (void)w.broker->log<int>("t"); }) == errc::type_mismatch);
    CHECK(thrown_by([&] { (void)w.broker->topic<int>("l"); }) == errc::type_mismatch);
    CHECK(thrown_by([&] { (void)w.broker->queue<int>("t"); }) == errc::type_mismatch);
    CHECK(thrown_by([&] { (void)w.broker->topic<std::string>("t"); }) == errc::type_mismatch);
    CHECK_FALSE(w.broker->find_log<int>("t"));
    CHECK_FALSE(w.broker->find_topic<int>("l"));
    CHECK(thrown_by([&] { w.broker->delete_log("t"); }) == errc::not_found);
    CHECK(thrown_by([&] { w.broker->delete_topic("l"); }) == errc::not_found);
    CHECK(w.broker->find_topic<int>("t"));
    CHECK(w.broker->find_log<int>("l"));
    (void)w.broker->queue<int>("t.plain");
    w.close_and_open();
    CHECK(thrown_by([&] { (void)w.topic().subscribe("plain"); }) == errc::already_exists);
}

TEST_CASE("[N05] a log that is kept can be shared record by record") {
    const int how = GENERATE(0, 1, 2);
    world w;
    const auto log = [&] { return w.broker->log<int>("l", {.partitions = 3}); };
    {
        const auto q = log().subscribe("s", {.start = log_start::earliest});
        auto p = log().producer();
        for (int n = 0; n != 30; ++n) {
            p.send("key-" + std::to_string(n), n);
        }
        auto c = q.consumer();
        for (int n = 0; n != 10; ++n) {
            c.try_receive()->ack();
        }
        w.broker->sync();
    }
    w.end(how);
    log().add_partitions(1);
    for (std::uint32_t p = 0; p != 4; ++p) {
        log().producer().send("k", 100 + static_cast<int>(p), {.partition = p});
    }
    auto got = take_all(log().subscribe("s", {.start = log_start::earliest}));
    CHECK(got.size() == 24);
    std::sort(got.begin(), got.end());
    CHECK(std::unique(got.begin(), got.end()) == got.end());
    w.broker->sync();
    w.end(how);
    CHECK(take_all(log().subscribe("s")).empty());
    CHECK(log().stats().records == 34); // retention alone decides on a log's records
}

TEST_CASE("what a log has removed stays with the subscription that has it in work") {
    const int how = GENERATE(0, 1, 2);
    world w{in_a_hurry()};
    const auto log = [&] { return w.broker->log<std::string>("l", {.segment_records = 10}); };
    {
        const auto q = log().subscribe("s");
        auto p = log().producer();
        for (int n = 0; n != 40; ++n) {
            p.send("key", "value " + std::to_string(n), {.headers = {{"n", std::to_string(n)}}});
        }
        auto c = q.consumer();
        auto d = c.receive_batch(40, 0s);
        CHECK(d.size() == 40);
        CHECK(d.front().value() == "value 0");
        log().delete_records(0, 40);
        // Segments in which nothing else is wanted are stored again, or go.
        auto other = w.broker->queue<std::string>("other").producer();
        auto reader = w.broker->queue<std::string>("other").consumer();
        for (int n = 0; n != 500; ++n) {
            other.send(std::string(500, 'x'));
            reader.try_receive()->ack();
        }
        w.broker->sync();
        w.end(how);
    }
    CHECK(w.disk.used() < 150'000);
    auto c = log().subscribe("s").consumer();
    for (int n = 0; n != 40; ++n) {
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->value() == "value " + std::to_string(n));
        CHECK(d->properties().key == "key");
        CHECK(d->properties().headers.front().second == std::to_string(n));
        d->ack();
    }
    CHECK_FALSE(c.try_receive());
}

TEST_CASE("a message is written once, however many subscriptions take it") {
    world w{in_a_hurry()};
    const auto topic = w.broker->topic<std::string>("t");
    for (int s = 0; s != 20; ++s) {
        (void)topic.subscribe("s" + std::to_string(s), {.queue = at_once()});
    }
    topic.producer().send_batch(std::vector<std::string>(100, std::string(1000, 'x')));
    for (int s = 0; s != 20; ++s) {
        auto c = topic.subscribe("s" + std::to_string(s), {.queue = at_once()}).consumer();
        auto d = c.receive_batch(100, 0s);
        CHECK(d.size() == 100);
    }
    w.broker->sync();
    w.close_and_open();
    CHECK(w.disk.used() < 300'000); // 100,000 once; twenty times would be 2,000,000
    auto c = w.broker->topic<std::string>("t").subscribe("s7", {.queue = at_once()}).consumer();
    CHECK(c.receive_batch(1000, 0s).size() == 100);
}

TEST_CASE("the journal stays short, and rounds of the upkeep lose nothing") {
    world w{in_a_hurry()};
    (void)w.topic().subscribe("never", {.max_backlog = 300});
    int sent = 0;
    std::vector<int> got;
    for (int run = 0; run != 10; ++run) {
        const auto topic = w.topic();
        const auto q = topic.subscribe("s");
        auto c = q.consumer();
        auto p = topic.producer();
        std::vector<railmq::basic_delivery<int, railmq::simulated>> held;
        for (int i = 0; i != 2000; ++i) {
            p.send(sent++);
            auto d = c.try_receive();
            REQUIRE(d);
            if (i % 100 == 7) {
                held.push_back(std::move(*d));
            } else {
                got.push_back(d->value());
                d->ack();
            }
        }
        for (auto& d : held) {
            got.push_back(d.value());
            d.ack();
        }
        held.clear();
        w.broker->sync();
        w.end(run % 3);
        CHECK(w.disk.used() < 800'000); // of 480,000 a run
    }
    std::sort(got.begin(), got.end());
    CHECK(got == numbers(0, sent - 1));
    CHECK(take_all(w.topic().subscribe("s")).empty());
    CHECK(
        take_all(w.topic().subscribe("never", {.max_backlog = 300})) ==
        numbers(sent - 300, sent - 1));
}

TEST_CASE("sends to topics in a transaction happen with all the rest, or not at all") {
    const int how = GENERATE(0, 1, 2);
    world w;
    {
        const auto topic = w.topic();
        const auto s = topic.subscribe("s");
        const auto out = w.broker->topic<int>("out");
        (void)out.subscribe("s");
        auto p = topic.producer();
        auto to = out.producer();
        p.send(1);
        p.send(2);
        auto c = s.consumer();
        auto d = c.try_receive();
        auto tx = w.broker->begin();
        tx.send(to, 10 * d->value());
        tx.send(p, 3); // to its own topic as well
        tx.ack(*d);
        tx.commit();
        d = c.try_receive();
        CHECK(d->value() == 2);
        auto lost = w.broker->begin();
        lost.send(to, 20);
        lost.ack(*d);
        lost.abort();
        w.sim.advance(1h); // it has failed, and waits
        w.broker->sync();
    }
    w.end(how);
    CHECK(take_all(w.broker->topic<int>("out").subscribe("s")) == numbers(10, 10));
    auto got = take_all(w.topic().subscribe("s"));
    std::sort(got.begin(), got.end());
    CHECK(got == numbers(2, 3));
}

TEST_CASE("[T10] where the disk is full nothing is lost, and it is said again when it can be") {
    world w{in_a_hurry()};
    (void)w.topic().subscribe("s");
    publish(w.topic(), 0, 199);
    w.broker->sync();
    w.disk.set_capacity(w.disk.used());
    const auto q = w.topic().subscribe("s");
    {
        auto c = q.consumer();
        for (int n = 0; n != 100; ++n) {
            auto d = c.try_receive();
            REQUIRE(d);
            CHECK(d->value() == n);
            d->ack();
        }
        auto held = c.receive_batch(50, 0s);
        CHECK(held.size() == 50);
        w.disk.set_capacity(railmq::unlimited);
        railmq::error_code ec;
        w.broker->sync(ec); // tells that something could not be
        CHECK(ec == errc::no_space);
        held.front().ack();
        w.broker->sync();
        w.kill_and_open();
    }
    // Acknowledgements that could not be written are none; and nothing is missing.
    auto got = take_all(w.topic().subscribe("s"));
    std::sort(got.begin(), got.end());
    CHECK(std::unique(got.begin(), got.end()) == got.end());
    const auto expected = numbers(101, 199);
    CHECK(std::includes(got.begin(), got.end(), expected.begin(), expected.end()));
}

TEST_CASE("what is in a topic can be seen without a broker, and is saved where it is damaged") {
    using namespace railmq::storage;
    world w;
    {
        const auto topic = w.topic();
        const auto q = topic.subscribe("s", {.where = {{"h", {}}}});
        (void)topic.subscribe("never");
        auto p = topic.producer();
        for (int n = 0; n != 100; ++n) {
            p.send(n, properties{.headers = {{"h", std::to_string(n)}}});
        }
        auto c = q.consumer();
        auto held = c.receive_batch(3, 0s);
        held.front().ack();
        w.broker->sync();
        w.disk.end_process();
        w.broker.reset();
    }
    const bool is_saved = GENERATE(false, true);
    simulated_disk other{2};
    if (is_saved) {
        salvage_report report;
        railmq::error_code ec;
        salvage(w.disk.directory(), other.directory(), {.fresh = {7, 7}}, report, ec);
        REQUIRE_FALSE(ec);
        CHECK(report.lost.empty());
        CHECK(report.lost_of_logs.empty());
        CHECK(report.messages == 63);
        CHECK(report.records == 100);
    }
    simulated_disk& disk = is_saved ? other : w.disk;
    {
        recovery_report report;
        railmq::error_code ec;
        const auto view = journal_view<simulated_directory>::open(disk.directory(), report, ec);
        REQUIRE(view);
        kept_queue* q = find_queue(view->state(), "t.s");
        REQUIRE(q != nullptr);
        CHECK(count_messages(*q).all() == 63);
        CHECK(count_untaken(view->state(), *q) == 36);
        CHECK(count_untaken(view->state(), *find_queue(view->state(), "t.never")) == 100);
        q->messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
            auto image = m.image(id);
            CHECK(view->load(*q, m, image, ec).size() == sizeof(int));
            CHECK(image.props->headers.front().second == std::to_string(id));
            return true;
        });
    }
    railmq::sim_broker broker{w.sim, disk.directory()};
    const auto topic = broker.topic<int>("t");
    CHECK(take_all(topic.subscribe("s", {.where = {{"h", {}}}})).size() == 99);
    CHECK(take_all(topic.subscribe("never")) == numbers(0, 99));
}

TEST_CASE("a broker with a directory refuses what it does not keep") {
    struct without_bytes {
        std::shared_ptr<int> at{};
    };
    world w;
    CHECK(thrown_by([&] { (void)w.broker->topic<without_bytes>("t"); }) == errc::invalid_argument);
    CHECK(w.broker->topic_names().empty());
    const auto log = w.broker->log<int>("log");
    const auto exchange = w.broker->exchange<int>("exchange", railmq::exchange_type::fanout);
    CHECK(thrown_by([&] { exchange.bind(log); }) == errc::invalid_argument);
    CHECK(exchange.producer().send(1).routed == 0);
    // A subscription for the time being is nothing that a kept exchange could lead to.
    const auto live = w.topic().subscribe();
    CHECK(thrown_by([&] { exchange.bind(live); }) == errc::not_found);
}
