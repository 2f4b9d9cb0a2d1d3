// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/deadline_tree.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq::detail {

/// Storage of the entries of the general part: slots that are reused one by one and never move.
/// A slot counts its generations, and a reference names a slot and a generation: whatever a
/// reference stood for, once that is gone it never finds anything again.
template <class Item>
class deadline_slots {
public:
    struct slot {
        time_point deadline;
        std::uint32_t generation;
        Item item;
    };

    deadline_slots() noexcept = default;
    deadline_slots(const deadline_slots&) = delete;
    deadline_slots& operator=(const deadline_slots&) = delete;

    ~deadline_slots() {
        for (const chunk& c : chunks_) {
            delete c.memory;
        }
    }

    void swap(deadline_slots& other) noexcept {
        chunks_.swap(other.chunks_);
        std::swap(open_, other.open_);
        std::swap(unused_id_, other.unused_id_);
        std::swap(empties_, other.empties_);
    }

    /// A reference has this bit, so that its owner can tell it from other numbers.
    static constexpr std::uint64_t tag = std::uint64_t{1} << 63;

    /// Takes a slot. Strong guarantee: throws `std::bad_alloc`. O(1).
    std::uint64_t take() {
        if (open_ == none) {
            add_chunk();
        }
        chunk& c = chunks_[open_];
        const auto at = static_cast<std::uint32_t>(std::countr_zero(c.free));
        empties_ -= c.free == all ? 1U : 0U;
        c.free &= c.free - 1;
        const std::uint64_t index = std::uint64_t{open_} << chunk_bits | at;
        if (c.free == 0) {
            close(open_);
        }
        return tag | index << 32 | c.memory->slots[at].generation;
    }

    /// Gives a slot back; the reference is void. Precondition: `find` would find it. O(1).
    void give(std::uint64_t ref) noexcept {
        const std::uint32_t id = chunk_of(ref);
        chunk& c = chunks_[id];
        slot& s = c.memory->slots[offset(ref)];
        ++s.generation;
        c.first_generation = std::max(c.first_generation, s.generation);
        if (s.generation == worn_out) {
            return; // after four thousand million uses
        }
        if (c.free == 0) {
            open(id);
        }
        c.free |= std::uint64_t{1} << offset(ref);
        if (c.free == all && ++empties_ > 1) {
            drop_chunk(id);
        }
    }

    /// The slot, null if the reference is void. Also for numbers that are no reference. O(1).
    [[nodiscard]] slot* find(std::uint64_t ref) const noexcept {
        if ((ref & tag) == 0 || chunk_of(ref) >= chunks_.size()) {
            return nullptr;
        }
        memory* const in = chunks_[chunk_of(ref)].memory;
        if (in == nullptr) {
            return nullptr;
        }
        slot& s = in->slots[offset(ref)];
        return s.generation == static_cast<std::uint32_t>(ref) ? &s : nullptr;
    }

    /// The slot. Precondition: `find` would find it. O(1).
    [[nodiscard]] slot& operator[](std::uint64_t ref) const noexcept {
        return chunks_[chunk_of(ref)].memory->slots[offset(ref)];
    }

    /// When it was created, for the rare tie. Precondition: `find` would find it. O(1).
    [[nodiscard]] std::uint64_t& order(std::uint64_t ref) const noexcept {
        return chunks_[chunk_of(ref)].memory->orders[offset(ref)];
    }

    /// Gives all slots back. Linear.
    void clear() noexcept {
        open_ = none;
        empties_ = 0;
        for (std::uint32_t id = 0; id != chunks_.size(); ++id) {
            chunk& c = chunks_[id];
            if (c.memory == nullptr) {
                continue;
            }
            for (std::uint64_t used = ~c.free; used != 0; used &= used - 1) {
                const auto at = static_cast<std::size_t>(std::countr_zero(used));
                const std::uint32_t next =
                    std::min(c.memory->slots[at].generation, worn_out - 1) + 1;
                c.first_generation = std::max(c.first_generation, next);
            }
            forget(id);
        }
    }

    // Inlined by force, like all that leads here: a function that does nothing but prefetch looks
    // as if it did nothing at all, and GCC leaves out the call.
    [[gnu::always_inline]] void prefetch([[maybe_unused]] std::uint64_t ref) const noexcept {
#if defined(__GNUC__)
        if (const memory* const in = chunks_[chunk_of(ref)].memory; in != nullptr) {
            __builtin_prefetch(&in->slots[offset(ref)].generation);
            if constexpr (sizeof(slot) > 32) {
                __builtin_prefetch(&in->slots[offset(ref)].item);
            }
        }
#endif
    }

private:
    static constexpr unsigned chunk_bits = 6; // a chunk's slots fit one word of bits
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::uint32_t worn_out = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::size_t most_chunks = std::size_t{1} << (31 - chunk_bits);
    static constexpr std::size_t chunk_size = std::size_t{1} << chunk_bits;

    struct memory {
        alignas(64) std::array<slot, chunk_size> slots;
        std::array<std::uint64_t, chunk_size> orders;
    };

    struct chunk {
        deadline_slots::memory* memory{nullptr};
        std::uint64_t free{0}; // a bit for each slot
        // Above all that were given back, so that the memory can go and come again.
        std::uint32_t first_generation{0};
        std::uint32_t previous{none}; // among those with free slots
        std::uint32_t next{none};     // the same, or among those without memory
    };

    [[nodiscard]] static std::uint32_t chunk_of(std::uint64_t ref) noexcept {
        return static_cast<std::uint32_t>((ref & ~tag) >> (32 + chunk_bits));
    }

    [[nodiscard]] static std::size_t offset(std::uint64_t ref) noexcept {
        return static_cast<std::size_t>(ref >> 32 & ((1U << chunk_bits) - 1));
    }

    [[gnu::noinline]] void add_chunk() {
        if (unused_id_ == none) {
            if (chunks_.size() == most_chunks) {
                throw std::bad_alloc{};
            }
            chunks_.emplace_back();
            unused_id_ = static_cast<std::uint32_t>(chunks_.size() - 1);
        }
        const std::uint32_t id = unused_id_;
        chunk& c = chunks_[id];
        c.memory = new deadline_slots::memory; // if it throws, the id stays unused
        unused_id_ = c.next;
        for (slot& s : c.memory->slots) {
            s.generation = c.first_generation;
        }
        c.free = all;
        ++empties_;
        open(id);
    }

    [[gnu::noinline]] void drop_chunk(std::uint32_t id) noexcept {
        close(id);
        --empties_;
        forget(id);
    }

    /// Frees the memory of a chunk that is in no list.
    void forget(std::uint32_t id) noexcept {
        chunk& c = chunks_[id];
        delete c.memory;
        c.memory = nullptr;
        c.free = 0;
        if (c.first_generation != worn_out) {
            c.next = unused_id_;
            unused_id_ = id;
        }
    }

    void open(std::uint32_t id) noexcept {
        chunk& c = chunks_[id];
        c.previous = none;
        c.next = open_;
        if (open_ != none) {
            chunks_[open_].previous = id;
        }
        open_ = id;
    }

    void close(std::uint32_t id) noexcept {
        const chunk& c = chunks_[id];
        (c.previous == none ? open_ : chunks_[c.previous].next) = c.next;
        if (c.next != none) {
            chunks_[c.next].previous = c.previous;
        }
    }

    std::vector<chunk> chunks_;
    std::uint32_t open_{none}; // list of chunks with free slots
    std::uint32_t unused_id_{none};
    std::uint32_t empties_{0}; // chunks without a used slot; one is kept
};

/// Storage of the entries of the lanes: blocks of entries in the order of creation. Each place of
/// a block is used once in a generation of the block, so that to cancel is to clear a bit, and a
/// block comes back when all its bits are clear.
template <class Item>
class deadline_blocks {
public:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    static constexpr unsigned offset_bits = 5;
    static constexpr std::uint32_t block_size = 1U << offset_bits;

    struct record {
        time_point deadline;
        std::uint64_t order;
        Item item;
    };

    struct block {
        record* records{nullptr};
        std::uint32_t generation{first_generation};
        std::uint32_t live{0};        // a bit for each record
        std::uint32_t used{0};        // records in use or used up, from the first one
        std::uint32_t source{0};      // the lane; 0: the block is in none
        std::uint32_t previous{none}; // in the lane
        std::uint32_t next{none};     // in the lane, or among the spare, or without memory

        [[nodiscard]] bool full() const noexcept { return used == block_size; }
        [[nodiscard]] const record& front() const noexcept {
            return records[static_cast<std::size_t>(std::countr_zero(live))];
        }
    };

    deadline_blocks() noexcept = default;
    deadline_blocks(const deadline_blocks&) = delete;
    deadline_blocks& operator=(const deadline_blocks&) = delete;

    ~deadline_blocks() {
        for (const block& b : blocks_) {
            delete[] b.records;
        }
    }

    void swap(deadline_blocks& other) noexcept {
        blocks_.swap(other.blocks_);
        std::swap(spare_, other.spare_);
        std::swap(unused_id_, other.unused_id_);
        std::swap(spares_, other.spares_);
        std::swap(used_, other.used_);
    }

    [[nodiscard]] std::size_t size() const noexcept { return blocks_.size(); }
    [[nodiscard]] block& operator[](std::uint32_t id) noexcept { return blocks_[id]; }
    [[nodiscard]] const block& operator[](std::uint32_t id) const noexcept { return blocks_[id]; }

    [[nodiscard]] static std::uint32_t block_of(std::uint64_t ref) noexcept {
        return static_cast<std::uint32_t>(ref >> 32);
    }

    [[nodiscard]] static std::uint32_t offset(std::uint64_t ref) noexcept {
        return static_cast<std::uint32_t>(ref) & (block_size - 1);
    }

    [[nodiscard]] static std::uint64_t
    reference(std::uint32_t id, std::uint32_t generation, std::uint32_t at) noexcept {
        return std::uint64_t{id} << 32 | generation << offset_bits | at;
    }

    /// True if the reference stands for a live record; also for any other number. O(1).
    [[nodiscard]] bool live(std::uint64_t ref) const noexcept {
        const std::uint32_t id = block_of(ref);
        return id < blocks_.size() &&
               blocks_[id].generation == static_cast<std::uint32_t>(ref) >> offset_bits &&
               (blocks_[id].live >> offset(ref) & 1U) != 0;
    }

    /// Takes an unused block. Strong guarantee: throws `std::bad_alloc`. O(1).
    [[nodiscard]] std::uint32_t take(std::uint32_t source) {
        if (spare_ == none) {
            add_spare();
        }
        const std::uint32_t id = spare_;
        block& b = blocks_[id];
        spare_ = b.next;
        --spares_;
        ++used_;
        b.source = source;
        return id;
    }

    /// Gives a block back, and voids all references into it. Keeps no more spare blocks than are
    /// in use. O(1).
    void give(std::uint32_t id) noexcept {
        block& b = blocks_[id];
        --used_;
        b.live = 0;
        b.used = 0;
        b.source = 0;
        ++b.generation;
        b.next = spare_;
        spare_ = id;
        ++spares_;
        if (b.generation > last_generation) {
            drop_spare(); // worn out after four thousand million entries
        }
        for (int i = 0; i < 2 && spares_ > used_ + slack; ++i) {
            drop_spare();
        }
    }

private:
    // A reference is | 0 | block 31 | generation 27 | offset 5 |, and never all zero.
    static constexpr std::uint32_t first_generation = 1;
    static constexpr std::uint32_t last_generation = (1U << (32 - offset_bits)) - 1;
    static constexpr std::size_t most_blocks = std::size_t{1} << 31;
    static constexpr std::size_t slack = 2;

    [[gnu::noinline]] void add_spare() {
        if (unused_id_ == none) {
            if (blocks_.size() == most_blocks) {
                throw std::bad_alloc{};
            }
            blocks_.emplace_back();
            unused_id_ = static_cast<std::uint32_t>(blocks_.size() - 1);
        }
        const std::uint32_t id = unused_id_;
        block& b = blocks_[id];
        b.records = new record[block_size]; // if it throws, the id stays unused
        unused_id_ = b.next;
        b.next = spare_;
        spare_ = id;
        ++spares_;
    }

    void drop_spare() noexcept {
        const std::uint32_t id = spare_;
        block& b = blocks_[id];
        spare_ = b.next;
        --spares_;
        delete[] b.records;
        b.records = nullptr;
        if (b.generation <= last_generation) {
            b.next = unused_id_;
            unused_id_ = id;
        }
    }

    std::vector<block> blocks_;
    std::uint32_t spare_{none};
    std::uint32_t unused_id_{none};
    std::size_t spares_{0};
    std::size_t used_{0};
};

} // namespace railmq::detail
