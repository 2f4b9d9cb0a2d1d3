// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_recovery.hpp>
#include <railmq/model/errc.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

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

    /// Whether that many messages of so many bytes altogether could be stored now; whoever waits
    /// for room comes first.
    [[nodiscard]] errc
    can_store(std::uint64_t messages, std::uint64_t bytes, bool is_waited_for) const noexcept {
        if (closed_) {
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
            ring_.set_next_gate(true);
            take_out(p);
            leave(p, true, fx);
        }
    }
    /// Stores one of them. Its move does not throw.
    [[nodiscard]] errc store_now(
        void* payload,
        std::unique_ptr<railmq::properties>& props,
        time_point now,
        effects_type& fx,
        std::uint64_t& id) {
        std::unique_ptr<message_details> details;
        return store_message(payload, props, details, now, true, fx, id);
    }
    /// Whether an acknowledgement of that lease would settle it now.
    [[nodiscard]] bool can_ack(const lease_type& l) {
        std::lock_guard guard{l.holder->lock};
        const slot_word w = l.at->load();
        return is_current(l, w) || is_late_but_first(l, w, settlement::kind::ack);
    }

protected:
    using base::closed_;
    using base::has_room;
    using base::is_current;
    using base::is_late_but_first;
    using base::leave;
    using base::options_;
    using base::ring_;
    using base::store_;
    using base::store_message;
    using base::take_out;

    ~joint_changes() = default;
};

} // namespace railmq::core
