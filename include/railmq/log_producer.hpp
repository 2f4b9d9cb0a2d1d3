// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_record.hpp>
#include <railmq/core/murmur2.hpp>
#include <railmq/detail/log_async.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/detail/log_numbering.hpp>
#include <railmq/detail/wake_up_timer.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/codec.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/printable.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/wire.hpp>

#include <boost/asio/async_result.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// Appends to a log. A key always goes to the same partition (Kafka's murmur2), in which order is
/// kept; a value without a key goes to the partitions in turn. `append_options::partition` and
/// `log_producer_options::partitioner` say it otherwise.
///
/// With `log_producer_options::producer_id` it is idempotent: it numbers its records in each
/// partition from 0 on, and a number that was stored before is not stored again, but reported as
/// `duplicate_of` (among the last five appends; Kafka's rules, ProducerStateManager). So a program
/// that sends again, from the start, what it has kept, stores nothing twice. One handle and its
/// copies number together; another handle of the same id and epoch begins at 0 again. The next
/// life of a producer takes a higher epoch, which fences the former.
///
/// Every form has a twin that throws `system_error` instead of setting `ec`. Errors of all:
///  - `closed`; `not_found` when the log was deleted;
///  - `memory_limit`: the broker's. `message_too_large`: above `max_message_bytes`;
///  - `invalid_argument`: no key, in a log that is compacted; no such partition, whether the send
///    or the partitioner names it; a delay or a time to live, which a log does not have; two
///    different keys; a sequence without a producer;
///  - `sequence_out_of_order`: of an idempotent producer, or another end than `expected_offset`;
///  - `fenced`: a higher epoch of this producer has been seen;
///  - with a directory `no_space`, and `journal_failed`: of a send that was begun, this says that
///    its outcome is not known: it can be read now, and may be gone after a restart.
/// After any other error nothing was stored, and a value that was moved in is lost. What the codec
/// or the partitioner throws is passed on.
///
/// Thread safety: safe. Copies are the same producer. Cost of a send: one lock, one move of the
/// value, no allocation for most records; with a directory also the encoding, without the lock, and
/// a write or a sync, shared by threads, as `durability` says.
template <class T, class Runtime>
class basic_log_producer {
    using log_type = detail::log_core<Runtime>;

public:
    using value_type = T;

    /// Refers to no log; everything reports `closed`.
    basic_log_producer() noexcept = default;

    /// Appends a record with a key. Returns where it went.
    log_receipt send(std::string_view key, T value, error_code& ec) {
        return put(key, &value, nullptr, {}, ec);
    }
    log_receipt send(std::string_view key, T value, append_options o, error_code& ec) {
        return put(key, &value, nullptr, o, ec);
    }
    log_receipt
    send(std::string_view key, T value, properties p, append_options o, error_code& ec) {
        return put(key, &value, &p, o, ec);
    }
    log_receipt send(std::string_view key, T value, append_options o = {}) {
        return must([&](error_code& ec) { return put(key, &value, nullptr, o, ec); });
    }
    log_receipt send(std::string_view key, T value, properties p, append_options o = {}) {
        return must([&](error_code& ec) { return put(key, &value, &p, o, ec); });
    }

    /// Appends a record without a key, unless its properties have one. With a `T` that is a string,
    /// name the options: `send("v", railmq::append_options{.partition = 1})`.
    log_receipt send(T value, error_code& ec) { return put({}, &value, nullptr, {}, ec); }
    log_receipt send(T value, append_options o, error_code& ec) {
        return put({}, &value, nullptr, o, ec);
    }
    log_receipt send(T value, properties p, append_options o, error_code& ec) {
        return put({}, &value, &p, o, ec);
    }
    log_receipt send(T value, append_options o = {}) {
        return must([&](error_code& ec) { return put({}, &value, nullptr, o, ec); });
    }
    log_receipt send(T value, properties p, append_options o = {}) {
        return must([&](error_code& ec) { return put({}, &value, &p, o, ec); });
    }

    /// Appends that the key was deleted: compaction then removes what it had, and later this too.
    log_receipt send_tombstone(std::string_view key, append_options o, error_code& ec) {
        return put(key, nullptr, nullptr, o, ec);
    }
    log_receipt send_tombstone(std::string_view key, error_code& ec) {
        return put(key, nullptr, nullptr, {}, ec);
    }
    log_receipt send_tombstone(std::string_view key, append_options o = {}) {
        return must([&](error_code& ec) { return put(key, nullptr, nullptr, o, ec); });
    }

    /// Appends values, without keys, to one partition as one: they are seen together, one after
    /// the other, or nothing is stored. Values are moved from a range that is given as an rvalue,
    /// else copied. Returns where the first went.
    template <std::ranges::input_range Range>
    requires std::convertible_to<std::ranges::range_value_t<Range>, T>
        log_receipt send_batch(Range&& range, append_options o, error_code& ec) {
        std::vector<T> values;
        for (auto&& v : range) {
            if constexpr (std::is_lvalue_reference_v<Range>) {
                values.push_back(v);
            } else {
                values.push_back(std::move(v));
            }
        }
        return put_many(values, o, ec);
    }
    template <std::ranges::input_range Range>
    requires std::convertible_to<std::ranges::range_value_t<Range>, T>
        log_receipt send_batch(Range&& range, append_options o = {}) {
        return must([&](error_code& ec) { return send_batch(std::forward<Range>(range), o, ec); });
    }

    /// Appends at once, in this call, and completes when the record is as safe as `durability`
    /// says; a log has no limit that a send could wait for.
    ///
    /// Completion signature: `void(error_code, log_receipt)`.
    /// Completes with the errors of `send`, never inside this call, on the handler's associated
    /// executor or on the broker's. What the codec or the partitioner throws is `invalid_argument`.
    /// Threads of the system's executor wait for the device. Cancellation: none; it stays appended.
    template <class CompletionToken>
    auto async_send(std::string_view key, T value, CompletionToken&& token) {
        return begin_send(std::string{key}, std::move(value), {}, {}, token);
    }
    template <class CompletionToken>
    auto async_send(std::string_view key, T value, append_options o, CompletionToken&& token) {
        return begin_send(std::string{key}, std::move(value), {}, o, token);
    }
    template <class CompletionToken>
    auto async_send(
        std::string_view key, T value, properties p, append_options o, CompletionToken&& token) {
        return begin_send(std::string{key}, std::move(value), std::move(p), o, token);
    }
    template <class CompletionToken>
    auto async_send(T value, CompletionToken&& token) {
        return begin_send({}, std::move(value), {}, {}, token);
    }
    template <class CompletionToken>
    auto async_send(T value, append_options o, CompletionToken&& token) {
        return begin_send({}, std::move(value), {}, o, token);
    }
    template <class CompletionToken>
    auto async_send(T value, properties p, append_options o, CompletionToken&& token) {
        return begin_send({}, std::move(value), std::move(p), o, token);
    }

    /// Whether it refers to a log that takes records.
    [[nodiscard]] bool is_open() const noexcept {
        return log_ != nullptr && log_->closed() == errc{};
    }

private:
    template <class, class>
    friend class basic_partitioned_log;
    template <class, class>
    friend class basic_topic;
    template <class, class>
    friend class detail::exchange_lanes;
    template <class, class>
    friend class detail::exchange_send;
    template <class>
    friend class basic_transaction;

    /// What copies share with each other.
    struct shared_part : detail::log_numbering<Runtime> {
        log_partitioner partitioner{};
    };

    /// A value on its way, or what a failed append has left of it.
    struct input : core::log_input {
        input() = default;
        input(const input&) = delete;
        input& operator=(const input&) = delete;
        ~input() {
            if (payload != nullptr) {
                std::destroy_at(std::launder(static_cast<T*>(payload)));
            }
        }
        void take(T& value) { payload = ::new (static_cast<void*>(raw)) T(std::move(value)); }
        alignas(T) std::byte raw[sizeof(T)];
    };

    basic_log_producer(std::shared_ptr<log_type> log, log_producer_options o)
        : log_{std::move(log)}
        , durability_{o.durability.value_or(log_->broker().options().durability)}
        , shared_{std::make_shared<shared_part>()} {
        shared_->partitioner = std::exchange(o.partitioner, nullptr);
        options_ = std::move(o);
    }

    /// What it needs is copied: a token may begin later, as a coroutine's does.
    template <class CompletionToken>
    auto begin_send(
        std::optional<std::string> key,
        T value,
        std::optional<properties> p,
        append_options o,
        CompletionToken& token) {
        return boost::asio::async_initiate<CompletionToken, void(error_code, log_receipt)>(
            [](auto handler,
               basic_log_producer self,
               std::optional<std::string> k,
               T v,
               std::optional<properties> props,
               append_options how) {
                auto log = self.log_;
                detail::async_log_send_op<Runtime, decltype(handler)>::start(
                    std::move(handler),
                    std::move(log),
                    self.durability_,
                    [&](std::uint64_t& record, error_code& ec) {
                        return self.put(k, &v, props ? &*props : nullptr, how, ec, &record);
                    });
            },
            token,
            *this,
            std::move(key),
            std::move(value),
            std::move(p),
            o);
    }

    template <class F>
    log_receipt must(F&& f) {
        error_code ec;
        const log_receipt r = f(ec);
        if (ec) {
            throw system_error(
                ec, log_ == nullptr ? std::string{"send"} : "send to log '" + log_->name() + "'");
        }
        return r;
    }

    /// False, and `ec` set, when nothing can be sent.
    [[nodiscard]] bool check(const append_options& o, error_code& ec) const {
        ec = {};
        if (log_ == nullptr) {
            ec = errc::closed;
        } else if (const errc why = log_->closed(); why != errc{}) {
            ec = why;
        } else if (o.sequence && !options_.producer_id) {
            ec = errc::invalid_argument;
        }
        return !ec;
    }

    [[nodiscard]] std::uint32_t choose(
        std::optional<std::string_view> key,
        const properties* p,
        const append_options& o,
        error_code& ec) {
        const std::uint32_t n = log_->partitions();
        std::optional<std::uint64_t> said = o.partition;
        if (!said && shared_->partitioner) {
            said = shared_->partitioner(log_placement{key, p, n});
        }
        if (said) {
            if (*said >= n) {
                ec = errc::invalid_argument;
            }
            return static_cast<std::uint32_t>(*said);
        }
        if (key) {
            return core::partition_of(*key, n);
        }
        if (o.expected_offset && n != 1) {
            ec = errc::invalid_argument; // of which partition?
        }
        return n == 1 ? 0 : shared_->turn.fetch_add(1, std::memory_order_relaxed) % n;
    }

    /// Says where the record goes, and notes what it has beside its value.
    [[nodiscard]] std::uint32_t address(
        core::log_input& in,
        std::optional<std::string_view> key,
        const T* value,
        properties* p,
        const append_options& o,
        error_code& ec) {
        if (!check(o, ec)) {
            return 0;
        }
        if (p != nullptr) {
            if (p->delay != duration::zero() || p->time_to_live ||
                (p->key && key && *p->key != *key)) {
                ec = errc::invalid_argument;
                return 0;
            }
            in.props = std::make_unique<properties>(std::move(*p));
            if (!key && in.props->key) {
                key = *in.props->key;
            }
        }
        in.key = key;
        in.timestamp = o.timestamp;
        const std::uint32_t where = choose(key, in.props.get(), o, ec);
        if (!ec && value != nullptr && payload_size<T>::of(*value) > options_.max_message_bytes) {
            ec = errc::message_too_large;
        }
        return where;
    }

    log_receipt
    put(std::optional<std::string_view> key,
        T* value,
        properties* p,
        const append_options& o,
        error_code& ec,
        std::uint64_t* unconfirmed = nullptr) {
        input in;
        const std::uint32_t where = address(in, key, value, p, o, ec);
        if (ec) {
            return {};
        }
        std::vector<std::byte> encoded;
        encode(in, value, encoded);
        if (value != nullptr) {
            in.take(*value);
        }
        return append(
            std::span{static_cast<core::log_input*>(&in), 1}, where, o, encoded, ec, unconfirmed);
    }

    /// Appends the record as an entry of the journal, if there is one.
    void encode(const core::log_input& in, const T* value, std::vector<std::byte>& out) const {
        if constexpr (encodable<T>) {
            if (!log_->is_kept()) {
                return;
            }
            storage::wire_writer w{out, log_->broker().journal()->wall()};
            const bool is_stamped = log_->options().timestamps == log_timestamps::append;
            storage::wire::put_run_record(
                w,
                in.key,
                is_stamped ? std::nullopt : in.timestamp,
                in.props.get(),
                value == nullptr);
            if (value != nullptr) {
                const auto size = w.begin_sized(payload_size<T>::of(*value));
                codec<T>::encode(*value, out);
                w.end_sized(size);
            }
        }
    }

    log_receipt put_many(std::vector<T>& values, const append_options& o, error_code& ec) {
        if (!check(o, ec)) {
            return {};
        }
        const std::uint32_t where = choose(std::nullopt, nullptr, o, ec);
        if (ec) {
            return {};
        }
        // The objects themselves are what is moved from and ended: so raw memory for them.
        struct row {
            explicit row(std::size_t n)
                : records(n) {}
            row(const row&) = delete;
            row& operator=(const row&) = delete;
            ~row() {
                for (auto& r : records) {
                    if (r.payload != nullptr) {
                        std::destroy_at(std::launder(static_cast<T*>(r.payload)));
                    }
                }
            }
            std::vector<core::log_input> records;
        };
        struct place {
            alignas(T) std::byte raw[sizeof(T)];
        };
        std::vector<place> places(values.size());
        std::vector<std::byte> encoded;
        row in{values.size()};
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (payload_size<T>::of(values[i]) > options_.max_message_bytes) {
                ec = errc::message_too_large;
                return {};
            }
            in.records[i].timestamp = o.timestamp;
            encode(in.records[i], &values[i], encoded);
            in.records[i].payload =
                ::new (static_cast<void*>(places[i].raw)) T(std::move(values[i]));
        }
        return append(in.records, where, o, encoded, ec);
    }

    /// Waits until it is as safe as it has to be; not where `unconfirmed` is asked for, which
    /// record of the journal that depends on.
    log_receipt append(
        std::span<core::log_input> records,
        std::uint32_t where,
        const append_options& o,
        std::span<const std::byte> encoded,
        error_code& ec,
        std::uint64_t* unconfirmed = nullptr) {
        core::append_terms terms;
        terms.expected_offset = o.expected_offset;
        auto& line = *log_->line(where);
        auto& owner = log_->broker();
        if (log_->is_kept()) {
            owner.catch_up(); // an interval may be over
        }
        detail::line_record kept;
        core::append_result r;
        if (options_.producer_id && !records.empty()) {
            std::lock_guard guard{shared_->mutex};
            std::int32_t& next = shared_->next(where);
            const std::int32_t first = o.sequence.value_or(next);
            terms.producer = {
                *options_.producer_id,
                options_.epoch,
                first,
                static_cast<std::uint32_t>(records.size())};
            r = line.append(records, owner.clock(), terms, encoded, kept);
            if (r.failed == errc{} && !(r.duplicate && o.sequence)) {
                next = core::sequence_after(first, static_cast<std::uint32_t>(records.size()));
            }
        } else {
            r = line.append(records, owner.clock(), terms, encoded, kept);
        }
        if (r.failed == errc::no_space) {
            owner.want_space();
        }
        log_->after(kept);
        if (r.failed != errc{}) {
            ec = r.failed;
            return {};
        }
        if (unconfirmed != nullptr) {
            *unconfirmed = kept.number;
        } else if (kept.number != 0 && owner.confirm(kept.number, durability_, ec)) {
            owner.template use_async_timer<detail::wake_up_timer<Runtime>>();
        }
        if (ec) {
            return {};
        }
        log_receipt done{where, r.first_offset, {}};
        if (r.duplicate) {
            done.duplicate_of = r.first_offset;
        }
        return done;
    }

    std::shared_ptr<log_type> log_{};
    log_producer_options options_{};
    railmq::durability durability_{};
    std::shared_ptr<shared_part> shared_{};
};

} // namespace railmq
