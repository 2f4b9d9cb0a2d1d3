// SPDX-License-Identifier: BSL-1.0
//
// A topic against a list for each subscription: whatever subscriptions do, and whoever comes and
// goes, each gets what it should, in order, once unless it gives it back.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using delivery = railmq::sim_delivery<int>;

/// What a subscription should do, with nothing but a list.
struct model {
    std::size_t max_backlog = railmq::unlimited;
    bool wants_even = false;
    std::deque<int> line{};    ///< What it has not taken, filtered or not, for its backlog.
    std::deque<int> ready{};   ///< Taken out of the topic, or given back, in order.
    std::uint64_t dropped = 0; ///< What it was too late for.

    [[nodiscard]] bool wants(int n) const { return !wants_even || n % 2 == 0; }
};

struct subscriber {
    std::string name{};
    railmq::sim_queue<int> queue{};
    railmq::sim_consumer<int> consumer{};
    model expected{};
    std::list<delivery> held{};
    std::vector<int> acked{};
};

class run {
public:
    explicit run(std::uint64_t seed)
        : random_{seed} {
        if (chance(3)) {
            options_.history = railmq::log_retention{};
        }
        topic_ = broker_.topic<int>("topic", options_);
    }

    void steps(int n) {
        for (int i = 0; i < n; ++i) {
            step();
        }
        for (auto& s : subscribers_) {
            finish(s);
        }
    }

private:
    [[nodiscard]] std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>{0, n - 1}(random_);
    }
    [[nodiscard]] bool chance(std::size_t one_in) { return below(one_in) == 0; }

    void step() {
        switch (below(12)) {
        case 0:
            if (subscribers_.size() < 5) {
                subscribe();
            }
            break;
        case 1:
            if (subscribers_.size() > 2 && chance(4)) {
                leave();
            }
            break;
        case 2:
        case 3:
        case 4: publish(1 + below(chance(10) ? 700 : 5)); break;
        default:
            if (!subscribers_.empty()) {
                use(*std::next(
                    subscribers_.begin(), static_cast<long>(below(subscribers_.size()))));
            }
        }
    }

    void subscribe() {
        subscriber s;
        s.expected.wants_even = chance(3);
        // Not with a filter: what is skipped is not looked at.
        s.expected.max_backlog =
            !s.expected.wants_even && chance(2) ? 1 + below(300) : railmq::unlimited;
        railmq::subscription_options o{
            .max_backlog = s.expected.max_backlog,
            .queue = {
                .retry = {.max_attempts = 0, .backoff = railmq::constant_backoff{.delay = 0s}}}};
        if (options_.history && chance(2)) {
            o.start = railmq::log_start::earliest;
            s.expected.line.assign(sent_.begin(), sent_.end());
        }
        s.name = "s" + std::to_string(++names_);
        const auto even = [](const int& n) { return n % 2 == 0; };
        const bool live = chance(3);
        s.queue = live ? (s.expected.wants_even ? topic_.subscribe(o, even) : topic_.subscribe(o))
                       : (s.expected.wants_even ? topic_.subscribe(s.name, o, even)
                                                : topic_.subscribe(s.name, o));
        if (live) {
            s.name.clear();
        }
        s.consumer = s.queue.consumer({.prefetch = railmq::unlimited});
        subscribers_.push_back(std::move(s));
    }

    void leave() {
        const auto it =
            std::next(subscribers_.begin(), static_cast<long>(below(subscribers_.size())));
        if (!it->name.empty()) {
            topic_.unsubscribe(it->name, true);
        }
        subscribers_.erase(it);
    }

    void publish(std::size_t n) {
        auto producer = topic_.producer();
        const bool in_batch = chance(2);
        std::vector<int> values;
        for (std::size_t i = 0; i < n; ++i) {
            const int value = static_cast<int>(sent_.size());
            sent_.push_back(value);
            values.push_back(value);
            if (!in_batch) {
                if (chance(4)) {
                    producer.send("key", value);
                } else {
                    producer.send(value);
                }
            }
            for (auto& s : subscribers_) {
                s.expected.line.push_back(value);
            }
        }
        if (in_batch) {
            producer.send_batch(values);
        }
    }

    /// What the queue does before it says that it has nothing: 64 records at a time.
    static void refill(model& m) {
        while (m.ready.empty() && !m.line.empty()) {
            while (m.line.size() > m.max_backlog) {
                m.line.pop_front();
                ++m.dropped;
            }
            for (int n = 0; n != 64 && !m.line.empty(); ++n) {
                if (m.wants(m.line.front())) {
                    m.ready.push_back(m.line.front());
                }
                m.line.pop_front();
            }
        }
    }

    void receive(subscriber& s) {
        auto d = s.consumer.try_receive();
        refill(s.expected);
        if (s.expected.ready.empty()) {
            CHECK_FALSE(d);
            return;
        }
        REQUIRE(d);
        REQUIRE(d->value() == s.expected.ready.front());
        s.expected.ready.pop_front();
        s.held.push_back(std::move(*d));
    }

    void use(subscriber& s) {
        if (chance(2) || s.held.empty()) {
            for (std::size_t n = 1 + below(chance(10) ? 300 : 4); n != 0; --n) {
                receive(s);
            }
        } else {
            const auto it = std::next(s.held.begin(), static_cast<long>(below(s.held.size())));
            const int value = it->value();
            switch (below(4)) {
            case 0:
                CHECK(it->release());
                give_back(s, value);
                break;
            case 1:
                CHECK(it->nack());
                give_back(s, value);
                break;
            default: CHECK(it->ack()); s.acked.push_back(value);
            }
            s.held.erase(it);
        }
        check(s);
    }

    /// To its original place.
    static void give_back(subscriber& s, int value) {
        auto& ready = s.expected.ready;
        ready.insert(std::upper_bound(ready.begin(), ready.end(), value), value);
    }

    void check(const subscriber& s) {
        const auto stats = s.queue.stats();
        const auto& m = s.expected;
        const std::size_t to_come =
            m.wants_even ? static_cast<std::size_t>(std::count_if(
                               m.line.begin(), m.line.end(), [&](int n) { return m.wants(n); }))
                         : std::min(m.line.size(), m.max_backlog);
        CHECK(stats.ready == m.ready.size() + to_come);
        CHECK(stats.in_flight == s.held.size());
        CHECK(stats.acked == s.acked.size());
        CHECK(stats.dropped == m.dropped);
        CHECK(
            stats.accepted ==
            stats.ready + stats.in_flight + stats.acked + stats.dropped + stats.purged);
    }

    void finish(subscriber& s) {
        s.held.clear(); // dropped: they have failed, and come again
        while (auto d = s.consumer.try_receive()) {
            s.acked.push_back(d->value());
            CHECK(d->ack());
        }
        auto all = s.acked;
        std::sort(all.begin(), all.end());
        CHECK(std::adjacent_find(all.begin(), all.end()) == all.end()); // none twice
        const auto stats = s.queue.stats();
        CHECK(stats.ready == 0);
        CHECK(stats.acked == all.size());
        CHECK(stats.accepted == stats.acked + stats.dropped);
    }

    std::mt19937_64 random_;
    railmq::simulation sim_{1};
    railmq::sim_broker broker_{sim_};
    railmq::topic_options options_{};
    railmq::sim_topic<int> topic_{};
    std::list<subscriber> subscribers_{};
    std::vector<int> sent_{};
    int names_ = 0;
};

} // namespace

TEST_CASE("a topic is a list for each of its subscriptions") {
    const std::uint64_t seed = railmq::test::seed();
    for (std::uint64_t n = 0; n < 150; ++n) {
        CAPTURE(seed, n);
        run r{seed + n};
        r.steps(300);
    }
}
