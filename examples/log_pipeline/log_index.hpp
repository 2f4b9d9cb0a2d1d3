// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "log_line.hpp"
#include "packed.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace log_pipeline {

/// Counts by key, for at most so many different keys: endless input must not fill the memory.
class bounded_counts {
public:
    using item = std::pair<std::string, std::uint64_t>;

    explicit bounded_counts(std::size_t most)
        : most_{most} {}

    void add(std::string_view key) {
        if (const auto found = counts_.find(key); found != counts_.end()) {
            ++found->second;
        } else if (counts_.size() < most_) {
            counts_.emplace(key, 1);
        } else {
            is_full_ = true;
        }
    }
    void save(packer& p) const {
        p.number(is_full_ ? 1 : 0).number(counts_.size());
        for (const auto& [key, count] : counts_) {
            p.text(key).number(count);
        }
    }
    void load(unpacker& u) {
        counts_.clear();
        is_full_ = u.number() != 0;
        for (std::uint64_t n = u.number(); n != 0 && !u.has_failed(); --n) {
            const std::string_view key = u.text();
            counts_[std::string{key}] = u.number();
        }
    }
    [[nodiscard]] std::size_t distinct() const noexcept { return counts_.size(); }
    /// Whether there were more than it could count.
    [[nodiscard]] bool is_full() const noexcept { return is_full_; }
    /// The most frequent ones; equal ones in the order of their keys.
    [[nodiscard]] std::vector<item> top(std::size_t n) const {
        std::vector<item> all(counts_.begin(), counts_.end());
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(std::min(n, all.size()));
        std::partial_sort(all.begin(), middle, all.end(), [](const item& a, const item& b) {
            return a.second != b.second ? a.second > b.second : a.first < b.first;
        });
        all.erase(middle, all.end());
        return all;
    }

private:
    struct hash : std::hash<std::string_view> {
        using is_transparent = void;
    };

    std::size_t most_;
    bool is_full_ = false;
    std::unordered_map<std::string, std::uint64_t, hash, std::equal_to<>> counts_{};
};

/// The index that the workers fill.
///
/// A queue hands every line out at least once, so adding must be idempotent: the index remembers
/// which lines it has. It need not remember them for ever: `queue_stats::settled_through` says up
/// to where all lines have left the queue, and of those a late worker may be told "I have it".
///
/// Thread safety: `add` and `settled_through` are safe; read the rest when the workers have ended.
class log_index {
public:
    /// False: it has this line already, and nothing has changed.
    bool add(std::uint64_t number, const entry& e) {
        const std::lock_guard guard{mutex_};
        if (number <= settled_through_) {
            ++repeats_;
            return false;
        }
        const std::size_t place = number - settled_through_ - 1;
        if (place >= has_.size()) {
            has_.resize(place + 1);
        }
        if (has_[place]) {
            ++repeats_;
            return false;
        }
        has_[place] = true;
        add_entry(e);
        return true;
    }
    /// Adds a line that cannot come twice.
    void count(const entry& e) {
        const std::lock_guard guard{mutex_};
        add_entry(e);
    }
    /// All lines up to this number have left the queue.
    void settled_through(std::uint64_t number) {
        const std::lock_guard guard{mutex_};
        for (; settled_through_ < number; ++settled_through_) {
            if (!has_.empty()) {
                has_.pop_front();
            }
        }
    }

    /// All that was added by `count`.
    void save(packer& p) const {
        p.number(lines_).number(words_seen_);
        for (const bounded_counts* c : {&minutes_, &levels_, &programs_, &words_}) {
            c->save(p);
        }
    }
    void load(unpacker& u) {
        lines_ = u.number();
        words_seen_ = u.number();
        for (bounded_counts* c : {&minutes_, &levels_, &programs_, &words_}) {
            c->load(u);
        }
    }

    [[nodiscard]] std::uint64_t lines() const noexcept { return lines_; }
    /// How often a line came again and was not counted twice.
    [[nodiscard]] std::uint64_t repeats() const noexcept { return repeats_; }
    [[nodiscard]] std::uint64_t words_seen() const noexcept { return words_seen_; }
    [[nodiscard]] const bounded_counts& minutes() const noexcept { return minutes_; }
    [[nodiscard]] const bounded_counts& levels() const noexcept { return levels_; }
    [[nodiscard]] const bounded_counts& programs() const noexcept { return programs_; }
    [[nodiscard]] const bounded_counts& words() const noexcept { return words_; }

private:
    void add_entry(const entry& e) {
        ++lines_;
        minutes_.add(e.minute);
        levels_.add(e.level.empty() ? "(none)" : e.level);
        programs_.add(e.program.empty() ? "(none)" : e.program);
        add_words(e.text);
    }
    /// Words are runs of three letters or more, whatever their case.
    void add_words(std::string_view text) {
        word_.clear();
        for (std::size_t i = 0; i <= text.size(); ++i) {
            const bool goes_on = i < text.size() && (detail::is_letter(text[i]) ||
                                                     static_cast<unsigned char>(text[i]) >= 0x80);
            if (goes_on) {
                const char c = text[i];
                word_ += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
                continue;
            }
            if (word_.size() >= 3) {
                ++words_seen_;
                words_.add(std::string_view{word_}.substr(0, 48));
            }
            word_.clear();
        }
    }

    std::mutex mutex_{};
    std::uint64_t settled_through_ = 0;
    std::deque<bool> has_{}; ///< Of the lines after that.
    std::uint64_t lines_ = 0;
    std::uint64_t repeats_ = 0;
    std::uint64_t words_seen_ = 0;
    std::string word_{};
    bounded_counts minutes_{100'000};
    bounded_counts levels_{100};
    bounded_counts programs_{10'000};
    bounded_counts words_{100'000};
};

} // namespace log_pipeline
