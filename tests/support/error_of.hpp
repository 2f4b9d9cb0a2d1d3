// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>

namespace railmq::test {

/// The error that `f` throws; none if it does not.
template <class F>
[[nodiscard]] error_code error_of(F&& f) {
    try {
        f();
        return {};
    } catch (const system_error& e) {
        return e.code();
    }
}

} // namespace railmq::test
