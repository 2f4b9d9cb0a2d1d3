// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/exchange_index.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using railmq::binding_arguments;
using railmq::exchange_type;
using railmq::header_match;
using railmq::core::destination;
using railmq::core::exchange_index;
using railmq::core::no_number;
using railmq::core::topic_scratch;

namespace {

using list = std::vector<std::uint32_t>;
using headers = std::vector<std::pair<std::string, std::string>>;

struct fixture {
    exchange_index index;
    topic_scratch scratch{};

    explicit fixture(exchange_type type)
        : index{type} {}

    std::string text(std::string_view key, const binding_arguments& a = {}, std::uint32_t id = 0) {
        return index.text_of(destination::queue(id), key, a);
    }

    void
    add(std::uint32_t bundle,
        std::string_view key,
        const binding_arguments& a = {},
        std::uint32_t id = 0) {
        index.add(bundle, text(key, a, id), a, id);
    }

    list matching(std::string_view key, const headers& have = {}) {
        list out;
        const bool matched =
            index.match(key, have, scratch, [&](std::uint32_t b) { out.push_back(b); });
        CHECK(matched == !out.empty());
        std::sort(out.begin(), out.end());
        return out;
    }
};

} // namespace

TEST_CASE("[N01] exchange_index: direct, the key is equal, and an empty key is a key") {
    fixture f{exchange_type::direct};
    f.add(1, "a");
    f.add(2, "");
    f.add(3, "*");
    CHECK(f.matching("a") == list{1});
    CHECK(f.matching("") == list{2});
    CHECK(f.matching("*") == list{3});
    CHECK(f.matching("A").empty());
    CHECK(f.matching("a.b").empty());
    CHECK(f.index.find("a") == 1);
    CHECK(f.index.find("b") == no_number);
    f.index.erase(1, "a");
    CHECK(f.matching("a").empty());
    CHECK(f.index.find("a") == no_number);
}

TEST_CASE("[N02] exchange_index: fanout, keys do not count") {
    fixture f{exchange_type::fanout};
    CHECK(f.matching("a").empty());
    CHECK(f.text("a") == f.text("b"));
    f.add(1, "a");
    for (const std::string_view key : {"", "a", "b"}) {
        CHECK(f.matching(key) == list{1});
    }
    f.index.erase(1, f.text("b"));
    CHECK(f.matching("a").empty());
}

TEST_CASE("exchange_index: topic, each pattern is a bundle") {
    fixture f{exchange_type::topic};
    f.add(1, "a.*");
    f.add(2, "#.b");
    CHECK(f.matching("a.b") == list{1, 2});
    CHECK(f.matching("b") == list{2});
    CHECK(f.index.find("a.*") == 1);
    f.index.erase(1, "a.*");
    CHECK(f.matching("a.b") == list{2});
}

TEST_CASE("exchange_index: headers, what is asked for is a bundle, in whatever order") {
    fixture f{exchange_type::headers};
    const binding_arguments both{.headers = {{"a", "1"}, {"b", std::nullopt}}};
    const binding_arguments turned{.headers = {{"b", std::nullopt}, {"a", "1"}}};
    const binding_arguments one{.match = header_match::any, .headers = both.headers};
    CHECK(f.text("k", both) == f.text("l", turned));
    CHECK(f.text("k", both) != f.text("k", one));
    f.add(1, "", both);
    f.add(2, "", one);
    f.add(3, "", {});
    CHECK(f.matching("", {{"a", "1"}, {"b", ""}}) == list{1, 2, 3});
    CHECK(f.matching("", {{"b", ""}}) == list{2, 3});
    CHECK(f.matching("", {}) == list{3});
    f.index.erase(2, f.text("", one));
    CHECK(f.matching("", {{"a", "1"}, {"b", ""}}) == list{1, 3});
    CHECK(f.index.find(f.text("", turned)) == 1);
}

TEST_CASE("[N27] exchange_index: consistent_hash, one for each key, by weight") {
    fixture f{exchange_type::consistent_hash};
    CHECK(f.matching("k").empty());
    f.add(0, "", {}, 10);
    f.add(1, "", {}, 11);
    f.add(2, "", {.weight = 8}, 12);
    const auto counts = [&] {
        list n(3);
        for (int i = 0; i != 1'000; ++i) {
            const std::string key = "key-" + std::to_string(i);
            const list found = f.matching(key);
            REQUIRE(found.size() == 1);
            REQUIRE(f.matching(key) == found);
            ++n[found.front()];
        }
        return n;
    };
    const list first = counts();
    CHECK(first[0] > 30);
    CHECK(first[1] > 30);
    CHECK(first[2] > 650);
    f.index.weigh(2, 12, 1);
    CHECK(counts()[2] < 500);
    f.index.erase(1, f.text("", {}, 11));
    CHECK(counts()[1] == 0);
}
