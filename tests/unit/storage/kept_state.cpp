// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/random.hpp>
#include <railmq/storage/kept_state.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::duration;
using railmq::random_engine;
using railmq::time_point;
using railmq::core::image_state;
using railmq::core::message_image;

namespace {

/// What a message is, as far as these tests change it.
struct known {
    bool is_held = false;
    bool waits = false;
    std::uint32_t delivery_count = 0;
    std::uint64_t offset = 0;

    friend bool operator==(const known&, const known&) = default;
};
using model = std::map<std::uint64_t, std::map<std::uint64_t, known>>;

message_image image_of(std::uint64_t id, const known& k) {
    message_image m;
    m.id = m.position = id;
    m.enqueued = time_point{1s};
    m.delivery_count = k.delivery_count;
    m.state = k.waits ? image_state::waiting : k.is_held ? image_state::held : image_state::in_line;
    if (k.waits) {
        m.failures.failures = 1;
        m.due = time_point{99s};
    }
    return m;
}
model contents(kept_state& s) {
    model all;
    for (auto& [number, queue] : s.queues) {
        auto& messages = all[number];
        queue.messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
            const message_image image = m.image(id);
            messages[id] = {
                image.state == image_state::held,
                image.state == image_state::waiting,
                image.delivery_count,
                m.where.location().offset};
            return true;
        });
    }
    return all;
}

} // namespace

TEST_CASE("[T09] kept_state: random records leave what a plain model has, also said twice") {
    for (std::uint64_t run = 0; run < 40; ++run) {
        INFO("run " << run);
        random_engine random{railmq::test::seed(run)};
        kept_state state;
        model expected;
        std::uint64_t next = 0;
        std::uint64_t offset = 64;
        for (int step = 0; step < 400; ++step) {
            std::vector<std::byte> record;
            entry_writer w{record, duration::zero()};
            offset += 8;
            const std::uint64_t number = 1 + random() % 4;
            const auto it = expected.find(number);
            const std::uint64_t first = random() % (next + 4);
            const std::uint64_t count = 1 + random() % 6;
            const auto each = [&](auto&& f) {
                if (it != expected.end()) {
                    auto& all = it->second;
                    auto m = all.lower_bound(first);
                    while (m != all.end() && m->first - first < count) {
                        const auto here = m++;
                        f(all, here);
                    }
                }
            };
            switch (random() % 12) {
            case 0:
                w.queue({number, "q", "bytes", {}, 0, 0});
                expected[number];
                break;
            case 1:
                if (random() % 6 == 0) {
                    w.deleted(number);
                    expected.erase(number);
                }
                break;
            case 2:
                w.gone(number, first, count);
                each([](auto& all, auto m) { all.erase(m); });
                break;
            case 3:
                w.held(number, first, count, 3, time_point{7s});
                each([](auto&, auto m) {
                    // What waited is with a consumer now, as all of them.
                    m->second.is_held = true;
                    m->second.waits = false;
                    m->second.delivery_count = 3;
                });
                break;
            case 4: {
                const known k{false, random() % 2 == 0, 2, 0};
                w.changed(number, image_of(first, k));
                if (it != expected.end() && it->second.contains(first)) {
                    known& m = it->second[first];
                    m = {k.is_held, k.waits, k.delivery_count, m.offset};
                }
                break;
            }
            case 5: { // of all between, every second one is there, and says so
                std::vector<std::uint64_t> stay;
                each([&](auto& all, auto m) {
                    if (m->first % 2 == 0) {
                        stay.push_back(m->first);
                    }
                    all.erase(m);
                });
                w.range(number, first, first + count, stay.size());
                for (const std::uint64_t id : stay) {
                    const known k{true, false, 1, offset};
                    w.listed(image_of(id, k), {1, offset}, 50);
                    it->second[id] = k;
                }
                break;
            }
            default: {
                const std::uint64_t id = random() % 8 == 0 ? next += random() % 2000 : next++;
                const known k{false, false, 0, offset};
                w.stored(number, image_of(id, k), nullptr, nullptr);
                w.payload({});
                if (it != expected.end()) {
                    it->second[id] = k;
                }
                break;
            }
            }
            REQUIRE(state.add(record, {1, offset}));
            if (random() % 4 == 0) {
                REQUIRE(state.add(record, {1, offset}));
            }
            if (step % 20 == 0) {
                REQUIRE(contents(state) == expected);
            }
        }
        REQUIRE(contents(state) == expected);
        for (auto& [number, queue] : state.queues) {
            if (const auto& all = expected[number]; !all.empty()) {
                CHECK(queue.definition.next_position > std::prev(all.end())->first);
            }
        }
    }
}

TEST_CASE("kept_state: a place where no record begins is no entry") {
    for (const record_location where :
         {record_location{0, 64},
          record_location{std::uint64_t{1} << 32, 64},
          record_location{1, 65},
          record_location{1, max_record_offset + 8}}) {
        std::vector<std::byte> record;
        entry_writer w{record, duration::zero()};
        w.queue({1, "q", "bytes", {}, 0, 0});
        w.range(1, 0, 9, 1);
        w.listed(image_of(3, {}), where, 50);
        kept_state state;
        CHECK_FALSE(state.add(record, {1, 64}));
    }
}

TEST_CASE("kept_state: numbers go on behind the highest there was") {
    kept_state state;
    std::vector<std::byte> record;
    entry_writer w{record, duration::zero()};
    w.queue({7, "q", "bytes", {}, 20, 5});
    w.stored(7, image_of(30, {}), nullptr, nullptr);
    w.payload({});
    w.stored(7, image_of(kept_state::delayed_ids + 8, {}), nullptr, nullptr);
    w.payload({});
    w.gone(7, 30, 1);
    w.queue({7, "q", "bytes", {}, 1, 1});
    REQUIRE(state.add(record, {1, 64}));
    CHECK(state.last_queue == 7);
    CHECK(state.queues.at(7).definition.next_position == 31);
    CHECK(state.queues.at(7).definition.next_delayed == 9);
}

TEST_CASE("kept_state: deduplication ids are those that are not too old, the oldest first") {
    kept_state state;
    std::vector<std::byte> record;
    const auto at = [](int s) { return time_point{std::chrono::seconds{s}}; };
    {
        entry_writer w{record, duration::zero()};
        w.remembered(1, "before its queue", 1, at(1));
        w.queue({1, "q", "f", {.deduplication_window = 10s}, 0, 0});
        w.remembered(1, "b", 2, at(2));
        w.remembered(1, "a", 3, at(3));
        w.remembered(1, "c", 4, at(1));
        w.remembered(1, "b", 5, at(9)); // it was too old, and came again
        w.queue({1, "q", "f", {.deduplication_window = 10s}, 0, 0}); // said again
    }
    REQUIRE(state.add(record, {1, 64}));
    CHECK(state.latest == at(9));
    const auto known = [&](time_point now) {
        std::string all;
        for (const auto& [key, first] : state.queues.at(1).remembered_at(now)) {
            all += std::string{key} + std::to_string(first.id) + ' ';
        }
        return all;
    };
    CHECK(known(at(9)) == "c4 a3 b5 ");
    CHECK(known(at(11)) == "a3 b5 ");
    CHECK(known(at(13)) == "b5 ");
    CHECK(known(at(19)).empty());
}
