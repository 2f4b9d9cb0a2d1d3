// SPDX-License-Identifier: BSL-1.0
//
// A broker that keeps what it has, for tests of what outlives its process.
#pragma once

#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace railmq::test {

/// A broker on a disk, in a simulation, which can be ended in any way and opened again.
struct kept_world {
    explicit kept_world(broker_options o = {})
        : options{std::move(o)} {
        options.observer = [this](const notice& n) { notices.push_back(n); };
        open();
    }
    void open() { broker.emplace(sim, disk.directory(), options); }
    void kill_and_open() {
        disk.end_process();
        broker.reset();
        open();
    }
    void cut_power_and_open() {
        disk.crash();
        broker.reset();
        open();
    }
    void close_and_open() {
        broker.reset();
        open();
    }
    /// In any of these ways.
    void end(int how) {
        how == 0 ? close_and_open() : how == 1 ? kill_and_open() : cut_power_and_open();
    }

    broker_options options;
    simulation sim{1};
    storage::simulated_disk disk{1};
    std::vector<notice> notices{};
    std::optional<sim_broker> broker{};
};

} // namespace railmq::test
