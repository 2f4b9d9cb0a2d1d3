// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/kept_log_options.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::duration;

namespace {

template <class T, class Get>
void goes_there_and_back(const T& value, Get&& get) {
    std::vector<std::byte> bytes;
    wire_writer w{bytes, 5s};
    wire::put(w, value);
    wire_reader r{bytes, 5s};
    CHECK(get(r) == value);
    CHECK(r.is_at_end());
    CHECK_FALSE(r.has_failed());
    for (std::size_t n = 0; n < bytes.size(); ++n) { // every beginning of it is none
        wire_reader part{std::span{bytes}.first(n)};
        (void)get(part);
        CHECK(part.has_failed());
    }
}

} // namespace

TEST_CASE("kept_log_options: a log's definition goes there and back") {
    goes_there_and_back(log_definition{1, "l", "bytes", 1, {}}, wire::get_log_definition);
    log_definition d{300, "a.long-name_1", "memory/4", 70, {}};
    d.options = {
        .partitions = 7,
        .retention = {.max_age = 3s, .max_bytes = 4, .max_records = 5},
        .cleanup = railmq::log_cleanup::compact_and_remove,
        .timestamps = railmq::log_timestamps::append,
        .segment_bytes = 6,
        .segment_records = 7,
        .segment_age = 8s,
        .tombstone_retention = 9s,
        .min_compaction_lag = 10s,
        .compaction_keys = 11,
        .min_dirty_ratio = 0.25,
        .producer_expiry = 12s};
    goes_there_and_back(d, wire::get_log_definition);
}

TEST_CASE("kept_log_options: a group's definition goes there and back") {
    goes_there_and_back(group_definition{"g", {}, 0, railmq::never}, wire::get_group_definition);
    group_definition g{"g", {}, 77, railmq::time_point{9s}};
    g.options = {railmq::assignor::range, 1s, 2s, 3s, 4};
    goes_there_and_back(g, wire::get_group_definition);
}

TEST_CASE("kept_log_options: what nobody could have made is none") {
    const auto is_refused = [](const log_definition& d) {
        std::vector<std::byte> bytes;
        wire_writer w{bytes};
        wire::put(w, d);
        wire_reader r{bytes};
        (void)wire::get_log_definition(r);
        return r.has_failed();
    };
    log_definition good{1, "l", "bytes", 2, {.partitions = 2}};
    CHECK_FALSE(is_refused(good));
    auto bad = good;
    bad.partitions = 1; // fewer than it was made with
    CHECK(is_refused(bad));
    bad = good;
    bad.name = "../l";
    CHECK(is_refused(bad));
    bad = good;
    bad.options.partitions = 0;
    CHECK(is_refused(bad));
    bad = good;
    bad.options.segment_age = duration::zero();
    CHECK(is_refused(bad));
    bad = good;
    bad.partitions = 65537;
    CHECK(is_refused(bad));
}
