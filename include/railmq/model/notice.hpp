// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/death.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/retry_policy.hpp>
#include <railmq/model/time.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace railmq {

/// What a broker tells its observer: one type for each kind of event.
namespace notices {

/// What every notice says. `queue` lives as long as the call of the observer. Of a record that a
/// group of a log gives up it is `<log>.<group>`, and `id` is the record's offset.
struct event {
    std::string_view queue{};
    time_point at{};
    std::uint64_t id = 0; ///< The message's number in its queue; 0 where there is no message.
};

struct sent : event {};
struct delivered : event {
    std::uint32_t delivery_count = 0;
};
struct acked : event {};
/// A failure of any kind; what follows from it is a notice of its own.
struct failed : event {
    failure_kind kind = failure_kind::nacked;
    std::uint32_t failure_count = 0;
    std::string detail{}; ///< What the handler's exception said.
};
/// Will be handed out again, at `ready_at` or when its key is free.
struct retried : event {
    time_point ready_at{};
};
/// Given back without a failure.
struct released : event {};
/// Its time to live ended; what became of it is a notice of its own.
struct expired : event {};
/// Moved to the queue `target`.
struct dead_lettered : event {
    death_reason reason = death_reason::rejected;
    std::uint32_t delivery_count = 0;
    std::string detail{};
    std::string target{};
};
/// The dead-letter queue would not take the message; it stays and is tried again.
struct dead_letter_refused : event {
    error_code code{};
    std::string target{};
};
/// Gone without a dead-letter copy: dead letters are discarded, or it would have gone in circles.
struct dropped : event {
    death_reason reason = death_reason::rejected;
    bool cycle = false;
};
/// Messages of a log or a topic have gone before the subscription took them: it was too far behind.
struct skipped : event {
    std::uint64_t count = 0;
};
/// Moved from a dead-letter queue to the queue `target`.
struct redriven : event {
    std::string target{};
};
struct purged : event {
    std::uint64_t count = 0;
};
/// A send failed: nothing was stored.
struct refused : event {
    error_code code{};
};
/// A send was accepted, and not stored: `id` is that of the message which had the same
/// deduplication id before.
struct duplicate : event {
    std::string deduplication_id{};
};
/// A settlement came too late and changed nothing.
struct stale : event {};
struct consumer_opened : event {
    std::uint32_t consumer = 0;
    std::string name{};
};
struct consumer_closed : event {
    std::uint32_t consumer = 0;
    std::uint64_t returned = 0; ///< Messages it gave back.
};
/// Another consumer of a single-active queue took over.
struct consumer_activated : event {
    std::uint32_t consumer = 0;
};
struct queue_closed : event {
    std::uint64_t undelivered = 0;
};
/// What happened could not be written to the journal: after a restart it will not have happened.
/// With `no_space` the journal goes on as soon as there is space; else it has failed for good.
struct unwritten : event {
    errc code{};
};

/// A message's payload had left memory, and cannot be read from the journal. It stays, and is tried
/// again after a second.
struct unreadable : event {};

/// A reply came that nobody waits for: the request had timed out or was cancelled, or never was.
struct late_reply : event {
    std::string correlation_id{};
};

/// A message was published to the exchange that `queue` names, and nobody was bound to it: it is
/// gone, or was given back where its producer said `mandatory`.
struct unroutable : event {
    std::string routing_key{};
    bool returned = false;
};

} // namespace notices

using notice = std::variant<
    notices::sent,
    notices::delivered,
    notices::acked,
    notices::failed,
    notices::retried,
    notices::released,
    notices::expired,
    notices::dead_lettered,
    notices::dead_letter_refused,
    notices::dropped,
    notices::skipped,
    notices::redriven,
    notices::purged,
    notices::refused,
    notices::duplicate,
    notices::stale,
    notices::consumer_opened,
    notices::consumer_closed,
    notices::consumer_activated,
    notices::queue_closed,
    notices::unwritten,
    notices::unreadable,
    notices::late_reply,
    notices::unroutable>;

/// Gets every notice of a broker, on the thread that caused it, outside every lock: it may call
/// the broker. What it throws is swallowed and counted. It must be safe to call from as many
/// threads as use the broker.
using observer = std::function<void(const notice&)>;

namespace detail {

template <class T, class Variant>
inline constexpr bool is_alternative_of = false;
template <class T, class... Ts>
inline constexpr bool is_alternative_of<T, std::variant<Ts...>> = (std::same_as<T, Ts> || ...);

} // namespace detail

/// One of the types in `railmq::notices`.
template <class T>
concept notice_type = detail::is_alternative_of<T, notice>;

/// The notice's common part.
[[nodiscard]] inline const notices::event& event_of(const notice& n) noexcept {
    return *std::visit([](const auto& e) -> const notices::event* { return &e; }, n);
}

/// An observer of one kind of notice: `railmq::on<railmq::notices::dropped>([](auto& d) {...})`.
template <notice_type Notice, std::invocable<const Notice&> F>
[[nodiscard]] observer on(F f) {
    return [f = std::move(f)](const notice& n) mutable {
        if (const auto* one = std::get_if<Notice>(&n)) {
            f(*one);
        }
    };
}

} // namespace railmq
