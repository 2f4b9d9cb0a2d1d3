// SPDX-License-Identifier: BSL-1.0
//
// What does it cost to hand a message over? Through one thread, from one producer to one
// consumer, and from two to two; one by one and in batches of 32; as a struct of 64 bytes, as a
// string and as bytes. RailMQ keeps a lease and is acknowledged; of the peers, only the
// hand-rolled lease queue does so.
#include "support/hand_off.hpp"

#include "support/harness.hpp"
#include "support/peers.hpp"
#include "support/subject.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace bench;
using peer::in_batches;

constexpr shape one_thread{0, 0};
constexpr shape one_to_one{1, 1};
constexpr shape two_to_two{2, 2};

template <class Contestant, std::size_t Batch = 1>
auto through(shape threads) {
    return [threads](std::uint64_t messages) {
        return hand_off<Contestant, Batch>(threads, messages);
    };
}

using expectations = std::vector<expectation>;

table records_one_by_one(
    std::string id, std::string title, shape threads, const expectations& expected) {
    using payload = record_payload;
    table rows{
        .id = std::move(id),
        .title = std::move(title),
        .references = {peer::mutex_deque, peer::lease_queue, peer::moodycamel_blocking},
    };
    rows.add(peer::mutex_deque, through<mutex_deque<payload>>(threads));
    rows.add(peer::lease_queue, through<lease_queue<payload>>(threads));
#if RAILMQ_HAVE_MOODYCAMEL
    rows.add(peer::moodycamel, through<moodycamel_queue<payload>>(threads));
    rows.add(peer::moodycamel_blocking, through<moodycamel_blocking_queue<payload>>(threads));
#endif
#if RAILMQ_HAVE_TBB
    rows.add(peer::tbb, through<tbb_queue<payload>>(threads));
#endif
#if RAILMQ_HAVE_LOCKFREE
    rows.add(peer::lockfree, through<lockfree_queue<payload>>(threads));
#endif
#if RAILMQ_HAVE_ZMQ
    if (threads.producers <= 1) {
        rows.add(peer::zmq, through<zmq_queue<payload>>(threads));
    }
#endif
    rows.add(peer::railmq, through<railmq_queue<payload>>(threads), expected);
    return rows;
}

table records_in_batches(
    std::string id, std::string title, shape threads, const expectations& expected) {
    using payload = record_payload;
    table rows{
        .id = std::move(id),
        .title = std::move(title),
        .references =
            {peer::mutex_deque,
             in_batches(peer::lease_queue),
             in_batches(peer::moodycamel_blocking)},
    };
    rows.add(peer::mutex_deque, through<mutex_deque<payload>>(threads));
    rows.add(in_batches(peer::mutex_deque), through<mutex_deque<payload>, 32>(threads));
    rows.add(in_batches(peer::lease_queue), through<lease_queue<payload>, 32>(threads));
#if RAILMQ_HAVE_MOODYCAMEL
    rows.add(in_batches(peer::moodycamel), through<moodycamel_queue<payload>, 32>(threads));
    rows.add(
        in_batches(peer::moodycamel_blocking),
        through<moodycamel_blocking_queue<payload>, 32>(threads));
#endif
    rows.add(in_batches(peer::railmq), through<railmq_queue<payload>, 32>(threads), expected);
    return rows;
}

struct text_expectations {
    expectations one_by_one;
    expectations in_batches;
};

template <std::size_t Size>
table texts(
    std::string id, std::string title, shape threads, const text_expectations& expected = {}) {
    using text = string_payload<Size>;
    using bytes = bytes_payload<Size>;
    table rows{
        .id = std::move(id),
        .title = std::move(title),
        .references = {peer::mutex_deque, peer::moodycamel_blocking},
    };
    rows.add(peer::mutex_deque, through<mutex_deque<text>>(threads));
    rows.add(in_batches(peer::mutex_deque), through<mutex_deque<text>, 32>(threads));
    rows.add(peer::lease_queue, through<lease_queue<text>>(threads));
#if RAILMQ_HAVE_MOODYCAMEL
    rows.add(peer::moodycamel, through<moodycamel_queue<text>>(threads));
    rows.add(peer::moodycamel_blocking, through<moodycamel_blocking_queue<text>>(threads));
    rows.add(
        in_batches(peer::moodycamel_blocking),
        through<moodycamel_blocking_queue<text>, 32>(threads));
#endif
#if RAILMQ_HAVE_TBB
    rows.add(peer::tbb, through<tbb_queue<text>>(threads));
#endif
    rows.add(peer::railmq, through<railmq_queue<text>>(threads));
    rows.add(in_batches(peer::railmq), through<railmq_queue<text>, 32>(threads));
    rows.add(peer::railmq_bytes, through<railmq_queue<bytes>>(threads), expected.one_by_one);
    rows.add(
        in_batches(peer::railmq_bytes),
        through<railmq_queue<bytes>, 32>(threads),
        expected.in_batches);
    return rows;
}

void add_records(harness& all) {
    all.add(records_one_by_one(
        "P1",
        "one thread, struct of 64 bytes, one by one",
        one_thread,
        {times_as_fast(peer::mutex_deque, 0.7, 1.2), times_as_fast(peer::lease_queue, 1.6, 2.8)}));
    all.add(records_in_batches(
        "P1b",
        "one thread, struct of 64 bytes, batches of 32",
        one_thread,
        {times_as_fast(peer::mutex_deque, 2.5, 3),
         times_as_fast(in_batches(peer::lease_queue), 5, 6),
         times_as_fast(in_batches(peer::moodycamel_blocking), 0.7, 0.9)}));
    all.add(records_one_by_one(
        "P2",
        "1 producer, 1 consumer, struct of 64 bytes, one by one",
        one_to_one,
        {times_as_fast(peer::mutex_deque, 3, 6),
         times_as_fast(peer::moodycamel_blocking, 2, 5).when_near(1.2, 1.5),
         times_as_fast(peer::lease_queue, 3, 6)}));
    all.add(records_in_batches(
        "P3",
        "1 producer, 1 consumer, struct of 64 bytes, batches of 32",
        one_to_one,
        {times_as_fast(in_batches(peer::moodycamel_blocking), 0.8, 1.2),
         times_as_fast(in_batches(peer::mutex_deque), 3, 5),
         times_as_fast(peer::mutex_deque, 8, 15),
         compared_with(in_batches(peer::lease_queue))}));
    all.add(records_one_by_one(
        "P4",
        "2 producers, 2 consumers, struct of 64 bytes, one by one",
        two_to_two,
        {times_as_fast(peer::mutex_deque, 2.5, 5),
         times_as_fast(peer::moodycamel_blocking, 1.2, 2.5)}));
    all.add(records_in_batches(
        "P4b",
        "2 producers, 2 consumers, struct of 64 bytes, batches of 32",
        two_to_two,
        {times_as_fast(peer::mutex_deque, 4, 7),
         times_as_fast(in_batches(peer::moodycamel_blocking), 0.6, 0.9)}));
}

void add_texts(harness& all) {
    all.add(texts<64>(
        "P3b.64",
        "1 producer, 1 consumer, text of 64 bytes",
        one_to_one,
        {{compared_with(peer::mutex_deque, 9), compared_with(peer::moodycamel_blocking, 4)},
         {compared_with(peer::mutex_deque, 30)}}));
    all.add(texts<1024>(
        "P3b.1024",
        "1 producer, 1 consumer, text of 1024 bytes, every line read",
        one_to_one,
        {{compared_with(peer::mutex_deque, 5), compared_with(peer::moodycamel_blocking, 4)},
         {compared_with(peer::mutex_deque, 8)}}));
    all.add(texts<64>("text.1.64", "one thread, text of 64 bytes", one_thread));
    all.add(
        texts<1024>("text.1.1024", "one thread, text of 1024 bytes, every line read", one_thread));
    all.add(texts<64>("text.22.64", "2 producers, 2 consumers, text of 64 bytes", two_to_two));
    all.add(texts<1024>(
        "text.22.1024",
        "2 producers, 2 consumers, text of 1024 bytes, every line read",
        two_to_two));
}

} // namespace

int main(int argc, char** argv) {
    bench::harness all{"hand_off", bench::parse_arguments(argc, argv)};
    add_records(all);
    add_texts(all);
    return all.run();
}
