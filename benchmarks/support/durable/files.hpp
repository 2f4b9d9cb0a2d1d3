// SPDX-License-Identifier: BSL-1.0
//
// The journal, and what a program would write by hand in its place: frames of length, checksum and
// payload in one file.
#pragma once

#include <railmq/storage/journal.hpp>
#include <railmq/storage/posix_files.hpp>
#include <railmq/storage/shared_journal.hpp>
#include <railmq/storage/wire.hpp>

#include "../payload.hpp"
#include "log.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace bench {

namespace peer {

inline const std::string raw = "write + fdatasync by hand";
inline const std::string journal = "RailMQ journal";
inline const std::string journal_batches = "RailMQ journal, 100 a record";
inline const std::string leader = "leader + condvar by hand";

} // namespace peer

/// Frames in memory, then written by one call, and synced by another.
class raw_file {
public:
    struct frame {
        std::uint32_t size = 0;
        std::uint32_t crc = 0;
    };

    explicit raw_file(const std::string& directory)
        : descriptor_{open(path_in(directory).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)} {
        require(descriptor_ >= 0, "open");
    }
    raw_file(const raw_file&) = delete;
    raw_file& operator=(const raw_file&) = delete;
    ~raw_file() { close(descriptor_); }

    [[nodiscard]] static std::string path_in(const std::string& directory) {
        return directory + "/log";
    }
    static void encode(std::vector<std::byte>& to, std::span<const std::byte> payload) {
        const frame head{
            static_cast<std::uint32_t>(payload.size()), railmq::storage::crc32c{payload}.value()};
        const auto bytes = std::as_bytes(std::span{&head, 1});
        to.insert(to.end(), bytes.begin(), bytes.end());
        to.insert(to.end(), payload.begin(), payload.end());
    }
    void write(std::span<const std::byte> bytes) {
        require(
            pwrite(descriptor_, bytes.data(), bytes.size(), end_) ==
                static_cast<ssize_t>(bytes.size()),
            "pwrite");
        end_ += static_cast<off_t>(bytes.size());
    }
    void sync() { require(fdatasync(descriptor_) == 0, "fdatasync"); }

private:
    int descriptor_;
    off_t end_ = 0;
};

class raw_log {
public:
    raw_log(const std::string& directory, safety safe)
        : file_{directory}
        , safe_{safe} {}

    void append(std::span<const std::byte> payload) { raw_file::encode(group_, payload); }
    void commit() {
        file_.write(group_);
        group_.clear();
        if (safe_ == safety::power) {
            file_.sync();
        }
    }

private:
    raw_file file_;
    safety safe_;
    std::vector<std::byte> group_;
};

/// Reads it again, 256 KiB a call, which is as fast as it gets.
class raw_reader {
public:
    explicit raw_reader(const std::string& directory)
        : path_{raw_file::path_in(directory)} {}

    std::uint64_t read_all() {
        const railmq::storage::detail::posix_descriptor file{
            open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
        std::uint64_t records = 0;
        std::size_t kept = 0; // the beginning of a frame that a call has cut
        for (;;) {
            const ssize_t more = read(file.get(), room_.data() + kept, room_.size() - kept);
            require(more >= 0, "read");
            if (more == 0) {
                require(kept == 0, "the file ends within a frame");
                return records;
            }
            const std::span all{room_.data(), kept + static_cast<std::size_t>(more)};
            const std::size_t done = take_frames(all, records);
            kept = all.size() - done;
            std::memmove(room_.data(), room_.data() + done, kept);
        }
    }

private:
    static std::size_t take_frames(std::span<const std::byte> bytes, std::uint64_t& records) {
        std::size_t at = 0;
        raw_file::frame head;
        while (bytes.size() - at >= sizeof head) {
            std::memcpy(&head, bytes.data() + at, sizeof head);
            if (bytes.size() - at - sizeof head < head.size) {
                break;
            }
            const auto payload = bytes.subspan(at + sizeof head, head.size);
            require(railmq::storage::crc32c{payload}.value() == head.crc, "a damaged frame");
            keep(payload.front());
            at += sizeof head + head.size;
            ++records;
        }
        return at;
    }

    std::string path_;
    std::vector<std::byte> room_ = std::vector<std::byte>(std::size_t{256} << 10);
};

template <class Directory, class Visit>
[[nodiscard]] railmq::storage::journal<Directory> open_journal(Directory where, Visit visit) {
    railmq::storage::recovery_report report;
    railmq::error_code ec;
    auto opened = railmq::storage::journal<Directory>::open(
        std::move(where), {}, {1, 2}, std::move(visit), report, ec);
    require(opened.has_value(), "the journal can not be opened");
    return std::move(*opened);
}
[[nodiscard]] inline railmq::storage::posix_directory
journal_directory(const std::string& directory) {
    railmq::error_code ec;
    auto result = railmq::storage::posix_directory::open_or_create(directory + "/journal", {}, ec);
    require(!ec, "no directory for the journal");
    return result;
}

class journal_log {
public:
    journal_log(const std::string& directory, safety safe)
        : journal_{open_journal(journal_directory(directory), [](auto&&...) {})}
        , safe_{safe} {}
    ~journal_log() {
        railmq::error_code ignored;
        journal_.close(ignored);
    }
    journal_log(const journal_log&) = delete;
    journal_log& operator=(const journal_log&) = delete;

    void append(std::span<const std::byte> payload) {
        railmq::error_code ec;
        (void)journal_.append(payload, ec);
        require(!ec, "append");
    }
    void commit() {
        railmq::error_code ec;
        if (safe_ == safety::power) {
            journal_.sync(ec);
        } else {
            journal_.write(ec);
        }
        require(!ec, "commit");
    }

private:
    railmq::storage::journal<railmq::storage::posix_directory> journal_;
    safety safe_;
};

/// As a producer's batches are kept: up to a hundred messages in one record, each behind its size.
class batch_journal_log {
public:
    static constexpr std::size_t most = 100;

    batch_journal_log(const std::string& directory, safety safe)
        : to_{directory, safe} {}

    void append(std::span<const std::byte> payload) {
        railmq::storage::wire_writer w{batch_};
        w.number(payload.size());
        w.raw(payload);
        if (++count_ == most) {
            end_batch();
        }
    }
    void commit() {
        end_batch();
        to_.commit();
    }

private:
    void end_batch() {
        if (count_ != 0) {
            to_.append(batch_);
            batch_.clear();
            count_ = 0;
        }
    }

    journal_log to_;
    std::vector<std::byte> batch_;
    std::size_t count_ = 0;
};

/// Opening a journal is reading it; then it is closed in good order, for the next one.
template <bool IsInBatches>
class basic_journal_reader {
public:
    explicit basic_journal_reader(const std::string& directory)
        : directory_{directory} {}

    std::uint64_t read_all() {
        std::uint64_t records = 0;
        auto journal = open_journal(
            journal_directory(directory_),
            [&](std::uint64_t, std::span<const std::byte> payload, auto&&...) {
                if constexpr (IsInBatches) {
                    railmq::storage::wire_reader r{payload};
                    for (; !r.is_at_end(); ++records) {
                        keep(r.raw(r.number()).front());
                    }
                } else {
                    keep(payload.front());
                    ++records;
                }
            });
        railmq::error_code ec;
        journal.close(ec);
        require(!ec, "close");
        return records;
    }

private:
    std::string directory_;
};
using journal_reader = basic_journal_reader<false>;
using batch_journal_reader = basic_journal_reader<true>;

/// Callers share a write and a sync: one of them does it, the others wait.
class leader_log {
public:
    explicit leader_log(const std::string& directory)
        : file_{directory} {}

    void append_and_wait(std::span<const std::byte> payload) {
        std::unique_lock lock{mutex_};
        raw_file::encode(gathering_, payload);
        const std::uint64_t number = ++last_;
        while (synced_ < number) {
            if (is_flushing_) {
                flushed_.wait(lock);
                continue;
            }
            is_flushing_ = true;
            flushing_.swap(gathering_);
            const std::uint64_t last = last_;
            lock.unlock();
            file_.write(flushing_);
            file_.sync();
            ++syncs_;
            lock.lock();
            flushing_.clear();
            synced_ = last;
            is_flushing_ = false;
            flushed_.notify_all();
        }
    }
    [[nodiscard]] std::uint64_t syncs() const { return syncs_; }

private:
    raw_file file_;
    std::mutex mutex_;
    std::condition_variable flushed_;
    std::vector<std::byte> gathering_;
    std::vector<std::byte> flushing_;
    std::uint64_t last_ = 0;
    std::uint64_t synced_ = 0;
    std::atomic<std::uint64_t> syncs_ = 0;
    bool is_flushing_ = false;
};

/// Files that count how often they are synced.
struct counted_directory : railmq::storage::posix_directory {
    struct file_type : railmq::storage::posix_file {
        void sync_data(railmq::error_code& ec) {
            ++*syncs;
            posix_file::sync_data(ec);
        }
        std::atomic<std::uint64_t>* syncs = nullptr;
    };

    [[nodiscard]] file_type
    open(std::string_view name, railmq::storage::open_mode mode, railmq::error_code& ec) {
        return {posix_directory::open(name, mode, ec), syncs};
    }

    std::atomic<std::uint64_t>* syncs = nullptr;
};

class shared_journal_log {
public:
    explicit shared_journal_log(const std::string& directory)
        : journal_{open_journal(
              counted_directory{journal_directory(directory), &syncs_}, [](auto&&...) {})} {}

    void append_and_wait(std::span<const std::byte> payload) {
        railmq::error_code ec;
        const std::uint64_t number = journal_.append(payload, ec);
        if (!ec) {
            journal_.wait(number, railmq::storage::reached::synced, ec);
        }
        require(!ec, "append and wait");
    }
    [[nodiscard]] std::uint64_t syncs() const { return syncs_; }

private:
    std::atomic<std::uint64_t> syncs_ = 0;
    railmq::storage::shared_journal<counted_directory> journal_;
};

} // namespace bench
