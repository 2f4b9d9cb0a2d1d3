// SPDX-License-Identifier: BSL-1.0
//
// What nearly every test instantiates, compiled once: the classes that do not depend on a message's
// type, and the handles of queues of numbers.
#pragma once

#include <railmq/railmq.hpp>

#define RAILMQ_TEST_INSTANCES(prefix, Runtime)                                                     \
    prefix template class core::slot_ring<Runtime>;                                                \
    prefix template class core::message_store<Runtime>;                                            \
    prefix template class core::message_fates<Runtime>;                                            \
    prefix template class core::message_leases<Runtime>;                                           \
    prefix template class core::consumer_board<Runtime>;                                           \
    prefix template class core::message_recovery<Runtime>;                                         \
    prefix template class core::joint_changes<Runtime>;                                            \
    prefix template class core::message_rows<Runtime>;                                             \
    prefix template class core::queue_machine<Runtime>;                                            \
    prefix template class detail::queue_journal<Runtime>;                                          \
    prefix template class detail::broker_core<Runtime>;                                            \
    prefix template class detail::queue_core<Runtime>;                                             \
    prefix template class basic_broker<Runtime>;                                                   \
    prefix template class basic_subscription<Runtime>;                                             \
    prefix template class basic_transaction<Runtime>;                                              \
    prefix template class basic_delivery<int, Runtime>;                                            \
    prefix template class basic_producer<int, Runtime>;                                            \
    prefix template class basic_consumer<int, Runtime>;                                            \
    prefix template class basic_queue<int, Runtime>;                                               \
    prefix template class core::partition<Runtime>;                                                \
    prefix template class core::compaction<Runtime>;                                               \
    prefix template class detail::line_journal<Runtime>;                                           \
    prefix template class detail::log_line<Runtime>;                                               \
    prefix template class detail::log_core<Runtime>;                                               \
    prefix template class detail::log_group<Runtime>;                                              \
    prefix template class detail::log_reader<Runtime>;                                             \
    prefix template class detail::queue_feed<Runtime>;                                             \
    prefix template class detail::exchange_table<Runtime>;                                         \
    prefix template class basic_partitioned_log<int, Runtime>;                                     \
    prefix template class basic_log_producer<int, Runtime>;                                        \
    prefix template class basic_log_consumer<int, Runtime>;                                        \
    prefix template class basic_log_delivery<int, Runtime>;                                        \
    prefix template class basic_topic<int, Runtime>;                                               \
    prefix template class basic_exchange<int, Runtime>;                                            \
    prefix template class basic_exchange_producer<int, Runtime>;

namespace railmq {

#ifdef RAILMQ_TEST_CODE_IN_PCH // the precompiled header has an object of its own
RAILMQ_TEST_INSTANCES(, threaded)
RAILMQ_TEST_INSTANCES(, simulated)
#else
RAILMQ_TEST_INSTANCES(extern, threaded)
RAILMQ_TEST_INSTANCES(extern, simulated)
#endif

} // namespace railmq
