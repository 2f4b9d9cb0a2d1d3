// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/destination.hpp>
#include <railmq/core/header_match.hpp>
#include <railmq/core/message_details.hpp>
#include <railmq/core/slot.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/exchange_table.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log_producer.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/producer.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::detail {

/// What a producer of an exchange and its copies share: a producer for each queue and log that they
/// have sent to, and the routes of messages that are under way.
///
/// A send takes a route, which remembers for which key it was found and when, so that a producer
/// that sends with one key finds its queues by comparing it. Several sends at once have a route
/// each.
///
/// Thread safety: safe; a route belongs to one send.
template <class T, class Runtime>
class exchange_lanes final : public exchange_reader<Runtime> {
    using base = exchange_reader<Runtime>;

public:
    /// A queue or a log.
    struct endpoint final : exchange_leftover {
        basic_producer<T, Runtime> queue{};
        basic_log_producer<T, Runtime> log{};
        const std::string* name = nullptr;
        std::uint64_t number = 0; ///< Of a queue: in the order in which they were made.
    };

    /// What a message is doing in one queue.
    struct place {
        endpoint* to = nullptr;
        core::slot<Runtime>* at = nullptr; ///< Claimed, and not yet published.
        errc why{};                        ///< It does not take the message.
        bool is_stored = false;
        bool is_duplicate = false; ///< It is there from before.
        std::uint64_t id = 0;
        std::unique_ptr<core::message_details> details{};
    };

    /// Who gets a message, and room for what sending it takes.
    struct route {
        error_code result{};
        bool by_alternate = false;
        std::vector<endpoint*> queues{}; ///< Those made first come first.
        std::vector<endpoint*> logs{};

        std::vector<place> places{};
        std::vector<T> copies{};

    private:
        friend class exchange_lanes;
        std::uint64_t version = 0; ///< 0: it is good for nothing.
        std::string key{};
        bool has_headers = false;
    };

    exchange_lanes(std::shared_ptr<exchange_core<Runtime>> of, producer_options o)
        : base{std::move(of)}
        , options{o} {
        table().attach(*this);
    }
    ~exchange_lanes() { table().detach(*this); }

    const producer_options options;

    [[nodiscard]] broker_core<Runtime>& broker() const noexcept { return this->exchange->broker(); }

    /// A route for a message. To be given back with `end`.
    [[nodiscard]] std::unique_ptr<route> begin(std::string_view key, core::header_span headers) {
        std::lock_guard guard{this->lock};
        if (idle_.empty()) {
            idle_.reserve(routes_made_ + 1); // so that giving it back needs no memory
            idle_.push_back(std::make_unique<route>());
            ++routes_made_;
        }
        find(*idle_.back(), key, headers);
        auto r = std::move(idle_.back());
        idle_.pop_back();
        ++base::in_use;
        return r;
    }
    /// Finds it anew, if bindings have changed since.
    void renew(route& r, std::string_view key, core::header_span headers) {
        std::lock_guard guard{this->lock};
        find(r, key, headers);
    }
    /// `counted(totals)` is called with the lock held.
    template <class Counted>
    void end(std::unique_ptr<route> r, Counted&& counted) noexcept {
        r->copies.clear();
        r->places.clear();
        exchange_leftovers gone; // ended without the lock
        std::lock_guard guard{this->lock};
        counted(base::totals);
        idle_.push_back(std::move(r));
        if (--base::in_use == 0) {
            gone.take(base::leftovers);
        }
    }
    [[nodiscard]] exchange_table<Runtime>& table() const noexcept { return broker().exchanges(); }

private:
    // With the lock held

    void find(route& r, std::string_view key, core::header_span headers) {
        const bool may_differ = (r.has_headers || !headers.empty()) && table().looks_at_headers();
        if (r.version == base::version && !may_differ && r.key == key) {
            return;
        }
        r.version = 0;
        r.queues.clear();
        r.logs.clear();
        r.result = table().route(*this, key, headers);
        if (const errc why = base::exchange->closed();
            r.result == errc::not_found && why != errc{}) {
            r.result = why;
        }
        r.by_alternate = base::routes.by_alternate();
        for (const core::destination d : base::routes.destinations()) {
            (d.kind == core::destination_kind::queue ? r.queues : r.logs).push_back(find(d.id));
        }
        // All of their locks are taken in this order.
        std::sort(r.queues.begin(), r.queues.end(), [](const endpoint* a, const endpoint* b) {
            return a->number < b->number;
        });
        r.key.assign(key);
        r.has_headers = !headers.empty();
        r.version = base::version;
    }
    [[nodiscard]] endpoint* find(std::uint32_t id) {
        if (endpoints_.size() <= id) {
            endpoints_.resize(std::size_t{id} + 1);
        }
        if (endpoints_[id] == nullptr) {
            auto made = std::make_unique<endpoint>();
            const auto& to = table().target_of(id);
            if (to.queue != nullptr) {
                made->queue = basic_producer<T, Runtime>{to.queue, options};
                made->name = &to.queue->name();
                made->number = to.queue->number();
            } else {
                made->log = basic_log_producer<T, Runtime>{
                    to.log, {.max_message_bytes = options.max_message_bytes}};
                made->name = &to.log->name();
            }
            endpoints_[id] = std::move(made);
        }
        return endpoints_[id].get();
    }
    void forget(std::uint32_t id) noexcept override {
        if (id < endpoints_.size() && endpoints_[id] != nullptr) {
            base::leftovers.add(std::move(endpoints_[id]));
        }
    }

    std::vector<std::unique_ptr<endpoint>> endpoints_{}; ///< By the number of the destination.
    std::vector<std::unique_ptr<route>> idle_{};
    std::size_t routes_made_ = 0;
};

} // namespace railmq::detail
