// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>

namespace railmq::core {

/// When the leases of first hand-outs end. They are made in the order of the line and with one
/// timeout, so a short list says it of all: an entry holds for the positions from its own up to
/// the next entry's.
///
/// A lease is covered before it is made: its consumer asks `covers`, adds an entry if need be, and
/// only then claims a position, which therefore lies at that entry or behind it. Consumers that
/// share a moment share an entry; one whose reading of the clock is older gets the newer time, so
/// no lease ends early.
///
/// Thread safety: `covers` may be called by any thread, the rest with the queue's lock held.
template <class Sync>
class lease_times {
public:
    /// Whether whatever is handed out from now on is leased until `deadline` or longer.
    [[nodiscard]] bool covers(time_point deadline) const noexcept {
        return deadline.time_since_epoch().count() <= last_.load(std::memory_order_acquire);
    }

    /// Leases of positions from `next` on, none of which is claimed yet but by those who are
    /// content with less, end at `deadline`.
    void add(std::uint64_t next, time_point deadline) {
        if (!entries_.empty() && entries_.back().from == next) {
            entries_.back().deadline = deadline; // nothing has been handed out since
        } else {
            entries_.push_back({next, deadline});
        }
        last_.store(deadline.time_since_epoch().count(), std::memory_order_release);
    }

    /// When the lease of that position ends. For one whose entry is forgotten, some later time.
    [[nodiscard]] time_point at(std::uint64_t position) const noexcept {
        const auto behind = std::upper_bound(
            entries_.begin(), entries_.end(), position, [](std::uint64_t n, const entry& e) {
                return n < e.from;
            });
        if (behind != entries_.begin()) {
            return std::prev(behind)->deadline;
        }
        return behind != entries_.end() ? behind->deadline : never;
    }

    /// No position before this one is leased for the first time any more.
    void forget_before(std::uint64_t position) noexcept {
        while (entries_.size() > 1 && entries_[1].from <= position) {
            entries_.pop_front();
        }
    }

    /// Forgets entries that no lease refers to, in between as well. `next_lease(n)` is the first
    /// position at or behind `n` that is leased for the first time, or is about to be.
    template <class NextLease>
    void thin_out(NextLease&& next_lease) {
        std::size_t kept = 0;
        std::uint64_t lease = 0;
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            if (lease < entries_[i].from) {
                lease = next_lease(entries_[i].from);
            }
            if (i + 1 == entries_.size() || lease < entries_[i + 1].from) {
                entries_[kept++] = entries_[i];
            }
        }
        entries_.resize(kept);
    }

    [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

private:
    struct entry {
        std::uint64_t from = 0;
        time_point deadline{};
    };

    typename Sync::template atomic<std::int64_t> last_{std::numeric_limits<std::int64_t>::min()};
    std::deque<entry> entries_{};
};

} // namespace railmq::core
