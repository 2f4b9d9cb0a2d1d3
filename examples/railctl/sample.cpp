// SPDX-License-Identifier: BSL-1.0
//
// usage: railctl_sample DIR [close | hold]
//
// Makes a directory to look at with railctl: a shop whose process dies in the middle of its work.
// With `close` it ends in good order; with `hold` it waits, with the directory open, for a line on
// standard input.
#include <railmq/railmq.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <unistd.h>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fputs("usage: railctl_sample DIR [close | hold]\n", stderr);
        return 2;
    }
    const std::string_view how = argc > 2 ? argv[2] : "";
    try {
        railmq::broker broker{
            {.directory = argv[1], .journal = {.segment_bytes = 16384, .headroom_bytes = 8192}}};
        auto orders =
            broker.queue<std::string>("orders", {.max_length = 1000, .ack_timeout = 5min});
        auto producer = orders.producer();
        for (int i = 0; i < 100; ++i) {
            producer.send(
                "espresso number " + std::to_string(i) + std::string(100, '.'),
                {.message_id = "order-" + std::to_string(i)});
        }
        producer.send("forged\n2026-01-01 all is well \x1b[2J", {.message_id = "order-\r\x9b"});
        producer.send("for tomorrow", {.delay = 24h});
        auto consumer = orders.consumer({.prefetch = 10});
        consumer.try_receive()->ack();
        consumer.try_receive()->reject("no milk\n\xe2\x80\xae");
        consumer.try_receive()->reject("no cups");
        const auto held = consumer.try_receive();
        auto events = broker.exchange<std::string>(
            "events", railmq::exchange_type::topic, {.alternate = "spare"});
        events.bind(orders, "order.#");
        events.bind(orders, "forged\x1b[2J");
        auto prices = broker.log<std::string>("prices", {.partitions = 2});
        for (int i = 0; i < 10; ++i) {
            prices.producer().send("espresso", std::to_string(i), {.partition = 1});
        }
        prices.delete_records(1, 3);
        auto reader = prices.consumer({.group = "menu"});
        reader.try_receive()->ack();
        reader.commit();
        broker.sync();
        if (how == "hold") {
            std::puts("ready");
            std::fflush(stdout);
            (void)std::getchar();
        } else if (how != "close") {
            std::fflush(nullptr);
            ::_exit(0); // nobody closes anything
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
