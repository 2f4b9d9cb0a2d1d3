// SPDX-License-Identifier: BSL-1.0
//
// A codec by a serialization library, here nlohmann/json (Debian: nlohmann-json3-dev). Formats that
// name their fields can grow: an order that an older program has stored, before tips were invented,
// is read by a newer one.

#include <railmq/railmq.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <fmt/core.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace v1 {
struct order {
    int table = 0;
    std::vector<std::string> drinks{};
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(order, table, drinks)
} // namespace v1

namespace v2 {
struct order {
    int table = 0;
    std::vector<std::string> drinks{};
    int tip = 0; // new
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(order, table, drinks, tip)
} // namespace v2

/// A codec for whatever the library can read and write. It fits on a page, so it is not in ours.
template <class T>
struct json_codec {
    static void encode(const T& value, std::vector<std::byte>& out) {
        railmq::codec<std::string>::encode(nlohmann::json(value).dump(), out);
    }
    static std::optional<T> decode(std::span<const std::byte> in) {
        const auto* const text = reinterpret_cast<const char*>(in.data());
        return nlohmann::json::parse(text, text + in.size()).template get<T>(); // or throws
    }
    static std::string_view name() { return "order as JSON"; }
};

} // namespace

template <>
struct railmq::codec<v1::order> : json_codec<v1::order> {};
template <>
struct railmq::codec<v2::order> : json_codec<v2::order> {};

int main() {
    railmq::simulation sim{1};
    railmq::storage::simulated_disk disk{1};
    {
        railmq::sim_broker broker{sim, disk.directory()};
        broker.queue<v1::order>("orders").producer().send({4, {"tea", "milk"}});
    }
    railmq::sim_broker broker{sim, disk.directory()};
    auto orders = broker.queue<v2::order>("orders"); // the same format, by its name
    orders.producer().send({5, {"espresso"}, 20});
    std::vector<int> tips;
    auto consumer = orders.consumer();
    while (auto d = consumer.try_receive()) {
        fmt::print("table {}: {} drinks, tip {}\n", (*d)->table, (*d)->drinks.size(), (*d)->tip);
        tips.push_back((*d)->tip);
        d->ack();
    }
    return tips == std::vector<int>{0, 20} ? 0 : 1;
}
