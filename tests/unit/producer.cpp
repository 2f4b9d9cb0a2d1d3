// SPDX-License-Identifier: BSL-1.0
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/stats.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <iterator>
#include <list>
#include <memory>
#include <numeric>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
using railmq::errc;
using railmq::error_code;
using railmq::properties;
using railmq::receipt;
using railmq::simulation;
using railmq::sim_broker;
using railmq::test::text_of;

namespace {

/// Counts its copies, and fails them on demand.
struct costly {
    costly() = default;
    costly(const costly&) {
        if (fails) throw std::runtime_error("copy");
        ++copies;
    }
    costly(costly&&) noexcept { ++moves; }
    costly& operator=(const costly&) = delete;
    costly& operator=(costly&&) = delete;
    ~costly() = default;
    static inline int copies = 0;
    static inline int moves = 0;
    static inline bool fails = false;
};

/// Everything but the count of refusals, which is what a refusal changes.
template <class Queue>
std::string content_of(const Queue& queue) {
    railmq::queue_stats s = queue.stats();
    s.refused = 0;
    return text_of(s);
}

/// All the values that are ready, in order.
template <class Queue>
auto values_of(const Queue& queue) {
    std::vector<typename Queue::value_type> all;
    for (auto& p : queue.peek(1'000)) {
        all.push_back(std::move(p.value));
    }
    return all;
}

} // namespace

TEST_CASE("producer: one that refers to no queue says so in every form") {
    railmq::sim_producer<std::string> none;
    CHECK_FALSE(none.is_open());
    error_code ec;
    none.send(std::string{"x"}, ec);
    CHECK(ec == errc::closed);
    ec = {};
    none.send(std::string{"x"}, properties{.key = "k"}, ec);
    CHECK(ec == errc::closed);
    none.try_send(std::string{"x"}, ec);
    CHECK(ec == errc::closed);
    CHECK_FALSE(none.try_send(std::string{"x"}));
    none.send_for(std::string{"x"}, 1s, ec);
    CHECK(ec == errc::closed);
    CHECK(none.send_batch(std::vector<std::string>{"x"}, ec) == 0);
    CHECK(ec == errc::closed);
    CHECK_THROWS_AS(none.send(std::string{"x"}), railmq::system_error);
    CHECK_THROWS_AS(none.send_batch(std::vector<std::string>{"x"}), railmq::system_error);
    simulation sim;
    error_code told;
    none.async_send(
        "x", asio::bind_executor(sim.get_executor(), [&](error_code e, receipt) { told = e; }));
    CHECK_FALSE(told);
    sim.run_ready();
    CHECK(told == errc::closed);
}

TEST_CASE("producer: bad input is refused in every form, and changes nothing") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<std::string>("q");
    auto producer = queue.producer({.max_message_bytes = 10});
    const std::string good = "0123456789";
    const std::string large = good + "x";
    producer.send(good);
    const std::string before = content_of(queue);
    error_code ec;

    producer.send(large, ec);
    CHECK(ec == errc::message_too_large);
    producer.send(large, properties{.key = "k"}, ec);
    CHECK(ec == errc::message_too_large);
    producer.try_send(large, ec);
    CHECK(ec == errc::message_too_large);
    producer.send_for(large, 1s, ec);
    CHECK(ec == errc::message_too_large);
    CHECK(producer.send_batch(std::vector<std::string>{large}, ec) == 0);
    CHECK(ec == errc::message_too_large);
    error_code told;
    producer.async_send(large, [&](error_code e, receipt) { told = e; });
    sim.run_ready();
    CHECK(told == errc::message_too_large);
    CHECK(queue.stats().refused == 6);

    for (const properties& bad :
         {properties{.delay = -1ns},
          properties{.time_to_live = -1ns},
          properties{.delay = railmq::duration::min()}}) {
        producer.send(good, bad, ec);
        CHECK(ec == errc::invalid_argument);
        producer.try_send(good, bad, ec);
        CHECK(ec == errc::invalid_argument);
        producer.send_for(good, bad, 1s, ec);
        CHECK(ec == errc::invalid_argument);
        CHECK_THROWS_AS(producer.send(good, bad), railmq::system_error);
        told = {};
        producer.async_send(good, bad, [&](error_code e, receipt) { told = e; });
        sim.run_ready();
        CHECK(told == errc::invalid_argument);
    }
    CHECK(content_of(queue) == before);
    producer.send(good, ec); // and an old error says nothing about the next
    CHECK_FALSE(ec);
}

TEST_CASE("producer: absurd times do not wrap") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    sim.advance(24h);
    producer.send(1, {.time_to_live = railmq::duration::max()});
    producer.send(2, {.delay = railmq::duration::max()});
    sim.advance(24h * 365 * 100);
    CHECK(queue.stats().ready == 1);
    CHECK(queue.stats().delayed == 1);
}

TEST_CASE("producer: an lvalue is copied, an rvalue is moved, once") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<costly>("q");
    auto producer = queue.producer();
    producer.send(costly{}); // the first one makes room
    costly::copies = costly::moves = 0;
    producer.send(costly{});
    CHECK(costly::copies == 0);
    CHECK(costly::moves == 1);
    const costly kept;
    producer.send(kept);
    CHECK(costly::copies == 1);
    costly::fails = true;
    const std::string before = text_of(queue);
    error_code ec;
    CHECK_THROWS_AS(producer.send(kept, ec), std::runtime_error);
    costly::fails = false;
    CHECK(text_of(queue) == before);
    producer.send(kept);
    CHECK(queue.stats().ready == 4);
}

TEST_CASE("producer: converts what converts") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<std::string>("q");
    auto producer = queue.producer();
    producer.send("a literal");
    CHECK(values_of(queue) == std::vector<std::string>{"a literal"});
}

TEST_CASE("producer: ids rise in the order of sending") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto one = queue.producer();
    auto two = one; // a copy sends to the same queue
    const auto a = one.send(1);
    const auto b = two.send(2);
    const auto c = one.send(3, {.key = "k"});
    CHECK(a.id < b.id);
    CHECK(b.id < c.id);
}

TEST_CASE("producer: a full queue, by every form") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q", {.max_length = 1});
    auto producer = queue.producer();
    producer.send(1);
    const std::string before = content_of(queue);
    error_code ec;
    producer.try_send(2, ec);
    CHECK(ec == errc::queue_full);
    CHECK_FALSE(producer.try_send(2));
    const auto start = sim.now();
    producer.send_for(2, 5s, ec);
    CHECK(ec == errc::timed_out);
    CHECK(sim.now() - start == 5s);
    producer.send_for(2, -5s, ec);
    CHECK(ec == errc::timed_out);
    producer.send(2, ec); // nobody could ever make room
    CHECK(ec == errc::would_deadlock);
    CHECK(content_of(queue) == before);

    auto strict = broker.queue<int>(
        "strict", {.max_length = 1, .overflow = railmq::overflow_policy::reject});
    strict.producer().send(1);
    strict.producer().send(2, ec);
    CHECK(ec == errc::queue_full);
    strict.producer().send_for(2, 1h, ec); // does not wait for what is refused
    CHECK(ec == errc::queue_full);
    CHECK(strict.stats().refused == 2);
}

TEST_CASE("producer: batches of every kind of range") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    CHECK(producer.send_batch(std::vector<int>{}) == 0);
    CHECK(producer.send_batch(std::vector<int>{1, 2}) == 2);
    const std::list<int> list{3, 4};
    CHECK(producer.send_batch(list) == 2);
    CHECK(producer.send_batch(std::views::iota(5, 8)) == 3);
    CHECK(values_of(queue) == std::vector<int>{1, 2, 3, 4, 5, 6, 7});
    std::vector<int> many(5'000, 9);
    CHECK(producer.send_batch(many) == 5'000); // more than a chunk
    CHECK(queue.stats().ready == 5'007);

    auto boxes = broker.queue<std::unique_ptr<int>>("boxes");
    std::vector<std::unique_ptr<int>> owned;
    owned.push_back(std::make_unique<int>(1));
    owned.push_back(std::make_unique<int>(2));
    CHECK(
        boxes.producer().send_batch(std::ranges::subrange(
            std::make_move_iterator(owned.begin()), std::make_move_iterator(owned.end()))) == 2);
    CHECK(owned[1] == nullptr);

    owned[0] = std::make_unique<int>(3);
    owned[1] = std::make_unique<int>(4);
    CHECK(boxes.producer().send_batch(std::move(owned)) == 2); // a range that gives them up
    auto consumer = boxes.consumer();
    for (const int expected : {1, 2, 3, 4}) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(*d->value() == expected);
        d->ack();
    }
}

TEST_CASE("producer: a range that computes its elements is asked for each once, in order") {
    railmq::broker broker;
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    int asked = 0;
    const auto counting =
        std::views::iota(0, 100) | std::views::transform([&](int) { return asked++; });
    CHECK(producer.send_batch(counting) == 100);
    CHECK(asked == 100);
    const auto noexcept_counting =
        std::views::iota(0, 100) | std::views::transform([&](int) noexcept { return asked++; });
    CHECK(producer.send_batch(noexcept_counting) == 100);
    CHECK(asked == 200);
    auto consumer = queue.consumer({.prefetch = railmq::unlimited});
    for (int expected = 0; expected < 200; ++expected) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->value() == expected);
        d->ack();
    }

    // What throws has sent those before it.
    const auto failing = std::views::iota(0, 100) | std::views::transform([](int n) {
                             return n < 7 ? n : throw std::runtime_error{"no more"};
                         });
    CHECK_THROWS_AS(producer.send_batch(failing), std::runtime_error);
    CHECK(queue.stats().ready == 7);
    CHECK(consumer.receive_batch(100, 0s).size() == 7);
}

TEST_CASE("producer: a batch as large as it likes, in and out, over many chunks") {
    railmq::broker broker;
    auto queue = broker.queue<int>("q");
    std::vector<int> all(100'000);
    std::iota(all.begin(), all.end(), 0);
    CHECK(queue.producer().send_batch(all) == all.size());
    auto consumer = queue.consumer({.prefetch = railmq::unlimited});
    auto got = consumer.receive_batch(all.size() + 1, 0s); // more than one allocation's worth
    REQUIRE(got.size() == all.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (*got[i] != all[i] || got[i].delivery_count() != 1) {
            FAIL("the message at " << i << " is " << *got[i]);
        }
    }
    CHECK(railmq::ack_all(got) == all.size());
    CHECK(queue.stats().acked == all.size());
    CHECK(queue.stats().ready == 0);
}

TEST_CASE("producer: a batch says how far it came") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<std::string>(
        "q", {.max_length = 3, .overflow = railmq::overflow_policy::reject});
    auto producer = queue.producer({.max_message_bytes = 5});
    error_code ec;
    CHECK(producer.send_batch(std::vector<std::string>{"a", "too long", "b"}, ec) == 1);
    CHECK(ec == errc::message_too_large);
    CHECK(producer.send_batch(std::vector<std::string>{"b", "c", "d", "e"}, ec) == 2);
    CHECK(ec == errc::queue_full);
    CHECK(values_of(queue) == std::vector<std::string>{"a", "b", "c"});
}

// --- Asynchronous sends ---

TEST_CASE("producer: async_send completes later, on its executor, with the receipt") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<std::string>("q");
    auto producer = queue.producer();
    const auto first = producer.send(std::string{"a"});
    bool done = false;
    producer.async_send("b", {.key = "k"}, [&](error_code ec, receipt r) {
        CHECK_FALSE(ec);
        CHECK(r.id > first.id);
        done = true;
    });
    CHECK_FALSE(done); // never inside the call
    CHECK(queue.stats().ready == 2);
    sim.run_ready();
    CHECK(done);
    CHECK(queue.peek(2)[1].properties.key == "k");
}

TEST_CASE("producer: async_send with every kind of token") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    // Unbound, a future's completion would run on the system's threads.
    const auto use_future = [&] {
        return asio::bind_executor(sim.get_executor(), asio::use_future);
    };
    std::future<receipt> future = producer.async_send(1, use_future());
    auto later = producer.async_send(2, asio::deferred);
    CHECK(queue.stats().accepted == 1); // a deferred one has not begun
    int done = 0;
    std::move(later)([&](error_code ec, receipt) { done += ec ? 0 : 1; });
    sim.spawn([](auto p, int& n) -> asio::awaitable<void> {
        co_await p.async_send(3, asio::use_awaitable);
        const auto [ec, r] = co_await p.async_send(4, asio::as_tuple(asio::use_awaitable));
        n += ec ? 0 : 1;
    }(producer, done));
    sim.run_ready();
    CHECK(future.wait_for(0s) == std::future_status::ready);
    CHECK_NOTHROW(future.get());
    CHECK(done == 2);
    CHECK(values_of(queue) == std::vector<int>{1, 2, 3, 4});

    queue.close();
    std::future<receipt> failed = producer.async_send(5, use_future());
    sim.run_ready();
    CHECK_THROWS_AS(failed.get(), railmq::system_error);
}

TEST_CASE("producer: waiting sends are placed in order as room comes") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q", {.max_length = 1});
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    producer.send(0);
    std::vector<int> placed;
    for (int n = 1; n <= 3; ++n) {
        producer.async_send(n, [&placed, n](error_code ec, receipt) {
            if (!ec) placed.push_back(n);
        });
    }
    sim.run_ready();
    CHECK(placed.empty());
    CHECK(queue.stats().waiting_senders == 3);
    for (int n = 0; n <= 3; ++n) {
        auto d = consumer.try_receive();
        REQUIRE(d);
        CHECK(d->value() == n);
        d->ack();
        sim.run_ready();
    }
    CHECK(placed == std::vector<int>{1, 2, 3});
}

TEST_CASE("producer: a cancelled send was not stored, and the others keep their order") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<std::unique_ptr<int>>("q", {.max_length = 1});
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    producer.send(std::make_unique<int>(0));
    asio::cancellation_signal signal;
    error_code first;
    error_code second = errc::closed;
    producer.async_send(
        std::make_unique<int>(1),
        asio::bind_cancellation_slot(signal.slot(), [&](error_code ec, receipt) { first = ec; }));
    producer.async_send(std::make_unique<int>(2), [&](error_code ec, receipt) { second = ec; });
    signal.emit(asio::cancellation_type::total);
    CHECK_FALSE(first); // not inside the emission either
    sim.run_ready();
    CHECK(first == asio::error::operation_aborted);
    signal.emit(asio::cancellation_type::total); // too late, harmless
    consumer.try_receive()->ack();
    sim.run_ready();
    CHECK_FALSE(second);
    CHECK(*consumer.try_receive()->take() == 2);
    CHECK(queue.stats().accepted == 2);
}

TEST_CASE("producer: closing ends sends that wait") {
    simulation sim;
    sim_broker broker{sim};
    auto queue = broker.queue<int>("q", {.max_length = 1});
    auto producer = queue.producer();
    producer.send(1);
    error_code told;
    producer.async_send(2, [&](error_code ec, receipt) { told = ec; });
    queue.close();
    CHECK_FALSE(told);
    sim.run_ready();
    CHECK(told == errc::closed);
}

TEST_CASE("producer: async_send on a thread of an io_context") {
    asio::io_context context;
    railmq::broker broker;
    auto queue = broker.queue<int>("q");
    auto producer = queue.producer();
    std::thread::id ran_on{};
    producer.async_send(1, asio::bind_executor(context, [&](error_code ec, receipt) {
        CHECK_FALSE(ec);
        ran_on = std::this_thread::get_id();
    }));
    CHECK(ran_on == std::thread::id{});
    std::thread runner{[&] { context.run(); }}; // the operation keeps it at work
    const auto id = runner.get_id();
    runner.join();
    CHECK(ran_on == id);
}
