// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/deadline_storage.hpp>
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
/// Amortised costs come in pieces: to split or to sweep a leaf of 4,096 entries takes some tens of
/// microseconds, hundreds if the memory is cold or new; the table of blocks is copied as it
/// doubles; and so are entries of the general part for one and the same nanosecond, as their number
/// does.
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
