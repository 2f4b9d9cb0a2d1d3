// SPDX-License-Identifier: BSL-1.0
//
// What people use instead, as contestants for hand_off.hpp: queues written by hand with a mutex,
// and the well-known libraries. RAILMQ_HAVE_MOODYCAMEL, RAILMQ_HAVE_TBB and RAILMQ_HAVE_ZMQ say
// which libraries there are. Only the lease queue keeps track of what was handed out.
#pragma once

#include "payload.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#ifndef RAILMQ_HAVE_MOODYCAMEL
#define RAILMQ_HAVE_MOODYCAMEL 0
#endif
#ifndef RAILMQ_HAVE_TBB
#define RAILMQ_HAVE_TBB 0
#endif
#ifndef RAILMQ_HAVE_ZMQ
#define RAILMQ_HAVE_ZMQ 0
#endif
#if __has_include(<boost/lockfree/queue.hpp>)
#define RAILMQ_HAVE_LOCKFREE 1
#else
#define RAILMQ_HAVE_LOCKFREE 0
#endif

#if RAILMQ_HAVE_MOODYCAMEL
#include <blockingconcurrentqueue.h>
#include <concurrentqueue.h>
#endif
#if RAILMQ_HAVE_TBB
#include <tbb/concurrent_queue.h>
#endif
#if RAILMQ_HAVE_LOCKFREE
#include <boost/lockfree/queue.hpp>
#endif
#if RAILMQ_HAVE_ZMQ
#include <zmq.h>
#endif

namespace bench {

namespace peer {

// Names of rows; they exist whether the library does or not, so that rows can refer to them.
inline const std::string mutex_deque = "mutex + condvar + deque";
inline const std::string lease_queue = "hand-rolled lease queue";
inline const std::string moodycamel = "moodycamel ConcurrentQueue";
inline const std::string moodycamel_blocking = "moodycamel Blocking";
inline const std::string tbb = "tbb bounded_queue";
inline const std::string lockfree = "boost lockfree queue";
inline const std::string zmq = "zmq inproc PUSH/PULL";

[[nodiscard]] inline std::string in_batches(const std::string& name) {
    return name + ", batch 32";
}

} // namespace peer

/// What most programs start with: one mutex, one condition variable, one deque, no limit.
template <class Payload>
class mutex_deque {
    using value = typename Payload::stored;

public:
    using payload = Payload;
    static constexpr bool bounded = false;

    explicit mutex_deque(std::size_t) {}

    class producer {
    public:
        explicit producer(mutex_deque& queue)
            : queue_{queue} {}

        void send(value sent) {
            {
                const std::lock_guard lock{queue_.mutex_};
                queue_.values_.push_back(std::move(sent));
            }
            queue_.filled_.notify_one();
        }

        void send_batch(std::span<value> sent) {
            {
                const std::lock_guard lock{queue_.mutex_};
                queue_.values_.insert(
                    queue_.values_.end(),
                    std::make_move_iterator(sent.begin()),
                    std::make_move_iterator(sent.end()));
            }
            queue_.filled_.notify_all();
        }

    private:
        mutex_deque& queue_;
    };

    class consumer {
    public:
        explicit consumer(mutex_deque& queue)
            : queue_{queue} {}

        template <class Visit>
        void receive(Visit visit) {
            std::unique_lock lock{queue_.mutex_};
            queue_.filled_.wait(lock, [&] { return !queue_.values_.empty(); });
            const value taken = std::move(queue_.values_.front());
            queue_.values_.pop_front();
            lock.unlock();
            visit(taken);
        }

        template <class Visit>
        std::size_t receive_batch(std::size_t max, Visit visit) {
            taken_.clear();
            {
                std::unique_lock lock{queue_.mutex_};
                queue_.filled_.wait(lock, [&] { return !queue_.values_.empty(); });
                const auto count = std::min(max, queue_.values_.size());
                const auto end = queue_.values_.begin() + static_cast<std::ptrdiff_t>(count);
                std::move(queue_.values_.begin(), end, std::back_inserter(taken_));
                queue_.values_.erase(queue_.values_.begin(), end);
            }
            for (const auto& one : taken_) {
                visit(one);
            }
            return taken_.size();
        }

    private:
        mutex_deque& queue_;
        std::vector<value> taken_;
    };

private:
    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<value> values_;
};

/// The usual way to add leases: what is handed out moves to a map by id, and a multimap of
/// deadlines says what to take back. Does the same work as send, receive and ack.
template <class Payload>
class lease_queue {
    using value = typename Payload::stored;
    using clock = std::chrono::steady_clock;
    using deadlines = std::multimap<clock::time_point, std::uint64_t>;

    struct entry {
        entry(std::uint64_t number, value&& sent)
            : id{number}
            , content{std::move(sent)} {}
        std::uint64_t id;
        value content;
    };
    struct lease {
        lease(value&& taken, typename deadlines::iterator until)
            : content{std::move(taken)}
            , deadline{until} {}
        value content;
        typename deadlines::iterator deadline;
    };
    struct handed_out {
        std::uint64_t id;
        const value* content; // stays where it is in the map
    };

public:
    using payload = Payload;
    static constexpr bool bounded = false;

    explicit lease_queue(std::size_t) {}

    class producer {
    public:
        explicit producer(lease_queue& queue)
            : queue_{queue} {}

        void send(value sent) {
            {
                const std::lock_guard lock{queue_.mutex_};
                queue_.ready_.emplace_back(++queue_.last_id_, std::move(sent));
            }
            queue_.filled_.notify_one();
        }

        void send_batch(std::span<value> sent) {
            {
                const std::lock_guard lock{queue_.mutex_};
                for (auto& one : sent) {
                    queue_.ready_.emplace_back(++queue_.last_id_, std::move(one));
                }
            }
            queue_.filled_.notify_all();
        }

    private:
        lease_queue& queue_;
    };

    class consumer {
    public:
        explicit consumer(lease_queue& queue)
            : queue_{queue} {}

        template <class Visit>
        void receive(Visit visit) {
            const auto taken = take();
            visit(*taken.content);
            const std::lock_guard lock{queue_.mutex_};
            queue_.ack(taken.id);
        }

        template <class Visit>
        std::size_t receive_batch(std::size_t max, Visit visit) {
            taken_.clear();
            {
                std::unique_lock lock{queue_.mutex_};
                queue_.filled_.wait(lock, [&] { return !queue_.ready_.empty(); });
                const auto now = clock::now();
                queue_.take_back(now);
                while (taken_.size() < max && !queue_.ready_.empty()) {
                    taken_.push_back(queue_.hand_out(now));
                }
            }
            for (const auto& one : taken_) {
                visit(*one.content);
            }
            const std::lock_guard lock{queue_.mutex_};
            for (const auto& one : taken_) {
                queue_.ack(one.id);
            }
            return taken_.size();
        }

        /// Hands one out and leaves it held.
        void hold() { (void)take(); }

    private:
        handed_out take() {
            std::unique_lock lock{queue_.mutex_};
            queue_.filled_.wait(lock, [&] { return !queue_.ready_.empty(); });
            const auto now = clock::now();
            queue_.take_back(now);
            return queue_.hand_out(now);
        }

        lease_queue& queue_;
        std::vector<handed_out> taken_;
    };

private:
    handed_out hand_out(clock::time_point now) {
        auto& front = ready_.front();
        const auto id = front.id;
        const auto deadline =
            deadlines_.emplace_hint(deadlines_.end(), now + std::chrono::seconds{30}, id);
        const auto at = leased_.try_emplace(id, std::move(front.content), deadline).first;
        ready_.pop_front();
        return {id, &at->second.content};
    }

    void take_back(clock::time_point now) {
        while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
            const auto at = leased_.find(deadlines_.begin()->second);
            deadlines_.erase(deadlines_.begin());
            ready_.emplace_front(at->first, std::move(at->second.content));
            leased_.erase(at);
        }
    }

    void ack(std::uint64_t id) {
        if (const auto at = leased_.find(id); at != leased_.end()) {
            deadlines_.erase(at->second.deadline);
            leased_.erase(at);
        }
    }

    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<entry> ready_;
    std::unordered_map<std::uint64_t, lease> leased_;
    deadlines deadlines_;
    std::uint64_t last_id_ = 0;
};

#if RAILMQ_HAVE_MOODYCAMEL

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-overflow" // g++ 12, about an atomic in enqueue_bulk
#endif

namespace detail {

/// Both queues of the library, with tokens. An empty ConcurrentQueue is asked again after a
/// yield; the blocking one waits by itself. Neither keeps an order between producers.
template <class Payload, class Queue, bool Blocking>
class moodycamel_queue {
    using value = typename Payload::stored;

public:
    using payload = Payload;
    static constexpr bool bounded = false;

    explicit moodycamel_queue(std::size_t capacity)
        : queue_{capacity} {}

    class producer {
    public:
        explicit producer(moodycamel_queue& queue)
            : queue_{queue.queue_}
            , token_{queue.queue_} {}

        void send(value sent) { queue_.enqueue(token_, std::move(sent)); }

        void send_batch(std::span<value> sent) {
            queue_.enqueue_bulk(token_, std::make_move_iterator(sent.begin()), sent.size());
        }

    private:
        Queue& queue_;
        moodycamel::ProducerToken token_;
    };

    class consumer {
    public:
        explicit consumer(moodycamel_queue& queue)
            : queue_{queue.queue_}
            , token_{queue.queue_} {}

        template <class Visit>
        void receive(Visit visit) {
            value taken;
            if constexpr (Blocking) {
                queue_.wait_dequeue(token_, taken);
            } else {
                while (!queue_.try_dequeue(token_, taken)) {
                    std::this_thread::yield();
                }
            }
            visit(taken);
        }

        template <class Visit>
        std::size_t receive_batch(std::size_t max, Visit visit) {
            taken_.resize(std::max(taken_.size(), max));
            std::size_t count = 0;
            if constexpr (Blocking) {
                count = queue_.wait_dequeue_bulk(token_, taken_.begin(), max);
            } else {
                while ((count = queue_.try_dequeue_bulk(token_, taken_.begin(), max)) == 0) {
                    std::this_thread::yield();
                }
            }
            for (std::size_t n = 0; n < count; ++n) {
                visit(std::as_const(taken_[n]));
            }
            return count;
        }

    private:
        Queue& queue_;
        moodycamel::ConsumerToken token_;
        std::vector<value> taken_;
    };

private:
    Queue queue_;
};

} // namespace detail

template <class Payload>
using moodycamel_queue =
    detail::moodycamel_queue<Payload, moodycamel::ConcurrentQueue<typename Payload::stored>, false>;

template <class Payload>
using moodycamel_blocking_queue = detail::
    moodycamel_queue<Payload, moodycamel::BlockingConcurrentQueue<typename Payload::stored>, true>;

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif // RAILMQ_HAVE_MOODYCAMEL

#if RAILMQ_HAVE_TBB

/// Wide enough never to wait in push: the driver's limit applies, as for the others.
template <class Payload>
class tbb_queue {
    using value = typename Payload::stored;
    using queue = tbb::concurrent_bounded_queue<value>;

public:
    using payload = Payload;
    static constexpr bool bounded = false;

    explicit tbb_queue(std::size_t capacity) {
        queue_.set_capacity(static_cast<typename queue::size_type>(8 * capacity));
    }

    class producer {
    public:
        explicit producer(tbb_queue& queue)
            : queue_{queue.queue_} {}
        void send(value sent) { queue_.push(std::move(sent)); }

    private:
        queue& queue_;
    };

    class consumer {
    public:
        explicit consumer(tbb_queue& queue)
            : queue_{queue.queue_} {}

        template <class Visit>
        void receive(Visit visit) {
            value taken;
            queue_.pop(taken);
            visit(taken);
        }

    private:
        queue& queue_;
    };

private:
    queue queue_;
};

#endif // RAILMQ_HAVE_TBB

#if RAILMQ_HAVE_LOCKFREE

/// Nodes from a free list that starts with as many as the capacity. Trivial values only.
template <class Payload>
class lockfree_queue {
    using value = typename Payload::stored;
    using queue = boost::lockfree::queue<value>;

public:
    using payload = Payload;
    static constexpr bool bounded = false;

    explicit lockfree_queue(std::size_t capacity)
        : queue_{capacity} {}

    class producer {
    public:
        explicit producer(lockfree_queue& queue)
            : queue_{queue.queue_} {}
        void send(const value& sent) { queue_.push(sent); }

    private:
        queue& queue_;
    };

    class consumer {
    public:
        explicit consumer(lockfree_queue& queue)
            : queue_{queue.queue_} {}

        template <class Visit>
        void receive(Visit visit) {
            value taken;
            while (!queue_.pop(taken)) {
                std::this_thread::yield();
            }
            visit(std::as_const(taken));
        }

    private:
        queue& queue_;
    };

private:
    queue queue_;
};

#endif // RAILMQ_HAVE_LOCKFREE

#if RAILMQ_HAVE_ZMQ

/// One PUSH and one PULL socket, so one producer and one consumer; trivial values only.
template <class Payload>
class zmq_queue {
    using value = typename Payload::stored;

public:
    using payload = Payload;
    static constexpr bool bounded = false;

    explicit zmq_queue(std::size_t)
        : context_{zmq_ctx_new()} {
        zmq_ctx_set(context_, ZMQ_IO_THREADS, 0); // inproc needs none
        pull_ = open(ZMQ_PULL);
        push_ = open(ZMQ_PUSH);
        require(zmq_bind(pull_, "inproc://bench") == 0);
        require(zmq_connect(push_, "inproc://bench") == 0);
    }

    ~zmq_queue() {
        zmq_close(push_);
        zmq_close(pull_);
        zmq_ctx_term(context_);
    }

    zmq_queue(const zmq_queue&) = delete;
    zmq_queue& operator=(const zmq_queue&) = delete;

    class producer {
    public:
        explicit producer(zmq_queue& queue)
            : socket_{queue.push_} {}
        void send(const value& sent) {
            require(zmq_send(socket_, &sent, sizeof sent, 0) == sizeof sent);
        }

    private:
        void* socket_;
    };

    class consumer {
    public:
        explicit consumer(zmq_queue& queue)
            : socket_{queue.pull_} {}

        template <class Visit>
        void receive(Visit visit) {
            value taken;
            require(zmq_recv(socket_, &taken, sizeof taken, 0) == sizeof taken);
            visit(std::as_const(taken));
        }

    private:
        void* socket_;
    };

private:
    static void require(bool condition) {
        if (!condition) {
            throw std::runtime_error{zmq_strerror(zmq_errno())};
        }
    }

    void* open(int type) {
        void* socket = zmq_socket(context_, type);
        require(socket != nullptr);
        const int none = 0; // no high-water mark, and nothing to wait for when closing
        require(zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none) == 0);
        require(zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none) == 0);
        require(zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none) == 0);
        return socket;
    }

    void* context_;
    void* push_ = nullptr;
    void* pull_ = nullptr;
};

#endif // RAILMQ_HAVE_ZMQ

} // namespace bench
