// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_leases.hpp>
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
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

TEST_CASE("a message that was released remembers when it was first handed out") {
    world w{{.ack_timeout = 10s}};
    w.send(1, time_point{});
    const auto first = w.take(time_point{1s});
    CHECK(w.machine.first_handed_out({first.in, first.at}) == time_point{1s});
    REQUIRE(w.machine.settle(
        first, {railmq::core::settlement::kind::release, {}, {}}, time_point{2s}, w.fx));
    w.send(2, time_point{3s});
    const auto again = w.take(time_point{5s});
    REQUIRE(again.at == first.at);
    CHECK(w.machine.first_handed_out({again.in, again.at}) == time_point{1s});
    CHECK(w.machine.deadline_of(again) == time_point{15s});
}

TEST_CASE("one lease that lasts does not make a list of all that were made since") {
    world w{{.ack_timeout = 1h}};
    w.send(0, time_point{});
    const auto held = w.take(time_point{});
    time_point now{};
    std::size_t most = 0;
    for (int i = 1; i <= 20'000; ++i) {
        now += 1ms;
        w.send(i, now);
        const auto l = w.take(now);
        REQUIRE(w.machine.deadline_of(l) == now + 1h);
        REQUIRE(w.machine.settle(l, {}, now, w.fx));
        most = std::max(most, w.machine.store().times().size());
    }
    CHECK(most <= 1'025);
    CHECK(w.machine.deadline_of(held) == time_point{1h});
    CHECK(w.machine.next_due(now) == time_point{1h});
    w.machine.run_due(time_point{1h}, w.fx);
    CHECK_FALSE(w.machine.deadline_of(held));
    w.machine.drop_stale(held, w.fx);
}

TEST_CASE("leases that are held at many times each end at their own") {
    world w{{.ack_timeout = 1h}};
    std::vector<railmq::core::lease<single>> held;
    w.holder.prefetch.store(1'000'000);
    for (int i = 0; i < 5'000; ++i) {
        const time_point now{1ms * i};
        w.send(i, now);
        held.push_back(w.take(now));
        if (i % 3 != 0) { // leave some in between
            REQUIRE(w.machine.settle(held.back(), {}, now, w.fx));
        }
    }
    for (std::size_t i = 0; i < held.size(); i += 3) {
        const time_point due{1h + 1ms * i};
        REQUIRE(w.machine.deadline_of(held[i]) == due);
    }
    for (std::size_t i = 0; i < held.size(); i += 3) {
        const time_point due{1h + 1ms * i};
        REQUIRE(w.machine.next_due(due - 1ns) == due);
        w.machine.run_due(due, w.fx);
        REQUIRE_FALSE(w.machine.deadline_of(held[i]));
        w.machine.drop_stale(held[i], w.fx);
    }
    CHECK(w.machine.next_due(time_point{3h}) == railmq::never);
}
