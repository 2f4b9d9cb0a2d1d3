// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/core_handle.hpp>
#include <railmq/detail/exchange_table.hpp>
#include <railmq/detail/exchanges.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/exchange_producer.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/stats.hpp>
#include <railmq/queue.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace railmq {

/// An exchange: it keeps nothing, but knows by its bindings which queues, logs and other exchanges
/// get a copy of what is published to it. Its type says how bindings are compared with a message;
/// see `exchange_type`.
///
/// Made by `broker.exchange<T>(name, type, options)`. A handle; copies refer to the same exchange,
/// and it lives until it is deleted, whether or not somebody has a handle.
///
/// A queue gets a message once, however many bindings match and ways lead there; exchanges that are
/// bound in a circle end. A message that no binding of an exchange matches goes to its alternate,
/// if it has one. Deleting a queue, a log or an exchange removes the bindings from and to it.
///
/// Errors are thrown as `system_error`: `closed` once the broker is closed, or on a handle that
/// refers to nothing; `not_found` when the exchange was deleted; and what is said at each call.
///
/// Thread safety: safe; bindings may change at any time, from handlers and observers too. Cost of a
/// change: it stops all publishing of the broker for as long as it takes.
template <class T, class Runtime>
class basic_exchange : public detail::core_handle<detail::exchange_core<Runtime>> {
    using base = detail::core_handle<detail::exchange_core<Runtime>>;
    using base::core;
    using base::core_;
    using base::require;
    using base::shared_core;
    using core_type = detail::exchange_core<Runtime>;
    using target = typename detail::exchange_table<Runtime>::target;

public:
    using value_type = T;
    using producer_type = basic_exchange_producer<T, Runtime>;
    using queue_type = basic_queue<T, Runtime>;
    using log_type = basic_partitioned_log<T, Runtime>;

    /// Refers to no exchange; everything throws `closed`.
    basic_exchange() noexcept = default;

    [[nodiscard]] const std::string& name() const { return core().name(); }
    [[nodiscard]] exchange_type type() const { return core().kind(); }
    [[nodiscard]] const exchange_options& options() const { return core().options(); }

    /// A producer. Throws `invalid_argument` for options out of range.
    [[nodiscard]] producer_type producer(producer_options o = {}) const {
        require(validate(o));
        return producer_type{shared_core(), o};
    }

    /// Binds a queue, a log or an exchange, so that it gets what matches: with a key (direct), a
    /// pattern (topic: `*` is one word, `#` any number), or arguments (headers; consistent_hash: a
    /// weight). What the type does not look at is ignored. Binding again changes nothing but a
    /// weight. From when this returns on, what is sent goes there.
    ///
    /// Errors, after which nothing is bound: `not_found`, when either end was deleted;
    /// `invalid_argument`, for one of another broker, a log that is kept in a directory, a key of
    /// more than 255 bytes, or arguments that the type does not have; `closed`; `no_space`,
    /// `journal_failed` of a journal that failed before. `journal_failed` may also mean that it is
    /// bound, and not known to be kept.
    void
    bind(const queue_type& to, std::string_view key = {}, const binding_arguments& a = {}) const {
        bind_to(to, key, a);
    }
    void bind(const queue_type& to, const binding_arguments& a) const { bind_to(to, {}, a); }
    void
    bind(const log_type& to, std::string_view key = {}, const binding_arguments& a = {}) const {
        bind_to(to, key, a);
    }
    void bind(const log_type& to, const binding_arguments& a) const { bind_to(to, {}, a); }
    void bind(const basic_exchange& to, std::string_view key = {}, const binding_arguments& a = {})
        const {
        bind_to(to, key, a);
    }
    void bind(const basic_exchange& to, const binding_arguments& a) const { bind_to(to, {}, a); }

    /// Removes the binding with that key and those arguments. False: there is none. From when this
    /// returns on, no send begins to go there. Errors: as `bind`, but for `not_found` of what is
    /// to be unbound.
    bool
    unbind(const queue_type& to, std::string_view key = {}, const binding_arguments& a = {}) const {
        return unbind_from(to, key, a);
    }
    bool unbind(const queue_type& to, const binding_arguments& a) const {
        return unbind_from(to, {}, a);
    }
    bool
    unbind(const log_type& to, std::string_view key = {}, const binding_arguments& a = {}) const {
        return unbind_from(to, key, a);
    }
    bool unbind(const log_type& to, const binding_arguments& a) const {
        return unbind_from(to, {}, a);
    }
    bool unbind(
        const basic_exchange& to,
        std::string_view key = {},
        const binding_arguments& a = {}) const {
        return unbind_from(to, key, a);
    }
    bool unbind(const basic_exchange& to, const binding_arguments& a) const {
        return unbind_from(to, {}, a);
    }

    /// What was published to it so far. Cost: a look at each producer.
    [[nodiscard]] exchange_stats stats() const { return table().stats(core()); }

    using base::is_open; ///< Whether it is there, and neither closed nor deleted.
    [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }
    /// Whether both refer to the same exchange.
    friend bool operator==(const basic_exchange&, const basic_exchange&) noexcept = default;

private:
    template <class>
    friend class basic_broker;

    explicit basic_exchange(std::shared_ptr<core_type> c) noexcept
        : base{std::move(c)} {}

    [[nodiscard]] detail::exchange_table<Runtime>& table() const {
        return core().broker().exchanges();
    }

    [[nodiscard]] static target target_of(const queue_type& q) { return {q.core_, nullptr}; }
    [[nodiscard]] static target target_of(const log_type& l) { return {nullptr, l.core_}; }

    /// What the handle refers to, whether or not it still exists.
    template <class Handle>
    [[nodiscard]] const auto& of_this_broker(const Handle& h) const {
        const core_type& own = core();
        require(
            h.core_ == nullptr ? failure{errc::closed, "no queue, log or exchange"} : failure{});
        if (&h.core_->broker() != &own.broker()) {
            require(
                {errc::invalid_argument,
                 "'" + h.core_->name() + "' is of another broker than exchange '" + name() + "'"});
        }
        return *h.core_;
    }
    /// Waits until what the journal says is as safe as the broker's sends.
    void confirm(std::uint64_t record) const {
        auto& b = core_->broker();
        error_code ec;
        try {
            if (record != 0 && b.confirm(record, b.options().durability, ec)) {
                b.template use_async_timer<detail::wake_up_timer<Runtime>>();
            }
        } catch (const std::bad_alloc&) {
            ec = errc::journal_failed; // it is bound, and nobody knows more
        }
        require(ec ? failure{ec, "a binding of exchange '" + core_->name() + "'"} : failure{});
    }
    template <class Handle>
    void bind_to(const Handle& to, std::string_view key, const binding_arguments& a) const {
        const std::string& its_name = of_this_broker(to).name();
        const target t = target_of(to);
        if (t.log != nullptr && t.log->is_kept()) {
            require(
                {errc::invalid_argument,
                 "bindings to logs are not kept in directories yet, and '" + its_name + "' is"});
        }
        std::uint64_t record = 0;
        const auto is_there = [&] {
            const auto& b = core_->broker();
            return t.queue != nullptr ? b.is_there(*t.queue) : b.is_there(*t.log);
        };
        require(table().bind(core(), t, its_name, key, a, is_there, record));
        confirm(record);
    }
    void bind_to(const basic_exchange& to, std::string_view key, const binding_arguments& a) const {
        std::uint64_t record = 0;
        require(table().bind(core(), of_this_broker(to), key, a, record));
        confirm(record);
    }
    template <class Handle>
    bool unbind_from(const Handle& to, std::string_view key, const binding_arguments& a) const {
        (void)of_this_broker(to);
        std::uint64_t record = 0;
        bool removed = false;
        require(table().unbind(core(), target_of(to), key, a, removed, record));
        confirm(record);
        return removed;
    }
    bool
    unbind_from(const basic_exchange& to, std::string_view key, const binding_arguments& a) const {
        std::uint64_t record = 0;
        bool removed = false;
        require(table().unbind(core(), of_this_broker(to), key, a, removed, record));
        confirm(record);
        return removed;
    }
};

} // namespace railmq
