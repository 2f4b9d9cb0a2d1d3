// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/entries.hpp>
#include <railmq/storage/feed_entries.hpp>
#include <railmq/storage/kept_state.hpp>
#include <railmq/storage/stored_contents.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::duration;
using railmq::time_point;
using railmq::core::image_state;
using railmq::core::message_image;

namespace {

constexpr duration wall = 1000s;

[[nodiscard]] feed_definition definition() {
    return {7, 3, 1000, true, {{"region", {"eu", "uk"}}, {"any", {}}}};
}
[[nodiscard]] message_image image(std::uint64_t id) {
    message_image m;
    m.id = m.position = id;
    m.state = image_state::waiting;
    m.delivery_count = 2;
    m.failures.failures = 1;
    m.enqueued = time_point{5s};
    m.due = time_point{9s};
    return m;
}
const fed_messages run{40, 3, time_point{6s}, {{3, 2}, 100}, {5, 4096}, 100};

/// What was read.
struct listing : entry_visitor {
    std::vector<feed_definition> feeds{};
    std::vector<std::uint64_t> numbers{};
    void feed(feed_definition d) { feeds.push_back(std::move(d)); }
    void fed_to(std::uint64_t queue, std::uint32_t partition, std::uint64_t position) {
        numbers.insert(numbers.end(), {queue, partition, position});
    }
    void
    fed(std::uint64_t queue,
        const message_image& m,
        const log_record_name& from,
        record_location where,
        std::uint32_t bytes) {
        CHECK(m.state == image_state::waiting);
        CHECK(m.due == time_point{9s});
        numbers.insert(
            numbers.end(),
            {queue,
             m.id,
             from.where.log,
             from.where.partition,
             from.offset,
             where.segment,
             where.offset,
             bytes});
    }
    void fed_run(std::uint64_t queue, const fed_messages& m) {
        CHECK(m.enqueued == time_point{6s});
        numbers.insert(
            numbers.end(),
            {queue, m.first, m.count, m.from.offset, m.where.segment, m.where.offset, m.bytes});
    }
};
[[nodiscard]] std::vector<std::byte> all_entries() {
    std::vector<std::byte> out;
    feed_entry_writer w{out, wall};
    w.feed(definition());
    w.fed_to(7, 2, 900);
    w.fed(7, image(12), {{3, 2}, 88}, {5, 4096}, 33);
    w.fed_run(7, run);
    return out;
}
[[nodiscard]] bool is_good(const std::vector<std::byte>& record) {
    return read_entries(record, wall, entry_visitor{});
}

/// A record with a queue, a log and what `f` adds.
template <class F>
void add(kept_state& to, std::uint64_t at, F&& f) {
    std::vector<std::byte> record;
    f(record);
    REQUIRE(to.add(record, {1, 8 * at}));
}
[[nodiscard]] kept_state with_a_subscription() {
    kept_state s;
    add(s, 1, [](auto& r) {
        log_entry_writer{r, duration::zero()}.log({3, "t", "int", 3, {.partitions = 3}, {}});
        entry_writer{r, duration::zero()}.queue({7, "t.s", "int", {}, 0, 0});
        feed_entry_writer{r, duration::zero()}.feed(definition());
    });
    return s;
}

} // namespace

TEST_CASE("feed_entries: what was written is read") {
    listing all;
    REQUIRE(read_entries(all_entries(), wall, all));
    CHECK(all.feeds == std::vector{definition()});
    CHECK(
        all.numbers == std::vector<std::uint64_t>{
                           7, 2, 900, 7, 12, 3, 2, 88, 5, 4096, 33, 7, 40, 3, 100, 5, 4096, 100});
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i != run.count; ++i) {
        bytes += run.bytes_of(i);
    }
    CHECK(bytes == run.bytes);
}

TEST_CASE("feed_entries: what is none is refused") {
    const auto whole = all_entries();
    std::size_t good = 0;
    for (std::size_t n = 0; n != whole.size(); ++n) {
        good += is_good({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}) ? 1 : 0;
    }
    CHECK(good == 4); // between the entries, and before them
    const auto with = [](auto&& f) {
        std::vector<std::byte> out;
        f(feed_entry_writer{out, wall});
        return is_good(out);
    };
    const auto changed = [&](auto&& change) {
        return with([&](feed_entry_writer w) {
            fed_messages m = run;
            change(m);
            w.fed_run(7, m);
        });
    };
    CHECK(changed([](auto&) {}));
    CHECK(changed([](auto& m) { m.count = max_fed_run; }));
    CHECK_FALSE(changed([](auto& m) { m.count = max_fed_run + 1; }));
    CHECK_FALSE(changed([](auto& m) { m.count = 0; }));
    CHECK_FALSE(changed([](auto& m) { m.first = ~std::uint64_t{0} - 1; }));
    CHECK_FALSE(changed([](auto& m) { m.from.where.log = 0; }));
    CHECK_FALSE(changed([](auto& m) { m.from.where.partition = 1U << 16U; }));
    CHECK_FALSE(changed([](auto& m) { m.from.offset = max_log_offset; }));
    CHECK_FALSE(changed([](auto& m) { m.where.segment = 0; }));
    CHECK_FALSE(changed([](auto& m) { m.where.offset = 4097; }));
    CHECK_FALSE(with([](feed_entry_writer w) { w.fed_to(7, 1U << 16U, 1); }));
    CHECK_FALSE(with([](feed_entry_writer w) { w.fed_to(7, 0, max_log_offset); }));
    CHECK_FALSE(with([](feed_entry_writer w) {
        auto d = definition();
        d.where.front().name.clear();
        w.feed(d);
    }));
    CHECK_FALSE(is_good({std::byte{32}}));
    CHECK_FALSE(is_good({std::byte{255}}));
}

TEST_CASE("kept_state: messages of a subscription are records of its log") {
    kept_state s = with_a_subscription();
    add(s, 2, [](auto& r) {
        feed_entry_writer w{r, duration::zero()};
        w.fed(7, image(12), {{3, 2}, 88}, {5, 4096}, 33);
        w.fed_run(7, run);
        w.fed_to(7, 2, 103);
        w.fed_to(7, 2, 90); // a round that had begun before
    });
    kept_queue& q = s.queues.at(7);
    CHECK(q.messages.size() == 4);
    CHECK(q.record_of(12) == log_record_name{{3, 2}, 88});
    CHECK(q.record_of(42) == log_record_name{{3, 2}, 102});
    CHECK(q.record_of(43).is_none());
    CHECK(q.messages.find(12)->image(12).state == image_state::waiting);
    CHECK(q.messages.find(41)->where.location() == record_location{5, 4096});
    CHECK(q.feed->positions == std::map<std::uint32_t, std::uint64_t>{{2, 103}});
    CHECK(s.logs.at(3).partitions.at(2).extent.end == 103);
    CHECK(q.definition.next_position == 43);
    add(s, 3, [](auto& r) {
        entry_writer w{r, duration::zero()};
        w.gone(7, 40, 1);
        w.stored(7, image(41), nullptr, nullptr); // its segment had to go
        w.payload({});
        w.changed(7, image(42));
    });
    CHECK(q.messages.size() == 3);
    CHECK(q.record_of(40).is_none());
    CHECK(q.record_of(41).is_none());
    CHECK(q.messages.find(41)->where.location() == record_location{1, 24});
    CHECK_FALSE(q.record_of(42).is_none());
    add(s, 4, [](auto& r) { entry_writer{r, duration::zero()}.range(7, 0, 100, 0); });
    CHECK(q.messages.size() == 0);
    CHECK(q.records.empty());
}

TEST_CASE("kept_state: a subscription lives no longer than its log") {
    kept_state s = with_a_subscription();
    add(s, 2, [](auto& r) {
        entry_writer{r, duration::zero()}.queue({8, "t.dead", "int", {}, 0, 0});
    });
    SECTION("it is deleted") {
        add(s, 3, [](auto& r) { log_entry_writer{r, duration::zero()}.deleted(3); });
    }
    SECTION("it is listed once more by a round that had begun before") {
        add(s, 3, [](auto& r) { log_entry_writer{r, duration::zero()}.deleted(3); });
        add(s, 4, [](auto& r) {
            entry_writer{r, duration::zero()}.queue({7, "t.s", "int", {}, 0, 0});
            feed_entry_writer{r, duration::zero()}.feed(definition());
        });
        CHECK(s.queues.contains(7));
        add(s, 5, [](auto& r) { feed_entry_writer{r, duration::zero()}.fed_to(7, 0, 1); });
        s.remove_orphans();
    }
    SECTION("nothing says where it begins, since it was just being made") {
        s.remove_orphans();
    }
    CHECK_FALSE(s.queues.contains(7));
    CHECK(s.queues.contains(8));
    CHECK(s.last_queue == 8);
}

TEST_CASE("kept_state: a subscription that has begun, or has messages, stays") {
    kept_state s = with_a_subscription();
    add(s, 2, [](auto& r) {
        feed_entry_writer w{r, duration::zero()};
        w.fed_to(7, 0, 0);
    });
    s.remove_orphans();
    CHECK(s.queues.contains(7));
}

TEST_CASE("stored_contents: a record of a log is the content of a message") {
    std::vector<std::byte> record;
    log_entry_writer l{record, duration::zero()};
    l.run({3, 2}, 100, 3, time_point{1s});
    const auto payload = [&](const char* text) {
        wire_writer w{record};
        w.text(text);
    };
    wire_writer w{record};
    wire::put_run_record(w, std::nullopt, std::nullopt, nullptr, false);
    payload("plain");
    const railmq::properties p{.correlation_id = "c"};
    wire::put_run_record(w, "key", std::nullopt, &p, false);
    payload("keyed");
    wire::put_run_record(w, "key", std::nullopt, nullptr, true);
    stored_contents contents;
    REQUIRE(contents.read(record));
    const auto text_of = [](const stored_content& c) {
        return std::string{reinterpret_cast<const char*>(c.payload.data()), c.payload.size()};
    };
    const stored_content* c = contents.find(7, 1, {{3, 2}, 100});
    REQUIRE(c != nullptr);
    CHECK(text_of(*c) == "plain");
    CHECK(c->has == 0);
    c = contents.find(log_record_name{{3, 2}, 101});
    REQUIRE(c != nullptr);
    CHECK(text_of(*c) == "keyed");
    message_image m;
    REQUIRE(read_beside(*c, duration::zero(), m));
    CHECK(m.props->key == "key");
    CHECK(m.props->correlation_id == "c");
    CHECK(contents.find(log_record_name{{3, 2}, 102}) == nullptr); // a tombstone is no message
    CHECK(contents.find(log_record_name{{3, 2}, 103}) == nullptr);
    CHECK(contents.find(log_record_name{{3, 2}, 99}) == nullptr);
    CHECK(contents.find(log_record_name{{3, 1}, 100}) == nullptr);
    CHECK(contents.find(7, 1, {}) == nullptr);
}
