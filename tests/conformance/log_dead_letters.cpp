// SPDX-License-Identifier: BSL-1.0
//
// Records that a group gives up: they hold their partition as long as the policy says, become dead
// letters, and the partition goes on.
#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::death_reason;
using railmq::errc;
using railmq::log_consumer_options;
using railmq::storage::simulated_disk;
using namespace railmq::test;

namespace {

/// What an observer was told; it outlives the broker.
struct told_notices {
    std::vector<railmq::notice> notices{};
};
/// A world that listens.
struct listening_world : told_notices, simulated_world {
    explicit listening_world(railmq::broker_options o = {})
        : simulated_world{listening(std::move(o))} {}
    railmq::broker_options listening(railmq::broker_options o) {
        o.observer = [this](const railmq::notice& n) { notices.push_back(n); };
        return o;
    }
    template <class Notice>
    [[nodiscard]] std::vector<Notice> told() const {
        std::vector<Notice> all;
        for (const auto& n : notices) {
            if (const auto* one = std::get_if<Notice>(&n)) {
                all.push_back(*one);
            }
        }
        return all;
    }
};

[[nodiscard]] log_consumer_options member_of(std::uint32_t attempts, railmq::backoff wait) {
    return {.group = "g", .retry_backoff = std::move(wait), .max_attempts = attempts};
}
[[nodiscard]] railmq::backoff every(railmq::duration d) {
    return railmq::constant_backoff{.delay = d};
}

template <class Delivery>
[[nodiscard]] std::string header(const Delivery& d, std::string_view name) {
    for (const auto& [n, value] : d.properties().headers) {
        if (n == name) {
            return value;
        }
    }
    return "-";
}

template <class Consumer>
std::vector<int> work(Consumer& consumer) {
    std::vector<int> all;
    while (auto d = consumer.try_receive()) {
        all.push_back(d->value());
        d->ack();
    }
    return all;
}

/// Its copy throws as long as it is told to.
struct fragile {
    explicit fragile(int n)
        : value{n} {}
    fragile(const fragile& other)
        : value{other.value} {
        if (breaks) {
            throw std::runtime_error{"copy"};
        }
    }
    fragile(fragile&&) noexcept = default;
    fragile& operator=(const fragile&) = delete;
    fragile& operator=(fragile&&) = delete;
    ~fragile() = default;
    int value;
    static inline bool breaks = false;
};

} // namespace

TEST_CASE("what fails holds its partition by the policy, and is given up in the end") {
    listening_world world;
    const auto log = world.broker.log<int>("log", {.partitions = 2});
    auto producer = log.producer();
    for (int n = 0; n < 4; ++n) {
        producer.send("k", n, railmq::append_options{.partition = 0});
    }
    producer.send(10, railmq::append_options{.partition = 1});
    auto consumer = log.consumer(member_of(3, every(10s)));
    const auto next = [&](railmq::duration limit) { return consumer.receive(limit); };
    std::vector<std::pair<int, std::int64_t>> runs;
    for (int run = 0; run < 3; ++run) {
        auto d = next(10s);
        while (d && d->value() == 10) { // the other partition goes on
            d->ack();
            d = next(10s);
        }
        REQUIRE(d);
        CHECK(d->failure_count() == static_cast<std::uint32_t>(run));
        runs.emplace_back(
            d->value(), std::chrono::round<std::chrono::seconds>(world.now()).count());
        CHECK(d->nack());
    }
    CHECK(runs == std::vector<std::pair<int, std::int64_t>>{{0, 0}, {0, 10}, {0, 20}});
    // The third failure was the last: no wait any more.
    CHECK(work(consumer) == numbers(1, 3));
    CHECK(world.now() == 20s);
    consumer.commit();
    CHECK(log.committed("g", 0) == 4u);
    CHECK(log.lag("g") == 0u);
    CHECK(log.stats("g").dead_lettered == 1);
    CHECK(log.stats().records == 5); // the log has it as before

    auto dead = world.broker.queue<int>("log.g.dead").consumer().try_receive();
    REQUIRE(dead);
    CHECK(dead->value() == 0);
    CHECK(dead->properties().key == "k");
    CHECK(header(*dead, "railmq.log") == "log");
    CHECK(header(*dead, "railmq.partition") == "0");
    CHECK(header(*dead, "railmq.offset") == "0");
    REQUIRE(dead->deaths().size() == 1);
    const auto& death = dead->deaths().front();
    CHECK(death.queue == "log.g");
    CHECK(death.reason == death_reason::max_attempts);
    CHECK(death.delivery_count == 3);
    CHECK(death.failure_count == 3);
    CHECK(death.message_id == 0);
    const auto told = world.told<railmq::notices::dead_lettered>();
    REQUIRE(told.size() == 1);
    CHECK(told[0].reason == death_reason::max_attempts);
    CHECK(told[0].target == "log.g.dead");
    CHECK(told[0].delivery_count == 3);
}

TEMPLATE_TEST_CASE(
    "a rejected record is a dead letter at once, and the partition goes on",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>("log");
    send_range(log, 1, 3);
    auto consumer = log.consumer({.group = "g"});
    auto batch = consumer.receive_batch(3, 0s);
    REQUIRE(batch.size() == 3);
    CHECK(batch[2].ack());
    CHECK(batch[1].reject("no such table"));
    CHECK_FALSE(batch[1].reject());
    CHECK_FALSE(batch[1].ack());
    consumer.commit();
    CHECK(log.committed("g", 0) == 0u); // the first one is still in work
    CHECK(batch[0].reject());
    consumer.commit();
    CHECK(log.committed("g", 0) == 3u);
    auto reader = world.broker.template queue<int>("log.g.dead").consumer();
    auto second = reader.try_receive();
    REQUIRE(second);
    CHECK(second->value() == 2);
    CHECK(second->deaths().front().reason == death_reason::rejected);
    CHECK(second->deaths().front().detail == "no such table");
    CHECK(second->deaths().front().delivery_count == 1);
    CHECK(second->deaths().front().failure_count == 0);
    second->ack();
    CHECK(reader.try_receive()->value() == 1);
    // Neither a release nor an acknowledgement counts as a failure.
    CHECK(log.stats("g") == railmq::log_group_stats{1, 1, 2, 0, 0});
}

TEST_CASE("a dropped delivery counts as a failure, a released one does not") {
    simulated_world world;
    const auto log = world.broker.log<int>("log");
    send_range(log, 1, 2);
    auto consumer = log.consumer(member_of(2, every(0s)));
    for (int n = 0; n < 5; ++n) {
        consumer.try_receive()->release();
    }
    (void)consumer.try_receive();
    CHECK(log.stats("g").dead_lettered == 0);
    (void)consumer.try_receive(); // destroyed unsettled, the second time
    CHECK(log.stats("g").dead_lettered == 1);
    CHECK(work(consumer) == numbers(2, 2));
}

TEST_CASE("dead letters go where the group, or the broker, says") {
    listening_world world;
    const auto log = world.broker.log<int>("log");
    send_range(log, 1, 2);
    log_consumer_options o{.group = "g"};
    const auto reject_all = [&] {
        auto consumer = log.consumer(o);
        while (auto d = consumer.try_receive()) {
            CHECK(d->reject("why"));
        }
        consumer.commit();
        CHECK(log.committed("g", 0) == 2u);
    };
    SECTION("to a queue") {
        o.dead_letter = "parking";
        reject_all();
        CHECK(world.broker.queue<int>("parking").stats().ready == 2);
    }
    SECTION("to the broker's") {
        world.broker.default_dead_letter("all");
        reject_all();
        CHECK(world.broker.queue<int>("all").stats().ready == 2);
    }
    SECTION("nowhere") {
        o.dead_letter = railmq::discard;
        reject_all();
        CHECK(log.stats("g").dropped == 2);
        const auto told = world.told<railmq::notices::dropped>();
        REQUIRE(told.size() == 2);
        CHECK(told[1].id == 1);
        CHECK(told[1].reason == death_reason::rejected);
        CHECK(world.broker.names().empty());
    }
    SECTION("to a log") {
        const auto dead = world.broker.log<int>("dead", {.partitions = 3});
        o.dead_letter = "dead";
        log.producer().send("k", 3);
        auto consumer = log.consumer(o);
        while (auto d = consumer.try_receive()) {
            d->reject("why");
        }
        CHECK(log.stats("g").dead_lettered == 3);
        auto reader = dead.consumer();
        std::map<int, std::string> seen;
        while (auto d = reader.try_receive()) {
            CHECK(header(*d, "railmq.group") == "g");
            CHECK(header(*d, "railmq.reason") == "rejected");
            CHECK(header(*d, "railmq.detail") == "why");
            CHECK(header(*d, "railmq.log") == "log");
            seen[d->value()] = header(*d, "railmq.offset") + (d->key() ? "k" : "");
        }
        CHECK(seen == std::map<int, std::string>{{1, "0"}, {2, "1"}, {3, "2k"}});
    }
}

TEST_CASE("a tombstone has no value for a queue, and is one in a log as well") {
    listening_world world;
    const auto log = world.broker.log<int>("log");
    log.producer().send_tombstone("k");
    SECTION("a queue") {
        auto consumer = log.consumer({.group = "g"});
        CHECK(consumer.try_receive()->reject());
        CHECK(log.stats("g").dropped == 1);
        CHECK(world.told<railmq::notices::dropped>().size() == 1);
        CHECK(world.broker.queue<int>("log.g.dead").stats().ready == 0);
    }
    SECTION("a log") {
        const auto dead = world.broker.log<int>("dead");
        auto consumer = log.consumer({.group = "g", .dead_letter = "dead"});
        CHECK(consumer.try_receive()->reject());
        const auto d = dead.consumer().try_receive();
        REQUIRE(d);
        CHECK(d->is_tombstone());
        CHECK(d->key() == "k");
    }
}

TEST_CASE("a dead letter without a place holds its partition, and is not lost") {
    listening_world world;
    const auto parking = world.broker.queue<int>(
        "parking",
        {.max_length = 1,
         .overflow = railmq::overflow_policy::reject,
         .dead_letter = railmq::discard});
    const auto log = world.broker.log<int>("log", {.partitions = 2});
    auto producer = log.producer();
    for (int n = 1; n <= 3; ++n) {
        producer.send(n, railmq::append_options{.partition = 0});
    }
    auto o = member_of(1, every(10s));
    o.dead_letter = "parking";
    auto consumer = log.consumer(o);
    CHECK(consumer.try_receive()->reject()); // there is room for it
    CHECK(consumer.try_receive()->nack());   // and none for this
    CHECK(log.stats("g") == railmq::log_group_stats{1, 1, 1, 0, 1});
    const auto refused = world.told<railmq::notices::dead_letter_refused>();
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].code == errc::queue_full);
    CHECK(refused[0].target == "parking");
    CHECK(refused[0].id == 1);
    // Its partition waits for it, the other one does not.
    producer.send(10, railmq::append_options{.partition = 1});
    CHECK(work(consumer) == numbers(10, 10));
    consumer.commit();
    CHECK(log.committed("g", 0) == 1u);

    SECTION("it is tried again, with the policy's waits") {
        CHECK_FALSE(consumer.receive(25s));
        CHECK(log.stats("g").dead_letters_refused == 3);
        world.broker.queue<int>("parking").consumer().try_receive()->ack();
        CHECK(consumer.receive(1min)->value() == 3);
        CHECK(world.now() == 30s);
        CHECK(log.stats("g").dead_lettered == 2);
        auto last = parking.consumer().try_receive();
        CHECK(last->value() == 2);
        CHECK(last->deaths().front().reason == death_reason::max_attempts);
    }
    SECTION("an asynchronous receive waits for it as well") {
        std::optional<int> got;
        consumer.async_receive([&](railmq::error_code, auto d) { got = d.value(); });
        world.advance(9s);
        CHECK(log.stats("g").dead_letters_refused == 1);
        parking.consumer().try_receive()->ack();
        CHECK_FALSE(got);
        world.advance(1s);
        CHECK(got == 3);
    }
    SECTION("its member goes: another gets it, as if nothing had been") {
        consumer.close();
        auto other = log.consumer({.group = "g"});
        auto d = other.try_receive();
        REQUIRE(d);
        CHECK(d->value() == 2);
        CHECK(d->failure_count() == 0);
    }
    SECTION("its queue is deleted, and made anew") {
        world.broker.delete_queue("parking");
        auto third = consumer.receive(10s);
        REQUIRE(third);
        CHECK(third->value() == 3);
        CHECK(world.broker.queue<int>("parking").stats().ready == 1);
    }
    SECTION("a seek forgets it") {
        consumer.seek(0, 1);
        CHECK(consumer.try_receive()->value() == 2);
    }
}

TEST_CASE("a value whose copy throws stays where it is, and is tried again") {
    simulated_world world;
    const auto log = world.broker.log<fragile>("log");
    log.producer().send(fragile{1});
    log.producer().send(fragile{2});
    auto consumer = log.consumer({.group = "g", .retry_backoff = every(1s)});
    fragile::breaks = true;
    CHECK(consumer.try_receive()->reject("bad"));
    CHECK_FALSE(consumer.receive(2500ms));
    CHECK(world.broker.stats().observer_failures == 3);
    fragile::breaks = false;
    CHECK(consumer.receive(1s)->value().value == 2);
    const auto d = world.broker.queue<fragile>("log.g.dead").consumer().try_receive();
    REQUIRE(d);
    CHECK(d->value().value == 1);
    CHECK(d->deaths().front().detail == "bad");
}

TEMPLATE_TEST_CASE(
    "what cannot have dead letters is refused, and changes nothing",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>("log");
    (void)world.broker.template queue<std::string>("text");
    (void)world.broker.template log<std::string>("texts");
    (void)world.broker.template topic<int>("topic");
    const auto refused = [&](log_consumer_options o) {
        return error_of([&] { (void)log.consumer(std::move(o)); });
    };
    CHECK(refused({.max_attempts = 1}) == errc::invalid_argument);
    CHECK(refused({.dead_letter = "parking"}) == errc::invalid_argument);
    CHECK(refused({.group = "g", .dead_letter = "no name"}) == errc::invalid_name);
    CHECK(refused({.group = "g", .dead_letter = "text"}) == errc::type_mismatch);
    CHECK(refused({.group = "g", .dead_letter = "texts"}) == errc::type_mismatch);
    CHECK(refused({.group = "g", .dead_letter = "topic"}) == errc::type_mismatch);
    CHECK(refused({.group = "g", .dead_letter = "log"}) == errc::invalid_argument);
    CHECK(world.broker.names() == std::vector<std::string>{"text", "text.dead"});
    const auto own = world.broker.template log<std::unique_ptr<int>>("own");
    CHECK(error_of([&] {
              (void)own.consumer({.group = "g", .max_attempts = 1});
          }) == errc::invalid_argument);
    CHECK_NOTHROW(own.consumer({.group = "g", .max_attempts = 1, .dead_letter = railmq::discard}));
    // Nobody else's progress would be held up by it.
    log.producer().send(1);
    auto reader = log.consumer();
    auto d = reader.try_receive();
    CHECK(error_of([&] { d->reject(); }) == errc::invalid_argument);
    CHECK(d->ack());
}

TEMPLATE_TEST_CASE("a late rejection changes nothing", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>("log");
    send_range(log, 1, 2);
    auto consumer = log.consumer({.group = "g"});
    auto d = consumer.try_receive();
    consumer.seek(0, 0);
    CHECK_FALSE(d->reject());
    d = consumer.try_receive();
    consumer.close();
    CHECK_FALSE(d->reject());
    CHECK(log.stats("g").dead_lettered == 0);
}

TEST_CASE("a member that was taken for dead gives nothing up any more") {
    simulated_world world;
    const auto log = world.broker.log<int>("log");
    send_range(log, 1, 1);
    auto consumer = log.consumer({.group = "g"});
    auto d = consumer.try_receive();
    REQUIRE(d);
    world.advance(1min);
    auto other = log.consumer({.group = "g"});
    auto again = other.receive(1s);
    REQUIRE(again);
    CHECK_FALSE(d->reject());
    CHECK(log.stats("g").dead_lettered == 0);
    CHECK(again->reject());
    CHECK(log.stats("g").dead_lettered == 1);
}

TEST_CASE("whenever the power goes, a record that was passed is a dead letter") {
    simulated_disk disk{1};
    railmq::simulation sim{1};
    std::optional<railmq::sim_broker> broker{std::in_place, sim, disk.directory()};
    const bool to_log = GENERATE(false, true);
    std::vector<simulated_disk> moments;
    {
        auto log = broker->log<int>("log");
        if (to_log) {
            (void)broker->log<int>("dead");
        }
        send_range(log, 0, 9);
        auto consumer = log.consumer({.group = "g", .dead_letter = "dead"});
        for (int n = 0; n < 10; ++n) {
            consumer.try_receive()->reject();
            if (n % 4 == 1) {
                broker->sync(); // the dead letter is on the device, the commit not even written
            }
            moments.push_back(disk);
            if (n % 3 == 0) {
                consumer.commit();
            }
            moments.push_back(disk);
        }
    }
    bool is_any_passed = false;
    bool is_any_twice = false;
    for (std::size_t i = 0; i < moments.size(); ++i) {
        simulated_disk after = moments[i];
        after.reseed(i);
        i % 2 == 0 ? after.crash() : after.end_process();
        railmq::simulation again{3};
        railmq::sim_broker next{again, after.directory()};
        const auto log = next.log<int>("log");
        std::vector<int> dead;
        const auto collect = [&](auto consumer) {
            while (auto d = consumer.try_receive()) {
                dead.push_back(d->value());
                d->ack();
            }
        };
        const auto collect_all = [&] {
            to_log ? collect(next.log<int>("dead").consumer())
                   : collect(next.queue<int>("dead").consumer());
        };
        const auto groups = log.groups();
        const std::uint64_t passed = groups.empty() ? 0 : log.committed("g", 0).value_or(0);
        collect_all();
        for (std::uint64_t n = 0; n < passed; ++n) {
            CHECK(std::count(dead.begin(), dead.end(), static_cast<int>(n)) >= 1);
        }
        is_any_passed = is_any_passed || passed != 0;
        // What it goes on with are the others: all of them are dead letters in the end.
        auto consumer = log.consumer({.group = "g", .dead_letter = "dead"});
        while (auto d = consumer.try_receive()) {
            d->reject();
        }
        if (to_log) {
            dead.clear(); // it is read from the start
        }
        collect_all();
        for (int n = 0; n < 10; ++n) {
            const auto copies = std::count(dead.begin(), dead.end(), n);
            CHECK(copies >= 1);
            is_any_twice = is_any_twice || copies > 1;
        }
    }
    CHECK(is_any_passed);
    CHECK(is_any_twice); // at least once
}

TEST_CASE("a full disk keeps the dead letter where it is") {
    simulated_disk disk{1};
    railmq::simulation sim{1};
    railmq::sim_broker broker{
        sim, disk.directory(), {.journal = {.segment_bytes = 16 << 10, .headroom_bytes = 4 << 10}}};
    auto log = broker.log<std::string>("log");
    auto producer = log.producer();
    producer.send(std::string(3'000, 'a'));
    auto consumer = log.consumer({.group = "g", .retry_backoff = every(1s)});
    auto d = consumer.try_receive();
    disk.set_capacity(1);
    railmq::error_code ec;
    for (int n = 0; n < 20 && !ec; ++n) {
        producer.send(std::string(3'000, 'b'), ec);
    }
    REQUIRE(ec == errc::no_space);
    CHECK(d->reject());
    CHECK(log.stats("g").dead_letters_refused == 1);
    CHECK(log.stats("g").dead_lettered == 0);
    disk.set_capacity(railmq::unlimited);
    CHECK(consumer.receive(2s));
    CHECK(log.stats("g").dead_lettered == 1);
}
