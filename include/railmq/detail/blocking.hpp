// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/queue_core.hpp>

namespace railmq::detail {

/// Blocks until a waiter that stands in `q` is served, at most until `limit`; not at all with the
/// earliest there is. False: it was not, and does not stand there any more.
///
/// In a simulation others run meanwhile, and what they throw is passed on: then it does not stand
/// there either, and if it was served before, `undo` is called.
template <class Runtime, class Waiter, class Undo>
[[nodiscard]] bool block_until_served(
    queue_core<Runtime>& q, Waiter& w, sleeper<Runtime>& thread, time_point limit, Undo&& undo) {
    auto& owner = q.broker();
    const auto take_back = [&] {
        return q.locked([&](auto& m, time_point, auto&) {
            if (!w.is_linked()) {
                return false;
            }
            m.forget(w);
            return true;
        });
    };
    try {
        if (limit == time_point::min() ? thread.spot.finished() : owner.block(thread, limit)) {
            return true;
        }
        if (take_back()) {
            return false;
        }
        return owner.block(thread, never); // it is being completed this moment
    } catch (...) {
        if (!take_back()) {
            undo();
        }
        throw;
    }
}

/// Blocks until a queue, or one consumer of it, has nothing left to do, at most for `limit`.
/// Of a queue: nothing held, and unless `only_held`, nothing ready or delayed either.
/// False: not within the limit, or the queue was closed meanwhile. A handler of the broker does not
/// wait: it could be waiting for its own end.
template <class Runtime>
[[nodiscard]] bool wait_for_idle(
    queue_core<Runtime>& q,
    bool only_held,
    duration limit,
    const core::lease_holder<Runtime>* of = nullptr) {
    struct waiting : core::idle_waiter {
        sleeper<Runtime> thread{};
    };
    auto& owner = q.broker();
    waiting w;
    w.only_held = only_held;
    w.of = of;
    w.complete = [](core::waiter* self) noexcept {
        static_cast<waiting*>(static_cast<core::idle_waiter*>(self))->thread.spot.finish();
    };
    const time_point until = saturating_add(owner.clock().now(), limit);
    q.locked_and_current([&](auto& m, time_point now, auto& fx) {
        m.wait_for_idle(w);
        m.serve(now, fx);
    });
    const time_point soon = handler_of == &owner ? time_point::min() : until;
    return block_until_served(q, w, w.thread, soon, [] {}) && !w.result;
}

} // namespace railmq::detail
