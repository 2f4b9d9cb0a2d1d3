// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/time.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <list>
#include <utility>

namespace railmq::core {

/// How an idempotent producer numbers a batch of records.
struct producer_batch {
    std::uint64_t producer = 0;
    /// Which of the producer's lives it is; a higher one fences the lower ones.
    std::uint32_t epoch = 0;
    /// The number of the batch's first record; the others follow. From 0 to 2,147,483,647, then
    /// again from 0.
    std::int32_t first_sequence = 0;
    std::uint32_t records = 1; ///< At least 1.
};

/// `sequence + n` in the circle of sequence numbers: after 2,147,483,647 comes 0.
[[nodiscard]] constexpr std::int32_t
sequence_after(std::int32_t sequence, std::uint32_t n) noexcept {
    constexpr std::uint64_t circle = std::uint64_t{1} << 31;
    return static_cast<std::int32_t>((static_cast<std::uint64_t>(sequence) + n) % circle);
}

/// What is remembered of one producer, as it is kept.
struct producer_image {
    static constexpr std::size_t max_batches = 5;
    struct batch {
        std::int32_t first = 0; ///< Its first and its last number.
        std::int32_t last = 0;
        std::uint64_t offset = 0;
        friend bool operator==(const batch&, const batch&) = default;
    };

    std::uint64_t id = 0;
    std::uint32_t epoch = 0;
    time_point used{};
    std::uint32_t count = 0;
    std::array<batch, max_batches> batches{}; ///< The oldest first.

    friend bool operator==(const producer_image&, const producer_image&) = default;

    /// One more batch was stored. One that is known already changes nothing, so that it may be said
    /// twice.
    void add(std::uint32_t in_epoch, const batch& b, time_point now) noexcept {
        if (in_epoch < epoch) {
            return;
        }
        if (in_epoch > epoch) {
            epoch = in_epoch;
            count = 0;
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            if (batches[i] == b) {
                return;
            }
        }
        if (count == max_batches) {
            for (std::uint32_t i = 1; i < count; ++i) {
                batches[i - 1] = batches[i];
            }
            --count;
        }
        batches[count++] = b;
        used = now;
    }
};

/// What one partition remembers of its idempotent producers, so that a batch that is sent again
/// because its confirmation was lost is not stored twice. Kafka's rules (ProducerAppendInfo,
/// ProducerStateEntry):
///
/// - An epoch below the known one is `errc::fenced`; a higher one starts at sequence 0.
/// - In one epoch the sequences follow each other without a gap.
/// - A batch with the first and last sequence of one of the last five is a duplicate of it.
/// - Of an unknown producer any sequence is accepted: its state may have expired.
///
/// It knows nothing of records, so their removal and compaction change nothing here: a state goes
/// only when its producer has been silent for the time given.
///
/// Cost: one hash look-up a batch; about 200 bytes a producer.
/// Thread safety: none; the partition's lock.
class producer_states {
public:
    /// Batches in which duplicates are recognized; Kafka's producers have no more in flight.
    static constexpr std::size_t remembered_batches = producer_image::max_batches;

    /// What is to happen with a batch.
    struct verdict {
        errc failed{};          ///< `fenced`, `sequence_out_of_order`, `invalid_argument`.
        bool duplicate = false; ///< It was stored before, from `offset` on.
        std::uint64_t offset = 0;
    };

    /// A state is forgotten when its producer was silent for `expire_after` or longer; a `duration`
    /// that is its maximum forgets none.
    explicit producer_states(duration expire_after) noexcept
        : expire_after_{expire_after} {}

    /// What `record` would have to be told. Changes nothing, but that states that have expired
    /// by `now` are forgotten first.
    [[nodiscard]] verdict check(const producer_batch& b, time_point now) {
        if (b.first_sequence < 0 || b.records == 0 || b.records > max_records) {
            return {errc::invalid_argument};
        }
        expire(now);
        const auto found = index_.find(b.producer);
        if (found == index_.end()) {
            return {};
        }
        const state& s = *found->second;
        if (b.epoch < s.epoch) {
            return {errc::fenced};
        }
        if (b.epoch > s.epoch) {
            return {b.first_sequence == 0 ? errc{} : errc::sequence_out_of_order};
        }
        const std::int32_t last = sequence_after(b.first_sequence, b.records - 1);
        for (std::size_t i = 0; i < s.count; ++i) {
            if (s.batches[i].first == b.first_sequence && s.batches[i].last == last) {
                return {errc{}, true, s.batches[i].offset};
            }
        }
        const bool follows = b.first_sequence == sequence_after(s.last_sequence(), 1);
        return {follows ? errc{} : errc::sequence_out_of_order};
    }

    /// Makes sure that `record` of this producer cannot fail. Throws `std::bad_alloc`; then
    /// nothing has changed.
    void reserve(const producer_batch& b) {
        if (index_.contains(b.producer)) {
            return;
        }
        index_.reserve(index_.size() + 1);
        spare_.emplace_front();
    }

    /// The batch was stored from `offset` on. Only after `check` let it pass and `reserve`.
    void record(const producer_batch& b, std::uint64_t offset, time_point now) noexcept {
        auto found = index_.find(b.producer);
        if (found == index_.end()) {
            RAILMQ_ASSERT(!spare_.empty());
            by_use_.splice(by_use_.end(), spare_, spare_.begin());
            state& made = by_use_.back();
            made = state{};
            made.producer = b.producer;
            made.epoch = b.epoch;
            found = index_.emplace(b.producer, std::prev(by_use_.end())).first;
        }
        by_use_.splice(by_use_.end(), by_use_, found->second);
        state& s = *found->second;
        if (s.epoch != b.epoch) {
            s.epoch = b.epoch;
            s.count = 0;
            s.next = 0;
        }
        s.used = now;
        s.batches[s.next] = {
            b.first_sequence, sequence_after(b.first_sequence, b.records - 1), offset};
        s.next = (s.next + 1) % remembered_batches;
        s.count = s.count < remembered_batches ? s.count + 1 : s.count;
        spare_.clear();
    }

    /// Forgets whoever was silent for the time given. Cost: as many as there are.
    /// Returns how many.
    std::size_t expire(time_point now) noexcept {
        std::size_t gone = 0;
        while (!by_use_.empty() && now >= saturating_add(by_use_.front().used, expire_after_) &&
               expire_after_ != duration::max()) {
            index_.erase(by_use_.front().producer);
            by_use_.pop_front();
            ++gone;
        }
        return gone;
    }

    /// Calls `f(const producer_image&)` for each, the longest unused first, until it returns false.
    template <class F>
    void for_each(F&& f) const {
        for (const state& s : by_use_) {
            producer_image out;
            out.id = s.producer;
            out.epoch = s.epoch;
            out.used = s.used;
            out.count = static_cast<std::uint32_t>(s.count);
            for (std::size_t i = 0; i < s.count; ++i) {
                const batch& b =
                    s.batches[(s.next + remembered_batches - s.count + i) % remembered_batches];
                out.batches[i] = {b.first, b.last, b.offset};
            }
            if (!f(std::as_const(out))) {
                return;
            }
        }
    }
    /// Puts back what another life has remembered: of each producer once, the longest unused first.
    /// Throws `std::bad_alloc`; then nothing has changed.
    void restore(const producer_image& was) {
        index_.reserve(index_.size() + 1);
        by_use_.emplace_back();
        state& s = by_use_.back();
        s.producer = was.id;
        s.epoch = was.epoch;
        s.used = was.used;
        s.count = was.count;
        s.next = was.count % remembered_batches;
        for (std::size_t i = 0; i < was.count; ++i) {
            s.batches[i] = {was.batches[i].first, was.batches[i].last, was.batches[i].offset};
        }
        index_.insert_or_assign(was.id, std::prev(by_use_.end()));
    }

    /// Producers that are remembered.
    [[nodiscard]] std::size_t size() const noexcept { return index_.size(); }

private:
    /// So that the circle of sequences is larger than what is remembered of it.
    static constexpr std::uint32_t max_records = 1U << 24;

    struct batch {
        std::int32_t first = 0;
        std::int32_t last = 0;
        std::uint64_t offset = 0;
    };
    struct state {
        std::uint64_t producer = 0;
        std::uint32_t epoch = 0;
        std::size_t count = 0;
        std::size_t next = 0; ///< Where the next batch goes: the batches are a ring.
        time_point used{};
        std::array<batch, remembered_batches> batches{};

        [[nodiscard]] std::int32_t last_sequence() const noexcept {
            return batches[(next + remembered_batches - 1) % remembered_batches].last;
        }
    };

    duration expire_after_;
    std::list<state> by_use_{}; ///< The longest unused first.
    std::list<state> spare_{};
    boost::unordered_flat_map<std::uint64_t, std::list<state>::iterator> index_{};
};

} // namespace railmq::core
