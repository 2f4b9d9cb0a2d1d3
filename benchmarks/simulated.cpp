// SPDX-License-Identifier: BSL-1.0
//
// What does a message cost in a simulation? It is the same broker on one thread, with plain
// variables for atomics, so it should beat even a lock-free queue that keeps no leases.
#include "support/hand_off.hpp"
#include "support/harness.hpp"
#include "support/peers.hpp"
#include "support/subject.hpp"

#include <cstddef>
#include <cstdint>

namespace {

using namespace bench;
using peer::in_batches;

template <class Contestant, std::size_t Batch = 1>
auto through_one_thread() {
    return [](std::uint64_t messages) { return hand_off<Contestant, Batch>({}, messages); };
}

table simulation() {
    using payload = record_payload;
    table rows{
        .id = "P16",
        .title = "one thread, struct of 64 bytes, simulated runtime",
        .references = {peer::moodycamel, peer::mutex_deque},
    };
#if RAILMQ_HAVE_MOODYCAMEL
    rows.add(peer::moodycamel, through_one_thread<moodycamel_queue<payload>>());
#endif
    rows.add(peer::mutex_deque, through_one_thread<mutex_deque<payload>>());
    rows.add(peer::railmq, through_one_thread<railmq_queue<payload>>());
    rows.add(
        peer::railmq_simulated,
        through_one_thread<simulated_queue<payload>>(),
        {costs_at_most(peer::moodycamel, 1.2, 0.75), compared_with(peer::mutex_deque)});
    rows.add(
        in_batches(peer::railmq_simulated), through_one_thread<simulated_queue<payload>, 32>());
    return rows;
}

} // namespace

int main(int argc, char** argv) {
    bench::harness all{"simulated", bench::parse_arguments(argc, argv)};
    all.add(simulation());
    return all.run();
}
