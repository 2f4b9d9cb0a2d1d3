// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/death.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::death;
using railmq::death_history;
using railmq::death_reason;
using railmq::time_point;

namespace {

constexpr time_point at(railmq::duration since_start) {
    return time_point{since_start};
}

constexpr std::array all_reasons{
    death_reason::rejected,
    death_reason::permanent_error,
    death_reason::max_attempts,
    death_reason::max_stalls,
    death_reason::max_crashes,
    death_reason::max_elapsed,
    death_reason::expired,
    death_reason::dropped_oldest,
    death_reason::refused,
    death_reason::undecodable};

void die(
    death_history& history,
    std::string_view queue,
    death_reason reason,
    railmq::duration when = {}) {
    history.record({.queue = std::string{queue}, .reason = reason, .last_at = at(when)});
}

std::string numbered(std::size_t n) {
    std::string name{"q"};
    name.append(std::to_string(n)); // g++ 12 warns of "q" + to_string(n), for no reason
    return name;
}

/// "queue/reason/count", newest first: the part of a history that most tests are about.
std::vector<std::string> lines(const death_history& history) {
    std::vector<std::string> result;
    for (const death& entry : history.entries()) {
        std::string line = entry.queue;
        line.append("/").append(to_string(entry.reason));
        line.append("/").append(std::to_string(entry.count));
        result.push_back(std::move(line));
    }
    return result;
}

using text = std::vector<std::string>;

} // namespace

TEST_CASE("history: one entry per queue and reason, newest first [L13]", "[L13]") {
    death_history history;
    CHECK(history.empty());
    CHECK_FALSE(history.first());

    history.record(
        {.queue = "orders",
         .reason = death_reason::rejected,
         .last_at = at(1s),
         .detail = "no such drink",
         .routing_key = "drinks.hot",
         .delivery_count = 2,
         .failure_count = 1,
         .message_id = 7});
    REQUIRE(history.entries().size() == 1);
    const death& only = history.entries().front();
    CHECK(only.count == 1);
    CHECK(only.first_at == at(1s));
    CHECK(only.last_at == at(1s));
    CHECK(only.detail == "no such drink");
    CHECK(only.routing_key == "drinks.hot");
    CHECK(only.delivery_count == 2);
    CHECK(only.failure_count == 1);
    CHECK(only.message_id == 7);

    die(history, "orders.dead", death_reason::expired, 2s);
    die(history, "orders", death_reason::expired, 3s);
    CHECK(lines(history) == text{"orders/expired/1", "orders.dead/expired/1", "orders/rejected/1"});
    CHECK_FALSE(history.empty());
}

TEST_CASE("history: the first death never changes [L13]", "[L13]") {
    death_history history;
    die(history, "a", death_reason::expired, 1s);
    const railmq::first_death first{.queue = "a", .reason = death_reason::expired, .at = at(1s)};
    REQUIRE(history.first() == first);
    die(history, "b", death_reason::rejected, 2s);
    die(history, "a", death_reason::expired, 3s);
    die(history, "a", death_reason::rejected, 4s);
    CHECK(history.first() == first);
    for (std::size_t i = 0; i < 100; ++i) {
        die(history, numbered(i), death_reason::expired, 5s);
    }
    CHECK(history.first() == first);
}

TEST_CASE("history: rejected twice from q, one entry, first time kept [E26]", "[E26]") {
    death_history history;
    history.record(
        {.queue = "q",
         .reason = death_reason::rejected,
         .last_at = at(10s),
         .detail = "first",
         .routing_key = "key.1",
         .delivery_count = 1,
         .failure_count = 0,
         .message_id = 1});
    die(history, "retry", death_reason::expired, 15s);
    history.record(
        {.queue = "q",
         .reason = death_reason::rejected,
         .last_at = at(20s),
         .detail = "second",
         .routing_key = "key.2",
         .delivery_count = 3,
         .failure_count = 2,
         .message_id = 9});
    REQUIRE(lines(history) == text{"q/rejected/2", "retry/expired/1"});
    const death& entry = history.entries().front();
    CHECK(entry.first_at == at(10s));
    CHECK(entry.last_at == at(20s));
    CHECK(entry.routing_key == "key.1");
    CHECK(entry.detail == "second");
    CHECK(entry.delivery_count == 3);
    CHECK(entry.failure_count == 2);
    CHECK(entry.message_id == 9);
}

TEST_CASE("history: what the caller says of count and first time is not believed") {
    death_history history;
    history.record({.queue = "q", .count = 40, .first_at = at(-9s), .last_at = at(1s)});
    CHECK(history.entries().front().count == 1);
    CHECK(history.entries().front().first_at == at(1s));
    history.record({.queue = "q", .count = 40, .first_at = at(-9s), .last_at = at(2s)});
    CHECK(history.entries().front().count == 2);
    CHECK(history.entries().front().first_at == at(1s));
}

TEST_CASE("history: ten deaths around four queues, counts 1, 1, 1, 9 [L14]", "[L14]") {
    // Rejected once in each of three queues on its way in, then nine times in the last one.
    death_history history;
    for (const std::string_view queue : {"a", "b", "c"}) {
        die(history, queue, death_reason::rejected);
    }
    for (int round = 0; round < 9; ++round) {
        die(history, "d", death_reason::rejected);
    }
    CHECK(lines(history) == text{"d/rejected/9", "c/rejected/1", "b/rejected/1", "a/rejected/1"});
}

TEST_CASE("history: a thousand rounds do not make it grow [L14]", "[L14]") {
    death_history history;
    for (int round = 0; round < 1'000; ++round) {
        for (const std::string_view queue : {"a", "b", "c", "d"}) {
            die(history, queue, death_reason::rejected);
        }
    }
    CHECK(
        lines(history) ==
        text{"d/rejected/1000", "c/rejected/1000", "b/rejected/1000", "a/rejected/1000"});
}

TEST_CASE("cycle: a queue whose dead letters return to itself [L10]", "[L10]") {
    for (const death_reason reason : {death_reason::expired, death_reason::dropped_oldest}) {
        death_history history;
        CHECK_FALSE(history.is_cycle("q"));
        die(history, "q", reason);
        CHECK(history.is_cycle("q"));
        CHECK_FALSE(history.is_cycle("other"));
    }
}

TEST_CASE("cycle: A to B and back by expiry ends at A, with a reject goes on [E25]", "[E25]") {
    death_history expiring;
    die(expiring, "a", death_reason::expired);
    CHECK_FALSE(expiring.is_cycle("b"));
    die(expiring, "b", death_reason::expired);
    CHECK(expiring.is_cycle("a"));

    death_history rejecting;
    for (std::uint64_t round = 1; round <= 3; ++round) {
        die(rejecting, "a", death_reason::rejected);
        CHECK(rejecting.entries().front().count == round);
        CHECK_FALSE(rejecting.is_cycle("b"));
        die(rejecting, "b", death_reason::expired);
        CHECK(rejecting.entries().front().count == round);
        CHECK_FALSE(rejecting.is_cycle("a"));
    }
}

TEST_CASE("cycle: a retry ladder of fifty rounds, each counted [L11] [BR11]", "[L11][BR11]") {
    death_history history;
    for (std::uint64_t round = 1; round <= 50; ++round) {
        die(history, "work", death_reason::rejected);
        REQUIRE_FALSE(history.is_cycle("wait"));
        die(history, "wait", death_reason::expired);
        REQUIRE_FALSE(history.is_cycle("work"));
    }
    CHECK(lines(history) == text{"wait/expired/50", "work/rejected/50"});
}

TEST_CASE("cycle: reject, expire, expire works twice, whatever the names [L12]", "[L12]") {
    std::vector<std::string> names{"a2", "a3", "b"};
    do {
        death_history history;
        for (int round = 0; round < 2; ++round) {
            die(history, names[0], death_reason::rejected);
            CHECK_FALSE(history.is_cycle(names[1]));
            die(history, names[1], death_reason::expired);
            CHECK_FALSE(history.is_cycle(names[2]));
            die(history, names[2], death_reason::expired);
            CHECK_FALSE(history.is_cycle(names[0]));
        }
    } while (std::next_permutation(names.begin(), names.end()));
}

TEST_CASE("cycle: a reject from before the last visit does not excuse the loop") {
    death_history history;
    die(history, "a", death_reason::rejected);
    die(history, "b", death_reason::expired);
    CHECK_FALSE(history.is_cycle("a"));
    die(history, "c", death_reason::expired);
    // From b to c and back to b nobody has rejected anything.
    CHECK(history.is_cycle("b"));
    CHECK(history.is_cycle("c"));
    CHECK_FALSE(history.is_cycle("a"));
}

TEST_CASE("cycle: a permanent error is as good as a reject, the broker's own limits are not") {
    const std::set<death_reason> by_the_application{
        death_reason::rejected, death_reason::permanent_error};
    for (const death_reason reason : all_reasons) {
        death_history history;
        die(history, "q", reason);
        CAPTURE(to_string(reason));
        CHECK(is_explicit(reason) == (by_the_application.count(reason) == 1));
        CHECK(history.is_cycle("q") == !is_explicit(reason));
    }
}

TEST_CASE("cycle: two queues that expire into each other and themselves end [BR11]", "[BR11]") {
    const std::vector<std::string> queues{"q1", "q2"};
    const auto targets = [](const std::string& queue) {
        return queue == "q1" ? text{"q2", "q1"} : text{"q1"};
    };
    struct copy {
        std::string queue;
        death_history history;
    };
    std::vector<copy> alive{{"q1", {}}};
    int hops = 0;
    while (!alive.empty() && hops < 100) {
        copy message = alive.back();
        alive.pop_back();
        die(message.history, message.queue, death_reason::expired);
        for (const std::string& target : targets(message.queue)) {
            if (!message.history.is_cycle(target)) {
                ++hops;
                alive.push_back({target, message.history});
            }
        }
    }
    CHECK(hops == 1);
}

TEST_CASE("history: bounded, and a way that is longer than it ends") {
    death_history history;
    for (std::size_t i = 0; i < death_history::max_entries; ++i) {
        die(history, numbered(i), death_reason::expired);
    }
    CHECK(history.entries().size() == death_history::max_entries);
    CHECK_FALSE(history.is_cut());
    CHECK(history.is_cycle("q0"));
    CHECK_FALSE(history.is_cycle("new"));

    // A known queue and reason needs no new place.
    die(history, "q0", death_reason::expired);
    CHECK_FALSE(history.is_cut());

    die(history, "one more", death_reason::expired);
    CHECK(history.is_cut());
    CHECK(history.entries().size() == death_history::max_entries);
    CHECK(lines(history).front() == "one more/expired/1");
    CHECK(lines(history).back() == "q2/expired/1");
    CHECK(history.is_cycle("q1"));
    CHECK(history.is_cycle("new"));
    die(history, "one more", death_reason::rejected);
    CHECK_FALSE(history.is_cycle("new"));
}

TEST_CASE("history: details are cut at 512 bytes, between characters") {
    const auto kept = [](std::string detail) {
        death_history history;
        history.record({.queue = "q", .detail = std::move(detail)});
        return history.entries().front().detail;
    };
    CHECK(kept(std::string(512, 'x')) == std::string(512, 'x'));
    CHECK(kept(std::string(513, 'x')) == std::string(512, 'x'));
    CHECK(kept(std::string(100'000, 'x')).size() == 512);

    const std::string euro = "\xe2\x82\xac";
    CHECK(kept(std::string(509, 'x') + euro + "y") == std::string(509, 'x') + euro);
    CHECK(kept(std::string(510, 'x') + euro) == std::string(510, 'x'));
    CHECK(kept(std::string(511, 'x') + euro) == std::string(511, 'x'));
    const std::string treble_clef = "\xf0\x9d\x84\x9e";
    CHECK(kept(std::string(509, 'x') + treble_clef) == std::string(509, 'x'));

    // Not text at all: cut where the limit is.
    CHECK(kept(std::string(600, '\x80')) == std::string(512, '\x80'));
}

TEST_CASE("history: is given back as it was stored") {
    death_history history;
    for (std::size_t i = 0; i < 40; ++i) {
        die(history, numbered(i), death_reason::expired, 1s * static_cast<int>(i));
    }
    const death_history again{history.entries(), history.first(), history.is_cut()};
    CHECK(again == history);
    CHECK(again.is_cut());
    CHECK(again.first()->queue == "q0");

    std::vector<death> surplus(death_history::max_entries + 1);
    CHECK(
        death_history{surplus, std::nullopt, false}.entries().size() == death_history::max_entries);
    CHECK(death_history{surplus, std::nullopt, false}.is_cut());
}

TEST_CASE("death_reason: a name each, numbers for ever") {
    std::set<std::string_view> names;
    std::uint8_t number = 1;
    for (const death_reason reason : all_reasons) {
        CHECK(static_cast<std::uint8_t>(reason) == number++);
        names.insert(to_string(reason));
    }
    CHECK(names.size() == all_reasons.size());
    CHECK(names.count("unknown death reason") == 0);
    CHECK(to_string(death_reason::max_attempts) == "max attempts");
    CHECK(to_string(static_cast<death_reason>(99)) == "unknown death reason");
}
