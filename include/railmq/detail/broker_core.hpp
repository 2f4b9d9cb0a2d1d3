// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/broker_options.hpp>
#include <railmq/config.hpp>
#include <railmq/core/memory_budget.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/detail/broker_logs.hpp>
#include <railmq/detail/due_source.hpp>
#include <railmq/detail/exchange_table.hpp>
#include <railmq/detail/feed_terms.hpp>
#include <railmq/detail/journal_upkeep.hpp>
#include <railmq/detail/message_type.hpp>
#include <railmq/detail/timekeepers.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/notice.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/kept_state.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/system_executor.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

namespace detail {

template <class Runtime>
class queue_core;

/// Which broker's handler this thread is in, so that a call that would wait for its own caller
/// can refuse.
inline thread_local const void* handler_of = nullptr;

class handler_scope {
public:
    explicit handler_scope(const void* broker) noexcept
        : outer_{std::exchange(handler_of, broker)} {}
    handler_scope(const handler_scope&) = delete;
    handler_scope& operator=(const handler_scope&) = delete;
    ~handler_scope() { handler_of = outer_; }

private:
    const void* outer_;
};

/// What a broker on a journal begins with.
struct broker_journaling {
    std::shared_ptr<storage::broker_journal> journal{};
    storage::kept_state state{};
    storage::recovery_report report{};
};

/// What the queues and logs of one broker share: time, memory, names, deadlines, the journal.
///
/// Lock order: a queue's lock, then the deadline list's, or the sleepers' and a parking spot's;
/// the names' lock is held alone.
template <class Runtime>
class broker_core : public std::enable_shared_from_this<broker_core<Runtime>>,
                    public timekeepers<Runtime, broker_core<Runtime>>,
                    public broker_logs<Runtime, broker_core<Runtime>> {
public:
    using queue_type = queue_core<Runtime>;
    using log_type = log_core<Runtime>;
    using clock_type = typename Runtime::clock;

    broker_core(
        clock_type clock, broker_options options, std::uint64_t seed, broker_journaling kept = {})
        : clock_{clock}
        , options_{std::move(options)}
        , budget_{std::make_shared<core::memory_budget<Runtime>>(options_.memory_limit)}
        , seed_{seed}
        , journal_{std::move(kept.journal)}
        , report_{std::move(kept.report)}
        , kept_{std::move(kept.state)}
        , bindings_{journal_.get()}
        , upkeep_{
              *this,
              journal_.get(),
              options_.journal.segment_bytes,
              report_.segments > 2 ? 0 : options_.journal.segment_bytes} {
        for (const auto& [number, queue] : kept_.queues) {
            // Of two of one name the older was just being deleted when the process ended.
            unopened_.insert_or_assign(queue.definition.name, number);
        }
        list_kept_exchanges();
        this->find_unopened_logs();
    }

    [[nodiscard]] clock_type& clock() noexcept { return clock_; }
    [[nodiscard]] core::memory_budget<Runtime>& budget() noexcept { return *budget_; }
    [[nodiscard]] const auto& shared_budget() const noexcept { return budget_; }
    [[nodiscard]] const broker_options& options() const noexcept { return options_; }
    [[nodiscard]] bool is_listening() const noexcept { return bool{options_.observer}; }
    [[nodiscard]] std::uint64_t seed_for(std::uint64_t number) const noexcept {
        random_engine mix{seed_ ^ (number * 0x9e3779b97f4a7c15ULL)};
        return mix();
    }

    // Notices

    void notify(const std::vector<notice>& all) noexcept {
        for (const notice& n : all) {
            try {
                options_.observer(n);
            } catch (...) {
                count_swallowed();
            }
        }
    }
    void count_swallowed() noexcept { swallowed_.fetch_add(1); }
    [[nodiscard]] std::uint64_t swallowed() const noexcept { return swallowed_.load(); }

    // Journal

    /// Null: everything is in memory alone.
    [[nodiscard]] const std::shared_ptr<storage::broker_journal>& journal() const noexcept {
        return journal_;
    }
    [[nodiscard]] const storage::recovery_report& report() const noexcept { return report_; }

    /// Returns when a record has come as far as its sender wants. What is not known to be there is
    /// an error, `journal_failed` first of all: then it may be there, or not.
    ///
    /// True: from now on it takes a timer to sync in time.
    bool confirm(std::uint64_t record, durability wanted, error_code& ec) {
        bool needs_timer = false;
        ec = {};
        if (record == 0) {
            ec = errc::journal_failed;
            return false;
        }
        switch (wanted.level()) {
        case durability_level::accepted: break;
        case durability_level::written:
            journal_->port().wait(record, storage::reached::written, ec);
            break;
        case durability_level::interval:
            journal_->port().wait(record, storage::reached::written, ec);
            needs_timer = sync_by(saturating_add(clock_.now(), wanted.interval()));
            break;
        case durability_level::synced:
            journal_->port().wait(record, storage::reached::synced, ec);
            break;
        }
        if (ec) {
            ec = errc::journal_failed;
        }
        return needs_timer;
    }
    /// Whether a message of that many bytes could be kept: `no_space`, `message_too_large` or
    /// `journal_failed` otherwise.
    [[nodiscard]] errc check_room(std::size_t bytes) {
        error_code ec;
        if (journal_ != nullptr && !journal_->port().has_room(bytes + 256, ec)) {
            if (ec == errc::no_space) {
                want_space();
            }
            return static_cast<errc>(ec.value());
        }
        return errc{};
    }
    /// Before a message is shown to somebody. An error is one of the journal's, and was or will be
    /// told to who sends; what is there already is handed out all the same.
    void make_written(std::uint64_t record) noexcept {
        error_code ec;
        journal_->port().wait(record, storage::reached::written, ec);
    }
    /// Everything so far survives the process, or a loss of power.
    void flush(storage::reached how_far, error_code& ec) {
        ec = {};
        if (journal_ != nullptr) {
            journal_->port().wait(journal_->port().last(), how_far, ec);
            // What happened since it failed is no record that anybody could wait for.
            if (!ec && !is_closed() && journal_->port().has_failed()) {
                ec = errc::journal_failed;
            }
        }
    }
    /// Whoever has nothing to do writes what nobody waits for: acknowledgements.
    void flush_idle() noexcept {
        if (journal_ != nullptr) {
            make_written(journal_->port().last());
        }
    }
    /// Does a little of what keeps the journal short, if there is something to do.
    void keep_up() noexcept {
        if (upkeep_.is_wanted()) {
            upkeep_.step();
        }
    }
    /// There is no space: makes some with the next chance.
    void want_space() noexcept { upkeep_.hurry(); }
    /// Records have left that took space: it is worth another try.
    void expect_space() noexcept { upkeep_.expect_space(); }

    // For the upkeep

    [[nodiscard]] std::vector<std::uint64_t> unopened_numbers() const {
        std::lock_guard guard{names_mutex_};
        std::vector<std::uint64_t> all;
        for (const auto& [name, number] : unopened_) {
            all.push_back(number);
        }
        return all;
    }
    /// Those of them that have messages which are records of logs.
    [[nodiscard]] std::vector<std::uint64_t> unopened_fed_numbers() const {
        std::lock_guard guard{names_mutex_};
        std::vector<std::uint64_t> all;
        for (const auto& [number, q] : kept_.queues) {
            if (!q.records.empty()) {
                all.push_back(number);
            }
        }
        return all;
    }
    [[nodiscard]] std::vector<std::shared_ptr<queue_type>>
    queues_kept_as(std::uint64_t number) const {
        std::lock_guard guard{names_mutex_};
        std::vector<std::shared_ptr<queue_type>> all;
        if (const auto it = kept_as_.find(number); it != kept_as_.end()) {
            all.push_back(it->second);
        }
        return all;
    }
    /// Writes again what a queue is that nobody has opened, and which messages it has from that id
    /// on, at most `max`; moves `from` on. False: it is no such queue.
    [[nodiscard]] bool list_unopened(
        std::uint64_t number,
        std::uint64_t& from,
        std::size_t max,
        std::vector<std::byte>& record,
        bool& is_written);
    /// Stores a message anew that is stored at `from`, if it is still there and wanted.
    bool store_again(
        std::uint64_t queue,
        std::uint64_t id,
        storage::record_location from,
        const storage::stored_content& content,
        std::vector<std::byte>& record,
        error_code& ec);
    /// Of a queue that nobody has opened, what `queue_journal` does for one that is open.
    void store_fed_again(
        std::uint64_t queue, std::uint64_t segment, std::vector<std::byte>& record, error_code& ec);

    /// Everything that can be written is; then the journal is closed in good order.
    void close_journal() noexcept {
        if (journal_ != nullptr) {
            upkeep_.finish();
            is_journal_closed_.store(true);
            error_code ec; // what could not be synced was told to whoever waited for it
            journal_->close(ec);
        }
    }
    /// From then on nothing is kept any more, and nobody minds.
    [[nodiscard]] bool is_journal_closed() const noexcept { return is_journal_closed_.load(); }
    void count_unwritten(errc why) noexcept {
        unwritten_why_.store(static_cast<int>(why));
        unwritten_.fetch_add(1);
    }
    /// Why something could not be written since this was last asked; or nothing.
    [[nodiscard]] errc take_unwritten() noexcept {
        return static_cast<errc>(unwritten_why_.exchange(0));
    }
    [[nodiscard]] std::uint64_t unwritten() const noexcept { return unwritten_.load(); }

    // Names

    [[nodiscard]] std::shared_ptr<queue_type> find(std::string_view name) const {
        std::lock_guard guard{names_mutex_};
        const auto it = names_.find(name);
        return it == names_.end() ? nullptr : it->second;
    }
    /// Those that are kept and that nobody has opened yet as well.
    [[nodiscard]] std::vector<std::string> names() const {
        std::lock_guard guard{names_mutex_};
        std::vector<std::string> all;
        for (const auto& [name, queue] : names_) {
            all.push_back(name);
        }
        for (const auto& [name, number] : unopened_) {
            all.push_back(name);
        }
        std::sort(all.begin(), all.end());
        return all;
    }
    [[nodiscard]] bool is_unopened(std::string_view name) const {
        std::lock_guard guard{names_mutex_};
        return unopened_.find(name) != unopened_.end();
    }
    [[nodiscard]] std::vector<std::shared_ptr<queue_type>> queues() const {
        std::lock_guard guard{names_mutex_};
        std::vector<std::shared_ptr<queue_type>> all;
        for (const auto& [name, queue] : names_) {
            all.push_back(queue);
        }
        return all;
    }

    /// Opens or creates. With `options`, an existing queue must have been made with the same.
    /// `feed`: it is a subscription, or has to be one.
    [[nodiscard]] std::shared_ptr<queue_type> open(
        std::string_view name,
        message_type type,
        const queue_options* options,
        failure& failed,
        const feed_request* feed = nullptr) {
        woken_queues woken;
        auto q = open_locked(name, type, options, feed, woken, failed);
        finish(woken);
        return q;
    }

    /// The queue for dead letters of that name, made if it is missing.
    [[nodiscard]] std::shared_ptr<queue_type>
    dead_letter_queue(const std::string& name, message_type type, errc& failed) {
        woken_queues woken;
        std::shared_ptr<queue_type> q;
        {
            std::lock_guard guard{names_mutex_};
            if (closed_) {
                failed = errc::closed;
                return nullptr;
            }
            if (!other_shape(name).empty()) {
                failed = errc::type_mismatch;
                return nullptr;
            }
            if (const auto it = names_.find(name); it != names_.end()) {
                if (!(type_of(*it->second) == type)) {
                    failed = errc::type_mismatch;
                    return nullptr;
                }
                return it->second;
            }
            failure why;
            q = add(name, type, dead_letter_options(), nullptr, nullptr, woken, why);
            failed = q != nullptr ? errc{} : static_cast<errc>(why.code.value());
        }
        finish(woken);
        return q;
    }

    /// Removes the name. The queue itself lives on in its handles.
    [[nodiscard]] std::shared_ptr<queue_type> remove(std::string_view name) {
        std::lock_guard guard{names_mutex_};
        const auto it = names_.find(name);
        if (it == names_.end()) {
            return nullptr;
        }
        auto q = it->second;
        names_.erase(it);
        std::erase_if(kept_as_, [&](const auto& entry) { return entry.second == q; });
        return q;
    }
    /// Deletes a queue with all that is in it; see `basic_broker::delete_queue`.
    void delete_queue(std::string_view name, bool force, error_code& ec);
    /// The same of one that is open. `would_block`: consumers hold messages of it. `says_so`: its
    /// end is written here, and nowhere else.
    void end_queue(queue_type& q, bool force, bool says_so, error_code& ec);
    /// Deletes a kept queue that nobody has opened. Errors: as of the journal.
    void remove_unopened(std::string_view name, error_code& ec);
    /// Says in the journal that a queue is gone.
    void write_deleted(std::uint64_t kept_as, error_code& ec) {
        std::vector<std::byte> record;
        storage::entry_writer{record, journal_->wall()}.deleted(kept_as);
        storage::record_location where;
        const std::uint64_t number = journal_->append(record, where, ec);
        if (number != 0) {
            confirm(number, options_.durability, ec);
        }
    }

    /// Whether its name still leads to it.
    [[nodiscard]] bool is_there(const queue_type& q) const {
        std::lock_guard guard{names_mutex_};
        const auto it = names_.find(q.name());
        return it != names_.end() && it->second.get() == &q;
    }
    [[nodiscard]] bool is_there(const log_type& l) const {
        std::lock_guard guard{names_mutex_};
        return this->has_log(l);
    }

    // Exchanges, which share the names as well; in detail/exchanges.hpp

    using exchange_ptr = std::shared_ptr<exchange_core<Runtime>>;

    [[nodiscard]] exchange_table<Runtime>& exchanges() noexcept { return bindings_; }
    /// Opens or creates. Errors: `closed`, `type_mismatch`, `options_mismatch`, as `declare`; what
    /// opening the queues reports that are bound to one that is kept.
    [[nodiscard]] exchange_ptr open_exchange(
        std::string_view name,
        message_type type,
        exchange_type kind,
        const exchange_options& o,
        failure& failed);
    /// One that somebody has opened, or null.
    [[nodiscard]] exchange_ptr find_exchange(std::string_view name) const {
        std::lock_guard guard{names_mutex_};
        const auto it = exchanges_.find(name);
        return it == exchanges_.end() ? nullptr : it->second;
    }
    /// What an exchange is that is kept, and that nobody has opened.
    [[nodiscard]] std::optional<storage::exchange_definition>
    unopened_exchange(std::string_view name) const;
    void remove_exchange(std::string_view name, bool if_unused, error_code& ec);
    [[nodiscard]] std::vector<exchange_ptr> all_exchanges() const;
    /// Those that nobody has opened as well; sorted.
    [[nodiscard]] std::vector<std::string> exchange_names() const;
    /// A queue or log is about to go: nothing is bound to it any more.
    void forget_bindings(queue_type& q);
    void forget_bindings(log_type& l);

    // For the upkeep

    [[nodiscard]] std::vector<std::uint64_t> kept_exchange_numbers();
    /// Writes again what an exchange is, and bindings of it from there on, some `max`; moves `from`
    /// on, to `no_more` behind the last. False: it could not be written.
    [[nodiscard]] bool list_exchange(
        std::uint64_t number, std::uint64_t& from, std::size_t max, std::vector<std::byte>& record);

    /// A number that no queue, log, group or reader of this broker has.
    [[nodiscard]] std::uint64_t take_number() {
        std::lock_guard guard{names_mutex_};
        return ++queues_made_;
    }

    /// The prefix, and digits by which no other name is likely to end.
    [[nodiscard]] std::string unique_name(std::string_view prefix) {
        std::string name{prefix};
        name += '-';
        const std::uint64_t chance = seed_for(take_number());
        for (int shift = 60; shift >= 0; shift -= 4) {
            name += "0123456789abcdef"[(chance >> shift) & 15];
        }
        return name;
    }

    /// From now on nothing can be opened. Returns what there is, to the first caller alone; nothing
    /// to the others, who must leave the rest of closing to it.
    [[nodiscard]] std::optional<std::vector<std::shared_ptr<queue_type>>> close() {
        std::lock_guard guard{names_mutex_};
        if (std::exchange(closed_, true)) {
            return std::nullopt;
        }
        std::vector<std::shared_ptr<queue_type>> all;
        for (const auto& [name, queue] : names_) {
            all.push_back(queue);
        }
        return all;
    }
    void forget_all() {
        std::map<std::string, std::shared_ptr<queue_type>, std::less<>> gone;
        std::map<std::string, std::shared_ptr<log_type>, std::less<>> gone_logs;
        std::map<std::string, exchange_ptr, std::less<>> gone_exchanges;
        bindings_.clear();
        {
            std::lock_guard guard{names_mutex_};
            gone.swap(names_);
            gone_exchanges.swap(exchanges_);
            gone_logs = this->take_logs();
            kept_as_.clear();
        }
        std::lock_guard guard{due_mutex_};
        due_sources_.clear();
    }
    [[nodiscard]] bool is_closed() const {
        std::lock_guard guard{names_mutex_};
        return closed_;
    }

    /// Where queues send dead letters that were given no target of their own. Effective at once.
    void set_default_dead_letter(dead_letter_target target) {
        std::lock_guard guard{names_mutex_};
        default_dead_letter_ = std::move(target);
    }
    [[nodiscard]] dead_letter_target default_dead_letter(const std::string& queue) const {
        std::lock_guard guard{names_mutex_};
        return default_dead_letter_.is_unset() ? dead_letter_target{default_name(queue)}
                                               : default_dead_letter_;
    }

    // Time

    /// Whether something may be due anywhere: cheap, and never wrong when it says no.
    [[nodiscard]] RAILMQ_ALWAYS_INLINE bool is_due_at(time_point coarse) const noexcept {
        return coarse.time_since_epoch().count() >= maybe_due_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] bool is_due() const noexcept { return is_due_at(clock_.coarse_now()); }
    [[nodiscard]] time_point due() const noexcept { return time_point{duration{due_.load()}}; }

    /// Lets everything happen that is due by now.
    void catch_up() {
        if (!is_due()) {
            return; // as the coarse clock knows
        }
        const time_point now = clock_.now();
        if (now.time_since_epoch().count() >= due_.load()) {
            run_due(now);
        }
    }

    void run_due(time_point now);

    /// A source has an earlier deadline than it had. Called with its lock held.
    void lower_due(due_source& q, time_point due) noexcept;

    /// The source has no deadline, or is going away.
    void forget_due(due_source& q) noexcept;

    /// The exact next deadline of all.
    [[nodiscard]] time_point next_due();

    /// A `Transaction` of this broker.
    template <class Transaction>
    [[nodiscard]] Transaction begin() {
        return Transaction{this->shared_from_this()};
    }

    // Asynchronous operations

    [[nodiscard]] boost::asio::any_io_executor async_executor() const {
        if constexpr (Runtime::concurrent) {
            return options_.executor ? options_.executor
                                     : boost::asio::any_io_executor{boost::asio::system_executor{}};
        } else {
            return options_.executor ? options_.executor
                                     : boost::asio::any_io_executor{clock_.sim().get_executor()};
        }
    }

private:
    friend class broker_logs<Runtime, broker_core>;

    void publish_due() noexcept {
        const time_point next =
            std::min(sync_due_, due_sources_.empty() ? never : due_sources_.begin()->first);
        due_.store(next.time_since_epoch().count());
        // The coarse clock may be late by its resolution: from then on the exact one is asked.
        maybe_due_.store(
            next == never ? never.time_since_epoch().count()
                          : saturating_add(next, -clock_.resolution()).time_since_epoch().count());
    }

    [[nodiscard]] static std::string default_name(std::string_view queue) {
        return std::string{queue} + ".dead";
    }
    /// Where messages of a queue go that its codec cannot read.
    [[nodiscard]] static std::string undecodable_name(std::string_view queue) {
        return std::string{queue.substr(0, 230)} + ".undecodable";
    }
    /// Dead letters stay until somebody takes them out.
    [[nodiscard]] static queue_options dead_letter_options() {
        queue_options o;
        o.retry.max_attempts = 0;
        o.retry.max_crashes = 0;
        o.dead_letter = discard;
        return o;
    }

    static message_type type_of(queue_type& q) noexcept;
    [[nodiscard]] static failure
    mismatch(queue_type& have, message_type type, const queue_options* options);

    /// What has that name and is no queue. With the names lock held, as the next.
    [[nodiscard]] std::string_view other_shape(std::string_view name) const {
        if (const auto what = this->shape_of_log(name); !what.empty()) {
            return what;
        }
        return exchanges_.contains(name) || unopened_exchanges_.contains(name) ? "an exchange" : "";
    }
    [[nodiscard]] std::string_view shape_of(std::string_view name) const {
        return names_.contains(name) || unopened_.contains(name) ? "a queue" : other_shape(name);
    }
    [[nodiscard]] static failure
    is_another_shape(std::string_view name, std::string_view is, std::string_view wanted) {
        std::string what = "'" + std::string{name} + "' is ";
        what += is;
        what += ", and not ";
        return {errc::type_mismatch, what += wanted};
    }
    /// Exchanges and their alternates must have one type. With the names lock held, as all of it.
    [[nodiscard]] failure
    check_alternates(std::string_view name, message_type type, const exchange_options& o) const;
    struct exchange_wake; ///< Kept exchanges that are opened together.
    void list_kept_exchanges();
    [[nodiscard]] exchange_wake look_for_kept_exchanges(
        std::string_view name, std::string_view alternate, message_type type, failure& failed);
    void wake_exchanges(const exchange_wake& w, message_type type);
    [[nodiscard]] exchange_ptr
    add_exchange(const storage::exchange_definition& d, message_type type, failure& failed);

    [[nodiscard]] failure
    check_dead_letter(std::string_view name, message_type type, const queue_options& wanted) const {
        if (wanted.dead_letter.is_discard()) {
            return {};
        }
        const std::string target =
            wanted.dead_letter.is_unset() ? default_name(name) : wanted.dead_letter.name();
        if (failure f = validate_name(target)) {
            f.what = "the dead-letter queue of '" + std::string{name} + "': " + f.what;
            return f;
        }
        if (const auto what = other_shape(target); !what.empty()) {
            return {
                errc::type_mismatch,
                "queue '" + std::string{name} + "' sends dead letters to '" + target +
                    "', which is " + std::string{what}};
        }
        const auto it = names_.find(target);
        const auto kept = unopened_.find(target);
        if (kept != unopened_.end() && type.ops->format != nullptr &&
            kept_.queues.at(kept->second).definition.format != type.ops->format()) {
            return {
                errc::type_mismatch,
                "queue '" + std::string{name} + "' sends dead letters to '" + target +
                    "', which holds messages of another format"};
        }
        if (it != names_.end() && !(type_of(*it->second) == type)) {
            return {
                errc::type_mismatch,
                "queue '" + std::string{name} + "' sends dead letters of type " +
                    std::string{type.name} + " to '" + target + "', which holds " +
                    std::string{type_of(*it->second).name}};
        }
        return {};
    }

    /// Queues that were made or woken, and what is to be done about them once no lock is held.
    using woken_queues = std::vector<std::function<void()>>;
    static void finish(const woken_queues& woken) {
        for (const auto& f : woken) {
            f();
        }
    }

    [[nodiscard]] std::shared_ptr<queue_type> open_locked(
        std::string_view name,
        message_type type,
        const queue_options* options,
        const feed_request* feed,
        woken_queues& woken,
        failure& failed) {
        static const queue_options defaults{};
        std::lock_guard guard{names_mutex_};
        if (closed_) {
            failed = {errc::closed, "the broker is closed"};
            return nullptr;
        }
        if (const auto what = other_shape(name); !what.empty()) {
            failed = is_another_shape(name, what, "a queue");
            return nullptr;
        }
        if (const auto it = names_.find(name); it != names_.end()) {
            failed = mismatch(*it->second, type, options);
            return failed ? nullptr : it->second;
        }
        const auto kept = unopened_.find(name);
        const queue_options& wanted = kept != unopened_.end()
                                          ? kept_.queues.at(kept->second).definition.options
                                      : options != nullptr ? *options
                                                           : defaults;
        failed = validate_name(name);
        if (!failed) {
            failed = validate(wanted);
        }
        if (!failed) {
            failed = check_dead_letter(name, type, wanted);
        }
        if (failed) {
            return nullptr;
        }
        const queue_options copy = wanted; // it may be read out of what is kept
        auto made = add(name, type, copy, options, feed, woken, failed);
        if (made != nullptr && !copy.dead_letter.is_discard()) {
            const std::string target =
                copy.dead_letter.is_unset() ? default_name(name) : copy.dead_letter.name();
            if (names_.find(target) == names_.end()) {
                failure ignored; // it is made when it is needed
                (void)add(target, type, dead_letter_options(), nullptr, nullptr, woken, ignored);
            }
        }
        return made;
    }

    /// Makes a queue, or wakes one that is kept, which must have been made with `asked_for` as
    /// well, if there are any.
    [[nodiscard]] std::shared_ptr<queue_type>
    add(std::string_view name,
        message_type type,
        const queue_options& options,
        const queue_options* asked_for,
        const feed_request* feed,
        woken_queues& woken,
        failure& failed);
    [[nodiscard]] std::shared_ptr<queue_type> wake(
        std::uint64_t number,
        message_type type,
        const queue_options* asked_for,
        const feed_request* feed,
        woken_queues& woken,
        failure& failed);
    /// Why a subscription that is kept is not the one that somebody wants; nothing if it is. Null:
    /// a queue is wanted, which it is as well.
    [[nodiscard]] static failure
    check_feed(const storage::kept_queue& kept, const feed_request* wanted);
    [[nodiscard]] static std::string_view
    difference_of(const storage::log_interest& have, const storage::log_interest& want) noexcept {
        return have == want ? "" : have.keeps_last != want.keeps_last ? "retain_last" : "history";
    }
    /// A log is gone, and with it its subscriptions that nobody has opened.
    void forget_unopened_feeds(std::uint64_t log);
    void forget_unopened(std::uint64_t number);
    /// Appends a record that stores a message anew. False: it could not be.
    bool lies_now(storage::kept_message& m, std::span<const std::byte> record, error_code& ec);

    /// Before that moment, everything so far has to be on the device. True: nothing had to before.
    [[nodiscard]] bool sync_by(time_point when) {
        bool is_first = false;
        bool is_earlier = false;
        {
            std::lock_guard guard{due_mutex_};
            is_first = sync_due_ == never;
            if (when < sync_due_) {
                sync_due_ = when;
                is_earlier = due_sources_.empty() || when < due_sources_.begin()->first;
                publish_due();
            }
        }
        if (is_earlier) {
            this->wake_timekeeper();
        }
        return is_first;
    }

    clock_type clock_;
    broker_options options_;
    std::shared_ptr<core::memory_budget<Runtime>> budget_;
    std::uint64_t seed_;
    typename Runtime::template atomic<std::uint64_t> swallowed_{0};

    std::shared_ptr<storage::broker_journal> journal_;
    storage::recovery_report report_;
    typename Runtime::template atomic<std::uint64_t> unwritten_{0};
    typename Runtime::template atomic<int> unwritten_why_{0};
    typename Runtime::template atomic<bool> is_journal_closed_{false};

    mutable typename Runtime::mutex names_mutex_{};
    std::map<std::string, std::shared_ptr<queue_type>, std::less<>> names_{};
    std::map<std::string, exchange_ptr, std::less<>> exchanges_{};
    std::uint64_t queues_made_ = 0; ///< And logs, and their groups and readers.
    dead_letter_target default_dead_letter_{};
    bool closed_ = false;
    storage::kept_state kept_; ///< Queues and logs of an earlier broker, until somebody opens them.
    std::map<std::string, std::uint64_t, std::less<>> unopened_{};
    std::map<std::string, std::uint64_t, std::less<>> unopened_exchanges_{};
    std::map<std::uint64_t, std::shared_ptr<queue_type>> kept_as_{}; ///< Those that are open.
    exchange_table<Runtime> bindings_;
    journal_upkeep<broker_core> upkeep_;

    typename Runtime::mutex due_mutex_{};
    std::set<std::pair<time_point, std::pair<std::uint64_t, due_source*>>> due_sources_{};
    std::map<std::uint64_t, time_point> due_of_{};
    time_point sync_due_ = never; ///< What was written by now has to be on the device by then.

    alignas(64) typename Runtime::template atomic<std::int64_t> maybe_due_{
        never.time_since_epoch().count()};
    typename Runtime::template atomic<std::int64_t> due_{never.time_since_epoch().count()};
};

} // namespace detail
} // namespace railmq
