// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/single_threaded.hpp>
#include <railmq/core/slot_ring.hpp>
#include <railmq/runtime/threaded.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

using railmq::core::slot_state;
using railmq::core::slot_word;
using plain = railmq::core::single_threaded;
using ring_type = railmq::core::slot_ring<plain>;
using budget_type = railmq::core::memory_budget<plain>;
using claim_status = ring_type::claim_status;
using take_status = ring_type::take_status;

namespace {

/// So large that a chunk has eight slots.
struct large {
    std::array<char, 1'900> bytes{};
};

constexpr std::uint32_t chunk_slots = 8;

/// A ring, and what a producer and a consumer of it remember.
template <class Sync>
struct basic_fixture {
    using ring_of = railmq::core::slot_ring<Sync>;

    explicit basic_fixture(std::size_t limit = std::numeric_limits<std::size_t>::max())
        : budget{limit}
        , ring{railmq::core::payload_ops_of<large>::value, budget} {}

    [[nodiscard]] static std::uint64_t no_limit() { return ring_of::no_limit; }

    /// Claims one position on the fast path, adding a chunk where the lock would be taken.
    std::uint64_t claim_one() {
        std::uint64_t sequence = 0;
        std::uint32_t n = 0;
        while (ring.try_claim(1, no_limit(), producer, sequence, n) != ring_of::claim_status::ok) {
            REQUIRE(ring.add_chunk(false));
        }
        return sequence;
    }
    void publish(std::uint64_t sequence) {
        ring.claimed(sequence)->store(slot_word{slot_state::ready});
    }
    std::uint64_t send() {
        const std::uint64_t n = claim_one();
        publish(n);
        return n;
    }
    auto take(std::uint32_t max) { return take(max, consumer); }
    auto take(std::uint32_t max, typename ring_of::consumer_cache& cache) {
        typename ring_of::taken_run run;
        const auto status = ring.try_take(
            max, cache, run, railmq::core::slot_stride(sizeof(large), alignof(large)));
        first = run.first;
        count = run.count;
        return status;
    }
    void lease(std::uint64_t from, std::uint32_t n) {
        for (std::uint64_t i = from; i < from + n; ++i) {
            auto* at = ring.locate(i).at;
            at->store(at->load().leased_to(1));
        }
    }
    void finish(std::uint64_t from, std::uint64_t n = 1) {
        for (std::uint64_t i = from; i < from + n; ++i) {
            ring.locate(i).at->store(slot_word{slot_state::done});
        }
    }

    railmq::core::memory_budget<Sync> budget;
    ring_of ring;
    typename ring_of::producer_cache producer{};
    typename ring_of::consumer_cache consumer{};
    std::uint64_t first = 0;
    std::uint32_t count = 0;
};
using fixture = basic_fixture<plain>;

} // namespace

TEST_CASE("slot_ring: chunks of about 16 KiB, never fewer than 8 slots or more than 256") {
    budget_type budget{std::numeric_limits<std::size_t>::max()};
    CHECK(fixture{}.ring.chunk_capacity() == chunk_slots);
    CHECK(ring_type{railmq::core::payload_ops_of<int>::value, budget}.chunk_capacity() == 256);
    using huge = std::array<char, 100'000>;
    CHECK(ring_type{railmq::core::payload_ops_of<huge>::value, budget}.chunk_capacity() == 8);
}

TEST_CASE("slot_ring: a payload is aligned as its type asks") {
    struct alignas(32) wide {
        char c;
    };
    budget_type budget{std::numeric_limits<std::size_t>::max()};
    ring_type ring{railmq::core::payload_ops_of<wide>::value, budget};
    REQUIRE(ring.add_chunk(false));
    for (std::uint64_t i = 0; i < ring.chunk_capacity(); ++i) {
        CHECK(reinterpret_cast<std::uintptr_t>(ring.payload(ring.locate(i).at)) % 32 == 0);
    }
}

TEST_CASE("slot_ring: nothing can be claimed before there is a chunk") {
    fixture f;
    CHECK(
        f.ring.try_claim(1, f.no_limit(), f.producer, f.first, f.count) == claim_status::no_chunk);
    CHECK(f.take(1) == take_status::empty);
    CHECK(f.ring.in_line() == 0);
    CHECK(f.ring.memory_bytes() == 0);
    REQUIRE(f.ring.add_chunk(false));
    CHECK(f.ring.memory_bytes() == f.budget.used());
    CHECK(f.ring.try_claim(1, f.no_limit(), f.producer, f.first, f.count) == claim_status::ok);
    CHECK(f.first == 0);
    CHECK(f.count == 1);
}

TEST_CASE("slot_ring: a claim takes as many positions as the chunks have") {
    fixture f;
    REQUIRE(f.ring.add_chunk(false));
    REQUIRE(f.ring.try_claim(5, f.no_limit(), f.producer, f.first, f.count) == claim_status::ok);
    CHECK(f.count == 5);
    REQUIRE(f.ring.try_claim(5, f.no_limit(), f.producer, f.first, f.count) == claim_status::ok);
    CHECK(f.first == 5);
    CHECK(f.count == 3);
    CHECK(
        f.ring.try_claim(5, f.no_limit(), f.producer, f.first, f.count) == claim_status::no_chunk);
    REQUIRE(f.ring.add_chunk(false));
    REQUIRE(f.ring.add_chunk(false));
    REQUIRE(f.ring.try_claim(20, f.no_limit(), f.producer, f.first, f.count) == claim_status::ok);
    CHECK(f.count == 16); // one claim may span chunks
    CHECK(f.ring.tail() == 24);
}

TEST_CASE("slot_ring: a length limit, with a cache that lags behind") {
    fixture f;
    REQUIRE(f.ring.add_chunk(false));
    REQUIRE(f.ring.try_claim(2, 3, f.producer, f.first, f.count) == claim_status::ok);
    REQUIRE(f.ring.try_claim(2, 3, f.producer, f.first, f.count) == claim_status::ok);
    CHECK(f.count == 1); // what is left below the limit
    CHECK(f.ring.try_claim(1, 3, f.producer, f.first, f.count) == claim_status::full);
    for (std::uint64_t n = 0; n < 3; ++n) {
        f.publish(n);
    }
    REQUIRE(f.take(2) == take_status::ok);
    REQUIRE(f.ring.try_claim(9, 3, f.producer, f.first, f.count) == claim_status::ok);
    CHECK(f.first == 3);
    CHECK(f.count == 2);
    // A second producer, whose cache knows nothing yet.
    ring_type::producer_cache other;
    CHECK(f.ring.try_claim(1, 3, other, f.first, f.count) == claim_status::full);
}

TEST_CASE("slot_ring: takes runs of what is published, within one chunk") {
    fixture f;
    for (int i = 0; i < 10; ++i) {
        f.claim_one();
    }
    CHECK(f.take(4) == take_status::empty); // claimed, and not published
    f.publish(1);
    CHECK(f.take(4) == take_status::empty); // the first is missing
    f.publish(0);
    REQUIRE(f.take(1) == take_status::ok);
    CHECK(f.first == 0);
    CHECK(f.count == 1);
    REQUIRE(f.take(4) == take_status::ok);
    CHECK(f.first == 1);
    CHECK(f.count == 1); // the one behind is not published
    for (std::uint64_t n = 2; n < 10; ++n) {
        f.publish(n);
    }
    REQUIRE(f.take(100) == take_status::ok);
    CHECK(f.first == 2);
    CHECK(f.count == 6); // up to the end of the chunk
    REQUIRE(f.take(100) == take_status::ok);
    CHECK(f.first == 8);
    CHECK(f.count == 2);
    CHECK(f.consumer.base == 8);
    CHECK(f.take(1) == take_status::empty);
    CHECK(f.ring.in_line() == 0);
}

TEST_CASE("slot_ring: while a gate is set, only the lock's holder moves its position") {
    fixture f;
    f.send();
    f.ring.set_tail_gate(true);
    f.ring.set_tail_gate(true);
    CHECK(f.ring.try_claim(1, f.no_limit(), f.producer, f.first, f.count) == claim_status::gated);
    CHECK(f.ring.tail() == 1); // the gate is not part of it
    std::uint64_t sequence = 0;
    ring_type::slot_type* at = nullptr;
    REQUIRE(f.ring.claim(false, sequence, at));
    CHECK(sequence == 1);
    CHECK(at == f.ring.locate(1).at);
    at->store(slot_word{slot_state::ready});
    CHECK(f.ring.try_claim(1, f.no_limit(), f.producer, f.first, f.count) == claim_status::gated);
    f.ring.set_tail_gate(false);
    CHECK(f.ring.try_claim(1, f.no_limit(), f.producer, f.first, f.count) == claim_status::ok);

    CHECK_FALSE(f.ring.next_gate());
    f.ring.set_next_gate(true);
    CHECK(f.ring.next_gate());
    CHECK(f.take(1) == take_status::gated);
    CHECK(f.ring.next() == 0);
    f.ring.pass_next();
    CHECK(f.ring.next() == 1);
    CHECK(f.take(1) == take_status::gated);
    f.ring.set_next_gate(false);
    REQUIRE(f.take(5) == take_status::ok);
    CHECK(f.first == 1);
    CHECK(f.count == 1);
}

TEST_CASE("slot_ring: a claim in the lock adds chunks by itself") {
    fixture f;
    std::uint64_t sequence = 0;
    ring_type::slot_type* at = nullptr;
    for (std::uint64_t n = 0; n < 3 * chunk_slots; ++n) {
        REQUIRE(f.ring.claim(false, sequence, at));
        CHECK(sequence == n);
        CHECK(at == f.ring.locate(n).at);
        CHECK(at->load().state() == slot_state::empty);
    }
    CHECK_FALSE(f.ring.locate(3 * chunk_slots));
}

TEST_CASE("slot_ring: holes are passed over and not counted") {
    fixture f;
    f.send();
    const std::uint64_t hole = f.claim_one();
    f.ring.publish_hole(f.ring.claimed(hole));
    f.send();
    CHECK(f.ring.in_line() == 2);
    CHECK(f.ring.unused() == 1);
    REQUIRE(f.take(10) == take_status::ok);
    CHECK(f.count == 1); // a run ends at a hole
    REQUIRE(f.take(10) == take_status::ok);
    CHECK(f.first == 2);
    CHECK(f.ring.in_line() == 0);
    CHECK(f.ring.unused() == 1);

    f.send();
    f.send();
    f.ring.set_next_gate(true); // one that leaves from the middle of the line
    f.ring.locate(3).at->store(slot_word{slot_state::settling});
    f.ring.add_hole();
    CHECK(f.ring.in_line() == 1);
    f.ring.pass_next();
    f.ring.forget_hole();
    f.ring.set_next_gate(false);
    CHECK(f.ring.in_line() == 1);
    REQUIRE(f.take(10) == take_status::ok);
    CHECK(f.first == 4);
    CHECK(f.ring.unused() == 1); // it had held a message
}

TEST_CASE("slot_ring: a line of nothing but holes is empty") {
    fixture f;
    for (int i = 0; i < 20; ++i) {
        const std::uint64_t n = f.claim_one();
        f.ring.publish_hole(f.ring.claimed(n));
    }
    CHECK(f.ring.in_line() == 0);
    CHECK(f.take(1) == take_status::empty);
    CHECK(f.ring.next() == 20);
}

TEST_CASE("slot_ring: chunks are used again once everything in them has left") {
    fixture f;
    for (int round = 0; round < 200; ++round) {
        for (std::uint32_t i = 0; i < chunk_slots; ++i) {
            f.send();
        }
        REQUIRE(f.take(chunk_slots) == take_status::ok);
        REQUIRE(f.count == chunk_slots);
        f.finish(f.first, f.count);
    }
    const std::size_t two_chunks = f.ring.memory_bytes();
    for (int round = 0; round < 200; ++round) {
        for (std::uint32_t i = 0; i < chunk_slots; ++i) {
            f.send();
        }
        REQUIRE(f.take(chunk_slots) == take_status::ok);
        f.finish(f.first, f.count);
    }
    CHECK(f.ring.memory_bytes() == two_chunks);
    CHECK(f.budget.used() == two_chunks);
    CHECK_FALSE(f.ring.locate(0)); // long gone
    CHECK(f.ring.skip_reclaimed(0) >= 390 * chunk_slots);
}

TEST_CASE("slot_ring: a message that is held for ever does not keep later chunks from being used") {
    fixture f;
    std::uint64_t stuck = 0;
    std::size_t peak = 0;
    for (std::uint64_t n = 0; n < 1'000; ++n) {
        f.send();
        REQUIRE(f.take(1) == take_status::ok);
        f.lease(f.first, 1);
        if (f.first == 3) {
            stuck = f.first;
        } else {
            f.finish(f.first);
        }
        peak = std::max(peak, f.ring.memory_bytes());
    }
    REQUIRE(stuck == 3);
    fixture reference;
    REQUIRE(reference.ring.add_chunk(false));
    CHECK(peak <= 12 * reference.ring.memory_bytes());
    const auto p = f.ring.locate(stuck); // still where it was
    REQUIRE(p);
    CHECK(p.at->load().state() == slot_state::leased);
    CHECK(p.in->sequence_of(p.at) == stuck);
    CHECK(f.ring.skip_reclaimed(0) == 0);
    CHECK(f.ring.skip_reclaimed(chunk_slots) > chunk_slots); // the chunks behind it have gone
    CHECK_FALSE(f.ring.locate(chunk_slots));

    const std::size_t before = f.ring.memory_bytes();
    f.finish(stuck);
    for (std::uint32_t n = 0; n < 4 * chunk_slots; ++n) {
        f.send();
        REQUIRE(f.take(1) == take_status::ok);
        f.finish(f.first);
    }
    CHECK_FALSE(f.ring.locate(stuck)); // its chunk is used again
    CHECK(f.ring.memory_bytes() == before);
}

TEST_CASE("slot_ring: a slot that an old handle may read keeps its chunk") {
    fixture f;
    for (std::uint32_t i = 0; i < chunk_slots; ++i) {
        f.send();
    }
    REQUIRE(f.take(chunk_slots) == take_status::ok);
    f.finish(0, chunk_slots);
    f.ring.locate(5).at->store(slot_word{slot_state::done}.with_pins(1));
    for (int i = 0; i < 5; ++i) {
        f.ring.reclaim();
    }
    CHECK(f.ring.locate(5));
    f.ring.locate(5).at->store(slot_word{slot_state::done});
    f.ring.reclaim();
    CHECK_FALSE(f.ring.locate(5));
}

TEST_CASE("slot_ring: several stuck chunks, released in any order") {
    fixture f;
    const std::uint64_t stuck[] = {1, 17, 33, 49};
    for (std::uint64_t n = 0; n < 400; ++n) {
        f.send();
        REQUIRE(f.take(1) == take_status::ok);
        if (f.first != 1 && f.first != 17 && f.first != 33 && f.first != 49) {
            f.finish(f.first);
        }
    }
    for (const std::uint64_t n : stuck) {
        CHECK(f.ring.locate(n));
    }
    f.finish(33);
    f.ring.reclaim();
    CHECK_FALSE(f.ring.locate(33));
    CHECK(f.ring.locate(17));
    CHECK(f.ring.locate(49));
    CHECK(f.ring.skip_reclaimed(33) == 48);
    f.finish(1);
    f.finish(49);
    f.ring.reclaim();
    CHECK_FALSE(f.ring.locate(1));
    CHECK(f.ring.locate(17));
    CHECK_FALSE(f.ring.locate(49));
}

TEST_CASE("slot_ring: the directory grows with a backlog, and every position stays found") {
    fixture f;
    constexpr std::uint64_t messages = 3'000; // 375 chunks; a directory starts with 16
    for (std::uint64_t n = 0; n < messages; ++n) {
        CHECK(f.send() == n);
    }
    for (std::uint64_t n = 0; n < messages; ++n) {
        REQUIRE(f.ring.claimed(n) == f.ring.locate(n).at);
    }
    CHECK(f.ring.in_line() == messages);
    std::uint64_t taken = 0;
    while (f.take(3) == take_status::ok) {
        REQUIRE(f.first == taken);
        taken += f.count;
        f.finish(f.first, f.count);
    }
    CHECK(taken == messages);
    std::vector<std::uint64_t> bases;
    f.ring.for_each_chunk([&](ring_type::chunk_type& c) { bases.push_back(c.base); });
    CHECK(std::is_sorted(bases.begin(), bases.end()));
}

TEST_CASE("slot_ring: the memory limit refuses, and force passes it") {
    fixture probe;
    REQUIRE(probe.ring.add_chunk(false));
    const std::size_t chunk = probe.ring.memory_bytes();

    fixture f{2 * chunk + 10};
    CHECK(f.ring.add_chunk(false));
    CHECK(f.ring.add_chunk(false));
    CHECK_FALSE(f.ring.add_chunk(false));
    CHECK(f.budget.used() == 2 * chunk);
    std::uint64_t sequence = 0;
    ring_type::slot_type* at = nullptr;
    for (std::uint32_t n = 0; n < 2 * chunk_slots; ++n) {
        REQUIRE(f.ring.claim(false, sequence, at));
        at->store(slot_word{slot_state::ready});
    }
    CHECK_FALSE(f.ring.claim(false, sequence, at));
    CHECK(f.ring.tail() == 2 * chunk_slots); // nothing has changed
    CHECK(f.ring.claim(true, sequence, at));
    CHECK(sequence == 2 * chunk_slots);
    CHECK(f.budget.used() == 3 * chunk);
    CHECK(f.ring.make_aside(99, false) == nullptr);
    auto* aside = f.ring.make_aside(99, true);
    REQUIRE(aside != nullptr);
    CHECK(aside->aside);
    CHECK(aside->sequence_of(aside->at(0)) == 99);
    CHECK(f.budget.used() == 3 * chunk + f.ring.aside_bytes());
    f.ring.free_aside(aside);
    CHECK(f.budget.used() == 3 * chunk);
}

TEST_CASE("slot_ring: everything goes back to the budget") {
    budget_type budget{std::numeric_limits<std::size_t>::max()};
    {
        ring_type ring{railmq::core::payload_ops_of<large>::value, budget};
        for (int i = 0; i < 5; ++i) {
            REQUIRE(ring.add_chunk(false));
        }
        CHECK(budget.used() != 0);
    }
    CHECK(budget.used() == 0);
}

TEST_CASE("slot_ring: trim gives back what a burst has left, but not what a consumer looks at") {
    fixture f;
    for (std::uint64_t n = 0; n < 100 * chunk_slots; ++n) {
        f.send();
    }
    const std::size_t peak = f.ring.memory_bytes();
    REQUIRE(f.take(1) == take_status::ok);
    auto* looked_at = f.consumer.in;
    CHECK(f.consumer.hazard.load() == looked_at);
    f.finish(f.first);
    ring_type::consumer_cache other;
    while (f.take(chunk_slots, other) == take_status::ok) {
        f.finish(f.first, f.count);
    }
    f.ring.reclaim();
    CHECK(f.ring.memory_bytes() == peak); // all of it is spare now
    f.ring.trim([&](auto&& visit) {
        visit(f.consumer.hazard.load());
        visit(other.hazard.load());
    });
    CHECK(f.ring.memory_bytes() < peak / 10);
    CHECK(f.budget.used() == f.ring.memory_bytes());
    // The first consumer's view is old, and leads it to the right place nevertheless.
    const std::uint64_t n = f.send();
    REQUIRE(f.take(1) == take_status::ok);
    CHECK(f.first == n);
    const std::size_t small = f.ring.memory_bytes();
    f.ring.trim([](auto&&) {});
    CHECK(f.ring.memory_bytes() == small); // little enough to keep
}

TEST_CASE("slot_ring: a chunk is added only where no place is left") {
    fixture f;
    CHECK_FALSE(f.ring.has_places());
    f.send();
    CHECK(f.ring.has_places());
    for (std::uint32_t i = 1; i < chunk_slots; ++i) {
        CHECK(f.ring.has_places());
        f.send();
    }
    CHECK_FALSE(f.ring.has_places());
}

TEST_CASE("slot_ring: chunks are taken back one at a time where one is needed") {
    fixture f;
    for (std::uint32_t i = 0; i < 4 * chunk_slots; ++i) {
        f.send();
    }
    for (std::uint32_t i = 0; i < 4; ++i) {
        REQUIRE(f.take(chunk_slots) == take_status::ok);
        f.finish(f.first, f.count);
    }
    const std::size_t before = f.ring.memory_bytes();
    f.send(); // in a chunk that was used before
    CHECK_FALSE(f.ring.locate(0));
    CHECK(f.ring.locate(chunk_slots)); // the next is still there
    CHECK(f.ring.memory_bytes() == before);
    f.ring.reclaim(1);
    CHECK_FALSE(f.ring.locate(chunk_slots));
    CHECK(f.ring.locate(2 * chunk_slots));
    f.ring.reclaim();
    CHECK_FALSE(f.ring.locate(3 * chunk_slots));
    CHECK(f.ring.memory_bytes() == before);
}

TEST_CASE("slot_ring: it says which chunk will be filled next, where another thread takes") {
    using concurrent_fixture = basic_fixture<railmq::threaded>;
    using status = concurrent_fixture::ring_of::take_status;
    concurrent_fixture f;
    const std::size_t stride = railmq::core::slot_stride(sizeof(large), alignof(large));
    const auto upcoming = [&](std::uint64_t n) {
        return static_cast<const void*>(f.ring.upcoming(n, stride));
    };
    const auto take_a_chunk = [&] {
        REQUIRE(f.take(chunk_slots) == status::ok);
        f.finish(f.first, f.count);
    };
    const auto take_elsewhere = [&] {
        auto got = status::empty;
        std::thread{[&] { got = f.take(chunk_slots); }}.join();
        REQUIRE(got == status::ok);
        f.finish(f.first, f.count);
    };
    f.send();
    CHECK(upcoming(3) == f.ring.locate(3).at); // nothing is clear yet: its own
    for (std::uint32_t i = 1; i < 2 * chunk_slots; ++i) {
        f.send();
    }
    take_elsewhere();
    CHECK(f.consumer.is_far);
    const void* const first_chunk = f.ring.locate(3).at;
    const std::uint64_t n = f.send(); // the first chunk is filled again; the second is in use
    CHECK(f.ring.locate(n + 3).at == first_chunk);
    CHECK(upcoming(n + 3) == first_chunk);
    take_a_chunk();
    CHECK_FALSE(f.consumer.is_far);
    const void* const second_chunk = f.ring.locate(chunk_slots + 3).at;
    for (std::uint32_t i = 1; i <= chunk_slots; ++i) {
        f.send();
    }
    CHECK(f.ring.locate(n + chunk_slots + 3).at == second_chunk);
    CHECK(upcoming(n + 3) == nullptr); // one thread sends and takes: nothing has to be fetched
}

TEST_CASE("slot_ring: slots far enough behind the tail can be fetched ahead") {
    using concurrent = railmq::core::slot_ring<railmq::threaded>;
    railmq::core::memory_budget<railmq::threaded> budget{std::size_t{1} << 30};
    concurrent ring{railmq::core::payload_ops_of<int>::value, budget};
    concurrent::producer_cache producer;
    concurrent::consumer_cache consumer;
    REQUIRE(ring.add_chunk(false));
    const std::uint32_t capacity = ring.chunk_capacity();
    REQUIRE(capacity == 256);
    const auto stride = railmq::core::slot_stride(sizeof(int), alignof(int));
    std::uint64_t first = 0;
    std::uint32_t count = 0;
    const auto send = [&](std::uint32_t n) {
        REQUIRE(
            ring.try_claim(n, concurrent::no_limit, producer, first, count) ==
            concurrent::claim_status::ok);
        REQUIRE(count == n);
        for (std::uint32_t i = 0; i < n; ++i) {
            ring.claimed(first + i)->store(slot_word{slot_state::ready});
        }
    };
    const auto take = [&](std::uint32_t n) {
        concurrent::taken_run run;
        REQUIRE(ring.try_take(n, consumer, run, stride) == concurrent::take_status::ok);
        REQUIRE(run.count == n);
        return ring.filled_ahead(consumer, run.first, run.count);
    };
    send(100);
    CHECK(take(32) == 32); // 32 to 63 are there, and 68 is as far as is certain
    CHECK(take(32) == 4);  // of 64 to 95
    send(156);
    CHECK(take(32) == 32);
    CHECK(take(1) == 1); // 8 ahead, of what was asked for before
    CHECK(take(63) == 63);
    CHECK(take(32) == 32); // up to 223, which is as far as is certain, and the chunk's last quarter
    CHECK(take(64) == 0);  // nothing behind it in this chunk
}
