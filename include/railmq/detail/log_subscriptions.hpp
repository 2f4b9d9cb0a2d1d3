// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/queue_feed.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/name.hpp>
#include <railmq/model/printable.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/topic_options.hpp>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace railmq::detail {

/// What `Predicate` says of a record's value, of type `T`, and of its properties if it asks.
template <class T, class Predicate>
[[nodiscard]] record_filter filter_of(Predicate wants) {
    return [wants = std::move(wants)](const void* payload, const properties* props) mutable {
        const T& value = *std::launder(static_cast<const T*>(payload));
        if constexpr (std::is_invocable_v<Predicate&, const T&, const properties&>) {
            static const properties none{};
            return static_cast<bool>(wants(value, props != nullptr ? *props : none));
        } else {
            return static_cast<bool>(wants(value));
        }
    };
}

[[nodiscard]] inline feed_terms terms_of(const subscription_options& o, record_filter wants) {
    feed_terms terms{o.start, o.max_backlog, std::move(wants)};
    if (!o.where.empty()) {
        terms.wants = [where = o.where, also = std::move(terms.wants)](
                          const void* payload, const properties* props) {
            return matches(where, props) && (!also || also(payload, props));
        };
    }
    return terms;
}

/// Fills a queue from a log from now on. False, and `failed` set, when it cannot.
template <class Runtime>
[[nodiscard]] bool feed(
    const std::shared_ptr<log_core<Runtime>>& log,
    const std::shared_ptr<queue_core<Runtime>>& q,
    const subscription_options& o,
    record_filter wants,
    failure& failed) {
    auto made = std::make_unique<queue_feed<Runtime>>(log, q, terms_of(o, std::move(wants)));
    if (const errc e = made->begin(); e != errc{}) {
        failed = {e, "the subscription cannot start there in '" + log->name() + "'"};
        return false;
    }
    if (!q->draw_from(std::move(made))) {
        failed = {errc::already_exists, "queue '" + q->name() + "' is filled already"};
        return false;
    }
    return true;
}

/// Takes a subscription's queue out of the broker: it ends with `not_found`. False: consumers hold
/// messages of it, and `force` is not set.
template <class Runtime>
bool end_subscription(broker_core<Runtime>& broker, queue_core<Runtime>& q, bool force) {
    const bool refused = q.locked_and_current([&](auto& m, time_point now, auto& fx) {
        if (!force && m.held_count() != 0) {
            return true;
        }
        m.close_queue(errc::not_found, true, now, fx);
        return false;
    });
    if (refused) {
        return false;
    }
    if (broker.find(q.name()).get() == &q) {
        (void)broker.remove(q.name());
    }
    broker.forget_bindings(q);
    q.locked([](auto& m, time_point now, auto& fx) { m.purge(now, fx); });
    return true;
}

/// Whether the log is closed; `failed` says so.
template <class Runtime>
[[nodiscard]] bool is_over(const log_core<Runtime>& log, failure& failed) {
    const errc why = log.closed();
    if (why != errc{}) {
        failed = {why, "'" + log.name() + "'"};
    }
    return why != errc{};
}

/// With `log.subscribing()` held. The queue, or null and `failed`; `made` is one that was made, of
/// use or not.
template <class Runtime>
[[nodiscard]] std::shared_ptr<queue_core<Runtime>> find_or_make_subscription(
    const std::shared_ptr<log_core<Runtime>>& log,
    std::string_view name,
    const subscription_options& o,
    record_filter wants,
    std::shared_ptr<queue_core<Runtime>>& made,
    failure& failed) {
    auto& broker = log->broker();
    const std::string full = log->name() + "." + std::string{name};
    if (is_over(*log, failed)) { // from here on its end would see the new one
        return nullptr;
    }
    auto& known = log->subscriptions();
    const auto there = broker.find(full);
    if (const auto it = known.find(name); it != known.end()) {
        if (there != nullptr && it->second.queue.lock() == there) {
            if (const auto what = difference(it->second.options, o); !what.empty()) {
                failed = {
                    errc::options_mismatch,
                    "subscription '" + full + "' exists with another " + std::string{what}};
                return nullptr;
            }
            return there;
        }
        known.erase(it); // its queue was deleted
    }
    if (there != nullptr) {
        failed = {errc::already_exists, "'" + full + "' is a queue of its own"};
        return nullptr;
    }
    made = broker.open(full, log->type(), &o.queue, failed);
    if (made == nullptr || !feed(log, made, o, std::move(wants), failed)) {
        return nullptr;
    }
    known.emplace(std::string{name}, subscription_entry<Runtime>{made, o});
    return made;
}

/// The named subscription of a log, made if it is missing; null, and `failed` set, when it cannot
/// be.
template <class Runtime>
[[nodiscard]] std::shared_ptr<queue_core<Runtime>> open_subscription(
    const std::shared_ptr<log_core<Runtime>>& log,
    std::string_view name,
    const subscription_options& o,
    record_filter wants,
    failure& failed) {
    if (failed = validate_name(name); failed) {
        return nullptr;
    }
    if (log->is_kept()) {
        failed = {
            errc::invalid_argument,
            "subscriptions are not kept in directories yet, and '" + log->name() + "' is"};
        return nullptr;
    }
    std::shared_ptr<queue_core<Runtime>> made;
    std::shared_ptr<queue_core<Runtime>> q;
    const auto end = [&] {
        if (made != nullptr && q == nullptr) {
            (void)end_subscription(log->broker(), *made, true);
        }
    };
    try {
        const std::lock_guard guard{log->subscribing()};
        q = find_or_make_subscription(log, name, o, std::move(wants), made, failed);
    } catch (...) {
        end();
        throw;
    }
    end();
    if (made != nullptr && q != nullptr) {
        q->serve_waiting(); // whoever opened it by its name meanwhile
    }
    return q;
}

/// A subscription without a name, which ends with its last handle.
template <class Runtime>
[[nodiscard]] std::shared_ptr<queue_core<Runtime>> open_live_subscription(
    const std::shared_ptr<log_core<Runtime>>& log,
    const subscription_options& o,
    record_filter wants,
    failure& failed) {
    auto& broker = log->broker();
    const std::uint64_t number = broker.take_number();
    queue_options options = o.queue;
    if (options.dead_letter.is_unset()) { // one queue for all of them, which come and go
        options.dead_letter = log->name() + ".dead";
    }
    auto q = std::make_shared<queue_core<Runtime>>(
        log->shared_broker(),
        log->name() + ".live-" + std::to_string(number),
        log->type(),
        std::move(options),
        number,
        0);
    if (!feed(log, q, o, std::move(wants), failed)) {
        return nullptr;
    }
    if (is_over(*log, failed)) { // after it has begun, so that one of both sides sees the other
        (void)end_subscription(broker, *q, true);
        return nullptr;
    }
    return q;
}

/// Null: there is none of that name.
template <class Runtime>
[[nodiscard]] std::shared_ptr<queue_core<Runtime>>
find_subscription(log_core<Runtime>& log, std::string_view name) {
    const std::lock_guard guard{log.subscribing()};
    const auto it = log.subscriptions().find(name);
    auto q = it == log.subscriptions().end() ? nullptr : it->second.queue.lock();
    return q != nullptr && log.broker().find(q->name()) == q ? q : nullptr;
}
/// Sorted.
template <class Runtime>
[[nodiscard]] std::vector<std::string> subscription_names(log_core<Runtime>& log) {
    const std::lock_guard guard{log.subscribing()};
    std::erase_if(log.subscriptions(), [&](const auto& entry) { // deleted as queues
        const auto q = entry.second.queue.lock();
        return q == nullptr || log.broker().find(q->name()) != q;
    });
    std::vector<std::string> all;
    for (const auto& [name, entry] : log.subscriptions()) {
        all.push_back(name);
    }
    return all;
}

template <class Runtime>
void log_core<Runtime>::close_subscriptions(errc why) {
    std::vector<std::shared_ptr<queue_core<Runtime>>> all;
    {
        const std::lock_guard guard{subscribing_}; // one that is being made is there, or is refused
        all = lines().front()->followers();
    }
    for (const auto& q : all) {
        const bool is_live = broker_->find(q->name()) != q;
        if (why == errc::not_found) {
            (void)end_subscription(*broker_, *q, true);
        } else if (is_live) { // the others are queues of the broker, which closes them
            q->locked(
                [&](auto& m, time_point now, auto& fx) { m.close_queue(why, true, now, fx); });
        }
    }
}

} // namespace railmq::detail
