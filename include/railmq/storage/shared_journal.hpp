// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/journal.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

namespace railmq::storage {

/// How far a record has come.
enum class reached : std::uint8_t {
    appended, ///< It is in memory.
    written,  ///< The operating system has it: it survives the end of the process.
    synced,   ///< It is on the device: it survives the loss of power.
};

/// A journal that threads share: those that wait for their records at one time share a write and a
/// sync. Whoever comes first does it for all that have appended by then; meanwhile others append,
/// and the next one does it for them.
///
/// Thread safety: any call by any thread.
template <directory Directory>
class shared_journal {
public:
    explicit shared_journal(journal<Directory> j) noexcept
        : journal_{std::move(j)} {}
    shared_journal(const shared_journal&) = delete;
    shared_journal& operator=(const shared_journal&) = delete;
    ~shared_journal() = default;

    /// As `journal::append`. Waits for a flush only where a segment is full.
    std::uint64_t
    append(std::span<const std::byte> payload, error_code& ec, bool from_headroom = false) {
        std::unique_lock lock{mutex_};
        flushed_.wait(
            lock, [&] { return !is_flushing_ || !journal_.needs_segment(payload.size()); });
        return journal_.append(payload, ec, from_headroom);
    }

    /// Returns when all records up to `number`, or to the last one, have come that far.
    ///
    /// Errors: `journal_failed` when that is not known and never will be; `io_error` to the one
    /// whose call it was that failed; `journal_locked` in a forked process.
    void wait(std::uint64_t number, reached how_far, error_code& ec) {
        ec = {};
        std::unique_lock lock{mutex_};
        number = std::min(number, journal_.last());
        while (!has_reached(number, how_far)) {
            if (is_flushing_) {
                flushed_.wait(lock);
                continue;
            }
            auto batch = journal_.begin_flush(how_far == reached::synced, ec);
            if (ec) {
                return;
            }
            is_flushing_ = true;
            lock.unlock();
            journal_.carry_out(batch, ec);
            lock.lock();
            journal_.end_flush(std::move(batch), ec);
            is_flushing_ = false;
            flushed_.notify_all();
            if (ec) {
                return;
            }
        }
    }

    /// As `journal::close`, once a flush that is under way is over.
    void close(error_code& ec) {
        std::unique_lock lock{mutex_};
        flushed_.wait(lock, [&] { return !is_flushing_; });
        journal_.close(ec);
    }

    /// As `append`, and says where the record is.
    std::uint64_t append(
        std::span<const std::byte> payload,
        bool from_headroom,
        record_location& where,
        error_code& ec) {
        std::unique_lock lock{mutex_};
        flushed_.wait(
            lock, [&] { return !is_flushing_ || !journal_.needs_segment(payload.size()); });
        const std::uint64_t number = journal_.append(payload, ec, from_headroom);
        where = journal_.appended_at();
        return number;
    }
    /// As `journal::has_room`. Waits for a flush only where a segment is full.
    [[nodiscard]] bool has_room(std::size_t payload, error_code& ec) {
        std::unique_lock lock{mutex_};
        flushed_.wait(lock, [&] { return !is_flushing_ || !journal_.needs_segment(payload); });
        return journal_.has_room(payload, ec);
    }
    /// Runs `f(journal)` with nobody else in it.
    template <class F>
    auto alone(F&& f) {
        std::unique_lock lock{mutex_};
        flushed_.wait(lock, [&] { return !is_flushing_; });
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
    [[nodiscard]] bool has_reached(std::uint64_t number, reached how_far) const noexcept {
        switch (how_far) {
        case reached::appended: return true;
        case reached::written: return journal_.written() >= number;
        case reached::synced: break;
        }
        return journal_.synced() >= number;
    }

    mutable std::mutex mutex_{};
    std::condition_variable flushed_{};
    journal<Directory> journal_;
    bool is_flushing_ = false;
};

} // namespace railmq::storage
