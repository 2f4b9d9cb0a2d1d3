// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/config.hpp>
#include <railmq/core/lease_times.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/core/priority_levels.hpp>
#include <railmq/core/returned_list.hpp>
#include <railmq/core/slot_ring.hpp>
#include <railmq/model/queue_options.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace railmq::core {

/// Where a queue's messages are: in line in the ring, returned to a place in the order, or moved
/// aside. Knows nothing of time, consumers or policies.
///
/// A message's *id* is its position in the ring; one that never was in line (delayed when it was
/// sent) has an id above `aside_ids`. Messages in state `returned` are served before the line: the
/// front list, then the returned ones by id, then those put behind a position of the line. With
/// priorities every ready message is in that state, in the list of its level: nothing stays in
/// line.
///
/// Thread safety: with the queue's lock held, except for what `slot_ring` says.
template <class Sync>
class message_store {
public:
    using ring_type = slot_ring<Sync>;
    using place_type = place<Sync>;
    using chunk_type = chunk<Sync>;

    static constexpr std::uint64_t aside_ids = 1ULL << 62;

    message_store(
        const payload_ops& ops,
        memory_budget<Sync>& budget,
        std::uint32_t priorities = 0,
        std::uint32_t max_overtakes = 0)
        : ring_{ops, budget}
        , ops_{ops} {
        if (priorities > 1) {
            levels_ = std::make_unique<priority_levels>(priorities, max_overtakes);
        }
    }
    message_store(const message_store&) = delete;
    message_store& operator=(const message_store&) = delete;

    /// Ends every payload that is left. No handle may exist any more.
    ~message_store() {
        const auto end_all = [this](chunk_type& c) {
            for (std::uint32_t i = 0; i < c.capacity; ++i) {
                auto* s = c.at(i);
                const slot_word w = s->load();
                if (w.state() == slot_state::empty ||
                    (w.state() == slot_state::done && w.pins() == 0)) {
                    continue;
                }
                if (w.has_details()) {
                    delete s->details();
                }
                if (ops_.destroy != nullptr) {
                    ops_.destroy(ring_.payload(s));
                }
            }
        };
        ring_.for_each_chunk(end_all);
        for (auto& [id, c] : asides_) {
            end_all(*c);
            ring_.free_aside(c);
        }
    }

    [[nodiscard]] ring_type& ring() noexcept { return ring_; }
    [[nodiscard]] const ring_type& ring() const noexcept { return ring_; }
    [[nodiscard]] lease_times<Sync>& times() noexcept { return times_; }
    [[nodiscard]] const lease_times<Sync>& times() const noexcept { return times_; }
    [[nodiscard]] const payload_ops& ops() const noexcept { return ops_; }
    [[nodiscard]] void* payload(place_type p) const noexcept { return ring_.payload(p.at); }

    // Finding

    /// Where the message with this id is, if it is still anywhere.
    [[nodiscard]] place_type locate(std::uint64_t id) const noexcept {
        if (!asides_.empty()) {
            const auto it = asides_.find(id);
            if (it != asides_.end()) {
                return {it->second, it->second->at(0)};
            }
        }
        return id < aside_ids ? ring_.locate(id) : place_type{};
    }
    [[nodiscard]] static std::uint64_t id_of(place_type p) noexcept {
        return p.in->sequence_of(p.at);
    }
    /// The number that users know the message by.
    [[nodiscard]] static std::uint64_t public_id(place_type p) noexcept {
        const message_details* d = details_of(p);
        return d != nullptr && d->has_id ? d->id : id_of(p);
    }
    [[nodiscard]] static message_details* details_of(place_type p) noexcept {
        return p.at->load().has_details() ? p.at->details() : nullptr;
    }
    /// When the message was sent. Its holder may ask without the lock: none, if details are being
    /// made this moment.
    [[nodiscard]] static std::optional<time_point> enqueued_at(place_type p) noexcept {
        const slot_word w = p.at->load();
        if (w.has_details()) {
            return p.at->details()->enqueued;
        }
        const time_point sent = p.at->enqueued();
        if (w.is_changing() || p.at->load() != w) {
            return std::nullopt;
        }
        return sent;
    }
    /// Whether a message in state `ready` has not been claimed by a consumer yet.
    [[nodiscard]] bool is_in_line(place_type p) const noexcept {
        return !p.in->aside && id_of(p) >= ring_.next();
    }

    /// Calls `f(place)` for every position, those moved aside included, in the order of ids.
    template <class F>
    void for_each_place(F&& f) {
        std::vector<chunk_type*> chunks;
        ring_.for_each_chunk([&](chunk_type& c) { chunks.push_back(&c); });
        for (auto& [id, c] : asides_) {
            chunks.push_back(c);
        }
        std::sort(chunks.begin(), chunks.end(), [](const chunk_type* x, const chunk_type* y) {
            // A message moved aside keeps the id of its old place, which is done.
            return x->base != y->base ? x->base < y->base : x->aside < y->aside;
        });
        for (chunk_type* c : chunks) {
            const std::uint32_t capacity = c->capacity; // an aside chunk may end inside `f`
            for (std::uint32_t i = c->cursor; i < capacity; ++i) {
                f(place_type{c, c->at(i)});
                if (capacity == 1) break;
            }
        }
    }

    // Details

    /// The message's details, made if it has none. Not for a message that others may be touching.
    message_details& make_details(place_type p) {
        const slot_word w = p.at->load();
        if (w.has_details()) {
            return *p.at->details();
        }
        auto* const made = new message_details;
        made->enqueued = p.at->enqueued();
        if (w.tag() != 0) {
            made->lease_deadline = times_.at(id_of(p));
        }
        // Whoever reads the address as a time sees afterwards that the word has changed.
        p.at->store(w.with_flags(slot_word::changing_bit));
        p.at->set_details(made);
        p.at->store(w.with_flags(slot_word::details_bit));
        return *made;
    }
    void drop_details(place_type p) noexcept {
        const slot_word w = p.at->load();
        if (w.has_details()) {
            delete p.at->details();
            p.at->store(w.without_flags(slot_word::details_bit | slot_word::slow_bit));
        }
    }
    static void set_state(place_type p, slot_state s) noexcept {
        p.at->store(p.at->load().with(s));
    }

    // Ready, out of line

    /// Makes a message ready again. It must be in no list.
    void put_back(place_type p, requeue_position where) {
        const std::uint64_t id = id_of(p);
        if (levels_ != nullptr) {
            levels_->add(level_of(p), id, where, ring_.tail());
        } else {
            returned_.add(id, where, ring_.tail());
        }
        set_state(p, slot_state::returned);
        ++returned_count_;
    }

    /// The next message that is ready out of line and comes before the line, removed from its
    /// list; or none.
    [[nodiscard]] place_type take_returned() noexcept {
        if (returned_count_ == 0) {
            returned_.forget_gone();
            return {};
        }
        return taken(
            levels_ != nullptr ? levels_->take(is_returned())
                               : returned_.take(ring_.next(), is_returned()));
    }

    // Priorities

    [[nodiscard]] bool has_levels() const noexcept { return levels_ != nullptr; }
    /// With priorities: messages that stand in line go to their levels. Without memory they stay,
    /// and go when this is called again.
    void leave_line() noexcept {
        ring_.set_next_gate(true);
        for (std::uint64_t n = ring_.next(); n != ring_.tail(); ++n) {
            const place_type p = ring_.locate(n);
            const slot_state state = p.at->load().state();
            if (state == slot_state::ready) {
                try {
                    put_back(p, requeue_position::original);
                } catch (...) {
                    return;
                }
            } else if (state == slot_state::empty) {
                return;
            } else {
                ring_.forget_hole();
            }
            ring_.pass_next();
            if (ring_.run_from(n) == 1) {
                gather(ring_.left_behind(true));
                gather(ring_.left_behind(false));
            }
        }
    }
    /// With priorities: the first of the lowest level, removed from it; or none.
    [[nodiscard]] place_type take_least() noexcept {
        return taken(levels_->take_least(is_returned()));
    }
    /// Whether a message waits to be handed out for the first time, at its place in the order.
    [[nodiscard]] bool is_untouched(place_type p) const noexcept {
        const slot_word w = p.at->load();
        return w.tag() == 0 && (w.state() == slot_state::ready
                                    ? is_in_line(p)
                                    : levels_ != nullptr && w.state() == slot_state::returned);
    }

    /// Takes a message in state `returned` or in line out of where it waits; the caller decides
    /// what becomes of it. The gate of `next` must be set for one in line.
    void withdraw(place_type p) noexcept {
        const slot_word w = p.at->load();
        if (w.state() == slot_state::returned) {
            set_state(p, slot_state::settling);
            if (levels_ != nullptr) {
                levels_->withdraw(level_of(p), id_of(p), is_returned());
            } else {
                returned_.withdraw(id_of(p), is_returned());
            }
            --returned_count_;
        } else if (w.state() == slot_state::ready) {
            ring_.add_hole();
        }
        set_state(p, slot_state::settling);
    }

    [[nodiscard]] std::uint64_t returned_count() const noexcept { return returned_count_; }

    /// Calls `f(place)` for ready messages in the order in which they would be handed out, until
    /// it returns false. The gate of `next` must be set.
    template <class F>
    void browse(F&& f) const {
        bool more = true;
        const auto visit = [&](std::uint64_t id) {
            const place_type p = locate(id);
            more = !p || p.at->load().state() != slot_state::returned || f(p);
            return more;
        };
        std::uint64_t n = ring_.next();
        const auto line_up_to = [&](std::uint64_t end) {
            for (; more && n < end; ++n) {
                const place_type p = ring_.locate(n);
                if (p && p.at->load().state() == slot_state::ready) {
                    more = f(p);
                }
            }
            return more;
        };
        if (levels_ != nullptr) {
            levels_->for_each(visit);
        } else {
            returned_.for_each(visit, line_up_to);
        }
        (void)line_up_to(ring_.tail());
    }
    /// When the oldest message was sent that is ready out of line, or `never`.
    ///
    /// Cost: the levels, and the messages that were put to the front or to the back.
    [[nodiscard]] time_point oldest_returned() const noexcept {
        time_point oldest = never;
        const auto look = [&](std::uint64_t id) {
            const place_type p = locate(id);
            if (p && p.at->load().state() == slot_state::returned) {
                oldest = std::min(oldest, enqueued_at(p).value_or(never));
            }
        };
        if (levels_ != nullptr) {
            levels_->for_each_old(look);
        } else {
            returned_.for_each_old(look);
        }
        return oldest;
    }

    // Moving

    /// Moves a message out of its chunk, so that it does not pin the chunk for as long as it
    /// waits. Its id stays. Does nothing where a handle may still read it, or without memory.
    place_type put_aside(place_type p) {
        const slot_word w = p.at->load();
        if (p.in->aside || w.pins() != 0) {
            return p;
        }
        const std::uint64_t id = id_of(p);
        chunk_type* c = ring_.make_aside(id, true);
        if (c == nullptr) {
            return p;
        }
        const place_type to{c, c->at(0)};
        try {
            asides_.emplace(id, c);
            ops_.relocate(payload(to), payload(p));
        } catch (...) {
            asides_.erase(id);
            ring_.free_aside(c);
            return p; // it can wait where it is
        }
        to.at->rest.store(p.at->rest.load(std::memory_order_relaxed), std::memory_order_relaxed);
        to.at->store(w);
        p.at->store(slot_word{slot_state::done});
        return to;
    }

    /// A place for a message that does not stand in line; empty when there is no memory.
    [[nodiscard]] place_type new_aside() {
        const std::uint64_t id = aside_ids + next_aside_;
        chunk_type* c = ring_.make_aside(id, false);
        if (c == nullptr) {
            return {};
        }
        try {
            asides_.emplace(id, c);
        } catch (...) {
            ring_.free_aside(c);
            throw;
        }
        ++next_aside_;
        return {c, c->at(0)};
    }

    /// A place for a message that had this id in another life; empty when there is no memory.
    [[nodiscard]] place_type restore_aside(std::uint64_t id) {
        chunk_type* c = ring_.make_aside(id, true);
        if (c == nullptr) {
            return {};
        }
        try {
            asides_.emplace(id, c);
        } catch (...) {
            ring_.free_aside(c);
            throw;
        }
        return {c, c->at(0)};
    }
    /// A place for a value that is only there to be ended; empty when the system has no memory.
    /// What its move throws is passed on, and nothing has changed.
    [[nodiscard]] place_type place_to_end(void* payload_of) {
        const place_type p = restore_aside(aside_ids + next_aside_);
        if (p) {
            try {
                ops_.relocate(payload(p), payload_of);
            } catch (...) {
                free_place(p);
                throw;
            }
            ++next_aside_;
            p.at->store(slot_word{slot_state::settling});
        }
        return p;
    }

    /// How many messages have had a place of their own from the start: their numbering goes on.
    [[nodiscard]] std::uint64_t next_number() const noexcept { return next_aside_; }
    void start_numbers_at(std::uint64_t n) noexcept { next_aside_ = n; }

    /// Moves a message that was put aside to the end of the line, as if it had been sent now. None
    /// when there is no memory; then nothing has changed.
    [[nodiscard]] place_type put_in_line(place_type p) {
        std::uint64_t sequence = 0;
        slot<Sync>* at = nullptr;
        if (!ring_.claim(true, sequence, at)) {
            return {};
        }
        const place_type to = ring_.locate(sequence);
        try {
            ops_.relocate(payload(to), payload(p));
        } catch (...) {
            ring_.publish_hole(at);
            throw;
        }
        const slot_word w = p.at->load();
        message_details& d = *p.at->details();
        if (!d.has_id) {
            d.has_id = true;
            d.id = id_of(p);
        }
        to.at->set_details(&d);
        p.at->store(slot_word{slot_state::done});
        free_place(p);
        to.at->store(w.with(slot_state::ready));
        return to;
    }

    /// A message has left and its payload is gone: its place can be used again.
    void free_place(place_type p) noexcept {
        if (p.in->aside) {
            asides_.erase(p.in->base);
            ring_.free_aside(p.in);
        } else {
            p.at->store(slot_word{slot_state::done});
        }
    }

    /// Messages at the start of the order of sending that have all left.
    ///
    /// Cost: what has left since it was last asked, and the messages that were put aside.
    [[nodiscard]] std::uint64_t settled_through() noexcept {
        ring_.reclaim(); // so that nobody looks twice at slots that are done
        std::uint64_t oldest = ring_.next();
        for (const auto& [id, c] : asides_) {
            if (id < aside_ids) {
                oldest = std::min(oldest, id);
            }
        }
        for (std::uint64_t n = ring_.skip_reclaimed(0); n < oldest;
             n = ring_.skip_reclaimed(n + 1)) {
            const place_type p = ring_.locate(n);
            if (p && p.at->load().state() != slot_state::done) {
                return n;
            }
        }
        return oldest;
    }

    [[nodiscard]] std::size_t memory_bytes() const noexcept {
        return ring_.memory_bytes() + asides_.size() * ring_.aside_bytes();
    }

private:
    [[nodiscard]] std::uint32_t level_of(place_type p) const noexcept {
        const message_details* d = details_of(p);
        return d != nullptr && d->props != nullptr ? levels_->level_of(d->props->priority) : 0;
    }
    /// Moves the few aside that wait in a chunk which the others have left, so that it can be used
    /// again: what is urgent would else leave a chunk behind for each message that is not.
    void gather(chunk_type* c) noexcept {
        if (c == nullptr) {
            return;
        }
        const auto states = [c](auto&& f) {
            for (std::uint32_t i = c->cursor; i < c->capacity; ++i) {
                f(place_type{c, c->at(i)}, c->at(i)->load().state());
            }
        };
        std::uint32_t left = 0;
        states([&](place_type, slot_state s) { left += s != slot_state::done ? 1 : 0; });
        if (left <= c->capacity / 4) {
            states([&](place_type p, slot_state s) {
                if (s == slot_state::returned) {
                    put_aside(p);
                }
            });
        }
    }
    [[nodiscard]] auto is_returned() const noexcept {
        return [this](std::uint64_t id) {
            const place_type p = locate(id);
            return p && p.at->load().state() == slot_state::returned;
        };
    }
    [[nodiscard]] place_type taken(std::optional<std::uint64_t> id) noexcept {
        if (!id) {
            return {};
        }
        --returned_count_;
        return locate(*id);
    }

    ring_type ring_;
    lease_times<Sync> times_{};
    const payload_ops& ops_;
    boost::unordered_flat_map<std::uint64_t, chunk_type*> asides_{};
    returned_list returned_{};
    std::unique_ptr<priority_levels> levels_{};
    std::uint64_t returned_count_ = 0;
    std::uint64_t next_aside_ = 0;
};

} // namespace railmq::core
