// SPDX-License-Identifier: BSL-1.0
//
// Logs of a durable broker that are used in every way by chance on a simulated disk, and ended at
// any call of the disk: by a power cut or by the end of the process. They are opened again, perhaps
// ended again, and compared with a naive model.
//
// The journal is one line of records. So what is found must be what there was after some event of
// the model, not before the last one that was confirmed: the ends of all partitions, what each
// record holds, what groups have committed and producers have sent, all at one moment. What
// retention and compaction have removed by themselves is judged by their rules: it may be missing
// if they say so, and must be missing once somebody has seen that it was.
#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"
#include "support/watched_disk.hpp"

#include <algorithm>
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
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::duration;
using railmq::errc;
using railmq::error_code;
using railmq::log_cleanup;
using railmq::time_point;
using railmq::storage::simulated_disk;
using railmq::test::watch;
using railmq::test::watched_directory;

namespace {

constexpr std::size_t log_count = 2;
const std::array<std::string, log_count> log_names{"a", "b"};
const std::array<std::string, 2> group_names{"g", "h"};

struct record_value {
    std::optional<std::string> key{};
    std::optional<std::string> value{}; ///< None: a tombstone.
    time_point at{};
    friend bool operator==(const record_value&, const record_value&) = default;
};

// --- The model ---

enum class what : unsigned char {
    made,
    dropped,
    more_partitions,
    appended,
    deleted,   ///< Up to an offset.
    seen_gone, ///< These are not there, as somebody has seen.
    committed,
    group_dropped,
    together, ///< All of `parts`, or none.
};
struct event {
    what kind{};
    std::size_t log = 0;
    std::uint32_t partition = 0;
    std::uint64_t offset = 0;
    std::vector<record_value> records{};
    std::set<std::uint64_t> gone{};
    std::size_t group = 0;
    std::optional<std::int32_t> sequence{}; ///< Of producer 1.
    std::uint32_t epoch = 0;
    std::vector<event> parts{};
};

struct part_model {
    std::uint64_t start = 0; ///< Deleted up to it.
    std::uint64_t end = 0;
    std::map<std::uint64_t, record_value> records{};
    std::map<std::string, std::uint64_t> newest{}; ///< Of each key.
    std::set<std::uint64_t> gone{};
    /// The producer's last batch: epoch, first number, how many, offset.
    std::optional<std::array<std::uint64_t, 4>> batch{};
};
struct log_model {
    bool is_there = false;
    std::vector<part_model> parts{};
    std::array<std::map<std::uint32_t, std::uint64_t>, 2> committed{};
};
struct model {
    std::array<log_model, log_count> logs{};

    void take(const event& e) {
        log_model& l = logs[e.log];
        switch (e.kind) {
        case what::made:
            l = {};
            l.is_there = true;
            l.parts.resize(e.offset);
            break;
        case what::dropped: l = {}; break;
        case what::more_partitions: l.parts.resize(l.parts.size() + e.offset); break;
        case what::appended: {
            part_model& p = l.parts[e.partition];
            if (e.sequence) {
                p.batch = {
                    {e.epoch, static_cast<std::uint64_t>(*e.sequence), e.records.size(), p.end}};
            }
            for (const record_value& r : e.records) {
                if (r.key) {
                    p.newest[*r.key] = p.end;
                }
                p.records[p.end++] = r;
            }
            break;
        }
        case what::deleted: {
            part_model& p = l.parts[e.partition];
            p.start = std::max(p.start, e.offset);
            p.records.erase(p.records.begin(), p.records.lower_bound(p.start));
            break;
        }
        case what::seen_gone: l.parts[e.partition].gone.insert(e.gone.begin(), e.gone.end()); break;
        case what::committed: l.committed[e.group][e.partition] = e.offset; break;
        case what::group_dropped: l.committed[e.group].clear(); break;
        case what::together:
            for (const event& one : e.parts) {
                take(one);
            }
            break;
        }
    }
};

/// What the seed decides once for a run.
struct setting {
    railmq::broker_options broker{};
    std::array<railmq::log_options, log_count> logs{};

    explicit setting(std::uint64_t seed) {
        railmq::random_engine r{seed};
        const auto below = [&](std::uint64_t n) { return railmq::uniform_below(r, n); };
        broker.journal.segment_bytes = std::uint64_t{4096} << below(3);
        broker.journal.headroom_bytes = std::uint64_t{2048} << below(2);
        broker.seed = seed + 1;
        for (railmq::log_options& o : logs) {
            o.partitions = static_cast<std::uint32_t>(1 + below(2));
            o.segment_records = 2 + below(6);
            o.cleanup = static_cast<log_cleanup>(below(3));
            o.min_dirty_ratio = 0.1;
            o.compaction_keys = 2 + below(20);
            o.tombstone_retention = std::chrono::seconds{below(100)};
            if (o.cleanup != log_cleanup::compact) {
                if (below(3) == 0) {
                    o.retention.max_age = std::chrono::seconds{10 + below(60)};
                }
                if (below(3) == 0) {
                    o.retention.max_records = 5 + below(20);
                }
            }
        }
    }
};

/// Everything that outlives the broker: the disk, and what is known. A copy is a world of its own.
struct history {
    history(std::uint64_t seed, railmq::storage::simulated_disk_options o)
        : disk{seed, o} {}

    simulated_disk disk;
    time_point now{};
    std::vector<event> events{};
    std::size_t written = 0; ///< So many of them survive the process,
    std::size_t synced = 0;  ///< and a loss of power.
    std::uint64_t values = 0;
    bool is_consuming = false; ///< A commit may be under way that is not among the events yet.
    std::set<std::uint64_t> acked{}; ///< Logs, groups, partitions and offsets, in one number.
    std::array<std::uint32_t, log_count> epoch{};

    [[nodiscard]] static std::uint64_t
    ack_of(std::size_t log, std::size_t group, std::uint32_t partition, std::uint64_t offset) {
        return (((log * 2 + group) * 64 + partition) << 32U) + offset;
    }
    [[nodiscard]] model after(std::size_t n) const {
        model m;
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

// --- What is found ---

struct found_log {
    bool is_there = false;
    struct part {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
        std::map<std::uint64_t, record_value> records{};
    };
    std::vector<part> parts{};
    std::array<std::map<std::uint32_t, std::uint64_t>, 2> committed{};
};
using found_logs = std::array<found_log, log_count>;

template <class Log>
[[nodiscard]] found_log look_at(const Log& log) {
    found_log f;
    f.is_there = true;
    for (std::uint32_t p = 0; p < log.partitions(); ++p) {
        found_log::part part;
        auto reader = log.consumer({.partitions = {p}});
        while (auto d = reader.try_receive()) {
            record_value r;
            if (const auto key = d->key()) {
                r.key = std::string{*key};
            }
            if (!d->is_tombstone()) {
                r.value = d->value();
            }
            r.at = d->timestamp();
            part.records.emplace(d->offset(), std::move(r));
        }
        part.start = log.start_offset(p);
        part.end = log.end_offset(p);
        f.parts.push_back(std::move(part));
    }
    const auto groups = log.groups();
    for (std::size_t g = 0; g < 2; ++g) {
        if (std::find(groups.begin(), groups.end(), group_names[g]) != groups.end()) {
            for (std::uint32_t p = 0; p < log.partitions(); ++p) {
                if (const auto c = log.committed(group_names[g], p)) {
                    f.committed[g][p] = *c;
                }
            }
        }
    }
    return f;
}

/// Whether that can be what the model says, at that time; or what is wrong.
[[nodiscard]] std::string judge_part(
    const part_model& m, const found_log::part& f, const railmq::log_options& o, time_point now) {
    std::ostringstream wrong;
    if (f.end != m.end) {
        wrong << "ends at " << f.end << ", not " << m.end;
        return wrong.str();
    }
    if (f.start < m.start) {
        wrong << "begins at " << f.start << ", not " << m.start;
        return wrong.str();
    }
    for (const auto& [offset, r] : f.records) {
        const auto known = m.records.find(offset);
        if (known == m.records.end()) {
            wrong << "has " << offset << ", which was deleted or never was";
            return wrong.str();
        }
        if (!(known->second == r)) {
            wrong << "has another record at " << offset << ": " << r.value.value_or("none")
                  << " for " << known->second.value.value_or("none");
            return wrong.str();
        }
        if (m.gone.contains(offset)) {
            wrong << "has " << offset << " again";
            return wrong.str();
        }
    }
    const bool compacts = o.cleanup != log_cleanup::remove;
    // Those behind it that there were when it was removed: compaction may have taken some since.
    std::uint64_t there_behind = compacts ? m.records.size() : f.records.size();
    for (const auto& [offset, r] : m.records) {
        if (compacts || f.records.contains(offset)) {
            --there_behind;
        }
        if (f.records.contains(offset)) {
            continue;
        }
        const bool is_removed = offset < f.start; // else it is a hole
        const bool is_old = is_removed && o.retention.max_age && r.at + *o.retention.max_age < now;
        const bool is_much = is_removed && there_behind >= o.retention.max_records;
        const bool is_superseded = compacts && r.key && m.newest.at(*r.key) > offset;
        const bool has_expired = compacts && !r.value && r.at + o.tombstone_retention <= now;
        if (!is_old && !is_much && !is_superseded && !has_expired) {
            wrong << "misses " << offset << " (begins at " << f.start << ")";
            return wrong.str();
        }
    }
    return {};
}

[[nodiscard]] std::string
judge(const model& m, const found_logs& f, const history& h, const setting& s) {
    for (std::size_t i = 0; i < log_count; ++i) {
        const log_model& l = m.logs[i];
        const std::string name = "log " + log_names[i] + " ";
        if (l.is_there != f[i].is_there || l.parts.size() != f[i].parts.size()) {
            return name + "is there or not, or has other partitions";
        }
        for (std::size_t p = 0; p < l.parts.size(); ++p) {
            const std::string wrong = judge_part(l.parts[p], f[i].parts[p], s.logs[i], h.now);
            if (!wrong.empty()) {
                return name + "partition " + std::to_string(p) + " " + wrong;
            }
        }
        for (std::size_t g = 0; g < 2; ++g) {
            for (std::uint32_t p = 0; p < l.parts.size(); ++p) {
                const auto known = l.committed[g].find(p);
                const auto found = f[i].committed[g].find(p);
                const bool has_known = known != l.committed[g].end();
                const bool has_found = found != f[i].committed[g].end();
                if (has_known == has_found && (!has_known || known->second == found->second)) {
                    continue;
                }
                bool may_be = h.is_consuming && has_found;
                if (may_be && has_known) {
                    may_be = found->second >= known->second;
                    for (std::uint64_t o = known->second; may_be && o < found->second; ++o) {
                        may_be = !l.parts[p].records.contains(o) ||
                                 !f[i].parts[p].records.contains(o) ||
                                 h.acked.contains(history::ack_of(i, g, p, o));
                    }
                }
                if (!may_be) {
                    return name + "group " + group_names[g] + " has committed " +
                           (has_found ? std::to_string(found->second) : "nothing") +
                           " of partition " + std::to_string(p) + ", not " +
                           (has_known ? std::to_string(known->second) : "nothing");
                }
            }
        }
    }
    return {};
}

// --- A life ---

struct life {
    using consumer_type = railmq::sim_log_consumer<std::string>;
    using log_type = railmq::sim_partitioned_log<std::string>;

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
            railmq::broker_options o = s.broker;
            if (may_fail) {
                // What could not be written is not to be looked for.
                o.observer = [this](const railmq::notice& n) {
                    is_over = is_over || std::holds_alternative<railmq::notices::unwritten>(n);
                };
            }
            broker.emplace(sim, watched_directory{h.disk, *watching}, o);
            return true;
        } catch (const railmq::system_error& e) {
            why = e.what();
            return false;
        }
    }
    /// What the logs are now, all opened; and that it is what some event says it should be.
    [[nodiscard]] std::string recover(std::size_t at_least) {
        found_logs f;
        try {
            for (std::size_t i = 0; i < log_count; ++i) {
                if (const auto log = broker->find_log<std::string>(log_names[i])) {
                    f[i] = look_at(*log);
                }
            }
        } catch (const railmq::system_error& e) {
            return std::string{"a log cannot be opened: "} + e.what();
        }
        // From the last event that may have been kept to the first that must have been.
        std::string all;
        for (std::size_t n = h.events.size() + 1; n-- > at_least;) {
            current = h.after(n);
            const std::string one = judge(current, f, h, s);
            if (one.empty()) {
                h.events.resize(n);
                adopt(f);
                h.is_consuming = false;
                // What is found is on the device, and so is what was settled in opening.
                h.all_synced();
                return {};
            }
            all += "\n  after " + std::to_string(n) + " of " + std::to_string(h.events.size()) +
                   " events: " + one;
        }
        return "it is nothing that it ever was, from " + std::to_string(at_least) + " events on" +
               (h.is_consuming ? ", with a commit under way" : "") + ":" + all +
               "\nthe last events are" + told(at_least);
    }

    static void tell(std::ostream& to, const event& e) {
        static const std::array<const char*, 9> names{
            "made",
            "dropped",
            "more partitions",
            "appended",
            "deleted",
            "seen gone",
            "committed",
            "group dropped",
            "together"};
        to << " " << names[static_cast<std::size_t>(e.kind)] << " " << log_names[e.log] << "/"
           << e.partition << " " << e.offset << " of " << e.records.size() << " "
           << group_names[e.group];
    }
    [[nodiscard]] std::string told(std::size_t from) const {
        std::ostringstream all;
        for (std::size_t n = from < 5 ? 0 : from - 5; n < h.events.size(); ++n) {
            const event& e = h.events[n];
            all << "\n  " << n + 1;
            tell(all, e);
            for (const event& one : e.parts) {
                tell(all << "\n    ", one);
            }
        }
        return all.str();
    }

    /// What was found beyond the model: commits that were under way, what has left by itself.
    void adopt(const found_logs& f) {
        for (std::size_t i = 0; i < log_count; ++i) {
            for (std::uint32_t p = 0; p < f[i].parts.size(); ++p) {
                note_gone(i, p, f[i].parts[p]);
            }
            for (std::size_t g = 0; g < 2; ++g) {
                for (const auto& [p, offset] : f[i].committed[g]) {
                    note_commit(i, g, p, offset);
                }
            }
        }
    }
    void say(event e) {
        current.take(e);
        h.events.push_back(std::move(e));
    }
    void note_gone(std::size_t log, std::uint32_t p, const found_log::part& found) {
        event e{.kind = what::seen_gone, .log = log, .partition = p};
        for (const auto& [offset, r] : current.logs[log].parts[p].records) {
            if (!found.records.contains(offset) &&
                !current.logs[log].parts[p].gone.contains(offset)) {
                e.gone.insert(offset);
            }
        }
        if (!e.gone.empty()) {
            say(std::move(e));
        }
    }
    void note_commit(std::size_t log, std::size_t group, std::uint32_t p, std::uint64_t offset) {
        const auto& known = current.logs[log].committed[group];
        const auto it = known.find(p);
        if (it == known.end() || it->second != offset) {
            say(
                {.kind = what::committed,
                 .log = log,
                 .partition = p,
                 .offset = offset,
                 .group = group});
        }
    }
    void note_commits(std::size_t log) {
        for (std::size_t g = 0; g < 2; ++g) {
            const auto groups = handles[log]->groups();
            if (std::find(groups.begin(), groups.end(), group_names[g]) == groups.end()) {
                continue;
            }
            for (std::uint32_t p = 0; p < handles[log]->partitions(); ++p) {
                if (const auto c = handles[log]->committed(group_names[g], p)) {
                    note_commit(log, g, p, *c);
                }
            }
        }
    }

    /// Does something that is told of first, and returns whether it was done. Where the disk may
    /// fail, what found no space has not happened; of anything else that failed it is not known.
    template <class F>
    bool attempt(event e, F&& f) {
        const model before = current;
        const bool can_be_refused = e.kind == what::appended || e.kind == what::together;
        const std::vector<event> parts = e.kind == what::together ? e.parts : std::vector{e};
        say(std::move(e));
        try {
            f();
            return true;
        } catch (const railmq::system_error& error) {
            if (!may_fail) {
                wrong = wrong.empty() ? error.what() : wrong;
            } else if (error.code() != errc::no_space || !can_be_refused) {
                is_over = true;
                return false;
            }
            for (const event& one : parts) {
                const auto& log = *handles[one.log];
                const log_model& was = before.logs[one.log];
                if (one.kind == what::appended &&
                    log.end_offset(one.partition) != was.parts[one.partition].end) {
                    wrong = "there was no space, and something was stored";
                }
                if (one.kind == what::committed &&
                    log.committed(group_names[one.group], one.partition) !=
                        was.committed[one.group].at(one.partition)) {
                    wrong = "there was no space, and something was committed";
                }
            }
            h.events.pop_back();
            current = before;
            return false;
        }
    }
    void all_synced_if(bool is_done) {
        if (is_done && !is_over) {
            h.all_synced();
        }
    }
    void confirmed(durability d, bool is_done) {
        if (!is_done || is_over) {
            return;
        }
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
    /// The handle, made if there is none.
    [[nodiscard]] bool has(std::size_t i) {
        if (!current.logs[i].is_there) {
            all_synced_if(
                attempt({.kind = what::made, .log = i, .offset = s.logs[i].partitions}, [&] {
                    handles[i] = broker->log<std::string>(log_names[i], s.logs[i]);
                    if (may_fail) {
                        broker->sync(); // making it does not tell
                    }
                }));
            h.epoch[i] = 0;
        } else if (!handles[i]) {
            handles[i] = broker->log<std::string>(log_names[i], s.logs[i]);
        }
        return handles[i].has_value() && wrong.empty() && !is_over;
    }

    void step() {
        try {
            do_something(below(log_count));
        } catch (const railmq::system_error& error) {
            is_over = true;
            wrong = may_fail || !wrong.empty() ? wrong : error.what();
        }
    }
    void do_something(std::size_t i) {
        if (!wrong.empty() || is_over || !has(i)) {
            return;
        }
        const auto& log = *handles[i];
        const auto parts = static_cast<std::uint32_t>(current.logs[i].parts.size());
        const auto p = static_cast<std::uint32_t>(below(parts));
        switch (below(27)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5: append(i, p, 1); break;
        case 6: append(i, p, s.logs[i].cleanup == log_cleanup::remove ? 1 + below(8) : 1); break;
        case 7:
        case 8: append_numbered(i, p); break;
        case 9: {
            const part_model& m = current.logs[i].parts[p];
            const std::uint64_t upto = m.start + below(m.end - m.start + 1);
            if (below(3) == 0) {
                all_synced_if(
                    attempt({.kind = what::deleted, .log = i, .partition = p, .offset = upto}, [&] {
                        log.delete_records(p, upto);
                    }));
            }
            break;
        }
        case 10: log.apply_retention(); break;
        case 11: log.compact(); break;
        case 12:
        case 13:
        case 14:
        case 15: consume(i, below(2)); break;
        case 16: {
            const std::size_t g = below(2);
            if (consumers[i][g]) {
                h.is_consuming = true;
                consumers[i][g]->commit();
                note_commits(i);
                h.is_consuming = false;
                all_synced_if(true);
            }
            break;
        }
        case 17: {
            const std::size_t g = below(2);
            h.is_consuming = true;
            consumers[i][g].reset();
            note_commits(i);
            h.is_consuming = false;
            break;
        }
        case 18: drop_group(i, below(2)); break;
        case 19:
            sim.advance(std::chrono::seconds{below(20)});
            h.now = sim.now();
            break;
        case 20:
            broker->sync();
            all_synced_if(true);
            break;
        case 21:
            if (below(4) == 0 && parts < 4) {
                all_synced_if(attempt({.kind = what::more_partitions, .log = i, .offset = 1}, [&] {
                    log.add_partitions(1);
                }));
            }
            break;
        case 22:
            if (below(6) == 0) {
                close_consumers(i);
                all_synced_if(attempt(
                    {.kind = what::dropped, .log = i}, [&] { broker->delete_log(log_names[i]); }));
                handles[i].reset();
                std::erase_if(h.acked, [&](std::uint64_t one) {
                    return (one >> 38U) / 2 == i; // 32 for the offset, 6 for the partition
                });
            }
            break;
        case 23:
        case 24:
        case 25: transact(i, below(2)); break;
        default: look(i); break;
        }
    }
    void append(std::size_t i, std::uint32_t p, std::uint64_t n) {
        const bool compacts = s.logs[i].cleanup != log_cleanup::remove;
        event e{.kind = what::appended, .log = i, .partition = p};
        for (std::uint64_t k = 0; k < n; ++k) {
            record_value r;
            r.at = sim.now();
            if (n == 1 && (compacts || below(2) == 0)) {
                r.key = "k" + std::to_string(below(6));
            }
            if (!r.key || below(6) != 0) {
                r.value = std::to_string(++h.values) + std::string(below(200), 'x');
            }
            e.records.push_back(std::move(r));
        }
        const durability d = any_durability();
        const auto records = e.records;
        const std::uint64_t expected = current.logs[i].parts[p].end;
        const bool is_done = attempt(std::move(e), [&] {
            auto producer = handles[i]->producer({.durability = d});
            railmq::log_receipt got;
            const railmq::append_options o{.partition = p};
            if (n > 1) {
                std::vector<std::string> values;
                for (const auto& r : records) {
                    values.push_back(*r.value);
                }
                got = producer.send_batch(std::move(values), o);
            } else if (!records[0].value) {
                got = producer.send_tombstone(*records[0].key, o);
            } else if (records[0].key) {
                got = producer.send(*records[0].key, *records[0].value, o);
            } else {
                got = producer.send(*records[0].value, o);
            }
            if (got.offset != expected) {
                wrong =
                    "got offset " + std::to_string(got.offset) + " for " + std::to_string(expected);
            }
        });
        confirmed(d, is_done);
    }
    /// With a producer that numbers; some are sent twice, which stores nothing.
    void append_numbered(std::size_t i, std::uint32_t p) {
        const auto batch = current.logs[i].parts[p].batch;
        if (batch) {
            h.epoch[i] = std::max(h.epoch[i], static_cast<std::uint32_t>((*batch)[0]));
        }
        if (below(10) == 0) {
            ++h.epoch[i];
        }
        const std::uint32_t epoch = h.epoch[i];
        const bool goes_on = batch && (*batch)[0] == epoch;
        const durability d = any_durability();
        auto producer = handles[i]->producer({.producer_id = 1, .epoch = epoch, .durability = d});
        if (goes_on && below(3) == 0) {
            const auto again = static_cast<std::int32_t>((*batch)[1]);
            const auto got = producer.send(
                "k0", "again", railmq::append_options{.partition = p, .sequence = again});
            if (got.duplicate_of != (*batch)[3]) {
                wrong = "what was sent twice is not known to be";
            }
            confirmed(d, true);
            return;
        }
        event e{.kind = what::appended, .log = i, .partition = p};
        e.epoch = epoch;
        e.sequence = goes_on ? static_cast<std::int32_t>((*batch)[1] + (*batch)[2]) : 0;
        record_value r{"k" + std::to_string(below(6)), std::to_string(++h.values), sim.now()};
        e.records.push_back(r);
        const std::int32_t sequence = *e.sequence;
        const bool is_done = attempt(std::move(e), [&] {
            (void)producer.send(
                *r.key, *r.value, railmq::append_options{.partition = p, .sequence = sequence});
        });
        confirmed(d, is_done);
    }
    void consume(std::size_t i, std::size_t g) {
        h.is_consuming = true;
        auto& c = consumers[i][g];
        if (!c) {
            c.emplace(handles[i]->consumer(
                {.group = group_names[g],
                 .retry_backoff = railmq::constant_backoff{.delay = 1s},
                 .session_timeout = 24h,
                 .max_poll_interval = 24h}));
        }
        auto batch = c->receive_batch(1 + below(6), 0s);
        if (batch.empty() && !may_fail) {
            h.all_written(); // whoever has nothing to do writes what there is
        }
        for (auto& d : batch) {
            if (below(5) != 0) {
                h.acked.insert(history::ack_of(i, g, d.partition(), d.offset()));
                d.ack();
            }
        }
        batch.clear();
        note_commits(i);
        h.is_consuming = false;
    }
    /// What a member gets goes into both logs, and is committed with that.
    void transact(std::size_t i, std::size_t g) {
        if (!has(1 - i)) {
            return;
        }
        h.is_consuming = true;
        consumers[i][g].reset();
        auto c = handles[i]->consumer(
            {.group = group_names[g],
             .session_timeout = 24h,
             .max_poll_interval = 24h,
             .auto_commit = false});
        auto batch = c.receive_batch(1 + below(6), 0s);
        if (batch.empty() && !may_fail) {
            h.all_written(); // whoever has nothing to do writes what there is
        }
        note_commits(i); // where it begins is one
        h.is_consuming = false;
        event e{.kind = what::together};
        auto tx = broker->begin();
        std::map<std::uint32_t, std::uint64_t> positions;
        for (auto& d : batch) {
            positions[d.partition()] = d.offset() + 1;
            tx.ack(d);
        }
        for (const auto& [p, offset] : positions) {
            e.parts.push_back(
                {.kind = what::committed, .log = i, .partition = p, .offset = offset, .group = g});
        }
        const durability d = any_durability();
        std::vector<railmq::sim_log_producer<std::string>> producers;
        for (std::size_t to = 0; to < log_count; ++to) {
            producers.push_back(handles[to]->producer({.durability = d}));
        }
        for (std::uint64_t n = 1 + below(5); n != 0; --n) {
            const auto to = static_cast<std::size_t>(below(log_count));
            event one{.kind = what::appended, .log = to};
            one.partition = static_cast<std::uint32_t>(below(current.logs[to].parts.size()));
            record_value r{"k" + std::to_string(below(6)), std::to_string(++h.values), sim.now()};
            const railmq::append_options o{.partition = one.partition};
            if (below(6) == 0) {
                r.value.reset();
                tx.send_tombstone(producers[to], *r.key, o);
            } else {
                tx.send(producers[to], *r.key, *r.value, o);
            }
            one.records.push_back(std::move(r));
            e.parts.push_back(std::move(one));
        }
        if (below(8) == 0) {
            return; // nothing of it happens
        }
        confirmed(d, attempt(std::move(e), [&] { tx.commit(); }));
        tx.abort();
    }
    /// They commit what they have done.
    void close_consumers(std::size_t i) {
        h.is_consuming = true;
        consumers[i] = {};
        if (handles[i]) {
            note_commits(i);
        }
        h.is_consuming = false;
    }
    void drop_group(std::size_t i, std::size_t g) {
        const auto groups = handles[i]->groups();
        if (consumers[i][g] || below(3) != 0 ||
            std::find(groups.begin(), groups.end(), group_names[g]) == groups.end()) {
            return;
        }
        if (below(2) == 0) {
            all_synced_if(attempt({.kind = what::group_dropped, .log = i, .group = g}, [&] {
                handles[i]->delete_group(group_names[g]);
            }));
            for (std::uint32_t p = 0; p < 64; ++p) {
                h.acked.erase(
                    h.acked.lower_bound(history::ack_of(i, g, p, 0)),
                    h.acked.upper_bound(history::ack_of(i, g, p, 0xffff'ffff)));
            }
        } else {
            const std::uint64_t to = handles[i]->start_offset(0);
            event e{.kind = what::committed, .log = i, .offset = to, .group = g};
            all_synced_if(
                attempt(std::move(e), [&] { handles[i]->reset_offset(group_names[g], 0, to); }));
        }
    }
    void look(std::size_t i) {
        const found_log f = look_at(*handles[i]);
        found_logs all;
        for (std::size_t k = 0; k < log_count; ++k) {
            if (k == i) {
                all[k] = f;
            } else if (current.logs[k].is_there && has(k)) {
                all[k] = look_at(*handles[k]);
            }
        }
        const std::string one = judge(current, all, h, s);
        wrong = wrong.empty() ? one : wrong;
        adopt(all);
    }

    history& h;
    const setting& s;
    railmq::random_engine random;
    railmq::simulation sim;
    watch nobody{};
    watch* watching;
    std::optional<railmq::sim_broker> broker{};
    std::array<std::optional<log_type>, log_count> handles{};
    std::array<std::array<std::optional<consumer_type>, 2>, log_count> consumers{};
    model current{};
    bool may_fail = false; ///< The disk.
    bool is_over = false;  ///< It has failed, and what comes now is not known.
    std::string why{};
    std::string wrong{};
};

enum class ending : unsigned char { power, process };

void end(history& h, ending how, std::uint64_t seed) {
    h.disk.reseed(seed);
    how == ending::power ? h.disk.crash() : h.disk.end_process();
    if (how == ending::power) {
        h.written = h.synced;
    }
}
[[nodiscard]] ending pick_end(railmq::random_engine& random) {
    return railmq::uniform_below(random, 3) != 0 ? ending::power : ending::process;
}

struct figures {
    std::uint64_t ends = 0;
    std::uint64_t during_recovery = 0;
    std::uint64_t events = 0;
    std::uint64_t failed = 0; ///< Lives that met a fault.
};

/// Ends the broker there, opens it again, and sees that all is well. Returns what is not.
[[nodiscard]] std::string
verify(history h, const setting& s, ending how, std::uint64_t seed, figures& f) {
    railmq::random_engine random{seed};
    ++f.ends;
    end(h, how, random());
    // The next end comes while it is opened, or soon after.
    while (railmq::uniform_below(random, 3) == 0) {
        std::optional<history> then;
        watch w;
        const std::uint64_t at = 1 + railmq::uniform_below(random, 20);
        {
            life l{h, s, random(), &w};
            w.before = [&] {
                if (w.calls == at) {
                    then.emplace(h);
                }
            };
            const std::size_t at_least = h.written;
            if (!l.open()) {
                return "cannot be opened again: " + l.why;
            }
            if (const std::string wrong = l.recover(at_least); !wrong.empty()) {
                return wrong;
            }
            for (int n = 0; n < 10 && !then; ++n) {
                l.step();
            }
            if (!l.wrong.empty()) {
                return l.wrong;
            }
            if (!then) {
                then.emplace(h);
            }
            w.before = nullptr;
        }
        h = *std::exchange(then, std::nullopt);
        ++f.during_recovery;
        ++f.ends;
        end(h, pick_end(random), random());
    }
    {
        life l{h, s, random()};
        if (!l.open()) {
            return "cannot be opened: " + l.why;
        }
        const std::size_t at_least = h.written;
        if (const std::string wrong = l.recover(at_least); !wrong.empty()) {
            return wrong;
        }
        for (int n = 0; n < 15; ++n) {
            l.step();
        }
        for (std::size_t i = 0; i < log_count; ++i) {
            if (l.current.logs[i].is_there && l.has(i)) {
                l.look(i);
                l.close_consumers(i);
            }
        }
        if (!l.wrong.empty()) {
            return "after it was opened: " + l.wrong;
        }
        l.broker->close();
        h.all_synced();
    }
    {
        // Closed in good order, all of it is there.
        life l{h, s, random()};
        if (!l.open()) {
            return "cannot be opened after it was closed: " + l.why;
        }
        const std::size_t all = h.events.size();
        if (const std::string wrong = l.recover(all); !wrong.empty()) {
            return "closed and opened, " + wrong;
        }
    }
    f.events += h.events.size();
    return {};
}

struct run_options {
    int lives = 3;
    std::uint64_t steps = 120;
    int snapshots = 4; ///< Of each life.
};

/// A run by seed: some lives, each ended in some way; at some moments of each, the world is copied,
/// ended and looked at. Returns what is wrong.
[[nodiscard]] std::string run(std::uint64_t seed, const run_options& o, figures& f) {
    const setting s{seed};
    railmq::random_engine random{seed};
    history h{random(), {.torn_sectors = 0.1}};
    std::uint64_t expected = 60; // calls of the disk in one life, roughly
    for (int n = 0; n < o.lives; ++n) {
        std::vector<history> moments;
        std::set<std::uint64_t> chosen;
        for (int i = 0; i < o.snapshots; ++i) {
            chosen.insert(1 + railmq::uniform_below(random, expected));
        }
        watch w;
        const bool closes = railmq::uniform_below(random, 3) == 0;
        const std::uint64_t steps = railmq::uniform_below(random, o.steps) + 5;
        std::optional<history> last;
        {
            life l{h, s, random(), &w};
            w.before = [&] {
                if (chosen.contains(w.calls)) {
                    moments.push_back(h);
                }
            };
            const std::size_t at_least = h.written;
            if (!l.open()) {
                return "cannot be opened for life " + std::to_string(n) + ": " + l.why;
            }
            if (std::string wrong = l.recover(at_least); !wrong.empty()) {
                return "life " + std::to_string(n) + ": " + wrong;
            }
            for (std::uint64_t i = 0; i < steps; ++i) {
                l.step();
            }
            if (!l.wrong.empty()) {
                return "life " + std::to_string(n) + ": " + l.wrong;
            }
            if (closes) {
                for (std::size_t i = 0; i < log_count; ++i) {
                    l.close_consumers(i);
                }
                l.broker->close();
                h.all_synced();
            }
            last.emplace(h);
            expected = w.calls + 1;
            w.before = nullptr;
        }
        h = *std::exchange(last, std::nullopt);
        for (const history& moment : moments) {
            const std::string wrong = verify(moment, s, pick_end(random), random(), f);
            if (!wrong.empty()) {
                return "life " + std::to_string(n) + ", a moment of it: " + wrong;
            }
        }
        if (!closes) {
            end(h, pick_end(random), random());
        }
    }
    return verify(h, s, ending::power, random(), f);
}

/// A life on a disk that fails, once or for good, or that has too little space. What was confirmed
/// before is there when it is opened again, and what was refused is not.
[[nodiscard]] std::string run_on_bad_disk(std::uint64_t seed, figures& f) {
    using railmq::storage::disk_operation;
    const setting s{seed};
    railmq::random_engine random{seed};
    const auto below = [&](std::uint64_t n) { return railmq::uniform_below(random, n); };
    history h{random(), {.torn_sectors = 0.1}};
    std::optional<history> last;
    {
        life l{h, s, random()};
        l.may_fail = true;
        if (!l.open()) {
            return l.why;
        }
        for (std::uint64_t n = below(60); n != 0; --n) {
            l.step();
        }
        constexpr std::array<disk_operation, 8> calls{
            disk_operation::open,
            disk_operation::write,
            disk_operation::write,
            disk_operation::sync,
            disk_operation::sync,
            disk_operation::allocate,
            disk_operation::rename,
            disk_operation::any};
        const disk_operation what = calls[below(calls.size())];
        const std::uint64_t nth = 1 + below(30);
        switch (below(3)) {
        case 0: h.disk.fail(what, nth, boost::system::errc::io_error); break;
        case 1: h.disk.fail_from(what, nth, boost::system::errc::io_error); break;
        default: h.disk.set_capacity(h.disk.used() + below(20'000)); break;
        }
        for (int n = 0; n < 150; ++n) {
            l.step();
        }
        if (!l.wrong.empty()) {
            return l.wrong;
        }
        f.failed += l.is_over ? 1 : 0;
        last.emplace(h);
    }
    last->disk.heal();
    last->disk.set_capacity(~std::uint64_t{0});
    return verify(*last, s, pick_end(random), random(), f);
}

[[nodiscard]] std::uint64_t number_from(const char* variable, std::uint64_t usual) {
    const char* const asked = std::getenv(variable);
    return asked != nullptr ? std::strtoull(asked, nullptr, 10) : usual;
}

} // namespace

// RAILMQ_LOG_RUNS=5000 in the environment makes it that many; RAILMQ_LOG_RUN=n runs the nth alone.
TEST_CASE("F1, F2: logs are ended at any moment, and what was confirmed is there [P10][S13]") {
    const std::uint64_t only = number_from("RAILMQ_LOG_RUN", ~std::uint64_t{0});
    const std::uint64_t runs = number_from("RAILMQ_LOG_RUNS", 40);
    figures f;
    for (std::uint64_t n = 0; n < runs; ++n) {
        if (only != ~std::uint64_t{0}) {
            n = only;
        }
        const std::string wrong = run(railmq::test::seed(n), {}, f);
        INFO("RAILMQ_LOG_RUN=" << n << "\n" << wrong);
        REQUIRE(wrong.empty());
        if (only != ~std::uint64_t{0}) {
            break;
        }
    }
    WARN(
        f.ends << " ends, " << f.during_recovery << " of them soon after another one; " << f.events
               << " events");
}

TEST_CASE("F5, F6, F7: on a disk that fails or is full, logs keep what they confirmed [T10][T20]") {
    const std::uint64_t only = number_from("RAILMQ_LOG_RUN", ~std::uint64_t{0});
    const std::uint64_t runs = number_from("RAILMQ_LOG_RUNS", 150);
    figures f;
    for (std::uint64_t n = 0; n < runs; ++n) {
        if (only != ~std::uint64_t{0}) {
            n = only;
        }
        const std::string wrong = run_on_bad_disk(railmq::test::seed(n), f);
        INFO("RAILMQ_LOG_RUN=" << n << "\n" << wrong);
        REQUIRE(wrong.empty());
        if (only != ~std::uint64_t{0}) {
            break;
        }
    }
    CHECK((only != ~std::uint64_t{0} || f.failed > runs / 3));
    WARN(f.failed << " of " << runs << " lives met a fault");
}
