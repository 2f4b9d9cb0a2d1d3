// SPDX-License-Identifier: BSL-1.0
#include <railmq/core/partition_owners.hpp>

#include "support/catch.hpp"

#include <vector>

using railmq::core::member_id;
using railmq::core::nobody;
using railmq::core::partition_owners;
using railmq::core::topic_id;
using railmq::core::topic_size;

TEST_CASE("partition_owners: topics are sorted, whichever comes first") {
    partition_owners owners;
    CHECK(owners.sizes().empty());
    CHECK(owners.set_partitions(topic_id{5}, 2));
    CHECK(owners.set_partitions(topic_id{1}, 3));
    CHECK_FALSE(owners.set_partitions(topic_id{1}, 3));
    CHECK_FALSE(owners.set_partitions(topic_id{9}, 0));
    const std::vector<topic_size> sizes(owners.sizes().begin(), owners.sizes().end());
    CHECK(sizes == std::vector<topic_size>{{topic_id{1}, 3}, {topic_id{5}, 2}});
}

TEST_CASE("partition_owners: a partition has the owner it was given to") {
    partition_owners owners;
    owners.set_partitions(topic_id{5}, 2);
    owners.set_partitions(topic_id{1}, 3);
    owners.give({{topic_id{1}, 2}, {topic_id{5}, 0}}, member_id{7});
    CHECK(owners.owner_of({topic_id{1}, 2}) == member_id{7});
    CHECK(owners.owner_of({topic_id{5}, 0}) == member_id{7});
    CHECK(owners.owner_of({topic_id{5}, 1}) == nobody);
    CHECK(owners.owner_of({topic_id{5}, 2}) == nobody);
    CHECK(owners.owner_of({topic_id{3}, 0}) == nobody);
    owners.set_partitions(topic_id{3}, 1); // in between
    CHECK(owners.owner_of({topic_id{5}, 0}) == member_id{7});
    owners.give({{topic_id{5}, 0}}, nobody);
    CHECK(owners.owner_of({topic_id{5}, 0}) == nobody);
}

TEST_CASE("partition_owners: what is gone keeps its owner until it is given to nobody") {
    partition_owners owners;
    owners.set_partitions(topic_id{1}, 2);
    owners.give({{topic_id{1}, 1}}, member_id{7});
    CHECK(owners.set_partitions(topic_id{1}, 0));
    CHECK(owners.owner_of({topic_id{1}, 1}) == member_id{7});
    owners.give({{topic_id{1}, 1}}, nobody);
    CHECK(owners.set_partitions(topic_id{1}, 4)); // it exists again
    CHECK(owners.owner_of({topic_id{1}, 1}) == nobody);
}
