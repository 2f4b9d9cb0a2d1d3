// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

#include <string>
#include <type_traits>

namespace railmq {

using error_code = boost::system::error_code;
using system_error = boost::system::system_error;

/// Everything that can go wrong, by name. A call that reports one of these changed nothing,
/// unless its own documentation says otherwise.
enum class errc {
    closed = 1,     ///< The broker, the queue or the handle is closed (or was moved from).
    timed_out,      ///< The time allowed has passed.
    queue_full,     ///< A length or byte limit is reached and the overflow policy refuses.
    would_block,    ///< The call would have to wait, and it is one that never waits.
    would_deadlock, ///< The call would wait for something that only its caller could bring about.
    memory_limit,   ///< The broker's `memory_limit` is reached.
    message_too_large,     ///< The message exceeds `max_message_bytes`, or the queue's `max_bytes`.
    unroutable,            ///< No queue took the message.
    not_found,             ///< There is nothing of that name.
    already_exists,        ///< Something of that name exists.
    type_mismatch,         ///< It exists, with another message type or another shape.
    options_mismatch,      ///< It exists, with other options.
    invalid_name,          ///< Names are 1 to 249 of `[A-Za-z0-9._-]`, and not `.` or `..`.
    invalid_argument,      ///< A value out of range, or options that contradict each other.
    stale_delivery,        ///< The delivery was settled, or its message has gone elsewhere.
    fenced,                ///< A newer owner has taken over.
    unknown_member,        ///< The group does not know this member.
    rebalance_in_progress, ///< The group is being rebalanced.
    offset_out_of_range,   ///< The log has no such offset.
    sequence_out_of_order, ///< A producer's sequence number has a gap.
    transaction_aborted,   ///< The transaction was rolled back.
    io_error,              ///< The operating system reported a failure.
    no_space,              ///< The disk is full.
    journal_locked,        ///< Another process or handle has the directory open.
    journal_corrupt,       ///< Damage below the last synced position.
    journal_failed,        ///< An earlier write or sync failed; reopen to recover.
    in_use,                ///< Something still depends on it: a group's members, a binding.
};

namespace detail {

[[nodiscard]] constexpr const char* message_of(errc e) noexcept {
    switch (e) {
    case errc::closed: return "closed";
    case errc::timed_out: return "timed out";
    case errc::queue_full: return "queue is full";
    case errc::would_block: return "would have to wait";
    case errc::would_deadlock: return "would wait for ever";
    case errc::memory_limit: return "memory limit reached";
    case errc::message_too_large: return "message too large";
    case errc::unroutable: return "no queue took the message";
    case errc::not_found: return "not found";
    case errc::already_exists: return "already exists";
    case errc::type_mismatch: return "exists with another type";
    case errc::options_mismatch: return "exists with other options";
    case errc::invalid_name: return "invalid name";
    case errc::invalid_argument: return "invalid argument";
    case errc::stale_delivery: return "delivery is settled or stale";
    case errc::fenced: return "fenced by a newer owner";
    case errc::unknown_member: return "unknown group member";
    case errc::rebalance_in_progress: return "rebalance in progress";
    case errc::offset_out_of_range: return "offset out of range";
    case errc::sequence_out_of_order: return "sequence out of order";
    case errc::transaction_aborted: return "transaction aborted";
    case errc::io_error: return "input or output failed";
    case errc::no_space: return "no space on the device";
    case errc::journal_locked: return "directory is open elsewhere";
    case errc::journal_corrupt: return "journal is damaged";
    case errc::journal_failed: return "journal has failed, reopen to recover";
    case errc::in_use: return "still in use";
    }
    return "unknown railmq error";
}

class error_category final : public boost::system::error_category {
public:
    constexpr error_category() noexcept
        : boost::system::error_category{0x7261696c6d710001ULL} {}

    [[nodiscard]] const char* name() const noexcept override { return "railmq"; }
    [[nodiscard]] std::string message(int value) const override {
        return message_of(static_cast<errc>(value));
    }
};

inline constexpr error_category category_instance{};

} // namespace detail

/// The category of every `errc`; its name is "railmq".
[[nodiscard]] inline const boost::system::error_category& category() noexcept {
    return detail::category_instance;
}

[[nodiscard]] inline error_code make_error_code(errc e) noexcept {
    return {static_cast<int>(e), category()};
}

/// An error with a sentence that says what was expected, for the forms of a call that throw.
struct failure {
    error_code code;
    std::string what;

    [[nodiscard]] explicit operator bool() const noexcept { return code.failed(); }
};

} // namespace railmq

template <>
struct boost::system::is_error_code_enum<railmq::errc> : std::true_type {};
