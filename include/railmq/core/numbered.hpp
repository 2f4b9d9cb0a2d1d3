// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace railmq::core {

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

    /// Precondition: the number is in use. With the last one all memory is given back, and numbers
    /// begin anew; until then memory is that of the busiest moment.
    void give(std::uint32_t number) noexcept {
        items_[number] = T{};
        free_.push_back(number);
        if (constexpr std::size_t few = 64; free_.size() == items_.size() && items_.size() > few) {
            std::vector<T>{}.swap(items_);
            std::vector<std::uint32_t>{}.swap(free_);
        }
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

/// Gives back memory of a flat hash map when seven eighths of it are unused, if there is some for
/// the smaller one. Cost: amortised by what was erased.
template <class Map>
void shrink_if_sparse(Map& map) noexcept {
    constexpr std::size_t few = 64;
    if (map.bucket_count() > few && map.size() * 8 < map.bucket_count()) {
        try {
            map.rehash(map.size() * 2);
        } catch (...) { // another time
        }
    }
}

} // namespace railmq::core
