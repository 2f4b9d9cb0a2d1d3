// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/codec.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq {

/// The size that limits and statistics count for a value of `T`: its own size, or what `size()`
/// says for byte strings. Specialize for a type that owns memory of its own;
/// `is_fixed` says that all values have the same, and can then be left out.
template <class T>
struct payload_size {
    static constexpr bool is_fixed = true;
    [[nodiscard]] static std::size_t of(const T&) noexcept { return sizeof(T); }
};

template <class Allocator>
struct payload_size<std::basic_string<char, std::char_traits<char>, Allocator>> {
    [[nodiscard]] static std::size_t
    of(const std::basic_string<char, std::char_traits<char>, Allocator>& s) noexcept {
        return s.size();
    }
};

template <class Byte, class Allocator>
requires(sizeof(Byte) == 1) struct payload_size<std::vector<Byte, Allocator>> {
    [[nodiscard]] static std::size_t of(const std::vector<Byte, Allocator>& v) noexcept {
        return v.size();
    }
};

} // namespace railmq

namespace railmq::core {

/// What the machines need to know of a message's type, so that they need not be templates of it.
struct payload_ops {
    std::uint32_t size;
    std::uint32_t align;
    /// Moves the object at `from` into the raw memory at `to` and ends `from`. When it throws,
    /// `from` still holds an object.
    void (*relocate)(void* to, void* from);
    /// Null when there is nothing to do.
    void (*destroy)(void*) noexcept;
    /// Null when the type cannot be copied.
    void (*copy)(void* to, const void* from);
    std::size_t (*bytes)(const void*) noexcept;
    /// Appends the value's bytes. Null, as the next two, when the type has no codec.
    void (*encode)(const void* from, std::vector<std::byte>& out);
    /// Makes a value of bytes. False: they are none, and nothing was made.
    bool (*decode)(void* to, std::span<const std::byte> in);
    /// What the bytes are.
    std::string (*format)();
    /// Ends what the value owns; the value that is left is only good for the next, or to be ended.
    /// Null, as the next, when it owns nothing, has no codec, or its move may throw.
    void (*shed)(void*) noexcept;
    /// Makes such a value what the bytes say. False: they are none, and it is as it was.
    bool (*refill)(void*, std::span<const std::byte> in);
};

template <class T>
struct payload_ops_of {
    static void relocate(void* to, void* from) {
        T* source = std::launder(static_cast<T*>(from));
        ::new (to) T(std::move(*source));
        std::destroy_at(source);
    }
    static void destroy(void* p) noexcept { std::destroy_at(std::launder(static_cast<T*>(p))); }
    static void copy(void* to, const void* from) {
        ::new (to) T(*std::launder(static_cast<const T*>(from)));
    }
    static std::size_t bytes(const void* p) noexcept {
        return payload_size<T>::of(*std::launder(static_cast<const T*>(p)));
    }

    static void encode(const void* from, std::vector<std::byte>& out) {
        codec<T>::encode(*std::launder(static_cast<const T*>(from)), out);
    }
    static bool decode(void* to, std::span<const std::byte> in) {
        std::optional<T> made = codec<T>::decode(in);
        if (made) {
            ::new (to) T(std::move(*made));
        }
        return made.has_value();
    }
    static std::string format() { return std::string{codec<T>::name()}; }

    static void shed(void* p) noexcept {
        [[maybe_unused]] const T gone{std::move(*std::launder(static_cast<T*>(p)))};
    }
    static bool refill(void* p, std::span<const std::byte> in) {
        std::optional<T> made = codec<T>::decode(in);
        if (made) {
            std::destroy_at(std::launder(static_cast<T*>(p)));
            ::new (p) T(std::move(*made));
        }
        return made.has_value();
    }

    [[nodiscard]] static constexpr auto copy_or_null() noexcept -> void (*)(void*, const void*) {
        if constexpr (std::is_copy_constructible_v<T>) {
            return &copy;
        } else {
            return nullptr;
        }
    }

    [[nodiscard]] static constexpr payload_ops make() noexcept {
        payload_ops ops{
            sizeof(T),
            alignof(T),
            &relocate,
            std::is_trivially_destructible_v<T> ? nullptr : &destroy,
            copy_or_null(),
            &bytes,
            nullptr,
            nullptr,
            nullptr,
            nullptr,
            nullptr};
        if constexpr (encodable<T>) {
            ops.encode = &encode;
            ops.decode = &decode;
            ops.format = &format;
            if constexpr (
                !std::is_trivially_destructible_v<T> && std::is_nothrow_move_constructible_v<T>) {
                ops.shed = &shed;
                ops.refill = &refill;
            }
        }
        return ops;
    }
    static constexpr payload_ops value = make();
};

} // namespace railmq::core
