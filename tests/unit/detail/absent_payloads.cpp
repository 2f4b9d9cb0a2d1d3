// SPDX-License-Identifier: BSL-1.0
//
// Payloads of a durable queue that leave memory when it is short, and come back when they are due.
#include <railmq/broker.hpp>
#include <railmq/detail/absent_payloads.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::storage::disk_operation;
using railmq::storage::simulated_disk;

namespace {

constexpr std::size_t limit = 400'000;

/// What nobody else has: its number, and 1,000 bytes that follow from it.
[[nodiscard]] std::string content(int n) {
    std::string s = std::to_string(n) + ":";
    while (s.size() < 1000) {
        s.push_back(static_cast<char>('a' + (s.size() * 7 + static_cast<std::size_t>(n)) % 26));
    }
    return s;
}

struct world {
    explicit world(railmq::queue_options q = {}, railmq::broker_options b = {})
        : queue_options{std::move(q)}
        , options{std::move(b)} {
        options.memory_limit = limit;
        options.observer =
            railmq::on<railmq::notices::unreadable>([this](const auto&) { ++unreadable; });
        open();
    }
    void open() {
        broker.emplace(sim, disk.directory(), options);
        queue = broker->queue<std::string>("backlog", queue_options);
    }
    void reopen() {
        queue = {};
        broker.reset();
        open();
    }
    void send(int from, int to, railmq::properties p = {}) {
        auto producer = queue.producer();
        for (int i = from; i != to; ++i) {
            producer.send(content(i), p);
        }
    }
    /// Receives all and acknowledges them; whether they were those, in that order.
    [[nodiscard]] bool receives(int from, int to) {
        auto consumer = queue.consumer();
        for (int i = from; i != to; ++i) {
            auto d = consumer.try_receive();
            if (!d || **d != content(i) || !d->ack()) {
                return false;
            }
        }
        return !consumer.try_receive();
    }

    railmq::simulation sim{};
    simulated_disk disk{1};
    railmq::queue_options queue_options;
    railmq::broker_options options;
    int unreadable = 0;
    std::optional<railmq::sim_broker> broker{};
    railmq::sim_queue<std::string> queue{};
};

/// A type that owns memory and whose bytes cannot always be read.
struct moody {
    std::string text;
    static inline bool throws = false;
};

} // namespace

template <>
struct railmq::codec<moody> {
    static void encode(const moody& m, std::vector<std::byte>& out) {
        codec<std::string>::encode(m.text, out);
    }
    static std::optional<moody> decode(std::span<const std::byte> in) {
        if (moody::throws) {
            throw std::runtime_error{"not today"};
        }
        return moody{*codec<std::string>::decode(in)};
    }
    static std::string name() { return "moody"; }
};

namespace {

TEST_CASE("A backlog beyond the memory limit leaves memory, and comes back in order") {
    world w;
    w.send(0, 2000);
    const auto stats = w.queue.stats();
    CHECK(stats.ready == 2000);
    CHECK(stats.on_disk > 1500);
    CHECK(stats.on_disk < 2000); // those that come first stay
    CHECK(w.broker->stats().memory_bytes < limit);
    CHECK(w.receives(0, 2000));
    CHECK(w.queue.stats().on_disk == 0);
    CHECK(w.queue.stats().acked == 2000);

    w.send(0, 10);
    CHECK(w.queue.stats().on_disk == 0); // there is room again
}

TEST_CASE("What is counted for payloads is given back however they leave") {
    world w{{.time_to_live = 10s}};
    const auto before = w.broker->stats().memory_bytes;
    SECTION("purged") {
        w.send(0, 1000);
        CHECK(w.queue.purge() == 1000);
    }
    SECTION("expired, to a dead-letter queue") {
        w.queue.dead_letter(railmq::dead_letter_target{"dead"});
        w.send(0, 1000);
        w.sim.advance(11s);
        auto dead = w.broker->queue<std::string>("dead");
        REQUIRE(dead.stats().ready == 1000);
        CHECK(dead.stats().on_disk > 500);
        std::map<std::string, int> seen;
        auto consumer = dead.consumer();
        while (auto d = consumer.try_receive()) {
            ++seen[**d];
            d->ack();
        }
        CHECK(seen.size() == 1000);
        for (int i = 0; i != 1000; ++i) {
            CHECK(seen[content(i)] == 1);
        }
    }
    SECTION("deleted") {
        w.send(0, 1000);
        w.queue = {};
        w.broker->delete_queue("backlog");
        w.queue = w.broker->queue<std::string>("backlog", w.queue_options);
    }
    CHECK(w.queue.stats().on_disk == 0);
    // Blocks of messages stay for a while; payloads do not.
    CHECK(w.broker->stats().memory_bytes < before + 150'000);
}

TEST_CASE("A backlog can be looked at, and moved, without all of it being in memory") {
    world w;
    w.send(0, 1000);
    const auto peeked = w.queue.peek(1000);
    REQUIRE(peeked.size() == 1000);
    for (int i = 0; i != 1000; ++i) {
        CHECK(peeked[static_cast<std::size_t>(i)].value == content(i));
    }
    CHECK(w.broker->stats().memory_bytes < limit);

    auto to = w.broker->queue<std::string>("others");
    CHECK(w.queue.redrive(to, {}, [](const std::string& s) { return s == content(900); }) == 1);
    const auto moved = to.peek();
    REQUIRE(moved.size() == 1);
    CHECK(moved[0].value == content(900));
    CHECK(w.queue.stats().ready == 999);
    CHECK(w.broker->stats().memory_bytes < limit);
}

TEST_CASE("Opening a queue takes no more memory than there is") {
    world w;
    w.send(0, 1500);
    w.reopen();
    CHECK(w.queue.stats().ready == 1500);
    CHECK(w.queue.stats().on_disk > 1000);
    CHECK(w.broker->stats().memory_bytes < limit);
    CHECK(w.receives(0, 1500));
}

TEST_CASE("Payloads are found where the upkeep has stored them again") {
    world w{{}, {.journal = {.segment_bytes = 64 << 10, .headroom_bytes = 4 << 10}}};
    // Three of four messages leave at once, so that what is left is worth storing again.
    auto busy = w.broker->queue<std::string>("busy");
    auto consumer = busy.consumer();
    for (int i = 0; i != 1000; ++i) {
        w.send(i, i + 1);
        for (int k = 0; k != 3; ++k) {
            busy.producer().send(content(k));
            auto d = consumer.try_receive();
            REQUIRE(d);
            CHECK(**d == content(k));
            d->ack();
        }
    }
    CHECK(w.queue.stats().on_disk > 500);
    // Of 4 MB that were sent, 1 MB is wanted: where the first was is another file now, or none.
    error_code ec;
    const auto files = w.disk.directory().names(ec);
    CHECK(files.size() < 45);
    CHECK(w.receives(0, 1000));
}

TEST_CASE("A payload that cannot be read costs no attempt, and is tried again") {
    world w;
    w.send(0, 1000);
    const auto on_disk = w.queue.stats().on_disk;
    REQUIRE(on_disk > 500);
    const int present = 1000 - static_cast<int>(on_disk);
    auto consumer = w.queue.consumer();
    for (int i = 0; i != present; ++i) {
        consumer.try_receive()->ack();
    }
    w.disk.plan({.what = disk_operation::read, .lasts = true});
    CHECK_FALSE(consumer.try_receive());
    CHECK(w.unreadable == static_cast<int>(on_disk)); // each was asked for once
    CHECK(w.queue.stats().delayed == on_disk);
    CHECK(w.queue.peek(10).empty());

    w.disk.heal();
    w.sim.advance(2s);
    for (int i = present; i != 1000; ++i) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(**d == content(i));
        CHECK(d->delivery_count() == 1);
        d->ack();
    }
    CHECK(w.queue.stats().failed == 0);
}

TEST_CASE("A codec that throws when a payload comes back loses nothing") {
    world w;
    auto queue = w.broker->queue<moody>("moody");
    for (int i = 0; i != 1000; ++i) {
        queue.producer().send(moody{content(i)});
    }
    auto consumer = queue.consumer();
    REQUIRE(queue.stats().on_disk > 500);
    const int present = 1000 - static_cast<int>(queue.stats().on_disk);
    for (int i = 0; i != present; ++i) {
        consumer.try_receive()->ack();
    }
    moody::throws = true;
    CHECK_FALSE(consumer.try_receive());
    moody::throws = false;
    CHECK(w.unreadable == 1000 - present);
    w.sim.advance(2s);
    for (int i = present; i != 1000; ++i) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK((*d)->text == content(i));
        d->ack();
    }
}

TEST_CASE("Payloads stay where their bytes are limited, or lie in their places") {
    world w{{.max_bytes = 10'000'000}};
    w.send(0, 1000);
    CHECK(w.queue.stats().on_disk == 0);
    auto numbers = w.broker->queue<int>("numbers");
    for (int i = 0; i != 1000; ++i) {
        numbers.producer().send(i);
    }
    CHECK(numbers.stats().on_disk == 0);
}

TEST_CASE("By key and strict order hold for what comes back") {
    const auto order = GENERATE(railmq::delivery_order::by_key, railmq::delivery_order::strict);
    world w{{.order = order}};
    w.send(0, 800, {.key = "one"});
    REQUIRE(w.queue.stats().on_disk > 300);
    auto consumer = w.queue.consumer();
    for (int i = 0; i != 800; ++i) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(**d == content(i));
        CHECK_FALSE(consumer.try_receive());
        d->ack();
    }
}

} // namespace
