// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/assignment.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <vector>

using railmq::core::contains;
using railmq::core::member_id;
using railmq::core::partition_list;
using railmq::core::serving_order;
using railmq::core::subscriber;
using railmq::core::subscribes;
using railmq::core::topic_id;
using railmq::core::topic_partition;

TEST_CASE("assignment: static members are served first, by name, then the others by id") {
    const std::vector<subscriber> members{
        {.id = member_id{3}},
        {.id = member_id{9}, .instance_id = "b"},
        {.id = member_id{1}},
        {.id = member_id{2}, .instance_id = "c"},
        {.id = member_id{8}, .instance_id = "a"}};
    CHECK(serving_order(members) == std::vector<std::size_t>{4, 1, 3, 2, 0});
    CHECK(serving_order({}).empty());
}

TEST_CASE("assignment: partitions are ordered by topic, then by number") {
    CHECK(topic_partition{topic_id{1}, 9} < topic_partition{topic_id{2}, 0});
    CHECK(topic_partition{topic_id{1}, 1} < topic_partition{topic_id{1}, 2});
    const partition_list list{{topic_id{1}, 0}, {topic_id{1}, 2}, {topic_id{3}, 0}};
    CHECK(contains(list, {topic_id{1}, 2}));
    CHECK_FALSE(contains(list, {topic_id{1}, 1}));
    CHECK_FALSE(contains({}, {topic_id{1}, 1}));
}

TEST_CASE("assignment: a member subscribes to its topics alone") {
    const std::vector<topic_id> topics{topic_id{1}, topic_id{4}};
    const subscriber s{.id = member_id{1}, .topics = topics};
    CHECK(subscribes(s, topic_id{4}));
    CHECK_FALSE(subscribes(s, topic_id{2}));
    CHECK_FALSE(subscribes(subscriber{}, topic_id{1}));
}
