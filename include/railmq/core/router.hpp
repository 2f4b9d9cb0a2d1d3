// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/binding_table.hpp>
#include <railmq/core/destination.hpp>
#include <railmq/core/exchange_index.hpp>
#include <railmq/core/hash_ring.hpp>
#include <railmq/core/header_match.hpp>
#include <railmq/core/numbered.hpp>
#include <railmq/core/routes.hpp>
#include <railmq/core/topic_trie.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/model/name.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// What `router::declare` came to.
struct declaration {
    failure error{};
    std::uint32_t id = no_number; ///< The exchange, unless there is an error.
    bool is_new = false;          ///< It did not exist before.
};

/// The exchanges of a broker and their bindings: says which queues and logs get a message.
///
/// An exchange has a name and a number; a number is never given out twice. A binding leads from an
/// exchange to a queue, a log or another exchange. Two bindings are the same if they have the same
/// ends and, in a direct or topic exchange, the same key; in a headers exchange, the same arguments
/// in any order. Fanout, headers and consistent_hash exchanges do not look at a binding's key.
///
/// The router knows exchanges only: that a queue or log exists is for the caller to see to, and
/// also to call `forget` when it no longer does. In a consistent_hash exchange its identity decides
/// its share, so keys stay where they are if that does: the caller's, or else its number (for an
/// exchange, its name).
///
/// Calls that report an error have changed nothing, and so have those that throw `std::bad_alloc`.
///
/// Distinct objects: safe. Shared objects: any number of const calls, `route` with an object
/// `routes` for each thread; nothing beside the others.
class router {
public:
    router() = default;

    /// Number of exchanges.
    [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }

    /// Number of bindings of all exchanges.
    [[nodiscard]] std::size_t bindings() const noexcept { return table_.size(); }

    /// Whether a message's headers may matter: there is a headers exchange.
    [[nodiscard]] bool looks_at_headers() const noexcept { return of_headers_ != 0; }

    /// Whether a binding leads to a queue or log. Cost: O(1).
    [[nodiscard]] bool is_bound(destination d) const noexcept {
        return table_.slot_of(d) != no_number;
    }

    /// Whether bindings lead from that exchange. Cost: O(1).
    [[nodiscard]] bool is_used(std::uint32_t id) const noexcept {
        const std::uint32_t slot = table_.slot_of(destination::exchange(id));
        return slot != no_number && !exchanges_[slot]->bundles.empty();
    }

    /// The number of the exchange of that name, `no_number` if there is none. Cost: O(1).
    [[nodiscard]] std::uint32_t find(std::string_view name) const noexcept {
        const auto found = names_.find(name);
        return found == names_.end() ? no_number : exchanges_[found->second]->id;
    }

    /// Makes an exchange, or finds it if it exists with this type and these options.
    /// Errors: `invalid_name`; `invalid_argument` for no such type; `options_mismatch` if it exists
    /// and differs. Cost: O(1), amortised.
    [[nodiscard]] declaration
    declare(std::string_view name, exchange_type type, const exchange_options& options = {}) {
        if (failure f = check(name, type, options)) {
            return {std::move(f), no_number, false};
        }
        if (const auto found = names_.find(name); found != names_.end()) {
            return {failure{}, exchanges_[found->second]->id, false};
        }
        auto made = std::make_unique<exchange>(
            exchange{next_id_, std::string{name}, options.alternate, exchange_index{type}});
        const std::uint32_t slot = table_.pin(destination::exchange(next_id_));
        try {
            if (exchanges_.size() < table_.slots()) {
                exchanges_.resize(table_.slots());
            }
            names_.emplace(made->name, slot);
        } catch (...) {
            table_.unpin(slot);
            throw;
        }
        exchanges_[slot] = std::move(made);
        of_headers_ += type == exchange_type::headers ? 1 : 0;
        return {failure{}, next_id_++, true};
    }

    /// Removes an exchange and the bindings from and to it. Who names it as the alternate goes on
    /// doing so. Errors: `not_found`; `in_use` if it is to go only when unused and has bindings
    /// from it; those to it do not count (RabbitMQ, exchange.delete with if-unused).
    /// Cost: O(bindings that go).
    [[nodiscard]] error_code erase(std::uint32_t id, bool if_unused = false) noexcept {
        const std::uint32_t slot = table_.slot_of(destination::exchange(id));
        if (slot == no_number) {
            return errc::not_found;
        }
        exchange& x = *exchanges_[slot];
        if (if_unused && !x.bundles.empty()) {
            return errc::in_use;
        }
        of_headers_ -= x.index.type() == exchange_type::headers ? 1 : 0;
        x.index = exchange_index{x.index.type()}; // all at once; what follows finds nothing there
        while (!x.bundles.empty()) {
            const std::uint32_t bundle = x.bundles.back();
            remove(bundle, table_.members(bundle).back().slot);
        }
        remove_bindings_to(slot);
        names_.erase(x.name);
        shrink_if_sparse(names_);
        exchanges_[slot].reset();
        table_.unpin(slot);
        if (names_.empty()) {
            std::vector<std::unique_ptr<exchange>>{}.swap(exchanges_);
        }
        return {};
    }

    /// Removes all bindings to a queue or a log that is about to go; returns how many there were.
    /// Precondition: it is no exchange, see `erase`. Cost: O(bindings that go), and for those from
    /// headers and consistent_hash exchanges what `unbind` takes.
    std::size_t forget(destination d) noexcept {
        RAILMQ_ASSERT(d.kind != destination_kind::exchange);
        const std::uint32_t slot = table_.slot_of(d);
        const std::size_t before = table_.size();
        if (slot != no_number) {
            remove_bindings_to(slot);
        }
        return before - table_.size();
    }

    /// Binds a destination to an exchange; again is as good as once, but may change the weight.
    /// Errors: `not_found` if there is no such exchange at either end; `invalid_argument` as
    /// `validate` says. Cost: O(length of the key and the arguments), amortised; in a
    /// consistent_hash exchange O(members).
    [[nodiscard]] failure bind(
        std::uint32_t from,
        destination to,
        std::string_view key = {},
        const binding_arguments& arguments = {}) {
        return bind(from, to, key, arguments, to.as_number());
    }
    /// The same with an identity for a queue or log, which no other destination has and is to be
    /// the same whenever the destination is: a hash of its name.
    [[nodiscard]] failure bind(
        std::uint32_t from,
        destination to,
        std::string_view key,
        const binding_arguments& arguments,
        std::uint64_t identity) {
        const std::uint32_t source = table_.slot_of(destination::exchange(from));
        if (source == no_number) {
            return {errc::not_found, "there is no exchange to bind to"};
        }
        if (to.kind == destination_kind::exchange && table_.slot_of(to) == no_number) {
            return {errc::not_found, "there is no exchange to bind"};
        }
        exchange& x = *exchanges_[source];
        if (failure f = validate(key, arguments, x.index.type())) {
            return f;
        }
        if (to.kind == destination_kind::exchange) {
            identity = stable_hash(exchanges_[table_.slot_of(to)]->name);
        }
        std::string text = x.index.text_of(to, key, arguments);
        std::uint32_t bundle = x.index.find(text);
        if (bundle != no_number) {
            table_.add(bundle, to);
            x.index.weigh(bundle, identity, arguments.weight);
            return {};
        }
        bundle = open_bundle(source, std::move(text), arguments, identity);
        try {
            table_.add(bundle, to);
        } catch (...) {
            close_if_empty(bundle);
            throw;
        }
        return {};
    }

    /// Removes a binding. Weights do not matter.
    /// Errors: `not_found` if there is no such exchange or binding.
    /// Cost: O(length of the key and the arguments); in a consistent_hash exchange O(members), in a
    /// headers exchange O(different arguments).
    [[nodiscard]] error_code unbind(
        std::uint32_t from,
        destination to,
        std::string_view key = {},
        const binding_arguments& arguments = {}) {
        const std::uint32_t source = table_.slot_of(destination::exchange(from));
        const std::uint32_t slot = table_.slot_of(to);
        if (source == no_number || slot == no_number) {
            return errc::not_found;
        }
        const exchange& x = *exchanges_[source];
        const std::uint32_t bundle = x.index.find(x.index.text_of(to, key, arguments));
        if (bundle == no_number || !remove(bundle, slot)) {
            return errc::not_found;
        }
        return {};
    }

    /// Finds the queues and logs that get a message: those bound to the exchange by a binding that
    /// matches, and those that the exchanges bound to it find in turn. Each is found once, however
    /// many ways lead there, and each exchange is visited once, so cycles end.
    ///
    /// An exchange of which no binding matches passes the message to its alternate (RabbitMQ,
    /// alternate exchanges). And if all that matched leads to nobody, then so do all exchanges on
    /// the way, in rounds until there is somebody: a dead end does not hide the alternate.
    ///
    /// Errors: `unroutable` if there is nobody; `not_found` if there is no such exchange;
    /// `invalid_argument` for a routing key of more than 255 bytes. With an error, `out` is empty.
    /// Cost: what the exchanges' types take (direct O(1); fanout nothing; topic words x nodes at
    /// worst; headers each set of arguments once; consistent_hash O(log points)), and O(1) for each
    /// binding that matches. Allocates only while `out` grows; throws `std::bad_alloc` then.
    [[nodiscard]] error_code
    route(std::uint32_t id, std::string_view key, header_span headers, routes& out) const {
        out.begin(table_.slots());
        const destination start = destination::exchange(id);
        const std::uint32_t slot = table_.slot_of(start);
        if (slot == no_number) {
            return errc::not_found;
        }
        if (key.size() > max_routing_key_length) {
            return errc::invalid_argument;
        }
        out.add(slot, start);
        visit_all(key, headers, out);
        for (std::size_t asked = 0; out.found_.empty() && asked != out.exchanges_.size();) {
            for (const std::size_t known = out.exchanges_.size(); asked != known; ++asked) {
                add_alternate(*exchanges_[out.exchanges_[asked]], out);
            }
            visit_all(key, headers, out);
        }
        return out.found_.empty() ? error_code{errc::unroutable} : error_code{};
    }

private:
    struct exchange {
        std::uint32_t id;
        std::string name;
        std::string alternate;
        exchange_index index;
        std::vector<std::uint32_t> bundles{}; // none of them is empty
    };

    struct bundle_details {
        std::uint32_t exchange = no_number; // its slot
        std::uint32_t position = 0;         // in its bundles
        std::string text{};
    };

    [[nodiscard]] failure
    check(std::string_view name, exchange_type type, const exchange_options& options) const {
        if (failure f = validate_name(name)) {
            return f;
        }
        if (type > exchange_type::consistent_hash) {
            return {errc::invalid_argument, "there is no such type of exchange"};
        }
        if (failure f = validate(options)) {
            return f;
        }
        const auto found = names_.find(name);
        if (found == names_.end()) {
            return {};
        }
        const exchange& x = *exchanges_[found->second];
        const std::string_view what =
            x.index.type() != type ? "type" : difference({.alternate = x.alternate}, options);
        if (what.empty()) {
            return {};
        }
        return {
            errc::options_mismatch,
            "exchange '" + x.name + "' exists with another " + std::string{what}};
    }

    [[nodiscard]] std::uint32_t open_bundle(
        std::uint32_t source,
        std::string text,
        const binding_arguments& arguments,
        std::uint64_t identity) {
        exchange& x = *exchanges_[source];
        const std::uint32_t id = table_.open_bundle();
        try {
            if (details_.size() <= id) {
                details_.resize(std::size_t{id} + 1);
            }
            reserve_one_more(x.bundles);
            x.index.add(id, text, arguments, identity);
        } catch (...) {
            table_.close_bundle(id);
            throw;
        }
        details_[id] = {source, static_cast<std::uint32_t>(x.bundles.size()), std::move(text)};
        x.bundles.push_back(id);
        return id;
    }

    void close_if_empty(std::uint32_t bundle) noexcept {
        if (!table_.members(bundle).empty()) {
            return;
        }
        bundle_details& gone = details_[bundle];
        exchange& x = *exchanges_[gone.exchange];
        x.index.erase(bundle, gone.text);
        x.bundles[gone.position] = x.bundles.back();
        details_[x.bundles[gone.position]].position = gone.position;
        x.bundles.pop_back();
        gone = {};
        table_.close_bundle(bundle);
        if (table_.bundles() == 0) {
            std::vector<bundle_details>{}.swap(details_);
        }
    }

    bool remove(std::uint32_t bundle, std::uint32_t slot) noexcept {
        const bool removed = table_.remove(bundle, slot);
        if (removed) {
            close_if_empty(bundle);
        }
        return removed;
    }

    /// The slot is gone afterwards, unless it is pinned.
    void remove_bindings_to(std::uint32_t slot) noexcept {
        std::uint32_t bundle = table_.bundle_of(slot);
        while (bundle != no_number) {
            remove(bundle, slot);
            bundle = table_.bundle_of(slot); // of a slot that is gone: none
        }
    }

    void visit_all(std::string_view key, header_span headers, routes& out) const {
        const auto add = [&](std::uint32_t bundle) { out.add(table_.members(bundle)); };
        for (; out.next_ != out.exchanges_.size(); ++out.next_) {
            const exchange& x = *exchanges_[out.exchanges_[out.next_]];
            if (!x.index.match(key, headers, out.topics_, add)) {
                add_alternate(x, out);
            }
        }
    }

    void add_alternate(const exchange& x, routes& out) const {
        if (x.alternate.empty()) {
            return;
        }
        const auto found = names_.find(x.alternate);
        if (found == names_.end()) {
            out.alternate_missing_ = true;
            return;
        }
        out.by_alternate_ = true;
        out.add(found->second, table_.where(found->second));
    }

    binding_table table_{};
    std::vector<std::unique_ptr<exchange>> exchanges_{}; // by slot
    std::vector<bundle_details> details_{};              // by bundle
    boost::unordered_flat_map<std::string, std::uint32_t, text_hash, std::equal_to<>> names_{};
    std::uint32_t next_id_ = 0;
    std::size_t of_headers_ = 0; // exchanges of that type
};

} // namespace railmq::core
