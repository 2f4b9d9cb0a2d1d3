// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/group_offsets.hpp>
#include <railmq/detail/log_group.hpp>
#include <railmq/detail/log_reader.hpp>
#include <railmq/detail/log_waiter.hpp>
#include <railmq/model/errc.hpp>

#include <mutex>
#include <vector>

/// How a member of a group commits what it has acknowledged.
namespace railmq::detail {

template <class Runtime>
errc log_reader<Runtime>::commit_acked() {
    errc unwritten{};
    errc first{};
    woken_list<Runtime> woken;
    {
        std::lock_guard guard{mutex_};
        first = commit(core::rewinding::refused, unwritten, woken);
        const errc back = commit(core::rewinding::allowed, unwritten, woken);
        first = first != errc{} ? first : back;
    }
    if (unwritten != errc{}) {
        log_->broker().tell_unwritten(log_->name(), unwritten);
    }
    return first;
}

template <class Runtime>
errc log_reader<Runtime>::commit(
    core::rewinding back, errc& unwritten, woken_list<Runtime>& woken) {
    std::vector<core::offset_commit> what;
    what.reserve(touched_.size()); // nothing may throw while they are moved together
    const bool is_back = back == core::rewinding::allowed;
    std::erase_if(touched_, [&](lane* l) {
        const std::uint64_t to = l->tracker.committable();
        if (l->is_rewound == is_back && l->failed_with == errc{} && to != l->committed) {
            what.push_back({{the_topic, l->partition}, to, {}});
        }
        l->is_touched = to != l->committed;
        return !l->is_touched;
    });
    if (what.empty()) {
        return errc{};
    }
    std::vector<errc> results(what.size());
    (void)group_->commit(member_, what, results, back, unwritten, woken);
    errc first{};
    for (std::size_t i = 0; i < what.size(); ++i) {
        lane* const l = find(what[i].partition.partition);
        if (results[i] != errc{}) {
            first = first != errc{} ? first : results[i];
        } else if (l != nullptr) {
            l->committed = what[i].offset;
            l->is_rewound = false;
        }
    }
    return first;
}

} // namespace railmq::detail
