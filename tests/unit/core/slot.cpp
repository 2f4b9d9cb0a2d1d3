// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/single_threaded.hpp>
#include <railmq/core/slot.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>

using railmq::core::slot_state;
using railmq::core::slot_word;

TEST_CASE("slot_word: a fresh one is empty") {
    constexpr slot_word w;
    CHECK(w.state() == slot_state::empty);
    CHECK_FALSE(w.has_details());
    CHECK_FALSE(w.is_slow());
    CHECK(w.pins() == 0);
    CHECK(w.owner() == 0);
    CHECK(w.tag() == 0);
    CHECK(w.bits() == 0);
}

TEST_CASE("slot_word: every part is set without touching the others") {
    const slot_word all = slot_word{slot_state::ready}
                              .with_flags(slot_word::details_bit | slot_word::slow_bit)
                              .with_pins(slot_word::max_pins)
                              .leased_to(slot_word::max_owner);
    CHECK(all.state() == slot_state::leased);
    CHECK(all.has_details());
    CHECK(all.is_slow());
    CHECK(all.pins() == slot_word::max_pins);
    CHECK(all.owner() == slot_word::max_owner);
    CHECK(all.tag() == 1);

    const slot_word other = all.with(slot_state::waiting);
    CHECK(other.state() == slot_state::waiting);
    CHECK(other.owner() == slot_word::max_owner);
    CHECK(other.tag() == 1);
    CHECK(all.with_pins(3).pins() == 3);
    CHECK(all.with_pins(3).owner() == slot_word::max_owner);
    const slot_word bare = all.without_flags(slot_word::details_bit);
    CHECK_FALSE(bare.has_details());
    CHECK(bare.is_slow());
    CHECK(slot_word{all.bits()} == all);
    for (const auto s :
         {slot_state::empty,
          slot_state::ready,
          slot_state::leased,
          slot_state::settling,
          slot_state::done,
          slot_state::returned,
          slot_state::waiting}) {
        CHECK(all.with(s).state() == s);
    }
}

TEST_CASE("slot_word: each hand-out is another lease") {
    slot_word w{slot_state::ready};
    w = w.leased_to(5);
    const slot_word first = w;
    CHECK(w.tag() == 1);
    w = w.with(slot_state::returned).leased_to(5);
    CHECK(w.tag() == 2);
    CHECK_FALSE(w.same_lease(first));
    CHECK(w.leased_to(7).owner() == 7);

    CHECK(first.same_lease(first.with_pins(9)));
    CHECK(first.same_lease(first.with_flags(slot_word::slow_bit | slot_word::details_bit)));
    CHECK_FALSE(first.same_lease(first.with(slot_state::settling)));
    CHECK_FALSE(first.same_lease(slot_word{slot_state::ready}.leased_to(6)));
}

TEST_CASE("slot_word: the generation wraps and spoils nothing") {
    const slot_word last{
        (std::uint64_t{slot_word::max_tag} << 40) | static_cast<std::uint64_t>(slot_state::ready)};
    CHECK(last.tag() == slot_word::max_tag);
    const slot_word wrapped = last.leased_to(1);
    CHECK(wrapped.tag() == 0);
    CHECK(wrapped.owner() == 1);
    CHECK(wrapped.state() == slot_state::leased);
}

TEST_CASE("slot: 24 bytes before the payload") {
    using plain = railmq::core::single_threaded;
    CHECK(sizeof(railmq::core::slot<plain>) == 16);
    CHECK(railmq::core::payload_offset(1) == 16);
    CHECK(railmq::core::payload_offset(8) == 16);
    CHECK(railmq::core::payload_offset(16) == 16);
    CHECK(railmq::core::payload_offset(64) == 64);
    CHECK(railmq::core::align_up(0, 8) == 0);
    CHECK(railmq::core::align_up(1, 8) == 8);
    CHECK(railmq::core::align_up(16, 8) == 16);
    railmq::core::slot<plain> s;
    CHECK(s.load() == slot_word{});
    s.store(slot_word{slot_state::done});
    CHECK(s.load().state() == slot_state::done);
}
