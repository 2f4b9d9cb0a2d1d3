// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/exchange_table.hpp>
#include <railmq/detail/kept_logs.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_group.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/exchange.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/queue.hpp>
#include <railmq/runtime/simulated.hpp>
#include <railmq/runtime/threaded.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/posix_files.hpp>
#include <railmq/topic.hpp>
#include <railmq/transaction.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// What a broker holds at one moment.
struct broker_stats {
    std::uint64_t queues = 0;
    /// Of message blocks, and of payloads in durable queues that own memory.
    std::uint64_t memory_bytes = 0;
    std::uint64_t memory_limit = 0;
    /// Exceptions that were contained: of observers, of filters and copies in subscriptions, and of
    /// rebalance callbacks in asynchronous receives.
    std::uint64_t observer_failures = 0;
    /// Records that could not be written to the journal; see `notices::unwritten`.
    std::uint64_t unwritten = 0;
};

namespace detail {

template <class Runtime>
struct simulation_link {};

/// A broker as a part of its simulation.
template <>
struct simulation_link<simulated> final : simulation::source {
    simulation_link(simulation& s, std::shared_ptr<broker_core<simulated>> c)
        : sim{s}
        , core{std::move(c)} {
        sim.add(*this);
    }
    simulation_link(const simulation_link&) = delete;
    simulation_link& operator=(const simulation_link&) = delete;
    ~simulation_link() override { sim.remove(*this); }
    [[nodiscard]] time_point next_due() override { return core->next_due(); }
    void run_due(time_point now) override { core->run_due(now); }

    simulation& sim;
    std::shared_ptr<broker_core<simulated>> core;
};

} // namespace detail

/// A message broker inside this process: queues, logs and exchanges by name, and the memory and
/// time they share.
///
/// `railmq::broker` runs on the steady clock and any number of threads; `railmq::sim_broker` lives
/// in a `simulation`. Any number of brokers can exist; they do not see each other. Handles made by
/// a broker may outlive it: then they report `closed`.
///
/// Thread safety: safe.
template <class Runtime>
class basic_broker {
    using core_type = detail::broker_core<Runtime>;

public:
    using runtime_type = Runtime;

    /// A broker on the real clock. Throws `invalid_argument` for options out of range.
    ///
    /// With a directory it goes on with what another broker has left there, and throws as well:
    /// `journal_locked` while another one has it; `journal_corrupt` for damage to what was
    /// confirmed, saying in which file and where, and then nothing is changed; `io_error` and
    /// `no_space`.
    explicit basic_broker(broker_options o = {}) requires Runtime::concurrent {
        require(validate(o));
        if (o.directory.empty()) {
            start(typename Runtime::clock{}, std::move(o), Runtime::entropy, {});
            return;
        }
        error_code ec;
        auto where = storage::posix_directory::open_or_create(o.directory, {}, ec);
        if (ec) {
            throw system_error(ec, "the directory '" + detail::printable(o.directory) + "'");
        }
        open_in(std::move(where), typename Runtime::clock{}, std::move(o), Runtime::entropy);
    }
    /// The same on any `storage::directory`, such as a simulated disk's.
    template <storage::directory Directory>
    explicit basic_broker(Directory where, broker_options o = {}) requires Runtime::concurrent {
        require(validate(o));
        open_in(std::move(where), typename Runtime::clock{}, std::move(o), Runtime::entropy);
    }
    /// A broker in a simulation, which must outlive it; in memory alone.
    explicit basic_broker(simulation& sim, broker_options o = {}) requires(!Runtime::concurrent) {
        require(validate(o));
        start(typename Runtime::clock{sim}, std::move(o), sim.random(), {});
        link_ = std::make_unique<detail::simulation_link<Runtime>>(sim, core_);
    }
    /// The same on a disk, mostly a `storage::simulated_disk`; errors as above.
    template <storage::directory Directory>
    basic_broker(simulation& sim, Directory where, broker_options o = {}) requires(
        !Runtime::concurrent) {
        require(validate(o));
        open_in(std::move(where), typename Runtime::clock{sim}, std::move(o), sim.random());
        link_ = std::make_unique<detail::simulation_link<Runtime>>(sim, core_);
    }
    basic_broker(basic_broker&&) noexcept = default;
    basic_broker& operator=(basic_broker&& other) noexcept {
        if (this != &other) {
            close();
            core_ = std::move(other.core_);
            link_ = std::move(other.link_);
        }
        return *this;
    }
    basic_broker(const basic_broker&) = delete;
    basic_broker& operator=(const basic_broker&) = delete;
    /// `close()`.
    ~basic_broker() { close(); }

    /// Opens the queue of that name, whatever its options, or makes it with the default ones.
    /// Unless it discards them, its dead letters go to `<name>.dead`, made with it.
    ///
    /// Throws `system_error`: `invalid_name`; `type_mismatch`, when it holds another type, or its
    /// dead-letter queue does; `closed`.
    template <class T>
    [[nodiscard]] basic_queue<T, Runtime> queue(std::string_view name) {
        return open<T>(name, nullptr);
    }
    /// The same with options, which an existing queue must have been made with as well:
    /// `options_mismatch` says which differs. `invalid_argument` for options out of range.
    template <class T>
    [[nodiscard]] basic_queue<T, Runtime> queue(std::string_view name, const queue_options& o) {
        return open<T>(name, &o);
    }
    /// The queue of that name if there is one. Throws `type_mismatch` when it holds another type.
    template <class T>
    [[nodiscard]] std::optional<basic_queue<T, Runtime>> find_queue(std::string_view name) const;

    /// Removes a queue and everything in it; waiting calls on it end with `not_found`. Refused with
    /// `would_block` while consumers hold messages of it, unless `force` is set: what they hold can
    /// still be read and settled. Errors: `not_found`.
    void delete_queue(std::string_view name, error_code& ec, bool force = false) {
        core().delete_queue(name, force, ec);
    }
    void delete_queue(std::string_view name, bool force = false) {
        error_code ec;
        delete_queue(name, ec, force);
        if (ec) {
            throw system_error(ec, "delete queue '" + detail::printable(name) + "'");
        }
    }

    /// Opens the log of that name, or makes it with these options; an existing one must have been
    /// made with the same. In a broker with a directory it is kept, and opening reads all of it.
    ///
    /// Throws `system_error`: `invalid_name`; `invalid_argument` for options out of range, and with
    /// a directory for a `T` without a `codec`; `type_mismatch`, when it holds another type, or is
    /// a queue; `options_mismatch`, which says what differs; `closed`; with a directory also
    /// `no_space` and `journal_failed`, and `memory_limit`, `journal_corrupt` and `io_error` of a
    /// log that cannot be read back and stays as it is.
    template <class T>
    [[nodiscard]] basic_partitioned_log<T, Runtime> log(std::string_view name, log_options o = {});
    /// The log of that name if there is one, whatever its options. Throws as `log`.
    template <class T>
    [[nodiscard]] std::optional<basic_partitioned_log<T, Runtime>>
    find_log(std::string_view name) const;
    /// Removes a log and everything in it; its handles report `not_found` from then on. What was
    /// handed out can still be read. Errors: `not_found`; `no_space` and `journal_failed`.
    void delete_log(std::string_view name, error_code& ec) { delete_log(name, false, ec); }
    void delete_log(std::string_view name) {
        error_code ec;
        delete_log(name, ec);
        if (ec) {
            throw system_error(ec, "delete log '" + detail::printable(name) + "'");
        }
    }
    /// The names of all logs, sorted.
    [[nodiscard]] std::vector<std::string> log_names() const { return core().log_names(false); }

    /// Opens the topic of that name, or makes it with these options. In a broker with a directory
    /// it is kept. Errors: as of `log`, whose names it shares.
    template <class T>
    [[nodiscard]] basic_topic<T, Runtime> topic(std::string_view name, topic_options o = {});
    /// The topic of that name if there is one, whatever its options. Throws `type_mismatch` when it
    /// holds another type.
    template <class T>
    [[nodiscard]] std::optional<basic_topic<T, Runtime>> find_topic(std::string_view name) const;
    /// Removes a topic with its subscriptions: waiting calls on them end with `not_found`, and what
    /// they have not taken is forgotten. Their dead letters stay. Errors: `not_found`.
    void delete_topic(std::string_view name, error_code& ec) { delete_log(name, true, ec); }
    void delete_topic(std::string_view name) {
        error_code ec;
        delete_topic(name, ec);
        if (ec) {
            throw system_error(ec, "delete topic '" + detail::printable(name) + "'");
        }
    }
    /// The names of all topics, sorted.
    [[nodiscard]] std::vector<std::string> topic_names() const { return core().log_names(true); }

    /// Opens the exchange of that name, or makes it; an existing one must have been made with the
    /// same type and options. Exchanges, queues and logs share their names.
    ///
    /// Throws `system_error`: `invalid_name`; `invalid_argument` for a type that there is not;
    /// `type_mismatch`, when it has another `T`, or its alternate has, or it is a queue or a log;
    /// `options_mismatch`, which says what differs; `closed`.
    template <class T>
    [[nodiscard]] basic_exchange<T, Runtime>
    exchange(std::string_view name, exchange_type type, const exchange_options& o = {}) {
        failure f;
        auto x = core().open_exchange(name, detail::message_type_of<T>(), type, o, f);
        require(f);
        return basic_exchange<T, Runtime>{std::move(x)};
    }
    /// The exchange of that name if there is one, whatever its type and options. Throws
    /// `type_mismatch` when it has another `T`.
    template <class T>
    [[nodiscard]] std::optional<basic_exchange<T, Runtime>>
    find_exchange(std::string_view name) const;
    /// Removes an exchange and the bindings from and to it; its handles report `not_found` from
    /// then on. With `if_unused` it is refused, with `in_use`, while something is bound to it.
    /// Errors: `not_found`.
    void delete_exchange(std::string_view name, error_code& ec, bool if_unused = false) {
        ec = {};
        core().remove_exchange(name, if_unused, ec);
    }
    void delete_exchange(std::string_view name, bool if_unused = false) {
        error_code ec;
        delete_exchange(name, ec, if_unused);
        if (ec) {
            throw system_error(ec, "delete exchange '" + detail::printable(name) + "'");
        }
    }
    /// The names of all exchanges, sorted.
    [[nodiscard]] std::vector<std::string> exchange_names() const {
        return core().exchange_names();
    }

    /// Begins a transaction: sends and acknowledgements that happen together or not at all.
    [[nodiscard]] basic_transaction<Runtime> begin() {
        (void)core();
        return basic_transaction<Runtime>{core_};
    }

    /// A name that nothing in this broker has, nor will have by chance: the prefix, `-` and 16
    /// digits of the broker's randomness (AMQP, server-named queues).
    [[nodiscard]] std::string unique_name(std::string_view prefix) {
        return core().unique_name(prefix);
    }

    /// The names of all queues, sorted.
    [[nodiscard]] std::vector<std::string> names() const { return core().names(); }

    /// Where queues send dead letters that name no target of their own. Effective at once.
    void default_dead_letter(dead_letter_target target) {
        if (!target.is_unset() && !target.is_discard()) {
            require(validate_name(target.name()));
        }
        core().set_default_dead_letter(std::move(target));
    }

    [[nodiscard]] broker_stats stats() const {
        auto& c = core();
        return {
            c.names().size(),
            c.budget().used() + c.budget().payloads(),
            c.budget().limit(),
            c.swallowed(),
            c.unwritten()};
    }

    /// The executor for asynchronous operations whose handler has none.
    [[nodiscard]] boost::asio::any_io_executor get_executor() const {
        return core().async_executor();
    }

    /// Closes every queue and every handle: sends fail, waiting calls end with `closed`, deliveries
    /// can still be read. What is in the queues is gone with the last handle. Returns how many
    /// messages were not settled. Closing again does nothing and returns 0, while another thread is
    /// closing as well.
    std::uint64_t close() noexcept;
    /// Takes no more sends but those of its own plain handlers, whose work would be lost otherwise,
    /// lets consumers empty the queues for at most that long, then closes.
    /// Returns how many messages were left.
    std::uint64_t close(drain_for limit);

    [[nodiscard]] bool is_open() const { return core_ != nullptr && !core_->is_closed(); }

    /// Returns when everything that has happened so far survives a loss of power: sends of
    /// producers that do not wait for it, and acknowledgements. Without a directory it does
    /// nothing. Errors: `journal_failed`, when that is not known; `io_error` to the call that
    /// failed; `no_space` or `memory_limit`, once, when something since the last call could not be
    /// written for that reason (`notices::unwritten`), and all the rest survives.
    void sync(error_code& ec) {
        core().flush(storage::reached::synced, ec);
        if (const errc missing = core().take_unwritten(); !ec && missing != errc{}) {
            ec = missing;
        }
    }
    void sync() {
        error_code ec;
        sync(ec);
        if (ec) {
            throw system_error(ec, "sync");
        }
    }

    /// What was found when the directory was opened; without one, nothing.
    [[nodiscard]] const storage::recovery_report& recovery() const { return core().report(); }

private:
    template <class Clock, class Entropy>
    void start(Clock clock, broker_options o, Entropy&& entropy, detail::broker_journaling kept) {
        const std::uint64_t seed = o.seed != 0 ? o.seed : entropy();
        core_ = std::make_shared<core_type>(clock, std::move(o), seed, std::move(kept));
    }
    template <class Directory, class Clock, class Entropy>
    void open_in(Directory where, Clock clock, broker_options o, Entropy&& entropy) {
        detail::broker_journaling kept;
        error_code ec;
        const storage::journal_id fresh{entropy(), entropy()};
        kept.journal = storage::open_broker_journal(
            std::move(where),
            o.journal,
            fresh,
            clock.now(),
            clock.wall_now(),
            kept.state,
            kept.report,
            ec);
        if (ec) {
            const auto& r = kept.report;
            std::string what = "the journal";
            if (r.owner != 0) {
                what += " is in use by process " + std::to_string(r.owner);
            } else if (!r.file.empty()) {
                what += ": file '" + r.file + "' at byte " + std::to_string(r.offset);
            }
            if (ec == errc::journal_corrupt) {
                what += "; nothing was changed, and storage::salvage (railctl salvage) copies what "
                        "is intact to a new directory";
            }
            throw system_error(ec, what);
        }
        start(clock, std::move(o), std::forward<Entropy>(entropy), std::move(kept));
    }

    [[nodiscard]] core_type& core() const {
        if (core_ == nullptr) {
            throw system_error(make_error_code(errc::closed), "the broker was moved from");
        }
        return *core_;
    }
    static void require(const failure& f) {
        if (f) {
            throw system_error(f.code, f.what);
        }
    }
    void delete_log(std::string_view name, bool is_topic, error_code& ec);
    void delete_unkept(
        const std::shared_ptr<detail::log_core<Runtime>>& l, bool is_topic, error_code& ec);
    template <class T>
    [[nodiscard]] basic_queue<T, Runtime>
    open(std::string_view name, const queue_options* o) const {
        failure f;
        auto q = core().open(name, detail::message_type_of<T>(), o, f);
        require(f);
        return basic_queue<T, Runtime>{std::move(q)};
    }

    std::shared_ptr<core_type> core_{};
    std::unique_ptr<detail::simulation_link<Runtime>> link_{};
};

} // namespace railmq

#include <railmq/detail/broker_calls.hpp>
