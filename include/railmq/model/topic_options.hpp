// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/queue_options.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq {

/// How a topic behaves. A message stays until every subscription has taken it, and then goes,
/// unless something here says otherwise.
struct topic_options {
    /// What is kept for subscriptions that come later; `log_retention{}`: everything. Unset:
    /// nothing. Whole segments go, so there may be somewhat more.
    std::optional<log_retention> history{};
    /// A subscription that starts at the end begins with the last message there was (MQTT's
    /// retained message).
    bool retain_last = false;

    friend bool operator==(const topic_options&, const topic_options&) = default;
};

/// A header that a subscription asks for.
struct header_condition {
    std::string name{};
    /// One of these, byte by byte; empty: any.
    std::vector<std::string> values{};

    friend bool operator==(const header_condition&, const header_condition&) = default;
};

/// What a subscription takes, and how its queue behaves.
struct subscription_options {
    log_start start = log_start::latest;
    /// How many messages it may be behind, in each partition of a log. What is further back is
    /// skipped: counted as dropped, with a notice (`notices::skipped`), and not dead-lettered. So a
    /// subscription that nobody reads holds no more than that, and holds up nobody.
    std::size_t max_backlog = unlimited;
    /// Messages that have all of these headers (Amazon SNS, filter policies: every name, and one
    /// of its values).
    std::vector<header_condition> where{};
    /// Everything but `max_length`, `max_bytes` and `overflow`, whose place `max_backlog` takes,
    /// and `deduplication_window`.
    queue_options queue{};
};

/// `errc::invalid_argument` and what was expected, or no failure.
[[nodiscard]] inline failure validate(const topic_options& o) {
    log_options as_log;
    as_log.retention = o.history.value_or(log_retention{});
    failure f = validate(as_log);
    if (f) {
        f.what = "history: " + f.what;
    }
    return f;
}

/// `errc::invalid_argument` and what was expected, or no failure.
[[nodiscard]] inline failure validate(const subscription_options& o) {
    const auto bad = [](std::string what) {
        return failure{errc::invalid_argument, std::move(what)};
    };
    if (o.max_backlog == 0) {
        return bad("max_backlog is at least 1; leave it unlimited or set a number");
    }
    if (o.start == log_start::none) {
        return bad("a subscription starts somewhere; start = none has no meaning for it");
    }
    if (o.queue.max_length != unlimited || o.queue.max_bytes != unlimited ||
        o.queue.overflow != overflow_policy::wait) {
        return bad("a subscription has no max_length, max_bytes or overflow; say max_backlog");
    }
    if (o.queue.deduplication_window != duration::zero()) {
        return bad("a subscription takes what was published; it has no deduplication_window");
    }
    for (const header_condition& h : o.where) {
        if (h.name.empty()) {
            return bad("a header has a name");
        }
    }
    return validate(o.queue);
}

/// The first option in which `have` and `want` differ, for the text of `options_mismatch`; empty
/// when they are equal. Where it starts is asked once, and makes no difference later.
[[nodiscard]] inline std::string_view
difference(const subscription_options& have, const subscription_options& want) noexcept {
    if (have.max_backlog != want.max_backlog) return "max_backlog";
    if (!(have.where == want.where)) return "where";
    return difference(have.queue, want.queue);
}

/// Whether a message with these properties, null for none, has all of the headers asked for.
[[nodiscard]] inline bool
matches(const std::vector<header_condition>& where, const properties* props) noexcept {
    return std::all_of(where.begin(), where.end(), [&](const header_condition& asked) {
        return props != nullptr &&
               std::any_of(props->headers.begin(), props->headers.end(), [&](const auto& header) {
                   return header.first == asked.name &&
                          (asked.values.empty() ||
                           std::find(asked.values.begin(), asked.values.end(), header.second) !=
                               asked.values.end());
               });
    });
}

} // namespace railmq
