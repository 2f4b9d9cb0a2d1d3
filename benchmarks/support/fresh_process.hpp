// SPDX-License-Identifier: BSL-1.0
//
// Runs a function in a child process of its own and brings back the number it returns.
#pragma once

#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

/// The caller must have no other thread running. Memory that the parent has freed is given back
/// to the system first, so that the child does not find it ready for use.
[[nodiscard]] inline double in_fresh_process(const std::function<double()>& measure) {
    int ends[2];
    if (pipe(ends) != 0) {
        throw std::runtime_error{"no pipe"};
    }
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        throw std::runtime_error{"no child process"};
    }
    if (child == 0) {
        close(ends[0]);
        malloc_trim(0);
        int status = 1;
        try {
            const double value = measure();
            status = write(ends[1], &value, sizeof value) == sizeof value ? 0 : 1;
        } catch (const std::exception& problem) {
            std::fprintf(stderr, "%s\n", problem.what());
        }
        _exit(status);
    }
    close(ends[1]);
    double value = 0;
    const bool complete = read(ends[0], &value, sizeof value) == sizeof value;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!complete || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error{"the child process failed"};
    }
    return value;
}

} // namespace bench
