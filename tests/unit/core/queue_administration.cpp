// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/queue_administration.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <variant>

using namespace std::chrono_literals;
using namespace railmq::core;
using railmq::errc;
using railmq::time_point;
using plain = single_threaded;

namespace {

/// A queue of numbers with one consumer.
struct bench {
    bench() { machine.open(holder, now, fx); }
    ~bench() {
        for (const auto& e : fx.endings) {
            machine.end_payloads(e);
            machine.free_ended(e);
        }
    }
    void send(int value, railmq::duration delay = {}) {
        alignas(int) std::byte space[sizeof(int)];
        auto* at = ::new (static_cast<void*>(space)) int(value);
        auto props = std::make_unique<railmq::properties>();
        props->delay = delay;
        std::uint64_t id = 0;
        REQUIRE(machine.send(at, props, now, fx, id) == errc{});
    }
    [[nodiscard]] lease<plain> take() {
        lease<plain> out;
        REQUIRE(machine.take(holder, now, fx, out));
        return out;
    }

    memory_budget<plain> budget{1 << 20};
    queue_machine<plain> machine{"q", payload_ops_of<int>::value, {}, budget, 1};
    lease_holder<plain> holder{};
    effects<plain> fx{true};
    time_point now{1s};
};

} // namespace

TEST_CASE("purge takes what nobody holds, and says how many") {
    bench b;
    b.send(1);
    b.send(2);
    b.send(3, 1h);
    const auto held = b.take();
    CHECK(b.machine.purge(b.now, b.fx) == 2);
    const auto s = b.machine.stats();
    CHECK(s.purged == 2);
    CHECK(s.ready == 0);
    CHECK(s.delayed == 0);
    CHECK(s.in_flight == 1);
    CHECK(s.accepted == 3);
    REQUIRE(std::holds_alternative<railmq::notices::purged>(b.fx.notices.back()));
    CHECK(b.machine.settle(held, {}, b.now, b.fx));
}

TEST_CASE("closing answers everyone who waits, and counts what is left") {
    bench b;
    receive_waiter<plain> w{};
    w.holder = &b.holder;
    REQUIRE(b.machine.wait_to_receive(w));
    CHECK(b.machine.close_queue(errc::not_found, true, b.now, b.fx) == 0);
    REQUIRE(b.fx.completed.size() == 1);
    CHECK(w.result == errc::not_found);

    bench c;
    c.send(1);
    c.send(2);
    const auto held = c.take();
    CHECK(c.machine.close_queue(errc::closed, false, c.now, c.fx) == 2);
    CHECK_FALSE(c.machine.is_drained()); // one may still be taken
    (void)c.take();
    CHECK(c.machine.is_drained());
    CHECK(c.machine.settle(held, {}, c.now, c.fx));
}

TEST_CASE("hand-outs that a journal has not heard of are listed once, at the end") {
    memory_budget<plain> budget{1 << 20};
    queue_machine<plain> machine{"q", payload_ops_of<int>::value, {}, budget, 1, false, true};
    lease_holder<plain> holder{};
    effects<plain> fx{false, true};
    const time_point now{1s};
    machine.list_hand_outs(false);
    machine.open(holder, now, fx);
    alignas(int) std::byte space[sizeof(int)];
    auto* at = ::new (static_cast<void*>(space)) int(1);
    std::unique_ptr<railmq::properties> none;
    std::uint64_t id = 0;
    REQUIRE(machine.send(at, none, now, fx, id) == errc{});
    lease<plain> l;
    REQUIRE(machine.take(holder, now, fx, l));
    fx.changes.clear();
    machine.list_held(fx);
    REQUIRE(fx.changes.size() == 1);
    CHECK(fx.changes.front().what == message_change::kind::changed);
    CHECK(machine.settle(l, {}, now, fx));
}
