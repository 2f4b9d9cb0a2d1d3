// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/stats.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using railmq::errc;
using railmq::error_code;
using railmq::simulation;
using railmq::sim_broker;
using railmq::test::text_of;
using delivery = railmq::sim_delivery<int>;
using deliveries = std::vector<delivery>;

namespace {

/// A queue in a simulation, with two ways into it.
struct world {
    explicit world(railmq::queue_options o = {}) : queue{broker.queue<int>("q", o)} {}

    void send(int from, int to) {
        for (int n = from; n <= to; ++n) {
            producer.send(n);
        }
    }

    simulation sim{};
    sim_broker broker{sim};
    railmq::sim_queue<int> queue;
    railmq::sim_producer<int> producer{queue.producer()};
    railmq::sim_consumer<int> consumer{queue.consumer()};
};

/// Counts the bytes it has given out and not got back.
template <class T>
struct counting_allocator {
    using value_type = T;
    explicit counting_allocator(std::size_t* count) noexcept : bytes{count} {}
    template <class U>
    counting_allocator(const counting_allocator<U>& other) noexcept : bytes{other.bytes} {}
    T* allocate(std::size_t n) {
        *bytes += n * sizeof(T);
        return static_cast<T*>(::operator new(n * sizeof(T)));
    }
    void deallocate(T* p, std::size_t n) noexcept {
        *bytes -= n * sizeof(T);
        ::operator delete(p);
    }
    template <class U>
    friend bool operator==(const counting_allocator& a, const counting_allocator<U>& b) noexcept {
        return a.bytes == b.bytes;
    }
    std::size_t* bytes;
};

} // namespace

TEST_CASE("consumer: one that refers to no queue, or was moved from or closed, says so") {
    world w;
    w.send(1, 1);
    railmq::sim_consumer<int> none;
    railmq::sim_consumer<int> source = w.queue.consumer();
    railmq::sim_consumer<int> target{std::move(source)};
    railmq::sim_consumer<int> closed = w.queue.consumer();
    closed.close();
    closed.close(); // again does nothing
    const std::string before = text_of(w.queue);
    for (auto* c : {&none, &source, &closed}) { // NOLINT: on purpose
        error_code ec;
        CHECK_FALSE(c->is_open());
        CHECK_FALSE(c->receive(ec));
        CHECK(ec == errc::closed);
        CHECK_FALSE(c->receive(1s, ec));
        CHECK(ec == errc::closed);
        CHECK_FALSE(c->try_receive(ec));
        CHECK(ec == errc::closed);
        CHECK_FALSE(c->receive());
        deliveries out;
        CHECK(c->receive_batch(out, 3, 1s, ec) == 0);
        CHECK(ec == errc::closed);
        CHECK(c->receive_batch(3, 1s).empty());
        CHECK(c->prefetch() == 0);
        CHECK(c->in_flight() == 0);
        CHECK_THROWS_AS(c->prefetch(5), railmq::system_error);
        c->pause();
        c->resume();
        c->cancel();
        CHECK(c->close(railmq::drain_for{1s}));
        int told = 0;
        c->async_receive(asio::bind_executor(w.sim.get_executor(), [&](error_code e, delivery d) {
            CHECK(e == errc::closed);
            CHECK_FALSE(d);
            ++told;
        }));
        c->async_receive_batch(
            3, asio::bind_executor(w.sim.get_executor(), [&](error_code e, deliveries d) {
                CHECK(e == errc::closed);
                CHECK(d.empty());
                ++told;
            }));
        CHECK(told == 0);
        w.sim.run_ready();
        CHECK(told == 2);
    }
    CHECK(target.is_open());
    CHECK(text_of(w.queue) == before);
}

TEST_CASE("consumer: bad arguments are refused and change nothing") {
    world w;
    w.send(1, 2);
    const std::string before = text_of(w.queue);
    error_code ec;
    deliveries out;
    CHECK(w.consumer.receive_batch(out, 0, 1s, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    try {
        w.consumer.prefetch(0);
        FAIL("it was accepted");
    } catch (const railmq::system_error& e) {
        CHECK(e.code() == errc::invalid_argument);
        CHECK(std::string_view{e.what()}.find("at least 1") != std::string_view::npos);
    }
    CHECK(w.consumer.prefetch() == 100);
    error_code told;
    w.consumer.async_receive_batch(0, [&](error_code e, deliveries) { told = e; });
    w.sim.run_ready();
    CHECK(told == errc::invalid_argument);
    CHECK(text_of(w.queue) == before);
}

TEST_CASE("consumer: ack_all refuses what is not its own, and then settles nothing") {
    world w;
    world other;
    w.send(1, 3);
    other.send(1, 1);
    auto rival = w.queue.consumer();
    deliveries all = w.consumer.receive_batch(2, 0s);
    error_code ec;
    SECTION("another consumer's") { all.push_back(*rival.try_receive()); }
    SECTION("another broker's") { all.push_back(*other.consumer.try_receive()); }
    SECTION("an empty one") { all.emplace_back(); }
    SECTION("a settled one") {
        all.push_back(*w.consumer.try_receive());
        all.back().ack();
    }
    const std::string before = text_of(w.queue);
    CHECK(w.consumer.ack_all(all, ec) == 0);
    CHECK(ec == errc::invalid_argument);
    CHECK(all.size() == 3);
    CHECK(text_of(w.queue) == before);
    all.pop_back();
    CHECK(w.consumer.ack_all(all, ec) == 2);
    CHECK_FALSE(ec);
    CHECK(all.empty());
}

TEST_CASE("consumer: receives at once, or waits as long as it may") {
    world w;
    error_code ec;
    CHECK_FALSE(w.consumer.try_receive(ec));
    CHECK(ec == errc::would_block);
    const auto start = w.sim.now();
    CHECK_FALSE(w.consumer.receive(5s, ec));
    CHECK(ec == errc::timed_out);
    CHECK(w.sim.now() - start == 5s);
    CHECK_FALSE(w.consumer.receive(ec)); // nothing can ever come
    CHECK(ec == errc::would_deadlock);
    w.producer.send(1, {.delay = 3s});
    const auto d = w.consumer.receive(1h, ec);
    REQUIRE(d);
    CHECK_FALSE(ec);
    CHECK(w.sim.now() - start == 8s);
    CHECK_FALSE(w.consumer.receive(-1s, ec)); // no time at all
    CHECK(ec);
    CHECK(w.queue.stats().waiting_receivers == 0);
}

TEST_CASE("consumer: batches across chunks, bounded by what it may hold") {
    world w;
    w.send(1, 1'000);
    w.consumer.prefetch(700);
    auto all = w.consumer.receive_batch(railmq::unlimited, 0s);
    REQUIRE(all.size() == 700);
    CHECK(all.back().value() == 700);
    CHECK(w.consumer.in_flight() == 700);
    error_code ec;
    CHECK_FALSE(w.consumer.try_receive(ec));
    CHECK(ec == errc::would_block);
    CHECK(railmq::ack_all(all) == 700);
    CHECK(w.consumer.receive_batch(railmq::unlimited, 0s).size() == 300);
}

TEST_CASE("consumer: what an old batch held is settled when it is filled again") {
    world w{{.retry = {.backoff = railmq::constant_backoff{.delay = 0s}}}};
    w.send(1, 2);
    deliveries out;
    error_code ec;
    CHECK(w.consumer.receive_batch(out, 1, 0s, ec) == 1);
    CHECK(w.consumer.receive_batch(out, 2, 0s, ec) == 2);
    CHECK(out[0].value() == 1);
    CHECK(out[0].failure_count() == 1);
    CHECK_FALSE(out[1].redelivered());
}

TEST_CASE("consumer: assignment closes the one it was") {
    world w;
    w.send(1, 1);
    auto d = w.consumer.try_receive();
    w.consumer = w.queue.consumer();
    CHECK(w.queue.stats().ready == 1);
    CHECK_FALSE(d->ack());
    CHECK(w.queue.stats().consumers == 1);
    auto& same = w.consumer;
    w.consumer = std::move(same);
    CHECK(w.consumer.is_open());
}

TEST_CASE("consumer: is open as long as something can come") {
    world w;
    w.send(1, 1);
    w.queue.close();
    CHECK(w.consumer.is_open()); // one is left
    w.consumer.try_receive()->ack();
    CHECK_FALSE(w.consumer.is_open());

    auto other = w.broker.queue<int>("other");
    auto consumer = other.consumer();
    other.producer().send(1);
    CHECK(consumer.is_open());
    w.broker.close();
    CHECK_FALSE(consumer.is_open());
}

TEST_CASE("consumer: nothing there is `would_block`, nothing to come is `closed`") {
    const auto check = [](auto& queue) {
        auto consumer = queue.consumer();
        error_code ec;
        CHECK_FALSE(consumer.try_receive(ec));
        CHECK(ec == errc::would_block);
        queue.close();
        CHECK_FALSE(consumer.try_receive(ec));
        CHECK(ec == errc::closed);
    };
    world w;
    check(w.queue);
    railmq::broker broker;
    auto queue = broker.queue<int>("q");
    check(queue);
}

TEST_CASE("consumer: closing gracefully waits for what it holds") {
    world w;
    w.send(1, 2);
    auto a = w.consumer.try_receive();
    auto b = w.queue.consumer();
    auto c = b.try_receive();
    w.sim.async_wait(2s, [&](error_code) { a->ack(); });
    CHECK(w.consumer.close(railmq::drain_for{5s})); // another one's message does not matter
    CHECK(w.sim.now() == railmq::time_point{2s});
    CHECK_FALSE(b.close(railmq::drain_for{1s}));
    CHECK(w.queue.stats().ready == 1);
    CHECK_FALSE(c->ack());
}

// --- Asynchronous receives ---

TEST_CASE("consumer: async_receive completes later, with the message") {
    world w;
    w.send(1, 1);
    int got = 0;
    w.consumer.async_receive([&](error_code ec, delivery d) {
        CHECK_FALSE(ec);
        got = d.value();
        d.ack();
    });
    CHECK(got == 0); // never inside the call, though the message is there
    w.sim.run_ready();
    CHECK(got == 1);
    w.consumer.async_receive([&](error_code, delivery d) { got = d.take(); });
    w.sim.run_ready();
    CHECK(got == 1);
    w.producer.send(2);
    CHECK(got == 1); // nor inside the send that brings it
    w.sim.run_ready();
    CHECK(got == 2);
}

TEST_CASE("consumer: async_receive with every kind of token") {
    world w;
    // Unbound, a future's completion would run on the system's threads.
    std::future<delivery> future = w.consumer.async_receive(
        asio::bind_executor(w.sim.get_executor(), asio::use_future));
    auto later = w.consumer.async_receive(asio::deferred);
    CHECK(w.queue.stats().waiting_receivers == 1); // a deferred one has not begun
    std::vector<int> got;
    std::move(later)([&](error_code, delivery d) { got.push_back(d.take()); });
    w.sim.spawn([](auto& c, auto& out) -> asio::awaitable<void> {
        delivery one = co_await c.async_receive(asio::use_awaitable);
        out.push_back(one.take());
        auto [ec, two] = co_await c.async_receive(asio::as_tuple(asio::use_awaitable));
        out.push_back(ec ? -1 : two.take());
        auto [closed, none] = co_await c.async_receive(asio::as_tuple(asio::use_awaitable));
        out.push_back(closed == errc::closed && !none ? 99 : -1);
    }(w.consumer, got));
    w.sim.run_ready();
    w.send(1, 4);
    w.sim.run_ready();
    CHECK(future.get().take() == 1);
    w.queue.close();
    w.sim.run_ready();
    CHECK(got == std::vector<int>{2, 3, 4, 99});
}

TEST_CASE("consumer: several outstanding receives are served in the order of their start") {
    world w;
    std::vector<int> order;
    for (int n = 0; n < 5; ++n) {
        w.consumer.async_receive([&order, n](error_code, delivery d) {
            CHECK(d.value() == n + 1);
            order.push_back(n);
            d.ack();
        });
    }
    w.send(1, 5);
    w.sim.run_ready();
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("consumer: an asynchronous batch takes what is there once there is something") {
    world w;
    std::vector<std::size_t> sizes;
    std::function<void()> next = [&] {
        w.consumer.async_receive_batch(4, [&](error_code ec, deliveries d) {
            if (!ec) {
                sizes.push_back(d.size());
                railmq::ack_all(d);
                next();
            }
        });
    };
    next();
    w.sim.run_ready();
    CHECK(sizes.empty());
    w.send(1, 1);
    w.send(2, 10);
    w.sim.run_ready();
    CHECK(sizes == std::vector<std::size_t>{1, 4, 4, 1});
    CHECK(w.queue.stats().acked == 10);
    w.consumer.cancel();
    w.sim.run_ready();
}

TEST_CASE("consumer: a cancelled receive gets nothing, and nothing is lost") {
    world w;
    asio::cancellation_signal signal;
    std::vector<error_code> told;
    const auto receive = [&] {
        w.consumer.async_receive(asio::bind_cancellation_slot(
            signal.slot(), [&](error_code ec, delivery d) {
                CHECK(bool{d} == !ec);
                if (d) d.ack();
                told.push_back(ec);
            }));
    };
    SECTION("before a message comes") {
        receive();
        signal.emit(asio::cancellation_type::terminal);
        CHECK(told.empty());
        w.send(1, 1);
        w.sim.run_ready();
        CHECK(told == std::vector<error_code>{asio::error::operation_aborted});
        CHECK(w.queue.stats().ready == 1);
    }
    SECTION("when the message is on its way, it arrives") {
        receive();
        w.send(1, 1);
        signal.emit(asio::cancellation_type::total);
        w.sim.run_ready();
        CHECK(told == std::vector<error_code>{error_code{}});
        CHECK(w.queue.stats().acked == 1);
    }
    SECTION("after it has completed, cancelling means nothing") {
        w.send(1, 1);
        receive();
        w.sim.run_ready();
        signal.emit(asio::cancellation_type::partial);
        w.sim.run_ready();
        CHECK(told.size() == 1);
    }
    SECTION("a cancellation of no kind is none") {
        receive();
        signal.emit(asio::cancellation_type::none);
        w.sim.run_ready();
        CHECK(told.empty());
        w.send(1, 1);
        w.sim.run_ready();
        CHECK(told.size() == 1);
    }
    CHECK(w.queue.stats().waiting_receivers == 0);
    CHECK(w.queue.stats().in_flight == 0);
    CHECK(w.queue.stats().failed == 0);
}

TEST_CASE("consumer: a cancelled batch too") {
    world w;
    asio::cancellation_signal signal;
    error_code told;
    w.consumer.async_receive_batch(
        4, asio::bind_cancellation_slot(signal.slot(), [&](error_code ec, deliveries d) {
            CHECK(d.empty());
            told = ec;
        }));
    signal.emit(asio::cancellation_type::total);
    w.sim.run_ready();
    CHECK(told == asio::error::operation_aborted);
    w.send(1, 1);
    CHECK(w.consumer.try_receive());
}

TEST_CASE("consumer: an operation lives in its handler's memory, freed before the handler runs") {
    world w;
    std::size_t bytes = 0;
    std::size_t seen = 1;
    const counting_allocator<void*> allocator{&bytes};
    w.consumer.async_receive(asio::bind_allocator(allocator, [&](error_code, delivery d) {
        seen = bytes;
        d.ack();
    }));
    CHECK(bytes != 0);
    w.send(1, 1);
    w.sim.run_ready();
    CHECK(seen == 0);
    CHECK(bytes == 0);

    seen = 1;
    w.producer.async_send(2, asio::bind_allocator(allocator, [&](error_code, railmq::receipt) {
                              seen = bytes;
                          }));
    CHECK(bytes != 0);
    w.sim.run_ready();
    CHECK(seen == 0);
    CHECK(bytes == 0);
}

TEST_CASE("consumer: a handler runs on its own executor, or on the broker's") {
    asio::io_context brokers;
    asio::io_context handlers;
    railmq::broker broker{{.executor = brokers.get_executor()}};
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    int own = 0;
    int shared = 0;
    consumer.async_receive(asio::bind_executor(
        handlers, [&](error_code, railmq::delivery<int> d) { own += d.ack() ? 1 : 0; }));
    consumer.async_receive([&](error_code, railmq::delivery<int> d) { shared += d.ack() ? 1 : 0; });
    producer.send(1);
    producer.send(2);
    CHECK(brokers.poll() > 0);
    CHECK(own == 0);
    CHECK(shared == 1);
    CHECK(handlers.poll() > 0);
    CHECK(own == 1);
}

TEST_CASE("consumer: an operation keeps its context at work until it completes") {
    asio::io_context context;
    railmq::broker broker;
    auto queue = broker.queue<int>("q");
    auto consumer = queue.consumer();
    consumer.async_receive(asio::bind_executor(context, [](error_code, railmq::delivery<int>) {}));
    context.poll();
    CHECK_FALSE(context.stopped());
    consumer.close(); // which ends it
    context.poll();
    CHECK(context.stopped());
}

TEST_CASE("consumer: a context that ends with a message on its way gives the message back") {
    railmq::broker broker;
    auto queue = broker.queue<std::string>("q");
    auto consumer = queue.consumer();
    {
        asio::io_context context;
        consumer.async_receive(asio::bind_executor(
            context, [](error_code, railmq::delivery<std::string>) { FAIL("it must not run"); }));
        queue.producer().send(std::string{"kept"});
        CHECK(queue.stats().in_flight == 1);
    }
    CHECK(queue.stats().in_flight == 0);
    const auto d = consumer.try_receive();
    REQUIRE(d);
    CHECK(d->value() == "kept");
    CHECK(d->failure_count() == 0); // nobody has seen it
}

TEST_CASE("consumer: a simulation that ends with operations outstanding lets go of them") {
    auto sim = std::make_unique<simulation>();
    auto broker = std::make_unique<sim_broker>(*sim);
    auto queue = broker->queue<int>("q");
    auto consumer = queue.consumer();
    auto kept = std::make_shared<int>(1);
    consumer.async_receive([kept](error_code, delivery) {});
    queue.producer().send(1);
    consumer.async_receive([kept](error_code, delivery) {});
    consumer.close();
    broker.reset();
    queue = {};
    CHECK(kept.use_count() == 3);
    sim.reset();
    CHECK(kept.use_count() == 1);
}

TEST_CASE("consumer: deadlines pass while only asynchronous operations wait") {
    asio::io_context context;
    railmq::broker broker{{.executor = context.get_executor()}};
    auto queue = broker.queue<int>("q");
    auto consumer = queue.consumer();
    int got = 0;
    consumer.async_receive([&](error_code, railmq::delivery<int> d) {
        got = d.value();
        d.ack();
        broker.close();
    });
    queue.producer().send(7, {.delay = 5ms});
    context.run(); // the broker's one timer wakes it
    CHECK(got == 7);
}
