// SPDX-License-Identifier: BSL-1.0
//
// Consume, transform, produce over logs: readings of sensors come in, alarms go out, and how far
// the work has come is committed with them, in one transaction. The power is cut again and again.
// At the end each reading that is too hot has exactly one alarm, and no reader has ever seen one
// that was taken back.
#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <cstdint>
#include <iostream>
#include <map>
#include <string>

namespace {

constexpr int readings = 200;

/// One life of the service: works until the disk fails, at the nth call. True: it has done all.
bool work(railmq::storage::simulated_disk& disk, std::uint64_t nth) {
    railmq::simulation sim{1};
    railmq::sim_broker broker{sim, disk.directory()};
    auto in = broker.log<int>("readings", {.partitions = 2});
    auto alarms = broker.log<std::string>("alarms").producer();
    disk.fail_from(railmq::storage::disk_operation::any, nth, boost::system::errc::io_error);
    auto member = in.consumer({.group = "watch"});
    for (;;) {
        auto batch = member.receive_batch(5, std::chrono::seconds{0});
        if (batch.empty()) {
            return true;
        }
        auto tx = broker.begin();
        for (auto& d : batch) {
            if (*d % 7 == 0) {
                tx.send(alarms, std::string{*d.key()}, "too hot: " + std::to_string(*d));
            }
            tx.ack(d); // its position moves with the alarm, or not at all
        }
        railmq::error_code ec;
        tx.commit(ec);
        if (ec) {
            return false;
        }
    }
}

} // namespace

int main() {
    railmq::storage::simulated_disk disk{1};
    {
        railmq::simulation sim{1};
        railmq::sim_broker broker{sim, disk.directory()};
        auto producer = broker.log<int>("readings", {.partitions = 2}).producer();
        for (int n = 0; n < readings; ++n) {
            producer.send("sensor-" + std::to_string(n % 5), n);
        }
    }
    int cuts = 0;
    // The disk fails after a while, each time a little later.
    for (std::uint64_t nth = 2; !work(disk, nth); ++nth) {
        ++cuts;
        disk.heal();
        disk.crash();
    }
    disk.heal();

    railmq::simulation sim{1};
    railmq::sim_broker broker{sim, disk.directory()};
    std::map<std::string, int> times;
    auto reader = broker.log<std::string>("alarms").consumer();
    while (auto d = reader.try_receive()) {
        ++times[**d];
    }
    bool once = true;
    for (const auto& [alarm, n] : times) {
        once = once && n == 1;
    }
    std::cout << (cuts > 3 ? "many" : "few") << " power cuts, " << times.size() << " alarms, "
              << (once ? "each once" : "some twice") << "\n";
    return cuts > 3 && once && times.size() == (readings + 6) / 7 ? 0 : 1;
}
