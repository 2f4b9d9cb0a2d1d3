// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/journal.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

namespace railmq::storage {

/// How far a record has come.
enum class reached : std::uint8_t {
    appended, ///< It is in memory.
    written,  ///< The operating system has it: it survives the end of the process.
    synced,   ///< It is on the device: it survives the loss of power.
};

/// A journal that threads share: those that wait for their records at one time share a write and a
/// sync. One of them, the leader, does it for all; meanwhile others append, and the first of them
/// to wait is the next leader.
///
/// Before a sync the leader lets those append who were waiting when the last one ended: they were
/// told of it just now, and are likely to be back at once with their next records. It gives its
/// time slice away as long as they keep coming, until all are there or nobody has come for half the
/// time that the last sync took. A caller who is alone waits for nobody.
///
/// Thread safety: any call by any thread.
template <directory Directory>
class shared_journal {
public:
    using time_source = std::chrono::steady_clock::time_point (*)();

    /// `now` tells how long to wait for others, and decides nothing else.
    explicit shared_journal(
        journal<Directory> j, time_source now = &std::chrono::steady_clock::now) noexcept
        : now_{now}
        , journal_{std::move(j)} {
        publish();
    }
    shared_journal(const shared_journal&) = delete;
    shared_journal& operator=(const shared_journal&) = delete;
    ~shared_journal() = default;

    /// As `journal::append`. Waits for a flush only where a segment is full.
    std::uint64_t
    append(std::span<const std::byte> payload, error_code& ec, bool from_headroom = false) {
        typename journal<Directory>::appended where;
        return append(payload, from_headroom, where, ec);
    }

    /// Returns when all records up to `number`, or to the last one, have come that far.
    ///
    /// Errors: `journal_failed` when that is not known and never will be; `io_error` to the one
    /// whose call it was that failed; `journal_locked` in a forked process.
    void wait(std::uint64_t number, reached how_far, error_code& ec) {
        ec = {};
        while (!has_reached(number, how_far)) {
            std::unique_lock lock{mutex_};
            number = std::min(number, journal_.last());
            if (has_reached(number, how_far)) {
                return;
            }
            if (is_in_flush(number, how_far)) {
                ++flushed_callers_;
                wait_for_round(round_, lock);
                continue;
            }
            gathered_.fetch_add(1, std::memory_order_relaxed);
            if (has_leader_) {
                wait_for_round(round_ + 1, lock);
                continue;
            }
            lead(number, how_far, lock, ec);
            return;
        }
    }

    /// As `journal::close`, once a flush that is under way is over.
    void close(error_code& ec) {
        std::unique_lock lock{mutex_};
        flushed_.wait(lock, [&] { return !is_flushing_; });
        journal_.close(ec);
        publish();
    }

    /// As `append`, and says where the record is.
    std::uint64_t append(
        std::span<const std::byte> payload,
        bool from_headroom,
        typename journal<Directory>::appended& where,
        error_code& ec) {
        std::unique_lock lock{mutex_};
        flushed_.wait(
            lock, [&] { return !is_flushing_ || !journal_.needs_segment(payload.size()); });
        const std::uint64_t number = journal_.append(payload, ec, from_headroom);
        where = journal_.last_appended();
        publish(); // beginning a segment syncs the one before
        return number;
    }
    /// As `journal::has_room`. Waits for a flush only where a segment is full.
    [[nodiscard]] bool has_room(std::size_t payload, error_code& ec) {
        std::unique_lock lock{mutex_};
        flushed_.wait(lock, [&] { return !is_flushing_ || !journal_.needs_segment(payload); });
        const bool has = journal_.has_room(payload, ec);
        publish();
        return has;
    }
    /// Runs `f(journal)` with nobody else in it.
    template <class F>
    auto alone(F&& f) {
        std::unique_lock lock{mutex_};
        flushed_.wait(lock, [&] { return !is_flushing_; });
        const struct publisher {
            shared_journal& self;
            ~publisher() { self.publish(); }
        } after{*this};
        return f(journal_);
    }
    /// As `journal::read`, beside any other call.
    [[nodiscard]] record_view
    read(record_location where, typename journal<Directory>::read_ahead& ahead, error_code& ec) {
        return journal_.read(where, ahead, ec);
    }

    [[nodiscard]] std::uint64_t last() const {
        const std::lock_guard guard{mutex_};
        return journal_.last();
    }

private:
    // Callers wait for rounds, which are numbered: `round_` is the last that has begun, in which
    // its leader flushes, and the one after it gathers. Each of the two has a word of its own to
    // sleep on, so that nobody is woken whose round has not ended; and whoever is woken finds in
    // an atomic number what he wants to know, so that they do not all ask for the lock.

    [[nodiscard]] bool has_reached(std::uint64_t number, reached how_far) const noexcept {
        switch (how_far) {
        case reached::appended: return true;
        case reached::written: return written_.load(std::memory_order_acquire) >= number;
        case reached::synced: break;
        }
        return synced_.load(std::memory_order_acquire) >= number;
    }
    void publish() noexcept {
        written_.store(journal_.written(), std::memory_order_release);
        synced_.store(journal_.synced(), std::memory_order_release);
    }
    [[nodiscard]] bool is_in_flush(std::uint64_t number, reached how_far) const noexcept {
        return is_flushing_ && number <= flush_last_ &&
               (how_far == reached::written || flush_is_to_sync_);
    }

    void wait_for_round(std::uint32_t round, std::unique_lock<std::mutex>& lock) {
        lock.unlock();
        std::atomic<std::uint32_t>& ended = ended_[round % 2];
        std::uint32_t seen = ended.load(std::memory_order_acquire);
        while (static_cast<std::int32_t>(seen - round) < 0) { // the numbers may wrap around
            ended.wait(seen, std::memory_order_acquire);
            seen = ended.load(std::memory_order_acquire);
        }
    }
    void end_round(std::uint32_t round, std::unique_lock<std::mutex>& lock) {
        // With the lock: else a later round of the same word may end before this one has said so.
        ended_[round % 2].store(round, std::memory_order_release);
        lock.unlock();
        ended_[round % 2].notify_all();
        flushed_.notify_all();
    }

    /// Flushes for everybody who waits by then; returns without the lock.
    void lead(
        std::uint64_t number, reached how_far, std::unique_lock<std::mutex>& lock, error_code& ec) {
        has_leader_ = true;
        if (is_flushing_) {
            wait_for_round(round_, lock);
            lock.lock();
        }
        if (how_far == reached::synced && !journal_.has_failed()) {
            gather(lock);
        }
        const std::uint32_t round = ++round_;
        has_leader_ = false;
        flushed_callers_ = gathered_.exchange(0, std::memory_order_relaxed);
        // Meanwhile a new segment may have been begun, or the journal closed.
        if (!has_reached(number, how_far)) {
            flush(how_far == reached::synced, lock, ec);
            expected_ = flushed_callers_ + gathered_.load(std::memory_order_relaxed);
        }
        end_round(round, lock);
    }
    void gather(std::unique_lock<std::mutex>& lock) {
        const std::uint32_t expected = expected_;
        const auto patience = sync_time_ / 2;
        std::uint32_t seen = gathered_.load(std::memory_order_relaxed);
        if (seen >= expected) {
            return;
        }
        lock.unlock();
        auto last_arrival = now_();
        while (seen < expected) {
            std::this_thread::yield();
            const auto now = now_();
            const std::uint32_t before = seen;
            seen = gathered_.load(std::memory_order_relaxed);
            if (seen != before) {
                last_arrival = now;
            } else if (now - last_arrival >= patience) {
                break;
            }
        }
        lock.lock();
    }
    void flush(bool and_sync, std::unique_lock<std::mutex>& lock, error_code& ec) {
        auto batch = journal_.begin_flush(and_sync, ec);
        if (ec) {
            return;
        }
        is_flushing_ = true;
        flush_last_ = batch.last;
        flush_is_to_sync_ = batch.is_to_sync;
        lock.unlock();
        const auto begin = now_();
        journal_.carry_out(batch, ec);
        const auto end = now_();
        lock.lock();
        if (flush_is_to_sync_) {
            sync_time_ = end - begin;
        }
        journal_.end_flush(std::move(batch), ec);
        is_flushing_ = false;
        publish();
    }

    const time_source now_;
    mutable std::mutex mutex_{}; ///< Of everything but the atomics, which change with it held.
    std::condition_variable flushed_{};
    journal<Directory> journal_;
    bool is_flushing_ = false;
    bool flush_is_to_sync_ = false;
    std::uint64_t flush_last_ = 0;      ///< The last record of the flush that is under way.
    std::uint32_t flushed_callers_ = 0; ///< Who wait for it, its leader included.
    std::uint32_t round_ = 0;           ///< The last one that has begun.
    bool has_leader_ = false;           ///< The next one.
    std::uint32_t expected_ = 0;        ///< How many waited when the last one ended.
    std::chrono::steady_clock::duration sync_time_{};
    std::atomic<std::uint32_t> gathered_{0};            ///< Who wait for the next round.
    std::array<std::atomic<std::uint32_t>, 2> ended_{}; ///< Rounds of even and of odd numbers.
    std::atomic<std::uint64_t> written_{0};
    std::atomic<std::uint64_t> synced_{0};
};

} // namespace railmq::storage
