// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/storage/simulated_disk.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// What can happen to the files of a disk behind everybody's back.
namespace railmq::test {

inline void truncate(storage::simulated_disk& disk, const std::string& name, std::uint64_t size) {
    error_code ec;
    auto file = disk.directory().open(name, storage::open_mode::read_write, ec);
    file.resize(size, ec);
    file.sync_data(ec);
}
inline void remove(storage::simulated_disk& disk, const std::string& name) {
    error_code ec;
    disk.directory().remove(name, ec);
    disk.directory().sync(ec);
}
/// Random bytes, as from another file.
inline void overwrite(
    storage::simulated_disk& disk, const std::string& name, std::uint64_t begin, std::size_t n) {
    error_code ec;
    auto file = disk.directory().open(name, storage::open_mode::read_write, ec);
    std::vector<std::byte> bytes(n);
    std::uint64_t value = begin + 1;
    for (std::byte& b : bytes) {
        value = value * 6364136223846793005U + 1442695040888963407U;
        b = static_cast<std::byte>(value >> 56);
    }
    (void)storage::write_at(file, begin, bytes, ec);
    file.sync_data(ec);
}
/// All files by their names.
[[nodiscard]] inline std::map<std::string, std::vector<std::byte>>
all_files(storage::simulated_disk& disk) {
    std::map<std::string, std::vector<std::byte>> all;
    error_code ec;
    for (const std::string& name : disk.directory().names(ec)) {
        const auto bytes = disk.contents(name);
        all[name].assign(bytes.begin(), bytes.end());
    }
    return all;
}

} // namespace railmq::test
