// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/group_offsets.hpp>
#include <railmq/core/log_segment.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/detail/core_handle.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_group.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/detail/log_subscriptions.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log_consumer.hpp>
#include <railmq/log_producer.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/printable.hpp>
#include <railmq/model/time.hpp>
#include <railmq/model/topic_options.hpp>
#include <railmq/queue.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// What a log holds, and what became of all that was ever appended: `appended` is always `records`
/// and everything that was removed.
struct log_stats {
    std::uint64_t partitions = 0;
    std::uint64_t segments = 0;
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;        ///< Of records, as `log_retention::max_bytes` counts them.
    std::uint64_t memory_bytes = 0; ///< Of the broker's `memory_limit`.
    std::uint64_t appended = 0;
    std::uint64_t removed_by_age = 0;
    std::uint64_t removed_by_bytes = 0;
    std::uint64_t removed_by_records = 0;
    std::uint64_t removed_by_request = 0; ///< `delete_records`.
    std::uint64_t superseded = 0;         ///< Compaction: a later record has the key.
    std::uint64_t expired = 0;            ///< Compaction: tombstones.

    friend bool operator==(const log_stats&, const log_stats&) = default;
};

/// What a group of a log is, and what its members have given up since the log was opened.
struct log_group_stats {
    std::size_t members = 0;
    std::uint64_t generation = 0; ///< How many rebalances it has had.
    std::uint64_t dead_lettered = 0;
    /// Given up and not kept: dead letters are discarded, have no value, or were removed before.
    std::uint64_t dropped = 0;
    /// How often a dead letter found no place; it is tried again.
    std::uint64_t dead_letters_refused = 0;

    friend bool operator==(const log_group_stats&, const log_group_stats&) = default;
};

/// A log that can be read again: records in partitions, each with an offset, that stay until
/// retention or compaction removes them, whoever has read them.
///
/// Made by `broker.log<T>(name, options)`. A handle; copies refer to the same log.
///
/// Offsets of a partition begin at 0, have no gaps when they are given, and are never used twice.
/// Retention and compaction happen in small parts inside of sends, and when they are asked for;
/// there is no thread for them.
///
/// In a broker with a directory a log is kept, and all of it is in memory as well. What is sent is
/// as safe as the producer's `durability` says. What leaves, and what groups have committed, is
/// written at once and synced with the next sync; calls that ask for just that (`delete_records`,
/// `add_partitions`, `reset_offset`, `delete_group`, a consumer's `commit`) return when it is as
/// safe as the broker's `durability` says, or report `journal_failed`, when that is not known.
///
/// Errors are thrown as `system_error`: `closed` once the broker is closed, `not_found` when the
/// log was deleted, and what is said at each call.
///
/// Thread safety: safe.
template <class T, class Runtime>
class basic_partitioned_log : public detail::core_handle<detail::log_core<Runtime>> {
    using base = detail::core_handle<detail::log_core<Runtime>>;
    using base::core;
    using base::core_;
    using base::require;
    using base::shared_core;
    using core_type = detail::log_core<Runtime>;
    using group_type = detail::log_group<Runtime>;

public:
    using value_type = T;
    using producer_type = basic_log_producer<T, Runtime>;
    using consumer_type = basic_log_consumer<T, Runtime>;

    /// Refers to no log; everything throws `closed`.
    basic_partitioned_log() noexcept = default;

    [[nodiscard]] const std::string& name() const { return core().name(); }
    /// What it was made with. `add_partitions` does not change them.
    [[nodiscard]] const log_options& options() const { return core().options(); }

    using base::is_open; ///< Whether it is there, and neither closed nor deleted.

    /// Errors: `invalid_argument`.
    [[nodiscard]] producer_type producer(log_producer_options o = {}) const {
        require(validate(o));
        return producer_type{shared_core(), std::move(o)};
    }

    /// A reader, or a member of a group, which is made with its first member. Errors:
    /// `invalid_argument` (options; a partition that there is not), `invalid_name` (of the group),
    /// `offset_out_of_range` (`log_start::at_offset`, without a group); `options_mismatch` when the
    /// group's options differ from those of its other members; where `max_attempts` or
    /// `dead_letter` is set, `type_mismatch` when the dead letters' queue or log has other values,
    /// and `invalid_argument` when it is this log, or `T` cannot be copied.
    [[nodiscard]] consumer_type consumer(log_consumer_options o = {}) const {
        require(validate(o));
        const auto& log = shared_core();
        for (;;) {
            auto group = o.group.empty() ? nullptr : open_group(o);
            auto reader = std::make_shared<detail::log_reader<Runtime>>(log, group, o);
            const errc failed = reader->open();
            if (failed == errc{}) {
                return consumer_type{std::move(reader)};
            }
            if (failed != errc::not_found) { // else the group was deleted this moment
                throw system_error(make_error_code(failed), "consumer of log '" + name() + "'");
            }
        }
    }

    // Partitions

    [[nodiscard]] std::uint32_t partitions() const { return core().partitions(); }
    /// Makes `n` more. Records of a key may go to another partition from then on, and old ones stay
    /// where they are. Groups divide the new ones at once. `invalid_argument` above 65536 in all;
    /// with a directory also an error of the journal.
    void add_partitions(std::uint32_t n) const {
        if (const errc e = core().add_partitions(n); e != errc{}) {
            throw system_error(
                make_error_code(e),
                e == errc::invalid_argument ? std::string{"a log has at most 65536 partitions"}
                                            : "add partitions to log '" + name() + "'");
        }
        confirm("add partitions to log");
    }
    /// The offset of the oldest record that can be read, or of the next one if there is none. This
    /// and the next three: `invalid_argument` for a partition that the log does not have.
    [[nodiscard]] std::uint64_t start_offset(std::uint32_t partition) const {
        return line(partition).start_offset();
    }
    /// The offset that the next record gets.
    [[nodiscard]] std::uint64_t end_offset(std::uint32_t partition) const {
        return line(partition).end_offset();
    }
    /// The first record whose time is not before `t`; none when all are older.
    [[nodiscard]] std::optional<std::uint64_t>
    offset_for_time(std::uint32_t partition, time_point t) const {
        return line(partition).locked([&](auto& p, auto&, auto&) -> std::optional<std::uint64_t> {
            const auto found = p.offset_for_time(t);
            return found ? std::optional{found->offset} : std::nullopt;
        });
    }
    /// Removes all records below `offset`, whoever has not read them yet. Returns how many there
    /// were. `offset_out_of_range` above the end.
    std::uint64_t delete_records(std::uint32_t partition, std::uint64_t offset) const {
        detail::line_record kept;
        const std::uint64_t n = line(partition).removing(kept, [&](auto& p, auto&, auto& gone) {
            auto r = p.delete_records(offset);
            gone = std::move(r.gone);
            if (r.failed != errc{}) {
                throw system_error(
                    make_error_code(r.failed),
                    "the log ends at offset " + std::to_string(p.end_offset()));
            }
            return r.amount.records;
        });
        confirm("delete records of log", kept);
        return n;
    }

    /// The time of the broker's clock: what records are stamped with, and `log_start::at_time`
    /// counts in.
    [[nodiscard]] time_point now() const { return core().broker().clock().now(); }

    // Groups

    /// Their names, sorted.
    [[nodiscard]] std::vector<std::string> groups() const { return core().group_names(); }
    /// What the group has committed of a partition: the next record to read. None: nothing. This
    /// and the next ones: `not_found` for a group that there is not.
    [[nodiscard]] std::optional<std::uint64_t>
    committed(std::string_view group, std::uint32_t partition) const {
        (void)line(partition);
        return group_of(group)->committed(partition);
    }
    /// How many records of a partition the group has still to read, by what it has committed. None:
    /// it is not known, since nothing is committed, or compaction has left holes ahead.
    [[nodiscard]] std::optional<std::uint64_t>
    lag(std::string_view group, std::uint32_t partition) const {
        const auto extent = line(partition).locked([](auto& p, auto& c, auto&) {
            return core::log_extent{
                p.start_offset(),
                p.end_offset(),
                std::max({c.checkpoint(), c.covered(), p.dense_from()})};
        });
        return group_of(group)->lag(partition, extent);
    }
    /// The same of all partitions.
    [[nodiscard]] std::optional<std::uint64_t> lag(std::string_view group) const {
        std::uint64_t all = 0;
        for (std::uint32_t p = 0; p < partitions(); ++p) {
            const auto one = lag(group, p);
            if (!one) {
                return std::nullopt;
            }
            all += *one;
        }
        return all;
    }
    /// How many members it has.
    [[nodiscard]] std::size_t members(std::string_view group) const {
        return group_of(group)->size();
    }
    /// How many rebalances it has had.
    [[nodiscard]] std::uint64_t generation(std::string_view group) const {
        return group_of(group)->generation();
    }
    [[nodiscard]] log_group_stats stats(std::string_view group) const {
        const auto g = group_of(group);
        return {g->size(), g->generation(), g->dead_lettered(), g->dropped(), g->refused()};
    }
    /// Sets where a group without members goes on in a partition. `in_use` while it has members,
    /// `offset_out_of_range` for an offset that the log does not have.
    void reset_offset(std::string_view group, std::uint32_t partition, std::uint64_t offset) const {
        const auto& l = line(partition);
        if (offset < l.start_offset() || offset > l.end_offset()) {
            throw system_error(make_error_code(errc::offset_out_of_range), "reset_offset");
        }
        if (const errc e = group_of(group)->reset(partition, offset); e != errc{}) {
            throw system_error(make_error_code(e), "reset group '" + std::string{group} + "'");
        }
        confirm("reset a group of log");
    }
    /// Forgets a group and what it has committed. `in_use` while it has members.
    void delete_group(std::string_view group) const {
        const auto g = group_of(group);
        if (const errc e = g->end(); e != errc{}) {
            throw system_error(make_error_code(e), "delete group '" + std::string{group} + "'");
        }
        core().remove_group(group, *g);
        confirm("delete a group of log");
    }

    // Subscriptions

    /// A queue that is filled from all partitions of the log: records go to its consumers one by
    /// one, whoever comes first, and are acknowledged, retried and dead-lettered one by one (as a
    /// share group of Kafka, or a shared subscription of Pulsar; with `delivery_order::by_key`,
    /// Pulsar's key-shared). Nobody owns a partition, so there may be more consumers than those.
    ///
    /// A record becomes a message, a copy, when a consumer comes for it; tombstones do not. What
    /// retention removes before that is skipped (`notices::skipped`). Partitions that are added
    /// later are read from their start. `start = latest` unless it is said otherwise.
    ///
    /// The queue's name is `<log>.<name>`, and `broker.delete_queue` ends the subscription. Errors:
    /// `invalid_name`, `invalid_argument`; `options_mismatch` when it exists with other options;
    /// `already_exists` when a queue of that name is there that is no subscription of this log;
    /// `offset_out_of_range` for `log_start::at_offset`.
    [[nodiscard]] basic_queue<T, Runtime> subscribe(
        std::string_view name,
        const subscription_options& o = {}) const requires std::copy_constructible<T> {
        require(validate(o));
        failure f;
        auto q = detail::open_subscription(shared_core(), name, o, {}, f);
        require(f);
        return basic_queue<T, Runtime>{std::move(q)};
    }
    /// Names of the subscriptions, sorted.
    [[nodiscard]] std::vector<std::string> subscriptions() const {
        return detail::subscription_names(core());
    }

    // Upkeep

    /// Removes at once what `log_options::retention` does not ask for. Returns how many records.
    std::uint64_t apply_retention() const {
        std::uint64_t removed = 0;
        for (auto* l : core().lines()) {
            detail::line_record kept;
            removed += l->apply_retention(now(), kept).records;
            core().after(kept);
        }
        return removed;
    }
    /// Compacts at once what can be compacted, in steps that let others in; the segment that is
    /// written is never compacted. Returns how many records were removed: none in a log that is not
    /// compacted. `memory_limit` when there is no memory for the keys.
    std::uint64_t compact() const {
        std::uint64_t removed = 0;
        errc failed{};
        for (auto* l : core().lines()) {
            detail::line_record kept;
            removed += l->compact(now(), kept, failed);
            core().after(kept);
        }
        if (failed != errc{}) {
            throw system_error(make_error_code(failed), "compact log '" + name() + "'");
        }
        return removed;
    }
    /// Cost: a look at every partition.
    [[nodiscard]] log_stats stats() const {
        using core::log_removal;
        log_stats all;
        for (auto* l : core().lines()) {
            l->locked([&](auto& p, auto&, auto&) {
                ++all.partitions;
                all.segments += p.segments();
                all.records += p.records();
                all.bytes += p.bytes();
                all.memory_bytes += p.memory_bytes();
                all.appended += p.appended().records;
                all.removed_by_age += p.removed(log_removal::by_age).records;
                all.removed_by_bytes += p.removed(log_removal::by_bytes).records;
                all.removed_by_records += p.removed(log_removal::by_records).records;
                all.removed_by_request += p.removed(log_removal::by_request).records;
                all.superseded += p.removed(log_removal::superseded).records;
                all.expired += p.removed(log_removal::expired).records;
            });
        }
        return all;
    }

private:
    template <class>
    friend class basic_broker;
    template <class, class>
    friend class basic_exchange;

    explicit basic_partitioned_log(std::shared_ptr<core_type> c) noexcept
        : base{std::move(c)} {}

    [[nodiscard]] detail::log_line<Runtime>& line(std::uint32_t partition) const {
        auto* l = core().line(partition);
        if (l == nullptr) {
            throw system_error(
                make_error_code(errc::invalid_argument),
                "log '" + name() + "' has no partition " + std::to_string(partition));
        }
        return *l;
    }

    /// Waits until what was done survives, as far as the broker's sends do by default.
    void confirm(const char* what, const detail::line_record& kept) const {
        error_code ec;
        core().confirm(kept, ec);
        if (ec) {
            throw system_error(ec, std::string{what} + " '" + name() + "'");
        }
    }
    void confirm(const char* what) const {
        error_code ec;
        core().confirm_all(ec);
        if (ec) {
            throw system_error(ec, std::string{what} + " '" + name() + "'");
        }
    }
    [[nodiscard]] std::shared_ptr<group_type> open_group(const log_consumer_options& o) const {
        const auto& log = shared_core();
        const group_options wanted = group_part(o);
        auto group = log->open_group(o.group, [&] {
            return std::make_shared<group_type>(
                log->shared_broker(),
                log->broker().take_number(),
                log->kept_as(),
                log->name(),
                o.group,
                wanted,
                log->partitions());
        });
        if (const auto what = difference(group->options(), wanted); !what.empty()) {
            require(
                {errc::options_mismatch,
                 "group '" + o.group + "' exists with another " + std::string{what}});
        }
        return group;
    }
    [[nodiscard]] std::shared_ptr<group_type> group_of(std::string_view group) const {
        auto g = core().find_group(group);
        if (g == nullptr) {
            throw system_error(
                make_error_code(errc::not_found),
                "log '" + name() + "' has no group '" + detail::printable(group) + "'");
        }
        return g;
    }
};

} // namespace railmq
