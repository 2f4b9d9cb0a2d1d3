// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

namespace railmq::storage {

/// Values by ids that mostly come in a row, where neighbours mostly have equal values, and that
/// leave in any order: what is stored by one record differs in nothing but the id. Each block of 64
/// ids has a bit for each that is there, and a value for each row of equals.
///
/// Cost: a fraction of a byte a row's id, where many are equal; a value's size for each, where none
/// are. Constant time for ids that lie near those of the call before, logarithmic in the number of
/// blocks for others; many ids in a row are one operation on each of their blocks.
///
/// Distinct objects: safe. Shared objects: unsafe.
template <class Value>
requires std::copyable<Value> && std::default_initializable<Value> &&
    std::equality_comparable<Value>
class id_map {
public:
    id_map() = default;
    id_map(id_map&& other) noexcept { *this = std::move(other); }
    id_map& operator=(id_map&& other) noexcept {
        blocks_ = std::exchange(other.blocks_, {});
        size_ = std::exchange(other.size_, 0);
        last_ = other.last_ = {};
        return *this;
    }
    id_map(const id_map&) = delete;
    id_map& operator=(const id_map&) = delete;
    ~id_map() = default;

    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// The value of that id, or null. Valid until something is put or taken.
    [[nodiscard]] const Value* find(std::uint64_t id) noexcept {
        const block* b = block_of(id / width);
        return b != nullptr && b->has(id % width) ? &b->value_of(id % width) : nullptr;
    }

    /// Puts a value in, in place of one that is there.
    void put(std::uint64_t id, Value value) { put_row(id, 1, value); }

    /// The same value for `n` ids from that one on.
    void put_row(std::uint64_t first, std::uint64_t n, const Value& value) {
        while (n != 0) {
            const auto from = static_cast<unsigned>(first % width);
            const auto to = static_cast<unsigned>(std::min<std::uint64_t>(from + n, width));
            block& b = make_block(first / width);
            const auto before = static_cast<std::size_t>(std::popcount(b.there));
            b.assign(from, to, value);
            size_ += static_cast<std::size_t>(std::popcount(b.there)) - before;
            first += to - from;
            n -= to - from;
        }
    }

    /// Takes a value out; a default one if there is none.
    Value take(std::uint64_t id) {
        Value out{};
        take_row(id, 1, [&](std::uint64_t, std::uint64_t, const Value& v) { out = v; });
        return out;
    }

    /// Takes out what there is of `n` ids from that one on: calls `f(first, count, value)` for
    /// those in a row that have one value.
    template <class F>
    void take_row(std::uint64_t first, std::uint64_t n, F&& f) {
        each_block(first, n, [&](auto at, unsigned from, unsigned to) {
            block& b = at->second;
            b.each_row(mask(from, to), [&](unsigned begin, unsigned end, const Value& v) {
                f(at->first * width + begin, std::uint64_t{end - begin}, v);
            });
            const std::uint64_t taken = b.there & mask(from, to);
            b.there &= ~taken;
            size_ -= static_cast<std::size_t>(std::popcount(taken));
            if (b.there != 0) {
                return std::next(at);
            }
            last_ = {};
            return blocks_.erase(at);
        });
    }

    /// Calls `f(first, value)` for the values of `n` ids from that one on, to change them: once for
    /// those in a row that have one value, the first of which is `first`.
    template <class F>
    void update(std::uint64_t first, std::uint64_t n, F&& f) {
        each_block(first, n, [&](auto at, unsigned from, unsigned to) {
            at->second.update(
                from, to, [&](unsigned begin, Value& v) { f(at->first * width + begin, v); });
            return std::next(at);
        });
    }

    /// Calls `f(id, value)` in the order of ids, from `id` on, until it returns false.
    template <class F>
    void for_each_from(std::uint64_t id, F&& f) const {
        std::uint64_t wanted = mask(static_cast<unsigned>(id % width), width);
        for (auto at = blocks_.lower_bound(id / width); at != blocks_.end(); ++at) {
            if (at->first != id / width) {
                wanted = mask(0, width);
            }
            for (std::uint64_t left = at->second.there & wanted; left != 0; left &= left - 1) {
                const auto i = static_cast<unsigned>(std::countr_zero(left));
                if (!f(at->first * width + i, at->second.value_of(i))) {
                    return;
                }
            }
        }
    }

    void clear() noexcept {
        blocks_.clear();
        size_ = 0;
        last_ = {};
    }

private:
    static constexpr unsigned width = 64;

    /// The bits from `from` on and before `to`.
    [[nodiscard]] static constexpr std::uint64_t mask(unsigned from, unsigned to) noexcept {
        return from == to ? 0 : (~std::uint64_t{0} >> (width - (to - from))) << from;
    }

    /// The values of 64 ids in a row.
    struct block {
        struct piece {
            unsigned char from; ///< It goes on to where the next one begins.
            Value value;
        };
        std::uint64_t there = 0;
        /// In order, the first from 0 on; none without a value. Those of ids that are not there
        /// mean nothing.
        boost::container::small_vector<piece, 2> pieces{};

        [[nodiscard]] bool has(std::uint64_t i) const noexcept { return ((there >> i) & 1) != 0; }
        /// The piece that `i` is in.
        [[nodiscard]] std::size_t piece_of(unsigned i) const noexcept {
            const auto behind =
                std::upper_bound(pieces.begin(), pieces.end(), i, [](unsigned n, const piece& p) {
                    return n < p.from;
                });
            return static_cast<std::size_t>(behind - pieces.begin()) - 1;
        }
        [[nodiscard]] const Value& value_of(std::uint64_t i) const noexcept {
            return pieces[piece_of(static_cast<unsigned>(i))].value;
        }
        [[nodiscard]] unsigned end_of(std::size_t p) const noexcept {
            return p + 1 == pieces.size() ? width : pieces[p + 1].from;
        }
        /// Makes a piece begin at `i`, and returns which. Without a value there, its end.
        std::size_t split(unsigned i) {
            if (i == width || (there >> i) == 0) {
                return pieces.size(); // what comes behind is not there
            }
            const std::size_t p = piece_of(i);
            if (pieces[p].from == i) {
                return p;
            }
            const piece second{static_cast<unsigned char>(i), pieces[p].value};
            pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(p + 1), second);
            return p + 1;
        }
        void assign(unsigned from, unsigned to, const Value& value) {
            if (there == 0) {
                pieces.clear();
                pieces.push_back({0, value});
                there = mask(from, to);
                return;
            }
            if ((there >> from) == 0) { // behind all that are there
                while (pieces.back().from >= from) {
                    pieces.pop_back();
                }
                if (!(pieces.back().value == value)) {
                    pieces.push_back({static_cast<unsigned char>(from), value});
                }
                there |= mask(from, to);
                return;
            }
            const std::size_t begin = split(from);
            const std::size_t end = split(to);
            const auto at = [&](std::size_t n) {
                return pieces.begin() + static_cast<std::ptrdiff_t>(n);
            };
            pieces[begin].value = value;
            pieces.erase(at(begin + 1), at(end));
            if (begin != 0 && pieces[begin - 1].value == value) {
                pieces.erase(at(begin));
            }
            there |= mask(from, to);
        }
        /// Calls `f(begin, end, value)` for rows of those of `wanted` that are there.
        template <class F>
        void each_row(std::uint64_t wanted, F&& f) const {
            std::uint64_t left = there & wanted;
            while (left != 0) {
                const auto begin = static_cast<unsigned>(std::countr_zero(left));
                const std::size_t p = piece_of(begin);
                const unsigned row = begin + static_cast<unsigned>(std::countr_one(left >> begin));
                const unsigned end = std::min(row, end_of(p));
                f(begin, end, pieces[p].value);
                left &= ~mask(begin, end);
            }
        }
        template <class F>
        void update(unsigned from, unsigned to, F&& f) {
            if ((there & mask(from, to)) == 0) {
                return;
            }
            const std::size_t begin = split(from);
            const std::size_t end = split(to);
            for (std::size_t p = begin; p != end; ++p) {
                if (const std::uint64_t in = there & mask(pieces[p].from, end_of(p)); in != 0) {
                    f(static_cast<unsigned>(std::countr_zero(in)), pieces[p].value);
                }
            }
        }
    };
    using blocks = std::map<std::uint64_t, block>;

    [[nodiscard]] block* block_of(std::uint64_t number) noexcept {
        if (last_.at != nullptr && last_.number == number) {
            return last_.at;
        }
        const auto at = blocks_.find(number);
        if (at == blocks_.end()) {
            return nullptr;
        }
        last_ = {number, &at->second};
        return last_.at;
    }
    [[nodiscard]] block& make_block(std::uint64_t number) {
        if (block* b = block_of(number)) {
            return *b;
        }
        const bool is_last = blocks_.empty() || std::prev(blocks_.end())->first < number;
        const auto at = is_last ? blocks_.try_emplace(blocks_.end(), number)
                                : blocks_.try_emplace(number).first;
        last_ = {number, &at->second};
        return at->second;
    }
    /// Calls `f(block, from, to)` for the blocks that have some of `n` ids from `first` on, with
    /// which of theirs that are; it returns the next block.
    template <class F>
    void each_block(std::uint64_t first, std::uint64_t n, F&& f) {
        if (n == 0) {
            return;
        }
        const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - first;
        const std::uint64_t last = first + std::min(n - 1, most);
        auto at = !blocks_.empty() && blocks_.begin()->first >= first / width
                      ? blocks_.begin()
                      : blocks_.lower_bound(first / width);
        while (at != blocks_.end() && at->first <= last / width) {
            const bool is_first = at->first == first / width;
            const bool is_last = at->first == last / width;
            at =
                f(at,
                  is_first ? static_cast<unsigned>(first % width) : 0,
                  is_last ? static_cast<unsigned>(last % width) + 1 : width);
        }
    }

    struct memo {
        std::uint64_t number = 0;
        block* at = nullptr;
    };
    blocks blocks_{};
    std::size_t size_ = 0;
    memo last_{}; ///< The block that was looked up last: the next call is often about it too.
};

} // namespace railmq::storage
