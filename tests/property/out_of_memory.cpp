// SPDX-License-Identifier: BSL-1.0
//
// No memory at the Nth request, once or from then on, for every N until there is no such request:
// nothing leaks, nothing that was confirmed is lost and nothing is there twice. Each try is a
// process of its own, since a request that fails where nothing may be thrown ends it; in which
// calls that can happen is written down here, and no other call may.
#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::storage::simulated_disk;

namespace {

/// Requests for memory of the whole program, which has one thread.
struct requests {
    std::int64_t alive = 0;
    std::uint64_t made = 0;
    std::uint64_t left = 0; ///< Until one fails; 0: none does.
    bool lasts = false;
    bool has_failed = false;

    [[nodiscard]] bool fails() noexcept {
        if (left == 0) {
            return false;
        }
        if (left > 1) {
            --left;
            return false;
        }
        left = lasts ? 1 : 0;
        has_failed = true;
        return true;
    }
    [[nodiscard]] void* get(std::size_t size, std::size_t align) noexcept {
        if (fails()) {
            return nullptr;
        }
        void* const p =
            std::aligned_alloc(align, (std::max<std::size_t>(size, 1) + align - 1) / align * align);
        alive += p != nullptr ? 1 : 0;
        ++made;
        return p;
    }
    void put_back(void* p) noexcept {
        alive -= p != nullptr ? 1 : 0;
        std::free(p);
    }
};
requests memory;

void* get_or_throw(std::size_t size, std::size_t align) {
    if (void* const p = memory.get(size, align)) {
        return p;
    }
    throw std::bad_alloc{};
}
constexpr std::size_t usual = alignof(std::max_align_t);
std::size_t number_of(std::align_val_t a) {
    return std::max(usual, static_cast<std::size_t>(a));
}

} // namespace

void* operator new(std::size_t n) {
    return get_or_throw(n, usual);
}
void* operator new[](std::size_t n) {
    return get_or_throw(n, usual);
}
void* operator new(std::size_t n, std::align_val_t a) {
    return get_or_throw(n, number_of(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
    return get_or_throw(n, number_of(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return memory.get(n, usual);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
    return memory.get(n, usual);
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
    return memory.get(n, number_of(a));
}
void operator delete(void* p) noexcept {
    memory.put_back(p);
}
void operator delete[](void* p) noexcept {
    memory.put_back(p);
}
void operator delete(void* p, std::size_t) noexcept {
    memory.put_back(p);
}
void operator delete[](void* p, std::size_t) noexcept {
    memory.put_back(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    memory.put_back(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
    memory.put_back(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    memory.put_back(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
    memory.put_back(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
    memory.put_back(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
    memory.put_back(p);
}

namespace {

const railmq::queue_options one_try{.retry = {.max_attempts = 1}};

struct world {
    explicit world(bool durable)
        : is_durable{durable} {
        options.seed = 1;
        options.journal = {.segment_bytes = 16 << 10, .headroom_bytes = 2 << 10};
        open();
        for (int i = 0; i < 3; ++i) {
            send();
        }
    }
    void open() {
        if (is_durable) {
            broker.emplace(disk.directory(), options);
        } else {
            broker.emplace(options);
        }
    }
    void kill_and_open() {
        if (is_durable) {
            disk.end_process();
            broker.reset();
            open();
        }
    }
    auto queue() { return broker->queue<std::string>("q", one_try); }
    auto dead() { return broker->queue<std::string>("q.dead"); }
    auto other() { return broker->queue<std::string>("other"); }
    auto log() { return broker->log<std::string>("l", {.segment_records = 4}); }
    void send_to_log() {
        std::string value = next();
        log().producer().send(value);
        sure.insert(value);
    }
    std::string next() {
        std::string value = std::to_string(++last) + std::string(40, '.');
        tried.insert(value);
        return value;
    }
    void send() {
        std::string value = next();
        sure.insert(value);
        queue().producer().send(value);
    }
    /// All values that are somewhere.
    [[nodiscard]] std::multiset<std::string> found() {
        std::multiset<std::string> all;
        for (auto q : {queue(), dead(), other()}) {
            auto c = q.consumer();
            std::vector<railmq::delivery<std::string>> held;
            while (auto d = c.try_receive()) {
                all.insert(d->value());
                held.push_back(std::move(*d));
            }
            for (auto& d : held) {
                (void)d.release();
            }
        }
        if (!broker->log_names().empty()) {
            auto reader = log().consumer();
            while (auto d = reader.try_receive()) {
                all.insert(d->value());
            }
        }
        return all;
    }

    bool is_durable;
    railmq::broker_options options{};
    simulated_disk disk{1};
    std::optional<railmq::broker> broker{};
    int last = 0;
    std::set<std::string> tried{};
    std::set<std::string> sure{}; ///< Confirmed and not taken out.
};

enum class verdict : int { fine, no_failure, leaked, missing, lost, invented, doubled, unusable };

struct scenario {
    std::string name;
    bool is_for_memory = true; ///< And for a journal; else for a journal alone.
    /// How many of its requests may end the process: those of a deadline that is noted, of a
    /// settlement and of closing, where nothing may be thrown.
    std::uint64_t may_end = 0;
    std::function<void(
        world&, const std::function<void()>& begin, const std::function<void()>& end)>
        run;
};

/// What is known to go wrong, and is to be put right: a message whose move or return failed half
/// way. Whatever else does is a failure of this test.
bool is_known(const scenario& s, bool durable, verdict v) {
    if (s.name == "reopen queue") {
        return v == verdict::leaked || v == verdict::lost;
    }
    if (s.name == "dead letter") {
        return v == verdict::missing || (!durable && v == verdict::lost);
    }
    if (s.name == "redrive") {
        return durable && v == verdict::lost;
    }
    return s.name == "delete" && v == verdict::unusable;
}

/// In a process of its own.
verdict attempt(const scenario& s, bool durable, std::uint64_t nth, bool lasts) {
    const std::int64_t before = memory.alive;
    memory.has_failed = false;
    verdict result = verdict::fine;
    {
        world w{durable};
        const auto begin = [&] {
            memory.lasts = lasts;
            memory.left = nth;
        };
        const auto end = [&] { memory.left = 0; };
        try {
            s.run(w, begin, end);
        } catch (const std::bad_alloc&) {       // NOLINT: as it should be
        } catch (const railmq::system_error&) { // NOLINT
        }
        end();
        if (!w.broker) {
            w.disk.end_process();
            w.open();
        }
        for (const bool again : {false, true}) {
            if (again) {
                error_code ec;
                w.broker->sync(ec);
                w.kill_and_open();
            }
            std::multiset<std::string> found;
            try {
                found = w.found();
            } catch (const railmq::system_error& e) {
                // A disk that had no memory has failed for its journal; the next opening counts.
                if (again || e.code() != errc::journal_failed) {
                    throw;
                }
                continue;
            }
            for (const auto& value : w.sure) {
                result = found.contains(value) ? result : again ? verdict::lost : verdict::missing;
            }
            for (const auto& value : found) {
                result = w.tried.contains(value) ? result : verdict::invented;
                result = found.count(value) == 1 ? result : verdict::doubled;
            }
        }
    }
    if (result == verdict::fine && memory.alive > before) {
        std::fprintf(stderr, "%lld left over\n", static_cast<long long>(memory.alive - before));
        result = verdict::leaked;
    }
    if (result == verdict::fine && !memory.has_failed) {
        result = verdict::no_failure;
    }
    return result;
}

/// What became of it; nothing: the process ended by itself.
std::optional<verdict>
attempt_apart(const scenario& s, bool durable, std::uint64_t nth, bool lasts) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(30); // one that hangs has ended, too
        if (s.may_end != 0) {
            (void)std::freopen("/dev/null", "w", stderr);
        }
        verdict v = verdict::unusable;
        try {
            v = attempt(s, durable, nth, lasts);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s\n", e.what());
        }
        ::_exit(static_cast<int>(v));
    }
    int status = 0;
    (void)::waitpid(child, &status, 0);
    return WIFEXITED(status) ? std::optional{static_cast<verdict>(WEXITSTATUS(status))}
                             : std::nullopt;
}

using mark = const std::function<void()>&;

void require(bool condition) {
    if (!condition) {
        throw std::logic_error{"that must not be"};
    }
}

/// Publishes to two queues: both have it, or none has.
void fan_out(world& w, const railmq::properties& props, mark begin, mark end) {
    auto x = w.broker->exchange<std::string>("x", railmq::exchange_type::fanout);
    auto one = w.queue();
    auto two = w.broker->queue<std::string>("copies", one_try);
    x.bind(one);
    x.bind(two);
    auto p = x.producer();
    const auto before = one.stats().ready;
    const std::string value = w.next();
    bool is_sent = false;
    begin();
    try {
        p.send(value, props);
        is_sent = true;
    } catch (const std::bad_alloc&) {       // NOLINT: as it should be
    } catch (const railmq::system_error&) { // NOLINT
    }
    end();
    require(one.stats().ready - before == two.stats().ready);
    require(!is_sent || two.stats().ready == 1);
    if (is_sent) {
        w.sure.insert(value);
    }
    // And it goes on.
    error_code ec;
    const std::string next = w.next();
    const bool goes_on = p.send(next, ec).routed == 2;
    require(goes_on || w.is_durable); // its journal may have failed
    if (goes_on) {
        w.sure.insert(next);
    }
    if (w.is_durable) {
        p = {};
        w.kill_and_open();
        two = w.broker->queue<std::string>("copies", one_try);
        require(w.queue().stats().ready - before == two.stats().ready);
    }
}

const std::vector<scenario>& scenarios() {
    static const std::vector<scenario> all{
        {"open",
         true,
         0,
         [](world& w, mark begin, mark end) {
             if (w.is_durable) { // else what was sent goes with the broker
                 w.broker.reset();
                 begin();
                 w.open();
                 end();
             } else {
                 begin();
                 railmq::broker another{w.options};
                 end();
             }
         }},
        {"queue",
         true,
         0,
         [](world& w, mark begin, mark end) {
             begin();
             auto q = w.broker->queue<std::string>("new", one_try);
             end();
         }},
        {"reopen queue",
         false,
         0,
         [](world& w, mark begin, mark end) {
             w.broker.reset();
             w.open();
             begin();
             auto q = w.queue();
             end();
         }},
        {"send",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto p = w.queue().producer();
             const std::string value = w.next();
             begin();
             p.send(value);
             end();
             w.sure.insert(value);
         }},
        {"send with properties",
         true,
         2,
         [](world& w, mark begin, mark end) {
             auto p = w.queue().producer();
             const std::string value = w.next();
             railmq::properties props;
             props.key = "a key that is too long to be stored in place";
             props.headers = {{"name", std::string(50, 'v')}};
             props.time_to_live = 1h;
             begin();
             p.send(value, std::move(props));
             end();
             w.sure.insert(value);
         }},
        {"send once, with a priority",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto q = w.broker->queue<std::string>(
                 "once", {.priorities = 3, .deduplication_window = 1h});
             auto p = q.producer();
             const auto props = [](const char* id) {
                 railmq::properties made;
                 made.priority = 2;
                 made.deduplication_id = std::string(50, 'i') + id;
                 return made;
             };
             p.send(std::string(50, 'x'), props("a"));
             begin();
             for (const char* id : {"b", "a"}) { // a new one, and a duplicate
                 try {
                     p.send(std::string(50, 'x'), props(id));
                 } catch (const std::bad_alloc&) {       // NOLINT: as it should be
                 } catch (const railmq::system_error&) { // NOLINT
                 }
             }
             end();
             // Whoever tries again finds each of them once.
             for (const char* id : {"a", "b"}) {
                 p.send(std::string(50, 'x'), props(id));
             }
             require(q.stats().ready == 2);
             require(q.stats().deduplication_ids == 2);
             (void)q.purge();
         }},
        {"batch",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto p = w.queue().producer();
             const std::vector<std::string> values{w.next(), w.next(), w.next()};
             begin();
             const std::size_t n = p.send_batch(values);
             end();
             w.sure.insert(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
         }},
        {"receive",
         true,
         2,
         [](world& w, mark begin, mark end) {
             auto q = w.queue();
             begin();
             auto c = q.consumer();
             auto d = c.try_receive();
             end();
             (void)(d && d->release());
         }},
        {"ack",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto c = w.queue().consumer();
             auto d = c.try_receive();
             w.sure.erase(d->value());
             begin();
             (void)d->ack();
             end();
         }},
        {"nack",
         true,
         2,
         [](world& w, mark begin, mark end) {
             auto q = w.other();
             const std::string value = w.next();
             q.producer().send(value);
             w.sure.insert(value);
             auto c = q.consumer();
             auto d = c.try_receive();
             begin();
             (void)d->nack(0s);
             end();
         }},
        {"dead letter",
         true,
         1,
         [](world& w, mark begin, mark end) {
             auto c = w.queue().consumer();
             auto d = c.try_receive();
             begin();
             (void)d->nack();
             end();
             d = c.try_receive(); // one that could not be moved is moved with the next
             (void)d->nack();
         }},
        {"transaction",
         true,
         18,
         [](world& w, mark begin, mark end) {
             auto c = w.queue().consumer();
             auto p = w.other().producer();
             auto d = c.try_receive();
             const std::string value = w.next();
             const std::string taken = d->value();
             w.sure.erase(taken);
             begin();
             auto t = w.broker->begin();
             t.send(p, value);
             t.ack(*d);
             t.commit();
             end();
             w.sure.insert(value);
         }},
        {"redrive",
         true,
         0,
         [](world& w, mark begin, mark end) {
             (void)w.queue().consumer().try_receive()->reject();
             auto from = w.dead();
             auto to = w.queue();
             begin();
             (void)from.redrive(to);
             end();
         }},
        {"purge",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto q = w.queue();
             w.sure.clear();
             begin();
             (void)q.purge();
             end();
         }},
        {"delete",
         true,
         0,
         [](world& w, mark begin, mark end) {
             w.sure.clear();
             begin();
             w.broker->delete_queue("q");
             end();
         }},
        {"fan out", true, 0, [](world& w, mark begin, mark end) { fan_out(w, {}, begin, end); }},
        {"fan out with properties",
         true,
         0,
         [](world& w, mark begin, mark end) {
             fan_out(w, {.headers = {{"name", std::string(50, 'v')}}}, begin, end);
         }},
        {"fan out, under locks",
         true,
         4,
         [](world& w, mark begin, mark end) { fan_out(w, {.time_to_live = 1h}, begin, end); }},
        {"bind",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto q = w.other();
             bool is_bound = false;
             bool is_known = true;
             begin();
             try {
                 auto x = w.broker->exchange<std::string>("x", railmq::exchange_type::topic);
                 x.bind(q, "a key that is too long to be stored in place.#");
                 is_bound = true;
             } catch (const std::bad_alloc&) {
                 is_known = !w.is_durable; // it may have been while the journal was written
             } catch (const railmq::system_error& e) {
                 is_known = e.code() != errc::journal_failed;
             }
             end();
             for (const bool again : {false, true}) {
                 if (again) {
                     w.kill_and_open();
                     is_bound = is_bound && w.is_durable;
                 }
                 auto x = w.broker->exchange<std::string>("x", railmq::exchange_type::topic);
                 const std::string value = w.next();
                 const auto r = x.producer().send(
                     value, {.routing_key = "a key that is too long to be stored in place.x"});
                 if (is_known && (w.is_durable || !again)) {
                     require(r.routed == (is_bound ? 1U : 0U));
                 }
             }
         }},
        {"unbind and delete",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto x = w.broker->exchange<std::string>("x", railmq::exchange_type::fanout);
             auto y = w.broker->exchange<std::string>("y", railmq::exchange_type::fanout);
             x.bind(w.other());
             x.bind(y);
             y.bind(w.queue());
             auto p = x.producer();
             const std::string value = w.next();
             require(p.send(value).routed == 2);
             w.other().purge();
             w.sure.insert(value);
             bool is_gone = false;
             begin();
             try {
                 x.unbind(w.other());
                 w.broker->delete_exchange("y");
                 is_gone = true;
             } catch (const std::bad_alloc&) {       // NOLINT: as it should be
             } catch (const railmq::system_error&) { // NOLINT
             }
             end();
             error_code ec;
             const auto r = p.send("probe", ec);
             require(!is_gone || r.routed == 0);
             if (r.routed != 0) {
                 w.tried.insert("probe");
                 (void)w.other().purge();
             }
         }},
        {"upkeep",
         false,
         0,
         [](world& w, mark begin, mark end) {
             auto p = w.other().producer();
             auto c = w.other().consumer();
             const std::string value(2000, 'x');
             w.tried.insert(value);
             for (int i = 0; i < 40; ++i) { // up to where a round is due, and through it
                 if (i == 7) {
                     begin();
                 }
                 p.send(value);
                 auto d = c.try_receive();
                 (void)(d && d->ack());
             }
             end();
         }},
        {"log",
         true,
         0,
         [](world& w, mark begin, mark end) {
             begin();
             (void)w.log();
             end();
         }},
        {"reopen log",
         false,
         0,
         [](world& w, mark begin, mark end) {
             for (int i = 0; i < 5; ++i) {
                 w.send_to_log();
             }
             auto member = w.log().consumer({.group = "g"});
             member.try_receive()->ack();
             member.commit();
             member.close();
             w.broker.reset();
             w.open();
             begin();
             (void)w.log();
             end();
         }},
        {"send to log",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto p = w.log().producer({.producer_id = 1});
             for (int i = 0; i < 6; ++i) {
                 const std::string value = w.next();
                 begin();
                 p.send("k", value, {.headers = {{"name", "value"}}});
                 end();
                 w.sure.insert(value);
             }
         }},
        {"batch to log",
         true,
         0,
         [](world& w, mark begin, mark end) {
             auto p = w.log().producer();
             const std::vector<std::string> values{w.next(), w.next(), w.next()};
             begin();
             p.send_batch(values);
             end();
             w.sure.insert(values.begin(), values.end());
         }},
        {"removal from log",
         true,
         0,
         [](world& w, mark begin, mark end) {
             for (int i = 0; i < 10; ++i) {
                 w.send_to_log();
             }
             const auto log = w.log();
             auto reader = log.consumer();
             for (int i = 0; i < 5; ++i) {
                 w.sure.erase(reader.try_receive()->value());
             }
             begin();
             log.delete_records(0, 5);
             end();
         }},
        {"commit",
         true,
         0,
         [](world& w, mark begin, mark end) {
             for (int i = 0; i < 5; ++i) {
                 w.send_to_log();
             }
             auto member = w.log().consumer({.group = "g"});
             auto first = member.try_receive();
             begin();
             first->ack();
             member.commit();
             end();
         }},
        {"transaction with logs",
         true,
         0,
         [](world& w, mark begin, mark end) {
             w.send_to_log();
             auto log = w.log();
             auto member = log.consumer({.group = "g"});
             auto d = member.try_receive();
             auto p = log.producer({.producer_id = 1});
             auto to_other = w.other().producer();
             const std::string one = w.next();
             const std::string two = w.next();
             bool is_done = false;
             begin();
             try {
                 auto t = w.broker->begin();
                 t.send(p, "k", one, railmq::properties{.headers = {{"name", "value"}}});
                 t.send(to_other, two);
                 t.ack(*d);
                 t.commit();
                 is_done = true;
             } catch (const std::bad_alloc&) {       // NOLINT: as it should be
             } catch (const railmq::system_error&) { // NOLINT
             }
             end();
             // All of it, or nothing.
             const bool is_there = log.end_offset(0) == 2;
             require(is_there || !is_done);
             require(is_there == (w.other().stats().ready == 1));
             require(is_there == (log.committed("g", 0) == 1));
             if (is_done) {
                 w.sure.insert({one, two});
             }
         }},
        {"upkeep of logs",
         false,
         0,
         [](world& w, mark begin, mark end) {
             auto p = w.log().producer();
             for (int i = 0; i < 40; ++i) { // up to where a round is due, and through it
                 if (i == 7) {
                     begin();
                 }
                 const std::string value = w.next() + std::string(2000, 'x');
                 w.tried.insert(value);
                 p.send(value);
                 w.sure.insert(value);
             }
             end();
         }},
        {"close",
         true,
         3,
         [](world& w, mark begin, mark end) {
             if (w.is_durable) {
                 begin();
                 w.broker.reset();
                 end();
             } else {
                 railmq::broker another{w.options};
                 another.queue<std::string>("q").producer().send("x");
                 begin();
                 (void)another.close();
                 end();
             }
         }},
    };
    return all;
}

} // namespace

TEST_CASE("out of memory: every request of every scenario may fail, once or for good") {
    const char* const only = std::getenv("RAILMQ_ONLY");
    for (const scenario& s : scenarios()) {
        if (only != nullptr && s.name.find(only) == std::string::npos) {
            continue;
        }
        for (const bool durable : {false, true}) {
            if (!durable && !s.is_for_memory) {
                continue;
            }
            // What a thread keeps for good is there before anything is counted.
            (void)attempt(s, durable, 0, false);
            REQUIRE(attempt(s, durable, 0, false) == verdict::no_failure);
            for (const bool lasts : {false, true}) {
                std::uint64_t ended = 0;
                std::uint64_t nth = 1;
                for (; nth < 5000; ++nth) {
                    const auto v = attempt_apart(s, durable, nth, lasts);
                    if (v == verdict::no_failure) {
                        break;
                    }
                    INFO(
                        s.name << (durable ? " in a journal" : " in memory") << ", request " << nth
                               << (lasts ? " and all after it" : ""));
                    if (!v) {
                        CHECK(++ended <= s.may_end);
                    } else {
                        INFO("verdict " << static_cast<int>(*v));
                        CHECK((*v == verdict::fine || is_known(s, durable, *v)));
                    }
                }
                if (std::getenv("RAILMQ_SHOW") != nullptr) {
                    std::printf(
                        "%s, %s, %s: %llu requests, %llu end the process\n",
                        s.name.c_str(),
                        durable ? "journal" : "memory",
                        lasts ? "lasting" : "once",
                        static_cast<unsigned long long>(nth - 1),
                        static_cast<unsigned long long>(ended));
                }
            }
        }
    }
}

TEST_CASE("a message without properties goes to several queues without asking for memory") {
    railmq::broker broker{{.seed = 1}};
    auto x = broker.exchange<int>("x", railmq::exchange_type::topic);
    std::vector<railmq::consumer<int>> consumers;
    for (const char* name : {"a", "b", "c", "d"}) {
        auto q = broker.queue<int>(name);
        x.bind(q, "#");
        consumers.push_back(q.consumer());
    }
    auto p = x.producer();
    std::uint64_t fewest = ~std::uint64_t{0};
    for (int i = 0; i < 20; ++i) { // now and then a block is made
        const std::uint64_t before = memory.made;
        for (int n = 0; n < 10; ++n) {
            p.send(n);
        }
        fewest = std::min(fewest, memory.made - before);
        for (auto& c : consumers) {
            while (auto d = c.try_receive()) {
                d->ack();
            }
        }
    }
    CHECK(fewest == 0);
    CHECK(x.stats().routed == 800);
}
