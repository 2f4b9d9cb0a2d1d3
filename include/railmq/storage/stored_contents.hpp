// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/entries.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace railmq::storage {

/// The messages, and the runs of logs, that one record stores, with their contents where the
/// record's bytes are.
///
/// Distinct objects: safe. Shared objects: unsafe.
class stored_contents {
public:
    struct message {
        std::uint64_t queue = 0;
        std::uint64_t id = 0;
        stored_content content{};
    };

    /// Takes in a record, in place of what there was; its bytes must stay where they are. False:
    /// it has an entry that makes no sense, and what comes before that one is there.
    [[nodiscard]] bool read(std::span<const std::byte> record) {
        clear();
        return read_entries(record, duration::zero(), collector{{}, all_, runs_});
    }
    void clear() noexcept {
        all_.clear();
        runs_.clear();
        next_ = 0;
    }

    /// The content of a message, or null. Constant time when they are asked for in their order.
    [[nodiscard]] const stored_content* find(std::uint64_t queue, std::uint64_t id) noexcept {
        for (std::size_t n = all_.size(); n != 0; --n) {
            const message& m = all_[next_];
            next_ = (next_ + 1) % all_.size();
            if (m.queue == queue && m.id == id) {
                return &m.content;
            }
        }
        return nullptr;
    }
    /// The content of a message that is a record of a log, valid until the next call; or null.
    [[nodiscard]] const stored_content* find(const log_record_name& record) {
        for (const log_run& run : runs_) {
            if (!(run.where == record.where) || record.offset - run.first >= run.count) {
                continue;
            }
            bool is_there = false;
            for_each_record(
                run, duration::zero(), [&](std::uint64_t offset, const log_run_record& r) {
                    if (offset == record.offset && !r.is_tombstone) {
                        is_there = content_of(r, beside_, of_record_);
                    }
                });
            return is_there ? &of_record_ : nullptr;
        }
        return nullptr;
    }
    /// The same of one that is such a record, or is stored as any other.
    [[nodiscard]] const stored_content*
    find(std::uint64_t queue, std::uint64_t id, const log_record_name& record) {
        return record.is_none() ? find(queue, id) : find(record);
    }
    [[nodiscard]] const std::vector<message>& all() const noexcept { return all_; }
    [[nodiscard]] const std::vector<log_run>& runs() const noexcept { return runs_; }

private:
    struct collector : entry_visitor {
        std::vector<message>& out;
        std::vector<log_run>& runs;
        collector(entry_visitor, std::vector<message>& o, std::vector<log_run>& r) noexcept
            : out{o}
            , runs{r} {}
        void
        stored(std::uint64_t queue, const core::message_image& m, const stored_content& content) {
            out.push_back({queue, m.id, content});
        }
        void run(const log_run& r) { runs.push_back(r); }
    };

    std::vector<message> all_{};
    std::vector<log_run> runs_{};
    stored_content of_record_{};
    std::vector<std::byte> beside_{};
    std::size_t next_ = 0; ///< Which one is most likely to be asked for.
};

} // namespace railmq::storage
