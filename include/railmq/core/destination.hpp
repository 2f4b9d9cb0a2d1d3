// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace railmq::core {

/// What a binding may lead to.
enum class destination_kind : std::uint8_t { queue, log, exchange };

/// The end of a binding: a queue, a log or another exchange, by a number. Those of exchanges come
/// from the router, the others from whoever owns queues and logs; each kind counts for itself.
struct destination {
    destination_kind kind = destination_kind::queue;
    std::uint32_t id = 0;

    [[nodiscard]] static constexpr destination queue(std::uint32_t id) noexcept {
        return {destination_kind::queue, id};
    }
    [[nodiscard]] static constexpr destination log(std::uint32_t id) noexcept {
        return {destination_kind::log, id};
    }
    [[nodiscard]] static constexpr destination exchange(std::uint32_t id) noexcept {
        return {destination_kind::exchange, id};
    }

    /// Kind and number as one number, another one for each destination.
    [[nodiscard]] constexpr std::uint64_t as_number() const noexcept {
        return static_cast<std::uint64_t>(kind) << 32 | id;
    }

    friend constexpr bool operator==(destination, destination) noexcept = default;
};

/// No number, where one is expected.
inline constexpr std::uint32_t no_number = std::numeric_limits<std::uint32_t>::max();

/// Things by small numbers, which are given out again. To give one back can not fail.
template <class T>
class numbered {
public:
    [[nodiscard]] T& operator[](std::uint32_t number) noexcept { return items_[number]; }
    [[nodiscard]] const T& operator[](std::uint32_t number) const noexcept {
        return items_[number];
    }

    /// How many numbers there are, in use or not: all are below.
    [[nodiscard]] std::size_t numbers() const noexcept { return items_.size(); }

    /// How many are in use.
    [[nodiscard]] std::size_t size() const noexcept { return items_.size() - free_.size(); }

    /// The number that `take` is going to give. Cost: O(1), amortised.
    /// Throws `std::bad_alloc`; then nothing has changed.
    [[nodiscard]] std::uint32_t next() {
        if (free_.empty()) {
            if (free_.capacity() <= items_.size()) {
                free_.reserve(2 * items_.size() + 4);
            }
            items_.emplace_back();
            free_.push_back(static_cast<std::uint32_t>(items_.size() - 1));
        }
        return free_.back();
    }

    /// Precondition: `next` was called since the last `take`. What it names is as default
    /// constructed.
    std::uint32_t take() noexcept {
        const std::uint32_t number = free_.back();
        free_.pop_back();
        return number;
    }

    /// Precondition: the number is in use.
    void give(std::uint32_t number) noexcept {
        items_[number] = T{};
        free_.push_back(number);
    }

private:
    std::vector<T> items_{};
    std::vector<std::uint32_t> free_{};
};

/// Makes sure that the next element needs no memory. Throws `std::bad_alloc`.
template <class Vector>
void reserve_one_more(Vector& v) {
    if (v.size() == v.capacity()) {
        v.reserve(2 * v.size() + 1);
    }
}

} // namespace railmq::core
