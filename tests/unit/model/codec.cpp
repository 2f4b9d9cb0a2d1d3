// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/codec.hpp>

#include <railmq/bytes.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct point {
    std::int32_t x = 0;
    std::int32_t y = 0;
    friend bool operator==(const point&, const point&) = default;
};
struct order {
    std::string drink{};
    int table = 0;
};

template <class T>
std::vector<std::byte> encoded(const T& value) {
    std::vector<std::byte> out{std::byte{0x55}}; // what is there already stays
    railmq::codec<T>::encode(value, out);
    REQUIRE(out.front() == std::byte{0x55});
    out.erase(out.begin());
    return out;
}
template <class T>
std::optional<T> there_and_back(const T& value) {
    return railmq::codec<T>::decode(encoded(value));
}

} // namespace

template <>
struct railmq::codec<order> {
    static void encode(const order& value, std::vector<std::byte>& out) {
        codec<std::string>::encode(value.drink + "@" + std::to_string(value.table), out);
    }
    static std::optional<order> decode(std::span<const std::byte> in) {
        const auto text = codec<std::string>::decode(in).value();
        const auto at = text.rfind('@');
        if (at == std::string::npos) {
            return std::nullopt;
        }
        return order{text.substr(0, at), std::stoi(text.substr(at + 1))};
    }
    static std::string_view name() { return "order/1"; }
};

TEST_CASE("values come back from their bytes") {
    CHECK(there_and_back(42) == 42);
    CHECK(there_and_back(point{-3, 7}) == point{-3, 7});
    CHECK(there_and_back(std::string{}) == std::string{});
    CHECK(there_and_back(std::string{"a\0b", 3}) == std::string{"a\0b", 3});
    const std::vector<unsigned char> raw{0, 255, 7};
    CHECK(there_and_back(raw) == raw);
    CHECK(there_and_back(railmq::bytes{"flat white"}) == railmq::bytes{"flat white"});
    const auto tea = there_and_back(order{"tea", 4});
    REQUIRE(tea);
    CHECK(tea->drink == "tea");
    CHECK(tea->table == 4);
}

TEST_CASE("bytes that are no value give none") {
    CHECK_FALSE(railmq::codec<point>::decode({}));
    std::vector<std::byte> long_one = encoded(point{1, 2});
    long_one.push_back(std::byte{0});
    CHECK_FALSE(railmq::codec<point>::decode(long_one));
    CHECK_FALSE(railmq::codec<order>::decode(encoded(std::string{"nothing"})));
}

TEST_CASE("strings of bytes have one format, whatever they are kept in") {
    CHECK(railmq::codec<std::string>::name() == railmq::codec<railmq::bytes>::name());
    CHECK(railmq::codec<std::string>::name() == railmq::codec<std::vector<std::byte>>::name());
    CHECK(railmq::codec<point>::name() != railmq::codec<std::string>::name());
    CHECK(railmq::codec<point>::name() != railmq::codec<int>::name());
}

TEST_CASE("what has no bytes of its own has no codec") {
    STATIC_REQUIRE(railmq::encodable<point>);
    STATIC_REQUIRE(railmq::encodable<order>);
    STATIC_REQUIRE(railmq::encodable<railmq::bytes>);
    STATIC_REQUIRE_FALSE(railmq::encodable<std::unique_ptr<int>>);
    STATIC_REQUIRE_FALSE(railmq::encodable<const char*>);
    STATIC_REQUIRE_FALSE(railmq::encodable<std::string_view>);
    STATIC_REQUIRE_FALSE(railmq::encodable<std::vector<std::string>>);
}
