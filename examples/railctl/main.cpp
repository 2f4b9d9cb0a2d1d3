// SPDX-License-Identifier: BSL-1.0
//
// A tool for the directories of brokers: what is in them, whether they are whole, and what can be
// done when they are not. It knows no message types: queues are read as the journal keeps them.
#include <railmq/model/printable.hpp>
#include <railmq/railmq.hpp>
#include <railmq/storage/inspect.hpp>
#include <railmq/storage/journal_scan.hpp>
#include <railmq/storage/redrive.hpp>
#include <railmq/storage/salvage.hpp>

#include "options.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace railctl {
namespace {

using namespace railmq::storage;
using railmq::errc;
using railmq::error_code;
using railmq::printable;
using view_type = journal_view<posix_directory>;

constexpr std::string_view usage = R"(usage: railctl COMMAND ...

  list DIR                       queues, logs and topics, how much is in them, and exchanges
  verify DIR [--progress]        checks every checksum of every file
  dump DIR QUEUE [--payloads] [--full] [--limit N]
                                 messages, with their payloads if asked for (256 bytes; or --full)
  dead DIR [QUEUE] [--limit N]   dead letters, and what they died of
  redrive DIR FROM TO --all | --id N...
                                 moves messages from one queue to another
  salvage DIR NEWDIR [--progress]
                                 copies what is intact of a damaged directory to a new one

Only redrive changes a directory. None works while a broker has it open.
exit code: 0 all is well; 1 damage was found, or something could not be done; 2 wrong usage
)";

railmq::time_point wall_now() {
    return railmq::threaded::clock{}.wall_now();
}

/// Something could not be done; what the user is told.
struct refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

posix_directory open_directory(const std::string& path, bool is_to_write) {
    error_code ec;
    // Who only looks may look at anybody's.
    auto d = posix_directory::open_existing(path, {.allow_insecure = !is_to_write}, ec);
    if (ec) {
        throw refusal{printable(path) + ": " + ec.message()};
    }
    return d;
}
[[noreturn]] void refuse(const std::string& path, const recovery_report& r, const error_code& ec) {
    std::string what = printable(path) + ": " + ec.message();
    if (ec == errc::journal_locked && r.owner != 0) {
        what = fmt::format("{}: a broker has it open, process {}", printable(path), r.owner);
    } else if (ec == errc::not_found) {
        what = printable(path) + ": there is no journal in it";
    } else if (ec == errc::journal_corrupt) {
        what += fmt::format(
            "\n  {}, byte {}, record {}\n  'railctl verify' finds all damage; 'railctl salvage' "
            "copies what is intact",
            r.file,
            r.offset,
            r.record);
    }
    throw refusal{what};
}
std::unique_ptr<view_type> open_view(const std::string& path, recovery_report& report) {
    error_code ec;
    auto v = view_type::open(open_directory(path, false), report, ec);
    if (ec) {
        refuse(path, report, ec);
    }
    return v;
}
kept_queue& queue_in(kept_state& state, const std::string& name) {
    kept_queue* const q = find_queue(state, name);
    if (q == nullptr) {
        throw refusal{"there is no queue " + printable(name)};
    }
    return *q;
}

/// A line on standard error that says how far a long work has come; none where nobody looks.
class progress_line {
public:
    explicit progress_line(bool is_wanted) noexcept
        : is_terminal_{::isatty(STDERR_FILENO) == 1}
        , is_on_{is_wanted || is_terminal_} {}
    progress_line(const progress_line&) = delete;
    progress_line& operator=(const progress_line&) = delete;
    ~progress_line() {
        if (is_drawn_ && is_terminal_) {
            std::fputs("\r\x1b[K", stderr);
        }
    }
    void operator()(std::uint64_t done, std::uint64_t all) {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - begin_).count();
        if (!is_on_ || (seconds - drawn_at_ < 0.2 && done != all)) {
            return;
        }
        drawn_at_ = seconds;
        is_drawn_ = true;
        const auto share = all == 0 ? 100.0 : 100.0 * static_cast<double>(done) / double(all);
        fmt::print(
            stderr,
            "{}{:5.1f} % {:8.1f} MB/s{}",
            is_terminal_ ? "\r\x1b[K" : "",
            share,
            static_cast<double>(done) / 1e6 / std::max(seconds, 1e-6),
            is_terminal_ ? "" : "\n");
        std::fflush(stderr);
    }

private:
    bool is_terminal_;
    bool is_on_;
    bool is_drawn_ = false;
    double drawn_at_ = -1;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// What a binding asks for.
std::string text_of(const binding_definition& b) {
    std::string all = b.key.empty() ? "" : "key '" + printable(b.key) + "'";
    if (!b.arguments.headers.empty() || b.arguments.match != railmq::header_match::all) {
        all += fmt::format("{} of", to_string(b.arguments.match));
        for (const auto& h : b.arguments.headers) {
            all += " '" + printable(h.name) + "'";
            all += h.value ? "='" + printable(*h.value) + "'" : "";
        }
    }
    return b.arguments.weight == 1 ? all : fmt::format("{}weight {}", all, b.arguments.weight);
}

void list_exchanges(kept_state& state) {
    for (const auto& [number, x] : state.exchanges.all) {
        const exchange_definition& d = x.definition;
        fmt::print(
            "exchange {}: {}, format {}{}\n",
            printable(d.name),
            to_string(d.type),
            printable(d.format),
            d.options.alternate.empty() ? "" : ", alternate " + printable(d.options.alternate));
        x.bindings.for_each([&](const binding_definition& b) {
            std::string to = "what is gone";
            if (b.to.kind == railmq::core::destination_kind::queue) {
                if (const auto q = state.queues.find(b.to.number); q != state.queues.end()) {
                    to = "queue " + printable(q->second.definition.name);
                }
            } else if (const auto y = state.exchanges.all.find(b.to.number);
                       y != state.exchanges.all.end()) {
                to = "exchange " + printable(y->second.definition.name);
            }
            fmt::print("    to {} {}\n", to, text_of(b));
        });
    }
}

/// Queues that are filled from a log: how far they are, and what they have still to take.
void list_subscriptions(kept_state& state, const kept_log& log) {
    for (auto& [number, q] : state.queues) {
        if (!q.feed || q.feed->definition.log != log.definition.number) {
            continue;
        }
        std::string where;
        for (const auto& [partition, position] : q.feed->positions) {
            where += fmt::format(" {}:{}", partition, position);
        }
        fmt::print(
            "  subscription {}, next{}, {} to take, {} in its queue{}{}\n",
            printable(q.definition.name),
            where.empty() ? " not known" : where,
            count_untaken(state, q),
            q.messages.size(),
            q.feed->definition.where.empty() ? "" : ", with headers that it asks for",
            q.feed->definition.has_code ? ", with a filter of its program" : "");
    }
}

void list_logs(kept_state& state, railmq::time_point now) {
    if (state.logs.empty()) {
        return;
    }
    fmt::print(
        "\n{:24} {:>9} {:>20} {:>10} {:>12}  {}\n",
        "log",
        "partition",
        "offsets",
        "records",
        "bytes",
        "format");
    std::vector<const kept_log*> logs;
    for (const auto& [number, log] : state.logs) {
        logs.push_back(&log);
    }
    std::sort(logs.begin(), logs.end(), [](const kept_log* a, const kept_log* b) {
        return a->definition.name < b->definition.name;
    });
    for (const kept_log* log : logs) {
        for (std::uint32_t n = 0; n < log->definition.partitions; ++n) {
            const auto known = log->partitions.find(n);
            const kept_partition nothing{};
            const kept_partition& p = known == log->partitions.end() ? nothing : known->second;
            fmt::print(
                "{:24} {:>9} {:>20} {:>10} {:>12}  {}\n",
                printable(log->definition.name),
                n,
                fmt::format("{} to {}", p.extent.start, p.extent.end),
                p.rows.records(),
                p.rows.bytes(),
                printable(log->definition.format) +
                    (log->definition.interest.decides ? ", a topic" : ""));
        }
        list_subscriptions(state, *log);
        for (const auto& [name, g] : log->groups) {
            std::string where;
            for (const auto& [partition, offset] : g.offsets) {
                where += fmt::format(" {}:{}", partition, offset.offset);
            }
            fmt::print(
                "  group {}, {} rebalance(s), committed{}{}\n",
                printable(name),
                g.definition.generation,
                where.empty() ? " nothing" : where,
                g.definition.emptied == railmq::never
                    ? ""
                    : ", without members for " + length(now - g.definition.emptied));
        }
    }
}

int list(const options& o) {
    recovery_report report;
    const auto view = open_view(o.argument(0), report);
    const auto now = wall_now();
    fmt::print(
        "{}: {}\n",
        printable(o.argument(0)),
        report.was_closed ? "closed in good order"
                          : "not closed: its broker crashed, or was killed");
    if (report.cut_bytes != 0) {
        fmt::print(
            "  {} bytes behind byte {} of {} were never confirmed; opening drops them\n",
            report.cut_bytes,
            report.offset,
            report.file);
    }
    fmt::print(
        "{:24} {:>8} {:>8} {:>8} {:>8} {:>10} {:>10}  {}\n",
        "queue",
        "ready",
        "delayed",
        "held",
        "dying",
        "oldest",
        "next id",
        "format and options");
    std::vector<kept_queue*> queues;
    for (auto& [number, q] : view->state().queues) {
        queues.push_back(&q);
    }
    std::sort(queues.begin(), queues.end(), [](const kept_queue* a, const kept_queue* b) {
        return a->definition.name < b->definition.name;
    });
    for (kept_queue* q : queues) {
        const kept_counts c = count_messages(*q);
        fmt::print(
            "{:24} {:>8} {:>8} {:>8} {:>8} {:>10} {:>10}  {} {}\n",
            printable(q->definition.name),
            c.ready,
            c.delayed,
            c.held,
            c.dying,
            c.oldest == railmq::never ? "-" : length(now - c.oldest),
            q->definition.next_position,
            printable(q->definition.format),
            differences(q->definition.options));
    }
    list_exchanges(view->state());
    list_logs(view->state(), now);
    return 0;
}

int verify(const options& o) {
    auto directory = open_directory(o.argument(0), false);
    recovery_report who;
    error_code ec;
    const auto lock = directory.lock_to_read(who.owner, ec);
    journal_scanner scanner{directory};
    if (!ec) {
        scanner.open(ec);
    }
    if (!ec && scanner.is_empty()) {
        ec = errc::not_found;
    }
    if (ec) {
        refuse(o.argument(0), who, ec);
    }
    struct checker : scan_visitor {
        progress_line line;
        std::vector<journal_damage> unknown{};
        explicit checker(bool is_wanted)
            : line{is_wanted} {}
        void record(std::uint64_t segment, const record_view& r) {
            if (r.header.kind == record_kind::data &&
                !read_entries(r.payload, railmq::duration::zero(), entry_visitor{})) {
                unknown.push_back(
                    {damage_kind::unknown,
                     segment,
                     r.offset,
                     r.offset + record_size(r.header.length),
                     r.header.number,
                     r.header.number});
            }
        }
        void progress(std::uint64_t done, std::uint64_t all) { line(done, all); }
    };
    journal_scan_report report;
    std::vector<journal_damage> damage;
    {
        checker check{o.progress};
        scanner.scan(0, check, report, ec);
        damage = report.damage;
        damage.insert(damage.end(), check.unknown.begin(), check.unknown.end());
    }
    if (ec) {
        refuse(o.argument(0), who, ec);
    }
    fmt::print(
        "{}: {} files, {} records, {} bytes\n",
        printable(o.argument(0)),
        report.segments,
        report.records,
        report.bytes);
    if (report.cut_bytes != 0) {
        fmt::print(
            "a crash left {} bytes behind byte {} of {}, never confirmed: no damage\n",
            report.cut_bytes,
            report.cut_offset,
            segment_name(report.cut_segment));
    }
    for (const journal_damage& d : damage) {
        fmt::print("DAMAGED {}\n", to_string(d));
    }
    fmt::print("{}\n", damage.empty() ? "all is well" : "'railctl salvage' copies what is intact");
    return damage.empty() ? 0 : 1;
}

void print_deaths(const railmq::death_history& deaths) {
    for (const railmq::death& d : deaths.entries()) {
        fmt::print(
            "    died in {} as {}: {}, {} time(s), last {}{}\n",
            printable(d.queue),
            id_of(d.message_id),
            to_string(d.reason),
            d.count,
            moment(d.last_at),
            d.detail.empty() ? "" : ": \"" + printable(d.detail) + "\"");
    }
}

int dump(const options& o) {
    recovery_report report;
    const auto view = open_view(o.argument(0), report);
    kept_queue& q = queue_in(view->state(), o.argument(1));
    std::uint64_t left = o.limit;
    int result = 0;
    q.messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
        if (left-- == 0) {
            fmt::print("...\n");
            return false;
        }
        auto image = m.image(id);
        error_code ec;
        const auto payload = view->load(q, m, image, ec);
        fmt::print(
            "{} {} sent {} handed out {} failed {} stalled {} crashed {}, {} bytes\n",
            id_of(id),
            name_of(image.state),
            moment(image.enqueued),
            image.delivery_count,
            image.failures.failures,
            image.failures.stalls,
            image.failures.crashes,
            payload.size());
        if (image.due != railmq::never) {
            fmt::print("    due {}\n", moment(image.due));
        }
        if (image.expires_at != railmq::never) {
            fmt::print("    expires {}\n", moment(image.expires_at));
        }
        if (ec) {
            const record_location at = m.where.location();
            fmt::print(
                "    DAMAGED what it was stored with, at byte {} of {}\n",
                at.offset,
                segment_name(at.segment));
            result = 1;
            return true;
        }
        if (image.props != nullptr) {
            fmt::print("    {}\n", describe(*image.props));
        }
        if (image.deaths != nullptr) {
            print_deaths(*image.deaths);
        }
        if (o.payloads) {
            const std::string_view text{
                reinterpret_cast<const char*>(payload.data()), payload.size()};
            fmt::print("    \"{}\"\n", printable(text, o.full ? 4 * text.size() : 256));
        }
        return true;
    });
    return result;
}

int dead(const options& o) {
    recovery_report report;
    const auto view = open_view(o.argument(0), report);
    if (o.arguments.size() > 1) {
        (void)queue_in(view->state(), o.argument(1)); // it must be there
    }
    std::uint64_t left = o.limit;
    std::uint64_t found = 0;
    int result = 0;
    for (auto& entry : view->state().queues) {
        kept_queue& q = entry.second;
        if (o.arguments.size() > 1 && q.definition.name != o.argument(1)) {
            continue;
        }
        q.messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
            auto image = m.image(id);
            error_code ec;
            (void)view->load(q, m, image, ec);
            if (ec) {
                fmt::print("{} {} DAMAGED\n", printable(q.definition.name), id_of(id));
                result = 1;
            } else if (image.state == railmq::core::image_state::dying) {
                ++found;
                fmt::print(
                    "{} {} on its way: {}{}\n",
                    printable(q.definition.name),
                    id_of(id),
                    to_string(image.dying_of),
                    image.dying_detail.empty() ? ""
                                               : ": \"" + printable(image.dying_detail) + "\"");
            } else if (image.deaths != nullptr && !image.deaths->empty()) {
                ++found;
                fmt::print("{} {}\n", printable(q.definition.name), id_of(id));
                print_deaths(*image.deaths);
            }
            return found < left;
        });
    }
    fmt::print("{} dead letter(s)\n", found);
    return result;
}

journal_id draw_id() {
    std::random_device chance;
    const auto word = [&] { return (std::uint64_t{chance()} << 32) | chance(); };
    return {word(), word()};
}

int redrive_messages(const options& o) {
    recovery_report report;
    (void)open_view(o.argument(0), report); // so that nothing is made where there is nothing
    kept_state state;
    error_code ec;
    const auto now = wall_now();
    auto journal = open_broker_journal(
        open_directory(o.argument(0), true), {}, draw_id(), now, now, state, report, ec);
    if (ec) {
        refuse(o.argument(0), report, ec);
    }
    railmq::failure failed;
    const std::uint64_t moved = redrive(
        *journal,
        state,
        o.argument(1),
        o.argument(2),
        [&](std::uint64_t id) {
            return o.all || std::binary_search(o.ids.begin(), o.ids.end(), id);
        },
        now,
        failed);
    if (report.was_closed) {
        // One that a crash left stays so: the messages that were in hand then have to be counted.
        error_code closed;
        journal->port().close(closed);
        failed = failed || !closed ? failed : railmq::failure{closed, "closing"};
    }
    fmt::print("{} message(s) moved\n", moved);
    if (failed) {
        throw refusal{failed.what + ": " + failed.code.message()};
    }
    if (!o.all && moved != o.ids.size()) {
        throw refusal{fmt::format("{} has not all of these", printable(o.argument(1)))};
    }
    return 0;
}

std::string ids_of(const lost_messages& l) {
    return l.count == 1 ? "message " + id_of(l.first)
                        : "messages " + id_of(l.first) + " to " + id_of(l.first + l.count - 1);
}

int salvage_directory(const options& o) {
    auto from = open_directory(o.argument(0), false);
    error_code ec;
    auto to = posix_directory::open_or_create(o.argument(1), {}, ec);
    if (ec) {
        throw refusal{printable(o.argument(1)) + ": " + ec.message()};
    }
    salvage_report report;
    {
        progress_line line{o.progress};
        salvage(
            std::move(from),
            std::move(to),
            {.journal = {},
             .fresh = draw_id(),
             .progress = [&](std::uint64_t done, std::uint64_t all) { line(done, all); }},
            report,
            ec);
    }
    if (ec == errc::already_exists) {
        throw refusal{printable(o.argument(1)) + ": there is a journal in it already"};
    }
    if (ec == errc::journal_locked || ec == errc::not_found) {
        recovery_report who;
        who.owner = report.owner;
        refuse(o.argument(0), who, ec);
    }
    for (const journal_damage& d : report.scan.damage) {
        fmt::print("DAMAGED {}\n", to_string(d));
    }
    if (report.scan.unreadable_bytes != 0) {
        fmt::print("the device did not give {} bytes\n", report.scan.unreadable_bytes);
    }
    for (const lost_messages& l : report.lost) {
        fmt::print(
            "{} {} of queue {}\n",
            l.is_certain ? "LOST" : "perhaps lost:",
            ids_of(l),
            l.name.empty() ? fmt::format("number {}", l.queue) : printable(l.name));
    }
    for (const lost_records& l : report.lost_of_logs) {
        fmt::print(
            "{} offsets {} to {} of partition {} of log {}\n",
            l.is_certain ? "LOST" : "perhaps lost:",
            l.first,
            l.first + l.count - 1,
            l.partition,
            l.name.empty() ? fmt::format("number {}", l.log) : printable(l.name));
    }
    if (report.may_have_old) {
        fmt::print("messages that had left may be there again, where what said so is lost\n");
    }
    for (const salvaged_queue& q : report.queues) {
        fmt::print(
            "saved {} message(s) of {}{}\n",
            q.messages,
            printable(q.name),
            q.is_nameless ? ", whose name and format are lost" : "");
    }
    if (report.exchanges != 0) {
        fmt::print(
            "saved {} exchange(s) with {} binding(s); nothing says which ones are lost\n",
            report.exchanges,
            report.bindings);
    }
    for (const salvaged_log& l : report.logs) {
        fmt::print(
            "saved {} record(s) of log {}{}\n",
            l.records,
            printable(l.name),
            l.is_nameless ? ", whose name and format are lost" : "");
    }
    if (ec) {
        throw refusal{
            printable(o.argument(1)) + ": " + ec.message() +
            "; what is in it is not whole, and no broker opens it"};
    }
    fmt::print(
        "{} message(s){} in {}; {} is as it was\n",
        report.messages,
        report.logs.empty() ? "" : fmt::format(" and {} record(s) of logs", report.records),
        printable(o.argument(1)),
        printable(o.argument(0)));
    return report.scan.damage.empty() ? 0 : 1;
}

int run(const options& o) {
    if (o.command == "list") {
        return list(o);
    }
    if (o.command == "verify") {
        return verify(o);
    }
    if (o.command == "dump") {
        return dump(o);
    }
    if (o.command == "dead") {
        return dead(o);
    }
    return o.command == "redrive" ? redrive_messages(o) : salvage_directory(o);
}

} // namespace
} // namespace railctl

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (!words.empty() && (words[0] == "--help" || words[0] == "-h" || words[0] == "help")) {
        fmt::print("{}", railctl::usage);
        return 0;
    }
    try {
        return railctl::run(railctl::parse(words));
    } catch (const railctl::usage_error& e) {
        fmt::print(stderr, "railctl: {}\n\n{}", railmq::printable(e.what()), railctl::usage);
        return 2;
    } catch (const std::exception& e) {
        fmt::print(stderr, "railctl: {}\n", e.what());
        return 1;
    }
}
