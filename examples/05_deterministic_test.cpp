// SPDX-License-Identifier: BSL-1.0
//
// How to test what happens when a consumer dies between the work and the ack: in a simulation it
// is one line, it happens every time, and no test sleeps. The code under test is a template of
// the queue, so that the same code runs with `railmq::queue` in production.

#include <railmq/railmq.hpp>

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string_view>

using namespace std::chrono_literals;

namespace {

struct payment {
    std::uint64_t id;
    int cents;
};

/// Code under test: takes money, at most once for each payment.
class cashier {
public:
    void charge(const payment& p) {
        if (charged_.insert(p.id).second) {
            balance_ += p.cents;
        }
    }
    /// The usual loop: the work, then the ack.
    void work(auto& consumer) {
        while (auto d = consumer.try_receive()) {
            charge(d->value());
            d->ack();
        }
    }
    [[nodiscard]] int balance() const { return balance_; }

private:
    std::set<std::uint64_t> charged_;
    int balance_ = 0;
};

bool failed = false;

void check(std::string_view what, bool holds) {
    fmt::print("{} {}\n", holds ? "ok  " : "FAIL", what);
    failed = failed || !holds;
}

void test_consumer_dies_between_work_and_ack() {
    railmq::simulation sim{42};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<payment>("payments");
    q.producer().send(payment{1, 500});
    cashier c;

    auto first = q.consumer();
    auto held = first.try_receive();
    c.charge(held->value());
    first.close(); // dies here, after the work and before the ack

    auto second = q.consumer();
    check("the payment is back at once", q.stats().ready == 1);
    c.work(second);
    check("it was handed out twice", q.stats().handed_out == 2);
    check("and charged once", c.balance() == 500);
    check("the dead consumer's ack changes nothing", !held->ack());
    check("nothing is left", q.stats().acked == 1 && q.stats().ready == 0);
}

void test_consumer_hangs() {
    railmq::simulation sim{42};
    railmq::sim_broker broker{sim};
    auto q = broker.queue<payment>("payments", {.ack_timeout = 30s});
    q.producer().send(payment{1, 500});
    cashier c;

    auto first = q.consumer();
    auto second = q.consumer();
    auto held = first.try_receive();
    c.charge(held->value());

    sim.advance(30s - 1ns);
    check("a nanosecond before the deadline nobody else gets it", !second.try_receive());
    sim.advance(1ns);
    auto again = second.try_receive();
    check("at the deadline somebody does", again && again->redelivered());
    c.charge(again->value());
    check("the first ack is too late", !held->ack());
    check("the second counts", again->ack());
    check("charged once", c.balance() == 500);
}

} // namespace

int main() {
    test_consumer_dies_between_work_and_ack();
    test_consumer_hangs();
    return failed ? 1 : 0;
}
