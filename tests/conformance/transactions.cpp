// SPDX-License-Identifier: BSL-1.0
//
// Transactions over logs: consume, transform, produce and commit is one batch. The numbers B10.x
// are those of Kafka's transactions in the semantics: here nothing of a transaction is stored
// before it is committed, so a reader has no need to know of it (B10.1), and an open one holds
// nobody up.
//
// Each case runs in memory and in a directory. After every refusal all is as it was.
#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::append_options;
using railmq::errc;
using railmq::error_code;
using railmq::test::error_of;

namespace {

using log_type = railmq::sim_partitioned_log<std::string>;
using consumer_type = railmq::sim_log_consumer<std::string>;
using strings = std::vector<std::string>;

struct world {
    world() { open(); }

    void open() {
        broker.reset();
        railmq::broker_options o;
        o.observer = [this](const railmq::notice& n) {
            swallowed += std::holds_alternative<railmq::notices::unwritten>(n) ? 1 : 0;
        };
        if (durable) {
            broker.emplace(sim, disk.directory(), o);
        } else {
            broker.emplace(sim, o);
        }
    }
    /// Where nothing outlives the process, that is nothing.
    void kill_and_open() {
        if (durable) {
            disk.end_process();
            open();
        }
    }
    [[nodiscard]] log_type log(std::string_view name, std::uint32_t partitions = 1) {
        return broker->log<std::string>(name, {.partitions = partitions});
    }
    /// All that a log holds: partition, a colon, and the value, or a dash for a tombstone.
    [[nodiscard]] strings all_in(std::string_view name) {
        strings all;
        const auto l = broker->find_log<std::string>(name);
        for (std::uint32_t p = 0; l && p < l->partitions(); ++p) {
            auto reader = l->consumer({.partitions = {p}});
            while (auto d = reader.try_receive()) {
                all.push_back(std::to_string(p) + ":" + (d->is_tombstone() ? "-" : d->value()));
            }
        }
        return all;
    }
    [[nodiscard]] strings all_in_queue(std::string_view name) {
        strings all;
        for (const auto& m : broker->queue<std::string>(name).peek(1000)) {
            all.push_back(m.value);
        }
        return all;
    }
    [[nodiscard]] consumer_type member(const log_type& l, bool auto_commit = true) {
        return l.consumer(
            {.group = "g",
             .retry_backoff = railmq::constant_backoff{.delay = 0s},
             .session_timeout = 10s,
             .max_poll_interval = 10s,
             .auto_commit = auto_commit});
    }
    [[nodiscard]] std::uint64_t committed(const log_type& l, std::uint32_t partition = 0) {
        return l.committed("g", partition).value();
    }

    bool durable = GENERATE(false, true);
    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    std::optional<railmq::sim_broker> broker{};
    int swallowed = 0;
};

/// What everything is at some moment, to see that nothing has changed.
struct picture {
    strings in, out, queue;
    std::uint64_t committed, end;
    friend bool operator==(const picture&, const picture&) = default;
};
[[nodiscard]] picture look(world& w) {
    const auto in = w.log("in");
    return {
        w.all_in("in"),
        w.all_in("out"),
        w.all_in_queue("bills"),
        w.committed(in),
        w.log("out", 2).end_offset(0) + w.log("out", 2).end_offset(1)};
}

} // namespace

TEST_CASE("consume, transform, produce and commit is one batch [B10.5][D49][Z03]") {
    world w;
    auto in = w.log("in");
    auto out = w.log("out", 2);
    auto bills = w.broker->queue<std::string>("bills");
    for (const char* v : {"a", "b", "c"}) {
        in.producer().send(v);
    }
    auto p = out.producer();
    auto to_bills = bills.producer();
    auto c = w.member(in);
    auto tx = w.broker->begin();
    for (int i = 0; i < 2; ++i) {
        auto d = c.try_receive().value();
        tx.send(p, d.value(), d.value() + "0", append_options{.partition = 0});
        tx.send(p, d.value() + "1", append_options{.partition = 1});
        tx.send(to_bills, d.value() + "!");
        tx.ack(d);
        CHECK(d.value().size() == 1); // it can be read on
        CHECK_FALSE(d.ack());         // and is the transaction's
    }
    SECTION("committed, all of it is there") {
        CHECK(w.all_in("out").empty());
        CHECK(out.end_offset(0) == 0);
        CHECK(bills.stats().ready == 0);
        CHECK(w.committed(in) == 0);
        const auto receipts = tx.commit();
        REQUIRE(receipts.size() == 6);
        CHECK(receipts[3].partition == 0);
        CHECK(receipts[3].offset == 1);
        CHECK(receipts[4].partition == 1);
        CHECK(receipts[4].offset == 1);
        CHECK(receipts[5].id == receipts[2].id + 1);
        CHECK(tx.is_empty());
        for (int lives = 0; lives < 2; ++lives) {
            CHECK(w.all_in("out") == strings{"0:a0", "0:b0", "1:a1", "1:b1"});
            CHECK(w.all_in_queue("bills") == strings{"a!", "b!"});
            CHECK(w.committed(w.log("in")) == 2);
            w.kill_and_open();
        }
        auto next = w.member(w.log("in"));
        w.sim.advance(11s); // the former member is gone
        CHECK(next.try_receive().value().value() == "c");
    }
    SECTION("dropped, nothing is, and the records come again in their order") {
        { auto gone = std::move(tx); }
        CHECK(w.all_in("out").empty());
        CHECK(w.committed(in) == 0);
        for (const char* v : {"a", "b", "c"}) {
            auto d = c.try_receive().value();
            CHECK(d.value() == v);
            CHECK(d.failure_count() == (*v == 'c' ? 0 : 1));
            d.ack();
        }
        c.commit();
        CHECK(w.committed(in) == 3);
    }
    SECTION("the process ends before the commit: it is done again, once") {
        if (w.durable) {
            w.broker->sync();
            w.kill_and_open();
            auto again = w.member(w.log("in"));
            CHECK(again.try_receive().value().value() == "a");
            CHECK(w.all_in("out").empty());
        }
    }
}

TEST_CASE("a transaction that is refused leaves everything as it was, and can be tried again") {
    world w;
    auto in = w.log("in");
    auto out = w.log("out", 2);
    auto bills = w.broker->queue<std::string>("bills", {.max_length = 1});
    bills.producer().send("old");
    in.producer().send("a");
    auto p = out.producer();
    auto numbered = out.producer({.producer_id = 1});
    auto to_bills = bills.producer();
    auto c = w.member(in);
    auto d = c.try_receive().value();
    auto tx = w.broker->begin();
    tx.send(p, "x", append_options{.partition = 0});
    tx.ack(d);
    const auto before = look(w);
    error_code ec;
    SECTION("a queue is full") {
        tx.send(to_bills, "new");
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::queue_full);
        CHECK(look(w) == before);
        bills.purge();
        CHECK(tx.commit(ec).size() == 2);
        CHECK(w.all_in_queue("bills") == strings{"new"});
    }
    SECTION("a log has another end than was expected [M13]") {
        out.producer().send("meanwhile", append_options{.partition = 1});
        const auto now = look(w);
        tx.send(p, "y", append_options{.partition = 1, .expected_offset = 0});
        tx.send(p, "z", append_options{.partition = 1, .expected_offset = 1});
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::sequence_out_of_order);
        CHECK(look(w) == now);
        tx.abort();
        d = c.try_receive().value();
        tx.ack(d);
        tx.send(p, "y", append_options{.partition = 1, .expected_offset = 1});
        CHECK(tx.commit(ec).size() == 1);
    }
    SECTION("a number does not follow [W02]") {
        numbered.send("first", append_options{.partition = 1, .sequence = 0});
        const auto now = look(w);
        tx.send(numbered, "y", append_options{.partition = 1, .sequence = 2});
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::sequence_out_of_order);
        CHECK(look(w) == now);
        tx.abort();
        d = c.try_receive().value();
        tx.ack(d);
        tx.send(numbered, "y", append_options{.partition = 1, .sequence = 1});
        CHECK(tx.commit(ec).size() == 1);
    }
    SECTION("a later life of the producer has been seen [W03]") {
        auto later = out.producer({.producer_id = 1, .epoch = 1});
        later.send("later", append_options{.partition = 1});
        const auto now = look(w);
        tx.send(numbered, "y", append_options{.partition = 1});
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::fenced);
        CHECK(look(w) == now);
        tx.abort();
        d = c.try_receive().value();
        tx.ack(d);
        CHECK(tx.commit(ec).empty());
    }
    SECTION("a log was deleted") {
        auto other = w.log("other");
        auto q = other.producer();
        tx.send(q, "y");
        w.broker->delete_log("other");
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::not_found);
        CHECK(look(w) == before);
        tx.abort();
        d = c.try_receive().value();
        tx.ack(d);
        CHECK(tx.commit(ec).empty());
    }
    CHECK_FALSE(ec);
    CHECK(w.committed(in) == 1);
    CHECK(w.swallowed == 0);
}

TEST_CASE("a member that has lost its partition commits nothing, and stores nothing [B10.5][U07]") {
    world w;
    auto in = w.log("in");
    auto out = w.log("out", 2);
    in.producer().send("a");
    in.producer().send("b");
    auto p = out.producer();
    auto c = w.member(in);
    auto d = c.try_receive().value();
    auto tx = w.broker->begin();
    tx.send(p, "x");
    tx.ack(d);
    auto other = w.member(in);
    error_code ec;
    w.sim.advance(11s); // the first one is taken for dead, and the other has its partition
    auto taken = other.try_receive().value();
    CHECK(taken.value() == "a");
    const auto before = look(w);
    SECTION("it has not heard of it yet") {
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::unknown_member);
    }
    SECTION("it has, and is a member again") {
        (void)c.try_receive();
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::stale_delivery);
    }
    CHECK(look(w) == before);
    tx.abort();
    taken.ack();
    other.commit();
    CHECK(w.committed(in) == 1);
}

TEST_CASE("a partition that goes to another member takes the transaction with it") {
    world w;
    auto in = w.log("in", 2);
    auto out = w.log("out", 2);
    in.producer().send("a", append_options{.partition = 0});
    in.producer().send("b", append_options{.partition = 1});
    auto p = out.producer();
    auto c = w.member(in);
    auto first = c.try_receive().value();
    auto second = c.try_receive().value();
    auto tx = w.broker->begin();
    tx.send(p, "x");
    tx.ack(first);
    tx.ack(second);
    auto other = w.member(in);
    for (int i = 0; i < 3; ++i) { // one of the two partitions is revoked, and changes hands
        (void)c.try_receive();
        (void)other.try_receive();
    }
    REQUIRE(c.assignment().size() == 1);
    error_code ec;
    CHECK(tx.commit(ec).empty());
    CHECK(ec == errc::stale_delivery);
    CHECK(w.all_in("out").empty());
    CHECK(w.committed(in, 0) == 0);
    CHECK(w.committed(in, 1) == 0);
}

TEST_CASE("a static member that came back fences its former self [U15]") {
    world w;
    auto in = w.log("in");
    auto out = w.log("out", 2);
    in.producer().send("a");
    auto p = out.producer();
    railmq::log_consumer_options o{.group = "g", .instance_id = "one"};
    auto c = in.consumer(o);
    auto d = c.try_receive().value();
    auto tx = w.broker->begin();
    tx.send(p, "x");
    tx.ack(d);
    auto again = in.consumer(o);
    error_code ec;
    CHECK(tx.commit(ec).empty());
    CHECK(ec == errc::fenced);
    CHECK(w.all_in("out").empty());
    CHECK(again.try_receive().value().value() == "a");
}

TEST_CASE("a record is not done while one before it is in work, and a seek makes it stale") {
    world w;
    auto in = w.log("in");
    auto out = w.log("out", 2);
    for (const char* v : {"a", "b", "c"}) {
        in.producer().send(v);
    }
    auto p = out.producer();
    auto c = w.member(in);
    auto a = c.try_receive().value();
    auto b = c.try_receive().value();
    auto tx = w.broker->begin();
    tx.send(p, "x");
    tx.ack(b);
    error_code ec;
    CHECK(tx.commit(ec).empty());
    CHECK(ec == errc::sequence_out_of_order); // after a crash b would come again, done or not
    CHECK(w.all_in("out").empty());
    SECTION("when that is done by itself, it goes") {
        a.ack();
        CHECK(tx.commit(ec).size() == 1);
        CHECK(w.committed(in) == 2);
    }
    SECTION("when the transaction does it as well, it goes") {
        tx.ack(a);
        CHECK(tx.commit(ec).size() == 1);
        CHECK(w.committed(in) == 2);
    }
    SECTION("after a seek it never will") {
        c.seek(0, 0);
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::stale_delivery);
        tx.abort();
        auto again = c.try_receive().value();
        CHECK(again.value() == "a");
        CHECK(again.failure_count() == 0); // nobody failed: what was asked for before is forgotten
        tx.ack(again);
        CHECK(tx.commit(ec).empty());
        CHECK_FALSE(ec);
        CHECK(w.committed(in) == 1);
    }
    SECTION("a consumer that has gone") {
        c.close();
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::stale_delivery);
        tx.abort();
        auto next = w.member(in);
        CHECK(next.try_receive().value().value() == "a");
    }
}

TEST_CASE("a seek back is committed by a transaction as by a commit") {
    world w;
    auto in = w.log("in");
    for (const char* v : {"a", "b", "c"}) {
        in.producer().send(v);
    }
    auto c = w.member(in);
    for (int i = 0; i < 3; ++i) {
        c.try_receive().value().ack();
    }
    c.commit();
    CHECK(w.committed(in) == 3);
    c.seek(0, 0);
    auto d = c.try_receive().value();
    auto tx = w.broker->begin();
    tx.ack(d);
    tx.commit();
    CHECK(w.committed(in) == 1);
    c.commit(); // has nothing to say about it
    CHECK(w.committed(in) == 1);
    w.kill_and_open();
    CHECK(w.committed(w.log("in")) == 1);
}

TEST_CASE("commit_offsets moves a group with the transaction, as far as was acknowledged then") {
    world w;
    auto in = w.log("in");
    auto out = w.log("out", 2);
    for (const char* v : {"a", "b", "c"}) {
        in.producer().send(v);
    }
    auto p = out.producer();
    auto c = w.member(in, false);
    auto tx = w.broker->begin();
    std::vector<railmq::sim_log_delivery<std::string>> batch;
    CHECK(c.receive_batch(batch, 3, 0s) == 3);
    tx.send(p, "ab");
    batch[0].ack();
    batch[1].ack();
    tx.commit_offsets(c);
    batch[2].ack(); // too late for this one
    CHECK(w.committed(in) == 0);
    error_code ec;
    SECTION("it moves") {
        CHECK(tx.commit(ec).size() == 1);
        CHECK(w.committed(in) == 2);
        c.commit();
        CHECK(w.committed(in) == 3);
    }
    SECTION("it does not") {
        tx.abort();
        CHECK(w.committed(in) == 0);
        c.seek(0, w.committed(in)); // as if nothing had been read
        CHECK(c.try_receive().value().value() == "a");
    }
    SECTION("somebody has committed more meanwhile") {
        c.commit();
        CHECK(tx.commit(ec).size() == 1);
        CHECK(w.committed(in) == 3);
    }
    SECTION("the partition was sought in") {
        c.seek(0, 1);
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::stale_delivery);
        CHECK(w.committed(in) == 0);
        CHECK(w.all_in("out").empty());
    }
    SECTION("the member was taken for dead") {
        auto other = w.member(in, false);
        w.sim.advance(11s);
        (void)other.try_receive();
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::unknown_member);
        CHECK(w.committed(in) == 0);
        CHECK(w.all_in("out").empty());
    }
    CHECK(w.committed(w.log("in")) <= 3);
}

TEST_CASE("what goes to one partition is one run: no record of others is in between") {
    world w;
    auto out = w.log("out");
    auto p = out.producer();
    auto tx = w.broker->begin();
    tx.send(p, "k", "1");
    out.producer().send("other");
    tx.send(p, "k", "2", railmq::properties{.headers = {{"h", "v"}}});
    tx.send_tombstone(p, "k");
    const auto receipts = tx.commit();
    REQUIRE(receipts.size() == 3);
    CHECK(receipts[0].offset == 1);
    CHECK(receipts[2].offset == 3);
    for (int lives = 0; lives < 2; ++lives) {
        CHECK(w.all_in("out") == strings{"0:other", "0:1", "0:2", "0:-"});
        auto reader = w.log("out").consumer();
        for (int i = 0; i < 4; ++i) {
            auto d = reader.try_receive().value();
            CHECK(d.offset() == static_cast<std::uint64_t>(i));
            CHECK(d.key().has_value() == (i != 0));
            CHECK(d.properties().headers.size() == (i == 2 ? 1 : 0));
        }
        w.kill_and_open();
    }
}

TEST_CASE(
    "an idempotent producer's numbers go on in a transaction, and what is there stays [W01]") {
    world w;
    auto out = w.log("out");
    auto p = out.producer({.producer_id = 7});
    p.send("0");
    {
        auto tx = w.broker->begin();
        tx.send(p, "dropped"); // takes no number
    }
    auto tx = w.broker->begin();
    tx.send(p, "1");
    tx.send(p, "2");
    CHECK(tx.commit().size() == 2);
    p.send("3");
    CHECK(w.all_in("out") == strings{"0:0", "0:1", "0:2", "0:3"});
    for (int lives = 0; lives < 2; ++lives) {
        // The same two, sent again by somebody who does not know what has become of them.
        auto log = w.log("out");
        auto again = log.producer({.producer_id = 7});
        auto bills = w.broker->queue<std::string>("bills").producer();
        auto retry = w.broker->begin();
        retry.send(again, "1", append_options{.sequence = 1});
        retry.send(again, "2", append_options{.sequence = 2});
        retry.send(bills, "bill");
        const auto receipts = retry.commit();
        REQUIRE(receipts.size() == 3);
        CHECK(receipts[0].duplicate_of == 1);
        CHECK(receipts[1].duplicate_of == 2);
        CHECK(w.all_in("out") == strings{"0:0", "0:1", "0:2", "0:3"});
        CHECK(w.all_in_queue("bills").size() == static_cast<std::size_t>(lives + 1));
        w.kill_and_open();
    }
}

TEST_CASE("what makes no sense is refused at once, and the transaction is as it was") {
    world w;
    auto out = w.log("out", 2);
    auto p = out.producer();
    auto numbered = out.producer({.producer_id = 1});
    auto tx = w.broker->begin();
    const append_options first{.partition = 0};
    tx.send(p, "x", first);
    const auto is_refused = [&](errc why, auto&& f) { CHECK(error_of(f) == why); };
    is_refused(errc::invalid_argument, [&] { tx.send(numbered, "y", first); });
    is_refused(errc::invalid_argument, [&] {
        tx.send(p, "y", append_options{.partition = 0, .sequence = 1});
    });
    is_refused(errc::invalid_argument, [&] { tx.send(p, "y", append_options{.partition = 2}); });
    is_refused(
        errc::invalid_argument, [&] { tx.send(p, "y", railmq::properties{.delay = 1s}, first); });
    auto narrow = out.producer({.max_message_bytes = 2});
    is_refused(errc::message_too_large, [&] { tx.send(narrow, "yyy", first); });
    // An end that can never be.
    tx.send(p, "y", append_options{.partition = 0, .expected_offset = 1});
    is_refused(errc::sequence_out_of_order, [&] {
        tx.send(p, "y", append_options{.partition = 0, .expected_offset = 4});
    });
    // Numbers that do not follow, and some where there were none.
    tx.send(numbered, "1", append_options{.partition = 1, .sequence = 0});
    is_refused(errc::sequence_out_of_order, [&] {
        tx.send(numbered, "y", append_options{.partition = 1, .sequence = 2});
    });
    auto compacted =
        w.broker->log<std::string>("compacted", {.cleanup = railmq::log_cleanup::compact});
    auto to_compacted = compacted.producer();
    is_refused(errc::invalid_argument, [&] { tx.send(to_compacted, "no key"); });
    railmq::sim_broker elsewhere{w.sim};
    auto foreign = elsewhere.log<std::string>("out").producer();
    is_refused(errc::invalid_argument, [&] { tx.send(foreign, "y"); });
    railmq::sim_log_producer<std::string> none;
    is_refused(errc::closed, [&] { tx.send(none, "y"); });

    // Consumers.
    out.producer().send("a", first);
    auto alone = out.consumer();
    auto d = alone.try_receive().value();
    is_refused(errc::invalid_argument, [&] { tx.ack(d); });
    CHECK(d.ack());
    is_refused(errc::stale_delivery, [&] { tx.ack(d); });
    is_refused(errc::invalid_argument, [&] { tx.commit_offsets(alone); });
    auto by_itself = w.member(out);
    is_refused(errc::invalid_argument, [&] { tx.commit_offsets(by_itself); });
    consumer_type nobody;
    is_refused(errc::closed, [&] { tx.commit_offsets(nobody); });
    railmq::sim_transaction nowhere;
    is_refused(errc::closed, [&] { nowhere.send(p, "y"); });

    error_code ec;
    CHECK(tx.commit(ec).empty());
    CHECK(ec == errc::sequence_out_of_order); // somebody has appended meanwhile
    CHECK(w.all_in("out") == strings{"0:a"});
}

TEST_CASE("acknowledgements of queues, and of a topic's subscriptions, go with a log's records") {
    world w;
    if (w.durable) {
        return; // subscriptions are not kept yet
    }
    auto topic = w.broker->topic<std::string>("t");
    auto q = w.broker->queue<std::string>("orders");
    auto out = w.log("out");
    auto s = topic.subscribe("s");
    auto late = topic.subscribe("late");
    topic.producer().send("a");
    q.producer().send("b");
    auto c = s.consumer();
    auto c2 = q.consumer();
    auto p = out.producer();
    auto to_topic = topic.producer();
    auto tx = w.broker->begin();
    tx.ack(c.try_receive().value());
    tx.ack(c2.try_receive().value());
    tx.send(p, "x");
    tx.send(to_topic, "again"); // to the topic that it takes from
    CHECK(c.in_flight() == 1);
    CHECK(tx.commit().size() == 2);
    CHECK(c.in_flight() == 0);
    CHECK(c2.in_flight() == 0);
    CHECK(c.try_receive().value().value() == "again");
    auto other = late.consumer();
    CHECK(other.try_receive().value().value() == "a");
    CHECK(other.try_receive().value().value() == "again");
    // Nobody is there to read it any more: it only gets a number.
    w.broker->delete_queue("t.late", true);
    c.close();
    w.broker->delete_queue("t.s", true);
    tx.send(to_topic, "for nobody");
    const auto receipts = tx.commit();
    REQUIRE(receipts.size() == 1);
    CHECK(receipts[0].offset == 2);
}

TEST_CASE("an open transaction holds up neither appends nor readers [B10.1][B10.4]") {
    world w;
    auto out = w.log("out");
    auto p = out.producer();
    auto tx = w.broker->begin();
    tx.send(p, "in the transaction");
    p.send("before it"); // the same producer, beside it
    auto reader = out.consumer();
    CHECK(reader.try_receive().value().value() == "before it");
    tx.commit();
    CHECK(reader.try_receive().value().value() == "in the transaction");
    CHECK(out.end_offset(0) == 2); // there are no marks of transactions, and no gaps
}

TEST_CASE("a commit wakes readers, and a handler of a queue may send to logs with its ack") {
    world w;
    auto q = w.broker->queue<std::string>(
        "orders", {.retry = {.backoff = railmq::constant_backoff{.delay = 1s}}});
    auto out = w.log("out");
    auto p = out.producer();
    int runs = 0;
    auto serving = q.subscribe(
        w.sim.get_executor(), [&](const std::string& order, railmq::sim_transaction& tx) {
            tx.send(p, order);
            if (++runs == 1) {
                throw std::runtime_error{"not yet"};
            }
        });
    q.producer().send("tea");
    auto reader = out.consumer();
    auto d = reader.receive(); // the simulation runs meanwhile
    REQUIRE(d);
    CHECK(d->value() == "tea");
    CHECK(runs == 2);
    w.sim.run_until_idle();
    CHECK(w.all_in("out") == strings{"0:tea"});
    CHECK(q.stats().ready == 0);
}

TEST_CASE("what finds no space, or is too large for a record, happens not at all [T10]") {
    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    railmq::sim_broker broker{
        sim,
        disk.directory(),
        {.journal = {
             .segment_bytes = 64 << 10, .headroom_bytes = 16 << 10, .max_record_bytes = 40'000}}};
    auto in = broker.log<std::string>("in");
    auto out = broker.log<std::string>("out", {.partitions = 2});
    auto bills = broker.queue<std::string>("bills");
    in.producer().send("a");
    auto c = in.consumer({.group = "g"});
    auto d = c.try_receive().value();
    auto p = out.producer();
    auto to_bills = bills.producer();
    auto tx = broker.begin();
    const std::string load(10'000, 'x');
    tx.ack(d);
    tx.send(p, load, append_options{.partition = 0});
    tx.send(p, load, append_options{.partition = 1});
    tx.send(to_bills, load);
    const auto has_happened = [&](std::uint64_t times) {
        CHECK(out.end_offset(0) == times);
        CHECK(out.end_offset(1) == times);
        CHECK(bills.stats().ready == times);
        CHECK(in.committed("g", 0) == times);
    };
    error_code ec;
    SECTION("no space") {
        auto filler = broker.queue<std::string>("filler");
        auto to_filler = filler.producer();
        disk.set_capacity(disk.used() + 200'000);
        while (!ec) {
            to_filler.send(load, ec);
        }
        REQUIRE(ec == errc::no_space);
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::no_space);
        has_happened(0);
        disk.set_capacity(~std::uint64_t{0}); // and then it goes
        CHECK(tx.commit(ec).size() == 3);
        CHECK_FALSE(ec);
        has_happened(1);
    }
    SECTION("too large") {
        tx.send(p, load, append_options{.partition = 1});
        CHECK(tx.commit(ec).empty());
        CHECK(ec == errc::message_too_large);
        has_happened(0);
    }
}

TEST_CASE("whenever the disk ends, all of it is there or nothing [F1][F2]") {
    for (std::uint64_t n = 1; n < 60; ++n) {
        railmq::simulation sim{n};
        railmq::storage::simulated_disk disk{n};
        std::optional<railmq::sim_broker> broker{std::in_place, sim, disk.directory()};
        const auto open = [&](const char* name) {
            return broker->log<std::string>(name, {.partitions = 2});
        };
        auto in = open("in");
        auto out = open("out");
        in.producer().send("a", append_options{.partition = 1});
        auto c = in.consumer({.group = "g"});
        auto d = c.try_receive().value();
        auto p = out.producer();
        auto numbered = out.producer({.producer_id = 1});
        auto to_queue = broker->queue<std::string>("q").producer();
        auto tx = broker->begin();
        tx.ack(d);
        tx.send(p, "x", append_options{.partition = 0});
        tx.send(to_queue, "y");
        tx.send(numbered, "z", append_options{.partition = 1});
        disk.fail_from(railmq::storage::disk_operation::any, n, boost::system::errc::io_error);
        error_code ec;
        (void)tx.commit(ec);
        const bool was_hit = disk.faults_struck() != 0;
        CHECK(bool{ec} == was_hit);
        disk.heal();
        disk.crash();
        broker.reset();
        broker.emplace(sim, disk.directory());
        const std::uint64_t done = open("out").end_offset(0);
        CHECK(done <= 1);
        CHECK((ec || done == 1));
        CHECK(open("out").end_offset(1) == done);
        CHECK(broker->queue<std::string>("q").stats().ready == done);
        CHECK(open("in").committed("g", 1).value_or(0) == done);
        // The number is known if the record is there.
        auto retry = open("out").producer({.producer_id = 1});
        const auto r = retry.send("z", append_options{.partition = 1, .sequence = 0});
        CHECK(r.duplicate_of.has_value() == (done == 1));
        if (!was_hit) {
            break;
        }
    }
}
