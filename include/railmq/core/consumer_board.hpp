// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/lease_holder.hpp>
#include <railmq/model/errc.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace railmq::core {

/// The consumers of a queue: their numbers, how much they hold, and which of them may be served.
///
/// Thread safety: with the queue's lock held.
template <class Sync>
class consumer_board {
public:
    using holder_type = lease_holder<Sync>;

    /// Gives a consumer a number. Throws `system_error` with `options_mismatch` when it disagrees
    /// with the others on single-active; then nothing has changed.
    void add(holder_type& h, const std::string& queue) {
        for (const holder_type* other : holders_) {
            if (other != nullptr && is_open(*other) && other->single_active != h.single_active) {
                throw system_error(
                    make_error_code(errc::options_mismatch),
                    "all consumers of queue '" + queue + "' must agree on single_active");
            }
        }
        if (free_numbers_.empty()) {
            if (holders_.size() >= slot_word::max_owner) {
                throw system_error(
                    make_error_code(errc::invalid_argument), "too many consumers of one queue");
            }
            free_numbers_.reserve(holders_.size() + 1); // so that giving it back cannot fail
            holders_.push_back(nullptr);
            free_numbers_.push_back(static_cast<std::uint32_t>(holders_.size()));
        }
        h.number = free_numbers_.back();
        free_numbers_.pop_back();
        holders_[h.number - 1] = &h;
        h.joined = ++joined_;
        ++open_;
    }
    /// The consumer gets nothing new from now on.
    void stop(holder_type& h) noexcept {
        h.is_open.store(false, std::memory_order_relaxed);
        h.update_needs_lock();
        --open_;
    }
    /// Removes a closed consumer once no handle refers to it. True: the caller may destroy it.
    [[nodiscard]] bool remove_if_unreferenced(holder_type& h) noexcept {
        {
            std::lock_guard guard{h.lock};
            if (!h.is_unreferenced()) {
                return false;
            }
        }
        if (holders_[h.number - 1] != &h) {
            return false;
        }
        past_taken_ += h.taken.load(std::memory_order_relaxed);
        past_unacked_ += h.slow_settlements;
        holders_[h.number - 1] = nullptr;
        free_numbers_.push_back(h.number);
        return true;
    }

    /// The holder of that number; it exists while it holds anything.
    [[nodiscard]] holder_type& numbered(std::uint32_t number) const noexcept {
        return *holders_[number - 1];
    }
    template <class F>
    void for_each(F&& f) const {
        for (holder_type* h : holders_) {
            if (h != nullptr) {
                f(*h);
            }
        }
    }

    [[nodiscard]] std::uint64_t open_count() const noexcept { return open_; }
    /// Unsettled deliveries. One that counts as acknowledged when it is handed out is none.
    [[nodiscard]] std::uint64_t held_count() const noexcept {
        std::uint64_t held = 0;
        for_each([&](const holder_type& h) { held += h.acks_on_delivery ? 0 : h.held(); });
        return held;
    }
    /// Deliveries so far, and how many of them ended in anything but an acknowledgement.
    [[nodiscard]] std::uint64_t taken_count() const noexcept {
        std::uint64_t n = past_taken_;
        for_each([&](const holder_type& h) { n += h.taken.load(std::memory_order_relaxed); });
        return n;
    }
    [[nodiscard]] std::uint64_t unacked_count() const noexcept {
        std::uint64_t n = past_unacked_;
        for_each([&](const holder_type& h) { n += h.slow_settlements; });
        return n;
    }

    /// Whether priorities, or a single active consumer, decide who is served.
    [[nodiscard]] bool chooses() const noexcept { return has_priorities_ || has_active_; }
    [[nodiscard]] bool may_take(const holder_type& h) const noexcept {
        return is_open(h) && !h.is_paused.load(std::memory_order_relaxed) && h.room() != 0 &&
               (!has_active_ || (active_ == &h && draining_ != &h));
    }
    /// Whether it is to be replaced once it has settled everything.
    [[nodiscard]] bool is_draining(const holder_type& h) const noexcept { return draining_ == &h; }

    /// Consumers have come or gone. Returns the one that has become active by it, or null.
    [[nodiscard]] holder_type* choose_mode() noexcept {
        has_active_ = false;
        has_priorities_ = false;
        const holder_type* first = nullptr;
        for_each([&](const holder_type& h) {
            if (is_open(h)) {
                has_active_ = has_active_ || h.single_active;
                has_priorities_ =
                    has_priorities_ || (first != nullptr && first->priority != h.priority);
                first = &h;
            }
        });
        return choose_active();
    }

    /// Highest priority, then longest registered. An active consumer is replaced by one of a
    /// higher priority only when it has settled everything (RabbitMQ, single active consumer).
    /// Returns the one that has become active by it, or null.
    [[nodiscard]] holder_type* choose_active() noexcept {
        draining_ = nullptr;
        if (!has_active_) {
            active_ = nullptr;
            return nullptr;
        }
        holder_type* best = nullptr;
        for_each([&](holder_type& h) {
            if (is_open(h) && (best == nullptr || h.priority > best->priority ||
                               (h.priority == best->priority && h.joined < best->joined))) {
                best = &h;
            }
        });
        const bool active_is_open = active_ != nullptr && is_open(*active_);
        if (active_is_open && best->priority <= active_->priority) {
            return nullptr;
        }
        if (active_is_open && active_->held() != 0) {
            draining_ = active_;
            want_settlements(*active_);
            return nullptr;
        }
        if (active_ == best) {
            return nullptr;
        }
        active_ = best;
        return best;
    }

    static void want_settlements(holder_type& h) noexcept {
        std::lock_guard guard{h.lock};
        h.wants_settlements = true;
    }

private:
    [[nodiscard]] static bool is_open(const holder_type& h) noexcept {
        return h.is_open.load(std::memory_order_relaxed);
    }

    std::vector<holder_type*> holders_{};
    std::vector<std::uint32_t> free_numbers_{};
    std::uint64_t joined_ = 0;
    std::uint64_t open_ = 0;
    std::uint64_t past_taken_ = 0;
    std::uint64_t past_unacked_ = 0;
    holder_type* active_ = nullptr;
    holder_type* draining_ = nullptr;
    bool has_active_ = false;
    bool has_priorities_ = false;
};

} // namespace railmq::core
