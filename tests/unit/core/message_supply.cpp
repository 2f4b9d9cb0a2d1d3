// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_supply.hpp>
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::core;
using railmq::errc;
using railmq::time_point;
using plain = single_threaded;

namespace {

/// Numbers from 0 on, so many as a test says there are.
struct numbers final : message_supply<plain> {
    explicit numbers(queue_machine<plain>& m)
        : machine{m} {}

    bool refill(time_point now, effects<plain>& fx) override {
        ++asked;
        if (next == last || is_over || machine.ready_count() >= window) {
            return false;
        }
        for (int n = 0; n != 4 && next != last; ++n) {
            alignas(int) std::byte space[sizeof(int)];
            auto* at = ::new (static_cast<void*>(space)) int(next);
            std::unique_ptr<railmq::properties> props;
            if (has_keys) {
                props = std::make_unique<railmq::properties>();
                props->key = "k";
            }
            REQUIRE(machine.adopt_supplied(at, props, sent_at, now, fx) == errc{});
            ++next;
        }
        return true;
    }
    [[nodiscard]] bool is_eager() const noexcept override { return eager; }
    bool listen() override {
        listens = next == last || machine.ready_count() >= window;
        return listens;
    }
    [[nodiscard]] std::uint64_t backlog() const override {
        return static_cast<std::uint64_t>(last - next);
    }
    [[nodiscard]] time_point oldest() const override {
        return next == last ? railmq::never : sent_at;
    }
    std::uint64_t skip_all() override {
        const auto n = backlog();
        next = last;
        return n;
    }
    void end() noexcept override { is_over = true; }

    queue_machine<plain>& machine;
    int next = 0;
    int last = 0; ///< The first that there is not.
    int asked = 0;
    std::uint64_t window = 1000;
    time_point sent_at{};
    bool has_keys = false;
    bool eager = false;
    bool listens = false;
    bool is_over = false;
};

struct bench {
    explicit bench(railmq::queue_options o = {})
        : machine{"q", payload_ops_of<int>::value, std::move(o), budget, 1}
        , supply{machine} {
        machine.draw_from(supply);
        machine.open(holder, now, fx);
    }
    ~bench() { finish(); }
    void finish() {
        for (const auto& e : fx.endings) {
            machine.end_payloads(e);
            machine.free_ended(e);
        }
        fx.endings.clear();
    }
    std::vector<lease<plain>> take(std::uint64_t max) {
        std::vector<lease<plain>> out;
        (void)machine.take_some(holder, max, now, fx, [&](const auto& first, std::uint32_t n) {
            for_each_in_row(first, n, [&](const auto& l) { out.push_back(l); });
        });
        return out;
    }
    [[nodiscard]] int value(const lease<plain>& l) {
        return *static_cast<const int*>(machine.store().payload({l.in, l.at}));
    }

    memory_budget<plain> budget{1 << 20};
    queue_machine<plain> machine;
    numbers supply;
    lease_holder<plain> holder{};
    effects<plain> fx{true};
    time_point now{1s};
};

} // namespace

TEST_CASE("a machine draws when nothing is in line, and no more than it needs") {
    bench b;
    b.supply.last = 10;
    CHECK(b.machine.backlog() == 10);
    CHECK(b.supply.asked == 0);
    const auto first = b.take(1);
    REQUIRE(first.size() == 1);
    CHECK(b.value(first[0]) == 0);
    CHECK(b.supply.asked == 1);
    CHECK(b.supply.next == 4);
    const auto more = b.take(3);
    CHECK(more.size() == 3);
    CHECK(b.supply.asked == 1); // they were there
    CHECK(b.take(100).size() == 6);
    CHECK(b.take(1).empty());
    const auto s = b.machine.stats();
    CHECK(s.accepted == 10);
    CHECK(s.in_flight == 10);
    CHECK(s.ready == 0);
}

TEST_CASE("what a queue has is what is in line and what is still to come") {
    bench b;
    b.supply.last = 10;
    b.supply.sent_at = time_point{500ms};
    auto s = b.machine.stats();
    CHECK(s.ready == 10);
    CHECK(s.accepted == 10);
    CHECK(s.oldest_ready_since == time_point{500ms});
    const auto held = b.take(1);
    s = b.machine.stats();
    CHECK(s.ready == 9);
    CHECK(s.accepted == 10);
    CHECK_FALSE(b.machine.is_idle(false, b.now));
}

TEST_CASE("a look draws as much as it wants to see") {
    bench b;
    b.supply.last = 100;
    b.machine.draw_up_to(10, b.now, b.fx);
    CHECK(b.supply.next == 12); // four at a time
    b.machine.draw_up_to(10, b.now, b.fx);
    CHECK(b.supply.next == 12);
    b.machine.draw_up_to(1000, b.now, b.fx);
    CHECK(b.machine.ready_count() == 100);
}

TEST_CASE("who waits has the supply listen, and is served from it") {
    bench b;
    receive_waiter<plain> w{};
    w.holder = &b.holder;
    REQUIRE(b.machine.wait_to_receive(w));
    CHECK(b.supply.listens);
    b.supply.last = 1;
    b.machine.serve(b.now, b.fx);
    REQUIRE(b.fx.completed.size() == 1);
    CHECK(b.value(w.one) == 0);
    // Something came in between: no wait.
    b.supply.last = 2;
    receive_waiter<plain> second{};
    second.holder = &b.holder;
    CHECK_FALSE(b.machine.wait_to_receive(second));
    CHECK(b.take(1).size() == 1);
}

TEST_CASE("a blocked key brings no more than the window") {
    bench b{railmq::queue_options{.order = railmq::delivery_order::by_key}};
    b.supply.has_keys = true;
    b.supply.last = 100;
    b.supply.window = 20;
    const auto first = b.take(1);
    REQUIRE(first.size() == 1);
    CHECK(b.take(1).empty());
    CHECK(b.supply.next < 30);
    // It waits, though there is more: nobody would get it.
    receive_waiter<plain> w{};
    w.holder = &b.holder;
    REQUIRE(b.machine.wait_to_receive(w));
    REQUIRE(b.machine.settle(first[0], {}, b.now, b.fx));
    REQUIRE(b.fx.completed.size() == 1);
    CHECK(b.value(w.one) == 1);
}

TEST_CASE("an eager supply is drawn at once, and what is over is over") {
    bench b{railmq::queue_options{.dead_letter = railmq::discard, .time_to_live = 10s}};
    b.supply.eager = true;
    b.supply.last = 6;
    b.supply.sent_at = time_point{1s};
    b.machine.draw_eagerly(b.now, b.fx);
    CHECK(b.supply.next == 6);
    CHECK(b.supply.listens);
    CHECK(b.machine.next_due(b.now) == time_point{11s});
    b.now = time_point{12s};
    b.machine.run_due(b.now, b.fx);
    b.supply.last = 8; // sent long ago
    b.machine.draw_eagerly(b.now, b.fx);
    CHECK(b.take(1).empty());
    std::uint64_t expired = 0;
    for (const auto& n : b.fx.notices) {
        expired += std::holds_alternative<railmq::notices::expired>(n) ? 1 : 0;
    }
    CHECK(expired == 8);
    CHECK(b.fx.has_dying);
}

TEST_CASE("what was skipped counts as dropped, with a notice") {
    bench b;
    b.machine.count_skipped(7, b.now, b.fx);
    const auto s = b.machine.stats();
    CHECK(s.accepted == 7);
    CHECK(s.dropped == 7);
    REQUIRE(std::holds_alternative<railmq::notices::skipped>(b.fx.notices.back()));
    CHECK(std::get<railmq::notices::skipped>(b.fx.notices.back()).count == 7);
}
