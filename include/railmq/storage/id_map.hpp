// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/container/deque.hpp>
#include <boost/container/options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace railmq::storage {

/// Values by ids that mostly come in a row and mostly leave in the same order: those in a row lie
/// in a row, and the few that stay behind, or never stood in it, are in a tree.
///
/// `Value` is default constructible to an empty one, for which `is_empty()` holds; none that is put
/// may be.
///
/// Cost: a value's size for each in the row, amortised constant time; logarithmic for the others.
///
/// Distinct objects: safe. Shared objects: unsafe.
template <class Value>
class id_map {
public:
    [[nodiscard]] std::size_t size() const noexcept { return in_row_ + others_.size(); }

    [[nodiscard]] Value* find(std::uint64_t id) noexcept {
        if (id - begin_ < row_.size()) {
            Value& v = row_[id - begin_];
            return v.is_empty() ? nullptr : &v;
        }
        const auto it = others_.find(id);
        return it == others_.end() ? nullptr : &it->second;
    }

    /// Puts a value in, in place of one that is there.
    void put(std::uint64_t id, Value value) {
        if (Value* known = find(id)) {
            *known = std::move(value);
            return;
        }
        if (id >= far || !make_place(id)) {
            others_.insert_or_assign(id, std::move(value));
            return;
        }
        row_[id - begin_] = std::move(value);
        ++in_row_;
        thin_out();
    }

    /// Puts `value(i)` in for `n` ids from that one on, `i` from 0.
    template <class Make>
    void put_row(std::uint64_t first, std::uint64_t n, Make&& value) {
        std::uint64_t i = 0;
        if (n != 0 && first == begin_ + row_.size() && !row_.empty() && first < far) {
            for (; i != n; ++i) {
                row_.push_back(value(i));
            }
            in_row_ += static_cast<std::size_t>(n);
            thin_out();
        }
        for (; i != n; ++i) {
            put(first + i, value(i));
        }
    }
    /// Whether the first `n` of those in a row have the ids from `first` on.
    [[nodiscard]] bool begins_with(std::uint64_t first, std::uint64_t n) const noexcept {
        return first == begin_ && n <= row_.size();
    }
    /// Takes those of `n` ids from that one on that there are: calls `f(id, value)` for each.
    template <class F>
    void take_row(std::uint64_t first, std::uint64_t n, F&& f) {
        if (begins_with(first, n)) {
            const auto end = row_.begin() + static_cast<std::ptrdiff_t>(n);
            std::uint64_t id = first;
            for (auto it = row_.begin(); it != end; ++it, ++id) {
                if (!it->is_empty()) {
                    --in_row_;
                    f(id, *it);
                }
            }
            row_.erase(row_.begin(), end);
            begin_ += n;
            drop_front();
            return;
        }
        for (std::uint64_t id = first; id != first + n; ++id) {
            const Value v = take(id);
            if (!v.is_empty()) {
                f(id, v);
            }
        }
    }

    /// Takes a value out; an empty one if there is none.
    Value take(std::uint64_t id) noexcept {
        if (id - begin_ < row_.size()) {
            Value out = std::exchange(row_[id - begin_], Value{});
            in_row_ -= out.is_empty() ? 0 : 1;
            drop_front();
            return out;
        }
        const auto it = others_.find(id);
        if (it == others_.end()) {
            return {};
        }
        Value out = std::move(it->second);
        others_.erase(it);
        return out;
    }

    /// Calls `f(id, value)` in the order of ids, from `id` on, until it returns false.
    template <class F>
    void for_each_from(std::uint64_t id, F&& f) {
        auto other = others_.lower_bound(id);
        std::uint64_t i = id > begin_ ? id - begin_ : 0;
        for (;;) {
            while (i < row_.size() && row_[i].is_empty()) {
                ++i;
            }
            const bool has_row = i < row_.size();
            const bool has_other = other != others_.end();
            if (!has_row && !has_other) {
                return;
            }
            if (has_row && (!has_other || begin_ + i < other->first)) {
                if (!f(begin_ + i, row_[i])) {
                    return;
                }
                ++i;
            } else {
                if (!f(other->first, other->second)) {
                    return;
                }
                ++other;
            }
        }
    }

    void clear() noexcept {
        row_.clear();
        others_.clear();
        in_row_ = 0;
    }

private:
    /// Ids from there on are in no row.
    static constexpr std::uint64_t far = std::uint64_t{1} << 62;
    /// At most so many may be missing in between; fewer where there are few at all, so that a value
    /// never takes many times its size.
    static constexpr std::uint64_t max_gap = 1024;
    [[nodiscard]] std::uint64_t gap() const noexcept {
        return std::min<std::uint64_t>(max_gap, 16 + 2 * in_row_);
    }

    /// Makes the row have a place for that id. False: it must go to the others.
    ///
    /// But for those that are in no row, the others come before all of the row, always: a place in
    /// the row that is empty means that there is none of that id.
    [[nodiscard]] bool make_place(std::uint64_t id) {
        if (!row_.empty() && id >= begin_) {
            if (id - begin_ > row_.size() + gap()) {
                move_out(row_.size());
            }
        } else {
            if (!row_.empty() && begin_ - id > gap()) {
                return false;
            }
            const auto above = others_.lower_bound(id);
            if (above != others_.end() && above->first < far) {
                return false;
            }
            if (!row_.empty()) { // as where some of the first were taken to be put again
                for (; begin_ != id; --begin_) {
                    row_.emplace_front();
                }
                return true;
            }
        }
        if (row_.empty()) {
            begin_ = id;
        }
        while (row_.size() <= id - begin_) {
            row_.emplace_back();
        }
        return true;
    }
    void drop_front() noexcept {
        while (!row_.empty() && row_.front().is_empty()) {
            row_.pop_front();
            ++begin_;
        }
    }
    /// Moves the first `n` of the row to the others.
    void move_out(std::size_t n) {
        for (; n != 0; --n) {
            if (!row_.front().is_empty()) {
                others_.insert_or_assign(begin_, std::move(row_.front()));
                --in_row_;
            }
            row_.pop_front();
            ++begin_;
        }
    }
    /// A few that stay behind must not keep a long row.
    void thin_out() {
        while (row_.size() > 4 * in_row_ + 64) {
            move_out(std::min<std::size_t>(row_.size() / 2, max_gap));
        }
    }

    // The standard one has blocks of half a kilobyte: one for ten values.
    using row_type = boost::container::
        deque<Value, void, boost::container::deque_options_t<boost::container::block_size<128U>>>;
    row_type row_{};
    std::uint64_t begin_ = 0; ///< The id of the row's first value.
    std::size_t in_row_ = 0;
    std::map<std::uint64_t, Value> others_{};
};

} // namespace railmq::storage
