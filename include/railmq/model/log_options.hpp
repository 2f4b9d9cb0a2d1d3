// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/time.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace railmq {

/// How old records leave a log.
enum class log_cleanup : unsigned char {
    remove,             ///< By `retention`: whole segments, the oldest first.
    compact,            ///< Superseded by a later record of their key; `retention` is not applied.
    compact_and_remove, ///< Both.
};

/// Whose time a record carries.
enum class log_timestamps : unsigned char {
    create, ///< The producer's, or that of the append where it gave none.
    append, ///< That of the append.
};

/// What a log keeps, each limit for one partition. Whole segments go, and never the one that is
/// written, so a log may keep up to a segment more than the limit; it never keeps less.
/// Whether anybody has read a record does not matter.
struct log_retention {
    /// A segment goes when its newest record is older than this; exactly as old, it stays. A
    /// time stamp that was in the future when it was appended counts as the time of the append.
    /// Unset: no limit.
    std::optional<duration> max_age{};
    /// Bytes of records: payload, key, headers and `log_record_overhead` each.
    std::size_t max_bytes = unlimited;
    std::size_t max_records = unlimited;

    friend bool operator==(const log_retention&, const log_retention&) = default;
};

/// What each record counts beside its payload, key and headers, in bytes.
inline constexpr std::size_t log_record_overhead = 32;

/// How a log behaves. Every member has a default, so designated initializers name only what
/// differs.
struct log_options {
    /// Lines that are ordered each in itself. A key always goes to one of them.
    std::uint32_t partitions = 1;
    log_retention retention{};
    log_cleanup cleanup = log_cleanup::remove;
    log_timestamps timestamps = log_timestamps::create;
    /// A segment that would pass this with the next records is closed, and they open the next one.
    /// Counted as `log_retention::max_bytes`.
    std::size_t segment_bytes = std::size_t{16} << 20;
    /// A segment has at most so many records, unless a batch has more.
    std::size_t segment_records = unlimited;
    /// A record whose time is later than that of the segment's first by more than this opens the
    /// next one (Kafka, `segment.ms`).
    duration segment_age = std::chrono::hours{24 * 7};
    /// How long a tombstone stays, counted from the first compaction that found it, so that
    /// whoever reads through within that time learns of the deletion (Kafka,
    /// `delete.retention.ms`).
    duration tombstone_retention = std::chrono::hours{24};
    /// Records younger than this are not compacted, nor any after them (Kafka,
    /// `min.compaction.lag.ms`).
    duration min_compaction_lag = duration::zero();
    /// Keys that compaction holds in memory at once. With fewer than the log has it needs more
    /// passes, and still loses nothing.
    std::size_t compaction_keys = 1'000'000;
    /// Compaction starts when this share of the bytes was not compacted yet (Kafka,
    /// `min.cleanable.dirty.ratio`).
    double min_dirty_ratio = 0.5;
    /// An idempotent producer is forgotten when it was silent for so long (Kafka,
    /// `producer.id.expiration.ms`).
    duration producer_expiry = std::chrono::hours{24};

    friend bool operator==(const log_options&, const log_options&) = default;
};

/// `errc::invalid_argument` and what was expected, or no failure.
[[nodiscard]] inline failure validate(const log_options& o) {
    const auto bad = [](std::string what) {
        return failure{errc::invalid_argument, std::move(what)};
    };
    const auto nanoseconds = [](duration d) { return std::to_string(d.count()) + " ns"; };
    constexpr std::uint32_t most_partitions = 1U << 16;
    if (o.partitions == 0 || o.partitions > most_partitions) {
        return bad("partitions is from 1 to 65536; got " + std::to_string(o.partitions));
    }
    if (o.retention.max_age && *o.retention.max_age < duration::zero()) {
        return bad("retention.max_age is not negative; got " + nanoseconds(*o.retention.max_age));
    }
    if (o.retention.max_bytes == 0) {
        return bad("retention.max_bytes is at least 1; leave it unlimited or set a size");
    }
    if (o.retention.max_records == 0) {
        return bad("retention.max_records is at least 1; leave it unlimited or set a number");
    }
    if (o.cleanup == log_cleanup::compact && !(o.retention == log_retention{})) {
        return bad("retention has no effect with cleanup = compact; say compact_and_remove");
    }
    if (o.segment_bytes == 0) {
        return bad("segment_bytes is at least 1");
    }
    if (o.segment_records == 0) {
        return bad("segment_records is at least 1; leave it unlimited or set a number");
    }
    if (o.segment_age <= duration::zero()) {
        return bad("segment_age is longer than zero; got " + nanoseconds(o.segment_age));
    }
    if (o.tombstone_retention < duration::zero()) {
        return bad(
            "tombstone_retention is not negative; got " + nanoseconds(o.tombstone_retention));
    }
    if (o.min_compaction_lag < duration::zero()) {
        return bad("min_compaction_lag is not negative; got " + nanoseconds(o.min_compaction_lag));
    }
    if (o.compaction_keys == 0) {
        return bad("compaction_keys is at least 1");
    }
    if (!(o.min_dirty_ratio >= 0 && o.min_dirty_ratio <= 1)) { // not a number either
        return bad("min_dirty_ratio is from 0 to 1; got " + std::to_string(o.min_dirty_ratio));
    }
    if (o.producer_expiry <= duration::zero()) {
        return bad("producer_expiry is longer than zero; got " + nanoseconds(o.producer_expiry));
    }
    return {};
}

/// The first option in which `have` and `want` differ, for the text of `options_mismatch`; empty
/// when they are equal.
[[nodiscard]] inline std::string_view
difference(const log_options& have, const log_options& want) noexcept {
    if (have.partitions != want.partitions) return "partitions";
    if (have.retention.max_age != want.retention.max_age) return "retention.max_age";
    if (have.retention.max_bytes != want.retention.max_bytes) return "retention.max_bytes";
    if (have.retention.max_records != want.retention.max_records) return "retention.max_records";
    if (have.cleanup != want.cleanup) return "cleanup";
    if (have.timestamps != want.timestamps) return "timestamps";
    if (have.segment_bytes != want.segment_bytes) return "segment_bytes";
    if (have.segment_records != want.segment_records) return "segment_records";
    if (have.segment_age != want.segment_age) return "segment_age";
    if (have.tombstone_retention != want.tombstone_retention) return "tombstone_retention";
    if (have.min_compaction_lag != want.min_compaction_lag) return "min_compaction_lag";
    if (have.compaction_keys != want.compaction_keys) return "compaction_keys";
    if (!(have == want)) {
        return have.producer_expiry != want.producer_expiry ? "producer_expiry" : "min_dirty_ratio";
    }
    return {};
}

} // namespace railmq
