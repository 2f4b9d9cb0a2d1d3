// SPDX-License-Identifier: BSL-1.0
//
// The router against a model without an index: it looks at every binding, matches patterns by
// trying every way, and walks the graph of exchanges. After every step both must agree on who gets
// a message, each once and nobody else, whatever was bound, unbound and deleted before. Then: many
// '#' cost a bounded number of steps, routing needs no memory, and a change for which there is none
// changes nothing.
#include <railmq/core/router.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <malloc.h>

using railmq::binding_arguments;
using railmq::errc;
using railmq::error_code;
using railmq::exchange_type;
using railmq::header_argument;
using railmq::header_match;
using railmq::core::destination;
using railmq::core::destination_kind;
using railmq::core::hash_ring;
using railmq::core::no_number;
using railmq::core::router;
using railmq::core::routes;
using railmq::core::stable_hash;
using railmq::core::stable_mix;
using railmq::core::topic_scratch;
using railmq::core::topic_trie;

// --- memory that is counted and runs out ---------------------------------------------------------

namespace {

std::size_t allocations = 0;
std::size_t bytes_in_use = 0;
std::size_t fail_after = 0; // the allocation that fails, counted from here; 0: none

void* allocate(std::size_t bytes) noexcept {
    ++allocations;
    if (fail_after != 0 && --fail_after == 0) {
        return nullptr;
    }
    void* const p = std::malloc(bytes == 0 ? 1 : bytes);
    bytes_in_use += p == nullptr ? 0 : ::malloc_usable_size(p);
    return p;
}

void release(void* p) noexcept {
    bytes_in_use -= p == nullptr ? 0 : ::malloc_usable_size(p);
    std::free(p);
}

} // namespace

// Not inlined: GCC would see a `free` of what came from a `new`, and warn.
[[gnu::noinline]] void* operator new(std::size_t n) {
    if (void* const p = allocate(n)) {
        return p;
    }
    throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return allocate(n);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
    release(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
    release(p);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept {
    release(p);
}

namespace {

// --- the model -----------------------------------------------------------------------------------

using words = std::vector<std::string>;
using headers = std::vector<std::pair<std::string, std::string>>;

words split(std::string_view text) {
    words out;
    if (!text.empty()) {
        out.emplace_back();
        for (const char c : text) {
            if (c == '.') {
                out.emplace_back();
            } else {
                out.back() += c;
            }
        }
    }
    return out;
}

/// Tries every way.
bool naive(std::span<const std::string> pattern, std::span<const std::string> key) {
    if (pattern.empty()) {
        return key.empty();
    }
    if (pattern.front() == "#") {
        return naive(pattern.subspan(1), key) || (!key.empty() && naive(pattern, key.subspan(1)));
    }
    return !key.empty() && (pattern.front() == "*" || pattern.front() == key.front()) &&
           naive(pattern.subspan(1), key.subspan(1));
}

bool naive_headers(const binding_arguments& a, const headers& have) {
    const bool with_x = a.match == header_match::all_with_x || a.match == header_match::any_with_x;
    const bool all = a.match == header_match::all || a.match == header_match::all_with_x;
    for (const header_argument& want : a.headers) {
        if (!with_x && want.name.substr(0, 2) == "x-") {
            continue;
        }
        bool found = false;
        for (const auto& [name, value] : have) {
            found = found || (name == want.name && (!want.value || *want.value == value));
        }
        if (found != all) {
            return !all;
        }
    }
    return all;
}

struct model_binding {
    destination to;
    std::string key;
    binding_arguments arguments;
};

struct model_exchange {
    exchange_type type;
    std::string alternate;
    std::uint32_t id;
    std::vector<model_binding> bindings;
};

struct model {
    std::map<std::string, model_exchange> exchanges;

    [[nodiscard]] static bool
    same(exchange_type type, const model_binding& a, const model_binding& b) {
        if (!(a.to == b.to)) {
            return false;
        }
        if (type == exchange_type::direct || type == exchange_type::topic) {
            return a.key == b.key;
        }
        if (type != exchange_type::headers) {
            return true;
        }
        return a.arguments.match == b.arguments.match && std::is_permutation(
                                                             a.arguments.headers.begin(),
                                                             a.arguments.headers.end(),
                                                             b.arguments.headers.begin(),
                                                             b.arguments.headers.end());
    }

    [[nodiscard]] std::string name_of(std::uint32_t id) const {
        for (const auto& [name, x] : exchanges) {
            if (x.id == id) {
                return name;
            }
        }
        return {};
    }

    bool bind(model_exchange& x, model_binding b) {
        for (model_binding& old : x.bindings) {
            if (same(x.type, old, b)) {
                old = b;
                return false;
            }
        }
        x.bindings.push_back(std::move(b));
        return true;
    }

    static std::size_t unbind(model_exchange& x, const model_binding& b) {
        return std::erase_if(
            x.bindings, [&](const model_binding& old) { return same(x.type, old, b); });
    }

    std::size_t forget(destination d) {
        std::size_t gone = 0;
        for (auto& [name, x] : exchanges) {
            gone += std::erase_if(x.bindings, [&](const model_binding& b) { return b.to == d; });
        }
        return gone;
    }

    [[nodiscard]] std::size_t bindings() const {
        std::size_t n = 0;
        for (const auto& [name, x] : exchanges) {
            n += x.bindings.size();
        }
        return n;
    }

    [[nodiscard]] std::vector<destination>
    matching(const model_exchange& x, std::string_view key, const headers& have) const {
        std::vector<destination> out;
        if (x.type == exchange_type::consistent_hash) {
            std::uint64_t nearest = 0;
            for (const model_binding& b : x.bindings) {
                const std::uint64_t identity = b.to.kind == destination_kind::exchange
                                                   ? stable_hash(name_of(b.to.id))
                                                   : b.to.as_number();
                for (std::uint64_t i = 0; i != b.arguments.weight * hash_ring::points_per_weight;
                     ++i) {
                    const std::uint64_t place =
                        stable_mix(stable_mix(identity) + i * 0x9e3779b97f4a7c15U);
                    const std::uint64_t ahead = place - stable_hash(key); // around the circle
                    if (out.empty() || ahead < nearest) {
                        nearest = ahead;
                        out.assign(1, b.to);
                    }
                }
            }
            return out;
        }
        for (const model_binding& b : x.bindings) {
            const bool matches =
                x.type == exchange_type::fanout ||
                (x.type == exchange_type::direct && b.key == key) ||
                (x.type == exchange_type::topic && naive(split(b.key), split(key))) ||
                (x.type == exchange_type::headers && naive_headers(b.arguments, have));
            if (matches) {
                out.push_back(b.to);
            }
        }
        return out;
    }

    using places = std::set<std::uint64_t>;

    void walk(
        const std::string& name,
        std::string_view key,
        const headers& have,
        std::set<std::string>& visited,
        places& found) const {
        const auto at = exchanges.find(name);
        if (at == exchanges.end() || !visited.insert(name).second) {
            return;
        }
        const std::vector<destination> to = matching(at->second, key, have);
        for (const destination d : to) {
            if (d.kind == destination_kind::exchange) {
                walk(name_of(d.id), key, have, visited, found);
            } else {
                found.insert(d.as_number());
            }
        }
        if (to.empty()) {
            walk(at->second.alternate, key, have, visited, found);
        }
    }

    [[nodiscard]] places
    route(const std::string& name, std::string_view key, const headers& have) const {
        std::set<std::string> visited;
        places found;
        walk(name, key, have, visited, found);
        for (std::size_t before = 0; found.empty() && before != visited.size();) {
            before = visited.size();
            for (const std::string& dead_end : std::set<std::string>{visited}) {
                walk(exchanges.at(dead_end).alternate, key, have, visited, found);
            }
        }
        return found;
    }
};

// --- steps ---------------------------------------------------------------------------------------

/// What to do, in numbers that mean something for some kinds of steps only.
struct step {
    unsigned kind;
    unsigned exchange;
    unsigned other;
    unsigned type;
    std::string pattern;
    std::string key;
    binding_arguments asked;
    headers have;

    friend std::ostream& operator<<(std::ostream& os, const step& s) {
        os << "{" << s.kind << ", e" << s.exchange << ", " << s.other << ", type " << s.type
           << ", '" << s.pattern << "', '" << s.key << "', " << to_string(s.asked.match);
        for (const header_argument& h : s.asked.headers) {
            os << " " << h.name << "=" << h.value.value_or("?");
        }
        os << ";";
        for (const auto& [name, value] : s.have) {
            os << " " << name << "=" << value;
        }
        return os << ", weight " << s.asked.weight << "}";
    }
};

rc::Gen<std::string> any_text(const std::vector<std::string>& alphabet) {
    return rc::gen::map(
        rc::gen::resize(
            7, rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(alphabet))),
        [](const std::vector<std::string>& all) {
            std::string out;
            for (std::size_t i = 0; i != all.size(); ++i) {
                out.append(i == 0 ? "" : ".").append(all[i]);
            }
            return out;
        });
}

rc::Gen<headers> any_headers() {
    return rc::gen::resize(
        4,
        rc::gen::container<headers>(rc::gen::pair(
            rc::gen::element<std::string>("a", "b", "x-c"),
            rc::gen::element<std::string>("", "1", "2"))));
}

rc::Gen<binding_arguments> any_arguments() {
    return rc::gen::apply(
        [](header_match match, const headers& all, std::uint32_t weight, unsigned bare) {
            binding_arguments a{.match = match, .headers = {}, .weight = weight};
            std::set<std::string> names;
            for (const auto& [name, value] : all) {
                if (names.insert(name).second) {
                    a.headers.push_back(
                        {name, bare == 0 ? std::nullopt : std::optional<std::string>{value}});
                }
            }
            return a;
        },
        rc::gen::element(
            header_match::all,
            header_match::any,
            header_match::all_with_x,
            header_match::any_with_x),
        any_headers(),
        rc::gen::inRange<std::uint32_t>(1, 4),
        rc::gen::inRange(0U, 3U));
}

rc::Gen<step> any_step() {
    return rc::gen::construct<step>(
        rc::gen::inRange(0U, 16U),
        rc::gen::inRange(0U, 6U),
        rc::gen::inRange(0U, 14U),
        rc::gen::inRange(0U, 5U),
        any_text({"a", "b", "", "*", "#", "#"}),
        any_text({"a", "b", "", "c"}),
        any_arguments(),
        any_headers());
}

struct world {
    model expected;
    router actual;
    routes out;

    [[nodiscard]] static std::string name(unsigned n) { return "e" + std::to_string(n); }

    [[nodiscard]] std::optional<destination> to(unsigned n) const {
        if (n < 4) {
            return destination::queue(n * 1'000'000'007U);
        }
        if (n < 6) {
            return destination::log(n);
        }
        const auto at = expected.exchanges.find(name(n % 6));
        return at == expected.exchanges.end() ? std::nullopt
                                              : std::optional{destination::exchange(at->second.id)};
    }

    void declare(const step& s) {
        const auto type = static_cast<exchange_type>(s.type);
        const std::string alternate = s.other < 8 ? name(s.other) : std::string{};
        const auto made = actual.declare(name(s.exchange), type, {.alternate = alternate});
        const auto at = expected.exchanges.find(name(s.exchange));
        if (at == expected.exchanges.end()) {
            RC_ASSERT(made.is_new);
            expected.exchanges.emplace(
                name(s.exchange), model_exchange{type, alternate, made.id, {}});
            return;
        }
        const bool differs = at->second.type != type || at->second.alternate != alternate;
        RC_ASSERT(made.error.code == (differs ? error_code{errc::options_mismatch} : error_code{}));
        RC_ASSERT(made.id == (differs ? no_number : at->second.id));
        RC_ASSERT(!made.is_new);
    }

    void change(const step& s) {
        const auto at = expected.exchanges.find(name(s.exchange));
        if (s.kind < 3 || at == expected.exchanges.end()) {
            declare(s);
            return;
        }
        model_exchange& x = at->second;
        const std::optional<destination> where = to(s.other);
        if (!where) {
            return;
        }
        model_binding b{*where, s.pattern, {}};
        if (x.type == exchange_type::headers) {
            b.arguments.match = s.asked.match;
            b.arguments.headers = s.asked.headers;
        } else if (x.type == exchange_type::consistent_hash) {
            b.arguments.weight = s.asked.weight;
        }
        if (s.kind < 11) {
            RC_ASSERT(!actual.bind(x.id, b.to, b.key, b.arguments));
            expected.bind(x, b);
        } else if (s.kind < 13) {
            unbind(x, b);
        } else if (s.kind < 14 && !x.bindings.empty()) {
            unbind(x, model_binding{x.bindings[s.other % x.bindings.size()]}); // one that is there
        } else if (s.kind < 15 && where->kind != destination_kind::exchange) {
            RC_ASSERT(actual.forget(*where) == expected.forget(*where));
        } else if (s.kind == 15) {
            const bool if_unused = s.type != 0;
            const error_code ec = actual.erase(x.id, if_unused);
            if (if_unused && !x.bindings.empty()) {
                RC_ASSERT(ec == errc::in_use);
            } else {
                RC_ASSERT(!ec);
                const std::uint32_t id = x.id;
                expected.exchanges.erase(at);
                expected.forget(destination::exchange(id));
                RC_ASSERT(actual.erase(id) == errc::not_found);
            }
        }
    }

    void unbind(model_exchange& x, const model_binding& b) {
        const error_code ec = actual.unbind(x.id, b.to, b.key, b.arguments);
        RC_ASSERT(ec == (model::unbind(x, b) == 0 ? error_code{errc::not_found} : error_code{}));
    }

    /// How many got it.
    std::size_t check(const std::string& from, std::string_view key, const headers& have) {
        const model::places wanted = expected.route(from, key, have);
        const error_code ec = actual.route(expected.exchanges.at(from).id, key, have, out);
        RC_ASSERT(ec == (wanted.empty() ? error_code{errc::unroutable} : error_code{}));
        model::places found;
        for (const destination d : out.destinations()) {
            RC_ASSERT(d.kind != destination_kind::exchange);
            RC_ASSERT(found.insert(d.as_number()).second); // once
        }
        RC_ASSERT(found == wanted);
        return found.size();
    }
};

} // namespace

TEST_CASE("[N13] [N10] [N17] [N23] router: does what a walk along every binding does") {
    std::size_t copies = 0;
    std::size_t unroutable = 0;
    const bool holds = rc::check([&] {
        world w;
        const auto steps = *rc::gen::scale(2.0, rc::gen::container<std::vector<step>>(any_step()));
        for (const step& s : steps) {
            w.change(s);
            RC_ASSERT(w.actual.size() == w.expected.exchanges.size());
            RC_ASSERT(w.actual.bindings() == w.expected.bindings());
            for (const auto& [name, x] : w.expected.exchanges) {
                RC_ASSERT(w.actual.find(name) == x.id);
                const std::size_t n = w.check(name, s.key, s.have);
                copies += n;
                unroutable += n == 0 ? 1U : 0U;
            }
        }
        // And with everything gone there is nothing.
        while (!w.expected.exchanges.empty()) {
            const std::uint32_t id = w.expected.exchanges.begin()->second.id;
            w.expected.exchanges.erase(w.expected.exchanges.begin());
            w.expected.forget(destination::exchange(id));
            RC_ASSERT(!w.actual.erase(id));
            RC_ASSERT(w.actual.bindings() == w.expected.bindings());
        }
        RC_ASSERT(w.actual.size() == 0U);
    });
    CHECK(holds);
    CHECK(copies > 1'000);
    CHECK(unroutable > 1'000);
}

TEST_CASE("[N12] [N13] topic_trie: does what trying every pattern in every way does") {
    const bool holds = rc::check([] {
        topic_trie trie;
        topic_scratch scratch;
        std::map<std::string, std::uint32_t> patterns;
        const auto steps = *rc::gen::scale(
            3.0,
            rc::gen::container<std::vector<std::tuple<unsigned, std::string, std::string>>>(
                rc::gen::tuple(
                    rc::gen::inRange(0U, 4U),
                    any_text({"a", "b", "c", "", "*", "#", "#"}),
                    any_text({"a", "b", "c", "", "d"}))));
        std::uint32_t next = 0;
        for (const auto& [kind, pattern, key] : steps) {
            if (kind == 0 && !patterns.empty()) {
                const auto at = std::next(
                    patterns.begin(), static_cast<std::ptrdiff_t>(next % patterns.size()));
                RC_ASSERT(trie.erase(at->first));
                patterns.erase(at);
            } else {
                trie.set(pattern, next);
                patterns[pattern] = next++;
            }
            RC_ASSERT(trie.size() == patterns.size());
            std::multiset<std::uint32_t> wanted;
            std::set<words> beginnings;
            for (const auto& [text, value] : patterns) {
                RC_ASSERT(trie.find(text) == value);
                const words all = split(text);
                if (naive(all, split(key))) {
                    wanted.insert(value);
                }
                for (std::size_t n = 1; n <= all.size(); ++n) {
                    beginnings.emplace(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
                }
            }
            RC_ASSERT(trie.node_count() == beginnings.size());
            std::multiset<std::uint32_t> found;
            trie.match(key, scratch, [&](std::uint32_t v) { found.insert(v); });
            RC_ASSERT(found == wanted);
        }
        while (!patterns.empty()) {
            RC_ASSERT(trie.erase(patterns.begin()->first));
            patterns.erase(patterns.begin());
        }
        RC_ASSERT(trie.node_count() == 0U);
    });
    CHECK(holds);
}

TEST_CASE(
    "[N09] [BR16] router: a thousand patterns of many # cost a step a word and node at worst") {
    router r;
    routes out;
    const std::uint32_t x = r.declare("x", exchange_type::topic).id;
    std::set<words> beginnings;
    std::mt19937_64 random{railmq::test::seed(1)};
    const std::vector<std::string> letters{"a", "b", "c", "d", "e", "f", "g", "h"};
    std::set<std::string> patterns;
    while (patterns.size() != 1'000) {
        std::string pattern = "#";
        for (std::uint64_t n = 2 + random() % 6; n != 0; --n) {
            pattern += "." + letters[random() % letters.size()] + ".#";
        }
        patterns.insert(pattern);
    }
    std::uint32_t queue = 0;
    for (const std::string& pattern : patterns) {
        REQUIRE_FALSE(r.bind(x, destination::queue(queue++), pattern));
        const words all = split(pattern);
        for (std::size_t n = 1; n <= all.size(); ++n) {
            beginnings.emplace(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
        }
    }
    // The words in turn, so that nearly all of them match and each in very many ways; and one word
    // alone, so that the longest patterns of that word are tried for long and do not match.
    for (const std::size_t kinds : {letters.size(), std::size_t{1}}) {
        std::string key;
        for (std::size_t i = 0; i != 100; ++i) {
            key.append(i == 0 ? "" : ".").append(letters[i % kinds]);
        }
        const std::uint64_t before = out.topic_steps();
        const error_code ec = r.route(x, key, {}, out);
        const std::uint64_t steps = out.topic_steps() - before;
        const std::size_t found = out.destinations().size();
        CAPTURE(kinds, steps, found, beginnings.size());
        CHECK(steps <= 100 * beginnings.size());
        CHECK(ec == (found == 0 ? error_code{errc::unroutable} : error_code{}));
        CHECK(found == (kinds == 1 ? found : 1'000));
        std::size_t wanted = 0;
        for (const std::string& pattern : patterns) {
            // As every second word is '#', a pattern matches if its letters are found in order.
            std::size_t at = 0;
            bool matches = true;
            for (const std::string& word : split(pattern)) {
                if (word != "#") {
                    at = key.find(word, at);
                    matches = matches && at != std::string::npos;
                    at = matches ? at + 1 : 0;
                }
            }
            wanted += matches ? 1U : 0U;
        }
        CHECK(found == wanted);
    }
}

namespace {

/// A router whose exchanges are named and whose destinations are queues.
struct named {
    router r;
    routes out;

    void declare(std::string_view name, exchange_type type, std::string alternate = {}) {
        CHECK_FALSE(r.declare(name, type, {.alternate = std::move(alternate)}).error);
    }

    error_code bind(
        std::string_view from,
        destination to,
        std::string_view key = {},
        const binding_arguments& a = {}) {
        return r.bind(r.find(from), to, key, a).code;
    }

    error_code unbind(
        std::string_view from,
        destination to,
        std::string_view key = {},
        const binding_arguments& a = {}) {
        return r.unbind(r.find(from), to, key, a);
    }
};

} // namespace

TEST_CASE("router: once warm, routing needs no memory") {
    named f;
    f.declare("in", exchange_type::fanout, "caught");
    f.declare("caught", exchange_type::fanout);
    f.declare("topic", exchange_type::topic);
    f.declare("headers", exchange_type::headers);
    f.declare("hash", exchange_type::consistent_hash);
    f.declare("direct", exchange_type::direct, "caught");
    for (const char* name : {"topic", "headers", "hash", "direct"}) {
        CHECK_FALSE(f.bind("in", destination::exchange(f.r.find(name))));
    }
    for (int i = 0; i != 100; ++i) {
        const destination queue = destination::queue(static_cast<std::uint32_t>(i));
        const std::string value = std::to_string(i % 10);
        CHECK_FALSE(f.bind("topic", queue, "#.a.#." + value + ".#"));
        CHECK_FALSE(f.bind("headers", queue, "", {.headers = {{"h", value}}}));
        CHECK_FALSE(f.bind("hash", queue));
        CHECK_FALSE(f.bind("direct", queue, "a." + value));
        CHECK_FALSE(f.bind("caught", queue));
    }
    const headers have{{"h", "7"}, {"a long name of a header", "and a value that is long, too"}};
    const std::uint32_t in = f.r.find("in");
    std::size_t found = 0;
    const auto work = [&] {
        for (const std::string_view key : {"a.7", "a.b.c.d.e.f.1.2.3.4.5.6.7.8.9.0.a.a.1", ""}) {
            CHECK_FALSE(f.r.route(in, key, have, f.out));
            found += f.out.destinations().size();
        }
    };
    work();
    error_code last;
    const std::size_t before = allocations;
    for (int i = 0; i != 100; ++i) {
        for (const std::string_view key : {"a.7", "a.b.c.d.e.f.1.2.3.4.5.6.7.8.9.0.a.a.1", ""}) {
            last = f.r.route(in, key, have, f.out);
            found += f.out.destinations().size();
        }
    }
    const std::size_t after = allocations;
    CHECK(after == before);
    CHECK_FALSE(last);
    CHECK(found > 1'000);
}

TEST_CASE("[A10] router: memory goes with what needed it") {
    std::mt19937_64 random{railmq::test::seed(2)};
    for (const exchange_type type :
         {exchange_type::direct, exchange_type::topic, exchange_type::headers}) {
        CAPTURE(to_string(type));
        named f;
        f.declare("x", type);
        CHECK_FALSE(f.r.erase(f.r.find("x")));
        const std::uint32_t count = type == exchange_type::headers ? 2'000 : 20'000;
        std::vector<std::uint32_t> all(count);
        const std::size_t before = bytes_in_use;
        f.declare("x", type);
        const std::uint32_t x = f.r.find("x");
        const auto bind = [&](std::uint32_t i, bool is_bound) {
            const std::string key = "site.*.device." + std::to_string(i) + ".#";
            binding_arguments a;
            if (type == exchange_type::headers) {
                a.headers = {{"a long name of a header", key}};
            }
            return is_bound ? f.r.bind(x, destination::queue(i), key, a).code
                            : f.r.unbind(x, destination::queue(i), key, a);
        };
        bool failed = false; // no assertion in a loop: it needs memory as well
        for (std::uint32_t i = 0; i != count; ++i) {
            all[i] = i;
            failed = failed || bind(i, true);
        }
        const std::size_t full = bytes_in_use - before;
        CHECK(full < count * std::size_t{600});
        std::shuffle(all.begin(), all.end(), random);
        for (std::uint32_t i = 0; i + 100 < count; ++i) {
            failed = failed || bind(all[i], false);
        }
        CHECK(f.r.bindings() == 100);
        CHECK(bytes_in_use - before < count * std::size_t{330} + 50'000); // tables
        for (std::uint32_t i = count - 100; i != count; ++i) {
            failed = failed || bind(all[i], false);
        }
        CHECK(bytes_in_use - before < count * std::size_t{150} + 20'000); // slots: x has one
        CHECK_FALSE(failed);
        CHECK_FALSE(f.r.erase(x));
        CHECK(bytes_in_use - before < 15'000);
    }
}

TEST_CASE("topic_trie: a pattern for which there is no memory leaves no node behind") {
    const std::string longer = "a.word that needs memory, being that long.#.*.b.#.c";
    std::size_t failures = 0;
    topic_trie trie;
    trie.set("a", 1);
    const std::size_t before = trie.node_count();
    for (std::size_t nth = 1;; ++nth) {
        fail_after = nth;
        try {
            trie.set(longer, 2);
            fail_after = 0;
            break;
        } catch (const std::bad_alloc&) {
            fail_after = 0;
            ++failures;
        }
        REQUIRE(trie.node_count() == before);
        REQUIRE(trie.find(longer) == topic_trie::none);
        REQUIRE(trie.find("a") == 1);
        trie = topic_trie{}; // so that all memory is asked for again
        trie.set("a", 1);
    }
    CHECK(failures > 3);
    CHECK(trie.find(longer) == 2);
    CHECK(trie.erase(longer));
    CHECK(trie.node_count() == before);
}

TEST_CASE("router: a change that fails for want of memory changes nothing") {
    const auto succeeds = [](std::size_t nth, auto&& change) {
        fail_after = nth;
        try {
            change();
            fail_after = 0;
            return true;
        } catch (const std::bad_alloc&) {
            fail_after = 0;
            return false;
        }
    };
    const std::string key = "a long key so that texts need memory.#.*.and.many.nodes";
    const headers have{{"a long name of a header", key}};
    const std::string name(60, 'n');
    for (const exchange_type type :
         {exchange_type::direct,
          exchange_type::fanout,
          exchange_type::topic,
          exchange_type::headers,
          exchange_type::consistent_hash}) {
        CAPTURE(to_string(type));
        binding_arguments a;
        if (type == exchange_type::headers) {
            a.headers = {{have[0].first, have[0].second}};
        }
        std::size_t nth = 1;
        for (;; ++nth) {
            named f;
            if (succeeds(nth, [&] { static_cast<void>(f.r.declare(name, type)); })) {
                break;
            }
            REQUIRE(f.r.size() == 0);
            REQUIRE(f.r.find(name) == no_number);
            f.declare(name, type);
        }
        CHECK(nth > 2);
        for (nth = 1;; ++nth) {
            named f;
            f.declare("other", type);
            CHECK_FALSE(f.bind("other", destination::queue(7), "k", a));
            f.declare(name, type);
            const bool bound = succeeds(
                nth, [&] { static_cast<void>(f.bind(name, destination::queue(1), key, a)); });
            const std::uint32_t id = f.r.find(name);
            if (bound) {
                CHECK(f.r.bindings() == 2);
                CHECK_FALSE(f.r.route(id, key, have, f.out));
                REQUIRE(f.out.destinations().size() == 1);
                CHECK(f.out.destinations()[0] == destination::queue(1));
                break;
            }
            REQUIRE(f.r.bindings() == 1);
            REQUIRE(f.unbind(name, destination::queue(1), key, a) == errc::not_found);
            REQUIRE(f.r.forget(destination::queue(1)) == 0);
            REQUIRE(f.r.route(id, key, have, f.out) == errc::unroutable);
            REQUIRE_FALSE(f.r.erase(id, true)); // not even an empty bundle is left
        }
        CHECK(nth > 5);
    }
}
