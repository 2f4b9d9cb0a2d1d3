// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_cursor.hpp>
#include <railmq/detail/log_lane.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/detail/log_receive.hpp>
#include <railmq/detail/log_waiter.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/time.hpp>

#include <boost/asio/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

/// How a reader of a log gets records, and how it waits for them.
namespace railmq::detail {

template <class Runtime>
template <class Sink>
bool log_reader<Runtime>::take(
    std::size_t max, Sink& sink, time_point& again_at, errc& failed, std::uint64_t& seen) {
    std::unique_lock lock{mutex_, std::defer_lock};
    // Acknowledgements come from other threads, and have to find what they acknowledge.
    if (group_ != nullptr || waiting_failures_.load(std::memory_order_acquire) != 0) {
        lock.lock();
    }
    seen = changes_.load();
    // On with the lane that had some last, for a while: with many partitions, of which few are
    // busy, a way around all of them costs more than the records.
    constexpr std::size_t for_a_while = 64;
    std::size_t n = 0;
    const std::size_t count = lanes_.size();
    std::size_t at = turn_ < count ? turn_ : 0;
    for (std::size_t k = 0; k < count && n < max; ++k) {
        lane& l = *lanes_[at];
        if (!l.is_paused) {
            const std::size_t before = n;
            n += take_from(l, max - n, lock.owns_lock(), sink, again_at, failed);
            if (n != before) {
                taken_in_turn_ = n - before + (at == turn_ ? taken_in_turn_ : 0);
                turn_ = at;
            }
        }
        at = at + 1 == count ? 0 : at + 1;
    }
    if (taken_in_turn_ >= for_a_while) {
        ++turn_;
        taken_in_turn_ = 0;
    }
    return n != 0;
}

template <class Runtime>
template <class Sink>
std::size_t log_reader<Runtime>::take_from(
    lane& l, std::size_t max, bool is_locked, Sink& sink, time_point& again_at, errc& failed) {
    std::size_t n = 0;
    l.is_held = false;
    if (is_locked && !l.failures.empty()) {
        n = give_again(l, max, sink, again_at);
        if (l.is_held || n == max) {
            return n;
        }
    }
    if (!l.is_placed && !place(l, failed)) {
        return n;
    }
    for (;;) {
        const auto status = l.cursor.read(max - n, unlimited, [&](const core::log_entry& e) {
            if (group_ != nullptr) {
                try {
                    l.tracker.hand_out(e.offset);
                } catch (...) { // no memory: it is still to be read
                    l.is_placed = false;
                    l.goes_to = e.offset;
                    throw;
                }
            }
            sink(lease_type{e, l.cursor.pin(), l.partition, 0, l.tracker.epoch()});
            ++n;
        });
        if (status == core::read_status::at_end || n == max) {
            return n;
        }
        if (status == core::read_status::ok) {
            continue; // there may be more in the next segment
        }
        if (status == core::read_status::out_of_range || l.line->enter(l.cursor) != errc{}) {
            l.is_placed = false;
            l.goes_to = l.cursor.position();
            if (!place(l, failed)) {
                return n;
            }
        }
    }
}

template <class Runtime>
bool log_reader<Runtime>::place(lane& l, errc& failed) {
    if (l.failed_with != errc{}) {
        failed = l.failed_with;
        return false;
    }
    while (l.line->seek(l.cursor, l.goes_to) != errc{}) {
        if (options_.start.kind() == log_start::kind_type::none) {
            failed = l.failed_with = errc::offset_out_of_range;
            return false;
        }
        const std::uint64_t to = options_.start.kind() == log_start::kind_type::latest
                                     ? l.line->end_offset()
                                     : l.line->start_offset();
        skipped_ += to > l.goes_to ? to - l.goes_to : 0;
        l.goes_to = to;
        if (group_ != nullptr) {
            l.tracker.skip_to(to);
            touch(l);
        }
    }
    l.is_placed = true;
    return true;
}

template <class Runtime>
template <class Sink>
std::size_t
log_reader<Runtime>::give_again(lane& l, std::size_t max, Sink& sink, time_point& again_at) {
    const time_point now = log_->broker().clock().now();
    std::size_t n = 0;
    for (auto f = l.failures.begin(); f != l.failures.end() && n < max;) {
        if (!f->is_waiting) {
            ++f;
            continue;
        }
        if (f->is_dead) { // whoever moves it, wakes who waits
            again_at = f->is_moving ? again_at : std::min(again_at, f->due);
            l.is_held = true;
            return n;
        }
        if (f->due > now) {
            again_at = std::min(again_at, f->due);
            l.is_held = true;
            return n;
        }
        core::log_cursor<Runtime> there;
        bool is_found = false;
        if (l.line->seek(there, f->offset) == errc{}) {
            (void)there.read(1, unlimited, [&](const core::log_entry& e) {
                if (e.offset == f->offset) {
                    is_found = true;
                    sink(lease_type{e, there.pin(), l.partition, f->count, l.tracker.epoch()});
                }
            });
        }
        waiting_failures_.fetch_sub(1);
        if (is_found) {
            f->is_waiting = false;
            ++f;
            ++n;
        } else { // removed meanwhile: there is nothing to do any more
            ++skipped_;
            failures_.fetch_sub(1);
            (void)l.tracker.ack(l.tracker.epoch(), f->offset);
            touch(l);
            f = l.failures.erase(f);
        }
    }
    return n;
}

template <class Runtime>
bool log_reader<Runtime>::enter_lists(log_waiter<Runtime>& w, std::uint64_t seen) {
    is_listed_ = true;
    {
        std::lock_guard guard{mutex_};
        if (changes_.load() != seen) {
            return false;
        }
        waiter_ = &w;
    }
    waits_at_.reserve(lanes_.size() + 1);
    for (const auto& l : lanes_) {
        if (!l->is_paused && !l->is_held) {
            waits_at_.push_back(l->line);
            if (!l->line->wait_behind(l->cursor.position(), w)) {
                return false;
            }
        }
    }
    if (waits_at_.empty() && group_ == nullptr) { // it still has to learn of the log's end
        waits_at_.push_back(log_->lines().front());
        (void)waits_at_.back()->wait_behind(~std::uint64_t{0}, w);
    }
    if (group_ != nullptr && !group_->park(member_, w)) {
        return false;
    }
    return log_->closed() == errc{}; // it may have been closed before this one waited
}

template <class Runtime>
void log_reader<Runtime>::leave_lists(log_waiter<Runtime>& w) noexcept {
    if (!std::exchange(is_listed_, false)) {
        return;
    }
    {
        std::lock_guard guard{mutex_};
        waiter_ = nullptr;
        due_ = never;
    }
    for (auto* l : waits_at_) {
        l->leave(w);
    }
    waits_at_.clear();
    if (group_ != nullptr) {
        group_->unpark(member_);
    }
}

template <class Runtime>
bool log_reader<Runtime>::park(time_point until, std::uint64_t seen) {
    log_waiter<Runtime> w;
    struct registration {
        log_reader& reader;
        log_waiter<Runtime>& w;
        registration(log_reader& r, log_waiter<Runtime>& waiter) noexcept
            : reader{r}
            , w{waiter} {}
        registration(const registration&) = delete;
        registration& operator=(const registration&) = delete;
        ~registration() { reader.leave_lists(w); }
    };
    registration here{*this, w};
    return !enter_lists(w, seen) || log_->broker().block(w.thread, until);
}

// Asynchronous receives. The first of them is listed where a thread would be, and is sent to its
// executor by whoever wakes it; there it leaves all lists, looks, and is listed again. Whoever else
// uses the reader meanwhile takes it off the lists and sends it to its executor in the end.

template <class Runtime>
void log_reader<Runtime>::start(receive_type& r) noexcept {
    try {
        receives_.push_back(&r);
    } catch (...) {
        r.result = errc::memory_limit;
        r.done(r);
        return;
    }
    if (receives_.size() == 1 && depth_ == 0) {
        step(r);
    } else {
        r.needs_step = true;
    }
}

template <class Runtime>
void log_reader<Runtime>::step(receive_type& r) noexcept {
    if (depth_ != 0) { // in a simulation, in which somebody waits in a receive
        r.needs_step = true;
        return;
    }
    using state = typename receive_type::state_type;
    for (;;) {
        leave_lists(r);
        r.state.store(state::looks);
        bool waits = false;
        ++depth_;
        try {
            waits = look(r);
        } catch (...) { // what was got is there; else there is no memory
            if (r.got.empty()) {
                r.result = errc::memory_limit;
            }
        }
        --depth_;
        if (!waits) {
            finish(r);
            return;
        }
        // From then on somebody else may be at it, and here nothing is touched any more.
        auto expected = state::looks;
        if (r.state.compare_exchange_strong(expected, state::waits)) {
            return;
        }
    }
}

template <class Runtime>
bool log_reader<Runtime>::look(receive_type& r) {
    auto& owner = log_->broker();
    for (;;) {
        owner.catch_up();
        try {
            attend();
        } catch (...) { // a rebalance callback; there is nobody to throw to
            owner.count_swallowed();
        }
        if (r.is_cancelled) {
            r.result = boost::asio::error::operation_aborted;
            return false;
        }
        if (const errc why = why_not(); why != errc{}) {
            r.result = why;
            return false;
        }
        move_dead_letters();
        time_point again_at = never;
        errc failed{};
        std::uint64_t seen = 0;
        auto sink = [&r](lease_type&& l) { r.got.push_back(std::move(l)); };
        if (take(r.max, sink, again_at, failed, seen)) {
            return false;
        }
        if (failed != errc{}) {
            r.result = failed;
            return false;
        }
        if (group_ != nullptr) {
            owner.flush_idle(); // commits that nobody waits for
        }
        if (enter_lists(r, seen)) {
            std::lock_guard guard{mutex_};
            due_ = again_at;
            tell_due();
            return true;
        }
        leave_lists(r);
    }
}

template <class Runtime>
void log_reader<Runtime>::finish(receive_type& r) noexcept {
    leave_lists(r);
    receives_.pop_front();
    if (!receives_.empty()) {
        go_on();
    }
    r.done(r);
}

template <class Runtime>
bool log_reader<Runtime>::withdraw(receive_type& r) noexcept {
    const auto it = std::find(receives_.begin(), receives_.end(), &r);
    if (it == receives_.end()) {
        return false;
    }
    using state = typename receive_type::state_type;
    if (!r.needs_step && r.state.exchange(state::woken) != state::waits) {
        r.is_cancelled = true; // it looks, or is about to
        return false;
    }
    const bool is_first = it == receives_.begin();
    if (is_first) {
        leave_lists(r);
    }
    receives_.erase(it);
    if (is_first && depth_ == 0 && !receives_.empty()) {
        go_on();
    }
    return true;
}

template <class Runtime>
void log_reader<Runtime>::interrupt() noexcept {
    using state = typename receive_type::state_type;
    receive_type& r = *receives_.front();
    leave_lists(r);
    if (r.state.exchange(state::woken) == state::waits) {
        r.needs_step = true;
    }
}

template <class Runtime>
void log_reader<Runtime>::go_on() noexcept {
    receive_type& r = *receives_.front();
    if (std::exchange(r.needs_step, false)) {
        r.look(r);
    }
}

} // namespace railmq::detail
