// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/destination.hpp>
#include <railmq/core/numbered.hpp>

#include <boost/container/small_vector.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace railmq::core {

/// All bindings of a broker, from both ends.
///
/// Bindings of one exchange that match together (the same key, the same arguments) are a bundle;
/// what an exchange finds is bundles, and a bundle's destinations lie side by side. A destination
/// has a slot, a small number, as long as a binding leads to it; it knows its bindings, so that it
/// can go without a search.
///
/// What bindings need beside their place in tables is given back when they go. The tables of slots,
/// bundles and bindings keep the size of the busiest moment until there is nothing in them: some
/// 120 bytes for each binding there was, and at most as much again as room to grow.
///
/// Distinct objects: safe. Shared objects: any number of const calls, nothing beside the others.
class binding_table {
public:
    /// A destination in a bundle.
    struct member {
        std::uint32_t slot;
        std::uint32_t binding;
        destination where;
    };

    /// Number of bindings.
    [[nodiscard]] std::size_t size() const noexcept { return bindings_.size(); }

    /// Number of bundles, the empty ones included.
    [[nodiscard]] std::size_t bundles() const noexcept { return bundles_.size(); }

    /// All slots are below this.
    [[nodiscard]] std::size_t slots() const noexcept { return targets_.numbers(); }

    /// Where the slot leads to. Precondition: it is in use.
    [[nodiscard]] destination where(std::uint32_t slot) const noexcept {
        return targets_[slot].where;
    }

    /// The slot of a destination, `no_number` if nothing leads to it. Cost: O(1).
    [[nodiscard]] std::uint32_t slot_of(destination d) const noexcept {
        const auto found = slots_.find(d.as_number());
        return found == slots_.end() ? no_number : found->second;
    }

    /// Gives a destination a slot for as long as it is pinned, bound or not. Cost: O(1), amortised.
    /// Precondition: it is not pinned. Throws `std::bad_alloc`; then nothing has changed.
    std::uint32_t pin(destination d) {
        const std::uint32_t slot = slot_for(d);
        targets_[slot].is_pinned = true;
        return slot;
    }

    /// Precondition: the slot is pinned. It is gone if nothing leads to it.
    void unpin(std::uint32_t slot) noexcept {
        targets_[slot].is_pinned = false;
        drop_if_unused(slot);
    }

    /// A new bundle, which is empty. Throws `std::bad_alloc`; then nothing has changed.
    [[nodiscard]] std::uint32_t open_bundle() {
        static_cast<void>(bundles_.next());
        return bundles_.take();
    }

    /// Precondition: the bundle is empty; its number is given out again.
    void close_bundle(std::uint32_t bundle) noexcept {
        RAILMQ_ASSERT(bundles_[bundle].empty());
        bundles_.give(bundle);
    }

    /// The destinations of a bundle, each once, in an order that follows from the calls so far.
    [[nodiscard]] std::span<const member> members(std::uint32_t bundle) const noexcept {
        return {bundles_[bundle].data(), bundles_[bundle].size()};
    }

    /// Some bundle that leads to the slot, `no_number` if there is none, or no such slot.
    /// Cost: O(1).
    [[nodiscard]] std::uint32_t bundle_of(std::uint32_t slot) const noexcept {
        if (slot >= targets_.numbers() || targets_[slot].bindings.empty()) {
            return no_number;
        }
        return bindings_[targets_[slot].bindings.back()].bundle;
    }

    /// Adds a binding; false, and nothing has changed, if it is there. Cost: O(1), amortised.
    /// Throws `std::bad_alloc`; then nothing has changed.
    bool add(std::uint32_t bundle, destination d) {
        const std::uint32_t slot = slot_for(d);
        if (index_.contains(key(bundle, slot))) {
            return false;
        }
        try {
            reserve_one_more(bundles_[bundle]);
            reserve_one_more(targets_[slot].bindings);
            index_.emplace(key(bundle, slot), bindings_.next());
        } catch (...) {
            drop_if_unused(slot);
            throw;
        }
        const std::uint32_t id = bindings_.take();
        auto& members = bundles_[bundle];
        auto& incoming = targets_[slot].bindings;
        bindings_[id] = {
            bundle,
            slot,
            static_cast<std::uint32_t>(members.size()),
            static_cast<std::uint32_t>(incoming.size())};
        members.push_back({slot, id, d});
        incoming.push_back(id);
        return true;
    }

    /// Removes a binding; false if it is not there. The slot is gone with its last binding, unless
    /// it is pinned. Cost: O(1).
    bool remove(std::uint32_t bundle, std::uint32_t slot) noexcept {
        const auto found = index_.find(key(bundle, slot));
        if (found == index_.end()) {
            return false;
        }
        const std::uint32_t id = found->second;
        const binding gone = bindings_[id];
        index_.erase(found);
        shrink_if_sparse(index_);
        auto& members = bundles_[bundle];
        members[gone.at_bundle] = members.back();
        bindings_[members[gone.at_bundle].binding].at_bundle = gone.at_bundle;
        members.pop_back();
        auto& incoming = targets_[slot].bindings;
        incoming[gone.at_target] = incoming.back();
        bindings_[incoming[gone.at_target]].at_target = gone.at_target;
        incoming.pop_back();
        bindings_.give(id);
        drop_if_unused(slot);
        return true;
    }

private:
    struct target {
        destination where{};
        bool is_pinned = false;
        boost::container::small_vector<std::uint32_t, 2> bindings{};
    };

    /// Where it stands in the lists of its two ends.
    struct binding {
        std::uint32_t bundle = 0;
        std::uint32_t slot = 0;
        std::uint32_t at_bundle = 0;
        std::uint32_t at_target = 0;
    };

    using bundle_members = boost::container::small_vector<member, 1>;

    [[nodiscard]] static constexpr std::uint64_t
    key(std::uint32_t bundle, std::uint32_t slot) noexcept {
        return std::uint64_t{bundle} << 32 | slot;
    }

    [[nodiscard]] std::uint32_t slot_for(destination d) {
        if (const std::uint32_t slot = slot_of(d); slot != no_number) {
            return slot;
        }
        slots_.emplace(d.as_number(), targets_.next());
        const std::uint32_t slot = targets_.take();
        targets_[slot].where = d;
        return slot;
    }

    void drop_if_unused(std::uint32_t slot) noexcept {
        if (!targets_[slot].is_pinned && targets_[slot].bindings.empty()) {
            slots_.erase(targets_[slot].where.as_number());
            shrink_if_sparse(slots_);
            targets_.give(slot);
        }
    }

    numbered<target> targets_{};
    numbered<bundle_members> bundles_{};
    numbered<binding> bindings_{};
    boost::unordered_flat_map<std::uint64_t, std::uint32_t> slots_{}; // by destination
    boost::unordered_flat_map<std::uint64_t, std::uint32_t> index_{}; // by bundle and slot
};

} // namespace railmq::core
