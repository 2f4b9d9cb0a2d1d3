// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/printable.hpp>

#include "support/catch.hpp"

#include <random>
#include <string>

using railmq::printable;

TEST_CASE("printable: plain text and other people's letters stay as they are") {
    CHECK(printable("") == "");
    CHECK(printable("order 7, \"espresso\"") == "order 7, \"espresso\"");
    CHECK(printable("gr\xc3\xbc\xc3\x9f dich") == "gr\xc3\xbc\xc3\x9f dich");
    CHECK(printable("\xe2\x98\x95 \xf0\x9f\x8d\xb5") == "\xe2\x98\x95 \xf0\x9f\x8d\xb5");
}

TEST_CASE("printable: what controls a terminal or forges a line is spelled out") {
    CHECK(printable("a\r\nb\tc") == "a\\x0d\\x0ab\\x09c");
    CHECK(printable("\x1b[2J") == "\\x1b[2J");
    CHECK(printable("\x7f") == "\\x7f");
    CHECK(printable(std::string_view{"\0", 1}) == "\\x00");
    CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");          // C1
    CHECK(printable("\xe2\x80\xae") == "\\xe2\\x80\\xae"); // writes backwards
    CHECK(printable("\xe2\x81\xa6") == "\\xe2\\x81\\xa6"); // isolates
    CHECK(printable("\xe2\x80\xa8") == "\\xe2\\x80\\xa8"); // ends a line
    CHECK(printable("\\x1b") == "\\x5cx1b"); // or it could not be told from the real one
}

TEST_CASE("printable: bytes that are no UTF-8 are spelled out one by one") {
    CHECK(printable("\xff") == "\\xff");
    CHECK(printable("\x80") == "\\x80");
    CHECK(printable("\xc3") == "\\xc3");                            // ends too early
    CHECK(printable("\xc3(") == "\\xc3(");                          // not continued
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                   // longer than need be
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");          // half a pair
    CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80"); // beyond the last
}

TEST_CASE("printable: long text is cut between two characters") {
    CHECK(printable("abcdef", 6) == "abcdef");
    CHECK(printable("abcdefg", 6) == "abcdef...");
    CHECK(printable("abc\xc3\xbc", 4) == "abc...");
    CHECK(printable("ab\n", 4) == "ab...");
    CHECK(printable(std::string(1000, 'x')).size() == 259);
    CHECK(printable(std::string(1000, '\n')).size() <= 259);
}

TEST_CASE("printable: whatever comes in, one line of plain characters comes out") {
    std::mt19937 random{7};
    for (int i = 0; i < 20'000; ++i) {
        std::string text(random() % 40, '\0');
        for (char& c : text) {
            c = static_cast<char>(random());
        }
        const std::string out = printable(text);
        CHECK(printable(out).size() >= out.size());
        for (std::string_view rest = out; !rest.empty();) {
            const auto c = railmq::detail::first_character(rest);
            REQUIRE(c.bytes != 0);
            REQUIRE_FALSE(railmq::detail::is_control(c.code));
            rest.remove_prefix(c.bytes);
        }
    }
}
