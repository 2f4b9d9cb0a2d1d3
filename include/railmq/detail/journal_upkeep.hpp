// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/line_journal.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/stored_contents.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace railmq::detail {

/// Keeps a broker's journal short. Every so often it goes round all queues, logs and exchanges and
/// writes again what they are, and which messages and bindings they have, where; from then on the
/// journal is read from the start of that round on. Segments before it hold nothing but payloads:
/// one of which no payload is wanted is deleted, and where few are wanted those are stored again,
/// so that it can be.
///
/// It works in small steps within the calls of the broker's users, whoever comes by.
///
/// Thread safety: any call by any thread, with no lock held.
template <class Broker>
class journal_upkeep {
public:
    /// Messages, or rows of records, that a step lists, and bytes that it reads to store them
    /// again.
    static constexpr std::size_t messages_a_step = 512;
    static constexpr std::size_t bytes_a_step = std::size_t{256} << 10;

    /// A round is made for every `round_every` bytes that are appended, the first after `first`.
    journal_upkeep(
        Broker& owner,
        storage::broker_journal* journal,
        std::uint64_t round_every,
        std::uint64_t first)
        : owner_{owner}
        , journal_{journal}
        , round_every_{round_every}
        , step_every_{std::min(std::uint64_t{64} << 10, round_every / 8)}
        , next_round_{first}
        , wanted_at_{first} {}
    journal_upkeep(const journal_upkeep&) = delete;
    journal_upkeep& operator=(const journal_upkeep&) = delete;

    /// Whether there is something to do; cheap.
    [[nodiscard]] bool is_wanted() const noexcept {
        return journal_ != nullptr &&
               journal_->appended() >= wanted_at_.load(std::memory_order_relaxed);
    }
    /// There is no space: everything is worth trying, at once.
    void hurry() noexcept {
        if (journal_->appended() < next_try_.load(std::memory_order_relaxed)) {
            return; // there was none a moment ago
        }
        is_urgent_.store(true, std::memory_order_relaxed);
        wanted_at_.store(0, std::memory_order_relaxed);
    }

    /// Much may be free by now that little was written about.
    void expect_space() noexcept { next_try_.store(0, std::memory_order_relaxed); }

    /// Does a little. Where it fails it tries again later: nothing depends on it but space.
    void step() noexcept {
        std::unique_lock lock{mutex_, std::try_to_lock};
        if (!lock) {
            return; // somebody else is at it
        }
        try {
            if (is_urgent_.exchange(false)) {
                free_space();
            } else {
                advance();
            }
        } catch (...) {
            rest(); // out of memory
        }
        const std::uint64_t now = journal_->appended();
        wanted_at_.store(
            state_ == state::idle ? std::max(next_round_, now + step_every_) : now + step_every_,
            std::memory_order_relaxed);
    }

    /// Goes round all queues now, in a segment of its own, so that opening has little to read.
    void finish() noexcept {
        const std::lock_guard guard{mutex_};
        if (journal_ == nullptr || journal_->appended() < step_every_) {
            rest(); // a round that was begun keeps queues, and they keep the broker
            return;
        }
        try {
            error_code ec;
            journal_->port().roll(ec);
            if (!ec) {
                begin_round();
                while (state_ == state::round) {
                    advance();
                }
                for (int steps = 0; steps < 16 && state_ != state::idle; ++steps) {
                    advance();
                }
            }
        } catch (...) { // NOLINT: it is read from where it was read before
        }
        rest();
    }

private:
    using queue_type = typename Broker::queue_type;
    using log_type = typename Broker::log_type;
    enum class state : std::uint8_t { idle, round, reclaim, store_fed, store_again };

    void rest() noexcept {
        state_ = state::idle;
        queues_.clear(); // they keep the broker alive
        logs_.clear();
        unopened_.clear();
        exchanges_.clear();
        unopened_logs_.clear();
    }

    void advance() {
        switch (state_) {
        case state::idle:
            if (journal_->appended() >= next_round_) {
                begin_round();
            }
            break;
        case state::round: list_some(); break;
        case state::reclaim: reclaim(); break;
        case state::store_fed: store_fed(); break;
        case state::store_again: store_some(); break;
        }
    }

    /// The disk is full: begins a segment, within what is reserved, so that the last one can go
    /// too.
    void free_space() {
        error_code ec;
        journal_->port().roll(ec);
        rest();
        begin_round();
        while (state_ == state::round) {
            advance();
        }
        for (int steps = 0; steps < 64 && state_ != state::idle; ++steps) {
            advance();
        }
        // What it takes must not be what is left: not again before something has happened.
        next_try_.store(journal_->appended() + step_every_ / 8, std::memory_order_relaxed);
    }

    void begin_round() {
        // In this order: a queue that is made meanwhile is in the segments from here on, or in the
        // list; one that is opened meanwhile is in one of the lists, or in both.
        round_from_ = journal_->port().segment();
        unopened_ = owner_.unopened_numbers();
        unopened_logs_ = owner_.unopened_log_numbers();
        queues_ = owner_.queues();
        exchanges_ = owner_.kept_exchange_numbers();
        logs_ = owner_.logs();
        round_began_ = journal_->appended();
        from_ = 0;
        in_log_ = {};
        record_.clear();
        storage::entry_writer{record_, journal_->wall()}.clock(owner_.clock().now());
        state_ = state::round;
        next_round_ = journal_->appended() + round_every_;
        if (!append()) {
            rest();
        }
    }

    void list_some() {
        bool is_written = true;
        if (!queues_.empty()) {
            queue_type& q = *queues_.back();
            is_written = !q.is_kept() || q.list_again(from_, messages_a_step, record_);
            if (!q.is_kept() || from_ == queue_type::no_more) {
                queues_.pop_back();
                from_ = 0;
            }
        } else if (!unopened_.empty()) {
            // One that was opened meanwhile is listed as that.
            const std::uint64_t number = unopened_.back();
            const bool is_there =
                owner_.list_unopened(number, from_, messages_a_step, record_, is_written);
            if (!is_there) {
                queues_ = owner_.queues_kept_as(number);
                from_ = 0;
                unopened_.pop_back();
                return;
            }
            if (from_ == queue_type::no_more) {
                unopened_.pop_back();
                from_ = 0;
            }
        } else if (!exchanges_.empty()) {
            is_written = owner_.list_exchange(exchanges_.back(), from_, messages_a_step, record_);
            if (from_ == queue_type::no_more) {
                exchanges_.pop_back();
                from_ = 0;
            }
        } else if (!logs_.empty() || !unopened_logs_.empty()) {
            is_written = list_some_of_log();
        } else {
            end_round();
            return;
        }
        if (!is_written) {
            rest();
        }
    }
    [[nodiscard]] bool list_some_of_log() {
        bool is_written = true;
        if (!logs_.empty()) {
            is_written = logs_.back()->list_again(in_log_, messages_a_step, record_);
            if (in_log_.is_done()) {
                logs_.pop_back();
                in_log_ = {};
            }
            return is_written;
        }
        const std::uint64_t number = unopened_logs_.back();
        const bool is_there =
            owner_.list_unopened_log(number, in_log_, messages_a_step, record_, is_written);
        if (!is_there) { // one that was opened meanwhile is listed as that
            logs_ = owner_.logs_kept_as(number);
        }
        if (!is_there || in_log_.is_done()) {
            unopened_logs_.pop_back();
            in_log_ = {};
        }
        return is_written;
    }

    void end_round() {
        error_code ec;
        journal_->port().read_from(round_from_, ec);
        // The next round is not before a multiple of what this one took, so that all rounds
        // together stay a small part of what is written.
        const std::uint64_t took = journal_->appended() - round_began_;
        next_round_ = journal_->appended() + std::max(round_every_, 4 * took);
        state_ = ec ? state::idle : state::reclaim;
    }

    /// Deletes the segments of which nothing is wanted, and looks for one of which little is.
    void reclaim() {
        state_ = state::idle;
        auto& port = journal_->port();
        error_code ec;
        const std::uint64_t read_from = port.is_read_from();
        const auto segments = port.segments(ec);
        if (ec) {
            return;
        }
        bool is_synced = false;
        std::uint64_t total = 0;
        std::uint64_t wanted = 0;
        std::uint64_t sparsest = 0;
        double least = 0.5;
        for (const auto& [number, size] : segments) {
            const auto used = journal_->used(number);
            if (number < read_from && used.messages == 0) {
                if (!is_synced) {
                    // What says that its messages are gone must not be lost before it is.
                    port.wait(port.last(), storage::reached::synced, ec);
                    is_synced = true;
                }
                if (!ec) {
                    port.remove_segment(number, ec);
                }
                if (ec) {
                    return;
                }
                journal_->forget_usage(number);
                continue;
            }
            total += size;
            wanted += static_cast<std::uint64_t>(std::max<std::int64_t>(used.bytes, 0));
            if (number < read_from && size != 0) {
                const double share = static_cast<double>(used.bytes) / static_cast<double>(size);
                if (share < least) {
                    least = share;
                    sparsest = number;
                }
            }
        }
        // Half of it may be waste, and two segments more.
        if (sparsest != 0 && total > 2 * wanted + 2 * round_every_) {
            next_ = {sparsest, storage::segment_header::size};
            unopened_ = owner_.unopened_fed_numbers();
            queues_ = owner_.queues();
            std::erase_if(queues_, [](const auto& q) { return !q->is_fed(); });
            state_ = unopened_.empty() && queues_.empty() ? state::store_again : state::store_fed;
        }
    }

    /// Messages of subscriptions that are records of logs there, which move.
    void store_fed() {
        error_code ec;
        if (!queues_.empty()) {
            queues_.back()->store_fed_again(next_.segment, record_, ec);
            queues_.pop_back();
        } else {
            owner_.store_fed_again(unopened_.back(), next_.segment, record_, ec);
            unopened_.pop_back();
        }
        if (ec) {
            rest(); // it stays as it is
        } else if (queues_.empty() && unopened_.empty()) {
            state_ = state::store_again;
        }
    }

    /// Goes through a segment, and stores again what is wanted.
    void store_some() {
        error_code ec;
        for (std::size_t seen = 0; seen < bytes_a_step;) {
            const storage::record_location here = next_;
            bool is_data = false;
            next_ = journal_->next_record(here, payload_, is_data, ec);
            if (ec) {
                state_ = state::idle; // it stays as it is; whoever wants what is in it will see
                return;
            }
            seen += payload_.size() + storage::record_header::size;
            storage::stored_contents found;
            if (is_data && found.read(payload_)) {
                for (const auto& m : found.all()) {
                    (void)owner_.store_again(m.queue, m.id, here, m.content, record_, ec);
                    if (ec) {
                        state_ = state::idle;
                        return;
                    }
                }
                for (const storage::log_run& run : found.runs()) {
                    (void)owner_.store_run_again(run, here, record_, ec);
                    if (ec) {
                        state_ = state::idle;
                        return;
                    }
                }
            }
            if (next_.segment == 0) {
                state_ = state::reclaim; // now it can go, and perhaps another one
                return;
            }
        }
    }

    [[nodiscard]] bool append() {
        storage::record_location where;
        error_code ec;
        return journal_->append(record_, where, ec) != 0;
    }

    Broker& owner_;
    storage::broker_journal* journal_;
    std::uint64_t round_every_;
    std::uint64_t step_every_; ///< A step for as many bytes, while there is something to do.
    std::mutex mutex_{};
    state state_ = state::idle;
    std::uint64_t next_round_;
    std::atomic<std::uint64_t> wanted_at_;
    std::atomic<bool> is_urgent_{false};
    std::atomic<std::uint64_t> next_try_{0}; ///< What must be appended before it is tried again.

    std::vector<std::shared_ptr<queue_type>> queues_{}; ///< Still to be listed.
    std::vector<std::uint64_t> unopened_{};
    std::vector<std::uint64_t> exchanges_{};
    std::vector<std::shared_ptr<log_type>> logs_{};
    std::vector<std::uint64_t> unopened_logs_{};
    log_listing in_log_{};
    std::uint64_t from_ = 0;
    std::uint64_t round_from_ = 0;
    std::uint64_t round_began_ = 0;
    storage::record_location next_{}; ///< Of the segment that is gone through.
    std::vector<std::byte> payload_{};
    std::vector<std::byte> record_{};
};

} // namespace railmq::detail
