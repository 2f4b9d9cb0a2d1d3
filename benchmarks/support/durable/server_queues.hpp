// SPDX-License-Identifier: BSL-1.0
//
// Servers that are installed, as work queues. Each step is one pipeline.
#pragma once

#include "servers.hpp"
#include "work_queue.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

namespace peer {

inline const std::string redis_always = "Redis streams, always";
inline const std::string redis_everysec = "Redis streams, everysec";
inline const std::string nats_queue = "NATS JetStream";

} // namespace peer

#if RAILMQ_HAVE_REDIS

/// A stream with a group. What is acknowledged stays in the stream, which is less work than to
/// delete it.
class redis_queue {
public:
    redis_queue(const std::string& directory, safety safe)
        : server_{directory, safe} {
        server_.command({"XGROUP", "CREATE", "jobs", "all", "$", "MKSTREAM"});
        server_.receive_all();
    }

    void enqueue(std::span<const std::byte> payload, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            server_.command({"XADD", "jobs", "*", "m", redis_server::text(payload)});
        }
        server_.receive_all();
    }
    void lease(std::size_t count) {
        const std::string most = std::to_string(count);
        server_.command(
            {"XREADGROUP", "GROUP", "all", "one", "COUNT", most, "STREAMS", "jobs", ">"});
        taken_ = server_.receive();
        const auto streams = elements(*taken_);
        require(streams.size() == 1, "nothing could be taken");
        messages_ = elements(*elements(*streams.front())[1]);
        require(messages_.size() == count, "not everything could be taken");
        for (const redisReply* const message : messages_) {
            keep(*elements(*elements(*message)[1])[1]->str);
        }
    }
    void acknowledge() {
        words_.assign({"XACK", "jobs", "all"});
        for (const redisReply* const message : messages_) {
            const redisReply& id = *elements(*message)[0];
            words_.emplace_back(id.str, id.len);
        }
        server_.command(words_);
        server_.receive_all();
    }

private:
    [[nodiscard]] static std::span<redisReply*> elements(const redisReply& reply) {
        return {reply.element, reply.elements};
    }

    redis_server server_;
    redis_server::reply taken_;
    std::span<redisReply*> messages_;
    std::vector<std::string_view> words_;
};

#endif

#if RAILMQ_HAVE_NATS

/// A stream from which acknowledged messages go away, and a pull consumer. Acknowledgements are
/// not confirmed, and nothing is synced.
class nats_queue {
public:
    nats_queue(const std::string& directory, safety)
        : stream_{directory, js_WorkQueuePolicy} {
        natsSubscription* subscription = nullptr;
        nats_stream::check(js_PullSubscribe(
            &subscription, stream_.get(), "log", "all", nullptr, nullptr, nullptr));
        subscription_.reset(subscription);
    }

    void enqueue(std::span<const std::byte> payload, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            stream_.publish(payload);
        }
        stream_.wait();
    }
    void lease(std::size_t count) {
        while (taken_.size() < count) {
            natsMsgList list{};
            const auto more = static_cast<int>(count - taken_.size());
            nats_stream::check(
                natsSubscription_Fetch(&list, subscription_.get(), more, 10'000, nullptr));
            for (natsMsg*& message : std::span{list.Msgs, static_cast<std::size_t>(list.Count)}) {
                keep(*natsMsg_GetData(message));
                taken_.emplace_back(message);
                message = nullptr; // the list does not destroy it
            }
            natsMsgList_Destroy(&list);
        }
    }
    void acknowledge() {
        for (const auto& message : taken_) {
            nats_stream::check(natsMsg_Ack(message.get(), nullptr));
        }
        taken_.clear();
    }

private:
    struct destroyed {
        void operator()(natsSubscription* subscription) const {
            natsSubscription_Destroy(subscription);
        }
        void operator()(natsMsg* message) const { natsMsg_Destroy(message); }
    };

    nats_stream stream_;
    std::unique_ptr<natsSubscription, destroyed> subscription_;
    std::vector<std::unique_ptr<natsMsg, destroyed>> taken_;
};

#endif

} // namespace bench
