// SPDX-License-Identifier: BSL-1.0
//
// Exchanges that outlive their broker.
#include <railmq/detail/exchanges.hpp>
#include <railmq/railmq.hpp>
#include <railmq/storage/inspect.hpp>
#include <railmq/storage/salvage.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/worlds.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using railmq::errc;
using railmq::error_code;
using railmq::exchange_type;
using railmq::header_match;
using railmq::storage::simulated_directory;
using railmq::storage::simulated_disk;
using railmq::test::error_of;

namespace {

using list = std::vector<std::string>;

struct world {
    explicit world(std::uint64_t seed = 1, railmq::broker_options o = {})
        : options{std::move(o)}
        , disk{seed} {
        open();
    }
    void open() { broker.emplace(sim, disk.directory(), options); }
    void kill_and_open() {
        disk.end_process();
        broker.reset();
        open();
    }
    void crash_and_open() {
        disk.crash();
        broker.reset();
        open();
    }
    void close_and_open() {
        broker->close();
        broker.reset();
        open();
    }
    [[nodiscard]] auto queue(const std::string& name) { return broker->queue<std::string>(name); }
    [[nodiscard]] auto exchange(
        const std::string& name,
        exchange_type type = exchange_type::direct,
        const railmq::exchange_options& o = {}) {
        return broker->exchange<std::string>(name, type, o);
    }
    /// How many messages each queue has that has any; opens all of them.
    [[nodiscard]] std::map<std::string, std::uint64_t> counts() {
        std::map<std::string, std::uint64_t> all;
        for (const auto& name : broker->names()) {
            if (const auto n = queue(name).stats().ready; n != 0) {
                all[name] = n;
            }
        }
        return all;
    }

    railmq::simulation sim{1};
    railmq::broker_options options;
    simulated_disk disk;
    std::optional<railmq::sim_broker> broker{};
};

using counted = std::map<std::string, std::uint64_t>;

} // namespace

TEST_CASE("exchanges and bindings are there again, and reach queues that nobody has opened") {
    world w;
    {
        auto x = w.exchange("x", exchange_type::topic, {.alternate = "spare"});
        x.bind(w.queue("a"), "order.*");
        x.bind(w.queue("b"), "order.#");
        x.bind(w.queue("b"), "other");
        auto h = w.exchange("h", exchange_type::headers);
        h.bind(w.queue("h1"), {.match = header_match::any, .headers = {{"k", "v"}, {"l", {}}}});
        x.bind(h, "to.headers");
        w.exchange("spare", exchange_type::fanout).bind(w.queue("lost"));
        auto n = w.exchange("n", exchange_type::fanout);
        n.bind(w.queue("a"), "whatever");
    }
    for (int life = 1; life <= 3; ++life) {
        const auto n = static_cast<std::uint64_t>(life);
        life == 1 ? w.crash_and_open() : life == 2 ? w.close_and_open() : w.kill_and_open();
        CHECK(w.broker->exchange_names() == list{"h", "n", "spare", "x"});
        // One of them is opened; it needs the others, but not the queues' owners.
        auto x = w.exchange("x", exchange_type::topic, {.alternate = "spare"});
        auto p = x.producer({.mandatory = true});
        CHECK(p.send("1", {.routing_key = "order.placed"}).routed == 2);
        CHECK(p.send("2", {.routing_key = "nobody"}).routed == 1);
        CHECK(p.send("3", {.routing_key = "to.headers", .headers = {{"l", ""}}}).routed == 1);
        CHECK(p.send("4", {.routing_key = "other"}).routed == 1);
        CHECK(w.counts() == counted{{"a", n}, {"b", 2 * n}, {"h1", n}, {"lost", n}});
    }
    auto n = w.broker->find_exchange<std::string>("n");
    REQUIRE(n);
    CHECK(n->type() == exchange_type::fanout);
    CHECK(n->producer().send("5").routed == 1);
}

TEST_CASE("what was unbound or deleted does not come back") {
    world w;
    bool is_opened = false;
    SECTION("in the same life") {
        is_opened = true;
    }
    SECTION("in the next, with nobody having opened anything") {}
    auto x = w.exchange("x", exchange_type::fanout);
    auto y = w.exchange("y", exchange_type::direct);
    for (const char* name : {"a", "b", "c"}) {
        x.bind(w.queue(name));
        y.bind(w.queue(name), "k");
    }
    x.bind(y);
    auto gone = w.exchange("gone", exchange_type::fanout);
    gone.bind(w.queue("d"));
    x.bind(gone);
    if (!is_opened) {
        w.kill_and_open();
    }
    w.broker->delete_queue("a");
    w.broker->delete_exchange("gone");
    CHECK(w.broker->exchange_names() == list{"x", "y"});
    if (!is_opened) {
        w.kill_and_open();
    }
    x = w.exchange("x", exchange_type::fanout);
    CHECK(x.unbind(w.queue("b")));
    CHECK_FALSE(x.unbind(w.queue("b")));
    w.kill_and_open();
    x = w.exchange("x", exchange_type::fanout);
    CHECK(x.producer().send("1", {.routing_key = "k"}).routed == 2); // b by way of y, and c
    CHECK(w.counts() == counted{{"b", 1}, {"c", 1}});
    // A queue and an exchange of the same names are others.
    (void)w.queue("a");
    (void)w.exchange("gone", exchange_type::fanout);
    CHECK(x.producer().send("2", {.routing_key = "k"}).routed == 2);
    w.kill_and_open();
    CHECK(
        w.exchange("x", exchange_type::fanout).producer().send("3", {.routing_key = "k"}).routed ==
        2);
}

TEST_CASE("an exchange that is kept is opened as what it is") {
    world w;
    w.exchange("x", exchange_type::direct, {.alternate = "y"}).bind(w.queue("q"), "k");
    w.kill_and_open();
    auto& b = *w.broker;
    CHECK(error_of([&] { (void)w.exchange("x"); }) == errc::options_mismatch);
    CHECK(error_of([&] {
              (void)b.exchange<std::string>("x", exchange_type::topic, {.alternate = "y"});
          }) == errc::options_mismatch);
    CHECK(error_of([&] {
              (void)b.exchange<int>("x", exchange_type::direct, {.alternate = "y"});
          }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)b.find_exchange<int>("x"); }) == errc::type_mismatch);
    CHECK(error_of([&] { (void)w.queue("x"); }) == errc::type_mismatch);
    // Its alternate, which does not exist yet, must have its type as well.
    CHECK(error_of([&] {
              (void)b.exchange<int>("y", exchange_type::fanout);
          }) == errc::type_mismatch);
    // One that names it is opened with it.
    auto z = w.exchange("z", exchange_type::direct, {.alternate = "x"});
    CHECK(z.producer().send("1", {.routing_key = "k"}).routed == 1);
    CHECK(error_of([&] { b.delete_exchange("x", true); }) == errc::in_use);
    w.kill_and_open();
    CHECK(error_of([&] { w.broker->delete_exchange("x", true); }) == errc::in_use);
    w.broker->delete_exchange("x");
    CHECK(error_of([&] { w.broker->delete_exchange("x"); }) == errc::not_found);
    CHECK_FALSE(w.broker->find_exchange<std::string>("x"));
}

TEST_CASE("two types may have codecs of one name, but not one exchange and its queues") {
    world w;
    using bytes = std::vector<std::byte>; // as a text is kept
    const auto kept = [&] {
        w.exchange("x", exchange_type::fanout, {.alternate = "y"}).bind(w.queue("q"));
        w.exchange("x", exchange_type::fanout, {.alternate = "y"})
            .bind(w.exchange("z", exchange_type::fanout));
        (void)w.exchange("y", exchange_type::fanout);
    };
    kept();
    const auto opens = [&] {
        return error_of([&] {
            (void)w.broker->exchange<bytes>("x", exchange_type::fanout, {.alternate = "y"});
        });
    };
    w.kill_and_open();
    auto q = w.queue("q");
    CHECK(opens() == errc::type_mismatch);
    w.kill_and_open();
    auto z = w.exchange("z", exchange_type::fanout);
    CHECK(opens() == errc::type_mismatch);
    w.kill_and_open();
    auto y = w.exchange("y", exchange_type::fanout);
    CHECK(opens() == errc::type_mismatch);
    w.kill_and_open();
    CHECK_FALSE(opens()); // all of them as bytes
    auto x = w.broker->find_exchange<bytes>("x");
    REQUIRE(x);
    CHECK(x->producer().send(bytes{std::byte{'a'}}).routed == 1);
    CHECK(error_of([&] { (void)w.queue("q"); }) == errc::type_mismatch);
    w.kill_and_open();
    CHECK(w.queue("q").peek().at(0).value == "a");
}

TEST_CASE("[N27] a key stays with its queue, also after a restart") {
    world w;
    std::map<std::string, std::string> where;
    for (int life = 0; life < 3; ++life) {
        auto x = w.exchange("x", exchange_type::consistent_hash);
        if (life == 0) {
            x.bind(w.queue("a"));
            x.bind(w.queue("b"), "", {.weight = 5});
            x.bind(w.queue("b"), "", {.weight = 2});
            x.bind(w.queue("c"));
        }
        auto p = x.producer();
        for (int i = 0; i < 60; ++i) {
            const std::string key = std::to_string(i);
            CHECK(p.send(key, {.routing_key = key}).routed == 1);
        }
        for (const char* name : {"c", "b", "a"}) {
            auto c = w.queue(name).consumer({.prefetch = railmq::unlimited});
            for (const auto& key : railmq::test::take_all(c)) {
                CHECK(where.emplace(key, name).first->second == name);
            }
        }
        CHECK(where.size() == 60);
        w.kill_and_open();
    }
}

TEST_CASE("bindings survive rounds of upkeep, whether or not somebody has opened them") {
    for (const bool is_opened : {true, false}) {
        world w{
            1,
            {.durability = railmq::durability::accepted,
             .journal = {.segment_bytes = 8192, .headroom_bytes = 1024}}};
        const auto key = [](int i) { return "a.key.of.some.length." + std::to_string(i); };
        auto x = w.exchange("x", exchange_type::topic);
        for (int i = 0; i < 3000; ++i) { // more than a step lists, and than a record takes
            x.bind(w.queue(i < 2500 ? "q1" : "q" + std::to_string(i % 7)), key(i));
        }
        x.unbind(w.queue("q1"), key(0));
        auto dead = w.exchange("dead", exchange_type::fanout);
        dead.bind(w.queue("q1"));
        w.broker->delete_exchange("dead");
        if (!is_opened) {
            w.close_and_open();
        }
        auto busy = w.queue("busy");
        auto p = busy.producer({.durability = railmq::durability::accepted});
        auto c = busy.consumer();
        for (int i = 0; i < 3000; ++i) {
            p.send(std::string(100, 'x'));
            c.try_receive()->ack();
        }
        w.broker->sync();
        CHECK_FALSE(w.disk.contains(railmq::storage::segment_name(1))); // rounds were made
        w.crash_and_open();
        CHECK(w.broker->exchange_names() == list{"x"});
        auto again = w.exchange("x", exchange_type::topic).producer();
        CHECK(again.send("m", {.routing_key = key(0)}).routed == 0);
        std::uint64_t expected = 0;
        for (int i = 1; i < 3000; ++i) {
            expected += i < 2500 || i % 7 == 1 ? 1 : 0;
            CHECK(again.send("m", {.routing_key = key(i)}).routed == 1);
        }
        CHECK(w.queue("q1").stats().ready == expected);
    }
}

TEST_CASE("a binding that has returned survives a loss of power, others are there or not") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        world w{seed};
        auto x = w.exchange("x", exchange_type::topic);
        const auto q = w.queue("q");
        x.bind(q, "sure");
        w.options.durability = railmq::durability::accepted;
        w.close_and_open();
        x = w.exchange("x", exchange_type::topic);
        x.bind(w.queue("q"), "maybe");
        x.unbind(w.queue("q"), "sure");
        x.bind(w.queue("r"), "maybe");
        w.crash_and_open();
        auto p = w.exchange("x", exchange_type::topic).producer();
        const auto maybe = p.send("1", {.routing_key = "maybe"}).routed;
        const auto sure = p.send("1", {.routing_key = "sure"}).routed;
        // In the order in which they were made, up to somewhere.
        CHECK((maybe == 2 ? sure == 0 : maybe == 1 ? sure <= 1 : sure == 1));
    }
}

TEST_CASE("what cannot be kept has not happened") {
    world w;
    auto x = w.exchange("x", exchange_type::direct);
    auto q = w.queue("q");
    x.bind(q, "before");
    w.disk.fail_from(railmq::storage::disk_operation::write, 1, boost::system::errc::io_error);
    w.disk.fail_from(railmq::storage::disk_operation::sync, 1, boost::system::errc::io_error);
    // The first may be there or not, as nobody knows; from then on nothing is taken.
    (void)error_of([&] { x.bind(q, "first"); });
    CHECK(error_of([&] { x.bind(q, "after"); }) == errc::journal_failed);
    CHECK(error_of([&] { (void)x.unbind(q, "before"); }) == errc::journal_failed);
    CHECK(error_of([&] { w.broker->delete_exchange("x"); }) == errc::journal_failed);
    CHECK(error_of([&] { (void)w.exchange("new"); }) == errc::journal_failed);
    CHECK(x.is_open());
    CHECK(w.broker->exchange_names() == list{"x"});
    auto p = x.producer({.durability = railmq::durability::accepted});
    error_code ec;
    CHECK(p.send("m", {.routing_key = "after"}, ec).routed == 0);
    CHECK_FALSE(ec); // nobody is bound to it
    w.disk.heal();
    w.kill_and_open();
    auto again = w.exchange("x", exchange_type::direct).producer();
    CHECK(again.send("m", {.routing_key = "before"}).routed == 1);
    CHECK(again.send("m", {.routing_key = "after"}).routed == 0);
}

TEST_CASE("a journal that is looked at, or salvaged, has its exchanges") {
    world w;
    auto x = w.exchange("x", exchange_type::direct);
    x.bind(w.queue("q"), "k");
    x.bind(w.exchange("y", exchange_type::fanout), "k");
    w.exchange("y", exchange_type::fanout).bind(w.queue("r"));
    w.broker->close();
    w.broker.reset();
    error_code ec;
    {
        railmq::storage::recovery_report report;
        const auto view = railmq::storage::journal_view<simulated_directory>::open(
            w.disk.directory(), report, ec);
        REQUIRE(view != nullptr);
        const auto& all = view->state().exchanges.all;
        REQUIRE(all.size() == 2);
        CHECK(all.begin()->second.definition.name == "x");
        CHECK(all.begin()->second.bindings.size() == 2);
    }
    simulated_disk other{2};
    railmq::storage::salvage_report report;
    railmq::storage::salvage(w.disk.directory(), other.directory(), {.fresh = {1, 2}}, report, ec);
    REQUIRE_FALSE(ec);
    CHECK(report.exchanges == 2);
    CHECK(report.bindings == 3);
    railmq::sim_broker saved{w.sim, other.directory()};
    auto p = saved.exchange<std::string>("x", exchange_type::direct).producer();
    CHECK(p.send("m", {.routing_key = "k"}).routed == 2);
}
