// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/payload_ops.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/detail/message_type.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/notice.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::detail {

template <class Runtime>
class log_core;
struct log_listing;

/// The logs and topics of one broker, which share its queues' names: those that are open, and those
/// of another life that nobody has opened yet. The base of `broker_core`, whose names' lock guards
/// them.
///
/// Thread safety: any call by any thread.
template <class Runtime, class Broker>
class broker_logs {
public:
    using log_type = log_core<Runtime>;

    /// The log of that name, opened, or made with `options`. Null, and `failed` says why: `closed`;
    /// `type_mismatch` for the name of a queue, or a log of another type; `options_mismatch`;
    /// `invalid_argument` for a type that has no bytes, in a broker with a journal; an error of
    /// the journal. Null alone: there is none, and no `options` to make it with. A topic is one
    /// whose `interest` decides.
    [[nodiscard]] std::shared_ptr<log_type> open_log(
        std::string_view name,
        message_type type,
        const log_options* options,
        log_interest interest,
        failure& failed);
    /// One that is open, or null.
    [[nodiscard]] std::shared_ptr<log_type> find_log(std::string_view name) const {
        std::lock_guard guard{self().names_mutex_};
        const auto it = logs_.find(name);
        return it == logs_.end() ? nullptr : it->second;
    }
    /// Removes the name; the log itself lives on in its handles. False: it is another's by now.
    bool forget_log(const std::shared_ptr<log_type>& which) {
        std::lock_guard guard{self().names_mutex_};
        const auto it = logs_.find(which->name());
        if (it == logs_.end() || it->second != which) {
            return false;
        }
        logs_.erase(it);
        return true;
    }

    /// Says in the journal that it is gone; `forget_log` is to be called when it is closed, so that
    /// whoever makes it anew finds none of its subscriptions. Null: there is none that is open, or
    /// `ec` says why it stays.
    [[nodiscard]] std::shared_ptr<log_type>
    remove_log(std::string_view name, bool is_topic, error_code& ec);
    /// Deletes a kept one that nobody has opened; `not_found`, or an error of the journal.
    void remove_unopened_log(std::string_view name, bool is_topic, error_code& ec);

    [[nodiscard]] std::vector<std::shared_ptr<log_type>> logs() const {
        std::lock_guard guard{self().names_mutex_};
        std::vector<std::shared_ptr<log_type>> all;
        for (const auto& [name, log] : logs_) {
            all.push_back(log);
        }
        return all;
    }
    /// Whether it is kept, and nobody has opened it.
    [[nodiscard]] bool is_unopened_log(std::string_view name, bool is_topic) const {
        std::lock_guard guard{self().names_mutex_};
        const auto it = unopened_logs_.find(name);
        return it != unopened_logs_.end() && is_unopened_topic(it->second) == is_topic;
    }
    /// Of logs or of topics, sorted; logs that nobody has opened as well.
    [[nodiscard]] std::vector<std::string> log_names(bool of_topics) const {
        std::lock_guard guard{self().names_mutex_};
        std::vector<std::string> all;
        for (const auto& [name, log] : logs_) {
            if (log->is_topic() == of_topics) {
                all.push_back(name);
            }
        }
        for (const auto& [name, number] : unopened_logs_) {
            if (is_unopened_topic(number) == of_topics) {
                all.push_back(name);
            }
        }
        std::sort(all.begin(), all.end());
        return all;
    }

    /// Something could not be written for that reason: an observer hears of it.
    void tell_unwritten(std::string_view name, errc why) noexcept {
        self().count_unwritten(why);
        if (why == errc::no_space) {
            self().want_space();
        }
        if (self().is_listening()) {
            try {
                notices::unwritten n{};
                n.queue = name;
                n.at = self().clock().now();
                n.code = why;
                self().notify({notice{std::move(n)}});
            } catch (...) {
                self().count_swallowed();
            }
        }
    }

    // For the upkeep

    [[nodiscard]] std::vector<std::uint64_t> unopened_log_numbers() const {
        std::lock_guard guard{self().names_mutex_};
        std::vector<std::uint64_t> all;
        for (const auto& [name, number] : unopened_logs_) {
            all.push_back(number);
        }
        return all;
    }
    [[nodiscard]] std::vector<std::shared_ptr<log_type>> logs_kept_as(std::uint64_t number) const {
        std::lock_guard guard{self().names_mutex_};
        std::vector<std::shared_ptr<log_type>> all;
        if (const auto it = logs_kept_as_.find(number); it != logs_kept_as_.end()) {
            all.push_back(it->second);
        }
        return all;
    }
    /// Writes again a part of what a log is and has that nobody has opened; moves `at` on. False:
    /// it is no such log.
    [[nodiscard]] bool list_unopened_log(
        std::uint64_t number,
        log_listing& at,
        std::size_t max,
        std::vector<std::byte>& record,
        bool& is_written);
    /// Stores anew what is there of a run that is stored at `from`.
    bool store_run_again(
        const storage::log_run& run,
        storage::record_location from,
        std::vector<std::byte>& record,
        error_code& ec);

protected:
    broker_logs() = default;
    broker_logs(const broker_logs&) = delete;
    broker_logs& operator=(const broker_logs&) = delete;
    ~broker_logs() = default;

    using log_map = std::map<std::string, std::shared_ptr<log_type>, std::less<>>;
    using after_list = std::vector<std::function<void()>>;

    /// What it is that has that name: "a log", "a topic", or empty. With the names' lock held, as
    /// the next.
    [[nodiscard]] std::string_view shape_of_log(std::string_view name) const {
        if (const auto it = logs_.find(name); it != logs_.end()) {
            return it->second->is_topic() ? "a topic" : "a log";
        }
        const auto it = unopened_logs_.find(name);
        return it == unopened_logs_.end()      ? ""
               : is_unopened_topic(it->second) ? "a topic"
                                               : "a log";
    }
    [[nodiscard]] bool is_unopened_topic(std::uint64_t number) const {
        return self().kept_.logs.at(number).definition.interest.decides;
    }
    /// The log of that number in the journal, opened if nobody has.
    [[nodiscard]] std::shared_ptr<log_type>
    log_kept_as(std::uint64_t number, message_type type, after_list& after, failure& failed) {
        if (const auto it = logs_kept_as_.find(number); it != logs_kept_as_.end()) {
            return it->second;
        }
        const auto& was = self().kept_.logs.at(number).definition;
        return open_log_locked(std::string{was.name}, type, nullptr, was.interest, after, failed);
    }
    /// It has no messages of that queue to keep any more.
    void keep_no_more(std::uint64_t log, std::uint64_t queue) noexcept {
        if (const auto it = logs_kept_as_.find(log); it != logs_kept_as_.end()) {
            it->second->keep_no_more(queue);
        }
    }
    [[nodiscard]] bool has_log(const log_type& l) const {
        const auto it = logs_.find(l.name());
        return it != logs_.end() && it->second.get() == &l;
    }
    void find_unopened_logs() {
        for (const auto& [number, log] : self().kept_.logs) {
            unopened_logs_.insert_or_assign(log.definition.name, number);
        }
    }
    [[nodiscard]] log_map take_logs() {
        log_map gone;
        gone.swap(logs_);
        logs_kept_as_.clear();
        return gone;
    }

private:
    [[nodiscard]] Broker& self() noexcept { return static_cast<Broker&>(*this); }
    [[nodiscard]] const Broker& self() const noexcept { return static_cast<const Broker&>(*this); }
    [[nodiscard]] std::shared_ptr<log_type> open_log_locked(
        std::string_view name,
        message_type type,
        const log_options* options,
        log_interest interest,
        after_list& after,
        failure& failed);
    [[nodiscard]] std::shared_ptr<log_type> make_log(
        std::string_view name,
        message_type type,
        const log_options& options,
        log_interest interest,
        after_list& after,
        failure& failed);
    [[nodiscard]] std::shared_ptr<log_type> wake_log(
        std::uint64_t number,
        message_type type,
        const log_options* options,
        after_list& after,
        failure& failed);

    log_map logs_{};
    std::map<std::string, std::uint64_t, std::less<>> unopened_logs_{};
    std::map<std::uint64_t, std::shared_ptr<log_type>> logs_kept_as_{}; ///< Those that are open.
};

} // namespace railmq::detail
