// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/topic_pattern.hpp>

#include <boost/container_hash/hash.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::core {

/// Finds a `std::string` by a view, without a copy.
struct text_hash {
    using is_transparent = void;
    using is_avalanching = void; // as boost::hash is for texts, so that it is not mixed again
    [[nodiscard]] std::size_t operator()(std::string_view text) const noexcept {
        return boost::hash<std::string_view>{}(text);
    }
};

/// What matching needs beside the trie, kept between calls so that they do not allocate. It belongs
/// to the caller: one for each thread that matches. It grows with the tries it is used with, by
/// four bytes a node, and serves any number of them in turn.
class topic_scratch {
public:
    /// How many times a node was looked at for a word, in all calls so far: what they cost.
    [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

private:
    friend class topic_trie;

    std::vector<std::uint32_t> states_{};   // reached by the words so far
    std::vector<std::uint32_t> next_{};     // reached by the next word, too
    std::vector<std::uint32_t> spanning_{}; // the '#' on the way: once reached, reached for good
    std::vector<std::uint32_t> seen_{};     // by node: the call that reached this '#'
    std::uint32_t call_ = 0;
    std::uint64_t steps_ = 0;
};

/// A map from AMQP topic patterns to numbers that finds all patterns matching a key.
///
/// Patterns and keys consist of words (`topic_words`). In a pattern the word `*` stands for exactly
/// one word and `#` for any number of words, none included; every other word stands for itself,
/// byte by byte. A pattern may have any number of both; in keys they mean nothing (RabbitMQ, topic
/// exchange, which allows two `#`).
///
/// Patterns with a common beginning share its nodes. A key is matched word by word, against the set
/// of all nodes that the words so far may have led to. A node other than a `#` can be in that set
/// only by way of its parent, so it is there once; a `#` that has been reached stays reached, so it
/// is entered once. A word hence costs at most one step for each node of the trie, and a key no
/// more than words x nodes, whatever the patterns are: nothing is tried twice.
///
/// Distinct objects: safe. Shared objects: any number of `match` and `find` at once, each `match`
/// with a scratch of its own; nothing beside the others.
class topic_trie {
public:
    using value_type = std::uint32_t;

    /// No value. It can not be stored.
    static constexpr value_type none = std::numeric_limits<value_type>::max();

    /// Number of patterns.
    [[nodiscard]] std::size_t size() const noexcept { return patterns_; }

    /// Number of nodes in use: one for each distinct beginning of a pattern but the empty one.
    [[nodiscard]] std::size_t node_count() const noexcept {
        return nodes_.empty() ? 0 : nodes_.size() - free_.size() - 1;
    }

    /// The pattern's value, `none` if it is not there. Cost: O(length of the pattern).
    [[nodiscard]] value_type find(std::string_view pattern) const noexcept {
        const std::uint32_t at = node_of(pattern);
        return at == none ? none : nodes_[at].value;
    }

    /// Adds the pattern, or gives it another value.
    /// Precondition: `value != none`. Cost: O(length of the pattern), amortised.
    /// Throws `std::bad_alloc`; then nothing has changed.
    void set(std::string_view pattern, value_type value) {
        RAILMQ_ASSERT(value != none);
        if (nodes_.empty()) {
            static_cast<void>(new_node());
        }
        std::uint32_t at = root;
        topic_words words{pattern};
        std::string_view word;
        try {
            while (words.next(word)) {
                at = child_or_new(at, word);
            }
        } catch (...) {
            const auto before = static_cast<std::size_t>(word.data() - pattern.data());
            prune(at, pattern.substr(0, before == 0 ? 0 : before - 1));
            throw;
        }
        patterns_ += nodes_[at].value == none ? 1 : 0;
        nodes_[at].value = value;
    }

    /// Removes a pattern; false if it is not there. Its memory is given back, at the latest when
    /// three quarters of the nodes are unused. Cost: O(length of the pattern), amortised.
    bool erase(std::string_view pattern) noexcept {
        const std::uint32_t at = node_of(pattern);
        if (at == none || nodes_[at].value == none) {
            return false;
        }
        nodes_[at].value = none;
        --patterns_;
        prune(at, pattern);
        give_back();
        return true;
    }

    /// Calls `f(value)` once for each pattern that matches the key, in an order that follows from
    /// the calls that built the trie alone.
    /// Cost: O(words x nodes that the key's words lead to). Allocates only while `scratch` grows.
    /// Throws `std::bad_alloc` and what `f` throws.
    template <class F>
    void match(std::string_view key, topic_scratch& scratch, F&& f) const {
        topic_scratch& s = scratch;
        if (nodes_.empty()) {
            return;
        }
        begin(s);
        enter(root, s, f);
        topic_words words{key};
        std::string_view word;
        while (words.next(word)) {
            s.states_.swap(s.next_);
            s.next_.clear();
            const std::size_t spanning = s.spanning_.size(); // later ones begin after this word
            if (s.states_.empty() && spanning == 0) {
                return;
            }
            const auto known = words_.find(word);
            const std::uint32_t id = known == words_.end() ? none : known->second.id;
            for (const std::uint32_t at : s.states_) {
                step(at, id, s, f);
            }
            for (std::size_t i = 0; i != spanning; ++i) {
                step(s.spanning_[i], id, s, f);
            }
        }
        for (const std::uint32_t at : s.next_) {
            if (nodes_[at].value != none) {
                f(nodes_[at].value);
            }
        }
    }

private:
    static constexpr std::uint32_t root = 0;

    struct node {
        std::uint32_t parent = none;
        std::uint32_t word = none; // of the edge from the parent, if it is a literal
        std::uint32_t one = none;  // the child for '*'
        std::uint32_t any = none;  // the child for '#'
        std::uint32_t literals = 0;
        value_type value = none;

        [[nodiscard]] bool has_steps() const noexcept { return literals != 0 || one != none; }
        [[nodiscard]] bool is_needed() const noexcept {
            return has_steps() || any != none || value != none;
        }
    };

    /// A word of a pattern, so that edges need not compare texts.
    struct word_use {
        std::uint32_t id;
        std::uint32_t edges;
    };

    [[nodiscard]] static constexpr std::uint64_t
    edge(std::uint32_t from, std::uint32_t word) noexcept {
        return std::uint64_t{from} << 32 | word;
    }

    [[nodiscard]] std::uint32_t child(std::uint32_t at, std::string_view word) const noexcept {
        if (is_one_word(word)) {
            return nodes_[at].one;
        }
        if (is_any_words(word)) {
            return nodes_[at].any;
        }
        const auto known = words_.find(word);
        return known == words_.end() ? none : child(at, known->second.id);
    }

    [[nodiscard]] std::uint32_t child(std::uint32_t at, std::uint32_t word) const noexcept {
        const auto found = edges_.find(edge(at, word));
        return found == edges_.end() ? none : found->second;
    }

    [[nodiscard]] std::uint32_t node_of(std::string_view pattern) const noexcept {
        std::uint32_t at = nodes_.empty() ? none : root;
        topic_words words{pattern};
        std::string_view word;
        while (at != none && words.next(word)) {
            at = child(at, word);
        }
        return at;
    }

    // --- matching ---

    void begin(topic_scratch& s) const {
        if (s.seen_.size() < nodes_.size()) {
            s.seen_.resize(nodes_.size(), 0);
        }
        if (++s.call_ == 0) { // the numbers of calls begin anew
            s.seen_.assign(s.seen_.size(), 0);
            s.call_ = 1;
        }
        s.states_.clear();
        s.next_.clear();
        s.spanning_.clear();
    }

    /// The words so far lead to this node, and past every '#' that follows it.
    template <class F>
    void enter(std::uint32_t at, topic_scratch& s, F& f) const {
        s.next_.push_back(at);
        for (at = nodes_[at].any; at != none && s.seen_[at] != s.call_; at = nodes_[at].any) {
            s.seen_[at] = s.call_;
            if (nodes_[at].value != none) {
                f(nodes_[at].value); // whatever follows, it matches
            }
            if (nodes_[at].has_steps()) {
                s.spanning_.push_back(at);
            }
        }
    }

    template <class F>
    void step(std::uint32_t at, std::uint32_t word, topic_scratch& s, F& f) const {
        ++s.steps_;
        const node& n = nodes_[at];
        if (n.one != none) {
            enter(n.one, s, f);
        }
        if (n.literals != 0 && word != none) {
            if (const std::uint32_t to = child(at, word); to != none) {
                enter(to, s, f);
            }
        }
    }

    // --- changing ---

    [[nodiscard]] std::uint32_t child_or_new(std::uint32_t at, std::string_view word) {
        std::uint32_t to = child(at, word);
        if (to != none) {
            return to;
        }
        to = new_node();
        if (is_one_word(word)) {
            nodes_[at].one = to;
        } else if (is_any_words(word)) {
            nodes_[at].any = to;
        } else {
            try {
                add_edge(at, to, word);
            } catch (...) {
                free_.push_back(to);
                throw;
            }
        }
        nodes_[to].parent = at;
        return to;
    }

    [[nodiscard]] std::uint32_t new_node() {
        if (!free_.empty()) {
            const std::uint32_t id = free_.back();
            free_.pop_back();
            nodes_[id] = node{};
            return id;
        }
        nodes_.emplace_back();
        try {
            free_.reserve(nodes_.capacity()); // so that giving a node back can not fail
        } catch (...) {
            nodes_.pop_back();
            throw;
        }
        return static_cast<std::uint32_t>(nodes_.size() - 1);
    }

    void add_edge(std::uint32_t from, std::uint32_t to, std::string_view word) {
        auto known = words_.find(word);
        const bool is_new = known == words_.end();
        if (is_new) {
            const std::size_t next_id = words_.size() + free_words_.size();
            if (free_words_.capacity() <= next_id) { // so that giving it back can not fail
                free_words_.reserve(2 * next_id + 1);
            }
            const auto next = static_cast<std::uint32_t>(next_id);
            known = words_.emplace(word, word_use{next, 0}).first;
            if (!free_words_.empty()) {
                known->second.id = free_words_.back();
                free_words_.pop_back();
            }
        }
        const std::uint32_t id = known->second.id;
        try {
            edges_.emplace(edge(from, id), to);
        } catch (...) {
            if (is_new) {
                free_words_.push_back(id);
                words_.erase(known);
            }
            throw;
        }
        ++known->second.edges;
        nodes_[to].word = id;
        ++nodes_[from].literals;
    }

    /// Removes the nodes of `path`, the last one first, as long as nothing needs them.
    void prune(std::uint32_t at, std::string_view path) noexcept {
        while (at != root && !nodes_[at].is_needed()) {
            const std::size_t dot = path.rfind('.');
            const std::string_view word = path.substr(dot == std::string_view::npos ? 0 : dot + 1);
            path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
            const node& n = nodes_[at];
            node& parent = nodes_[n.parent];
            if (parent.one == at) {
                parent.one = none;
            } else if (parent.any == at) {
                parent.any = none;
            } else {
                edges_.erase(edge(n.parent, n.word));
                --parent.literals;
                if (const auto known = words_.find(word); --known->second.edges == 0) {
                    free_words_.push_back(known->second.id);
                    words_.erase(known);
                }
            }
            free_.push_back(at);
            at = n.parent;
        }
    }

    /// Numbers nodes and words anew when most numbers are unused.
    void give_back() noexcept {
        constexpr std::size_t few = 64;
        if (nodes_.size() <= few || (node_count() + 1) * 4 > nodes_.size()) {
            return;
        }
        try {
            topic_trie compact;
            copy_to(compact);
            *this = std::move(compact);
        } catch (...) { // no memory for less memory: another time
        }
    }

    void copy_to(topic_trie& to) const {
        std::vector<std::uint32_t> number(nodes_.size(), none);
        std::vector<bool> unused(nodes_.size());
        for (const std::uint32_t id : free_) {
            unused[id] = true;
        }
        to.nodes_.clear();
        to.nodes_.reserve(node_count() + 1);
        for (std::size_t i = 0; i != nodes_.size(); ++i) {
            if (!unused[i]) {
                number[i] = static_cast<std::uint32_t>(to.nodes_.size());
                to.nodes_.push_back(nodes_[i]);
            }
        }
        to.free_.reserve(to.nodes_.capacity());
        // The order of this map may be another elsewhere; no answer depends on a word's number.
        std::vector<std::uint32_t> word(words_.size() + free_words_.size(), none);
        to.words_.reserve(words_.size());
        for (const auto& [text, use] : words_) {
            word[use.id] = static_cast<std::uint32_t>(to.words_.size());
            to.words_.emplace(text, word_use{word[use.id], use.edges});
        }
        to.free_words_.reserve(to.words_.size());
        const auto renumber = [](std::uint32_t& id, const std::vector<std::uint32_t>& by) {
            id = id == none ? none : by[id];
        };
        to.edges_.reserve(edges_.size());
        for (std::size_t i = 0; i != to.nodes_.size(); ++i) {
            node& n = to.nodes_[i];
            renumber(n.parent, number);
            renumber(n.one, number);
            renumber(n.any, number);
            renumber(n.word, word);
            if (n.word != none) {
                to.edges_.emplace(edge(n.parent, n.word), static_cast<std::uint32_t>(i));
            }
        }
        to.patterns_ = patterns_;
    }

    std::vector<node> nodes_{}; // the first one is the root, made with the first pattern
    std::vector<std::uint32_t> free_{};
    boost::unordered_flat_map<std::uint64_t, std::uint32_t> edges_{};
    boost::unordered_flat_map<std::string, word_use, text_hash, std::equal_to<>> words_{};
    std::vector<std::uint32_t> free_words_{};
    std::size_t patterns_ = 0;
};

} // namespace railmq::core
