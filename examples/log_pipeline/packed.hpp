// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace log_pipeline {

/// Appends numbers and texts to bytes, in the form that `unpacker` reads.
class packer {
public:
    explicit packer(std::vector<std::byte>& out) noexcept
        : out_{out} {}

    packer& number(std::uint64_t n) {
        for (int i = 0; i < 8; ++i) {
            out_.push_back(static_cast<std::byte>(n >> (8 * i)));
        }
        return *this;
    }
    packer& text(std::string_view t) {
        number(t.size());
        const auto bytes = std::as_bytes(std::span{t.data(), t.size()});
        out_.insert(out_.end(), bytes.begin(), bytes.end());
        return *this;
    }

private:
    std::vector<std::byte>& out_;
};

/// Reads them again. Bytes that are none give zeros and empty texts, and `is_whole()` is false.
class unpacker {
public:
    explicit unpacker(std::span<const std::byte> in) noexcept
        : in_{in} {}

    [[nodiscard]] std::uint64_t number() noexcept {
        std::uint64_t n = 0;
        const auto bytes = take(8);
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            n |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
        }
        return n;
    }
    [[nodiscard]] std::string_view text() noexcept {
        const auto bytes = take(number());
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    /// Whether everything was there, and nothing is left.
    [[nodiscard]] bool is_whole() const noexcept { return !has_failed_ && in_.empty(); }
    [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }

private:
    std::span<const std::byte> take(std::uint64_t n) noexcept {
        if (n > in_.size()) {
            has_failed_ = true;
            in_ = {};
            return {};
        }
        const auto taken = in_.first(static_cast<std::size_t>(n));
        in_ = in_.subspan(taken.size());
        return taken;
    }

    std::span<const std::byte> in_;
    bool has_failed_ = false;
};

} // namespace log_pipeline
