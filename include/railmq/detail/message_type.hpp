// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/payload_ops.hpp>

#include <string_view>

namespace railmq::detail {

/// A message type without RTTI: its operations' address is its identity.
struct message_type {
    const core::payload_ops* ops = nullptr;
    std::string_view name{};

    friend bool operator==(const message_type& a, const message_type& b) noexcept {
        return a.ops == b.ops;
    }
};

template <class T>
[[nodiscard]] constexpr std::string_view type_name() noexcept {
#if defined(__clang__) || defined(__GNUC__)
    std::string_view all = __PRETTY_FUNCTION__;
    const auto from = all.find("T = ");
    if (from == std::string_view::npos) {
        return all;
    }
    all.remove_prefix(from + 4);
    return all.substr(0, all.find_first_of(";]"));
#else
    return "message";
#endif
}

template <class T>
[[nodiscard]] constexpr message_type message_type_of() noexcept {
    return {&core::payload_ops_of<T>::value, type_name<T>()};
}

} // namespace railmq::detail
