// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/message_image.hpp>
#include <railmq/model/errc.hpp>
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/entries.hpp>
#include <railmq/storage/inspect.hpp>
#include <railmq/storage/kept_state.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railmq::storage {

/// Moves messages from one queue of a journal to another, without a broker and without their type:
/// the bytes stay what they are. `journal` and `state` come from `open_broker_journal`, `now` is
/// the broker's time. `pick(id)` says which; those on their way to a dead-letter queue stay.
///
/// A message that moves is as one that a broker redrives: at the end of the other queue, with a new
/// number there, its counts at zero and its history of deaths kept. Each moves in one record, so
/// that it is in one of the queues after any crash, and never in both. What was moved is on the
/// device when this returns. A limit of the target in messages is kept; one in bytes is not looked
/// at.
///
/// Returns how many were moved; with an error, those before it were. Errors: `not_found`, when
/// there is no such queue; `type_mismatch`, when their formats differ; `invalid_argument`, when
/// they are the same; `queue_full`; `journal_corrupt`, when a message cannot be read; `no_space`,
/// `io_error`.
template <class Pick>
std::uint64_t redrive(
    broker_journal& journal,
    kept_state& state,
    std::string_view from,
    std::string_view to,
    Pick&& pick,
    time_point now,
    failure& failed) {
    failed = {};
    const auto stop = [&](errc e, std::string what) {
        failed = {make_error_code(e), std::move(what)};
        return std::uint64_t{0};
    };
    kept_queue* const source = find_queue(state, from);
    kept_queue* const target = find_queue(state, to);
    if (source == nullptr || target == nullptr) {
        return stop(
            errc::not_found,
            "there is no queue '" + railmq::detail::printable(source == nullptr ? from : to) + "'");
    }
    if (source == target) {
        return stop(errc::invalid_argument, "a queue cannot be redriven to itself");
    }
    const queue_definition& d = target->definition;
    if (source->definition.format != d.format) {
        return stop(
            errc::type_mismatch,
            "messages of the format '" + railmq::detail::printable(source->definition.format) +
                "' do not go into a queue of '" + railmq::detail::printable(d.format) + "'");
    }
    std::vector<std::uint64_t> ids;
    source->messages.for_each_from(0, [&](std::uint64_t id, const kept_message& m) {
        if (m.image(id).state != core::image_state::dying && pick(id)) {
            ids.push_back(id);
        }
        return true;
    });
    std::uint64_t ready = count_messages(*target).ready;
    std::uint64_t moved = 0;
    std::vector<std::byte> payload;
    std::vector<std::byte> record;
    error_code ec;
    for (const std::uint64_t id : ids) {
        if (ready >= d.options.max_length) {
            ec = errc::queue_full;
            break;
        }
        core::message_image image;
        image.id = id;
        journal.load(
            source->definition.number,
            id,
            source->record_of(id),
            source->messages.find(id)->where.location(),
            image,
            payload,
            ec);
        if (ec) {
            break;
        }
        image.id = image.position = d.next_position;
        image.enqueued = now;
        if (d.options.time_to_live) {
            image.expires_at = saturating_add(now, *d.options.time_to_live);
        }
        record.clear();
        entry_writer w{record, journal.wall()};
        w.stored(d.number, image, image.props.get(), image.deaths.get());
        w.payload(payload);
        w.gone(source->definition.number, id, 1);
        record_location where;
        // Not from the space that is kept for records that make other space free.
        if (!journal.port().has_room(record.size(), ec) || journal.append(record, where, ec) == 0) {
            break;
        }
        if (!state.add(record, where)) {
            ec = errc::journal_corrupt;
            break;
        }
        ++ready;
        ++moved;
    }
    error_code synced;
    journal.port().wait(journal.port().last(), reached::synced, synced);
    ec = ec ? ec : synced;
    if (ec) {
        failed = {ec, "after " + std::to_string(moved) + " of " + std::to_string(ids.size())};
    }
    return moved;
}

} // namespace railmq::storage
