// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace railmq {

/// How a message of type `T` becomes bytes and comes back, where bytes are needed: in a journal.
/// There is one for trivially copyable types (their bytes as they lie in memory, so for machines of
/// one kind alone), for strings, vectors of bytes and `railmq::bytes`. For another type, specialize
/// it:
///
/// - `encode(value, out)` appends to `out`. What it throws, the send passes on, and nothing is
///   stored.
/// - `decode(in)` returns the value, or nothing for bytes that are none. Such a message becomes a
///   dead letter, as it does when `decode` throws.
/// - `name()` says which format it is, and changes when that does. A queue is reopened with the
///   name that it was made with.
///
/// All run under a queue's lock at times, as may a move or the end of a value: they must not call
/// the broker.
template <class T>
struct codec;

/// A type that can be kept in a journal.
template <class T>
concept encodable = requires(const T& value, std::vector<std::byte>& out, std::string_view name) {
    codec<T>::encode(value, out);
    { codec<T>::decode(std::span<const std::byte>{}) } -> std::same_as<std::optional<T>>;
    name = codec<T>::name();
};

template <class T>
requires(
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
    !std::same_as<T, std::string_view>) struct codec<T> {
    static void encode(const T& value, std::vector<std::byte>& out) {
        const auto* const from = reinterpret_cast<const std::byte*>(&value);
        out.insert(out.end(), from, from + sizeof(T));
    }
    [[nodiscard]] static std::optional<T> decode(std::span<const std::byte> in) noexcept {
        if (in.size() != sizeof(T)) {
            return std::nullopt;
        }
        std::array<std::byte, sizeof(T)> raw;
        std::memcpy(raw.data(), in.data(), sizeof(T));
        return std::bit_cast<T>(raw);
    }
    [[nodiscard]] static std::string name() { return "memory/" + std::to_string(sizeof(T)); }
};

template <class Allocator>
struct codec<std::basic_string<char, std::char_traits<char>, Allocator>> {
    using value_type = std::basic_string<char, std::char_traits<char>, Allocator>;
    static void encode(const value_type& value, std::vector<std::byte>& out) {
        const auto* const from = reinterpret_cast<const std::byte*>(value.data());
        out.insert(out.end(), from, from + value.size());
    }
    [[nodiscard]] static std::optional<value_type> decode(std::span<const std::byte> in) {
        return value_type{reinterpret_cast<const char*>(in.data()), in.size()};
    }
    [[nodiscard]] static std::string name() { return "bytes"; }
};

template <class Byte, class Allocator>
requires(std::is_trivially_copyable_v<Byte> && sizeof(Byte) == 1) //
    struct codec<std::vector<Byte, Allocator>> {
    using value_type = std::vector<Byte, Allocator>;
    static void encode(const value_type& value, std::vector<std::byte>& out) {
        const auto* const from = reinterpret_cast<const std::byte*>(value.data());
        out.insert(out.end(), from, from + value.size());
    }
    [[nodiscard]] static std::optional<value_type> decode(std::span<const std::byte> in) {
        const auto* const from = reinterpret_cast<const Byte*>(in.data());
        return value_type(from, from + in.size());
    }
    [[nodiscard]] static std::string name() { return "bytes"; }
};

} // namespace railmq
