// SPDX-License-Identifier: BSL-1.0
#pragma once

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

namespace railmq {

template <class Item>
class deadline_index;

/// Names one armed deadline of a `deadline_index`. Default constructed it names none. It stays
/// harmless for ever: once its deadline fired or was cancelled it never names another one.
class deadline_handle {
public:
    constexpr deadline_handle() noexcept = default;

    /// True if it was returned by an arm call; says nothing about whether it is still armed.
    [[nodiscard]] constexpr explicit operator bool() const noexcept { return bits_ != 0; }

    friend constexpr bool operator==(deadline_handle, deadline_handle) noexcept = default;

private:
    template <class Item>
    friend class deadline_index;

    constexpr explicit deadline_handle(std::uint64_t bits) noexcept
        : bits_{bits} {}

    std::uint64_t bits_{0};
};

/// Names a first-in-first-out lane of a `deadline_index`. Default constructed it names the
/// general, unordered part.
class deadline_lane {
public:
    constexpr deadline_lane() noexcept = default;

    friend constexpr bool operator==(deadline_lane, deadline_lane) noexcept = default;

private:
    template <class Item>
    friend class deadline_index;

    constexpr explicit deadline_lane(std::uint32_t source) noexcept
        : source_{source} {}

    std::uint32_t source_{0};
};

namespace detail {

/// One ordered reference: `key` orders, `ref` says what it stands for.
struct deadline_mark {
    std::uint64_t key;
    std::uint64_t ref;
};

/// A priority queue of marks, ordered by key and by insertion among equal keys.
///
/// It is a trie over the bits of the key whose leaves are unsorted arrays: a leaf that grows too
/// big is split by the next digit of its keys, the leftmost one is split until it is small, and
/// only then sorted. So it is what a hierarchical timing wheel is, slots that are arrays and are
/// refined as they come near, except that nothing in it is relative to a current time: looking at
/// the front never turns a wheel that a deadline before it would have to turn back, and a jump of a
/// hundred years costs what a jump of a microsecond costs. Paths are compressed, so only digits in
/// which keys differ cost a level.
///
/// Big leaves far from the front are what makes it quick: arming appends to one of few arrays, and
/// a mark is moved once for each digit, among its neighbours, when the front comes near.
///
/// Death is lazy: the owner says "a mark with this key died" and later answers `live(ref)`. A leaf
/// is swept when more than half of it is dead, so dead marks stay within a constant factor of the
/// living, and no operation sweeps more than one leaf.
///
/// Invariants: every leaf holds a living mark; every inner node has two children or more; a leaf
/// that is not sorted has at most `leaf_limit` marks; between calls `front_` is the leftmost leaf
/// (null if there is none), is sorted, and its first mark is alive.
class deadline_tree {
public:
    deadline_tree() noexcept = default;
    deadline_tree(const deadline_tree&) = delete;
    deadline_tree& operator=(const deadline_tree&) = delete;
    ~deadline_tree() { clear(); }

    void swap(deadline_tree& other) noexcept {
        std::swap(root_, other.root_);
        std::swap(front_, other.front_);
        std::swap(nodes_, other.nodes_);
        std::swap(leaves_, other.leaves_);
    }

    [[nodiscard]] bool empty() const noexcept { return root_ == nullptr; }

    /// The first living mark. Precondition: not empty.
    [[nodiscard]] const deadline_mark& front() const noexcept {
        return marks(front_)[front_->head];
    }

    /// Adds a mark; false if memory ran out, and then nothing changed.
    /// Constant: at most one level for each digit of a key, and one leaf.
    template <class Live>
    [[nodiscard]] bool insert(deadline_mark m, Live&& live) noexcept {
        const bool overtakes = front_ == nullptr || m.key < front().key;
        leaf* const into = place(m, live);
        if (into != nullptr && overtakes && into != front_) {
            front_ = nullptr;
        }
        if (front_ == nullptr) {
            settle(live);
        }
        return into != nullptr;
    }

    /// Says that one mark with this key is no longer alive (`live` must already answer so).
    /// Constant, amortised over the marks that died.
    template <class Live>
    void died(std::uint64_t key, Live&& live) noexcept {
        part** above = nullptr;
        part** where = &root_;
        while (!is_leaf(*where)) {
            above = where;
            where = &as_node(*where)->child[digit(key, (*where)->shift)];
        }
        leaf* const at = as_leaf(*where);
        ++at->dead;
        if (at->dead == at->end - at->head) {
            unlink(where, above);
        } else if (at->dead >= min_sweep && at->dead > (at->end - at->head) / 2) {
            sweep(where, live);
        }
        if (front_ == nullptr) {
            settle(live);
        } else {
            skip_dead(front_, live);
        }
    }

    /// Removes the front, which `live` need not answer for any more. Precondition: not empty.
    /// Constant, amortised: a mark is moved once for each digit and sorted once.
    template <class Live>
    void pop_front(Live&& live) noexcept {
        leaf* const at = front_;
        ++at->head;
        if (at->dead != at->end - at->head) {
            skip_dead(at, live);
            if (at->end - at->head > look_ahead) {
                live.will_need(marks(at)[at->head + look_ahead].ref);
            }
            return;
        }
        part** above = nullptr;
        part** where = &root_;
        while (!is_leaf(*where)) {
            above = where;
            where = leftmost(as_node(*where));
        }
        unlink(where, above);
        settle(live);
    }

    void clear() noexcept {
        if (root_ != nullptr) {
            destroy(root_);
        }
        root_ = nullptr;
        front_ = nullptr;
        nodes_.clear();
        for (auto& l : leaves_) {
            l.clear();
        }
    }

private:
    static constexpr unsigned digit_bits = 6;
    static constexpr std::uint64_t fan_out = std::uint64_t{1} << digit_bits;
    // A leaf with so many different keys is split before it grows: bounds the longest pause.
    static constexpr std::uint32_t leaf_limit = 4096;
    // The same for the leaf at the front, which is kept sorted.
    static constexpr std::uint32_t front_limit = 64;
    static constexpr std::uint32_t least_capacity = 4;
    static constexpr std::uint32_t min_sweep = 8;
    static constexpr std::uint32_t look_ahead = 256;
    // Capacities 4, 8, ... 4096 are recycled; a bigger leaf holds one key many times.
    static constexpr std::size_t pooled_sizes = 11;

    /// Recycles storage of one size, and keeps no more of it than is in use, or a little.
    class pool {
    public:
        [[nodiscard]] void* take(std::size_t bytes) noexcept {
            void* p = spare_;
            if (p != nullptr) {
                spare_ = spare_->next;
                --spares_;
            } else {
                p = ::operator new(bytes, std::nothrow);
            }
            used_ += p != nullptr ? 1U : 0U;
            return p;
        }

        void give(void* p, std::size_t bytes) noexcept {
            spare_ = ::new (p) link{spare_};
            ++spares_;
            --used_;
            for (int i = 0; i < 2 && spares_ > used_ + kept_bytes / bytes; ++i) {
                drop();
            }
        }

        void clear() noexcept {
            while (spare_ != nullptr) {
                drop();
            }
        }

    private:
        static constexpr std::size_t kept_bytes = 2048; // there may be very many queues

        struct link {
            link* next;
        };

        void drop() noexcept {
            link* const p = spare_;
            spare_ = p->next;
            --spares_;
            ::operator delete(p);
        }

        link* spare_{nullptr};
        std::size_t spares_{0};
        std::size_t used_{0};
    };

    struct part {
        std::int32_t shift; // of the digit an inner node tells apart; negative: a leaf
    };

    struct node : part {
        std::uint64_t prefix; // any key below; its bits above the digit are everyone's
        std::uint64_t present;
        std::array<part*, fan_out> child; // only those in `present` are initialised
    };

    // The marks follow it in the same piece of memory.
    struct leaf : part {
        bool sorted;
        bool mixed;         // false: surely all keys are equal
        std::uint32_t head; // marks before it are gone
        std::uint32_t end;
        std::uint32_t capacity;
        std::uint32_t dead; // in [head, end)
    };
    static_assert(sizeof(leaf) % alignof(deadline_mark) == 0);

    [[nodiscard]] static bool is_leaf(const part* p) noexcept { return p->shift < 0; }
    [[nodiscard]] static node* as_node(part* p) noexcept { return static_cast<node*>(p); }
    [[nodiscard]] static leaf* as_leaf(part* p) noexcept { return static_cast<leaf*>(p); }

    [[nodiscard]] static deadline_mark* marks(leaf* l) noexcept {
        return static_cast<deadline_mark*>(static_cast<void*>(l + 1));
    }

    [[nodiscard]] static std::size_t digit(std::uint64_t key, std::int32_t shift) noexcept {
        return static_cast<std::size_t>((key >> shift) & (fan_out - 1));
    }

    [[nodiscard]] static std::int32_t shift_of(std::uint64_t difference) noexcept {
        const auto bit = static_cast<unsigned>(std::bit_width(difference)) - 1U;
        return static_cast<std::int32_t>(bit / digit_bits * digit_bits);
    }

    [[nodiscard]] static part** leftmost(node* n) noexcept {
        return &n->child[static_cast<std::size_t>(std::countr_zero(n->present))];
    }

    static void adopt(node* n, std::size_t at, part* p) noexcept {
        n->child[at] = p;
        n->present |= std::uint64_t{1} << at;
    }

    [[nodiscard]] static std::size_t pool_of(std::uint32_t capacity) noexcept {
        return static_cast<std::size_t>(std::countr_zero(capacity / least_capacity));
    }

    [[nodiscard]] static std::size_t bytes_of(std::uint32_t capacity) noexcept {
        return sizeof(leaf) + capacity * sizeof(deadline_mark);
    }

    [[nodiscard]] leaf* make_leaf(std::uint32_t wanted) noexcept {
        const std::uint32_t capacity = std::bit_ceil(std::max(wanted, least_capacity));
        const std::size_t bytes = bytes_of(capacity);
        const std::size_t which = pool_of(capacity);
        void* const p =
            which < pooled_sizes ? leaves_[which].take(bytes) : ::operator new(bytes, std::nothrow);
        return p == nullptr ? nullptr : ::new (p) leaf{{-1}, true, false, 0, 0, capacity, 0};
    }

    [[nodiscard]] node* make_node(std::int32_t shift, std::uint64_t prefix) noexcept {
        void* const p = nodes_.take(sizeof(node));
        if (p == nullptr) {
            return nullptr;
        }
        node* const n = ::new (p) node; // the children are left uninitialised: `present` rules
        n->shift = shift;
        n->prefix = prefix;
        n->present = 0;
        return n;
    }

    void free_leaf(leaf* l) noexcept {
        if (l == front_) {
            front_ = nullptr;
        }
        const std::size_t which = pool_of(l->capacity);
        if (which < pooled_sizes) {
            leaves_[which].give(l, bytes_of(l->capacity));
        } else {
            ::operator delete(l);
        }
    }

    void destroy(part* p) noexcept {
        if (is_leaf(p)) {
            free_leaf(as_leaf(p));
            return;
        }
        node* const n = as_node(p);
        for (std::uint64_t rest = n->present; rest != 0; rest &= rest - 1) {
            destroy(n->child[static_cast<std::size_t>(std::countr_zero(rest))]);
        }
        nodes_.give(n, sizeof(node));
    }

    static void push(leaf* l, deadline_mark m) noexcept {
        deadline_mark* const at = marks(l);
        if (l->end != l->head) {
            l->mixed = l->mixed || m.key != at[l->head].key;
            l->sorted = l->sorted && at[l->end - 1].key <= m.key;
        }
        at[l->end++] = m;
    }

    /// Finds or makes the leaf for `m` and adds it; null if memory ran out. May reset `front_`.
    template <class Live>
    [[nodiscard]] leaf* place(deadline_mark m, Live&& live) noexcept {
        part** where = &root_;
        while (*where != nullptr) {
            if (is_leaf(*where)) {
                leaf* l = as_leaf(*where);
                const bool inside = l == front_ && m.key < marks(l)[l->end - 1].key;
                const std::uint32_t limit = inside ? front_limit : leaf_limit;
                if (l->end - l->head < limit || (!l->mixed && m.key == marks(l)[l->head].key)) {
                    return append(where, m);
                }
                if (l->dead != 0) {
                    l = sweep(where, live);
                    if (l->end <= limit / 2) {
                        return append(where, m);
                    }
                }
                const std::uint64_t all = differences(l);
                const std::uint64_t difference = all | (m.key ^ marks(l)[l->head].key);
                if (difference == 0) {
                    l->mixed = false;
                    l->sorted = true;
                    return append(where, m);
                }
                const std::int32_t shift = shift_of(difference);
                if (digit(all, shift) == 0) {
                    return fork(where, marks(l)[l->head].key, m, shift);
                }
                if (!split(where, shift)) {
                    return nullptr;
                }
                continue;
            }
            node* const n = as_node(*where);
            const std::uint64_t difference = m.key ^ n->prefix;
            if ((difference >> n->shift) >= fan_out) {
                // Differs above this node's digit: a new node tells the two apart there.
                return fork(where, n->prefix, m, shift_of(difference));
            }
            const std::size_t at = digit(m.key, n->shift);
            if ((n->present >> at & 1U) == 0) {
                leaf* const l = make_leaf(1);
                if (l != nullptr) {
                    push(l, m);
                    adopt(n, at, l);
                }
                return l;
            }
            where = &n->child[at];
        }
        leaf* const l = make_leaf(1);
        if (l != nullptr) {
            push(l, m);
            *where = l;
        }
        return l;
    }

    /// Puts a node above `*where`, whose keys are like `below`, and a new leaf for `m` beside it.
    [[nodiscard]] leaf*
    fork(part** where, std::uint64_t below, deadline_mark m, std::int32_t shift) noexcept {
        leaf* const l = make_leaf(1);
        node* const above = l == nullptr ? nullptr : make_node(shift, m.key);
        if (above == nullptr) {
            if (l != nullptr) {
                free_leaf(l);
            }
            return nullptr;
        }
        push(l, m);
        adopt(above, digit(below, shift), *where);
        adopt(above, digit(m.key, shift), l);
        *where = above;
        return l;
    }

    [[nodiscard]] leaf* append(part** where, deadline_mark m) noexcept {
        leaf* l = as_leaf(*where);
        if (l->end == l->capacity) {
            if (l->head >= l->capacity / 2) {
                std::copy(marks(l) + l->head, marks(l) + l->end, marks(l));
                l->end -= l->head;
                l->head = 0;
            } else if (l = resize(where, l->capacity * 2); l == nullptr) {
                return nullptr;
            }
        }
        if (l != front_) {
            push(l, m);
            return l;
        }
        // The front stays sorted; the newest of equals goes last.
        deadline_mark* const first = marks(l) + l->head;
        deadline_mark* const last = marks(l) + l->end;
        deadline_mark* at = last;
        if (m.key < last[-1].key) {
            at = std::upper_bound(first, last, m.key, [](std::uint64_t key, const auto& other) {
                return key < other.key;
            });
            std::copy_backward(at, last, last + 1);
        }
        l->mixed = l->mixed || m.key != first->key || at != last;
        *at = m;
        ++l->end;
        return l;
    }

    /// Moves a leaf to another capacity; null (and no change) if memory ran out.
    leaf* resize(part** where, std::uint32_t capacity) noexcept {
        leaf* const from = as_leaf(*where);
        leaf* const to = make_leaf(capacity);
        if (to == nullptr) {
            return nullptr;
        }
        std::copy(marks(from) + from->head, marks(from) + from->end, marks(to));
        to->end = from->end - from->head;
        to->dead = from->dead;
        to->sorted = from->sorted;
        to->mixed = from->mixed;
        *where = to;
        const bool was_front = from == front_;
        free_leaf(from);
        if (was_front) {
            front_ = to;
        }
        return to;
    }

    /// Drops the dead of a leaf that also has living marks; returns the leaf, which may have moved
    /// to give memory back.
    template <class Live>
    leaf* sweep(part** where, Live&& live) noexcept {
        leaf* const l = as_leaf(*where);
        deadline_mark* const first = marks(l);
        deadline_mark* const last = std::copy_if(
            first + l->head, first + l->end, first, [&](const auto& m) { return live(m.ref); });
        l->head = 0;
        l->end = static_cast<std::uint32_t>(last - first);
        l->dead = 0;
        leaf* smaller = nullptr;
        if (l->capacity > least_capacity && l->end <= l->capacity / 4) {
            smaller = resize(where, l->end);
        }
        return smaller == nullptr ? l : smaller;
    }

    /// The bits in which the keys of a leaf differ.
    [[nodiscard]] static std::uint64_t differences(leaf* l) noexcept {
        const std::uint64_t key = marks(l)[l->head].key;
        std::uint64_t all = 0;
        for (std::uint32_t i = l->head; i != l->end; ++i) {
            all |= key ^ marks(l)[i].key;
        }
        return all;
    }

    /// Replaces a leaf without dead marks, whose keys differ in the digit at `shift` and not above
    /// it, by a node over smaller leaves; false (and no change) if memory ran out.
    [[nodiscard]] bool split(part** where, std::int32_t shift) noexcept {
        leaf* const from = as_leaf(*where);
        deadline_mark* const first = marks(from) + from->head;
        deadline_mark* const last = marks(from) + from->end;
        node* const above = make_node(shift, first->key);
        if (above == nullptr) {
            return false;
        }
        std::array<std::uint32_t, fan_out> count{};
        for (const deadline_mark* m = first; m != last; ++m) {
            ++count[digit(m->key, shift)];
        }
        for (std::size_t at = 0; at < fan_out; ++at) {
            if (count[at] != 0) {
                leaf* const to = make_leaf(count[at]);
                if (to == nullptr) {
                    destroy(above);
                    return false;
                }
                adopt(above, at, to);
            }
        }
        for (const deadline_mark* m = first; m != last; ++m) {
            push(as_leaf(above->child[digit(m->key, shift)]), *m);
        }
        free_leaf(from);
        *where = above;
        return true;
    }

    /// Takes a leaf out of the tree, and the node above it if that is left with one child.
    void unlink(part** where, part** above) noexcept {
        free_leaf(as_leaf(*where));
        if (above == nullptr) {
            root_ = nullptr;
            return;
        }
        node* const n = as_node(*above);
        n->present &= ~(std::uint64_t{1} << (where - n->child.data()));
        if ((n->present & (n->present - 1)) == 0) {
            *above = *leftmost(n);
            nodes_.give(n, sizeof(node));
        }
    }

    /// Makes the leftmost leaf the front: small if memory allows, sorted, a living mark first.
    template <class Live>
    void settle(Live&& live) noexcept {
        if (root_ == nullptr) {
            return;
        }
        part** where = &root_;
        bool fetched = false;
        for (;;) {
            while (!is_leaf(*where)) {
                where = leftmost(as_node(*where));
            }
            leaf* l = as_leaf(*where);
            if (l->sorted) {
                break;
            }
            if (l->dead != 0 && l->end - l->head > front_limit) {
                l = sweep(where, live);
            }
            if (l->end - l->head <= front_limit) {
                break;
            }
            const std::uint64_t difference = differences(l);
            if (difference == 0) {
                l->mixed = false;
                l->sorted = true;
                break;
            }
            const std::uint32_t before = l->end - l->head;
            if (before <= look_ahead) {
                need_soon(l, before, live);
                fetched = true;
            }
            if (!split(where, shift_of(difference))) {
                break;
            }
        }
        front_ = as_leaf(*where);
        if (!front_->sorted) {
            sort(front_);
        }
        if (!fetched) {
            need_soon(front_, std::min(front_->end - front_->head, look_ahead), live);
        }
        skip_dead(front_, live);
    }

    /// Fetches what the marks stand for: it is all over the memory, and to wait for one after the
    /// other would be most of the cost of an expiry.
    template <class Live>
    [[gnu::always_inline]] static void
    need_soon(leaf* l, std::uint32_t count, Live&& live) noexcept {
        for (std::uint32_t i = l->head; i != l->head + count; ++i) {
            live.will_need(marks(l)[i].ref);
        }
    }

    template <class Live>
    static void skip_dead(leaf* l, Live&& live) noexcept {
        while (l->dead != 0 && !live(marks(l)[l->head].ref)) {
            ++l->head;
            --l->dead;
        }
    }

    /// Stable. Quadratic, which is best for what is small, and it is: only if there was no memory
    /// to split a leaf it can have up to `leaf_limit` marks, and then this takes milliseconds.
    static void sort(leaf* l) noexcept {
        deadline_mark* const first = marks(l) + l->head;
        deadline_mark* const last = marks(l) + l->end;
        for (deadline_mark* next = first + 1; next < last; ++next) {
            const deadline_mark m = *next;
            deadline_mark* at = next;
            for (; at != first && m.key < at[-1].key; --at) {
                *at = at[-1];
            }
            *at = m;
        }
        l->sorted = true;
    }

    part* root_{nullptr};
    leaf* front_{nullptr};
    pool nodes_;
    std::array<pool, pooled_sizes> leaves_{};
};

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

} // namespace detail

/// The one ordered index of every deadline of a queue: acknowledgement timeouts, delays, retry
/// backoffs, times to live.
///
/// Entries come out in the order (deadline, creation), exactly, whichever way they went in, and
/// `next()` is the exact earliest deadline that is still armed: a cancelled entry is never visible.
/// Deadlines may be any `time_point`, also in the past, and `now` may jump by any amount and even
/// go back; the index keeps no time of its own.
///
/// Two ways in:
///  - `arm`: any deadline; see `detail::deadline_tree` for the structure;
///  - `arm_in_lane`: equal timeouts expire in the order they were armed, so a lane is a plain
///    queue and costs a few nanoseconds. Using one is a promise that its deadlines do not decrease;
///    one that does is still correct, it is put into the general part.
///
/// Memory is O(armed entries): what is kept for reuse is at most as much as what is in use. The
/// constant has a worst case: memory comes in blocks of 32 entries of a lane or 64 of the general
/// part, and one survivor keeps its block. What never shrinks is a table of the blocks, with a byte
/// for each entry there was at the busiest moment.
///
/// Amortised costs come in pieces: the longest pause is to split or to sweep a leaf of 4,096
/// entries, tens of microseconds; with more entries for one and the same nanosecond in the general
/// part, to copy those as their number doubles, and to sweep them when half are cancelled.
///
/// `Item` is a small value, copied in and out. Not copyable; movable, and handles and lanes move
/// along. Not safe to use from two threads at once.
template <class Item>
class deadline_index {
    static_assert(
        std::is_trivially_copyable_v<Item> && std::is_default_constructible_v<Item>,
        "an Item is a small plain value, such as an id");

public:
    using item_type = Item;
    using handle = deadline_handle;
    using lane_id = deadline_lane;

    deadline_index() noexcept = default;
    deadline_index(const deadline_index&) = delete;
    deadline_index& operator=(const deadline_index&) = delete;
    ~deadline_index() = default;

    deadline_index(deadline_index&& other) noexcept { swap(other); }

    deadline_index& operator=(deadline_index&& other) noexcept {
        deadline_index{std::move(other)}.swap(*this);
        return *this;
    }

    /// Exchanges the contents; handles and lanes go with them. O(1).
    void swap(deadline_index& other) noexcept {
        tree_.swap(other.tree_);
        slots_.swap(other.slots_);
        blocks_.swap(other.blocks_);
        lanes_.swap(other.lanes_);
        heads_.swap(other.heads_);
        bracket_.swap(other.bracket_);
        std::swap(front_, other.front_);
        std::swap(runner_up_, other.runner_up_);
        std::swap(front_source_, other.front_source_);
        std::swap(closed_lane_, other.closed_lane_);
        std::swap(general_front_, other.general_front_);
        std::swap(created_, other.created_);
        std::swap(size_, other.size_);
    }

    /// Number of armed entries. O(1).
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// True if nothing is armed. O(1).
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

    /// The exact earliest deadline that is armed, `never` if there is none. O(1): one load.
    [[nodiscard]] time_point next() const noexcept { return front_; }

    /// True if the entry is armed: it was neither cancelled nor did it fire. O(1).
    [[nodiscard]] bool armed(handle h) const noexcept {
        return slots_.find(h.bits_) != nullptr || blocks_.live(h.bits_);
    }

    /// The deadline of an armed entry, nothing if it is not armed. O(1).
    [[nodiscard]] std::optional<time_point> deadline(handle h) const noexcept {
        if (const auto* const s = slots_.find(h.bits_)) {
            return s->deadline;
        }
        if (blocks_.live(h.bits_)) {
            return record_of(h).deadline;
        }
        return std::nullopt;
    }

    /// Adds an entry that fires when `now` reaches `deadline`, at once if it already did. An entry
    /// for `never` counts as armed but fires only if `now` is itself `never`.
    /// Constant, amortised: a walk of a few levels. Strong guarantee: throws `std::bad_alloc`.
    handle arm(time_point deadline, Item item) {
        const std::uint64_t ref = slots_.take();
        const bool arrived = tree_.insert({key_of(deadline), ref}, alive{&slots_});
        if (!arrived) [[unlikely]] {
            slots_.give(ref);
        } else {
            auto& s = slots_[ref];
            s.deadline = deadline;
            s.item = item;
            slots_.order(ref) = ++created_;
            ++size_;
        }
        refresh_general();
        if (!arrived) [[unlikely]] {
            throw std::bad_alloc{};
        }
        return handle{ref};
    }

    /// Like `arm`, for an entry whose deadline is not before those that are in the lane; if it is,
    /// it costs what `arm` costs and is as correct. O(1).
    /// Precondition: the lane is open (or default constructed: the general part).
    /// Strong guarantee: throws `std::bad_alloc`.
    handle arm_in_lane(lane_id to, time_point deadline, Item item) {
        if (to.source_ != 0) {
            lane& l = lanes_[to.source_];
            if (l.last != none) {
                block& b = blocks_[l.last];
                if (b.live != 0 && !b.full() && deadline >= l.latest) [[likely]] {
                    l.latest = deadline;
                    return write(l.last, b, deadline, item);
                }
            }
        }
        return arm_in_lane_slowly(to, deadline, item);
    }

    /// Moves an armed entry to another deadline; it counts as created now. Returns its new handle
    /// and the old one is void; returns no handle and does nothing if it was not armed.
    /// Complexity and guarantee as `arm` (with a lane: as `arm_in_lane`).
    handle rearm(handle h, time_point deadline, lane_id to = {}) {
        const auto* const s = slots_.find(h.bits_);
        if (s == nullptr && !blocks_.live(h.bits_)) {
            return {};
        }
        const Item item = s != nullptr ? s->item : record_of(h).item;
        const handle moved = arm_in_lane(to, deadline, item);
        cancel(h);
        return moved;
    }

    /// Removes an entry; false if it is not armed (fired, cancelled, or no handle at all).
    /// O(1) in a lane; otherwise a walk of a few levels, constant amortised. Never throws, and
    /// allocates at most to tidy up, which it can do without.
    bool cancel(handle h) noexcept {
        if (!blocks_.live(h.bits_)) {
            return cancel_slowly(h);
        }
        block& b = blocks_[blocks_.block_of(h.bits_)];
        const std::uint32_t bit = 1U << blocks_.offset(h.bits_);
        b.live &= ~bit;
        --size_;
        if (b.previous == none && (b.live & (bit - 1)) == 0) {
            lose_head(b);
        } else if (b.live == 0 && b.full()) {
            unlink(blocks_.block_of(h.bits_));
        }
        return true;
    }

    /// Takes out the first entry whose deadline is `now` or before; nothing if none is due.
    /// Constant, amortised; O(log lanes).
    [[nodiscard]] std::optional<Item> pop_due(time_point now) noexcept {
        if (front_ > now || size_ == 0) {
            return std::nullopt;
        }
        return take_front();
    }

    /// Takes out every entry whose deadline is `now` or before, in order, and calls
    /// `f(item, deadline)` for each; returns how many. `f` may arm and cancel (and even expire):
    /// what it arms and is already due fires in the same call and in its place in the order, what
    /// it cancels does not fire. An `f` that always arms what is already due never ends.
    /// If `f` throws, its entry is gone and all later ones are still armed.
    template <class F>
    std::size_t expire(time_point now, F&& f) {
        std::size_t fired = 0;
        while (front_ <= now && size_ != 0) {
            const time_point at = front_;
            const Item item = take_front();
            ++fired;
            f(item, at);
        }
        return fired;
    }

    /// Opens a lane: use one for each constant timeout. O(lanes), amortised O(1).
    /// Strong guarantee: throws `std::bad_alloc`.
    [[nodiscard]] lane_id open_lane() {
        if (closed_lane_ != 0) {
            const std::uint32_t source = closed_lane_;
            closed_lane_ = lanes_[source].next_closed;
            return lane_id{source};
        }
        if (lanes_.size() == heads_.size()) {
            widen_tournament();
        }
        lanes_.emplace_back(); // within its capacity
        return lane_id{static_cast<std::uint32_t>(lanes_.size() - 1)};
    }

    /// Gives a lane back for `open_lane` to hand out again. Its entries stay armed. O(1).
    /// Precondition: the lane is open, and not used afterwards.
    void close_lane(lane_id id) noexcept {
        lane& l = lanes_[id.source_];
        if (l.last != none && blocks_[l.last].live == 0) {
            unlink(l.last);
        }
        l.next_closed = closed_lane_;
        closed_lane_ = id.source_;
    }

    /// Disarms everything; no handle is armed afterwards, lanes stay open. Linear.
    void clear() noexcept {
        tree_.clear();
        slots_.clear();
        for (lane& l : lanes_) {
            while (l.last != none) {
                unlink(l.last);
            }
        }
        std::fill(heads_.begin(), heads_.end(), never);
        front_ = never;
        runner_up_ = never;
        general_front_ = 0;
        size_ = 0;
    }

private:
    using block = typename detail::deadline_blocks<Item>::block;
    using record = typename detail::deadline_blocks<Item>::record;
    static constexpr std::uint32_t none = detail::deadline_blocks<Item>::none;
    static constexpr std::uint64_t no_order = std::numeric_limits<std::uint64_t>::max();

    /// Blocks with armed entries, oldest first; only the last one may have none.
    struct lane {
        std::uint32_t first{none};
        std::uint32_t last{none};
        std::uint32_t next_closed{0};
        time_point latest{};
    };

    /// What the tree asks about the entries its marks refer to.
    struct alive {
        const detail::deadline_slots<Item>* slots;

        bool operator()(std::uint64_t ref) const noexcept { return slots->find(ref) != nullptr; }
        [[gnu::always_inline]] void will_need(std::uint64_t ref) const noexcept {
            slots->prefetch(ref);
        }
    };

    // Flipping the sign makes the unsigned order the signed one.
    static constexpr std::uint64_t sign = std::uint64_t{1} << 63;

    [[nodiscard]] static constexpr std::uint64_t key_of(time_point t) noexcept {
        return static_cast<std::uint64_t>(t.time_since_epoch().count()) ^ sign;
    }

    [[nodiscard]] static constexpr time_point deadline_of(std::uint64_t key) noexcept {
        return time_point{duration{static_cast<std::int64_t>(key ^ sign)}};
    }

    static constexpr detail::deadline_mark no_mark{key_of(never), 0};

    /// When the first entry of a source was created; only asked for if deadlines are equal.
    [[nodiscard]] std::uint64_t head_order(std::size_t source) const noexcept {
        if (source == 0) {
            return general_front_ == 0 ? no_order : slots_.order(general_front_);
        }
        if (source >= lanes_.size() || lanes_[source].first == none) {
            return no_order;
        }
        const block& b = blocks_[lanes_[source].first];
        return b.live == 0 ? no_order : b.front().order;
    }

    [[nodiscard]] const record& record_of(handle h) const noexcept {
        return blocks_[blocks_.block_of(h.bits_)].records[blocks_.offset(h.bits_)];
    }

    handle write(std::uint32_t id, block& b, time_point deadline, Item item) noexcept {
        const std::uint32_t at = b.used++;
        b.live |= 1U << at;
        record& r = b.records[at];
        r.deadline = deadline;
        r.order = ++created_;
        r.item = item;
        ++size_;
        return handle{blocks_.reference(id, b.generation, at)};
    }

    // What is called `slowly` is out of line so that the quick way needs no stack frame.

    /// Also when the lane is empty or has no room, or is not to be used at all.
    [[gnu::noinline]] handle arm_in_lane_slowly(lane_id to, time_point deadline, Item item) {
        if (to.source_ == 0) {
            return arm(deadline, item);
        }
        lane& l = lanes_[to.source_];
        const bool was_empty = l.last == none || (l.first == l.last && blocks_[l.last].live == 0);
        if (deadline < l.latest && !was_empty) {
            return arm(deadline, item);
        }
        if (l.last == none || blocks_[l.last].full()) {
            const std::uint32_t id = blocks_.take(to.source_);
            blocks_[id].previous = l.last;
            blocks_[id].next = none;
            (l.last == none ? l.first : blocks_[l.last].next) = id;
            l.last = id;
        }
        l.latest = deadline;
        const handle h = write(l.last, blocks_[l.last], deadline, item);
        if (was_empty) {
            set_head(to.source_, deadline);
        }
        return h;
    }

    /// Also when there is nothing to cancel.
    [[gnu::noinline]] bool cancel_slowly(handle h) noexcept {
        const auto* const s = slots_.find(h.bits_);
        if (s == nullptr) {
            return false;
        }
        const std::uint64_t key = key_of(s->deadline);
        slots_.give(h.bits_);
        --size_;
        tree_.died(key, alive{&slots_});
        refresh_general();
        return true;
    }

    Item take_front() noexcept {
        --size_;
        if (front_source_ == 0) {
            const std::uint64_t ref = tree_.front().ref;
            const Item item = slots_[ref].item;
            slots_.give(ref);
            tree_.pop_front(alive{&slots_});
            refresh_general();
            return item;
        }
        block& b = blocks_[lanes_[front_source_].first];
        const Item item = b.front().item;
        b.live &= b.live - 1;
        lose_head(b);
        return item;
    }

    /// Takes a block out of its lane, and disarms what is left in it.
    void unlink(std::uint32_t id) noexcept {
        const block& b = blocks_[id];
        lane& l = lanes_[b.source];
        (b.previous == none ? l.first : blocks_[b.previous].next) = b.next;
        (b.next == none ? l.last : blocks_[b.next].previous) = b.previous;
        blocks_.give(id);
    }

    /// Finds the next entry of a lane whose first entry, in its first block, has just gone.
    void lose_head(block& b) noexcept {
        if (b.live != 0 && b.source == front_source_) [[likely]] {
            const time_point deadline = b.front().deadline;
            if (deadline < runner_up_) [[likely]] {
                front_ = deadline; // still wins all its matches
                return;
            }
        }
        lose_head_slowly(b.source);
    }

    [[gnu::noinline]] void lose_head_slowly(std::uint32_t source) noexcept {
        const lane& l = lanes_[source];
        if (blocks_[l.first].live == 0 && blocks_[l.first].full()) {
            unlink(l.first);
        }
        const bool empty = l.first == none || blocks_[l.first].live == 0;
        set_head(source, empty ? never : blocks_[l.first].front().deadline);
    }

    /// Tells the tournament if the tree has got another front.
    void refresh_general() noexcept {
        const detail::deadline_mark first = tree_.empty() ? no_mark : tree_.front();
        if (first.ref != general_front_) {
            general_front_ = first.ref;
            set_head(0, deadline_of(first.key));
        }
    }

    /// Says what is the deadline of the first entry of a source (`never`: it has none) and has it
    /// play its matches again. O(log lanes).
    void set_head(std::uint32_t source, time_point deadline) noexcept {
        if (heads_.empty() || (source == front_source_ && deadline < runner_up_)) {
            front_ = deadline;
            return;
        }
        heads_[front_source_] = front_; // may have changed since it won
        heads_[source] = deadline;
        for (std::size_t at = (heads_.size() + source) / 2; at != 0; at /= 2) {
            play(at);
        }
        crown();
    }

    void play(std::size_t at) noexcept {
        const std::uint32_t a = bracket_[2 * at];
        const std::uint32_t b = bracket_[2 * at + 1];
        const bool second =
            heads_[b] < heads_[a] || (heads_[b] == heads_[a] && head_order(b) < head_order(a));
        bracket_[at] = second ? b : a;
    }

    void crown() noexcept {
        front_source_ = bracket_[1];
        front_ = heads_[front_source_];
        runner_up_ = never; // whoever is second has lost against the first
        for (std::size_t at = heads_.size() + front_source_; at != 1; at /= 2) {
            runner_up_ = std::min(runner_up_, heads_[bracket_[at ^ 1U]]);
        }
    }

    [[gnu::noinline]] void widen_tournament() {
        const std::size_t width = std::max<std::size_t>(2, heads_.size() * 2);
        std::vector<time_point> heads(width, never);
        std::vector<std::uint32_t> bracket(2 * width);
        lanes_.reserve(width);
        if (lanes_.empty()) {
            lanes_.emplace_back(); // stands for the general part
        }
        std::copy(heads_.begin(), heads_.end(), heads.begin());
        heads[front_source_] = front_;
        heads_.swap(heads);
        bracket_.swap(bracket);
        for (std::size_t i = 0; i != width; ++i) {
            bracket_[width + i] = static_cast<std::uint32_t>(i);
        }
        for (std::size_t i = width - 1; i != 0; --i) {
            play(i);
        }
        crown();
    }

    detail::deadline_tree tree_;
    detail::deadline_slots<Item> slots_;
    detail::deadline_blocks<Item> blocks_;
    std::vector<lane> lanes_; // by source: the first one stands for the general part
    // A tournament of the general part and the lanes: `bracket_[1]` is the source of the earliest
    // entry, `bracket_[2]` and `bracket_[3]` are who was in the final. Empty before the first lane.
    std::vector<time_point> heads_;
    std::vector<std::uint32_t> bracket_;
    time_point front_{never};     // the winner's; in `heads_` it is brought up to date when needed
    time_point runner_up_{never}; // no other source has an earlier entry
    std::uint32_t front_source_{0};
    std::uint32_t closed_lane_{0};
    std::uint64_t general_front_{0};
    std::uint64_t created_{0};
    std::size_t size_{0};
};

} // namespace railmq
