// SPDX-License-Identifier: BSL-1.0
//
// Topics used by many threads at once: nothing is lost, nothing comes twice, nobody hangs.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/worlds.hpp"

#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using namespace railmq::test;

namespace {

/// Who sent it, and its number there.
struct numbered_message {
    int sender = 0;
    int number = 0;
};

} // namespace

TEST_CASE("every subscription gets everything once, in each sender's order [BR01]") {
    constexpr int senders = 2;
    constexpr int each = 3000;
    constexpr int subscriptions = 3;
    railmq::broker broker;
    const auto topic = broker.topic<numbered_message>("topic");
    std::vector<railmq::queue<numbered_message>> queues;
    for (int s = 0; s < subscriptions; ++s) {
        queues.push_back(topic.subscribe("s" + std::to_string(s)));
    }
    std::vector<std::thread> threads;
    for (int sender = 0; sender < senders; ++sender) {
        threads.emplace_back([&, sender] {
            auto producer = topic.producer();
            for (int n = 0; n < each; ++n) {
                producer.send(numbered_message{sender, n});
            }
        });
    }
    std::atomic<int> wrong{0};
    for (const auto& queue : queues) {
        threads.emplace_back([&] {
            auto consumer = queue.consumer();
            std::vector<int> next(senders, 0);
            for (int n = 0; n < senders * each; ++n) {
                auto d = consumer.receive(long_time);
                if (!d ||
                    d->value().number != next[static_cast<std::size_t>(d->value().sender)]++) {
                    ++wrong;
                    return;
                }
                d->ack();
            }
        });
    }
    for (auto& t : threads) {
        t.join();
    }
    CHECK(wrong == 0);
    for (const auto& queue : queues) {
        CHECK(queue.stats().acked == senders * each);
        CHECK(queue.stats().ready == 0);
    }
}

TEST_CASE("competing consumers of one subscription share, and drop now and then") {
    constexpr int messages = 5000;
    railmq::broker broker;
    const auto topic = broker.topic<int>("topic");
    const auto queue = topic.subscribe("s", {.queue = {.retry = at_once()}});
    std::vector<std::atomic<int>> acked(messages);
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    for (int c = 0; c < 3; ++c) {
        threads.emplace_back([&, c] {
            auto consumer = queue.consumer({.prefetch = 50});
            int n = c;
            while (done < messages) {
                auto d = consumer.receive(5ms);
                const auto value = d ? static_cast<std::size_t>(d->value()) : 0;
                if (d && ++n % 7 != 0 && d->ack()) {
                    ++acked[value];
                    ++done;
                }
            }
        });
    }
    auto producer = topic.producer();
    for (int n = 0; n < messages; ++n) {
        producer.send(n);
    }
    for (auto& t : threads) {
        t.join();
    }
    for (const auto& n : acked) {
        CHECK(n == 1);
    }
}

TEST_CASE("subscribing, ending, deleting and publishing at once") {
    railmq::broker broker;
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    threads.emplace_back([&] { // publishes to whatever is there
        int n = 0;
        while (!over) {
            try {
                auto producer = broker.topic<int>("topic").producer();
                for (int i = 0; i < 100; ++i) {
                    producer.send(++n);
                }
            } catch (const railmq::system_error& e) { // deleted in between
                wrong += e.code() == errc::not_found ? 0 : 1;
            }
        }
    });
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
            const std::string name = "s" + std::to_string(t);
            for (int round = 0; round < 300; ++round) {
                try {
                    const auto topic = broker.topic<int>("topic");
                    const auto named = topic.subscribe(name);
                    auto live = topic.subscribe();
                    auto a = named.consumer();
                    auto b = live.consumer();
                    int last = 0;
                    for (int i = 0; i < 5; ++i) {
                        if (auto d = b.receive(1ms)) {
                            wrong += d->value() <= last ? 1 : 0;
                            last = d->value();
                            d->ack();
                        }
                        (void)a.try_receive();
                    }
                    if (round % 3 == 0) {
                        railmq::error_code ec;
                        topic.unsubscribe(name, ec, true);
                    }
                    (void)topic.stats();
                    (void)topic.subscriptions();
                    if (round % 50 == 49 && t == 0) {
                        railmq::error_code ec;
                        broker.delete_topic("topic", ec);
                    }
                } catch (const railmq::system_error& e) { // deleted in between
                    wrong += e.code() == errc::not_found || e.code() == errc::closed ? 0 : 1;
                }
            }
        });
    }
    for (std::size_t t = 1; t < threads.size(); ++t) {
        threads[t].join();
    }
    over = true;
    threads[0].join();
    CHECK(wrong == 0);
    railmq::error_code ec;
    broker.delete_topic("topic", ec);
    CHECK(broker.topic_names().empty());
}

TEST_CASE("handlers and observers may do anything [BX18]") {
    std::atomic<std::uint64_t> seen{0};
    railmq::broker* to_call = nullptr;
    std::atomic<int> depth{0};
    railmq::broker broker{{.observer = [&](const railmq::notice&) {
        ++seen;
        if (depth.fetch_add(1) == 0 && to_call != nullptr) {
            (void)to_call->topic<int>("other").subscribe("from-observer");
        }
        depth.fetch_sub(1);
    }}};
    to_call = &broker;
    const auto topic = broker.topic<int>("topic");
    boost::asio::thread_pool pool{2};
    std::atomic<int> handled{0};
    std::vector<railmq::subscription> subscriptions;
    for (int s = 0; s < 2; ++s) {
        const auto queue = topic.subscribe("s" + std::to_string(s));
        subscriptions.push_back(queue.subscribe(pool.get_executor(), [&, s](const int& value) {
            auto other = broker.topic<int>("topic-" + std::to_string((s + value) % 2));
            const auto mine = other.subscribe("h" + std::to_string(s));
            other.producer().send(value);
            auto consumer = mine.consumer();
            (void)consumer.try_receive();
            other.unsubscribe("h" + std::to_string(s), true);
            ++handled;
        }));
    }
    auto producer = topic.producer();
    for (int n = 0; n < 200; ++n) {
        producer.send(n);
    }
    while (handled < 400) {
        std::this_thread::yield();
    }
    subscriptions.clear();
    pool.join();
    to_call = nullptr;
    CHECK(handled == 400);
}
