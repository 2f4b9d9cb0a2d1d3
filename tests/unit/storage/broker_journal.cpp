// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::duration;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::core::message_image;

namespace {

constexpr journal_options small{
    .segment_bytes = 4096, .headroom_bytes = 1024, .max_record_bytes = 2000};

struct world {
    error_code open(time_point now = time_point{1s}, time_point wall_now = time_point{100h}) {
        error_code ec;
        found = {};
        journal.reset();
        journal = open_broker_journal(
            disk.directory(), small, journal_id{1, 2}, now, wall_now, found, report, ec);
        CHECK((journal != nullptr) == !ec);
        return ec;
    }
    void kill_and_open() {
        error_code ec;
        journal->port().wait(journal->port().last(), reached::written, ec);
        disk.end_process();
        REQUIRE_FALSE(open());
    }
    record_location append() {
        record_location where;
        error_code ec;
        REQUIRE(journal->append(record, where, ec) != 0);
        record.clear();
        return where;
    }
    [[nodiscard]] entry_writer writer() { return entry_writer{record, journal->wall()}; }
    void queue(std::uint64_t number) {
        writer().queue({number, "q" + std::to_string(number), "bytes", {}, 0, 0});
    }
    void store(std::uint64_t queue, std::uint64_t id, std::string_view content) {
        message_image m;
        m.id = m.position = id;
        m.enqueued = time_point{2s};
        entry_writer w = writer();
        w.stored(queue, m, nullptr, nullptr);
        w.payload(std::as_bytes(std::span{content.data(), content.size()}));
    }
    error_code load(std::uint64_t queue, std::uint64_t id, record_location where) {
        error_code ec;
        message_image image;
        payload.clear();
        journal->load(queue, id, {}, where, image, payload, ec);
        return ec;
    }
    [[nodiscard]] std::string text() const {
        return {reinterpret_cast<const char*>(payload.data()), payload.size()};
    }

    simulated_disk disk{1};
    kept_state found{};
    recovery_report report{};
    std::unique_ptr<broker_journal> journal{};
    std::vector<std::byte> record{};
    std::vector<std::byte> payload{};
};

} // namespace

TEST_CASE("broker_journal: messages of one record are loaded in any order") {
    world w;
    REQUIRE_FALSE(w.open());
    w.queue(1);
    for (std::uint64_t i = 0; i < 5; ++i) {
        w.store(1, i, "message " + std::to_string(i));
    }
    w.store(2, 0, "another queue's");
    const record_location where = w.append();
    for (const std::uint64_t i : {0U, 1U, 2U, 4U, 3U, 0U}) {
        REQUIRE_FALSE(w.load(1, i, where));
        CHECK(w.text() == "message " + std::to_string(i));
    }
    REQUIRE_FALSE(w.load(2, 0, where));
    CHECK(w.text() == "another queue's");
    CHECK(w.load(2, 1, where) == errc::journal_corrupt);
    CHECK(w.load(3, 0, where) == errc::journal_corrupt);
}

TEST_CASE("broker_journal: what was only appended is loaded, also right behind what was read") {
    world w;
    REQUIRE_FALSE(w.open());
    w.queue(1);
    w.store(1, 0, "first");
    const record_location first = w.append();
    REQUIRE_FALSE(w.load(1, 0, first)); // reads ahead, into space that is only reserved
    w.store(1, 1, "second");
    const record_location second = w.append();
    REQUIRE(second.segment == first.segment);
    REQUIRE_FALSE(w.load(1, 1, second));
    CHECK(w.text() == "second");
    REQUIRE_FALSE(w.load(1, 0, first));
    CHECK(w.text() == "first");
}

TEST_CASE("broker_journal: a place without a record is reported, whatever it is") {
    world w;
    REQUIRE_FALSE(w.open());
    w.queue(1);
    w.store(1, 0, "first");
    const record_location where = w.append();
    const std::uint64_t segment = where.segment;
    CHECK(w.load(1, 0, {segment, where.offset + 8}) == errc::journal_corrupt);
    CHECK(w.load(1, 0, {segment + 1, where.offset}) == errc::journal_corrupt);
    CHECK(w.load(1, 0, {segment, ~std::uint64_t{0} - 7}) == errc::journal_corrupt);
    CHECK(w.load(1, 0, {0, 0}) == errc::journal_corrupt);
    CHECK(w.load(1, 0, {segment, 1U << 30U}) == errc::journal_corrupt);
    REQUIRE_FALSE(w.load(1, 0, where));
    CHECK(w.text() == "first");
}

TEST_CASE("broker_journal: damage is an error once what was read before is read anew") {
    world w;
    REQUIRE_FALSE(w.open());
    w.queue(1);
    w.store(1, 0, "first");
    const record_location where = w.append();
    w.store(1, 1, "second");
    const record_location second = w.append();
    w.kill_and_open();
    w.disk.corrupt(segment_name(where.segment), where.offset + 50, std::byte{1});
    CHECK(w.load(1, 0, where) == errc::journal_corrupt);
    CHECK_FALSE(w.load(1, 1, second));
}

TEST_CASE("broker_journal: a disk that cannot be read is an I/O error, and passes") {
    world w;
    REQUIRE_FALSE(w.open());
    w.queue(1);
    w.store(1, 0, "first");
    const record_location where = w.append();
    w.kill_and_open();
    w.disk.fail(disk_operation::open, 1, boost::system::errc::too_many_files_open);
    CHECK(w.load(1, 0, where) == errc::io_error);
    w.disk.fail(disk_operation::read, 1, boost::system::errc::io_error);
    CHECK(w.load(1, 0, where) == errc::io_error);
    CHECK_FALSE(w.load(1, 0, where));
}

TEST_CASE("broker_journal: usage is what is found and what changes") {
    world w;
    REQUIRE_FALSE(w.open());
    w.queue(1);
    w.store(1, 0, std::string(100, 'x'));
    w.store(1, 1, std::string(100, 'x'));
    const record_location where = w.append();
    CHECK(w.journal->used(where.segment).messages == 0); // who appends says it
    w.kill_and_open();
    const auto used = w.journal->used(where.segment);
    CHECK(used.messages == 2);
    CHECK(used.bytes > 200);
    CHECK(used.bytes < 300);
    std::vector<usage_change> changes;
    const kept_at where_one{where, 120};
    count_usage(changes, where_one, -1);
    count_usage(changes, where_one, -1);
    CHECK(changes.size() == 1);
    w.journal->change_usage(changes);
    CHECK(w.journal->used(where.segment).messages == 0);
    w.journal->forget_usage(where.segment);
    CHECK(w.journal->used(where.segment).bytes == 0);
}

TEST_CASE("broker_journal: a wall clock that was set back stands still") {
    world w;
    REQUIRE_FALSE(w.open(time_point{5s}, time_point{100h}));
    CHECK(w.journal->wall() == 100h - 5s);
    w.kill_and_open(); // shows 100 h again, and the broker's time begins anew
    CHECK(w.journal->wall() == 100h - 1s);
    w.writer().clock(time_point{1h});
    (void)w.append();
    error_code ec;
    w.journal->port().wait(w.journal->port().last(), reached::written, ec);
    w.disk.end_process();
    REQUIRE_FALSE(w.open(time_point{0s}, time_point{3h}));
    CHECK(w.journal->wall() == 101h - 1s);
}

TEST_CASE("broker_journal: a record that nobody could have written is refused, with its place") {
    world w;
    REQUIRE_FALSE(w.open());
    w.record = {std::byte{99}};
    const record_location where = w.append();
    error_code ec;
    w.journal->port().wait(w.journal->port().last(), reached::written, ec);
    w.disk.end_process();
    CHECK(w.open() == errc::journal_corrupt);
    CHECK(w.report.file == segment_name(where.segment));
    CHECK(w.report.offset == where.offset);
}

TEST_CASE("broker_journal: records are gone through to the end of a segment") {
    world w;
    REQUIRE_FALSE(w.open());
    w.queue(1);
    (void)w.append();
    for (std::uint64_t i = 0; i < 40; ++i) {
        w.store(1, i, std::string(150, 'x'));
        (void)w.append();
    }
    error_code ec;
    record_location at{1, segment_header::size};
    std::size_t data = 0;
    std::vector<std::byte> payload;
    for (int n = 0; at.segment != 0 && n < 1000; ++n) {
        bool is_data = false;
        at = w.journal->next_record(at, payload, is_data, ec);
        REQUIRE_FALSE(ec);
        data += is_data ? 1 : 0;
    }
    CHECK(at.segment == 0);
    CHECK(data > 5);
    CHECK(w.journal->wasted(ec).in_older > 0);
}
