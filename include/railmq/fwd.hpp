// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace railmq {

struct threaded;
struct simulated;
class simulation;
class bytes;

template <class Runtime = threaded>
class basic_broker;
template <class T, class Runtime = threaded>
class basic_queue;
template <class T, class Runtime = threaded>
class basic_producer;
template <class T, class Runtime = threaded>
class basic_consumer;
template <class T, class Runtime = threaded>
class basic_delivery;
template <class Runtime = threaded>
class basic_subscription;
template <class Runtime = threaded>
class basic_transaction;
template <class T, class Runtime = threaded>
class basic_partitioned_log;
template <class T, class Runtime = threaded>
class basic_log_producer;
template <class T, class Runtime = threaded>
class basic_exchange;
template <class T, class Runtime = threaded>
class basic_exchange_producer;
template <class T, class Runtime = threaded>
class basic_log_consumer;
template <class T, class Runtime = threaded>
class basic_log_delivery;
template <class T, class Runtime = threaded>
class basic_topic;
template <class Request, class Reply, class Runtime = threaded>
class basic_requester;

/// The production runtime's names.
using broker = basic_broker<threaded>;
template <class T>
using queue = basic_queue<T, threaded>;
template <class T>
using producer = basic_producer<T, threaded>;
template <class T>
using consumer = basic_consumer<T, threaded>;
template <class T>
using delivery = basic_delivery<T, threaded>;
using subscription = basic_subscription<threaded>;
using transaction = basic_transaction<threaded>;
template <class T>
using partitioned_log = basic_partitioned_log<T, threaded>;
template <class T>
using log_producer = basic_log_producer<T, threaded>;
template <class T>
using log_consumer = basic_log_consumer<T, threaded>;
template <class T>
using log_delivery = basic_log_delivery<T, threaded>;
template <class T>
using exchange = basic_exchange<T, threaded>;
template <class T>
using exchange_producer = basic_exchange_producer<T, threaded>;
template <class T>
using topic = basic_topic<T, threaded>;
template <class Request, class Reply>
using requester = basic_requester<Request, Reply, threaded>;

/// The same in a simulation.
using sim_broker = basic_broker<simulated>;
template <class T>
using sim_queue = basic_queue<T, simulated>;
template <class T>
using sim_producer = basic_producer<T, simulated>;
template <class T>
using sim_consumer = basic_consumer<T, simulated>;
template <class T>
using sim_delivery = basic_delivery<T, simulated>;
using sim_subscription = basic_subscription<simulated>;
using sim_transaction = basic_transaction<simulated>;
template <class T>
using sim_partitioned_log = basic_partitioned_log<T, simulated>;
template <class T>
using sim_log_producer = basic_log_producer<T, simulated>;
template <class T>
using sim_log_consumer = basic_log_consumer<T, simulated>;
template <class T>
using sim_log_delivery = basic_log_delivery<T, simulated>;
template <class T>
using sim_exchange = basic_exchange<T, simulated>;
template <class T>
using sim_exchange_producer = basic_exchange_producer<T, simulated>;
template <class T>
using sim_topic = basic_topic<T, simulated>;
template <class Request, class Reply>
using sim_requester = basic_requester<Request, Reply, simulated>;

namespace detail {

template <class T, class Runtime>
class exchange_lanes;
template <class T, class Runtime>
class exchange_send;
template <class T, class Runtime>
struct queue_access;
template <class Reply, class Runtime>
class reply_desk;

} // namespace detail
} // namespace railmq
