// SPDX-License-Identifier: BSL-1.0
#pragma once

/// All of RailMQ but its optional parts. Start reading at broker.hpp.

#include <railmq/broker.hpp>
#include <railmq/broker_options.hpp>
#include <railmq/bytes.hpp>
#include <railmq/config.hpp>
#include <railmq/consumer.hpp>
#include <railmq/delivery.hpp>
#include <railmq/exchange.hpp>
#include <railmq/exchange_producer.hpp>
#include <railmq/fwd.hpp>
#include <railmq/log.hpp>
#include <railmq/log_consumer.hpp>
#include <railmq/log_delivery.hpp>
#include <railmq/log_producer.hpp>
#include <railmq/model/backoff.hpp>
#include <railmq/model/codec.hpp>
#include <railmq/model/death.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/exchange_options.hpp>
#include <railmq/model/group_options.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/log_options.hpp>
#include <railmq/model/name.hpp>
#include <railmq/model/notice.hpp>
#include <railmq/model/outcome.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/queue_options.hpp>
#include <railmq/model/random.hpp>
#include <railmq/model/receipt.hpp>
#include <railmq/model/retry_policy.hpp>
#include <railmq/model/stats.hpp>
#include <railmq/model/time.hpp>
#include <railmq/model/topic_options.hpp>
#include <railmq/producer.hpp>
#include <railmq/queue.hpp>
#include <railmq/requester.hpp>
#include <railmq/runtime/simulated.hpp>
#include <railmq/runtime/threaded.hpp>
#include <railmq/subscription.hpp>
#include <railmq/topic.hpp>
#include <railmq/transaction.hpp>
