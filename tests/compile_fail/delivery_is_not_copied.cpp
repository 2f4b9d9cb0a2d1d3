// expect: use of deleted function | call to deleted constructor
// SPDX-License-Identifier: BSL-1.0
#include <railmq/delivery.hpp>
#include <railmq/runtime/threaded.hpp>

railmq::delivery<int> twice(railmq::delivery<int>& d) {
#ifdef RAILMQ_CONTROL
    return std::move(d);
#else
    return d;
#endif
}
