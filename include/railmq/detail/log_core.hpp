// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/line_journal.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>
#include <railmq/model/topic_options.hpp>
#include <railmq/storage/kept_logs.hpp>
#include <railmq/storage/kept_state.hpp>
#include <railmq/storage/log_entries.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::detail {

template <class Runtime>
class log_group;
template <class Runtime>
class queue_core;

/// A queue that is filled from a log, by its name.
template <class Runtime>
struct subscription_entry {
    std::weak_ptr<queue_core<Runtime>> queue{};
    subscription_options options{};
};

/// A log: its partitions, each with a lock of its own, and its groups.
///
/// The list of partitions is read without a lock. It is never changed, but replaced by a longer
/// one; old lists stay, since partitions are added a few times in a log's life.
///
/// Lock order: the log's lock, then its definition's, a partition's, or a group's. No user code
/// runs under any of them, but for a payload's move.
template <class Runtime>
class log_core : public std::enable_shared_from_this<log_core<Runtime>> {
public:
    using broker_type = broker_core<Runtime>;
    using line_type = log_line<Runtime>;
    using group_type = log_group<Runtime>;
    using line_list = std::vector<line_type*>;

    /// `o` is valid. `kept_as`: its number in the broker's journal, if there is one; `from`: what
    /// another life has left there, of which its records are for `restore`. Throws
    /// `std::bad_alloc`.
    log_core(
        std::shared_ptr<broker_type> broker,
        std::string name,
        message_type type,
        log_options o,
        log_interest interest = {},
        std::uint64_t kept_as = 0,
        const storage::kept_log* from = nullptr)
        : broker_{std::move(broker)}
        , name_{std::move(name)}
        , type_{type}
        , options_{std::move(o)}
        , interest_{interest}
        , kept_as_{kept_as} {
        make(from == nullptr ? options_.partitions : from->definition.partitions, from);
    }
    log_core(const log_core&) = delete;
    log_core& operator=(const log_core&) = delete;

    [[nodiscard]] broker_type& broker() const noexcept { return *broker_; }
    [[nodiscard]] const std::shared_ptr<broker_type>& shared_broker() const noexcept {
        return broker_;
    }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] message_type type() const noexcept { return type_; }
    /// Who decides on how long records stay; where that is who reads them, it is a topic.
    [[nodiscard]] log_interest interest() const noexcept { return interest_; }
    [[nodiscard]] bool is_topic() const noexcept { return interest_.decides; }
    /// What it was made with.
    [[nodiscard]] const log_options& options() const noexcept { return options_; }

    // Partitions

    [[nodiscard]] const line_list& lines() const noexcept {
        return *lines_.load(std::memory_order_acquire);
    }
    [[nodiscard]] std::uint32_t partitions() const noexcept {
        return static_cast<std::uint32_t>(lines().size());
    }
    /// Null if there is none of that number.
    [[nodiscard]] line_type* line(std::uint32_t p) const noexcept {
        const line_list& all = lines();
        return p < all.size() ? all[p] : nullptr;
    }
    /// Makes `n` more, and tells the groups. `invalid_argument`: they would be too many; or an
    /// error of the journal.
    [[nodiscard]] errc add_partitions(std::uint32_t n);

    // The journal, in detail/kept_logs.hpp

    /// Its number there; 0: it is not kept.
    [[nodiscard]] std::uint64_t kept_as() const noexcept { return kept_as_; }
    [[nodiscard]] bool is_kept() const noexcept { return kept_as_ != 0; }

    /// A record whose bytes are no value of this log's type.
    struct undecodable {
        std::uint32_t partition = 0;
        std::uint64_t offset = 0;
        std::unique_ptr<properties> props{};
        std::vector<std::byte> payload{};
    };
    /// Takes its records and groups back as the journal kept them; nobody else knows the log yet.
    /// `next_number()` gives numbers for groups. What cannot be decoded stays stored, for
    /// `set_aside`. Errors: `journal_corrupt`, `io_error`, `memory_limit`.
    template <class NextNumber>
    [[nodiscard]] errc
    restore(storage::kept_log& from, NextNumber&& next_number, std::vector<undecodable>& bad);
    /// After it, with no lock held: moves what could not be decoded to a queue, if there is one,
    /// and does what has become due since the log was last open.
    void settle_restored(std::vector<undecodable>& bad, queue_core<Runtime>* to);

    /// Writes again what it is, or a part of what it has, and moves `at` on. False: it could not
    /// be written.
    [[nodiscard]] bool list_again(log_listing& at, std::size_t max, std::vector<std::byte>& record);
    /// Stores anew what is there of a run that is stored at `from`.
    bool store_again(
        const storage::log_run& run,
        storage::record_location from,
        std::vector<std::byte>& record,
        error_code& ec);
    /// As a journal keeps it.
    [[nodiscard]] storage::log_definition definition(std::size_t partitions) const {
        return {
            kept_as_,
            name_,
            type_.ops->format(),
            static_cast<std::uint32_t>(partitions),
            options_,
            interest_};
    }
    /// Says in the journal that it is gone, and with it its subscriptions; returns the number of
    /// the record, or 0 and an error.
    std::uint64_t write_deleted(error_code& ec);
    /// That is written: its records are not wanted any more.
    void forget();
    /// After a change in a partition, with no lock held: tells of what could not be written, and
    /// waits until it is as safe as the broker's sends are by default.
    void confirm(const line_record& kept, error_code& ec);
    /// The same for everything so far.
    void confirm_all(error_code& ec);
    /// What follows a change when nobody waits for it.
    void after(const line_record& kept) noexcept;

    // The end

    /// From now on everything reports `why`; whoever waits is woken.
    void close(errc why);
    /// Why it is closed; nothing while it is open.
    [[nodiscard]] errc closed() const noexcept {
        return static_cast<errc>(closed_.load(std::memory_order_acquire));
    }

    // Subscriptions

    using subscription_map = std::map<std::string, subscription_entry<Runtime>, std::less<>>;
    /// Held while one is made or ended, before any other lock.
    [[nodiscard]] auto& subscribing() noexcept { return subscribing_; }
    /// With that lock held. Those that were deleted as queues are still there.
    [[nodiscard]] subscription_map& subscriptions() noexcept { return subscriptions_; }
    /// All of them, those without a name as well.
    [[nodiscard]] std::size_t subscribers() const { return lines().front()->follower_count(); }

    /// What a kept subscription has not taken stays for it, though nobody has opened it yet. Throws
    /// `std::bad_alloc`.
    void keep_for(const storage::kept_queue& q) {
        std::lock_guard guard{unopened_mutex_};
        auto& kept = unopened_[q.definition.number];
        kept.name = q.definition.name;
        for (const auto& [partition, position] : q.feed->positions) {
            if (line_type* l = line(partition)) {
                auto& f = kept.followers.emplace_back();
                f.follower.max_backlog = q.feed->definition.max_backlog;
                f.follower.begin_at(position);
                f.line = l;
                l->keep_for(f.follower);
            }
        }
    }
    /// It is open, or is gone.
    void keep_no_more(std::uint64_t queue) noexcept {
        std::lock_guard guard{unopened_mutex_};
        const auto it = unopened_.find(queue);
        if (it != unopened_.end()) {
            for (auto& f : it->second.followers) {
                f.line->unfollow(f.follower);
            }
            unopened_.erase(it);
        }
    }
    /// Queues of kept subscriptions that nobody has opened.
    [[nodiscard]] std::vector<std::string> unopened_subscriptions() const {
        std::lock_guard guard{unopened_mutex_};
        std::vector<std::string> all;
        for (const auto& [number, kept] : unopened_) {
            all.push_back(kept.name);
        }
        return all;
    }

    // Groups

    [[nodiscard]] std::shared_ptr<group_type> find_group(std::string_view name) const {
        std::lock_guard guard{mutex_};
        const auto it = groups_.find(name);
        return it == groups_.end() ? nullptr : it->second;
    }
    [[nodiscard]] std::vector<std::shared_ptr<group_type>> groups() const {
        std::lock_guard guard{mutex_};
        std::vector<std::shared_ptr<group_type>> all;
        for (const auto& [name, g] : groups_) {
            all.push_back(g);
        }
        return all;
    }
    [[nodiscard]] std::vector<std::string> group_names() const {
        std::lock_guard guard{mutex_};
        std::vector<std::string> all;
        for (const auto& [name, g] : groups_) {
            all.push_back(name);
        }
        return all;
    }
    /// The group of that name, made with `make()` if it is missing.
    template <class Make>
    [[nodiscard]] std::shared_ptr<group_type> open_group(std::string_view name, Make&& make) {
        std::lock_guard guard{mutex_};
        if (const auto it = groups_.find(name); it != groups_.end()) {
            return it->second;
        }
        auto made = make();
        groups_.emplace(std::string{name}, made);
        return made;
    }
    /// Forgets that group, and not one that has come in its place.
    void remove_group(std::string_view name, const group_type& which) {
        std::shared_ptr<group_type> gone; // ended without the lock
        std::lock_guard guard{mutex_};
        const auto it = groups_.find(name);
        if (it != groups_.end() && it->second.get() == &which) {
            gone = std::move(it->second);
            groups_.erase(it);
        }
    }

private:
    /// In detail/log_subscriptions.hpp.
    void close_subscriptions(errc why);
    [[nodiscard]] std::unique_ptr<line_type>
    make_line(std::uint32_t number, const storage::kept_log* from) const {
        std::unique_ptr<line_journal<Runtime>> kept;
        std::uint64_t first = 0;
        if (is_kept()) {
            kept = std::make_unique<line_journal<Runtime>>(
                broker_->journal(), storage::log_place{kept_as_, number});
            if (from != nullptr) {
                const auto it = from->partitions.find(number);
                first = it == from->partitions.end() ? 0 : it->second.extent.start;
            }
        }
        return std::make_unique<line_type>(
            *type_.ops, broker_->budget(), options_, std::move(kept), first, interest_);
    }
    /// Makes a longer list, in which the new ones are; nobody sees it yet.
    std::unique_ptr<line_list> make_list(std::uint32_t more, const storage::kept_log* from) {
        auto longer = std::make_unique<line_list>();
        if (!lists_.empty()) {
            *longer = *lists_.back();
        }
        longer->reserve(longer->size() + more);
        lists_.reserve(lists_.size() + 1);
        owned_.reserve(owned_.size() + more);
        const std::size_t before = owned_.size();
        try {
            for (std::uint32_t i = 0; i < more; ++i) {
                owned_.push_back(make_line(static_cast<std::uint32_t>(owned_.size()), from));
                longer->push_back(owned_.back().get());
            }
        } catch (...) {
            owned_.resize(before);
            throw;
        }
        return longer;
    }
    void show(std::unique_ptr<line_list> longer) noexcept {
        lists_.push_back(std::move(longer)); // there is room
        lines_.store(lists_.back().get(), std::memory_order_release);
    }
    /// By the constructor.
    void make(std::uint32_t n, const storage::kept_log* from) { show(make_list(n, from)); }
    [[nodiscard]] errc restore_line(
        std::uint32_t number, const storage::kept_partition& kept, std::vector<undecodable>& bad);
    /// Moves one to a queue, in one record of the journal.
    void set_aside(undecodable& m, queue_core<Runtime>& to);
    /// With the lock held. Errors: as of the journal.
    [[nodiscard]] errc grow(std::uint32_t more);

    std::shared_ptr<broker_type> broker_;
    const std::string name_;
    const message_type type_;
    const log_options options_;
    const log_interest interest_;
    const std::uint64_t kept_as_;
    typename Runtime::mutex kept_mutex_{}; ///< What the journal says of its definition.
    bool is_deleted_ = false;              ///< With that lock.
    typename Runtime::template atomic<const line_list*> lines_{nullptr};
    typename Runtime::template atomic<int> closed_{0};
    mutable typename Runtime::mutex mutex_{};
    std::vector<std::unique_ptr<line_type>> owned_{};
    std::vector<std::unique_ptr<line_list>> lists_{};
    std::map<std::string, std::shared_ptr<group_type>, std::less<>> groups_{};
    typename Runtime::mutex subscribing_{};
    subscription_map subscriptions_{};
    struct unopened_follower {
        log_follower<Runtime> follower{};
        line_type* line = nullptr;
    };
    struct unopened_subscription {
        std::string name{};
        std::deque<unopened_follower> followers{}; ///< Partitions know where they are.
    };
    mutable typename Runtime::mutex unopened_mutex_{}; ///< Before a partition's.
    std::map<std::uint64_t, unopened_subscription> unopened_{};
};

} // namespace railmq::detail
