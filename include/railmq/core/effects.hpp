// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/slot_ring.hpp>
#include <railmq/core/waiters.hpp>
#include <railmq/model/notice.hpp>

#include <boost/container/small_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace railmq::core {

/// Payloads as a journal takes them: behind each other, each behind its size; and where each ends.
struct encoded_row {
    std::span<const std::byte> bytes{};
    std::span<const std::size_t> ends{};

    [[nodiscard]] std::size_t begin_of(std::size_t i) const noexcept {
        return i == 0 ? 0 : ends[i - 1];
    }
    /// Those of `n` messages from the i-th on.
    [[nodiscard]] std::span<const std::byte> of(std::size_t i, std::size_t n) const noexcept {
        return n == 0 ? bytes.first(0) : bytes.subspan(begin_of(i), ends[i + n - 1] - begin_of(i));
    }
    /// How many of `n` messages from the i-th on have as many bytes as that.
    [[nodiscard]] std::size_t equal_sizes(std::size_t i, std::size_t n) const noexcept {
        const std::size_t size = ends[i] - begin_of(i);
        std::size_t equal = 1;
        while (equal != n && ends[i + equal] - ends[i + equal - 1] == size) {
            ++equal;
        }
        return equal;
    }
};

/// That a message's state is another now, for a journal; or that of messages with ids in a row,
/// which are all plain. What it is, the message itself tells when the call that changed it is over;
/// what lay in between, nobody needs to know.
struct message_change {
    enum class kind : std::uint8_t {
        stored,  ///< It is new here.
        changed, ///< Handed out, returned, failed, delayed, dying or in line.
        gone,    ///< It has left.
    };
    std::uint64_t id = 0; ///< Where the store finds it.
    std::uint64_t public_id = 0;
    kind what = kind::stored;
    std::span<const std::byte> payload{}; ///< Of one that was stored: its bytes.
    std::uint64_t count = 1;
    const encoded_row* row = nullptr; ///< Of many that were stored: where their bytes are,
    std::size_t row_from = 0;         ///< from this one on.
};

/// That a deduplication id is remembered from now on, for a journal.
struct remembered_id {
    std::string key{};
    std::uint64_t id = 0; ///< Of the message, as users know it.
    time_point at{};
};

/// Messages whose payloads are to be ended, in slots in a row; or one that was moved aside. Once
/// its payload has ended, a place in line may be gone with its chunk.
template <class Sync>
struct ending {
    place<Sync> first{};
    bool is_aside = false;
    std::uint32_t count = 1;
};

/// What the machine wants done once its lock is released: it decides, and calls nobody itself.
template <class Sync>
struct effects {
    /// Notices are only made when somebody listens, and changes listed when somebody keeps them.
    explicit effects(bool somebody_listens, bool somebody_keeps = false) noexcept
        : listening{somebody_listens}
        , keeping{somebody_keeps} {}

    template <class Notice>
    void note(Notice&& n) {
        if (listening) {
            notices.emplace_back(std::forward<Notice>(n));
        }
    }

    bool listening;
    bool keeping;
    /// Messages wait for their move to a dead-letter queue.
    bool has_dying = false;
    std::vector<notice> notices{};
    boost::container::small_vector<waiter*, 8> completed{};
    /// Payloads to end: their slots are in state `settling`, and nobody else touches them.
    boost::container::small_vector<ending<Sync>, 4> endings{};
    std::vector<std::stop_source> stops{};
    boost::container::small_vector<message_change, 4> changes{}; ///< In the order they happened.
    std::vector<remembered_id> remembered{};
    /// What was stored last was not, since it had been before.
    bool was_duplicate = false;
    /// The bytes of whatever is stored next: they are made before anything can change.
    std::span<const std::byte> encoded{};
    /// The record that the changes were written in, or the last one before, if there were none; 0
    /// when they could not be written.
    std::uint64_t record = 0;
    /// Where that number is wanted as well.
    std::uint64_t* wanted_at = nullptr;
};

} // namespace railmq::core
