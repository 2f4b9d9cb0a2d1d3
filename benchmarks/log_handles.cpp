// SPDX-License-Identifier: BSL-1.0
//
// What does a log cost through its handles? Records of 64 bytes without keys are appended in turn
// to 1, 8 or 64 partitions, and each of 1 or 8 groups reads all of them, a hundred at a time or one
// by one, and acknowledges them, which is committed. By hand that is a vector for each partition
// and a position for each group and partition, under a mutex for each partition, and readers copy.
// Then: reading a long log again from the start; compaction; a member that joins a hundred others;
// and ten thousand partitions.
#include <railmq/railmq.hpp>

#include "support/fresh_process.hpp"
#include "support/harness.hpp"
#include "support/machine.hpp"
#include "support/payload.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t batch = 100;

void require(bool condition) {
    if (!condition) {
        throw std::runtime_error{"records were lost"};
    }
}

/// Locked vectors, as one writes them by hand.
class vectors {
public:
    vectors(std::size_t partitions, std::size_t groups)
        : all_(partitions)
        , positions_(groups, std::vector<std::size_t>(partitions)) {}

    void append(std::uint64_t n) {
        auto& p = all_[n % all_.size()];
        const std::lock_guard guard{p.mutex};
        p.records.emplace_back(n);
    }
    /// Some of what a group has not read; 0: there is nothing.
    std::size_t take(std::size_t group, std::size_t max, std::uint64_t& sum) {
        for (std::size_t tried = 0; tried != all_.size(); ++tried) {
            turn_ = turn_ + 1 == all_.size() ? 0 : turn_ + 1;
            auto& p = all_[turn_];
            {
                const std::lock_guard guard{p.mutex};
                std::size_t& at = positions_[group][turn_];
                const std::size_t n = std::min(max, p.records.size() - at);
                const auto from = p.records.begin() + static_cast<std::ptrdiff_t>(at);
                copies_.assign(from, from + static_cast<std::ptrdiff_t>(n));
                at += n;
            }
            for (const record& r : copies_) {
                sum += record_payload::read(r);
            }
            if (!copies_.empty()) {
                return copies_.size();
            }
        }
        return 0;
    }

private:
    struct partition {
        std::mutex mutex{};
        std::vector<record> records{};
    };
    std::vector<partition> all_;
    std::vector<std::vector<std::size_t>> positions_;
    std::vector<record> copies_{};
    std::size_t turn_ = 0;
};

class logs {
public:
    logs(std::size_t partitions, std::size_t groups)
        : log_{broker_.log<record>(
              "bench", {.partitions = static_cast<std::uint32_t>(partitions)})} {
        for (std::size_t g = 0; g < groups; ++g) {
            members_.push_back(log_.consumer({.group = "g" + std::to_string(g)}));
            (void)members_.back().try_receive(); // gets its partitions
        }
        producer_ = log_.producer();
    }
    void append(std::uint64_t n) { producer_.send(record{n}); }
    std::size_t take(std::size_t group, std::size_t max, std::uint64_t& sum) {
        railmq::error_code ec;
        if (max == 1) {
            auto d = members_[group].try_receive(ec);
            if (!d) {
                return 0;
            }
            sum += record_payload::read(d->value());
            d->ack();
            return 1;
        }
        const std::size_t n = members_[group].receive_batch(taken_, max, 0ns, ec);
        for (auto& d : taken_) {
            sum += record_payload::read(d.value());
            d.ack();
        }
        return n;
    }

private:
    railmq::broker broker_{};
    railmq::partitioned_log<record> log_;
    railmq::log_producer<record> producer_{};
    std::vector<railmq::log_consumer<record>> members_{};
    std::vector<railmq::log_delivery<record>> taken_{};
};

/// Appends bursts of so many records, and has each group read each burst.
template <class Store>
std::vector<double>
append_and_read(std::size_t partitions, std::size_t groups, std::size_t max, std::uint64_t n) {
    Store store{partitions, groups};
    constexpr std::uint64_t burst = 6'400;
    const std::uint64_t bursts = n / burst + 1;
    double appending = 0;
    double reading = 0;
    std::uint64_t next = 0;
    for (std::uint64_t i = 0; i <= bursts; ++i) {
        std::uint64_t expected = 0;
        const auto begin = clock_type::now();
        for (std::uint64_t k = 0; k < burst; ++k) {
            expected += next;
            store.append(next++);
        }
        const auto middle = clock_type::now();
        std::uint64_t sum = 0;
        for (std::size_t g = 0; g < groups; ++g) {
            while (store.take(g, max, sum) != 0) {
            }
        }
        const auto end = clock_type::now();
        require(sum == expected * groups);
        if (i != 0) { // the first one warms up
            appending += nanoseconds_between(begin, middle);
            reading += nanoseconds_between(middle, end);
        }
    }
    const auto records = static_cast<double>(bursts * burst);
    return {appending / records, reading / records / static_cast<double>(groups)};
}

table handed_on(std::size_t partitions, std::size_t groups, std::size_t max) {
    const std::string by_hand = "mutexes and vectors";
    table rows{
        .id = "L" + std::to_string(partitions) + "/" + std::to_string(groups),
        .title = std::to_string(partitions) + " partitions, " + std::to_string(groups) +
                 " groups, reading " + (max == 1 ? "one by one" : "batches of 100"),
        .columns = {"append ns", "read ns"},
        .references = {by_hand},
    };
    rows.add(by_hand, [=](std::uint64_t n) {
        return append_and_read<vectors>(partitions, groups, max, n);
    });
    rows.add("railmq", [=](std::uint64_t n) {
        return append_and_read<logs>(partitions, groups, max, n);
    });
    return rows;
}

/// All of a log once more, by who has just come.
table replay() {
    const std::string by_hand = "mutex and vector";
    table rows{
        .id = "L-replay",
        .title = "a log read again from its start, batches of 100",
        .references = {by_hand},
        .messages = 1'000'000,
    };
    const auto read_all = [](auto& store, std::uint64_t n) {
        std::uint64_t sum = 0;
        const auto begin = clock_type::now();
        std::uint64_t got = 0;
        while (const std::size_t some = store.take(0, batch, sum)) {
            got += some;
        }
        require(got == n);
        return nanoseconds_between(begin, clock_type::now()) / static_cast<double>(n);
    };
    rows.add(by_hand, [=](std::uint64_t n) {
        vectors store{1, 1};
        for (std::uint64_t k = 0; k < n; ++k) {
            store.append(k);
        }
        return read_all(store, n);
    });
    rows.add("railmq, a group", [=](std::uint64_t n) {
        logs store{1, 1};
        for (std::uint64_t k = 0; k < n; ++k) {
            store.append(k);
        }
        return read_all(store, n);
    });
    rows.add("railmq, a reader", [](std::uint64_t n) {
        railmq::broker broker;
        auto log = broker.log<record>("bench");
        auto producer = log.producer();
        for (std::uint64_t k = 0; k < n; ++k) {
            producer.send(record{k});
        }
        auto reader = log.consumer();
        std::vector<railmq::log_delivery<record>> taken;
        std::uint64_t sum = 0;
        const auto begin = clock_type::now();
        std::uint64_t got = 0;
        railmq::error_code ec;
        while (const std::size_t some = reader.receive_batch(taken, batch, 0ns, ec)) {
            for (const auto& d : taken) {
                sum += record_payload::read(d.value());
            }
            got += some;
        }
        require(got == n && sum == n * (n - 1) / 2);
        return nanoseconds_between(begin, clock_type::now()) / static_cast<double>(n);
    });
    return rows;
}

/// Of each record but the newest of its key nothing is to be left.
table compaction(std::uint64_t keys) {
    const std::string by_hand = "unordered_map, into a new vector";
    table rows{
        .id = "L-compact",
        .title = "compaction, " + std::to_string(keys) + " keys",
        .references = {by_hand},
        .messages = 500'000,
    };
    const auto key_of = [keys](std::uint64_t n) {
        return "customer-" + std::to_string(n * 7'919 % keys);
    };
    rows.add(by_hand, [=](std::uint64_t n) {
        struct keyed {
            std::string key;
            record value;
        };
        std::mutex mutex;
        std::vector<keyed> all;
        for (std::uint64_t k = 0; k < n; ++k) {
            all.push_back({key_of(k), record{k}});
        }
        const auto begin = clock_type::now();
        {
            const std::lock_guard guard{mutex};
            std::unordered_map<std::string_view, std::size_t> newest;
            for (std::size_t i = 0; i < all.size(); ++i) {
                newest[all[i].key] = i;
            }
            std::vector<keyed> left;
            for (std::size_t i = 0; i < all.size(); ++i) {
                if (newest[all[i].key] == i) {
                    left.push_back(all[i]);
                }
            }
            require(left.size() == std::min(keys, n));
            all = std::move(left);
        }
        return nanoseconds_between(begin, clock_type::now()) / static_cast<double>(n);
    });
    rows.add("railmq", [=](std::uint64_t n) {
        railmq::broker broker;
        auto log = broker.log<record>(
            "bench",
            {.cleanup = railmq::log_cleanup::compact,
             .segment_bytes = std::size_t{1} << 20,
             .min_dirty_ratio = 1});
        auto producer = log.producer();
        for (std::uint64_t k = 0; k < n; ++k) {
            producer.send(key_of(k), record{k});
        }
        const auto begin = clock_type::now();
        const auto removed = log.compact();
        const auto took = nanoseconds_between(begin, clock_type::now());
        require(removed > n / 2 || keys > n / 4);
        return took / static_cast<double>(n);
    });
    return rows;
}

/// 1,000 partitions among 100 members: one leaves and comes back, and all of them do what the
/// rebalance asks of them.
table rebalance(bool quick) {
    const std::string by_hand = "one list under a mutex, dealt out anew";
    constexpr std::uint32_t partitions = 1'000;
    constexpr std::size_t members = 100;
    table rows{
        .id = "L-rebalance",
        .title = "1,000 partitions, the last of 100 members leaves and joins",
        .columns = {"us"},
        .references = {by_hand},
        .messages = quick ? 3U : 20U,
    };
    rows.add(by_hand, [=](std::uint64_t n) {
        std::mutex mutex;
        std::vector<std::vector<std::uint32_t>> owned;
        const auto deal = [&](std::size_t among) {
            const std::lock_guard guard{mutex};
            owned.assign(among, {});
            for (std::uint32_t p = 0; p < partitions; ++p) {
                owned[p % among].push_back(p);
            }
        };
        const auto begin = clock_type::now();
        for (std::uint64_t i = 0; i < n; ++i) {
            deal(members - 1);
            deal(members);
        }
        return nanoseconds_between(begin, clock_type::now()) / 1e3 / static_cast<double>(n);
    });
    for (const auto how : {railmq::assignor::cooperative_sticky, railmq::assignor::range}) {
        rows.add("railmq, " + std::string{to_string(how)}, [=](std::uint64_t n) {
            railmq::broker broker;
            const auto log = broker.log<record>("bench", {.partitions = partitions});
            std::vector<railmq::log_consumer<record>> all;
            const auto add = [&] { all.push_back(log.consumer({.group = "g", .assignor = how})); };
            const auto settle = [&] {
                railmq::error_code ec;
                for (std::size_t have = 0; have != partitions;) {
                    have = 0;
                    for (auto& m : all) {
                        (void)m.try_receive(ec);
                        have += m.assignment().size();
                    }
                }
            };
            for (std::size_t m = 0; m < members; ++m) {
                add();
            }
            settle();
            const auto begin = clock_type::now();
            for (std::uint64_t i = 0; i < n; ++i) {
                all.pop_back();
                settle();
                add();
                settle();
                while (all.back().assignment().empty()) {
                    settle();
                }
            }
            return nanoseconds_between(begin, clock_type::now()) / 1e3 / static_cast<double>(n);
        });
    }
    return rows;
}

/// Many partitions of which few are busy, as most are in real life.
template <class Store>
double few_busy(std::size_t partitions, std::size_t max, std::uint64_t n) {
    Store store{partitions, 1};
    std::uint64_t sum = 0;
    for (std::uint64_t k = 0; k < partitions; ++k) {
        store.append(k);
    }
    while (store.take(0, batch, sum) != 0) {
    }
    const auto begin = clock_type::now();
    std::uint64_t next = partitions;
    for (std::uint64_t got = 0; got < n;) {
        for (int k = 0; k < 640; ++k) { // to 640 of them, in turn
            store.append(next++);
        }
        while (const std::size_t some = store.take(0, max, sum)) {
            got += some;
        }
    }
    require(sum == next * (next - 1) / 2);
    return nanoseconds_between(begin, clock_type::now()) / static_cast<double>(next - partitions);
}

table many_partitions(std::size_t max) {
    const std::string by_hand = "mutexes and vectors";
    table rows{
        .id = "L10k",
        .title = std::string{"10,000 partitions, appended to and read "} +
                 (max == 1 ? "one by one" : "in batches of 100"),
        .references = {by_hand},
        .messages = 64'000,
    };
    rows.add(by_hand, [=](std::uint64_t n) { return few_busy<vectors>(10'000, max, n); });
    rows.add("railmq", [=](std::uint64_t n) { return few_busy<logs>(10'000, max, n); });
    return rows;
}

template <class Store>
std::vector<double> opening(std::uint64_t partitions) {
    double took = 0;
    const double bytes = in_fresh_process([=] {
        const auto before = resident_bytes();
        const Store store{static_cast<std::size_t>(partitions), 1};
        return static_cast<double>(resident_bytes() - before) / static_cast<double>(partitions);
    });
    const auto begin = clock_type::now();
    { const Store store{static_cast<std::size_t>(partitions), 1}; }
    took = nanoseconds_between(begin, clock_type::now()) / static_cast<double>(partitions);
    return {took, bytes};
}

table open_partitions() {
    const std::string by_hand = "mutexes and vectors";
    table rows{
        .id = "L10k-open",
        .title = "10,000 partitions made, with a member that has them, and ended",
        .columns = {"ns each", "bytes each"},
        .references = {by_hand},
        .messages = 10'000,
        .timeless = true,
    };
    rows.add(by_hand, opening<vectors>);
    rows.add("railmq", opening<logs>);
    return rows;
}

} // namespace

int main(int argc, char** argv) {
    bench::harness all{"log_handles", bench::parse_arguments(argc, argv)};
    for (const std::size_t partitions : {std::size_t{1}, std::size_t{8}, std::size_t{64}}) {
        for (const std::size_t groups : {std::size_t{1}, std::size_t{8}}) {
            all.add(handed_on(partitions, groups, batch));
        }
    }
    all.add(handed_on(64, 1, 1));
    all.add(replay());
    all.add(compaction(1'000));
    all.add(compaction(100'000));
    all.add(rebalance(all.quick()));
    all.add(many_partitions(batch));
    all.add(many_partitions(1));
    all.add(open_partitions());
    return all.run();
}
