// SPDX-License-Identifier: BSL-1.0
//
// How much memory does a queued message of 64 bytes take? Growth of the resident set of a fresh
// process, divided by the number of messages. "held" means that all of them are handed out and
// not yet acknowledged; the space that the consumer keeps its deliveries in is not counted.
#include "support/fresh_process.hpp"
#include "support/harness.hpp"
#include "support/machine.hpp"
#include "support/payload.hpp"
#include "support/peers.hpp"
#include "support/subject.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace bench;

double per_message(std::size_t before, std::uint64_t messages) {
    return static_cast<double>(resident_bytes() - before) / static_cast<double>(messages);
}

template <class Contestant>
void fill(Contestant& contestant, std::uint64_t messages) {
    typename Contestant::payload::source source;
    typename Contestant::producer producer{contestant};
    for (std::uint64_t n = 0; n < messages; ++n) {
        producer.send(source.make(n));
    }
}

template <class Contestant>
double queued(std::uint64_t messages) {
    return in_fresh_process([=] {
        const auto before = resident_bytes();
        Contestant contestant{messages};
        fill(contestant, messages);
        return per_message(before, messages);
    });
}

/// The container alone, without a lock.
template <class Payload>
double bare_deque(std::uint64_t messages) {
    return in_fresh_process([=] {
        const auto before = resident_bytes();
        typename Payload::source source;
        std::deque<typename Payload::stored> values;
        for (std::uint64_t n = 0; n < messages; ++n) {
            values.push_back(source.make(n));
        }
        return per_message(before, messages);
    });
}

double lease_queue_held(std::uint64_t messages) {
    using contestant = lease_queue<record_payload>;
    return in_fresh_process([=] {
        const auto before = resident_bytes();
        contestant queue{messages};
        typename contestant::producer producer{queue};
        typename contestant::consumer consumer{queue};
        for (std::uint64_t n = 0; n < messages; ++n) {
            producer.send(record{n});
            consumer.hold();
        }
        return per_message(before, messages);
    });
}

double railmq_held(std::uint64_t messages) {
    using contestant = railmq_queue<record_payload>;
    return in_fresh_process([=] {
        typename contestant::deliveries held;
        held.reserve(messages);
        // Resident before we begin to count.
        std::memset(static_cast<void*>(held.data()), 0, messages * sizeof(held[0]));
        const auto before = resident_bytes();
        contestant queue{messages};
        fill(queue, messages);
        typename contestant::consumer consumer{queue};
        consumer.hold(held, messages);
        const auto result = per_message(before, messages);
        new std::vector{std::move(held)}; // never settled: the process ends here
        return result;
    });
}

table memory(bool quick) {
    table rows{
        .id = "P11",
        .title = "memory per queued message of 64 bytes",
        .columns = {"bytes/msg"},
        .references = {},
        .messages = quick ? 250'000U : 1'000'000U,
        .comparison = "smaller than",
        .timeless = true,
    };
    const std::string deque_of_strings = "deque of std::string";
    const std::string leases_held = peer::lease_queue + ", held";
    rows.add("deque", bare_deque<record_payload>);
    rows.add(deque_of_strings, bare_deque<string_payload<64>>);
    rows.add(peer::lease_queue, queued<lease_queue<record_payload>>);
    rows.add(leases_held, lease_queue_held);
#if RAILMQ_HAVE_MOODYCAMEL
    rows.add(peer::moodycamel, queued<moodycamel_queue<record_payload>>);
#endif
#if RAILMQ_HAVE_TBB
    rows.add(peer::tbb, queued<tbb_queue<record_payload>>);
#endif
#if RAILMQ_HAVE_LOCKFREE
    rows.add(peer::lockfree, queued<lockfree_queue<record_payload>>);
#endif
#if RAILMQ_HAVE_ZMQ
    rows.add(peer::zmq, queued<zmq_queue<record_payload>>);
#endif
    rows.add(
        peer::railmq,
        queued<railmq_queue<record_payload>>,
        {at_most(96, 84), compared_with(deque_of_strings, 1.3)});
    rows.add(
        peer::railmq + ", held", railmq_held, {at_most(96, 84), compared_with(leases_held, 2.2)});
    rows.add(peer::railmq_bytes, queued<railmq_queue<bytes_payload<64>>>);
    return rows;
}

} // namespace

int main(int argc, char** argv) {
    bench::harness all{"memory", bench::parse_arguments(argc, argv)};
    all.add(memory(all.quick()));
    return all.run();
}
