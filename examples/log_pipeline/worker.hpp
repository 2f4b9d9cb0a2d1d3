// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/railmq.hpp>

#include "backlog_curve.hpp"
#include "console.hpp"
#include "log_index.hpp"
#include "log_line.hpp"
#include "pace.hpp"
#include "stored.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace log_pipeline {

/// What happens during a run, told on the console and marked in the backlog's curve.
///
/// Thread safety: safe, but for `curve`.
class story {
public:
    console out{};

    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>{steady::now() - start_}.count();
    }
    void tell(std::string_view what, const std::string& mark = {}) {
        const double now = seconds();
        out.print(fmt::format("{:6.2f} s  {}", now, what));
        if (!mark.empty()) {
            const std::lock_guard guard{mutex_};
            curve_.mark(now, mark);
        }
    }
    void sample(std::uint64_t waiting) {
        const std::lock_guard guard{mutex_};
        curve_.add(seconds(), waiting);
    }
    /// When nobody tells or samples any more.
    [[nodiscard]] const backlog_curve& curve() const noexcept { return curve_; }

private:
    steady::time_point start_ = steady::now();
    std::mutex mutex_{};
    backlog_curve curve_{};
};

/// Strikes once: whoever is handed that line, or a later one.
class mishap {
public:
    void strike_at(std::uint64_t line) { line_.store(line); }
    [[nodiscard]] bool strikes(const std::vector<railmq::delivery<log_line>>& batch) {
        return !has_happened_.load() && batch.back()->number >= line_.load() &&
               !has_happened_.exchange(true);
    }

private:
    std::atomic<std::uint64_t> line_{0};
    std::atomic<bool> has_happened_{false};
};

/// The lines that failing workers held, until somebody settles them.
///
/// Thread safety: safe.
class lost_and_found {
public:
    void lose(const std::vector<railmq::delivery<log_line>>& held) {
        const std::lock_guard guard{mutex_};
        for (const auto& d : held) {
            missing_.insert(d->number);
        }
        lost_ += held.size();
    }
    void find(std::uint64_t line) {
        const std::lock_guard guard{mutex_};
        missing_.erase(line);
    }
    [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
    [[nodiscard]] std::uint64_t missing() const noexcept { return missing_.size(); }

private:
    std::mutex mutex_{};
    std::uint64_t lost_ = 0;
    std::unordered_set<std::uint64_t> missing_{};
};

/// What the workers share.
struct job {
    railmq::queue<log_line> lines{};
    railmq::queue<tick> silent{};
    railmq::broker* durable = nullptr; ///< With --directory; then lines are sent on to:
    railmq::producer<parsed_line> parsed{};
    std::size_t workers = 4;
    double lines_per_second = 2000; ///< Of all workers together, while they are slowed down.
    steady::time_point paced_until{};

    story told{};
    log_index index{};
    lost_and_found held{};
    std::atomic<std::uint64_t> late{0}; ///< Settlements that came too late and changed nothing.

    std::once_flag started{};
    std::size_t batch_size = 16;
    mishap death{};
    mishap hang{};
};

/// Stands for a store that is busy now and then: every 50th line is refused once, and every 250th
/// three times.
[[nodiscard]] constexpr bool store_refuses(std::uint64_t line, std::uint32_t failures) noexcept {
    return line % 50 == 3 && failures < (line % 250 == 3 ? 3U : 1U);
}

/// A transaction never waits for room; this does. Gives every other error of `commit`.
[[nodiscard]] inline railmq::error_code
commit_when_there_is_room(railmq::transaction& tx, timer& t) {
    railmq::error_code ec;
    do {
        tx.commit(ec);
    } while (ec == railmq::errc::queue_full && t.wait(std::chrono::milliseconds{2}));
    return ec;
}

/// A thread that takes lines from the queue and puts them into the index, or on their way to it.
class worker {
public:
    worker(job& j, std::size_t number)
        : job_{j}
        , number_{number}
        , timer_{j.silent}
        , pace_{timer{j.silent}, j.paced_until} {}

    void run() {
        using namespace std::chrono_literals;
        if (!timer_.wait(400ms)) { // the workers are late; the burst does not wait for them
            return;
        }
        std::call_once(job_.started, [this] { set_the_stage(); });
        while (work() == end::died) {
            timer_.wait(300ms);
            job_.told.tell(fmt::format("worker {} is back", number_));
        }
    }

private:
    enum class end { of_queue, died };
    using delivery = railmq::delivery<log_line>;

    /// What goes wrong will go wrong in the middle of what waits now.
    void set_the_stage() {
        const std::uint64_t waiting = job_.lines.stats().ready;
        job_.batch_size = std::clamp<std::size_t>(waiting / (4 * job_.workers), 1, 16);
        job_.death.strike_at(waiting / 2);
        job_.hang.strike_at(waiting * 3 / 4);
        job_.told.tell(
            fmt::format("{} workers start; waiting: {}", job_.workers, lines_of(waiting)),
            "workers start");
    }

    [[nodiscard]] end work() {
        using namespace std::chrono_literals;
        railmq::error_code ec;
        railmq::consumer<log_line> consumer;
        try {
            consumer = job_.lines.consumer({.name = fmt::format("worker-{}", number_)});
        } catch (const railmq::system_error& e) {
            if (e.code() == railmq::errc::closed) {
                return end::of_queue; // all done while this worker was away
            }
            throw;
        }
        std::vector<delivery> batch;
        for (;;) {
            if (consumer.receive_batch(batch, job_.batch_size, 1s, ec) == 0) {
                if (ec == railmq::errc::timed_out) {
                    continue;
                }
                return end::of_queue;
            }
            if (job_.death.strikes(batch)) {
                die(consumer, batch);
                return end::died;
            }
            if (job_.hang.strikes(batch)) {
                hang(batch);
            } else {
                pace_.spend(batch.size() * job_.workers, job_.lines_per_second); // it is at work
            }
            if (job_.durable != nullptr) {
                settle_together(batch);
                continue;
            }
            for (delivery& d : batch) {
                settle(d);
            }
        }
    }

    void settle(delivery& d) {
        const std::uint64_t number = d->number;
        const bool is_again = d.redelivered();
        const auto parsed = parse(*d);
        bool is_settled = false;
        if (const auto* junk = std::get_if<unreadable>(&parsed)) {
            is_settled = d.reject(std::string{junk->reason});
        } else if (store_refuses(number, d.failure_count())) {
            d.nack(); // comes again after the backoff
            return;
        } else {
            job_.index.add(number, std::get<entry>(parsed));
            is_settled = d.ack();
        }
        if (!is_settled) {
            ++job_.late;
        } else if (is_again) {
            job_.held.find(number);
        }
    }

    /// The acks, and what was made of the lines, as one.
    void settle_together(std::vector<delivery>& batch) {
        auto tx = job_.durable->begin();
        std::vector<std::uint64_t> again;
        std::uint64_t taken = 0;
        for (delivery& d : batch) {
            const std::uint64_t number = d->number;
            const bool is_again = d.redelivered();
            const auto parsed = parse(*d);
            if (const auto* junk = std::get_if<unreadable>(&parsed)) {
                if (!d.reject(std::string{junk->reason})) {
                    ++job_.late;
                } else if (is_again) {
                    job_.held.find(number);
                }
            } else if (store_refuses(number, d.failure_count())) {
                d.nack();
            } else {
                const entry& e = std::get<entry>(parsed);
                tx.send(
                    job_.parsed,
                    parsed_line{
                        number,
                        e.minute,
                        std::string{e.level},
                        std::string{e.program},
                        std::string{e.text}});
                tx.ack(d);
                ++taken;
                if (is_again) {
                    again.push_back(number);
                }
            }
        }
        if (const auto ec = commit_when_there_is_room(tx, timer_)) {
            if (ec != railmq::errc::stale_delivery) {
                throw railmq::system_error(ec, "sending parsed lines");
            }
            job_.late += taken; // somebody else has one of them: nothing of this has happened
            return;
        }
        for (const std::uint64_t number : again) {
            job_.held.find(number);
        }
    }

    /// Between the work and the acks: half of what it holds is in the index already. Closing the
    /// consumer is what remains of a worker that is gone; the queue has everything back at once.
    void die(railmq::consumer<log_line>& consumer, std::vector<delivery>& batch) {
        job_.held.lose(batch);
        std::size_t done = 0;
        for (const delivery& d : batch) {
            if (job_.durable != nullptr) {
                break; // what is not committed has not happened
            }
            const auto parsed = parse(*d);
            if (done < (batch.size() + 1) / 2 && std::holds_alternative<entry>(parsed)) {
                job_.index.add(d->number, std::get<entry>(parsed));
                ++done;
            }
        }
        job_.told.tell(
            fmt::format(
                "worker {} dies, holding {}; indexed: {}, acknowledged: none",
                number_,
                lines_of(batch.size()),
                done),
            "a worker dies");
        consumer.close();
    }

    /// Holds its lines past their deadline, so that others get them.
    void hang(const std::vector<delivery>& batch) {
        job_.held.lose(batch);
        job_.told.tell(
            fmt::format("worker {} hangs, holding {}", number_, lines_of(batch.size())),
            "a worker hangs");
        timer_.wait(job_.lines.options().ack_timeout * 3 / 2);
        job_.told.tell(fmt::format("worker {} goes on, too late for what it holds", number_));
    }

    job& job_;
    std::size_t number_;
    timer timer_;
    pace pace_;
};

} // namespace log_pipeline
