// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/payload_ops.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

using railmq::core::payload_ops;
using railmq::core::payload_ops_of;

namespace {

template <class T>
struct space {
    alignas(T) std::byte bytes[sizeof(T)];
    [[nodiscard]] T& value() noexcept { return *std::launder(reinterpret_cast<T*>(bytes)); }
};

/// Counts what is alive, and refuses to be moved on demand.
struct counted {
    explicit counted(int v)
        : value{v} {
        ++alive;
    }
    counted(counted&& other)
        : value{other.value} {
        if (refuses) throw std::runtime_error("moved");
        ++alive;
    }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    counted& operator=(counted&&) = delete;
    ~counted() { --alive; }
    int value;
    static inline int alive = 0;
    static inline bool refuses = false;
};

struct owner {
    std::size_t bytes;
};

} // namespace

template <>
struct railmq::payload_size<owner> {
    [[nodiscard]] static std::size_t of(const owner& o) noexcept { return o.bytes; }
};

TEST_CASE("payload_ops: moves a value to another place and ends the old one") {
    const payload_ops& ops = payload_ops_of<counted>::value;
    CHECK(ops.size == sizeof(counted));
    CHECK(ops.align == alignof(counted));
    space<counted> from;
    space<counted> to;
    ::new (static_cast<void*>(from.bytes)) counted{7};
    ops.relocate(to.bytes, from.bytes);
    CHECK(counted::alive == 1);
    CHECK(to.value().value == 7);
    REQUIRE(ops.destroy != nullptr);
    ops.destroy(to.bytes);
    CHECK(counted::alive == 0);
    CHECK(ops.copy == nullptr); // it cannot be copied
}

TEST_CASE("payload_ops: a move that throws leaves the value where it was") {
    const payload_ops& ops = payload_ops_of<counted>::value;
    space<counted> from;
    space<counted> to;
    ::new (static_cast<void*>(from.bytes)) counted{7};
    counted::refuses = true;
    CHECK_THROWS_AS(ops.relocate(to.bytes, from.bytes), std::runtime_error);
    counted::refuses = false;
    CHECK(counted::alive == 1);
    CHECK(from.value().value == 7);
    ops.destroy(from.bytes);
}

TEST_CASE("payload_ops: says what a type does not need") {
    CHECK(payload_ops_of<int>::value.destroy == nullptr);
    CHECK(payload_ops_of<int>::value.copy != nullptr);
    CHECK(payload_ops_of<std::string>::value.destroy != nullptr);
    CHECK(payload_ops_of<std::unique_ptr<int>>::value.copy == nullptr);
}

TEST_CASE("payload_ops: copies") {
    const payload_ops& ops = payload_ops_of<std::string>::value;
    const std::string from = "long enough to live on the heap, whatever the library";
    space<std::string> to;
    ops.copy(to.bytes, &from);
    CHECK(to.value() == from);
    ops.destroy(to.bytes);
}

TEST_CASE("payload_size: what a value's limits count") {
    const std::string text = "seven!!";
    CHECK(payload_ops_of<std::string>::value.bytes(&text) == 7);
    const std::vector<unsigned char> bytes(12);
    CHECK(payload_ops_of<std::vector<unsigned char>>::value.bytes(&bytes) == 12);
    const std::vector<std::byte> none;
    CHECK(payload_ops_of<std::vector<std::byte>>::value.bytes(&none) == 0);
    const std::vector<int> numbers(12); // no byte string
    CHECK(payload_ops_of<std::vector<int>>::value.bytes(&numbers) == sizeof(std::vector<int>));
    const double d = 0;
    CHECK(payload_ops_of<double>::value.bytes(&d) == sizeof(double));
    const owner o{99};
    CHECK(payload_ops_of<owner>::value.bytes(&o) == 99);
}

TEST_CASE("payload_ops: a value's memory leaves and comes back") {
    const payload_ops& ops = payload_ops_of<std::string>::value;
    std::string value(1'000, 'x');
    std::vector<std::byte> kept;
    ops.encode(&value, kept);
    ops.shed(&value);
    CHECK(value.capacity() < 100);
    REQUIRE(ops.refill(&value, kept));
    CHECK(value == std::string(1'000, 'x'));

    // Nothing to gain, no way back, or none that is safe.
    CHECK(payload_ops_of<int>::value.shed == nullptr);
    CHECK(payload_ops_of<std::unique_ptr<int>>::value.shed == nullptr);
    CHECK(payload_ops_of<counted>::value.shed == nullptr);
}
