// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_leases.hpp>

#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

using namespace std::chrono_literals;
using railmq::time_point;
using single = railmq::core::single_threaded;

namespace {

struct world {
    explicit world(railmq::queue_options o)
        : machine{"q", railmq::core::payload_ops_of<int>::value, std::move(o), budget, 1} {
        machine.open(holder, time_point{}, fx);
    }
    void send(int value, time_point now) {
        std::unique_ptr<railmq::properties> props;
        std::uint64_t id = 0;
        REQUIRE(machine.send(&value, props, now, fx, id) == railmq::errc{});
    }
    [[nodiscard]] railmq::core::lease<single> take(time_point now) {
        railmq::core::lease<single> l;
        REQUIRE(machine.take(holder, now, fx, l));
        return l;
    }

    railmq::core::memory_budget<single> budget{1U << 30U};
    railmq::core::effects<single> fx{false};
    railmq::core::lease_holder<single> holder{};
    railmq::core::queue_machine<single> machine;
};

} // namespace

TEST_CASE("the next deadline is that of the oldest lease, exactly") {
    world w{{.ack_timeout = 10s}};
    for (int i = 0; i < 3; ++i) {
        w.send(i, time_point{});
    }
    REQUIRE(w.machine.next_due(time_point{}) == railmq::never);
    const auto first = w.take(time_point{1s});
    const auto second = w.take(time_point{2s});
    REQUIRE(w.machine.next_due(time_point{2s}) == time_point{11s});
    REQUIRE(w.machine.settle(first, {}, time_point{3s}, w.fx));
    REQUIRE(w.machine.next_due(time_point{3s}) == time_point{12s});
    REQUIRE(w.machine.extend(second, time_point{60s}, time_point{3s}, w.fx));
    REQUIRE(w.machine.next_due(time_point{3s}) == time_point{60s});
    REQUIRE(w.machine.settle(second, {}, time_point{4s}, w.fx));
    REQUIRE(w.machine.next_due(time_point{4s}) == railmq::never);
}

TEST_CASE("a lease passes at its deadline and not a nanosecond before") {
    world w{{.ack_timeout = 10s}};
    w.send(1, time_point{});
    const auto held = w.take(time_point{});
    w.machine.run_due(time_point{10s - 1ns}, w.fx);
    REQUIRE(w.machine.held_count() == 1);
    w.machine.run_due(time_point{10s}, w.fx);
    REQUIRE(w.machine.held_count() == 0);
    REQUIRE(w.machine.ready_count() == 1);
    REQUIRE(w.machine.stats().deadlines_passed == 1);
    w.machine.drop_stale(held, w.fx);
}

TEST_CASE("a lease that extends itself is renewed up to its limit") {
    world w{{.ack_timeout = 10s}};
    w.holder.auto_extend = 25s;
    w.send(1, time_point{});
    const auto held = w.take(time_point{});
    for (const auto at : {10s, 20s}) {
        w.machine.run_due(time_point{at}, w.fx);
        REQUIRE(w.machine.held_count() == 1);
    }
    REQUIRE(w.machine.next_due(time_point{20s}) == time_point{25s});
    w.machine.run_due(time_point{25s}, w.fx);
    REQUIRE(w.machine.held_count() == 0);
    w.machine.drop_stale(held, w.fx);
}
