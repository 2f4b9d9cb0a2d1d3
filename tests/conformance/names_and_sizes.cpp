// SPDX-License-Identifier: BSL-1.0
//
// What may be a name, and how large a message may be.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::exchange_type;
using namespace railmq::test;

namespace {

/// Opens something of each shape with that name, and removes it: what they say, all the same.
[[nodiscard]] error_code name_error(simulated_world& w, const std::string& name) {
    const railmq::queue_options alone{.dead_letter = railmq::discard};
    const auto of_queue = error_of([&] { (void)open<int>(w, name, alone); });
    if (!of_queue) {
        w.broker.delete_queue(name);
    }
    const auto of_log = error_of([&] { (void)w.broker.log<int>(name); });
    if (!of_log) {
        w.broker.delete_log(name);
    }
    const auto of_exchange =
        error_of([&] { (void)w.broker.exchange<int>(name, exchange_type::fanout); });
    if (!of_exchange) {
        w.broker.delete_exchange(name);
    }
    const auto of_alternate = error_of(
        [&] { (void)w.broker.exchange<int>("x", exchange_type::fanout, {.alternate = name}); });
    if (!of_alternate) {
        w.broker.delete_exchange("x");
    }
    CHECK(of_log == of_queue);
    CHECK(of_exchange == of_queue);
    CHECK((name.empty() || of_alternate == of_queue)); // an empty one is none
    return of_queue;
}

} // namespace

TEST_CASE("[O01] [O02] names: letters, digits, dot, underscore and dash, 1 to 249 of them") {
    simulated_world w;
    for (const std::string& name :
         {std::string("valid"), std::string("_0-9_."), std::string("..."), std::string(249, 'n')}) {
        INFO(name);
        CHECK_FALSE(name_error(w, name));
    }
    for (const std::string& name :
         {std::string(),
          std::string("."),
          std::string(".."),
          std::string(250, 'n'),
          std::string("foo bar"),
          std::string("foo:bar")}) {
        INFO(name);
        CHECK(name_error(w, name) == errc::invalid_name);
    }
    const std::string bad("/\\,\0:\"';*? \t\r\n=", 15);
    for (const char c : bad) {
        INFO(static_cast<int>(c));
        CHECK(name_error(w, std::string("a") + c + "b") == errc::invalid_name);
    }
    CHECK(name_error(w, "../../etc/passwd") == errc::invalid_name);
    CHECK(w.broker.names().empty());
    CHECK(w.broker.exchange_names().empty());
    // The name of the dead-letter queue that comes with a queue counts, too.
    CHECK(error_of([&] { (void)open<int>(w, std::string(249, 'n')); }) == errc::invalid_name);
}

TEST_CASE("[O04] a message of exactly the limit is taken, one byte more is not") {
    simulated_world w;
    auto q = open<std::string>(w, "q");
    auto x = w.broker.exchange<std::string>("x", exchange_type::fanout);
    auto l = w.broker.log<std::string>("l");
    x.bind(q);
    x.bind(l);
    const std::size_t limit = std::size_t{1} << 20; // the default
    error_code ec;
    auto p = x.producer();
    CHECK(p.send(std::string(limit, 'a'), ec).routed == 2);
    CHECK_FALSE(ec);
    (void)p.send(std::string(limit + 1, 'a'), ec);
    CHECK(ec == errc::message_too_large);
    (void)q.producer().send(std::string(limit + 1, 'a'), ec);
    CHECK(ec == errc::message_too_large);
    (void)l.producer().send(std::string(limit + 1, 'a'), ec);
    CHECK(ec == errc::message_too_large);
    CHECK(q.stats().ready == 1);
    CHECK(q.peek().at(0).value.size() == limit);
}

TEST_CASE("[O05] another producer may have another limit") {
    simulated_world w;
    auto q = open<std::string>(w, "q");
    auto small = q.producer({.max_message_bytes = 3'000'000});
    auto large = q.producer({.max_message_bytes = 8'000'000});
    const std::string four(4'000'000, 'x');
    error_code ec;
    (void)small.send(four, ec);
    CHECK(ec == errc::message_too_large);
    (void)large.send(four, ec);
    CHECK_FALSE(ec);
    (void)large.send(std::string(10'000'000, 'x'), ec);
    CHECK(ec == errc::message_too_large);
}

TEST_CASE("[O06] sizes are bytes, not characters") {
    simulated_world w;
    auto q = open<std::string>(w, "q", {.max_bytes = 10});
    auto p = q.producer({.max_message_bytes = 8});
    error_code ec;
    (void)p.try_send("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", ec); // four letters, eight bytes
    CHECK_FALSE(ec);
    (void)p.try_send("\xc3\xa9", ec);
    CHECK_FALSE(ec);
    (void)p.try_send("e", ec);
    CHECK(ec == errc::queue_full);
    (void)p.try_send("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9+", ec);
    CHECK(ec == errc::message_too_large);
}

TEST_CASE("[O07] an empty message is a message, and another one than a tombstone") {
    simulated_world w;
    auto q = open<std::string>(w, "q");
    q.producer().send(std::string{});
    auto c = q.consumer();
    auto d = c.try_receive();
    REQUIRE(d);
    CHECK(d->value().empty());
    auto l = w.broker.log<std::string>("l");
    l.producer().send("k", std::string{});
    l.producer().send_tombstone("k");
    auto reader = l.consumer();
    auto empty = reader.try_receive();
    REQUIRE(empty);
    CHECK_FALSE(empty->is_tombstone());
    CHECK(empty->value().empty());
    auto tombstone = reader.try_receive();
    REQUIRE(tombstone);
    CHECK(tombstone->is_tombstone());
}

TEST_CASE("[O08] a batch of nothing and a time that is over are what they say") {
    simulated_world w;
    auto q = open<int>(w, "q");
    auto c = q.consumer();
    CHECK_FALSE(c.receive(-1s));
    CHECK(w.now() == 0s);
    q.producer().send(1);
    CHECK(c.receive(-1s)); // what is there needs no time
    CHECK(error_of([&] { (void)q.consumer({.prefetch = 0}); }) == errc::invalid_argument);
}

TEST_CASE("[O10] times that are longer than any clock do not overflow") {
    simulated_world w;
    const auto age =
        railmq::saturating_duration(std::chrono::minutes{std::numeric_limits<int>::max()});
    auto l = w.broker.log<int>("l", {.retention = {.max_age = age}});
    l.producer().send(1);
    w.advance(std::chrono::hours{24 * 365});
    CHECK(l.apply_retention() == 0);
    CHECK(l.stats().records == 1);
    auto q = open<int>(w, "q");
    q.producer().send(1, {.delay = railmq::duration::max()});
    q.producer().send(2, {.time_to_live = railmq::duration::max()});
    w.advance(std::chrono::hours{24 * 365});
    CHECK(q.stats().delayed == 1);
    CHECK(q.stats().ready == 1);
}
