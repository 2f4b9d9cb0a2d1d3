// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/bytes.hpp>
#include <railmq/core/message_image.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/queue_feed.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/kept_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// How queues outlive their process: how one is made in the journal, and how one that is there
/// takes its messages back when it is opened.
namespace railmq::detail {

template <class Runtime>
std::uint64_t queue_core<Runtime>::write_together(
    broker_type& owner,
    std::span<const part> parts,
    std::vector<std::byte>& record,
    joint_entries* more) noexcept {
    if (owner.journal() == nullptr || owner.is_journal_closed()) {
        return 0;
    }
    auto& journal = *owner.journal();
    std::uint64_t number = 0;
    bool is_asked_for = more != nullptr;
    error_code ec;
    try {
        record.clear();
        for (const part& p : parts) {
            if (p.queue->is_kept()) { // a subscription for the time being is not
                p.queue->kept_->put(p.queue->machine_, *p.fx, record);
            }
            is_asked_for = is_asked_for || p.fx->wanted_at != nullptr || !p.fx->completed.empty();
        }
        if (more != nullptr) {
            more->put(record);
        }
        if (!record.empty()) {
            storage::record_location where;
            number = journal.append(record, where, ec);
            for (const part& p : parts) {
                if (number != 0 && p.queue->is_kept()) {
                    p.queue->kept_->written(p.queue->machine_, where);
                }
            }
            if (number != 0 && more != nullptr) {
                more->written(where);
            }
        } else if (is_asked_for) {
            number = journal.port().last();
        }
    } catch (...) {
        ec = errc::memory_limit;
        number = 0;
    }
    if (journal.is_tight()) {
        owner.want_space();
    }
    if (ec) {
        for (const part& p : parts) {
            if (p.queue->is_kept()) {
                p.queue->kept_->not_written();
            }
            p.queue->machine_.forget_unwritten(*p.fx);
        }
        const auto why = static_cast<errc>(ec.value());
        if (more != nullptr) {
            more->not_written(why);
        }
        if (!parts.empty()) {
            note_unwritten(parts.front(), why);
        }
    }
    for (const part& p : parts) {
        p.fx->record = number;
        p.fx->changes.clear();
        p.fx->remembered.clear();
        for (core::waiter* w : p.fx->completed) {
            w->record = number;
        }
        if (p.fx->wanted_at != nullptr) {
            *p.fx->wanted_at = number;
        }
    }
    return number;
}

template <class Runtime>
errc queue_core<Runtime>::restore(
    storage::kept_queue& from, bool was_closed, effects_type& fx, std::vector<undecodable>& bad) {
    using core::image_state;
    struct entry {
        std::uint64_t position;
        std::uint64_t id;
        const storage::kept_message* message;
        bool is_in_line;
    };
    const std::lock_guard guard{mutex_};
    auto& journal = kept_->journal();
    const time_point now = broker_->clock().now();
    const lower_due_later lower{*this, now};
    std::vector<entry> all;
    all.reserve(from.messages.size());
    from.messages.for_each_from(0, [&](std::uint64_t id, const storage::kept_message& m) {
        const bool is_plain = m.more == nullptr;
        const bool is_in_line =
            is_plain ? !m.is_held && m.delivery_count == 0
                     : m.more->state == image_state::in_line && m.more->delivery_count == 0;
        all.push_back({is_plain ? id : m.more->position, id, &m, is_in_line});
        return true;
    });
    std::sort(all.begin(), all.end(), [](const entry& x, const entry& y) {
        return x.position < y.position;
    });
    // Where few of many are left, those stand out of line, so that nothing has to be kept for the
    // places between them.
    const std::uint64_t end = from.definition.next_position;
    std::uint64_t start = end;
    std::uint64_t places = 0;
    for (auto e = all.rbegin(); e != all.rend(); ++e) {
        if (e->is_in_line) {
            ++places;
            if (asked_for_.order == delivery_order::strict ||
                end - e->position <= 4 * places + 4096) {
                start = e->position;
            }
        }
    }
    for (entry& e : all) {
        e.is_in_line = e.is_in_line && e.position >= start;
    }
    std::sort(all.begin(), all.end(), [](const entry& x, const entry& y) {
        return std::pair{!x.is_in_line, x.position} < std::pair{!y.is_in_line, y.position};
    });
    machine_.start_at(start, from.definition.next_delayed);
    machine_.suspect_before(was_closed ? 0 : end);
    const auto& ops = machine_.store().ops();
    const std::align_val_t align{std::max<std::size_t>(ops.align, alignof(void*))};
    const auto free_space = [align](void* p) { ::operator delete(p, align); };
    const std::unique_ptr<void, decltype(free_space)> space{
        ::operator new(ops.size, align), free_space};
    struct value {
        const core::payload_ops& ops;
        void* at;
        bool is_there = false;
        ~value() {
            if (is_there && ops.destroy != nullptr) {
                ops.destroy(at);
            }
        }
    };
    std::vector<std::byte> payload;
    for (const entry& e : all) {
        core::message_image image = e.message->image(e.id);
        storage::to_broker_time(image, journal.wall());
        error_code ec;
        journal.load(
            kept_->number(),
            e.id,
            kept_->record_of(e.id),
            e.message->where.location(),
            image,
            payload,
            ec);
        if (ec) {
            return static_cast<errc>(ec.value());
        }
        kept_->add(e.id, e.position, e.message->where);
        value made{ops, space.get()};
        try {
            made.is_there = ops.decode(space.get(), payload);
        } catch (...) {
            broker_->count_swallowed();
        }
        if (!made.is_there) {
            bad.push_back({std::move(image), payload});
            continue;
        }
        if (!machine_.restore(image, made.at, made.is_there, e.is_in_line, was_closed, now, fx)) {
            return errc::memory_limit;
        }
        if (const place_type p = machine_.store().locate(e.position)) {
            kept_->came_back(machine_, p);
            kept_->let_go(machine_, p);
        }
    }
    machine_.end_restore(end);
    const duration wall = journal.wall();
    for (const auto& [key, first] : from.remembered_at(saturating_add(now, wall))) {
        machine_.remember_again(std::string{key}, first.id, saturating_add(first.at, -wall));
    }
    machine_.serve(now, fx);
    write(fx);
    return errc{};
}

template <class Runtime>
void queue_core<Runtime>::set_aside(undecodable& m, queue_core& to) {
    effects_type fx = make_effects();
    effects_type to_fx = make_effects();
    {
        const std::scoped_lock both{mutex_, to.mutex_};
        const time_point now = broker_->clock().now();
        const lower_due_later lower{to, now};
        auto details = std::make_unique<core::message_details>();
        details->props = std::move(m.image.props);
        details->deaths =
            m.image.deaths ? std::move(m.image.deaths) : std::make_unique<death_history>();
        death entry{};
        entry.queue = name();
        entry.reason = death_reason::undecodable;
        entry.last_at = now;
        entry.delivery_count = m.image.delivery_count;
        entry.failure_count = m.image.failures.failures;
        entry.message_id = m.image.id;
        details->deaths->record(std::move(entry));
        bytes content{std::span<const std::byte>{m.payload}};
        to_fx.encoded = m.payload;
        const errc e = to.machine_.adopt(&content, details, now, to_fx);
        if (e == errc{}) {
            ::new (static_cast<void*>(&content)) bytes{}; // it was moved away, and ended with that
            fx.changes.push_back({m.image.id, m.image.id, core::message_change::kind::gone, {}});
            notices::dead_lettered n{};
            n.queue = name();
            n.at = now;
            n.id = m.image.id;
            n.reason = death_reason::undecodable;
            n.delivery_count = m.image.delivery_count;
            n.target = to.name();
            fx.note(std::move(n));
        }
        const part parts[] = {{this, &fx}, {&to, &to_fx}};
        write_together(parts);
    }
    finish(fx);
    to.finish(to_fx);
}

template <class Runtime>
bool queue_core<Runtime>::take_undecodable(
    const std::string& log,
    std::uint64_t offset,
    std::unique_ptr<properties> props,
    std::span<const std::byte> payload,
    joint_entries& entries,
    effects_type& fx) {
    const time_point now = broker_->clock().now();
    const lower_due_later lower{*this, now};
    auto details = std::make_unique<core::message_details>();
    details->props = std::move(props);
    details->deaths = std::make_unique<death_history>();
    death entry{};
    entry.queue = log;
    entry.reason = death_reason::undecodable;
    entry.last_at = now;
    entry.message_id = offset;
    details->deaths->record(std::move(entry));
    bytes content{payload};
    fx.encoded = {payload.begin(), payload.end()};
    if (machine_.adopt(&content, details, now, fx) != errc{}) {
        return false;
    }
    ::new (static_cast<void*>(&content)) bytes{}; // it was moved away, and ended with that
    const part only{this, &fx};
    return write_together(std::span{&only, 1}, &entries) != 0;
}

template <class Runtime>
auto broker_core<Runtime>::add(
    std::string_view name,
    message_type type,
    const queue_options& options,
    const queue_options* asked_for,
    const feed_request* feed,
    woken_queues& woken,
    failure& failed) -> std::shared_ptr<queue_type> {
    std::uint64_t kept_as = 0;
    if (journal_ != nullptr) {
        if (type.ops->encode == nullptr) {
            failed = {
                errc::invalid_argument,
                "queue '" + std::string{name} + "' is kept in a directory, and messages of type " +
                    std::string{type.name} + " have no railmq::codec"};
            return nullptr;
        }
        if (const auto kept = unopened_.find(name); kept != unopened_.end()) {
            return wake(kept->second, type, asked_for, feed, woken, failed);
        }
        kept_as = kept_.last_queue + 1;
        std::vector<std::byte> record;
        storage::entry_writer{record, journal_->wall()}.queue(
            {kept_as, std::string{name}, type.ops->format(), options, 0, 0});
        if (feed != nullptr) { // where it begins is said when that is known
            storage::feed_definition d = feed->definition;
            d.queue = kept_as;
            storage::feed_entry_writer{record, journal_->wall()}.feed(d);
        }
        storage::record_location where;
        error_code ec;
        if (!journal_->port().has_room(record.size(), ec) ||
            journal_->append(record, where, ec) == 0) {
            failed = {
                static_cast<errc>(ec.value()), "queue '" + std::string{name} + "' cannot be kept"};
            return nullptr;
        }
        kept_.last_queue = kept_as;
        woken.push_back([this, number = journal_->port().last()] {
            error_code not_yet; // the first send tells
            confirm(number, options_.durability, not_yet);
        });
    }
    auto q = std::make_shared<queue_type>(
        this->shared_from_this(), std::string{name}, type, options, ++queues_made_, kept_as);
    names_.emplace(std::string{name}, q);
    if (kept_as != 0) {
        if (feed != nullptr) {
            q->kept().become_fed(feed->definition);
        }
        kept_as_.emplace(kept_as, q);
    }
    return q;
}

template <class Runtime>
auto broker_core<Runtime>::wake(
    std::uint64_t number,
    message_type type,
    const queue_options* asked_for,
    const feed_request* feed,
    woken_queues& woken,
    failure& failed) -> std::shared_ptr<queue_type> {
    storage::kept_queue& kept = kept_.queues.at(number);
    const storage::queue_definition& was = kept.definition;
    if (was.format != type.ops->format()) {
        failed = {
            errc::type_mismatch,
            "queue '" + was.name + "' holds messages of the format '" + was.format + "', not '" +
                type.ops->format() + "'"};
        return nullptr;
    }
    if (asked_for != nullptr) {
        if (const std::string_view what = difference(was.options, *asked_for); !what.empty()) {
            failed = {
                errc::options_mismatch,
                "queue '" + was.name + "' exists with another " + std::string{what}};
            return nullptr;
        }
    }
    if (failed = check_feed(kept, feed); failed) {
        return nullptr;
    }
    std::shared_ptr<log_type> filled_from;
    if (kept.feed) {
        filled_from = this->log_kept_as(kept.feed->definition.log, type, woken, failed);
        if (filled_from == nullptr) {
            return nullptr;
        }
    }
    // Messages may have been stored again this moment, which must be in the file to be read.
    make_written(journal_->port().last());
    auto q = std::make_shared<queue_type>(
        this->shared_from_this(), was.name, type, was.options, ++queues_made_, number);
    if (kept.feed) {
        q->kept().become_fed(kept.feed->definition).restore(*kept.feed, kept.records);
    }
    auto fx = std::make_shared<core::effects<Runtime>>(q->make_effects());
    auto bad = std::make_shared<std::vector<typename queue_type::undecodable>>();
    const errc e = q->restore(kept, report_.was_closed, *fx, *bad);
    if (e != errc{}) {
        failed = {e, "queue '" + was.name + "' cannot be read back"};
        return nullptr;
    }
    if (kept.feed) {
        const feed_request as_it_was{kept.feed->definition, log_start::latest, {}};
        auto made = std::make_unique<queue_feed<Runtime>>(
            filled_from, q, (feed != nullptr ? *feed : as_it_was).terms());
        if (const errc why = made->begin(); why != errc{}) {
            failed = {why, "queue '" + was.name + "' cannot be filled"};
            return nullptr;
        }
        (void)q->draw_from(std::move(made));
        filled_from->keep_no_more(number);
        woken.push_back([q] { q->serve_waiting(); }); // an eager one takes what there is
    }
    // Dead letters move, and observers hear of it, when the names are free again.
    woken.push_back([this, q, fx, bad] {
        q->finish(*fx);
        if (!bad->empty()) {
            errc why{};
            const auto to =
                dead_letter_queue(undecodable_name(q->name()), message_type_of<bytes>(), why);
            for (auto& m : *bad) {
                if (to != nullptr) {
                    q->set_aside(m, *to);
                }
            }
        }
    });
    names_.emplace(was.name, q);
    kept_as_.emplace(number, q);
    unopened_.erase(unopened_.find(was.name));
    kept_.queues.erase(number);
    return q;
}

template <class Runtime>
bool broker_core<Runtime>::list_unopened(
    std::uint64_t number,
    std::uint64_t& from,
    std::size_t max,
    std::vector<std::byte>& record,
    bool& is_written) {
    std::lock_guard guard{names_mutex_};
    const auto it = kept_.queues.find(number);
    if (it == kept_.queues.end()) {
        return false;
    }
    const std::uint64_t begin = from;
    std::vector<std::pair<std::uint64_t, const storage::kept_message*>> listed;
    from = queue_type::no_more;
    it->second.messages.for_each_from(begin, [&](std::uint64_t id, const storage::kept_message& m) {
        if (listed.size() == max) {
            from = id;
            return false;
        }
        listed.emplace_back(id, &m);
        return true;
    });
    record.clear();
    storage::entry_writer w{record, duration::zero()}; // all moments are the wall clock's here
    storage::feed_entry_writer of_log{record, duration::zero()};
    if (begin == 0) {
        w.queue(it->second.definition);
        if (it->second.feed) {
            of_log.feed(it->second.feed->definition);
            for (const auto& [partition, position] : it->second.feed->positions) {
                of_log.fed_to(number, partition, position);
            }
        }
    }
    const auto& records = it->second.records;
    const auto fed =
        static_cast<std::size_t>(std::count_if(listed.begin(), listed.end(), [&](const auto& one) {
            return records.contains(one.first);
        }));
    w.range(number, begin, from, listed.size() - fed);
    for (const auto& [id, m] : listed) {
        if (!records.contains(id)) {
            w.listed(m->image(id), m->where.location(), m->where.bytes());
        }
    }
    for (const auto& [id, m] : listed) {
        if (const auto one = records.find(id); one != records.end()) {
            of_log.fed(number, m->image(id), one->second, m->where.location(), m->where.bytes());
        }
    }
    // Before anybody can open it: what happens then must come behind this.
    storage::record_location where;
    error_code ec;
    is_written = journal_->append(record, where, ec) != 0;
    if (begin == 0) {
        const time_point now = saturating_add(clock_.now(), journal_->wall());
        for (const auto& [key, first] : it->second.remembered_at(now)) {
            record.clear();
            storage::entry_writer{record, duration::zero()}.remembered(
                number, key, first.id, first.at);
            is_written = is_written && journal_->append(record, where, ec) != 0;
        }
    }
    return true;
}

template <class Runtime>
bool broker_core<Runtime>::store_again(
    std::uint64_t queue,
    std::uint64_t id,
    storage::record_location from,
    const storage::stored_content& content,
    std::vector<std::byte>& record,
    error_code& ec) {
    std::shared_ptr<queue_type> open;
    {
        std::lock_guard guard{names_mutex_};
        if (const auto it = kept_as_.find(queue); it != kept_as_.end()) {
            open = it->second;
        } else {
            const auto unopened = kept_.queues.find(queue);
            const storage::kept_message* m =
                unopened == kept_.queues.end() ? nullptr : unopened->second.messages.find(id);
            if (m == nullptr || !(m->where.location() == from)) {
                return false;
            }
            record.clear();
            storage::entry_writer{record, duration::zero()}.stored(queue, m->image(id), content);
            storage::kept_message moved = *m;
            if (!lies_now(moved, record, ec)) {
                return false;
            }
            unopened->second.messages.put(id, std::move(moved));
            return true;
        }
    }
    return open->store_again(id, from, content, record, ec);
}

template <class Runtime>
void broker_core<Runtime>::store_fed_again(
    std::uint64_t queue, std::uint64_t segment, std::vector<std::byte>& record, error_code& ec) {
    std::lock_guard guard{names_mutex_};
    const auto it = kept_.queues.find(queue);
    if (it == kept_.queues.end()) {
        return;
    }
    auto& messages = it->second.messages;
    auto& records = it->second.records;
    std::vector<std::uint64_t> ids;
    for (const auto& [id, name] : records) {
        const storage::kept_message* m = messages.find(id);
        if (m != nullptr && m->where.segment() == segment) {
            ids.push_back(id);
        }
    }
    std::sort(ids.begin(), ids.end());
    std::vector<std::byte> payload;
    for (const std::uint64_t id : ids) {
        storage::kept_message m = *messages.find(id);
        core::message_image beside;
        journal_->load(
            queue, id, it->second.record_of(id), m.where.location(), beside, payload, ec);
        if (ec) {
            return;
        }
        record.clear();
        storage::entry_writer w{record, duration::zero()};
        w.stored(queue, m.image(id), beside.props.get(), nullptr);
        w.payload(payload);
        if (!lies_now(m, record, ec)) {
            return;
        }
        messages.put(id, std::move(m));
        records.erase(id);
    }
}

template <class Runtime>
bool broker_core<Runtime>::lies_now(
    storage::kept_message& m, std::span<const std::byte> record, error_code& ec) {
    storage::record_location where;
    if (journal_->append(record, where, ec) == 0) {
        return false;
    }
    std::vector<storage::usage_change> usage;
    storage::count_usage(usage, m.where, -1);
    m.where = {where, static_cast<std::uint32_t>(record.size())};
    storage::count_usage(usage, m.where, 1);
    journal_->change_usage(usage);
    return true;
}

template <class Runtime>
failure
broker_core<Runtime>::check_feed(const storage::kept_queue& kept, const feed_request* wanted) {
    const std::string& name = kept.definition.name;
    if (!kept.feed) {
        return wanted == nullptr
                   ? failure{}
                   : failure{errc::already_exists, "'" + name + "' is a queue of its own"};
    }
    const storage::feed_definition& was = kept.feed->definition;
    std::string_view what;
    if (was.has_code != (wanted == nullptr ? false : wanted->definition.has_code)) {
        return {
            errc::options_mismatch,
            was.has_code ? "subscription '" + name +
                               "' has a filter that is code, which has to be given again"
                         : "subscription '" + name + "' exists without a filter that is code"};
    }
    if (wanted != nullptr) {
        what = was.max_backlog != wanted->definition.max_backlog ? "max_backlog"
               : was.where != wanted->definition.where           ? "where"
                                                                 : "";
    }
    return what.empty()
               ? failure{}
               : failure{
                     errc::options_mismatch,
                     "subscription '" + name + "' exists with another " + std::string{what}};
}

template <class Runtime>
void broker_core<Runtime>::forget_unopened(std::uint64_t number) {
    std::vector<storage::usage_change> usage;
    auto& kept = kept_.queues.at(number);
    kept.messages.for_each_from(0, [&](std::uint64_t, const storage::kept_message& m) {
        storage::count_usage(usage, m.where, -1);
        return true;
    });
    journal_->change_usage(usage);
    if (kept.feed) {
        this->keep_no_more(kept.feed->definition.log, number);
    }
    if (const auto it = unopened_.find(kept.definition.name);
        it != unopened_.end() && it->second == number) {
        unopened_.erase(it);
    }
    kept_.deleted(number);
}
template <class Runtime>
void broker_core<Runtime>::forget_unopened_feeds(std::uint64_t log) {
    std::vector<std::uint64_t> gone;
    for (const auto& [number, q] : kept_.queues) {
        if (q.feed && q.feed->definition.log == log) {
            gone.push_back(number);
        }
    }
    for (const std::uint64_t number : gone) {
        forget_unopened(number);
    }
}

template <class Runtime>
void broker_core<Runtime>::remove_unopened(std::string_view name, error_code& ec) {
    std::lock_guard guard{names_mutex_};
    const auto it = unopened_.find(name);
    if (it == unopened_.end()) {
        ec = errc::not_found;
        return;
    }
    write_deleted(it->second, ec);
    if (ec) {
        return;
    }
    forget_unopened(it->second);
}

template <class Runtime>
void broker_core<Runtime>::delete_queue(std::string_view name, bool force, error_code& ec) {
    ec = {};
    const auto q = find(name);
    if (q == nullptr) {
        remove_unopened(name, ec);
        return;
    }
    end_queue(*q, force, true, ec);
}

template <class Runtime>
void broker_core<Runtime>::end_queue(queue_type& q, bool force, bool says_so, error_code& ec) {
    ec = {};
    const bool refused = q.locked_and_current([&](auto& m, time_point now, auto& fx) {
        if (!force && m.held_count() != 0) {
            return true;
        }
        m.close_queue(errc::not_found, true, now, fx);
        return false;
    });
    if (refused) {
        ec = errc::would_block;
        return;
    }
    if (find(q.name()).get() == &q) {
        (void)remove(q.name());
    }
    forget_bindings(q);
    if (q.is_kept()) {
        q.locked([&](auto&, time_point, auto&) {
            if (says_so) {
                write_deleted(q.kept().number(), ec);
            }
            if (!ec) {
                q.kept().forget();
            }
        });
    }
    q.locked([](auto& m, time_point now, auto& fx) { m.purge(now, fx); });
}

} // namespace railmq::detail
