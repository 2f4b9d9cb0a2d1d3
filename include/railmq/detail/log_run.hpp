// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_record.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/core/producer_states.hpp>
#include <railmq/detail/elements.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/detail/log_line.hpp>
#include <railmq/detail/log_numbering.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/handle_options.hpp>
#include <railmq/model/log_handle_options.hpp>
#include <railmq/model/receipt.hpp>
#include <railmq/storage/segment.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::detail {

/// Who appends: a producer without an id, or one life of an idempotent one.
template <class Runtime>
struct log_author {
    std::shared_ptr<log_numbering<Runtime>> numbering{}; ///< Null without an id.
    std::uint64_t id = 0;
    std::uint32_t epoch = 0;

    friend bool operator==(const log_author&, const log_author&) = default;
};

/// What a transaction appends to one partition, all of it as one.
///
/// Thread safety: from `begin` to `end` with the partition's lock held, and the numbering's.
template <class Runtime>
class log_run {
public:
    using log_type = log_core<Runtime>;
    using line_type = log_line<Runtime>;
    using author_type = log_author<Runtime>;

    /// A record on its way.
    struct record {
        core::log_input input{};
        std::unique_ptr<std::string> key{};  ///< What `input` has of it is here.
        std::unique_ptr<held_value> value{}; ///< Null: a tombstone.
        std::vector<std::byte> encoded{};
        std::size_t place = 0; ///< Among the receipts.
    };

    log_run(std::shared_ptr<log_type> log, std::uint32_t partition, author_type author)
        : log_{std::move(log)}
        , partition_{partition}
        , author_{std::move(author)} {}

    [[nodiscard]] log_type& log() const noexcept { return *log_; }
    [[nodiscard]] std::uint32_t partition() const noexcept { return partition_; }
    [[nodiscard]] line_type& line() const noexcept { return *log_->line(partition_); }
    [[nodiscard]] log_numbering<Runtime>* numbering() const noexcept {
        return author_.numbering.get();
    }
    [[nodiscard]] railmq::durability wanted() const noexcept { return wanted_; }
    /// That will be written, at most.
    [[nodiscard]] std::size_t bytes() const noexcept { return encoded_.size() + 128; }

    /// Takes one more. Errors, after which it is as it was: `invalid_argument` of another author,
    /// or a number where the records before it have none; `sequence_out_of_order` where numbers or
    /// expected offsets do not go on. Throws `std::bad_alloc`.
    [[nodiscard]] errc
    add(record& r, const author_type& by, const append_options& o, railmq::durability wanted) {
        if (!(by == author_)) {
            return errc::invalid_argument;
        }
        const std::size_t n = inputs_.size();
        std::optional<std::uint64_t> begin = first_offset_;
        if (o.expected_offset) {
            if (*o.expected_offset < n || (begin && *begin + n != *o.expected_offset)) {
                return errc::sequence_out_of_order;
            }
            begin = *o.expected_offset - n;
        }
        std::optional<std::int32_t> sequence = first_sequence_;
        if (o.sequence) {
            if (n != 0 && !sequence) {
                return errc::invalid_argument;
            }
            if (n != 0 &&
                core::sequence_after(*sequence, static_cast<std::uint32_t>(n)) != *o.sequence) {
                return errc::sequence_out_of_order;
            }
            sequence = n == 0 ? o.sequence : sequence;
        }
        make_room(inputs_);
        make_room(kept_);
        encoded_.insert(encoded_.end(), r.encoded.begin(), r.encoded.end());
        inputs_.push_back(std::move(r.input));
        kept_.push_back({std::move(r.key), std::move(r.value), r.place});
        first_offset_ = begin;
        first_sequence_ = sequence;
        wanted_ = n == 0 ? wanted : stronger(wanted_, wanted);
        return errc{};
    }

    /// Asks whether it can be appended, and makes room for it. Errors as of a send. Throws
    /// `std::bad_alloc`. Nothing has changed.
    [[nodiscard]] errc begin(time_point now) {
        auto& a = append_.emplace();
        if (const errc why = log_->closed(); why != errc{}) {
            return why;
        }
        a.terms.expected_offset = first_offset_;
        if (author_.numbering != nullptr) {
            const std::int32_t next = author_.numbering->next(partition_);
            a.terms.producer = {
                author_.id,
                author_.epoch,
                first_sequence_.value_or(next),
                static_cast<std::uint32_t>(inputs_.size())};
        }
        line().begin_append(inputs_, now, a);
        return a.plan.result.failed;
    }
    /// It happens, and nobody sees it.
    void fill() noexcept {
        line().fill_append(inputs_, *append_);
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            if (kept_[i].value != nullptr && inputs_[i].payload == nullptr) {
                kept_[i].value->was_moved();
            }
        }
    }
    /// Appends its entry to a record of the journal. Throws `std::bad_alloc`.
    void put(std::vector<std::byte>& to) {
        line().put_append(inputs_.size(), encoded_, *append_, to);
    }
    /// Shows it. `at`: the record, if there is one.
    void end(const storage::record_location* at) noexcept {
        line().end_append(inputs_.size(), at, *append_);
        const auto& r = append_->plan.result;
        if (author_.numbering != nullptr && !(r.duplicate && first_sequence_)) {
            author_.numbering->next_sequence[partition_] = core::sequence_after(
                append_->terms.producer->first_sequence,
                static_cast<std::uint32_t>(inputs_.size()));
        }
    }
    void report(std::span<transaction_receipt> receipts) const noexcept {
        const auto& r = append_->plan.result;
        for (std::size_t i = 0; i < kept_.size(); ++i) {
            transaction_receipt& to = receipts[kept_[i].place];
            to.partition = partition_;
            to.offset = r.first_offset + i;
            if (r.duplicate) {
                to.duplicate_of = to.offset;
            }
        }
    }
    /// With no lock held: what follows from it, whatever has become of it.
    void finish() noexcept {
        if (append_) {
            log_->after(append_->fx.kept);
            append_.reset();
        }
    }

private:
    struct kept_part {
        std::unique_ptr<std::string> key;
        std::unique_ptr<held_value> value;
        std::size_t place;
    };
    template <class V>
    static void make_room(V& v) {
        if (v.size() == v.capacity()) {
            v.reserve(2 * v.size() + 1);
        }
    }

    std::shared_ptr<log_type> log_;
    const std::uint32_t partition_;
    const author_type author_;
    std::vector<core::log_input> inputs_{};
    std::vector<kept_part> kept_{}; ///< What the inputs refer to.
    std::vector<std::byte> encoded_{};
    std::optional<std::uint64_t> first_offset_{};
    std::optional<std::int32_t> first_sequence_{};
    railmq::durability wanted_{};
    std::optional<typename line_type::joint_append> append_{};
};

} // namespace railmq::detail
