// SPDX-License-Identifier: BSL-1.0
//
// What it costs to find out who gets a message, among 10, 1,000 and 100,000 bindings:
// railmq::core::router against what one would write otherwise.
//
//     routing [--quick]
//
// One process, one thread. The contestants of a row take turns, round by round and in rotating
// order, so that a busy machine hurts all of them alike; a cell is the median of the rounds. Read
// the ratios rather than the nanoseconds.
//
// `direct`: each binding has a key of its own, and messages have the keys of random bindings.
// `topic`: patterns of four shapes, most of them with the number of a device, a few general ones.
// The others keep a list of bindings and look at each (`linear scan`), or a
// std::unordered_multimap from key to queue. They keep less than the router's promise: a queue that
// is bound twice is found twice. Everybody must find the same number of queues for every message.

#include <railmq/core/router.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using railmq::exchange_type;
using railmq::core::destination;

// A fixed sequence: every contestant gets the same input in every round.
class sequence {
public:
    explicit sequence(std::uint64_t seed)
        : state_{seed} {}

    std::uint64_t operator()() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

private:
    std::uint64_t state_;
};

struct workload {
    const char* title;
    exchange_type type;
    std::vector<std::string> bindings; // the n-th leads to queue n
    std::vector<std::string> keys;
};

constexpr std::size_t key_count = 4'096;

workload direct(std::size_t count) {
    workload w{"direct", exchange_type::direct, {}, {}};
    for (std::size_t i = 0; i != count; ++i) {
        w.bindings.push_back("orders.eu.customer-" + std::to_string(i));
    }
    sequence random{1};
    for (std::size_t i = 0; i != key_count; ++i) {
        w.keys.push_back(w.bindings[random() % count]);
    }
    return w;
}

workload topic(std::size_t count) {
    workload w{"topic", exchange_type::topic, {}, {}};
    for (std::size_t i = 0; i != count; ++i) {
        const std::string device = std::to_string(i / 4);
        switch (i < 4 ? 4 : i % 4) {
        case 0: w.bindings.push_back("site.1.device." + device + ".*"); break;
        case 1: w.bindings.push_back("site.*.device." + device + ".#"); break;
        case 2: w.bindings.push_back("#.device." + device + ".alarm"); break;
        case 3: w.bindings.push_back("site.2." + device + ".#.alarm"); break;
        default: w.bindings.push_back(i == 0 ? "#" : i == 1 ? "site.#" : "#.alarm." + device);
        }
    }
    sequence random{2};
    for (std::size_t i = 0; i != key_count; ++i) {
        w.keys.push_back(
            "site." + std::to_string(random() % 3) + ".device." +
            std::to_string(random() % (count / 4 + 1)) +
            (random() % 2 == 0 ? ".alarm" : ".temperature"));
    }
    return w;
}

// --- the contestants -----------------------------------------------------------------------------

struct router {
    railmq::core::router r;
    railmq::core::routes out;
    std::uint32_t exchange;

    explicit router(const workload& w)
        : exchange{r.declare("x", w.type).id} {
        for (std::size_t i = 0; i != w.bindings.size(); ++i) {
            const auto queue = destination::queue(static_cast<std::uint32_t>(i));
            if (r.bind(exchange, queue, w.bindings[i])) {
                std::abort();
            }
        }
    }

    std::size_t route(std::string_view key) {
        static_cast<void>(r.route(exchange, key, {}, out));
        return out.destinations().size();
    }
};

struct multimap {
    std::unordered_multimap<std::string, std::uint32_t> bindings;
    std::vector<std::uint32_t> out;

    explicit multimap(const workload& w) {
        for (std::size_t i = 0; i != w.bindings.size(); ++i) {
            bindings.emplace(w.bindings[i], static_cast<std::uint32_t>(i));
        }
    }

    std::size_t route(const std::string& key) {
        out.clear();
        const auto [first, last] = bindings.equal_range(key);
        for (auto at = first; at != last; ++at) {
            out.push_back(at->second);
        }
        return out.size();
    }
};

bool next_word(std::string_view& text, bool& more, std::string_view& word) {
    if (!more) {
        return false;
    }
    const std::size_t dot = text.find('.');
    more = dot != std::string_view::npos;
    word = text.substr(0, dot);
    text.remove_prefix(more ? dot + 1 : text.size());
    return true;
}

/// Tries every way.
bool matches(std::string_view pattern, bool more_pattern, std::string_view key, bool more_key) {
    std::string_view want;
    if (!next_word(pattern, more_pattern, want)) {
        return !more_key;
    }
    if (want == "#") {
        for (;;) {
            if (matches(pattern, more_pattern, key, more_key)) {
                return true;
            }
            std::string_view skipped;
            if (!next_word(key, more_key, skipped)) {
                return false;
            }
        }
    }
    std::string_view have;
    return next_word(key, more_key, have) && (want == "*" || want == have) &&
           matches(pattern, more_pattern, key, more_key);
}

struct linear_scan {
    const std::vector<std::string>& bindings;
    bool is_topic;
    std::vector<std::uint32_t> out{};

    explicit linear_scan(const workload& w)
        : bindings{w.bindings}
        , is_topic{w.type == exchange_type::topic} {}

    std::size_t route(std::string_view key) {
        out.clear();
        for (std::size_t i = 0; i != bindings.size(); ++i) {
            const std::string& b = bindings[i];
            if (is_topic ? matches(b, !b.empty(), key, !key.empty()) : b == key) {
                out.push_back(static_cast<std::uint32_t>(i));
            }
        }
        return out.size();
    }
};

// --- the table -----------------------------------------------------------------------------------

struct contestant {
    const char* name;
    std::size_t messages;                                 // in a round
    std::function<std::size_t(const std::string&)> route; // one message
    double found = 0;                                     // queues a message
    std::vector<double> ns{};
};

void run_round(contestant& c, const workload& w) {
    std::size_t found = 0;
    const auto from = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i != c.messages; ++i) {
        found += c.route(w.keys[i % key_count]);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - from;
    c.ns.push_back(took.count() / static_cast<double>(c.messages));
    c.found = static_cast<double>(found) / static_cast<double>(c.messages);
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

void row(const workload& w, std::size_t rounds, std::vector<contestant> all) {
    for (std::size_t i = 0; i != std::min<std::size_t>(key_count, all.back().messages); ++i) {
        const std::size_t expected = all.front().route(w.keys[i]);
        for (contestant& c : all) {
            if (c.route(w.keys[i]) != expected) {
                std::printf("%s: another number of queues for '%s'\n", c.name, w.keys[i].c_str());
                std::exit(1);
            }
        }
    }
    for (std::size_t r = 0; r != rounds; ++r) {
        for (std::size_t i = 0; i != all.size(); ++i) {
            run_round(all[(i + r) % all.size()], w);
        }
    }
    std::printf(
        "%s, %zu bindings, %.1f queues a message (%zu rounds)\n",
        w.title,
        w.bindings.size(),
        all.front().found,
        rounds);
    for (const contestant& c : all) {
        const auto [low, high] = std::minmax_element(c.ns.begin(), c.ns.end());
        std::printf(
            "  %-24s %12.1f ns  [%10.1f .. %10.1f]  this/router %9.2f\n",
            c.name,
            median(c.ns),
            *low,
            *high,
            median(c.ns) / median(all.front().ns));
    }
    std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
    const bool quick = argc == 2 && std::strcmp(argv[1], "--quick") == 0;
    if (argc > 2 || (argc == 2 && !quick)) {
        std::printf("usage: routing [--quick]\n");
        return 2;
    }
    const std::size_t rounds = quick ? 3 : 7;
    const std::size_t messages = quick ? 100'000 : 1'000'000;
    std::printf(
        "ns a message: median [least .. most]; a ratio above 1 is in favour of the router\n");
    for (const std::size_t count : {std::size_t{10}, std::size_t{1'000}, std::size_t{100'000}}) {
        for (const workload& w : {direct(count), topic(count)}) {
            router r{w};
            multimap m{w};
            linear_scan s{w};
            std::vector<contestant> all;
            all.push_back({"router", messages, [&](const std::string& k) { return r.route(k); }});
            if (w.type == exchange_type::direct) {
                all.push_back({"std::unordered_multimap", messages, [&](const std::string& k) {
                                   return m.route(k);
                               }});
            }
            // So long that it would be the whole run.
            const std::size_t fewer = std::max<std::size_t>(20, messages * 10 / count / 10);
            all.push_back({"linear scan", fewer, [&](const std::string& k) { return s.route(k); }});
            row(w, rounds, std::move(all));
        }
    }
}
