// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/exchange_table.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/exchange_options.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

/// How exchanges are made and removed.
namespace railmq::detail {

template <class Runtime>
failure broker_core<Runtime>::check_alternates(
    std::string_view name, message_type type, const exchange_options& o) const {
    const auto another = [&](const exchange_core<Runtime>& x) {
        return failure{
            errc::type_mismatch,
            "exchange '" + std::string{name} + "' has messages of type " + std::string{type.name} +
                ", and '" + x.name() + "' of type " + std::string{x.type().name} +
                "; an exchange and its alternate have the same"};
    };
    for (const auto& [its_name, x] : exchanges_) {
        if ((its_name == o.alternate || x->options().alternate == name) && !(x->type() == type)) {
            return another(*x);
        }
    }
    return {};
}

template <class Runtime>
std::shared_ptr<exchange_core<Runtime>> broker_core<Runtime>::open_exchange(
    std::string_view name,
    message_type type,
    exchange_type kind,
    const exchange_options& o,
    failure& failed) {
    using result = std::shared_ptr<exchange_core<Runtime>>;
    return bindings_.locked([&](exchange_table<Runtime>& table) -> result {
        std::lock_guard guard{names_mutex_};
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
        if (const auto what = shape_of(name); !what.empty()) {
            failed = is_another_shape(name, what, "an exchange");
            return nullptr;
        }
        failed = check_alternates(name, type, o);
        if (!failed && journal_ != nullptr && type.ops->encode == nullptr) {
            failed = {
                errc::invalid_argument,
                "exchange '" + std::string{name} +
                    "' publishes to queues that are kept in a directory, and messages of type " +
                    std::string{type.name} + " have no railmq::codec"};
        }
        if (failed) {
            return nullptr;
        }
        const core::declaration made = table.declare(name, kind, o);
        if (made.error) {
            failed = made.error;
            return nullptr;
        }
        try {
            auto x = std::make_shared<exchange_core<Runtime>>(
                this->shared_from_this(), std::string{name}, type, kind, o, made.id);
            exchanges_.emplace(std::string{name}, x);
            return x;
        } catch (...) {
            table.withdraw(made.id);
            throw;
        }
    });
}

template <class Runtime>
void broker_core<Runtime>::remove_exchange(std::string_view name, bool if_unused, error_code& ec) {
    const auto x = find_exchange(name);
    if (x == nullptr) {
        ec = errc::not_found;
        return;
    }
    ec = bindings_.erase(*x, if_unused, [&] {
        x->close(errc::not_found);
        std::lock_guard guard{names_mutex_};
        exchanges_.erase(exchanges_.find(name));
    });
}

} // namespace railmq::detail
