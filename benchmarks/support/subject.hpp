// SPDX-License-Identifier: BSL-1.0
//
// RailMQ as a contestant for hand_off.hpp, in memory or in a simulation. Every message is sent
// with backpressure, received under a lease and acknowledged.
#pragma once

#include <railmq/railmq.hpp>

#include "payload.hpp"

#include <chrono>
#include <cstddef>
#include <iterator>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {

namespace peer {

inline const std::string railmq = "railmq";
inline const std::string railmq_bytes = "railmq bytes";
inline const std::string railmq_simulated = "railmq simulated";

} // namespace peer

struct threaded_host {
    railmq::broker broker;
};

struct simulated_host {
    railmq::simulation simulation{42};
    railmq::sim_broker broker{simulation};
};

template <std::size_t Size>
using bytes_payload = view_payload<Size, railmq::bytes>;

namespace detail {

template <class Value>
[[nodiscard]] auto open_queue(auto& broker, std::size_t capacity) {
    return broker.template queue<Value>("bench", {.max_length = capacity});
}

[[nodiscard]] auto open_consumer(auto& queue, std::size_t prefetch) {
    return queue.consumer({.prefetch = prefetch});
}

} // namespace detail

template <class Payload, class Host>
class subject {
    using value = typename Payload::stored;
    using queue = decltype(detail::open_queue<value>(std::declval<Host&>().broker, 0));
    using producer_handle = decltype(std::declval<queue&>().producer());
    using consumer_handle = decltype(detail::open_consumer(std::declval<queue&>(), 0));
    using delivery = typename std::remove_cvref_t<
        decltype(std::declval<consumer_handle&>().try_receive())>::value_type;

public:
    using payload = Payload;
    using deliveries = std::vector<delivery>;
    static constexpr bool bounded = true;

    explicit subject(std::size_t capacity)
        : capacity_{capacity}
        , queue_{detail::open_queue<value>(host_.broker, capacity)} {}

    class producer {
    public:
        explicit producer(subject& from)
            : handle_{from.queue_.producer()} {}

        void send(typename Payload::sent sent) { handle_.send(std::move(sent)); }

        void send_batch(std::span<typename Payload::sent> sent) {
            if constexpr (std::is_trivially_copyable_v<typename Payload::sent>) {
                handle_.send_batch(sent);
            } else {
                handle_.send_batch(std::ranges::subrange(
                    std::make_move_iterator(sent.begin()), std::make_move_iterator(sent.end())));
            }
        }

    private:
        producer_handle handle_;
    };

    class consumer {
    public:
        explicit consumer(subject& from)
            : handle_{detail::open_consumer(from.queue_, from.capacity_)} {}

        template <class Visit>
        void receive(Visit visit) {
            auto taken = handle_.receive();
            if (!taken) {
                throw std::runtime_error{"the queue was closed"};
            }
            visit(taken->value());
            taken->ack();
        }

        template <class Visit>
        std::size_t receive_batch(std::size_t max, Visit visit) {
            const auto count = handle_.receive_batch(taken_, max, std::chrono::seconds{10});
            for (auto& one : taken_) {
                visit(one.value());
            }
            railmq::ack_all(taken_);
            return count;
        }

        /// Takes that many and leaves them held.
        void hold(deliveries& held, std::size_t count) {
            if (handle_.receive_batch(held, count, std::chrono::seconds{10}) != count) {
                throw std::runtime_error{"not everything could be taken"};
            }
        }

    private:
        consumer_handle handle_;
        deliveries taken_;
    };

private:
    std::size_t capacity_;
    Host host_;
    queue queue_;
};

template <class Payload>
using railmq_queue = subject<Payload, threaded_host>;

template <class Payload>
using simulated_queue = subject<Payload, simulated_host>;

} // namespace bench
