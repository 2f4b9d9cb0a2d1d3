// SPDX-License-Identifier: BSL-1.0
//
// The format, byte by byte: what version 1 has written, every later version must open, and as long
// as it is version 1, the same calls write the same bytes.
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::core::image_state;
using railmq::core::message_image;

namespace {

// One segment: header, `opened`, data records of every kind of entry, `closed`.
constexpr std::string_view version_1 =
    "52414c4d514a4c310100000000000000887766554433221100ffeeddccbbaa990100000000000000"
    "0100000000000000010000000000000000000000c88c36b84fee3b15000000000000000002000000"
    "0100000000000000010000000000000000000000000000008ebc3a73090000001b809c6d01000000"
    "0200000000000000010000000000000001000000000000000100a0b8304603000000000000000000"
    "2b28a752ba000000f5a4aa4701000000030000000000000001000000000000000100000000000000"
    "02010171056279746573030000000000ac23fc060000001000030000ca9a3b000000000000000000"
    "00004000b864d9450000000100000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000020204676f6e65056279746573000000000000ac23fc06000000100003"
    "0000ca9a3b00000000000000000000004000b864d945000000010000000000000000000000000000"
    "00000000000004ac0201005847f80d00000000b864d945000000000000000000f51070f96c000000"
    "a73073b20100000004000000000000000100000000000000010000000000000004010003000092be"
    "5a4703000003560000000001036b657900c80100000000000000000000046f6e6365000001046e61"
    "6d650576616c75650001056f746865720700c8231f4703000001056f74686572070100c8231f4703"
    "000000c8231f470300000000000000000361626300000000b0bced075a000000f9b1264701000000"
    "05000000000000000100000000000000010000000000000004010004000092be5a47030000000361"
    "62630601030201005c5996470300000501c40d04010092be5a47030000010000005c599647030000"
    "00ba294948030000005ed0b20000000003020e01046f6e6365030092be5a47030000000000000000"
    "2675a95a1800000049793e3101000000060000000000000001000000000000000100000000000000"
    "08010304010003000092be5a47030000018803780701010206e892d608000000adcf14c503000000"
    "0700000000000000010000000000000006000000000000000100000000000000";

std::string hex_of(std::span<const std::byte> bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (const std::byte b : bytes) {
        const auto n = std::to_integer<unsigned>(b);
        out += digits[n >> 4U];
        out += digits[n & 15U];
    }
    return out;
}
std::vector<std::byte> bytes_of(std::string_view hex) {
    const auto digit = [](char c) {
        return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    };
    std::vector<std::byte> out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        out.push_back(static_cast<std::byte>(digit(hex[i]) << 4U | digit(hex[i + 1])));
    }
    return out;
}

std::unique_ptr<broker_journal>
open_on(simulated_disk& disk, kept_state& found, recovery_report& report, error_code& ec) {
    return open_broker_journal(
        disk.directory(),
        {.segment_bytes = 4096, .headroom_bytes = 512},
        journal_id{0x1122334455667788U, 0x99aabbccddeeff00U},
        time_point{0s},
        time_point{1h},
        found,
        report,
        ec);
}
void put(simulated_disk& disk, std::span<const std::byte> bytes) {
    error_code ec;
    auto directory = disk.directory();
    auto file = directory.open(segment_name(1), open_mode::create, ec);
    (void)write_at(file, 0, bytes, ec);
    file.sync_data(ec);
    directory.sync(ec);
    REQUIRE_FALSE(ec);
}

} // namespace

TEST_CASE("golden: version 1 is written as it always was") {
    simulated_disk disk{1};
    kept_state found;
    recovery_report report;
    error_code ec;
    auto j = open_on(disk, found, report, ec);
    REQUIRE_FALSE(ec);
    std::vector<std::byte> record;
    record_location where;
    const auto append = [&] {
        REQUIRE(j->append(record, where, ec) != 0);
        record.clear();
    };
    message_image m;
    m.id = m.position = 3;
    m.enqueued = time_point{5s};
    const std::byte payload[] = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
    {
        entry_writer w{record, j->wall()};
        w.queue({1, "q", "bytes", {}, 3, 0});
        w.queue(
            {2,
             "gone",
             "bytes",
             {.priorities = 4,
              .max_overtakes = 300,
              .time_to_live = 1min,
              .deduplication_window = 5min},
             0,
             0});
        append();
    }
    {
        railmq::properties p;
        p.key = "key";
        p.priority = 200;
        p.deduplication_id = "once";
        p.headers = {{"name", "value"}};
        railmq::death_history deaths;
        railmq::death d;
        d.queue = "other";
        d.reason = railmq::death_reason::expired;
        d.last_at = time_point{4s};
        deaths.record(d);
        entry_writer w{record, j->wall()};
        w.stored(1, m, &p, &deaths);
        w.payload(payload);
        append();
    }
    const record_location first = where;
    {
        entry_writer w{record, j->wall()};
        m.id = m.position = 4;
        w.stored(1, m, nullptr, nullptr);
        w.payload(payload);
        w.held(1, 3, 2, 1, time_point{6s});
        m.state = image_state::waiting;
        m.delivery_count = 1;
        m.failures.failures = 1;
        m.first_handed_out = time_point{6s};
        m.due = time_point{9s};
        m.previous_wait = 3s;
        w.changed(1, m);
        w.deleted(2);
        w.remembered(1, "once", 3, time_point{5s});
        append();
        w.range(1, 3, 4, 1);
        m = {};
        m.id = m.position = 3;
        m.enqueued = time_point{5s};
        w.listed(m, first, 120);
        w.gone(1, 1, 2);
        append();
    }
    j->port().close(ec);
    REQUIRE_FALSE(ec);
    const auto file = disk.contents(segment_name(1));
    const std::size_t length = version_1.size() / 2;
    REQUIRE(file.size() >= length);
    CHECK(hex_of(file.first(length)) == version_1);
    CHECK(std::ranges::all_of(file.subspan(length), [](std::byte b) { return b == std::byte{}; }));
}

TEST_CASE("golden: version 1 is opened") {
    simulated_disk disk{1};
    put(disk, bytes_of(version_1));
    kept_state found;
    recovery_report report;
    error_code ec;
    auto j = open_on(disk, found, report, ec);
    REQUIRE_FALSE(ec);
    CHECK(report.was_closed);
    REQUIRE(found.queues.size() == 1);
    kept_queue& q = found.queues.at(1);
    CHECK(q.definition.name == "q");
    CHECK(q.definition.next_position == 5);
    REQUIRE(q.messages.size() == 2);
    const message_image waiting = q.messages.find(4)->image(4);
    CHECK(waiting.state == image_state::waiting);
    CHECK(waiting.due == time_point{1h + 9s});
    CHECK(waiting.previous_wait == 3s);
    const kept_message& first = *q.messages.find(3);
    message_image image = first.image(3);
    CHECK(image.state == image_state::in_line);
    std::vector<std::byte> payload;
    j->load(1, 3, {}, first.where.location(), image, payload, ec);
    REQUIRE_FALSE(ec);
    CHECK(hex_of(payload) == "616263");
    CHECK(image.props->key == "key");
    CHECK(image.props->priority == 200);
    CHECK(image.props->deduplication_id == "once");
    REQUIRE(q.remembered.size() == 1);
    CHECK(q.remembered.at("once").id == 3);
    CHECK(q.remembered.at("once").at == time_point{1h + 5s});
    REQUIRE(image.deaths->entries().size() == 1);
    CHECK(image.deaths->entries()[0].queue == "other");
}

TEST_CASE("golden: a later version and an unknown feature are refused, and nothing is changed") {
    const std::size_t at = GENERATE(8U, 12U, 15U);
    std::vector<std::byte> later = bytes_of(version_1);
    REQUIRE(later.size() > segment_header::size);
    later[at] ^= std::byte{2};
    format::store(later.data() + 60, crc32c{std::span{later}.first(60)}.value());
    simulated_disk disk{1};
    put(disk, later);
    kept_state found;
    recovery_report report;
    error_code ec;
    CHECK(open_on(disk, found, report, ec) == nullptr);
    CHECK(ec == errc::invalid_argument);
    CHECK(std::ranges::equal(disk.contents(segment_name(1)), later));
    CHECK(found.queues.empty());
}
