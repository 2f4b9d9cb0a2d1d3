// SPDX-License-Identifier: BSL-1.0
//
// How long does a spike hurt? Workers do 500 messages a second. 300 a second come in, then 2000 a
// second for five seconds. A simulation takes the broker through that minute in virtual time, and
// what happens is what the formulas say: a backlog of (2000 - 500) x 5, a wait of backlog / 500,
// and an end after backlog / (500 - what comes in then).

#include <railmq/railmq.hpp>

#include "log_pipeline/backlog_curve.hpp"
#include "log_pipeline/console.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;

namespace {

constexpr int workers = 5;
constexpr auto time_per_message = 10ms;
constexpr double drain_rate = 500; // what five workers do with that
constexpr auto calm = 2s;
constexpr int calm_messages = 300 * 2;
constexpr auto spike = 5s;
constexpr int spike_messages = 2000 * 5;

/// One run through the spike and what follows it.
class world {
public:
    explicit world(int rate_after)
        : rate_after_{rate_after} {
        for (int i = 0; i < workers; ++i) {
            sim_.spawn(work());
        }
        sim_.spawn(send());
    }

    std::uint64_t backlog_before = 0;
    std::uint64_t backlog_at_end = 0;
    seconds newest_waits{};
    seconds empty_after{}; ///< From the end of the spike.
    std::uint64_t lost = 0;
    log_pipeline::backlog_curve curve{};

    void run() {
        curve.mark(seconds{calm}.count(), "the spike begins");
        curve.mark(seconds{calm + spike}.count(), "the spike ends");
        fmt::print("\nAfter the spike {} a second come in\n", rate_after_);
        fmt::print("{:>9}{:>9}{:>9}{:>9}  newest waits\n", "time", "sent", "done", "backlog");
        for (auto t = -std::chrono::milliseconds{calm}; empty_after == 0s; t += 10ms) {
            const auto s = q_.stats();
            curve.add(seconds{t + calm}.count(), s.ready);
            if (t == 0s) {
                backlog_before = s.ready;
            } else if (t == spike) {
                backlog_at_end = s.ready;
            } else if (t > spike && s.ready == 0) {
                empty_after = t - spike;
            }
            if (t % 2500ms == 0s || empty_after != 0s) {
                fmt::print(
                    "{:>7.2f} s{:>9}{:>9}{:>9}{:>12.2f} s\n",
                    seconds{t}.count(),
                    s.accepted,
                    s.acked,
                    s.ready,
                    static_cast<double>(s.ready) / drain_rate);
            }
            sim_.advance(10ms);
        }
        q_.close();
        sim_.run_until_idle();
        const auto end = q_.stats();
        lost = end.accepted - end.acked;
    }

private:
    asio::awaitable<void> work() {
        auto consumer = q_.consumer({.prefetch = 1});
        for (;;) {
            auto [ec, d] = co_await consumer.async_receive(asio::as_tuple(asio::use_awaitable));
            if (ec) {
                co_return; // closed, and nothing is left
            }
            if (*d == calm_messages + spike_messages) {
                newest_waits = sim_.now() - d.enqueued_at();
            }
            co_await sim_.async_wait(time_per_message, asio::use_awaitable);
            d.ack();
        }
    }
    asio::awaitable<void> send() {
        auto producer = q_.producer();
        for (int n = 1; q_.is_open(); ++n) {
            producer.send(n);
            const int rate = n <= calm_messages                    ? 300
                             : n <= calm_messages + spike_messages ? 2000
                                                                   : rate_after_;
            co_await sim_.async_wait(seconds{1} / rate, asio::use_awaitable);
        }
    }

    int rate_after_;
    railmq::simulation sim_{1};
    railmq::sim_broker broker_{sim_};
    railmq::sim_queue<int> q_ = broker_.queue<int>("spike");
};

bool check(std::string_view what, double got, double wanted, double tolerance) {
    const bool ok = std::abs(got - wanted) <= tolerance;
    fmt::print(
        "{:<36}{:>10.2f}   expected {:>8.2f}   {}\n", what, got, wanted, ok ? "ok" : "WRONG");
    return ok;
}

} // namespace

int main() {
    const auto started = std::chrono::steady_clock::now();
    world lull{100};
    lull.run();
    world baseline{300};
    baseline.run();
    const seconds real = std::chrono::steady_clock::now() - started;

    fmt::print(
        "\nThe backlog, with 300 a second after the spike\n{}\n",
        baseline.curve.draw(72, log_pipeline::console::is_unicode()));

    // A worker has a message in its hands, and comes to the next one up to 10 ms later.
    constexpr double hands = workers;
    bool ok = check("backlog before the spike", double(lull.backlog_before), 0, 0);
    ok &= check("backlog at its end", double(lull.backlog_at_end), 7500, 2 * hands);
    ok &= check("the newest message waits (s)", lull.newest_waits.count(), 15, 0.05);
    ok &= check("empty after, at 100 a second (s)", lull.empty_after.count(), 18.75, 0.1);
    ok &= check("empty after, at 300 a second (s)", baseline.empty_after.count(), 37.5, 0.1);
    ok &= check("messages lost", double(lull.lost + baseline.lost), 0, 0);
    fmt::print(
        "\nWithout a queue the spike would have lost (2000 - 500) x 5 = 7500 messages.\n"
        "{:.1f} s of virtual time took {:.2f} s.\n",
        (2 * seconds{calm + spike} + lull.empty_after + baseline.empty_after).count(),
        real.count());
    return ok ? 0 : 1;
}
