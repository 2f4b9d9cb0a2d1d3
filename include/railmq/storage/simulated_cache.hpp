// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/random.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::storage::detail {

/// What a device writes as a whole.
inline constexpr std::size_t sector_size = 512;

/// The contents of one file, twice: as processes see them, and as the device has them.
///
/// Distinct objects: safe. Shared objects: unsafe.
class cached_file {
public:
    [[nodiscard]] std::span<const std::byte> cached() const noexcept { return cache_.bytes; }
    [[nodiscard]] std::span<const std::byte> on_device() const noexcept { return device_.bytes; }
    [[nodiscard]] std::uint64_t size() const noexcept { return cache_.bytes.size(); }
    /// The file has room for the bytes below this.
    [[nodiscard]] std::uint64_t space() const noexcept { return cache_.space; }

    /// Returns how many bytes there were to read.
    std::size_t read(std::uint64_t offset, std::span<std::byte> in) const {
        const std::size_t n = std::min<std::size_t>(in.size(), size() - std::min(offset, size()));
        std::copy_n(cache_.bytes.data() + std::min(offset, size()), n, in.data());
        return n;
    }

    /// Reads what the device has, or, where that is the same, what there was before the last
    /// write. The size is the true one.
    std::size_t read_stale(std::uint64_t offset, std::span<std::byte> in) const {
        const std::size_t n = read(offset, in);
        bool is_stale = false;
        for (std::size_t i = 0; i != n; ++i) {
            const std::byte old = at(device_.bytes, offset + i);
            is_stale = is_stale || old != in[i];
            in[i] = old;
        }
        for (std::size_t i = 0; !is_stale && i != n; ++i) {
            const std::uint64_t place = offset + i - last_write_; // far too large before it
            in[i] = place < before_last_write_.size() ? before_last_write_[place] : in[i];
        }
        return n;
    }

    /// Below the end of the file, which `grow` moves.
    void write(std::uint64_t offset, std::span<const std::byte> out) {
        const auto place = cache_.bytes.begin() + static_cast<std::ptrdiff_t>(offset);
        before_last_write_.assign(place, place + static_cast<std::ptrdiff_t>(out.size()));
        last_write_ = offset;
        std::copy(out.begin(), out.end(), place);
        mark_dirty(offset, offset + out.size());
    }

    /// Makes it at least `size` bytes long, with zeros.
    void grow(std::uint64_t size) {
        const std::uint64_t old = this->size();
        if (size > old) {
            // A file that was cut: the device still has what is zeros now.
            mark_dirty(old, std::min<std::uint64_t>(size, device_.bytes.size()));
            cache_.bytes.resize(size);
        }
    }

    void reserve(std::uint64_t size) noexcept { cache_.space = std::max(cache_.space, size); }

    void cut(std::uint64_t size) {
        cache_.bytes.resize(size);
        cache_.space = std::min(cache_.space, size);
        dirty_.erase(dirty_.lower_bound((size + sector_size - 1) / sector_size), dirty_.end());
    }

    /// Everything that is dirty goes to the device.
    void sync() {
        device_.bytes.resize(cache_.bytes.size());
        device_.space = cache_.space;
        for (const std::uint64_t sector : dirty_) {
            copy_to_device(sector, sector_size);
        }
        dirty_.clear();
    }

    /// What is dirty counts as clean, and is not on the device.
    void fail_to_sync() noexcept { dirty_.clear(); }

    /// All, none or some of the dirty sectors reach the device, of each torn one a part; so does
    /// a size between the old one and the new one. What the device has then is what there is.
    void crash(random_engine& random, double torn_sectors) {
        const std::uint64_t size = size_after_crash(random);
        device_.bytes.resize(std::max(device_.bytes.size(), cache_.bytes.size()));
        device_.space = std::min(size, std::max(device_.space, cache_.space));
        const std::uint64_t choice = uniform_below(random, 4);
        for (const std::uint64_t sector : dirty_) {
            if (choice == 0 || (choice != 1 && uniform_below(random, 2) == 0)) {
                const bool is_torn = uniform_unit(random) < torn_sectors;
                const std::uint64_t part = 1 + uniform_below(random, sector_size - 1);
                copy_to_device(sector, is_torn ? part : sector_size);
            }
        }
        device_.bytes.resize(size);
        cache_ = device_;
        dirty_.clear();
        before_last_write_.clear();
    }

    /// Flips bits of a byte everywhere it is.
    void corrupt(std::uint64_t offset, std::byte mask) noexcept {
        for (image* const i : {&cache_, &device_}) {
            if (offset < i->bytes.size()) {
                i->bytes[offset] ^= mask;
            }
        }
    }

private:
    struct image {
        std::vector<std::byte> bytes{};
        std::uint64_t space = 0;
    };

    [[nodiscard]] static std::byte
    at(std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
        return offset < bytes.size() ? bytes[offset] : std::byte{0};
    }

    void mark_dirty(std::uint64_t from, std::uint64_t to) {
        for (std::uint64_t at = from - from % sector_size; at < to; at += sector_size) {
            dirty_.insert(at / sector_size);
        }
    }

    void copy_to_device(std::uint64_t sector, std::uint64_t count) {
        const std::uint64_t from = sector * sector_size;
        const std::uint64_t to = std::min<std::uint64_t>(from + count, cache_.bytes.size());
        std::copy(
            cache_.bytes.data() + from, cache_.bytes.data() + to, device_.bytes.data() + from);
    }

    [[nodiscard]] std::uint64_t size_after_crash(random_engine& random) const noexcept {
        const std::uint64_t old = device_.bytes.size();
        const std::uint64_t low = std::min(old, size());
        switch (uniform_below(random, 4)) {
        case 0: return old;
        case 1: return low + uniform_below(random, std::max(old, size()) - low + 1);
        default: return size();
        }
    }

    image cache_{};
    image device_{};
    std::set<std::uint64_t> dirty_{};
    std::uint64_t last_write_ = 0;
    std::vector<std::byte> before_last_write_{};
};

/// The names in a directory and which file each one means, twice: as processes see them, and as
/// the device has them; and the changes between the two.
///
/// Distinct objects: safe. Shared objects: unsafe.
class cached_names {
public:
    using map = std::map<std::string, std::uint64_t, std::less<>>;

    [[nodiscard]] const map& cached() const noexcept { return cached_; }

    /// The name must be free.
    void create(std::string_view name, std::uint64_t file) {
        change({"", std::string{name}, file});
    }
    /// The name `from` must exist.
    void rename(std::string_view from, std::string_view to) {
        change({std::string{from}, std::string{to}, cached_.find(from)->second});
    }
    /// The name must exist.
    void remove(std::string_view name) {
        change({std::string{name}, "", cached_.find(name)->second});
    }

    void sync() {
        durable_ = cached_;
        pending_.clear();
    }

    /// The first few of the changes reach the device; now and then any of them, but none that
    /// makes no sense without one that did not.
    void crash(random_engine& random) {
        const std::uint64_t choice = uniform_below(random, 8);
        std::uint64_t first = uniform_below(random, pending_.size() + 1);
        first = choice <= 1 ? 0 : choice == 2 ? pending_.size() : first;
        for (std::size_t i = 0; i != pending_.size(); ++i) {
            if (choice == 3 ? uniform_below(random, 2) == 0 : i < first) {
                apply(durable_, pending_[i]);
            }
        }
        pending_.clear();
        cached_ = durable_;
    }

    /// Whether the file has a name, or may have one after a crash.
    [[nodiscard]] bool may_name(std::uint64_t file) const noexcept {
        const auto is_it = [file](const auto& entry) { return entry.second == file; };
        return std::any_of(cached_.begin(), cached_.end(), is_it) ||
               std::any_of(durable_.begin(), durable_.end(), is_it) ||
               std::any_of(pending_.begin(), pending_.end(), [file](const step& s) {
                   return s.file == file;
               });
    }

private:
    /// Without a name to come from it creates, without one to go to it removes.
    struct step {
        std::string from{};
        std::string to{};
        std::uint64_t file = 0;
    };

    void change(step what) {
        apply(cached_, what);
        pending_.push_back(std::move(what));
    }

    static void apply(map& names, const step& what) {
        if (what.from.empty()) {
            names.try_emplace(what.to, what.file);
            return;
        }
        const auto it = names.find(what.from);
        if (it == names.end() || it->second != what.file) {
            return;
        }
        names.erase(it);
        if (!what.to.empty()) {
            names.insert_or_assign(what.to, what.file);
        }
    }

    map cached_{};
    map durable_{};
    std::vector<step> pending_{};
};

} // namespace railmq::storage::detail
