// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>

#include <boost/container/small_vector.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace railmq::core {

/// Which records of one partition were handed out and are not acknowledged yet, so that what is
/// committed never skips one of them, whatever order they are acknowledged in: `committable()` is
/// the lowest that is not.
///
/// Offsets are handed out in rising order, with gaps where compaction took records away. Inside
/// there is one bit for each record between the lowest that is unacknowledged and the last that
/// was handed out, in a ring, and one entry for each gap in between. While acknowledgements keep
/// within 256 records of what is handed out, without gaps, nothing is allocated; otherwise the
/// ring grows to the largest distance there was.
///
/// An acknowledgement that was meant for an earlier assignment, or for before a seek, must not
/// count: the same offset may be in work again. So each `reset` begins an epoch, and a record is
/// acknowledged with the epoch in which it was handed out.
///
/// Copyable. Not safe to use from two threads at once.
class ack_tracker {
public:
    using offset_type = std::uint64_t;
    using epoch_type = std::uint64_t;

    /// Begins at that offset: the next one to be handed out, and to be committed. `first` is the
    /// first epoch; who makes a tracker for each assignment gives the generation.
    explicit ack_tracker(offset_type position = 0, epoch_type first = 1)
        : position_{position}
        , epoch_{first} {}

    /// Forgets everything and goes on at that offset, in an epoch of its own. O(ring).
    void reset(offset_type position) noexcept {
        std::fill(words_.begin(), words_.end(), 0);
        forget_runs();
        floor_ = 0;
        next_ = 0;
        unacked_ = 0;
        position_ = position;
        ++epoch_;
    }

    /// What was handed out before the last `reset` has another one.
    [[nodiscard]] epoch_type epoch() const noexcept { return epoch_; }

    /// The offset after the last that was handed out or skipped.
    [[nodiscard]] offset_type position() const noexcept { return position_; }

    /// How many were handed out and are not acknowledged. O(1).
    [[nodiscard]] std::size_t unacked() const noexcept { return unacked_; }

    /// The lowest offset that was handed out and is not acknowledged; `position()` if there is
    /// none. O(1).
    [[nodiscard]] offset_type committable() const noexcept {
        return floor_ == next_ ? position_ : offset_of(floor_);
    }

    /// That record is handed out. Precondition: `offset >= position()`.
    /// O(1), amortised. Strong guarantee: throws `std::bad_alloc`.
    void hand_out(offset_type offset) {
        RAILMQ_ASSERT(offset >= position_);
        if (next_ - floor_ == words_.size() * 64) {
            grow();
        }
        if (first_run_ == runs_.size() || offset != position_ || position_is_after_gap_) {
            runs_.push_back({offset, next_});
            position_is_after_gap_ = false;
        }
        set(next_);
        ++next_;
        ++unacked_;
        position_ = offset + 1;
    }

    /// Nothing before that offset will be handed out any more: there are no records, or they are
    /// not for this consumer. Has no effect on a position that is further. O(1).
    void skip_to(offset_type offset) noexcept {
        if (offset > position_) {
            position_ = offset;
            position_is_after_gap_ = true;
        }
    }

    /// That record is done with; false, and nothing changes, if it is not unacknowledged in this
    /// epoch. O(1) if it is the lowest or if there are no gaps, else O(log gaps); what it may set
    /// free costs O(1) for each record, amortised. Allocates nothing.
    bool ack(epoch_type epoch, offset_type offset) noexcept {
        const std::uint64_t place = epoch == epoch_ ? place_of(offset) : none;
        if (place == none || !is_set(place)) {
            return false;
        }
        words_[word_of(place)] &= ~bit_of(place);
        --unacked_;
        if (place == floor_) {
            raise_floor();
        }
        return true;
    }

    /// Whether that record was handed out in this epoch and is not acknowledged. Costs as `ack`.
    [[nodiscard]] bool is_unacked(offset_type offset) const noexcept {
        const std::uint64_t place = place_of(offset);
        return place != none && is_set(place);
    }

    /// Memory that the ring takes, in bytes.
    [[nodiscard]] std::size_t ring_bytes() const noexcept { return words_.size() * 8; }

private:
    static constexpr std::uint64_t none = ~std::uint64_t{0};

    /// Records without a gap: from that offset, and from that place in the order of handing out,
    /// up to the next run's.
    struct run {
        offset_type offset;
        std::uint64_t place;
    };

    [[nodiscard]] std::size_t word_of(std::uint64_t place) const noexcept {
        return static_cast<std::size_t>(place / 64) & (words_.size() - 1);
    }
    [[nodiscard]] static std::uint64_t bit_of(std::uint64_t place) noexcept {
        return std::uint64_t{1} << (place % 64);
    }
    [[nodiscard]] bool is_set(std::uint64_t place) const noexcept {
        return (words_[word_of(place)] & bit_of(place)) != 0;
    }
    void set(std::uint64_t place) noexcept { words_[word_of(place)] |= bit_of(place); }

    [[nodiscard]] offset_type offset_of(std::uint64_t place) const noexcept {
        // The first run is the one of the floor.
        const run& r = runs_[first_run_];
        return r.offset + (place - r.place);
    }

    /// None if it is below the floor, in a gap, or not handed out.
    [[nodiscard]] std::uint64_t place_of(offset_type offset) const noexcept {
        if (floor_ == next_ || offset < runs_[first_run_].offset || offset >= position_) {
            return none;
        }
        std::size_t behind = first_run_ + 1;
        if (behind != runs_.size() && offset >= runs_[behind].offset) {
            const auto at = std::upper_bound(
                runs_.begin() + static_cast<std::ptrdiff_t>(behind),
                runs_.end(),
                offset,
                [](offset_type o, const run& r) { return o < r.offset; });
            behind = static_cast<std::size_t>(at - runs_.begin());
        }
        const run& r = runs_[behind - 1];
        const std::uint64_t place = r.place + (offset - r.offset);
        const std::uint64_t end = behind == runs_.size() ? next_ : runs_[behind].place;
        return place >= floor_ && place < end ? place : none;
    }

    void raise_floor() noexcept {
        if (unacked_ == 0) {
            floor_ = next_;
            forget_runs();
            return;
        }
        std::uint64_t word = words_[word_of(floor_)] & (~std::uint64_t{0} << (floor_ % 64));
        while (word == 0) {
            floor_ = (floor_ / 64 + 1) * 64;
            word = words_[word_of(floor_)];
        }
        floor_ = floor_ / 64 * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
        while (first_run_ + 1 < runs_.size() && runs_[first_run_ + 1].place <= floor_) {
            ++first_run_;
        }
        if (first_run_ > runs_.size() / 2) { // what was passed is dropped in bulk
            runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(first_run_));
            first_run_ = 0;
        }
    }

    void forget_runs() noexcept {
        runs_.clear();
        first_run_ = 0;
    }

    /// Doubles the ring; every bit keeps its place, which is in another word now.
    void grow() {
        boost::container::small_vector<std::uint64_t, 4> wider(words_.size() * 2, 0);
        const std::size_t mask = wider.size() - 1;
        for (std::uint64_t place = floor_; place != next_;) {
            const std::uint64_t end = std::min(next_, (place / 64 + 1) * 64);
            std::uint64_t bits = words_[word_of(place)] & (~std::uint64_t{0} << (place % 64));
            if (end % 64 != 0) {
                bits &= (std::uint64_t{1} << (end % 64)) - 1;
            }
            wider[static_cast<std::size_t>(place / 64) & mask] |= bits;
            place = end;
        }
        words_.swap(wider);
    }

    boost::container::small_vector<std::uint64_t, 4> words_ =
        boost::container::small_vector<std::uint64_t, 4>(4, 0);
    boost::container::small_vector<run, 2> runs_{};
    std::size_t first_run_ = 0; ///< The run of the floor; those before it are passed.
    std::uint64_t floor_ = 0; ///< Places, counted since the last reset: the lowest unacknowledged.
    std::uint64_t next_ = 0;
    std::size_t unacked_ = 0;
    offset_type position_;
    epoch_type epoch_;
    bool position_is_after_gap_ = false;
};

} // namespace railmq::core
