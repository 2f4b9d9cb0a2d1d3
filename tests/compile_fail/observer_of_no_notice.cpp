// expect: notice_type
// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/notice.hpp>

struct not_a_notice {};

#ifdef RAILMQ_CONTROL
auto seen = railmq::on<railmq::notices::acked>([](const railmq::notices::acked&) {});
#else
auto seen = railmq::on<not_a_notice>([](const not_a_notice&) {});
#endif
