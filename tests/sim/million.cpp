// SPDX-License-Identifier: BSL-1.0
//
// A million messages through a simulated broker, ten consumers, one handler call in a hundred
// fails, retries with jitter. Every notice goes into one hash: the seed decides it, and nothing
// else does, on any compiler.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/trace.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
namespace notices = railmq::notices;

namespace {

/// FNV-1a, 64 bits, over the fields of each notice one after another:
///
/// - the kind: the notice's place in `railmq::notice`, one byte;
/// - queue, at, id, as in `notices::event`;
/// - then the kind's own fields, in the order of their declaration.
///
/// A number is eight bytes, the lowest first, whatever its type; a time is its count of
/// nanoseconds; a text is its length, as a number, and its bytes; an error is its value.
class trace {
public:
    void add(const railmq::notice& n) {
        byte(static_cast<std::uint8_t>(n.index()));
        const notices::event& e = railmq::event_of(n);
        text(e.queue);
        time(e.at);
        number(e.id);
        std::visit([this](const auto& kind) { own_fields(kind); }, n);
        ++count_;
    }
    [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

private:
    void byte(std::uint8_t b) noexcept {
        hash_ ^= b;
        hash_ *= 0x100000001b3ULL;
    }
    void number(std::uint64_t n) noexcept {
        for (int i = 0; i < 8; ++i) {
            byte(static_cast<std::uint8_t>(n >> (8 * i)));
        }
    }
    void time(railmq::time_point t) noexcept {
        number(static_cast<std::uint64_t>(t.time_since_epoch().count()));
    }
    void text(std::string_view s) noexcept {
        number(s.size());
        for (const char c : s) {
            byte(static_cast<std::uint8_t>(c));
        }
    }

    void own_fields(const notices::event&) noexcept {} // the kinds that have none
    void own_fields(const notices::delivered& n) noexcept { number(n.delivery_count); }
    void own_fields(const notices::failed& n) noexcept {
        number(static_cast<std::uint64_t>(n.kind));
        number(n.failure_count);
        text(n.detail);
    }
    void own_fields(const notices::retried& n) noexcept { time(n.ready_at); }
    void own_fields(const notices::dead_lettered& n) noexcept {
        number(static_cast<std::uint64_t>(n.reason));
        number(n.delivery_count);
        text(n.detail);
        text(n.target);
    }
    void own_fields(const notices::dead_letter_refused& n) noexcept {
        number(static_cast<std::uint64_t>(n.code.value()));
        text(n.target);
    }
    void own_fields(const notices::dropped& n) noexcept {
        number(static_cast<std::uint64_t>(n.reason));
        number(n.cycle ? 1 : 0);
    }
    void own_fields(const notices::redriven& n) noexcept { text(n.target); }
    void own_fields(const notices::purged& n) noexcept { number(n.count); }
    void own_fields(const notices::refused& n) noexcept {
        number(static_cast<std::uint64_t>(n.code.value()));
    }
    void own_fields(const notices::consumer_opened& n) noexcept {
        number(n.consumer);
        text(n.name);
    }
    void own_fields(const notices::consumer_closed& n) noexcept {
        number(n.consumer);
        number(n.returned);
    }
    void own_fields(const notices::consumer_activated& n) noexcept { number(n.consumer); }
    void own_fields(const notices::queue_closed& n) noexcept { number(n.undelivered); }

    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
    std::uint64_t count_ = 0;
};

struct result {
    std::uint64_t hash = 0;
    std::uint64_t notices = 0;
    std::uint64_t failures = 0;
    railmq::queue_stats stats{};
};

result run(std::uint64_t seed, std::uint64_t messages) {
    result r;
    trace events;
    railmq::simulation sim{seed};
    railmq::sim_broker broker{
        sim, {.observer = [&](const railmq::notice& n) { events.add(n); }}};
    auto queue = broker.queue<std::uint64_t>(
        "work",
        {.retry = {
             .max_attempts = 3,
             .backoff = railmq::exponential_backoff{
                 .initial = 100ms, .multiplier = 2, .max = 10s, .jitter = railmq::jitter::full}}});
    std::vector<railmq::sim_subscription> consumers;
    for (int k = 0; k < 10; ++k) {
        consumers.push_back(queue.subscribe(sim.get_executor(), [&](const std::uint64_t&) {
            if (railmq::uniform_below(sim.random(), 100) == 0) {
                ++r.failures;
                throw std::runtime_error("now and then");
            }
        }));
    }
    auto producer = queue.producer();
    for (std::uint64_t n = 0; n < messages;) {
        for (int burst = 0; burst < 100 && n < messages; ++burst) {
            producer.send(n++);
        }
        sim.advance(1ms);
    }
    sim.run_until_idle();
    r.stats = queue.stats();
    consumers.clear();
    r.hash = events.hash();
    r.notices = events.count();
    return r;
}

} // namespace

TEST_CASE("sim: a million messages, the same trace for the same seed") {
    constexpr std::uint64_t messages = 1'000'000;
    const result first = run(1, messages);
    CHECK(first.stats.accepted == messages);
    CHECK(first.stats.acked + first.stats.dead_lettered == messages);
    CHECK(first.stats.ready + first.stats.delayed + first.stats.in_flight == 0);
    CHECK(first.stats.failed == first.failures);
    CHECK(first.stats.handed_out == messages + first.failures - first.stats.dead_lettered);
    // One in a hundred fails, one in a million dies; either is far inside these limits.
    CHECK(first.failures > messages / 110);
    CHECK(first.failures < messages / 90);
    CHECK(first.stats.dead_lettered < 20);
    CHECK(first.notices > 3 * messages);
    railmq::test::record_trace("sim_million", first.hash);

    const result second = run(1, messages);
    CHECK(second.hash == first.hash);
    CHECK(second.notices == first.notices);
}

TEST_CASE("sim: another seed, another trace") {
    constexpr std::uint64_t messages = 20'000;
    const result one = run(1, messages);
    const result two = run(2, messages);
    CHECK(one.hash == run(1, messages).hash);
    CHECK(one.hash != two.hash);
    CHECK(two.stats.acked + two.stats.dead_lettered == messages);
    railmq::test::record_trace("sim_million_short", two.hash);
}
