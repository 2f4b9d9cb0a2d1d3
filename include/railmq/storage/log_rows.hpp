// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/kept_at.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace railmq::storage {

/// Where the records of a partition are stored: in rows, each of records with offsets that follow
/// each other and lie in one record of the journal. What is in a row is there; there is nothing
/// else.
///
/// Bytes of a part of a row are in proportion: nobody has looked how large each record is.
///
/// Cost: about 100 bytes a row; logarithmic calls.
///
/// Distinct objects: safe. Shared objects: unsafe.
class log_rows {
public:
    struct row {
        std::uint64_t count = 0;
        kept_at at{};
    };

    [[nodiscard]] bool is_empty() const noexcept { return rows_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
    [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool contains(std::uint64_t offset) const noexcept {
        const auto it = holder_of(offset);
        return it != rows_.end() && offset - it->first < it->second.count;
    }

    /// Makes sure that so many calls of `put` and `remove` do not throw. Throws `std::bad_alloc`;
    /// then nothing has changed.
    void reserve(std::size_t calls) {
        spare_.reserve(2 * calls);
        while (spare_.size() < 2 * calls) {
            std::map<std::uint64_t, row> one;
            one.emplace(0, row{});
            spare_.push_back(one.extract(one.begin()));
        }
    }

    /// Records in a row are stored there now. Those that were known are replaced: of each part of a
    /// row `gone(at, rows)` is told what it took, and how many more rows there are by that: -1, 0,
    /// or 1 where it was in the middle.
    template <class Gone>
    void put(std::uint64_t first, std::uint64_t count, const kept_at& at, Gone&& gone) {
        if (count == 0) {
            return;
        }
        remove(first, count, gone);
        insert(first, {count, at});
        records_ += count;
        bytes_ += at.bytes();
    }
    /// Forgets so many offsets; `gone` as above.
    template <class Gone>
    void remove(std::uint64_t first, std::uint64_t count, Gone&& gone) {
        if (count == 0 || rows_.empty()) {
            return;
        }
        const std::uint64_t to = first + count;
        auto it = holder_of(first);
        if (it == rows_.end()) {
            it = rows_.begin();
        }
        while (it != rows_.end() && it->first < to) {
            const std::uint64_t begin = it->first;
            const row was = it->second;
            const std::uint64_t end = begin + was.count;
            if (end <= first) {
                ++it;
                continue;
            }
            const std::uint64_t left = first > begin ? first - begin : 0;
            const std::uint64_t right = end > to ? end - to : 0;
            const kept_at before = part(was, 0, left);
            const kept_at after = part(was, was.count - right, right);
            const std::uint64_t taken = was.count - left - right;
            records_ -= taken;
            bytes_ -= was.at.bytes() - before.bytes() - after.bytes();
            const kept_at took{was.at.location(), was.at.bytes() - before.bytes() - after.bytes()};
            gone(took, (left != 0 ? 1 : 0) + (right != 0 ? 1 : 0) - 1);
            if (left != 0) {
                it->second = {left, before};
                ++it;
                if (right != 0) {
                    insert(to, {right, after});
                    return;
                }
            } else if (right != 0) {
                auto node = rows_.extract(it);
                node.key() = to;
                node.mapped() = {right, after};
                rows_.insert(std::move(node));
                return;
            } else {
                it = rows_.erase(it);
            }
        }
    }

    /// Calls `f(first, row)` in the order of offsets for the rows that have records from `offset`
    /// on, until it returns false.
    template <class F>
    void for_each_from(std::uint64_t offset, F&& f) const {
        auto it = holder_of(offset);
        if (it == rows_.end() || it->first + it->second.count <= offset) {
            it = rows_.lower_bound(offset);
        }
        for (; it != rows_.end(); ++it) {
            if (!f(it->first, it->second)) {
                return;
            }
        }
    }
    void clear() noexcept {
        rows_.clear();
        records_ = 0;
        bytes_ = 0;
    }

private:
    using map_type = std::map<std::uint64_t, row>;

    /// The last row that begins at or before the offset; the end where there is none.
    [[nodiscard]] map_type::const_iterator holder_of(std::uint64_t offset) const noexcept {
        const auto it = rows_.upper_bound(offset);
        return it == rows_.begin() ? rows_.end() : std::prev(it);
    }
    [[nodiscard]] map_type::iterator holder_of(std::uint64_t offset) noexcept {
        const auto it = rows_.upper_bound(offset);
        return it == rows_.begin() ? rows_.end() : std::prev(it);
    }
    [[nodiscard]] static kept_at part(const row& r, std::uint64_t from, std::uint64_t count) {
        const auto upto = [&](std::uint64_t n) {
            return static_cast<std::uint32_t>(
                static_cast<double>(r.at.bytes()) * static_cast<double>(n) /
                static_cast<double>(r.count));
        };
        return {r.at.location(), upto(from + count) - upto(from)};
    }
    void insert(std::uint64_t first, row r) {
        if (spare_.empty()) {
            rows_.emplace(first, r);
            return;
        }
        auto node = std::move(spare_.back());
        spare_.pop_back();
        node.key() = first;
        node.mapped() = r;
        rows_.insert(std::move(node));
    }

    map_type rows_{};
    std::vector<map_type::node_type> spare_{};
    std::uint64_t records_ = 0;
    std::uint64_t bytes_ = 0;
};

} // namespace railmq::storage
