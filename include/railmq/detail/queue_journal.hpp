// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/effects.hpp>
#include <railmq/core/queue_machine.hpp>
#include <railmq/detail/absent_payloads.hpp>
#include <railmq/detail/feed_journal.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/id_map.hpp>
#include <railmq/storage/kept_state.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::detail {

/// A queue's part of the broker's journal: writes what changed in it, and knows where its messages
/// are stored.
///
/// Thread safety: with the queue's lock held.
template <class Runtime>
class queue_journal {
public:
    using machine_type = core::queue_machine<Runtime>;
    using effects_type = core::effects<Runtime>;
    using change = core::message_change;

    using place_type = core::place<Runtime>;

    queue_journal(
        std::shared_ptr<storage::broker_journal> to,
        std::uint64_t number,
        machine_type& m,
        core::memory_budget<Runtime>& budget)
        : journal_{std::move(to)}
        , number_{number}
        , counts_payloads_{m.store().ops().shed != nullptr}
        , absent_{budget} {}

    [[nodiscard]] storage::broker_journal& journal() const noexcept { return *journal_; }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

    /// The queue was deleted: what becomes of its messages is nobody's concern any more.
    void forget() {
        std::vector<storage::usage_change> usage;
        index_.for_each_from(0, [&](std::uint64_t, const storage::kept_at& where) {
            storage::count_usage(usage, where, -1);
            return true;
        });
        journal_->change_usage(usage);
        index_.clear();
        absent_.clear();
        if (feed_ != nullptr) {
            feed_->clear();
        }
        is_deleted_ = true;
    }
    [[nodiscard]] bool is_deleted() const noexcept { return is_deleted_; }

    /// A message is stored there, from before; `position` is its number in the store. Its payload
    /// is not in memory.
    void add(std::uint64_t id, std::uint64_t position, const storage::kept_at& where) {
        index_.put(id, where);
        if (counts_payloads_) {
            absent_.add_absent(id);
        }
        if (position != id) {
            moved_[id] = position;
        }
    }

    // A subscription

    /// Null: it is none. Set before anybody knows the queue.
    [[nodiscard]] feed_journal<Runtime>* feed() const noexcept { return feed_.get(); }
    feed_journal<Runtime>& become_fed(storage::feed_definition d) {
        feed_ = std::make_unique<feed_journal<Runtime>>(journal_, number_, std::move(d));
        return *feed_;
    }
    /// Which record of a log a message is; none: it is stored as any other.
    [[nodiscard]] storage::log_record_name record_of(std::uint64_t id) const noexcept {
        return feed_ == nullptr ? storage::log_record_name{} : feed_->record_of(id);
    }

    // Payloads that leave memory, since they can be read again

    [[nodiscard]] std::uint64_t absent_count() const noexcept { return absent_.count(); }
    /// Its payload is in its place now.
    void came_back(machine_type& m, place_type p) noexcept {
        const std::uint64_t id = m.store().public_id(p);
        if (absent_.contains(id)) {
            absent_.come_back(id, index_.find(id)->bytes());
        }
    }
    /// Reads the payload of the message at `p`, if it is not in memory. Errors: `io_error`,
    /// `journal_corrupt`.
    void bring_back(machine_type& m, place_type p, error_code& ec) {
        const std::uint64_t id = m.store().public_id(p);
        if (!absent_.contains(id)) {
            return;
        }
        core::message_image beside;
        journal_->load(
            number_, id, record_of(id), index_.find(id)->location(), beside, loaded_, ec);
        if (!ec && !m.store().ops().refill(m.store().payload(p), loaded_)) {
            ec = errc::journal_corrupt;
        }
        if (!ec) {
            came_back(m, p);
        }
    }
    /// Where memory is short, the payload of a message leaves that waits in line and has never been
    /// handed out: the newest, which wait longest, since this is asked when a message is stored.
    void let_go(machine_type& m, place_type p) noexcept {
        if (!counts_payloads_ || !absent_.is_tight() || !p || p.at->load().pins() != 0 ||
            !m.store().is_untouched(p) ||
            m.options().max_bytes != unlimited) { // their sizes are asked for when they leave
            return;
        }
        const std::uint64_t id = m.store().public_id(p);
        const storage::kept_at* where = index_.find(id);
        if (where == nullptr || absent_.contains(id) || !record_of(id).is_none()) {
            return; // what is in the log's memory as well is soon handed out
        }
        try {
            absent_.leave(id, where->bytes());
        } catch (...) { // out of memory: it stays, since nobody could know that it has left
            return;
        }
        m.store().ops().shed(m.store().payload(p));
    }

    /// Appends the entries of all changes to `record`.
    void put(machine_type& m, const effects_type& fx, std::vector<std::byte>& record) {
        if (is_deleted_) {
            return;
        }
        storage::entry_writer w{record, journal_->wall()};
        select(fx);
        put_fed(m, record);
        const auto& all = fx.changes;
        for (std::size_t i = 0; i < all.size(); ++i) {
            switch (all[i].what) {
            case change::kind::stored: {
                if (is_fed_now(all[i].public_id)) {
                    break;
                }
                if (all[i].row != nullptr) {
                    put_row(m, all[i], w, record);
                    break;
                }
                const std::size_t run = new_run(m, all, i);
                if (run > 1) {
                    put_run(m, &all[i], run, w, record);
                    i += run - 1;
                } else {
                    put_stored(m, all[i], w, record);
                }
                break;
            }
            case change::kind::changed: put_changed(m, all[i], w); break;
            case change::kind::gone: put_gone(all[i], w); break;
            }
        }
        end_gone(w);
        end_held(w);
        for (const core::remembered_id& r : fx.remembered) {
            w.remembered(number_, r.key, r.id, r.at);
        }
    }
    /// The record with those entries is there.
    void written(machine_type& m, storage::record_location where) {
        std::size_t bytes_gone = 0;
        for (const auto& [first, count] : gone_) { // but for those that came and went at once
            index_.take_row(
                first, count, [&](std::uint64_t id, std::uint64_t n, const storage::kept_at& at) {
                    storage::count_usage(usage_, at, -static_cast<std::int64_t>(n));
                    for (std::uint64_t i = 0; feed_ != nullptr && i != n; ++i) {
                        feed_->forget(id + i);
                    }
                    if (counts_payloads_) {
                        bytes_gone += at.bytes() * (n - absent_.remove_absent(id, n));
                    }
                });
        }
        std::size_t bytes_new = 0;
        const auto place = [&](std::uint64_t id, std::uint64_t n, std::size_t bytes) {
            const storage::kept_at at{where, static_cast<std::uint32_t>(bytes)};
            storage::count_usage(usage_, at, static_cast<std::int64_t>(n));
            bytes_new += bytes * static_cast<std::size_t>(n);
            index_.put_row(id, n, at);
        };
        for (const auto& [id, bytes] : stored_) {
            place(id, 1, bytes);
        }
        for (const stored_row& r : stored_rows_) {
            for (std::uint64_t i = 0; i != r.count;) {
                const std::size_t from = r.from + static_cast<std::size_t>(i);
                const auto left = static_cast<std::size_t>(r.count - i);
                const std::size_t n = r.payloads->equal_sizes(from, left);
                place(r.first + i, n, r.payloads->of(from, 1).size());
                i += n;
            }
        }
        if (feed_ != nullptr) {
            feed_->written([&](std::uint64_t id, const storage::kept_at& at) {
                index_.put(id, at); // its place was pinned before
                bytes_new += at.bytes();
            });
        }
        journal_->change_usage(usage_);
        if (counts_payloads_) {
            count_payloads(m, bytes_new, bytes_gone);
        }
        end();
    }
    /// It could not be written: what is there still holds, as far as the journal knows.
    void not_written() noexcept { end(); }

    // Upkeep: what the journal says is said again, so that what said it before can go

    /// The queue itself, as it is.
    void put_definition(
        machine_type& m,
        const std::string& format,
        const queue_options& options,
        std::vector<std::byte>& record) const {
        storage::entry_writer{record, journal_->wall()}.queue(
            {number_, m.name(), format, options, m.ring().tail(), m.delayed_numbers()});
        if (feed_ != nullptr) {
            feed_->put_definition(record);
        }
    }
    /// The deduplication ids, in small records that `append` writes. False: it could not.
    template <class Append>
    [[nodiscard]] bool
    put_remembered(machine_type& m, std::vector<std::byte>& record, Append&& append) const {
        bool is_good = true;
        record.clear();
        m.for_each_remembered([&](const auto& e) {
            // No larger than what is surely allowed: a single one was, with its message.
            if (!record.empty() && record.size() + e.key.size() + 64 > 1024) {
                is_good = is_good && append(record);
                record.clear();
            }
            storage::entry_writer{record, journal_->wall()}.remembered(number_, e.key, e.id, e.at);
        });
        return is_good && (record.empty() || append(record));
    }
    /// The messages from that id on, at most `max` of them, as they are. Returns where to go on;
    /// the end of all ids, when there are no more.
    std::uint64_t put_range(
        machine_type& m, std::uint64_t from, std::size_t max, std::vector<std::byte>& record) {
        std::vector<std::pair<std::uint64_t, storage::kept_at>> listed;
        std::vector<std::pair<std::uint64_t, storage::kept_at>> fed;
        std::uint64_t to = no_more;
        index_.for_each_from(from, [&](std::uint64_t id, const storage::kept_at& where) {
            if (listed.size() + fed.size() == max) {
                to = id;
                return false;
            }
            if (is_there(m, id)) {
                (record_of(id).is_none() ? listed : fed).emplace_back(id, where);
            }
            return true;
        });
        storage::entry_writer w{record, journal_->wall()};
        w.range(number_, from, to, listed.size());
        for (const auto& [id, where] : listed) {
            w.listed(m.image_of(place_of(m, id)), where.location(), where.bytes());
        }
        storage::feed_entry_writer of_log{record, journal_->wall()};
        for (const auto& [id, where] : fed) {
            of_log.fed(
                number_,
                m.image_of(place_of(m, id)),
                record_of(id),
                where.location(),
                where.bytes());
        }
        return to;
    }
    /// Stores messages as any other that are records of a log and lie in that segment, so that it
    /// can go. `ec` says why it could not be.
    void store_fed_again(
        machine_type& m, std::uint64_t segment, std::vector<std::byte>& record, error_code& ec) {
        if (feed_ == nullptr || is_deleted_) {
            return;
        }
        std::vector<std::uint64_t> ids;
        for (const auto& [id, name] : feed_->records()) {
            const storage::kept_at* where = index_.find(id);
            if (where != nullptr && where->segment() == segment && is_there(m, id)) {
                ids.push_back(id);
            }
        }
        std::sort(ids.begin(), ids.end());
        for (const std::uint64_t id : ids) {
            const storage::kept_at from = *index_.find(id);
            core::message_image beside;
            journal_->load(number_, id, record_of(id), from.location(), beside, loaded_, ec);
            if (ec) {
                return;
            }
            record.clear();
            storage::entry_writer w{record, journal_->wall()};
            w.stored(number_, m.image_of(place_of(m, id)), beside.props.get(), nullptr);
            w.payload(loaded_);
            if (!lies_now(id, from, record, ec)) {
                return;
            }
            feed_->forget(id);
        }
    }
    /// Stores a message anew that is stored at `from`. False: it is not, and nothing was put; or
    /// `ec` says why it could not be.
    bool store_again(
        machine_type& m,
        std::uint64_t id,
        storage::record_location from,
        const storage::stored_content& content,
        std::vector<std::byte>& record,
        error_code& ec) {
        const storage::kept_at* known = index_.find(id);
        if (known == nullptr || !(known->location() == from) || !is_there(m, id)) {
            return false;
        }
        record.clear();
        storage::entry_writer{record, journal_->wall()}.stored(
            number_, m.image_of(place_of(m, id)), content);
        return lies_now(id, *known, record, ec);
    }
    static constexpr std::uint64_t no_more = ~std::uint64_t{0};

private:
    /// Appends a record that stores a message anew. False: it could not be.
    bool lies_now(
        std::uint64_t id,
        const storage::kept_at& before,
        std::span<const std::byte> record,
        error_code& ec) {
        storage::record_location where;
        if (journal_->append(record, where, ec) == 0) {
            return false;
        }
        const storage::kept_at now{where, static_cast<std::uint32_t>(record.size())};
        storage::count_usage(usage_, before, -1);
        storage::count_usage(usage_, now, 1);
        journal_->change_usage(usage_);
        usage_.clear();
        if (counts_payloads_) {
            absent_.resize(id, before.bytes(), now.bytes());
        }
        index_.put(id, now);
        return true;
    }
    /// Whether it was taken from the log and that is not written yet.
    [[nodiscard]] bool is_fed_now(std::uint64_t id) const noexcept {
        return feed_ != nullptr && feed_->is_new(id);
    }
    /// What was taken from the log, and how far that is.
    void put_fed(machine_type& m, std::vector<std::byte>& record) {
        if (feed_ == nullptr) {
            return;
        }
        feed_->put(
            m,
            [&](std::uint64_t id) {
                return has_ended(id) || !is_there(m, id) ? place_type{} : place_of(m, id);
            },
            [&](std::uint64_t id) { // the log does not have it any more
                const std::size_t begin = record.size();
                const place_type p = place_of(m, id);
                storage::entry_writer w{record, journal_->wall()};
                put_beside(m, m.store().id_of(p), w);
                loaded_.clear();
                m.store().ops().encode(m.store().payload(p), loaded_);
                w.payload(loaded_);
                note_stored(id, record.size() - begin);
            },
            record);
    }
    /// Where the message is in the store; one that was delayed has another number there.
    [[nodiscard]] auto place_of(machine_type& m, std::uint64_t id) const {
        const auto it = moved_.find(id);
        return m.store().locate(it == moved_.end() ? id : it->second);
    }
    [[nodiscard]] bool is_there(machine_type& m, std::uint64_t id) const {
        const auto p = place_of(m, id);
        return p && p.at->load().state() != core::slot_state::done &&
               p.at->load().state() != core::slot_state::empty;
    }
    void count_payloads(machine_type& m, std::size_t stored, std::size_t gone) noexcept {
        absent_.add_present(stored);
        absent_.remove_present(gone);
        if (absent_.is_tight()) {
            for (const auto& [id, bytes] : stored_) {
                let_go(m, place_of(m, id));
            }
            for (const stored_row& r : stored_rows_) {
                for (std::uint64_t i = 0; i != r.count; ++i) {
                    let_go(m, place_of(m, r.first + i));
                }
            }
        }
    }
    void end() noexcept {
        stored_.clear();
        stored_rows_.clear();
        gone_.clear();
        usage_.clear();
        held_.count = 0; // where making the record has failed in the middle of a run
        gone_count_ = 0;
    }

    /// Where one call has stored, changed and removed, only the end counts: looks up what comes
    /// first in the list and is overtaken by what comes behind.
    void select(const effects_type& fx) {
        new_.clear();
        ended_.clear();
        const auto& all = fx.changes;
        is_mixed_ = (feed_ != nullptr && feed_->has_news()) ||
                    std::any_of(all.begin(), all.end(), [&](const change& c) {
                        return c.what != all.front().what;
                    });
        if (!is_mixed_) {
            return;
        }
        for (const change& c : all) {
            const bool is_fed = c.what == change::kind::stored && is_fed_now(c.public_id);
            if (c.what != change::kind::changed && !is_fed) {
                auto& ids = c.what == change::kind::stored ? new_ : ended_;
                for (std::uint64_t n = 0; n != c.count; ++n) {
                    ids.push_back(c.public_id + n);
                }
            }
        }
        std::sort(new_.begin(), new_.end());
        std::sort(ended_.begin(), ended_.end());
    }
    [[nodiscard]] bool is_new(std::uint64_t id) const noexcept {
        return std::binary_search(new_.begin(), new_.end(), id);
    }
    [[nodiscard]] bool has_ended(std::uint64_t id) const noexcept {
        return std::binary_search(ended_.begin(), ended_.end(), id);
    }

    void put_stored(
        machine_type& m,
        const change& c,
        storage::entry_writer& w,
        std::vector<std::byte>& record) {
        if (has_ended(c.public_id)) {
            return;
        }
        const std::size_t begin = record.size();
        put_beside(m, c.id, w);
        w.payload(c.payload);
        note_stored(c.public_id, record.size() - begin);
    }
    /// A new message up to its payload.
    void put_beside(machine_type& m, std::uint64_t id, storage::entry_writer& w) {
        const auto p = m.store().locate(id);
        const core::message_details* d = m.store().details_of(p);
        w.stored(
            number_,
            m.image_of(p),
            d != nullptr ? d->props.get() : nullptr,
            d != nullptr ? d->deaths.get() : nullptr);
    }
    void note_stored(std::uint64_t id, std::size_t bytes) {
        stored_.emplace_back(id, static_cast<std::uint32_t>(bytes));
    }

    /// Messages that were stored in a row: those of which nothing else is to be said together.
    void put_row(
        machine_type& m,
        const change& c,
        storage::entry_writer& w,
        std::vector<std::byte>& record) {
        const core::encoded_row& row = *c.row;
        for (std::uint64_t i = 0; i != c.count;) {
            const std::uint64_t n = is_mixed_ ? plain_from(m, c, i) : c.count - i;
            const std::uint64_t id = c.id + i;
            const std::size_t from = c.row_from + static_cast<std::size_t>(i);
            if (n != 0) {
                w.stored_run(number_, id, n, m.store().locate(id).at->enqueued());
                w.payloads(row.of(from, static_cast<std::size_t>(n)));
                stored_rows_.push_back({id, n, &row, from});
                i += n;
                continue;
            }
            if (!has_ended(id)) {
                const std::size_t begin = record.size();
                put_beside(m, id, w);
                w.payloads(row.of(from, 1));
                note_stored(id, record.size() - begin);
            }
            ++i;
        }
    }
    /// How many of a row's messages from the i-th on are still as they were stored.
    [[nodiscard]] std::uint64_t
    plain_from(machine_type& m, const change& c, std::uint64_t i) const {
        std::uint64_t n = 0;
        for (; i + n != c.count && !has_ended(c.id + i + n); ++n) {
            const auto p = m.store().locate(c.id + i + n);
            if (p.at->load() != core::slot_word{core::slot_state::ready} || p.in->aside) {
                break;
            }
        }
        return n;
    }

    /// How many of the changes from the i-th on are messages in a row that are new, of which
    /// nothing else is to be said.
    template <class Changes>
    [[nodiscard]] std::size_t new_run(machine_type& m, const Changes& all, std::size_t i) {
        std::size_t n = 0;
        time_point enqueued{};
        for (; i + n < all.size() && all[i + n].what == change::kind::stored; ++n) {
            const change& c = all[i + n];
            if (c.id != all[i].id + n || has_ended(c.public_id) || is_fed_now(c.public_id)) {
                break;
            }
            const auto p = m.store().locate(c.id);
            if (p.at->load() != core::slot_word{core::slot_state::ready} || p.in->aside ||
                (n != 0 && p.at->enqueued() != enqueued)) {
                break;
            }
            enqueued = p.at->enqueued();
        }
        return n;
    }
    void put_run(
        machine_type& m,
        const change* first,
        std::size_t n,
        storage::entry_writer& w,
        std::vector<std::byte>& record) {
        w.stored_run(number_, first->id, n, m.store().locate(first->id).at->enqueued());
        for (const change* c = first; c != first + n; ++c) {
            const std::size_t begin = record.size();
            w.payload(c->payload);
            note_stored(c->public_id, record.size() - begin);
        }
    }

    void put_changed(machine_type& m, const change& c, storage::entry_writer& w) {
        if (c.count > 1 && !is_mixed_ && is_held_row(m, c)) {
            const core::message_image image = m.image_of(m.store().locate(c.id));
            w.held(number_, c.id, c.count, image.delivery_count, image.first_handed_out);
            return;
        }
        for (std::uint64_t n = 0; n != c.count; ++n) {
            put_changed(m, c.id + n, c.public_id + n, w);
        }
    }
    /// Whether messages in a row were handed out together, and nothing else is to be said of them.
    [[nodiscard]] static bool is_held_row(machine_type& m, const change& c) {
        const auto& ring = m.ring();
        core::slot_word word{};
        for (std::uint64_t n = 0; n != c.count;) {
            const auto p = ring.locate(c.id + n);
            if (n == 0 && p) {
                word = p.at->load();
            }
            const std::uint64_t most = std::min(c.count - n, ring.run_from(c.id + n));
            if (!p || ring.count_with(p, most, word) != most) {
                return false;
            }
            n += most;
        }
        return word.state() == core::slot_state::leased && !word.has_details() &&
               m.store().times().at(c.id) == m.store().times().at(c.id + c.count - 1);
    }
    void put_changed(
        machine_type& m, std::uint64_t id, std::uint64_t public_id, storage::entry_writer& w) {
        if (is_new(public_id) || has_ended(public_id)) {
            return;
        }
        const auto p = m.store().locate(id);
        if (!p) {
            return; // it has moved on, and the list says so later
        }
        if (id != public_id) {
            moved_[public_id] = id;
        }
        const core::message_image image = m.image_of(p);
        if (image.state != core::image_state::held || !image.is_plain()) {
            end_held(w);
            w.changed(number_, image);
            return;
        }
        if (held_.count == 0 || held_.first + held_.count != image.id ||
            held_.delivery_count != image.delivery_count || held_.at != image.first_handed_out) {
            end_held(w);
            held_ = {image.id, 0, image.delivery_count, image.first_handed_out};
        }
        ++held_.count;
    }
    void end_held(storage::entry_writer& w) {
        if (held_.count != 0) {
            w.held(number_, held_.first, held_.count, held_.delivery_count, held_.at);
            held_.count = 0;
        }
    }

    void put_gone(const change& c, storage::entry_writer& w) {
        if (!moved_.empty()) {
            for (std::uint64_t n = 0; n != c.count; ++n) {
                moved_.erase(c.public_id + n);
            }
        }
        if (c.count == 1 && index_.find(c.public_id) == nullptr && !is_new(c.public_id) &&
            !is_fed_now(c.public_id)) {
            return; // it was never written, or has been gone before
        }
        if (gone_count_ == 0 || gone_first_ + gone_count_ != c.public_id) {
            end_gone(w);
            gone_first_ = c.public_id;
        }
        gone_count_ += c.count;
    }
    void end_gone(storage::entry_writer& w) {
        if (gone_count_ != 0) {
            w.gone(number_, gone_first_, gone_count_);
            gone_.emplace_back(gone_first_, gone_count_);
            gone_count_ = 0;
        }
    }

    struct stored_row {
        std::uint64_t first;
        std::uint64_t count;
        const core::encoded_row* payloads;
        std::size_t from; ///< Of the payloads.
    };
    struct held_run {
        std::uint64_t first = 0;
        std::uint64_t count = 0;
        std::uint32_t delivery_count = 0;
        time_point at{};
    };

    std::shared_ptr<storage::broker_journal> journal_;
    std::uint64_t number_;
    storage::id_map<storage::kept_at> index_{};
    boost::unordered_flat_map<std::uint64_t, std::uint64_t> moved_{};
    std::unique_ptr<feed_journal<Runtime>> feed_{};
    bool is_deleted_ = false;
    const bool counts_payloads_; ///< Those of types that own memory.
    absent_payloads<Runtime> absent_;
    std::vector<std::byte> loaded_{};

    // Of the record that is being made; kept for their room.
    bool is_mixed_ = false; ///< Its changes are not all of one kind.
    std::vector<std::uint64_t> new_{};
    std::vector<std::uint64_t> ended_{};
    std::vector<std::pair<std::uint64_t, std::uint32_t>> stored_{};
    std::vector<stored_row> stored_rows_{};
    std::vector<std::pair<std::uint64_t, std::uint64_t>> gone_{}; ///< The first, and how many.
    std::vector<storage::usage_change> usage_{};
    held_run held_{};
    std::uint64_t gone_first_ = 0;
    std::uint64_t gone_count_ = 0;
};

} // namespace railmq::detail
