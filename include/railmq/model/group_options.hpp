// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/name.hpp>
#include <railmq/model/time.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace railmq {

/// How the partitions of a group's topics are divided among its members.
enum class assignor : unsigned char {
    /// Each topic by itself: neighbouring partitions together, the first members get the extra
    /// ones. Topics with equally many partitions come out alike, so that what belongs together in
    /// them meets at one member; many small topics all end up with the first members
    /// (Kafka, RangeAssignor).
    range,
    /// All partitions of all topics dealt out one by one (Kafka, RoundRobinAssignor).
    round_robin,
    /// Balanced, and every member keeps what it had unless the balance forbids it. Everybody stops
    /// during a rebalance, as with the two above (Kafka, StickyAssignor).
    sticky,
    /// The same assignment as `sticky`, but only partitions that move are stopped: they are taken
    /// away in one round and given out in a second one (Kafka, CooperativeStickyAssignor).
    cooperative_sticky,
};

/// The name as it is written in a program.
[[nodiscard]] constexpr std::string_view to_string(assignor a) noexcept {
    switch (a) {
    case assignor::range: return "range";
    case assignor::round_robin: return "round_robin";
    case assignor::sticky: return "sticky";
    case assignor::cooperative_sticky: return "cooperative_sticky";
    }
    return "unknown";
}

/// Where a group begins to read a partition of which it has no committed offset, or one that does
/// not exist any more because retention took the records away (Kafka, auto.offset.reset).
enum class offset_reset : unsigned char {
    earliest, ///< With the oldest record there is.
    latest,   ///< With what is sent from then on.
    none,     ///< It does not: an error.
};

/// How a group behaves; all its members agree on it.
struct group_options {
    railmq::assignor assignor = railmq::assignor::cooperative_sticky;
    /// How long the first rebalance of a group without members waits for more of them, so that a
    /// program that starts ten does not rebalance ten times. Somebody who joins during the wait
    /// starts another one of this length, but all of them together never pass `rebalance_timeout`
    /// (Kafka, group.initial.rebalance.delay.ms; 3 s there, where members start minutes apart).
    duration initial_rebalance_delay{0};
    /// How long a member may take to let go of partitions it is asked for; then it is removed, or
    /// one that hangs would keep them from everybody else.
    duration rebalance_timeout = std::chrono::minutes{1};
    /// How long a committed offset is kept once nobody subscribes to its topic any more; it expires
    /// at exactly this age (Kafka, offsets.retention.minutes).
    duration offset_retention = std::chrono::hours{7 * 24};
    /// The longest text that may be stored with a committed offset, in bytes (Kafka,
    /// offset.metadata.max.bytes).
    std::size_t max_metadata_bytes = 4096;

    friend bool operator==(const group_options&, const group_options&) = default;
};

/// How one member takes part in its group.
struct member_options {
    /// A member from which nothing is heard for this long is removed. Heartbeats, polls, commits
    /// and confirmations all count.
    duration session_timeout = std::chrono::seconds{45};
    /// A member that does not ask for messages for this long is removed, whatever else is heard
    /// from it: it hangs in its work.
    duration max_poll_interval = std::chrono::minutes{5};
    /// With a name of its own a member is static: if it goes and comes back under the same name
    /// within `session_timeout`, it gets what it had and nobody else notices. 1 to 249 of
    /// `[A-Za-z0-9._-]`; empty: the member is dynamic.
    std::string instance_id{};

    friend bool operator==(const member_options&, const member_options&) = default;
};

/// `errc::invalid_argument` and what was expected, or no failure.
[[nodiscard]] inline failure validate(const group_options& o) {
    const auto bad = [](const char* what) { return failure{errc::invalid_argument, what}; };
    if (o.assignor > assignor::cooperative_sticky) {
        return bad("assignor is range, round_robin, sticky or cooperative_sticky");
    }
    if (o.initial_rebalance_delay < duration::zero()) {
        return bad("initial_rebalance_delay is not negative");
    }
    if (o.rebalance_timeout <= duration::zero()) {
        return bad("rebalance_timeout is longer than zero");
    }
    if (o.initial_rebalance_delay > o.rebalance_timeout) {
        return bad("initial_rebalance_delay is not longer than rebalance_timeout");
    }
    if (o.offset_retention <= duration::zero()) {
        return bad("offset_retention is longer than zero");
    }
    return {};
}

/// `errc::invalid_argument` (of a name: `errc::invalid_name`) and what was expected, or no failure.
[[nodiscard]] inline failure validate(const member_options& o) {
    if (o.session_timeout <= duration::zero()) {
        return {errc::invalid_argument, "session_timeout is longer than zero"};
    }
    if (o.max_poll_interval <= duration::zero()) {
        return {errc::invalid_argument, "max_poll_interval is longer than zero"};
    }
    if (!o.instance_id.empty()) {
        if (failure f = validate_name(o.instance_id)) {
            f.what = "instance_id: " + f.what;
            return f;
        }
    }
    return {};
}

/// The first option in which `have` and `want` differ, for the text of `options_mismatch`; empty
/// when they are equal.
[[nodiscard]] inline std::string_view
difference(const group_options& have, const group_options& want) noexcept {
    if (have.assignor != want.assignor) return "assignor";
    if (have.initial_rebalance_delay != want.initial_rebalance_delay)
        return "initial_rebalance_delay";
    if (have.rebalance_timeout != want.rebalance_timeout) return "rebalance_timeout";
    if (have.offset_retention != want.offset_retention) return "offset_retention";
    if (have.max_metadata_bytes != want.max_metadata_bytes) return "max_metadata_bytes";
    return {};
}

} // namespace railmq
