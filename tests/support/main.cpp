// SPDX-License-Identifier: BSL-1.0
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"
#include "support/seed.hpp"
#include "support/trace.hpp"

#include <cstdio>

int main(int argc, char** argv) {
    railmq::test::share_seed();
    railmq::test::start_traces();
    const int failures = Catch::Session().run(argc, argv);
    if (failures != 0) {
        std::fprintf(
            stderr,
            "\nRepeat with RAILMQ_SEED=%llu in the environment.\n",
            static_cast<unsigned long long>(railmq::test::seed()));
    }
    return failures;
}
