// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/model/codec.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/exchange_entries.hpp>
#include <railmq/storage/inspect.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/journal_scan.hpp>
#include <railmq/storage/kept_state.hpp>
#include <railmq/storage/number_ranges.hpp>
#include <railmq/storage/salvage_logs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::storage {

struct salvage_options {
    journal_options journal{}; ///< Of the new one.
    journal_id fresh{};        ///< Its id, drawn by chance.
    /// Hears how many bytes have been gone through, of how many; they are gone through twice.
    std::function<void(std::uint64_t, std::uint64_t)> progress{};
};

/// Messages in a row that are lost.
struct lost_messages {
    std::uint64_t queue = 0; ///< Its number in the journal.
    std::string name{};      ///< Empty where it is not known.
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    /// Something that is intact speaks of them. Else only their numbers are missing: they were
    /// given out while what is damaged was written, and may never have been kept, or have left.
    bool is_certain = false;

    friend bool operator==(const lost_messages&, const lost_messages&) noexcept = default;
};

struct salvaged_queue {
    std::uint64_t number = 0;
    std::string name{};
    std::uint64_t messages = 0;
    /// Nothing intact says what it was called: the name is made up, and it holds bytes.
    bool is_nameless = false;
};

/// What a salvage has found, saved, and given up.
struct salvage_report {
    journal_scan_report scan{};
    std::vector<salvaged_queue> queues{};
    std::uint64_t messages = 0; ///< That were saved.
    std::uint64_t exchanges = 0;
    /// Of exchanges, that were saved. Nothing says which ones are among what is lost.
    std::uint64_t bindings = 0;
    std::vector<lost_messages> lost{};
    std::vector<salvaged_log> logs{};
    std::uint64_t records = 0; ///< Of logs, that were saved.
    std::vector<lost_records> lost_of_logs{};
    /// What says that messages have left may be among what is lost: they are there again.
    bool may_have_old = false;
    std::int64_t owner = 0; ///< Who has the directory, with `journal_locked`.
};

namespace detail {

/// Which of a queue's messages are missing.
struct salvage_account {
    std::uint64_t next_in_line = 0; ///< The numbers that the next messages would have.
    std::uint64_t next_delayed = kept_state::delayed_ids;
    std::uint64_t damage_seen = 0; ///< How much damage came before both were known.
    std::uint64_t damage_seen_delayed = 0;
    number_ranges certain{};
    number_ranges presumed{};

    void remove(std::uint64_t from, std::uint64_t to) {
        certain.remove(from, to);
        presumed.remove(from, to);
    }
    /// That number has been given out. What was given out before it, in what is damaged, is missed.
    void reach(std::uint64_t id, std::uint64_t damage) {
        const bool is_delayed = id >= kept_state::delayed_ids;
        std::uint64_t& next = is_delayed ? next_delayed : next_in_line;
        std::uint64_t& seen = is_delayed ? damage_seen_delayed : damage_seen;
        if (id >= next) {
            if (seen != damage) {
                presumed.add(next, id);
            }
            next = id + 1;
            seen = damage;
        }
    }
};

/// Finds out what queues and logs there have been: the last that is said of each, anywhere.
struct definition_collector : entry_visitor {
    std::map<std::uint64_t, queue_definition> all{};
    std::map<std::uint64_t, exchange_definition> exchanges{};
    std::map<std::uint64_t, log_definition> logs{};
    void queue(queue_definition d) { all[d.number] = std::move(d); }
    void exchange(exchange_definition d) { exchanges[d.number] = std::move(d); }
    void log(log_definition d) { logs[d.number] = std::move(d); }
};

/// Plays a damaged journal back.
class salvage_replay {
public:
    /// `known`: definitions that come anywhere in it. `is_whole`: it begins with its first record.
    salvage_replay(definition_collector known, bool is_whole)
        : of_logs{std::move(known.logs), is_whole}
        , known_{std::move(known.all)}
        , known_exchanges_{std::move(known.exchanges)}
        , is_whole_{is_whole} {}

    kept_state state{};
    salvage_log_accounts of_logs;
    std::map<std::uint64_t, salvage_account> accounts{};
    std::set<std::uint64_t> nameless{};

    void damage(const journal_damage& d) { damage_ += d.loses_records() ? 1 : 0; }

    void record(std::uint64_t segment, const record_view& r) {
        if (r.header.kind != record_kind::data) {
            return;
        }
        // Messages of a queue of which nothing was said, because that is lost, would be ignored.
        static_cast<void>(read_entries(r.payload, duration::zero(), creator{{}, *this}));
        of_logs.create(r.payload, state);
        if (!state.add(r.payload, {segment, r.offset})) {
            ++damage_;
        }
        static_cast<void>(read_entries(r.payload, duration::zero(), accountant{{}, *this}));
        of_logs.count(r.payload);
    }

    /// Of two queues, or logs, of one name, the older one was deleted: else the name had not been
    /// free.
    void remove_deleted() {
        std::map<std::string, std::uint64_t> names;
        std::vector<std::uint64_t> old_logs;
        for (const auto& [number, log] : state.logs) {
            const auto [it, is_new] = names.emplace(log.definition.name, number);
            if (!is_new) {
                old_logs.push_back(std::exchange(it->second, number));
            }
        }
        for (const std::uint64_t number : old_logs) {
            state.logs.erase(number);
            of_logs.remove_log(number);
        }
        names.clear();
        std::vector<std::uint64_t> old;
        for (const auto& [number, q] : state.queues) {
            const auto [it, is_new] = names.emplace(q.definition.name, number);
            if (!is_new) {
                old.push_back(std::exchange(it->second, number));
            }
        }
        for (const std::uint64_t number : old) {
            state.deleted(number);
            accounts.erase(number);
        }
        names.clear();
        old.clear();
        for (const auto& [number, x] : state.exchanges.all) {
            const auto [it, is_new] = names.emplace(x.definition.name, number);
            if (!is_new) {
                old.push_back(std::exchange(it->second, number));
            }
        }
        for (const std::uint64_t number : old) {
            state.exchange_gone(number);
        }
    }
    [[nodiscard]] std::string name_of(std::uint64_t queue) const {
        if (const auto it = state.queues.find(queue); it != state.queues.end()) {
            return it->second.definition.name;
        }
        const auto it = known_.find(queue);
        return it != known_.end() ? it->second.name : std::string{};
    }

private:
    struct creator : entry_visitor {
        salvage_replay& self;
        creator(entry_visitor, salvage_replay& s) noexcept
            : self{s} {}
        void stored(std::uint64_t q, const core::message_image&, const stored_content&) {
            self.create(q);
        }
        void listed(std::uint64_t q, const core::message_image&, record_location, std::uint32_t) {
            self.create(q);
        }
        void
        fed(std::uint64_t q,
            const core::message_image&,
            const log_record_name&,
            record_location,
            std::uint32_t) {
            self.create(q);
        }
        void fed_run(std::uint64_t q, const fed_messages&) { self.create(q); }
        void feed(const feed_definition& d) { self.create(d.queue); }
        /// Before it is taken in, and subscriptions of it are not known any more.
        void log_deleted(std::uint64_t log) {
            for (const auto& [number, q] : self.state.queues) {
                if (q.feed && q.feed->definition.log == log) {
                    self.accounts.erase(number);
                    self.deleted_.insert(number);
                }
            }
        }
        void bound(const binding_definition& b) { self.create_exchange(b.exchange); }
        void exchange_gone(std::uint64_t x) { self.gone_exchanges_.insert(x); }
    };
    struct accountant : entry_visitor {
        salvage_replay& self;
        accountant(entry_visitor, salvage_replay& s) noexcept
            : self{s} {}
        void queue(const queue_definition& d) {
            // What is said later of a queue says how far its numbers have come.
            const bool is_new = !self.accounts.contains(d.number);
            salvage_account& a = self.account(d.number);
            if (is_new) {
                a.next_in_line = std::max(a.next_in_line, d.next_position);
                a.next_delayed = std::max(a.next_delayed, kept_state::delayed_ids + d.next_delayed);
                a.damage_seen = a.damage_seen_delayed = self.damage_;
                return;
            }
            if (d.next_position != 0) {
                a.reach(d.next_position - 1, self.damage_);
            }
            if (d.next_delayed != 0) {
                a.reach(kept_state::delayed_ids + d.next_delayed - 1, self.damage_);
            }
        }
        void deleted(std::uint64_t q) {
            self.accounts.erase(q);
            self.deleted_.insert(q);
        }
        void stored(std::uint64_t q, const core::message_image& m, const stored_content&) {
            there(q, m);
        }
        void listed(std::uint64_t q, const core::message_image& m, record_location, std::uint32_t) {
            there(q, m);
        }
        void
        fed(std::uint64_t q,
            const core::message_image& m,
            const log_record_name&,
            record_location,
            std::uint32_t) {
            there(q, m);
        }
        void fed_run(std::uint64_t q, const fed_messages& run) {
            if (!self.deleted_.contains(q)) {
                salvage_account& a = self.account(q);
                a.reach(run.first, self.damage_);
                a.reach(run.first + run.count - 1, self.damage_);
                a.remove(run.first, run.first + run.count);
            }
        }
        void changed(std::uint64_t q, const core::message_image& m) {
            if (!self.deleted_.contains(q)) {
                self.account(q).reach(m.position, self.damage_);
                self.account(q).remove(m.position, m.position + 1);
                self.speak_of(q, m.id, 1);
            }
        }
        void
        held(std::uint64_t q, std::uint64_t first, std::uint64_t n, std::uint32_t, time_point) {
            self.speak_of(q, first, n);
        }
        void gone(std::uint64_t q, std::uint64_t first, std::uint64_t n) {
            if (!self.deleted_.contains(q) && n != 0) {
                self.account(q).reach(first + n - 1, self.damage_);
                self.account(q).remove(first, first + n);
            }
        }
        void range(std::uint64_t q, std::uint64_t from, std::uint64_t to) {
            self.account(q).remove(from, to);
        }
        void there(std::uint64_t q, const core::message_image& m) {
            if (self.deleted_.contains(q)) {
                return;
            }
            salvage_account& a = self.account(q);
            for (const std::uint64_t id : {m.id, m.position}) {
                a.reach(id, self.damage_);
                a.remove(id, id + 1);
            }
        }
    };

    void create(std::uint64_t number) {
        if (state.queues.contains(number) || deleted_.contains(number)) {
            return;
        }
        queue_definition d;
        if (const auto it = known_.find(number); it != known_.end()) {
            d = it->second;
        } else {
            d.number = number;
            d.name = "salvaged." + std::to_string(number);
            d.format = codec<std::vector<std::byte>>::name();
            nameless.insert(number);
        }
        state.queue(std::move(d));
    }
    /// One of which only a binding is left that is intact, and what it is, said elsewhere.
    void create_exchange(std::uint64_t number) {
        const auto it = known_exchanges_.find(number);
        if (it != known_exchanges_.end() && !state.exchanges.all.contains(number) &&
            !gone_exchanges_.contains(number)) {
            state.exchange(it->second);
        }
    }
    salvage_account& account(std::uint64_t queue) {
        const auto [it, is_new] = accounts.try_emplace(queue);
        if (is_new && !is_whole_) {
            it->second.damage_seen = it->second.damage_seen_delayed = damage_;
        }
        return it->second;
    }
    /// Something is said of messages that must therefore have been there.
    void speak_of(std::uint64_t number, std::uint64_t first, std::uint64_t n) {
        if (deleted_.contains(number) || damage_ == 0 || n == 0) {
            return;
        }
        salvage_account& a = account(number);
        a.reach(first + n - 1, damage_);
        a.presumed.remove(first, first + n);
        const auto q = state.queues.find(number);
        std::uint64_t from = first;
        if (q != state.queues.end()) {
            q->second.messages.for_each_from(first, [&](std::uint64_t id, const kept_message&) {
                if (id - first >= n) {
                    return false;
                }
                a.certain.add(from, id);
                from = id + 1;
                return true;
            });
        }
        a.certain.add(from, first + n);
    }

    std::map<std::uint64_t, queue_definition> known_;
    std::map<std::uint64_t, exchange_definition> known_exchanges_;
    bool is_whole_;
    std::set<std::uint64_t> deleted_{};
    std::set<std::uint64_t> gone_exchanges_{};
    std::uint64_t damage_ = 0; ///< So much of it came before.
};

/// Writes what was saved, so that it is all there or cannot be opened.
template <directory From, directory To>
void write_salvaged(
    journal_scanner<From>& scanner,
    salvage_replay& replay,
    To to,
    const salvage_options& options,
    salvage_report& report,
    error_code& ec) {
    journal_options with = options.journal;
    with.max_record_bytes = std::numeric_limits<std::uint32_t>::max();
    recovery_report ignored;
    auto j = journal<To>::open(
        std::move(to),
        with,
        options.fresh,
        [](std::uint64_t, std::span<const std::byte>, record_location) {},
        ignored,
        ec);
    if (ec) {
        return;
    }
    std::uint64_t unwritten = 0;
    const auto append = [&](std::span<const std::byte> bytes) {
        constexpr std::uint64_t in_memory = std::uint64_t{1} << 20;
        if (!ec && j->append(bytes, ec) != 0) {
            unwritten += bytes.size();
            if (unwritten >= in_memory) {
                j->write(ec);
                unwritten = 0;
            }
        }
    };
    // A first segment that no broker takes for its own, until reading begins with the second.
    constexpr std::string_view unfinished = "a salvage that was not finished";
    append(std::as_bytes(std::span{unfinished.data(), unfinished.size()}));
    if (!ec) {
        j->roll(ec);
    }
    const std::uint64_t begin = j->segment();
    std::vector<std::byte> record;
    if (replay.state.latest != time_point::min()) {
        entry_writer{record, duration::zero()}.clock(replay.state.latest);
        append(record);
    }
    for (const auto& [number, q] : replay.state.queues) {
        record.clear();
        entry_writer{record, duration::zero()}.queue(q.definition);
        // Of one whose log is lost, what it had taken is left.
        if (q.feed && replay.state.logs.contains(q.feed->definition.log)) {
            feed_entry_writer w{record, duration::zero()};
            w.feed(q.feed->definition);
            for (const auto& [partition, position] : q.feed->positions) {
                w.fed_to(number, partition, position);
            }
        }
        append(record);
        for (const auto& [key, first] : q.remembered_at(replay.state.latest)) {
            record.clear();
            entry_writer{record, duration::zero()}.remembered(number, key, first.id, first.at);
            append(record);
        }
    }
    for (const auto& [number, x] : replay.state.exchanges.all) {
        record.clear();
        entry_writer{record, duration::zero()}.exchange(x.definition);
        append(record);
        ++report.exchanges;
    }
    for (const auto& [number, x] : replay.state.exchanges.all) {
        x.bindings.for_each([&](const binding_definition& b) {
            record.clear();
            entry_writer{record, duration::zero()}.bound(b);
            append(record);
            ++report.bindings;
        });
    }
    content_reader contents{scanner};
    for (auto& [number, q] : replay.state.queues) {
        salvaged_queue done{number, q.definition.name, 0, replay.nameless.contains(number)};
        salvage_account& account = replay.accounts[number];
        q.messages.for_each_from(
            0, [&, queue = number, &of = q](std::uint64_t id, const kept_message& m) {
                const auto content = contents.find(queue, id, of.record_of(id), m.where.location());
                if (!content) {
                    // Its segment may have been deleted because it had left, and what said so is
                    // lost.
                    const bool may_have_left =
                        report.may_have_old && !scanner.has_segment(m.where.segment());
                    account.remove(id, id + 1);
                    (may_have_left ? account.presumed : account.certain).add(id, id + 1);
                    return true;
                }
                record.clear();
                entry_writer{record, duration::zero()}.stored(queue, m.image(id), *content);
                append(record);
                done.messages += ec ? 0 : 1;
                return !ec;
            });
        report.messages += done.messages;
        report.queues.push_back(std::move(done));
    }
    report.logs = write_salvaged_logs(
        scanner,
        replay.state,
        replay.of_logs,
        [&](std::span<const std::byte> bytes) {
            append(bytes);
            return !ec;
        },
        [&](std::uint64_t segment) {
            return report.may_have_old && !scanner.has_segment(segment);
        });
    for (const salvaged_log& log : report.logs) {
        report.records += log.records;
    }
    if (!ec) {
        j->read_from(begin, ec);
    }
    if (!ec) {
        j->remove_segment(begin - 1, ec);
    }
    if (!ec && report.scan.was_closed) {
        // Else what was held counts as held when the process died, as it would have.
        j->close(ec);
    }
}

} // namespace detail

/// Copies everything that can still be read of a damaged journal into a new one, which a broker
/// then opens as if nothing else had ever been: all messages whose records are intact, as they
/// were, with their numbers, and likewise all records of logs, with their offsets, and what groups
/// and producers were known. The old one is not changed. `report` is the account of what is lost.
///
/// What cannot be known is decided for the message: one of which nobody can say any more that it
/// has left is there again. What follows the last confirmed record and was never confirmed itself,
/// as after a crash, is left out, as it is in opening. A queue whose name is lost becomes
/// `salvaged.<number>`, of bytes, and a log `salvaged.log.<number>`.
///
/// `to` must have no journal; until all of it is there, a broker that opens it is told that it is
/// damaged. After an error what is in it is of no use.
///
/// Errors: `journal_locked` while a broker has `from`; `not_found`, when there is nothing in it;
/// `already_exists`, when there is something in `to`; `invalid_argument` for files of an unknown
/// format; `no_space`, `io_error`.
template <readable_directory From, directory To>
void salvage(
    From from, To to, const salvage_options& options, salvage_report& report, error_code& ec) {
    report = {};
    const auto lock = from.lock_to_read(report.owner, ec);
    if (ec) {
        ec = ec == errc::journal_locked ? ec : make_error_code(errc::io_error);
        return;
    }
    const auto names = to.names(ec);
    if (!ec && std::any_of(names.begin(), names.end(), [](const std::string& name) {
            return segment_number(name).has_value();
        })) {
        ec = errc::already_exists;
    }
    if (ec) {
        ec = ec == errc::already_exists ? ec : make_error_code(errc::io_error);
        return;
    }
    journal_scanner scanner{from};
    scanner.open(ec);
    if (!ec && scanner.is_empty()) {
        ec = errc::not_found;
    }
    if (ec) {
        return;
    }

    struct first_look : scan_visitor {
        const salvage_options& options;
        detail::definition_collector known{};
        std::vector<journal_damage> unknown{};
        first_look(scan_visitor, const salvage_options& o)
            : options{o} {}
        void record(std::uint64_t segment, const record_view& r) {
            if (r.header.kind == record_kind::data &&
                !read_entries(r.payload, duration::zero(), known)) {
                const std::uint64_t end = r.offset + record_size(r.header.length);
                const std::uint64_t number = r.header.number;
                unknown.push_back({damage_kind::unknown, segment, r.offset, end, number, number});
            }
        }
        void progress(std::uint64_t done, std::uint64_t all) const {
            if (options.progress) {
                options.progress(done, 2 * all);
            }
        }
    } look{{}, options};
    scanner.scan(0, look, report.scan, ec);
    if (ec) {
        return;
    }
    auto& damage = report.scan.damage;
    damage.insert(damage.end(), look.unknown.begin(), look.unknown.end());

    // Where all is intact that opening reads, that says it all. Else what is older speaks, too.
    const std::uint64_t begin = scanner.read_from();
    report.may_have_old = std::any_of(damage.begin(), damage.end(), [&](const auto& d) {
        return d.loses_records() && d.segment >= begin;
    });
    const std::uint64_t first = report.may_have_old ? 0 : begin;
    struct second_look : scan_visitor {
        const salvage_options& options;
        detail::salvage_replay replay;
        second_look(scan_visitor, const salvage_options& o, detail::salvage_replay r)
            : options{o}
            , replay{std::move(r)} {}
        void record(std::uint64_t segment, const record_view& r) { replay.record(segment, r); }
        void damage(const journal_damage& d) { replay.damage(d); }
        void progress(std::uint64_t done, std::uint64_t all) const {
            if (options.progress) {
                options.progress(all + done, 2 * all);
            }
        }
    } again{{}, options, {std::move(look.known), begin <= 1}};
    journal_scan_report ignored;
    scanner.scan(first, again, ignored, ec);
    if (ec) {
        return;
    }
    again.replay.remove_deleted();
    detail::write_salvaged(scanner, again.replay, std::move(to), options, report, ec);
    report.lost_of_logs = again.replay.of_logs.lost(again.replay.state);
    for (const auto& [queue, account] : again.replay.accounts) {
        for (const bool is_certain : {true, false}) {
            for (const auto& [from_id, to_id] :
                 (is_certain ? account.certain : account.presumed).all()) {
                report.lost.push_back(
                    {queue, again.replay.name_of(queue), from_id, to_id - from_id, is_certain});
            }
        }
    }
}

} // namespace railmq::storage
