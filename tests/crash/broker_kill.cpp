// SPDX-License-Identifier: BSL-1.0
//
// F1, F22, F26: a process that uses a broker on real files is killed, again and again. It tells its
// parent through a pipe what it is about to do, what it has done and what was confirmed. The parent
// opens the directory, or lets the next process do so, and what is there has to agree.
#include <railmq/broker.hpp>
#include <railmq/consumer.hpp>
#include <railmq/model/random.hpp>
#include <railmq/producer.hpp>
#include <railmq/transaction.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"
#include "support/seed.hpp"

#include <boost/asio/io_context.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::errc;
using railmq::error_code;

namespace {

// --- What the child tells ---

/// A set of queues in which a message may be.
using places = std::uint32_t;
constexpr places unsent = 1;
constexpr places gone = 2;
constexpr std::array<const char*, 4> names{"a", "b", "a.dead", "b.dead"};
[[nodiscard]] constexpr places bit(std::size_t queue) {
    return places{4} << queue;
}
[[nodiscard]] constexpr std::size_t dead_of(std::size_t queue) {
    return queue + 2;
}

enum class word : std::uint32_t {
    opened,    ///< From now on it works.
    may,       ///< The message may be in that place soon.
    is,        ///< It is there.
    kept,      ///< All that is so far stays so.
    receiving, ///< From that queue.
    handed,    ///< It was given the message, which is in that place.
    together,  ///< If the message is in that place, then the other one is in its own.
};

struct report {
    word what = word::opened;
    places place = 0;
    std::uint64_t message = 0;
    std::uint64_t other = 0;
    places other_place = 0;
    std::uint32_t attempts = 0;
    std::uint32_t failures = 0;
    std::uint32_t spare = 0;
};

class pipe_ends {
public:
    pipe_ends() { REQUIRE(::pipe(ends_.data()) == 0); }
    pipe_ends(const pipe_ends&) = delete;
    pipe_ends& operator=(const pipe_ends&) = delete;
    ~pipe_ends() {
        ::close(ends_[0]);
        close_writer();
    }
    void close_writer() {
        if (ends_[1] != -1) {
            ::close(std::exchange(ends_[1], -1));
        }
    }
    /// Whole or not at all, as it is short; also when the writer is killed.
    void tell(const report& r) const {
        if (::write(ends_[1], &r, sizeof r) != static_cast<::ssize_t>(sizeof r)) {
            ::_exit(3);
        }
    }
    /// False: nobody can write any more.
    [[nodiscard]] bool hear(report& r) const {
        ::ssize_t n = 0;
        do {
            n = ::read(ends_[0], &r, sizeof r);
        } while (n == -1 && errno == EINTR);
        REQUIRE((n == 0 || n == static_cast<::ssize_t>(sizeof r)));
        return n != 0;
    }

private:
    std::array<int, 2> ends_{-1, -1};
};

// --- The broker ---

constexpr std::uint32_t max_crashes = 3;

/// No threads, so that a fork is harmless: its timer is on a context that nobody runs.
[[nodiscard]] railmq::broker_options
options_in(const std::string& path, boost::asio::io_context& context) {
    railmq::broker_options o;
    o.directory = path + "/broker";
    o.journal = {.segment_bytes = 16'384, .headroom_bytes = 4'096};
    o.executor = context.get_executor();
    return o;
}

/// Nothing of it depends on how long the machine takes.
[[nodiscard]] railmq::queue_options queue_options() {
    return {
        .ack_timeout = 24h,
        .retry = {
            .max_attempts = 5,
            .max_crashes = max_crashes,
            .backoff = railmq::constant_backoff{.delay = 0s}}};
}

/// The nth payload: whoever reads it can tell whether it is that one.
[[nodiscard]] std::string payload(std::uint64_t n) {
    railmq::random_engine random{railmq::test::seed(n)};
    std::string p = std::to_string(n) + ':';
    const std::uint64_t length = railmq::uniform_below(random, 400);
    for (std::uint64_t i = 0; i < length; ++i) {
        p += static_cast<char>('a' + railmq::uniform_below(random, 26));
    }
    return p;
}
[[nodiscard]] std::uint64_t number_in(const std::string& p) {
    return std::strtoull(p.c_str(), nullptr, 10);
}

/// The child: uses a broker in every way until it is killed.
class worker {
public:
    worker(const std::string& path, const pipe_ends& out, std::uint64_t seed, std::uint64_t first)
        : out_{out}
        , random_{seed}
        , next_{first}
        , broker_{options_in(path, context_)} {
        for (std::size_t n = 0; n < 2; ++n) {
            queues_[n] = broker_.queue<std::string>(names[n], queue_options());
            consumers_[n] = queues_[n].consumer();
        }
        out_.tell({});
    }
    [[noreturn]] void run() {
        for (;;) {
            switch (below(10)) {
            case 0:
            case 1:
            case 2: send(); break;
            case 3:
            case 4:
            case 5: receive(); break;
            case 6:
            case 7: settle(); break;
            case 8: transact(); break;
            case 9: sync(); break;
            }
        }
    }

private:
    struct held {
        railmq::delivery<std::string> handle{};
        std::uint64_t message = 0;
        std::size_t queue = 0;
    };

    [[nodiscard]] std::uint64_t below(std::uint64_t n) { return railmq::uniform_below(random_, n); }
    void may(std::uint64_t message, places place) const {
        out_.tell({.what = word::may, .place = place, .message = message});
    }
    void is(std::uint64_t message, places place) const {
        out_.tell({.what = word::is, .place = place, .message = message});
    }
    void kept() const { out_.tell({.what = word::kept}); }

    [[nodiscard]] auto producer(std::size_t queue, bool& is_kept) {
        const std::uint64_t choice = below(8);
        is_kept = choice != 0;
        const auto level = choice == 0   ? durability::accepted
                           : choice == 1 ? durability::synced
                           : choice == 2 ? durability::interval(1h)
                                         : durability::written;
        return queues_[queue].producer({.durability = level});
    }
    void send() {
        const std::size_t queue = below(2);
        const std::uint64_t message = next_++;
        bool is_kept = false;
        auto p = producer(queue, is_kept);
        may(message, bit(queue));
        (void)p.send(payload(message));
        is(message, bit(queue));
        if (is_kept) {
            kept();
        }
    }
    void receive() {
        if (held_.size() == 4) {
            return settle();
        }
        const std::size_t queue = below(2);
        out_.tell({.what = word::receiving, .place = bit(queue)});
        if (auto d = consumers_[queue].try_receive()) {
            const std::uint64_t message = number_in(d->value());
            out_.tell(
                {.what = word::handed,
                 .place = bit(queue),
                 .message = message,
                 .attempts = d->delivery_count(),
                 .failures = d->failure_count()});
            held_.push_back({std::move(*d), message, queue});
        } else {
            out_.tell({.what = word::receiving}); // no more
        }
    }
    [[nodiscard]] held pick() {
        const auto which = static_cast<std::ptrdiff_t>(below(held_.size()));
        held h = std::move(held_[static_cast<std::size_t>(which)]);
        held_.erase(held_.begin() + which);
        return h;
    }
    void settle() {
        if (held_.empty()) {
            return;
        }
        held h = pick();
        const std::uint64_t choice = below(6);
        const bool dies = choice == 1 || (choice == 0 && h.handle.failure_count() + 1 == 5);
        const places after = choice > 2 ? gone : bit(dies ? dead_of(h.queue) : h.queue);
        may(h.message, after);
        const bool done = choice == 0   ? h.handle.nack()
                          : choice == 1 ? h.handle.reject("unwanted")
                          : choice == 2 ? h.handle.release()
                                        : h.handle.ack();
        if (!done) {
            ::_exit(4);
        }
        is(h.message, after);
    }
    /// What was received is worked off into the other queue.
    void transact() {
        if (held_.empty()) {
            return;
        }
        held h = pick();
        const std::uint64_t message = next_++;
        bool is_kept = false;
        const std::size_t to = 1 - h.queue;
        auto p = producer(to, is_kept);
        auto tx = broker_.begin();
        tx.send(p, payload(message));
        tx.ack(h.handle);
        out_.tell(
            {.what = word::together,
             .place = gone,
             .message = h.message,
             .other = message,
             .other_place = bit(to)});
        (void)tx.commit();
        is(h.message, gone);
        is(message, bit(to));
        if (is_kept) {
            kept();
        }
    }
    void sync() {
        broker_.sync();
        kept();
    }

    const pipe_ends& out_;
    railmq::random_engine random_;
    std::uint64_t next_;
    boost::asio::io_context context_{};
    railmq::broker broker_;
    std::array<railmq::queue<std::string>, 2> queues_{};
    std::array<railmq::consumer<std::string>, 2> consumers_{};
    std::vector<held> held_{};
};

[[noreturn]] void
work(const std::string& path, const pipe_ends& out, std::uint64_t seed, std::uint64_t first) {
    try {
        worker{path, out, seed, first}.run();
    } catch (...) {
        ::_exit(1);
    }
}

// --- What its parent knows ---

struct known_message {
    places now = unsent;        ///< As the child has it.
    places possible = unsent;   ///< As it may be found.
    std::uint32_t attempts = 0; ///< Hand-outs that it has for certain.
    std::uint32_t failures = 0; ///< At most so many.
    bool is_held = false;
    bool may_be_held = false; ///< As the disk has it.
};

class knowledge {
public:
    void hear(const report& r) {
        known_message& m = all_[r.message];
        if (r.what != word::together && r.what != word::is) {
            pair_.reset();
        }
        switch (r.what) {
        case word::opened: keep(); break;
        case word::may: m.possible |= r.place; break;
        case word::is:
            if (m.is_held && (r.place & (bit(0) | bit(1))) != 0) {
                ++m.failures; // or it was released
            }
            m.is_held = false;
            m.now = r.place;
            m.possible |= r.place;
            break;
        case word::kept: keep(); break;
        case word::receiving: receiving_ = r.place; break;
        case word::handed: handed(r, m); break;
        case word::together:
            m.possible |= r.place;
            all_[r.other].possible |= r.other_place;
            pair_ = r;
            break;
        }
    }
    void killed() {
        for (auto& [n, m] : all_) {
            const bool may_have_been_held = m.may_be_held || (m.possible & receiving_) != 0;
            m.failures += may_have_been_held ? 1 : 0;
            if (may_have_been_held && m.failures >= max_crashes) {
                m.possible |= dead(m.possible);
            }
            m.now = m.possible;
            m.is_held = false;
            m.may_be_held = false;
        }
        unseen_ += receiving_ != 0 ? 1 : 0;
        receiving_ = 0;
    }
    /// Another process will go on with it, and what happened together is not looked at.
    void looked_away() { pair_.reset(); }

    void check(railmq::broker& broker) {
        std::map<std::uint64_t, std::size_t> found;
        std::uint32_t more = 0;
        for (std::size_t q = 0; q < names.size(); ++q) {
            const auto queue = q < 2 ? broker.queue<std::string>(names[q], queue_options())
                                     : broker.queue<std::string>(names[q]);
            const auto there = queue.peek(railmq::unlimited);
            REQUIRE(queue.stats().ready == there.size());
            REQUIRE(queue.stats().delayed == 0);
            for (const auto& one : there) {
                const std::uint64_t n = number_in(one.value);
                INFO("message " << n << " in " << names[q]);
                REQUIRE(one.value == payload(n));
                REQUIRE(all_.count(n) == 1);
                REQUIRE(found.emplace(n, q).second);
                known_message& m = all_[n];
                INFO("it can only be in " << m.possible);
                REQUIRE((m.possible & bit(q)) != 0);
                const std::uint32_t attempts =
                    q < 2 ? one.delivery_count : one.deaths.at(0).delivery_count;
                REQUIRE(attempts >= m.attempts);
                more += attempts - m.attempts;
                m.attempts = attempts;
                m.now = bit(q);
                m.possible = bit(q);
            }
        }
        for (auto& [n, m] : all_) {
            if (found.count(n) == 0) {
                INFO("message " << n << " is not there, and has to be in " << m.possible);
                REQUIRE((m.possible & (gone | unsent)) != 0);
                m.now = gone;
                m.possible = gone;
            }
        }
        // Of those that the child had not heard of when it was killed.
        REQUIRE(more <= unseen_);
        unseen_ = 0;
        if (pair_) {
            const bool is_acked = found.count(pair_->message) == 0;
            REQUIRE(is_acked == (found.count(pair_->other) == 1));
            ++transactions;
            pair_.reset();
        }
    }
    /// Works off all that is there.
    void drain(railmq::broker& broker) {
        for (std::size_t q = 0; q < names.size(); ++q) {
            auto c = broker.queue<std::string>(names[q]).consumer();
            while (auto d = c.try_receive()) {
                known_message& m = all_[number_in(d->value())];
                REQUIRE(m.now == bit(q));
                REQUIRE(d->ack());
                m.now = gone;
                m.possible = gone;
            }
        }
        for (const auto& [n, m] : all_) {
            REQUIRE(m.now == gone);
        }
    }
    [[nodiscard]] std::uint64_t next() const { return all_.empty() ? 1 : all_.rbegin()->first + 1; }

    std::uint64_t transactions = 0; ///< That were under way at a kill.

private:
    void handed(const report& r, known_message& m) {
        INFO("message " << r.message << " can only be in " << m.possible);
        REQUIRE((m.possible & r.place) != 0);
        REQUIRE_FALSE(m.is_held);
        REQUIRE(r.attempts > m.attempts);
        REQUIRE(r.attempts <= m.attempts + unseen_ + 1);
        REQUIRE(r.failures <= m.failures);
        m.now = r.place;
        m.is_held = true;
        m.may_be_held = true;
        m.attempts = r.attempts;
        m.failures = r.failures;
        receiving_ = 0;
        keep(); // a hand-out is written before it is shown
    }
    [[nodiscard]] static places dead(places in) { return (in & (bit(0) | bit(1))) << 2U; }
    void keep() {
        for (auto& [n, m] : all_) {
            m.possible = m.now;
            m.may_be_held = m.is_held;
        }
    }

    std::map<std::uint64_t, known_message> all_{};
    std::optional<report> pair_{};
    places receiving_ = 0;
    std::uint32_t unseen_ = 0;
};

/// The end of a child that was killed: true if it had not ended by itself.
[[nodiscard]] bool reap(::pid_t child) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
        UNSCOPED_INFO("it ended by itself with " << WEXITSTATUS(status));
    }
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

[[nodiscard]] error_code code_of_opening(const std::string& path, std::string& what) {
    boost::asio::io_context context;
    try {
        const railmq::broker b{options_in(path, context)};
        return {};
    } catch (const railmq::system_error& e) {
        what = e.what();
        return e.code();
    }
}

/// A child process that does `f` and waits to be killed.
template <class F>
[[nodiscard]] ::pid_t start(F&& f) {
    const ::pid_t child = ::fork();
    REQUIRE(child != -1);
    if (child == 0) {
        try {
            f();
        } catch (...) {
            ::_exit(1);
        }
        for (;;) {
            ::pause();
        }
    }
    return child;
}

} // namespace

// RAILMQ_KILLS=100000 in the environment makes it that many.
TEST_CASE("F1: a process with a broker is killed at any moment, and nothing confirmed is lost") {
    const char* const asked = std::getenv("RAILMQ_KILLS");
    const std::uint64_t kills = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 1'500;
    railmq::random_engine random{railmq::test::seed(1)};
    std::uint64_t reports = 0;
    std::uint64_t transactions = 0;
    std::uint64_t in_a_row = 0;
    for (std::uint64_t done = 0; done < kills;) {
        const railmq::test::scratch_directory scratch;
        knowledge known;
        // Not for ever in one directory, or most of its time would go into what is there already.
        for (int life = 0; life < 20 && done < kills; ++life, ++done) {
            INFO("kill " << done);
            pipe_ends pipe;
            const std::uint64_t seed = random();
            const std::uint64_t until = railmq::uniform_below(random, 300);
            const std::uint64_t yields = railmq::uniform_below(random, 30);
            const ::pid_t child = ::fork();
            REQUIRE(child != -1);
            if (child == 0) {
                work(scratch.path, pipe, seed, known.next());
            }
            pipe.close_writer();
            report r;
            std::uint64_t heard = 0;
            // The first ones die while they open the broker.
            while (heard < until && pipe.hear(r)) {
                known.hear(r);
                ++heard;
            }
            for (std::uint64_t n = 0; n < yields; ++n) {
                ::sched_yield();
            }
            ::kill(child, SIGKILL);
            REQUIRE(reap(child));
            // What it said in its last moments.
            for (; pipe.hear(r); ++heard) {
                known.hear(r);
            }
            reports += heard;
            known.killed();
            if (railmq::uniform_below(random, 4) == 0 && life != 19 && done + 1 != kills) {
                known.looked_away();
                ++in_a_row;
                continue;
            }
            boost::asio::io_context context;
            railmq::broker broker{options_in(scratch.path, context)};
            known.check(broker);
            if (life == 19 || done + 1 == kills) {
                known.drain(broker);
            }
        }
        transactions += known.transactions;
    }
    CHECK((kills < 100 || reports > 20 * kills));
    WARN(
        kills << " kills, " << in_a_row << " of them followed by another one unseen, " << reports
              << " reports, " << transactions << " transactions under way");
}

TEST_CASE("F22: a message that ends its process is a dead letter after so many times") {
    const railmq::test::scratch_directory scratch;
    {
        boost::asio::io_context context;
        railmq::broker broker{options_in(scratch.path, context)};
        auto p = broker.queue<std::string>("a", queue_options()).producer();
        for (std::uint64_t n = 1; n <= 3; ++n) {
            (void)p.send(payload(n));
        }
    }
    for (std::uint32_t run = 1; run <= max_crashes; ++run) {
        const ::pid_t child = start([&] {
            boost::asio::io_context context;
            railmq::broker broker{options_in(scratch.path, context)};
            auto c = broker.queue<std::string>("a", queue_options()).consumer();
            auto d = c.try_receive();
            const bool is_it = d && d->value() == payload(1) && d->delivery_count() == run &&
                               d->redelivered() == (run > 1) && d->failure_count() == run - 1;
            if (!is_it) {
                ::_exit(2);
            }
            ::raise(SIGKILL); // what a wild pointer does in earnest
        });
        REQUIRE(reap(child));
    }
    boost::asio::io_context context;
    railmq::broker broker{options_in(scratch.path, context)};
    CHECK_FALSE(broker.recovery().was_closed);
    auto q = broker.queue<std::string>("a", queue_options());
    const auto dead = broker.queue<std::string>("a.dead").peek(10);
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].value == payload(1));
    CHECK(dead[0].deaths.at(0).reason == railmq::death_reason::max_crashes);
    CHECK(dead[0].deaths.at(0).delivery_count == max_crashes);
    // The others go on, and it was not their fault.
    auto c = q.consumer();
    for (std::uint64_t n = 2; n <= 3; ++n) {
        auto d = c.try_receive();
        REQUIRE(d);
        CHECK(d->value() == payload(n));
        CHECK(d->failure_count() == 0);
        CHECK(d->ack());
    }
    CHECK_FALSE(c.try_receive());
}

TEST_CASE("F26: a directory has one owner, and none once the owner was killed") {
    const railmq::test::scratch_directory scratch;
    pipe_ends pipe;
    const ::pid_t child = start([&] {
        boost::asio::io_context context;
        railmq::broker broker{options_in(scratch.path, context)};
        (void)broker.queue<std::string>("a", queue_options()).producer().send(payload(1));
        pipe.tell({});
        for (;;) {
            ::pause();
        }
    });
    pipe.close_writer();
    report r;
    REQUIRE(pipe.hear(r));
    std::string what;
    CHECK(code_of_opening(scratch.path, what) == errc::journal_locked);
    CHECK_THAT(what, Catch::Contains(std::to_string(child)));
    ::kill(child, SIGKILL);
    REQUIRE(reap(child));
    boost::asio::io_context context;
    railmq::broker broker{options_in(scratch.path, context)};
    CHECK(broker.queue<std::string>("a").stats().ready == 1);
    CHECK(code_of_opening(scratch.path, what) == errc::journal_locked); // in one process as well
}

TEST_CASE("F26: what was forked from an owner writes nothing, and keeps the directory taken") {
    const railmq::test::scratch_directory scratch;
    // Whoever is left alone by the owner's end is ours to wait for.
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pipe_ends pipe;
    const ::pid_t child = start([&] {
        boost::asio::io_context context;
        railmq::broker broker{options_in(scratch.path, context)};
        auto p = broker.queue<std::string>("a", queue_options()).producer();
        (void)p.send(payload(1));
        const ::pid_t grandchild = start([&] {
            error_code ec;
            (void)p.send(payload(2), ec);
            pipe.tell(
                {.message = static_cast<std::uint64_t>(::getpid()),
                 .failures = static_cast<std::uint32_t>(ec.value())});
            for (;;) {
                ::pause();
            }
        });
        (void)grandchild;
        for (;;) {
            ::pause();
        }
    });
    pipe.close_writer();
    report r;
    REQUIRE(pipe.hear(r));
    const auto grandchild = static_cast<::pid_t>(r.message);
    CHECK(r.failures == static_cast<std::uint32_t>(errc::journal_failed));
    ::kill(child, SIGKILL);
    REQUIRE(reap(child));
    std::string what;
    CHECK(code_of_opening(scratch.path, what) == errc::journal_locked);
    ::kill(grandchild, SIGKILL);
    REQUIRE(reap(grandchild));
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
    boost::asio::io_context context;
    railmq::broker broker{options_in(scratch.path, context)};
    const auto there = broker.queue<std::string>("a").peek(10);
    REQUIRE(there.size() == 1);
    CHECK(there[0].value == payload(1));
}
