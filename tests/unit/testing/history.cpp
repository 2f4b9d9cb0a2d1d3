// SPDX-License-Identifier: BSL-1.0
#include <railmq/testing/history.hpp>

#include "support/catch.hpp"
#include "unit/testing/events.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

using namespace railmq::test::events;
using railmq::testing::history;

TEST_CASE("history: keeps events in the order in which they were recorded") {
    history h;
    h.record(sent(1));
    h.record(event_kind::handed_out, {.queue = "q", .message = 1, .consumer = 2});
    h.append({ack(1, 2, 1s), left(5)});
    const auto events = h.events();
    REQUIRE(h.size() == 4);
    CHECK(events[0] == sent(1));
    CHECK(events[1].kind == event_kind::handed_out);
    CHECK(events[1].consumer == 2);
    CHECK(events[2] == ack(1, 2, 1s));
    CHECK(events[3] == left(5));
    CHECK(history{events}.events() == events);
}

TEST_CASE("history: several threads record, and each finds its own events in its own order") {
    constexpr std::uint64_t per_thread = 2'000;
    history h;
    std::vector<std::thread> threads;
    for (std::uint64_t who = 1; who <= 4; ++who) {
        threads.emplace_back([&h, who] {
            for (std::uint64_t n = 0; n < per_thread; ++n) {
                h.record(ack(n, who, 0s));
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    std::map<std::uint64_t, std::uint64_t> next;
    for (const event& e : h.events()) {
        REQUIRE(e.message == next[e.consumer]++);
    }
    CHECK(h.size() == 4 * per_thread);
}

TEST_CASE("history: all kinds have names of their own") {
    std::map<std::string, int> names;
    for (int n = 0; n <= static_cast<int>(event_kind::remaining); ++n) {
        ++names[std::string{to_string(static_cast<event_kind>(n))}];
    }
    CHECK(names.size() == static_cast<std::size_t>(event_kind::remaining) + 1);
    CHECK(names.count(std::string{to_string(static_cast<event_kind>(255))}) == 0);
}
