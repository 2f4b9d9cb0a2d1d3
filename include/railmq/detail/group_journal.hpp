// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/assignment.hpp>
#include <railmq/core/group_coordinator.hpp>
#include <railmq/core/group_offsets.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/kept_log_options.hpp>
#include <railmq/storage/log_entries.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace railmq::detail {

/// A group's part of the broker's journal: how many rebalances it has had, and what it has
/// committed. Members are not kept: they end with the process.
///
/// Whatever could not be written stays to be said, and is tried again with the next change.
///
/// Thread safety: with the group's lock held.
class group_journal {
public:
    group_journal(std::shared_ptr<storage::broker_journal> to, std::uint64_t log, std::string name)
        : journal_{std::move(to)}
        , log_{log}
        , name_{std::move(name)} {}

    /// What is committed of a partition is another than was said. Throws `std::bad_alloc`.
    void has_changed(std::uint32_t partition) { changed_.insert(partition); }

    /// Writes what is to be said. Returns the number of the record; 0: nothing, or `failed` says
    /// why it could not be. Throws `std::bad_alloc`; then it is still to be said.
    std::uint64_t
    say(const core::group_coordinator& group,
        const core::group_offsets& offsets,
        core::topic_id topic,
        errc& failed) {
        storage::group_definition now = definition_of(group);
        const bool is_other = !said_ || !(*said_ == now);
        if (is_deleted_ || (!is_other && changed_.empty())) {
            return 0;
        }
        record_.clear();
        if (is_other) {
            storage::log_entry_writer{record_, journal_->wall()}.group(log_, now);
        }
        for (const std::uint32_t p : changed_) {
            put_offset(offsets, topic, p, record_);
        }
        const std::uint64_t number = append(failed);
        if (number != 0) {
            changed_.clear();
            said_ = std::move(now);
        }
        return number;
    }
    /// Appends what is committed of a partition to another's record; `was_said` when that is
    /// written. Throws `std::bad_alloc`.
    void put_committed(
        const core::group_offsets& offsets,
        core::topic_id topic,
        std::uint32_t partition,
        std::vector<std::byte>& record) const {
        if (!is_deleted_) {
            put_offset(offsets, topic, partition, record);
        }
    }
    void was_said(std::uint32_t partition) noexcept { changed_.erase(partition); }

    /// The group is gone. Errors as above, and then it is still there.
    std::uint64_t say_deleted(errc& failed) {
        record_.clear();
        storage::log_entry_writer{record_, journal_->wall()}.group_deleted(log_, name_);
        const std::uint64_t number = append(failed);
        is_deleted_ = number != 0;
        return number;
    }

    /// All of it, for the upkeep; nothing, when the group is gone.
    void
    put(const core::group_coordinator& group,
        const core::group_offsets& offsets,
        std::vector<std::byte>& record) const {
        if (is_deleted_) {
            return;
        }
        storage::log_entry_writer w{record, journal_->wall()};
        w.group(log_, definition_of(group));
        offsets.for_each([&](core::topic_partition p, const core::committed_offset& o) {
            w.group_offset({log_, p.partition}, name_, o.offset, o.metadata, o.at);
        });
    }

private:
    [[nodiscard]] storage::group_definition
    definition_of(const core::group_coordinator& group) const {
        storage::group_definition d;
        d.name = name_;
        d.options = group.options();
        d.generation = group.generation();
        d.emptied =
            group.empty() && group.emptied_at() != time_point::min() ? group.emptied_at() : never;
        return d;
    }
    void put_offset(
        const core::group_offsets& offsets,
        core::topic_id topic,
        std::uint32_t partition,
        std::vector<std::byte>& record) const {
        storage::log_entry_writer w{record, journal_->wall()};
        if (const auto* o = offsets.find({topic, partition})) {
            w.group_offset({log_, partition}, name_, o->offset, o->metadata, o->at);
        } else {
            w.group_offset_gone({log_, partition}, name_);
        }
    }
    std::uint64_t append(errc& failed) {
        storage::record_location at;
        error_code ec;
        const std::uint64_t number = journal_->append(record_, at, ec);
        if (number == 0) {
            failed = static_cast<errc>(ec.value());
        }
        return number;
    }

    std::shared_ptr<storage::broker_journal> journal_;
    std::uint64_t log_;
    std::string name_;
    std::optional<storage::group_definition> said_{};
    std::set<std::uint32_t> changed_{}; ///< Partitions.
    bool is_deleted_ = false;
    std::vector<std::byte> record_{}; ///< Kept for its room.
};

} // namespace railmq::detail
