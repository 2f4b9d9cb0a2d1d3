// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/model/notice.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/time.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/intrusive/list.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// What a broker is made with.
struct broker_options {
    /// Bytes that all message blocks may take together, counted by block.
    std::size_t memory_limit = std::size_t{1} << 30;
    /// Where asynchronous operations complete whose handler names no executor, and where the
    /// broker's one timer runs; without one, both are on the system's threads. It must outlive the
    /// broker, or at least its `close`.
    boost::asio::any_io_executor executor{};
    /// Gets every notice. With an observer every call goes through its queue's lock.
    railmq::observer observer{};
    /// Of all random choices (jitter); 0 takes one from the system, or from the simulation.
    std::uint64_t seed = 0;
    /// How long a blocking call gives up its time slice again and again before it parks its thread.
    /// Longer is faster to wake and busier while idle; zero parks at once.
    duration park_after = std::chrono::microseconds{200};
};

[[nodiscard]] inline failure validate(const broker_options& o) {
    if (o.memory_limit == 0) {
        return {errc::invalid_argument, "memory_limit is at least 1 byte"};
    }
    if (o.park_after < duration::zero()) {
        return {errc::invalid_argument, "park_after is not negative"};
    }
    return {};
}

namespace detail {

template <class Runtime>
class queue_core;

/// A message type without RTTI: its operations' address is its identity.
struct message_type {
    const core::payload_ops* ops = nullptr;
    std::string_view name{};

    friend bool operator==(const message_type& a, const message_type& b) noexcept {
        return a.ops == b.ops;
    }
};

template <class T>
[[nodiscard]] constexpr std::string_view type_name() noexcept {
#if defined(__clang__) || defined(__GNUC__)
    std::string_view all = __PRETTY_FUNCTION__;
    const auto from = all.find("T = ");
    if (from == std::string_view::npos) {
        return all;
    }
    all.remove_prefix(from + 4);
    return all.substr(0, all.find_first_of(";]"));
#else
    return "message";
#endif
}

template <class T>
[[nodiscard]] constexpr message_type message_type_of() noexcept {
    return {&core::payload_ops_of<T>::value, type_name<T>()};
}

/// Which broker's handler this thread is in, so that a call that would wait for its own caller
/// can refuse.
inline thread_local const void* handler_of = nullptr;

class handler_scope {
public:
    explicit handler_scope(const void* broker) noexcept
        : outer_{std::exchange(handler_of, broker)} {}
    handler_scope(const handler_scope&) = delete;
    handler_scope& operator=(const handler_scope&) = delete;
    ~handler_scope() { handler_of = outer_; }

private:
    const void* outer_;
};

/// A thread that is parked in some call of a broker.
template <class Runtime>
struct sleeper : boost::intrusive::list_base_hook<> {
    typename Runtime::parking_spot spot{};
};

/// What the queues of one broker share: time, memory, names, deadlines.
///
/// Lock order: a queue's lock, then the deadline list's, or the sleepers' and a parking spot's;
/// the names' lock is held alone.
template <class Runtime>
class broker_core : public std::enable_shared_from_this<broker_core<Runtime>> {
public:
    using queue_type = queue_core<Runtime>;
    using clock_type = typename Runtime::clock;

    broker_core(clock_type clock, broker_options options, std::uint64_t seed)
        : clock_{clock}
        , options_{std::move(options)}
        , budget_{std::make_shared<core::memory_budget<Runtime>>(options_.memory_limit)}
        , seed_{seed} {}

    [[nodiscard]] clock_type& clock() noexcept { return clock_; }
    [[nodiscard]] core::memory_budget<Runtime>& budget() noexcept { return *budget_; }
    [[nodiscard]] const auto& shared_budget() const noexcept { return budget_; }
    [[nodiscard]] const broker_options& options() const noexcept { return options_; }
    [[nodiscard]] bool is_listening() const noexcept { return bool{options_.observer}; }
    [[nodiscard]] std::uint64_t seed_for(std::uint64_t number) const noexcept {
        random_engine mix{seed_ ^ (number * 0x9e3779b97f4a7c15ULL)};
        return mix();
    }

    // Notices

    void notify(const std::vector<notice>& all) noexcept {
        for (const notice& n : all) {
            try {
                options_.observer(n);
            } catch (...) {
                count_swallowed();
            }
        }
    }
    void count_swallowed() noexcept { swallowed_.fetch_add(1); }
    [[nodiscard]] std::uint64_t swallowed() const noexcept { return swallowed_.load(); }

    // Names

    enum class lookup : std::uint8_t { find, open };

    [[nodiscard]] std::shared_ptr<queue_type> find(std::string_view name) const {
        std::lock_guard guard{names_mutex_};
        const auto it = names_.find(name);
        return it == names_.end() ? nullptr : it->second;
    }
    [[nodiscard]] std::vector<std::string> names() const {
        std::lock_guard guard{names_mutex_};
        std::vector<std::string> all;
        for (const auto& [name, queue] : names_) {
            all.push_back(name);
        }
        return all;
    }
    [[nodiscard]] std::vector<std::shared_ptr<queue_type>> queues() const {
        std::lock_guard guard{names_mutex_};
        std::vector<std::shared_ptr<queue_type>> all;
        for (const auto& [name, queue] : names_) {
            all.push_back(queue);
        }
        return all;
    }

    /// Opens or creates. With `options`, an existing queue must have been made with the same.
    [[nodiscard]] std::shared_ptr<queue_type>
    open(std::string_view name, message_type type, const queue_options* options, failure& failed) {
        static const queue_options defaults{};
        std::lock_guard guard{names_mutex_};
        if (closed_) {
            failed = {errc::closed, "the broker is closed"};
            return nullptr;
        }
        if (const auto it = names_.find(name); it != names_.end()) {
            failed = mismatch(*it->second, type, options);
            return failed ? nullptr : it->second;
        }
        const queue_options& wanted = options != nullptr ? *options : defaults;
        failed = validate_name(name);
        if (!failed) {
            failed = validate(wanted);
        }
        if (!failed) {
            failed = check_dead_letter(name, type, wanted);
        }
        if (failed) {
            return nullptr;
        }
        auto made = add(name, type, wanted);
        if (!wanted.dead_letter.is_discard()) {
            const std::string target =
                wanted.dead_letter.is_unset() ? default_name(name) : wanted.dead_letter.name();
            if (names_.find(target) == names_.end()) {
                add(target, type, dead_letter_options());
            }
        }
        return made;
    }

    /// The queue for dead letters of that name, made if it is missing.
    [[nodiscard]] std::shared_ptr<queue_type>
    dead_letter_queue(const std::string& name, message_type type, errc& failed) {
        std::lock_guard guard{names_mutex_};
        if (closed_) {
            failed = errc::closed;
            return nullptr;
        }
        if (const auto it = names_.find(name); it != names_.end()) {
            if (!(type_of(*it->second) == type)) {
                failed = errc::type_mismatch;
                return nullptr;
            }
            return it->second;
        }
        return add(name, type, dead_letter_options());
    }

    /// Removes the name. The queue itself lives on in its handles.
    [[nodiscard]] std::shared_ptr<queue_type> remove(std::string_view name) {
        std::lock_guard guard{names_mutex_};
        const auto it = names_.find(name);
        if (it == names_.end()) {
            return nullptr;
        }
        auto q = it->second;
        names_.erase(it);
        return q;
    }

    /// From now on nothing can be opened. Returns what there is, to the first caller alone.
    [[nodiscard]] std::vector<std::shared_ptr<queue_type>> close() {
        std::lock_guard guard{names_mutex_};
        std::vector<std::shared_ptr<queue_type>> all;
        if (!std::exchange(closed_, true)) {
            for (const auto& [name, queue] : names_) {
                all.push_back(queue);
            }
        }
        return all;
    }
    void forget_all() {
        std::map<std::string, std::shared_ptr<queue_type>, std::less<>> gone;
        {
            std::lock_guard guard{names_mutex_};
            gone.swap(names_);
        }
        std::lock_guard guard{due_mutex_};
        due_queues_.clear();
    }
    [[nodiscard]] bool is_closed() const {
        std::lock_guard guard{names_mutex_};
        return closed_;
    }

    /// Where queues send dead letters that were given no target of their own. Effective at once.
    void set_default_dead_letter(dead_letter_target target) {
        std::lock_guard guard{names_mutex_};
        default_dead_letter_ = std::move(target);
    }
    [[nodiscard]] dead_letter_target default_dead_letter(const std::string& queue) const {
        std::lock_guard guard{names_mutex_};
        return default_dead_letter_.is_unset() ? dead_letter_target{default_name(queue)}
                                               : default_dead_letter_;
    }

    // Time

    /// Whether something may be due anywhere: cheap, and never wrong when it says no.
    [[nodiscard]] RAILMQ_ALWAYS_INLINE bool is_due_at(time_point coarse) const noexcept {
        return coarse.time_since_epoch().count() >= maybe_due_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] bool is_due() const noexcept { return is_due_at(clock_.coarse_now()); }
    [[nodiscard]] time_point due() const noexcept { return time_point{duration{due_.load()}}; }

    /// Lets everything happen that is due by now.
    void catch_up() {
        const time_point now = clock_.now();
        if (now.time_since_epoch().count() >= due_.load()) {
            run_due(now);
        }
    }

    void run_due(time_point now);

    /// A queue has an earlier deadline than it had. Called with its lock held.
    void lower_due(queue_type& q, time_point due) noexcept;

    /// The queue has no deadline, or is going away.
    void forget_due(queue_type& q) noexcept;

    /// The exact next deadline of all queues.
    [[nodiscard]] time_point next_due();

    // Sleeping

    /// Blocks the calling thread until `s` is finished, or until `limit`; meanwhile keeps the
    /// broker's time if nobody else does. A simulation runs instead. True: finished.
    bool block(sleeper<Runtime>& s, time_point limit) {
        if constexpr (Runtime::concurrent) {
            return park(s, limit);
        } else {
            return clock_.sim().run_while_waiting([&] { return s.spot.finished(); }, limit);
        }
    }

    // Asynchronous operations

    [[nodiscard]] boost::asio::any_io_executor async_executor() const {
        if constexpr (Runtime::concurrent) {
            return options_.executor ? options_.executor
                                     : boost::asio::any_io_executor{boost::asio::system_executor{}};
        } else {
            return options_.executor ? options_.executor
                                     : boost::asio::any_io_executor{clock_.sim().get_executor()};
        }
    }

    /// Makes sure that deadlines pass while nobody calls: with a timer on the broker's executor, or
    /// on the system's. Not on that of an operation, which need not live as long as the broker. A
    /// simulation needs none.
    template <class Timer>
    void use_async_timer() {
        if constexpr (Runtime::concurrent) {
            std::unique_lock lock{sleepers_mutex_};
            const bool is_first = async_users_.fetch_add(1) == 0;
            if (timer_stopped_) {
                return;
            }
            if (set_timer_) {
                if (is_first) {
                    const auto set = set_timer_;
                    lock.unlock();
                    set();
                }
                return;
            }
            auto timer = std::make_shared<Timer>(this->weak_from_this(), async_executor());
            set_timer_ = [timer] { timer->set(); };
            stop_timer_ = [timer] { timer->stop(); };
            lock.unlock();
            timer->set();
        }
    }
    /// One asynchronous operation has ended. Without any, the timer rests, so that it does not keep
    /// its execution context busy.
    void leave_async_timer() {
        if constexpr (Runtime::concurrent) {
            std::function<void()> set;
            {
                std::lock_guard guard{sleepers_mutex_};
                if (async_users_.fetch_sub(1) == 1) {
                    set = set_timer_;
                }
            }
            if (set) {
                set();
            }
        }
    }
    /// Whether any asynchronous operation waits, and the timer is needed.
    [[nodiscard]] bool has_async_users() const noexcept { return async_users_.load() != 0; }
    void stop_async_timer() {
        std::function<void()> stop;
        {
            std::lock_guard guard{sleepers_mutex_};
            timer_stopped_ = true;
            stop = std::exchange(stop_timer_, nullptr);
            set_timer_ = nullptr;
        }
        if (stop) {
            stop();
        }
    }

private:
    bool park(sleeper<Runtime>& s, time_point until) requires Runtime::concurrent {
        std::unique_lock lock{sleepers_mutex_};
        sleepers_.push_back(s);
        for (;;) {
            // The first sleeper wakes for the broker's deadlines, the others for their own only.
            const bool keeps_time = &sleepers_.front() == &s;
            lock.unlock();
            const bool finished = s.spot.wait(keeps_time ? std::min(until, due()) : until);
            if (!finished) {
                catch_up();
            }
            const bool over = finished || s.spot.finished() || clock_.now() >= until;
            lock.lock();
            if (over) {
                sleepers_.erase(sleepers_.iterator_to(s));
                if (!sleepers_.empty()) {
                    sleepers_.front().spot.poke();
                }
                lock.unlock();
                return s.spot.finished();
            }
        }
    }

    void publish_due() noexcept {
        const time_point next = due_queues_.empty() ? never : due_queues_.begin()->first;
        due_.store(next.time_since_epoch().count());
        // The coarse clock may be late by its resolution: from then on the exact one is asked.
        maybe_due_.store(
            next == never ? never.time_since_epoch().count()
                          : saturating_add(next, -clock_.resolution()).time_since_epoch().count());
    }

    [[nodiscard]] static std::string default_name(std::string_view queue) {
        return std::string{queue} + ".dead";
    }
    /// Dead letters stay until somebody takes them out.
    [[nodiscard]] static queue_options dead_letter_options() {
        queue_options o;
        o.retry.max_attempts = 0;
        o.dead_letter = discard;
        return o;
    }

    static message_type type_of(queue_type& q) noexcept;
    [[nodiscard]] static failure
    mismatch(queue_type& have, message_type type, const queue_options* options);

    [[nodiscard]] failure
    check_dead_letter(std::string_view name, message_type type, const queue_options& wanted) const {
        if (wanted.dead_letter.is_discard()) {
            return {};
        }
        const std::string target =
            wanted.dead_letter.is_unset() ? default_name(name) : wanted.dead_letter.name();
        if (failure f = validate_name(target)) {
            f.what = "the dead-letter queue of '" + std::string{name} + "': " + f.what;
            return f;
        }
        const auto it = names_.find(target);
        if (it != names_.end() && !(type_of(*it->second) == type)) {
            return {
                errc::type_mismatch,
                "queue '" + std::string{name} + "' sends dead letters of type " +
                    std::string{type.name} + " to '" + target + "', which holds " +
                    std::string{type_of(*it->second).name}};
        }
        return {};
    }

    std::shared_ptr<queue_type>
    add(std::string_view name, message_type type, const queue_options& options) {
        auto q = std::make_shared<queue_type>(
            this->shared_from_this(), std::string{name}, type, options, ++queues_made_);
        names_.emplace(std::string{name}, q);
        return q;
    }

    clock_type clock_;
    broker_options options_;
    std::shared_ptr<core::memory_budget<Runtime>> budget_;
    std::uint64_t seed_;
    typename Runtime::template atomic<std::uint64_t> swallowed_{0};

    mutable typename Runtime::mutex names_mutex_{};
    std::map<std::string, std::shared_ptr<queue_type>, std::less<>> names_{};
    std::uint64_t queues_made_ = 0;
    dead_letter_target default_dead_letter_{};
    bool closed_ = false;

    typename Runtime::mutex due_mutex_{};
    std::set<std::pair<time_point, std::pair<std::uint64_t, queue_type*>>> due_queues_{};
    std::map<std::uint64_t, time_point> due_of_{};

    typename Runtime::mutex sleepers_mutex_{};
    boost::intrusive::list<sleeper<Runtime>> sleepers_{};
    std::function<void()> set_timer_{};
    std::function<void()> stop_timer_{};
    typename Runtime::template atomic<std::uint64_t> async_users_{0};
    bool timer_stopped_ = false;

    alignas(64) typename Runtime::template atomic<std::int64_t> maybe_due_{
        never.time_since_epoch().count()};
    typename Runtime::template atomic<std::int64_t> due_{never.time_since_epoch().count()};
};

} // namespace detail
} // namespace railmq
