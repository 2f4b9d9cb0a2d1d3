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

#include <algorithm>
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
    return {o.start, o.max_backlog, filter_of(o.where, std::move(wants))};
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

/// Takes a subscription's queue out of the broker: it ends with `not_found`. Errors: `would_block`,
/// when consumers hold messages of it and `force` is not set; with a directory, that its end could
/// not be kept.
template <class Runtime>
void end_subscription(
    broker_core<Runtime>& broker, queue_core<Runtime>& q, bool force, error_code& ec) {
    broker.end_queue(q, force, true, ec);
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

/// A subscription of that log that is kept, and open: its queue, or null. `name` is the queue's.
template <class Runtime>
[[nodiscard]] std::shared_ptr<queue_core<Runtime>>
find_kept_subscription(log_core<Runtime>& log, const std::string& name) {
    auto q = log.broker().find(name);
    const bool is_it = q != nullptr && q->is_kept() && q->kept().feed() != nullptr &&
                       q->kept().feed()->definition().log == log.kept_as();
    return is_it ? q : nullptr;
}

/// The same as `find_or_make_subscription`, where they are kept.
template <class Runtime>
[[nodiscard]] std::shared_ptr<queue_core<Runtime>> find_or_make_kept_subscription(
    const std::shared_ptr<log_core<Runtime>>& log,
    std::string_view name,
    const subscription_options& o,
    record_filter wants,
    std::shared_ptr<queue_core<Runtime>>& made,
    failure& failed) {
    auto& broker = log->broker();
    const std::string full = log->name() + "." + std::string{name};
    if (is_over(*log, failed)) {
        return nullptr;
    }
    const feed_request asked{
        {0, log->kept_as(), o.max_backlog, bool{wants}, o.where}, o.start, wants};
    if (const auto there = broker.find(full)) {
        const auto q = find_kept_subscription(*log, full);
        if (q == nullptr) {
            failed = {errc::already_exists, "'" + full + "' is a queue of its own"};
            return nullptr;
        }
        const auto& have = q->kept().feed()->definition();
        const std::string_view what = have.max_backlog != o.max_backlog ? "max_backlog"
                                      : have.where != o.where           ? "where"
                                                              : difference(q->asked_for(), o.queue);
        if (!what.empty()) {
            failed = {
                errc::options_mismatch,
                "subscription '" + full + "' exists with another " + std::string{what}};
            return nullptr;
        }
        return q;
    }
    auto q = broker.open(full, log->type(), &o.queue, failed, &asked);
    if (q == nullptr || q->is_fed()) {
        return q;
    }
    if (q->kept().feed() == nullptr) { // somebody has made it this moment
        failed = {errc::already_exists, "'" + full + "' is a queue of its own"};
        return nullptr;
    }
    made = q;
    if (!feed(log, q, o, std::move(wants), failed)) {
        return nullptr;
    }
    q->locked([](auto&, time_point, auto&) {}); // writes where it begins
    return q;
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
    std::shared_ptr<queue_core<Runtime>> made;
    std::shared_ptr<queue_core<Runtime>> q;
    const auto end = [&] {
        if (made != nullptr && q == nullptr) {
            error_code ignored;
            end_subscription(log->broker(), *made, true, ignored);
        }
    };
    try {
        const std::lock_guard guard{log->subscribing()};
        q = log->is_kept()
                ? find_or_make_kept_subscription(log, name, o, std::move(wants), made, failed)
                : find_or_make_subscription(log, name, o, std::move(wants), made, failed);
    } catch (...) {
        end();
        throw;
    }
    end();
    if (made != nullptr && q != nullptr) {
        q->serve_waiting(); // whoever opened it by its name meanwhile
        if (log->is_kept()) {
            error_code not_yet; // the first send tells
            log->confirm_all(not_yet);
        }
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
        error_code ignored;
        end_subscription(broker, *q, true, ignored);
        return nullptr;
    }
    return q;
}

/// Null: there is none of that name.
template <class Runtime>
[[nodiscard]] std::shared_ptr<queue_core<Runtime>>
find_subscription(log_core<Runtime>& log, std::string_view name) {
    const std::lock_guard guard{log.subscribing()};
    if (log.is_kept()) {
        return find_kept_subscription(log, log.name() + "." + std::string{name});
    }
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
    if (log.is_kept()) {
        all = log.unopened_subscriptions();
        for (const auto& q : log.lines().front()->followers()) {
            if (q->is_kept()) {
                all.push_back(q->name());
            }
        }
        for (std::string& name : all) {
            name.erase(0, log.name().size() + 1);
        }
        std::sort(all.begin(), all.end());
        return all;
    }
    for (const auto& [name, entry] : log.subscriptions()) {
        all.push_back(name);
    }
    return all;
}

template <class Runtime>
[[nodiscard]] bool has_subscription(log_core<Runtime>& log, std::string_view name) {
    const auto all = subscription_names(log);
    return std::binary_search(all.begin(), all.end(), name);
}

template <class Runtime>
void log_core<Runtime>::close_subscriptions(errc why) {
    std::vector<std::shared_ptr<queue_core<Runtime>>> all;
    {
        const std::lock_guard guard{subscribing_}; // one that is being made is there, or is refused
        all = lines().front()->followers();
    }
    if (why == errc::closed) {
        for (line_type* l : lines()) {
            l->keep_all();
        }
    }
    for (const auto& q : all) {
        const bool is_live = broker_->find(q->name()) != q;
        if (why == errc::not_found) {
            error_code ignored; // the end of the log is written, and says it for those as well
            broker_->end_queue(*q, true, false, ignored);
        } else if (is_live) { // the others are queues of the broker, which closes them
            q->locked(
                [&](auto& m, time_point now, auto& fx) { m.close_queue(why, true, now, fx); });
        }
    }
}

} // namespace railmq::detail
