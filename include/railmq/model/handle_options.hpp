// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/time.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace railmq {

/// When a message counts as done.
enum class ack_mode : unsigned char {
    manual,      ///< When the consumer says so: at least once.
    on_delivery, ///< When it is handed out: at most once; a crash after that loses it.
};

/// How a consumer takes messages.
struct consumer_options {
    /// The most messages this consumer may hold unsettled; at least 1, or `unlimited`.
    std::size_t prefetch = 100;
    /// Higher ones are served first while they wait and have room; the default is 0 and negative
    /// numbers are allowed (RabbitMQ, consumer priorities).
    std::int32_t priority = 0;
    railmq::ack_mode ack_mode = railmq::ack_mode::manual;
    /// Of all consumers of the queue that say so, one at a time gets messages: the highest
    /// priority, then the longest registered. All consumers of a queue must agree.
    bool single_active = false;
    /// Renews the deadline of what this consumer holds by itself, for at most this long from the
    /// hand-out; zero turns it off.
    duration auto_extend{0};
    /// Shown in notices.
    std::string name{};
};

/// How far a message has to have come before its sender is told that it is safe.
enum class durability_level : unsigned char {
    accepted, ///< In the broker's memory: gone with the process.
    written,  ///< With the operating system: survives the end of the process, however it ends.
    interval, ///< Written, and on the device within a time: a loss of power takes no more than
              ///< that.
    synced,   ///< On the device: survives the loss of power.
};

/// A `durability_level`, with the time where there is one:
/// `.durability = railmq::durability::interval(50ms)`.
class durability {
public:
    /// `synced`: the safest.
    constexpr durability() noexcept = default;

    static const durability accepted;
    static const durability written;
    static const durability synced;
    [[nodiscard]] static constexpr durability interval(duration at_most) noexcept {
        return durability{durability_level::interval, at_most};
    }

    [[nodiscard]] constexpr durability_level level() const noexcept { return level_; }
    [[nodiscard]] constexpr duration interval() const noexcept { return interval_; }

    friend constexpr bool operator==(const durability&, const durability&) = default;

private:
    explicit constexpr durability(durability_level l, duration t = duration::zero()) noexcept
        : level_{l}
        , interval_{t} {}

    durability_level level_ = durability_level::synced;
    duration interval_{0};
};

inline constexpr durability durability::accepted{durability_level::accepted};
inline constexpr durability durability::written{durability_level::written};
inline constexpr durability durability::synced{durability_level::synced};

/// The safer of two.
[[nodiscard]] constexpr durability stronger(const durability& a, const durability& b) noexcept {
    const bool is_b =
        b.level() > a.level() || (b.level() == a.level() && b.interval() < a.interval());
    return is_b ? b : a;
}

/// How a producer sends.
struct producer_options {
    /// How far its sends have to have come before they return, in a broker with a directory; none:
    /// as the broker says. Without a directory nothing survives the process, whatever it says.
    std::optional<railmq::durability> durability{};
    /// The largest payload, in bytes: `errc::message_too_large` above it.
    std::size_t max_message_bytes = std::size_t{1} << 20;
    /// A message to an exchange that nobody gets is an error, `errc::unroutable`, and not only
    /// counted. Says nothing for a queue, which has every message that it takes.
    bool mandatory = false;
};

/// How a push subscription runs its handler.
struct subscribe_options {
    /// Handlers that may run at once; at least 1.
    std::size_t concurrency = 1;
    consumer_options consumer{};
};

/// How a dead-letter queue is emptied back into its source or elsewhere.
struct redrive_options {
    /// Messages per second; 0 is as fast as possible.
    double rate = 0;
};

/// How long a graceful close lets running work end.
struct drain_for {
    duration time{};

    template <class Rep, class Period>
    explicit constexpr drain_for(std::chrono::duration<Rep, Period> d) noexcept
        : time{saturating_duration(d)} {}
};

[[nodiscard]] inline failure validate(const consumer_options& o) {
    if (o.prefetch == 0) {
        return {errc::invalid_argument, "prefetch is at least 1, or railmq::unlimited; got 0"};
    }
    if (o.auto_extend < duration::zero()) {
        return {errc::invalid_argument, "auto_extend is not negative"};
    }
    if (o.ack_mode == ack_mode::on_delivery && o.auto_extend > duration::zero()) {
        return {
            errc::invalid_argument,
            "auto_extend has nothing to extend with ack_mode = on_delivery"};
    }
    return {};
}

[[nodiscard]] inline failure validate(const producer_options& o) {
    if (o.max_message_bytes == 0) {
        return {errc::invalid_argument, "max_message_bytes is at least 1"};
    }
    return {};
}

[[nodiscard]] inline failure validate(const subscribe_options& o) {
    if (o.concurrency == 0) {
        return {errc::invalid_argument, "concurrency is at least 1; got 0"};
    }
    return validate(o.consumer);
}

[[nodiscard]] inline failure validate(const redrive_options& o) {
    // Written so that not-a-number fails too.
    if (!(o.rate >= 0 && o.rate <= 1e9)) {
        return {errc::invalid_argument, "redrive rate is 0 to 1e9 messages per second"};
    }
    return {};
}

} // namespace railmq
