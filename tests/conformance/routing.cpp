// SPDX-License-Identifier: BSL-1.0
//
// Exchanges and bindings, through the public face.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <boost/asio/thread_pool.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::exchange_type;
using railmq::header_match;
using namespace railmq::test;

namespace {

using list = std::vector<std::string>;

/// An exchange of texts in a simulation, and queues that are named when they are bound.
struct routing : simulated_world {
    explicit routing(exchange_type type, const railmq::exchange_options& o = {})
        : x{broker.exchange<std::string>("x", type, o)} {}

    [[nodiscard]] railmq::sim_queue<std::string> queue(const std::string& name) {
        return broker.queue<std::string>(name);
    }
    /// Binds a queue, by its pattern where it has no name of its own.
    void bind(const std::string& name, const std::string& pattern) { x.bind(queue(name), pattern); }
    /// Publishes with that key, and says which queues have got it.
    [[nodiscard]] list publish(const std::string& key) {
        auto p = x.producer();
        const auto routed = p.send("m", {.routing_key = key}).routed;
        list got = take();
        CHECK(got.size() == routed);
        return got;
    }
    /// Which queues have a message; empties them. A queue with two is listed twice.
    [[nodiscard]] list take() {
        list got;
        for (const std::string& name : broker.names()) {
            if (!name.ends_with(".dead")) {
                auto q = queue(name);
                got.insert(got.end(), q.stats().ready, name);
                q.purge();
            }
        }
        return got;
    }

    railmq::sim_exchange<std::string> x;
};

} // namespace

TEST_CASE("[N01] direct: the key must be equal, and an empty key is a key") {
    routing w{exchange_type::direct};
    w.bind("a", "a");
    w.bind("b", "b");
    w.bind("empty", "");
    CHECK(w.publish("a") == list{"a"});
    CHECK(w.publish("b") == list{"b"});
    CHECK(w.publish("") == list{"empty"});
    CHECK(w.publish("A").empty());
    CHECK(w.publish("a.b").empty());
    CHECK(w.publish("#").empty());
}

TEST_CASE("[N02] fanout: the key is ignored") {
    routing w{exchange_type::fanout};
    w.bind("a", "k");
    w.bind("b", "");
    CHECK(w.publish("k") == list{"a", "b"});
    CHECK(w.publish("other") == list{"a", "b"});
    // Unbound with any key: it is the same binding.
    CHECK(w.x.unbind(w.queue("a"), "whatever"));
    CHECK(w.publish("k") == list{"b"});
}

TEST_CASE("[N03] topic: one word, any number of words, the words themselves") {
    routing w{exchange_type::topic};
    w.bind("star", "foo.*");
    w.bind("hash", "foo.#");
    w.bind("exact", "foo.bar");
    w.bind("deep", "foo.*.baz");
    w.bind("all", "#");
    CHECK(w.publish("foo.bar") == list{"all", "exact", "hash", "star"});
    CHECK(w.publish("foo.bar.baz") == list{"all", "deep", "hash"});
    CHECK(w.publish("foo.bar.baz.qux") == list{"all", "hash"});
    CHECK(w.publish("foo.qux") == list{"all", "hash", "star"});
    CHECK(w.publish("bar.foo") == list{"all"});
}

TEST_CASE("[N04] topic: # in front and in the middle") {
    routing w{exchange_type::topic};
    w.bind("1", "#.c");
    w.bind("2", "#.b.c");
    w.bind("3", "a.#.d");
    w.bind("4", "#.*.#");
    CHECK(w.publish("a.b.c") == list{"1", "2", "4"});
    CHECK(w.publish("c") == list{"1", "4"});
    CHECK(w.publish("x.y.b.c") == list{"1", "2", "4"});
    CHECK(w.publish("a.d") == list{"3", "4"});
    CHECK(w.publish("a.b.c.d") == list{"3", "4"});
    CHECK(w.publish("x") == list{"4"});
    CHECK(w.publish("x.c") == list{"1", "4"});
}

TEST_CASE("[N05] topic: an empty key has no words") {
    routing w{exchange_type::topic};
    w.bind("empty", "");
    w.bind("hash", "#");
    w.bind("star", "*");
    CHECK(w.publish("") == list{"empty", "hash"});
}

TEST_CASE("[N06] topic: empty words are words") {
    routing w{exchange_type::topic};
    w.bind("1", ".#");
    w.bind("2", ".*");
    w.bind("3", ".*.a.b.c");
    CHECK(w.publish(".0.a.b.c") == list{"1", "3"});
    CHECK(w.publish(".") == list{"1", "2"});
}

TEST_CASE("[N07] [N25] topic: wildcards are whole words, and nothing else is special") {
    routing w{exchange_type::topic};
    for (const char* pattern :
         {"simply#carrots", "a#b", "##", "foo*", "*bar", "foo>", "foo.>.bar"}) {
        const std::string name = "q" + std::to_string(w.broker.names().size());
        w.bind(name, pattern);
        CHECK(w.publish(pattern) == list{name});
    }
    CHECK(w.publish("simply.carrots").empty());
    CHECK(w.publish("a.b").empty());
    CHECK(w.publish("foobar").empty());
    CHECK(w.publish("foo.x.bar").empty());
    w.bind("bla", "*.bla");
    CHECK(w.publish("#.bla") == list{"bla"}); // a # that is published is a word
    w.bind("zero", std::string("a\0b", 3));
    CHECK(w.publish(std::string("a\0b", 3)) == list{"zero"});
    CHECK(w.publish("a").empty());
}

TEST_CASE("[N08] topic: twenty-six words") {
    routing w{exchange_type::topic};
    std::string key;
    std::string stars;
    for (char c = 'a'; c <= 'z'; ++c) {
        key += (key.empty() ? "" : ".") + std::string(1, c);
        stars += stars.empty() ? "*" : ".*";
    }
    w.bind("stars", stars + ".#");
    w.bind("deep", "T.#");
    w.bind("one-more", "T.*");
    CHECK(w.publish(key) == list{"stars"});
    CHECK(w.publish("T") == list{"deep"});
}

TEST_CASE("[N09] topic: fifteen # against thirty-one words") {
    routing w{exchange_type::topic};
    std::string pattern = "#";
    for (int i = 1; i < 15; ++i) {
        pattern += ".a.#";
    }
    w.bind("match", pattern);
    w.bind("none", pattern + ".x");
    std::string key = "a";
    for (int i = 1; i < 31; ++i) {
        key += ".a";
    }
    CHECK(w.publish(key) == list{"match"}); // the property tests count the steps
    CHECK(w.x.unbind(w.queue("match"), pattern));
    CHECK(w.publish(key).empty());
}

TEST_CASE("[N10] two bindings that match are one copy") {
    routing w{exchange_type::topic};
    w.bind("q", "x.#");
    w.bind("q", "#.x");
    CHECK(w.publish("x.x") == list{"q"});
    CHECK(w.x.unbind(w.queue("q"), "x.#"));
    CHECK(w.publish("x.x") == list{"q"});
}

TEMPLATE_TEST_CASE(
    "[N11] five hundred queues of one key all get it", "", threaded_world, simulated_world) {
    TestType w;
    auto x = w.broker.template exchange<std::string>("x", exchange_type::topic);
    for (int i = 0; i < 500; ++i) {
        x.bind(
            open<std::string>(w, "q" + std::to_string(i), {.dead_letter = railmq::discard}), "key");
    }
    auto p = x.producer();
    for (int i = 0; i < 3; ++i) {
        CHECK(p.send(std::to_string(i), {.routing_key = "key"}).routed == 500);
    }
    for (int i = 0; i < 500; ++i) {
        auto c = open<std::string>(w, "q" + std::to_string(i)).consumer();
        CHECK(take_all(c) == list{"0", "1", "2"});
    }
}

TEST_CASE("[N12] [N18] bound in one order and unbound in another, nothing is left") {
    routing w{exchange_type::topic};
    list patterns;
    for (const char* a : {"a", "*", "#"}) {
        for (const char* b : {"b", "*", "#"}) {
            for (const char* c : {"c", "*", "#", "d"}) {
                patterns.push_back(std::string(a) + "." + b + "." + c);
            }
        }
    }
    REQUIRE(patterns.size() == 36);
    for (const auto& p : patterns) {
        w.bind("q", p);
        w.bind("q", p); // twice is once
    }
    CHECK(w.publish("a.b.c") == list{"q"});
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        const std::string& p = patterns[i * 7 % 36];
        CHECK(w.x.unbind(w.queue("q"), p));
        CHECK_FALSE(w.x.unbind(w.queue("q"), p)); // and twice is fine
    }
    CHECK(w.publish("a.b.c").empty());
    error_code ec;
    w.broker.delete_exchange("x", ec, true); // nothing is bound to it
    CHECK_FALSE(ec);
}

TEST_CASE("[N13] topic: what is published goes where a matcher without an index says") {
    // One word after the other, each # tried with every length.
    struct naive {
        static bool matches(const list& p, std::size_t i, const list& k, std::size_t j) {
            if (i == p.size()) {
                return j == k.size();
            }
            if (p[i] == "#") {
                return matches(p, i + 1, k, j) || (j < k.size() && matches(p, i, k, j + 1));
            }
            return j < k.size() && (p[i] == "*" || p[i] == k[j]) && matches(p, i + 1, k, j + 1);
        }
        static list words(std::string_view text) {
            list all;
            while (!text.empty()) {
                const auto dot = text.find('.');
                all.emplace_back(text.substr(0, dot));
                text.remove_prefix(dot == std::string_view::npos ? text.size() : dot + 1);
            }
            return all;
        }
    };
    railmq::random_engine random{13};
    const auto text = [&](const list& alphabet) {
        std::string all;
        for (std::uint64_t n = 1 + random() % 5; n != 0; --n) {
            all += (all.empty() ? "" : ".") + alphabet[random() % alphabet.size()];
        }
        return all;
    };
    routing w{exchange_type::topic};
    std::map<std::string, std::string> bound; // queue to pattern
    for (int i = 0; i < 60; ++i) {
        const std::string name = "q" + std::to_string(i);
        bound[name] = text({"a", "b", "*", "#"});
        w.bind(name, bound[name]);
    }
    for (int i = 0; i < 100; ++i) {
        const std::string key = text({"a", "b", "c"});
        list expected;
        for (const auto& [name, pattern] : bound) {
            if (naive::matches(naive::words(pattern), 0, naive::words(key), 0)) {
                expected.push_back(name);
            }
        }
        CHECK(w.publish(key) == expected);
    }
}

TEST_CASE("[N14] [N15] headers: all, any, presence, and names that begin with x-") {
    routing w{exchange_type::headers};
    const auto with = [&](std::vector<std::pair<std::string, std::string>> headers) {
        w.x.producer().send("m", {.headers = std::move(headers)});
        return w.take();
    };
    const std::vector<railmq::header_argument> wanted{
        {"h1", "12345"}, {"h2", "bar"}, {"h3", std::nullopt}};
    w.x.bind(w.queue("all"), {.match = header_match::all, .headers = wanted});
    w.x.bind(w.queue("any"), {.match = header_match::any, .headers = wanted});
    CHECK(with({}).empty());
    CHECK(with({{"h1", "12345"}}) == list{"any"});
    CHECK(with({{"h1", "0"}}).empty());
    CHECK(with({{"h2", "bar"}}) == list{"any"});
    CHECK(with({{"h2", "quux"}}).empty());
    CHECK(with({{"h3", "whatever"}}) == list{"any"});
    CHECK(with({{"h1", "12345"}, {"h2", "bar"}}) == list{"any"});
    CHECK(with({{"h3", ""}, {"h2", "bar"}, {"h1", "12345"}}) == list{"all", "any"});
    // Of those that begin with x- only the modes that say so look.
    w.x.bind(w.queue("plain"), {.match = header_match::any, .headers = {{"x-k", "v"}}});
    w.x.bind(w.queue("with-x"), {.match = header_match::any_with_x, .headers = {{"x-k", "v"}}});
    CHECK(with({{"x-k", "v"}}) == list{"with-x"});
}

TEST_CASE("[N16] what makes no sense is refused when it is bound, and leaves no binding") {
    routing w{exchange_type::headers};
    const auto q = w.queue("q");
    for (const railmq::binding_arguments& bad :
         {railmq::binding_arguments{.match = static_cast<header_match>(23)},
          railmq::binding_arguments{.headers = {{"x-match", "all"}}},
          railmq::binding_arguments{.headers = {{"a", "1"}, {"a", "2"}}},
          railmq::binding_arguments{.weight = 2}}) {
        CHECK(error_of([&] { w.x.bind(q, bad); }) == errc::invalid_argument);
    }
    CHECK(w.publish("k").empty());
    auto direct = w.broker.exchange<std::string>("direct", exchange_type::direct);
    CHECK(error_of([&] { direct.bind(q, {.headers = {{"a", "1"}}}); }) == errc::invalid_argument);
    auto hash = w.broker.exchange<std::string>("hash", exchange_type::consistent_hash);
    CHECK(error_of([&] { hash.bind(q, "", {.weight = 0}); }) == errc::invalid_argument);
    CHECK(error_of([&] { hash.bind(q, "", {.weight = 1001}); }) == errc::invalid_argument);
    CHECK(hash.producer().send("m").routed == 0);
}

TEST_CASE("[N17] exchanges in a row and in a circle: once for each queue") {
    simulated_world w;
    std::vector<railmq::sim_exchange<int>> e;
    std::vector<railmq::sim_queue<int>> q;
    for (int i = 0; i < 3; ++i) {
        e.push_back(w.broker.exchange<int>("e" + std::to_string(i), exchange_type::fanout));
        q.push_back(open<int>(w, "q" + std::to_string(i)));
        e.back().bind(q.back());
    }
    e[2].bind(e[1]);
    e[1].bind(e[0]);
    auto p = e[2].producer();
    CHECK(p.send(1).routed == 3);
    e[1].bind(q[2]); // two ways to one queue
    CHECK(p.send(2).routed == 3);
    e[0].bind(e[2]); // a circle
    CHECK(e[0].producer().send(3).routed == 3);
    CHECK(e[1].producer().send(4).routed == 3);
    for (const auto& one : q) {
        CHECK(one.stats().ready == 4);
    }
    // What is published to one counts there alone.
    CHECK(e[2].stats().published == 2);
    CHECK(e[2].stats().routed == 6);
    CHECK(e[0].stats().published == 1);
}

TEST_CASE("[N19] [B2.5] the alternate gets only what was unroutable; chains and circles end") {
    simulated_world w;
    const auto make = [&](const char* name, const char* alternate) {
        return w.broker.exchange<int>(name, exchange_type::direct, {.alternate = alternate});
    };
    auto first = make("first", "second");
    auto second = make("second", "third");
    auto third = make("third", "first");
    auto q1 = open<int>(w, "q1");
    auto q3 = open<int>(w, "q3");
    first.bind(q1, "known");
    third.bind(q3, "spare");
    auto p = first.producer({.mandatory = true});
    CHECK(p.send(1, {.routing_key = "known"}).routed == 1);
    CHECK(q3.stats().ready == 0);
    CHECK(p.send(2, {.routing_key = "spare"}).routed == 1); // routed, so not given back
    CHECK(q3.stats().ready == 1);
    error_code ec;
    (void)p.send(3, {.routing_key = "nobody"}, ec);
    CHECK(ec == errc::unroutable);
    const auto s = first.stats();
    CHECK(s.published == 2);
    CHECK(s.by_alternate == 1);
    CHECK(s.returned == 1);
    CHECK(third.stats().published == 0);
}

TEST_CASE("[N20] an alternate that does not exist: the message is gone, without an error") {
    routing w{exchange_type::direct, {.alternate = "later"}};
    CHECK(w.publish("k").empty());
    CHECK(w.x.stats().unroutable == 1);
    auto later = w.broker.exchange<std::string>("later", exchange_type::fanout);
    later.bind(w.queue("q"));
    CHECK(w.publish("k") == list{"q"}); // what a producer remembers does not hide it
    w.broker.delete_exchange("later");
    CHECK(w.publish("k").empty());
}

TEST_CASE(
    "[N21] [D59] [B2.6] unroutable: given back where it is mandatory, else counted and told") {
    int told = 0;
    simulated_world w{
        {.observer = railmq::on<railmq::notices::unroutable>([&](const auto&) { ++told; })}};
    auto x = w.broker.exchange<std::string>("x", exchange_type::direct, {.alternate = "caught"});
    CHECK(x.producer().send("m", {.routing_key = "sms"}).routed == 0);
    std::string value(100, 'v');
    error_code ec;
    (void)x.producer({.mandatory = true}).send(std::move(value), {.routing_key = "sms"}, ec);
    CHECK(ec == errc::unroutable);
    CHECK(value == std::string(100, 'v'));
    CHECK(told == 2);
    CHECK(x.stats().unroutable == 2);
    auto caught = w.broker.exchange<std::string>("caught", exchange_type::fanout);
    caught.bind(open<std::string>(w, "q"));
    CHECK(x.producer({.mandatory = true}).send("m", {.routing_key = "sms"}).routed == 1);
    CHECK(told == 2);
}

TEST_CASE("[N22] binding what does not exist is an error and leaves no binding") {
    routing w{exchange_type::fanout};
    auto q = w.queue("gone");
    w.broker.delete_queue("gone");
    CHECK(error_of([&] { w.x.bind(q); }) == errc::not_found);
    auto again = w.queue("gone"); // another queue of that name
    CHECK(error_of([&] { w.x.bind(q); }) == errc::not_found);
    auto y = w.broker.exchange<std::string>("y", exchange_type::fanout);
    w.broker.delete_exchange("y");
    CHECK(error_of([&] { w.x.bind(y); }) == errc::not_found);
    CHECK(error_of([&] { y.bind(again); }) == errc::not_found);
    auto l = w.broker.log<std::string>("l");
    w.broker.delete_log("l");
    CHECK(error_of([&] { w.x.bind(l); }) == errc::not_found);
    simulated_world other;
    CHECK(error_of([&] {
              w.x.bind(other.broker.queue<std::string>("q"));
          }) == errc::invalid_argument);
    CHECK(error_of([&] {
              w.x.bind(other.broker.exchange<std::string>("x", exchange_type::fanout));
          }) == errc::invalid_argument);
    CHECK(w.publish("k").empty());
    error_code ec;
    w.broker.delete_exchange("x", ec, true);
    CHECK_FALSE(ec);
}

TEST_CASE("[N23] a queue or an exchange that is deleted takes its bindings along") {
    routing w{exchange_type::topic};
    auto y = w.broker.exchange<std::string>("y", exchange_type::fanout);
    w.bind("q", "a.*");
    w.bind("q", "#");
    w.x.bind(y, "#");
    y.bind(w.queue("r"));
    CHECK(w.publish("a.b") == list{"q", "r"});
    w.broker.delete_queue("q");
    CHECK(w.publish("a.b") == list{"r"});
    (void)w.queue("q"); // one that is made anew is not bound
    CHECK(w.publish("a.b") == list{"r"});
    w.broker.delete_exchange("y");
    CHECK(w.publish("a.b").empty());
    auto z = w.broker.exchange<std::string>("y", exchange_type::fanout);
    CHECK(w.publish("a.b").empty());
    error_code ec;
    w.broker.delete_exchange("x", ec, true);
    CHECK_FALSE(ec);
}

TEST_CASE("[N24] words are compared byte by byte") {
    routing w{exchange_type::topic};
    for (const char* word :
         {"\xe6\x97\xa5\xe6\x9c\xac",
          "\xf0\x9f\x9a\x82",
          "\xd0\xbf\xd0\xbe\xd0\xb5\xd0\xb7\xd0\xb4",
          "\xc3\xa9t\xc3\xa9"}) {
        w.x.bind(w.queue("q"), std::string(word) + ".*");
        CHECK(w.publish(std::string(word) + ".x") == list{"q"});
        CHECK(w.publish(std::string("x.") + word).empty());
        CHECK(w.x.unbind(w.queue("q"), std::string(word) + ".*"));
    }
    // The same letter written otherwise is another word.
    w.bind("q", "e\xcc\x81");
    CHECK(w.publish("\xc3\xa9").empty());
}

TEST_CASE("[N26] opened again it is the same, with anything else it is refused and says why") {
    simulated_world w;
    auto x = w.broker.exchange<int>("x", exchange_type::topic, {.alternate = "y"});
    CHECK(w.broker.exchange<int>("x", exchange_type::topic, {.alternate = "y"}) == x);
    const auto what = [&](auto&& f) {
        try {
            f();
            return std::string{};
        } catch (const railmq::system_error& e) {
            return std::string{e.what()};
        }
    };
    CHECK(what([&] {
              (void)w.broker.exchange<int>("x", exchange_type::direct, {.alternate = "y"});
          }).starts_with("exchange 'x' exists with another type"));
    CHECK(what([&] {
              (void)w.broker.exchange<int>("x", exchange_type::topic);
          }).starts_with("exchange 'x' exists with another alternate"));
    CHECK(what([&] {
              (void)w.broker.exchange<long>("x", exchange_type::topic, {.alternate = "y"});
          }).starts_with("exchange 'x' has messages of type int, not long"));
    CHECK(x.is_open());
    error_code ec;
    w.broker.delete_exchange("x", ec);
    CHECK_FALSE(ec);
    w.broker.delete_exchange("x", ec);
    CHECK(ec == errc::not_found);
}

TEST_CASE("[N27] [B2.9] consistent hashing: exactly one, and the same for the same key") {
    const auto placed = [](const list& names) {
        simulated_world w;
        auto x = w.broker.exchange<std::string>("x", exchange_type::consistent_hash);
        auto p = x.producer();
        CHECK(p.send("m", {.routing_key = "k"}).routed == 0);
        for (const auto& name : names) {
            x.bind(open<std::string>(w, name));
        }
        std::map<std::string, std::string> where;
        for (int i = 0; i < 300; ++i) {
            const std::string key = "key" + std::to_string(i);
            CHECK(p.send(key, {.routing_key = key}).routed == 1);
            CHECK(p.send(key, {.routing_key = key}).routed == 1);
        }
        for (const auto& name : names) {
            auto c = open<std::string>(w, name).consumer({.prefetch = railmq::unlimited});
            for (const auto& key : take_all(c)) {
                CHECK(where.emplace(key, name).first->second == name);
            }
        }
        CHECK(where.size() == 300);
        return where;
    };
    // In another process, with the queues made in another order, keys go to the same names.
    const auto before = placed({"a", "b", "c"});
    CHECK(placed({"c", "a", "b"}) == before);
    int moved = 0;
    for (const auto& [key, name] : placed({"a", "b", "c", "d"})) {
        CHECK((name == "d" || before.at(key) == name)); // only to the new one
        moved += name == "d" ? 1 : 0;
    }
    CHECK(moved > 20);
    CHECK(moved < 150);
}

// Numbers from the seed document

TEST_CASE("[D11] [D12] copies are messages times subscribers") {
    simulated_world w;
    auto x = w.broker.exchange<int>("x", exchange_type::fanout);
    for (const char* name : {"a", "b", "c", "d"}) {
        x.bind(open<int>(w, name));
    }
    auto p = x.producer();
    CHECK(p.send(0).routed == 4);
    CHECK(p.send_batch(numbers(1, 599)) == 599);
    CHECK(x.stats().routed == 4 * 600);
    for (const char* name : {"a", "b", "c", "d"}) {
        auto c = open<int>(w, name).consumer({.prefetch = railmq::unlimited});
        CHECK(take_all(c) == numbers(0, 599)); // [BR01]
    }
}

TEST_CASE("[D13] [D14] [D58] a queue divides its copy, consumers do not multiply it") {
    simulated_world w;
    auto x = w.broker.exchange<std::string>("user", exchange_type::direct);
    std::map<std::string, int> done;
    std::vector<railmq::sim_subscription> instances;
    for (const char* service : {"audit", "search", "mail"}) {
        auto q = open<std::string>(w, service);
        x.bind(q, "registered");
        const int n = std::string_view{service} == "search" ? 3 : 2;
        for (int i = 0; i < n; ++i) {
            instances.push_back(q.subscribe(
                w.executor(), [&done, service](const std::string&) { ++done[service]; }));
        }
    }
    CHECK(x.producer().send("m", {.routing_key = "registered"}).routed == 3);
    w.sim.run_until_idle();
    CHECK(done == std::map<std::string, int>{{"audit", 1}, {"search", 1}, {"mail", 1}});
}

TEST_CASE("[D15] [D18] a queue for each instance: each works, and who is away misses it") {
    simulated_world w;
    auto x = w.broker.exchange<int>("x", exchange_type::fanout);
    int mails = 0;
    std::vector<railmq::sim_subscription> all;
    const auto join = [&](const std::string& name) {
        auto q = open<int>(w, name);
        x.bind(q);
        all.push_back(q.subscribe(w.executor(), [&](const int&) { ++mails; }));
    };
    join("1");
    join("2");
    join("3");
    x.producer().send(1);
    w.sim.run_until_idle();
    CHECK(mails == 3);
    w.broker.delete_queue("3");
    x.producer().send(2);
    w.sim.run_until_idle();
    CHECK(mails == 5);
    join("3");
    w.sim.run_until_idle();
    CHECK(mails == 5);
}

TEST_CASE("[D16] an order placed goes to three that do not depend on each other") {
    simulated_world w;
    auto x = w.broker.exchange<int>("events", exchange_type::topic);
    auto billing = open<int>(w, "billing", {.retry = at_once()});
    auto search = open<int>(w, "search");
    auto mail = open<int>(w, "mail");
    for (const auto* q : {&billing, &search, &mail}) {
        x.bind(*q, "order.placed");
    }
    x.producer().send(7, {.routing_key = "order.placed"});
    auto b = billing.consumer();
    b.try_receive()->nack();
    auto again = b.try_receive();
    REQUIRE(again);
    CHECK(again->delivery_count() == 2);
    auto s = search.consumer();
    CHECK(s.try_receive()->delivery_count() == 1);
    CHECK(mail.stats().ready == 1);
}

TEST_CASE("[D57] topic: shop.eu.paid") {
    routing w{exchange_type::topic};
    list match;
    for (const char* pattern :
         {"shop.*.paid", "shop.#", "#.paid", "*.eu.*", "#", "shop.eu.paid.#"}) {
        match.push_back("m" + std::to_string(match.size()));
        w.bind(match.back(), pattern);
    }
    for (const char* pattern : {"shop.*", "*.paid", "*.*.*.*"}) {
        w.bind("none", pattern);
    }
    CHECK(w.publish("shop.eu.paid") == match);
}

// Bug reports

TEMPLATE_TEST_CASE(
    "[BR01] every queue has what one publisher sent in that order",
    "",
    threaded_world,
    simulated_world) {
    TestType w;
    auto x = w.broker.template exchange<int>("x", exchange_type::topic);
    std::vector<std::string> names{"a", "b", "c", "d"};
    std::vector<consumer_in<int, TestType>> consumers;
    for (const auto& name : names) {
        auto q = open<int>(w, name);
        x.bind(q, "k.*");
        consumers.push_back(q.consumer({.prefetch = 100}));
    }
    auto p = x.producer();
    std::vector<std::vector<int>> got(4);
    for (int n = 1; n <= 1000; ++n) {
        // Keys change, so routes are found anew; one consumer reads along, so lanes change too.
        CHECK(p.send(n, {.routing_key = n % 7 == 0 ? "k.a" : "k.b"}).routed == 4);
        if (n % 5 == 0) {
            for (const int v : take_all(consumers[0])) {
                got[0].push_back(v);
            }
        }
    }
    for (std::size_t i = 0; i < 4; ++i) {
        for (const int v : take_all(consumers[i])) {
            got[i].push_back(v);
        }
        CHECK(got[i] == numbers(1, 1000));
    }
}

TEST_CASE("[BR02] a subscriber that never acknowledges starves nobody") {
    simulated_world w;
    auto x = w.broker.exchange<std::string>("x", exchange_type::fanout);
    auto a = open<std::string>(w, "a");
    auto b = open<std::string>(w, "b");
    x.bind(a);
    x.bind(b);
    auto slow = a.consumer({.prefetch = 1});
    auto fast = b.consumer();
    auto p = x.producer();
    p.send("m1");
    p.send("m2");
    auto kept = slow.try_receive();
    REQUIRE(kept);
    CHECK(take_all(fast) == list{"m1", "m2"});
    CHECK(w.now() == 0s);
    CHECK_FALSE(slow.try_receive());
    CHECK(a.stats().in_flight == 1);
    CHECK(a.stats().ready == 1);
}

TEST_CASE("[BR16] topic: the edges that others have fallen over") {
    struct row {
        const char* pattern;
        const char* key;
        bool matches;
    };
    std::string many = "#";
    for (int i = 1; i < 10; ++i) {
        many += ".#";
    }
    many += ".x";
    std::string thirty = "a";
    for (int i = 1; i < 30; ++i) {
        thirty += ".a";
    }
    for (const row& r :
         {row{"a.*", "a.b.c", false},
          row{"a.*.c", "a.b.x.c", false},
          row{"a.*.c.#", "a.b.c", true},
          row{"s.#", "s", true},
          row{"a.#.b", "a.b", true},
          row{"a.#.b", "a..b", true},
          row{"a.#.b", "a.x.y.b", true},
          row{"a.#.b", "ab", false},
          row{"*.test", "test.test", true},
          row{"#", "", true},
          row{"#.*", "..", true},
          row{"*", "", false},
          row{"a.*", "a.", true},
          row{many.c_str(), thirty.c_str(), false},
          row{"a+b", "a+b", true},
          row{"a+b", "aab", false},
          row{"a(b", "a(b", true}}) {
        routing w{exchange_type::topic};
        w.bind("q", r.pattern);
        INFO(r.pattern << " | " << r.key);
        CHECK(w.publish(r.key) == (r.matches ? list{"q"} : list{}));
    }
}

TEST_CASE("[BX02] what one subscriber does to its message the others do not see") {
    simulated_world w;
    auto x = w.broker.exchange<std::string>("x", exchange_type::fanout);
    auto a = open<std::string>(w, "a", {.retry = at_once()});
    auto b = open<std::string>(w, "b");
    x.bind(a);
    x.bind(b);
    x.producer().send("x");
    auto to_a = a.consumer();
    auto to_b = b.consumer();
    auto first = to_a.try_receive();
    auto other = to_b.try_receive();
    REQUIRE(first);
    REQUIRE(other);
    CHECK(&first->value() != &other->value());
    std::string mine = first->take();
    mine = "y";
    CHECK(other->value() == "x");
}

TEMPLATE_TEST_CASE(
    "[BX03] published by rvalue, all three have all of it", "", threaded_world, simulated_world) {
    TestType w;
    auto x = w.broker.template exchange<std::vector<int>>("x", exchange_type::fanout);
    for (const char* name : {"a", "b", "c"}) {
        x.bind(open<std::vector<int>>(w, name));
    }
    std::vector<int> value = numbers(1, 100);
    x.producer().send(std::move(value));
    for (const char* name : {"a", "b", "c"}) {
        CHECK(open<std::vector<int>>(w, name).peek().at(0).value == numbers(1, 100));
    }
}

TEST_CASE("[BX18] handlers bind, unbind, publish and make queues, in opposite order, at once") {
    threaded_world w;
    auto x = w.broker.exchange<int>("x", exchange_type::direct);
    auto y = w.broker.exchange<int>("y", exchange_type::direct);
    auto a = open<int>(w, "a");
    auto b = open<int>(w, "b");
    x.bind(a, "k");
    y.bind(b, "k");
    std::atomic<int> handled{0};
    const auto handler = [&](auto& from, auto& to, const std::string& mine) {
        return [&, mine](const int& n) {
            auto q = open<int>(w, mine + std::to_string(n));
            from.bind(q, mine);
            to.bind(q, mine);
            (void)from.producer().send(n, {.routing_key = mine});
            (void)to.producer().send(n, {.routing_key = mine});
            from.unbind(q, mine);
            w.broker.delete_queue(q.name(), true);
            ++handled;
        };
    };
    boost::asio::thread_pool pool{2};
    {
        auto s = a.subscribe(pool.get_executor(), handler(x, y, "a-"), {.concurrency = 2});
        auto t = b.subscribe(pool.get_executor(), handler(y, x, "b-"), {.concurrency = 2});
        auto px = x.producer();
        auto py = y.producer();
        for (int n = 0; n < 200; ++n) {
            CHECK(px.send(n, {.routing_key = "k"}).routed == 1);
            CHECK(py.send(n, {.routing_key = "k"}).routed == 1);
        }
        CHECK(a.drain(railmq::drain_for{long_time}));
        CHECK(b.drain(railmq::drain_for{long_time}));
    }
    pool.join();
    CHECK(handled == 400);
}

// Dead letters and exchanges

TEST_CASE(
    "[BR11] [E25] [E26] deaths of one copy are its own, and circles end as they do elsewhere") {
    simulated_world w;
    auto x = w.broker.exchange<int>("x", exchange_type::fanout);
    railmq::queue_options o;
    o.time_to_live = 10ms;
    o.dead_letter = railmq::discard;
    auto a = open<int>(w, "a", o);
    auto b = open<int>(w, "b", o);
    a.dead_letter(std::string{"b"});
    b.dead_letter(std::string{"a"});
    auto c = open<int>(w, "c");
    x.bind(a);
    x.bind(b);
    x.bind(c);
    CHECK(x.producer().send(1).routed == 3);
    w.sim.advance(10s);
    // Each went to the other and would have come back: dropped, and counted.
    CHECK(a.stats().ready + b.stats().ready == 0);
    CHECK(a.stats().dropped + b.stats().dropped == 2);
    CHECK(c.stats().ready == 1);
    CHECK(c.peek().at(0).deaths.empty());

    // A ladder with a reject in it goes on: reject in q, wait in r, back to q.
    auto q = open<int>(w, "q", {.dead_letter = railmq::discard});
    o.time_to_live = 5s;
    auto r = open<int>(w, "r", o);
    q.dead_letter(std::string{"r"});
    r.dead_letter(std::string{"q"});
    auto again = w.broker.exchange<int>("again", exchange_type::direct);
    again.bind(q, "work");
    again.producer().send(2, {.routing_key = "work"});
    auto consumer = q.consumer();
    for (int round = 1; round <= 50; ++round) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->properties().routing_key == "work");
        d->reject("again");
        w.advance(5s);
    }
    auto last = consumer.try_receive();
    REQUIRE(last);
    const auto& deaths = last->deaths();
    const auto rejected = std::find_if(deaths.begin(), deaths.end(), [](const auto& e) {
        return e.queue == "q" && e.reason == railmq::death_reason::rejected;
    });
    REQUIRE(rejected != deaths.end());
    CHECK(rejected->count == 50);
    CHECK(rejected->first_at < rejected->last_at);
}

// Both runtimes, one program

TEST_CASE("a simulation publishes in the same order for the same seed") {
    const auto trace = [] {
        std::string text;
        railmq::simulation sim{7};
        railmq::sim_broker broker{sim, {.observer = [&](const railmq::notice& n) {
                                      text += std::string{railmq::event_of(n).queue} +
                                              std::to_string(n.index()) + ' ';
                                  }}};
        auto x = broker.exchange<int>("x", exchange_type::topic);
        for (const char* name : {"d", "a", "c", "b"}) {
            x.bind(broker.queue<int>(name), "#");
            x.bind(broker.queue<int>(name), "*");
        }
        auto p = x.producer();
        for (int i = 0; i < 20; ++i) {
            p.send(i, {.routing_key = std::to_string(i % 3)});
            if (i % 4 == 0) {
                x.unbind(broker.queue<int>("a"), "#");
            }
        }
        return text;
    };
    const std::string once = trace();
    CHECK(once == trace());
    CHECK(once.find("d0 a0 c0 b0") != std::string::npos);
}
