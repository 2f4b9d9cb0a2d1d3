// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/log_core.hpp>

namespace railmq::detail {

template <class Runtime>
class log_group {};

template <class Runtime>
bool log_core<Runtime>::add_partitions(std::uint32_t n) {
    std::lock_guard guard{mutex_};
    if (n > (1U << 16) - partitions()) {
        return false;
    }
    grow(n);
    return true;
}

template <class Runtime>
void log_core<Runtime>::close(errc why) {
    closed_.store(static_cast<int>(why), std::memory_order_release);
    for (line_type* l : lines()) {
        l->wake_all();
    }
}

} // namespace railmq::detail
