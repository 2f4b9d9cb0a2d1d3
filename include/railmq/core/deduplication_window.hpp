// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/memory_budget.hpp>
#include <railmq/model/time.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace railmq::core {

/// Of which deduplication ids a message was accepted within the last `length`, and which message
/// that was. An id is forgotten so long after it was added, whatever has become of the message and
/// however often it is asked for. Ids are added in the order of time, so the oldest are first in a
/// queue of them, and forgetting costs a constant for each.
///
/// What the ids take is charged to the broker's memory.
///
/// Not safe to use from two threads at once.
template <class Sync>
class deduplication_window {
public:
    struct entry {
        std::string key;      ///< Empty: it was taken back.
        std::uint64_t id = 0; ///< Of the message.
        time_point at{};      ///< When it was accepted.
    };

    deduplication_window(duration length, memory_budget<Sync>& budget) noexcept
        : length_{length}
        , budget_{budget} {}
    deduplication_window(const deduplication_window&) = delete;
    deduplication_window& operator=(const deduplication_window&) = delete;
    ~deduplication_window() { budget_.release(charged_); }

    /// How many ids are known. O(1).
    [[nodiscard]] std::size_t size() const noexcept { return index_.size(); }

    /// Null: no message with that id was accepted, or that is forgotten.
    [[nodiscard]] const entry* find(std::string_view key) const noexcept {
        const auto it = index_.find(key);
        return it == index_.end() ? nullptr : it->second;
    }

    /// Remembers an id that is not known, beyond the memory limit only with `force`. False: the
    /// memory limit. Strong guarantee: throws `std::bad_alloc`.
    [[nodiscard]] bool add(std::string key, std::uint64_t id, time_point at, bool force) {
        const std::size_t bytes = bytes_of(key);
        entries_.push_back({std::move(key), id, at});
        try {
            index_.emplace(entries_.back().key, &entries_.back());
        } catch (...) {
            entries_.pop_back();
            throw;
        }
        if (!budget_.try_charge(bytes)) {
            if (!force) {
                index_.erase(entries_.back().key);
                entries_.pop_back();
                return false;
            }
            budget_.charge(bytes);
        }
        charged_ += bytes;
        return true;
    }
    /// The one that was added last. Precondition: there is one, and it was not taken back.
    [[nodiscard]] entry& last() noexcept { return entries_.back(); }
    void take_back_last() noexcept {
        end(entries_.back());
        entries_.pop_back();
    }
    /// The message was not accepted after all. Looks at those that were added since.
    void take_back(std::uint64_t id) noexcept {
        for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
            if (it->id == id && !it->key.empty()) {
                end(*it);
                return;
            }
        }
    }

    /// Forgets what is as old as the window is long.
    void forget_old(time_point now) noexcept {
        while (!entries_.empty() &&
               (entries_.front().key.empty() || end_of(entries_.front()) <= now)) {
            if (!entries_.front().key.empty()) {
                end(entries_.front());
            }
            entries_.pop_front();
        }
    }
    /// When there is something to forget next, or `never`.
    [[nodiscard]] time_point next_end() const noexcept {
        return entries_.empty() ? never : end_of(entries_.front());
    }

    /// Calls `f(entry)` for each, the oldest first.
    template <class F>
    void for_each(F&& f) const {
        for (const entry& e : entries_) {
            if (!e.key.empty()) {
                f(e);
            }
        }
    }

private:
    /// With its place in the index, which is half empty at worst.
    [[nodiscard]] static std::size_t bytes_of(const std::string& key) noexcept {
        return sizeof(entry) + key.size() + 2 * sizeof(std::pair<std::string_view, entry*>);
    }
    [[nodiscard]] time_point end_of(const entry& e) const noexcept {
        return saturating_add(e.at, length_);
    }
    void end(entry& e) noexcept {
        index_.erase(e.key);
        const std::size_t bytes = bytes_of(e.key);
        charged_ -= bytes;
        budget_.release(bytes);
        e.key = {};
    }

    duration length_;
    memory_budget<Sync>& budget_;
    std::deque<entry> entries_{};
    boost::unordered_flat_map<std::string_view, entry*> index_{}; ///< Into `entries_`.
    std::size_t charged_ = 0;
};

} // namespace railmq::core
