// SPDX-License-Identifier: BSL-1.0
#include "support/seed.hpp"

#include <cstdlib>
#include <string>

namespace railmq::test {

std::uint64_t seed() {
    static const std::uint64_t value = [] {
        const char* text = std::getenv("RAILMQ_SEED");
        return text != nullptr ? std::strtoull(text, nullptr, 0) : 20030817ULL;
    }();
    return value;
}

std::uint64_t seed(std::uint64_t n) {
    // One step of splitmix64: neighbours differ in about half of their bits.
    std::uint64_t z = seed() + (n + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

void share_seed() {
    const std::string parameters = "seed=" + std::to_string(seed());
    ::setenv("RC_PARAMS", parameters.c_str(), 0);
}

} // namespace railmq::test
