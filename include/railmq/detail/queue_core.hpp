// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/queue_machine.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/due_source.hpp>
#include <railmq/detail/joint_entries.hpp>
#include <railmq/detail/queue_journal.hpp>
#include <railmq/storage/kept_state.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
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
class queue_core final : public std::enable_shared_from_this<queue_core<Runtime>>,
                         public due_source,
                         private core::payload_source<Runtime> {
public:
    using machine_type = core::queue_machine<Runtime>;
    using effects_type = core::effects<Runtime>;
    using lease_type = core::lease<Runtime>;
    using state_type = consumer_state<Runtime>;
    using broker_type = broker_core<Runtime>;
    using place_type = core::place<Runtime>;

    /// `kept_as`: its number in the broker's journal, if there is one.
    queue_core(
        std::shared_ptr<broker_type> broker,
        std::string name,
        message_type type,
        queue_options options,
        std::uint64_t number,
        std::uint64_t kept_as)
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
              broker_->is_listening(),
              kept_as != 0} {
        if (kept_as != 0) {
            kept_ = std::make_unique<queue_journal<Runtime>>(
                broker_->journal(), kept_as, machine_, broker_->budget());
            machine_.read_payloads_from(*this);
            machine_.list_hand_outs(
                broker_->options().journal_hand_outs == hand_out_journaling::always);
        }
    }
    queue_core(const queue_core&) = delete;
    queue_core& operator=(const queue_core&) = delete;
    ~queue_core() { broker_->forget_due(*this); }

    [[nodiscard]] broker_type& broker() const noexcept { return *broker_; }
    [[nodiscard]] const std::shared_ptr<broker_type>& shared_broker() const noexcept {
        return broker_;
    }
    [[nodiscard]] message_type type() const noexcept { return type_; }
    [[nodiscard]] std::uint64_t number() const noexcept override { return number_; }
    [[nodiscard]] std::shared_ptr<due_source> keep() noexcept override {
        return this->weak_from_this().lock();
    }
    [[nodiscard]] const std::string& name() const noexcept { return machine_.name(); }
    [[nodiscard]] const queue_options& asked_for() const noexcept { return asked_for_; }
    /// The machine; but for its ring, only under the lock.
    [[nodiscard]] machine_type& machine() noexcept { return machine_; }
    [[nodiscard]] auto& ring() noexcept { return machine_.ring(); }
    [[nodiscard]] auto& mutex() noexcept { return mutex_; }

    /// Whether what happens here is kept in a journal.
    [[nodiscard]] bool is_kept() const noexcept { return kept_ != nullptr; }
    /// Only under the lock.
    [[nodiscard]] queue_journal<Runtime>& kept() noexcept { return *kept_; }
    [[nodiscard]] effects_type make_effects() const noexcept {
        return effects_type{broker_->is_listening(), is_kept()};
    }

    [[nodiscard]] errc check_room(std::size_t bytes) { return broker_->check_room(bytes); }
    /// Room for a record that is being made, with the lock held.
    [[nodiscard]] std::vector<std::byte>& record() noexcept { return record_; }

    /// Runs `f(machine, now, effects)` under the lock, then everything that follows from it.
    template <class F>
    auto locked(F&& f) {
        effects_type fx = make_effects();
        after finish{*this, fx};
        std::lock_guard guard{mutex_};
        const write_later write{*this, fx};
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

    /// Acknowledges leases of one consumer together. Calls `settled(i)` for each that this settled.
    template <class Settled>
    void ack_together(std::span<const lease_type> leases, Settled&& settled) {
        auto* state = static_cast<state_type*>(leases.front().holder);
        const auto keep = state->queue;
        if (broker_->is_due()) {
            broker_->catch_up();
        }
        bool gone = false;
        locked([&](machine_type& m, time_point now, effects_type& fx) {
            for (std::size_t i = 0; i < leases.size(); ++i) {
                const std::size_t row = m.ack_row(leases.subspan(i), fx);
                for (const std::size_t end = i + row; i != end; ++i) {
                    settled(i);
                }
                if (i < leases.size() && m.settle(leases[i], {}, now, fx)) {
                    settled(i);
                }
            }
            m.on_settled(*state, now, fx);
            gone = state->is_closed && m.remove_if_unreferenced(*state);
        });
        if (gone) {
            delete state;
        }
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

    // A queue that is filled from a log

    /// Draws messages from there when there are none in line; `serve_waiting` is to be called
    /// afterwards. False: it draws from somewhere already.
    [[nodiscard]] bool draw_from(std::unique_ptr<core::message_supply<Runtime>> supply) noexcept {
        const std::lock_guard guard{mutex_};
        if (supply_ != nullptr) {
            return false;
        }
        supply_ = std::move(supply);
        machine_.draw_from(*supply_);
        is_fed_.store(true, std::memory_order_release);
        return true;
    }
    /// Whether there may be messages that are not in line.
    [[nodiscard]] bool is_fed() const noexcept { return is_fed_.load(std::memory_order_acquire); }
    /// There is more to draw: whoever waits gets it.
    void serve_waiting() noexcept {
        try {
            bool has_more = true;
            while (has_more) {
                has_more =
                    locked_and_current([&](machine_type& m, time_point now, effects_type& fx) {
                        m.draw_eagerly(now, fx);
                        m.serve(now, fx);
                        return supply_ != nullptr && supply_->is_held_up();
                    });
            }
        } catch (...) { // out of memory; whoever comes next serves them
            broker_->count_swallowed();
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
    void run_due(time_point now) override {
        // Whatever falls due at one moment: in parts, so that others get the lock between them, and
        // no record of the journal becomes too long.
        while (run_some_due(now, std::uint64_t{1} << 14)) {
        }
    }

    [[nodiscard]] time_point next_due(time_point now) override {
        std::lock_guard guard{mutex_};
        return machine_.next_due(now);
    }
    /// Nothing is due before `exact`, though something was.
    void refresh_due(time_point exact) override {
        std::lock_guard guard{mutex_};
        broker_->forget_due(*this);
        due_.store(never.time_since_epoch().count(), std::memory_order_seq_cst);
        lower_due(exact);
    }

    /// Carries out what the machine decided. No lock is held.
    void finish(effects_type& fx) noexcept {
        if (fx.record != 0 && !fx.completed.empty()) {
            // Nobody gets a message before it is written that he has got it: one that ends the
            // process must not come again and again.
            broker_->make_written(fx.record);
        }
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
            if (fx.wanted_at != nullptr && fx.record != 0) {
                // Whoever waits for what he did waits for what followed from it as well.
                *fx.wanted_at = broker_->journal()->port().last();
            }
        }
        for (core::waiter* w : fx.completed) {
            w->complete(w);
        }
        broker_->keep_up();
    }

    /// Runs `f` with the payload of the message at `p` in memory; where it was not, it leaves again
    /// when memory is short. False: it cannot be read. With the lock held.
    template <class F>
    [[nodiscard]] bool with_payload(place_type p, F&& f) {
        if (!is_kept()) {
            f();
            return true;
        }
        if (!bring_back(p)) {
            return false;
        }
        f();
        kept_->let_go(machine_, p);
        return true;
    }

    /// The bytes that a payload is kept as; none where nothing is kept. From then on it is in
    /// memory. False: its codec threw, or it cannot be read.
    [[nodiscard]] bool encode(place_type p, std::vector<std::byte>& out) noexcept {
        if (broker_->journal() == nullptr || machine_.store().ops().encode == nullptr) {
            return true;
        }
        if (is_kept() && !bring_back(p)) {
            return false;
        }
        try {
            machine_.store().ops().encode(machine_.store().payload(p), out);
            return true;
        } catch (...) {
            broker_->count_swallowed();
            return false;
        }
    }

    /// What has happened in one queue.
    struct part {
        queue_core* queue = nullptr;
        effects_type* fx = nullptr;
    };
    /// Writes what has changed in queues of one broker, whose locks are held, and `more`, so that
    /// all of it is kept or nothing. Returns the number of the record: where there was nothing to
    /// write, and somebody wants to wait for it, the last one there is. 0: it could not be written,
    /// or nothing is kept.
    static std::uint64_t write_together(
        broker_type& owner,
        std::span<const part> parts,
        std::vector<std::byte>& record,
        joint_entries* more) noexcept;
    /// The same for one queue or more.
    static std::uint64_t
    write_together(std::span<const part> parts, joint_entries* more = nullptr) noexcept {
        queue_core& first = *parts.front().queue;
        return write_together(*first.broker_, parts, first.record_, more);
    }
    /// The same for this queue alone.
    void write(effects_type& fx) noexcept {
        const part only{this, &fx};
        write_together(std::span{&only, 1});
    }

    struct write_later {
        queue_core& queue;
        effects_type& fx;
        ~write_later() { queue.write(fx); }
        write_later(queue_core& q, effects_type& e) noexcept
            : queue{q}
            , fx{e} {}
        write_later(const write_later&) = delete;
        write_later& operator=(const write_later&) = delete;
    };

    /// A message whose bytes are no value of this queue's type.
    struct undecodable {
        core::message_image image{};
        std::vector<std::byte> payload{};
    };
    /// Both in detail/kept_queues.hpp. Takes its messages back as the journal kept them; nobody
    /// else knows the queue yet. What cannot be decoded stays stored, for `set_aside`. Errors:
    /// `journal_corrupt`, `io_error`, `memory_limit`.
    [[nodiscard]] errc restore(
        storage::kept_queue& from,
        bool was_closed,
        effects_type& fx,
        std::vector<undecodable>& bad);
    /// Moves a message that could not be decoded into a queue of bytes.
    void set_aside(undecodable& m, queue_core& to);
    /// With the lock held: takes the bytes of a record of a log, which then has left it, as
    /// `entries` say, in the same record of the journal. `fx` is for `finish`. False: it stays
    /// where it is.
    [[nodiscard]] bool take_undecodable(
        const std::string& log,
        std::uint64_t offset,
        std::unique_ptr<properties> props,
        std::span<const std::byte> payload,
        joint_entries& entries,
        effects_type& fx);

    /// In detail/dead_letters.hpp. Takes a copy of a value that has died elsewhere, with `details`
    /// for it. Errors: why it has no place, and then nothing has changed. Throws what copying
    /// throws.
    [[nodiscard]] errc
    take_dead_letter(const void* value, std::unique_ptr<core::message_details> details);

    // The journal's upkeep, with the lock taken

    /// Writes again what the queue is, and which messages it has from that id on, at most `max`;
    /// moves `from` on. False: it could not be written.
    static constexpr std::uint64_t no_more = queue_journal<Runtime>::no_more;
    [[nodiscard]] bool
    list_again(std::uint64_t& from, std::size_t max, std::vector<std::byte>& record) {
        const std::lock_guard guard{mutex_};
        if (kept_->is_deleted()) {
            from = no_more; // saying it again would bring it back
            return true;
        }
        record.clear();
        if (from == 0) {
            kept_->put_definition(machine_, type_.ops->format(), asked_for_, record);
        }
        const bool is_first = from == 0;
        from = kept_->put_range(machine_, from, max, record);
        const auto append = [this](const std::vector<std::byte>& entries) {
            storage::record_location where;
            error_code ec;
            return kept_->journal().append(entries, where, ec) != 0;
        };
        return append(record) && (!is_first || kept_->put_remembered(machine_, record, append));
    }
    void store_fed_again(std::uint64_t segment, std::vector<std::byte>& record, error_code& ec) {
        const std::lock_guard guard{mutex_};
        kept_->store_fed_again(machine_, segment, record, ec);
    }
    bool store_again(
        std::uint64_t id,
        storage::record_location from,
        const storage::stored_content& content,
        std::vector<std::byte>& record,
        error_code& ec) {
        const std::lock_guard guard{mutex_};
        return kept_->store_again(machine_, id, from, content, record, ec);
    }

    /// In detail/dead_letters.hpp.
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
    /// True: there is more.
    bool run_some_due(time_point now, std::uint64_t most) {
        effects_type fx = make_effects();
        after finish{*this, fx};
        std::lock_guard guard{mutex_};
        const write_later write{*this, fx};
        // First forget the old deadline, then look: a consumer that takes a message meanwhile
        // either is seen here, since it moved `next` before, or sees `never` and lowers it again.
        due_.store(never.time_since_epoch().count(), std::memory_order_seq_cst);
        const struct lower_exactly {
            queue_core& queue;
            time_point now;
            ~lower_exactly() { queue.lower_due(queue.machine_.next_due(now)); }
        } lower{*this, now};
        const bool has_more = machine_.run_due(now, fx, most);
        machine_.trim(1024);
        return has_more;
    }

    [[nodiscard]] bool has_all() const noexcept override { return kept_->absent_count() == 0; }
    [[nodiscard]] bool bring_back(place_type p) noexcept override {
        error_code ec;
        try {
            kept_->bring_back(machine_, p, ec);
        } catch (...) { // its codec has thrown, or there is no memory
            broker_->count_swallowed();
            return false;
        }
        return !ec;
    }

    static void note_unwritten(const part& p, errc why) noexcept {
        auto& owner = *p.queue->broker_;
        owner.count_unwritten(why);
        try {
            notices::unwritten n{};
            n.queue = p.queue->name();
            n.at = owner.clock().now();
            n.code = why;
            p.fx->note(std::move(n));
        } catch (...) {
            owner.count_swallowed();
        }
    }

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
        for (const auto& e : fx.endings) {
            machine_.end_payloads(e);
            any_aside = any_aside || e.is_aside;
        }
        if (any_aside) {
            std::lock_guard guard{mutex_};
            for (const auto& e : fx.endings) {
                machine_.free_ended(e);
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
    std::unique_ptr<queue_journal<Runtime>> kept_{};
    std::unique_ptr<core::message_supply<Runtime>> supply_{};
    typename Runtime::template atomic<bool> is_fed_{false};
    std::vector<std::byte> record_{}; ///< The one that is being made.
    alignas(64) atomic_due due_{never.time_since_epoch().count()};
};

template <class Runtime>
void broker_core<Runtime>::run_due(time_point now) {
    bool is_to_sync = false;
    for (;;) {
        std::shared_ptr<due_source> q;
        if (std::exchange(is_to_sync, false)) {
            error_code ec; // a failed journal tells so to whoever sends
            flush(storage::reached::synced, ec);
            this->leave_async_timer();
        }
        {
            std::lock_guard guard{due_mutex_};
            if (sync_due_ <= now) {
                sync_due_ = never;
                publish_due();
                is_to_sync = true;
                continue;
            }
            if (due_sources_.empty() || due_sources_.begin()->first > now) {
                return;
            }
            due_source* first = due_sources_.begin()->second.second;
            q = first->keep(); // none: it is being destroyed this moment
            due_of_.erase(first->number());
            due_sources_.erase(due_sources_.begin());
            publish_due();
        }
        if (q != nullptr) {
            q->run_due(now);
        }
    }
}

template <class Runtime>
void broker_core<Runtime>::lower_due(due_source& q, time_point due) noexcept {
    bool earlier = false;
    {
        std::lock_guard guard{due_mutex_};
        const auto known = due_of_.find(q.number());
        if (known != due_of_.end()) {
            if (known->second <= due) {
                return;
            }
            due_sources_.erase({known->second, {q.number(), &q}});
            known->second = due;
        } else {
            due_of_.emplace(q.number(), due);
        }
        due_sources_.insert({due, {q.number(), &q}});
        earlier = due_sources_.begin()->second.second == &q;
        publish_due();
    }
    if (earlier) {
        this->wake_timekeeper();
    }
}

template <class Runtime>
void broker_core<Runtime>::forget_due(due_source& q) noexcept {
    std::lock_guard guard{due_mutex_};
    const auto known = due_of_.find(q.number());
    if (known != due_of_.end()) {
        due_sources_.erase({known->second, {q.number(), &q}});
        due_of_.erase(known);
        publish_due();
    }
}

template <class Runtime>
time_point broker_core<Runtime>::next_due() {
    for (;;) {
        std::shared_ptr<due_source> q;
        time_point noted = never;
        {
            std::lock_guard guard{due_mutex_};
            if (due_sources_.empty() || sync_due_ <= due_sources_.begin()->first) {
                return sync_due_;
            }
            noted = due_sources_.begin()->first;
            q = due_sources_.begin()->second.second->keep();
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

// The broker's upkeep goes round logs as well.
#include <railmq/detail/log_core.hpp>
