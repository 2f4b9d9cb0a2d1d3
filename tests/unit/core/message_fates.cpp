// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_fates.hpp>

#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::time_point;
using railmq::core::settlement;
using single = railmq::core::single_threaded;

namespace {

/// A payload whose move may fail, as a user's may.
struct fragile {
    explicit fragile(int n) : value{n} {}
    fragile(fragile&& other) : value{other.value} {
        if (breaks) {
            throw std::runtime_error{"the move failed"};
        }
    }
    int value;
    static inline bool breaks = false;
};

template <class T>
struct world {
    explicit world(railmq::queue_options o)
        : machine{"q", railmq::core::payload_ops_of<T>::value, std::move(o), budget, 1} {
        machine.open(holder, time_point{}, fx);
    }
    railmq::errc send(T value, std::unique_ptr<railmq::properties> props = nullptr) {
        std::uint64_t id = 0;
        alignas(T) std::byte space[sizeof(T)];
        T* const at = ::new (static_cast<void*>(space)) T(std::move(value));
        try {
            const railmq::errc e = machine.send(at, props, time_point{}, fx, id);
            if (e != railmq::errc{}) {
                std::destroy_at(at);
            }
            return e;
        } catch (...) {
            std::destroy_at(at);
            throw;
        }
    }

    railmq::core::memory_budget<single> budget{1U << 30U};
    railmq::core::effects<single> fx{false};
    railmq::core::lease_holder<single> holder{};
    railmq::core::queue_machine<single> machine;
};

} // namespace

TEST_CASE("a send whose move fails stores nothing and leaves no gap for consumers") {
    world<fragile> w{{}};
    REQUIRE(w.send(fragile{1}) == railmq::errc{});
    fragile second{2};
    fragile::breaks = true;
    {
        std::unique_ptr<railmq::properties> props;
        std::uint64_t id = 0;
        REQUIRE_THROWS_AS(
            w.machine.send(&second, props, time_point{}, w.fx, id), std::runtime_error);
    }
    fragile::breaks = false;
    REQUIRE(w.machine.stats().accepted == 1);
    REQUIRE(w.machine.ready_count() == 1);
    REQUIRE(w.send(fragile{3}) == railmq::errc{});
    railmq::core::lease<single> l;
    std::vector<int> seen;
    while (w.machine.take(w.holder, time_point{}, w.fx, l)) {
        seen.push_back(static_cast<fragile*>(w.machine.ring().payload(l.at))->value);
        REQUIRE(w.machine.settle(l, {}, time_point{}, w.fx));
    }
    REQUIRE(seen == std::vector<int>{1, 3});
}

TEST_CASE("a dead message stays until somebody has taken it over") {
    world<int> w{{.retry = {.max_attempts = 1}}};
    REQUIRE(w.send(5) == railmq::errc{});
    railmq::core::lease<single> l;
    REQUIRE(w.machine.take(w.holder, time_point{}, w.fx, l));
    REQUIRE(w.machine.settle(l, {settlement::kind::nack, {}, {}}, time_point{}, w.fx));
    REQUIRE(w.fx.has_dying);
    REQUIRE(w.machine.stats().delayed == 1);
    const auto dying = w.machine.next_dying();
    REQUIRE(dying.has_value());
    REQUIRE(dying->reason == railmq::death_reason::max_attempts);
    w.machine.postpone_death(*dying, time_point{});
    REQUIRE_FALSE(w.machine.next_dying().has_value());
    const time_point again = w.machine.next_due(time_point{});
    REQUIRE(again > time_point{});
    REQUIRE(again < railmq::never);
    w.machine.run_due(again, w.fx);
    const auto once_more = w.machine.next_dying();
    REQUIRE(once_more.has_value());
    using machine_type = railmq::core::queue_machine<single>;
    w.machine.finish_death(*once_more, machine_type::fate::discarded, true, again, w.fx);
    REQUIRE(w.machine.stats().dropped == 1);
    REQUIRE(w.machine.is_idle(false, again));
}
