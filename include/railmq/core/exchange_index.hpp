// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/destination.hpp>
#include <railmq/core/hash_ring.hpp>
#include <railmq/core/header_match.hpp>
#include <railmq/core/numbered.hpp>
#include <railmq/core/topic_trie.hpp>
#include <railmq/model/exchange_options.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// Finds which bundles of an exchange's bindings match a message, by the rule of its type.
///
/// Bindings of one bundle have the same text: their key in a direct or topic exchange, what they
/// ask for in a headers exchange, their destination in a consistent_hash exchange, and nothing in a
/// fanout exchange, which hence has one bundle.
///
/// Distinct objects: safe. Shared objects: any number of const calls, nothing beside the others.
class exchange_index {
public:
    explicit exchange_index(exchange_type type) noexcept
        : type_{type} {}

    [[nodiscard]] exchange_type type() const noexcept { return type_; }

    /// The text of a binding. Throws `std::bad_alloc`.
    [[nodiscard]] std::string
    text_of(destination to, std::string_view key, const binding_arguments& arguments) const {
        switch (type_) {
        case exchange_type::direct:
        case exchange_type::topic: return std::string{key};
        case exchange_type::headers: return canonical_text(arguments);
        case exchange_type::consistent_hash: return std::to_string(to.as_number());
        case exchange_type::fanout: break;
        }
        return {};
    }

    /// The bundle of that text, `no_number` if there is none. Cost: O(length of the text).
    [[nodiscard]] std::uint32_t find(std::string_view text) const noexcept {
        static_assert(topic_trie::none == no_number && hash_ring::none == no_number);
        if (type_ == exchange_type::topic) {
            return patterns_.find(text);
        }
        const auto found = keys_.find(text);
        return found == keys_.end() ? no_number : found->second;
    }

    /// Adds a bundle. `identity` is that of the destination, for a consistent_hash exchange.
    /// Precondition: there is none of that text, and the arguments are valid.
    /// Cost: O(length of the text), amortised; in a consistent_hash exchange O(members).
    /// Throws `std::bad_alloc`; then nothing has changed.
    void
    add(std::uint32_t bundle,
        const std::string& text,
        const binding_arguments& arguments,
        std::uint64_t identity) {
        if (type_ == exchange_type::topic) {
            patterns_.set(text, bundle);
            return;
        }
        if (type_ == exchange_type::headers) {
            rules_.push_back({bundle, header_matcher{arguments}});
        }
        try {
            keys_.emplace(text, bundle);
            if (type_ == exchange_type::consistent_hash) {
                ring_.set(bundle, identity, arguments.weight);
            }
        } catch (...) {
            keys_.erase(text);
            if (type_ == exchange_type::headers) {
                rules_.pop_back();
            }
            throw;
        }
    }

    /// Changes the weight of a bundle of a consistent_hash exchange; in others there is none.
    /// Cost: O(members). Throws `std::bad_alloc`; then nothing has changed.
    void weigh(std::uint32_t bundle, std::uint64_t identity, std::uint32_t weight) {
        if (type_ == exchange_type::consistent_hash) {
            ring_.set(bundle, identity, weight);
        }
    }

    /// Removes a bundle. Precondition: it is there, with that text.
    /// Cost: O(length of the text), amortised; in a headers exchange O(bundles), in a
    /// consistent_hash exchange O(members).
    void erase(std::uint32_t bundle, std::string_view text) noexcept {
        if (type_ == exchange_type::topic) {
            patterns_.erase(text);
            return;
        }
        if (const auto found = keys_.find(text); found != keys_.end()) {
            keys_.erase(found);
            shrink_if_sparse(keys_);
        }
        if (type_ == exchange_type::consistent_hash) {
            ring_.erase(bundle);
        }
        if (type_ == exchange_type::headers) {
            std::erase_if(rules_, [bundle](const rule& r) { return r.bundle == bundle; });
        }
    }

    /// Calls `f(bundle)` once for each bundle that matches; returns whether there is any.
    /// Cost: direct, fanout O(1); topic see `topic_trie::match`; headers O(headers asked for x
    /// those of the message); consistent_hash O(log members).
    /// Allocates only while `scratch` grows. Throws `std::bad_alloc` and what `f` throws.
    template <class F>
    bool match(std::string_view key, header_span headers, topic_scratch& scratch, F&& f) const {
        bool matched = false;
        const auto take = [&](std::uint32_t bundle) {
            matched = true;
            f(bundle);
        };
        switch (type_) {
        case exchange_type::fanout: key = {}; [[fallthrough]];
        case exchange_type::direct:
            if (const auto found = keys_.find(key); found != keys_.end()) {
                take(found->second);
            }
            break;
        case exchange_type::topic: patterns_.match(key, scratch, take); break;
        case exchange_type::headers:
            for (const rule& r : rules_) {
                if (r.matcher.matches(headers)) {
                    take(r.bundle);
                }
            }
            break;
        case exchange_type::consistent_hash:
            if (const std::uint32_t bundle = ring_.find(stable_hash(key)); bundle != no_number) {
                take(bundle);
            }
            break;
        }
        return matched;
    }

private:
    struct rule {
        std::uint32_t bundle;
        header_matcher matcher;
    };

    exchange_type type_;
    // By text, but for a topic exchange, which has them in the trie.
    boost::unordered_flat_map<std::string, std::uint32_t, text_hash, std::equal_to<>> keys_{};
    topic_trie patterns_{};
    std::vector<rule> rules_{}; // of a headers exchange, oldest first
    hash_ring ring_{};          // of a consistent_hash exchange
};

} // namespace railmq::core
