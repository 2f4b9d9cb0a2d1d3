// SPDX-License-Identifier: BSL-1.0
//
// A topic of a durable broker, or a log that is shared, with subscriptions that come, work and go
// by chance on a simulated disk; ended at any call of the disk by a power cut or by the end of the
// process, opened again, perhaps ended again, and compared with a naive model.
//
// The journal is one line of records. So what is found must be what there was after some event of
// the model, not before the last one that was confirmed: which subscriptions there are, what each
// has still to do, and what has died, all at one moment. Nothing is there twice.
#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>
#include <railmq/topic.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"
#include "support/watched_disk.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::storage::simulated_disk;
using railmq::test::watch;
using railmq::test::watched_directory;

namespace {

constexpr std::size_t names = 3;
const std::array<std::string, names> name_of{"a", "b", "c"};

/// What a subscription wants: everything, a header, or what a function says.
[[nodiscard]] bool wants(std::size_t s, bool is_log, std::uint64_t value) {
    return s == 0 || (s == 1 && value % 2 == 1) || (s == 2 && (is_log || value % 3 == 0));
}
[[nodiscard]] std::uint64_t number_of(const std::string& value) {
    return std::strtoull(value.c_str(), nullptr, 10);
}

enum class what : unsigned char { sent, subscribed, unsubscribed, dropped, acked, died, together };
struct event {
    what kind{};
    std::size_t sub = 0;
    std::vector<std::uint64_t> values{};
    std::vector<event> parts{};
};
struct model {
    bool is_log = false;
    std::array<std::optional<std::set<std::uint64_t>>, names> subs{};
    std::array<std::set<std::uint64_t>, names> dead{};

    void take(const event& e) {
        switch (e.kind) {
        case what::sent:
            for (std::size_t s = 0; s != names; ++s) {
                for (const std::uint64_t v : e.values) {
                    if (subs[s] && wants(s, is_log, v)) {
                        subs[s]->insert(v);
                    }
                }
            }
            break;
        case what::subscribed: subs[e.sub].emplace(); break;
        case what::unsubscribed: subs[e.sub].reset(); break;
        case what::dropped: subs = {}; break;
        case what::acked:
        case what::died:
            for (const std::uint64_t v : e.values) {
                subs[e.sub]->erase(v);
                if (e.kind == what::died) {
                    dead[e.sub].insert(v);
                }
            }
            break;
        case what::together:
            for (const event& one : e.parts) {
                take(one);
            }
            break;
        }
    }
    friend bool operator==(const model&, const model&) = default;
};

/// What the seed decides once for a run.
struct setting {
    railmq::broker_options broker{};
    bool is_log = false;
    bool keeps_history = false;

    explicit setting(std::uint64_t seed) {
        railmq::random_engine r{seed};
        const auto below = [&](std::uint64_t n) { return railmq::uniform_below(r, n); };
        broker.journal.segment_bytes = std::uint64_t{4096} << below(3);
        broker.journal.headroom_bytes = std::uint64_t{2048} << below(2);
        broker.seed = seed + 1;
        is_log = below(3) == 0;
        keeps_history = below(4) == 0;
    }
    [[nodiscard]] railmq::subscription_options options(std::size_t s) const {
        railmq::subscription_options o;
        o.queue.ack_timeout = 24h;
        o.queue.retry = {
            .max_attempts = 0, .max_crashes = 0, .backoff = railmq::constant_backoff{.delay = 0s}};
        if (s == 0) {
            o.queue.order = railmq::delivery_order::by_key;
        } else if (s == 1) {
            o.where = {{"odd", {"yes"}}};
        }
        return o;
    }
};

/// Everything that outlives the broker: the disk, and what is known. A copy is a world of its own.
struct history {
    history(std::uint64_t seed, railmq::storage::simulated_disk_options o)
        : disk{seed, o} {}

    simulated_disk disk;
    railmq::time_point now{};
    std::vector<event> events{};
    std::size_t written = 0; ///< So many of them survive the process,
    std::size_t synced = 0;  ///< and a loss of power.
    std::uint64_t values = 0;

    [[nodiscard]] model after(std::size_t n, bool is_log) const {
        model m;
        m.is_log = is_log;
        for (std::size_t i = 0; i < n; ++i) {
            m.take(events[i]);
        }
        return m;
    }
    void all_written() { written = std::max(written, events.size()); }
    void all_synced() {
        synced = events.size();
        all_written();
    }
};

struct life {
    using queue_type = railmq::basic_queue<std::string, railmq::simulated>;
    using delivery_type = railmq::basic_delivery<std::string, railmq::simulated>;

    life(history& history_, const setting& setting_, std::uint64_t seed, watch* w = nullptr)
        : h{history_}
        , s{setting_}
        , random{seed}
        , sim{seed}
        , watching{w != nullptr ? w : &nobody} {
        sim.advance(h.now - sim.now());
    }
    life(const life&) = delete;
    life& operator=(const life&) = delete;

    [[nodiscard]] std::uint64_t below(std::uint64_t n) { return railmq::uniform_below(random, n); }
    [[nodiscard]] bool open() {
        try {
            broker.emplace(sim, watched_directory{h.disk, *watching}, s.broker);
            return true;
        } catch (const railmq::system_error& e) {
            wrong = std::string{"cannot be opened: "} + e.what();
            return false;
        }
    }
    [[nodiscard]] railmq::basic_topic<std::string, railmq::simulated> topic() {
        railmq::topic_options o;
        if (s.keeps_history) {
            o.history.emplace();
        }
        return broker->topic<std::string>("t", o);
    }
    [[nodiscard]] auto log() {
        return broker->log<std::string>("t", {.partitions = 2, .segment_records = 8});
    }
    [[nodiscard]] std::vector<std::string> subscriptions() {
        return s.is_log ? log().subscriptions() : topic().subscriptions();
    }
    [[nodiscard]] queue_type subscribe(std::size_t n) {
        const auto o = s.options(n);
        if (s.is_log) {
            return log().subscribe(name_of[n], o);
        }
        return n == 2
                   ? topic().subscribe(
                         name_of[n], o, [](const std::string& v) { return number_of(v) % 3 == 0; })
                   : topic().subscribe(name_of[n], o);
    }

    /// What there is, taken out: of a copy of the disk.
    [[nodiscard]] model look() {
        model m;
        m.is_log = s.is_log;
        const auto empty = [&](const queue_type& q, std::set<std::uint64_t>& to) {
            auto c = q.consumer();
            while (auto d = c.try_receive()) {
                if (!to.insert(number_of(d->value())).second) {
                    wrong = q.name() + " has " + d->value() + " twice";
                }
                if (d->properties().headers.size() != 1) {
                    wrong = q.name() + " has lost properties";
                }
                d->ack();
            }
            const auto all = q.stats();
            if (all.ready + all.delayed + all.in_flight != 0) {
                wrong = q.name() + " has messages that nobody gets";
            }
        };
        const auto there = broker->topic_names().empty() && broker->log_names().empty()
                               ? std::vector<std::string>{}
                               : subscriptions();
        for (std::size_t n = 0; n != names; ++n) {
            if (std::find(there.begin(), there.end(), name_of[n]) != there.end()) {
                empty(subscribe(n), m.subs[n].emplace());
            }
            if (const auto dead = broker->find_queue<std::string>("t." + name_of[n] + ".dead")) {
                empty(*dead, m.dead[n]);
            }
        }
        return m;
    }
    /// That what is there is what there was after some event.
    [[nodiscard]] std::string recover(std::size_t at_least) {
        model found;
        {
            history copy = h;
            life l{copy, s, 1};
            l.is_copy = true;
            try {
                if (l.open()) {
                    found = l.look();
                }
            } catch (const railmq::system_error& e) {
                l.wrong = e.what();
            }
            if (!l.wrong.empty()) {
                return l.wrong;
            }
        }
        if (!open()) {
            return wrong;
        }
        for (std::size_t n = h.events.size() + 1; n-- > at_least;) {
            current = h.after(n, s.is_log);
            if (current == found) {
                h.events.resize(n);
                h.all_synced();
                return {};
            }
        }
        current = h.after(h.events.size(), s.is_log);
        std::ostringstream all;
        all << "it is nothing that it ever was, from " << at_least << " events on of "
            << h.events.size();
        for (std::size_t n = 0; n != names; ++n) {
            tell(all, "found in ", n, found);
            tell(all, "known of ", n, current);
        }
        return all.str();
    }
    static void tell(std::ostream& to, const char* text, std::size_t n, const model& m) {
        to << "\n  " << text << name_of[n] << (m.subs[n] ? "" : " (not there)") << ":";
        if (m.subs[n]) {
            for (const std::uint64_t v : *m.subs[n]) {
                to << " " << v;
            }
        }
        to << "; dead:";
        for (const std::uint64_t v : m.dead[n]) {
            to << " " << v;
        }
    }

    void say(event e) {
        current.take(e);
        h.events.push_back(std::move(e));
    }
    void confirmed(durability d) {
        if (d == durability::synced) {
            h.all_synced();
        } else if (d != durability::accepted) {
            h.all_written();
        }
    }
    [[nodiscard]] durability any_durability() {
        switch (below(4)) {
        case 0: return durability::accepted;
        case 1: return durability::written;
        case 2: return durability::interval(5s);
        default: return durability::synced;
        }
    }
    struct message {
        std::string value{};
        railmq::properties props{};
    };
    [[nodiscard]] message next(std::vector<std::uint64_t>& values) {
        const std::uint64_t v = ++h.values;
        values.push_back(v);
        message m{std::to_string(v) + " " + std::string(below(80), 'x'), {}};
        m.props.headers = {{"odd", v % 2 == 1 ? "yes" : "no"}};
        if (below(2) == 0) {
            m.props.key = "k" + std::to_string(below(3));
        }
        return m;
    }
    [[nodiscard]] auto producer(durability d) {
        return s.is_log ? log().producer({.durability = d}) : topic().producer({.durability = d});
    }

    void step() {
        try {
            do_something();
        } catch (const railmq::system_error& e) {
            wrong = wrong.empty() ? e.what() : wrong;
        }
    }
    void do_something() {
        const auto n = static_cast<std::size_t>(below(names));
        switch (below(24)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
        case 6: send(1 + (below(4) == 0 ? below(8) : 0)); break;
        case 7: send(1 + (below(3) == 0 ? below(150) : 0)); break;
        case 8:
        case 9:
        case 10:
            if (!current.subs[n]) {
                say({.kind = what::subscribed, .sub = n});
                queues[n] = subscribe(n);
                h.all_synced();
            }
            break;
        case 11:
        case 12:
        case 13:
        case 14:
        case 15:
        case 16: work(n); break;
        case 17: settle_one(); break;
        case 18: transact(n); break;
        case 19:
            sim.advance(std::chrono::seconds{below(20)});
            h.now = sim.now();
            break;
        case 20:
            broker->sync();
            h.all_synced();
            break;
        case 21:
            if (below(4) == 0 && current.subs[n]) {
                (void)queue(n); // what was dying when a process ended dies now, and not with it
                forget(n);
                say({.kind = what::unsubscribed, .sub = n});
                if (s.is_log) {
                    broker->delete_queue("t." + name_of[n]);
                } else {
                    topic().unsubscribe(name_of[n]);
                }
                h.all_synced();
            }
            break;
        case 22:
            if (below(12) == 0) {
                (void)producer(durability::accepted); // there is one
                for (std::size_t all = 0; all != names; ++all) {
                    if (current.subs[all]) {
                        (void)queue(all);
                    }
                    forget(all);
                }
                say({.kind = what::dropped});
                s.is_log ? broker->delete_log("t") : broker->delete_topic("t");
                h.all_synced();
            }
            break;
        default:
            if (!s.is_log) { // one for the time being reads along
                auto live = topic().subscribe();
                send(1);
                auto c = live.consumer();
                if (auto d = c.try_receive()) {
                    d->ack();
                } else {
                    wrong = "a subscription without a name gets nothing";
                }
            }
            break;
        }
    }
    void send(std::uint64_t n) {
        const durability d = any_durability();
        event e{.kind = what::sent};
        if (n == 1 || below(2) == 0) {
            for (; n != 0; --n) {
                e.values.clear();
                message m = next(e.values);
                say(e);
                (void)producer(d).send(std::move(m.value), std::move(m.props));
                confirmed(d);
            }
            return;
        }
        auto tx = broker->begin(); // all of it in one record
        auto p = producer(d);
        for (; n != 0; --n) {
            message m = next(e.values);
            tx.send(p, std::move(m.value), std::move(m.props));
        }
        say(std::move(e));
        tx.commit();
        confirmed(d);
    }
    [[nodiscard]] queue_type& queue(std::size_t n) {
        if (!queues[n]) {
            queues[n] = subscribe(n);
        }
        return *queues[n];
    }
    void forget(std::size_t n) {
        std::erase_if(held, [&](const auto& one) { return one.first == n; });
        consumers[n].reset();
        queues[n].reset();
    }
    void work(std::size_t n) {
        if (!current.subs[n]) {
            return;
        }
        if (!consumers[n]) {
            consumers[n].emplace(queue(n).consumer({.prefetch = 1000}));
        }
        auto batch = consumers[n]->receive_batch(1 + below(below(4) == 0 ? 100 : 6), 0s);
        for (auto& d : batch) {
            if (!current.subs[n]->contains(number_of(d.value()))) {
                wrong = "t." + name_of[n] + " gives out " + d.value() + ", which it does not have";
            }
            settle(n, std::move(d));
        }
    }
    void settle(std::size_t n, delivery_type d) {
        const std::uint64_t v = number_of(d.value());
        switch (below(10)) {
        case 0: d.nack(); break;
        case 1: d.release(); break;
        case 2:
            say({.kind = what::died, .sub = n, .values = {v}});
            wrong = d.reject("no") ? wrong : "a delivery is stale";
            break;
        case 3:
        case 4: held.emplace_back(n, std::move(d)); break;
        default:
            say({.kind = what::acked, .sub = n, .values = {v}});
            wrong = d.ack() ? wrong : "a delivery is stale";
            break;
        }
    }
    void settle_one() {
        if (!held.empty()) {
            const auto i = static_cast<std::ptrdiff_t>(below(held.size()));
            auto one = std::move(held[static_cast<std::size_t>(i)]);
            held.erase(held.begin() + i);
            settle(one.first, std::move(one.second));
        }
    }
    /// What a subscription gives goes back into its topic, as one with its acknowledgement.
    void transact(std::size_t n) {
        if (!current.subs[n]) {
            return;
        }
        auto c = queue(n).consumer();
        auto d = c.try_receive();
        if (!d) {
            return;
        }
        const durability wanted = any_durability();
        event e{.kind = what::together};
        e.parts.push_back({.kind = what::acked, .sub = n, .values = {number_of(d->value())}});
        auto& sent = e.parts.emplace_back(event{.kind = what::sent});
        auto p = producer(wanted);
        auto tx = broker->begin();
        tx.ack(*d);
        message m = next(sent.values);
        tx.send(p, std::move(m.value), std::move(m.props));
        if (below(5) == 0) {
            tx.abort();
            return;
        }
        say(std::move(e));
        tx.commit();
        confirmed(wanted);
    }
    void close() {
        held.clear();
        consumers = {};
        broker->close();
        h.all_synced();
    }

    history& h;
    const setting& s;
    railmq::random_engine random;
    railmq::simulation sim;
    watch nobody{};
    watch* watching;
    bool is_copy = false;
    std::optional<railmq::sim_broker> broker{};
    std::array<std::optional<queue_type>, names> queues{};
    std::array<std::optional<railmq::basic_consumer<std::string, railmq::simulated>>, names>
        consumers{};
    std::vector<std::pair<std::size_t, delivery_type>> held{};
    model current{};
    std::string wrong{};
};

enum class ending : unsigned char { power, process };

/// The process, or the power, is gone.
void end(history& h, ending how, std::uint64_t seed) {
    if (how == ending::process) {
        h.disk.end_process();
        return;
    }
    h.disk.reseed(seed);
    h.disk.crash();
    h.written = h.synced;
}

struct figures {
    std::uint64_t ends = 0;
    std::uint64_t events = 0;
};

/// Ends it there, opens it again, works on, closes and opens it. Returns what is wrong.
[[nodiscard]] std::string
verify(history h, const setting& s, ending how, std::uint64_t seed, figures& f) {
    railmq::random_engine random{seed};
    for (int again = 0; again != 2; ++again) {
        ++f.ends;
        end(h, how, random());
        std::optional<history> then;
        watch w;
        const std::uint64_t at = 1 + railmq::uniform_below(random, 30);
        {
            life l{h, s, random(), &w};
            w.before = [&] {
                if (w.calls == at) {
                    then.emplace(h); // the next end comes while it is opened, or soon after
                }
            };
            if (const std::string wrong = l.recover(h.written); !wrong.empty()) {
                return wrong;
            }
            for (int n = 0; n < 15; ++n) {
                l.step();
            }
            if (!l.wrong.empty()) {
                return "after it was opened: " + l.wrong;
            }
            w.before = nullptr;
            if (again == 1) {
                l.close();
            }
        }
        if (again == 0 && then) {
            h = *std::exchange(then, std::nullopt);
        }
        how = railmq::uniform_below(random, 2) == 0 ? ending::power : ending::process;
    }
    life l{h, s, random()};
    f.events += h.events.size();
    const std::string wrong = l.recover(h.events.size());
    return wrong.empty() ? "" : "closed and opened, " + wrong;
}

/// A run by seed: some lives, each ended in some way; at some moments of each, the world is copied,
/// ended and looked at. Returns what is wrong.
[[nodiscard]] std::string run(std::uint64_t seed, figures& f) {
    const setting s{seed};
    railmq::random_engine random{seed};
    history h{random(), {.torn_sectors = 0.1}};
    std::uint64_t expected = 60; // calls of the disk in one life, roughly
    for (int n = 0; n < 3; ++n) {
        std::vector<history> moments;
        std::set<std::uint64_t> chosen;
        for (int i = 0; i < 3; ++i) {
            chosen.insert(1 + railmq::uniform_below(random, expected));
        }
        watch w;
        const bool closes = railmq::uniform_below(random, 3) == 0;
        std::optional<history> last;
        {
            life l{h, s, random(), &w};
            w.before = [&] {
                if (chosen.contains(w.calls)) {
                    moments.push_back(h);
                }
            };
            if (const std::string wrong = l.recover(h.written); !wrong.empty()) {
                return "life " + std::to_string(n) + ": " + wrong;
            }
            for (std::uint64_t i = 5 + railmq::uniform_below(random, 150); i != 0; --i) {
                l.step();
            }
            if (!l.wrong.empty()) {
                return "life " + std::to_string(n) + ": " + l.wrong;
            }
            if (closes) {
                l.close();
            }
            last.emplace(h);
            expected = w.calls + 1;
            w.before = nullptr;
        }
        h = *std::exchange(last, std::nullopt);
        const auto pick = [&] {
            return railmq::uniform_below(random, 2) == 0 ? ending::power : ending::process;
        };
        for (const history& moment : moments) {
            const std::string wrong = verify(moment, s, pick(), random(), f);
            if (!wrong.empty()) {
                return "life " + std::to_string(n) + ", a moment of it: " + wrong;
            }
        }
        if (!closes) {
            end(h, pick(), random());
        }
    }
    return verify(h, s, ending::power, random(), f);
}

[[nodiscard]] std::uint64_t number_from(const char* variable, std::uint64_t usual) {
    const char* const asked = std::getenv(variable);
    return asked != nullptr ? std::strtoull(asked, nullptr, 10) : usual;
}

} // namespace

// RAILMQ_TOPIC_RUNS=5000 in the environment makes it that many; RAILMQ_TOPIC_RUN=n runs the nth
// alone.
TEST_CASE("F1, F2: topics are ended at any moment, and nothing confirmed is missing or twice") {
    const std::uint64_t only = number_from("RAILMQ_TOPIC_RUN", ~std::uint64_t{0});
    const std::uint64_t runs = number_from("RAILMQ_TOPIC_RUNS", 15);
    figures f;
    for (std::uint64_t n = 0; n < runs; ++n) {
        if (only != ~std::uint64_t{0}) {
            n = only;
        }
        const std::string wrong = run(railmq::test::seed(n), f);
        INFO("RAILMQ_TOPIC_RUN=" << n << "\n" << wrong);
        REQUIRE(wrong.empty());
        if (only != ~std::uint64_t{0}) {
            break;
        }
    }
    WARN(f.ends << " ends; " << f.events << " events");
}
