// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/core/slot.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <vector>

namespace railmq::core {

/// A block of slots with neighbouring sequence numbers; the slots follow the header.
template <class Sync>
struct alignas(64) chunk {
    std::uint64_t base = 0;     ///< The first slot's sequence number, or an aside message's id.
    std::uint32_t capacity = 0; ///< Slots; 1 for a message that was moved aside.
    std::uint32_t cursor = 0;   ///< The slots before it are done: where reclaiming goes on.
    std::uint32_t stride = 0;
    bool aside = false;

    [[nodiscard]] slot<Sync>* at(std::uint64_t index) noexcept {
        auto* bytes = reinterpret_cast<std::byte*>(this) + sizeof(chunk);
        return reinterpret_cast<slot<Sync>*>(bytes + index * stride);
    }
    /// The sequence number of a slot of this chunk.
    [[nodiscard]] std::uint64_t sequence_of(const slot<Sync>* s) const noexcept {
        const auto* bytes = reinterpret_cast<const std::byte*>(this) + sizeof(chunk);
        const auto offset =
            static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(s) - bytes);
        return base + offset / stride;
    }
};

/// A message's place: the chunk and the slot in it.
template <class Sync>
struct place {
    chunk<Sync>* in = nullptr;
    slot<Sync>* at = nullptr;

    [[nodiscard]] explicit operator bool() const noexcept { return at != nullptr; }
};

/// The queue's line: an endless row of slots addressed by sequence number, in recycled chunks.
///
/// Producers claim positions at `tail`, write and publish; consumers claim positions at `next`.
/// Bit 63 of either position is its *gate*: while it is set, the fast claims fail and everyone
/// goes through the queue's lock, so one compare-exchange decides position and permission
/// together, and no flag has to be read beside it.
///
/// Thread safety: `try_claim`, `claimed`, `try_take` and the counters may be called by any thread,
/// each with a cache of its own. Everything under "With the lock held" needs the queue's lock.
template <class Sync>
class slot_ring {
public:
    using chunk_type = chunk<Sync>;
    using slot_type = slot<Sync>;
    using place_type = place<Sync>;
    template <class T>
    using atomic = typename Sync::template atomic<T>;

    static constexpr std::uint64_t gate = 1ULL << 63;
    static constexpr std::uint64_t no_limit = ~0ULL >> 1;
    /// So far from every position that no difference with one can look like an index.
    static constexpr std::uint64_t no_base = ~0ULL >> 1;

    /// What a producer remembers between claims: lower bounds of positions that only grow, so
    /// threads may share one.
    struct producer_cache {
        atomic<std::uint64_t> reserved{0};
        atomic<std::uint64_t> next{0};
    };

    /// What a consumer remembers between takes. The hazard keeps the chunk it looks at from being
    /// returned to the system; it is written once per chunk.
    struct consumer_cache {
        chunk_type* in = nullptr;
        std::uint64_t base = no_base;
        std::uint64_t reserved = 0;
        std::uint64_t filled = 0; ///< Every position before it was claimed by a producer.
        bool is_far = false;      ///< The chunk was begun by another thread than this one.
        atomic<chunk_type*> hazard{nullptr};
    };

    enum class claim_status : std::uint8_t { ok, gated, full, no_chunk };
    enum class take_status : std::uint8_t { ok, gated, empty };

    slot_ring(const payload_ops& ops, memory_budget<Sync>& budget)
        : budget_{budget} {
        offset_ = static_cast<std::uint32_t>(payload_offset(ops.align));
        stride_ = static_cast<std::uint32_t>(slot_stride(ops.size, ops.align));
        // About 16 KiB a chunk: large enough that the lock is taken once in a hundred messages,
        // small enough that a queue with one message in it stays small.
        capacity_ = static_cast<std::uint32_t>(
            std::clamp<std::size_t>(std::bit_floor(std::size_t{16384} / stride_), 8, 256));
        shift_ = static_cast<std::uint32_t>(std::countr_zero(capacity_));
        RAILMQ_ASSERT(std::max(std::size_t{ops.align}, alignof(slot_type)) <= alignof(chunk_type));
    }
    slot_ring(const slot_ring&) = delete;
    slot_ring& operator=(const slot_ring&) = delete;

    ~slot_ring() {
        for (chunk_type* c : spare_) free_chunk(c);
        for (chunk_type* c : pinned_) free_chunk(c);
        for (chunk_type* c : line_) free_chunk(c);
    }

    [[nodiscard]] void* payload(slot_type* s) const noexcept {
        return reinterpret_cast<std::byte*>(s) + offset_;
    }

    /// Claims up to `want` positions in a row, at least one: as many as fit below `max_length`
    /// ready messages and into the chunks there are.
    RAILMQ_ALWAYS_INLINE claim_status try_claim(
        std::uint32_t want,
        std::uint64_t max_length,
        producer_cache& cache,
        std::uint64_t& first,
        std::uint32_t& count) noexcept {
        std::uint64_t t = tail_.load(std::memory_order_relaxed);
        for (;;) {
            if ((t & gate) != 0) {
                return claim_status::gated;
            }
            std::uint64_t room = cache.reserved.load(std::memory_order_acquire) - t;
            if (static_cast<std::int64_t>(room) < static_cast<std::int64_t>(want)) {
                const std::uint64_t reserved = reserved_.load(std::memory_order_acquire);
                cache.reserved.store(reserved, std::memory_order_release);
                room = reserved - t;
                if (static_cast<std::int64_t>(room) <= 0) {
                    return claim_status::no_chunk;
                }
            }
            if (max_length != no_limit) {
                std::uint64_t next = cache.next.load(std::memory_order_relaxed);
                auto free = static_cast<std::int64_t>(next + max_length - t);
                if (free < static_cast<std::int64_t>(want)) {
                    next = next_.load(std::memory_order_acquire) & ~gate;
                    cache.next.store(next, std::memory_order_relaxed);
                    free = static_cast<std::int64_t>(next + max_length - t);
                    if (free <= 0) {
                        return claim_status::full;
                    }
                }
                room = std::min(room, static_cast<std::uint64_t>(free));
            }
            const std::uint64_t n = std::min<std::uint64_t>(want, room);
            if (tail_.compare_exchange_weak(
                    t, t + n, std::memory_order_acq_rel, std::memory_order_relaxed)) {
                first = t;
                count = static_cast<std::uint32_t>(n);
                return claim_status::ok;
            }
        }
    }

    /// The slot of a position that the caller has claimed and not yet published. Its chunk cannot
    /// be recycled before that.
    RAILMQ_ALWAYS_INLINE slot_type* claimed(std::uint64_t sequence) noexcept {
        chunk_type* c = directory_.load(std::memory_order_acquire)->at(sequence >> shift_);
        return c->at(sequence & (capacity_ - 1));
    }

    /// Fetches the cache lines of slots that another thread has written last, to write them.
    RAILMQ_ALWAYS_INLINE static void
    prefetch_to_write(const void* from, std::size_t bytes) noexcept {
        if constexpr (Sync::concurrent) {
            const auto* line = static_cast<const char*>(from);
            const auto* const end = line + bytes;
            for (; line + 256 <= end; line += 256) {
                RAILMQ_PREFETCH_TO_WRITE(line);
                RAILMQ_PREFETCH_TO_WRITE(line + 64);
                RAILMQ_PREFETCH_TO_WRITE(line + 128);
                RAILMQ_PREFETCH_TO_WRITE(line + 192);
            }
            for (; line < end; line += 64) {
                RAILMQ_PREFETCH_TO_WRITE(line);
            }
        }
    }
    /// Where the slot with the index of `sequence` lies in the chunk that is filled next. Whoever
    /// fills a slot fetches the lines of that one, so that they arrive one by one. Null when they
    /// need no fetching, since one thread sends and takes.
    [[nodiscard]] RAILMQ_ALWAYS_INLINE const std::byte*
    upcoming(std::uint64_t sequence, std::size_t stride) const noexcept {
        // Only an address: the chunk may be gone.
        const auto* c =
            reinterpret_cast<const std::byte*>(upcoming_.load(std::memory_order_relaxed));
        return c == nullptr ? nullptr
                            : c + sizeof(chunk_type) + (sequence & (capacity_ - 1)) * stride;
    }
    /// How many positions from `sequence` on lie in its chunk.
    [[nodiscard]] std::uint64_t run_from(std::uint64_t sequence) const noexcept {
        return capacity_ - (sequence & (capacity_ - 1));
    }

    /// Messages in a row, in one chunk, that were claimed for a consumer; their slots' words are
    /// the same.
    struct taken_run {
        std::uint64_t first = 0;
        slot_type* at = nullptr;
        std::uint32_t count = 0;
        slot_word word{};
    };

    /// Claims up to `max` ready messages in a row; their chunk is `cache.in`.
    RAILMQ_ALWAYS_INLINE take_status try_take(
        std::uint32_t max, consumer_cache& cache, taken_run& run, std::size_t stride) noexcept {
        std::uint64_t n = next_.load(std::memory_order_acquire);
        for (;;) {
            if ((n & gate) != 0) {
                return take_status::gated;
            }
            if (n >= cache.reserved) {
                cache.reserved = reserved_.load(std::memory_order_acquire);
                if (n >= cache.reserved) {
                    return take_status::empty;
                }
            }
            if (n - cache.base >= capacity_ && !enter_chunk(cache, n)) {
                continue; // `n` was read again
            }
            // The chunk may have been recycled since `next` was read; then `next` has moved, and
            // whatever is read here, the exchange below fails.
            const std::uint64_t index = n - cache.base;
            slot_type* const at =
                slot_after(cache.in->at(0), static_cast<std::ptrdiff_t>(index), stride);
            const slot_word word = at->load();
            if (word.state() == slot_state::ready) {
                std::uint32_t k = 1;
                if (max > 1) {
                    const auto limit = static_cast<std::ptrdiff_t>(
                        std::min<std::uint64_t>(max, capacity_ - index));
                    if (cache.is_far) {
                        prefetch_to_write(at, static_cast<std::size_t>(limit) * stride);
                    }
                    k += count_while(
                        slot_after(at, 1, stride), slot_after(at, limit, stride), word, stride);
                }
                // Sequentially consistent: see `queue_machine::recompute_due`.
                if (next_.compare_exchange_weak(
                        n, n + k, std::memory_order_seq_cst, std::memory_order_acquire)) {
                    run = {n, at, k, word};
                    return take_status::ok;
                }
                continue;
            }
            // Neither ready nor unpublished: a hole, if `next` is still there. Nothing was stored,
            // or the message was taken out of line.
            if (word.state() != slot_state::empty) {
                if (next_.compare_exchange_weak(
                        n, n + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
                    holes_.fetch_sub(1, std::memory_order_relaxed);
                    ++n;
                }
                continue;
            }
            const std::uint64_t again = next_.load(std::memory_order_acquire);
            if (again == n) {
                return take_status::empty;
            }
            n = again;
        }
    }

    /// How far ahead of a taken slot the lines of another are fetched.
    [[nodiscard]] static std::uint32_t distance_ahead(std::uint32_t count) noexcept {
        return std::max(count, std::uint32_t{8});
    }
    /// Of the `count` slots from `first` on that were taken, how many have one that far ahead that
    /// is filled and in the same chunk. Asks for the tail, which costs a transfer, now and then.
    [[nodiscard]] RAILMQ_ALWAYS_INLINE std::uint32_t
    filled_ahead(consumer_cache& cache, std::uint64_t first, std::uint32_t count) noexcept {
        if constexpr (!Sync::concurrent) {
            return 0;
        }
        const std::uint64_t from = first + distance_ahead(count);
        if (from + count > cache.filled && (count > 1 || first % 16 == 0)) {
            // Not what the producer may be writing this moment.
            const std::uint64_t t = tail();
            cache.filled = std::min(t - std::min<std::uint64_t>(t, 32), cache.base + capacity_);
        }
        return from >= cache.filled ? 0
                                    : static_cast<std::uint32_t>(
                                          std::min<std::uint64_t>(count, cache.filled - from));
    }

    /// Says that a claimed position stays empty for good, since storing its message failed.
    void publish_hole(slot_type* s) noexcept {
        holes_.fetch_add(1, std::memory_order_relaxed);
        unused_.fetch_add(1, std::memory_order_relaxed);
        s->store(slot_word{slot_state::done});
    }

    [[nodiscard]] std::uint64_t tail() const noexcept {
        return tail_.load(std::memory_order_seq_cst) & ~gate;
    }
    [[nodiscard]] std::uint64_t next() const noexcept {
        return next_.load(std::memory_order_seq_cst) & ~gate;
    }
    /// Messages in line, whether or not their producers have published them yet.
    [[nodiscard]] std::uint64_t in_line() const noexcept {
        const std::uint64_t n = next();
        const std::uint64_t used = tail() - n;
        const std::uint64_t holes = holes_.load(std::memory_order_relaxed);
        return used > holes ? used - holes : 0;
    }
    /// Positions that were claimed and never held a message.
    [[nodiscard]] std::uint64_t unused() const noexcept {
        return unused_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint32_t chunk_capacity() const noexcept { return capacity_; }

    // With the lock held

    void set_tail_gate(bool on) noexcept { set_gate(tail_, on); }
    void set_next_gate(bool on) noexcept { set_gate(next_, on); }
    [[nodiscard]] bool next_gate() const noexcept {
        return (next_.load(std::memory_order_relaxed) & gate) != 0;
    }

    /// Claims one position, whatever the gate says; adds a chunk when needed, beyond the memory
    /// limit only with `force`. False: no memory, nothing changed.
    [[nodiscard]] bool claim(bool force, std::uint64_t& sequence, slot_type*& at) {
        std::uint64_t t = tail_.load(std::memory_order_acquire);
        do {
            while ((t & ~gate) >= reserved_.load(std::memory_order_relaxed)) {
                if (!add_chunk(force)) {
                    return false;
                }
            }
        } while (!tail_.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel));
        sequence = t & ~gate;
        at = locate(sequence).at;
        return true;
    }

    /// Claims up to `want` positions in a row that lie in one chunk, within the memory limit.
    /// Returns how many: none, where there is no memory.
    [[nodiscard]] std::uint64_t claim_row(std::uint64_t want, std::uint64_t& first) {
        std::uint64_t t = tail_.load(std::memory_order_acquire);
        std::uint64_t n = 0;
        do {
            while ((t & ~gate) >= reserved_.load(std::memory_order_relaxed)) {
                if (!add_chunk(false)) {
                    return 0;
                }
            }
            n = std::min(want, run_from(t & ~gate));
        } while (!tail_.compare_exchange_weak(t, t + n, std::memory_order_acq_rel));
        first = t & ~gate;
        return n;
    }

    /// Makes room for that many claims that cannot fail. False: not within the memory limit.
    [[nodiscard]] bool reserve(std::uint64_t places) {
        while (reserved_.load(std::memory_order_relaxed) - tail() < places) {
            if (!add_chunk(false)) {
                return false;
            }
        }
        return true;
    }

    /// The line begins at that position; nobody has used it before.
    void start_at(std::uint64_t position) {
        RAILMQ_ASSERT(line_.empty() && reserved_.load(std::memory_order_relaxed) == 0);
        const std::uint64_t base = position & ~std::uint64_t{capacity_ - 1};
        tail_.store(position | (tail_.load() & gate));
        next_.store(position | (next_.load() & gate));
        reserved_.store(base);
        first_ = position;
        if (base != position && add_chunk(true)) {
            for (std::uint64_t i = 0; base + i != position; ++i) {
                line_.back()->at(i)->store(slot_word{slot_state::done}); // nobody will fill it
            }
        }
    }
    /// Where the line began.
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }

    /// Whether a position can be claimed without adding a chunk.
    [[nodiscard]] bool has_places() const noexcept {
        return tail() < reserved_.load(std::memory_order_relaxed);
    }

    /// Adds one chunk behind the last, a recycled one when there is one. False: the memory limit.
    [[nodiscard]] bool add_chunk(bool force) {
        if (spare_.empty()) {
            reclaim(1);
        }
        line_.push_back(nullptr); // first, so that nothing can fail once a chunk is taken
        chunk_type* c = nullptr;
        try {
            c = take_spare(force);
        } catch (...) {
            line_.pop_back();
            throw;
        }
        if (c == nullptr) {
            line_.pop_back();
            return false;
        }
        const std::uint64_t base = reserved_.load(std::memory_order_relaxed);
        try {
            widen_directory(base);
        } catch (...) {
            line_.pop_back();
            recycle(c);
            throw;
        }
        c->base = base;
        c->cursor = 0;
        const std::size_t stride = stride_;
        const std::uint32_t capacity = capacity_;
        auto* at = c->at(0);
        for (std::uint32_t n = 0; n != capacity; n += 4) { // a power of two, from 8 on
            const auto empty = [&](std::ptrdiff_t k) {
                slot_after(at, k, stride)->word.store(0, std::memory_order_relaxed);
            };
            empty(0);
            empty(1);
            empty(2);
            empty(3);
            at = slot_after(at, 4, stride);
        }
        line_.back() = c;
        const void* const here = Sync::this_thread();
        const bool is_taken_here = taker_.load(std::memory_order_relaxed) == here;
        upcoming_.store(is_taken_here ? nullptr : next_to_reclaim(), std::memory_order_relaxed);
        filler_.store(here, std::memory_order_relaxed);
        directory_.load(std::memory_order_relaxed)->store(base / capacity_, c);
        reserved_.store(base + capacity_, std::memory_order_release);
        return true;
    }

    /// Moves `next` forward; the gate must be set.
    void pass_next(std::uint64_t by = 1) noexcept {
        const std::uint64_t n = next_.load(std::memory_order_relaxed);
        RAILMQ_ASSERT((n & gate) != 0);
        next_.store(n + by, std::memory_order_seq_cst);
    }
    /// How many of up to `max` slots from that one on, all of one chunk, have that word.
    [[nodiscard]] std::uint64_t
    count_with(place_type from, std::uint64_t max, slot_word word) const noexcept {
        const std::size_t stride = stride_;
        auto* const end = slot_after(from.at, static_cast<std::ptrdiff_t>(max), stride);
        return count_while(from.at, end, word, stride);
    }
    void forget_hole() noexcept { holes_.fetch_sub(1, std::memory_order_relaxed); }
    void add_hole() noexcept { holes_.fetch_add(1, std::memory_order_relaxed); }

    /// The place of a position whose chunk still exists, or none.
    [[nodiscard]] place_type locate(std::uint64_t sequence) const noexcept {
        const std::uint64_t base = sequence & ~std::uint64_t{capacity_ - 1};
        if (!line_.empty() && base >= line_.front()->base) {
            const std::uint64_t i = (base - line_.front()->base) / capacity_;
            if (i >= line_.size()) {
                return {};
            }
            return {line_[i], line_[i]->at(sequence - base)};
        }
        const auto it = find_pinned(base);
        if (it == pinned_.end() || (*it)->base != base) {
            return {};
        }
        return {*it, (*it)->at(sequence - base)};
    }

    /// The first position at or after `sequence` whose chunk still exists.
    [[nodiscard]] std::uint64_t skip_reclaimed(std::uint64_t sequence) const noexcept {
        const std::uint64_t base = sequence & ~std::uint64_t{capacity_ - 1};
        const auto it = find_pinned(base);
        if (it != pinned_.end()) {
            return std::max(sequence, (*it)->base);
        }
        if (!line_.empty()) {
            return std::max(sequence, line_.front()->base);
        }
        return std::max(sequence, reserved_.load(std::memory_order_relaxed));
    }

    /// A place of its own for a message that must not pin a chunk; empty when there is no memory.
    /// Counted, but beyond the memory limit only with `force`.
    [[nodiscard]] chunk_type* make_aside(std::uint64_t id, bool force) {
        if (!budget_.try_charge(aside_bytes())) {
            if (!force) {
                return nullptr;
            }
            budget_.charge(aside_bytes());
        }
        void* raw =
            ::operator new (aside_bytes(), std::align_val_t{alignof(chunk_type)}, std::nothrow);
        if (raw == nullptr) {
            budget_.release(aside_bytes());
            return nullptr;
        }
        auto* c = ::new (raw) chunk_type{};
        c->base = id;
        c->capacity = 1;
        c->stride = stride_;
        c->aside = true;
        ::new (static_cast<void*>(c->at(0))) slot_type{};
        return c;
    }
    void free_aside(chunk_type* c) noexcept {
        budget_.release(aside_bytes());
        destroy_chunk(c);
    }
    [[nodiscard]] std::size_t aside_bytes() const noexcept { return sizeof(chunk_type) + stride_; }

    /// Takes back up to `max` chunks whose messages have all left.
    void reclaim(std::size_t max = ~std::size_t{0}) noexcept {
        const std::uint64_t n = next();
        while (max != 0 && !line_.empty() && line_.front()->base + capacity_ <= n) {
            chunk_type* c = line_.front();
            if (!complete(c)) {
                // Work in progress usually completes by itself; only what has fallen far behind
                // is taken out of line, so that it holds up nothing that came after it.
                if ((n - c->base) / capacity_ < 8) {
                    break;
                }
                pinned_.push_back(c); // they fall behind in order, so the list stays sorted
                line_.pop_front();
                continue;
            }
            line_.pop_front();
            recycle(c);
            --max;
        }
        for (int checks = 0; checks < 4 && !pinned_.empty(); ++checks) {
            pinned_turn_ = (pinned_turn_ + 1) % pinned_.size();
            chunk_type* c = pinned_[pinned_turn_];
            if (complete(c)) {
                pinned_.erase(pinned_.begin() + static_cast<std::ptrdiff_t>(pinned_turn_));
                recycle(c);
            }
        }
    }

    /// A chunk that is kept for what is left in it: the last one, or any. None: there is none.
    [[nodiscard]] chunk_type* left_behind(bool last) const noexcept {
        return pinned_.empty() ? nullptr
                               : pinned_[last ? pinned_.size() - 1 : pinned_turn_ % pinned_.size()];
    }

    /// Whether far more chunks are kept than are in use, as after a burst.
    [[nodiscard]] bool has_surplus() const noexcept {
        const std::uint64_t used = (tail() - next()) / capacity_ + 2;
        return line_.size() + spare_.size() > 2 * used + 8;
    }

    /// Gives recycled chunks back to the system, but for a few, and but for those that one of the
    /// consumers' hazards names. `for_each_hazard(f)` calls `f` with each.
    template <class ForEachHazard>
    void trim(ForEachHazard&& for_each_hazard, std::size_t max = ~std::size_t{0}) noexcept {
        reclaim(max);
        const std::size_t keep = std::max<std::size_t>(2, line_.size() / 4);
        if (spare_.size() <= 2 * keep) {
            return;
        }
        std::size_t i = 0;
        for (; i < spare_.size() && spare_.size() > keep && max != 0; --max) {
            bool in_use = false;
            for_each_hazard([&](chunk_type* named) { in_use = in_use || named == spare_[i]; });
            if (in_use) {
                ++i;
                continue;
            }
            free_chunk(spare_[i]);
            spare_[i] = spare_.back();
            spare_.pop_back();
        }
    }

    /// Calls `f(chunk&)` for every chunk in the order of sequence numbers.
    template <class F>
    void for_each_chunk(F&& f) {
        for (chunk_type* c : pinned_) f(*c);
        for (chunk_type* c : line_) f(*c);
    }

    [[nodiscard]] std::size_t memory_bytes() const noexcept {
        return (line_.size() + pinned_.size() + spare_.size()) * chunk_bytes();
    }

private:
    /// Chunks by number, for the window from `next` on. Entries are never cleared: whoever looks
    /// a position up has first seen that its chunk is there.
    struct directory {
        explicit directory(std::size_t size)
            : mask{size - 1}
            , entries{std::make_unique<atomic<chunk_type*>[]>(size)} {}
        [[nodiscard]] chunk_type* at(std::uint64_t number) const noexcept {
            return entries[number & mask].load(std::memory_order_acquire);
        }
        void store(std::uint64_t number, chunk_type* c) noexcept {
            entries[number & mask].store(c, std::memory_order_release);
        }
        std::uint64_t mask;
        std::unique_ptr<atomic<chunk_type*>[]> entries;
    };

    /// How many of the slots from `first` on, before `end`, have that word.
    [[nodiscard]] RAILMQ_NOINLINE static std::uint32_t
    count_while(slot_type* first, slot_type* end, slot_word word, std::size_t stride) noexcept {
        slot_type* at = first;
        for (; at != end; at = slot_after(at, 1, stride)) {
            if (at->load() != word) {
                break;
            }
        }
        return static_cast<std::uint32_t>(
            static_cast<std::size_t>(
                reinterpret_cast<const std::byte*>(at) -
                reinterpret_cast<const std::byte*>(first)) /
            stride);
    }

    RAILMQ_NOINLINE bool enter_chunk(consumer_cache& cache, std::uint64_t& n) noexcept {
        chunk_type* c = directory_.load(std::memory_order_acquire)->at(n >> shift_);
        cache.hazard.exchange(c, std::memory_order_seq_cst);
        // If `next` still lies in the chunk now, nobody can have decided to free it before the
        // hazard was seen.
        const std::uint64_t again = next_.load(std::memory_order_seq_cst);
        if ((again & gate) != 0 || again >> shift_ != n >> shift_) {
            cache.base = no_base;
            n = again;
            return false;
        }
        cache.in = c;
        cache.base = n & ~std::uint64_t{capacity_ - 1};
        const void* const here = Sync::this_thread();
        cache.is_far = filler_.load(std::memory_order_relaxed) != here;
        if (taker_.load(std::memory_order_relaxed) != here) {
            taker_.store(here, std::memory_order_relaxed);
        }
        n = again;
        return true;
    }

    static void set_gate(atomic<std::uint64_t>& position, bool on) noexcept {
        const bool is_on = (position.load(std::memory_order_relaxed) & gate) != 0;
        if (on && !is_on) {
            position.fetch_or(gate, std::memory_order_seq_cst);
        } else if (!on && is_on) {
            position.fetch_and(~gate, std::memory_order_seq_cst);
        }
    }

    [[nodiscard]] auto find_pinned(std::uint64_t base) const noexcept {
        return std::lower_bound(
            pinned_.begin(), pinned_.end(), base, [](const chunk_type* c, std::uint64_t b) {
                return c->base < b;
            });
    }

    [[nodiscard]] bool complete(chunk_type* c) const noexcept {
        // Done, and no handle is left that reads it: nothing else is set in the word.
        const std::size_t stride = stride_;
        std::uint32_t n = c->cursor;
        slot_type* at = c->at(n);
        const auto bits = [&](std::ptrdiff_t k) {
            return slot_after(at, k, stride)->load().bits();
        };
        // Most often all are; four at a time then cost little more than one. None is `empty`.
        constexpr auto done = static_cast<std::uint64_t>(slot_state::done);
        for (const std::uint32_t end = capacity_;
             n + 4 <= end && (bits(0) | bits(1) | bits(2) | bits(3)) == done;
             n += 4) {
            at = slot_after(at, 4, stride);
        }
        c->cursor = n + count_while(at, c->at(capacity_), slot_word{slot_state::done}, stride);
        return c->cursor == capacity_;
    }

    void recycle(chunk_type* c) noexcept { spare_.push_back(c); }

    /// The chunk that will be filled after the last one, if that is clear by now; else the last.
    [[nodiscard]] chunk_type* next_to_reclaim() const noexcept {
        if (!spare_.empty()) {
            return spare_.back();
        }
        chunk_type* c = line_.front();
        const bool is_over = c->base + capacity_ <= next() &&
                             c->at(capacity_ - 1)->load().state() == slot_state::done;
        return is_over ? c : line_.back();
    }

    void widen_directory(std::uint64_t base) {
        directory* old = directory_.load(std::memory_order_relaxed);
        const std::uint64_t first = next() / capacity_;
        const std::uint64_t last = base / capacity_;
        if (old != nullptr && last - first <= old->mask) {
            return;
        }
        const std::uint64_t size =
            std::max<std::uint64_t>(16, std::bit_ceil(2 * (last - first + 1)));
        auto wide = std::make_unique<directory>(size);
        if (old != nullptr) {
            for (std::uint64_t i = first; i < last; ++i) {
                wide->store(i, old->at(i));
            }
        }
        // Old ones stay: a thread may be reading them. Sizes double, so they add up to one more.
        directories_.push_back(std::move(wide));
        directory_.store(directories_.back().get(), std::memory_order_release);
    }

    [[nodiscard]] chunk_type* take_spare(bool force) {
        if (!spare_.empty()) {
            chunk_type* c = spare_.back();
            spare_.pop_back();
            return c;
        }
        // Room in both lists for every chunk there is, so that taking one back cannot fail.
        const std::size_t chunks = line_.size() + pinned_.size() + 1;
        spare_.reserve(std::bit_ceil(chunks));
        pinned_.reserve(std::bit_ceil(chunks));
        if (!budget_.try_charge(chunk_bytes())) {
            if (!force) {
                return nullptr;
            }
            budget_.charge(chunk_bytes());
        }
        void* raw =
            ::operator new (chunk_bytes(), std::align_val_t{alignof(chunk_type)}, std::nothrow);
        if (raw == nullptr) {
            budget_.release(chunk_bytes());
            return nullptr;
        }
        auto* c = ::new (raw) chunk_type{};
        c->capacity = capacity_;
        c->stride = stride_;
        for (std::uint32_t i = 0; i < capacity_; ++i) {
            ::new (static_cast<void*>(c->at(i))) slot_type{};
        }
        return c;
    }

    void free_chunk(chunk_type* c) noexcept {
        budget_.release(chunk_bytes());
        destroy_chunk(c);
    }
    static void destroy_chunk(chunk_type* c) noexcept {
        std::destroy_at(c);
        ::operator delete (static_cast<void*>(c), std::align_val_t{alignof(chunk_type)});
    }

    [[nodiscard]] std::size_t chunk_bytes() const noexcept {
        return sizeof(chunk_type) + std::size_t{stride_} * capacity_;
    }

    // Read by everyone, written once per chunk.
    alignas(128) memory_budget<Sync>& budget_;
    std::uint32_t offset_ = 0;
    std::uint32_t stride_ = 0;
    std::uint32_t capacity_ = 0;
    std::uint32_t shift_ = 0;
    atomic<std::uint64_t> reserved_{0};
    atomic<directory*> directory_{nullptr};
    atomic<chunk_type*> upcoming_{nullptr};
    atomic<const void*> filler_{nullptr}; ///< The thread that added the last chunk.
    atomic<std::uint64_t> holes_{0};
    atomic<std::uint64_t> unused_{0};

    alignas(128) atomic<std::uint64_t> tail_{0};
    alignas(128) atomic<std::uint64_t> next_{0};
    atomic<const void*> taker_{nullptr}; ///< The thread that entered a chunk last to take from it.

    alignas(128) std::deque<chunk_type*> line_{};
    std::vector<chunk_type*> pinned_{};
    std::vector<chunk_type*> spare_{};
    std::vector<std::unique_ptr<directory>> directories_{};
    std::size_t pinned_turn_ = 0;
    std::uint64_t first_ = 0;
};

} // namespace railmq::core
