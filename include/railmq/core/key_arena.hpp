// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/memory_budget.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string_view>

namespace railmq::core {

/// Where many keys lie behind each other, in blocks that go together: no allocation a key, and
/// one address is all that a record needs.
///
/// Thread safety: one thread at a time; a key that was stored can be read by any.
template <class Sync>
class key_arena {
public:
    static constexpr std::size_t max_key_bytes = std::size_t{1} << 30;

    explicit key_arena(memory_budget<Sync>& budget) noexcept
        : budget_{budget} {}
    key_arena(const key_arena&) = delete;
    key_arena& operator=(const key_arena&) = delete;
    ~key_arena() { clear(); }

    /// What a key takes.
    [[nodiscard]] static constexpr std::size_t bytes_of(std::string_view key) noexcept {
        return (sizeof(std::uint32_t) + key.size() + 3) / 4 * 4;
    }

    /// Makes room for keys that take so many bytes together. False: no memory, or the budget's
    /// limit would be passed and `force` does not say otherwise; nothing has changed.
    [[nodiscard]] bool reserve(std::size_t bytes, bool force = false) noexcept {
        if (bytes <= room_) {
            return true;
        }
        const std::size_t capacity = std::max(next_capacity_, sizeof(block) + bytes);
        if (force) {
            budget_.charge(capacity);
        } else if (!budget_.try_charge(capacity)) {
            return false;
        }
        void* raw = ::operator new(capacity, std::nothrow);
        if (raw == nullptr) {
            budget_.release(capacity);
            return false;
        }
        last_ = ::new (raw) block{last_, capacity};
        to_ = static_cast<std::byte*>(raw) + sizeof(block);
        room_ = capacity - sizeof(block);
        next_capacity_ = std::min(next_capacity_ * 2, largest_block);
        charged_ += capacity;
        return true;
    }

    /// Stores a key that there is room for.
    [[nodiscard]] const std::byte* store(std::string_view key) noexcept {
        const std::size_t bytes = bytes_of(key);
        RAILMQ_ASSERT(bytes <= room_ && key.size() <= max_key_bytes);
        std::byte* const at = to_;
        const auto size = static_cast<std::uint32_t>(key.size());
        std::memcpy(at, &size, sizeof size);
        if (size != 0) {
            std::memcpy(at + sizeof size, key.data(), size);
        }
        to_ += bytes;
        room_ -= bytes;
        return at;
    }

    /// The key that was stored there.
    [[nodiscard]] static std::string_view at(const std::byte* stored) noexcept {
        std::uint32_t size = 0;
        std::memcpy(&size, stored, sizeof size);
        return {reinterpret_cast<const char*>(stored + sizeof size), size};
    }

    /// Frees every key.
    void clear() noexcept {
        while (last_ != nullptr) {
            block* const before = last_->before;
            ::operator delete(static_cast<void*>(last_));
            last_ = before;
        }
        budget_.release(charged_);
        charged_ = 0;
        room_ = 0;
        next_capacity_ = smallest_block;
    }

    /// What the blocks take of the budget.
    [[nodiscard]] std::size_t memory_bytes() const noexcept { return charged_; }

private:
    static constexpr std::size_t smallest_block = 512;
    static constexpr std::size_t largest_block = std::size_t{64} << 10;

    struct block {
        block* before;
        std::size_t capacity;
    };

    memory_budget<Sync>& budget_;
    block* last_ = nullptr;
    std::byte* to_ = nullptr;
    std::size_t room_ = 0;
    std::size_t next_capacity_ = smallest_block;
    std::size_t charged_ = 0;
};

} // namespace railmq::core
