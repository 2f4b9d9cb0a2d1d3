// SPDX-License-Identifier: BSL-1.0
//
// A queue with priorities on a disk against a sorted map, through random lives: sends, receives,
// settlements, expiry, purges, ends of the process and orderly ones. After every step what is ready
// is the same, in the same order.
#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include "support/catch.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::duration;
using railmq::never;
using railmq::overflow_policy;
using railmq::queue_options;
using railmq::time_point;

namespace {

struct step {
    int what;
    int a;
    int b;
};
std::ostream& operator<<(std::ostream& out, const step& s) {
    return out << '{' << s.what << ", " << s.a << ", " << s.b << '}';
}

/// By urgency, the highest first, then by when it came into the queue.
using rank = std::pair<std::int64_t, int>;

struct message {
    int value = 0;
    time_point expires = never;
};

class world {
public:
    explicit world(const queue_options& o)
        : options_{o} {
        open();
    }

    void run(const step& s) {
        switch (s.what) {
        case 0:
        case 1:
        case 2:
        case 3: send(s.a, s.b); break;
        case 4:
        case 5:
        case 6: receive(); break;
        case 7: settle(s.a, &railmq::sim_delivery<int>::ack, true); break;
        case 8:
            settle(
                s.a, [](auto& d) { return d.nack(0s); }, false);
            break;
        case 9: settle(s.a, &railmq::sim_delivery<int>::release, false); break;
        case 10: advance(std::chrono::milliseconds{s.a % 40}); break;
        case 11:
            if (s.a % 5 == 0) {
                RC_ASSERT(queue_->purge() == ready_.size());
                ready_.clear();
            }
            break;
        case 12: restart(s.a % 2 == 0); break;
        default: break;
        }
        check();
    }

private:
    void open() {
        broker_.emplace(
            sim_,
            disk_.directory(),
            railmq::broker_options{.journal = {.segment_bytes = 4096, .headroom_bytes = 1024}});
        queue_.emplace(broker_->queue<int>("q", options_));
        producer_.emplace(queue_->producer());
        consumer_.emplace(queue_->consumer());
    }
    void restart(bool in_good_order) {
        while (options_.overflow == overflow_policy::drop_oldest && !held_.empty()) {
            // They come back one by one, and make others go before all are there.
            settle(0, &railmq::sim_delivery<int>::release, false);
        }
        if (in_good_order) {
            broker_->close();
        } else {
            broker_->sync(); // an acknowledgement may be one write late
            disk_.end_process();
        }
        held_.clear();
        consumer_.reset();
        producer_.reset();
        queue_.reset();
        broker_.reset();
        for (const auto& [at, m] : held_model_) {
            give_back(at, m);
        }
        held_model_.clear();
        open();
    }

    [[nodiscard]] rank rank_of(std::uint32_t priority, int value) const {
        return {-static_cast<std::int64_t>(std::min(priority, options_.priorities - 1)), value};
    }
    void send(int a, int b) {
        railmq::properties p;
        p.priority = a % 3 == 0 ? 0 : static_cast<std::uint32_t>(a) % (options_.priorities + 2);
        if (a % 50 == 1) {
            p.priority = ~std::uint32_t{0}; // out of range
        }
        if (b % 6 == 0) {
            p.time_to_live = std::chrono::milliseconds{1 + b % 60};
        }
        railmq::error_code ec;
        const rank at = rank_of(p.priority, sent_);
        const message m{sent_, p.time_to_live ? sim_.now() + *p.time_to_live : never};
        producer_->try_send(sent_, p, ec);
        ++sent_;
        const bool fits = ready_.size() < options_.max_length;
        if (fits || options_.overflow == overflow_policy::drop_oldest) {
            RC_ASSERT_FALSE(static_cast<bool>(ec));
            ready_.emplace(at, m);
            drop_surplus();
        } else {
            RC_ASSERT(ec == railmq::errc::queue_full);
        }
    }
    void drop_surplus() {
        while (options_.overflow == overflow_policy::drop_oldest &&
               ready_.size() > options_.max_length) {
            // The first of the last level.
            ready_.erase(ready_.lower_bound({ready_.rbegin()->first.first, 0}));
            ++dead_;
        }
    }
    void receive() {
        auto d = consumer_->try_receive();
        RC_ASSERT(d.has_value() == !ready_.empty());
        if (!d) {
            return;
        }
        RC_ASSERT(**d == ready_.begin()->second.value);
        held_model_.push_back(*ready_.begin());
        held_.push_back(std::move(*d));
        ready_.erase(ready_.begin());
    }
    template <class F>
    void settle(int a, F&& f, bool leaves) {
        if (held_.empty()) {
            return;
        }
        const auto i = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(a) % held_.size());
        RC_ASSERT(std::invoke(f, held_[static_cast<std::size_t>(i)]));
        const auto [at, m] = held_model_[static_cast<std::size_t>(i)];
        held_.erase(held_.begin() + i);
        held_model_.erase(held_model_.begin() + i);
        if (!leaves) {
            give_back(at, m);
            drop_surplus();
        }
    }
    void give_back(const rank& at, const message& m) {
        if (m.expires <= sim_.now()) {
            ++dead_;
        } else {
            ready_.emplace(at, m);
        }
    }
    void advance(duration d) {
        sim_.advance(d);
        dead_ += std::erase_if(
            ready_, [&](const auto& entry) { return entry.second.expires <= sim_.now(); });
    }

    void check() {
        std::vector<int> expected;
        for (const auto& [at, m] : ready_) {
            expected.push_back(m.value);
        }
        std::vector<int> shown;
        for (const auto& m : queue_->peek(100'000)) {
            shown.push_back(m.value);
        }
        RC_ASSERT(shown == expected);
        const auto s = queue_->stats();
        RC_ASSERT(s.ready == expected.size());
        RC_ASSERT(s.in_flight == held_.size());
        const auto dead = broker_->find_queue<int>("q.dead");
        RC_ASSERT((dead ? dead->stats().ready : 0) == dead_);
    }

    queue_options options_;
    railmq::simulation sim_{1};
    railmq::storage::simulated_disk disk_{1};
    std::optional<railmq::sim_broker> broker_{};
    std::optional<railmq::sim_queue<int>> queue_{};
    std::optional<railmq::sim_producer<int>> producer_{};
    std::optional<railmq::sim_consumer<int>> consumer_{};
    std::vector<railmq::sim_delivery<int>> held_{};

    std::map<rank, message> ready_{};
    std::vector<std::pair<rank, message>> held_model_{};
    int sent_ = 0;
    std::uint64_t dead_ = 0;
};

} // namespace

TEST_CASE("priorities: any life of a queue on a disk agrees with a sorted map") {
    const bool holds = rc::check([] {
        queue_options o;
        o.priorities = *rc::gen::element(2U, 3U, 10U, railmq::max_priorities);
        o.ack_timeout = std::chrono::hours{1};
        o.retry = {
            .max_attempts = 0,
            .max_crashes = 0,
            .backoff = railmq::constant_backoff{.delay = duration::zero()}};
        o.overflow = *rc::gen::element(
            overflow_policy::wait, overflow_policy::reject, overflow_policy::drop_oldest);
        if (o.overflow != overflow_policy::wait) {
            o.max_length = *rc::gen::inRange<std::size_t>(1, 12);
        }
        const auto steps = *rc::gen::resize(
            300,
            rc::gen::container<std::vector<step>>(rc::gen::apply(
                [](int what, int a, int b) {
                    return step{what, a, b};
                },
                rc::gen::inRange(0, 13),
                rc::gen::inRange(0, 1'000),
                rc::gen::inRange(0, 1'000))));
        RC_LOG() << "priorities " << o.priorities << ", overflow " << static_cast<int>(o.overflow)
                 << ", max_length " << o.max_length << std::endl;
        world w{o};
        for (const step& s : steps) {
            w.run(s);
        }
    });
    CHECK(holds);
}
