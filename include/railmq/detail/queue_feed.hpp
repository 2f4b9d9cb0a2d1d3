// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_cursor.hpp>
#include <railmq/core/message_supply.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/detail/feed_journal.hpp>
#include <railmq/detail/feed_terms.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/detail/raw_value.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace railmq::detail {

/// Fills a queue from the partitions of a log, as far as its consumers come: a record becomes a
/// message, a copy, when somebody is about to get it. So a record is stored once however many
/// queues it is for, and one whose consumers are slow costs no more than a position.
///
/// Thread safety: with the queue's lock held; it takes partitions' locks.
template <class Runtime>
class queue_feed final : public core::message_supply<Runtime> {
    using queue_type = queue_core<Runtime>;
    using log_type = log_core<Runtime>;
    using line_type = log_line<Runtime>;
    using cursor_type = core::log_cursor<Runtime>;
    using effects_type = core::effects<Runtime>;

public:
    /// The queue owns it. Call `begin` before anything else.
    queue_feed(
        std::shared_ptr<log_type> log, const std::shared_ptr<queue_type>& q, feed_terms terms)
        : log_{std::move(log)}
        , queue_{*q}
        , kept_{q->is_kept() ? q->kept().feed() : nullptr}
        , weak_queue_{q}
        , terms_{std::move(terms)} {}
    ~queue_feed() override { queue_feed::end(); }

    /// Errors: `offset_out_of_range`, where there is no such place to start; `std::bad_alloc`.
    [[nodiscard]] errc begin() {
        const bool goes_on = kept_ != nullptr && kept_->has_positions();
        for (line_type* l : log_->lines()) {
            const auto partition = static_cast<std::uint32_t>(lanes_.size());
            // One that was added when it was not open begins with its first record.
            const errc e = !goes_on               ? add_lane(*l, terms_.start)
                           : !is_known(partition) ? add_lane(*l, log_start::earliest)
                                                  : go_on(*l, kept_->position(partition));
            if (e != errc{}) {
                return e;
            }
        }
        return errc{};
    }

    [[nodiscard]] bool refill(time_point now, effects_type& fx) override {
        has_stalled_ = false;
        is_held_up_ = false;
        if (is_over_ || has_enough()) {
            return false;
        }
        if (kept_ != nullptr && kept_->news() >= storage::max_fed_run) {
            is_held_up_ = std::exchange(has_drawn_, false); // else it could not be written
            return false;
        }
        try {
            add_new_lanes();
            for (std::size_t tried = 0; tried != lanes_.size(); ++tried) {
                lane& l = lanes_[turn_];
                turn_ = (turn_ + 1) % lanes_.size();
                if (refill_from(l, now, fx)) {
                    has_drawn_ = true;
                    return true;
                }
            }
        } catch (...) {
            // A copy has thrown, or there is no memory: it is tried again, at the same record.
            has_stalled_ = true;
            queue_.broker().count_swallowed();
        }
        return false;
    }

    [[nodiscard]] bool is_eager() const noexcept override {
        return queue_.asked_for().time_to_live.has_value() || queue_.asked_for().priorities > 1;
    }

    [[nodiscard]] bool is_held_up() const noexcept override { return is_held_up_; }

    [[nodiscard]] bool listen() override {
        const bool must_write = kept_ != nullptr && kept_->news() >= storage::max_fed_run;
        if (is_over_ || has_stalled_ || has_enough() || must_write) {
            return true;
        }
        if (lanes_.size() != log_->partitions()) {
            return false;
        }
        return std::all_of(
            lanes_.begin(), lanes_.end(), [](lane& l) { return l.line->listen(l.follower); });
    }

    [[nodiscard]] std::uint64_t backlog() const override {
        if (is_over_) {
            return left_;
        }
        std::uint64_t n = 0;
        for (const lane& l : lanes_) {
            const std::uint64_t end = l.line->end_offset();
            const std::uint64_t from = std::max(begin_of(l, end), l.line->start_offset());
            // What others have removed in between is not seen in the numbers.
            const bool is_dense = !terms_.wants && log_->options().cleanup == log_cleanup::remove;
            n += is_dense ? end - std::min(from, end) : count_wanted(*l.line, from);
        }
        return n;
    }

    [[nodiscard]] time_point oldest() const override {
        time_point first = never;
        for (const lane& l : lanes_) {
            if (is_over_) {
                break;
            }
            const std::uint64_t from =
                std::max(begin_of(l, l.line->end_offset()), l.line->start_offset());
            for_each_wanted(*l.line, from, [&](const core::log_entry& e) {
                first = std::min(first, e.timestamp);
                return false;
            });
        }
        return first;
    }

    std::uint64_t skip_all() override {
        const std::uint64_t n = backlog();
        for (lane& l : lanes_) {
            move_to(l, l.line->end_offset());
        }
        return n;
    }

    void end() noexcept override {
        if (!is_over_) {
            try {
                left_ = backlog();
            } catch (...) { // it is a figure for nobody but `stats`
                queue_.broker().count_swallowed();
            }
            is_over_ = true;
            if (kept_ != nullptr) {
                kept_->end();
            }
            for (lane& l : lanes_) {
                l.line->unfollow(l.follower);
                l.cursor.unpin();
            }
        }
    }

private:
    static constexpr std::size_t at_once = 64;
    /// So many messages may stand in line: enough to find one whose key is free, and few enough
    /// to hold in memory for each subscription.
    static constexpr std::uint64_t window = 1024;

    struct lane {
        line_type* line = nullptr;
        std::uint32_t partition = 0;
        log_follower<Runtime> follower{};
        cursor_type cursor{};
    };
    /// What is idle holds up nothing.
    struct let_go {
        lane& of;
        ~let_go() { of.cursor.unpin(); }
    };

    /// A record on its way to the queue. Fields are copied one by one: a copy of what was just
    /// written in parts would wait for them to come together.
    struct wanted_record {
        std::uint64_t offset;
        duration::rep sent_at; // a time point would be set to zero first
        const void* payload;
        const properties* props;
        const char* key; ///< Null: none.
        std::size_t key_size;

        wanted_record() noexcept {} // NOLINT: there are many, and few are used
        void set(const core::log_entry& e) noexcept {
            offset = e.offset;
            sent_at = e.timestamp.time_since_epoch().count();
            payload = e.payload;
            props = e.props;
            key = e.has_key ? (e.key.empty() ? "" : e.key.data()) : nullptr;
            key_size = e.key.size();
        }
        [[nodiscard]] time_point when() const noexcept { return time_point{duration{sent_at}}; }
        [[nodiscard]] bool is_plain() const noexcept { return props == nullptr && key == nullptr; }
    };

    [[nodiscard]] bool has_enough() const noexcept {
        return !is_eager() && queue_.machine().ready_count() >= window;
    }
    [[nodiscard]] std::uint64_t position(const lane& l) const noexcept {
        return l.follower.position.load(std::memory_order_relaxed);
    }
    /// Where it takes the next one, when what is too far back is skipped.
    [[nodiscard]] std::uint64_t begin_of(const lane& l, std::uint64_t end) const noexcept {
        return std::max(position(l), end - std::min(end, terms_.max_backlog));
    }

    [[nodiscard]] bool is_known(std::uint32_t partition) const noexcept {
        return kept_->position(partition) != feed_journal<Runtime>::no_position;
    }
    lane& new_lane(line_type& line) {
        lane& l = lanes_.emplace_back();
        l.line = &line;
        l.partition = static_cast<std::uint32_t>(lanes_.size() - 1);
        l.follower.queue = weak_queue_;
        l.follower.max_backlog = terms_.max_backlog;
        return l;
    }
    void is_kept_from_now_on(lane& l) {
        if (kept_ != nullptr) {
            kept_->begin(l.partition, l.follower);
        }
    }
    /// From where it was in another life; what has left since is passed over with the next look.
    [[nodiscard]] errc go_on(line_type& line, std::uint64_t position) {
        lane& l = new_lane(line);
        for (;;) {
            const std::uint64_t there =
                std::clamp(position, line.start_offset(), line.end_offset());
            const errc e = line.follow(l.follower, l.cursor, there);
            if (e == errc{}) {
                l.follower.begin_at(std::min(position, there));
                is_kept_from_now_on(l);
                return e;
            }
        }
    }
    [[nodiscard]] errc add_lane(line_type& line, const log_start& start) {
        lane& l = new_lane(line);
        for (;;) {
            const errc e = line.follow(l.follower, l.cursor, place_of(line, start));
            if (e == errc{}) {
                is_kept_from_now_on(l);
                return e;
            }
            if (start.kind() == log_start::kind_type::offset) {
                lanes_.pop_back();
                return e;
            } // else it was removed since: again
        }
    }
    /// Partitions that were added begin with their first record, whatever the rest began with.
    void add_new_lanes() {
        const auto& lines = log_->lines();
        while (lanes_.size() != lines.size()) {
            if (add_lane(*lines[lanes_.size()], log_start::earliest) != errc{}) {
                return;
            }
        }
    }
    [[nodiscard]] std::uint64_t place_of(line_type& line, const log_start& start) const {
        switch (start.kind()) {
        case log_start::kind_type::offset: return start.offset();
        case log_start::kind_type::time:
            return line.locked([&](auto& p, auto&, auto&) {
                const auto found = p.offset_for_time(start.time());
                return found ? found->offset : p.end_offset();
            });
        case log_start::kind_type::earliest: return line.start_offset();
        case log_start::kind_type::latest:
        case log_start::kind_type::none: break;
        }
        const std::uint64_t end = line.end_offset();
        const bool has_last = log_->interest().keeps_last && end != line.start_offset();
        return has_last ? end - 1 : end;
    }

    void move_to(lane& l, std::uint64_t position) {
        if (l.line->seek(l.cursor, position) == errc{}) {
            is_at(l, position);
        }
    }
    void is_at(lane& l, std::uint64_t position) noexcept {
        l.follower.position.store(position, std::memory_order_release);
        if (kept_ == nullptr) {
            l.follower.safe.store(position, std::memory_order_release);
        } else {
            kept_->is_at(l.partition, position);
        }
    }

    /// Passes over what nobody keeps any more: it was too far back, or is gone.
    void skip_lost(lane& l, time_point now, effects_type& fx) {
        const std::uint64_t from =
            std::max(begin_of(l, l.line->end_offset()), l.line->start_offset());
        const std::uint64_t before = position(l);
        if (from > before) {
            move_to(l, from);
            queue_.machine().count_skipped(position(l) - before, now, fx);
        }
    }

    bool refill_from(lane& l, time_point now, effects_type& fx) {
        const let_go later{l};
        for (;;) {
            skip_lost(l, now, fx);
            std::array<wanted_record, at_once> found;
            std::size_t n = 0;
            const auto status = l.cursor.read(at_once, unlimited, [&](const core::log_entry& e) {
                if (!e.is_tombstone && is_wanted(e)) {
                    found[n++].set(e);
                }
            });
            switch (status) {
            case core::read_status::at_end: return false;
            case core::read_status::out_of_range: continue; // counted in the next round
            case core::read_status::elsewhere:
                (void)l.line->enter(l.cursor, now); // removed since: the next round sees it
                continue;
            case core::read_status::ok: break;
            }
            const std::size_t stored = take(l, std::span{found.data(), n}, now, fx);
            if (stored == n) {
                is_at(l, l.cursor.position());
            } else {
                move_to(l, found[stored].offset);
                has_stalled_ = true;
            }
            if (stored != 0 || has_stalled_) {
                return stored != 0;
            }
        }
    }

    /// A filter that throws says nothing: the message is not lost for that.
    [[nodiscard]] bool is_wanted(const core::log_entry& e) const noexcept {
        if (!terms_.wants) {
            return true;
        }
        try {
            return terms_.wants(e.payload, e.props);
        } catch (...) {
            queue_.broker().count_swallowed();
            return true;
        }
    }

    /// Returns how many it stored; where the queue is kept, it knows where they lie.
    std::size_t
    take(lane& l, std::span<const wanted_record> records, time_point now, effects_type& fx) {
        if (kept_ == nullptr) {
            return store(records, now, fx);
        }
        std::array<std::uint64_t, at_once> offsets;
        std::array<storage::kept_at, at_once> places;
        for (std::size_t i = 0; i != records.size(); ++i) {
            offsets[i] = records[i].offset;
        }
        kept_->reserve(records.size());
        l.line->pin(
            std::span{offsets.data(), records.size()}, std::span{places.data(), records.size()});
        const std::size_t before = fx.changes.size();
        const std::size_t stored = store(records, now, fx);
        std::size_t n = 0;
        for (std::size_t i = before; i != fx.changes.size(); ++i) { // in the order of records
            const core::message_change& c = fx.changes[i];
            for (std::uint64_t of = 0;
                 c.what == core::message_change::kind::stored && of != c.count && n != stored;
                 ++of, ++n) {
                kept_->has_taken(c.public_id + of, l.partition, offsets[n], places[n]);
            }
        }
        for (; n != records.size(); ++n) {
            kept_->unpin(places[n]);
        }
        return stored;
    }

    /// Returns how many it stored.
    std::size_t
    store(std::span<const wanted_record> records, time_point now, effects_type& fx) noexcept {
        const auto& ops = *queue_.type().ops;
        auto& m = queue_.machine();
        static constexpr std::array<std::size_t, at_once> no_bytes{};
        std::size_t done = 0;
        try {
            while (done != records.size()) {
                std::size_t plain = done; // the end of those with nothing but a payload
                while (plain != records.size() && records[plain].is_plain()) {
                    ++plain;
                }
                errc failed{};
                const std::size_t first = done;
                const core::encoded_row row{{}, std::span{no_bytes}.first(plain - first)};
                const auto copy = [&](std::size_t i, void* to) {
                    ops.copy(to, records[first + i].payload);
                    ++done;
                    return records[first + i].when();
                };
                if (m.store_row(row, copy, now, fx, failed) != 0) {
                    continue;
                }
                const wanted_record& one = records[done];
                std::unique_ptr<properties> props;
                if (!one.is_plain()) {
                    props = one.props != nullptr ? std::make_unique<properties>(*one.props)
                                                 : std::make_unique<properties>();
                    if (one.key != nullptr) {
                        props->key = std::string{one.key, one.key_size};
                    }
                }
                raw_value payload{ops};
                payload.copy_of(one.payload);
                if (m.adopt_supplied(payload.get(), props, one.when(), now, fx) != errc{}) {
                    break;
                }
                payload.was_moved();
                ++done;
            }
        } catch (...) {
            queue_.broker().count_swallowed();
        }
        return done;
    }

    template <class Each>
    void for_each_wanted(line_type& line, std::uint64_t from, Each&& each) const {
        cursor_type c;
        if (line.seek(c, from) != errc{}) {
            return;
        }
        for (bool goes_on = true; goes_on;) {
            const auto status = c.read(1, unlimited, [&](const core::log_entry& e) {
                goes_on = e.is_tombstone || !is_wanted(e) || each(e);
            });
            if (status == core::read_status::elsewhere) {
                goes_on = line.seek(c, c.position()) == errc{};
            } else if (status != core::read_status::ok) {
                return;
            }
        }
    }
    [[nodiscard]] std::uint64_t count_wanted(line_type& line, std::uint64_t from) const {
        std::uint64_t n = 0;
        for_each_wanted(line, from, [&](const core::log_entry&) {
            ++n;
            return true;
        });
        return n;
    }

    std::shared_ptr<log_type> log_;
    queue_type& queue_;
    feed_journal<Runtime>* const kept_; ///< Null: it is in memory alone.
    std::weak_ptr<queue_type> weak_queue_;
    const feed_terms terms_;
    std::deque<lane> lanes_{}; ///< Partitions know where they are.
    std::size_t turn_ = 0;
    std::uint64_t left_ = 0;
    bool has_stalled_ = false;
    bool has_drawn_ = false;
    bool is_held_up_ = false;
    bool is_over_ = false;
};

} // namespace railmq::detail
