// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_rows.hpp>
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::core;
using railmq::errc;
using railmq::queue_options;
using plain = single_threaded;
using kind = message_change::kind;
using rows = std::vector<std::pair<std::uint64_t, std::uint64_t>>; ///< First id, and how many.

namespace {

/// A payload that knows how many there are.
struct counted {
    explicit counted(int n)
        : value{n} {
        ++alive;
    }
    counted(counted&& other) noexcept
        : value{other.value} {
        ++alive;
    }
    counted& operator=(counted&&) = delete;
    ~counted() { --alive; }
    int value;
    static inline int alive = 0;
};

/// Nothing has left but where a test says so.
struct source final : payload_source<plain> {
    bool bring_back(place<plain>) noexcept override { return true; }
    [[nodiscard]] bool has_all() const noexcept override { return !is_away; }
    bool is_away = false;
};

/// A queue of which a journal hears, and one consumer.
struct bench {
    explicit bench(queue_options o = {}, std::size_t memory = 1 << 20)
        : budget{memory}
        , machine{"q", payload_ops_of<counted>::value, std::move(o), budget, 1, false, true} {
        machine.read_payloads_from(payloads);
        machine.open(holder, now, fx);
    }
    ~bench() { finish(); }

    /// What its skin does behind each call.
    void finish() {
        for (const auto& e : fx.endings) {
            machine.end_payloads(e);
            machine.free_ended(e);
        }
        fx.endings.clear();
        fx.changes.clear();
    }
    std::size_t store(int n, errc expected = {}, int throws_at = -1) {
        ends.clear();
        bytes.assign(static_cast<std::size_t>(2 * n), std::byte{7});
        for (int i = 1; i <= n; ++i) {
            ends.push_back(static_cast<std::size_t>(2 * i));
        }
        encoded = {bytes, ends};
        const auto make = [&](std::size_t i, void* at) {
            if (static_cast<int>(i) == throws_at) {
                throw std::runtime_error{"no value"};
            }
            ::new (at) counted(next_value);
            ++next_value;
        };
        errc failed{};
        const std::size_t stored = machine.store_row(encoded, make, now, fx, failed);
        CHECK(failed == expected);
        return stored;
    }
    void send_with_properties() {
        auto props = std::make_unique<railmq::properties>();
        props->key = "k";
        alignas(counted) std::byte space[sizeof(counted)];
        auto* at = ::new (static_cast<void*>(space)) counted(next_value++);
        std::uint64_t id = 0;
        REQUIRE(machine.send(at, props, now, fx, id) == errc{});
    }
    std::vector<lease<plain>> take(std::uint64_t max) {
        std::vector<lease<plain>> out;
        runs.clear();
        const auto n = machine.take_some(holder, max, now, fx, [&](const auto& l, std::uint32_t c) {
            runs.push_back(c);
            for_each_in_row(l, c, [&](const auto& one) { out.push_back(one); });
        });
        CHECK(n == out.size());
        return out;
    }
    [[nodiscard]] int value(const lease<plain>& l) {
        return static_cast<const counted*>(machine.store().payload({l.in, l.at}))->value;
    }
    [[nodiscard]] rows listed(kind what) const {
        rows all;
        for (const auto& c : fx.changes) {
            if (c.what == what) {
                all.emplace_back(c.id, c.count);
            }
        }
        return all;
    }

    memory_budget<plain> budget;
    source payloads{};
    queue_machine<plain> machine;
    lease_holder<plain> holder{};
    effects<plain> fx{false, true};
    railmq::time_point now{1s};
    std::vector<std::byte> bytes{};
    std::vector<std::size_t> ends{};
    encoded_row encoded{};
    std::vector<std::uint32_t> runs{};
    int next_value = 0;
};

} // namespace

TEST_CASE("A row of encoded payloads knows where each is") {
    const std::vector<std::byte> bytes(9);
    const std::vector<std::size_t> ends{2, 5, 9};
    const encoded_row row{bytes, ends};
    CHECK(row.of(0, 1).size() == 2);
    CHECK(row.of(1, 2).data() == bytes.data() + 2);
    CHECK(row.of(1, 2).size() == 7);
    CHECK(row.of(2, 0).empty());
}

TEST_CASE("Plain messages are stored, handed out and acknowledged as one change each") {
    {
        bench b;
        b.holder.prefetch.store(1'000);
        // More than a chunk has, so that a row goes over the end of one.
        const int n = static_cast<int>(b.machine.ring().chunk_capacity()) + 10;
        REQUIRE(b.store(n) == static_cast<std::size_t>(n));
        const auto all = static_cast<std::uint64_t>(n);
        REQUIRE(b.fx.changes.size() == 2); // one for each chunk
        CHECK(b.fx.changes[0].row == &b.encoded);
        CHECK(b.fx.changes[0].row_from == 0);
        CHECK(b.fx.changes[1].row_from == b.fx.changes[0].count);
        CHECK(b.fx.changes[0].count + b.fx.changes[1].count == all);
        CHECK(b.machine.stats().ready == all);
        b.finish();

        const auto leases = b.take(1'000);
        REQUIRE(leases.size() == all);
        CHECK(b.runs.size() == 2);
        CHECK(b.value(leases.front()) == 0);
        CHECK(b.value(leases.back()) == n - 1);
        CHECK(b.listed(kind::changed) == rows{{0, all}});
        CHECK(b.holder.held() == all);
        CHECK(b.machine.next_due(b.now) == b.now + 30s);
        b.finish();

        CHECK(b.machine.ack_row(leases, b.fx) == all);
        b.machine.on_settled(b.holder, b.now, b.fx);
        CHECK(b.listed(kind::gone) == rows{{0, all}});
        CHECK(b.fx.endings.size() == 2);
        CHECK(counted::alive == n); // they end once the lock is released
        b.finish();
        CHECK(counted::alive == 0);
        CHECK(b.machine.stats().acked == all);
        CHECK(b.machine.stats().in_flight == 0);
        CHECK(b.machine.next_due(b.now) == railmq::never);
        b.machine.trim(100);
    }
    CHECK(counted::alive == 0);
}

TEST_CASE("What is special ends a row, and is treated alone") {
    bench b;
    REQUIRE(b.store(3) == 3);
    b.send_with_properties();
    REQUIRE(b.store(2) == 2);
    b.finish();

    auto leases = b.take(10);
    REQUIRE(leases.size() == 6);
    CHECK(b.runs == std::vector<std::uint32_t>{3, 1, 2});
    for (int i = 0; i != 6; ++i) {
        CHECK(b.value(leases[static_cast<std::size_t>(i)]) == i);
    }
    b.finish();

    CHECK(b.machine.ack_row(leases, b.fx) == 3);
    CHECK(b.machine.settle(leases[3], {}, b.now, b.fx));
    CHECK(b.machine.ack_row(std::span{leases}.subspan(4), b.fx) == 2);
    CHECK(b.listed(kind::gone) == rows{{0, 3}, {3, 3}});
    CHECK(b.machine.stats().acked == 6);

    SECTION("a lease that is over is none") {
        CHECK(b.machine.ack_row(leases, b.fx) == 0);
        CHECK(b.machine.stats().acked == 6);
    }
}

TEST_CASE("A lost lease is not acknowledged in a row") {
    bench b;
    REQUIRE(b.store(3) == 3);
    auto leases = b.take(3);
    CHECK(b.machine.settle(leases[1], {settlement::kind::nack, 0s, {}}, b.now, b.fx));
    CHECK(b.machine.ack_row(leases, b.fx) == 1);
    CHECK(b.machine.ack_row(std::span{leases}.subspan(1), b.fx) == 0);
    CHECK(b.machine.ack_row(std::span{leases}.subspan(2), b.fx) == 1);
    const auto again = b.take(3); // it was returned: no row
    REQUIRE(again.size() == 1);
    CHECK(again[0].word.tag() == 2);
}

TEST_CASE("Limits end a row") {
    SECTION("of messages") {
        bench b{{.max_length = 5}};
        CHECK(b.store(7, errc::queue_full) == 5);
        CHECK(b.machine.stats().refused == 0); // it may wait for room
        CHECK(b.listed(kind::stored) == rows{{0, 5}});
        CHECK(b.take(2).size() == 2);
        CHECK(b.store(7, errc::queue_full) == 2);
    }
    SECTION("of memory") {
        bench b{{}, 20'000};
        const std::size_t stored = b.store(20'000, errc::memory_limit);
        CHECK(stored % b.machine.ring().chunk_capacity() == 0);
        CHECK(stored != 0);
        CHECK(b.machine.stats().ready == stored);
        CHECK(b.machine.stats().refused == 1);
    }
    SECTION("of what a consumer may hold") {
        bench b;
        b.holder.prefetch.store(4);
        REQUIRE(b.store(9) == 9);
        CHECK(b.take(9).size() == 4);
        CHECK(b.take(9).empty());
    }
}

TEST_CASE("Where each message needs a look there are no rows") {
    SECTION("bytes are counted") {
        bench b{{.max_bytes = 1'000}};
        CHECK(b.store(2) == 0);
    }
    SECTION("they expire") {
        bench b{{.time_to_live = 1s}};
        CHECK(b.store(2) == 0);
    }
    SECTION("the oldest make room") {
        bench b{{.max_length = 5, .overflow = railmq::overflow_policy::drop_oldest}};
        CHECK(b.store(2) == 0);
    }
    SECTION("somebody listens") {
        bench b;
        b.fx.listening = true;
        CHECK(b.store(2) == 0);
    }
    SECTION("payloads are away") {
        bench b;
        b.payloads.is_away = true;
        REQUIRE(b.store(3) == 3);
        CHECK(b.take(3).size() == 3);
        CHECK(b.runs == std::vector<std::uint32_t>{1, 1, 1});
    }
    SECTION("the order is strict") {
        bench b{{.order = railmq::delivery_order::strict}};
        REQUIRE(b.store(3) == 3);
        CHECK(b.take(3).size() == 1);
    }
}

TEST_CASE("A value that cannot be made leaves those before it, and a hole") {
    bench b;
    b.finish();
    CHECK_THROWS_AS(b.store(5, {}, 2), std::runtime_error);
    CHECK(b.listed(kind::stored) == rows{{0, 2}});
    CHECK(b.machine.stats().ready == 2);
    CHECK(b.machine.stats().accepted == 2);
    CHECK(counted::alive == 2);
    REQUIRE(b.store(1) == 1);
    const auto leases = b.take(10);
    REQUIRE(leases.size() == 3);
    CHECK(b.value(leases[2]) == 2);
    CHECK(b.machine.ack_row(leases, b.fx) == 3);
    b.finish();
    CHECK(counted::alive == 0);
}
