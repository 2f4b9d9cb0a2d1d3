// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/exchange_options.hpp>

#include "support/catch.hpp"

#include <optional>
#include <set>
#include <string>
#include <string_view>

using railmq::binding_arguments;
using railmq::errc;
using railmq::exchange_options;
using railmq::exchange_type;
using railmq::header_match;
using railmq::parse_header_match;

namespace {

constexpr exchange_type types[] = {
    exchange_type::direct,
    exchange_type::fanout,
    exchange_type::topic,
    exchange_type::headers,
    exchange_type::consistent_hash};

} // namespace

TEST_CASE("exchange_options: every type and mode has a name of its own") {
    std::set<std::string_view> names;
    for (const exchange_type type : types) {
        names.insert(to_string(type));
    }
    CHECK(names.size() == 5);
    CHECK(to_string(exchange_type::consistent_hash) == "consistent_hash");
    CHECK(to_string(static_cast<exchange_type>(5)) == "unknown exchange type");
    CHECK(to_string(static_cast<header_match>(4)) == "unknown header match");
}

TEST_CASE("[N16] exchange_options: modes in RabbitMQ's spelling, and no others") {
    for (const header_match mode :
         {header_match::all,
          header_match::any,
          header_match::all_with_x,
          header_match::any_with_x}) {
        CHECK(parse_header_match(to_string(mode)) == mode);
    }
    CHECK(parse_header_match("any-with-x") == header_match::any_with_x);
    for (const std::string_view bad : {"", "23", "all or any I don't mind", "All", "all_with_x"}) {
        CHECK(parse_header_match(bad) == std::nullopt);
    }
    const railmq::failure f =
        validate("", {.match = static_cast<header_match>(23)}, exchange_type::headers);
    CHECK(f.code == errc::invalid_argument);
    CHECK(f.what == "match is one of all, any, all_with_x, any_with_x");
}

TEST_CASE("exchange_options: the defaults are in order for every type") {
    CHECK_FALSE(validate(exchange_options{}));
    for (const exchange_type type : types) {
        CHECK_FALSE(validate("", {}, type));
        CHECK_FALSE(validate(std::string(255, '.'), {}, type));
    }
    CHECK_FALSE(validate("a key/of any bytes\n", {}, exchange_type::direct));
    CHECK_FALSE(validate(
        "",
        {.match = header_match::any, .headers = {{"a", "1"}, {"b", std::nullopt}, {"x-c", ""}}},
        exchange_type::headers));
    CHECK_FALSE(validate("", {.weight = 1'000}, exchange_type::consistent_hash));
}

TEST_CASE("[BX15] exchange_options: the alternate is a name") {
    CHECK_FALSE(validate(exchange_options{.alternate = "unrouted"}));
    for (const std::string bad : {"..", "../x", "a/b", "a\\b", "C:x", "a b"}) {
        const railmq::failure f = validate(exchange_options{.alternate = bad});
        CHECK(f.code == errc::invalid_name);
        CHECK(f.what.starts_with("alternate: a name is"));
    }
    CHECK(railmq::difference({.alternate = "a"}, {.alternate = "b"}) == "alternate");
    CHECK(railmq::difference({.alternate = "a"}, {.alternate = "a"}).empty());
}

TEST_CASE("exchange_options: what a binding cannot ask for, each with a sentence of its own") {
    const auto what = [](std::string_view key, const binding_arguments& a, exchange_type type) {
        const railmq::failure f = validate(key, a, type);
        CHECK(f.code == errc::invalid_argument);
        return f.what;
    };
    CHECK(
        what(std::string(256, 'x'), {}, exchange_type::topic) ==
        "a binding key has at most 255 bytes; got 256");
    CHECK(
        what("", {.headers = {{"a", "1"}}}, exchange_type::topic) ==
        "only bindings of a headers exchange ask for headers; this one is topic");
    CHECK(what("", {.match = header_match::any}, exchange_type::direct).starts_with("only"));
    CHECK(
        what("", {.weight = 2}, exchange_type::fanout) ==
        "only bindings of a consistent_hash exchange have a weight; this one is fanout");
    CHECK(what("", {.weight = 0}, exchange_type::consistent_hash) == "weight is 1 to 1000; got 0");
    CHECK(what("", {.weight = 1'001}, exchange_type::consistent_hash).ends_with("got 1001"));
    CHECK(
        what("", {.headers = {{"x-match", "any"}}}, exchange_type::headers) ==
        "x-match is not a header; say .match");
    CHECK(
        what("", {.headers = {{"a", "1"}, {"b", "2"}, {"a", "3"}}}, exchange_type::headers) ==
        "header 'a' is asked for twice");
    CHECK(
        what("", {.headers = {{"\n", "1"}, {"\n", "2"}}}, exchange_type::headers) ==
        "header '\\x0a' is asked for twice");
}
