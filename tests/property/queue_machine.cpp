// SPDX-License-Identifier: BSL-1.0
//
// The queue's machine against a model made of maps, through random lives of a queue: after every
// step both must agree on where every message is, on what is handed out next, and on every counter.
// The model keeps no index and saves no work: it looks at every message, every time.
//
// Deadlines never coincide (each kind has its own number of nanoseconds), so that the order of what
// falls due at one moment need not be modelled; that order has tests of its own.
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::death_reason;
using railmq::delivery_order;
using railmq::duration;
using railmq::errc;
using railmq::never;
using railmq::overflow_policy;
using railmq::queue_options;
using railmq::requeue_position;
using railmq::time_point;
using railmq::core::settlement;
using railmq::core::slot_state;
using plain = railmq::core::single_threaded;
using machine = railmq::core::queue_machine<plain>;
using lease_type = railmq::core::lease<plain>;

namespace {

/// A payload that knows how many of its kind are alive, and has a size of its own choice.
struct parcel {
    int number = 0;
    std::size_t size = 1;
    static inline int alive = 0;

    parcel(int n, std::size_t s)
        : number{n}
        , size{s} {
        ++alive;
    }
    parcel(parcel&& other) noexcept
        : number{other.number}
        , size{other.size} {
        ++alive;
    }
    parcel(const parcel& other) noexcept
        : number{other.number}
        , size{other.size} {
        ++alive;
    }
    parcel& operator=(const parcel&) = delete;
    ~parcel() { --alive; }
};

} // namespace

template <>
struct railmq::payload_size<parcel> {
    [[nodiscard]] static std::size_t of(const parcel& p) noexcept { return p.size; }
};

namespace {

// --- The model ---

enum class stage : std::uint8_t { ready, delayed, held, gone };

struct message {
    stage where = stage::ready;
    std::size_t size = 1;
    std::optional<std::string> key{};
    std::uint32_t level = 0;
    /// Its place among the ready: (position in line, entries of `back` first, their number).
    std::tuple<std::uint64_t, int, std::uint64_t> rank{};
    std::uint64_t front = 0; ///< Not 0: before all ranks, the highest first.
    std::uint64_t position = 0;
    bool entered = false;   ///< It has had a position in line.
    bool owns_turn = false; ///< Of its key, or of a strict queue.
    time_point due = never; ///< Of a delayed one.
    bool is_backoff = false;
    time_point expires = never;
    time_point first_handed_out = never;
    time_point lease_start{};
    time_point deadline = never;
    std::size_t holder = 0;
    std::uint32_t tag = 0;
    std::uint32_t failures = 0;
    int departures = 0;
};

struct holder {
    bool is_open = true;
    bool is_closed = false;
    std::size_t prefetch = 1;
    duration auto_extend{0};
    std::size_t held = 0;
};

struct totals {
    std::uint64_t accepted = 0, acked = 0, expired = 0, dropped = 0, purged = 0, handed_out = 0,
                  redelivered = 0, failed = 0, deadlines_passed = 0, released = 0, refused = 0,
                  stale = 0;
};

class model {
public:
    explicit model(queue_options o)
        : options{std::move(o)} {}

    queue_options options;
    std::vector<message> all{};
    std::vector<holder> holders{};
    totals sums{};
    std::uint64_t tail = 0;
    std::uint64_t serial = 0;
    bool paused = false;
    std::uint32_t overtakes = 0;

    [[nodiscard]] std::uint64_t count(stage s) const {
        return static_cast<std::uint64_t>(
            std::count_if(all.begin(), all.end(), [s](const message& m) { return m.where == s; }));
    }
    [[nodiscard]] std::uint64_t ready_bytes() const {
        std::uint64_t sum = 0;
        for (const message& m : all) {
            sum += m.where == stage::ready ? m.size : 0;
        }
        return sum;
    }
    /// All ready ones, in the order of their places.
    [[nodiscard]] std::vector<std::size_t> line() const {
        std::vector<std::size_t> ids;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i].where == stage::ready) ids.push_back(i);
        }
        std::sort(ids.begin(), ids.end(), [this](std::size_t a, std::size_t b) {
            const message& x = all[a];
            const message& y = all[b];
            return x.level != y.level   ? x.level > y.level
                   : x.front != y.front ? x.front > y.front
                                        : x.rank < y.rank;
        });
        return ids;
    }
    /// Whether the order that the queue keeps lets this message go now.
    [[nodiscard]] bool may_go(const message& m) const {
        if (options.order == delivery_order::fifo || m.owns_turn) return true;
        if (options.order == delivery_order::by_key && !m.key) return true;
        return std::none_of(all.begin(), all.end(), [&](const message& other) {
            return other.owns_turn &&
                   (options.order == delivery_order::strict || other.key == m.key);
        });
    }
    /// Whether too many have been overtaken in a row.
    [[nodiscard]] bool was_turn() const {
        return options.max_overtakes != 0 && overtakes >= options.max_overtakes;
    }
    [[nodiscard]] std::optional<std::size_t> next() const {
        if (was_turn()) {
            return longest_waiting();
        }
        for (const std::size_t i : line()) {
            if (may_go(all[i])) return i;
            if (options.order == delivery_order::strict) return std::nullopt;
        }
        return std::nullopt;
    }
    /// `next`, which has its turn from now on.
    std::optional<std::size_t> pick() {
        const auto i = next();
        if (i) {
            const auto all_ready = line();
            const bool is_turn = *i != all_ready.front();
            const bool passes = all[all_ready.back()].level != all[*i].level;
            overtakes = was_turn() || is_turn || !passes ? 0 : overtakes + 1;
            message& m = all[*i];
            m.owns_turn = options.order == delivery_order::strict ||
                          (options.order == delivery_order::by_key && m.key);
        }
        return i;
    }
    [[nodiscard]] bool has_room(std::uint64_t messages, std::uint64_t bytes) const {
        return (options.max_length == railmq::unlimited ||
                count(stage::ready) + messages <= options.max_length) &&
               (options.max_bytes == railmq::unlimited ||
                ready_bytes() + bytes <= options.max_bytes);
    }

    void depart(message& m) {
        m.where = stage::gone;
        m.owns_turn = false;
        ++m.departures;
    }
    void die(message& m, death_reason why) {
        depart(m);
        (why == death_reason::expired ? sums.expired : sums.dropped) += 1;
    }
    /// Of the first ones of all levels the one whose place is the oldest.
    [[nodiscard]] std::optional<std::size_t> longest_waiting() const {
        std::optional<std::size_t> best;
        const auto place = [](const message& m) {
            return m.front != 0 ? std::uint64_t{0} : std::get<0>(m.rank);
        };
        std::set<std::uint32_t> seen;
        for (const std::size_t i : line()) {
            if (seen.insert(all[i].level).second && (!best || place(all[i]) < place(all[*best]))) {
                best = i;
            }
        }
        return best;
    }
    /// The first of the lowest level, or whoever is next.
    std::optional<std::size_t> pick_to_drop() {
        if (options.priorities <= 1) {
            return pick();
        }
        std::optional<std::size_t> least;
        for (const std::size_t i : line()) {
            if (!least || all[i].level < all[*least].level) least = i;
        }
        return least;
    }
    bool drop_oldest() {
        const auto i = pick_to_drop();
        if (i) die(all[*i], death_reason::dropped_oldest);
        return i.has_value();
    }
    void enter_line(message& m) {
        m.where = stage::ready;
        m.entered = true;
        m.position = tail++;
        m.rank = {m.position, 1, 0};
        m.front = 0;
    }

    errc send(
        std::size_t size,
        std::optional<std::string> key,
        std::uint32_t priority,
        duration delay,
        std::optional<duration> lifetime,
        time_point now) {
        if (size > options.max_bytes) {
            ++sums.refused;
            return errc::message_too_large;
        }
        if (options.time_to_live) {
            lifetime =
                lifetime ? std::min(*lifetime, *options.time_to_live) : *options.time_to_live;
        }
        message m;
        m.size = size;
        m.key = std::move(key);
        m.level = options.priorities > 1 ? std::min(priority, options.priorities - 1) : 0;
        m.expires = lifetime ? now + *lifetime : never;
        if (delay > 0ns) {
            m.where = stage::delayed;
            m.due = now + delay;
        } else {
            const bool drops = options.overflow == overflow_policy::drop_oldest;
            while (!(drops && options.priorities > 1) && !has_room(1, size)) {
                if (!drops || !drop_oldest()) {
                    sums.refused += options.overflow == overflow_policy::wait ? 0 : 1;
                    return errc::queue_full;
                }
            }
            enter_line(m);
        }
        ++sums.accepted;
        all.push_back(std::move(m));
        const bool drops = options.overflow == overflow_policy::drop_oldest;
        while (drops && options.priorities > 1 && delay <= 0ns && !has_room(0, 0)) {
            RC_ASSERT(drop_oldest());
        }
        return errc{};
    }

    std::optional<std::size_t> take(std::size_t h, time_point now) {
        if (paused || !holders[h].is_open || holders[h].held >= holders[h].prefetch) {
            return std::nullopt;
        }
        const auto i = pick();
        if (!i) return std::nullopt;
        message& m = all[*i];
        m.where = stage::held;
        m.holder = h;
        sums.redelivered += m.tag != 0 ? 1 : 0;
        ++m.tag;
        ++sums.handed_out;
        ++holders[h].held;
        m.lease_start = now;
        m.deadline = now + options.ack_timeout;
        if (m.first_handed_out == never) m.first_handed_out = now;
        return i;
    }

    void end_lease(message& m) { --holders[m.holder].held; }

    void give_back(message& m, requeue_position where, time_point now) {
        if (m.expires <= now) {
            die(m, death_reason::expired);
            return;
        }
        if (options.order == delivery_order::strict) {
            where = requeue_position::original; // behind others it would wait for them for ever
        }
        m.where = stage::ready;
        m.front = where == requeue_position::front ? ++serial : 0;
        m.rank = where == requeue_position::back ? std::tuple{tail, 0, ++serial}
                                                 : std::tuple{m.position, 1, std::uint64_t{0}};
        if (options.overflow == overflow_policy::drop_oldest) {
            while (!has_room(0, 0) && drop_oldest()) {
            }
        }
    }
    void fail(message& m, bool deadline_passed, std::optional<duration> wait, time_point now) {
        ++m.failures;
        ++sums.failed;
        sums.deadlines_passed += deadline_passed ? 1 : 0;
        if (options.retry.max_attempts != 0 && m.failures >= options.retry.max_attempts) {
            die(m, death_reason::max_attempts);
            return;
        }
        const duration pause = wait              ? *wait
                               : deadline_passed ? 0ns
                                                 : options.retry.backoff.base_wait(m.failures);
        if (pause == 0ns) {
            give_back(m, options.requeue, now);
        } else if (m.expires <= now) {
            die(m, death_reason::expired);
        } else {
            m.where = stage::delayed;
            m.is_backoff = true;
            m.due = now + pause;
        }
    }

    /// Whether a settlement of this hand-out still counts.
    [[nodiscard]] bool is_current(std::size_t i, std::uint32_t tag) const {
        return all[i].where == stage::held && all[i].tag == tag;
    }
    [[nodiscard]] bool is_late_but_first(std::size_t i, std::uint32_t tag, std::size_t h) const {
        return (all[i].where == stage::ready || all[i].where == stage::delayed) &&
               all[i].tag == tag && !holders[h].is_closed;
    }

    void close(std::size_t h, time_point now) {
        holders[h].is_open = false;
        std::vector<std::size_t> held;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i].where == stage::held && all[i].holder == h) held.push_back(i);
        }
        std::sort(held.begin(), held.end(), [this](std::size_t a, std::size_t b) {
            return all[a].position < all[b].position;
        });
        for (const std::size_t i : held) {
            end_lease(all[i]);
            ++sums.released;
            give_back(all[i], requeue_position::original, now);
        }
        holders[h].is_closed = true;
    }
    std::uint64_t purge() {
        std::uint64_t n = 0;
        for (message& m : all) {
            if (m.where == stage::ready || m.where == stage::delayed) {
                depart(m);
                ++n;
            }
        }
        sums.purged += n;
        return n;
    }

    /// When something happens next, and to which message.
    [[nodiscard]] std::pair<time_point, std::size_t> next_event() const {
        std::pair<time_point, std::size_t> first{never, 0};
        for (std::size_t i = 0; i < all.size(); ++i) {
            const message& m = all[i];
            time_point at = never;
            if (m.where == stage::held) at = m.deadline;
            if (m.where == stage::ready) at = m.expires;
            if (m.where == stage::delayed) at = std::min(m.due, m.expires);
            if (at < first.first) first = {at, i};
        }
        return first;
    }
    void run_due(time_point now) {
        for (auto [at, i] = next_event(); at <= now; std::tie(at, i) = next_event()) {
            message& m = all[i];
            if (m.where == stage::held) {
                const time_point limit = m.lease_start + holders[m.holder].auto_extend;
                if (m.deadline < limit) {
                    m.deadline = std::min(limit, m.deadline + options.ack_timeout);
                } else {
                    end_lease(m);
                    fail(m, true, std::nullopt, now);
                }
            } else if (m.where == stage::delayed && m.due <= m.expires) {
                if (m.is_backoff) {
                    give_back(m, options.requeue, now);
                } else {
                    enter_line(m);
                }
            } else {
                die(m, death_reason::expired);
            }
        }
    }
};

// --- What drives both ---

struct step {
    int what;
    int a;
    int b;
};
std::ostream& operator<<(std::ostream& out, const step& s) {
    return out << '{' << s.what << ", " << s.a << ", " << s.b << '}';
}

/// A handle as the application has it.
struct handle {
    std::size_t message;
    std::size_t holder;
    lease_type at;
    bool is_stale = false;
};

class world {
    using effects = railmq::core::effects<plain>;

    /// A length of time that no other deadline ends with.
    duration own(duration d) {
        suffix_ = suffix_ >= 900 ? 300 : suffix_ + 1;
        return d + duration{suffix_};
    }

    /// Runs one call of the machine, and then what its skin would do.
    template <class F>
    auto act(F&& f) {
        effects fx{listens_};
        struct finish {
            world& w;
            effects& fx;
            ~finish() { w.finish(fx); }
        } after{*this, fx};
        return f(fx);
    }
    void finish(effects& fx) {
        for (const auto& e : fx.endings) {
            machine_.end_payloads(e);
            machine_.free_ended(e);
        }
        for (const railmq::notice& n : fx.notices) {
            listen(n);
        }
        while (const auto dying = machine_.next_dying()) {
            const auto* p = static_cast<const parcel*>(machine_.store().payload(dying->where));
            ++departures_[static_cast<std::size_t>(p->number)];
            effects again{listens_};
            machine_.finish_death(*dying, machine::fate::discarded, true, now_, again);
            finish(again);
        }
    }
    void listen(const railmq::notice& n) {
        const auto& e = railmq::event_of(n);
        heard_.emplace_back(n.index(), e.at, e.id);
        if (std::holds_alternative<railmq::notices::acked>(n)) {
            ++departures_[numbers_.at(e.id)];
        } else if (const auto* purged = std::get_if<railmq::notices::purged>(&n)) {
            purged_ += purged->count;
        }
    }

public:
    world(const queue_options& o, bool listens)
        : model_{o}
        , listens_{listens}
        , budget_{std::size_t{1} << 30}
        , machine_{"q", railmq::core::payload_ops_of<parcel>::value, o, budget_, 7, listens} {}
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    ~world() {
        for (auto& h : handles_) {
            drop(h);
        }
    }

    void run(const step& s) {
        now_ += 1us; // no two hand-outs at one moment
        const auto pick = [](int n, std::size_t size) {
            return static_cast<std::size_t>(n) % size;
        };
        run_due();
        switch (s.what) {
        case 0:
        case 1:
        case 2: send(s.a, s.b); break;
        case 3:
        case 4:
        case 5:
            if (!holders_.empty()) receive(pick(s.a, holders_.size()));
            break;
        case 6:
        case 7:
            if (!handles_.empty())
                settle(pick(s.a, handles_.size()), {settlement::kind::ack, {}, {}});
            break;
        case 8:
            if (!handles_.empty())
                settle(pick(s.a, handles_.size()), {settlement::kind::nack, {}, {}});
            break;
        case 9:
            if (!handles_.empty()) {
                const duration wait = s.b % 4 == 0 ? 0ns : own(std::chrono::milliseconds{s.b % 20});
                settle(pick(s.a, handles_.size()), {settlement::kind::nack, wait, {}});
            }
            break;
        case 10:
            if (!handles_.empty()) {
                settle(pick(s.a, handles_.size()), {settlement::kind::reject, {}, "no"});
            }
            break;
        case 11:
            if (!handles_.empty()) {
                settle(pick(s.a, handles_.size()), {settlement::kind::release, {}, {}});
            }
            break;
        case 12:
            if (!handles_.empty()) extend(pick(s.a, handles_.size()), s.b);
            break;
        case 13:
            if (!handles_.empty()) move_out(pick(s.a, handles_.size()), s.b);
            break;
        case 14:
        case 15: now_ += std::chrono::milliseconds{s.a % 12}; break;
        case 16: now_ += std::chrono::milliseconds{s.a % 100}; break;
        case 17: open(s.a, s.b); break;
        case 18:
            if (!holders_.empty()) close(pick(s.a, holders_.size()), s.b % 2 == 0);
            break;
        case 19:
            if (s.a % 4 == 0) purge();
            break;
        case 20: pause(s.a % 2 == 0); break;
        case 21:
            if (!handles_.empty()) {
                const std::size_t i = pick(s.a, handles_.size());
                drop(handles_[i]);
                handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(i));
            }
            break;
        case 22: send_row(1 + pick(s.a, 5)); break;
        case 23:
            if (!holders_.empty()) receive_row(pick(s.a, holders_.size()), 1 + pick(s.b, 5));
            break;
        case 24:
            if (!holders_.empty()) ack_row(pick(s.a, holders_.size()));
            break;
        default:
            if (!holders_.empty()) {
                const std::size_t h = pick(s.a, holders_.size());
                model_.holders[h].prefetch = 1 + pick(s.b, 4);
                holders_[h]->prefetch.store(model_.holders[h].prefetch);
                act([&](auto& fx) { machine_.serve(now_, fx); });
            }
            break;
        }
        run_due();
    }

    /// What was noticed so far: which kind, when, and of which message.
    [[nodiscard]] const auto& heard() const noexcept { return heard_; }

private:
    void run_due() {
        // Whoever waits for what the calls since have told never comes too late.
        known_due_ = std::min(known_due_, machine_.take_new_due(now_));
        RC_ASSERT(known_due_ <= machine_.next_due(now_));
        act([&](auto& fx) { machine_.run_due(now_, fx); });
        known_due_ = machine_.next_due(now_);
        model_.run_due(now_);
        check();
    }
    void send(int a, int b) {
        auto props = std::make_unique<railmq::properties>();
        bool special = false;
        if (a % 3 != 0) {
            props->key = std::string(1, static_cast<char>('a' + a % 4));
            special = true;
        }
        if (b % 11 < 7) {
            props->priority = static_cast<std::uint32_t>(b) % 7;
            special = true;
        }
        if (b % 5 == 0) {
            props->delay = own(std::chrono::milliseconds{b % 30});
            special = true;
        }
        if (b % 7 == 0) {
            props->time_to_live = own(std::chrono::milliseconds{a % 40});
            special = true;
        }
        const auto number = model_.all.size();
        const std::size_t size = 1 + static_cast<std::size_t>(b) % 4;
        const auto expected =
            model_.send(size, props->key, props->priority, props->delay, props->time_to_live, now_);
        if (!special) {
            props = nullptr;
        }
        alignas(parcel) std::byte space[sizeof(parcel)];
        auto* p = ::new (static_cast<void*>(space)) parcel{static_cast<int>(number), size};
        std::uint64_t id = 0;
        departures_.resize(std::max(departures_.size(), number + 1));
        const errc e = act([&](auto& fx) {
            const errc result = machine_.send(p, props, now_, fx, id);
            if (result == errc{}) {
                RC_ASSERT(numbers_.emplace(id, number).second); // never used twice
            }
            return result;
        });
        RC_ASSERT(e == expected);
        if (e != errc{}) {
            std::destroy_at(p);
        }
    }

    /// Messages of which nothing is to be said, stored in one go as far as there is room.
    void send_row(std::size_t n) {
        if (!machine_.has_rows() || listens_) {
            return;
        }
        std::vector<std::size_t> numbers;
        while (numbers.size() != n && model_.has_room(1, 1)) {
            numbers.push_back(model_.all.size());
            RC_ASSERT(model_.send(1, {}, 0, 0ns, {}, now_) == errc{});
        }
        departures_.resize(model_.all.size());
        const std::vector<std::byte> bytes(n);
        std::vector<std::size_t> ends;
        for (std::size_t i = 1; i <= n; ++i) {
            ends.push_back(i);
        }
        errc failed{};
        std::size_t made = 0;
        const auto make = [&](std::size_t i, void* at) {
            auto* p = ::new (at) parcel{static_cast<int>(numbers.at(i)), 1};
            made += p != nullptr ? 1 : 0;
        };
        const std::uint64_t first = machine_.ring().tail();
        const std::size_t stored = act([&](auto& fx) {
            return machine_.store_row({bytes, ends}, make, now_, fx, failed);
        });
        RC_ASSERT(stored == numbers.size());
        RC_ASSERT(made == stored);
        RC_ASSERT(failed == (stored == n ? errc{} : errc::queue_full));
        for (std::size_t i = 0; i != stored; ++i) {
            RC_ASSERT(numbers_.emplace(first + i, numbers[i]).second);
        }
        act([&](auto& fx) { machine_.serve(now_, fx); });
    }

    /// Many for the first time in one go. Their leases end at one moment, so only such as end in
    /// the order in which they were sent.
    void receive_row(std::size_t h, std::size_t max) {
        std::vector<std::size_t> expected;
        while (expected.size() != max) {
            const auto next = model_.next();
            const bool is_line = next && model_.all[*next].tag == 0 &&
                                 model_.all[*next].expires == never &&
                                 model_.options.order == delivery_order::fifo &&
                                 (expected.empty() || *next > expected.back());
            if (!is_line || !model_.take(h, now_)) {
                break;
            }
            expected.push_back(*next);
        }
        if (expected.empty()) {
            return;
        }
        std::vector<lease_type> leases;
        const auto got = act([&](auto& fx) {
            return machine_.take_some(
                *holders_[h], expected.size(), now_, fx, [&](const auto& first, std::uint32_t n) {
                    railmq::core::for_each_in_row(
                        first, n, [&](const auto& l) { leases.push_back(l); });
                });
        });
        RC_ASSERT(got == expected.size());
        RC_ASSERT(leases.size() == got);
        for (std::size_t i = 0; i != leases.size(); ++i) {
            RC_ASSERT(number_at(leases[i]) == expected[i]);
            RC_ASSERT(leases[i].word.tag() == 1U);
            RC_ASSERT(handed_out_.insert(expected[i]).second);
            handles_.push_back({expected[i], h, leases[i]});
        }
    }

    /// All that a consumer has, as `ack_all` does it.
    void ack_row(std::size_t h) {
        std::vector<lease_type> leases;
        std::vector<handle> others;
        for (const handle& x : handles_) {
            const bool is_mine =
                x.holder == h && !x.is_stale && model_.is_current(x.message, x.at.word.tag());
            if (is_mine) {
                leases.push_back(x.at);
                model_.end_lease(model_.all[x.message]);
                ++model_.sums.acked;
                model_.depart(model_.all[x.message]);
            } else {
                others.push_back(x);
            }
        }
        if (leases.empty()) {
            return;
        }
        handles_ = std::move(others);
        act([&](auto& fx) {
            const std::span all{leases};
            for (std::size_t i = 0; i < all.size(); ++i) {
                i += machine_.ack_row(all.subspan(i), fx);
                if (i < all.size()) {
                    RC_ASSERT(machine_.settle(all[i], {}, now_, fx));
                }
            }
            machine_.on_settled(*holders_[h], now_, fx);
        });
    }

    void receive(std::size_t h) {
        const auto expected = model_.take(h, now_);
        lease_type l;
        const bool got = act([&](auto& fx) { return machine_.take(*holders_[h], now_, fx, l); });
        RC_ASSERT(got == expected.has_value());
        if (!got) {
            return;
        }
        const message& m = model_.all[*expected];
        RC_ASSERT(number_at(l) == *expected);
        RC_ASSERT(l.word.tag() == m.tag);
        // I3
        RC_ASSERT((l.word.tag() == 1) == handed_out_.insert(*expected).second);
        const auto* details = machine_.store().details_of({l.in, l.at});
        if (details != nullptr) {
            RC_ASSERT(details->failures.failures < l.word.tag());
        }
        RC_ASSERT(l.word.owner() == holders_[h]->number);
        handles_.push_back({*expected, h, l});
        // Said once more, without the model's own rules.
        for (std::size_t i = 0; i < model_.all.size(); ++i) {
            const message& other = model_.all[i];
            if (i == *expected || other.where == stage::gone || !other.entered ||
                other.position > m.position) {
                continue;
            }
            const bool is_ordered =
                model_.options.order == delivery_order::strict ||
                (model_.options.order == delivery_order::by_key && m.key && other.key == m.key);
            RC_ASSERT(!is_ordered); // an earlier one of its key is not settled
        }
    }

    void settle(std::size_t i, settlement s) {
        handle& h = handles_[i];
        if (h.is_stale) {
            return; // a delivery remembers that it is
        }
        using kind = settlement::kind;
        bool expected = false;
        message& m = model_.all[h.message];
        const std::uint32_t tag = h.at.word.tag();
        if (model_.is_current(h.message, tag)) {
            expected = true;
            model_.end_lease(m);
            switch (s.what) {
            case kind::ack:
                ++model_.sums.acked;
                model_.depart(m);
                break;
            case kind::nack: model_.fail(m, false, s.wait, now_); break;
            case kind::reject: model_.die(m, death_reason::rejected); break;
            default:
                ++model_.sums.released;
                model_.give_back(m, requeue_position::original, now_);
                break;
            }
        } else if (
            (s.what == kind::ack || s.what == kind::reject) &&
            model_.is_late_but_first(h.message, tag, h.holder)) {
            expected = true;
            if (s.what == kind::ack) {
                ++model_.sums.acked;
                model_.depart(m);
            } else {
                model_.die(m, death_reason::rejected);
            }
        } else {
            ++model_.sums.stale;
        }
        const bool done =
            act([&](auto& fx) { return machine_.settle(h.at, std::move(s), now_, fx); });
        RC_ASSERT(done == expected);
        if (done) {
            handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            h.is_stale = true;
        }
    }

    /// What the destruction of a delivery does.
    void drop(handle& h) {
        if (!h.is_stale) {
            if (model_.is_current(h.message, h.at.word.tag())) {
                message& m = model_.all[h.message];
                model_.end_lease(m);
                model_.fail(m, false, std::nullopt, now_);
            } else {
                ++model_.sums.stale;
            }
            if (act([&](auto& fx) {
                    return machine_.settle(h.at, {settlement::kind::nack, {}, {}}, now_, fx);
                })) {
                return;
            }
        }
        act([&](auto& fx) { machine_.drop_stale(h.at, fx); });
    }

    void extend(std::size_t i, int b) {
        handle& h = handles_[i];
        const time_point deadline = now_ + own(std::chrono::milliseconds{b % 30});
        const bool expected = model_.is_current(h.message, h.at.word.tag());
        if (expected) {
            model_.all[h.message].deadline = deadline;
        } else {
            ++model_.sums.stale;
        }
        RC_ASSERT(
            act([&](auto& fx) { return machine_.extend(h.at, deadline, now_, fx); }) == expected);
        const auto told = machine_.deadline_of(h.at);
        RC_ASSERT(told.has_value() == expected);
        if (expected) { // an assertion would read both sides of an `||`
            RC_ASSERT(*told == deadline);
        }
    }

    /// `take`, which moves the value out, or finds that it cannot.
    void move_out(std::size_t i, int b) {
        handle& h = handles_[i];
        const bool expected = model_.is_current(h.message, h.at.word.tag());
        model_.sums.stale += expected ? 0 : 1;
        RC_ASSERT(act([&](auto& fx) { return machine_.begin_take(h.at, now_, fx); }) == expected);
        if (!expected) {
            return;
        }
        message& m = model_.all[h.message];
        if (b % 3 == 0) {
            machine_.cancel_take(h.at, now_); // the move threw
            m.deadline = now_ + model_.options.ack_timeout;
            return;
        }
        RC_ASSERT(number_at(h.at) == h.message);
        model_.end_lease(m);
        ++model_.sums.acked;
        model_.depart(m);
        const lease_type l = h.at;
        handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(i));
        act([&](auto& fx) { machine_.finish_take(l, now_, fx); });
    }

    void open(int a, int b) {
        if (holders_.size() >= 6) {
            return;
        }
        auto h = std::make_unique<railmq::core::lease_holder<plain>>();
        holder m;
        m.prefetch = 1 + static_cast<std::size_t>(a) % 4;
        m.auto_extend = b % 4 == 0 ? 25ms + 50ns : 0ns;
        h->prefetch.store(m.prefetch);
        h->auto_extend = m.auto_extend;
        act([&](auto& fx) { machine_.open(*h, now_, fx); });
        holders_.push_back(std::move(h));
        model_.holders.push_back(m);
    }

    void close(std::size_t h, bool only_cancel) {
        if (only_cancel) {
            act([&](auto& fx) { machine_.cancel(*holders_[h], now_, fx); });
            model_.holders[h].is_open = false;
            return;
        }
        if (model_.holders[h].is_closed) {
            return;
        }
        act([&](auto& fx) { machine_.close(*holders_[h], now_, fx); });
        holders_[h]->is_closed = true;
        model_.close(h, now_);
    }

    void purge() {
        const std::uint64_t expected = model_.purge();
        RC_ASSERT(act([&](auto& fx) { return machine_.purge(now_, fx); }) == expected);
    }
    void pause(bool on) {
        model_.paused = on;
        if (on) {
            machine_.pause();
        } else {
            act([&](auto& fx) { machine_.resume(now_, fx); });
        }
    }

    [[nodiscard]] std::size_t number_at(const lease_type& l) {
        return static_cast<std::size_t>(
            static_cast<const parcel*>(machine_.store().payload({l.in, l.at}))->number);
    }

    void check() {
        const auto s = machine_.stats();
        const totals& t = model_.sums;
        RC_ASSERT(s.ready == model_.count(stage::ready));
        RC_ASSERT(s.delayed == model_.count(stage::delayed));
        RC_ASSERT(s.in_flight == model_.count(stage::held));
        RC_ASSERT(s.accepted == t.accepted);
        RC_ASSERT(s.acked == t.acked);
        RC_ASSERT(s.expired == t.expired);
        RC_ASSERT(s.dropped == t.dropped);
        RC_ASSERT(s.purged == t.purged);
        RC_ASSERT(s.handed_out == t.handed_out);
        RC_ASSERT(s.redelivered == t.redelivered);
        RC_ASSERT(s.failed == t.failed);
        RC_ASSERT(s.deadlines_passed == t.deadlines_passed);
        RC_ASSERT(s.released == t.released);
        RC_ASSERT(s.refused == t.refused);
        RC_ASSERT(s.stale_settlements == t.stale);
        // I1
        RC_ASSERT(
            s.accepted == s.ready + s.delayed + s.in_flight + s.acked + s.dead_lettered +
                              s.redriven + s.expired + s.dropped + s.purged);
        // I2, I4
        for (std::size_t h = 0; h < holders_.size(); ++h) {
            RC_ASSERT(holders_[h]->held() == model_.holders[h].held);
        }
        std::map<std::size_t, int> live;
        for (const handle& h : handles_) {
            live[h.message] += machine_.deadline_of(h.at).has_value() ? 1 : 0;
            RC_ASSERT(number_at(h.at) == h.message); // readable for as long as the handle is there
        }
        for (const auto& [message, leases] : live) {
            RC_ASSERT(leases == (model_.all[message].where == stage::held ? 1 : 0));
        }
        // I5, and everything else about order
        std::vector<std::size_t> shown;
        machine_.browse([&](auto p) {
            shown.push_back(static_cast<std::size_t>(
                static_cast<const parcel*>(machine_.store().payload(p))->number));
            return true;
        });
        if (model_.options.order == delivery_order::fifo) {
            RC_ASSERT(shown == model_.line());
        }
        // I7
        const time_point due = machine_.next_due(now_);
        RC_ASSERT(due > now_);
        RC_ASSERT(due <= model_.next_event().first);
        // I12
        for (std::size_t i = 0; listens_ && i < departures_.size(); ++i) {
            RC_ASSERT(departures_[i] <= 1);
        }
        if (listens_) {
            std::uint64_t told = 0;
            for (const int n : departures_) {
                told += static_cast<std::uint64_t>(n);
            }
            RC_ASSERT(told == t.acked + t.expired + t.dropped);
            RC_ASSERT(purged_ == t.purged);
        }
        // Every payload is somewhere; those that left may wait for an old handle's end.
        const auto alive = static_cast<std::uint64_t>(parcel::alive);
        RC_ASSERT(alive >= s.ready + s.delayed + s.in_flight);
        RC_ASSERT(alive <= s.ready + s.delayed + s.in_flight + handles_.size());
    }

    model model_;
    bool listens_;
    time_point now_{};
    int suffix_ = 300;
    railmq::core::memory_budget<plain> budget_;
    std::vector<std::unique_ptr<railmq::core::lease_holder<plain>>> holders_{};
    machine machine_;
    std::vector<handle> handles_{};
    std::map<std::uint64_t, std::size_t> numbers_{}; ///< By id.
    std::vector<int> departures_{};
    std::uint64_t purged_ = 0;
    time_point known_due_ = railmq::never;
    std::set<std::size_t> handed_out_{};
    std::vector<std::tuple<std::size_t, time_point, std::uint64_t>> heard_{};
};

rc::Gen<step> any_step() {
    return rc::gen::apply(
        [](int what, int a, int b) {
            return step{what, a, b};
        },
        rc::gen::inRange(0, 26),
        rc::gen::inRange(0, 1'000),
        rc::gen::inRange(0, 1'000));
}

queue_options any_options() {
    queue_options o;
    o.ack_timeout = 10ms + 100ns;
    o.requeue = *rc::gen::element(
        requeue_position::original, requeue_position::front, requeue_position::back);
    o.order = *rc::gen::element(
        delivery_order::fifo, delivery_order::fifo, delivery_order::by_key, delivery_order::strict);
    if (o.order == delivery_order::fifo && *rc::gen::inRange(0, 3) == 0) {
        o.priorities = *rc::gen::element(1U, 2U, 4U, 256U);
        o.max_overtakes = o.priorities == 1 ? 0 : *rc::gen::element(0U, 0U, 1U, 3U);
    }
    o.overflow = *rc::gen::element(overflow_policy::wait, overflow_policy::reject);
    const int limit = *rc::gen::inRange(0, 4);
    if (limit == 1 || limit == 3) {
        o.max_length = *rc::gen::inRange<std::size_t>(1, 5);
    }
    if (limit == 2 || limit == 3) {
        o.max_bytes = *rc::gen::inRange<std::size_t>(2, 12);
    }
    if (limit != 0 && *rc::gen::arbitrary<bool>()) {
        o.overflow = overflow_policy::drop_oldest;
    }
    o.retry.max_attempts = *rc::gen::element(0U, 2U, 4U);
    o.retry.backoff = railmq::constant_backoff{
        .delay = *rc::gen::arbitrary<bool>() ? duration{0} : duration{5ms + 250ns}};
    if (*rc::gen::inRange(0, 4) == 0) {
        o.time_to_live = 30ms + 275ns;
    }
    return o;
}

} // namespace

namespace {

void live_and_die() {
    const queue_options o = any_options();
    RC_ASSERT(!railmq::validate(o));
    const bool listens = *rc::gen::arbitrary<bool>();
    const auto steps = *rc::gen::resize(200, rc::gen::container<std::vector<step>>(any_step()));
    RC_LOG() << "order " << static_cast<int>(o.order) << ", requeue " << static_cast<int>(o.requeue)
             << ", overflow " << static_cast<int>(o.overflow) << ", max_length " << o.max_length
             << ", max_bytes " << o.max_bytes << ", priorities " << o.priorities
             << ", max_overtakes " << o.max_overtakes << std::endl;
    const auto live = [&] {
        parcel::alive = 0;
        auto w = std::make_unique<world>(o, listens);
        w->run({17, 3, 1}); // one consumer to begin with
        for (const step& s : steps) {
            w->run(s);
        }
        auto heard = w->heard();
        w.reset();
        RC_ASSERT(parcel::alive == 0);
        return heard;
    };
    const auto heard = live();
    if (listens) { // I11
        RC_ASSERT(live() == heard);
    }
}

} // namespace

TEST_CASE("queue_machine: any life of a queue agrees with the model") {
    const bool holds = rc::check([] {
        for (int lives = 0; lives < 10; ++lives) {
            live_and_die();
        }
    });
    CHECK(holds);
}
