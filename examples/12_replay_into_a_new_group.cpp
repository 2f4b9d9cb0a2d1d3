// SPDX-License-Identifier: BSL-1.0
//
// A service that is added later reads everything from the beginning, while the one that was there
// goes on where it is; and when a fault was found, its group is set back and does its work again.
#include <railmq/railmq.hpp>

#include <cstdint>
#include <iostream>
#include <map>
#include <string>

namespace {

struct payment {
    std::string account;
    int cents = 0;
};

/// Sums up what its group has not read yet.
std::map<std::string, int> sum_up(railmq::log_consumer<payment>& payments) {
    std::map<std::string, int> sums;
    while (auto record = payments.try_receive()) {
        sums[std::string{record->key().value()}] += record->value().cents;
        record->ack();
    }
    return sums;
}

void print(const char* who, const std::map<std::string, int>& sums) {
    std::cout << who << ":";
    for (const auto& [account, cents] : sums) {
        std::cout << ' ' << account << '=' << cents;
    }
    std::cout << '\n';
}

} // namespace

int main() {
    railmq::broker broker;
    const auto log = broker.log<payment>("payments", {.partitions = 2});
    auto producer = log.producer();
    const auto pay = [&](const std::string& account, int cents) {
        producer.send(account, payment{account, cents});
    };

    pay("ada", 100);
    pay("bob", 50);
    {
        auto billing = log.consumer({.group = "billing"});
        print("billing", sum_up(billing));
    } // leaves the group; what it did is committed

    pay("ada", 7);

    // A new group: everything from the beginning.
    auto audit = log.consumer({.group = "audit"});
    print("audit", sum_up(audit));

    // The old group: only what is new.
    {
        auto billing = log.consumer({.group = "billing"});
        print("billing", sum_up(billing));
    }

    // Its sums were wrong: it goes back and does it again.
    for (std::uint32_t p = 0; p < log.partitions(); ++p) {
        log.reset_offset("billing", p, log.start_offset(p));
    }
    std::cout << "billing has " << log.lag("billing").value() << " to do again\n";
    auto billing = log.consumer({.group = "billing"});
    print("billing", sum_up(billing));
}
