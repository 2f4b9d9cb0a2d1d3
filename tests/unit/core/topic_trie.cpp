// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/topic_trie.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using railmq::core::topic_scratch;
using railmq::core::topic_trie;

namespace {

using list = std::vector<std::string>;

/// A trie whose values are the places of the patterns in a list.
struct patterns {
    list texts;
    topic_trie trie;
    topic_scratch scratch;

    explicit patterns(list all)
        : texts{std::move(all)} {
        for (std::size_t i = 0; i != texts.size(); ++i) {
            trie.set(texts[i], static_cast<std::uint32_t>(i));
        }
    }

    /// Those that match, sorted; each as often as it was reported.
    list matching(std::string_view key) {
        list out;
        trie.match(key, scratch, [&](std::uint32_t i) { out.push_back(texts[i]); });
        std::sort(out.begin(), out.end());
        return out;
    }
};

list sorted(list l) {
    std::sort(l.begin(), l.end());
    return l;
}

bool matches(std::string_view pattern, std::string_view key) {
    return !patterns{{std::string{pattern}}}.matching(key).empty();
}

std::string repeated(std::string_view word, std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i != n; ++i) {
        out.append(i == 0 ? "" : ".").append(word);
    }
    return out;
}

} // namespace

TEST_CASE("[D57] topic_trie: shop.eu.paid") {
    patterns p{
        {"shop.*.paid",
         "shop.#",
         "#.paid",
         "*.eu.*",
         "#",
         "shop.eu.paid.#",
         "shop.*",
         "*.paid",
         "*.*.*.*"}};
    CHECK(
        p.matching("shop.eu.paid") ==
        sorted({"shop.*.paid", "shop.#", "#.paid", "*.eu.*", "#", "shop.eu.paid.#"}));
}

TEST_CASE("[N03] topic_trie: wildcards at the end and in the middle") {
    patterns p{{"foo.*", "foo.#", "foo.bar", "foo.*.baz", "#"}};
    CHECK(p.matching("foo.bar") == sorted({"#", "foo.bar", "foo.#", "foo.*"}));
    CHECK(p.matching("foo.bar.baz") == sorted({"#", "foo.*.baz", "foo.#"}));
    CHECK(p.matching("foo.bar.baz.qux") == sorted({"#", "foo.#"}));
    CHECK(p.matching("foo.qux") == sorted({"#", "foo.#", "foo.*"}));
    CHECK(p.matching("bar.foo") == list{"#"});
}

TEST_CASE("[N04] topic_trie: # in front and in the middle") {
    patterns p{{"#.c", "#.b.c", "a.#.d", "#.*.#"}};
    CHECK(p.matching("a.b.c") == sorted({"#.c", "#.b.c", "#.*.#"}));
    CHECK(p.matching("c") == sorted({"#.c", "#.*.#"}));
    CHECK(p.matching("x.y.b.c") == sorted({"#.c", "#.b.c", "#.*.#"}));
    CHECK(p.matching("a.d") == sorted({"a.#.d", "#.*.#"}));
    CHECK(p.matching("a.b.c.d") == sorted({"a.#.d", "#.*.#"}));
    CHECK(p.matching("x") == list{"#.*.#"});
    CHECK(p.matching("x.c") == sorted({"#.c", "#.*.#"}));
    CHECK(p.matching("").empty());
}

TEST_CASE("[N05] topic_trie: the empty key matches # and the empty pattern") {
    patterns p{{"#", "", "*", "#.*", "#.#", "a.#"}};
    CHECK(p.matching("") == sorted({"#", "", "#.#"}));
    CHECK(p.matching("a") == sorted({"#", "*", "#.*", "#.#", "a.#"}));
}

TEST_CASE("[N06] topic_trie: empty words are words") {
    patterns p{{".#", ".*", ".*.a.b.c", "*", "*.*", "."}};
    CHECK(p.matching(".0.a.b.c") == sorted({".#", ".*.a.b.c"}));
    CHECK(p.matching(".") == sorted({".#", ".*", "*.*", "."}));
}

TEST_CASE("[N07] topic_trie: wildcards are whole words, and nothing in a key") {
    patterns p{{"simply#carrots", "a#b", "##", "#.bla", "*", "a+b", "a(b", "**"}};
    CHECK(p.matching("simply#carrots") == sorted({"simply#carrots", "*"}));
    CHECK(p.matching("simply.carrots").empty());
    CHECK(p.matching("a.x.b").empty());
    CHECK(p.matching("##") == sorted({"##", "*"}));
    CHECK(p.matching("#.bla") == list{"#.bla"});
    CHECK(p.matching("x.bla") == list{"#.bla"});
    CHECK(p.matching("a+b") == sorted({"a+b", "*"}));
    CHECK(p.matching("a(b") == sorted({"a(b", "*"}));
    CHECK(p.matching("aab") == list{"*"});
    patterns literal{{"#", "*", "x"}};
    CHECK(literal.matching("*") == sorted({"#", "*"}));
    CHECK(literal.matching("*.x") == list{"#"});
}

TEST_CASE("[N08] topic_trie: many words") {
    const std::string key = repeated("w", 26);
    patterns p{{repeated("*", 26), repeated("*", 26) + ".#", repeated("*", 27), "T.#", "T.*"}};
    CHECK(p.matching(key) == sorted({repeated("*", 26), repeated("*", 26) + ".#"}));
    CHECK(p.matching("T") == list{"T.#"});
}

TEST_CASE("[BR16] topic_trie: the edges that others have fallen over") {
    CHECK_FALSE(matches("a.*", "a.b.c"));
    CHECK_FALSE(matches("a.*.c", "a.b.x.c"));
    CHECK(matches("a.*.c.#", "a.b.c"));
    CHECK(matches("s.#", "s"));
    CHECK(matches("a.#.b", "a.b"));
    CHECK(matches("a.#.b", "a..b"));
    CHECK(matches("a.#.b", "a.x.y.b"));
    CHECK_FALSE(matches("a.#.b", "ab"));
    CHECK(matches("*.test", "test.test"));
    CHECK(matches("#", ""));
    CHECK(matches("#.*", ".."));
    CHECK_FALSE(matches("*", ""));
    CHECK(matches("a.*", "a."));
    CHECK_FALSE(matches("a.#.a", "a")); // one word is not two
    CHECK(matches("a.#.a", "a.a"));
    CHECK_FALSE(matches("#.*.#.*", "a"));
}

TEST_CASE("[N09] [BR16] topic_trie: many # cost a step for each word and node") {
    patterns p{{repeated("#", 15), repeated("#", 10) + ".x"}};
    CHECK(p.matching(repeated("w", 31)) == list{repeated("#", 15)});
    CHECK(p.scratch.steps() <= 31 * p.trie.node_count());
    CHECK(p.matching(repeated("w", 31) + ".x") == sorted(p.texts));

    // What makes a matcher that tries every way try them all.
    std::string hashes = "#";
    for (int i = 0; i != 20; ++i) {
        hashes += ".a.#";
    }
    patterns q{{hashes + ".b"}};
    CHECK(q.matching(repeated("a", 100)).empty());
    CHECK(q.scratch.steps() <= 100 * q.trie.node_count());
    CHECK(q.matching(repeated("a", 100) + ".b").size() == 1);
}

TEST_CASE("[N24] topic_trie: words are bytes") {
    patterns p{{"\xe6\xb3\xa8\xe6\x96\x87.*", "caf\xc3\xa9", "\xf0\x9f\x8d\x95.#", "\xff.*"}};
    CHECK(p.matching("\xe6\xb3\xa8\xe6\x96\x87.x").size() == 1);
    CHECK(p.matching("caf\xc3\xa9") == list{"caf\xc3\xa9"});
    CHECK(p.matching("cafe\xcc\x81").empty());
    CHECK(p.matching("\xf0\x9f\x8d\x95").size() == 1);
    CHECK(p.matching("\xff.\xfe").size() == 1);
    CHECK(p.trie.find("caf\xc3\xa9") == 1);
}

TEST_CASE("topic_trie: a map from patterns to numbers") {
    topic_trie trie;
    CHECK(trie.size() == 0);
    CHECK(trie.find("") == topic_trie::none);
    trie.set("", 7);
    trie.set("a.b", 1);
    trie.set("a.b", 2);
    CHECK(trie.size() == 2);
    CHECK(trie.find("") == 7);
    CHECK(trie.find("a.b") == 2);
    CHECK(trie.find("a") == topic_trie::none);
    CHECK(trie.find("a.*") == topic_trie::none); // a pattern like any other, not a question
    CHECK_FALSE(trie.erase("a"));
    CHECK_FALSE(trie.erase("a.b.c"));
    CHECK_FALSE(trie.erase("a.#"));
    CHECK(trie.erase("a.b"));
    CHECK_FALSE(trie.erase("a.b"));
    CHECK(trie.erase(""));
    CHECK(trie.size() == 0);
    CHECK(trie.node_count() == 0);
}

TEST_CASE("[N12] topic_trie: what came in one order and went in another leaves nothing behind") {
    list all;
    for (const std::string_view first : {"a", "*", "#"}) {
        for (const std::string_view second : {"b", "*", "#"}) {
            for (const std::string_view third : {"", "c", "*", "#"}) {
                all.push_back(
                    std::string{first} + "." + std::string{second} + "." + std::string{third});
            }
        }
    }
    REQUIRE(all.size() == 36);
    std::mt19937_64 random{railmq::test::seed(1)};
    for (int round = 0; round != 20; ++round) {
        std::shuffle(all.begin(), all.end(), random);
        patterns p{all};
        CHECK(p.trie.size() == 36);
        CHECK(p.trie.node_count() == 3 + 9 + 36);
        std::shuffle(all.begin(), all.end(), random);
        for (std::size_t gone = 0; gone != all.size(); ++gone) {
            REQUIRE(p.trie.erase(all[gone]));
            const list left{all.begin() + static_cast<std::ptrdiff_t>(gone) + 1, all.end()};
            for (const std::string& text : left) {
                REQUIRE(p.trie.find(text) != topic_trie::none);
            }
        }
        CHECK(p.trie.size() == 0);
        CHECK(p.trie.node_count() == 0);
    }
}

TEST_CASE("topic_trie: what is left when most have gone still matches") {
    topic_trie trie;
    topic_scratch scratch;
    for (std::uint32_t i = 0; i != 10'000; ++i) {
        trie.set("device." + std::to_string(i) + ".#", i);
    }
    CHECK(trie.node_count() == 1 + 2 * 10'000);
    for (std::uint32_t i = 0; i != 10'000; ++i) {
        if (i % 100 != 0) {
            REQUIRE(trie.erase("device." + std::to_string(i) + ".#"));
        }
    }
    CHECK(trie.size() == 100);
    CHECK(trie.node_count() == 1 + 2 * 100);
    for (std::uint32_t i = 0; i != 10'000; ++i) {
        std::vector<std::uint32_t> found;
        trie.match("device." + std::to_string(i) + ".on", scratch, [&](std::uint32_t v) {
            found.push_back(v);
        });
        REQUIRE(
            found == (i % 100 == 0 ? std::vector<std::uint32_t>{i} : std::vector<std::uint32_t>{}));
    }
    trie.set("device.1.#", 1); // numbers of nodes and words are given out again
    trie.set("other.*.1", 2);
    CHECK(trie.find("device.1.#") == 1);
    CHECK(trie.find("device.200.#") == 200);
    CHECK(trie.find("other.*.1") == 2);
    CHECK(trie.node_count() == 1 + 2 * 101 + 3);
}
