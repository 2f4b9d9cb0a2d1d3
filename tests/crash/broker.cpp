// SPDX-License-Identifier: BSL-1.0
//
// A durable broker that is used in every way by chance on a simulated disk, and ended at any call
// of the disk: by a power cut or by the end of its process. It is opened again, perhaps ended
// again, and emptied. What it was told to keep is there, once, and nothing else is.
//
// Two judges look at each run. `record` knows of each message in which queues it may be, now, after
// the end of the process and after a power cut: the journal is one log, so whatever was confirmed
// confirms all that came before it. The history checker knows what is promised of hand-outs: order,
// leases, counts, waits, limits.
#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>
#include <railmq/testing/history_check.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"
#include "support/watched_disk.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::delivery_order;
using railmq::durability;
using railmq::duration;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::storage::disk_operation;
using railmq::storage::simulated_disk;
using railmq::test::watch;
using railmq::test::watched_directory;
using railmq::testing::crash_kind;
using railmq::testing::event;
using railmq::testing::event_kind;

namespace {

// --- What is known ---

using places = std::uint32_t; ///< A set of queues, one bit each, in which a message may be.
constexpr places gone = 1U << 31U;
constexpr std::size_t work_queues = 3;

/// All queues that there can be: those of the work, their dead-letter queues, and theirs.
[[nodiscard]] std::string name_of(std::size_t place) {
    static const std::array<std::string, 9> names{
        "a", "b", "c", "a.dead", "b.dead", "c.dead", "a.dead.dead", "b.dead.dead", "c.dead.dead"};
    return names[place];
}
[[nodiscard]] std::size_t place_of(std::string_view name) {
    std::size_t p = 0;
    while (name_of(p) != name) {
        ++p;
    }
    return p;
}
/// Ids from there on were given to messages that were sent with a delay.
constexpr std::uint64_t delayed_ids = std::uint64_t{1} << 62U;
[[nodiscard]] constexpr places bit(std::size_t place) {
    return places{1} << place;
}

/// What somebody who uses the broker knows of one message: each set as it would be if nothing more
/// happened, if the process ended, and if the power was cut.
struct known_message {
    places now = gone;
    places written = gone;
    places synced = gone;
    places during = 0;    ///< While time passes.
    std::size_t sent = 0; ///< The event that says so.
};

/// An id that was given, and how far the news has come.
struct known_id {
    std::uint64_t message = 0;
    bool is_doubtful = false; ///< It was given in another life, and may be given again.
    bool is_written = false;
    bool is_synced = false;
    // Hand-outs that will not be forgotten.
    std::uint32_t count = 0;
    std::uint32_t written = 0;
    std::uint32_t synced = 0;
};

/// Everything that outlives the broker: the disk, and what is known. A copy is a world of its own.
struct record {
    explicit record(std::uint64_t seed, railmq::storage::simulated_disk_options o)
        : disk{seed, o} {}

    simulated_disk disk;
    time_point now{};
    std::vector<event> events{};
    std::vector<known_message> messages{known_message{}}; ///< By number; none has the number 0.
    std::map<std::pair<std::size_t, std::uint64_t>, known_id> ids{};
    /// Of each queue, in line and delayed: an id that was given for certain.
    std::map<std::pair<std::size_t, bool>, std::uint64_t> last_id{};
    std::array<std::uint32_t, 9> incarnation{};
    std::uint64_t consumers = 0;
    time_point sync_due = railmq::never;
    std::vector<std::string> wrong{};
    std::uint32_t power_cuts = 0;
    std::uint32_t process_ends = 0;
    bool lists_all = true; ///< Whether all hand-outs are written.
    /// Events that tell of hand-outs which nobody has seen yet: they are not known to be written.
    std::vector<std::size_t> unseen{};
    bool is_closing = false;
    bool ended_closing = false; ///< Once: whether it was in good order is not known then.
    bool had_unseen = false;    ///< Once when it ended.

    void fail(const std::string& what) {
        if (wrong.size() < 20) {
            wrong.push_back(what + " (at event " + std::to_string(events.size()) + ")");
        }
    }

    void be(std::uint64_t message, places where) {
        known_message& m = messages[message];
        m.now = where;
        m.written |= where;
        m.synced |= where;
        m.during |= where;
    }
    /// Whatever happened so far survives the process.
    void all_written() {
        for (known_message& m : messages) {
            m.written = m.now;
            raise(m, railmq::testing::confirm_level::written);
        }
        for (auto& [where, id] : ids) {
            id.is_written = !id.is_doubtful;
            id.written = id.count;
        }
    }
    /// And the loss of power.
    void all_synced() {
        all_written();
        for (known_message& m : messages) {
            m.synced = m.now;
            raise(m, railmq::testing::confirm_level::synced);
        }
        for (auto& [where, id] : ids) {
            id.is_synced = !id.is_doubtful;
            id.synced = id.count;
        }
    }
    void raise(const known_message& m, railmq::testing::confirm_level to) {
        if ((m.now & gone) == 0 && m.sent != 0 &&
            events[m.sent].kind == event_kind::send_confirmed) {
            events[m.sent].level = std::max(events[m.sent].level, to);
        }
    }

    /// What the end of a life leaves of what is known.
    void end(crash_kind how) {
        const bool is_power = how == crash_kind::power;
        ++(is_power ? power_cuts : process_ends);
        for (known_message& m : messages) {
            m.now = is_power ? m.synced : m.written;
            m.written = m.now;
        }
        for (auto& [where, id] : ids) {
            id.is_doubtful = id.is_doubtful || !(is_power ? id.is_synced : id.is_written);
            id.is_written = is_power ? id.is_synced : id.is_written;
            id.count = !lists_all ? 0 : is_power ? id.synced : id.written;
            id.written = id.count;
        }
        sync_due = railmq::never;
        ended_closing = ended_closing || std::exchange(is_closing, false);
        had_unseen = had_unseen || !unseen.empty();
        for (; !unseen.empty(); unseen.pop_back()) {
            events.erase(events.begin() + static_cast<std::ptrdiff_t>(unseen.back()));
        }
        events.push_back({.kind = event_kind::crashed, .at = now, .crash = how});
    }
    /// What was found when it was opened again is on the device.
    void opened() {
        for (known_message& m : messages) {
            m.written = m.synced = m.now;
        }
        for (auto& [where, id] : ids) {
            id.is_written = id.is_synced = !id.is_doubtful;
            id.written = id.synced = id.count;
            if (!id.is_doubtful) {
                auto& last = last_id[{where.first, where.second >= delayed_ids}];
                last = std::max(last, where.second + 1);
            }
        }
        events.push_back({.kind = event_kind::reopened, .at = now});
    }
    /// The queue is new: its numbers begin again.
    void renew(std::size_t place) {
        ++incarnation[place];
        std::erase_if(ids, [&](const auto& one) { return one.first.first == place; });
        last_id.erase({place, false});
        last_id.erase({place, true});
    }
    [[nodiscard]] std::string called(std::size_t place) const {
        return incarnation[place] == 0 ? name_of(place)
                                       : name_of(place) + "#" + std::to_string(incarnation[place]);
    }
    [[nodiscard]] std::uint64_t message_of(std::size_t place, std::uint64_t id) const {
        const auto it = ids.find({place, id});
        return it == ids.end() ? 0 : it->second.message;
    }
    void learn(std::size_t place, std::uint64_t id, std::uint64_t message) {
        known_id& known = ids[{place, id}];
        if (known.message != message) {
            known = {};
            known.message = message;
        }
        known.is_doubtful = false;
    }
};

/// What the seed decides once for a run.
struct setting {
    railmq::broker_options broker{};
    std::array<railmq::queue_options, work_queues> queues{};
    railmq::testing::history_rules rules{};
    std::size_t count = 2; ///< Of queues.
    bool lists_all = true;

    explicit setting(std::uint64_t seed) {
        railmq::random_engine r{seed};
        const auto below = [&](std::uint64_t n) { return railmq::uniform_below(r, n); };
        broker.journal.segment_bytes = std::uint64_t{4096} << below(3);
        broker.journal.headroom_bytes = std::uint64_t{2048} << below(2);
        lists_all = below(4) != 0;
        broker.journal_hand_outs = lists_all ? railmq::hand_out_journaling::always
                                             : railmq::hand_out_journaling::after_crash;
        broker.seed = seed + 1;
        count = 2 + below(2);
        for (std::size_t n = 0; n < work_queues; ++n) {
            railmq::queue_options& o = queues[n];
            o.ack_timeout = std::chrono::seconds{5 + below(30)};
            o.retry.max_attempts = static_cast<std::uint32_t>(below(5));
            o.retry.max_stalls = static_cast<std::uint32_t>(below(3));
            o.retry.max_crashes = static_cast<std::uint32_t>(below(4));
            o.retry.backoff = railmq::constant_backoff{.delay = std::chrono::seconds{below(4)}};
            o.order = std::array{
                delivery_order::fifo, delivery_order::by_key, delivery_order::strict}[below(3)];
            o.requeue = std::array{
                railmq::requeue_position::original,
                railmq::requeue_position::front,
                railmq::requeue_position::back}[below(3)];
            if (below(4) == 0) {
                o.time_to_live = std::chrono::seconds{1 + below(60)};
            }
            if (below(3) == 0) {
                o.max_length = 1 + below(12);
                o.overflow = below(2) == 0 ? railmq::overflow_policy::reject
                                           : railmq::overflow_policy::drop_oldest;
            }
            if (below(4) == 0) {
                o.dead_letter = railmq::discard;
            }
        }
        if (below(2) == 0) {
            broker.memory_limit = 20'000 + below(20'000); // payloads leave
        }
        rules.crash_may_undo = true;
    }
    /// Those that the checker is to judge by.
    [[nodiscard]] railmq::testing::history_rules rules_of(const record& r) const {
        railmq::testing::history_rules all = rules;
        for (std::size_t n = 0; n < work_queues; ++n) {
            const railmq::queue_options& o = queues[n];
            railmq::testing::queue_rules q{
                .max_attempts = o.retry.max_attempts,
                .max_stalls = o.retry.max_stalls,
                .max_crashes = o.retry.max_crashes};
            if (o.requeue == railmq::requeue_position::original) {
                q.order = o.order;
            }
            all.queues[name_of(n)] = q;
            for (std::uint32_t i = 1; i <= r.incarnation[n]; ++i) {
                all.queues[name_of(n) + "#" + std::to_string(i)] = q;
            }
        }
        // Hand-outs are written and not synced, so that a power cut may forget any number of them.
        all.forgotten_hand_outs = r.power_cuts != 0 ? 1'000 : lists_all ? 0 : 1;
        all.unseen_hand_outs = r.had_unseen ? 1 : 0;
        // Numbers that only lost messages had are given again; `record` looks after the others.
        all.ignored = {
            railmq::testing::violation_kind::id_reused,
            railmq::testing::violation_kind::id_not_rising};
        if (r.power_cuts + r.process_ends != 0) {
            // A move that was undone and is made again: the reason is that of the first time.
            all.ignored.push_back(railmq::testing::violation_kind::died_early);
        }
        if (r.power_cuts != 0 || r.process_ends > 1 || !lists_all || r.ended_closing) {
            // The checker knows that an end undoes the last settlement. A power cut undoes as many
            // as there were since the last sync; of these `record` knows.
            using enum railmq::testing::violation_kind;
            for (const auto kind :
                 {lost,
                  invented,
                  second_copy,
                  in_two_queues,
                  came_back,
                  wrong_delivery_count,
                  wrong_failure_count,
                  wrong_redelivered,
                  too_early,
                  died_early,
                  died_late,
                  out_of_order,
                  stale_accepted}) {
                all.ignored.push_back(kind);
            }
        }
        return all;
    }
};

// --- One life of a broker ---

/// A broker on the record's disk, used by chance.
class life {
public:
    using queue_type = railmq::sim_queue<std::string>;

    life(record& r, const setting& s, std::uint64_t seed, watch* w = nullptr)
        : r_{r}
        , set_{s}
        , watch_{w != nullptr ? w : &own_}
        , sim_{seed} {
        sim_.advance(r.now.time_since_epoch());
    }
    life(const life&) = delete;
    life& operator=(const life&) = delete;
    ~life() { abandon(); }

    /// False: it could not be opened, and why is recorded.
    bool open() {
        railmq::broker_options o = set_.broker;
        o.observer = [this](const railmq::notice& n) { hear(n); };
        is_listening_ = true;
        try {
            broker_.emplace(sim_, watched_directory{r_.disk, *watch_}, o);
        } catch (const railmq::system_error& e) {
            failed_ = e.what();
            return false;
        }
        r_.opened();
        const auto names = broker_->names();
        for (std::size_t n = 0; n < 9; ++n) {
            const bool is_there = std::find(names.begin(), names.end(), name_of(n)) != names.end();
            if (!is_there) {
                const bool had_any = std::any_of(
                    r_.messages.begin() + 1, r_.messages.end(), [&](const known_message& m) {
                        return m.now == bit(n);
                    });
                if (had_any) {
                    r_.fail("queue '" + name_of(n) + "' is missing");
                }
                r_.renew(n);
                for (std::uint64_t m = 1; m < r_.messages.size(); ++m) {
                    leave(m, n);
                }
            }
        }
        return true;
    }
    [[nodiscard]] const std::string& why() const noexcept { return failed_; }
    [[nodiscard]] railmq::sim_broker& broker() { return *broker_; }
    [[nodiscard]] std::uint64_t below(std::uint64_t n) {
        return railmq::uniform_below(sim_.random(), n);
    }

    void step() {
        switch (below(20)) {
        case 0:
        case 1:
        case 2:
        case 3: send(); break;
        case 4: send_batch(); break;
        case 5:
        case 6:
        case 7:
        case 8: receive(); break;
        case 9: receive_batch(); break;
        case 10:
        case 11:
        case 12:
        case 13:
        case 14: settle(); break;
        case 15: ack_all(); break;
        case 16: extend(); break;
        case 17: advance(std::chrono::milliseconds(below(8'000))); break;
        case 18: advance(std::chrono::milliseconds(below(100))); break;
        case 19: now_and_then(); break;
        }
    }

    /// Closes it in good order.
    void close() {
        is_listening_ = false;
        r_.is_closing = true;
        (void)broker_->close();
        r_.is_closing = false;
        record_event(event_kind::closed, {});
        r_.all_synced();
        r_.sync_due = railmq::never;
        abandon();
    }
    /// From now on nobody hears of it: its time is over.
    void abandon() {
        is_listening_ = false;
        watch_->before = nullptr;
        held_.clear();
        consumers_.clear();
        broker_.reset();
    }

    /// How everything is, as far as it can be seen. Nobody holds anything any more.
    [[nodiscard]] std::string digest() {
        while (!consumers_.empty()) {
            close_some();
        }
        held_.clear();
        std::ostringstream all;
        for (const std::string& name : broker_->names()) {
            const queue_type q = broker_->queue<std::string>(name);
            const auto s = q.stats();
            check_stats(name, s);
            all << name << ": " << s.ready << " ready, " << s.delayed << " delayed;";
            auto content = q.peek(railmq::unlimited);
            if (q.options().requeue != railmq::requeue_position::original) {
                // Those at the front and at the back stand there again, in another order.
                std::sort(content.begin(), content.end(), [](const auto& x, const auto& y) {
                    return x.id < y.id;
                });
            }
            if (q.options().order == delivery_order::by_key) {
                content.clear(); // what waits behind its key is not shown
            }
            for (const auto& m : content) {
                all << ' ' << m.id << '=' << number_in(m.value) << '/' << m.delivery_count;
            }
            all << '\n';
        }
        return all.str();
    }
    /// Opens every queue, and learns which numbers the messages have that can be seen.
    void look() {
        for (const std::string& name : broker_->names()) {
            const std::size_t place = place_of(name);
            for (const auto& m : broker_->queue<std::string>(name).peek(railmq::unlimited)) {
                const std::uint64_t number = number_in(m.value);
                if (check(number, place, m.id, "peeked")) {
                    r_.learn(place, m.id, number);
                }
            }
        }
    }
    /// Works off all that is there, and sees that it is what has to be there.
    void drain() {
        std::uint64_t depth = 0;
        for (const std::string& name : broker_->names()) {
            const auto s = broker_->queue<std::string>(name).stats();
            depth += s.ready + s.delayed;
        }
        std::uint64_t left = 0;
        std::uint64_t settled = 0;
        const std::uint64_t before = ended_;
        for (int rounds = 0; rounds < 300; ++rounds) {
            left = 0;
            for (const std::string& name : broker_->names()) {
                const std::size_t place = place_of(name);
                consumer c = make_consumer(place);
                while (take(c)) {
                    settled += settle(held_.size() - 1, 9) ? 1 : 0;
                }
                close(c);
                const auto s = broker_->queue<std::string>(name).stats();
                check_stats(name, s);
                left += s.ready + s.delayed;
            }
            if (left == 0) {
                break;
            }
            advance(10s);
        }
        if (left != 0) {
            r_.fail(std::to_string(left) + " messages cannot be drained");
        }
        if (settled + (ended_ - before) != depth) {
            r_.fail(
                "there seemed to be " + std::to_string(depth) + " messages, " +
                std::to_string(settled) + " were received and " + std::to_string(ended_ - before) +
                " dropped");
        }
        for (std::uint64_t m = 1; m < r_.messages.size(); ++m) {
            if ((r_.messages[m].now & gone) == 0) {
                r_.fail("message " + std::to_string(m) + " is missing");
            }
        }
    }

    void advance(duration d) {
        const time_point until = railmq::saturating_add(sim_.now(), d);
        while (r_.sync_due <= until) {
            for (known_message& m : r_.messages) {
                m.during = m.now;
            }
            const time_point due = r_.sync_due;
            r_.sync_due = railmq::never;
            r_.now = std::max(r_.now, due); // whoever comes after an end comes later than that
            sim_.advance(std::max(due - sim_.now(), duration::zero()));
            r_.now = sim_.now();
            for (known_message& m : r_.messages) {
                m.synced = m.during;
                m.written = m.during; // the sync wrote it as well
                if ((m.during & gone) == 0) {
                    r_.raise(m, railmq::testing::confirm_level::synced);
                }
            }
        }
        r_.now = until;
        sim_.advance(until - sim_.now());
        r_.now = sim_.now();
    }
    void sync() {
        error_code ec;
        broker_->sync(ec);
        if (!ec) {
            r_.all_synced();
        }
    }
    void send() { send(below(set_.count)); }
    void send(std::size_t place) {
        const durability level = pick_level();
        send(place, open(place).producer({.durability = level}), level);
    }
    [[nodiscard]] std::uint64_t confirmed() const noexcept { return confirmed_; }
    [[nodiscard]] std::uint64_t failed_sends() const noexcept { return failed_sends_; }

private:
    struct consumer {
        std::uint64_t number = 0;
        std::size_t place = 0;
        railmq::sim_consumer<std::string> handle{};
    };
    struct held {
        event about{};
        std::size_t place = 0;
        railmq::sim_delivery<std::string> handle{};
    };

    void record_event(event_kind kind, event e) {
        e.kind = kind;
        e.at = sim_.now();
        r_.now = std::max(r_.now, sim_.now());
        r_.events.push_back(std::move(e));
    }
    [[nodiscard]] event event_of(std::uint64_t message, std::size_t place, std::uint64_t id) const {
        event e;
        e.queue = r_.called(place);
        e.message = message;
        e.id = id;
        return e;
    }
    [[nodiscard]] static std::uint64_t number_in(const std::string& payload) {
        return std::strtoull(payload.c_str(), nullptr, 10);
    }
    /// A payload that nobody takes for another.
    [[nodiscard]] std::string payload(std::uint64_t number) {
        std::string p = std::to_string(number) + ":";
        p.append(below(8) == 0 ? below(1'500) : below(120), 'x');
        return p;
    }

    [[nodiscard]] queue_type open(std::size_t place) {
        return place < work_queues ? broker_->queue<std::string>(name_of(place), set_.queues[place])
                                   : broker_->queue<std::string>(name_of(place));
    }
    [[nodiscard]] bool exists(std::size_t place) {
        const auto all = broker_->names();
        return std::find(all.begin(), all.end(), name_of(place)) != all.end();
    }
    void check_stats(const std::string& name, const railmq::queue_stats& s) {
        const std::uint64_t accounted = s.ready + s.delayed + s.in_flight + s.acked +
                                        s.dead_lettered + s.redriven + s.expired + s.dropped +
                                        s.purged;
        if (s.accepted != accounted) {
            r_.fail(
                "stats of '" + name + "': " + std::to_string(s.accepted) + " accepted, " +
                std::to_string(accounted) + " accounted for");
        }
    }

    /// Whether a message may be where it was seen.
    bool check(std::uint64_t number, std::size_t place, std::uint64_t id, const std::string& how) {
        if (number == 0 || number >= r_.messages.size()) {
            r_.fail(how + " a message that nobody sent");
            return false;
        }
        known_message& m = r_.messages[number];
        if ((m.now & bit(place)) == 0) {
            std::ostringstream text;
            text << how << " message " << number << " in '" << name_of(place) << "' with id " << id
                 << ", and it can only be in " << std::hex << m.now;
            r_.fail(text.str());
        }
        r_.be(number, bit(place));
        const known_id* const other = known(place, id);
        if (other != nullptr && !other->is_doubtful && other->message != number) {
            r_.fail(
                how + " message " + std::to_string(number) + " with id " + std::to_string(id) +
                " of '" + name_of(place) + "', which is that of message " +
                std::to_string(other->message));
        }
        return true;
    }
    /// It is not in that queue any more.
    void leave(std::uint64_t message, std::size_t place) {
        known_message& m = r_.messages[message];
        if ((m.now & bit(place)) != 0) {
            r_.be(message, (m.now & ~bit(place)) | gone);
        }
    }

    // What the broker does by itself, and what it has done before a call returns.

    void hear(const railmq::notice& n) {
        if (!is_listening_) {
            return;
        }
        const railmq::notices::event& about = railmq::event_of(n);
        const std::size_t place = place_of(about.queue);
        const std::uint64_t message = r_.message_of(place, about.id);
        event e = event_of(message, place, about.id);
        std::visit(
            [&](const auto& kind) {
                using kind_type = std::remove_cvref_t<decltype(kind)>;
                namespace notices = railmq::notices;
                if constexpr (std::is_same_v<kind_type, notices::sent>) {
                    on_sent(place, about.id);
                } else if constexpr (std::is_same_v<kind_type, notices::delivered>) {
                    on_delivered(place, kind, std::move(e));
                } else if constexpr (std::is_same_v<kind_type, notices::failed>) {
                    if (kind.kind == railmq::failure_kind::deadline_passed) {
                        record_event(event_kind::lease_expired, std::move(e));
                    }
                } else if constexpr (std::is_same_v<kind_type, notices::dead_lettered>) {
                    const std::size_t target = place_of(kind.target);
                    e.reason = kind.reason;
                    e.target = r_.called(target);
                    record_event(event_kind::dead_lettered, std::move(e));
                    moves(message, place, target);
                } else if constexpr (std::is_same_v<kind_type, notices::dropped>) {
                    e.reason = kind.reason;
                    record_event(event_kind::dropped, std::move(e));
                    ++ended_;
                    if (message != 0) {
                        r_.be(message, gone);
                    }
                } else if constexpr (std::is_same_v<kind_type, notices::redriven>) {
                    const std::size_t target = place_of(kind.target);
                    e.target = r_.called(target);
                    record_event(event_kind::redriven, std::move(e));
                    moves(message, place, target);
                } else if constexpr (std::is_same_v<kind_type, notices::purged>) {
                    on_purged(place);
                }
            },
            n);
    }
    void moves(std::uint64_t message, std::size_t from, std::size_t to) {
        coming_[to].push_back(message);
        if (message == 0) {
            r_.fail("a message of '" + name_of(from) + "' has moved that nobody knows");
            return;
        }
        if ((r_.messages[message].now & bit(from)) == 0) {
            r_.fail(
                "message " + std::to_string(message) + " has moved from '" + name_of(from) +
                "', where it cannot be");
        }
        r_.be(message, bit(to));
    }
    void on_sent(std::size_t place, std::uint64_t id) {
        std::vector<std::uint64_t>& coming = coming_[place];
        std::uint64_t message = 0;
        if (!coming.empty()) {
            message = coming.front();
            coming.erase(coming.begin());
        } else if (!sending_.empty()) {
            message = sending_.front();
            sending_.erase(sending_.begin());
            r_.be(message, bit(place));
        }
        const auto last = r_.last_id.find({place, id >= delayed_ids});
        if (last != r_.last_id.end() && id < last->second) {
            r_.fail("id " + std::to_string(id) + " of '" + name_of(place) + "' is given again");
        }
        if (message != 0) {
            r_.ids.erase({place, id});
            r_.learn(place, id, message);
        }
    }
    void on_delivered(std::size_t place, const railmq::notices::delivered& n, event e) {
        if (known_id* id = known(place, n.id)) {
            if (n.delivery_count <= id->count) {
                r_.fail(
                    "message " + std::to_string(id->message) + " is handed out as number " +
                    std::to_string(n.delivery_count) + ", and has been so " +
                    std::to_string(id->count) + " times");
            }
            id->count = n.delivery_count;
        }
        e.consumer = receiver_;
        e.delivery_count = n.delivery_count;
        e.deadline = place < work_queues
                         ? railmq::saturating_add(sim_.now(), set_.queues[place].ack_timeout)
                         : railmq::saturating_add(sim_.now(), 30s);
        received_.push_back(r_.events.size());
        r_.unseen.push_back(r_.events.size());
        record_event(event_kind::handed_out, std::move(e));
    }
    [[nodiscard]] known_id* known(std::size_t place, std::uint64_t id) {
        const auto it = r_.ids.find({place, id});
        return it == r_.ids.end() ? nullptr : &it->second;
    }
    /// Everything in the queue that nobody holds is gone, one by one: a crash may undo it, which
    /// the checker knows of messages that were dropped.
    void on_purged(std::size_t place) {
        for (std::uint64_t m = 1; m < r_.messages.size(); ++m) {
            if (!kept_.contains(m) && (r_.messages[m].now & bit(place)) != 0) {
                event e;
                e.queue = r_.called(place);
                e.message = m;
                e.reason = railmq::death_reason::dropped_oldest; // for which none is needed
                if ((r_.messages[m].now & gone) == 0) {
                    record_event(event_kind::dropped, std::move(e));
                    ++ended_;
                }
                leave(m, place);
            }
        }
    }

    // What the test does

    [[nodiscard]] durability pick_level() {
        switch (below(5)) {
        case 0: return durability::accepted;
        case 1: return durability::written;
        case 2: return durability::interval(std::chrono::milliseconds(below(3'000)));
        default: return durability::synced;
        }
    }
    void on_confirmed(const durability& level) {
        switch (level.level()) {
        case railmq::durability_level::accepted: break;
        case railmq::durability_level::written: r_.all_written(); break;
        case railmq::durability_level::interval:
            r_.all_written();
            // One that is due at once comes with the next call, before what that does, and is the
            // last one to come: what it has synced is not counted upon.
            r_.sync_due =
                level.interval() == duration::zero()
                    ? railmq::never
                    : std::min(r_.sync_due, railmq::saturating_add(sim_.now(), level.interval()));
            break;
        case railmq::durability_level::synced: r_.all_synced(); break;
        }
    }
    [[nodiscard]] event new_message(std::size_t place, railmq::properties& p, bool is_plain) {
        const railmq::queue_options& o = set_.queues[place];
        event e;
        e.queue = r_.called(place);
        e.message = r_.messages.size();
        r_.messages.emplace_back();
        std::optional<duration> lifetime = o.time_to_live;
        if (!is_plain) {
            if (below(2) == 0) {
                p.key = e.key = std::string(1, static_cast<char>('a' + below(3)));
            }
            if (below(5) == 0) {
                p.delay = std::chrono::milliseconds(1 + below(10'000));
                e.ready_at = sim_.now() + p.delay;
            }
            if (below(6) == 0) {
                p.time_to_live = std::chrono::milliseconds(below(30'000));
                lifetime = lifetime ? std::min(*lifetime, *p.time_to_live) : *p.time_to_live;
            }
            if (below(6) == 0) {
                p.headers = {{"x", std::string(below(200), 'h')}};
            }
        }
        if (lifetime) {
            e.expires_at = railmq::saturating_add(sim_.now(), *lifetime);
        }
        return e;
    }
    void
    send(std::size_t place, railmq::sim_producer<std::string> producer, const durability& level) {
        railmq::properties p;
        event e = new_message(place, p, below(2) == 0);
        const std::uint64_t number = e.message;
        record_event(event_kind::send_begun, e);
        sending_ = {number};
        r_.be(number, gone | bit(place));
        r_.messages[number].now = gone; // until it is told
        r_.messages[number].written = r_.messages[number].synced = gone | bit(place);
        error_code ec;
        const auto receipt = producer.try_send(payload(number), std::move(p), ec);
        sending_.clear();
        end_send(place, number, e, receipt.id, level, ec);
    }
    void end_send(
        std::size_t place,
        std::uint64_t number,
        event& e,
        std::uint64_t id,
        const durability& level,
        const error_code& ec) {
        if (ec == errc::journal_failed) {
            r_.be(number, r_.messages[number].now | gone | bit(place));
            record_event(event_kind::send_unknown, e);
            ++failed_sends_;
            return;
        }
        if (ec) {
            if (r_.messages[number].now != gone) {
                r_.fail("send " + std::to_string(number) + " failed and was stored");
            }
            r_.messages[number] = {};
            record_event(event_kind::send_failed, e);
            ++failed_sends_;
            return;
        }
        ++confirmed_;
        e.id = id;
        e.level = railmq::testing::confirm_level::accepted;
        r_.messages[number].sent = r_.events.size();
        record_event(event_kind::send_confirmed, e);
        on_confirmed(level);
    }
    void send_batch() {
        const std::size_t place = below(set_.count);
        if (set_.queues[place].max_length != railmq::unlimited) {
            return; // it might wait
        }
        const durability level = pick_level();
        auto producer = open(place).producer({.durability = level});
        std::vector<event> all;
        std::vector<std::string> payloads;
        sending_.clear();
        for (std::uint64_t n = 2 + below(12); n != 0; --n) {
            railmq::properties none;
            event e = new_message(place, none, true);
            r_.be(e.message, gone | bit(place));
            r_.messages[e.message].now = gone;
            record_event(event_kind::send_begun, e);
            sending_.push_back(e.message);
            payloads.push_back(payload(e.message));
            all.push_back(std::move(e));
        }
        error_code ec;
        const std::size_t done = producer.send_batch(payloads, ec);
        sending_.clear();
        for (std::size_t i = 0; i < all.size(); ++i) {
            event& e = all[i];
            const bool is_sent = !ec || (i < done && ec != errc::journal_failed);
            std::uint64_t id = 0;
            for (const auto& [where, known] : r_.ids) {
                if (where.first == place && known.message == e.message) {
                    id = where.second;
                }
            }
            if (is_sent) {
                end_send(
                    place,
                    e.message,
                    e,
                    id,
                    i + 1 == all.size() ? level : durability::accepted,
                    {});
            } else {
                r_.be(e.message, r_.messages[e.message].now | gone | bit(place));
                record_event(event_kind::send_unknown, e);
                ++failed_sends_;
            }
        }
    }

    [[nodiscard]] consumer make_consumer(std::size_t place) {
        return {++r_.consumers, place, open(place).consumer({.prefetch = 6})};
    }
    void close(consumer& c) {
        event e;
        e.consumer = c.number;
        record_event(event_kind::consumer_closed, e);
        c.handle.close();
    }
    consumer* some_consumer() {
        if (consumers_.size() < 4) {
            std::size_t place = below(set_.count);
            if (below(4) == 0 && exists(place + work_queues)) {
                place += work_queues;
            }
            consumers_.push_back(make_consumer(place));
        }
        return &consumers_[below(consumers_.size())];
    }
    void receive() { (void)take(*some_consumer()); }
    bool take(consumer& c) {
        begin_receive(c);
        auto d = c.handle.try_receive();
        end_receive(d.has_value());
        if (!d) {
            return false;
        }
        got(c, 0, std::move(*d));
        return true;
    }
    void receive_batch() {
        consumer& c = *some_consumer();
        begin_receive(c);
        auto all = c.handle.receive_batch(1 + below(6), 0s);
        end_receive(!all.empty());
        for (std::size_t i = 0; i < all.size(); ++i) {
            got(c, i, std::move(all[i]));
        }
    }
    void begin_receive(const consumer& c) {
        receiver_ = c.number;
        received_.clear();
    }
    /// Nobody is handed a message before it is written that he was.
    void end_receive(bool has_any) {
        r_.unseen.clear();
        if (has_any && !may_fail_) {
            r_.all_written();
        }
    }
    void got(const consumer& c, std::size_t nth, railmq::sim_delivery<std::string> d) {
        const std::uint64_t number = number_in(d.value());
        if (nth >= received_.size()) {
            r_.fail("a hand-out without a notice");
            return;
        }
        event& e = r_.events[received_[nth]];
        (void)check(number, c.place, d.id(), "received");
        r_.learn(c.place, d.id(), number);
        if (known_id* id = known(c.place, d.id())) {
            id->count = std::max(id->count, d.delivery_count());
        }
        e.message = number;
        e.key = d.key();
        e.failure_count = d.failure_count();
        e.redelivered = d.redelivered();
        held_.push_back({e, c.place, std::move(d)});
    }

    void settle() {
        if (!held_.empty()) {
            (void)settle(below(held_.size()), below(10));
        }
    }
    bool settle(std::size_t which, std::uint64_t how) {
        std::swap(held_[which], held_.back());
        held h = std::move(held_.back());
        held_.pop_back();
        event e = event_of(h.about.message, h.place, *h.about.id);
        e.queue = h.about.queue;
        e.consumer = h.about.consumer;
        e.delivery_count = h.about.delivery_count;
        record_event(event_kind::settle_begun, e);
        const bool is_current = h.about.queue == r_.called(h.place);
        const known_message before = r_.messages[h.about.message];
        bool done = false;
        switch (how) {
        case 0:
        case 1:
            e.kind = event_kind::nacked;
            e.ready_at = sim_.now();
            if (h.place < work_queues) {
                e.ready_at +=
                    std::get<railmq::constant_backoff>(set_.queues[h.place].retry.backoff.policy())
                        .delay;
            }
            done = h.handle.nack();
            break;
        case 2: {
            const auto wait = std::chrono::milliseconds(below(20'000));
            e.kind = event_kind::nacked;
            e.ready_at = sim_.now() + wait;
            done = h.handle.nack(wait);
            break;
        }
        case 3:
            e.kind = event_kind::rejected;
            done = h.handle.reject("by chance");
            break;
        case 4:
            e.kind = event_kind::released;
            done = h.handle.release();
            break;
        case 5:
            e.kind = event_kind::acked;
            try {
                in_doubt(h);
                (void)h.handle.take();
                done = true;
            } catch (const railmq::system_error&) {
                done = false;
            }
            break;
        default:
            e.kind = event_kind::acked;
            in_doubt(h);
            done = h.handle.ack();
            break;
        }
        if (e.kind == event_kind::acked && is_current) {
            if (done) {
                r_.be(h.about.message, gone);
            } else {
                no_doubt(r_.messages[h.about.message], before);
            }
        }
        record_event(done ? e.kind : event_kind::refused, e);
        return done;
    }
    /// It was not acknowledged; but it may have moved meanwhile, since its deadline had passed.
    static void no_doubt(known_message& m, const known_message& before) {
        if ((m.now & gone) == 0) {
            m.written &= ~gone | before.written;
            m.synced &= ~gone | before.synced;
            m.during &= ~gone | before.during;
        }
    }
    /// It is being acknowledged: whether it was is not known until the call returns.
    void in_doubt(const held& h) {
        if (h.about.queue != r_.called(h.place) ||
            (r_.messages[h.about.message].now & bit(h.place)) == 0) {
            return;
        }
        known_message& m = r_.messages[h.about.message];
        m.written |= gone;
        m.synced |= gone;
        m.during |= gone;
    }
    void ack_all() {
        if (consumers_.empty()) {
            return;
        }
        consumer& c = consumers_[below(consumers_.size())];
        std::vector<railmq::sim_delivery<std::string>> mine;
        std::vector<held> about;
        for (std::size_t i = 0; i < held_.size();) {
            if (held_[i].about.consumer == c.number && held_[i].handle.ack_deadline()) {
                about.push_back({held_[i].about, held_[i].place, {}});
                mine.push_back(std::move(held_[i].handle));
                held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
            } else {
                ++i;
            }
        }
        if (mine.empty()) {
            return;
        }
        const auto settlement = [&](const held& h) {
            event e = event_of(h.about.message, h.place, *h.about.id);
            e.queue = h.about.queue;
            e.consumer = h.about.consumer;
            e.delivery_count = h.about.delivery_count;
            return e;
        };
        for (const held& h : about) {
            in_doubt(h);
            record_event(event_kind::settle_begun, settlement(h));
        }
        error_code ec;
        const std::size_t done = c.handle.ack_all(mine, ec);
        if (ec || done != about.size()) {
            r_.fail("ack_all settled " + std::to_string(done));
        }
        for (const held& h : about) {
            if (h.about.queue == r_.called(h.place)) {
                r_.be(h.about.message, gone);
            }
            record_event(event_kind::acked, settlement(h));
        }
    }
    void extend() {
        if (held_.empty()) {
            return;
        }
        held& h = held_[below(held_.size())];
        const auto time = std::chrono::milliseconds(below(60'000));
        if (h.handle.extend(time)) {
            event e = h.about;
            e.deadline = sim_.now() + time;
            record_event(event_kind::extended, std::move(e));
        }
    }
    void close_some() {
        if (!consumers_.empty()) {
            const auto which = static_cast<std::ptrdiff_t>(below(consumers_.size()));
            close(consumers_[static_cast<std::size_t>(which)]);
            consumers_.erase(consumers_.begin() + which);
        }
    }
    void keep_held(std::size_t place) {
        kept_.clear();
        for (held& h : held_) {
            if (h.place == place && h.handle.ack_deadline()) {
                kept_.insert(h.about.message);
            }
        }
    }
    void now_and_then() {
        const std::size_t place = below(set_.count);
        switch (below(8)) {
        case 0:
            if (exists(place)) {
                const queue_type q = open(place);
                keep_held(place);
                (void)q.purge();
            }
            break;
        case 1:
        case 2: close_some(); break;
        case 3:
            if (exists(place + work_queues)) {
                const queue_type from = open(place + work_queues);
                for (const auto& m : from.peek(railmq::unlimited)) {
                    r_.learn(place + work_queues, m.id, number_in(m.value));
                }
                error_code ec;
                (void)from.redrive(
                    open(place), {}, [](const std::string&) { return true; }, ec);
            }
            break;
        case 4: advance(35s); break;
        case 5:
        case 6: sync(); break;
        case 7:
            if (below(3) == 0 && exists(place)) {
                delete_queue(place);
            }
            break;
        }
    }
    void delete_queue(std::size_t place) {
        for (std::size_t i = 0; i < consumers_.size();) {
            if (consumers_[i].place == place) {
                close(consumers_[i]);
                consumers_.erase(consumers_.begin() + static_cast<std::ptrdiff_t>(i));
            } else {
                ++i;
            }
        }
        std::erase_if(held_, [&](const held& h) { return h.place == place; });
        kept_.clear();
        on_purged(place); // while it is deleted its messages may be gone, and may be there
        error_code ec;
        broker_->delete_queue(name_of(place), ec);
        if (ec) {
            r_.fail("'" + name_of(place) + "' cannot be deleted: " + ec.message());
            return;
        }
        for (std::uint64_t m = 1; m < r_.messages.size(); ++m) {
            if ((r_.messages[m].now & bit(place)) != 0) {
                r_.be(m, r_.messages[m].now & ~bit(place));
            }
        }
        r_.renew(place);
        on_confirmed(set_.broker.durability);
    }

public:
    /// Confirmations are told by sends and `sync` alone from now on: the disk may fail.
    void expect_failures() noexcept { may_fail_ = true; }

private:
    record& r_;
    const setting& set_;
    watch own_{};
    watch* watch_;
    railmq::simulation sim_;
    std::optional<railmq::sim_broker> broker_{};
    std::vector<consumer> consumers_{};
    std::vector<held> held_{};
    std::string failed_{};
    bool is_listening_ = false;
    bool may_fail_ = false;
    std::uint64_t receiver_ = 0;
    std::vector<std::size_t> received_{};
    std::vector<std::uint64_t> sending_{};
    std::map<std::size_t, std::vector<std::uint64_t>> coming_{};
    std::set<std::uint64_t> kept_{};
    std::uint64_t ended_ = 0;
    std::uint64_t confirmed_ = 0;
    std::uint64_t failed_sends_ = 0;
};

// --- Runs ---

struct figures {
    std::uint64_t power_cuts = 0;
    std::uint64_t process_ends = 0;
    std::uint64_t during_recovery = 0;
    std::uint64_t confirmed = 0;
};

/// The history, for whoever looks for the cause of what is wrong.
[[nodiscard]] std::string text_of(const std::vector<event>& events) {
    std::ostringstream all;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const event& e = events[i];
        all << i << ": " << e.at.time_since_epoch().count() / 1'000'000 << " ms "
            << to_string(e.kind) << ' ' << e.queue << ' ' << e.message;
        if (e.id) {
            all << " id " << *e.id;
        }
        all << " by " << e.consumer << " count " << e.delivery_count;
        if (e.failure_count) {
            all << " failures " << *e.failure_count;
        }
        if (!e.target.empty()) {
            all << " to " << e.target;
        }
        if (e.key) {
            all << " key " << *e.key;
        }
        if (e.kind == event_kind::crashed) {
            all << ' ' << to_string(e.crash);
        } else if (e.kind == event_kind::send_confirmed) {
            all << ' ' << to_string(e.level);
        } else if (e.kind == event_kind::dropped || e.kind == event_kind::dead_lettered) {
            all << ' ' << to_string(e.reason);
        }
        all << '\n';
    }
    return all.str();
}

[[nodiscard]] std::string judge(const record& r, const setting& s) {
    std::string text;
    for (const std::string& one : r.wrong) {
        text.append(one).append("\n");
    }
    std::vector<event> known = r.events;
    // What was cut off before anybody saw what it was.
    std::erase_if(known, [](const event& e) {
        return e.message == 0 &&
               (e.kind == event_kind::handed_out || e.kind == event_kind::lease_expired);
    });
    text += to_string(check(known, s.rules_of(r)));
    if (!text.empty() && std::getenv("RAILMQ_BROKER_HISTORY") != nullptr) {
        text.append(text_of(known));
        std::ostringstream masks;
        for (std::size_t m = 1; m < r.messages.size(); ++m) {
            masks << m << ':' << std::hex << r.messages[m].now << ',' << r.messages[m].written
                  << ',' << r.messages[m].synced << std::dec << ' ';
        }
        text.append(masks.str());
    }
    return text;
}

/// The disk as it is, and what is known of it, after an end of that kind.
void end(record& r, crash_kind how, std::uint64_t seed) {
    r.disk.reseed(seed);
    if (how == crash_kind::power) {
        r.disk.crash();
    } else {
        r.disk.end_process();
    }
    r.end(how);
}

[[nodiscard]] crash_kind pick_end(railmq::random_engine& random) {
    return railmq::uniform_below(random, 3) != 0 ? crash_kind::power : crash_kind::process;
}

/// Ends the broker there, opens it again, and sees that all is well. Returns what is not.
[[nodiscard]] std::string
verify(record r, const setting& s, crash_kind how, std::uint64_t seed, figures& f) {
    railmq::random_engine random{seed};
    const auto count = [&](crash_kind k) {
        ++(k == crash_kind::power ? f.power_cuts : f.process_ends);
    };
    count(how);
    end(r, how, random());
    // The next end comes while it is opened, or soon after.
    while (railmq::uniform_below(random, 3) == 0) {
        std::optional<record> then;
        watch w;
        const std::uint64_t at = 1 + railmq::uniform_below(random, 20);
        w.before = [&] {
            if (w.calls == at) {
                then.emplace(r);
            }
        };
        {
            life l{r, s, random(), &w};
            if (!l.open()) {
                return judge(r, s) + "cannot be opened again: " + l.why();
            }
            if (railmq::uniform_below(random, 2) == 0) {
                l.look();
            }
            for (int n = 0; n < 15 && !then; ++n) {
                l.step();
            }
            if (!then) {
                then.emplace(r); // before the handles that are left go, which settle what they hold
            }
        }
        r = *std::exchange(then, std::nullopt);
        const crash_kind next = pick_end(random);
        count(next);
        ++f.during_recovery;
        end(r, next, random());
    }
    std::string before;
    {
        life l{r, s, random()};
        if (!l.open()) {
            return judge(r, s) + "cannot be opened: " + l.why();
        }
        if (railmq::uniform_below(random, 3) == 0) {
            for (int n = 0; n < 10; ++n) { // before all queues are opened
                l.step();
            }
        }
        l.look();
        if (railmq::uniform_below(random, 2) == 0) {
            for (int n = 0; n < 20; ++n) {
                l.step();
            }
            l.look();
            before.clear();
        } else {
            before = l.digest();
        }
        l.close();
    }
    {
        life l{r, s, random()};
        if (!l.open()) {
            return judge(r, s) + "cannot be opened after it was closed: " + l.why();
        }
        l.look();
        if (!before.empty()) {
            const std::string after = l.digest();
            if (before != after) {
                r.fail("closed and opened, it is another:\n" + before + "and then\n" + after);
            }
        }
        l.drain();
        f.confirmed += l.confirmed();
    }
    return judge(r, s);
}

struct run_options {
    int lives = 4;
    int steps = 60;
    int snapshots = 6; ///< Of each life; 0: at every call.
    int ends = 2;      ///< Power cuts at each.
};

/// A run by seed: some lives, each ended in some way; at some moments of each, the world is copied,
/// ended and looked at. Returns what is wrong.
[[nodiscard]] std::string run(std::uint64_t seed, const run_options& o, figures& f) {
    const setting s{seed};
    railmq::random_engine random{seed};
    record r{random(), {.torn_sectors = 0.1}};
    r.lists_all = s.lists_all;
    std::uint64_t expected = 40; // calls of the disk in one life, roughly
    for (int n = 0; n < o.lives; ++n) {
        std::vector<record> moments;
        std::set<std::uint64_t> chosen;
        for (int i = 0; i < o.snapshots; ++i) {
            chosen.insert(1 + railmq::uniform_below(random, expected));
        }
        watch w;
        w.before = [&] {
            if (o.snapshots == 0 || chosen.contains(w.calls)) {
                moments.push_back(r);
            }
        };
        const std::uint64_t closes = railmq::uniform_below(random, 3);
        const std::uint64_t steps =
            railmq::uniform_below(random, static_cast<std::uint64_t>(o.steps)) + 5;
        {
            life l{r, s, random(), &w};
            if (!l.open()) {
                return judge(r, s) + "cannot be opened for life " + std::to_string(n) + ": " +
                       l.why();
            }
            for (std::uint64_t i = 0; i < steps; ++i) {
                l.step();
            }
            if (closes == 0) {
                l.close();
            } else if (closes == 1 || moments.empty()) {
                moments.push_back(r);
            }
            expected = w.calls + 1;
        }
        for (const record& moment : moments) {
            for (int i = 0; i <= o.ends; ++i) {
                const auto how = i < o.ends ? crash_kind::power : crash_kind::process;
                std::string wrong = verify(moment, s, how, random(), f);
                if (!wrong.empty()) {
                    return "life " + std::to_string(n) + ", " + std::string{to_string(how)} +
                           " crash\n" + wrong;
                }
            }
        }
        if (closes != 0) {
            r = closes == 1 ? moments.back()
                            : moments[railmq::uniform_below(random, moments.size())];
            end(r, pick_end(random), random());
        }
    }
    return verify(r, s, crash_kind::power, random(), f);
}

[[nodiscard]] std::uint64_t number_from(const char* variable, std::uint64_t usual) {
    const char* const asked = std::getenv(variable);
    return asked != nullptr ? std::strtoull(asked, nullptr, 10) : usual;
}

} // namespace

// RAILMQ_BROKER_RUNS=5000 in the environment makes it that many; RAILMQ_BROKER_RUN=n runs the nth
// alone.
TEST_CASE("F1, F2: a broker is ended at any moment, and what it confirmed is there") {
    const std::uint64_t only = number_from("RAILMQ_BROKER_RUN", ~std::uint64_t{0});
    const std::uint64_t runs = number_from("RAILMQ_BROKER_RUNS", 60);
    figures f;
    for (std::uint64_t n = 0; n < runs; ++n) {
        if (only != ~std::uint64_t{0}) {
            n = only;
        }
        const std::string wrong = run(railmq::test::seed(n), {}, f);
        INFO("RAILMQ_BROKER_RUN=" << n << "\n" << wrong);
        REQUIRE(wrong.empty());
        if (only != ~std::uint64_t{0}) {
            break;
        }
    }
    WARN(
        f.power_cuts << " power cuts, " << f.process_ends << " ends of the process, "
                     << f.during_recovery << " of them soon after another one");
}
