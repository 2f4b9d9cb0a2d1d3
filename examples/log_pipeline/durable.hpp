// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/railmq.hpp>

#include "options.hpp"
#include "pace.hpp"
#include "report.hpp"
#include "stored.hpp"
#include "worker.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The pipeline with --directory. Every step takes something out of one queue and puts what it
/// made of it into the next one in a single transaction, so whenever the program is killed, a line
/// is in exactly one place:
///
///     input --- bookmark + lines ---> "lines" ---> "parsed" ---> the tally
///
/// The bookmark and the tally are a queue with one message each, which a transaction replaces.
namespace log_pipeline {

/// The one message of a queue that stands for a value.
template <class T>
class kept_value {
public:
    kept_value(railmq::broker& broker, std::string_view name, std::size_t max_bytes)
        : queue_{broker.queue<T>(
              name,
              {.ack_timeout = std::chrono::hours{24},
               // Whoever ends the program while a value is being replaced means no harm to it.
               .retry =
                   {.max_attempts = 0,
                    .max_crashes = 0,
                    .backoff = railmq::constant_backoff{std::chrono::seconds{0}}}})}
        , producer_{queue_.producer({.max_message_bytes = max_bytes})}
        , consumer_{queue_.consumer()} {}

    [[nodiscard]] std::optional<T> read() const {
        auto there = queue_.peek(1);
        return there.empty() ? std::nullopt : std::optional<T>{std::move(there.front().value)};
    }
    void replace(railmq::transaction& tx, T value) {
        if (auto before = consumer_.try_receive()) {
            tx.ack(*before);
        }
        tx.send(producer_, std::move(value));
    }

private:
    railmq::queue<T> queue_;
    railmq::producer<T> producer_;
    railmq::consumer<T> consumer_;
};

/// Sends lines, and remembers in the same step how far it has read.
class durable_reader {
public:
    durable_reader(railmq::broker& broker, job& j, const options& o)
        : job_{j}
        , mark_{broker, "bookmark", std::size_t{1} << 20}
        , lines_{j.lines.producer()}
        , timer_{j.silent}
        , batch_{std::clamp<std::size_t>(o.queue_length / 8, 1, 32)} {
        for (const std::string& path : o.inputs) {
            inputs_ += path + '\n';
        }
        begun_ = mark_.read().value_or(bookmark{.inputs = inputs_});
    }

    /// Where an earlier run stopped.
    [[nodiscard]] const bookmark& begun() const noexcept { return begun_; }
    [[nodiscard]] bool is_the_same_input() const { return begun_.inputs == inputs_; }

    /// Lines are sent a few at a time, for one sync. `t` counts this one already.
    void send(log_line line, const tally& t) {
        pending_.push_back(std::move(line));
        if (pending_.size() >= batch_) {
            commit(t);
        }
    }
    /// All of them so far.
    void commit(const tally& t) {
        auto tx = job_.durable->begin();
        mark_.replace(tx, {t.read, t.blank, t.sent, inputs_});
        for (log_line& line : pending_) {
            tx.send(lines_, std::move(line));
        }
        pending_.clear();
        if (const auto ec = commit_when_there_is_room(tx, timer_)) {
            throw railmq::system_error(ec, "sending lines");
        }
    }

private:
    job& job_;
    kept_value<bookmark> mark_;
    railmq::producer<log_line> lines_;
    timer timer_;
    std::size_t batch_;
    std::string inputs_{};
    bookmark begun_{};
    std::vector<log_line> pending_{};
};

/// Takes what the workers made of lines, and the dead letters, into the tally.
class ledger {
public:
    ledger(railmq::broker& broker, job& j, graveyard& graves)
        : job_{j}
        , graves_{graves}
        , tally_{broker, "tally", std::size_t{15} << 20} {
        if (const auto kept = tally_.read()) {
            unpacker u{*kept};
            job_.index.load(u);
            graves_.load(u);
            if (!u.is_whole()) {
                throw std::runtime_error{"the tally in the directory cannot be read"};
            }
        }
    }

    /// Until the queues are closed.
    void run(const railmq::queue<parsed_line>& parsed, const railmq::queue<log_line>& dead) {
        using namespace std::chrono_literals;
        constexpr std::size_t many = 4096;
        auto lines = parsed.consumer({.prefetch = many, .name = "bookkeeper"});
        auto letters = dead.consumer({.prefetch = many, .name = "undertaker"});
        std::vector<railmq::delivery<parsed_line>> some_lines;
        std::vector<railmq::delivery<log_line>> some_letters;
        railmq::error_code ec;
        railmq::error_code ignored;
        while (ec != railmq::errc::closed) {
            lines.receive_batch(some_lines, many, 50ms, ec);
            letters.receive_batch(some_letters, many, 0ms, ignored);
            if (some_lines.empty() && some_letters.empty()) {
                continue;
            }
            auto tx = job_.durable->begin();
            for (auto& d : some_lines) {
                job_.index.count(d->as_entry());
                tx.ack(d);
            }
            for (auto& d : some_letters) {
                const railmq::death& why = d.deaths().front();
                graves_.add(why.detail.empty() ? to_string(why.reason) : why.detail, *d);
                tx.ack(d);
            }
            std::vector<std::byte> page;
            packer p{page};
            job_.index.save(p);
            graves_.save(p);
            tally_.replace(tx, std::move(page));
            tx.commit();
        }
    }

private:
    job& job_;
    graveyard& graves_;
    kept_value<std::vector<std::byte>> tally_;
};

} // namespace log_pipeline
