// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/exchange_options.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// A message's headers, as `properties::headers` keeps them.
using header_span = std::span<const std::pair<std::string, std::string>>;

/// Decides whether a message has the headers that a binding of a `headers` exchange asks for.
///
/// The rules are those of RabbitMQ's headers exchange, but that all values are texts: they are
/// equal or not byte by byte, and names are as well, case included. What a binding asks for under a
/// name that begins with `x-` is passed over unless its mode says otherwise; a message's own
/// headers may be called anything, and those that nobody asks for do not matter. One that a message
/// has several times matches if any of its values does.
class header_matcher {
public:
    /// Precondition: the arguments are valid for a `headers` exchange.
    /// Throws `std::bad_alloc`.
    explicit header_matcher(const binding_arguments& arguments)
        : all_{
              arguments.match == header_match::all || arguments.match == header_match::all_with_x} {
        const bool with_x = arguments.match == header_match::all_with_x ||
                            arguments.match == header_match::any_with_x;
        for (const header_argument& h : arguments.headers) {
            if (with_x || !std::string_view{h.name}.starts_with("x-")) {
                wanted_.push_back(h);
            }
        }
    }

    /// Whether a message with these headers matches. Asked for nothing, `all` says yes and `any`
    /// says no. Cost: O(headers of the binding x headers of the message); never allocates.
    [[nodiscard]] bool matches(header_span headers) const noexcept {
        const auto has = [&](const header_argument& want) { return contains(headers, want); };
        return all_ ? std::all_of(wanted_.begin(), wanted_.end(), has)
                    : std::any_of(wanted_.begin(), wanted_.end(), has);
    }

private:
    [[nodiscard]] static bool contains(header_span headers, const header_argument& want) noexcept {
        return std::any_of(headers.begin(), headers.end(), [&](const auto& have) {
            return have.first == want.name && (!want.value || have.second == *want.value);
        });
    }

    bool all_;
    std::vector<header_argument> wanted_{};
};

/// The mode and the headers as one text: equal for two bindings exactly if they ask for the same,
/// in whatever order. Cost: O(n log n) in the number of headers. Throws `std::bad_alloc`.
[[nodiscard]] inline std::string canonical_text(const binding_arguments& arguments) {
    std::vector<const header_argument*> sorted;
    sorted.reserve(arguments.headers.size());
    for (const header_argument& h : arguments.headers) {
        sorted.push_back(&h);
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
        return a->name < b->name;
    });
    // Lengths in front, so that no text can look like the end of another.
    std::string out{to_string(arguments.match)};
    const auto append = [&](std::string_view text) {
        out.append(std::to_string(text.size())).append(":").append(text);
    };
    for (const header_argument* h : sorted) {
        append(h->name);
        if (h->value) {
            out.append("=");
            append(*h->value);
        } else {
            out.append("?");
        }
    }
    return out;
}

} // namespace railmq::core
