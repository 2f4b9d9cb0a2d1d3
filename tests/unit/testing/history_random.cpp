// SPDX-License-Identifier: BSL-1.0
//
// An honest queue, a few lines long, is used by chance and killed by chance: whatever it does is
// judged to be good. Then one event of its history is changed so that it cannot be true, and that
// is found.
#include <railmq/model/random.hpp>
#include <railmq/testing/history_check.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"
#include "unit/testing/events.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace railmq::test::events;
using railmq::death_reason;
using railmq::duration;
using railmq::testing::check;
using railmq::testing::history_rules;
using railmq::testing::violation;
using railmq::testing::violation_kind;

namespace {

constexpr std::uint32_t max_attempts = 3;
constexpr std::uint32_t max_crashes = 2;

class honest_queue {
public:
    honest_queue(std::uint64_t seed, bool may_crash)
        : random_{seed}
        , may_crash_{may_crash} {}

    [[nodiscard]] std::vector<event> run(int steps) {
        for (int n = 0; n < steps; ++n) {
            step();
        }
        expire();
        for (std::uint64_t who = 1; who <= 3; ++who) {
            close_consumer(who + 10 * life_);
        }
        for (auto& [id, m] : waiting_) {
            note(with_id(id, left(m.number)));
        }
        for (const std::uint64_t number : dead_) {
            note(in("q.dead", left(number)));
        }
        return std::move(events_);
    }

private:
    struct message {
        std::uint64_t number = 0;
        std::uint32_t deliveries = 0;
        std::uint32_t failures = 0;
        std::uint32_t crashes = 0;
        duration ready_at{};
        std::uint64_t holder = 0; ///< 0: nobody.
        duration deadline{};
    };
    using entry = std::map<std::uint64_t, message>::iterator;

    [[nodiscard]] std::uint64_t below(std::uint64_t n) { return railmq::uniform_below(random_, n); }
    void note(event e) { events_.push_back(std::move(e)); }

    void step() {
        now_ += std::chrono::milliseconds(below(1'000));
        expire();
        switch (below(12)) {
        case 0:
        case 1:
        case 2: send(); break;
        case 3:
        case 4:
        case 5:
        case 6: receive(1 + below(3) + 10 * life_); break;
        case 7:
        case 8:
        case 9: settle(); break;
        case 10: close_consumer(1 + below(3) + 10 * life_); break;
        case 11: rarely(); break;
        }
    }
    void rarely() {
        switch (below(8)) {
        case 0:
            now_ += 40s;
            expire();
            break;
        case 1:
            if (may_crash_) {
                crash();
            }
            break;
        case 2: reopen_in_order(); break;
        default: break;
        }
    }

    void send() {
        const std::uint64_t number = ++numbers_;
        event e = send_begun(number, now_);
        message m{.number = number};
        if (below(4) == 0) {
            m.ready_at = now_ + std::chrono::milliseconds(below(5'000));
            e = ready(m.ready_at, e);
        }
        note(e);
        const std::uint64_t luck = below(10);
        if (luck != 0) { // else it failed, or nobody knows and it is not there
            const std::uint64_t id = ids_++;
            waiting_.emplace(id, m);
            e.id = luck != 1 ? std::optional{id} : std::nullopt;
        }
        e.kind = luck > 1                     ? event_kind::send_confirmed
                 : luck == 1 || below(2) == 0 ? event_kind::send_unknown
                                              : event_kind::send_failed;
        note(e);
    }
    void receive(std::uint64_t consumer) {
        const auto next = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& m) {
            return m.second.holder == 0 && m.second.ready_at <= now_;
        });
        if (next == waiting_.end()) {
            return;
        }
        message& m = next->second;
        m.holder = consumer;
        held_.insert(next->first);
        m.deadline = now_ + 30s;
        note(with_failures(
            m.failures, with_id(next->first, out(m.number, consumer, ++m.deliveries, now_))));
        undoable_.erase(m.number);
    }
    [[nodiscard]] std::vector<entry> held() {
        std::vector<entry> all;
        for (const std::uint64_t id : held_) {
            all.push_back(waiting_.find(id));
        }
        return all;
    }
    std::uint64_t let_go(entry i) {
        held_.erase(i->first);
        return std::exchange(i->second.holder, 0);
    }
    void settle() {
        const auto all = held();
        if (all.empty()) {
            return;
        }
        const entry i = all[below(all.size())];
        message& m = i->second;
        const std::uint64_t who = let_go(i);
        switch (below(6)) {
        case 0:
            m.ready_at = now_ + 2s;
            note(nack(m.number, who, now_, m.ready_at));
            fail(i);
            break;
        case 1: note(release(m.number, who, now_)); break;
        case 2:
            note(reject(m.number, who, now_));
            die(i, death_reason::rejected);
            break;
        default:
            note(ack(m.number, who, now_));
            undoable_.emplace(m.number, *i);
            waiting_.erase(i);
            break;
        }
    }
    void fail(entry i) {
        if (++i->second.failures == max_attempts) {
            die(i, death_reason::max_attempts);
        }
    }
    void die(entry i, death_reason why) {
        note(with_failures(i->second.failures, dead(i->second.number, why, now_)));
        dead_.push_back(i->second.number);
        waiting_.erase(i);
    }
    void expire() {
        for (const entry i : held()) {
            if (i->second.deadline <= now_) {
                if (below(2) == 0) { // a test does not see all of them
                    note(expired(i->second.number, i->second.deadline));
                }
                let_go(i);
                fail(i);
            }
        }
    }
    void close_consumer(std::uint64_t who) {
        note(consumer_closed(who, now_));
        for (const entry i : held()) {
            if (i->second.holder == who) {
                let_go(i);
            }
        }
    }
    void crash() {
        note(crashed(now_));
        ++life_;
        for (auto& [number, m] : undoable_) {
            if (below(2) == 0) { // its ack was not on the disk yet
                waiting_.insert(m);
                held_.insert(m.first);
            }
        }
        undoable_.clear();
        now_ += 1s;
        note(reopened(now_));
        for (const entry i : held()) {
            let_go(i);
            ++i->second.failures;
            ++i->second.crashes;
            if (i->second.failures >= max_attempts) {
                die(i, death_reason::max_attempts);
            } else if (i->second.crashes >= max_crashes) {
                die(i, death_reason::max_crashes);
            }
        }
    }
    void reopen_in_order() {
        note(closed(now_));
        ++life_;
        undoable_.clear();
        for (const entry i : held()) {
            let_go(i);
        }
        note(reopened(now_));
    }

    railmq::random_engine random_;
    bool may_crash_;
    duration now_{};
    std::uint64_t numbers_ = 0;
    std::uint64_t ids_ = 0;
    std::uint64_t life_ = 0;
    std::map<std::uint64_t, message> waiting_{}; ///< By id.
    std::set<std::uint64_t> held_{};
    std::vector<std::uint64_t> dead_{};
    /// Acked in this life of the process, by number.
    std::map<std::uint64_t, std::pair<std::uint64_t, message>> undoable_{};
    std::vector<event> events_{};
};

history_rules rules() {
    history_rules r;
    r.queues["q"] = {.max_attempts = max_attempts, .max_crashes = max_crashes};
    return r;
}

/// A change that makes a history untrue, and how.
struct lie {
    const char* name;
    violation_kind fault;
    /// Whether it can be told of event `i`, for certain.
    std::function<bool(const std::vector<event>&, std::size_t i)> fits;
    std::function<void(std::vector<event>&, std::size_t i)> tell;
};

bool is(const event& e, event_kind kind) {
    return e.kind == kind && e.queue == "q";
}
auto every(event_kind kind) {
    return [kind](const std::vector<event>& h, std::size_t i) { return is(h[i], kind); };
}
bool none_after(const std::vector<event>& h, std::size_t i, event_kind kind) {
    return std::none_of(
        h.begin() + static_cast<std::ptrdiff_t>(i) + 1, h.end(), [&](const event& e) {
            return e.kind == kind;
        });
}
bool any_of_message(const std::vector<event>& h, std::size_t i, event_kind kind) {
    return std::any_of(h.begin(), h.end(), [&](const event& e) {
        return e.kind == kind && e.message == h[i].message;
    });
}
void insert_after(std::vector<event>& h, std::size_t i, event e) {
    h.insert(h.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(e));
}
/// The hand-out of that message that follows at `i`, as the broker would tell it.
event another(const event& e, std::uint32_t count) {
    event more = out(e.message, 99, count, e.at.time_since_epoch());
    more.id = e.id;
    return more;
}

const std::vector<lie>& lies() {
    using kind = violation_kind;
    using events = std::vector<event>;
    static const std::vector<lie> all{
        {"it is not there at the end",
         kind::lost,
         [](const events& h, std::size_t i) {
             // One that was acked, and came back with a crash, might have stayed away.
             return h[i].kind == event_kind::remaining &&
                    any_of_message(h, i, event_kind::send_confirmed) &&
                    !any_of_message(h, i, event_kind::acked);
         },
         [](events& h, std::size_t i) { h.erase(h.begin() + static_cast<std::ptrdiff_t>(i)); }},
        {"nobody sent it",
         kind::invented,
         every(event_kind::handed_out),
         [](events& h, std::size_t i) {
             h[i].message += 1'000'000;
             h[i].id.reset();
         }},
        {"its send failed",
         kind::failed_send_appeared,
         [](const events& h, std::size_t i) {
             return is(h[i], event_kind::send_confirmed) &&
                    any_of_message(h, i, event_kind::handed_out);
         },
         [](events& h, std::size_t i) { h[i].kind = event_kind::send_failed; }},
        {"two have it",
         kind::two_leases,
         every(event_kind::handed_out),
         [](events& h, std::size_t i) {
             insert_after(h, i, another(h[i], h[i].delivery_count + 1));
         }},
        {"it has another id",
         kind::second_copy,
         [](const events& h, std::size_t i) {
             return is(h[i], event_kind::handed_out) &&
                    any_of_message(h, i, event_kind::send_confirmed);
         },
         [](events& h, std::size_t i) { *h[i].id += 1'000'000; }},
        {"its count is too large",
         kind::wrong_delivery_count,
         every(event_kind::handed_out),
         [](events& h, std::size_t i) { ++h[i].delivery_count; }},
        {"its flag is wrong",
         kind::wrong_redelivered,
         every(event_kind::handed_out),
         [](events& h, std::size_t i) { h[i].redelivered = !*h[i].redelivered; }},
        {"its failures are too many",
         kind::wrong_failure_count,
         every(event_kind::handed_out),
         [](events& h, std::size_t i) { *h[i].failure_count += 7; }},
        {"its delay was not over",
         kind::too_early,
         [](const events& h, std::size_t i) {
             return is(h[i], event_kind::send_begun) &&
                    any_of_message(h, i, event_kind::handed_out);
         },
         [](events& h, std::size_t i) {
             const auto first = std::find_if(h.begin(), h.end(), [&](const event& e) {
                 return is(e, event_kind::handed_out) && e.message == h[i].message;
             });
             h[i].ready_at = first->at + 1ns;
         }},
        {"it was acked",
         kind::came_back,
         every(event_kind::acked),
         [](events& h, std::size_t i) { insert_after(h, i, another(h[i], 0)); }},
        {"it was acked, and is there at the end",
         kind::came_back,
         [](const events& h, std::size_t i) {
             return is(h[i], event_kind::acked) && none_after(h, i, event_kind::crashed);
         },
         [](events& h, std::size_t i) { h.push_back(left(h[i].message)); }},
        {"its lease was good",
         kind::lease_cut_short,
         every(event_kind::lease_expired),
         [](events& h, std::size_t i) { h[i].at -= 1ns; }},
        {"its holder was refused",
         kind::refused_holder,
         [](const events& h, std::size_t i) {
             return is(h[i], event_kind::acked) || is(h[i], event_kind::nacked);
         },
         [](events& h, std::size_t i) { h[i].kind = event_kind::refused; }},
        {"somebody else acked it",
         kind::stale_accepted,
         every(event_kind::acked),
         [](events& h, std::size_t i) { h[i].consumer += 1'000; }},
        {"it was acked twice",
         kind::settled_twice,
         every(event_kind::acked),
         [](events& h, std::size_t i) { insert_after(h, i, h[i]); }},
        {"it died in somebody's hands",
         kind::died_in_hand,
         every(event_kind::handed_out),
         [](events& h, std::size_t i) {
             insert_after(
                 h, i, dead(h[i].message, death_reason::rejected, h[i].at.time_since_epoch()));
         }},
        {"it died at its first failure",
         kind::died_early,
         [](const events& h, std::size_t i) {
             const auto first_crash = std::find_if(
                 h.begin(), h.end(), [](const event& e) { return e.kind == event_kind::crashed; });
             return is(h[i], event_kind::dead_lettered) && *h[i].failure_count + 1 < max_attempts &&
                    std::distance(h.begin(), first_crash) > static_cast<std::ptrdiff_t>(i);
         },
         [](events& h, std::size_t i) { h[i].reason = death_reason::max_attempts; }},
        {"it is dead, and where it was",
         kind::in_two_queues,
         [](const events& h, std::size_t i) {
             return h[i].kind == event_kind::remaining && h[i].queue == "q.dead";
         },
         [](events& h, std::size_t i) { insert_after(h, i, left(h[i].message)); }},
        {"it is there twice",
         kind::second_copy,
         every(event_kind::remaining),
         [](events& h, std::size_t i) { insert_after(h, i, h[i]); }},
        {"its id is that of another",
         kind::id_reused,
         every(event_kind::send_confirmed),
         [](events& h, std::size_t i) {
             event other = h[i];
             other.message += 1'000'000;
             insert_after(h, i, other);
         }},
        {"it is received after the end",
         kind::after_the_end,
         [](const events& h, std::size_t i) { return i + 1 == h.size(); },
         [](events& h, std::size_t) {
             h.push_back(closed(3h));
             h.push_back(out(1, 1, 1, 3h));
         }},
    };
    return all;
}

} // namespace

TEST_CASE("history check: whatever an honest queue does is good") {
    for (std::uint64_t n = 0; n < 300; ++n) {
        const auto events = honest_queue{railmq::test::seed(n), n % 2 == 0}.run(400);
        const auto found = check(events, rules());
        INFO("run " << n << "\n" << to_string(found));
        REQUIRE(found.empty());
    }
}

TEST_CASE("history check: one lie in a true history is found, wherever it is told") {
    std::map<std::string, int> told;
    for (std::uint64_t n = 0; n < 60; ++n) {
        const auto events = honest_queue{railmq::test::seed(n), n % 2 == 0}.run(300);
        railmq::random_engine random{railmq::test::seed(1'000 + n)};
        for (const lie& l : lies()) {
            std::vector<std::size_t> places;
            for (std::size_t i = 0; i < events.size(); ++i) {
                if (l.fits(events, i)) {
                    places.push_back(i);
                }
            }
            for (int times = 0; times < 5 && !places.empty(); ++times) {
                const std::size_t i = places[railmq::uniform_below(random, places.size())];
                auto changed = events;
                l.tell(changed, i);
                const auto found = check(changed, rules());
                INFO("run " << n << ", event " << i << ": " << l.name << "\n" << to_string(found));
                REQUIRE(std::any_of(found.begin(), found.end(), [&](const violation& v) {
                    return v.kind == l.fault;
                }));
                ++told[l.name];
            }
        }
    }
    for (const lie& l : lies()) {
        INFO(l.name);
        CHECK(told[l.name] >= 20);
    }
}

TEST_CASE("history check: a long history takes no longer for each event") {
    // Were anything quadratic, this would take minutes.
    const auto events = honest_queue{railmq::test::seed(7), true}.run(100'000);
    CHECK(check(events, rules()).empty());
}
