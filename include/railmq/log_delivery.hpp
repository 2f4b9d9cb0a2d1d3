// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/log_lane.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/fwd.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace railmq {

namespace detail {
template <class T, class Runtime>
struct log_delivery_access;
} // namespace detail

/// A record of a log, as one consumer was handed it. Read in place: the value is shared with all
/// other readers, so it is const, and it stays while the delivery lives, whatever retention and
/// compaction do.
///
/// Of a member of a group it is settled once, by `ack`, `nack`, `reject` or `release`, or by a
/// transaction that takes it over; what is not settled is never committed over. Destroyed unsettled
/// it counts as `nack`. Once its partition has gone to another member, or was sought in, settling
/// does nothing any more and returns false.
///
/// Without a group there is nothing to remember: `ack` says true and changes nothing, and an
/// unsettled end is as good. `nack` and `release` work as in a group.
///
/// Thread safety: belongs to one thread at a time. It may be settled on another than the
/// consumer's, and outlive it.
template <class T, class Runtime>
class basic_log_delivery {
    using reader_type = detail::log_reader<Runtime>;
    using lease_type = detail::log_lease<Runtime>;

public:
    using value_type = T;

    /// Empty.
    basic_log_delivery() noexcept = default;
    basic_log_delivery(basic_log_delivery&& other) noexcept
        : reader_{std::move(other.reader_)}
        , lease_{std::move(other.lease_)}
        , is_settled_{std::exchange(other.is_settled_, true)} {}
    basic_log_delivery& operator=(basic_log_delivery&& other) noexcept {
        if (this != &other) {
            end();
            lease_ = std::move(other.lease_); // the pin first: the reader keeps its memory's budget
            reader_ = std::move(other.reader_);
            is_settled_ = std::exchange(other.is_settled_, true);
        }
        return *this;
    }
    basic_log_delivery(const basic_log_delivery&) = delete;
    basic_log_delivery& operator=(const basic_log_delivery&) = delete;
    ~basic_log_delivery() { end(); }

    /// Whether it has a record; also when that is settled.
    [[nodiscard]] explicit operator bool() const noexcept { return reader_ != nullptr; }

    /// Readable as long as the delivery lives. Throws `stale_delivery` when it is empty,
    /// `not_found` for a tombstone.
    [[nodiscard]] const T& value() const {
        require();
        if (lease_.entry.payload == nullptr) {
            throw system_error(make_error_code(errc::not_found), "a tombstone has no value");
        }
        return *std::launder(static_cast<const T*>(lease_.entry.payload));
    }
    [[nodiscard]] const T& operator*() const { return value(); }
    [[nodiscard]] const T* operator->() const { return &value(); }

    /// Says that its key was deleted; it has no value.
    [[nodiscard]] bool is_tombstone() const {
        require();
        return lease_.entry.is_tombstone;
    }
    /// Nothing: the record has no key. Valid while the delivery lives.
    [[nodiscard]] std::optional<std::string_view> key() const {
        require();
        return lease_.entry.has_key ? std::optional{lease_.entry.key} : std::nullopt;
    }
    /// Empty ones if it was sent without.
    [[nodiscard]] const railmq::properties& properties() const {
        static const railmq::properties none{};
        require();
        return lease_.entry.props == nullptr ? none : *lease_.entry.props;
    }
    [[nodiscard]] std::uint32_t partition() const {
        require();
        return lease_.partition;
    }
    [[nodiscard]] std::uint64_t offset() const {
        require();
        return lease_.entry.offset;
    }
    /// The producer's time, or that of the append.
    [[nodiscard]] time_point timestamp() const {
        require();
        return lease_.entry.timestamp;
    }
    /// How often it has failed with this consumer, since it was assigned its partition.
    [[nodiscard]] std::uint32_t failure_count() const {
        require();
        return lease_.failures;
    }

    /// Done. Returns whether this call settled it.
    bool ack() noexcept {
        return reader_ != nullptr && !std::exchange(is_settled_, true) && reader_->ack(lease_);
    }
    /// Failed: its consumer gets it again after the backoff, and until then nothing of its
    /// partition, so that order is kept. In a group with `max_attempts` the last failure makes it a
    /// dead letter, as `reject` does. Returns whether this call settled it. Throws
    /// `std::bad_alloc`.
    bool nack() { return give_back(std::nullopt, true); }
    /// The same after a time of your own.
    template <class Rep, class Period>
    bool nack(std::chrono::duration<Rep, Period> after) {
        return give_back(saturating_duration(after), true);
    }
    /// Given up: a copy goes to where `log_consumer_options::dead_letter` says, in this call, with
    /// `reason` in its history, and its partition goes on. It counts as acknowledged once the copy
    /// is there. Where that has no place (a full queue, no memory, another type), it holds its
    /// partition, is counted and noticed, and tried again by receives, after `retry_backoff`; when
    /// this member goes before it was moved, another gets it. So it is never lost, and after a
    /// crash there may be two copies. Returns whether this call settled it. Throws
    /// `std::bad_alloc`; `invalid_argument` without a group.
    bool reject(std::string reason = {}) requires std::copy_constructible<T> {
        if (reader_ == nullptr || is_settled_) {
            return false;
        }
        if (!reader_->has_group()) {
            throw system_error(
                make_error_code(errc::invalid_argument), "reject is for members of a group");
        }
        const bool done = reader_->reject(lease_, std::move(reason));
        is_settled_ = true; // after the call, which may throw
        return done;
    }
    /// Not done, and not failed: it comes again at once.
    bool release() { return give_back(duration::zero(), false); }

private:
    template <class>
    friend class basic_transaction;
    friend struct detail::log_delivery_access<T, Runtime>;

    basic_log_delivery(std::shared_ptr<reader_type> r, lease_type&& l) noexcept
        : reader_{std::move(r)}
        , lease_{std::move(l)}
        , is_settled_{false} {}

    void require() const {
        if (reader_ == nullptr) {
            throw system_error(make_error_code(errc::stale_delivery), "the delivery is empty");
        }
    }
    bool give_back(std::optional<duration> wait, bool has_failed) {
        if (reader_ == nullptr || is_settled_) {
            return false;
        }
        const bool done = reader_->give_back(lease_, wait, has_failed);
        is_settled_ = true; // after the call, which may throw
        return done;
    }
    void end() noexcept {
        if (reader_ != nullptr && !is_settled_ && reader_->has_group()) {
            try {
                (void)reader_->give_back(lease_, std::nullopt, true);
            } catch (...) { // no memory: it comes again when its partition is assigned anew
                reader_->log().broker().count_swallowed();
            }
        }
        is_settled_ = true;
    }

    std::shared_ptr<reader_type> reader_{}; // ended after the pin
    lease_type lease_{};
    bool is_settled_ = true;
};

namespace detail {

/// Makes deliveries, for who receives them.
template <class T, class Runtime>
struct log_delivery_access {
    [[nodiscard]] static basic_log_delivery<T, Runtime>
    make(std::shared_ptr<log_reader<Runtime>> r, log_lease<Runtime>&& l) noexcept {
        return basic_log_delivery<T, Runtime>{std::move(r), std::move(l)};
    }
};

} // namespace detail
} // namespace railmq
