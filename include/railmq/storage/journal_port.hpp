// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/model/errc.hpp>
#include <railmq/storage/journal.hpp>
#include <railmq/storage/shared_journal.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace railmq::storage {

/// A broker's journal without the type of the directory it lies in, so that brokers need not be
/// templates of it. What the calls do is said at `shared_journal` and `journal`.
class journal_port {
public:
    journal_port() = default;
    journal_port(const journal_port&) = delete;
    journal_port& operator=(const journal_port&) = delete;
    virtual ~journal_port() = default;

    /// Appends a record, if need be in the headroom; `is_tight` then.
    virtual std::uint64_t append(
        std::span<const std::byte> record,
        record_location& where,
        bool& is_tight,
        error_code& ec) = 0;
    [[nodiscard]] virtual bool has_room(std::size_t payload, error_code& ec) = 0;
    virtual void wait(std::uint64_t number, reached how_far, error_code& ec) = 0;
    [[nodiscard]] virtual std::uint64_t last() const = 0;
    [[nodiscard]] virtual bool has_failed() = 0;
    virtual void close(error_code& ec) = 0;

    /// A record, valid until the next call of this function. One thread at a time.
    [[nodiscard]] virtual record_view read(record_location where, error_code& ec) = 0;

    [[nodiscard]] virtual std::uint64_t segment() = 0;
    virtual void read_from(std::uint64_t segment, error_code& ec) = 0;
    virtual void roll(error_code& ec) = 0;
    [[nodiscard]] virtual std::uint64_t is_read_from() = 0;
    [[nodiscard]] virtual std::vector<std::pair<std::uint64_t, std::uint64_t>>
    segments(error_code& ec) = 0;
    virtual void remove_segment(std::uint64_t number, error_code& ec) = 0;
};

/// A journal in a directory.
template <directory Directory>
class directory_journal final : public journal_port {
public:
    explicit directory_journal(journal<Directory> j) noexcept
        : journal_{std::move(j)} {}

    std::uint64_t append(
        std::span<const std::byte> record,
        record_location& where,
        bool& is_tight,
        error_code& ec) override {
        typename journal<Directory>::appended at;
        const std::uint64_t number = journal_.append(record, true, at, ec);
        where = at.where;
        is_tight = at.in_headroom;
        return number;
    }
    [[nodiscard]] bool has_room(std::size_t payload, error_code& ec) override {
        return journal_.has_room(payload, ec);
    }
    void wait(std::uint64_t number, reached how_far, error_code& ec) override {
        journal_.wait(number, how_far, ec);
    }
    [[nodiscard]] std::uint64_t last() const override { return journal_.last(); }
    [[nodiscard]] bool has_failed() override {
        return journal_.alone([](auto& j) { return j.has_failed(); });
    }
    void close(error_code& ec) override {
        journal_.close(ec);
        ahead_ = {};
    }

    [[nodiscard]] record_view read(record_location where, error_code& ec) override {
        return journal_.read(where, ahead_, ec);
    }
    [[nodiscard]] std::uint64_t segment() override {
        return journal_.alone([](auto& j) { return j.segment(); });
    }
    void read_from(std::uint64_t segment, error_code& ec) override {
        journal_.alone([&](auto& j) { j.read_from(segment, ec); });
    }
    void roll(error_code& ec) override {
        journal_.alone([&](auto& j) { j.roll(ec); });
    }
    [[nodiscard]] std::uint64_t is_read_from() override {
        return journal_.alone([](auto& j) { return j.is_read_from(); });
    }
    [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>>
    segments(error_code& ec) override {
        return journal_.alone([&](auto& j) { return j.segments(ec); });
    }
    void remove_segment(std::uint64_t number, error_code& ec) override {
        journal_.alone([&](auto& j) { j.remove_segment(number, ec); });
    }

private:
    shared_journal<Directory> journal_;
    typename journal<Directory>::read_ahead ahead_{};
};

} // namespace railmq::storage
