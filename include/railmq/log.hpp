// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_segment.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log_producer.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/time.hpp>

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

/// A log that can be read again: records in partitions, each with an offset, that stay until
/// retention or compaction removes them, whoever has read them.
///
/// Made by `broker.log<T>(name, options)`. A handle; copies refer to the same log.
///
/// Offsets of a partition begin at 0, have no gaps when they are given, and are never used twice.
/// A log is in memory alone. Retention and compaction happen in small parts inside of sends, and
/// when they are asked for; there is no thread for them.
///
/// Errors are thrown as `system_error`: `closed` once the broker is closed, `not_found` when the
/// log was deleted, and what is said at each call.
///
/// Thread safety: safe.
template <class T, class Runtime>
class basic_partitioned_log {
    using core_type = detail::log_core<Runtime>;

public:
    using value_type = T;
    using producer_type = basic_log_producer<T, Runtime>;

    /// Refers to no log; everything throws `closed`.
    basic_partitioned_log() noexcept = default;

    [[nodiscard]] const std::string& name() const { return core().name(); }
    /// What it was made with. `add_partitions` does not change them.
    [[nodiscard]] const log_options& options() const { return core().options(); }
    [[nodiscard]] bool is_open() const noexcept {
        return core_ != nullptr && core_->closed() == errc{};
    }

    /// Errors: `invalid_argument`.
    [[nodiscard]] producer_type producer(log_producer_options o = {}) const {
        require(validate(o));
        return producer_type{shared_core(), o};
    }

    // Partitions

    [[nodiscard]] std::uint32_t partitions() const { return core().partitions(); }
    /// Makes `n` more. Records of a key may go to another partition from then on, and old ones stay
    /// where they are. Groups divide the new ones at once. `invalid_argument` above 65536 in all.
    void add_partitions(std::uint32_t n) const {
        if (!core().add_partitions(n)) {
            throw system_error(
                make_error_code(errc::invalid_argument), "a log has at most 65536 partitions");
        }
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
        return line(partition).locked([&](auto& p, auto&, auto& gone) {
            auto r = p.delete_records(offset);
            gone = std::move(r.gone);
            if (r.failed != errc{}) {
                throw system_error(
                    make_error_code(r.failed),
                    "the log ends at offset " + std::to_string(p.end_offset()));
            }
            return r.amount.records;
        });
    }

    /// The time of the broker's clock: what records are stamped with, and `log_start::at_time`
    /// counts in.
    [[nodiscard]] time_point now() const { return core().broker().clock().now(); }

    // Upkeep

    /// Removes at once what `log_options::retention` does not ask for. Returns how many records.
    std::uint64_t apply_retention() const {
        std::uint64_t removed = 0;
        for (auto* l : core().lines()) {
            removed += l->apply_retention(now()).records;
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
            removed += l->compact(now(), failed);
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

    explicit basic_partitioned_log(std::shared_ptr<core_type> core) noexcept
        : core_{std::move(core)} {}

    static void require(const failure& f) {
        if (f) {
            throw system_error(f.code, f.what);
        }
    }
    [[nodiscard]] const std::shared_ptr<core_type>& shared_core() const {
        const errc why = core_ == nullptr ? errc::closed : core_->closed();
        if (why != errc{}) {
            throw system_error(
                make_error_code(why),
                core_ == nullptr ? std::string{"no log"} : "log '" + core_->name() + "'");
        }
        return core_;
    }
    [[nodiscard]] core_type& core() const { return *shared_core(); }
    [[nodiscard]] detail::log_line<Runtime>& line(std::uint32_t partition) const {
        auto* l = core().line(partition);
        if (l == nullptr) {
            throw system_error(
                make_error_code(errc::invalid_argument),
                "log '" + name() + "' has no partition " + std::to_string(partition));
        }
        return *l;
    }

    std::shared_ptr<core_type> core_{};
};

} // namespace railmq
