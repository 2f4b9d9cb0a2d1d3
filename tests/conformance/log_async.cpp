// SPDX-License-Identifier: BSL-1.0
//
// The asynchronous forms of a log's handles.
#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/scratch_directory.hpp"
#include "support/worlds.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using railmq::errc;
using railmq::error_code;
using railmq::log_receipt;
using railmq::partition_numbers;
using namespace railmq::test;

namespace {

template <class T, class World>
using record_in = railmq::basic_log_delivery<T, typename World::runtime_type>;

template <class World>
[[nodiscard]] auto open_log(World& world, std::uint32_t partitions = 1) {
    return world.broker.template log<int>("log", {.partitions = partitions});
}

/// What handlers were told.
struct told {
    std::vector<int> values{};
    std::vector<error_code> ends{};

    /// A handler that acknowledges.
    [[nodiscard]] auto handler() {
        return [this](error_code ec, auto d) {
            if (ec) {
                ends.push_back(ec);
            } else {
                values.push_back(d.value());
                d.ack();
            }
        };
    }
};

/// Its value, acknowledged.
template <class Delivery>
[[nodiscard]] int done(Delivery d) {
    d.ack();
    return d.value();
}

template <class World, class Log>
void send_some(World& world, const Log& log, int first, int last) {
    send_range(log, first, last);
    world.run();
}

} // namespace

// Receiving

TEMPLATE_TEST_CASE(
    "a receive is served by what is there, or by what comes, in the order of their start",
    "",
    threaded_world,
    simulated_world) {
    const char* const group = GENERATE("", "g");
    TestType world;
    const auto log = open_log(world);
    auto consumer = log.consumer({.group = group});
    log.producer().send(1);
    told all;
    for (int i = 0; i < 4; ++i) {
        consumer.async_receive(all.handler());
    }
    CHECK(all.values.empty()); // never inside the call
    world.run();
    CHECK(all.values == numbers(1, 1));
    send_some(world, log, 2, 3);
    CHECK(all.values == numbers(1, 3));
    log.add_partitions(1);
    log.producer().send(4, railmq::append_options{.partition = 1});
    send_some(world, log, 4, 4);
    CHECK(all.values == numbers(1, 4));
    CHECK(all.ends.empty());
    if (*group != '\0') {
        consumer.commit();
        CHECK(log.committed("g", 0).value() + log.committed("g", 1).value_or(0) == 4);
    }
}

TEMPLATE_TEST_CASE(
    "a batch is what is there once there is something", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    auto consumer = log.consumer({.group = "g"});
    std::vector<std::vector<int>> got;
    std::optional<error_code> end;
    const auto take = [&](std::size_t max) {
        consumer.async_receive_batch(max, [&](error_code ec, auto batch) {
            if (ec) {
                end = ec;
                CHECK(batch.empty());
                return;
            }
            got.emplace_back();
            for (auto& d : batch) {
                got.back().push_back(d.value());
                d.ack();
            }
        });
    };
    take(3);
    take(10);
    world.run();
    send_some(world, log, 1, 5);
    CHECK(got == std::vector<std::vector<int>>{{1, 2, 3}, {4, 5}});
    take(0);
    world.run();
    CHECK(end == errc::invalid_argument);
}

TEMPLATE_TEST_CASE(
    "a coroutine reads a log, and another writes it", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    std::vector<int> got;
    bool has_ended = false;
    const auto read = [&](auto consumer) -> asio::awaitable<void> {
        for (;;) {
            auto [ec, d] = co_await consumer.async_receive(asio::as_tuple(asio::use_awaitable));
            if (ec) {
                has_ended = ec == errc::closed && !d;
                co_return;
            }
            got.push_back(d.value());
            d.ack();
        }
    };
    const auto write = [](auto producer) -> asio::awaitable<void> {
        for (int n = 1; n <= 50; ++n) {
            const std::string key = std::to_string(n % 7); // gone by the time it is sent
            const log_receipt r = co_await producer.async_send(key, n, asio::use_awaitable);
            (void)r;
        }
    };
    asio::co_spawn(world.executor(), read(log.consumer({.group = "g"})), asio::detached);
    asio::co_spawn(world.executor(), write(log.producer()), asio::detached);
    world.run();
    REQUIRE(got.size() == 50);
    std::vector<int> sorted = got;
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == numbers(1, 50));
    world.broker.close();
    world.run();
    CHECK(has_ended);
}

TEST_CASE("futures and deferred tokens, on the system's threads") {
    railmq::broker broker;
    const auto log = broker.log<int>("log");
    auto consumer = log.consumer({.group = "g"});
    auto later = consumer.async_receive(asio::deferred);
    auto first = consumer.async_receive(asio::use_future);
    auto sent = log.producer().async_send("k", 1, asio::use_future);
    CHECK(sent.get() == log_receipt{0, 0, {}});
    CHECK(done(first.get()) == 1);
    auto second = std::move(later)(asio::use_future);
    log.producer().send(2);
    CHECK(done(second.get()) == 2);
}

TEMPLATE_TEST_CASE(
    "a cancelled receive takes nothing with it", "", threaded_world, simulated_world) {
    const char* const group = GENERATE("", "g");
    TestType world;
    const auto log = open_log(world);
    auto consumer = log.consumer({.group = group});
    told all;
    asio::cancellation_signal stop;
    SECTION("while it waits") {
        consumer.async_receive(asio::bind_cancellation_slot(stop.slot(), all.handler()));
        world.run();
        stop.emit(asio::cancellation_type::terminal);
        CHECK(all.ends.empty());
    }
    SECTION("while it waits behind another") {
        told first;
        consumer.async_receive(first.handler());
        consumer.async_receive(asio::bind_cancellation_slot(stop.slot(), all.handler()));
        world.run();
        stop.emit(asio::cancellation_type::partial);
        send_some(world, log, 0, 0);
        CHECK(first.values == numbers(0, 0));
    }
    SECTION("the first of two") {
        told second;
        consumer.async_receive(asio::bind_cancellation_slot(stop.slot(), all.handler()));
        consumer.async_receive(second.handler());
        world.run();
        stop.emit(asio::cancellation_type::total);
        send_some(world, log, 0, 0);
        CHECK(second.values == numbers(0, 0));
    }
    SECTION("when a record has come this moment") {
        consumer.async_receive(asio::bind_cancellation_slot(stop.slot(), all.handler()));
        world.run();
        log.producer().send(0);
        stop.emit(asio::cancellation_type::terminal);
        world.run();
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->value() == 0);
        d->ack();
    }
    SECTION("when it has been served") {
        log.producer().send(0);
        consumer.async_receive(asio::bind_cancellation_slot(stop.slot(), all.handler()));
        stop.emit(asio::cancellation_type::terminal);
        world.run();
        CHECK(all.values == numbers(0, 0));
        all.values.clear();
        all.ends.emplace_back(asio::error::operation_aborted);
    }
    world.run();
    CHECK(all.ends == std::vector<error_code>(1, asio::error::operation_aborted));
    stop.emit(asio::cancellation_type::terminal); // nobody is there any more
    send_some(world, log, 1, 1);
    CHECK(all.values.empty());
    auto d = consumer.try_receive();
    REQUIRE(d);
    CHECK(d->value() == 1);
}

TEMPLATE_TEST_CASE(
    "what waits learns of the end, whoever brings it", "", threaded_world, simulated_world) {
    const char* const group = GENERATE("", "g");
    TestType world;
    const auto log = open_log(world);
    auto consumer = log.consumer({.group = group});
    told all;
    error_code expected = errc::closed;
    consumer.async_receive(all.handler());
    consumer.async_receive(all.handler());
    world.run();
    CHECK(all.ends.empty());
    SECTION("the consumer is closed") {
        consumer.close();
    }
    SECTION("the broker is closed") {
        world.broker.close();
    }
    SECTION("the log is deleted") {
        world.broker.delete_log("log");
        expected = errc::not_found;
    }
    SECTION("all of it is paused, and the broker is closed") {
        consumer.pause(0);
        world.run();
        world.broker.close();
    }
    CHECK(all.ends.empty()); // never inside another call
    world.run();
    CHECK(all.ends == std::vector<error_code>(2, expected));
    all.ends.clear();
    // Without a log there is no broker, whose executor it could be.
    decltype(consumer) none;
    consumer.async_receive(asio::bind_executor(world.executor(), all.handler()));
    none.async_receive(asio::bind_executor(world.executor(), all.handler()));
    world.run();
    CHECK(all.ends.size() == 2);
    CHECK(all.ends.back() == errc::closed);
}

TEMPLATE_TEST_CASE(
    "who uses the consumer meanwhile does not disturb what waits",
    "",
    threaded_world,
    simulated_world) {
    const char* const group = GENERATE("", "g");
    TestType world;
    const auto log = open_log(world, 2);
    auto producer = log.producer();
    const auto send_to = [&](std::uint32_t p, int n) {
        producer.send(n, railmq::append_options{.partition = p});
    };
    auto consumer = log.consumer({.group = group});
    told all;
    consumer.async_receive(all.handler());
    world.run();
    SECTION("a receive that does not wait") {
        CHECK_FALSE(consumer.try_receive());
        send_to(0, 1);
        CHECK(done(consumer.try_receive().value()) == 1); // it came first
        world.run();
        CHECK(all.values.empty());
        send_to(0, 2);
        world.run();
        CHECK(all.values == numbers(2, 2));
    }
    SECTION("a pause") {
        consumer.pause(0);
        world.run();
        send_to(0, 1);
        world.run();
        CHECK(all.values.empty());
        consumer.resume(0);
        world.run();
        CHECK(all.values == numbers(1, 1));
    }
    SECTION("a seek") {
        consumer.pause(0);
        send_to(0, 1);
        send_to(0, 2);
        consumer.seek(0, 1);
        world.run();
        CHECK(all.values.empty());
        consumer.resume(0);
        world.run();
        CHECK(all.values == numbers(2, 2));
        consumer.async_receive(all.handler());
        world.run();
        consumer.seek(0, 1);
        world.run();
        CHECK(all.values == std::vector<int>{2, 2});
    }
}

TEST_CASE("a receive that waits in a simulation lets those wait that were begun before") {
    simulated_world world;
    const auto log = open_log(world);
    auto consumer = log.consumer({.group = "g"});
    auto other = log.consumer();
    told all;
    consumer.async_receive(all.handler());
    world.run();
    asio::post(world.executor(), [&] {
        log.producer().send(1);
        // One inside of the other: who waits has the reader.
        error_code ec;
        CHECK(done(consumer.try_receive(ec).value()) == 1);
        CHECK_FALSE(consumer.receive(1s, ec));
        CHECK(ec == errc::would_deadlock);
    });
    error_code ec;
    CHECK_FALSE(consumer.receive(10s, ec));
    CHECK(ec == errc::timed_out);
    CHECK(all.values.empty());
    log.producer().send(2);
    world.run();
    CHECK(all.values == numbers(2, 2));
}

TEST_CASE("a consumer that is closed while it waits in a simulation comes back") {
    simulated_world world;
    const auto log = open_log(world);
    auto consumer = log.consumer();
    asio::post(world.executor(), [&] { consumer.close(); });
    error_code ec;
    CHECK_FALSE(consumer.receive(ec));
    CHECK(ec == errc::closed);
    log.producer().send(1); // nobody who has gone is woken
    CHECK_FALSE(consumer.is_open());
}

TEST_CASE("a record that has failed comes when it is due, and an ack from elsewhere counts") {
    const char* const group = GENERATE("", "g");
    simulated_world world;
    const auto log = open_log(world);
    send_range(log, 1, 2);
    auto consumer = log.consumer({.group = group});
    consumer.try_receive()->nack(10s);
    told all;
    consumer.async_receive(all.handler());
    world.advance(9s);
    CHECK(all.values.empty());
    world.advance(1s);
    CHECK(all.values == numbers(1, 1));
    CHECK(world.now() == 10s);
    // Given back by somebody else while it waits.
    auto second = consumer.try_receive();
    consumer.async_receive(all.handler());
    world.run();
    second->nack(5s);
    world.run();
    CHECK(all.values == numbers(1, 1));
    world.advance(5s);
    CHECK(all.values == numbers(1, 2));
}

// Groups

TEST_CASE("[U07] a member that waits asynchronously is alive, and takes part in rebalances") {
    simulated_world world;
    const auto log = open_log(world, 2);
    std::vector<std::string> events;
    const auto note = [&](std::string what) {
        return [&events, what](const partition_numbers& which) {
            events.push_back(what + std::to_string(which.size()));
        };
    };
    auto one = log.consumer(
        {.group = "g", .on_assigned = note("one got "), .on_revoked = note("one lost ")});
    told by_one;
    one.async_receive(by_one.handler());
    world.run();
    CHECK(events == std::vector<std::string>{"one got 2"});
    world.advance(std::chrono::hours{1}); // long past its session
    CHECK(log.members("g") == 1);

    auto two = log.consumer({.group = "g", .on_assigned = note("two got ")});
    told by_two;
    two.async_receive(by_two.handler());
    world.run();
    CHECK(events == std::vector<std::string>{"one got 2", "one lost 1", "two got 1"});
    send_some(world, log, 1, 2); // one for each
    CHECK(by_one.values.size() == 1);
    CHECK(by_two.values.size() == 1);
    // One goes: the other, who waits, gets all.
    two.async_receive(by_two.handler());
    world.run();
    one.close();
    world.run();
    CHECK(two.assignment() == partition_numbers{0, 1});
}

TEMPLATE_TEST_CASE(
    "[U12] what a callback throws is counted, and the receive goes on; it may close the consumer",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world);
    told all;
    SECTION("it throws") {
        auto consumer = log.consumer({.group = "g", .on_assigned = [](const partition_numbers&) {
                                          throw std::runtime_error{"not now"};
                                      }});
        log.producer().send(1);
        consumer.async_receive(all.handler());
        world.run();
        CHECK(all.values == numbers(1, 1));
        CHECK(world.broker.stats().observer_failures == 1);
    }
    SECTION("it closes, and begins another") {
        using consumer_type = decltype(log.consumer());
        consumer_type consumer;
        consumer = log.consumer({.group = "g", .on_assigned = [&](const partition_numbers&) {
                                     consumer.async_receive(all.handler());
                                     consumer.close();
                                 }});
        log.producer().send(1);
        consumer.async_receive(all.handler());
        world.run();
        CHECK(all.values.empty());
        CHECK(all.ends == std::vector<error_code>(2, error_code{errc::closed}));
    }
    SECTION("it cancels") {
        asio::cancellation_signal stop;
        auto consumer = log.consumer({.group = "g", .on_assigned = [&](const partition_numbers&) {
                                          stop.emit(asio::cancellation_type::terminal);
                                      }});
        log.producer().send(1);
        consumer.async_receive(asio::bind_cancellation_slot(stop.slot(), all.handler()));
        world.run();
        CHECK(all.ends == std::vector<error_code>(1, asio::error::operation_aborted));
        CHECK(consumer.try_receive()->value() == 1);
    }
}

// Executors

TEST_CASE("what a handler never saw, since its context ended, comes again") {
    railmq::broker broker;
    const auto log = broker.log<int>("log");
    log.producer().send(1);
    auto consumer = log.consumer({.group = "g"});
    SECTION("it was served") {
        asio::io_context gone;
        consumer.async_receive(
            asio::bind_executor(gone.get_executor(), [](error_code, const auto&) {}));
    }
    SECTION("it was on its way to look again") {
        auto held = consumer.try_receive();
        asio::io_context gone;
        for (int i = 0; i < 2; ++i) {
            consumer.async_receive(
                asio::bind_executor(gone.get_executor(), [](error_code, const auto&) {}));
        }
        gone.poll();
        held->release();
    }
    const auto d = consumer.try_receive();
    REQUIRE(d);
    CHECK(d->value() == 1);
    CHECK(d->failure_count() == 0);
}

TEST_CASE("handlers run on their executor, and steps in between do") {
    railmq::broker broker;
    const auto log = broker.log<int>("log", {.partitions = 2});
    asio::io_context context;
    std::vector<std::thread::id> callbacks;
    auto consumer = log.consumer({.group = "g", .on_assigned = [&](const partition_numbers&) {
                                      callbacks.push_back(std::this_thread::get_id());
                                  }});
    std::thread::id seen;
    consumer.async_receive(
        asio::bind_executor(context.get_executor(), [&](error_code ec, const auto&) {
            seen = ec ? std::thread::id{} : std::this_thread::get_id();
        }));
    CHECK(callbacks == std::vector{std::this_thread::get_id()}); // by its start, which is here
    log.add_partitions(1);
    log.producer().send(1);
    std::thread::id runner;
    std::thread{[&] {
        runner = std::this_thread::get_id();
        context.run();
    }}.join();
    CHECK(seen == runner);
    CHECK(callbacks.size() == 2);
    CHECK(callbacks.back() == runner);
}

// Sending

TEMPLATE_TEST_CASE(
    "sends complete with where they went, or why they did not",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 2);
    auto producer = log.producer({
        .producer_id = 5,
        .max_message_bytes = 4,
        .partitioner = [](const railmq::log_placement& r) -> std::optional<std::uint64_t> {
            if (r.key == "throws") {
                throw std::runtime_error{"where to?"};
            }
            return r.key == "nowhere" ? 2 : 1;
        },
    });
    std::vector<log_receipt> receipts;
    std::vector<error_code> ends;
    const auto note = [&](error_code ec, log_receipt r) {
        ends.push_back(ec);
        receipts.push_back(r);
    };
    producer.async_send("k", 1, note);
    producer.async_send(2, note);
    producer.async_send(3, railmq::append_options{.partition = 0}, note);
    producer.async_send(
        "k", 4, railmq::properties{.correlation_id = "c"}, railmq::append_options{}, note);
    producer.async_send("k", 1, railmq::append_options{.sequence = 0}, note);
    CHECK(ends.empty());
    CHECK(log.end_offset(1) == 3); // they are there, in order, whenever their handlers run
    world.run();
    CHECK(ends == std::vector<error_code>(5));
    CHECK(receipts[0] == log_receipt{1, 0, {}});
    CHECK(receipts[1] == log_receipt{1, 1, {}});
    CHECK(receipts[2] == log_receipt{0, 0, {}});
    CHECK(receipts[3] == log_receipt{1, 2, {}});
    CHECK(receipts[4] == log_receipt{1, 0, 0});
    ends.clear();
    producer.async_send("nowhere", 1, note);
    producer.async_send("throws", 1, note);
    producer.async_send(1, railmq::properties{.delay = 1s}, railmq::append_options{}, note);
    producer.async_send(1, railmq::append_options{.partition = 1, .expected_offset = 9}, note);
    world.broker.close();
    producer.async_send(1, note);
    decltype(producer) none;
    none.async_send(1, asio::bind_executor(world.executor(), note));
    world.run();
    CHECK(
        ends == std::vector<error_code>{
                    errc::invalid_argument,
                    errc::invalid_argument,
                    errc::invalid_argument,
                    errc::sequence_out_of_order,
                    errc::closed,
                    errc::closed});
}

TEST_CASE(
    "a send completes when its record is on the device, on a thread that is not the handler's") {
    const scratch_directory where;
    asio::io_context context;
    std::vector<log_receipt> receipts;
    {
        railmq::broker broker{{.directory = where.path + "/b", .executor = context.get_executor()}};
        auto producer = broker.log<int>("log").producer();
        for (int n = 0; n < 5; ++n) {
            producer.async_send("k", n, [&](error_code ec, log_receipt r) {
                if (!ec) {
                    receipts.push_back(r);
                }
            });
        }
        context.run(); // kept busy until all have completed
        CHECK(receipts.size() == 5);
    }
    railmq::broker broker{{.directory = where.path + "/b"}};
    CHECK(broker.log<int>("log").end_offset(0) == 5);
}

TEST_CASE("a send whose journal fails says that it is not known") {
    railmq::storage::simulated_disk disk{1};
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim, disk.directory()};
    const auto log = broker.log<int>("log");
    auto producer = log.producer();
    std::vector<error_code> ends;
    const auto note = [&](error_code ec, log_receipt) { ends.push_back(ec); };
    producer.async_send(1, note);
    sim.run_ready();
    disk.fail_from(railmq::storage::disk_operation::sync, 1, boost::system::errc::io_error);
    producer.async_send(2, note);
    CHECK(ends == std::vector<error_code>(1));
    sim.run_ready();
    REQUIRE(ends.size() == 2);
    CHECK(ends[1] == errc::journal_failed);
}
