// SPDX-License-Identifier: BSL-1.0
//
// Receives, sends and calls that wait for the end of work, against a model: who is served by a
// step, with what, and in which order. After every step nobody waits for something that is there.
#include <railmq/core/queue_machine.hpp>
#include <railmq/core/single_threaded.hpp>

#include "support/catch.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::time_point;
using railmq::core::settlement;
using plain = railmq::core::single_threaded;
using machine = railmq::core::queue_machine<plain>;
using effects = railmq::core::effects<plain>;
using lease_type = railmq::core::lease<plain>;

namespace {

/// A waiter of either kind: who it is, and what it was told.
struct outcome {
    int who = 0;
    bool ended = false; ///< Told that there will be nothing.
    std::vector<int> got{};

    friend bool operator==(const outcome&, const outcome&) = default;
    friend std::ostream& operator<<(std::ostream& out, const outcome& o) {
        out << "{waiter " << o.who << (o.ended ? " ended" : "");
        for (const int n : o.got) out << ' ' << n;
        return out << '}';
    }
};

// --- The model ---

struct model_receiver {
    int who;
    std::size_t holder;
    std::size_t max;
};
struct model_sender {
    int who;
    int number;
};
struct model_holder {
    bool is_open = true;
    bool is_paused = false;
    std::size_t prefetch = 1;
    int priority = 0;
    std::size_t held = 0;
};

struct model {
    std::size_t max_length;
    std::map<std::uint64_t, int> ready{};                        ///< By position.
    std::map<int, std::pair<std::uint64_t, std::size_t>> held{}; ///< Number: position, holder.
    std::vector<model_holder> holders{};
    std::vector<model_receiver> receivers{}; ///< In the order in which they are served.
    std::deque<model_sender> senders{};
    std::vector<int> idlers{};
    std::uint64_t tail = 0;
    bool is_paused = false;
    bool is_closed = false;
    std::vector<outcome> told{};

    [[nodiscard]] bool may_take(std::size_t h) const {
        const model_holder& x = holders[h];
        return !is_paused && x.is_open && !x.is_paused && x.held < x.prefetch;
    }
    std::optional<int> take(std::size_t h) {
        if (!may_take(h) || ready.empty()) return std::nullopt;
        const auto [position, number] = *ready.begin();
        ready.erase(ready.begin());
        held[number] = {position, h};
        ++holders[h].held;
        return number;
    }
    void wait(const model_receiver& r) {
        const auto behind = std::find_if(receivers.begin(), receivers.end(), [&](const auto& x) {
            return holders[x.holder].priority < holders[r.holder].priority;
        });
        receivers.insert(behind, r);
    }
    void end(std::size_t h) {
        std::erase_if(receivers, [&](const model_receiver& r) {
            if (r.holder != h) return false;
            told.push_back({r.who, true, {}});
            return true;
        });
    }
    void serve() {
        for (bool more = true; more;) {
            more = false;
            while (!senders.empty() && ready.size() < max_length) {
                ready[tail++] = senders.front().number;
                told.push_back({senders.front().who, false, {}});
                senders.pop_front();
                more = true;
            }
            for (std::size_t i = 0; i < receivers.size() && !ready.empty();) {
                const model_receiver r = receivers[i];
                if (!may_take(r.holder)) {
                    ++i;
                    continue;
                }
                outcome o{r.who, false, {}};
                while (o.got.size() < r.max) {
                    const auto n = take(r.holder);
                    if (!n) break;
                    o.got.push_back(*n);
                }
                told.push_back(std::move(o));
                receivers.erase(receivers.begin() + static_cast<std::ptrdiff_t>(i));
                more = true;
            }
        }
        if (is_closed && ready.empty()) {
            for (const model_receiver& r : receivers) {
                told.push_back({r.who, true, {}});
            }
            receivers.clear();
        }
        if (ready.empty() && held.empty()) {
            for (const int who : idlers) {
                told.push_back({who, false, {}});
            }
            idlers.clear();
        }
    }
};

// --- The real one ---

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
    explicit world(std::size_t max_length)
        : model_{max_length}
        , machine_{"q", railmq::core::payload_ops_of<int>::value, options(max_length), budget_, 1} {
    }
    world(const world&) = delete;
    world& operator=(const world&) = delete;
    ~world() {
        effects fx{false};
        machine_.close_queue(errc::closed, true, now_, fx);
    }

    void run(const step& s) {
        const auto of = [](int n, std::size_t size) { return static_cast<std::size_t>(n) % size; };
        now_ += 1us;
        effects fx{false};
        model_.told.clear();
        switch (s.what) {
        case 0:
        case 1: send(false, fx); break;
        case 2: send(true, fx); break;
        case 3:
            if (!holders_.empty()) try_receive(of(s.a, holders_.size()), fx);
            break;
        case 4:
        case 5:
            if (!holders_.empty()) {
                receive(of(s.a, holders_.size()), s.b % 3 == 0 ? 1 + of(s.b, 4) : 1, fx);
            }
            break;
        case 6:
        case 7:
        case 8:
            if (!leases_.empty()) settle(of(s.a, leases_.size()), s.b % 4, fx);
            break;
        case 9: cancel_one(s.a, fx); break;
        case 10: open(s.a, s.b, fx); break;
        case 11:
            if (!holders_.empty()) close(of(s.a, holders_.size()), s.b % 2 == 0, fx);
            break;
        case 12: pause(s.a % 2 == 0, fx); break;
        case 13:
            if (!holders_.empty()) {
                const std::size_t h = of(s.a, holders_.size());
                model_.holders[h].is_paused = s.b % 3 == 0;
                machine_.set_paused(*holders_[h], s.b % 3 == 0, now_, fx);
                model_.serve();
            }
            break;
        case 14: wait_for_idle(fx); break;
        default:
            if (s.a % 50 == 0) {
                model_.is_closed = true;
                for (const auto& w : model_.senders) {
                    model_.told.push_back({w.who, true, {}});
                }
                model_.senders.clear();
                model_.serve();
                machine_.close_queue(errc::closed, false, now_, fx);
            }
            break;
        }
        finish(fx);
        check();
    }

private:
    struct receiver : railmq::core::receive_waiter<plain> {
        outcome what{};
        std::vector<lease_type> leases{};
        world* owner = nullptr;
    };
    struct sender : railmq::core::send_waiter {
        outcome what{};
        int value = 0;
        world* owner = nullptr;
    };
    struct idler : railmq::core::idle_waiter {
        outcome what{};
        world* owner = nullptr;
    };

    static railmq::queue_options options(std::size_t max_length) {
        railmq::queue_options o;
        o.max_length = max_length;
        o.ack_timeout = 1h;
        o.retry.max_attempts = 0;
        o.retry.backoff = railmq::constant_backoff{.delay = 0ns};
        return o;
    }
    [[nodiscard]] int number_at(const lease_type& l) {
        return *static_cast<const int*>(machine_.store().payload({l.in, l.at}));
    }

    void send(bool waits, effects& fx) {
        const int number = ++numbers_;
        const bool is_full = model_.ready.size() >= model_.max_length || !model_.senders.empty();
        const errc expected = model_.is_closed ? errc::closed : is_full ? errc::queue_full : errc{};
        int value = number;
        std::unique_ptr<railmq::properties> none;
        std::uint64_t id = 0;
        RC_ASSERT(machine_.send(&value, none, now_, fx, id) == expected);
        if (expected == errc{}) {
            model_.ready[model_.tail++] = number;
        } else if (expected == errc::queue_full && waits) {
            auto w = std::make_unique<sender>();
            w->what.who = ++waiters_;
            w->value = number;
            w->payload = &w->value;
            w->owner = this;
            w->complete = [](railmq::core::waiter* self) noexcept {
                auto& x = *static_cast<sender*>(static_cast<railmq::core::send_waiter*>(self));
                x.what.ended = bool{x.result};
                x.owner->told_.push_back(x.what);
            };
            model_.senders.push_back({w->what.who, number});
            senders_.push_back(std::move(w));
            machine_.wait_to_send(*senders_.back(), now_, fx);
        }
        model_.serve();
    }
    void try_receive(std::size_t h, effects& fx) {
        const auto expected = model_.take(h);
        lease_type l;
        RC_ASSERT(machine_.take(*holders_[h], now_, fx, l) == expected.has_value());
        if (expected) {
            RC_ASSERT(number_at(l) == *expected);
            leases_.push_back(l);
            model_.serve();
        }
    }
    void receive(std::size_t h, std::size_t max, effects& fx) {
        if (!model_.holders[h].is_open) {
            return; // its receives are over, and it refuses new ones
        }
        if (model_.is_closed && model_.ready.empty()) {
            return; // the skin has found it drained
        }
        auto w = std::make_unique<receiver>();
        w->what.who = ++waiters_;
        w->holder = holders_[h].get();
        w->max = static_cast<std::uint32_t>(max);
        w->owner = this;
        if (max > 1) {
            w->leases.reserve(max);
            w->many = &w->leases;
        }
        w->complete = [](railmq::core::waiter* self) noexcept {
            auto& x =
                *static_cast<receiver*>(static_cast<railmq::core::receive_waiter<plain>*>(self));
            x.what.ended = bool{x.result};
            if (x.one) {
                x.leases.push_back(x.one);
            }
            for (const auto& l : x.leases) {
                x.what.got.push_back(x.owner->number_at(l));
                x.owner->leases_.push_back(l);
            }
            x.owner->told_.push_back(x.what);
        };
        if (model_.may_take(h) && !model_.ready.empty()) {
            try_receive(h, fx); // as the skin does: it waits only for what is not there
            return;
        }
        receivers_.push_back(std::move(w));
        RC_ASSERT(machine_.wait_to_receive(*receivers_.back()));
        model_.wait({receivers_.back()->what.who, h, max});
    }
    void settle(std::size_t i, int how, effects& fx) {
        const lease_type l = leases_[i];
        leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(i));
        const auto held = model_.held.find(number_at(l));
        const bool expected =
            held != model_.held.end() && holders_[held->second.second].get() == l.holder;
        if (expected) {
            const auto [position, h] = held->second;
            if (how == 0) {
                model_.ready[position] = held->first;
            }
            model_.held.erase(held);
            --model_.holders[h].held;
            model_.serve();
        }
        const auto what = how == 0 ? settlement::kind::release : settlement::kind::ack;
        const bool done = machine_.settle(l, {what, {}, {}}, now_, fx);
        RC_ASSERT(done == expected);
        if (!done) {
            machine_.drop_stale(l, fx);
        }
    }
    void cancel_one(int a, effects&) {
        if (!model_.receivers.empty() && a % 2 == 0) {
            const std::size_t i = static_cast<std::size_t>(a) % model_.receivers.size();
            const int who = model_.receivers[i].who;
            model_.receivers.erase(model_.receivers.begin() + static_cast<std::ptrdiff_t>(i));
            for (auto& w : receivers_) {
                if (w->what.who == who) machine_.forget(*w);
            }
        } else if (!model_.senders.empty()) {
            const std::size_t i = static_cast<std::size_t>(a) % model_.senders.size();
            const int who = model_.senders[i].who;
            model_.senders.erase(model_.senders.begin() + static_cast<std::ptrdiff_t>(i));
            for (auto& w : senders_) {
                if (w->what.who == who) machine_.forget(*w);
            }
        }
    }
    void open(int a, int b, effects& fx) {
        if (holders_.size() >= 5) {
            return;
        }
        auto h = std::make_unique<railmq::core::lease_holder<plain>>();
        model_holder m;
        m.prefetch = 1 + static_cast<std::size_t>(a) % 3;
        m.priority = b % 3;
        h->prefetch.store(m.prefetch);
        h->priority = m.priority;
        machine_.open(*h, now_, fx);
        model_.holders.push_back(m);
        holders_.push_back(std::move(h));
    }
    void close(std::size_t h, bool only_cancel, effects& fx) {
        if (holders_[h]->is_closed) {
            return;
        }
        model_.holders[h].is_open = false;
        model_.end(h);
        model_.serve();
        if (only_cancel) {
            machine_.cancel(*holders_[h], now_, fx);
            return;
        }
        machine_.close(*holders_[h], now_, fx);
        holders_[h]->is_closed = true;
        for (auto it = model_.held.begin(); it != model_.held.end();) {
            const auto [number, where] = *it;
            if (where.second == h) {
                model_.ready[where.first] = number;
                --model_.holders[h].held;
                it = model_.held.erase(it);
            } else {
                ++it;
            }
        }
        model_.serve();
    }
    void pause(bool on, effects& fx) {
        model_.is_paused = on;
        if (on) {
            machine_.pause();
        } else {
            machine_.resume(now_, fx);
            model_.serve();
        }
    }
    void wait_for_idle(effects& fx) {
        auto w = std::make_unique<idler>();
        w->what.who = ++waiters_;
        w->owner = this;
        w->complete = [](railmq::core::waiter* self) noexcept {
            auto& x = *static_cast<idler*>(static_cast<railmq::core::idle_waiter*>(self));
            x.owner->told_.push_back(x.what);
        };
        model_.idlers.push_back(w->what.who);
        model_.serve();
        idlers_.push_back(std::move(w));
        machine_.wait_for_idle(*idlers_.back());
        machine_.serve(now_, fx);
    }

    void finish(effects& fx) {
        told_.clear();
        for (railmq::core::waiter* w : fx.completed) {
            w->complete(w);
        }
        RC_ASSERT(told_ == model_.told);
    }
    void check() {
        const auto s = machine_.stats();
        RC_ASSERT(s.ready == model_.ready.size());
        RC_ASSERT(s.in_flight == model_.held.size());
        RC_ASSERT(s.waiting_receivers == model_.receivers.size());
        RC_ASSERT(s.waiting_senders == model_.senders.size());
        // Nobody waits for what is there.
        RC_ASSERT(model_.senders.empty() || model_.ready.size() >= model_.max_length);
        for (const model_receiver& r : model_.receivers) {
            RC_ASSERT(model_.ready.empty() || !model_.may_take(r.holder));
        }
        for (std::size_t h = 0; h < holders_.size(); ++h) {
            RC_ASSERT(holders_[h]->held() == model_.holders[h].held);
            RC_ASSERT(
                holders_[h]->waiting.load() == static_cast<std::uint32_t>(std::count_if(
                                                   model_.receivers.begin(),
                                                   model_.receivers.end(),
                                                   [&](const auto& r) { return r.holder == h; })));
        }
    }

    model model_;
    time_point now_{};
    int numbers_ = 0;
    int waiters_ = 0;
    railmq::core::memory_budget<plain> budget_{std::size_t{1} << 30};
    std::vector<std::unique_ptr<railmq::core::lease_holder<plain>>> holders_{};
    std::vector<std::unique_ptr<receiver>> receivers_{};
    std::vector<std::unique_ptr<sender>> senders_{};
    std::vector<std::unique_ptr<idler>> idlers_{};
    std::vector<lease_type> leases_{};
    std::vector<outcome> told_{};
    machine machine_;
};

} // namespace

TEST_CASE("waiters: served in order, and nobody waits for what is there") {
    const bool holds = rc::check([] {
        for (int lives = 0; lives < 5; ++lives) {
            const auto limit = *rc::gen::element<std::size_t>(1, 2, 3, railmq::unlimited);
            const auto steps = *rc::gen::resize(
                150,
                rc::gen::container<std::vector<step>>(rc::gen::apply(
                    [](int what, int a, int b) {
                        return step{what, a, b};
                    },
                    rc::gen::inRange(0, 16),
                    rc::gen::inRange(0, 1'000),
                    rc::gen::inRange(0, 1'000))));
            world w{limit};
            w.run({10, 1, 0});
            w.run({10, 0, 1});
            for (const step& s : steps) {
                w.run(s);
            }
        }
    });
    CHECK(holds);
}
