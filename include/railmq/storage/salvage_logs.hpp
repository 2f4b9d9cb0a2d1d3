// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/codec.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/journal_scan.hpp>
#include <railmq/storage/kept_logs.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/number_ranges.hpp>
#include <railmq/storage/stored_contents.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::storage {

/// Records of a log with offsets in a row that are lost.
struct lost_records {
    std::uint64_t log = 0; ///< Its number in the journal.
    std::string name{};    ///< Empty where it is not known.
    std::uint32_t partition = 0;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    /// Something that is intact says that they are there. Else only their offsets are missing: they
    /// were given out while what is damaged was written, and may have left since.
    bool is_certain = false;

    friend bool operator==(const lost_records&, const lost_records&) noexcept = default;
};

struct salvaged_log {
    std::uint64_t number = 0;
    std::string name{};
    std::uint32_t partitions = 0;
    std::uint64_t records = 0;
    /// Nothing intact says what it was called: the name is made up, and it holds bytes.
    bool is_nameless = false;
};

namespace detail {

/// Which of a partition's records are missing.
struct log_account {
    std::uint64_t next = 0; ///< The offset that the next record would have.
    number_ranges certain{};
    number_ranges presumed{};
};

/// Takes notice of what records of a damaged journal say of logs.
///
/// Distinct objects: safe. Shared objects: unsafe.
class salvage_log_accounts {
public:
    /// `known`: definitions that come anywhere in it. `is_whole`: it begins with its first record.
    salvage_log_accounts(std::map<std::uint64_t, log_definition> known, bool is_whole)
        : known_{std::move(known)}
        , is_whole_{is_whole} {}

    std::map<log_place, log_account> accounts{};
    std::set<std::uint64_t> nameless{};

    /// Before `to` takes the record in: makes logs of which nothing was said, because that is lost.
    void create(std::span<const std::byte> record, kept_logs& to) {
        static_cast<void>(read_entries(record, duration::zero(), creator{{}, *this, to}));
    }
    /// Afterwards.
    void count(std::span<const std::byte> record) {
        static_cast<void>(read_entries(record, duration::zero(), accountant{{}, *this}));
    }
    void remove_log(std::uint64_t log) {
        std::erase_if(accounts, [&](const auto& one) { return one.first.log == log; });
    }
    [[nodiscard]] std::string name_of(std::uint64_t log, const kept_logs& in) const {
        if (const auto it = in.logs.find(log); it != in.logs.end()) {
            return it->second.definition.name;
        }
        const auto it = known_.find(log);
        return it != known_.end() ? it->second.name : std::string{};
    }
    [[nodiscard]] std::vector<lost_records> lost(const kept_logs& in) const {
        std::vector<lost_records> all;
        for (const auto& [where, account] : accounts) {
            for (const bool is_certain : {true, false}) {
                for (const auto& [from, to] :
                     (is_certain ? account.certain : account.presumed).all()) {
                    all.push_back(
                        {where.log,
                         name_of(where.log, in),
                         where.partition,
                         from,
                         to - from,
                         is_certain});
                }
            }
        }
        return all;
    }

private:
    struct creator : entry_visitor {
        salvage_log_accounts& self;
        kept_logs& to;
        creator(entry_visitor, salvage_log_accounts& s, kept_logs& t) noexcept
            : self{s}
            , to{t} {}
        void run(const log_run& r) { self.make(r.where, to); }
        void partition(log_place p, const kept_extent&) { self.make(p, to); }
        void row(log_place p, std::uint64_t, std::uint64_t, record_location, std::uint32_t) {
            self.make(p, to);
        }
        void group(std::uint64_t log, const group_definition&) { self.make({log, 0}, to); }
    };
    struct accountant : entry_visitor {
        salvage_log_accounts& self;
        accountant(entry_visitor, salvage_log_accounts& s) noexcept
            : self{s} {}
        void log_deleted(std::uint64_t log) {
            self.remove_log(log);
            self.deleted_.insert(log);
        }
        void run(const log_run& r) {
            self.reach(r.where, r.first, r.first + r.count);
            self.speak(r.where, r.first, r.first + r.count);
        }
        void partition(log_place p, const kept_extent& e) {
            self.reach(p, e.end, e.end);
            self.speak(p, 0, e.start);
        }
        void removed(log_place p, std::uint64_t first, std::uint64_t n) {
            self.speak(p, first, first + n);
        }
        void rows(log_place p, std::uint64_t from, std::uint64_t to) { self.speak(p, from, to); }
    };

    void make(log_place where, kept_logs& to) {
        if (deleted_.contains(where.log)) {
            return;
        }
        if (const auto it = to.logs.find(where.log); it != to.logs.end()) {
            auto& d = it->second.definition;
            d.partitions = std::max(d.partitions, where.partition + 1);
            return;
        }
        log_definition d;
        if (const auto it = known_.find(where.log); it != known_.end()) {
            d = it->second;
        } else {
            d.number = where.log;
            d.name = "salvaged.log." + std::to_string(where.log);
            d.format = codec<std::vector<std::byte>>::name();
            nameless.insert(where.log);
        }
        d.partitions = std::max(d.partitions, where.partition + 1);
        to.log(std::move(d));
    }
    /// Offsets up to `end` have been given out, and what was seen last begins at `first`.
    void reach(log_place where, std::uint64_t first, std::uint64_t end) {
        if (deleted_.contains(where.log)) {
            return;
        }
        const auto [it, is_new] = accounts.try_emplace(where);
        log_account& a = it->second;
        if (first > a.next && (!is_new || is_whole_)) {
            a.presumed.add(a.next, first);
        }
        a.next = std::max(a.next, end);
    }
    /// What became of these is known.
    void speak(log_place where, std::uint64_t from, std::uint64_t to) {
        if (const auto it = accounts.find(where); it != accounts.end()) {
            it->second.presumed.remove(from, to);
        }
    }

    std::map<std::uint64_t, log_definition> known_;
    bool is_whole_;
    std::set<std::uint64_t> deleted_{};
};

/// Writes what was saved of logs: `append(record)` for each record of the new journal, until it
/// returns false. `may_have_left(segment)`: whether the segment may be missing because nothing of
/// it was wanted any more.
template <directory From, class Append, class MayHaveLeft>
[[nodiscard]] std::vector<salvaged_log> write_salvaged_logs(
    journal_scanner<From>& scanner,
    const kept_logs& from,
    salvage_log_accounts& known,
    Append&& append,
    MayHaveLeft&& may_have_left) {
    std::vector<salvaged_log> saved;
    std::vector<std::byte> record;
    log_entry_writer w{record, duration::zero()};
    for (const auto& [number, log] : from.logs) {
        const bool is_nameless = known.nameless.contains(number);
        salvaged_log done{number, log.definition.name, log.definition.partitions, 0, is_nameless};
        record.clear();
        w.log(log.definition);
        for (const auto& [name, g] : log.groups) {
            w.group(number, g.definition);
            for (const auto& [partition, o] : g.offsets) {
                w.group_offset({number, partition}, name, o.offset, o.metadata, o.at);
            }
        }
        if (!append(record)) {
            return saved;
        }
        for (const auto& [partition, p] : log.partitions) {
            const log_place where{number, partition};
            log_account& account = known.accounts[where];
            record.clear();
            w.partition(where, p.extent);
            for (const auto& [id, producer] : p.producers) {
                w.producer(where, producer);
            }
            if (!append(record)) {
                return saved;
            }
            record_location loaded{};
            stored_contents contents;
            bool goes_on = true;
            p.rows.for_each_from(0, [&](std::uint64_t first, const log_rows::row& row) {
                const std::uint64_t end = first + row.count;
                if (!(loaded == row.at.location())) {
                    contents.clear();
                    loaded = row.at.location();
                    if (const auto read = scanner.read(loaded)) {
                        static_cast<void>(contents.read(read->payload));
                    }
                }
                const log_run* found = nullptr;
                for (const log_run& run : contents.runs()) {
                    if (run.where == where && run.first <= first && end <= run.first + run.count) {
                        found = &run;
                    }
                }
                if (found == nullptr) {
                    account.presumed.remove(first, end);
                    (may_have_left(row.at.segment()) ? account.presumed : account.certain)
                        .add(first, end);
                    return true;
                }
                record.clear();
                w.run(where, first, row.count, found->appended);
                for_each_record(
                    *found, duration::zero(), [&](std::uint64_t offset, const log_run_record& one) {
                        if (offset >= first && offset < end) {
                            w.records(one.all);
                        }
                    });
                goes_on = append(record);
                done.records += goes_on ? row.count : 0;
                return goes_on;
            });
            record.clear();
            for (const auto& [offset, when] : p.horizons) {
                w.horizon(where, offset, when);
            }
            if (!goes_on || (!record.empty() && !append(record))) {
                return saved;
            }
        }
        saved.push_back(std::move(done));
    }
    return saved;
}

} // namespace detail
} // namespace railmq::storage
