// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace railmq::storage {

/// Bytes that grow at the end, and whose room is used again. Unlike a vector's, new ones are not
/// set to anything: whoever adds them writes them all.
///
/// Distinct objects: safe. Shared objects: unsafe.
class record_buffer {
public:
    record_buffer() = default;
    record_buffer(record_buffer&& other) noexcept
        : room_{std::move(other.room_)}
        , capacity_{std::exchange(other.capacity_, 0)}
        , size_{std::exchange(other.size_, 0)} {}
    record_buffer& operator=(record_buffer&& other) noexcept {
        room_ = std::move(other.room_);
        capacity_ = std::exchange(other.capacity_, 0);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }
    ~record_buffer() = default;

    /// The next `size` bytes will need no memory.
    void reserve(std::size_t size) {
        if (size > capacity_ - size_) {
            grow(size);
        }
    }
    /// Adds `size` bytes, to be written by the caller.
    [[nodiscard]] std::span<std::byte> extend(std::size_t size) {
        reserve(size);
        return {room_.get() + std::exchange(size_, size_ + size), size};
    }
    /// Keeps the room.
    void clear() noexcept { size_ = 0; }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {room_.get(), size_}; }

private:
    void grow(std::size_t size) {
        const std::size_t capacity = std::max(2 * capacity_, size_ + size);
        auto room = std::make_unique_for_overwrite<std::byte[]>(capacity);
        std::copy_n(room_.get(), size_, room.get());
        room_ = std::move(room);
        capacity_ = capacity;
    }

    std::unique_ptr<std::byte[]> room_{};
    std::size_t capacity_ = 0;
    std::size_t size_ = 0;
};

} // namespace railmq::storage
