// SPDX-License-Identifier: BSL-1.0
//
// Reliability F14: what users bring (copies, moves, codecs, predicates, handlers, observers) throws
// at its Nth call, for every N until there is no such call. Whatever was accepted is in one place
// and is whole; the books balance; in a directory the same is there after the process has ended.
#include <railmq/broker.hpp>
#include <railmq/storage/simulated_disk.hpp>
#include <railmq/subscription.hpp>

#include "conformance/balance.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::storage::simulated_disk;
using railmq::test::imbalance;

namespace {

struct thrown : std::runtime_error {
    thrown()
        : std::runtime_error{"by the test"} {}
};

/// Calls of what users bring.
struct calls {
    std::uint64_t left = 0; ///< Until one throws; 0: none does.
    bool has_thrown = false;
    std::int64_t alive = 0;

    void count() {
        if (left != 0 && --left == 0) {
            has_thrown = true;
            throw thrown{};
        }
    }
};
calls user;

/// A value that owns memory, and whose copies throw; its moves too, where it says so.
template <bool MovesThrow>
struct fussy {
    explicit fussy(int n)
        : number{std::make_unique<int>(n)} {
        ++user.alive;
    }
    fussy(const fussy& other) {
        user.count();
        number = std::make_unique<int>(other.value());
        ++user.alive;
    }
    fussy(fussy&& other) noexcept(!MovesThrow) {
        if constexpr (MovesThrow) {
            user.count();
        }
        number = std::move(other.number);
        ++user.alive;
    }
    fussy& operator=(const fussy&) = delete;
    fussy& operator=(fussy&&) = delete;
    ~fussy() { --user.alive; }

    /// -1: it was moved from.
    [[nodiscard]] int value() const noexcept { return number == nullptr ? -1 : *number; }

    std::unique_ptr<int> number{};
};

} // namespace

template <bool MovesThrow>
struct railmq::codec<fussy<MovesThrow>> {
    static void encode(const fussy<MovesThrow>& v, std::vector<std::byte>& out) {
        out.push_back(std::byte{0x7f}); // what was begun must not be believed
        user.count();
        out.push_back(static_cast<std::byte>(v.value()));
    }
    [[nodiscard]] static std::optional<fussy<MovesThrow>> decode(std::span<const std::byte> in) {
        user.count();
        if (in.size() != 2 || in[0] != std::byte{0x7f}) {
            return std::nullopt;
        }
        return std::optional<fussy<MovesThrow>>{std::in_place, static_cast<int>(in[1])};
    }
    [[nodiscard]] static std::string name() { return "fussy"; }
};

namespace {

/// A broker in memory or on a disk, with three messages in a queue, and what is known of them.
template <class T>
struct world {
    explicit world(bool durable)
        : is_durable{durable} {
        open();
        for (int n = 1; n <= 3; ++n) {
            send(n);
        }
    }
    void open() {
        if (is_durable) {
            broker.emplace(sim, disk.directory(), options);
        } else {
            broker.emplace(sim, options);
        }
    }
    [[nodiscard]] railmq::sim_queue<T> queue(const std::string& name = "q") {
        return broker->template queue<T>(
            name, {.retry = {.max_attempts = 3, .backoff = railmq::constant_backoff{.delay = 1s}}});
    }
    void send(int n) {
        maybe.push_back(n);
        queue().producer().send(T{n});
        sure.push_back(n);
    }
    /// How often each number is there, in whatever queue.
    [[nodiscard]] std::map<int, int> found() {
        std::map<int, int> all;
        for (const std::string& name : broker->names()) {
            if (name.ends_with(".undecodable")) {
                for (const auto& m : broker->template queue<railmq::bytes>(name).peek(100)) {
                    ++all[static_cast<int>(m.value.span()[1])];
                }
                continue;
            }
            auto q = broker->template queue<T>(name);
            INFO(name);
            CHECK(imbalance(q) == "");
            for (const auto& m : q.peek(100)) {
                ++all[m.value.value()];
            }
        }
        return all;
    }
    void check() {
        // Whatever is held or waits comes back, or dies where it can be seen.
        sim.advance(10min);
        const auto all = found();
        for (const auto& [number, times] : all) {
            INFO("message " << number);
            CHECK(times == 1);
            CHECK(std::count(maybe.begin(), maybe.end(), number) == 1);
        }
        for (const int n : sure) {
            INFO("message " << n);
            CHECK(all.count(n) == 1);
        }
        if (!is_durable) {
            return;
        }
        broker->sync();
        disk.end_process();
        broker.reset();
        open();
        for (const std::string& name : broker->names()) {
            if (!name.ends_with(".undecodable")) {
                (void)broker->template queue<T>(name); // its messages are read
            }
        }
        sim.advance(10min);
        CHECK(found() == all);
    }

    bool is_durable;
    railmq::broker_options options{.observer = [](const railmq::notice&) { user.count(); }};
    railmq::simulation sim{1};
    simulated_disk disk{1};
    std::optional<railmq::sim_broker> broker{};
    std::vector<int> sure{};   ///< Sent, and nobody has said that they are done with.
    std::vector<int> maybe{};  ///< Sent, or a send of which has thrown.
    bool is_committed = false; ///< A transaction.
};

template <class T>
struct scenario {
    std::string name;
    std::function<void(world<T>&)> run;
};

template <class T>
std::vector<scenario<T>> scenarios() {
    using w_type = world<T>;
    const auto batch = [](w_type& w) {
        std::vector<T> all;
        const std::uint64_t left = std::exchange(user.left, 0); // making them is not looked at
        all.reserve(4);
        for (int n = 10; n != 14; ++n) {
            all.emplace_back(n);
            w.maybe.push_back(n);
        }
        user.left = left;
        return all;
    };
    const auto done = [](w_type& w, int n) {
        w.sure.erase(std::remove(w.sure.begin(), w.sure.end(), n), w.sure.end());
    };
    return {
        {"send", [](w_type& w) { w.send(9); }},
        {"send with properties",
         [](w_type& w) {
             w.maybe.push_back(9);
             w.queue().producer().send(T{9}, {.key = "k", .delay = 1s});
             w.sure.push_back(9);
         }},
        {"a batch that is copied",
         [=](w_type& w) {
             const auto all = batch(w);
             w.queue().producer().send_batch(all);
             w.sure.insert(w.sure.end(), {10, 11, 12, 13});
         }},
        {"a batch that is moved",
         [=](w_type& w) {
             w.queue().producer().send_batch(batch(w));
             w.sure.insert(w.sure.end(), {10, 11, 12, 13});
         }},
        {"to a receiver that waits",
         [=](w_type& w) {
             auto q = w.queue("other");
             auto c = q.consumer();
             w.sim.async_wait(1s, [&w, q](error_code) {
                 w.maybe.push_back(9);
                 q.producer().send(T{9});
                 w.sure.push_back(9);
             });
             (void)c.receive(5s);
         }},
        {"take",
         [=](w_type& w) {
             auto d = w.queue().consumer().try_receive();
             const int n = d->value().value();
             done(w, n);
             const T taken = d->take();
             CHECK(taken.value() == n);
         }},
        {"acknowledge",
         [=](w_type& w) {
             auto c = w.queue().consumer();
             auto all = c.receive_batch(2, 0s);
             for (const auto& d : all) {
                 done(w, d.value().value());
             }
             railmq::ack_all(all);
         }},
        {"reject", [](w_type& w) { (void)w.queue().consumer().try_receive()->reject("no"); }},
        {"reject what somebody reads",
         [](w_type& w) {
             auto c = w.queue().consumer();
             auto first = c.try_receive();
             w.sim.advance(31s); // lost, and the handle is still there
             auto again = c.try_receive();
             (void)again->reject("no");
             CHECK(first->value().value() != -1);
         }},
        {"fail until it is dead",
         [](w_type& w) {
             for (int i = 0; i != 3; ++i) {
                 if (auto d = w.queue().consumer().try_receive()) {
                     (void)d->nack();
                 }
                 w.sim.advance(2s);
             }
         }},
        {"redrive",
         [](w_type& w) {
             (void)w.queue().consumer().try_receive()->reject();
             auto to = w.queue();
             (void)w.broker->template queue<T>("q.dead").redrive(to, {}, [](const T&) {
                 user.count();
                 return true;
             });
         }},
        {"look",
         [](w_type& w) {
             for (const auto& m : w.queue().peek(3)) {
                 CHECK(m.value.value() != -1);
             }
         }},
        {"transaction",
         [=](w_type& w) {
             auto c = w.queue().consumer();
             auto p = w.queue("other").producer();
             auto d = c.try_receive();
             const int n = d->value().value();
             auto t = w.broker->begin();
             auto log = w.broker->template log<T>("l");
             auto to_log = log.producer();
             const struct whole {
                 const decltype(log)& of;
                 const bool& is_done;
                 ~whole() { CHECK(of.end_offset(0) == (is_done ? 2 : 0)); }
             } check{log, w.is_committed};
             if constexpr (std::is_nothrow_move_constructible_v<T>) {
                 w.maybe.insert(w.maybe.end(), {20, 21});
                 t.send(p, T{20});
                 t.send(to_log, T{30});
                 t.send(p, T{21});
                 t.send(to_log, "k", T{31});
             }
             t.ack(*d);
             done(w, n); // where the commit throws, nobody knows
             t.commit();
             if constexpr (std::is_nothrow_move_constructible_v<T>) {
                 w.is_committed = true;
                 w.sure.insert(w.sure.end(), {20, 21});
             }
         }},
        {"handlers",
         [=](w_type& w) {
             auto q = w.queue();
             for (const int n : {1, 2, 3}) {
                 done(w, n);
             }
             auto s = q.subscribe(w.sim.get_executor(), [](const T& v) {
                 CHECK(v.value() != -1);
                 user.count();
             });
             w.sim.advance(10s);
         }},
        {"reopen",
         [](w_type& w) {
             if (w.is_durable) {
                 w.broker.reset();
                 w.open();
                 (void)w.queue();
             }
         }},
    };
}

template <class T>
void all_scenarios() {
    for (const auto& s : scenarios<T>()) {
        for (const bool durable : {false, true}) {
            std::uint64_t nth = 1;
            for (;; ++nth) {
                INFO(
                    s.name << (durable ? " in a journal" : " in memory") << ", call " << nth
                           << " throws");
                user = {};
                {
                    world<T> w{durable};
                    user.left = nth;
                    try {
                        s.run(w);
                    } catch (const thrown&) {
                    } catch (const railmq::system_error&) {
                        // A codec that throws is told as an error.
                    }
                    user.left = 0;
                    w.check();
                }
                CHECK(user.alive == 0);
                if (!user.has_thrown) {
                    break;
                }
                REQUIRE(nth < 1000);
            }
        }
    }
}

} // namespace

TEST_CASE("[F14] values whose copies and codecs throw: nothing is lost, nothing is there twice") {
    all_scenarios<fussy<false>>();
}

TEST_CASE("[F14] values whose moves throw as well") {
    all_scenarios<fussy<true>>();
}
