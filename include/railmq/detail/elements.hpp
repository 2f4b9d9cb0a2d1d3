// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <ranges>
#include <type_traits>
#include <utility>

namespace railmq::detail {

/// Room for one value that is built now and may be moved away by somebody else.
template <class T>
class movable_value {
public:
    template <class U>
    explicit movable_value(U&& value) {
        ::new (static_cast<void*>(space_)) T(std::forward<U>(value));
    }
    movable_value(const movable_value&) = delete;
    movable_value& operator=(const movable_value&) = delete;
    ~movable_value() {
        if (holds_) {
            std::destroy_at(std::launder(reinterpret_cast<T*>(space_)));
        }
    }
    [[nodiscard]] void* get() noexcept { return space_; }
    [[nodiscard]] T& ref() noexcept { return *std::launder(reinterpret_cast<T*>(space_)); }
    void was_moved() noexcept { holds_ = false; }

private:
    alignas(T) std::byte space_[sizeof(T)];
    bool holds_ = true;
};

/// A value of any type that waits to be moved away.
struct held_value {
    held_value() = default;
    held_value(const held_value&) = delete;
    held_value& operator=(const held_value&) = delete;
    virtual ~held_value() = default;
    [[nodiscard]] virtual void* get() noexcept = 0;
    /// And ended where it was.
    virtual void was_moved() noexcept = 0;
};
template <class T>
struct held_value_of final : held_value {
    template <class U>
    explicit held_value_of(U&& v)
        : value{std::forward<U>(v)} {}
    [[nodiscard]] void* get() noexcept override { return value.get(); }
    void was_moved() noexcept override { value.was_moved(); }
    movable_value<T> value;
};

/// Whether an rvalue of this type owns its elements, so that they may be moved out of it.
template <class Range>
inline constexpr bool gives_up_elements =
    !std::is_lvalue_reference_v<Range> && !std::ranges::borrowed_range<Range>;

/// A range passed as `Range&&` whose elements become values of type `T`: moved where the range
/// gives them up.
template <class Range, class T>
concept elements_for = std::convertible_to<
    std::conditional_t<
        gives_up_elements<Range>,
        std::remove_reference_t<std::ranges::range_reference_t<Range>> &&,
        std::ranges::range_reference_t<Range>>,
    T>;

} // namespace railmq::detail
