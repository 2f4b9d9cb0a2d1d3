// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/name.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// The longest routing key and binding key, in bytes (AMQP 0-9-1, short strings).
inline constexpr std::size_t max_routing_key_length = 255;

/// The largest weight of a binding of a `consistent_hash` exchange.
inline constexpr std::uint32_t max_binding_weight = 1'000;

/// How an exchange chooses among its bindings.
enum class exchange_type : unsigned char {
    direct,          ///< Those whose key equals the routing key; an empty key is a key.
    fanout,          ///< All of them; keys do not count.
    topic,           ///< Those whose pattern matches: `*` is one word, `#` any number of words.
    headers,         ///< Those whose arguments match the message's headers; keys do not count.
    consistent_hash, ///< One of them, always the same for the same routing key.
};

[[nodiscard]] constexpr std::string_view to_string(exchange_type type) noexcept {
    switch (type) {
    case exchange_type::direct: return "direct";
    case exchange_type::fanout: return "fanout";
    case exchange_type::topic: return "topic";
    case exchange_type::headers: return "headers";
    case exchange_type::consistent_hash: return "consistent_hash";
    }
    return "unknown exchange type";
}

/// How an exchange behaves beside its type.
struct exchange_options {
    /// The exchange that gets what this one can not route; empty: none. It need not exist yet, and
    /// while it does not, such messages are unroutable (RabbitMQ, alternate exchanges).
    std::string alternate{};

    friend bool operator==(const exchange_options&, const exchange_options&) = default;
};

/// `errc::invalid_name` and what was expected, or no failure.
[[nodiscard]] inline failure validate(const exchange_options& o) {
    if (!o.alternate.empty()) {
        if (failure f = validate_name(o.alternate)) {
            f.what = "alternate: " + f.what;
            return f;
        }
    }
    return {};
}

/// The first option in which `have` and `want` differ, for the text of `options_mismatch`; empty
/// when they are equal.
[[nodiscard]] inline std::string_view
difference(const exchange_options& have, const exchange_options& want) noexcept {
    return have.alternate != want.alternate ? "alternate" : "";
}

/// How many of a binding's headers a message must have (RabbitMQ, `x-match`). Headers of a binding
/// whose names begin with `x-` count only in the last two.
enum class header_match : unsigned char {
    all,        ///< Every one; no header to ask for matches every message.
    any,        ///< At least one; no header to ask for matches none.
    all_with_x, ///< As `all`, and names that begin with `x-` count as well.
    any_with_x, ///< As `any`, and names that begin with `x-` count as well.
};

/// In the spelling of RabbitMQ.
[[nodiscard]] constexpr std::string_view to_string(header_match match) noexcept {
    switch (match) {
    case header_match::all: return "all";
    case header_match::any: return "any";
    case header_match::all_with_x: return "all-with-x";
    case header_match::any_with_x: return "any-with-x";
    }
    return "unknown header match";
}

/// The mode of that spelling, nothing if there is none.
[[nodiscard]] constexpr std::optional<header_match> parse_header_match(std::string_view text) {
    for (const header_match mode :
         {header_match::all,
          header_match::any,
          header_match::all_with_x,
          header_match::any_with_x}) {
        if (text == to_string(mode)) {
            return mode;
        }
    }
    return std::nullopt;
}

/// A header that a binding asks for.
struct header_argument {
    std::string name{};
    /// Compared byte by byte; `nullopt`: the header is there, whatever its value.
    std::optional<std::string> value{};

    friend bool operator==(const header_argument&, const header_argument&) = default;
};

/// What a binding says beside its key.
struct binding_arguments {
    /// Of a `headers` exchange.
    header_match match = header_match::all;
    /// Of a `headers` exchange; in any order, each name once.
    std::vector<header_argument> headers{};
    /// Of a `consistent_hash` exchange: the destination's share of the keys, beside the others'
    /// weights. It is no part of what tells bindings apart: binding again changes it.
    std::uint32_t weight = 1;

    friend bool operator==(const binding_arguments&, const binding_arguments&) = default;
};

/// `errc::invalid_argument` and what was expected of a binding of such an exchange, or no failure.
[[nodiscard]] inline failure
validate(std::string_view key, const binding_arguments& a, exchange_type type) {
    const auto bad = [](std::string what) {
        return failure{errc::invalid_argument, std::move(what)};
    };
    if (key.size() > max_routing_key_length) {
        return bad(
            "a binding key has at most " + std::to_string(max_routing_key_length) + " bytes; got " +
            std::to_string(key.size()));
    }
    if (type != exchange_type::headers && (a.match != header_match::all || !a.headers.empty())) {
        return bad(
            "only bindings of a headers exchange ask for headers; this one is " +
            std::string{to_string(type)});
    }
    if (type != exchange_type::consistent_hash && a.weight != 1) {
        return bad(
            "only bindings of a consistent_hash exchange have a weight; this one is " +
            std::string{to_string(type)});
    }
    if (a.weight == 0 || a.weight > max_binding_weight) {
        return bad(
            "weight is 1 to " + std::to_string(max_binding_weight) + "; got " +
            std::to_string(a.weight));
    }
    if (a.match > header_match::any_with_x) {
        return bad("match is one of all, any, all_with_x, any_with_x");
    }
    std::vector<std::string_view> names;
    names.reserve(a.headers.size());
    for (const header_argument& h : a.headers) {
        if (h.name == "x-match") {
            return bad("x-match is not a header; say .match");
        }
        names.push_back(h.name);
    }
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
        return bad("header '" + detail::printable(*twice) + "' is asked for twice");
    }
    return {};
}

} // namespace railmq
