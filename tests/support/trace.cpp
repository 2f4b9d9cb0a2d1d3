// SPDX-License-Identifier: BSL-1.0
#include "support/trace.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace railmq::test {

void start_traces() {
    if (const char* path = std::getenv("RAILMQ_TRACE_FILE")) {
        std::remove(path);
    }
}

void record_trace(std::string_view name, std::uint64_t hash) {
    const char* path = std::getenv("RAILMQ_TRACE_FILE");
    if (path == nullptr) {
        return;
    }
    if (std::FILE* file = std::fopen(path, "a")) {
        std::fprintf(file, "%s %016" PRIx64 "\n", std::string{name}.c_str(), hash);
        std::fclose(file);
    }
}

} // namespace railmq::test
