// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/log_record.hpp>
#include <railmq/core/partition.hpp>
#include <railmq/core/payload_ops.hpp>
#include <railmq/detail/broker_core.hpp>
#include <railmq/detail/log_core.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/model/properties.hpp>
#include <railmq/model/time.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/log_entries.hpp>
#include <railmq/storage/log_rows.hpp>
#include <railmq/storage/stored_contents.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace railmq::detail {

/// Puts the records of one partition back, a record of the journal at a time.
template <class Runtime>
class line_restorer {
public:
    using log_type = log_core<Runtime>;
    using partition_type = core::partition<Runtime>;
    using undecodable = typename log_type::undecodable;

    line_restorer(
        broker_core<Runtime>& owner,
        const core::payload_ops& ops,
        storage::log_place where,
        partition_type& to,
        std::vector<undecodable>& bad)
        : owner_{owner}
        , journal_{*owner.journal()}
        , ops_{ops}
        , where_{where}
        , to_{to}
        , bad_{bad}
        , align_{std::max<std::size_t>(ops.align, alignof(void*))}
        , space_{::operator new(ops.size, align_)} {}
    line_restorer(const line_restorer&) = delete;
    line_restorer& operator=(const line_restorer&) = delete;
    ~line_restorer() { ::operator delete(space_, align_); }

    /// Errors: `journal_corrupt`, `io_error`, `memory_limit`.
    [[nodiscard]] errc restore(const storage::log_rows& rows) {
        errc failed{};
        std::vector<std::pair<std::uint64_t, std::uint64_t>> together;
        storage::record_location at;
        rows.for_each_from(0, [&](std::uint64_t first, const storage::log_rows::row& r) {
            if (!together.empty() && !(at == r.at.location())) {
                failed = restore_from(at, together);
                together.clear();
            }
            at = r.at.location();
            together.emplace_back(first, first + r.count);
            return failed == errc{};
        });
        if (failed == errc{} && !together.empty()) {
            failed = restore_from(at, together);
        }
        return failed;
    }

private:
    /// Rows, from a first offset up to another, that lie in one record of the journal.
    using row_list = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

    [[nodiscard]] errc restore_from(storage::record_location at, const row_list& rows) {
        error_code ec;
        bool is_data = false;
        (void)journal_.next_record(at, record_, is_data, ec);
        if (ec) {
            return static_cast<errc>(ec.value());
        }
        storage::stored_contents contents;
        if (!is_data || !contents.read(record_)) {
            return errc::journal_corrupt;
        }
        errc failed{};
        auto row = rows.begin();
        std::uint64_t next = row->first;
        for (const storage::log_run& run : contents.runs()) {
            if (!(run.where == where_)) {
                continue;
            }
            storage::for_each_record(
                run, journal_.wall(), [&](std::uint64_t offset, const storage::log_run_record& r) {
                    if (failed != errc{} || row == rows.end() || offset != next) {
                        return;
                    }
                    failed = put_back(offset, r, in_broker_time(run.appended));
                    if (++next == row->second && ++row != rows.end()) {
                        next = row->first;
                    }
                });
        }
        return failed != errc{} ? failed : row == rows.end() ? errc{} : errc::journal_corrupt;
    }
    [[nodiscard]] time_point in_broker_time(time_point t) const noexcept {
        return t == never ? never : saturating_add(t, -journal_.wall());
    }
    [[nodiscard]] errc
    put_back(std::uint64_t offset, const storage::log_run_record& r, time_point appended) {
        core::log_input in;
        if (r.has_key) {
            in.key = r.key;
        }
        in.timestamp = r.timestamp;
        if (!r.props.empty()) {
            in.props = std::make_unique<properties>();
            if (!r.get(*in.props)) {
                return errc::journal_corrupt;
            }
        }
        if (!r.is_tombstone) {
            bool is_good = false;
            try {
                is_good = ops_.decode(space_, r.payload);
            } catch (const std::bad_alloc&) {
                throw; // that says nothing of the bytes
            } catch (...) {
                owner_.count_swallowed();
            }
            if (!is_good) {
                if (r.has_key) {
                    in.props = in.props ? std::move(in.props) : std::make_unique<properties>();
                    in.props->key = std::string{r.key};
                }
                bad_.push_back(
                    {where_.partition,
                     offset,
                     std::move(in.props),
                     {r.payload.begin(), r.payload.end()}});
                return errc{};
            }
            in.payload = space_;
        }
        const struct ending {
            const core::payload_ops& ops;
            const core::log_input& in;
            ~ending() {
                if (in.payload != nullptr && ops.destroy != nullptr) {
                    ops.destroy(in.payload);
                }
            }
        } finally{ops_, in};
        return to_.restore(std::span{&in, 1}, offset, appended).failed;
    }

    broker_core<Runtime>& owner_;
    storage::broker_journal& journal_;
    const core::payload_ops& ops_;
    const storage::log_place where_;
    partition_type& to_;
    std::vector<undecodable>& bad_;
    const std::align_val_t align_;
    void* const space_;
    std::vector<std::byte> record_{};
};

} // namespace railmq::detail
