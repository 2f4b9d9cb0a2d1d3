// SPDX-License-Identifier: BSL-1.0
//
// Consume, transform, produce, as one: the bill and the receipt are sent and the order is
// acknowledged in a transaction. Whenever the power is cut, all three have happened or none, so
// orders, bills and receipts always add up. The same for a handler, which is given the transaction.

#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>

namespace {

bool failed = false;

void check(const char* what, bool holds) {
    fmt::print("{} {}\n", holds ? "ok  " : "FAIL", what);
    failed = failed || !holds;
}

constexpr int orders = 20;

/// One life of the shop: works until the disk fails, at the nth call. True: it lived to the end.
bool work(railmq::storage::simulated_disk& disk, std::uint64_t nth) {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim, disk.directory()};
    auto in = broker.queue<int>("orders");
    auto bills = broker.queue<int>("bills").producer();
    auto receipts = broker.queue<int>("receipts").producer();
    disk.fail_from(railmq::storage::disk_operation::any, nth, boost::system::errc::io_error);
    auto consumer = in.consumer();
    while (auto order = consumer.try_receive()) {
        const int price = order->value() * 3;
        auto tx = broker.begin();
        tx.send(bills, price);
        tx.send(receipts, price);
        tx.ack(*order);
        railmq::error_code ec;
        tx.commit(ec);
        if (ec) {
            disk.crash(); // the power goes
            return false;
        }
    }
    return true;
}

void test_power_cuts() {
    railmq::storage::simulated_disk disk{1};
    {
        railmq::simulation sim{1};
        railmq::sim_broker broker{sim, disk.directory()};
        auto producer =
            broker.queue<int>("orders", {.retry = {.max_attempts = 0, .max_crashes = 0}})
                .producer();
        for (int i = 1; i <= orders; ++i) {
            producer.send(i);
        }
    }
    int cuts = 0;
    bool adds_up = true;
    // The disk fails after a while, each time a little later.
    for (std::uint64_t nth = 2; !work(disk, nth); ++nth) {
        ++cuts;
        disk.heal();
        railmq::simulation sim{1};
        railmq::sim_broker broker{sim, disk.directory()};
        const auto left = broker.queue<int>("orders").stats();
        const auto bills = broker.queue<int>("bills").stats().ready;
        const auto receipts = broker.queue<int>("receipts").stats().ready;
        adds_up = adds_up && bills == receipts && left.ready + left.delayed + bills == orders;
    }
    disk.heal();
    fmt::print("{} power cuts\n", cuts);
    check("after each of them orders, bills and receipts added up", adds_up && cuts > 3);
}

void test_handler() {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim};
    auto in = broker.queue<int>(
        "orders", {.retry = {.backoff = railmq::constant_backoff{std::chrono::seconds{1}}}});
    auto out = broker.queue<int>("bills");
    auto bills = out.producer();
    int failures = 1;
    auto handler =
        in.subscribe(sim.get_executor(), [&](const int& order, railmq::sim_transaction& tx) {
            tx.send(bills, order * 3);
            if (failures-- > 0) {
                throw std::runtime_error{"the printer is on fire"}; // then nothing was sent
            }
        });
    in.producer().send(7);
    sim.run_until_idle();
    check("the handler ran twice, and there is one bill", out.stats().ready == 1 && failures == -1);
}

} // namespace

int main() {
    test_power_cuts();
    test_handler();
    return failed ? 1 : 0;
}
