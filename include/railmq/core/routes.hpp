// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/binding_table.hpp>
#include <railmq/core/destination.hpp>
#include <railmq/core/topic_trie.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace railmq::core {

/// Where a message goes, and all that finding it out needs. It belongs to the caller, one for each
/// thread that routes, and is used again and again: once it has grown to what a router needs, by
/// four bytes for each destination and each node of its largest trie, routing allocates nothing.
class routes {
public:
    /// The queues and logs, each once, in an order that follows from the calls so far alone.
    [[nodiscard]] std::span<const destination> destinations() const noexcept { return found_; }

    /// Whether an exchange that could not route the message names an alternate that does not exist.
    [[nodiscard]] bool alternate_missing() const noexcept { return alternate_missing_; }

    /// Whether an exchange on the way passed the message to its alternate.
    [[nodiscard]] bool by_alternate() const noexcept { return by_alternate_; }

    /// How many exchanges the message went through.
    [[nodiscard]] std::size_t exchanges() const noexcept { return exchanges_.size(); }

    /// How many times a node of a topic exchange was looked at, for all messages so far.
    [[nodiscard]] std::uint64_t topic_steps() const noexcept { return topics_.steps(); }

private:
    friend class router;

    /// Forgets the last message; slots below `slots` may be added.
    void begin(std::size_t slots) {
        found_.clear();
        exchanges_.clear();
        is_first_ = true;
        next_ = 0;
        alternate_missing_ = false;
        by_alternate_ = false;
        if (seen_.size() < slots) {
            seen_.resize(slots, 0);
        }
        if (++message_ == 0) { // the numbers of messages begin anew
            seen_.assign(seen_.size(), 0);
            message_ = 1;
        }
    }

    void add(std::uint32_t slot, destination where) {
        if (seen_[slot] == message_) {
            return;
        }
        seen_[slot] = message_;
        if (where.kind == destination_kind::exchange) {
            exchanges_.push_back(slot);
        } else {
            found_.push_back(where);
        }
    }

    /// Adds the destinations of a bundle, which are different ones. As long as there is no other
    /// bundle, queues and logs need no marks: a look at the array of marks costs more than all of
    /// the rest, where there are many destinations and few of them get a message.
    void add(std::span<const binding_table::member> bundle) {
        if (is_first_) {
            is_first_ = false;
            unmarked_ = bundle;
            for (const binding_table::member& m : bundle) {
                if (m.where.kind == destination_kind::exchange) {
                    add(m.slot, m.where);
                } else {
                    found_.push_back(m.where);
                }
            }
            return;
        }
        for (const binding_table::member& m : std::exchange(unmarked_, {})) {
            seen_[m.slot] = message_;
        }
        for (const binding_table::member& m : bundle) {
            add(m.slot, m.where);
        }
    }

    std::vector<destination> found_{};
    std::vector<std::uint32_t> exchanges_{}; // slots, in the order they are visited
    std::size_t next_ = 0;                   // the first of them that was not
    std::vector<std::uint32_t> seen_{};      // by slot: the message that has come there
    std::uint32_t message_ = 0;
    std::span<const binding_table::member>
        unmarked_{};       // the first bundle, while it is the only one
    bool is_first_ = true; // no bundle has been added
    bool alternate_missing_ = false;
    bool by_alternate_ = false;
    topic_scratch topics_{};
};

} // namespace railmq::core
