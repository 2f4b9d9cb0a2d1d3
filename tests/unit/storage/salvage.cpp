// SPDX-License-Identifier: BSL-1.0
//
// Damage of every kind to a broker's directory: the broker refuses it and changes nothing, and a
// salvage saves all that is intact and says exactly what is not.
#include <railmq/broker.hpp>
#include <railmq/storage/salvage.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/damage.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::storage;
using railmq::errc;
using railmq::error_code;

namespace {

using message = std::pair<std::string, std::uint64_t>; ///< Its queue and its id there.
using messages = std::set<message>;

railmq::broker_options small() {
    railmq::broker_options o;
    o.journal = {.segment_bytes = 4096, .headroom_bytes = 1024, .max_record_bytes = 4000};
    return o;
}

/// A record, and the messages that it stores.
struct record_content {
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t end = 0;
    std::uint64_t number = 0;
    messages stored{};
    bool has_queue = false;
};

/// What a directory holds before anything happens to it.
struct truth {
    explicit truth(simulated_disk& disk) {
        look_at(disk);
        auto directory = disk.directory();
        journal_scanner scanner{directory};
        error_code ec;
        scanner.open(ec);
        read_from = scanner.read_from();
        struct collector : scan_visitor, entry_visitor {
            truth& self;
            collector(truth& t)
                : self{t} {}
            void record(std::uint64_t segment, const record_view& r) {
                self.records.push_back(
                    {segment,
                     r.offset,
                     r.offset + record_size(r.header.length),
                     r.header.number,
                     {},
                     false});
                if (r.header.kind == record_kind::data) {
                    REQUIRE(read_entries(r.payload, railmq::duration::zero(), *this));
                }
                self.segments = segment;
            }
            void queue(const queue_definition& d) {
                self.names[d.number] = d.name;
                self.records.back().has_queue = true;
            }
            void
            stored(std::uint64_t q, const railmq::core::message_image& m, const stored_content&) {
                self.records.back().stored.emplace(self.names.at(q), m.id);
            }
        } visit{*this};
        journal_scan_report report;
        scanner.scan(0, visit, report, ec);
        REQUIRE_FALSE(ec);
        REQUIRE(report.damage.empty());
    }
    void look_at(simulated_disk& disk) {
        error_code ec;
        recovery_report recovered;
        const auto view = journal_view<simulated_directory>::open(disk.directory(), recovered, ec);
        REQUIRE(view != nullptr);
        for (auto& [number, q] : view->state().queues) {
            names[number] = q.definition.name;
            q.messages.for_each_from(
                0, [&, name = q.definition.name](std::uint64_t id, const kept_message& m) {
                    alive[{name, id}] = m.where.location();
                    return true;
                });
        }
    }
    /// Those whose record lies there.
    [[nodiscard]] messages in(std::uint64_t segment, std::uint64_t begin, std::uint64_t end) const {
        messages all;
        for (const record_content& r : records) {
            if (r.segment == segment && r.offset < end && r.end > begin) {
                for (const message& m : r.stored) {
                    const auto it = alive.find(m);
                    if (it != alive.end() && it->second == record_location{r.segment, r.offset}) {
                        all.insert(m);
                    }
                }
            }
        }
        return all;
    }
    /// The numbers of the records that lie there; one that is touched is lost.
    [[nodiscard]] std::set<std::uint64_t>
    numbers_in(std::uint64_t segment, std::uint64_t begin, std::uint64_t end) const {
        std::set<std::uint64_t> all;
        for (const record_content& r : records) {
            if (r.segment == segment && r.offset < end && r.end > begin) {
                all.insert(r.number);
            }
        }
        return all;
    }

    std::vector<record_content> records{};
    std::map<std::uint64_t, std::string> names{};
    std::map<message, record_location> alive{};
    std::uint64_t segments = 0;
    std::uint64_t read_from = 0;
};

struct world {
    /// Two queues of texts; `acks`: of every three messages, two are handed out, and one of these
    /// is acknowledged.
    explicit world(int count, bool acks, bool is_closed) {
        railmq::simulation sim{1};
        std::optional<railmq::sim_broker> broker;
        broker.emplace(sim, disk.directory(), small());
        {
            auto a = broker->queue<std::string>("a");
            auto b = broker->queue<std::string>("b", {.dead_letter = "graves"});
            auto consumer = a.consumer({.prefetch = 1000});
            std::vector<railmq::sim_delivery<std::string>> held;
            for (int i = 0; i < count; ++i) {
                a.producer().send("a " + std::to_string(i) + std::string(50, '.'));
                if (i % 2 == 0) {
                    b.producer().send(
                        "b " + std::to_string(i),
                        {.message_id = std::to_string(i), .delay = i % 8 == 0 ? 1h : 0s});
                }
                if (acks && i % 3 == 2) {
                    consumer.try_receive()->ack();
                    held.push_back(*consumer.try_receive());
                }
            }
            broker->sync();
            if (is_closed) {
                broker.reset();
            }
        }
        disk.end_process();
    }
    error_code salvage() {
        error_code ec;
        saved.emplace(2);
        railmq::storage::salvage(
            disk.directory(),
            saved->directory(),
            {.journal = small().journal, .fresh = {5, 6}},
            report,
            ec);
        disk.end_process();
        saved->end_process();
        return ec;
    }
    /// What a broker finds in the new directory, by ids, and whether it is what was sent.
    [[nodiscard]] messages found() {
        messages all;
        railmq::simulation sim{1};
        railmq::sim_broker broker{sim, saved->directory(), small()};
        for (const std::string& name : broker.names()) {
            if (name.starts_with("salvaged.")) {
                for (const auto& m : broker.queue<railmq::bytes>(name).peek(10'000)) {
                    all.emplace(name, m.id);
                }
                continue;
            }
            auto q = broker.queue<std::string>(name);
            sim.advance(2h); // what was delayed is there now
            for (const auto& m : q.peek(10'000)) {
                CHECK(m.value.substr(0, name.size()) == name);
                all.emplace(name, m.id);
            }
        }
        return all;
    }
    [[nodiscard]] messages lost(std::optional<bool> certain = std::nullopt) const {
        messages all;
        for (const lost_messages& l : report.lost) {
            if (!certain || *certain == l.is_certain) {
                for (std::uint64_t i = 0; i < l.count; ++i) {
                    all.emplace(l.name, l.first + i);
                }
            }
        }
        return all;
    }
    [[nodiscard]] std::set<std::uint64_t> lost_records() const {
        std::set<std::uint64_t> all;
        for (const journal_damage& d : report.scan.damage) {
            if (d.loses_records()) {
                for (std::uint64_t n = d.first_record; n <= d.last_record; ++n) {
                    all.insert(n);
                }
            }
        }
        return all;
    }
    /// R6: without salvage it is not opened, and nothing is changed.
    void check_refused() {
        const auto before = railmq::test::all_files(disk);
        railmq::simulation sim{1};
        try {
            const railmq::sim_broker broker{sim, disk.directory(), small()};
            FAIL("a damaged directory was opened");
        } catch (const railmq::system_error& e) {
            CHECK(e.code() == errc::journal_corrupt);
            CHECK_THAT(e.what(), Catch::Contains(".journal' at byte "));
            CHECK_THAT(e.what(), Catch::Contains("salvage"));
        }
        disk.end_process();
        CHECK(railmq::test::all_files(disk) == before);
    }

    simulated_disk disk{1};
    std::optional<simulated_disk> saved{};
    salvage_report report{};
};

messages keys(const std::map<message, record_location>& all) {
    messages out;
    for (const auto& [m, where] : all) {
        out.insert(m);
    }
    return out;
}
messages minus(messages from, const messages& what) {
    for (const message& m : what) {
        from.erase(m);
    }
    return from;
}

} // namespace

TEST_CASE("salvage: of an intact journal it is a copy") {
    const bool is_closed = GENERATE(true, false);
    const bool acks = GENERATE(true, false);
    world w{60, acks, is_closed};
    const truth before{w.disk};
    const auto files = railmq::test::all_files(w.disk);
    REQUIRE_FALSE(w.salvage());
    CHECK(w.report.scan.damage.empty());
    CHECK(w.report.lost.empty());
    CHECK_FALSE(w.report.may_have_old);
    CHECK(w.report.messages == before.alive.size());
    CHECK(railmq::test::all_files(w.disk) == files);

    // Each message is what it was, in every respect.
    error_code ec;
    recovery_report r1;
    recovery_report r2;
    const auto old = journal_view<simulated_directory>::open(w.disk.directory(), r1, ec);
    const auto now = journal_view<simulated_directory>::open(w.saved->directory(), r2, ec);
    REQUIRE(now != nullptr);
    CHECK(r1.was_closed == is_closed);
    CHECK(r2.was_closed == is_closed);
    REQUIRE(old->state().queues.size() == now->state().queues.size());
    for (auto& [number, q] : old->state().queues) {
        kept_queue& copy = now->state().queues.at(number);
        CHECK(copy.definition == q.definition);
        q.messages.for_each_from(0, [&, &of = q](std::uint64_t id, const kept_message& m) {
            const kept_message* const other = copy.messages.find(id);
            REQUIRE(other != nullptr);
            auto image = m.image(id);
            auto other_image = other->image(id);
            std::vector<std::byte> states[2];
            wire_writer w1{states[0]};
            wire_writer w2{states[1]};
            wire::put_state(w1, image);
            wire::put_state(w2, other_image);
            CHECK(states[0] == states[1]);
            const auto p1 = old->load(of, m, image, ec);
            const auto p2 = now->load(copy, *other, other_image, ec);
            CHECK_FALSE(ec);
            CHECK(std::vector(p1.begin(), p1.end()) == std::vector(p2.begin(), p2.end()));
            CHECK((image.props == nullptr) == (other_image.props == nullptr));
            CHECK((image.props == nullptr || *image.props == *other_image.props));
            return true;
        });
    }
}

TEST_CASE(
    "[T08] salvage: one flipped bit in each record in turn costs what is in it, and is told so") {
    const bool in_header = GENERATE(true, false);
    world clean{14, false, false};
    const truth before{clean.disk};
    REQUIRE(before.read_from == 1);
    for (std::size_t i = 0; i + 1 < before.records.size(); ++i) {
        const record_content& r = before.records[i];
        world w = clean;
        CAPTURE(in_header, r.number);
        const std::uint64_t at = r.offset + (in_header ? 9 : record_header::size);
        if (at >= r.end) {
            continue;
        }
        w.disk.corrupt(segment_name(r.segment), at, std::byte{0x10});
        w.check_refused();
        const auto files = railmq::test::all_files(w.disk);
        REQUIRE_FALSE(w.salvage());
        CHECK(railmq::test::all_files(w.disk) == files);
        CHECK(w.lost_records() == std::set{r.number});
        REQUIRE(w.report.scan.damage.size() == 1);
        CHECK(w.report.scan.damage[0].begin == r.offset);
        CHECK(w.report.scan.damage[0].end == r.end);
        const messages gone = before.in(r.segment, r.offset, r.end);
        if (r.has_queue) {
            // Its name may be lost with it.
            CHECK(w.found().size() == before.alive.size() - gone.size());
            continue;
        }
        CHECK(w.found() == minus(keys(before.alive), gone));
        // Of the last one, nothing that comes later tells; those delayed are numbered apart.
        messages told;
        for (const message& m : gone) {
            const auto next = before.alive.upper_bound(m);
            const bool is_last = next == before.alive.end() || next->first.first != m.first ||
                                 (next->first.second ^ m.second) >= kept_state::delayed_ids;
            if (!is_last) {
                told.insert(m);
            }
        }
        CHECK(w.lost() == told);
    }
}

TEST_CASE("salvage: damage of every kind to each segment, and the account is exact") {
    // With rounds of upkeep: messages lie before the segment from which the journal is read.
    const bool is_closed = GENERATE(true, false);
    world clean{120, false, is_closed};
    const truth before{clean.disk};
    REQUIRE(before.segments >= 4);
    enum class harm { flip, header, missing, truncated, block };
    for (const harm what :
         {harm::flip, harm::header, harm::missing, harm::truncated, harm::block}) {
        for (std::uint64_t s = 1; s <= before.segments; ++s) {
            if (!clean.disk.contains(segment_name(s))) {
                continue;
            }
            const std::uint64_t size = clean.disk.contents(segment_name(s)).size();
            std::uint64_t begin = 0;
            std::uint64_t end = size;
            world w = clean;
            switch (what) {
            case harm::flip:
                begin = size / 2;
                end = begin + 1;
                w.disk.corrupt(segment_name(s), begin, std::byte{1});
                break;
            case harm::header:
                end = 60;
                railmq::test::overwrite(w.disk, segment_name(s), 0, 60);
                break;
            case harm::missing: railmq::test::remove(w.disk, segment_name(s)); break;
            case harm::truncated:
                begin = size / 3;
                railmq::test::truncate(w.disk, segment_name(s), begin);
                break;
            case harm::block:
                begin = size / 4;
                end = begin + 512;
                railmq::test::overwrite(w.disk, segment_name(s), begin, 512);
                break;
            }
            CAPTURE(static_cast<int>(what), s, before.segments, before.read_from, is_closed);
            // Of the end of the last segment it cannot be known.
            const bool is_last = s == before.segments;
            if (is_last && (what == harm::missing || what == harm::truncated)) {
                REQUIRE_FALSE(w.salvage());
                CHECK(minus(w.found(), keys(before.alive)).empty());
                continue;
            }
            const auto files = railmq::test::all_files(w.disk);
            REQUIRE_FALSE(w.salvage());
            CHECK(railmq::test::all_files(w.disk) == files);
            const auto numbers = before.numbers_in(s, begin, end);
            if (s < before.read_from && what == harm::missing) {
                CHECK(w.lost_records().empty()); // it may have been deleted in good order
            } else if (!is_last) {
                CHECK(w.lost_records() == numbers);
            }
            const messages gone = before.in(s, begin, end);
            const messages there = w.found();
            CHECK(minus(minus(keys(before.alive), gone), there).empty()); // all that is intact
            CHECK(minus(there, keys(before.alive)).empty());              // and nothing else
            // What is missing was told of, and nothing was told to be missing that is there.
            const messages missing = minus(keys(before.alive), there);
            CHECK(minus(missing, w.lost()).empty());
            for (const message& m : w.lost()) {
                CHECK(there.count(m) == 0);
            }
            CHECK(minus(w.lost(true), missing).empty());
        }
    }
}

TEST_CASE("salvage: with acknowledgements, all that is intact is saved; some may come again") {
    const bool is_closed = GENERATE(true, false);
    world clean{150, true, is_closed};
    const truth before{clean.disk};
    std::size_t came_again = 0;
    for (const record_content& r : before.records) {
        world w = clean;
        w.disk.corrupt(segment_name(r.segment), r.offset + 30, std::byte{1});
        REQUIRE_FALSE(w.salvage());
        const messages there = w.found();
        const messages gone = before.in(r.segment, r.offset, r.end);
        CAPTURE(r.number, before.read_from, r.segment);
        if (r.has_queue) { // its name may be lost with it
            CHECK(there.size() + gone.size() >= before.alive.size());
            continue;
        }
        CHECK(minus(minus(keys(before.alive), gone), there).empty());
        const messages old = minus(there, keys(before.alive));
        came_again += old.size();
        CHECK((old.empty() || w.report.may_have_old));
        CHECK(minus(w.lost(true), minus(keys(before.alive), there)).empty());
    }
    CHECK((came_again > 0 || is_closed)); // closed, all that is read says what is there
}

TEST_CASE("salvage: a message whose record is lost is named by what is said of it later") {
    world w{0, false, true};
    {
        railmq::simulation sim{1};
        railmq::sim_broker broker{sim, w.disk.directory(), small()};
        auto q = broker.queue<std::string>("a");
        q.producer().send("a 0");
        q.producer().send("a 1");
        q.producer().send("a 2");
        auto c = q.consumer();
        c.try_receive()->nack(1h);
        c.try_receive()->ack();
        broker.sync();
        w.disk.end_process();
    }
    const truth before{w.disk};
    for (const record_content& r : before.records) {
        if (r.stored.count({"a", 0}) == 1 || r.stored.count({"a", 1}) == 1) {
            w.disk.corrupt(segment_name(r.segment), r.end - 8, std::byte{1});
        }
    }
    REQUIRE_FALSE(w.salvage());
    CHECK(w.lost(true) == messages{{"a", 0}}); // that 1 has left is known
    CHECK(w.lost(false).empty());
    CHECK(w.found() == messages{{"a", 2}});
}

TEST_CASE("salvage: messages of a queue whose name is lost are bytes of a made-up one") {
    world clean{10, false, false};
    const truth before{clean.disk};
    for (const record_content& r : before.records) {
        if (r.has_queue) {
            world w = clean;
            w.disk.corrupt(segment_name(r.segment), r.offset + 30, std::byte{1});
            REQUIRE_FALSE(w.salvage());
            std::uint64_t nameless = 0;
            for (const salvaged_queue& q : w.report.queues) {
                nameless += q.is_nameless ? 1 : 0;
            }
            CHECK(w.found().size() == before.alive.size());
            CHECK(nameless <= 1);
        }
    }
}

TEST_CASE("salvage: what it refuses, and an end before its time") {
    world clean{60, true, true};
    error_code ec;
    {
        world w = clean;
        simulated_disk other{3};
        const auto taken = [&] {
            recovery_report r;
            return journal<simulated_directory>::open(
                w.disk.directory(), small().journal, {}, [](auto, auto, auto) {}, r, ec);
        }();
        salvage(w.disk.directory(), other.directory(), {}, w.report, ec);
        CHECK(ec == errc::journal_locked);
        CHECK(w.report.owner == simulated_disk::process_id);
    }
    {
        world w = clean;
        simulated_disk empty{3};
        salvage(empty.directory(), w.disk.directory(), {}, w.report, ec);
        CHECK(ec == errc::already_exists);
        simulated_disk other{4};
        salvage(empty.directory(), other.directory(), {}, w.report, ec);
        CHECK(ec == errc::not_found);
        CHECK(railmq::test::all_files(other).empty());
    }
    // Power that goes away at each call: the new one is whole, or no broker opens it.
    const truth before{clean.disk};
    bool is_done = false;
    int refused = 0;
    for (std::uint64_t nth = 1; !is_done; ++nth) {
        world w = clean;
        simulated_disk other{nth};
        other.fail_from(disk_operation::any, nth, boost::system::errc::io_error);
        salvage(
            w.disk.directory(),
            other.directory(),
            {.journal = small().journal, .fresh = {5, 6}},
            w.report,
            ec);
        is_done = !ec;
        other.heal();
        other.crash();
        w.saved = other;
        try {
            const messages there = w.found();
            CHECK((there.empty() || there == keys(before.alive)));
            refused += there.empty() ? 1 : 0;
            if (is_done) {
                CHECK(there == keys(before.alive));
            }
        } catch (const railmq::system_error& e) {
            CHECK(e.code() == errc::journal_corrupt);
            ++refused;
        }
    }
    CHECK(refused > 5);
}

TEST_CASE("salvage: which deduplication ids were accepted is saved") {
    railmq::simulation sim{1};
    simulated_disk disk{1};
    simulated_disk saved{2};
    const railmq::queue_options once{.deduplication_window = 1h};
    std::uint64_t first = 0;
    {
        railmq::sim_broker broker{sim, disk.directory(), small()};
        auto queue = broker.queue<std::string>("q", once);
        first = queue.producer().send("x", {.deduplication_id = "a"}).id;
        CHECK(queue.purge() == 1);
    }
    error_code ec;
    salvage_report report;
    salvage(
        disk.directory(),
        saved.directory(),
        {.journal = small().journal, .fresh = {5, 6}},
        report,
        ec);
    REQUIRE_FALSE(ec);
    railmq::sim_broker broker{sim, saved.directory(), small()};
    auto queue = broker.queue<std::string>("q", once);
    CHECK(queue.producer().send("x", {.deduplication_id = "a"}).duplicate_of() == first);
    CHECK(queue.stats().ready == 0);
}
