// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/topic_options.hpp>
#include <railmq/storage/feed_entries.hpp>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace railmq::detail {

/// Whether a subscription wants a record. Called with its queue's lock held.
using record_filter = std::function<bool(const void* payload, const properties* props)>;

/// What a subscription takes of a log.
struct feed_terms {
    log_start start = log_start::latest;
    std::uint64_t max_backlog = unlimited; ///< Of one partition; what is further back is skipped.
    record_filter wants{};                 ///< Empty: everything.
};

/// Headers that are asked for, and code, if there is any.
[[nodiscard]] inline record_filter
filter_of(const std::vector<header_condition>& where, record_filter code) {
    if (where.empty()) {
        return code;
    }
    return [where, also = std::move(code)](const void* payload, const properties* props) {
        return matches(where, props) && (!also || also(payload, props));
    };
}

/// What somebody wants who opens a subscription that is kept.
struct feed_request {
    storage::feed_definition definition{};
    log_start start = log_start::latest;
    record_filter code{};

    [[nodiscard]] feed_terms terms() const {
        return {start, definition.max_backlog, filter_of(definition.where, code)};
    }
};

} // namespace railmq::detail
