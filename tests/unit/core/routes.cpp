// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/router.hpp>
#include <railmq/core/routes.hpp>

#include "support/catch.hpp"

#include <cstdint>

using railmq::errc;
using railmq::exchange_type;
using railmq::core::destination;
using railmq::core::router;
using railmq::core::routes;

TEST_CASE("routes: is empty at first, and forgets the last message") {
    routes out;
    CHECK(out.destinations().empty());
    CHECK(out.exchanges() == 0);
    CHECK_FALSE(out.alternate_missing());

    router r;
    const std::uint32_t x = r.declare("x", exchange_type::direct, {.alternate = "none"}).id;
    CHECK_FALSE(r.bind(x, destination::queue(1), "a"));
    CHECK_FALSE(r.route(x, "a", {}, out));
    CHECK(out.destinations().size() == 1);
    CHECK(out.exchanges() == 1);
    CHECK_FALSE(out.alternate_missing());
    CHECK(r.route(x, "b", {}, out) == errc::unroutable);
    CHECK(out.destinations().empty());
    CHECK(out.alternate_missing());
    CHECK_FALSE(r.route(x, "a", {}, out));
    CHECK(out.destinations().size() == 1);
    CHECK_FALSE(out.alternate_missing());
    CHECK(r.route(x + 1, "a", {}, out) == errc::not_found);
    CHECK(out.destinations().empty());
    CHECK(out.exchanges() == 0);
}

TEST_CASE("[A12] routes: one serves routers in turn, and they do not see each other") {
    router one;
    router two;
    routes out;
    const std::uint32_t x = one.declare("x", exchange_type::topic).id;
    const std::uint32_t y = two.declare("x", exchange_type::topic).id;
    CHECK_FALSE(one.bind(x, destination::queue(1), "#.a"));
    for (std::uint32_t i = 0; i != 100; ++i) {
        CHECK_FALSE(two.bind(y, destination::queue(2 + i), "#.a.#"));
    }
    for (int i = 0; i != 3; ++i) {
        CHECK_FALSE(one.route(x, "a", {}, out));
        REQUIRE(out.destinations().size() == 1);
        CHECK(out.destinations()[0] == destination::queue(1));
        CHECK_FALSE(two.route(y, "a", {}, out));
        CHECK(out.destinations().size() == 100);
    }
    CHECK(out.topic_steps() > 0);
}

TEST_CASE("routes say whether an alternate was asked") {
    router r;
    routes out;
    const std::uint32_t x = r.declare("x", exchange_type::direct, {.alternate = "y"}).id;
    CHECK(r.route(x, "k", {}, out) == errc::unroutable);
    CHECK_FALSE(out.by_alternate()); // it does not exist
    const std::uint32_t y = r.declare("y", exchange_type::fanout).id;
    CHECK_FALSE(r.bind(y, destination::queue(1)));
    CHECK_FALSE(r.route(x, "k", {}, out));
    CHECK(out.by_alternate());
    CHECK_FALSE(r.bind(x, destination::queue(2), "k"));
    CHECK_FALSE(r.route(x, "k", {}, out));
    CHECK_FALSE(out.by_alternate());
}
