// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/notice.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace notices = railmq::notices;

namespace {

template <std::size_t... I>
void check_every_kind(std::index_sequence<I...>) {
    const auto check = [](railmq::notice n) {
        std::visit(
            [](auto& e) {
                e.queue = "q";
                e.id = 7;
            },
            n);
        CHECK(railmq::event_of(n).queue == "q");
        CHECK(railmq::event_of(n).id == 7);
    };
    (check(std::variant_alternative_t<I, railmq::notice>{}), ...);
}

} // namespace

TEST_CASE("notice: every kind has the common part") {
    check_every_kind(std::make_index_sequence<std::variant_size_v<railmq::notice>>{});
}

TEST_CASE("notice: `on` passes on one kind") {
    std::vector<std::uint64_t> seen;
    const railmq::observer observer =
        railmq::on<notices::purged>([&](const notices::purged& p) { seen.push_back(p.count); });
    observer(notices::acked{});
    notices::purged p{};
    p.count = 4;
    observer(p);
    observer(notices::dropped{});
    CHECK(seen == std::vector<std::uint64_t>{4});
}

TEST_CASE("notice: only its kinds are kinds") {
    CHECK(railmq::notice_type<notices::acked>);
    CHECK(railmq::notice_type<notices::queue_closed>);
    CHECK_FALSE(railmq::notice_type<notices::event>);
    CHECK_FALSE(railmq::notice_type<int>);
}
