// SPDX-License-Identifier: BSL-1.0
//
// Threads and asynchronous operations that wait for each other with nobody to help them: one lost
// wake-up and a test never ends. Also what ends waiting: cancellation, closing; and moves between
// queues in both directions at once.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <boost/asio.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using railmq::errc;
using railmq::error_code;
using railmq::random_engine;
using railmq::uniform_below;

namespace {

struct payload {
    std::uint64_t value = 0;
};

/// Two threads send, two receive, none with a time limit, until the queue is closed.
void exchange(railmq::broker_options broker_options, const railmq::queue_options& options) {
    constexpr std::uint64_t each = 2'000;
    railmq::broker broker{std::move(broker_options)};
    auto queue = broker.queue<payload>("exchange", options);
    std::atomic<std::uint64_t> sum{0};
    std::atomic<std::uint64_t> count{0};
    std::vector<std::thread> receivers;
    std::vector<std::thread> senders;
    for (std::uint64_t k = 0; k < 2; ++k) {
        receivers.emplace_back([&] {
            auto consumer = queue.consumer({.prefetch = 3});
            while (auto d = consumer.receive()) {
                sum += d->value().value;
                ++count;
                if (!d->ack()) sum = 0;
            }
        });
        senders.emplace_back([&, k] {
            auto producer = queue.producer();
            for (std::uint64_t n = 0; n < each; ++n) {
                producer.send(payload{k * each + n});
            }
        });
    }
    for (auto& t : senders) {
        t.join();
    }
    queue.close(); // what is there is still handed out
    for (auto& t : receivers) {
        t.join();
    }
    CHECK(count.load() == 2 * each);
    CHECK(sum.load() == each * (2 * each - 1));
    CHECK(queue.stats().acked == 2 * each);
}

} // namespace

TEST_CASE("stress: senders and receivers wake each other") {
    railmq::broker_options parked{};
    parked.park_after = {};
    railmq::queue_options o{};
    SECTION("no limit") { exchange({}, o); }
    SECTION("no limit, parked at once") { exchange(parked, o); }
    SECTION("room for one") {
        o.max_length = 1;
        exchange({}, o);
    }
    SECTION("room for one, parked at once") {
        o.max_length = 1;
        exchange(parked, o);
    }
    SECTION("room for three, by bytes") {
        o.max_bytes = 3 * sizeof(payload);
        exchange(parked, o);
    }
    SECTION("one in work at a time") {
        o.max_length = 2;
        o.order = railmq::delivery_order::strict;
        exchange(parked, o);
    }
}

TEST_CASE("stress: other threads settle, and race with the deadline") {
    constexpr std::uint64_t total = 4'000;
    railmq::broker broker;
    auto queue = broker.queue<std::string>(
        "handed-on",
        {.ack_timeout = 1ms, .retry = {.max_attempts = 0}, .dead_letter = railmq::discard});
    std::mutex mutex;
    std::deque<railmq::delivery<std::string>> line;
    std::atomic<std::uint64_t> settled{0};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
        auto producer = queue.producer();
        for (std::uint64_t n = 0; n < total; ++n) {
            producer.send(std::string{"a payload of its own memory, whatever the size is"});
        }
    });
    for (int k = 0; k < 2; ++k) {
        threads.emplace_back([&] {
            auto consumer = std::make_unique<railmq::consumer<std::string>>(
                queue.consumer({.prefetch = 50}));
            for (int n = 0; settled.load() < total; ++n) {
                if (auto d = consumer->receive(200us)) {
                    std::lock_guard guard{mutex};
                    line.push_back(std::move(*d));
                }
                if (n % 500 == 499) { // closed while others hold its deliveries
                    consumer = std::make_unique<railmq::consumer<std::string>>(
                        queue.consumer({.prefetch = 50}));
                }
            }
        });
        threads.emplace_back([&, k] {
            while (settled.load() < total) {
                std::optional<railmq::delivery<std::string>> d;
                {
                    std::lock_guard guard{mutex};
                    if (!line.empty()) {
                        d.emplace(std::move(line.front()));
                        line.pop_front();
                    }
                }
                if (!d) {
                    std::this_thread::yield();
                    continue;
                }
                if (d->value().size() != 49) {
                    settled += total; // seen by the check below
                }
                if (k == 0 ? d->ack() : (d->extend(1ms), d->ack())) {
                    ++settled;
                }
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    line.clear();
    CHECK(settled.load() == total);
    const auto s = queue.stats();
    CHECK(s.acked == total);
    CHECK(s.ready + s.delayed + s.in_flight == 0);
}

TEST_CASE("stress: a broker is closed while everything waits") {
    for (std::uint64_t round = 0; round < 20; ++round) {
        railmq::broker broker;
        auto full = broker.queue<payload>("full", {.max_length = 1});
        auto empty = broker.queue<std::string>("empty");
        full.producer().send(payload{1});
        asio::io_context context;
        std::atomic<int> ended{0};
        std::atomic<int> wrong{0};
        const auto end = [&](error_code ec) {
            ++ended;
            wrong += ec == errc::closed ? 0 : 1;
        };
        auto async_consumer = empty.consumer();
        auto async_producer = full.producer();
        for (int n = 0; n < 3; ++n) {
            async_consumer.async_receive(asio::bind_executor(
                context, [&](error_code ec, railmq::delivery<std::string>) { end(ec); }));
            async_producer.async_send(
                payload{2}, asio::bind_executor(context, [&](error_code ec, railmq::receipt) {
                    end(ec);
                }));
        }
        std::vector<std::thread> threads;
        for (int k = 0; k < 2; ++k) {
            threads.emplace_back([&] {
                auto producer = full.producer();
                error_code ec;
                producer.send(payload{3}, ec);
                end(ec);
            });
            threads.emplace_back([&] {
                try {
                    auto consumer = empty.consumer();
                    error_code ec;
                    (void)consumer.receive(ec);
                    end(ec);
                } catch (const railmq::system_error& e) {
                    end(e.code()); // closed before it was made
                }
            });
            threads.emplace_back([&] { context.run(); });
        }
        threads.emplace_back([&] {
            random_engine random{railmq::test::seed(round)};
            for (std::uint64_t n = uniform_below(random, 200); n != 0; --n) {
                std::this_thread::yield();
            }
            broker.close();
        });
        for (auto& t : threads) {
            t.join();
        }
        CHECK(ended.load() == 10);
        CHECK(wrong.load() == 0);
    }
}

namespace {

/// One receive after another on a strand; every third is cancelled as soon as it has begun.
struct receiving_chain : std::enable_shared_from_this<receiving_chain> {
    receiving_chain(
        asio::io_context& context,
        railmq::consumer<std::string> c,
        std::atomic<std::uint64_t>& got,
        std::uint64_t all)
        : strand{asio::make_strand(context)}, consumer{std::move(c)}, received{got}, total{all} {}

    void next() {
        if (received.load() >= total) {
            return;
        }
        consumer.async_receive(asio::bind_cancellation_slot(
            signal.slot(),
            asio::bind_executor(
                strand,
                [self = shared_from_this()](error_code ec, railmq::delivery<std::string> d) {
                    self->on_message(ec, std::move(d));
                })));
        if (++started % 3 == 0) {
            asio::post(strand, [self = shared_from_this()] {
                self->signal.emit(asio::cancellation_type::total);
            });
        }
    }
    void on_message(error_code ec, railmq::delivery<std::string> d) {
        if (!ec) {
            if (d.ack()) ++received;
        } else if (ec != asio::error::operation_aborted) {
            return; // the queue is closed
        }
        next();
    }

    asio::strand<asio::io_context::executor_type> strand;
    asio::cancellation_signal signal{};
    railmq::consumer<std::string> consumer;
    std::atomic<std::uint64_t>& received;
    std::uint64_t total;
    std::uint64_t started = 0;
};

struct sending_chain : std::enable_shared_from_this<sending_chain> {
    sending_chain(asio::io_context& context, railmq::producer<std::string> p, std::uint64_t n)
        : strand{asio::make_strand(context)}, producer{std::move(p)}, left{n} {}

    void next() {
        if (left == 0) {
            return;
        }
        producer.async_send(
            std::string{"text"},
            asio::bind_cancellation_slot(
                signal.slot(),
                asio::bind_executor(
                    strand, [self = shared_from_this()](error_code ec, railmq::receipt) {
                        self->left -= ec ? 0 : 1; // a cancelled one was not stored: once more
                        self->next();
                    })));
        if (++started % 5 == 0) {
            asio::post(strand, [self = shared_from_this()] {
                self->signal.emit(asio::cancellation_type::terminal);
            });
        }
    }

    asio::strand<asio::io_context::executor_type> strand;
    asio::cancellation_signal signal{};
    railmq::producer<std::string> producer;
    std::uint64_t left;
    std::uint64_t started = 0;
};

} // namespace

TEST_CASE("stress: asynchronous operations and their cancellation lose nothing") {
    constexpr std::uint64_t each = 600;
    constexpr std::uint64_t total = 3 * each;
    asio::io_context context;
    railmq::broker broker{{.executor = context.get_executor()}};
    auto queue = broker.queue<std::string>("async", {.max_length = 4});
    std::atomic<std::uint64_t> received{0};
    for (int k = 0; k < 3; ++k) {
        std::make_shared<receiving_chain>(context, queue.consumer(), received, total)->next();
        std::make_shared<sending_chain>(context, queue.producer(), each)->next();
    }
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k) {
        threads.emplace_back([&] { context.run(); });
    }
    std::thread closer{[&] {
        while (received.load() < total) {
            std::this_thread::yield();
        }
        queue.close(); // ends the receives that wait for more
    }};
    closer.join();
    const auto s = queue.stats();
    broker.close(); // and with it the broker's timer, which keeps the context at work
    for (auto& t : threads) {
        t.join();
    }
    CHECK(received.load() == total);
    CHECK(s.accepted == total);
    CHECK(s.acked == total);
    CHECK(s.waiting_receivers == 0);
    CHECK(s.waiting_senders == 0);
}

TEST_CASE("stress: two queues send each other their dead letters") {
    constexpr std::uint64_t total = 200;
    constexpr std::uint64_t rejections = 1'500;
    railmq::broker broker;
    auto left = broker.queue<std::string>("left", {.dead_letter = "right"});
    auto right = broker.queue<std::string>("right"); // made as a dead-letter queue
    right.dead_letter("left");
    auto producer = left.producer();
    for (std::uint64_t n = 0; n < total; ++n) {
        producer.send(std::string{"goes around"});
    }
    std::atomic<std::uint64_t> rejected{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k) {
        threads.emplace_back([&, k] {
            auto consumer = (k % 2 == 0 ? left : right).consumer();
            while (rejected.load() < rejections) {
                if (auto d = consumer.receive(200us)) {
                    if (d->reject()) ++rejected;
                }
            }
        });
        threads.emplace_back([&, k] {
            while (rejected.load() < rejections) {
                error_code ec;
                auto& from = k % 2 == 0 ? left : right;
                auto& to = k % 2 == 0 ? right : left;
                (void)from.redrive(to, {}, [](const std::string& s) { return !s.empty(); }, ec);
                (void)from.stats();
                std::this_thread::yield();
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    const auto l = left.stats();
    const auto r = right.stats();
    CHECK(l.ready + r.ready == total);
    for (const auto& s : {l, r}) {
        CHECK(
            s.accepted == s.ready + s.delayed + s.in_flight + s.acked + s.dead_lettered +
                              s.redriven + s.expired + s.dropped + s.purged);
        CHECK(s.delayed == 0);
        CHECK(s.in_flight == 0);
    }
}

TEST_CASE("stress: subscriptions on two threads, retuned and closed at work") {
    constexpr std::uint64_t total = 1'500;
    asio::io_context context;
    auto keep = asio::make_work_guard(context);
    railmq::broker broker{{.executor = context.get_executor()}};
    auto queue = broker.queue<std::string>(
        "pushed",
        {.ack_timeout = 1s,
         .retry = {.max_attempts = 0, .backoff = railmq::constant_backoff{.delay = 100us}},
         .dead_letter = railmq::discard});
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> done{0};
    const auto handler = [&](const std::string&) {
        if (++calls % 10 == 0) {
            throw std::runtime_error("now and then");
        }
        ++done;
    };
    std::vector<std::thread> threads;
    for (int k = 0; k < 3; ++k) {
        threads.emplace_back([&] { context.run(); });
    }
    auto steady = queue.subscribe(context.get_executor(), handler, {.concurrency = 2});
    threads.emplace_back([&] {
        auto producer = queue.producer();
        for (std::uint64_t n = 0; n < total; ++n) {
            producer.send(std::string{"pushed to a handler, long enough for the heap"});
        }
    });
    for (std::uint64_t n = 0; queue.stats().acked < total; ++n) {
        auto passing = queue.subscribe(context.get_executor(), handler, {.concurrency = 3});
        steady.concurrency(1 + n % 3);
        steady.pause();
        (void)passing.running();
        std::this_thread::yield();
        steady.resume();
        if (n % 2 == 0) {
            (void)passing.close(railmq::drain_for{5ms});
        }
    }
    steady.close();
    keep.reset();
    for (auto& t : threads) {
        t.join();
    }
    const auto s = queue.stats();
    CHECK(s.acked == total);
    CHECK(done.load() >= total); // a handler may end after its subscription was closed
    CHECK(s.ready + s.delayed + s.in_flight == 0);
}
