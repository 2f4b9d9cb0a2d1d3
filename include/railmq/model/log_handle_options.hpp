// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/backoff.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/group_options.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/name.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/time.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// Where a record of a log went.
struct log_receipt {
    std::uint32_t partition = 0;
    std::uint64_t offset = 0;
    /// The record was stored before, by the same idempotent producer, at this offset, which
    /// `offset` is as well. Nothing was stored now.
    std::optional<std::uint64_t> duplicate_of{};

    friend bool operator==(const log_receipt&, const log_receipt&) = default;
};

/// What one append asks for beside what it stores.
struct append_options {
    /// The partition to append to; none: as the producer's partitioner says, else by the key, or
    /// in turn where there is no key.
    std::optional<std::uint32_t> partition{};
    /// Refused with `sequence_out_of_order` unless the record would get this offset: so of two who
    /// have read the same state one gets to write. It needs a partition, a key, or a partitioner.
    std::optional<std::uint64_t> expected_offset{};
    /// The record's time, on the broker's time line; none: that of the append. A log with
    /// `log_timestamps::append` does not look at it.
    std::optional<time_point> timestamp{};
    /// The number of the (first) record in its partition, of an idempotent producer that numbers
    /// by itself, such as one that sends again what it has kept; none: the handle numbers.
    std::optional<std::int32_t> sequence{};
};

/// A record that is on its way into a log, as a partitioner sees it; good during the call.
struct log_placement {
    std::optional<std::string_view> key{}; ///< None: it has no key.
    const properties* props = nullptr;     ///< Null: it was sent without.
    std::uint32_t partitions = 1;          ///< How many the log has now.
};

/// Says which partition of a log a record goes to, from 0 on; nothing: where it would go without a
/// partitioner. Called by each send that names no partition, on its thread and with no lock held,
/// so by as many threads as send; once for a batch, which has no keys. It may call the broker.
///
/// A partition that there is not makes the send fail with `invalid_argument`; what it throws comes
/// out of the send. Either way nothing was stored. An idempotent producer that sends again needs
/// one that says the same again.
using log_partitioner = std::function<std::optional<std::uint64_t>(const log_placement&)>;

/// How a producer of a log sends.
struct log_producer_options {
    /// Makes it idempotent: what is sent twice is stored once (see `basic_log_producer`).
    std::optional<std::uint64_t> producer_id{};
    /// Which life of that producer this is. A higher one fences the lower ones.
    std::uint32_t epoch = 0;
    /// How far its sends have to have come before they return, in a broker with a directory; none:
    /// as the broker says. Without a directory nothing survives the process, whatever it says.
    std::optional<railmq::durability> durability{};
    /// The largest payload, in bytes: `errc::message_too_large` above it.
    std::size_t max_message_bytes = std::size_t{1} << 20;
    /// Where records go whose send names no partition. Empty: by their key, as Kafka's clients
    /// place it, or in turn.
    log_partitioner partitioner{};
};

/// Where a reader of a log begins: `.start = railmq::log_start::at_offset(17)`. In a group it says
/// where to begin a partition of which nothing was committed, or of which that is gone.
class log_start {
public:
    enum class kind_type : unsigned char { earliest, latest, none, offset, time };

    /// `earliest`: nothing is left out.
    constexpr log_start() noexcept = default;

    static const log_start earliest; ///< With the oldest record there is.
    static const log_start latest;   ///< With what is appended from then on.
    /// It does not: `offset_out_of_range` until somebody says `seek`.
    static const log_start none;
    /// With that offset of each partition; `offset_out_of_range` where there is none.
    [[nodiscard]] static constexpr log_start at_offset(std::uint64_t offset) noexcept {
        log_start s{kind_type::offset};
        s.offset_ = offset;
        return s;
    }
    /// With the first record whose time is not before `t`; where all are older, at the end.
    [[nodiscard]] static constexpr log_start at_time(time_point t) noexcept {
        log_start s{kind_type::time};
        s.time_ = t;
        return s;
    }

    [[nodiscard]] constexpr kind_type kind() const noexcept { return kind_; }
    [[nodiscard]] constexpr std::uint64_t offset() const noexcept { return offset_; }
    [[nodiscard]] constexpr time_point time() const noexcept { return time_; }

    friend constexpr bool operator==(const log_start&, const log_start&) = default;

private:
    explicit constexpr log_start(kind_type k) noexcept
        : kind_{k} {}

    kind_type kind_ = kind_type::earliest;
    std::uint64_t offset_ = 0;
    time_point time_{};
};

inline constexpr log_start log_start::earliest{kind_type::earliest};
inline constexpr log_start log_start::latest{kind_type::latest};
inline constexpr log_start log_start::none{kind_type::none};

/// Partitions of one log, sorted.
using partition_numbers = std::vector<std::uint32_t>;
/// Told by `receive` which partitions came or went, on its caller's thread and with no lock held.
/// It may use the consumer, but not receive from it.
using rebalance_callback = std::function<void(const partition_numbers&)>;

/// How a consumer of a log reads. Members from `assignor` on are for groups alone.
struct log_consumer_options {
    /// The group whose members divide the partitions among them; empty: it reads for itself.
    std::string group{};
    log_start start{};
    /// What it reads without a group; empty: all there are when it is made.
    partition_numbers partitions{};
    /// How long a record that has failed (`nack`) holds its partition before it comes again.
    backoff retry_backoff{exponential_backoff{}};
    /// How often a member works on a record in all: the last failure makes it a dead letter, and
    /// its partition goes on. 0: no limit, and a record that always fails holds its partition.
    std::uint32_t max_attempts = 0;
    /// Where a member sends records that it has rejected, or that have failed for the last time: a
    /// log or a queue of the same broker and type; a queue is made when it is missing. Unset: the
    /// broker's default, else the queue `<log>.<group>.dead`.
    dead_letter_target dead_letter{};

    /// All members of a group have the same, and the same of the next three.
    railmq::assignor assignor = railmq::assignor::cooperative_sticky;
    duration initial_rebalance_delay{0};
    duration rebalance_timeout = std::chrono::minutes{1};
    duration offset_retention = std::chrono::hours{7 * 24};
    /// A member of which nothing is heard for this long is taken for dead. Receives, commits and
    /// `heartbeat` are heard; a receive that waits is heard all the time. There is no thread that
    /// says so behind your back: it has to be longer than the work between two receives.
    duration session_timeout = std::chrono::seconds{45};
    /// The same for receives alone: who works for longer is taken to hang.
    duration max_poll_interval = std::chrono::minutes{5};
    /// Makes it a static member; see `member_options::instance_id`.
    std::string instance_id{};
    /// Every receive, and `close`, commits what has been acknowledged by then.
    bool auto_commit = true;

    rebalance_callback on_assigned{}; ///< After it got them.
    /// Before anybody else gets them: time to end work and commit.
    rebalance_callback on_revoked{};
    /// They are somebody else's already, since this member was taken for dead. Unset: `on_revoked`.
    rebalance_callback on_lost{};
};

[[nodiscard]] inline group_options group_part(const log_consumer_options& o) {
    group_options g;
    g.assignor = o.assignor;
    g.initial_rebalance_delay = o.initial_rebalance_delay;
    g.rebalance_timeout = o.rebalance_timeout;
    g.offset_retention = o.offset_retention;
    return g;
}
[[nodiscard]] inline member_options member_part(const log_consumer_options& o) {
    return {o.session_timeout, o.max_poll_interval, o.instance_id};
}

/// `errc::invalid_argument` (of a name: `errc::invalid_name`) and what was expected, or no failure.
[[nodiscard]] inline failure validate(const log_producer_options& o) {
    if (o.max_message_bytes == 0) {
        return {errc::invalid_argument, "max_message_bytes is at least 1"};
    }
    if (o.durability && o.durability->interval() < duration::zero()) {
        return {errc::invalid_argument, "durability::interval is not negative"};
    }
    if (!o.producer_id && o.epoch != 0) {
        return {errc::invalid_argument, "an epoch is nothing without a producer_id"};
    }
    return {};
}

/// The same. A consumer without a group has no options of one.
[[nodiscard]] inline failure validate(const log_consumer_options& o) {
    if (failure f = validate(o.retry_backoff)) {
        return f;
    }
    if (o.group.empty()) {
        const bool has_callbacks = o.on_assigned || o.on_revoked || o.on_lost;
        if (has_callbacks || !o.instance_id.empty()) {
            return {
                errc::invalid_argument,
                "callbacks and instance_id are for members of a group; group is empty"};
        }
        if (o.max_attempts != 0 || !o.dead_letter.is_unset()) {
            return {
                errc::invalid_argument,
                "max_attempts and dead_letter are for members of a group; group is empty"};
        }
        return {};
    }
    if (failure f = validate_name(o.group)) {
        f.what = "group: " + f.what;
        return f;
    }
    if (!o.dead_letter.name().empty()) {
        if (failure f = validate_name(o.dead_letter.name())) {
            f.what = "dead_letter: " + f.what;
            return f;
        }
    }
    if (!o.partitions.empty()) {
        return {
            errc::invalid_argument,
            "a member of a group gets its partitions from the group; leave partitions empty"};
    }
    if (failure f = validate(group_part(o))) {
        return f;
    }
    return validate(member_part(o));
}

} // namespace railmq
