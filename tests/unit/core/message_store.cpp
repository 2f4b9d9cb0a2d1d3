// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/message_store.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

using railmq::requeue_position;
using railmq::core::message_details;
using railmq::core::slot_state;
using railmq::core::slot_word;
using plain = railmq::core::single_threaded;
using store_type = railmq::core::message_store<plain>;
using place_type = store_type::place_type;

namespace {

struct item {
    explicit item(int v)
        : value{v} {
        ++alive;
    }
    item(item&& other)
        : value{other.value} {
        if (refuses) throw std::runtime_error("moved");
        ++alive;
    }
    item(const item&) = delete;
    item& operator=(const item&) = delete;
    item& operator=(item&&) = delete;
    ~item() { --alive; }
    int value;
    static inline int alive = 0;
    static inline bool refuses = false;
};

struct fixture {
    explicit fixture(
        std::size_t limit = std::numeric_limits<std::size_t>::max(), std::uint32_t priorities = 0)
        : budget{limit}
        , store{railmq::core::payload_ops_of<item>::value, budget, priorities} {
        store.ring().set_next_gate(true); // the lock is always held here
    }

    place_type send(int value) {
        std::uint64_t sequence = 0;
        store_type::ring_type::slot_type* at = nullptr;
        REQUIRE(store.ring().claim(true, sequence, at));
        const place_type p = store.ring().locate(sequence);
        ::new (store.payload(p)) item{value};
        at->store(slot_word{slot_state::ready});
        return p;
    }
    /// Into its level.
    place_type send_urgent(int value, std::uint32_t priority) {
        const place_type p = send(value);
        store.make_details(p).props = std::make_unique<railmq::properties>();
        store.details_of(p)->props->priority = priority;
        store.leave_line();
        return p;
    }
    place_type send_aside(int value) {
        const place_type p = store.new_aside();
        REQUIRE(p);
        ::new (store.payload(p)) item{value};
        p.at->store(slot_word{slot_state::waiting});
        store.make_details(p);
        return p;
    }
    /// Hands out the next one in line.
    place_type take() {
        const place_type p = store.ring().locate(store.ring().next());
        store.ring().pass_next();
        p.at->store(p.at->load().leased_to(1));
        return p;
    }
    void end(place_type p) {
        store.ops().destroy(store.payload(p));
        store.drop_details(p);
        store.free_place(p);
    }
    [[nodiscard]] int value(place_type p) const {
        return static_cast<const item*>(store.payload(p))->value;
    }
    [[nodiscard]] std::vector<int> shown() const {
        std::vector<int> all;
        store.browse([&](place_type p) {
            all.push_back(value(p));
            return true;
        });
        return all;
    }
    /// The order in which all that is ready would be handed out.
    [[nodiscard]] std::vector<int> drained() {
        std::vector<int> all;
        for (;;) {
            place_type p = store.take_returned();
            if (!p) {
                if (store.ring().next() == store.ring().tail()) {
                    return all;
                }
                p = take();
            }
            all.push_back(value(p));
            end(p);
        }
    }

    railmq::core::memory_budget<plain> budget;
    store_type store;
};

using values = std::vector<int>;

} // namespace

TEST_CASE("message_store: a message is found by its id for as long as it is there") {
    fixture f;
    const place_type p = f.send(1);
    CHECK(store_type::id_of(p) == 0);
    CHECK(store_type::public_id(p) == 0);
    CHECK(f.store.locate(0).at == p.at);
    CHECK_FALSE(f.store.locate(5'000));
    CHECK(f.store.is_in_line(p));
    CHECK_FALSE(f.store.is_in_line(f.take()));
}

TEST_CASE("message_store: details are made once, and take over what slot and list told") {
    fixture f;
    f.store.times().add(0, railmq::time_point{railmq::duration{1'234}});
    f.send(1).at->set_enqueued(railmq::time_point{railmq::duration{7}});
    const place_type p = f.take();
    CHECK(store_type::details_of(p) == nullptr);
    CHECK(store_type::enqueued_at(p) == railmq::time_point{railmq::duration{7}});
    message_details& d = f.store.make_details(p);
    CHECK(d.lease_deadline == railmq::time_point{railmq::duration{1'234}});
    CHECK(d.enqueued == railmq::time_point{railmq::duration{7}});
    CHECK(store_type::enqueued_at(p) == railmq::time_point{railmq::duration{7}});
    CHECK(p.at->load().has_details());
    CHECK(&f.store.make_details(p) == &d);
    CHECK(store_type::details_of(p) == &d);
    p.at->store(p.at->load().with_flags(slot_word::slow_bit));
    f.store.drop_details(p);
    CHECK(store_type::details_of(p) == nullptr);
    CHECK_FALSE(p.at->load().is_slow());
    f.store.drop_details(p); // nothing left to drop
}

TEST_CASE("message_store: slots whose messages have left are not looked at twice") {
    fixture f;
    for (int i = 0; i < 2'000; ++i) {
        f.send(i);
    }
    for (int i = 0; i < 1'900; ++i) {
        f.end(f.take());
    }
    CHECK(f.store.settled_through() == 1'900);
    CHECK_FALSE(f.store.ring().locate(0)); // their chunks are free again
    CHECK_FALSE(f.store.ring().locate(1'500));
    CHECK(f.store.settled_through() == 1'900);
    while (f.store.ring().next() != f.store.ring().tail()) {
        f.end(f.take());
    }
    CHECK(f.store.settled_through() == 2'000);
}

TEST_CASE("message_store: the details of one that was never handed out know of no lease") {
    fixture f;
    f.store.times().add(0, railmq::time_point{railmq::duration{1'234}});
    CHECK(f.store.make_details(f.send(1)).lease_deadline == railmq::never);
}

TEST_CASE("message_store: the time of sending is not told while details are being made") {
    fixture f;
    const place_type p = f.send(1);
    p.at->store(p.at->load().with_flags(slot_word::changing_bit));
    CHECK_FALSE(store_type::enqueued_at(p));
    p.at->store(p.at->load().without_flags(slot_word::changing_bit));
    CHECK(store_type::enqueued_at(p));
}

TEST_CASE("message_store: returned messages come before the line, each by its policy") {
    fixture f;
    std::vector<place_type> held;
    for (int i = 0; i < 6; ++i) {
        f.send(i);
    }
    for (int i = 0; i < 5; ++i) {
        held.push_back(f.take());
    }
    f.store.put_back(held[3], requeue_position::original);
    f.store.put_back(held[1], requeue_position::original);
    f.store.put_back(held[0], requeue_position::front);
    f.store.put_back(held[4], requeue_position::front);
    f.store.put_back(held[2], requeue_position::back);
    f.send(6);
    CHECK(f.store.returned_count() == 5);
    const values expected{4, 0, 1, 3, 5, 2, 6};
    CHECK(f.shown() == expected);
    CHECK(f.drained() == expected);
    CHECK(f.store.returned_count() == 0);
    CHECK(f.shown().empty());
}

TEST_CASE("message_store: put to the back of an empty line, it is next") {
    fixture f;
    f.send(1);
    f.send(2);
    const place_type a = f.take();
    const place_type b = f.take();
    f.store.put_back(b, requeue_position::back);
    f.store.put_back(a, requeue_position::back);
    CHECK(f.shown() == values{2, 1});
    CHECK(f.value(f.store.take_returned()) == 2);
}

TEST_CASE("message_store: with levels nothing stays in line, and all is shown by urgency") {
    fixture f{1 << 20, 3};
    REQUIRE(f.store.has_levels());
    const place_type first = f.send_urgent(1, 0);
    f.send_urgent(2, 1);
    f.send_urgent(3, 7);
    f.store.ring().publish_hole([&] {
        std::uint64_t sequence = 0;
        store_type::ring_type::slot_type* at = nullptr;
        REQUIRE(f.store.ring().claim(true, sequence, at));
        return at;
    }());
    f.send(4);
    f.store.leave_line();
    CHECK(f.store.ring().next() == f.store.ring().tail());
    CHECK(f.store.ring().in_line() == 0);
    CHECK(f.store.returned_count() == 4);
    CHECK(f.shown() == values{3, 2, 1, 4});
    CHECK(f.store.is_untouched(first));
    f.store.withdraw(first);
    CHECK_FALSE(f.store.is_untouched(first));
    const place_type least = f.store.take_least();
    CHECK(f.value(least) == 4);
    f.end(least);
    f.store.put_back(first, requeue_position::front);
    CHECK(f.drained() == values{3, 2, 1});
    CHECK(f.store.returned_count() == 0);
}

TEST_CASE("message_store: what is still being sent holds up the line, and goes to its level then") {
    fixture f{1 << 20, 2};
    std::uint64_t sequence = 0;
    store_type::ring_type::slot_type* at = nullptr;
    REQUIRE(f.store.ring().claim(true, sequence, at));
    f.send_urgent(2, 1);
    CHECK(f.store.returned_count() == 0);
    f.store.ring().publish_hole(at);
    f.store.leave_line();
    CHECK(f.drained() == values{2});
}

TEST_CASE("message_store: the oldest of all levels") {
    fixture f{1 << 20, 3};
    CHECK(f.store.oldest_returned() == railmq::never);
    const auto at = [](int s) { return railmq::time_point{std::chrono::seconds{s}}; };
    const place_type low = f.send_urgent(1, 0);
    const place_type high = f.send_urgent(2, 2);
    f.store.details_of(low)->enqueued = at(5);
    f.store.details_of(high)->enqueued = at(6);
    CHECK(f.store.oldest_returned() == at(5));
    f.store.withdraw(low);
    CHECK(f.store.oldest_returned() == at(6));
    f.end(low);
}

TEST_CASE(
    "message_store: what little is left behind by the urgent is moved, and frees its chunks") {
    fixture f{std::numeric_limits<std::size_t>::max(), 2};
    const auto capacity = static_cast<int>(f.store.ring().chunk_capacity());
    values low;
    for (int i = 0; i != 100 * capacity; ++i) {
        f.send_urgent(i, i % capacity == 1 ? 0 : 1);
        if (i % capacity == 1) {
            low.push_back(i);
        } else {
            const place_type p = f.store.take_returned();
            REQUIRE(f.value(p) == i);
            f.end(p);
        }
    }
    CHECK(f.store.memory_bytes() < 20 * 16384);
    const std::uint64_t id = 1; // one that was moved
    CHECK(f.store.locate(id).in->aside);
    CHECK(f.shown() == low);
    CHECK(f.drained() == low);
}

TEST_CASE("message_store: browsing stops when told to") {
    fixture f;
    for (int i = 0; i < 4; ++i) {
        f.send(i);
    }
    const place_type a = f.take();
    f.store.put_back(a, requeue_position::original);
    int seen = 0;
    f.store.browse([&](place_type) { return ++seen < 2; });
    CHECK(seen == 2);
}

TEST_CASE("message_store: one that is withdrawn is passed over wherever it was listed") {
    for (const auto where :
         {requeue_position::original, requeue_position::front, requeue_position::back}) {
        fixture f;
        for (int i = 0; i < 3; ++i) {
            f.send(i);
        }
        const place_type a = f.take();
        const place_type b = f.take();
        f.store.put_back(a, where);
        f.store.put_back(b, where);
        f.store.withdraw(a);
        CHECK(a.at->load().state() == slot_state::settling);
        CHECK(f.store.returned_count() == 1);
        f.end(a);
        auto rest = f.shown();
        std::sort(rest.begin(), rest.end());
        CHECK(rest == values{1, 2});
        rest = f.drained();
        std::sort(rest.begin(), rest.end());
        CHECK(rest == values{1, 2});
    }
    CHECK(item::alive == 0);
}

TEST_CASE("message_store: one that is withdrawn from the line leaves a hole") {
    fixture f;
    f.send(0);
    const place_type p = f.send(1);
    f.send(2);
    f.store.withdraw(p);
    f.end(p);
    CHECK(f.store.ring().in_line() == 2);
    CHECK(f.shown() == values{0, 2});
}

TEST_CASE("message_store: a message put aside keeps its id and frees its slot") {
    fixture f;
    f.send(7);
    place_type p = f.take();
    f.store.make_details(p);
    const place_type old = p;
    p = f.store.put_aside(p);
    CHECK(p.in->aside);
    CHECK(old.at->load() == slot_word{slot_state::done});
    CHECK(store_type::id_of(p) == 0);
    CHECK(f.store.locate(0).at == p.at);
    CHECK(f.value(p) == 7);
    CHECK(item::alive == 1);
    CHECK(f.store.put_aside(p).at == p.at); // it is aside already
    CHECK(f.store.memory_bytes() == f.budget.used());
    f.store.put_back(p, requeue_position::original);
    CHECK(f.shown() == values{7});
    CHECK(f.drained() == values{7});
    CHECK(item::alive == 0);
    CHECK_FALSE(f.store.locate(0).at == p.at);
    CHECK(f.store.memory_bytes() == f.budget.used());
}

TEST_CASE("message_store: what an old handle may read is not moved") {
    fixture f;
    f.send(7);
    const place_type p = f.take();
    p.at->store(p.at->load().with_pins(1));
    CHECK(f.store.put_aside(p).at == p.at);
    p.at->store(p.at->load().with_pins(0));
    item::refuses = true; // nor what will not be moved
    CHECK(f.store.put_aside(p).at == p.at);
    item::refuses = false;
    CHECK(f.value(p) == 7);
    CHECK(f.store.memory_bytes() == f.budget.used());
    f.end(p);
}

TEST_CASE("message_store: one that never was in line has an id of another kind") {
    fixture f;
    const place_type a = f.send_aside(1);
    const place_type b = f.send_aside(2);
    CHECK(store_type::id_of(a) == store_type::aside_ids);
    CHECK(store_type::id_of(b) == store_type::aside_ids + 1);
    CHECK(f.store.locate(store_type::aside_ids).at == a.at);
    CHECK(f.shown().empty());

    f.send(10);
    const place_type in_line = f.store.put_in_line(b);
    REQUIRE(in_line);
    CHECK(in_line.at->load().state() == slot_state::ready);
    CHECK(store_type::id_of(in_line) == 1);
    CHECK(store_type::public_id(in_line) == store_type::aside_ids + 1); // what its sender knows
    CHECK_FALSE(f.store.locate(store_type::aside_ids + 1));
    CHECK(f.shown() == values{10, 2});
    f.end(f.take());
    f.end(f.take());
    f.end(a);
    CHECK(item::alive == 0);
}

TEST_CASE("message_store: a move into line that throws changes nothing but a position") {
    fixture f;
    const place_type a = f.send_aside(1);
    item::refuses = true;
    CHECK_THROWS_AS(f.store.put_in_line(a), std::runtime_error);
    item::refuses = false;
    CHECK(f.value(a) == 1);
    CHECK(f.store.ring().in_line() == 0);
    CHECK(f.store.ring().unused() == 1);
    CHECK(f.store.locate(store_type::aside_ids).at == a.at);
    f.end(a);
}

TEST_CASE("message_store: without memory nothing is put aside, unless it must") {
    fixture f{1};
    CHECK_FALSE(f.store.new_aside());
    CHECK(f.budget.used() == 0);
    f.send(1); // forced
    const place_type p = f.take();
    const place_type aside = f.store.put_aside(p); // it exists: that may pass the limit
    CHECK(aside.in->aside);
    f.end(aside);
}

TEST_CASE("message_store: every published position is visited, by id") {
    fixture f;
    for (int i = 0; i < 600; ++i) { // more than one chunk
        f.send(i);
    }
    place_type first = f.take();
    const place_type second = f.take();
    f.store.make_details(first);
    first = f.store.put_aside(first);
    f.end(second);
    f.send_aside(1'000);
    values seen;
    f.store.for_each_place([&](place_type p) {
        const auto state = p.at->load().state();
        if (state != slot_state::empty && state != slot_state::done) {
            seen.push_back(f.value(p));
        }
    });
    REQUIRE(seen.size() == 600);
    CHECK(seen.back() == 1'000);
    CHECK(std::count(seen.begin(), seen.end(), 0) == 1);
    CHECK(std::count(seen.begin(), seen.end(), 1) == 0);

    f.store.for_each_place([&](place_type p) { // the visitor may end what it sees
        const auto state = p.at->load().state();
        if (state != slot_state::empty && state != slot_state::done) {
            f.end(p);
        }
    });
    CHECK(item::alive == 0);
}

TEST_CASE("message_store: settled_through is the first message that is still somewhere") {
    fixture f;
    CHECK(f.store.settled_through() == 0);
    std::vector<place_type> held;
    for (int i = 0; i < 5; ++i) {
        f.send(i);
    }
    for (int i = 0; i < 4; ++i) {
        held.push_back(f.take());
    }
    CHECK(f.store.settled_through() == 0);
    f.end(held[1]);
    CHECK(f.store.settled_through() == 0);
    f.end(held[0]);
    CHECK(f.store.settled_through() == 2);
    f.store.make_details(held[2]);
    const place_type aside = f.store.put_aside(held[2]);
    f.end(held[3]);
    CHECK(f.store.settled_through() == 2);
    f.end(aside);
    CHECK(f.store.settled_through() == 4); // the one in line
}

TEST_CASE("message_store: ends every payload that is left, wherever it is") {
    {
        fixture f;
        for (int i = 0; i < 10; ++i) {
            f.send(i);
        }
        place_type a = f.take();
        const place_type b = f.take();
        const place_type c = f.take();
        const place_type d = f.take();
        f.store.make_details(a);
        a = f.store.put_aside(a);
        f.store.put_back(b, requeue_position::original);
        f.end(c);
        f.store.make_details(d);
        d.at->store(d.at->load().with(slot_state::done).with_pins(1)); // left, and still readable
        f.send_aside(11);
        CHECK(item::alive == 10);
    }
    CHECK(item::alive == 0);
}
