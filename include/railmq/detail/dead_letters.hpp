// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_details.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/raw_value.hpp>
#include <railmq/model/death.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// How messages move to dead-letter queues.
namespace railmq::detail {

/// One dying message: to `target`, or to nowhere when it is null and `unusable` is no error.
/// False: none is left.
template <class Runtime>
bool queue_core<Runtime>::move_one_death(
    queue_core* target, std::string_view target_name, errc unusable) {
    effects_type fx = make_effects();
    // A subscription for the time being is not kept, and the queue of its dead letters is.
    effects_type target_fx = target != nullptr ? target->make_effects() : make_effects();
    const auto lock_both = [&](auto&& body) {
        if (target != nullptr && target != this) {
            std::scoped_lock both{mutex_, target->mutex_};
            return body();
        }
        std::lock_guard one{mutex_};
        return body();
    };
    const bool moved = lock_both([&] {
        const auto m = machine_.next_dying();
        if (!m) {
            return false;
        }
        const time_point now = broker_->clock().now();
        lower_due_later lower{*this, now};
        auto& store = machine_.store();
        core::message_details& d = *m->where.at->details();
        const std::uint64_t id = store.public_id(m->where);
        const std::uint32_t handed_out = m->where.at->load().tag();
        death entry{};
        entry.queue = name();
        entry.reason = m->reason;
        entry.last_at = now;
        entry.detail = d.dying_detail;
        entry.routing_key = d.props ? d.props->routing_key : std::string{};
        entry.delivery_count = handed_out;
        entry.failure_count = d.failures.failures;
        entry.message_id = id;
        entry.time_to_live = d.props ? d.props->time_to_live : std::nullopt;
        auto history = d.deaths ? std::make_unique<death_history>(*d.deaths)
                                : std::make_unique<death_history>();
        history->record(std::move(entry));
        const bool cycle =
            !target_name.empty() && !is_explicit(m->reason) && history->is_cycle(target_name);
        if (cycle || (target == nullptr && unusable == errc{})) {
            if (fx.listening) {
                notices::dropped n{};
                n.queue = name();
                n.at = now;
                n.id = id;
                n.reason = m->reason;
                n.cycle = cycle;
                fx.note(std::move(n));
            }
            using fate = typename machine_type::fate;
            machine_.finish_death(*m, cycle ? fate::cycle : fate::discarded, true, now, fx);
            write(fx);
            return true;
        }
        errc e = unusable;
        const bool pinned = m->where.at->load().pins() != 0;
        std::vector<std::byte> encoded;
        if (target != nullptr && !encode(m->where, encoded)) {
            e = errc::invalid_argument;
        } else if (target != nullptr) {
            target_fx.encoded = encoded;
            auto fresh = std::make_unique<core::message_details>();
            fresh->deaths = std::move(history);
            if (d.props) {
                fresh->props = std::make_unique<railmq::properties>(*d.props);
                fresh->props->time_to_live.reset(); // RabbitMQ: it must not expire again
                fresh->props->delay = duration::zero();
            }
            typename queue_core::lower_due_later target_lower{*target, now};
            if (pinned) {
                // An old handle may be reading it, so the dead letter is a copy.
                const auto& ops = store.ops();
                const std::align_val_t align{std::max<std::size_t>(ops.align, alignof(void*))};
                void* space = ::operator new(ops.size, align);
                bool has_copy = false;
                try {
                    ops.copy(space, store.payload(m->where));
                    has_copy = true;
                    e = target->machine_.adopt(space, fresh, now, target_fx);
                } catch (...) {
                    e = errc::memory_limit;
                }
                if (has_copy && e != errc{} && ops.destroy != nullptr) {
                    ops.destroy(space);
                }
                ::operator delete(space, align);
            } else {
                try {
                    e = target->machine_.adopt(store.payload(m->where), fresh, now, target_fx);
                } catch (...) {
                    e = errc::memory_limit; // the payload's move failed; it is still here
                }
            }
        }
        if (e == errc{}) {
            if (fx.listening) {
                notices::dead_lettered n{};
                n.queue = name();
                n.at = now;
                n.id = id;
                n.reason = m->reason;
                n.delivery_count = handed_out;
                n.detail = d.dying_detail;
                n.target = std::string{target_name};
                fx.note(std::move(n));
            }
            machine_.finish_death(*m, machine_type::fate::dead_lettered, pinned, now, fx);
        } else {
            if (fx.listening) {
                notices::dead_letter_refused n{};
                n.queue = name();
                n.at = now;
                n.id = id;
                n.code = e;
                n.target = std::string{target_name};
                fx.note(std::move(n));
            }
            machine_.postpone_death(*m, now);
        }
        if (target == nullptr || target == this) {
            // One that stays in its queue is another message there, and the old one has left.
            fx.changes.insert(fx.changes.end(), target_fx.changes.begin(), target_fx.changes.end());
            write(fx);
            target_fx.record = fx.record;
        } else {
            const part both[] = {{this, &fx}, {target, &target_fx}};
            write_together(both);
        }
        return true;
    });
    finish(fx);
    if (target != nullptr) {
        target->finish(target_fx);
    }
    return moved;
}

template <class Runtime>
errc queue_core<Runtime>::take_dead_letter(
    const void* value, std::unique_ptr<core::message_details> details) {
    const auto& ops = machine_.store().ops();
    raw_value copy{ops};
    copy.copy_of(value); // user code: without the lock
    std::vector<std::byte> encoded;
    if (is_kept()) {
        ops.encode(copy.get(), encoded);
    }
    // One that could not be kept is refused beforehand: it has another place, and stays there.
    if (const errc e = check_room(encoded.size()); e != errc{}) {
        return e;
    }
    return locked_and_current([&](machine_type& m, time_point now, effects_type& fx) {
        fx.encoded = encoded;
        const errc e = m.adopt(copy.get(), details, now, fx);
        if (e == errc{}) {
            copy.was_moved();
        }
        return e;
    });
}

template <class Runtime>
void queue_core<Runtime>::move_dying() {
    for (;;) {
        dead_letter_target where;
        {
            std::lock_guard guard{mutex_};
            where = machine_.options().dead_letter;
        }
        if (where.is_unset()) {
            where = broker_->default_dead_letter(name());
        }
        if (where.is_discard()) {
            if (!move_one_death(nullptr, {}, errc{})) {
                return;
            }
            continue;
        }
        errc why{};
        const auto target = broker_->dead_letter_queue(where.name(), type_, why);
        if (!move_one_death(target.get(), where.name(), why)) {
            return;
        }
    }
}

} // namespace railmq::detail
