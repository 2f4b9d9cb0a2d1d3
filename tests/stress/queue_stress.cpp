// SPDX-License-Identifier: BSL-1.0
//
// Eight threads do everything at once to one queue: send, receive, acknowledge, fail, give back,
// close consumers, purge, pause, peek. Afterwards the books must balance, message by message: each
// accepted one was acknowledged once, or is a dead letter, or was purged, dropped or expired, or
// is still there. Meant to run under a thread sanitizer as well; the number of steps is fixed.
#include <railmq/railmq.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <ranges>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::error_code;
using railmq::random_engine;
using railmq::uniform_below;

namespace {

// Three kinds of payload: one that needs no end, one that owns memory, one that cannot be copied.

struct number {
    std::uint64_t value;
};
using text = std::string;
using unique = std::unique_ptr<std::uint64_t>;

template <class T>
T make(std::uint64_t n) {
    if constexpr (std::is_same_v<T, text>) {
        return "a message that is too long for the small string, number " + std::to_string(n);
    } else if constexpr (std::is_same_v<T, unique>) {
        return std::make_unique<std::uint64_t>(n);
    } else {
        return T{n};
    }
}
std::uint64_t number_of(const number& m) { return m.value; }
std::uint64_t number_of(const text& m) { return std::stoull(m.substr(m.rfind(' '))); }
std::uint64_t number_of(const unique& m) { return *m; }

/// What is known of every message from outside the broker.
class books {
public:
    explicit books(std::size_t messages) : rows_(messages) {}

    void accepted(std::uint64_t n) { rows_.at(n).accepted.store(true); }
    void acked(std::uint64_t n) { rows_.at(n).acked.fetch_add(1); }
    void dead(std::uint64_t n) { rows_.at(n).dead.fetch_add(1); }
    /// A hand-out; no two may have the same count.
    void handed_out(std::uint64_t n, std::uint32_t delivery_count) {
        if (delivery_count == 0 || delivery_count > 64) {
            return;
        }
        const std::uint64_t bit = std::uint64_t{1} << (delivery_count - 1);
        if ((rows_.at(n).seen.fetch_or(bit) & bit) != 0) {
            repeated_hand_outs_.fetch_add(1);
        }
    }
    void wrong() { wrong_.fetch_add(1); }

    struct sums {
        std::uint64_t accepted = 0;
        std::uint64_t acked = 0;
        std::uint64_t dead = 0;
        std::uint64_t vanished = 0; ///< Neither acknowledged nor a dead letter.
        std::uint64_t twice = 0;    ///< Left in two ways.
        std::uint64_t invented = 0; ///< Never accepted, and yet there.
    };
    [[nodiscard]] sums add_up() const {
        sums s;
        for (const row& r : rows_) {
            const std::uint32_t left = r.acked.load() + r.dead.load();
            s.accepted += r.accepted ? 1 : 0;
            s.acked += r.acked.load();
            s.dead += r.dead.load();
            s.vanished += r.accepted && left == 0 ? 1 : 0;
            s.twice += left > 1 ? 1 : 0;
            s.invented += !r.accepted && (left != 0 || r.seen.load() != 0) ? 1 : 0;
        }
        return s;
    }
    [[nodiscard]] std::uint64_t repeated_hand_outs() const { return repeated_hand_outs_.load(); }
    [[nodiscard]] std::uint64_t wrongs() const { return wrong_.load(); }

private:
    struct row {
        std::atomic<bool> accepted{false};
        std::atomic<std::uint32_t> acked{0};
        std::atomic<std::uint32_t> dead{0};
        std::atomic<std::uint64_t> seen{0};
    };
    std::vector<row> rows_;
    std::atomic<std::uint64_t> repeated_hand_outs_{0};
    std::atomic<std::uint64_t> wrong_{0};
};

struct plan {
    railmq::queue_options queue{};
    railmq::broker_options broker{};
    bool purges = true;
    bool pauses = true;
    bool uses_properties = true;
    bool single_active = false;
    std::uint64_t seed = 0;
};

/// Half a second or so under a sanitizer.
constexpr std::uint64_t messages_per_sender = 700;
constexpr std::uint64_t senders = 3;

template <class T>
class storm {
public:
    using queue_type = railmq::queue<T>;
    using delivery_type = railmq::delivery<T>;

    explicit storm(plan p)
        : plan_{std::move(p)}
        , broker_{plan_.broker}
        , queue_{broker_.queue<T>("stress", plan_.queue)}
        , books_{senders * messages_per_sender} {}

    void run() {
        std::vector<std::thread> threads;
        std::atomic<std::uint64_t> busy{senders + 1};
        for (std::uint64_t k = 0; k < senders; ++k) {
            threads.emplace_back([this, k, &busy] {
                send(k);
                busy.fetch_sub(1);
            });
        }
        threads.emplace_back([this, &busy] {
            come_and_go();
            busy.fetch_sub(1);
        });
        for (std::uint64_t k = 0; k < 3; ++k) {
            threads.emplace_back([this, k, &busy] { receive(k, busy); });
        }
        threads.emplace_back([this, &busy] { administer(busy); });
        for (auto& t : threads) {
            t.join();
        }
        settle_accounts();
    }

private:
    [[nodiscard]] random_engine engine(std::uint64_t n) const {
        return random_engine{railmq::test::seed(plan_.seed * 100 + n)};
    }
    static bool chance(random_engine& random, std::uint64_t percent) {
        return uniform_below(random, 100) < percent;
    }

    [[nodiscard]] railmq::properties some_properties(random_engine& random) const {
        railmq::properties p;
        p.key = "key" + std::to_string(uniform_below(random, 5));
        if (chance(random, 10)) {
            p.delay = std::chrono::microseconds{uniform_below(random, 2'000)};
        }
        if (chance(random, 10)) {
            p.time_to_live = std::chrono::microseconds{uniform_below(random, 3'000)};
        }
        return p;
    }

    void send(std::uint64_t k) {
        random_engine random = engine(k);
        auto producer = queue_.producer();
        std::uint64_t n = k * messages_per_sender;
        const std::uint64_t end = n + messages_per_sender;
        while (n < end) {
            error_code ec;
            const std::uint64_t way = uniform_below(random, 100);
            if (way < 40) {
                producer.send(make<T>(n), ec);
            } else if (way < 55) {
                producer.try_send(make<T>(n), ec);
            } else if (way < 65) {
                producer.send_for(make<T>(n), 200us, ec);
            } else if (way < 85 && plan_.uses_properties) {
                producer.send(make<T>(n), some_properties(random), ec);
            } else {
                std::vector<T> several;
                for (std::uint64_t i = n; i < std::min(end, n + 5); ++i) {
                    several.push_back(make<T>(i));
                }
                const std::size_t sent = producer.send_batch(
                    std::ranges::subrange(
                        std::make_move_iterator(several.begin()),
                        std::make_move_iterator(several.end())),
                    ec);
                for (std::size_t i = 0; i < sent; ++i) {
                    books_.accepted(n++);
                }
                n += ec ? 1 : 0;
                continue;
            }
            if (!ec) {
                books_.accepted(n);
            }
            ++n;
        }
    }

    /// Looks at a delivery, and remembers what it saw.
    std::uint64_t look(const delivery_type& d) {
        const std::uint64_t n = number_of(d.value());
        books_.handed_out(n, d.delivery_count());
        (void)d.properties().key;
        (void)d.enqueued_at();
        return n;
    }

    void settle(delivery_type d, random_engine& random, std::vector<delivery_type>& kept) {
        const std::uint64_t n = number_of(d.value());
        const std::uint64_t way = uniform_below(random, 100);
        if (way < 45) {
            if (d.ack()) books_.acked(n);
        } else if (way < 53) {
            (void)d.nack();
        } else if (way < 58) {
            (void)d.nack(std::chrono::microseconds{uniform_below(random, 1'500)});
        } else if (way < 63) {
            (void)d.release();
        } else if (way < 65) {
            (void)d.reject("no");
        } else if (way < 68) {
            (void)d.stop_token().stop_requested();
            (void)d.ack_deadline();
            (void)d.first_delivered_at();
            (void)d.failure_count();
            (void)d.extend(2ms);
            if (d.ack()) books_.acked(n);
        } else if (way < 75) {
            try {
                if (number_of(d.take()) != n) books_.wrong();
                books_.acked(n);
            } catch (const railmq::system_error&) {
                // The lease was lost, or an old handle reads what cannot be copied.
            }
        } else if (way < 80) {
            delivery_type dropped{std::move(d)};
        } else {
            kept.push_back(std::move(d));
        }
    }

    /// Settles what was kept, most of it after its deadline.
    void settle_kept(random_engine& random, std::vector<delivery_type>& kept) {
        for (auto& d : kept) {
            const std::uint64_t n = number_of(d.value());
            if (chance(random, 70)) {
                if (d.ack()) {
                    books_.acked(n);
                } else if (number_of(d.value()) != n) {
                    books_.wrong(); // it stays readable until the handle goes
                }
            } else if (chance(random, 50)) {
                (void)d.reject();
            }
        }
        kept.clear();
    }

    void receive(std::uint64_t k, const std::atomic<std::uint64_t>& busy) {
        random_engine random = engine(10 + k);
        auto consumer = queue_.consumer(
            {.prefetch = 5 + uniform_below(random, 20),
             .priority = static_cast<std::int32_t>(uniform_below(random, 2)),
             .single_active = plan_.single_active});
        std::vector<delivery_type> kept;
        std::vector<delivery_type> batch;
        for (int idle = 0; busy.load() != 0 || idle < 20;) {
            std::size_t got = 0;
            if (chance(random, 30)) {
                got = consumer.receive_batch(batch, 1 + uniform_below(random, 8), 300us);
                for (const auto& d : batch) {
                    look(d);
                }
                if (chance(random, 30)) {
                    std::vector<std::uint64_t> numbers;
                    for (const auto& d : batch) {
                        numbers.push_back(number_of(d.value()));
                    }
                    // Which of them were still ours is not told, but if all were: all are done.
                    if (numbers.size() == 1) {
                        if (railmq::ack_all(batch) == 1) books_.acked(numbers.front());
                    } else {
                        for (std::size_t i = 0; i < batch.size(); ++i) {
                            if (batch[i].ack()) books_.acked(numbers[i]);
                        }
                    }
                } else {
                    for (auto& d : batch) {
                        settle(std::move(d), random, kept);
                    }
                }
                batch.clear();
            } else {
                auto d = chance(random, 30) ? consumer.try_receive() : consumer.receive(300us);
                if (d) {
                    got = 1;
                    look(*d);
                    settle(std::move(*d), random, kept);
                }
            }
            if (got == 0 || kept.size() > 4) {
                settle_kept(random, kept);
            }
            idle = got == 0 ? idle + 1 : 0;
            if (chance(random, 2)) {
                consumer.prefetch(1 + uniform_below(random, 20));
            }
        }
        settle_kept(random, kept);
    }

    /// Consumers that come, take a few, and go while they hold them.
    void come_and_go() {
        random_engine random = engine(20);
        for (int round = 0; round < 150; ++round) {
            auto consumer =
                queue_.consumer({.prefetch = 4, .priority = 1, .single_active = plan_.single_active});
            std::vector<delivery_type> held;
            consumer.receive_batch(held, 4, 100us);
            std::vector<std::uint64_t> numbers;
            for (const auto& d : held) {
                numbers.push_back(look(d));
            }
            const std::uint64_t way = uniform_below(random, 5);
            if (way == 0) {
                consumer.cancel();
            } else if (way == 1) {
                consumer.close();
            } else if (way == 2) {
                consumer = queue_.consumer({.single_active = plan_.single_active});
            } else if (way == 3) {
                consumer.pause();
                (void)consumer.try_receive();
                consumer.resume();
            }
            for (std::size_t i = 0; i < held.size(); ++i) {
                if (chance(random, 50)) {
                    if (held[i].ack()) books_.acked(numbers[i]);
                }
            }
            if (way == 4) {
                held.clear();
                (void)consumer.close(railmq::drain_for{1ms});
            }
        }
    }

    void administer(const std::atomic<std::uint64_t>& busy) {
        random_engine random = engine(30);
        while (busy.load() != 0) {
            const std::uint64_t way = uniform_below(random, 100);
            if (way < 40) {
                const railmq::queue_stats s = queue_.stats();
                if (s.settled_through > s.accepted + s.expired) books_.wrong();
            } else if (way < 50) {
                if constexpr (std::is_copy_constructible_v<T>) {
                    for (const auto& p : queue_.peek(3)) {
                        (void)number_of(p.value);
                    }
                }
            } else if (way < 53 && plan_.purges) {
                queue_.purge();
            } else if (way < 58 && plan_.pauses) {
                queue_.pause();
                (void)queue_.is_paused();
                queue_.resume();
            } else if (way < 60 && plan_.pauses) {
                (void)queue_.pause(railmq::drain_for{500us});
                queue_.resume();
            } else if (way < 65) {
                (void)broker_.stats();
                (void)broker_.names();
            }
            std::this_thread::yield();
        }
    }

    void settle_accounts() {
        queue_.resume();
        {
            auto last = queue_.consumer({.single_active = plan_.single_active});
            while (auto d = last.receive(20ms)) {
                const std::uint64_t n = look(*d);
                if (d->ack()) books_.acked(n);
            }
        }
        const railmq::queue_stats s = queue_.stats();
        INFO(
            "ready " << s.ready << " delayed " << s.delayed << " in flight " << s.in_flight
                     << " accepted " << s.accepted << " acked " << s.acked << " dead "
                     << s.dead_lettered << " expired " << s.expired << " dropped " << s.dropped
                     << " purged " << s.purged);
        CHECK(
            s.accepted == s.ready + s.delayed + s.in_flight + s.acked + s.dead_lettered +
                              s.redriven + s.expired + s.dropped + s.purged);
        CHECK(s.in_flight == 0);
        CHECK(s.ready == 0);
        CHECK(s.delayed == 0);
        CHECK(s.waiting_receivers == 0);
        CHECK(s.waiting_senders == 0);
        CHECK(s.consumers == 0);
        if (auto dead = broker_.find_queue<T>("stress.dead")) {
            auto reader = dead->consumer();
            while (auto d = reader.try_receive()) {
                books_.dead(number_of(d->value()));
                (void)d->ack();
            }
        }
        const books::sums sums = books_.add_up();
        CHECK(sums.accepted == s.accepted);
        CHECK(sums.acked == s.acked);
        CHECK(sums.dead == s.dead_lettered);
        CHECK(sums.vanished == s.purged + s.dropped + s.expired + s.ready + s.delayed);
        CHECK(sums.twice == 0);
        CHECK(sums.invented == 0);
        CHECK(books_.repeated_hand_outs() == 0);
        CHECK(books_.wrongs() == 0);
    }

    plan plan_;
    railmq::broker broker_;
    queue_type queue_;
    books books_;
};

/// Failures come back soon, and die soon; leases end within a millisecond.
railmq::queue_options hasty() {
    railmq::queue_options o;
    o.ack_timeout = 1ms;
    o.retry.max_attempts = 5;
    o.retry.backoff = railmq::exponential_backoff{
        .initial = 100us, .multiplier = 2, .max = 1ms, .jitter = railmq::jitter::full};
    return o;
}

template <class T>
void blow(plan p) {
    static std::uint64_t round = 0;
    p.seed = ++round;
    storm<T>{std::move(p)}.run();
}

} // namespace

TEST_CASE("stress: an unlimited queue") {
    SECTION("numbers") { blow<number>({.queue = hasty()}); }
    SECTION("strings") { blow<text>({.queue = hasty()}); }
    SECTION("what cannot be copied") { blow<unique>({.queue = hasty()}); }
}

TEST_CASE("stress: the fast lane alone, long leases") {
    plan p{.queue = hasty(), .purges = false, .pauses = false, .uses_properties = false};
    p.queue.ack_timeout = 10s;
    SECTION("numbers") { blow<number>(std::move(p)); }
    SECTION("strings") { blow<text>(std::move(p)); }
}

TEST_CASE("stress: a small queue, senders wait") {
    plan p{.queue = hasty()};
    p.queue.max_length = 8;
    SECTION("numbers, parked at once") {
        p.broker.park_after = {};
        blow<number>(std::move(p));
    }
    SECTION("strings") { blow<text>(std::move(p)); }
    SECTION("strings, by bytes") {
        p.queue.max_length = railmq::unlimited;
        p.queue.max_bytes = 600;
        blow<text>(std::move(p));
    }
    SECTION("what cannot be copied, one at a time") {
        p.queue.max_length = 1;
        blow<unique>(std::move(p));
    }
}

TEST_CASE("stress: a small queue that refuses or drops") {
    plan p{.queue = hasty()};
    p.queue.max_length = 16;
    SECTION("refuses") {
        p.queue.overflow = railmq::overflow_policy::reject;
        blow<text>(std::move(p));
    }
    SECTION("drops the oldest into the dead-letter queue") {
        p.queue.overflow = railmq::overflow_policy::drop_oldest;
        blow<text>(std::move(p));
    }
    SECTION("drops the oldest for good") {
        p.queue.overflow = railmq::overflow_policy::drop_oldest;
        p.queue.dead_letter = railmq::discard;
        blow<number>(std::move(p));
    }
}

TEST_CASE("stress: order") {
    plan p{.queue = hasty()};
    SECTION("by key") {
        p.queue.order = railmq::delivery_order::by_key;
        blow<text>(std::move(p));
    }
    SECTION("strict") {
        p.queue.order = railmq::delivery_order::strict;
        blow<number>(std::move(p));
    }
    SECTION("one active consumer") {
        p.single_active = true;
        blow<number>(std::move(p));
    }
    SECTION("returned to the front") {
        p.queue.requeue = railmq::requeue_position::front;
        blow<text>(std::move(p));
    }
    SECTION("returned to the back") {
        p.queue.requeue = railmq::requeue_position::back;
        p.queue.max_length = 32;
        blow<number>(std::move(p));
    }
}

TEST_CASE("stress: every message expires soon") {
    plan p{.queue = hasty()};
    p.queue.time_to_live = 500us;
    SECTION("into the dead-letter queue") { blow<text>(std::move(p)); }
    SECTION("for good") {
        p.queue.dead_letter = railmq::discard;
        blow<unique>(std::move(p));
    }
}

TEST_CASE("stress: watched, so that every call takes the lock") {
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> acked{0};
    plan p{.queue = hasty()};
    p.broker.observer = [&](const railmq::notice& n) {
        sent += std::holds_alternative<railmq::notices::sent>(n) ? 1 : 0;
        acked += std::holds_alternative<railmq::notices::acked>(n) ? 1 : 0;
    };
    blow<text>(std::move(p));
    CHECK(sent.load() != 0);
    CHECK(acked.load() != 0);
}
