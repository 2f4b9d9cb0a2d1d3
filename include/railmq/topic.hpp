// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/core_handle.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_subscriptions.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log_producer.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/printable.hpp>
#include <railmq/model/topic_options.hpp>
#include <railmq/queue.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// What a topic holds, and what became of all that was ever sent to it.
struct topic_stats {
    std::uint64_t messages = 0;     ///< That some subscription has not taken yet, and history.
    std::uint64_t memory_bytes = 0; ///< Of the broker's `memory_limit`, all of them.
    std::uint64_t sent = 0;
    std::size_t subscriptions = 0; ///< With a name or without.

    friend bool operator==(const topic_stats&, const topic_stats&) = default;
};

/// Tells everybody: each message goes to every subscription, and each subscription is a queue, with
/// competing consumers, acknowledgements, retries and dead letters of its own.
///
/// Made by `broker.topic<T>(name, options)`. A handle; copies refer to the same topic.
///
/// A message is stored once, however many subscriptions there are: sending costs the same for four
/// as for four thousand, but for those that are waiting this moment. A subscription copies a
/// message when one of its consumers comes for it; a copy of `railmq::bytes` shares the bytes. What
/// all have taken is removed. A subscription that nobody reads holds what it has not taken, up to
/// its `max_backlog`, and never holds up the producer or another subscription.
///
/// Order: a subscription gets messages in the order in which they were sent.
///
/// In a broker with a directory a topic is kept, and so are its subscriptions that have a name,
/// with all that became of their messages. A message is as safe as the producer's `durability`
/// says, is written once, and stays until every subscription is done with it, whether anybody has
/// opened that or not.
///
/// Errors are thrown as `system_error`: `closed` once the broker is closed, `not_found` when the
/// topic was deleted, and what is said at each call.
///
/// Thread safety: safe.
template <class T, class Runtime>
class basic_topic : public detail::core_handle<detail::log_core<Runtime>> {
    using base = detail::core_handle<detail::log_core<Runtime>>;
    using base::core;
    using base::core_;
    using base::require;
    using base::shared_core;
    static_assert(
        std::copy_constructible<T>, "each subscription of a topic gets a copy of its messages");
    using core_type = detail::log_core<Runtime>;

public:
    using value_type = T;
    using producer_type = basic_log_producer<T, Runtime>;
    using queue_type = basic_queue<T, Runtime>;

    /// Refers to no topic; everything throws `closed`.
    basic_topic() noexcept = default;

    [[nodiscard]] const std::string& name() const { return core().name(); }
    using base::is_open; ///< Whether it is there, and neither closed nor deleted.

    /// Sends to the topic. A receipt's `offset` is the message's number in it, from 0 on. Errors:
    /// `invalid_argument`.
    [[nodiscard]] producer_type producer(log_producer_options o = {}) const {
        require(validate(o));
        return producer_type{shared_core(), std::move(o)};
    }

    /// The subscription of that name, a queue that takes what is sent from now on (or what
    /// `subscription_options::start` says), read or not, until it is deleted. The queue's name is
    /// `<topic>.<name>`; opening it again gives the same one.
    ///
    /// `wants`, a function of `const T&` or of `const T&, const properties&`, says which messages
    /// it takes. It is called with the queue locked and must not call the broker; where it throws,
    /// the message is taken. Of two calls the first one's holds. It is not kept: with a directory
    /// it has to be given again in each process, and `subscription_options::where` has not.
    ///
    /// Errors: `invalid_name`, `invalid_argument`; `options_mismatch` when it exists with other
    /// options, or was kept with `wants` and is opened without, or the other way round;
    /// `already_exists` when a queue of that name is there that is no subscription;
    /// `offset_out_of_range` for `log_start::at_offset`; with a directory those of opening a queue.
    [[nodiscard]] queue_type
    subscribe(std::string_view name, const subscription_options& o = {}) const {
        return open(name, o, {});
    }
    template <std::predicate<const T&> Predicate>
    [[nodiscard]] queue_type
    subscribe(std::string_view name, const subscription_options& o, Predicate wants) const {
        return open(name, o, detail::filter_of<T>(std::move(wants)));
    }
    template <std::predicate<const T&, const properties&> Predicate>
    [[nodiscard]] queue_type
    subscribe(std::string_view name, const subscription_options& o, Predicate wants) const {
        return open(name, o, detail::filter_of<T>(std::move(wants)));
    }

    /// A subscription for as long as there are handles of it: queue, consumers or deliveries. What
    /// it has not taken by then is nobody's loss. Its dead letters go to `<topic>.dead`. Errors: as
    /// above.
    [[nodiscard]] queue_type subscribe(const subscription_options& o = {}) const {
        return open_live(o, {});
    }
    template <std::predicate<const T&> Predicate>
    [[nodiscard]] queue_type subscribe(const subscription_options& o, Predicate wants) const {
        return open_live(o, detail::filter_of<T>(std::move(wants)));
    }
    template <std::predicate<const T&, const properties&> Predicate>
    [[nodiscard]] queue_type subscribe(const subscription_options& o, Predicate wants) const {
        return open_live(o, detail::filter_of<T>(std::move(wants)));
    }

    /// Ends a subscription and forgets what it has not taken; its dead letters stay. The same as
    /// `broker.delete_queue("<topic>.<name>")`. Errors: `not_found`; `would_block` while consumers
    /// hold messages of it, unless `force` is set.
    void unsubscribe(std::string_view name, error_code& ec, bool force = false) const {
        ec = {};
        const auto& topic = shared_core();
        if (const auto q = find(name)) {
            detail::end_subscription(topic->broker(), *q, force, ec);
        } else if (topic->is_kept() && detail::has_subscription(*topic, name)) {
            topic->broker().remove_unopened(topic->name() + "." + std::string{name}, ec);
        } else {
            ec = errc::not_found;
        }
    }
    void unsubscribe(std::string_view name, bool force = false) const {
        error_code ec;
        unsubscribe(name, ec, force);
        if (ec) {
            throw system_error(ec, "unsubscribe '" + detail::printable(name) + "'");
        }
    }

    /// Names of the subscriptions that have one, sorted.
    [[nodiscard]] std::vector<std::string> subscriptions() const {
        return detail::subscription_names(*shared_core());
    }

    /// Cost: a look at every subscription.
    [[nodiscard]] topic_stats stats() const {
        auto& c = core();
        topic_stats s;
        c.lines().front()->locked([&](auto& p, auto&, auto&) {
            s.messages = p.records();
            s.memory_bytes = p.memory_bytes();
            s.sent = p.appended().records;
        });
        s.subscriptions = c.subscribers();
        return s;
    }

private:
    template <class>
    friend class basic_broker;

    explicit basic_topic(std::shared_ptr<core_type> c) noexcept
        : base{std::move(c)} {}

    [[nodiscard]] queue_type
    open(std::string_view name, const subscription_options& o, detail::record_filter wants) const {
        require(validate(o));
        failure f;
        auto q = detail::open_subscription(shared_core(), name, o, std::move(wants), f);
        require(f);
        return queue_type{std::move(q)};
    }
    [[nodiscard]] queue_type
    open_live(const subscription_options& o, detail::record_filter wants) const {
        require(validate(o));
        failure f;
        auto q = detail::open_live_subscription(shared_core(), o, std::move(wants), f);
        require(f);
        return queue_type{std::move(q)};
    }
    [[nodiscard]] std::shared_ptr<detail::queue_core<Runtime>> find(std::string_view name) const {
        return detail::find_subscription(*shared_core(), name);
    }
};

} // namespace railmq
