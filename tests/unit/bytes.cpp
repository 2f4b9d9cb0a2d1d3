// SPDX-License-Identifier: BSL-1.0
#include <railmq/bytes.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/single_threaded.hpp>
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/stats.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::bytes;
using railmq::errc;
using railmq::error_code;
using railmq::simulation;
using railmq::sim_broker;
using budget_type = railmq::core::memory_budget<railmq::core::single_threaded>;
using arena_type = railmq::detail::byte_arena<budget_type>;

namespace {

std::span<const std::byte> span_of(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
}

} // namespace

TEST_CASE("bytes: copies what it is made of") {
    std::string source = "some content";
    const bytes b{std::string_view{source}};
    source.assign(source.size(), 'x');
    CHECK(b.view() == "some content");
    CHECK(b.size() == 12);
    CHECK(b.span().size() == 12);
    CHECK_FALSE(b.empty());
    const std::array<std::byte, 3> raw{std::byte{0}, std::byte{255}, std::byte{0}};
    CHECK(bytes{std::span<const std::byte>{raw}}.view() == std::string_view{"\0\xff\0", 3});
}

TEST_CASE("bytes: nothing is something too") {
    const bytes none;
    CHECK(none.empty());
    CHECK(none.view().empty());
    CHECK(bytes{std::string_view{}} == none);
    const bytes copy = none; // NOLINT: on purpose
    CHECK(copy.empty());
}

TEST_CASE("bytes: copies share, moves leave nothing behind") {
    bytes a{std::string_view{"abc"}};
    const bytes b = a;
    CHECK(b.data() == a.data());
    CHECK(a == b);
    bytes c = std::move(a);
    CHECK(a.empty()); // NOLINT: on purpose
    CHECK(c.data() == b.data());
    c = b;
    bytes& same = c;
    c = same;
    CHECK(c.view() == "abc");
    c = bytes{std::string_view{"other"}};
    CHECK(c.view() == "other");
    CHECK(b.view() == "abc");
    CHECK(c != b);
}

TEST_CASE("byte_arena: messages lie one after another in a block that lives as long as they") {
    const auto budget = std::make_shared<budget_type>(std::size_t{1} << 20);
    bytes last;
    {
        arena_type arena;
        error_code ec;
        const bytes a = arena.copy(span_of("first"), budget, ec);
        const bytes b = arena.copy(span_of("second"), budget, ec);
        CHECK_FALSE(ec);
        CHECK(b.data() == a.data() + 5);
        CHECK(a.view() == "first");
        CHECK(budget->used() > 0);
        CHECK(budget->used() <= arena_type::block_bytes);
        last = b;
        CHECK(arena.copy({}, budget, ec).empty()); // takes no room
    }
    CHECK(last.view() == "second");
    CHECK(budget->used() != 0);
    last = {};
    CHECK(budget->used() == 0);
}

TEST_CASE("byte_arena: large ones get a block of their own, and the limit is kept") {
    const auto budget = std::make_shared<budget_type>(std::size_t{200'000});
    arena_type arena;
    error_code ec;
    const std::string large(150'000, 'x');
    const bytes a = arena.copy(span_of(large), budget, ec);
    CHECK_FALSE(ec);
    CHECK(a.size() == large.size());
    CHECK(arena.copy(span_of(large), budget, ec).empty());
    CHECK(ec == errc::memory_limit);
    CHECK(a.view() == large); // the one before is not hurt
}

TEST_CASE("byte_arena: any number of messages, each its own content") {
    const auto budget = std::make_shared<budget_type>(std::size_t{1} << 30);
    {
        arena_type arena;
        std::vector<bytes> all;
        error_code ec;
        for (int n = 0; n < 20'000; ++n) {
            all.push_back(arena.copy(span_of("message " + std::to_string(n)), budget, ec));
            REQUIRE_FALSE(ec);
        }
        for (int n = 0; n < 20'000; ++n) {
            REQUIRE(all[static_cast<std::size_t>(n)].view() == "message " + std::to_string(n));
        }
    }
    CHECK(budget->used() == 0);
}

TEST_CASE("bytes: sent from any text, read in place") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<bytes>("q");
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    error_code ec;
    producer.send("a literal");
    producer.send(std::string_view{"with properties"}, {.key = "k"}, ec);
    producer.try_send(std::string_view{""}, ec);
    CHECK_FALSE(ec);
    producer.send(bytes{std::string_view{"made before"}});
    const bytes copied = producer.copy("copied first", ec);
    producer.send(copied);

    auto d = consumer.try_receive();
    CHECK(d->value().view() == "a literal");
    const std::byte* where = d->value().data();
    CHECK(d->value().data() == where); // no copy is made by looking
    const bytes kept = d->value();     // nor by keeping it
    CHECK(kept.data() == where);
    d->ack();
    CHECK(kept.view() == "a literal"); // though the message has left
    d = consumer.try_receive();
    CHECK(d->value().view() == "with properties");
    CHECK(d->key() == "k");
    d->ack();
    d = consumer.try_receive();
    REQUIRE(d); // an empty message is a message
    CHECK(d->value().empty());
    d->ack();
    d = consumer.try_receive();
    CHECK(d->take().view() == "made before");
    d = consumer.try_receive();
    CHECK(d->value().data() == copied.data());
    d->ack();
}

TEST_CASE("bytes: batches") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<bytes>("q");
    auto producer = queue.producer({.max_message_bytes = 5});
    std::vector<std::string> many;
    for (int n = 0; n < 300; ++n) {
        many.push_back(std::to_string(n));
    }
    CHECK(producer.send_batch(many) == 300);
    const auto shown = queue.peek(300);
    REQUIRE(shown.size() == 300);
    CHECK(shown[299].value.view() == "299");
    error_code ec;
    CHECK(producer.send_batch(std::vector<std::string>{"ok", "too long", "ok"}, ec) == 1);
    CHECK(ec == errc::message_too_large);
    CHECK(queue.stats().ready == 301);
    CHECK(producer.send_batch(std::vector<std::string>{}, ec) == 0);
    CHECK_FALSE(ec);
}

TEST_CASE("bytes: too large, too many, no queue") {
    simulation sim;
    sim_broker broker{sim, {.memory_limit = 300'000}};
    auto queue = broker.queue<bytes>("q");
    auto producer = queue.producer({.max_message_bytes = 100'000});
    error_code ec;
    producer.send(std::string(100'001, 'x'), ec);
    CHECK(ec == errc::message_too_large);
    CHECK(producer.copy(std::string(100'001, 'x'), ec).empty());
    CHECK(ec == errc::message_too_large);
    int sent = 0;
    while (producer.send(std::string(100'000, 'x'), ec), !ec) {
        ++sent;
    }
    CHECK(ec == errc::memory_limit);
    CHECK(sent == 2);
    CHECK(queue.stats().accepted == 2);
    CHECK(queue.purge() == 2);
    producer.send(std::string(1'000, 'x'), ec); // there is room again
    CHECK_FALSE(ec);

    railmq::sim_producer<bytes> none;
    CHECK(none.copy("x", ec).empty());
    CHECK(ec == errc::closed);
    none.send("x", ec);
    CHECK(ec == errc::closed);
    CHECK(none.send_batch(std::vector<std::string>{"x"}, ec) == 0);
    CHECK(ec == errc::closed);
}

TEST_CASE("bytes: the queue's limit of bytes counts their contents") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<bytes>(
        "q", {.max_bytes = 10, .overflow = railmq::overflow_policy::reject});
    auto producer = queue.producer();
    error_code ec;
    producer.send("12345", ec);
    producer.send("12345", ec);
    CHECK_FALSE(ec);
    producer.send("", ec); // adds nothing
    CHECK_FALSE(ec);
    producer.send("1", ec);
    CHECK(ec == errc::queue_full);
    producer.send("more than ten", ec);
    CHECK(ec == errc::message_too_large);
}

TEST_CASE("bytes: dead letters share the content with an old reader") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<bytes>("q");
    queue.producer().send("content");
    auto consumer = queue.consumer();
    auto old = consumer.try_receive();
    sim.advance(30s);
    auto fresh = consumer.try_receive();
    fresh->reject();
    auto dead = broker.find_queue<bytes>("q.dead")->consumer().try_receive();
    REQUIRE(dead);
    CHECK(dead->value().data() == old->value().data());
}
