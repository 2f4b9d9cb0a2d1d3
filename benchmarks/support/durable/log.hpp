// SPDX-License-Identifier: BSL-1.0
//
// What the durable contestants have in common: a fresh directory, how far a commit has to go, and
// the shape of a log.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>

namespace bench {

/// What a commit has to survive.
enum class safety {
    process, ///< The end of the process: the operating system has it.
    power,   ///< The loss of power: it is on the device.
};

/// - `Log(directory, safety)`: a new log in an empty directory.
/// - `append(payload)`: adds a record to the group.
/// - `commit()`: returns when the group is as safe as it has to be.
template <class Log>
concept record_log = requires(Log& log, std::span<const std::byte> payload) {
    log.append(payload);
    log.commit();
};

/// - `Reader(directory)`: for what a log has left there.
/// - `read_all()`: reads every record from the first to the last, and returns how many there are;
///   what it sums up of each keeps the compiler from leaving anything out.
template <class Reader>
concept record_reader = requires(Reader& reader) {
    { reader.read_all() } -> std::same_as<std::uint64_t>;
};

inline void require(bool condition, const char* what) {
    if (!condition) {
        throw std::runtime_error{what};
    }
}

[[nodiscard]] inline bool is_in_memory(const std::string& directory) {
    struct statfs info {};
    return statfs(directory.c_str(), &info) == 0 &&
           (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

/// Where files go: what was asked for, or the first usual place that is on a disk.
[[nodiscard]] inline std::string durable_place(const std::string& asked_for) {
    if (!asked_for.empty()) {
        return asked_for;
    }
    const std::string temporary = std::filesystem::temp_directory_path().string();
    for (const std::string& place : {temporary, std::string{"/var/tmp"}}) {
        if (!is_in_memory(place)) {
            return place;
        }
    }
    return ".";
}

/// A new directory, removed with all that is in it at the end.
class fresh_directory {
public:
    explicit fresh_directory(const std::string& place)
        : path_{place + "/railmq.XXXXXX"} {
        require(mkdtemp(path_.data()) != nullptr, "no directory can be made");
    }
    fresh_directory(const fresh_directory&) = delete;
    fresh_directory& operator=(const fresh_directory&) = delete;
    ~fresh_directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// A record of a hundred bytes that are not all the same.
[[nodiscard]] inline std::vector<std::byte> hundred_bytes() {
    std::vector<std::byte> result(100);
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = static_cast<std::byte>(i);
    }
    return result;
}

} // namespace bench
