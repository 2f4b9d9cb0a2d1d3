// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/header_match.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using railmq::binding_arguments;
using railmq::header_argument;
using railmq::header_match;
using railmq::core::canonical_text;
using railmq::core::header_matcher;

namespace {

using headers = std::vector<std::pair<std::string, std::string>>;
using wanted = std::vector<header_argument>;

bool matches(header_match mode, wanted want, const headers& have) {
    return header_matcher{binding_arguments{.match = mode, .headers = std::move(want)}}.matches(
        have);
}

constexpr header_match modes[] = {
    header_match::all, header_match::any, header_match::all_with_x, header_match::any_with_x};

} // namespace

TEST_CASE("[N14] header_match: 1 of 12 messages has all headers, 8 of 12 have any") {
    const wanted want{{"h1", "12345"}, {"h2", "bar"}, {"h3", std::nullopt}};
    const std::vector<headers> messages{
        {},
        {{"x", "12345"}},
        {{"h1", "12345"}},
        {{"h1", "12345"}, {"h2", "bar"}},
        {{"h1", "12345"}, {"h2", "bar"}, {"h3", ""}},
        {{"h1", "12345"}, {"h2", "wrong"}},
        {{"h1", "wrong"}, {"h2", "bar"}},
        {{"h1", "wrong"}, {"h2", "wrong"}},
        {{"h1", "12346"}},
        {{"h2", "bar"}},
        {{"h3", "anything"}},
        {{"h2", "quux"}, {"h3", "x"}}};
    REQUIRE(messages.size() == 12);
    const auto count = [&](header_match mode) {
        return std::count_if(messages.begin(), messages.end(), [&](const headers& have) {
            return matches(mode, want, have);
        });
    };
    CHECK(count(header_match::all) == 1);
    CHECK(count(header_match::any) == 8);
    CHECK(count(header_match::all_with_x) == 1);
    CHECK(count(header_match::any_with_x) == 8);
}

TEST_CASE("[N14] header_match: names that begin with x- count only where the mode says so") {
    const wanted want{{"x-tenant", "a"}, {"kind", "b"}};
    const headers both{{"x-tenant", "a"}, {"kind", "b"}};
    const headers only_x{{"x-tenant", "a"}};
    const headers only_plain{{"kind", "b"}};
    CHECK(matches(header_match::all, want, both));
    CHECK(matches(header_match::all, want, only_plain));
    CHECK_FALSE(matches(header_match::all, want, only_x));
    CHECK(matches(header_match::all_with_x, want, both));
    CHECK_FALSE(matches(header_match::all_with_x, want, only_plain));
    CHECK_FALSE(matches(header_match::any, want, only_x));
    CHECK(matches(header_match::any, want, only_plain));
    CHECK(matches(header_match::any_with_x, want, only_x));
    CHECK(matches(header_match::any_with_x, want, only_plain));
    // Not at the beginning, or not quite.
    CHECK_FALSE(matches(header_match::all, {{"ax-b", "1"}}, {}));
    CHECK_FALSE(matches(header_match::all, {{"X-b", "1"}}, {}));
    CHECK_FALSE(matches(header_match::all, {{"x", "1"}}, {}));
}

TEST_CASE("header_match: asked for nothing, all matches everything and any nothing") {
    for (const headers& have : {headers{}, headers{{"a", "b"}}}) {
        CHECK(matches(header_match::all, {}, have));
        CHECK(matches(header_match::all_with_x, {}, have));
        CHECK_FALSE(matches(header_match::any, {}, have));
        CHECK_FALSE(matches(header_match::any_with_x, {}, have));
        CHECK(matches(header_match::all, {{"x-only", "1"}}, have)); // nothing that counts
        CHECK_FALSE(matches(header_match::any, {{"x-only", "1"}}, have));
    }
}

TEST_CASE("[N15] header_match: without a value, that the header is there is enough") {
    for (const header_match mode : modes) {
        CHECK(matches(mode, {{"h", std::nullopt}}, {{"h", "anything"}}));
        CHECK(matches(mode, {{"h", std::nullopt}}, {{"h", ""}}));
        CHECK_FALSE(matches(mode, {{"h", std::nullopt}}, {{"H", "anything"}}));
        CHECK_FALSE(matches(mode, {{"h", ""}}, {{"h", "anything"}})); // an empty value is one
        CHECK(matches(mode, {{"h", ""}}, {{"h", ""}}));
    }
}

TEST_CASE("header_match: values are texts, and any of several headers of a name will do") {
    for (const header_match mode : modes) {
        CHECK_FALSE(matches(mode, {{"n", "1"}}, {{"n", "1.0"}}));
        CHECK_FALSE(matches(mode, {{"n", "1"}}, {{"n", "01"}}));
        CHECK_FALSE(matches(mode, {{"n", "True"}}, {{"n", "true"}}));
        CHECK(matches(mode, {{"n", "2"}}, {{"n", "1"}, {"n", "2"}}));
        CHECK_FALSE(matches(mode, {{"n", "3"}}, {{"n", "1"}, {"n", "2"}}));
    }
}

TEST_CASE("header_match: one text for what asks for the same") {
    const auto text = [](header_match mode, wanted want) {
        return canonical_text({.match = mode, .headers = std::move(want)});
    };
    CHECK(
        text(header_match::all, {{"a", "1"}, {"b", std::nullopt}}) ==
        text(header_match::all, {{"b", std::nullopt}, {"a", "1"}}));
    const std::vector<std::string> different{
        text(header_match::all, {}),
        text(header_match::any, {}),
        text(header_match::all_with_x, {}),
        text(header_match::all, {{"a", "1"}}),
        text(header_match::all, {{"a", ""}}),
        text(header_match::all, {{"a", std::nullopt}}),
        text(header_match::all, {{"a=1:1", std::nullopt}}),
        text(header_match::all, {{"a", "1"}, {"b", "2"}}),
        text(header_match::all, {{"a", "11:b=1:2"}}),
        text(header_match::all, {{"a", "2"}, {"b", "1"}})};
    for (const std::string& one : different) {
        CHECK(std::count(different.begin(), different.end(), one) == 1);
    }
}
