// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/destination.hpp>
#include <railmq/core/header_match.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/model/name.hpp>
#include <railmq/storage/kept_options.hpp>
#include <railmq/storage/wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace railmq::storage {

/// An exchange as its journal keeps it.
struct exchange_definition {
    std::uint64_t number = 0; ///< Its own in this journal, never used again.
    std::string name{};
    std::string format{}; ///< Of its messages, as their codec names it.
    exchange_type type = exchange_type::direct;
    exchange_options options{};

    friend bool operator==(const exchange_definition&, const exchange_definition&) = default;
};

/// The end of a binding, by its number in the journal. Queues and exchanges count for themselves.
struct kept_destination {
    core::destination_kind kind = core::destination_kind::queue;
    std::uint64_t number = 0;

    friend auto operator<=>(const kept_destination&, const kept_destination&) = default;
};

/// A binding as its journal keeps it.
struct binding_definition {
    std::uint64_t exchange = 0; ///< That it leads from.
    kept_destination to{};
    std::string key{}; ///< Empty, where the exchange does not look at it.
    binding_arguments arguments{};

    friend bool operator==(const binding_definition&, const binding_definition&) = default;
};

/// What is kept of a binding: the same for two that are the same binding.
[[nodiscard]] inline binding_definition make_binding(
    std::uint64_t exchange,
    exchange_type type,
    kept_destination to,
    std::string_view key,
    const binding_arguments& arguments) {
    const bool has_key = type == exchange_type::direct || type == exchange_type::topic;
    return {exchange, to, has_key ? std::string{key} : std::string{}, arguments};
}

/// The bindings of an exchange, by where they lead.
///
/// Distinct objects: safe. Shared objects: unsafe.
class kept_bindings {
public:
    /// Adds it, or changes its weight. Throws `std::bad_alloc`; then nothing has changed.
    void put(binding_definition b) {
        auto& there = all_[b.to];
        std::string text = text_of(b);
        there.insert_or_assign(std::move(text), std::move(b));
    }
    /// The weight that it has, 0 if it is not there.
    [[nodiscard]] std::uint32_t weight_of(const binding_definition& b) const {
        const auto there = all_.find(b.to);
        if (there == all_.end()) {
            return 0;
        }
        const auto found = there->second.find(text_of(b));
        return found == there->second.end() ? 0 : found->second.arguments.weight;
    }
    void erase(const binding_definition& b) {
        if (const auto there = all_.find(b.to); there != all_.end()) {
            there->second.erase(text_of(b));
            if (there->second.empty()) {
                all_.erase(there);
            }
        }
    }
    /// Removes those that lead there.
    void forget(kept_destination d) noexcept { all_.erase(d); }
    /// Calls `f(binding)` for all.
    template <class F>
    void for_each(F&& f) const {
        for (const auto& [to, there] : all_) {
            for (const auto& [text, b] : there) {
                f(b);
            }
        }
    }
    /// Calls `f(place, bindings)` for those that lead to one place, from that place on, until it
    /// returns false; places are numbers that stay as they are, from 0 on.
    template <class F>
    void for_each_from(std::uint64_t place, F&& f) const {
        constexpr unsigned bits = 62;
        const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
        const kept_destination from{
            static_cast<core::destination_kind>(place >> bits), place & mask};
        for (auto it = all_.lower_bound(from); it != all_.end(); ++it) {
            const auto kind = static_cast<std::uint64_t>(it->first.kind);
            if (!f(kind << bits | (it->first.number & mask), it->second)) {
                return;
            }
        }
    }
    [[nodiscard]] std::size_t size() const noexcept {
        std::size_t n = 0;
        for (const auto& [to, there] : all_) {
            n += there.size();
        }
        return n;
    }

private:
    [[nodiscard]] static std::string text_of(const binding_definition& b) {
        return std::to_string(b.key.size()) + ':' + b.key + core::canonical_text(b.arguments);
    }

    std::map<kept_destination, std::map<std::string, binding_definition>> all_{};
};

/// An exchange that nobody has opened, and its bindings.
struct kept_exchange {
    exchange_definition definition{};
    kept_bindings bindings{};
};

/// The exchanges that a journal has, after its records were read one after the other.
///
/// Distinct objects: safe. Shared objects: unsafe.
class kept_exchanges {
public:
    /// By their numbers.
    std::map<std::uint64_t, kept_exchange> all{};
    std::uint64_t last = 0; ///< The highest number that an exchange has had.

    void define(exchange_definition d) {
        last = d.number > last ? d.number : last;
        all[d.number].definition = std::move(d);
    }
    void remove(std::uint64_t number) {
        last = number > last ? number : last;
        all.erase(number);
        forget({core::destination_kind::exchange, number});
    }
    /// Of an exchange of which nothing was said it is left out: that is said later, with all of its
    /// bindings.
    void bind(binding_definition b) {
        if (const auto it = all.find(b.exchange); it != all.end()) {
            it->second.bindings.put(std::move(b));
        }
    }
    void unbind(const binding_definition& b) {
        if (const auto it = all.find(b.exchange); it != all.end()) {
            it->second.bindings.erase(b);
        }
    }
    /// It was deleted: nothing leads there.
    void forget(kept_destination d) {
        for (auto& [number, x] : all) {
            x.bindings.forget(d);
        }
    }
};

namespace wire {

inline void put(wire_writer& w, const exchange_definition& d) {
    w.number(d.number);
    w.text(d.name);
    w.text(d.format);
    w.byte(static_cast<std::uint8_t>(d.type));
    w.text(d.options.alternate);
}
[[nodiscard]] inline exchange_definition get_exchange(wire_reader& r) {
    exchange_definition d;
    d.number = r.number();
    d.name = std::string{r.text()};
    d.format = std::string{r.text()};
    d.type = get_enum(r, exchange_type::consistent_hash);
    d.options.alternate = std::string{r.text()};
    if (validate_name(d.name) || validate(d.options)) {
        r.fail();
    }
    return d;
}

inline void put(wire_writer& w, const binding_definition& b) {
    w.number(b.exchange);
    w.byte(static_cast<std::uint8_t>(b.to.kind));
    w.number(b.to.number);
    w.text(b.key);
    w.byte(static_cast<std::uint8_t>(b.arguments.match));
    w.number(b.arguments.weight);
    w.number(b.arguments.headers.size());
    for (const header_argument& h : b.arguments.headers) {
        w.text(h.name);
        w.byte(h.value ? 1 : 0);
        if (h.value) {
            w.text(*h.value);
        }
    }
}
[[nodiscard]] inline binding_definition get_binding(wire_reader& r) {
    binding_definition b;
    b.exchange = r.number();
    b.to.kind = get_enum(r, core::destination_kind::exchange);
    b.to.number = r.number();
    b.key = std::string{r.text()};
    b.arguments.match = get_enum(r, header_match::any_with_x);
    b.arguments.weight = static_cast<std::uint32_t>(r.number_below(max_binding_weight + 1));
    std::uint64_t n = r.number();
    b.arguments.headers.reserve(std::min<std::uint64_t>(n, r.left() / 2)); // two bytes at least
    for (; n != 0 && !r.has_failed(); --n) {
        header_argument h;
        h.name = std::string{r.text()};
        if (r.number_below(2) == 1) {
            h.value = std::string{r.text()};
        }
        if (!r.has_failed()) { // or the room that was reserved would be doubled for nothing
            b.arguments.headers.push_back(std::move(h));
        }
    }
    if (b.arguments.weight == 0 || b.key.size() > max_routing_key_length) {
        r.fail();
    }
    return b;
}

} // namespace wire
} // namespace railmq::storage
