// SPDX-License-Identifier: BSL-1.0
//
// A simulated broker that is used in every way by chance, and everything that is seen of it in a
// history: no promise is broken.
#include <railmq/railmq.hpp>
#include <railmq/testing/history_check.hpp>
#include <railmq/testing/history_notices.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::delivery_order;
using railmq::duration;
using railmq::time_point;
using railmq::testing::check;
using railmq::testing::event;
using railmq::testing::event_kind;
using railmq::testing::history;
using railmq::testing::history_rules;

namespace {

constexpr duration ack_timeout = 30s;
constexpr duration backoff = 2s;

railmq::queue_options options(delivery_order order) {
    return {
        .ack_timeout = ack_timeout,
        .retry =
            {.max_attempts = 4,
             .max_stalls = 2,
             .backoff = railmq::constant_backoff{.delay = backoff}},
        .order = order};
}

history_rules rules(delivery_order order) {
    history_rules r;
    r.queues["work"] = {.max_attempts = 4, .max_stalls = 2, .order = order};
    return r;
}

/// Uses a broker by chance, and records what it does and sees.
class chance {
public:
    chance(std::uint64_t seed, delivery_order order)
        : sim_{seed}
        , broker_{sim_, {.observer = railmq::testing::record_notices(seen_)}}
        , work_{broker_.queue<std::uint64_t>("work", options(order))}
        , dead_{broker_.queue<std::uint64_t>("work.dead")}
        , producer_{work_.producer()} {
        for (std::size_t n = 0; n < 4; ++n) {
            open();
        }
    }

    void step() {
        switch (below(16)) {
        case 0:
        case 1:
        case 2:
        case 3: send(); break;
        case 4:
        case 5:
        case 6:
        case 7: receive(consumers_[below(consumers_.size())]); break;
        case 8:
        case 9:
        case 10:
        case 11: settle(); break;
        case 12: extend(); break;
        case 13: sim_.advance(std::chrono::milliseconds(below(8'000))); break;
        case 14: now_and_then(); break;
        case 15: sim_.advance(std::chrono::milliseconds(below(300))); break;
        }
    }
    /// Closes all consumers, works off what is left, and looks at the dead letters.
    history& finish() {
        for (auto& c : consumers_) {
            close(c);
        }
        held_.clear();
        sim_.advance(1h);
        consumer last{++consumer_numbers_, "work", work_.consumer()};
        while (receive(last)) { // what waits for its key cannot be peeked at
            settle(held_.back(), 7);
        }
        for (const std::string& name : broker_.names()) { // dead letters may have dead letters
            for (const auto& m : broker_.queue<std::uint64_t>(name).peek(railmq::unlimited)) {
                record(event_kind::remaining, {.queue = name, .message = m.value, .id = m.id});
            }
        }
        return seen_;
    }

private:
    struct consumer {
        std::uint64_t number = 0;
        std::string queue{};
        railmq::sim_consumer<std::uint64_t> handle{};
    };
    struct held {
        event about{};
        railmq::sim_delivery<std::uint64_t> handle{};
    };

    [[nodiscard]] std::uint64_t below(std::uint64_t n) {
        return railmq::uniform_below(sim_.random(), n);
    }
    void record(event_kind kind, event e) {
        e.at = sim_.now();
        seen_.record(kind, std::move(e));
    }

    void open() {
        auto& q = below(4) == 0 ? dead_ : work_;
        consumers_.push_back({++consumer_numbers_, q.name(), q.consumer({.prefetch = 5})});
    }
    void close(consumer& c) {
        record(event_kind::consumer_closed, {.consumer = c.number});
        c.handle.close();
    }
    void send() {
        railmq::properties p;
        event e{.queue = "work", .message = ++messages_};
        if (below(2) == 0) {
            p.key = e.key = std::string(1, static_cast<char>('a' + below(5)));
        }
        if (below(5) == 0) {
            p.delay = std::chrono::milliseconds(1 + below(10'000));
            e.ready_at = sim_.now() + p.delay;
        }
        if (below(5) == 0) {
            p.time_to_live = std::chrono::milliseconds(below(60'000));
            e.expires_at = sim_.now() + *p.time_to_live;
        }
        record(event_kind::send_begun, e);
        e.id = producer_.send(messages_, std::move(p)).id;
        record(event_kind::send_confirmed, e);
    }
    bool receive(consumer& c) {
        auto d = c.handle.try_receive();
        if (!d) {
            return false;
        }
        event e = railmq::testing::handed_out(*d);
        e.queue = c.queue;
        e.message = d->value();
        e.consumer = c.number;
        record(event_kind::handed_out, e);
        held_.push_back({std::move(e), std::move(*d)});
        return true;
    }
    /// What is held, or is not any more: also to see what is refused.
    void settle() {
        if (held_.empty()) {
            return;
        }
        std::swap(held_[below(held_.size())], held_.back());
        held h = std::move(held_.back());
        held_.pop_back();
        settle(h, below(8));
    }
    void settle(held& h, std::uint64_t how) {
        event e{
            .queue = h.about.queue,
            .message = h.about.message,
            .consumer = h.about.consumer,
            .id = h.about.id,
            .delivery_count = h.about.delivery_count};
        record(event_kind::settle_begun, e);
        bool done = false;
        switch (how) {
        case 0:
            e.kind = event_kind::nacked;
            e.ready_at = sim_.now() + (e.queue == "work" ? backoff : 0s); // elsewhere by chance
            done = h.handle.nack();
            break;
        case 1: {
            const auto wait = std::chrono::milliseconds(below(20'000));
            e.kind = event_kind::nacked;
            e.ready_at = sim_.now() + wait;
            done = h.handle.nack(wait);
            break;
        }
        case 2:
            e.kind = event_kind::rejected;
            done = h.handle.reject("by chance");
            break;
        case 3:
            e.kind = event_kind::released;
            done = h.handle.release();
            break;
        default:
            e.kind = event_kind::acked;
            done = h.handle.ack();
            break;
        }
        record(done ? e.kind : event_kind::refused, e);
    }
    void extend() {
        if (held_.empty()) {
            return;
        }
        held& h = held_[below(held_.size())];
        const auto time = std::chrono::milliseconds(below(60'000));
        if (h.handle.extend(time)) {
            event e = h.about;
            e.deadline = sim_.now() + time;
            record(event_kind::extended, std::move(e));
        }
    }
    void now_and_then() {
        switch (below(20)) {
        case 0:
            work_.purge();
            record(event_kind::purged, {.queue = "work"});
            break;
        case 1:
        case 2:
            close(consumers_.front());
            consumers_.erase(consumers_.begin());
            open();
            break;
        case 3:
            for (const auto& m : dead_.peek(railmq::unlimited)) { // its notices know but the ids
                record(event_kind::peeked, {.queue = "work.dead", .message = m.value, .id = m.id});
            }
            dead_.redrive(work_);
            break;
        case 4: sim_.advance(ack_timeout); break;
        default: break;
        }
    }

    history seen_{};
    railmq::simulation sim_;
    railmq::sim_broker broker_;
    railmq::sim_queue<std::uint64_t> work_;
    railmq::sim_queue<std::uint64_t> dead_;
    railmq::sim_producer<std::uint64_t> producer_;
    std::vector<consumer> consumers_{};
    std::vector<held> held_{};
    std::uint64_t consumer_numbers_ = 0;
    std::uint64_t messages_ = 0;
};

std::vector<event> run(std::uint64_t seed, delivery_order order, int steps) {
    chance c{seed, order};
    for (int n = 0; n < steps; ++n) {
        c.step();
    }
    return c.finish().events();
}

std::size_t count(const std::vector<event>& events, event_kind kind) {
    return static_cast<std::size_t>(std::count_if(
        events.begin(), events.end(), [kind](const event& e) { return e.kind == kind; }));
}

} // namespace

TEST_CASE("sim: a broker used by chance keeps every promise") {
    for (const auto order :
         {delivery_order::fifo, delivery_order::by_key, delivery_order::strict}) {
        for (std::uint64_t n = 0; n < 10; ++n) {
            const auto events = run(railmq::test::seed(n), order, 4'000);
            const auto found = check(events, rules(order));
            INFO("order " << static_cast<int>(order) << ", run " << n << "\n" << to_string(found));
            REQUIRE(found.empty());
        }
    }
}

TEST_CASE("sim: chance does everything that the history can tell of one broker's life") {
    const auto events = run(railmq::test::seed(0), delivery_order::fifo, 20'000);
    for (const auto kind :
         {event_kind::send_confirmed,
          event_kind::handed_out,
          event_kind::acked,
          event_kind::nacked,
          event_kind::rejected,
          event_kind::released,
          event_kind::refused,
          event_kind::extended,
          event_kind::lease_expired,
          event_kind::consumer_closed,
          event_kind::dead_lettered,
          event_kind::redriven,
          event_kind::purged,
          event_kind::remaining}) {
        INFO(to_string(kind));
        CHECK(count(events, kind) > 0);
    }
    CHECK(check(events, rules(delivery_order::fifo)).empty());
}

TEST_CASE("sim: a hand-out is recorded with all that the delivery says, also when it is late") {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto queue = broker.queue<std::uint64_t>("work", {.ack_timeout = ack_timeout});
    const auto id = queue.producer().send(7U, {.key = "k"}).id;
    auto consumer = queue.consumer();
    const auto d = consumer.try_receive();
    REQUIRE(d.has_value());
    event e = railmq::testing::handed_out(*d);
    CHECK(e.kind == event_kind::handed_out);
    CHECK(e.id == id);
    CHECK(e.key == "k");
    CHECK(e.delivery_count == 1);
    CHECK(e.failure_count == 0U);
    CHECK(e.redelivered == false);
    CHECK(e.deadline == time_point{ack_timeout});
    sim.advance(ack_timeout);
    e = railmq::testing::handed_out(*d);
    CHECK(e.deadline == time_point::min());
    CHECK(e.failure_count == 1U);
}
