// SPDX-License-Identifier: BSL-1.0
//
// Each branch of the queue's machine by itself. Whole lives, at random, are in
// tests/property/queue_machine.cpp.
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::death_reason;
using railmq::delivery_order;
using railmq::duration;
using railmq::errc;
using railmq::never;
using railmq::overflow_policy;
using railmq::properties;
using railmq::queue_options;
using railmq::requeue_position;
using railmq::time_point;
using railmq::core::settlement;
using railmq::core::slot_state;
using plain = railmq::core::single_threaded;
using machine_type = railmq::core::queue_machine<plain>;
using holder_type = railmq::core::lease_holder<plain>;
using lease_type = railmq::core::lease<plain>;
using effects_type = railmq::core::effects<plain>;
using kind = settlement::kind;
using values = std::vector<int>;

namespace {

/// A payload that counts what is alive and cannot be copied.
struct token {
    explicit token(int v) : value{v} { ++alive; }
    token(token&& other) noexcept : value{other.value} { ++alive; }
    token(const token&) = delete;
    token& operator=(const token&) = delete;
    token& operator=(token&&) = delete;
    ~token() { --alive; }
    int value;
    static inline int alive = 0;
};

int value_of(int n) { return n; }
int value_of(const token& t) { return t.value; }

/// A machine with a clock to turn, and what its skin does after each call: payloads end, dead
/// messages are listed and discarded, waiters are told.
template <class T = int>
class bench {
public:
    explicit bench(queue_options o = {}, bool listens = false)
        : listens_{listens}
        , machine{
              "q",
              railmq::core::payload_ops_of<T>::value,
              std::move(o),
              budget,
              7,
              listens} {}

    template <class F>
    auto act(F&& f) {
        effects_type fx{listens_};
        struct finish {
            bench& b;
            effects_type& fx;
            ~finish() { b.finish(fx); }
        } after{*this, fx};
        return f(fx);
    }

    errc try_send(int value, properties p = {}) {
        auto props = p == properties{} ? nullptr : std::make_unique<properties>(std::move(p));
        alignas(T) std::byte space[sizeof(T)];
        T* at = ::new (static_cast<void*>(space)) T(value);
        const errc e = act([&](auto& fx) { return machine.send(at, props, now, fx, id); });
        if (e != errc{}) {
            std::destroy_at(at);
        }
        return e;
    }
    void send(int value, properties p = {}) { REQUIRE(try_send(value, std::move(p)) == errc{}); }
    void send_all(int from, int to) {
        for (int n = from; n <= to; ++n) {
            send(n);
        }
    }
    std::unique_ptr<holder_type> consumer(std::size_t prefetch = 100) {
        auto h = std::make_unique<holder_type>();
        h->prefetch.store(prefetch);
        open(*h);
        return h;
    }
    void open(holder_type& h) {
        act([&](auto& fx) { machine.open(h, now, fx); });
    }
    std::optional<lease_type> take(holder_type& h) {
        lease_type l;
        if (act([&](auto& fx) { return machine.take(h, now, fx, l); })) {
            return l;
        }
        return std::nullopt;
    }
    lease_type must_take(holder_type& h, int expected) {
        const auto l = take(h);
        REQUIRE(l);
        REQUIRE(value(*l) == expected);
        return *l;
    }
    bool settle(
        const lease_type& l,
        kind what,
        std::optional<duration> wait = {},
        std::string detail = {}) {
        return act([&](auto& fx) {
            return machine.settle(l, {what, wait, std::move(detail)}, now, fx);
        });
    }
    bool ack(const lease_type& l) { return settle(l, kind::ack); }
    bool nack(const lease_type& l, std::optional<duration> wait = {}) {
        return settle(l, kind::nack, wait);
    }
    void drop_stale(const lease_type& l) {
        act([&](auto& fx) { machine.drop_stale(l, fx); });
    }
    void advance(duration d) {
        now += d;
        act([&](auto& fx) { machine.run_due(now, fx); });
    }
    void cancel(holder_type& h) {
        act([&](auto& fx) { machine.cancel(h, now, fx); });
    }
    void close(holder_type& h) {
        act([&](auto& fx) { machine.close(h, now, fx); });
        h.is_closed = true;
    }
    [[nodiscard]] int value(const lease_type& l) {
        return value_of(*static_cast<const T*>(machine.store().payload({l.in, l.at})));
    }
    [[nodiscard]] values shown() {
        values all;
        machine.browse([&](auto p) {
            all.push_back(value_of(*static_cast<const T*>(machine.store().payload(p))));
            return true;
        });
        return all;
    }
    /// Takes and acknowledges all that can be had.
    values drain(holder_type& h) {
        values all;
        while (const auto l = take(h)) {
            all.push_back(value(*l));
            CHECK(ack(*l));
        }
        return all;
    }
    [[nodiscard]] railmq::queue_stats stats() { return machine.stats(); }
    void check_books() {
        const auto s = stats();
        CHECK(
            s.accepted == s.ready + s.delayed + s.in_flight + s.acked + s.dead_lettered +
                              s.redriven + s.expired + s.dropped + s.purged);
    }

private:
    void finish(effects_type& fx) {
        for (const auto& e : fx.endings) {
            machine.end_payloads(e);
            machine.free_ended(e);
        }
        for (auto& s : fx.stops) {
            s.request_stop();
        }
        notices.insert(notices.end(), fx.notices.begin(), fx.notices.end());
        if (fx.has_dying && discards) {
            while (const auto d = machine.next_dying()) {
                deaths.emplace_back(
                    value_of(*static_cast<const T*>(machine.store().payload(d->where))),
                    d->reason,
                    d->where.at->details()->dying_detail);
                effects_type again{listens_};
                machine.finish_death(*d, machine_type::fate::discarded, true, now, again);
                finish(again);
            }
        }
        for (railmq::core::waiter* w : fx.completed) {
            w->complete(w);
        }
    }

    bool listens_;

public:
    time_point now{1s};
    std::uint64_t id = 0;
    bool discards = true;
    std::vector<std::tuple<int, death_reason, std::string>> deaths{};
    std::vector<railmq::notice> notices{};
    railmq::core::memory_budget<plain> budget{std::numeric_limits<std::size_t>::max()};
    machine_type machine;
};

using death_list = std::vector<std::tuple<int, death_reason, std::string>>;

/// A receive that waits, and what it was told.
struct receiver : railmq::core::receive_waiter<plain> {
    explicit receiver(holder_type& h) {
        holder = &h;
        complete = [](railmq::core::waiter* w) noexcept {
            static_cast<receiver*>(static_cast<railmq::core::receive_waiter<plain>*>(w))->done =
                true;
        };
    }
    bool done = false;
};

struct sender : railmq::core::send_waiter {
    explicit sender(int v) : value{v} {
        payload = &value;
        complete = [](railmq::core::waiter* w) noexcept {
            static_cast<sender*>(static_cast<railmq::core::send_waiter*>(w))->done = true;
        };
    }
    int value;
    bool done = false;
};

struct idler : railmq::core::idle_waiter {
    idler() {
        complete = [](railmq::core::waiter* w) noexcept {
            static_cast<idler*>(static_cast<railmq::core::idle_waiter*>(w))->done = true;
        };
    }
    bool done = false;
};

/// Failures come back at once, or after `wait`.
queue_options retrying(duration wait = 0ns, std::uint32_t attempts = 0) {
    queue_options o;
    o.retry.max_attempts = attempts;
    o.retry.backoff = railmq::constant_backoff{.delay = wait};
    return o;
}

} // namespace

// --- The common life ---

TEST_CASE("machine: messages are handed out in the order of sending, and acknowledged") {
    bench b;
    b.send_all(1, 3);
    CHECK(b.id == 2);
    auto h = b.consumer();
    CHECK(b.shown() == values{1, 2, 3});
    const lease_type l = b.must_take(*h, 1);
    CHECK(l.word.tag() == 1);
    CHECK(b.stats().in_flight == 1);
    CHECK(b.ack(l));
    CHECK_FALSE(b.ack(l)); // once
    CHECK(b.stats().stale_settlements == 1);
    CHECK(b.drain(*h) == values{2, 3});
    CHECK(b.stats().acked == 3);
    CHECK(b.stats().settled_through == 3);
    b.check_books();
}

TEST_CASE("machine: a consumer gets no more than its prefetch") {
    bench b;
    b.send_all(1, 3);
    auto h = b.consumer(2);
    const lease_type first = b.must_take(*h, 1);
    b.must_take(*h, 2);
    CHECK_FALSE(b.take(*h));
    CHECK(b.ack(first));
    b.must_take(*h, 3);
}

TEST_CASE("machine: looking for a message leaves the fast lane open") {
    bench b;
    auto h = b.consumer();
    CHECK_FALSE(b.take(*h));
    CHECK_FALSE(b.machine.ring().next_gate());
    b.send(1);
    CHECK(b.take(*h));
    CHECK_FALSE(b.machine.ring().next_gate());
    (void)b.stats();
    (void)b.shown();
    CHECK_FALSE(b.machine.ring().next_gate());
}

// --- Returns ---

TEST_CASE("machine: a failed message goes where the policy says") {
    const auto where = GENERATE(
        requeue_position::original, requeue_position::front, requeue_position::back);
    queue_options o = retrying();
    o.requeue = where;
    bench b{o};
    b.send_all(1, 4);
    auto h = b.consumer();
    const lease_type first = b.must_take(*h, 1);
    const lease_type second = b.must_take(*h, 2);
    CHECK(b.nack(second));
    CHECK(b.nack(first));
    const values expected = where == requeue_position::original ? values{1, 2, 3, 4}
                            : where == requeue_position::front  ? values{1, 2, 3, 4}
                                                                : values{3, 4, 2, 1};
    CHECK(b.shown() == expected);
    CHECK(b.drain(*h) == expected);
    CHECK(b.stats().failed == 2);
    CHECK(b.stats().redelivered == 2);
}

TEST_CASE("machine: of several put to the front, the latest is first") {
    queue_options o = retrying();
    o.requeue = requeue_position::front;
    bench b{o};
    b.send_all(1, 3);
    auto h = b.consumer();
    const lease_type first = b.must_take(*h, 1);
    const lease_type second = b.must_take(*h, 2);
    CHECK(b.nack(first));
    CHECK(b.nack(second));
    CHECK(b.drain(*h) == values{2, 1, 3});
}

TEST_CASE("machine: one put to the back comes even where the line before it has died") {
    queue_options o = retrying();
    o.requeue = requeue_position::back;
    bench b{o};
    b.send(1);
    auto h = b.consumer();
    const lease_type l = b.must_take(*h, 1);
    b.send(2, {.time_to_live = 1ms});
    CHECK(b.nack(l));
    b.advance(1ms);
    CHECK(b.drain(*h) == values{1});
}

TEST_CASE("machine: a release goes to its original place and is no failure") {
    queue_options o = retrying();
    o.requeue = requeue_position::back;
    bench b{o};
    b.send_all(1, 3);
    auto h = b.consumer();
    const lease_type l = b.must_take(*h, 1);
    CHECK(b.settle(l, kind::release));
    CHECK(b.shown() == values{1, 2, 3});
    const lease_type again = b.must_take(*h, 1);
    CHECK(again.word.tag() == 2);
    CHECK(b.stats().released == 1);
    CHECK(b.stats().failed == 0);
    CHECK(b.ack(again));
}

TEST_CASE("machine: a failure waits for the backoff, and keeps its place") {
    bench b{retrying(5s)};
    b.send_all(1, 2);
    auto h = b.consumer();
    CHECK(b.nack(b.must_take(*h, 1)));
    CHECK(b.stats().delayed == 1);
    CHECK(b.machine.next_due(b.now) == b.now + 5s);
    b.advance(5s - 1ns);
    CHECK(b.shown() == values{2});
    b.advance(1ns);
    CHECK(b.shown() == values{1, 2});
}

TEST_CASE("machine: each new deadline is told once, without a look at the old ones") {
    bench b{retrying(5s)};
    b.send_all(1, 3);
    auto h = b.consumer();
    CHECK(b.machine.take_new_due(b.now) == never);
    const auto first = b.must_take(*h, 1);
    const time_point deadline = b.now + b.machine.options().ack_timeout;
    CHECK(b.machine.take_new_due(b.now) == deadline);
    CHECK(b.machine.take_new_due(b.now) == never);
    b.advance(1s);
    const auto second = b.must_take(*h, 2);
    CHECK(b.machine.take_new_due(b.now) == deadline + 1s); // the first is earlier, and known
    CHECK(b.machine.next_due(b.now) == deadline);
    CHECK(b.ack(first));
    CHECK(b.nack(second)); // timers are always told
    CHECK(b.machine.take_new_due(b.now) == b.now + 5s);
    CHECK(b.machine.take_new_due(b.now) == b.now + 5s);
}

TEST_CASE("machine: places are added for the fast path while there is memory") {
    bench b;
    CHECK(b.machine.add_places());
    const std::size_t one = b.machine.ring().memory_bytes();
    CHECK(b.machine.add_places()); // there are some
    CHECK(b.machine.ring().memory_bytes() == one);
}

TEST_CASE("machine: the consumer's own wait replaces the backoff, and is never negative") {
    bench b{retrying(5s)};
    b.send(1);
    auto h = b.consumer();
    CHECK(b.nack(b.must_take(*h, 1), 1s));
    b.advance(1s);
    CHECK(b.nack(b.must_take(*h, 1), -1s));
    CHECK(b.nack(b.must_take(*h, 1), duration::max()));
    CHECK(b.machine.next_due(b.now) == never);
    CHECK(b.stats().delayed == 1);
    CHECK(b.stats().failed == 3);
}

TEST_CASE("machine: the last attempt is the last") {
    bench b{retrying(0ns, 3)};
    b.send(1);
    auto h = b.consumer();
    CHECK(b.nack(b.must_take(*h, 1)));
    CHECK(b.settle(b.must_take(*h, 1), kind::threw, {}, "first"));
    CHECK(b.settle(b.must_take(*h, 1), kind::release)); // costs no attempt
    CHECK(b.settle(b.must_take(*h, 1), kind::threw, {}, "second"));
    CHECK(b.deaths == death_list{{1, death_reason::max_attempts, "second"}});
    CHECK_FALSE(b.take(*h));
    CHECK(b.stats().dropped == 1);
    b.check_books();
}

TEST_CASE("machine: stalls and time have limits of their own") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    SECTION("stalls") {
        o.retry.max_stalls = 2;
        bench b{o};
        b.send(1);
        auto h = b.consumer();
        b.must_take(*h, 1);
        b.advance(10s);
        CHECK(b.nack(b.must_take(*h, 1)));
        b.must_take(*h, 1);
        b.advance(10s);
        CHECK(b.deaths == death_list{{1, death_reason::max_stalls, ""}});
    }
    SECTION("time since the first hand-out") {
        o.retry.max_elapsed = 15s;
        bench b{o};
        b.send(1);
        auto h = b.consumer();
        b.must_take(*h, 1);
        b.advance(10s);
        const lease_type l = b.must_take(*h, 1);
        b.advance(5s - 1ns);
        CHECK(b.nack(l));
        const lease_type last = b.must_take(*h, 1);
        b.advance(1ns);
        CHECK(b.nack(last));
        CHECK(b.deaths == death_list{{1, death_reason::max_elapsed, ""}});
    }
}

TEST_CASE("machine: a rejected message dies at once, with the reason") {
    bench b;
    b.send_all(1, 2);
    auto h = b.consumer();
    CHECK(b.settle(b.must_take(*h, 1), kind::reject, {}, "no good"));
    CHECK(b.settle(b.must_take(*h, 2), kind::permanent, {}, "never"));
    CHECK(
        b.deaths == death_list{
                        {1, death_reason::rejected, "no good"},
                        {2, death_reason::permanent_error, "never"}});
    CHECK(b.stats().dropped == 2);
    CHECK(b.stats().failed == 0);
    b.check_books();
}

// --- Deadlines ---

TEST_CASE("machine: a lease ends at its deadline, not before") {
    queue_options o = retrying();
    o.ack_timeout = 30s;
    bench b{o};
    b.send_all(1, 2);
    auto h = b.consumer();
    const lease_type l = b.must_take(*h, 1);
    CHECK(b.machine.deadline_of(l) == b.now + 30s);
    CHECK(b.machine.next_due(b.now) == b.now + 30s);
    b.advance(30s - 1ns);
    CHECK(b.stats().in_flight == 1);
    b.advance(1ns);
    CHECK(b.stats().in_flight == 0);
    CHECK(b.stats().deadlines_passed == 1);
    CHECK(b.machine.deadline_of(l) == std::nullopt);
    CHECK(b.shown() == values{1, 2}); // at once, and where it was
    CHECK(h->stale_handles == 1);
    CHECK(b.value(l) == 1); // the old handle may still read it
}

TEST_CASE("machine: a late ack counts as long as nobody else has the message") {
    queue_options o = retrying(5s);
    o.ack_timeout = 1s;
    bench b{o};
    auto h = b.consumer();
    SECTION("ready again") {
        b.send(1);
        const lease_type l = b.must_take(*h, 1);
        b.advance(1s);
        CHECK(b.ack(l));
        CHECK(b.stats().acked == 1);
        CHECK(b.stats().ready == 0);
        CHECK(h->is_unreferenced());
        CHECK_FALSE(b.take(*h));
    }
    SECTION("a late reject too") {
        b.send(1);
        const lease_type l = b.must_take(*h, 1);
        b.advance(1s);
        CHECK(b.settle(l, kind::reject, {}, "late"));
        CHECK(b.deaths == death_list{{1, death_reason::rejected, "late"}});
    }
    SECTION("but no late nack or release: it is back already") {
        b.send(1);
        const lease_type l = b.must_take(*h, 1);
        b.advance(1s);
        CHECK_FALSE(b.nack(l));
        CHECK_FALSE(b.settle(l, kind::release));
        CHECK(b.stats().ready == 1);
        CHECK(b.stats().failed == 1);
        b.drop_stale(l);
    }
    SECTION("handed out again: stale, and nothing changes") {
        b.send(1);
        const lease_type l = b.must_take(*h, 1);
        b.advance(1s);
        const lease_type other = b.must_take(*h, 1);
        const auto before = b.stats();
        CHECK_FALSE(b.ack(l));
        CHECK_FALSE(b.settle(l, kind::reject));
        CHECK(b.stats().stale_settlements == before.stale_settlements + 2);
        CHECK(b.stats().in_flight == 1);
        CHECK(b.ack(other));
        CHECK(b.value(l) == 1); // gone from the queue, and readable while its handle lives
        b.drop_stale(l);
        CHECK(h->is_unreferenced());
    }
    SECTION("a closed consumer's word counts no more") {
        b.send(1);
        const lease_type l = b.must_take(*h, 1);
        b.close(*h);
        CHECK_FALSE(b.ack(l));
        CHECK(b.stats().ready == 1);
        b.drop_stale(l);
    }
    b.check_books();
}

TEST_CASE("machine: extend moves the deadline, either way") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    bench b{o};
    b.send_all(1, 2);
    auto h = b.consumer();
    const lease_type longer = b.must_take(*h, 1);
    const lease_type shorter = b.must_take(*h, 2);
    const auto extend = [&](const lease_type& l, duration d) {
        return b.act([&](auto& fx) { return b.machine.extend(l, b.now + d, b.now, fx); });
    };
    CHECK(extend(longer, 60s));
    CHECK(extend(shorter, 1s));
    CHECK(b.machine.deadline_of(longer) == b.now + 60s);
    b.advance(1s);
    CHECK(b.shown() == values{2});
    b.advance(58s);
    CHECK(b.machine.deadline_of(longer));
    b.advance(1s);
    CHECK(b.shown() == values{1, 2});
    CHECK_FALSE(extend(longer, 60s));
    CHECK(b.stats().stale_settlements == 1);
}

TEST_CASE("machine: auto_extend renews up to its own limit from the hand-out") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    bench b{o};
    b.send(1);
    holder_type h;
    h.auto_extend = 35s;
    b.open(h);
    const time_point start = b.now;
    const lease_type l = b.must_take(h, 1);
    for (const duration expected : {20s, 30s, 35s}) {
        b.now = *b.machine.deadline_of(l);
        b.advance(0s);
        CHECK(b.machine.deadline_of(l) == start + expected);
    }
    b.advance(4s);
    CHECK(b.machine.deadline_of(l));
    b.advance(1s);
    CHECK_FALSE(b.machine.deadline_of(l));
    CHECK(b.stats().deadlines_passed == 1);
    // The next hand-out has all of it again.
    const lease_type again = b.must_take(h, 1);
    b.advance(10s);
    CHECK(b.machine.deadline_of(again));
}

TEST_CASE("machine: what is due happens in order of time, and each once, after a long sleep") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    o.requeue = requeue_position::back;
    bench b{o};
    b.send_all(1, 3);
    auto h = b.consumer();
    for (int n = 1; n <= 3; ++n) {
        b.must_take(*h, n);
        b.advance(1s);
    }
    b.advance(24h);
    CHECK(b.shown() == values{1, 2, 3});
    CHECK(b.stats().deadlines_passed == 3);
}

TEST_CASE("machine: first_handed_out survives returns") {
    bench b{retrying()};
    b.send(1);
    auto h = b.consumer();
    const time_point start = b.now;
    lease_type l = b.must_take(*h, 1);
    CHECK(b.machine.first_handed_out({l.in, l.at}) == start);
    b.advance(2s);
    CHECK(b.nack(l));
    b.advance(2s);
    l = b.must_take(*h, 1);
    CHECK(b.machine.first_handed_out({l.in, l.at}) == start);
}

TEST_CASE("machine: a stop token asks when the lease ends, however it ends") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    bench b{o};
    b.send_all(1, 4);
    auto h = b.consumer();
    const lease_type acked = b.must_take(*h, 1);
    const lease_type expired = b.must_take(*h, 2);
    const lease_type closed = b.must_take(*h, 3);
    const auto one = b.machine.stop_token(acked);
    const auto same = b.machine.stop_token(acked);
    const auto two = b.machine.stop_token(expired);
    CHECK(one == same);
    CHECK_FALSE(one.stop_requested());
    CHECK(b.ack(acked));
    CHECK(one.stop_requested());
    CHECK(b.machine.stop_token(acked).stop_requested()); // from the start
    CHECK_FALSE(two.stop_requested());
    b.advance(10s);
    CHECK(two.stop_requested());
    CHECK(b.machine.stop_token(closed).stop_requested());
    const lease_type last = b.must_take(*h, 2);
    const auto three = b.machine.stop_token(last);
    b.act([&](auto& fx) { return b.machine.close_queue(errc::closed, true, b.now, fx); });
    CHECK(three.stop_requested());
}

// --- Time to live and delays ---

TEST_CASE("machine: a message expires at its time, wherever it is in the queue") {
    bench b;
    b.send(1);
    b.send(2, {.time_to_live = 2s});
    b.send(3, {.time_to_live = 1s});
    b.send(4);
    CHECK(b.machine.next_due(b.now) == b.now + 1s);
    b.advance(1s);
    CHECK(b.shown() == values{1, 2, 4});
    b.advance(1s - 1ns);
    CHECK(b.shown() == values{1, 2, 4});
    b.advance(1ns);
    CHECK(b.shown() == values{1, 4});
    CHECK(
        b.deaths == death_list{{3, death_reason::expired, ""}, {2, death_reason::expired, ""}});
    CHECK(b.stats().expired == 2);
    b.check_books();
}

TEST_CASE("machine: the shorter of the queue's and the message's time to live counts") {
    queue_options o;
    o.time_to_live = 10s;
    bench b{o};
    b.send(1);
    b.send(2, {.time_to_live = 5s});
    b.send(3, {.time_to_live = 20s});
    b.advance(5s);
    CHECK(b.shown() == values{1, 3});
    b.advance(5s);
    CHECK(b.shown().empty());
}

TEST_CASE("machine: a held message does not expire, but does when it comes back") {
    bench b{retrying(5s)};
    auto h = b.consumer();
    b.send(1, {.time_to_live = 1s});
    b.send(2, {.time_to_live = 1s});
    b.send(3, {.time_to_live = 1s});
    const lease_type acked = b.must_take(*h, 1);
    const lease_type released = b.must_take(*h, 2);
    const lease_type failed = b.must_take(*h, 3);
    b.advance(2s);
    CHECK(b.deaths.empty());
    CHECK(b.ack(acked));
    CHECK(b.settle(released, kind::release));
    CHECK(b.nack(failed));
    CHECK(
        b.deaths == death_list{{2, death_reason::expired, ""}, {3, death_reason::expired, ""}});
    CHECK(b.stats().expired == 2);
    b.check_books();
}

TEST_CASE("machine: one that waits for its backoff expires as well") {
    bench b{retrying(10s)};
    auto h = b.consumer();
    b.send(1, {.time_to_live = 3s});
    CHECK(b.nack(b.must_take(*h, 1)));
    b.advance(3s);
    CHECK(b.deaths == death_list{{1, death_reason::expired, ""}});
    CHECK(b.stats().delayed == 0);
}

TEST_CASE("machine: a delayed message is sent when its time has come, behind what is there") {
    bench b;
    auto h = b.consumer();
    b.send(1, {.delay = 10s});
    const std::uint64_t id = b.id;
    CHECK(id >= railmq::core::message_store<plain>::aside_ids);
    b.send(2, {.delay = 5s});
    b.send(3);
    CHECK(b.stats().delayed == 2);
    CHECK(b.stats().ready == 1);
    CHECK(b.shown() == values{3});
    b.advance(5s);
    CHECK(b.shown() == values{3, 2});
    b.advance(5s - 1ns);
    CHECK(b.shown() == values{3, 2});
    b.advance(1ns);
    CHECK(b.shown() == values{3, 2, 1});
    CHECK(b.stats().accepted == 3);
    b.must_take(*h, 3);
    b.must_take(*h, 2);
    const lease_type l = b.must_take(*h, 1);
    CHECK(b.machine.store().public_id({l.in, l.at}) == id);
    b.check_books();
}

TEST_CASE("machine: a delayed message may expire before it is due, and after") {
    bench b;
    b.send(1, {.time_to_live = 5s, .delay = 10s});
    b.send(2, {.time_to_live = 15s, .delay = 10s});
    b.advance(5s);
    CHECK(b.deaths == death_list{{1, death_reason::expired, ""}});
    b.advance(5s);
    CHECK(b.shown() == values{2});
    b.advance(5s);
    CHECK(b.shown().empty());
    b.check_books();
}

// --- Order ---

TEST_CASE("machine: by key, one at a time of each key") {
    queue_options o = retrying();
    o.order = delivery_order::by_key;
    bench b{o};
    auto h = b.consumer();
    b.send(1, {.key = "a"});
    b.send(2, {.key = "a"});
    b.send(3, {.key = "b"});
    b.send(4);
    b.send(5, {.key = "a"});
    const lease_type first = b.must_take(*h, 1);
    const lease_type other = b.must_take(*h, 3);
    const lease_type none = b.must_take(*h, 4);
    CHECK_FALSE(b.take(*h));
    CHECK(b.stats().ready == 2);
    CHECK(b.nack(first)); // it holds its key
    CHECK(b.ack(b.must_take(*h, 1)));
    CHECK(b.ack(b.must_take(*h, 2)));
    const lease_type last = b.must_take(*h, 5);
    for (const auto& l : {other, none, last}) {
        CHECK(b.ack(l));
    }
    b.check_books();
}

TEST_CASE("machine: a key is passed on by every way of leaving") {
    queue_options o = retrying();
    o.order = delivery_order::by_key;
    bench b{o};
    auto h = b.consumer();
    const auto way = GENERATE(0, 1, 2, 3);
    b.send(1, {.key = "a", .time_to_live = 10s});
    b.send(2, {.key = "a"});
    b.send(3, {.key = "a"});
    const lease_type l = b.must_take(*h, 1);
    CHECK_FALSE(b.take(*h));
    if (way == 0) {
        CHECK(b.settle(l, kind::reject));
    } else if (way == 1) { // expires while it waits
        CHECK(b.nack(l, 20s));
        CHECK_FALSE(b.take(*h));
        b.advance(10s);
    } else if (way == 2) {
        CHECK(b.act([&](auto& fx) { return b.machine.begin_take(l, b.now, fx); }));
        b.act([&](auto& fx) { b.machine.finish_take(l, b.now, fx); });
    } else {
        CHECK(b.nack(l));
        CHECK(b.act([&](auto& fx) { return b.machine.purge(b.now, fx); }) == 3);
        b.send(2, {.key = "a"});
        b.send(3, {.key = "a"});
    }
    const lease_type second = b.must_take(*h, 2);
    CHECK_FALSE(b.take(*h));
    CHECK(b.ack(second));
    CHECK(b.ack(b.must_take(*h, 3)));
    b.check_books();
}

TEST_CASE("machine: the lease of one that waited for its key ends too") {
    queue_options o = retrying();
    o.order = delivery_order::by_key;
    o.ack_timeout = 10s;
    bench b{o};
    auto h = b.consumer();
    b.send(1, {.key = "a"});
    b.send(2, {.key = "a"});
    const lease_type first = b.must_take(*h, 1);
    CHECK_FALSE(b.take(*h));
    b.advance(1s);
    CHECK(b.ack(first));
    const lease_type second = b.must_take(*h, 2);
    // Settling it passes the key on, so it must not happen on the fast path.
    CHECK(second.word.is_slow());
    b.advance(10s);
    CHECK_FALSE(b.machine.deadline_of(second));
    CHECK(b.stats().deadlines_passed == 1);
}

TEST_CASE("machine: parked messages expire, and are purged") {
    queue_options o;
    o.order = delivery_order::by_key;
    bench b{o};
    auto h = b.consumer();
    b.send(1, {.key = "a"});
    b.send(2, {.key = "a", .time_to_live = 1s});
    b.send(3, {.key = "a"});
    b.send(4, {.key = "a"});
    const lease_type l = b.must_take(*h, 1);
    CHECK_FALSE(b.take(*h));
    b.advance(1s);
    CHECK(b.deaths == death_list{{2, death_reason::expired, ""}});
    CHECK(b.stats().ready == 2);
    CHECK(b.act([&](auto& fx) { return b.machine.purge(b.now, fx); }) == 2);
    CHECK(b.stats().ready == 0);
    CHECK(b.ack(l));
    b.send(5, {.key = "a"});
    CHECK(b.drain(*h) == values{5});
    b.check_books();
}

TEST_CASE("machine: strict, one at a time altogether") {
    const auto where = GENERATE(
        requeue_position::original, requeue_position::front, requeue_position::back);
    queue_options o = retrying(5s);
    o.order = delivery_order::strict;
    o.requeue = where;
    bench b{o};
    auto h = b.consumer();
    b.send_all(1, 3);
    const lease_type l = b.must_take(*h, 1);
    CHECK_FALSE(b.take(*h));
    CHECK(b.nack(l));
    CHECK_FALSE(b.take(*h)); // a failed one holds the queue while it waits
    b.advance(5s);
    CHECK(b.ack(b.must_take(*h, 1))); // and cannot be put behind those it holds up
    CHECK(b.settle(b.must_take(*h, 2), kind::reject));
    CHECK(b.drain(*h) == values{3});
}

// --- Limits ---

TEST_CASE("machine: a full queue refuses, and counts what it refused") {
    queue_options o = retrying();
    o.max_length = 2;
    const auto policy = GENERATE(overflow_policy::wait, overflow_policy::reject);
    o.overflow = policy;
    bench b{o};
    auto h = b.consumer();
    b.send_all(1, 2);
    CHECK(b.try_send(3) == errc::queue_full);
    CHECK(b.stats().accepted == 2);
    // Who waits has not been refused yet.
    CHECK(b.stats().refused == (policy == overflow_policy::reject ? 1 : 0));
    const lease_type l = b.must_take(*h, 1); // held ones do not count
    b.send(3);
    CHECK(b.nack(l)); // returning never fails
    CHECK(b.stats().ready == 3);
    CHECK(b.try_send(4) == errc::queue_full);
    b.send(5, {.delay = 1s}); // nor do delayed ones count
    b.advance(1s);
    CHECK(b.stats().ready == 4);
    CHECK(b.drain(*h) == values{1, 2, 3, 5});
    b.send(6);
}

TEST_CASE("machine: a limit of bytes") {
    queue_options o;
    o.max_bytes = 3 * sizeof(int);
    o.overflow = overflow_policy::reject;
    bench b{o};
    auto h = b.consumer();
    b.send_all(1, 3);
    CHECK(b.try_send(4) == errc::queue_full);
    const lease_type l = b.must_take(*h, 1);
    b.send(4);
    CHECK(b.ack(l));
    CHECK(b.try_send(5) == errc::queue_full);
    CHECK(b.act([&](auto& fx) { return b.machine.purge(b.now, fx); }) == 3);
    b.send_all(5, 7);
    CHECK(b.try_send(8) == errc::queue_full);

    queue_options tiny;
    tiny.max_bytes = sizeof(int) - 1;
    bench t{tiny};
    CHECK(t.try_send(1) == errc::message_too_large);
    CHECK(t.stats().refused == 1);
    CHECK(t.stats().accepted == 0);
}

TEST_CASE("machine: drop_oldest makes room at the head") {
    queue_options o = retrying();
    o.max_length = 2;
    o.overflow = overflow_policy::drop_oldest;
    bench b{o};
    auto h = b.consumer();
    b.send_all(1, 4);
    CHECK(b.shown() == values{3, 4});
    CHECK(
        b.deaths == death_list{
                        {1, death_reason::dropped_oldest, ""},
                        {2, death_reason::dropped_oldest, ""}});
    const lease_type l = b.must_take(*h, 3);
    b.send(5);
    CHECK(b.nack(l)); // comes back as the oldest, and one is too many
    CHECK(b.shown() == values{4, 5});
    CHECK(std::get<0>(b.deaths.back()) == 3);
    CHECK(b.stats().dropped == 3);
    b.check_books();
}

TEST_CASE("machine: at the memory limit nothing is stored, but what exists is kept") {
    bench b;
    b.send(1);
    const std::size_t chunk = b.budget.used();
    railmq::core::memory_budget<plain> small{chunk};
    machine_type m{"q", railmq::core::payload_ops_of<int>::value, {}, small, 1};
    effects_type fx{false};
    std::unique_ptr<properties> none;
    std::uint64_t id = 0;
    int value = 1;
    int sent = 0;
    while (m.send(&value, none, b.now, fx, id) == errc{}) {
        ++sent;
    }
    CHECK(sent == 256);
    CHECK(m.send(&value, none, b.now, fx, id) == errc::memory_limit);
    CHECK(m.stats().refused == 2);
    CHECK(m.stats().accepted == 256);
    auto later = std::make_unique<properties>();
    later->delay = 1s;
    CHECK(m.send(&value, later, b.now, fx, id) == errc::memory_limit);
    std::unique_ptr<railmq::core::message_details> details;
    CHECK(m.adopt(&value, details, b.now, fx) == errc{}); // a dead letter finds a place
    CHECK(m.stats().ready == 257);
}

// --- Waiting ---

TEST_CASE("machine: a waiting receive gets the next message") {
    bench b;
    auto h = b.consumer();
    receiver first{*h};
    receiver second{*h};
    CHECK(b.machine.wait_to_receive(first));
    CHECK(b.machine.wait_to_receive(second));
    CHECK(h->waiting.load() == 2);
    b.send(1);
    CHECK(first.done);
    CHECK_FALSE(second.done);
    CHECK(b.value(first.one) == 1);
    CHECK(b.stats().waiting_receivers == 1);
    b.machine.forget(second);
    b.send(2);
    CHECK_FALSE(second.done);
    CHECK(b.shown() == values{2});
    CHECK(h->waiting.load() == 0);
}

TEST_CASE("machine: a waiting batch takes what is there, at most what it asked for") {
    bench b;
    auto h = b.consumer();
    b.machine.pause();
    b.send_all(1, 5);
    receiver r{*h};
    std::vector<lease_type> leases;
    leases.reserve(3);
    r.max = 3;
    r.many = &leases;
    CHECK(b.machine.wait_to_receive(r));
    b.act([&](auto& fx) { b.machine.resume(b.now, fx); });
    CHECK(r.done);
    REQUIRE(leases.size() == 3);
    CHECK(b.value(leases[2]) == 3);
    CHECK(b.shown() == values{4, 5});
}

TEST_CASE("machine: a receive does not wait while a message is being published") {
    bench b;
    auto h = b.consumer(1);
    b.send(0);
    const lease_type held = b.must_take(*h, 0);
    auto& ring = b.machine.ring();
    typename std::remove_reference_t<decltype(ring)>::producer_cache cache;
    std::uint64_t sequence = 0;
    std::uint32_t count = 0;
    using status = std::remove_reference_t<decltype(ring)>::claim_status;
    REQUIRE(ring.try_claim(1, ring.no_limit, cache, sequence, count) == status::ok);
    const auto publish = [&] {
        auto* at = ring.claimed(sequence);
        ::new (ring.payload(at)) int{1};
        at->store(railmq::core::slot_word{slot_state::ready});
    };
    SECTION("it asks again") {
        CHECK(b.ack(held));
        receiver r{*h};
        CHECK_FALSE(b.machine.wait_to_receive(r));
        CHECK_FALSE(r.is_linked());
        publish();
        b.must_take(*h, 1);
    }
    SECTION("if it has no room yet, it is served soon after") {
        receiver r{*h};
        CHECK(b.machine.wait_to_receive(r));
        CHECK(b.ack(held)); // there is room now, but nothing to be seen
        CHECK_FALSE(r.done);
        CHECK(b.machine.next_due(b.now) == b.now + 1ms);
        publish(); // on the fast path, which does not look for waiters
        CHECK(b.machine.next_due(b.now) == b.now + 1ms);
        b.advance(1ms);
        CHECK(r.done);
    }
}

TEST_CASE("machine: consumers of a higher priority are served first while they have room") {
    bench b;
    holder_type low;
    holder_type high;
    high.priority = 10;
    high.prefetch.store(1);
    b.open(low);
    b.open(high);
    receiver a{low};
    receiver c{high};
    receiver d{high};
    CHECK(b.machine.wait_to_receive(a));
    CHECK(b.machine.wait_to_receive(c));
    CHECK(b.machine.wait_to_receive(d));
    b.send(1);
    CHECK(c.done);
    b.send(2); // the other one has no room
    CHECK(a.done);
    CHECK_FALSE(d.done);
    CHECK(b.ack(c.one));
    b.send(3);
    CHECK(d.done);
}

TEST_CASE("machine: a waiting send is placed as soon as there is room, in order") {
    queue_options o = retrying();
    o.max_length = 1;
    bench b{o};
    auto h = b.consumer();
    b.send(1);
    sender two{2};
    sender three{3};
    const auto wait = [&](sender& s) {
        b.act([&](auto& fx) { b.machine.wait_to_send(s, b.now, fx); });
    };
    wait(two);
    wait(three);
    CHECK_FALSE(two.done);
    CHECK(b.try_send(4) == errc::queue_full);
    CHECK(b.stats().waiting_senders == 2);
    const lease_type l = b.must_take(*h, 1); // that makes room
    CHECK(two.done);
    CHECK_FALSE(three.done);
    CHECK(two.id == 1);
    CHECK(b.try_send(4) == errc::queue_full); // not before who waits
    CHECK(b.ack(l));
    CHECK(b.drain(*h) == values{2, 3});
    CHECK(three.done);
    CHECK_FALSE(three.result);
}

TEST_CASE("machine: a send that begins to wait when there is room again does not wait") {
    queue_options o;
    o.max_length = 1;
    bench b{o};
    sender s{1};
    b.act([&](auto& fx) { b.machine.wait_to_send(s, b.now, fx); });
    CHECK(s.done);
    CHECK(b.shown() == values{1});
}

TEST_CASE("machine: a waiting send that cannot be placed is told why") {
    queue_options o;
    o.max_length = 1;
    bench b{o};
    b.send(1);
    sender s{2};
    b.act([&](auto& fx) { b.machine.wait_to_send(s, b.now, fx); });
    b.act([&](auto& fx) { return b.machine.close_queue(errc::not_found, false, b.now, fx); });
    CHECK(s.done);
    CHECK(s.result == errc::not_found);
    CHECK(b.try_send(3) == errc::closed);
}

TEST_CASE("machine: waits for the end of work") {
    bench b{retrying(5s)};
    auto h = b.consumer();
    auto other = b.consumer();
    b.send_all(1, 2);
    const lease_type l = b.must_take(*h, 1);
    const lease_type o = b.must_take(*other, 2);
    idler all;
    idler held;
    idler mine;
    held.only_held = true;
    mine.of = h.get();
    for (idler* i : {&all, &held, &mine}) {
        b.machine.wait_for_idle(*i);
    }
    CHECK(h->wants_settlements);
    CHECK(b.nack(l));
    CHECK(mine.done);
    CHECK_FALSE(held.done);
    CHECK(b.ack(o));
    CHECK(held.done);
    CHECK_FALSE(all.done); // one waits for its backoff
    b.advance(5s);
    CHECK_FALSE(all.done);
    CHECK(b.drain(*h) == values{1});
    CHECK(all.done);
    idler again;
    b.machine.wait_for_idle(again);
    b.machine.forget(again);
    CHECK_FALSE(again.is_linked());
}

TEST_CASE("machine: what a consumer is taking this moment is not idle") {
    bench b;
    auto h = b.consumer();
    b.send(1);
    b.machine.cover_leases(b.now + 30s, 0s, b.now);
    using ring = std::remove_reference_t<decltype(b.machine.ring())>;
    ring::taken_run run;
    const auto stride = railmq::core::slot_stride(sizeof(int), alignof(int));
    REQUIRE(b.machine.ring().try_take(1, h->cache, run, stride) == ring::take_status::ok);
    CHECK_FALSE(b.machine.is_idle(true, b.now)); // claimed, neither marked nor counted
    auto* at = run.at;
    const auto leased = at->load().leased_to(h->number);
    at->store(leased);
    CHECK_FALSE(b.machine.is_idle(true, b.now)); // marked
    h->count_taken(1);
    CHECK_FALSE(b.machine.is_idle(true, b.now));
    CHECK(b.ack({h.get(), h->cache.in, at, leased}));
    CHECK(b.machine.is_idle(false, b.now));
}

// --- Consumers ---

TEST_CASE("machine: a cancelled consumer gets nothing new and keeps what it holds") {
    bench b;
    auto h = b.consumer();
    b.send_all(1, 2);
    const lease_type l = b.must_take(*h, 1);
    holder_type& holder = *h;
    receiver r{holder};
    b.machine.pause();
    CHECK(b.machine.wait_to_receive(r));
    b.cancel(holder);
    b.cancel(holder); // again does nothing
    CHECK(r.done);
    CHECK(r.result == errc::closed);
    b.act([&](auto& fx) { b.machine.resume(b.now, fx); });
    CHECK_FALSE(b.take(holder));
    CHECK(b.ack(l));
    CHECK_FALSE(b.machine.has_consumers());
    CHECK(b.stats().consumers == 0);
}

TEST_CASE("machine: a closed consumer's messages go back to their places, and cost no attempt") {
    queue_options o = retrying(0ns, 2);
    o.requeue = requeue_position::back;
    bench b{o};
    auto h = b.consumer();
    auto other = b.consumer();
    b.send_all(1, 5);
    std::vector<lease_type> held;
    for (int n = 1; n <= 3; ++n) {
        held.push_back(b.must_take(*h, n));
    }
    CHECK(b.ack(held[1]));
    b.close(*h);
    CHECK(b.shown() == values{1, 3, 4, 5});
    CHECK(b.stats().released == 2);
    CHECK(b.stats().failed == 0);
    CHECK_FALSE(h->is_unreferenced());
    CHECK(b.value(held[0]) == 1);
    CHECK_FALSE(b.ack(held[0]));
    b.drop_stale(held[0]);
    b.drop_stale(held[2]);
    CHECK(h->is_unreferenced());
    CHECK(b.drain(*other) == values{1, 3, 4, 5});
}

TEST_CASE("machine: single active consumer, the next takes over when it goes") {
    bench b;
    holder_type first;
    holder_type second;
    first.single_active = second.single_active = true;
    b.open(first);
    b.open(second);
    b.send_all(1, 3);
    CHECK_FALSE(b.take(second));
    const lease_type l = b.must_take(first, 1);
    receiver r{second};
    CHECK(b.machine.wait_to_receive(r));
    b.close(first);
    CHECK(r.done);
    CHECK(b.value(r.one) == 1); // what the first gave back comes first
    b.drop_stale(l);
    holder_type plain_one;
    CHECK_THROWS_AS(b.open(plain_one), railmq::system_error);
}

TEST_CASE("machine: single active, a higher priority waits until the active one has settled") {
    bench b;
    holder_type low;
    holder_type high;
    low.single_active = high.single_active = true;
    high.priority = 1;
    b.open(low);
    b.send_all(1, 3);
    const lease_type l = b.must_take(low, 1);
    b.open(high);
    CHECK_FALSE(b.take(low));
    CHECK_FALSE(b.take(high));
    CHECK(b.ack(l));
    b.must_take(high, 2);
    CHECK_FALSE(b.take(low));
}

TEST_CASE("machine: an expired lease of a draining consumer lets the next take over") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    bench b{o};
    holder_type low;
    holder_type high;
    low.single_active = high.single_active = true;
    high.priority = 1;
    b.open(low);
    b.send(1);
    const lease_type l = b.must_take(low, 1);
    b.open(high);
    receiver r{high};
    CHECK(b.machine.wait_to_receive(r));
    b.advance(10s);
    CHECK(r.done);
    CHECK(b.value(r.one) == 1);
    b.drop_stale(l);
}

TEST_CASE("machine: a paused consumer gets nothing, the others do") {
    bench b;
    auto paused = b.consumer();
    auto h = b.consumer();
    b.act([&](auto& fx) { b.machine.set_paused(*paused, true, b.now, fx); });
    receiver r{*paused};
    CHECK(b.machine.wait_to_receive(r));
    b.send_all(1, 2);
    CHECK_FALSE(r.done);
    b.must_take(*h, 1);
    b.act([&](auto& fx) { b.machine.set_paused(*paused, false, b.now, fx); });
    CHECK(r.done);
    CHECK(b.value(r.one) == 2);
}

TEST_CASE("machine: ack on delivery counts at the hand-out") {
    bench b;
    holder_type h;
    h.acks_on_delivery = true;
    b.open(h);
    b.send_all(1, 2);
    const lease_type l = b.must_take(h, 1);
    CHECK(b.stats().acked == 1);
    CHECK(b.stats().in_flight == 0);
    CHECK(b.machine.next_due(b.now) == never);
    b.close(h); // it is not given back
    CHECK(b.shown() == values{2});
    CHECK(b.ack(l)); // what the handle does when it goes
    CHECK(b.stats().acked == 1);
    CHECK(h.is_unreferenced());
    b.check_books();
}

// --- Take ---

TEST_CASE("machine: take reserves, and acknowledges or gives back the lease") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    bench b{o};
    auto h = b.consumer();
    b.send(1);
    const lease_type l = b.must_take(*h, 1);
    const auto begin = [&] {
        return b.act([&](auto& fx) { return b.machine.begin_take(l, b.now, fx); });
    };
    CHECK(begin());
    b.advance(20s); // reserved: its deadline does not matter now
    CHECK(b.stats().in_flight == 1);
    b.machine.cancel_take(l, b.now);
    CHECK(b.machine.deadline_of(l) == b.now + 10s);
    CHECK(begin());
    b.act([&](auto& fx) { b.machine.finish_take(l, b.now, fx); });
    CHECK(b.stats().acked == 1);
    CHECK_FALSE(begin());
    CHECK(b.stats().stale_settlements == 1);
    b.check_books();
}

TEST_CASE("machine: a take that is given back still ends at its deadline") {
    queue_options o = retrying();
    o.ack_timeout = 10s;
    bench b{o};
    auto h = b.consumer();
    b.send(1);
    const lease_type l = b.must_take(*h, 1);
    CHECK(b.act([&](auto& fx) { return b.machine.begin_take(l, b.now, fx); }));
    b.advance(1s); // the line's cursor passes it
    b.machine.cancel_take(l, b.now);
    b.advance(10s);
    CHECK(b.shown() == values{1});
    b.drop_stale(l);
}

// --- Purge, browse, pause, close ---

TEST_CASE("machine: purge removes what nobody holds, delayed ones included") {
    bench b{retrying(5s), true};
    auto h = b.consumer();
    b.send_all(1, 5);
    const lease_type held = b.must_take(*h, 1);
    CHECK(b.nack(b.must_take(*h, 2)));                       // waits
    CHECK(b.settle(b.must_take(*h, 3), kind::release));      // returned
    b.send(6, {.delay = 1s});
    b.send(7, {.time_to_live = 1s});
    CHECK(b.act([&](auto& fx) { return b.machine.purge(b.now, fx); }) == 6);
    CHECK(b.stats().purged == 6);
    CHECK(b.stats().ready == 0);
    CHECK(b.stats().delayed == 0);
    CHECK(b.stats().in_flight == 1);
    CHECK(std::get<railmq::notices::purged>(b.notices.back()).count == 6);
    CHECK(b.machine.next_due(b.now) == b.now + 30s); // the held one's deadline alone
    b.advance(20s);
    CHECK(b.deaths.empty());
    CHECK(b.ack(held));
    b.send(8);
    CHECK(b.drain(*h) == values{8});
    b.check_books();
}

TEST_CASE("machine: browse shows the order of hand-outs") {
    queue_options o = retrying();
    o.requeue = requeue_position::back;
    bench b{o};
    auto h = b.consumer();
    b.send_all(1, 4);
    const lease_type one = b.must_take(*h, 1);
    const lease_type two = b.must_take(*h, 2);
    CHECK(b.nack(one));
    CHECK(b.settle(two, kind::release));
    b.send(5);
    const values expected{2, 3, 4, 1, 5};
    CHECK(b.shown() == expected);
    CHECK(b.drain(*h) == expected);
}

TEST_CASE("machine: a paused queue hands out nothing, and goes on taking") {
    bench b;
    auto h = b.consumer();
    b.send(1);
    b.machine.pause();
    CHECK(b.machine.is_paused());
    CHECK(b.machine.ring().next_gate());
    CHECK_FALSE(b.take(*h));
    b.send(2);
    b.act([&](auto& fx) { b.machine.resume(b.now, fx); });
    CHECK_FALSE(b.machine.ring().next_gate());
    CHECK(b.drain(*h) == values{1, 2});
}

TEST_CASE("machine: a closed queue is emptied by its consumers") {
    bench b{retrying(5s)};
    auto h = b.consumer();
    auto other = b.consumer();
    b.send_all(1, 3);
    const lease_type l = b.must_take(*h, 1);
    CHECK(
        b.act([&](auto& fx) { return b.machine.close_queue(errc::closed, false, b.now, fx); }) ==
        3);
    CHECK(b.machine.is_closed());
    CHECK(b.try_send(4) == errc::closed);
    CHECK_FALSE(b.machine.is_drained());
    CHECK(b.drain(*h) == values{2, 3});
    CHECK(b.machine.is_drained());
    CHECK(b.nack(l));
    CHECK_FALSE(b.machine.is_drained());
    receiver r{*other};
    CHECK(b.machine.wait_to_receive(r));
    b.advance(5s);
    CHECK(r.done);
    CHECK_FALSE(r.result);
    receiver last{*other};
    CHECK_FALSE(b.machine.wait_to_receive(last)); // nothing can come: it asks again
    CHECK(b.ack(r.one));
}

TEST_CASE("machine: who takes a closed queue's last message tells those who wait") {
    bench b;
    auto h = b.consumer();
    auto full = b.consumer(1);
    b.send_all(1, 2);
    const lease_type l = b.must_take(*full, 1);
    receiver r{*full};
    CHECK(b.machine.wait_to_receive(r));
    b.act([&](auto& fx) { return b.machine.close_queue(errc::closed, false, b.now, fx); });
    CHECK_FALSE(r.done);
    CHECK(b.machine.ring().next_gate()); // so that nobody takes it unseen
    b.must_take(*h, 2);
    CHECK(r.done);
    CHECK(r.result == errc::closed);
    CHECK(b.ack(l));
}

TEST_CASE("machine: an aborted queue ends everything at once") {
    bench b;
    auto h = b.consumer();
    b.send_all(1, 2);
    const lease_type l = b.must_take(*h, 1);
    b.machine.pause();
    receiver r{*h};
    idler i;
    CHECK(b.machine.wait_to_receive(r));
    b.machine.wait_for_idle(i);
    CHECK(
        b.act([&](auto& fx) { return b.machine.close_queue(errc::not_found, true, b.now, fx); }) ==
        2);
    CHECK(r.result == errc::not_found);
    CHECK(i.done);
    CHECK(i.result == errc::not_found);
    b.act([&](auto& fx) { b.machine.resume(b.now, fx); });
    CHECK_FALSE(b.take(*h));
    CHECK(b.machine.is_drained());
    CHECK(b.machine.close_reason() == errc::not_found);
    CHECK(b.value(l) == 1); // what is held can be read, and settled
    CHECK(b.ack(l));
}

TEST_CASE("machine: a closed consumer is destroyed when its last handle has gone") {
    bench b;
    auto h = b.consumer();
    b.send_all(1, 2);
    const lease_type l = b.must_take(*h, 1);
    b.close(*h);
    const auto remove = [&] { return b.act([&](auto&) { return b.machine.remove_if_unreferenced(*h); }); };
    CHECK_FALSE(remove());
    b.drop_stale(l);
    CHECK(remove());
    CHECK(b.stats().handed_out == 1); // the sums stay
    b.check_books();
}

// --- Payloads that old handles may read ---

TEST_CASE("machine: a message that has left lives as long as an old handle does") {
    REQUIRE(token::alive == 0);
    {
        queue_options o = retrying();
        o.ack_timeout = 1s;
        bench<token> b{o};
        auto h = b.consumer();
        b.send(1);
        const lease_type old = b.must_take(*h, 1);
        b.advance(1s);
        const lease_type older = b.must_take(*h, 1);
        b.advance(1s);
        const lease_type last = b.must_take(*h, 1);
        CHECK(b.ack(last));
        CHECK(b.stats().acked == 1);
        CHECK(token::alive == 1);
        CHECK(b.value(old) == 1);
        b.drop_stale(old);
        CHECK(token::alive == 1);
        CHECK(b.value(older) == 1);
        b.drop_stale(older);
        CHECK(token::alive == 0);
    }
}

TEST_CASE("machine: what cannot be copied dies when its old handle has gone") {
    {
        queue_options o = retrying();
        o.ack_timeout = 1s;
        bench<token> b{o};
        auto h = b.consumer();
        b.send(1);
        const lease_type old = b.must_take(*h, 1);
        b.advance(1s);
        CHECK(b.settle(b.must_take(*h, 1), kind::reject, {}, "bad"));
        CHECK(b.deaths.empty()); // it waits for its move
        CHECK(b.stats().delayed == 1);
        CHECK_FALSE(b.ack(old)); // dying: no last word any more
        CHECK(b.act([&](auto& fx) { return b.machine.purge(b.now, fx); }) == 0);
        b.drop_stale(old);
        CHECK(b.deaths == death_list{{1, death_reason::rejected, "bad"}});
        CHECK(b.stats().delayed == 0);
        CHECK(token::alive == 0);
        b.check_books();
    }
}

TEST_CASE("machine: closing with old handles leaves nothing behind") {
    {
        queue_options o = retrying();
        o.ack_timeout = 1s;
        bench<token> b{o};
        auto h = b.consumer();
        b.send_all(1, 3);
        const lease_type expired = b.must_take(*h, 1);
        b.advance(1s);
        b.act([&](auto& fx) { return b.machine.close_queue(errc::closed, true, b.now, fx); });
        CHECK(b.act([&](auto& fx) { return b.machine.purge(b.now, fx); }) == 3);
        CHECK(token::alive == 1);
        CHECK(b.value(expired) == 1);
        b.drop_stale(expired);
        CHECK(token::alive == 0);
    }
    CHECK(token::alive == 0);
}

TEST_CASE("machine: an expired lease cannot be revoked a 256th time while all handles live") {
    queue_options o = retrying();
    o.ack_timeout = 1s;
    bench b{o};
    auto h = b.consumer(1'000);
    b.send(1);
    std::vector<lease_type> old;
    for (std::uint32_t n = 0; n < railmq::core::slot_word::max_pins; ++n) {
        old.push_back(b.must_take(*h, 1));
        b.advance(1s);
    }
    const lease_type last = b.must_take(*h, 1);
    b.advance(1s);
    CHECK(b.machine.deadline_of(last)); // it keeps the message a while longer
    b.drop_stale(old.back());
    old.pop_back();
    b.advance(1s);
    CHECK_FALSE(b.machine.deadline_of(last));
    b.drop_stale(last);
    for (const auto& l : old) {
        b.drop_stale(l);
    }
    CHECK(b.drain(*h) == values{1});
    CHECK(h->is_unreferenced());
}

// --- Moves to other queues ---

TEST_CASE("machine: a dead letter that is refused stays, and is tried again") {
    bench b{retrying(1s)};
    b.discards = false;
    auto h = b.consumer();
    b.send(1);
    CHECK(b.settle(b.must_take(*h, 1), kind::reject));
    const auto first = b.machine.next_dying();
    REQUIRE(first);
    CHECK_FALSE(b.machine.next_dying());
    b.machine.postpone_death(*first, b.now);
    CHECK(b.stats().delayed == 1);
    CHECK(b.machine.next_due(b.now) == b.now + 1s);
    b.advance(1s);
    const auto second = b.machine.next_dying();
    REQUIRE(second);
    CHECK(second->reason == death_reason::rejected);
    b.act([&](auto& fx) {
        b.machine.finish_death(*second, machine_type::fate::dead_lettered, false, b.now, fx);
    });
    CHECK(b.stats().dead_lettered == 1);
    b.check_books();
}

TEST_CASE("machine: adopts another queue's message with its history") {
    bench b;
    auto h = b.consumer();
    auto details = std::make_unique<railmq::core::message_details>();
    details->deaths = std::make_unique<railmq::death_history>();
    details->deaths->record({.queue = "elsewhere", .reason = death_reason::rejected});
    details->props = std::make_unique<properties>(properties{.message_id = "m"});
    int value = 9;
    CHECK(b.act([&](auto& fx) { return b.machine.adopt(&value, details, b.now, fx); }) == errc{});
    CHECK(details == nullptr);
    const lease_type l = b.must_take(*h, 9);
    const auto* d = b.machine.store().details_of({l.in, l.at});
    REQUIRE(d != nullptr);
    CHECK(d->props->message_id == "m");
    CHECK(d->deaths->entries().size() == 1);
    CHECK(l.word.tag() == 1);

    queue_options o;
    o.max_length = 1;
    o.overflow = overflow_policy::reject;
    bench full{o};
    full.send(1);
    auto kept = std::make_unique<railmq::core::message_details>();
    CHECK(
        full.act([&](auto& fx) { return full.machine.adopt(&value, kept, full.now, fx); }) ==
        errc::queue_full);
    CHECK(kept != nullptr); // stays with the caller
}

TEST_CASE("machine: a message is extracted for a move elsewhere") {
    bench b;
    b.send_all(1, 3);
    machine_type::place_type second{};
    b.machine.browse_and_hold([&](auto p) {
        second = p;
        return *static_cast<const int*>(b.machine.store().payload(p)) != 2;
    });
    b.machine.begin_extract(second);
    b.act([&](auto& fx) { b.machine.finish_extract(second, b.now, fx); });
    CHECK(b.shown() == values{1, 3});
    CHECK(b.stats().redriven == 1);
    b.check_books();
}

// --- Notices ---

TEST_CASE("machine: every step of a message's life has its notice") {
    bench b{retrying(0ns, 2), true};
    holder_type h;
    h.name = "worker";
    b.open(h);
    b.send(1);
    CHECK(b.nack(b.must_take(h, 1)));
    CHECK(b.settle(b.must_take(h, 1), kind::release));
    const lease_type last = b.must_take(h, 1);
    CHECK(b.ack(last));
    CHECK_FALSE(b.ack(last));
    b.cancel(h);
    b.close(h);
    namespace n = railmq::notices;
    std::vector<std::size_t> kinds;
    for (const auto& notice : b.notices) {
        kinds.push_back(notice.index());
        CHECK(railmq::event_of(notice).queue == "q");
        CHECK(railmq::event_of(notice).at == b.now);
    }
    const auto index = [](railmq::notice one) { return one.index(); };
    CHECK(
        kinds == std::vector<std::size_t>{
                     index(n::consumer_opened{}),
                     index(n::sent{}),
                     index(n::delivered{}),
                     index(n::failed{}),
                     index(n::retried{}),
                     index(n::delivered{}),
                     index(n::released{}),
                     index(n::delivered{}),
                     index(n::acked{}),
                     index(n::stale{}),
                     index(n::consumer_closed{})});
    CHECK(std::get<n::consumer_opened>(b.notices[0]).name == "worker");
    CHECK(std::get<n::delivered>(b.notices[5]).delivery_count == 2);
    CHECK(std::get<n::failed>(b.notices[3]).failure_count == 1);
}

TEST_CASE("machine: equal seeds and calls give equal decisions") {
    queue_options o;
    o.retry.backoff = railmq::exponential_backoff{.jitter = railmq::jitter::full};
    bench one{o};
    bench two{o};
    for (bench<>* b : {&one, &two}) {
        auto h = b->consumer();
        b->send_all(1, 50);
        while (const auto l = b->take(*h)) {
            CHECK(b->nack(*l));
        }
    }
    for (int i = 0; i < 50; ++i) {
        const time_point due = one.machine.next_due(one.now);
        REQUIRE(due == two.machine.next_due(two.now));
        one.advance(due - one.now);
        two.advance(due - two.now);
        CHECK(one.shown() == two.shown());
    }
}
