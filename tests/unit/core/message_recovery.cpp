// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_recovery.hpp>
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::time_point;
using railmq::core::image_state;
using railmq::core::message_change;
using railmq::core::message_image;
using railmq::core::settlement;
using single = railmq::core::single_threaded;

namespace {

constexpr auto noon = time_point{12h};

/// A queue that lists its changes, and what somebody who keeps them would have.
struct world {
    explicit world(railmq::queue_options o = {.retry = {.backoff = railmq::constant_backoff{1s}}})
        : options{o}
        , machine{
              "q",
              railmq::core::payload_ops_of<int>::value,
              std::move(o),
              budget,
              1,
              false,
              true} {}

    std::uint64_t send(int value, time_point now, railmq::properties p = {}) {
        auto props = p == railmq::properties{} ? nullptr : std::make_unique<railmq::properties>(p);
        std::uint64_t id = 0;
        REQUIRE(machine.send(&value, props, now, fx, id) == railmq::errc{});
        values[id] = value;
        keep();
        return id;
    }
    [[nodiscard]] railmq::core::lease<single> take(time_point now) {
        if (holder.number == 0) {
            machine.open(holder, now, fx);
        }
        railmq::core::lease<single> l;
        if (machine.take(holder, now, fx, l)) {
            keep();
        }
        return l;
    }
    void settle(const railmq::core::lease<single>& l, settlement s, time_point now) {
        REQUIRE(machine.settle(l, std::move(s), now, fx));
        keep();
    }
    [[nodiscard]] int value_of(const railmq::core::lease<single>& l) {
        return *static_cast<const int*>(machine.store().payload({l.in, l.at}));
    }
    /// What the last call has changed is kept.
    void keep() {
        for (const message_change& c : fx.changes) {
            if (c.what == message_change::kind::gone) {
                kept.erase(c.public_id);
                continue;
            }
            const auto p = machine.store().locate(c.id);
            if (p) {
                const auto* d = machine.store().details_of(p);
                message_image image = machine.image_of(p);
                if (d != nullptr && d->props != nullptr) {
                    image.props = std::make_unique<railmq::properties>(*d->props);
                }
                kept.insert_or_assign(c.public_id, std::move(image));
            }
        }
        fx.changes.clear();
    }
    /// Another process goes on with what was kept.
    void restore_from(world& before, time_point now, bool was_closed) {
        std::vector<message_image*> all;
        for (auto& [id, image] : before.kept) {
            all.push_back(&image);
        }
        std::sort(all.begin(), all.end(), [](const auto* x, const auto* y) {
            return x->position < y->position;
        });
        std::uint64_t start = before.machine.ring().tail();
        for (const auto* m : all) {
            if (m->state == image_state::in_line && m->delivery_count == 0) {
                start = std::min(start, m->position);
            }
        }
        machine.start_at(start, before.machine.delayed_numbers());
        const auto is_in_line = [](const message_image& m) {
            return m.state == image_state::in_line && m.delivery_count == 0;
        };
        std::sort(all.begin(), all.end(), [&](const auto* x, const auto* y) {
            return std::pair{!is_in_line(*x), x->position} <
                   std::pair{!is_in_line(*y), y->position};
        });
        for (auto* m : all) {
            int value = before.values.at(m->id);
            values[m->id] = value;
            bool is_there = true;
            REQUIRE(machine.restore(*m, &value, is_there, is_in_line(*m), was_closed, now, fx));
            CHECK_FALSE(is_there);
        }
        machine.end_restore(before.machine.ring().tail());
        machine.serve(now, fx);
        keep();
    }

    railmq::queue_options options;
    railmq::core::memory_budget<single> budget{1U << 30U};
    railmq::core::effects<single> fx{false, true};
    railmq::core::lease_holder<single> holder{};
    railmq::core::queue_machine<single> machine;
    std::map<std::uint64_t, int> values{};
    std::map<std::uint64_t, message_image> kept{};
};

} // namespace

TEST_CASE("what was never handed out is in line again, with its ids and times") {
    world before;
    for (int i = 0; i < 600; ++i) { // more than a chunk
        before.send(i, noon + std::chrono::seconds{i});
    }
    for (int i = 0; i < 590; ++i) {
        before.settle(before.take(noon), {}, noon);
    }
    REQUIRE(before.kept.size() == 10);

    world after;
    after.restore_from(before, noon + 1h, false);
    CHECK(after.machine.ready_count() == 10);
    CHECK(after.machine.stats().accepted == 10);
    CHECK(after.send(1000, noon) == 600); // numbering goes on
    for (int i = 590; i < 600; ++i) {
        const auto l = after.take(noon + 1h);
        REQUIRE(l);
        CHECK(after.value_of(l) == i);
        CHECK(after.machine.store().public_id({l.in, l.at}) == static_cast<std::uint64_t>(i));
        CHECK(l.word.tag() == 1);
        CHECK(after.machine.store().enqueued_at({l.in, l.at}) == noon + std::chrono::seconds{i});
        after.settle(l, {}, noon + 1h);
    }
    CHECK(after.value_of(after.take(noon + 1h)) == 1000);
}

TEST_CASE("what was held when the process died has failed; after an orderly end it has not") {
    const bool was_closed = GENERATE(false, true);
    world before;
    before.send(1, noon);
    before.send(2, noon);
    (void)before.take(noon);

    world after;
    after.restore_from(before, noon + 1min, was_closed);
    const auto first = after.take(noon + 1min);
    REQUIRE(first);
    CHECK(after.value_of(first) == 1); // in its place, before the other
    CHECK(first.word.tag() == 2);
    const auto* d = after.machine.store().details_of({first.in, first.at});
    REQUIRE(d != nullptr);
    CHECK(d->failures.crashes == (was_closed ? 0 : 1));
    CHECK(d->failures.failures == (was_closed ? 0 : 1));
    CHECK(d->first_handed_out == noon);
    CHECK(after.value_of(after.take(noon + 1min)) == 2);
}

TEST_CASE("a message that ends the process each time ends as a dead letter") {
    auto world_before = std::make_unique<world>();
    world_before->send(1, noon);
    int lives = 0;
    for (; lives < 10 && !world_before->fx.has_dying; ++lives) {
        REQUIRE(world_before->take(noon));
        auto next = std::make_unique<world>();
        next->restore_from(*world_before, noon, false);
        world_before = std::move(next);
    }
    CHECK(lives == 3); // max_crashes
    const auto dying = world_before->machine.next_dying();
    REQUIRE(dying);
    CHECK(dying->reason == railmq::death_reason::max_crashes);
}

TEST_CASE("waits go on to their own moment") {
    world before;
    const auto delayed = before.send(1, noon, {.delay = 10s});
    before.send(2, noon);
    before.settle(before.take(noon), {settlement::kind::nack, 20s, {}}, noon);
    before.send(3, noon, {.time_to_live = 30s});

    world after;
    after.restore_from(before, noon + 5s, false);
    CHECK(after.machine.ready_count() == 1);
    CHECK(after.machine.next_due(noon + 5s) == noon + 10s);
    after.machine.run_due(noon + 9s, after.fx);
    CHECK(after.machine.ready_count() == 1);
    after.machine.run_due(noon + 10s, after.fx);
    CHECK(after.machine.ready_count() == 2);
    after.machine.run_due(noon + 20s, after.fx);
    REQUIRE(after.machine.ready_count() == 3);
    after.machine.run_due(noon + 30s, after.fx); // the third has expired
    after.keep();
    CHECK(after.fx.has_dying);
    const auto failed = after.take(noon + 30s);
    CHECK(after.value_of(failed) == 2); // returned: before the line
    CHECK(after.machine.store().details_of({failed.in, failed.at})->failures.failures == 1);
    const auto late = after.take(noon + 30s);
    CHECK(after.value_of(late) == 1);
    CHECK(after.machine.store().public_id({late.in, late.at}) == delayed);

    SECTION("and again, when it stands in line") {
        world third;
        third.restore_from(after, noon + 31s, true);
        CHECK(third.value_of(third.take(noon + 31s)) == 2);
        const auto l = third.take(noon + 31s);
        CHECK(third.value_of(l) == 1);
        CHECK(third.machine.store().public_id({l.in, l.at}) == delayed);
    }
}

TEST_CASE("a key that has a message out stays held for it") {
    world before{
        {.retry = {.backoff = railmq::constant_backoff{1min}},
         .order = railmq::delivery_order::by_key}};
    before.send(1, noon, {.key = "k"});
    before.send(2, noon, {.key = "k"});
    before.send(3, noon, {.key = "other"});
    before.settle(before.take(noon), {settlement::kind::nack, {}, {}}, noon);

    world after{{.ack_timeout = 1h, .order = railmq::delivery_order::by_key}};
    after.restore_from(before, noon + 1s, false);
    CHECK(after.value_of(after.take(noon + 1s)) == 3); // the key's next one must wait
    CHECK_FALSE(after.take(noon + 1s));
    after.machine.run_due(noon + 1min, after.fx);
    const auto first = after.take(noon + 1min);
    REQUIRE(first);
    CHECK(after.value_of(first) == 1);
    CHECK_FALSE(after.take(noon + 1min));
    after.settle(first, {}, noon + 1min);
    CHECK(after.value_of(after.take(noon + 1min)) == 2);
}

TEST_CASE("in strict order nothing goes before what was out") {
    world before{{.order = railmq::delivery_order::strict}};
    before.send(1, noon);
    before.send(2, noon);
    (void)before.take(noon);
    world after{{.order = railmq::delivery_order::strict}};
    after.restore_from(before, noon, true);
    const auto first = after.take(noon);
    REQUIRE(first);
    CHECK(after.value_of(first) == 1);
    CHECK_FALSE(after.take(noon));
    after.settle(first, {}, noon);
    CHECK(after.value_of(after.take(noon)) == 2);
}

TEST_CASE("front and back are kept, and positions are free of those that have left") {
    world before{{.requeue = railmq::requeue_position::back}};
    for (int i = 0; i < 6; ++i) {
        before.send(i, noon);
    }
    std::vector<railmq::core::lease<single>> taken;
    for (int i = 0; i < 4; ++i) {
        taken.push_back(before.take(noon));
    }
    before.settle(taken[0], {settlement::kind::nack, 0s, {}}, noon); // to the back
    before.settle(taken[1], {settlement::kind::release, {}, {}}, noon);
    before.settle(taken[2], {}, noon);
    before.settle(taken[3], {settlement::kind::reject, {}, "no"}, noon);

    world after{{.requeue = railmq::requeue_position::back}};
    after.restore_from(before, noon, false);
    std::vector<int> order;
    while (const auto l = after.take(noon)) {
        order.push_back(after.value_of(l));
    }
    CHECK(order == std::vector{1, 4, 5, 0});
    const auto dying = after.machine.next_dying();
    REQUIRE(dying);
    CHECK(dying->id == 3);
    CHECK(after.machine.store().details_of(dying->where)->dying_detail == "no");
}
