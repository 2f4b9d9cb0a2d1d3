// SPDX-License-Identifier: BSL-1.0
//
// Deduplication: what was accepted is not stored again, however often it is sent, as long as the
// window says.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/queue_world.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using railmq::errc;
using railmq::error_code;
using railmq::overflow_policy;
using railmq::queue_options;
using railmq::test::at_once;
using railmq::test::error_of;
using numbers = std::vector<int>;

constexpr auto window = 5min;

struct world : railmq::test::queue_world {
    explicit world(queue_options o = {.deduplication_window = window})
        : queue_world{std::move(o)} {}

    railmq::receipt send(int value, const std::string& id) {
        return p.send(value, {.deduplication_id = id});
    }
};

} // namespace

TEST_CASE("[M01] the second of one id succeeds, is not stored, and names the first") {
    world w;
    const auto first = w.send(1, "a");
    CHECK_FALSE(first.duplicate_of());
    const auto second = w.send(2, "a");
    CHECK(second.duplicate_of() == first.id);
    CHECK(second.id == first.id);
    CHECK_FALSE(w.send(3, "b").duplicate_of());
    CHECK_FALSE(w.send(4, "").duplicate_of()); // none is no id
    CHECK_FALSE(w.send(5, "").duplicate_of());
    CHECK(w.q.stats().duplicates == 1);
    CHECK(w.q.stats().accepted == 4);
    CHECK(w.q.stats().deduplication_ids == 2);
    CHECK(w.read_now() == numbers{1, 3, 4, 5});
}

TEST_CASE("[M01] every form of sending") {
    world w;
    const auto first = w.send(1, "a");
    const railmq::properties again{.deduplication_id = "a"};
    error_code ec;
    CHECK(w.p.send(2, again, ec).duplicate_of() == first.id);
    CHECK_FALSE(ec);
    CHECK(w.p.try_send(2, again, ec).duplicate_of() == first.id);
    CHECK_FALSE(ec);
    CHECK(w.p.send_for(2, again, 1s, ec).duplicate_of() == first.id);
    CHECK_FALSE(ec);
    std::optional<railmq::receipt> told;
    w.p.async_send(2, again, [&](error_code, railmq::receipt r) { told = r; });
    w.sim.run_ready();
    REQUIRE(told);
    CHECK(told->duplicate_of() == first.id);
    boost::asio::co_spawn(
        w.sim.get_executor(),
        [&]() -> boost::asio::awaitable<void> {
            told = co_await w.p.async_send(2, again, boost::asio::use_awaitable);
        },
        boost::asio::detached);
    w.sim.run_ready();
    CHECK(told->duplicate_of() == first.id);
    CHECK(w.q.stats().duplicates == 5);
    CHECK(w.read_now() == numbers{1});
}

TEST_CASE("[M01] of two who wait for room with one id, one is stored") {
    world w{{.max_length = 1, .deduplication_window = window}};
    w.p.send(0);
    std::vector<railmq::receipt> told;
    for (int i = 1; i <= 2; ++i) {
        w.p.async_send(i, {.deduplication_id = "a"}, [&](error_code ec, railmq::receipt r) {
            CHECK_FALSE(ec);
            told.push_back(r);
        });
    }
    w.sim.run_ready();
    CHECK(told.empty());
    CHECK(w.read_now() == numbers{0, 1});
    w.sim.run_ready();
    REQUIRE(told.size() == 2);
    CHECK_FALSE(told[0].duplicate_of());
    CHECK(told[1].duplicate_of() == told[0].id);
}

TEST_CASE("[M01] a delayed message counts from when it was sent") {
    world w;
    const auto first = w.p.send(1, {.delay = 1h, .deduplication_id = "a"});
    CHECK(w.send(2, "a").duplicate_of() == first.id);
    w.sim.advance(window);
    CHECK_FALSE(w.send(3, "a").duplicate_of());
    CHECK(w.read_now() == numbers{3});
}

TEST_CASE("[M01] values that own something are ended, and never twice") {
    struct counted {
        std::shared_ptr<int> what = std::make_shared<int>(0);
    };
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q = b.queue<counted>("q", {.deduplication_window = window});
    auto p = q.producer();
    const auto watched = std::make_shared<int>(1);
    p.send(counted{watched}, {.deduplication_id = "a"});
    CHECK(watched.use_count() == 2);
    for (int i = 0; i < 10; ++i) {
        p.send(counted{watched}, {.deduplication_id = "a"});
        CHECK(watched.use_count() == 2);
    }
    const counted kept{watched};
    p.send(kept, {.deduplication_id = "a"});
    CHECK(watched.use_count() == 3);
    CHECK(q.purge() == 1);
    CHECK(watched.use_count() == 2);
}

TEST_CASE("[M02] an id that is as old as the window is forgotten, and not before") {
    world w{{.deduplication_window = 100ms}};
    for (int i = 0; i < 5; ++i) {
        w.send(i, std::to_string(i));
    }
    CHECK(w.q.stats().deduplication_ids == 5);
    w.sim.advance(100ms - 1ns);
    CHECK(w.send(9, "0").duplicate_of());
    CHECK(w.q.stats().deduplication_ids == 5);
    w.sim.advance(1ns);
    CHECK(w.q.stats().deduplication_ids == 0);
    CHECK_FALSE(w.send(5, "0").duplicate_of());
    CHECK(w.read_now() == numbers{0, 1, 2, 3, 4, 5});
}

TEST_CASE("[M04] a negative window is refused; none is none") {
    world w{queue_options{}};
    CHECK(error_of([&] {
              (void)w.b.queue<int>("r", {.deduplication_window = -1ns});
          }) == errc::invalid_argument);
    CHECK_FALSE(w.b.find_queue<int>("r"));
    CHECK_FALSE(w.send(1, "a").duplicate_of());
    CHECK_FALSE(w.send(2, "a").duplicate_of());
    CHECK(w.q.stats().deduplication_ids == 0);
    auto d = w.c.try_receive();
    CHECK(d->properties().deduplication_id == "a"); // carried all the same
}

TEST_CASE("[M05] neither a purge nor an acknowledgement makes an id new") {
    world w;
    const auto first = w.send(1, "a");
    const auto second = w.send(2, "b");
    w.c.try_receive()->ack();
    CHECK(w.q.purge() == 1);
    CHECK(w.send(3, "a").duplicate_of() == first.id);
    CHECK(w.send(4, "b").duplicate_of() == second.id);
    CHECK(w.q.stats().ready == 0);
}

TEST_CASE("[M06] a repeat does not begin the window again") {
    world w; // five minutes
    w.send(1, "a");
    w.sim.advance(4min + 59s);
    CHECK(w.send(2, "a").duplicate_of());
    w.sim.advance(1s);
    CHECK_FALSE(w.send(3, "a").duplicate_of());
    CHECK(w.read_now() == numbers{1, 3});
}

TEST_CASE("[M07] a dead letter was sent as well, and is not held up by its id") {
    world w{{.retry = at_once, .deduplication_window = window}};
    const auto first = w.send(1, "a");
    w.c.try_receive()->reject();
    CHECK(w.send(2, "a").duplicate_of() == first.id);
    CHECK(w.q.stats().ready == 0);
    CHECK(w.dead() == numbers{1});
    auto dead = w.b.queue<int>("q.dead");
    CHECK(dead.redrive(w.q) == 1); // it is no new send
    CHECK(w.q.stats().duplicates == 1);
    CHECK(w.read_now() == numbers{1});
}

TEST_CASE("[M07] a dead-letter queue with a window takes all that dies") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto dead = b.queue<int>("dead", {.deduplication_window = window});
    auto q = b.queue<int>("q", {.dead_letter = "dead"});
    auto p = q.producer();
    auto c = q.consumer();
    for (int i = 1; i <= 2; ++i) {
        p.send(i, {.deduplication_id = "a"});
        c.try_receive()->reject();
    }
    CHECK(dead.stats().ready == 2);
    CHECK(dead.stats().duplicates == 0);
}

TEST_CASE("[M10] a send that was refused has not been accepted") {
    world w{{
        .max_length = 1,
        .overflow = overflow_policy::reject,
        .deduplication_window = window,
    }};
    w.send(1, "a");
    CHECK(error_of([&] { w.send(2, "b"); }) == errc::queue_full);
    CHECK(w.send(3, "a").duplicate_of()); // needs no room
    CHECK(w.q.stats().deduplication_ids == 1);
    CHECK(w.read_now() == numbers{1});
    CHECK_FALSE(w.send(4, "b").duplicate_of());
}

TEST_CASE("[M] what was dropped to make room was accepted") {
    world w{{
        .max_length = 1,
        .overflow = overflow_policy::drop_oldest,
        .deduplication_window = window,
    }};
    const auto first = w.send(1, "a");
    w.send(2, "b");
    CHECK(w.send(3, "a").duplicate_of() == first.id);
    CHECK(w.read_now() == numbers{2});
}

TEST_CASE("[M] a transaction: within it, with what was before, and nothing of an aborted one") {
    world w;
    const auto before = w.send(1, "a");
    {
        auto tx = w.b.begin();
        tx.send(w.p, 2, {.deduplication_id = "b"});
    }
    CHECK(w.q.stats().deduplication_ids == 1);
    auto tx = w.b.begin();
    tx.send(w.p, 3, {.deduplication_id = "a"});
    tx.send(w.p, 4, {.deduplication_id = "b"});
    tx.send(w.p, 5, {.deduplication_id = "b"});
    const auto receipts = tx.commit();
    REQUIRE(receipts.size() == 3);
    CHECK(receipts[0].duplicate_of == before.id);
    CHECK_FALSE(receipts[1].duplicate_of);
    CHECK(receipts[2].duplicate_of == receipts[1].id);
    CHECK(w.read_now() == numbers{1, 4});
    CHECK(w.send(6, "b").duplicate_of() == receipts[1].id);
}

TEST_CASE(
    "[M] an exchange: each queue by its own window, and what it has already counts as there") {
    world w;
    auto plain = w.b.queue<int>("plain");
    auto x = w.b.exchange<int>("x", railmq::exchange_type::fanout);
    x.bind(w.q);
    x.bind(plain);
    auto p = x.producer();
    CHECK(p.send(1, {.deduplication_id = "a"}).routed == 2);
    const auto r = p.send(2, {.deduplication_id = "a"});
    CHECK(r.routed == 2);
    CHECK(r.rejected_by.empty());
    CHECK(w.q.stats().duplicates == 1);
    CHECK(w.read_now() == numbers{1});
    CHECK(plain.stats().ready == 2);
}

TEST_CASE("[M] an observer hears of it") {
    railmq::simulation sim{1};
    std::vector<std::pair<std::uint64_t, std::string>> heard;
    railmq::sim_broker b{
        sim, {.observer = railmq::on<railmq::notices::duplicate>([&](const auto& n) {
                  heard.emplace_back(n.id, n.deduplication_id);
              })}};
    auto p = b.queue<int>("q", {.deduplication_window = window}).producer();
    p.send(0);
    const auto first = p.send(1, {.deduplication_id = "a"});
    p.send(2, {.deduplication_id = "a"});
    REQUIRE(heard.size() == 1);
    CHECK(heard.front() == std::pair{first.id, std::string{"a"}});
}

TEST_CASE("[M] what the ids take counts against the memory limit, and comes back") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim, {.memory_limit = 256 << 10}};
    auto q = b.queue<int>("q", {.deduplication_window = window});
    auto p = q.producer();
    auto c = q.consumer();
    error_code ec;
    int n = 0;
    for (; !ec && n < 100'000; ++n) {
        p.send(n, {.deduplication_id = std::string(100, 'x') + std::to_string(n)}, ec);
        if (auto d = c.try_receive()) {
            d->ack();
        }
    }
    CHECK(ec == errc::memory_limit);
    CHECK(n > 100);
    CHECK(n < 3'000);
    const auto known = q.stats().deduplication_ids;
    CHECK(known <= static_cast<std::uint64_t>(n));
    p.send(0, {.deduplication_id = std::string(100, 'x') + "0"}, ec);
    CHECK_FALSE(ec); // it is known, and takes nothing
    sim.advance(window);
    CHECK(q.stats().deduplication_ids == 0);
    p.send(1, {.deduplication_id = "b"}, ec);
    CHECK_FALSE(ec);
}

TEST_CASE("[M] with priorities") {
    world w{{.priorities = 2, .deduplication_window = window}};
    const auto first = w.p.send(1, {.deduplication_id = "a"});
    CHECK(w.p.send(2, {.priority = 1, .deduplication_id = "a"}).duplicate_of() == first.id);
    CHECK(w.read_now() == numbers{1});
}

TEST_CASE("[M] any number of threads: of each id exactly one") {
    railmq::broker b;
    auto q = b.queue<int>("q", {.deduplication_window = window});
    std::atomic<int> stored = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
            auto p = q.producer();
            for (int i = 0; i < 2'000; ++i) {
                if (!p.send(i, {.deduplication_id = std::to_string(i)}).duplicate_of()) {
                    ++stored;
                }
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    CHECK(stored == 2'000);
    CHECK(q.stats().ready == 2'000);
    CHECK(q.stats().duplicates == 4'000);
}

TEST_CASE("[BR22] an id is known from its first send until just before the window's end") {
    world w{{.deduplication_window = 120s}};
    const auto first = w.send(1, "9");
    w.sim.advance(60s);
    CHECK(w.send(2, "9").duplicate_of() == first.id);
    w.sim.advance(60s - 1ms);
    CHECK(w.send(3, "9").duplicate_of() == first.id); // and none of these began it anew
    w.sim.advance(1ms);
    CHECK_FALSE(w.send(4, "9").duplicate_of());
    CHECK(w.q.purge() == 2);
    CHECK(w.send(5, "9").duplicate_of());
}
