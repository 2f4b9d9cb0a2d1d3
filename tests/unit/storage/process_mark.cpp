// SPDX-License-Identifier: BSL-1.0
#include <railmq/storage/process_mark.hpp>

#include "support/catch.hpp"

#include <utility>

#include <sys/wait.h>
#include <unistd.h>

using railmq::storage::process_mark;

namespace {

/// What a child answers, and a child of it.
[[nodiscard]] bool is_known_to_children(const process_mark& mark) {
    const ::pid_t pid = ::fork();
    if (pid == 0) {
        const ::pid_t next = ::fork();
        if (next == 0) {
            ::_exit(mark.is_this_process() ? 1 : 0);
        }
        int status = 0;
        ::waitpid(next, &status, 0);
        ::_exit(mark.is_this_process() || status != 0 ? 1 : 0);
    }
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return status != 0;
}

} // namespace

TEST_CASE("A process knows its own mark, and its children do not") {
    CHECK_FALSE(process_mark{}.is_this_process());
    process_mark mark = process_mark::here();
    CHECK(mark.is_this_process());
    CHECK_FALSE(is_known_to_children(mark));
    CHECK(mark.is_this_process());

    const process_mark moved{std::move(mark)};
    CHECK(moved.is_this_process());
    CHECK_FALSE(is_known_to_children(moved));
}
