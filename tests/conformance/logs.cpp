// SPDX-License-Identifier: BSL-1.0
//
// Logs: appending, offsets, retention and compaction, as the public interface shows them.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

template <class T = std::string, class World>
[[nodiscard]] auto open_log(World& world, const railmq::log_options& o = {}) {
    return world.broker.template log<T>("log", o);
}

} // namespace

// Appending

TEMPLATE_TEST_CASE("offsets start at 0 and are dense [P01]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    auto producer = log.producer();
    CHECK(log.start_offset(0) == 0);
    CHECK(log.end_offset(0) == 0);
    for (std::uint64_t n = 0; n < 5; ++n) {
        const auto r = producer.send("k", std::to_string(n));
        CHECK(r == railmq::log_receipt{0, n, {}});
    }
    CHECK(log.end_offset(0) == 5);
    const auto stats = log.stats();
    CHECK(stats.records == 5);
    CHECK(stats.appended == 5);
    CHECK(stats.memory_bytes > 0);
    CHECK(stats.memory_bytes <= world.broker.stats().memory_bytes);
}

TEMPLATE_TEST_CASE(
    "a key goes where a Kafka client puts it [W05]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log<int>(world, {.partitions = 7});
    auto producer = log.producer();
    const auto place = [](std::int32_t hash) {
        return static_cast<std::uint32_t>(hash & 0x7fffffff) % 7;
    };
    CHECK(producer.send("21", 1).partition == place(-973932308));
    CHECK(producer.send("foobar", 1).partition == place(-790332482));
    CHECK(producer.send("abc", 1).partition == place(479470107));
    CHECK(producer.send(1, {.key = "abc"}).partition == place(479470107));
}

TEMPLATE_TEST_CASE(
    "values without a key go to the partitions in turn", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log<int>(world, {.partitions = 3});
    auto producer = log.producer();
    for (int n = 0; n < 9; ++n) {
        producer.send(n);
    }
    for (std::uint32_t p = 0; p < 3; ++p) {
        CHECK(log.end_offset(p) == 3);
    }
    CHECK(producer.send(9, {.partition = 2}) == railmq::log_receipt{2, 3, {}});
    CHECK(error_of([&] { producer.send(9, {.partition = 3}); }) == errc::invalid_argument);
}

TEMPLATE_TEST_CASE(
    "a batch is appended as one, in one partition", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log<std::unique_ptr<int>>(world, {.partitions = 4});
    auto producer = log.producer();
    std::vector<std::unique_ptr<int>> batch;
    for (int n = 0; n < 10; ++n) {
        batch.push_back(std::make_unique<int>(n));
    }
    const auto r = producer.send_batch(std::move(batch), {.partition = 3});
    CHECK(r == railmq::log_receipt{3, 0, {}});
    CHECK(log.end_offset(3) == 10);
}

TEMPLATE_TEST_CASE(
    "an append at another offset than expected is refused [P06]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log<int>(world, {.partitions = 2});
    auto producer = log.producer();
    CHECK(producer.send("a", 1, {.partition = 0, .expected_offset = 0}).offset == 0);
    railmq::error_code ec;
    producer.send("a", 2, {.partition = 0, .expected_offset = 0}, ec);
    CHECK(ec == errc::sequence_out_of_order);
    producer.send("a", 2, {.partition = 0, .expected_offset = 2}, ec);
    CHECK(ec == errc::sequence_out_of_order);
    producer.send("a", 2, {.partition = 0, .expected_offset = 1}, ec);
    CHECK_FALSE(ec);
    CHECK(log.end_offset(0) == 2);
    // Of which partition?
    CHECK(error_of([&] { producer.send(1, {.expected_offset = 0}); }) == errc::invalid_argument);
}

TEMPLATE_TEST_CASE("what a log does not have is refused", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    auto producer = log.producer({.max_message_bytes = 3});
    const auto refused = [&](auto&&... what) {
        return error_of([&] { producer.send(std::forward<decltype(what)>(what)...); });
    };
    CHECK(refused("k", "v", railmq::properties{.delay = 1s}) == errc::invalid_argument);
    CHECK(refused("k", "v", railmq::properties{.time_to_live = 1s}) == errc::invalid_argument);
    CHECK(refused("k", "v", railmq::properties{.key = "other"}) == errc::invalid_argument);
    CHECK(refused("k", "v", railmq::append_options{.sequence = 0}) == errc::invalid_argument);
    CHECK(refused("k", "long") == errc::message_too_large);
    CHECK(log.stats().appended == 0);
    CHECK(error_of([&] { (void)log.producer({.epoch = 1}); }) == errc::invalid_argument);
    CHECK(error_of([&] { (void)log.end_offset(1); }) == errc::invalid_argument);
}

TEST_CASE("a send fails at the memory limit and stores nothing") {
    railmq::broker broker{{.memory_limit = 100'000}};
    const auto log = broker.log<std::string>("log");
    auto producer = log.producer();
    railmq::error_code ec;
    std::uint64_t sent = 0;
    while (producer.send("k", std::string(10, 'v'), ec), !ec) {
        ++sent;
    }
    CHECK(ec == errc::memory_limit);
    CHECK(sent > 100);
    CHECK(log.end_offset(0) == sent);
    log.delete_records(0, sent);
    producer.send("k", "v", ec);
    CHECK_FALSE(ec);
}

// Idempotent producers

TEMPLATE_TEST_CASE(
    "the same sequence again stores nothing and gives the old offset [W01, W02]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world);
    auto producer = log.producer({.producer_id = 7});
    CHECK(producer.send("a", "0").offset == 0);
    CHECK(producer.send("a", "1").offset == 1);
    const auto again = producer.send("a", "1", {.sequence = 1});
    CHECK(again.offset == 1);
    CHECK(again.duplicate_of == 1U);
    CHECK(log.end_offset(0) == 2);
    // A gap.
    CHECK(
        error_of([&] { producer.send("a", "x", {.sequence = 5}); }) == errc::sequence_out_of_order);
    CHECK(producer.send("a", "2").offset == 2);
    // The next life of it fences the former one.
    auto next = log.producer({.producer_id = 7, .epoch = 1});
    CHECK(next.send("a", "3") == railmq::log_receipt{0, 3, {}});
    CHECK(error_of([&] { producer.send("a", "x"); }) == errc::fenced);
    CHECK(log.end_offset(0) == 4);
}

TEMPLATE_TEST_CASE(
    "who sends everything again from the start stores nothing twice",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, {.partitions = 3});
    const auto send_all = [&](std::size_t n) {
        auto producer = log.producer({.producer_id = 1});
        std::size_t duplicates = 0;
        for (std::size_t i = 0; i < n; ++i) {
            duplicates += producer.send(std::to_string(i), "v").duplicate_of.has_value() ? 1 : 0;
        }
        return duplicates;
    };
    CHECK(send_all(4) == 0);
    CHECK(send_all(6) == 4);
    CHECK(log.stats().records == 6);
}

// Times

TEMPLATE_TEST_CASE("offsets by time [Q01, Q04]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log(world);
    const auto at = [](int n) { return railmq::time_point{railmq::duration{n}}; };
    CHECK_FALSE(log.offset_for_time(0, at(0)));
    auto producer = log.producer();
    for (int n = 40; n < 50; ++n) {
        producer.send("k", "v", {.timestamp = at(n * 10)});
    }
    CHECK(log.offset_for_time(0, at(420)) == 2U);
    CHECK(log.offset_for_time(0, at(421)) == 3U);
    CHECK(log.offset_for_time(0, at(399)) == 0U);
    CHECK_FALSE(log.offset_for_time(0, at(491)));
}

// Retention

TEST_CASE("a log whose records have all grown too old goes on with the next offset [H11]") {
    simulated_world world;
    const auto log = open_log(world, {.retention = {.max_age = 1s}});
    auto producer = log.producer();
    for (int n = 0; n < 10; ++n) {
        producer.send("k", "v");
    }
    world.advance(2s);
    CHECK(log.apply_retention() == 10);
    CHECK(log.stats().records == 0);
    CHECK(log.start_offset(0) == 10);
    CHECK(log.end_offset(0) == 10);
    CHECK(producer.send("k", "v").offset == 10);
}

TEST_CASE("sends remove what is too old, and offsets go on [R04, R05]") {
    simulated_world world;
    const auto log = open_log(world, {.retention = {.max_age = 1h}, .segment_records = 5});
    auto producer = log.producer();
    for (int n = 0; n < 25; ++n) {
        producer.send("k", "v");
    }
    world.advance(1h);
    CHECK(log.apply_retention() == 0); // exactly as old, it stays
    world.advance(1ns);
    CHECK(producer.send("k", "v").offset == 25); // in a segment of its own
    CHECK(log.start_offset(0) == 25);
    CHECK(log.apply_retention() == 0);
    const auto stats = log.stats();
    CHECK(stats.removed_by_age == 25);
    CHECK(stats.appended == stats.records + stats.removed_by_age);
}

TEMPLATE_TEST_CASE(
    "a log keeps its last records, in whole segments [R03]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log =
        open_log<int>(world, {.retention = {.max_records = 1000}, .segment_records = 100});
    auto producer = log.producer();
    std::uint64_t most = 0;
    for (int n = 0; n < 5000; ++n) {
        producer.send(n);
        most = std::max(most, log.stats().records);
    }
    CHECK(log.end_offset(0) == 5000);
    CHECK(log.stats().records >= 1000);
    CHECK(most < 1000 + 100 + 64 + 1); // a segment, and what lies between two looks
}

TEMPLATE_TEST_CASE(
    "records below an offset are deleted [R10]", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log<int>(world);
    auto producer = log.producer();
    for (int n = 0; n < 10; ++n) {
        producer.send(n);
    }
    CHECK(log.delete_records(0, 5) == 5);
    CHECK(log.start_offset(0) == 5);
    CHECK(log.delete_records(0, 5) == 0);
    CHECK(error_of([&] { log.delete_records(0, 11); }) == errc::offset_out_of_range);
    CHECK(log.delete_records(0, 10) == 5);
    CHECK(producer.send(1).offset == 10);
    CHECK(log.stats().removed_by_request == 10);
}

// Compaction

TEMPLATE_TEST_CASE(
    "compaction keeps the last record of each key [S01, S06]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log =
        open_log<int>(world, {.cleanup = railmq::log_cleanup::compact, .segment_records = 4});
    auto producer = log.producer();
    CHECK(log.compact() == 0); // empty [S03]
    for (int n = 0; n < 20; ++n) {
        producer.send(std::to_string(n % 10), n);
    }
    log.compact();
    CHECK(log.stats().superseded == 10 - 4); // 16 to 19 lie in the segment that is written
    CHECK(log.end_offset(0) == 20);
    CHECK(error_of([&] { producer.send(1); }) == errc::invalid_argument);
}

TEMPLATE_TEST_CASE(
    "sends compact by themselves, in small parts", "", threaded_world, simulated_world) {
    TestType world;
    const auto log =
        open_log<int>(world, {.cleanup = railmq::log_cleanup::compact, .segment_records = 100});
    auto producer = log.producer();
    for (int n = 0; n < 20'000; ++n) {
        producer.send(std::to_string(n % 10), n);
    }
    CHECK(log.stats().superseded > 18'000);
    CHECK(log.stats().records < 2'000);
}

// Names and lives

TEMPLATE_TEST_CASE("opening again says what differs", "", threaded_world, simulated_world) {
    TestType world;
    auto& broker = world.broker;
    const auto log = open_log<int>(world, {.partitions = 2});
    CHECK(open_log<int>(world, {.partitions = 2}).name() == "log");
    const auto text = [](auto&& f) {
        try {
            f();
        } catch (const railmq::system_error& e) {
            return std::string{e.what()};
        }
        return std::string{};
    };
    CHECK(error_of([&] { (void)open_log<int>(world); }) == errc::options_mismatch);
    CHECK(text([&] { (void)open_log<int>(world); }).find("partitions") != std::string::npos);
    CHECK(error_of([&] { (void)open_log<double>(world); }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)broker.template find_log<double>("log"); }) == errc::type_mismatch);
    CHECK(broker.template find_log<int>("log"));
    CHECK_FALSE(broker.template find_log<int>("other"));
    CHECK(error_of([&] { (void)broker.template log<int>("a b"); }) == errc::invalid_name);
    CHECK(error_of([&] {
              (void)broker.template log<int>("x", {.partitions = 0});
          }) == errc::invalid_argument);
    // A name is that of a queue or that of a log.
    CHECK(error_of([&] { (void)broker.template queue<int>("log"); }) == errc::type_mismatch);
    CHECK(error_of([&] {
              (void)broker.template queue<int>("q", {.dead_letter = "log"});
          }) == errc::type_mismatch);
    (void)broker.template queue<int>("queue");
    CHECK(error_of([&] { (void)broker.template log<int>("queue"); }) == errc::type_mismatch);
    CHECK(broker.log_names() == std::vector<std::string>{"log"});
}

TEMPLATE_TEST_CASE("partitions are added", "", threaded_world, simulated_world) {
    TestType world;
    const auto log = open_log<int>(world);
    log.add_partitions(3);
    CHECK(log.partitions() == 4);
    CHECK(log.producer().send(1, {.partition = 3}).offset == 0);
    CHECK(error_of([&] { log.add_partitions(1 << 16); }) == errc::invalid_argument);
}

TEMPLATE_TEST_CASE(
    "the handles of a log that is gone say so", "", threaded_world, simulated_world) {
    TestType world;
    auto log = open_log<int>(world);
    auto producer = log.producer();
    world.broker.delete_log("log");
    CHECK(error_of([&] { world.broker.delete_log("log"); }) == errc::not_found);
    CHECK(error_of([&] { producer.send(1); }) == errc::not_found);
    CHECK(error_of([&] { (void)log.stats(); }) == errc::not_found);
    CHECK_FALSE(log.is_open());
    log = open_log<int>(world); // another one
    producer = log.producer();
    CHECK(producer.send(1).offset == 0);
    world.broker.close();
    CHECK(error_of([&] { producer.send(1); }) == errc::closed);
    CHECK(error_of([&] { (void)open_log<int>(world); }) == errc::closed);
}
