// SPDX-License-Identifier: BSL-1.0
//
// Included before a test that knows nothing of it, this gives its brokers a disk: a simulated one in
// a simulation, real files otherwise. What a queue promises in memory it promises there.
#pragma once

#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/scratch_directory.hpp"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace railmq {

namespace on_disk {

/// What the broker's base needs before it.
struct simulated_place {
    std::unique_ptr<storage::simulated_disk> disk = std::make_unique<storage::simulated_disk>(1);
};
struct real_place {
    std::unique_ptr<test::scratch_directory> directory = std::make_unique<test::scratch_directory>();
};

/// Small segments, so that the upkeep has something to do; the tests are of what queues do, not of
/// what survives, so nobody waits for a sync.
[[nodiscard]] inline broker_options with_journal(broker_options o) {
    o.durability = durability::accepted;
    o.journal = {.segment_bytes = 16 << 10, .headroom_bytes = 4 << 10};
    return o;
}

/// A type that has no bytes is kept in memory.
template <class Base, class Memory>
struct broker_of_two : Base {
    using Base::Base;
    template <class T>
    [[nodiscard]] auto queue(std::string_view name) {
        return of<T>().template queue<T>(name);
    }
    template <class T>
    [[nodiscard]] auto queue(std::string_view name, const queue_options& o) {
        return of<T>().template queue<T>(name, o);
    }
    template <class T>
    [[nodiscard]] auto find_queue(std::string_view name) {
        return of<T>().template find_queue<T>(name);
    }
    template <class T>
    [[nodiscard]] auto log(std::string_view name, const log_options& o = {}) {
        return of<T>().template log<T>(name, o);
    }
    template <class T>
    [[nodiscard]] auto find_log(std::string_view name) {
        return of<T>().template find_log<T>(name);
    }
    template <class T>
    [[nodiscard]] auto topic(std::string_view name, const topic_options& o = {}) {
        return of<T>().template topic<T>(name, o);
    }
    template <class T>
    [[nodiscard]] auto find_topic(std::string_view name) {
        return of<T>().template find_topic<T>(name);
    }
    template <class T>
    [[nodiscard]] Base& of() {
        if constexpr (encodable<T>) {
            return *this;
        } else {
            return *memory;
        }
    }
    std::unique_ptr<Base> memory{};
};

} // namespace on_disk

class sim_broker_on_disk : on_disk::simulated_place,
                           public on_disk::broker_of_two<sim_broker, sim_broker> {
public:
    explicit sim_broker_on_disk(simulation& sim, broker_options o = {})
        : broker_of_two{sim, disk->directory(), on_disk::with_journal(o)} {
        memory = std::make_unique<sim_broker>(sim, std::move(o));
    }
};

class broker_on_disk : on_disk::real_place, public on_disk::broker_of_two<broker, broker> {
public:
    explicit broker_on_disk(broker_options o = {})
        : broker_of_two{in(on_disk::with_journal(o))} {
        memory = std::make_unique<broker>(std::move(o));
    }

private:
    [[nodiscard]] broker_options in(broker_options o) const {
        o.directory = directory->path + "/broker";
        return o;
    }
};

} // namespace railmq

#define sim_broker sim_broker_on_disk
#define broker broker_on_disk
