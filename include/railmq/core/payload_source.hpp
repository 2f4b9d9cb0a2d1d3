// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <railmq/core/slot_ring.hpp>

namespace railmq::core {

/// Where payloads come from that have left memory, since they are in a journal as well. What is
/// left of such a payload in its place is a value that owns nothing.
///
/// Thread safety: called with the queue's lock held; it must not call the machine.
template <class Sync>
class payload_source {
public:
    /// Asked before a message is handed out. False: its payload cannot be read now; it waits, and
    /// this is asked again.
    [[nodiscard]] virtual bool bring_back(place<Sync> p) noexcept = 0;

    /// Whether none has left.
    [[nodiscard]] virtual bool has_all() const noexcept = 0;

protected:
    ~payload_source() = default;
};

} // namespace railmq::core
