// SPDX-License-Identifier: BSL-1.0
//
// Limits of a queue, and what becomes of what is too much.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/queue_world.hpp"
#include "support/stats.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using railmq::errc;
using railmq::error_code;
using railmq::overflow_policy;
using railmq::test::at_once;
using railmq::test::error_of;
using railmq::test::text_of;

/// Its dead letters have all made room.
struct world : railmq::test::queue_world {
    using queue_world::queue_world;

    /// Which sends of these are taken; the others find the queue full.
    [[nodiscard]] std::vector<bool> accepted(const std::vector<int>& all) {
        std::vector<bool> taken;
        for (const int m : all) {
            error_code ec;
            p.send(m, ec);
            CHECK((!ec || ec == errc::queue_full));
            taken.push_back(!ec);
        }
        return taken;
    }
    [[nodiscard]] std::vector<railmq::sim_delivery<int>> hold(std::size_t n) {
        auto all = c.receive_batch(n, 0s);
        REQUIRE(all.size() == n);
        return all;
    }
    [[nodiscard]] std::vector<int> dropped() { return dead(railmq::death_reason::dropped_oldest); }
};

} // namespace

TEST_CASE("[J01] of a queue of one that drops its oldest the last is read") {
    world w{{.max_length = 1, .overflow = overflow_policy::drop_oldest}};
    const int n = GENERATE(2, 3);
    for (int i = 1; i <= n; ++i) {
        w.p.send(i);
    }
    CHECK(w.q.stats().ready == 1);
    CHECK(w.read_now() == std::vector{n});
    CHECK(w.dropped().size() == static_cast<std::size_t>(n) - 1);
}

TEST_CASE("[J02] a limit in bytes that one message nearly fills is a limit of one") {
    railmq::simulation sim{1};
    railmq::sim_broker b{sim};
    auto q =
        b.queue<std::string>("q", {.max_bytes = 100, .overflow = overflow_policy::drop_oldest});
    auto p = q.producer();
    auto c = q.consumer();
    for (const char kind : {'1', '2', '3'}) {
        p.send(std::string(80, kind));
        CHECK(q.stats().ready == 1);
    }
    auto d = c.try_receive();
    REQUIRE(d);
    CHECK(d->value() == std::string(80, '3'));
    d->ack();
    CHECK(b.queue<std::string>("q.dead").stats().ready == 2);
}

TEST_CASE("[J03] a full queue that rejects takes nothing until there is room") {
    world w{{.max_length = 1, .overflow = overflow_policy::reject}};
    CHECK(w.accepted({1, 2, 3}) == std::vector{true, false, false});
    CHECK(w.q.stats().refused == 2);
    CHECK(w.read_now() == std::vector{1});
    CHECK(w.accepted({2}) == std::vector{true});
    CHECK(w.read_now() == std::vector{2});
}

TEST_CASE("[J04] only what is ready counts; what comes back is kept, over the limit as well") {
    world w{{.max_length = 1, .overflow = overflow_policy::reject, .retry = at_once}};
    CHECK(w.accepted({1}) == std::vector{true});
    auto held = w.hold(1);
    CHECK(w.accepted({2, 3}) == std::vector{true, false});
    held.front().nack(0s);
    CHECK(w.q.stats().ready == 2);
    CHECK(w.accepted({4}) == std::vector{false});
    CHECK(w.read_now() == std::vector{1, 2});
}

TEST_CASE("[J05] one more than the limit drops the first, and what is held is not in the way") {
    const int n = GENERATE(1, 2, 5);
    world w{{.max_length = static_cast<std::size_t>(n), .overflow = overflow_policy::drop_oldest}};
    for (int i = 1; i <= n; ++i) {
        w.p.send(i);
    }
    SECTION("all are ready") {
        w.p.send(n + 1);
        CHECK(w.dropped() == std::vector{1});
        auto left = w.read_now();
        REQUIRE(left.size() == static_cast<std::size_t>(n));
        CHECK(left.front() == 2);
    }
    SECTION("all are held") {
        auto held = w.hold(static_cast<std::size_t>(n));
        w.p.send(n + 1);
        CHECK(w.dropped().empty());
        CHECK(w.q.stats().ready == 1);
        CHECK(railmq::ack_all(held) == static_cast<std::size_t>(n));
    }
}

TEST_CASE("[J06] what comes back to a full queue has its place, and the head goes") {
    const int n = GENERATE(1, 3, 10);
    world w{
        {.max_length = static_cast<std::size_t>(n),
         .overflow = overflow_policy::drop_oldest,
         .retry = at_once}};
    for (int i = 1; i <= n; ++i) {
        w.p.send(i);
    }
    auto held = w.hold(static_cast<std::size_t>(n));
    for (int i = n + 1; i <= 2 * n; ++i) {
        w.p.send(i);
    }
    CHECK(w.dropped().empty());
    for (auto& d : held) {
        d.nack(0s);
    }
    // Each return goes over the limit, and the oldest makes room: those that came back themselves.
    CHECK(w.q.stats().ready == static_cast<std::uint64_t>(n));
    std::vector<int> first;
    std::vector<int> second;
    for (int i = 1; i <= n; ++i) {
        first.push_back(i);
        second.push_back(n + i);
    }
    CHECK(w.dropped() == first);
    CHECK(w.read_now() == second);
}

TEST_CASE("[J08] the eleventh of ten, and what is larger than all there is room for") {
    world w{{.max_length = 10, .overflow = overflow_policy::reject}};
    for (int i = 1; i <= 10; ++i) {
        w.p.send(i);
    }
    const auto before = w.q.stats();
    CHECK(error_of([&] { w.p.send(11); }) == errc::queue_full);
    auto after = w.q.stats();
    CHECK(after.refused == 1);
    after.refused = before.refused;
    CHECK(text_of(after) == text_of(before));

    auto small =
        w.b.queue<std::string>("small", {.max_bytes = 4096, .overflow = overflow_policy::reject});
    CHECK(error_of([&] {
              small.producer().send(std::string(8192, 'x'));
          }) == errc::message_too_large); // there will never be room
    small.producer().send(std::string(3000, 'x'));
    CHECK(error_of([&] { small.producer().send(std::string(3000, 'x')); }) == errc::queue_full);
    CHECK(small.stats().accepted == 1);
}
