// SPDX-License-Identifier: BSL-1.0
//
// Stands in for libFuzzer where the compiler has none: every file of the corpus, then `-runs=N`
// inputs made by changing those files, from a fixed `-seed=N`.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using input = std::vector<std::uint8_t>;

input mutated(const input& from, std::mt19937_64& random) {
    input out = from;
    const auto steps = 1 + random() % 8;
    for (std::uint64_t i = 0; i < steps; ++i) {
        const auto byte = static_cast<std::uint8_t>(random());
        const std::size_t at = out.empty() ? 0 : random() % out.size();
        const auto where = out.begin() + static_cast<std::ptrdiff_t>(at);
        switch (out.empty() ? 0 : random() % 5) {
        case 0: out.insert(where, byte); break;
        case 1: out[at] = byte; break;
        case 2: out[at] ^= static_cast<std::uint8_t>(1U << (byte % 8U)); break;
        case 3: out.erase(where); break;
        default: out.resize(at); break;
        }
    }
    return out;
}

} // namespace

int main(int argc, char** argv) {
    std::uint64_t runs = 0;
    std::uint64_t seed = 1;
    std::vector<std::filesystem::path> files;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument.starts_with("-runs=")) {
            runs = std::strtoull(argv[i] + 6, nullptr, 10);
        } else if (argument.starts_with("-seed=")) {
            seed = std::strtoull(argv[i] + 6, nullptr, 10);
        } else if (std::filesystem::is_directory(argument)) {
            for (const auto& entry : std::filesystem::recursive_directory_iterator(argument)) {
                if (entry.is_regular_file()) {
                    files.push_back(entry.path());
                }
            }
        } else {
            files.emplace_back(argument);
        }
    }
    std::sort(files.begin(), files.end());

    std::vector<input> corpus{{}};
    for (const auto& path : files) {
        std::ifstream stream{path, std::ios::binary};
        corpus.emplace_back(
            std::istreambuf_iterator<char>{stream}, std::istreambuf_iterator<char>{});
    }
    for (const input& bytes : corpus) {
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }

    std::mt19937_64 random{seed};
    for (std::uint64_t i = 0; i < runs; ++i) {
        input bytes = mutated(corpus[random() % corpus.size()], random);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        if (bytes.size() < 4096 && random() % 64 == 0) {
            corpus.push_back(std::move(bytes)); // so that changes pile up
        }
    }
    std::printf(
        "%zu files, %llu changed inputs\n", files.size(), static_cast<unsigned long long>(runs));
}
