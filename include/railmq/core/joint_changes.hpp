// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_recovery.hpp>
#include <railmq/core/waiters.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/notice.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

namespace railmq::core {

/// What a queue does as one with other queues: it is asked first whether it can, and then does,
/// with the locks of all of them held all the while. The base of `queue_machine`.
///
/// Thread safety: with the queue's lock held.
template <class Sync>
class joint_changes : public message_recovery<Sync> {
    using base = message_recovery<Sync>;

public:
    using place_type = place<Sync>;
    using lease_type = lease<Sync>;
    using effects_type = effects<Sync>;

    using base::base;

    /// Until the queue is served, nobody stores anything without its lock: what is said here holds.
    void hold_sends() noexcept { ring_.set_tail_gate(true); }
    /// Whether that many messages of so many bytes altogether could be stored now; whoever waits
    /// for room comes first. A handler may still send while the queue is being drained.
    [[nodiscard]] errc can_store(
        std::uint64_t messages,
        std::uint64_t bytes,
        bool is_waited_for,
        bool from_handler = false) const noexcept {
        if (closed_ && !(from_handler && !aborted_)) {
            return errc::closed;
        }
        const bool has_way = options_.overflow == overflow_policy::drop_oldest ||
                             (!is_waited_for && has_room(messages, bytes));
        return has_way ? errc{} : errc::queue_full;
    }
    /// Room in memory for them: `memory_limit` where there is none.
    [[nodiscard]] errc reserve(std::uint64_t messages) {
        return ring_.reserve(messages) ? errc{} : errc::memory_limit;
    }
    /// Takes back what `store_now` has stored, and nobody has seen.
    void take_back(std::uint64_t id, effects_type& fx) {
        if (const place_type p = store_.locate(id)) {
            // As if it had not been accepted, nor told of.
            const std::uint64_t public_id = store_.public_id(p);
            if (p.in->aside) {
                --delayed_accepted_;
            } else {
                ++relocated_;
            }
            std::erase_if(fx.notices, [&](const notice& n) {
                const auto* sent = std::get_if<notices::sent>(&n);
                return sent != nullptr && sent->id == public_id;
            });
            ring_.set_next_gate(true);
            take_out(p);
            leave(p, true, fx);
            if (window_) {
                window_->take_back(public_id);
                std::erase_if(fx.remembered, [&](const auto& r) { return r.id == public_id; });
            }
        }
    }
    /// Stores one of them. Its move does not throw.
    [[nodiscard]] errc store_now(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        time_point now,
        effects_type& fx,
        std::uint64_t& id) {
        return store_once(payload, props, now, true, fx, id);
    }
    /// Whether a message of so many bytes can never be stored.
    [[nodiscard]] bool is_too_large(std::uint64_t bytes) const noexcept {
        return options_.max_bytes != unlimited && bytes > options_.max_bytes;
    }
    /// Whether an acknowledgement of that lease would settle it now.
    [[nodiscard]] bool can_ack(const lease_type& l) {
        std::lock_guard guard{l.holder->lock};
        const slot_word w = l.at->load();
        return is_current(l, w) || is_late_but_first(l, w, settlement::kind::ack);
    }

    /// An id that outlived its process is still remembered. In the order of time.
    void remember_again(std::string key, std::uint64_t id, time_point at) {
        if (window_ && window_->find(key) == nullptr) {
            (void)window_->add(std::move(key), id, at, true);
            this->watch_window();
        }
    }
    /// The record that says of these sends could not be written: they may be sent again.
    void forget_unwritten(const effects_type& fx) noexcept {
        for (const remembered_id& r : fx.remembered) {
            window_->take_back(r.id);
        }
    }
    /// Calls `f(entry)` for each deduplication id that is remembered.
    template <class F>
    void for_each_remembered(F&& f) const {
        if (window_) {
            window_->for_each(f);
        }
    }

protected:
    /// `store_message`, of a message that was sent: one whose deduplication id is remembered is
    /// accepted, and ended elsewhere; `id` is then that of the first, as `effects::was_duplicate`
    /// says.
    [[nodiscard]] errc store_once(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        time_point now,
        bool must,
        effects_type& fx,
        std::uint64_t& id) {
        std::unique_ptr<message_details> details;
        fx.was_duplicate = false;
        if (!window_ || aborted_ || props == nullptr || props->deduplication_id.empty()) {
            return store_message(payload, props, details, now, must, fx, id);
        }
        window_->forget_old(now);
        if (const auto* first = window_->find(props->deduplication_id)) {
            return pass_over(payload, first->key, first->id, now, fx, id);
        }
        if (!window_->add(props->deduplication_id, 0, now, must)) {
            return this->refuse(errc::memory_limit, now, fx);
        }
        errc e{};
        const std::size_t before = fx.remembered.size();
        const auto forget_again = [&] {
            window_->take_back_last();
            fx.remembered.erase(
                fx.remembered.begin() + static_cast<std::ptrdiff_t>(before), fx.remembered.end());
        };
        try {
            this->watch_window();
            if (fx.keeping) {
                fx.remembered.push_back({props->deduplication_id, 0, now});
            }
            e = store_message(payload, props, details, now, must, fx, id);
        } catch (...) {
            forget_again();
            throw;
        }
        if (e != errc{}) {
            forget_again();
            return e;
        }
        window_->last().id = id;
        if (fx.keeping) {
            fx.remembered.back().id = id;
        }
        return e;
    }

    /// Places the message of a send that has waited, or sees whether it could. Errors: `queue_full`
    /// as long as it has to wait.
    [[nodiscard]] errc place_waited(send_waiter& w, time_point now, effects_type& fx) {
        if (w.payload == nullptr) {
            return has_room(1, w.bytes) ? errc{} : errc::queue_full;
        }
        try {
            const auto outer = std::exchange(fx.encoded, w.encoded);
            const errc e = store_once(w.payload, w.props, now, false, fx, w.id);
            w.is_duplicate = fx.was_duplicate;
            fx.encoded = outer;
            return e;
        } catch (...) {
            return errc::invalid_argument; // moving the payload failed; its owner still has it
        }
    }

    using base::aborted_;
    using base::closed_;
    using base::delayed_accepted_;
    using base::has_room;
    using base::is_current;
    using base::is_late_but_first;
    using base::leave;
    using base::options_;
    using base::relocated_;
    using base::ring_;
    using base::store_;
    using base::store_message;
    using base::take_out;
    using base::totals_;
    using base::window_;

    ~joint_changes() = default;

private:
    [[nodiscard]] errc pass_over(
        void* payload,
        const std::string& key,
        std::uint64_t first,
        time_point now,
        effects_type& fx,
        std::uint64_t& id) {
        notices::duplicate n{};
        if (fx.listening) {
            this->fill(n, now, first);
            n.deduplication_id = key;
            fx.notices.reserve(fx.notices.size() + 1); // once the value has moved nothing may fail
        }
        if (store_.ops().destroy != nullptr) { // user code: runs once the lock is released
            fx.endings.reserve(fx.endings.size() + 1);
            const place_type p = store_.place_to_end(payload);
            if (!p) {
                return this->refuse(errc::memory_limit, now, fx);
            }
            fx.endings.push_back({p, true});
        }
        fx.note(std::move(n));
        ++totals_.duplicates;
        fx.was_duplicate = true;
        id = first;
        return errc{};
    }
};

} // namespace railmq::core
