// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace railmq {

/// An ordered set of sequence numbers: the messages that were returned to a queue and have to be
/// delivered again before newer ones.
///
/// Messages come back in crowds of neighbours, when a consumer dies with everything it had
/// prefetched or when a batch times out. So the set is a sorted map of blocks of 4,096 bits, and
/// a million neighbours cost a bit each and 245 blocks. The price is paid for strays: a number
/// alone in its block costs the block, about 600 bytes.
///
/// Within a block everything is a few instructions: a word of 64 bits says which of the 64 words
/// have any bit set, so the next number is found with two count-trailing-zeros. Blocks are found
/// in O(log blocks), the first one and the one last inserted into or erased from in O(1).
///
/// Not copyable; movable. Not safe to use from two threads at once.
class ready_bitmap {
public:
    ready_bitmap() noexcept = default;
    ready_bitmap(const ready_bitmap&) = delete;
    ready_bitmap& operator=(const ready_bitmap&) = delete;
    ~ready_bitmap() = default;

    ready_bitmap(ready_bitmap&& other) noexcept { swap(other); }

    ready_bitmap& operator=(ready_bitmap&& other) noexcept {
        ready_bitmap{std::move(other)}.swap(*this);
        return *this;
    }

    /// Exchanges the contents. O(1).
    void swap(ready_bitmap& other) noexcept {
        blocks_.swap(other.blocks_); // blocks stay where they are, so `recent_` goes along
        spare_.swap(other.spare_);
        std::swap(recent_, other.recent_);
        std::swap(recent_key_, other.recent_key_);
        std::swap(size_, other.size_);
    }

    /// How many numbers are in the set. O(1).
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// True if the set is empty. O(1).
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

    /// Adds a number; false if it was in the set already. O(log blocks), O(1) among neighbours.
    /// Strong guarantee: throws `std::bad_alloc`.
    bool insert(std::uint64_t seq) {
        block* b = recent(seq);
        if (b == nullptr) {
            b = &obtain(key_of(seq));
            remember(b, seq);
        }
        std::uint64_t& word = b->words[word_of(seq)];
        const std::uint64_t bit = bit_of(seq);
        if ((word & bit) != 0) {
            return false;
        }
        word |= bit;
        b->summary |= std::uint64_t{1} << word_of(seq);
        ++size_;
        return true;
    }

    /// Removes a number; false if it was not in the set. O(log blocks), O(1) among neighbours.
    /// Allocates nothing.
    bool erase(std::uint64_t seq) noexcept {
        block* b = recent(seq);
        if (b == nullptr) {
            const auto found = blocks_.find(key_of(seq));
            if (found == blocks_.end()) {
                return false;
            }
            b = &found->second;
            remember(b, seq);
        }
        std::uint64_t& word = b->words[word_of(seq)];
        const std::uint64_t bit = bit_of(seq);
        if ((word & bit) == 0) {
            return false;
        }
        word &= ~bit;
        --size_;
        if (word == 0) {
            b->summary &= ~(std::uint64_t{1} << word_of(seq));
            if (b->summary == 0) {
                retire(key_of(seq));
            }
        }
        return true;
    }

    /// True if the number is in the set. O(log blocks), O(1) in the block used last.
    [[nodiscard]] bool contains(std::uint64_t seq) const noexcept {
        const block* b = recent(seq);
        if (b == nullptr) {
            const auto found = blocks_.find(key_of(seq));
            if (found == blocks_.end()) {
                return false;
            }
            b = &found->second;
        }
        return (b->words[word_of(seq)] & bit_of(seq)) != 0;
    }

    /// The smallest number. Precondition: not empty. O(1).
    [[nodiscard]] std::uint64_t first() const noexcept {
        const auto& [key, b] = *blocks_.begin();
        return first_of(key, b);
    }

    /// The smallest number greater than `seq`, which need not be in the set; nothing if there is
    /// none. O(log blocks).
    [[nodiscard]] std::optional<std::uint64_t> next_after(std::uint64_t seq) const noexcept {
        const std::uint64_t from = seq + 1;
        if (from == 0) {
            return std::nullopt; // nothing is greater than the greatest number
        }
        auto at = blocks_.lower_bound(key_of(from));
        if (at != blocks_.end() && at->first == key_of(from)) {
            const block& b = at->second;
            const std::size_t w = word_of(from);
            const std::uint64_t same_word = b.words[w] & ~(bit_of(from) - 1);
            if (same_word != 0) {
                return seq_of(at->first, w, same_word);
            }
            // Words above `w`; shifted twice, because a shift by 64 is no shift.
            const std::uint64_t later_words = b.summary & (~std::uint64_t{0} << w << 1);
            if (later_words != 0) {
                const auto next = static_cast<std::size_t>(std::countr_zero(later_words));
                return seq_of(at->first, next, b.words[next]);
            }
            ++at;
        }
        if (at == blocks_.end()) {
            return std::nullopt;
        }
        return first_of(at->first, at->second);
    }

    /// Calls `f(seq)` for every number, in ascending order. `f` must not change the set. Linear.
    template <class F>
    void for_each(F&& f) const {
        for (const auto& [key, b] : blocks_) {
            for (std::uint64_t rest = b.summary; rest != 0; rest &= rest - 1) {
                const auto w = static_cast<std::size_t>(std::countr_zero(rest));
                for (std::uint64_t word = b.words[w]; word != 0; word &= word - 1) {
                    f(seq_of(key, w, word));
                }
            }
        }
    }

    /// Removes all numbers. O(blocks).
    void clear() noexcept {
        blocks_.clear();
        recent_ = nullptr;
        size_ = 0;
    }

private:
    static constexpr unsigned word_bits = 6;   // of a number: which bit of its word
    static constexpr unsigned block_bits = 12; // of a number: which bit of its block
    static constexpr std::size_t words = std::size_t{1} << (block_bits - word_bits);

    struct block {
        std::uint64_t summary{0}; // a bit for each word that is not zero
        std::array<std::uint64_t, ready_bitmap::words> words{};
    };

    using block_map = std::map<std::uint64_t, block>; // no empty block but while it is filled

    [[nodiscard]] static constexpr std::uint64_t key_of(std::uint64_t seq) noexcept {
        return seq >> block_bits;
    }

    [[nodiscard]] static constexpr std::size_t word_of(std::uint64_t seq) noexcept {
        return static_cast<std::size_t>(seq >> word_bits & (ready_bitmap::words - 1));
    }

    [[nodiscard]] static constexpr std::uint64_t bit_of(std::uint64_t seq) noexcept {
        return std::uint64_t{1} << (seq & ((std::uint64_t{1} << word_bits) - 1));
    }

    [[nodiscard]] static constexpr std::uint64_t
    seq_of(std::uint64_t key, std::size_t w, std::uint64_t word) noexcept {
        return key << block_bits | std::uint64_t{w} << word_bits |
               static_cast<std::uint64_t>(std::countr_zero(word));
    }

    [[nodiscard]] static std::uint64_t first_of(std::uint64_t key, const block& b) noexcept {
        const auto w = static_cast<std::size_t>(std::countr_zero(b.summary));
        return seq_of(key, w, b.words[w]);
    }

    [[nodiscard]] block* recent(std::uint64_t seq) const noexcept {
        return recent_key_ == key_of(seq) ? recent_ : nullptr;
    }

    void remember(block* b, std::uint64_t seq) noexcept {
        recent_ = b;
        recent_key_ = key_of(seq);
    }

    block& obtain(std::uint64_t key) {
        const auto at = blocks_.lower_bound(key);
        if (at != blocks_.end() && at->first == key) {
            return at->second;
        }
        if (spare_.empty()) {
            return blocks_.emplace_hint(at, key, block{})->second;
        }
        spare_.key() = key;
        return blocks_.insert(at, std::move(spare_))->second;
    }

    /// Takes an empty block out of the map, and keeps it if it is the only one kept: a set that
    /// goes from one number to none and back does not allocate.
    void retire(std::uint64_t key) noexcept {
        recent_ = nullptr;
        auto node = blocks_.extract(key);
        if (spare_.empty()) {
            spare_ = std::move(node);
        }
    }

    block_map blocks_;
    block_map::node_type spare_; // all its bits are clear
    block* recent_{nullptr};     // the block used last, valid if not null
    std::uint64_t recent_key_{0};
    std::size_t size_{0};
};

} // namespace railmq
