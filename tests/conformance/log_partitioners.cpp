// SPDX-License-Identifier: BSL-1.0
//
// Which partition of a log a record goes to, when the producer says so.
#include <railmq/core/murmur2.hpp>
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using railmq::append_options;
using railmq::errc;
using railmq::log_placement;
using namespace railmq::test;

namespace {

template <class World>
[[nodiscard]] auto open_log(World& world, std::uint32_t partitions) {
    return world.broker.template log<int>("log", {.partitions = partitions});
}

} // namespace

TEMPLATE_TEST_CASE(
    "a partitioner sees the key, the properties, and how many partitions there are",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    std::vector<std::string> seen;
    auto producer = log.producer({.partitioner = [&](const log_placement& r) {
        std::string s = r.key ? std::string{*r.key} : "-";
        s += r.props == nullptr ? "" : "+" + r.props->correlation_id;
        seen.push_back(s + "/" + std::to_string(r.partitions));
        return r.partitions - 1;
    }});
    CHECK(producer.send("a", 1).partition == 2);
    CHECK(producer.send(2).partition == 2);
    CHECK(producer.send("b", 3, railmq::properties{.correlation_id = "x"}).partition == 2);
    // A key among the properties is one as well.
    CHECK(producer.send(4, railmq::properties{.key = "c"}).partition == 2);
    CHECK(producer.send_tombstone("a").partition == 2);
    CHECK(producer.send_batch(std::vector<int>{5, 6, 7}).partition == 2);
    log.add_partitions(1);
    CHECK(producer.send("a", 8).partition == 3);
    CHECK(seen == std::vector<std::string>{"a/3", "-/3", "b+x/3", "c+/3", "a/3", "-/3", "a/4"});
    CHECK(log.end_offset(2) == 8);
}

TEMPLATE_TEST_CASE(
    "the send names its partition itself before the partitioner is asked",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    int asked = 0;
    auto producer = log.producer({.partitioner = [&](const log_placement&) {
        ++asked;
        return 1;
    }});
    CHECK(producer.send("a", 1, append_options{.partition = 0}).partition == 0);
    CHECK(asked == 0);
    // It says where, so an expected offset has a meaning without a key.
    CHECK(producer.send(2, {.expected_offset = 0}).partition == 1);
    CHECK(asked == 1);
}

TEMPLATE_TEST_CASE(
    "a partitioner that says nothing leaves it to the key, or to turns [W05]",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 4);
    auto producer =
        log.producer({.partitioner = [](const log_placement& r) -> std::optional<std::uint64_t> {
            return r.key == "first" ? std::optional<std::uint64_t>{0} : std::nullopt;
        }});
    CHECK(producer.send("first", 1).partition == 0);
    for (const char* key : {"21", "foobar", "abc"}) {
        CHECK(producer.send(key, 2).partition == railmq::core::partition_of(key, 4));
    }
    for (std::uint32_t n = 0; n < 8; ++n) {
        CHECK(producer.send(3).partition == n % 4);
    }
}

TEMPLATE_TEST_CASE(
    "a partitioner that names no partition, or throws, has stored nothing",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    std::int64_t answer = 3;
    bool throws = false;
    auto producer = log.producer({
        .producer_id = 7,
        .partitioner =
            [&](const log_placement&) {
                if (throws) {
                    throw std::runtime_error{"no idea"};
                }
                return answer;
            },
    });
    const auto everything_fails = [&] {
        for (const auto wrong : std::vector<std::int64_t>{3, -1, 4'294'967'297}) {
            answer = wrong;
            railmq::error_code ec;
            producer.send("a", 1, ec);
            CHECK(ec == errc::invalid_argument);
            CHECK(error_of([&] { producer.send(1); }) == errc::invalid_argument);
            CHECK(error_of([&] { producer.send_tombstone("a"); }) == errc::invalid_argument);
            CHECK(error_of([&] {
                      producer.send_batch(std::vector<int>{1, 2});
                  }) == errc::invalid_argument);
        }
        throws = true;
        CHECK_THROWS_AS(producer.send("a", 1), std::runtime_error);
        CHECK_THROWS_AS(producer.send_batch(std::vector<int>{1, 2}), std::runtime_error);
        throws = false;
    };
    everything_fails();
    CHECK(log.stats().appended == 0);
    // Its numbers have not moved on either: the next one is the first.
    answer = 2;
    CHECK(producer.send("a", 1) == railmq::log_receipt{2, 0, {}});
    CHECK(producer.send("a", 1, append_options{.sequence = 0}).duplicate_of == 0u);
    everything_fails();
    CHECK(log.stats().appended == 1);
}

TEMPLATE_TEST_CASE(
    "a partitioner may call the broker, and copies of a producer share it",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = open_log(world, 3);
    // To where there is least: no lock is held while it is asked.
    auto producer = log.producer({.partitioner = [&](const log_placement& r) {
        std::uint32_t least = 0;
        for (std::uint32_t p = 1; p < r.partitions; ++p) {
            least = log.end_offset(p) < log.end_offset(least) ? p : least;
        }
        return least;
    }});
    log.producer().send(0, append_options{.partition = 0});
    auto other = producer;
    CHECK(producer.send(1).partition == 1);
    CHECK(other.send(2).partition == 2);
    CHECK(producer.send(3).partition == 0);
}
