// SPDX-License-Identifier: BSL-1.0
//
// Brokers whose journal is so small that it is gone round all the time: whatever is opened, left
// alone, deleted and made again meanwhile, what a broker of the same journal finds is what was
// there.
#include <railmq/broker.hpp>
#include <railmq/model/random.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::errc;
using railmq::error_code;
using railmq::storage::simulated_disk;

namespace {

const railmq::queue_options dead_ends{.dead_letter = railmq::discard};

struct world {
    explicit world(std::uint64_t seed = 1, std::uint64_t segment = 4096)
        : disk{seed} {
        options.durability = durability::accepted;
        options.journal = {.segment_bytes = segment, .headroom_bytes = 1024};
        open();
    }
    void open() { broker.emplace(sim, disk.directory(), options); }
    void kill_and_open() {
        broker->sync();
        disk.end_process();
        broker.reset();
        open();
    }
    void close_and_open() {
        broker.reset();
        open();
    }
    auto queue(const std::string& name) { return broker->queue<std::string>(name, dead_ends); }
    void send(const std::string& name, const std::string& value) {
        queue(name).producer().send(value);
    }
    void take_one(const std::string& name) {
        auto c = queue(name).consumer();
        auto d = c.try_receive();
        REQUIRE(d);
        REQUIRE(d->ack());
    }
    /// Appends so many bytes, and leaves nothing.
    void stir(std::size_t bytes) {
        auto q = queue("stir");
        auto p = q.producer();
        auto c = q.consumer();
        for (std::size_t done = 0; done < bytes; done += 300) {
            p.send(std::string(200, 's'));
            REQUIRE(c.try_receive()->ack());
        }
    }
    [[nodiscard]] std::vector<std::string> values_in(const std::string& name) {
        std::vector<std::string> all;
        for (const auto& m : queue(name).peek(10'000)) {
            all.push_back(m.value);
        }
        return all;
    }
    [[nodiscard]] std::size_t segments() {
        error_code ec;
        auto names = disk.directory().names(ec);
        return static_cast<std::size_t>(std::count_if(
            names.begin(), names.end(), [](const auto& n) { return n.ends_with(".journal"); }));
    }

    railmq::broker_options options{};
    railmq::simulation sim{1};
    simulated_disk disk;
    std::optional<railmq::sim_broker> broker{};
};

/// Told apart, and of some length.
std::string text(std::uint64_t n, std::size_t length) {
    std::string t = std::to_string(n) + ' ';
    t.resize(std::max(t.size(), length), '.');
    return t;
}

} // namespace

TEST_CASE("upkeep: a queue that is deleted in the middle of a round stays deleted") {
    // Whatever moment of a round it is.
    for (std::size_t moment = 0; moment < 14; ++moment) {
        INFO("moment " << moment);
        world w;
        for (int i = 0; i < 8; ++i) {
            w.send("q" + std::to_string(i), "first");
        }
        w.stir(4096 + 300 * moment);
        for (int i = 0; i < 8; ++i) {
            w.broker->delete_queue("q" + std::to_string(i));
        }
        w.send("q3", "second");
        w.stir(8192);
        w.send("q5", "third");
        w.kill_and_open();
        CHECK(w.broker->names() == std::vector<std::string>{"q3", "q5", "stir"});
        CHECK(w.values_in("q3") == std::vector<std::string>{"second"});
        CHECK(w.values_in("q5") == std::vector<std::string>{"third"});
    }
}

TEST_CASE("upkeep: what was stored again of a queue that nobody had opened can be read") {
    for (std::size_t moment = 0; moment < 20; ++moment) {
        INFO("moment " << moment);
        world w;
        for (std::uint64_t i = 0; i < 3; ++i) {
            w.send("left", text(i, 100));
        }
        w.stir(20'000);
        w.kill_and_open();
        w.stir(3000);
        w.stir(500 * moment);
        CHECK(w.values_in("left") == std::vector{text(0, 100), text(1, 100), text(2, 100)});
        w.kill_and_open();
        CHECK(w.values_in("left") == std::vector{text(0, 100), text(1, 100), text(2, 100)});
    }
}

TEST_CASE("upkeep: the journal stays short, and opening reads little of it") {
    world w;
    w.send("left", "for good");
    w.stir(600'000);
    CHECK(w.segments() < 12);
    w.kill_and_open();
    CHECK(w.broker->recovery().segments < 8);
    CHECK(w.values_in("left") == std::vector<std::string>{"for good"});
}

TEST_CASE("upkeep: random work, deletes, restarts and long sleep leave what is there") {
    for (std::uint64_t run = 0; run < 14; ++run) {
        INFO("run " << run);
        railmq::random_engine random{railmq::test::seed(run)};
        world w{run + 1, run % 3 == 0 ? 16'384U : 4096U};
        std::map<std::string, std::deque<std::string>> model;
        std::uint64_t n = 0;
        const auto name = [&] { return std::string(1, static_cast<char>('a' + random() % 6)); };
        const auto check = [&](const std::string& q) {
            const auto& expected = model[q];
            REQUIRE(w.values_in(q) == std::vector<std::string>(expected.begin(), expected.end()));
        };
        for (int step = 0; step < 700; ++step) {
            const std::string q = name();
            switch (random() % 24) {
            case 0:
                if (model.erase(q) != 0) {
                    w.broker->delete_queue(q);
                }
                break;
            case 1: w.kill_and_open(); break;
            case 2:
                if (random() % 2 == 0) {
                    w.close_and_open();
                }
                break;
            case 3: w.stir(random() % 6000); break;
            case 4:
                if (model.contains(q)) {
                    check(q);
                }
                break;
            case 5:
            case 6:
            case 7:
            case 8:
            case 9:
            case 10:
            case 11:
                if (const auto it = model.find(q); it != model.end() && !it->second.empty()) {
                    w.take_one(q);
                    it->second.pop_front();
                }
                break;
            default:
                if (model[q].size() < 40) {
                    model[q].push_back(text(++n, random() % 300));
                    w.send(q, model[q].back());
                }
                break;
            }
        }
        w.kill_and_open();
        std::vector<std::string> names;
        for (const auto& [q, messages] : model) {
            names.push_back(q);
        }
        auto there = w.broker->names();
        std::erase(there, "stir");
        CHECK(there == names);
        for (const auto& q : names) {
            check(q);
        }
    }
}
