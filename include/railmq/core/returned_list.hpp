// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/ready_bitmap.hpp>
#include <railmq/model/queue_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace railmq::core {

/// Ids of messages that are ready out of line, in the order in which they go: first those that were
/// put to the front, the latest of them first; then by id, where one that was put to the back comes
/// behind every id that there was then.
///
/// Not safe to use from two threads at once.
class returned_list {
public:
    /// Adds an id that is not in the list. Ids from `end` on come behind one that is put to the
    /// back. Strong guarantee: throws `std::bad_alloc`.
    void add(std::uint64_t id, requeue_position where, std::uint64_t end) {
        switch (where) {
        case requeue_position::original: by_id_.insert(id); break;
        case requeue_position::front: front_.push_back(id); break;
        case requeue_position::back: back_.push_back({end, id}); break;
        }
    }

    /// An id has left that was in the list. `is_there(id)` tells of each whether it is still meant.
    template <class IsThere>
    void withdraw(std::uint64_t id, IsThere&& is_there) noexcept {
        if (by_id_.erase(id)) {
            return;
        }
        // In the other two it is passed over when its turn comes, unless they are mostly of such.
        if (++gone_ > 32 && gone_ > (front_.size() + back_.size()) / 2) {
            std::erase_if(front_, [&](std::uint64_t n) { return !is_there(n); });
            std::erase_if(back_, [&](const late_entry& e) { return !is_there(e.id); });
            gone_ = 0;
        }
    }

    /// Removes the first id that is still meant and comes before position `line`; or none.
    template <class IsThere>
    [[nodiscard]] std::optional<std::uint64_t>
    take(std::uint64_t line, IsThere&& is_there) noexcept {
        for (;;) {
            std::uint64_t id = 0;
            if (!front_.empty()) {
                id = front_.back();
                front_.pop_back();
            } else if (!by_id_.empty() && (!is_late_first() || back_.front().at > line)) {
                id = by_id_.first();
                by_id_.erase(id);
            } else if (!back_.empty() && back_.front().at <= line) {
                id = back_.front().id;
                back_.pop_front();
            } else {
                return std::nullopt;
            }
            if (is_there(id)) {
                return id;
            }
            gone_ -= gone_ != 0 ? 1 : 0;
        }
    }

    /// Whether nothing is in it, not even what is not meant any more.
    [[nodiscard]] bool empty() const noexcept {
        return front_.empty() && by_id_.empty() && back_.empty();
    }
    /// No id is meant any more.
    void forget_gone() noexcept {
        front_.clear();
        back_.clear();
        gone_ = 0;
    }

    /// Where the first one stands: everything with a higher number comes behind it. Precondition:
    /// not empty.
    [[nodiscard]] std::uint64_t first_position() const noexcept {
        if (!front_.empty()) {
            return 0;
        }
        return is_late_first() || by_id_.empty() ? back_.front().at : by_id_.first();
    }

    /// Calls `f(id)` for those that come before every position, in order, until it returns false;
    /// then for those put to the back, each when `before(position)` has been called, which goes
    /// through what comes before that. Some may not be meant any more.
    template <class F, class Before>
    void for_each(F&& f, Before&& before) const {
        for (auto it = front_.rbegin(); it != front_.rend(); ++it) {
            if (!f(*it)) return;
        }
        bool more = true;
        auto late = back_.begin();
        std::optional<std::uint64_t> id;
        if (!by_id_.empty()) {
            id = by_id_.first();
        }
        for (; more && id; id = by_id_.next_after(*id)) {
            for (; more && late != back_.end() && late->at <= *id; ++late) {
                more = f(late->id);
            }
            more = more && f(*id);
        }
        for (; more && late != back_.end(); ++late) {
            more = before(late->at) && f(late->id);
        }
    }

    /// Calls `f(id)` for those of which one may be the oldest: in the order of ids only the first.
    template <class F>
    void for_each_old(F&& f) const {
        std::for_each(front_.begin(), front_.end(), f);
        if (!by_id_.empty()) {
            f(by_id_.first());
        }
        std::for_each(back_.begin(), back_.end(), [&](const late_entry& e) { f(e.id); });
    }

private:
    struct late_entry {
        std::uint64_t at; ///< Comes behind every position below this one.
        std::uint64_t id;
    };

    [[nodiscard]] bool is_late_first() const noexcept {
        return !back_.empty() && !by_id_.empty() && back_.front().at <= by_id_.first();
    }

    std::vector<std::uint64_t> front_{};
    ready_bitmap by_id_{};
    std::deque<late_entry> back_{};
    std::size_t gone_ = 0; ///< Of the front and the back, those that are not meant any more.
};

} // namespace railmq::core
