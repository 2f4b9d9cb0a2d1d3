// SPDX-License-Identifier: BSL-1.0
#include <railmq/broker.hpp>
#include <railmq/storage/inspect.hpp>
#include <railmq/storage/redrive.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/damage.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using namespace railmq::storage;
using railmq::errc;
using railmq::error_code;

namespace {

using view_type = journal_view<simulated_directory>;

/// A broker that was killed with messages in every state.
struct world {
    world() {
        railmq::sim_broker broker{sim, disk.directory()};
        auto q = broker.queue<std::string>("q", {.retry = {.max_attempts = 1}});
        for (int i = 0; i < 6; ++i) {
            q.producer().send("m" + std::to_string(i), {.message_id = "id" + std::to_string(i)});
        }
        q.producer().send("late", {.delay = 1h});
        auto c = q.consumer({.prefetch = 10});
        held.push_back(std::move(*c.try_receive()));
        c.try_receive()->reject("no such drink");
        c.try_receive()->nack();
        c.try_receive()->ack();
        broker.sync();
        disk.end_process();
        held.clear();
    }
    [[nodiscard]] std::unique_ptr<view_type> view(errc wanted = errc{}) {
        error_code ec;
        auto v = view_type::open(disk.directory(), report, ec);
        CHECK(ec == (wanted == errc{} ? error_code{} : make_error_code(wanted)));
        return v;
    }

    simulated_disk disk{1};
    railmq::simulation sim{1};
    std::vector<railmq::sim_delivery<std::string>> held{};
    recovery_report report{};
};

/// A journal that is opened to be changed, with its own time.
struct opened {
    explicit opened(simulated_disk& disk) {
        const railmq::time_point now{1h};
        journal = open_broker_journal(
            disk.directory(), {}, {1, 2}, now, railmq::time_point{}, state, report, ec);
    }
    std::uint64_t redrive(const std::string& from, const std::string& to) {
        return railmq::storage::redrive(
            *journal,
            state,
            from,
            to,
            [](std::uint64_t) { return true; },
            railmq::time_point{1h},
            failed);
    }
    kept_state state{};
    recovery_report report{};
    error_code ec{};
    std::unique_ptr<broker_journal> journal{};
    railmq::failure failed{};
};

} // namespace

TEST_CASE("inspect: a crashed broker's queues, counted, and nothing is changed") {
    world w;
    const auto before = railmq::test::all_files(w.disk);
    {
        const auto v = w.view();
        REQUIRE(v != nullptr);
        CHECK_FALSE(w.report.was_closed);
        kept_queue* const q = find_queue(v->state(), "q");
        REQUIRE(q != nullptr);
        CHECK(q->definition.options.retry.max_attempts == 1);
        const kept_counts c = count_messages(*q);
        CHECK(c.ready == 2);
        CHECK(c.held == 1);
        CHECK(c.delayed == 1);
        CHECK(c.dying == 0);
        CHECK(c.all() == 4);
        CHECK(c.oldest != railmq::never);
        CHECK(q->definition.next_position == 6);
        kept_queue* const dead = find_queue(v->state(), "q.dead");
        REQUIRE(dead != nullptr);
        CHECK(count_messages(*dead).ready == 2);
        CHECK(find_queue(v->state(), "none") == nullptr);

        std::vector<std::string> reasons;
        dead->messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
            auto image = m.image(id);
            error_code ec;
            const auto payload = v->load(*dead, m, image, ec);
            REQUIRE_FALSE(ec);
            CHECK(payload.size() == 2);
            REQUIRE(image.deaths != nullptr);
            REQUIRE(image.props != nullptr);
            reasons.emplace_back(to_string(image.deaths->entries().front().reason));
            return true;
        });
        CHECK(reasons == std::vector<std::string>{"rejected", "max attempts"});
    }
    CHECK(railmq::test::all_files(w.disk) == before);
}

TEST_CASE("inspect: what a broker has open, what is empty, and what is damaged is not read") {
    world w;
    {
        const railmq::sim_broker broker{w.sim, w.disk.directory()};
        CHECK(w.view(errc::journal_locked) == nullptr);
        CHECK(w.report.owner == simulated_disk::process_id);
    }
    const auto v = w.view();
    try {
        const railmq::sim_broker broker{w.sim, w.disk.directory()};
        FAIL("opened beside a view");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == errc::journal_locked);
    }
    simulated_disk empty{1};
    recovery_report report;
    error_code ec;
    CHECK(view_type::open(empty.directory(), report, ec) == nullptr);
    CHECK(ec == errc::not_found);
    simulated_disk damaged = w.disk;
    damaged.end_process();
    damaged.corrupt(segment_name(1), 64 + 40 + 20, std::byte{1});
    damaged.corrupt(segment_name(1), 30, std::byte{1});
    CHECK(view_type::open(damaged.directory(), report, ec) == nullptr);
    CHECK(ec == errc::journal_corrupt);
    CHECK(report.file == segment_name(1));
}

TEST_CASE("redrive: messages move whole, in order, and count from zero") {
    world w;
    {
        opened o{w.disk};
        REQUIRE_FALSE(o.ec);
        CHECK(o.redrive("q.dead", "q") == 2);
        CHECK_FALSE(o.failed);
        CHECK(o.redrive("q.dead", "q") == 0);
        CHECK(count_messages(*find_queue(o.state, "q")).ready == 4);
    }
    w.disk.crash(); // it has been synced
    railmq::sim_broker broker{w.sim, w.disk.directory()};
    auto q = broker.queue<std::string>("q");
    std::vector<std::string> values;
    for (const auto& m : q.peek(100)) {
        values.push_back(m.value);
        if (m.value == "m1") {
            CHECK(m.id == 6);
            REQUIRE(m.deaths.size() == 1);
            CHECK(m.deaths.front().detail == "no such drink");
            CHECK(m.properties.message_id == "id1");
        }
    }
    CHECK(values == std::vector<std::string>{"m4", "m5", "m1", "m2"});
    // The crash with m0 in hand is not forgotten over it: that was its only run.
    CHECK(broker.queue<std::string>("q.dead").peek(100).size() == 1);
    q.producer().send("new");
    CHECK(q.peek(100).back().id == 8);
}

TEST_CASE("redrive: what it refuses leaves everything as it is") {
    world w;
    {
        railmq::sim_broker broker{w.sim, w.disk.directory()};
        (void)broker.queue<int>("numbers");
        auto full = broker.queue<std::string>("full", {.max_length = 1});
        (void)full;
    }
    opened o{w.disk};
    REQUIRE_FALSE(o.ec);
    CHECK(o.redrive("none", "q") == 0);
    CHECK(o.failed.code == errc::not_found);
    CHECK(o.redrive("q.dead", "none") == 0);
    CHECK(o.failed.code == errc::not_found);
    CHECK(o.redrive("q", "q") == 0);
    CHECK(o.failed.code == errc::invalid_argument);
    CHECK(o.redrive("q.dead", "numbers") == 0);
    CHECK(o.failed.code == errc::type_mismatch);
    CHECK(o.redrive("q.dead", "full") == 1);
    CHECK(o.failed.code == errc::queue_full);
    CHECK(count_messages(*find_queue(o.state, "q.dead")).ready == 1);
}

TEST_CASE("redrive: whatever fails, each message is in one of the queues") {
    world clean;
    bool is_done = false;
    for (std::uint64_t nth = 1; !is_done; ++nth) {
        simulated_disk disk = clean.disk;
        disk.reseed(nth);
        {
            opened o{disk};
            REQUIRE_FALSE(o.ec);
            disk.fail_from(disk_operation::any, nth, boost::system::errc::io_error);
            (void)o.redrive("q.dead", "q");
            is_done = !o.failed;
            disk.crash();
            disk.heal();
        }
        recovery_report report;
        error_code ec;
        const auto v = view_type::open(disk.directory(), report, ec);
        REQUIRE(v != nullptr);
        const auto in_q = count_messages(*find_queue(v->state(), "q")).all();
        const auto dead = count_messages(*find_queue(v->state(), "q.dead")).all();
        CHECK(in_q + dead == 6);
        CHECK((!is_done || dead == 0));
    }
}
