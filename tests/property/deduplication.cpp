// SPDX-License-Identifier: BSL-1.0
//
// A queue with a deduplication window on a disk against a map, through random lives: sends of every
// form, transactions, acknowledgements, purges, waits, ends of the process and orderly ones.
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
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
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
        case 4: commit(s.a, s.b); break;
        case 5: abort(s.a); break;
        case 6:
        case 7: receive(s.b); break;
        case 8: sim_.advance(std::chrono::milliseconds{s.a % 30}); break;
        case 9: sim_.advance(std::chrono::milliseconds{s.a % 200}); break;
        case 10:
            (void)queue_->purge();
            ready_.clear();
            break;
        case 11: restart(s.a); break;
        default: break;
        }
        check();
    }

private:
    struct first_message {
        std::uint64_t id;
        time_point at;
    };

    void open() {
        broker_.emplace(
            sim_,
            disk_.directory(),
            railmq::broker_options{.journal = {.segment_bytes = 4096, .headroom_bytes = 1024}});
        if (!leaves_queue_alone_) {
            open_queue();
        }
    }
    void open_queue() {
        queue_.emplace(broker_->queue<std::string>("q", options_));
        producer_.emplace(queue_->producer());
        consumer_.emplace(queue_->consumer());
    }
    void end(bool in_good_order) {
        if (in_good_order) {
            broker_->close();
        } else {
            broker_->sync();
            disk_.end_process();
        }
        consumer_.reset();
        producer_.reset();
        queue_.reset();
        broker_.reset();
    }
    void restart(int a) {
        end(a % 2 == 0);
        if (a % 5 == 0) {
            // A life in which nobody asks for the queue, while the upkeep goes round.
            leaves_queue_alone_ = true;
            open();
            auto other = broker_->queue<std::string>("other");
            auto p = other.producer();
            for (int i = 0; i < 40; ++i) {
                p.send(std::string(300, 'x'));
            }
            (void)other.purge();
            leaves_queue_alone_ = false;
            end(a % 3 == 0);
        }
        sim_.advance(std::chrono::milliseconds{a % 7});
        open();
    }

    [[nodiscard]] static railmq::properties with_id(int a) {
        railmq::properties p;
        p.deduplication_id = a % 8 == 0 ? "" : "id-" + std::to_string(a % 8);
        return p;
    }
    [[nodiscard]] const first_message* known(const std::string& id) const {
        const auto it = known_.find(id);
        return it == known_.end() || it->second.at + options_.deduplication_window <= sim_.now()
                   ? nullptr
                   : &it->second;
    }
    /// What has been told of a send agrees with what is known.
    void judge(const std::string& id, std::uint64_t told, bool is_duplicate) {
        const first_message* first = id.empty() ? nullptr : known(id);
        RC_ASSERT(is_duplicate == (first != nullptr));
        if (first != nullptr) {
            RC_ASSERT(told == first->id);
            return;
        }
        ready_.push_back(std::to_string(sent_));
        if (!id.empty()) {
            known_.insert_or_assign(id, first_message{told, sim_.now()});
        }
    }
    void send(int a, int b) {
        const railmq::properties p = with_id(a);
        railmq::error_code ec;
        railmq::receipt r;
        const std::string value = std::to_string(++sent_);
        const bool is_full = ready_.size() >= options_.max_length;
        switch (b % 3) {
        case 0: r = producer_->try_send(value, p, ec); break;
        case 1: r = producer_->send_for(value, p, 0s, ec); break;
        default:
            producer_->async_send(value, p, [&](railmq::error_code e, railmq::receipt got) {
                ec = e;
                r = got;
            });
            sim_.run_ready();
            break;
        }
        if (is_full && known(p.deduplication_id) == nullptr) {
            RC_ASSERT(ec == errc::queue_full);
            return;
        }
        RC_ASSERT_FALSE(static_cast<bool>(ec));
        judge(p.deduplication_id, r.id, r.is_duplicate);
    }
    void commit(int a, int b) {
        if (ready_.size() + 2 > options_.max_length) {
            return;
        }
        auto tx = broker_->begin();
        const int first = sent_ + 1;
        tx.send(*producer_, std::to_string(first), with_id(a));
        tx.send(*producer_, std::to_string(first + 1), with_id(b));
        const auto receipts = tx.commit();
        RC_ASSERT(receipts.size() == 2U);
        for (const auto& [id, r] :
             {std::pair{with_id(a), receipts[0]}, std::pair{with_id(b), receipts[1]}}) {
            ++sent_;
            judge(id.deduplication_id, r.id, r.duplicate_of.has_value());
        }
    }
    void abort(int a) {
        auto tx = broker_->begin();
        tx.send(*producer_, "never", with_id(a));
    }
    void receive(int b) {
        auto d = consumer_->try_receive();
        RC_ASSERT(d.has_value() == !ready_.empty());
        if (d) {
            RC_ASSERT(d->value() == ready_.front());
            if (b % 3 == 0) {
                d->release();
            } else {
                d->ack();
                ready_.erase(ready_.begin());
            }
        }
    }
    void check() {
        const auto s = queue_->stats();
        RC_ASSERT(s.ready == ready_.size());
        std::uint64_t n = 0;
        for (const auto& [id, first] : known_) {
            n += known(id) != nullptr ? 1 : 0;
        }
        RC_ASSERT(s.deduplication_ids == n);
    }

    queue_options options_;
    railmq::simulation sim_{1};
    railmq::storage::simulated_disk disk_{1};
    std::optional<railmq::sim_broker> broker_{};
    std::optional<railmq::sim_queue<std::string>> queue_{};
    std::optional<railmq::sim_producer<std::string>> producer_{};
    std::optional<railmq::sim_consumer<std::string>> consumer_{};

    bool leaves_queue_alone_ = false;
    int sent_ = 0;
    std::vector<std::string> ready_{};
    std::map<std::string, first_message> known_{};
};

} // namespace

TEST_CASE("deduplication: any life of a queue on a disk agrees with a map") {
    const bool holds = rc::check([] {
        queue_options o;
        o.ack_timeout = std::chrono::hours{1};
        o.deduplication_window = *rc::gen::element<railmq::duration>(1ms, 50ms, 200ms, 1h);
        if (*rc::gen::inRange(0, 3) == 0) {
            o.overflow = railmq::overflow_policy::reject;
            o.max_length = *rc::gen::inRange<std::size_t>(1, 6);
        }
        const auto steps = *rc::gen::resize(
            300,
            rc::gen::container<std::vector<step>>(rc::gen::apply(
                [](int what, int a, int b) {
                    return step{what, a, b};
                },
                rc::gen::inRange(0, 12),
                rc::gen::inRange(0, 1'000),
                rc::gen::inRange(0, 1'000))));
        RC_LOG() << "window " << o.deduplication_window.count() << ", max_length " << o.max_length
                 << std::endl;
        world w{o};
        for (const step& s : steps) {
            w.run(s);
        }
    });
    CHECK(holds);
}
