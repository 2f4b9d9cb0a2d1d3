// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/router.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using railmq::binding_arguments;
using railmq::errc;
using railmq::error_code;
using railmq::exchange_options;
using railmq::exchange_type;
using railmq::header_match;
using railmq::core::destination;
using railmq::core::destination_kind;
using railmq::core::no_number;
using railmq::core::router;
using railmq::core::routes;

namespace {

using headers = std::vector<std::pair<std::string, std::string>>;
using list = std::vector<std::string>;

/// A router whose destinations are written "q1", "l1", or as the name of an exchange.
struct fixture {
    router r;
    routes out;

    std::uint32_t declare(std::string_view name, exchange_type type, std::string alternate = {}) {
        const auto made = r.declare(name, type, {.alternate = std::move(alternate)});
        CHECK_FALSE(made.error);
        return made.id;
    }

    [[nodiscard]] destination to(const std::string& text) const {
        if (const std::uint32_t id = r.find(text); id != no_number) {
            return destination::exchange(id);
        }
        const auto id = static_cast<std::uint32_t>(std::stoul(text.substr(1)));
        return text.front() == 'q' ? destination::queue(id) : destination::log(id);
    }

    error_code bind(
        std::string_view from,
        const std::string& where,
        std::string_view key = {},
        const binding_arguments& a = {}) {
        return r.bind(r.find(from), to(where), key, a).code;
    }

    error_code unbind(
        std::string_view from,
        const std::string& where,
        std::string_view key = {},
        const binding_arguments& a = {}) {
        return r.unbind(r.find(from), to(where), key, a);
    }

    /// Who gets it, sorted; nobody: says that it is unroutable.
    list route(std::string_view exchange, std::string_view key = {}, const headers& have = {}) {
        const error_code ec = r.route(r.find(exchange), key, have, out);
        list found;
        for (const destination d : out.destinations()) {
            CHECK(d.kind != destination_kind::exchange);
            found.push_back((d.kind == destination_kind::queue ? "q" : "l") + std::to_string(d.id));
        }
        std::sort(found.begin(), found.end());
        CHECK(ec == (found.empty() ? error_code{errc::unroutable} : error_code{}));
        return found;
    }
};

const list nobody{};

} // namespace

TEST_CASE("[N01] router: direct, the key is equal") {
    fixture f;
    f.declare("x", exchange_type::direct);
    CHECK_FALSE(f.bind("x", "q1", "red"));
    CHECK_FALSE(f.bind("x", "q2", "red"));
    CHECK_FALSE(f.bind("x", "q2", "blue"));
    CHECK_FALSE(f.bind("x", "q3", ""));
    CHECK(f.route("x", "red") == list{"q1", "q2"});
    CHECK(f.route("x", "blue") == list{"q2"});
    CHECK(f.route("x", "") == list{"q3"});
    CHECK(f.route("x", "green") == nobody);
    CHECK(f.route("x", "red.blue") == nobody);
}

TEST_CASE("[N02] [D16] [D58] router: fanout, a copy for each, whatever the key") {
    fixture f;
    f.declare("user.registered", exchange_type::fanout);
    for (const char* queue : {"q1", "q2", "q3"}) { // audit, search, mail
        CHECK_FALSE(f.bind("user.registered", queue, "ignored"));
    }
    for (const std::string_view key : {"", "a", "ignored"}) {
        CHECK(f.route("user.registered", key) == list{"q1", "q2", "q3"});
    }
}

TEST_CASE("[D11] [D12] [D14] [D15] router: messages times bindings, not times consumers") {
    // A queue is a destination; who consumes it is none of the router's business.
    fixture f;
    f.declare("news", exchange_type::fanout);
    for (std::size_t k = 1; k <= 4; ++k) {
        CHECK_FALSE(f.bind("news", "q" + std::to_string(k)));
        std::size_t deliveries = 0;
        for (int i = 0; i != 600; ++i) {
            deliveries += f.route("news").size();
        }
        CHECK(deliveries == 600 * k);
    }
}

TEST_CASE("[D18] [A05] router: what was not bound when a message came gets the next one") {
    fixture f;
    f.declare("news", exchange_type::topic);
    CHECK_FALSE(f.bind("news", "q1", "#"));
    CHECK_FALSE(f.bind("news", "q2", "sport.#"));
    CHECK(f.route("news", "sport.golf") == list{"q1", "q2"});
    CHECK_FALSE(f.unbind("news", "q2", "sport.#"));
    CHECK(f.route("news", "sport.golf") == list{"q1"});
    CHECK_FALSE(f.bind("news", "q2", "sport.#"));
    CHECK(f.route("news", "sport.golf") == list{"q1", "q2"});
}

TEST_CASE("[A02] router: topics do not see each other's messages") {
    fixture f;
    f.declare("topic-1", exchange_type::fanout);
    f.declare("topic-2", exchange_type::fanout);
    CHECK_FALSE(f.bind("topic-1", "q1"));
    CHECK_FALSE(f.bind("topic-2", "q2"));
    CHECK(f.route("topic-1") == list{"q1"});
    CHECK(f.route("topic-2") == list{"q2"});
}

TEST_CASE("[N10] router: one copy for a queue, however many bindings match") {
    fixture f;
    f.declare("x", exchange_type::topic);
    CHECK_FALSE(f.bind("x", "q1", "x.#"));
    CHECK_FALSE(f.bind("x", "q1", "#.x"));
    CHECK_FALSE(f.bind("x", "q1", "#"));
    CHECK_FALSE(f.bind("x", "l1", "*.*"));
    CHECK(f.route("x", "x.x") == list{"l1", "q1"});
    CHECK_FALSE(f.unbind("x", "q1", "#"));
    CHECK(f.route("x", "x.x") == list{"l1", "q1"});
    CHECK(f.route("x", "y") == nobody);
}

TEST_CASE("[N11] router: 500 queues of one key") {
    fixture f;
    f.declare("x", exchange_type::topic);
    for (int i = 0; i != 500; ++i) {
        CHECK_FALSE(f.bind("x", "q" + std::to_string(i), "a.b"));
    }
    CHECK(f.route("x", "a.b").size() == 500);
    CHECK(f.route("x", "a.c") == nobody);
}

TEST_CASE("[N14] [N16] router: headers") {
    fixture f;
    f.declare("h", exchange_type::headers);
    const binding_arguments all{.headers = {{"kind", "pdf"}, {"urgent", std::nullopt}}};
    const binding_arguments any{.match = header_match::any, .headers = all.headers};
    CHECK_FALSE(f.bind("h", "q1", "", all));
    CHECK_FALSE(f.bind("h", "q2", "", any));
    CHECK_FALSE(f.bind("h", "q3", "", any));
    CHECK(f.route("h", "", {{"kind", "pdf"}, {"urgent", "yes"}}) == list{"q1", "q2", "q3"});
    CHECK(f.route("h", "", {{"kind", "pdf"}}) == list{"q2", "q3"});
    CHECK(f.route("h", "", {{"kind", "doc"}}) == nobody);
    // In another order it is the same binding; with another mode it is not.
    const binding_arguments turned{.headers = {{"urgent", std::nullopt}, {"kind", "pdf"}}};
    CHECK_FALSE(f.bind("h", "q1", "", turned));
    CHECK(f.r.bindings() == 3);
    CHECK(f.unbind("h", "q1", "", any) == errc::not_found);
    CHECK_FALSE(f.unbind("h", "q1", "", turned));
    CHECK(
        f.bind("h", "q1", "", {.match = static_cast<header_match>(23)}) == errc::invalid_argument);
    CHECK(f.r.bindings() == 2);
}

TEST_CASE("[N27] router: consistent_hash, exactly one, and few move") {
    fixture f;
    f.declare("h", exchange_type::consistent_hash);
    CHECK(f.route("h", "k") == nobody);
    for (int i = 0; i != 8; ++i) {
        CHECK_FALSE(f.bind("h", "q" + std::to_string(i)));
    }
    const auto placement = [&] {
        list out;
        for (int i = 0; i != 2'000; ++i) {
            const list found = f.route("h", "key-" + std::to_string(i));
            REQUIRE(found.size() == 1);
            out.push_back(found.front());
        }
        return out;
    };
    const list before = placement();
    CHECK(placement() == before);
    CHECK_FALSE(f.bind("h", "q99"));
    const list with_another = placement();
    std::size_t moved = 0;
    for (std::size_t i = 0; i != before.size(); ++i) {
        if (with_another[i] != before[i]) {
            REQUIRE(with_another[i] == "q99");
            ++moved;
        }
    }
    CHECK(moved > 100);
    CHECK(moved < 400); // a ninth would be 222
    CHECK(f.r.forget(destination::queue(99)) == 1);
    CHECK(placement() == before);
    // The weight is no part of what tells bindings apart.
    CHECK_FALSE(f.bind("h", "q0", "", {.weight = 50}));
    CHECK(f.r.bindings() == 8);
    CHECK(std::count(before.begin(), before.end(), "q0") < 500);
    const list heavy = placement();
    CHECK(std::count(heavy.begin(), heavy.end(), "q0") > 1'500);
    // Another router, filled in another order, agrees.
    fixture g;
    g.declare("h", exchange_type::consistent_hash);
    for (int i = 7; i >= 0; --i) {
        CHECK_FALSE(g.bind("h", "q" + std::to_string(i), "", {.weight = i == 0 ? 50U : 1U}));
    }
    for (int i = 0; i != 100; ++i) {
        const std::string key = "key-" + std::to_string(i);
        REQUIRE(g.route("h", key) == f.route("h", key));
    }
}

TEST_CASE("[N17] router: exchanges in a row and in a circle, once for each queue") {
    fixture f;
    for (const char* name : {"e0", "e1", "e2"}) {
        f.declare(name, exchange_type::fanout);
        CHECK_FALSE(f.bind(name, std::string{"q"} + name[1]));
    }
    CHECK_FALSE(f.bind("e2", "e1"));
    CHECK_FALSE(f.bind("e1", "e0"));
    CHECK(f.route("e2") == list{"q0", "q1", "q2"});
    CHECK(f.route("e1") == list{"q0", "q1"});
    CHECK(f.route("e0") == list{"q0"});
    CHECK_FALSE(f.bind("e0", "e2"));
    for (const char* name : {"e0", "e1", "e2"}) {
        CHECK(f.route(name) == list{"q0", "q1", "q2"});
        CHECK(f.out.exchanges() == 3);
    }
    CHECK_FALSE(f.bind("e0", "e0")); // to itself
    CHECK(f.route("e0") == list{"q0", "q1", "q2"});
    CHECK_FALSE(f.bind("e2", "q0")); // a second way to a queue
    CHECK(f.route("e2") == list{"q0", "q1", "q2"});
}

TEST_CASE("router: each exchange on the way goes by its own type and the same key") {
    fixture f;
    f.declare("in", exchange_type::fanout);
    f.declare("by_key", exchange_type::direct);
    f.declare("by_topic", exchange_type::topic);
    CHECK_FALSE(f.bind("in", "by_key"));
    CHECK_FALSE(f.bind("in", "by_topic"));
    CHECK_FALSE(f.bind("by_key", "q1", "a.b"));
    CHECK_FALSE(f.bind("by_topic", "q2", "a.*"));
    CHECK_FALSE(f.bind("by_topic", "q1", "#"));
    CHECK(f.route("in", "a.b") == list{"q1", "q2"});
    CHECK(f.route("in", "a.c") == list{"q1", "q2"});
    CHECK(f.route("in", "c") == list{"q1"});
}

TEST_CASE("[D59] [N19] [N21] router: the alternate gets only what was unroutable") {
    fixture f;
    f.declare("x", exchange_type::direct, "caught");
    f.declare("plain", exchange_type::direct);
    f.declare("caught", exchange_type::fanout);
    CHECK(f.route("plain", "sms") == nobody);
    CHECK(f.route("x", "sms") == nobody);
    CHECK_FALSE(f.out.alternate_missing()); // it is there, but leads nowhere
    CHECK_FALSE(f.bind("caught", "q9"));
    CHECK_FALSE(f.bind("x", "q1", "mail"));
    CHECK(f.route("x", "sms") == list{"q9"});
    CHECK(f.route("x", "mail") == list{"q1"});
}

TEST_CASE("[N19] router: a chain of alternates, and a circle of them") {
    fixture f;
    f.declare("a", exchange_type::direct, "b");
    f.declare("b", exchange_type::direct, "c");
    f.declare("c", exchange_type::direct, "a");
    CHECK(f.route("a", "k") == nobody);
    CHECK(f.out.exchanges() == 3);
    CHECK_FALSE(f.bind("c", "q3", "k"));
    CHECK(f.route("a", "k") == list{"q3"});
    CHECK(f.route("b", "k") == list{"q3"});
    CHECK_FALSE(f.bind("b", "q2", "k"));
    CHECK(f.route("a", "k") == list{"q2"});
    CHECK(f.route("c", "k") == list{"q3"});
    f.declare("self", exchange_type::direct, "self");
    CHECK(f.route("self", "k") == nobody);
}

TEST_CASE("[N20] router: an alternate that does not exist, and then does") {
    fixture f;
    f.declare("x", exchange_type::direct, "later");
    CHECK(f.route("x", "k") == nobody);
    CHECK(f.out.alternate_missing());
    f.declare("later", exchange_type::fanout);
    CHECK_FALSE(f.bind("later", "q1"));
    CHECK(f.route("x", "k") == list{"q1"});
    CHECK_FALSE(f.out.alternate_missing());
    CHECK_FALSE(f.r.erase(f.r.find("later")));
    CHECK(f.route("x", "k") == nobody);
    CHECK(f.out.alternate_missing());
}

TEST_CASE("router: an exchange behind another has an alternate, too") {
    fixture f;
    f.declare("in", exchange_type::fanout);
    f.declare("inner", exchange_type::direct, "caught");
    f.declare("caught", exchange_type::fanout);
    CHECK_FALSE(f.bind("in", "inner"));
    CHECK_FALSE(f.bind("in", "q1"));
    CHECK_FALSE(f.bind("inner", "q2", "k"));
    CHECK_FALSE(f.bind("caught", "q9"));
    CHECK(f.route("in", "k") == list{"q1", "q2"});
    CHECK(f.route("in", "other") == list{"q1", "q9"});
}

TEST_CASE("router: a binding that matches but leads nowhere does not hide the alternate") {
    fixture f;
    f.declare("in", exchange_type::fanout, "caught");
    f.declare("dead_end", exchange_type::direct);
    f.declare("caught", exchange_type::fanout, "last");
    f.declare("last", exchange_type::fanout);
    CHECK_FALSE(f.bind("in", "dead_end"));
    CHECK(f.route("in", "k") == nobody);
    CHECK_FALSE(f.bind("caught", "dead_end"));
    CHECK_FALSE(f.bind("last", "q9"));
    CHECK(f.route("in", "k") == list{"q9"});
    f.declare("other_dead_end", exchange_type::direct, "other_caught");
    f.declare("other_caught", exchange_type::fanout);
    CHECK_FALSE(f.bind("in", "other_dead_end"));
    CHECK_FALSE(f.bind("other_caught", "q8"));
    CHECK(f.route("in", "k") == list{"q8"}); // there is somebody, so nobody else is asked
    CHECK_FALSE(f.unbind("in", "other_dead_end"));
    CHECK_FALSE(f.bind("dead_end", "q1", "k"));
    CHECK(f.route("in", "k") == list{"q1"});
}

TEST_CASE("[N18] router: bound twice is bound once; unbound twice is not found") {
    fixture f;
    for (const exchange_type type :
         {exchange_type::direct,
          exchange_type::fanout,
          exchange_type::topic,
          exchange_type::headers,
          exchange_type::consistent_hash}) {
        const std::string name{to_string(type)};
        f.declare(name, type);
        for (const char* where : {"q1", "l1", "direct"}) {
            const std::size_t before = f.r.bindings();
            CHECK_FALSE(f.bind(name, where, "k"));
            CHECK_FALSE(f.bind(name, where, "k"));
            CHECK(f.r.bindings() == before + 1);
            CHECK_FALSE(f.unbind(name, where, "k"));
            CHECK(f.unbind(name, where, "k") == errc::not_found);
            CHECK(f.r.bindings() == before);
        }
    }
    CHECK_FALSE(f.bind("direct", "q1", "a"));
    CHECK(f.unbind("direct", "q1", "b") == errc::not_found);
    CHECK(f.unbind("direct", "q2", "a") == errc::not_found);
    CHECK(f.unbind("topic", "q1", "a") == errc::not_found);
    CHECK(f.r.unbind(4'711, destination::queue(1), "a") == errc::not_found);
    CHECK(f.route("direct", "a") == list{"q1"});
}

TEST_CASE("[N22] router: binding to or from what does not exist leaves no binding") {
    fixture f;
    const std::uint32_t x = f.declare("x", exchange_type::fanout);
    const std::uint32_t y = f.declare("y", exchange_type::fanout);
    CHECK_FALSE(f.r.erase(y));
    CHECK(f.r.bind(x, destination::exchange(y)).code == errc::not_found);
    CHECK(f.r.bind(y, destination::queue(1)).code == errc::not_found);
    CHECK(f.r.bind(y, destination::exchange(x)).code == errc::not_found);
    CHECK(f.r.bindings() == 0);
    CHECK(f.r.route(y, "", {}, f.out) == errc::not_found);
}

TEST_CASE("[N23] router: what is deleted takes its bindings along, on both sides") {
    fixture f;
    f.declare("a", exchange_type::fanout);
    f.declare("b", exchange_type::topic);
    f.declare("c", exchange_type::direct);
    CHECK_FALSE(f.bind("a", "b"));
    CHECK_FALSE(f.bind("b", "c", "#"));
    CHECK_FALSE(f.bind("b", "b", "x"));
    CHECK_FALSE(f.bind("b", "q1", "#.k"));
    CHECK_FALSE(f.bind("c", "q1", "k"));
    CHECK_FALSE(f.bind("c", "q2", "k"));
    CHECK(f.route("a", "k") == list{"q1", "q2"});

    CHECK(f.r.forget(destination::queue(1)) == 2);
    CHECK(f.r.forget(destination::queue(1)) == 0);
    CHECK(f.r.forget(destination::log(2)) == 0);
    CHECK(f.r.bindings() == 4);
    CHECK(f.route("a", "k") == list{"q2"});

    const std::uint32_t b = f.r.find("b");
    CHECK_FALSE(f.r.erase(b));
    CHECK(f.r.erase(b) == errc::not_found);
    CHECK(f.r.find("b") == no_number);
    CHECK(f.r.bindings() == 1);
    CHECK(f.route("a", "k") == nobody);
    CHECK(f.route("c", "k") == list{"q2"});

    f.declare("b", exchange_type::fanout); // another one of that name
    CHECK(f.r.find("b") != b);
    CHECK(f.route("a", "k") == nobody);
    CHECK(f.route("b", "k") == nobody);
}

TEST_CASE("router: only if unused spares an exchange with bindings from it") {
    fixture f;
    const std::uint32_t a = f.declare("a", exchange_type::fanout);
    const std::uint32_t b = f.declare("b", exchange_type::fanout);
    CHECK_FALSE(f.bind("a", "b"));
    CHECK(f.r.erase(a, true) == errc::in_use);
    CHECK(f.r.find("a") == a);
    CHECK(f.r.bindings() == 1);
    CHECK_FALSE(f.r.erase(b, true)); // bindings to it do not count
    CHECK(f.r.bindings() == 0);
    CHECK_FALSE(f.r.erase(a, true));
    CHECK(f.r.size() == 0);
}

TEST_CASE("[N26] router: declared again it is the same, with anything else it is refused") {
    fixture f;
    const auto first = f.r.declare("x", exchange_type::topic, {.alternate = "y"});
    CHECK(first.is_new);
    const auto again = f.r.declare("x", exchange_type::topic, {.alternate = "y"});
    CHECK_FALSE(again.is_new);
    CHECK(again.id == first.id);
    const auto other_type = f.r.declare("x", exchange_type::direct, {.alternate = "y"});
    CHECK(other_type.error.code == errc::options_mismatch);
    CHECK(other_type.error.what == "exchange 'x' exists with another type");
    CHECK(other_type.id == no_number);
    const auto other_options = f.r.declare("x", exchange_type::topic);
    CHECK(other_options.error.code == errc::options_mismatch);
    CHECK(other_options.error.what == "exchange 'x' exists with another alternate");
    CHECK(f.r.size() == 1);
    CHECK(f.r.find("X") == no_number);
}

TEST_CASE("[BX15] router: names are names, and keys have at most 255 bytes") {
    fixture f;
    for (const std::string& bad :
         {std::string{},
          std::string{".."},
          std::string{"../x"},
          std::string{"a/b"},
          std::string{"a\\b"},
          std::string{"C:x"},
          std::string{"a\0b", 3},
          std::string(250, 'x')}) {
        CHECK(f.r.declare(bad, exchange_type::direct).error.code == errc::invalid_name);
    }
    CHECK(
        f.r.declare("x", exchange_type::direct, {.alternate = ".."}).error.code ==
        errc::invalid_name);
    CHECK(f.r.declare("x", static_cast<exchange_type>(5)).error.code == errc::invalid_argument);
    CHECK(f.r.size() == 0);
    const std::string longest(255, '.');
    for (const exchange_type type : {exchange_type::direct, exchange_type::topic}) {
        const std::string name{to_string(type)};
        f.declare(name, type);
        CHECK_FALSE(f.bind(name, "q1", longest));
        CHECK(f.bind(name, "q1", longest + ".") == errc::invalid_argument);
        CHECK(f.route(name, longest) == list{"q1"});
        CHECK(f.r.route(f.r.find(name), longest + ".", {}, f.out) == errc::invalid_argument);
        CHECK(f.out.destinations().empty());
    }
    CHECK(f.bind("direct", "q1", "", {.weight = 2}) == errc::invalid_argument);
    CHECK(f.r.bindings() == 2);
}

TEST_CASE("[A10] [A11] router: what has come and gone leaves nothing, and messages leave nothing") {
    fixture f;
    for (int i = 0; i != 100; ++i) {
        const std::string name = "topic-" + std::to_string(i);
        f.declare(name, exchange_type::topic);
        CHECK_FALSE(f.bind(name, "q1", "a.#"));
        CHECK(f.route(name, "a") == list{"q1"});
        CHECK(f.r.forget(destination::queue(1)) == 1);
        CHECK(f.route(name, "a") == nobody);
        CHECK_FALSE(f.r.erase(f.r.find(name)));
    }
    CHECK(f.r.size() == 0);
    CHECK(f.r.bindings() == 0);
    CHECK(f.out.exchanges() == 1);
}

TEST_CASE("router: keys follow the identity that the caller gives, not the number") {
    const auto placed = [](std::uint32_t first, std::uint32_t second) {
        router r;
        routes out;
        const std::uint32_t x = r.declare("x", exchange_type::consistent_hash).id;
        CHECK_FALSE(r.bind(x, destination::queue(first), {}, {}, 111));
        CHECK_FALSE(r.bind(x, destination::queue(second), {}, {}, 222));
        std::vector<bool> is_first;
        for (int i = 0; i < 200; ++i) {
            CHECK_FALSE(r.route(x, std::to_string(i), {}, out));
            is_first.push_back(out.destinations()[0].id == first);
        }
        return is_first;
    };
    CHECK(placed(1, 2) == placed(7, 3));
}

TEST_CASE("router: it knows whether headers matter, and who is bound") {
    router r;
    CHECK_FALSE(r.looks_at_headers());
    const std::uint32_t x = r.declare("x", exchange_type::headers).id;
    const std::uint32_t again = r.declare("x", exchange_type::headers).id;
    CHECK(again == x);
    const std::uint32_t y = r.declare("y", exchange_type::topic).id;
    CHECK(r.looks_at_headers());
    CHECK_FALSE(r.is_bound(destination::queue(1)));
    CHECK_FALSE(r.bind(y, destination::queue(1), "k"));
    CHECK(r.is_bound(destination::queue(1)));
    CHECK_FALSE(r.is_bound(destination::log(1)));
    CHECK_FALSE(r.unbind(y, destination::queue(1), "k"));
    CHECK_FALSE(r.is_bound(destination::queue(1)));
    CHECK_FALSE(r.erase(x));
    CHECK_FALSE(r.looks_at_headers());
}
