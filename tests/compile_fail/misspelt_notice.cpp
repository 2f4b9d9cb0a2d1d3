// expect: is not a member of | no member named
// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/notice.hpp>

#ifdef RAILMQ_CONTROL
auto seen = railmq::on<railmq::notices::dropped>([](const railmq::notices::dropped&) {});
#else
auto seen = railmq::on<railmq::notices::droped>([](const auto&) {});
#endif
