// SPDX-License-Identifier: BSL-1.0
//
// What does it cost to tell everybody? One thread sends bursts of 100 messages of 64 bytes to 1, 4,
// 64 or 4096 subscriptions, and then each of them takes the burst and acknowledges it: a figure is
// all of that for one message. RailMQ stores the message once and keeps a lease for each delivery;
// the deques are what one writes by hand, a vector of locked deques of shared pointers, without
// either; ZeroMQ copies.
#include <railmq/railmq.hpp>

#include "support/fresh_process.hpp"
#include "support/harness.hpp"
#include "support/machine.hpp"
#include "support/payload.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#if RAILMQ_HAVE_ZMQ
#include <zmq.h>
#endif

namespace {

using namespace bench;

constexpr std::uint64_t burst = 100;

/// Sends and takes bursts, and checks that everybody got everything. `n` messages.
template <class Hub>
double fan_out(std::size_t subscriptions, std::uint64_t n) {
    Hub hub{subscriptions};
    const std::uint64_t bursts = n / burst + 1;
    const auto round = [&](std::uint64_t i) {
        hub.send(i * burst);
        std::uint64_t sum = 0;
        for (std::size_t s = 0; s < subscriptions; ++s) {
            sum += hub.take(s);
        }
        std::uint64_t expected = 0;
        for (std::uint64_t k = 0; k < burst; ++k) {
            expected += i * burst + k;
        }
        if (sum != expected * subscriptions) {
            throw std::runtime_error{"messages were lost"};
        }
    };
    round(0);
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 1; i <= bursts; ++i) {
        round(i);
    }
    return nanoseconds_between(begin, std::chrono::steady_clock::now()) /
           static_cast<double>(bursts * burst);
}

class deques {
public:
    explicit deques(std::size_t n)
        : all_(n) {}
    void send(std::uint64_t first) {
        for (std::uint64_t k = 0; k < burst; ++k) {
            const auto message = std::make_shared<const record>(first + k);
            for (auto& one : all_) {
                const std::lock_guard guard{one.mutex};
                one.queue.push_back(message);
            }
        }
    }
    std::uint64_t take(std::size_t s) {
        auto& one = all_[s];
        std::uint64_t sum = 0;
        for (std::uint64_t k = 0; k < burst; ++k) {
            std::shared_ptr<const record> message;
            {
                const std::lock_guard guard{one.mutex};
                message = std::move(one.queue.front());
                one.queue.pop_front();
            }
            sum += record_payload::read(*message);
        }
        return sum;
    }

private:
    struct subscription {
        std::mutex mutex{};
        std::deque<std::shared_ptr<const record>> queue{};
    };
    std::vector<subscription> all_;
};

/// `Batched`: sent, taken and acknowledged many at a time; else one by one.
template <bool Batched>
class topic {
public:
    explicit topic(std::size_t n) {
        for (std::size_t s = 0; s < n; ++s) {
            consumers_.push_back(
                topic_.subscribe("s" + std::to_string(s)).consumer({.prefetch = 2 * burst}));
        }
    }
    void send(std::uint64_t first) {
        if constexpr (Batched) {
            values_.clear();
            for (std::uint64_t k = 0; k < burst; ++k) {
                values_.emplace_back(first + k);
            }
            producer_.send_batch(values_);
        } else {
            for (std::uint64_t k = 0; k < burst; ++k) {
                producer_.send(record{first + k});
            }
        }
    }
    std::uint64_t take(std::size_t s) {
        auto& consumer = consumers_[s];
        std::uint64_t sum = 0;
        if constexpr (Batched) {
            for (std::uint64_t got = 0; got != burst;) {
                railmq::error_code ec;
                if (consumer.receive_batch(deliveries_, burst, railmq::duration{0}, ec) == 0) {
                    break;
                }
                for (const auto& d : deliveries_) {
                    sum += record_payload::read(d.value());
                }
                got += consumer.ack_all(deliveries_, ec);
            }
        } else {
            for (std::uint64_t k = 0; k < burst; ++k) {
                auto d = consumer.try_receive();
                sum += record_payload::read(d->value());
                d->ack();
            }
        }
        return sum;
    }

private:
    railmq::broker broker_{};
    railmq::topic<record> topic_ = broker_.topic<record>("bench");
    railmq::log_producer<record> producer_ = topic_.producer();
    std::vector<railmq::consumer<record>> consumers_{};
    std::vector<railmq::delivery<record>> deliveries_{};
    std::vector<record> values_{};
};

#if RAILMQ_HAVE_ZMQ

class zmq_sockets {
public:
    explicit zmq_sockets(std::size_t n)
        : context_{zmq_ctx_new()} {
        zmq_ctx_set(context_, ZMQ_IO_THREADS, 0);
        zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, 8192);
        out_ = open(ZMQ_PUB);
        require(zmq_bind(out_, "inproc://bench") == 0);
        for (std::size_t s = 0; s < n; ++s) {
            void* const in = open(ZMQ_SUB);
            require(zmq_setsockopt(in, ZMQ_SUBSCRIBE, "", 0) == 0);
            require(zmq_connect(in, "inproc://bench") == 0);
            in_.push_back(in);
        }
    }
    zmq_sockets(const zmq_sockets&) = delete;
    zmq_sockets& operator=(const zmq_sockets&) = delete;
    ~zmq_sockets() {
        for (void* in : in_) {
            zmq_close(in);
        }
        zmq_close(out_);
        zmq_ctx_term(context_);
    }
    void send(std::uint64_t first) {
        for (std::uint64_t k = 0; k < burst; ++k) {
            const record sent{first + k};
            require(zmq_send(out_, &sent, sizeof sent, 0) == sizeof sent);
        }
    }
    std::uint64_t take(std::size_t s) {
        std::uint64_t sum = 0;
        for (std::uint64_t k = 0; k < burst; ++k) {
            record taken;
            require(zmq_recv(in_[s], &taken, sizeof taken, 0) == sizeof taken);
            sum += record_payload::read(taken);
        }
        return sum;
    }

private:
    static void require(bool condition) {
        if (!condition) {
            throw std::runtime_error{zmq_strerror(zmq_errno())};
        }
    }
    void* open(int type) {
        void* const socket = zmq_socket(context_, type);
        require(socket != nullptr);
        const int none = 0;
        require(zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none) == 0);
        require(zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none) == 0);
        require(zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none) == 0);
        return socket;
    }
    void* context_;
    void* out_ = nullptr;
    std::vector<void*> in_{};
};

#endif

template <class Hub>
auto to(std::size_t subscriptions) {
    return [=](std::uint64_t n) { return fan_out<Hub>(subscriptions, n); };
}

struct floors {
    double zmq;
    double zmq_goal;
    double deques;
    double deques_goal;
};

table told(std::string id, std::size_t subscriptions, const floors& f, std::uint64_t messages = 0) {
    const std::string by_hand = "deques of shared_ptr";
    const std::string zmq = "zmq inproc PUB/SUB";
    table rows{
        .id = std::move(id),
        .title = "a message to " + std::to_string(subscriptions) + " subscriptions, and its acks",
        .references = {by_hand, zmq},
        .messages = messages,
    };
    rows.add(by_hand, to<deques>(subscriptions));
#if RAILMQ_HAVE_ZMQ
    if (subscriptions <= 64) {
        rows.add(zmq, to<zmq_sockets>(subscriptions));
    }
#endif
    rows.add("railmq, one by one", to<topic<false>>(subscriptions));
    rows.add(
        "railmq, batches of 100",
        to<topic<true>>(subscriptions),
        {times_as_fast(zmq, f.zmq, f.zmq_goal), times_as_fast(by_hand, f.deques, f.deques_goal)});
    return rows;
}

/// Nobody has read anything yet.
double deques_memory(std::uint64_t messages) {
    return in_fresh_process([=] {
        const auto before = resident_bytes();
        deques all{64};
        for (std::uint64_t n = 0; n < messages; n += burst) {
            all.send(n);
        }
        return static_cast<double>(resident_bytes() - before) / static_cast<double>(messages);
    });
}
double topic_memory(std::uint64_t messages) {
    return in_fresh_process([=] {
        const auto before = resident_bytes();
        topic<false> all{64};
        for (std::uint64_t n = 0; n < messages; n += burst) {
            all.send(n);
        }
        return static_cast<double>(resident_bytes() - before) / static_cast<double>(messages);
    });
}

table memory(bool quick) {
    table rows{
        .id = "P11b",
        .title = "memory per message of 64 bytes for 64 subscriptions",
        .columns = {"bytes/msg"},
        .references = {},
        .messages = quick ? 20'000U : 200'000U,
        .comparison = "smaller than",
        .timeless = true,
    };
    const std::string by_hand = "deques of shared_ptr";
    rows.add(by_hand, deques_memory);
    rows.add("railmq", topic_memory, {times_as_fast(by_hand, 5, 10)});
    return rows;
}

} // namespace

int main(int argc, char** argv) {
    bench::harness all{"topic", bench::parse_arguments(argc, argv)};
    all.add(told("P5a", 1, {}));
    all.add(told("P5", 4, {5, 10, 12, 25}));
    all.add(told("P5b", 64, {8, 15, 12, 22}));
    all.add(told("P5c", 4096, {}, 2000));
    all.add(memory(all.quick()));
    return all.run();
}
