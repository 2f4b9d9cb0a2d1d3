// SPDX-License-Identifier: BSL-1.0
#pragma once

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

} // namespace railmq::detail
