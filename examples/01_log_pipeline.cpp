// SPDX-License-Identifier: BSL-1.0
//
// The main job: a log is streamed through a bounded queue to workers that index it, while all the
// things go wrong that a queue is there for. See --help.
//
// In this file: the queues and their options, the reader, what becomes of dead letters, the
// drain, the books. In log_pipeline/: the workers, durable.hpp with all that --directory adds, and
// everything that is not about messages.

#include <railmq/railmq.hpp>

#include "log_pipeline/backlog_curve.hpp"
#include "log_pipeline/durable.hpp"
#include "log_pipeline/input.hpp"
#include "log_pipeline/log_index.hpp"
#include "log_pipeline/log_line.hpp"
#include "log_pipeline/options.hpp"
#include "log_pipeline/pace.hpp"
#include "log_pipeline/report.hpp"
#include "log_pipeline/text.hpp"
#include "log_pipeline/worker.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace log_pipeline {
namespace {

using namespace std::chrono_literals;

constexpr auto paced_time = 5s;
constexpr double burst_rate = 8000; // lines per second, four times what the workers can do
constexpr double calm_rate = 1200;
constexpr std::uint64_t burst_lines = 1000;
constexpr std::uint64_t calm_lines = 1200;
constexpr std::size_t longest_line = 4096;

void complain(std::string_view what) {
    fmt::print(stderr, "01_log_pipeline: {}\n", what);
}

/// Sends the lines of all inputs, waiting while the queue is full; through `durable`, if there is
/// one, from where an earlier run stopped.
void read_all(
    const options& o, const stop_request& stop, job& j, tally& t, durable_reader* durable) {
    const std::uint64_t known = durable != nullptr ? durable->begun().read : 0;
    auto producer = j.lines.producer();
    pace slowly{timer{j.silent}, j.paced_until};
    log_line line;
    for (const std::string& path : o.inputs) {
        line_reader reader{path, longest_line, stop};
        auto status = line_reader::status::line;
        const auto next = [&] { return status = reader.next(line.text, line.is_cut); };
        while (next() == line_reader::status::line) {
            ++t.read;
            if (t.read <= known) {
                continue;
            }
            if (line.text.find_first_not_of(" \t") == std::string::npos) {
                ++t.blank;
                continue;
            }
            line.number = t.sent + 1;
            const auto before = steady::now();
            if (durable == nullptr) {
                producer.send(std::exchange(line, {}));
                ++t.sent;
            } else {
                ++t.sent;
                durable->send(std::exchange(line, {}), t);
            }
            const auto took = steady::now() - before;
            t.waited += took >= 1ms ? took : 0ms; // less than that is no waiting
            const bool in_burst = t.sent % (burst_lines + calm_lines) < burst_lines;
            slowly.spend(1, in_burst ? burst_rate : calm_rate);
        }
        if (status == line_reader::status::failed) {
            complain(fmt::format("{}: {}", printable(path, 200), std::strerror(reader.error())));
            t.has_failed = true;
        }
        if (status == line_reader::status::stopped) {
            break;
        }
    }
    if (durable != nullptr && t.read >= known) {
        durable->commit(t);
    }
}

/// What a thread does. A failure ends the program there and then, when it is durable: what is
/// committed is safe, and the next run does the rest.
template <class F>
void guarded(const job& j, F work) {
    if (j.durable == nullptr) {
        work();
        return;
    }
    try {
        work();
    } catch (const std::exception& e) {
        complain(e.what());
        std::_Exit(1);
    }
}

/// Takes what is dead, and remembers a few of each kind.
void bury(const railmq::queue<log_line>& dead, graveyard& graves) {
    auto consumer = dead.consumer({.name = "undertaker"});
    std::vector<railmq::delivery<log_line>> batch;
    railmq::error_code ec;
    while (ec != railmq::errc::closed) {
        consumer.receive_batch(batch, 64, 1s, ec);
        for (const auto& d : batch) {
            const railmq::death& why = d.deaths().front();
            graves.add(why.detail.empty() ? to_string(why.reason) : why.detail, *d);
        }
        railmq::ack_all(batch);
    }
}

/// Samples the backlog, and shows how it goes.
void watch(job& j) {
    timer t{j.silent};
    const bool redraws = console::is_terminal();
    double next = redraws ? 0.1 : 1;
    double last = 0;
    std::uint64_t done_before = 0;
    while (t.wait(10ms)) {
        const auto s = j.lines.stats();
        j.told.sample(s.ready);
        if (j.durable == nullptr) {
            j.index.settled_through(s.settled_through);
        }
        const double now = j.told.seconds();
        if (now < next) {
            continue;
        }
        const std::uint64_t done = s.acked + s.dead_lettered;
        const double rate = static_cast<double>(done - done_before) / (now - last);
        j.told.out.progress(fmt::format(
            "{:6.2f} s  {:>9}/s  backlog {:>5}  in flight {:>3}  retried {}  dead {}",
            now,
            grouped(static_cast<std::uint64_t>(rate)),
            grouped(s.ready),
            s.in_flight,
            grouped(s.redelivered),
            grouped(s.dead_lettered)));
        done_before = done;
        last = now;
        next = now + (redraws ? 0.1 : 1);
    }
}

struct close_at_exit {
    railmq::broker& broker;
    ~close_at_exit() { broker.close(); }
};

int run(const options& o) {
    const stop_request stop{o.seconds};
    railmq::broker broker{{.directory = o.directory}};
    const bool is_durable = !o.directory.empty();
    job j;
    j.durable = is_durable ? &broker : nullptr;
    j.workers = o.workers;
    j.paced_until = o.is_fast ? steady::time_point::min() : steady::now() + paced_time;
    j.silent = broker.queue<tick>("silent");
    j.lines = broker.queue<log_line>(
        "lines",
        {.max_length = o.queue_length,
         .overflow = railmq::overflow_policy::wait,
         .ack_timeout = 400ms,
         .retry = {
             .max_attempts = is_durable ? 0U : 8U, // whoever kills this program blames no line
             .max_crashes = 0,
             .backoff = railmq::exponential_backoff{.initial = 20ms, .max = 200ms}}});
    const auto dead = broker.queue<log_line>("lines.dead"); // made together with "lines"
    railmq::queue<parsed_line> parsed;

    tally t;
    graveyard graves;
    std::optional<durable_reader> reader;
    std::optional<ledger> books;
    if (is_durable) {
        parsed = broker.queue<parsed_line>("parsed", {.max_length = 10'000});
        j.parsed = parsed.producer();
        books.emplace(broker, j, graves);
        reader.emplace(broker, j, o);
        if (!reader->is_the_same_input()) {
            complain(fmt::format("{} belongs to other inputs", printable(o.directory, 200)));
            return 2;
        }
        t.blank = reader->begun().blank;
        t.sent = reader->begun().sent;
        j.told.tell(fmt::format(
            "{}: sent before: {}, waiting: {}, in the tally: {}",
            printable(o.directory, 60),
            lines_of(t.sent),
            grouped(j.lines.stats().ready + parsed.stats().ready + dead.stats().ready),
            grouped(j.index.lines() + graves.count())));
    }
    std::deque<worker> workers;
    for (std::size_t i = 1; i <= o.workers; ++i) {
        workers.emplace_back(j, i);
    }
    {
        std::jthread watcher{[&] { watch(j); }};
        std::jthread undertaker{
            [&] { guarded(j, [&] { books ? books->run(parsed, dead) : bury(dead, graves); }); }};
        std::vector<std::jthread> threads;
        const close_at_exit all{broker}; // whatever happens, no thread waits for ever
        for (worker& w : workers) {
            threads.emplace_back([&] { guarded(j, [&] { w.run(); }); });
        }

        j.told.tell(fmt::format("reading {}", names_of(o.inputs)));
        read_all(o, stop, j, t, reader ? &*reader : nullptr);
        t.was_interrupted = stop.by_signal();
        j.told.tell(
            fmt::format(
                "{}; sent: {}, waiting: {}",
                t.was_interrupted ? "asked to stop"
                : stop.by_time()  ? "time is up"
                                  : "all is read",
                lines_of(t.sent),
                grouped(j.lines.stats().ready)),
            "reading ends");

        // Nobody may leave while somebody holds a line that may come back.
        while (!j.lines.drain(railmq::drain_for{1s})) {
        }
        j.lines.close();
        for (std::jthread& thread : threads) {
            thread.join();
        }
        while (!dead.drain(railmq::drain_for{1s}) ||
               (is_durable && !parsed.drain(railmq::drain_for{1s}))) {
        }
        t.queue = j.lines.stats();
        t.left = t.queue.ready + t.queue.delayed + t.queue.in_flight;
        if (is_durable) {
            t.left += parsed.stats().ready + dead.stats().ready;
        }
        j.told.sample(t.queue.ready);
    }
    print_index(j);
    print_dead_letters(j.told.out, graves);
    print_curve(j, o);
    return print_books(j, t, graves);
}

/// Fills in what is read when nothing is named. False: there is nothing.
bool choose_inputs(options& o) {
    if (!o.inputs.empty()) {
        return true;
    }
    const stdin_state piped = look_at_stdin(1s);
    if (piped == stdin_state::has_data) {
        o.inputs.emplace_back("-");
        return true;
    }
    o.inputs = find_logs();
    if (o.inputs.empty()) {
        complain("there is no log in /var/log that could be read; name one");
        return false;
    }
    if (piped == stdin_state::is_silent) {
        complain(fmt::format(
            "nothing comes from standard input ('-' would wait); reading {} instead",
            names_of(o.inputs)));
    }
    return true;
}

} // namespace
} // namespace log_pipeline

int main(int argc, char** argv) {
    using namespace log_pipeline;
    try {
        auto parsed = parse_options(argc, argv);
        if (const auto* wrong = std::get_if<std::string>(&parsed)) {
            complain(*wrong + "; see --help");
            return 2;
        }
        auto& o = std::get<options>(parsed);
        if (o.is_help) {
            fmt::print("{}", help);
            return 0;
        }
        if (!choose_inputs(o)) {
            return 2;
        }
        bool usable = true;
        for (const std::string& path : o.inputs) {
            const std::string wrong = what_is_wrong_with(path);
            if (!wrong.empty()) {
                complain(fmt::format("{}: {}", printable(path, 200), wrong));
                usable = false;
            }
        }
        return usable ? run(o) : 2;
    } catch (const railmq::system_error& e) {
        complain(e.what());
        const bool is_directory = e.code() == railmq::errc::journal_locked ||
                                  e.code() == railmq::errc::options_mismatch ||
                                  e.code().category() != railmq::category();
        return is_directory ? 2 : 1;
    } catch (const std::exception& e) {
        complain(e.what());
        return 1;
    }
}
