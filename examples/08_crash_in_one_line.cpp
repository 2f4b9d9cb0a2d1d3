// SPDX-License-Identifier: BSL-1.0
//
// How to test what a crash does to your program: on a simulated disk, killing the process is one
// line, and so is a power cut. The consumer dies between the work and the ack, again and again;
// nothing is lost, and a message that kills its process every time is set aside.

#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <set>

namespace {

bool failed = false;

void check(const char* what, bool holds) {
    fmt::print("{} {}\n", holds ? "ok  " : "FAIL", what);
    failed = failed || !holds;
}

/// A process that can die, and the disk that outlives it.
struct machine {
    railmq::simulation sim{42};
    railmq::storage::simulated_disk disk{42};
    std::optional<railmq::sim_broker> broker{};

    void start() { broker.emplace(sim, disk.directory()); }
    void kill() {
        disk.end_process(); // kill -9: what was written stays, what was not is gone
        broker.reset();
    }
    void cut_power() {
        disk.crash(); // what was not synced is lost, or torn, as the seed decides
        broker.reset();
    }
    auto payments() { return broker->queue<int>("payments"); }
};

void test_dies_between_work_and_ack() {
    machine m;
    m.start();
    m.payments().producer().send(500);
    std::set<std::uint64_t> charged; // stands for the bank, which knows each payment's number

    {
        auto consumer = m.payments().consumer();
        auto held = consumer.try_receive();
        charged.insert(held->id());
        m.kill(); // after the work, before the ack
    }
    m.start();
    {
        auto consumer = m.payments().consumer();
        auto again = consumer.try_receive();
        check("the payment comes again", again && again->value() == 500);
        check("says so", again->redelivered());
        check("and has the number that it had", charged.contains(again->id()));
        again->ack();
    }
    m.broker->sync();
    m.cut_power();
    m.start();
    check("once acknowledged and synced it stays away", m.payments().stats().ready == 0);
}

void test_kills_its_process_every_time() {
    machine m;
    m.start();
    m.payments().producer().send(-1);
    m.payments().producer().send(7);
    int crashes = 0;
    for (;;) {
        auto consumer = m.payments().consumer();
        auto d = consumer.try_receive();
        if (d->value() != -1) {
            break; // it was set aside, and the others go on
        }
        m.kill();
        ++crashes;
        m.start();
    }
    check("retry_policy::max_crashes, 3 by default, is the end of it", crashes == 3);
    const auto dead = m.broker->queue<int>("payments.dead").peek();
    check(
        "it is a dead letter with the reason",
        dead.size() == 1 && dead[0].deaths[0].reason == railmq::death_reason::max_crashes);
}

} // namespace

int main() {
    test_dies_between_work_and_ack();
    test_kills_its_process_every_time();
    return failed ? 1 : 0;
}
