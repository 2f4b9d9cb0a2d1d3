// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/joint_changes.hpp>
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::time_point;
using single = railmq::core::single_threaded;

namespace {

struct world {
    explicit world(railmq::queue_options o, std::size_t memory = 1U << 30U)
        : budget{memory}
        , machine{
              "q", railmq::core::payload_ops_of<int>::value, std::move(o), budget, 1, false, true} {
        machine.open(holder, time_point{}, fx);
    }
    std::uint64_t store(int value) {
        std::unique_ptr<railmq::properties> none;
        std::uint64_t id = 0;
        REQUIRE(machine.store_now(&value, none, time_point{}, fx, id) == errc{});
        return id;
    }

    railmq::core::memory_budget<single> budget;
    railmq::core::effects<single> fx{false, true};
    railmq::core::lease_holder<single> holder{};
    railmq::core::queue_machine<single> machine;
};

} // namespace

TEST_CASE("a queue says beforehand whether it can store as many") {
    world w{{.max_length = 3}};
    CHECK(w.machine.can_store(3, 0, false) == errc{});
    CHECK(w.machine.can_store(4, 0, false) == errc::queue_full);
    CHECK(w.machine.can_store(1, 0, true) == errc::queue_full); // somebody was there before
    w.store(1);
    w.store(2);
    CHECK(w.machine.can_store(1, 0, false) == errc{});
    CHECK(w.machine.can_store(2, 0, false) == errc::queue_full);
    (void)w.machine.close_queue(errc::closed, false, time_point{}, w.fx);
    CHECK(w.machine.can_store(1, 0, false) == errc::closed);

    world dropping{{.max_length = 1, .overflow = railmq::overflow_policy::drop_oldest}};
    CHECK(dropping.machine.can_store(5, 0, true) == errc{});
}

TEST_CASE("room in memory is made beforehand, within its limit") {
    world w{{}, 100'000};
    CHECK(w.machine.reserve(100) == errc{});
    CHECK(w.machine.reserve(100'000) == errc::memory_limit);
    CHECK(w.machine.ready_count() == 0);
}

TEST_CASE("what was stored and taken back has never been there") {
    world w{{}};
    const auto kept = w.store(1);
    const auto undone = w.store(2);
    w.machine.take_back(undone, w.fx);
    w.machine.serve(time_point{}, w.fx);
    CHECK(w.machine.ready_count() == 1);
    railmq::core::lease<single> l;
    REQUIRE(w.machine.take(w.holder, time_point{}, w.fx, l));
    CHECK(w.machine.store().public_id({l.in, l.at}) == kept);
    CHECK_FALSE(w.machine.take(w.holder, time_point{}, w.fx, l));
    // It counts as never accepted, a delayed one as well, and nobody hears of it.
    CHECK(w.machine.stats().accepted == 1);
    auto later = std::make_unique<railmq::properties>();
    later->delay = 1s;
    int value = 3;
    std::uint64_t id = 0;
    railmq::core::effects<single> heard{true, true};
    REQUIRE(w.machine.store_now(&value, later, time_point{}, heard, id) == errc{});
    REQUIRE(heard.notices.size() == 1);
    w.machine.take_back(id, heard);
    CHECK(heard.notices.empty());
    CHECK(w.machine.stats().accepted == 1);
    CHECK(w.machine.stats().delayed == 0);
}

TEST_CASE("a lease can be acknowledged until the message is somebody else's") {
    world w{{.ack_timeout = 10s}};
    w.store(1);
    railmq::core::lease<single> first;
    REQUIRE(w.machine.take(w.holder, time_point{}, w.fx, first));
    CHECK(w.machine.can_ack(first));
    w.machine.run_due(time_point{10s}, w.fx);
    CHECK(w.machine.can_ack(first));
    railmq::core::lease<single> second;
    REQUIRE(w.machine.take(w.holder, time_point{10s}, w.fx, second));
    CHECK_FALSE(w.machine.can_ack(first));
    CHECK(w.machine.can_ack(second));
    CHECK(w.machine.settle(second, {}, time_point{10s}, w.fx));
    CHECK_FALSE(w.machine.can_ack(second));
    w.machine.drop_stale(first, w.fx);
}

TEST_CASE("while sends are held, nobody stores without the lock") {
    world w{{.max_length = 3}};
    auto& ring = w.machine.ring();
    railmq::core::slot_ring<single>::producer_cache cache;
    std::uint64_t first = 0;
    std::uint32_t count = 0;
    using status = railmq::core::slot_ring<single>::claim_status;
    w.machine.hold_sends();
    CHECK(ring.try_claim(1, 3, cache, first, count) == status::gated);
    CHECK(w.machine.can_store(3, 0, false) == errc{});
}

TEST_CASE("while serving is held, whoever waits gets nothing, and afterwards everything") {
    world w{{.max_length = 1}};
    w.store(1);
    railmq::core::send_waiter room;
    w.machine.hold_serving(true);
    w.machine.wait_to_send(room, time_point{}, w.fx);
    (void)w.machine.purge(time_point{}, w.fx);
    CHECK(w.fx.completed.empty());
    w.machine.hold_serving(false);
    w.machine.serve(time_point{}, w.fx);
    CHECK(w.fx.completed.size() == 1);
}

TEST_CASE("a send without a message is told of room, and those behind it have to wait once") {
    world w{{.max_length = 1}};
    w.store(1);
    railmq::core::send_waiter room;
    railmq::core::send_waiter plain;
    int value = 2;
    plain.payload = &value;
    w.machine.wait_to_send(room, time_point{}, w.fx);
    w.machine.wait_to_send(plain, time_point{}, w.fx);
    CHECK(w.fx.completed.empty());
    (void)w.machine.purge(time_point{}, w.fx);
    REQUIRE(w.fx.completed.size() == 1);
    CHECK(w.fx.completed[0] == &room);
    CHECK_FALSE(room.result);
    CHECK(w.machine.ready_count() == 0); // the room is still there for it
    CHECK(w.machine.is_waited_for());
    w.machine.serve(time_point{}, w.fx);
    REQUIRE(w.fx.completed.size() == 2);
    CHECK(w.machine.ready_count() == 1);

    railmq::core::send_waiter closed;
    w.machine.wait_to_send(closed, time_point{}, w.fx);
    (void)w.machine.close_queue(errc::closed, false, time_point{}, w.fx);
    CHECK(closed.result == errc::closed);
}

TEST_CASE("room is counted in bytes where the queue counts them") {
    world w{{.max_bytes = 8}};
    CHECK_FALSE(w.machine.is_too_large(8));
    CHECK(w.machine.is_too_large(9));
    w.store(1);
    railmq::core::send_waiter large;
    large.bytes = 8;
    w.machine.wait_to_send(large, time_point{}, w.fx);
    CHECK(w.fx.completed.empty()); // four bytes are free
    railmq::core::send_waiter small;
    w.machine.forget(large);
    small.bytes = 4;
    w.machine.wait_to_send(small, time_point{}, w.fx);
    CHECK(w.fx.completed.size() == 1);
}

TEST_CASE("a handler may still store while its queue is being drained") {
    world w{{}};
    w.machine.drain_queue(time_point{}, w.fx);
    CHECK(w.machine.can_store(1, 0, false) == errc::closed);
    CHECK(w.machine.can_store(1, 0, false, true) == errc{});
    (void)w.machine.close_queue(errc::closed, true, time_point{}, w.fx);
    CHECK(w.machine.can_store(1, 0, false, true) == errc::closed);
}

namespace {

struct once_world : world {
    using world::world;
    [[nodiscard]] errc send(const char* key, std::uint64_t& id, time_point now = {}) {
        int value = 1;
        auto props = std::make_unique<railmq::properties>();
        props->deduplication_id = key;
        return machine.store_now(&value, props, now, fx, id);
    }
    [[nodiscard]] bool is_new(const char* key, time_point now = {}) {
        std::uint64_t id = 0;
        REQUIRE(send(key, id, now) == errc{});
        return !fx.was_duplicate;
    }
};

} // namespace

TEST_CASE("a deduplication id is told to whoever keeps it, once, and listed with its message") {
    once_world w{{.deduplication_window = 10s}};
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    REQUIRE(w.send("a", first, time_point{3s}) == errc{});
    CHECK_FALSE(w.fx.was_duplicate);
    REQUIRE(w.send("a", second, time_point{4s}) == errc{});
    CHECK(w.fx.was_duplicate);
    CHECK(second == first);
    REQUIRE(w.fx.remembered.size() == 1);
    CHECK(w.fx.remembered[0].key == "a");
    CHECK(w.fx.remembered[0].id == first);
    CHECK(w.fx.remembered[0].at == time_point{3s});
    CHECK(w.machine.next_due(time_point{4s}) == time_point{13s});
    CHECK(w.machine.ready_count() == 1);
    w.machine.run_due(time_point{13s}, w.fx);
    CHECK(w.machine.stats().deduplication_ids == 0);
    CHECK(w.machine.next_due(time_point{13s}) == railmq::never);
}

TEST_CASE("what was taken back, or could not be written, may be sent again") {
    once_world w{{.deduplication_window = 10s}};
    std::uint64_t id = 0;
    REQUIRE(w.send("a", id) == errc{});
    REQUIRE(w.send("b", id) == errc{});
    w.machine.take_back(id, w.fx);
    CHECK(w.fx.remembered.size() == 1);
    CHECK(w.is_new("b"));
    CHECK_FALSE(w.is_new("a"));
    w.machine.forget_unwritten(w.fx);
    CHECK(w.is_new("a"));
}

TEST_CASE("a message that was not stored leaves no deduplication id") {
    once_world w{{
        .max_length = 1,
        .overflow = railmq::overflow_policy::reject,
        .deduplication_window = 10s,
    }};
    std::uint64_t id = 0;
    REQUIRE(w.send("a", id) == errc{});
    CHECK(w.send("b", id) == errc::queue_full);
    CHECK(w.fx.remembered.size() == 1);
    CHECK(w.machine.stats().deduplication_ids == 1);
    CHECK_FALSE(w.is_new("a")); // this one needs no room
}

TEST_CASE("deduplication ids of another life are remembered for what is left of their time") {
    once_world w{{.deduplication_window = 10s}};
    w.machine.remember_again("a", 7, time_point{1s});
    w.machine.remember_again("b", 9, time_point{2s});
    std::uint64_t id = 0;
    REQUIRE(w.send("b", id, time_point{11s}) == errc{});
    CHECK(w.fx.was_duplicate);
    CHECK(id == 9);
    CHECK(w.is_new("a", time_point{11s}));
    std::uint64_t n = 0;
    w.machine.for_each_remembered([&](const auto&) { ++n; });
    CHECK(n == 2);
}
