// SPDX-License-Identifier: BSL-1.0
//
// Threads send to one queue, receive from it and settle in every way, and all of them record what
// they do and see in one history. No promise is broken, in whichever order they were held up.
#include <railmq/railmq.hpp>
#include <railmq/testing/history_check.hpp>
#include <railmq/testing/history_notices.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::delivery_order;
using railmq::random_engine;
using railmq::uniform_below;
using railmq::testing::event;
using railmq::testing::event_kind;
using railmq::testing::history;
using railmq::testing::history_rules;

namespace {

constexpr int producers = 2;
constexpr int consumers = 3;
constexpr std::uint64_t per_producer = 3'000;

class crowd {
public:
    crowd(std::uint64_t seed, delivery_order order)
        : seed_{seed}
        , broker_{{.observer = railmq::testing::record_notices(seen_)}}
        , work_{broker_.queue<std::uint64_t>(
              "work",
              {.ack_timeout = 20ms, // some leases do expire
               .retry = {.max_attempts = 3, .backoff = railmq::constant_backoff{.delay = 100us}},
               .order = order})} {}

    [[nodiscard]] std::vector<event> run() {
        std::vector<std::thread> threads;
        for (std::uint64_t n = 1; n <= producers; ++n) {
            threads.emplace_back([this, n] { send_all(n); });
        }
        for (std::uint64_t n = 1; n <= consumers; ++n) {
            threads.emplace_back([this, n] { work_until_empty(n); });
        }
        for (auto& t : threads) {
            t.join();
        }
        for (const auto& m : broker_.queue<std::uint64_t>("work.dead").peek(railmq::unlimited)) {
            record(event_kind::remaining, {.queue = "work.dead", .message = m.value, .id = m.id});
        }
        return seen_.events();
    }

private:
    void record(event_kind kind, event e) {
        e.at = clock_.now();
        seen_.record(kind, std::move(e));
    }
    void send_all(std::uint64_t who) {
        random_engine random{seed_ + who};
        auto producer = work_.producer();
        for (std::uint64_t n = 0; n < per_producer; ++n) {
            event e{.queue = "work", .message = 1 + n * producers + who};
            railmq::properties p;
            p.key = e.key = std::string(1, static_cast<char>('a' + uniform_below(random, 8)));
            record(event_kind::send_begun, e);
            e.id = producer.send(e.message, std::move(p)).id;
            record(event_kind::send_confirmed, e);
        }
        sending_.fetch_sub(1);
    }
    void work_until_empty(std::uint64_t who) {
        random_engine random{seed_ + 100 * who};
        auto consumer = work_.consumer({.prefetch = 4});
        std::vector<std::pair<event, railmq::delivery<std::uint64_t>>> held;
        while (true) {
            const bool was_last = sending_.load() == 0;
            auto d = consumer.receive(held.empty() ? 5ms : 0ms);
            if (d) {
                event e = railmq::testing::handed_out(*d);
                e.queue = "work";
                e.message = d->value();
                e.consumer = who;
                record(event_kind::handed_out, e);
                held.emplace_back(std::move(e), std::move(*d));
            } else if (held.empty() && was_last && work_.stats().settled_through == sent) {
                return;
            }
            if (uniform_below(random, 3'000) == 0) {
                (void)work_.drain(railmq::drain_for{30ms}); // what it holds expires
            }
            if (!held.empty() && (!d || uniform_below(random, 3) != 0)) {
                std::swap(held[uniform_below(random, held.size())], held.back());
                settle(held.back().first, held.back().second, uniform_below(random, 12));
                held.pop_back();
            }
        }
    }
    void settle(const event& about, railmq::delivery<std::uint64_t>& d, std::uint64_t how) {
        event e{
            .queue = "work",
            .message = about.message,
            .consumer = about.consumer,
            .id = about.id,
            .delivery_count = about.delivery_count};
        record(event_kind::settle_begun, e);
        bool done = false;
        switch (how) {
        case 0:
            e.kind = event_kind::nacked;
            e.ready_at = clock_.now() + 100us;
            done = d.nack();
            break;
        case 1:
            e.kind = event_kind::rejected;
            done = d.reject();
            break;
        case 2:
            e.kind = event_kind::released;
            done = d.release();
            break;
        default:
            e.kind = event_kind::acked;
            done = d.ack();
            break;
        }
        record(done ? e.kind : event_kind::refused, e);
    }

    static constexpr std::uint64_t sent = producers * per_producer;

    std::uint64_t seed_;
    history seen_{};
    railmq::threaded::clock clock_{};
    railmq::broker broker_;
    railmq::queue<std::uint64_t> work_;
    std::atomic<int> sending_{producers};
};

} // namespace

TEST_CASE("stress: what threads see of one queue breaks no promise") {
    for (const auto order :
         {delivery_order::fifo, delivery_order::by_key, delivery_order::strict}) {
        const auto events =
            crowd{railmq::test::seed(static_cast<std::uint64_t>(order)), order}.run();
        history_rules rules;
        rules.queues["work"] = {.max_attempts = 3, .order = order};
        rules.is_concurrent = true;
        rules.tolerance = 10s;
        const auto found = check(events, rules);
        INFO("order " << static_cast<int>(order) << "\n" << to_string(found));
        CHECK(found.empty());
    }
}
