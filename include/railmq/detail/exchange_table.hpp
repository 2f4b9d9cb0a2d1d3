// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/destination.hpp>
#include <railmq/core/numbered.hpp>
#include <railmq/core/router.hpp>
#include <railmq/core/routes.hpp>
#include <railmq/detail/message_type.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/model/stats.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/exchange_entries.hpp>

#include <boost/intrusive/list.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::detail {

template <class Runtime>
class broker_core;
template <class Runtime>
class queue_core;
template <class Runtime>
class log_core;
template <class Runtime>
class exchange_table;

/// What a change of bindings leaves over, to be ended when no lock is held.
struct exchange_leftover {
    exchange_leftover() = default;
    exchange_leftover(const exchange_leftover&) = delete;
    exchange_leftover& operator=(const exchange_leftover&) = delete;
    virtual ~exchange_leftover() = default;

    std::unique_ptr<exchange_leftover> next{};
};

/// A chain of them. Ends one after the other, not one within the other.
class exchange_leftovers {
public:
    exchange_leftovers() = default;
    exchange_leftovers(const exchange_leftovers&) = delete;
    exchange_leftovers& operator=(const exchange_leftovers&) = delete;
    ~exchange_leftovers() {
        while (first_ != nullptr) {
            first_ = std::move(first_->next);
        }
    }

    void add(std::unique_ptr<exchange_leftover> one) noexcept {
        one->next = std::move(first_);
        first_ = std::move(one);
    }
    void take(exchange_leftovers& from) noexcept {
        while (from.first_ != nullptr) {
            auto one = std::move(from.first_);
            from.first_ = std::move(one->next);
            add(std::move(one));
        }
    }

private:
    std::unique_ptr<exchange_leftover> first_{};
};

/// An exchange: what it is, and what its producers that are gone have counted. Its bindings are in
/// the broker's `exchange_table`.
template <class Runtime>
class exchange_core {
public:
    using broker_type = broker_core<Runtime>;

    exchange_core(
        std::shared_ptr<broker_type> broker,
        std::string name,
        message_type type,
        exchange_type kind,
        exchange_options options,
        std::uint32_t id,
        std::uint64_t kept_as)
        : broker_{std::move(broker)}
        , name_{std::move(name)}
        , type_{type}
        , kind_{kind}
        , options_{std::move(options)}
        , id_{id}
        , kept_as_{kept_as} {}
    exchange_core(const exchange_core&) = delete;
    exchange_core& operator=(const exchange_core&) = delete;

    [[nodiscard]] broker_type& broker() const noexcept { return *broker_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] message_type type() const noexcept { return type_; }
    [[nodiscard]] exchange_type kind() const noexcept { return kind_; }
    [[nodiscard]] const exchange_options& options() const noexcept { return options_; }
    /// Its number in the router.
    [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
    /// Its number in the broker's journal, 0 if there is none.
    [[nodiscard]] std::uint64_t kept_as() const noexcept { return kept_as_; }
    /// What the journal has of its bindings. With the bindings lock held.
    [[nodiscard]] storage::kept_bindings& kept() noexcept { return kept_; }

    /// From now on everything reports `why`.
    void close(errc why) noexcept {
        closed_.store(static_cast<int>(why), std::memory_order_release);
    }
    /// The broker is being drained: from now on only its handlers publish.
    void drain() noexcept { is_draining_.store(true, std::memory_order_release); }
    [[nodiscard]] bool is_draining() const noexcept {
        return is_draining_.load(std::memory_order_acquire);
    }
    /// Why it is closed; nothing while it is open.
    [[nodiscard]] errc closed() const noexcept {
        return static_cast<errc>(closed_.load(std::memory_order_acquire));
    }

private:
    friend class exchange_table<Runtime>;

    std::shared_ptr<broker_type> broker_;
    const std::string name_;
    const message_type type_;
    const exchange_type kind_;
    const exchange_options options_;
    const std::uint32_t id_;
    const std::uint64_t kept_as_;
    storage::kept_bindings kept_{};
    typename Runtime::template atomic<int> closed_{0};
    typename Runtime::template atomic<bool> is_draining_{false};
    exchange_stats ended_{}; ///< With the bindings lock held.
};

/// What a producer of an exchange and its copies share: the lock under which they route, and what
/// it takes to remember routes. No other producer writes to its memory, so that many can route at
/// once without taking cache lines from each other; whoever changes bindings takes all these locks.
///
/// Thread safety: with `lock` held.
template <class Runtime>
class exchange_reader : public boost::intrusive::list_base_hook<> {
public:
    explicit exchange_reader(std::shared_ptr<exchange_core<Runtime>> of) noexcept
        : exchange{std::move(of)} {}
    exchange_reader(const exchange_reader&) = delete;
    exchange_reader& operator=(const exchange_reader&) = delete;

    const std::shared_ptr<exchange_core<Runtime>> exchange;
    typename Runtime::short_lock lock{};
    std::uint64_t version = 1; ///< Another one after each change of bindings.
    std::uint32_t in_use = 0;  ///< Sends that are under way, outside the lock.
    core::routes routes{};
    exchange_stats totals{};
    exchange_leftovers leftovers{}; ///< Sends that are under way may still use them.

protected:
    ~exchange_reader() = default;

private:
    friend class exchange_table<Runtime>;
    /// That number names no queue or log any more: what is known of it goes to `leftovers`.
    virtual void forget(std::uint32_t id) noexcept = 0;
};

/// The exchanges of a broker and their bindings.
///
/// Thread safety: any call by any thread. Lock order: this lock, then the producers' (`lock` of
/// `exchange_reader`) in the order in which these were made; or the names' and the journal's.
/// Nothing of the user's runs under them.
template <class Runtime>
class exchange_table {
public:
    using exchange_ptr = std::shared_ptr<exchange_core<Runtime>>;
    using reader_type = exchange_reader<Runtime>;

    /// A queue or a log that something is bound to.
    struct target {
        std::shared_ptr<queue_core<Runtime>> queue{};
        std::shared_ptr<log_core<Runtime>> log{};

        [[nodiscard]] const void* address() const noexcept {
            return queue != nullptr ? static_cast<const void*>(queue.get()) : log.get();
        }
    };

    /// `journal`: where bindings are kept, or null.
    explicit exchange_table(storage::broker_journal* journal) noexcept
        : journal_{journal} {}
    exchange_table(const exchange_table&) = delete;
    exchange_table& operator=(const exchange_table&) = delete;

    // Producers

    void attach(reader_type& r) {
        std::lock_guard guard{mutex_};
        readers_.push_back(r);
    }
    void detach(reader_type& r) noexcept {
        std::lock_guard guard{mutex_};
        readers_.erase(readers_.iterator_to(r));
        add(r.exchange->ended_, r.totals);
    }
    /// Finds who gets a message, in `r.routes`. With the producer's lock held. Errors: as
    /// `router::route`.
    [[nodiscard]] error_code
    route(reader_type& r, std::string_view key, core::header_span headers) const {
        return router_.route(r.exchange->id(), key, headers, r.routes);
    }
    /// With a producer's lock held, as the next.
    [[nodiscard]] bool looks_at_headers() const noexcept { return router_.looks_at_headers(); }
    [[nodiscard]] const target& target_of(std::uint32_t id) const noexcept { return targets_[id]; }

    // Exchanges and bindings

    /// Runs `f(table)` with the bindings lock held: `declare` may be called in it.
    template <class F>
    auto locked(F&& f) {
        exchange_leftovers gone; // ended without the lock
        std::lock_guard guard{mutex_};
        const struct outer {
            exchange_table& table;
            ~outer() { table.outer_ = nullptr; }
        } inner{*this};
        outer_ = &gone;
        return f(*this);
    }
    /// Within `locked`. As `router::declare`.
    [[nodiscard]] core::declaration
    declare(std::string_view name, exchange_type kind, const exchange_options& o) {
        const quiet all{*this, *outer_};
        return router_.declare(name, kind, o);
    }
    /// Within `locked`. Says something in the journal, which there is. Errors: of the journal.
    template <class Write>
    [[nodiscard]] failure append(Write&& write, std::uint64_t& record) {
        std::vector<std::byte> bytes;
        storage::entry_writer w{bytes, journal_->wall()};
        write(w);
        storage::record_location at;
        error_code ec;
        if (journal_->port().has_room(bytes.size(), ec)) {
            record = journal_->append(bytes, at, ec);
        }
        return ec ? failure{ec, "the binding cannot be kept"} : failure{};
    }
    /// Within `locked`. It was declared this moment: as if it had not been.
    void withdraw(std::uint32_t id) noexcept {
        const quiet all{*this, *outer_};
        (void)router_.erase(id);
        drop_unbound();
    }
    /// Removes an exchange and the bindings from and to it. First `going()` is called, while nobody
    /// can make it again; if it reports an error nothing happens. Errors: as `router::erase`.
    template <class Going>
    [[nodiscard]] error_code erase(const exchange_core<Runtime>& x, bool if_unused, Going&& going) {
        exchange_leftovers left;
        std::lock_guard guard{mutex_};
        if (x.closed() != errc{}) {
            return errc::not_found;
        }
        if (if_unused && router_.is_used(x.id())) {
            return errc::in_use;
        }
        if (const error_code ec = going()) {
            return ec;
        }
        const quiet all{*this, left};
        (void)router_.erase(x.id());
        drop_unbound();
        return {};
    }

    /// Binds a queue or log to an exchange; `exists()` is asked once nobody can remove it without
    /// being seen. `record` is the one that says so in the journal, or 0. Errors: `not_found`, when
    /// it does not exist; as `router::bind`; of the journal.
    template <class Exists>
    [[nodiscard]] failure bind(
        exchange_core<Runtime>& from,
        const target& to,
        std::string_view name,
        std::string_view key,
        const binding_arguments& arguments,
        Exists&& exists,
        std::uint64_t& record) {
        exchange_leftovers gone;
        std::lock_guard guard{mutex_};
        if (!exists()) {
            return {errc::not_found, "'" + std::string{name} + "' does not exist any more"};
        }
        const quiet all{*this, gone};
        return bind_target(from, to, name, key, arguments, true, record);
    }
    [[nodiscard]] failure bind(
        exchange_core<Runtime>& from,
        const exchange_core<Runtime>& to,
        std::string_view key,
        const binding_arguments& arguments,
        std::uint64_t& record) {
        exchange_leftovers gone;
        std::lock_guard guard{mutex_};
        const quiet all{*this, gone};
        const auto d = core::destination::exchange(to.id());
        const storage::kept_destination kept{d.kind, to.kept_as()};
        return bind_kept(from, d, kept, key, arguments, 0, record);
    }
    /// Within `locked`. The journal says so already.
    [[nodiscard]] failure bind_again(
        exchange_core<Runtime>& from,
        const target& to,
        std::string_view name,
        const storage::binding_definition& b) {
        const quiet all{*this, *outer_};
        std::uint64_t record = 0;
        return bind_target(from, to, name, b.key, b.arguments, false, record);
    }
    [[nodiscard]] failure bind_again(
        exchange_core<Runtime>& from,
        const exchange_core<Runtime>& to,
        const storage::binding_definition& b) {
        const quiet all{*this, *outer_};
        const auto d = core::destination::exchange(to.id());
        return router_.bind(from.id(), d, b.key, b.arguments);
    }

    /// `removed`: there was such a binding. Errors: of the journal.
    [[nodiscard]] failure unbind(
        exchange_core<Runtime>& from,
        const target& to,
        std::string_view key,
        const binding_arguments& arguments,
        bool& removed,
        std::uint64_t& record) {
        exchange_leftovers gone;
        std::lock_guard guard{mutex_};
        const auto known = ids_.find(to.address());
        if (known == ids_.end()) {
            return {};
        }
        const std::uint32_t id = known->second;
        const quiet all{*this, gone};
        failure f = unbind_kept(
            from,
            where(to, id),
            kept_destination_of(to),
            key,
            arguments,
            core::stable_hash(name_of(to)),
            removed,
            record);
        drop_if_unbound(id);
        return f;
    }
    [[nodiscard]] failure unbind(
        exchange_core<Runtime>& from,
        const exchange_core<Runtime>& to,
        std::string_view key,
        const binding_arguments& arguments,
        bool& removed,
        std::uint64_t& record) {
        exchange_leftovers gone;
        std::lock_guard guard{mutex_};
        const quiet all{*this, gone};
        const auto d = core::destination::exchange(to.id());
        const storage::kept_destination kept{d.kind, to.kept_as()};
        return unbind_kept(from, d, kept, key, arguments, 0, removed, record);
    }

    /// Removes all bindings to a queue or log, if there are any; `also()` is called before, with
    /// the lock held.
    template <class Also>
    void forget(const void* queue_or_log, Also&& also) {
        exchange_leftovers gone;
        std::lock_guard guard{mutex_};
        also();
        const auto known = ids_.find(queue_or_log);
        if (known == ids_.end()) {
            return;
        }
        const std::uint32_t id = known->second;
        const quiet all{*this, gone};
        router_.forget(where(targets_[id], id));
        drop(id);
    }

    /// The broker is closed: nothing is bound any more.
    void clear() noexcept {
        exchange_leftovers gone;
        std::lock_guard guard{mutex_};
        const quiet all{*this, gone};
        router_ = core::router{};
        while (!ids_.empty()) {
            drop(ids_.begin()->second);
        }
    }

    [[nodiscard]] std::size_t bindings() {
        std::lock_guard guard{mutex_};
        return router_.bindings();
    }
    [[nodiscard]] exchange_stats stats(const exchange_core<Runtime>& x) {
        std::lock_guard guard{mutex_};
        exchange_stats all = x.ended_;
        for (reader_type& r : readers_) {
            if (r.exchange.get() == &x) {
                std::lock_guard own{r.lock};
                add(all, r.totals);
            }
        }
        return all;
    }

private:
    /// A target that is bound no more; ended without a lock, since it may be the last to refer to
    /// its queue.
    struct former_target final : exchange_leftover {
        target what{};
    };

    /// Nobody routes while it lives; afterwards everybody knows that bindings have changed. With
    /// the bindings lock held.
    class quiet {
    public:
        quiet(exchange_table& t, exchange_leftovers& gone) noexcept
            : table_{t}
            , gone_{gone} {
            for (reader_type& r : table_.readers_) {
                r.lock.lock();
            }
            table_.leftovers_ = &gone;
        }
        quiet(const quiet&) = delete;
        quiet& operator=(const quiet&) = delete;
        ~quiet() {
            for (reader_type& r : table_.readers_) {
                ++r.version;
                if (r.in_use == 0) {
                    gone_.take(r.leftovers);
                }
                r.lock.unlock();
            }
            table_.leftovers_ = nullptr;
        }

    private:
        exchange_table& table_;
        exchange_leftovers& gone_;
    };

    // With the lock held, and nobody routing

    [[nodiscard]] failure bind_target(
        exchange_core<Runtime>& from,
        const target& to,
        std::string_view name,
        std::string_view key,
        const binding_arguments& arguments,
        bool is_kept,
        std::uint64_t& record) {
        const auto known = ids_.find(to.address());
        std::uint32_t id = core::no_number;
        if (known != ids_.end()) {
            id = known->second;
        } else {
            ids_.emplace(to.address(), targets_.next());
            id = targets_.take();
            targets_[id] = to;
        }
        failure f;
        try {
            const auto d = where(to, id);
            const std::uint64_t identity = core::stable_hash(name);
            f = is_kept
                    ? bind_kept(from, d, kept_destination_of(to), key, arguments, identity, record)
                    : router_.bind(from.id(), d, key, arguments, identity);
        } catch (...) {
            drop_if_unbound(id);
            throw;
        }
        if (f) {
            drop_if_unbound(id);
        }
        return f;
    }
    /// Binds, and says so in the journal, or neither.
    [[nodiscard]] failure bind_kept(
        exchange_core<Runtime>& from,
        core::destination to,
        storage::kept_destination kept,
        std::string_view key,
        const binding_arguments& arguments,
        std::uint64_t identity,
        std::uint64_t& record) {
        const std::size_t before = router_.bindings();
        failure f = router_.bind(from.id(), to, key, arguments, identity);
        if (f || journal_ == nullptr) {
            return f;
        }
        const bool is_new = router_.bindings() != before;
        auto b = storage::make_binding(from.kept_as(), from.kind(), kept, key, arguments);
        const std::uint32_t weight = from.kept_.weight_of(b);
        const auto undo = [&] {
            if (is_new) {
                (void)router_.unbind(from.id(), to, key, arguments);
                from.kept_.erase(b);
            } else {
                b.arguments.weight = weight;
                from.kept_.put(b);
                (void)router_.bind(from.id(), to, key, b.arguments, identity);
            }
        };
        try {
            from.kept_.put(b);
            f = append([&](storage::entry_writer& w) { w.bound(b); }, record);
        } catch (...) {
            undo();
            throw;
        }
        if (f) {
            undo();
        }
        return f;
    }
    [[nodiscard]] failure unbind_kept(
        exchange_core<Runtime>& from,
        core::destination to,
        storage::kept_destination kept,
        std::string_view key,
        const binding_arguments& arguments,
        std::uint64_t identity,
        bool& removed,
        std::uint64_t& record) {
        removed = !router_.unbind(from.id(), to, key, arguments);
        if (!removed || journal_ == nullptr) {
            return {};
        }
        auto b = storage::make_binding(from.kept_as(), from.kind(), kept, key, arguments);
        b.arguments.weight = std::max(from.kept_.weight_of(b), std::uint32_t{1});
        failure f = append([&](storage::entry_writer& w) { w.unbound(b); }, record);
        if (f) {
            removed = false;
            (void)router_.bind(from.id(), to, key, b.arguments, identity);
        } else {
            from.kept_.erase(b);
        }
        return f;
    }
    [[nodiscard]] storage::kept_destination kept_destination_of(const target& t) const {
        return journal_ != nullptr && t.queue != nullptr
                   ? storage::
                         kept_destination{core::destination_kind::queue, t.queue->kept().number()}
                   : storage::kept_destination{};
    }
    [[nodiscard]] static const std::string& name_of(const target& t) noexcept {
        return t.queue != nullptr ? t.queue->name() : t.log->name();
    }

    [[nodiscard]] static core::destination where(const target& t, std::uint32_t id) noexcept {
        return t.queue != nullptr ? core::destination::queue(id) : core::destination::log(id);
    }
    void drop_unbound() noexcept {
        for (std::uint32_t id = 0; id < targets_.numbers(); ++id) {
            if (targets_[id].address() != nullptr) {
                drop_if_unbound(id);
            }
        }
    }
    void drop_if_unbound(std::uint32_t id) noexcept {
        if (!router_.is_bound(where(targets_[id], id))) {
            drop(id);
        }
    }
    /// Nobody is bound to it: its number may be given to another one.
    void drop(std::uint32_t id) noexcept {
        for (reader_type& r : readers_) {
            r.forget(id);
        }
        ids_.erase(targets_[id].address());
        try {
            auto former = std::make_unique<former_target>();
            former->what = std::move(targets_[id]);
            leftovers_->add(std::move(former));
        } catch (...) { // NOLINT: whoever removes a queue holds it as well
        }
        targets_.give(id);
    }
    static void add(exchange_stats& to, const exchange_stats& s) noexcept {
        to.published += s.published;
        to.routed += s.routed;
        to.rejected += s.rejected;
        to.unroutable += s.unroutable;
        to.returned += s.returned;
        to.by_alternate += s.by_alternate;
    }

    storage::broker_journal* journal_;
    typename Runtime::mutex mutex_{};
    core::router router_{};
    core::numbered<target> targets_{};
    boost::unordered_flat_map<const void*, std::uint32_t> ids_{};
    boost::intrusive::list<reader_type> readers_{};
    exchange_leftovers* leftovers_ = nullptr; ///< Of the change that is under way.
    exchange_leftovers* outer_ = nullptr;     ///< Of the call of `locked` that is under way.
};

} // namespace railmq::detail
