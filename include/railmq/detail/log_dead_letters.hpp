// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_cursor.hpp>
#include <railmq/core/log_record.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/core/murmur2.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/detail/dead_letters.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_lane.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/detail/log_waiter.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/raw_value.hpp>
#include <railmq/model/death.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/notice.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/wire.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// How records of a log become dead letters: copied to where they go with no lock held, and then
/// acknowledged. The copy is in the journal before the commit that passes the record.
namespace railmq::detail {

/// A record that a group has given up.
struct dead_record {
    const core::log_entry& entry;
    std::uint32_t partition;
    death_reason reason;
    const std::string& detail;
    std::uint32_t handed_out;
    std::uint32_t failures;
};

/// Where dead letters of a log's group go: to one of these two, or nowhere.
template <class Runtime>
struct dead_letter_place {
    std::string name{};
    std::shared_ptr<queue_core<Runtime>> queue{};
    std::shared_ptr<log_core<Runtime>> log{};
    bool discards = false;
    errc failed{};
};

/// The queue is made when it is missing.
template <class Runtime>
[[nodiscard]] dead_letter_place<Runtime> find_dead_letter_place(
    const log_core<Runtime>& from, const std::string& group, const dead_letter_target& wanted) {
    auto& owner = from.broker();
    const dead_letter_target where =
        wanted.is_unset() ? owner.default_dead_letter(from.name() + "." + group) : wanted;
    dead_letter_place<Runtime> to;
    to.discards = where.is_discard();
    to.name = where.name();
    if (to.discards) {
        return to;
    }
    if (to.name == from.name()) {
        to.failed = errc::invalid_argument; // it would come again, for ever
        return to;
    }
    failure not_that;
    to.log = owner.open_log(to.name, from.type(), nullptr, {}, not_that);
    if (to.log == nullptr) {
        to.queue = owner.dead_letter_queue(to.name, from.type(), to.failed);
    }
    return to;
}

[[nodiscard]] inline std::unique_ptr<properties>
properties_of(const dead_record& r, const std::string& log) {
    auto p = r.entry.props == nullptr ? std::make_unique<properties>()
                                      : std::make_unique<properties>(*r.entry.props);
    if (r.entry.has_key) {
        p->key = std::string{r.entry.key};
    }
    p->headers.emplace_back("railmq.log", log);
    p->headers.emplace_back("railmq.partition", std::to_string(r.partition));
    p->headers.emplace_back("railmq.offset", std::to_string(r.entry.offset));
    return p;
}

template <class Runtime>
[[nodiscard]] errc bury_in_queue(
    queue_core<Runtime>& to,
    const std::string& log,
    const std::string& from,
    const dead_record& r) {
    auto details = std::make_unique<core::message_details>();
    details->props = properties_of(r, log);
    details->deaths = std::make_unique<death_history>();
    death entry{};
    entry.queue = from;
    entry.reason = r.reason;
    entry.last_at = to.broker().clock().now();
    entry.detail = r.detail;
    entry.routing_key = details->props->routing_key;
    entry.delivery_count = r.handed_out;
    entry.failure_count = r.failures;
    entry.message_id = r.entry.offset;
    details->deaths->record(std::move(entry));
    return to.take_dead_letter(r.entry.payload, std::move(details));
}

/// By its key, as a producer; without one, to the partition of the same number.
template <class Runtime>
[[nodiscard]] errc bury_in_log(
    log_core<Runtime>& to, const std::string& log, const std::string& group, const dead_record& r) {
    if (const errc why = to.closed(); why != errc{}) {
        return why;
    }
    const auto& ops = *to.type().ops;
    raw_value copy{ops};
    core::log_input in;
    in.key = r.entry.has_key ? std::optional{r.entry.key} : std::nullopt;
    in.timestamp = r.entry.timestamp;
    in.props = properties_of(r, log);
    in.props->headers.emplace_back("railmq.group", group);
    in.props->headers.emplace_back("railmq.reason", std::string{to_string(r.reason)});
    if (!r.detail.empty()) {
        in.props->headers.emplace_back("railmq.detail", r.detail);
    }
    if (!r.entry.is_tombstone) {
        copy.copy_of(r.entry.payload);
        in.payload = copy.get();
    }
    std::vector<std::byte> encoded;
    if (to.is_kept()) {
        storage::wire_writer w{encoded, to.broker().journal()->wall()};
        const bool is_stamped = to.options().timestamps == log_timestamps::append;
        storage::wire::put_run_record(
            w,
            in.key,
            is_stamped ? std::nullopt : in.timestamp,
            in.props.get(),
            r.entry.is_tombstone);
        if (in.payload != nullptr) {
            const auto size = w.begin_sized(ops.bytes(in.payload));
            ops.encode(in.payload, encoded);
            w.end_sized(size);
        }
    }
    const std::uint32_t n = to.partitions();
    const std::uint32_t where = in.key ? core::partition_of(*in.key, n) : r.partition % n;
    line_record kept;
    const auto done =
        to.line(where)->append(std::span{&in, 1}, to.broker().clock(), {}, encoded, kept);
    to.after(kept);
    if (in.payload == nullptr) {
        copy.was_moved();
    }
    return done.failed;
}

template <class Runtime>
errc log_reader<Runtime>::check_dead_letters() {
    if (options_.max_attempts == 0 && options_.dead_letter.is_unset()) {
        return errc{};
    }
    const auto to = find_dead_letter_place(*log_, options_.group, options_.dead_letter);
    const bool can_copy = to.discards || log_->type().ops->copy != nullptr;
    return can_copy ? to.failed : errc::invalid_argument;
}

template <class Runtime>
void log_reader<Runtime>::set_dead(
    failed_record& f, death_reason reason, std::string detail) noexcept {
    f.is_waiting = true;
    f.is_dead = true;
    f.reason = reason;
    f.detail = std::move(detail);
    f.due = time_point::min();
    waiting_failures_.fetch_add(1);
    dead_.fetch_add(1);
}

template <class Runtime>
void log_reader<Runtime>::move_dead_letter(dead_place which) noexcept {
    auto& owner = log_->broker();
    const auto find_it = [&](lane*& l) -> failed_record* {
        l = find(which.partition, which.epoch);
        if (l == nullptr) {
            return nullptr;
        }
        const auto it = std::find_if(l->failures.begin(), l->failures.end(), [&](const auto& f) {
            return f.offset == which.offset && f.is_dead;
        });
        return it == l->failures.end() ? nullptr : &*it;
    };
    death_reason reason{};
    std::string detail;
    std::uint32_t failures = 0;
    lane* l = nullptr;
    {
        std::lock_guard guard{mutex_};
        failed_record* const f = find_it(l);
        if (f == nullptr || f->is_moving) {
            return;
        }
        f->is_moving = true;
        reason = f->reason;
        failures = f->count;
        detail.swap(f->detail);
    }
    errc e{};
    try {
        const std::uint32_t runs = reason == death_reason::rejected ? failures + 1 : failures;
        bool is_there = false;
        core::log_cursor<Runtime> there;
        if (log_->line(which.partition)->seek(there, which.offset) == errc{}) {
            (void)there.read(1, unlimited, [&](const core::log_entry& entry) {
                is_there = entry.offset == which.offset;
                if (is_there) {
                    e = bury({entry, which.partition, reason, detail, runs, failures});
                }
            });
        }
        if (!is_there) { // retention was faster
            core::log_entry gone;
            gone.offset = which.offset;
            gone.is_tombstone = true;
            tell_dead({gone, which.partition, reason, detail, runs, failures}, {}, errc{}, true);
        }
    } catch (...) { // a copy, a codec, or no memory
        owner.count_swallowed();
        e = errc::memory_limit;
    }
    woken_list<Runtime> woken;
    std::lock_guard guard{mutex_};
    failed_record* const f = find_it(l);
    if (f == nullptr) {
        return; // its partition has gone meanwhile; whoever gets it sees the record again
    }
    f->is_moving = false;
    if (e == errc{}) {
        (void)l->tracker.ack(which.epoch, which.offset);
        touch(*l);
        l->failures.erase(l->failures.begin() + (f - l->failures.data()));
        failures_.fetch_sub(1);
        waiting_failures_.fetch_sub(1);
        dead_.fetch_sub(1);
        is_acked_.store(true, std::memory_order_release);
    } else {
        f->detail.swap(detail);
        f->wait = std::max<duration>(
            options_.retry_backoff.wait(++f->refusals, f->wait, random_),
            std::chrono::milliseconds{10});
        f->due = saturating_add(owner.clock().now(), f->wait);
    }
    changes_.fetch_add(1);
    wake_if_waiting(woken);
}

/// Moves one, and tells of it. An error: it is where it was.
template <class Runtime>
errc log_reader<Runtime>::bury(const dead_record& r) {
    const std::string from = log_->name() + "." + options_.group;
    const auto to = find_dead_letter_place(*log_, options_.group, options_.dead_letter);
    errc e = to.failed;
    // A queue has no place for what says that a key was deleted.
    const bool drops = to.discards || (r.entry.is_tombstone && to.queue != nullptr);
    if (e == errc{} && to.queue != nullptr && !drops) {
        e = bury_in_queue(*to.queue, log_->name(), from, r);
    } else if (e == errc{} && to.log != nullptr) {
        e = bury_in_log(*to.log, log_->name(), options_.group, r);
    }
    tell_dead(r, to.name, e, drops);
    return e;
}

template <class Runtime>
void log_reader<Runtime>::tell_dead(
    const dead_record& r, const std::string& target, errc e, bool drops) {
    auto& owner = log_->broker();
    e != errc{} ? group_->count_refused()
    : drops     ? group_->count_dropped()
                : group_->count_dead_lettered();
    if (!owner.is_listening()) {
        return;
    }
    const std::string from = log_->name() + "." + options_.group;
    const auto tell = [&](auto n) {
        n.queue = from;
        n.at = owner.clock().now();
        n.id = r.entry.offset;
        owner.notify({notice{std::move(n)}});
    };
    if (e != errc{}) {
        notices::dead_letter_refused n{};
        n.code = e;
        n.target = target;
        tell(std::move(n));
    } else if (drops) {
        notices::dropped n{};
        n.reason = r.reason;
        tell(std::move(n));
    } else {
        notices::dead_lettered n{};
        n.reason = r.reason;
        n.delivery_count = r.handed_out;
        n.detail = r.detail;
        n.target = target;
        tell(std::move(n));
    }
}

template <class Runtime>
void log_reader<Runtime>::move_dead_letters() noexcept {
    if (dead_.load(std::memory_order_acquire) == 0) {
        return;
    }
    const time_point now = log_->broker().clock().now();
    std::vector<dead_place> due;
    try {
        std::lock_guard guard{mutex_};
        for (const auto& l : lanes_) {
            for (const failed_record& f : l->failures) {
                if (f.is_dead && !f.is_moving && f.due <= now) {
                    due.push_back({l->partition, l->tracker.epoch(), f.offset});
                }
            }
        }
    } catch (...) { // no memory: with the next receive
        log_->broker().count_swallowed();
    }
    for (const dead_place& d : due) {
        move_dead_letter(d);
    }
}

} // namespace railmq::detail
