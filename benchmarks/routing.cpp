// SPDX-License-Identifier: BSL-1.0
//
// What it costs to find out who gets a message, among 10, 1,000 and 100,000 bindings:
// railmq::core::router against what one would write otherwise. And what it costs to get it there.
//
//     routing [--quick] [--fan-out]
//
// One process, but for the fan-out one thread. The contestants of a row take turns, round by round
// and in rotating order, so that a busy machine hurts all of them alike; a cell is the median of
// the rounds. Read the ratios rather than the nanoseconds.
//
// `direct`: each binding has a key of its own, and messages have the keys of random bindings.
// `topic`: patterns of four shapes, most of them with the number of a device, a few general ones.
// The others keep a list of bindings and look at each (`linear scan`), or a
// std::unordered_multimap from key to queue. They keep less than the router's promise: a queue that
// is bound twice is found twice. Everybody must find the same number of queues for every message.
//
// `fan-out`: a message goes to 1, 4 and 64 queues and is taken out of each: an exchange, from which
// it is leased and acknowledged, against what one writes by hand: a vector of deques, each with a
// mutex, of shared pointers to one message, of which a reader takes all that is there at once. That
// has no leases, no limits and no bindings that change. One thread publishes, another one reads.

#include <railmq/core/router.hpp>
#include <railmq/railmq.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
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

// --- fan-out -------------------------------------------------------------------------------------

struct reading {
    std::uint64_t words[8];
};

constexpr std::size_t batch = 256;

/// One thread publishes, another takes out of all queues; not more than some batches lie between
/// them. Returns how many were taken.
template <class Publish, class Take>
std::size_t pass(std::size_t messages, std::size_t queues, Publish&& publish, Take&& take) {
    std::atomic<std::size_t> taken{0};
    std::thread reader{[&] {
        for (std::size_t got = 0; got != messages * queues;) {
            std::size_t some = 0;
            for (std::size_t i = 0; i != queues; ++i) {
                some += take(i);
            }
            if (some == 0) {
                std::this_thread::yield();
            }
            got += some;
            taken.store(got, std::memory_order_relaxed);
        }
    }};
    for (std::size_t n = 0; n < messages; ++n) {
        while (n % batch == 0 && n > 16 * batch + taken.load() / queues) {
            std::this_thread::yield();
        }
        publish(n);
    }
    reader.join();
    return taken;
}

template <class T>
struct exchange_fan_out {
    railmq::broker broker{};
    railmq::exchange_producer<T> producer{};
    std::vector<railmq::consumer<T>> consumers{};
    std::vector<railmq::delivery<T>> taken{};
    railmq::properties properties{};
    bool carries_key;

    exchange_fan_out(std::size_t queues, exchange_type type, std::string key, bool carries = false)
        : carries_key{carries} {
        auto x = broker.exchange<T>("x", type);
        for (std::size_t i = 0; i != queues; ++i) {
            auto q = broker.queue<T>("q" + std::to_string(i));
            x.bind(q, key);
            consumers.push_back(q.consumer({.prefetch = batch}));
        }
        producer = x.producer();
        properties.routing_key = std::move(key);
    }
    template <class Make>
    std::size_t run(std::size_t messages, Make&& make) {
        const auto publish = [&](std::size_t n) {
            if (carries_key) {
                producer.send(make(n), properties);
            } else {
                producer.send_to(properties.routing_key, make(n));
            }
        };
        const auto take = [&](std::size_t i) {
            taken.clear();
            consumers[i].receive_batch(taken, batch, std::chrono::seconds{0});
            return railmq::ack_all(taken);
        };
        return pass(messages, consumers.size(), publish, take);
    }
};

template <class T>
struct locked_deques {
    struct queue {
        std::mutex mutex{};
        std::deque<std::shared_ptr<const T>> messages{};
    };
    std::vector<std::unique_ptr<queue>> queues{};

    explicit locked_deques(std::size_t count) {
        for (std::size_t i = 0; i != count; ++i) {
            queues.push_back(std::make_unique<queue>());
        }
    }
    template <class Make>
    std::size_t run(std::size_t messages, Make&& make) {
        const auto publish = [&](std::size_t n) {
            const auto message = std::make_shared<const T>(make(n));
            for (auto& q : queues) {
                const std::lock_guard guard{q->mutex};
                q->messages.push_back(message);
            }
        };
        std::deque<std::shared_ptr<const T>> taken;
        const auto take = [&](std::size_t i) {
            taken.clear();
            {
                const std::lock_guard guard{queues[i]->mutex};
                taken.swap(queues[i]->messages);
            }
            std::size_t got = 0;
            for (const auto& m : taken) {
                got += m != nullptr ? 1 : 0;
            }
            return got;
        };
        return pass(messages, queues.size(), publish, take);
    }
};

struct racer {
    const char* name;
    std::function<std::size_t(std::size_t)> run; // that many messages: how many were taken
    std::vector<double> ns{};
};

void race(
    const char* title, std::size_t queues, std::size_t rounds, bool quick, std::vector<racer> all) {
    const std::size_t messages = (quick ? 64 : 512) * batch * 4 / (queues + 3);
    for (std::size_t r = 0; r != rounds + 1; ++r) {
        for (std::size_t i = 0; i != all.size(); ++i) {
            racer& c = all[(i + r) % all.size()];
            const auto from = std::chrono::steady_clock::now();
            const std::size_t got = c.run(messages);
            const std::chrono::duration<double, std::nano> took =
                std::chrono::steady_clock::now() - from;
            if (got != messages * queues) {
                std::printf("%s: %zu of %zu\n", c.name, got, messages * queues);
                std::exit(1);
            }
            if (r != 0) { // the first is to warm up
                c.ns.push_back(took.count() / static_cast<double>(messages));
            }
        }
    }
    std::printf("fan-out of %s to %zu queues (%zu rounds)\n", title, queues, rounds);
    for (const racer& c : all) {
        const auto [low, high] = std::minmax_element(c.ns.begin(), c.ns.end());
        std::printf(
            "  %-24s %12.1f ns  [%10.1f .. %10.1f]  this/fanout %9.2f\n",
            c.name,
            median(c.ns),
            *low,
            *high,
            median(c.ns) / median(all.front().ns));
    }
    std::fflush(stdout);
}

void fan_out(std::size_t queues, std::size_t rounds, bool quick) {
    const auto number = [](std::size_t n) { return reading{{n, n, n, n, n, n, n, n}}; };
    {
        exchange_fan_out<reading> fanout{queues, exchange_type::fanout, ""};
        exchange_fan_out<reading> topic{queues, exchange_type::topic, "site.1.temperature"};
        exchange_fan_out<reading> carried{queues, exchange_type::topic, "site.1.temperature", true};
        locked_deques<reading> deques{queues};
        race(
            "64 bytes",
            queues,
            rounds,
            quick,
            {{"exchange, fanout", [&](std::size_t n) { return fanout.run(n, number); }, {}},
             {"exchange, topic", [&](std::size_t n) { return topic.run(n, number); }, {}},
             {"same, key in properties", [&](std::size_t n) { return carried.run(n, number); }, {}},
             {"deques of shared_ptr", [&](std::size_t n) { return deques.run(n, number); }, {}}});
    }
    const std::string text(200, 'x');
    exchange_fan_out<railmq::bytes> fanout{queues, exchange_type::fanout, ""};
    locked_deques<std::string> deques{queues};
    race(
        "a text of 200 bytes",
        queues,
        rounds,
        quick,
        {{"exchange of bytes",
          [&](std::size_t n) {
              return fanout.run(n, [&](std::size_t) { return railmq::bytes{text}; });
          },
          {}},
         {"deques of shared_ptr",
          [&](std::size_t n) { return deques.run(n, [&](std::size_t) { return text; }); },
          {}}});
}

} // namespace

int main(int argc, char** argv) {
    bool quick = false;
    bool routes = true;
    for (int i = 1; i < argc; ++i) {
        const bool is_quick = std::strcmp(argv[i], "--quick") == 0;
        if (!is_quick && std::strcmp(argv[i], "--fan-out") != 0) {
            std::printf("usage: routing [--quick] [--fan-out]\n");
            return 2;
        }
        quick = quick || is_quick;
        routes = routes && is_quick;
    }
    const std::size_t rounds = quick ? 3 : 7;
    const std::size_t messages = quick ? 100'000 : 1'000'000;
    if (routes) {
        std::printf(
            "ns a message: median [least .. most]; a ratio above 1 is in favour of the router\n");
    }
    for (const std::size_t count : {std::size_t{10}, std::size_t{1'000}, std::size_t{100'000}}) {
        if (!routes) {
            break;
        }
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
    std::printf("\nns a message, in and out of all of its queues; a ratio above 1 is in favour of "
                "the exchange\n");
    for (const std::size_t queues : {std::size_t{1}, std::size_t{4}, std::size_t{64}}) {
        fan_out(queues, rounds, quick);
    }
}
