// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/group_offsets.hpp>

#include "support/catch.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::duration;
using railmq::errc;
using railmq::group_options;
using railmq::never;
using railmq::offset_reset;
using railmq::time_point;
using railmq::core::committed_offset;
using railmq::core::generation_type;
using railmq::core::group_coordinator;
using railmq::core::group_decision_list;
using railmq::core::group_offsets;
using railmq::core::lag;
using railmq::core::log_offset;
using railmq::core::member_id;
using railmq::core::nobody;
using railmq::core::offset_commit;
using railmq::core::partition_list;
using railmq::core::rewinding;
using railmq::core::starting_position;
using railmq::core::topic_id;
using railmq::core::topic_partition;

namespace {

constexpr topic_id orders{1};
constexpr topic_id drinks{2};
constexpr topic_partition p0{orders, 0};
constexpr topic_partition p1{orders, 1};

/// A group with its offsets and its clock.
struct committing_group {
    explicit committing_group(group_options o = {.offset_retention = 1min})
        : coordinator{std::move(o)} {
        coordinator.set_partitions(orders, 2, now, out);
        coordinator.set_partitions(drinks, 1, now, out);
    }

    member_id join(std::vector<topic_id> topics = {orders}) {
        const auto joined =
            coordinator.join({.session_timeout = 24h, .max_poll_interval = 24h}, topics, now, out);
        REQUIRE(joined.error == errc{});
        return joined.member;
    }
    generation_type generation(member_id m) { return coordinator.find(m)->generation; }
    errc confirm(member_id m) { return coordinator.confirm_revoked(m, generation(m), now, out); }
    errc leave(member_id m) { return coordinator.leave(m, now, out); }
    errc subscribe(member_id m, std::vector<topic_id> topics) {
        return coordinator.subscribe(m, generation(m), topics, now, out);
    }

    /// The first thing that goes wrong, of the commit or of the partition.
    errc commit(
        member_id m,
        generation_type g,
        topic_partition p,
        log_offset offset,
        std::string metadata = {},
        rewinding back = rewinding::refused) {
        const std::vector<offset_commit> what{{p, offset, metadata}};
        std::vector<errc> results(1, errc::io_error);
        const errc e = offsets.commit(coordinator, m, g, what, results, back, now, out);
        REQUIRE((e == errc{} || results[0] == e));
        return results[0];
    }
    [[nodiscard]] std::optional<log_offset> committed(topic_partition p) const {
        const committed_offset* const o = offsets.find(p);
        return o == nullptr ? std::nullopt : std::optional{o->offset};
    }
    partition_list expire() {
        partition_list gone;
        offsets.expire(coordinator, now, gone);
        return gone;
    }

    group_coordinator coordinator;
    group_offsets offsets{};
    time_point now{};
    group_decision_list out{};
};

} // namespace

TEST_CASE("group_offsets: [V04] what was never committed is nothing, and no error") {
    committing_group g;
    CHECK(g.offsets.find(p0) == nullptr);
    CHECK(g.offsets.size() == 0);
    CHECK(g.offsets.next_deadline(g.coordinator) == never);
    CHECK(g.expire().empty());
}

TEST_CASE("group_offsets: what is committed is kept, with its text and its time") {
    committing_group g;
    const member_id a = g.join();
    g.now += 5s;
    CHECK(g.commit(a, 1, p0, 7, "node 3") == errc{});
    REQUIRE(g.offsets.find(p0) != nullptr);
    CHECK(g.offsets.find(p0)->offset == 7);
    CHECK(g.offsets.find(p0)->metadata == "node 3");
    CHECK(g.offsets.find(p0)->at == g.now);
    CHECK(g.commit(a, 1, p0, 9) == errc{});
    CHECK(g.offsets.find(p0)->metadata.empty());
    CHECK(g.committed(p0) == 9);
}

TEST_CASE("group_offsets: [BR17] whoever has lost a partition does not move its offset") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p1, 10) == errc{});
    const member_id b = g.join();
    REQUIRE(g.confirm(a) == errc{});
    REQUIRE(g.coordinator.owner_of(p1) == b);
    CHECK(g.commit(b, 3, p1, 41) == errc{});

    CHECK(g.commit(a, 1, p1, 10) == errc::fenced);
    CHECK(g.commit(a, 1, p1, 99) == errc::fenced);
    CHECK(g.commit(a, 3, p1, 99) == errc::fenced); // the right generation, the wrong partition
    CHECK(g.commit(a, 3, p1, 10, {}, rewinding::allowed) == errc::fenced);
    CHECK(g.committed(p1) == 41);
    CHECK(g.leave(a) == errc{});
    CHECK(g.commit(a, 3, p1, 99) == errc::unknown_member);
    CHECK(g.committed(p1) == 41);
}

TEST_CASE("group_offsets: [V01] [V02] who may commit") {
    committing_group g;
    CHECK(g.commit(member_id{1}, 1, p0, 5) == errc::fenced); // nobody knows that group
    CHECK(g.commit(nobody, 0, p0, 5) == errc{});
    const member_id a = g.join();
    CHECK(g.commit(nobody, 0, p0, 6) == errc::unknown_member);
    CHECK(g.commit(a, 0, p0, 6) == errc::fenced);
    CHECK(g.commit(a, 2, p0, 6) == errc::fenced);
    CHECK(g.committed(p0) == 5);
    CHECK(g.commit(a, 1, p0, 6) == errc{});
    CHECK(g.leave(a) == errc{});
    CHECK(g.commit(nobody, 0, p0, 7) == errc{});
    CHECK(g.committed(p0) == 7);
}

TEST_CASE("group_offsets: [V03] no commit while everybody is stopped, but before letting go") {
    committing_group g{{.assignor = railmq::assignor::range}};
    const member_id a = g.join();
    const member_id b = g.join();
    const member_id c = g.join();
    REQUIRE(g.coordinator.find(a)->revoking.size() == 2);
    CHECK(g.commit(a, 1, p0, 5) == errc{});
    CHECK(g.confirm(a) == errc{});
    CHECK(g.coordinator.state() == railmq::core::group_state::stable);
    CHECK(g.commit(b, 2, p1, 5) == errc{});
    CHECK(g.commit(c, 2, p1, 6) == errc::fenced); // it has none
    const member_id d = g.join();
    CHECK(g.confirm(a) == errc{});
    CHECK(g.commit(a, 2, p0, 8) == errc::rebalance_in_progress);
    CHECK(g.commit(d, 0, p0, 8) == errc::rebalance_in_progress);
    CHECK(g.committed(p0) == 5);
}

TEST_CASE("group_offsets: [B9.5] a commit does not go back unless it says so") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 10) == errc{});
    CHECK(g.commit(a, 1, p0, 9) == errc::invalid_argument);
    CHECK(g.committed(p0) == 10);
    CHECK(g.commit(a, 1, p0, 10) == errc{});
    CHECK(g.commit(a, 1, p0, 9, {}, rewinding::allowed) == errc{});
    CHECK(g.committed(p0) == 9);
    CHECK(g.offsets.reset(g.coordinator, p0, 3, g.now) == errc::in_use);
    CHECK(g.leave(a) == errc{});
    CHECK(g.commit(nobody, 0, p0, 3) == errc::invalid_argument);
    CHECK(g.offsets.reset(g.coordinator, p0, 3, g.now) == errc{});
    CHECK(g.committed(p0) == 3);
}

TEST_CASE("group_offsets: a commit is taken back as if it had not been") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 10, "text") == errc{});
    std::optional<committed_offset> before = *g.offsets.find(p0);
    std::optional<committed_offset> none;
    CHECK(g.commit(a, 1, p0, 12) == errc{});
    CHECK(g.commit(a, 1, p1, 3) == errc{});
    g.offsets.put_back(p0, before);
    g.offsets.put_back(p1, none);
    CHECK(g.committed(p0) == 10);
    CHECK(g.offsets.find(p0)->metadata == "text");
    CHECK(g.committed(p1) == std::nullopt);
    g.offsets.put_back(p1, none); // there is nothing
    CHECK(g.offsets.size() == 1);
}

TEST_CASE("group_offsets: [V10] a group that was reset begins again") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 5) == errc{});
    CHECK(g.leave(a) == errc{});
    CHECK(g.offsets.reset(g.coordinator, p0, 0, g.now) == errc{});
    const auto [e, position] =
        starting_position(g.offsets.find(p0), offset_reset::latest, {.first = 0, .end = 5});
    CHECK(e == errc{});
    CHECK(position == 0);
    CHECK(lag(g.offsets.find(p0), {.first = 0, .end = 5}) == 5);
}

TEST_CASE("group_offsets: [V07] text that is too long fails its own partition only") {
    committing_group g{{.max_metadata_bytes = 4}};
    const member_id a = g.join();
    const std::vector<offset_commit> what{{p0, 5, "12345"}, {p1, 6, "1234"}, {{drinks, 0}, 7, {}}};
    std::vector<errc> results(3);
    CHECK(
        g.offsets.commit(g.coordinator, a, 1, what, results, rewinding::refused, g.now, g.out) ==
        errc{});
    CHECK(results == std::vector<errc>{errc::message_too_large, errc{}, errc::fenced});
    CHECK_FALSE(g.committed(p0));
    CHECK(g.committed(p1) == 6);
}

TEST_CASE("group_offsets: [V05] an offset is not deleted under its readers") {
    committing_group g;
    const topic_partition tea{drinks, 0};
    const member_id a = g.join({orders, drinks});
    CHECK(g.commit(a, 1, p0, 5) == errc{});
    CHECK(g.commit(a, 1, tea, 5) == errc{});
    CHECK(g.subscribe(a, {orders}) == errc{});
    CHECK(g.offsets.erase(g.coordinator, p0) == errc::in_use);
    CHECK(g.offsets.erase(g.coordinator, tea) == errc{});
    CHECK(g.offsets.erase(g.coordinator, tea) == errc::not_found);
    CHECK(g.committed(p0) == 5);
    CHECK_FALSE(g.committed(tea));
}

TEST_CASE("group_offsets: [U13] a group is not deleted under its members") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 5) == errc{});
    CHECK(g.offsets.clear(g.coordinator) == errc::in_use);
    CHECK(g.offsets.size() == 1);
    CHECK(g.leave(a) == errc{});
    CHECK(g.offsets.clear(g.coordinator) == errc{});
    CHECK(g.offsets.size() == 0);
}

TEST_CASE("group_offsets: a topic that is deleted takes its offsets along") {
    committing_group g;
    const member_id a = g.join({orders, drinks});
    CHECK(g.commit(a, 1, p0, 5) == errc{});
    CHECK(g.commit(a, 1, p1, 5) == errc{});
    CHECK(g.commit(a, 1, {drinks, 0}, 5) == errc{});
    CHECK(g.offsets.erase_topic(orders) == 2);
    CHECK(g.offsets.erase_topic(orders) == 0);
    CHECK(g.offsets.size() == 1);
}

TEST_CASE(
    "group_offsets: [V06] offsets expire at exactly their age, unless they are subscribed to") {
    committing_group g;
    const member_id a = g.join({orders, drinks});
    const time_point committed = g.now;
    CHECK(g.commit(a, 1, p0, 100) == errc{});
    CHECK(g.commit(a, 1, {drinks, 0}, 200) == errc{});
    g.now += 500ms;
    CHECK(g.commit(a, 1, p1, 101) == errc{});
    CHECK(g.offsets.next_deadline(g.coordinator) == never); // all are subscribed to
    CHECK(g.subscribe(a, {drinks}) == errc{});
    CHECK(g.confirm(a) == errc{});
    CHECK(g.offsets.next_deadline(g.coordinator) == committed + 1min);

    g.now = committed + 1min - 1ns;
    CHECK(g.expire().empty());
    g.now = committed + 1min;
    CHECK(g.expire() == partition_list{p0});
    CHECK(g.offsets.next_deadline(g.coordinator) == committed + 1min + 500ms);
    g.now = committed + 1min + 500ms - 1ns;
    CHECK(g.expire().empty());
    g.now += 1ns;
    CHECK(g.expire() == partition_list{p1});
    g.now += 24h - 5min;
    CHECK(g.expire().empty());
    CHECK(g.committed({drinks, 0}) == 200);
    CHECK(g.offsets.next_deadline(g.coordinator) == never);
}

TEST_CASE("group_offsets: when the last member goes the time counts from then") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 5) == errc{});
    g.now += 1h; // nothing is sent, and nothing committed
    CHECK(g.leave(a) == errc{});
    CHECK(g.offsets.next_deadline(g.coordinator) == g.now + 1min);
    g.now += 1min - 1ns;
    CHECK(g.expire().empty());
    CHECK(g.commit(nobody, 0, p1, 6) == errc{});
    g.now += 1ns;
    CHECK(g.expire() == partition_list{p0});
    CHECK(g.offsets.next_deadline(g.coordinator) == g.now + 1min - 1ns);
}

TEST_CASE("group_offsets: who comes back in time finds everything") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 5) == errc{});
    CHECK(g.leave(a) == errc{});
    g.now += 59s;
    g.join();
    g.now += 1h;
    CHECK(g.expire().empty());
    CHECK(g.committed(p0) == 5);
}

TEST_CASE("group_offsets: what a journal kept is there, and expires like the rest") {
    committing_group g;
    g.offsets.restore(p0, {.offset = 40, .metadata = "x", .at = g.now});
    CHECK(g.committed(p0) == 40);
    CHECK(g.offsets.next_deadline(g.coordinator) == g.now + 1min);
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 39) == errc::invalid_argument);
}

TEST_CASE("group_offsets: [D65] whoever comes after a crash begins at what was committed") {
    committing_group g;
    const member_id a = g.join();
    CHECK(g.commit(a, 1, p0, 45) == errc{}); // it has processed up to 49
    CHECK(g.leave(a) == errc{});
    const auto [e, position] =
        starting_position(g.offsets.find(p0), offset_reset::latest, {.first = 0, .end = 50});
    CHECK(e == errc{});
    CHECK(position == 45);
}

TEST_CASE("group_offsets: [D66] [D67] [B8.3] where a group begins") {
    const railmq::core::log_extent log{.first = 100, .end = 10'100};
    using result = std::pair<errc, log_offset>;
    const result earliest{errc{}, 100};
    const result latest{errc{}, 10'100};
    const result refused{errc::offset_out_of_range, 0};
    CHECK(starting_position(nullptr, offset_reset::earliest, log) == earliest);
    CHECK(starting_position(nullptr, offset_reset::latest, log) == latest);
    CHECK(starting_position(nullptr, offset_reset::none, log) == refused);

    committed_offset at{.offset = 5'000};
    for (const auto r : {offset_reset::earliest, offset_reset::latest, offset_reset::none}) {
        for (const log_offset o : {100U, 5'000U, 10'100U}) {
            at.offset = o;
            CHECK(starting_position(&at, r, log) == result{errc{}, o});
        }
    }
    for (const log_offset gone : {99U, 10'101U}) { // retention was faster, or the log was cut
        at.offset = gone;
        CHECK(starting_position(&at, offset_reset::earliest, log) == earliest);
        CHECK(starting_position(&at, offset_reset::latest, log) == latest);
        CHECK(starting_position(&at, offset_reset::none, log) == refused);
    }
}

TEST_CASE("group_offsets: [V08] [V09] [D68] lag") {
    const auto behind = [](log_offset offset, const railmq::core::log_extent& log) {
        const committed_offset at{.offset = offset};
        return lag(&at, log);
    };
    CHECK(behind(1'320, {.first = 0, .end = 1'500}) == 180);
    CHECK(behind(0, {.first = 0, .end = 5}) == 5);
    CHECK(behind(1, {.first = 0, .end = 5}) == 4);
    CHECK(behind(5, {.first = 0, .end = 5}) == 0);
    CHECK(behind(5, {.first = 0, .end = 6}) == 1);
    CHECK(behind(9, {.first = 0, .end = 6}) == 0);
    CHECK(lag(nullptr, {.first = 0, .end = 6}) == std::nullopt);
    // Holes ahead; behind the reader they do not matter, and not when all is read.
    CHECK(behind(1, {.first = 0, .end = 5, .dense_from = 3}) == std::nullopt);
    CHECK(behind(3, {.first = 0, .end = 5, .dense_from = 3}) == 2);
    CHECK(behind(5, {.first = 0, .end = 5, .dense_from = 5}) == 0);
    // The oldest are gone, and the reader has not read them.
    CHECK(behind(1, {.first = 3, .end = 5}) == 2);
    CHECK(behind(1, {.first = 3, .end = 5, .dense_from = 3}) == 2);
    CHECK(behind(1, {.first = 5, .end = 5}) == 0);
}
