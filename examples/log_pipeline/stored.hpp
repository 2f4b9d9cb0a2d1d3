// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/railmq.hpp>

#include "log_line.hpp"
#include "packed.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace log_pipeline {

/// What a worker made of a line, on its way to the index.
struct parsed_line {
    std::uint64_t number = 0;
    std::string minute{};
    std::string level{};
    std::string program{};
    std::string text{};

    [[nodiscard]] entry as_entry() const { return {minute, level, program, text}; }
};

/// How far the reader has come, in which inputs.
struct bookmark {
    std::uint64_t read = 0;
    std::uint64_t blank = 0;
    std::uint64_t sent = 0;
    std::string inputs{};
};

} // namespace log_pipeline

// With --directory these are kept in files. A codec's name is to change with its format.

template <>
struct railmq::codec<log_pipeline::log_line> {
    static void encode(const log_pipeline::log_line& l, std::vector<std::byte>& out) {
        log_pipeline::packer{out}.number(l.number).number(l.is_cut ? 1 : 0).text(l.text);
    }
    static std::optional<log_pipeline::log_line> decode(std::span<const std::byte> in) {
        log_pipeline::unpacker u{in};
        log_pipeline::log_line l;
        l.number = u.number();
        l.is_cut = u.number() != 0;
        l.text = u.text();
        return u.is_whole() ? std::optional{std::move(l)} : std::nullopt;
    }
    static std::string_view name() { return "log_line/1"; }
};

template <>
struct railmq::codec<log_pipeline::parsed_line> {
    static void encode(const log_pipeline::parsed_line& l, std::vector<std::byte>& out) {
        log_pipeline::packer{out}
            .number(l.number)
            .text(l.minute)
            .text(l.level)
            .text(l.program)
            .text(l.text);
    }
    static std::optional<log_pipeline::parsed_line> decode(std::span<const std::byte> in) {
        log_pipeline::unpacker u{in};
        log_pipeline::parsed_line l;
        l.number = u.number();
        l.minute = u.text();
        l.level = u.text();
        l.program = u.text();
        l.text = u.text();
        return u.is_whole() ? std::optional{std::move(l)} : std::nullopt;
    }
    static std::string_view name() { return "parsed_line/1"; }
};

template <>
struct railmq::codec<log_pipeline::bookmark> {
    static void encode(const log_pipeline::bookmark& b, std::vector<std::byte>& out) {
        log_pipeline::packer{out}.number(b.read).number(b.blank).number(b.sent).text(b.inputs);
    }
    static std::optional<log_pipeline::bookmark> decode(std::span<const std::byte> in) {
        log_pipeline::unpacker u{in};
        log_pipeline::bookmark b;
        b.read = u.number();
        b.blank = u.number();
        b.sent = u.number();
        b.inputs = u.text();
        return u.is_whole() ? std::optional{std::move(b)} : std::nullopt;
    }
    static std::string_view name() { return "bookmark/1"; }
};
