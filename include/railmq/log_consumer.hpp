// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/log_async.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log_delivery.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/time.hpp>

#include <boost/asio/async_result.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace railmq {

/// Reads a log: all of it or some partitions by itself, or, with `log_consumer_options::group`,
/// those that the group gives it, where each partition has one owner at a time and what is
/// acknowledged is remembered for whoever comes next.
///
/// Records of a partition come in order. A reader that retention has overtaken goes on with the
/// oldest record there is, or as `start` says; `skipped` counts what it missed.
///
/// In a group. Receives take part in rebalances and run the callbacks; `receive` throws what a
/// callback throws, after the rebalance went on without it. A member that is taken for dead joins
/// again with its next receive. What a member acknowledges is committed with its next receive, or
/// by `commit`, up to the lowest record that is not acknowledged: work that is given to other
/// threads is never skipped.
///
/// Receives report, by `ec` or, in the plain forms, by an empty result: `timed_out`, `would_block`
/// (of `try_receive`), `would_deadlock` (in a handler of this broker; in a rebalance callback; in a
/// simulation in which nothing can come), `closed`, `not_found` (the log was deleted). Others are
/// thrown by the plain forms:
///  - `offset_out_of_range`: with `log_start::none`, nothing was committed, or it is gone; `seek`;
///  - `fenced`: another member of this `instance_id` has taken over;
///  - `unknown_member`: somebody removed this one.
///
/// Thread safety: one thread or strand at a time. Deliveries may be settled anywhere.
template <class T, class Runtime>
class basic_log_consumer {
    using reader_type = detail::log_reader<Runtime>;
    using access = detail::log_delivery_access<T, Runtime>;

public:
    using value_type = T;
    using delivery_type = basic_log_delivery<T, Runtime>;

    /// Refers to no log; every receive reports `closed`.
    basic_log_consumer() noexcept = default;
    basic_log_consumer(basic_log_consumer&& other) noexcept = default;
    basic_log_consumer& operator=(basic_log_consumer&& other) noexcept {
        if (this != &other) {
            close();
            reader_ = std::move(other.reader_);
        }
        return *this;
    }
    basic_log_consumer(const basic_log_consumer&) = delete;
    basic_log_consumer& operator=(const basic_log_consumer&) = delete;
    /// `close()`.
    ~basic_log_consumer() { close(); }

    /// Waits for a record. A simulation runs meanwhile.
    [[nodiscard]] std::optional<delivery_type> receive(error_code& ec) {
        return receive_by(never, ec);
    }
    [[nodiscard]] std::optional<delivery_type> receive() {
        return plain([&](error_code& ec) { return receive_by(never, ec); });
    }
    /// The same for at most `timeout`.
    template <class Rep, class Period>
    [[nodiscard]] std::optional<delivery_type>
    receive(std::chrono::duration<Rep, Period> timeout, error_code& ec) {
        return receive_by(limit_for(timeout), ec);
    }
    template <class Rep, class Period>
    [[nodiscard]] std::optional<delivery_type> receive(std::chrono::duration<Rep, Period> timeout) {
        return plain([&](error_code& ec) { return receive_by(limit_for(timeout), ec); });
    }
    /// A record that is there now; never waits.
    [[nodiscard]] std::optional<delivery_type> try_receive(error_code& ec) {
        return receive_by(time_point::min(), ec);
    }
    [[nodiscard]] std::optional<delivery_type> try_receive() {
        return plain([&](error_code& ec) { return receive_by(time_point::min(), ec); });
    }

    /// As many records as are there now, at most `max`, into `out`, whose old content is settled as
    /// its destruction says. Waits up to `timeout` for the first. Returns how many.
    /// `invalid_argument` for a `max` of 0.
    template <class Allocator, class Rep, class Period>
    std::size_t receive_batch(
        std::vector<delivery_type, Allocator>& out,
        std::size_t max,
        std::chrono::duration<Rep, Period> timeout,
        error_code& ec) {
        out.clear();
        ec = {};
        if (reader_ == nullptr || max == 0) {
            ec = reader_ == nullptr ? errc::closed : errc::invalid_argument;
            return 0;
        }
        max = std::min<std::size_t>(max, 1U << 16);
        out.reserve(max); // from here on adding one does not throw
        const auto keep = reader_;
        keep->receive(
            max,
            limit_for(timeout),
            [&](detail::log_lease<Runtime>&& l) {
                out.push_back(access::make(keep, std::move(l)));
            },
            ec);
        return out.size();
    }
    template <class Allocator, class Rep, class Period>
    std::size_t receive_batch(
        std::vector<delivery_type, Allocator>& out,
        std::size_t max,
        std::chrono::duration<Rep, Period> timeout) {
        return plain([&](error_code& ec) { return receive_batch(out, max, timeout, ec); });
    }
    template <class Rep, class Period>
    [[nodiscard]] std::vector<delivery_type>
    receive_batch(std::size_t max, std::chrono::duration<Rep, Period> timeout) {
        std::vector<delivery_type> out;
        receive_batch(out, max, timeout);
        return out;
    }

    /// Receives one record asynchronously. It takes part in rebalances as `receive` does; what a
    /// rebalance callback throws is swallowed and counted, since there is nobody to throw to.
    ///
    /// Completion signature: `void(error_code, log_delivery)`.
    /// Completes with a record, or with `closed`, `not_found` or what `receive` throws, and an
    /// empty delivery; never inside this call. Runs on the handler's associated executor, or on the
    /// broker's. There it also looks for records while it waits, so this executor is then the
    /// consumer's thread: whoever else uses the consumer meanwhile has to be on it (one thread, or
    /// a strand). Closing the consumer there completes it with `closed`.
    /// Cancellation: terminal, partial and total: `operation_aborted`. When a record and a
    /// cancellation meet, the handler gets the record, or it comes again.
    /// Several may be outstanding; they are served in the order of their start.
    template <class CompletionToken>
    auto async_receive(CompletionToken&& token) {
        return boost::asio::async_initiate<CompletionToken, void(error_code, delivery_type)>(
            [](auto handler, std::shared_ptr<reader_type> r) {
                detail::async_log_receive_op<T, Runtime, false, decltype(handler)>::start(
                    std::move(handler), std::move(r), 1);
            },
            token,
            reader_);
    }
    /// The same for as many as are there once there is one, at most `max`.
    /// Completion signature: `void(error_code, std::vector<log_delivery>)`.
    template <class CompletionToken>
    auto async_receive_batch(std::size_t max, CompletionToken&& token) {
        return boost::asio::
            async_initiate<CompletionToken, void(error_code, std::vector<delivery_type>)>(
                [](auto handler, std::shared_ptr<reader_type> r, std::size_t n) {
                    detail::async_log_receive_op<T, Runtime, true, decltype(handler)>::start(
                        std::move(handler), std::move(r), n);
                },
                token,
                reader_,
                max);
    }

    // Places

    /// The partitions that it reads now, sorted.
    [[nodiscard]] partition_numbers assignment() const {
        return reader_ == nullptr ? partition_numbers{} : reader_->assignment();
    }
    /// The offset that it reads next; nothing for a partition that it does not read.
    [[nodiscard]] std::optional<std::uint64_t> position(std::uint32_t partition) const noexcept {
        return reader_ == nullptr ? std::nullopt : reader_->position(partition);
    }
    /// Reads that offset next; the end is one too. In a group, deliveries of the partition become
    /// stale, and the next commit may go back. Errors: `invalid_argument` for a partition that it
    /// does not read, `offset_out_of_range`.
    void seek(std::uint32_t partition, std::uint64_t offset, error_code& ec) {
        const errc e = reader_ == nullptr ? errc::closed : reader_->seek(partition, offset);
        ec = e == errc{} ? error_code{} : make_error_code(e);
    }
    void seek(std::uint32_t partition, std::uint64_t offset) {
        must("seek", [&](error_code& ec) { seek(partition, offset, ec); });
    }
    /// Goes, in all partitions that it reads, to the first record whose time is not before `t`;
    /// where all are older, to the end.
    void seek_to_time(time_point t) {
        for (const std::uint32_t p : assignment()) {
            const std::uint64_t to =
                reader_->log().line(p)->locked([&](auto& records, auto&, auto&) {
                    const auto found = records.offset_for_time(t);
                    return found ? found->offset : records.end_offset();
                });
            seek(p, to);
        }
    }
    /// Gets nothing of that partition until `resume`, and keeps it. Errors: `invalid_argument` for
    /// one that it does not read.
    void pause(std::uint32_t partition) { set_paused(partition, true); }
    void resume(std::uint32_t partition) { set_paused(partition, false); }
    /// Offsets that were removed before it could read them, or, where they had failed, again.
    [[nodiscard]] std::uint64_t skipped() const noexcept {
        return reader_ == nullptr ? 0 : reader_->skipped();
    }

    // Groups

    /// Commits all that is acknowledged, in each partition up to the lowest that is not. Errors:
    /// `invalid_argument` without a group; `unknown_member` or `fenced` when the partitions are not
    /// its own any more, and then nothing was committed of these; `closed`; `not_found`. With a
    /// directory it returns when everything so far is as safe as the broker's `durability` says;
    /// `journal_failed`, when that is not known, and then all is committed until the process ends.
    void commit(error_code& ec) {
        const errc e = reader_ == nullptr ? errc::closed : reader_->commit();
        ec = e == errc{} ? error_code{} : make_error_code(e);
    }
    void commit() {
        must("commit", [&](error_code& ec) { commit(ec); });
    }
    /// Says that this member is alive while it works for long without receiving. It does not help
    /// against `max_poll_interval`. Errors: as of a receive.
    void heartbeat(error_code& ec) {
        const errc e = reader_ == nullptr ? errc::closed : reader_->heartbeat();
        ec = e == errc{} ? error_code{} : make_error_code(e);
    }
    void heartbeat() {
        must("heartbeat", [&](error_code& ec) { heartbeat(ec); });
    }

    /// Commits what is acknowledged (unless `auto_commit` is off) and leaves the group, whose other
    /// members get its partitions at once. No callback runs. What is not settled comes again,
    /// to another. Closing again does nothing.
    void close() noexcept {
        if (reader_ != nullptr) {
            std::exchange(reader_, nullptr)->close();
        }
    }
    [[nodiscard]] bool is_open() const noexcept { return reader_ != nullptr && reader_->is_open(); }

private:
    template <class, class>
    friend class basic_partitioned_log;
    template <class>
    friend class basic_transaction;

    explicit basic_log_consumer(std::shared_ptr<reader_type> r) noexcept
        : reader_{std::move(r)} {}

    template <class Rep, class Period>
    [[nodiscard]] time_point limit_for(std::chrono::duration<Rep, Period> timeout) const {
        if (reader_ == nullptr || timeout <= timeout.zero()) {
            return time_point::min();
        }
        return saturating_add(reader_->log().broker().clock().now(), saturating_duration(timeout));
    }
    [[nodiscard]] std::optional<delivery_type> receive_by(time_point limit, error_code& ec) {
        std::optional<delivery_type> out;
        auto keep = reader_; // a callback may close this consumer
        if (keep == nullptr) {
            ec = errc::closed;
            return out;
        }
        keep->receive(
            1,
            limit,
            [&](detail::log_lease<Runtime>&& l) {
                out.emplace(access::make(std::move(keep), std::move(l)));
            },
            ec);
        return out;
    }
    /// An end or a limit is an empty result; what else there is, is thrown.
    template <class F>
    auto plain(F&& f) {
        error_code ec;
        auto result = f(ec);
        if (ec && ec != errc::timed_out && ec != errc::would_block && ec != errc::closed &&
            ec != errc::not_found && ec != errc::would_deadlock) {
            throw system_error(ec, "receive");
        }
        return result;
    }
    template <class F>
    void must(const char* what, F&& f) {
        error_code ec;
        f(ec);
        if (ec) {
            throw system_error(ec, what);
        }
    }
    void set_paused(std::uint32_t partition, bool on) {
        must(on ? "pause" : "resume", [&](error_code& ec) {
            const errc e = reader_ == nullptr ? errc::closed : reader_->set_paused(partition, on);
            ec = e == errc{} ? error_code{} : make_error_code(e);
        });
    }

    std::shared_ptr<reader_type> reader_{};
};

} // namespace railmq
