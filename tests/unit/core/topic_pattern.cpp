// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/topic_pattern.hpp>

#include "support/catch.hpp"

#include <string>
#include <string_view>
#include <vector>

using railmq::core::is_any_words;
using railmq::core::is_one_word;
using railmq::core::topic_words;

namespace {

std::vector<std::string> words(std::string_view text) {
    std::vector<std::string> out;
    topic_words reader{text};
    std::string_view word;
    while (reader.next(word)) {
        out.emplace_back(word);
    }
    return out;
}

using list = std::vector<std::string>;

} // namespace

TEST_CASE("topic_words: dots separate, empty words are words, the empty text has none") {
    CHECK(words("").empty());
    CHECK(words("a") == list{"a"});
    CHECK(words("shop.eu.paid") == list{"shop", "eu", "paid"});
    CHECK(words(".") == list{"", ""});
    CHECK(words("a..b") == list{"a", "", "b"});
    CHECK(words(".a.") == list{"", "a", ""});
    CHECK(words("...") == list{"", "", "", ""});
    CHECK(words(std::string_view{"\0.\0", 3}).size() == 2);
}

TEST_CASE("topic_words: at the end it stays at the end, and the word as it was") {
    topic_words reader{"a"};
    std::string_view word;
    CHECK(reader.next(word));
    CHECK_FALSE(reader.next(word));
    CHECK_FALSE(reader.next(word));
    CHECK(word == "a");
}

TEST_CASE("topic_pattern: wildcards are whole words") {
    CHECK(is_one_word("*"));
    CHECK(is_any_words("#"));
    for (const std::string_view literal : {"", "**", "##", "a*", "*a", "a#", "#a", "#*", " *"}) {
        CHECK_FALSE(is_one_word(literal));
        CHECK_FALSE(is_any_words(literal));
    }
}
