// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/name.hpp>

#include "support/catch.hpp"

#include <string>
#include <string_view>

using railmq::is_valid_name;
using railmq::validate_name;

TEST_CASE("name: 1 to 249 of letters, digits, dot, underscore and dash") {
    for (const std::string_view good :
         {"a", "orders", "Orders-2.eu_west", "...", ".a", "0", "-", "_", "orders.dead"}) {
        CHECK(is_valid_name(good));
        CHECK_FALSE(validate_name(good));
    }
    CHECK(is_valid_name(std::string(249, 'x')));
    for (const std::string_view bad :
         {"", ".", "..", "a b", "a/b", "../a", "a\\b", "a\n", "caf\xc3\xa9", "a:b", "*", "#"}) {
        CHECK_FALSE(is_valid_name(bad));
        CHECK(validate_name(bad).code == railmq::errc::invalid_name);
    }
    CHECK_FALSE(is_valid_name(std::string(250, 'x')));
    CHECK_FALSE(is_valid_name(std::string_view{"a\0b", 3}));
}

TEST_CASE("name: the error shows the name, made harmless and cut") {
    CHECK(
        validate_name("a b").what ==
        "a name is 1 to 249 of [A-Za-z0-9._-] and not '.' or '..'; got 'a b' (3 bytes)");
    const std::string forged = validate_name("x\nERROR: all is lost\x1b[31m").what;
    CHECK(forged.find('\n') == std::string::npos);
    CHECK(forged.find('\x1b') == std::string::npos);
    CHECK(forged.find("x\\x0aERROR") != std::string::npos);
    const std::string longer = validate_name(std::string(100'000, 'x')).what;
    CHECK(longer.size() < 200);
    CHECK(longer.find("...' (100000 bytes)") != std::string::npos);
}

TEST_CASE("printable: what is no plain ASCII is spelt out") {
    CHECK(railmq::detail::printable("plain") == "plain");
    CHECK(railmq::detail::printable("a\\b") == "a\\x5cb"); // so that nothing can look spelt out
    CHECK(railmq::detail::printable(std::string_view{"\0\xff", 2}) == "\\x00\\xff");
    CHECK(railmq::detail::printable("abcdef", 3) == "abc...");
    CHECK(railmq::detail::printable("") == "");
}
