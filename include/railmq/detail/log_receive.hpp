// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/log_lane.hpp>
#include <railmq/detail/log_waiter.hpp>
#include <railmq/model/errc.hpp>

#include <cstddef>
#include <vector>

namespace railmq::detail {

/// An asynchronous receive, as the reader sees it that it waits for.
///
/// Thread safety: the consumer's thread's, but for what a waiter is.
template <class Runtime>
struct log_receive : log_waiter<Runtime> {
    std::size_t max = 1;
    std::vector<log_lease<Runtime>> got{}; ///< With room for `max`.
    error_code result{};
    bool is_cancelled = false;
    bool needs_step = false; ///< Nobody has sent it to its executor yet; who ends its use does.
    /// Hands over what it got, or why there is nothing. It is not the reader's any more then.
    void (*done)(log_receive&) noexcept = nullptr;
};

} // namespace railmq::detail
