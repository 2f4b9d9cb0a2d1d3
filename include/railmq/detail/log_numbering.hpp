// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace railmq::detail {

/// What copies of a producer of a log share with each other.
template <class Runtime>
struct log_numbering {
    typename Runtime::template atomic<std::uint32_t> turn{0};
    // Of an idempotent producer: held over an append, so that numbers are stored in order.
    typename Runtime::mutex mutex{};
    std::vector<std::int32_t> next_sequence{}; ///< By partition.

    /// Throws `std::bad_alloc`.
    [[nodiscard]] std::int32_t& next(std::uint32_t partition) {
        if (next_sequence.size() <= partition) {
            next_sequence.resize(std::size_t{partition} + 1, 0);
        }
        return next_sequence[partition];
    }
};

} // namespace railmq::detail
