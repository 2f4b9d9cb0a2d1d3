// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/entries.hpp>
#include <railmq/storage/exchange_entries.hpp>
#include <railmq/storage/kept_state.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace railmq::storage;
using railmq::exchange_type;
using railmq::header_match;
using railmq::core::destination_kind;

namespace {

const exchange_definition shop{7, "shop", "text", exchange_type::topic, {.alternate = "spare"}};
const binding_definition to_queue{7, {destination_kind::queue, 3}, "a.*", {}};
const binding_definition to_exchange{
    7,
    {destination_kind::exchange, 3},
    "",
    {.match = header_match::any_with_x, .headers = {{"a", "1"}, {"b", std::nullopt}}, .weight = 9}};

struct written {
    std::vector<std::byte> bytes{};
    entry_writer w{bytes, railmq::duration::zero()};
};
[[nodiscard]] std::vector<binding_definition> all_of(const kept_bindings& b) {
    std::vector<binding_definition> all;
    b.for_each([&](const binding_definition& one) { all.push_back(one); });
    return all;
}

} // namespace

TEST_CASE("exchanges and bindings are read as they were written") {
    written r;
    r.w.exchange(shop);
    r.w.bound(to_queue);
    r.w.bound(to_exchange);
    r.w.unbound(to_queue);
    r.w.exchange_gone(5);
    struct : entry_visitor {
        std::vector<exchange_definition> exchanges{};
        std::vector<binding_definition> bound_ones{};
        std::vector<binding_definition> unbound_ones{};
        std::vector<std::uint64_t> gone_ones{};
        void exchange(exchange_definition d) { exchanges.push_back(std::move(d)); }
        void exchange_gone(std::uint64_t n) { gone_ones.push_back(n); }
        void bound(binding_definition b) { bound_ones.push_back(std::move(b)); }
        void unbound(binding_definition b) { unbound_ones.push_back(std::move(b)); }
    } seen;
    REQUIRE(read_entries(r.bytes, railmq::duration::zero(), seen));
    CHECK(seen.exchanges == std::vector{shop});
    CHECK(seen.bound_ones == std::vector{to_queue, to_exchange});
    CHECK(seen.unbound_ones == std::vector{to_queue});
    CHECK(seen.gone_ones == std::vector<std::uint64_t>{5});

    // Cut anywhere but between two, it is none.
    std::vector<std::size_t> ends;
    for (int n = 1; n <= 5; ++n) {
        written part;
        part.w.exchange(shop);
        if (n > 1) part.w.bound(to_queue);
        if (n > 2) part.w.bound(to_exchange);
        if (n > 3) part.w.unbound(to_queue);
        if (n > 4) part.w.exchange_gone(5);
        ends.push_back(part.bytes.size());
    }
    for (std::size_t n = 1; n < r.bytes.size(); ++n) {
        const bool is_end = std::find(ends.begin(), ends.end(), n) != ends.end();
        CHECK(
            read_entries(std::span{r.bytes}.first(n), railmq::duration::zero(), entry_visitor{}) ==
            is_end);
    }
}

TEST_CASE("what no exchange or binding can be is refused") {
    const auto reads = [](auto&& write) {
        written r;
        write(r.w);
        return read_entries(r.bytes, railmq::duration::zero(), entry_visitor{});
    };
    const auto exchange = [&](auto&& change) {
        exchange_definition d = shop;
        change(d);
        return reads([&](entry_writer& w) { w.exchange(d); });
    };
    CHECK(exchange([](auto&) {}));
    CHECK_FALSE(exchange([](auto& d) { d.name = "a b"; }));
    CHECK_FALSE(exchange([](auto& d) { d.options.alternate = ".."; }));
    CHECK_FALSE(exchange([](auto& d) { d.type = static_cast<exchange_type>(5); }));
    const auto binding = [&](auto&& change) {
        binding_definition b = to_exchange;
        change(b);
        return reads([&](entry_writer& w) { w.bound(b); });
    };
    CHECK(binding([](auto&) {}));
    CHECK_FALSE(binding([](auto& b) { b.arguments.weight = 0; }));
    CHECK_FALSE(binding([](auto& b) { b.arguments.weight = 1001; }));
    CHECK_FALSE(binding([](auto& b) { b.arguments.match = static_cast<header_match>(4); }));
    CHECK_FALSE(binding([](auto& b) { b.to.kind = static_cast<destination_kind>(3); }));
    CHECK_FALSE(binding([](auto& b) { b.key = std::string(256, 'k'); }));
}

TEST_CASE("two that are the same binding are kept as one, with the last weight") {
    const kept_destination q{destination_kind::queue, 1};
    kept_bindings all;
    const auto same = [&](exchange_type type, std::string key, railmq::binding_arguments a) {
        const auto b = make_binding(7, type, q, key, a);
        all.put(b);
        return b;
    };
    (void)same(exchange_type::fanout, "a", {});
    (void)same(exchange_type::fanout, "b", {});
    CHECK(all.size() == 1);
    all = {};
    (void)same(exchange_type::headers, "a", {.headers = {{"x", "1"}, {"y", "2"}}});
    (void)same(exchange_type::headers, "b", {.headers = {{"y", "2"}, {"x", "1"}}});
    CHECK(all.size() == 1);
    all = {};
    (void)same(exchange_type::consistent_hash, "a", {.weight = 2});
    const auto last = same(exchange_type::consistent_hash, "b", {.weight = 3});
    CHECK(all.size() == 1);
    CHECK(all.weight_of(last) == 3);
    all = {};
    const auto ab = same(exchange_type::topic, "a", {});
    (void)same(exchange_type::topic, "b", {});
    CHECK(all.size() == 2);
    all.erase(ab);
    CHECK(all.size() == 1);
    CHECK(all.weight_of(ab) == 0);
    all.forget({destination_kind::exchange, 1});
    CHECK(all.size() == 1);
    all.forget(q);
    CHECK(all.size() == 0);
}

TEST_CASE("a journal's exchanges, after its records were read") {
    kept_state s;
    const auto play = [&](auto&& write) {
        written r;
        write(r.w);
        REQUIRE(s.add(r.bytes, {1, 64}));
    };
    // Of one that is not known yet: it is said again with the exchange.
    play([](entry_writer& w) { w.bound(to_queue); });
    CHECK(s.exchanges.all.empty());
    play([](entry_writer& w) { w.exchange(shop); });
    play([](entry_writer& w) { w.bound(to_queue); });
    play([](entry_writer& w) { w.bound(to_exchange); });
    play([](entry_writer& w) { w.bound(to_queue); });
    CHECK(s.exchanges.last == 7);
    REQUIRE(s.exchanges.all.contains(7));
    CHECK(s.exchanges.all.at(7).definition == shop);
    CHECK(all_of(s.exchanges.all.at(7).bindings) == std::vector{to_queue, to_exchange});
    // Said again, it keeps them.
    play([](entry_writer& w) { w.exchange(shop); });
    CHECK(s.exchanges.all.at(7).bindings.size() == 2);
    play([](entry_writer& w) { w.deleted(3); });
    CHECK(all_of(s.exchanges.all.at(7).bindings) == std::vector{to_exchange});
    play([](entry_writer& w) { w.unbound(to_exchange); });
    play([](entry_writer& w) { w.unbound(to_exchange); });
    CHECK(s.exchanges.all.at(7).bindings.size() == 0);
    play([](entry_writer& w) { w.bound(to_exchange); });
    play([](entry_writer& w) { w.exchange_gone(3); });
    CHECK(s.exchanges.all.at(7).bindings.size() == 0);
    play([](entry_writer& w) { w.exchange_gone(7); });
    CHECK(s.exchanges.all.empty());
    CHECK(s.exchanges.last == 7); // numbers are never used again
}
