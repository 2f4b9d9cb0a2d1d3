// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/payload_source.hpp>
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::core;
using railmq::errc;

namespace {

/// Has no payload for those that are named.
struct source final : payload_source<single_threaded> {
    bool bring_back(place<single_threaded> p) noexcept override {
        asked.push_back(p.in->sequence_of(p.at));
        return missing.empty() || asked.back() != missing.back();
    }
    [[nodiscard]] bool has_all() const noexcept override { return false; }
    std::vector<std::uint64_t> asked{};
    std::vector<std::uint64_t> missing{};
};

} // namespace

TEST_CASE("A message whose payload cannot be read waits, and the others go on") {
    memory_budget<single_threaded> budget{1 << 20};
    source payloads;
    queue_machine<single_threaded> m{"q", payload_ops_of<int>::value, {}, budget, 1, false, true};
    m.read_payloads_from(payloads);
    lease_holder<single_threaded> holder;
    railmq::time_point now{1s};
    effects<single_threaded> fx{true, true};
    m.open(holder, now, fx);
    std::vector<std::uint64_t> ids;
    for (int i = 0; i != 3; ++i) {
        std::unique_ptr<railmq::properties> none;
        ids.emplace_back();
        REQUIRE(m.send(&i, none, now, fx, ids.back()) == errc{});
    }
    fx.notices.clear();
    fx.changes.clear();

    payloads.missing = {ids[0]};
    lease<single_threaded> out;
    REQUIRE(m.take(holder, now, fx, out));
    CHECK(payloads.asked == std::vector{ids[0], ids[1]});
    CHECK(m.store().id_of({out.in, out.at}) == ids[1]);
    CHECK(m.stats().delayed == 1);
    CHECK(m.stats().ready == 1);
    CHECK(m.stats().failed == 0);
    REQUIRE(fx.notices.size() == 2);
    REQUIRE(std::holds_alternative<railmq::notices::unreadable>(fx.notices[0]));
    CHECK(railmq::event_of(fx.notices[0]).id == ids[0]);
    REQUIRE(fx.changes.size() == 2); // that it waits is kept, as any wait is
    CHECK(fx.changes[0].what == message_change::kind::changed);

    CHECK(m.next_due(now) == now + 1s);
    now += 1s;
    m.run_due(now, fx);
    payloads.missing.clear();
    REQUIRE(m.take(holder, now, fx, out));
    CHECK(m.store().public_id({out.in, out.at}) == ids[0]); // in its old place, before the third
    CHECK(out.word.tag() == 1);                             // its first time
    REQUIRE(m.settle(out, {}, now, fx));
}
