// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/core/message_leases.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace railmq::core {

/// How a queue's messages outlive their process: what is kept of each, and how they take their
/// places again. The base of `queue_machine`.
///
/// Thread safety: with the queue's lock held.
template <class Sync>
class message_recovery : public message_leases<Sync> {
    using base = message_leases<Sync>;

public:
    using place_type = place<Sync>;
    using effects_type = effects<Sync>;

    using base::base;

    /// The message as it is now, without what never changes. Of one that is plain, `enqueued` and
    /// the counts are all there is to see.
    [[nodiscard]] message_image image_of(place_type p) const {
        const slot_word w = p.at->load();
        message_image image;
        image.id = store_.public_id(p);
        image.position = store_.id_of(p);
        image.delivery_count = w.tag();
        const message_details* d = store_.details_of(p);
        image.enqueued = d != nullptr ? d->enqueued : p.at->enqueued();
        switch (w.state()) {
        case slot_state::leased:
        case slot_state::settling: image.state = image_state::held; break;
        case slot_state::returned:
            // With priorities nothing stands in line, and yet it does, as far as anybody can tell.
            if (!store_.is_untouched(p)) {
                image.state = image_state::returned;
            }
            break;
        default: break;
        }
        if (d == nullptr) {
            if (image.state == image_state::held) {
                image.first_handed_out =
                    this->start_of_lease_until(store_.times().at(image.position));
            }
            return image;
        }
        image.failures = d->failures;
        image.first_handed_out = d->first_handed_out;
        image.expires_at = d->expires_at;
        image.previous_wait = d->previous_wait;
        image.returned_to = d->returned_to;
        if (w.state() == slot_state::waiting) {
            switch (d->waits_for) {
            case wait_kind::delay: image.state = image_state::delayed; break;
            case wait_kind::backoff: image.state = image_state::waiting; break;
            case wait_kind::dead_letter:
                image.state = image_state::dying;
                image.dying_of = d->dying_of;
                image.dying_detail = d->dying_detail;
                break;
            case wait_kind::key: // it stands in line, as far as anybody can tell
            case wait_kind::none: break;
            }
            image.due = timers_.deadline(d->timer).value_or(never);
        }
        return image;
    }

    /// Numbers go on where they ended. Before anything else.
    void start_at(std::uint64_t position, std::uint64_t delayed_numbers) {
        ring_.start_at(position);
        store_.start_numbers_at(delayed_numbers);
    }
    [[nodiscard]] std::uint64_t delayed_numbers() const noexcept { return store_.next_number(); }

    /// Takes back a message that outlived its process: first those in line, then the others, each
    /// in the order of positions. `payload` is moved from. `in_line`: it keeps its position in the
    /// line, where those between have left; else it is ready out of line, which is the same to its
    /// consumers. One that was held when the process ended has failed, unless it `was_closed` in
    /// good order.
    ///
    /// False: no memory at all; nothing has changed. What the payload's move throws is passed on.
    /// `has_payload` is false from when it was moved.
    [[nodiscard]] bool restore(
        message_image& image,
        void* payload,
        bool& has_payload,
        bool in_line,
        bool was_closed,
        time_point now,
        effects_type& fx) {
        const place_type p =
            in_line ? next_in_line(image.position) : store_.restore_aside(image.position);
        if (!p) {
            return false;
        }
        store_.ops().relocate(store_.payload(p), payload);
        has_payload = false;
        slot_word w{slot_state::settling};
        p.at->store(w.handed_out(image.delivery_count));
        p.at->set_enqueued(image.enqueued);
        const bool is_plain = in_line && image.is_plain() && image.props == nullptr &&
                              image.deaths == nullptr && image.delivery_count == 0;
        if (!in_line) {
            ++delayed_accepted_;
        }
        if (is_plain) {
            p.at->store(slot_word{slot_state::ready});
            ready_bytes_ += this->bytes_of(p);
            leave_line();
            return true;
        }
        message_details& d = store_.make_details(p);
        d.enqueued = image.enqueued;
        d.has_id = image.id != image.position || image.id >= store_.aside_ids;
        d.id = image.id;
        d.failures = image.failures;
        d.first_handed_out = image.delivery_count != 0 && image.first_handed_out == never
                                 ? now
                                 : image.first_handed_out;
        d.lease_deadline = never;
        d.previous_wait = image.previous_wait;
        d.props = std::move(image.props);
        d.deaths = std::move(image.deaths);
        if (image.expires_at != never) {
            d.expires_at = image.expires_at;
            d.lifetime =
                timers_.arm(image.expires_at, {store_.id_of(p), base::timer_kind::lifetime});
            ++lifetimes_;
            ring_.set_next_gate(true);
            p.at->store(p.at->load().with_flags(slot_word::slow_bit));
        }
        const bool keeps_line = image.delivery_count != 0 && image.state != image_state::dying;
        if (keeps_line && options_.order != delivery_order::fifo && !this->enter_key_line(p)) {
            ready_bytes_ += this->bytes_of(p);
            return true; // another one of its key is out
        }
        resume(p, image, in_line, was_closed, now, fx);
        return true;
    }

    /// All that outlived the process is back: numbers go on from `position`.
    void end_restore(std::uint64_t position) {
        while (ring_.tail() < position) {
            std::uint64_t n = 0;
            slot<Sync>* at = nullptr;
            if (!ring_.claim(true, n, at)) {
                throw std::bad_alloc{};
            }
            ring_.publish_hole(at);
        }
        leave_line();
    }

protected:
    using base::delayed_;
    using base::delayed_accepted_;
    using base::lifetimes_;
    using base::options_;
    using base::ready_bytes_;
    using base::ring_;
    using base::store_;
    using base::timers_;

    ~message_recovery() = default;

private:
    void leave_line() noexcept {
        if (store_.has_levels()) {
            store_.leave_line();
        }
    }

    /// The place of that position in line; those that come before it and are still free stay empty.
    [[nodiscard]] place_type next_in_line(std::uint64_t position) {
        for (;;) {
            std::uint64_t n = 0;
            slot<Sync>* at = nullptr;
            if (!ring_.claim(true, n, at)) {
                return {};
            }
            if (n == position) {
                return ring_.locate(n);
            }
            ring_.publish_hole(at);
        }
    }

    void resume(
        place_type p,
        message_image& image,
        bool in_line,
        bool was_closed,
        time_point now,
        effects_type& fx) {
        switch (image.state) {
        case image_state::in_line:
            ready_bytes_ += this->bytes_of(p);
            if (in_line) {
                store_.set_state(p, slot_state::ready);
                leave_line();
            } else {
                store_.put_back(p, requeue_position::original);
            }
            return;
        case image_state::held:
            if (was_closed) {
                this->give_back(p, requeue_position::original, now, fx);
            } else {
                this->fail(p, failure_kind::crashed, {}, std::nullopt, now, fx);
            }
            return;
        case image_state::crashed:
            this->fail(p, failure_kind::crashed, {}, std::nullopt, now, fx);
            return;
        case image_state::returned:
            if (this->has_expired(p, now)) {
                this->give_back(p, image.returned_to, now, fx);
                return;
            }
            // It was ready before, so it makes nobody leave who was ready beside it.
            store_.details_of(p)->returned_to = image.returned_to;
            ready_bytes_ += this->bytes_of(p);
            store_.put_back(p, image.returned_to);
            return;
        case image_state::delayed: this->wait_until(p, image.due, wait_kind::delay); return;
        case image_state::waiting: this->wait_until(p, image.due, wait_kind::backoff); return;
        case image_state::dying:
            this->die(p, image.dying_of, std::move(image.dying_detail), fx);
            return;
        }
    }
};

} // namespace railmq::core
