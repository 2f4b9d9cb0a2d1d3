// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>

namespace railmq::test {

/// FNV-1a of a trace: equal traces have equal hashes on every machine and compiler.
[[nodiscard]] constexpr std::uint64_t trace_hash(std::string_view bytes) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : bytes) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3ULL;
    }
    return hash;
}

/// Writes "<name> <hash>" to the file named by RAILMQ_TRACE_FILE. `tests/run` compares these
/// files between compilers: the trace of a simulation depends on its seed and on nothing else.
void record_trace(std::string_view name, std::uint64_t hash);

/// Empties that file. Called by `main`.
void start_traces();

} // namespace railmq::test
