// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/deadline_index.hpp>
#include <railmq/core/single_threaded.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/time.hpp>

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/append.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace railmq {

class simulation;

/// A simulation as an Asio executor: what is posted runs in order, when the simulation runs.
class simulation_executor {
public:
    explicit simulation_executor(simulation& s) noexcept
        : sim_{&s} {}

    [[nodiscard]] boost::asio::execution_context&
        query(boost::asio::execution::context_t) const noexcept;
    [[nodiscard]] static constexpr boost::asio::execution::blocking_t
    query(boost::asio::execution::blocking_t) noexcept {
        return boost::asio::execution::blocking.never;
    }
    template <class F>
    void execute(F&& f) const;

    friend bool
    operator==(const simulation_executor&, const simulation_executor&) noexcept = default;

private:
    simulation* sim_;
};

/// A world of its own: virtual time, one thread, and all the chance there is, from one seed.
/// Brokers made in it run the code that production runs; time passes only when the simulation is
/// told to, or when a blocking call waits. Equal seeds and equal calls give equal runs.
///
/// Thread safety: none. Everything in a simulation belongs to one thread.
class simulation {
public:
    using executor_type = simulation_executor;

    /// Something that has its own deadlines: a broker.
    class source {
    public:
        source() = default;
        source(const source&) = delete;
        source& operator=(const source&) = delete;
        virtual ~source() = default;
        [[nodiscard]] virtual time_point next_due() = 0;
        virtual void run_due(time_point now) = 0;
    };

    explicit simulation(std::uint64_t seed = 0)
        : random_{seed}
        , seed_{seed} {}
    simulation(const simulation&) = delete;
    simulation& operator=(const simulation&) = delete;
    ~simulation() {
        // What was posted may hold coroutines and handles that post again while they end.
        while (!ready_.empty()) {
            ready_.pop_front();
        }
        for (auto* t : std::exchange(timers_list_, {})) {
            delete t;
        }
        context_.stop();
    }

    [[nodiscard]] time_point now() const noexcept { return now_; }
    [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
    /// The simulation's random numbers: the only source of chance in it.
    [[nodiscard]] random_engine& random() noexcept { return random_; }
    [[nodiscard]] executor_type get_executor() noexcept { return executor_type{*this}; }

    /// Moves time on by `d`; everything that falls due happens on the way, each at its own moment
    /// and in order of (time, creation). Negative durations are refused with
    /// `errc::invalid_argument`.
    template <class Rep, class Period>
    void advance(std::chrono::duration<Rep, Period> d) {
        const duration step = saturating_duration(d);
        if (step < duration::zero()) {
            throw system_error(
                make_error_code(errc::invalid_argument), "time in a simulation only moves forward");
        }
        run_until(saturating_add(now_, step));
    }

    /// Moves to the next moment at which something is due, and lets it happen. False: there is
    /// none, and nothing has changed but that posted work was run.
    bool advance_to_next() {
        run_ready();
        const time_point next = next_event();
        if (next == never) {
            return false;
        }
        run_until(next);
        return true;
    }

    /// Runs until nothing is ready and nothing is due any more, however far away; work that
    /// keeps making work never ends. Returns the time that has passed.
    duration run_until_idle() {
        const time_point start = now_;
        while (advance_to_next()) {
        }
        return now_ - start;
    }

    /// Runs what is ready now, without moving time. Returns how many pieces of work it ran.
    std::size_t run_ready() {
        std::size_t count = 0;
        for (;;) {
            while (!ready_.empty()) {
                auto work = std::move(ready_.front());
                ready_.pop_front();
                std::move(work)();
                ++count;
            }
            if (!run_sources()) {
                return count;
            }
        }
    }

    /// Starts a coroutine on the simulation. An exception that leaves it comes out of whatever
    /// call runs the simulation at that moment.
    template <class Awaitable>
    void spawn(Awaitable coroutine) {
        boost::asio::co_spawn(get_executor(), std::move(coroutine), [](std::exception_ptr failure) {
            if (failure) {
                std::rethrow_exception(failure);
            }
        });
    }

    /// Waits for virtual time to pass.
    ///
    /// Completion signature: `void(error_code)`. Completes with no error when `d` has passed, or
    /// with `operation_aborted` on cancellation (terminal, partial and total).
    template <class Rep, class Period, class CompletionToken>
    auto async_wait(std::chrono::duration<Rep, Period> d, CompletionToken&& token) {
        return boost::asio::async_initiate<CompletionToken, void(boost::system::error_code)>(
            [this](auto handler, duration wait) {
                using op = timer_op<decltype(handler)>;
                start(std::make_unique<op>(*this, std::move(handler)), wait);
            },
            token,
            saturating_duration(d));
    }

    // For brokers and for blocking calls

    void add(source& s) { sources_.push_back(&s); }
    void remove(source& s) noexcept { std::erase(sources_, &s); }

    void post(boost::asio::any_completion_handler<void()> work) {
        ready_.push_back(std::move(work));
    }

    /// Runs the simulation until `done()`, at most until `limit`. False: it is not done, and the
    /// time is up, or nothing that is left could ever bring it about.
    template <class Done>
    bool run_while_waiting(Done&& done, time_point limit) {
        for (;;) {
            run_ready_until(done);
            if (done()) {
                return true;
            }
            const time_point next = next_event();
            if (next > limit || next == never) {
                if (limit != never) {
                    now_ = std::max(now_, limit);
                }
                return false;
            }
            now_ = std::max(now_, next);
            fire_one_moment();
        }
    }

private:
    struct timer_base {
        virtual ~timer_base() = default;
        virtual void complete(boost::system::error_code ec) = 0; ///< Also ends the timer.
        deadline_handle handle{};
    };

    template <class Handler>
    struct timer_op final : timer_base {
        timer_op(simulation& s, Handler h)
            : sim{s}
            , handler{std::move(h)} {
            slot = boost::asio::get_associated_cancellation_slot(handler);
        }
        void complete(boost::system::error_code ec) override {
            // Freed before the handler runs, which it does from the simulation's own loop.
            if (slot.is_connected()) {
                slot.clear();
            }
            auto executor = boost::asio::get_associated_executor(handler, sim.get_executor());
            auto bound =
                boost::asio::bind_executor(executor, boost::asio::append(std::move(handler), ec));
            delete this;
            boost::asio::post(executor, std::move(bound));
        }
        simulation& sim;
        Handler handler;
        boost::asio::associated_cancellation_slot_t<Handler> slot{};
    };

    template <class Op>
    void start(std::unique_ptr<Op> op, duration wait) {
        Op* raw = op.get();
        raw->handle = timers_.arm(saturating_add(now_, std::max(wait, duration::zero())), raw);
        timers_list_.push_back(raw);
        op.release();
        if (raw->slot.is_connected()) {
            raw->slot.assign([this, raw](boost::asio::cancellation_type) {
                if (timers_.cancel(raw->handle)) {
                    std::erase(timers_list_, static_cast<timer_base*>(raw));
                    raw->complete(boost::asio::error::operation_aborted);
                }
            });
        }
    }

    void run_until(time_point target) {
        run_ready();
        for (time_point next = next_event(); next <= target && next != never; next = next_event()) {
            now_ = std::max(now_, next);
            fire_one_moment();
            run_ready();
        }
        now_ = std::max(now_, target == never ? now_ : target);
    }

    template <class Done>
    void run_ready_until(Done&& done) {
        for (;;) {
            while (!ready_.empty()) {
                if (done()) {
                    return;
                }
                auto work = std::move(ready_.front());
                ready_.pop_front();
                std::move(work)();
            }
            if (done() || !run_sources()) {
                return;
            }
        }
    }

    [[nodiscard]] time_point next_event() {
        time_point next = timers_.next();
        for (source* s : sources_) {
            next = std::min(next, s->next_due());
        }
        return next;
    }

    /// Brokers first, in the order in which they were made, then timers.
    void fire_one_moment() {
        run_sources();
        while (const auto t = timers_.pop_due(now_)) {
            std::erase(timers_list_, *t);
            (*t)->complete({});
        }
    }
    bool run_sources() {
        bool any = false;
        for (std::size_t i = 0; i < sources_.size(); ++i) {
            if (sources_[i]->next_due() <= now_) {
                sources_[i]->run_due(now_);
                any = true;
            }
        }
        return any;
    }

    struct context : boost::asio::execution_context {
        ~context() { stop(); }
        void stop() noexcept {
            if (!std::exchange(stopped, true)) {
                shutdown();
                destroy();
            }
        }
        bool stopped = false;
    };

    time_point now_{};
    random_engine random_;
    std::uint64_t seed_;
    context context_{};
    deadline_index<timer_base*> timers_{};
    std::vector<timer_base*> timers_list_{};
    std::vector<source*> sources_{};
    std::deque<boost::asio::any_completion_handler<void()>> ready_{};

    friend class simulation_executor;
};

inline boost::asio::execution_context&
simulation_executor::query(boost::asio::execution::context_t) const noexcept {
    return sim_->context_;
}

template <class F>
void simulation_executor::execute(F&& f) const {
    sim_->post(boost::asio::any_completion_handler<void()>(std::forward<F>(f)));
}

/// The test and simulation runtime: virtual time, one thread, no locks.
struct simulated : core::single_threaded {
    using mutex = core::null_lock;

    class clock {
    public:
        explicit clock(simulation& s) noexcept
            : sim_{&s} {}
        [[nodiscard]] time_point now() const noexcept { return sim_->now(); }
        [[nodiscard]] time_point coarse_now() const noexcept { return sim_->now(); }
        [[nodiscard]] static constexpr duration resolution() noexcept { return duration::zero(); }
        [[nodiscard]] time_point wall_now() const noexcept { return sim_->now(); }
        [[nodiscard]] simulation& sim() const noexcept { return *sim_; }

    private:
        simulation* sim_;
    };

    /// Whether what somebody waits for has happened.
    class parking_spot {
    public:
        void finish() noexcept { finished_ = true; }
        void poke() noexcept {}
        [[nodiscard]] bool finished() const noexcept { return finished_; }

    private:
        bool finished_ = false;
    };

    static void yield() noexcept {}
};

} // namespace railmq
