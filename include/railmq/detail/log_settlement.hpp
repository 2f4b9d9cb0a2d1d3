// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/ack_tracker.hpp>
#include <railmq/core/group_offsets.hpp>
#include <railmq/detail/log_group.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/model/errc.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace railmq::detail {

/// What a transaction acknowledges of one consumer of a log, and commits of its group.
///
/// What it commits of a partition has everything below it acknowledged, and what it acknowledges
/// is below what it commits. So whoever comes next gets exactly what no transaction has done.
///
/// Thread safety: from `begin` to `end` or `undo` with the reader's lock held, and the group's.
template <class Runtime>
class log_settlement {
public:
    using reader_type = log_reader<Runtime>;
    using group_type = log_group<Runtime>;
    using mark_type = typename reader_type::position_mark;

    /// The reader is a member of a group.
    explicit log_settlement(std::shared_ptr<reader_type> reader) noexcept
        : reader_{std::move(reader)} {}

    [[nodiscard]] reader_type& reader() const noexcept { return *reader_; }
    [[nodiscard]] group_type& group() const noexcept { return *reader_->group(); }
    /// A record, by its offset.
    void ack(const mark_type& m) { acks_.push_back(m); }
    /// That far they were acknowledged by others.
    void commit_to(std::span<const mark_type> all) {
        marks_.insert(marks_.end(), all.begin(), all.end());
    }

    /// That will be written, at most: one entry for each partition.
    [[nodiscard]] std::size_t bytes() const noexcept {
        const std::size_t n = acks_.size() + marks_.size();
        return 320 * std::min<std::size_t>(n, reader_->log().partitions());
    }

    /// Commits it in the group, if all of it can be. Errors: `fenced`, `unknown_member`,
    /// `stale_delivery`, `sequence_out_of_order` where a record below one of these is still in
    /// work, and those of the group. Throws `std::bad_alloc`. After an error nothing has changed.
    [[nodiscard]] errc begin() {
        parts_.clear();
        commit_ = {};
        if (const errc why = reader_->log().closed(); why != errc{}) {
            return why;
        }
        const errc lost = reader_->member_.lost.load(std::memory_order_acquire);
        if (lost != errc{}) {
            return lost;
        }
        for (const mark_type& a : acks_) {
            part* const p = part_of(a);
            if (p == nullptr || !p->tracker.ack(a.epoch, a.offset)) {
                return errc::stale_delivery;
            }
            p->last = p->has_acks ? std::max(p->last, a.offset) : a.offset;
            p->has_acks = true;
        }
        for (const mark_type& m : marks_) {
            part* const p = part_of(m);
            if (p == nullptr) {
                return errc::stale_delivery;
            }
            p->offset = std::max(p->offset, m.offset);
        }
        for (part& p : parts_) {
            if (p.has_acks) {
                p.offset = p.tracker.committable();
                if (p.offset <= p.last) {
                    return errc::sequence_out_of_order;
                }
            }
            if (is_news(p)) {
                commit_.what.push_back({{the_topic, p.of->partition}, p.offset, {}});
                commit_.back.push_back(
                    p.of->is_rewound ? core::rewinding::allowed : core::rewinding::refused);
            }
        }
        return commit_.what.empty() ? errc{}
                                    : group().begin_commit(reader_->member_, commit_, woken_);
    }
    /// Takes it back.
    void undo() noexcept { group().undo_commit(commit_); }
    /// Appends it to a record of the journal. Throws `std::bad_alloc`.
    void put(std::vector<std::byte>& record) const { group().put_commit(commit_, record); }
    void was_written() noexcept { group().commit_was_written(commit_); }
    /// It stays.
    void end() noexcept {
        for (part& p : parts_) {
            if (is_news(p)) {
                p.of->committed = p.offset;
                p.of->is_rewound = false;
            }
            if (p.has_acks) {
                p.of->tracker = std::move(p.tracker);
            }
        }
        for (const mark_type& a : acks_) {
            reader_->forget_failure(*reader_->find(a.partition), a.offset);
        }
        reader_->changes_.fetch_add(1);
        reader_->wake_if_waiting(woken_);
    }
    /// With no lock held: it is not to happen any more, and what it took over comes again.
    void drop() noexcept {
        for (const mark_type& a : acks_) {
            reader_->drop(a);
        }
        acks_.clear();
        marks_.clear();
    }
    /// With no lock held: who was woken by it looks. Returns why something of the group could not
    /// be written, for `broker_logs::tell_unwritten`.
    [[nodiscard]] errc finish() noexcept {
        woken_.send();
        return std::exchange(commit_.unwritten, errc{});
    }

private:
    /// A partition.
    struct part {
        log_lane<Runtime>* of = nullptr;
        core::ack_tracker tracker{}; ///< What it becomes.
        bool has_acks = false;
        std::uint64_t last = 0;   ///< The last that is acknowledged now.
        std::uint64_t offset = 0; ///< To be committed.
    };

    /// What is committed already by another way is not committed again.
    [[nodiscard]] static bool is_news(const part& p) noexcept {
        return p.of->is_rewound ? p.offset != p.of->committed : p.offset > p.of->committed;
    }
    /// Null: the partition is not read any more, or anew.
    [[nodiscard]] part* part_of(const mark_type& m) {
        auto* const l = reader_->find(m.partition, m.epoch);
        if (l == nullptr) {
            return nullptr;
        }
        const auto known =
            std::find_if(parts_.begin(), parts_.end(), [l](const part& p) { return p.of == l; });
        if (known != parts_.end()) {
            return &*known;
        }
        part& made = parts_.emplace_back();
        made.of = l;
        made.tracker = l->tracker;
        return &made;
    }

    std::shared_ptr<reader_type> reader_;
    std::vector<mark_type> acks_{};
    std::vector<mark_type> marks_{};
    std::vector<part> parts_{};
    typename group_type::joint_commit commit_{};
    woken_list<Runtime> woken_{};
};

} // namespace railmq::detail
