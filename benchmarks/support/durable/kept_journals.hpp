// SPDX-License-Identifier: BSL-1.0
//
// Journals of brokers that have gone, to be opened again.
#pragma once

#include "../machine.hpp"
#include "work_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace bench {

[[nodiscard]] inline std::uint64_t bytes_in(const std::string& directory) {
    std::uint64_t total = 0;
    for (const auto& file : std::filesystem::directory_iterator{directory}) {
        total += file.file_size();
    }
    return total;
}

/// Reads all files of a directory once, 256 KiB a call; with a checksum of it all if wanted.
inline void read_files(const std::string& directory, bool with_checksum) {
    std::vector<std::byte> room(std::size_t{256} << 10);
    for (const auto& entry : std::filesystem::directory_iterator{directory}) {
        const railmq::storage::detail::posix_descriptor file{
            open(entry.path().c_str(), O_RDONLY | O_CLOEXEC)};
        for (;;) {
            const ssize_t count = read(file.get(), room.data(), room.size());
            require(count >= 0, "read");
            if (count == 0) {
                break;
            }
            keep(room.front());
            if (with_checksum) {
                const std::span part{room.data(), static_cast<std::size_t>(count)};
                keep(railmq::storage::crc32c{part}.value());
            }
        }
    }
}

/// What a broker leaves that has handed through so many bytes of messages and has `live` of them
/// left, in one segment, so that all of it has to be read.
class kept_journal {
public:
    static constexpr std::size_t live = 100;

    enum class end {
        closed,
        synced,   ///< The process ends after a sync, and one message more.
        unsynced, ///< It ends, and nothing has been synced but what the journal itself does.
    };

    kept_journal(const std::string& place, std::uint64_t bytes, std::size_t group, end how)
        : original_{place}
        , copy_{place}
        , segment_bytes_{2 * bytes}
        , how_{how} {
        kept_queue queue{original_.path(), railmq::durability::written, false, segment_bytes_};
        const auto payload = hundred_bytes();
        const std::string directory = original_.path() + "/broker";
        for (std::uint64_t cycles = 0; cycles % 1'000 != 0 || bytes_in(directory) < bytes;
             ++cycles) {
            queue.enqueue(payload, group);
            queue.lease(group);
            queue.acknowledge();
        }
        queue.enqueue(payload, live - 1);
        if (how != end::unsynced) {
            queue.broker().sync();
        }
        queue.enqueue(payload, 1); // whose record says what is on the device
        if (how != end::closed) {
            // With no call under way, the files are what a process that ends here leaves.
            copy(directory, copy_.path() + "/left");
        }
    }

    /// Where its files are, as they were left.
    [[nodiscard]] std::string path() const {
        return how_ == end::closed ? original_.path() + "/broker" : copy_.path() + "/left";
    }

    /// Milliseconds until a broker and its queue are open.
    [[nodiscard]] double open() {
        std::string directory = path();
        if (how_ != end::closed) { // opening it changes it
            directory = original_.path() + "/broker";
            std::filesystem::remove_all(directory);
            copy(path(), directory);
        }
        ::sync();
        const auto begin = steady::now();
        kept_queue queue{original_.path(), {}, false, segment_bytes_};
        const double elapsed = nanoseconds_between(begin, steady::now());
        queue.lease(live);
        require(queue.broker().recovery().was_closed == (how_ == end::closed), "another end");
        queue.give_back();
        return elapsed * 1e-6;
    }

private:
    static void copy(const std::string& from, const std::string& to) {
        std::filesystem::copy(from, to);
        std::filesystem::permissions(to, std::filesystem::perms::owner_all);
        ::sync();
    }

    fresh_directory original_;
    fresh_directory copy_;
    std::uint64_t segment_bytes_;
    end how_;
};

} // namespace bench
