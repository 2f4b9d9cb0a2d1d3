// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/errc.hpp>
#include <railmq/testing/history_json.hpp>

#include "support/catch.hpp"
#include "unit/testing/events.hpp"

#include <boost/json/src.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace railmq::test::events;
using railmq::death_reason;
using railmq::testing::from_jsonl;
using railmq::testing::to_jsonl;

namespace {

/// Nothing in it has its default.
event full() {
    event e;
    e.kind = event_kind::dead_lettered;
    e.queue = "a \"quoted\"\nqueue \xc3\xa9";
    e.message = std::numeric_limits<std::uint64_t>::max();
    e.consumer = 3;
    e.at = at(-5ns);
    e.id = 1ULL << 63;
    e.key = "";
    e.delivery_count = 4;
    e.failure_count = 0;
    e.redelivered = false;
    e.deadline = at(0s);
    e.ready_at = at(7s);
    e.expires_at = railmq::time_point::min();
    e.target = "t";
    e.reason = death_reason::undecodable;
    e.level = confirm_level::accepted;
    e.crash = crash_kind::power;
    e.partition = 6;
    e.offset = 0;
    return e;
}

} // namespace

TEST_CASE("history json: a line has what differs from the defaults") {
    CHECK(to_jsonl(event{}) == "{\"kind\":\"send begun\"}\n");
    CHECK(
        to_jsonl(ack(7, 1, 2ns)) ==
        "{\"kind\":\"acked\",\"queue\":\"q\",\"message\":7,\"consumer\":1,\"at\":2}\n");
}

TEST_CASE("history json: what is written is read again") {
    std::vector<event> all{full(), event{}};
    for (int n = 0; n <= static_cast<int>(event_kind::remaining); ++n) {
        all.push_back(plain(static_cast<event_kind>(n), 1, 1s));
    }
    for (int n = 1; n <= static_cast<int>(death_reason::undecodable); ++n) {
        all.push_back(dead(1, static_cast<death_reason>(n), 1s));
    }
    CHECK(from_jsonl(to_jsonl(all)) == all);
    CHECK(from_jsonl("").empty());
}

TEST_CASE("history json: a line that was cut off is left out, wherever it was cut") {
    const std::string whole = to_jsonl(sent(1));
    const std::string last = to_jsonl(full());
    for (std::size_t n = 0; n < last.size(); ++n) {
        CHECK(from_jsonl(whole + last.substr(0, n)) == std::vector{sent(1)});
    }
    CHECK(from_jsonl(whole + last).size() == 2);
}

TEST_CASE("history json: what is no event is refused, with the number of its line") {
    const auto refused_at = [](std::string_view line) {
        try {
            (void)from_jsonl(to_jsonl(sent(1)) + std::string{line} + "\n");
        } catch (const railmq::system_error& e) {
            return e.code() == railmq::errc::invalid_argument &&
                   std::string_view{e.what()}.find("line 2 ") != std::string_view::npos;
        }
        return false;
    };
    CHECK(refused_at(""));
    CHECK(refused_at("{\"kind\":\"acked\""));
    CHECK(refused_at("[]"));
    CHECK(refused_at("7"));
    CHECK(refused_at("{}"));
    CHECK(refused_at("{\"kind\":7}"));
    CHECK(refused_at("{\"kind\":\"eaten\"}"));
    CHECK(refused_at("{\"kind\":\"unknown kind of event\"}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"misspelt\":7}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"message\":-7}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"message\":7.0}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"message\":\"7\"}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"delivery_count\":4294967296}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"redelivered\":1}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"queue\":null}"));
    CHECK(refused_at("{\"kind\":\"acked\",\"at\":9223372036854775808}"));
}

TEST_CASE("history json: a parent reads what a child wrote before it died") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const std::string text = to_jsonl({sent(1), out(1, 1, 1, 1s)}) + "{\"kind\":\"ac";
        const auto written = ::write(ends[1], text.data(), text.size());
        ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    std::string text;
    char buffer[256];
    for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    CHECK(from_jsonl(text) == std::vector{sent(1), out(1, 1, 1, 1s)});
}
