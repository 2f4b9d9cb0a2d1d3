// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/detail/queue_core.hpp>

namespace railmq::detail {

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
    const bool in_handler = handler_of == &owner;
    if (in_handler ? !w.thread.spot.finished() : !owner.block(w.thread, until)) {
        const bool was_served = q.locked([&](auto& m, time_point, auto&) {
            if (!w.is_linked()) {
                return true;
            }
            m.forget(w);
            return false;
        });
        if (!was_served) {
            return false;
        }
        owner.block(w.thread, never); // it is being completed this moment
    }
    return !w.result;
}

} // namespace railmq::detail
