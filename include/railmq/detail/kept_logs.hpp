// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/bytes.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/broker_logs.hpp>
#include <railmq/detail/kept_queues.hpp>
#include <railmq/detail/line_journal.hpp>
#include <railmq/detail/line_restorer.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_group.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/wake_up_timer.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/kept_logs.hpp>
#include <railmq/storage/log_entries.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// How logs outlive their process: how one is made in the journal, and how one that is there takes
/// its records and groups back when it is opened.
namespace railmq::detail {

template <class Runtime>
errc log_core<Runtime>::restore_line(
    std::uint32_t number, const storage::kept_partition& kept, std::vector<undecodable>& bad) {
    const auto in_broker_time = [wall = broker_->journal()->wall()](time_point t) {
        return t == never ? never : saturating_add(t, -wall);
    };
    return line(number)->with_journal([&](auto& p, auto& c, auto&) {
        line_restorer<Runtime> records{*broker_, *type_.ops, {kept_as_, number}, p, bad};
        if (const errc e = records.restore(kept.rows); e != errc{}) {
            return e == errc::offset_out_of_range ? errc::journal_corrupt : e;
        }
        if (kept.extent.end > p.end_offset() && p.skip_to(kept.extent.end) != errc{}) {
            return errc::journal_corrupt;
        }
        c.set_checkpoint(kept.extent.checkpoint);
        for (const auto& [offset, when] : kept.horizons) {
            c.restore_horizon(offset, in_broker_time(when));
        }
        std::vector<storage::kept_producer> producers;
        for (const auto& [id, one] : kept.producers) {
            producers.push_back(one);
            producers.back().used = in_broker_time(one.used);
        }
        std::sort(producers.begin(), producers.end(), [](const auto& x, const auto& y) {
            return x.used < y.used;
        });
        for (const auto& one : producers) {
            p.producers().restore(one);
        }
        return errc{};
    });
}

template <class Runtime>
template <class NextNumber>
errc log_core<Runtime>::restore(
    storage::kept_log& from, NextNumber&& next_number, std::vector<undecodable>& bad) {
    for (const auto& [number, kept] : from.partitions) {
        if (const errc e = restore_line(number, kept, bad); e != errc{}) {
            return e;
        }
    }
    for (const auto& [name, kept] : from.groups) {
        const auto& d = kept.definition;
        const bool had_members = d.emptied == never;
        auto made = std::make_shared<group_type>(
            broker_,
            next_number(),
            kept_as_,
            name_,
            name,
            d.options,
            partitions(),
            d.generation + (had_members ? 1 : 0));
        made->restore(kept, broker_->journal()->wall());
        groups_.emplace(name, std::move(made));
    }
    // Nothing fails from here on: until then the log is as it was, and not opened.
    for (auto& [number, kept] : from.partitions) {
        line(number)->with_journal([&, &mine = kept](auto&, auto&, auto& journal) {
            journal.restore(mine);
            return 0;
        });
    }
    return errc{};
}

template <class Runtime>
void log_core<Runtime>::settle_restored(std::vector<undecodable>& bad, queue_core<Runtime>* to) {
    for (auto& m : bad) {
        if (to != nullptr) { // else it stays where it is, and is tried again with the next opening
            set_aside(m, *to);
        }
    }
    const time_point now = broker_->clock().now();
    for (line_type* l : lines()) {
        line_record kept;
        l->apply_retention(now, kept);
        after(kept);
    }
    for (const auto& g : groups()) {
        (void)g->size(); // what has expired meanwhile is forgotten
    }
}

template <class Runtime>
void log_core<Runtime>::set_aside(undecodable& m, queue_core<Runtime>& to) {
    struct removal final : joint_entries {
        removal(line_journal<Runtime>& j, std::uint64_t o) noexcept
            : journal{j}
            , offset{o} {}
        void put(std::vector<std::byte>& record) override { journal.put_removed(offset, record); }
        void written(storage::record_location) noexcept override { journal.was_removed(offset); }
        line_journal<Runtime>& journal;
        const std::uint64_t offset;
    };
    auto fx = to.make_effects();
    bool has_moved = false;
    {
        const std::lock_guard guard{to.mutex()};
        has_moved = line(m.partition)->with_journal([&](auto&, auto&, auto& journal) {
            journal.prepare_removal();
            removal removed{journal, m.offset};
            return to.take_undecodable(name_, m.offset, std::move(m.props), m.payload, removed, fx);
        });
    }
    if (has_moved && broker_->is_listening()) {
        notices::dead_lettered n{};
        n.queue = name_;
        n.at = broker_->clock().now();
        n.id = m.offset;
        n.reason = death_reason::undecodable;
        n.target = to.name();
        fx.note(std::move(n));
    }
    to.finish(fx);
}

template <class Runtime>
bool log_core<Runtime>::list_again(
    log_listing& at, std::size_t max, std::vector<std::byte>& record) {
    using part_type = log_listing::part_type;
    record.clear();
    const auto append = [&] {
        storage::record_location where;
        error_code ec;
        return record.empty() || broker_->journal()->append(record, where, ec) != 0;
    };
    switch (at.part) {
    case part_type::definition: {
        std::lock_guard guard{kept_mutex_};
        if (is_deleted_) {
            at.part = part_type::done; // saying it again would bring it back
            return true;
        }
        storage::log_entry_writer{record, duration::zero()}.log(definition(partitions()));
        at.part = part_type::groups;
        return append();
    }
    case part_type::groups: {
        std::shared_ptr<group_type> next;
        {
            std::lock_guard guard{mutex_};
            const auto it = groups_.upper_bound(at.group);
            if (it != groups_.end()) {
                at.group = it->first;
                next = it->second;
            }
        }
        if (next == nullptr) {
            at.part = part_type::partitions;
            return true;
        }
        return next->list_again(record);
    }
    case part_type::partitions: {
        line_type* const l = line(at.partition);
        if (l == nullptr) {
            at.part = part_type::done;
            return true;
        }
        return l->with_journal([&](auto& p, auto& c, auto& journal) {
            if (!at.is_within) {
                journal.put_state(p, c, p.producers(), record);
                at.is_within = true;
                at.from = 0;
            }
            at.from = journal.put_rows(at.from, max, record);
            if (at.from == storage::max_log_offset) {
                ++at.partition;
                at.is_within = false;
            }
            return append();
        });
    }
    case part_type::done: break;
    }
    return true;
}

template <class Runtime>
bool log_core<Runtime>::store_again(
    const storage::log_run& run,
    storage::record_location from,
    std::vector<std::byte>& record,
    error_code& ec) {
    line_type* const l = line(run.where.partition);
    return l != nullptr && l->with_journal([&](auto&, auto&, auto& journal) {
        return journal.store_again(run, from, record, ec);
    });
}

template <class Runtime>
errc log_core<Runtime>::grow(std::uint32_t more) {
    auto longer = make_list(more, nullptr);
    if (is_kept()) {
        std::lock_guard guard{kept_mutex_};
        std::vector<std::byte> record;
        storage::log_entry_writer{record, duration::zero()}.log(definition(longer->size()));
        storage::record_location where;
        error_code ec;
        if (is_deleted_ || broker_->is_journal_closed()) {
            ec = is_deleted_ ? errc::not_found : errc::closed;
        } else if (broker_->journal()->port().has_room(record.size(), ec)) {
            (void)broker_->journal()->append(record, where, ec);
        }
        if (ec) {
            owned_.resize(owned_.size() - more);
            return static_cast<errc>(ec.value());
        }
        show(std::move(longer));
        return errc{};
    }
    show(std::move(longer));
    return errc{};
}

template <class Runtime>
std::uint64_t log_core<Runtime>::write_deleted(error_code& ec) {
    std::lock_guard guard{kept_mutex_};
    if (is_deleted_) { // somebody else has
        ec = errc::not_found;
        return 0;
    }
    std::vector<std::byte> record;
    storage::log_entry_writer{record, duration::zero()}.deleted(kept_as_);
    storage::record_location where;
    const std::uint64_t number = broker_->journal()->append(record, where, ec);
    is_deleted_ = is_deleted_ || number != 0;
    return number;
}
template <class Runtime>
void log_core<Runtime>::forget() {
    for (line_type* l : lines()) {
        l->with_journal([](auto&, auto&, auto& journal) {
            journal.forget();
            return 0;
        });
    }
}

template <class Runtime>
void log_core<Runtime>::after(const line_record& kept) noexcept {
    if (kept.has_removed) {
        broker_->expect_space();
    }
    if (kept.unwritten != errc{}) {
        broker_->tell_unwritten(name_, kept.unwritten);
    } else if (is_kept() && broker_->journal()->is_tight()) {
        broker_->want_space();
    }
    broker_->keep_up();
}
template <class Runtime>
void log_core<Runtime>::confirm(const line_record& kept, error_code& ec) {
    ec = {};
    after(kept);
    if (kept.unwritten != errc{}) {
        ec = kept.unwritten;
    } else if (is_kept()) {
        // What was there before it counts too: perhaps there was nothing left to do.
        const std::uint64_t all = broker_->journal()->port().last();
        if (broker_->confirm(all, broker_->options().durability, ec)) {
            broker_->template use_async_timer<wake_up_timer<Runtime>>();
        }
    }
}
template <class Runtime>
void log_core<Runtime>::confirm_all(error_code& ec) {
    confirm({}, ec);
}

// The broker's part

template <class Runtime, class Broker>
auto broker_logs<Runtime, Broker>::open_log(
    std::string_view name,
    message_type type,
    const log_options* options,
    log_interest interest,
    failure& failed) -> std::shared_ptr<log_type> {
    after_list after;
    std::shared_ptr<log_type> l;
    {
        std::lock_guard guard{self().names_mutex_};
        l = open_log_locked(name, type, options, interest, after, failed);
    }
    for (const auto& f : after) {
        f();
    }
    return l;
}

template <class Runtime, class Broker>
auto broker_logs<Runtime, Broker>::open_log_locked(
    std::string_view name,
    message_type type,
    const log_options* options,
    log_interest interest,
    after_list& after,
    failure& failed) -> std::shared_ptr<log_type> {
    if (self().closed_) {
        failed = {errc::closed, "the broker is closed"};
        return nullptr;
    }
    if (const auto it = logs_.find(name); it != logs_.end()) {
        const log_type& l = *it->second;
        if (l.is_topic() != interest.decides) {
            failed = Broker::is_another_shape(
                name, shape_of_log(name), interest.decides ? "a topic" : "a log");
            return nullptr;
        }
        if (!(l.type() == type)) {
            failed = {
                errc::type_mismatch,
                "'" + l.name() + "' holds records of type " + std::string{l.type().name} +
                    ", not " + std::string{type.name}};
            return nullptr;
        }
        std::string_view what =
            options == nullptr ? std::string_view{} : difference(l.options(), *options);
        if (what.empty() && options != nullptr) {
            what = Broker::difference_of(l.interest(), interest);
        }
        if (!what.empty()) {
            failed = {
                errc::options_mismatch,
                "'" + l.name() + "' exists with another " + std::string{what}};
            return nullptr;
        }
        return it->second;
    }
    if (const auto it = unopened_logs_.find(name); it != unopened_logs_.end()) {
        const log_interest was = self().kept_.logs.at(it->second).definition.interest;
        if (was.decides != interest.decides) {
            failed = Broker::is_another_shape(
                name, shape_of_log(name), interest.decides ? "a topic" : "a log");
            return nullptr;
        }
        if (options != nullptr) {
            if (const auto what = Broker::difference_of(was, interest); !what.empty()) {
                failed = {
                    errc::options_mismatch,
                    "'" + std::string{name} + "' exists with another " + std::string{what}};
                return nullptr;
            }
        }
        return wake_log(it->second, type, options, after, failed);
    }
    if (options == nullptr) {
        return nullptr;
    }
    if (const auto what = self().shape_of(name); !what.empty()) {
        failed = Broker::is_another_shape(name, what, interest.decides ? "a topic" : "a log");
        return nullptr;
    }
    return make_log(name, type, *options, interest, after, failed);
}

template <class Runtime, class Broker>
auto broker_logs<Runtime, Broker>::make_log(
    std::string_view name,
    message_type type,
    const log_options& options,
    log_interest interest,
    after_list& after,
    failure& failed) -> std::shared_ptr<log_type> {
    std::uint64_t kept_as = 0;
    auto& journal = self().journal_;
    if (journal != nullptr && type.ops->encode == nullptr) {
        failed = {
            errc::invalid_argument,
            "log '" + std::string{name} + "' is kept in a directory, and records of type " +
                std::string{type.name} + " have no railmq::codec"};
        return nullptr;
    }
    if (journal != nullptr) {
        kept_as = self().kept_.last_log + 1;
    }
    auto made = std::make_shared<log_type>(
        self().shared_from_this(), std::string{name}, type, options, interest, kept_as);
    const auto [there, is_new] = logs_.emplace(std::string{name}, made);
    if (journal == nullptr) {
        return made;
    }
    error_code ec;
    try {
        logs_kept_as_.emplace(kept_as, made);
        std::vector<std::byte> record;
        storage::log_entry_writer{record, duration::zero()}.log(
            made->definition(options.partitions));
        storage::record_location where;
        if (journal->port().has_room(record.size(), ec)) {
            (void)journal->append(record, where, ec);
        }
    } catch (...) {
        logs_.erase(there);
        logs_kept_as_.erase(kept_as);
        throw;
    }
    if (ec) {
        failed = {static_cast<errc>(ec.value()), "log '" + std::string{name} + "' cannot be kept"};
        logs_.erase(there);
        logs_kept_as_.erase(kept_as);
        return nullptr;
    }
    self().kept_.last_log = kept_as;
    after.push_back([made] {
        error_code not_yet; // the first send tells
        made->confirm_all(not_yet);
    });
    return made;
}

template <class Runtime, class Broker>
auto broker_logs<Runtime, Broker>::wake_log(
    std::uint64_t number,
    message_type type,
    const log_options* options,
    after_list& after,
    failure& failed) -> std::shared_ptr<log_type> {
    using undecodable = typename log_type::undecodable;
    bool is_open = false;
    auto& all = self().kept_.logs;
    storage::kept_log& kept = all.at(number);
    const storage::log_definition& was = kept.definition;
    const std::string format = type.ops->format == nullptr ? std::string{} : type.ops->format();
    if (was.format != format) {
        failed = {
            errc::type_mismatch,
            "log '" + was.name + "' holds records of the format '" + was.format + "', not '" +
                format + "'"};
        return nullptr;
    }
    const std::string_view what =
        options == nullptr ? std::string_view{} : difference(was.options, *options);
    if (!what.empty()) {
        failed = {
            errc::options_mismatch,
            "log '" + was.name + "' exists with another " + std::string{what}};
        return nullptr;
    }
    // Records may have been stored again this moment, which must be in the file to be read.
    self().make_written(self().journal_->port().last());
    auto made = std::make_shared<log_type>(
        self().shared_from_this(), was.name, type, was.options, was.interest, number, &kept);
    auto bad = std::make_shared<std::vector<undecodable>>();
    std::function<void()> settle = [this, made, bad] {
        errc why{};
        const auto to =
            bad->empty()
                ? nullptr
                : self().dead_letter_queue(
                      Broker::undecodable_name(made->name()), message_type_of<bytes>(), why);
        made->settle_restored(*bad, to.get());
    };
    after.reserve(after.size() + 1);
    // Whatever may fail comes first: once it has been read back, the log is open.
    const struct undoing {
        broker_logs& self;
        const std::string& name;
        std::uint64_t number;
        bool& is_open;
        ~undoing() {
            if (!is_open) {
                self.logs_.erase(name);
                self.logs_kept_as_.erase(number);
            }
        }
    } undo{*this, made->name(), number, is_open};
    logs_.emplace(made->name(), made);
    logs_kept_as_.emplace(number, made);
    const errc e = made->restore(
        kept, [this] { return ++self().queues_made_; }, *bad);
    if (e != errc{}) {
        failed = {e, "log '" + made->name() + "' cannot be read back"};
        return nullptr;
    }
    for (const auto& [queue, q] : self().kept_.queues) {
        if (q.feed && q.feed->definition.log == number) {
            made->keep_for(q);
        }
    }
    is_open = true;
    after.push_back(std::move(settle));
    unopened_logs_.erase(unopened_logs_.find(made->name()));
    all.erase(number);
    return made;
}

template <class Runtime, class Broker>
auto broker_logs<Runtime, Broker>::remove_log(std::string_view name, bool is_topic, error_code& ec)
    -> std::shared_ptr<log_type> {
    ec = {};
    std::lock_guard guard{self().names_mutex_};
    const auto it = logs_.find(name);
    if (it == logs_.end() || it->second->is_topic() != is_topic) {
        return nullptr;
    }
    auto gone = it->second;
    if (gone->is_kept()) {
        if (gone->write_deleted(ec) == 0) {
            return nullptr;
        }
        logs_kept_as_.erase(gone->kept_as());
        self().forget_unopened_feeds(gone->kept_as());
    }
    return gone;
}

template <class Runtime, class Broker>
void broker_logs<Runtime, Broker>::remove_unopened_log(
    std::string_view name, bool is_topic, error_code& ec) {
    ec = {};
    std::uint64_t number = 0;
    {
        std::lock_guard guard{self().names_mutex_};
        const auto it = unopened_logs_.find(name);
        if (it == unopened_logs_.end() || is_unopened_topic(it->second) != is_topic) {
            ec = errc::not_found;
            return;
        }
        auto& journal = *self().journal_;
        std::vector<std::byte> record;
        storage::log_entry_writer{record, duration::zero()}.deleted(it->second);
        std::vector<storage::usage_change> usage;
        for (const auto& [which, p] : self().kept_.logs.at(it->second).partitions) {
            p.rows.for_each_from(0, [&](std::uint64_t, const storage::log_rows::row& r) {
                storage::count_usage(usage, r.at, -1);
                return true;
            });
        }
        storage::record_location where;
        number = journal.append(record, where, ec);
        if (number == 0) {
            return;
        }
        journal.change_usage(usage);
        self().forget_unopened_feeds(it->second);
        self().kept_.logs.erase(it->second);
        unopened_logs_.erase(it);
    }
    (void)self().confirm(number, self().options().durability, ec);
}

template <class Runtime, class Broker>
bool broker_logs<Runtime, Broker>::list_unopened_log(
    std::uint64_t number,
    log_listing& at,
    std::size_t max,
    std::vector<std::byte>& record,
    bool& is_written) {
    using part_type = log_listing::part_type;
    std::lock_guard guard{self().names_mutex_};
    const auto it = self().kept_.logs.find(number);
    if (it == self().kept_.logs.end()) {
        return false;
    }
    const storage::kept_log& log = it->second;
    record.clear();
    storage::log_entry_writer w{record, duration::zero()}; // all moments are the wall clock's here
    switch (at.part) {
    case part_type::definition:
        w.log(log.definition);
        at.part = part_type::groups;
        break;
    case part_type::groups: {
        const auto next = log.groups.upper_bound(at.group);
        if (next == log.groups.end()) {
            at.part = part_type::partitions;
            break;
        }
        at.group = next->first;
        w.group(number, next->second.definition);
        for (const auto& [partition, o] : next->second.offsets) {
            w.group_offset({number, partition}, next->first, o.offset, o.metadata, o.at);
        }
        break;
    }
    case part_type::partitions: {
        const auto next = log.partitions.lower_bound(at.partition);
        if (next == log.partitions.end()) {
            at.part = part_type::done;
            break;
        }
        const storage::log_place where{number, next->first};
        const storage::kept_partition& p = next->second;
        if (!at.is_within) {
            at.partition = next->first;
            at.is_within = true;
            at.from = 0;
            w.partition(where, p.extent);
            for (const auto& [id, producer] : p.producers) {
                w.producer(where, producer);
            }
        }
        at.from = line_journal<Runtime>::put_rows(
            where, p.rows, p.horizons, at.from, max, duration::zero(), record);
        if (at.from == storage::max_log_offset) {
            ++at.partition;
            at.is_within = false;
        }
        break;
    }
    case part_type::done: break;
    }
    // Before anybody can open it: what happens then must come behind this.
    storage::record_location where;
    error_code ec;
    is_written = record.empty() || self().journal_->append(record, where, ec) != 0;
    return true;
}

template <class Runtime, class Broker>
bool broker_logs<Runtime, Broker>::store_run_again(
    const storage::log_run& run,
    storage::record_location from,
    std::vector<std::byte>& record,
    error_code& ec) {
    std::shared_ptr<log_type> open;
    {
        std::lock_guard guard{self().names_mutex_};
        if (const auto it = logs_kept_as_.find(run.where.log); it != logs_kept_as_.end()) {
            open = it->second;
        } else {
            const auto unopened = self().kept_.logs.find(run.where.log);
            if (unopened == self().kept_.logs.end()) {
                return false;
            }
            const auto p = unopened->second.partitions.find(run.where.partition);
            return p != unopened->second.partitions.end() &&
                   line_journal<Runtime>::store_again(
                       p->second.rows, *self().journal_, run, from, record, ec);
        }
    }
    return open->store_again(run, from, record, ec);
}

} // namespace railmq::detail
