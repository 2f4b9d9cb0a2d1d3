// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/consumer.hpp>
#include <railmq/detail/blocking.hpp>
#include <railmq/detail/dead_letters.hpp>
#include <railmq/detail/kept_queues.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/request_options.hpp>
#include <railmq/model/stats.hpp>
#include <railmq/producer.hpp>
#include <railmq/subscription.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// A copy of a message that is still in its queue.
template <class T>
struct peeked {
    T value;
    railmq::properties properties{};
    std::uint64_t id = 0;
    time_point enqueued_at{};
    std::uint32_t delivery_count = 0;
    std::vector<death> deaths{};
    std::optional<railmq::first_death> first_death{};
};

/// A queue: messages wait in it until one of its consumers has settled them.
///
/// A handle; copies refer to the same queue, and keep it alive. What it is made with is
/// `queue_options`; how messages live is in docs/01_queue.md.
///
/// Thread safety: safe. Errors: every call but the observers throws `system_error` with `closed`
/// on a handle that refers to no queue.
template <class T, class Runtime>
class basic_queue {
    using core_type = detail::queue_core<Runtime>;
    using place_type = core::place<Runtime>;

public:
    using value_type = T;
    using producer_type = basic_producer<T, Runtime>;
    using consumer_type = basic_consumer<T, Runtime>;

    basic_queue() noexcept = default;

    [[nodiscard]] const std::string& name() const { return core().name(); }
    [[nodiscard]] const queue_options& options() const { return core().asked_for(); }

    /// A producer. Throws `invalid_argument` for options out of range.
    [[nodiscard]] producer_type producer(producer_options o = {}) const {
        require(validate(o));
        return producer_type{shared(), o};
    }

    /// A consumer, from now on in competition with the others. Throws `invalid_argument` for
    /// options out of range, `options_mismatch` when it disagrees with the others on
    /// `single_active`, `closed` when the queue is closed and has nothing left.
    [[nodiscard]] consumer_type consumer(consumer_options o = {}) const;

    /// Runs `handler` for each message on `executor`, at most `concurrency` at a time; see
    /// `basic_subscription`.
    template <class Executor, class Handler>
    [[nodiscard]] basic_subscription<Runtime>
    subscribe(Executor executor, Handler handler, subscribe_options o = {}) const;

    /// Asks whoever works on this queue, and waits for what they answer; see `basic_requester`, in
    /// `railmq/requester.hpp`.
    /// Throws `invalid_argument` and `invalid_name` for options out of range, and as `queue` for
    /// the queue of the replies.
    template <class Reply>
    [[nodiscard]] basic_requester<T, Reply, Runtime> requester(requester_options o = {}) const {
        return basic_requester<T, Reply, Runtime>{*this, std::move(o)};
    }

    /// Copies of up to `max` ready messages, in the order in which they would be handed out. One
    /// whose payload cannot be read from the journal is left out.
    [[nodiscard]] std::vector<peeked<T>>
    peek(std::size_t max = 1) const requires std::copy_constructible<T>;

    /// Removes every message that nobody holds, delayed ones included, for good. Returns how many.
    std::uint64_t purge() const {
        return core().locked_and_current(
            [](auto& m, time_point now, auto& fx) { return m.purge(now, fx); });
    }

    /// Hands nothing out until `resume`; sends go on.
    void pause() const {
        core().locked_and_current([](auto& m, time_point, auto&) { m.pause(); });
    }
    /// `pause`, then waits until everything that is held is settled. False: not within `limit`.
    bool pause(drain_for limit) const {
        pause();
        return wait_for_idle(true, limit.time);
    }
    void resume() const {
        core().locked_and_current([](auto& m, time_point now, auto& fx) { m.resume(now, fx); });
    }
    [[nodiscard]] bool is_paused() const {
        return core().locked([](auto& m, time_point, auto&) { return m.is_paused(); });
    }

    /// Waits until the queue is empty and nothing is held or delayed. False: not within `limit`.
    bool drain(drain_for limit) const { return wait_for_idle(false, limit.time); }

    /// Moves ready messages of this queue, the oldest first, to the back of `to`: as new messages,
    /// with their properties and the history of their deaths, and none of their failures. Moves
    /// those for which `where(value)` holds, at most `rate` a second, and waits in between.
    /// Returns how many it moved.
    ///
    /// Each is moved in one step: it is never in both queues and never in neither. Stops early at
    /// the first that `to` refuses, with that error. Errors: `type_mismatch` cannot happen, the
    /// types are equal; `invalid_argument`: the same queue, another broker's, or a bad rate.
    template <std::predicate<const T&> Where>
    std::uint64_t
    redrive(const basic_queue& to, redrive_options o, Where where, error_code& ec) const;
    template <std::predicate<const T&> Where>
    std::uint64_t redrive(const basic_queue& to, redrive_options o, Where where) const {
        error_code ec;
        const auto n = redrive(to, o, std::move(where), ec);
        if (ec) {
            throw system_error(ec, "redrive");
        }
        return n;
    }
    std::uint64_t redrive(const basic_queue& to, redrive_options o = {}) const {
        return redrive(to, o, [](const T&) { return true; });
    }

    /// Sends dead letters there from now on, those of messages that are held included.
    void dead_letter(dead_letter_target target) const;

    /// How the queue is at this moment.
    [[nodiscard]] queue_stats stats() const {
        return core().locked_and_current([this](auto& m, time_point, auto&) {
            queue_stats s = m.stats();
            s.on_disk = core().is_kept() ? core().kept().absent_count() : 0;
            return s;
        });
    }

    /// Takes no more sends; what is there can still be received, and receives end when nothing is
    /// left. Returns how many messages are undelivered or held.
    std::uint64_t close() const {
        return core().locked_and_current([](auto& m, time_point now, auto& fx) {
            return m.close_queue(errc::closed, false, now, fx);
        });
    }

    [[nodiscard]] bool is_open() const {
        return core_ != nullptr &&
               core_->locked([](auto& m, time_point, auto&) { return !m.is_closed(); });
    }
    [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }
    /// Whether both refer to the same queue.
    friend bool operator==(const basic_queue&, const basic_queue&) noexcept = default;

private:
    friend struct detail::queue_access<T, Runtime>;
    template <class>
    friend class basic_broker;
    template <class, class>
    friend class basic_partitioned_log;
    template <class, class>
    friend class basic_topic;
    template <class, class>
    friend class basic_exchange;

    explicit basic_queue(std::shared_ptr<core_type> c) noexcept
        : core_{std::move(c)} {}

    [[nodiscard]] const std::shared_ptr<core_type>& shared() const {
        if (core_ == nullptr) {
            throw system_error(make_error_code(errc::closed), "the handle refers to no queue");
        }
        return core_;
    }
    [[nodiscard]] core_type& core() const { return *shared(); }
    static void require(const failure& f) {
        if (f) {
            throw system_error(f.code, f.what);
        }
    }
    [[nodiscard]] bool wait_for_idle(bool only_held, duration limit) const;
    using predicate = std::function<bool(const T&)>;
    [[nodiscard]] static const T& value_at(core_type& of, place_type p) {
        return *std::launder(static_cast<const T*>(of.machine().store().payload(p)));
    }
    /// Whether a message that can be moved now matches.
    [[nodiscard]] static bool matches(core_type& of, place_type p, const predicate& where) {
        bool is_match = false;
        // One that an old delivery still reads stays, and those behind it go.
        return p.at->load().pins() == 0 &&
               of.with_payload(p, [&] { is_match = where(value_at(of, p)); }) && is_match;
    }
    [[nodiscard]] bool has_match(const predicate& where) const;
    [[nodiscard]] errc redrive_one(core_type& to, const predicate& where) const;

    std::shared_ptr<core_type> core_{};
};

namespace detail {

/// For other handles: what is behind a queue's handle, and the way back.
template <class T, class Runtime>
struct queue_access {
    [[nodiscard]] static const std::shared_ptr<queue_core<Runtime>>&
    core(const basic_queue<T, Runtime>& q) {
        return q.shared();
    }
    [[nodiscard]] static basic_queue<T, Runtime>
    make(std::shared_ptr<queue_core<Runtime>> core) noexcept {
        return basic_queue<T, Runtime>{std::move(core)};
    }
};

} // namespace detail

template <class T, class Runtime>
basic_consumer<T, Runtime> basic_queue<T, Runtime>::consumer(consumer_options o) const {
    require(validate(o));
    auto made = std::make_unique<detail::consumer_state<Runtime>>(shared());
    made->prefetch.store(o.prefetch, std::memory_order_relaxed);
    made->priority = o.priority;
    made->single_active = o.single_active;
    made->auto_extend = o.auto_extend;
    made->acks_on_delivery = o.ack_mode == ack_mode::on_delivery;
    made->lease_span =
        saturating_add(
            time_point{core().asked_for().ack_timeout}, core().broker().clock().resolution())
            .time_since_epoch();
    made->name = std::move(o.name);
    core().locked_and_current([&](auto& m, time_point now, auto& fx) {
        if (m.is_closed() && m.is_drained()) {
            throw system_error(make_error_code(errc::closed), "queue '" + name() + "' is closed");
        }
        m.open(*made, now, fx);
    });
    return consumer_type{made.release()};
}

template <class T, class Runtime>
std::vector<peeked<T>>
basic_queue<T, Runtime>::peek(std::size_t max) const requires std::copy_constructible<T> {
    std::vector<peeked<T>> all;
    if (max == 0) {
        return all;
    }
    core().locked_and_current([&](auto& m, time_point now, auto& fx) {
        m.draw_up_to(max, now, fx);
        m.browse([&](place_type p) {
            std::optional<T> value;
            if (!core().with_payload(p, [&] { value.emplace(value_at(core(), p)); })) {
                return true;
            }
            peeked<T> one{std::move(*value)};
            const core::message_details* d = m.store().details_of(p);
            if (d != nullptr && d->props != nullptr) {
                one.properties = *d->props;
            }
            if (d != nullptr && d->deaths != nullptr) {
                one.deaths = d->deaths->entries();
                one.first_death = d->deaths->first();
            }
            one.id = m.store().public_id(p);
            one.enqueued_at = m.store().enqueued_at(p).value_or(time_point{});
            one.delivery_count = p.at->load().tag();
            all.push_back(std::move(one));
            return all.size() < max;
        });
    });
    return all;
}

template <class T, class Runtime>
bool basic_queue<T, Runtime>::wait_for_idle(bool only_held, duration limit) const {
    if (detail::handler_of == &core().broker()) {
        throw system_error(
            make_error_code(errc::would_deadlock), "a handler would wait for its own end");
    }
    return detail::wait_for_idle(core(), only_held, limit);
}

template <class T, class Runtime>
bool basic_queue<T, Runtime>::has_match(const predicate& where) const {
    return core().locked_and_current([&](auto& m, time_point, auto&) {
        bool found = false;
        m.browse([&](place_type p) {
            found = matches(core(), p, where);
            return !found;
        });
        return found;
    });
}

template <class T, class Runtime>
errc basic_queue<T, Runtime>::redrive_one(core_type& to, const predicate& where) const {
    auto& from = core();
    core::effects<Runtime> fx = from.make_effects();
    core::effects<Runtime> to_fx = to.make_effects();
    std::vector<std::byte> encoded;
    errc result = errc::not_found;
    {
        std::scoped_lock both{from.mutex(), to.mutex()};
        const time_point now = from.broker().clock().now();
        const typename core_type::lower_due_later lower{from, now};
        const typename core_type::lower_due_later lower_to{to, now};
        auto& m = from.machine();
        place_type found{};
        m.browse_and_hold([&](place_type p) {
            if (matches(from, p, where)) {
                found = p;
            }
            return !found;
        });
        if (found) {
            const core::message_details* d = m.store().details_of(found);
            auto fresh = std::make_unique<core::message_details>();
            if (d != nullptr && d->deaths != nullptr) {
                fresh->deaths = std::make_unique<death_history>(*d->deaths);
            }
            if (d != nullptr && d->props != nullptr) {
                fresh->props = std::make_unique<properties>(*d->props);
            }
            const std::uint64_t id = m.store().public_id(found);
            // A closed queue still takes dead letters, which have nowhere else to go, but no
            // others.
            const bool is_encoded = from.encode(found, encoded);
            to_fx.encoded = encoded;
            result = to.machine().is_closed() ? errc::closed
                     : !is_encoded
                         ? errc::invalid_argument
                         : to.machine().adopt(m.store().payload(found), fresh, now, to_fx);
            if (result == errc{}) {
                notices::redriven n{};
                n.queue = from.name();
                n.at = now;
                n.id = id;
                n.target = to.name();
                fx.note(std::move(n));
                m.begin_extract(found);
                m.finish_extract(found, now, fx);
            }
        }
        m.serve(now, fx);
        const typename core_type::part parts[] = {{&from, &fx}, {&to, &to_fx}};
        core_type::write_together(parts);
    }
    from.finish(fx);
    to.finish(to_fx);
    return result;
}

template <class T, class Runtime>
template <std::predicate<const T&> Where>
std::uint64_t basic_queue<T, Runtime>::redrive(
    const basic_queue& to, redrive_options o, Where where, error_code& ec) const {
    ec = {};
    auto& from = core();
    auto& target = to.core();
    if (validate(o) || &from == &target || &from.broker() != &target.broker()) {
        ec = errc::invalid_argument;
        return 0;
    }
    auto& owner = from.broker();
    const predicate filter = std::ref(where);
    const duration gap = o.rate > 0
                             ? saturating_duration(std::chrono::duration<double>(1.0 / o.rate))
                             : duration::zero();
    std::uint64_t moved = 0;
    // What comes in meanwhile, such as what fails again, is for the next redrive.
    const std::uint64_t most = stats().ready;
    time_point next = owner.clock().now();
    while (moved < most) {
        if (gap > duration::zero() && moved != 0) {
            if (!has_match(filter)) {
                break; // there is nothing to wait for
            }
            next = saturating_add(next, gap);
            detail::sleeper<Runtime> nobody;
            owner.block(nobody, next);
        }
        owner.catch_up();
        const errc e = redrive_one(target, filter);
        if (e == errc::not_found) {
            break;
        }
        if (e != errc{}) {
            ec = e;
            break;
        }
        ++moved;
    }
    return moved;
}

template <class T, class Runtime>
void basic_queue<T, Runtime>::dead_letter(dead_letter_target target) const {
    if (!target.is_unset() && !target.is_discard()) {
        require(validate_name(target.name()));
        errc why{};
        if (core().broker().dead_letter_queue(target.name(), core().type(), why) == nullptr) {
            throw system_error(
                make_error_code(why), "the dead-letter queue '" + target.name() + "'");
        }
    }
    core().locked([&](auto& m, time_point, auto&) { m.set_dead_letter(std::move(target)); });
}

template <class T, class Runtime>
template <class Executor, class Handler>
basic_subscription<Runtime>
basic_queue<T, Runtime>::subscribe(Executor executor, Handler handler, subscribe_options o) const {
    require(validate(o));
    return detail::start_subscription<T, Runtime>(
        consumer(o.consumer), shared(), std::move(executor), std::move(handler), o.concurrency);
}

} // namespace railmq
