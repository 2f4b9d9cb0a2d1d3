// SPDX-License-Identifier: BSL-1.0
//
// A partition, its retention, compaction and removal against a vector of records, whatever the
// steps are. After every step: the log has exactly the records that the model has, or, while a
// pass of compaction is under way, those and some that the pass may still remove; no offset
// changes or comes again; the newest record of each key is there; what a reader pinned still reads
// the same; every payload that was made and is not in the log or pinned has ended; and every
// record that left has a reason.
#include <railmq/core/compaction.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <rapidcheck.h>
#include <rapidcheck/state.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::duration;
using railmq::errc;
using railmq::log_cleanup;
using railmq::log_options;
using railmq::time_point;
using railmq::unlimited;
using railmq::core::log_entry;
using railmq::core::log_input;
using railmq::core::log_removal;
using railmq::core::producer_batch;
using railmq::core::read_status;
using sync_type = railmq::core::single_threaded;
using partition_type = railmq::core::partition<sync_type>;
using cursor_type = railmq::core::log_cursor<sync_type>;

namespace {

/// A payload that is counted, owns memory, and can only be moved.
class payload {
public:
    static inline std::int64_t alive = 0;

    explicit payload(std::uint64_t n)
        : text_{std::make_unique<std::string>("value number " + std::to_string(n))} {
        ++alive;
    }
    payload(payload&& other) noexcept
        : text_{std::move(other.text_)} {
        ++alive;
    }
    payload& operator=(payload&&) = delete;
    ~payload() { --alive; }

    [[nodiscard]] const std::string& text() const { return *text_; }

private:
    std::unique_ptr<std::string> text_;
};

std::string text_of(std::uint64_t offset) {
    return "value number " + std::to_string(offset);
}

struct expected {
    std::uint64_t offset = 0;
    std::string key{};
    bool tombstone = false;
    time_point timestamp{};
    time_point appended{};

    [[nodiscard]] std::size_t bytes() const {
        return railmq::log_record_overhead + key.size() + (tombstone ? 0 : sizeof(payload));
    }
};

struct pinned {
    railmq::core::log_pin<sync_type> pin;
    std::vector<std::pair<log_entry, std::string>> entries; ///< With the key as it was.
};

/// The log, and what must be in it: everything that no rule has removed.
struct world {
    explicit world(const log_options& o)
        : options{o}
        , log{railmq::core::payload_ops_of<payload>::value, budget, o}
        , cleaner{log} {}

    [[nodiscard]] bool compacts() const { return options.cleanup != log_cleanup::remove; }

    /// Appends records with these keys; an odd `kind` is a tombstone.
    void
    append(const std::vector<std::pair<int, int>>& what, std::optional<producer_batch> producer) {
        std::vector<log_input> in(what.size());
        std::vector<std::string> keys(what.size());
        struct raw {
            alignas(payload) std::array<std::byte, sizeof(payload)> place;
        };
        std::vector<raw> space(what.size());
        for (std::size_t i = 0; i < what.size(); ++i) {
            const auto [key, kind] = what[i];
            keys[i] = "k" + std::to_string(key);
            in[i].key = keys[i];
            in[i].timestamp = now + kind * 10min;
            expected r{end + i, keys[i], kind % 2 != 0, *in[i].timestamp, now};
            if (!r.tombstone) {
                in[i].payload = ::new (static_cast<void*>(space[i].place.data())) payload{r.offset};
            }
            records.push_back(std::move(r));
        }
        const auto result = log.append(in, now, {.producer = producer});
        RC_ASSERT(result.failed == errc{});
        RC_ASSERT(!result.duplicate);
        RC_ASSERT(result.first_offset == end);
        end += what.size();
        for (const log_input& i : in) {
            RC_ASSERT((i.payload == nullptr));
        }
    }
    void drop_below(std::uint64_t offset) {
        start = std::max(start, offset);
        std::erase_if(records, [this](const expected& r) { return r.offset < start; });
    }
    void run_pass(std::uint64_t at_most) {
        for (;;) {
            const auto r = cleaner.step(at_most, now);
            RC_ASSERT(r.failed == errc{});
            RC_ASSERT(r.examined <= at_most);
            if (r.finished) {
                return;
            }
        }
    }
    std::vector<expected> read_all() {
        std::vector<expected> all;
        cursor_type c;
        RC_ASSERT(log.seek(c, log.start_offset()) == errc{});
        for (;;) {
            const auto status = c.read(7, unlimited, [&](const log_entry& e) {
                all.push_back({e.offset, std::string{e.key}, e.is_tombstone, e.timestamp, {}});
                if (!e.is_tombstone) {
                    RC_ASSERT(static_cast<const payload*>(e.payload)->text() == text_of(e.offset));
                }
            });
            if (status == read_status::at_end) {
                return all;
            }
            RC_ASSERT(status != read_status::out_of_range);
            if (status == read_status::elsewhere) {
                RC_ASSERT(log.enter(c) == errc{});
            }
        }
    }

    log_options options;
    railmq::core::memory_budget<sync_type> budget{unlimited};
    partition_type log;
    railmq::core::compaction<sync_type> cleaner;
    std::vector<pinned> readers{};
    cursor_type follower{}; ///< Reads on and on.
    bool follows = false;   ///< It has a place.

    time_point now{};
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::vector<expected> records{};
    std::int32_t sequence = 0; ///< Of the one idempotent producer's next batch.
    std::optional<std::pair<producer_batch, std::uint64_t>> last_batch{}; ///< And its offset.
};

/// After every step. What compaction has removed is compared with what it may remove, and then is
/// gone from the model too.
void check(world& w) {
    const partition_type& log = w.log;
    RC_ASSERT(log.start_offset() == w.start);
    RC_ASSERT(log.end_offset() == w.end);
    const std::vector<expected> all = w.read_all();

    // Every record that is there was there, unchanged; what is missing was superseded, or was the
    // tombstone that ended its key and was kept for long enough.
    std::map<std::string, std::uint64_t> last;
    for (const expected& r : w.records) {
        last[r.key] = r.offset;
    }
    std::map<std::string, std::uint64_t> last_there;
    std::vector<expected> left;
    std::uint64_t bytes = 0;
    std::int64_t values = 0;
    for (const expected& was : w.records) {
        if (left.size() < all.size() && all[left.size()].offset == was.offset) {
            const expected& is = all[left.size()];
            RC_ASSERT(is.key == was.key);
            RC_ASSERT(is.tombstone == was.tombstone);
            RC_ASSERT(is.timestamp == was.timestamp);
            bytes += was.bytes();
            values += was.tombstone ? 0 : 1;
            last_there[was.key] = was.offset;
            left.push_back(was);
            continue;
        }
        RC_ASSERT(w.compacts());
        if (last.at(was.key) == was.offset) {
            RC_ASSERT(was.tombstone);
            RC_ASSERT(w.now >= was.appended + w.options.tombstone_retention);
        }
    }
    RC_ASSERT(left.size() == all.size());
    // Whoever reads through ends with the last of each key, or without any.
    for (const auto& [key, offset] : last_there) {
        RC_ASSERT(last.at(key) == offset);
    }
    w.records = std::move(left);

    // The books.
    RC_ASSERT(log.records() == all.size());
    RC_ASSERT(log.bytes() == bytes);
    RC_ASSERT(payload::alive >= values);
    std::uint64_t removed = 0;
    for (std::size_t i = 0; i < railmq::core::log_removal_count; ++i) {
        removed += log.removed(static_cast<log_removal>(i)).records;
    }
    RC_ASSERT(log.appended().records == removed + log.records());

    // Segments.
    std::uint64_t end = 0;
    for (std::size_t k = 0; k < log.segments(); ++k) {
        const auto& s = log.segment(k);
        RC_ASSERT(s.end() >= end);
        RC_ASSERT((s.written() != 0U || k + 1 == log.segments()));
        RC_ASSERT(s.live() <= w.options.segment_records);
        end = s.end();
    }
    if (w.readers.empty() && !w.follows &&
        w.cleaner.phase() == railmq::core::compaction_phase::idle) {
        RC_ASSERT(w.budget.used() == log.memory_bytes());
    }

    // Who pinned something reads it as it was.
    for (const pinned& p : w.readers) {
        for (const auto& [e, key] : p.entries) {
            RC_ASSERT(e.key == key);
            if (!e.is_tombstone) {
                RC_ASSERT(static_cast<const payload*>(e.payload)->text() == text_of(e.offset));
            }
        }
    }
}

/// The model is in the world, since what compaction may do depends on who reads.
struct nothing {};
using command = rc::state::Command<nothing, world>;

struct step : command {
    void apply(nothing&) const override {}
    void run(const nothing&, world& w) const override {
        act(w);
        check(w);
    }
    virtual void act(world& w) const = 0;
};

struct append_some : step {
    std::vector<std::pair<int, int>> what = *rc::gen::container<std::vector<std::pair<int, int>>>(
        static_cast<std::size_t>(*rc::gen::inRange(1, 5)),
        rc::gen::pair(rc::gen::inRange(0, 8), rc::gen::inRange(-4, 4)));

    void act(world& w) const override { w.append(what, std::nullopt); }
    void show(std::ostream& os) const override { os << "append " << rc::toString(what); }
};

struct append_many : step {
    int count = *rc::gen::inRange(1, 120);
    int keys = *rc::gen::element(1, 3, 50);

    void act(world& w) const override {
        for (int i = 0; i < count; ++i) {
            w.append({{i % keys, i % 11 == 0 ? 1 : 0}}, std::nullopt);
        }
    }
    void show(std::ostream& os) const override {
        os << "append " << count << " of " << keys << " keys";
    }
};

/// Now and then what was sent already, from another epoch, or with a gap.
struct append_numbered : step {
    int kind = *rc::gen::inRange(0, 5);

    void act(world& w) const override {
        const producer_batch next{7, 1, w.sequence};
        int n = 0;
        log_input none;
        none.key = "unused";
        const auto refused = [&](const producer_batch& b) {
            return w.log.append(std::move(none), w.now, {.producer = b}).failed;
        };
        if (kind == 3 && w.last_batch) {
            RC_ASSERT(refused({7, 0, 0}) == errc::fenced);
        } else if (kind == 4 && w.last_batch) {
            RC_ASSERT(refused({7, 1, w.sequence + 1}) == errc::sequence_out_of_order);
        } else if (kind == 2 && w.last_batch) {
            std::vector<log_input> again(w.last_batch->first.records);
            for (log_input& in : again) in.key = "unused";
            const auto r = w.log.append(again, w.now, {.producer = w.last_batch->first});
            RC_ASSERT(r.failed == errc{});
            RC_ASSERT(r.duplicate);
            RC_ASSERT(r.first_offset == w.last_batch->second);
        } else {
            n = kind + 1;
            std::vector<std::pair<int, int>> what(static_cast<std::size_t>(n), {kind, 0});
            w.last_batch = {next, w.end};
            w.last_batch->first.records = static_cast<std::uint32_t>(n);
            w.append(what, next);
        }
        w.sequence += n;
    }
    void show(std::ostream& os) const override { os << "append with numbers, kind " << kind; }
};

struct advance : step {
    int minutes = *rc::gen::inRange(0, 90);

    void act(world& w) const override { w.now += std::chrono::minutes{minutes}; }
    void show(std::ostream& os) const override { os << "advance " << minutes << " minutes"; }
};

struct retain : step {
    void act(world& w) const override {
        const auto& keep = w.options.retention;
        const auto by = [&](log_removal why) { return w.log.removed(why).records; };
        const auto bytes = by(log_removal::by_bytes);
        const auto records = by(log_removal::by_records);
        const auto age = by(log_removal::by_age);
        const auto before = w.records;
        const auto r = w.log.apply_retention(w.now);
        w.drop_below(w.log.start_offset());
        RC_ASSERT(r.amount.records == before.size() - w.records.size());
        // One limit alone never leaves less than itself; another one may.
        const auto alone = [&](std::uint64_t removed) {
            return removed != 0 && removed == r.amount.records;
        };
        if (alone(by(log_removal::by_bytes) - bytes)) {
            RC_ASSERT(w.log.bytes() >= keep.max_bytes);
        }
        if (alone(by(log_removal::by_records) - records)) {
            RC_ASSERT(w.log.records() >= keep.max_records);
        }
        const auto too_old = [&](const expected& x) {
            return w.now - std::min(x.timestamp, x.appended) > *keep.max_age;
        };
        if (alone(by(log_removal::by_age) - age)) {
            for (std::size_t i = 0; i < r.amount.records; ++i) {
                RC_ASSERT(too_old(before[i]));
            }
        }
        if (w.options.cleanup != log_cleanup::compact) {
            const auto& front = w.log.segment(0);
            if (front.live() != 0 && keep.max_age) {
                bool must_stay = false;
                for (const expected& x : w.records) {
                    // From the future: the time of a later append may count, see `counts_from`.
                    must_stay = must_stay || (x.offset < front.end() &&
                                              (!too_old(x) || x.timestamp > x.appended));
                }
                RC_ASSERT(must_stay);
            }
            if (w.log.segments() > 1) {
                RC_ASSERT(
                    (w.log.bytes() < keep.max_bytes ||
                     w.log.bytes() - keep.max_bytes < front.live_bytes()));
                RC_ASSERT(
                    (w.log.records() < keep.max_records ||
                     w.log.records() - keep.max_records < front.live()));
            }
        }
        RC_ASSERT(w.log.apply_retention(w.now).segments == 0U);
    }
    void show(std::ostream& os) const override { os << "apply retention"; }
};

struct remove_some : step {
    std::uint64_t share = *rc::gen::inRange<std::uint64_t>(0, 12); // tenths

    void act(world& w) const override {
        const std::uint64_t up_to = w.start + (w.end - w.start) * share / 10 + share / 11;
        const auto before = w.records.size();
        const auto r = w.log.delete_records(up_to);
        if (up_to > w.end) {
            RC_ASSERT(r.failed == errc::offset_out_of_range);
            return;
        }
        w.drop_below(up_to);
        RC_ASSERT(r.amount.records == before - w.records.size());
    }
    void show(std::ostream& os) const override { os << "delete " << share << " tenths"; }
};

struct roll_or_skip : step {
    std::uint64_t by = *rc::gen::inRange<std::uint64_t>(0, 4);

    void act(world& w) const override {
        if (by == 0) {
            w.log.roll();
            return;
        }
        RC_ASSERT(w.log.skip_to(w.end + by) == errc{});
        w.end += by;
        if (w.records.empty()) {
            w.start = w.end;
        }
    }
    void show(std::ostream& os) const override { os << "roll, or skip " << by; }
};

struct compact_some : step {
    std::uint64_t budget = *rc::gen::inRange<std::uint64_t>(1, 60);

    void act(world& w) const override {
        const auto r = w.cleaner.step(budget, w.now);
        RC_ASSERT(r.failed == errc{});
        RC_ASSERT(r.examined <= budget);
    }
    void show(std::ostream& os) const override { os << "compact, " << budget << " records"; }
};

/// To the end of the pass, then a whole one: now one record of each key is left of what it covers.
struct compact_all : step {
    std::uint64_t budget = *rc::gen::inRange<std::uint64_t>(1, 60);

    void act(world& w) const override {
        w.run_pass(budget);
        check(w);
        const std::uint64_t before = w.cleaner.checkpoint();
        w.run_pass(budget);
        RC_ASSERT(w.cleaner.checkpoint() >= std::min(before, w.start));
        std::map<std::string, std::uint64_t> seen;
        for (const expected& r : w.read_all()) {
            if (w.compacts() && r.offset < w.cleaner.checkpoint() &&
                w.options.compaction_keys > 100) {
                RC_ASSERT(seen.emplace(r.key, r.offset).second);
            }
        }
        if (w.options.compaction_keys > 100 && w.options.min_compaction_lag == 0s && w.compacts() &&
            w.log.segments() > 1) {
            const auto& active = w.log.segment(w.log.segments() - 1);
            RC_ASSERT(w.cleaner.checkpoint() <= active.base());
            RC_ASSERT(
                (w.cleaner.checkpoint() >= w.log.segment(w.log.segments() - 2).end() ||
                 w.cleaner.checkpoint() == active.base()));
        }
    }
    void show(std::ostream& os) const override { os << "compact all, " << budget << " a step"; }
};

struct pin_some : step {
    std::uint64_t share = *rc::gen::inRange<std::uint64_t>(0, 10);
    std::size_t count = *rc::gen::inRange<std::size_t>(1, 6);

    void act(world& w) const override {
        if (w.readers.size() > 3) {
            w.readers.erase(w.readers.begin());
        }
        cursor_type c;
        RC_ASSERT(w.log.seek(c, w.start + (w.end - w.start) * share / 10) == errc{});
        pinned p;
        (void)c.read(count, unlimited, [&](const log_entry& e) {
            p.entries.emplace_back(e, std::string{e.key});
        });
        p.pin = c.pin();
        w.readers.push_back(std::move(p));
    }
    void show(std::ostream& os) const override {
        os << "pin " << count << " records at " << share << " tenths";
    }
};

struct unpin_some : step {
    std::size_t which = *rc::gen::inRange<std::size_t>(0, 4);

    void act(world& w) const override {
        if (which < w.readers.size()) {
            w.readers.erase(w.readers.begin() + static_cast<std::ptrdiff_t>(which));
        } else {
            w.readers.clear();
            w.follower.unpin();
            w.follows = false;
        }
    }
    void show(std::ostream& os) const override { os << "unpin " << which; }
};

/// A reader that goes on where it was sees all that is there from there on.
struct follow : step {
    std::size_t limit = *rc::gen::element<std::size_t>(1, 5, 1'000'000);

    void act(world& w) const override {
        std::uint64_t position = w.follower.position();
        std::vector<std::uint64_t> seen;
        for (;;) {
            const auto status = w.follower.read(
                limit, unlimited, [&](const log_entry& e) { seen.push_back(e.offset); });
            w.follows = true;
            if (status == read_status::out_of_range ||
                (status == read_status::elsewhere && position < w.start)) {
                RC_ASSERT(position < w.start);
                RC_ASSERT(w.log.enter(w.follower) == errc::offset_out_of_range);
                position = w.start;
                RC_ASSERT(w.log.seek(w.follower, position) == errc{});
            } else if (status == read_status::elsewhere) {
                RC_ASSERT(w.log.enter(w.follower) == errc{});
            } else if (status == read_status::at_end || limit < 1'000'000) {
                break;
            }
        }
        std::vector<std::uint64_t> there;
        for (const expected& r : w.records) {
            if (r.offset >= position) {
                there.push_back(r.offset);
            }
        }
        RC_ASSERT(seen.empty() == there.empty());
        if (limit < 1'000'000) { // one read: of one segment
            RC_ASSERT(seen.size() <= limit);
            there.resize(std::min(there.size(), seen.size()));
        }
        RC_ASSERT(seen == there);
    }
    void show(std::ostream& os) const override { os << "follow, " << limit; }
};

struct seek_times : step {
    int minutes = *rc::gen::inRange(-60, 60);

    void act(world& w) const override {
        const time_point t = w.now + std::chrono::minutes{minutes};
        std::optional<partition_type::dated> since;
        std::optional<partition_type::dated> newest;
        for (const expected& r : w.records) {
            if (!since && r.timestamp >= t) since = {r.offset, r.timestamp};
            if (!newest || r.timestamp > newest->timestamp) newest = {r.offset, r.timestamp};
        }
        RC_ASSERT((w.log.offset_for_time(t) == since));
        RC_ASSERT((w.log.newest() == newest));
        RC_ASSERT(w.log.offset_for_time(w.now + 1'000h).has_value() == false);
    }
    void show(std::ostream& os) const override { os << "seek to now + " << minutes << " minutes"; }
};

log_options any_options() {
    log_options o;
    o.cleanup = *rc::gen::element(
        log_cleanup::remove,
        log_cleanup::compact,
        log_cleanup::compact,
        log_cleanup::compact_and_remove,
        log_cleanup::compact_and_remove);
    if (o.cleanup != log_cleanup::compact) {
        switch (*rc::gen::inRange(0, 5)) {
        case 0: o.retention.max_age = 3h; break;
        case 1: o.retention.max_bytes = 2'000; break;
        case 2: o.retention.max_records = 40; break;
        case 3: o.retention = {.max_age = 5h, .max_bytes = 6'000, .max_records = 90}; break;
        default: break;
        }
    }
    o.segment_records = *rc::gen::element<std::size_t>(5, 12, 40, 500);
    o.segment_bytes = *rc::gen::element<std::size_t>(400, 3'000, 1'000'000);
    o.segment_age = *rc::gen::element<duration>(1h, 100h);
    o.tombstone_retention = *rc::gen::element<duration>(0s, 1h, 24h);
    o.min_compaction_lag = *rc::gen::element<duration>(0s, 0s, 1h);
    o.compaction_keys = *rc::gen::element<std::size_t>(1, 3, 1'000'000, 1'000'000);
    o.producer_expiry = 1'000'000h;
    return o;
}

} // namespace

TEST_CASE("partition: does what a vector of records does [I8]") {
    const std::int64_t alive = payload::alive;
    const bool holds = rc::check([&] {
        const log_options options = any_options();
        {
            world w{options};
            rc::state::check(
                nothing{},
                w,
                rc::state::gen::execOneOfWithArgs<
                    append_some,
                    append_some,
                    append_many,
                    append_many,
                    append_numbered,
                    advance,
                    advance,
                    retain,
                    remove_some,
                    roll_or_skip,
                    roll_or_skip,
                    compact_some,
                    compact_some,
                    compact_some,
                    compact_all,
                    pin_some,
                    unpin_some,
                    follow,
                    follow,
                    seek_times>());
            w.readers.clear();
            w.follower.unpin();
            w.log.roll();
            w.run_pass(1'000);
            RC_ASSERT(w.budget.used() == w.log.memory_bytes());
        }
        RC_ASSERT(payload::alive == alive);
    });
    CHECK(holds);
    CHECK(payload::alive == alive);
}
