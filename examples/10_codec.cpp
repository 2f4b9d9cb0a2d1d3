// SPDX-License-Identifier: BSL-1.0
//
// A type of your own in a durable queue: `railmq::codec<T>` says how it becomes bytes and comes
// back. What cannot be read back is set aside, as bytes, and disturbs nobody.

#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct order {
    int table = 0;
    std::string drink{};
};

/// Orders of more than that are written by a program with a newer format.
int highest_table = 99;

} // namespace

/// "4:tea": short, and one can read it in a dump.
template <>
struct railmq::codec<order> {
    static void encode(const order& o, std::vector<std::byte>& out) {
        codec<std::string>::encode(fmt::format("{}:{}", o.table, o.drink), out);
    }
    static std::optional<order> decode(std::span<const std::byte> in) {
        const std::string_view text{reinterpret_cast<const char*>(in.data()), in.size()};
        order o;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), o.table);
        const auto colon = static_cast<std::size_t>(end - text.data());
        if (error != std::errc{} || colon == text.size() || text[colon] != ':' ||
            o.table > highest_table) {
            return std::nullopt; // these bytes are no order
        }
        o.drink = text.substr(colon + 1);
        return o;
    }
    /// A queue is opened again with the name that it was made with: change it with the format.
    static std::string_view name() { return "order, version 1"; }
};

int main() {
    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    {
        railmq::sim_broker broker{sim, disk.directory()};
        auto producer = broker.queue<order>("orders").producer();
        producer.send({4, "tea"});
        producer.send({77, "milk: warm"});
        producer.send({5, "espresso"});
    }

    highest_table = 50; // the next version of the program knows no table 77
    railmq::sim_broker broker{sim, disk.directory()};
    auto orders = broker.queue<order>("orders");
    std::vector<std::string> drinks;
    auto consumer = orders.consumer();
    while (auto d = consumer.try_receive()) {
        drinks.push_back((*d)->drink);
        d->ack();
    }
    const auto aside = broker.queue<railmq::bytes>("orders.undecodable").peek(10);
    fmt::print("served: {}\n", fmt::join(drinks, ", "));
    for (const auto& m : aside) {
        fmt::print("set aside: {} ({})\n", m.value.view(), to_string(m.deaths.front().reason));
    }
    const bool ok = drinks == std::vector<std::string>{"tea", "espresso"} && aside.size() == 1 &&
                    aside[0].value.view() == "77:milk: warm";

    // Another type, or another format, does not get at them.
    try {
        (void)broker.queue<std::string>("orders");
        return 1;
    } catch (const railmq::system_error& e) {
        fmt::print("{}\n", e.what());
        return ok && e.code() == railmq::errc::type_mismatch ? 0 : 1;
    }
}
