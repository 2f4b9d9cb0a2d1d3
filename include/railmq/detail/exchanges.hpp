// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/exchange_table.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/queue_core.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/exchange_entries.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// How exchanges are made and removed, and how those that are kept outlive their process.
///
/// An exchange that is kept is opened with everything that its bindings and its alternate lead to:
/// only it knows what type of messages the queues have, and what is published must not wait for
/// somebody to open them.
namespace railmq::detail {

template <class Runtime>
void broker_core<Runtime>::list_kept_exchanges() {
    using core::destination_kind;
    auto& all = kept_.exchanges.all;
    for (const auto& [number, x] : all) {
        const auto [it, is_new] = unopened_exchanges_.emplace(x.definition.name, number);
        if (!is_new) {
            it->second = number; // the older was just being deleted when the process ended
        }
    }
    std::erase_if(all, [&](const auto& x) {
        return unopened_exchanges_.find(x.second.definition.name)->second != x.first;
    });
    // Bindings whose other end was deleted go with it.
    for (auto& [number, x] : all) {
        std::vector<storage::kept_destination> gone;
        x.bindings.for_each([&](const storage::binding_definition& b) {
            const bool is_there = b.to.kind == destination_kind::queue
                                      ? kept_.queues.contains(b.to.number)
                                      : all.contains(b.to.number);
            if (!is_there) {
                gone.push_back(b.to);
            }
        });
        for (const auto& d : gone) {
            x.bindings.forget(d);
        }
    }
}

template <class Runtime>
std::optional<storage::exchange_definition>
broker_core<Runtime>::unopened_exchange(std::string_view name) const {
    std::lock_guard guard{names_mutex_};
    const auto it = unopened_exchanges_.find(name);
    return it == unopened_exchanges_.end()
               ? std::nullopt
               : std::optional{kept_.exchanges.all.at(it->second).definition};
}

template <class Runtime>
auto broker_core<Runtime>::all_exchanges() const -> std::vector<exchange_ptr> {
    std::lock_guard guard{names_mutex_};
    std::vector<exchange_ptr> all;
    for (const auto& [name, x] : exchanges_) {
        all.push_back(x);
    }
    return all;
}
template <class Runtime>
std::vector<std::string> broker_core<Runtime>::exchange_names() const {
    std::lock_guard guard{names_mutex_};
    std::vector<std::string> all;
    for (const auto& [name, x] : exchanges_) {
        all.push_back(name);
    }
    for (const auto& [name, number] : unopened_exchanges_) {
        all.push_back(name);
    }
    std::sort(all.begin(), all.end());
    return all;
}

template <class Runtime>
failure broker_core<Runtime>::check_alternates(
    std::string_view name, message_type type, const exchange_options& o) const {
    const auto another = [&](const std::string& its_name, std::string_view its_type) {
        return failure{
            errc::type_mismatch,
            "exchange '" + std::string{name} + "' has messages of type " + std::string{type.name} +
                ", and '" + its_name + "' of " + std::string{its_type} +
                "; an exchange and its alternate have the same"};
    };
    for (const auto& [its_name, x] : exchanges_) {
        if ((its_name == o.alternate || x->options().alternate == name) && !(x->type() == type)) {
            return another(its_name, x->type().name);
        }
    }
    for (const auto& [its_name, number] : unopened_exchanges_) {
        const auto& d = kept_.exchanges.all.at(number).definition;
        if ((its_name == o.alternate || d.options.alternate == name) && its_name != name &&
            (type.ops->format == nullptr || d.format != type.ops->format())) {
            return another(its_name, "the format '" + d.format + "'");
        }
    }
    return {};
}

template <class Runtime>
struct broker_core<Runtime>::exchange_wake {
    std::vector<std::uint64_t> exchanges{}; ///< By their numbers in the journal.
    std::vector<std::string> queues{};      ///< That nobody has opened, by name.
};

/// What has to be opened with the exchange of that name, and with one that has that alternate.
template <class Runtime>
auto broker_core<Runtime>::look_for_kept_exchanges(
    std::string_view name, std::string_view alternate, message_type type, failure& failed)
    -> exchange_wake {
    exchange_wake found;
    const auto add = [&](std::uint64_t number) {
        auto& all = found.exchanges;
        if (kept_.exchanges.all.contains(number) &&
            std::find(all.begin(), all.end(), number) == all.end()) {
            all.push_back(number);
        }
    };
    const auto add_name = [&](std::string_view n) {
        if (const auto it = unopened_exchanges_.find(n); it != unopened_exchanges_.end()) {
            add(it->second);
        }
    };
    add_name(name);
    add_name(alternate);
    for (std::size_t i = 0; i != found.exchanges.size(); ++i) {
        const storage::kept_exchange& x = kept_.exchanges.all.at(found.exchanges[i]);
        if (type.ops->format == nullptr || x.definition.format != type.ops->format()) {
            failed = {
                errc::type_mismatch,
                "exchange '" + x.definition.name + "' has messages of the format '" +
                    x.definition.format + "', and not of type " + std::string{type.name}};
            return found;
        }
        // What is open already may be of another type that has a codec of the same name.
        const auto another = [&](const std::string& what, const std::string& its_name) {
            failed = {
                errc::type_mismatch,
                "exchange '" + x.definition.name + "' leads to " + what + " '" + its_name +
                    "', which is open with another type than " + std::string{type.name}};
        };
        failed = check_alternates(x.definition.name, type, x.definition.options);
        add_name(x.definition.options.alternate);
        x.bindings.for_each([&](const storage::binding_definition& b) {
            if (b.to.kind == core::destination_kind::exchange) {
                add(b.to.number);
                for (const auto& [its_name, to] : exchanges_) {
                    if (to->kept_as() == b.to.number && !(to->type() == type)) {
                        another("exchange", its_name);
                    }
                }
            } else if (const auto q = kept_.queues.find(b.to.number); q != kept_.queues.end()) {
                found.queues.push_back(q->second.definition.name);
            } else if (const auto open = kept_as_.find(b.to.number);
                       open != kept_as_.end() && !(type_of(*open->second) == type)) {
                another("queue", open->second->name());
            }
        });
        if (failed) {
            break;
        }
    }
    return found;
}

/// With the bindings lock and the names lock held, and all of their queues open.
template <class Runtime>
void broker_core<Runtime>::wake_exchanges(const exchange_wake& w, message_type type) {
    std::vector<exchange_ptr> made;
    const auto fail = [&](const failure& f) {
        if (f) {
            throw system_error(f.code, f.what);
        }
    };
    try {
        for (const std::uint64_t number : w.exchanges) {
            failure f;
            made.push_back(add_exchange(kept_.exchanges.all.at(number).definition, type, f));
            fail(f);
        }
        for (const exchange_ptr& x : made) {
            const auto& bindings = kept_.exchanges.all.at(x->kept_as()).bindings;
            bindings.for_each([&](const storage::binding_definition& b) {
                if (b.to.kind == core::destination_kind::exchange) {
                    for (const auto& [name, to] : exchanges_) {
                        if (to->kept_as() == b.to.number) {
                            fail(bindings_.bind_again(*x, *to, b));
                        }
                    }
                } else if (const auto q = kept_as_.find(b.to.number); q != kept_as_.end()) {
                    fail(bindings_.bind_again(*x, {q->second, nullptr}, q->second->name(), b));
                }
            });
        }
        for (const exchange_ptr& x : made) {
            x->kept() = kept_.exchanges.all.at(x->kept_as()).bindings;
        }
    } catch (...) {
        for (const exchange_ptr& x : made) {
            if (x != nullptr) {
                bindings_.withdraw(x->id());
                exchanges_.erase(x->name());
            }
        }
        throw;
    }
    for (const exchange_ptr& x : made) {
        kept_.exchanges.all.erase(x->kept_as());
        unopened_exchanges_.erase(x->name());
    }
}

template <class Runtime>
auto broker_core<Runtime>::add_exchange(
    const storage::exchange_definition& d, message_type type, failure& failed) -> exchange_ptr {
    const core::declaration made = bindings_.declare(d.name, d.type, d.options);
    if (made.error) {
        failed = made.error;
        return nullptr;
    }
    try {
        auto x = std::make_shared<exchange_core<Runtime>>(
            this->shared_from_this(), d.name, type, d.type, d.options, made.id, d.number);
        exchanges_.emplace(d.name, x);
        return x;
    } catch (...) {
        bindings_.withdraw(made.id);
        throw;
    }
}

template <class Runtime>
auto broker_core<Runtime>::open_exchange(
    std::string_view name,
    message_type type,
    exchange_type kind,
    const exchange_options& o,
    failure& failed) -> exchange_ptr {
    std::uint64_t record = 0;
    exchange_wake wake;
    const auto attempt = [&](exchange_table<Runtime>& table) -> exchange_ptr {
        std::lock_guard guard{names_mutex_};
        wake = {};
        if (closed_) {
            failed = {errc::closed, "the broker is closed"};
            return nullptr;
        }
        if (const auto it = exchanges_.find(name); it != exchanges_.end()) {
            const exchange_core<Runtime>& x = *it->second;
            if (!(x.type() == type)) {
                failed = {
                    errc::type_mismatch,
                    "exchange '" + x.name() + "' has messages of type " +
                        std::string{x.type().name} + ", not " + std::string{type.name}};
                return nullptr;
            }
            failed = table.declare(name, kind, o).error; // says what differs
            return failed ? nullptr : it->second;
        }
        const auto kept = unopened_exchanges_.find(name);
        if (kept == unopened_exchanges_.end()) {
            if (const auto what = shape_of(name); !what.empty()) {
                failed = is_another_shape(name, what, "an exchange");
                return nullptr;
            }
        } else {
            const auto& d = kept_.exchanges.all.at(kept->second).definition;
            const std::string_view what = d.type != kind ? "type" : difference(d.options, o);
            if (!what.empty()) {
                failed = {
                    errc::options_mismatch,
                    "exchange '" + d.name + "' exists with another " + std::string{what}};
                return nullptr;
            }
        }
        failed = check_alternates(name, type, o);
        if (!failed && journal_ != nullptr && type.ops->encode == nullptr) {
            failed = {
                errc::invalid_argument,
                "exchange '" + std::string{name} +
                    "' publishes to queues that are kept in a directory, and messages of type " +
                    std::string{type.name} + " have no railmq::codec"};
        }
        if (!failed) {
            wake = look_for_kept_exchanges(name, o.alternate, type, failed);
        }
        if (failed || !wake.queues.empty()) {
            return nullptr;
        }
        wake_exchanges(wake, type);
        if (const auto it = exchanges_.find(name); it != exchanges_.end()) {
            return it->second;
        }
        storage::exchange_definition d{0, std::string{name}, {}, kind, o};
        if (journal_ != nullptr) {
            d.number = kept_.exchanges.last + 1;
            d.format = type.ops->format();
        }
        exchange_ptr x = add_exchange(d, type, failed);
        if (x != nullptr && journal_ != nullptr) {
            failed = table.append([&](storage::entry_writer& w) { w.exchange(d); }, record);
            if (failed) {
                exchanges_.erase(x->name());
                table.withdraw(x->id());
                return nullptr;
            }
            kept_.exchanges.last = d.number;
        }
        return x;
    };
    for (;;) {
        exchange_ptr x = bindings_.locked(attempt);
        if (x != nullptr || failed) {
            if (record != 0) {
                error_code not_yet; // the first send tells
                (void)confirm(record, options_.durability, not_yet);
            }
            return failed ? nullptr : x;
        }
        for (const std::string& queue : wake.queues) {
            if (open(queue, type, nullptr, failed) == nullptr) {
                return nullptr;
            }
        }
    }
}

template <class Runtime>
void broker_core<Runtime>::remove_exchange(std::string_view name, bool if_unused, error_code& ec) {
    std::uint64_t record = 0;
    const auto write = [&](std::uint64_t number) {
        return journal_ == nullptr
                   ? error_code{}
                   : bindings_
                         .append([&](storage::entry_writer& w) { w.exchange_gone(number); }, record)
                         .code;
    };
    ec = errc::not_found;
    if (const auto x = find_exchange(name)) {
        ec = bindings_.erase(*x, if_unused, [&] {
            std::lock_guard guard{names_mutex_};
            if (const error_code failed = write(x->kept_as())) {
                return failed;
            }
            const storage::kept_destination d{core::destination_kind::exchange, x->kept_as()};
            for (const auto& [other_name, other] : exchanges_) {
                other->kept().forget(d);
            }
            kept_.exchanges.forget(d);
            x->close(errc::not_found);
            exchanges_.erase(exchanges_.find(name));
            return error_code{};
        });
    } else {
        bindings_.locked([&](exchange_table<Runtime>&) {
            std::lock_guard guard{names_mutex_};
            const auto it = unopened_exchanges_.find(name);
            if (it == unopened_exchanges_.end()) {
                return;
            }
            const std::uint64_t number = it->second;
            if (if_unused && kept_.exchanges.all.at(number).bindings.size() != 0) {
                ec = errc::in_use;
                return;
            }
            ec = write(number);
            if (!ec) {
                kept_.exchange_gone(number);
                unopened_exchanges_.erase(it);
            }
        });
    }
    if (record != 0 && !ec) {
        (void)confirm(record, options_.durability, ec);
    }
}

template <class Runtime>
void broker_core<Runtime>::forget_bindings(queue_type& q) {
    bindings_.forget(&q, [&] {
        if (q.is_kept()) {
            const storage::kept_destination d{core::destination_kind::queue, q.kept().number()};
            std::lock_guard guard{names_mutex_};
            for (const auto& [name, x] : exchanges_) {
                x->kept().forget(d);
            }
            kept_.exchanges.forget(d);
        }
    });
}
template <class Runtime>
void broker_core<Runtime>::forget_bindings(log_type& l) {
    bindings_.forget(&l, [] {});
}

template <class Runtime>
std::vector<std::uint64_t> broker_core<Runtime>::kept_exchange_numbers() {
    std::lock_guard guard{names_mutex_};
    std::vector<std::uint64_t> all;
    for (const auto& [name, number] : unopened_exchanges_) {
        all.push_back(number);
    }
    for (const auto& [name, x] : exchanges_) {
        all.push_back(x->kept_as());
    }
    return all;
}

template <class Runtime>
bool broker_core<Runtime>::list_exchange(
    std::uint64_t number, std::uint64_t& from, std::size_t max, std::vector<std::byte>& record) {
    return bindings_.locked([&](exchange_table<Runtime>&) {
        std::lock_guard guard{names_mutex_};
        const std::uint64_t begin = from;
        const storage::kept_bindings* bindings = nullptr;
        record.clear();
        storage::entry_writer w{record, journal_->wall()};
        from = queue_type::no_more;
        if (const auto it = kept_.exchanges.all.find(number); it != kept_.exchanges.all.end()) {
            w.exchange(it->second.definition);
            bindings = &it->second.bindings;
        }
        for (const auto& [name, x] : exchanges_) {
            if (x->kept_as() == number) {
                w.exchange({number, name, x->type().ops->format(), x->kind(), x->options()});
                bindings = &x->kept();
            }
        }
        if (bindings == nullptr) {
            return true; // deleted meanwhile
        }
        // With the lock held: what changes after this is written behind it.
        bool is_written = true;
        const auto append = [&] {
            storage::record_location at;
            error_code ec;
            is_written = is_written && journal_->append(record, at, ec) != 0;
            record.clear();
        };
        constexpr std::size_t most_bytes = std::size_t{64} << 10;
        std::size_t listed = 0;
        bindings->for_each_from(begin, [&](std::uint64_t place, const auto& there) {
            if (listed >= max) {
                from = place;
                return false;
            }
            for (const auto& [text, b] : there) {
                w.bound(b);
                ++listed;
                if (record.size() >= most_bytes) {
                    append();
                }
            }
            return is_written;
        });
        if (!record.empty()) {
            append();
        }
        return is_written;
    });
}

} // namespace railmq::detail
