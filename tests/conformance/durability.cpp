// SPDX-License-Identifier: BSL-1.0
//
// What outlives a process: messages, hand-outs, waits, dead letters; and what happens when the
// disk is full, broken or somebody else's. Simulated disks, so that every end is the one that the
// test wants.
#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::errc;
using railmq::error_code;
using railmq::storage::disk_operation;
using railmq::storage::simulated_disk;

namespace {

const railmq::retry_policy at_once{.backoff = railmq::constant_backoff{.delay = 0s}};

/// A broker on a disk, in a simulation, which can be ended in any way and opened again.
struct world {
    explicit world(railmq::broker_options o = {})
        : options{std::move(o)} {
        options.observer = [this](const railmq::notice& n) { notices.push_back(n); };
        open();
    }
    void open() { broker.emplace(sim, disk.directory(), options); }
    error_code try_open() {
        try {
            open();
            return {};
        } catch (const railmq::system_error& e) {
            what = e.what();
            return e.code();
        }
    }
    /// The process is killed: what was written stays, and nobody closes anything.
    void kill() {
        disk.end_process();
        broker.reset();
    }
    void kill_and_open() {
        kill();
        open();
    }
    void cut_power() {
        disk.crash();
        broker.reset();
    }
    void close_and_open() {
        broker.reset();
        open();
    }
    [[nodiscard]] std::vector<int> values_in(const std::string& name) {
        std::vector<int> all;
        for (const auto& m : broker->queue<int>(name).peek(10'000)) {
            all.push_back(m.value);
        }
        return all;
    }
    template <class Notice>
    [[nodiscard]] std::size_t count() const {
        std::size_t n = 0;
        for (const railmq::notice& one : notices) {
            n += std::holds_alternative<Notice>(one) ? 1 : 0;
        }
        return n;
    }

    railmq::broker_options options;
    railmq::simulation sim{1};
    simulated_disk disk{1};
    std::vector<railmq::notice> notices{};
    std::string what{};
    std::optional<railmq::sim_broker> broker{};
};

} // namespace

TEST_CASE("[T01][D17][D23] what a broker confirmed is there after it, whoever was away") {
    world w;
    w.broker->queue<int>("q").producer().send(1);
    w.close_and_open();
    CHECK(w.values_in("q") == std::vector{1});
    w.broker->queue<int>("q").producer().send(2);
    w.sim.advance(10min);
    w.kill_and_open();
    CHECK(w.values_in("q") == std::vector{1, 2});
}

TEST_CASE("[T01][T14] what was handed out and not settled comes again, and says so") {
    world w;
    for (int i = 0; i < 25; ++i) {
        w.broker->queue<int>("q").producer().send(i);
    }
    auto held = w.broker->queue<int>("q").consumer().receive_batch(25, 0s);
    REQUIRE(held.size() == 25);
    const bool was_closed = GENERATE(false, true);
    if (was_closed) {
        w.close_and_open();
    } else {
        w.kill_and_open();
    }
    held.clear();
    auto c = w.broker->queue<int>("q").consumer();
    for (int i = 0; i < 25; ++i) {
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->value() == i);
        CHECK(d->redelivered());
        CHECK(d->delivery_count() == 2);
        CHECK(d->failure_count() == (was_closed ? 0U : 1U));
        CHECK(d->ack());
    }
}

TEST_CASE("acknowledged is gone, as soon as it is written; a lost ack is a redelivery") {
    world w;
    auto p = w.broker->queue<int>("q").producer();
    p.send(1);
    p.send(2);
    auto c = w.broker->queue<int>("q").consumer();
    c.try_receive()->ack();
    SECTION("nobody has written since") {
        w.kill_and_open();
        CHECK(w.values_in("q") == std::vector{1, 2});
    }
    SECTION("the next hand-out was written with it") {
        auto held = c.try_receive();
        w.kill_and_open();
        CHECK(w.values_in("q") == std::vector{2});
    }
    SECTION("whoever finds nothing to do writes") {
        c.try_receive()->ack();
        CHECK_FALSE(c.receive(1s));
        w.kill_and_open();
        CHECK(w.values_in("q").empty());
    }
    SECTION("whoever asks for it gets it on the device") {
        w.broker->sync();
        w.cut_power();
        w.open();
        CHECK(w.values_in("q") == std::vector{2});
    }
}

TEST_CASE("a send has come as far as its producer was told, and not less") {
    world w;
    auto q = w.broker->queue<int>("q");
    q.producer().send(0); // synced
    auto accepted = q.producer({.durability = durability::accepted});
    auto written = q.producer({.durability = durability::written});
    SECTION("accepted: in memory alone") {
        accepted.send(1);
        w.kill_and_open();
        CHECK(w.values_in("q") == std::vector{0});
    }
    SECTION("written: survives the process") {
        accepted.send(1);
        written.send(2);
        w.kill_and_open();
        CHECK(w.values_in("q") == std::vector{0, 1, 2});
    }
    SECTION("written: may be lost with the power, and then as if it had never been sent") {
        written.send(1);
        written.send(2);
        w.cut_power();
        w.open();
        const auto left = w.values_in("q");
        REQUIRE(!left.empty());
        REQUIRE(left.size() <= 3);
        for (std::size_t i = 0; i < left.size(); ++i) {
            CHECK(left[i] == static_cast<int>(i));
        }
    }
    SECTION("interval: on the device within the time") {
        q.producer({.durability = durability::interval(50ms)}).send(1);
        w.sim.advance(50ms);
        w.cut_power();
        w.open();
        CHECK(w.values_in("q") == std::vector{0, 1});
    }
    SECTION("synced: survives the power") {
        accepted.send(1);
        q.producer({.durability = durability::synced}).send(2);
        w.cut_power();
        w.open();
        CHECK(w.values_in("q") == std::vector{0, 1, 2});
    }
}

TEST_CASE("a batch is safe as one, for one sync") {
    world w;
    auto p = w.broker->queue<int>("q").producer();
    const std::vector<int> values{1, 2, 3, 4, 5, 6, 7, 8};
    const auto syncs = w.disk.calls(disk_operation::sync);
    CHECK(p.send_batch(values) == 8);
    CHECK(w.disk.calls(disk_operation::sync) == syncs + 1);
    w.cut_power();
    w.open();
    CHECK(w.values_in("q") == values);
}

TEST_CASE("properties, ids and histories are kept") {
    world w;
    const railmq::properties all{
        .message_id = "m-1",
        .key = "",
        .routing_key = "a.b",
        .event_time = std::chrono::sys_time<railmq::duration>{5s},
        .correlation_id = "c",
        .reply_to = "answers",
        .headers = {{"x", "1"}, {"x", "2"}}};
    w.sim.advance(1h);
    const auto sent = w.broker->queue<int>("q").producer().send(7, all);
    {
        auto c = w.broker->queue<int>("q").consumer();
        c.try_receive()->reject("not today");
    }
    w.broker->sync();
    w.sim.advance(1h);
    w.kill_and_open();
    const auto dead = w.broker->queue<int>("q.dead").peek();
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].value == 7);
    CHECK(dead[0].properties == all);
    REQUIRE(dead[0].deaths.size() == 1);
    CHECK(dead[0].deaths[0].detail == "not today");
    CHECK(dead[0].deaths[0].message_id == sent.id);
    CHECK(dead[0].deaths[0].last_at == railmq::time_point{1h});
    CHECK(dead[0].first_death->at == railmq::time_point{1h});
    // Numbers never start over, whatever has left.
    CHECK(w.broker->queue<int>("q").producer().send(8).id > sent.id);
}

TEST_CASE("[H08] a time to live counts through a restart") {
    world w;
    w.broker->queue<int>("q", {.dead_letter = railmq::discard, .time_to_live = 2000ms})
        .producer()
        .send(1);
    w.sim.advance(500ms);
    w.close_and_open();
    auto q = w.broker->queue<int>("q");
    w.sim.advance(1499ms);
    CHECK(q.stats().ready == 1);
    w.sim.advance(1ms);
    CHECK(q.stats().ready == 0);
    CHECK(w.count<railmq::notices::expired>() == 1);
}

TEST_CASE("[I14] delayed messages come at their own time, and those overdue at once") {
    world w;
    auto p = w.broker->queue<int>("q").producer();
    p.send(1, {.delay = 10s});
    p.send(2, {.delay = 60s});
    w.sim.advance(5s);
    w.kill();
    w.sim.advance(15s); // nobody is there when the first is due
    w.open();
    auto q = w.broker->queue<int>("q");
    auto c = q.consumer();
    auto first = c.try_receive();
    REQUIRE(first);
    CHECK(first->value() == 1);
    CHECK(first->ack());
    CHECK_FALSE(c.try_receive());
    w.sim.advance(39s);
    CHECK_FALSE(c.try_receive());
    w.sim.advance(1s);
    CHECK(c.try_receive()->value() == 2);
}

TEST_CASE("[D15] a stalled message's count survives a restart") {
    world w;
    const railmq::queue_options once{.ack_timeout = 1000ms, .retry = {.max_stalls = 2}};
    auto q = w.broker->queue<int>("q", once);
    for (int i = 0; i < 4; ++i) {
        q.producer().send(i);
    }
    auto c = q.consumer();
    auto held = c.receive_batch(4, 0s);
    w.sim.advance(1s); // the first stall of all four
    CHECK(q.stats().ready == 4);
    held.clear();
    c.close();
    w.close_and_open();
    q = w.broker->queue<int>("q", once);
    c = q.consumer();
    held = c.receive_batch(4, 0s);
    REQUIRE(held.size() == 4);
    w.sim.advance(1s); // and the second
    CHECK(q.stats().ready == 0);
    const auto dead = w.broker->queue<int>("q.dead").peek(10);
    REQUIRE(dead.size() == 4);
    CHECK(dead[0].deaths[0].reason == railmq::death_reason::max_stalls);
    CHECK(dead[0].deaths[0].delivery_count == 2);
}

TEST_CASE("[BR03] closing keeps what was accepted") {
    world w;
    auto q = w.broker->queue<int>("q");
    auto p = q.producer();
    for (int i = 0; i < 10; ++i) {
        p.send(i);
    }
    {
        auto c = q.consumer();
        for (int i = 0; i < 3; ++i) {
            c.try_receive()->ack();
        }
    }
    CHECK(w.broker->close() == 7);
    error_code ec;
    p.send(11, ec);
    CHECK(ec == errc::closed);
    w.open();
    CHECK(w.values_in("q") == std::vector{3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("[BR06] a message that ends the process is counted, and ends as a dead letter") {
    world w;
    w.broker->queue<int>("q", {.retry = {.max_attempts = 3}}).producer().send(1);
    w.broker->queue<int>("q").producer().send(2);
    for (std::uint32_t run = 1; run <= 3; ++run) {
        auto c = w.broker->queue<int>("q").consumer();
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->value() == 1);
        CHECK(d->delivery_count() == run);
        CHECK(d->redelivered() == (run > 1));
        w.kill_and_open();
        (void)w.broker->queue<int>("q");
    }
    CHECK(w.values_in("q") == std::vector{2}); // the others go on
    const auto dead = w.broker->queue<int>("q.dead").peek();
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].deaths[0].delivery_count == 3);
    const auto why = dead[0].deaths[0].reason;
    CHECK((why == railmq::death_reason::max_attempts || why == railmq::death_reason::max_crashes));
}

TEST_CASE("[BR06] a dead letter stays, however often the process ends that looks at it") {
    world w;
    w.broker->queue<int>("q").producer().send(1);
    {
        auto c = w.broker->queue<int>("q").consumer();
        c.try_receive()->reject();
    }
    w.broker->sync();
    for (int run = 0; run < 5; ++run) {
        auto c = w.broker->queue<int>("q.dead").consumer();
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->failure_count() == static_cast<unsigned>(run));
        w.kill_and_open();
    }
    CHECK(w.values_in("q.dead") == std::vector{1});
    CHECK(w.count<railmq::notices::dropped>() == 0);
}

TEST_CASE("the first hand-out need not be written, and then the first crash is not counted") {
    world w{{.journal_hand_outs = railmq::hand_out_journaling::after_crash}};
    w.broker->queue<int>("q").producer().send(1);
    const auto writes = w.disk.calls(disk_operation::write);
    {
        auto c = w.broker->queue<int>("q").consumer();
        auto d = c.try_receive();
        CHECK(w.disk.calls(disk_operation::write) == writes);
        w.kill_and_open();
    }
    for (std::uint32_t run = 1; run <= 3; ++run) {
        auto c = w.broker->queue<int>("q").consumer();
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->delivery_count() == run);
        w.kill_and_open();
    }
    (void)w.broker->queue<int>("q");
    CHECK(w.values_in("q").empty());
    CHECK(w.values_in("q.dead") == std::vector{1});
}

TEST_CASE("[BR12] a dead letter is in one queue, whenever the process ends") {
    // At each call that the disk sees while the message moves, in turn.
    for (std::uint64_t n = 1;; ++n) {
        world w;
        w.broker->queue<int>("q", {.retry = {.max_attempts = 1}}).producer().send(1);
        auto c = w.broker->queue<int>("q").consumer();
        auto d = c.try_receive();
        w.disk.fail_from(disk_operation::write, n, boost::system::errc::io_error);
        d->nack();
        error_code ec;
        w.broker->sync(ec);
        const bool was_hit = w.disk.faults_struck() != 0;
        w.disk.heal();
        w.kill_and_open();
        (void)w.broker->queue<int>("q");
        CHECK(w.values_in("q").size() + w.values_in("q.dead").size() == 1);
        if (!was_hit) {
            CHECK(w.values_in("q.dead") == std::vector{1});
            break;
        }
    }
}

TEST_CASE("[BR12] a refused dead letter stays, and is tried again") {
    world w;
    (void)w.broker->queue<int>(
        "full", {.max_length = 1, .overflow = railmq::overflow_policy::reject});
    w.broker->queue<int>("full").producer().send(0);
    auto q = w.broker->queue<int>("q", {.retry = {.max_attempts = 1}, .dead_letter = "full"});
    q.producer().send(1);
    {
        auto c = q.consumer();
        c.try_receive()->nack();
    }
    CHECK(w.values_in("full") == std::vector{0});
    w.kill_and_open();
    q = w.broker->queue<int>("q");
    CHECK(w.values_in("full") == std::vector{0});
    CHECK(q.stats().delayed == 1);
    auto c = w.broker->queue<int>("full").consumer();
    c.try_receive()->ack();
    w.sim.advance(10min);
    CHECK(w.values_in("full") == std::vector{1});
    CHECK(q.stats().delayed == 0);
}

TEST_CASE("[BR21] a sync does not confirm what found no space") {
    world w{{.journal = {.segment_bytes = 8192, .headroom_bytes = 2048}}};
    auto q = w.broker->queue<int>("q");
    auto p = q.producer();
    for (int i = 0; i != 20; ++i) {
        p.send(i);
    }
    auto c = q.consumer();
    w.disk.set_capacity(1); // from here on nothing more, not even what was kept for this
    error_code ec;
    for (int i = 0; i != 2000 && w.count<railmq::notices::unwritten>() == 0; ++i) {
        c.try_receive()->release();
    }
    REQUIRE(w.count<railmq::notices::unwritten>() != 0);
    w.broker->sync(ec);
    CHECK(ec == errc::no_space);
    w.broker->sync(ec);
    CHECK_FALSE(ec); // what it spoke of, it has said
    w.disk.set_capacity(~std::uint64_t{0});
    c.try_receive()->ack();
    w.broker->sync(ec);
    CHECK_FALSE(ec);
}

TEST_CASE("however many leases end at one moment, what becomes of them is written") {
    constexpr std::size_t count = 40'000;
    world w{
        {.durability = railmq::durability::accepted,
         .journal = {.max_record_bytes = 1 << 20}}}; // all of them in one record would be longer
    w.options.observer = nullptr;
    w.close_and_open();
    auto q = w.broker->queue<int>("q", {.retry = at_once});
    q.producer().send_batch(std::vector<int>(count, 7));
    auto c = q.consumer({.prefetch = railmq::unlimited});
    auto held = c.receive_batch(count, 0s);
    REQUIRE(held.size() == count);
    w.sim.advance(31s);
    CHECK(q.stats().deadlines_passed == count);
    CHECK(w.broker->stats().unwritten == 0);
    held.clear();
    w.broker->sync();
    w.cut_power();
    w.open();
    q = w.broker->queue<int>("q");
    CHECK(q.stats().ready == count);
    CHECK(q.consumer().try_receive()->failure_count() == 1); // and not twice: that was judged
}

TEST_CASE("[BR14] a wall clock that was set back makes nothing wait longer than it was told to") {
    simulated_disk disk{1};
    {
        railmq::simulation sim{1};
        sim.advance(12h);
        railmq::sim_broker b{sim, disk.directory()};
        b.queue<int>("q").producer().send(1, {.delay = 5s});
    }
    railmq::simulation sim{1};
    sim.advance(11h); // an hour earlier than before
    railmq::sim_broker b{sim, disk.directory()};
    auto c = b.queue<int>("q").consumer();
    sim.advance(4999ms);
    CHECK_FALSE(c.try_receive());
    sim.advance(1ms);
    CHECK(c.try_receive());
}

TEST_CASE("[BR21][T20] a sync that failed once is never believed again") {
    world w;
    auto p = w.broker->queue<int>("q").producer();
    w.disk.fail(disk_operation::sync, 3, boost::system::errc::io_error);
    error_code ec;
    for (int i = 1; i <= 5; ++i) {
        p.send(i, ec);
        CHECK(ec == (i < 3 ? error_code{} : make_error_code(errc::journal_failed)));
    }
    // What is there can still be had.
    auto c = w.broker->queue<int>("q").consumer();
    CHECK(c.try_receive()->value() == 1);
    CHECK(w.count<railmq::notices::unwritten>() != 0);
    CHECK(w.broker->stats().unwritten == w.count<railmq::notices::unwritten>());
    w.cut_power();
    w.open();
    const auto left = w.values_in("q");
    REQUIRE(left.size() >= 2);
    CHECK(left[0] == 1);
    CHECK(left[1] == 2);
    CHECK(left.size() <= 3); // the third may be there: it was never confirmed
}

TEST_CASE(
    "[BX06][T10][D77] a full disk refuses sends and takes acks, and sends go on by themselves") {
    world w{{.journal = {.segment_bytes = 256 << 10, .headroom_bytes = 64 << 10}}};
    auto q = w.broker->queue<std::string>("q");
    auto p = q.producer();
    const std::string load(1000, 'x');
    for (int i = 0; i < 20; ++i) {
        p.send(load + std::to_string(i));
    }
    w.disk.set_capacity(w.disk.used() + 400'000);
    error_code ec;
    int sent = 20;
    for (; sent < 1000; ++sent) {
        p.send(load + std::to_string(sent), ec);
        if (ec) {
            break;
        }
    }
    REQUIRE(ec == errc::no_space);
    CHECK(q.stats().ready == static_cast<std::uint64_t>(sent)); // nothing dropped, nothing half in
    auto c = q.consumer();
    for (int i = 0; i < sent - 5; ++i) {
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->value() == load + std::to_string(i));
        CHECK(d->ack());
    }
    w.broker->sync(ec);
    REQUIRE_FALSE(ec);
    SECTION("there is space again") {
        w.disk.set_capacity(~std::uint64_t{0});
        p.send("more", ec);
        CHECK_FALSE(ec);
    }
    SECTION("what was acknowledged has made it") {
        for (int i = 0; i < 10; ++i) {
            p.send("more", ec);
            if (!ec) {
                break;
            }
        }
        CHECK_FALSE(ec);
    }
    const std::uint64_t left = q.stats().ready;
    CHECK(left == 6);
    c.close();
    w.kill_and_open();
    CHECK(w.broker->queue<std::string>("q").stats().ready == left);
}

TEST_CASE("[BX15] no name becomes a path") {
    world w;
    const std::string long_one(300, 'a');
    for (const std::string& name :
         {std::string{},
          std::string{"."},
          std::string{".."},
          std::string{"../x"},
          std::string{"a/b"},
          std::string{"a\\b"},
          std::string{"C:x"},
          std::string{"a\0b", 3},
          long_one}) {
        CHECK_THROWS_AS(w.broker->queue<int>(name), railmq::system_error);
    }
    w.broker->queue<int>("A").producer().send(1);
    w.broker->queue<int>("a").producer().send(2);
    w.broker->queue<int>("con").producer().send(3);
    w.kill_and_open();
    CHECK(w.values_in("A") == std::vector{1});
    CHECK(w.values_in("a") == std::vector{2});
    CHECK(w.values_in("con") == std::vector{3});
    CHECK(
        w.broker->names() ==
        std::vector<std::string>{"A", "A.dead", "a", "a.dead", "con", "con.dead"});
}

TEST_CASE("a second broker is refused, with the owner's process") {
    world w;
    railmq::simulation sim{2};
    CHECK_THROWS_WITH(
        (railmq::sim_broker{sim, w.disk.directory()}),
        Catch::Contains(std::to_string(simulated_disk::process_id)));
    w.broker.reset();
    CHECK_NOTHROW(railmq::sim_broker{sim, w.disk.directory()});
}

TEST_CASE("a queue is reopened as what it was") {
    world w;
    (void)w.broker->queue<int>("q", {.max_length = 10, .ack_timeout = 5s});
    w.kill_and_open();
    const auto code_of = [](auto&& f) {
        try {
            f();
        } catch (const railmq::system_error& e) {
            return e.code();
        }
        return error_code{};
    };
    CHECK(code_of([&] { (void)w.broker->queue<std::string>("q"); }) == errc::type_mismatch);
    CHECK(code_of([&] {
              (void)w.broker->queue<int>("q", {.max_length = 11});
          }) == errc::options_mismatch);
    CHECK(code_of([&] {
              (void)w.broker->queue<std::unique_ptr<int>>("p");
          }) == errc::invalid_argument);
    CHECK(w.broker->queue<int>("q").options().max_length == 10);
    CHECK(
        w.broker->queue<int>("q", {.max_length = 10, .ack_timeout = 5s}).options().ack_timeout ==
        5s);
    CHECK(w.broker->find_queue<int>("q.dead").has_value());
    CHECK_FALSE(w.broker->find_queue<int>("p").has_value());
}

TEST_CASE("a deleted queue stays deleted, opened or not") {
    world w;
    w.broker->queue<int>("a").producer().send(1);
    w.broker->queue<int>("b").producer().send(2);
    w.broker->delete_queue("a");
    w.broker->sync();
    w.kill_and_open();
    CHECK(w.broker->names() == std::vector<std::string>{"a.dead", "b", "b.dead"});
    w.broker->delete_queue("b");
    w.broker->sync();
    w.kill_and_open();
    CHECK(w.broker->names() == std::vector<std::string>{"a.dead", "b.dead"});
    CHECK(w.values_in("a").empty());
    CHECK(w.broker->queue<int>("a").producer().send(5).id == 0); // another queue of that name
}

TEST_CASE("purged, redriven and released is what it is after a restart as well") {
    world w;
    auto q = w.broker->queue<int>("q");
    for (int i = 0; i < 6; ++i) {
        q.producer().send(i);
    }
    {
        auto c = q.consumer();
        c.try_receive()->reject();
        c.try_receive()->reject();
        c.try_receive()->release();
    }
    auto dead = w.broker->queue<int>("q.dead");
    CHECK(dead.redrive(q) == 2);
    w.broker->sync();
    w.kill_and_open();
    CHECK(w.values_in("q.dead").empty());
    CHECK(w.values_in("q") == std::vector{2, 3, 4, 5, 0, 1});
    CHECK(w.broker->queue<int>("q").purge() == 6);
    w.broker->sync();
    w.kill_and_open();
    CHECK(w.values_in("q").empty());
}

namespace {
struct recipe {
    std::string text{};
};
} // namespace
template <>
struct railmq::codec<recipe> {
    static inline bool breaks = false;
    static void encode(const recipe& r, std::vector<std::byte>& out) {
        if (r.text == "secret") {
            throw std::runtime_error{"never written down"};
        }
        codec<std::string>::encode(r.text, out);
    }
    static std::optional<recipe> decode(std::span<const std::byte> in) {
        auto text = codec<std::string>::decode(in);
        if (breaks && text->starts_with("old")) {
            if (text == "old and worse") {
                throw std::runtime_error{"cannot read that"};
            }
            return std::nullopt;
        }
        return recipe{std::move(*text)};
    }
    static std::string_view name() { return "recipe"; }
};

TEST_CASE("what cannot be decoded any more is a dead letter, and nothing else suffers") {
    world w;
    {
        auto p = w.broker->queue<recipe>("recipes").producer();
        p.send(recipe{"old"}, {.key = "k"});
        p.send(recipe{"new"});
        p.send(recipe{"old and worse"});
    }
    w.broker.reset();
    railmq::codec<recipe>::breaks = true;
    w.open();
    auto q = w.broker->queue<recipe>("recipes");
    auto c = q.consumer();
    CHECK(c.try_receive()->value().text == "new");
    CHECK_FALSE(c.try_receive());
    auto aside = w.broker->queue<railmq::bytes>("recipes.undecodable");
    const auto bad = aside.peek(10);
    REQUIRE(bad.size() == 2);
    CHECK(bad[0].value.view() == "old");
    CHECK(bad[0].properties.key == "k");
    CHECK(bad[0].deaths[0].reason == railmq::death_reason::undecodable);
    CHECK(bad[1].value.view() == "old and worse");
    railmq::codec<recipe>::breaks = false;
    w.close_and_open();
    CHECK(w.broker->queue<recipe>("recipes").stats().ready == 0);
    CHECK(w.broker->queue<railmq::bytes>("recipes.undecodable").stats().ready == 2);
}

TEST_CASE("what cannot be encoded is refused, and nothing has changed") {
    world w;
    auto q = w.broker->queue<recipe>("recipes");
    CHECK_THROWS_WITH(q.producer().send(recipe{"secret"}), "never written down");
    CHECK(q.stats().ready == 0);
    q.producer().send(recipe{"tea"});
    CHECK(q.stats().ready == 1);
}

TEST_CASE("a journal stays as short as what is in it, with a message that nobody takes") {
    world w{
        {.durability = durability::accepted,
         .journal = {.segment_bytes = 32 << 10, .headroom_bytes = 4 << 10}}};
    for (int run = 0; run < 8; ++run) {
        w.broker->queue<int>("stuck").producer().send(run);
        auto q = w.broker->queue<std::string>("busy");
        auto p = q.producer();
        auto c = q.consumer();
        for (int i = 0; i < 2000; ++i) {
            p.send(std::string(100, 'x'));
            c.try_receive()->ack();
        }
        if (run % 2 == 0) {
            w.broker->sync();
            w.kill_and_open();
        } else {
            w.close_and_open();
        }
        CHECK(w.disk.used() < 400'000); // of 400,000 a run
        CHECK(w.broker->recovery().segments < 12);
    }
    CHECK(w.values_in("stuck") == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("a batch is acknowledged in one record for many, whatever its size") {
    world w;
    auto q = w.broker->queue<int>("q");
    std::vector<int> values(300);
    REQUIRE(q.producer().send_batch(values) == 300);
    auto c = q.consumer({.prefetch = 1000});
    auto other = q.consumer();
    auto held = c.receive_batch(299, 0s);
    REQUIRE(held.size() == 299);
    auto kept = other.try_receive();
    held.insert(held.begin() + 150, std::move(*kept)); // another consumer's in the middle
    CHECK(ack_all(held) == 300);
    CHECK(q.stats().in_flight == 0);
    w.broker->sync();
    w.kill_and_open();
    CHECK(w.values_in("q").empty());
}

TEST_CASE("a lease that is lost does not keep its batch from being acknowledged") {
    world w;
    auto q = w.broker->queue<int>("q", {.ack_timeout = 10s});
    REQUIRE(q.producer().send_batch(std::vector{1, 2, 3}) == 3);
    auto c = q.consumer();
    auto held = c.receive_batch(3, 0s);
    REQUIRE(held.size() == 3);
    REQUIRE(held[0].extend(1h));
    REQUIRE(held[2].extend(1h));
    w.sim.advance(10s);
    auto thief = q.consumer();
    auto stolen = thief.try_receive();
    REQUIRE(stolen);
    CHECK(stolen->value() == 2);
    CHECK(ack_all(held) == 2);
    CHECK(stolen->ack());
    CHECK(q.stats().in_flight == 0);
}

TEST_CASE("the number of a message that came and went at once is not given again") {
    world w;
    auto q = w.broker->queue<int>("q");
    std::uint64_t gone = 0;
    {
        auto c = q.consumer({.ack_mode = railmq::ack_mode::on_delivery});
        int seen = 0;
        c.async_receive([&](error_code ec, railmq::sim_delivery<int> d) {
            REQUIRE_FALSE(ec);
            seen = *d;
        });
        gone = q.producer().send(7).id; // straight to the one who waits
        w.sim.run_ready();
        CHECK(seen == 7);
    }
    w.broker->sync();
    w.kill_and_open();
    CHECK(w.values_in("q").empty());
    CHECK(w.broker->queue<int>("q").producer().send(8).id > gone);
}

TEST_CASE("opening a queue that is beyond its length drops nobody") {
    world w;
    auto q = w.broker->queue<int>(
        "q", {.max_length = 2, .overflow = railmq::overflow_policy::drop_oldest});
    q.producer().send(1, {.delay = 1s});
    q.producer().send(2);
    q.producer().send(3);
    {
        auto c = q.consumer();
        c.try_receive()->release(); // out of line from now on
    }
    w.sim.advance(1s); // what was delayed is not asked whether there is room
    REQUIRE(w.values_in("q") == std::vector{2, 3, 1});
    for (int i = 0; i < 2; ++i) {
        w.close_and_open();
        CHECK(w.values_in("q") == std::vector{2, 3, 1});
    }
    CHECK(w.values_in("q.dead").empty());
}
