// SPDX-License-Identifier: BSL-1.0
#include <railmq/model/errc.hpp>

#include "support/catch.hpp"

#include <boost/system/error_code.hpp>

#include <cstddef>
#include <set>
#include <string>
#include <type_traits>

using railmq::errc;
using railmq::error_code;

namespace {

constexpr int first_value = static_cast<int>(errc::closed);
constexpr int last_value = static_cast<int>(errc::in_use);

} // namespace

static_assert(boost::system::is_error_code_enum<errc>::value);
static_assert(std::is_convertible_v<errc, error_code>);

TEST_CASE("errc: every value has a message of its own") {
    std::set<std::string> messages;
    for (int value = first_value; value <= last_value; ++value) {
        const error_code code = static_cast<errc>(value);
        CHECK(code.failed());
        CHECK(code.value() == value);
        CHECK(code.message() != "unknown railmq error");
        messages.insert(code.message());
    }
    CHECK(messages.size() == static_cast<std::size_t>(last_value - first_value + 1));
    CHECK(error_code{errc::stale_delivery}.message() == "delivery is settled or stale");
}

TEST_CASE("errc: no value means success") {
    STATIC_REQUIRE(first_value == 1);
    CHECK(railmq::category().message(0) == "unknown railmq error");
    CHECK(railmq::category().message(last_value + 1) == "unknown railmq error");
    CHECK_FALSE(error_code{}.failed());
}

TEST_CASE("errc: compares as an error code, and only with its own category") {
    const error_code code = errc::queue_full;
    CHECK(code == errc::queue_full);
    CHECK(code != errc::closed);
    CHECK(code.category() == railmq::category());
    CHECK(std::string{code.category().name()} == "railmq");
    const error_code foreign{static_cast<int>(errc::queue_full), boost::system::system_category()};
    CHECK_FALSE(foreign == errc::queue_full);
}

TEST_CASE("errc: thrown with what happened") {
    const railmq::system_error error{errc::not_found, "queue \"orders\""};
    CHECK(error.code() == errc::not_found);
    CHECK(std::string{error.what()}.find("orders") != std::string::npos);
    CHECK(std::string{error.what()}.find("not found") != std::string::npos);
}

TEST_CASE("failure: true when there is one") {
    CHECK_FALSE(railmq::failure{});
    CHECK(railmq::failure{errc::invalid_argument, "names have a letter"});
    STATIC_REQUIRE_FALSE(std::is_convertible_v<railmq::failure, bool>);
}
