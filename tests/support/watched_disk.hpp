// SPDX-License-Identifier: BSL-1.0
//
// A simulated disk that tells before it changes, so that a test can copy it at that moment.
#pragma once

#include <railmq/storage/files.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::test {

/// Calls `before` ahead of every call that changes what is on the disk.
struct watch {
    std::uint64_t calls = 0;
    std::function<void()> before{};
    /// What was to be brought to the device ahead of the sync: from where, and how much.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> started{};

    void tell() {
        ++calls;
        if (before) {
            before();
        }
    }
};

class watched_file {
public:
    watched_file() = default;
    watched_file(storage::simulated_file f, watch* w)
        : file_{std::move(f)}
        , watch_{w} {}

    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> in, error_code& ec) {
        return file_.read_some_at(offset, in, ec);
    }
    std::size_t
    write_some_at(std::uint64_t offset, std::span<const std::byte> out, error_code& ec) {
        watch_->tell();
        return file_.write_some_at(offset, out, ec);
    }
    void sync_data(error_code& ec) {
        watch_->tell();
        file_.sync_data(ec);
    }
    void start_sync(std::uint64_t offset, std::uint64_t size) {
        watch_->started.emplace_back(offset, size);
    }
    void allocate(std::uint64_t size, error_code& ec) { file_.allocate(size, ec); }
    void resize(std::uint64_t size, error_code& ec) {
        watch_->tell();
        file_.resize(size, ec);
    }
    [[nodiscard]] std::uint64_t size(error_code& ec) const { return file_.size(ec); }
    [[nodiscard]] std::uint64_t data_from(std::uint64_t offset, error_code& ec) const {
        return file_.data_from(offset, ec);
    }

private:
    storage::simulated_file file_{};
    watch* watch_ = nullptr;
};

class watched_directory {
public:
    using file_type = watched_file;
    using lock_type = storage::simulated_lock;

    watched_directory(storage::simulated_disk& disk, watch& w)
        : directory_{disk.directory()}
        , watch_{&w} {}

    [[nodiscard]] watched_file
    open(std::string_view name, storage::open_mode mode, error_code& ec) {
        if (mode == storage::open_mode::create) {
            watch_->tell();
        }
        return {directory_.open(name, mode, ec), watch_};
    }
    void rename(std::string_view from, std::string_view to, error_code& ec) {
        watch_->tell();
        directory_.rename(from, to, ec);
    }
    void remove(std::string_view name, error_code& ec) {
        watch_->tell();
        directory_.remove(name, ec);
    }
    [[nodiscard]] std::vector<std::string> names(error_code& ec) const {
        return directory_.names(ec);
    }
    void sync(error_code& ec) {
        watch_->tell();
        directory_.sync(ec);
    }
    [[nodiscard]] lock_type lock(std::int64_t& owner, error_code& ec) {
        return directory_.lock(owner, ec);
    }

private:
    storage::simulated_directory directory_;
    watch* watch_;
};
static_assert(storage::directory<watched_directory>);

} // namespace railmq::test
