// SPDX-License-Identifier: BSL-1.0
//
// F5, F6, F7, F10: a broker whose disk fails at any call, in every way, while it does a
// bit of everything. Whatever it confirmed is there when the disk is opened again, nothing else is
// but what it was asked to do, and what it says is an error with a name.
#include <railmq/broker.hpp>
#include <railmq/consumer.hpp>
#include <railmq/producer.hpp>
#include <railmq/storage/simulated_disk.hpp>
#include <railmq/transaction.hpp>

#include "support/catch.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::durability;
using railmq::errc;
using railmq::error_code;
using railmq::storage::disk_fault;
using railmq::storage::disk_operation;
using railmq::storage::planned_fault;
using railmq::storage::simulated_disk;
namespace sys = boost::system::errc;

namespace {

/// A set of places in which a message may be.
using places = unsigned;
constexpr places unsent = 1;
constexpr places gone = 2;
constexpr places in_a = 4;
constexpr places in_b = 8;
constexpr places in_dead = 16; ///< Of a.
constexpr int messages = 12;

[[nodiscard]] railmq::broker_options options() {
    railmq::broker_options o;
    o.journal = {.segment_bytes = 4096, .headroom_bytes = 1024};
    return o;
}
[[nodiscard]] railmq::queue_options queue_options() {
    return {.retry = {.max_attempts = 2, .backoff = railmq::constant_backoff{.delay = 0s}}};
}
/// Long enough that the workload fills segments.
[[nodiscard]] std::string payload(int n) {
    return std::to_string(n) + ':' + std::string(static_cast<std::size_t>(400 + n), 'x');
}

/// What the user of the broker knows of each message.
struct knowledge {
    struct message {
        places now = unsent;
        places possible = unsent;
    };
    std::array<message, messages> all{};
    std::uint64_t confirmed = 0;

    void may(int n, places where) { at(n).possible |= where; }
    void is(int n, places where) {
        at(n).now = where;
        at(n).possible |= where;
    }
    void kept() {
        for (message& m : all) {
            m.possible = m.now;
        }
        ++confirmed;
    }
    [[nodiscard]] message& at(int n) { return all[static_cast<std::size_t>(n)]; }
};

/// What a call may say when the disk fails.
void check_error(const error_code& ec) {
    INFO(ec.message());
    REQUIRE(
        (ec == errc::io_error || ec == errc::no_space || ec == errc::journal_failed ||
         ec == errc::journal_corrupt));
}

/// One life of a broker that always does the same, as far as the disk lets it.
class workload {
public:
    workload(simulated_disk& disk, knowledge& k)
        : disk_{disk}
        , k_{k} {}

    /// False: some call has failed.
    bool run() {
        try {
            railmq::broker_options o = options();
            o.observer = [this](const railmq::notice& n) {
                has_unwritten_ = has_unwritten_ || std::get_if<railmq::notices::unwritten>(&n);
            };
            broker_.emplace(sim_, disk_.directory(), o);
            a_ = broker_->queue<std::string>("a", queue_options());
            b_ = broker_->queue<std::string>("b", queue_options());
        } catch (const railmq::system_error& e) {
            check_error(e.code());
            return false;
        }
        for (int n = 0; n < 8; ++n) {
            send(n, n % 3 == 0 ? durability::written : durability::synced);
        }
        auto c = a_.consumer();
        settle(c, gone, [](auto& d) { return d.ack(); });
        settle(c, in_dead, [](auto& d) { return d.reject("no"); });
        settle(c, in_a, [](auto& d) { return d.nack(); }); // the first of two times
        settle(c, in_dead, [](auto& d) { return d.nack(); });
        sync();
        transact(c, 8, 9);
        send(10, durability::accepted);
        sync();
        transact(c, 11, -1);
        settle(c, gone, [](auto& d) { return d.ack(); });
        sync();
        check_failed_for_good();
        c.close();
        (void)broker_->close();
        if (is_whole_ && !has_unwritten_ && disk_.faults_struck() == 0) {
            k_.kept();
        }
        broker_.reset();
        return is_whole_;
    }

private:
    void note(const error_code& ec) {
        if (ec) {
            check_error(ec);
            is_whole_ = false;
            // `io_error` may be that of a segment that could not be begun: nothing has changed.
            was_failed_ = was_failed_ || ec == errc::journal_failed;
        } else {
            // A write or a sync that failed is the last: nothing is confirmed after it.
            REQUIRE_FALSE(was_failed_);
        }
    }
    void send(int n, durability level) {
        error_code ec;
        k_.may(n, in_a);
        (void)a_.producer({.durability = level}).send(payload(n), ec);
        if (level.level() != durability::accepted.level()) {
            note(ec);
        }
        if (ec == errc::no_space) {
            // Nothing has changed, so it is not there.
            k_.at(n).possible = k_.at(n).now;
            return;
        }
        if (!ec) {
            k_.is(n, in_a);
            if (level.level() != durability::accepted.level()) {
                k_.kept();
            }
        }
    }
    template <class F>
    void settle(railmq::sim_consumer<std::string>& c, places after, F&& f) {
        if (auto d = c.try_receive()) {
            const int n = std::atoi(d->value().c_str());
            REQUIRE(d->value() == payload(n));
            came_back(n);
            k_.may(n, after);
            if (after != in_a && after != gone) {
                k_.may(n, in_a | in_dead);
            }
            REQUIRE(f(*d)); // in this process it always works
            k_.is(n, after);
        }
    }
    void transact(railmq::sim_consumer<std::string>& c, int first, int second) {
        auto d = c.try_receive();
        if (!d) {
            return;
        }
        const int taken = std::atoi(d->value().c_str());
        came_back(taken);
        auto p = b_.producer();
        auto tx = broker_->begin();
        k_.may(taken, gone | in_dead); // dead if it cannot be committed, and fails again
        tx.ack(*d);
        for (const int n : {first, second}) {
            if (n >= 0) {
                k_.may(n, in_b);
                tx.send(p, payload(n));
            }
        }
        error_code ec;
        (void)tx.commit(ec);
        note(ec);
        if (!ec) {
            k_.is(taken, gone);
            for (const int n : {first, second}) {
                if (n >= 0) {
                    k_.is(n, in_b);
                }
            }
            k_.kept();
        }
        pairs.push_back({taken, first});
    }
    /// A transaction that had it was not committed.
    void came_back(int n) {
        std::erase_if(pairs, [&](const auto& p) { return p.first == n; });
    }
    void sync() {
        error_code ec;
        broker_->sync(ec);
        note(ec);
        if (!ec && !has_unwritten_) {
            k_.kept();
        }
    }
    /// A failed journal is left alone: nobody asks the disk a second time.
    void check_failed_for_good() {
        if (!was_failed_) {
            return;
        }
        const auto syncs = disk_.calls(disk_operation::sync);
        const auto writes = disk_.calls(disk_operation::write);
        error_code ec;
        broker_->sync(ec);
        REQUIRE(ec == errc::journal_failed);
        (void)b_.producer().send("never", ec);
        REQUIRE(ec == errc::journal_failed);
        REQUIRE(disk_.calls(disk_operation::sync) == syncs);
        REQUIRE(disk_.calls(disk_operation::write) == writes);
    }

public:
    std::vector<std::pair<int, int>> pairs{}; ///< Acknowledged and sent together.

private:
    simulated_disk& disk_;
    knowledge& k_;
    railmq::simulation sim_{1};
    std::optional<railmq::sim_broker> broker_{};
    railmq::sim_queue<std::string> a_{};
    railmq::sim_queue<std::string> b_{};
    bool is_whole_ = true;
    bool was_failed_ = false;
    bool has_unwritten_ = false;
};

/// Where everything is, on a disk that works again.
[[nodiscard]] std::map<int, places> found_on(simulated_disk& disk) {
    railmq::simulation sim{2};
    railmq::sim_broker broker{sim, disk.directory(), options()};
    std::map<int, places> found;
    const auto look = [&](const std::string& name, places where) {
        const auto names = broker.names();
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            return;
        }
        const auto q = broker.queue<std::string>(name);
        const auto there = q.peek(railmq::unlimited);
        REQUIRE(q.stats().ready == there.size());
        for (const auto& m : there) {
            const int n = std::atoi(m.value.c_str());
            REQUIRE((n >= 0 && n < messages));
            REQUIRE(m.value == payload(n));
            REQUIRE(found.emplace(n, where).second);
        }
    };
    look("a", in_a);
    look("b", in_b);
    look("a.dead", in_dead);
    look("b.dead", 0); // nothing is ever there
    // It works: a disk that is well again is a journal that is.
    (void)broker.queue<std::string>("probe").producer().send("x");
    return found;
}

void check(simulated_disk& disk, const knowledge& k, const workload& w) {
    const auto found = found_on(disk);
    for (int n = 0; n < messages; ++n) {
        const auto it = found.find(n);
        const places where = it == found.end() ? (unsent | gone) : it->second;
        const places possible = k.all[static_cast<std::size_t>(n)].possible;
        INFO("message " << n << " is in " << where << " and can only be in " << possible);
        REQUIRE((where & possible) != 0);
    }
    for (const auto& [taken, sent] : w.pairs) {
        INFO("transaction of " << taken << " and " << sent);
        const bool was_there = (k.all[static_cast<std::size_t>(taken)].possible & unsent) == 0;
        const bool is_taken = found.count(taken) == 0;
        const bool is_sent = found.count(sent) == 1;
        REQUIRE((!is_sent || is_taken));
        REQUIRE((is_sent || !is_taken || !was_there));
    }
}

/// The workload with one fault; then the disk is opened again after the end of the process, and
/// after a loss of power if what was confirmed was `synced`. Returns whether the fault struck.
bool with_fault(const planned_fault& fault, std::uint64_t seed, bool* is_whole = nullptr) {
    simulated_disk disk{railmq::test::seed(seed)};
    knowledge k;
    disk.plan(fault);
    workload w{disk, k};
    const bool whole = w.run();
    const bool has_struck = disk.faults_struck() != 0;
    disk.heal();
    disk.end_process();
    check(disk, k, w);
    if (is_whole != nullptr) {
        *is_whole = whole;
    }
    return has_struck;
}

} // namespace

TEST_CASE("F5, F6, F7: every call of a broker's disk fails, once or from then on") {
    const auto error = GENERATE(sys::io_error, sys::no_space_on_device);
    const bool lasts = GENERATE(false, true);
    const auto what = GENERATE(disk_operation::any, disk_operation::sync, disk_operation::write);
    std::uint64_t n = 1;
    for (;; ++n) {
        INFO("call " << n << " of kind " << static_cast<int>(what));
        if (!with_fault({.what = what, .nth = n, .error = error, .lasts = lasts}, n)) {
            break;
        }
        REQUIRE(n < 5'000);
    }
    CHECK(n > 10);
}

TEST_CASE("F6: interrupted calls and short transfers change nothing for a broker") {
    const auto kind = GENERATE(disk_fault::interrupted, disk_fault::short_transfer);
    const auto what = GENERATE(disk_operation::read, disk_operation::write);
    for (std::uint64_t n = 1;; ++n) {
        INFO("call " << n << " of kind " << static_cast<int>(what));
        bool is_whole = false;
        const bool has_struck = with_fault({.what = what, .nth = n, .kind = kind}, n, &is_whole);
        REQUIRE(is_whole);
        if (!has_struck) {
            break;
        }
    }
}

TEST_CASE("F7: a broker's disk is filled and gets space again, many times") {
    simulated_disk disk{railmq::test::seed(1)};
    railmq::simulation sim{1};
    // Headroom for the acknowledgements of all that a disk of that size takes.
    railmq::broker_options roomy;
    roomy.journal = {.segment_bytes = 256 << 10, .headroom_bytes = 64 << 10};
    const std::string load(5'000, 'y');
    int last = 0;
    int first = 0; // that is still there
    for (int round = 0; round < 20; ++round) {
        INFO("round " << round);
        {
            railmq::sim_broker broker{sim, disk.directory(), roomy};
            const auto q = broker.queue<std::string>("a", queue_options());
            REQUIRE(q.stats().ready == static_cast<std::uint64_t>(last - first));
            auto p = q.producer();
            disk.set_capacity(disk.used() + 400'000);
            error_code ec;
            for (int sent = 0; !ec; ++sent) {
                REQUIRE(sent < 10'000);
                (void)p.send(load + payload(last % messages), ec);
                last += ec ? 0 : 1;
            }
            REQUIRE(ec == errc::no_space);
            // Acknowledgements go on, and are kept.
            auto c = q.consumer();
            for (; last - first > 3; ++first) {
                auto d = c.try_receive();
                REQUIRE(d);
                REQUIRE(d->value() == load + payload(first % messages));
                REQUIRE(d->ack());
            }
            broker.sync(ec);
            REQUIRE_FALSE(ec);
            REQUIRE(broker.stats().unwritten == 0);
            // And so do sends, by themselves.
            disk.set_capacity(disk.used() + 1'000'000);
            (void)p.send(load + payload(last % messages), ec);
            REQUIRE_FALSE(ec);
            ++last;
            disk.end_process();
        }
        disk.set_capacity(~std::uint64_t{0});
    }
}

TEST_CASE("F10: writes that were lost or went elsewhere give no wrong message") {
    const auto kind = GENERATE(disk_fault::lost_write, disk_fault::misdirected_write);
    std::uint64_t found = 0;
    for (std::uint64_t n = 1;; ++n) {
        INFO("write " << n);
        simulated_disk disk{railmq::test::seed(n)};
        knowledge k;
        disk.plan({.what = disk_operation::write, .nth = n, .kind = kind});
        (void)workload{disk, k}.run();
        const bool has_struck = disk.faults_struck() != 0;
        disk.crash();
        try {
            (void)found_on(disk);
        } catch (const railmq::system_error& e) {
            REQUIRE(has_struck);
            REQUIRE(e.code() == errc::journal_corrupt);
            ++found;
        }
        if (!has_struck) {
            break;
        }
    }
    CHECK(found > 0);
}
