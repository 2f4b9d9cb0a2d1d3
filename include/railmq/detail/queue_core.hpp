// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/queue_machine.hpp>
#include <railmq/detail/broker_core.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace railmq::detail {

template <class Runtime>
class queue_core;

/// A consumer's shared part: it outlives the consumer for as long as deliveries refer to it.
template <class Runtime>
struct consumer_state : core::lease_holder<Runtime> {
    explicit consumer_state(std::shared_ptr<queue_core<Runtime>> q) noexcept
        : queue{std::move(q)}
        , owner{&queue->broker()}
        , ring{&queue->ring()}
        , times{&queue->machine().store().times()} {}

    std::shared_ptr<queue_core<Runtime>> queue;
    // What the fast path needs, without a way through the queue.
    broker_core<Runtime>* owner;
    core::slot_ring<Runtime>* ring;
    const core::lease_times<Runtime>* times;
};

/// A queue: its machine, its lock, and what its decisions set in motion.
///
/// Lock order: this lock, then the consumers' short locks; two queues' locks only together,
/// through `std::scoped_lock`, which cannot deadlock. No user code runs under any of them, but
/// for a message's move or copy.
template <class Runtime>
class queue_core : public std::enable_shared_from_this<queue_core<Runtime>> {
public:
    using machine_type = core::queue_machine<Runtime>;
    using effects_type = core::effects<Runtime>;
    using lease_type = core::lease<Runtime>;
    using state_type = consumer_state<Runtime>;
    using broker_type = broker_core<Runtime>;
    using place_type = core::place<Runtime>;

    queue_core(
        std::shared_ptr<broker_type> broker,
        std::string name,
        message_type type,
        queue_options options,
        std::uint64_t number)
        : broker_{std::move(broker)}
        , type_{type}
        , number_{number}
        , asked_for_{options}
        , machine_{
              std::move(name),
              *type.ops,
              std::move(options),
              broker_->budget(),
              broker_->seed_for(number),
              broker_->is_listening()} {}
    queue_core(const queue_core&) = delete;
    queue_core& operator=(const queue_core&) = delete;
    ~queue_core() { broker_->forget_due(*this); }

    [[nodiscard]] broker_type& broker() const noexcept { return *broker_; }
    [[nodiscard]] const std::shared_ptr<broker_type>& shared_broker() const noexcept {
        return broker_;
    }
    [[nodiscard]] message_type type() const noexcept { return type_; }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
    [[nodiscard]] const std::string& name() const noexcept { return machine_.name(); }
    [[nodiscard]] const queue_options& asked_for() const noexcept { return asked_for_; }
    /// The machine; but for its ring, only under the lock.
    [[nodiscard]] machine_type& machine() noexcept { return machine_; }
    [[nodiscard]] auto& ring() noexcept { return machine_.ring(); }
    [[nodiscard]] auto& mutex() noexcept { return mutex_; }

    /// Runs `f(machine, now, effects)` under the lock, then everything that follows from it.
    template <class F>
    auto locked(F&& f) {
        effects_type fx{broker_->is_listening()};
        after finish{*this, fx};
        std::lock_guard guard{mutex_};
        const time_point now = broker_->clock().now();
        lower_due_later lower{*this, now};
        return f(machine_, now, fx);
    }

    /// The same, once the whole broker has been brought up to now.
    template <class F>
    auto locked_and_current(F&& f) {
        broker_->catch_up();
        return locked(std::forward<F>(f));
    }

    /// Makes places for the fast path where there are none left. False: no memory for them.
    [[nodiscard]] bool add_places() noexcept {
        std::lock_guard guard{mutex_};
        try {
            return machine_.add_places();
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    /// A send that never came to the machine has failed: it is counted, and noticed.
    void count_refused(errc why) {
        locked([&](machine_type& m, time_point now, effects_type& fx) {
            m.count_refused(why, now, fx);
        });
    }

    /// Settles a lease through the machine; destroys the consumer's state if that was its last
    /// handle.
    bool settle(const lease_type& l, core::settlement s) {
        auto* state = static_cast<state_type*>(l.holder);
        const auto keep = state->queue;
        if (broker_->is_due()) {
            broker_->catch_up();
        }
        bool gone = false;
        const bool settled = locked([&](machine_type& m, time_point now, effects_type& fx) {
            const bool done = m.settle(l, std::move(s), now, fx);
            gone = done && state->is_closed && m.remove_if_unreferenced(*state);
            return done;
        });
        if (gone) {
            delete state;
        }
        return settled;
    }

    /// A message was acknowledged on the fast path while somebody began to want to know.
    void count_settled(const lease_type& l) {
        after_settling(l, [&](machine_type& m, time_point now, effects_type& fx) {
            m.count_settled(*l.holder, now, fx);
        });
    }

    void finish_take(const lease_type& l) {
        after_settling(l, [&](machine_type& m, time_point now, effects_type& fx) {
            m.finish_take(l, now, fx);
        });
    }

    void drop_stale(const lease_type& l) {
        after_settling(
            l, [&](machine_type& m, time_point, effects_type& fx) { m.drop_stale(l, fx); });
    }

    void close_consumer(state_type* state) {
        const auto keep = state->queue;
        bool gone = false;
        locked_and_current([&](machine_type& m, time_point now, effects_type& fx) {
            m.close(*state, now, fx);
            state->is_closed = true;
            gone = m.remove_if_unreferenced(*state);
        });
        if (gone) {
            delete state;
        }
    }

    /// Before leases on the fast path: none of them ends before `deadline`.
    RAILMQ_NOINLINE void cover_leases(time_point deadline) {
        const std::lock_guard guard{mutex_};
        machine_.cover_leases(deadline, duration::zero(), broker_->clock().coarse_now());
    }

    /// After a lease on the fast path whose deadline is the earliest now.
    RAILMQ_ALWAYS_INLINE void note_deadline(time_point deadline) {
        if (deadline.time_since_epoch().count() < due_.load(std::memory_order_seq_cst)) {
            lower_due_to(deadline);
        }
    }

    /// What is due in this queue happens. Called by the broker, which has taken the queue off its
    /// list of due ones.
    void run_due(time_point now) {
        effects_type fx{broker_->is_listening()};
        after finish{*this, fx};
        std::lock_guard guard{mutex_};
        // First forget the old deadline, then look: a consumer that takes a message meanwhile
        // either is seen here, since it moved `next` before, or sees `never` and lowers it again.
        due_.store(never.time_since_epoch().count(), std::memory_order_seq_cst);
        const struct lower_exactly {
            queue_core& queue;
            time_point now;
            ~lower_exactly() { queue.lower_due(queue.machine_.next_due(now)); }
        } lower{*this, now};
        machine_.run_due(now, fx);
        machine_.trim(1024);
    }

    [[nodiscard]] time_point next_due(time_point now) {
        std::lock_guard guard{mutex_};
        return machine_.next_due(now);
    }
    /// Nothing is due before `exact`, though something was.
    void refresh_due(time_point exact) {
        std::lock_guard guard{mutex_};
        broker_->forget_due(*this);
        due_.store(never.time_since_epoch().count(), std::memory_order_seq_cst);
        lower_due(exact);
    }

    /// Carries out what the machine decided. No lock is held.
    void finish(effects_type& fx) noexcept {
        end_payloads(fx);
        for (auto& s : fx.stops) {
            s.request_stop();
        }
        broker_->notify(fx.notices);
        if (fx.has_dying) {
            try {
                move_dying();
            } catch (...) {
                // Out of memory: they stay listed, and the next death or failure tries again.
                broker_->count_swallowed();
            }
        }
        for (core::waiter* w : fx.completed) {
            w->complete(w);
        }
    }

    /// Moves every message that can be moved to the dead-letter queue, each in one step under both
    /// locks, so that it is never in both queues and never in neither.
    void move_dying();

    /// Tells the broker of the queue's next deadline when a change, made under the lock, is over.
    struct lower_due_later {
        queue_core& queue;
        time_point now;
        ~lower_due_later() { queue.lower_due(queue.machine_.take_new_due(now)); }
        lower_due_later(queue_core& q, time_point t) noexcept
            : queue{q}
            , now{t} {}
        lower_due_later(const lower_due_later&) = delete;
        lower_due_later& operator=(const lower_due_later&) = delete;
    };

private:
    using atomic_due = typename Runtime::template atomic<std::int64_t>;

    struct after {
        queue_core& queue;
        effects_type& fx;
        ~after() { queue.finish(fx); }
        after(queue_core& q, effects_type& e) noexcept
            : queue{q}
            , fx{e} {}
        after(const after&) = delete;
        after& operator=(const after&) = delete;
    };

    /// Runs `f` under the lock, then ends the consumer's state if no handle of it is left.
    template <class F>
    void after_settling(const lease_type& l, F&& f) {
        auto* state = static_cast<state_type*>(l.holder);
        const auto keep = state->queue;
        bool gone = false;
        locked([&](machine_type& m, time_point now, effects_type& fx) {
            f(m, now, fx);
            gone = state->is_closed && m.remove_if_unreferenced(*state);
        });
        if (gone) {
            delete state;
        }
    }

    /// With the lock held.
    void lower_due(time_point due) noexcept {
        std::int64_t known = due_.load(std::memory_order_seq_cst);
        const std::int64_t wanted = due.time_since_epoch().count();
        while (wanted < known) {
            if (due_.compare_exchange_weak(known, wanted)) {
                broker_->lower_due(*this, due);
                return;
            }
        }
    }
    RAILMQ_NOINLINE void lower_due_to(time_point due) noexcept {
        std::lock_guard guard{mutex_};
        lower_due(due);
    }

    void end_payloads(effects_type& fx) noexcept {
        bool any_aside = false;
        for (const place_type p : fx.endings) {
            const bool aside = p.in->aside; // a place in line may be reused once it has ended
            any_aside = any_aside || aside;
            machine_.end_payload(p);
        }
        if (any_aside) {
            std::lock_guard guard{mutex_};
            for (const place_type p : fx.endings) {
                machine_.free_ended(p);
            }
        }
        fx.endings.clear();
    }

    bool move_one_death(queue_core* target, std::string_view target_name, errc unusable);

    std::shared_ptr<broker_type> broker_;
    message_type type_;
    std::uint64_t number_;
    queue_options asked_for_;
    typename Runtime::mutex mutex_{};
    machine_type machine_;
    alignas(64) atomic_due due_{never.time_since_epoch().count()};
};

/// One dying message: to `target`, or to nowhere when it is null and `unusable` is no error.
/// False: none is left.
template <class Runtime>
bool queue_core<Runtime>::move_one_death(
    queue_core* target, std::string_view target_name, errc unusable) {
    effects_type fx{broker_->is_listening()};
    effects_type target_fx{broker_->is_listening()};
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
            return true;
        }
        errc e = unusable;
        const bool pinned = m->where.at->load().pins() != 0;
        if (target != nullptr) {
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
        return true;
    });
    finish(fx);
    if (target != nullptr) {
        target->finish(target_fx);
    }
    return moved;
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

template <class Runtime>
void broker_core<Runtime>::run_due(time_point now) {
    for (;;) {
        std::shared_ptr<queue_type> q;
        {
            std::lock_guard guard{due_mutex_};
            if (due_queues_.empty() || due_queues_.begin()->first > now) {
                return;
            }
            queue_type* first = due_queues_.begin()->second.second;
            q = first->weak_from_this().lock(); // none: it is being destroyed this moment
            due_of_.erase(first->number());
            due_queues_.erase(due_queues_.begin());
            publish_due();
        }
        if (q != nullptr) {
            q->run_due(now);
        }
    }
}

template <class Runtime>
void broker_core<Runtime>::lower_due(queue_type& q, time_point due) noexcept {
    bool earlier = false;
    {
        std::lock_guard guard{due_mutex_};
        const auto known = due_of_.find(q.number());
        if (known != due_of_.end()) {
            if (known->second <= due) {
                return;
            }
            due_queues_.erase({known->second, {q.number(), &q}});
            known->second = due;
        } else {
            due_of_.emplace(q.number(), due);
        }
        due_queues_.insert({due, {q.number(), &q}});
        earlier = due_queues_.begin()->second.second == &q;
        publish_due();
    }
    if (earlier) {
        std::lock_guard guard{sleepers_mutex_};
        if (!sleepers_.empty()) {
            sleepers_.front().spot.poke();
        }
        if (set_timer_ && has_async_users()) {
            set_timer_();
        }
    }
}

template <class Runtime>
void broker_core<Runtime>::forget_due(queue_type& q) noexcept {
    std::lock_guard guard{due_mutex_};
    const auto known = due_of_.find(q.number());
    if (known != due_of_.end()) {
        due_queues_.erase({known->second, {q.number(), &q}});
        due_of_.erase(known);
        publish_due();
    }
}

template <class Runtime>
time_point broker_core<Runtime>::next_due() {
    for (;;) {
        std::shared_ptr<queue_type> q;
        time_point noted = never;
        {
            std::lock_guard guard{due_mutex_};
            if (due_queues_.empty()) {
                return never;
            }
            noted = due_queues_.begin()->first;
            q = due_queues_.begin()->second.second->weak_from_this().lock();
        }
        if (q == nullptr) {
            return noted;
        }
        // The noted moment may have been overtaken: what was due was settled before.
        const time_point exact = q->next_due(clock_.now());
        if (exact <= noted) {
            return noted;
        }
        q->refresh_due(exact);
    }
}

template <class Runtime>
message_type broker_core<Runtime>::type_of(queue_type& q) noexcept {
    return q.type();
}

template <class Runtime>
failure
broker_core<Runtime>::mismatch(queue_type& have, message_type type, const queue_options* options) {
    if (!(have.type() == type)) {
        return {
            errc::type_mismatch,
            "queue '" + have.name() + "' holds messages of type " + std::string{have.type().name} +
                ", not " + std::string{type.name}};
    }
    if (options != nullptr) {
        const std::string_view what = difference(have.asked_for(), *options);
        if (!what.empty()) {
            return {
                errc::options_mismatch,
                "queue '" + have.name() + "' exists with another " + std::string{what}};
        }
    }
    return {};
}

} // namespace railmq::detail
