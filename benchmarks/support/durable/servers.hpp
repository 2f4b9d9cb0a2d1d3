// SPDX-License-Identifier: BSL-1.0
//
// Servers that are installed, started on loopback in a directory of their own and stopped at the
// end. A program asks with RAILMQ_HAVE_REDIS and RAILMQ_HAVE_NATS whether their clients are there.
#pragma once

#include "log.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if RAILMQ_HAVE_REDIS
#include <hiredis/hiredis.h>
#endif
#if RAILMQ_HAVE_NATS
#include <nats/nats.h>
#endif

namespace bench {

namespace peer {

inline const std::string redis = "Redis XADD, pipelines of 100, everysec";
inline const std::string nats = "NATS JetStream, async publish";

} // namespace peer

/// The whole path of a program, as the shell would find it; also in the directories of servers.
[[nodiscard]] inline std::string path_of(const std::string& program) {
    const char* const given = std::getenv("PATH");
    std::istringstream places{std::string{given != nullptr ? given : ""} + ":/usr/sbin:/sbin"};
    for (std::string place; std::getline(places, place, ':');) {
        const std::string path = place + "/" + program;
        if (access(path.c_str(), X_OK) == 0) {
            return path;
        }
    }
    return {};
}

namespace detail {

[[nodiscard]] inline sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/// A port that nobody has at the moment.
[[nodiscard]] inline std::uint16_t free_port() {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto address = loopback(0);
    socklen_t size = sizeof address;
    const bool found =
        bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    close(descriptor);
    require(found, "no free port");
    return ntohs(address.sin_port);
}

[[nodiscard]] inline bool is_listening(std::uint16_t port) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto address = loopback(port);
    const bool connected =
        connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(descriptor);
    return connected;
}

} // namespace detail

/// A process that listens on a port of loopback. It is waited for at the end, so that what it has
/// used of the processors counts as ours; and it does not outlive this process.
class server {
public:
    server(
        const std::string& program,
        std::vector<std::string> arguments,
        const std::string& directory,
        std::uint16_t port) {
        const std::string path = path_of(program);
        require(!path.empty(), (program + " is not installed").c_str());
        arguments.insert(arguments.begin(), path);
        std::vector<char*> words;
        for (auto& argument : arguments) {
            words.push_back(argument.data());
        }
        words.push_back(nullptr);
        const std::string output = directory + "/output";
        process_ = fork();
        require(process_ >= 0, "fork");
        if (process_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            const int file = open(output.c_str(), O_CREAT | O_WRONLY, 0600);
            dup2(file, STDOUT_FILENO);
            dup2(file, STDERR_FILENO);
            execv(path.c_str(), words.data());
            _exit(127);
        }
        for (int tries = 0; !detail::is_listening(port); ++tries) {
            if (tries == 500 || waitpid(process_, nullptr, WNOHANG) == process_) {
                stop();
                require(false, (program + " does not start").c_str());
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
        }
    }
    server(const server&) = delete;
    server& operator=(const server&) = delete;
    ~server() { stop(); }

private:
    void stop() {
        if (process_ > 0) {
            kill(process_, SIGTERM);
            waitpid(process_, nullptr, 0);
            process_ = 0;
        }
    }

    pid_t process_ = 0;
};

#if RAILMQ_HAVE_REDIS

/// A server with an append-only file, and a connection to it. Commands go out when a reply is
/// asked for.
class redis_server {
public:
    redis_server(const std::string& directory, safety safe)
        : port_{detail::free_port()}
        , server_{"redis-server", arguments(directory, safe), directory, port_}
        , connection_{redisConnect("127.0.0.1", static_cast<int>(port_))} {
        require(connection_ != nullptr && connection_->err == 0, "redisConnect");
    }

    void command(std::span<const std::string_view> words) {
        texts_.clear();
        sizes_.clear();
        for (const std::string_view word : words) {
            texts_.push_back(word.data());
            sizes_.push_back(word.size());
        }
        const auto count = static_cast<int>(words.size());
        require(
            redisAppendCommandArgv(connection_.get(), count, texts_.data(), sizes_.data()) ==
                REDIS_OK,
            "redisAppendCommandArgv");
        ++outstanding_;
    }
    void command(std::initializer_list<std::string_view> words) {
        command(std::span{words.begin(), words.size()});
    }

    struct freed {
        void operator()(redisReply* reply) const { freeReplyObject(reply); }
    };
    using reply = std::unique_ptr<redisReply, freed>;

    /// Of the first command that has got none yet.
    reply receive() {
        void* got = nullptr;
        require(redisGetReply(connection_.get(), &got) == REDIS_OK, "redisGetReply");
        --outstanding_;
        reply result{static_cast<redisReply*>(got)};
        require(result->type != REDIS_REPLY_ERROR, "a command was refused");
        return result;
    }
    void receive_all() {
        while (outstanding_ != 0) {
            receive();
        }
    }

    [[nodiscard]] static std::string_view text(std::span<const std::byte> bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

private:
    [[nodiscard]] std::vector<std::string>
    arguments(const std::string& directory, safety safe) const {
        return {
            "--port",
            std::to_string(port_),
            "--bind",
            "127.0.0.1",
            "--appendonly",
            "yes",
            "--appendfsync",
            safe == safety::power ? "always" : "everysec",
            "--save",
            "",
            "--dir",
            directory};
    }

    struct destroyed {
        void operator()(redisContext* connection) const { redisFree(connection); }
    };

    std::uint16_t port_;
    server server_;
    std::unique_ptr<redisContext, destroyed> connection_;
    std::uint64_t outstanding_ = 0;
    std::vector<const char*> texts_;
    std::vector<std::size_t> sizes_;
};

/// A stream. A group is one pipeline; the file is synced once a second.
class redis_log {
public:
    redis_log(const std::string& directory, safety)
        : server_{directory, safety::process} {}

    void append(std::span<const std::byte> payload) {
        server_.command({"XADD", "log", "*", "m", redis_server::text(payload)});
    }
    void commit() { server_.receive_all(); }

private:
    redis_server server_;
};

#endif

#if RAILMQ_HAVE_NATS

/// A server with JetStream in files, which promise no sync; a connection to it, and a stream.
class nats_stream {
public:
    nats_stream(const std::string& directory, jsRetentionPolicy retention)
        : port_{detail::free_port()}
        , server_{
              "nats-server",
              {"-a", "127.0.0.1", "-p", std::to_string(port_), "-js", "-sd", directory},
              directory,
              port_} {
        natsConnection* connection = nullptr;
        const std::string url = "nats://127.0.0.1:" + std::to_string(port_);
        check(natsConnection_ConnectTo(&connection, url.c_str()));
        connection_.reset(connection);
        jsOptions options;
        check(jsOptions_Init(&options));
        options.PublishAsync.MaxPending = 4000;
        options.PublishAsync.StallWait = 10'000;
        jsCtx* stream = nullptr;
        check(natsConnection_JetStream(&stream, connection, &options));
        stream_.reset(stream);
        jsStreamConfig config;
        check(jsStreamConfig_Init(&config));
        const char* subject = "log";
        config.Name = "log";
        config.Subjects = &subject;
        config.SubjectsLen = 1;
        config.Retention = retention;
        // JetStream comes up a little later than the port.
        natsStatus added = NATS_ERR;
        for (int tries = 0; added != NATS_OK && tries < 100; ++tries) {
            added = js_AddStream(nullptr, stream, &config, nullptr, nullptr);
            if (added != NATS_OK) {
                std::this_thread::sleep_for(std::chrono::milliseconds{20});
            }
        }
        check(added);
    }

    void publish(std::span<const std::byte> payload) {
        check(js_PublishAsync(
            stream_.get(), "log", payload.data(), static_cast<int>(payload.size()), nullptr));
    }
    /// Waits for the acknowledgements of what was published.
    void wait() { check(js_PublishAsyncComplete(stream_.get(), nullptr)); }

    [[nodiscard]] jsCtx* get() const { return stream_.get(); }

    static void check(natsStatus status) { require(status == NATS_OK, natsStatus_GetText(status)); }

private:
    struct destroyed {
        void operator()(natsConnection* connection) const { natsConnection_Destroy(connection); }
        void operator()(jsCtx* stream) const { jsCtx_Destroy(stream); }
    };

    std::uint16_t port_;
    server server_;
    std::unique_ptr<natsConnection, destroyed> connection_;
    std::unique_ptr<jsCtx, destroyed> stream_;
};

/// A commit waits for the acknowledgements of the group.
class nats_log {
public:
    nats_log(const std::string& directory, safety)
        : stream_{directory, js_LimitsPolicy} {}

    void append(std::span<const std::byte> payload) { stream_.publish(payload); }
    void commit() { stream_.wait(); }

private:
    nats_stream stream_;
};

#endif

} // namespace bench
