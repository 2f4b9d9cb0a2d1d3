// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/partition.hpp>
#include <railmq/core/single_threaded.hpp>
#include <railmq/model/log_options.hpp>

#include "support/catch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::test {

/// A record as a test wants to see it.
struct seen_record {
    std::uint64_t offset = 0;
    std::string key{};
    std::optional<std::string> value{}; ///< None: a tombstone.
    time_point timestamp{};
};

/// A partition of strings, and the time.
struct log_fixture {
    using sync = core::single_threaded;

    explicit log_fixture(
        const log_options& o = {}, std::uint64_t first = 0, std::size_t limit = unlimited)
        : budget{limit}
        , log{core::payload_ops_of<std::string>::value, budget, o, first} {}

    /// What is appended next: keeps the value until the append is over.
    struct raw_value {
        alignas(std::string) std::array<std::byte, sizeof(std::string)> bytes;
    };

    core::append_result append(
        std::optional<std::string_view> key,
        std::optional<std::string> value,
        std::optional<time_point> at = {},
        const core::append_terms& terms = {}) {
        return append_run({{key, std::move(value), at}}, terms);
    }
    struct one_input {
        std::optional<std::string_view> key;
        std::optional<std::string> value;
        std::optional<time_point> at{};
    };
    core::append_result
    append_run(std::vector<one_input> run, const core::append_terms& terms = {}) {
        std::vector<raw_value> raw(run.size());
        std::vector<core::log_input> in(run.size());
        for (std::size_t i = 0; i < run.size(); ++i) {
            in[i].key = run[i].key;
            in[i].timestamp = run[i].at;
            if (run[i].value) {
                in[i].payload =
                    ::new (static_cast<void*>(raw[i].bytes.data())) std::string{*run[i].value};
            }
        }
        const auto result = log.append(in, now, terms);
        for (const core::log_input& left : in) {
            if (left.payload != nullptr) { // refused: still ours
                std::destroy_at(static_cast<std::string*>(left.payload));
            }
        }
        return result;
    }
    /// `n` records of `bytes` bytes each, all told; no key.
    void fill(int n, std::size_t bytes = 100) {
        for (int i = 0; i < n; ++i) {
            REQUIRE(
                append(std::nullopt, std::string(bytes - log_record_overhead, 'v')).failed ==
                errc{});
        }
    }

    std::vector<seen_record>
    read(std::uint64_t from, std::size_t records = unlimited, std::size_t bytes = unlimited) {
        std::vector<seen_record> all;
        core::log_cursor<sync> c;
        failed = log.seek(c, from);
        while (failed == errc{}) {
            const auto status = c.read(records, bytes, [&](const core::log_entry& e) {
                seen_record r{e.offset, std::string{e.key}, {}, e.timestamp};
                if (!e.is_tombstone) {
                    r.value = *static_cast<const std::string*>(e.payload);
                }
                all.push_back(std::move(r));
            });
            if (status == core::read_status::elsewhere) {
                failed = log.enter(c);
            } else if (
                status != core::read_status::ok || records != unlimited || bytes != unlimited) {
                break;
            }
        }
        return all;
    }
    std::vector<std::uint64_t> offsets() {
        std::vector<std::uint64_t> all;
        for (const auto& r : read(log.start_offset())) {
            all.push_back(r.offset);
        }
        return all;
    }
    [[nodiscard]] bool balanced() const {
        std::uint64_t sum = log.records();
        std::uint64_t bytes = log.bytes();
        for (std::size_t i = 0; i < core::log_removal_count; ++i) {
            sum += log.removed(static_cast<core::log_removal>(i)).records;
            bytes += log.removed(static_cast<core::log_removal>(i)).bytes;
        }
        return sum == log.appended().records && bytes == log.appended().bytes;
    }

    core::memory_budget<sync> budget;
    core::partition<sync> log;
    time_point now{};
    errc failed{};
};

[[nodiscard]] inline time_point seconds_in(std::int64_t n) {
    return time_point{std::chrono::seconds{n}};
}

} // namespace railmq::test
