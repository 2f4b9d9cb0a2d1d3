// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/broker.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

// The longer calls of a broker: what is opened and deleted by name, and the end of all.

namespace railmq {

template <class Runtime>
template <class T>
std::optional<basic_queue<T, Runtime>>
basic_broker<Runtime>::find_queue(std::string_view name) const {
    auto q = core().find(name);
    if (q == nullptr) {
        return core().is_unopened(name) ? std::optional{open<T>(name, nullptr)} : std::nullopt;
    }
    if (!(q->type() == detail::message_type_of<T>())) {
        throw system_error(
            make_error_code(errc::type_mismatch),
            "queue '" + q->name() + "' holds messages of type " + std::string{q->type().name});
    }
    return basic_queue<T, Runtime>{std::move(q)};
}

template <class Runtime>
template <class T>
basic_partitioned_log<T, Runtime> basic_broker<Runtime>::log(std::string_view name, log_options o) {
    require(validate_name(name));
    require(validate(o));
    failure f;
    auto l = core().open_log(name, detail::message_type_of<T>(), &o, {}, f);
    require(f);
    return basic_partitioned_log<T, Runtime>{std::move(l)};
}

template <class Runtime>
template <class T>
std::optional<basic_partitioned_log<T, Runtime>>
basic_broker<Runtime>::find_log(std::string_view name) const {
    if (const auto there = core().find_log(name);
        there != nullptr ? there->is_topic() : core().is_unopened_log(name, true)) {
        return std::nullopt;
    }
    failure f;
    auto l = core().open_log(name, detail::message_type_of<T>(), nullptr, {}, f);
    require(f);
    return l == nullptr ? std::nullopt
                        : std::optional{basic_partitioned_log<T, Runtime>{std::move(l)}};
}

template <class Runtime>
void basic_broker<Runtime>::delete_log(std::string_view name, bool is_topic, error_code& ec) {
    if (const auto there = core().find_log(name); there != nullptr && !there->is_kept()) {
        delete_unkept(there, is_topic, ec);
        return;
    }
    const auto gone = core().remove_log(name, is_topic, ec);
    if (gone == nullptr) {
        if (!ec) {
            core().remove_unopened_log(name, is_topic, ec);
        }
        return;
    }
    gone->close(errc::not_found);
    core().forget_bindings(*gone);
    (void)core().forget_log(gone);
    gone->confirm_all(ec);
    gone->forget();
}

template <class Runtime>
void basic_broker<Runtime>::delete_unkept(
    const std::shared_ptr<detail::log_core<Runtime>>& l, bool is_topic, error_code& ec) {
    ec = {};
    if (l == nullptr || l->is_topic() != is_topic) {
        ec = errc::not_found;
        return;
    }
    // Its subscriptions' names first: whoever makes it anew finds none of them.
    l->close(errc::not_found);
    if (!core().forget_log(l)) {
        ec = errc::not_found; // somebody else has
        return;
    }
    core().forget_bindings(*l);
}

template <class Runtime>
template <class T>
basic_topic<T, Runtime> basic_broker<Runtime>::topic(std::string_view name, topic_options o) {
    require(validate_name(name));
    require(validate(o));
    log_options as_log;
    as_log.retention = o.history.value_or(log_retention{});
    // Small ones, since only whole segments go.
    as_log.segment_bytes = std::size_t{1} << 20;
    as_log.segment_records = 4096;
    failure f;
    auto t = core().open_log(
        name,
        detail::message_type_of<T>(),
        &as_log,
        {true, o.history.has_value(), o.retain_last},
        f);
    require(f);
    return basic_topic<T, Runtime>{std::move(t)};
}

template <class Runtime>
template <class T>
std::optional<basic_topic<T, Runtime>>
basic_broker<Runtime>::find_topic(std::string_view name) const {
    auto t = core().find_log(name);
    if (t == nullptr && core().is_unopened_log(name, true)) {
        failure f;
        t = core().open_log(name, detail::message_type_of<T>(), nullptr, {true}, f);
        require(f);
    }
    if (t == nullptr || !t->is_topic()) {
        return std::nullopt;
    }
    if (!(t->type() == detail::message_type_of<T>())) {
        throw system_error(
            make_error_code(errc::type_mismatch),
            "topic '" + t->name() + "' holds messages of type " + std::string{t->type().name});
    }
    return basic_topic<T, Runtime>{std::move(t)};
}

template <class Runtime>
template <class T>
std::optional<basic_exchange<T, Runtime>>
basic_broker<Runtime>::find_exchange(std::string_view name) const {
    auto x = core().find_exchange(name);
    if (x == nullptr) {
        const auto kept = core().unopened_exchange(name);
        if (!kept) {
            return std::nullopt;
        }
        failure f;
        x = core().open_exchange(name, detail::message_type_of<T>(), kept->type, kept->options, f);
        require(f);
    }
    if (!(x->type() == detail::message_type_of<T>())) {
        throw system_error(
            make_error_code(errc::type_mismatch),
            "exchange '" + x->name() + "' has messages of type " + std::string{x->type().name});
    }
    return basic_exchange<T, Runtime>{std::move(x)};
}

template <class Runtime>
std::uint64_t basic_broker<Runtime>::close() noexcept {
    // Only who closes the queues may close the journal: what they still write must be kept.
    const auto all = core_ != nullptr ? core_->close() : std::nullopt;
    if (!all) {
        return 0;
    }
    for (const auto& x : core_->all_exchanges()) {
        x->close(errc::closed);
    }
    for (const auto& l : core_->logs()) {
        l->close(errc::closed);
    }
    std::uint64_t left = 0;
    for (const auto& q : *all) {
        left += q->locked([](auto& m, time_point now, auto& fx) {
            m.list_held(fx);
            return m.close_queue(errc::closed, true, now, fx);
        });
    }
    core_->stop_async_timer();
    core_->close_journal();
    core_->forget_all();
    if constexpr (!Runtime::concurrent) { // two threads may be closing
        link_.reset();
    }
    return left;
}

template <class Runtime>
std::uint64_t basic_broker<Runtime>::close(drain_for limit) {
    if (core_ == nullptr || core_->is_closed()) {
        return 0;
    }
    const time_point until = saturating_add(core_->clock().now(), limit.time);
    for (const auto& x : core_->all_exchanges()) {
        x->drain();
    }
    for (const auto& q : core_->queues()) {
        q->locked_and_current([](auto& m, time_point now, auto& fx) { m.drain_queue(now, fx); });
    }
    // The end of one queue's work may be the beginning of another's, so all must be idle at once.
    for (bool again = true; again;) {
        again = false;
        for (const auto& q : core_->queues()) {
            // A dead-letter queue that nobody reads has nothing to drain.
            const bool has_work = q->locked([](auto& m, time_point now, auto&) {
                return m.has_consumers() && !m.is_idle(false, now);
            });
            const duration rest = until - core_->clock().now();
            if (has_work && rest > duration::zero()) {
                again = detail::wait_for_idle(*q, false, rest) || again;
            }
        }
    }
    return close();
}

} // namespace railmq
