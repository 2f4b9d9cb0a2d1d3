// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/memory_budget.hpp>
#include <railmq/core/ready_bitmap.hpp>

#include <cstddef>
#include <cstdint>

namespace railmq::detail {

/// Which of a queue's payloads are in its journal alone, and how many bytes the others take of the
/// broker's memory: as many as they take in the journal, since what a value owns nobody can ask.
///
/// Thread safety: with the queue's lock held.
template <class Runtime>
class absent_payloads {
public:
    explicit absent_payloads(core::memory_budget<Runtime>& budget) noexcept
        : budget_{budget} {}
    absent_payloads(const absent_payloads&) = delete;
    absent_payloads& operator=(const absent_payloads&) = delete;
    ~absent_payloads() { budget_.release_payload(present_); }

    /// Whether payloads should leave.
    [[nodiscard]] bool is_tight() const noexcept { return budget_.is_tight(); }
    [[nodiscard]] std::uint64_t count() const noexcept { return absent_.size(); }
    [[nodiscard]] bool contains(std::uint64_t id) const noexcept {
        return !absent_.empty() && absent_.contains(id);
    }

    /// New messages have so many bytes, with their payloads.
    void add_present(std::size_t bytes) noexcept {
        if (bytes != 0) {
            budget_.charge_payload(bytes);
            present_ += bytes;
        }
    }
    /// Messages have left that had so many bytes, and their payloads.
    void remove_present(std::size_t bytes) noexcept {
        if (bytes != 0) {
            release(bytes);
        }
    }
    /// A message is known, without its payload.
    void add_absent(std::uint64_t id) { absent_.insert(id); }
    /// Messages have left, `n` in a row. Returns how many of them had no payload here; that of the
    /// others is for the caller to count, for many at once, since the budget is shared with other
    /// threads.
    [[nodiscard]] std::uint64_t remove_absent(std::uint64_t first, std::uint64_t n) noexcept {
        std::uint64_t removed = 0;
        for (std::uint64_t i = 0; i != n && !absent_.empty(); ++i) {
            removed += absent_.erase(first + i) ? 1 : 0;
        }
        return removed;
    }
    /// It takes another number of bytes now.
    void resize(std::uint64_t id, std::size_t from, std::size_t to) noexcept {
        if (!contains(id)) {
            release(from);
            add_present(to);
        }
    }

    void leave(std::uint64_t id, std::size_t bytes) {
        absent_.insert(id);
        release(bytes);
    }
    void come_back(std::uint64_t id, std::size_t bytes) noexcept {
        absent_.erase(id);
        add_present(bytes);
    }
    void clear() noexcept {
        absent_.clear();
        release(present_);
    }

private:
    void release(std::size_t bytes) noexcept {
        budget_.release_payload(bytes);
        present_ -= bytes;
    }

    core::memory_budget<Runtime>& budget_;
    ready_bitmap absent_{};
    std::size_t present_ = 0;
};

} // namespace railmq::detail
