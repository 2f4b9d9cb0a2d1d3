// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/effects.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <variant>

using effects_type = railmq::core::effects<railmq::core::single_threaded>;

TEST_CASE("effects: notices are kept only while somebody listens") {
    effects_type deaf{false};
    deaf.note(railmq::notices::acked{});
    CHECK(deaf.notices.empty());
    CHECK_FALSE(deaf.listening);

    effects_type listening{true};
    railmq::notices::purged n{};
    n.count = 3;
    listening.note(n);
    listening.note(railmq::notices::acked{});
    REQUIRE(listening.notices.size() == 2);
    CHECK(std::get<railmq::notices::purged>(listening.notices[0]).count == 3);
    CHECK(std::holds_alternative<railmq::notices::acked>(listening.notices[1]));
}

TEST_CASE("effects: fresh ones ask for nothing") {
    const effects_type fx{true};
    CHECK_FALSE(fx.has_dying);
    CHECK(fx.completed.empty());
    CHECK(fx.endings.empty());
    CHECK(fx.stops.empty());
}
