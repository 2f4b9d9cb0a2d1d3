// SPDX-License-Identifier: BSL-1.0
//
// Groups: members divide the partitions of a log, and what they acknowledge is remembered.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::log_start;
using railmq::partition_numbers;
using namespace railmq::test;

namespace {

template <class T = int, class World>
[[nodiscard]] auto open_log(World& world, std::uint32_t partitions) {
    return world.broker.template log<T>("log", {.partitions = partitions});
}

/// Appends first to last, in turn to the partitions, beginning with partition 0.
template <class Log>
void append_range(const Log& log, int first, int last) {
    auto producer = log.producer();
    for (int n = first; n <= last; ++n) {
        producer.send(n);
    }
}

/// All that the member can get now, acknowledged.
template <class Consumer>
std::vector<int> work(Consumer& consumer) {
    std::vector<int> all;
    while (auto d = consumer.try_receive()) {
        all.push_back(d->value());
        d->ack();
    }
    return all;
}

template <class Consumer>
[[nodiscard]] railmq::error_code receive_error(Consumer& consumer) {
    railmq::error_code ec;
    (void)consumer.try_receive(ec);
    return ec;
}

[[nodiscard]] std::vector<int> sorted(std::vector<int> all) {
    std::sort(all.begin(), all.end());
    return all;
}

} // namespace

// Membership

TEMPLATE_TEST_CASE(
    "two groups each read all 50 records [U14]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    append_range(log, 1, 50);
    for (const char* group : {"one", "two"}) {
        auto member = log.consumer({.group = group});
        CHECK(sorted(work(member)) == numbers(1, 50));
    }
    CHECK(log.groups() == std::vector<std::string>{"one", "two"});
}

TEMPLATE_TEST_CASE(
    "members divide the partitions [U01, U03, U06]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    const railmq::log_consumer_options o{.group = "g", .assignor = railmq::assignor::range};
    auto a = log.consumer(o);
    CHECK(receive_error(a) == errc::would_block);
    CHECK(a.assignment() == partition_numbers{0, 1, 2});
    CHECK(log.generation("g") == 1);
    auto b = log.consumer(o);
    (void)receive_error(a); // lets go
    (void)receive_error(b);
    (void)receive_error(a);
    CHECK(a.assignment() == partition_numbers{0, 1});
    CHECK(b.assignment() == partition_numbers{2});
    CHECK(log.generation("g") == 2);
    CHECK(log.members("g") == 2);
    auto c = log.consumer(o);
    auto d = log.consumer(o);
    for (auto* m : {&a, &b, &c, &d, &a, &b, &c, &d}) {
        (void)receive_error(*m);
    }
    CHECK(d.assignment().empty()); // more members than partitions
    CHECK(a.assignment().size() + b.assignment().size() + c.assignment().size() == 3);
}

TEMPLATE_TEST_CASE(
    "cooperative: only what moves is taken away [U04]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    std::vector<std::string> events;
    const auto options = [&](std::string name) {
        const auto note = [&events, name](const char* what) {
            return [&events, name, what](const partition_numbers& all) {
                std::string e = name + what;
                for (const auto p : all) {
                    e += " " + std::to_string(p);
                }
                events.push_back(e);
            };
        };
        return railmq::log_consumer_options{
            .group = "g", .on_assigned = note(" got"), .on_revoked = note(" gives")};
    };
    auto a = log.consumer(options("a"));
    (void)receive_error(a);
    auto b = log.consumer(options("b"));
    (void)receive_error(b); // nothing yet: a has not let go
    CHECK(b.assignment().empty());
    (void)receive_error(a);
    (void)receive_error(b);
    CHECK(a.assignment().size() == 2);
    CHECK(b.assignment() == partition_numbers{2});
    a.close();
    (void)receive_error(b);
    CHECK(b.assignment() == partition_numbers{0, 1, 2});
    CHECK(events == std::vector<std::string>{"a got 0 1 2", "a gives 2", "b got 2", "b got 0 1"});
}

TEMPLATE_TEST_CASE("partitions that are added are divided", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    auto member = log.consumer({.group = "g"});
    (void)receive_error(member);
    log.add_partitions(2);
    (void)receive_error(member);
    CHECK(member.assignment() == partition_numbers{0, 1, 2});
}

TEST_CASE("a member that is silent for its session is replaced [U07, U08]") {
    simulated_world world;
    const auto log = open_log(world, 2);
    append_range(log, 1, 4);
    const railmq::log_consumer_options o{.group = "g", .session_timeout = 10s};
    std::vector<partition_numbers> lost;
    auto with_callback = o;
    with_callback.on_lost = [&](const partition_numbers& p) { lost.push_back(p); };
    auto dies = log.consumer(with_callback);
    auto held = dies.try_receive(); // between work and ack
    auto lives = log.consumer(o);
    (void)receive_error(lives);
    world.advance(9s);
    dies.heartbeat();
    world.advance(9s);
    CHECK(log.members("g") == 1); // `lives` said nothing for 18 s
    dies.commit();
    world.advance(10s);
    CHECK(log.members("g") == 0);
    // It comes back, and the record with it.
    CHECK_FALSE(held->ack());
    CHECK(sorted(work(lives)) == numbers(1, 4));
    CHECK(error_of([&] { dies.commit(); }) == errc::unknown_member);
    (void)receive_error(dies);
    CHECK(lost == std::vector<partition_numbers>{{0, 1}});
    CHECK(log.members("g") == 2);
}

TEST_CASE("a member's death between work and ack, in one line") {
    simulated_world world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 3);
    auto dies = log.consumer({.group = "g"});
    auto next = log.consumer({.group = "g"});
    dies.try_receive()->ack();
    const auto in_work = dies.try_receive();
    CHECK(next.receive(1h)->value() == 2); // the line: time passes until the session is over
    CHECK(world.now() == 45s);
    CHECK(in_work->value() == 2);
}

TEST_CASE("a member that waits is alive, and a group whose members all wait has no deadline") {
    simulated_world world;
    const auto log = open_log(world, 1);
    auto member = log.consumer({.group = "g", .session_timeout = 10s});
    CHECK_FALSE(member.receive(1h));
    CHECK(log.members("g") == 1);
    CHECK(log.generation("g") == 1);
    CHECK(member.assignment() == partition_numbers{0});
    world.advance(9s);
    railmq::error_code ec;
    CHECK_FALSE(member.receive(ec));
    CHECK(ec == errc::would_deadlock);
    world.advance(10s);
    CHECK(log.members("g") == 0);
}

TEST_CASE("every receive counts for the session, and nothing ends early") {
    simulated_world world;
    const auto log = open_log(world, 1);
    auto member = log.consumer({.group = "g", .session_timeout = 10s});
    for (int n = 0; n < 10; ++n) {
        CHECK(receive_error(member) == errc::would_block);
        world.advance(n % 2 == 0 ? 1s : 9s);
    }
    CHECK(log.generation("g") == 1); // it never had to join again
    CHECK(receive_error(member) == errc::would_block);
    world.advance(10s - 1ns);
    CHECK(log.members("g") == 1);
    world.advance(1ns);
    CHECK(log.members("g") == 0);
}

TEST_CASE("a waiting member takes part in rebalances") {
    threaded_world world;
    const auto log = open_log(world, 2);
    std::atomic<int> revoked{0};
    auto a =
        log.consumer({.group = "g", .on_revoked = [&](const partition_numbers&) { ++revoked; }});
    (void)receive_error(a);
    std::thread waits{[&] {
        while (auto d = a.receive()) {
            d->ack();
        }
    }};
    auto b = log.consumer({.group = "g"});
    log.producer().send(1, {.partition = 1});
    const auto d = b.receive(long_time);
    REQUIRE(d);
    CHECK(d->value() == 1);
    CHECK(revoked == 1);
    world.broker.close();
    waits.join();
}

TEST_CASE("the first rebalance waits for more members [U11]") {
    simulated_world world;
    const auto log = open_log(world, 2);
    const railmq::log_consumer_options o{.group = "g", .initial_rebalance_delay = 3s};
    auto a = log.consumer(o);
    world.advance(2s);
    auto b = log.consumer(o);
    (void)receive_error(a);
    CHECK(a.assignment().empty());
    world.advance(4s);
    (void)receive_error(a);
    (void)receive_error(b);
    CHECK(a.assignment().size() == 1);
    CHECK(b.assignment().size() == 1);
    CHECK(log.generation("g") == 1);
}

TEST_CASE("a static member that returns has what it had; its former self is fenced [U15]") {
    simulated_world world;
    const auto log = open_log(world, 2);
    append_range(log, 1, 2);
    const railmq::log_consumer_options o{.group = "g", .instance_id = "one"};
    auto former = log.consumer(o);
    (void)receive_error(former);
    auto held = former.try_receive();
    auto other = log.consumer({.group = "g"});
    (void)receive_error(former);
    (void)receive_error(other);
    const auto had = former.assignment();
    const auto generation = log.generation("g");
    auto now = log.consumer(o);
    CHECK(error_of([&] { former.commit(); }) == errc::fenced);
    CHECK_FALSE(held->ack());
    CHECK(receive_error(former) == errc::fenced);
    CHECK(error_of([&] { (void)former.try_receive(); }) == errc::fenced);
    CHECK(error_of([&] { former.commit(); }) == errc::fenced);
    (void)receive_error(now);
    CHECK(now.assignment() == had);
    CHECK(log.generation("g") == generation);
}

TEMPLATE_TEST_CASE(
    "what callbacks throw comes out of receive, and the rebalance goes on [U12]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 2);
    append_range(log, 1, 4);
    bool throws = true;
    const auto fails = [&](const partition_numbers&) {
        if (throws) {
            throw std::runtime_error("callback");
        }
    };
    auto a = log.consumer({.group = "g", .on_assigned = fails, .on_revoked = fails});
    CHECK_THROWS_AS(a.try_receive(), std::runtime_error);
    CHECK(a.assignment() == partition_numbers{0, 1});
    auto d = a.try_receive();
    REQUIRE(d);
    d->ack();
    auto b = log.consumer({.group = "g"});
    CHECK_THROWS_AS(a.try_receive(), std::runtime_error);
    CHECK(a.assignment() == partition_numbers{0});
    CHECK(log.committed("g", d->partition()) == d->offset() + 1);
    auto rest = work(b);
    throws = false;
    for (const int n : work(a)) {
        rest.push_back(n);
    }
    rest.push_back(d->value());
    CHECK(sorted(rest) == numbers(1, 4));
}

TEMPLATE_TEST_CASE(
    "a callback may use its consumer, but not receive from it",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    railmq::error_code ec;
    using consumer_type = decltype(log.consumer());
    consumer_type member;
    member = log.consumer({.group = "g", .on_assigned = [&](const partition_numbers& all) {
                               for (const auto p : all) {
                                   member.seek(p, 3);
                               }
                               (void)member.try_receive(ec);
                           }});
    CHECK(work(member) == std::vector{4, 5});
    CHECK(ec == errc::would_deadlock);
    consumer_type closes;
    closes = log.consumer(
        {.group = "h", .on_assigned = [&](const partition_numbers&) { closes.close(); }});
    CHECK(receive_error(closes) == errc::closed);
    CHECK(log.members("h") == 0);
}

// Commits

TEMPLATE_TEST_CASE(
    "what is acknowledged is committed with the next receive, and never past what is not",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 0, 9);
    auto member = log.consumer({.group = "g"});
    auto batch = member.receive_batch(5, 0s);
    REQUIRE(batch.size() == 5);
    for (const std::size_t i : {0U, 1U, 3U, 4U}) {
        CHECK(batch[i].ack());
    }
    CHECK(log.committed("g", 0) == 0U);
    auto next = member.try_receive();
    CHECK(log.committed("g", 0) == 2U); // 2 is in work
    CHECK(batch[2].ack());
    CHECK_FALSE(batch[2].ack());
    member.commit();
    CHECK(log.committed("g", 0) == 5U);
    CHECK(log.lag("g") == 5U);
    next->ack();
    member.close();
    CHECK(log.committed("g", 0) == 6U);
    auto successor = log.consumer({.group = "g"});
    CHECK(work(successor) == numbers(6, 9));
}

TEMPLATE_TEST_CASE(
    "close commits what is done, then leaves; the rest comes again [V12]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    auto a = log.consumer({.group = "g"});
    auto b = log.consumer({.group = "g"});
    for (int n = 0; n < 3; ++n) {
        a.try_receive()->ack();
    }
    auto held = a.try_receive();
    CHECK(receive_error(b) == errc::would_block);
    a.close();
    CHECK(b.try_receive()->value() == 4);
    CHECK_FALSE(held->ack());
    CHECK(held->value() == 4);
}

TEMPLATE_TEST_CASE("without auto_commit only commit does", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    const railmq::log_consumer_options o{.group = "g", .auto_commit = false};
    auto a = log.consumer(o);
    a.try_receive()->ack();
    a.commit();
    CHECK(work(a) == numbers(2, 5));
    a.close();
    a = log.consumer(o);
    CHECK(work(a) == numbers(2, 5));
}

TEMPLATE_TEST_CASE(
    "a member that lost its partition commits nothing [V01]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 2);
    append_range(log, 1, 4);
    auto a = log.consumer({.group = "g"});
    auto held = a.receive_batch(4, 0s);
    REQUIRE(held.size() == 4);
    auto b = log.consumer({.group = "g"});
    (void)receive_error(a); // gives partition 1
    for (auto& d : held) {
        CHECK(d.ack() == (d.partition() == 0));
    }
    CHECK(log.committed("g", 1) == 0U);
    CHECK(work(b) == std::vector{2, 4});
    a.commit();
    CHECK(log.committed("g", 0) == 2U);
}

TEMPLATE_TEST_CASE(
    "a record that failed comes again before those behind it",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    auto member =
        log.consumer({.group = "g", .retry_backoff = railmq::constant_backoff{.delay = 0s}});
    member.try_receive()->ack();
    {
        const auto d = member.try_receive(); // destroyed unsettled: failed
        CHECK(d->value() == 2);
    }
    auto d = member.try_receive();
    CHECK(d->value() == 2);
    CHECK(d->failure_count() == 1);
    CHECK(d->nack());
    d = member.try_receive();
    CHECK(d->value() == 2);
    CHECK(d->failure_count() == 2);
    CHECK(log.committed("g", 0) == 1U);
    d->ack();
    CHECK(work(member) == numbers(3, 5));
    CHECK(log.committed("g", 0) == 5U);
    // In work elsewhere meanwhile: what failed is given again alone.
    append_range(log, 6, 8);
    auto batch = member.receive_batch(2, 0s);
    REQUIRE(batch.size() == 2);
    batch[0].nack();
    CHECK(member.try_receive()->value() == 6);
}

TEST_CASE("a backoff wakes the member that waits, and so does an ack from elsewhere") {
    simulated_world world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 1);
    auto member =
        log.consumer({.group = "g", .retry_backoff = railmq::constant_backoff{.delay = 30s}});
    member.try_receive()->nack();
    auto d = member.receive(1h);
    REQUIRE(d);
    CHECK(world.now() == 30s);
    world.sim.async_wait(5s, [&](railmq::error_code) { d->ack(); });
    world.sim.async_wait(6s, [&](railmq::error_code) { CHECK(log.committed("g", 0) == 1U); });
    CHECK_FALSE(member.receive(10s));
}

TEMPLATE_TEST_CASE(
    "seeking goes back, and so does the commit", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    auto member = log.consumer({.group = "g"});
    CHECK(work(member) == numbers(1, 5));
    CHECK(log.committed("g", 0) == 5U);
    member.seek(0, 1);
    auto d = member.try_receive();
    CHECK(d->value() == 2);
    member.seek(0, 1);
    CHECK_FALSE(d->ack()); // of before
    d = member.try_receive();
    CHECK(d->ack());
    member.commit();
    CHECK(log.committed("g", 0) == 2U);
}

// Offsets of a group

TEMPLATE_TEST_CASE("lag counts what is left [V04, V08]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    CHECK(error_of([&] { (void)log.lag("g"); }) == errc::not_found);
    auto member = log.consumer({.group = "g"});
    CHECK_FALSE(log.committed("g", 0));
    CHECK_FALSE(log.lag("g"));
    member.try_receive()->ack();
    member.commit();
    CHECK(log.lag("g") == 4U);
    work(member);
    CHECK(log.lag("g") == 0U);
    append_range(log, 6, 6);
    CHECK(log.lag("g") == 1U);
}

TEMPLATE_TEST_CASE(
    "a group without members is set back, and deleted [U13, V10]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    auto member = log.consumer({.group = "g"});
    work(member);
    CHECK(error_of([&] { log.reset_offset("g", 0, 0); }) == errc::in_use);
    CHECK(error_of([&] { log.delete_group("g"); }) == errc::in_use);
    member.close();
    CHECK(error_of([&] { log.reset_offset("g", 0, 6); }) == errc::offset_out_of_range);
    log.reset_offset("g", 0, 2);
    member = log.consumer({.group = "g"});
    CHECK(work(member) == numbers(3, 5));
    member.close();
    log.delete_group("g");
    CHECK(log.groups().empty());
    member = log.consumer({.group = "g"});
    CHECK(work(member) == numbers(1, 5));
}

TEMPLATE_TEST_CASE(
    "a group that begins at the end misses nothing that comes later",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    const railmq::log_consumer_options o{.group = "g", .start = log_start::latest};
    auto member = log.consumer(o);
    (void)receive_error(member);
    member.close(); // before anything came
    append_range(log, 6, 8);
    member = log.consumer(o);
    CHECK(work(member) == numbers(6, 8));
}

TEMPLATE_TEST_CASE(
    "a committed offset that retention took away", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    auto member = log.consumer({.group = "g"});
    member.try_receive()->ack();
    member.close();
    log.delete_records(0, 3);
    member = log.consumer({.group = "g", .start = log_start::none});
    CHECK(receive_error(member) == errc::offset_out_of_range);
    member.close();
    member = log.consumer({.group = "g"});
    CHECK(work(member) == numbers(4, 5));
    CHECK(member.skipped() == 2);
    CHECK(log.lag("g") == 0U);
}

TEST_CASE("offsets of a group that nobody is in expire [V06]") {
    simulated_world world;
    const auto log = open_log(world, 1);
    append_range(log, 1, 5);
    const railmq::log_consumer_options o{.group = "g", .offset_retention = 1min};
    auto member = log.consumer(o);
    work(member);
    world.advance(30s);
    (void)receive_error(member);
    member.close();
    world.advance(1min - 1ns);
    CHECK(log.committed("g", 0) == 5U);
    world.advance(1ns);
    CHECK_FALSE(log.committed("g", 0));
}

TEMPLATE_TEST_CASE("members of a group agree on it", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 1);
    auto a = log.consumer({.group = "g"});
    CHECK(error_of([&] {
              (void)log.consumer({.group = "g", .assignor = railmq::assignor::range});
          }) == errc::options_mismatch);
    CHECK(error_of([&] { (void)log.consumer({.group = "a b"}); }) == errc::invalid_name);
}
