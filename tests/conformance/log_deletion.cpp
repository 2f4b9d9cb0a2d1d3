// SPDX-License-Identifier: BSL-1.0
//
// Records that leave a log while somebody is at work on them, and the edges of what is left.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/scratch_directory.hpp"
#include "support/worlds.hpp"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

template <class Consumer>
std::vector<std::uint64_t> offsets(Consumer& reader) {
    std::vector<std::uint64_t> all;
    while (auto d = reader.try_receive()) {
        all.push_back(d->offset());
        d->ack();
    }
    return all;
}

} // namespace

TEMPLATE_TEST_CASE(
    "[P07] searches in an empty log, and at the exact ends of one",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>("log", {.segment_records = 4});
    auto reader = log.consumer();
    railmq::error_code ec;
    reader.seek(0, 0, ec);
    CHECK_FALSE(ec);
    reader.seek(0, 1, ec);
    CHECK(ec == errc::offset_out_of_range);
    CHECK_FALSE(log.offset_for_time(0, log.now()));
    send_range(log, 0, 9);
    for (std::uint64_t o = 0; o <= 10; ++o) { // over the ends of segments too
        reader.seek(0, o);
        auto d = reader.try_receive();
        CHECK((d ? d->offset() : 10) == o);
    }
    reader.seek(0, 11, ec);
    CHECK(ec == errc::offset_out_of_range);
    CHECK(reader.position(0) == 10u);
}

TEMPLATE_TEST_CASE(
    "[R11] what is deleted counts what was left of it, and numbers stay",
    "",
    threaded_world,
    simulated_world) {
    TestType world;
    const auto log = world.broker.template log<int>(
        "log", {.cleanup = railmq::log_cleanup::compact, .segment_records = 10});
    auto producer = log.producer();
    for (int n = 0; n < 50; ++n) {
        producer.send("k" + std::to_string(n / 2), n); // each odd one supersedes the one before
    }
    producer.send("last", 50);
    CHECK(log.compact() == 25);
    CHECK(log.stats().records == 26);
    CHECK(log.delete_records(0, 41) == 20); // of 1, 3, ..., 39
    auto reader = log.consumer();
    CHECK(offsets(reader) == std::vector<std::uint64_t>{41, 43, 45, 47, 49, 50});
    CHECK(log.end_offset(0) == 51);
    CHECK(log.stats().removed_by_request == 20);
    CHECK(log.delete_records(0, 41) == 0);
}

TEST_CASE("[R12][V11] records that are deleted while they are in work end as nothing to do") {
    simulated_world world;
    const auto log = world.broker.log<int>("log", {.segment_records = 10});
    send_range(log, 0, 99);
    auto member =
        log.consumer({.group = "g", .retry_backoff = railmq::constant_backoff{.delay = 1s}});
    auto in_work = member.receive_batch(25, 0s);
    REQUIRE(in_work.size() == 25);
    CHECK(log.delete_records(0, 100) == 100);
    CHECK(log.stats().records == 0);
    for (auto& d : in_work) { // still readable
        CHECK(d.value() == static_cast<int>(d.offset()));
    }
    // The next one is delivered, and those that were never read are counted.
    log.producer().send(100);
    auto next = member.try_receive();
    REQUIRE(next);
    CHECK(next->value() == 100);
    CHECK(member.skipped() == 75);
    next->ack();
    member.commit();
    CHECK(log.committed("g", 0) == 0u); // 25 are not settled
    SECTION("they are acknowledged") {
        for (auto& d : in_work) {
            CHECK(d.ack());
        }
        CHECK(member.skipped() == 75);
    }
    SECTION("they fail: there is nothing to give again, and that is counted") {
        for (auto& d : in_work) {
            CHECK(d.nack());
        }
        CHECK_FALSE(member.receive(2s));
        CHECK(member.skipped() == 100);
    }
    member.commit();
    CHECK(log.committed("g", 0) == 101u);
    CHECK(log.lag("g") == 0u);
}

TEST_CASE("[V11] a record that is given up when it has been deleted is dropped, and told of") {
    std::vector<railmq::notice> told;
    simulated_world world{{.observer = [&](const railmq::notice& n) { told.push_back(n); }}};
    const auto log = world.broker.log<int>("log");
    send_range(log, 0, 1);
    auto member = log.consumer({.group = "g"});
    auto d = member.try_receive();
    (void)log.delete_records(0, 2);
    told.clear();
    CHECK(d->reject());
    CHECK(log.stats("g").dropped == 1);
    REQUIRE(told.size() == 1);
    CHECK(std::get<railmq::notices::dropped>(told[0]).id == 0);
    CHECK_FALSE(member.try_receive());
    member.commit();
    CHECK(log.committed("g", 0) == 2u);
}

TEST_CASE("[R16] a log is deleted though somebody puts files of his own beside it") {
    const scratch_directory where;
    const auto write = [&](const std::string& name) {
        std::ofstream{where.path + "/broker/" + name} << "mine";
    };
    {
        railmq::broker broker{{.directory = where.path + "/broker"}};
        auto log = broker.log<int>("log");
        send_range(log, 1, 10);
        write("foreign");
        broker.delete_log("log");
        write("foreign.too");
        CHECK_FALSE(broker.find_log<int>("log"));
    }
    railmq::broker broker{{.directory = where.path + "/broker"}};
    CHECK_FALSE(broker.find_log<int>("log"));
    CHECK(broker.log<int>("log").end_offset(0) == 0);
}
