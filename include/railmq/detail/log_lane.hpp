// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/ack_tracker.hpp>
#include <railmq/core/log_cursor.hpp>
#include <railmq/core/log_segment.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/model/death.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/time.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace railmq::detail {

/// A record that was handed out: what it is, what keeps it in memory, and where it came from.
template <class Runtime>
struct log_lease {
    core::log_entry entry{};
    core::log_pin<Runtime> pin{};
    std::uint32_t partition = 0;
    std::uint32_t failures = 0;
    std::uint64_t epoch = 0;
};

/// A record that has failed, until it is acknowledged.
struct failed_record {
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
    bool is_waiting = false; ///< To be handed out again; else it is in work again.
    duration wait{0};
    time_point due{};
    // It is a dead letter, and holds its partition until it has found a place.
    bool is_dead = false;
    bool is_moving = false; ///< Somebody is at it, without a lock.
    death_reason reason = death_reason::rejected;
    std::uint32_t refusals = 0;
    std::string detail{};
};

/// One partition of a reader: where it reads, and what of it is in work.
template <class Runtime>
struct log_lane {
    std::uint32_t partition = 0;
    log_line<Runtime>* line = nullptr;

    // The consumer's thread's.
    core::log_cursor<Runtime> cursor{};
    bool is_placed = false; ///< Else the cursor has to go to `goes_to` first.
    std::uint64_t goes_to = 0;
    errc failed_with{}; ///< There is no place to begin; until `seek`.
    bool is_paused = false;
    bool is_held = false; ///< By a record that waits to be given again.

    // Under the reader's lock.
    bool is_rewound = false; ///< A commit may go back.
    std::uint64_t committed = 0;
    core::ack_tracker tracker{};
    bool is_touched = false; ///< There may be something to commit; its reader has it in a list.
    std::vector<failed_record> failures{}; ///< By offset.
};

} // namespace railmq::detail
