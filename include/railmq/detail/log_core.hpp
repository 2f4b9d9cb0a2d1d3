// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/time.hpp>
#include <railmq/model/topic_options.hpp>

#include <cstddef>
#include <cstdint>
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
/// Lock order: the log's lock, then a partition's, or a group's. No user code runs under any of
/// them, but for a payload's move.
template <class Runtime>
class log_core : public std::enable_shared_from_this<log_core<Runtime>> {
public:
    using broker_type = broker_core<Runtime>;
    using line_type = log_line<Runtime>;
    using group_type = log_group<Runtime>;
    using line_list = std::vector<line_type*>;

    /// `o` is valid. Throws `std::bad_alloc`.
    log_core(
        std::shared_ptr<broker_type> broker,
        std::string name,
        message_type type,
        log_options o,
        log_interest interest = {})
        : broker_{std::move(broker)}
        , name_{std::move(name)}
        , type_{type}
        , options_{std::move(o)}
        , interest_{interest} {
        grow(options_.partitions);
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
    /// Makes `n` more, and tells the groups. False: they would be too many.
    [[nodiscard]] bool add_partitions(std::uint32_t n);

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
    /// All of them, those without a name as well. Cost: a look at each.
    [[nodiscard]] std::size_t subscribers() const { return lines().front()->followers().size(); }

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
    /// With the lock held, or by the constructor.
    void grow(std::uint32_t more) {
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
                owned_.push_back(std::make_unique<line_type>(
                    *type_.ops, broker_->budget(), options_, interest_));
                longer->push_back(owned_.back().get());
            }
        } catch (...) {
            owned_.resize(before);
            throw;
        }
        lists_.push_back(std::move(longer));
        lines_.store(lists_.back().get(), std::memory_order_release);
    }

    std::shared_ptr<broker_type> broker_;
    const std::string name_;
    const message_type type_;
    const log_options options_;
    const log_interest interest_;
    typename Runtime::template atomic<const line_list*> lines_{nullptr};
    typename Runtime::template atomic<int> closed_{0};
    mutable typename Runtime::mutex mutex_{};
    std::vector<std::unique_ptr<line_type>> owned_{};
    std::vector<std::unique_ptr<line_list>> lists_{};
    std::map<std::string, std::shared_ptr<group_type>, std::less<>> groups_{};
    typename Runtime::mutex subscribing_{};
    subscription_map subscriptions_{};
};

} // namespace railmq::detail
