// SPDX-License-Identifier: BSL-1.0
//
// Drives one contestant: through one thread, or from producer threads to consumer threads, with
// a bounded number of messages outstanding and its memory touched before the clock starts.
//
// A contestant is a class with
//   payload                 what travels (payload.hpp)
//   bounded                 whether send() itself waits at the capacity; if not, the driver waits
//   contestant(capacity)
//   producer{contestant}    one for each thread: send(sent), send_batch(span of sent)
//   consumer{contestant}    one for each thread: receive(visit), receive_batch(max, visit);
//                           both wait for a message, show each to visit(stored) and settle it;
//                           the second returns how many there were
#pragma once

#include "machine.hpp"
#include "payload.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

/// Messages that may be sent and not yet consumed.
inline constexpr std::size_t outstanding = 8192;

/// How many threads send and receive; none: one thread does both.
struct shape {
    unsigned producers = 0;
    unsigned consumers = 0;
};

namespace detail {

/// Threads take their work in blocks of this size, so that all of them end together whatever the
/// scheduler does.
inline constexpr std::uint64_t block = 256;

[[nodiscard]] inline std::uint64_t whole_blocks(std::uint64_t messages) {
    return (messages + block - 1) / block * block;
}

template <class Payload>
void check_sum(std::uint64_t sum, std::uint64_t messages) {
    for (std::uint64_t n = 0; n < messages; ++n) {
        sum -= Payload::number_of(n);
    }
    if (sum != 0) {
        throw std::runtime_error{"messages were lost or duplicated"};
    }
}

template <std::size_t Batch, class Contestant>
class sending_side {
    using payload = typename Contestant::payload;

public:
    explicit sending_side(Contestant& contestant)
        : producer_{contestant}
        , batch_(Batch) {}

    void send(std::uint64_t sequence) {
        if constexpr (Batch == 1) {
            producer_.send(source_.make(sequence));
        } else {
            for (std::size_t slot = 0; slot < Batch; ++slot) {
                batch_[slot] = source_.make(sequence + slot);
            }
            producer_.send_batch(std::span<typename payload::sent>{batch_});
        }
    }

private:
    typename payload::source source_;
    typename Contestant::producer producer_;
    std::vector<typename payload::sent> batch_;
};

template <std::size_t Batch, class Contestant>
class receiving_side {
    using payload = typename Contestant::payload;

public:
    explicit receiving_side(Contestant& contestant)
        : consumer_{contestant} {}

    void receive(std::uint64_t messages) {
        std::uint64_t sum = 0;
        const auto visit = [&sum](const auto& value) { sum += payload::read(value); };
        if constexpr (Batch == 1) {
            for (std::uint64_t n = 0; n < messages; ++n) {
                consumer_.receive(visit);
            }
        } else {
            for (std::uint64_t n = 0; n < messages;) {
                n += consumer_.receive_batch(std::min<std::uint64_t>(Batch, messages - n), visit);
            }
        }
        sum_ += sum;
    }

    [[nodiscard]] std::uint64_t sum() const { return sum_; }

private:
    typename Contestant::consumer consumer_;
    std::uint64_t sum_ = 0;
};

/// Fills the queue once and drains it, so that no page is touched for the first time later.
template <class Contestant>
void touch_memory(Contestant& contestant) {
    sending_side<1, Contestant> sender{contestant};
    receiving_side<1, Contestant> receiver{contestant};
    for (std::uint64_t n = 0; n < outstanding; ++n) {
        sender.send(n);
    }
    receiver.receive(outstanding);
    check_sum<typename Contestant::payload>(receiver.sum(), outstanding);
}

template <std::size_t Batch, class Contestant>
double one_thread(std::uint64_t messages) {
    messages = whole_blocks(messages);
    const pinned here{0};
    Contestant contestant{outstanding};
    sending_side<Batch, Contestant> sender{contestant};
    receiving_side<Batch, Contestant> receiver{contestant};
    const auto pass = [&](std::uint64_t first, std::uint64_t count) {
        for (std::uint64_t n = 0; n < count; n += Batch) {
            sender.send(first + n);
            receiver.receive(Batch);
        }
    };
    // Touches what the queue uses at this depth, and no more.
    pass(0, 2 * outstanding);
    const auto begin = steady::now();
    pass(2 * outstanding, messages);
    const auto end = steady::now();
    check_sum<typename Contestant::payload>(receiver.sum(), 2 * outstanding + messages);
    return nanoseconds_between(begin, end) / static_cast<double>(messages);
}

template <std::size_t Batch, class Contestant>
double across_threads(std::uint64_t messages, shape threads) {
    static_assert(block % Batch == 0);
    messages = whole_blocks(messages);
    // One of each: a core for each. More: where the scheduler likes.
    const bool pin = threads.producers + threads.consumers <= 2;
    Contestant contestant{outstanding};
    touch_memory(contestant);

    struct alignas(128) counter {
        std::atomic<std::uint64_t> value{0};
    };
    counter to_send;
    counter to_receive;
    counter received;
    counter ready;
    std::atomic<bool> go{false};
    std::vector<std::uint64_t> sums(threads.consumers);
    std::vector<steady::time_point> ends(threads.consumers);

    const auto start_together = [&] {
        ready.value.fetch_add(1);
        while (!go.load(std::memory_order_acquire)) {
            std::this_thread::yield();
        }
    };
    const auto produce = [&](std::size_t processor) {
        std::optional<pinned> here;
        if (pin) {
            here.emplace(processor);
        }
        sending_side<Batch, Contestant> sender{contestant};
        start_together();
        for (;;) {
            const auto first = to_send.value.fetch_add(block, std::memory_order_relaxed);
            if (first >= messages) {
                return;
            }
            if constexpr (!Contestant::bounded) {
                while (received.value.load(std::memory_order_acquire) + outstanding <
                       first + block) {
                    std::this_thread::yield();
                }
            }
            for (std::uint64_t n = 0; n < block; n += Batch) {
                sender.send(first + n);
            }
        }
    };
    const auto consume = [&](std::size_t processor, std::size_t index) {
        std::optional<pinned> here;
        if (pin) {
            here.emplace(processor);
        }
        receiving_side<Batch, Contestant> receiver{contestant};
        start_together();
        while (to_receive.value.fetch_add(block, std::memory_order_relaxed) < messages) {
            receiver.receive(block);
            received.value.fetch_add(block, std::memory_order_release);
        }
        ends[index] = steady::now();
        sums[index] = receiver.sum();
    };

    std::vector<std::thread> running;
    for (unsigned n = 0; n < threads.producers; ++n) {
        running.emplace_back(produce, n);
    }
    for (unsigned n = 0; n < threads.consumers; ++n) {
        running.emplace_back(consume, threads.producers + n, n);
    }
    while (ready.value.load() < threads.producers + threads.consumers) {
        std::this_thread::yield();
    }
    const auto begin = steady::now();
    go.store(true, std::memory_order_release);
    for (auto& thread : running) {
        thread.join();
    }
    std::uint64_t sum = 0;
    for (const auto part : sums) {
        sum += part;
    }
    check_sum<typename Contestant::payload>(sum, messages);
    const auto end = *std::max_element(ends.begin(), ends.end());
    return nanoseconds_between(begin, end) / static_cast<double>(messages);
}

} // namespace detail

/// Nanoseconds per message for that many messages through a fresh contestant.
template <class Contestant, std::size_t Batch = 1>
[[nodiscard]] double hand_off(shape threads, std::uint64_t messages) {
    if (threads.producers == 0) {
        return detail::one_thread<Batch, Contestant>(messages);
    }
    return detail::across_threads<Batch, Contestant>(messages, threads);
}

} // namespace bench
