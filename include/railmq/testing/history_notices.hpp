// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/notice.hpp>
#include <railmq/model/retry_policy.hpp>
#include <railmq/testing/history.hpp>

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace railmq::testing {

/// An observer that records what a broker does by itself: leases that expire, and messages that
/// become dead letters, are dropped or redriven. The notices name messages by id, so that sends and
/// hand-outs must be recorded with theirs.
///
/// A call of the broker may cause notices before it returns. Record `send_begun` and `settle_begun`
/// as well then, else what followed seems to have come first. The history must outlive the broker.
///
/// Thread safety: safe.
[[nodiscard]] inline observer record_notices(history& to) {
    return [&to](const notice& n) {
        const notices::event& about = event_of(n);
        event e;
        e.queue = std::string{about.queue};
        e.at = about.at;
        e.id = about.id;
        std::visit(
            [&](const auto& kind) {
                using kind_type = std::remove_cvref_t<decltype(kind)>;
                if constexpr (std::is_same_v<kind_type, notices::failed>) {
                    if (kind.kind == failure_kind::deadline_passed) {
                        to.record(event_kind::lease_expired, std::move(e));
                    }
                } else if constexpr (std::is_same_v<kind_type, notices::dead_lettered>) {
                    e.reason = kind.reason;
                    e.target = kind.target;
                    to.record(event_kind::dead_lettered, std::move(e));
                } else if constexpr (std::is_same_v<kind_type, notices::dropped>) {
                    e.reason = kind.reason;
                    to.record(event_kind::dropped, std::move(e));
                } else if constexpr (std::is_same_v<kind_type, notices::redriven>) {
                    e.target = kind.target;
                    to.record(event_kind::redriven, std::move(e));
                }
            },
            n);
    };
}

} // namespace railmq::testing
