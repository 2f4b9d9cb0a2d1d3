// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/log_options.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using railmq::errc;
using railmq::log_cleanup;
using railmq::log_options;

TEST_CASE("log_options: the defaults are in order") {
    const log_options o;
    CHECK_FALSE(validate(o));
    CHECK(o.partitions == 1);
    CHECK(o.cleanup == log_cleanup::remove);
    CHECK(o.tombstone_retention == 24h);
    CHECK(o.min_compaction_lag == 0s);
    CHECK_FALSE(o.retention.max_age.has_value());
    CHECK(difference(o, log_options{}).empty());
}

TEST_CASE("log_options: out of range or contradictory, each with a sentence of its own") {
    const double not_a_number = std::numeric_limits<double>::quiet_NaN();
    const std::vector<std::pair<log_options, std::string>> bad{
        {{.partitions = 0}, "partitions"},
        {{.partitions = 65'537}, "65537"},
        {{.retention = {.max_age = -1ns}}, "retention.max_age"},
        {{.retention = {.max_bytes = 0}}, "retention.max_bytes"},
        {{.retention = {.max_records = 0}}, "retention.max_records"},
        {{.retention = {.max_age = 1h}, .cleanup = log_cleanup::compact}, "compact_and_remove"},
        {{.segment_bytes = 0}, "segment_bytes"},
        {{.segment_records = 0}, "segment_records"},
        {{.segment_age = 0s}, "segment_age"},
        {{.tombstone_retention = -1s}, "tombstone_retention"},
        {{.min_compaction_lag = -1s}, "-1000000000 ns"},
        {{.compaction_keys = 0}, "compaction_keys"},
        {{.min_dirty_ratio = 1.5}, "min_dirty_ratio"},
        {{.min_dirty_ratio = not_a_number}, "min_dirty_ratio"},
        {{.producer_expiry = 0s}, "producer_expiry"},
    };
    for (const auto& [options, word] : bad) {
        const railmq::failure f = validate(options);
        CAPTURE(word, f.what);
        CHECK(f.code == errc::invalid_argument);
        CHECK(f.what.find(word) != std::string::npos);
    }
    CHECK_FALSE(railmq::validate(log_options{.retention = {.max_age = 0s}}));
    CHECK_FALSE(railmq::validate(
        log_options{.retention = {.max_age = 1h}, .cleanup = log_cleanup::compact_and_remove}));
}

TEST_CASE("log_options: a difference is named") {
    const std::vector<std::pair<log_options, std::string_view>> others{
        {{.partitions = 2}, "partitions"},
        {{.retention = {.max_age = 1h}}, "retention.max_age"},
        {{.retention = {.max_bytes = 1}}, "retention.max_bytes"},
        {{.retention = {.max_records = 1}}, "retention.max_records"},
        {{.cleanup = log_cleanup::compact}, "cleanup"},
        {{.timestamps = railmq::log_timestamps::append}, "timestamps"},
        {{.segment_bytes = 1}, "segment_bytes"},
        {{.segment_records = 1}, "segment_records"},
        {{.segment_age = 1h}, "segment_age"},
        {{.tombstone_retention = 1h}, "tombstone_retention"},
        {{.min_compaction_lag = 1h}, "min_compaction_lag"},
        {{.compaction_keys = 1}, "compaction_keys"},
        {{.min_dirty_ratio = 0.25}, "min_dirty_ratio"},
        {{.producer_expiry = 1h}, "producer_expiry"},
    };
    for (const auto& [other, name] : others) {
        CHECK(difference(log_options{}, other) == name);
        CHECK_FALSE(other == log_options{});
    }
}
