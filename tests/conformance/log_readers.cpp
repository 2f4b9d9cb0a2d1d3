// SPDX-License-Identifier: BSL-1.0
//
// Reading a log without a group.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::log_start;
using namespace railmq::test;

namespace {

template <class T = int, class World>
[[nodiscard]] auto open_log(World& world, const railmq::log_options& o = {}) {
    return world.broker.template log<T>("log", o);
}

/// Appends first, first + 1, ... up to and including last.
template <class Log>
void append_range(const Log& log, int first, int last) {
    auto producer = log.producer();
    for (int n = first; n <= last; ++n) {
        producer.send(n);
    }
}

/// All that can be read now.
template <class Consumer>
[[nodiscard]] std::vector<typename Consumer::value_type> read_all(Consumer& consumer) {
    std::vector<typename Consumer::value_type> all;
    while (auto d = consumer.try_receive()) {
        all.push_back(d->value());
    }
    return all;
}

} // namespace

TEMPLATE_TEST_CASE(
    "every reader gets everything, again and again [P01]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    append_range(log, 1, 100);
    auto one = log.consumer();
    auto two = log.consumer();
    CHECK(read_all(one) == numbers(1, 100));
    CHECK(read_all(two) == numbers(1, 100));
    railmq::error_code ec;
    CHECK_FALSE(one.try_receive(ec)); // at the end: empty, not an error of the place
    CHECK(ec == errc::would_block);
    one.seek(0, 90);
    CHECK(read_all(one) == numbers(91, 100));
    append_range(log, 101, 110);
    CHECK(read_all(one) == numbers(101, 110));
    CHECK(one.position(0) == 110U);
    CHECK_FALSE(one.position(1));
}

TEMPLATE_TEST_CASE(
    "any start offset: the first record is that one [P12]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, {.segment_records = 64});
    append_range(log, 0, 999);
    for (const int n : {0, 1, 63, 64, 65, 500, 998, 999}) {
        auto reader = log.consumer({.start = log_start::at_offset(static_cast<std::uint64_t>(n))});
        const auto d = reader.try_receive();
        REQUIRE(d);
        CHECK(d->value() == n);
        CHECK(d->offset() == static_cast<std::uint64_t>(n));
    }
    CHECK_FALSE(log.consumer({.start = log_start::at_offset(1000)}).try_receive());
    CHECK(error_of([&] {
              (void)log.consumer({.start = log_start::at_offset(1001)});
          }) == errc::offset_out_of_range);
    auto reader = log.consumer();
    CHECK(error_of([&] { reader.seek(0, 1001); }) == errc::offset_out_of_range);
    CHECK(error_of([&] { reader.seek(1, 0); }) == errc::invalid_argument);
    CHECK(reader.try_receive()->value() == 0); // where it was
}

TEMPLATE_TEST_CASE(
    "a reader begins at the start or at the end [P13]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    append_range(log, 1, 5);
    auto first = log.consumer();
    auto last = log.consumer({.start = log_start::latest});
    append_range(log, 6, 7);
    CHECK(read_all(first) == numbers(1, 7));
    CHECK(read_all(last) == numbers(6, 7));
    auto nowhere = log.consumer({.start = log_start::none});
    CHECK(error_of([&] { (void)nowhere.try_receive(); }) == errc::offset_out_of_range);
    nowhere.seek(0, 5);
    CHECK(read_all(nowhere) == numbers(6, 7));
}

TEST_CASE("a reader begins at a time [Q05, Q08]") {
    simulated_world world;
    const auto log = open_log(world);
    append_range(log, 1, 250);
    world.advance(1min);
    const auto t = log.now();
    append_range(log, 251, 500);
    auto reader = log.consumer({.start = log_start::at_time(t)});
    CHECK(read_all(reader) == numbers(251, 500));
    reader.seek_to_time(t - 1min);
    CHECK(read_all(reader) == numbers(1, 500));
    reader.seek_to_time(t + 1h); // the future: only what is new
    CHECK(read_all(reader).empty());
    append_range(log, 501, 501);
    CHECK(read_all(reader) == numbers(501, 501));
}

TEMPLATE_TEST_CASE(
    "a record is read as it was sent, in place", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log<std::string>(world, {.partitions = 2});
    auto producer = log.producer();
    const auto at = railmq::time_point{5s};
    const auto where = producer.send(
        "key", "value", {.correlation_id = "c", .headers = {{"a", "b"}}}, {.timestamp = at});
    producer.send("none", {.partition = where.partition});
    producer.send_tombstone("key");
    auto one = log.consumer();
    auto two = log.consumer({.partitions = {where.partition}});
    const auto d = one.try_receive();
    REQUIRE(d);
    CHECK(**d == "value");
    CHECK((*d)->size() == 5);
    CHECK(d->key() == "key");
    CHECK(d->properties().correlation_id == "c");
    CHECK(d->properties().headers.size() == 1);
    CHECK(d->partition() == where.partition);
    CHECK(d->offset() == where.offset);
    CHECK(d->timestamp() == at);
    CHECK_FALSE(d->is_tombstone());
    CHECK(&two.try_receive()->value() == &d->value()); // the same object
    const auto keyless = one.try_receive();
    CHECK_FALSE(keyless->key());
    CHECK(keyless->properties() == railmq::properties{});
    const auto deleted = one.try_receive();
    CHECK(deleted->is_tombstone());
    CHECK(deleted->key() == "key");
    CHECK(error_of([&] { (void)deleted->value(); }) == errc::not_found);
    CHECK(error_of([] { (void)railmq::log_delivery<int>{}.value(); }) == errc::stale_delivery);
}

TEMPLATE_TEST_CASE(
    "settling without a group removes nothing [P14]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    append_range(log, 1, 3);
    auto reader = log.consumer({.retry_backoff = railmq::constant_backoff{.delay = 0s}});
    auto d = reader.try_receive();
    CHECK(d->ack());
    CHECK_FALSE(d->ack());
    CHECK(d->value() == 1);
    d = reader.try_receive();
    CHECK(d->nack());
    CHECK_FALSE(d->nack());
    CHECK_FALSE(d->ack());
    d = reader.try_receive();
    CHECK(d->value() == 2); // again
    CHECK(d->failure_count() == 1);
    CHECK(d->release());
    d = reader.try_receive();
    CHECK(d->value() == 2);
    CHECK(d->failure_count() == 1);
    CHECK(d->ack());
    CHECK(read_all(reader) == numbers(3, 3));
    CHECK(log.stats().records == 3);
    CHECK(error_of([&] { reader.commit(); }) == errc::invalid_argument);
}

TEST_CASE("a record that failed holds its partition for the backoff, and no other") {
    simulated_world world;
    const auto log = open_log(world, {.partitions = 2});
    append_range(log, 1, 6); // odd numbers in partition 0
    auto reader = log.consumer({.retry_backoff = railmq::constant_backoff{.delay = 10s}});
    reader.try_receive()->nack();
    CHECK(read_all(reader) == std::vector{2, 4, 6});
    world.advance(9s);
    CHECK(read_all(reader).empty());
    CHECK(reader.receive()->value() == 1); // the simulation runs until it is due
    CHECK(world.now() == 10s);
    CHECK(read_all(reader) == std::vector{3, 5});
    // With a time of its own.
    reader.seek(0, 2);
    reader.try_receive()->nack(1min);
    CHECK_FALSE(reader.receive(59s));
    CHECK(reader.receive(1s)->value() == 5);
}

TEMPLATE_TEST_CASE("partitions are chosen and paused", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, {.partitions = 3});
    append_range(log, 0, 8);
    auto reader = log.consumer({.partitions = {2, 0, 2}});
    CHECK(reader.assignment() == railmq::partition_numbers{0, 2});
    reader.pause(0);
    CHECK(read_all(reader) == std::vector{2, 5, 8});
    reader.resume(0);
    CHECK(read_all(reader) == std::vector{0, 3, 6});
    CHECK(error_of([&] { reader.pause(1); }) == errc::invalid_argument);
    CHECK(error_of([&] { (void)log.consumer({.partitions = {3}}); }) == errc::invalid_argument);
}

TEMPLATE_TEST_CASE("records come in batches", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, {.segment_records = 16});
    append_range(log, 1, 40);
    auto reader = log.consumer();
    std::vector<int> all;
    std::size_t batches = 0;
    for (auto batch = reader.receive_batch(15, 0s); !batch.empty();
         batch = reader.receive_batch(15, 0s)) {
        ++batches;
        for (auto& d : batch) {
            all.push_back(d.value());
        }
    }
    CHECK(all == numbers(1, 40));
    CHECK(batches >= 3);
    railmq::error_code ec;
    std::vector<typename decltype(reader)::delivery_type> out;
    CHECK(reader.receive_batch(out, 0, 0s, ec) == 0);
    CHECK(ec == errc::invalid_argument);
}

namespace {

/// Code that does not know whether it works on a queue or on a log.
template <class Consumer>
[[nodiscard]] int sum_up(Consumer& consumer) {
    int sum = 0;
    while (auto d = consumer.receive(0s)) {
        sum += d->value();
        d->ack();
    }
    for (auto& d : consumer.receive_batch(10, 0s)) {
        d.nack();
    }
    return sum;
}

} // namespace

TEMPLATE_TEST_CASE("one template works on both shapes", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    append_range(log, 1, 10);
    const auto queue = open<int>(world, "queue");
    send_range(queue, 1, 10);
    auto of_log = log.consumer({.group = "g"});
    auto of_queue = queue.consumer();
    CHECK(sum_up(of_log) == 55);
    CHECK(sum_up(of_queue) == 55);
}

// Waiting

TEST_CASE("a waiting reader is woken by a send") {
    threaded_world world;
    const auto log = open_log(world, {.partitions = 4});
    std::vector<std::thread> threads;
    std::vector<int> got(4);
    for (auto& sum : got) {
        threads.emplace_back([&sum, reader = log.consumer()]() mutable {
            for (int n = 0; n < 1000; ++n) {
                sum += reader.receive()->value();
            }
        });
    }
    append_range(log, 1, 1000);
    for (auto& t : threads) {
        t.join();
    }
    CHECK(got == std::vector<int>(4, 500500));
}

TEST_CASE("a waiting reader gives up in time, and ends with its log [E]") {
    threaded_world world;
    const auto log = open_log(world);
    auto reader = log.consumer();
    railmq::error_code ec;
    CHECK_FALSE(reader.receive(1ms, ec));
    CHECK(ec == errc::timed_out);
    std::thread ends{[&] { world.broker.delete_log("log"); }};
    CHECK_FALSE(reader.receive(long_time, ec));
    CHECK(ec == errc::not_found);
    ends.join();
    CHECK_FALSE(reader.is_open());
}

TEST_CASE("a waiting reader runs the simulation") {
    simulated_world world;
    const auto log = open_log(world);
    auto reader = log.consumer();
    world.sim.async_wait(5s, [&](railmq::error_code) { log.producer().send(7); });
    CHECK(reader.receive(1min)->value() == 7);
    CHECK(world.now() == 5s);
    CHECK_FALSE(reader.receive(1min));
    CHECK(world.now() == 65s);
    railmq::error_code ec;
    CHECK_FALSE(reader.receive(ec));
    CHECK(ec == errc::would_deadlock); // nothing can come
    world.broker.close();
    CHECK_FALSE(reader.receive(ec));
    CHECK(ec == errc::closed);
}

// Removal under a reader

TEMPLATE_TEST_CASE(
    "a reader that retention has overtaken goes on, and says what it missed",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world);
    append_range(log, 0, 9);
    auto reader = log.consumer();
    auto held = reader.try_receive();
    auto strict = log.consumer({.start = log_start::none});
    strict.seek(0, 0);
    log.delete_records(0, 6);
    CHECK(read_all(reader) == numbers(6, 9));
    CHECK(reader.skipped() == 5);
    CHECK(held->value() == 0); // still there for who holds it
    CHECK(error_of([&] { (void)strict.try_receive(); }) == errc::offset_out_of_range);
    auto latest = log.consumer({.start = log_start::latest});
    latest.seek(0, 6);
    log.delete_records(0, 10);
    CHECK(read_all(latest).empty());
    CHECK(latest.skipped() == 4);
}

TEMPLATE_TEST_CASE(
    "a reader of a compacted log sees each key's last value [S01, S02, P02]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log =
        open_log(world, {.cleanup = railmq::log_cleanup::compact, .segment_records = 4});
    auto producer = log.producer();
    for (int n = 0; n < 20; ++n) {
        producer.send(std::to_string(n % 5), n);
    }
    auto before = log.consumer();
    CHECK(before.try_receive()->value() == 0);
    log.compact();
    auto after = log.consumer();
    const auto seen = read_all(after);
    CHECK(seen.size() < 20);
    CHECK(std::is_sorted(seen.begin(), seen.end()));
    for (int n = 15; n < 20; ++n) {
        CHECK(std::count(seen.begin(), seen.end(), n) == 1);
    }
    const auto rest = read_all(before);
    CHECK(std::is_sorted(rest.begin(), rest.end()));
    CHECK(rest.back() == 19);
}

TEMPLATE_TEST_CASE(
    "deliveries and handles outlive their broker", "", threaded_world, simulated_world) {
    std::optional<TestType> world{std::in_place};
    auto log = open_log<std::string>(*world);
    log.producer().send("k", "value");
    auto reader = log.consumer();
    auto d = reader.try_receive();
    if constexpr (TestType::runtime_type::concurrent) {
        world.reset();
    } else {
        world->broker.close(); // a simulation outlives its handles
    }
    CHECK(d->value() == "value");
    CHECK(d->ack());
    railmq::error_code ec;
    CHECK_FALSE(reader.try_receive(ec));
    CHECK(ec == errc::closed);
}
