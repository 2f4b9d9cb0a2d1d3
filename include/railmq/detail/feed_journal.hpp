// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/queue_machine.hpp>
#include <railmq/detail/log_follower.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/feed_entries.hpp>
#include <railmq/storage/kept_state.hpp>

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace railmq::detail {

/// What a subscription's part of the broker's journal has beside a queue's: how far it has come in
/// each partition, and which of its messages are records of the log, which lie where the log has
/// them and are not stored again.
///
/// What was taken from the log and could not be written yet stays to be said, and so does the
/// position, so that both are said together.
///
/// Thread safety: with the queue's lock held.
template <class Runtime>
class feed_journal {
public:
    using machine_type = core::queue_machine<Runtime>;
    using follower_type = log_follower<Runtime>;

    feed_journal(
        std::shared_ptr<storage::broker_journal> to,
        std::uint64_t queue,
        storage::feed_definition definition)
        : journal_{std::move(to)}
        , queue_{queue}
        , definition_{std::move(definition)} {
        definition_.queue = queue;
    }
    feed_journal(const feed_journal&) = delete;
    feed_journal& operator=(const feed_journal&) = delete;
    ~feed_journal() { drop_news(); }

    /// Never changes.
    [[nodiscard]] const storage::feed_definition& definition() const noexcept {
        return definition_;
    }

    // What is known

    /// What was read of another life.
    void restore(storage::kept_feed& from, decltype(storage::kept_queue::records)& records) {
        for (const auto& [partition, position] : from.positions) {
            lane_of(partition) = {nullptr, position, position};
        }
        records_ = std::move(records);
    }
    /// Where it has come to in a partition; `no_position` where nothing is known.
    static constexpr std::uint64_t no_position = ~std::uint64_t{0};
    [[nodiscard]] std::uint64_t position(std::uint32_t partition) const noexcept {
        return partition < lanes_.size() ? lanes_[partition].now : no_position;
    }
    [[nodiscard]] bool has_positions() const noexcept { return !lanes_.empty(); }
    /// Which record of the log a message is; none: it is stored as any other.
    [[nodiscard]] storage::log_record_name record_of(std::uint64_t id) const noexcept {
        const auto it = records_.find(id);
        return it == records_.end() ? storage::log_record_name{} : it->second;
    }
    [[nodiscard]] const auto& records() const noexcept { return records_; }
    /// It has left, or is stored as any other from now on.
    void forget(std::uint64_t id) noexcept { records_.erase(id); }
    void clear() noexcept {
        drop_news();
        records_.clear();
    }

    // What happens

    /// The follower hears what is said of that partition, until `end`. Throws `std::bad_alloc`.
    void begin(std::uint32_t partition, follower_type& f) {
        lane& l = lane_of(partition);
        l.follower = &f;
        l.now = f.position.load(std::memory_order_relaxed);
    }
    void end() noexcept {
        for (lane& l : lanes_) {
            l.follower = nullptr;
        }
    }
    void is_at(std::uint32_t partition, std::uint64_t position) noexcept {
        lanes_[partition].now = position;
    }
    /// Throws `std::bad_alloc`; then nothing has changed.
    void reserve(std::size_t more) {
        news_.reserve(news_.size() + more);
        new_ids_.reserve(news_.size() + more);
    }
    /// Something was taken: there is room. `at` is pinned, and empty where the log does not have it
    /// any more.
    void has_taken(
        std::uint64_t id,
        std::uint32_t partition,
        std::uint64_t offset,
        const storage::kept_at& at) noexcept {
        news_.push_back({id, {{definition_.log, partition}, offset}, at});
        new_ids_.insert(id);
    }
    /// Places that were pinned are of no use.
    void unpin(const storage::kept_at& at) noexcept {
        if (!at.is_empty()) {
            const storage::usage_change one{at.segment(), -std::int64_t{at.bytes()}, -1};
            journal_->change_usage(std::span{&one, 1});
        }
    }

    // What is written of it

    [[nodiscard]] bool has_news() const noexcept { return !news_.empty(); }
    [[nodiscard]] std::size_t news() const noexcept { return news_.size(); }
    [[nodiscard]] bool is_new(std::uint64_t id) const noexcept { return new_ids_.contains(id); }
    /// Appends what is to be said. `place_of(id)` gives the place of a message that is there;
    /// `put_whole(id)` stores one as any other.
    template <class PlaceOf, class PutWhole>
    void
    put(machine_type& m, PlaceOf&& place_of, PutWhole&& put_whole, std::vector<std::byte>& record) {
        storage::feed_entry_writer w{record, journal_->wall()};
        for (std::size_t i = 0; i < news_.size();) {
            taken& t = news_[i];
            const auto p = place_of(t.id);
            t.written_as = !p ? form::nothing : t.at.is_empty() ? form::whole : form::record;
            if (t.written_as == form::whole) {
                put_whole(t.id);
            }
            if (t.written_as != form::record) {
                ++i;
                continue;
            }
            const std::size_t n = run_from(i, place_of);
            if (n == 0) {
                w.fed(queue_, m.image_of(p), t.record, t.at.location(), t.at.bytes());
                ++i;
                continue;
            }
            std::uint32_t bytes = 0;
            for (const std::size_t end = i + n; i != end; ++i) {
                news_[i].written_as = form::record;
                bytes += news_[i].at.bytes();
            }
            w.fed_run(queue_, {t.id, n, p.at->enqueued(), t.record, t.at.location(), bytes});
        }
        put_positions(
            w, [](const lane& l) { return l.now != l.said; }, &lane::now);
    }
    /// It is there. `is_fed(id, at)` is called for messages that are records of the log.
    template <class IsFed>
    void written(IsFed&& is_fed) {
        for (const taken& t : news_) {
            if (t.written_as == form::record) {
                records_[t.id] = t.record;
                is_fed(t.id, t.at);
            } else {
                unpin(t.at);
            }
        }
        news_.clear();
        new_ids_.clear();
        for (lane& l : lanes_) {
            l.said = l.now;
            if (l.follower != nullptr) {
                l.follower->safe.store(l.said, std::memory_order_release);
            }
        }
    }

    // Upkeep

    /// What it is and where it has come to, as the journal knows it.
    void put_definition(std::vector<std::byte>& record) const {
        storage::feed_entry_writer w{record, journal_->wall()};
        w.feed(definition_);
        put_positions(
            w, [](const lane& l) { return l.said != no_position; }, &lane::said);
    }

private:
    /// What is written of a message that was taken.
    enum class form : std::uint8_t { record, whole, nothing };
    struct taken {
        std::uint64_t id;
        storage::log_record_name record;
        storage::kept_at at;
        form written_as = form::nothing;
    };
    struct lane {
        follower_type* follower = nullptr;
        std::uint64_t now = no_position;
        std::uint64_t said = no_position; ///< As the journal knows it.
    };

    [[nodiscard]] lane& lane_of(std::uint32_t partition) {
        if (partition >= lanes_.size()) {
            lanes_.resize(partition + 1);
        }
        return lanes_[partition];
    }
    template <class Which>
    void put_positions(
        storage::feed_entry_writer& w, Which&& which, std::uint64_t lane::*position) const {
        for (std::uint32_t p = 0; p != lanes_.size(); ++p) {
            if (which(lanes_[p])) {
                w.fed_to(queue_, p, lanes_[p].*position);
            }
        }
    }
    /// Of which nothing is to be said but that it is in line; that it was handed out, another entry
    /// says.
    template <class Place>
    [[nodiscard]] static bool is_plain(const Place& p) noexcept {
        const core::slot_word w = p.at->load();
        return !p.in->aside && (w == core::slot_word{core::slot_state::ready} ||
                                (w.state() == core::slot_state::leased && !w.has_details()));
    }
    /// How many of the news from the i-th on one entry can say.
    template <class PlaceOf>
    [[nodiscard]] std::size_t run_from(std::size_t i, PlaceOf& place_of) const {
        const taken& first = news_[i];
        time_point enqueued{};
        std::size_t n = 0;
        for (; i + n != news_.size() && n != storage::max_fed_run; ++n) {
            const taken& t = news_[i + n];
            if (t.id != first.id + n || t.record.where != first.record.where ||
                t.record.offset != first.record.offset + n || t.at.is_empty() ||
                !(t.at.location() == first.at.location())) {
                break;
            }
            const auto p = place_of(t.id);
            if (!p || !is_plain(p) || (n != 0 && p.at->enqueued() != enqueued)) {
                break;
            }
            enqueued = p.at->enqueued();
        }
        return n;
    }
    void drop_news() noexcept {
        for (const taken& t : news_) {
            unpin(t.at);
        }
        news_.clear();
        new_ids_.clear();
    }

    std::shared_ptr<storage::broker_journal> journal_;
    std::uint64_t queue_;
    storage::feed_definition definition_;
    std::vector<lane> lanes_{}; ///< By partition.
    boost::unordered_flat_map<std::uint64_t, storage::log_record_name> records_{};
    std::vector<taken> news_{};
    boost::unordered_flat_set<std::uint64_t> new_ids_{};
};

} // namespace railmq::detail
