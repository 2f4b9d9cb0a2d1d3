// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/testing/detail/rising_numbers.hpp>
#include <railmq/testing/detail/story_book.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace railmq::testing::detail {

/// The offsets of logs, and the readers of their partitions.
class log_rules {
public:
    explicit log_rules(story_book& book)
        : book_{book} {}

    /// Event `i` confirms an append that was begun with event `begin`.
    void on_appended(message_story& s, std::size_t i, std::size_t begin) {
        const event& e = book_.at(i);
        auto& log = partitions_[{book_.queue_of(i), e.partition}];
        const bool is_known = log.records.count(*e.offset) != 0;
        if (note(s, i) && !is_known && !log.appended.add(*e.offset, begin, i)) {
            book_.report(
                violation_kind::offset_not_rising,
                s,
                i,
                {},
                text_of(*e.offset) + " is not larger than those given before");
        }
    }
    void on_read(message_story& s, std::size_t i) {
        const event& e = book_.at(i);
        note(s, i);
        auto& next =
            readers_.emplace(std::tuple{e.consumer, book_.queue_of(i), e.partition}, *e.offset)
                .first->second;
        if (*e.offset < next) {
            book_.report(
                violation_kind::offset_not_rising,
                s,
                i,
                {},
                text_of(*e.offset) + " was read, and the reader was at " + std::to_string(next));
        } else if (book_.rules().has_dense_offsets && *e.offset > next) {
            book_.report(
                violation_kind::offset_skipped,
                s,
                i,
                {},
                text_of(*e.offset) + " was read, and the next one was " + std::to_string(next));
        }
        next = *e.offset + 1;
    }
    void on_sought(std::size_t i) {
        const event& e = book_.at(i);
        readers_[{e.consumer, book_.queue_of(i), e.partition}] = e.offset.value_or(0);
    }
    /// Notes whose the offset is that event `i` tells. False: it was another's.
    bool note(message_story& s, std::size_t i) {
        const event& e = book_.at(i);
        s.is_record = true;
        auto& log = partitions_[{book_.queue_of(i), e.partition}];
        const std::uint64_t owner = log.records.emplace(*e.offset, s.message).first->second;
        if (owner != s.message) {
            book_.report(
                violation_kind::offset_reused,
                s,
                i,
                {},
                text_of(*e.offset) + " is that of message " + std::to_string(owner));
        }
        return owner == s.message;
    }
    /// A gap is no fault where records can be in it that are not known to be stored or not.
    void finish() {
        std::map<std::uint32_t, std::uint64_t> unsure;
        for (const message_story& s : book_.stories()) {
            if (!s.is_confirmed && !s.has_failed() && !s.is_record) {
                ++unsure[s.now.queue];
            }
        }
        for (const auto& [name, log] : partitions_) {
            const std::uint64_t first = log.records.begin()->first;
            const std::uint64_t width = log.records.rbegin()->first - first + 1;
            if (width - log.records.size() > unsure[name.first]) {
                report_gap(name, log, first);
            }
        }
    }

private:
    using partition_name = std::pair<std::uint32_t, std::uint32_t>;

    struct partition {
        std::map<std::uint64_t, std::uint64_t> records{}; ///< Offset: message.
        rising_numbers appended{};
    };

    void report_gap(partition_name name, const partition& log, std::uint64_t expected) {
        for (const auto& [offset, message] : log.records) {
            if (offset != expected) {
                book_.report(
                    {violation_kind::offset_skipped,
                     message,
                     book_.name_of(name.first),
                     {},
                     {},
                     {}},
                    "it follows a gap: no record has " + text_of(expected) + " of partition " +
                        std::to_string(name.second));
                return;
            }
            ++expected;
        }
    }
    [[nodiscard]] static std::string text_of(std::uint64_t offset) {
        std::string text{"offset "};
        return text.append(std::to_string(offset));
    }

    story_book& book_;
    std::map<partition_name, partition> partitions_{};
    /// The next offset of a consumer, in a log and a partition.
    std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>, std::uint64_t> readers_{};
};

} // namespace railmq::testing::detail
