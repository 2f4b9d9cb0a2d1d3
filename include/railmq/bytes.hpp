// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/payload_ops.hpp>
#include <railmq/model/codec.hpp>
#include <railmq/model/errc.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

class bytes;

namespace detail {

/// Memory that many byte messages share: filled from the front by one producer, freed when the
/// last message in it is gone.
struct byte_block {
    std::atomic<std::uint64_t> references{0};
    std::size_t capacity = 0;
    /// Gives the block's bytes back to the broker's memory budget.
    std::shared_ptr<void> charge{};

    [[nodiscard]] std::byte* data() noexcept {
        return reinterpret_cast<std::byte*>(this) + sizeof(byte_block);
    }
    [[nodiscard]] static byte_block* make(std::size_t capacity, std::uint64_t references) {
        void* raw = ::operator new(sizeof(byte_block) + capacity);
        auto* b = ::new (raw) byte_block{};
        b->capacity = capacity;
        b->references.store(references, std::memory_order_relaxed);
        return b;
    }
    static void drop(byte_block* b, std::uint64_t references) noexcept {
        if (b->references.fetch_sub(references, std::memory_order_acq_rel) == references) {
            std::destroy_at(b);
            ::operator delete(static_cast<void*>(b));
        }
    }
};

template <class Budget>
class byte_arena;

} // namespace detail

/// A run of bytes that never changes. As a message type it is stored in blocks that a producer
/// fills one message after another, and read in place: sending copies once and allocates nothing,
/// where a `std::string` costs an allocation on one thread and its end on another.
///
/// Copies share the bytes. Thread safety: distinct objects are safe, even if they share bytes.
class bytes {
public:
    /// No bytes.
    bytes() noexcept = default;
    /// A copy of `content` in memory of its own.
    explicit bytes(std::span<const std::byte> content) {
        if (!content.empty()) {
            block_ = detail::byte_block::make(content.size(), 1);
            std::memcpy(block_->data(), content.data(), content.size());
            data_ = block_->data();
            size_ = content.size();
        }
    }
    explicit bytes(std::string_view content)
        : bytes{std::as_bytes(std::span{content.data(), content.size()})} {}

    bytes(const bytes& other) noexcept
        : data_{other.data_}
        , size_{other.size_}
        , block_{other.block_} {
        if (block_ != nullptr) {
            block_->references.fetch_add(1, std::memory_order_relaxed);
        }
    }
    bytes(bytes&& other) noexcept
        : data_{std::exchange(other.data_, nullptr)}
        , size_{std::exchange(other.size_, 0)}
        , block_{std::exchange(other.block_, nullptr)} {}
    bytes& operator=(bytes other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(block_, other.block_);
        return *this;
    }
    ~bytes() {
        if (block_ != nullptr) {
            detail::byte_block::drop(block_, 1);
        }
    }

    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::span<const std::byte> span() const noexcept { return {data_, size_}; }
    [[nodiscard]] std::string_view view() const noexcept {
        return {reinterpret_cast<const char*>(data_), size_};
    }

    /// Whether the contents are equal.
    friend bool operator==(const bytes& a, const bytes& b) noexcept { return a.view() == b.view(); }

private:
    template <class>
    friend class detail::byte_arena;

    bytes(const std::byte* data, std::size_t size, detail::byte_block* block) noexcept
        : data_{data}
        , size_{size}
        , block_{block} {}

    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    detail::byte_block* block_ = nullptr;
};

template <>
struct codec<bytes> {
    static void encode(const bytes& value, std::vector<std::byte>& out) {
        out.insert(out.end(), value.data(), value.data() + value.size());
    }
    [[nodiscard]] static std::optional<bytes> decode(std::span<const std::byte> in) {
        return bytes{in};
    }
    [[nodiscard]] static std::string name() { return "bytes"; }
};

template <>
struct payload_size<bytes> {
    [[nodiscard]] static std::size_t of(const bytes& b) noexcept { return b.size(); }
};

namespace detail {

/// Where a producer of `bytes` puts what it sends. One thread at a time.
template <class Budget>
class byte_arena {
public:
    static constexpr std::size_t block_bytes = std::size_t{64} << 10;

    byte_arena() noexcept = default;
    byte_arena(const byte_arena&) = delete;
    byte_arena& operator=(const byte_arena&) = delete;
    ~byte_arena() { retire(); }

    /// Copies `content` in. The budget's owner is kept alive for as long as a block is.
    /// `memory_limit` when there is no room in the budget; then the result is empty.
    [[nodiscard]] bytes copy(
        std::span<const std::byte> content, const std::shared_ptr<Budget>& budget, error_code& ec) {
        ec = {};
        if (content.empty()) {
            return {};
        }
        if (block_ == nullptr || content.size() > block_->capacity - used_) {
            if (!refill(content.size(), budget)) {
                ec = errc::memory_limit;
                return {};
            }
        }
        std::byte* to = block_->data() + used_;
        std::memcpy(to, content.data(), content.size());
        used_ += content.size();
        // A reference is handed out of those taken in advance, so that the block's counter, which
        // the consumers write, is not written here as well.
        --credit_;
        bytes made{to, content.size(), block_};
        if (credit_ == 1) {
            retire();
        }
        return made;
    }

private:
    static constexpr std::uint64_t credits = std::uint64_t{1} << 32;

    [[nodiscard]] bool refill(std::size_t at_least, const std::shared_ptr<Budget>& budget) {
        const std::size_t capacity = std::max(block_bytes - sizeof(byte_block), at_least);
        if (!budget->try_charge(capacity)) {
            return false;
        }
        std::shared_ptr<void> charge;
        byte_block* made = nullptr;
        try {
            charge = std::shared_ptr<void>(
                nullptr, [budget, capacity](void*) noexcept { budget->release(capacity); });
        } catch (...) {
            budget->release(capacity);
            throw;
        }
        made = byte_block::make(capacity, credits);
        made->charge = std::move(charge);
        retire();
        block_ = made;
        used_ = 0;
        credit_ = credits;
        return true;
    }
    void retire() noexcept {
        if (block_ != nullptr) {
            byte_block::drop(std::exchange(block_, nullptr), credit_);
        }
    }

    byte_block* block_ = nullptr;
    std::size_t used_ = 0;
    std::uint64_t credit_ = 0;
};

} // namespace detail
} // namespace railmq
