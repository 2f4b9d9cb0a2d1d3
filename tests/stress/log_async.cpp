// SPDX-License-Identifier: BSL-1.0
//
// Members of a group that receive asynchronously on a pool of threads, each on a strand of its own,
// come and go and change their minds: every record is worked on, and no commit passes one that was
// not.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using namespace railmq::test;

namespace {

constexpr std::uint32_t partitions = 4;
constexpr int records_each = 5'000;

/// What was acknowledged, by partition and offset.
struct ledger {
    ledger() {
        for (auto& p : done) {
            p = std::vector<std::atomic<bool>>(2 * records_each);
        }
    }
    std::vector<std::vector<std::atomic<bool>>> done{partitions};
    std::atomic<int> count{0};
    std::atomic<int> errors{0};

    void note(const railmq::log_delivery<int>& d) {
        if (!done[d.partition()][static_cast<std::size_t>(d.offset())].exchange(true)) {
            ++count;
        }
    }
};

using log_type = railmq::partitioned_log<int>;

/// One after the other, with a batch now and then; after `life` records it leaves.
asio::awaitable<void>
work(railmq::log_consumer<int> member, ledger& all, int life, std::atomic<bool>& is_over) {
    for (int n = 0; n < life && !is_over; ++n) {
        if (n % 5 == 0) {
            auto [ec, some] =
                co_await member.async_receive_batch(7, asio::as_tuple(asio::use_awaitable));
            for (std::size_t i = some.size(); i-- > 0;) {
                all.note(some[i]);
                some[i].ack();
            }
            if (ec) {
                co_return;
            }
        }
        auto [ec, d] = co_await member.async_receive(asio::as_tuple(asio::use_awaitable));
        if (ec) {
            all.errors += ec == railmq::errc::closed ? 0 : 1;
            co_return;
        }
        if (n % 17 == 3) {
            d.nack();
            continue;
        }
        all.note(d);
        d.ack();
    }
}

asio::awaitable<void>
members(const log_type log, ledger& all, int life, std::atomic<bool>& is_over) {
    while (!is_over) {
        co_await work(
            log.consumer({.group = "g", .retry_backoff = railmq::constant_backoff{.delay = 1ms}}),
            all,
            life,
            is_over);
    }
}

} // namespace

TEST_CASE("stress: members on strands of a pool, which join, leave, fail and cancel") {
    railmq::broker broker;
    const auto log = broker.log<int>("log", {.partitions = partitions, .segment_records = 500});
    ledger all;
    std::atomic<bool> is_over{false};
    asio::thread_pool pool{3};
    for (int m = 0; m < 3; ++m) {
        asio::co_spawn(
            asio::make_strand(pool), members(log, all, 50 + 200 * m, is_over), asio::detached);
    }
    // One that begins receives and takes them back, as often as it can.
    struct fickle {
        railmq::log_consumer<int> member;
        asio::strand<asio::thread_pool::executor_type> strand;
        ledger& all;
        std::atomic<bool>& is_over;
        std::atomic<int> rounds{0};
        asio::cancellation_signal stop{};

        void go_on() {
            if (is_over) {
                return;
            }
            member.async_receive(asio::bind_cancellation_slot(
                stop.slot(),
                asio::bind_executor(
                    strand, [this](railmq::error_code ec, railmq::log_delivery<int> d) {
                        if (!ec) {
                            all.note(d);
                            d.ack();
                        } else {
                            all.errors += ec == asio::error::operation_aborted ? 0 : 1;
                        }
                        ++rounds;
                        go_on();
                    })));
            asio::post(strand, [this] { stop.emit(asio::cancellation_type::terminal); });
        }
    };
    fickle one{log.consumer({.group = "g"}), asio::make_strand(pool), all, is_over};
    asio::post(one.strand, [&] { one.go_on(); });

    std::vector<std::thread> threads;
    for (int p = 0; p < 2; ++p) {
        threads.emplace_back([&log, p] {
            auto producer = log.producer();
            for (int n = 0; n < records_each; ++n) {
                if (n % 3 == 0) {
                    producer.async_send(
                        std::to_string(n % 97),
                        n,
                        asio::bind_executor(asio::system_executor{}, [](auto, auto) {}));
                } else {
                    producer.send(std::to_string(n % 97 + p), n);
                }
            }
        });
    }
    int skipped = 0;
    const auto until = std::chrono::steady_clock::now() + long_time * 2;
    while (all.count < 2 * records_each && std::chrono::steady_clock::now() < until) {
        for (std::uint32_t p = 0; p < partitions; ++p) {
            const auto committed = log.committed("g", p).value_or(0);
            for (std::uint64_t o = 0; o < committed; ++o) {
                skipped += all.done[p][static_cast<std::size_t>(o)] ? 0 : 1;
            }
        }
        std::this_thread::yield();
    }
    is_over = true;
    for (auto& t : threads) {
        t.join();
    }
    // Whoever waits learns of the end, on its strand.
    asio::post(one.strand, [&] { one.member.close(); });
    broker.close();
    pool.join();
    CHECK(all.count == 2 * records_each);
    CHECK(skipped == 0);
    CHECK(all.errors == 0);
    CHECK(one.rounds > 10);
}

TEST_CASE("stress: a chain of receives on the system's threads, without a strand") {
    railmq::broker broker;
    const auto log = broker.log<int>("log", {.partitions = 2});
    auto consumer = log.consumer();
    constexpr int n = 5'000;
    std::atomic<bool> is_over{false};
    int sum = 0; // one handler at a time
    struct chain {
        railmq::log_consumer<int>& consumer;
        int& sum;
        std::atomic<bool>& is_over;
        int left = n;
        void go_on() {
            consumer.async_receive([this](railmq::error_code, railmq::log_delivery<int> d) {
                sum += d.value();
                d = {};
                if (--left == 0) {
                    is_over = true;
                } else {
                    go_on();
                }
            });
        }
    } readers{consumer, sum, is_over};
    readers.go_on();
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&log] {
            auto producer = log.producer();
            for (int i = 0; i < n / 2; ++i) {
                producer.send(1);
                if (i % 64 == 0) {
                    std::this_thread::yield();
                }
            }
        });
    }
    const auto until = std::chrono::steady_clock::now() + long_time * 2;
    while (!is_over && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
    }
    for (auto& t : threads) {
        t.join();
    }
    CHECK(is_over);
    CHECK(sum == n);
}
