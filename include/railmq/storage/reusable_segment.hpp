// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/files.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace railmq::storage {

/// A segment that nobody wants any more, whose file is kept to become another one: its blocks are
/// there, and its pages are in memory, which costs more to give back and to get than to write over.
///
/// Thread safety: one call at a time.
template <directory Directory>
class reusable_segment {
public:
    using file_type = typename Directory::file_type;

    /// What it is called meanwhile; a crash may leave it behind.
    [[nodiscard]] static constexpr std::string_view name() noexcept { return "reuse.tmp"; }

    /// How long the file is; 0: there is none.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

    /// Keeps the segment of that name, if none is kept and its size is in these limits. False: it
    /// is there as it was, or so is what an error has left of it.
    [[nodiscard]] bool
    keep(Directory& from, std::string_view segment, std::uint64_t least, std::uint64_t most) {
        if (bytes_ != 0) {
            return false;
        }
        error_code ec;
        const file_type file = from.open(segment, open_mode::read, ec);
        const std::uint64_t size = ec ? 0 : file.size(ec);
        if (ec || size == 0 || size < least || size > most) {
            return false;
        }
        from.rename(segment, name(), ec);
        bytes_ = ec ? 0 : size;
        return !ec;
    }

    struct taken {
        file_type file{};
        std::uint64_t bytes = 0;
    };
    /// The file, by its new name, if one of at least that size is kept. Its old name is gone for
    /// good by then: a crash must not find the new contents under it.
    [[nodiscard]] std::optional<taken>
    take(Directory& from, std::string_view as, std::uint64_t least) {
        if (bytes_ == 0 || bytes_ < least) {
            return std::nullopt;
        }
        taken out{{}, std::exchange(bytes_, 0)};
        error_code ec;
        from.sync(ec);
        if (!ec) {
            from.rename(name(), as, ec);
        }
        if (!ec) {
            out.file = from.open(as, open_mode::read_write, ec);
        }
        return ec ? std::nullopt : std::optional{std::move(out)};
    }

    /// Gives its space back.
    void drop(Directory& from) {
        if (std::exchange(bytes_, 0) != 0) {
            error_code ignored;
            from.remove(name(), ignored);
        }
    }

private:
    std::uint64_t bytes_ = 0;
};

} // namespace railmq::storage
