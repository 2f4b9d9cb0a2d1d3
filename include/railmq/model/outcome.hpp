// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/time.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace railmq {

/// Thrown by a handler to say that trying again cannot help: the message is dead-lettered at
/// once, with `what()` as the reason. Any other exception is a failure that is retried.
class permanent_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// What a push handler may return to say what becomes of its message.
class outcome {
public:
    enum class kind : unsigned char { acked, failed, rejected, released };

    /// The same as `ack()`: a coroutine's result must have a default.
    outcome() noexcept = default;

    /// Done.
    [[nodiscard]] static outcome ack() noexcept { return outcome{kind::acked}; }
    /// Failed: retried by the queue's policy.
    [[nodiscard]] static outcome nack() noexcept { return outcome{kind::failed}; }
    /// Failed: retried after `wait`, which is never negative.
    [[nodiscard]] static outcome nack(duration wait) noexcept {
        outcome o{kind::failed};
        o.wait_ = wait;
        return o;
    }
    /// Will never work: dead-lettered, with the reason.
    [[nodiscard]] static outcome reject(std::string reason = {}) noexcept {
        outcome o{kind::rejected};
        o.reason_ = std::move(reason);
        return o;
    }
    /// Not a failure: back to its place at once.
    [[nodiscard]] static outcome release() noexcept { return outcome{kind::released}; }

    [[nodiscard]] kind what() const noexcept { return kind_; }
    [[nodiscard]] const std::optional<duration>& wait() const noexcept { return wait_; }
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

private:
    explicit outcome(kind k) noexcept
        : kind_{k} {}

    kind kind_ = kind::acked;
    std::optional<duration> wait_{};
    std::string reason_{};
};

} // namespace railmq
