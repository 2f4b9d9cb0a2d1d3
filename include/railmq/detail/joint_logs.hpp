// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/joint_entries.hpp>
#include <railmq/detail/log_run.hpp>
#include <railmq/detail/log_settlement.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/receipt.hpp>
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::detail {

/// What a transaction does in logs and their groups.
///
/// Thread safety: belongs to its transaction.
template <class Runtime>
class joint_logs {
public:
    using run_type = log_run<Runtime>;
    using settlement_type = log_settlement<Runtime>;
    using reader_type = log_reader<Runtime>;
    using log_type = log_core<Runtime>;
    using mark_type = typename reader_type::position_mark;

    [[nodiscard]] bool is_empty() const noexcept { return runs_.empty() && settlements_.empty(); }
    [[nodiscard]] bool has_sends() const noexcept { return !runs_.empty(); }

    // What is to happen. Each throws `std::bad_alloc`, and then nothing has changed.

    /// Errors: as of `log_run::add`.
    [[nodiscard]] errc send(
        const std::shared_ptr<log_type>& log,
        std::uint32_t partition,
        log_author<Runtime> author,
        typename run_type::record& r,
        const append_options& o,
        durability wanted) {
        for (const auto& run : runs_) {
            if (&run->log() == log.get() && run->partition() == partition) {
                return run->add(r, author, o, wanted);
            }
        }
        auto made = std::make_unique<run_type>(log, partition, author);
        runs_.reserve(runs_.size() + 1);
        const errc e = made->add(r, author, o, wanted);
        if (e == errc{}) {
            runs_.push_back(std::move(made));
        }
        return e;
    }
    void ack(const std::shared_ptr<reader_type>& by, const mark_type& m) {
        settlement_of(by).ack(m);
    }
    void commit_to(const std::shared_ptr<reader_type>& by, std::span<const mark_type> all) {
        settlement_of(by).commit_to(all);
    }

    /// How safe the sends are to be, of which there are some.
    [[nodiscard]] durability wanted() const noexcept {
        durability all = runs_.front()->wanted();
        for (const auto& r : runs_) {
            all = stronger(all, r->wanted());
        }
        return all;
    }
    /// That will be written, at most.
    [[nodiscard]] std::size_t bytes() const noexcept {
        std::size_t n = 0;
        for (const auto& r : runs_) {
            n += r->bytes();
        }
        for (const auto& s : settlements_) {
            n += s->bytes();
        }
        return n;
    }

    // How it happens: with all locks taken it is asked whether it can, and then nothing fails.

    using mutex_type = typename Runtime::mutex;
    using lock_list = std::vector<std::unique_lock<mutex_type>>;

    /// Those that come before the queues' locks.
    [[nodiscard]] lock_list lock_producers() const {
        std::vector<mutex_type*> all;
        for (const auto& r : runs_) {
            if (r->numbering() != nullptr) {
                all.push_back(&r->numbering()->mutex);
            }
        }
        return lock(all);
    }
    /// Those that come behind them.
    [[nodiscard]] lock_list lock_logs() const {
        std::vector<mutex_type*> readers;
        std::vector<mutex_type*> groups;
        std::vector<mutex_type*> lines;
        for (const auto& s : settlements_) {
            readers.push_back(&s->reader().mutex());
            groups.push_back(&s->group().mutex());
        }
        for (const auto& r : runs_) {
            lines.push_back(&r->line().mutex());
        }
        lock_list all = lock(readers);
        for (auto* more : {&groups, &lines}) {
            for (auto& l : lock(*more)) {
                all.push_back(std::move(l));
            }
        }
        return all;
    }

    /// Errors: as of a send, and of `log_settlement::begin`. Throws `std::bad_alloc`. Nothing has
    /// happened then; else what is committed is, until it is `undo`ne.
    [[nodiscard]] errc begin(time_point now) {
        for (const auto& r : runs_) {
            if (const errc e = r->begin(now); e != errc{}) {
                return e;
            }
        }
        begun_ = 0;
        try {
            for (const auto& s : settlements_) {
                if (const errc e = s->begin(); e != errc{}) {
                    undo();
                    return e;
                }
                ++begun_;
            }
        } catch (...) {
            undo();
            throw;
        }
        return errc{};
    }
    void undo() noexcept {
        for (; begun_ != 0; --begun_) {
            settlements_[begun_ - 1]->undo();
        }
    }
    /// It happens, and nobody sees the records.
    void fill() noexcept {
        for (const auto& r : runs_) {
            r->fill();
        }
    }
    /// What of it goes into the record of the journal.
    class entries final : public joint_entries {
    public:
        explicit entries(joint_logs& of) noexcept
            : of_{of} {}
        void put(std::vector<std::byte>& record) override {
            for (const auto& r : of_.runs_) {
                r->put(record);
            }
            for (const auto& s : of_.settlements_) {
                s->put(record);
            }
        }
        void written(storage::record_location where) noexcept override {
            at_ = where;
            is_written_ = true;
            for (const auto& s : of_.settlements_) {
                s->was_written();
            }
        }
        void not_written(errc why) noexcept override { unwritten_ = why; }

        /// Null: nowhere.
        [[nodiscard]] const storage::record_location* at() const noexcept {
            return is_written_ ? &at_ : nullptr;
        }
        [[nodiscard]] errc unwritten() const noexcept { return unwritten_; }

    private:
        joint_logs& of_;
        storage::record_location at_{};
        bool is_written_ = false;
        errc unwritten_{};
    };
    /// Shows all of it.
    void end(const entries& e) noexcept {
        for (const auto& r : runs_) {
            r->end(e.at());
        }
        for (const auto& s : settlements_) {
            s->end();
        }
        begun_ = 0;
    }
    void report(std::span<transaction_receipt> receipts) const noexcept {
        for (const auto& r : runs_) {
            r->report(receipts);
        }
    }
    /// With no lock held: what follows from it, whatever has become of it. `unwritten`: why its
    /// record could not be written, where nobody else tells.
    void finish(errc unwritten) noexcept {
        for (const auto& s : settlements_) {
            const auto& log = s->reader().log();
            if (const errc why = s->finish(); why != errc{}) {
                log.broker().tell_unwritten(log.name(), why);
            }
        }
        if (unwritten != errc{}) {
            const auto& log =
                runs_.empty() ? settlements_.front()->reader().log() : runs_.front()->log();
            log.broker().tell_unwritten(log.name(), unwritten);
        }
        for (const auto& r : runs_) {
            r->finish();
        }
    }

    /// Forgets all of it.
    void clear() noexcept {
        runs_.clear();
        settlements_.clear();
    }
    /// The same; what was to be acknowledged comes again.
    void abort() noexcept {
        runs_.clear();
        for (const auto& s : std::exchange(settlements_, {})) {
            s->drop();
        }
    }

private:
    [[nodiscard]] settlement_type& settlement_of(const std::shared_ptr<reader_type>& by) {
        for (const auto& s : settlements_) {
            if (&s->reader() == by.get()) {
                return *s;
            }
        }
        return *settlements_.emplace_back(std::make_unique<settlement_type>(by));
    }
    /// In the order of their addresses, so that two transactions cannot wait for each other.
    [[nodiscard]] static lock_list lock(std::vector<mutex_type*>& which) {
        std::sort(which.begin(), which.end(), std::less<>{});
        which.erase(std::unique(which.begin(), which.end()), which.end());
        lock_list all;
        all.reserve(which.size());
        for (mutex_type* m : which) {
            all.emplace_back(*m);
        }
        return all;
    }

    std::vector<std::unique_ptr<run_type>> runs_{};
    std::vector<std::unique_ptr<settlement_type>> settlements_{};
    std::size_t begun_ = 0; ///< Of the settlements.
};

} // namespace railmq::detail
