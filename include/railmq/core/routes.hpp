// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/destination.hpp>
#include <railmq/core/topic_trie.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
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
        next_ = 0;
        alternate_missing_ = false;
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

    std::vector<destination> found_{};
    std::vector<std::uint32_t> exchanges_{}; // slots, in the order they are visited
    std::size_t next_ = 0;                   // the first of them that was not
    std::vector<std::uint32_t> seen_{};      // by slot: the message that has come there
    std::uint32_t message_ = 0;
    bool alternate_missing_ = false;
    topic_scratch topics_{};
};

} // namespace railmq::core
